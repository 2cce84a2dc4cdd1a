//! The archive of a server's binary logs: names, records, and what can be restored from it.
//!
//! | key | content | written |
//! |---|---|---|
//! | `ROOT/.xb-binlog/SERVER/STREAM/head` | how the stream begins, and what it follows | first, once |
//! | `…/STREAM/keys` | key slots, if it is sealed | second, once |
//! | `…/STREAM/NNNNNNNNNNNN` | segments from 0: a head, then a native stream of the raw events | then, once each |
//! | `…/STREAM/.heads-FIRST-LAST` | copies of the heads of these segments | once each |
//! | `…/STREAM/alive` | how far the archive reaches; never a source of data | again and again |
//! | `…/STREAM/end` | number of segments; missing after a crash | last, once |
//! | `ROOT/.xb-binlog/SERVER/.streams/STREAM` | copies of the records of streams that have ended | once each |
//!
//! STREAM is the life of one receiver on one server. The format is described in `docs/spec/binlog.md`.

mod all_lines;
pub mod authority;
pub mod base;
mod chain;
pub mod clock_step;
mod digest;
pub mod domain;
pub mod ended;
mod fit;
pub mod followed;
mod history_line;
pub mod killed;
mod line_pieces;
mod line_reader;
pub mod listed_segment;
pub mod listing;
pub mod log_beginning;
pub mod names;
pub mod newest;
pub mod plan;
mod plan_error;
mod present;
pub mod record;
pub mod rollup;
#[cfg(any(test, feature = "testing"))]
pub mod sample;
pub mod segment;
mod shared_text;
pub mod stop;
pub mod stranded;
pub mod stream;
mod unlogged;
