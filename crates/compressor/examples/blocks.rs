//! Compares the codecs on a file, in blocks of 1 MiB, and decodes their output:
//!
//! ```sh
//! cargo run --release -p xb-compressor --example blocks -- ibdata1
//! ```

use std::error::Error;

use xb_compressor::{Algorithm, BlockDecoder, BlockEncoder};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("name a file")?;
    let content = std::fs::read(path)?;
    for name in Algorithm::NAMES {
        let algorithm: Algorithm = name.parse()?;
        let Some(codec) = algorithm.block_codec() else { continue };
        let (mut encoder, mut decoder) = (BlockEncoder::new(algorithm)?, BlockDecoder::new());
        let mut stored = 0;
        for plain in content.chunks(1 << 20) {
            let mut block = vec![0; encoder.max_encoded_len(plain.len())];
            // A block that does not shrink is stored as it is.
            let Some(len) = encoder.encode(plain, &mut block)? else {
                stored += plain.len();
                continue;
            };
            let mut back = vec![0; plain.len()];
            decoder.decode(codec, &block[..len], &mut back)?;
            assert_eq!(back, plain);
            stored += len;
        }
        println!("{algorithm:>8}: {} bytes of {}", stored, content.len());
    }
    Ok(())
}
