//! Filters return the original input, and never any damaged bytes.

use std::io::{self, Cursor, Read, Write};

use proptest::prelude::*;
use xb_compressor::Algorithm as Codec;
use xb_encryptor::xbcrypt::{
    Algorithm, ChunkSize, Cipher, Decoder, Event, Limits, XbcryptError, sealed_len,
};
use xb_encryptor::{Backend, Identities, KeyBytes, KeySlots, Keys, Passphrase};
use xb_pipeline::Observer;
use xb_pipeline::filter::{
    Facts, FileKind, OpenFile, OpenFileError, SealFile, SealFileError, XbcryptFilterError,
    XbcryptRead, XbcryptWrite, facts, look, open_file, seal_file, xbcrypt_decrypt, xbcrypt_encrypt,
};

const OPEN: OpenFile = OpenFile { threads: 2, max_memory: 64 << 20 };

/// A reader that returns its bytes in reads of the listed lengths, repeatedly.
struct Bits {
    bytes: Cursor<Vec<u8>>,
    lengths: Vec<usize>,
    next: usize,
}

impl Bits {
    fn new(bytes: &[u8], lengths: &[usize]) -> Self {
        Self { bytes: Cursor::new(bytes.to_vec()), lengths: lengths.to_vec(), next: 0 }
    }
}

impl Read for Bits {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.lengths[self.next % self.lengths.len()].min(buffer.len());
        self.next += 1;
        self.bytes.read(&mut buffer[..len])
    }
}

fn key(byte: u8) -> KeyBytes {
    KeyBytes::new(&[byte; 32]).unwrap()
}

fn ways(byte: u8) -> KeySlots {
    KeySlots { key: Some(key(byte)), ..KeySlots::default() }
}

fn keys(byte: u8) -> Keys {
    Keys { key: Some(key(byte)), ..Keys::default() }
}

fn seal(plain: &[u8], reads: &[usize], key_slots: &KeySlots, compress: Codec) -> Vec<u8> {
    let mut out = Vec::new();
    let settings = SealFile { key_slots, compress, threads: 2, raw: false };
    let summary =
        seal_file(Bits::new(plain, reads), &mut out, &settings, &Observer::default()).unwrap();
    assert_eq!(summary.end.plain_bytes, plain.len() as u64);
    out
}

fn open(file: &[u8], reads: &[usize], keys: &Keys) -> (Vec<u8>, Result<(), OpenFileError>) {
    let mut out = Vec::new();
    let outcome = open_file(Bits::new(file, reads), &mut out, keys, OPEN, &Observer::default());
    (out, outcome.map(|_| ()))
}

/// Text that a codec shrinks, and noise that no codec shrinks.
fn sample(len: usize) -> Vec<u8> {
    let text = b"the quick brown fox jumps over the lazy dog; ".iter().copied().cycle();
    let mut state = 1_u64;
    let mut noise = std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    });
    text.enumerate()
        .map(|(at, byte)| if at >> 12 & 1 == 0 { byte } else { noise.next().unwrap() })
        .take(len)
        .collect()
}

#[test]
fn native_files_around_frames_and_segments() {
    // A frame is 1 MiB; the first segment holds 1 048 520 bytes of frames.
    let border = 1 << 20;
    for len in [0, 1, 2, 1000, 1_048_487, 1_048_488, border - 1, border, border + 1, 5 * border + 7]
    {
        let plain = sample(len);
        for codec in ["none", "lz4", "zstd:3"] {
            let codec: Codec = codec.parse().unwrap();
            let file = seal(&plain, &[70_001], &ways(1), codec);
            let (out, outcome) = open(&file, &[65_537], &keys(1));
            outcome.unwrap();
            assert!(out == plain, "{len} {codec}");
        }
    }
}

#[test]
fn every_key_slot_opens_and_no_other_key_does() {
    let (identities, _) = Identities::generate();
    let passphrase = || Passphrase::new("correct horse".to_owned());
    let ways = KeySlots {
        key: Some(key(1)),
        recipients: identities.recipients(),
        passphrase: passphrase(),
        ..KeySlots::default()
    };
    let file = seal(b"plain", &[1], &ways, Codec::None);
    let (other, _) = Identities::generate();
    for (keys, opens) in [
        (keys(1), true),
        (Keys { identities: Some(identities), ..Keys::default() }, true),
        (Keys { passphrase: passphrase(), ..Keys::default() }, true),
        (keys(2), false),
        (Keys { identities: Some(other), ..Keys::default() }, false),
        (Keys { passphrase: Passphrase::new("x".to_owned()), ..Keys::default() }, false),
    ] {
        let (out, outcome) = open(&file, &[100], &keys);
        if opens {
            outcome.unwrap();
            assert_eq!(out, b"plain");
        } else {
            assert!(matches!(outcome, Err(OpenFileError::Open(_))), "{keys:?}");
            assert!(out.is_empty());
        }
    }
    let (out, outcome) = open(&file, &[100], &Keys::default());
    let Err(OpenFileError::NoKey { kept_for }) = outcome else { panic!("taken without a key") };
    assert_eq!((kept_for.len(), out.len()), (3, 0));
}

#[test]
fn a_cut_native_file_gives_nothing() {
    let file = seal(&sample(300), &[100], &ways(1), Codec::None);
    for len in 0..file.len() {
        let (out, outcome) = open(&file[..len], &[4096], &keys(1));
        assert!(outcome.is_err() && out.is_empty(), "cut at {len}");
    }
    let longer = [&file[..], b"x"].concat();
    let (out, outcome) = open(&longer, &[4096], &keys(1));
    assert!(outcome.is_err() && out.is_empty());
}

#[test]
fn a_changed_native_file_gives_nothing_false() {
    let plain = sample(300);
    let file = seal(&plain, &[100], &ways(1), Codec::None);
    for at in 0..file.len() {
        let mut changed = file.clone();
        changed[at] ^= 1 << (at % 8);
        let (out, outcome) = open(&changed, &[4096], &keys(1));
        assert!(outcome.is_err(), "a bit of byte {at}");
        // The trailer is plaintext after the sealed bytes, which are genuine.
        assert!(out.is_empty() || (out == plain && at + 64 >= file.len()), "{at}");
    }
}

/// Segments of a second file with the same key slots, and of the same file in another order.
#[test]
fn foreign_and_moved_segments_are_refused() {
    const SEGMENT: usize = 1 << 20;
    let plain = sample(3 << 20);
    let one = seal(&plain, &[SEGMENT], &ways(1), Codec::None);
    let other = seal(&plain, &[SEGMENT], &ways(1), Codec::None);
    let start = 4096 + 128;
    let segment = |n: usize| start + n * SEGMENT..start + (n + 1) * SEGMENT;
    let mut foreign = one.clone();
    foreign[segment(1)].copy_from_slice(&other[segment(1)]);
    let mut swapped = one.clone();
    swapped[segment(1)].copy_from_slice(&one[segment(2)]);
    swapped[segment(2)].copy_from_slice(&one[segment(1)]);
    let left_out = [&one[..segment(1).start], &one[segment(2).start..]].concat();
    let repeated = [&one[..segment(1).end], &one[segment(1).start..]].concat();
    // Keys block and header of one file, body of the other.
    let head = [&one[..start], &other[start..]].concat();
    for file in [foreign, swapped, left_out, repeated, head] {
        let (out, outcome) = open(&file, &[SEGMENT], &keys(1));
        assert!(outcome.is_err());
        assert!(out.len() <= 2 * SEGMENT && plain.starts_with(&out));
    }
    // Keys of one file in front of the other are detected before any segment is opened.
    let (out, outcome) = open(&[&one[..4096], &other[4096..]].concat(), &[SEGMENT], &keys(1));
    assert!(matches!(outcome, Err(OpenFileError::KeysObject(_))) && out.is_empty());
}

#[test]
fn streams_without_keys_in_front() {
    let file = seal(b"x", &[1], &ways(1), Codec::None);
    let (_, outcome) = open(&file[4096..], &[100], &keys(1));
    assert!(matches!(outcome, Err(OpenFileError::NoKeysObject)));
    let tiny =
        std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/native/tiny.native"));
    let tiny = tiny.unwrap();
    let (out, outcome) = open(&tiny, &[7], &Keys::default());
    outcome.unwrap();
    assert_eq!(out.len(), 53);
    let (out, outcome) = open(&tiny, &[7], &keys(1));
    assert!(matches!(outcome, Err(OpenFileError::NotSealed)) && out.is_empty());
    // A keys block does not authenticate an unsealed stream.
    let (out, outcome) = open(&[&file[..4096], &tiny[..]].concat(), &[100], &keys(1));
    assert!(matches!(outcome, Err(OpenFileError::NotSealed)) && out.is_empty());
}

/// A writer that accepts this many bytes, then fails.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0 == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An endless source that fails after some bytes.
struct Failing(usize);

impl Read for Failing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.0 == 0 {
            return Err(io::Error::other("broken"));
        }
        let len = buffer.len().min(self.0);
        buffer[..len].fill(7);
        self.0 -= len;
        Ok(len)
    }
}

fn cipher(algorithm: Algorithm) -> Cipher {
    Cipher::new(algorithm, Some(&key(1)), Backend::default()).unwrap()
}

fn writing(size: u64, block: u64, threads: usize) -> XbcryptWrite {
    let chunk = ChunkSize::new(size).unwrap();
    XbcryptWrite { cipher: cipher(Algorithm::Aes256), chunk, block, threads }
}

fn reading(limits: Limits, threads: usize) -> XbcryptRead {
    XbcryptRead { cipher: cipher(Algorithm::Aes256), limits, threads }
}

#[test]
fn the_first_cause_is_named() {
    let observer = Observer::default();
    let ways = ways(1);
    let settings = SealFile { key_slots: &ways, compress: Codec::None, threads: 2, raw: false };
    let error = seal_file(Failing(usize::MAX), &mut Full(5 << 20), &settings, &observer);
    assert!(matches!(error, Err(SealFileError::Write(_))));
    let error = seal_file(Failing(3 << 20), &mut Vec::new(), &settings, &observer).unwrap_err();
    assert_eq!(error.to_string(), "cannot read the stream at offset 3145728: broken");
    let error = xbcrypt_encrypt(
        Failing(usize::MAX),
        &mut Full(5 << 20),
        writing(65536, 10 << 20, 2),
        &observer,
    );
    assert!(matches!(error, Err(XbcryptFilterError::Write(_))));
    let error =
        xbcrypt_encrypt(Failing(3 << 20), &mut Vec::new(), writing(65536, 10 << 20, 2), &observer);
    assert_eq!(error.unwrap_err().to_string(), "cannot read at offset 3145728: broken");

    let file = seal(&sample(5 << 20), &[1 << 20], &ways, Codec::None);
    let source = Cursor::new(file.clone());
    let error = open_file(source, &mut Full(2 << 20), &keys(1), OPEN, &observer);
    assert!(matches!(error, Err(OpenFileError::Write(_))));
    let source = Cursor::new(file[..3 << 20].to_vec()).chain(Failing(0));
    let error = open_file(source, &mut Vec::new(), &keys(1), OPEN, &observer).unwrap_err();
    assert_eq!(error.to_string(), "cannot read at offset 3145728: broken");
}

fn encrypt(plain: &[u8], reads: &[usize], settings: XbcryptWrite) -> Vec<u8> {
    let mut out = Vec::new();
    xbcrypt_encrypt(Bits::new(plain, reads), &mut out, settings, &Observer::default()).unwrap();
    out
}

fn decrypt(
    file: &[u8],
    reads: &[usize],
    settings: XbcryptRead,
) -> (Vec<u8>, Result<(), XbcryptFilterError>) {
    let mut out = Vec::new();
    let outcome = xbcrypt_decrypt(Bits::new(file, reads), &mut out, settings, &Observer::default());
    (out, outcome)
}

/// Plain lengths of the chunks in a file.
fn chunks(file: &[u8]) -> Vec<u64> {
    let mut decoder = Decoder::new(Limits::default());
    let mut rest = file;
    let mut found = Vec::new();
    while let Some(event) = decoder.next(&mut rest).unwrap() {
        if let Event::ChunkEnd(head) = event {
            found.push(head.plain_len());
        }
    }
    decoder.finish().unwrap();
    found
}

#[test]
fn chunks_end_where_the_stock_tool_ends_them() {
    let plain = sample(200_001);
    assert_eq!(
        chunks(&encrypt(&plain, &[1], writing(65536, 10 << 20, 2))),
        [65536, 65536, 65536, 3393]
    );
    let blocks = encrypt(&plain, &[999], writing(65536, 100_000, 2));
    assert_eq!(chunks(&blocks), [65536, 34464, 65536, 34464, 1]);
    // A chunk larger than a batch.
    let large = sample(5 << 20);
    assert_eq!(
        chunks(&encrypt(&large, &[60_001], writing(3 << 20, 10 << 20, 2))),
        [3 << 20, 2 << 20]
    );
    assert!(encrypt(&[], &[1], writing(65536, 10 << 20, 2)).is_empty());
}

#[test]
fn nothing_is_written_of_a_batch_with_damage() {
    // Batches of 1 MiB: damage in the second does not affect the first.
    let plain = sample(3 << 20);
    let file = encrypt(&plain, &[1 << 20], writing(65536, 10 << 20, 2));
    let chunk = sealed_len(&cipher(Algorithm::Aes256), 65536);
    for (at, most) in [(100, 0), (5 * chunk + 100, 0), (20 * chunk + 100, 16 << 16)] {
        let mut changed = file.clone();
        changed[at] ^= 1;
        let (out, outcome) = decrypt(&changed, &[100_000], reading(Limits::default(), 2));
        assert!(matches!(outcome, Err(XbcryptFilterError::Xbcrypt(XbcryptError::Crc { .. }))));
        assert!(out.len() <= most && plain.starts_with(&out), "{at}: {}", out.len());
    }
    let wrong = XbcryptRead {
        cipher: Cipher::new(Algorithm::Aes256, Some(&key(2)), Backend::default()).unwrap(),
        ..reading(Limits::default(), 2)
    };
    let (out, outcome) = decrypt(&file, &[100_000], wrong);
    assert!(matches!(outcome, Err(XbcryptFilterError::Xbcrypt(XbcryptError::Hash { .. }))));
    assert!(out.is_empty());
}

#[test]
fn files_are_told_apart_and_looked_into() {
    let native = seal(&sample(5000), &[100], &ways(1), Codec::None);
    let stock = encrypt(&sample(5000), &[100], writing(1024, 10 << 20, 1));
    for (bytes, kind) in [
        (&native[..], FileKind::Native),
        (&native[4096..], FileKind::NativeStream),
        (&stock, FileKind::Xbcrypt),
        (b"", FileKind::Empty),
        (b"XBRK", FileKind::Other(b"XBRK".to_vec())),
        (b"something else", FileKind::Other(b"somethin".to_vec())),
    ] {
        let (found, mut rest) = look(Bits::new(bytes, &[1])).unwrap();
        let mut all = Vec::new();
        rest.read_to_end(&mut all).unwrap();
        assert_eq!((found, &all[..]), (kind, bytes));
    }
    let Ok(Facts::Native(found)) = facts(Cursor::new(&native)) else { panic!() };
    assert_eq!(found.stream_start(), 4096);
    assert_eq!(found.trailer.as_ref().unwrap().stream_len, native.len() as u64 - 4096);
    assert!(found.codec.is_none() && found.header.is_sealed());
    for len in 4096 + 128..native.len() {
        let Ok(Facts::Native(found)) = facts(Cursor::new(&native[..len])) else { panic!() };
        assert!(found.trailer.is_err(), "cut at {len}");
    }
    let Ok(Facts::Xbcrypt(found)) = facts(Cursor::new(&stock)) else { panic!() };
    assert_eq!((found.chunks, found.plain_bytes, found.largest), ([0, 0, 5], 5000, 1024));
    assert!(found.damage.is_none());
    for len in 1..stock.len() {
        match facts(Cursor::new(&stock[..len])) {
            Ok(Facts::Xbcrypt(found)) => {
                assert_eq!(found.damage.is_none(), len % (1024 + 92) == 0, "cut at {len}");
            }
            Err(_) => assert!(len < 8, "cut at {len}"),
            other => panic!("{other:?}"),
        }
    }
}

proptest! {
    #[test]
    fn native_files_come_back(
        plain in proptest::collection::vec(any::<u8>(), 0..3000),
        times in 1_usize..900,
        reads in proptest::collection::vec(1_usize..200_000, 1..5),
        again in proptest::collection::vec(1_usize..200_000, 1..5),
        codec in proptest::sample::select(vec!["none", "lz4", "snappy", "gzip", "zstd"]),
    ) {
        let plain = plain.repeat(times);
        let file = seal(&plain, &reads, &ways(1), codec.parse().unwrap());
        let (out, outcome) = open(&file, &again, &keys(1));
        outcome.unwrap();
        prop_assert!(out == plain);
    }

    #[test]
    fn xbcrypt_files_come_back(
        plain in proptest::collection::vec(any::<u8>(), 0..3000),
        times in 1_usize..500,
        size in 0_u64..300_000,
        block in 1_u64..3_000_000,
        reads in proptest::collection::vec(1_usize..200_000, 1..5),
        threads in 1_usize..4,
    ) {
        // Blocks of a few bytes create chunks of a few bytes, so limit their number.
        let plain = plain.repeat(times);
        let block = block.max(plain.len() as u64 / 1000 + 1);
        let file = encrypt(&plain, &reads, writing(size, block, threads));
        let (out, outcome) = decrypt(&file, &reads, reading(Limits::default(), threads));
        outcome.unwrap();
        prop_assert!(out == plain);
        let whole = chunks(&file).into_iter().try_fold(0_u64, |sum, len| {
            (len <= size.max(1024) && len <= block).then_some(sum + len)
        });
        prop_assert_eq!(whole, Some(plain.len() as u64));
    }

    /// Uses arbitrary bytes, and any file with some bytes changed.
    #[test]
    fn no_input_makes_it_panic(
        noise in proptest::collection::vec(any::<u8>(), 0..300),
        changes in proptest::collection::vec((any::<u16>(), any::<u8>()), 0..4),
        front in proptest::sample::select(vec![&b""[..], b"XBRKEY01", b"XBRSTR01", b"XBCRYP03", b"XBCRYP01"]),
    ) {
        let any = [front, &noise[..]].concat();
        let (out, outcome) = open(&any, &[50], &keys(1));
        prop_assert!(outcome.is_err() && out.is_empty());
        let _ = decrypt(&any, &[50], reading(Limits::ALL, 1));
        let _ = facts(Cursor::new(&any));

        let plain = sample(2000);
        let mut file = encrypt(&plain, &[1000], writing(1024, 10 << 20, 1));
        for (at, byte) in &changes {
            let at = usize::from(*at) % file.len();
            file[at] ^= byte;
        }
        let (out, outcome) = decrypt(&file, &[77], reading(Limits::default(), 2));
        prop_assert!(outcome.is_err() || out == plain);
        let _ = facts(Cursor::new(&file));
    }
}

/// A pipe delivers the output of a producer that died; the filter is the last stage to detect it.
#[test]
fn an_xbstream_that_was_cut_is_not_sealed_unless_asked_for() {
    let ways = ways(1);
    let mut writer = xb_reader::ChunkWriter::new(Vec::new());
    writer.payload("t.ibd", 0, b"some pages").unwrap();
    writer.end("t.ibd").unwrap();
    let stream = writer.finish().unwrap();
    let seal = |bytes: &[u8], raw| {
        let settings = SealFile { key_slots: &ways, compress: Codec::None, threads: 2, raw };
        let source = Cursor::new(bytes.to_vec());
        seal_file(source, &mut Vec::new(), &settings, &Observer::default())
    };
    seal(&stream, false).unwrap();
    for cut in 9..stream.len() {
        assert!(seal(&stream[..cut], false).is_err(), "cut at {cut}");
        seal(&stream[..cut], true).unwrap();
    }
}
