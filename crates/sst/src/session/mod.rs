//! State and helpers of both roles: context, connection, offer, progress, temporary directory.

pub(crate) mod backup_program;
pub(crate) mod context;
pub(crate) mod endpoint;
pub(crate) mod offer;
pub(crate) mod progress;
pub(crate) mod temp_dir;
