//! The archive as a semi-synchronous replica: whether the server waits for it, and since when every commit did.

use jiff::Timestamp;
use xb_mysql::{Access, Client, Timeouts};

use crate::archive_error::ArchiveError;
use crate::binlog::source::log_request::LOGIN_LIMIT;
use crate::binlog::source::write_access::{Values, values};

/// Both names of the server's side.
const SIDES: [&str; 2] = ["master", "source"];

/// Says if a server does not wait, or only after others have seen the commit.
pub(crate) fn missing(client: &mut Client) -> Result<Option<&'static str>, ArchiveError> {
    let found = values(client, "SHOW GLOBAL VARIABLES LIKE 'rpl_semi_sync_%'")?;
    Ok(match (of_side(&found, "enabled"), of_side(&found, "wait_point")) {
        (Some("ON"), Some("AFTER_SYNC")) => None,
        (Some("ON"), _) => Some("commits are visible before the archive has them"),
        _ => Some("no commit waits for a replica"),
    })
}

/// State of the commits of a server of MariaDB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Seconds since its start.
    uptime: u64,
    /// When its counters were set back, in seconds of its uptime.
    flushed: u64,
    /// Commits that did not wait to the end, and how often it gave up waiting.
    not_waited: [u64; 2],
    /// Commits that waited.
    waited: u64,
    /// Replicas that have ever come.
    registered: u64,
    /// Acknowledgements that it got.
    acknowledged: u64,
    /// It is the server that sends the log, the archive is its only semi-synchronous replica, every commit waits, and is
    /// durable before that.
    holds: bool,
}

/// A sample, and the times before and after.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimedSample {
    sample: Sample,
    between: [Timestamp; 2],
}

impl TimedSample {
    /// Asks a server, which should have the variables `who`; `None` if it does not count what is needed, as MySQL: replicas
    /// that came and went.
    pub(crate) fn of(access: &Access, who: &Values) -> Result<Option<Self>, ArchiveError> {
        let timeouts = Timeouts { login: LOGIN_LIMIT, reply: Some(LOGIN_LIMIT) };
        let mut client = Client::connect(&access.target, &access.account, timeouts)?;
        let before = Timestamp::now();
        let settings = values(
            &mut client,
            "SHOW GLOBAL VARIABLES WHERE variable_name IN ('sync_binlog', \
            'innodb_flush_log_at_trx_commit', 'server_id', 'hostname', 'port') \
            OR variable_name LIKE 'rpl_semi_sync_%_wait_point'",
        )?;
        let status = values(
            &mut client,
            "SHOW GLOBAL STATUS WHERE variable_name LIKE 'Uptime%' \
            OR variable_name LIKE 'Rpl_semi_sync_master_%' OR variable_name = 'Slave_connections'",
        )?;
        let between = [before, Timestamp::now()];
        Ok(Sample::of(&status, &settings, who).map(|sample| Self { sample, between }))
    }
}

impl Sample {
    fn of(status: &Values, settings: &Values, who: &Values) -> Option<Self> {
        let number = |name: &str| status.get(name)?.parse::<u64>().ok();
        let counter = |name: &str| of_side(status, name)?.parse::<u64>().ok();
        let is = |name: &str, value: &str| settings.get(name).is_some_and(|found| found == value);
        let holds = of_side(status, "status") == Some("ON")
            && counter("clients") == Some(1)
            && of_side(settings, "wait_point") == Some("AFTER_SYNC")
            && is("sync_binlog", "1")
            && is("innodb_flush_log_at_trx_commit", "1")
            && who.iter().all(|(name, value)| is(name, value));
        let uptime = number("uptime")?;
        Some(Self {
            uptime,
            flushed: uptime.checked_sub(number("uptime_since_flush_status")?)?,
            not_waited: [counter("no_tx")?, counter("no_times")?],
            waited: counter("yes_tx")?,
            registered: number("slave_connections")?,
            acknowledged: counter("get_ack")?,
            holds,
        })
    }
}

/// A value of the server's side, whichever name that has.
fn of_side<'a>(values: &'a Values, name: &str) -> Option<&'a str> {
    let names = SIDES.map(|side| format!("rpl_semi_sync_{side}_{name}"));
    names.iter().find_map(|name| values.get(name)).map(String::as_str)
}

/// The interval in which every commit waited for the archive, by the deltas of the server's counters.
#[derive(Debug, Default)]
pub(crate) struct Claim {
    since: Option<Timestamp>,
    /// The first sample of the interval, with the number of acknowledgements that had been sent before it.
    first: Option<(Sample, u64)>,
    last: Option<Sample>,
}

impl Claim {
    /// Takes a sample; `before` and `after` are the numbers of acknowledgements sent when it was requested, and when it
    /// arrived. Returns the interval in which every commit waited: from behind the first sample to before this one.
    pub(crate) fn take(
        &mut self,
        asked: Option<TimedSample>,
        (before, after): (u64, u64),
    ) -> Option<[Timestamp; 2]> {
        let Some(TimedSample { sample, between }) = asked.filter(|asked| asked.sample.holds) else {
            *self = Self::default();
            return None;
        };
        let continues = self.first.zip(self.last).is_some_and(|((first, sent), last)| {
            sample.uptime >= last.uptime
                // Both are whole seconds.
                && sample.flushed.abs_diff(first.flushed) <= 1
                && sample.not_waited == first.not_waited
                && sample.waited >= last.waited
                // Another replica may have connected, and ended its connection.
                && sample.registered == first.registered
                // More than we have sent came from another replica.
                && sample.acknowledged >= last.acknowledged
                && sample.acknowledged.saturating_sub(first.acknowledged) <= after.saturating_sub(sent)
        });
        if !continues {
            (self.since, self.first) = (Some(between[1]), Some((sample, before)));
        }
        self.last = Some(sample);
        let since = self.since?;
        Some([since, between[0].max(since)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn asked(sample: Sample, second: i64) -> Option<TimedSample> {
        Some(TimedSample { sample, between: [at(second * 10), at(second * 10 + 1)] })
    }

    #[test]
    fn only_an_interval_in_which_every_commit_waited_is_claimed() {
        let good = Sample {
            uptime: 100,
            flushed: 7,
            not_waited: [3, 1],
            waited: 40,
            registered: 2,
            acknowledged: 50,
            holds: true,
        };
        let later = Sample { uptime: 130, waited: 50, acknowledged: 60, ..good };
        for (bad, sent) in [
            // A commit that did not wait, or was given up.
            (Sample { not_waited: [4, 1], ..later }, 20),
            (Sample { not_waited: [3, 2], ..later }, 20),
            // Another replica has connected, and may have ended its connection; or has acknowledged.
            (Sample { registered: 3, ..later }, 20),
            (Sample { acknowledged: 90, ..later }, 20),
            // The server was started again, or its counters were set back.
            (Sample { uptime: 5, flushed: 0, ..later }, 20),
            (Sample { flushed: 120, ..later }, 20),
            (Sample { not_waited: [2, 1], ..later }, 20),
            (Sample { not_waited: [3, 0], ..later }, 20),
            (Sample { waited: 49, ..later }, 20),
            (Sample { registered: 1, ..later }, 20),
            (Sample { acknowledged: 59, ..later }, 20),
        ] {
            let mut claim = Claim::default();
            // Commits during the first sample may not have waited, nor those after the last.
            assert_eq!(claim.take(asked(good, 1), (7, 7)), Some([at(11), at(11)]));
            assert_eq!(claim.take(asked(later, 2), (16, 17)), Some([at(11), at(20)]));
            assert_eq!(claim.take(asked(bad, 3), (sent, sent)), Some([at(31), at(31)]), "{bad:?}");
        }
        let mut claim = Claim::default();
        for none in [None, asked(Sample { holds: false, ..later }, 4)] {
            assert_eq!(claim.take(asked(later, 3), (17, 17)), Some([at(31), at(31)]));
            assert_eq!(claim.take(none, (17, 17)), None);
        }
    }

    #[test]
    fn a_sample_holds_only_if_the_archive_alone_decides() {
        let values = |pairs: &[(&str, &str)]| -> Values {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let status = values(&[
            ("rpl_semi_sync_master_status", "ON"),
            ("rpl_semi_sync_master_clients", "1"),
            ("rpl_semi_sync_master_no_tx", "2"),
            ("rpl_semi_sync_master_no_times", "1"),
            ("rpl_semi_sync_master_yes_tx", "9"),
            ("rpl_semi_sync_master_get_ack", "9"),
            ("slave_connections", "1"),
            ("uptime", "90"),
            ("uptime_since_flush_status", "80"),
        ]);
        let settings = values(&[
            ("rpl_semi_sync_master_wait_point", "AFTER_SYNC"),
            ("sync_binlog", "1"),
            ("innodb_flush_log_at_trx_commit", "1"),
            ("server_id", "3"),
            ("hostname", "db1"),
            ("port", "3306"),
        ]);
        let who = values(&[("server_id", "3"), ("hostname", "db1"), ("port", "3306")]);
        let of = |status: &Values, settings: &Values| {
            Sample::of(status, settings, &who).map(|one| one.holds)
        };
        let with = |values: &Values, name: &str, value: &str| {
            assert!(values.contains_key(name));
            let mut values = values.clone();
            values.insert(name.to_owned(), value.to_owned());
            values
        };
        assert_eq!(of(&status, &settings), Some(true));
        for (name, value) in [
            ("rpl_semi_sync_master_status", "OFF"),
            ("rpl_semi_sync_master_clients", "0"),
            ("rpl_semi_sync_master_clients", "2"),
        ] {
            assert_eq!(of(&with(&status, name, value), &settings), Some(false));
        }
        for (name, value) in [
            ("rpl_semi_sync_master_wait_point", "AFTER_COMMIT"),
            ("sync_binlog", "0"),
            ("innodb_flush_log_at_trx_commit", "2"),
            // The name of the server leads to another one.
            ("server_id", "4"),
            ("hostname", "db2"),
            ("port", "3307"),
        ] {
            assert_eq!(of(&status, &with(&settings, name, value)), Some(false));
        }
        // A missing counter is unknown.
        for name in
            status.keys().filter(|name| !name.ends_with("status") && !name.ends_with("clients"))
        {
            let mut less = status.clone();
            less.remove(name);
            assert_eq!(of(&less, &settings), None, "{name}");
        }
        assert_eq!(of(&with(&status, "uptime_since_flush_status", "91"), &settings), None);
    }
}
