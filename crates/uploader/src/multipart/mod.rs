//! Objects in several parts.

pub(crate) mod parts;
pub(crate) mod unfinished;
