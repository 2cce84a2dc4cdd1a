//! `tune`: measures this machine and the link to a store, and predicts the effect of settings.
//!
//! Measurement ([`sample`], [`machine`], [`link`]) and prediction ([`model`], [`recommend`]) are
//! separate: the model is arithmetic on measured numbers.

pub(crate) mod error;
pub(crate) mod link;
pub(crate) mod machine;
pub(crate) mod model;
pub(crate) mod recommend;
pub(crate) mod sample;
