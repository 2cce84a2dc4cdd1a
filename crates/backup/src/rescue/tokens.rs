//! The tokens of SQL text: words, quoted texts, and single other characters, without spaces and comments.

/// A part of SQL text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) text: &'a [u8],
    /// Its place in the whole text.
    pub(super) begin: usize,
}

impl Token<'_> {
    /// Returns whether this is the word, in upper or lower case.
    pub(super) fn is(&self, word: &str) -> bool {
        self.text.eq_ignore_ascii_case(word.as_bytes())
    }
}

/// Kind of text within double quotes. Names have no escapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DoubleQuoted {
    /// Names, as with `ANSI_QUOTES`.
    Names,
    /// Strings.
    Strings,
}

/// Reason why the rest of a text may be unclear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnclearText {
    /// A comment that only some versions execute; the tokens behind it are those in it.
    Executed,
    /// A quoted text or a comment without an end; nothing follows.
    Unfinished,
}

/// Reads the tokens of a text one by one.
pub(super) struct Tokens<'a> {
    text: &'a [u8],
    at: usize,
    double_quoted: DoubleQuoted,
}

impl<'a> Tokens<'a> {
    /// Reads `text`.
    pub(super) fn new(text: &'a [u8], double_quoted: DoubleQuoted) -> Self {
        Self { text, at: 0, double_quoted }
    }

    /// Moves past spaces and comments.
    fn skip_space(&mut self) -> Result<(), UnclearText> {
        loop {
            let rest = &self.text[self.at..];
            self.at += match rest {
                [byte, ..] if byte.is_ascii_whitespace() => 1,
                [b'/', b'*', b'!', ..] => return Err(self.skip(3)),
                [b'/', b'*', b'M', b'!', ..] => return Err(self.skip(4)),
                [b'/', b'*', inner @ ..] => match inner.windows(2).position(|two| two == b"*/") {
                    Some(len) => len + 4,
                    None => return Err(self.end()),
                },
                // The last line of a text needs no end.
                [b'#', ..] | [b'-', b'-', b' ' | b'\t' | b'\n', ..] => {
                    rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len())
                }
                _ => return Ok(()),
            }
        }
    }

    /// Length of the quoted text at the beginning, with its quotes. A doubled quote is part of it, and in strings a backslash
    /// and what follows.
    fn quoted_len(&self, text: &[u8], quote: u8) -> Option<usize> {
        let has_escapes = match quote {
            b'"' => self.double_quoted == DoubleQuoted::Strings,
            quote => quote == b'\'',
        };
        let mut at = 1;
        loop {
            let byte = *text.get(at)?;
            at += match byte {
                b'\\' if has_escapes => 2,
                _ if byte != quote => 1,
                _ if text.get(at + 1) == Some(&quote) => 2,
                _ => return Some(at + 1),
            };
        }
    }

    fn skip(&mut self, len: usize) -> UnclearText {
        self.at += len;
        UnclearText::Executed
    }

    fn end(&mut self) -> UnclearText {
        self.at = self.text.len();
        UnclearText::Unfinished
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Result<Token<'a>, UnclearText>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Err(unclear) = self.skip_space() {
            return Some(Err(unclear));
        }
        let (begin, rest) = (self.at, &self.text[self.at..]);
        let len = match *rest.first()? {
            quote @ (b'`' | b'"' | b'\'') => match self.quoted_len(rest, quote) {
                Some(len) => len,
                None => return Some(Err(self.end())),
            },
            byte if is_word(byte) => {
                rest.iter().position(|byte| !is_word(*byte)).unwrap_or(rest.len())
            }
            _ => 1,
        };
        self.at += len;
        Some(Ok(Token { text: &rest[..len], begin }))
    }
}

/// Returns whether a word may have this byte.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_$".contains(&byte) || byte >= 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<Result<String, UnclearText>> {
        let text_of = |token: Token<'_>| {
            assert_eq!(&text.as_bytes()[token.begin..][..token.text.len()], token.text);
            String::from_utf8(token.text.to_vec()).unwrap()
        };
        Tokens::new(text.as_bytes(), DoubleQuoted::Strings)
            .map(|token| token.map(text_of))
            .collect()
    }

    #[test]
    fn words_quotes_and_comments_are_told_apart() {
        for (text, tokens) in [
            ("", &[][..]),
            ("a.b", &["a", ".", "b"]),
            ("SELECT `a``b` -- c\n/* d */FROM é$1#e", &["SELECT", "`a``b`", "FROM", "é$1"]),
            ("'it''s' 'a\\'b' \"c\\\"d\" `e\\`", &["'it''s'", "'a\\'b'", "\"c\\\"d\"", "`e\\`"]),
            ("5--1 -- x", &["5", "-", "-", "1"]),
        ] {
            let tokens: Vec<_> = tokens.iter().map(|token| Ok((*token).to_owned())).collect();
            assert_eq!(texts(text), tokens, "{text}");
        }
    }

    #[test]
    fn names_in_double_quotes_have_no_escapes() {
        let text = b"\"a\\\" 'b\\'' \"c\"\"d\"";
        let tokens = Tokens::new(text, DoubleQuoted::Names).map(|token| token.unwrap().text);
        let wanted: [&[u8]; 3] = [b"\"a\\\"", b"'b\\''", b"\"c\"\"d\""];
        assert!(tokens.eq(wanted));
    }

    #[test]
    fn unclear_text_is_reported() {
        let ok = |text: &str| Ok(text.to_owned());
        let executed =
            [ok("a"), Err(UnclearText::Executed), ok("50000"), ok("b"), ok("*"), ok("/"), ok("c")];
        assert_eq!(texts("a /*!50000 b */ c"), executed);
        assert_eq!(texts("/*M!50000 b")[..2], [Err(UnclearText::Executed), ok("50000")]);
        for text in ["a 'b", "a `b", "a /* b", "a \"\\"] {
            assert_eq!(texts(text), [ok("a"), Err(UnclearText::Unfinished)], "{text}");
        }
    }
}
