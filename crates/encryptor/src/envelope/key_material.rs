//! What an envelope is made for, and what it is opened with.

use crate::command::KeyCommand;
use crate::identity::{Identities, Passphrase, Recipient};
use crate::key_file::KeyBytes;

/// A way in that an envelope shall have.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum WayIn<'a> {
    /// A key of 32 bytes, from a key file or `--encrypt-key`.
    Key(&'a KeyBytes),
    /// An age recipient: who makes the backup need not be able to open it.
    Recipient(&'a Recipient),
    /// A passphrase. Its derivation takes 64 MiB of memory and some tenths of a second.
    Passphrase(&'a Passphrase),
    /// A program that wraps the key; it is run at once.
    Command(&'a KeyCommand),
}

/// What an envelope shall be opened with.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Unlock<'a> {
    /// A key of 32 bytes.
    Key(&'a KeyBytes),
    /// Private keys of age.
    Identities(&'a Identities),
    /// A passphrase.
    Passphrase {
        /// The passphrase.
        passphrase: &'a Passphrase,
        /// Memory that trying it may take, in bytes. What we write takes 64 MiB; slots made by
        /// `age` itself may take more, and hostile ones any number.
        max_memory: u64,
    },
    /// A program that unwraps the key.
    Command(&'a KeyCommand),
}

impl Unlock<'_> {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Unlock::Key(_) => "key file",
            Unlock::Identities(_) => "age identity",
            Unlock::Passphrase { .. } => "passphrase",
            Unlock::Command(_) => "key command",
        }
    }
}
