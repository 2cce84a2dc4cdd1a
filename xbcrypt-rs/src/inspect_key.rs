//! `inspect` of a key file or an identity: the ids by which backups name them, and nothing of the key.

use std::path::Path;

use serde_json::{Value, json};
use xb_encryptor::{
    FreshKey, Identities, KeyBytes, KeyFile, KeySlotSpec, KeysObject, STREAM_ID_LEN,
};

/// Text and JSON about a file that holds a key; `None` if it holds none.
pub(crate) fn key(path: &Path) -> Option<(String, Value)> {
    if let Ok(file) = KeyFile::read(path) {
        let (bytes, id) = (file.key.len(), id(&file.key));
        let opens = match &id {
            Some(id) => format!("opens backups and files with the key slot: key file {id}"),
            None => "for .xbcrypt files only: a seal needs a key of 32 bytes".to_owned(),
        };
        let value = json!({ "format": "key-file", "bytes": bytes, "id": id });
        return Some((format!("key file of {bytes} bytes\n  {opens}\n"), value));
    }
    let identities = Identities::read(path).ok()?;
    let recipients = identities.recipients();
    let mut text = "age identity\n".to_owned();
    for recipient in &recipients {
        let id = recipient.id();
        text += &format!("  opens backups and files with the key slot: age recipient {id}\n");
        text += &format!("  public key: {recipient}\n");
    }
    let recipients: Vec<Value> = recipients
        .iter()
        .map(|recipient| json!({ "recipient": recipient.to_string(), "id": recipient.id() }))
        .collect();
    Some((text, json!({ "format": "identity", "recipients": recipients })))
}

/// The id of the key slots of a key file, taken from a slot that is made for this.
fn id(key: &KeyBytes) -> Option<String> {
    let fresh = FreshKey::generate().ok()?;
    let keys = KeysObject::seal(fresh.key(), [0; STREAM_ID_LEN], &[KeySlotSpec::Key(key)]).ok()?;
    keys.slots().next()?.id
}
