//! The ranges delivered last, whose content only the consumer can check: when it finds damage, they
//! are fetched again, because a response may have been altered in transit.

use std::collections::VecDeque;

use xb_pipeline::sums;
use xb_uploader::{Operation, Store, StoreError, StoreErrorKind};

use crate::objects::range::Range;

/// The delivered ranges without a known checksum, as far back as a consumer can be late.
#[derive(Debug)]
pub(crate) struct Recent {
    ranges: VecDeque<(Range, u64)>,
    bytes: u64,
    /// Bytes that can be on their way to the consumer.
    most: u64,
}

impl Recent {
    pub(super) fn new(most: u64) -> Self {
        Self { ranges: VecDeque::new(), bytes: 0, most }
    }

    /// Adds a range with its CRC-64/NVME.
    pub(super) fn add(&mut self, range: &Range, crc: u64) {
        // A range with a known checksum was compared with it.
        if range.sum.is_some() {
            return;
        }
        self.bytes += range.len;
        self.ranges.push_back((range.clone(), crc));
        while self.bytes > self.most
            && self.ranges.len() > 1
            && let Some((old, _)) = self.ranges.pop_front()
        {
            self.bytes -= old.len;
        }
    }

    /// Fetches the ranges again; returns the error for the first one whose second answer differs
    /// from the first. If there is none, what the consumer found is in the store.
    pub(crate) async fn altered(&self, store: &Store) -> Option<StoreError> {
        for (range, crc) in self.ranges.iter().rev() {
            let end = range.start + range.len;
            let again = store.get_range(&range.key, range.start..end, range.of).await.ok()?;
            if sums::crc64(&again) != *crc {
                let what = format!(
                    "bytes {} to {end} were altered in transit: a second response differs from the first",
                    range.start
                );
                return Some(StoreError::new(
                    Operation::Get,
                    &range.key,
                    StoreErrorKind::Altered,
                    what,
                ));
            }
        }
        None
    }
}
