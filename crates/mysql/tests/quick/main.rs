//! The client without a server: recorded and hostile ones.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

mod absence;
mod clone;
mod clone_resume;
mod full;
mod hostile;
mod limits;
mod recording;
mod vectors;
