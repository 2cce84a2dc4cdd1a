//! Temporary tables that existed at the data's position. They are in no backup, so a statement on one that has the name of a real
//! table would change that. Servers mark the statements that depend on their session: those on its temporary tables, and those
//! that call `CONNECTION_ID()`, in a routine perhaps. When the session ends, they log that its tables go, by name.

use std::collections::{BTreeMap, BTreeSet};

use crate::position::LogPosition;
use crate::words::Words;

/// Sessions whose statements are kept, and statements of each.
const SESSIONS: usize = 1000;
const STATEMENTS: usize = 16;
/// Another reason of the mark.
const CONNECTION_ID: &[u8] = b"connection_id";

/// A session: the server, and the number of its thread.
pub(crate) type Session = (u32, u32);

/// What the marked statements of a log show.
#[derive(Debug, Default)]
pub(crate) struct TemporaryTables(BTreeMap<Session, SessionTables>);

#[derive(Debug, Default)]
struct SessionTables {
    /// Names of the tables that it has made behind the data's position, in lower case.
    made: BTreeSet<Vec<u8>>,
    /// Its first other statements.
    used: Vec<Used>,
}

#[derive(Debug)]
struct Used {
    at: LogPosition,
    /// In lower case.
    text: Vec<u8>,
    /// The names in it of tables that the session had made.
    made: Vec<Vec<u8>>,
}

impl Used {
    /// Whether it may be on a table of this name that the session has not made.
    fn is_on(&self, name: &[u8]) -> bool {
        has_word(&self.text, name) && !self.made.iter().any(|made| made == name)
    }
}

/// A marked statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Marked {
    /// It is on a table that the replay makes, or on none.
    Known,
    /// It may be on a temporary table that the data lacks.
    Doubtful,
}

impl TemporaryTables {
    /// A server has started: its sessions have ended.
    pub(crate) fn server_started(&mut self) {
        self.0.clear();
    }

    /// Takes the beginning of a marked statement.
    ///
    /// # Errors
    /// The position of a statement on a temporary table that the data lacks.
    pub(crate) fn statement(
        &mut self,
        session: Session,
        text: &[u8],
        at: &LogPosition,
    ) -> Result<Marked, LogPosition> {
        let text = text.to_ascii_lowercase();
        if self.0.len() >= SESSIONS && !self.0.contains_key(&session) {
            return Ok(Marked::Doubtful);
        }
        let tables = self.0.entry(session).or_default();
        let mut words = Words::new(&text);
        let first: Vec<String> = (0..4).map_while(|_| words.upper()).collect();
        let first: Vec<&str> = first.iter().map(String::as_str).collect();
        match first[..] {
            ["CREATE", "TEMPORARY", ..] | ["CREATE", "OR", "REPLACE", "TEMPORARY"] => {
                let Some(name) = made(&text) else { return Ok(Marked::Doubtful) };
                // With IF NOT EXISTS, an older one may be there.
                let is_new = !contains(&text, b"if not exists");
                let was_made = !tables.made.insert(name);
                Ok(if is_new || was_made { Marked::Known } else { Marked::Doubtful })
            }
            ["DROP", "TEMPORARY", ..] => {
                for name in names(&text) {
                    if tables.made.remove(name) {
                        continue;
                    }
                    if let Some(used) = tables.used.iter().find(|used| used.is_on(name)) {
                        return Err(used.at.clone());
                    }
                }
                Ok(Marked::Known)
            }
            _ => {
                let made = tables.made.iter().filter(|name| has_word(&text, name));
                let made: Vec<Vec<u8>> = made.cloned().collect();
                // On what the session has made, or on none.
                let is_known = !made.is_empty() || contains(&text, CONNECTION_ID);
                if tables.used.len() < STATEMENTS {
                    tables.used.push(Used { at: at.clone(), text, made });
                }
                Ok(if is_known { Marked::Known } else { Marked::Doubtful })
            }
        }
    }
}

/// The name of the table that a statement makes, without its schema.
fn made(text: &[u8]) -> Option<Vec<u8>> {
    let at = text.windows(6).position(|window| window == b" table")? + 6;
    let mut rest = text.get(at..)?.trim_ascii_start();
    rest = rest.strip_prefix(b"if not exists").unwrap_or(rest).trim_ascii_start();
    let end = rest.iter().position(|byte| b" (\t\r\n".contains(byte)).unwrap_or(rest.len());
    let name = rest.get(..end)?.rsplit(|byte| *byte == b'.').next()?;
    let name: Vec<u8> = name.iter().copied().filter(|byte| *byte != b'`').collect();
    (!name.is_empty()).then_some(name)
}

/// The names in backticks, without those of schemas before them.
fn names(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut parts = text.split(|byte| *byte == b'`').skip(1);
    std::iter::from_fn(move || {
        loop {
            let name = parts.next()?;
            let is_schema = parts.next().is_some_and(|behind| behind == b".");
            if !is_schema && !name.is_empty() {
                return Some(name);
            }
        }
    })
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    positions(text, part).next().is_some()
}

/// Whether a name stands in a text, and not as a part of a longer one.
fn has_word(text: &[u8], name: &[u8]) -> bool {
    let is_of_name = |byte: Option<&u8>| {
        byte.is_some_and(|byte| {
            byte.is_ascii_alphanumeric() || b"_$".contains(byte) || *byte >= 0x80
        })
    };
    positions(text, name).any(|at| {
        let before = at.checked_sub(1).and_then(|at| text.get(at));
        !is_of_name(before) && !is_of_name(text.get(at + name.len()))
    })
}

fn positions<'t>(text: &'t [u8], part: &'t [u8]) -> impl Iterator<Item = usize> + 't {
    let windows = text.windows(part.len().max(1)).enumerate();
    windows.filter(move |(_, window)| *window == part).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(offset: u64) -> LogPosition {
        LogPosition::new("bin.000001", offset).unwrap()
    }

    fn all(statements: &[(u32, &str)]) -> Result<Vec<Marked>, LogPosition> {
        let mut tables = TemporaryTables::default();
        let each = statements.iter().zip(1_u64..);
        each.map(|((thread, text), n)| {
            if text.is_empty() {
                tables.server_started();
                return Ok(Marked::Known);
            }
            tables.statement((1, *thread), text.as_bytes(), &at(n))
        })
        .collect()
    }

    #[test]
    fn a_statement_on_a_temporary_table_that_no_backup_has_is_found() {
        use Marked::{Doubtful, Known};
        let drop = "DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `Orders`,`other`";
        let insert = "INSERT INTO orders VALUES (1)";
        assert_eq!(all(&[(7, insert)]), Ok(vec![Doubtful]));
        assert_eq!(all(&[(7, insert), (7, drop)]), Err(at(1)));
        let of_schema = "DROP TEMPORARY TABLE IF EXISTS `orders`.`t` /* generated by server */";
        assert_eq!(all(&[(7, insert), (7, of_schema)]), Ok(vec![Doubtful, Known]));
        // Of another session, or of a session before the server's start.
        assert_eq!(all(&[(7, insert), (8, drop)]), Ok(vec![Doubtful, Known]));
        assert_eq!(all(&[(7, insert), (0, ""), (7, drop)]), Ok(vec![Doubtful, Known, Known]));
        // The log has it.
        for create in [
            "create temporary table orders (i INT)",
            "CREATE TEMPORARY TABLE `s`.`ORDERS`(i INT)",
            "CREATE OR REPLACE TEMPORARY TABLE orders SELECT 1",
        ] {
            assert_eq!(all(&[(7, create), (7, insert), (7, drop)]), Ok(vec![Known; 3]));
        }
        // An older table of a session that makes others, too.
        let other = "CREATE TEMPORARY TABLE s.other (i INT)";
        assert_eq!(all(&[(7, other), (7, insert), (7, drop)]), Err(at(2)));
        let again = "CREATE TEMPORARY TABLE IF NOT EXISTS `orders` (i INT)";
        assert_eq!(all(&[(7, again)]), Ok(vec![Doubtful]));
        assert_eq!(all(&[(7, "DELETE FROM orders_2"), (7, drop)]), Ok(vec![Doubtful, Known]));
        // A table that is made, and dropped if it is there, again and again.
        let round =
            [(7, drop), (7, "CREATE TEMPORARY TABLE orders (i INT)"), (7, insert), (7, drop)];
        assert_eq!(all(&[round, round].concat()), Ok(vec![Known; 8]));
        // Marked for another reason, or for both.
        let both = "INSERT INTO orders VALUES (Connection_ID())";
        assert_eq!(all(&[(7, both)]), Ok(vec![Known]));
        assert_eq!(all(&[(7, both), (7, drop)]), Err(at(1)));
        assert_eq!(
            all(&[(7, "INSERT INTO audit SELECT f()"), (7, drop)]),
            Ok(vec![Doubtful, Known])
        );
    }
}
