//! What can go wrong with envelopes: making, reading and opening them.

use crate::{CommandError, NoRandom};

/// Why a data key cannot be put into an envelope.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WrapError {
    /// An envelope that nobody can open.
    #[error("no way in is given: nobody could open the backup")]
    NoWayIn,
    /// More ways in than an envelope holds.
    #[error("{got} ways in, at most {max} are allowed{}", if *slow { " of this kind" } else { "" })]
    TooMany {
        /// How many.
        got: usize,
        /// How many there may be.
        max: usize,
        /// Whether passphrases or commands are meant.
        slow: bool,
    },
    /// The same key file or recipient twice.
    #[error("the key file or recipient with id {id} is given twice")]
    Twice {
        /// Its id.
        id: String,
    },
    /// A key file that is good for xbcrypt, but too short here.
    #[error("the key has {got} bytes, the native format needs 32")]
    KeyLength {
        /// Its length in bytes.
        got: usize,
    },
    /// The key command failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// No random bytes.
    #[error(transparent)]
    Random(#[from] NoRandom),
    /// The data key is not the one that belongs to this envelope.
    #[error("the data key is that of another stream")]
    ForeignKey,
    /// The envelope would be too long.
    #[error("the envelope would have {len} bytes, at most {max} are allowed")]
    TooLong {
        /// Its length in bytes.
        len: usize,
        /// What is allowed.
        max: usize,
    },
    /// A cipher refused; does not happen with keys of the right length.
    #[error("the data key cannot be encrypted")]
    Cipher,
}

/// Why bytes are no envelope that this program can use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnvelopeError {
    /// Longer than any envelope.
    #[error("the keys object has {len} bytes, at most {max} are allowed")]
    TooLong {
        /// Its length in bytes.
        len: usize,
        /// What is allowed.
        max: usize,
    },
    /// The lines at the end are missing or malformed.
    #[error("the keys object has no check lines: it was cut, or is something else")]
    NoCheck,
    /// The digest does not fit.
    #[error("the keys object is damaged: digest {got}, its check line says {expected}")]
    Damaged {
        /// As the check line says.
        expected: String,
        /// As computed.
        got: String,
    },
    /// The text is not what an envelope looks like.
    #[error("the keys object cannot be read: {reason}")]
    Malformed {
        /// How.
        reason: String,
    },
    /// Written by a later version of this program.
    #[error("the keys object has format {found}, this program reads up to {known}")]
    TooNew {
        /// Format of the object.
        found: u32,
        /// What can be read.
        known: u32,
    },
    /// A slot is not what its kind looks like.
    #[error("slot {slot} of the keys object cannot be read: {reason}")]
    Slot {
        /// Number of the slot, from 0.
        slot: usize,
        /// How.
        reason: &'static str,
    },
    /// The envelope of another stream.
    #[error("the keys object belongs to another stream ({got} instead of {expected})")]
    Foreign {
        /// Id of the stream that is to be opened.
        expected: String,
        /// Id in the envelope.
        got: String,
    },
    /// The stream id fits, the commitment does not.
    #[error("the keys object holds the key of another stream with the same id")]
    ForeignCommitment,
    /// The head of a block is not one.
    #[error("the keys block cannot be read: {reason}")]
    Block {
        /// How.
        reason: &'static str,
    },
    /// There is not enough room for the envelope in a block of that length.
    #[error("the keys need a block of {needed} bytes, there are {got}")]
    NoRoom {
        /// Least length of a block in bytes.
        needed: usize,
        /// The length given.
        got: usize,
    },
}

/// Why an envelope does not open.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no slot of that kind.
    #[error("the backup cannot be opened by {way}: its key is kept for {}", list(kept_for))]
    NoSlot {
        /// What was tried.
        way: &'static str,
        /// What there is.
        kept_for: Vec<String>,
    },
    /// There are slots of that kind, but none for this one.
    #[error("wrong {way}: the key is kept for {}", list(kept_for))]
    NotForThis {
        /// What was tried.
        way: &'static str,
        /// What there is.
        kept_for: Vec<String>,
    },
    /// A slot could not be opened.
    #[error("slot {slot}: {fault}")]
    Slot {
        /// Number of the slot, from 0.
        slot: usize,
        /// What is wrong.
        fault: SlotFault,
    },
    /// The right key, but the envelope is not as its maker left it.
    #[error("the keys object was changed: its authentication line does not fit")]
    Altered,
}

/// What can be wrong with one slot.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SlotFault {
    /// It is for another key file or recipient.
    #[error("is for another key")]
    NotForThis,
    /// The passphrase is wrong (or the slot was changed: nobody can tell).
    #[error("wrong passphrase")]
    WrongPassphrase,
    /// The passphrase's derivation wants more memory than is allowed.
    #[error("the passphrase needs {needed} bytes of memory to be tried, {limit} are allowed")]
    Memory {
        /// What is needed, in bytes.
        needed: u64,
        /// What is allowed, in bytes.
        limit: u64,
    },
    /// A key file that is good for xbcrypt, but too short here.
    #[error("the key has {got} bytes, the native format needs 32")]
    KeyLength {
        /// Its length in bytes.
        got: usize,
    },
    /// It is for this key, but does not open.
    #[error("damaged: it is for this key, but does not open")]
    Damaged,
    /// It opens, but what is inside is not this stream's key.
    #[error("holds the key of another stream")]
    ForeignKey,
    /// The key command failed.
    #[error(transparent)]
    Command(#[from] CommandError),
}

fn list(items: &[String]) -> String {
    if items.is_empty() { "nobody".to_owned() } else { items.join(", ") }
}
