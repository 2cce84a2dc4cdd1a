//! Which options there are: those of the subcommand that runs, and those of all.

use std::cell::LazyCell;

use crate::args::option_table::{OptionTable, dashed};

/// The options of all subcommands, made when the first one is looked up: that takes longer than all the rest.
pub(crate) type AllOptions<'a> = LazyCell<OptionTable, Box<dyn FnOnce() -> OptionTable + 'a>>;

/// The options of all subcommands, and those of the one that runs.
pub(crate) struct Scope<'a> {
    pub(crate) known: AllOptions<'a>,
    pub(crate) scope: OptionTable,
    pub(crate) subcommand: Option<String>,
    /// Whether faults of option files and variables are passed over: for the report of the first one.
    pub(crate) is_lenient: bool,
}

impl Scope<'_> {
    /// The options of the subcommand that runs.
    pub(crate) fn into_scope(self) -> OptionTable {
        self.scope
    }

    /// The options among which this full name of one, or an abbreviation, is to be looked up. A full name means
    /// the same in all subcommands.
    pub(crate) fn options_for(&self, name: &str) -> &OptionTable {
        if self.scope.has_long(&dashed(name)) { &self.scope } else { &self.known }
    }
}
