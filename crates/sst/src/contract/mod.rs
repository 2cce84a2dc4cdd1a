//! The interface to the server and its operator: arguments, option files, standard streams.

pub(crate) mod args;
pub(crate) mod datadir;
pub(crate) mod error_log;
pub(crate) mod keep_patterns;
pub(crate) mod link_file;
pub(crate) mod login;
pub(crate) mod option_files;
pub(crate) mod position;
pub(crate) mod server_credentials;
pub(crate) mod server_lines;
pub(crate) mod settings;
pub(crate) mod shell_words;
