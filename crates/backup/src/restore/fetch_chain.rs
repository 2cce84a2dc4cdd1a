//! Fetches the backups of a chain, each into its directory, and refuses files that are of no use together.

use std::path::{Path, PathBuf};

use xb_delta::interrupted;
use xb_pipeline::CLONE_INFO;
use xb_repo::names::BackupName;

use crate::cancel::OrInterrupted as _;
use crate::child::{OWN_WARNING, OnLine};
use crate::error::BackupError;
use crate::read::file_list::files_of;
use crate::read::request::{GetReport, GetRequest};
use crate::restore::chain::folders_of;
use crate::restore::choose::ChosenBackup;
use crate::restore::fetch_files::fetch_files;
use crate::restore::finished::{FinishedMark, Totals, totals};
use crate::restore::interrupted::unseen;
use crate::restore::journal::head::is_unfinished;
use crate::restore::request::{RestoreOptions, RestoreReport, Resumed};
use crate::restore::room::doubtful_room;
use crate::restore::same_space::is_covered;
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
    pub(super) fn being_merged(
        links: &[ChosenBackup],
        target: &Path,
        finished: Option<&FinishedMark>,
    ) -> Option<Self> {
        let id = finished?.id(target)?;
        interrupted(target, &id)?;
        let restored = done_before(links, totals(target));
        Some(Self { restored, folders: folders_of(target, links.len()), is_merging: true })
    }

    /// Refuses files that are of no use together: of a clone that is not known to be one; selected ones of a chain that
    /// are to be prepared, but may not belong together.
    ///
    /// # Errors
    /// [`BackupError::Restore`].
    pub(super) fn refuse_useless(
        &self,
        target: &Path,
        request: &GetRequest,
        is_clone: bool,
        is_prepared: bool,
    ) -> Result<(), BackupError> {
        match request.files.is_all() {
            true if !is_clone => refuse_unknown_clone(&request.name, &self.folders),
            false if is_prepared && !self.is_merging => refuse_uncovered(target, &self.folders),
            _ => Ok(()),
        }
    }
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
    // Of a restore that an earlier run has begun, it is not known how much is there.
    let is_new = !is_unfinished(target).map_err(unseen(target))?;
    if request.files.is_all() && !how.no_space_check && is_new {
        let streams: Vec<u64> = links.iter().map(ChosenBackup::stream_bytes).collect();
        if let Some(warning) = doubtful_room(target, &streams, how.room_beside) {
            on_line(format!("{OWN_WARNING}{warning}").as_bytes());
        }
    }
    session.observer.begin_phase("fetch");
    if request.files.is_part_for_prepare() {
        for link in links {
            let files = files_of(&session.root, &link.name, link.manifest(), link.key());
            let files = session.cancel.or(files).await?;
            request.files.find_renamed(files.iter().map(|file| &file.path[..]));
        }
    }
    let folders = folders_of(target, links.len());
    for (number, (link, folder)) in links.iter().zip(&folders).enumerate() {
        let later = || links.iter().zip(&folders).skip(number + 1);
        let bytes = later().map(|(link, _)| link.stream_bytes());
        session.observer.expect_later(bytes.fold(0, u64::saturating_add));
        request.name = link.name.clone();
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

/// Refuses the files of a clone that no manifest says is one: they are of no use until they are put together.
fn refuse_unknown_clone(name: &BackupName, folders: &[PathBuf]) -> Result<(), BackupError> {
    for folder in folders {
        if folder.join(CLONE_INFO).try_exists().map_err(unseen(folder))? {
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

/// Fails if selected files of a chain may not belong together: preparing them would end without an error,
/// and without the rows of a table that had another name when an earlier backup was taken.
fn refuse_uncovered(target: &Path, folders: &[PathBuf]) -> Result<(), BackupError> {
    let what = match is_covered(target, folders.get(1..).unwrap_or_default()) {
        Ok(true) => return Ok(()),
        Ok(false) => "a selected table was created, renamed or rebuilt between two backups of the chain, so some of its pages may be in files that were not selected; restore without --files to another directory, or bring the table back with `rescue`".to_owned(),
        Err(error) => format!("cannot read the files of the chain: {error}"),
    };
    Err(BackupError::of_target(target, what))
}
