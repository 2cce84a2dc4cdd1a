//! The protocol on a connection: first line, messages and blocks (`docs/spec/wire.md`).

pub(crate) mod banner;
pub(crate) mod buffer_pool;
pub(crate) mod checksum;
pub(crate) mod error;
mod fields;
pub(crate) mod head;
pub(crate) mod message;
pub(crate) mod message_reader;
