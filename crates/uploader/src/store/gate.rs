//! Gate that every request passes before it changes a store.

use std::fmt::Debug;

use async_trait::async_trait;

use crate::error::StoreError;

/// Decides, right before each try of a request, whether the request may still be sent.
#[async_trait]
pub trait Gate: Debug + Send + Sync {
    /// Lets a request through.
    ///
    /// # Errors
    /// [`StoreErrorKind::Fenced`](crate::StoreErrorKind::Fenced) if no further request may be sent;
    /// other kinds if this could not be determined.
    async fn pass(&self) -> Result<(), StoreError>;
}
