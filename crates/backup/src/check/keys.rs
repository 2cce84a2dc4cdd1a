//! Check of keys: who can open the next backup.

use xb_encryptor::{FreshKey, KeySlots, Keys, KeysObject};
use xb_repo::names::RunId;

use crate::check::{CheckLine, no_random};
use crate::error::BackupError;

/// Memory that a passphrase may take, in bytes.
const PASSPHRASE_MEMORY: u64 = 1 << 30;

/// Wraps a data key for all key slots, lists them, and opens it again with `keys`.
///
/// # Errors
/// Only if there are no random numbers; everything else is a line.
pub fn check_keys(slots: &KeySlots, keys: &Keys) -> Result<Vec<CheckLine>, BackupError> {
    const WHAT: &str = "keys";
    if slots.is_empty() {
        return Ok(vec![CheckLine::warning(
            WHAT,
            "backups are not sealed: anyone with read access to the store can read the data",
            "add a --recipient (xbcrypt-rs keygen --identity creates one) or an --encrypt-key-file",
        )]);
    }
    let run = RunId::random().map_err(no_random)?;
    let fresh = FreshKey::generate().map_err(|error| BackupError::Keys(error.to_string()))?;
    let keys_object = match KeysObject::seal(fresh.key(), run.0, &slots.list()) {
        Ok(keys_object) => keys_object,
        Err(error) => {
            let fix = "correct the option that names this key";
            return Ok(vec![CheckLine::failed(WHAT, error.to_string(), fix)]);
        }
    };
    let names: Vec<String> = keys_object.slots().map(|slot| slot.to_string()).collect();
    let mut lines = vec![match names.len() {
        1 => CheckLine::warning(
            WHAT,
            format!("only {} can open a backup", names[0]),
            "add a second recipient whose identity is kept elsewhere: a lost key is a lost backup",
        ),
        n => CheckLine::ok(WHAT, format!("each of {n} can open a backup: {}", names.join(", "))),
    }];
    lines.push(match keys.open(&keys_object, PASSPHRASE_MEMORY) {
        Some(Ok(_)) => CheckLine::ok("open", "this host can open its backups"),
        Some(Err(error)) => CheckLine::warning(
            "open",
            format!("this host's keys do not open its backups: {error}"),
            "give the identity or key that belongs to a recipient",
        ),
        None => {
            CheckLine::ok("open", "this host has no key to open its backups, only to seal them")
        }
    });
    Ok(lines)
}
