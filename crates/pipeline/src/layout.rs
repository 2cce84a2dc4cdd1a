//! Layout of a stream in objects.

use crate::classic::fixed_size::idle_limit;
use crate::classic::transform::{MemorySplit, Transform};
use crate::flow::budget::Budget;
use crate::flow::hold_ups::Wait;
use crate::flow::plan::{PackPlan, PlanError};
use crate::pack::encode::Encoding;
use crate::pack::input::{Content, NativeStream, XbstreamInput};

/// Layout of a stream in objects.
#[derive(Debug)]
pub enum ObjectLayout {
    /// One native stream in objects of the plan's size.
    Packed {
        /// Kind of input.
        content: Content,
        /// Native stream to create.
        stream: NativeStream,
    },
    /// Objects that hold whole chunks of one file each.
    Classic {
        /// Settings for reading the input xbstream.
        input: XbstreamInput,
        /// Layout of its files.
        files: ClassicLayout,
    },
}

/// Layout of files in classic objects.
#[derive(Debug, Clone)]
pub struct ClassicLayout {
    /// Content of an object.
    pub objects: ClassicObjects,
    /// Compresses and encrypts each file before it is cut into objects.
    pub transform: Option<Transform>,
}

/// Content of an object in the classic layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClassicObjects {
    /// One chunk, as the stock tools store it. The plan's object size is ignored.
    OnePerChunk,
    /// As many chunks of one file as fill exactly the plan's object size.
    FixedSize,
}

/// Division of a run's memory.
pub(crate) struct LayoutMemory {
    /// Budget for the reader's slabs.
    pub(crate) slabs: Budget,
    /// Memory for transforming files; `None` without a transform.
    pub(crate) transform: Option<MemorySplit>,
}

impl LayoutMemory {
    /// Returns which stage frees slabs: the workers if they copy the bytes out, otherwise the sink,
    /// because the bytes travel on inside the slabs.
    pub(crate) fn slabs_wait_for(&self) -> Wait {
        if self.transform.is_some() { Wait::Workers } else { Wait::Sink }
    }
}

impl ClassicLayout {
    /// Checks that the plan's memory is large enough for this layout.
    ///
    /// # Errors
    /// [`PlanError`] with the memory that is needed.
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
                compress: stream.compress.clone(),
                // The tags of a seal prove more, and sealed segments are checksummed later.
                sealed: stream.sealer.is_some(),
            },
            Self::Classic { .. } => Encoding::Plain,
        }
    }
}
