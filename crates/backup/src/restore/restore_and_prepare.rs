//! Complete restore: a backup with its chain, prepared, with the right owner, and as a cluster
//! node.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use xb_clone::CloneInfo;
use xb_delta::{discard, interrupted};
use xb_encryptor::DataKey;
use xb_pipeline::{CLONE_INFO, Durability};
use xb_repo::chain::{Link, chain_of};
use xb_repo::manifest::Manifest;
use xb_repo::manifest::galera_position::GaleraPosition;
use xb_repo::names::BackupName;

use crate::cancel::{CancelToken, OrInterrupted as _};
use crate::child::OnLine;
use crate::error::BackupError;
use crate::read::file_list::{files_of, packed};
use crate::read::request::{GetReport, GetRequest};
use crate::read::unlock::{Unlocked, unlock};
use crate::restore::chain::Chain;
use crate::restore::clone::info::{Asked, clone_to_restore};
use crate::restore::clone::place::{note_start, put_together};
use crate::restore::clone::report::CloneReport;
use crate::restore::clone::start::{find_server, noted, refuse_exposed, start_once};
use crate::restore::export_log::EXPORT_LOG;
use crate::restore::finished::{Finished, Totals, totals};
use crate::restore::galera::{Donor, Ist, read_position, write_position};
use crate::restore::journal::head::About;
use crate::restore::new_master_key;
use crate::restore::owner::Owner;
use crate::restore::prepare::{PrepareOptions, PrepareProgram, PrepareTool, prepare};
use crate::restore::same_space::is_covered;
use crate::restore::target_lock::TargetLock;
use crate::restore::{
    INCREMENTS, RestoreOptions, RestoreReport, Resumed, forget, restore_and_keep,
};
use crate::server::private::ServerOptions;
use crate::session::Session;

/// Steps of a restore after fetching the backup.
#[derive(Debug, Clone, Default)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct AfterRestore {
    /// Prepare the files with the program that took the backup, incremental backups in order
    #[cfg_attr(feature = "clap", arg(long))]
    pub prepare: bool,
    /// How the files are prepared; with `export` they are.
    #[cfg_attr(feature = "clap", command(flatten))]
    pub preparing: PrepareOptions,
    /// Restore only the files of an increment, without its chain
    #[cfg_attr(feature = "clap", arg(long, hide_short_help = true, conflicts_with_all = ["prepare", "export"]))]
    pub alone: bool,
    /// Owner of the files [default: the owner of the parent directory]
    #[cfg_attr(feature = "clap", arg(long, value_name = "USER[:GROUP]"))]
    pub owner: Option<Owner>,
    /// Write grastate.dat, so that a Galera node catches up with IST
    #[cfg_attr(feature = "clap", arg(long, requires = "prepare", conflicts_with_all = ["files", "alone"]))]
    pub galera: bool,
    /// Leave the table keys of a clone under a public constant
    #[cfg_attr(feature = "clap", arg(long, hide_short_help = true))]
    pub allow_exposed_keys: bool,
    /// How the server is started that prepares a clone.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub server: ServerOptions,
    /// Fail if this donor's gcache no longer covers the backup
    #[cfg_attr(feature = "clap", arg(long = "check-donor", value_name = "HOST|SOCKET"))]
    pub donor: Option<String>,
}

impl AfterRestore {
    /// The files are prepared by this program.
    #[must_use]
    pub fn prepared(by: PrepareProgram) -> Self {
        let preparing = PrepareOptions { by, ..PrepareOptions::default() };
        Self { prepare: true, preparing, ..Self::default() }
    }

    /// What is asked, if the backup is a clone.
    fn asked(&self) -> Asked {
        let by = &self.preparing.by;
        Asked {
            prepares: self.prepare().is_some(),
            exports: self.preparing.export,
            has_program: by.program.is_some() || !by.options.is_empty(),
            allow_exposed_keys: self.allow_exposed_keys,
        }
    }

    /// How the files are prepared, if they are.
    #[must_use]
    pub fn prepare(&self) -> Option<&PrepareOptions> {
        (self.prepare || self.preparing.export).then_some(&self.preparing)
    }
}

/// Result of a complete restore.
#[derive(Debug)]
pub struct RestoreChainReport {
    /// Result of each backup of the chain, the full one first.
    pub restored: Vec<(String, RestoreReport)>,
    /// Position of the node.
    pub position: Option<GaleraPosition>,
    /// Number of write sets that the donor has to send.
    pub behind: Option<u64>,
    /// What is known of a clone that was restored.
    pub clone: Option<CloneReport>,
}

/// Restores a backup with its chain into `target`, and makes it ready for use.
///
/// # Errors
/// The first cause. Fetched files stay.
pub async fn restore_chain(
    session: &Session,
    request: GetRequest,
    target: &Path,
    how: RestoreOptions,
    ready: &AfterRestore,
    on_line: &OnLine,
) -> Result<RestoreChainReport, BackupError> {
    let ready =
        AfterRestore { owner: ready.owner.or_else(|| Owner::to_keep(target)), ..ready.clone() };
    restore_locked(session, request, target, how, &ready, on_line, None).await
}

/// Like [`restore_chain`], for a caller that may have the lock of the target already, and gives the files to no owner
/// but `ready`'s.
pub(crate) async fn restore_locked(
    session: &Session,
    mut request: GetRequest,
    target: &Path,
    how: RestoreOptions,
    ready: &AfterRestore,
    on_line: &OnLine,
    lock: Option<&TargetLock>,
) -> Result<RestoreChainReport, BackupError> {
    let Session { observer, cancel, .. } = session;
    let owner = ready.owner;
    let links = cancel.or(links(session, &request, ready)).await?;
    let clone = match links.iter().any(Wanted::is_clone) {
        true => Some(clone_to_restore(session, &mut request, ready.asked()).await?),
        false => None,
    };
    let mut position = stated_position(ready, &links)?;
    let mut behind = None;
    // Checked before a restore that may take hours.
    if let (Some(address), Some(position)) = (&ready.donor, &position) {
        behind = Some(catches_up(address, position, cancel).await?);
    }
    // To the end: what another run has left is believed, and changed in place.
    let lock = if lock.is_none() { Some(TargetLock::take(target)?) } else { None };
    let finished = finished(&links, &request, how, ready);
    if let Some(totals) = finished.as_ref().and_then(|finished| finished.found(target)) {
        forget(target)?;
        if let Some(owner) = owner {
            tokio::task::block_in_place(|| owner.give(target))?;
        }
        let position = position.or_else(|| read_position(target));
        let clone = clone.map(|info| CloneReport { position: noted(target), ..reported(info) });
        return Ok(RestoreChainReport {
            restored: done_before(&links, totals),
            position,
            behind,
            clone,
        });
    }
    let server = match (&clone, ready.prepare()) {
        (Some(info), Some(_)) => Some(find_server(&ready.server, &info.version, cancel).await?),
        (Some(_), None) => None,
        (None, _) => {
            look_for_program(ready, &links)?;
            None
        }
    };
    let phases = if ready.prepare().is_some() { 2 } else { 1 };
    observer.expect_phases(phases + u32::from(clone.is_some()));
    let is_export = ready.preparing.export;
    // A clone has its redo log in its patches, and beside them.
    let redo = clone.as_ref().map_or(0, CloneInfo::redo_bytes);
    let room_beside = how.room_beside.saturating_add(redo) + if is_export { EXPORT_LOG } else { 0 };
    let how = RestoreOptions { room_beside, ..how };
    if clone.as_ref().is_some_and(CloneInfo::is_encrypted) {
        close(target)?;
    }
    // An earlier run was interrupted while it merged the chain: everything is fetched, and no journal holds any more.
    let is_begun =
        id_of(finished.as_ref(), target).and_then(|id| interrupted(target, &id)).is_some();
    let (restored, mut folders) = match is_begun {
        true => (done_before(&links, totals(target)), folders_of(target, links.len())),
        false => fetch(session, &mut request, &links, target, how).await?,
    };
    if !is_begun && ready.prepare().is_some() && !request.files.is_all() {
        refuse_uncovered(target, &folders)?;
    }
    if clone.is_none() && request.files.is_all() {
        refuse_unknown_clone(&request.name, &folders)?;
    }
    let durable = how.sync != Durability::None;
    let about = links.first().and_then(|link| link.about(&request, how));
    let clone = match (clone, about, restored.first()) {
        (Some(info), Some(about), Some((_, report))) => {
            observer.begin_phase("patch");
            let counts = (report.files, report.get.stream_bytes);
            put_together(session, target, about.clone(), counts, durable).await?;
            Some(started(session, (target, &about), info, (ready, server)).await?)
        }
        _ => None,
    };
    let wants_position = ready.galera || ready.donor.is_some();
    if wants_position {
        // The last directory's position is where the chain ends.
        let found = folders.last().and_then(|folder| read_position(folder));
        let found = found.or_else(|| is_begun.then(|| read_position(target))?);
        match found {
            Some(found) => {
                if let (Some(address), None) = (&ready.donor, behind) {
                    behind = Some(catches_up(address, &found, cancel).await?);
                }
                position = Some(found);
            }
            None if writes_position(ready, &folders) => position = None,
            None => return Err(BackupError::NoPosition { name: request.name.to_string() }),
        }
    }
    let is_done = !ready.galera && (ready.prepare().is_none() || clone.is_some());
    if let Some(finished) = finished.as_ref().filter(|_| is_done) {
        // Before the journal goes: at any moment, one of the two is there.
        finished.mark(target);
    }
    match ready.prepare().filter(|_| clone.is_none()) {
        None => folders.iter().try_for_each(|folder| forget(folder))?,
        Some(options) => {
            observer.begin_phase("prepare");
            let (of, increments) = (id_of(finished.as_ref(), target), folders.split_off(1));
            let chain = Chain { dir: target, increments: &increments, of: of.as_deref() };
            prepare(session, chain, options, durable, on_line).await?;
            new_master_key::make_if_wanted(target, &options.by, on_line, cancel).await?;
        }
    }
    if wants_position && position.is_none() {
        let found = read_position(target);
        let found =
            found.ok_or_else(|| BackupError::NoPosition { name: request.name.to_string() })?;
        if let Some(address) = &ready.donor {
            behind = Some(catches_up(address, &found, cancel).await?);
        }
        position = Some(found);
    }
    // Also removes increments of a chain that was started here before only this backup was
    // requested.
    remove_increments(target)?;
    if let Some(position) = position.as_ref().filter(|_| ready.galera) {
        write_position(target, position)?;
    }
    if let Some(owner) = owner {
        tokio::task::block_in_place(|| owner.give(target))?;
    }
    if let Some(finished) = &finished {
        finished.mark(target);
    }
    drop(lock);
    Ok(RestoreChainReport { restored, position, behind, clone })
}

/// What is known of a clone before a server has started on it.
fn reported(info: CloneInfo) -> CloneReport {
    let moved = info.moved().unwrap_or_default();
    let CloneInfo { version, empty_tables, .. } = info;
    CloneReport { version, empty_tables, moved, ..CloneReport::default() }
}

/// Starts a server on a clone that was put together, if it is to be prepared.
async fn started(
    session: &Session,
    (target, about): (&Path, &About),
    info: CloneInfo,
    (ready, server): (&AfterRestore, Option<PathBuf>),
) -> Result<CloneReport, BackupError> {
    let (Some(options), Some(program)) = (ready.prepare(), server) else {
        return Ok(reported(info));
    };
    session.observer.begin_phase("prepare");
    let server = ServerOptions { program: Some(program), ..ready.server.clone() };
    note_start(target, about, true)?;
    let started = start_once(session, target, &info, &server, options.use_memory).await?;
    note_start(target, about, false)?;
    if !ready.allow_exposed_keys {
        refuse_exposed(target, &info)?;
    }
    let (position, unconfined) = (Some(started.position), started.unconfined);
    Ok(CloneReport { position, unconfined, server: server.program, ..reported(info) })
}

/// Closes a directory to other users, because keys will lie in it in clear.
fn close(target: &Path) -> Result<(), BackupError> {
    let closed = std::fs::create_dir_all(target)
        .and_then(|()| std::fs::set_permissions(target, Permissions::from_mode(0o700)));
    closed.map_err(|error| BackupError::Restore {
        target: target.display().to_string(),
        what: format!("cannot close it to other users: {error}"),
    })
}

/// Fetches the backups of a chain, the full one first. Returns their reports and directories. A
/// selection gains what was renamed during any of the backups.
pub(crate) async fn fetch(
    session: &Session,
    request: &mut GetRequest,
    links: &[Wanted],
    target: &Path,
    how: RestoreOptions,
) -> Result<(Vec<(String, RestoreReport)>, Vec<PathBuf>), BackupError> {
    let (mut restored, mut folders) = (Vec::new(), Vec::new());
    session.observer.begin_phase("fetch");
    if request.files.is_part_for_prepare() {
        for link in links {
            let files = files_of(&session.root, &link.name, link.manifest(), link.key());
            let files = session.cancel.or(files).await?;
            request.files.find_renamed(files.iter().map(|file| &file.path[..]));
        }
    }
    for (number, (link, folder)) in links.iter().zip(folders_of(target, links.len())).enumerate() {
        session.observer.expect_later(links[number + 1..].iter().map(Wanted::stream_bytes).sum());
        request.name = link.name.clone();
        let unlocked = link.unlocked.as_ref();
        let report = restore_and_keep(session, request, unlocked, &folder, how).await?;
        restored.push((request.name.to_string(), report));
        folders.push(folder);
    }
    Ok((restored, folders))
}

/// What tells the runs of one command.
fn id_of(finished: Option<&Finished>, target: &Path) -> Option<String> {
    finished.and_then(|finished| finished.id(target))
}

/// Directories of the backups of a chain, the full one first.
fn folders_of(target: &Path, links: usize) -> Vec<PathBuf> {
    let increments = (1..links).map(|number| target.join(INCREMENTS).join(number.to_string()));
    std::iter::once(target.to_owned()).chain(increments).collect()
}

/// Refuses the files of a clone that no manifest says is one: they are of no use until they are put together.
fn refuse_unknown_clone(name: &BackupName, folders: &[PathBuf]) -> Result<(), BackupError> {
    match folders.iter().find(|folder| folder.join(CLONE_INFO).exists()) {
        None => Ok(()),
        Some(folder) => Err(BackupError::Restore {
            target: folder.display().to_string(),
            what: format!(
                "the files are those of a MySQL clone, although nothing in the store says so for {name}, and no server starts on them: store it anew with `get` and `put`, and restore that"
            ),
        }),
    }
}

/// The mark by which a later run of the same command knows the finished restore.
fn finished(
    links: &[Wanted],
    request: &GetRequest,
    how: RestoreOptions,
    ready: &AfterRestore,
) -> Option<Finished> {
    let chain: Option<Vec<About>> = links.iter().map(|link| link.about(request, how)).collect();
    let steps = format!("{:?} alone {} galera {}", ready.prepare(), ready.alone, ready.galera);
    Finished::new(&chain?, &steps)
}

/// Reports of a restore that an earlier run has finished.
fn done_before(links: &[Wanted], Totals { files, bytes }: Totals) -> Vec<(String, RestoreReport)> {
    let report = |(number, link): (usize, &Wanted)| {
        // The files of the whole chain are one directory now.
        let (files, bytes) = if number == 0 { (files, bytes) } else { (0, 0) };
        let get = GetReport::nothing(link.manifest.as_deref().cloned());
        let resumed = Some(Resumed { files, bytes, distrusted: 0 });
        (link.name.to_string(), RestoreReport { get, files, decrypted: 0, resumed })
    };
    links.iter().enumerate().map(report).collect()
}

/// One backup of the chain to restore.
pub(crate) struct Wanted {
    pub(crate) name: BackupName,
    manifest: Option<Box<Manifest>>,
    /// `None` for a stock backup, which is checked once its objects are listed.
    unlocked: Option<Unlocked>,
    is_clone: bool,
}

impl Wanted {
    /// Bytes of the stream; 0 if there is no manifest.
    fn stream_bytes(&self) -> u64 {
        self.manifest.as_ref().map_or(0, |manifest| manifest.stream_bytes)
    }

    /// The program that took the backup, if the manifest names it.
    pub(crate) fn tool(&self) -> Option<&str> {
        self.manifest.as_ref()?.source.tool_name.as_deref()
    }

    /// Whether it is a clone of MySQL.
    pub(crate) fn is_clone(&self) -> bool {
        self.is_clone
    }

    /// What the journal of its restore is about.
    fn about(&self, request: &GetRequest, how: RestoreOptions) -> Option<About> {
        let manifest = self.manifest.as_deref()?;
        Some(About::new(manifest, !how.no_decompress, &request.files.text()))
    }

    /// The manifest, if there is one.
    pub(crate) fn manifest(&self) -> Option<&Manifest> {
        self.manifest.as_deref()
    }

    /// The key that opens it; `None` if it is not sealed, or no key was needed.
    pub(crate) fn key(&self) -> Option<&DataKey> {
        self.unlocked.as_ref()?.key.as_deref()
    }

    /// Checks whether a backup of the chain may be read.
    async fn of(
        session: &Session,
        request: &GetRequest,
        Link { name, stored }: Link,
    ) -> Result<Self, BackupError> {
        let root = &session.root;
        let unlocked =
            unlock(root, &name, Some(&stored), request.given(session.resources.memory)).await?;
        let manifest = Box::new(stored.manifest);
        // What is in a native stream from elsewhere, its manifest does not say.
        let is_clone = match manifest.is_carried() {
            false => manifest.is_clone(),
            true => {
                let (files, _) = packed(root, &name, &manifest, unlocked.key.as_deref()).await?;
                files.unwrap_or_default().iter().any(|file| file.path == CLONE_INFO)
            }
        };
        Ok(Self { name, manifest: Some(manifest), unlocked: Some(unlocked), is_clone })
    }
}

/// Backups to restore, the full one first. All of them are checked against the given keys before a
/// file of the first one is created.
pub(crate) async fn links(
    session: &Session,
    request: &GetRequest,
    ready: &AfterRestore,
) -> Result<Vec<Wanted>, BackupError> {
    let root = &session.root;
    let links = match root.stored_manifest(&request.name).await? {
        Some(stored) if stored.manifest.is_incremental() && !ready.alone => {
            chain_of(root, &request.name, stored).await?
        }
        Some(stored) => vec![Link { name: request.name.clone(), stored }],
        // Unknown for stock backups.
        None => {
            let name = request.name.clone();
            return Ok(vec![Wanted { name, manifest: None, unlocked: None, is_clone: false }]);
        }
    };
    if links.len() > 1 && ready.prepare().is_none() {
        return Err(BackupError::Selection(format!(
            "{} is incremental and must be prepared on top of its base: add --prepare, or --alone to restore only its own files",
            request.name
        )));
    }
    let mut wanted = Vec::with_capacity(links.len());
    for link in links {
        wanted.push(Wanted::of(session, request, link).await?);
    }
    Ok(wanted)
}

/// Looks for the program that prepares, if a manifest names it: before hours of reading.
pub(crate) fn look_for_program(ready: &AfterRestore, links: &[Wanted]) -> Result<(), BackupError> {
    let tool = links.iter().find_map(Wanted::tool);
    ready.prepare().map_or(Ok(()), |options| options.by.look(tool))
}

/// Whether preparing will write the position: xtrabackup does so for a backup that it took with
/// backup locks.
fn writes_position(ready: &AfterRestore, folders: &[PathBuf]) -> bool {
    let tool = folders.first().and_then(|folder| PrepareTool::of_folder(folder));
    ready.prepare().is_some() && tool == Some(PrepareTool::XtraBackup)
}

/// Position from the manifest. A backup without a position is refused before it is fetched.
fn stated_position(
    ready: &AfterRestore,
    links: &[Wanted],
) -> Result<Option<GaleraPosition>, BackupError> {
    if !ready.galera && ready.donor.is_none() {
        return Ok(None);
    }
    let Some(last) = links.last() else { return Ok(None) };
    let Some(facts) = last.manifest.as_ref().map(|manifest| &manifest.source) else {
        return Ok(None);
    };
    match &facts.galera {
        Some(text) => Ok(GaleraPosition::parse(text)),
        // The small files of this backup were not compressed, and none of them contained a
        // position.
        None if facts.tool_name.as_deref().is_some_and(|tool| {
            PrepareTool::of_name(tool) != Some(PrepareTool::XtraBackup) || ready.prepare().is_none()
        }) =>
        {
            Err(BackupError::NoPosition { name: last.name.to_string() })
        }
        None => Ok(None),
    }
}

/// Number of write sets that a node at `position` gets from the donor; an error if the donor cannot
/// provide them.
async fn catches_up(
    address: &str,
    position: &GaleraPosition,
    cancel: &CancelToken,
) -> Result<u64, BackupError> {
    let donor = Donor::ask(address, cancel).await?;
    let refused = |what: String| Err(BackupError::Donor { address: address.to_owned(), what });
    match donor.ist(position) {
        Ist::Possible { behind } => Ok(behind),
        Ist::TooOld { gap } => refused(format!(
            "the backup is at {position}, but the donor's gcache starts at {}: {gap} write sets are missing, so the node would need a full state transfer",
            donor.cached_downto
        )),
        Ist::OtherCluster => refused(format!(
            "the backup is at {position}, but the donor belongs to another cluster, {}",
            donor.uuid
        )),
        Ist::Ahead => refused(format!(
            "the backup is at {position}, but the donor only at {}: their histories differ",
            donor.last_committed
        )),
    }
}

/// Removes the increments of a chain, which are applied, and what is left of a merge that never began.
pub(crate) fn remove_increments(target: &Path) -> Result<(), BackupError> {
    let failed = |what: String| BackupError::Restore { target: target.display().to_string(), what };
    discard(target).map_err(|error| failed(format!("cannot remove .xb-merge: {error}")))?;
    match std::fs::remove_dir_all(target.join(INCREMENTS)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(failed(format!("{INCREMENTS}: {error}")))
        }
        _ => Ok(()),
    }
}

/// Fails if selected files of a chain may not belong together: preparing them would end without an error,
/// and without the rows of a table that had another name when an earlier backup was taken.
fn refuse_uncovered(target: &Path, folders: &[PathBuf]) -> Result<(), BackupError> {
    let what = match is_covered(target, folders.get(1..).unwrap_or_default()) {
        Ok(true) => return Ok(()),
        Ok(false) => "a selected table was created, renamed or rebuilt between two backups of the chain, so some of its pages may be in files that were not selected; restore without --files to another directory, or bring the table back with `rescue`".to_owned(),
        Err(error) => format!("cannot read the files of the chain: {error}"),
    };
    Err(BackupError::Restore { target: target.display().to_string(), what })
}
