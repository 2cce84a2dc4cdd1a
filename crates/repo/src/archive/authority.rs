//! Source of the keys that authenticate an archive's records while they are read: the proof of a head is not kept.

use xb_encryptor::{KeysObject, MacKey};

use crate::names::RunId;

/// A holder of keys.
pub trait Authority: Sync {
    /// The key that authenticates the records of a stream with these key slots; `None` if there is none.
    fn key(&self, stream: RunId, slots: &KeysObject) -> Option<MacKey>;
}

/// A reader without keys: nothing is authentic to it.
#[derive(Debug, Clone, Copy)]
pub struct Keyless;

impl Authority for Keyless {
    fn key(&self, _: RunId, _: &KeysObject) -> Option<MacKey> {
        None
    }
}
