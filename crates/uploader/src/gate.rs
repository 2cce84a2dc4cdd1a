//! A gate before the requests that change a store.

use std::fmt::Debug;

use async_trait::async_trait;

use crate::error::StoreError;

/// Decides, right before each try of a request, whether it may still be made.
#[async_trait]
pub trait Gate: Debug + Send + Sync {
    /// Lets a request through.
    ///
    /// # Errors
    /// [`StoreErrorKind::Fenced`](crate::StoreErrorKind::Fenced) when no request may be made any more;
    /// others when that could not be found out.
    async fn pass(&self) -> Result<(), StoreError>;
}
