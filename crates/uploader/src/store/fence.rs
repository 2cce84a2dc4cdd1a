//! Fence: what is asked before each try of a request that changes a store.

use std::fmt::Debug;

use async_trait::async_trait;

use crate::error::StoreError;

/// Effect of a request on the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// It writes an object.
    Write,
    /// It removes objects. No store can make that depend on who holds a claim.
    Remove,
}

/// Decides, right before each try of a request, whether the request may still be sent.
#[async_trait]
pub trait Fence: Debug + Send + Sync {
    /// Returns whether a request that makes `change` may be sent.
    ///
    /// # Errors
    /// [`StoreErrorKind::Fenced`](crate::StoreErrorKind::Fenced) if no further request may be sent;
    /// other kinds if this could not be determined.
    async fn check(&self, change: Change) -> Result<(), StoreError>;
}
