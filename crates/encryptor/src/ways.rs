//! Who can open a sealed stream: ways in when it is made, and what a reader has.

use crate::{
    DataKey, Envelope, Identities, KeyBytes, KeyCommand, OpenError, Passphrase, Recipient, Unlock,
    WayIn,
};

/// Ways in that a new stream shall have; each opens it alone.
#[derive(Debug, Default)]
pub struct WaysIn {
    /// A key of 32 bytes.
    pub key: Option<KeyBytes>,
    /// age recipients.
    pub recipients: Vec<Recipient>,
    /// A passphrase.
    pub passphrase: Option<Passphrase>,
    /// A program that wraps the key.
    pub command: Option<KeyCommand>,
}

impl WaysIn {
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list().is_empty()
    }

    /// All of them, for an [`Envelope`].
    #[must_use]
    pub fn list(&self) -> Vec<WayIn<'_>> {
        let mut ways: Vec<WayIn<'_>> = self.key.iter().map(WayIn::Key).collect();
        ways.extend(self.recipients.iter().map(WayIn::Recipient));
        ways.extend(self.passphrase.iter().map(WayIn::Passphrase));
        ways.extend(self.command.iter().map(WayIn::Command));
        ways
    }
}

/// What a reader has to open a sealed stream with. All are tried.
#[derive(Debug, Default)]
pub struct Keys {
    /// A key of 32 bytes; for single encrypted files of a backup also of 16 or 24.
    pub key: Option<KeyBytes>,
    /// Private keys of age.
    pub identities: Option<Identities>,
    /// A passphrase.
    pub passphrase: Option<Passphrase>,
    /// A program that unwraps the key.
    pub command: Option<KeyCommand>,
}

impl Keys {
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.key.is_none()
            && self.identities.is_none()
            && self.passphrase.is_none()
            && self.command.is_none()
    }

    /// Opens an envelope with the first that fits; `None` when there is nothing to try.
    /// `max_memory` bounds a passphrase's derivation, in bytes.
    #[must_use]
    pub fn open(&self, envelope: &Envelope, max_memory: u64) -> Option<Result<DataKey, OpenError>> {
        let key = self.key.iter().filter(|key| key.len() == DataKey::LEN);
        let mut unlocks: Vec<Unlock<'_>> = key.map(Unlock::Key).collect();
        unlocks.extend(self.identities.iter().map(Unlock::Identities));
        unlocks.extend(self.command.iter().map(Unlock::Command));
        unlocks.extend(
            self.passphrase.iter().map(|passphrase| Unlock::Passphrase { passphrase, max_memory }),
        );
        let mut outcome = None;
        for unlock in unlocks {
            let opened = envelope.open(&unlock);
            let done = opened.is_ok();
            outcome = Some(opened);
            if done {
                break;
            }
        }
        outcome
    }
}
