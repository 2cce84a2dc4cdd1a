//! Programs that we start: none outlives us, and nothing that it has started outlives it.
//!
//! - [`Program`] says what to start and how, [`Running`] is a program under way, [`Signaller`]
//!   signals it from elsewhere.
//! - [`serve_as_guardian`] makes our own program able to guard others; see there.
//! - [`LockGuard`] and [`guard`] take the output of a backup program that holds locks on its server,
//!   by way of a spool ([`spooled`]) when nobody else takes it.
//!
//! Who wants a program to end, and what follows from how it ended, is the caller's affair.

mod guardian;
mod lock_guard;
mod lock_messages;
mod messages;
mod program;
mod running;
mod spool;

pub use guardian::{NOT_STARTED, serve_as_guardian};
pub use lock_guard::{GuardedOutput, LockGuard, guard};
pub use lock_messages::{Change, change};
pub use messages::{Messages, how_it_ended, lines};
pub use program::Program;
pub use running::{Running, Signaller};
pub use spool::{LockSwitch, SpoolReader, SpoolSettings, spooled};
