//! Use as the stock filter: its vectors, its options, and openssl as the other side.

use crate::support::{Folder, filter, hex, sha256, unhex, xbcrypt};
use xb_testkit::command::Cmd;
use xb_testkit::data::pages;
use xb_testkit::vectors;

const KEY: &str = "0123456789abcdefghijklmnopqrstuv";

struct Vector {
    file: String,
    bytes: Vec<u8>,
    algorithm: String,
    key: Vec<u8>,
    plain: Option<(u64, String)>,
}

/// The vectors in `fixtures/`, and the whole collection if it is present beside the checkout.
fn all_vectors() -> Vec<Vector> {
    let list = String::from_utf8(vectors::read("xbcrypt/vectors.jsonl")).unwrap();
    let mut all: Vec<Vector> = list
        .lines()
        .map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            let text = |field: &str| line[field].as_str().unwrap().to_owned();
            Vector {
                bytes: vectors::read(&format!("xbcrypt/{}", text("file"))),
                file: text("file"),
                algorithm: text("algo"),
                key: unhex(&text("key")),
                plain: line["plain"].as_array().map(|facts| {
                    (facts[0].as_u64().unwrap(), facts[1].as_str().unwrap().to_owned())
                }),
            }
        })
        .collect();
    assert!(all.len() > 40);
    for more in vectors::collection("xbcrypt") {
        let file = more.name.replacen("xbcrypt/", "good/", 1);
        if all.iter().any(|known| known.file == file) {
            continue;
        }
        let len = [16, 24, 32].into_iter().find(|len| file.contains(&format!("AES{}", len * 8)));
        let plain = more.plain.as_ref().map(|files| (files[0].1, files[0].2.clone()));
        let key = KEY.as_bytes()[..len.unwrap()].to_vec();
        all.push(Vector { bytes: more.bytes(), file, algorithm: "AES256".into(), key, plain });
    }
    all
}

#[test]
fn every_vector_gives_its_result() {
    let folder = Folder::new();
    for vector in all_vectors() {
        let key = folder.file("key", &vector.key);
        let (input, output) = (folder.file("in", &vector.bytes), folder.name("out"));
        let words = ["-d", "-a", &vector.algorithm, "-f", &key, "--allow-unhashed", "-t2"];
        let ran = xbcrypt().args(words).stdin_file(&input).run();
        let to_file = xbcrypt().args(words).args(["-i", &input, "-o", &output]).run();
        assert_eq!(ran.code(), to_file.code(), "{}", vector.file);
        // The vector whose key file has a newline that we drop; `null` is the stock tool's result.
        let newline = vector.file == "bad/key-with-newline-file.xbcrypt";
        match &vector.plain {
            Some((size, digest)) => {
                let ran = ran.expect(0);
                let want = (*size, digest.clone());
                assert_eq!((ran.stdout.len() as u64, sha256(&ran.stdout)), want, "{}", vector.file);
                assert!(folder.read("out") == ran.stdout);
                std::fs::remove_file(&output).unwrap();
            }
            None if newline => {
                let ran = ran.expect(0);
                assert!(ran.stderr_text().contains("newline"), "{ran:?}");
                std::fs::remove_file(&output).unwrap();
            }
            None => {
                let ran = ran.expect_failure();
                assert!(ran.stdout.is_empty(), "{}: {ran:?}", vector.file);
                assert!(!folder.path("out").exists(), "{}", vector.file);
            }
        }
    }
}

#[test]
fn versions_without_a_hash_are_taken_only_when_asked_for() {
    let folder = Folder::new();
    let key = folder.file("key", &KEY.as_bytes()[..16]);
    for vector in all_vectors().iter().filter(|v| v.file.ends_with("crafted-v2.xbcrypt")) {
        let key = folder.file("own-key", &vector.key);
        let words = ["-d", "-a", "AES256", "-f", &key];
        let ran = filter(&words, &vector.bytes).expect(1);
        assert!(ran.stdout.is_empty());
        assert!(ran.stderr_text().contains("--allow-unhashed"), "{ran:?}");
        // Under the stock name the program accepts such files without the option.
        let stock = folder.linked_as("xbcrypt").args(words).stdin_bytes(&vector.bytes[..]).run();
        assert_eq!(sha256(&stock.expect(0).stdout), vector.plain.as_ref().unwrap().1);
    }
    let ran = filter(&["-d", "-f", &key], b"").expect(0);
    assert!(ran.stdout.is_empty(), "nothing is what xbcrypt makes of nothing");
    // A failed copy also leaves empty input.
    assert!(ran.stderr_text().contains("the input is empty"), "{ran:?}");
}

fn field(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn openssl(verb: &str, key: &[u8], iv: &[u8], bytes: &[u8]) -> Vec<u8> {
    let cipher = format!("-aes-{}-ctr", key.len() * 8);
    let (key, iv) = (hex(key), hex(iv));
    let words = ["enc", verb, &cipher, "-nopad", "-K", &key, "-iv", &iv];
    Cmd::new("openssl").args(words).stdin_bytes(bytes).run().expect(0).stdout
}

#[test]
fn openssl_reads_our_output() {
    let plain = pages(1, 150_000);
    for len in [16, 24, 32] {
        let key = &KEY[..len];
        let file = filter(&["-a", "AES128", "-k", key, "-s", "64K"], &plain).expect(0).stdout;
        let (mut at, mut out) = (0, Vec::new());
        while at < file.len() {
            assert_eq!(&file[at..at + 8], b"XBCRYP03");
            let size = usize::try_from(field(&file, at + 24)).unwrap();
            let payload = &file[at + 60..at + 60 + size];
            let opened = openssl("-d", key.as_bytes(), &file[at + 44..at + 60], payload);
            let (text, hash) = opened.split_at(size - 32);
            assert_eq!(hex(hash), sha256(text));
            out.extend_from_slice(text);
            at += 60 + size;
        }
        assert!(out == plain);
    }
}

#[test]
fn we_read_the_output_of_openssl() {
    let mut file = Vec::new();
    let plain = pages(2, 100_000);
    let iv = [0xff; 16];
    for piece in plain.chunks(33_333) {
        let payload = openssl("-e", KEY.as_bytes(), &iv, &[piece, &unhex(&sha256(piece))].concat());
        let size = (payload.len() as u64).to_le_bytes();
        file.extend_from_slice(b"XBCRYP03\0\0\0\0\0\0\0\0");
        file.extend_from_slice(&size);
        file.extend_from_slice(&size);
        file.extend_from_slice(&xb_reader::crc32(&payload).to_le_bytes());
        file.extend_from_slice(&16_u64.to_le_bytes());
        file.extend_from_slice(&iv);
        file.extend_from_slice(&payload);
    }
    let ran = filter(&["-d", "-a", "AES256", "-k", KEY], &file).expect(0);
    assert!(ran.stdout == plain);
    // With a key, the algorithm need not be named.
    assert!(filter(&["-d", "-k", KEY], &file).expect(0).stdout == plain);
}

#[test]
fn options_as_the_stock_tool_has_them() {
    let folder = Folder::new();
    let key = folder.file("key", KEY.as_bytes());
    let plain = pages(3, 200_000);
    let stock = || folder.linked_as("xbcrypt").stdin_bytes(&plain[..]);
    for (n, words) in [
        &["-aAES256", "-f", &key][..],
        &["--encrypt-algo=aes256", &format!("--encrypt-key-file={key}")],
        &["--encrypt_algo=3", "--encrypt-key", KEY, "--encrypt-chunk-size=4K"],
        &["-a", "AES192", "-k", KEY, "-s4096", "-t4", "-r=1M", "-v"],
        &["--encrypt-a=AES256", "-f", &key, "--encrypt-threads", "--read-buffer-size"],
        &["--encrypt-algo=AES256", "-f", &key, "--encrypt-threads=3", "-s1"],
    ]
    .into_iter()
    .enumerate()
    {
        let ran = stock().args(words).run().expect(0);
        let back = folder.linked_as("xbcrypt").args(["-d", "-aAES256", "-k", KEY]);
        assert!(back.stdin_bytes(&ran.stdout[..]).run().expect(0).stdout == plain, "{n}");
    }
    let by_environment = stock().args(["-a", "AES256"]).env("XBCRYPT_ENCRYPTION_KEY", KEY);
    let file = by_environment.run().expect(0).stdout;
    let back = xbcrypt().arg("-d").env("XBCRYPT_ENCRYPTION_KEY", KEY).stdin_bytes(&file[..]);
    assert!(back.run().expect(0).stdout == plain);

    // NONE is the default and encrypts nothing, so we warn.
    let ran = stock().run().expect(0);
    assert!(ran.stderr_text().contains("the output is not encrypted"), "{ran:?}");
    assert!(ran.stdout.windows(1000).any(|window| window == &plain[50..1050]));
    let back = folder.linked_as("xbcrypt").args(["-d", "-aNONE"]).stdin_bytes(&ran.stdout[..]);
    assert!(back.run().expect(0).stdout == plain);
    // With a key, input that was never encrypted is an error.
    let refused = filter(&["-d", "-k", KEY], &ran.stdout).expect(1);
    assert!(refused.stdout.is_empty());

    // An option file uses the stock tool's group.
    let options = format!("[xbcrypt]\nencrypt-algo=AES256\nencrypt-key-file={key}\n");
    let defaults = format!("--defaults-file={}", folder.file("my.cnf", options.as_bytes()));
    let file = stock().arg(&defaults).run().expect(0).stdout;
    assert!(filter(&["-d", "-f", &key], &file).expect(0).stdout == plain);
}

#[test]
fn wrong_settings_are_refused_before_anything_is_read() {
    let folder = Folder::new();
    let key = folder.file("key", KEY.as_bytes());
    let short = folder.file("short", b"short");
    for words in [
        &["-a", "AES256"][..],
        &["-a", "AES256", "-k", "short"],
        &["-a", "AES256", "-f", &short],
        &["-a", "AES256", "-f", "/no/such/file"],
        &["-a", "AES256", "-k", KEY, "-f", &key],
        &["-a", "DES", "-k", KEY],
        &["-k", KEY],
        &["-a", "AES256", "-k", KEY, "-s", "4G"],
        &["-a", "AES256", "-k", KEY, "-r=0"],
        &["-a", "AES256", "-k", KEY, "--compress=zstd"],
        &["-a", "AES256", "-k", KEY, "word"],
        &["--format=native"],
        &["--format=native", "--recipient=age1nonsense"],
        &["--format=native", "-k", &KEY[..16]],
        &["--format=native", "--compress=lzma", "-k", KEY],
        &["-d", "-a", "AES256"],
    ] {
        let ran = filter(words, b"XBCRYP03");
        assert_eq!(ran.code(), 2, "{ran:?}");
        assert!(ran.stdout.is_empty() && !ran.stderr_text().contains("panicked"), "{ran:?}");
        assert!(!ran.stderr_text().contains(KEY), "{ran:?}");
        // The stock tool exits only with 1.
        let stock = folder.linked_as("xbcrypt").args(words).stdin_bytes("XBCRYP03").run();
        assert!([0, 1].contains(&stock.code()), "{stock:?}");
    }
}

#[test]
fn short_reads_are_filled_up() {
    let plain = pages(4, 70_000);
    let feed = plain.clone();
    let ran = xbcrypt()
        .args(["-a", "AES256", "-k", KEY])
        .stdin_feed(move |out| {
            for piece in feed.chunks(701) {
                let _ = out.write_all(piece).and_then(|()| out.flush());
            }
        })
        .run()
        .expect(0);
    assert_eq!(ran.stdout.len(), plain.len() + 2 * 92);
    assert!(filter(&["-d", "-k", KEY], &ran.stdout).expect(0).stdout == plain);
}
