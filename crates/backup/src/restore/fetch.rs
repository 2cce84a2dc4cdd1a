//! Fetches the backups of a chain, each into its directory: in one pass, or what an interrupted restore lacks; and refuses
//! files that are of no use together.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use xb_encryptor::xbcrypt::XbcryptError;
use xb_files::{is_lost_and_found, or_none};
use xb_pipeline::{
    CLONE_INFO, Durability, ExtractCause, ExtractError, ExtractOptions, ExtractReport, Extractor,
    FileDecodeError,
};
use xb_reader::{RelPath, TargetDir, TargetError};
use xb_repo::error::RepoError;
use xb_repo::manifest::Layout;
use xb_repo::names::BackupName;
use xb_repo::root::Root;
use xb_uploader::{StoreError, StoreErrorKind};

use crate::cancel::{CancelToken, OrInterrupted as _};
use crate::child::{OWN_WARNING, OnLine};
use crate::error::BackupError;
use crate::full_disk::AGAIN;
use crate::read::decoding::plan_with_files;
use crate::read::file_list::files_of;
use crate::read::find::{Objects, find};
use crate::read::get::transfer;
use crate::read::request::{GetReport, GetRequest};
use crate::read::stream_sink::StreamSink;
use crate::read::unlock::UnlockedBackup;
use crate::restore::chain::INCREMENTS;
use crate::restore::choose::ChosenBackup;
use crate::restore::clone::state::{State, is_fetched, is_left_by_a_server};
use crate::restore::finished::{FinishedMark, Totals, totals};
use crate::restore::journal::head::{RestoreIdentity, forget, is_unfinished};
use crate::restore::journal::load::{ResumeState, as_path, foreign, load};
use crate::restore::journal::write::Journal;
use crate::restore::request::{AfterRestore, RestoreOptions, RestoreReport, Resumed};
use crate::restore::room::{Room, doubtful_room};
use crate::restore::same_space::is_covered;
use crate::restore::target_lock::{OTHER_TARGET, unseen};
use crate::selection::{Resumable, Selection, renamed};
use crate::session::Session;

/// The files of a chain.
pub(crate) struct FetchedChain {
    /// Report of each backup, the full one first.
    pub(crate) restored: Vec<(String, RestoreReport)>,
    /// Directory of each backup.
    pub(crate) folders: Vec<PathBuf>,
    /// Whether an earlier run has fetched all of them, and was interrupted while it merged them.
    pub(super) is_merging: bool,
}

impl FetchedChain {
    /// The files that an earlier run of the same command, which has the same mark, has fetched, if it was interrupted
    /// while it merged them: then no journal holds any more.
    fn being_merged(
        links: &[ChosenBackup],
        target: &Path,
        finished: Option<&FinishedMark>,
    ) -> Option<Self> {
        let id = finished?.id(target)?;
        xb_delta::interrupted(target, &id)?;
        let restored = done_before(links, totals(target));
        Some(Self { restored, folders: folders_of(target, links.len()), is_merging: true })
    }
}

/// Fetches the backups of a chain, unless an earlier run of the same command, which has the mark `finished`, was
/// interrupted while it merged them.
///
/// # Errors
/// The first cause; [`BackupError::Restore`] if the files are of no use together.
pub(super) async fn fetch_usable(
    session: &Session,
    request: &mut GetRequest,
    links: &[ChosenBackup],
    target: &Path,
    how: RestoreOptions,
    ready: &AfterRestore,
    finished: Option<&FinishedMark>,
    on_line: &OnLine,
) -> Result<FetchedChain, BackupError> {
    let fetched = match FetchedChain::being_merged(links, target, finished) {
        Some(fetched) => fetched,
        None => fetch(session, request, links, target, how, on_line).await?,
    };
    match request.files.is_all() {
        true if !links.iter().any(ChosenBackup::is_clone) => {
            refuse_unknown_clone(&request.name, &fetched.folders)?;
        }
        false if ready.prepare().is_some() && !fetched.is_merging => {
            refuse_uncovered(target, &fetched.folders, &request.files)?;
        }
        _ => {}
    }
    Ok(fetched)
}

/// Fetches the backups of a chain, the full one first. A
/// selection gains what was renamed during any of the backups. Says so if applying the increments may fill the disk.
pub(crate) async fn fetch(
    session: &Session,
    request: &mut GetRequest,
    links: &[ChosenBackup],
    target: &Path,
    how: RestoreOptions,
    on_line: &OnLine,
) -> Result<FetchedChain, BackupError> {
    let mut restored = Vec::new();
    // How much an earlier run of this restore has written is unknown.
    let is_new = !is_unfinished(target).map_err(unseen(target))?;
    if request.files.is_all() && !how.no_space_check && is_new {
        let streams: Vec<u64> = links.iter().map(ChosenBackup::stream_bytes).collect();
        if let Some(warning) = doubtful_room(target, &streams, how.room_beside) {
            on_line(format!("{OWN_WARNING}{warning}").as_bytes());
        }
    }
    session.observer.begin_phase("fetch");
    let mut renamed_in = Vec::new();
    if request.files.is_part_for_prepare() {
        // A table that was dropped before the last backup is not in it.
        let mut last = Vec::new();
        for link in links {
            let files = files_of(&session.root, &link.name, link.manifest(), link.key());
            let files = session.cancel.or(files).await?;
            renamed_in.push(renamed(files.iter().map(|file| &file.path[..])));
            last = files;
        }
        if links.len() > 1 {
            request.files.check_chain(last.iter().map(|file| &file.path[..]))?;
        }
    }
    let folders = folders_of(target, links.len());
    for (number, (link, folder)) in links.iter().zip(&folders).enumerate() {
        let later = || links.iter().zip(&folders).skip(number + 1);
        let bytes = later().map(|(link, _)| link.stream_bytes());
        session.observer.expect_later(bytes.fold(0, u64::saturating_add));
        request.name = link.name.clone();
        // What a later one renames has its old name here; what an earlier one renames may be the name of another table.
        let names = renamed_in.iter().skip(number).flatten().cloned();
        request.files.set_renamed(names.collect());
        let unlocked = link.unlocked();
        // All of them are there at the same time. Of those that an earlier run has begun, it is not known how much is.
        // One that cannot be looked at fails when its turn comes.
        let is_begun = |folder: &PathBuf| folder.try_exists().unwrap_or(true);
        let to_begin = later().filter(|(_, folder)| request.files.is_all() && !is_begun(folder));
        let room = to_begin.map(|(link, _)| link.stream_bytes());
        let room_beside = room.fold(how.room_beside, u64::saturating_add);
        let how = RestoreOptions { room_beside, ..how };
        let report = fetch_files(session, request, unlocked, folder, how).await?;
        restored.push((request.name.to_string(), report));
    }
    Ok(FetchedChain { restored, folders, is_merging: false })
}

/// Reports of a restore that an earlier run has finished.
pub(super) fn done_before(
    links: &[ChosenBackup],
    Totals { files, bytes }: Totals,
) -> Vec<(String, RestoreReport)> {
    let report = |(number, link): (usize, &ChosenBackup)| {
        // The files of the whole chain are one directory now.
        let (files, bytes) = if number == 0 { (files, bytes) } else { (0, 0) };
        let get = GetReport { manifest: link.manifest().cloned(), ..GetReport::default() };
        let resumed = Some(Resumed { files, bytes, distrusted: 0 });
        (link.name.to_string(), RestoreReport { get, files, decrypted: 0, resumed })
    };
    links.iter().enumerate().map(report).collect()
}

/// Directories of the backups of a chain, the full one first.
fn folders_of(target: &Path, links: usize) -> Vec<PathBuf> {
    let increments = (1..links).map(|number| target.join(INCREMENTS).join(number.to_string()));
    std::iter::once(target.to_owned()).chain(increments).collect()
}

/// Refuses the files of a clone that no manifest says is one: they are of no use until they are put together.
fn refuse_unknown_clone(name: &BackupName, folders: &[PathBuf]) -> Result<(), BackupError> {
    for folder in folders {
        if folder.join(CLONE_INFO).try_exists().map_err(unseen(folder))? {
            end(folders)?;
            return Err(BackupError::of_target(
                folder,
                format!(
                    "the files are those of a MySQL clone, although nothing in the store says so for {name}, and no server starts on them: take another backup, or store it anew and sealed, such as with `get {name} | put --recipient=... NEW`, and restore that"
                ),
            ));
        }
    }
    Ok(())
}

/// Ends a restore whose files are of no use: the same command would end in the same error.
fn end(folders: &[PathBuf]) -> Result<(), BackupError> {
    folders.iter().try_for_each(|folder| forget(folder))
}

/// Fails if selected files of a chain may not belong together: preparing them would end without an error,
/// and without the rows of a table that had another name when an earlier backup was taken.
fn refuse_uncovered(
    target: &Path,
    folders: &[PathBuf],
    files: &Selection,
) -> Result<(), BackupError> {
    let asks_for = |name: &str| files.asks_for(name.as_bytes());
    let what = match is_covered(target, folders.get(1..).unwrap_or_default(), asks_for) {
        Ok(true) => return Ok(()),
        Ok(false) => {
            end(folders)?;
            "a selected table was created, renamed or rebuilt between two backups of the chain, so some of its pages may be in files that were not selected; remove this directory, and restore without --files, or bring the table back with `rescue`".to_owned()
        }
        Err(error) => format!("cannot read the files of the chain: {error}"),
    };
    Err(BackupError::of_target(target, what))
}

const RAW: &str = "the backup was stored with --raw and has no files; read it with `get`";

/// Writes the files of a backup below `target`, which is created if missing. `target` must be
/// empty, or hold only what an interrupted run of the same restore has left: then that restore is
/// resumed, and proven data is not fetched again.
///
/// Files that were encrypted one by one are decrypted with the key in `request.keys`, and files
/// that were compressed one by one are decompressed. Half of the memory is used for that.
///
/// A file gets its final name when it is complete. After a failure, complete files stay; incomplete
/// files stay in `.xb-partial/`, unless the backup has no manifest.
///
/// # Errors
/// The first cause.
pub async fn restore(
    session: &Session,
    request: &GetRequest,
    target: &Path,
    how: RestoreOptions,
) -> Result<RestoreReport, BackupError> {
    session.observer.expect_phases(1);
    session.observer.begin_phase("fetch");
    let report = fetch_files(session, request, None, target, how).await?;
    forget(target)?;
    Ok(report)
}

/// Like [`restore`], but keeps the journal, so that another run finds everything done. `unlocked`
/// is the result of an earlier check of the backup.
async fn fetch_files(
    session: &Session,
    request: &GetRequest,
    unlocked: Option<&UnlockedBackup>,
    target: &Path,
    how: RestoreOptions,
) -> Result<RestoreReport, BackupError> {
    let outcome = match fetch_once(session, request, unlocked, target, how).await {
        // A single altered answer is no damage: what is proven stays, and the rest is fetched again.
        Err(BackupError::Repo(RepoError::Store(StoreError {
            kind: StoreErrorKind::Altered,
            ..
        }))) if matches!(is_unfinished(target), Ok(true)) => {
            fetch_once(session, request, unlocked, target, how).await
        }
        outcome => outcome,
    };
    outcome.map_err(|error| error.or_full(target, AGAIN))
}

/// Restores the files once: finds out what is there and what is missing, checks the room, fetches and extracts, and
/// compares the number of files.
async fn fetch_once(
    session: &Session,
    request: &GetRequest,
    unlocked: Option<&UnlockedBackup>,
    target: &Path,
    how: RestoreOptions,
) -> Result<RestoreReport, BackupError> {
    let Session { root, resources, cancel, .. } = session;
    // Before the directory is created: a wrong name leaves nothing behind.
    let (plan, decoding) =
        plan_with_files(*resources, request.keys.key.as_ref(), !how.no_decompress)?;
    if is_fetched(target).map_err(unseen(target))? {
        return cancel.or(fetched_clone(root, request, target, how)).await;
    }
    let mut earlier = cancel.or(interrupted(root, request, target, how)).await?;
    let proven = earlier.as_ref().map(|earlier| earlier.state.proven());
    let objects = cancel.or(find(session, request, unlocked, proven.as_ref())).await?;
    if objects.is_raw() {
        return Err(BackupError::of_target(target, RAW.into()));
    }
    if let (Some(earlier), Some(resumable)) = (&mut earlier, objects.resumable()) {
        // Before the room is checked: what is written again has its room already.
        earlier.keep(resumable).map_err(|what| BackupError::of_target(target, what))?;
    }
    if !how.no_space_check {
        let there = earlier.as_ref().map_or(0, |earlier| earlier.state.bytes());
        let all = request.files.is_all();
        let decompress = !how.no_decompress;
        let room = Room { target, beside: how.room_beside, there, all, decompress };
        cancel.or(room.check(root, &request.name, &objects)).await?;
    }
    // Later files are synced together with the file system.
    let durability = match how.sync {
        Durability::End if how.is_synced_later => Durability::None,
        durability => durability,
    };
    let options = ExtractOptions::default()
        .with_threads(resources.threads)
        .with_durability(durability)
        .with_decoding(decoding);
    let about = about(&objects, request, how);
    let Extraction { sink, journal, earlier } =
        begin(target, about.as_ref(), earlier, options, how)
            .map_err(|error| BackupError::of_target(target, error))?;
    let (report, sink) = transfer(session, request, plan, objects, sink).await?;
    // Only now is the stream known to be complete.
    let extracted = tokio::task::spawn_blocking(move || sink.finish())
        .await
        .map_err(|_| BackupError::Bug("the extractor thread panicked"))??;
    // A run that continues behind this would not see it.
    if let Some(error) = journal.and_then(Journal::end).filter(|_| how.is_synced_later) {
        let what = format!(
            "the disk did not store everything that was written: {error}; check the disk and the system log, then run the same command again"
        );
        return Err(BackupError::of_target(target, what));
    }
    let before = earlier.as_ref().map_or(0, ResumeState::files);
    let files = extracted.files + before;
    let is_all = earlier.is_some() && request.files.is_all();
    let stated = report.manifest.as_ref().filter(|_| is_all).map(|manifest| manifest.files);
    if let Some(stated) = stated.filter(|stated| *stated != files) {
        let what = format!("the stream has {files} files, the manifest has {stated}");
        return Err(BackupError::Damaged { name: request.name.to_string(), what });
    }
    let resumed = earlier.map(|state| Resumed {
        files: before,
        bytes: state.bytes(),
        distrusted: state.distrusted,
    });
    Ok(RestoreReport { get: report, files, decrypted: extracted.decrypted, resumed })
}

/// Returns the identity of a restore, by which a later run resumes it; `None` if no run can. Without a manifest, the next run
/// might find another backup under this name. A native stream has not been inspected, so it may not contain files at all.
fn about(objects: &Objects, request: &GetRequest, how: RestoreOptions) -> Option<RestoreIdentity> {
    let manifest = objects.manifest().filter(|manifest| !manifest.is_carried())?;
    Some(RestoreIdentity::new(manifest, !how.no_decompress, &request.files.text()))
}

/// Returns whether a restore into `target` has not ended, and continues if it is run again.
#[must_use]
pub fn is_resumable(target: &Path) -> bool {
    matches!(is_unfinished(target), Ok(true)) && !is_left_by_a_server(target)
}

/// An extraction that has begun.
struct Extraction {
    sink: FileSink,
    journal: Option<Journal>,
    /// Files that an earlier run has proven.
    earlier: Option<ResumeState>,
}

/// Creates the target, unless an earlier run has, and starts the extraction and its journal.
fn begin(
    target: &Path,
    about: Option<&RestoreIdentity>,
    earlier: Option<Interrupted>,
    options: ExtractOptions,
    how: RestoreOptions,
) -> Result<Extraction, String> {
    let (folder, earlier) = match earlier {
        Some(Interrupted { folder, state }) => (folder, Some(state)),
        None => {
            std::fs::create_dir_all(target).map_err(|error| format!("{error}; {OTHER_TARGET}"))?;
            let open = if about.is_some() { TargetDir::open_kept } else { TargetDir::open };
            (open(target).map_err(|error| error.to_string())?, None)
        }
    };
    let Some(about) = about else {
        let extractor = Extractor::new(folder, options).map_err(|error| error.to_string())?;
        let sink = FileSink::new(extractor, target.to_owned());
        return Ok(Extraction { sink, journal: None, earlier });
    };
    if earlier.is_none() {
        folder.clear(|_| false).map_err(|error| error.to_string())?;
    }
    let is_synced = how.sync != Durability::None;
    let journal = Journal::begin(&folder, about, earlier.as_ref(), is_synced)
        .map_err(|error| format!("cannot write the journal: {error}"))?;
    let begun = earlier.as_ref().map(ResumeState::begun);
    let extractor = Extractor::resumable(folder, options, journal.log(), begun)
        .map_err(|error| error.to_string())?;
    let sink = FileSink::new(extractor, target.to_owned());
    Ok(Extraction { sink, journal: Some(journal), earlier })
}

const NOT_EMPTY: &str = "the directory is not empty, and does not hold an interrupted restore: choose a new or empty one";
const HALF_MERGED: &str = "a restore of a chain was interrupted in it while its pages were merged: run the command of that restore again, or, if the system was rebooted since, empty the directory";
const HALF_PREPARED: &str = "a restore of a chain was interrupted in it while the files were prepared, and they are unusable now: empty the directory, and restore it again";
const HALF_RECOVERED: &str = "the server that was to prepare it did not stop cleanly, so it is not proven that another one can use its files; empty the directory, and restore it again";
const RENAMES: &str = "it holds an unfinished restore of a stream that renames or removes files in the classic layout, which cannot be resumed; empty the directory";
/// Files that are kept, and the target that they are in, locked.
pub(super) struct Interrupted {
    pub(super) folder: TargetDir,
    pub(super) state: ResumeState,
}

impl Interrupted {
    /// Removes everything that does not count: it is written again.
    ///
    /// # Errors
    /// A text that explains why the restore cannot be resumed; nothing is removed if a file is not of this restore.
    pub(super) fn keep(&mut self, resumable: &Resumable) -> Result<(), String> {
        let gone = self.state.keep(resumable).map_err(|name| foreign(as_path(&name)))?;
        let mut folders = BTreeSet::new();
        for name in gone {
            let name = RelPath::new(&name).map_err(|error| error.to_string())?;
            match self.folder.remove(&name) {
                Err(TargetError::Remove { source, .. })
                    if source.kind() == std::io::ErrorKind::NotFound => {}
                done => done.map_err(|error| error.to_string())?,
            }
            folders.extend(name.split_last().0.and_then(|folder| RelPath::new(folder).ok()));
        }
        // That of a database which the stream removes later would be an empty database.
        for folder in folders {
            self.folder.remove_dir_if_empty(&folder).map_err(|error| error.to_string())?;
        }
        self.folder.clear(|number| self.state.keeps(number)).map_err(|error| error.to_string())?;
        self.folder.number_from(self.state.next_number());
        Ok(())
    }
}

/// Returns whether a directory holds nothing that this user can see.
fn shows_nothing(entry: &std::fs::DirEntry) -> bool {
    match std::fs::read_dir(entry.path()) {
        Ok(mut inside) => inside.next().is_none(),
        Err(error) => error.kind() == std::io::ErrorKind::PermissionDenied,
    }
}

/// Reads what an earlier run of this restore has left in the target, and locks the target. Returns
/// `None` if the target is empty or missing.
async fn interrupted(
    root: &Root,
    request: &GetRequest,
    target: &Path,
    how: RestoreOptions,
) -> Result<Option<Interrupted>, BackupError> {
    let failed = |what: String| BackupError::of_target(target, what);
    if xb_delta::is_interrupted(target).map_err(unseen(target))? {
        return Err(failed(HALF_MERGED.into()));
    }
    if !is_unfinished(target).map_err(unseen(target))? {
        // A run may have been killed before it created a journal. A fresh file system is empty, too.
        let is_nothing = |entry: std::fs::DirEntry| {
            entry.file_name() == ".xb-partial" || is_lost_and_found(&entry) && shows_nothing(&entry)
        };
        let entries = or_none(std::fs::read_dir(target)).map_err(unseen(target))?;
        let entries = entries.into_iter().flatten().collect::<Result<Vec<_>, _>>();
        return match entries.map_err(unseen(target))?.into_iter().all(is_nothing) {
            true => Ok(None),
            false if target.join(INCREMENTS).try_exists().map_err(unseen(target))? => {
                Err(failed(HALF_PREPARED.into()))
            }
            false => Err(failed(NOT_EMPTY.into())),
        };
    }
    let manifest = xb_repo::list::describe(root, &request.name).await?.manifest;
    let about = RestoreIdentity::new(&manifest, !how.no_decompress, &request.files.text());
    let folder = TargetDir::open_kept(target).map_err(|error| failed(error.to_string()))?;
    // The guard is dropped with this future if a signal ends it.
    let dropped = CancelToken::new();
    let _guard = dropped.cancel_on_drop();
    let path = target.to_owned();
    let loading = tokio::task::spawn_blocking(move || {
        let state = load(&folder, &path, &about, &dropped);
        state.map(|state| (folder, state))
    });
    let loaded = loading
        .await
        .map_err(|_| BackupError::Bug("the thread that reads the journal panicked"))?;
    let (folder, Some(state)) = loaded.map_err(failed)? else {
        return Err(failed(NOT_EMPTY.into()));
    };
    if state.changes_names && manifest.layout == Layout::Classic {
        return Err(failed(RENAMES.into()));
    }
    Ok(Some(Interrupted { folder, state }))
}

/// The result of a restore whose files an earlier run has fetched, and which are changed in place since.
async fn fetched_clone(
    root: &Root,
    request: &GetRequest,
    target: &Path,
    how: RestoreOptions,
) -> Result<RestoreReport, BackupError> {
    let failed = |what: String| BackupError::of_target(target, what);
    let manifest = xb_repo::list::describe(root, &request.name).await?.manifest;
    let about = RestoreIdentity::new(&manifest, !how.no_decompress, &request.files.text());
    let folder = TargetDir::open_kept(target).map_err(|error| failed(error.to_string()))?;
    let state = State::read(&folder, target, &about).map_err(failed)?;
    let state = state.ok_or(BackupError::Bug("the state file of a restore disappeared"))?;
    if state.is_started {
        return Err(failed(HALF_RECOVERED.into()));
    }
    Ok(RestoreReport {
        get: GetReport { manifest: Some(manifest), ..GetReport::default() },
        files: state.files,
        decrypted: 0,
        resumed: Some(Resumed { files: state.files, bytes: state.bytes, distrusted: 0 }),
    })
}

/// Passes the stream to the extractor.
struct FileSink {
    extractor: Option<Extractor>,
    target: PathBuf,
}

impl FileSink {
    fn new(extractor: Extractor, target: PathBuf) -> Self {
        Self { extractor: Some(extractor), target }
    }

    /// Returns the report of the extraction, once everything is written.
    fn finish(mut self) -> Result<ExtractReport, BackupError> {
        match self.extractor.take() {
            Some(extractor) => extractor.finish().map_err(|error| self.failed(&error)),
            None => Err(BackupError::Bug("the extractor was used after it ended")),
        }
    }

    fn failed(&self, error: &ExtractError) -> BackupError {
        let kept = match error.report.files {
            0 => String::new(),
            files => format!(" (complete files kept: {files})"),
        };
        let what = format!("{error}{kept}");
        match &error.cause {
            ExtractCause::FileDecoding {
                source: FileDecodeError::NoKey | FileDecodeError::Xbcrypt(XbcryptError::Hash { .. }),
                ..
            } => BackupError::FileKey { what },
            _ => BackupError::of_target(&self.target, what),
        }
    }
}

impl StreamSink for FileSink {
    fn take(&mut self, bytes: Bytes) -> Result<(), BackupError> {
        let Some(extractor) = &mut self.extractor else {
            return Err(BackupError::Bug("the extractor was used after it ended"));
        };
        if extractor.feed(bytes).is_ok() {
            return Ok(());
        }
        // The extractor has stopped, and reports the reason when it is finished.
        match self.extractor.take().map(Extractor::finish) {
            Some(Err(error)) => Err(self.failed(&error)),
            _ => Err(BackupError::Bug("the extractor stopped without a cause")),
        }
    }
}
