//! Makes this node ready for the donor's data, before any of it is sent: checks that every file system has room for what a
//! transfer brings and for the files that this node's server then creates, and creates the directories that receive it.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use super::destination::Destination;
use super::free_space::{TEMPORARY, free_bytes};
use super::present_data::{PresentData, check_can_make_in};
use super::recover::{drop_new, remove_old};
use super::request::OfferedBackup;
use super::{acceptance, relocate};
use crate::context::Context;
use crate::contract::datadir::{Kind, KindDir, Layout, is_mounted};
use crate::contract::settings::Old;
use crate::error::{RoomShort, SstError};
use crate::offer::Places;
use crate::server::data_size;
use crate::swap::{self, NEW, OLD, WORK_DIR, make_folders};

/// Space for what is not in the estimate, in bytes: the server's temporary tablespace, and files that grow while the
/// backup runs.
const SLACK: u64 = 16 << 20;
/// Space in a directory elsewhere, in bytes, for the directories and notes of a transfer.
const OWN: u64 = 1 << 20;

/// Part of the data, as a divisor, that the redo log which is written during the backup is not expected to exceed.
const REDO_SHARE: u64 = 8;

/// Data that must be deleted so that there is room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Room {
    /// Nothing.
    Enough,
    /// The old data of an earlier transfer.
    WithoutEarlier,
    /// The present data, too.
    WithoutOld,
}

/// Space that a transfer needs in one directory or on one file system, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Need {
    /// The data.
    data: u64,
    /// The redo log that arrives; it is gone once the data is prepared.
    arriving: u64,
    /// What the second start creates, while the old data is still there.
    trial: u64,
    /// What the server creates when it starts, and what there still is of the second start.
    start: u64,
}

impl Need {
    fn add(&mut self, other: Self) {
        self.data = self.data.saturating_add(other.data);
        self.arriving = self.arriving.saturating_add(other.arriving);
        self.trial = self.trial.saturating_add(other.trial);
        self.start = self.start.saturating_add(other.start);
    }

    fn before_the_swap(self) -> u64 {
        self.data.saturating_add(self.arriving.max(self.trial))
    }

    fn at_most(self) -> u64 {
        self.data.saturating_add(self.arriving.max(self.trial).max(self.start))
    }
}

/// A file system on which a transfer needs room.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Volume {
    /// The first directory that needs room there; if it does not exist, the nearest one above it that does.
    path: PathBuf,
    /// The other directories that need room there.
    others: Vec<PathBuf>,
    need: Need,
    /// Space that the old data of an earlier transfer takes.
    earlier: u64,
    /// Space that data takes which has made way for the old data; it is removed before any is received.
    taken_back: u64,
    /// Space that the present data takes.
    present: u64,
}

impl Volume {
    /// Returns the room that there is once all old data is gone, if `free` bytes are free now.
    fn without_old(&self, free: u64) -> u64 {
        free.saturating_add(self.earlier).saturating_add(self.present)
    }
}

/// The directories that receive the donor's data. They are empty, and have room for it.
pub(super) struct ReceiveFolders<'a> {
    pub(super) destination: Destination,
    pub(super) backup: &'a OfferedBackup,
    data: &'a PresentData<'a>,
    /// Deletes the old data of an earlier swap while the new data arrives.
    deleting: Option<JoinHandle<Result<(), SstError>>>,
}

impl<'a> ReceiveFolders<'a> {
    /// Checks whether the donor's data can be received, and creates the directories for it. If no server has accepted the
    /// present data, the old data is put back first.
    ///
    /// # Errors
    /// [`SstError::Mounted`], [`SstError::Denied`], [`SstError::Room`]; or if something cannot be listed, determined, put back or made.
    pub(super) fn make(
        data: &'a PresentData<'a>,
        backup: &'a OfferedBackup,
    ) -> Result<Self, SstError> {
        let Context { args, layout, error_log, .. } = data.context;
        acceptance::take_back_untried(
            layout,
            &data.lock,
            |name, metadata| data.is_swapped(name, metadata),
            error_log,
        )?;
        let destination = Destination::of(layout, args.product);
        let deleting = make_room(data, &destination, backup)?;
        Ok(Self { destination, backup, data, deleting })
    }

    /// Removes what the donor has sent so far, and makes room for all of it once more.
    ///
    /// # Errors
    /// As [`ReceiveFolders::make`]; [`SstError::Swap`] if something cannot be removed.
    pub(super) fn begin_again(&mut self) -> Result<(), SstError> {
        // The old data may hold the room that is needed.
        self.wait_for_deletion();
        drop_new(&self.data.context.layout, &self.data.lock)?;
        self.deleting = make_room(self.data, &self.destination, self.backup)?;
        Ok(())
    }

    /// Waits until the old data of an earlier swap is deleted.
    pub(super) fn wait_for_deletion(&mut self) {
        if let Some(deleting) = self.deleting.take() {
            // The swap tries again to delete the rest.
            let _ = deleting.join();
        }
    }
}

/// Makes room for the donor's data, and creates the directories that receive it. The donor waits for an answer, so slow
/// work is left to the thread that is returned.
fn make_room(
    data: &PresentData<'_>,
    destination: &Destination,
    backup: &OfferedBackup,
) -> Result<Option<JoinHandle<Result<(), SstError>>>, SstError> {
    let Context { layout, settings, error_log, .. } = data.context;
    refuse_mounts(data)?;
    for folder in layout.folders_outside() {
        let (path, _) = nearest(&folder).map_err(SstError::io("look at", &folder))?;
        check_can_make_in(&path)?;
    }
    let room = match settings.space_check {
        true => check(layout, destination, backup, settings.old)?,
        false => Room::Enough,
    };
    // The room is there, and a donor's backup: what has made way for the old data goes first.
    drop_new(layout, &data.lock)?;
    if room == Room::WithoutOld {
        error_log.warn("deleting the old data before the new data arrives, as keep-old=no allows: there is no room for both");
        create_folders(data)?;
        let mut remote = Vec::new();
        relocate::add_own(data.context, &data.lock, &mut remote)?;
        data.swap(&remote, true)?;
    }
    let deleting = (room != Room::Enough).then(|| {
        let (layout, locks) = (layout.clone(), Arc::clone(&data.lock.folders));
        std::thread::spawn(move || remove_old(&layout, &locks))
    });
    create_folders(data)?;
    Ok(deleting)
}

/// Refuses mount points, which cannot be renamed.
fn refuse_mounts(data: &PresentData<'_>) -> Result<(), SstError> {
    let datadir = &data.context.layout.datadir;
    for (name, facts) in swap::list(datadir)? {
        let path = datadir.join(&name);
        let is_mounted = is_mounted(&path).map_err(SstError::io("look at", &path))?;
        if is_mounted && data.is_swapped(&name, &facts) {
            return Err(SstError::Mounted { path });
        }
    }
    Ok(())
}

/// Creates the directories that receive the donor's data, or empties them.
fn create_folders(data: &PresentData<'_>) -> Result<(), SstError> {
    let layout = &data.context.layout;
    let outside = layout.folders_outside();
    // Recorded first: after a crash, other settings may name other directories.
    make_folders(&layout.datadir)?;
    swap::remember(&layout.datadir, &outside, false)?;
    // What is there must not be taken for received data if it is another server's.
    swap::claim_all(layout, &data.lock.folders, &outside)
        .inspect_err(|_| swap::forget(&layout.datadir))?;
    outside.iter().try_for_each(|folder| make_folders(folder))?;
    Ok(())
}

/// Checks the room on every file system. Old data is counted as free only if the operator allows to delete it before
/// the new data has arrived: it may be the only data that works.
///
/// # Errors
/// [`SstError::Room`]; or if the room cannot be determined.
fn check(
    layout: &Layout,
    destination: &Destination,
    backup: &OfferedBackup,
    old: Old,
) -> Result<Room, SstError> {
    let mut room = Room::Enough;
    for volume in volumes(layout, destination, backup)? {
        let free = free_bytes(&volume.path)?.saturating_add(volume.taken_back);
        let enough = judge(&volume, free, old).ok_or_else(|| {
            let counts_old = old == Old::Removed;
            SstError::Room(Box::new(RoomShort {
                data: volume.need.data,
                needed: volume.need.at_most(),
                free: if counts_old { volume.without_old(free) } else { free },
                has_earlier: volume.earlier > 0,
                counts_old,
                path: volume.path.clone(),
                others: volume.others.clone(),
            }))
        })?;
        room = room.max(enough);
    }
    Ok(room)
}

fn judge(volume: &Volume, free: u64, old: Old) -> Option<Room> {
    let (before, most) = (volume.need.before_the_swap(), volume.need.at_most());
    let without_earlier = free.saturating_add(volume.earlier);
    let without_old = volume.without_old(free);
    match old {
        Old::Kept if free >= most => Some(Room::Enough),
        Old::Kept => None,
        // All old data is removed before the server starts and creates its log.
        Old::Removed if without_old < most => None,
        Old::Removed if free >= before => Some(Room::Enough),
        Old::Removed if without_earlier >= before => Some(Room::WithoutEarlier),
        Old::Removed => Some(Room::WithoutOld),
    }
}

/// Adds up what each file system needs.
fn volumes(
    layout: &Layout,
    destination: &Destination,
    backup: &OfferedBackup,
) -> Result<Vec<Volume>, SstError> {
    let mut volumes = BTreeMap::<u64, Volume>::new();
    let mut volume_of = |dir: &Path, change: &dyn Fn(&mut Volume)| {
        let (path, device) = nearest(dir).map_err(SstError::io("look at", dir))?;
        let volume = volumes.entry(device).or_insert_with(|| Volume {
            path,
            others: Vec::new(),
            need: Need::default(),
            earlier: 0,
            taken_back: 0,
            present: 0,
        });
        change(volume);
        Ok::<_, SstError>(())
    };
    let device = |dir: &Path| nearest(dir).map(|(_, device)| device);
    for (dir, need) in needs(layout, destination, backup, device)? {
        volume_of(&dir, &|volume| {
            let is_new = !dir.starts_with(&volume.path) && !volume.others.contains(&dir);
            if is_new && need != Need::default() {
                volume.others.push(dir.clone());
            }
            volume.need.add(need);
        })?;
    }
    for (dir, disk) in data_size::by_folder(layout) {
        let [earlier, taken_back] =
            [OLD, NEW].map(|part| data_size::disk_of(layout, dir.join(WORK_DIR).join(part)));
        volume_of(&dir, &|volume| {
            volume.present = volume.present.saturating_add(disk);
            volume.earlier = volume.earlier.saturating_add(earlier);
            volume.taken_back = volume.taken_back.saturating_add(taken_back);
        })?;
    }
    Ok(volumes.into_values().filter(|volume| volume.need.at_most() > 0).collect())
}

/// Returns the need of each directory. What exists in one place after the other, such as the log of the second start, counts
/// in both only if they are on different devices.
fn needs(
    layout: &Layout,
    destination: &Destination,
    backup: &OfferedBackup,
    device: impl Fn(&Path) -> io::Result<u64>,
) -> Result<Vec<(PathBuf, Need)>, SstError> {
    let own = device(&layout.datadir).map_err(SstError::io("look at", &layout.datadir))?;
    // What cannot be looked at is reported by the caller.
    let is_elsewhere = |dir: &Path| device(dir).is_ok_and(|device| device != own);
    let Places { files, dirs, redo: donors_redo, since_checkpoint } = &backup.places;
    let mut data = backup.disk;
    let mut needs = Vec::new();
    let is_data = |place: &&KindDir| matches!(place.kind, Kind::Data(_));
    // The second start has the usual one, which the reserve of the data directory's own file system includes.
    let home = layout.outside.iter().find(is_data).filter(|home| is_elsewhere(&home.dir));
    let usual = if home.is_some() { TEMPORARY } else { 0 };
    let beside = Need {
        data: usual,
        start: backup.beside_system.saturating_sub(TEMPORARY),
        ..Need::default()
    };
    needs.push((home.map_or_else(|| layout.datadir.clone(), |home| home.dir.clone()), beside));
    for place in &layout.outside {
        let of_kind = files.iter().filter(|(name, _)| place.kind.has(name.as_ref()));
        let disk = of_kind.fold(0, |sum: u64, (_, disk)| sum.saturating_add(*disk));
        if destination.places(&place.kind) {
            data = data.saturating_sub(disk);
        }
        let own = if is_elsewhere(&place.dir) { OWN } else { 0 };
        needs.push((place.dir.clone(), Need { data: disk.saturating_add(own), ..Need::default() }));
    }
    // Received in the data directory and renamed, or copied if they belong elsewhere.
    for (dir, disk) in dirs {
        let dir = Path::new(dir);
        let plain =
            dir.components().all(|c| matches!(c, Component::RootDir | Component::Normal(_)));
        if plain && dir.is_absolute() && is_elsewhere(dir) {
            needs.push((dir.to_owned(), Need { data: *disk, ..Need::default() }));
        }
    }
    let dir_of = |kind: &Kind| {
        let outside = layout.outside.iter().find(|place| place.kind == *kind);
        outside.map_or_else(|| layout.datadir.clone(), |place| place.dir.clone())
    };
    // A server with another number of undo tablespaces removes those that it finds, and then creates its own.
    let of_undo = files.iter().filter(|(name, _)| Kind::Undo.has(name.as_ref()));
    let sent = of_undo.fold(0, |sum: u64, (_, disk)| sum.saturating_add(*disk));
    let created = backup.undo.saturating_sub(sent);
    needs.push((dir_of(&Kind::Undo), Need { trial: created, start: created, ..Need::default() }));
    let redo_dir = dir_of(&Kind::Redo);
    // The second start has its log beside the data; what is then in a directory of its own is a copy of that one.
    let trial = backup.trial_redo;
    let there = if is_elsewhere(&redo_dir) { trial } else { 0 };
    // A server whose log has another size creates it beside that one.
    let beside = if backup.redo > trial { trial } else { 0 };
    let start = backup.redo.saturating_add(beside);
    needs.push((redo_dir, Need { trial, start, ..Need::default() }));
    // An earlier donor does not state the size of its log, which then is probably that of this node.
    let arriving = if *donors_redo == 0 { backup.redo } else { *donors_redo };
    let arriving = arriving.min(backup.disk / REDO_SHARE).max(since_checkpoint.unwrap_or_default());
    let data = data.saturating_add(SLACK);
    needs.push((layout.datadir.clone(), Need { data, arriving, trial: there, start: there }));
    Ok(needs)
}

/// Returns the directory itself, else the nearest one above it that exists, and its device.
fn nearest(dir: &Path) -> io::Result<(PathBuf, u64)> {
    let mut missing = io::Error::from(io::ErrorKind::NotFound);
    for dir in dir.ancestors() {
        match dir.metadata() {
            Ok(metadata) => return Ok((dir.to_owned(), metadata.dev())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => missing = error,
            Err(error) => return Err(error),
        }
    }
    Err(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(data: u64, arriving: u64, start: u64) -> Volume {
        let need = Need { data, arriving, trial: 0, start };
        let (path, others) = ("/d".into(), Vec::new());
        Volume { path, others, need, earlier: 3, taken_back: 0, present: 5 }
    }

    #[test]
    fn old_data_goes_first_only_where_it_must_and_may() {
        let needs_ten = volume(9, 1, 1);
        for (free, kept, removed) in [
            (10, Some(Room::Enough), Some(Room::Enough)),
            (9, None, Some(Room::WithoutEarlier)),
            (7, None, Some(Room::WithoutEarlier)),
            (6, None, Some(Room::WithoutOld)),
            (2, None, Some(Room::WithoutOld)),
            (1, None, None),
        ] {
            assert_eq!(judge(&needs_ten, free, Old::Kept), kept, "{free}");
            assert_eq!(judge(&needs_ten, free, Old::Removed), removed, "{free}");
        }
    }

    #[test]
    fn the_redo_log_needs_room_but_not_beside_the_one_that_arrives() {
        let log_is_larger = volume(4, 1, 6);
        assert_eq!(judge(&log_is_larger, 9, Old::Kept), None);
        assert_eq!(judge(&log_is_larger, 10, Old::Kept), Some(Room::Enough));
        // With keep-old=no the present data makes way for it, after the swap.
        assert_eq!(judge(&log_is_larger, 5, Old::Removed), Some(Room::Enough));
        assert_eq!(judge(&volume(4, 6, 1), 9, Old::Kept), None);
        // The second start comes before the swap.
        let mut has_trial = log_is_larger;
        has_trial.need.trial = 3;
        assert_eq!(judge(&has_trial, 6, Old::Removed), Some(Room::WithoutEarlier));
    }

    #[test]
    fn what_a_start_creates_needs_room_where_it_creates_it() {
        use crate::contract::args::Product;
        const MIB: u64 = 1 << 20;
        let folder = tempfile::tempdir().unwrap();
        let [home, log, undo] = ["home", "log", "undo"].map(|name| folder.path().join(name));
        let place = |kind, dir: &PathBuf| KindDir { kind, dir: dir.clone() };
        let outside = vec![
            place(Kind::Data(Vec::new()), &home),
            place(Kind::Redo, &log),
            place(Kind::Undo, &undo),
        ];
        let layout = Layout { outside, ..Layout::of(folder.path()).unwrap() };
        let files = [("undo001".to_owned(), 9 * MIB), ("undo002".to_owned(), 9 * MIB)].into();
        let places = Places { files, since_checkpoint: Some(20 * MIB), ..Places::default() };
        let (redo, trial_redo) = (24 * MIB, 16 * MIB);
        let (undo_bytes, beside_system) = (40 * MIB, 50 * MIB);
        let (bytes, disk) = (18 * MIB, 18 * MIB);
        let (position, key) = (None, None);
        let backup = OfferedBackup {
            bytes,
            disk,
            places,
            redo,
            trial_redo,
            undo: undo_bytes,
            beside_system,
            position,
            key,
        };
        let destination = Destination::of(&layout, Product::MariaDb);
        let need = |dirs: &[&Path], device: &dyn Fn(&Path) -> u64| {
            let needs = needs(&layout, &destination, &backup, |dir| Ok(device(dir))).unwrap();
            let mut all = Need::default();
            let of_dirs = needs.iter().filter(|(at, _)| dirs.contains(&at.as_path()));
            of_dirs.for_each(|(_, need)| all.add(*need));
            all
        };
        let all = [folder.path(), &home, &log, &undo];
        let own = |dir: &Path| all.iter().position(|known| *known == dir).unwrap() as u64;
        // The second start has the usual temporary tablespace.
        let of_home = Need { data: 12 * MIB + OWN, start: 38 * MIB, ..Need::default() };
        assert_eq!(need(&[&home], &own), of_home);
        // The log of the second start is still there when the server creates its own.
        let of_log = Need { data: OWN, arriving: 0, trial: 16 * MIB, start: 40 * MIB };
        assert_eq!(need(&[&log], &own), of_log);
        // Those of the donor, or this node's own.
        let of_undo = Need { data: 18 * MIB + OWN, arriving: 0, trial: 22 * MIB, start: 22 * MIB };
        assert_eq!(need(&[&undo], &own), of_undo);
        let of_datadir = Need { data: SLACK, arriving: 20 * MIB, trial: 16 * MIB, start: 16 * MIB };
        assert_eq!(need(&[&layout.datadir], &own), of_datadir);
        // On one file system, nothing counts twice.
        let of_all = Need {
            data: 18 * MIB + SLACK,
            arriving: 20 * MIB,
            trial: 38 * MIB,
            start: (40 + 22 + 38) * MIB,
        };
        assert_eq!(need(&all, &|_| 1), of_all);
    }

    #[test]
    fn a_missing_directory_is_on_the_file_system_above_it() {
        let folder = tempfile::tempdir().unwrap();
        let (path, device) = nearest(&folder.path().join("a/b")).unwrap();
        assert_eq!(path, folder.path());
        assert_eq!(device, folder.path().metadata().unwrap().dev());
    }
}
