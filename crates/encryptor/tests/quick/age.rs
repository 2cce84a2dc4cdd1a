//! The `age` program opens the slots of a keys object, and its output works as a slot.

use std::ffi::OsString;

use crate::common::{run, write};
use serde_json::Value;
use xb_encryptor::{
    FreshKey, Identities, KeyCommand, KeyMaterial, KeySlotSpec, KeysObject, Passphrase, Recipient,
};
use xb_testkit::tools::find;

const ID: [u8; 16] = [1; 16];

/// Returns the plain data key, with the help of a key command that stores it.
fn plain_key(fresh: &FreshKey, dir: &tempfile::TempDir) -> Vec<u8> {
    let path = dir.path().join("plain");
    let script = format!("cat > {}; echo wrapped", path.display());
    let command = KeyCommand::new(["sh", "-c", &script].map(OsString::from)).unwrap();
    KeysObject::seal(fresh.key(), ID, &[KeySlotSpec::Command(&command)]).unwrap();
    std::fs::read(path).unwrap()
}

fn slot(keys_object: &KeysObject, n: usize) -> String {
    let text = std::str::from_utf8(keys_object.encode()).unwrap();
    let json: Value = serde_json::from_str(&text[..text.find("sha256:").unwrap()]).unwrap();
    json["slots"][n]["age"].as_str().unwrap().to_owned()
}

#[test]
fn age_opens_a_recipient_slot() {
    let dir = tempfile::tempdir().unwrap();
    let fresh = FreshKey::generate().unwrap();
    // One key made by us, one by age-keygen.
    let (ours, secret) = Identities::generate();
    let (ok, theirs, stderr) = run(&find("age-keygen"), &[], b"");
    assert!(ok, "{stderr}");
    let theirs = String::from_utf8(theirs).unwrap();
    let their_identities = Identities::parse(&theirs).unwrap();
    let recipients = [ours.recipients(), their_identities.recipients()].concat();
    let ways: Vec<KeySlotSpec<'_>> = recipients.iter().map(KeySlotSpec::Recipient).collect();
    let keys_object = KeysObject::seal(fresh.key(), ID, &ways).unwrap();
    let plain = plain_key(&fresh, &dir);
    for (n, identity) in [secret.as_str(), theirs.as_str()].into_iter().enumerate() {
        let file = write(&dir, "identity", identity.as_bytes());
        let armored = slot(&keys_object, n);
        let (ok, out, stderr) = run(&find("age"), &["-d", "-i", &file], armored.as_bytes());
        assert!(ok, "{stderr}");
        assert_eq!(out, plain);
        // Each key opens only its own slot.
        let (ok, out, _) =
            run(&find("age"), &["-d", "-i", &file], slot(&keys_object, 1 - n).as_bytes());
        assert!(!ok && out.is_empty());
    }
    let public = theirs.lines().find_map(|line| line.strip_prefix("# public key: ")).unwrap();
    assert_eq!(public.parse::<Recipient>().unwrap().id(), recipients[1].id());
}

/// `age` asks for passphrases only on a terminal, so the test provides one.
fn on_a_terminal(arguments: &[&str], answers: &str) -> (bool, String) {
    let script = r#"
import os, pty, sys
answers, words = sys.argv[1].encode().decode('unicode_escape').encode(), sys.argv[2:]
pid, fd = pty.fork()
if pid == 0:
    os.execv(words[0], words)
seen = b''
wanted = seen.count(b':')
for answer in answers.splitlines(keepends=True):
    while seen.count(b':') <= wanted:
        piece = os.read(fd, 1000)
        if not piece:
            break
        seen += piece
    wanted = seen.count(b':')
    os.write(fd, answer)
try:
    while piece := os.read(fd, 1000):
        seen += piece
except OSError:
    pass
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
sys.stdout.buffer.write(seen)
sys.exit(status)
"#;
    let program = find("age");
    let words = [&["-c", script, answers, program.to_str().unwrap()], arguments].concat();
    let (ok, out, stderr) = run(&find("python3"), &words, b"");
    (ok, String::from_utf8_lossy(&out).into_owned() + &stderr)
}

#[test]
fn age_opens_a_passphrase_slot() {
    let dir = tempfile::tempdir().unwrap();
    let fresh = FreshKey::generate().unwrap();
    let words = Passphrase::new("correct horse".to_owned()).unwrap();
    let keys_object =
        KeysObject::seal(fresh.key(), ID, &[KeySlotSpec::Passphrase(&words)]).unwrap();
    let source = write(&dir, "slot.age", slot(&keys_object, 0).as_bytes());
    let target = dir.path().join("key").to_str().unwrap().to_owned();
    let (ok, stderr) = on_a_terminal(&["-d", "-o", &target, &source], "correct horse\\n");
    assert!(ok, "{stderr}");
    assert_eq!(std::fs::read(&target).unwrap(), plain_key(&fresh, &dir));
}

/// The reverse: age wraps the data key, as a `--key-command` would, and the slot opens.
#[test]
fn a_slot_that_age_made_opens() {
    let fresh = FreshKey::generate().unwrap();
    let (identities, secret) = Identities::generate();
    let dir = tempfile::tempdir().unwrap();
    let identity = write(&dir, "identity", secret.as_bytes());
    let recipient = identities.recipients()[0].to_string();
    let age = find("age").to_str().unwrap().to_owned();
    let script = format!(
        "case $1 in wrap) exec {age} -r {recipient};; unwrap) exec {age} -d -i {identity};; esac"
    );
    let command = KeyCommand::new(["sh", "-c", &script, "sh"].map(OsString::from)).unwrap();
    let keys_object = KeysObject::seal(fresh.key(), ID, &[KeySlotSpec::Command(&command)]).unwrap();
    let key = keys_object.open(&KeyMaterial::Command(&command)).unwrap();
    assert_eq!(key.commitment(&ID), fresh.key().commitment(&ID));
}

/// Armored files of age replace ours in a slot; the library reads them.
#[test]
fn files_of_age_are_read_as_slots() {
    let dir = tempfile::tempdir().unwrap();
    let fresh = FreshKey::generate().unwrap();
    let plain = plain_key(&fresh, &dir);
    let (identities, _) = Identities::generate();
    let recipient = &identities.recipients()[0];
    let words = Passphrase::new("correct horse".to_owned()).unwrap();
    let ours = KeysObject::seal(
        fresh.key(),
        ID,
        &[KeySlotSpec::Recipient(recipient), KeySlotSpec::Passphrase(&words)],
    );
    let ours = ours.unwrap();

    let (ok, by_recipient, stderr) =
        run(&find("age"), &["-a", "-r", &recipient.to_string()], &plain);
    assert!(ok, "{stderr}");
    let source = write(&dir, "plain2", &plain);
    let target = dir.path().join("by-passphrase").to_str().unwrap().to_owned();
    let answers = "correct horse\\ncorrect horse\\n";
    let (ok, stderr) = on_a_terminal(&["-a", "-p", "-o", &target, &source], answers);
    assert!(ok, "{stderr}");

    let text = std::str::from_utf8(ours.encode()).unwrap();
    let mut json: Value = serde_json::from_str(&text[..text.find("sha256:").unwrap()]).unwrap();
    json["slots"][0]["age"] = String::from_utf8(by_recipient).unwrap().into();
    json["slots"][1]["age"] = std::fs::read_to_string(&target).unwrap().into();
    let rebuilt = crate::common::keys_object(&json, &plain, &ID);
    let keys_object = KeysObject::parse(&rebuilt).unwrap();
    let key = keys_object.open(&KeyMaterial::Identities(&identities)).unwrap();
    assert_eq!(key.commitment(&ID), fresh.key().commitment(&ID));
    // The program uses 2^18 by default: 256 MiB.
    let open =
        |max_memory| keys_object.open(&KeyMaterial::Passphrase { passphrase: &words, max_memory });
    assert!(open(64 << 20).unwrap_err().to_string().contains("needs 268435456 bytes"));
    assert!(open(256 << 20).is_ok());
}
