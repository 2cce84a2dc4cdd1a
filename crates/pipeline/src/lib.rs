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

mod classic;
mod create;
mod extract;
pub mod filter;
mod flow;
mod inspect;
mod pack;
mod scan;
mod spool;
mod unpack;

pub use classic::one_object_per_chunk::{ChunkCutter, Cut, CutError};
pub use classic::transform::{FileCipher, MemberError, Transform};
pub use create::{CreateError, CreateNote, CreateOptions, CreateReport, create};
pub use extract::decode::{Decrypt, Undo, UndoError};
pub use extract::extractor::{Extractor, extract_from};
pub use extract::report::{
    BegunFile, Durability, ExtractCause, ExtractError, ExtractLog, ExtractOptions, ExtractReport,
    OnFailure, Stopped, Truncated,
};
pub use flow::budget::{Budget, Permit};
pub use flow::checksum as sums;
pub use flow::globs::{GlobError, Globs};
pub use flow::observer::{Observer, Snapshot, Wait};
pub use flow::ordered_pool::{Closed, Results, Submit, WorkerDied, ordered, ordered_by};
pub use flow::plan::{GetPlan, PartLimits, PlanError, PutPlan, SLAB};
pub use flow::slab::{Slab, SlabPool};
pub use inspect::{
    BadPageOf, Disagreement, IndexProof, IndexWatch, InspectError, InspectOptions, Inspected,
    Inspector, MAX_BAD_PAGES, PagesFound,
};
pub use pack::native_input::start_carry;
pub use pack::packer::{MAX_SUMS, Packed, Packer, Part, PartSink, RootDigest, object_key};
pub use pack::{Content, Cutting, Laid, Native, Put, PutError, PutSettings, Putting, start_put};
pub use scan::end_rule::{EndProof, EndRule, EndWatch, LastFile, NotWhole, logical_name};
pub use scan::passthrough::{RelayError, relay};
pub use scan::scanner::{Scanned, StreamError};
pub use spool::{LockSwitch, SpoolReader, SpoolSettings, spooled};
pub use unpack::parts::{Body, BodyError, FRONT_LEN, unpack_parts};
pub use unpack::{GetError, unpack, unpack_watched};
