//! Content of a ROOT's catalogue: names, manifests, records, chains.

pub(crate) mod chain;
pub(crate) mod galera_position;
pub(crate) mod list;
pub(crate) mod list_cache;
pub(crate) mod manifest;
pub(crate) mod names;
pub(crate) mod records;
pub(crate) mod resolve;
pub(crate) mod root;
pub(crate) mod signed_text;
pub(crate) mod source_info;
pub(crate) mod unread;
pub(crate) mod verification;
