//! Filters: they encrypt any bytes to a file, and decrypt it again.
//!
//! Each filter is one call that reads `source` in a thread of its own and writes to `out` in the
//! caller's thread. Ordered workers do the work in between, and the bytes held at a time are
//! limited. Only `Ok` proves that everything was processed. The observer counts input as bytes and
//! output as stored bytes. After an error a thread may still wait for a stalled source.

mod facts;
mod native;
mod seal_raw;
mod xbcrypt;

use std::io::{self, Chain, Cursor, Read};

use xb_encryptor::is_keys_block;

pub use facts::{Facts, FactsError, KeysFacts, NativeFacts, XbcryptFacts, facts};
pub use native::{
    OpenFile, OpenFileError, SealFile, SealFileError, open_file, read_stream, seal_file,
    write_stream,
};
pub use xb_frame::Codec;
pub use xbcrypt::{
    XbcryptFilterError, XbcryptRead, XbcryptWrite, xbcrypt_decrypt, xbcrypt_encrypt,
};

/// Length of each magic, in bytes.
const MAGIC_LEN: usize = 8;

/// Kind of a file by its first bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileKind {
    /// A native file: a keys block, then a sealed stream.
    Native,
    /// A native stream as objects hold it, without a keys block.
    NativeStream,
    /// A file of xbcrypt chunks.
    Xbcrypt,
    /// An empty file, which is the output of xbcrypt for empty input.
    Empty,
    /// Another format, with its first bytes, at most eight.
    Other(Vec<u8>),
}

impl FileKind {
    /// Detects the kind by the first eight bytes, or by all if there are fewer.
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

/// A source whose first bytes were read to detect its kind.
pub type ProbedSource<R> = Chain<Cursor<Vec<u8>>, R>;

/// Detects the kind of `source` by its first bytes, and returns the source including these bytes.
///
/// # Errors
/// The source cannot be read.
pub fn look<R: Read>(mut source: R) -> io::Result<(FileKind, ProbedSource<R>)> {
    let mut front = Vec::new();
    (&mut source).take(MAGIC_LEN as u64).read_to_end(&mut front)?;
    Ok((FileKind::of(&front), Cursor::new(front).chain(source)))
}
