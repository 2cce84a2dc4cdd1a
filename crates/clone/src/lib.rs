//! A backup of a running MySQL server without a backup program: our program is the recipient of a clone.
//!
//! [`receive`] logs in, refuses what a clone would silently lose, receives everything over the protocol that
//! [`xb_mysql::clone`] speaks, and writes a stream:
//!
//! ```text
//! files as they are read        under their own names, torn and of different times
//! xb_clone.patches              the changed pages and the redo log that make them one
//! xb_clone.json                 what the files are; the last file, written only when everything came
//! ```
//!
//! Without the patches there is no redo log, so that no server starts on the files alone. The form is described
//! in `docs/spec/clone.md`.
//!
//! [`assemble`] puts the files of such a stream together in the directory to which they were extracted. The redo
//! log comes last, so that a server can start on all of it, or not at all.

mod assemble;
mod donor;
mod error;
mod findings;
mod guards;
mod heads;
mod in_place;
mod kept_redo;
mod keys;
mod late;
mod layout;
mod moved;
mod notice;
mod patches;
mod position;
mod receive;
mod settings;
mod shared_keys;
mod sink;
mod stored;
mod text;

pub use assemble::{
    assemble, check_extracted, exposed_keys, exposed_redo, is_assembled, remove_parts,
};
pub use error::Error;
pub use findings::{ServerFacts, look, try_clone};
pub use notice::Notice;
pub use patches::{Patch, PatchReader, PatchTarget};
pub use position::binlog_position;
pub use receive::receive;
pub use settings::Settings;
pub use shared_keys::has_shared_keys;
pub use stored::{CloneInfo, INFO, KEYS_TEXT, OUTSIDE, PATCHES, README, StoredFile, StoredRedo};
