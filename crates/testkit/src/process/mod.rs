//! Programs that tests run: where they are, how they are run, how they end.

pub mod browser;
pub mod command;
pub mod daemon;
pub mod flood;
pub mod ports;
mod ran;
pub mod short_disk;
pub mod small_disk;
pub mod tools;
mod until;

pub(crate) use until::pause;
pub use until::until;
