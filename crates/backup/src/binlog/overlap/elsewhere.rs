//! Recognises another server by what the archive has: a replica or another node of the same data, whose logs have other
//! names, positions and bytes.
//!
//! The receiver cannot open what is sealed, so the heads of the last segments say it: in each domain of MariaDB, or of each
//! source of MySQL, the GTIDs before and after their transactions, and a digest of what these do.

use xb_binlog::{GtidList, GtidSet, GtidState, Overlap};
use xb_mysql::Client;
use xb_repo::archive::newest::{one_segment_head, stream_head};
use xb_repo::archive::record::Record;
use xb_repo::archive::segment::SegmentHead;
use xb_repo::archive::stream::StreamOrigin;
use xb_repo::root::Root;

use crate::archive_error::ArchiveError;

/// Stretches that are compared, at most; heads that are read for them; and those without a transaction that are passed over, as
/// an idle server makes them with each log.
const STRETCHES: usize = 8;
const HEADS: usize = 64;
const IDLE_HEADS: usize = 1024;

/// The end of the archive.
#[derive(Debug, Clone)]
pub(crate) struct ArchiveEnd {
    /// The last transaction of each domain; of MySQL, all transactions.
    pub(crate) gtids: GtidState,
    /// The last stretches of stored transactions, the oldest first: one for each head that has any.
    pub(crate) stretches: Vec<Overlap>,
}

/// Where a server has the last stretches, by the GTIDs at the beginnings of its logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LogPlace {
    /// In the logs from this one on, if anywhere.
    From(String),
    /// Before its oldest log.
    Purged(String),
    /// Nowhere: it has transactions that are not stored.
    Other(String),
}

impl ArchiveEnd {
    /// Reads what the last segments up to this one say of their transactions; `None` if the last of them do not say it.
    /// Each head names the one before it by its digest, so they are as true as the last one.
    pub(crate) async fn read(
        root: &Root,
        server: &str,
        last: &Record<SegmentHead>,
    ) -> Result<Option<Self>, ArchiveError> {
        let mut heads = vec![last.clone()];
        let mut idle = 0;
        while let Some(head) = heads.last()
            && heads.len() - idle < HEADS
            && idle < IDLE_HEADS
            && stretches(&heads).len() < STRETCHES
        {
            let SegmentHead { stream, number, previous, .. } = &head.content;
            idle += usize::from(head.content.transactions == 0);
            let (found, digest) = match number.checked_sub(1) {
                Some(before) => {
                    (one_segment_head(root, server, stream, before).await?, previous.clone())
                }
                None => {
                    let begun = stream_head(root, server, stream).await?;
                    let begun = begun.filter(|begun| begun.digest == *previous);
                    let Some(StreamOrigin::Continues { after, .. }) =
                        begun.map(|begun| begun.content.begins)
                    else {
                        break;
                    };
                    let found = one_segment_head(root, server, &after.stream, after.number);
                    (found.await?, after.head)
                }
            };
            match found.filter(|found| found.digest == digest) {
                Some(found) => heads.push(found),
                // Those before it may be removed.
                None => break,
            }
        }
        let stretches = stretches(&heads);
        let gtids = match last.content.after() {
            Some(gtids) if has_end(&last.content) => gtids,
            _ => return Ok(None),
        };
        Ok((!stretches.is_empty()).then_some(Self { gtids, stretches }))
    }

    /// Looks where a server with these logs, the oldest first, has the stretches.
    pub(crate) fn look(
        &self,
        client: &mut Client,
        logs: &[(String, u64)],
    ) -> Result<LogPlace, ArchiveError> {
        let mut oldest = LogPlace::Other("it has no logs".to_owned());
        for (log, _) in logs.iter().rev() {
            let begins = gtids_before(client, log)?;
            if self.stretches.first().is_some_and(|first| begins.is_within(first.before())) {
                return Ok(LogPlace::From(log.clone()));
            }
            oldest = self.in_oldest(log, &begins);
        }
        Ok(oldest)
    }

    /// Returns the result for the oldest log, if no log begins before all stretches.
    fn in_oldest(&self, log: &str, begins: &GtidState) -> LogPlace {
        let what = format!(
            "its oldest log, {log}, begins after {begins}, and the archive ends at {}",
            self.gtids
        );
        if self.stretches.iter().any(|stretch| begins.is_within(stretch.before())) {
            return LogPlace::From(log.to_owned());
        }
        match begins.is_within(&self.gtids) || self.gtids.is_within(begins) {
            true => LogPlace::Purged(format!("{what}, so that no transaction can be compared")),
            false => LogPlace::Other(what),
        }
    }
}

/// Whether the place is known up to which a segment at the end of the archive counts. In the stream of an idle server, no
/// transaction ends; then all of it counts, unless one begins in it.
fn has_end(head: &SegmentHead) -> bool {
    head.last.is_some() || !head.ends_inside
}

/// The stretches of heads, the newest first, up to one that does not say enough; the oldest is the first of them.
fn stretches(heads: &[Record<SegmentHead>]) -> Vec<Overlap> {
    let mut found = Vec::new();
    for head in heads.iter().map(|head| &head.content) {
        let (Some(before), Some(stretch)) = (head.before(), head.stretch()) else {
            match head.transactions {
                0 => continue,
                _ => break,
            }
        };
        if stretch.domains().next().is_some() {
            found.push(Overlap::new(before, stretch));
        }
        if found.len() == STRETCHES {
            break;
        }
    }
    found.reverse();
    found
}

/// The GTIDs before a log: its second event, or the third of an encrypted one of MariaDB.
fn gtids_before(client: &mut Client, log: &str) -> Result<GtidState, ArchiveError> {
    let quoted = log.replace(['\'', '\\'], "");
    let rows = client.rows(format!("SHOW BINLOG EVENTS IN '{quoted}' LIMIT 4"))?;
    let state = rows.iter().find_map(|row| {
        let text = |column| Some(String::from_utf8_lossy(row.get(column)?).into_owned());
        let (kind, list) = (text(2)?, text(5)?);
        match &kind[..] {
            "Gtid_list" => {
                let list: String = list.chars().filter(|c| !matches!(c, '[' | ']' | ' ')).collect();
                let list: GtidList = list.parse().ok()?;
                Some(list.position().into())
            }
            "Previous_gtids" => Some(GtidState::MySql(list.parse::<GtidSet>().ok()?)),
            _ => None,
        }
    });
    Ok(state.ok_or(xb_mysql::Error::Unexpected)?)
}

#[cfg(test)]
mod tests {
    use xb_binlog::{DomainStretch, Stretch};

    use super::*;

    fn end() -> ArchiveEnd {
        let stretch = |before: &str, last: &str| {
            let one = DomainStretch::new(last.parse().unwrap(), 1, [7; 32], [("rows", 1)]).unwrap();
            Overlap::new(before.parse().unwrap(), Stretch::of([one]).unwrap())
        };
        ArchiveEnd {
            gtids: "0-2-13".parse().unwrap(),
            stretches: vec![
                stretch("0-1-5", "0-1-9"),
                stretch("0-1-9", "0-2-12"),
                stretch("0-2-12", "0-2-13"),
            ],
        }
    }

    /// Returns the result for the logs of a server, the newest first.
    fn found(logs: &[&str]) -> String {
        let end = end();
        let mut oldest = LogPlace::Other(String::new());
        for (number, begins) in logs.iter().enumerate().rev() {
            let (log, begins) = (format!("bin.{number}"), begins.parse().unwrap());
            if GtidState::is_within(&begins, end.stretches[0].before()) {
                return format!("{:?}", LogPlace::From(log));
            }
            oldest = end.in_oldest(&log, &begins);
        }
        format!("{oldest:?}")
    }

    #[test]
    fn the_newest_log_is_taken_that_begins_before_what_is_compared() {
        let from = |number: u32| format!("From(\"bin.{number}\")");
        for (logs, expected) in [
            (&["", "0-1-3", "0-1-5", "0-1-6"][..], from(2)),
            (&["", "0-1-3", "0-2-14"], from(1)),
            (&[""], from(0)),
            // Only a part of them is there.
            (&["0-1-7", "0-2-20"], from(0)),
            (&["0-2-12", "0-2-15"], from(0)),
        ] {
            assert_eq!(found(logs), expected, "{logs:?}");
        }
        for (logs, kind) in [
            (&["0-2-13"][..], "Purged"),
            (&["0-2-20", "0-2-30"], "Purged"),
            // A domain that the archive does not have, before the oldest log.
            (&["0-1-9,5-3-4"], "Other"),
        ] {
            assert!(found(logs).starts_with(kind), "{logs:?}: {}", found(logs));
        }
    }
}
