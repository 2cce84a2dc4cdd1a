//! A file of a folder that is written past the page cache of the system, and gets its name when it is whole.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rustix::fs::{AtFlags, OFlags, StatxFlags, statx};

/// Bytes that are copied to an aligned buffer, and written, at once.
const AT_ONCE: usize = 1 << 20;
/// Least alignment of what is written directly: no page that the page cache has holds a part of it.
const PAGE: usize = 4096;
/// Greatest alignment that is used.
const MAX_ALIGNMENT: usize = 1 << 16;

/// A file without its name. It is removed when it is dropped, unless it got that.
#[derive(Debug)]
pub(super) struct DirectFile {
    /// For what is shorter than a block of the device.
    cached: File,
    direct: File,
    alignment: usize,
    path: PathBuf,
    name: PathBuf,
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
        let direct = alignment(&cached).and_then(|alignment| {
            let flag = i32::try_from(OFlags::DIRECT.bits()).ok()?;
            let file = OpenOptions::new().write(true).custom_flags(flag).open(&path).ok()?;
            Some((file, alignment))
        });
        match direct {
            Some((direct, alignment)) => Ok(Some(Self { cached, direct, alignment, path, name })),
            None => fs::remove_file(&path).map(|()| None),
        }
    }

    /// Writes bytes at an offset. Others may be written meanwhile.
    pub(super) fn write<'a>(
        &self,
        offset: u64,
        bytes: impl Iterator<Item = &'a Bytes>,
    ) -> io::Result<()> {
        let alignment = self.alignment as u64;
        let mut space = vec![0; AT_ONCE + self.alignment];
        let begin = space.as_ptr().align_offset(self.alignment);
        let Some(buffer) = space.get_mut(begin..).and_then(|rest| rest.get_mut(..AT_ONCE)) else {
            return Err(io::Error::other("a buffer cannot be aligned; this is a bug"));
        };
        // Up to the first whole block, then many whole blocks at a time.
        let (mut at, mut len) = (offset, 0);
        let mut limit = usize::try_from(offset.next_multiple_of(alignment) - offset).unwrap_or(0);
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
        let (whole, short) =
            buffer.get(..len).unwrap_or_default().split_at(len - len % self.alignment);
        self.write_aligned(at, whole)?;
        self.cached.write_all_at(short, at + whole.len() as u64)
    }

    fn write_aligned(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let is_whole = |number: u64| number.is_multiple_of(self.alignment as u64);
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

    /// Gives the file its name. Content and name are on disk when this returns.
    pub(super) fn publish(&self, if_taken: IfTaken) -> io::Result<()> {
        self.cached.sync_all()?;
        match if_taken {
            IfTaken::Replace => fs::rename(&self.path, &self.name)?,
            IfTaken::Fail => fs::hard_link(&self.path, &self.name)?,
        }
        self.name.parent().map_or(Ok(()), sync_folder)
    }
}

impl Drop for DirectFile {
    fn drop(&mut self) {
        // After a rename there is none.
        let _ = fs::remove_file(&self.path);
    }
}

/// Returns the alignment of direct writes to a file; `None` if its file system says of none.
fn alignment(file: &File) -> Option<usize> {
    let facts = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    if facts.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return None;
    }
    let all = [facts.stx_dio_mem_align, facts.stx_dio_offset_align];
    let all = all.map(|alignment| usize::try_from(alignment).unwrap_or(usize::MAX));
    let is_usable = |one: &usize| one.is_power_of_two() && *one <= MAX_ALIGNMENT;
    all.iter().all(is_usable).then(|| all.into_iter().fold(PAGE, usize::max))
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
                prop_oneof![1..9000_usize, Just(4096), Just(AT_ONCE), AT_ONCE - 3..AT_ONCE + 4100], 1..7),
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
            file.publish(IfTaken::Fail).unwrap();
            drop(file);
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
            drop(file);
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
        two.publish(IfTaken::Replace).unwrap();
        drop(two);
        assert_eq!(entries(folder.path()), ["a"]);
    }
}
