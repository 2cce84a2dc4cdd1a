//! Commands that only look: at backups, or at what one would cost.

pub(crate) mod list;
pub(crate) mod plan;
pub(crate) mod show;
pub(crate) mod verify;
