//! The running server that a producer reads: the login to it, a checkpoint before the backup, and
//! evidence of its history.

pub(crate) mod checkpoint;
pub(crate) mod login;
pub(crate) mod session;
pub(crate) mod watch;
