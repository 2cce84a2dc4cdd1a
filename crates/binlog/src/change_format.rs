//! The forms in which logs have changes.

/// How changes are written. Those of two forms cannot be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ChangeFormat(u8);

impl ChangeFormat {
    /// Number of forms.
    pub(crate) const COUNT: usize = 8;
    const STATEMENT: u8 = 1;
    const ROWS: u8 = 2;
    /// Rows without some of their columns, or with a part of a value.
    const PARTIAL: u8 = 4;

    /// Names of the forms. Partial rows are rows, so two forms do not occur.
    pub(crate) const NAMES: [Option<&'static str>; Self::COUNT] = [
        Some("nothing"),
        Some("statements"),
        Some("rows"),
        Some("statements_and_rows"),
        None,
        None,
        Some("partial_rows"),
        Some("statements_and_partial_rows"),
    ];

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    pub(crate) fn add_statement(&mut self) {
        self.0 |= Self::STATEMENT;
    }

    pub(crate) fn add_rows(&mut self, are_partial: bool) {
        self.0 |= Self::ROWS | if are_partial { Self::PARTIAL } else { 0 };
    }
}
