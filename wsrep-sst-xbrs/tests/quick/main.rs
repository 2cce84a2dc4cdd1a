//! State transfers without a server: a backup program that only acts, and the text protocol.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

#[path = "../harness/mod.rs"]
mod harness;

mod again;
mod causes;
mod contract;
mod credentials;
mod delta;
mod donor_method;
mod exchange;
mod hostile;
mod left_journal;
mod names;
mod own_names;
mod percona;
mod present_data;
mod room;
