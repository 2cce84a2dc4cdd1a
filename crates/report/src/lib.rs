//! The report of one run: what was done, how fast each stage was, which stage held up the others, and
//! how long everything took.
//!
//! - [`Report`] collects facts during the run. [`Report::watch`] samples the counters of a pipeline
//!   in bounded memory: a longer run has fewer samples per minute.
//! - [`Report::end`] returns the [`Document`], which is JSON for other programs. The page for people is
//!   drawn from it elsewhere.
//!
//! The crate knows the pipeline's counters, but no files, no stores and no command lines: numbers of a store
//! come through [`Traffic`].
//!
//! ```
//! use xb_pipeline::Observer;
//! use xb_report::{Direction, Document, End, Head, Report, SectionOptions, Traffic};
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
//! let document = report.end(end);
//! assert_eq!(Document::parse(document.to_json().as_bytes())?, document);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod content;
mod direction;
mod document;
mod gauge;
mod recorder;
mod report;
mod sampler;
mod seconds;

pub use content::object_sizes::{Objects, SizeClass};
pub use content::table_totals::{Sizes, Table, Tables};
pub use direction::Direction;
pub use document::{
    Cause, Delta, Document, DocumentError, FORMAT, Phase, Retry, Section, Setting, Stage, StageEnd,
    Totals,
};
pub use gauge::Traffic;
pub use recorder::{LaneCount, MAX_LANES, Recorder, Sample};
pub use report::{End, FIRST_RETRIES, Head, Report, SectionOptions};
pub use sampler::Watch;
