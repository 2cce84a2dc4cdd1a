//! Converts streams to objects and back, in threads, within a memory budget, and without a store.
//!
//! - Up: [`start_pack`] reads an xbstream, checks every chunk, converts it to a native stream (or
//!   keeps its chunks in the classic layout) and passes [`Part`]s of objects of exact size to a
//!   [`PartSink`]. A [`Transform`] compresses and encrypts file by file. A result is returned only
//!   if the stream is complete by its [`EndRule`].
//! - Down: [`unpack`] takes ranges of a native stream and returns its plain bytes. [`relay`] checks
//!   a plain xbstream as it passes. An [`Extractor`] creates the files of an xbstream, and decrypts
//!   and decompresses them on the way ([`FileDecoding`]). An [`Inspector`] checks an xbstream and stores
//!   nothing.
//! - [`RecoveredFiles`] are the tablespaces of a data directory on which recovery is over: all of their pages are checked.
//! - [`Merge`] reads the streams of several FIFOs as one xbstream, and [`Split`] divides one between
//!   FIFOs.
//! - [`filter`] encrypts any bytes to a file and decrypts them again.
//! - A [`Budget`] counts the bytes held in memory, and its [`Permit`]s travel in [`Slab`]s.
//!   [`PackPlan`] and [`UnpackPlan`] derive all sizes from the budget, and [`ordered`] workers do the
//!   work.
//!
//! All stages run in plain threads. The stage that stops first has the cause; the others report
//! [`Closed`]. An [`Observer`] counts for progress displays.
//!
//! # Up
//!
//! ```
//! use xb_pipeline::{
//!     Budget, Content, EndRule, NativeStream, ObjectLayout, ObjectSize, Observer, PackPlan,
//!     PackSettings, PackSizing, Part, PartLimits, XbstreamInput, start_pack,
//! };
//! use xb_reader::{ChunkWriter, Dialect};
//!
//! let mut writer = ChunkWriter::new(Vec::new());
//! writer.payload("shop/orders.ibd", 0, &[7; 5000])?;
//! writer.end("shop/orders.ibd")?;
//! writer.end("xtrabackup_info")?; // the file that the producer writes last
//! let stream = std::io::Cursor::new(writer.finish()?);
//!
//! let limits = PartLimits { min: 1, max: u64::MAX, count: 10_000, object: u64::MAX, equal: false };
//! let object_size = ObjectSize::new(1000);
//! let plan =
//!     PackPlan::new(PackSizing { memory: 64 << 20, codec_memory: 0, object_size, threads: 2, parallel: 4, limits })?;
//! let header = xb_frame::StreamHeader::new(xb_frame::StreamId([1; 16])); // take random bytes
//! let input = XbstreamInput { rule: EndRule::KnownProducer, dialect: Dialect::Auto };
//! let (content, stream_out) = (Content::Xbstream(input), NativeStream::plain(header));
//! let layout = ObjectLayout::Packed { content, stream: stream_out };
//! let settings = PackSettings { plan, layout };
//! let print = |part: Part| {
//!     let len: usize = part.payload.iter().map(|bytes| bytes.len()).sum();
//!     println!("object {}: {len} bytes", part.object);
//!     Ok(())
//! };
//! let budget = Budget::new(plan.memory);
//! let packed = start_pack(stream, settings, &budget, &Observer::default(), print)?.join()?;
//! assert_eq!(packed.scanned.files, 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Down
//!
//! ```
//! use xb_pipeline::{ExtractOptions, Extractor};
//! use xb_reader::{ChunkWriter, TargetDir};
//!
//! let mut writer = ChunkWriter::new(Vec::new());
//! writer.payload("shop/orders.ibd", 0, b"some pages")?;
//! writer.end("shop/orders.ibd")?;
//! let stream = writer.finish()?;
//!
//! let dir = tempfile::tempdir()?;
//! let mut extractor = Extractor::new(TargetDir::open(dir.path())?, ExtractOptions::default())?;
//! for piece in stream.chunks(7) {
//!     // An error here only says that there is one: `finish` has it.
//!     if extractor.feed(piece.to_vec().into()).is_err() {
//!         break;
//!     }
//! }
//! let report = extractor.finish()?;
//! assert_eq!(report.files, 1);
//! assert_eq!(std::fs::read(dir.path().join("shop/orders.ibd"))?, b"some pages");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod auto_codec;
mod classic;
mod create;
mod extract;
mod fifo;
pub mod filter;
mod flow;
mod inspect;
mod layout;
mod pack;
mod scan;
mod start_pack;
#[cfg(test)]
mod testing;
mod unpack;

pub use auto_codec::{AutoCodec, AutoReport, FrameCompression, Limit, codec_memory};
pub use classic::transform::{FileCipher, Transform};
pub use create::{CreateError, CreateNote, CreateOptions, CreateReport, create};
pub use extract::decode::{Decrypt, FileDecodeError, FileDecoding};
pub use extract::extractor::Extractor;
pub use extract::from_file::StoredStream;
pub use extract::from_reader::extract_from;
pub use extract::report::{
    Durability, ExtractCause, ExtractError, ExtractLog, ExtractOptions, ExtractReport, OnFailure,
    PartialFileState, Stopped, Truncated,
};
pub use fifo::{FifoError, FifoNames, FifoSettingsError, Fifos, Merge, Split};
pub use flow::budget::{Budget, Permit};
pub use flow::checksum as sums;
pub use flow::globs::{GlobError, Globs};
pub use flow::hold_ups::Wait;
pub use flow::observer::{Observer, Phase, PhaseBegin, Snapshot, Waiting};
pub use flow::ordered_pool::{Closed, Results, Submit, WorkerDied, ordered};
pub use flow::plan::{
    ObjectSize, PackPlan, PackSizing, PartLimits, PlanError, SLAB, UnpackPlan, worker_threads,
};
pub use flow::received::{BlockSums, Received};
pub use flow::slab::{Slab, SlabPool};
pub use flow::work::{Watcher, Work, WorkDone};
pub use inspect::{
    BadPageOf, BadRedo, BadTable, IndexMismatch, IndexProof, IndexWatch, InspectError,
    InspectOptions, InspectReport, Inspector, MAX_BAD_PAGES, PagesFound, RecoveredFile,
    RecoveredFiles, RedoFault, TableFault,
};
pub use layout::{ClassicLayout, ClassicObjects, ObjectLayout};
pub use pack::error::{CutError, PackError, TransformError};
pub use pack::input::{Content, NativeStream, XbstreamInput};
pub use pack::native_input::start_pack_native;
pub use pack::packer::{MAX_SUMS, PackedTotals, Packer, Part, PartSink, RootDigest, object_key};
pub use pack::pass_on::PassOn;
pub use pack::result::{Cut, PackHandle, PackOutput, PackResult};
pub use scan::definitions::{DefinedTables, TablesWithoutFiles};
pub use scan::end_rule::{CLONE_INFO, EndProof, EndRule, EndWatch, LastFile, NotWhole};
pub use scan::on_disk::{BeforePrepare, LostTables};
pub use scan::passthrough::{PassthroughError, relay};
pub use scan::producer_files::logical_name;
pub use scan::scanner::{REDO_LOGS, Scanned, StreamError};
pub use start_pack::{PackSettings, start_pack};
pub use unpack::error::UnpackError;
pub use unpack::parts::{Body, BodyError, FRONT_LEN, unpack_parts};
pub use unpack::{unpack, unpack_watched};
