//! Key slots to create for a new stream, and the keys that a reader has.

use crate::{
    DataKey, Identities, KeyBytes, KeyCommand, KeyMaterial, KeySlotSpec, KeysObject, OpenError,
    Passphrase, Recipient,
};

/// The key slots to create for a new stream; each of them alone opens it.
#[derive(Debug, Default)]
pub struct KeySlots {
    /// A key of 32 bytes.
    pub key: Option<KeyBytes>,
    /// Recipients (age).
    pub recipients: Vec<Recipient>,
    /// A passphrase.
    pub passphrase: Option<Passphrase>,
    /// A program that wraps the key.
    pub command: Option<KeyCommand>,
}

impl KeySlots {
    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list().is_empty()
    }

    /// Lists all key slots, for an [`KeysObject`].
    #[must_use]
    pub fn list(&self) -> Vec<KeySlotSpec<'_>> {
        let mut ways: Vec<KeySlotSpec<'_>> = self.key.iter().map(KeySlotSpec::Key).collect();
        ways.extend(self.recipients.iter().map(KeySlotSpec::Recipient));
        ways.extend(self.passphrase.iter().map(KeySlotSpec::Passphrase));
        ways.extend(self.command.iter().map(KeySlotSpec::Command));
        ways
    }
}

/// The keys with which a reader can open a sealed stream. All are tried.
#[derive(Debug, Default)]
pub struct Keys {
    /// A key of 32 bytes; for single encrypted files of a backup also of 16 or 24.
    pub key: Option<KeyBytes>,
    /// Identities (age).
    pub identities: Option<Identities>,
    /// A passphrase.
    pub passphrase: Option<Passphrase>,
    /// A program that unwraps the key.
    pub command: Option<KeyCommand>,
}

impl Keys {
    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.key.is_none()
            && self.identities.is_none()
            && self.passphrase.is_none()
            && self.command.is_none()
    }

    /// Opens a keys object with the first key that matches; `None` when there are no keys.
    /// `max_memory` limits the memory for a passphrase, in bytes.
    #[must_use]
    pub fn open(
        &self,
        keys_object: &KeysObject,
        max_memory: u64,
    ) -> Option<Result<DataKey, OpenError>> {
        let key = self.key.iter().filter(|key| key.len() == DataKey::LEN);
        let mut unlocks: Vec<KeyMaterial<'_>> = key.map(KeyMaterial::Key).collect();
        unlocks.extend(self.identities.iter().map(KeyMaterial::Identities));
        unlocks.extend(self.command.iter().map(KeyMaterial::Command));
        unlocks.extend(
            self.passphrase
                .iter()
                .map(|passphrase| KeyMaterial::Passphrase { passphrase, max_memory }),
        );
        let mut outcome: Option<Result<DataKey, OpenError>> = None;
        for unlock in unlocks {
            let opened = keys_object.open(&unlock);
            let done = opened.is_ok();
            // One that could not be tried may be the right one.
            if done || !matches!(&outcome, Some(Err(error)) if error.is_untried()) {
                outcome = Some(opened);
            }
            if done {
                break;
            }
        }
        outcome
    }
}
