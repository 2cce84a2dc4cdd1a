//! Patterns of tables by their names in SQL.

use xb_reader::Printable;

/// Schemas that a pattern matches only by their exact name.
const SYSTEM: [&str; 4] = ["mysql", "sys", "performance_schema", "information_schema"];
/// Words for a schema.
const SCHEMAS: [&str; 2] = ["database", "schema"];

/// One character of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token {
    Is(char),
    /// `?`
    Any,
    /// `*`
    Many,
}

/// `SCHEMA.TABLE`, in which `*` and `?` stand for others unless they are in backquotes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TablePattern {
    schema: Vec<Token>,
    table: Vec<Token>,
}

impl TablePattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// A text for the user, if it has not the right form.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| {
            Err(format!(
                "{}: {why}; give SCHEMA.TABLE, and put a name that contains a dot, a star or a question mark into backquotes",
                Printable::new(text.as_bytes())
            ))
        };
        let mut parts = dotted(text)?;
        match (parts.pop(), parts.pop(), parts.pop()) {
            (Some(table), Some(schema), None) if !table.is_empty() && !schema.is_empty() => {
                Ok(Self { schema, table })
            }
            (Some(_), None, None) => wrong("the schema is missing"),
            (_, _, Some(_)) => wrong("more than one dot"),
            _ => wrong("a name is empty"),
        }
    }

    /// Returns whether it is this table. The schemas of the server itself match only by their exact names.
    pub(crate) fn matches(&self, schema: &str, table: &str) -> bool {
        let system = SYSTEM.contains(&schema) && plain(&self.schema).is_none();
        !system && matches(&self.schema, schema) && matches(&self.table, table)
    }

    pub(crate) fn is_exact(&self) -> bool {
        plain(&self.schema).is_some() && self.exact_table().is_some()
    }

    /// The name of the table, if the pattern names only one.
    pub(crate) fn exact_table(&self) -> Option<String> {
        plain(&self.table)
    }

    /// Returns whether a statement with this default schema may concern the table: the name of the table is in it, and that of
    /// the schema, or it is the default one; or it creates, alters or drops the schema. Upper and lower case are alike,
    /// and names count wherever they stand, also in texts and comments, whose limits depend on the server's settings: it
    /// may say yes for a statement on another table, but not no for one that names this.
    pub(crate) fn may_be_in(&self, default: &str, statement: &str) -> bool {
        let (statement, default) = (statement.to_lowercase(), default.to_lowercase());
        let names = names(&statement);
        let folded = |tokens: &[Token]| -> Vec<Token> {
            let fold = |token: &Token| match token {
                Token::Is(c) => c.to_lowercase().map(Token::Is).collect(),
                other => vec![*other],
            };
            tokens.iter().flat_map(fold).collect()
        };
        let has = |pattern: &[Token]| {
            let is_quoted =
                |text: String| !text.chars().all(is_of_word) && statement.contains(&text);
            names.iter().any(|name| matches(pattern, name)) || plain(pattern).is_some_and(is_quoted)
        };
        let (schema, table) = (folded(&self.schema), folded(&self.table));
        let is_of_schema = names.iter().any(|name| SCHEMAS.contains(name));
        (has(&schema) || matches(&schema, &default)) && (has(&table) || is_of_schema)
    }
}

/// Letters of a name that needs no quotes.
fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

/// Returns possible names in a statement: its words, and texts between backquotes or double quotes.
fn names(statement: &str) -> Vec<&str> {
    let words = statement.split(|c| !is_of_word(c));
    let quoted = ['`', '"'].into_iter().flat_map(|quote| statement.split(quote));
    words.chain(quoted).filter(|name| !name.is_empty()).collect()
}

/// Divides a name at the dots outside backquotes.
pub(crate) fn dotted(text: &str) -> Result<Vec<Vec<Token>>, String> {
    let (mut parts, mut quoted) = (vec![Vec::new()], false);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let token = match c {
            '`' if quoted && chars.peek() == Some(&'`') => {
                chars.next();
                Token::Is('`')
            }
            '`' => {
                quoted = !quoted;
                continue;
            }
            '.' if !quoted => {
                parts.push(Vec::new());
                continue;
            }
            '*' if !quoted => Token::Many,
            '?' if !quoted => Token::Any,
            c => Token::Is(c),
        };
        if let Some(part) = parts.last_mut() {
            part.push(token);
        }
    }
    match quoted {
        true => Err(format!("{}: a backquote is not closed", Printable::new(text.as_bytes()))),
        false => Ok(parts),
    }
}

/// The text of a pattern that matches only itself.
fn plain(tokens: &[Token]) -> Option<String> {
    tokens.iter().map(|token| if let Token::Is(c) = token { Some(*c) } else { None }).collect()
}

fn matches(pattern: &[Token], name: &str) -> bool {
    let name: Vec<char> = name.chars().collect();
    let (mut p, mut n) = (0, 0);
    // Where the last star is, and how much of the name it takes so far.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(Token::Many) => {
                star = Some((p, n));
                p += 1;
            }
            Some(Token::Any) => (p, n) = (p + 1, n + 1),
            Some(Token::Is(c)) if *c == name[n] => (p, n) = (p + 1, n + 1),
            _ => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    (p, n) = (at + 1, taken + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|token| *token == Token::Many)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_takes_any_number_of_characters() {
        let of = |pattern: &str, name: &str| matches(&dotted(pattern).unwrap()[0], name);
        for (pattern, name) in
            [("*", ""), ("a*b*c", "aXbYbZc"), ("a?c", "abc"), ("*a", "aa"), ("", "")]
        {
            assert!(of(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("a*b", "abc"), ("?", ""), ("a", "A"), ("*ab*", "aXb")] {
            assert!(!of(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn statements_that_may_concern_a_table_are_found() {
        let may = |pattern: &str, default: &str, statement: &str| {
            TablePattern::parse(pattern).unwrap().may_be_in(default, statement)
        };
        for (default, statement) in [
            ("shop", "DROP TABLE orders"),
            ("", "DROP TABLE `shop`.`Orders` /* generated by server */"),
            ("x", "/*!40000 DROP DATABASE IF EXISTS shop */"),
            ("x", "create or replace schema SHOP"),
            ("shop", "RENAME TABLE a TO b, orders TO c"),
            ("shop", "ALTER TABLE \"orders\" ADD x INT DEFAULT 'it''s'"),
            ("shop", "/* don't */ ALTER TABLE orders /* won't */"),
            ("", "-- Bob's\nALTER TABLE shop.orders DROP COLUMN price"),
            ("x", "/* ticket 4711, asked by ops */ DROP DATABASE shop"),
            ("shop", "ALTER DATABASE CHARACTER SET utf8mb4"),
        ] {
            assert!(may("shop.orders", default, statement), "{statement}");
            assert!(may("sh*.o?ders", default, statement), "{statement}");
        }
        for (default, statement) in [
            ("shop", "DROP TABLE items"),
            ("other", "DROP TABLE orders"),
            ("shop", "DROP TABLE orders2"),
            ("x", "DROP DATABASE other"),
        ] {
            assert!(!may("shop.orders", default, statement), "{statement}");
        }
        assert!(may("shop.`a.b`", "", "DROP TABLE shop.`a.b`"));
        assert!(may("shop.`a-b`", "shop", "DROP TABLE `a-b`"));
        assert!(may("shop.a-*", "shop", "DROP TABLE `a-b`"));
    }
}
