//! A key slot: one wrapped copy of the data key.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::SlotFault;
use super::wrap::{self, ByKeyFile, ID_LEN, NONCE_LEN, WRAPPED_LEN};
use super::{KeyMaterial, KeySlotSpec, WrapError};
use crate::command::MAX_WRAPPED;
use crate::key::STREAM_ID_LEN;
use crate::{DataKey, hex};

/// Maximum number of slots in a keys object.
pub(crate) const MAX_SLOTS: usize = 64;

/// Maximum number of passphrase slots, and of command slots: trying each of them takes time.
pub(crate) const MAX_SLOW_SLOTS: usize = 8;

/// Longest age file in a slot, in bytes of its armor.
const MAX_AGE: usize = 8192;

/// The kind of a slot.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SlotKind {
    /// A key file of 32 bytes.
    KeyFile,
    /// An age recipient.
    Recipient,
    /// A passphrase.
    Passphrase,
    /// A key command.
    Command,
    /// A kind that is unknown to this version.
    Other(String),
}

/// Facts about a slot that are known without opening it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlotInfo {
    /// Number of the slot, from 0.
    pub slot: usize,
    /// Kind of the slot.
    pub kind: SlotKind,
    /// Id of its key file or recipient.
    pub id: Option<String>,
}

impl std::fmt::Display for SlotInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = match &self.kind {
            SlotKind::KeyFile => "key file",
            SlotKind::Recipient => "age recipient",
            SlotKind::Passphrase => "passphrase",
            SlotKind::Command => "key command",
            SlotKind::Other(name) => return write!(f, "unknown kind {}", name.escape_debug()),
        };
        match &self.id {
            Some(id) => write!(f, "{name} {id}"),
            None => f.write_str(name),
        }
    }
}

#[derive(Debug, Clone)]
pub(super) enum Slot {
    Known(SlotFields),
    /// A slot of unknown kind. It is kept unchanged, because a later version may understand it.
    Other {
        kind: String,
        value: Value,
    },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum SlotFields {
    KeyFile { id: String, nonce: String, wrapped: String },
    AgeRecipient { id: String, age: String },
    AgePassphrase { age: String },
    Command { wrapped: String },
}

impl Slot {
    pub(super) fn make(
        way: &KeySlotSpec<'_>,
        data_key: &DataKey,
        stream_id: &[u8; STREAM_ID_LEN],
    ) -> Result<Self, WrapError> {
        Ok(Slot::Known(match way {
            KeySlotSpec::Key(key) => {
                let ByKeyFile { id, nonce, wrapped } = wrap::by_key_file(data_key, key, stream_id)?;
                SlotFields::KeyFile { id, nonce, wrapped }
            }
            KeySlotSpec::Recipient(to) => {
                SlotFields::AgeRecipient { id: to.id(), age: wrap::by_recipient(data_key, to)? }
            }
            KeySlotSpec::Passphrase(passphrase) => {
                SlotFields::AgePassphrase { age: wrap::by_passphrase(data_key, passphrase)? }
            }
            KeySlotSpec::Command(command) => {
                SlotFields::Command { wrapped: hex::encode(&wrap::by_command(data_key, command)?) }
            }
        }))
    }

    /// Opens the slot. `None` when `unlock` is of another kind.
    pub(super) fn open(
        &self,
        unlock: &KeyMaterial<'_>,
        stream_id: &[u8; STREAM_ID_LEN],
    ) -> Option<Result<DataKey, SlotFault>> {
        let Slot::Known(known) = self else { return None };
        Some(match (known, unlock) {
            (SlotFields::KeyFile { id, nonce, wrapped }, KeyMaterial::Key(key)) => {
                wrap::open_by_key_file(key, stream_id, id, nonce, wrapped)
            }
            (SlotFields::AgeRecipient { age, .. }, KeyMaterial::Identities(identities)) => {
                wrap::open_by_identities(identities, age)
            }
            (
                SlotFields::AgePassphrase { age },
                KeyMaterial::Passphrase { passphrase, max_memory },
            ) => wrap::open_by_passphrase(passphrase, *max_memory, age),
            (SlotFields::Command { wrapped }, KeyMaterial::Command(command)) => {
                wrap::open_by_command(command, wrapped)
            }
            _ => return None,
        })
    }

    /// Parses a slot and checks everything that can be checked without opening it.
    pub(super) fn parse(value: Value) -> Result<Self, &'static str> {
        let kind = value.get("kind").and_then(Value::as_str).ok_or("the kind is missing")?;
        if !["key-file", "age-recipient", "age-passphrase", "command"].contains(&kind) {
            let kind = kind.to_owned();
            return Ok(Slot::Other { kind, value });
        }
        let known = SlotFields::deserialize(value).map_err(|_| "fields are missing or unknown")?;
        let id_fits = |id: &str| hex::decode_array::<ID_LEN>(id).is_some();
        let age_fits = |age: &str| age.len() <= MAX_AGE;
        let fits = match &known {
            SlotFields::KeyFile { id, nonce, wrapped } => {
                id_fits(id)
                    && hex::decode_array::<NONCE_LEN>(nonce).is_some()
                    && hex::decode_array::<WRAPPED_LEN>(wrapped).is_some()
            }
            SlotFields::AgeRecipient { id, age } => id_fits(id) && age_fits(age),
            SlotFields::AgePassphrase { age } => age_fits(age),
            SlotFields::Command { wrapped } => {
                !wrapped.is_empty()
                    && wrapped.len() <= 2 * MAX_WRAPPED
                    && hex::decode(wrapped).is_some()
            }
        };
        if fits { Ok(Slot::Known(known)) } else { Err("a field has a wrong length or is not hex") }
    }

    /// Returns whether both slots are for one key file, or for one recipient.
    pub(super) fn is_for_same_key(&self, other: &Self) -> bool {
        let (own, other) = (self.info(0), other.info(0));
        own.id.is_some() && own == other
    }

    pub(super) fn value(&self) -> Result<Value, serde_json::Error> {
        match self {
            Slot::Known(known) => serde_json::to_value(known),
            Slot::Other { value, .. } => Ok(value.clone()),
        }
    }

    pub(super) fn info(&self, slot: usize) -> SlotInfo {
        let (kind, id) = match self {
            Slot::Known(SlotFields::KeyFile { id, .. }) => (SlotKind::KeyFile, Some(id)),
            Slot::Known(SlotFields::AgeRecipient { id, .. }) => (SlotKind::Recipient, Some(id)),
            Slot::Known(SlotFields::AgePassphrase { .. }) => (SlotKind::Passphrase, None),
            Slot::Known(SlotFields::Command { .. }) => (SlotKind::Command, None),
            Slot::Other { kind, .. } => (SlotKind::Other(kind.clone()), None),
        };
        SlotInfo { slot, kind, id: id.cloned() }
    }
}

/// Returns the number of passphrase slots, or of command slots, if there are too many.
pub(super) fn too_many_slow(slots: &[Slot]) -> Option<usize> {
    [SlotKind::Passphrase, SlotKind::Command].into_iter().find_map(|kind| {
        let count = slots.iter().filter(|slot| slot.info(0).kind == kind).count();
        (count > MAX_SLOW_SLOTS).then_some(count)
    })
}
