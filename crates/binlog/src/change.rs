//! Changes of a transaction, from its events.

use crate::event_type::EventType;
use crate::fields::Fields;
use crate::query::{Query, Verb};

/// MariaDB's event that names the statement of rows.
const ANNOTATE: EventType = EventType(160);

/// A table or a statement of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Rows of this table are changed.
    Table {
        /// Its schema.
        schema: String,
        /// Its name.
        table: String,
    },
    /// A statement. With rows, it is the one that changed them.
    Statement {
        /// Default schema, which may be empty; `None` if this only names what changed the rows that follow.
        schema: Option<String>,
        /// Its first KiB.
        text: Vec<u8>,
        /// Whether it is longer than that.
        is_cut: bool,
    },
}

impl Change {
    /// Bytes of a body that [`Change::read`] looks at.
    pub const NEEDED: usize = 4096;

    /// Reads the body of an event, without its header; its checksum, and what lies behind the first
    /// [`Change::NEEDED`] bytes, may be missing. `None` if the event changes nothing by itself.
    #[must_use]
    pub fn read(event_type: EventType, body: &[u8]) -> Option<Self> {
        let query = match event_type {
            ANNOTATE => return Some(Self::statement(None, body)),
            // A byte for a length, which is not used.
            EventType::ROWS_QUERY => return Some(Self::statement(None, body.get(1..)?)),
            EventType::TABLE_MAP => return table(body),
            EventType::QUERY => Query::decode(body, false)?,
            EventType::QUERY_COMPRESSED => Query::decode(body, true)?,
            EventType::EXECUTE_LOAD_QUERY => Query::decode_load(body)?,
            _ => return None,
        };
        Self::of(&query)
    }

    /// The change that a statement is; `None` if it only begins or ends a transaction.
    #[must_use]
    pub fn of(query: &Query) -> Option<Self> {
        matches!(query.verb, Verb::Other | Verb::XaEnd)
            .then(|| Self::statement(Some(&query.schema), &query.text))
    }

    fn statement(schema: Option<&[u8]>, text: &[u8]) -> Self {
        let kept = text.get(..Query::MAX_TEXT).unwrap_or(text);
        Self::Statement {
            schema: schema.map(|schema| String::from_utf8_lossy(schema).into_owned()),
            text: kept.to_vec(),
            is_cut: text.len() >= Query::MAX_TEXT,
        }
    }
}

/// Number (6), flags (2), then schema and table, each with its length before and a zero behind it.
/// ("TABLE_MAP_EVENT", documentation of MariaDB Server)
fn table(body: &[u8]) -> Option<Change> {
    let mut fields = Fields::new(body);
    fields.bytes(8)?;
    let mut name = || {
        let length = usize::from(fields.u8()?);
        let name = fields.bytes(length)?;
        fields.u8()?;
        Some(String::from_utf8_lossy(name).into_owned())
    };
    Some(Change::Table { schema: name()?, table: name()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A statement without variables: thread, duration, length of the schema, error, length of the variables.
    fn body(load: bool, schema: &str, text: &str) -> Vec<u8> {
        let mut body = vec![0; 8];
        body.push(u8::try_from(schema.len()).unwrap());
        body.extend([0; 4]);
        if load {
            body.extend([0xff; Query::LOAD]);
        }
        body.extend(schema.as_bytes());
        body.push(0);
        body.extend(text.as_bytes());
        body
    }

    #[test]
    fn statements_are_read_wherever_they_stand() {
        for (event_type, load) in [(EventType::QUERY, false), (EventType::EXECUTE_LOAD_QUERY, true)]
        {
            let found = Change::read(event_type, &body(load, "shop", "LOAD DATA x"));
            let Some(Change::Statement { schema, text, is_cut }) = found else { panic!() };
            assert_eq!((schema.as_deref(), &text[..]), (Some("shop"), &b"LOAD DATA x"[..]));
            assert!(!is_cut);
        }
        let long = "x".repeat(5000);
        let found = Change::read(ANNOTATE, long.as_bytes());
        assert!(matches!(found, Some(Change::Statement { text, is_cut: true, .. })
            if text.len() == Query::MAX_TEXT));
        assert_eq!(Change::read(EventType::QUERY, &body(false, "", "COMMIT")), None);
        assert_eq!(Change::read(EventType::EXECUTE_LOAD_QUERY, &[0; 20]), None);
        assert_eq!(Change::read(EventType::TABLE_MAP, &[0; 9]), None);
    }
}
