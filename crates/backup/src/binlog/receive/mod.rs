//! From the log of a server to stored segments.

pub(crate) mod before_hole;
pub(crate) mod clock;
pub(crate) mod logless_period;
pub(crate) mod next_start;
pub(crate) mod notice;
pub(crate) mod push;
pub(crate) mod receiver;
pub(crate) mod segmenter;
pub(crate) mod session;
pub(crate) mod sources;
pub(crate) mod unconfirmed_fault;
pub(crate) mod waiting;
pub(crate) mod watch;
pub(crate) mod writer;
