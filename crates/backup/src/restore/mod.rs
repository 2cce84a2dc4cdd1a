//! `restore`: chooses the backups of a chain (`choose`), fetches them (`fetch`), and
//! makes the files ready for a server (`prepare`, `clone`, `galera`, `owner`), in the order of `restore_and_prepare`.

pub(crate) mod chain;
pub(crate) mod choose;
pub(crate) mod clone;
mod confinement;
pub(crate) mod fetch;
pub(crate) mod finished;
pub(crate) mod galera;
pub(crate) mod journal;
mod new_master_key;
pub(crate) mod owner;
pub(crate) mod prepare;
mod program_option;
mod remarks;
pub(crate) mod request;
pub(crate) mod restore_and_prepare;
pub(crate) mod room;
pub(crate) mod same_space;
pub(crate) mod target_lock;
mod write_back;

pub use self::fetch::{is_resumable, restore};
pub use self::request::{RestoreOptions, RestoreReport, Resumed};
