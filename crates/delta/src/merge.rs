//! Merges a chain, as planned.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{self, BufReader};
use std::os::unix::fs::FileExt as _;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::delta::{DamagedDelta, DeltaReader};
use crate::kept;
use crate::links::finish_checkpoints;
use crate::plan::{Plan, Space};
use xb_files::or_none;

/// Most bytes of neighbouring pages that are written at once.
const RUN: usize = 1 << 20;
/// Bytes of a delta file that are read at once.
const READ: usize = 1 << 20;

/// Report of a merge.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MergeReport {
    /// Tablespaces of the result.
    pub spaces: u64,
    /// Pages in all deltas.
    pub pages: u64,
    /// Pages that were written: the newest of each number.
    pub written: u64,
}

/// Reason why a merge failed. Its directory is of no use then, until another run has finished it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// A delta file is damaged.
    #[error("{path}: {source}: verify the backup, and restore another one")]
    Damaged {
        /// The file.
        path: String,
        /// A text that describes its fault.
        source: DamagedDelta,
    },
    /// It was cancelled.
    #[error("interrupted")]
    Cancelled,
}

/// Merges a chain: the directory of its full backup becomes a full backup at the state of the last increment, still
/// to be prepared. The directory of the last increment loses the files that are moved. With `is_durable`, each
/// file is on its disk when this returns.
///
/// Tablespaces are written by `threads` at the same time. Memory: for each, a bit for each page of one tablespace, and a
/// few MiB.
///
/// Each step can be done again: a merge that was interrupted at any point is finished by the same call.
///
/// # Errors
/// [`Error`]; the directory is then neither the one nor the other.
pub fn merge(
    plan: &Plan,
    threads: usize,
    is_durable: bool,
    is_cancelled: impl Fn() -> bool + Sync,
) -> Result<MergeReport, Error> {
    let base = &plan.base;
    let go_on = || if is_cancelled() { Err(Error::Cancelled) } else { Ok(()) };
    make_folder(&kept::folder(base))?;
    if !kept::are_aside(base).map_err(at(base))? {
        put_aside(plan, go_on)?;
        kept::mark_aside(base).map_err(at(base))?;
    }
    plan.folders.iter().try_for_each(|folder| make_folder(&base.join(folder)))?;
    let merged = write_spaces(plan, threads, is_durable, &go_on)?;
    for file in &plan.moved {
        go_on()?;
        let from = plan.last.join(file);
        rename(&from, &base.join(file))?;
        if is_durable {
            sync(&base.join(file))?;
        }
    }
    // The folders of databases that were dropped; the inner ones are behind their parents.
    let there: HashSet<&Path> = plan.folders.iter().map(PathBuf::as_path).collect();
    for folder in plan.old_folders.iter().rev().filter(|folder| !there.contains(folder.as_path())) {
        go_on()?;
        let path = base.join(folder);
        or_none(std::fs::remove_dir(&path)).map_err(at(&path))?;
    }
    // Last: without this file, nothing takes the directory for a backup.
    finish_checkpoints(&plan.last, base).map_err(at(base))?;
    go_on()?;
    kept::remove(base).map_err(at(base))?;
    if is_durable {
        plan.folders.iter().try_for_each(|folder| sync(&base.join(folder)))?;
        sync(base)?;
    }
    Ok(merged)
}

/// Takes their old names from all files of the base that get other ones. Two tables may have swapped their names: no file
/// gets its new one before.
fn put_aside(plan: &Plan, go_on: impl Fn() -> Result<(), Error>) -> Result<(), Error> {
    for (n, space) in plan.spaces.iter().enumerate() {
        go_on()?;
        if let Some(copy) = space.copy.as_ref().filter(|copy| **copy != plan.base.join(&space.path))
        {
            rename(copy, &kept::waiting(&plan.base, n))?;
        }
    }
    plan.dropped.iter().try_for_each(|file| {
        go_on()?;
        let path = plan.base.join(file);
        or_none(std::fs::remove_file(&path)).map(drop).map_err(at(&path))
    })
}

/// Gives the tablespaces their names, and writes their pages. The first failure ends all threads, each at its next page.
fn write_spaces(
    plan: &Plan,
    threads: usize,
    is_durable: bool,
    go_on: &(impl Fn() -> Result<(), Error> + Sync),
) -> Result<MergeReport, Error> {
    let (next, failure) = (AtomicUsize::new(0), OnceLock::new());
    // The results of the other threads are then dropped.
    let go_on = || if failure.get().is_some() { Err(Error::Cancelled) } else { go_on() };
    let work = || {
        let mut merged = MergeReport::default();
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            let Some(space) = plan.spaces.get(n) else { return merged };
            let path = plan.base.join(&space.path);
            let written = go_on()
                // An earlier release put all of them aside.
                .and_then(|()| match space.copy.is_some() {
                    true => path.try_exists().map_err(at(&path)),
                    false => Ok(true),
                })
                .and_then(|is_there| match is_there {
                    true => Ok(()),
                    false => rename(&kept::waiting(&plan.base, n), &path),
                })
                .and_then(|()| write_pages(space, &path, &mut merged, go_on))
                .and_then(|()| if is_durable { sync(&path) } else { Ok(()) });
            if let Err(error) = written {
                let _ = failure.set(error);
                return merged;
            }
        }
    };
    let threads = threads.clamp(1, plan.spaces.len().max(1));
    let all = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut all = work();
        for other in others {
            let merged = other.join().unwrap_or_else(|panic| resume_unwind(panic));
            all.spaces += merged.spaces;
            all.pages += merged.pages;
            all.written += merged.written;
        }
        all
    });
    failure.into_inner().map_or(Ok(all), Err)
}

/// Writes the newest version of each page.
fn write_pages(
    space: &Space,
    path: &Path,
    merged: &mut MergeReport,
    go_on: impl Fn() -> Result<(), Error>,
) -> Result<(), Error> {
    merged.spaces += 1;
    let has_copy = space.copy.is_some();
    // Most tablespaces of a server are as they were.
    if has_copy
        && space.deltas.is_empty()
        && std::fs::metadata(path).map_err(at(path))?.len() >= space.len
    {
        return Ok(());
    }
    let file = File::options().write(true).create(!has_copy).truncate(false).open(path);
    let file = file.map_err(at(path))?;
    let mut seen = PageSet::default();
    let mut run = Run { bytes: Vec::new(), offset: 0 };
    for delta in &space.deltas {
        let damaged = |source| Error::Damaged { path: delta.display().to_string(), source };
        let input = BufReader::with_capacity(READ, File::open(delta).map_err(at(delta))?);
        let mut reader = DeltaReader::new(input, space.page_size);
        while let Some((number, page)) = reader.next_page().map_err(damaged)? {
            go_on()?;
            merged.pages += 1;
            if seen.insert(number) {
                merged.written += 1;
                let offset = u64::from(number) * space.page_size as u64;
                if !run.takes(offset) {
                    run.write(&file).map_err(at(path))?;
                    run.offset = offset;
                }
                run.bytes.extend_from_slice(page);
            }
        }
        run.write(&file).map_err(at(path))?;
    }
    let len = file.metadata().map_err(at(path))?.len();
    if len < space.len {
        file.set_len(space.len).map_err(at(path))?;
    }
    Ok(())
}

/// Neighbouring pages that are written at once.
struct Run {
    bytes: Vec<u8>,
    offset: u64,
}

impl Run {
    fn takes(&self, offset: u64) -> bool {
        self.bytes.len() < RUN && self.offset.checked_add(self.bytes.len() as u64) == Some(offset)
    }

    fn write(&mut self, file: &File) -> io::Result<()> {
        file.write_all_at(&self.bytes, self.offset)?;
        self.bytes.clear();
        Ok(())
    }
}

/// Pages for which a set has room at once.
const CHUNK: u32 = 4096;

/// A set of page numbers: a bit for each page, where there are any.
#[derive(Debug, Default)]
struct PageSet(BTreeMap<u32, [u64; CHUNK as usize / 64]>);

impl PageSet {
    /// Adds a number; returns whether it is new.
    fn insert(&mut self, number: u32) -> bool {
        let chunk = self.0.entry(number / CHUNK).or_insert([0; CHUNK as usize / 64]);
        let (place, bit) = ((number % CHUNK / 64) as usize, 1 << (number % 64));
        let Some(word) = chunk.get_mut(place) else { return false };
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.display().to_string();
    move |source| Error::File { path, source }
}

fn make_folder(path: &Path) -> Result<(), Error> {
    match std::fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made.map_err(at(path)),
    }
}

/// Renames a file, unless an interrupted run has done it.
fn rename(from: &Path, to: &Path) -> Result<(), Error> {
    match std::fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && to.exists() => Ok(()),
        done => done.map_err(at(from)),
    }
}

/// Waits until a file or folder is on its disk.
fn sync(path: &Path) -> Result<(), Error> {
    File::open(path).and_then(|file| file.sync_all()).map_err(at(path))
}
