//! The arguments of a program, from the system to clap: option files, environment, secrets.

pub(crate) mod argv;
pub(crate) mod defaults_options;
pub(crate) mod expand;
pub(crate) mod hide;
mod merge;
pub(crate) mod option_table;
pub(crate) mod passwords;
pub(crate) mod scope;
pub(crate) mod secret;
pub(crate) mod sources;
pub(crate) mod usage_error;
