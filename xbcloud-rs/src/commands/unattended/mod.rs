//! Commands of a scheduled backup: set up, try, run, monitor.

pub(crate) mod check;
pub(crate) mod init;
pub(crate) mod metrics_file;
pub(crate) mod monitor;
pub(crate) mod one_at_a_time;
pub(crate) mod refused;
pub(crate) mod run;
