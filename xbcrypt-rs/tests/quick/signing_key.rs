//! Keys that sign backups are what OpenSSL has.

use std::process::Command;

use xb_encryptor::SigningKey;
use xb_testkit::command::Cmd;

#[test]
fn openssl_reads_our_keys_and_makes_some() {
    let folder = tempfile::tempdir().unwrap();
    let [ours, theirs] = ["ours", "theirs"].map(|name| folder.path().join(name));
    let output = format!("--output={}", ours.display());
    let made = Cmd::new(env!("CARGO_BIN_EXE_xbcrypt-rs"))
        .args(["keygen", "--signing", &output])
        .run()
        .expect(0)
        .stderr_text();
    let public = made.split_once("public key: ").unwrap().1.trim().to_owned();
    assert_eq!(SigningKey::read(&ours).unwrap().verifying_key().to_string(), public);
    let shown =
        Command::new("openssl").args(["pkey", "-noout", "-text", "-in"]).arg(&ours).output();
    let shown = String::from_utf8(shown.unwrap().stdout).unwrap();
    let (_, digits) = shown.split_once("pub:").unwrap();
    let digits: String = digits.chars().filter(char::is_ascii_hexdigit).collect();
    assert_eq!(format!("ed25519:{digits}"), public);

    let mut make = Command::new("openssl");
    let made = make.args(["genpkey", "-algorithm", "ed25519", "-out"]).arg(&theirs).status();
    assert!(made.unwrap().success());
    let key = SigningKey::read(&theirs).unwrap();
    let [text, signature, public] = ["text", "signature", "public"].map(|n| folder.path().join(n));
    std::fs::write(&text, "a manifest").unwrap();
    std::fs::write(&signature, key.sign(b"a manifest")).unwrap();
    let openssl = |args: &[&str], files: [&std::path::Path; 2]| {
        Command::new("openssl")
            .args(args)
            .args(["-in"])
            .arg(files[0])
            .args(["-out"])
            .arg(files[1])
            .status()
    };
    assert!(openssl(&["pkey", "-pubout"], [&theirs, &public]).unwrap().success());
    let verified = Command::new("openssl")
        .args(["pkeyutl", "-verify", "-pubin", "-rawin", "-inkey"])
        .arg(&public)
        .arg("-in")
        .arg(&text)
        .arg("-sigfile")
        .arg(&signature)
        .status();
    assert!(verified.unwrap().success());
}
