//! The keys object: the data key of one stream, wrapped once per key slot (`docs/spec/keys.md`).

mod block;
mod error;
mod key_material;
mod slot;
mod text;
mod wrap;

use std::fmt;

pub use block::{BLOCK_HEAD_LEN, BLOCK_UNIT, BlockHead, MAX_BLOCK, is_keys_block, parse_block};
pub use error::{KeysObjectError, OpenError, SlotFault, WrapError};
pub use key_material::{KeyMaterial, KeySlotSpec};
pub use slot::{SlotInfo, SlotKind};
pub use text::MAX_KEYS_OBJECT;

use crate::key::STREAM_ID_LEN;
use crate::{DataKey, hex};
use slot::{MAX_SLOTS, MAX_SLOW_SLOTS, Slot, too_many_slow};

/// The wrapped data key of one stream. It holds no plain key.
#[derive(Clone)]
pub struct KeysObject {
    stream_id: [u8; STREAM_ID_LEN],
    commitment: [u8; 32],
    slots: Vec<Slot>,
    /// The text as read or as it will be written; the authentication line covers exactly these
    /// bytes.
    text: text::Text,
}

impl KeysObject {
    /// Wraps the data key of the stream with this id, once per key slot.
    ///
    /// # Errors
    /// [`WrapError`]: no key slot, too many or duplicate ones, a key that is too short, or a key
    /// command that fails.
    pub fn seal(
        data_key: &DataKey,
        stream_id: [u8; STREAM_ID_LEN],
        ways: &[KeySlotSpec<'_>],
    ) -> Result<Self, WrapError> {
        Self::build(data_key, stream_id, Vec::new(), ways)
    }

    /// Makes a new keys object for the same stream: the slots that `keep` selects, unchanged, and new
    /// ones. `data_key` comes from [`open`](Self::open). A new slot for a key file or recipient
    /// that already has one replaces it.
    ///
    /// The owner of a removed slot may still have a copy of the data key: a rewrap removes the
    /// slot, not the knowledge.
    ///
    /// # Errors
    /// [`WrapError::ForeignKey`], and the errors of [`seal`](Self::seal).
    pub fn rewrap(
        &self,
        data_key: &DataKey,
        mut keep: impl FnMut(&SlotInfo) -> bool,
        ways: &[KeySlotSpec<'_>],
    ) -> Result<Self, WrapError> {
        if !data_key.fits(&self.stream_id, &self.commitment) {
            return Err(WrapError::ForeignKey);
        }
        let kept = self.slots.iter().enumerate().filter(|(n, slot)| keep(&slot.info(*n)));
        let kept = kept.map(|(_, slot)| slot.clone()).collect();
        Self::build(data_key, self.stream_id, kept, ways)
    }

    fn build(
        data_key: &DataKey,
        stream_id: [u8; STREAM_ID_LEN],
        mut slots: Vec<Slot>,
        ways: &[KeySlotSpec<'_>],
    ) -> Result<Self, WrapError> {
        let total = slots.len() + ways.len();
        if total == 0 {
            return Err(WrapError::NoWayIn);
        }
        if total > MAX_SLOTS {
            return Err(WrapError::TooMany { got: total, max: MAX_SLOTS, slow: false });
        }
        let new: Result<Vec<Slot>, WrapError> =
            ways.iter().map(|way| Slot::make(way, data_key, &stream_id)).collect();
        let new = new?;
        slots.retain(|kept| !new.iter().any(|new| new.is_for_same_key(kept)));
        slots.extend(new);
        if let Some(got) = too_many_slow(&slots) {
            return Err(WrapError::TooMany { got, max: MAX_SLOW_SLOTS, slow: true });
        }
        for (n, slot) in slots.iter().enumerate() {
            if let SlotInfo { id: Some(id), .. } = slot.info(n)
                && slots.iter().take(n).any(|other| other.is_for_same_key(slot))
            {
                return Err(WrapError::Twice { id });
            }
        }
        let commitment = data_key.commitment(&stream_id);
        let text = text::Text::write(data_key, &stream_id, &commitment, &slots)?;
        Ok(Self { stream_id, commitment, slots, text })
    }

    /// Returns the data key, after comparing it with the commitment and authenticating the
    /// keys object.
    ///
    /// # Errors
    /// [`OpenError`]: it distinguishes a wrong key, identity or passphrase from a changed keys object,
    /// as far as that is possible.
    pub fn open(&self, unlock: &KeyMaterial<'_>) -> Result<DataKey, OpenError> {
        let way = unlock.name();
        let (mut tried, mut first_fault): (bool, Option<OpenError>) = (false, None);
        for (slot, content) in self.slots.iter().enumerate() {
            let fault = match content.open(unlock, &self.stream_id) {
                None => continue,
                Some(Ok(key)) if key.fits(&self.stream_id, &self.commitment) => {
                    let genuine = self.text.is_genuine(&key, &self.stream_id);
                    return if genuine { Ok(key) } else { Err(OpenError::Altered) };
                }
                Some(Ok(_)) => SlotFault::ForeignKey,
                Some(Err(fault)) => fault,
            };
            tried = true;
            if matches!(fault, SlotFault::NotForThis) {
                continue;
            }
            let fault = OpenError::Slot { slot, fault };
            // One that could not be tried may be the right one.
            if first_fault.as_ref().is_none_or(|first| fault.is_untried() && !first.is_untried()) {
                first_fault = Some(fault);
            }
        }
        let kept_for = || self.slots().map(|slot| slot.to_string()).collect();
        Err(match first_fault {
            Some(fault) => fault,
            None if tried => OpenError::NotForThis { way, kept_for: kept_for() },
            None => OpenError::NoSlot { way, kept_for: kept_for() },
        })
    }

    /// Checks that this is the keys object of the stream with this id and commitment.
    ///
    /// # Errors
    /// [`KeysObjectError::Foreign`], [`KeysObjectError::ForeignCommitment`].
    pub fn belongs_to(
        &self,
        stream_id: &[u8; STREAM_ID_LEN],
        commitment: &[u8; 32],
    ) -> Result<(), KeysObjectError> {
        if self.stream_id != *stream_id {
            let (expected, got) = (hex::encode(stream_id), hex::encode(&self.stream_id));
            return Err(KeysObjectError::Foreign { expected, got });
        }
        if self.commitment != *commitment {
            return Err(KeysObjectError::ForeignCommitment);
        }
        Ok(())
    }

    /// The id of its stream.
    #[must_use]
    pub fn stream_id(&self) -> &[u8; STREAM_ID_LEN] {
        &self.stream_id
    }

    /// The commitment to the data key, as in the stream header.
    #[must_use]
    pub fn commitment(&self) -> &[u8; 32] {
        &self.commitment
    }

    /// Lists the key slots.
    pub fn slots(&self) -> impl Iterator<Item = SlotInfo> {
        self.slots.iter().enumerate().map(|(n, slot)| slot.info(n))
    }

    /// The keys object as stored in the keys object.
    #[must_use]
    pub fn encode(&self) -> &[u8] {
        self.text.bytes()
    }

    /// Parses a keys object.
    ///
    /// This finds accidental damage; only [`open`](Self::open) proves that the keys object is
    /// authentic.
    ///
    /// # Errors
    /// [`KeysObjectError`]
    pub fn parse(bytes: &[u8]) -> Result<Self, KeysObjectError> {
        let text::Parsed { stream_id, commitment, slots, text } = text::parse(bytes)?;
        Ok(Self { stream_id, commitment, slots, text })
    }
}

impl fmt::Debug for KeysObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeysObject")
            .field("stream_id", &hex::encode(&self.stream_id))
            .field("slots", &self.slots().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
