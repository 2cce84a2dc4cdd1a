//! Swaps the data of a server that is not running by renames alone. A crash at any moment leaves a
//! state that the next start can finish, and that no server mistakes for data.
//!
//! The new data is complete, prepared and durable in `FOLDER/#sql-xb/.new/`, the old data in
//! FOLDER. A journal in the data directory's `#sql-xb` lists the entries to swap. Every old entry
//! is moved to `FOLDER/#sql-xb/.old/`, then every new one is moved in. The location of an entry
//! shows how far its swap has come, so the journal need not be rewritten. `mysql/` is moved out
//! first and moved in last: without it no server starts. But a server that tries to start creates
//! new, empty files of its storage engines before it fails, and units start one (`--wsrep_recover`)
//! before they ask for a transfer: everything that such a server has created is moved to
//! `FOLDER/#sql-xb/.old/.stray/`.
//!
//! The journal of a finished swap stays beside the old data, so that the swap can be taken back.

mod begun;
mod entry_state;
mod error;
mod folder_locks;
mod folders;
mod journal;
mod journal_file;
mod owner;
mod plan;
mod renames;
mod take_back;
#[cfg(test)]
mod tests;

pub(crate) use begun::{has_moved_all, is_overtaken};
pub use error::SwapError;
pub use folder_locks::FolderLocks;
pub(crate) use folder_locks::lock_dir;
pub(crate) use folders::{NEW, OLD, START, WORK_DIR, list, make_dir, may_exist, remove_tree};
pub use folders::{make_folders, make_old};
pub use journal::{EngineState, Entry, Journal, JournalError};
pub use journal_file::{begin, interrupted, may_be_interrupted};
pub(crate) use journal_file::{
    drop_journal, end_removal, forget, holds_taken_back, if_usable, is_being_removed, last,
    mark_removal, remember, remembered, tidy,
};
#[cfg(test)]
pub(crate) use journal_file::{journal_path, kept_journal_path};
pub(crate) use owner::{claim_all, is_own, lock_and_check};
pub use plan::plan;
pub use renames::finish;
pub(crate) use renames::{put_away, roll_back};
pub use take_back::{may_take_back, take_back};
