//! Bytes on a connection: the first line, the messages, the blocks (`docs/wire.md`).

pub(crate) mod banner;
pub(crate) mod buffer_pool;
pub(crate) mod checksum;
pub(crate) mod error;
mod fields;
pub(crate) mod head;
pub(crate) mod message;
pub(crate) mod message_reader;
