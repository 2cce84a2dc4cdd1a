//! Commands that move data: into the store, and back.

pub(crate) mod backup;
pub(crate) mod get;
pub(crate) mod origin;
pub(crate) mod producer;
mod producer_words;
pub(crate) mod put;
pub(crate) mod rescue;
mod restore;
