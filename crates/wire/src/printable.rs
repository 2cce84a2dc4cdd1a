//! Makes a peer's text safe for a log.

/// Escapes everything in `text` except printable characters, and truncates it after about `most`
/// bytes.
pub(crate) fn printable(text: &str, most: usize) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if out.len() >= most {
            out.push('…');
            break;
        }
        // With direction marks and the like, a peer could alter how the whole line is displayed.
        if c.is_ascii_graphic() || c == ' ' || (!c.is_ascii() && c.is_alphanumeric()) {
            out.push(c);
        } else {
            out.extend(c.escape_default());
        }
    }
    out
}

/// Like [`printable`], for arbitrary bytes.
pub(crate) fn printable_bytes(bytes: &[u8], most: usize) -> String {
    let cut = bytes.get(..most).unwrap_or(bytes);
    let mut text = cut.escape_ascii().to_string();
    if cut.len() < bytes.len() {
        text.push('…');
    }
    text
}

/// Returns the longest prefix of `text` with at most `most` bytes.
pub(crate) fn cut(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_peer_cannot_break_the_line() {
        assert_eq!(printable("a\nb\u{1b}[0m\u{202e}é", 100), "a\\nb\\u{1b}[0m\\u{202e}é");
        assert_eq!(printable("aaaa", 2), "aa…");
        assert_eq!(printable_bytes(b"\x16\x03\x01abc", 4), "\\x16\\x03\\x01a…");
    }

    proptest! {
        #[test]
        fn cuts_keep_characters_whole(text: String, most in 0_usize..20) {
            let short = cut(&text, most);
            prop_assert!(short.len() <= most && text.starts_with(short));
        }
    }
}
