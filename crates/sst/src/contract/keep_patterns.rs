//! The entries of its data directory that a joiner keeps in the swap: `cpat`.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use regex::bytes::{Regex, RegexBuilder};

/// Entries that always stay: those of this program, of the file system, of Galera and of a running
/// server; see also [`is_always`].
const ALWAYS: [&str; 6] =
    ["#sql-xb", "lost+found", "grastate.dat", "gvwstate.dat", "galera.cache", "sst_in_progress"];
/// The directory of MyRocks in Percona's server, and in early versions of MariaDB's.
const ROCKSDB: &[u8] = b".rocksdb";
/// Logs that never stay, because they belong to the data: a server would apply them to other data.
const NEVER: [&str; 3] = ["tc.log", "ddl_recovery.log", "ddl_recovery-backup.log"];

/// Default of MariaDB's stock script: files that certificates, Galera, a log or an upgrade need. A schema may have such a name.
const DEFAULT: &str = r"\.pem$|galera\.cache$|sst_in_progress$|\.sst$|gvwstate\.dat$|grastate\.dat$|\.err$|\.log$|RPM_UPGRADE_MARKER$|RPM_UPGRADE_HISTORY$|wsrep_sst\.pid$";
/// Additions of Percona's stock script, and the file in which a server finds its keyring component.
const PERCONA: &str =
    r"|/mysqld\.my$|init\.ok$|wsrep_state\.dat$|/(mysql-|component_)?keyring[^/]*$";

/// Longest accepted pattern, in bytes.
const MAX: usize = 4096;

/// Decides by name which entries stay.
#[derive(Debug, Clone)]
pub struct Keep {
    pattern: Regex,
    /// Whether it is a default, which means no schemas.
    is_usual: bool,
    /// The paths of the data directory, without a trailing slash.
    datadir: Vec<PathBuf>,
    /// Single names, such as sockets, pid files and logs, and the options that name them or what is in them.
    names: Vec<(Vec<u8>, String)>,
}

/// The pattern is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cpat is not a regular expression: {0}")]
pub struct BadPattern(String);

impl Keep {
    /// The default of MariaDB's script, or with `percona` of Percona's.
    ///
    /// # Errors
    /// Never: the pattern is a constant.
    pub fn usual(percona: bool) -> Result<Self, BadPattern> {
        let pattern = if percona { format!("{DEFAULT}{PERCONA}") } else { DEFAULT.to_owned() };
        Self::compile(&format!("(?:{pattern})"), true)
    }

    /// A pattern set by the operator, as the stock script passes it to `find -regex`: in the Emacs
    /// dialect, for a whole path that begins with the data directory.
    ///
    /// # Errors
    /// [`BadPattern`].
    pub fn pattern(text: &str) -> Result<Self, BadPattern> {
        if text.len() > MAX {
            return Err(BadPattern(format!("longer than {MAX} bytes")));
        }
        Self::compile(&format!("^(?:{})$", from_emacs(text)), false)
    }

    fn compile(pattern: &str, is_usual: bool) -> Result<Self, BadPattern> {
        let pattern = RegexBuilder::new(pattern).unicode(false).build();
        let pattern = pattern.map_err(|error| BadPattern(error.to_string()))?;
        Ok(Self { pattern, is_usual, datadir: Vec::new(), names: Vec::new() })
    }

    /// Sets the data directory: patterns and paths may begin with it.
    pub fn within(&mut self, datadir: &Path) {
        // Normalized: without trailing slashes, and with links resolved.
        let plain: PathBuf = datadir.components().collect();
        self.datadir.extend(std::fs::canonicalize(datadir).ok().filter(|real| *real != plain));
        self.datadir.push(plain);
    }

    /// Keeps the entry that is this file or contains it, if it is in the data directory. `option` names the file.
    pub fn also(&mut self, path: &Path, option: &str) {
        let inside = if path.is_absolute() {
            self.datadir.iter().find_map(|datadir| path.strip_prefix(datadir).ok())
        } else {
            Some(path)
        };
        let first = inside.and_then(|path| {
            path.components().find(|component| !matches!(component, Component::CurDir))
        });
        if let Some(Component::Normal(name)) = first {
            self.names.push((name.as_bytes().to_vec(), option.to_owned()));
        }
    }

    /// As [`Keep::also`], of the file to which links in the path lead, from elsewhere or from another entry.
    pub(crate) fn also_behind_links(&mut self, path: &Path, option: &str) {
        let real = self.datadir.iter().find_map(|datadir| datadir.join(path).canonicalize().ok());
        if let Some(real) = real {
            self.also(&real, option);
        }
    }

    /// Returns the option for which the entry `name` of the data directory stays, if there is one.
    #[must_use]
    pub(crate) fn option(&self, name: &[u8]) -> Option<&str> {
        self.names.iter().find(|(kept, _)| kept == name).map(|(_, option)| option.as_str())
    }

    /// Returns whether the entry `name` of the data directory stays: a directory, or a file. A schema stays only if the operator
    /// or an option names it.
    #[must_use]
    pub fn keeps(&self, name: &[u8], is_dir: bool) -> bool {
        if NEVER.iter().any(|never| never.as_bytes() == name) {
            return false;
        }
        // Existing patterns begin with `.*` for the path before the name, with a slash, or with the
        // data directory.
        let below = |folder: &[u8]| [folder, b"/", name].concat();
        let mut paths = self.datadir.iter().map(|folder| below(folder.as_os_str().as_bytes()));
        let is_named = self.pattern.is_match(&below(b"."))
            || self.pattern.is_match(name)
            || paths.any(|path| self.pattern.is_match(&path));
        self.option(name).is_some()
            || is_named && !self.is_usual
            || (is_named || is_always(name)) && !(is_dir && self.may_be_schema(name))
    }

    /// Returns whether the directory `name` of the data directory, or of a backup, may be a schema. Servers encode all but
    /// letters, digits and `_` in names of schemas.
    fn may_be_schema(&self, name: &[u8]) -> bool {
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_@".contains(byte);
        if !name.iter().all(is_plain) {
            return false;
        }
        let Some(datadir) = self.datadir.last() else { return true };
        let entries = match std::fs::read_dir(datadir.join(OsStr::from_bytes(name))) {
            Ok(entries) => entries,
            // No server has a schema in a directory that it cannot list.
            Err(error) => return error.kind() == ErrorKind::NotFound,
        };
        let mut is_empty = true;
        for entry in entries.flatten() {
            is_empty = false;
            if entry.metadata().is_ok_and(|facts| is_of_schema(&entry.file_name(), &facts)) {
                return true;
            }
        }
        is_empty
    }
}

/// Returns whether a file shows that its directory is a schema's. Temporary tables have names that begin with `#`, and the backup
/// program sends an empty `db.opt` for any directory.
pub(crate) fn is_of_schema(name: &OsStr, facts: &Metadata) -> bool {
    let ending = Path::new(name).extension().and_then(OsStr::to_str).unwrap_or_default();
    facts.is_file()
        && !name.as_bytes().starts_with(b"#")
        && (["frm", "ibd", "sdi"].contains(&ending) || name == "db.opt" && facts.len() > 0)
}

fn is_always(name: &[u8]) -> bool {
    ALWAYS.iter().any(|kept| kept.as_bytes() == name)
        || name.starts_with(b"gcache.page.")
        // The data directory is the home of the server's user, who may have keys and logins there. Ours are of a restore.
        || name.starts_with(b".") && !name.starts_with(b".xb") && name != ROCKSDB
        || name.ends_with(b".err")
        || name.ends_with(b".pid")
}

/// Converts from the Emacs dialect, which writes `\|`, `\(` and `\)` for the usual operators.
fn from_emacs(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(special @ ('|' | '(' | ')')) => out.push(special),
                Some(other) => out.extend(['\\', other]),
                None => out.push_str("\\\\"),
            },
            '|' | '(' | ')' | '{' | '}' => out.extend(['\\', character]),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_usual_names_stay() {
        let keep = Keep::usual(false).unwrap();
        for name in [
            "#sql-xb",
            "lost+found",
            "galera.cache",
            "grastate.dat",
            "gvwstate.dat",
            "ca.pem",
            "host.err",
            "slow.log",
            "xbrs.backup.log",
        ] {
            assert!(keep.keeps(name.as_bytes(), false), "{name}");
        }
        for name in [
            "ibdata1",
            "mysql",
            "ib_logfile0",
            "aria_log_control",
            "aria_log.00000001",
            "binlog.000001",
            "shop",
            "undo001",
            "auto.cnf",
            ".rocksdb",
        ] {
            assert!(!keep.keeps(name.as_bytes(), false), "{name}");
        }
        let percona = Keep::usual(true).unwrap();
        for name in [
            "wsrep_state.dat",
            "init.ok",
            "component_keyring_file.cnf",
            "component_keyring_file.config",
            "mysqld.my",
        ] {
            assert!(percona.keeps(name.as_bytes(), false), "{name}");
        }
        assert!(!percona.keeps(b"ibdata1", false));
    }

    #[test]
    fn patterns_of_the_operator_are_in_emacs_dialect() {
        let mut keep = Keep::pattern(r".*\.pem$\|.*galera\.cache$\|.*/\(keep\|my\)-me$").unwrap();
        assert!(
            keep.keeps(b"x.pem", false)
                && keep.keeps(b"galera.cache", false)
                && keep.keeps(b"my-me", false)
        );
        assert!(
            !keep.keeps(b"slow.log", false)
                && !keep.keeps(b"xpem", false)
                && !keep.keeps(b".xb-partial", false)
        );
        // Files that Galera and the server have open always stay, even if the pattern omits them.
        for name in [
            "grastate.dat",
            "gcache.page.000002",
            "host.err",
            "any.pid",
            "#sql-xb",
            ".my.cnf",
            ".ssh",
        ] {
            assert!(keep.keeps(name.as_bytes(), false), "{name}");
        }
        keep.also("mysqld.sock".as_ref(), "socket");
        assert!(keep.keeps(b"mysqld.sock", false));
        assert!(Keep::pattern(r".*[").is_err());
    }

    #[test]
    fn patterns_may_begin_with_the_data_directory() {
        let scratch = tempfile::tempdir().unwrap();
        let link = scratch.path().join("link");
        std::fs::create_dir(scratch.path().join("data")).unwrap();
        std::os::unix::fs::symlink("data", &link).unwrap();
        let real = std::fs::canonicalize(&link).unwrap();
        for folder in [&link, &real] {
            let mut keep = Keep::pattern(&format!("{}/mine", folder.display())).unwrap();
            assert!(!keep.keeps(b"mine", false));
            keep.within(&link.join(""));
            assert!(keep.keeps(b"mine", false) && !keep.keeps(b"mine2", false));
        }
    }

    #[test]
    fn only_paths_in_the_data_directory_keep_an_entry() {
        let mut keep = Keep::usual(false).unwrap();
        keep.within("/var/lib/mysql/".as_ref());
        for path in
            ["/var/log/mysql", "/var/lib/mysql/logs/slow", "./a.sock", "../b", "/var/lib/mysql"]
        {
            keep.also(path.as_ref(), "log-error");
        }
        assert!(keep.keeps(b"logs", false) && keep.keeps(b"a.sock", false));
        for name in ["mysql", "slow", "b", "log"] {
            assert!(!keep.keeps(name.as_bytes(), false), "{name}");
        }
    }

    #[test]
    fn links_in_a_path_are_followed() {
        let scratch = tempfile::tempdir().unwrap();
        let data = scratch.path().join("data");
        for name in ["data/keys", "data/safe/deep"] {
            std::fs::create_dir_all(scratch.path().join(name)).unwrap();
        }
        std::fs::write(data.join("keys/file"), "").unwrap();
        let link = |to: &Path, from: &str| {
            std::os::unix::fs::symlink(to, scratch.path().join(from)).unwrap();
        };
        link(&data.join("keys"), "tls");
        link("safe/deep".as_ref(), "data/certificates");
        let mut keep = Keep::usual(false).unwrap();
        keep.within(&data);
        keep.also_behind_links(&scratch.path().join("tls/file"), "ssl-key");
        keep.also_behind_links("certificates".as_ref(), "ssl-ca");
        for name in ["keys", "safe"] {
            assert!(keep.keeps(name.as_bytes(), false), "{name}");
        }
        assert!(!keep.keeps(b"file", false) && !keep.keeps(b"deep", false));
    }

    #[test]
    fn logs_that_are_data_go_and_schemas_are_no_keyrings() {
        let percona = Keep::usual(true).unwrap();
        for name in ["tc.log", "ddl_recovery.log", "ddl_recovery-backup.log", "my_keyring"] {
            assert!(!percona.keeps(name.as_bytes(), false), "{name}");
            assert!(
                name == "my_keyring" || !Keep::pattern(".*").unwrap().keeps(name.as_bytes(), false)
            );
        }
        assert!(percona.keeps(b"keyring", false) && percona.keeps(b"general.log", false));
    }

    proptest! {
        #[test]
        fn any_pattern_is_taken_or_refused(text in "\\PC{0,40}", name in proptest::collection::vec(any::<u8>(), 0..20)) {
            if let Ok(keep) = Keep::pattern(&text) {
                let _ = keep.keeps(&name, false);
            }
        }
    }
}
