//! What comes in, and how it is laid out in objects.

use xb_compressor::Algorithm;
use xb_encryptor::Sealer;
use xb_frame::StreamHeader;
use xb_reader::Dialect;

use crate::classic::fixed_size::idle_limit;
use crate::classic::transform::{MemorySplit, Transform};
use crate::flow::budget::Budget;
use crate::flow::observer::Wait;
use crate::flow::plan::{PackPlan, PlanError};
use crate::pack::encode::Encoding;
use crate::scan::end_rule::EndRule;

/// How a stream is laid out in objects.
#[derive(Debug)]
pub enum ObjectLayout {
    /// One native stream in objects of the plan's size.
    Packed {
        /// What comes in.
        content: Content,
        /// The native stream that is made of it.
        stream: NativeStream,
    },
    /// Objects of whole chunks of one file each.
    Classic {
        /// How to read the xbstream that comes in.
        input: XbstreamInput,
        /// How its files are laid out.
        files: ClassicLayout,
    },
}

/// How files are laid out in classic objects.
#[derive(Debug, Clone)]
pub struct ClassicLayout {
    /// What an object holds.
    pub objects: ClassicObjects,
    /// Compresses and encrypts file by file before.
    pub transform: Option<Transform>,
}

/// What an object of the classic layout holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClassicObjects {
    /// One chunk, as the stock tools store it. The plan's object size does not count.
    OnePerChunk,
    /// As many chunks of one file as make exactly the plan's object size.
    FixedSize,
}

/// What comes in.
#[derive(Debug, Clone)]
pub enum Content {
    /// An xbstream: every chunk is checked, and the index knows every file.
    Xbstream(XbstreamInput),
    /// Any bytes up to the end of the input. That this is their right end cannot be checked, and
    /// there is nothing to index.
    Raw,
}

/// How to read an xbstream.
#[derive(Debug, Clone)]
pub struct XbstreamInput {
    /// When it counts as complete.
    pub rule: EndRule,
    /// How to read the letter `S`.
    pub dialect: Dialect,
}

/// What the native stream is to be like.
#[derive(Debug)]
pub struct NativeStream {
    /// Its header, which must be sealed exactly when there is a sealer.
    pub header: StreamHeader,
    /// Codec of its frames. A frame that does not shrink is stored as it is.
    pub compress: Algorithm,
    /// Seals its body.
    pub sealer: Option<Sealer>,
}

impl NativeStream {
    /// Neither compressed nor sealed.
    #[must_use]
    pub fn plain(header: StreamHeader) -> Self {
        Self { header, compress: Algorithm::None, sealer: None }
    }

    pub(crate) fn is_plain(&self) -> bool {
        self.compress == Algorithm::None && self.sealer.is_none()
    }
}

/// How the memory of a run is divided.
pub(crate) struct LayoutMemory {
    /// What the reader's slabs are leased from.
    pub(crate) slabs: Budget,
    /// The share of the files that are transformed one by one.
    pub(crate) transform: Option<MemorySplit>,
}

impl LayoutMemory {
    /// What gives slabs back: the stage that takes them apart, or, as their bytes travel on in them,
    /// the store.
    pub(crate) fn slabs_wait_for(&self) -> Wait {
        if self.transform.is_some() { Wait::Workers } else { Wait::Sink }
    }
}

impl ClassicLayout {
    /// Checks that the plan's memory is enough for this layout.
    ///
    /// # Errors
    /// [`PlanError`] with the memory that is.
    pub fn check(&self, plan: &PackPlan) -> Result<(), PlanError> {
        match (&self.transform, self.objects) {
            (None, ClassicObjects::OnePerChunk) => Ok(()),
            (None, ClassicObjects::FixedSize) => idle_limit(plan).map(drop),
            (Some(_), _) => self.transform_memory(plan).map(drop),
        }
    }

    fn transform_memory(&self, plan: &PackPlan) -> Result<Option<MemorySplit>, PlanError> {
        let fixed_size = self.objects == ClassicObjects::FixedSize;
        self.transform.as_ref().map(|files| files.memory_split(plan, fixed_size)).transpose()
    }
}

impl ObjectLayout {
    pub(crate) fn memory(
        &self,
        plan: &PackPlan,
        budget: &Budget,
    ) -> Result<LayoutMemory, PlanError> {
        let transform = match self {
            Self::Packed { .. } => None,
            Self::Classic { files, .. } => {
                files.check(plan)?;
                files.transform_memory(plan)?
            }
        };
        let slabs = transform.map_or_else(|| budget.clone(), |split| Budget::new(split.slabs));
        Ok(LayoutMemory { slabs, transform })
    }

    pub(crate) fn content(&self) -> Content {
        match self {
            Self::Packed { content, .. } => content.clone(),
            Self::Classic { input, .. } => Content::Xbstream(input.clone()),
        }
    }

    pub(crate) fn encoding(&self) -> Encoding {
        match self {
            Self::Packed { stream, .. } => Encoding::Frame {
                compress: stream.compress,
                // The tags of a seal prove more, and segments are summed up behind it.
                crc32c: stream.sealer.is_none(),
                crc64: stream.is_plain(),
            },
            Self::Classic { .. } => Encoding::Plain,
        }
    }
}
