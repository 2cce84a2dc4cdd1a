//! What a backup costs, and how likely it fails: prices, requests by kind, failures.

pub(crate) mod failure;
pub(crate) mod price_table;
pub(crate) mod prices;
pub(crate) mod requests;
