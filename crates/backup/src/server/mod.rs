//! The servers that are asked: the running one that a producer reads, and a private one on restored
//! files.

pub(crate) mod login;
pub(crate) mod private;
pub(crate) mod session;
pub(crate) mod watch;
