//! Bookkeeping of blocks on both sides. Pure: no I/O, no clock.

pub(crate) mod questions;
pub(crate) mod receive;
pub(crate) mod send;
