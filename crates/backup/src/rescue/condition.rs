//! The condition that rescued rows must meet.

use crate::error::BackupError;
use crate::rescue::tokens::{DoubleQuoted, Tokens};

/// Refuses a condition that the private server cannot evaluate: the auxiliary tables of a full-text index
/// are not among the files of its table.
///
/// # Errors
/// [`BackupError::Selection`].
pub(super) fn refuse_full_text(condition: Option<&str>) -> Result<(), BackupError> {
    match condition.is_some_and(searches_text) {
        true => Err(BackupError::Selection(
            "--where uses MATCH … AGAINST, but full-text indexes are not rescued: use LIKE or REGEXP, or rescue all rows and search them".to_owned(),
        )),
        false => Ok(()),
    }
}

/// Refuses a condition for a table that replaces another one: the rows that do not meet it would be lost.
///
/// # Errors
/// [`BackupError::Selection`].
pub(super) fn refuse_partial(condition: Option<&str>, replace: bool) -> Result<(), BackupError> {
    match condition.is_some() && replace {
        true => Err(BackupError::Selection(
            "--replace would put only the rows that --where chooses in the place of all rows of the table: leave out --replace, rescue them under another name, and merge them with INSERT … SELECT or REPLACE … SELECT".to_owned(),
        )),
        false => Ok(()),
    }
}

/// Returns whether a condition has the words MATCH and, later, AGAINST, outside quotes and comments. What only some versions
/// execute is read, too.
fn searches_text(condition: &str) -> bool {
    let mut tokens = Tokens::new(condition.as_bytes(), DoubleQuoted::Strings).flatten();
    tokens.any(|token| token.is("MATCH")) && tokens.any(|token| token.is("AGAINST"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_text_search_is_found_outside_quotes_and_comments() {
        for condition in [
            "MATCH (t) AGAINST ('x')",
            "id > 5 AND match(`a`,b)against('y' IN BOOLEAN MODE)",
            "id /* one */ = 1 OR MATCH t AGAINST ('z')",
            "/*!50000 MATCH (t) AGAINST ('x') */",
            "v = 'it''s' AND MATCH (t) AGAINST ('\\'')",
            "é = 1 AND Match(t) Against('é')",
        ] {
            assert!(searches_text(condition), "{condition}");
        }
        for condition in [
            "id = 1",
            "v = 'MATCH (t) AGAINST (1)'",
            "v = \"a\\\" MATCH (t) AGAINST (1)\"",
            "`match` = 1 AND `against` = 2",
            "rematch = 1 AND against = 2",
            "id = 1 /* MATCH (t) AGAINST ('x') */",
            "id = 1 # MATCH AGAINST",
            "id = 1 -- MATCH AGAINST",
            "against = 1 AND v = 'MATCH",
            "v = '\\",
        ] {
            assert!(!searches_text(condition), "{condition}");
        }
        assert!(refuse_partial(None, true).is_ok() && refuse_partial(Some("1"), false).is_ok());
        assert!(refuse_partial(Some("1"), true).is_err());
        assert!(refuse_full_text(None).is_ok() && refuse_full_text(Some("id = 1")).is_ok());
        assert!(refuse_full_text(Some("MATCH (t) AGAINST ('x')")).is_err());
    }
}
