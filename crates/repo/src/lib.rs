//! The repository: the names and keys of backups in a store, their manifests, records and claims,
//! what a listing shows, and which backups can be restored now.
//!
//! A [`Root`](root::Root) is a prefix in a store. A backup exists if and only if its
//! [manifest](manifest) exists, which is written last; a [claim] marks the run that writes it, or
//! the removal of it. This crate knows nothing of how backups are written or read.

pub mod archive;
mod backup_kind;
pub mod catalogue;
pub mod chain;
pub mod claim;
pub mod consolidated;
pub mod contents;
pub mod error;
mod first_object;
pub mod hex;
pub mod history;
pub mod keys;
pub mod lineage;
pub mod list;
pub mod list_cache;
mod list_line;
pub mod manifest;
pub mod names;
pub mod pin;
pub mod probes;
mod proof;
pub mod records;
pub mod resolve;
pub mod restorable;
pub mod root;
pub mod roots;
pub mod shrunk;
pub mod sizes;
pub mod unread;
pub mod verification;
