//! GTIDs of MariaDB: one transaction, a position in every domain, and the state of a binary log.
//!
//! A GTID is `DOMAIN-SERVER-SEQUENCE`. Within a domain, transactions have one order, and a position
//! is the last GTID of each domain. Sequence numbers may jump, so a position is no set: that a
//! number is smaller does not prove that the transaction exists. ("Global Transaction ID",
//! documentation of MariaDB Server)

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::gtid_error::GtidError;

/// Identity of one transaction of MariaDB. Orders by domain, then by sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gtid {
    /// Replication domain.
    pub domain: u32,
    /// Number of the transaction within its domain.
    pub sequence: u64,
    /// `server_id` of the server on which the transaction was first committed.
    pub server: u32,
}

impl fmt::Display for Gtid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.domain, self.server, self.sequence)
    }
}

impl FromStr for Gtid {
    type Err = GtidError;

    /// Parses `DOMAIN-SERVER-SEQUENCE`, decimal.
    fn from_str(text: &str) -> Result<Self, GtidError> {
        let mut parts = text.trim().splitn(3, '-');
        let mut next = || parts.next().filter(|digits| is_digits(digits));
        let parsed = (|| {
            let domain = next()?.parse().ok()?;
            let server = next()?.parse().ok()?;
            Some(Self { domain, server, sequence: next()?.parse().ok()? })
        })();
        parsed.ok_or_else(|| GtidError::mariadb(text))
    }
}

/// Returns whether a text has digits only: `parse` would also accept a sign.
fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Parses GTIDs that commas separate. An empty text has none.
fn parse_list(text: &str) -> Result<Vec<Gtid>, GtidError> {
    match text.trim() {
        "" => Ok(Vec::new()),
        text => text.split(',').map(str::parse).collect(),
    }
}

/// Prints GTIDs with commas between them.
fn write_list<'a>(f: &mut fmt::Formatter<'_>, list: impl Iterator<Item = &'a Gtid>) -> fmt::Result {
    for (n, gtid) in list.enumerate() {
        let comma = if n == 0 { "" } else { "," };
        write!(f, "{comma}{gtid}")?;
    }
    Ok(())
}

/// A position of MariaDB, as in `gtid_binlog_pos` and `gtid_slave_pos`: the last transaction of each
/// domain. The empty position is before everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct GtidPosition(BTreeMap<u32, Gtid>);

impl GtidPosition {
    /// Returns the last transaction of a domain.
    #[must_use]
    pub fn get(&self, domain: u32) -> Option<Gtid> {
        self.0.get(&domain).copied()
    }

    /// Returns the last transactions, by domain.
    pub fn iter(&self) -> impl Iterator<Item = &Gtid> {
        self.0.values()
    }

    /// Returns whether no transaction has happened in any domain.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Moves to a transaction: it is now the last one of its domain.
    pub fn advance(&mut self, gtid: Gtid) {
        self.0.insert(gtid.domain, gtid);
    }

    /// Returns whether a transaction lies at or before this position, if both are of one history.
    #[must_use]
    pub fn is_past(&self, gtid: Gtid) -> bool {
        self.get(gtid.domain).is_some_and(|last| last.sequence >= gtid.sequence)
    }
}

impl PartialOrd for GtidPosition {
    /// Compares two positions of one history. `None` if each is ahead in some domain, or if a domain
    /// has the same number from two servers: those are two histories.
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        let mut result = Ordering::Equal;
        for domain in self.0.keys().chain(other.0.keys()) {
            let (one, two) = (self.get(*domain), other.get(*domain));
            let order = one.map(|gtid| gtid.sequence).cmp(&two.map(|gtid| gtid.sequence));
            match (order, result) {
                (Ordering::Equal, _) if one != two => return None,
                (Ordering::Equal, _) => {}
                (order, Ordering::Equal) => result = order,
                (order, before) if order != before => return None,
                _ => {}
            }
        }
        Some(result)
    }
}

impl fmt::Display for GtidPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_list(f, self.0.values())
    }
}

impl FromStr for GtidPosition {
    type Err = GtidError;

    /// Parses GTIDs that commas separate, at most one of each domain.
    fn from_str(text: &str) -> Result<Self, GtidError> {
        let mut position = Self::default();
        for gtid in parse_list(text)? {
            if position.0.insert(gtid.domain, gtid).is_some() {
                return Err(GtidError::Domain { domain: gtid.domain });
            }
        }
        Ok(position)
    }
}

/// State of a binary log of MariaDB, as in `gtid_binlog_state` and in the list at the beginning of
/// each log: the last transaction of each server in each domain. Within a domain, the newest one
/// comes last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct GtidList(Vec<Gtid>);

impl GtidList {
    pub(crate) fn new(list: Vec<Gtid>) -> Self {
        Self(list)
    }

    /// Returns the transactions in the order of the list.
    #[must_use]
    pub fn as_slice(&self) -> &[Gtid] {
        &self.0
    }

    /// Returns the last transaction of each domain.
    #[must_use]
    pub fn position(&self) -> GtidPosition {
        let mut position = GtidPosition::default();
        self.0.iter().for_each(|gtid| position.advance(*gtid));
        position
    }
}

impl fmt::Display for GtidList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_list(f, self.0.iter())
    }
}

impl FromStr for GtidList {
    type Err = GtidError;

    /// Parses GTIDs that commas separate.
    fn from_str(text: &str) -> Result<Self, GtidError> {
        parse_list(text).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(text: &str) -> GtidPosition {
        text.parse().unwrap()
    }

    #[test]
    fn gtids_are_parsed_and_printed_alike() {
        for text in ["0-1-5", "7-4294967295-18446744073709551615"] {
            assert_eq!(text.parse::<Gtid>().unwrap().to_string(), text);
        }
        for bad in ["", "0-1", "0-1-", "0-1-2-3", "0--1-2", "+0-1-2", "4294967296-1-1", "a-1-1"] {
            assert!(bad.parse::<Gtid>().is_err(), "{bad}");
        }
        assert_eq!(position(" 7-77-2, 0-1-31 ").to_string(), "0-1-31,7-77-2");
        assert_eq!(position("").to_string(), "");
        let twice = "0-1-31,0-2-32".parse::<GtidPosition>();
        assert_eq!(twice, Err(GtidError::Domain { domain: 0 }));
        assert!("0-1-31,".parse::<GtidPosition>().is_err());
    }

    #[test]
    fn the_last_entry_of_a_domain_is_its_position() {
        let list: GtidList = "0-5-7,0-1-29,7-77-2".parse().unwrap();
        assert_eq!(list.position(), position("0-1-29,7-77-2"));
        assert_eq!(list.to_string(), "0-5-7,0-1-29,7-77-2");
    }

    #[test]
    fn positions_compare_only_within_one_history() {
        use Ordering::{Equal, Greater, Less};
        for (one, two, order) in [
            ("", "", Some(Equal)),
            ("", "0-1-1", Some(Less)),
            ("0-1-2", "0-1-1", Some(Greater)),
            ("0-1-2,7-1-1", "0-1-1,7-1-1", Some(Greater)),
            ("0-1-2,7-1-1", "0-1-1,7-1-2", None),
            ("0-1-2", "7-1-1", None),
            // After a failover, the number of the other server counts on.
            ("0-2-3", "0-1-2", Some(Greater)),
            ("0-1-2", "0-2-2", None),
        ] {
            assert_eq!(position(one).partial_cmp(&position(two)), order, "{one} {two}");
            let reverse = order.map(Ordering::reverse);
            assert_eq!(position(two).partial_cmp(&position(one)), reverse, "{two} {one}");
        }
        let at = position("0-1-2");
        assert!(at.is_past("0-1-2".parse().unwrap()) && !at.is_past("0-1-3".parse().unwrap()));
        assert!(!at.is_past("1-1-1".parse().unwrap()));
    }
}
