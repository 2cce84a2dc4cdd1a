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
//!
//! ```
//! use xb_job::{RunResult, StageStatus};
//!
//! let mut result = RunResult::begin("xbcloud-rs 0.1.0", "shop", "db1", "2026-11-22T03:15:00Z".parse()?);
//! result.stage("backup", StageStatus::Ok, 12.5, serde_json::json!({ "stored_bytes": 4096 }));
//! result.end("2026-11-22T03:15:13Z".parse()?, 0, None);
//! assert!(xb_job::metrics(&result, None).contains("xbcloud_run_success{repository=\"shop\"} 1\n"));
//! # Ok::<(), jiff::Error>(())
//! ```

mod archive;
mod heartbeat;
mod hook;
mod metrics;
mod monitor;
mod receiver;
mod remarks;
mod result;

pub use archive::FoundArchive;
pub use heartbeat::{HeartbeatError, send_heartbeat};
pub use hook::{HookError, run_hook};
pub use metrics::metrics;
pub use monitor::{Found, Limits, Verdict, judge};
pub use receiver::{ReceiverState, receiver_metrics};
pub use result::{FORMAT, FirstCause, RunResult, RunStatus, Stage, StageStatus};
