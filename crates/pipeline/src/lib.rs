//! Joins the crates below into one back-pressured pipeline. Knows no store and no command line.

mod budget;
mod create;
mod cut;
mod extract;
mod get;
mod observe;
mod pack;
mod plan;
mod pool;
mod put;
mod relay;
mod scan;
mod slab;
pub mod sums;
mod whole;

pub use budget::{Budget, Permit};
pub use create::{CreateError, CreateNote, CreateOptions, CreateReport, create};
pub use cut::{ChunkCutter, Cut, CutError};
pub use extract::{Durability, ExtractCause, ExtractError, ExtractOptions, ExtractReport, Extractor, Stopped, Truncated, extract_from};
pub use get::{GetError, unpack};
pub use observe::{Observer, Snapshot, Wait};
pub use pack::{Packed, Packer, Part, PartSink, RootDigest, object_key};
pub use plan::{GetPlan, PartLimits, PlanError, PutPlan, SLAB};
pub use pool::{Closed, Results, Submit, WorkerDied, ordered};
pub use put::{Cutting, Laid, Put, PutError, PutSettings, Putting, start_put};
pub use relay::{RelayError, relay};
pub use scan::{Scanned, StreamError};
pub use slab::{Slab, SlabPool};
pub use whole::{EndProof, EndRule, EndWatch, LastFile, NotWhole, logical_name};
