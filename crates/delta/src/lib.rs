//! Merges a chain of incremental backups into its full backup, without preparing each link.
//!
//! An increment has, for each tablespace, a delta file with the pages that were changed since a log position, and
//! every other file in full. The stock way prepares the full backup, then applies and prepares each increment. The
//! merge takes the newest version of each page from all deltas and everything else from the last increment, and
//! leaves one full backup that is prepared once:
//!
//! ```text
//! base        pages of the full backup            ┐
//! increment 1 pages changed since, by tablespace  ├─ newest version of each page ─┐
//! increment n pages changed since, by tablespace  ┘                               ├─ a full backup, unprepared
//! increment n redo log and all other files        ────────────────────────────────┘
//! ```
//!
//! The redo logs of all other links are dropped. So the merge is right only if each increment has every page that
//! was changed since the redo log of the link before it *begins*: see [`plan`].

mod delta;
mod kept;
mod links;
mod merge;
mod meta;
mod plan;

pub use delta::{DamagedDelta, DeltaReader};
pub use kept::{discard, interrupted, is_interrupted, keep};
pub use links::{Checkpoints, restate_from};
pub use merge::{Error, MergeReport, merge};
pub use meta::Meta;
pub use plan::{NotMergeable, Plan, plan};
