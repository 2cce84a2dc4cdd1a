//! Statements whose result may differ when they run again. Nothing in the log shows it but their text.
//!
//! Seen with MariaDB 10.11.19, which gives no error in any of these cases.

use std::fmt;

use crate::query::Query;
use crate::words::{Token, Words};

/// Functions whose result is in no log. A server that chooses the format of each statement (`MIXED`) logs rows in their place.
const HIDDEN: [&str; 22] = [
    "CURRVAL",
    "FOUND_ROWS",
    "GET_LOCK",
    "LASTVAL",
    "LOAD_FILE",
    "NEXTVAL",
    "RANDOM_BYTES",
    "RELEASE_LOCK",
    "ROW_COUNT",
    "SESSION_USER",
    "SETVAL",
    "SYSDATE",
    "SYSTEM_USER",
    "SYS_GUID",
    "USER",
    "UUID",
    "UUID_SHORT",
    "UUID_V4",
    "UUID_V7",
    "VERSION",
    "CURRENT_USER",
    "CURRENT_ROLE",
];
/// Those of them that need no parentheses.
const BARE: [&str; 5] = ["CURRENT_USER", "CURRENT_ROLE", "NEXTVAL", "CURRVAL", "LASTVAL"];
/// Further ones, whose results are logged beside a change of rows, but not beside the definition of a column.
const UNLOGGED_IN_DEFINITIONS: [&str; 2] = ["RAND", "CONNECTION_ID"];
/// What a session has drawn from a sequence.
const DRAWN: [&str; 2] = ["LASTVAL", "CURRVAL"];
/// Words before the name of a table or an index, which may be that of a function, with `(` behind it.
const BEFORE_NAMES: [&str; 12] = [
    "DELAYED",
    "HIGH_PRIORITY",
    "IGNORE",
    "INDEX",
    "INSERT",
    "INTO",
    "KEY",
    "LOW_PRIORITY",
    "REFERENCES",
    "REPLACE",
    "TABLE",
    "WITH",
];
/// First words of statements that change rows. A server that chooses the format logs rows if one has a `LIMIT`.
const CHANGES: [&str; 5] = ["DELETE", "INSERT", "REPLACE", "UPDATE", "WITH"];
/// First words of statements that change no rows themselves.
const DEFINITIONS: [&str; 14] = [
    "ANALYZE",
    "CREATE",
    "DROP",
    "FLUSH",
    "GRANT",
    "OPTIMIZE",
    "RELEASE",
    "RENAME",
    "REPAIR",
    "REVOKE",
    "ROLLBACK",
    "SAVEPOINT",
    "SET",
    "TRUNCATE",
];

/// Why the result of a statement may differ in a replay, without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum StatementDoubt {
    /// It depends on its session, and may be on a temporary table that the data lacks.
    TemporaryTable,
    /// The log sets a user variable twice before it. A function or a trigger may read and set it, and reads only the last value
    /// in a replay.
    UserVariable,
    /// It fills a new column with results of a function that no log has.
    NewColumn,
    /// It gives a column a default that depends on what a session has drawn from a sequence.
    SequenceDefault,
    /// It uses a variable of a stored program. The log has a literal in its place: of a `FLOAT`
    /// a rounded one, and of other types one of a different type.
    ProgramVariable,
    /// It calls a function whose result no log has, or has a `LIMIT`, and was logged as a statement
    /// (`binlog_format=STATEMENT`).
    Function,
}

impl fmt::Display for StatementDoubt {
    /// Continues "the statement at POSITION".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TemporaryTable => {
                "depends on its session, and may be on a temporary table that existed when the backup was taken"
            }
            Self::UserVariable => {
                "has a user variable that the log sets twice, so a function or a trigger may read and set it, and would see a different value in a replay (set binlog_format=ROW)"
            }
            Self::NewColumn => {
                "may fill a new column with results of a function that no log has, such as UUID(): compare that column with the server's"
            }
            Self::SequenceDefault => {
                "gives a column a default that depends on the session, such as LASTVAL(): rows that later statements insert may get a different value (set binlog_format=ROW)"
            }
            Self::ProgramVariable => {
                "uses a variable of a stored program, which the log may have rounded or with a different type (set binlog_format=ROW)"
            }
            Self::Function => {
                "calls a function whose result no log has, such as UUID() or USER(), or has a LIMIT (set binlog_format=ROW)"
            }
        })
    }
}

/// Returns why the result of a statement may differ in a replay, as far as its text shows it.
pub(crate) fn doubt(query: &Query) -> Option<StatementDoubt> {
    let mut words = Words::quoted(&query.text, query.quoting);
    let tokens: Vec<Token<'_>> = std::iter::from_fn(|| words.token()).collect();
    let first = tokens.iter().find_map(word).unwrap_or_default();
    let is_table = tokens.iter().filter_map(word).take(5).any(|word| word == "TABLE");
    // Behind the part that is kept, there may be another one.
    let is_unsure = first == "CREATE" && is_table || query.is_cut();
    if has_program_variable(&tokens, is_unsure) {
        return Some(StatementDoubt::ProgramVariable);
    }
    let default = tokens.iter().position(|token| is(token, "DEFAULT"));
    let defaults = default.and_then(|at| tokens.get(at..)).unwrap_or_default();
    match first.as_str() {
        "ALTER" | "CREATE" if is_table && draws(defaults) => Some(StatementDoubt::SequenceDefault),
        "ALTER" if is_table => {
            let is_filled = has_hidden(defaults)
                || defaults.iter().any(|token| {
                    *token == Token::Sign(b'@')
                        || UNLOGGED_IN_DEFINITIONS.iter().any(|name| is(token, name))
                });
            let adds = tokens.iter().any(|token| is(token, "ADD"));
            let may_add = query.is_cut() && !changes_partitions(&tokens);
            (may_add || adds && is_filled).then_some(StatementDoubt::NewColumn)
        }
        "CREATE" if is_table => {
            let rows = tokens.iter().position(|token| is(token, "SELECT"));
            let rows = rows.and_then(|at| tokens.get(at..)).unwrap_or_default();
            has_hidden(rows).then_some(StatementDoubt::Function)
        }
        "ALTER" => None,
        first if DEFINITIONS.contains(&first) && !tokens.iter().any(|t| is(t, "STATEMENT")) => None,
        first => {
            let has_limit = CHANGES.contains(&first) && tokens.iter().any(|t| is(t, "LIMIT"));
            (has_limit || has_hidden(&tokens)).then_some(StatementDoubt::Function)
        }
    }
}

/// Returns whether an `ALTER TABLE` only adds, drops or changes partitions, whose list may be long.
fn changes_partitions(tokens: &[Token<'_>]) -> bool {
    const WHAT: [&str; 4] = ["ADD", "DROP", "REORGANIZE", "TRUNCATE"];
    tokens.windows(2).any(|pair| match pair {
        [what, partition] => WHAT.iter().any(|of| is(what, of)) && is(partition, "PARTITION"),
        _ => false,
    })
}

/// A word, in capitals.
fn word(token: &Token<'_>) -> Option<String> {
    match token {
        Token::Word(word, _) => Some(String::from_utf8_lossy(word).to_ascii_uppercase()),
        _ => None,
    }
}

fn is(token: &Token<'_>, name: &str) -> bool {
    matches!(token, Token::Word(word, _) if word.eq_ignore_ascii_case(name.as_bytes()))
}

/// Returns whether one of the functions is called.
fn has_hidden(tokens: &[Token<'_>]) -> bool {
    tokens.iter().enumerate().any(|(at, token)| {
        let next = tokens.get(at + 1);
        let before = at.checked_sub(1).and_then(|before| tokens.get(before));
        let is_name = before.is_some_and(|before| {
            *before == Token::Sign(b'.') || BEFORE_NAMES.iter().any(|name| is(before, name))
        });
        let is_called = next == Some(&Token::Sign(b'(')) && !is_name;
        let is_of = |names: &[&str]| names.iter().any(|name| is(token, name));
        let is_drawn = ["NEXT", "PREVIOUS"].iter().any(|name| is(token, name));
        (is_called && is_of(&HIDDEN)) || is_of(&BARE) || (is_drawn && is_value(next))
    })
}

/// Returns whether something depends on what the session has drawn from a sequence.
fn draws(tokens: &[Token<'_>]) -> bool {
    tokens.iter().enumerate().any(|(at, token)| {
        DRAWN.iter().any(|name| is(token, name))
            || (is(token, "PREVIOUS") && is_value(tokens.get(at + 1)))
    })
}

fn is_value(token: Option<&Token<'_>>) -> bool {
    token.is_some_and(|token| is(token, "VALUE"))
}

/// Returns whether a literal stands for a variable of a stored program that it may not equal. In a definition, its type counts, too:
/// then it is not sure of any.
fn has_program_variable(tokens: &[Token<'_>], is_unsure: bool) -> bool {
    tokens.iter().enumerate().any(|(at, token)| {
        let value = match tokens.get(at + 1..) {
            Some([Token::Sign(b'('), Token::Text, Token::Sign(b','), value @ ..])
                if is(token, "NAME_CONST") =>
            {
                value
            }
            _ => return false,
        };
        is_unsure || !is_exact(value)
    })
}

/// Returns whether a value, of which these are the first tokens, is that of the variable: a whole number, a time, or a text with
/// its character set.
fn is_exact(value: &[Token<'_>]) -> bool {
    let end = &Token::Sign(b')');
    match value {
        [Token::Sign(b'-'), Token::Word(number, _), next, ..]
        | [Token::Word(number, _), next, ..]
            if next == end =>
        {
            number.iter().all(u8::is_ascii_digit) || number.eq_ignore_ascii_case(b"NULL")
        }
        [kind @ Token::Word(name, _), Token::Text, ..] => {
            let is_time = ["DATE", "TIME", "TIMESTAMP"].iter().any(|name| is(kind, name));
            is_time || (name.starts_with(b"_") && !is(kind, "_binary"))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_that_no_log_repeats_are_in_doubt() {
        use StatementDoubt::{Function, NewColumn, ProgramVariable, SequenceDefault};
        let long = format!("ALTER TABLE t ADD ({}", "a INT, ".repeat(200));
        let partitions = format!("ALTER TABLE t ADD PARTITION ({}", "PARTITION p, ".repeat(200));
        let exact_and_long =
            format!("INSERT INTO q VALUES (NAME_CONST('i',1), '{}')", "a".repeat(1100));
        for (text, expected) in [
            ("ALTER TABLE e ADD COLUMN u VARCHAR(40) DEFAULT UUID()", Some(NewColumn)),
            ("alter table e add u char(36) default (uuid ())", Some(NewColumn)),
            ("ALTER IGNORE TABLE e ADD u DOUBLE DEFAULT (1 + RAND())", Some(NewColumn)),
            ("ALTER TABLE e ADD u INT DEFAULT NEXT VALUE FOR s", Some(NewColumn)),
            ("ALTER TABLE e ADD u INT DEFAULT @x", Some(NewColumn)),
            ("ALTER TABLE e ADD u VARCHAR(90) DEFAULT CURRENT_USER", Some(NewColumn)),
            (&long, Some(NewColumn)),
            (&partitions, None),
            ("ALTER TABLE e ADD u INT DEFAULT LASTVAL(s)", Some(SequenceDefault)),
            ("CREATE TABLE d (id INT, v INT DEFAULT PREVIOUS VALUE FOR s)", Some(SequenceDefault)),
            ("CREATE TABLE d (v CHAR(36) DEFAULT UUID())", None),
            ("ALTER TABLE e ADD u DATETIME DEFAULT NOW(), ADD user INT, ADD next INT", None),
            ("ALTER TABLE e ADD `uuid` CHAR(36) DEFAULT 'UUID()' /* UUID() */", None),
            ("ALTER TABLE e MODIFY u CHAR(36) DEFAULT UUID()", None),
            ("ALTER EVENT e DO INSERT INTO t VALUES (UUID())", None),
            ("CREATE VIEW v AS SELECT UUID()", None),
            ("CREATE TABLE n SELECT UUID() u", Some(Function)),
            ("INSERT INTO t VALUES (CURRENT_USER())", Some(Function)),
            ("SET STATEMENT max_statement_time=1 FOR UPDATE t SET a = SYSDATE(6)", Some(Function)),
            ("UPDATE t SET a = RAND(), user = 'USER()' WHERE version = 1", None),
            ("INSERT INTO user (id, b) VALUES (1, 2)", None),
            ("REPLACE `a`.version (id) SELECT 1 FROM user", None),
            ("INSERT INTO t VALUES (EXTRACT(YEAR FROM SYSDATE()))", Some(Function)),
            ("ALTER TABLE e ADD a INT DEFAULT 1, ADD KEY uuid (uuid)", None),
            ("INSERT INTO t SELECT i FROM u ORDER BY i LIMIT 1", Some(Function)),
            ("DELETE FROM t LIMIT 5", Some(Function)),
            ("CREATE OR REPLACE TEMPORARY TABLE n SELECT UUID() u", Some(Function)),
            (&exact_and_long, Some(ProgramVariable)),
            ("SET PASSWORD FOR user@`%` = 'x'", None),
            ("INSERT INTO q VALUES ( NAME_CONST('f',0.1))", Some(ProgramVariable)),
            ("INSERT INTO q VALUES (NAME_CONST('f',1e0))", Some(ProgramVariable)),
            ("INSERT INTO q VALUES (NAME_CONST('b',x'0155'))", Some(ProgramVariable)),
            ("INSERT INTO q VALUES (NAME_CONST('b',_binary'a'))", Some(ProgramVariable)),
            ("INSERT INTO q VALUES (NAME_CONST('b',1.", Some(ProgramVariable)),
            ("CREATE TABLE q AS SELECT NAME_CONST('i',1)", Some(ProgramVariable)),
            (
                "INSERT INTO q VALUES (NAME_CONST('i',-1), NAME_CONST('n',NULL), \
                 NAME_CONST('t',_utf8mb4'a' COLLATE 'utf8mb4_bin'), NAME_CONST('d',DATE'2026-01-01'))",
                None,
            ),
            ("", None),
        ] {
            assert_eq!(doubt(&Query::of_text("", text)), expected, "{text}");
        }
    }
}
