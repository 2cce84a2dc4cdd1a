//! Backups whose files were compressed and encrypted one by one.

use std::collections::BTreeMap;
use std::path::Path;

use xb_testkit::command::{Cmd, Ran};
use xb_testkit::data::{mixed, pages};
use xb_testkit::files::tree;
use xb_testkit::stream::{StreamWriter, small_backup};
use xb_testkit::{tools, vectors};

fn run(args: &[&str], stdin: &[u8]) -> Ran {
    Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).args(args).stdin_bytes(stdin).run()
}

fn url(folder: &Path, name: &str) -> String {
    format!("file://{}/root/{name}", folder.display())
}

/// File name to length and SHA-256.
type Files = BTreeMap<String, (u64, String)>;

/// Name, stream, key and plain files of the codec chains in the repository.
fn chains() -> Vec<(String, Vec<u8>, Option<String>, Files)> {
    let list = String::from_utf8(vectors::read("pipeline/vectors.jsonl")).unwrap();
    list.lines()
        .map(|line| {
            let entry: serde_json::Value = serde_json::from_str(line).unwrap();
            let name = entry["file"].as_str().unwrap().to_owned();
            let plain = entry["plain"].as_object().unwrap().iter().map(|(name, facts)| {
                let sum = facts["sha256"].as_str().unwrap().to_owned();
                (name.clone(), (facts["size"].as_u64().unwrap(), sum))
            });
            let bytes = vectors::read(&format!("pipeline/{name}"));
            (name, bytes, entry["key"].as_str().map(Into::into), plain.collect())
        })
        .collect()
}

#[test]
fn restore_undoes_what_the_producer_did_in_both_layouts() {
    for (name, stream, key, plain) in chains() {
        for layout in ["classic", "packed"] {
            let folder = tempfile::tempdir().unwrap();
            let place = url(folder.path(), "n");
            let layout = format!("--layout={layout}");
            let _ = run(&["put", &layout, "--unsafe-any-end", &place], &stream).expect(0);
            let out = folder.path().join("out");
            let dir = format!("--target-dir={}", out.display());
            let key_file = folder.path().join("key");
            let key_option = format!("--encrypt-key-file={}", key_file.display());
            if let Some(key) = &key {
                std::fs::write(&key_file, key).unwrap();
                // Without the key: the error names the first such file and the missing option.
                let ran = run(&["restore", &dir, &place], b"").expect_failure();
                let said = ran.stderr_text();
                assert!(
                    said.contains(".xbcrypt: the file is encrypted, but no key"),
                    "{name}: {said}"
                );
                assert!(said.contains("--encrypt-key-file"), "{said}");
                std::fs::remove_dir_all(&out).unwrap();
                let taken = ["restore", &key_option, "--accept-unsealed", &dir, &place];
                let said = run(&taken, b"").expect(0).stderr_text();
                assert!(said.contains("n is not sealed"), "{said}");
                // Stored files need no key, and none may be given.
                let _ = run(&["get", &key_option, &place], b"").expect_failure();
            } else {
                let _ = run(&["restore", &dir, &place], b"").expect(0);
            }
            assert_eq!(tree(&out), plain, "{name} {layout}");
            // A classic backup is read file by file.
            if layout == "--layout=packed" {
                assert!(run(&["get", &place], b"").expect(0).stdout == stream);
            }
        }
    }
}

#[test]
fn a_sealed_backup_and_the_files_in_it_open_with_one_key() {
    let (_, stream, key, plain) =
        chains().into_iter().find(|(name, ..)| name.contains("lz4-aes256")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let key_file = folder.path().join("key");
    std::fs::write(&key_file, key.unwrap()).unwrap();
    let key = format!("--encrypt-key-file={}", key_file.display());
    let place = url(folder.path(), "n");
    let _ = run(&["put", &key, "--unsafe-any-end", &place], &stream).expect(0);
    let out = folder.path().join("out");
    let dir = format!("--target-dir={}", out.display());
    let _ = run(&["restore", &key, &dir, &place], b"").expect(0);
    assert_eq!(tree(&out), plain);
    // Kept compressed on request.
    let out = folder.path().join("kept");
    let dir = format!("--target-dir={}", out.display());
    let _ = run(&["restore", "--no-decompress", &key, &dir, &place], b"").expect(0);
    assert!(out.join("golf/small.ibd.lz4").is_file());
}

/// Refused before a file is created, even if the key could decrypt the files; `--accept-unsealed`
/// reads the backup as it is.
#[test]
fn a_key_that_opens_nothing_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let key_file = folder.path().join("key");
    std::fs::write(&key_file, [7; 16]).unwrap();
    let key = format!("--encrypt-key-file={}", key_file.display());
    let out = folder.path().join("out");
    let dir = format!("--target-dir={}", out.display());
    for layout in ["classic", "packed"] {
        let place = url(folder.path(), layout);
        let option = format!("--layout={layout}");
        let _ = run(&["put", &option, &place], &small_backup(1, 5000)).expect(0);
        let ran = run(&["restore", &key, &dir, &place], b"").expect_failure();
        assert!(ran.stderr_text().contains("is not sealed, but a key was given"), "{ran:?}");
        assert!(!out.exists());
        let _ = run(&["restore", &key, "--accept-unsealed", &dir, &place], b"").expect(0);
        assert!(out.join("xtrabackup_info").exists());
        std::fs::remove_dir_all(&out).unwrap();
    }
}

/// Passes bytes through a program.
fn through(program: &str, args: &[&str], bytes: &[u8]) -> Vec<u8> {
    Cmd::new(tools::find(program)).args(args).stdin_bytes(bytes).run().expect(0).stdout
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Decrypts version 3 chunks with openssl only, and checks the hash at the end of each chunk.
fn decrypt(stored: &[u8], key: &[u8]) -> Vec<u8> {
    let cipher = format!("-aes-{}-ctr", 8 * key.len());
    let mut plain = Vec::new();
    let mut rest = stored;
    while !rest.is_empty() {
        assert_eq!(&rest[..8], b"XBCRYP03");
        let len = u64::from_le_bytes(rest[24..32].try_into().unwrap());
        let (chunk, later) = rest[60..].split_at(usize::try_from(len).unwrap());
        let args = ["enc", "-d", &cipher, "-K", &hex(key), "-iv", &hex(&rest[44..60])];
        let opened = through("openssl", &args, chunk);
        let (bytes, hash) = opened.split_at(opened.len() - 32);
        assert_eq!(through("openssl", &["dgst", "-sha256", "-binary"], bytes), hash);
        plain.extend_from_slice(bytes);
        rest = later;
    }
    plain
}

/// A backup of a few files, one of them in several pieces, with interleaved chunks.
fn backup() -> (Vec<u8>, Vec<(&'static str, Vec<u8>)>) {
    let files = vec![
        ("ibdata1", pages(1, 9 << 20)),
        ("db/t.ibd", mixed(2, 300_000)),
        ("db/empty.ibd", Vec::new()),
        ("db/t.frm", mixed(3, 8_000)),
        ("xtrabackup_checkpoints", b"to_lsn = 1\n".to_vec()),
    ];
    let mut stream = StreamWriter::new(Vec::new());
    for at in (0..9 << 20).step_by(100_000) {
        for (name, bytes) in files.iter().filter(|(_, bytes)| bytes.len() > at) {
            stream.payload(name, at as u64, &bytes[at..bytes.len().min(at + 100_000)]);
        }
    }
    for (name, _) in &files {
        stream.end(name);
    }
    stream.info();
    (stream.finish(), files)
}

#[test]
fn files_are_transformed_so_that_the_programs_of_others_undo_them() {
    let (stream, files) = backup();
    let table = [
        ("--compress=lz4", Some(("AES128", 16))),
        ("--compress=zstd:5", Some(("AES192", 24))),
        ("--compress=none", Some(("AES256", 32))),
        ("--compress=zstd", None),
    ];
    for (compress, cipher) in table {
        let folder = tempfile::tempdir().unwrap();
        let place = url(folder.path(), "n");
        let key = vec![b'k'; cipher.map_or(32, |(_, len)| len)];
        let key_file = folder.path().join("key");
        std::fs::write(&key_file, &key).unwrap();
        let key_option = format!("--encrypt-key-file={}", key_file.display());
        let encrypt = cipher.map(|(name, _)| format!("--encrypt={name}"));
        let mut put = vec!["put", "--layout=classic", "--memory=64M", compress];
        put.extend(encrypt.as_deref());
        put.extend(cipher.map(|_| &key_option[..]));
        put.push(&place);
        let _ = run(&put, &stream).expect(0);

        let manifest = folder.path().join("root/.xb-catalog/n");
        let manifest = std::fs::read_to_string(manifest).unwrap();
        if let Some((name, _)) = cipher {
            assert!(manifest.contains(&format!("\"cipher\": \"{name}\"")), "{manifest}");
        }
        let codec = compress.trim_start_matches("--compress=");
        assert_eq!(manifest.contains(&format!("\"codec\": \"{codec}")), codec != "none");
        assert!(manifest.contains("xtrabackup_info"), "the end was seen before: {manifest}");

        // First mbstream, then openssl, then lz4 or zstd.
        let got = run(&["get", &place], b"").expect(0).stdout;
        let out = folder.path().join("mbstream");
        std::fs::create_dir(&out).unwrap();
        let cmd = Cmd::new(tools::find("mbstream")).args(["-x", "-C"]).arg(&out);
        let _ = cmd.stdin_bytes(got).run().expect(0);
        for (name, bytes) in &files {
            let mut stored = (*name).to_owned();
            let plain = name.ends_with("checkpoints");
            let (suffix, program) = match codec {
                "none" => ("", None),
                "lz4" => (".lz4", Some("lz4")),
                _ => (".zst", Some("zstd")),
            };
            if !plain {
                stored += suffix;
                stored += if cipher.is_some() { ".xbcrypt" } else { "" };
            }
            let path = out.join(&stored);
            // An empty file that is only encrypted has no chunks.
            let mut undone = std::fs::read(&path).unwrap_or_else(|e| panic!("{stored}: {e}"));
            if cipher.is_some() && !plain {
                undone = decrypt(&undone, &key);
            }
            if let Some(program) = program.filter(|_| !plain) {
                undone = through(program, &["-dc"], &undone);
            }
            assert!(undone == *bytes, "{stored}");
        }

        let out = folder.path().join("out");
        let dir = format!("--target-dir={}", out.display());
        let mut restore = vec!["restore", &dir];
        if cipher.is_some() {
            restore.extend([&key_option[..], "--accept-unsealed"]);
        }
        restore.push(&place);
        let _ = run(&restore, b"").expect(0);
        for (name, bytes) in &files {
            assert!(std::fs::read(out.join(name)).unwrap() == *bytes, "{name}");
        }
    }
}

#[test]
fn each_layout_has_its_own_codecs_and_ciphers() {
    let folder = tempfile::tempdir().unwrap();
    let key_file = folder.path().join("key");
    std::fs::write(&key_file, [7; 32]).unwrap();
    let key = format!("--encrypt-key-file={}", key_file.display());
    let place = url(folder.path(), "n");
    let bad: [(&[&str], &str); 9] = [
        (&["--layout=classic", "--compress=snappy"], "lz4 or zstd"),
        (&["--layout=classic", "--compress=gzip:3"], "lz4 or zstd"),
        (&["--layout=classic", "--encrypt=aes-256-gcm", &key], "use AES256"),
        (&["--layout=classic", "--encrypt=AES256"], "--encrypt-key-file"),
        (&["--layout=classic", "--recipient=age1x"], "--layout=packed"),
        (&["--layout=classic", "--encrypt-chunk-size=1M"], "encrypt"),
        (&["--encrypt=AES256", &key], "--layout=classic"),
        (&["--encrypt=AES128", &key], "--layout=classic"),
        (&["--encrypt-chunk-size=1M"], "classic layout"),
    ];
    for (options, hint) in bad {
        let ran = run(&[&["put"], options, &[&place]].concat(), &small_backup(1, 100)).expect(2);
        assert!(ran.stderr_text().contains(hint), "{options:?}: {ran:?}");
    }
    assert!(tree(&folder.path().join("root")).is_empty());
}

#[test]
fn many_mixed_files_stay_within_the_memory() {
    let folder = tempfile::tempdir().unwrap();
    let key_file = folder.path().join("key");
    std::fs::write(&key_file, [7; 32]).unwrap();
    let key = format!("--encrypt-key-file={}", key_file.display());
    // 300 files of 700 KiB, all open at once: far more than fits into memory.
    let block = mixed(1, 50_000);
    let mut stream = StreamWriter::new(Vec::new());
    for n in 0..14_u64 {
        for file in 0..300 {
            stream.payload(&format!("db/t{file}.ibd"), n * 50_000, &block);
        }
    }
    for file in 0..300 {
        stream.end(&format!("db/t{file}.ibd"));
    }
    stream.info();
    let place = url(folder.path(), "n");
    let options = ["put", "--json", "--layout=classic", "--compress=lz4", "--memory=64M", &key];
    let ran = run(&[&options[..], &[&place]].concat(), &stream.finish()).expect(0);
    // As the program reports it: measured from outside, it would include the test's own memory
    // before the start.
    let peak = |ran: &Ran| {
        let events = ran.stderr_text();
        let mut events =
            events.lines().map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap());
        events.find(|event| event["event"] == "done").unwrap()["peak_memory"].as_u64().unwrap()
    };
    assert!(peak(&ran) < 120 << 20, "{} bytes", peak(&ran));
    let out = folder.path().join("out");
    let dir = format!("--target-dir={}", out.display());
    let restore = ["restore", "--json", "--memory=64M", &key, "--accept-unsealed", &dir, &place];
    let ran = run(&restore, b"").expect(0);
    assert_eq!(tree(&out).len(), 301, "{ran:?}");
    assert!(peak(&ran) < 120 << 20, "{} bytes", peak(&ran));
    assert!(std::fs::read(out.join("db/t7.ibd")).unwrap() == block.repeat(14));
}
