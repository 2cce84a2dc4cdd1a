//! Where a server keeps which of its files.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

use crate::args::Args;
use crate::files::OptionFiles;

/// Kinds of files that a server can be told to keep elsewhere.
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
    /// The binary log under this base name.
    Binlog(OsString),
}

impl Kind {
    /// Whether the file `name` of a backup, or of such a folder, is of this kind.
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
        }
    }
}

/// A kind of files and the folder for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Which files.
    pub kind: Kind,
    /// The folder.
    pub dir: PathBuf,
}

/// Where everything is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The data directory.
    pub datadir: PathBuf,
    /// Kinds with a folder below the data directory: relative to it.
    pub inside: Vec<Place>,
    /// Kinds with a folder elsewhere.
    pub outside: Vec<Place>,
    /// Base name of the binary log, wherever it is.
    pub binlog: Option<OsString>,
}

impl Layout {
    /// Finds out from what the server and its option files say.
    ///
    /// # Errors
    /// When there is no data directory.
    pub fn find(args: &Args, files: &OptionFiles) -> io::Result<Self> {
        let option = |name: &str| {
            let value = args.server_option(name).or_else(|| files.server(name));
            value.filter(|value| !value.is_empty()).map(OsStr::to_owned)
        };
        let named = args.datadir.clone().or_else(|| option("datadir").map(PathBuf::from));
        let datadir = std::fs::canonicalize(named.unwrap_or_else(|| ".".into()))?;
        let names =
            option("innodb-data-file-path").map(|path| data_files(&path)).unwrap_or_default();
        let mut layout = Self { datadir, inside: Vec::new(), outside: Vec::new(), binlog: None };
        for (name, kind) in [
            ("innodb-data-home-dir", Kind::Data(names)),
            ("innodb-log-group-home-dir", Kind::Redo),
            ("innodb-undo-directory", Kind::Undo),
            ("aria-log-dir-path", Kind::Aria),
        ] {
            if let Some(dir) = option(name) {
                layout.place(kind, Path::new(&dir));
            }
        }
        if let Some((dir, base)) = binlog(args, files, &option) {
            layout.binlog = Some(base.clone());
            if let Some(dir) = dir {
                layout.place(Kind::Binlog(base), &dir);
            }
        }
        Ok(layout)
    }

    /// A data directory without anything elsewhere.
    ///
    /// # Errors
    /// When it is not there.
    pub fn of(datadir: &Path) -> io::Result<Self> {
        let datadir = std::fs::canonicalize(datadir)?;
        Ok(Self { datadir, inside: Vec::new(), outside: Vec::new(), binlog: None })
    }

    fn place(&mut self, kind: Kind, dir: &Path) {
        let full = self.datadir.join(dir);
        // A folder that is not there yet is what it says.
        let full = std::fs::canonicalize(&full).unwrap_or(full);
        match full.strip_prefix(&self.datadir) {
            Ok(below) => {
                let names: PathBuf =
                    below.components().filter(|c| matches!(c, Component::Normal(_))).collect();
                if names.as_os_str().is_empty() {
                    return;
                }
                self.inside.push(Place { kind, dir: names });
            }
            Err(_) => self.outside.push(Place { kind, dir: full }),
        }
    }

    /// The folders outside the data directory, each once.
    #[must_use]
    pub fn folders_outside(&self) -> Vec<PathBuf> {
        let mut folders: Vec<PathBuf> = Vec::new();
        for place in &self.outside {
            if !folders.contains(&place.dir) {
                folders.push(place.dir.clone());
            }
        }
        folders
    }
}

/// The names in `ibdata1:12M;more/ibdata2:10M:autoextend`.
fn data_files(path: &OsStr) -> Vec<OsString> {
    let names = path.as_bytes().split(|byte| *byte == b';');
    names
        .filter_map(|spec| spec.split(|byte| *byte == b':').next())
        .filter_map(|name| name.rsplit(|byte| *byte == b'/').next())
        .filter(|name| !name.is_empty())
        .map(|name| OsString::from_vec(name.to_vec()))
        .collect()
}

/// Folder (where one was named) and base name of the binary log, if there is one.
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
    // The server takes an extension away.
    let base = path.file_name()?;
    let base = Path::new(base).file_stem().unwrap_or(base).to_owned();
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).map(Path::to_owned);
    Some((dir, base))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(datadir: &Path, options: &[(&str, &str)]) -> Layout {
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
        Layout::find(&args, &OptionFiles::new(options.iter().map(own), None)).unwrap()
    }

    #[test]
    fn folders_are_told_apart() {
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
        assert_eq!(layout.inside, [Place { kind: Kind::Undo, dir: "undo".into() }]);
        let binlog = Place { kind: Kind::Binlog("binlog".into()), dir: "/elsewhere/redo".into() };
        assert_eq!(
            layout.outside,
            [Place { kind: Kind::Redo, dir: "/elsewhere/redo".into() }, binlog]
        );
        assert_eq!(layout.folders_outside(), [PathBuf::from("/elsewhere/redo")]);
        assert_eq!(layout.binlog, Some("binlog".into()));
        let plain = find(&data, &[]);
        assert_eq!((plain.inside, plain.outside, plain.binlog), (vec![], vec![], None));
    }

    #[test]
    fn files_are_of_their_kind() {
        let binlog = Kind::Binlog("node-bin".into());
        let data = Kind::Data(data_files("ibdata1:12M;/raw/big2:10M:autoextend".as_ref()));
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
