//! A backup program at work: what it says, which locks of its server it holds meanwhile, and its
//! output, which must not be kept waiting while it holds any.
//!
//! Knows neither who starts the program nor who takes its output.

mod guard;
mod locks;

pub use guard::{GuardedOutput, LockGuard, Messages, guard, how_it_ended, lines};
pub use locks::{Change, change};
