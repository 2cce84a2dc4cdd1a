//! The transport over real sockets.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

mod again;
mod basics;
mod certificates;
mod cuts;
mod endings;
mod questions;
mod relay;
mod strangers;
mod support;
