//! Output for people: log, progress, sizes, safe text.

pub(crate) mod log;
pub(crate) mod progress;
pub(crate) mod size;
