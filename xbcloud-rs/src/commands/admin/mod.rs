//! Commands that consolidate, copy, protect or remove backups, or change their keys.

pub(crate) mod consolidate;
pub(crate) mod copy;
pub(crate) mod delete;
pub(crate) mod gc;
pub(crate) mod pin;
pub(crate) mod prune;
pub(crate) mod rewrap;
