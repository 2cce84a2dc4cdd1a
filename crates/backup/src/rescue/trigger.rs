//! The statement that creates a trigger, as SHOW CREATE TRIGGER prints it: on another table.

use crate::rescue::tokens::{DoubleQuoted, Tokens};

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
    fn a_trial_has_the_definer_of_the_trigger() {
        let trial = |statement: &str| {
            let statement = statement.as_bytes().to_vec();
            let trigger = Trigger { name: String::new(), statement, settings: Default::default() };
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
