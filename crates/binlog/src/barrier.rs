//! What a log does not hold, so that no replay gets past it.

use std::fmt;

use crate::event::{Entry, Event};
use crate::event_type::EventType;

/// Why a replay cannot get past an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Barrier {
    /// The server could not write everything; its message.
    Incident(String),
    /// `ALTER TABLE ... DISCARD TABLESPACE` or `IMPORT TABLESPACE`: files that are not in the log.
    Tablespace,
    /// Everything that follows is encrypted.
    Encrypted,
    /// An event of an unknown type that must not be passed over.
    Unknown(EventType),
}

impl Barrier {
    /// Returns why a replay cannot get past an event; `None` if it can. A compressed statement is not
    /// looked into.
    #[must_use]
    pub fn of(entry: &Entry) -> Option<Self> {
        match &entry.event {
            Event::Incident(incident) => Some(Self::Incident(incident.message.clone())),
            Event::StartEncryption => Some(Self::Encrypted),
            Event::Unknown if !entry.header.flags.is_ignorable() => {
                Some(Self::Unknown(entry.header.event_type))
            }
            Event::Query(query) => moves_tablespace(&query.text).then_some(Self::Tablespace),
            _ => None,
        }
    }
}

/// Whether a statement is an `ALTER TABLE` with one of the two words before `TABLESPACE`.
fn moves_tablespace(statement: &[u8]) -> bool {
    let text = String::from_utf8_lossy(statement).to_ascii_uppercase();
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let is_pair = |pair: &[&str]| {
        matches!(pair, [what, object]
            if matches!(*what, "DISCARD" | "IMPORT") && object.starts_with("TABLESPACE"))
    };
    words.contains(&"ALTER") && words.windows(2).any(is_pair)
}

impl fmt::Display for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Incident(message) => {
                write!(f, "the server could not write everything into its log: {message}")
            }
            Self::Tablespace => {
                f.write_str("a statement discards or imports a tablespace, which is not in the log")
            }
            Self::Encrypted => f.write_str("the log is encrypted from here on"),
            Self::Unknown(kind) => write!(f, "an event of the unknown type {}", kind.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_statements_that_move_tablespaces_are_barriers() {
        for text in [
            "ALTER TABLE t DISCARD TABLESPACE",
            "alter table x.t import\n tablespace",
            "/* c */ ALTER TABLE t IMPORT TABLESPACE;",
        ] {
            assert!(moves_tablespace(text.as_bytes()), "{text}");
        }
        for text in [
            "ALTER TABLE t ADD COLUMN tablespace INT",
            "INSERT INTO t VALUES ('DISCARD TABLESPACE')",
            "DISCARD TABLESPACE",
            "ALTER TABLE t DISCARD PARTITION p",
            "",
        ] {
            assert!(!moves_tablespace(text.as_bytes()), "{text}");
        }
    }
}
