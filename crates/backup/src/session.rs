//! The state that all operations on a repository share.

use xb_pipeline::Observer;
use xb_repo::root::Root;

use crate::cancel::CancelToken;

/// Limits of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resources {
    /// Memory budget for buffers, in bytes.
    pub memory: u64,
    /// Worker threads.
    pub threads: usize,
    /// Maximum number of concurrent requests; the budget may allow fewer.
    pub parallel: usize,
}

/// A repository, and how an operation on it is bounded, watched and cancelled. Clones are cheap and
/// share the observer and the cancellation.
#[derive(Debug, Clone)]
pub struct Session {
    /// The repository.
    pub root: Root,
    /// Limits of the operation.
    pub resources: Resources,
    /// Counts for progress displays.
    pub observer: Observer,
    /// Cancels the operation, which then cleans up after itself.
    pub cancel: CancelToken,
}

impl Session {
    /// A session without a display that nothing cancels.
    #[must_use]
    pub fn new(root: Root, resources: Resources) -> Self {
        Self { root, resources, observer: Observer::default(), cancel: CancelToken::new() }
    }
}
