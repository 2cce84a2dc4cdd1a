//! Errors of the message decoder.

/// Reason why bytes are not a valid message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The message kind is unknown.
    #[error("message of unknown kind {kind}")]
    Kind {
        /// The number of the kind.
        kind: u8,
    },
    /// The body is longer or shorter than its kind allows.
    #[error("message of kind {kind} has invalid length {len}")]
    Length {
        /// The kind.
        kind: u8,
        /// The announced length.
        len: u32,
    },
    /// The checksum does not match the bytes.
    #[error("message of kind {kind} is damaged")]
    Damaged {
        /// The kind.
        kind: u8,
    },
    /// A field has an invalid value.
    #[error("message of kind {kind}: {what}")]
    Field {
        /// The kind.
        kind: u8,
        /// The field.
        what: &'static str,
    },
    /// A block's number, offset or length is inconsistent.
    #[error("block {number} at {offset}: {what}")]
    Block {
        /// Its number.
        number: u64,
        /// Its offset in the stream.
        offset: u64,
        /// The defect.
        what: &'static str,
    },
    /// A message that this side never accepts, or not at this point.
    #[error("unexpected message {what}")]
    Unexpected {
        /// The message.
        what: &'static str,
    },
}
