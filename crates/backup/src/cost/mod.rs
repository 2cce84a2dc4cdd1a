//! Cost of a backup and likelihood of its failure: prices, requests by kind, failures.

pub(crate) mod failure;
pub(crate) mod price_table;
pub(crate) mod prices;
pub(crate) mod requests;
