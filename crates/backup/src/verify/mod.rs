//! `verify`: checks a backup level by level, from its manifest to a server that runs on it.
//!
//! All levels up to the pages read only the store and write nothing to disk. Damage is reported in
//! a [`VerifyReport`]; an error means that a check could not be made.

mod classic;
mod contradicted;
mod files;
mod intact_objects;
mod open;
mod packed;
mod passes;
mod request;
mod results;
mod run;
mod sum_check;
mod trial;

use xb_encryptor::{Keys, MacKey};
use xb_pipeline::Observer;
use xb_repo::chain::{Link, why_broken};
use xb_repo::error::RepoError;
use xb_repo::manifest::{Layout, StoredManifest};
use xb_repo::names::{BackupName, CATALOG};
use xb_repo::records::{self, FailedTry, VerifyResult};
use xb_repo::root::Root;
use xb_repo::verification::{Level, PageReport, Problem, VerifiedLink, VerifyReport};

pub use request::VerifyRequest;
pub use trial::{Trial, verify_by_restore};

use crate::cancel::OrInterrupted as _;
use crate::error::BackupError;
use crate::read::removed_meanwhile::refuse_removed;
use crate::read::unlock::Accept;
use crate::session::Session;
use crate::verify::run::Run;

/// Verifies a backup up to [`Level::Pages`].
///
/// # Errors
/// If a check could not be made: no such backup, no key, store not reachable. Damage is not an
/// error but part of the report.
pub async fn verify(
    session: &Session,
    request: &VerifyRequest,
) -> Result<VerifyReport, BackupError> {
    let (mut report, mac) = up_to_pages(session, request).await?;
    record(&session.root, request, &mut report, mac.as_ref()).await;
    Ok(report)
}

/// Verifies the backup; if a check cannot be made, records only the levels that passed before it.
/// Also returns the manifest's key, if it is known.
async fn up_to_pages(
    session: &Session,
    request: &VerifyRequest,
) -> Result<(VerifyReport, Option<MacKey>), BackupError> {
    let Session { root, observer, .. } = session;
    observer.expect_phases(phases(request.level));
    let report = VerifyReport::new(request.name.to_string(), request.level.min(Level::Pages));
    let mut run = Run { session, request, report, mac: None };
    if let Err(error) = run.all().await {
        let Run { mut report, mac, .. } = run;
        keep_passed(root, request, &mut report, mac.as_ref(), &error).await;
        if let BackupError::Contradicted { level, .. } = &error {
            let why = error.to_string();
            record_failed_try(root, request, &mut report, mac.as_ref(), *level, &why).await;
        }
        return Err(error);
    }
    // What a removal takes away meanwhile is no damage.
    if let Some(manifest) = run.report.manifest.as_ref().filter(|_| !run.report.is_undamaged()) {
        refuse_late(root, &request.name, manifest).await?;
    }
    let traffic = root.store().traffic();
    run.report.requests = traffic.requests();
    run.report.retries = traffic.retries();
    run.report.finished = jiff::Timestamp::now();
    Ok((run.report, run.mac))
}

/// Number of phases up to a level, at most [`Level::Pages`]: the listing, and one that reads the
/// objects.
fn phases(level: Level) -> u32 {
    match level {
        Level::Manifest => 0,
        Level::List => 1,
        _ => 2,
    }
}

/// Returns whether a record can be written after this error. A store that does not answer cannot take one,
/// and a cancellation must not wait for one.
fn can_be_recorded(error: &BackupError) -> bool {
    !matches!(error, BackupError::Repo(RepoError::Store(_)) | BackupError::Interrupted(_))
}

/// Records the levels that passed before a check could not be made.
async fn keep_passed(
    root: &Root,
    request: &VerifyRequest,
    report: &mut VerifyReport,
    key: Option<&MacKey>,
    error: &BackupError,
) {
    let no_problem = report.problems.is_empty();
    let Some(reached) = report.reached.filter(|_| can_be_recorded(error) && no_problem) else {
        return;
    };
    report.levels.retain(|level| level.level <= reached);
    (report.level, report.finished) = (reached, jiff::Timestamp::now());
    record(root, request, report, key).await;
}

/// Writes the verification record, if requested. Verifying must also work with read-only access: a
/// warning then reports that the record was not written.
async fn record(
    root: &Root,
    request: &VerifyRequest,
    report: &mut VerifyReport,
    key: Option<&MacKey>,
) {
    let (Some(tool), Some(manifest)) = (&request.record, &report.manifest) else { return };
    let result = VerifyResult::of(report, tool);
    if let Err(error) = add_result(root, &request.name, manifest, result, key).await {
        let warning = format!("cannot store the result beside the manifest: {error}");
        report.warnings.push(warning);
    }
}

/// Adds a result to the record of the backup with this manifest.
async fn add_result(
    root: &Root,
    name: &BackupName,
    manifest: &str,
    result: VerifyResult,
    key: Option<&MacKey>,
) -> Result<(), RepoError> {
    refuse_late(root, name, manifest).await?;
    records::add(root, name, manifest, result, key).await
}

/// Fails if the backup was removed or replaced since its manifest was read: the record would stay for ever, or replace
/// that of the next backup of the name, which may hold a fault.
async fn refuse_late(root: &Root, name: &BackupName, manifest: &str) -> Result<(), RepoError> {
    let state = ": it was removed or replaced while it was being verified";
    refuse_removed(root, name, manifest, state).await
}

/// Records a try at a level that ended without a result, and why, so that an earlier proof does not hide it.
async fn record_failed_try(
    root: &Root,
    request: &VerifyRequest,
    report: &mut VerifyReport,
    key: Option<&MacKey>,
    level: Level,
    why: &str,
) {
    let (Some(tool), Some(manifest)) = (&request.record, &report.manifest) else { return };
    let failed = FailedTry::now(level, tool, why);
    let added = match refuse_late(root, &request.name, manifest).await {
        Ok(()) => records::add_failed_try(root, &request.name, manifest, failed, key).await,
        late => late,
    };
    if let Err(error) = added {
        let warning = format!("cannot store the failed try beside the manifest: {error}");
        report.warnings.push(warning);
    }
}

impl Run<'_> {
    async fn all(&mut self) -> Result<(), BackupError> {
        let name = &self.request.name;
        let mut bases = Vec::new();
        let stored = self.session.cancel.or(self.session.root.stored_manifest(name)).await;
        if let Ok(Some(stored)) = &stored {
            self.report.chain = vec![VerifiedLink::new(name.as_str(), stored)];
            self.report.after =
                Some(records::last_number(&self.session.root, name, &stored.digest()).await);
        }
        if let Ok(Some(stored)) = &stored
            && stored.manifest.is_incremental()
        {
            let (links, broken) = self
                .session
                .cancel
                .or(why_broken(&self.session.root, name, stored.clone()))
                .await?;
            self.report.broken_chain = broken;
            self.history(&links);
            if !links.is_empty() {
                let link = |link: &Link| VerifiedLink::new(link.name.as_str(), &link.stored);
                self.report.chain = links.iter().map(link).collect();
            }
            bases = links.into_iter().filter(|link| link.name != *name).collect();
        }
        self.check_levels(stored).await?;
        if self.report.is_undamaged() && self.wants(Level::List) {
            self.list_bases(&bases).await?;
        }
        Ok(())
    }

    /// Looks whether all objects of the backups that an increment needs are there. What is missing breaks its chain,
    /// and is recorded at the backup that it belongs to. Their data is not read.
    async fn list_bases(&mut self, bases: &[Link]) -> Result<(), BackupError> {
        // Progress at a base would look like that at the backup itself.
        let session = &Session { observer: Observer::default(), ..self.session.clone() };
        for Link { name: base, stored } in bases {
            // Without keys: another key may have sealed it.
            let request = VerifyRequest {
                name: base.clone(),
                level: Level::List,
                keys: Keys::default(),
                accept: Accept::default(),
                record: self.request.record.clone(),
            };
            let mut report = VerifyReport::new(base.to_string(), Level::List);
            report.after =
                Some(records::last_number(&self.session.root, base, &stored.digest()).await);
            let mut run = Run { session, request: &request, report, mac: None };
            run.check_levels(Ok(Some(stored.clone()))).await?;
            let Run { mut report, .. } = run;
            let Some(Problem { object, what, .. }) = report.problems.first() else { continue };
            let object = object.as_ref().map_or(String::new(), |object| format!("{object}: "));
            let why = format!("its base {base}: {object}{what}");
            record(&self.session.root, &request, &mut report, None).await;
            self.report.warnings.append(&mut report.warnings);
            self.report.broken_chain.get_or_insert(why);
        }
        Ok(())
    }

    async fn check_levels(
        &mut self,
        stored: Result<Option<StoredManifest>, BackupError>,
    ) -> Result<(), BackupError> {
        match stored {
            Err(error @ BackupError::Repo(RepoError::Manifest { .. })) => {
                let name = &self.request.name;
                self.found(Level::Manifest, Some(format!("{CATALOG}/{name}")), error.to_string());
                self.report.close(Level::Manifest, "the manifest cannot be used".to_owned());
                self.leave_out_rest();
                Ok(())
            }
            Err(error) => Err(error),
            Ok(Some(stored)) if stored.manifest.layout == Layout::Packed => {
                match self.open_packed(stored).await? {
                    Some(packed) => self.packed(packed).await,
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
                self.open_classic(manifest).await
            }
        }
    }
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
