//! A range of one object.

/// A range of one object to fetch.
#[derive(Debug, Clone)]
pub(crate) struct Range {
    pub(crate) key: String,
    pub(crate) start: u64,
    pub(crate) len: u64,
    /// Expected size of the object.
    pub(crate) of: u64,
    /// Whether the range ends at the end of the object.
    pub(crate) end: bool,
    /// CRC-64/NVME of the range, if it is known.
    pub(crate) sum: Option<u64>,
    /// Whether to compute the checksums of blocks on arrival, for the frames of an unsealed stream.
    pub(crate) blocks: bool,
}

impl Range {
    /// Adds the checksum of the object, if the range is all of it.
    pub(crate) fn with_object_sum(mut self, sum: impl FnOnce(&str) -> Option<u64>) -> Self {
        if self.len == self.of {
            self.sum = sum(&self.key);
        }
        self
    }

    /// Sets whether to compute the checksums of blocks on arrival.
    pub(crate) fn with_blocks(mut self, yes: bool) -> Self {
        self.blocks = yes;
        self
    }
}
