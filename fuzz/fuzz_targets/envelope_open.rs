//! Any text as an envelope, with a matching digest: no panic, never a key. An envelope that can be
//! parsed is encoded as the same bytes, also in a block.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sha2::{Digest, Sha256};
use xb_encryptor::{BlockHead, Envelope, Identities, KeyBytes, Passphrase, KeyMaterial, parse_block};

fuzz_target!(|data: &[u8]| {
    let _ = parse_block(data);
    if let Some(head) = data.first_chunk() {
        let _ = BlockHead::parse(head);
    }
    let _ = Envelope::parse(data);

    let mut text = data.to_vec();
    text.push(b'\n');
    let digest: String = Sha256::digest(&text).iter().map(|b| format!("{b:02x}")).collect();
    text.extend(format!("sha256:{digest}\nhmac-sha256:{}\n", "0".repeat(64)).bytes());
    let Ok(envelope) = Envelope::parse(&text) else { return };
    assert_eq!(envelope.encode(), text);
    let block = envelope.encode_block().expect("it fits");
    assert_eq!(parse_block(&block).expect("our own").encode(), text);

    let key = KeyBytes::new(&[1; 32]).expect("32 bytes");
    assert!(envelope.open(&KeyMaterial::Key(&key)).is_err());
    let (identities, _) = Identities::generate();
    assert!(envelope.open(&KeyMaterial::Identities(&identities)).is_err());
    let passphrase = Passphrase::new("x".to_owned()).expect("not empty");
    let passphrase = KeyMaterial::Passphrase { passphrase: &passphrase, max_memory: 1 << 12 };
    assert!(envelope.open(&passphrase).is_err());
});
