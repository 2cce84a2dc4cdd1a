//! Where the log comes from: a server or its files, and what a replay has to know of them.

pub(crate) mod log_files;
pub(crate) mod log_request;
pub(crate) mod replay_risks;
pub(crate) mod role;
pub(crate) mod semi_sync;
pub(crate) mod sent_log;
pub(crate) mod settings;
pub(crate) mod system_zone;
pub(crate) mod watched_server;
pub(crate) mod write_access;
