//! Splits an option's value into words as a shell does, without expanding or executing anything.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// A quote is not closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unclosed quote")]
pub(crate) struct OpenQuote;

/// Splits at blanks outside quotes. `'…'` keeps everything literally; in `"…"` and in plain text
/// `\` escapes any character.
///
/// # Errors
/// [`OpenQuote`].
pub(crate) fn split(text: &[u8]) -> Result<Vec<OsString>, OpenQuote> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut quote = None;
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        match (quote, byte) {
            (Some(open), byte) if byte == open => quote = None,
            (None | Some(b'"'), b'\\') => {
                word.get_or_insert_default().push(bytes.next().unwrap_or(b'\\'));
            }
            (Some(_), byte) => word.get_or_insert_default().push(byte),
            (None, b'\'' | b'"') => {
                quote = Some(byte);
                word.get_or_insert_default();
            }
            (None, byte) if byte.is_ascii_whitespace() => words.extend(word.take()),
            (None, byte) => word.get_or_insert_default().push(byte),
        }
    }
    if quote.is_some() {
        return Err(OpenQuote);
    }
    words.extend(word);
    Ok(words.into_iter().map(OsString::from_vec).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_are_split_and_nothing_is_expanded() {
        for (text, expected) in [
            ("", &[][..]),
            ("  a  b\t", &["a", "b"]),
            ("--x='a b' \"c \\\" d\"", &["--x=a b", "c \" d"]),
            ("a\\ b ''", &["a b", ""]),
            ("$(reboot) `x` ;rm *", &["$(reboot)", "`x`", ";rm", "*"]),
        ] {
            assert_eq!(split(text.as_bytes()).unwrap(), expected, "{text}");
        }
        assert_eq!(split(b"a 'b"), Err(OpenQuote));
    }

    proptest! {
        #[test]
        fn any_text_is_split_or_refused(text in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = split(&text);
        }

        #[test]
        fn plain_words_come_back(words in proptest::collection::vec("[a-z=/-]{1,8}", 0..6)) {
            let expected: Vec<OsString> = words.iter().map(OsString::from).collect();
            prop_assert_eq!(split(words.join(" ").as_bytes()).unwrap(), expected);
        }
    }
}
