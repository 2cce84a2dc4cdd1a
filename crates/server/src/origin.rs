//! Settings of the server that a backup is from.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// The backup's own option file, which its producer writes.
pub(crate) const FILE: &str = "backup-my.cnf";
/// Bytes of it that are read. Real files have some hundred.
pub(crate) const MAX: u64 = 64 << 10;
/// Settings that describe files, without which a server cannot open them.
const TAKEN_OVER: [&str; 4] = [
    "innodb_page_size",
    "innodb_data_file_path",
    "innodb_undo_tablespaces",
    "innodb_checksum_algorithm",
];

/// Plugins that a backup's own option file may have loaded, by the name of their library: MariaDB's
/// compression algorithms, without which the server takes tables that use them for corrupted.
const PLUGINS: [&str; 5] =
    ["provider_bzip2", "provider_lz4", "provider_lzma", "provider_lzo", "provider_snappy"];

/// Plugins that hold keys of encrypted tables. They are not loaded: only the operator gives keys.
const KEY_PLUGINS: [&str; 3] =
    ["file_key_management", "hashicorp_key_management", "aws_key_management"];

/// Returns the plugin with the keys of encrypted tables that the server of the backup in `data` had
/// loaded, if it is one of MariaDB's.
#[must_use]
pub fn key_plugin(data: &Path) -> Option<&'static str> {
    let text = option_file(data);
    let lists = text.lines().filter_map(|line| line.split_once('='));
    let mut lists = lists.filter(|(key, _)| key.trim() == "plugin_load");
    lists.find_map(|(_, list)| known_plugins(list, &KEY_PLUGINS).next())
}

/// Returns the settings in the option file of the backup in `data` that a server on it needs, as
/// arguments, and those that load the plugins on a fixed list from the server's own directory. The file
/// comes from outside: any other setting or plugin in it, and any value with a path, is ignored. So is
/// a file that is missing.
#[must_use]
pub(crate) fn origin_settings(data: &Path) -> Vec<OsString> {
    let text = option_file(data);
    let plain =
        |value: &str| value.bytes().all(|b| b.is_ascii_alphanumeric() || b":;._-".contains(&b));
    let mut args = Vec::new();
    for (key, value) in text.lines().filter_map(|line| line.split_once('=')) {
        let (key, value) = (key.trim(), value.trim());
        if TAKEN_OVER.contains(&key) && plain(value) {
            args.push(format!("--loose-{key}={value}").into());
        } else if key == "plugin_load" {
            let plugins = known_plugins(value, &PLUGINS);
            args.extend(plugins.map(|name| format!("--plugin-load-add={name}").into()));
        }
    }
    args
}

/// Reads the option file, or what is left of it.
fn option_file(data: &Path) -> String {
    let mut text = Vec::new();
    let _ = File::open(data.join(FILE)).and_then(|file| file.take(MAX).read_to_end(&mut text));
    String::from_utf8_lossy(&text).into_owned()
}

/// The known plugins in a list such as `NAME=LIBRARY;LIBRARY`.
fn known_plugins<'l>(
    list: &'l str,
    known: &'l [&'static str],
) -> impl Iterator<Item = &'static str> + 'l {
    list.split(';').filter_map(|entry| {
        let library = entry.rsplit('=').next().unwrap_or_default().trim();
        let library = library.strip_suffix(".so").unwrap_or(library);
        known.iter().find(|known| **known == library).copied()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_describes_files_is_taken_over() {
        let dir = tempfile::tempdir().unwrap();
        assert!(origin_settings(dir.path()).is_empty());
        std::fs::write(
            dir.path().join("backup-my.cnf"),
            "# from the backup\n[mysqld]\ninnodb_page_size=4096\ninnodb_data_file_path=ibdata1:12M;ibdata2:12M:autoextend\nredo_log_version=1\nplugin_load=evil.so;provider_lz4=provider_lz4;x=../provider_lzo.so;provider_snappy.so\ninit_file=/x\ninnodb_undo_directory=/x\ninnodb_undo_tablespaces=3 --init-file=/x\ninnodb_checksum_algorithm=/x\n",
        )
        .unwrap();
        assert_eq!(
            origin_settings(dir.path()),
            [
                "--loose-innodb_page_size=4096",
                "--loose-innodb_data_file_path=ibdata1:12M;ibdata2:12M:autoextend",
                "--plugin-load-add=provider_lz4",
                "--plugin-load-add=provider_snappy",
            ]
        );
        assert_eq!(key_plugin(dir.path()), None);
        // As mariadb-backup writes it.
        let text = "[mysqld]\nplugin_load=provider_lz4=provider_lz4;file_key_management=file_key_management\nfile_key_management_filename=/x\n";
        std::fs::write(dir.path().join("backup-my.cnf"), text).unwrap();
        assert_eq!(key_plugin(dir.path()), Some("file_key_management"));
        assert_eq!(origin_settings(dir.path()), ["--plugin-load-add=provider_lz4"]);
    }
}
