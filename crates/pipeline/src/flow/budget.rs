//! One byte budget for a run; permits travel inside the buffers they pay for.
//!
//! # The rule against deadlock
//! A unit (a frame on the way up, a range on the way down) is admitted in sequence order and
//! immediately leases all bytes it may need. An admitted unit never leases again. So the oldest
//! unit can always finish with what it holds, and then returns it.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Leases are counted in pages of this many bytes, because tokio's semaphore limits a lease to
/// 2^32 permits.
pub(crate) const PAGE: u64 = 4096;

/// Limit on the bytes held at one time. Clones share it.
#[derive(Debug, Clone)]
pub struct Budget {
    pages: Arc<Semaphore>,
    total: u64,
}

impl Budget {
    /// Creates a budget of `bytes`, rounded down to pages of 4 KiB; at least one page.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        let pages = (bytes / PAGE).clamp(1, u64::from(u32::MAX));
        let places = usize::try_from(pages).unwrap_or(Semaphore::MAX_PERMITS);
        Self { pages: Arc::new(Semaphore::new(places)), total: pages * PAGE }
    }

    /// Size of the whole budget in bytes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Number of bytes leased now.
    #[must_use]
    pub fn in_use(&self) -> u64 {
        self.total - self.pages.available_permits() as u64 * PAGE
    }

    /// Leases `bytes` as soon as they are free, first come, first served. A lease larger than the
    /// whole budget gets the whole budget. For plain threads: parks the thread while it waits.
    ///
    /// # Panics
    /// If this thread runs an async task, parking would block the executor: use
    /// [`Budget::lease_async`] there.
    #[must_use]
    pub fn lease(&self, bytes: u64) -> Permit {
        pollster(self.lease_async(bytes))
    }

    /// Like [`Budget::lease`], for async tasks.
    pub async fn lease_async(&self, bytes: u64) -> Permit {
        let pages = self.pages_for(bytes);
        match Arc::clone(&self.pages).acquire_many_owned(pages).await {
            Ok(permit) => Permit { permit: Some(permit) },
            // Only a closed semaphore fails, and this one is never closed.
            Err(_closed) => Permit { permit: None },
        }
    }

    /// Leases `bytes` if they are free now and no earlier lease is waiting.
    #[must_use]
    pub(crate) fn try_lease(&self, bytes: u64) -> Option<Permit> {
        let permit = Arc::clone(&self.pages).try_acquire_many_owned(self.pages_for(bytes)).ok()?;
        Some(Permit { permit: Some(permit) })
    }

    fn pages_for(&self, bytes: u64) -> u32 {
        u32::try_from(bytes.min(self.total).div_ceil(PAGE)).unwrap_or(u32::MAX)
    }
}

/// Right to hold some bytes of a [`Budget`], returned on drop. The default permit covers none.
#[derive(Debug, Default)]
pub struct Permit {
    permit: Option<OwnedSemaphorePermit>,
}

impl Permit {
    /// Number of bytes this permit covers.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.permit.as_ref().map_or(0, |p| p.num_permits() as u64 * PAGE)
    }

    /// Returns everything above `bytes` to the budget.
    pub fn shrink_to(&mut self, bytes: u64) {
        drop(self.split_off(bytes));
    }

    /// Keeps `bytes` and returns the rest as a separate permit.
    #[must_use]
    pub fn split_off(&mut self, bytes: u64) -> Self {
        let rest = self.permit.as_mut().and_then(|permit| {
            let keep = usize::try_from(bytes.div_ceil(PAGE)).unwrap_or(usize::MAX);
            permit.split(permit.num_permits().saturating_sub(keep))
        });
        Self { permit: rest }
    }

    /// Absorbs the bytes of `other`, a permit of the same budget.
    pub fn merge(&mut self, other: Self) {
        match (&mut self.permit, other.permit) {
            (Some(own), Some(more)) => own.merge(more),
            (none, more) => *none = more,
        }
    }
}

/// Runs a future to completion on this thread, which is parked between polls.
fn pollster<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_wait_until_bytes_come_back() {
        let budget = Budget::new(8 * PAGE);
        let first = budget.lease(6 * PAGE);
        assert!(budget.try_lease(3 * PAGE).is_none());
        let waiting = std::thread::spawn({
            let budget = budget.clone();
            move || budget.lease(3 * PAGE).bytes()
        });
        drop(first);
        assert_eq!(waiting.join().unwrap(), 3 * PAGE);
        assert_eq!(budget.in_use(), 0);
    }

    #[test]
    fn a_lease_over_the_total_takes_all_instead_of_waiting_for_ever() {
        let budget = Budget::new(2 * PAGE);
        assert_eq!(budget.lease(100 * PAGE).bytes(), 2 * PAGE);
    }

    #[test]
    fn unused_memory_is_returned() {
        let budget = Budget::new(4 * PAGE);
        let mut permit = budget.lease(4 * PAGE);
        permit.shrink_to(PAGE + 1);
        assert_eq!(permit.bytes(), 2 * PAGE);
        assert_eq!(budget.in_use(), 2 * PAGE);
        let second = permit.split_off(PAGE);
        assert_eq!((permit.bytes(), second.bytes()), (PAGE, PAGE));
        permit.merge(second);
        assert_eq!(permit.bytes(), 2 * PAGE);
        drop(permit);
        assert_eq!(budget.in_use(), 0);
    }
}
