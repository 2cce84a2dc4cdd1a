//! Judges whether a server still continues the history in which a backup was taken.
//!
//! An increment on a base of another history is consistent in all its numbers and restores wrong
//! data: a server that was restored from an older backup passes the base's log position again, with
//! other changes. So positions prove nothing, and neither do GTIDs: replayed binary logs repeat
//! them. Compared is what is equal in one history only:
//!
//! - the redo log. A restored server creates a new file, with another birth time and inode; so does a
//!   server whose log was resized or upgraded;
//! - the binary log: its bytes at its beginning and before the base's position, with the times and
//!   checksums of the events. It may survive a restore of the data directory, so it does not
//!   replace the redo log, but tells a resized log from a restored one;
//! - the server's UUID (MySQL), which is not part of a backup.
//!
//! A tablespace that was imported is no part of that history either: its pages have the log positions of another server.

use crate::manifest::Manifest;
use crate::manifest::history::{History, RedoLog};

/// Relation of a server's history to that of a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The server continues the backup's history.
    Same,
    /// It most likely does: the base has no evidence, but the redo log is older than the base.
    Likely(String),
    /// The evidence does not tell.
    Unknown(String),
    /// The server does not continue it.
    Other(String),
}

/// A base was refused, because the server does not continue its history, or because that is unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the new backup cannot be based on {base}: {what}")]
pub struct NotContinued {
    /// Name of the base.
    pub base: String,
    /// The evidence, or what is missing.
    pub what: String,
    /// Whether the evidence shows another history: then the user cannot accept the base.
    pub is_certain: bool,
}

impl NotContinued {
    /// Returns advice for the operator.
    pub fn hint(&self) -> &'static str {
        match self.is_certain {
            true => {
                "take a full backup: leave out --incremental-from, or add --or-full to do so whenever no base fits"
            }
            false => {
                "take a full backup with --or-full; or add --accept-history if you know that the server was neither restored nor replaced since the base was taken"
            }
        }
    }
}

/// Judges whether a server with the evidence `now`, collected after `base` was taken, continues the
/// history of `base`.
pub fn judge(base: &Manifest, now: Option<&History>) -> Verdict {
    let Some(now) = now else {
        return Verdict::Unknown("nothing is known about the server's history".into());
    };
    let Some(then) = &base.history else { return judge_without_evidence(base, now) };
    if let (Some(theirs), Some(ours)) = (&then.server_uuid, &now.server_uuid)
        && theirs != ours
    {
        return Verdict::Other(format!("its server had the UUID {theirs}, this one has {ours}"));
    }
    if let Some(table) = &now.imported {
        return Verdict::Other(format!(
            "the tablespace of {table} was imported since then (ALTER TABLE ... IMPORT TABLESPACE), and its pages would be in no increment"
        ));
    }
    let redo = then.redo.as_ref().zip(now.redo.as_ref());
    let is_same_log = redo.and_then(|(theirs, ours)| theirs.is(ours));
    let end = base.source.last_lsn.or(base.source.to_lsn);
    let created = redo.and_then(|(_, ours)| ours.created_lsn);
    // A log that was created after the base begins where the base ends, or later.
    if let Some((RedoLog { created_lsn: Some(before), .. }, _)) = redo
        && let (Some(created), Some(end)) = (created, end)
        && created != *before
        && created < end
    {
        return Verdict::Other(format!(
            "the server's redo log was created at LSN {created}, before the base ends at {end}, and is not the log of that time: the server was restored from an older backup"
        ));
    }
    let binlog = then.binlog.as_ref().zip(now.binlog_at_base.as_ref());
    let is_same_binlog = binlog.map(|(theirs, ours)| theirs == ours);
    let unknown = |what: &str| Verdict::Unknown(what.to_owned());
    match (is_same_log, is_same_binlog) {
        (_, Some(false)) => {
            unknown("the binary log holds different events before the base's position")
        }
        (Some(true), _) => Verdict::Same,
        (Some(false), Some(true))
            if then.data_file.is_some()
                && then.data_file == now.data_file
                && created.zip(end).is_some_and(|(created, end)| created >= end) =>
        {
            Verdict::Same
        }
        (Some(false), _) => unknown(
            "the server has a different redo log now: the log was resized, the server upgraded, moved or restored",
        ),
        (None, _) => unknown("the redo logs of that time and of today cannot be compared"),
    }
}

/// Judges a base without evidence, such as one of an earlier version: its server, if it is named, was
/// not restored since the base was taken if the redo log is older.
fn judge_without_evidence(base: &Manifest, now: &History) -> Verdict {
    let born = now.redo.as_ref().and_then(|redo| redo.file).map(|file| file.born);
    let base_has = "the base has no evidence of its history";
    match born {
        _ if base.server.is_none() => {
            Verdict::Unknown(format!("{base_has}, and its server is not named"))
        }
        Some(born) if born < base.started => {
            Verdict::Likely(format!("{base_has}, but the server's redo log is older than the base"))
        }
        Some(_) => Verdict::Unknown(format!(
            "{base_has}, and the server's redo log is newer than the base"
        )),
        None => {
            Verdict::Unknown(format!("{base_has}, and the age of the server's redo log is unknown"))
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use xb_binlog::LogDigest;

    use super::*;
    use crate::manifest::history::FileBirth;
    use crate::manifest::sample;

    fn file(inode: u64, born: i64) -> Option<FileBirth> {
        Some(FileBirth { inode, born: Timestamp::from_second(born).unwrap() })
    }

    fn log(inode: u64, born: i64, created: u64) -> Option<RedoLog> {
        Some(RedoLog { file: file(inode, born), created_lsn: Some(created), number: None })
    }

    /// A backup that ends at LSN 1000, of a server whose log was created at 100.
    fn base() -> Manifest {
        let mut base = sample();
        (base.source.to_lsn, base.source.last_lsn) = (Some(900), Some(1000));
        base.started = Timestamp::from_second(500).unwrap();
        base.history = Some(History {
            redo: log(1, 10, 100),
            data_file: file(2, 10),
            binlog: Some("aa".into()),
            ..History::default()
        });
        base
    }

    /// The same server later.
    fn later() -> History {
        History {
            binlog: Some("bb".into()),
            binlog_at_base: Some("aa".into()),
            ..base().history.unwrap()
        }
    }

    fn word(verdict: &Verdict) -> &'static str {
        match verdict {
            Verdict::Same => "same",
            Verdict::Likely(_) => "likely",
            Verdict::Unknown(_) => "unknown",
            Verdict::Other(_) => "other",
        }
    }

    #[test]
    fn the_same_server_continues_whatever_else_has_happened_to_it() {
        let cases: [(&str, History, &str); 13] = [
            ("nothing", later(), "same"),
            ("purged its binary log", History { binlog_at_base: None, ..later() }, "same"),
            (
                "reset its binary log",
                History { binlog_at_base: Some("cc".into()), ..later() },
                "unknown",
            ),
            (
                "rolled back with its volume",
                History { binlog_at_base: Some(LogDigest::Shorter), ..later() },
                "unknown",
            ),
            ("resized its log", History { redo: log(7, 600, 1000), ..later() }, "same"),
            (
                "resized its log, purged the other",
                History { redo: log(7, 600, 1000), binlog_at_base: None, ..later() },
                "unknown",
            ),
            (
                "resized its log, reset the other",
                History { redo: log(7, 600, 2000), binlog_at_base: Some("cc".into()), ..later() },
                "unknown",
            ),
            // The binary log lies in another directory, and is still there.
            (
                "restored from an older backup",
                History { redo: log(1, 600, 800), data_file: file(2, 600), ..later() },
                "other",
            ),
            (
                "restored, files replaced in place",
                History { redo: log(7, 600, 800), ..later() },
                "other",
            ),
            (
                "restored, then resized",
                History { redo: log(7, 700, 3000), data_file: file(2, 600), ..later() },
                "unknown",
            ),
            // A copied log keeps its header.
            (
                "moved to another disk",
                History { redo: log(7, 600, 100), data_file: file(8, 600), ..later() },
                "unknown",
            ),
            ("cannot be looked at", History::default(), "unknown"),
            ("imported", History { imported: Some("shop/price".into()), ..later() }, "other"),
        ];
        for (what, now, expected) in cases {
            let verdict = judge(&base(), Some(&now));
            assert_eq!(word(&verdict), expected, "{what}: {verdict:?}");
        }
        assert_eq!(word(&judge(&base(), None)), "unknown");
    }

    #[test]
    fn a_server_without_a_binary_log_is_known_by_its_redo_log() {
        let mut base = base();
        base.history.as_mut().unwrap().binlog = None;
        let now = History { binlog: None, binlog_at_base: None, ..later() };
        assert_eq!(judge(&base, Some(&now)), Verdict::Same);
        let restored = History { redo: log(1, 600, 800), ..now.clone() };
        assert_eq!(word(&judge(&base, Some(&restored))), "other");
        // Two restores of one backup: equal positions, another file.
        let again = History { redo: log(1, 600, 100), ..now.clone() };
        assert_eq!(word(&judge(&base, Some(&again))), "unknown");
        let unread = History { redo: None, ..now };
        assert_eq!(word(&judge(&base, Some(&unread))), "unknown");
    }

    #[test]
    fn mysql_is_known_by_its_uuid_and_the_number_of_its_log() {
        let of = |uuid: &str, number| History {
            server_uuid: Some(uuid.into()),
            redo: Some(RedoLog { number: Some(number), ..RedoLog::default() }),
            ..History::default()
        };
        let mut base = base();
        base.history = Some(of("u", 7));
        assert_eq!(judge(&base, Some(&of("u", 7))), Verdict::Same);
        assert_eq!(word(&judge(&base, Some(&of("v", 7)))), "other");
        assert_eq!(word(&judge(&base, Some(&of("u", 8)))), "unknown");
    }

    #[test]
    fn a_base_of_an_earlier_version_is_judged_by_the_age_of_the_log() {
        let mut base = base();
        (base.history, base.server) = (None, Some("db1".into()));
        assert_eq!(word(&judge(&base, Some(&later()))), "likely");
        // A stream from anywhere.
        let piped = Manifest { server: None, ..base.clone() };
        assert_eq!(word(&judge(&piped, Some(&later()))), "unknown");
        let restored = History { redo: log(7, 600, 800), ..later() };
        assert_eq!(word(&judge(&base, Some(&restored))), "unknown");
        assert_eq!(word(&judge(&base, Some(&History::default()))), "unknown");
    }

    #[test]
    fn earlier_manifests_have_no_evidence_and_later_ones_may_have_more() {
        let text = serde_json::to_string(&base()).unwrap();
        assert_eq!(serde_json::from_str::<Manifest>(&text).unwrap(), base());
        let more = text.replace(r#""binlog":"aa""#, r#""binlog":"aa","cluster":{"x":1}"#);
        assert_ne!(more, text);
        assert_eq!(serde_json::from_str::<Manifest>(&more).unwrap(), base());
        assert!(!serde_json::to_string(&sample()).unwrap().contains("history"));
    }
}
