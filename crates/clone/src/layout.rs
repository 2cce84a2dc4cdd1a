//! Destinations of the files of a stored clone. No statement in the clone is believed unchecked.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use xb_reader::RelPath;

use crate::error::Error;
use crate::patches::{Patch, PatchTarget};
use crate::stored::{CloneInfo, INFO, OUTSIDE, StoredFile};
use crate::text;

/// Version of the stored form.
const FORMAT: u32 = 1;
/// Bytes behind the end of a full redo log, which a server does not need.
const LAST_BLOCK: u64 = 512;
/// Names at which the clone's own files begin, and those of a restore.
const RESERVED: [&str; 3] = ["xb_clone.", ".xb-", "backup-my.cnf"];
/// Endings of files that a server believes.
const BELIEVED: [&str; 12] =
    ["cnf", "cfg", "conf", "index", "info", "ini", "json", "my", "pem", "pid", "so", "state"];
/// Offsets in a page of its number and its tablespace's.
const PAGE_NUMBER: usize = 4;
const PAGE_SPACE: usize = 34;
/// Flag of a tablespace: many tables share it.
pub(crate) const SHARED: u32 = 1 << 11;
/// The tablespace of the server itself, and the first number that only undo tablespaces have.
const SYSTEM: u32 = 0;
const FIRST_UNDO: u32 = 0xfcf8_da70;

impl CloneInfo {
    /// Reads the content of [`INFO`], and checks that every file has a place.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Refused`].
    pub fn parse(text: &[u8]) -> Result<Self, Error> {
        Self::read(text)
    }

    /// Like [`CloneInfo::parse`], as it arrives. The memory is that of the facts, and has a limit.
    ///
    /// # Errors
    /// As [`CloneInfo::parse`].
    pub fn read(input: impl Read) -> Result<Self, Error> {
        let info: Self = text::read(input)
            .map_err(|error| Error::Damaged(format!("{INFO} cannot be read: {error}")))?;
        Layout::new(&info)?;
        Ok(info)
    }

    /// The files that lay outside of the server's data directory: where they were, and where in it they go.
    ///
    /// # Errors
    /// As [`CloneInfo::parse`].
    pub fn moved(&self) -> Result<Vec<(String, String)>, Error> {
        let layout = Layout::new(self)?;
        let moved = self.files.iter().zip(&layout.files);
        let moved = moved.filter(|(file, place)| file.name.starts_with('/') && !place.is_removed);
        Ok(moved.map(|(file, place)| (file.name.clone(), place.target.to_string())).collect())
    }
}

/// Place of every file of a clone in the stream, and its destination.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) files: Vec<FilePlace>,
    /// Sizes of the files of the redo log, by index.
    pub(crate) redo: Vec<u64>,
    pub(crate) page_size: u32,
}

/// A file, and where it goes.
#[derive(Debug, Clone)]
pub(crate) struct FilePlace {
    /// Its name in the stream.
    pub(crate) stored: RelPath,
    /// Its path on the way to another name: that of a file from outside, which has it in the stream already.
    pub(crate) parked: RelPath,
    /// Its name in the directory that is made: another one if it lay outside.
    pub(crate) target: RelPath,
    /// Its size in bytes, at the end.
    pub(crate) size: u64,
    /// Bytes of one of its pages; 0 if it has none.
    pub(crate) page_size: u32,
    /// Whether it is not in the stream, but all of it among the patches.
    pub(crate) is_late: bool,
    /// Whether the server removed it.
    pub(crate) is_removed: bool,
    space: Option<u32>,
}

impl FilePlace {
    /// Returns whether its name changes.
    pub(crate) fn is_moved(&self) -> bool {
        self.stored != self.target && !self.is_removed
    }

    /// Returns whether it has to be parked: its name may be that of another file until that one is gone.
    pub(crate) fn is_parked(&self) -> bool {
        self.is_moved() && self.stored != self.parked
    }
}

impl Layout {
    /// Refuses a file of a directory that is not of the clone. At the top, those of a restore lie beside it.
    pub(crate) fn refuse_unlisted(&self, paths: &[Vec<u8>]) -> Result<(), Error> {
        let of_files = self.files.iter().flat_map(|file| [&file.stored, &file.target]);
        let known: BTreeSet<&[u8]> = of_files.map(RelPath::as_bytes).collect();
        let is_own = |path: &[u8]| {
            let is_reserved = |own: &&str| path.starts_with(own.as_bytes());
            !path.contains(&b'/') && RESERVED.iter().any(is_reserved)
        };
        match paths.iter().find(|path| !known.contains(&***path) && !is_own(path)) {
            None => Ok(()),
            Some(name) => {
                damaged(format!("it has {}, which is no file of it", name.escape_ascii()))
            }
        }
    }

    /// Checks what a clone says about itself.
    ///
    /// # Errors
    /// [`Error::Damaged`], and [`Error::Refused`] for a file for which there is no place.
    pub(crate) fn new(info: &CloneInfo) -> Result<Self, Error> {
        if info.format != FORMAT {
            return Err(Error::Refused(format!(
                "the clone has format {}, but only {FORMAT} is known: use a newer release of this program",
                info.format
            )));
        }
        let files = places(&info.files, info.page_size, info.allows_ddl)?;
        if info.redo.is_empty() {
            return damaged("there is no redo log".to_owned());
        }
        let redo = info.redo.iter().zip(0..).map(|(file, index)| {
            let is_sound = file.index == index && (LAST_BLOCK..=MAX_SIZE).contains(&file.size);
            match is_sound {
                true => Ok(file.size),
                false => damaged(format!("redo log {} of {} bytes", file.index, file.size)),
            }
        });
        Ok(Self { files, redo: redo.collect::<Result<_, _>>()?, page_size: info.page_size })
    }

    /// Returns whether DDL changed any file.
    pub(crate) fn has_changes(&self) -> bool {
        self.files.iter().any(|file| file.is_late || file.is_removed || file.is_parked())
    }

    /// The file with this index.
    pub(crate) fn file(&self, index: u32) -> Option<&FilePlace> {
        self.files.get(usize::try_from(index).ok()?)
    }

    /// The files of the system tablespace, in their order: names and sizes in bytes.
    pub(crate) fn system(&self) -> impl Iterator<Item = (&RelPath, u64)> {
        let system =
            self.files.iter().filter(|file| file.space == Some(SYSTEM) && !file.is_removed);
        system.map(|file| (&file.target, file.size))
    }

    /// Checks that a patch lies where something belongs. A page must say itself which one it is.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub(crate) fn check(&self, patch: &Patch) -> Result<(), Error> {
        let len = patch.bytes.len() as u64;
        let Some(end) = patch.offset.checked_add(len) else {
            return damaged(format!("a patch of {len} bytes at {}", patch.offset));
        };
        let refused = |what: &str, index: u32, size: u64| {
            damaged(format!(
                "a patch of {len} bytes at {} of {what} {index}, which has {size}",
                patch.offset
            ))
        };
        match patch.to {
            PatchTarget::Redo(index) => {
                let size = usize::try_from(index).ok().and_then(|index| self.redo.get(index));
                match size {
                    Some(size) if end <= size.saturating_add(LAST_BLOCK) => Ok(()),
                    size => refused("redo log", index, size.copied().unwrap_or(0)),
                }
            }
            PatchTarget::File(index) => {
                let Some(file) = self.file(index) else { return refused("file", index, 0) };
                let page = u64::from(file.page_size);
                if len != page || end > file.size || !patch.offset.is_multiple_of(page) {
                    return refused("file", index, file.size);
                }
                let field = |at: usize| {
                    let bytes = patch.bytes.get(at..)?.first_chunk::<4>()?;
                    Some(u32::from_be_bytes(*bytes))
                };
                let number = u32::try_from(patch.offset / page).ok();
                let found = (field(PAGE_NUMBER), field(PAGE_SPACE));
                match number.is_some() && found == (number, file.space) {
                    true => Ok(()),
                    false => damaged(format!(
                        "the patch at {} of {} states that it is page {:?} of tablespace {:?}",
                        patch.offset, file.stored, found.0, found.1
                    )),
                }
            }
        }
    }
}

/// Largest size of a file, in bytes.
const MAX_SIZE: u64 = i64::MAX as u64;

/// The places of files of a server with pages of this size.
///
/// # Errors
/// As [`Layout::new`].
pub(crate) fn places(
    files: &[StoredFile],
    page_size: u32,
    allows_ddl: bool,
) -> Result<Vec<FilePlace>, Error> {
    if !page_size.is_power_of_two() || !(4096..=65536).contains(&page_size) {
        return damaged(format!("pages of {page_size} bytes"));
    }
    let placed = files.iter().zip(0..);
    let placed = placed.map(|(file, index)| place(file, index, page_size, allows_ddl));
    let placed: Vec<FilePlace> = placed.collect::<Result<_, _>>()?;
    distinct(files, &placed)?;
    Ok(placed)
}

fn place(file: &StoredFile, index: u32, most: u32, allows_ddl: bool) -> Result<FilePlace, Error> {
    let bad = |what: &str| damaged(format!("file {index}, {:?}, {what}", file.name));
    if file.index != index {
        return bad(&format!("has the index {}", file.index));
    }
    if file.size > MAX_SIZE {
        return bad(&format!("has {} bytes", file.size));
    }
    let page_size = match (file.space, file.space_flags >> 1 & 15) {
        (None, _) => 0,
        (Some(_), 0) => most,
        (Some(_), zip @ 1..=5) if 512 << zip <= most => 512 << zip,
        (Some(_), zip) => return bad(&format!("has pages of the unknown size {zip}")),
    };
    if file.page_size != page_size {
        return bad(&format!("has pages of {} bytes instead of {page_size}", file.page_size));
    }
    let path = |name: &str| RelPath::new(name.as_bytes());
    let target = if file.is_removed { file.path.clone() } else { target_name(file)? };
    let parked = format!("{OUTSIDE}/{index}");
    let (Ok(stored), Ok(parked_at)) = (path(&file.path), path(&parked)) else {
        return bad(&format!("has the path {:?}", file.path));
    };
    if (file.is_late || file.is_removed) && !allows_ddl {
        return bad("was created or removed by DDL, which waited");
    }
    let is_stored_so = match (file.is_late || file.name.starts_with('/'), allows_ddl) {
        (true, false) => file.path == parked,
        (false, false) => file.path == file.name,
        // Under the name that it had first.
        (_, true) if file.is_late => file.path == parked,
        (_, true) => file.path == parked || !is_own(&file.path),
    };
    // A name that begins with `./` differs from its path.
    let is_plain = |name: &str, path: &RelPath| path.as_bytes() == name.as_bytes();
    let Some(target) = path(&target).ok().filter(|path| is_plain(&target, path)) else {
        return bad("has a name that leads elsewhere");
    };
    if is_own(&target.to_string()) && !(file.is_removed && file.path == parked) {
        return bad("has a name that is not a table's");
    }
    if !file.is_removed && !is_name_of_data(&target.to_string(), file.space) {
        return bad(
            "has a name under which a server may look for something else than data; rename it on the server",
        );
    }
    if !is_stored_so || !is_plain(&file.path, &stored) {
        return bad(&format!("has the path {:?}", file.path));
    }
    Ok(FilePlace {
        stored,
        parked: parked_at,
        target,
        size: file.size,
        page_size,
        is_late: file.is_late,
        is_removed: file.is_removed,
        space: file.space,
    })
}

/// Returns whether a name is one of a clone's or a restore's own files, or of the server's own folders, such as `#innodb_redo`,
/// which come with no clone.
fn is_own(name: &str) -> bool {
    name.starts_with('#') || RESERVED.iter().any(|reserved| name.starts_with(reserved))
}

/// Returns whether a file of a clone may have this name. A server believes some files beside its data: options
/// (`mysqld-auto.cnf`), components (`mysqld.my`), keys (`.pem`), libraries, lists of logs that it removes (`.index`).
fn is_name_of_data(path: &str, space: Option<u32>) -> bool {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let ending = name.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    let is_believed = ending.is_some_and(|ending| BELIEVED.contains(&&*ending));
    // The dump of the buffer pool has no tablespace, and may have any name.
    !is_believed && (space.is_some() || folder.is_empty())
}

/// Returns the path at which a server finds a file: one from outside the data directory, in the folder of its schema, or at the
/// top if many tables share it. A table's file lies outside because of DATA DIRECTORY, or because it was moved there while no
/// server ran: the server finds it by the number of its tablespace, and only the former has a flag.
fn target_name(file: &StoredFile) -> Result<String, Error> {
    let Some(path) = file.name.strip_prefix('/') else { return Ok(file.name.clone()) };
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let schema = folder.rsplit('/').next().unwrap_or_default();
    let is_at_top = match file.space {
        None => true,
        Some(space) => space == SYSTEM || space >= FIRST_UNDO || file.space_flags & SHARED != 0,
    };
    match (is_at_top, !schema.is_empty() && name.ends_with(".ibd")) {
        (true, _) => Ok(name.to_owned()),
        (false, true) => Ok(format!("{schema}/{name}")),
        (false, false) => Err(Error::Refused(format!(
            "{} was outside of the server's data directory, and its path does not say in which folder there a server would find it: stop the server, move the file to SCHEMA/TABLE.ibd in the data directory, start it, and take another backup",
            file.name
        ))),
    }
}

/// Refuses two files for one place, and a file where another one needs a folder.
fn distinct(described: &[StoredFile], files: &[FilePlace]) -> Result<(), Error> {
    let mut stored = BTreeSet::new();
    if let Some(file) = files.iter().find(|file| !stored.insert(file.stored.as_bytes())) {
        return damaged(format!("two files are stored as {}", file.stored));
    }
    let mut names = BTreeMap::new();
    for (described, file) in described.iter().zip(files).filter(|(_, file)| !file.is_removed) {
        if let Some(other) = names.insert(file.target.as_bytes(), described) {
            return Err(Error::Refused(format!(
                "two files have one place in the data directory of a restored server, {}: {} and {}: give one of them another file name, or drop it, and take another backup",
                file.target, other.name, described.name
            )));
        }
    }
    let kept = || files.iter().filter(|file| !file.is_removed);
    let folders: BTreeSet<&[u8]> = kept().filter_map(|file| file.target.split_last().0).collect();
    let mut all: BTreeSet<&[u8]> = BTreeSet::from([&b"mysql"[..]]);
    for folder in folders {
        let ends = folder.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        all.extend(ends.filter_map(|(end, _)| folder.get(..end)));
        all.insert(folder);
    }
    match kept().find(|file| all.contains(file.target.as_bytes())) {
        None => Ok(()),
        Some(file) => damaged(format!("{} is a file and a folder", file.target)),
    }
}

fn damaged<T>(what: String) -> Result<T, Error> {
    Err(Error::Damaged(what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored::StoredRedo;
    use crate::text::MAX_SETTINGS;

    fn file(index: u32, name: &str, space: Option<u32>, space_flags: u32) -> StoredFile {
        let path = match name.starts_with('/') {
            true => format!("{OUTSIDE}/{index}"),
            false => name.to_owned(),
        };
        let page_size = if space.is_some() { 16384 } else { 0 };
        StoredFile {
            index,
            path,
            name: name.to_owned(),
            size: 65536,
            space,
            space_flags,
            page_size,
            is_encrypted: false,
            has_compressed_pages: false,
            is_late: false,
            is_removed: false,
        }
    }

    fn info(files: Vec<StoredFile>) -> CloneInfo {
        CloneInfo {
            format: 1,
            version: "9.7.4".to_owned(),
            settings: BTreeMap::new(),
            plugins: Vec::new(),
            page_size: 16384,
            protocol: 0x103,
            has_keys: Some(false),
            files,
            redo: vec![StoredRedo { index: 0, size: 4096 }],
            patches: 0,
            empty_tables: Vec::new(),
            gtids_from: String::new(),
            gtids_to: String::new(),
            has_binlog: true,
            allows_ddl: false,
        }
    }

    fn sound() -> CloneInfo {
        info(vec![
            file(0, "ib_buffer_pool", None, u32::MAX),
            file(1, "ibdata1", Some(0), 0x4800),
            file(2, "t/a.ibd", Some(2), 0x4021),
            file(3, "/far/t/b.ibd", Some(3), 0x4421),
        ])
    }

    #[test]
    fn files_from_outside_go_where_a_server_finds_them() {
        for (name, space, flags, target) in [
            ("/far/shop/b.ibd", Some(3), 0x4421, Some("shop/b.ibd")),
            ("/far/g1.ibd", Some(4), 0x4821, Some("g1.ibd")),
            ("/far/u1.ibu", Some(FIRST_UNDO + 9), 0, Some("u1.ibu")),
            ("/far/undo_001", Some(0xffff_ffef), 0, Some("undo_001")),
            ("/ibdata1", Some(0), 0, Some("ibdata1")),
            ("/far/pool", None, u32::MAX, Some("pool")),
            // Moved there while no server ran.
            ("/far/t/x.ibd", Some(5), 0x4021, Some("t/x.ibd")),
            // Nothing tells where it belongs.
            ("/x.ibd", Some(5), 0x4421, None),
            ("/x.ibd", Some(5), 0x4021, None),
            ("/far/t/x", Some(5), 0x4021, None),
        ] {
            let layout = Layout::new(&info(vec![file(0, name, space, flags)]));
            let found = layout.ok().map(|layout| layout.files[0].target.to_string());
            assert_eq!(found.as_deref(), target, "{name}");
        }
    }

    #[test]
    fn a_file_has_a_name_that_only_data_has() {
        for (name, space) in [
            ("mysqld-auto.cnf", None),
            ("mysqld.my", None),
            ("mysqld-auto.cnf", Some(0)),
            ("component_keyring_file.cnf", Some(9)),
            ("t/a.so", Some(9)),
            ("binlog.index", Some(0)),
            ("server-key.pem", None),
            ("t/pool", None),
        ] {
            let flags = if space.is_some() { 0x4821 } else { u32::MAX };
            let error = Layout::new(&info(vec![file(0, name, space, flags)])).unwrap_err();
            assert!(error.to_string().contains("something else than data"), "{name}: {error}");
        }
        for (name, space) in [
            ("ib_buffer_pool", None),
            ("pool.dump", None),
            ("ibdata1.db", Some(0)),
            ("undo_001", Some(0xffff_ffef)),
            ("undo/u2.ibu", Some(FIRST_UNDO + 9)),
            ("sys/ibdata2", Some(0)),
            ("g.ibd", Some(4)),
        ] {
            let flags = if space.is_some() { 0 } else { u32::MAX };
            assert!(Layout::new(&info(vec![file(0, name, space, flags)])).is_ok(), "{name}");
        }
    }

    #[test]
    fn the_description_of_a_clone_is_checked() {
        assert!(Layout::new(&sound()).is_ok());
        let changes: [fn(&mut CloneInfo); 27] = [
            |info| info.format = 2,
            |info| info.page_size = 1000,
            |info| info.page_size = 2048,
            |info| info.redo.clear(),
            |info| info.redo[0].index = 1,
            |info| info.redo[0].size = u64::MAX,
            |info| info.redo[0].size = 0,
            |info| info.files[1].index = 2,
            |info| drop(info.files.remove(1)),
            |info| info.files[2].size = u64::MAX,
            |info| info.files[2].page_size = 8192,
            |info| info.files[2].page_size = 0,
            |info| info.files[2].space_flags = 0x2f,
            |info| info.files[0].page_size = 16384,
            |info| info.files[2].path = "t/b.ibd".to_owned(),
            |info| info.files[3].path = "xb_clone.outside/4".to_owned(),
            |info| (info.files[2].name, info.files[2].path) = ("../a".into(), "../a".into()),
            |info| (info.files[2].name, info.files[2].path) = ("./a".into(), "./a".into()),
            |info| {
                (info.files[2].name, info.files[2].path) = ("#ib_redo0".into(), "#ib_redo0".into())
            },
            |info| (info.files[2].name, info.files[2].path) = ("ibdata1".into(), "ibdata1".into()),
            |info| (info.files[2].name, info.files[2].path) = ("mysql".into(), "mysql".into()),
            |info| (info.files[0].name, info.files[0].path) = ("t".into(), "t".into()),
            |info| {
                (info.files[2].name, info.files[2].path) =
                    ("xb_clone.json".into(), "xb_clone.json".into())
            },
            |info| info.files[3].name = "/far/../b.ibd".to_owned(),
            |info| {
                let name = ".xb-partial/restore/clone";
                (info.files[2].name, info.files[2].path) = (name.into(), name.into());
            },
            |info| {
                let name = "backup-my.cnf";
                (info.files[0].name, info.files[0].path) = (name.into(), name.into());
            },
            // A file where a folder of a folder has to be.
            |info| {
                (info.files[0].name, info.files[0].path) = ("a".into(), "a".into());
                (info.files[2].name, info.files[2].path) = ("a/b/c.ibd".into(), "a/b/c.ibd".into());
            },
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut info = sound();
            change(&mut info);
            assert!(Layout::new(&info).is_err(), "change {number}");
        }
        // The other one of two places for one file.
        let mut info = sound();
        info.files[3].name = "/far/t/a.ibd".to_owned();
        let error = Layout::new(&info).unwrap_err().to_string();
        assert!(error.contains("t/a.ibd and /far/t/a.ibd"), "{error}");
    }

    #[test]
    fn a_patch_must_lie_where_something_belongs() {
        let layout = Layout::new(&sound()).unwrap();
        let page = |number: u32, space: u32| {
            let mut page = vec![0; 16384];
            page[4..8].copy_from_slice(&number.to_be_bytes());
            page[34..38].copy_from_slice(&space.to_be_bytes());
            page
        };
        let check = |to, offset, bytes| layout.check(&Patch { to, offset, bytes }).is_ok();
        assert!(check(PatchTarget::File(2), 16384, page(1, 2)));
        assert!(!check(PatchTarget::File(2), 16384, page(2, 2)), "another number");
        assert!(!check(PatchTarget::File(2), 16384, page(1, 3)), "another tablespace");
        assert!(!check(PatchTarget::File(2), 65536, page(4, 2)), "behind the end");
        assert!(!check(PatchTarget::File(2), 100, page(0, 2)), "between pages");
        assert!(!check(PatchTarget::File(2), 0, page(0, 2)[..512].to_vec()), "no whole page");
        assert!(!check(PatchTarget::File(0), 0, page(0, 0)), "a file without pages");
        assert!(!check(PatchTarget::File(4), 0, page(0, 2)), "no such file");
        assert!(check(PatchTarget::Redo(0), 2048, vec![1; 2048 + 512]));
        assert!(!check(PatchTarget::Redo(0), 2048, vec![1; 2048 + 513]), "behind the end");
        assert!(!check(PatchTarget::Redo(1), 0, vec![1]), "no such redo log");
        assert!(!check(PatchTarget::Redo(0), u64::MAX, vec![1]));
    }

    #[test]
    fn no_list_of_a_description_is_endless() {
        let refused = |text: &str| CloneInfo::parse(text.as_bytes()).unwrap_err().to_string();
        let long = |name: &str, item: &str, count: usize| {
            let items = vec![item; count].join(",");
            refused(&format!("{{\"{name}\": [{items}]}}"))
        };
        for (name, item) in [("redo", "{\"index\":0,\"size\":0}"), ("plugins", "[\"\",\"\"]")] {
            let error = long(name, item, MAX_SETTINGS + 1);
            assert!(error.contains("expected a list of at most"), "{error}");
        }
        let error = long("empty_tables", "\"\"", 3_000_000);
        assert!(error.contains("expected a list of at most"), "{error}");
        let settings: Vec<String> = (0..=MAX_SETTINGS).map(|n| format!("\"{n}\":\"\"")).collect();
        let error = refused(&format!("{{\"settings\": {{{}}}}}", settings.join(",")));
        assert!(error.contains("expected a map of at most"), "{error}");
    }
}
