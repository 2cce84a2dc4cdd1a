//! Where the log of a server continues the archive: at least one stored transaction is compared.

pub(crate) mod common_log;
pub(crate) mod elsewhere;
pub(crate) mod log_beginning;
pub(crate) mod search;
pub(crate) mod search_by_domain;
pub(crate) mod search_by_set;
pub(crate) mod search_outcome;
pub(crate) mod sent_transactions;
pub(crate) mod start;
