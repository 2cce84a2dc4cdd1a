//! Content of a ROOT's catalogue: names, manifests, records, chains.

pub(crate) mod catalogue;
pub(crate) mod chain;
pub(crate) mod history;
pub(crate) mod lineage;
pub(crate) mod list;
pub(crate) mod manifest;
pub(crate) mod names;
pub(crate) mod records;
pub(crate) mod resolve;
pub(crate) mod restorable;
pub(crate) mod root;
pub(crate) mod verification;
