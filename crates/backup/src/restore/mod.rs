//! `restore`: chooses the backups of a chain (`choose`), fetches them (`fetch_chain`, `fetch_files` for each of them), and
//! makes the files ready for a server (`prepare`, `clone`, `galera`, `owner`), in the order of `restore_and_prepare`.

pub(crate) mod chain;
pub(crate) mod choose;
pub(crate) mod clone;
mod export_log;
pub(crate) mod fetch_chain;
mod fetch_files;
mod file_sink;
pub(crate) mod finished;
pub(crate) mod galera;
mod interrupted;
pub(crate) mod journal;
mod new_master_key;
pub(crate) mod owner;
pub(crate) mod prepare;
mod remarks;
pub(crate) mod request;
pub(crate) mod restore_and_prepare;
pub(crate) mod room;
pub(crate) mod same_space;
pub(crate) mod target_lock;
mod write_back;

pub use self::fetch_files::{is_resumable, restore};
pub use self::request::{RestoreOptions, RestoreReport, Resumed};
