//! Commands that only look: at backups, at the report of a run, or at what a backup would take and cost.

mod cost_report;
mod evidence;
pub(crate) mod list;
pub(crate) mod plan;
mod price_options;
pub(crate) mod report;
pub(crate) mod show;
pub(crate) mod tune;
mod tune_report;
pub(crate) mod verify;
