//! A private database server: a server program that runs on a given data directory, for this process
//! alone.
//!
//! - It listens on a socket in a private directory only, connects nowhere, and writes no binary log.
//! - It is confined: it can write below its scratch directory only, if this system has Landlock;
//!   [`Server::unconfined`] says why it is not.
//! - Its settings are fixed, except those of the origin that describe the files, and those that the operator adds.
//! - [`Server::poll`] returns a connection once the server is ready, [`Server::recovered`] the position
//!   at which recovery ended, and [`Server::stop`] proves that the server stopped cleanly.
//!
//! A server that is dropped is killed.
//!
//! [`clean_option_file`] keeps a backup from setting options of the program that prepares it; [`temporary_dirs`] tells
//! where an operator lets that program write.
//!
//! [`recovery_memory`] is the memory with which a recovery of given files is fast, [`recovery_tmpdir`] a place for its
//! temporary files, [`free_bytes`] the room on its disk.

mod account;
mod log;
mod option_file;
mod origin;
mod private;
mod recovery;
mod room;
mod server;
mod temporary_dirs;

pub use log::{BinlogPosition, cause_in_log, end_of_log};
pub use option_file::clean_option_file;
pub use origin::key_plugin;
pub use private::{private_args, socket_in};
pub use recovery::{recovery_memory, recovery_tmpdir, working_memory};
pub use room::free_bytes;
pub use server::{Login, Server, ServerError, Setup};
pub use temporary_dirs::temporary_dirs;
