//! Settings of the server that a backup is from.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// The backup's own option file, which its producer writes.
const FILE: &str = "backup-my.cnf";
/// Bytes of it that are read. Real files have some hundred.
const MAX: u64 = 64 << 10;
/// Settings that describe files, without which a server cannot open them.
const TAKEN_OVER: [&str; 4] = [
    "innodb_page_size",
    "innodb_data_file_path",
    "innodb_undo_tablespaces",
    "innodb_checksum_algorithm",
];

/// Returns the settings in the option file of the backup in `data` that a server on it needs, as
/// arguments. The file comes from outside: any other setting in it, and any value with a path, is
/// ignored. So is a file that is missing.
#[must_use]
pub fn origin_settings(data: &Path) -> Vec<OsString> {
    let mut text = Vec::new();
    let _ = File::open(data.join(FILE)).and_then(|file| file.take(MAX).read_to_end(&mut text));
    let text = String::from_utf8_lossy(&text);
    let plain =
        |value: &str| value.bytes().all(|b| b.is_ascii_alphanumeric() || b":;._-".contains(&b));
    let settings = text.lines().filter_map(|line| {
        let (key, value) = line.split_once('=')?;
        let (key, value) = (key.trim(), value.trim());
        let taken = TAKEN_OVER.contains(&key) && plain(value);
        taken.then(|| OsString::from(format!("--loose-{key}={value}")))
    });
    settings.collect()
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
            "# from the backup\n[mysqld]\ninnodb_page_size=4096\ninnodb_data_file_path=ibdata1:12M;ibdata2:12M:autoextend\nredo_log_version=1\nplugin_load=evil.so\ninit_file=/x\ninnodb_undo_directory=/x\ninnodb_undo_tablespaces=3 --init-file=/x\ninnodb_checksum_algorithm=/x\n",
        )
        .unwrap();
        assert_eq!(
            origin_settings(dir.path()),
            [
                "--loose-innodb_page_size=4096",
                "--loose-innodb_data_file_path=ibdata1:12M;ibdata2:12M:autoextend"
            ]
        );
    }
}
