//! How a clone can fail.

/// Reason why a clone cannot be received. After any of these it is over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloneError {
    /// The donor ended the clone.
    #[error("the donor ended the clone: error {code}: {message}")]
    Donor {
        /// Number of the error, as in MySQL's list of errors.
        code: i32,
        /// The donor's message. Bytes that are not UTF-8 are replaced.
        message: String,
    },
    /// The donor sent something that it must not, or not then.
    #[error(
        "the donor's clone is not as it was announced: {what}: none of it can be used, try again"
    )]
    Broken {
        /// The expected and the received message.
        what: String,
    },
    /// The donor has something that this recipient cannot receive.
    #[error("this clone cannot be received: {what}")]
    Unsupported {
        /// The obstacle, and a hint.
        what: String,
    },
}

/// A [`CloneError::Broken`].
pub(super) fn broken<T>(what: impl Into<String>) -> Result<T, CloneError> {
    Err(CloneError::Broken { what: what.into() })
}

/// A [`CloneError::Unsupported`].
pub(super) fn unsupported<T>(what: impl Into<String>) -> Result<T, CloneError> {
    Err(CloneError::Unsupported { what: what.into() })
}
