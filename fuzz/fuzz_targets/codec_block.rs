//! Any bytes as a block of each codec, and any bytes through each codec and back: no panic, nothing
//! written beyond the length announced.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xb_compressor::{Algorithm, BlockCodec, BlockDecoder, BlockEncoder};

const GUARD: [u8; 64] = [0xa5; 64];

fuzz_target!(|data: &[u8]| {
    let Some((&[how, low, high], data)) = data.split_first_chunk() else { return };
    let Some(codec) = BlockCodec::from_number(1 + how % 4) else { return };
    let mut decoder = BlockDecoder::new();

    let announced = usize::from(u16::from_le_bytes([low, high]));
    let mut out = vec![0; announced];
    out.extend(GUARD);
    let (plain, guard) = out.split_at_mut(announced);
    let _ = decoder.decode(codec, data, plain);
    assert_eq!(guard, GUARD);

    let level = 1 + (how >> 2) % 9;
    let text = match codec {
        BlockCodec::Lz4 => "lz4".to_owned(),
        BlockCodec::Snappy => "snappy".to_owned(),
        BlockCodec::Zlib => format!("gzip:{level}"),
        _ => format!("zstd:{level}"),
    };
    let algorithm: Algorithm = text.parse().expect("one of ours");
    let mut encoder = BlockEncoder::new(algorithm).expect("memory");
    let mut stored = vec![0; encoder.max_encoded_len(data.len())];
    if let Some(len) = encoder.encode(data, &mut stored).expect("sizes are right") {
        assert!(len < data.len());
        let mut again = vec![0; data.len()];
        decoder.decode(codec, &stored[..len], &mut again).expect("our own");
        assert_eq!(again, data);
    }
});
