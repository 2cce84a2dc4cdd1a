//! Estimate of the amount of data to send, and where it is.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::contract::args::Product;
use crate::contract::datadir::{Kind, KindDir, Layout, rocksdb_dir};
use crate::contract::link_file::read_link;
use crate::offer::Places;
use crate::swap::WORK_DIR;

/// Endings of the files that a backup has of a schema.
const ENDINGS: [&str; 16] = [
    "ibd", "frm", "MYD", "MYI", "MAD", "MAI", "MRG", "CSV", "CSM", "ARZ", "ARM", "TRG", "TRN",
    "par", "opt", "sdi",
];

/// Directories that a backup has of MyRocks, of MariaDB and of Percona.
const ROCKSDB: [&str; 2] = ["#rocksdb", ".rocksdb"];

/// Approximate size of the data.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Size {
    /// Bytes in files.
    pub bytes: u64,
    /// Bytes on disk; fewer if files have holes.
    pub disk: u64,
    /// Files that a joiner may keep elsewhere, and the redo log, which is not in `bytes` and `disk`.
    pub places: Places,
}

impl Size {
    fn add(&mut self, metadata: &Metadata) {
        self.bytes = self.bytes.saturating_add(metadata.len());
        self.disk = self.disk.saturating_add(on_disk(metadata));
    }

    /// Adds a file without a directory above it in the backup.
    fn add_top(&mut self, name: &OsStr, metadata: &Metadata) {
        self.add(metadata);
        if let Some(name) = name.to_str() {
            add_to(&mut self.places.files, name, metadata);
        }
    }

    /// Adds a tablespace that is outside the data directory.
    fn add_linked(&mut self, link: &Path) {
        let Ok(file) = read_link(link) else { return };
        let (Some(dir), Ok(metadata)) = (file.parent().and_then(Path::to_str), file.metadata())
        else {
            return;
        };
        self.add(&metadata);
        add_to(&mut self.places.dirs, dir, &metadata);
    }
}

fn on_disk(metadata: &Metadata) -> u64 {
    metadata.blocks().saturating_mul(512)
}

fn add_to(sizes: &mut BTreeMap<String, u64>, name: &str, metadata: &Metadata) {
    let size = sizes.entry(name.to_owned()).or_default();
    *size = size.saturating_add(on_disk(metadata));
}

/// Adds up the files that a backup of this server would contain, also behind links, which backup programs follow. Unreadable
/// files are not counted.
#[must_use]
pub(crate) fn estimate(layout: &Layout, product: Product) -> Size {
    let mut size = sum(layout, true);
    // A backup has one directory of them, wherever they are.
    for (_, folder) in &layout.rocksdb {
        for (_, metadata) in files_of(folder) {
            size.add(&metadata);
            add_to(&mut size.places.files, rocksdb_dir(product), &metadata);
        }
    }
    size
}

/// Adds up files of the data. What is behind a link does not move with it.
fn sum(layout: &Layout, follows_links: bool) -> Size {
    let mut size = Size::default();
    let links = follows_links.then_some(layout.datadir.as_path());
    walk(&layout.datadir, 0, links, &mut |path, depth, metadata| {
        let name = path.file_name().unwrap_or_default();
        // The data directory itself also holds logs, caches and the like.
        match depth {
            0 if is_data(name) => size.add_top(name, metadata),
            0 => {}
            1 if path.extension() == Some(OsStr::new("isl")) => size.add_linked(path),
            _ if is_inside(layout, path) => size.add_top(name, metadata),
            _ if is_of_table(path) => {
                size.add(metadata);
                // A joiner whose MyRocks has its data elsewhere needs to know.
                let of_rocksdb = |dir: &&&str| path.parent() == Some(&*layout.datadir.join(dir));
                if let Some(dir) = ROCKSDB.iter().find(of_rocksdb) {
                    add_to(&mut size.places.files, dir, metadata);
                }
            }
            // Of no backup, and of no swap: logs, a gcache or temporary files in a directory of their own.
            _ => {}
        }
    });
    for folder in layout.folders_outside() {
        for (name, metadata) in files_of(&folder) {
            if is_data(&name) || is_of_data_kind(layout, &folder, &name) {
                size.add_top(&name, &metadata);
            }
        }
    }
    size.places.redo = redo(layout);
    size
}

/// Returns the space that data of this layout takes on disk where a swap has it in the directory `part`, in bytes.
#[must_use]
pub(crate) fn disk_of(layout: &Layout, part: PathBuf) -> u64 {
    sum(&Layout { datadir: part, outside: Vec::new(), ..layout.clone() }, false).disk
}

/// Returns the space that the data in each directory of the layout takes on disk, in bytes: what a
/// swap would move out there.
#[must_use]
pub(crate) fn by_folder(layout: &Layout) -> Vec<(PathBuf, u64)> {
    let own = sum(&Layout { outside: Vec::new(), ..layout.clone() }, false);
    let linked = own.places.dirs.values().fold(0, |sum: u64, disk| sum.saturating_add(*disk));
    let mut folders = vec![(layout.datadir.clone(), own.disk.saturating_sub(linked))];
    for folder in layout.folders_outside() {
        let of_kind = |name: &OsStr| {
            layout.outside.iter().any(|place| place.dir == folder && place.kind.has(name))
        };
        let files = files_of(&folder);
        let sizes = files.iter().filter(|(name, _)| of_kind(name)).map(|(_, m)| on_disk(m));
        let disk = sizes.fold(0, u64::saturating_add);
        folders.push((folder, disk));
    }
    folders
}

/// Returns the size of the redo log in bytes.
fn redo(layout: &Layout) -> u64 {
    let is_redo = |place: &&KindDir| place.kind == Kind::Redo;
    let inside = layout.inside.iter().find(is_redo).map(|place| layout.datadir.join(&place.dir));
    let outside = layout.outside.iter().find(is_redo).map(|place| place.dir.clone());
    let dir = inside.or(outside).unwrap_or_else(|| layout.datadir.clone());
    let files = files_of(&dir).into_iter().filter(|(name, _)| Kind::Redo.has(name));
    let all = files.chain(files_of(&dir.join("#innodb_redo")));
    all.map(|(_, metadata)| metadata.len()).fold(0, u64::saturating_add)
}

/// Returns whether the system tablespace or the like is configured to be in this directory under this name.
fn is_of_data_kind(layout: &Layout, folder: &Path, name: &OsStr) -> bool {
    layout.outside.iter().any(|place| place.dir == folder && is_data_of(&place.kind, name))
}

/// As [`is_of_data_kind`], in a directory of its own below the data directory.
fn is_inside(layout: &Layout, path: &Path) -> bool {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return false };
    let is_of = |place: &KindDir| {
        folder == layout.datadir.join(&place.dir) && is_data_of(&place.kind, name)
    };
    layout.inside.iter().any(is_of)
}

fn is_data_of(kind: &Kind, name: &OsStr) -> bool {
    matches!(kind, Kind::Data(_) | Kind::Undo | Kind::Aria) && kind.has(name)
}

fn is_data(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let prefixes: [&[u8]; 3] = [b"ibdata", b"undo", b"aria_log"];
    prefixes.iter().any(|p| name.starts_with(p))
        || name.ends_with(b".ibd")
        || name.ends_with(b".ibu")
}

/// Returns whether a file in a directory of the data directory is of a table, by its ending; all are, of MyRocks.
fn is_of_table(path: &Path) -> bool {
    let ending = path.extension().and_then(OsStr::to_str).unwrap_or_default();
    let is_of_rocksdb = |folder: &Path| ROCKSDB.iter().any(|name| folder.ends_with(name));
    ENDINGS.contains(&ending) || path.parent().is_some_and(is_of_rocksdb)
}

fn files_of(folder: &Path) -> Vec<(std::ffi::OsString, Metadata)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| Some((entry.file_name(), entry.metadata().ok()?)));
    files.filter(|(_, metadata)| metadata.is_file()).collect()
}

/// Calls `each` for every file, with its depth. Links are followed if `links` is given, the data directory: except those that
/// lead back to it.
fn walk(
    folder: &Path,
    depth: u32,
    links: Option<&Path>,
    each: &mut impl FnMut(&Path, u32, &Metadata),
) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(mut metadata) = entry.metadata() else { continue };
        if metadata.is_symlink() {
            let followed = links.and_then(|datadir| {
                let to = std::fs::canonicalize(&path).ok()?;
                (!datadir.starts_with(&to)).then(|| to.metadata().ok())?
            });
            let Some(facts) = followed else { continue };
            metadata = facts;
        }
        let name = entry.file_name();
        if metadata.is_file() {
            each(&path, depth, &metadata);
        } else if metadata.is_dir() && depth < 2 && name != WORK_DIR && name != "#innodb_redo" {
            walk(&path, depth + 1, links, each);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(path: &Path, len: usize) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, vec![1; len]).unwrap();
    }

    #[test]
    fn data_counts_and_the_rest_does_not() {
        let folder = tempfile::tempdir().unwrap();
        for (name, len) in [
            ("ibdata1", 1000),
            ("galera.cache", 10_000),
            ("shop/t.ibd", 300),
            ("shop/t.MYD", 20),
            ("#rocksdb/000012.sst", 3),
            (".rocksdb/000012.sst", 4),
            ("gcache/galera.cache", 7000),
            ("tmp/ibXYZ", 4000),
            ("#sql-xb/.old/shop/t.ibd", 5000),
            ("ib_logfile0", 9000),
        ] {
            put(&folder.path().join(name), len);
        }
        let datadir = folder.path().to_owned();
        let layout = Layout::of(&datadir).unwrap();
        let size = estimate(&layout, Product::MariaDb);
        assert_eq!((size.bytes, size.places.redo), (1327, 9000));
        assert!(size.disk > 0);
    }

    /// Backup programs follow them, and a joiner receives plain files. On the joiner, what is behind a link is not removed.
    #[test]
    fn data_behind_links_is_sent_and_is_not_freed() {
        let folder = tempfile::tempdir().unwrap();
        let [data, far] = ["data", "far"].map(|name| folder.path().join(name));
        put(&data.join("plain/t.ibd"), 5000);
        put(&far.join("shop/t.ibd"), 5000);
        put(&far.join("t.MYD"), 5000);
        put(&far.join("ibdata1"), 5000);
        put(&far.join("etc/x.conf"), 5000);
        let link = |to: &Path, from: &str| std::os::unix::fs::symlink(to, data.join(from)).unwrap();
        link("../far/shop".as_ref(), "shop");
        link(&far.join("t.MYD"), "plain/t.MYD");
        link(&far.join("ibdata1"), "ibdata1");
        link(&far.join("etc"), "etc");
        link(".".as_ref(), "again");
        link("none".as_ref(), "loose");
        let layout = Layout::of(&data).unwrap();
        let size = estimate(&layout, Product::MariaDb);
        assert_eq!(size.bytes, 20_000);
        let disk = std::fs::metadata(far.join("ibdata1")).unwrap().blocks() * 512;
        assert_eq!(size.places.files, [("ibdata1".to_owned(), disk)].into());
        assert_eq!(size.disk, 4 * disk);
        assert_eq!(by_folder(&layout), [(layout.datadir.clone(), disk)]);
        assert_eq!(disk_of(&layout, layout.datadir.clone()), disk);
    }

    #[test]
    fn data_of_myrocks_counts_wherever_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let [data, ssd, wal] = ["data", "ssd", "wal"].map(|name| folder.path().join(name));
        put(&data.join("#rocksdb/000012.sst"), 5000);
        put(&ssd.join("000013.sst"), 5000);
        put(&wal.join("000014.log"), 5000);
        let disk = std::fs::metadata(ssd.join("000013.sst")).unwrap().blocks() * 512;
        let of = |dirs: &[(&'static str, &PathBuf)]| {
            let rocksdb = dirs.iter().map(|(option, dir)| (*option, (*dir).clone())).collect();
            let layout = Layout { rocksdb, ..Layout::of(&data).unwrap() };
            (estimate(&layout, Product::MariaDb).places.files, disk_of(&layout, data.clone()))
        };
        assert_eq!(of(&[]), ([("#rocksdb".to_owned(), disk)].into(), disk));
        let elsewhere = [("rocksdb-datadir", &ssd), ("rocksdb-wal-dir", &wal)];
        assert_eq!(of(&elsewhere), ([("#rocksdb".to_owned(), 3 * disk)].into(), disk));
    }

    #[test]
    fn data_in_directories_of_its_own_below_the_data_directory_counts() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().to_owned();
        let inside = [
            (Kind::Data(vec!["system".into()]), "home"),
            (Kind::Undo, "undo"),
            (Kind::Aria, "aria"),
            (Kind::Redo, "redo"),
        ];
        let inside = inside.map(|(kind, dir)| KindDir { kind, dir: dir.into() }).to_vec();
        for part in [data.clone(), data.join("#sql-xb/.old")] {
            for name in ["home/system", "undo/undo001", "aria/aria_log.00000001"] {
                put(&part.join(name), 5000);
            }
            for name in ["home/strangers", "redo/ib_logfile0", "logs/undo001"] {
                put(&part.join(name), 5000);
            }
        }
        let layout = Layout { inside, ..Layout::of(&data).unwrap() };
        let size = estimate(&layout, Product::MariaDb);
        assert_eq!(size.bytes, 15_000);
        let disk = std::fs::metadata(data.join("home/system")).unwrap().blocks() * 512;
        let names = ["aria_log.00000001", "system", "undo001"];
        let files = names.iter().map(|name| ((*name).to_owned(), disk)).collect();
        assert_eq!(size.places.files, files);
        assert_eq!(disk_of(&layout, data.join("#sql-xb/.old")), 3 * disk);
        assert_eq!(disk_of(&layout, data.join("none")), 0);
    }

    #[test]
    fn data_that_a_joiner_may_keep_elsewhere_is_stated() {
        let folder = tempfile::tempdir().unwrap();
        let [data, home, far] = ["data", "home", "far/shop"].map(|name| folder.path().join(name));
        put(&data.join("undo001"), 5000);
        put(&data.join("shop/t.ibd"), 5000);
        put(&home.join("system"), 5000);
        put(&home.join("strangers"), 5000);
        put(&far.join("r.ibd"), 5000);
        std::fs::write(data.join("shop/r.isl"), far.join("r.ibd").to_str().unwrap()).unwrap();
        let kind = Kind::Data(vec!["system".into()]);
        let outside = vec![KindDir { kind, dir: home.clone() }];
        let layout = Layout { outside, ..Layout::of(&data).unwrap() };
        let size = estimate(&layout, Product::MariaDb);
        assert_eq!(size.bytes, 20_000);
        let disk = std::fs::metadata(home.join("system")).unwrap().blocks() * 512;
        let sizes = |names: &[&str]| names.iter().map(|n| ((*n).to_owned(), disk)).collect();
        assert_eq!(size.places.files, sizes(&["system", "undo001"]));
        assert_eq!(size.places.dirs, sizes(&[far.to_str().unwrap()]));
        assert_eq!(size.disk, 4 * disk);
        let link = std::fs::metadata(data.join("shop/r.isl")).unwrap().blocks() * 512;
        assert!(link < disk);
        assert_eq!(by_folder(&layout), [(data, 2 * disk), (home, disk)]);
    }
}
