//! Checks the pages of a data directory on which recovery is over, and that no server uses: each tablespace is whole, and
//! a page that is in use and missing is damage.

use std::collections::BTreeMap;
use std::fs::{File, FileType};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{Mode, OFlags, SeekFrom, open, seek};
use rustix::io::Errno;
use xb_files::is_lost_and_found;
use xb_pages::PageChecker;
use xb_reader::RelPath;

use super::evidence::{Evidence, PagesFound};
use super::layer_state::{Content, recovered_pages};

/// Bytes that are read at once.
const PIECE: usize = 1 << 20;

/// A tablespace file of a data directory.
#[derive(Debug, Clone)]
pub struct RecoveredFile {
    /// Its name below the directory.
    pub path: RelPath,
    /// Its length in bytes.
    pub len: u64,
}

/// The tablespace files of a data directory.
#[derive(Debug, Clone)]
pub struct RecoveredFiles {
    dir: PathBuf,
    files: Vec<RecoveredFile>,
}

impl RecoveredFiles {
    /// Lists the tablespaces in a data directory and in the folders of its schemas, except what `is_left` names. No link is
    /// followed.
    ///
    /// # Errors
    /// If a directory cannot be read.
    pub fn list(dir: &Path, is_left: impl Fn(&RelPath) -> bool) -> io::Result<Self> {
        let mut files = Vec::new();
        let mut take = |path: &Path, kind: FileType| {
            let name = path.strip_prefix(dir).unwrap_or(path).as_os_str().as_bytes();
            // No tablespace has a name that no stream may have.
            let Some(name) = RelPath::new(name).ok().filter(|_| kind.is_file()) else {
                return Ok(());
            };
            if recovered_pages(name.as_bytes()).is_some() && !is_left(&name) {
                files.push(RecoveredFile {
                    path: name,
                    len: std::fs::symlink_metadata(path)?.len(),
                });
            }
            Ok::<_, io::Error>(())
        };
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if !kind.is_dir() {
                take(&entry.path(), kind)?;
                continue;
            }
            let name = entry.file_name();
            // Temporary tablespaces, redo logs and other engines, and what is ours.
            if is_lost_and_found(&entry)
                || [b'#', b'.'].map(Some).contains(&name.as_bytes().first().copied())
            {
                continue;
            }
            for file in std::fs::read_dir(entry.path())? {
                let file = file?;
                take(&file.path(), file.file_type()?)?;
            }
        }
        files.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(Self { dir: dir.to_owned(), files })
    }

    /// Length of all files, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.len).sum()
    }

    /// Reads all files once, on `threads`, and returns what it finds, ordered by file and page. `go_on` is told how many
    /// bytes were read, and ends it with `false`: then the result is `None`.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn check(
        &self,
        threads: usize,
        go_on: impl Fn(u64) -> bool + Sync,
    ) -> io::Result<Option<PagesFound>> {
        let (next, evidence) = (AtomicUsize::new(0), Mutex::new(Evidence::default()));
        let work = || -> io::Result<bool> {
            let mut buffer = vec![0; PIECE];
            while let Some(file) = self.files.get(next.fetch_add(1, Ordering::Relaxed)) {
                if !self.check_one(file, &mut buffer, &evidence, &go_on)? {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        let threads = threads.clamp(1, self.files.len().max(1));
        let all = std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let mut all = work();
            for other in others {
                let done = other.join().unwrap_or_else(|panic| resume_unwind(panic));
                all = all.and_then(|all| done.map(|done| all && done));
            }
            all
        })?;
        // Without a redo log, nothing can write a page that is missing.
        let evidence = evidence.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut found = evidence.judge(&BTreeMap::new());
        found
            .bad
            .sort_by(|one, other| (&one.path, one.page.page).cmp(&(&other.path, other.page.page)));
        Ok(all.then_some(found))
    }

    fn check_one(
        &self,
        RecoveredFile { path, .. }: &RecoveredFile,
        buffer: &mut [u8],
        evidence: &Mutex<Evidence>,
        go_on: &impl Fn(u64) -> bool,
    ) -> io::Result<bool> {
        let name = self.dir.join(std::ffi::OsStr::from_bytes(path.as_bytes()));
        let failed = |error: io::Error| io::Error::new(error.kind(), format!("{path}: {error}"));
        let Some(mut checker) = recovered_pages(path.as_bytes()) else { return Ok(true) };
        let lock = || evidence.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bad = |page| lock().of_file(path)(page);
        if !read(&name, buffer, &mut checker, &mut bad, go_on).map_err(failed)? {
            return Ok(false);
        }
        let checked = checker.finish(&mut bad);
        if checked.is_tablespace {
            lock().file(path, Content::Pages(checked));
        }
        Ok(true)
    }
}

/// Reads a file to its end, without its holes.
fn read(
    path: &Path,
    buffer: &mut [u8],
    checker: &mut PageChecker,
    bad: &mut impl FnMut(xb_pages::BadPage),
    go_on: &impl Fn(u64) -> bool,
) -> io::Result<bool> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(open(path, flags, Mode::empty())?);
    let len = file.metadata()?.len();
    let mut at = 0;
    while at < len {
        let data = match seek(&file, SeekFrom::Data(at)) {
            Ok(data) => data.clamp(at, len),
            Err(Errno::NXIO) => len,
            // The file system does not know holes.
            Err(_) => at,
        };
        checker.feed_zeros(data - at, bad);
        if !go_on(data - at) {
            return Ok(false);
        }
        at = data;
        let hole = seek(&file, SeekFrom::Hole(at)).ok().filter(|hole| *hole > at);
        let hole = hole.map_or(len, |hole| hole.min(len));
        while at < hole {
            let want = usize::try_from(hole - at).unwrap_or(usize::MAX).min(buffer.len());
            let piece = buffer.get_mut(..want).unwrap_or_default();
            file.read_exact_at(piece, at)?;
            checker.feed(piece, bad);
            at += want as u64;
            if !go_on(want as u64) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}
