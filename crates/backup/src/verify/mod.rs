//! `verify`: checks a backup level by level, from its manifest to a server that runs on it.
//!
//! All levels up to the pages read only the store and write nothing to disk. Damage is reported in
//! a [`VerifyReport`]; an error means that a check could not be made.

mod classic;
mod files;
mod packed;
mod passes;
mod server;
mod sound;
mod sum_check;
mod trial;

use std::sync::Arc;

use xb_encryptor::xbcrypt::{Algorithm, Cipher, XbcryptError};
use xb_encryptor::{Backend, DataKey, Envelope, Keys, MacKey, SlotKind};
use xb_pipeline::{
    EndRule, FileDecodeError, InspectError, InspectOptions, Inspected, LastFile, Observer,
    PagesFound, UnpackPlan,
};

pub use crate::catalog::verification::{
    Authenticity, Level, LevelReport, MAX_PROBLEMS, PageReport, Problem, RestoreTest, VerifyReport,
};

pub use server::ServerOptions;
pub use trial::{Trial, verify_by_restore};

use crate::cancel::CancelToken;
use crate::catalog::manifest::{End, Layout, Manifest, PackedFacts, StoredManifest};
use crate::catalog::names::{BackupName, CATALOG, KEYS, RunId, run_folder};
use crate::catalog::records::{self, VerifyResult};
use crate::catalog::root::Root;
use crate::claim::is_unfinished;
use crate::error::BackupError;
use crate::objects::checksums::Known;
use crate::objects::classic_checksums::list_with_sums;
use crate::read::unlock::{Accept, Given, envelope, open_sealed};

/// Minimum memory for inspecting files.
const LEAST_SHARE: u64 = 16 << 20;

/// Request to verify a backup.
#[derive(Debug)]
pub struct VerifyRequest {
    /// Name of the backup.
    pub name: BackupName,
    /// Highest level to check. For [`Level::Restore`] call [`verify_by_restore`]; [`verify`] stops
    /// at [`Level::Pages`].
    pub level: Level,
    /// Keys to open the backup; up to [`Level::Checksum`] none are needed. If there are any, the
    /// backup must be sealed, and one of them must authenticate its manifest.
    pub keys: Keys,
    /// Unauthenticated backups that are verified nevertheless.
    pub accept: Accept,
    /// Memory budget for buffers, in bytes.
    pub memory: u64,
    /// Worker threads.
    pub threads: usize,
    /// Maximum number of concurrent requests; the budget may allow fewer.
    pub parallel: usize,
    /// Program and version for the verification record; without it, no record is written.
    pub record: Option<String>,
}

impl VerifyRequest {
    fn given(&self) -> Given<'_> {
        Given { keys: &self.keys, accept: self.accept, memory: self.memory }
    }
}

/// Verifies a backup up to [`Level::Pages`].
///
/// # Errors
/// Why a check could not be made: no such backup, no key, store not reachable. Damage is not an
/// error but part of the report.
pub async fn verify(
    root: &Root,
    request: &VerifyRequest,
    observer: &Observer,
    stop: &mut CancelToken,
) -> Result<VerifyReport, BackupError> {
    let (mut report, mac) = up_to_pages(root, request, observer, stop).await?;
    record(root, request, &mut report, mac.as_ref()).await;
    Ok(report)
}

/// Verifies the backup; if a check cannot be made, records only the levels that passed before it.
/// Also returns the manifest's key, if it is known.
async fn up_to_pages(
    root: &Root,
    request: &VerifyRequest,
    observer: &Observer,
    stop: &mut CancelToken,
) -> Result<(VerifyReport, Option<MacKey>), BackupError> {
    let report = VerifyReport::new(request.name.to_string(), request.level.min(Level::Pages));
    let mut run = Run { root, request, observer, report, mac: None };
    if let Err(error) = run.all(stop).await {
        let Run { mut report, mac, .. } = run;
        keep_passed(root, request, &mut report, mac.as_ref(), &error).await;
        return Err(error);
    }
    let traffic = root.store().traffic();
    run.report.requests = traffic.requests();
    run.report.retries = traffic.retries();
    run.report.finished = jiff::Timestamp::now();
    Ok((run.report, run.mac))
}

/// Records the levels that passed before a check could not be made.
async fn keep_passed(
    root: &Root,
    request: &VerifyRequest,
    report: &mut VerifyReport,
    key: Option<&MacKey>,
    error: &BackupError,
) {
    // A store that does not answer cannot take a record, and a cancellation must not wait for one.
    let lost = matches!(error, BackupError::Store(_) | BackupError::Interrupted(_));
    let Some(reached) = report.reached.filter(|_| !lost && report.problems.is_empty()) else {
        return;
    };
    report.levels.retain(|level| level.level <= reached);
    (report.level, report.finished) = (reached, jiff::Timestamp::now());
    record(root, request, report, key).await;
}

/// The reason why a stream could not be inspected, unless it is damage.
fn not_damage(error: &InspectError) -> Option<BackupError> {
    let InspectError::Undo { path, source, .. } = error else { return None };
    match source.as_ref() {
        // The CRC of the xbcrypt chunk matches, so its bytes are not damaged.
        FileDecodeError::NoKey | FileDecodeError::Xbcrypt(XbcryptError::Hash { .. }) => {
            Some(BackupError::FileKey { what: format!("{path}: {source}") })
        }
        FileDecodeError::Memory { .. } | FileDecodeError::Xbcrypt(XbcryptError::NoHash { .. }) => {
            let source = std::io::Error::other(format!("{path}: {source}"));
            Some(BackupError::System { what: "verify", source })
        }
        _ => None,
    }
}

/// Writes the verification record, if requested. Verifying must also work with read-only access: a
/// note then reports that the record was not written.
async fn record(
    root: &Root,
    request: &VerifyRequest,
    report: &mut VerifyReport,
    key: Option<&MacKey>,
) {
    let (Some(tool), Some(manifest)) = (&request.record, &report.manifest) else { return };
    let result = VerifyResult::of(report, tool);
    if let Err(error) = records::add(root, &request.name, manifest, result, key).await {
        let note = format!("cannot store the result beside the manifest: {error}");
        report.notes.push(note);
    }
}

/// One verification.
struct Run<'a> {
    root: &'a Root,
    request: &'a VerifyRequest,
    observer: &'a Observer,
    report: VerifyReport,
    /// The manifest's key, once it is known.
    mac: Option<MacKey>,
}

/// A packed backup that can be read.
struct Packed {
    manifest: Manifest,
    facts: PackedFacts,
    run: RunId,
    key: Option<Arc<DataKey>>,
}

impl Run<'_> {
    async fn all(&mut self, stop: &mut CancelToken) -> Result<(), BackupError> {
        let name = &self.request.name;
        match stop.or(self.root.stored_manifest(name)).await {
            Err(error @ BackupError::Manifest { .. }) => {
                self.found(Level::Manifest, Some(format!("{CATALOG}/{name}")), error.to_string());
                self.report.close(Level::Manifest, "the manifest cannot be used".to_owned());
                self.leave_out_rest();
                Ok(())
            }
            Err(error) => Err(error),
            Ok(Some(stored)) if stored.manifest.layout == Layout::Packed => {
                match self.open_packed(stored, stop).await? {
                    Some(packed) => self.packed(packed, stop).await,
                    None => {
                        self.leave_out_rest();
                        Ok(())
                    }
                }
            }
            Ok(stored) => {
                let manifest = stored.map(|stored| {
                    self.report.manifest = Some(stored.digest());
                    stored.manifest
                });
                self.open_classic(manifest, stop).await
            }
        }
    }

    /// Checks the first level of a packed backup. Returns `None` if no further check is possible.
    async fn open_packed(
        &mut self,
        stored: StoredManifest,
        stop: &mut CancelToken,
    ) -> Result<Option<Packed>, BackupError> {
        let (name, keys) = (&self.request.name, &self.request.keys);
        let manifest = stored.manifest.clone();
        let (Some(facts), Some(run)) = (manifest.packed.clone(), manifest.run_id()) else {
            return Err(BackupError::Bug("a checked manifest is incomplete"));
        };
        self.report.manifest = Some(stored.digest());
        self.report.layout = Some(Layout::Packed);
        (self.report.objects, self.report.stored_bytes) = (manifest.objects, manifest.stored_bytes);
        self.report.authenticity = match &facts.sealed {
            None => Authenticity::NotSealed,
            Some(_) => Authenticity::NoKey,
        };
        if facts.sealed.is_none() {
            self.request.given().allows_unsealed(name, Some(&manifest))?;
        }
        let mut key = None;
        if facts.sealed.is_some() {
            let object = format!("{}/{KEYS}", run_folder(name, run));
            match stop.or(envelope(self.root, name, &manifest, run)).await {
                Ok(envelope) if keys.is_empty() && self.request.level < Level::Decrypt => {
                    drop(envelope);
                    self.note("without a key, the writer of this backup is unknown, and manifest and keys object are not authenticated");
                }
                Ok(envelope) => {
                    let given = self.request.given();
                    match open_sealed(self.root, name, &stored, &envelope, given) {
                        Ok(opened) => {
                            self.mac = Some(opened.manifest_key(envelope.stream_id()));
                            key = Some(Arc::new(opened));
                            if only_recipients(&envelope) {
                                self.note("the backup has only recipients as key slots: this proves that nothing was changed, but not who wrote it");
                            }
                        }
                        Err(error @ BackupError::Manifest { .. }) => {
                            let object = format!("{CATALOG}/{name}");
                            self.found(Level::Manifest, Some(object), error.to_string());
                        }
                        Err(BackupError::Keys(what)) if keys.is_empty() => {
                            let less = "levels up to checksum need no key";
                            return Err(BackupError::Keys(format!("{what}; {less}")));
                        }
                        Err(error) => return Err(error),
                    }
                }
                Err(BackupError::Damaged { what, .. }) => {
                    self.found(Level::Manifest, Some(object), what);
                }
                Err(error) => return Err(error),
            }
        }
        if key.is_some() {
            self.report.authenticity = match manifest.is_carried() {
                true => Authenticity::Unvouched,
                false => Authenticity::Authenticated,
            };
        }
        let what = format!("intact, {}", self.report.authenticity.as_str());
        self.report.close(Level::Manifest, what);
        // Without a sound keys object, the levels that need no key can still be checked.
        Ok(Some(Packed { manifest, facts, run, key }))
    }

    async fn open_classic(
        &mut self,
        manifest: Option<Manifest>,
        stop: &mut CancelToken,
    ) -> Result<(), BackupError> {
        let name = &self.request.name;
        self.report.layout = Some(Layout::Classic);
        let files = stop.or(list_with_sums(self.root, name, manifest.as_ref())).await?;
        if manifest.is_some() || !files.is_empty() {
            self.request.given().allows_unsealed(name, manifest.as_ref())?;
        }
        match &manifest {
            Some(_) => {
                self.report.authenticity = Authenticity::NotSealed;
                let what = format!("intact, {}", self.report.authenticity.as_str());
                self.report.close(Level::Manifest, what);
                if matches!(files.known(), Known::Whole(_)) {
                    self.note("a damaged object cannot be named, because the checksum list is missing or damaged");
                }
            }
            None => {
                if files.is_empty() || stop.or(is_unfinished(self.root, name)).await? {
                    let state =
                        crate::catalog::list::state_without_manifest(self.root, name).await?;
                    return Err(BackupError::NotThere { name: name.to_string(), state });
                }
                self.note("a stock backup has no manifest, so missing files cannot be detected");
                self.report.close(Level::Manifest, "no manifest".to_owned());
            }
        }
        self.classic(manifest, files, stop).await
    }

    fn note(&mut self, note: &str) {
        self.report.notes.push(note.to_owned());
    }

    fn found(&mut self, level: Level, object: Option<String>, what: String) {
        self.report.problem(Problem { level, object, file: None, offset: None, what });
    }

    fn wants(&self, level: Level) -> bool {
        self.request.level >= level
    }

    /// Records that the requested levels that were not checked did not pass.
    fn leave_out_rest(&mut self) {
        let asked = self.report.level;
        Level::ALL
            .into_iter()
            .filter(|level| *level <= asked)
            .for_each(|level| self.report.leave_out(level));
    }

    /// Divides the memory between fetching and inspecting files.
    fn plan(&self) -> Result<(UnpackPlan, u64), BackupError> {
        let VerifyRequest { memory, threads, parallel, .. } = *self.request;
        let share = if self.wants(Level::Decrypt) { (memory / 4).max(LEAST_SHARE) } else { 0 };
        let fetching = memory.saturating_sub(share);
        let plan = UnpackPlan::new(fetching, threads, parallel).map_err(|error| match error {
            xb_pipeline::PlanError::Memory { threads, needed, .. } => {
                xb_pipeline::PlanError::Memory { memory, threads, needed: needed + share }
            }
            error => error,
        })?;
        Ok((plan, share))
    }

    /// Options for inspecting a stream, according to the end that the manifest states.
    fn inspect(&self, end: Option<&End>, memory: u64) -> Result<InspectOptions, BackupError> {
        let cipher = match &self.request.keys.key {
            None => None,
            Some(key) => {
                // The length of the key determines the AES variant.
                let cipher = Cipher::new(Algorithm::Aes256, Some(key), Backend::default());
                Some(Arc::new(cipher.map_err(|error| BackupError::Keys(error.to_string()))?))
            }
        };
        let undo = self.wants(Level::Decrypt);
        let pages = self.wants(Level::Pages);
        Ok(InspectOptions { rule: end_rule(end), undo, cipher, pages, memory })
    }

    /// Records the results of a stream that was read to its end.
    fn read(&mut self, manifest: Option<&Manifest>, found: &Inspected) -> Result<(), BackupError> {
        let scanned = &found.scanned;
        self.report.stream_bytes = Some(scanned.bytes);
        self.report.files = Some(scanned.files);
        if let Some(manifest) = manifest.filter(|manifest| !manifest.is_carried()) {
            let (files, bytes) = (manifest.files, manifest.stream_bytes);
            if scanned.files != files {
                let what =
                    format!("the stream has {} files, the manifest has {files}", scanned.files);
                self.found(Level::Decrypt, None, what);
            }
            // A classic backup is read in another order, and its files may be transformed.
            if manifest.layout == Layout::Packed && scanned.bytes != bytes {
                let what =
                    format!("the stream has {} bytes, the manifest has {bytes}", scanned.bytes);
                self.found(Level::Decrypt, None, what);
            }
        }
        if found.unopened > 0 && self.wants(Level::Decrypt) {
            return Err(self.no_file_key());
        }
        self.pages(&found.pages);
        Ok(())
    }

    /// Error: level decrypt needs a key for single files, and none was given.
    fn no_file_key(&self) -> BackupError {
        let name = &self.request.name;
        let what = format!(
            "files of {name} are encrypted, but no key was given; levels up to checksum need none"
        );
        BackupError::FileKey { what }
    }

    /// Records the results of the page checks.
    fn pages(&mut self, found: &PagesFound) {
        if !self.wants(Level::Pages) {
            return;
        }
        self.report.pages = Some(PageReport::from(found));
        for bad in &found.bad {
            self.report.problem(Problem {
                level: Level::Pages,
                object: None,
                file: Some(bad.path.to_string()),
                offset: Some(bad.page.offset),
                what: format!("page {}: {}", bad.page.page, bad.page.fault),
            });
        }
        self.report.more_problems += found.untold;
        if found.passed_over > 0 {
            self.note(&format!(
                "tablespace files whose pages could not be checked: {}",
                found.passed_over
            ));
        }
        if found.doubtful > 0 {
            self.note(&format!(
                "{} pages are empty although they are in use; whether the redo log restores them shows at level restore",
                found.doubtful
            ));
        }
        if found.counts.unchecked > 0 {
            self.note(&format!(
                "pages not checked, because their checksum is encrypted or compressed, or they are in the doublewrite area: {}",
                found.counts.unchecked
            ));
        }
        if found.counts.no_checksum > 0 {
            self.note(&format!("pages without a checksum: {}", found.counts.no_checksum));
        }
    }

    /// Concludes the two levels that depend on reading the stream.
    fn close_read(&mut self) {
        let (files, bytes) = (self.report.files, self.report.stream_bytes);
        let blamed = self.report.problems.iter().any(|problem| problem.level == Level::Decrypt);
        if bytes.is_none() && !blamed {
            return self.leave_out_rest();
        }
        self.report.close(
            Level::Decrypt,
            match (files, bytes) {
                (Some(files), Some(bytes)) => {
                    format!("all {files} files in a stream of {bytes} bytes")
                }
                (None, Some(bytes)) => format!("{bytes} bytes, content not inspected"),
                _ => "the stream cannot be read to the end".to_owned(),
            },
        );
        match &self.report.pages {
            Some(pages) if bytes.is_some() => {
                let all =
                    pages.good + pages.empty + pages.no_checksum + pages.unchecked + pages.damaged;
                let what = format!(
                    "{all} pages in {} files: {} intact, {} empty, {} damaged",
                    pages.files, pages.good, pages.empty, pages.damaged
                );
                // Raw bytes are not inspected, and an incremental backup holds only some pages of a
                // table.
                if files.is_none() || pages.passed_over > 0 {
                    let what = format!("{what}; files not checkable: {}", pages.passed_over);
                    self.report.close_unchecked(Level::Pages, what);
                } else {
                    self.report.close(Level::Pages, what);
                }
            }
            _ => self.leave_out_rest(),
        }
    }

    /// Records a fault in the stream, with its file and offset.
    fn stream_fault(&mut self, level: Level, object: Option<String>, error: &InspectError) {
        let (_, path) = error.place();
        self.report.problem(Problem {
            level,
            object,
            file: path.map(ToString::to_string),
            offset: error.file_offset(),
            what: error.to_string(),
        });
    }
}

/// Whether all key slots of the backup are for recipients.
fn only_recipients(envelope: &Envelope) -> bool {
    envelope.slots().all(|slot| slot.kind == SlotKind::Recipient)
}

/// End rule for the stream: it must end as the manifest states.
fn end_rule(end: Option<&End>) -> EndRule {
    let Some(End::LastFile { name }) = end else { return EndRule::AnyEnd };
    // The last file of a producer has several possible names, and may have suffixes.
    let known = ["xtrabackup_info", "mariadb_backup_info", "xtrabackup_tablespaces"];
    let pattern = match known.contains(&name.as_str()) {
        true if name.ends_with("_info") => "{xtrabackup_info,mariadb_backup_info}*",
        true => "xtrabackup_tablespaces*",
        false => name,
    };
    // At any position: the classic layout delivers files in another order.
    LastFile::new(pattern).map_or(EndRule::AnyEnd, EndRule::WithFile)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_in_order_and_have_names() {
        assert!(Level::ALL.windows(2).all(|pair| pair[0] < pair[1]));
        for level in Level::ALL {
            assert_eq!(serde_json::to_string(&level).unwrap(), format!("\"{level}\""));
        }
    }

    #[test]
    fn a_level_holds_with_all_before_it_only() {
        let mut report = VerifyReport::new("n".into(), Level::Checksum);
        assert!(report.close(Level::Manifest, String::new()));
        report.problem(Problem {
            level: Level::List,
            object: None,
            file: None,
            offset: None,
            what: String::new(),
        });
        assert!(!report.close(Level::List, String::new()));
        assert!(!report.close(Level::Checksum, String::new()));
        assert_eq!((report.reached, report.is_ok()), (Some(Level::Manifest), false));
    }
}
