//! The transport over real sockets.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

#[path = "transport/support.rs"]
mod support;

#[path = "transport/basics.rs"]
mod basics;

#[path = "transport/strangers.rs"]
mod strangers;

#[path = "transport/relay.rs"]
mod relay;

#[path = "transport/cuts.rs"]
mod cuts;

#[path = "transport/endings.rs"]
mod endings;

#[path = "transport/certificates.rs"]
mod certificates;
