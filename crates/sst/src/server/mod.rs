//! This node's own server: its version, its data, its settings, its service manager.

pub(crate) mod backup_version;
pub(crate) mod data_size;
pub(crate) mod gcache;
pub(crate) mod import_watch;
pub(crate) mod keep_replicating;
pub(crate) mod redo_log;
pub(crate) mod sql;
pub(crate) mod systemd_notify;
