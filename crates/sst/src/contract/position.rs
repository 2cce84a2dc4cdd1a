//! Positions in a cluster's history.

use std::fmt;
use std::str::FromStr;

/// Longest accepted text, in bytes.
const MAX: usize = 128;

/// Position in a cluster's history: Galera's state id, `UUID:SEQNO`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateId {
    uuid: String,
    seqno: i64,
}

/// The text is not a state id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a position (UUID:SEQNO)")]
pub struct NoStateId;

impl StateId {
    /// Sequence number in the history; -1 means unknown.
    #[must_use]
    pub fn seqno(&self) -> i64 {
        self.seqno
    }

    /// UUID of the history.
    #[must_use]
    pub fn uuid(&self) -> &str {
        &self.uuid
    }
}

impl FromStr for StateId {
    type Err = NoStateId;

    fn from_str(text: &str) -> Result<Self, NoStateId> {
        if text.len() > MAX {
            return Err(NoStateId);
        }
        let (uuid, seqno) = text.split_once(':').ok_or(NoStateId)?;
        let hyphens = [8, 13, 18, 23];
        let is_uuid = uuid.len() == 36
            && uuid.bytes().enumerate().all(|(at, byte)| match hyphens.contains(&at) {
                true => byte == b'-',
                false => byte.is_ascii_hexdigit(),
            });
        let digits = seqno.strip_prefix('-').unwrap_or(seqno);
        if !is_uuid || digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(NoStateId);
        }
        let seqno = seqno.parse().map_err(|_| NoStateId)?;
        Ok(Self { uuid: uuid.to_ascii_lowercase(), seqno })
    }
}

impl fmt::Display for StateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uuid, self.seqno)
    }
}

/// A state id with the GTID domain that MariaDB appends to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// The state id.
    pub state: StateId,
    /// The domain, if given.
    pub domain: Option<u32>,
}

impl FromStr for Position {
    type Err = NoStateId;

    /// Parses `UUID:SEQNO`, optionally followed by a space and the domain. Ignores everything after
    /// it.
    fn from_str(text: &str) -> Result<Self, NoStateId> {
        let mut words = text.split_ascii_whitespace();
        let state = words.next().ok_or(NoStateId)?.parse()?;
        Ok(Self { state, domain: words.next().and_then(|word| word.parse().ok()) })
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.state)?;
        self.domain.map_or(Ok(()), |domain| write!(f, " {domain}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UUID: &str = "9c9a4c3b-2b3c-11f0-8d3f-7b1b1f0f0a11";

    #[test]
    fn positions_are_read() {
        let position: Position = format!("{UUID}:42 7\n").parse().unwrap();
        assert_eq!((position.state.seqno(), position.domain), (42, Some(7)));
        assert_eq!(position.to_string(), format!("{UUID}:42 7"));
        let none: Position = format!("{UUID}:-1").parse().unwrap();
        assert_eq!((none.state.seqno(), none.domain), (-1, None));
        for wrong in [
            "",
            "x:1",
            UUID,
            &format!("{UUID}:"),
            &format!("{UUID}:+1"),
            &format!("{UUID}:1x"),
            &format!("{UUID}:--1"),
        ] {
            assert!(wrong.parse::<Position>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,60}") {
            let _ = text.parse::<Position>();
        }

        #[test]
        fn shown_values_read_back(seqno: i64, domain: Option<u32>) {
            let position = Position { state: format!("{UUID}:{seqno}").parse().unwrap(), domain };
            prop_assert_eq!(position.to_string().parse(), Ok(position));
        }
    }
}
