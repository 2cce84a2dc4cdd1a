//! Files that Tink, age and Python made from the documentation alone, and the worked example of
//! `docs/spec/keys.md`.

use xb_encryptor::{
    Backend, Identities, KeyBytes, KeyMaterial, KeysObject, OpenStream, SealContext, parse_block,
};
use xb_testkit::vectors::read;

fn stream_id() -> [u8; 16] {
    std::array::from_fn(|n| 0xa0 + n as u8)
}

#[test]
fn a_stream_that_others_sealed_opens_by_either_slot() {
    let (header, sealed, body) = (read("seal/header"), read("seal/sealed-body"), read("seal/body"));
    let commitment: [u8; 32] = header[40..72].try_into().unwrap();
    let context = SealContext { stream_id: stream_id(), commitment, header: &header };
    let file = KeyBytes::from_text(b"0123456789abcdefghijklmnopqrstuv").unwrap();
    let identity = String::from_utf8(read("seal/identity")).unwrap();
    let identities = Identities::parse(&identity).unwrap();
    let object = KeysObject::parse(&read("seal/keys")).unwrap();
    let block = parse_block(&read("seal/keys-block")).unwrap();
    assert_eq!(object.encode(), block.encode());
    object.belongs_to(&stream_id(), &commitment).unwrap();
    for unlock in [KeyMaterial::Key(&file), KeyMaterial::Identities(&identities)] {
        let key = object.open(&unlock).unwrap();
        for &backend in Backend::ALL {
            let mut out = Vec::new();
            let mut stream = OpenStream::new(&key, &context, backend).unwrap();
            sealed.chunks(7).for_each(|piece| stream.push(piece, &mut out).unwrap());
            assert_eq!(stream.finish(&mut out).unwrap(), body.len() as u64);
            assert_eq!(out, body);
        }
    }
    // Encoding it again results in the same bytes.
    assert_eq!(block.encode_block_of(4096).unwrap(), read("seal/keys-block"));
    let ids: Vec<String> = object.slots().map(|slot| slot.id.unwrap()).collect();
    assert_eq!(ids[1], identities.recipients()[0].id());
    assert_eq!(ids[0], KEY_FILE_ID);
}

/// From `make.py`; also in the documentation.
const KEY_FILE_ID: &str = "fd66d6c3d24e7c30";

#[test]
fn the_document_shows_the_fixture() {
    let document =
        std::fs::read_to_string(xb_testkit::tools::workspace().join("docs/spec/keys.md")).unwrap();
    let keys = String::from_utf8(read("seal/keys")).unwrap();
    assert!(document.contains(&keys), "docs/spec/keys.md does not show fixtures/seal/keys");
    for (info, text) in [("xbrs key file id 1", KEY_FILE_ID), ("xbrs key file wrap 1", "XBRKEY01")]
    {
        assert!(document.contains(info) && document.contains(text));
    }
}

/// The fixed texts used in key derivation, collected here as the documentation has them.
#[test]
fn keys_are_derived_as_written() {
    let data_key: Vec<u8> = (0..32).collect();
    let header = read("seal/header");
    let commitment = crate::common::derive(&data_key, &stream_id(), b"xbrs key commitment 1");
    assert_eq!(header[40..72], commitment);
    let file = KeyBytes::from_text(b"0123456789abcdefghijklmnopqrstuv").unwrap();
    let key =
        KeysObject::parse(&read("seal/keys")).unwrap().open(&KeyMaterial::Key(&file)).unwrap();
    let manifest = crate::common::derive(&data_key, &stream_id(), b"xbrs manifest mac 1");
    let code = key.manifest_key(&stream_id()).code(b"text");
    assert_eq!(code[..], crate::common::hmac(&manifest, b"text"));
    assert!(key.manifest_key(&stream_id()).verify(b"text", &code));
}
