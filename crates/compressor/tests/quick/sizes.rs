//! Input and output in pieces of any size result in the same bytes, the same sizes, the same error.

use crate::common::{Vector, decode, decode_with, encode, encode_with, zstd};
use crate::qpress::Packing;
use xb_compressor::{CodecError, FileCodec, FileDecoder, Member, PIECE_PLAIN, PieceEncoder};
use xb_testkit::data::{mixed, noise, pages};

const HUGE: usize = usize::MAX;
const OUT_HUGE: usize = 16 << 20;
const K64: usize = 64 << 10;
const MIB: usize = 1 << 20;

const ANY: [&[usize]; 12] = [
    &[1],
    &[7],
    &[4093],
    &[1, 13, 64, 100_000],
    &[K64 - 1],
    &[K64],
    &[K64 + 1],
    &[MIB - 1],
    &[MIB],
    &[MIB + 1],
    &[4 * MIB],
    &[OUT_HUGE],
];
const LARGE: [&[usize]; 9] = [
    &[K64 - 1],
    &[K64],
    &[K64 + 1, 3],
    &[MIB - 1],
    &[MIB],
    &[MIB + 1],
    &[4 * MIB - 1],
    &[4 * MIB],
    &[4 * MIB + 1],
];

fn members(plain: &[u8]) -> Vec<(Member, Vec<u8>)> {
    vec![
        (Member::Qpress, crate::qpress::member(plain, crate::qpress::BLOCK, Packing::Compressed)),
        (Member::Qpress, crate::qpress::member(plain, 1000, Packing::Stored)),
        (Member::Lz4, encode(FileCodec::Lz4, plain)),
        (Member::Zstd, encode(zstd(1), plain)),
    ]
}

fn check(plain: &[u8], member: Member, stored: &[u8], inputs: &[usize], outputs: &[usize]) {
    let decoder = FileDecoder::new(member).unwrap();
    let outcome = decode_with(decoder, stored, inputs, outputs);
    let what = format!("{member:?} of {} bytes in {inputs:?} to {outputs:?}", plain.len());
    let totals = outcome.end.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(outcome.plain == plain, "{what}: other bytes");
    assert_eq!((totals.plain, totals.stored), (plain.len() as u64, stored.len() as u64), "{what}");
}

#[test]
fn decoding_small_members() {
    for len in [0, 1, 10, 215, 216, K64 - 1, K64, K64 + 1, 150_001] {
        let plain = pages(len as u64, len);
        for (member, stored) in members(&plain) {
            for inputs in ANY {
                for outputs in ANY {
                    check(&plain, member, &stored, inputs, outputs);
                }
            }
        }
    }
}

#[test]
fn decoding_large_members() {
    for len in [PIECE_PLAIN - 1, PIECE_PLAIN, PIECE_PLAIN + 1, 2 * PIECE_PLAIN + 12_345] {
        let plain = mixed(len as u64, len);
        for (member, stored) in members(&plain) {
            for sizes in LARGE {
                check(&plain, member, &stored, sizes, &[MIB]);
                check(&plain, member, &stored, &[K64], sizes);
                check(&plain, member, &stored, &[HUGE], sizes);
                check(&plain, member, &stored, sizes, &[OUT_HUGE]);
            }
        }
    }
}

/// Encodes a member as workers do, each piece with its own encoder.
fn in_pieces(codec: FileCodec, plain: &[u8]) -> Vec<u8> {
    let piece = |plain: &[u8]| {
        let mut encoder = PieceEncoder::new(codec).unwrap();
        let mut out = vec![0; encoder.max_encoded_len(plain.len())];
        let len = encoder.encode(plain, &mut out).unwrap();
        out.truncate(len);
        out
    };
    plain.chunks(PIECE_PLAIN).flat_map(piece).collect()
}

#[test]
fn encoding() {
    for codec in [FileCodec::Lz4, zstd(1), zstd(3)] {
        for len in [0, 1, K64, 150_001] {
            let plain = pages(len as u64, len);
            let whole = encode(codec, &plain);
            for inputs in ANY {
                for outputs in ANY {
                    let (stored, totals) = encode_with(codec, &plain, inputs, outputs);
                    assert!(stored == whole, "{codec:?}: {len} bytes in {inputs:?} to {outputs:?}");
                    let sizes = (totals.plain, totals.stored);
                    assert_eq!(sizes, (len as u64, whole.len() as u64));
                }
            }
        }
        for len in [PIECE_PLAIN, PIECE_PLAIN + 1, 2 * PIECE_PLAIN, 2 * PIECE_PLAIN + 1] {
            let plain = mixed(len as u64, len);
            let whole = encode(codec, &plain);
            assert!(decode(codec.member(), &whole).plain == plain);
            assert!(whole == in_pieces(codec, &plain), "{codec:?}: {len} bytes");
            for sizes in LARGE {
                for (inputs, outputs) in [(sizes, &[MIB][..]), (&[HUGE], sizes)] {
                    let stored = encode_with(codec, &plain, inputs, outputs).0;
                    assert!(stored == whole, "{codec:?}: {len} bytes in {inputs:?} to {outputs:?}");
                }
            }
        }
    }
}

/// Vectors of other programs, and the errors of the bad ones.
#[test]
fn vectors() {
    for vector in Vector::all() {
        let whole = decode(vector.member(), &vector.bytes);
        for inputs in ANY {
            for outputs in [&[1][..], &[4093], &[K64], &[K64 + 1], &[OUT_HUGE]] {
                let decoder = FileDecoder::new(vector.member()).unwrap();
                let outcome = decode_with(decoder, &vector.bytes, inputs, outputs);
                assert_eq!(outcome.end, whole.end, "{} in {inputs:?} {outputs:?}", vector.file);
                if whole.end.is_ok() {
                    assert!(outcome.plain == whole.plain, "{}", vector.file);
                } else {
                    let len = outcome.plain.len().min(whole.plain.len());
                    assert!(outcome.plain[..len] == whole.plain[..len], "{}", vector.file);
                }
            }
        }
    }
}

#[test]
fn pieces_and_buffers_of_the_wrong_size() {
    for codec in [FileCodec::Lz4, zstd(1)] {
        let mut encoder = PieceEncoder::new(codec).unwrap();
        for plain in [noise(1, PIECE_PLAIN), noise(2, K64 + 1), vec![]] {
            let needed = encoder.max_encoded_len(plain.len());
            let short = encoder.encode(&plain, &mut vec![0; needed - 1]).unwrap_err();
            assert!(matches!(short, CodecError::Caller { field: "output", .. }), "{short}");
            assert!(encoder.encode(&plain, &mut vec![0; needed]).unwrap() <= needed);
        }
        let long = vec![0; PIECE_PLAIN + 1];
        let room = encoder.max_encoded_len(long.len());
        let error = encoder.encode(&long, &mut vec![0; room]).unwrap_err();
        assert!(matches!(error, CodecError::Caller { field: "piece", .. }), "{error}");
    }
}
