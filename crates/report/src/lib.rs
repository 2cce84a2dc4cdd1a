//! The report of one run: a self-contained page that says what was done, how fast each stage was,
//! which stage held up the others, and how long everything took.
//!
//! - [`Report`] collects facts during the run. [`Report::watch`] samples the counters of a pipeline
//!   in bounded memory: a longer run has fewer samples per minute.
//! - [`Report::page`] returns the page: HTML that contains its styles and pictures, loads nothing,
//!   and has no script. Every name from outside is escaped.
//!
//! The crate knows the pipeline's counters, but no files, no stores and no command lines: numbers of a store
//! come through [`Traffic`].
//!
//! ```
//! use xb_pipeline::Observer;
//! use xb_report::{Direction, End, Head, Report, SectionOptions, Traffic};
//!
//! let report = Report::begin(Head {
//!     what: "Backup".into(),
//!     tool: "xbcloud-rs 0.1.0".into(),
//!     place: "s3://bucket/shop".into(),
//!     host: "db1".into(),
//!     started: "2026-11-22T03:15:00Z".parse()?,
//! });
//! let observer = Observer::default();
//! let options = SectionOptions { direction: Direction::Up, encode: None, threads: 2 };
//! let watch = report.watch("backup", options, &observer, Traffic::default);
//! observer.add_bytes(4096); // The pipeline does this.
//! drop(watch);
//! let finished = "2026-11-22T03:15:13Z".parse()?;
//! let end = End { finished, exit: 0, meaning: "done".into(), error: None };
//! assert!(report.page(&end).contains("s3://bucket/shop"));
//! # Ok::<(), jiff::Error>(())
//! ```

mod content;
mod gauge;
mod lanes;
mod page;
mod recorder;
mod report;
mod sampler;
mod section;
mod state;
mod timeline;
mod units;

pub use gauge::Traffic;
pub use lanes::Direction;
pub use report::Report;
pub use sampler::Watch;
pub use section::{SectionOptions, Totals};
pub use state::{Cause, End, Head, StageEnd};
