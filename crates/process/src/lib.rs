//! Child programs: no program outlives this process, and neither does anything that it started.
//!
//! - [`Program`] describes what to start and how, [`Running`] is a running program, [`Signaller`]
//!   signals it from another thread.
//! - [`serve_as_guardian`] lets this executable guard its children, and be a [`Remover`] of a
//!   directory that must not outlive this process.
//! - [`LockGuard`] and [`guard`] drain the output of a backup program that holds locks on its
//!   server, into a spool ([`spooled`]) while the consumer does not keep up.
//! - [`left_out`] recognises that a backup program leaves a table out, [`DroppedTablespaces`] that it leaves out what was
//!   imported.
//! - [`CancelToken`] cancels work in tasks, threads and programs.
//! - [`Memory`] is what this process and its programs may take.
//! - [`can_confine`] tells whether programs can be kept from writing elsewhere.
//! - [`run`] runs a program to its end and exchanges bytes with it; [`capture`] stores the output of a
//!   short one, within limits.
//!
//! The caller decides when a program must end and what follows from its exit status.

mod cancel;
mod capture;
mod confine;
mod environment;
mod group;
mod guardian;
mod imports;
mod left_out;
mod line;
mod lock_guard;
mod lock_messages;
mod memory;
mod messages;
mod open_files;
mod program;
mod remover;
mod run;
mod running;
mod spool;
mod spool_cipher;

pub use cancel::{CancelHook, CancelOnDrop, CancelToken};
pub use capture::{CaptureError, capture};
pub use guardian::{NOT_STARTED, can_confine, serve_as_guardian};
pub use imports::{
    DiscardedSearch, DroppedTablespaces, HIGHEST, ImportedNotDropped, StreamedTables, TablesBefore,
    TablesQuestion, VERSION, lists_opened,
};
pub use left_out::{LeftOut, left_out};
pub use lock_guard::{GuardedOutput, LockGuard, Stall, guard};
pub use lock_messages::{Change, change};
pub use memory::Memory;
pub use messages::{Messages, how_it_ended};
pub use program::Program;
pub use remover::Remover;
pub use run::{Exchange, Output, RunError, Termination, run};
pub use running::{Running, Signaller};
pub use spool::{LockSwitch, SpoolReader, SpoolSettings, spooled};
