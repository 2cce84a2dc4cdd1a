//! One HTTP request: signing, limits, watchdog, and notes about its response.

pub(crate) mod answer;
pub(crate) mod bounds;
pub(crate) mod clock;
pub(crate) mod encode;
pub(crate) mod http;
pub(crate) mod late_error;
pub(crate) mod listing;
pub(crate) mod rate;
pub(crate) mod raw_request;
pub(crate) mod secrets;
pub(crate) mod transport;
pub(crate) mod watch;
