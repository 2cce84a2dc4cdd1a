//! Single blocks: the payload of a native data frame, `docs/spec/format.md` section 4.

mod decode;
mod encode;
mod probe;

pub use decode::BlockDecoder;
pub use encode::BlockEncoder;
pub use probe::RandomnessTest;
