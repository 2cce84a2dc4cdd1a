//! Joins small pieces, so that compressed payloads do not keep a whole slab each.
//!
//! A frame's lease travels with its bytes: the slab into which a piece is copied takes over as much
//! of the lease as the piece is long, and the rest is returned. So no stage leases twice.

use crate::flow::budget::Permit;
use crate::flow::slab::{Slab, SlabPool};

/// Fills slabs to a given length, one after the other.
#[derive(Debug)]
pub(crate) struct Coalescer {
    pool: SlabPool,
    /// Length of the first slab and of all other slabs, in bytes.
    lengths: (usize, usize),
    current: Option<Slab>,
    begun: u64,
}

impl Coalescer {
    /// Takes slabs from `pool` and fills the first to `first` bytes, the others to `then`. Both are
    /// at most the size of a slab.
    pub(crate) fn new(pool: SlabPool, first: usize, then: usize) -> Self {
        let size = pool.slab_size();
        Self { pool, lengths: (first.clamp(1, size), then.clamp(1, size)), current: None, begun: 0 }
    }

    /// Copies `bytes`, for which `permit` pays. `full` receives each slab that is full and not the
    /// last.
    pub(crate) fn push<E>(
        &mut self,
        mut bytes: &[u8],
        mut permit: Option<Permit>,
        mut full: impl FnMut(Slab) -> Result<(), E>,
    ) -> Result<(), E> {
        while !bytes.is_empty() {
            // A full slab waits until more bytes show that it is not the last.
            if let Some(slab) = self
                .current
                .take_if(|slab| slab.len() == limit(self.lengths.0, self.lengths.1, self.begun))
            {
                full(slab)?;
            }
            let slab = self.current.get_or_insert_with(|| {
                self.begun += 1;
                self.pool.take(None)
            });
            let room = limit(self.lengths.0, self.lengths.1, self.begun) - slab.len();
            let (mut now, later) = bytes.split_at(room.min(bytes.len()));
            if let Some(mut paying) = permit.take() {
                permit = Some(paying.split_off(now.len() as u64)).filter(|_| !later.is_empty());
                slab.pay(paying);
            }
            slab.fill_from(&mut now);
            bytes = later;
        }
        Ok(())
    }

    /// Returns the slab that is being filled, so that other bytes can follow it.
    pub(crate) fn flush(&mut self) -> Option<Slab> {
        self.current.take()
    }

    /// Returns whether no slab is being filled.
    pub(crate) fn is_flushed(&self) -> bool {
        self.current.is_none()
    }

    /// Returns the last slab; `None` if no byte was pushed since the last flush.
    pub(crate) fn finish(self) -> Option<Slab> {
        self.current
    }
}

fn limit(first: usize, then: usize, begun: u64) -> usize {
    if begun == 1 { first } else { then }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::budget::Budget;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_come_out_side_by_side_and_paid_for(
            pieces in proptest::collection::vec(0_usize..20_000, 0..20), first in 1_usize..9000, then in 1_usize..9000,
        ) {
            let budget = Budget::new(1 << 30);
            let mut coalescer = Coalescer::new(SlabPool::new(8192, 4), first, then);
            let (mut input, mut slabs) = (Vec::new(), Vec::new());
            for (n, len) in pieces.iter().enumerate() {
                let piece = vec![u8::try_from(n).unwrap(); *len];
                input.extend_from_slice(&piece);
                // A frame's lease is larger than its compressed payload.
                coalescer.push(&piece, Some(budget.lease(1 << 16)), |slab| { slabs.push(slab); Ok::<_, ()>(()) }).unwrap();
                let held: u64 = slabs.iter().map(|s: &Slab| s.len().next_multiple_of(4096) as u64 + 4096).sum::<u64>() + 8192;
                prop_assert!(budget.in_use() <= held, "{} of {held}", budget.in_use());
            }
            slabs.extend(coalescer.finish());
            let bytes: Vec<u8> = slabs.iter().flat_map(|s| s.to_vec()).collect();
            prop_assert!(bytes == input);
            for (n, slab) in slabs.iter().enumerate() {
                let full = if n == 0 { first } else { then }.min(8192);
                prop_assert!(slab.len() == full || n + 1 == slabs.len());
            }
            drop(slabs);
            prop_assert_eq!(budget.in_use(), 0);
        }
    }
}
