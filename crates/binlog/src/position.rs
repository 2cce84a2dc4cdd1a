//! Positions: in a log, in the order of GTIDs, and as backup programs note both.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::any_gtid::AnyGtid;
use crate::gtid_error::GtidError;
use crate::mariadb_gtid::GtidPosition;
use crate::mysql_gtid::GtidSet;

/// A position in a log: the next event begins there, or will.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LogPosition {
    log: Arc<str>,
    offset: u64,
}

impl LogPosition {
    /// Returns a position in the log with this name. `None` if the name is not a plain file name.
    #[must_use]
    pub fn new(log: &str, offset: u64) -> Option<Self> {
        let is_plain = !log.is_empty() && !log.starts_with('.') && !log.contains(['/', '\0']);
        is_plain.then(|| Self { log: log.into(), offset })
    }

    /// Returns another position in the same log.
    #[must_use]
    pub fn at(&self, offset: u64) -> Self {
        Self { log: Arc::clone(&self.log), offset }
    }

    /// Name of the log, without its directory.
    #[must_use]
    pub fn log(&self) -> &str {
        &self.log
    }

    /// Offset in the log, in bytes.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Base name of the log, and its number.
    fn numbered(&self) -> Option<(&str, u64)> {
        let (base, digits) = self.log.rsplit_once('.')?;
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        Some((base, digits.parse().ok().filter(|_| is_number)?))
    }
}

impl PartialOrd for LogPosition {
    /// Compares two positions of one server's logs. `None` if the names do not tell which log is
    /// earlier. Logs of two servers, and of one server before and after `RESET MASTER`, have the same
    /// names: only their content tells them apart.
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        if self.log == other.log {
            return Some(self.offset.cmp(&other.offset));
        }
        let ((base, number), (other_base, other_number)) = (self.numbered()?, other.numbered()?);
        // Two names of one number would be two logs at once.
        let order = number.cmp(&other_number);
        (base == other_base && order != Ordering::Equal).then_some(order)
    }
}

impl fmt::Display for LogPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.log, self.offset)
    }
}

/// The transactions up to a position, by GTIDs. The beginning of every history is empty, and of no fork yet.
#[derive(Debug, Clone, Eq)]
pub enum GtidState {
    /// The last transaction of each domain.
    MariaDb(GtidPosition),
    /// All transactions.
    MySql(GtidSet),
}

impl From<GtidPosition> for GtidState {
    fn from(position: GtidPosition) -> Self {
        Self::MariaDb(position)
    }
}

impl From<GtidSet> for GtidState {
    fn from(set: GtidSet) -> Self {
        Self::MySql(set)
    }
}

impl GtidState {
    /// Returns whether no transaction has happened.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self {
            Self::MariaDb(position) => position.is_empty(),
            Self::MySql(set) => set.is_empty(),
        }
    }

    /// Returns whether a transaction lies at or before this state, if both are of one history.
    #[must_use]
    pub fn contains(&self, gtid: &AnyGtid) -> bool {
        match (self, gtid) {
            (Self::MariaDb(position), AnyGtid::MariaDb(gtid)) => position.is_past(*gtid),
            (Self::MySql(set), AnyGtid::MySql(gtid)) => set.contains(gtid),
            _ => false,
        }
    }

    /// Returns whether a transaction has a higher number than those of its domain or source before it.
    #[must_use]
    pub fn is_in_order(&self, next: &AnyGtid) -> bool {
        match (self, next) {
            (Self::MySql(set), AnyGtid::MySql(next)) => {
                set.last(&next.source).is_none_or(|last| last < next.number)
            }
            _ => !self.contains(next),
        }
    }

    /// Adds the next transaction; false if it is of another fork.
    #[must_use]
    pub fn add(&mut self, gtid: AnyGtid) -> bool {
        if self.is_empty() {
            *self = match gtid {
                AnyGtid::MariaDb(_) => Self::MariaDb(GtidPosition::default()),
                AnyGtid::MySql(_) => Self::MySql(GtidSet::default()),
            };
        }
        match (self, gtid) {
            (Self::MariaDb(position), AnyGtid::MariaDb(gtid)) => position.advance(gtid),
            (Self::MySql(set), AnyGtid::MySql(gtid)) => set.insert(gtid),
            _ => return false,
        }
        true
    }

    /// Adds all transactions of a set of MySQL. A position of MariaDB stays as it is.
    pub fn unite(&mut self, more: &GtidSet) {
        if let Self::MySql(set) = self {
            set.unite(more);
        } else if self.is_empty() && !more.is_empty() {
            *self = Self::MySql(more.clone());
        }
    }

    /// Returns whether every transaction of this state lies at or before `other`, by the numbers alone: those of MariaDB are
    /// compared in each domain, whichever server gave them.
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::MariaDb(one), Self::MariaDb(two)) => one.iter().all(|gtid| {
                two.get(gtid.domain).is_some_and(|last| last.sequence >= gtid.sequence)
            }),
            (Self::MySql(one), Self::MySql(two)) => one.is_subset(two),
            _ => self.is_empty(),
        }
    }
}

impl PartialEq for GtidState {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::MariaDb(one), Self::MariaDb(two)) => one == two,
            (Self::MySql(one), Self::MySql(two)) => one == two,
            _ => self.is_empty() && other.is_empty(),
        }
    }
}

impl FromStr for GtidState {
    type Err = GtidError;

    /// Parses a position of MariaDB, or a set of MySQL: their forms differ.
    fn from_str(text: &str) -> Result<Self, GtidError> {
        match text.contains(':') {
            true => text.parse().map(Self::MySql),
            false => text.parse().map(Self::MariaDb),
        }
    }
}

impl fmt::Display for GtidState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MariaDb(position) => position.fmt(f),
            Self::MySql(set) => set.fmt(f),
        }
    }
}

impl PartialOrd for GtidState {
    /// Compares two states of one history; `None` if neither contains the other.
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::MariaDb(one), Self::MariaDb(two)) => one.partial_cmp(two),
            (Self::MySql(one), Self::MySql(two)) => {
                match (one.is_subset(two), two.is_subset(one)) {
                    (true, true) => Some(Ordering::Equal),
                    (true, false) => Some(Ordering::Less),
                    (false, true) => Some(Ordering::Greater),
                    (false, false) => None,
                }
            }
            _ => (self == other).then_some(Ordering::Equal),
        }
    }
}

/// The position of a backup as its info file has it, `binlog_pos = filename 'bin.000001', position '342',
/// GTID of the last change '0-1-3'`. Any other text is kept, and has no position. Serialized as the text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct NotedPosition {
    text: String,
    position: Option<LogPosition>,
    gtids: Option<GtidState>,
}

impl NotedPosition {
    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the position in the log.
    #[must_use]
    pub fn position(&self) -> Option<&LogPosition> {
        self.position.as_ref()
    }

    /// Returns the GTIDs up to the position; `None` if the text has none, or not all of them.
    #[must_use]
    pub fn gtids(&self) -> Option<&GtidState> {
        self.gtids.as_ref()
    }
}

impl From<String> for NotedPosition {
    fn from(text: String) -> Self {
        let parsed = (|| {
            let (log, rest) = text.strip_prefix("filename '")?.split_once("', position '")?;
            let (offset, rest) = rest.split_once('\'')?;
            let gtids = rest.strip_prefix(", GTID of the last change '");
            let gtids = gtids.and_then(|rest| rest.strip_suffix('\'')?.parse().ok());
            Some((LogPosition::new(log, offset.parse().ok()?)?, gtids))
        })();
        let (position, gtids) = parsed.unzip();
        Self { text, position, gtids: gtids.flatten() }
    }
}

impl From<NotedPosition> for String {
    fn from(noted: NotedPosition) -> Self {
        noted.text
    }
}

#[cfg(test)]
mod tests {
    use Ordering::{Equal, Greater, Less};

    use super::*;

    #[test]
    fn positions_of_one_servers_logs_have_an_order() {
        let at = |log: &str, offset| LogPosition::new(log, offset).unwrap();
        for (one, two, order) in [
            (at("bin.000001", 4), at("bin.000001", 4), Some(Equal)),
            (at("bin.000001", 900), at("bin.000001", 99), Some(Greater)),
            (at("bin.000009", 900), at("bin.000010", 4), Some(Less)),
            // Numbers get longer.
            (at("bin.999999", 4), at("bin.1000000", 4), Some(Less)),
            (at("bin.000001", 4), at("mysql-bin.000001", 4), None),
            (at("bin.000001", 4), at("mysql-bin.000002", 4), None),
            (at("bin.1", 4), at("bin.000001", 4), None),
            (at("bin", 4), at("bin.000001", 4), None),
            (at("bin.old", 4), at("bin.000001", 4), None),
            (at("bin.", 4), at("bin.000001", 4), None),
        ] {
            assert_eq!(one.partial_cmp(&two), order, "{one} {two}");
            assert_eq!(two.partial_cmp(&one), order.map(Ordering::reverse), "{two} {one}");
        }
    }

    #[test]
    fn states_of_two_forks_do_not_compare() {
        let state = |text: &str| text.parse::<GtidState>().unwrap();
        let uuid = "11111111-2222-3333-4444-555555555555";
        let (five, nine) = (format!("{uuid}:1-5"), format!("{uuid}:1-9"));
        assert_eq!(state(&five).partial_cmp(&state(&nine)), Some(Less));
        assert_eq!(state(&nine).partial_cmp(&state(&five)), Some(Greater));
        assert_eq!(state(&five).partial_cmp(&state(&format!("{uuid}:t:1"))), None);
        assert_eq!(state("0-1-5").partial_cmp(&state("0-1-9")), Some(Less));
        assert_eq!(state("0-1-5").partial_cmp(&state(&five)), None);
        // The beginning of a history is of no fork.
        let mut first = state("");
        assert!(first == GtidState::MySql(GtidSet::default()) && first.is_within(&state(&five)));
        assert!(first.add(format!("{uuid}:1").parse().unwrap()));
        assert!(!first.add("0-1-1".parse().unwrap()) && first.is_within(&state(&five)));
        assert!(state("0-1-5").is_within(&state("0-2-5")) && !state("0-1-5").is_within(&first));
        assert_eq!(first.to_string(), format!("{uuid}:1"));
        assert_eq!(state(&five).to_string(), five);
        assert!("0-1".parse::<GtidState>().is_err() && ":1".parse::<GtidState>().is_err());
    }

    #[test]
    fn a_noted_position_names_a_file_and_no_path() {
        let of = |text: &str| {
            let noted = NotedPosition::from(text.to_owned());
            assert_eq!(noted.as_str(), text);
            let position = noted.position().map(ToString::to_string);
            position.map(|at| (at, noted.gtids().map(ToString::to_string).unwrap_or_default()))
        };
        let some = |at: &str, gtids: &str| Some((at.to_owned(), gtids.to_owned()));
        let gtid = "filename 'bin.000001', position '342', GTID of the last change '0-1-3'";
        assert_eq!(of(gtid), some("bin.000001:342", "0-1-3"));
        let uuid = "11111111-2222-3333-4444-555555555555:1-5:t:1";
        let mysql = gtid.replace("0-1-3", uuid);
        assert_eq!(of(&mysql), some("bin.000001:342", uuid));
        assert_eq!(of("filename 'it's.000001', position '4'"), some("it's.000001:4", ""));
        // A set of several lines, of which an info file that is read by lines has the first.
        let cut = mysql.trim_end_matches('\'').to_owned() + ",";
        assert_eq!(of(&cut), some("bin.000001:342", ""));
        for bad in [
            "",
            "filename '', position '4'",
            "filename '../bin.000001', position '4'",
            "filename '/etc/passwd', position '4'",
            "filename '..', position '4'",
            "filename 'bin.000001', position '-4'",
            "filename 'bin.000001', position '99999999999999999999'",
            "filename 'bin.000001', position '4",
            "bin.000001 4",
        ] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}
