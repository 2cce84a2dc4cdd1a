//! Options from option files, by the groups that apply here.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use super::args::Product;

/// The options of the groups that apply, in the order of reading. Names have `-` for `_` and no
/// `loose-` prefix; the last value wins.
#[derive(Debug, Clone, Default)]
pub struct OptionFiles {
    options: Vec<FileOption>,
}

#[derive(Debug, Clone)]
struct FileOption {
    scope: Scope,
    /// The only version of the server that reads its group, such as `10.11`.
    version: Option<String>,
    name: String,
    value: Option<OsString>,
}

/// Owner of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// `[sst]`.
    Sst,
    /// `[xtrabackup]`, `[mariabackup]`.
    Tool,
    /// `[mysqld]` and the server's other groups.
    Server,
}

/// The server's groups that are read, without their variants with a version.
const SERVER: [&str; 3] = ["mysqld", "server", "galera"];
/// Those that only MariaDB's servers read. The last one is for its clients, too.
const MARIADB: [&str; 3] = ["mariadb", "mariadbd", "client-server"];
/// Those that have variants with a version.
const VERSIONED: [&str; 3] = ["mysqld", "mariadb", "mariadbd"];
const TOOL: [&str; 3] = ["xtrabackup", "mariabackup", "mariadb-backup"];

impl OptionFiles {
    /// Collects options from an option file reader, which returns group, key and value. `suffix` is
    /// the group suffix. Other groups are ignored, and those that servers of this product do not read.
    pub fn new(
        options: impl IntoIterator<Item = (String, String, Option<OsString>)>,
        product: Product,
        suffix: Option<&str>,
    ) -> Self {
        let options = options.into_iter().filter_map(|(group, key, value)| {
            let (scope, version) = scope(&group, product, suffix)?;
            let name = key.replace('_', "-");
            let name = name.strip_prefix("loose-").map(str::to_owned).unwrap_or(name);
            Some(FileOption { scope, version, name, value })
        });
        Self { options: options.collect() }
    }

    /// Returns whether a group applies.
    #[must_use]
    pub fn wants(group: &str, product: Product, suffix: Option<&str>) -> bool {
        scope(group, product, suffix).is_some()
    }

    /// Returns whether options are in groups that only one version of the server reads, such as `[mariadb-10.11]`.
    pub(crate) fn have_versions(&self) -> bool {
        self.options.iter().any(|option| option.version.is_some())
    }

    /// Returns what a server of this version reads, such as `10.11.19-MariaDB`.
    #[must_use]
    pub(crate) fn of_version(mut self, version: &str) -> Self {
        let is_read = |of: &str| {
            version
                .strip_prefix(of)
                .is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        self.options.retain(|option| option.version.as_deref().is_none_or(is_read));
        self
    }

    /// Returns whether `[sst]` has this option, with or without a value.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.options.iter().any(|option| option.scope == Scope::Sst && option.name == name)
    }

    /// Returns its value in `[sst]`.
    #[must_use]
    pub fn sst(&self, name: &str) -> Option<&OsStr> {
        self.last(Scope::Sst, name)
    }

    /// Returns its value in `[sst]`, else in the backup programs' groups, else in the server's
    /// groups.
    #[must_use]
    pub fn any(&self, name: &str) -> Option<&OsStr> {
        self.transfer(name).or_else(|| self.server(name))
    }

    /// Returns its value in `[sst]`, else in the backup programs' groups.
    pub(crate) fn transfer(&self, name: &str) -> Option<&OsStr> {
        [Scope::Sst, Scope::Tool].into_iter().find_map(|scope| self.last(scope, name))
    }

    /// Returns its value in the server's groups.
    #[must_use]
    pub fn server(&self, name: &str) -> Option<&OsStr> {
        self.last(Scope::Server, name)
    }

    /// Returns whether the server's groups have this option, with or without a value.
    #[must_use]
    pub(crate) fn server_has(&self, name: &str) -> bool {
        self.options.iter().any(|option| option.scope == Scope::Server && option.name == name)
    }

    /// Returns the options of the server's groups that locate the keys of encrypted tables.
    pub(crate) fn server_keys(&self) -> impl Iterator<Item = (&str, Option<&OsStr>)> {
        let of_keys = |option: &&FileOption| {
            option.scope == Scope::Server && option.name.contains("key-management")
        };
        self.options.iter().filter(of_keys).map(|o| (o.name.as_str(), o.value.as_deref()))
    }

    /// All options that have a value, except those of clients.
    pub(crate) fn values(&self) -> impl Iterator<Item = (&str, &OsStr)> {
        self.options.iter().filter_map(|o| Some((o.name.as_str(), o.value.as_deref()?)))
    }

    /// The names in `[sst]`.
    pub fn sst_names(&self) -> impl Iterator<Item = &str> {
        self.options.iter().filter(|o| o.scope == Scope::Sst).map(|o| o.name.as_str())
    }

    /// Like [`OptionFiles::any`], as a path; an empty value counts as none.
    #[must_use]
    pub(crate) fn any_path(&self, name: &str) -> Option<PathBuf> {
        self.any(name).filter(|value| !value.is_empty()).map(PathBuf::from)
    }

    /// Returns its value in the server's groups, if it is there with or without one.
    pub(crate) fn server_given(&self, name: &str) -> Option<Option<&OsStr>> {
        self.given(Scope::Server, name)
    }

    fn last(&self, scope: Scope, name: &str) -> Option<&OsStr> {
        self.given(scope, name).flatten()
    }

    fn given(&self, scope: Scope, name: &str) -> Option<Option<&OsStr>> {
        let found = self.options.iter().rev().find(|o| o.scope == scope && o.name == name);
        found.map(|option| option.value.as_deref())
    }
}

/// Returns whose group it is, and the version of the server that reads it, if only one does. Group names are compared without
/// case, as servers do.
fn scope(group: &str, product: Product, suffix: Option<&str>) -> Option<(Scope, Option<String>)> {
    let group = group.to_ascii_lowercase();
    let suffix = suffix.map(str::to_ascii_lowercase);
    let of = |group: &str| {
        if group == "sst" {
            return Some((Scope::Sst, None));
        }
        if TOOL.contains(&group) {
            return Some((Scope::Tool, None));
        }
        let versioned = group.rsplit_once('-').filter(|(name, version)| {
            VERSIONED.contains(name)
                && version.contains('.')
                && version.bytes().all(|b| b.is_ascii_digit() || b == b'.')
        });
        let name = versioned.map_or(group, |(name, _)| name);
        let is_read =
            SERVER.contains(&name) || product == Product::MariaDb && MARIADB.contains(&name);
        is_read.then(|| (Scope::Server, versioned.map(|(_, version)| version.to_owned())))
    };
    let suffix = suffix.as_deref().filter(|suffix| !suffix.is_empty());
    of(&group).or_else(|| of(group.strip_suffix(suffix?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(options: &[(&str, &str, &str)], suffix: Option<&str>) -> OptionFiles {
        let own = |(g, k, v): &(&str, &str, &str)| ((*g).into(), (*k).into(), Some((*v).into()));
        OptionFiles::new(options.iter().map(own), Product::MariaDb, suffix)
    }

    #[test]
    fn groups_of_mariadb_are_not_read_for_perconas_servers() {
        let read = |group: &str| OptionFiles::wants(group, Product::Percona, None);
        assert!(["sst", "mysqld", "mysqld-8.0", "server", "xtrabackup"].into_iter().all(read));
        assert!(!["client-server", "mariadb", "mariadb-10.11", "mariadbd"].into_iter().any(read));
    }

    #[test]
    fn groups_have_a_rank_and_the_last_value_wins() {
        let files = files(
            &[
                ("sst", "loose_cpat", "a"),
                ("mysqld", "backup-threads", "1"),
                ("sst", "cpat", "b"),
                ("mysqldump", "cpat", "x"),
                ("mariadb-10.11", "innodb_undo_directory", "u"),
                ("xtrabackup", "backup_threads", "2"),
                ("mysqld", "backup-threads", "3"),
                ("mysqld-x", "innodb_undo_directory", "x"),
                ("client-server", "innodb_data_home_dir", "h"),
                ("client", "innodb_data_home_dir", "x"),
            ],
            None,
        );
        assert_eq!(files.sst("cpat"), Some("b".as_ref()));
        assert_eq!(files.any("backup-threads"), Some("2".as_ref()));
        assert_eq!(files.server("backup-threads"), Some("3".as_ref()));
        assert_eq!(files.server("innodb-undo-directory"), Some("u".as_ref()));
        assert_eq!(files.server("innodb-data-home-dir"), Some("h".as_ref()));
        assert!(files.has("cpat") && !files.has("backup-threads"));
        assert_eq!(files.sst("backup-threads"), None);
    }

    #[test]
    fn groups_of_other_versions_are_not_read() {
        let options = [
            ("mariadb-10.11", "a", "mine"),
            ("mysqld-10.6", "a", "earlier"),
            ("mariadbd-10.1", "a", "shorter"),
            ("mariadb-10.6@x", "a", "of the suffix"),
            ("server-10.11", "a", "of no server"),
        ];
        let files = files(&options, Some("@x"));
        assert!(files.have_versions());
        assert_eq!(files.clone().of_version("10.11.19-MariaDB").server("a"), Some("mine".as_ref()));
        assert_eq!(files.clone().of_version("10.6.2").server("a"), Some("of the suffix".as_ref()));
        assert_eq!(files.of_version("11.8.6-MariaDB").server("a"), None);
    }

    #[test]
    fn the_case_of_a_groups_name_does_not_count() {
        let options = [("SST", "a", "1"), ("MariaDB-10.11", "b", "2"), ("Sst@X", "c", "3")];
        let files = files(&options, Some("@x"));
        assert_eq!(files.sst("a"), Some("1".as_ref()));
        assert_eq!(files.server("b"), Some("2".as_ref()));
        assert_eq!(files.sst("c"), Some("3".as_ref()));
    }

    #[test]
    fn groups_with_the_suffix_count_beside_those_without() {
        let options = [("sst", "a", "1"), ("sst@2", "a", "2"), ("sst@3", "a", "3")];
        assert_eq!(files(&options, Some("@2")).sst("a"), Some("2".as_ref()));
        assert_eq!(files(&options, Some("")).sst("a"), Some("1".as_ref()));
    }
}
