//! Events that a replay must not cross.

use std::fmt;

use crate::words::Words;

/// Something in the history that a replay of the log alone does not reproduce.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Barrier {
    /// The server lost changes, and wrote so.
    Incident,
    /// `DISCARD TABLESPACE` or `IMPORT TABLESPACE`: the file is not in the log. Or an `ALTER` whose comment
    /// is so long that what follows it is unknown.
    Tablespace,
}

impl fmt::Display for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Incident => "the server lost changes, and recorded that in its log",
            Self::Tablespace => "a statement may move a tablespace, whose file is not in the log",
        })
    }
}

impl Barrier {
    /// Finds one in the beginning of a statement. `is_cut` states that more of it follows.
    pub(crate) fn of_statement(text: &[u8], is_cut: bool) -> Option<Self> {
        let mut words = Words::new(text);
        let first = words.next()?;
        // `SET STATEMENT name=value FOR ALTER ...`
        if !first.eq_ignore_ascii_case(b"ALTER") && !first.eq_ignore_ascii_case(b"SET") {
            return None;
        }
        let mut before = first;
        while let Some(word) = words.next() {
            let is_moved = is_one_of(before, &[b"DISCARD", b"IMPORT"]);
            if is_moved && is_one_of(word, &[b"TABLESPACE", b"PARTITION"]) {
                return Some(Self::Tablespace);
            }
            before = word;
        }
        let ends_open = words.is_open() || is_one_of(before, &[b"DISCARD", b"IMPORT"]);
        (is_cut && ends_open).then_some(Self::Tablespace)
    }
}

fn is_one_of(word: &[u8], words: &[&[u8]]) -> bool {
    words.iter().any(|each| each.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_that_move_a_tablespace_are_recognised() {
        let long = "x".repeat(1100);
        for (text, is_cut, is_barrier) in [
            ("ALTER TABLE t DISCARD TABLESPACE", false, true),
            ("alter  table `a b`.`t` import\n tablespace", false, true),
            ("ALTER TABLE t /* why */ IMPORT /**/ TABLESPACE", false, true),
            ("/*!40000 ALTER TABLE t IMPORT TABLESPACE */", false, true),
            ("/* a */ -- b\n# c\nALTER TABLE t IMPORT TABLESPACE", false, true),
            ("ALTER TABLE t DISCARD PARTITION p TABLESPACE", false, true),
            ("SET STATEMENT lock_wait_timeout=1 FOR ALTER TABLE t IMPORT TABLESPACE", false, true),
            (&format!("ALTER TABLE t /* {long}"), true, true),
            ("ALTER TABLE t IMPORT", true, true),
            ("ALTER TABLE t ADD COLUMN import INT COMMENT 'IMPORT TABLESPACE'", false, false),
            ("ALTER TABLE `IMPORT TABLESPACE` ADD c INT", false, false),
            ("ALTER TABLE t ADD c INT COMMENT 'it''s \\' IMPORT TABLESPACE'", false, false),
            ("ALTER TABLE t ADD c INT /* IMPORT TABLESPACE */", false, false),
            ("ALTER TABLE t ADD c INT, ADD", true, false),
            ("CREATE PROCEDURE p() ALTER TABLE t IMPORT TABLESPACE", false, false),
            ("INSERT INTO t VALUES ('ALTER TABLE t IMPORT TABLESPACE')", false, false),
            ("", true, false),
        ] {
            let found = Barrier::of_statement(text.as_bytes(), is_cut);
            assert_eq!(found.is_some(), is_barrier, "{text}");
        }
    }
}
