//! The arguments of a program, from the system to clap: option files, environment, secrets.

pub(crate) mod argv;
pub(crate) mod expand;
pub(crate) mod hide;
pub(crate) mod secret;
pub(crate) mod sources;
