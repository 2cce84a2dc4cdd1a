//! Errors when making, reading and opening keys objects.

use crate::{CommandError, NoRandom};

/// Reason why a data key cannot be put into a keys object.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WrapError {
    /// The keys object would have no key slot.
    #[error("no key slot is given, so the backup could never be opened")]
    NoWayIn,
    /// More key slots than a keys object can hold.
    #[error("{got} key slots, more than the limit of {max}{}", if *slow { " for this kind" } else { "" })]
    TooMany {
        /// The number of key slots.
        got: usize,
        /// The most allowed.
        max: usize,
        /// Whether the limit is that of passphrases and commands.
        slow: bool,
    },
    /// The same key file or recipient was given twice.
    #[error("the key file or recipient with id {id} is given twice")]
    Twice {
        /// Its id.
        id: String,
    },
    /// A key file that is valid for xbcrypt, but too short for a slot.
    #[error("the key has {got} bytes; the native format needs 32")]
    KeyLength {
        /// Its length in bytes.
        got: usize,
    },
    /// The key command failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The system returned no random bytes.
    #[error(transparent)]
    Random(#[from] NoRandom),
    /// The data key does not belong to this keys object.
    #[error("the data key belongs to another stream")]
    ForeignKey,
    /// The keys object would be too long.
    #[error("the keys object would have {len} bytes, more than the limit of {max}")]
    TooLong {
        /// Its length in bytes.
        len: usize,
        /// The longest length allowed.
        max: usize,
    },
    /// A cipher failed; this does not happen with keys of the right length.
    #[error("cannot encrypt the data key")]
    Cipher,
}

/// Reason why a keys object cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeysObjectError {
    /// The text exceeds the longest keys object.
    #[error("the keys object has {len} bytes, more than the limit of {max}")]
    TooLong {
        /// Its length in bytes.
        len: usize,
        /// The longest length allowed.
        max: usize,
    },
    /// The lines at the end are missing or malformed.
    #[error("the keys object has no check lines: it is truncated, or not a keys object")]
    NoCheck,
    /// The digest does not match.
    #[error("the keys object is damaged: its text has digest {got}, its check line {expected}")]
    Damaged {
        /// The digest in the check line.
        expected: String,
        /// The digest as computed.
        got: String,
    },
    /// The text does not have the form of a keys object.
    #[error("cannot read the keys object: {reason}")]
    Malformed {
        /// The reason.
        reason: String,
    },
    /// Written by a later version of this program.
    #[error("the keys object has format {found}, but this program reads only up to {known}")]
    TooNew {
        /// The format that was found.
        found: u32,
        /// The latest supported format.
        known: u32,
    },
    /// A slot does not have the form of its kind.
    #[error("cannot read slot {slot} of the keys object: {reason}")]
    Slot {
        /// Number of the slot, from 0.
        slot: usize,
        /// The reason.
        reason: &'static str,
    },
    /// The keys object belongs to another stream.
    #[error("the keys object belongs to stream {got}, expected {expected}")]
    Foreign {
        /// Id of the stream to open.
        expected: String,
        /// Id in the keys object.
        got: String,
    },
    /// The stream id matches, but the commitment does not.
    #[error("the keys object holds the key of another stream with the same ID")]
    ForeignCommitment,
    /// The head of a block is not valid.
    #[error("cannot read the keys block: {reason}")]
    Block {
        /// The reason.
        reason: &'static str,
    },
    /// The keys object does not fit into a block of that length.
    #[error("the keys need a block of {needed} bytes, but it has {got}")]
    NoRoom {
        /// Minimum length of a block in bytes.
        needed: usize,
        /// The length given, in bytes.
        got: usize,
    },
}

/// Reason why a keys object cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The keys object has no slot of that kind.
    #[error("no {way} slot: the backup opens with {}", list(kept_for))]
    NoSlot {
        /// The kind of key that was tried.
        way: &'static str,
        /// The slots that the keys object has.
        kept_for: Vec<String>,
    },
    /// The keys object has slots of that kind, but none for this key.
    #[error("wrong {way}: the backup opens with {}", list(kept_for))]
    NotForThis {
        /// The kind of key that was tried.
        way: &'static str,
        /// The slots that the keys object has.
        kept_for: Vec<String>,
    },
    /// A slot could not be opened.
    #[error("key slot {slot}: {fault}")]
    Slot {
        /// Number of the slot, from 0.
        slot: usize,
        /// The fault of the slot.
        fault: SlotFault,
    },
    /// The key is right, but the keys object was changed after it was made.
    #[error("the keys object was changed: its authentication line does not match")]
    Altered,
}

impl OpenError {
    /// Whether a slot could not be tried, so that the same key may open it another time: its program failed, or there was not
    /// enough memory.
    #[must_use]
    pub fn is_untried(&self) -> bool {
        matches!(self, Self::Slot { fault: SlotFault::Command(_) | SlotFault::Memory { .. }, .. })
    }
}

/// Reason why one slot cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SlotFault {
    /// The slot is for another key file or recipient.
    #[error("it belongs to another key")]
    NotForThis,
    /// The passphrase is wrong, or the slot was changed; these cannot be distinguished.
    #[error("wrong passphrase")]
    WrongPassphrase,
    /// Deriving the passphrase's key needs more memory than allowed.
    #[error("checking the passphrase needs {needed} bytes of memory, the limit is {limit}")]
    Memory {
        /// Memory needed, in bytes.
        needed: u64,
        /// Memory allowed, in bytes.
        limit: u64,
    },
    /// A key file that is valid for xbcrypt, but too short for a slot.
    #[error("the key has {got} bytes; the native format needs 32")]
    KeyLength {
        /// Its length in bytes.
        got: usize,
    },
    /// The slot is for this key, but cannot be decrypted.
    #[error("it is damaged: it belongs to this key, but does not open")]
    Damaged,
    /// The slot was decrypted, but its content is not the key of this stream.
    #[error("it holds the key of another stream")]
    ForeignKey,
    /// The key command failed.
    #[error(transparent)]
    Command(#[from] CommandError),
}

fn list(items: &[String]) -> String {
    if items.is_empty() { "no key slot".to_owned() } else { items.join(", ") }
}
