//! Names of files as stored in a stream.

use std::fmt;
use std::sync::Arc;

/// Longest name of one directory or file, in bytes: the limit of Linux file systems.
const MAX_COMPONENT: usize = 255;

/// A file's name in a stream: relative, and unable to leave the target directory.
///
/// The bytes need not be UTF-8. Leading `./` are dropped; everything else is kept unchanged.
/// Cloning is cheap: clones share the bytes.
///
/// ```
/// use xb_reader::{PathError, RelPath};
///
/// let path = RelPath::new(b"./shop/orders.ibd")?;
/// assert_eq!(path.as_bytes(), b"shop/orders.ibd");
/// assert_eq!(path.components().count(), 2);
/// assert!(RelPath::new(b"../etc/passwd").is_err());
/// # Ok::<(), PathError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelPath(Arc<[u8]>);

/// Reason why a name from a stream was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// The name is empty, apart from a leading `./`.
    #[error("empty file name")]
    Empty,
    /// The name is longer than [`RelPath::MAX_LEN`].
    #[error("file name of {len} bytes, more than the limit of {max}")]
    TooLong {
        /// Its length in bytes.
        len: usize,
        /// The longest allowed.
        max: usize,
    },
    /// The name begins with `/`.
    #[error("absolute file name {name}")]
    Absolute {
        /// The name, printable.
        name: Printable,
    },
    /// The name has a `..` component and could leave the target directory.
    #[error("file name {name} leads outside the directory")]
    Escapes {
        /// The name, printable.
        name: Printable,
    },
    /// The name has an empty component or a `.` one that is not in front: `a//b`, `a/`, `a/./b`.
    #[error("file name {name} has an empty or `.` component")]
    Component {
        /// The name, printable.
        name: Printable,
    },
    /// One component is longer than 255 bytes.
    #[error("file name {name} has a component of {len} bytes, more than the limit of {max}")]
    ComponentTooLong {
        /// The name, printable.
        name: Printable,
        /// The component's length in bytes.
        len: usize,
        /// The longest allowed.
        max: usize,
    },
    /// The name holds a NUL byte; C programs would cut it there.
    #[error("file name {name} contains a NUL byte")]
    Nul {
        /// The name, printable.
        name: Printable,
    },
}

impl RelPath {
    /// Longest name in bytes. The stock readers refuse 512 and more.
    pub const MAX_LEN: usize = 511;

    /// Checks a name as stored in a stream.
    ///
    /// # Errors
    ///
    /// Any [`PathError`].
    pub fn new(raw: &[u8]) -> Result<Self, PathError> {
        if raw.len() > Self::MAX_LEN {
            return Err(PathError::TooLong { len: raw.len(), max: Self::MAX_LEN });
        }
        let mut name = raw;
        while let Some(rest) = name.strip_prefix(b"./") {
            name = rest;
        }
        if name.is_empty() {
            return Err(PathError::Empty);
        }
        let printable = || Printable::new(raw);
        if name.contains(&0) {
            return Err(PathError::Nul { name: printable() });
        }
        // Also after a leading `./`: `.//etc` would otherwise become absolute here.
        if name.starts_with(b"/") {
            return Err(PathError::Absolute { name: printable() });
        }
        for part in name.split(|&b| b == b'/') {
            match part {
                b".." => return Err(PathError::Escapes { name: printable() }),
                b"" | b"." => return Err(PathError::Component { name: printable() }),
                _ if part.len() > MAX_COMPONENT => {
                    return Err(PathError::ComponentTooLong {
                        name: printable(),
                        len: part.len(),
                        max: MAX_COMPONENT,
                    });
                }
                _ => {}
            }
        }
        Ok(Self(Arc::from(name)))
    }

    /// The name's bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The components between the slashes, from the left. There is at least one; none is empty, `.`
    /// or `..`.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.0.split(|&b| b == b'/')
    }

    /// Splits the path into the directory part, if any, and the last component.
    #[must_use]
    pub fn split_last(&self) -> (Option<&[u8]>, &[u8]) {
        match self.0.iter().rposition(|&b| b == b'/') {
            Some(at) => (Some(&self.0[..at]), &self.0[at + 1..]),
            None => (None, &self.0),
        }
    }
}

impl AsRef<[u8]> for RelPath {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Prints the name in a form that is safe for a terminal and a log: see [`Printable`].
impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_printable(&self.0, f)
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RelPath({self})")
    }
}

/// Bytes from outside in a form that is safe to show. UTF-8 stays readable; characters that could
/// control a terminal or change the reading direction, and bytes that are not UTF-8, are escaped.
#[derive(Clone, PartialEq, Eq)]
pub struct Printable(Box<[u8]>);

impl Printable {
    /// Longest piece kept, in bytes; the rest is shown as `...`.
    pub const MAX_LEN: usize = 512;

    /// Copies the bytes, cut to [`Printable::MAX_LEN`].
    #[must_use]
    pub fn new(raw: &[u8]) -> Self {
        Self(raw.get(..Self::MAX_LEN + 1).unwrap_or(raw).into())
    }

    /// The bytes without escapes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.get(..Self::MAX_LEN).unwrap_or(&self.0)
    }
}

impl fmt::Display for Printable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.get(..Self::MAX_LEN) {
            Some(head) if head.len() < self.0.len() => {
                write_printable(head, f)?;
                f.write_str("...")
            }
            _ => write_printable(&self.0, f),
        }
    }
}

impl fmt::Debug for Printable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

fn write_printable(raw: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for piece in raw.utf8_chunks() {
        for c in piece.valid().chars() {
            match c {
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                '\t' => f.write_str("\\t")?,
                '\r' => f.write_str("\\r")?,
                _ if c.is_ascii_control() => write!(f, "\\x{:02x}", u32::from(c))?,
                _ if c.is_control() || steers_text(c) => write!(f, "{}", c.escape_unicode())?,
                _ => write!(f, "{c}")?,
            }
        }
        for b in piece.invalid() {
            write!(f, "\\x{b:02x}")?;
        }
    }
    Ok(())
}

/// Returns whether the character is one of Unicode's line breaks or marks of reading direction. They are
/// not control characters, but can make one name look like another.
fn steers_text(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(raw: &[u8]) -> PathError {
        RelPath::new(raw).expect_err("must be refused")
    }

    #[test]
    fn takes_plain_names_and_drops_leading_dot_slash() {
        for (raw, want) in [
            (&b"ibdata1"[..], &b"ibdata1"[..]),
            (b"./q41", b"q41"),
            (b"././a/b", b"a/b"),
            (b"a/..b/...", b"a/..b/..."),
            (b".hidden", b".hidden"),
            (b"\xff\xfe", b"\xff\xfe"),
        ] {
            assert_eq!(RelPath::new(raw).unwrap().as_bytes(), want);
        }
    }

    #[test]
    fn refuses_what_leaves_the_directory() {
        for raw in [&b".."[..], b"../x", b"a/..", b"a/../../x", b"./../x"] {
            assert!(matches!(refused(raw), PathError::Escapes { .. }), "{raw:?}");
        }
        for raw in [&b"/x"[..], b"/", b"//x", b".//x"] {
            assert!(matches!(refused(raw), PathError::Absolute { .. }), "{raw:?}");
        }
    }

    #[test]
    fn refuses_malformed_names() {
        assert_eq!(refused(b""), PathError::Empty);
        assert_eq!(refused(b"./"), PathError::Empty);
        for raw in [&b"."[..], b"a//b", b"a/", b"a/./b", b"a/."] {
            assert!(matches!(refused(raw), PathError::Component { .. }), "{raw:?}");
        }
        assert!(matches!(refused(b"a\0b"), PathError::Nul { .. }));
    }

    #[test]
    fn limits_are_exact() {
        let name = |parts: &[usize]| -> Vec<u8> {
            parts.iter().map(|&n| vec![b'x'; n]).collect::<Vec<_>>().join(&b'/')
        };
        assert!(RelPath::new(&name(&[255, 255])).is_ok());
        assert!(matches!(refused(&name(&[256])), PathError::ComponentTooLong { len: 256, .. }));
        assert!(matches!(refused(&name(&[255, 256])), PathError::TooLong { len: 512, max: 511 }));
    }

    #[test]
    fn prints_nothing_that_steers_a_terminal() {
        let path = RelPath::new(b"t\xc3\xa9l\x1b[31m\xff\n\\\xe2\x80\xae.ibd").unwrap();
        assert_eq!(path.to_string(), r"tél\x1b[31m\xff\n\\\u{202e}.ibd");
        assert_eq!(Printable::new(&[b'a'; 600]).to_string().len(), 512 + 3);
        assert_eq!(Printable::new(&[b'a'; 512]).to_string().len(), 512);
    }

    #[test]
    fn splits_at_the_last_slash() {
        assert_eq!(RelPath::new(b"a/b/c").unwrap().split_last(), (Some(&b"a/b"[..]), &b"c"[..]));
        assert_eq!(RelPath::new(b"c").unwrap().split_last(), (None, &b"c"[..]));
    }
}
