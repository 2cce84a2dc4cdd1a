//! Limits of a store's responses, in bytes, pages and time. A hostile or broken store must neither
//! fill the memory nor keep a run waiting.
//!
//! The content of an object has no bound here: the caller of a read names the size it expects.

use std::time::Duration;

/// Maximum size of an object that [`Store::get`](crate::Store::get) reads, in bytes: manifests,
/// claims, keys objects and records have at most 1 MiB, checksum lists 8 MiB.
pub const SMALL_OBJECT: u64 = 16 << 20;

/// Maximum size of the body of an error, in bytes; the rest is cut off. An error of a store has
/// less than 1 KiB, a proxy's page a few KiB.
pub(crate) const ERROR_BODY: u64 = 64 << 10;

/// Maximum size of any other body that is not the content of an object, in bytes. A page of 1,000
/// keys of 1,024 escaped bytes has 6 MiB, one of Azure's 5,000 blobs at most 30 MiB.
pub(crate) const SHORT_BODY: u64 = 32 << 20;

/// Time limit of such a body. A page of 1,000 usual keys, 300 KB, arrives in it at 500 bytes per
/// second.
pub(crate) const SHORT_TIME: Duration = Duration::from_secs(600);

/// Bytes per second below which a body counts as stalled, after a credit of one stall limit. The
/// slowest link that carries backups is faster; a store that sends a byte now and then is not.
pub(crate) const SLOWEST: u64 = 1 << 10;

/// Maximum number of pages of one listing: twenty million objects in full pages.
pub(crate) const PAGES: usize = 20_000;

/// Maximum size of all pages of one listing, in bytes: about five million objects below one prefix.
/// Their entries take half of it in memory.
pub(crate) const LISTING: u64 = 2 << 30;

/// Time limit of one listing: all its pages at a sixth of a second each.
pub(crate) const LISTING_TIME: Duration = Duration::from_secs(3600);

/// Bounds of one response body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BodyBounds {
    /// Maximum size in bytes.
    pub(crate) most: u64,
    /// Whether a longer body is cut off, and not an error.
    pub(crate) cut: bool,
    /// Time limit of the whole body.
    pub(crate) time: Option<Duration>,
}

impl BodyBounds {
    /// Body of an error response: it is shown, and nothing depends on it.
    pub(crate) const ERROR: Self = Self { most: ERROR_BODY, cut: true, time: Some(SHORT_TIME) };
    /// Any other body that is not the content of an object.
    pub(crate) const SHORT: Self = Self { most: SHORT_BODY, cut: false, time: Some(SHORT_TIME) };

    /// Content of an object, of which at most `most` bytes are expected. Its time depends on its
    /// size.
    pub(crate) const fn content(most: u64) -> Self {
        Self { most, cut: false, time: None }
    }
}

/// A bound that a response exceeds. No retry helps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BoundExceeded {
    #[error("the response has more than {0} bytes")]
    Bytes(u64),
    #[error("the object has {size} bytes, more than the limit of {most}")]
    Object { size: u64, most: u64 },
    #[error("the listing has more than {PAGES} pages")]
    Pages,
    #[error("the listing has more than {LISTING} bytes")]
    Listing,
    #[error("the listing returns the same page again and would never end")]
    Repeated,
    #[error("the listing was not complete after {} s", LISTING_TIME.as_secs())]
    ListingTime,
}

impl From<BoundExceeded> for object_store::Error {
    fn from(excess: BoundExceeded) -> Self {
        Self::Generic { store: "bounds", source: Box::new(excess) }
    }
}

/// Returns whether a bound caused this error.
pub(crate) fn is_excess(error: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| error.source())
        .any(|error| error.is::<BoundExceeded>())
}

/// Ends a listing that takes too long.
pub(crate) async fn timely<T>(
    listing: impl Future<Output = object_store::Result<T>>,
) -> object_store::Result<T> {
    match tokio::time::timeout(LISTING_TIME, listing).await {
        Ok(outcome) => outcome,
        Err(_) => Err(BoundExceeded::ListingTime.into()),
    }
}
