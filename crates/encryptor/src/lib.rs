//! Ciphers and keys: stock xbcrypt files, the seal of native streams, and the keys object that holds
//! the wrapped key of a sealed stream.
//!
//! This crate turns bytes into bytes. It starts no threads and does no I/O, except for the
//! functions that read a key file ([`KeyFile::read`], [`Identities::read`],
//! [`Recipient::read_list`]) or run a key command. It is independent of frames, objects and
//! archives. Its messages, errors and `Debug` output never contain a key.
//!
//! # The seal
//!
//! A [`FreshKey`] seals one stream, once. Its [`Sealer`] hands out segments, which workers seal in
//! place, in parallel. A reader opens the [`KeysObject`] with its keys, and with the resulting
//! [`DataKey`] any segment in any order; no byte of a segment is output unless it is authentic.
//! [`SealStream`] and [`OpenStream`] do the same sequentially.
//!
//! ```
//! use xb_encryptor::{Backend, KeysObject, FreshKey, KeyBytes, OpenStream, SealContext, SealStream,
//!                    KeyMaterial, KeySlotSpec};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let key_file = KeyBytes::new(b"0123456789abcdefghijklmnopqrstuv")?;
//! let stream_id = [7; 16]; // take random bytes
//!
//! let fresh = FreshKey::generate()?;
//! let commitment = fresh.key().commitment(&stream_id); // goes into the stream header
//! let context = SealContext { stream_id, commitment, header: b"the 128 bytes of the header" };
//! let keys_object = KeysObject::seal(fresh.key(), stream_id, &[KeySlotSpec::Key(&key_file)])?;
//!
//! let (sealer, _key) = fresh.sealer(&context, Backend::default())?;
//! let mut sealed = Vec::new();
//! let mut stream = SealStream::new(sealer)?;
//! stream.push(b"the body", &mut sealed)?;
//! stream.finish(&mut sealed)?;
//!
//! let key = KeysObject::parse(keys_object.encode())?.open(&KeyMaterial::Key(&key_file))?;
//! let mut plain = Vec::new();
//! let mut stream = OpenStream::new(&key, &context, Backend::default())?;
//! stream.push(&sealed, &mut plain)?;
//! stream.finish(&mut plain)?;
//! assert_eq!(plain, b"the body");
//! # Ok(())
//! # }
//! ```
//!
//! The formats are described in `docs/spec/format.md`, section 8, and in `docs/spec/keys.md`.
//!
//! # xbcrypt
//!
//! [`xbcrypt`] reads and writes the format of the stock tool. Its files are protected against
//! accidental damage only.
//!
//! ```
//! use xb_encryptor::xbcrypt::{Algorithm, ChunkSize, Cipher, Decrypter, Encrypter, Limits};
//! use xb_encryptor::{Backend, KeyBytes};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let key = KeyBytes::from_text(b"0123456789abcdef")?; // 16 bytes: AES-128, whatever the name
//! let cipher = || Cipher::new(Algorithm::Aes256, Some(&key), Backend::default());
//!
//! let mut file = Vec::new();
//! let mut encrypter = Encrypter::new(cipher()?, ChunkSize::default());
//! encrypter.push(b"a table", &mut file)?;
//! encrypter.finish(&mut file)?;
//! assert_eq!(file.len(), 92 + 7);
//!
//! let mut plain = Vec::new();
//! let mut decrypter = Decrypter::new(cipher()?, Limits::default());
//! decrypter.push(&file, &mut plain)?;
//! decrypter.finish()?;
//! assert_eq!(plain, b"a table");
//! # Ok(())
//! # }
//! ```

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]
#![cfg_attr(test, allow(clippy::cast_possible_truncation))] // the numbers in tests are small

mod aead;
mod archive_key;
mod command;
mod fresh_key;
mod hex;
mod identity;
mod kdf;
mod key;
mod key_file;
mod key_slots;
mod keys_object;
mod random;
mod seal;
#[cfg(feature = "aws-lc")]
mod signature;
pub mod xbcrypt;

pub use aead::{Backend, TAG_LEN};
pub use archive_key::ArchiveKey;
pub use command::{CommandError, CommandFault, KeyCommand, MAX_WRAPPED};
pub use fresh_key::FreshKey;
pub use identity::{Identities, IdentityError, Passphrase, Recipient, RecipientError};
pub use key::{DataKey, MacKey, STREAM_ID_LEN, new_stream_id};
pub use key_file::{KeyBytes, KeyFile, KeyFileError, KeyLength};
pub use key_slots::{KeySlots, Keys};
pub use keys_object::{
    BLOCK_HEAD_LEN, BLOCK_UNIT, BlockHead, KeyMaterial, KeySlotSpec, KeysObject, KeysObjectError,
    MAX_BLOCK, MAX_KEYS_OBJECT, OpenError, SlotFault, SlotInfo, SlotKind, WrapError, is_keys_block,
    parse_block,
};
pub use random::NoRandom;
pub use seal::{
    ExpectedLength, OpenStream, Opener, SEAL_HEAD_LEN, SEGMENT_LEN, SealContext, SealError,
    SealStream, Sealer, SegmentLayout, SegmentPlace, SegmentToSeal,
};
#[cfg(feature = "aws-lc")]
pub use signature::{SIGNATURE_LEN, SigningKey, SigningKeyError, VerifyingKey, VerifyingKeyError};
