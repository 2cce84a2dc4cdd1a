//! Key slots to create in a keys object, and key material to open it with.

use crate::command::KeyCommand;
use crate::identity::{Identities, Passphrase, Recipient};
use crate::key_file::KeyBytes;

/// A key slot to create in a keys object.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum KeySlotSpec<'a> {
    /// A key of 32 bytes, from a key file or `--encrypt-key`.
    Key(&'a KeyBytes),
    /// An age recipient. The program that makes a backup need not be able to open it.
    Recipient(&'a Recipient),
    /// A passphrase. Deriving its key takes 64 MiB of memory and a few tenths of a second.
    Passphrase(&'a Passphrase),
    /// A program that wraps the key; it is run immediately.
    Command(&'a KeyCommand),
}

/// Key material to open a keys object with.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum KeyMaterial<'a> {
    /// A key of 32 bytes.
    Key(&'a KeyBytes),
    /// Private keys of age.
    Identities(&'a Identities),
    /// A passphrase.
    Passphrase {
        /// The passphrase.
        passphrase: &'a Passphrase,
        /// Limit of the memory for trying the passphrase, in bytes. Slots written by this crate
        /// need 64 MiB; slots made by `age` itself may need more, and hostile ones any amount.
        max_memory: u64,
    },
    /// A program that unwraps the key.
    Command(&'a KeyCommand),
}

impl KeyMaterial<'_> {
    pub(super) fn name(&self) -> &'static str {
        match self {
            KeyMaterial::Key(_) => "key file",
            KeyMaterial::Identities(_) => "age identity",
            KeyMaterial::Passphrase { .. } => "passphrase",
            KeyMaterial::Command(_) => "key command",
        }
    }
}
