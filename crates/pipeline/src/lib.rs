//! The store-free half of the product: streams in, parts of objects out, and back.
//!
//! - Up: [`start_put`] reads an xbstream, checks every chunk of it, makes a native stream of it (or
//!   keeps its chunks, the classic way) and hands [`Part`]s of exactly sized objects to a
//!   [`PartSink`]; a [`Transform`] compresses and encrypts file by file. Only a stream that is whole by its [`EndRule`] gives a result.
//! - Down: [`unpack`] takes ranges of a native stream and gives its plain bytes, [`relay`] checks
//!   a plain xbstream as it passes, an [`Extractor`] makes files of one, and [`Undo`]es on the way
//!   what was done to each of them. An [`Inspector`] looks into one and throws it away.
//! - Beside: [`filter`] makes encrypted files of any bytes, and takes them apart.
//! - Beneath: a [`Budget`] in bytes whose [`Permit`]s travel in [`Slab`]s, [`PutPlan`] and
//!   [`GetPlan`] that derive all sizes from it, and [`ordered`] workers.
//!
//! All of it runs in plain threads. Whoever stops first has the cause; the others say [`Closed`].
//! [`Observer`] counts for progress displays.
//!
//! ```
//! use xb_pipeline::{Budget, Content, Cutting, EndRule, Native, Observer, Part, PartLimits, PutPlan, PutSettings, start_put};
//! use xb_reader::{ChunkWriter, Dialect};
//!
//! let mut writer = ChunkWriter::new(Vec::new());
//! writer.payload("shop/orders.ibd", 0, &[7; 5000])?;
//! writer.end("shop/orders.ibd")?;
//! writer.end("xtrabackup_info")?; // the file that the producer writes last
//! let stream = std::io::Cursor::new(writer.finish()?);
//!
//! let limits = PartLimits { min: 1, max: u64::MAX, count: 10_000, equal: false };
//! let plan = PutPlan::new(64 << 20, 1000, 2, 4, limits)?; // objects of 1000 bytes
//! let header = xb_frame::StreamHeader::new(xb_frame::StreamId([1; 16])); // take random bytes
//! let content = Content::Xbstream { rule: EndRule::KnownProducer, dialect: Dialect::Auto };
//! let settings = PutSettings { plan, cutting: Cutting::Packed(Native::plain(header)), content };
//! let print = |part: Part| {
//!     let len: usize = part.payload.iter().map(|bytes| bytes.len()).sum();
//!     println!("object {}: {len} bytes", part.object);
//!     Ok(())
//! };
//! let done = start_put(stream, settings, &Budget::new(plan.memory), &Observer::default(), print)?.join()?;
//! assert_eq!(done.scanned.files, 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod body;
mod budget;
mod carry;
mod create;
mod cut;
mod extract;
pub mod filter;
mod gather;
mod get;
mod globs;
mod inspect;
mod member;
mod observe;
mod open;
mod pack;
mod pick;
mod plan;
mod pool;
mod put;
mod recut;
mod relay;
mod scan;
mod slab;
pub mod sums;
mod undo;
mod walk;
mod whole;

pub use budget::{Budget, Permit};
pub use carry::start_carry;
pub use create::{CreateError, CreateNote, CreateOptions, CreateReport, create};
pub use cut::{ChunkCutter, Cut, CutError};
pub use extract::{
    BegunFile, Durability, ExtractCause, ExtractError, ExtractLog, ExtractOptions, ExtractReport,
    Extractor, OnFailure, Stopped, Truncated, extract_from,
};
pub use get::{GetError, unpack, unpack_watched};
pub use globs::{GlobError, Globs};
pub use inspect::{
    BadPageOf, Disagreement, IndexProof, IndexWatch, InspectError, InspectOptions, Inspected,
    Inspector, MAX_BAD_PAGES, PagesFound,
};
pub use member::{FileCipher, MemberError, Transform};
pub use observe::{Observer, Snapshot, Wait};
pub use pack::{MAX_SUMS, Packed, Packer, Part, PartSink, RootDigest, object_key};
pub use pick::{Body, BodyError, FRONT_LEN, unpack_parts};
pub use plan::{GetPlan, PartLimits, PlanError, PutPlan, SLAB};
pub use pool::{Closed, Results, Submit, WorkerDied, ordered, ordered_by};
pub use put::{Content, Cutting, Laid, Native, Put, PutError, PutSettings, Putting, start_put};
pub use relay::{RelayError, relay};
pub use scan::{Scanned, StreamError};
pub use slab::{Slab, SlabPool};
pub use undo::{Decrypt, Undo, UndoError};
pub use whole::{EndProof, EndRule, EndWatch, LastFile, NotWhole, logical_name};
