//! Backups in a store: put, get, restore, list, delete.
mod claim;
mod classic;
mod delete;
mod error;
mod facts;
mod fetch;
mod get;
mod list;
mod manifest;
mod md5;
mod names;
mod producer;
mod put;
mod root;
mod stop;

pub use delete::{Deleted, delete};
pub use error::BackupError;
pub use facts::Facts;
pub use get::{GetReport, GetRequest, Output, StreamSink, get};
pub use list::{Listing, State, list};
pub use manifest::{End, FORMAT, Layout, Manifest, ManifestError, PackedFacts};
pub use names::{BackupName, CATALOG, NameError, RunId, manifest_key, run_folder};
pub use producer::Producer;
pub use put::{PutReport, PutRequest, backup, plan, put};
pub use root::Root;
pub use stop::{Stop, Stopper, stopper};
