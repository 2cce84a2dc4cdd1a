//! Collects bytes into blocks.

use std::collections::VecDeque;

use bytes::Bytes;

/// Bytes that do not fill a block yet.
#[derive(Debug, Default)]
pub(super) struct Pending {
    slices: VecDeque<Bytes>,
    pub(super) len: usize,
}

impl Pending {
    pub(super) fn push(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.len += bytes.len();
            self.slices.push_back(bytes);
        }
    }

    /// Takes the first `most` bytes, or all if there are fewer.
    pub(super) fn take(&mut self, most: usize) -> Vec<Bytes> {
        let mut taken = Vec::new();
        let mut left = most;
        while left > 0
            && let Some(mut first) = self.slices.pop_front()
        {
            if first.len() > left {
                let now = first.split_to(left);
                self.slices.push_front(first);
                first = now;
            }
            left -= first.len();
            self.len -= first.len();
            taken.push(first);
        }
        taken
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn blocks_are_cut_without_losing_a_byte(lens in proptest::collection::vec(0_usize..50, 0..20), most in 1_usize..30) {
            let mut pending = Pending::default();
            let mut whole: Vec<u8> = Vec::new();
            for (n, len) in lens.iter().enumerate() {
                let bytes = vec![n as u8; *len];
                whole.extend(&bytes);
                pending.push(bytes.into());
            }
            let mut out = Vec::new();
            while pending.len > 0 {
                let block = pending.take(most).concat();
                prop_assert!(block.len() == most || pending.len == 0);
                out.extend(block);
            }
            prop_assert_eq!(out, whole);
        }
    }
}
