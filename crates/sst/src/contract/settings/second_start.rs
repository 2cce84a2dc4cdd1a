//! Settings of a joiner's second start: its server runs once on the received data, in private, before the swap.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::SettingsError;
use super::reader::Reader;
use crate::contract::args::{Args, Product};

/// Default time limit.
const LIMIT: Duration = Duration::from_secs(1800);

/// Settings of the start of a joiner's server on the received data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecondStart {
    /// Whether it does.
    pub wanted: bool,
    /// Time limit; `None`: there is none.
    pub limit: Option<Duration>,
    /// Whether replica channels that arrive with the data are removed.
    pub reset_replica: bool,
    /// The value of `innodb_data_file_path` for files that are all in the data directory, if the
    /// server's value has other directories.
    pub data_files: Option<OsString>,
    /// Directories in which the server searches for tablespaces.
    pub searched: Vec<PathBuf>,
    /// Whether a server that has started makes its list of replica channels, `multi-master.info`, in the data directory.
    pub makes_list: bool,
}

impl Reader<'_> {
    pub(super) fn second_start(&self) -> Result<SecondStart, SettingsError> {
        let path = |name| self.server(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let list = self.server("innodb-directories").unwrap_or_default();
        let listed = list.as_bytes().split(|byte| *byte == b';').filter(|dir| !dir.is_empty());
        let others = ["innodb-data-home-dir", "innodb-undo-directory"].into_iter().filter_map(path);
        Ok(SecondStart {
            wanted: self.switch("second-start", true)?,
            limit: match self.seconds(&["second-start-timeout"])? {
                Some(Duration::ZERO) => None,
                Some(limit) => Some(limit),
                None => Some(LIMIT),
            },
            reset_replica: self.switch("reset-replica", true)?,
            data_files: self.server("innodb-data-file-path").and_then(flattened),
            searched: listed.map(|dir| OsStr::from_bytes(dir).into()).chain(others).collect(),
            makes_list: self.args.product == Product::MariaDb
                && self.server("master-info-file").is_none(),
        })
    }
}

impl SecondStart {
    /// Returns whether a joiner with these arguments starts its server: MariaDB, and Percona's servers since 8.0, which
    /// state their version.
    #[must_use]
    pub fn applies(&self, args: &Args) -> bool {
        let version = args.server_version.as_deref().unwrap_or_default();
        let major = version.split('.').next().and_then(|number| number.parse().ok());
        self.wanted
            && match args.product {
                Product::MariaDb => true,
                Product::Percona => major.is_some_and(|major: u32| major >= 8),
            }
    }

    /// Returns whether the server finds a tablespace with this path wherever the data dictionary
    /// has it.
    pub(crate) fn is_searched(&self, tablespace: &Path) -> bool {
        self.searched.iter().any(|dir| dir.is_absolute() && tablespace.starts_with(dir))
    }
}

/// Removes the directories from `ibdata1:12M;/more/ibdata2:10M:autoextend`; `None` if there are
/// none.
fn flattened(specs: &OsStr) -> Option<OsString> {
    let specs = specs.as_bytes();
    if !specs.contains(&b'/') {
        return None;
    }
    let flat = specs.split(|byte| *byte == b';').map(|spec| {
        let end = spec.iter().position(|byte| *byte == b':').unwrap_or(spec.len());
        let slash = spec[..end].iter().rposition(|byte| *byte == b'/');
        &spec[slash.map_or(0, |slash| slash + 1)..]
    });
    Some(OsString::from_vec(flat.collect::<Vec<_>>().join(&b';')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_files_lose_their_directories() {
        let flat =
            |specs: &str| flattened(OsStr::new(specs)).map(|flat| flat.into_string().unwrap());
        assert_eq!(flat("ibdata1:12M:autoextend"), None);
        assert_eq!(
            flat("sub/ibdata1:12M;/big/more/data2:10M:autoextend;x:1M").as_deref(),
            Some("ibdata1:12M;data2:10M:autoextend;x:1M")
        );
        assert_eq!(flat("/a/b").as_deref(), Some("b"));
    }

    #[test]
    fn only_absolute_directories_that_are_named_are_searched() {
        let settings = SecondStart {
            wanted: true,
            limit: None,
            reset_replica: true,
            data_files: None,
            searched: vec!["/ext".into(), "rel".into(), "./".into()],
            makes_list: false,
        };
        assert!(settings.is_searched(Path::new("/ext/shop/a.ibd")));
        assert!(!settings.is_searched(Path::new("/extra/shop/a.ibd")));
        assert!(!settings.is_searched(Path::new("rel/shop/a.ibd")));
    }
}
