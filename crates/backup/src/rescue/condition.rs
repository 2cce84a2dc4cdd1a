//! The condition that rescued rows must meet.

use crate::error::BackupError;

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

/// Whether a condition has the words MATCH and, later, AGAINST, outside quotes and comments.
fn searches_text(condition: &str) -> bool {
    let (mut rest, mut matches) = (condition, false);
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
        let len = match first {
            '\'' | '"' | '`' => quoted(rest, first),
            '#' => rest.find('\n').unwrap_or(rest.len()),
            '-' if rest.starts_with("-- ") => rest.find('\n').unwrap_or(rest.len()),
            // What only some versions execute is still read.
            '/' if rest.starts_with("/*")
                && !rest.starts_with("/*!")
                && !rest.starts_with("/*M!") =>
            {
                rest.find("*/").map_or(rest.len(), |end| end + 2)
            }
            c if is_word(c) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            c => c.len_utf8(),
        };
        let (word, after) = rest.split_at(len);
        if matches && word.eq_ignore_ascii_case("AGAINST") {
            return true;
        }
        matches |= word.eq_ignore_ascii_case("MATCH");
        rest = after;
    }
    false
}

/// Length of the quoted text at the beginning. A doubled quote is two texts, one after the other.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' if quote != '`' => escaped = true,
            c if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
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
        assert!(refuse_full_text(None).is_ok() && refuse_full_text(Some("id = 1")).is_ok());
        assert!(refuse_full_text(Some("MATCH (t) AGAINST ('x')")).is_err());
    }
}
