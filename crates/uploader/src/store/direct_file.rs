//! A file of a folder that is written past the page cache of the system, and gets its name when it is whole.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use rustix::fs::{AtFlags, OFlags, StatxFlags, statx};

/// Bytes that are copied to an aligned buffer, and written, at once.
const AT_ONCE: usize = 1 << 20;
/// What is written directly is a multiple of this, in the file and in memory: the largest page that Linux has, on any
/// processor. So no page of the page cache holds both bytes that are written directly and others; a write back of those
/// others, while a part beside them is written, brings nothing old back. Few devices need more than 4 KiB.
const BLOCK: usize = 1 << 16;

/// A file without its name. It is removed when it is dropped, unless it got that.
#[derive(Debug)]
pub(super) struct DirectFile {
    /// For what is shorter than a block.
    cached: File,
    direct: File,
    path: PathBuf,
    name: PathBuf,
    /// Whether `path` is this file: once it is not, another writer may have a file there.
    is_staged: AtomicBool,
}

/// What happens if the name is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IfTaken {
    Replace,
    Fail,
}

impl DirectFile {
    /// Creates a file that will get this name. `None` if its file system says nothing of direct writes. Until then it has the
    /// name of an unfinished file, as the `object_store` crate forms it.
    pub(super) fn create(name: PathBuf) -> io::Result<Option<Self>> {
        let mut number = 1_u64;
        let (cached, path) = loop {
            let mut path = name.clone().into_os_string();
            path.push(format!("#{number}"));
            let path = PathBuf::from(path);
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => break (file, path),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) if error.kind() == io::ErrorKind::NotFound => make_folders(&path)?,
                Err(error) => return Err(error),
            }
        };
        match takes_direct_writes(&cached).then(|| open_direct(&cached, &path)).flatten() {
            Some(direct) => {
                let is_staged = AtomicBool::new(true);
                Ok(Some(Self { cached, direct, path, name, is_staged }))
            }
            None => fs::remove_file(&path).map(|()| None),
        }
    }

    /// Writes bytes at an offset. Others may be written meanwhile.
    pub(super) fn write<'a>(
        &self,
        offset: u64,
        bytes: impl Iterator<Item = &'a Bytes>,
    ) -> io::Result<()> {
        let mut space = vec![0; AT_ONCE + BLOCK];
        let begin = space.as_ptr().align_offset(BLOCK);
        let Some(buffer) = space.get_mut(begin..).and_then(|rest| rest.get_mut(..AT_ONCE)) else {
            return Err(io::Error::other("a buffer cannot be aligned; this is a bug"));
        };
        // Up to the first whole block, then many whole blocks at a time.
        let (mut at, mut len) = (offset, 0);
        let mut limit =
            usize::try_from(offset.next_multiple_of(BLOCK as u64) - offset).unwrap_or(0);
        if limit == 0 {
            limit = AT_ONCE;
        }
        for mut rest in bytes.map(Bytes::as_ref) {
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(limit - len));
                if let Some(to) = buffer.get_mut(len..len + now.len()) {
                    to.copy_from_slice(now);
                }
                (rest, len) = (later, len + now.len());
                if len == limit {
                    self.write_aligned(at, buffer.get(..len).unwrap_or_default())?;
                    (at, len, limit) = (at + len as u64, 0, AT_ONCE);
                }
            }
        }
        // Its last block may be short.
        let (whole, short) = buffer.get(..len).unwrap_or_default().split_at(len - len % BLOCK);
        self.write_aligned(at, whole)?;
        self.cached.write_all_at(short, at + whole.len() as u64)
    }

    fn write_aligned(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let is_whole = |number: u64| number.is_multiple_of(BLOCK as u64);
        if !is_whole(at) || !is_whole(bytes.len() as u64) {
            return self.cached.write_all_at(bytes, at);
        }
        match self.direct.write_all_at(bytes, at) {
            // A file system may refuse what it has promised, such as for a file that it compresses.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                self.cached.write_all_at(bytes, at)
            }
            written => written,
        }
    }

    /// Gives the file its name, and returns what it is. Content and name are on disk when this returns.
    pub(super) fn publish(self, if_taken: IfTaken) -> io::Result<Metadata> {
        self.cached.sync_all()?;
        let facts = self.cached.metadata()?;
        match if_taken {
            IfTaken::Replace => {
                fs::rename(&self.path, &self.name)?;
                self.is_staged.store(false, Ordering::Relaxed);
            }
            IfTaken::Fail => fs::hard_link(&self.path, &self.name)?,
        }
        self.name.parent().map_or(Ok(()), sync_folder)?;
        Ok(facts)
    }

    /// Removes the file, also while a part of it is still written, unless it has its name.
    pub(super) fn give_up(&self) -> io::Result<()> {
        match self.is_staged.swap(false, Ordering::Relaxed) {
            true => fs::remove_file(&self.path),
            false => Ok(()),
        }
    }
}

impl Drop for DirectFile {
    fn drop(&mut self) {
        let _ = self.give_up();
    }
}

/// Returns whether a file system says of a file that it takes direct writes of whole blocks.
fn takes_direct_writes(file: &File) -> bool {
    let is_usable = |alignment: u32| {
        alignment.is_power_of_two() && (BLOCK as u64).is_multiple_of(u64::from(alignment))
    };
    statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).is_ok_and(|facts| {
        facts.stx_mask & StatxFlags::DIOALIGN.bits() != 0
            && is_usable(facts.stx_dio_mem_align)
            && is_usable(facts.stx_dio_offset_align)
    })
}

/// Opens a file for direct writes; `None` if that is refused, or if its path has become that of another file.
fn open_direct(file: &File, path: &Path) -> Option<File> {
    let flag = i32::try_from(OFlags::DIRECT.bits()).ok()?;
    let direct = OpenOptions::new().write(true).custom_flags(flag).open(path).ok()?;
    let identity = |file: &File| file.metadata().ok().map(|facts| (facts.dev(), facts.ino()));
    identity(file).is_some_and(|one| identity(&direct) == Some(one)).then_some(direct)
}

/// Makes the missing folders above a file. Their names are on disk when this returns.
fn make_folders(file: &Path) -> io::Result<()> {
    let Some(folder) = file.parent().filter(|folder| !folder.is_dir()) else { return Ok(()) };
    make_folders(folder)?;
    match fs::create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => sync_folder(folder)?,
    }
    folder.parent().map_or(Ok(()), sync_folder)
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A folder on a disk; `None`, with a word, if that takes no direct writes.
    pub(in crate::store) fn folder_on_disk() -> Option<tempfile::TempDir> {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let file = DirectFile::create(folder.path().join("probe")).unwrap();
        if file.is_none() {
            xb_testkit::skipped("the file system of /var/tmp takes no direct writes");
        }
        file.map(|_| folder)
    }

    pub(in crate::store) fn noise(len: usize) -> Vec<u8> {
        (0..len).map(|n| u8::try_from(n * 7 % 251).unwrap()).collect()
    }

    fn entries(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            names.map(|one| one.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// Whatever the slabs and the parts are, and in whichever order the parts are written.
        #[test]
        fn a_file_has_the_bytes_that_were_written(
            slabs in prop::collection::vec(
                prop_oneof![
                    1..9000_usize, Just(4096), Just(BLOCK), BLOCK - 2..BLOCK + 2,
                    Just(AT_ONCE), AT_ONCE - 3..AT_ONCE + 4100,
                ], 1..7),
            cuts in prop::collection::vec(0..7_usize, 0..3),
            is_reversed in any::<bool>(),
        ) {
            let Some(folder) = folder_on_disk() else { return Ok(()) };
            let all = noise(slabs.iter().sum());
            let mut rest = Bytes::from(all.clone());
            let slabs: Vec<Bytes> = slabs.into_iter().map(|len| rest.split_to(len)).collect();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(slabs.len())).collect();
            cuts.extend([0, slabs.len()]);
            cuts.sort_unstable();
            let mut parts: Vec<_> = cuts.windows(2).map(|pair| pair[0]..pair[1]).collect();
            if is_reversed {
                parts.reverse();
            }
            let name = folder.path().join("a");
            let file = DirectFile::create(name.clone()).unwrap().unwrap();
            for part in parts {
                let begin: usize = slabs[..part.start].iter().map(Bytes::len).sum();
                file.write(begin as u64, slabs[part].iter()).unwrap();
            }
            prop_assert!(!name.exists());
            let facts = file.publish(IfTaken::Fail).unwrap();
            prop_assert_eq!(facts.len(), all.len() as u64);
            prop_assert!(fs::read(&name).unwrap() == all);
            prop_assert_eq!(entries(folder.path()), ["a"]);
        }
    }

    #[test]
    fn a_name_that_is_taken_is_kept_or_replaced_as_a_whole() {
        let Some(folder) = folder_on_disk() else { return };
        let name = folder.path().join("deep/er/a");
        for (content, if_taken, expected) in [
            ("one", IfTaken::Fail, "one"),
            ("two", IfTaken::Fail, "one"),
            ("three", IfTaken::Replace, "three"),
        ] {
            let file = DirectFile::create(name.clone()).unwrap().unwrap();
            file.write(0, [Bytes::from(content)].iter()).unwrap();
            let kind = file.publish(if_taken).err().map(|error| error.kind());
            let is_taken = content == "two";
            assert_eq!(kind, is_taken.then_some(io::ErrorKind::AlreadyExists));
            assert_eq!(fs::read_to_string(&name).unwrap(), expected);
            assert_eq!(entries(name.parent().unwrap()), ["a"]);
        }
    }

    #[test]
    fn a_file_that_is_given_up_is_removed_and_another_one_has_its_own_name() {
        let Some(folder) = folder_on_disk() else { return };
        let name = folder.path().join("a");
        let [one, two] = [(); 2].map(|()| DirectFile::create(name.clone()).unwrap().unwrap());
        one.write(0, [Bytes::from(noise(10_000))].iter()).unwrap();
        assert_eq!(entries(folder.path()), ["a#1", "a#2"]);
        drop(one);
        assert_eq!(entries(folder.path()), ["a#2"]);
        let _ = two.publish(IfTaken::Replace).unwrap();
        assert_eq!(entries(folder.path()), ["a"]);
    }

    #[test]
    fn a_file_that_is_given_up_leaves_that_of_the_next_writer_alone() {
        let Some(folder) = folder_on_disk() else { return };
        let name = folder.path().join("a");
        let one = DirectFile::create(name.clone()).unwrap().unwrap();
        one.give_up().unwrap();
        // This one gets the path that the first one had.
        let two = DirectFile::create(name.clone()).unwrap().unwrap();
        // What is written late goes nowhere, and its end removes nothing.
        one.write(0, [Bytes::from(noise(10_000))].iter()).unwrap();
        one.give_up().unwrap();
        drop(one);
        two.write(0, [Bytes::from("two")].iter()).unwrap();
        let _ = two.publish(IfTaken::Replace).unwrap();
        assert_eq!(fs::read_to_string(&name).unwrap(), "two");
        assert_eq!(entries(folder.path()), ["a"]);
    }

    /// Writers of one name in several threads: each either succeeds as a whole, or, where none may be replaced, finds it taken.
    #[test]
    fn of_many_writers_of_one_name_each_is_whole_and_one_creates_it() {
        let Some(folder) = folder_on_disk() else { return };
        let name = folder.path().join("a");
        let write = |len: usize, if_taken| {
            let file = DirectFile::create(name.clone()).unwrap().unwrap();
            file.write(0, [Bytes::from(noise(len))].iter()).unwrap();
            file.publish(if_taken).map(|facts| facts.len()).map_err(|error| error.kind())
        };
        for if_taken in [IfTaken::Fail, IfTaken::Replace] {
            let all: Vec<_> = std::thread::scope(|scope| {
                let begin = |number: usize| {
                    scope.spawn(move || [(); 8].map(|()| write(AT_ONCE + number, if_taken)))
                };
                let writers = [0, 1, 2, 3].map(begin);
                writers.into_iter().flat_map(|one| one.join().unwrap()).collect()
            });
            let created = all.iter().filter(|one| one.is_ok()).count();
            match if_taken {
                IfTaken::Fail => {
                    let taken = Err(io::ErrorKind::AlreadyExists);
                    assert_eq!(all.iter().filter(|one| **one == taken).count(), all.len() - 1);
                    assert_eq!(created, 1);
                }
                IfTaken::Replace => assert_eq!(created, all.len(), "{all:?}"),
            }
            let found = fs::read(&name).unwrap();
            assert!(found == noise(found.len()) && found.len() >= AT_ONCE);
            assert_eq!(entries(folder.path()), ["a"]);
        }
    }
}
