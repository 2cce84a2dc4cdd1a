//! What both roles need for one transfer: its context, the connection, the offer, progress.

pub(crate) mod backup_program;
pub(crate) mod context;
pub(crate) mod endpoint;
pub(crate) mod offer;
pub(crate) mod progress;
