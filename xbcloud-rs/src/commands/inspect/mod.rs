//! Commands that only look: at backups, or at what one would take and cost.

mod cost_report;
pub(crate) mod list;
pub(crate) mod plan;
mod price_options;
pub(crate) mod show;
pub(crate) mod tune;
mod tune_report;
pub(crate) mod verify;
