//! Helpers of both roles: connection, progress, temporary directory.

pub(crate) mod backup_program;
pub(crate) mod endpoint;
pub(crate) mod progress;
pub(crate) mod temp_dir;
