//! The stock format: every vector, openssl as the other implementation, and arbitrary bytes.

use crate::common::{hex, noise, run, sha256, unhex};
use proptest::prelude::*;
use sha2::{Digest, Sha256};
use xb_encryptor::xbcrypt::{
    Algorithm, ChunkSize, Cipher, Decoder, Decrypter, Encrypter, ErrorLocation, Event, Limits,
    Parsed, Version, XbcryptError, is_xbcrypt, open_chunk, parse_head, seal_chunk, sealed_len,
};
use xb_encryptor::{Backend, KeyBytes, KeyFile};

struct Vector {
    file: String,
    bytes: Vec<u8>,
    algorithm: Algorithm,
    key: Vec<u8>,
    plain: Option<(u64, String)>,
}

/// The vectors in `fixtures/`, and the whole collection if it is present beside the checkout.
fn vectors() -> Vec<Vector> {
    let list = String::from_utf8(xb_testkit::vectors::read("xbcrypt/vectors.jsonl")).unwrap();
    let mut vectors: Vec<Vector> = list
        .lines()
        .map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            let text = |field: &str| line[field].as_str().unwrap().to_owned();
            Vector {
                bytes: xb_testkit::vectors::read(&format!("xbcrypt/{}", text("file"))),
                file: text("file"),
                algorithm: text("algo").parse().unwrap(),
                key: unhex(&text("key")),
                plain: line["plain"].as_array().map(|facts| {
                    (facts[0].as_u64().unwrap(), facts[1].as_str().unwrap().to_owned())
                }),
            }
        })
        .collect();
    assert!(vectors.len() > 40);
    for more in xb_testkit::vectors::collection("xbcrypt") {
        let file = more.name.replacen("xbcrypt/", "good/", 1);
        if vectors.iter().any(|known| known.file == file) {
            continue;
        }
        let (algorithm, key) = [16, 24, 32]
            .into_iter()
            .find(|len| more.name.contains(&format!("AES{}", len * 8)))
            .map(|len| (Algorithm::Aes256, b"0123456789abcdefghijklmnopqrstuv"[..len].to_vec()))
            .unwrap();
        let plain = more.plain.as_ref().map(|files| (files[0].1, files[0].2.clone()));
        vectors.push(Vector { bytes: more.bytes(), file, algorithm, key, plain });
    }
    vectors
}

fn cipher(algorithm: Algorithm, key: &[u8], backend: Backend) -> Cipher {
    Cipher::new(algorithm, Some(&KeyBytes::new(key).unwrap()), backend).unwrap()
}

fn decrypt(
    cipher: Cipher,
    limits: Limits,
    bytes: &[u8],
    step: usize,
) -> (Vec<u8>, Result<(), XbcryptError>) {
    let (mut out, mut decrypter) = (Vec::new(), Decrypter::new(cipher, limits));
    for piece in bytes.chunks(step.max(1)) {
        if let Err(error) = decrypter.push(piece, &mut out) {
            return (out, Err(error));
        }
    }
    let end = decrypter.finish();
    (out, end)
}

#[test]
fn every_vector_gives_its_result() {
    for vector in vectors() {
        if KeyBytes::new(&vector.key).is_err() {
            assert!(vector.plain.is_none(), "{}", vector.file);
            continue;
        }
        let steps: &[usize] = if vector.bytes.len() < 10_000 { &[1, 7, 4096] } else { &[60_013] };
        for &step in steps {
            for &backend in Backend::ALL {
                let cipher = cipher(vector.algorithm, &vector.key, backend);
                let (out, end) = decrypt(cipher, Limits::ALL, &vector.bytes, step);
                match &vector.plain {
                    Some((size, digest)) => {
                        end.unwrap_or_else(|e| panic!("{}: {e}", vector.file));
                        assert_eq!(
                            (out.len() as u64, &sha256(&out)),
                            (*size, digest),
                            "{}",
                            vector.file
                        );
                    }
                    None => assert!(end.is_err(), "{}: taken", vector.file),
                }
            }
        }
    }
}

/// The only vector that tests its key file.
#[test]
fn a_key_file_with_a_newline_is_taken_with_a_word() {
    let vectors = vectors();
    let vector = vectors.iter().find(|v| v.file == "bad/key-with-newline-file.xbcrypt").unwrap();
    let file = KeyFile::parse(&vector.key).unwrap();
    assert!(file.newline_dropped);
    let cipher = Cipher::new(Algorithm::Aes256, Some(&file.key), Backend::default()).unwrap();
    assert!(decrypt(cipher, Limits::default(), &vector.bytes, 100).1.is_ok());
    // This key begins with a NUL and ends with a newline, and both belong to it.
    let vector = vectors.iter().find(|v| v.file == "good/binary-key-file.xbcrypt").unwrap();
    let file = KeyFile::parse(&vector.key).unwrap();
    assert!(!file.newline_dropped && vector.key.ends_with(b"\n") && vector.key.starts_with(b"\0"));
}

/// The messages of the bad vectors, so that a message that gets worse is noticed.
#[test]
fn messages_name_chunk_and_offset() {
    let vectors = vectors();
    for (file, want) in [
        (
            "wrong-key",
            "xbcrypt chunk 0 at offset 0: wrong key: the CRC matches, but the hash inside does not",
        ),
        ("flip-payload", "xbcrypt chunk 0 at offset 0: damaged: CRC 0x"),
        (
            "flip-payload-crc-fixed",
            "xbcrypt chunk 0 at offset 0: wrong key: the CRC matches, but the hash inside does not",
        ),
        ("bad-magic", "xbcrypt chunk 0 at offset 0: not a chunk: it starts with \""),
        (
            "truncated-header",
            "xbcrypt chunk 0 at offset 0: the file ends inside this chunk; at least 16 bytes are missing",
        ),
        (
            "truncated-iv",
            "xbcrypt chunk 0 at offset 0: the file ends inside this chunk; at least 10 bytes are missing",
        ),
        (
            "truncated-payload",
            "xbcrypt chunk 0 at offset 0: the file ends inside this chunk; at least 1 bytes are missing",
        ),
        ("truncated-second", "xbcrypt chunk 1 at offset 3092: the file ends inside this chunk"),
        ("garbage-after", "xbcrypt chunk 1 at offset 3092: not a chunk: it starts with \""),
        ("olen-larger", "xbcrypt chunk 0 at offset 0: sizes "),
        (
            "elen-over-int-max",
            "xbcrypt chunk 0 at offset 0: size 2147483648 is larger than 2147483647",
        ),
        (
            "olen-over-int-max",
            "xbcrypt chunk 0 at offset 0: size 2147483648 is larger than 2147483647",
        ),
        ("iv-8-bytes", "xbcrypt chunk 0 at offset 0: IV of 8 bytes"),
        (
            "zero-length-plaintext-chunk",
            "xbcrypt chunk 0 at offset 0: size 32, but a version 3 chunk has at least 33 bytes",
        ),
        (
            "shorter-than-hash",
            "xbcrypt chunk 0 at offset 0: size 10, but a version 3 chunk has at least 33 bytes",
        ),
    ] {
        let name = format!("bad/{file}.xbcrypt");
        let vector = vectors.iter().find(|vector| vector.file == name).unwrap();
        let cipher = cipher(vector.algorithm, &vector.key, Backend::default());
        let (out, end) = decrypt(cipher, Limits::default(), &vector.bytes, usize::MAX);
        let got = end.unwrap_err().to_string();
        assert!(got.starts_with(want), "{file}:\n  want {want}\n  got  {got}");
        assert!(out.is_empty() || got.contains("chunk 1"), "{file}: bytes were output");
    }
}

#[test]
fn a_mode_that_hides_a_wrong_key_must_be_requested() {
    for (file, version) in [("crafted-v1", Version::V1), ("crafted-v2", Version::V2)] {
        let bytes = xb_testkit::vectors::read(&format!("xbcrypt/good/{file}.xbcrypt"));
        let right =
            || cipher(Algorithm::Aes256, b"0123456789abcdefghijklmnopqrstuv", Backend::default());
        let (out, end) = decrypt(right(), Limits::default(), &bytes, 100);
        assert!(out.is_empty());
        assert!(matches!(end, Err(XbcryptError::NoHash { version: v, .. }) if v == version));
        // The reason for the refusal: a wrong key results in noise that cannot be detected.
        let wrong = cipher(Algorithm::Aes256, &[b'x'; 32], Backend::default());
        let (out, end) = decrypt(wrong, Limits::ALL, &bytes, 100);
        assert!(end.is_ok() && out.len() == 3000);
    }
}

#[test]
fn limits_hold_before_anything_is_kept() {
    let bytes = xb_testkit::vectors::read("xbcrypt/good/crafted-v3.xbcrypt");
    let limits = Limits { max_chunk: 3031, ..Limits::default() };
    let mut decoder = Decoder::new(limits);
    let error = decoder.next(&mut &bytes[..44]).unwrap_err();
    assert!(matches!(error, XbcryptError::Limit { size: 3032, limit: 3031, .. }));
    // A decoder that has failed keeps failing.
    assert!(decoder.next(&mut &bytes[..]).is_err() && decoder.finish().is_err());
    let limits = Limits { max_chunk: 3032, ..Limits::default() };
    assert!(matches!(Decoder::new(limits).next(&mut &bytes[..]), Ok(Some(Event::Head(_)))));
}

#[test]
fn algorithm_and_chunk_must_agree() {
    let aes = xb_testkit::vectors::read("xbcrypt/good/crafted-v3.xbcrypt");
    let none = xb_testkit::vectors::read("xbcrypt/good/algo-NONE.xbcrypt");
    let nothing = Cipher::new(Algorithm::None, None, Backend::default()).unwrap();
    let (_, end) = decrypt(nothing, Limits::default(), &aes, 50);
    assert!(matches!(end, Err(XbcryptError::Algorithm { encrypted: true, .. })));
    let (_, end) = decrypt(
        cipher(Algorithm::Aes128, &[1; 16], Backend::default()),
        Limits::default(),
        &none,
        50,
    );
    assert!(matches!(end, Err(XbcryptError::Algorithm { encrypted: false, .. })));
    assert!(is_xbcrypt(&aes) && !is_xbcrypt(b"XBSTCK01") && !is_xbcrypt(b"XBCRYP0"));
}

/// Every flipped bit of a chunk is found, except in the reserved field, which readers ignore.
#[test]
fn every_flipped_bit_and_every_cut_is_an_error() {
    let key = [7; 32];
    let plain = noise(100);
    let sealing = cipher(Algorithm::Aes256, &key, Backend::default());
    let mut chunk = vec![0; sealed_len(&sealing, plain.len())];
    seal_chunk(&sealing, &[9; 16], &plain, &mut chunk).unwrap();
    for bit in 0..chunk.len() * 8 {
        let mut bad = chunk.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let opening = cipher(Algorithm::Aes256, &key, Backend::default());
        let (out, end) = decrypt(opening, Limits::default(), &bad, usize::MAX);
        if (8..16).contains(&(bit / 8)) {
            assert!(end.is_ok() && out == plain);
        } else {
            assert!(end.is_err() && out.is_empty(), "bit {bit}");
        }
    }
    for len in 1..chunk.len() {
        let opening = cipher(Algorithm::Aes256, &key, Backend::default());
        let (out, end) = decrypt(opening, Limits::default(), &chunk[..len], 13);
        assert!(matches!(end, Err(XbcryptError::Cut { .. })) && out.is_empty(), "cut at {len}");
    }
}

/// A payload whose hash does not match must not stay in the buffer as plain bytes.
#[test]
fn nothing_stays_in_the_buffer_after_a_wrong_key() {
    let sealing = cipher(Algorithm::Aes256, &[1; 32], Backend::default());
    let plain = noise(64);
    let mut chunk = vec![0; sealed_len(&sealing, plain.len())];
    seal_chunk(&sealing, &[2; 16], &plain, &mut chunk).unwrap();
    let Parsed::Head(head) =
        parse_head(&chunk, ErrorLocation::default(), &Limits::default()).unwrap()
    else {
        panic!("the head is whole");
    };
    assert_eq!((head.len(), head.plain_len()), (60, 64));
    for &backend in Backend::ALL {
        let wrong = cipher(Algorithm::Aes256, &[3; 32], backend);
        let mut payload = chunk[head.len()..].to_vec();
        assert!(open_chunk(&wrong, &head, &mut payload).is_err());
        assert!(payload.iter().all(|&byte| byte == 0));
        let error = open_chunk(&wrong, &head, &mut payload[1..]).unwrap_err();
        assert!(matches!(error, XbcryptError::PayloadLength { expected: 96, got: 95, .. }));
    }
}

fn openssl(arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let (ok, out, stderr) = run(&xb_testkit::tools::find("openssl"), arguments, input);
    assert!(ok, "openssl {arguments:?}: {stderr}");
    out
}

/// Builds the same chunk from openssl's AES and digest, and a CRC-32 from its definition.
#[test]
fn openssl_makes_the_same_chunk() {
    for (len, bits) in [(16, "128"), (24, "192"), (32, "256")] {
        for plain_len in [1, 15, 16, 1023, 65536] {
            let (key, plain) = (noise(len), noise(plain_len));
            // The counter wraps in the middle of the longer ones.
            let iv = [[0xff; 15].as_slice(), &[0xf0]].concat();
            let digest = openssl(&["dgst", "-sha256", "-binary"], &plain);
            let name = format!("-aes-{bits}-ctr");
            let body = [plain.clone(), digest].concat();
            let payload =
                openssl(&["enc", &name, "-K", &hex(&key), "-iv", &hex(&iv), "-nopad"], &body);
            let size = (body.len() as u64).to_le_bytes();
            let expected = [
                &b"XBCRYP03"[..],
                &[0; 8],
                &size,
                &size,
                &crc32(&payload).to_le_bytes(),
                &16_u64.to_le_bytes(),
                &iv,
                &payload,
            ]
            .concat();
            for &backend in Backend::ALL {
                let sealing = cipher(Algorithm::Aes128, &key, backend);
                let mut chunk = vec![0; sealed_len(&sealing, plain.len())];
                seal_chunk(&sealing, iv[..].try_into().unwrap(), &plain, &mut chunk).unwrap();
                assert!(chunk == expected, "AES-{bits}, {plain_len} bytes, {backend:?}");
            }
        }
    }
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 }
        })
    })
}

#[test]
fn chunks_are_full_for_any_pieces() {
    let size = ChunkSize::new(1000).unwrap();
    assert!(size.was_raised() && size.get() == 1024);
    assert!(!ChunkSize::new(1024).unwrap().was_raised());
    assert!(ChunkSize::new(ChunkSize::MAX).is_ok() && ChunkSize::new(ChunkSize::MAX + 1).is_err());
    assert_eq!(ChunkSize::default().get(), 65536);
    let plain = noise(5000);
    for step in [1, 100, 1023, 1024, 1025, 5000] {
        let cipher = cipher(Algorithm::Aes256, &[5; 16], Backend::default());
        let (mut file, mut encrypter) = (Vec::new(), Encrypter::new(cipher, size));
        plain.chunks(step).for_each(|piece| encrypter.push(piece, &mut file).unwrap());
        encrypter.finish(&mut file).unwrap();
        let mut decoder = Decoder::new(Limits::default());
        let (mut rest, mut sizes, mut ivs) = (&file[..], vec![], std::collections::HashSet::new());
        while let Some(event) = decoder.next(&mut rest).unwrap() {
            if let Event::Head(head) = event {
                sizes.push(head.plain_len());
                ivs.insert(head.iv.unwrap());
            }
        }
        decoder.finish().unwrap();
        assert_eq!(sizes, [1024, 1024, 1024, 1024, 904], "step {step}");
        assert_eq!(ivs.len(), 5, "an IV was used twice");
    }
    let cipher = cipher(Algorithm::Aes256, &[5; 16], Backend::default());
    let mut file = Vec::new();
    Encrypter::new(cipher, size).finish(&mut file).unwrap();
    assert!(file.is_empty(), "no input is an empty file");
}

#[test]
fn a_chunk_that_is_too_large_is_refused() {
    let cipher = cipher(Algorithm::Aes256, &[5; 16], Backend::default());
    let error = seal_chunk(&cipher, &[0; 16], b"", &mut [0; 92]).unwrap_err();
    assert!(matches!(error, XbcryptError::Plain { got: 0 }));
    let error = seal_chunk(&cipher, &[0; 16], b"x", &mut [0; 94]).unwrap_err();
    assert!(matches!(error, XbcryptError::Room { expected: 93, got: 94 }));
}

#[test]
fn debug_shows_neither_keys_nor_plain_bytes() {
    let make = || cipher(Algorithm::Aes256, b"0123456789abcdef", Backend::Portable);
    let mut encrypter = Encrypter::new(make(), ChunkSize::default());
    encrypter.push(&[201; 50], &mut Vec::new()).unwrap();
    let decrypter = Decrypter::new(make(), Limits::default());
    let shown = format!("{encrypter:?} {decrypter:?} {:?}", make());
    assert!(
        !shown.contains("201") && !shown.contains("0123") && !shown.contains("48, 49"),
        "{shown}"
    );
}

fn any_algorithm() -> impl Strategy<Value = (Algorithm, Vec<u8>)> {
    (0_usize..4, prop::sample::select(vec![16_usize, 24, 32]), any::<u8>())
        .prop_map(|(n, len, fill)| (n.to_string().parse().unwrap(), vec![fill; len]))
}

proptest! {
    #[test]
    fn any_file_returns(plain in prop::collection::vec(any::<u8>(), 0..5000),
                        (algorithm, key) in any_algorithm(),
                        size in 1024_u64..3000, write in 1_usize..1500, read in 1_usize..1500) {
        let mut encrypter = Encrypter::new(
            cipher(algorithm, &key, Backend::default()), ChunkSize::new(size).unwrap());
        let mut file = Vec::new();
        plain.chunks(write).for_each(|piece| encrypter.push(piece, &mut file).unwrap());
        encrypter.finish(&mut file).unwrap();
        let (out, end) = decrypt(cipher(algorithm, &key, Backend::Portable), Limits::default(), &file, read);
        prop_assert!(end.is_ok());
        prop_assert_eq!(out, plain);
    }

    /// Never a panic, and the same result however the input is cut.
    #[test]
    fn any_bytes_get_one_answer(mut bytes in prop::collection::vec(any::<u8>(), 0..300),
                                front in any::<Option<u8>>(), step in 1_usize..50) {
        if let Some(version) = front {
            let magic = [b"XBCRYP0".as_slice(), &[b'1' + version % 3]].concat();
            bytes.splice(0..0, magic);
            // Plausible sizes: otherwise most inputs would fail there.
            if bytes.len() > 32 && version > 50 {
                let size = u64::from(version % 90).to_le_bytes();
                bytes[16..24].copy_from_slice(&size);
                bytes[24..32].copy_from_slice(&size);
            }
        }
        let make = || cipher(Algorithm::Aes256, &[1; 32], Backend::default());
        let whole = decrypt(make(), Limits::ALL, &bytes, usize::MAX);
        let pieces = decrypt(make(), Limits::ALL, &bytes, step);
        prop_assert_eq!(whole.0, pieces.0);
        prop_assert_eq!(whole.1.map_err(|e| e.to_string()), pieces.1.map_err(|e| e.to_string()));
    }
}

/// The hash follows the plain bytes and is encrypted with them: NONE makes it visible.
#[test]
fn with_none_the_hash_is_plain_to_see() {
    let bytes = xb_testkit::vectors::read("xbcrypt/good/algo-NONE.xbcrypt");
    let (plain, hash) = bytes[44..].split_at(bytes.len() - 44 - 32);
    assert_eq!(Sha256::digest(plain)[..], *hash);
}
