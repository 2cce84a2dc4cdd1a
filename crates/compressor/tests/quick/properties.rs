//! Any bytes survive a round trip, and no bytes make a decoder panic.

use crate::common::{decode_with, encode, encode_with, limited, zstd};
use crate::qpress::Packing;
use proptest::collection::vec;
use proptest::prelude::*;
use xb_compressor::{Algorithm, BlockCodec, BlockDecoder, BlockEncoder, FileCodec, Member};

const CODECS: [BlockCodec; 4] =
    [BlockCodec::Lz4, BlockCodec::Snappy, BlockCodec::Zlib, BlockCodec::Zstd];

/// Bytes with near and far repeats, and ranges without any.
fn plain() -> impl Strategy<Value = Vec<u8>> {
    let run = (0_usize..600, any::<u8>(), 0_u8..4, any::<u64>());
    vec(run, 0..12).prop_map(|runs| {
        let mut out = Vec::new();
        for (len, byte, kind, seed) in runs {
            match kind {
                0 => out.extend(vec![byte; len]),
                1 => out.extend(xb_testkit::data::noise(seed, len)),
                2 => out.extend((0..len).map(|n| byte.wrapping_add((n % 7) as u8))),
                _ => {
                    let from = out.len() / 2;
                    let again = out[from..(from + len).min(out.len())].to_vec();
                    out.extend(again);
                }
            }
        }
        out
    })
}

fn algorithm() -> impl Strategy<Value = Algorithm> {
    let text = prop_oneof![
        Just("lz4".to_owned()),
        Just("snappy".to_owned()),
        (1..=9).prop_map(|level| format!("gzip:{level}")),
        (1..=19).prop_map(|level| format!("zstd:{level}")),
    ];
    text.prop_map(|text| text.parse().unwrap())
}

fn file_codec() -> impl Strategy<Value = FileCodec> {
    prop_oneof![Just(FileCodec::Lz4), (1_u8..=5).prop_map(zstd)]
}

fn member() -> impl Strategy<Value = Member> {
    prop_oneof![Just(Member::Qpress), Just(Member::Lz4), Just(Member::Zstd)]
}

/// A valid member of some kind.
fn stored() -> impl Strategy<Value = (Member, Vec<u8>, Vec<u8>)> {
    (plain(), member(), 1_usize..3000, any::<bool>()).prop_map(|(plain, member, block, packed)| {
        let stored = match member {
            Member::Lz4 => encode(FileCodec::Lz4, &plain),
            Member::Zstd => encode(zstd(1), &plain),
            _ => {
                let packing = if packed { Packing::Compressed } else { Packing::Stored };
                crate::qpress::member(&plain, block, packing)
            }
        };
        (member, stored, plain)
    })
}

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    vec(prop_oneof![1_usize..10, 1_usize..3000], 1..5)
}

fn mutate(bytes: &mut Vec<u8>, changes: &[(u32, u8, u8)]) {
    for &(position, byte, kind) in changes {
        let at = position as usize % (bytes.len() + 1);
        match kind % 4 {
            0 if at < bytes.len() => bytes[at] = byte,
            1 => bytes.insert(at, byte),
            2 if at < bytes.len() => drop(bytes.remove(at)),
            _ if at < bytes.len() => bytes[at] ^= 1 << (byte % 8),
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn blocks_there_and_back(plain in plain(), algorithm in algorithm()) {
        let mut encoder = BlockEncoder::new(algorithm).unwrap();
        let mut stored = vec![0; encoder.max_encoded_len(plain.len())];
        if let Some(len) = encoder.encode(&plain, &mut stored).unwrap() {
            prop_assert!(len < plain.len());
            let mut out = vec![1; plain.len()];
            let codec = algorithm.block_codec().unwrap();
            BlockDecoder::new().decode(codec, &stored[..len], &mut out).unwrap();
            prop_assert_eq!(out, plain);
        }
    }

    #[test]
    fn members_there_and_back(
        plain in plain(), codec in file_codec(),
        inputs in sizes(), outputs in sizes(),
    ) {
        let (stored, _) = encode_with(codec, &plain, &inputs, &outputs);
        let decoder = limited(codec.member(), 4 << 20, 0);
        let outcome = decode_with(decoder, &stored, &outputs, &inputs);
        prop_assert_eq!(outcome.end.unwrap().stored, stored.len() as u64);
        prop_assert_eq!(outcome.plain, plain);
    }

    #[test]
    fn qpress_read(plain in plain(), block in 1_usize..4000, inputs in sizes(), outputs in sizes()) {
        let stored = crate::qpress::member(&plain, block, Packing::Compressed);
        let outcome = decode_with(limited(Member::Qpress, 0, 4000), &stored, &inputs, &outputs);
        prop_assert_eq!(outcome.end.unwrap().stored, stored.len() as u64);
        prop_assert_eq!(outcome.plain, plain);
    }

    /// A changed member is an error or another valid member, however it is cut.
    #[test]
    fn changed_members(
        (member, mut stored, plain) in stored(),
        changes in vec(any::<(u32, u8, u8)>(), 1..4),
        inputs in sizes(), outputs in sizes(),
    ) {
        mutate(&mut stored, &changes);
        let decoder = || limited(member, 4 << 20, 4000);
        let whole = decode_with(decoder(), &stored, &[usize::MAX], &[1 << 20]);
        let pieces = decode_with(decoder(), &stored, &inputs, &outputs);
        prop_assert_eq!(whole.end.is_ok(), pieces.end.is_ok());
        // All three formats have checksums over the content or the blocks. An empty one is
        // complete.
        if whole.end.is_ok() && !stored.is_empty() {
            prop_assert_eq!(&whole.plain, &plain, "other bytes were accepted");
            prop_assert_eq!(pieces.plain, whole.plain);
        }
    }

    #[test]
    fn changed_blocks(
        plain in plain(), algorithm in algorithm(),
        changes in vec(any::<(u32, u8, u8)>(), 1..4),
        announced in prop_oneof![Just(None), (0_usize..8000).prop_map(Some)],
    ) {
        let mut encoder = BlockEncoder::new(algorithm).unwrap();
        let mut stored = vec![0; encoder.max_encoded_len(plain.len())];
        if let Some(len) = encoder.encode(&plain, &mut stored).unwrap() {
            stored.truncate(len);
            mutate(&mut stored, &changes);
            let mut out = vec![0; announced.unwrap_or(plain.len())];
            let _ = BlockDecoder::new().decode(algorithm.block_codec().unwrap(), &stored, &mut out);
        }
    }

    #[test]
    fn any_bytes_as_blocks(bytes in vec(any::<u8>(), 0..300), len in 0_usize..5000) {
        let mut decoder = BlockDecoder::new();
        let mut out = vec![0; len];
        for codec in CODECS {
            let _ = decoder.decode(codec, &bytes, &mut out);
        }
    }

    /// Random bytes after a valid beginning, so that decoding gets past the magic.
    #[test]
    fn any_bytes_as_members(
        bytes in vec(any::<u8>(), 0..300), member in member(), begin in any::<bool>(),
        inputs in sizes(),
    ) {
        let mut stored = match member {
            _ if !begin => Vec::new(),
            Member::Lz4 => vec![4, 0x22, 0x4d, 0x18],
            Member::Zstd => vec![0x28, 0xb5, 0x2f, 0xfd],
            _ => {
                let mut start = crate::qpress::head(1000);
                let packet = crate::qpress::wrap(&bytes, 900, true);
                start.extend(crate::qpress::block_head(0, &packet));
                start.extend(packet);
                start
            }
        };
        stored.extend(&bytes);
        let decoder = || limited(member, 1 << 20, 1000);
        let whole = decode_with(decoder(), &stored, &[usize::MAX], &[1 << 16]);
        let pieces = decode_with(decoder(), &stored, &inputs, &[3]);
        prop_assert_eq!(whole.end.is_ok(), pieces.end.is_ok());
    }
}
