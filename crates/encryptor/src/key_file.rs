//! Key files: 16, 24 or 32 raw bytes, in a file or as text.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

/// The valid lengths of AES keys, in bytes.
const LENGTHS: [usize; 3] = [16, 24, 32];

/// One byte more than the longest key file that could be accepted.
const MAX_READ: u64 = 34;

/// Key bytes from `--encrypt-key` or `--encrypt-key-file`: 16, 24 or 32 arbitrary bytes.
///
/// xbcrypt accepts all three lengths; the native seal requires 32, so that one file can serve both.
/// Prints as `KeyBytes(32 bytes)`, and is wiped when dropped.
#[derive(Clone)]
pub struct KeyBytes(Zeroizing<Vec<u8>>);

impl KeyBytes {
    /// Uses these bytes unchanged.
    ///
    /// # Errors
    /// [`KeyLength`] unless there are 16, 24 or 32.
    pub fn new(bytes: &[u8]) -> Result<Self, KeyLength> {
        if LENGTHS.contains(&bytes.len()) {
            Ok(Self(Zeroizing::new(bytes.to_vec())))
        } else {
            Err(KeyLength { got: bytes.len() })
        }
    }

    /// Uses the text of `--encrypt-key` up to its first NUL, as the stock tools do.
    ///
    /// # Errors
    /// [`KeyLength`] unless that is 16, 24 or 32 bytes long.
    pub fn from_text(text: &[u8]) -> Result<Self, KeyLength> {
        Self::new(text.split(|&byte| byte == 0).next().unwrap_or_default())
    }

    /// Length in bytes: 16, 24 or 32.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn expose(&self) -> &[u8] {
        &self.0
    }

    /// The bytes, if they are the 32 that the native seal requires.
    pub(crate) fn full(&self) -> Option<&[u8; 32]> {
        self.0.as_slice().try_into().ok()
    }
}

impl fmt::Debug for KeyBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyBytes({} bytes)", self.len())
    }
}

/// A key whose length is not valid for AES.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the key has {got} bytes; it must have 16, 24 or 32")]
#[non_exhaustive]
pub struct KeyLength {
    /// Its length in bytes; for a pipe, 34 means 34 or more.
    pub got: usize,
}

/// The content of a key file.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct KeyFile {
    /// The key.
    pub key: KeyBytes,
    /// The file was one byte too long, and that byte, a newline, was dropped. The stock tools
    /// refuse such a file: warn about it.
    pub newline_dropped: bool,
    /// The file's mode allows group or others to read it: warn about it.
    pub open_to_others: bool,
}

impl KeyFile {
    /// Parses the content of a key file. All of it is the key, as with the stock tools: a key may
    /// begin with NUL and end with a newline. Only if the file is exactly one byte too long and the
    /// last byte is a newline, that byte is dropped.
    ///
    /// # Errors
    /// [`KeyLength`] for other lengths.
    pub fn parse(content: &[u8]) -> Result<Self, KeyLength> {
        let (key, newline_dropped) = match (KeyBytes::new(content), content.split_last()) {
            (Err(_), Some((b'\n', rest))) if KeyBytes::new(rest).is_ok() => {
                (KeyBytes::new(rest)?, true)
            }
            (result, _) => (result?, false),
        };
        Ok(Self { key, newline_dropped, open_to_others: false })
    }

    /// Reads a key file, which may be a FIFO. At most 34 bytes are read.
    ///
    /// # Errors
    /// [`KeyFileError`], which names the file.
    pub fn read(path: &Path) -> Result<Self, KeyFileError> {
        let io = |source| KeyFileError::Io { path: path.to_owned(), source };
        let mut file = File::open(path).map_err(io)?;
        let facts = file.metadata().map_err(io)?;
        #[allow(clippy::cast_possible_truncation, reason = "34")]
        let mut content = Zeroizing::new(Vec::with_capacity(MAX_READ as usize));
        (&mut file).take(MAX_READ).read_to_end(&mut content).map_err(io)?;
        let parsed = Self::parse(&content).map_err(|mut length| {
            if facts.is_file() {
                length.got = length.got.max(usize::try_from(facts.len()).unwrap_or(usize::MAX));
            }
            KeyFileError::Length { path: path.to_owned(), length }
        })?;
        let open_to_others = facts.is_file() && facts.permissions().mode() & 0o044 != 0;
        Ok(Self { open_to_others, ..parsed })
    }
}

/// Reason why a key file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyFileError {
    /// The file cannot be read.
    #[error("cannot read the key file {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// Its length is not that of a key.
    #[error("key file {}: {length}", path.display())]
    Length {
        /// The file.
        path: PathBuf,
        /// The length error.
        length: KeyLength,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn only_a_newline_that_makes_the_length_wrong_is_dropped() {
        for len in 0..=40 {
            for last in [b'x', b'\n'] {
                let mut content = vec![0; len];
                if let Some(end) = content.last_mut() {
                    *end = last;
                }
                let exact = LENGTHS.contains(&len);
                let over = last == b'\n' && LENGTHS.contains(&len.wrapping_sub(1));
                match KeyFile::parse(&content) {
                    Ok(file) => {
                        assert!(exact || over, "{len}");
                        assert_eq!(file.newline_dropped, over, "{len}");
                        assert_eq!(file.key.expose(), &content[..len - usize::from(over)]);
                    }
                    Err(error) => {
                        assert!(!exact && !over, "{len}");
                        assert_eq!(error.got, len);
                    }
                }
            }
        }
        assert!(KeyFile::parse(b"0123456789abcdef\r\n").is_err());
        assert!(KeyFile::parse(b"0123456789abcdef\n\n").is_err());
    }

    #[test]
    fn text_ends_at_its_nul() {
        assert_eq!(KeyBytes::from_text(b"0123456789abcdef\0more").unwrap().len(), 16);
        assert_eq!(KeyBytes::from_text(b"\x000123456789abcdef").unwrap_err(), KeyLength { got: 0 });
    }

    #[test]
    fn files_are_read_with_a_bound_and_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("k");
        fs::write(&path, [b'k'; 32]).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let file = KeyFile::read(&path).unwrap();
        assert!(file.open_to_others && !file.newline_dropped);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(!KeyFile::read(&path).unwrap().open_to_others);

        fs::write(&path, vec![b'\n'; 1 << 20]).unwrap();
        let error = KeyFile::read(&path).unwrap_err().to_string();
        let all = "k: the key has 1048576 bytes; it must have 16, 24 or 32";
        assert!(error.ends_with(all), "{error}");
        let error = KeyFile::read(&dir.path().join("none")).unwrap_err().to_string();
        assert!(error.contains("none"), "{error}");
    }

    #[test]
    fn nothing_shows_the_key() {
        let file = KeyFile::parse(b"0123456789abcdef").unwrap();
        let shown = format!("{file:?} {:?}", KeyBytes::new(b"abc").unwrap_err());
        assert!(!shown.contains("0123") && !shown.contains("48, 49"), "{shown}");
    }
}
