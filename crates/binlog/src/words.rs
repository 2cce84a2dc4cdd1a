//! Words of a statement.

/// The words of a statement, without comments, texts and quoted names. The content of a comment that the
/// server runs, `/*!40000 ... */`, counts.
pub(crate) struct Words<'a> {
    rest: &'a [u8],
    /// The statement ended within a comment.
    is_open: bool,
    /// A comment with a version is a comment: it is that of a later server.
    skips_versioned: bool,
}

impl<'a> Words<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Self {
        Self { rest: text, is_open: false, skips_versioned: false }
    }

    /// The same, without the content of comments that only some versions run.
    pub(crate) fn without_versioned(text: &'a [u8]) -> Self {
        Self { skips_versioned: true, ..Self::new(text) }
    }

    /// Whether the statement ended within a comment.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// The next one, in capitals.
    pub(crate) fn upper(&mut self) -> Option<String> {
        Some(String::from_utf8_lossy(self.next()?).to_ascii_uppercase())
    }

    pub(crate) fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            let rest = self.rest;
            match rest {
                [] => return None,
                [b'/', b'*', b'!', after @ ..] | [b'/', b'*', b'M', b'!', after @ ..]
                    if !self.skips_versioned =>
                {
                    let digits = after.iter().take_while(|byte| byte.is_ascii_digit()).count();
                    self.rest = after.get(digits..)?;
                }
                [b'/', b'*', after @ ..] => self.rest = self.behind(after, b"*/")?,
                [b'#', after @ ..] => self.rest = self.behind(after, b"\n")?,
                [b'-', b'-', next, ..] if next.is_ascii_whitespace() || next.is_ascii_control() => {
                    self.rest = self.behind(rest, b"\n")?;
                }
                [quote @ (b'\'' | b'"' | b'`'), after @ ..] => {
                    self.rest = behind_quote(after, *quote)?;
                }
                [byte, after @ ..] if !is_word(*byte) => self.rest = after,
                _ => {
                    let len = rest.iter().take_while(|byte| is_word(**byte)).count();
                    let (word, after) = rest.split_at_checked(len)?;
                    self.rest = after;
                    return Some(word);
                }
            }
        }
    }

    /// Returns the bytes after the end of a comment.
    fn behind(&mut self, bytes: &'a [u8], end: &[u8]) -> Option<&'a [u8]> {
        let at = bytes.windows(end.len()).position(|window| window == end);
        self.is_open = at.is_none();
        bytes.get(at? + end.len()..)
    }
}

/// Returns the bytes after a quoted text. A quote in it is doubled, so that it looks like two texts.
fn behind_quote(mut bytes: &[u8], quote: u8) -> Option<&[u8]> {
    loop {
        match bytes {
            [] => return None,
            [b'\\', _, after @ ..] if quote != b'`' => bytes = after,
            [byte, after @ ..] if *byte == quote => return Some(after),
            [_, after @ ..] => bytes = after,
        }
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80
}
