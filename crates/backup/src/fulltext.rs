//! Names of the tables in which InnoDB keeps its FULLTEXT indexes.

/// Parts that all FULLTEXT indexes of a table have together; the last three only before MySQL 5.7.
const COMMON: [&str; 8] = [
    "BEING_DELETED",
    "BEING_DELETED_CACHE",
    "CONFIG",
    "DELETED",
    "DELETED_CACHE",
    "ADDED",
    "DOC_ID",
    "STOPWORDS",
];

/// Returns whether a FULLTEXT index keeps its words in a table of this name: `FTS_`, the number of its table, and the
/// part; or the number of the index and one of six parts. Numbers have 16 hexadecimal digits. MySQL writes all of it
/// in lower case.
pub(crate) fn is_fulltext_part(table: &str) -> bool {
    let name = table.to_ascii_uppercase();
    let Some(part) = name.strip_prefix("FTS_").and_then(after_number) else { return false };
    COMMON.contains(&part)
        || after_number(part)
            .and_then(|part| part.strip_prefix("INDEX_"))
            .is_some_and(|number| matches!(number.as_bytes(), [b'1'..=b'6']))
}

/// What follows 16 hexadecimal digits and an underscore.
fn after_number(text: &str) -> Option<&str> {
    let (digits, rest) = text.split_at_checked(16)?;
    digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| rest.strip_prefix('_'))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_names_that_innodb_gives_are_parts_of_fulltext_indexes() {
        for part in COMMON {
            assert!(is_fulltext_part(&format!("FTS_0000000000000019_{part}")), "{part}");
        }
        for part in [
            "FTS_0000000000000019_000000000000002a_INDEX_1",
            "fts_0000000000000428_00000000000000a1_index_6",
        ] {
            assert!(is_fulltext_part(part), "{part}");
        }
        for other in [
            "FTS_0000000000000019_x",
            "FTS_0000000000000019_CONFIGS",
            "FTS_000000000000019_CONFIG",
            "FTS_0000000000000019_000000000000002a_INDEX_7",
            "FTS_0000000000000019_INDEX_1",
            "t",
        ] {
            assert!(!is_fulltext_part(other), "{other}");
        }
    }
}
