//! `plan` and `tune`: predicts objects, requests, prices and times of a backup before it is made.
//!
//! Measurement ([`Sample`], [`measure_machine`], [`measure_link`]) and prediction ([`estimate`],
//! [`recommend`]) are separate: prediction is arithmetic on measured numbers.

mod error;
mod estimate;
mod failure;
mod link;
mod machine;
mod model;
mod price_table;
mod prices;
mod recommend;
mod requests;
mod sample;

pub use error::TuneError;
pub use estimate::{Estimate, EstimateRequest, estimate};
pub use failure::run_failure;
pub use link::{LinkBounds, measure_link};
pub use machine::{CodecSpeed, Machine, measure_machine};
pub use model::{Choice, Job, Link, LinkPoint, Prediction, SlowestStage};
pub use price_table::PRICE_TABLE;
pub use prices::{Cost, PriceFacts, Prices};
pub use recommend::{Candidates, Recommendation, recommend};
pub use requests::Requests;
pub use sample::Sample;
