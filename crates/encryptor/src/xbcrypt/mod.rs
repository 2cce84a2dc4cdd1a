//! The stock `xbcrypt` file format: versions 1, 2 and 3 read, version 3 written.
//!
//! A file is chunks back to back, each on its own: no file header, no numbers, no end mark. Version
//! 3 has a SHA-256 of the plain bytes inside the encrypted part, and a CRC-32 of the encrypted part
//! outside. **This guards against accident only.** Who knows the plain bytes of a chunk can put
//! others of the same length there without the key; chunks can be swapped, repeated and left out,
//! and a file can be cut between two of them, all without a trace. Versions 1 and 2 have not even
//! the hash: with a wrong key they give noise.
//!
//! [`parse_head`], [`open_chunk`] and [`seal_chunk`] work on one chunk and can run side by side;
//! [`Decoder`] finds the chunks in input of any cut. [`Decrypter`] and [`Encrypter`] do it all in
//! one thread.

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
pub use error::{Place, XbcryptError};
pub use head::{Head, IV_LEN, Limits, Parsed, is_xbcrypt, parse_head};
pub use version::{MAX_SIZE, Version};
pub use write::{ChunkSize, Encrypter};
