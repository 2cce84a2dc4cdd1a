//! Native files: which damage they detect, and how other programs read them.

use crate::support::{Folder, filter, hex, sha256, unhex, xbcrypt};
use xb_testkit::command::Cmd;
use xb_testkit::data::mixed;
use xb_testkit::tools::{find, workspace};

const KEY: [u8; 32] = [7; 32];

#[test]
fn any_bytes_come_back_with_every_codec() {
    let folder = Folder::new();
    let key = folder.file("key", &KEY);
    for len in [0, 1, 1_048_576, 3_000_001] {
        let plain = mixed(1, len);
        for codec in ["none", "lz4", "snappy", "gzip:1", "zstd:3"] {
            let compress = format!("--compress={codec}");
            let words = ["--format=native", &compress, "-f", &key, "--compress-threads=2"];
            let file = filter(&words, &plain).expect(0).stdout;
            assert!(codec == "none" || len < 2 || file.len() < len, "{codec} shrinks nothing");
            let back = filter(&["-d", "-f", &key], &file).expect(0);
            assert!(back.stdout == plain, "{len} {codec}");
        }
    }
}

#[test]
fn a_wrong_key_is_reported_before_any_output() {
    let folder = Folder::new();
    let (key, other) = (folder.file("key", &KEY), folder.file("other", &[8; 32]));
    let short = folder.file("short", &[7; 16]);
    let identity = xbcrypt().args(["keygen", "--identity"]).run().expect(0).stdout;
    let identity = folder.file("identity", &identity);
    let file = filter(&["--format=native", "-f", &key], &mixed(2, 3 << 20)).expect(0).stdout;
    for (words, code, said) in [
        (&["-d", "-f", &other][..], 1, "wrong key file"),
        (&["-d", "-f", &short], 2, "needs 32"),
        (&["-d", "--identity-file", &identity], 1, "no age identity slot"),
        (&["-d"], 1, "no key was given; the file opens with: key file "),
    ] {
        let output = folder.name("out");
        for to in [&[][..], &["-o", &output]] {
            let ran = xbcrypt().args(words).args(to).stdin_bytes(&file[..]).run().expect(code);
            assert!(ran.stdout.is_empty(), "{ran:?}");
            assert!(ran.stderr_text().contains(said), "{ran:?}");
            assert!(!folder.path("out").exists() && !folder.path(".xb-partial").exists());
        }
    }
}

#[test]
fn every_key_slot_opens() {
    let folder = Folder::new();
    let key = folder.file("key", &KEY);
    let identity =
        folder.file("identity", &xbcrypt().args(["keygen", "--identity"]).run().expect(0).stdout);
    let text = String::from_utf8(folder.read("identity")).unwrap();
    let recipient = text.lines().find_map(|line| line.strip_prefix("# public key: ")).unwrap();
    let recipients = folder.file("recipients", format!("# us\n{recipient}\n").as_bytes());
    let passphrase = folder.file("passphrase", b"correct horse\n");
    // Rotates the value of each byte: enough to differ from the key.
    let command =
        folder.file("wrap", b"#!/bin/sh\nexec tr '\\000-\\377' '\\200-\\377\\000-\\177'\n");
    let command = format!("sh {command}");
    for (seal, open) in [
        (&["-f", &key][..], &["-f", &key][..]),
        (&["--recipient", recipient], &["--identity-file", &identity]),
        (&["--recipients-file", &recipients], &["--identity-file", &identity]),
        (&["--passphrase-file", &passphrase], &["--passphrase-file", &passphrase]),
        (&["--key-command", &command], &["--key-command", &command]),
        (&["-f", &key, "--recipient", recipient], &["--identity-file", &identity]),
    ] {
        let file = filter(&[&["--format=native"], seal].concat(), b"plain").expect(0).stdout;
        assert_eq!(filter(&[&["-d"], open].concat(), &file).expect(0).stdout, b"plain", "{seal:?}");
    }
}

/// Runs the program for each case; `crates/pipeline/tests/quick/filter.rs` tries every byte.
#[test]
fn damage_gives_no_byte_and_no_file() {
    let folder = Folder::new();
    let key = folder.file("key", &KEY);
    let file = filter(&["--format=native", "-f", &key], b"a small file").expect(0).stdout;
    let mut bad: Vec<Vec<u8>> = [0, 1, 31, 32, 4095, 4096, 4223, 4224, 4264]
        .into_iter()
        .chain((4265..file.len()).step_by(13))
        .map(|len| file[..len].to_vec())
        .collect();
    bad.extend([8, 40, 300, 4100, 4200, 4230, 4270, 4300, file.len() - 70].map(|at| {
        let mut changed = file.clone();
        changed[at] ^= 0x10;
        changed
    }));
    bad.push([&file[..], b"x"].concat());
    bad.push([&file[..], &file[..]].concat());
    let output = folder.name("out");
    // `--format` states the expected format: an empty file, or an xbcrypt file, does not have it.
    for bad in bad {
        let words = ["-d", "--format=native", "-f", &key];
        let ran = filter(&words, &bad).expect(1);
        assert!(ran.stdout.is_empty() && ran.stderr_text().contains("hint: "), "{ran:?}");
        let _ = xbcrypt().args(words).args(["-o", &output]).stdin_bytes(bad).run().expect(1);
        assert_eq!(folder.names(), ["key"]);
    }
}

#[test]
fn an_xbcrypt_file_is_not_taken_for_a_native_one() {
    let folder = Folder::new();
    let key = folder.file("key", &KEY);
    let stock = filter(&["-a", "AES256", "-f", &key], b"plain").expect(0).stdout;
    let ran = filter(&["-d", "--format=native", "-f", &key], &stock).expect(1);
    assert!(ran.stdout.is_empty() && ran.stderr_text().contains("XBCRYP03"), "{ran:?}");
    let passphrase = folder.file("passphrase", b"x\n");
    let ran = filter(&["-d", "--passphrase-file", &passphrase], &stock).expect(1);
    assert!(ran.stdout.is_empty(), "{ran:?}");
}

/// Plain `age` decrypts the data key, and plain `tink` opens the body with it.
#[test]
fn age_and_tink_open_it() {
    const SCRIPT: &str = r#"
import io, sys
import tink
from tink import streaming_aead, secret_key_access
from tink.proto import aes_gcm_hkdf_streaming_pb2 as gcm, common_pb2, tink_pb2
key, associated = sys.argv[1:]
streaming_aead.register()
raw = gcm.AesGcmHkdfStreamingKey(version=0, key_value=bytes.fromhex(key),
    params=gcm.AesGcmHkdfStreamingParams(
        ciphertext_segment_size=1 << 20, derived_key_size=32, hkdf_hash_type=common_pb2.SHA256))
keyset = tink_pb2.Keyset(primary_key_id=1, key=[tink_pb2.Keyset.Key(
    key_data=tink_pb2.KeyData(
        type_url='type.googleapis.com/google.crypto.tink.AesGcmHkdfStreamingKey',
        value=raw.SerializeToString(), key_material_type=tink_pb2.KeyData.SYMMETRIC),
    status=tink_pb2.ENABLED, key_id=1, output_prefix_type=tink_pb2.RAW)])
handle = tink.proto_keyset_format.parse(keyset.SerializeToString(), secret_key_access.TOKEN)
primitive = handle.primitive(streaming_aead.StreamingAead)
body = io.BytesIO(sys.stdin.buffer.read())
with primitive.new_decrypting_stream(body, bytes.fromhex(associated)) as stream:
    sys.stdout.buffer.write(stream.read())
"#;
    let folder = Folder::new();
    let made = Cmd::new(find("age-keygen")).run().expect(0).stdout;
    let identity = folder.file("identity", &made);
    let text = String::from_utf8(made).unwrap();
    let recipient = text.lines().find_map(|line| line.strip_prefix("# public key: ")).unwrap();
    let plain = mixed(3, 2_500_000);
    let file = filter(&["--format=native", "--recipient", recipient], &plain).expect(0).stdout;

    let text_len = usize::try_from(u32::from_le_bytes(file[12..16].try_into().unwrap())).unwrap();
    let text = std::str::from_utf8(&file[32..32 + text_len]).unwrap();
    let keys: serde_json::Value =
        serde_json::from_str(&text[..text.find("sha256:").unwrap()]).unwrap();
    let slot = keys["slots"][0]["age"].as_str().unwrap();
    let opened = Cmd::new(find("age")).args(["-d", "-i", &identity]).stdin_bytes(slot).run();
    let data_key = opened.expect(0).stdout;
    assert_eq!(data_key.len(), 32);

    let block = usize::try_from(u32::from_le_bytes(file[8..12].try_into().unwrap())).unwrap();
    let stream = &file[block..];
    let (header, rest) = stream.split_at(128);
    let sealed = &rest[..rest.len() - 64];
    let python = std::env::var_os("XB_TOOLS_PYTHON")
        .map_or_else(|| workspace().join("target/tools/bin/python"), Into::into);
    let words = ["-c", SCRIPT, &hex(&data_key), &sha256(header)];
    let body = Cmd::new(python).args(words).stdin_bytes(sealed).run().expect(0).stdout;
    // The frames follow unchanged: each begins with 32 bytes.
    let (mut at, mut out) = (0, Vec::new());
    while body[at + 4] == 1 {
        let len = usize::try_from(u32::from_le_bytes(body[at + 12..at + 16].try_into().unwrap()));
        let len = len.unwrap();
        out.extend_from_slice(&body[at + 32..at + 32 + len]);
        at += 32 + len;
    }
    assert!(out == plain);
    assert!(filter(&["-d", "--identity-file", &identity], &file).expect(0).stdout == plain);
}

#[test]
fn rewrap_changes_who_can_open_it() {
    let folder = Folder::new();
    let (key, new) = (folder.file("key", &KEY), folder.file("new", &[8; 32]));
    let plain = mixed(4, 1_500_000);
    let file = filter(&["--format=native", "-f", &key], &plain).expect(0).stdout;
    let path = folder.file("file", &file);
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o604)).unwrap();
    let opens = |path: &str, key: &str| {
        let ran = xbcrypt().args(["-d", "-f", key, "-i", path]).run();
        assert!(ran.code() != 0 || ran.stdout == plain);
        ran.code() == 0
    };
    let rewrap = |words: &[&str]| xbcrypt().args(["rewrap", &path]).args(words).run();

    let added = folder.name("added");
    let words = ["--encrypt-key-file", &key, "--new-key-file", &new, "--keep", "-o", &added];
    let _ = rewrap(&words).expect(0);
    assert!(
        opens(&added, &key) && opens(&added, &new) && opens(&path, &key) && !opens(&path, &new)
    );
    let _ = rewrap(&words).expect(1); // a file of that name exists now

    let _ = rewrap(&["--encrypt-key-file", &key, "--new-key-file", &new]).expect(0);
    assert!(!opens(&path, &key) && opens(&path, &new));
    let after = folder.read("file");
    assert!(after[4096..] == file[4096..], "nothing but the keys changes");
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o604);

    // The rewrap is refused, and the file is unchanged.
    let cut = folder.file("cut", &after[..after.len() - 1]);
    for (words, code) in [
        (&[&path[..], "--encrypt-key-file", &key, "--new-key-file", &key][..], 1),
        (&[&path, "--encrypt-key-file", &new], 2),
        (&[&path, "--new-key-file", &key], 1),
        (&[&cut, "--encrypt-key-file", &new, "--new-key-file", &key], 1),
        (&[&key, "--encrypt-key-file", &new, "--new-key-file", &key], 1),
        (&["/no/such/file", "--encrypt-key-file", &new, "--new-key-file", &key], 1),
    ] {
        let ran = xbcrypt().arg("rewrap").args(words).run().expect(code);
        assert!(ran.stdout.is_empty(), "{ran:?}");
    }
    assert!(folder.read("file") == after);

    // With a link, the file is replaced, not the link.
    std::os::unix::fs::symlink("file", folder.path("link")).unwrap();
    let link = folder.name("link");
    let words = ["rewrap", &link, "--encrypt-key-file", &new, "--new-key-file", &key];
    let _ = xbcrypt().args(words).run().expect(0);
    assert!(folder.path("link").is_symlink() && opens(&path, &key) && !opens(&path, &new));
    assert_eq!(folder.names(), ["added", "cut", "file", "key", "link", "new"]);
}

#[test]
fn rewrap_removes_the_files_of_a_killed_one() {
    let folder = Folder::new();
    let (key, new) = (folder.file("key", &KEY), folder.file("new", &[8; 32]));
    let file = filter(&["--format=native", "-f", &key], &mixed(4, 50_000)).expect(0).stdout;
    let path = folder.file("file", &file);
    // Files of a dead run and of a live one, and names that only look alike.
    for name in [".xbcrypt-rs.4194999", ".xbcrypt-rs.1", ".xbcrypt-rs.", ".xbcrypt-rs.7x"] {
        folder.file(name, b"half a file");
    }
    let living = std::fs::File::open(folder.path(".xbcrypt-rs.1")).unwrap();
    living.lock().unwrap();
    let words = ["rewrap", &path, "--encrypt-key-file", &key, "--new-key-file", &new];
    let _ = xbcrypt().args(words).run().expect(0);
    let left = [".xbcrypt-rs.", ".xbcrypt-rs.1", ".xbcrypt-rs.7x", "file", "key", "new"];
    assert_eq!(folder.names(), left);
    assert!(folder.read("file")[4096..] == file[4096..]);
}

/// Of two at once, the later would bring back a key slot that the earlier has removed.
#[test]
fn one_rewrap_at_a_time_replaces_a_file() {
    let folder = Folder::new();
    let (key, new) = (folder.file("key", &KEY), folder.file("new", &[8; 32]));
    let file = filter(&["--format=native", "-f", &key], &mixed(4, 50_000)).expect(0).stdout;
    let path = folder.file("file", &file);
    let words = ["rewrap", &path, "--encrypt-key-file", &key, "--new-key-file", &new];
    let other = std::fs::File::open(folder.path("file")).unwrap();
    other.lock().unwrap();
    let text = xbcrypt().args(words).run().expect(1).stderr_text();
    assert!(text.contains("another run changes it"), "{text}");
    assert!(folder.read("file") == file);
    // It is only read for another file.
    let aside = folder.name("aside");
    let _ = xbcrypt().args(words).args(["-o", &aside]).run().expect(0);
    drop(other);
    let _ = xbcrypt().args(words).run().expect(0);
    assert!(folder.read("file") != file);
}

#[test]
fn inspect_needs_no_key() {
    let folder = Folder::new();
    let key = folder.file("key", &KEY);
    let json = |name: &str, code: i32| -> serde_json::Value {
        let ran = xbcrypt().args(["inspect", "--json", &folder.name(name)]).run().expect(code);
        serde_json::from_slice(&ran.stdout).unwrap()
    };
    let native = filter(&["--format=native", "-f", &key], &mixed(5, 100_000)).expect(0).stdout;
    folder.file("native", &native);
    let facts = json("native", 0);
    assert_eq!(
        (&facts["format"], &facts["sealed"], &facts["trailer"]),
        (&"native".into(), &true.into(), &true.into())
    );
    assert_eq!(facts["key_slots"][0]["kind"], "key-file");
    assert_eq!(facts["codec"], serde_json::Value::Null);
    folder.file("cut", &native[..native.len() - 1]);
    assert_eq!(json("cut", 1)["trailer"], false);
    let tiny = xb_testkit::vectors::read("native/tiny.native");
    folder.file("tiny", &tiny);
    assert_eq!(json("tiny", 0)["codec"], "none");
    let stock = filter(&["-a", "AES256", "-f", &key], &mixed(6, 100_000)).expect(0).stdout;
    folder.file("stock", &stock);
    let facts = json("stock", 0);
    assert_eq!((&facts["chunks"], &facts["plain_bytes"]), (&2.into(), &100_000.into()));
    let text = xbcrypt().args(["inspect", &folder.name("stock")]).run().expect(0).stdout_text();
    assert!(text.contains("accidental damage only"), "{text}");
    // A key file is named as key slots name it, and shows nothing of the key.
    let of_key = json("key", 0);
    assert_eq!(of_key["id"], json("native", 0)["key_slots"][0]["id"]);
    assert!(of_key["format"] == "key-file" && of_key["id"].is_string(), "{of_key}");
    let other = folder.file("other", b"neither of them, nor a key");
    let _ = xbcrypt().args(["inspect", &other]).run().expect(1);
    assert!(unhex(&hex(&KEY)) == KEY);
}
