//! Words of a statement.

use std::borrow::Cow;

/// The words of a statement, without comments, texts and quoted names. The content of a comment that the
/// server runs, `/*!40000 ... */`, counts.
pub(crate) struct Words<'a> {
    rest: &'a [u8],
    quoting: Quoting,
    /// The statement ended within a comment.
    is_open: bool,
    /// This is the content of a comment that the server runs.
    is_versioned: bool,
    /// A comment with a version is a comment: it is that of a later server.
    skips_versioned: bool,
}

/// What quotes mean in a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub(crate) struct Quoting {
    /// `"` begins a name: `ANSI_QUOTES`.
    pub(crate) has_ansi_names: bool,
    /// A backslash is itself: `NO_BACKSLASH_ESCAPES`.
    pub(crate) has_no_escapes: bool,
}

/// A part of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    /// A name, a word or a number. Whether `(` follows it at once, as in a call.
    Word(&'a [u8], bool),
    /// A quoted name, without the quotes.
    Name(Cow<'a, [u8]>),
    /// A text.
    Text,
    /// Any other character.
    Sign(u8),
}

impl<'a> Words<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Self {
        Self::quoted(text, Quoting::default())
    }

    pub(crate) fn quoted(text: &'a [u8], quoting: Quoting) -> Self {
        Self { rest: text, quoting, is_open: false, is_versioned: false, skips_versioned: false }
    }

    /// The same, without the content of comments that only some versions run.
    pub(crate) fn without_versioned(text: &'a [u8]) -> Self {
        Self { skips_versioned: true, ..Self::new(text) }
    }

    /// Whether the statement ended within a comment.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Whether all of the statement has been read.
    pub(crate) fn is_whole(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next one, in capitals.
    pub(crate) fn upper(&mut self) -> Option<String> {
        Some(String::from_utf8_lossy(self.next()?).to_ascii_uppercase())
    }

    pub(crate) fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            if let Token::Word(word, _) = self.token()? {
                return Some(word);
            }
        }
    }

    /// The next part, whatever it is.
    pub(crate) fn token(&mut self) -> Option<Token<'a>> {
        loop {
            let rest = self.rest;
            match rest {
                [] => return None,
                [b'/', b'*', b'!', after @ ..] | [b'/', b'*', b'M', b'!', after @ ..]
                    if !self.skips_versioned =>
                {
                    let digits = after.iter().take_while(|byte| byte.is_ascii_digit()).count();
                    (self.rest, self.is_versioned) = (after.get(digits..)?, true);
                }
                [b'/', b'*', after @ ..] => self.rest = self.behind(after, b"*/")?,
                [b'*', b'/', after @ ..] if self.is_versioned => {
                    (self.rest, self.is_versioned) = (after, false);
                }
                [b'#', after @ ..] => self.rest = self.behind(after, b"\n")?,
                [b'-', b'-', next, ..] if next.is_ascii_whitespace() || next.is_ascii_control() => {
                    self.rest = self.behind(rest, b"\n")?;
                }
                [quote @ (b'\'' | b'"' | b'`'), after @ ..] => {
                    return self.behind_quote(after, *quote);
                }
                [byte, after @ ..] if byte.is_ascii_whitespace() => self.rest = after,
                [byte, after @ ..] if !is_word(*byte) => {
                    self.rest = after;
                    return Some(Token::Sign(*byte));
                }
                _ => {
                    let len = rest.iter().take_while(|byte| is_word(**byte)).count();
                    let (word, after) = rest.split_at_checked(len)?;
                    self.rest = after;
                    return Some(Token::Word(word, after.first() == Some(&b'(')));
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

    /// Returns a quoted part. A quote in it is doubled; in a text, a backslash may stand before it.
    fn behind_quote(&mut self, bytes: &'a [u8], quote: u8) -> Option<Token<'a>> {
        let is_name = quote == b'`' || quote == b'"' && self.quoting.has_ansi_names;
        let has_escapes = !is_name && !self.quoting.has_no_escapes;
        let (mut rest, mut doubled) = (bytes, false);
        loop {
            match rest {
                // It is cut off.
                [] => return None,
                [b'\\', _, after @ ..] if has_escapes => rest = after,
                [first, second, after @ ..] if *first == quote && *second == quote => {
                    (rest, doubled) = (after, true);
                }
                [byte, after @ ..] if *byte == quote => {
                    self.rest = after;
                    let name = bytes.get(..bytes.len() - rest.len())?;
                    return Some(match (is_name, doubled) {
                        (false, _) => Token::Text,
                        (true, false) => Token::Name(Cow::Borrowed(name)),
                        (true, true) => Token::Name(Cow::Owned(undoubled(name, quote))),
                    });
                }
                [_, after @ ..] => rest = after,
            }
        }
    }
}

fn undoubled(name: &[u8], quote: u8) -> Vec<u8> {
    let (mut made, mut rest) = (Vec::with_capacity(name.len()), name);
    while let [byte, after @ ..] = rest {
        made.push(*byte);
        rest = if *byte == quote { after.get(1..).unwrap_or_default() } else { after };
    }
    made
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_quoted() {
        let ansi = Quoting { has_ansi_names: true, ..Quoting::default() };
        let names = |text: &str, quoting| {
            let mut words = Words::quoted(text.as_bytes(), quoting);
            let tokens = std::iter::from_fn(|| words.token());
            let names = tokens.filter_map(|token| match token {
                Token::Name(name) => Some(String::from_utf8_lossy(&name).into_owned()),
                Token::Word(word, is_call) => Some(format!(
                    "{}{}",
                    String::from_utf8_lossy(word),
                    if is_call { "(" } else { "" }
                )),
                Token::Text | Token::Sign(_) => None,
            });
            names.collect::<Vec<_>>().join("|")
        };
        for (text, quoting, expected) in [
            ("`my tab`.`a.b`", Quoting::default(), "my tab|a.b"),
            ("`a``b` ````", Quoting::default(), "a`b|`"),
            (r"`a\` x", Quoting::default(), r"a\|x"),
            (r#""q" x"#, Quoting::default(), "x"),
            (r#""q""q" 'x' y"#, ansi, r#"q"q|y"#),
            (r#""\" x"#, ansi, r"\|x"),
            (r"'it''s \' no' x", Quoting::default(), "x"),
            (r"'\' x", Quoting { has_no_escapes: true, ..Quoting::default() }, "x"),
            ("/* `n` */ a.b # `c`\n-- `d`\nf(1) g (2)", Quoting::default(), "a|b|f(|1|g|2"),
            ("2*/* `c` */x", Quoting::default(), "2|x"),
            ("DROP /*!40005 TEMPORARY */ TABLE `t`", Quoting::default(), "DROP|TEMPORARY|TABLE|t"),
        ] {
            assert_eq!(names(text, quoting), expected, "{text}");
        }
        for (text, is_open) in
            [("a `b", false), ("a 'b", false), ("a /* b", true), ("a -- b", true)]
        {
            let mut words = Words::new(text.as_bytes());
            while words.token().is_some() {}
            assert_eq!(words.is_open(), is_open, "{text}");
        }
    }
}
