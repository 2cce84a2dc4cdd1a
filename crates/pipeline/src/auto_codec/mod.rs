//! `--compress=auto`: a codec and level for each frame, chosen by what limits the pipeline.
//!
//! Workers report what each frame cost and saved ([`levels`]); the counters of the run show whether
//! the source, the workers or the link is the limit ([`controller`]), and the load of the machine
//! whether the store and the producer share its processors ([`machine`]). Over a fast link, where
//! predictions are too coarse, a [`trial`] decides. Frames of one stream may have different codecs, so
//! a choice takes effect with the next frame.

mod bound;
mod controller;
mod encoder;
mod frame_compression;
mod levels;
mod machine;
mod mean;
mod processors;
mod run;
mod sample;
#[cfg(test)]
mod simulation;
mod trial;

pub use controller::Limit;
pub(crate) use encoder::AutoEncoder;
pub use frame_compression::{FrameCompression, codec_memory};
pub use run::{AutoCodec, AutoReport};
