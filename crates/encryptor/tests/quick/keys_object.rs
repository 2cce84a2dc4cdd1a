//! KeysObjects: every kind of slot opens, wrong keys are reported, changed keys objects never open.

use std::ffi::OsString;

use proptest::prelude::*;
use sha2::{Digest, Sha256};
use xb_encryptor::{
    BLOCK_HEAD_LEN, BLOCK_UNIT, BlockHead, DataKey, FreshKey, Identities, KeyBytes, KeyCommand,
    KeyMaterial, KeySlotSpec, KeysObject, KeysObjectError, MAX_KEYS_OBJECT, OpenError, Passphrase,
    SlotFault, SlotKind, WrapError, is_keys_block, parse_block,
};

const ID: [u8; 16] = [0x21; 16];
const MEMORY: u64 = 64 << 20;

fn key_file(fill: u8) -> KeyBytes {
    KeyBytes::new(&[fill; 32]).unwrap()
}

fn passphrase(text: &str) -> Passphrase {
    Passphrase::new(text.to_owned()).unwrap()
}

/// A key command that XORs with a fixed pattern and prepends a mark: enough to see that the right
/// bytes go in and out. It unwraps only input with its mark.
fn command(mark: &str) -> KeyCommand {
    let script = r#"
import sys
mark, verb = sys.argv[1].encode(), sys.argv[2]
data = sys.stdin.buffer.read()
if verb == 'unwrap':
    if not data.startswith(mark):
        sys.exit(3)
    data = data[len(mark):]
out = bytes(byte ^ 0x5a for byte in data)
sys.stdout.buffer.write((mark if verb == 'wrap' else b'') + out)
"#;
    KeyCommand::new(["python3", "-c", script, mark].map(OsString::from)).unwrap()
}

fn shell(script: &str) -> KeyCommand {
    KeyCommand::new(["sh", "-c", script].map(OsString::from)).unwrap()
}

fn same(a: &DataKey, b: &DataKey) -> bool {
    a.commitment(&[0; 16]) == b.commitment(&[0; 16])
}

fn slots(keys_object: &KeysObject) -> Vec<String> {
    keys_object.slots().map(|slot| slot.to_string()).collect()
}

#[test]
fn every_key_slot_opens_and_gives_the_same_key() {
    let fresh = FreshKey::generate().unwrap();
    let (file, words, program) = (key_file(1), passphrase("open sesame"), command("m:"));
    let (first, text) = Identities::generate();
    let (second, _) = Identities::generate();
    let (one, two) = (&first.recipients()[0], &second.recipients()[0]);
    let keys_object = KeysObject::seal(
        fresh.key(),
        ID,
        &[
            KeySlotSpec::Key(&file),
            KeySlotSpec::Recipient(one),
            KeySlotSpec::Recipient(two),
            KeySlotSpec::Passphrase(&words),
            KeySlotSpec::Command(&program),
        ],
    )
    .unwrap();
    let read = KeysObject::parse(keys_object.encode()).unwrap();
    assert_eq!(read.encode(), keys_object.encode());
    assert_eq!((read.stream_id(), read.commitment()), (&ID, &fresh.key().commitment(&ID)));
    read.belongs_to(&ID, &fresh.key().commitment(&ID)).unwrap();
    let copy = Identities::parse(&text).unwrap();
    for unlock in [
        KeyMaterial::Key(&file),
        KeyMaterial::Identities(&first),
        KeyMaterial::Identities(&second),
        KeyMaterial::Identities(&copy),
        KeyMaterial::Passphrase { passphrase: &words, max_memory: MEMORY },
        KeyMaterial::Command(&program),
    ] {
        assert!(same(&read.open(&unlock).unwrap(), fresh.key()), "{unlock:?}");
    }
    // The ids show which keys open it; nothing else is visible.
    assert_eq!(slots(&read)[1], format!("age recipient {}", one.id()));
    assert_eq!(slots(&read)[3..], ["passphrase", "key command"]);
    let shown =
        format!("{read:?} {:?}", [KeySlotSpec::Key(&file), KeySlotSpec::Passphrase(&words)]);
    assert!(!shown.contains("sesame") && !shown.contains("1, 1"), "{shown}");
}

#[test]
fn wrong_keys_are_named() {
    let fresh = FreshKey::generate().unwrap();
    let (file, words, program) = (key_file(1), passphrase("right"), command("m:"));
    let (identities, _) = Identities::generate();
    let (others, _) = Identities::generate();
    let recipient = &identities.recipients()[0];
    let ways = [
        KeySlotSpec::Key(&file),
        KeySlotSpec::Recipient(recipient),
        KeySlotSpec::Passphrase(&words),
        KeySlotSpec::Command(&program),
    ];
    let keys_object = KeysObject::seal(fresh.key(), ID, &ways).unwrap();
    let error = |unlock: &KeyMaterial<'_>| keys_object.open(unlock).unwrap_err();

    let got = error(&KeyMaterial::Key(&key_file(2)));
    assert!(matches!(&got, OpenError::NotForThis { .. }));
    let text = got.to_string();
    assert!(text.starts_with("wrong key file: the backup opens with key file "), "{text}");
    let got = error(&KeyMaterial::Key(&KeyBytes::new(&[1; 16]).unwrap()));
    assert_eq!(got.to_string(), "key slot 0: the key has 16 bytes; the native format needs 32");
    assert!(matches!(error(&KeyMaterial::Identities(&others)), OpenError::NotForThis { .. }));
    let wrong = passphrase("wrong");
    let got = error(&KeyMaterial::Passphrase { passphrase: &wrong, max_memory: MEMORY });
    assert_eq!(got.to_string(), "key slot 2: wrong passphrase");
    let got = error(&KeyMaterial::Command(&command("n:")));
    assert_eq!(
        got.to_string(),
        "key slot 3: key command python3 unwrap: it failed: exit status: 3"
    );
    let got = error(&KeyMaterial::Command(&shell("head -c 5")));
    assert_eq!(
        got.to_string(),
        "key slot 3: key command sh unwrap: it wrote 5 bytes; a key has 32"
    );
    let got = error(&KeyMaterial::Command(&shell("head -c 32 /dev/zero")));
    assert_eq!(got.to_string(), "key slot 3: it holds the key of another stream");

    let only = KeysObject::seal(fresh.key(), ID, &ways[..1]).unwrap();
    let got = only.open(&KeyMaterial::Identities(&identities)).unwrap_err().to_string();
    assert!(got.starts_with("no age identity slot: the backup opens with key"));
}

#[test]
fn memory_for_a_passphrase_is_bounded() {
    let fresh = FreshKey::generate().unwrap();
    let words = passphrase("right");
    let keys_object =
        KeysObject::seal(fresh.key(), ID, &[KeySlotSpec::Passphrase(&words)]).unwrap();
    let open =
        |max_memory| keys_object.open(&KeyMaterial::Passphrase { passphrase: &words, max_memory });
    for max_memory in [0, 1023, MEMORY - 1] {
        let error = open(max_memory).unwrap_err();
        assert!(matches!(
            error,
            OpenError::Slot { fault: SlotFault::Memory { needed: MEMORY, limit }, .. }
                if limit == max_memory
        ));
        assert!(error.is_untried());
    }
    assert!(open(MEMORY).is_ok() && open(u64::MAX).is_ok());
    let text = open(1 << 20).unwrap_err().to_string();
    assert_eq!(
        text,
        "key slot 0: checking the passphrase needs 67108864 bytes of memory, the limit is 1048576"
    );
}

#[test]
fn a_keys_object_needs_a_slot_and_takes_none_twice() {
    let fresh = FreshKey::generate().unwrap();
    let seal = |ways: &[KeySlotSpec<'_>]| KeysObject::seal(fresh.key(), ID, ways).unwrap_err();
    assert!(matches!(seal(&[]), WrapError::NoWayIn));
    let file = key_file(1);
    assert!(matches!(
        seal(&[KeySlotSpec::Key(&file), KeySlotSpec::Key(&file)]),
        WrapError::Twice { .. }
    ));
    let short = KeyBytes::new(&[1; 24]).unwrap();
    assert!(matches!(seal(&[KeySlotSpec::Key(&short)]), WrapError::KeyLength { got: 24 }));
    let files: Vec<KeyBytes> = (0..65).map(key_file).collect();
    let ways: Vec<KeySlotSpec<'_>> = files.iter().map(KeySlotSpec::Key).collect();
    assert!(matches!(seal(&ways), WrapError::TooMany { got: 65, .. }));
    assert!(KeysObject::seal(fresh.key(), ID, &ways[..64]).is_ok());
    let echo = command("");
    let ways = vec![KeySlotSpec::Command(&echo); 9];
    assert!(matches!(seal(&ways), WrapError::TooMany { got: 9, slow: true, .. }));
}

/// A program that does not wrap would put the plain key into the bucket.
#[test]
fn a_key_command_must_hide_the_key() {
    let fresh = FreshKey::generate().unwrap();
    let fault = |script: &str| {
        let command = shell(script);
        KeysObject::seal(fresh.key(), ID, &[KeySlotSpec::Command(&command)])
            .unwrap_err()
            .to_string()
    };
    assert!(fault("printf head; cat").ends_with("it returned the key unwrapped"));
    assert!(fault("od -An -tx1 | tr -d ' \\n'").ends_with("it returned the key unwrapped"));
    assert!(fault("true").ends_with("it wrote nothing"));
    assert!(fault("exit 1").ends_with("it failed: exit status: 1"));
}

#[test]
fn rewrap_keeps_the_wanted_slots_and_needs_the_key() {
    let fresh = FreshKey::generate().unwrap();
    let (old, new) = (key_file(1), key_file(2));
    let (identities, _) = Identities::generate();
    let recipient = &identities.recipients()[0];
    let first = KeysObject::seal(
        fresh.key(),
        ID,
        &[KeySlotSpec::Key(&old), KeySlotSpec::Recipient(recipient)],
    );
    let first = first.unwrap();
    let key = first.open(&KeyMaterial::Key(&old)).unwrap();
    let second = first
        .rewrap(&key, |slot| slot.kind == SlotKind::Recipient, &[KeySlotSpec::Key(&new)])
        .unwrap();
    let second = KeysObject::parse(second.encode()).unwrap();
    assert!(same(&second.open(&KeyMaterial::Key(&new)).unwrap(), &key));
    assert!(same(&second.open(&KeyMaterial::Identities(&identities)).unwrap(), &key));
    assert!(matches!(second.open(&KeyMaterial::Key(&old)), Err(OpenError::NotForThis { .. })));
    assert_eq!(second.commitment(), first.commitment());

    // A key that already has a slot gets a new one in its place.
    let again = [KeySlotSpec::Recipient(recipient), KeySlotSpec::Key(&old)];
    let renewed = first.rewrap(&key, |_| true, &again).unwrap();
    let kinds: Vec<_> = renewed.slots().map(|slot| slot.kind).collect();
    assert_eq!(kinds, [SlotKind::Recipient, SlotKind::KeyFile]);
    assert!(same(&renewed.open(&KeyMaterial::Identities(&identities)).unwrap(), &key));
    let twice = [KeySlotSpec::Key(&new), KeySlotSpec::Key(&new)];
    assert!(matches!(first.rewrap(&key, |_| true, &twice), Err(WrapError::Twice { .. })));

    let foreign = FreshKey::generate().unwrap();
    let refused = first.rewrap(foreign.key(), |_| true, &[KeySlotSpec::Key(&new)]);
    assert!(matches!(refused, Err(WrapError::ForeignKey)));
    assert!(matches!(first.rewrap(&key, |_| false, &[]), Err(WrapError::NoWayIn)));
}

#[test]
fn the_keys_object_of_another_stream_is_named() {
    let fresh = FreshKey::generate().unwrap();
    let file = key_file(1);
    let keys_object = KeysObject::seal(fresh.key(), ID, &[KeySlotSpec::Key(&file)]).unwrap();
    let commitment = fresh.key().commitment(&ID);
    let error = keys_object.belongs_to(&[0x22; 16], &commitment).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the keys object belongs to stream 21212121212121212121212121212121, expected 22222222222222222222222222222222"
    );
    let other = FreshKey::generate().unwrap().key().commitment(&ID);
    assert_eq!(keys_object.belongs_to(&ID, &other), Err(KeysObjectError::ForeignCommitment));
}

fn sample() -> (KeysObject, KeyBytes) {
    let fresh = FreshKey::generate().unwrap();
    let file = key_file(1);
    let (identities, _) = Identities::generate();
    let recipient = &identities.recipients()[0];
    let ways = [KeySlotSpec::Key(&file), KeySlotSpec::Recipient(recipient)];
    (KeysObject::seal(fresh.key(), ID, &ways).unwrap(), file)
}

/// Also in slots that are not tried.
#[test]
fn every_flipped_bit_and_every_cut_is_an_error() {
    let (keys_object, file) = sample();
    let bytes = keys_object.encode();
    for bit in 0..bytes.len() * 8 {
        let mut bad = bytes.to_vec();
        bad[bit / 8] ^= 1 << (bit % 8);
        let opened =
            KeysObject::parse(&bad).map(|keys_object| keys_object.open(&KeyMaterial::Key(&file)));
        assert!(!matches!(opened, Ok(Ok(_))), "bit {bit} of {}", bytes.len());
    }
    for len in 0..bytes.len() {
        assert!(KeysObject::parse(&bytes[..len]).is_err(), "cut at {len}");
    }
    let longer = [bytes, b"\n"].concat();
    assert!(KeysObject::parse(&longer).is_err());
}

/// An attacker who changes the text can correct the digest, but not the authentication line.
fn mend(json: &str, rest: &[u8]) -> Vec<u8> {
    let line = format!("sha256:{}\n", crate::common::hex(&Sha256::digest(json)));
    let mac = &rest[rest.len() - 77..];
    [json.as_bytes(), line.as_bytes(), mac].concat()
}

fn json(keys_object: &KeysObject) -> String {
    let text = std::str::from_utf8(keys_object.encode()).unwrap();
    text[..text.find("sha256:").unwrap()].to_owned()
}

#[test]
fn a_changed_keys_object_opens_nothing() {
    let (keys_object, file) = sample();
    let (mut value, rest): (serde_json::Value, _) =
        (serde_json::from_str(&json(&keys_object)).unwrap(), keys_object.encode());
    // A slot that is not tried was removed.
    value["slots"].as_array_mut().unwrap().pop();
    let text = serde_json::to_string_pretty(&value).unwrap() + "\n";
    let changed = KeysObject::parse(&mend(&text, rest)).unwrap();
    assert!(matches!(changed.open(&KeyMaterial::Key(&file)), Err(OpenError::Altered)));
    // The slot of another stream, under the same key file.
    let foreign =
        KeysObject::seal(FreshKey::generate().unwrap().key(), ID, &[KeySlotSpec::Key(&file)]);
    let foreign: serde_json::Value = serde_json::from_str(&json(&foreign.unwrap())).unwrap();
    value["slots"] = foreign["slots"].clone();
    let text = serde_json::to_string_pretty(&value).unwrap() + "\n";
    let changed = KeysObject::parse(&mend(&text, rest)).unwrap();
    let error = changed.open(&KeyMaterial::Key(&file)).unwrap_err();
    assert!(matches!(error, OpenError::Slot { fault: SlotFault::ForeignKey, .. }));
    assert!(!error.is_untried());
    // Only its id changes: nothing matches any more.
    value["stream"] = "00".repeat(16).into();
    let text = serde_json::to_string_pretty(&value).unwrap() + "\n";
    let changed = KeysObject::parse(&mend(&text, rest)).unwrap();
    assert!(matches!(
        changed.open(&KeyMaterial::Key(&file)).unwrap_err(),
        OpenError::Slot { fault: SlotFault::Damaged, .. }
    ));
}

#[test]
fn fields_of_a_later_version_are_named_or_kept() {
    let (keys_object, file) = sample();
    let rest = keys_object.encode();
    let text = json(&keys_object);
    let later = text.replace("\"format\": 1", "\"format\": 2").replace("\"slots\"", "\"slits\"");
    assert!(matches!(
        KeysObject::parse(&mend(&later, rest)),
        Err(KeysObjectError::TooNew { found: 2, known: 1 })
    ));
    let unknown = text.replace("\"age-recipient\"", "\"tpm-2\"");
    let keys_object = KeysObject::parse(&mend(&unknown, rest)).unwrap();
    assert_eq!(slots(&keys_object)[1], "unknown kind tpm-2");
    // A rewrap keeps it byte for byte.
    let (genuine, _) = sample();
    let key = genuine.open(&KeyMaterial::Key(&file)).unwrap();
    assert!(keys_object.rewrap(&key, |_| true, &[]).is_err(), "the key of another stream");
    for (from, to, want) in [
        ("xbrs-keys", "xbrs-kexs", "type"),
        ("\"id\"", "\"ix\"", "cannot read slot 0 of the keys object: fields are missing"),
        ("\"format\": 1", "\"format\": 0", "format 0"),
        ("\"stream\": \"21", "\"stream\": \"2", "stream ID"),
        ("\"nonce\": \"", "\"nonce\": \"00", "wrong length"),
    ] {
        let error = KeysObject::parse(&mend(&text.replacen(from, to, 1), rest)).unwrap_err();
        assert!(error.to_string().contains(want), "{from}: {error}");
    }
}

#[test]
fn sizes_are_bounded() {
    let huge = vec![b' '; MAX_KEYS_OBJECT + 1];
    assert!(matches!(KeysObject::parse(&huge), Err(KeysObjectError::TooLong { .. })));
    let (keys_object, _) = sample();
    let mut value: serde_json::Value = serde_json::from_str(&json(&keys_object)).unwrap();
    let slot = value["slots"][0].clone();
    value["slots"] = vec![slot; 65].into();
    let text = serde_json::to_string_pretty(&value).unwrap() + "\n";
    let error = KeysObject::parse(&mend(&text, keys_object.encode())).unwrap_err();
    assert!(error.to_string().contains("65 slots"), "{error}");
    value["slots"] = vec![serde_json::json!({"kind": "command", "wrapped": "00"}); 9].into();
    let text = serde_json::to_string_pretty(&value).unwrap() + "\n";
    let error = KeysObject::parse(&mend(&text, keys_object.encode())).unwrap_err();
    assert!(error.to_string().contains("more than the limit of 8"), "{error}");
}

#[test]
fn blocks_return_and_can_be_written_over() {
    let (keys_object, file) = sample();
    let block = keys_object.encode_block().unwrap();
    assert!(is_keys_block(&block) && block.len().is_multiple_of(BLOCK_UNIT));
    let head = BlockHead::parse(block.first_chunk().unwrap()).unwrap();
    assert_eq!((head.block_len, head.text_len), (block.len(), keys_object.encode().len()));
    assert!(block.len() >= BLOCK_HEAD_LEN + head.text_len + 1024, "no room for another slot");
    let read = parse_block(&block).unwrap();
    assert_eq!(read.encode(), keys_object.encode());

    let key = read.open(&KeyMaterial::Key(&file)).unwrap();
    let other = key_file(9);
    let again = read.rewrap(&key, |_| true, &[KeySlotSpec::Key(&other)]).unwrap();
    let over = again.encode_block_of(block.len()).unwrap();
    assert_eq!(over.len(), block.len());
    assert!(parse_block(&over).unwrap().open(&KeyMaterial::Key(&other)).is_ok());

    assert!(matches!(
        again.encode_block_of(0),
        Err(KeysObjectError::NoRoom { needed: BLOCK_UNIT, got: 0 })
    ));
    assert!(again.encode_block_of(BLOCK_UNIT + 1).is_err());
    assert!(again.encode_block_of(64 << 20).is_err());
}

#[test]
fn no_byte_of_a_block_can_be_changed_unseen() {
    let (keys_object, _) = sample();
    let block = keys_object.encode_block().unwrap();
    for at in 0..block.len() {
        let mut bad = block.clone();
        bad[at] ^= 1 << (at % 8);
        assert!(parse_block(&bad).is_err(), "byte {at}");
    }
    for len in [0, 1, 31, 32, block.len() - 1] {
        assert!(parse_block(&block[..len]).is_err(), "cut at {len}");
    }
    assert!(parse_block(&[block, vec![0]].concat()).is_err());
}

proptest! {
    #[test]
    fn any_text_is_parsed_or_refused(text in ".{0,200}") {
        let _ = KeysObject::parse(&mend(&text, &[b'0'; 77]));
        let _ = KeysObject::parse(text.as_bytes());
        let _ = parse_block(text.as_bytes());
    }

    #[test]
    fn any_change_of_the_text_is_survived(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5)
    ) {
        let (keys_object, file) = sample();
        let mut text = json(&keys_object).into_bytes();
        for (at, byte) in edits {
            let at = at.index(text.len());
            text[at] = byte % 128;
        }
        let text = String::from_utf8(text).unwrap();
        let unchanged = text == json(&keys_object);
        let opened = KeysObject::parse(&mend(&text, keys_object.encode()))
            .map(|keys_object| keys_object.open(&KeyMaterial::Key(&file)).is_ok());
        prop_assert!(unchanged || !matches!(opened, Ok(true)));
    }
}
