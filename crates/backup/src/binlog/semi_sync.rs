//! The archive as a semi-synchronous replica: whether the server waits for it, and since when every commit did.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use xb_mysql::{Access, Client, Row, Timeouts};

use crate::archive_error::ArchiveError;

/// Time limit of each step of a login and of each short statement.
const PATIENCE: Duration = Duration::from_secs(30);

/// Refuses a server that does not wait, or only after others have seen the commit.
pub(super) fn check(client: &mut Client) -> Result<(), ArchiveError> {
    let found = values(client, "SHOW GLOBAL VARIABLES LIKE 'rpl_semi_sync_%'")?;
    let refused = |what: &str| Err(ArchiveError::NoSemiSync(what.to_owned()));
    let either = |name: &str| {
        let names = ["master", "source"].map(|side| format!("rpl_semi_sync_{side}_{name}"));
        names.iter().find_map(|name| found.get(name)).map(String::as_str)
    };
    match (either("enabled"), either("wait_point")) {
        (Some("ON"), Some("AFTER_SYNC")) => Ok(()),
        (Some("ON"), _) => refused("commits are visible before the archive has them"),
        _ => refused("no commit waits for a replica"),
    }
}

/// What a server of MariaDB says about its commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sample {
    /// Seconds since its start.
    uptime: u64,
    /// Commits that did not wait to the end, and how often it gave up waiting.
    not_waited: [u64; 2],
    /// Acknowledgements that it got.
    acknowledged: u64,
    /// The archive is its only semi-synchronous replica, every commit waits, and is durable before that.
    holds: bool,
}

/// Asks a server; `None` if it does not count what is needed, as MySQL.
pub(super) fn sample(access: &Access) -> Result<Option<Sample>, ArchiveError> {
    let timeouts = Timeouts { login: PATIENCE, reply: Some(PATIENCE) };
    let mut client = Client::connect(&access.target, &access.account, timeouts)?;
    let counters = "SHOW GLOBAL STATUS WHERE variable_name = 'Uptime' OR variable_name LIKE 'Rpl_semi_sync_master_%'";
    let settings = "SHOW GLOBAL VARIABLES WHERE variable_name IN ('sync_binlog', \
        'innodb_flush_log_at_trx_commit', 'rpl_semi_sync_master_wait_point')";
    let (status, settings) = (values(&mut client, counters)?, values(&mut client, settings)?);
    let number = |name: &str| status.get(name)?.parse::<u64>().ok();
    let semi = |name: &str| number(&format!("rpl_semi_sync_master_{name}"));
    let is = |name: &str, value: &str| settings.get(name).is_some_and(|found| found == value);
    let is_on = status.get("rpl_semi_sync_master_status").is_some_and(|status| status == "ON");
    let holds = is_on
        && semi("clients") == Some(1)
        && is("rpl_semi_sync_master_wait_point", "AFTER_SYNC")
        && is("sync_binlog", "1")
        && is("innodb_flush_log_at_trx_commit", "1");
    Ok((|| {
        Some(Sample {
            uptime: number("uptime")?,
            not_waited: [semi("no_tx")?, semi("no_times")?],
            acknowledged: semi("get_ack")?,
            holds,
        })
    })())
}

/// Rows of a name and a value, by names in lower case.
fn values(client: &mut Client, sql: &str) -> Result<BTreeMap<String, String>, ArchiveError> {
    let rows = client.rows(sql)?;
    let texts = rows.iter().map(Row::texts);
    let texts = texts.map(|row| row.map(|[name, value]| (name.to_ascii_lowercase(), value)));
    Ok(texts.collect::<Result<_, _>>()?)
}

/// The interval in which every commit waited for the archive, by the deltas of the server's counters.
#[derive(Debug, Default)]
pub(super) struct Claim {
    since: Option<Timestamp>,
    /// The first sample of the interval, with the number of acknowledgements that had been sent before it.
    first: Option<(Sample, u64)>,
    last: Option<Sample>,
}

impl Claim {
    /// Takes a sample that was asked for at `now`, when `before` acknowledgements had been sent; `after` were when it had
    /// come. Returns the interval in which every commit waited.
    pub(super) fn take(
        &mut self,
        sample: Option<Sample>,
        now: Timestamp,
        (before, after): (u64, u64),
    ) -> Option<[Timestamp; 2]> {
        let Some(sample) = sample.filter(|sample| sample.holds) else {
            *self = Self::default();
            return None;
        };
        let continues = self.first.zip(self.last).is_some_and(|((first, sent), last)| {
            let foreign = sample.acknowledged.checked_sub(first.acknowledged);
            sample.uptime >= last.uptime
                && sample.not_waited == first.not_waited
                // More than we have sent came from another replica.
                && foreign.is_some_and(|got| got <= after.saturating_sub(sent))
        });
        if !continues {
            (self.since, self.first) = (Some(now), Some((sample, before)));
        }
        self.last = Some(sample);
        Some([self.since?, now])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_interval_in_which_every_commit_waited_is_claimed() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let good = Sample { uptime: 100, not_waited: [3, 1], acknowledged: 50, holds: true };
        let mut claim = Claim::default();
        assert_eq!(claim.take(Some(good), at(1), (7, 7)), Some([at(1), at(1)]));
        let later = Sample { uptime: 130, acknowledged: 60, ..good };
        assert_eq!(claim.take(Some(later), at(2), (16, 17)), Some([at(1), at(2)]));
        for (bad, sent) in [
            // A commit that did not wait, or was given up.
            (Sample { not_waited: [4, 1], ..later }, 20),
            (Sample { not_waited: [3, 2], ..later }, 20),
            // Another replica has acknowledged.
            (Sample { acknowledged: 90, ..later }, 20),
            // The server was started again, and its counters with it.
            (Sample { uptime: 5, not_waited: [3, 1], ..later }, 20),
            (Sample { acknowledged: 1, ..later }, 20),
        ] {
            let mut claim = Claim::default();
            assert_eq!(claim.take(Some(good), at(1), (7, 7)), Some([at(1), at(1)]));
            assert_eq!(claim.take(Some(later), at(2), (16, 17)), Some([at(1), at(2)]));
            assert_eq!(claim.take(Some(bad), at(3), (sent, sent)), Some([at(3), at(3)]), "{bad:?}");
        }
        for none in [None, Some(Sample { holds: false, ..later })] {
            assert_eq!(claim.take(none, at(4), (17, 17)), None);
            assert_eq!(claim.take(Some(later), at(5), (17, 17)), Some([at(5), at(5)]));
        }
    }
}
