//! Commands of a scheduled backup: set up, try, run, monitor.

pub(crate) mod check;
mod findings;
mod fleet;
pub(crate) mod init;
pub(crate) mod monitor;
pub(crate) mod refused;
pub(crate) mod run;
