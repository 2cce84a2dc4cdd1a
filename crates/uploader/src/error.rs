//! What can go wrong with an object, told apart by what the caller decides next.

use std::borrow::Cow;
use std::fmt;

/// The kind of a store's refusal: one for each decision a caller makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// No such object (or bucket, or folder).
    NotFound,
    /// A create-only write found something there.
    AlreadyExists,
    /// Credentials are missing, wrong, or do not allow this.
    Denied,
    /// The store could not be reached or kept failing for as long as the policy is patient.
    Unavailable,
    /// The store refused for good; trying again would not help.
    Rejected,
    /// What came back is not what was stored: wrong length or unreadable listing.
    Damaged,
    /// The caller's [`Gate`](crate::Gate) has closed: the request was not made.
    Fenced,
}

/// An operation on a store that failed for good, after all retries.
#[derive(Debug)]
pub struct StoreError {
    /// What was tried: `put`, `get`, `list`, ...
    pub operation: &'static str,
    /// The object or prefix concerned.
    pub key: String,
    /// What kind of failure it is.
    pub kind: StoreErrorKind,
    /// How often it was tried.
    pub attempts: u32,
    message: String,
    hint: Option<Cow<'static, str>>,
}

impl StoreError {
    /// An error of `kind`; `message` says what happened in words.
    pub fn new(
        operation: &'static str,
        key: impl Into<String>,
        kind: StoreErrorKind,
        message: impl Into<String>,
    ) -> Self {
        Self { operation, key: key.into(), kind, attempts: 1, message: message.into(), hint: None }
    }

    pub(crate) fn with_attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    pub(crate) fn with_hint(mut self, hint: Option<Cow<'static, str>>) -> Self {
        self.hint = hint;
        self
    }

    /// What the operator may do next, where that can be told.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        if let Some(hint) = &self.hint {
            return Some(hint);
        }
        match self.kind {
            StoreErrorKind::Denied => {
                Some("check the access key, the secret and what the bucket policy allows")
            }
            StoreErrorKind::Unavailable => Some(
                "check the endpoint and the network; --retry-timeout and --max-retries set how long to keep trying",
            ),
            StoreErrorKind::Fenced => Some(
                "this run is over and has removed nothing that another run needs; take a new backup, and start only one run of a name at a time",
            ),
            StoreErrorKind::NotFound => {
                Some("check the name, the bucket and the prefix; `list` shows what is there")
            }
            _ => None,
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.operation, self.key, self.message)?;
        if self.attempts > 1 {
            write!(f, " (after {} tries)", self.attempts)?;
        }
        Ok(())
    }
}

impl std::error::Error for StoreError {}

/// The innermost message of an error chain, which in `object_store` is the one that tells the cause.
pub(crate) fn root_message(error: &(dyn std::error::Error + 'static)) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    // One line: servers answer with indented XML.
    deepest.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}
