//! Blocks: round trips, announced lengths, and data that does not shrink.

use std::io::Write;

use xb_compressor::{
    Algorithm, BlockCodec, BlockDecoder, BlockEncoder, CodecError, ErrorLocation, Format,
    MAX_BLOCK_PLAIN,
};
use xb_testkit::data::{mixed, noise, pages};

const ALGORITHMS: [&str; 8] =
    ["lz4", "snappy", "gzip:1", "gzip", "gzip:9", "zstd", "zstd:3", "zstd:19"];

fn encoder(text: &str) -> (BlockEncoder, BlockCodec) {
    let algorithm: Algorithm = text.parse().unwrap();
    (BlockEncoder::new(algorithm).unwrap(), algorithm.block_codec().unwrap())
}

fn encode(encoder: &mut BlockEncoder, plain: &[u8]) -> Option<Vec<u8>> {
    let mut out = vec![0xee; encoder.max_encoded_len(plain.len())];
    let len = encoder.encode(plain, &mut out).unwrap()?;
    assert!(len < plain.len());
    out.truncate(len);
    Some(out)
}

fn decode(codec: BlockCodec, stored: &[u8], plain_len: usize) -> Result<Vec<u8>, CodecError> {
    let mut out = vec![0xcc; plain_len];
    BlockDecoder::new().decode(codec, stored, &mut out).map(|()| out)
}

fn place(codec: BlockCodec) -> ErrorLocation {
    let format = match codec {
        BlockCodec::Lz4 => Format::Lz4Block,
        BlockCodec::Snappy => Format::SnappyBlock,
        BlockCodec::Zlib => Format::ZlibStream,
        BlockCodec::Zstd => Format::ZstdFrame,
        _ => unreachable!(),
    };
    ErrorLocation { format, position: 0 }
}

#[test]
fn numbers_of_the_native_format() {
    for (number, codec) in [
        (1, BlockCodec::Lz4),
        (2, BlockCodec::Snappy),
        (3, BlockCodec::Zlib),
        (4, BlockCodec::Zstd),
    ] {
        assert_eq!((codec.number(), BlockCodec::from_number(number)), (number, Some(codec)));
    }
    assert_eq!([0, 5, 255].map(BlockCodec::from_number), [None; 3]);
}

/// One encoder and one decoder for all sizes: no state is left over from the previous block.
#[test]
fn there_and_back() {
    let mut decoder = BlockDecoder::new();
    for text in ALGORITHMS {
        let (mut encoder, codec) = encoder(text);
        let large = if text == "zstd:19" || text == "gzip:9" { 1 << 20 } else { MAX_BLOCK_PLAIN };
        for len in [
            1, 2, 12, 13, 100, 4095, 65_535, 65_536, 65_537, 1_048_575, 1_048_576, 1_048_577,
            large, 50,
        ] {
            for plain in [pages(len as u64, len), vec![0; len], mixed(len as u64, len)] {
                let Some(stored) = encode(&mut encoder, &plain) else {
                    let say = format!("{text}: {len} bytes must shrink");
                    assert!(len < 100 || plain[..len.min(16)] != vec![0; len.min(16)][..], "{say}");
                    continue;
                };
                let mut out = vec![0xcc; len];
                decoder.decode(codec, &stored, &mut out).unwrap();
                assert!(out == plain, "{text}: {len}");
                assert_eq!(
                    encode(&mut encoder, &plain).as_ref(),
                    Some(&stored),
                    "not the same again"
                );
            }
        }
    }
}

#[test]
fn incompressible_data_is_stored_plain() {
    for text in ALGORITHMS {
        let (mut encoder, _) = encoder(text);
        for len in [0, 1, 2, 3, 100, 65_536, 1 << 20] {
            assert_eq!(encode(&mut encoder, &noise(1, len)), None, "{text}: {len}");
        }
        assert!(encode(&mut encoder, &[0; 1000]).is_some(), "{text}: works as before");
    }
    let mut none = BlockEncoder::new(Algorithm::None).unwrap();
    assert_eq!(none.encode(&[0; 1000], &mut []), Ok(None));
}

/// A block must be strictly shorter than its plain bytes, to the byte.
#[test]
fn the_border_of_shrinking() {
    for text in ALGORITHMS {
        let (mut encoder, codec) = encoder(text);
        let (mut kept, mut made) = (0, 0);
        for zeros in 0..80 {
            let plain = [noise(9, 300), vec![0; zeros]].concat();
            match encode(&mut encoder, &plain) {
                None => kept += 1,
                Some(stored) => {
                    made += 1;
                    assert_eq!(decode(codec, &stored, plain.len()), Ok(plain), "{text}");
                }
            }
        }
        assert!(kept > 2 && made > 20, "{text}: {kept} {made}");
    }
    // These two cannot be limited in length: some of their output is exactly as long as the input.
    for text in ["lz4", "snappy"] {
        let (mut encoder, _) = encoder(text);
        for random in 0..200 {
            for zeros in 0..40 {
                let plain = [noise(random, random as usize), vec![0; zeros], noise(1, 20)].concat();
                encode(&mut encoder, &plain);
            }
        }
    }
}

#[test]
fn buffers_of_the_wrong_size() {
    for text in ALGORITHMS {
        let (mut encoder, codec) = encoder(text);
        let needed = encoder.max_encoded_len(1000);
        assert!((1000..1300).contains(&needed));
        let short = encoder.encode(&[0; 1000], &mut vec![0; needed - 1]);
        let (field, min, max, got) = ("output", needed, usize::MAX, needed - 1);
        assert_eq!(short, Err(CodecError::Caller { place: place(codec), field, min, max, got }));
        let long = vec![0; MAX_BLOCK_PLAIN + 1];
        let mut out = vec![0; encoder.max_encoded_len(long.len())];
        assert!(matches!(encoder.encode(&long, &mut out), Err(CodecError::Caller { .. })));
        assert!(matches!(decode(codec, b"x", MAX_BLOCK_PLAIN + 1), Err(CodecError::Caller { .. })));
    }
}

/// A block must decode to exactly the announced length, or it is refused.
#[test]
fn announced_lengths() {
    let plain = pages(3, 40_000);
    for text in ALGORITHMS {
        let (mut encoder, codec) = encoder(text);
        let stored = encode(&mut encoder, &plain).unwrap();
        for len in [0, 1, 20_000, 39_999, 40_001, 80_000] {
            let error = decode(codec, &stored, len).unwrap_err();
            let (expected, got, place) = (len as u64, 40_000, place(codec));
            let known = match codec {
                BlockCodec::Snappy => {
                    CodecError::Mismatch { place, field: "plain length", expected, got }
                }
                BlockCodec::Zstd => {
                    CodecError::Mismatch { place, field: "content size", expected, got }
                }
                _ if len < 40_000 => CodecError::TooLong { place, expected },
                _ => CodecError::TooShort { place, expected, got },
            };
            assert_eq!(error, known, "{text} {len}");
        }
    }
}

#[test]
fn nothing_behind_the_end() {
    let plain = pages(4, 40_000);
    for text in ALGORITHMS {
        let (mut encoder, codec) = encoder(text);
        let mut stored = encode(&mut encoder, &plain).unwrap();
        for more in [&b"\0"[..], b"x", b"\0\0\0\0\0\0\0\0", &stored.clone()] {
            let len = stored.len();
            stored.extend(more);
            let error = decode(codec, &stored, plain.len()).unwrap_err();
            match codec {
                BlockCodec::Zlib | BlockCodec::Zstd => {
                    assert_eq!(error, CodecError::Trailing { place: place(codec) }, "{text}");
                }
                _ => assert!(matches!(
                    error,
                    CodecError::Damaged { .. } | CodecError::TooLong { .. }
                )),
            }
            stored.truncate(len);
        }
    }
}

#[test]
fn cut_at_every_byte() {
    let plain = pages(5, 3000);
    for text in ALGORITHMS {
        let (mut encoder, codec) = encoder(text);
        let stored = encode(&mut encoder, &plain).unwrap();
        assert_eq!(decode(codec, &stored, plain.len()).as_ref(), Ok(&plain));
        for len in 0..stored.len() {
            let error = decode(codec, &stored[..len], plain.len()).unwrap_err();
            if matches!(codec, BlockCodec::Zlib | BlockCodec::Zstd) {
                assert!(matches!(error, CodecError::Cut { .. }), "{text} {len}: {error}");
            }
        }
    }
}

/// zlib has its Adler-32; the others are in frames that have their own checksums.
#[test]
fn zlib_is_checked() {
    let plain = pages(6, 3000);
    let (mut encoder, codec) = encoder("gzip");
    let stored = encode(&mut encoder, &plain).unwrap();
    for bit in 0..stored.len() * 8 {
        let mut bad = stored.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        if let Ok(out) = decode(codec, &bad, plain.len()) {
            assert!(out == plain, "bit {bit}"); // in the header, or padding in the last byte
        }
    }
}

#[test]
fn bombs() {
    let zeros = vec![0; MAX_BLOCK_PLAIN];
    for text in ["gzip", "zstd", "lz4"] {
        let (mut encoder, codec) = encoder(text);
        let bomb = encode(&mut encoder, &zeros).unwrap();
        assert!(bomb.len() < zeros.len() / 200, "{text}");
        let error = decode(codec, &bomb, 100).unwrap_err();
        let small = matches!(error, CodecError::TooLong { .. } | CodecError::Mismatch { .. });
        assert!(small, "{text}: {error}");
    }
    // The first bytes announce 4 GiB - 1, and nothing follows.
    assert_eq!(
        decode(BlockCodec::Snappy, &[0xff, 0xff, 0xff, 0xff, 0x0f, 0], 100)
            .unwrap_err()
            .to_string(),
        "snappy block: plain length is 4294967295, expected 100"
    );
    // A zstd frame without content size that never ends, and one with a window of 2 TiB.
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 7 << 3];
    for n in 0..100_u32 {
        frame.extend(&((128 << 10) << 3 | 1 << 1 | u32::from(n == 99)).to_le_bytes()[..3]);
        frame.push(0);
    }
    assert_eq!(decode(BlockCodec::Zstd, &frame, 100 << 17).unwrap(), vec![0; 100 << 17]);
    let place = place(BlockCodec::Zstd);
    assert_eq!(
        decode(BlockCodec::Zstd, &frame, 1000),
        Err(CodecError::TooLong { place, expected: 1000 })
    );
    frame[5] = 0xff;
    assert!(matches!(
        decode(BlockCodec::Zstd, &frame, 100 << 17),
        Err(CodecError::Range { field: "window", max: 16_777_216, .. })
    ));
    // A zlib stream whose last byte was consumed and that still has output left.
    let mut deflate = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    deflate.write_all(&[0; 600]).unwrap();
    let stream = deflate.finish().unwrap();
    let body = &stream[..stream.len() - 4];
    let error = decode(BlockCodec::Zlib, body, 10).unwrap_err();
    assert!(matches!(error, CodecError::TooLong { expected: 10, .. }), "{error}");
}

/// Forms that the codecs' formats allow and native frames do not.
#[test]
fn forms_that_are_refused() {
    let mut stream = flate2::Compress::new(flate2::Compression::fast(), true);
    stream.set_dictionary(b"a dictionary").unwrap();
    let mut preset = Vec::with_capacity(100);
    stream.compress_vec(b"a dictionary", &mut preset, flate2::FlushCompress::Finish).unwrap();
    assert!(matches!(
        decode(BlockCodec::Zlib, &preset, 12),
        Err(CodecError::Unsupported { field: "preset dictionary", .. })
    ));
    for codec in [BlockCodec::Lz4, BlockCodec::Snappy, BlockCodec::Zlib, BlockCodec::Zstd] {
        assert!(decode(codec, b"", 10).is_err());
        assert!(decode(codec, &noise(3, 100), 200).is_err());
    }

    // Two frames whose contents together have the right length; a skippable frame before or after.
    let (mut encoder, codec) = encoder("zstd");
    let half = encode(&mut encoder, &[7; 500]).unwrap();
    let both = [&half[..], &half].concat();
    let mismatch = decode(codec, &both, 1000).unwrap_err();
    assert!(matches!(mismatch, CodecError::Mismatch { field: "content size", got: 500, .. }));
    assert_eq!(decode(codec, &both, 500), Err(CodecError::Trailing { place: place(codec) }));
    let skip = [0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0];
    assert!(matches!(
        decode(codec, &[&skip[..], &half].concat(), 500),
        Err(CodecError::Magic { .. })
    ));
    assert_eq!(
        decode(codec, &[&half[..], &skip].concat(), 500),
        Err(CodecError::Trailing { place: place(codec) })
    );
}

/// After an error the decoder works as before.
#[test]
fn after_an_error() {
    let plain = pages(8, 5000);
    let mut decoder = BlockDecoder::new();
    for text in ALGORITHMS {
        let (mut encoder, codec) = encoder(text);
        let stored = encode(&mut encoder, &plain).unwrap();
        let mut out = vec![0; plain.len()];
        assert!(decoder.decode(codec, &stored[..stored.len() / 2], &mut out).is_err());
        assert!(decoder.decode(codec, &stored, &mut out[..2000]).is_err());
        decoder.decode(codec, &stored, &mut out).unwrap();
        assert_eq!(out, plain);
    }
}
