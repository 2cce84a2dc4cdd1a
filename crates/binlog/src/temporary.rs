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
pub(crate) struct TemporaryTables {
    /// Sessions that have made a temporary table behind the data's position.
    made: BTreeSet<Session>,
    /// Statements of other sessions, which may be on older ones.
    used: BTreeMap<Session, Vec<(LogPosition, Vec<u8>)>>,
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
        self.made.clear();
        self.used.clear();
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
        let mut words = Words::new(text);
        let first: Vec<String> = (0..4).map_while(|_| words.upper()).collect();
        let first: Vec<&str> = first.iter().map(String::as_str).collect();
        match first[..] {
            ["CREATE", "TEMPORARY", ..] | ["CREATE", "OR", "REPLACE", "TEMPORARY"] => {
                self.made.insert(session);
                Ok(Marked::Known)
            }
            ["DROP", "TEMPORARY", ..] => {
                let used = self.used.get(&session).map(Vec::as_slice).unwrap_or_default();
                let lower = text.to_ascii_lowercase();
                let on_it = |statement: &&(LogPosition, Vec<u8>)| {
                    names(&lower).any(|name| contains(&statement.1, name))
                };
                match used.iter().find(on_it) {
                    Some((at, _)) => Err(at.clone()),
                    None => Ok(Marked::Known),
                }
            }
            _ if self.made.contains(&session) => Ok(Marked::Known),
            _ => {
                let lower = text.to_ascii_lowercase();
                if contains(&lower, CONNECTION_ID) {
                    return Ok(Marked::Known);
                }
                if self.used.len() < SESSIONS || self.used.contains_key(&session) {
                    let used = self.used.entry(session).or_default();
                    if used.len() < STATEMENTS {
                        used.push((at.clone(), lower));
                    }
                }
                Ok(Marked::Doubtful)
            }
        }
    }
}

/// The names in backticks.
fn names(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'`').skip(1).step_by(2).filter(|name| !name.is_empty())
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    !part.is_empty() && text.windows(part.len()).any(|window| window == part)
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
        // Of another session, or of a session before the server's start.
        assert_eq!(all(&[(7, insert), (8, drop)]), Ok(vec![Doubtful, Known]));
        assert_eq!(all(&[(7, insert), (0, ""), (7, drop)]), Ok(vec![Doubtful, Known, Known]));
        // The log has it.
        for create in [
            "create temporary table orders (i INT)",
            "CREATE OR REPLACE TEMPORARY TABLE orders SELECT 1",
        ] {
            assert_eq!(all(&[(7, create), (7, insert), (7, drop)]), Ok(vec![Known; 3]));
        }
        // Marked for another reason.
        assert_eq!(
            all(&[(7, "INSERT INTO orders VALUES (Connection_ID())"), (7, drop)]),
            Ok(vec![Known; 2])
        );
        assert_eq!(
            all(&[(7, "INSERT INTO audit SELECT f()"), (7, drop)]),
            Ok(vec![Doubtful, Known])
        );
    }
}
