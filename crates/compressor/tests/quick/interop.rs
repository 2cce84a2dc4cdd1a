//! The programs `lz4`, `zstd`, `gzip` and Python's zlib read what we write, and the reverse.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::common::{decode, encode, zstd};
use xb_compressor::{
    Algorithm, BlockCodec, BlockDecoder, BlockEncoder, FileCodec, Member, PIECE_PLAIN,
};
use xb_testkit::data::{mixed, noise, pages};
use xb_testkit::tools;

/// Runs a program as a filter.
fn filter(program: &str, args: &[&str], input: &[u8]) -> Vec<u8> {
    let mut child = Command::new(tools::find(program))
        .args(args)
        .stderr(Stdio::piped())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input));
        child.wait_with_output().unwrap()
    });
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {}: {said}", output.status);
    output.stdout
}

fn python(script: &str, input: &[u8]) -> Vec<u8> {
    let script = format!("import sys, zlib\ni, o = sys.stdin.buffer, sys.stdout.buffer\n{script}");
    filter("python3", &["-c", &script], input)
}

fn plains() -> Vec<Vec<u8>> {
    let large = 2 * PIECE_PLAIN + 70_001;
    vec![vec![], vec![1], pages(1, 65_536), noise(2, 100_000), mixed(3, large)]
}

#[test]
fn programs_read_our_members() {
    for plain in plains() {
        for (program, codec) in [("lz4", FileCodec::Lz4), ("zstd", zstd(1)), ("zstd", zstd(19))] {
            if codec == zstd(19) && plain.len() > PIECE_PLAIN {
                continue; // slow, and no different code
            }
            let stored = encode(codec, &plain);
            assert!(filter(program, &["-dc"], &stored) == plain, "{program}: {}", plain.len());
            filter(program, &["-t"], &stored);
        }
    }
}

#[test]
fn we_read_lz4_with_all_its_options() {
    for plain in plains() {
        for args in [
            &["-1"][..],
            &["-9"],
            &["-B4"],
            &["-B5"],
            &["-B6"],
            &["-B7"],
            &["-BD"],
            &["-B4", "-BD"],
            &["-B4", "-BD", "-9"],
            &["-BX"],
            &["-BD", "-BX", "-B4"],
            &["--no-frame-crc"],
            &["--favor-decSpeed", "-12"],
        ] {
            let stored = filter("lz4", &[args, &["-c"]].concat(), &plain);
            let outcome = decode(Member::Lz4, &stored);
            outcome.end.unwrap_or_else(|error| panic!("{args:?}: {error}"));
            assert!(outcome.plain == plain, "{args:?}: {}", plain.len());
        }
    }
}

/// Members with a content size in the header, which the programs only write for files.
#[test]
fn we_read_lz4_and_zstd_files_with_content_size() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    for plain in plains() {
        std::fs::write(&path, &plain).unwrap();
        let file = path.to_str().unwrap();
        for (program, member, args) in [
            ("lz4", Member::Lz4, &["--content-size", "-B4", "-c", file][..]),
            ("lz4", Member::Lz4, &["--content-size", "-BD", "-c", file]),
            ("zstd", Member::Zstd, &["-c", file]),
        ] {
            let outcome = decode(member, &filter(program, args, b""));
            assert_eq!(outcome.end.unwrap().plain, plain.len() as u64);
            assert!(outcome.plain == plain);
        }
    }
}

#[test]
fn we_read_zstd_with_all_its_options() {
    for plain in plains() {
        for args in [
            &["-1"][..],
            &["-19"],
            &["--fast=5"],
            &["--no-check"],
            &["--long=24"],
            &["-T2", "-B1MiB"],
            &["--ultra", "-22", "--single-thread"],
        ] {
            if plain.len() > PIECE_PLAIN && (args[0] == "--ultra" || args[0] == "-19") {
                continue; // slow, and no different code
            }
            let stored = filter("zstd", &[args, &["-c"]].concat(), &plain);
            let outcome = decode(Member::Zstd, &stored);
            outcome.end.unwrap_or_else(|error| panic!("{args:?}: {error}"));
            assert!(outcome.plain == plain, "{args:?}: {}", plain.len());
        }
    }
    let far = filter("zstd", &["--long=28", "-c"], &mixed(4, 1 << 20));
    assert_eq!(
        decode(Member::Zstd, &far).end.unwrap_err().to_string(),
        "zstd file at byte 0: window is 268435456, allowed range 0 to 134217728"
    );
}

/// Frames of both programs in one member.
#[test]
fn frames_in_a_row() {
    let (one, two) = (pages(5, 300_000), mixed(6, 300_000));
    let both = [&one[..], &two].concat();
    for (program, codec) in [("lz4", FileCodec::Lz4), ("zstd", zstd(3))] {
        let row = [encode(codec, &one), filter(program, &["-c"], &two)].concat();
        assert!(filter(program, &["-dc"], &row) == both);
        assert!(decode(codec.member(), &row).plain == both);
    }
}

fn block(text: &str, plain: &[u8]) -> Vec<u8> {
    let mut encoder = BlockEncoder::new(text.parse::<Algorithm>().unwrap()).unwrap();
    let mut out = vec![0; encoder.max_encoded_len(plain.len())];
    let len = encoder.encode(plain, &mut out).unwrap().expect("it shrinks");
    out.truncate(len);
    out
}

fn unblock(codec: BlockCodec, stored: &[u8], len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    BlockDecoder::new().decode(codec, stored, &mut out).unwrap();
    out
}

#[test]
fn zlib_blocks() {
    for plain in [vec![7; 100], pages(7, 1 << 20), mixed(8, 3_000_001)] {
        for level in 1..=9 {
            let stored = block(&format!("gzip:{level}"), &plain);
            assert!(python("o.write(zlib.decompress(i.read()))", &stored) == plain, "{level}");
        }
        for script in [
            "o.write(zlib.compress(i.read(), 1))",
            "o.write(zlib.compress(i.read(), 9))",
            "o.write(zlib.compress(i.read(), 0))",
            "c = zlib.compressobj(6, zlib.DEFLATED, 9); o.write(c.compress(i.read()) + c.flush())",
            "c = zlib.compressobj(strategy=zlib.Z_FIXED)\no.write(c.compress(i.read()) + c.flush())",
        ] {
            let stored = python(script, &plain);
            assert!(unblock(BlockCodec::Zlib, &stored, plain.len()) == plain, "{script}");
        }
    }
}

/// The gzip program uses the same deflate format in a different wrapper.
#[test]
fn gzip_and_zlib_blocks() {
    let plain = pages(9, 500_000);
    let stored = block("gzip:6", &plain);
    let deflate = &stored[2..stored.len() - 4];
    let mut gz = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    gz.extend(deflate);
    gz.extend(crc32(&plain).to_le_bytes());
    gz.extend(u32::try_from(plain.len()).unwrap().to_le_bytes());
    assert!(filter("gzip", &["-dc"], &gz) == plain);

    let gz = filter("gzip", &["-nc"], &plain);
    assert_eq!(&gz[..4], [0x1f, 0x8b, 8, 0], "no name, no extra field");
    let mut stream = vec![0x78, 0x9c];
    stream.extend(&gz[10..gz.len() - 8]);
    stream.extend(&stored[stored.len() - 4..]); // the Adler-32 of the same bytes
    assert!(unblock(BlockCodec::Zlib, &stream, plain.len()) == plain);
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum, &byte| {
        (0..8).fold(sum ^ u32::from(byte), |sum, _| {
            (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg())
        })
    })
}

#[test]
fn zstd_blocks() {
    for plain in [vec![7; 100], pages(10, 1 << 20), mixed(11, 3_000_001)] {
        for level in [1, 3, 9] {
            let stored = block(&format!("zstd:{level}"), &plain);
            assert!(filter("zstd", &["-dc"], &stored) == plain);
        }
        // From a pipe: without a content size, with a checksum.
        let stored = filter("zstd", &["-c"], &plain);
        assert!(unblock(BlockCodec::Zstd, &stored, plain.len()) == plain);
    }
}

/// A block is the content of a frame with one block.
#[test]
fn lz4_blocks() {
    let plain = pages(12, 3_000_000);
    let stored = block("lz4", &plain);
    // 4 MiB blocks, no checksums except that of the header.
    let mut frame = vec![4, 0x22, 0x4d, 0x18, 0x60, 0x70, 0x73];
    frame.extend(u32::try_from(stored.len()).unwrap().to_le_bytes());
    frame.extend(&stored);
    frame.extend([0; 4]);
    assert!(filter("lz4", &["-dc"], &frame) == plain);

    let frame = filter("lz4", &["-B7", "--no-frame-crc", "-9", "-c"], &plain);
    assert_eq!(frame[4..7], [0x60, 0x70, 0x73]);
    let len = u32::from_le_bytes(frame[7..11].try_into().unwrap()) as usize;
    assert_eq!(frame.len(), 11 + len + 4, "one block");
    assert!(unblock(BlockCodec::Lz4, &frame[11..11 + len], plain.len()) == plain);
}

/// No program for Snappy is available: the test decodes a block built from the format's
/// description, and checks the form of our own.
#[test]
fn snappy_blocks() {
    let by_hand = [
        &[26, 3 << 2][..], // 26 bytes; a literal of 4
        b"abcd",
        &[4 << 2 | 1, 4],          // copy of 8 from 4 back, offset in 11 bits
        &[5 << 2 | 2, 8, 0],       // copy of 6 from 8 back, offset in 16 bits
        &[5 << 2 | 3, 2, 0, 0, 0], // copy of 6 from 2 back, offset in 32 bits
        &[60 << 2, 1],             // a literal with its length, 2, in one byte
        b"yz",
    ]
    .concat();
    assert_eq!(unblock(BlockCodec::Snappy, &by_hand, 26), b"abcdabcdabcdabcdababababyz");
    let stored = block("snappy", &[b'a'; 1000]);
    assert_eq!(&stored[..4], [0xe8, 0x07, 0, b'a'], "length 1000, a literal of one byte");
}
