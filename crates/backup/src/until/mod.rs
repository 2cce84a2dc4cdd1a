//! A restore to a stop: a backup, and the binary log after it up to a boundary between two transactions.
//!
//! ```text
//! archive, catalogue ──► plan: backup, segments, stop ──► all segments read and checked
//!                    ──► restore, prepare ──► relay logs ──► replay ──► data at the stop
//! ```
//!
//! Nothing is written before the plan is proven from the first to the last event.

mod archive;
mod beginning;
mod origin;
mod plan;
mod replay;
mod request;
mod result;
mod scan;

pub use self::plan::{UntilPlan, plan_until};
pub use self::replay::{
    ReplayOptions, UntilReport, continuation, replaying_program, restore_until,
};
pub(crate) use self::replay::{remarks, replay_onto, series};
pub use self::request::UntilRequest;
pub use self::scan::AdjacentTransaction;
