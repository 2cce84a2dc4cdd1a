//! The data objects of a backup: their keys, their files, their checksums.

pub(crate) mod checksums;
pub(crate) mod classic;
pub(crate) mod classic_checksums;
pub(crate) mod classic_names;
pub(crate) mod ledger;
pub(crate) mod range;
pub(crate) mod remove;
