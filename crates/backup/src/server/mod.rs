//! The running server that a producer reads: the login to it, and evidence of its history.

pub(crate) mod login;
pub(crate) mod session;
pub(crate) mod watch;
