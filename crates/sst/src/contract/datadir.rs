//! Locations of a server's files.

use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, StatxAttributes, StatxFlags, access, statx};
use xb_files::{exists, or_none};

use crate::contract::args::{Args, Product};
use crate::contract::keep_patterns::Keep;
use crate::contract::option_files::OptionFiles;

/// Kinds of files that a server can keep outside the data directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// InnoDB's system tablespace: `ibdata1`, or what `innodb-data-file-path` names.
    Data(Vec<OsString>),
    /// InnoDB's redo log.
    Redo,
    /// InnoDB's undo tablespaces.
    Undo,
    /// Aria's log.
    Aria,
    /// The binary log with this base name.
    Binlog(OsString),
    /// What the server notes of its sources as a replica, in a file with this name and in others that are named after it:
    /// `master-CONNECTION.info` and `multi-master.info` after `master.info`.
    Notes(OsString),
    /// One file with this name: a log of unfinished work, or the list of the binary log's files.
    File(OsString),
}

/// Options that name a file of [`Kind::Notes`]. On other data, a server would apply once more what they say.
const NOTES: [&str; 2] = ["master-info-file", "relay-log-info-file"];
/// Options that say where MyRocks has its data. Unless they are set, this is one directory in the data directory.
const ROCKSDB: [&str; 2] = ["rocksdb-datadir", "rocksdb-wal-dir"];

impl Kind {
    /// Returns whether the file `name`, of a backup or of such a directory, is of this kind.
    #[must_use]
    pub fn has(&self, name: &OsStr) -> bool {
        let name = name.as_bytes();
        let numbered = |prefix: &[u8], digits: usize| {
            name.strip_prefix(prefix)
                .is_some_and(|rest| rest.len() >= digits && rest.iter().all(u8::is_ascii_digit))
        };
        match self {
            Self::Data(names) if names.is_empty() => numbered(b"ibdata", 1),
            Self::Data(names) => names.iter().any(|known| known.as_bytes() == name),
            Self::Redo => numbered(b"ib_logfile", 1) || name == b"#innodb_redo",
            Self::Undo => numbered(b"undo", 1) || numbered(b"undo_", 1) || name.ends_with(b".ibu"),
            Self::Aria => name.starts_with(b"aria_log"),
            Self::Binlog(base) => {
                let rest = name.strip_prefix(base.as_bytes()).and_then(|r| r.strip_prefix(b"."));
                rest.is_some_and(|rest| {
                    let (rest, _state) = match rest.strip_suffix(b".idx") {
                        Some(rest) => (rest, true),
                        None => (rest, false),
                    };
                    matches!(rest, b"index" | b"state")
                        || (rest.len() >= 6 && rest.iter().all(u8::is_ascii_digit))
                })
            }
            Self::Notes(file) => {
                let name = name.strip_prefix(b"multi-").unwrap_or(name);
                let path = Path::new(file);
                let part =
                    |part: Option<&OsStr>| part.map(OsStr::as_bytes).unwrap_or_default().to_vec();
                let (stem, end) = (part(path.file_stem()), part(path.extension()));
                let name_of = Path::new(OsStr::from_bytes(name));
                name == file.as_bytes()
                    || name.starts_with(&[&stem[..], b"-"].concat())
                        && part(name_of.extension()) == end
            }
            Self::File(file) => name == file.as_bytes(),
        }
    }
}

impl Kind {
    /// Returns whether an entry of a directory is of this kind. Of directories, only the one of InnoDB's redo log is: any other
    /// is a schema, or not the server's, whatever its name.
    #[must_use]
    pub(crate) fn has_entry(&self, name: &OsStr, facts: &Metadata) -> bool {
        self.has(name) && (!facts.is_dir() || name == "#innodb_redo")
    }

    /// Returns whether a server has files of this kind in a directory, or can make some there. Notes need not be anywhere: a
    /// server that is no replica makes none. A directory that cannot be listed may have some.
    fn may_be_in(&self, dir: &Path) -> bool {
        if !matches!(self, Self::Notes(_) | Self::File(_))
            || access(dir, Access::WRITE_OK | Access::EXEC_OK).is_ok()
        {
            return true;
        }
        match or_none(std::fs::read_dir(dir)) {
            Ok(None) => false,
            Ok(Some(mut entries)) => {
                entries.any(|entry| entry.map_or(true, |entry| self.has(&entry.file_name())))
            }
            Err(_) => true,
        }
    }
}

/// A kind of files and its directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KindDir {
    /// Kind of the files.
    pub kind: Kind,
    /// Directory of the files.
    pub dir: PathBuf,
}

/// Where a directory is that an option names.
enum Place {
    /// Below the data directory, with which it moves: relative to it.
    Inside(PathBuf),
    /// Elsewhere, or where it stays.
    Outside(PathBuf),
}

/// Locations of all the server's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The data directory.
    pub datadir: PathBuf,
    /// Kinds with a directory below the data directory: relative to it.
    pub inside: Vec<KindDir>,
    /// Kinds with a directory elsewhere.
    pub outside: Vec<KindDir>,
    /// Kinds that options name in the data directory itself: they go with the data, whatever pattern their names match.
    pub named: Vec<Kind>,
    /// Directories in which this node's MyRocks has its data, other than the one that a backup brings, and the options that
    /// name them.
    pub rocksdb: Vec<(&'static str, PathBuf)>,
    /// Directories below the data directory, relative to it, that a backup has nothing for, and that a server needs
    /// nevertheless: without the one of `secure-file-priv` it does not start.
    pub needed: Vec<PathBuf>,
    /// All such directories, wherever they are: links in the data directory that lead to one stay.
    pub all_needed: Vec<PathBuf>,
    /// Base name of the binary log, wherever it is.
    pub binlog: Option<OsString>,
}

impl Layout {
    /// Determines the locations from the arguments and the option files. A directory that `keep` keeps in the data directory is
    /// outside: a swap moves files in it, and not the directory.
    ///
    /// # Errors
    /// If there is no data directory, or data lies on a raw device; or if it cannot be found out where file systems are mounted.
    pub fn find(args: &Args, files: &OptionFiles, keep: &Keep) -> io::Result<Self> {
        let option = |name: &str| {
            let value = args.server_option(name).or_else(|| files.server(name));
            value.filter(|value| !value.is_empty()).map(OsStr::to_owned)
        };
        let named = args.datadir.clone().or_else(|| option("datadir").map(PathBuf::from));
        let datadir = std::fs::canonicalize(named.unwrap_or_else(|| ".".into()))?;
        let mut layout = Self::plain(datadir);
        let home = option("innodb-data-home-dir").map(PathBuf::from).unwrap_or_default();
        match option("innodb-data-file-path") {
            None => layout.place(Kind::Data(Vec::new()), &home, keep)?,
            Some(specs) => {
                for path in data_files(&specs)? {
                    let path = home.join(path);
                    if let (Some(dir), Some(name)) = (path.parent(), path.file_name()) {
                        layout.place(Kind::Data(vec![name.to_owned()]), dir, keep)?;
                    }
                }
            }
        }
        for (name, kind) in [
            ("innodb-log-group-home-dir", Kind::Redo),
            ("innodb-undo-directory", Kind::Undo),
            ("aria-log-dir-path", Kind::Aria),
        ] {
            if let Some(dir) = option(name) {
                layout.place(kind, Path::new(&dir), keep)?;
            }
        }
        if let Some((dir, base)) = binlog(args, files, &option) {
            layout.binlog = Some(base.clone());
            let stays = layout.stay(dir.as_deref(), &base, keep)?;
            if let Some(dir) = dir {
                layout.place(Kind::Binlog(base), &dir, keep)?;
            }
            // The index may have its own name and directory. It names files that must not be gone.
            let index = args.binlog_index.clone().or_else(|| option("log-bin-index"));
            if let Some(index) = index.filter(|_| !stays) {
                layout.place_file(Kind::File, &index_file(index), keep)?;
            }
        }
        if let Some(index) = option("relay-log-index") {
            let log = option("relay-log").map(PathBuf::from).unwrap_or_default();
            let dir = log.parent().filter(|dir| !dir.as_os_str().is_empty());
            let base = log.file_stem().unwrap_or(OsStr::new("relay-bin"));
            let is_outside = dir.map_or(Ok(None), |dir| layout.find_place(dir, keep))?;
            let is_outside = matches!(is_outside, Some(Place::Outside(_)));
            let index = index_file(index);
            let is_here = layout.find_place(index.parent().unwrap_or(&index), keep)?.is_none();
            if is_here && !is_outside && !layout.stay(dir, base, keep)? {
                layout.place_file(Kind::File, &index, keep)?;
            }
        }
        for path in NOTES.into_iter().filter_map(option) {
            layout.place_file(Kind::Notes, Path::new(&path), keep)?;
        }
        if let Some(path) = option("log-tc") {
            layout.place_file(Kind::File, Path::new(&path), keep)?;
        }
        if let Some(path) = option("log-ddl-recovery").map(PathBuf::from) {
            // The server gives both of its files this ending, in the place of any other.
            let mut backup = path.file_stem().unwrap_or_default().to_owned();
            backup.push("-backup.log");
            for path in [path.with_extension("log"), path.with_file_name(backup), path] {
                layout.place_file(Kind::File, &path, keep)?;
            }
        }
        let usual = layout.datadir.join(rocksdb_dir(args.product));
        for name in ROCKSDB {
            let Some(dir) = option(name) else { continue };
            // Without a slash at the end, and without following a link there: a swap replaces the link.
            let dir: PathBuf = layout.datadir.join(dir).components().collect();
            let real = dir.parent().and_then(|above| std::fs::canonicalize(above).ok());
            let real = real.zip(dir.file_name()).map(|(above, name)| above.join(name));
            if real.as_ref() != Some(&usual) {
                layout.rocksdb.push((name, dir));
            }
        }
        for (name, is_file) in
            [("relay-log", true), ("relay-log-index", true), ("secure-file-priv", false)]
        {
            // For MySQL, the word NULL is no directory: nothing may be exported or imported.
            let named = option(name).filter(|value| is_file || !value.eq_ignore_ascii_case("NULL"));
            let path = named.map(PathBuf::from).unwrap_or_default();
            let dir = if is_file { path.parent() } else { Some(path.as_path()) };
            match layout.find_place(dir.unwrap_or(&path), keep)? {
                Some(Place::Inside(dir)) => {
                    layout.all_needed.push(layout.datadir.join(&dir));
                    layout.needed.push(dir);
                }
                Some(Place::Outside(dir)) => layout.all_needed.push(dir),
                None => {}
            }
        }
        Ok(layout)
    }

    /// Layout of a data directory that keeps every file inside.
    ///
    /// # Errors
    /// If the directory does not exist.
    pub fn of(datadir: &Path) -> io::Result<Self> {
        Ok(Self::plain(std::fs::canonicalize(datadir)?))
    }

    fn plain(datadir: PathBuf) -> Self {
        let (inside, outside) = (Vec::new(), Vec::new());
        let (needed, all_needed) = (Vec::new(), Vec::new());
        let (named, rocksdb) = (Vec::new(), Vec::new());
        Self { datadir, inside, outside, named, rocksdb, needed, all_needed, binlog: None }
    }

    /// Places the kind of a file with this path.
    fn place_file(
        &mut self,
        kind: impl FnOnce(OsString) -> Kind,
        path: &Path,
        keep: &Keep,
    ) -> io::Result<()> {
        match (path.parent(), path.file_name()) {
            (Some(dir), Some(name)) => self.place(kind(name.to_owned()), dir, keep),
            _ => Ok(()),
        }
    }

    /// Returns whether logs with this base name stay in the data directory, because the operator says so.
    fn stay(&self, dir: Option<&Path>, base: &OsStr, keep: &Keep) -> io::Result<bool> {
        let is_here =
            dir.map_or(Ok(true), |dir| Ok::<_, io::Error>(self.find_place(dir, keep)?.is_none()))?;
        Ok(is_here && keep.keeps(&[base.as_bytes(), b".000001"].concat(), false))
    }

    fn place(&mut self, kind: Kind, dir: &Path, keep: &Keep) -> io::Result<()> {
        match self.find_place(dir, keep)? {
            // The operator may keep a binary log.
            None if matches!(kind, Kind::Binlog(_)) => {}
            None => self.named.push(kind),
            Some(Place::Inside(dir)) => self.inside.push(KindDir { kind, dir }),
            Some(Place::Outside(dir)) if !kind.may_be_in(&dir) => {}
            Some(Place::Outside(dir)) => self.outside.push(KindDir { kind, dir }),
        }
        Ok(())
    }

    /// Returns where a directory is; `None` if it is the data directory.
    fn find_place(&self, dir: &Path, keep: &Keep) -> io::Result<Option<Place>> {
        let full = self.datadir.join(dir);
        // A directory that does not exist yet keeps its path as given.
        let full = std::fs::canonicalize(&full).unwrap_or(full);
        match full.strip_prefix(&self.datadir) {
            Ok(below) => {
                let names: PathBuf =
                    below.components().filter(|c| matches!(c, Component::Normal(_))).collect();
                let Some(first) = names.iter().next() else { return Ok(None) };
                let stays =
                    keep.keeps(first.as_bytes(), true) && exists(&self.datadir.join(first))?;
                let full = self.datadir.join(&names);
                // Files cannot be renamed across file systems, wherever these are mounted.
                let mut below = full.ancestors().take_while(|dir| *dir != self.datadir);
                if below.try_fold(stays, |any, dir| Ok::<_, io::Error>(any || is_mounted(dir)?))? {
                    Ok(Some(Place::Outside(full)))
                } else {
                    Ok(Some(Place::Inside(names)))
                }
            }
            Err(_) => Ok(Some(Place::Outside(full))),
        }
    }

    /// Returns whether the entry `name` of the data directory is, or leads to, one of the
    /// directories outside: a link, or a mounted file system. Such an entry is not data, but holds
    /// data. So is a link to a directory that the server needs.
    #[must_use]
    pub(crate) fn leads_outside(&self, name: &OsStr) -> bool {
        let path = self.datadir.join(name);
        let Ok(full) = std::fs::canonicalize(&path) else { return false };
        let holds = |dir: &Path| dir.starts_with(&full);
        self.outside.iter().any(|place| holds(&place.dir))
            || path.is_symlink() && self.all_needed.iter().any(|dir| holds(dir))
    }

    /// Returns whether an option names this entry of the data directory as a part of the data.
    #[must_use]
    pub(crate) fn is_named(&self, name: &OsStr, facts: &Metadata) -> bool {
        self.named.iter().any(|kind| kind.has_entry(name, facts))
    }

    /// The directories outside the data directory, each once.
    #[must_use]
    pub(crate) fn folders_outside(&self) -> Vec<PathBuf> {
        let mut folders: Vec<PathBuf> = Vec::new();
        for place in &self.outside {
            if !folders.contains(&place.dir) {
                folders.push(place.dir.clone());
            }
        }
        folders
    }
}

/// Returns the directory that a backup has of MyRocks.
#[must_use]
pub(crate) fn rocksdb_dir(product: Product) -> &'static str {
    match product {
        Product::MariaDb => "#rocksdb",
        Product::Percona => ".rocksdb",
    }
}

/// Returns the path of an index: the server appends an ending only to a name that has none.
fn index_file(index: OsString) -> PathBuf {
    let mut path = PathBuf::from(index);
    if path.file_name().is_some_and(|name| !name.as_bytes().contains(&b'.')) {
        path.as_mut_os_string().push(".index");
    }
    path
}

/// Returns whether `path` is a mount point; what does not exist is none.
///
/// # Errors
/// If that cannot be found out.
pub(crate) fn is_mounted(path: &Path) -> io::Result<bool> {
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    match statx(CWD, path, flags, StatxFlags::empty()) {
        Ok(stat) if stat.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) => {
            Ok(stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
        }
        // On an old kernel, a mount of the same file system is not detected.
        _ => match (or_none(path.symlink_metadata())?, path.parent()) {
            (Some(here), Some(above)) => Ok(here.dev() != above.metadata()?.dev()),
            _ => Ok(false),
        },
    }
}

/// Parses the paths in `ibdata1:12M;/more/ibdata2:10M:autoextend`.
fn data_files(specs: &OsStr) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for spec in specs.as_bytes().split(|byte| *byte == b';') {
        let mut parts = spec.trim_ascii().split(|byte| *byte == b':');
        let path = parts.next().unwrap_or_default();
        if parts.next().is_some_and(|size| size.ends_with(b"raw")) {
            let what = "innodb_data_file_path names a raw device, which a backup cannot contain";
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        }
        if !path.is_empty() {
            paths.push(OsStr::from_bytes(path).into());
        }
    }
    Ok(paths)
}

/// Returns the directory (if one is given) and the base name of the binary log, if it is enabled.
fn binlog(
    args: &Args,
    files: &OptionFiles,
    option: &impl Fn(&str) -> Option<OsString>,
) -> Option<(Option<PathBuf>, OsString)> {
    let without_value =
        args.server.iter().any(|(name, _)| name == "log-bin") || files.server_has("log-bin");
    let named = args.binlog.clone().or_else(|| option("log-bin"));
    let path = match named {
        Some(name) if !matches!(name.as_bytes(), b"0" | b"1" | b"ON" | b"OFF" | b"on" | b"off") => {
            PathBuf::from(name)
        }
        Some(off) if matches!(off.as_bytes(), b"0" | b"OFF" | b"off") => return None,
        None if !without_value => return None,
        _ => option("log-basename").map_or("mysql-bin".into(), |base| {
            let mut name = base;
            name.push("-bin");
            name.into()
        }),
    };
    // The server strips an extension.
    let base = path.file_name()?;
    let base = Path::new(base).file_stem().unwrap_or(base).to_owned();
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).map(Path::to_owned);
    Some((dir, base))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(datadir: &Path, options: &[(&str, &str)]) -> Layout {
        try_find(datadir, options).unwrap()
    }

    fn try_find(datadir: &Path, options: &[(&str, &str)]) -> io::Result<Layout> {
        let words = [
            "--role",
            "joiner",
            "--address",
            "h",
            "--datadir",
            datadir.to_str().unwrap(),
            "--mysqld-args",
        ];
        let args = Args::parse(&words.map(OsString::from)).unwrap();
        let own = |(k, v): &(&str, &str)| ("mysqld".to_owned(), (*k).to_owned(), Some((*v).into()));
        let files = OptionFiles::new(options.iter().map(own), args.product, None);
        Layout::find(&args, &files, &Keep::usual(false).unwrap())
    }

    #[test]
    fn data_files_have_a_folder_each() {
        let folder = tempfile::tempdir().unwrap();
        let data = std::fs::canonicalize(folder.path()).unwrap();
        let specs = "ibdata1:12M;/big/more/data2:10M;sub/data3:10M:autoextend:max:1G";
        let place = |name: &str, dir: &str| KindDir {
            kind: Kind::Data(vec![name.into()]),
            dir: dir.into(),
        };
        let layout = find(&data, &[("innodb_data_file_path", specs)]);
        assert_eq!(layout.inside, [place("data3", "sub")]);
        assert_eq!(layout.outside, [place("data2", "/big/more")]);
        let home = [("innodb_data_file_path", specs), ("innodb_data_home_dir", "/home")];
        let outside = [("ibdata1", "/home"), ("data2", "/big/more"), ("data3", "/home/sub")];
        assert_eq!(find(&data, &home).outside, outside.map(|(name, dir)| place(name, dir)));
        for raw in ["/dev/sda5:3Graw", "ibdata1:12M;/dev/sda5:3Gnewraw"] {
            assert!(try_find(&data, &[("innodb_data_file_path", raw)]).is_err(), "{raw}");
        }
    }

    #[test]
    fn files_named_after_a_note_are_of_its_kind() {
        let has = |file: &str, name: &str| Kind::Notes(file.into()).has(name.as_ref());
        for name in ["mi.txt", "multi-mi.txt", "mi-conn@002d@0p1.txt"] {
            assert!(has("mi.txt", name), "{name}");
        }
        for name in ["mi.info", "mine.txt", "mi-a.info", "mi.000001", "multi-x.txt", "mi-plain"] {
            assert!(!has("mi.txt", name), "{name}");
        }
        assert!(has("plain", "plain-c2") && !has("plain", "plain-c2.000001"));
    }

    #[test]
    fn directories_that_a_server_needs_are_known() {
        let [folder, other] = [0; 2].map(|_| tempfile::tempdir().unwrap());
        let elsewhere = std::fs::canonicalize(other.path()).unwrap();
        let ddl = elsewhere.join("ddl");
        let options = [
            ("relay_log", "relay/bin"),
            ("secure_file_priv", "exports"),
            ("log_tc", "tc/log"),
            ("log_ddl_recovery", ddl.to_str().unwrap()),
            // A directory that does not exist holds no notes.
            ("master_info_file", "/not/there/info"),
        ];
        let layout = find(folder.path(), &options);
        assert_eq!(layout.needed, [PathBuf::from("relay"), "exports".into()]);
        let file =
            |name: &str, dir: &Path| KindDir { kind: Kind::File(name.into()), dir: dir.into() };
        assert_eq!(layout.inside, [file("log", Path::new("tc"))]);
        let names = ["ddl.log", "ddl-backup.log", "ddl"];
        assert_eq!(layout.outside, names.map(|name| file(name, &elsewhere)));
        for none in ["", "./", "NULL", "null"] {
            let options = [("secure_file_priv", none), ("relay_log", "bin")];
            assert!(find(folder.path(), &options).needed.is_empty());
        }
    }

    #[test]
    fn the_index_of_the_binary_log_may_lie_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        // As MariaDB 10.11.19 names it: only a name without an ending gets one.
        let other = tempfile::tempdir().unwrap();
        let dir = std::fs::canonicalize(other.path()).unwrap();
        for (option, name) in [
            ("list.index", "list.index"),
            ("list", "list.index"),
            ("b.idx", "b.idx"),
            ("db1.example.com-bin", "db1.example.com-bin"),
        ] {
            let path = dir.join(option);
            let options = [("log_bin", "b"), ("log_bin_index", path.to_str().unwrap())];
            let layout = find(folder.path(), &options);
            let index = KindDir { kind: Kind::File(name.into()), dir: dir.clone() };
            assert_eq!((layout.outside, layout.binlog), (vec![index], Some("b".into())));
        }
    }

    #[test]
    fn what_options_name_in_the_data_directory_is_data_whatever_its_name_is() {
        let folder = tempfile::tempdir().unwrap();
        let data = std::fs::canonicalize(folder.path()).unwrap();
        let ddl = data.join("my.ddl");
        let options = [
            ("log_bin", "b"),
            ("log_bin_index", "list.log"),
            ("relay_log_index", "./relay.err"),
            ("master_info_file", "master.log"),
            ("log_tc", ".tc"),
            ("log_ddl_recovery", ddl.to_str().unwrap()),
            ("innodb_data_file_path", "system.log:12M"),
        ];
        std::fs::write(data.join("any"), "").unwrap();
        let facts = data.join("any").metadata().unwrap();
        let is_named = |options: &[(&str, &str)], name: &str| {
            find(&data, options).is_named(name.as_ref(), &facts)
        };
        for name in [
            "list.log",
            "relay.err",
            "master.log",
            "master-c2.log",
            ".tc",
            "my.log",
            "my-backup.log",
            "system.log",
        ] {
            assert!(is_named(&options, name), "{name}");
            assert!(!is_named(&[("log_bin", "b")], name), "{name}");
        }
        for name in ["slow.log", "my-slow.log", "b.000001", ".my.cnf"] {
            assert!(!is_named(&options, name), "{name}");
        }
        // The index of relay logs that stay elsewhere names files that are there.
        let options = [("relay_log", "/elsewhere/r"), ("relay_log_index", "r.log")];
        assert!(!is_named(&options, "r.log"));
    }

    /// The received data is in this directory, and this node's server reads others.
    #[test]
    fn directories_of_myrocks_elsewhere_are_known() {
        let folder = tempfile::tempdir().unwrap();
        let data = std::fs::canonicalize(folder.path()).unwrap();
        std::os::unix::fs::symlink(&data, data.join("here")).unwrap();
        let usual = data.join("#rocksdb/");
        for dir in ["#rocksdb", "./#rocksdb/", usual.to_str().unwrap(), "here/#rocksdb", ""] {
            let options = [("loose_rocksdb_datadir", dir), ("rocksdb_wal_dir", dir)];
            assert!(find(&data, &options).rocksdb.is_empty(), "{dir}");
        }
        std::os::unix::fs::symlink("/ssd", data.join("#rocksdb")).unwrap();
        for dir in ["/ssd", "rocks", "/ssd/..", "/none/there/#rocksdb"] {
            let layout = find(&data, &[("rocksdb_datadir", "#rocksdb"), ("rocksdb_wal_dir", dir)]);
            assert_eq!(layout.rocksdb, [("rocksdb-wal-dir", data.join(dir))], "{dir}");
        }
    }

    #[test]
    fn a_folder_behind_a_link_is_outside_and_its_link_is_known() {
        let scratch = tempfile::tempdir().unwrap();
        let base = std::fs::canonicalize(scratch.path()).unwrap();
        let data = base.join("data");
        for dir in ["data/shop", "fast/redo", "other"] {
            std::fs::create_dir_all(base.join(dir)).unwrap();
        }
        std::os::unix::fs::symlink("../fast/redo", data.join("redo")).unwrap();
        std::os::unix::fs::symlink("../other", data.join("linked")).unwrap();
        let layout = find(&data, &[("innodb_log_group_home_dir", "./redo")]);
        assert_eq!(layout.folders_outside(), [base.join("fast/redo")]);
        assert!(layout.leads_outside("redo".as_ref()));
        for name in ["shop", "linked", "none"] {
            assert!(!layout.leads_outside(name.as_ref()), "{name}");
        }
    }

    #[test]
    fn mounts_are_seen() {
        let folder = tempfile::tempdir().unwrap();
        assert!(is_mounted("/proc".as_ref()).unwrap() && !is_mounted(folder.path()).unwrap());
        assert!(!is_mounted(&folder.path().join("none")).unwrap());
        // An error is no absence.
        let looped = folder.path().join("loop");
        std::os::unix::fs::symlink("loop", &looped).unwrap();
        assert!(is_mounted(&looped.join("below")).is_err());
    }

    #[test]
    fn folders_are_distinguished() {
        let folder = tempfile::tempdir().unwrap();
        let data = std::fs::canonicalize(folder.path()).unwrap();
        let layout = find(
            &data,
            &[
                ("innodb_log_group_home_dir", "/elsewhere/redo"),
                ("innodb_undo_directory", "undo"),
                ("innodb_data_home_dir", data.to_str().unwrap()),
                ("aria_log_dir_path", "./"),
                ("log_bin", "/elsewhere/redo/binlog"),
            ],
        );
        assert_eq!(layout.inside, [KindDir { kind: Kind::Undo, dir: "undo".into() }]);
        let binlog = KindDir { kind: Kind::Binlog("binlog".into()), dir: "/elsewhere/redo".into() };
        assert_eq!(
            layout.outside,
            [KindDir { kind: Kind::Redo, dir: "/elsewhere/redo".into() }, binlog]
        );
        assert_eq!(layout.folders_outside(), [PathBuf::from("/elsewhere/redo")]);
        assert_eq!(layout.binlog, Some("binlog".into()));
        let plain = find(&data, &[]);
        assert_eq!((plain.inside, plain.outside, plain.binlog), (vec![], vec![], None));
    }

    #[test]
    fn files_are_of_their_kind() {
        let binlog = Kind::Binlog("node-bin".into());
        let data = Kind::Data(vec!["ibdata1".into(), "big2".into()]);
        for (kind, yes, no) in [
            (
                &Kind::Data(vec![]),
                &["ibdata1", "ibdata12"][..],
                &["ibdata", "ibdata1.x", "shop"][..],
            ),
            (&data, &["ibdata1", "big2"], &["ibdata2"]),
            (
                &Kind::Redo,
                &["ib_logfile0", "ib_logfile101", "#innodb_redo"],
                &["ib_buffer_pool", "ib_logfile"],
            ),
            (&Kind::Undo, &["undo001", "undo_002", "my.ibu"], &["undo", "undone"]),
            (&Kind::Aria, &["aria_log.00000001", "aria_log_control"], &["aria"]),
            (
                &binlog,
                &["node-bin.000001", "node-bin.index", "node-bin.state", "node-bin.000001.idx"],
                &["node-bin", "node-bin.x", "node-binx.000001"],
            ),
        ] {
            for name in yes {
                assert!(kind.has(name.as_ref()), "{kind:?} {name}");
            }
            for name in no {
                assert!(!kind.has(name.as_ref()), "{kind:?} {name}");
            }
        }
    }

    #[test]
    fn the_binary_log_has_a_name() {
        let folder = tempfile::tempdir().unwrap();
        for (options, expected) in [
            (&[("log-bin", "b.log")][..], Some("b")),
            (&[("log-bin", "ON"), ("log-basename", "n")], Some("n-bin")),
            (&[("log-bin", "OFF")], None),
            (&[("log-basename", "n")], None),
        ] {
            assert_eq!(
                find(folder.path(), options).binlog,
                expected.map(Into::into),
                "{options:?}"
            );
        }
    }
}
