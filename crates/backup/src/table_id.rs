//! Names of tables, as those of their files show them.

use xb_reader::Printable;

use crate::fulltext::is_fulltext_part;

/// A table's schema and name, encoded as in file names (`odd@002ename`), without its partition.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TableId {
    pub(crate) schema: String,
    pub(crate) table: String,
}

impl TableId {
    pub(crate) fn new(schema: &str, table: &str) -> Self {
        // ASCII lower case keeps the offsets.
        let end = table.to_ascii_lowercase().find("#p#").unwrap_or(table.len());
        let table = table.get(..end).unwrap_or(table);
        // Appended to names that are devices on Windows, such as CON.
        let plain = |name: &str| name.strip_suffix("@@@").unwrap_or(name).to_owned();
        Self { schema: plain(schema), table: plain(table) }
    }

    /// Returns whether this is a left-over of a statement that rebuilds or drops a table.
    pub(crate) fn is_intermediate(&self) -> bool {
        self.table.starts_with("#sql")
    }

    /// Returns whether a FULLTEXT index keeps its words here.
    pub(crate) fn is_fulltext(&self) -> bool {
        is_fulltext_part(&self.table)
    }
}

/// The name for people. Letters that file names abbreviate (`@0k`) stay encoded.
impl std::fmt::Display for TableId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = format!("{}.{}", decoded(&self.schema), decoded(&self.table));
        Printable::new(name.as_bytes()).fmt(f)
    }
}

/// Replaces `@` and four hexadecimal digits by the character with that number.
pub(crate) fn decoded(name: &str) -> String {
    let mut pieces = name.split('@');
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let code = piece.split_at_checked(4).and_then(|(digits, rest)| {
            Some((char::from_u32(u32::from_str_radix(digits, 16).ok()?)?, rest))
        });
        match code {
            Some((character, rest)) => {
                text.push(character);
                text.push_str(rest);
            }
            None => {
                text.push('@');
                text.push_str(piece);
            }
        }
    }
    text
}
