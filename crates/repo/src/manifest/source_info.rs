//! Facts about the server and the backup, from the small text files inside a stream and the head of
//! its redo log.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use xb_binlog::NotedPosition;
use xb_pages::RedoStart;
use xb_pipeline::REDO_LOGS;

/// Facts about a backup's source; each is present if the producer's files state it unencrypted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceInfo {
    /// `tool_name` of the info file: mariadb-backup, xtrabackup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// `tool_version` of the info file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_version: Option<String>,
    /// `server_version` of the info file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_version: Option<String>,
    /// `backup_type` of the checkpoints file: full-backuped, incremental, ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup_type: Option<String>,
    /// Log sequence number from which the backup holds changes; 0 in a full one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_lsn: Option<u64>,
    /// Log sequence number of the checkpoint up to which the backup holds changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_lsn: Option<u64>,
    /// Log sequence number up to which prepare applies the redo log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_lsn: Option<u64>,
    /// Log sequence number of the checkpoint at which the backup's redo log begins: every change
    /// before it is in the data files. Earlier versions did not write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redo_start_lsn: Option<u64>,
    /// Binary log position, as the info file writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binlog_pos: Option<NotedPosition>,
    /// The producer was told to take only some of the databases or tables. Earlier versions did not write it.
    #[serde(rename = "partial", default, skip_serializing_if = "std::ops::Not::not")]
    pub is_partial: bool,
    /// Galera position, `UUID:SEQNO`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub galera: Option<String>,
}

/// Bytes of redo log that a server writes without any change, with a margin.
const IDLE_REDO: u64 = 1024;

/// Length limit of one value, in bytes: a set of GTIDs may be long.
const MAX_VALUE: usize = 64 << 10;

impl SourceInfo {
    /// The log sequence number at which the server's checkpoint stood when an increment began and when its base
    /// did, although the server was changed: it has written no checkpoint of these changes since.
    #[must_use]
    pub fn stuck_lsn(&self) -> Option<u64> {
        let (from, to, last) = (self.from_lsn?, self.to_lsn?, self.last_lsn?);
        let start = self.redo_start_lsn.unwrap_or(to);
        let moved = start.checked_sub(from)?;
        (from > 0 && moved <= IDLE_REDO && last.saturating_sub(start) > IDLE_REDO).then_some(start)
    }

    /// Why an increment of this source cannot be applied to `base`, if one of the two is a partial backup and the other is known
    /// to be whole. A whole increment has only the changed pages of the tables that a partial base lacks; a prepare removes
    /// whatever files a partial increment lacks.
    #[must_use]
    pub fn mixes_with(&self, base: &Self) -> Option<&'static str> {
        let is_whole = |of: &Self| !of.is_partial && of.tool_name.is_some();
        match (self.is_partial, base.is_partial) {
            (false, true) if is_whole(self) => Some(
                "a partial backup, without the tables that its producer left out, and this one is not",
            ),
            (true, false) if is_whole(base) => Some(
                "a whole backup, and this one is partial: a restore would lose the tables that it lacks",
            ),
            _ => None,
        }
    }

    /// Extracts the facts from captured files: name to content.
    #[must_use]
    pub fn from_files(files: &BTreeMap<String, Vec<u8>>) -> Self {
        let text = |suffix: &str| {
            ["xtrabackup_", "mariadb_backup_"]
                .iter()
                .find_map(|prefix| files.get(&format!("{prefix}{suffix}")))
                .and_then(|bytes| std::str::from_utf8(bytes).ok())
        };
        let info = |key| text("info").and_then(|t| value(t, key));
        let checkpoint = |key| text("checkpoints").and_then(|t| value(t, key));
        let lsn = |key| checkpoint(key).and_then(|v| v.parse().ok());
        Self {
            tool_name: info("tool_name"),
            tool_version: info("tool_version"),
            server_version: info("server_version"),
            backup_type: checkpoint("backup_type"),
            from_lsn: lsn("from_lsn"),
            to_lsn: lsn("to_lsn"),
            last_lsn: lsn("last_lsn"),
            redo_start_lsn: REDO_LOGS
                .iter()
                .find_map(|name| RedoStart::of_head(files.get(*name)?))
                .map(|start| start.checkpoint),
            binlog_pos: info("binlog_pos").map(NotedPosition::from),
            is_partial: info("partial").is_some_and(|partial| partial.eq_ignore_ascii_case("Y")),
            galera: text("galera_info").and_then(GaleraPosition::parse).map(|at| at.to_string()),
        }
    }
}

/// When a stream was made, from its info file among the captured files: the time in its UUID, which is
/// UTC and which the server made at the end of the backup, else `end_time` as local time of this host.
#[must_use]
pub fn made_at(files: &BTreeMap<String, Vec<u8>>) -> Option<Timestamp> {
    let info = ["xtrabackup_info", "mariadb_backup_info"].iter().find_map(|name| files.get(*name));
    let info = std::str::from_utf8(info?).ok()?;
    let in_uuid = value(info, "uuid").and_then(|uuid| time_of_uuid(&uuid));
    in_uuid.or_else(|| {
        let end: jiff::civil::DateTime = value(info, "end_time")?.parse().ok()?;
        Some(end.to_zoned(TimeZone::system()).ok()?.timestamp())
    })
}

/// Why it is unknown when a stream was made that no program of ours has started: `unread` if it has an info file, but one that
/// cannot be read.
#[must_use]
pub fn why_undated(
    files: &BTreeMap<String, Vec<u8>>,
    unread: bool,
    now: Timestamp,
) -> Option<&'static str> {
    /// An hour for the clock of the server, in seconds.
    const AHEAD: i64 = 3600;
    /// A day and two hours for its time zone, in seconds.
    const ZONES: i64 = 26 * 3600;
    let info = ["xtrabackup_info", "mariadb_backup_info"].iter().find_map(|name| files.get(*name));
    let Some(info) = info else {
        return unread.then_some("its info file is encrypted, or cannot be decompressed");
    };
    let text = std::str::from_utf8(info).unwrap_or_default();
    let states = |key| value(text, key).is_some();
    let in_uuid = value(text, "uuid").and_then(|uuid| time_of_uuid(&uuid)).is_some();
    let latest = now.as_second() + if in_uuid { AHEAD } else { AHEAD + ZONES };
    match made_at(files) {
        Some(made) if made.as_second() > latest => {
            Some("by its info file it was made at a time that is still to come")
        }
        None if text.is_empty() || states("end_time") => {
            Some("its info file states no time that can be read")
        }
        _ => None,
    }
}

/// The time of a UUID of version 1, which counts 100 ns since October 1582.
fn time_of_uuid(uuid: &str) -> Option<Timestamp> {
    /// From October 1582 to 1970, in 100 ns.
    const EPOCH: u64 = 0x01b2_1dd2_1381_4000;
    let mut parts = uuid.split('-').map(|part| (part.len(), u64::from_str_radix(part, 16)));
    let mut part = |len| parts.next().filter(|part| part.0 == len).and_then(|part| part.1.ok());
    let (low, mid, high) = (part(8)?, part(4)?, part(4)?);
    let time = (high & 0xfff) << 48 | mid << 32 | low;
    let since_1970 = time.checked_sub(EPOCH).filter(|_| high >> 12 == 1)?;
    Timestamp::from_second(i64::try_from(since_1970 / 10_000_000).ok()?).ok()
}

/// The value of `key = value` in `text`. A set of GTIDs takes a line for each server, up to the quote that
/// ends it.
fn value(text: &str, key: &str) -> Option<String> {
    let mut lines = text.lines();
    let first = lines.find_map(|line| {
        let (name, value) = line.split_once('=')?;
        (name.trim() == key).then_some(value.trim())
    })?;
    let mut value = first.to_owned();
    if first.ends_with(',') && first.contains('\'') {
        for line in lines.map(str::trim) {
            value.push_str(line);
            if !line.ends_with(',') {
                break;
            }
        }
    }
    (!value.is_empty() && value.len() <= MAX_VALUE).then_some(value)
}

/// Position of a node in the cluster's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GaleraPosition {
    /// UUID of the cluster's history.
    pub uuid: String,
    /// Sequence number of the last write set in the backup.
    pub seqno: i64,
}

impl GaleraPosition {
    /// Parses `UUID:SEQNO`. Newer servers append a domain ID, which is ignored.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (uuid, seqno) = text.split_whitespace().next()?.split_once(':')?;
        let plausible = uuid.len() == 36
            && uuid.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
            && !uuid.bytes().all(|b| b == b'0' || b == b'-');
        let seqno = seqno.parse().ok().filter(|seqno| *seqno >= 0)?;
        plausible.then(|| Self { uuid: uuid.to_owned(), seqno })
    }
}

impl fmt::Display for GaleraPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uuid, self.seqno)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(entries: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
        entries.iter().map(|(n, c)| ((*n).to_owned(), c.as_bytes().to_vec())).collect()
    }

    #[test]
    fn both_families_of_names_are_read() {
        for prefix in ["xtrabackup_", "mariadb_backup_"] {
            let facts = SourceInfo::from_files(&files(&[
                (
                    &format!("{prefix}info"),
                    "tool_name = mariadb-backup\npartial = Y\ntool_version = 10.11.19\nserver_version = 10.11.19-MariaDB\nbinlog_pos = filename 'b.000001', position '342'\n",
                ),
                (
                    &format!("{prefix}checkpoints"),
                    "backup_type = full-backuped\nfrom_lsn = 0\nto_lsn = 46912\nlast_lsn = 46928\n",
                ),
                (&format!("{prefix}galera_info"), "9c9a4c3b-2b3c-11f0-8d3f-7b1b1f0f0a11:42 0\n"),
            ]));
            assert_eq!(facts.server_version.as_deref(), Some("10.11.19-MariaDB"));
            assert!(facts.is_partial);
            let whole = SourceInfo { is_partial: false, ..facts.clone() };
            assert!(facts.mixes_with(&whole).unwrap().starts_with("a whole backup"));
            assert!(whole.mixes_with(&facts).unwrap().starts_with("a partial backup"));
            assert_eq!((whole.mixes_with(&whole), facts.mixes_with(&facts)), (None, None));
            // Without its text, nothing is known.
            let unknown = SourceInfo::default();
            assert_eq!((unknown.mixes_with(&facts), facts.mixes_with(&unknown)), (None, None));
            assert_eq!(
                (facts.from_lsn, facts.to_lsn, facts.last_lsn),
                (Some(0), Some(46912), Some(46928))
            );
            assert_eq!(facts.galera.as_deref(), Some("9c9a4c3b-2b3c-11f0-8d3f-7b1b1f0f0a11:42"));
        }
    }

    #[test]
    fn a_binlog_position_is_stored_as_the_info_file_has_it() {
        for text in
            ["filename 'b.000001', position '342', GTID of the last change '0-1-3'", "later form"]
        {
            let stored = serde_json::json!({ "binlog_pos": text });
            let facts: SourceInfo = serde_json::from_value(stored.clone()).unwrap();
            assert_eq!(serde_json::to_value(&facts).unwrap(), stored);
            let info = format!("binlog_pos = {text}\n");
            assert_eq!(SourceInfo::from_files(&files(&[("xtrabackup_info", &info)])), facts);
        }
    }

    #[test]
    fn a_set_of_gtids_of_several_lines_is_read_to_its_end() {
        let (a, b) =
            ("11111111-2222-3333-4444-555555555555", "66666666-2222-3333-4444-555555555555");
        let info = format!(
            "binlog_pos = filename 'b.000001', position '342', GTID of the last change '{a}:1-5,\n{b}:1-7'\ninnodb_from_lsn = 0\n"
        );
        let facts = SourceInfo::from_files(&files(&[("xtrabackup_info", &info)]));
        let noted = facts.binlog_pos.unwrap();
        assert_eq!(noted.gtids().unwrap().to_string(), format!("{a}:1-5,{b}:1-7"));
        assert!(!noted.as_str().contains("innodb"), "{noted:?}");
        let at = noted.position().cloned();
        assert_eq!(at.as_ref().unwrap().to_string(), "b.000001:342");
        // Without its end, it is no set; the position, at which histories are compared, is the same.
        let cut = info.split_once('\n').unwrap().0;
        let facts = SourceInfo::from_files(&files(&[("xtrabackup_info", cut)]));
        let noted = facts.binlog_pos.unwrap();
        assert_eq!((noted.position().cloned(), noted.gtids()), (at, None));
    }

    #[test]
    fn the_info_file_tells_when_a_stream_was_made() {
        let of =
            |info: &str| made_at(&files(&[("xtrabackup_info", info)])).map(|at| at.to_string());
        let uuid = "uuid = 58e0a7d7-eebc-11d8-9669-0800200c9a66\nend_time = 2020-01-01 00:00:00\n";
        assert_eq!(of(uuid).as_deref(), Some("2004-08-15T13:09:31Z"));
        let local = of("uuid = none\nend_time = 2020-01-01 12:00:00\n").unwrap();
        assert!(local.starts_with("2019-12-31T") || local.starts_with("2020-01-0"), "{local}");
        for bad in
            ["", "end_time = soon", "uuid = 58e0a7d7-eebc-41d8-9669-0800200c9a66", "uuid = --"]
        {
            assert_eq!(of(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_stream_without_a_time_that_can_be_read_is_known_by_its_info_file() {
        let now = "2026-12-01T00:00:00Z".parse().unwrap();
        let why = |info: &str| why_undated(&files(&[("xtrabackup_info", info)]), false, now);
        assert_eq!(why_undated(&files(&[]), false, now), None);
        assert!(why_undated(&files(&[]), true, now).unwrap().contains("encrypted"));
        assert_eq!(why("end_time = 2026-12-01 00:00:05\n"), None);
        assert_eq!(why("end_time = 2026-12-01 14:00:00\n"), None, "another time zone");
        assert!(why("end_time = not a time\n").unwrap().contains("no time"));
        assert!(why("end_time = 2030-01-02 00:00:00\n").unwrap().contains("still to come"));
        // Its clock counts, not its zone.
        let uuid = "uuid = 58e0a7d7-eebc-11d8-9669-0800200c9a66\nend_time = 2030-01-02 00:00:00\n";
        assert_eq!(why(uuid), None);
    }

    #[test]
    fn odd_content_gives_no_facts_and_no_panic() {
        let facts = SourceInfo::from_files(&files(&[
            ("xtrabackup_checkpoints", "to_lsn = many\n=\n\u{0}"),
            ("xtrabackup_galera_info", ":"),
        ]));
        assert_eq!(facts, SourceInfo::default());
        let mut binary = BTreeMap::new();
        binary.insert("xtrabackup_info".to_owned(), vec![0xff, 0xfe]);
        assert_eq!(SourceInfo::from_files(&binary), SourceInfo::default());
    }
}
