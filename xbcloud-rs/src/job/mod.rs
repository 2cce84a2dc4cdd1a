//! Everything around an unattended run: its result file, metrics, hooks, heartbeat, and the verdict
//! of a monitor.
//!
//! - [`RunResult`] is the document of one run, in success and in failure; [`metrics`] derives the
//!   metrics from it.
//! - [`run_hook`] starts a program of the operator, without a shell, with the document as its
//!   standard input.
//! - [`send_heartbeat`] tells a watching service that a run has ended.
//! - [`receiver_metrics`] derives the metrics of a receiver of binary logs from its state.
//! - [`judge`] compares the age of the newest backup and of the newest proof with limits.

mod archive;
mod command_metrics;
mod heartbeat;
mod hook;
mod metrics;
mod monitor;
mod monitor_json;
mod receiver;
mod remarks;
mod result;
pub(crate) mod shared_metrics;

pub(crate) use self::archive::{ArchiveFacts, ArchiveLimits};
pub(crate) use self::command_metrics::{
    ASKED_LEVEL, CommandEnd, Family, beside_run, command_metrics,
};
pub(crate) use self::heartbeat::send_heartbeat;
pub(crate) use self::hook::run_hook;
pub(crate) use self::metrics::{Text as LabelledText, escaped, metrics};
pub(crate) use self::monitor::{BackupFacts, Limits, Verdict, judge};
pub(crate) use self::monitor_json::{archive_json, monitor_json, server_json};
pub(crate) use self::receiver::{ReceiverState, receiver_metrics};
pub(crate) use self::remarks::{Remarks, span};
pub(crate) use self::result::{FirstCause, RunResult, StageStatus};
