//! Files of the node that its options name and that are not data: sockets, logs, keys, certificates, directories for
//! temporary files, Galera's state.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::contract::args::Args;
use crate::contract::option_files::OptionFiles;

/// Options with names that begin so tell where data is, or what goes with it: a replica that kept its position would apply once
/// more what the received data has. A directory of exports may be a schema's.
const OF_DATA: [&str; 9] = [
    "aria-",
    "innodb-",
    "log-bin",
    "log-ddl-recovery",
    "log-tc",
    "master-info-file",
    "relay-log",
    "rocksdb-",
    "secure-file-priv",
];
/// Options that name such a file by a path that need not be absolute; a relative one is of the data directory.
const OF_THE_NODE: [&str; 20] = [
    "file-key-management-filekey",
    "file-key-management-filename",
    "general-log-file",
    "innodb-tmpdir",
    "log-error",
    "log-slow-query-file",
    "pid-file",
    "slave-load-tmpdir",
    "slow-query-log-file",
    "socket",
    "ssl-ca",
    "ssl-capath",
    "ssl-cert",
    "ssl-crl",
    "ssl-crlpath",
    "ssl-key",
    "sql-error-log-filename",
    "tmpdir",
    "wsrep-data-home-dir",
    "wsrep-status-file",
];
/// As [`OF_THE_NODE`], of Galera, in `wsrep-provider-options`.
const OF_GALERA: [&str; 7] = [
    "base_dir",
    "gcache.dir",
    "gcache.name",
    "socket.ssl_ca",
    "socket.ssl_cert",
    "socket.ssl_key",
    "socket.ssl_password_file",
];

/// A path in an option, as it is written there.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) path: PathBuf,
    /// The option.
    pub(super) option: String,
    /// Whether it is known that the server itself looks there whenever it starts.
    pub(super) is_known: bool,
}

/// Returns the paths in the options of the node: of options that are known to name such files, and of
/// all others that have an absolute path and are not about data. An option that a later line replaces counts, too.
pub(super) fn named(files: &OptionFiles, args: &Args) -> Vec<Named> {
    let of_server =
        args.server.iter().filter_map(|(name, value)| Some((name.as_str(), value.as_deref()?)));
    let mut paths = Vec::new();
    for (name, value) in files.values().chain(of_server) {
        let known = |path| Named { path, option: name.to_owned(), is_known: true };
        match name {
            "wsrep-provider-options" => paths.extend(of_galera(value).into_iter().map(known)),
            // Behind its name are sizes and words, such as `autoextend` and `max`, which are no files.
            "innodb-temp-data-file-path" => {
                let files = words(value, b";").filter_map(|file| file.split(|b| *b == b':').next());
                paths.extend(files.map(path).map(known));
            }
            _ => {
                let is_known = OF_THE_NODE.contains(&name);
                let is_other = !OF_DATA.iter().any(|data| name.starts_with(data));
                // The whole; or a part: of a list of directories, behind `FILE:`.
                let words = std::iter::once(value.as_bytes()).chain(words(value, b":;"));
                let named = words.filter(|word| is_known || is_other && word.starts_with(b"/"));
                paths.extend(named.map(|word| Named { is_known, ..known(path(word)) }));
            }
        }
    }
    paths
}

fn of_galera(options: &OsStr) -> Vec<PathBuf> {
    let pairs = words(options, b";").filter_map(|pair| {
        let at = pair.iter().position(|byte| *byte == b'=')?;
        let name = std::str::from_utf8(pair[..at].trim_ascii()).ok()?;
        OF_GALERA.contains(&name).then(|| path(pair[at + 1..].trim_ascii()))
    });
    pairs.collect()
}

fn words<'v>(value: &'v OsStr, ends: &'static [u8]) -> impl Iterator<Item = &'v [u8]> {
    let words = value.as_bytes().split(|byte| ends.contains(byte));
    words.map(<[u8]>::trim_ascii).filter(|word| !word.is_empty())
}

fn path(word: &[u8]) -> PathBuf {
    Path::new(OsStr::from_bytes(word)).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::args::Product;

    #[test]
    fn paths_of_the_node_are_taken_and_those_of_data_are_not() {
        let options = [
            ("mysqld", "tmpdir", "/d/a:b"),
            ("mysqld", "innodb_temp_data_file_path", "t/ibtmp1:12M:autoextend:max:5G"),
            ("mysqld", "plugin_dir", "lib/plugin"),
            ("mariadb", "file_key_management_filekey", "FILE:/d/key"),
            (
                "mysqld",
                "wsrep_provider_options",
                "gcache.size=1G; gcache.dir = gc ;socket.ssl_key=/d/s",
            ),
            ("mysqld", "other_plugins_file", "/d/other"),
            ("mysqld", "other_plugins_mode", "fast"),
            ("sst", "report-dir", "/d/reports"),
            ("mysqld", "innodb_log_group_home_dir", "/d/redo"),
            ("mysqld", "aria_log_dir_path", "/d/aria"),
            ("mysqld", "log_bin", "/d/bin"),
            ("mysqld", "relay_log_info_file", "/d/relay.info"),
            ("mysqld", "master_info_file", "/d/master.info"),
            ("mysqld", "secure_file_priv", "/d/shop"),
        ];
        let own = |(g, k, v): &(&str, &str, &str)| ((*g).into(), (*k).into(), Some((*v).into()));
        let files = OptionFiles::new(options.iter().map(own), Product::MariaDb, None);
        let words = ["--role", "joiner", "--address", "h", "--mysqld-args", "--socket=s"];
        let args = Args::parse(&words.map(Into::into)).unwrap();
        let named = named(&files, &args);
        let has = |path: &str| named.iter().any(|named| named.path == Path::new(path));
        for path in ["/d/a", "b", "t/ibtmp1", "/d/key", "gc", "/d/s", "/d/other", "/d/reports", "s"]
        {
            assert!(has(path), "{path}: {named:?}");
        }
        let plain = ["fast", "1G", "12M", "autoextend", "max", "lib/plugin"];
        let others = ["redo", "aria", "bin", "relay.info", "master.info", "shop"];
        for path in others.map(|name| format!("/d/{name}")).iter().map(String::as_str).chain(plain)
        {
            assert!(!has(path), "{path}: {named:?}");
        }
    }
}
