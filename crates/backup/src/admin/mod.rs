//! Commands on existing backups: copy, delete, prune, gc, show, rewrap, lock, estimate.

pub(crate) mod copy;
pub(crate) mod delete;
pub(crate) mod delete_files;
pub(crate) mod gc;
mod key_slots;
pub(crate) mod object_lock;
pub(crate) mod prune;
pub(crate) mod rewrap;
pub(crate) mod show;
