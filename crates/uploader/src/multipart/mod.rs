//! Objects in several parts.

pub(crate) mod parts;
pub(crate) mod requests;
pub(crate) mod unfinished;
