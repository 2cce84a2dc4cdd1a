//! Files compressed and encrypted one by one, as xtrabackup does it.

use xb_compressor::{FileCodec, PieceEncoder, ZstdLevel};
use xb_encryptor::xbcrypt::{Algorithm, ChunkSize, Cipher, Encrypter};
use xb_encryptor::{Backend, KeyBytes};

pub(crate) fn cipher() -> Cipher {
    let key = KeyBytes::new(&[3; 32]).unwrap();
    Cipher::new(Algorithm::Aes256, Some(&key), Backend::default()).unwrap()
}

#[path = "../../../../compressor/tests/common/qpress.rs"]
mod qpress;

/// Encodes a file as its suffixes indicate.
pub(crate) fn wrapped(suffixes: &str, plain: &[u8]) -> Vec<u8> {
    suffixes.split('.').skip(1).fold(plain.to_vec(), |plain, layer| match layer {
        "lz4" => compressed(FileCodec::Lz4, &plain),
        "qp" => qpress::member(&plain, qpress::BLOCK, qpress::Packing::Compressed),
        "zst" => compressed(FileCodec::Zstd(ZstdLevel::new(1).unwrap()), &plain),
        _ => {
            let mut encrypter = Encrypter::new(cipher(), ChunkSize::new(9000).unwrap());
            let mut stored = Vec::new();
            encrypter.push(&plain, &mut stored).unwrap();
            encrypter.finish(&mut stored).unwrap();
            stored
        }
    })
}

pub(crate) fn compressed(codec: FileCodec, plain: &[u8]) -> Vec<u8> {
    let mut encoder = PieceEncoder::new(codec).unwrap();
    let mut stored = Vec::new();
    for piece in plain.chunks(50_000) {
        let start = stored.len();
        stored.resize(start + encoder.max_encoded_len(piece.len()), 0);
        let len = encoder.encode(piece, &mut stored[start..]).unwrap();
        stored.truncate(start + len);
    }
    stored
}
