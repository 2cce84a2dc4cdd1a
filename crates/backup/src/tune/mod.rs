//! `tune`: measures this machine and the link to a store, and predicts what settings lead to.
//!
//! What measures ([`sample`], [`machine`], [`link`]) and what predicts ([`model`], [`recommend`]) are
//! separate: the model is arithmetic on measured numbers.

pub(crate) mod error;
pub(crate) mod link;
pub(crate) mod machine;
pub(crate) mod model;
pub(crate) mod recommend;
pub(crate) mod sample;
