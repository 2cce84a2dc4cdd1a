//! Text that is safe to print: one line, no terminal control.

use std::fmt::Write as _;

/// Returns `text` with control characters escaped (`\n`, `\u{1b}`), so that a file name or a
/// server's response can neither break a log line nor control the terminal.
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            // Writing to a String cannot fail.
            let _ = write!(out, "{}", character.escape_default());
        } else {
            out.push(character);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_the_rest_is_left() {
        assert_eq!(printable("a\nb\tc\u{1b}[2J\u{7f}\u{9b}"), "a\\nb\\tc\\u{1b}[2J\\u{7f}\\u{9b}");
        assert_eq!(printable("größe \"x\" \\n"), "größe \"x\" \\n");
    }
}
