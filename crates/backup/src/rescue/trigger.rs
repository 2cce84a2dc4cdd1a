//! The statement that creates a trigger, as SHOW CREATE TRIGGER prints it: on another table.

use xb_mysql::{Error, Row};
use xb_repo::hex::hex;

use super::rows::sql;
use crate::rescue::tokens::{DoubleQuoted, Tokens};

/// A trigger of a table.
pub(super) struct Trigger {
    pub(super) name: String,
    /// In the character set of the session that made it.
    pub(super) statement: Vec<u8>,
    /// `sql_mode`, character set and collation of the session that made it.
    pub(super) settings: [String; 3],
    /// The statement for people, if it is not the same as UTF-8.
    pub(super) readable: Option<String>,
}

impl Trigger {
    /// The statement that shows a trigger.
    fn show(schema: &str, name: &str) -> String {
        format!("SHOW CREATE TRIGGER {}.{}", sql(schema), sql(name))
    }

    /// Reads the answer to [`show`](Self::show).
    ///
    /// # Errors
    /// [`Error::Unexpected`]: there is none, or the settings are not single words.
    fn read(name: &str, shown: &[Row]) -> Result<Self, Error> {
        let row = shown.first().ok_or(Error::Unexpected)?;
        let text = |column| {
            let text = row.get(column).and_then(|text| std::str::from_utf8(text).ok());
            text.map(str::to_owned).ok_or(Error::Unexpected)
        };
        let settings = [text(1)?, text(3)?, text(4)?];
        // They become words of a statement.
        let plain = |word: &String| word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !settings[1..].iter().all(plain) {
            return Err(Error::Unexpected);
        }
        let statement = row.get(2).ok_or(Error::Unexpected)?.to_vec();
        Ok(Self { name: name.to_owned(), statement, settings, readable: None })
    }

    /// Reads a trigger by asking a server.
    ///
    /// # Errors
    /// As of `ask`, and of [`read`](Self::read).
    pub(super) fn look(
        schema: &str,
        name: &str,
        mut ask: impl FnMut(String) -> Result<Vec<Row>, Error>,
    ) -> Result<Self, Error> {
        let mut trigger = Self::read(name, &ask(Self::show(schema, name))?)?;
        if let Some(convert) = trigger.convert() {
            let [text] = ask(convert)?.first().ok_or(Error::Unexpected)?.texts()?;
            trigger.readable = Some(text);
        }
        Ok(trigger)
    }

    /// The statement that shows its text as UTF-8; `None` if it is UTF-8.
    fn convert(&self) -> Option<String> {
        let [_, charset, _] = &self.settings;
        let is_same = self.statement.is_ascii() || charset.starts_with("utf8");
        let text = || hex(&self.statement);
        (!is_same).then(|| format!("SELECT CONVERT(_{charset} x'{}' USING utf8mb4)", text()))
    }

    /// Its statement as UTF-8, and the settings with which a session runs it that has read it: it does the same then, in
    /// whichever character set that is.
    pub(super) fn for_people(&self) -> (String, [&str; 3]) {
        let [mode, charset, collation] = self.settings.each_ref().map(String::as_str);
        match &self.readable {
            Some(text) => (text.clone(), [mode, "@@character_set_results", collation]),
            None => {
                (String::from_utf8_lossy(&self.statement).into_owned(), [mode, charset, collation])
            }
        }
    }

    /// Its statement as UTF-8, if it is known so.
    fn text(&self) -> &[u8] {
        self.readable.as_ref().map_or(&self.statement, |text| text.as_bytes())
    }

    /// Returns whether it does the same as another one of its table, whose name a server writes otherwise after a rename.
    /// The character set says only how the text is written.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let is_same = match (self.around_table(), other.around_table()) {
            (Some(own), Some(theirs)) => own == theirs,
            _ => self.text() == other.text(),
        };
        let [mode, _, collation] = &self.settings;
        let [other_mode, _, other_collation] = &other.settings;
        is_same && mode == other_mode && in_full(collation) == in_full(other_collation)
    }

    /// The parts of the statement in front of the table, and the text behind it. `None` as for [`on`](Self::on).
    fn around_table(&self) -> Option<(Vec<Vec<u8>>, &[u8])> {
        let text = self.text();
        let mut tokens = Tokens::new(text, DoubleQuoted::Names).map_while(Result::ok);
        let mut head = Vec::new();
        loop {
            let token = tokens.next()?;
            if token.is("ON") {
                break;
            }
            let is_name = token.text.starts_with(b"`");
            head.push(if is_name { token.text.to_vec() } else { token.text.to_ascii_uppercase() });
        }
        let behind = tokens.find(|token| token.is("FOR"))?;
        Some((head, &text[behind.begin..]))
    }

    /// The statement for the table of this name, quoted for SQL, in the default schema; `None` if it has a form that is
    /// not known.
    pub(super) fn on(&self, table: &str) -> Option<Vec<u8>> {
        let text = &self.statement[..];
        // In front of the table, double quotes enclose names. A comment that only some versions execute may hold the table.
        let mut tokens = Tokens::new(text, DoubleQuoted::Names).map_while(Result::ok);
        while !tokens.next()?.is("ON") {}
        let mut name = tokens.next()?;
        let begin = name.begin;
        let after = loop {
            let next = tokens.next()?;
            if !next.is(".") {
                break next;
            }
            name = tokens.next()?;
        };
        let end = name.begin + name.text.len();
        after.is("FOR").then(|| [&text[..begin], table.as_bytes(), &text[end..]].concat())
    }

    /// A statement that makes a trigger of this name on this table, both quoted for SQL, which does nothing: a login that
    /// may make it may make this one, which has the same definer. `None` as for [`on`](Self::on).
    pub(super) fn trial(&self, name: &str, table: &str) -> Option<Vec<u8>> {
        let text = &self.statement[..];
        let mut tokens = Tokens::new(text, DoubleQuoted::Names).map_while(Result::ok);
        let begin = loop {
            let token = tokens.next()?;
            if token.is("TRIGGER") {
                break token.begin;
            }
        };
        let rest =
            format!("TRIGGER {name} BEFORE INSERT ON {table} FOR EACH ROW SET @xb_rescue_ = 1");
        Some([&text[..begin], rest.as_bytes()].concat())
    }
}

/// The name of a collation as newer servers write it: older ones say `utf8` for `utf8mb3`.
fn in_full(name: &str) -> String {
    match name.strip_prefix("utf8") {
        Some(rest) if rest.is_empty() || rest.starts_with('_') => format!("utf8mb3{rest}"),
        _ => name.to_owned(),
    }
}

/// Returns whether triggers of both tables that have the same name fire in the same order.
pub(super) fn is_same_order(one: &[&str], other: &[&str]) -> bool {
    let own = one.iter().filter(|name| other.contains(name));
    own.eq(other.iter().filter(|name| one.contains(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_statement(statement: Vec<u8>) -> Trigger {
        let (name, settings) = (String::new(), Default::default());
        Trigger { name, statement, settings, readable: None }
    }

    fn on(statement: &str) -> Option<String> {
        let trigger = of_statement(statement.as_bytes().to_vec());
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
    fn a_trigger_is_another_one_if_more_differs_than_how_its_table_is_written() {
        let of = |statement: &str| {
            let statement = statement.as_bytes().to_vec();
            of_statement(statement)
        };
        let is_like = |other: &str| {
            of("CREATE DEFINER=`a`@`%` TRIGGER t AFTER INSERT on x FOR EACH ROW SET @a = 'b'")
                .is_like(&of(other))
        };
        let head = "CREATE DEFINER=`a`@`%` TRIGGER t AFTER INSERT";
        assert!(is_like(&format!("{head} ON `x` FOR EACH ROW SET @a = 'b'")));
        for other in [
            format!("{head} ON `x` FOR EACH ROW SET @a = 'B'"),
            format!("{head} ON `x`"),
            head.replace("`a`", "`A`") + " ON `x` FOR EACH ROW SET @a = 'b'",
            head.replace("AFTER", "BEFORE") + " ON `x` FOR EACH ROW SET @a = 'b'",
        ] {
            assert!(!is_like(&other), "{other}");
        }
        let mut other =
            of("CREATE DEFINER=`a`@`%` TRIGGER t AFTER INSERT on x FOR EACH ROW SET @a = 'b'");
        other.settings[0] = "ANSI".to_owned();
        assert!(!other.is_like(&of(
            "CREATE DEFINER=`a`@`%` TRIGGER t AFTER INSERT on x FOR EACH ROW SET @a = 'b'"
        )));
    }

    #[test]
    fn a_collation_has_two_names() {
        let of = |settings: [&str; 3]| {
            let settings = settings.map(str::to_owned);
            Trigger { settings, ..of_statement(b"CREATE TRIGGER t".to_vec()) }
        };
        let old = of(["", "utf8", "utf8_general_ci"]);
        assert!(old.is_like(&of(["", "utf8mb3", "utf8mb3_general_ci"])));
        for other in [["ANSI", "utf8", "utf8_general_ci"], ["", "utf8", "utf8mb4_general_ci"]] {
            assert!(!old.is_like(&of(other)), "{other:?}");
        }
    }

    #[test]
    fn a_text_that_is_not_utf_8_is_converted_for_people() {
        let of = |charset: &str, text: &[u8]| {
            let settings = ["ANSI", charset, "latin1_swedish_ci"].map(str::to_owned);
            Trigger { settings, ..of_statement(text.to_vec()) }
        };
        assert_eq!(of("latin1", b"a").convert(), None);
        assert_eq!(of("utf8mb3", "\u{e4}".as_bytes()).convert(), None);
        let mut latin = of("latin1", b"\xe4");
        let ask = "SELECT CONVERT(_latin1 x'e4' USING utf8mb4)";
        assert_eq!(latin.convert().as_deref(), Some(ask));
        assert!(!latin.is_like(&of("utf8mb4", "\u{e4}".as_bytes())));
        latin.readable = Some("\u{e4}".to_owned());
        assert!(latin.is_like(&of("utf8mb4", "\u{e4}".as_bytes())));
        let settings = ["ANSI", "@@character_set_results", "latin1_swedish_ci"];
        assert_eq!(latin.for_people(), ("\u{e4}".to_owned(), settings));
    }

    #[test]
    fn only_the_order_of_triggers_that_both_have_counts() {
        assert!(is_same_order(&["a", "b", "c"], &["x", "a", "c"]));
        assert!(!is_same_order(&["a", "b"], &["b", "x", "a"]));
    }

    #[test]
    fn a_trial_has_the_definer_of_the_trigger() {
        let trial = |statement: &str| {
            let statement = statement.as_bytes().to_vec();
            let trigger = of_statement(statement);
            trigger.trial("`n`", "`t`").map(|text| String::from_utf8(text).unwrap())
        };
        let body = "TRIGGER `n` BEFORE INSERT ON `t` FOR EACH ROW SET @xb_rescue_ = 1";
        let head = "CREATE DEFINER=`TRIGGER `@`%` ";
        let found = trial(&format!("{head}trigger o AFTER INSERT ON a FOR EACH ROW SET @a = 1"));
        assert_eq!(found.unwrap(), format!("{head}{body}"));
        assert_eq!(trial("CREATE VIEW a AS SELECT 1"), None);
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
