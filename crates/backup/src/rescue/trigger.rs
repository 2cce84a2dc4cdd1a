//! The statement that creates a trigger, as SHOW CREATE TRIGGER prints it: on another table.

/// A trigger of a table.
pub(super) struct Trigger {
    pub(super) name: String,
    pub(super) statement: Vec<u8>,
    /// `sql_mode`, character set and collation of the session that made it.
    pub(super) settings: [String; 3],
}

impl Trigger {
    /// The statement for the table of this name, quoted for SQL, in the default schema; `None` if it has a form that is
    /// not known.
    pub(super) fn on(&self, table: &str) -> Option<Vec<u8>> {
        let text = &self.statement[..];
        let mut tokens = Tokens { text, at: 0 };
        while !tokens.next()?.is(b"ON") {}
        let mut name = tokens.next()?;
        let begin = name.begin;
        let after = loop {
            let next = tokens.next()?;
            if !next.is(b".") {
                break next;
            }
            name = tokens.next()?;
        };
        let end = name.begin + name.text.len();
        after.is(b"FOR").then(|| [&text[..begin], table.as_bytes(), &text[end..]].concat())
    }
}

/// A word, a quoted text with its quotes, or another character.
struct Token<'a> {
    text: &'a [u8],
    begin: usize,
}

impl Token<'_> {
    fn is(&self, word: &[u8]) -> bool {
        self.text.eq_ignore_ascii_case(word)
    }
}

/// The tokens of a statement, without its comments.
struct Tokens<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Tokens<'a> {
    /// `None` at the end, and at a comment that is executed.
    fn next(&mut self) -> Option<Token<'a>> {
        self.pass_space()?;
        let begin = self.at;
        let is_word =
            |byte: u8| byte.is_ascii_alphanumeric() || b"_$".contains(&byte) || byte >= 0x80;
        let end = match *self.text.get(begin)? {
            quote @ (b'`' | b'"' | b'\'') => past_quoted(self.text, begin + 1, quote)?,
            byte if is_word(byte) => {
                let rest = self.text[begin..].iter().position(|byte| !is_word(*byte))?;
                begin + rest
            }
            _ => begin + 1,
        };
        self.at = end;
        Some(Token { text: &self.text[begin..end], begin })
    }

    fn pass_space(&mut self) -> Option<()> {
        loop {
            let rest = self.text.get(self.at..)?;
            let past = |end: &[u8]| {
                rest.windows(end.len()).position(|part| part == end).map(|at| at + end.len())
            };
            self.at += match rest {
                [byte, ..] if byte.is_ascii_whitespace() => 1,
                [b'/', b'*', b'!' | b'M', ..] => return None,
                [b'/', b'*', ..] => past(b"*/")?,
                [b'#', ..] | [b'-', b'-', b' ' | b'\t' | b'\n', ..] => past(b"\n")?,
                _ => return Some(()),
            }
        }
    }
}

/// The place behind the end of a quoted text. A doubled quote is part of it, and in strings a backslash and what follows.
/// With ANSI_QUOTES, `"` has no escapes, but no name of a trigger's head has both.
fn past_quoted(text: &[u8], mut at: usize, quote: u8) -> Option<usize> {
    loop {
        let byte = *text.get(at)?;
        at += match byte {
            b'\\' if quote == b'\'' => 2,
            _ if byte != quote => 1,
            _ if text.get(at + 1) == Some(&quote) => 2,
            _ => return Some(at + 1),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(statement: &str) -> Option<String> {
        let trigger = Trigger {
            name: String::new(),
            statement: statement.as_bytes().to_vec(),
            settings: Default::default(),
        };
        trigger.on("`x`").map(|text| String::from_utf8(text).unwrap())
    }

    #[test]
    fn the_table_of_a_trigger_is_replaced_and_nothing_else() {
        for (head, tail) in [
            (
                "CREATE DEFINER=`root`@`localhost` TRIGGER orders_ai AFTER INSERT ON ",
                " FOR EACH ROW INSERT INTO orders VALUES (1)",
            ),
            (
                "CREATE DEFINER=`a ON b FOR`@`%` TRIGGER `on``on` BEFORE UPDATE\non\n",
                " /* ON x */ for EACH ROW SET NEW.a = 'ON orders FOR'",
            ),
            (
                "CREATE DEFINER='it\\'s ON'@'h' TRIGGER s.t /* ON y FOR */ AFTER DELETE ON -- ON z\n ",
                "\tFOR EACH ROW DELETE FROM a",
            ),
            ("create trigger onward before insert on#c\n", " for each row begin end"),
        ] {
            for name in ["orders", "`or``ders`", "\"ON\"", "shop . `orders`", "`ON`.`FOR`", "ä$1"]
            {
                let found =
                    on(&format!("{head}{name}{tail}")).unwrap_or_else(|| panic!("{head}{name}"));
                assert_eq!(found, format!("{head}`x`{tail}"));
            }
        }
    }

    #[test]
    fn a_form_that_is_not_known_is_none() {
        for text in [
            "",
            "CREATE TRIGGER t AFTER INSERT ON orders",
            "CREATE TRIGGER t AFTER INSERT ON orders x FOR EACH ROW SET @a = 1",
            "CREATE TRIGGER t AFTER INSERT ON /*!50000 orders */ FOR EACH ROW SET @a = 1",
            "CREATE TRIGGER t AFTER INSERT ON `orders FOR EACH ROW SET @a = 1",
            "CREATE TRIGGER t AFTER INSERT /* ON orders FOR EACH ROW",
        ] {
            assert_eq!(on(text), None, "{text}");
        }
    }
}
