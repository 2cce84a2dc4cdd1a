//! Why bytes are no message of ours.

/// Why bytes are no message of ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// No message has this number.
    #[error("message of unknown kind {kind}")]
    Kind {
        /// The number.
        kind: u8,
    },
    /// A body longer or shorter than its kind allows.
    #[error("message of kind {kind} with {len} bytes")]
    Length {
        /// The kind.
        kind: u8,
        /// The length that was announced.
        len: u32,
    },
    /// The checksum is not that of the bytes.
    #[error("message of kind {kind} arrived damaged")]
    Damaged {
        /// The kind.
        kind: u8,
    },
    /// A field that cannot be.
    #[error("message of kind {kind}: {what}")]
    Field {
        /// The kind.
        kind: u8,
        /// Which field.
        what: &'static str,
    },
    /// A block that does not belong where it says.
    #[error("block {number} at {offset}: {what}")]
    Block {
        /// Its number.
        number: u64,
        /// Its place in the stream.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// A message that this side never gets, or not now.
    #[error("unexpected message {what}")]
    Unexpected {
        /// Which.
        what: &'static str,
    },
}
