//! Filters: any bytes in, an encrypted file out, and back.
//!
//! Each is one call that reads `source` in a thread of its own and writes to `out` in the caller's;
//! the work between is done by ordered workers, and what is held at a time is bounded. Only `Ok`
//! says that all went through. The observer counts what came in as its bytes, what went out as
//! stored. After an error a thread may still wait for a stalled source.

mod facts;
mod native;
mod xbcrypt;

use std::io::{self, Chain, Cursor, Read};

use xb_encryptor::is_keys_block;

pub use facts::{Facts, FactsError, KeysFacts, NativeFacts, XbcryptFacts, facts};
pub use native::{OpenFile, OpenFileError, SealFile, SealFileError, open_file, seal_file};
pub use xb_frame::Codec;
pub use xbcrypt::{
    XbcryptFilterError, XbcryptRead, XbcryptWrite, xbcrypt_decrypt, xbcrypt_encrypt,
};

/// Length of the magic of each kind, in bytes.
const MAGIC_LEN: usize = 8;

/// What a file is by its first bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileKind {
    /// A native file: its keys, then a sealed stream.
    Native,
    /// A native stream as objects hold it, without keys in front.
    NativeStream,
    /// xbcrypt chunks.
    Xbcrypt,
    /// Nothing at all, which is what xbcrypt makes of nothing.
    Empty,
    /// Something else: its first bytes, at most eight.
    Other(Vec<u8>),
}

impl FileKind {
    /// Tells by the first eight bytes, or all there are.
    #[must_use]
    pub fn of(front: &[u8]) -> Self {
        match front {
            [] => Self::Empty,
            _ if is_keys_block(front) => Self::Native,
            _ if xb_frame::is_native(front) => Self::NativeStream,
            _ if xb_encryptor::xbcrypt::is_xbcrypt(front) => Self::Xbcrypt,
            _ => Self::Other(front.iter().take(MAGIC_LEN).copied().collect()),
        }
    }
}

/// A source whose first bytes have been looked at.
pub type Looked<R> = Chain<Cursor<Vec<u8>>, R>;

/// Looks at the first bytes of `source`, and gives it back with them.
///
/// # Errors
/// When it cannot be read.
pub fn look<R: Read>(mut source: R) -> io::Result<(FileKind, Looked<R>)> {
    let mut front = Vec::new();
    (&mut source).take(MAGIC_LEN as u64).read_to_end(&mut front)?;
    Ok((FileKind::of(&front), Cursor::new(front).chain(source)))
}
