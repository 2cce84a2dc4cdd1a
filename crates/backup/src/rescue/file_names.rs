//! Names of schemas and tables in the encoding of file names.
//!
//! A server writes letters and digits of ASCII and `_` as they are, about 1500 letters of other
//! alphabets as `@` and two characters, and every other character as `@` and four hexadecimal digits.
//! (MySQL Reference Manual, "Mapping of Identifiers to File Names".)

/// The characters that have a code of two characters. Each line begins with the first character of
/// its codes; pairs of the second one and the letter follow. A MariaDB server printed them all, with
/// `CONVERT(… USING filename)`.
const CODES: &str = include_str!("file_name_codes.txt");
/// Suffix that a server adds to the names of devices of Windows.
const DEVICE: &str = "@@@";

/// Decodes the name of a schema or table; `None` if it is not in this encoding.
pub(super) fn decode(encoded: &str) -> Option<String> {
    let mut rest = encoded.strip_suffix(DEVICE).unwrap_or(encoded);
    let mut name = String::with_capacity(rest.len());
    while let Some(first) = rest.chars().next() {
        let taken = match first {
            '@' => {
                let (c, taken) = of_code(rest)?;
                name.push(c);
                taken
            }
            c if c.is_ascii_alphanumeric() || c == '_' => {
                name.push(c);
                1
            }
            _ => return None,
        };
        rest = rest.get(taken..)?;
    }
    (!name.is_empty()).then_some(name)
}

/// The character of the code that the text begins with, and the length of the code.
fn of_code(text: &str) -> Option<(char, usize)> {
    // A code of two characters never looks like four hexadecimal digits: one of its characters is
    // beyond `f`, or `@`.
    let digits = text.get(1..5).filter(|code| code.bytes().all(|b| b.is_ascii_hexdigit()));
    if let Some(digits) = digits {
        return Some((char::from_u32(u32::from_str_radix(digits, 16).ok()?)?, 5));
    }
    let (first, second) = (text.get(1..2)?, text.get(2..3)?.chars().next()?);
    let line = CODES.lines().find_map(|line| line.strip_prefix(first))?;
    let mut pairs = line.chars().skip(1);
    while let (Some(code), Some(letter)) = (pairs.next(), pairs.next()) {
        if code == second {
            return Some((letter, 3));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_character_is_decoded() {
        for (encoded, name) in [
            ("orders_2", "orders_2"),
            ("sh@002dop@0020@1o", "sh-op \u{fc}"),
            ("t@0kble", "t\u{e4}ble"),
            ("100@0025@000a@002e", "100%\n."),
            ("con@@@", "con"),
            ("@0024x", "$x"),
            ("@65e5@672c", "\u{65e5}\u{672c}"),
            ("@@a@a@", "\u{24d0}\u{ff41}"),
        ] {
            assert_eq!(decode(encoded).as_deref(), Some(name), "{encoded}");
        }
        for bad in ["", "@", "@0", "@00", "@zz", "a.b", "#sql", "@d800", "\u{e4}", "@0\u{e4}"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }

    #[test]
    fn no_code_and_no_letter_is_there_twice() {
        let (mut codes, mut letters) = (Vec::new(), Vec::new());
        for line in CODES.lines() {
            let (first, pairs) = line.split_at(2);
            let pairs: Vec<char> = pairs.chars().collect();
            for pair in pairs.chunks_exact(2) {
                codes.push(format!("{first}{}", pair[0]));
                letters.push(pair[1]);
            }
        }
        codes.sort_unstable();
        codes.dedup();
        letters.sort_unstable();
        letters.dedup();
        assert_eq!((codes.len(), letters.len()), (1510, 1510));
    }
}
