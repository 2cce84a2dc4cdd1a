//! Stop of a restore, and the search for it among the transactions.

use std::fmt;
use std::str::FromStr;

use jiff::{Timestamp, Unit};
use xb_binlog::{AnyGtid, LogPosition};

use crate::archive::plan_error::PlanError;

/// Stop of a restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestoreStop {
    /// At the end of the archive.
    Latest,
    /// Before the first transaction whose commit has a later time.
    Time(Timestamp),
    /// After this transaction.
    Gtid(AnyGtid),
    /// Before this transaction.
    BeforeGtid(AnyGtid),
    /// At this position, which must lie between two transactions.
    Position(LogPosition),
}

/// A stop that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a stop: give a time with its zone (2026-11-20T09:14:59Z), a GTID (0-1-26, UUID:26), before:GTID, FILE:POSITION, or latest"
)]
pub struct StopError(String);

impl FromStr for RestoreStop {
    type Err = StopError;

    fn from_str(text: &str) -> Result<Self, StopError> {
        let error = || StopError(text.to_owned());
        if text == "latest" {
            return Ok(Self::Latest);
        }
        if let Some(gtid) = text.strip_prefix("before:") {
            return gtid.parse().map(Self::BeforeGtid).map_err(|_| error());
        }
        // A date looks like a GTID, and is not a stop: it has neither an hour nor a zone.
        if text.parse::<jiff::civil::Date>().is_ok() && !text.contains(':') {
            return Err(error());
        }
        if let Ok(gtid) = text.parse() {
            return Ok(Self::Gtid(gtid));
        }
        // A time without a zone is none: it would mean another moment on another host.
        if let Ok(time) = text.parse() {
            return Ok(Self::Time(time));
        }
        let (log, offset) = text.rsplit_once(':').ok_or_else(error)?;
        // The names of logs end with a number. Without one, it would be the hour of a time that lacks its zone.
        let is_log = log.rsplit_once('.').is_some_and(|(_, number)| is_number(number));
        let offset =
            offset.parse().ok().filter(|_| is_number(offset) && is_log && !log.contains(':'));
        offset
            .and_then(|offset| LogPosition::new(log, offset))
            .map(Self::Position)
            .ok_or_else(error)
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

impl fmt::Display for RestoreStop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Latest => f.write_str("latest"),
            Self::Time(time) => time.fmt(f),
            Self::Gtid(gtid) => gtid.fmt(f),
            Self::BeforeGtid(gtid) => write!(f, "before:{gtid}"),
            Self::Position(position) => position.fmt(f),
        }
    }
}

/// Tells by the times of the transactions before a place whether it lies behind a stop by time, whatever another clock
/// said there.
#[derive(Debug, Clone)]
pub struct TimesBefore {
    stop: Timestamp,
    /// Transactions with a later time, less those behind them without one.
    later: u64,
    /// The latest of these times, in microseconds since 1970.
    latest: i64,
}

impl TimesBefore {
    /// Begins before all transactions.
    #[must_use]
    pub fn new(stop: Timestamp) -> Self {
        Self { stop, later: 0, latest: 0 }
    }

    /// Takes the next transactions, the latest of which has this time, in microseconds since 1970. They are in a segment with
    /// this [`clock`](crate::archive::listed_segment::ListedSegment::clock): a time that is ahead of it says nothing.
    pub fn take(&mut self, count: u64, micros: u64, clock: i64) {
        let micros = i64::try_from(micros).unwrap_or(i64::MAX);
        if micros / 1_000_000 > clock {
            return;
        }
        if micros > self.stop.as_microsecond() {
            self.later = self.later.saturating_add(count);
            self.latest = self.latest.max(micros);
        } else {
            self.later = self.later.saturating_sub(count);
        }
    }

    /// Returns the latest time before the place, if that lies behind the stop. It does not if as many transactions follow
    /// whose times are not later: the clocks were wrong for a while.
    #[must_use]
    pub fn behind(&self) -> Option<Timestamp> {
        Timestamp::from_microsecond(self.latest).ok().filter(|_| self.later > 0)
    }

    /// The error of a backup at this place, if that lies behind the stop.
    ///
    /// # Errors
    /// [`PlanError::BeforeBackup`].
    pub fn check(&self, position: &LogPosition) -> Result<(), PlanError> {
        match self.behind() {
            None => Ok(()),
            Some(latest) => {
                let (stop, latest) = (self.stop, latest.round(Unit::Second).unwrap_or(latest));
                let backup = format!(
                    "{position} (after a transaction of {latest}, unless the server's clock was ahead then; a stop by GTID needs no clock)"
                );
                Err(PlanError::BeforeBackup { stop: stop.to_string(), backup })
            }
        }
    }
}

/// Finds the stop among the transactions of a piece.
#[derive(Debug, Clone)]
pub struct Cutter {
    stop: RestoreStop,
    is_after: bool,
    /// Transactions that were taken though their time is later than the stop, less those behind them that show that it
    /// is wrong.
    doubts: u64,
}

impl Cutter {
    /// Returns a cutter at the beginning of a replay.
    #[must_use]
    pub fn new(stop: &RestoreStop) -> Self {
        Self { stop: stop.clone(), is_after: false, doubts: 0 }
    }

    /// Returns whether a transaction was taken that may lie behind the stop: its time is later, and ahead of the receiver's
    /// clock. Either its time is wrong, or the clocks of server and receiver differ. Each later transaction whose time is
    /// neither shows of one that its time was wrong: a session has set it. A single one shows no more than that, because a
    /// statement that runs for long has the time of its beginning.
    #[must_use]
    pub fn is_doubtful(&self) -> bool {
        self.doubts > 0
    }

    /// Returns whether a transaction was not taken, or was the last one.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        self.is_after
    }

    /// Returns whether the replay takes the next transaction in the order of commits: with its first byte at `begin`,
    /// this time of its commit in microseconds since 1970, and in a segment with this
    /// [`clock`](crate::archive::listed_segment::ListedSegment::clock). After the first that it does not take, it takes none.
    pub fn takes(&mut self, begin: &LogPosition, gtid: &AnyGtid, micros: u64, clock: i64) -> bool {
        if self.is_after {
            return false;
        }
        let micros = i64::try_from(micros).unwrap_or(i64::MAX);
        let takes = match &self.stop {
            RestoreStop::Latest => true,
            RestoreStop::Time(time) => {
                let (is_later, is_ahead) =
                    (micros > time.as_microsecond(), micros / 1_000_000 > clock);
                self.doubts = match (is_later, is_ahead) {
                    (true, true) => self.doubts.saturating_add(1),
                    (false, false) => self.doubts.saturating_sub(1),
                    _ => self.doubts,
                };
                !is_later || is_ahead
            }
            RestoreStop::Position(at) => begin.log() != at.log() || begin.offset() < at.offset(),
            RestoreStop::BeforeGtid(stop) => gtid != stop,
            RestoreStop::Gtid(stop) => {
                self.is_after = gtid == stop;
                return true;
            }
        };
        self.is_after = !takes;
        takes
    }
}
