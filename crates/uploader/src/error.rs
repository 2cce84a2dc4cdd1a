//! Errors of a store, classified by what the caller decides next.

use std::borrow::Cow;
use std::fmt;

use crate::operation::Operation;

/// Kind of a store error: one for each decision a caller makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// No such object (or bucket, or folder).
    NotFound,
    /// A create-only write found an existing object.
    AlreadyExists,
    /// Credentials are missing or wrong, or do not permit the operation.
    Denied,
    /// The store could not be reached, or kept failing, until the retry limits of the policy.
    Unavailable,
    /// The settings cannot work; no request was sent.
    Settings,
    /// The bucket or container does not exist.
    NoBucket,
    /// The endpoint is not this store: wrong scheme, a certificate that does not check, or a
    /// redirect.
    NotAStore,
    /// The store rejected the request; a retry would not help.
    Rejected,
    /// The store is full, or a quota is used up, whatever it answers.
    Full,
    /// The response differs from what was stored: wrong length or unreadable listing.
    Damaged,
    /// Two responses to the same request differ: one was altered in transit.
    Altered,
    /// The caller's [`Fence`](crate::Fence) refused the request, which was not sent.
    Fenced,
}

/// Final error of a store operation, after all retries.
#[derive(Debug)]
pub struct StoreError {
    /// Operation that failed.
    pub operation: Operation,
    /// Object or prefix of the operation.
    pub key: String,
    /// Kind of the failure.
    pub kind: StoreErrorKind,
    /// Number of tries.
    pub attempts: u32,
    message: String,
    hint: Option<Cow<'static, str>>,
}

/// Hint for a full store.
const FULL: &str = "make room, or raise the quota: `xbcloud-rs prune` removes old backups, `xbcloud-rs gc` what dead runs left; both need room for one small object, so if they fail, too, first free a little in the store by other means";

impl StoreError {
    /// Creates an error of `kind`; `message` describes what happened.
    pub fn new(
        operation: Operation,
        key: impl Into<String>,
        kind: StoreErrorKind,
        message: impl Into<String>,
    ) -> Self {
        Self { operation, key: key.into(), kind, attempts: 1, message: message.into(), hint: None }
    }

    /// Creates the error for an object that the store acknowledged and does not return as it was
    /// sent.
    #[must_use]
    pub fn not_kept(key: impl Into<String>) -> Self {
        let message = "the store acknowledged the object, but does not return it as it was sent";
        Self::new(Operation::Put, key, StoreErrorKind::Rejected, message).with_hint(Some(
            "nothing in this store is safe until the cause is found: check the store, and the proxies and gateways in front of it".into(),
        ))
    }

    pub(crate) fn with_attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    pub(crate) fn with_hint(mut self, hint: Option<Cow<'static, str>>) -> Self {
        self.hint = hint;
        self
    }

    /// Returns a hint for the operator, if there is one.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        if let Some(hint) = &self.hint {
            return Some(hint);
        }
        match self.kind {
            StoreErrorKind::Denied => Some("check the credentials, and what they permit"),
            StoreErrorKind::Unavailable => Some(
                "check the endpoint and the network; --retry-timeout and --max-retries set how long to keep trying",
            ),
            StoreErrorKind::Altered => Some(
                "run the command again; if this happens again, check the network, its proxies and the memory of this machine",
            ),
            StoreErrorKind::Fenced => Some(
                "run the command again when no other command works on this name; this one removed nothing that the other needs",
            ),
            StoreErrorKind::Full => Some(FULL),
            StoreErrorKind::NotFound => Some(
                "check the name, and the bucket, container or directory; run `list` to see the backups",
            ),
            _ => None,
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key.as_str() {
            "" => write!(f, "{}: {}", self.operation, self.message)?,
            key => write!(f, "{} {key}: {}", self.operation, self.message)?,
        }
        if self.attempts > 1 {
            write!(f, " (after {} tries)", self.attempts)?;
        }
        Ok(())
    }
}

impl std::error::Error for StoreError {}

/// Returns the innermost message of an error chain. In `object_store` that message contains the
/// cause.
pub(crate) fn root_message(error: &(dyn std::error::Error + 'static)) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    // Join lines: servers respond with indented XML.
    deepest.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}
