//! The stock `xbcrypt` file format: versions 1, 2 and 3 are read, version 3 is written.
//!
//! A file is a sequence of independent chunks: no file header, no numbers, no end mark. Version 3
//! has a SHA-256 of the plain bytes inside the encrypted part, and a CRC-32 of the encrypted part
//! outside. **This finds accidental damage only.** An attacker who knows the plain bytes of a chunk
//! can replace them by others of the same length without the key. Chunks can be swapped, repeated
//! and removed, and a file can be cut between two of them, all without detection. Versions 1 and 2
//! lack even the hash: with a wrong key they result in noise.
//!
//! [`parse_head`], [`open_chunk`] and [`seal_chunk`] work on one chunk and can run in parallel;
//! [`Decoder`] finds the chunks in input of any cut. [`Decrypter`] and [`Encrypter`] do everything
//! in one thread.

mod chunk;
mod cipher;
mod decode;
mod error;
mod head;
mod version;
mod write;

pub use chunk::{new_iv, open_chunk, seal_chunk, sealed_len};
pub use cipher::{Algorithm, AlgorithmError, Cipher, NoKey};
pub use decode::{Decoder, Decrypter, Event};
pub use error::{ErrorLocation, XbcryptError};
pub use head::{Head, IV_LEN, Limits, Parsed, is_xbcrypt, parse_head};
pub use version::{MAX_SIZE, Version};
pub use write::{ChunkSize, Encrypter};
