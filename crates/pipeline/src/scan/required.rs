//! Files that every backup of its kind has, whatever its tables: without one of them it cannot be
//! prepared, or lacks changes.

use std::collections::{BTreeMap, BTreeSet};

use super::producer_files::{
    CHECKPOINTS, DICTIONARY, INFO, SETTINGS, Texts, field, version_of_mariadb,
    version_of_xtrabackup,
};

/// Control file of Aria, and the beginning of the names of its log.
const ARIA: [&str; 2] = ["aria_log_control", "aria_log."];
/// First version of MariaDB whose system tables are Aria's.
const ARIA_SINCE: (u32, u32) = (10, 4);
/// Undo tablespaces that MySQL has from 8.0 on; they cannot be dropped.
const UNDO_OF_MYSQL: [&str; 2] = ["undo_001", "undo_002"];
/// Maximum number of undo tablespaces: of MySQL 5.7 and MariaDB.
const MAX_UNDO: u32 = 127;
/// Suffixes that an incremental backup adds to a tablespace's name: changed pages, and what they are.
const HALVES: [&str; 2] = [".delta", ".meta"];

/// Tracks the files of a stream.
#[derive(Debug, Clone, Default)]
pub(super) struct Required {
    /// Files outside any schema, without suffixes of compression and encryption.
    top: BTreeSet<Vec<u8>>,
    /// Tablespaces of which one half was seen: the suffix of the other one.
    halves: BTreeMap<Vec<u8>, &'static str>,
}

impl Required {
    /// Notes that the file `name` is complete.
    pub(super) fn ended(&mut self, name: &[u8]) {
        if !name.contains(&b'/') {
            self.top.insert(name.to_vec());
        }
        for (suffix, other) in [(HALVES[0], HALVES[1]), (HALVES[1], HALVES[0])] {
            let Some(stem) = name.strip_suffix(suffix.as_bytes()) else { continue };
            if self.halves.get(stem).is_some_and(|wanted| *wanted == suffix) {
                self.halves.remove(stem);
            } else {
                self.halves.insert(stem.to_vec(), other);
            }
        }
    }

    /// The names of the files that the stream lacks, without suffixes of compression and encryption.
    /// Nothing is required of a stream that does not state the kind of the backup, and no file that
    /// depends on a text which cannot be read.
    pub(super) fn lacking(&self, texts: Texts<'_>) -> Vec<String> {
        let kind = texts.checkpoints.and_then(|text| field(text, "backup_type"));
        let is_incremental = match kind {
            Some("full-backuped" | "log-applied" | "full-prepared") => false,
            Some("incremental") => true,
            _ => return self.positions(texts.info),
        };
        let mut lacking: Vec<_> =
            self.files(texts).into_iter().filter(|name| !self.has(name)).collect();
        for tablespace in self.tablespaces(texts) {
            match is_incremental {
                // The other half is among the halves.
                true if !HALVES.iter().any(|half| self.has(&format!("{tablespace}{half}"))) => {
                    lacking.extend(HALVES.map(|half| format!("{tablespace}{half}")));
                }
                false if !self.has(&tablespace) => lacking.push(tablespace),
                _ => {}
            }
        }
        if is_incremental {
            let half = |(stem, suffix): (&Vec<u8>, &&str)| {
                format!("{}{suffix}", xb_reader::Printable::new(stem))
            };
            lacking.extend(self.halves.iter().map(half));
        }
        lacking
    }

    fn has(&self, name: &str) -> bool {
        self.top.contains(name.as_bytes())
    }

    /// The file with the positions, if another one repeats them.
    fn positions(&self, info: Option<&str>) -> Vec<String> {
        let is_stated = info.is_some_and(|info| field(info, "innodb_to_lsn").is_some());
        let mut names = vec![self.of_version(CHECKPOINTS).to_owned()];
        names.retain(|_| is_stated && !CHECKPOINTS.iter().any(|name| self.has(name)));
        names
    }

    /// The name that a file has in this backup: newer versions of mariadb-backup use the second one.
    fn of_version(&self, [name, newer]: [&'static str; 2]) -> &'static str {
        let is_newer = [INFO[1], CHECKPOINTS[1]].iter().any(|name| self.has(name));
        if is_newer { newer } else { name }
    }

    /// Files that an incremental backup has in full, too.
    fn files(&self, texts: Texts<'_>) -> Vec<String> {
        let mut files = [SETTINGS, self.of_version(INFO)].map(str::to_owned).to_vec();
        if texts.info.and_then(version_of_mariadb).is_some_and(|version| version >= ARIA_SINCE) {
            let is_log = |name: &&Vec<u8>| name.starts_with(ARIA[1].as_bytes());
            let log = self.top.iter().find(is_log).map(|name| String::from_utf8_lossy(name));
            let first = || format!("{}00000001", ARIA[1]);
            files.extend([ARIA[0].to_owned(), log.map_or_else(first, |name| name.into_owned())]);
        }
        files
    }

    /// Tablespaces outside any schema.
    fn tablespaces(&self, texts: Texts<'_>) -> Vec<String> {
        let mut names = texts.settings.map_or_else(Vec::new, system_tablespace);
        let is_mysql_8 = DICTIONARY.iter().any(|name| self.has(name))
            || texts.info.and_then(version_of_xtrabackup).is_some_and(|version| version.0 >= 8);
        if is_mysql_8 {
            names.push(DICTIONARY[0].to_owned());
            names.extend(UNDO_OF_MYSQL.map(str::to_owned));
        } else {
            let undo = texts.settings.and_then(|text| field(text, "innodb_undo_tablespaces"));
            let number = undo.and_then(|number| number.parse().ok()).unwrap_or(0_u32);
            names.extend((1..=number.min(MAX_UNDO)).map(|n| format!("undo{n:03}")));
        }
        names
    }
}

/// The files of the system tablespace by the server's settings, `NAME:SIZE...;NAME:SIZE...`. They are
/// in a backup without their directories.
fn system_tablespace(settings: &str) -> Vec<String> {
    let path = field(settings, "innodb_data_file_path").unwrap_or("ibdata1:12M");
    let files = path.split(';').filter_map(|file| {
        let (name, size) = file.trim().split_once(':')?;
        let name = name.rsplit('/').next().unwrap_or(name);
        // No producer can back up a raw device.
        (!name.is_empty() && !size.ends_with("raw")).then(|| name.to_owned())
    });
    files.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARIADB: &str = "tool_name = mariadb-backup\ntool_version = 10.11.19-MariaDB\n";
    const MYSQL: &str = "tool_name = xtrabackup\ntool_version = 8.4.0-7\n";
    const TWO_FILES: &str = "innodb_data_file_path=ibdata1:12M;../x/ibd2:10M:autoextend;dev:1Graw\ninnodb_undo_tablespaces=2\n";

    fn lacking(names: &str, texts: Texts<'_>) -> String {
        let mut required = Required::default();
        names.split(' ').for_each(|name| required.ended(name.as_bytes()));
        required.lacking(texts).join(" ")
    }

    fn texts<'t>(kind: &'t str, info: &'t str, settings: &'t str) -> Texts<'t> {
        Texts { checkpoints: Some(kind), info: Some(info), settings: Some(settings) }
    }

    /// Leaves out each of the names once: exactly that one is found.
    fn each_counts(names: &str, texts: Texts<'_>) {
        assert_eq!(lacking(names, texts), "");
        let all: Vec<_> = names.split(' ').collect();
        for left_out in &all {
            let others: Vec<_> = all.iter().filter(|name| name != &left_out).copied().collect();
            assert_eq!(lacking(&others.join(" "), texts), *left_out, "{names}");
        }
    }

    #[test]
    fn a_full_backup_has_what_its_server_and_its_settings_name() {
        let names = "backup-my.cnf xtrabackup_info aria_log_control aria_log.00000001 ibdata1 ibd2 undo001 undo002";
        for kind in ["full-backuped", "full-prepared", "log-applied"] {
            each_counts(names, texts(&format!("backup_type = {kind}"), MARIADB, TWO_FILES));
        }
        let full = "backup_type = full-backuped\nto_lsn = 5";
        let old = "tool_name = mariabackup\ntool_version = 10.3.39-MariaDB\n";
        each_counts("backup-my.cnf xtrabackup_info ibdata1", texts(full, old, "[mysqld]\n"));
        let newer = "backup-my.cnf mariadb_backup_checkpoints ibdata1";
        assert_eq!(lacking(newer, texts(full, old, "")), "mariadb_backup_info");
        // With another number, it is the same log.
        let later = "backup-my.cnf xtrabackup_info aria_log_control aria_log.00000007 ibdata1";
        assert_eq!(lacking(later, texts(full, MARIADB, "")), "");
        // An unused setting of MySQL does not count.
        let mysql = "backup-my.cnf xtrabackup_info ibdata1 mysql.ibd undo_001 undo_002";
        each_counts(mysql, texts(full, MYSQL, "innodb_undo_tablespaces = 7"));
        each_counts("backup-my.cnf xtrabackup_info ibdata1", texts(full, "tool_name = x", ""));
    }

    #[test]
    fn an_increment_has_both_halves_of_every_tablespace() {
        let names = "backup-my.cnf xtrabackup_info aria_log_control aria_log.00000001 ibdata1.delta ibdata1.meta ibd2.meta ibd2.delta undo001.delta undo001.meta undo002.delta undo002.meta d/t.ibd.delta d/t.ibd.meta";
        let kind = "backup_type = incremental";
        each_counts(names, texts(kind, MARIADB, TWO_FILES));
        let few = names.replace("undo001.delta undo001.meta ", "");
        assert_eq!(lacking(&few, texts(kind, MARIADB, TWO_FILES)), "undo001.delta undo001.meta");
        let mysql = "backup-my.cnf xtrabackup_info ibdata1.delta ibdata1.meta mysql.ibd.delta mysql.ibd.meta undo_001.delta undo_001.meta undo_002.delta undo_002.meta d/n.ibd.new.meta d/n.ibd.new.delta";
        each_counts(mysql, texts(kind, MYSQL, ""));
    }

    #[test]
    fn the_positions_are_required_where_the_info_file_repeats_them() {
        let of = |names, info| lacking(names, Texts { info: Some(info), ..Texts::default() });
        let info = "tool_name = x\ninnodb_to_lsn = 5\n";
        assert_eq!(of("a xtrabackup_info", info), "xtrabackup_checkpoints");
        assert_eq!(of("mariadb_backup_info", info), "mariadb_backup_checkpoints");
        // Encrypted, so it cannot be read.
        assert_eq!(of("xtrabackup_info xtrabackup_checkpoints", info), "");
        assert_eq!(of("xtrabackup_info", "tool_name = mariadb-backup\n"), "");
    }

    #[test]
    fn what_cannot_be_read_requires_nothing() {
        assert_eq!(lacking("a", Texts::default()), "");
        let full = Texts { checkpoints: Some("backup_type = full-backuped"), ..Texts::default() };
        assert_eq!(lacking("a", full), "backup-my.cnf xtrabackup_info");
        assert_eq!(lacking("backup-my.cnf xtrabackup_info", full), "");
        assert_eq!(lacking("backup-my.cnf xtrabackup_info mysql.ibd undo_001", full), "undo_002");
    }
}
