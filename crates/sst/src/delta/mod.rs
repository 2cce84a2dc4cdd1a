//! A transfer that leaves out what the joiner already has: its old data was once a physical copy of a node, and what
//! neither side has changed since is byte for byte the same.
//!
//! ```text
//! donor    backup ──► groups of blocks ──► chunks without what the joiner has ──► pack, as in every transfer
//!                     │ hashes    ▲ bitmap
//! joiner              ▼           │
//!          old data ──► equal? ──► held copies ──► whole chunks ──► extractor, as in every transfer
//! ```
//!
//! The format is in `docs/spec/delta.md`. Equality is by keyed hash. The joiner answers only for blocks that it holds as
//! copies, and uses these copies: what happens to the old data afterwards does not matter.
//!
//! - `group` is the unit of a question, `question` its bytes; `cut` takes blocks out of a chunk and puts them back.
//! - Donor: `thin` replaces chunks in the backup program's stream, which `read_ahead` reads, `choice` decides whether to ask.
//! - Joiner: `answering` is the thread that answers, `old_files` reads the files of the old data, `held` keeps what was equal, `fill`
//!   completes the chunks.
//!
//! What both sides agree on is in their offer and answer: `offer` of this crate.

pub(crate) mod answering;
pub(crate) mod choice;
pub(crate) mod cut;
pub(crate) mod fill;
pub(crate) mod group;
pub(crate) mod held;
pub(crate) mod old_files;
pub(crate) mod question;
pub(crate) mod read_ahead;
#[cfg(test)]
mod tests;
pub(crate) mod thin;
