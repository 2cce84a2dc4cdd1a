//! Any bytes as an xbcrypt file, in any pieces: no panic, and the same result however the input is
//! cut. Half of the inputs get matching checksums first; otherwise few would get past the first
//! one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xb_encryptor::xbcrypt::{Algorithm, Cipher, Decrypter, Limits};
use xb_encryptor::{Backend, KeyBytes};

fuzz_target!(|data: &[u8]| {
    let Some((&how, file)) = data.split_first() else { return };
    let mut file = file.to_vec();
    if how & 1 == 1 {
        mend(&mut file);
    }
    let whole = read(&file, how, file.len().max(1));
    let pieces = read(&file, how, usize::from(how >> 2).max(1));
    assert_eq!(whole, pieces);
    assert!(whole.0.len() <= file.len());
});

fn read(file: &[u8], how: u8, step: usize) -> (Vec<u8>, Option<String>) {
    let algorithm = if how & 2 == 2 { Algorithm::None } else { Algorithm::Aes256 };
    let key = KeyBytes::new(&[1; 32]).expect("32 bytes");
    let cipher = Cipher::new(algorithm, Some(&key), Backend::default()).expect("a key");
    let limits = Limits { max_chunk: 1 << 16, ..Limits::ALL };
    let (mut out, mut decrypter) = (Vec::new(), Decrypter::new(cipher, limits));
    for piece in file.chunks(step) {
        if let Err(error) = decrypter.push(piece, &mut out) {
            return (out, Some(error.to_string()));
        }
    }
    let end = decrypter.finish().err().map(|error| error.to_string());
    (out, end)
}

/// Corrects the sizes of each chunk, up to the next magic, and its CRC.
fn mend(file: &mut [u8]) {
    let starts: Vec<usize> =
        (0..file.len()).filter(|&n| file[n..].starts_with(b"XBCRYP0")).collect();
    for (n, &start) in starts.iter().enumerate() {
        let end = starts.get(n + 1).copied().unwrap_or(file.len());
        let chunk = &mut file[start..end];
        let head = match chunk.get(7) {
            Some(b'1') => 36,
            Some(b'2' | b'3') if chunk.get(36) == Some(&16) => 60,
            Some(b'2' | b'3') => 44,
            _ => continue,
        };
        if chunk.len() < head {
            continue;
        }
        let size = ((chunk.len() - head) as u64).to_le_bytes();
        let crc = crc32(&chunk[head..]).to_le_bytes();
        chunk[16..24].copy_from_slice(&size);
        chunk[24..32].copy_from_slice(&size);
        chunk[32..36].copy_from_slice(&crc);
        if head > 36 {
            chunk[37..44].fill(0);
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
