//! Finds the base of an incremental backup, and checks that it is authentic.

use std::io;
use std::path::PathBuf;

use xb_binlog::Fork;
use xb_encryptor::Keys;
use xb_repo::chain::{Link, UnknownImport, chain_of, unknown_import};
use xb_repo::error::RepoError;
use xb_repo::history::{NotContinued, Verdict, judge};
use xb_repo::lineage::RememberedIncrement;
use xb_repo::lineage::same_server;
use xb_repo::list::fault_of;
use xb_repo::manifest::history::History;
use xb_repo::manifest::source_info::SourceInfo;
use xb_repo::manifest::{Base, Manifest, StoredManifest};
use xb_repo::names::{BackupName, RunId};
use xb_repo::resolve::{BackupSelector, ResolvedBackup, resolve_base};
use xb_repo::root::Root;

use crate::error::BackupError;
use crate::note_folder::NoteFolder;
use crate::read::unlock::{Accept, ReadKeys, unlock, unsealed};
use crate::server::login::fork_of;
use crate::server::watch::ServerWatch;
use crate::write::IncrementalBase;

/// What to do where a partial backup and a whole one would be in one chain.
const NEXT_OF_MIXED: &str =
    "take a full backup (`--or-full` does it), or choose the same tables by the producer's options";

/// Local record of the backups that this host wrote: their manifests, one file for each run. An
/// attacker who can write to the store cannot change these files.
#[derive(Debug, Clone)]
pub struct LocalRunLog(NoteFolder);

impl LocalRunLog {
    /// Keeps notes in this directory, which is created with the first one.
    #[must_use]
    pub fn new(dir: PathBuf) -> Self {
        Self(NoteFolder::new(dir))
    }

    /// Notes a backup, and removes the oldest notes. The note belongs to the owner of the directory.
    ///
    /// # Errors
    /// If the note cannot be written.
    pub fn note(&self, manifest: &Manifest) -> io::Result<()> {
        self.0.write(&manifest.run, &serde_json::to_vec(manifest)?)
    }

    /// Finds the manifest of a run, if this host wrote it. `None` also for a file that holds no manifest.
    ///
    /// # Errors
    /// If there is a note that cannot be read, such as one of another user.
    pub fn find(&self, run: &str) -> io::Result<Option<Manifest>> {
        if RunId::parse(run).is_none() {
            return Ok(None);
        }
        Ok(self.0.read(run)?.and_then(|note| serde_json::from_slice(&note).ok()))
    }

    /// The increments among the backups that this host has noted, for [`Root::remembering`]. Those that cannot be read are
    /// told to `unread`.
    ///
    /// # Errors
    /// If the directory exists and cannot be read.
    pub fn increments(
        &self,
        mut unread: impl FnMut(io::Error),
    ) -> io::Result<Vec<RememberedIncrement>> {
        let mut noted = Vec::new();
        for run in self.0.names()? {
            let found = self.find(&run).unwrap_or_else(|error| {
                unread(error);
                None
            });
            let Some(Manifest { name, base: Some(base), .. }) = found else { continue };
            let Ok(name) = BackupName::new(&name) else { continue };
            noted.push(RememberedIncrement { name, base: base.run });
        }
        Ok(noted)
    }
}

/// A request for the base of a new backup, and the conditions it must meet.
#[derive(Debug)]
pub struct SinceRequest<'a> {
    /// The requested base.
    pub wanted: &'a BackupSelector,
    /// Server of the new backup.
    pub server: Option<&'a str>,
    /// Keys that may authenticate the manifest of a sealed backup.
    pub keys: &'a Keys,
    /// Whether the new backup will be sealed or encrypted: then its base must be sealed.
    pub sealed: bool,
    /// Whether to accept a base that is not sealed.
    pub accept_unsealed: bool,
    /// Memory limit for deriving a key from a passphrase, in bytes.
    pub memory: u64,
    /// This host's record of its own backups.
    pub own: Option<&'a LocalRunLog>,
    /// The server of the new backup, if it is known.
    pub watch: Option<&'a ServerWatch>,
    /// Whether to accept a base although it is unknown whether the server continues its history.
    pub accept_history: bool,
    /// Whether the options of the producer choose databases or tables: see [`chooses_tables`](crate::chooses_tables).
    pub is_partial: Option<bool>,
    /// Whether a full backup is taken where no base fits: then one on which no increment can be proven does not.
    pub or_full: bool,
}

/// Finds the base of a new backup and the log sequence number from which the new one has to hold changes. Also
/// returns warnings about the choice, for the user.
///
/// With a key, every backup of the chain must be sealed, and its manifest must be authenticated by
/// the key or equal the one that this host noted. Without a key, a sealed backup must come from
/// this host.
///
/// # Errors
/// [`RepoError::NotThere`], [`RepoError::WhichServer`]; [`RepoError::Chain`] if the backup
/// cannot be a base, or should not; [`BackupError::History`] if the server does not continue its history, or if that
/// is unknown; [`BackupError::UnprovenBase`] and [`BackupError::Unsealed`] if it is not
/// authenticated; [`BackupError::Keys`] if it was changed since this host wrote it.
pub async fn since(
    root: &Root,
    request: &SinceRequest<'_>,
) -> Result<(IncrementalBase, Vec<String>), BackupError> {
    let SinceRequest { wanted, server, is_partial, .. } = *request;
    // In a ROOT with several servers, choose the newest backup of the new backup's server.
    let found = resolve_base(root, wanted, None, is_partial).await;
    let ResolvedBackup { name, mut doubts } = match found {
        Err(RepoError::WhichServer { .. }) => {
            resolve_base(root, wanted, server, is_partial).await?
        }
        found => found?,
    };
    let Some(stored) = root.stored_manifest(&name).await? else {
        let state = xb_repo::list::state_without_manifest(root, &name).await?;
        return Err(RepoError::NotThere { name: name.to_string(), state }.into());
    };
    let manifest = &stored.manifest;
    let refused =
        |what: String| BackupError::Repo(RepoError::Chain { name: "the new backup".into(), what });
    if !same_server(manifest.server.as_deref(), server) {
        let (theirs, ours) =
            (manifest.server.as_deref().unwrap_or_default(), server.unwrap_or_default());
        return Err(refused(format!(
            "its base {name} comes from server {theirs}, but this is {ours}"
        )));
    }
    // Nothing is known of other servers' backups.
    request.demand_vouched(root, &name, &stored).await?;
    if let Some(why) = manifest.why_no_base() {
        return Err(refused(format!("{name} {why}: take a full backup with a producer")));
    }
    if let Some(what) = is_partial.and_then(|is_partial| mixed(&manifest.source, is_partial)) {
        return Err(refused(format!("its base {name} is {what}")));
    }
    let Some(base_ends) = manifest.source.to_lsn else {
        return Err(refused(format!(
            "the last LSN of its base {name} is unknown, because the producer compressed or encrypted the file that records it"
        )));
    };
    // A backup that cannot be restored cannot be a base.
    let links = chain_of(root, &name, stored.clone()).await?;
    for Link { name, stored } in links.iter().filter(|link| link.name != name) {
        match request.keys.is_empty() {
            // Another host may have written the backup; without a key that cannot be checked.
            true => request.demand_sealed(name, &stored.manifest)?,
            false => request.demand_vouched(root, name, stored).await?,
        }
    }
    // `latest` is chosen among what can be restored; a name is not.
    if matches!(wanted, BackupSelector::Name(_)) {
        for link in &links {
            if let Some(why) = fault_of(root, &link.name, &link.stored).await? {
                let of = match link.name == name {
                    true => String::new(),
                    false => format!("its base {}: ", link.name),
                };
                return Err(refused(format!("its base {name} cannot be restored: {of}{why}")));
            }
        }
    }
    if let Some(UnknownImport::OfFull(full)) = unknown_import(&links) {
        let doubt = format!(
            "{full} may lack imported tablespaces (ALTER TABLE ... IMPORT TABLESPACE), because an earlier version made it of a chain without looking for them, and no increment on it can be proven"
        );
        if request.or_full {
            return Err(refused(doubt));
        }
        doubts.push(format!("{doubt}: take a full backup (`--or-full` does it)"));
    }
    let accept_history = request.accept_history;
    let now = match request.watch {
        Some(watch) => watch.before(manifest).await,
        None => None,
    };
    let undo_tablespaces = |of: Option<&History>| of.and_then(|of| of.undo_tablespaces);
    if is_of_mariadb(manifest)
        && let (Some(then), Some(now)) =
            (undo_tablespaces(manifest.history.as_ref()), undo_tablespaces(now.as_ref()))
        && then != now
    {
        return Err(refused(format!(
            "its base {name} was taken with innodb_undo_tablespaces={then}, and the server has {now}: mariadb-backup takes no increment across that; take a full backup (`--or-full` does it)"
        )));
    }
    let verdict = judge(manifest, now.as_ref());
    if let Some(doubt) = accepted(name.as_str(), verdict, accept_history).map_err(|error| {
        // A lack on this host explains more than incomplete evidence does.
        match request.watch.and_then(ServerWatch::lacks).filter(|_| !error.is_certain) {
            Some(why) => NotContinued { what: format!("{}: {why}", error.what), ..error },
            None => error,
        }
    })? {
        doubts.push(doubt);
    }
    let is_known = |now: &History| now.rules_out_imports(manifest.history.as_ref());
    if is_of_mariadb(manifest) && now.as_ref().is_some_and(|now| !is_known(now)) {
        let knows_now = now.is_some_and(|now| now.highest.is_some());
        let lacks = match (knows_now, request.watch.and_then(ServerWatch::discarded)) {
            (true, _) => {
                "the base does not state its highest numbers of tables: an earlier version took it, a table was discarded then, or the server did not answer".to_owned()
            }
            (false, Some(table)) => format!(
                "the tablespace of {table} is discarded; import it or drop the table, then take a full backup"
            ),
            (false, None) => {
                "a table is discarded now, or the server's tables cannot be listed (privilege PROCESS)".to_owned()
            }
        };
        doubts.push(format!(
            "base {name}: it is unknown whether a tablespace was imported since (ALTER TABLE ... IMPORT TABLESPACE), whose pages no increment would have: {lacks}; `consolidate` takes such a chain with --accept-imports only"
        ));
    }
    let base = Base { name: name.to_string(), run: manifest.run.clone() };
    let lsn = begin(manifest).unwrap_or(base_ends);
    Ok((IncrementalBase { base, lsn, base_ends, accept_history }, doubts))
}

/// Why a new backup is no increment on `base`, if only one of them is partial, as far as known before it is taken.
fn mixed(base: &SourceInfo, is_partial: bool) -> Option<String> {
    let new = SourceInfo { is_partial, tool_name: Some(String::new()), ..SourceInfo::default() };
    new.mixes_with(base).map(|what| format!("{what}: {NEXT_OF_MIXED}"))
}

/// Where an increment on this base begins, if not where the base ends: where its redo log begins. Then the increment
/// has every page that its base may have copied too early, and the chain is restored without that log, in one pass.
/// Files prepared by mariadb-backup were shown to be right; those of xtrabackup were not.
fn begin(base: &Manifest) -> Option<u64> {
    let (start, end) = (base.source.redo_start_lsn?, base.source.to_lsn?);
    (is_of_mariadb(base) && start <= end).then_some(start)
}

fn is_of_mariadb(base: &Manifest) -> bool {
    let fork = base.source.tool_name.as_ref().and_then(|name| fork_of(name.as_ref()));
    fork == Some(Fork::MariaDb)
}

/// Returns the doubt that remains about a base with this verdict, if any.
///
/// # Errors
/// [`NotContinued`] if the base is not acceptable.
pub(super) fn accepted(
    base: &str,
    verdict: Verdict,
    accept_history: bool,
) -> Result<Option<String>, NotContinued> {
    let refused = |what, is_certain| NotContinued { base: base.to_owned(), what, is_certain };
    match verdict {
        Verdict::Same => Ok(None),
        Verdict::Likely(what) => Ok(Some(format!("base {base}: {what}"))),
        Verdict::Unknown(what) if accept_history => {
            Ok(Some(format!("base {base} was accepted by --accept-history: {what}")))
        }
        Verdict::Unknown(what) => Err(refused(
            format!("it is unknown whether the server was restored since then, because {what}"),
            false,
        )),
        Verdict::Other(what) => Err(refused(what, true)),
    }
}

impl SinceRequest<'_> {
    fn demand_sealed(&self, name: &BackupName, manifest: &Manifest) -> Result<(), BackupError> {
        let demanded = (self.sealed || !self.keys.is_empty()) && !self.accept_unsealed;
        match demanded && !manifest.is_sealed() {
            true => Err(unsealed(name, Some(manifest))),
            false => Ok(()),
        }
    }

    /// Rejects a manifest that must be authenticated, but is neither by a key nor by this host's
    /// notes.
    async fn demand_vouched(
        &self,
        root: &Root,
        name: &BackupName,
        stored: &StoredManifest,
    ) -> Result<(), BackupError> {
        let manifest = &stored.manifest;
        let (note, lacks) = match self.own.map(|own| own.find(&manifest.run)) {
            None | Some(Ok(None)) => (None, "this host did not write it".to_owned()),
            Some(Ok(note)) => (note, String::new()),
            Some(Err(error)) => {
                (None, format!("this host's note about it cannot be read ({error})"))
            }
        };
        if note.as_ref().is_some_and(|note| note != manifest) {
            return Err(BackupError::Keys(format!(
                "the manifest of {name} was changed: it differs from the one that this host wrote"
            )));
        }
        self.demand_sealed(name, manifest)?;
        let is_of_own = self.is_consolidated_from_own(name, manifest)?;
        if !manifest.is_sealed() || note.is_some() || is_of_own {
            return Ok(());
        }
        let given = ReadKeys { keys: self.keys, accept: Accept::default(), memory: self.memory };
        unlock(root, name, Some(stored), given).await.map(drop).map_err(|error| match error {
            BackupError::Keys(_) | BackupError::Unvouched { .. } => BackupError::UnprovenBase(
                format!("the manifest of {name} is not authenticated: {lacks}, and {error}"),
            ),
            error => error,
        })
    }
}

impl SinceRequest<'_> {
    /// Whether a consolidated backup is of a chain that ends with a backup of this host, and states of its data what this
    /// host has noted: where an increment begins, and whether the server continues the history, then rest on the note
    /// alone.
    ///
    /// # Errors
    /// [`BackupError::Keys`] if a note contradicts the manifest.
    fn is_consolidated_from_own(
        &self,
        name: &BackupName,
        manifest: &Manifest,
    ) -> Result<bool, BackupError> {
        let Some(own) = self.own else { return Ok(false) };
        let mut last = None;
        for link in &manifest.consolidated_from {
            last = own.find(&link.run).ok().flatten();
            let noted = last.as_ref().map(Manifest::text_digest);
            if noted.is_some_and(|noted| !noted.is_ok_and(|noted| noted == link.manifest)) {
                return Err(BackupError::Keys(format!(
                    "{name} was consolidated from another backup {} than this host wrote",
                    link.name
                )));
            }
        }
        let Some(last) = last else { return Ok(false) };
        match manifest.has_the_facts_of(&last) {
            true => Ok(true),
            false => Err(BackupError::Keys(format!(
                "{name} states other positions of its data than {}, from which it was consolidated: this host wrote that one",
                last.name
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::note_folder::MAX_NOTES;
    use xb_repo::manifest::sample;

    #[test]
    fn own_runs_are_found_again_and_the_oldest_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let own = LocalRunLog::new(dir.path().join("deep/er"));
        assert!(own.find(&sample().run).unwrap().is_none());
        own.note(&sample()).unwrap();
        assert_eq!(own.find(&sample().run).unwrap(), Some(sample()));
        assert!(own.find("../../../etc/passwd").unwrap().is_none());
        assert!(own.increments(|_| ()).unwrap().is_empty(), "the sample is a full backup");
        let file = LocalRunLog::new(dir.path().join("file"));
        assert!(file.increments(|_| ()).unwrap().is_empty(), "there is no such directory");
        std::fs::write(dir.path().join("file"), "").unwrap();
        assert!(file.increments(|_| ()).is_err(), "it is no directory");
        for n in 0..MAX_NOTES + 5 {
            let mut manifest = sample();
            manifest.run = format!("{n:032x}");
            own.note(&manifest).unwrap();
        }
        assert_eq!(std::fs::read_dir(dir.path().join("deep/er")).unwrap().count(), MAX_NOTES);
        assert!(own.find(&format!("{:032x}", MAX_NOTES + 4)).unwrap().is_some());
    }

    #[test]
    fn a_note_that_cannot_be_read_is_not_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let own = LocalRunLog::new(dir.path().to_owned());
        // As root, a test can read every file.
        std::fs::create_dir(own.0.path(&sample().run)).unwrap();
        let error = own.find(&sample().run).unwrap_err().to_string();
        assert!(error.starts_with(&own.0.path(&sample().run).display().to_string()), "{error}");
        // The others still count.
        let mut increment = sample();
        increment.run = "1".repeat(32);
        increment.base = Some(Base { name: "base".to_owned(), run: "2".repeat(32) });
        own.note(&increment).unwrap();
        let mut unread = 0;
        let known = own.increments(|_| unread += 1).unwrap();
        assert_eq!((known.len(), unread), (1, 1));
    }

    #[test]
    fn a_note_that_root_writes_belongs_to_the_owner_of_the_directory() {
        use std::os::unix::fs::{MetadataExt as _, chown};
        if !rustix::process::geteuid().is_root() {
            return xb_testkit::skipped("only root can give files away");
        }
        let dir = tempfile::tempdir().unwrap();
        chown(dir.path(), Some(65_534), Some(65_534)).unwrap();
        let own = LocalRunLog::new(dir.path().to_owned());
        own.note(&sample()).unwrap();
        assert_eq!(own.0.path(&sample().run).metadata().unwrap().uid(), 65_534);
    }
}
