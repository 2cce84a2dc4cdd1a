//! Files that every backup of its kind has, whatever its tables: without one of them, or with one that
//! is empty or says nothing, it cannot be prepared, or lacks changes.

use std::collections::{BTreeMap, BTreeSet};

use crc_fast::{CrcAlgorithm, checksum};

use super::producer_files::{
    ARIA_CONTROL, CHECKPOINTS, DICTIONARY, INFO, POSITIONS, SETTINGS, Texts, field,
    is_same_position, is_unprepared, version_of_mariadb, version_of_xtrabackup,
};

/// Control file of Aria, and the beginning of the names of its log.
const ARIA: [&str; 2] = [ARIA_CONTROL, "aria_log."];
/// Beginning of a control file of Aria: its kind and version. Observed with MariaDB 10.11 and 11.8.
const ARIA_BEGIN: [u8; 4] = [0xfe, 0xfe, 0x0c, 1];
/// Length of such a file, in bytes.
const ARIA_CONTROL_LEN: usize = 52;
/// Shortest Aria log that has a page of records behind its head, in bytes. With a shorter one, mariadb-backup
/// 10.11 prepares without end.
const ARIA_LOG: u64 = 2 * 8192;
/// First version of MariaDB whose system tables are Aria's.
const ARIA_SINCE: (u32, u32) = (10, 4);
/// Definition of the table of accounts. Without that table, a server does not start; a trial starts one
/// that asks for no account.
const ACCOUNTS: &str = "mysql/global_priv.frm";
/// Data of the older table of accounts, which a server of a newer version uses until it is upgraded.
const OLDER_ACCOUNTS: [&str; 2] = ["mysql/user.MYD", "mysql/user.MAD"];
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
    /// Whether the file with the position in the binary log is empty.
    no_position: bool,
    /// Whether a table of accounts was seen.
    accounts: bool,
    /// Files among these that are too short to be of use.
    short: BTreeSet<Vec<u8>>,
    /// Tablespaces of which one half was seen: the suffix of the other one.
    halves: BTreeMap<Vec<u8>, &'static str>,
    /// Whether changed pages of a tablespace were seen.
    pub(super) changed_pages: bool,
}

impl Required {
    /// Notes that the file `name` is complete, with `size` bytes in the stream. `is_bare`: its name has no
    /// suffix of compression or encryption.
    pub(super) fn ended(&mut self, name: &[u8], size: u64, is_bare: bool) {
        self.accounts |=
            OLDER_ACCOUNTS.iter().chain([&ACCOUNTS]).any(|table| table.as_bytes() == name);
        self.no_position |=
            size == 0 && POSITIONS.iter().any(|position| position.as_bytes() == name);
        if !name.contains(&b'/') {
            self.top.insert(name.to_vec());
            // Compressed or encrypted, it has another length, but never none.
            if size < if is_bare { least(name) } else { least(name).min(1) } {
                self.short.insert(name.to_vec());
            }
        }
        self.changed_pages |= name.ends_with(HALVES[0].as_bytes());
        for (suffix, other) in [(HALVES[0], HALVES[1]), (HALVES[1], HALVES[0])] {
            let Some(stem) = name.strip_suffix(suffix.as_bytes()) else { continue };
            if self.halves.get(stem).is_some_and(|wanted| *wanted == suffix) {
                self.halves.remove(stem);
            } else {
                self.halves.insert(stem.to_vec(), other);
            }
        }
    }

    /// The names of the files that the stream lacks, or of which it has no usable content, without
    /// suffixes of compression and encryption. No file is missed in a stream that does not state the kind
    /// of the backup, and none that depends on a text which cannot be read.
    pub(super) fn lacking(&self, texts: Texts<'_>) -> Vec<String> {
        let kind = texts.checkpoints.and_then(|text| field(text, "backup_type"));
        let mut lacking = self.useless(texts);
        lacking.retain(|name| kind.is_some() || !INFO.contains(&name.as_str()));
        let is_incremental = match kind {
            Some("full-backuped" | "log-applied" | "full-prepared") => false,
            Some("incremental") => true,
            _ => {
                lacking.extend(self.positions(texts.info));
                return lacking;
            }
        };
        lacking.extend(self.files(texts).into_iter().filter(|name| !self.has(name)));
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

    /// Files that are there, but too short, or without the words that every producer writes into them, or with
    /// others than their checksum or another file states.
    fn useless(&self, texts: Texts<'_>) -> Vec<String> {
        let texts = Texts { position: texts.position.or(self.no_position.then_some("")), ..texts };
        let number = |text: &str, key: &str| {
            field(text, key).is_some_and(|value| value.parse::<u64>().is_ok())
        };
        let said = [
            (
                self.of_version(CHECKPOINTS),
                texts
                    .checkpoints
                    .is_none_or(|text| number(text, "to_lsn") && is_repeated(text, texts)),
            ),
            (self.of_version(POSITIONS), is_same_position(texts)),
            (ARIA_CONTROL, texts.aria.is_none_or(is_aria_control)),
            (
                self.of_version(INFO),
                texts.info.is_none_or(|text| field(text, "tool_name").is_some()),
            ),
            (SETTINGS, texts.settings.is_none_or(|text| text.contains("[mysqld]"))),
        ];
        let silent =
            said.into_iter().filter(|(_, is_said)| !is_said).map(|(name, _)| name.as_bytes());
        let useless: BTreeSet<_> = self.short.iter().map(Vec::as_slice).chain(silent).collect();
        useless.into_iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
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
            let is_whole = texts.info.and_then(|info| field(info, "partial")) == Some("N");
            files.extend((is_whole && !self.accounts).then(|| ACCOUNTS.to_owned()));
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

/// Returns whether a file, without suffixes of compression and encryption, is of no use if it is empty: a text of the producer,
/// or a file of Aria's log.
pub(crate) fn has_content(name: &[u8]) -> bool {
    least(name) > 0
}

/// The shortest length that a file outside the schemas can have, in bytes. Tablespaces are left to the
/// check of their pages: recovery may create them.
fn least(name: &[u8]) -> u64 {
    let texts = [INFO[0], INFO[1], CHECKPOINTS[0], CHECKPOINTS[1], SETTINGS, ARIA[0]];
    match name.starts_with(ARIA[1].as_bytes()) {
        true => ARIA_LOG,
        false => u64::from(texts.iter().any(|text| text.as_bytes() == name)),
    }
}

/// Whether the info file states the same end as the checkpoints file, if it states any. mariadb-backup writes both before
/// it prepares; the end is where the next increment begins.
fn is_repeated(checkpoints: &str, texts: Texts<'_>) -> bool {
    let Some(info) = texts.info.filter(|info| version_of_mariadb(info).is_some()) else {
        return true;
    };
    let end = |text, key| field(text, key).and_then(|end| end.parse::<u64>().ok());
    let stated = end(info, "innodb_to_lsn").filter(|_| is_unprepared(checkpoints));
    stated.is_none_or(|stated| end(checkpoints, "to_lsn") == Some(stated))
}

/// Returns whether a control file of Aria can be read, or is of another version. It has two parts, each with its checksum: what
/// never changes, and where the log begins.
fn is_aria_control(bytes: &[u8]) -> bool {
    let version = ARIA_BEGIN[3];
    let is_known = bytes.starts_with(&ARIA_BEGIN)
        || bytes.len() == ARIA_CONTROL_LEN && bytes.get(3) == Some(&version);
    if !is_known {
        return true;
    }
    let sound = |at: usize, part: Option<&[u8]>| {
        let stated = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
        let crc = part.map(|part| checksum(CrcAlgorithm::Crc32IsoHdlc, part));
        stated.zip(crc).is_some_and(|(stated, crc)| u64::from(u32::from_le_bytes(*stated)) == crc)
    };
    sound(26, bytes.get(..26)) && sound(30, bytes.get(34..ARIA_CONTROL_LEN))
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
    const TWO_FILES: &str = "[mysqld]\ninnodb_data_file_path=ibdata1:12M;../x/ibd2:10M:autoextend;dev:1Graw\ninnodb_undo_tablespaces=2\n";

    fn lacking(names: &str, texts: Texts<'_>) -> String {
        let mut required = Required::default();
        names.split(' ').for_each(|name| required.ended(name.as_bytes(), ARIA_LOG, true));
        required.lacking(texts).join(" ")
    }

    /// Checkpoints of a backup of this kind.
    fn kind(kind: &str) -> String {
        format!("backup_type = {kind}\nfrom_lsn = 3\nto_lsn = 5\n")
    }

    fn texts<'t>(kind: &'t str, info: &'t str, settings: &'t str) -> Texts<'t> {
        Texts {
            checkpoints: Some(kind),
            info: Some(info),
            settings: Some(settings),
            ..Texts::default()
        }
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
        for of in ["full-backuped", "full-prepared", "log-applied"] {
            each_counts(names, texts(&kind(of), MARIADB, TWO_FILES));
        }
        let full = &*kind("full-backuped");
        let old = "tool_name = mariabackup\ntool_version = 10.3.39-MariaDB\n";
        each_counts("backup-my.cnf xtrabackup_info ibdata1", texts(full, old, "[mysqld]\n"));
        let newer = "backup-my.cnf mariadb_backup_checkpoints ibdata1";
        assert_eq!(lacking(newer, texts(full, old, "[mysqld]")), "mariadb_backup_info");
        // With another number, it is the same log.
        let later = "backup-my.cnf xtrabackup_info aria_log_control aria_log.00000007 ibdata1";
        assert_eq!(lacking(later, texts(full, MARIADB, "[mysqld]")), "");
        // An unused setting of MySQL does not count.
        let mysql = "backup-my.cnf xtrabackup_info ibdata1 mysql.ibd undo_001 undo_002";
        each_counts(mysql, texts(full, MYSQL, "[mysqld]\ninnodb_undo_tablespaces = 7"));
        each_counts(
            "backup-my.cnf xtrabackup_info ibdata1",
            texts(full, "tool_name = x", "[mysqld]"),
        );
    }

    #[test]
    fn a_whole_backup_of_mariadb_has_the_table_of_accounts() {
        let files = "backup-my.cnf xtrabackup_info aria_log_control aria_log.00000001";
        let of = |files: &str, info: &str| {
            let (full, increment) = (kind("full-backuped"), kind("incremental"));
            let next = format!("{files} ibdata1.delta ibdata1.meta");
            let lacks = lacking(&format!("{files} ibdata1"), texts(&full, info, "[mysqld]"));
            assert_eq!(lacking(&next, texts(&increment, info, "[mysqld]")), lacks);
            lacks
        };
        let whole = &*format!("{MARIADB}partial = N\n");
        assert_eq!(of(files, whole), "mysql/global_priv.frm");
        for table in ["global_priv.frm", "user.MYD", "user.MAD"] {
            assert_eq!(of(&format!("{files} mysql/{table}"), whole), "");
        }
        for other in [&whole.replace("= N", "= Y"), MARIADB] {
            assert_eq!(of(files, other), "");
        }
    }

    #[test]
    fn an_increment_has_both_halves_of_every_tablespace() {
        let names = "backup-my.cnf xtrabackup_info aria_log_control aria_log.00000001 ibdata1.delta ibdata1.meta ibd2.meta ibd2.delta undo001.delta undo001.meta undo002.delta undo002.meta d/t.ibd.delta d/t.ibd.meta";
        let kind = &*kind("incremental");
        each_counts(names, texts(kind, MARIADB, TWO_FILES));
        let few = names.replace("undo001.delta undo001.meta ", "");
        assert_eq!(lacking(&few, texts(kind, MARIADB, TWO_FILES)), "undo001.delta undo001.meta");
        let mysql = "backup-my.cnf xtrabackup_info ibdata1.delta ibdata1.meta mysql.ibd.delta mysql.ibd.meta undo_001.delta undo_001.meta undo_002.delta undo_002.meta d/n.ibd.new.meta d/n.ibd.new.delta";
        each_counts(mysql, texts(kind, MYSQL, "[mysqld]"));
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
    fn a_file_without_usable_content_counts_as_missing() {
        let names = "backup-my.cnf xtrabackup_info aria_log_control aria_log.00000001 aria_log.00000002 ibdata1";
        let kind = kind("full-backuped");
        let whole = texts(&kind, MARIADB, "[mysqld]");
        assert_eq!(lacking(names, whole), "");
        for (short, size) in [
            ("backup-my.cnf", 0),
            ("xtrabackup_info", 0),
            ("aria_log_control", 0),
            ("aria_log.00000001", ARIA_LOG - 1),
            ("aria_log.00000002", 0),
        ] {
            let lacking = |is_bare| {
                let mut required = Required::default();
                for name in names.split(' ') {
                    let size = if name == short { size } else { ARIA_LOG };
                    required.ended(name.as_bytes(), size, is_bare);
                }
                required.lacking(whole).join(" ")
            };
            // Of compressed bytes, only none at all says something.
            let compressed = if size == 0 { short } else { "" };
            assert_eq!((&*lacking(true), &*lacking(false)), (short, compressed));
        }
        let mut empty = Required::default();
        empty.ended(b"xtrabackup_checkpoints", 0, true);
        assert_eq!(empty.lacking(Texts::default()), ["xtrabackup_checkpoints"]);
        for (name, texts) in [
            ("xtrabackup_checkpoints", texts("", MARIADB, "[mysqld]")),
            (
                "xtrabackup_checkpoints",
                texts("backup_type = full-backuped\nto_ls", MARIADB, "[mysqld]"),
            ),
            ("xtrabackup_info", texts(&kind, "uuid = 1", "[mysqld]")),
            ("backup-my.cnf", texts(&kind, MARIADB, "\0\0\0")),
        ] {
            assert_eq!(lacking(names, texts), name);
        }
    }

    #[test]
    fn the_end_that_mariadb_backup_states_is_in_both_files() {
        let names = "backup-my.cnf xtrabackup_info xtrabackup_checkpoints aria_log_control aria_log.00000001 ibdata1 ibdata1.delta ibdata1.meta";
        let of = |kind: &str, info: &str| lacking(names, texts(kind, info, "[mysqld]"));
        let info = |to: &str| format!("{MARIADB}innodb_from_lsn = 3\ninnodb_to_lsn = {to}\n");
        for unprepared in ["full-backuped", "incremental"] {
            let kind = kind(unprepared);
            assert_eq!(of(&kind, &info("5")), "");
            assert_eq!(of(&kind, &info("50")), "xtrabackup_checkpoints");
            // Nothing is known of other programs, and of words that are no numbers.
            assert_eq!(of(&kind, &info("")), "");
            let other = info("50").replace("mariadb-backup", "xtrabackup").replace("10.11", "8.0");
            assert!(!of(&kind, &other).contains("checkpoints"));
        }
        assert_eq!(of(&kind("full-prepared"), &info("50")), "");
    }

    #[test]
    fn the_position_that_mariadb_backup_states_is_in_both_files() {
        let names = "backup-my.cnf xtrabackup_info xtrabackup_binlog_info aria_log_control aria_log.00000001 ibdata1";
        let kind = kind("full-backuped");
        let of = |position, noted: &str| {
            let info = format!("{MARIADB}binlog_pos = {noted}\n");
            lacking(names, Texts { position, ..texts(&kind, &info, "[mysqld]") })
        };
        let noted = "filename 'b.000002', position '334', GTID of the last change '0-7-55'";
        let sound = "b.000002\t334\t0-7-55\n";
        for noted in [noted, "filename 'b.000002', position '334'", "", "unknown"] {
            assert_eq!(of(Some(sound), noted), "", "{noted}");
        }
        assert_eq!(of(None, noted), "");
        for other in ["", "b.000009\t334\t0-7-55\n", "b.000002\t335\t0-7-55\n", "b.000002\n"] {
            assert_eq!(of(Some(other), noted), "xtrabackup_binlog_info", "{other:?}");
        }
        let mut empty = Required::default();
        empty.ended(b"xtrabackup_binlog_info", 0, true);
        let info = format!("{MARIADB}binlog_pos = {noted}\n");
        let lacking_with =
            |position| empty.lacking(Texts { position, ..texts("", &info, "[mysqld]") }).join(" ");
        assert!(lacking_with(None).contains("xtrabackup_binlog_info"));
        assert!(!lacking_with(Some(sound)).contains("binlog_info"));
        let info = format!("{MYSQL}binlog_pos = {noted}\n");
        let mysql = Texts { position: Some(""), ..texts(&kind, &info, "[mysqld]") };
        assert!(!lacking(names, mysql).contains("binlog_info"));
    }

    #[test]
    fn a_control_file_of_aria_has_two_sound_parts() {
        // Of MariaDB 11.8.
        let sound: Vec<u8> = b"\xfe\xfe\x0c\x01\x56\x1e\xb1\x5e\xea\x04\x11\xf1\xa9\x48\x02\xfc\0\0\0\x01\x1e\0\x16\0\0\x20\x99\x81\x35\x70\x76\x3a\xc1\x9d\x01\0\0\x02\x48\x06\0\x01\0\0\0\x1b\x01\0\0\0\0\0".to_vec();
        assert!(is_aria_control(&sound));
        for len in 4..sound.len() {
            assert!(!is_aria_control(&sound[..len]), "{len}");
        }
        for bit in 0..sound.len() * 8 {
            let mut damaged = sound.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            // It may be of another version.
            assert_eq!(is_aria_control(&damaged), bit / 8 == 3, "bit {bit}");
        }
        let kind = kind("full-backuped");
        let names = "backup-my.cnf xtrabackup_info aria_log_control aria_log.00000001 ibdata1";
        let whole = texts(&kind, MARIADB, "[mysqld]");
        assert_eq!(lacking(names, Texts { aria: Some(&sound), ..whole }), "");
        assert_eq!(lacking(names, Texts { aria: Some(&sound[1..]), ..whole }), "");
        assert_eq!(lacking(names, Texts { aria: Some(&sound[..51]), ..whole }), "aria_log_control");
    }

    #[test]
    fn an_unreadable_file_requires_nothing() {
        assert_eq!(lacking("a", Texts::default()), "");
        let kind = kind("full-backuped");
        let full = Texts { checkpoints: Some(&kind), ..Texts::default() };
        assert_eq!(lacking("a", full), "backup-my.cnf xtrabackup_info");
        assert_eq!(lacking("backup-my.cnf xtrabackup_info", full), "");
        assert_eq!(lacking("backup-my.cnf xtrabackup_info mysql.ibd undo_001", full), "undo_002");
    }
}
