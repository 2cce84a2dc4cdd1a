//! Names of tables: as the user gives them, as a backup holds them, and where they go.

use std::collections::{BTreeSet, HashMap, HashSet};

use xb_pipeline::logical_name;
use xb_reader::Printable;

use super::file_names::decode;
use crate::error::BackupError;
use crate::selection::table_of;
use crate::table_pattern::{TablePattern, Token, dotted};

/// How a server shows the name of a file or folder that is in no encoding of names, such as that of a folder
/// that was copied by hand.
const UNENCODED: &str = "#mysql50#";
/// Beginning of the names of left-overs of statements.
const LEFT_OVER: &str = "#sql";
/// Maximum length of a table's name, in characters.
const MAX_NAME: usize = 64;
/// Maximum number of near names in an error.
const MAX_NEAR: usize = 5;

/// A table that a backup holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct StoredTable {
    pub(super) schema: String,
    pub(super) table: String,
    /// `SCHEMA/TABLE` in the encoding of file names.
    pub(super) files: String,
}

/// A table to rescue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) held: StoredTable,
    /// Whether it was named exactly, not by a pattern.
    pub(super) by_name: bool,
}

/// A table to rescue, and the schema and name that it gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamedTable {
    pub(super) chosen: Chosen,
    pub(super) schema: String,
    pub(super) table: String,
}

impl StoredTable {
    fn is_unencoded(&self) -> bool {
        [&self.schema, &self.table].iter().any(|name| name.starts_with(UNENCODED))
    }
}

/// A name without the prefix of those that are in no encoding.
fn plain(name: &str) -> &str {
    name.strip_prefix(UNENCODED).unwrap_or(name)
}

/// The name for people.
impl std::fmt::Display for StoredTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Printable::new(format!("{}.{}", self.schema, self.table).as_bytes()).fmt(f)
    }
}

/// The tables and views among the files of a backup: those with a definition.
pub(super) fn held<'a>(files: impl Iterator<Item = &'a str>) -> Vec<StoredTable> {
    let mut held = BTreeSet::new();
    for file in files {
        let Ok(file) = std::str::from_utf8(logical_name(file.as_bytes())) else { continue };
        let (true, Some(files)) = (file.ends_with(".frm"), table_of(file.as_bytes())) else {
            continue;
        };
        if let Some((schema, table)) = files.split_once('/')
            && !table.starts_with(LEFT_OVER)
        {
            let name = |place: &str| decode(place).unwrap_or_else(|| format!("{UNENCODED}{place}"));
            let (schema, table) = (name(schema), name(table));
            held.insert(StoredTable { schema, table, files: files.to_owned() });
        }
    }
    held.into_iter().collect()
}

/// The tables that the user asks for.
///
/// # Errors
/// [`BackupError::Selection`] for a name that has not the right form, and for one that matches
/// nothing.
pub(super) fn choose(held: &[StoredTable], asked: &[String]) -> Result<Vec<Chosen>, BackupError> {
    let (chosen, missing) = choose_present(held, asked)?;
    missing.map_or(Ok(chosen), |what| Err(BackupError::Selection(what)))
}

/// The tables that the user asks for, as far as they are there, and what is to be said of one that is not.
///
/// # Errors
/// [`BackupError::Selection`] for a name that has not the right form.
pub(super) fn choose_present(
    held: &[StoredTable],
    asked: &[String],
) -> Result<(Vec<Chosen>, Option<String>), BackupError> {
    let mut missing = None;
    let mut chosen: Vec<Chosen> = Vec::new();
    let mut places: HashMap<&StoredTable, usize> = HashMap::new();
    for text in asked {
        let pattern = TablePattern::parse(text).map_err(BackupError::Selection)?;
        let is_asked = |held: &&StoredTable| {
            pattern.matches(&held.schema, &held.table)
                && (pattern.is_exact() || !held.is_unencoded())
        };
        let found: Vec<&StoredTable> = held.iter().filter(is_asked).collect();
        if found.is_empty() {
            missing.get_or_insert_with(|| nothing(held, text, &pattern));
        }
        for table in found {
            match places.get(table).and_then(|place| chosen.get_mut(*place)) {
                Some(before) => before.by_name |= pattern.is_exact(),
                None => {
                    places.insert(table, chosen.len());
                    chosen.push(Chosen { held: table.clone(), by_name: pattern.is_exact() });
                }
            }
        }
    }
    Ok((chosen, missing))
}

/// The tables that only a pattern matches, and that are left out for their names: most are no tables of the server, but copies
/// that were left in its data directory.
pub(super) fn left_out(held: &[StoredTable], asked: &[String]) -> Vec<String> {
    let patterns: Vec<TablePattern> =
        asked.iter().filter_map(|text| TablePattern::parse(text).ok()).collect();
    let is_left_out = |held: &&StoredTable| {
        let is_of =
            |pattern: &&TablePattern| pattern.matches(plain(&held.schema), plain(&held.table));
        let is_named = |pattern: &TablePattern| {
            pattern.is_exact() && pattern.matches(&held.schema, &held.table)
        };
        let is_pattern = |pattern: &&TablePattern| !pattern.is_exact();
        held.is_unencoded()
            && patterns.iter().filter(is_pattern).any(|pattern| is_of(&pattern))
            && !patterns.iter().any(is_named)
    };
    held.iter().filter(is_left_out).map(ToString::to_string).collect()
}

fn nothing(held: &[StoredTable], text: &str, pattern: &TablePattern) -> String {
    let shown = Printable::new(text.as_bytes());
    let wanted = pattern.exact_table().unwrap_or_default().to_lowercase();
    let full = text.to_lowercase();
    let mut near: Vec<(usize, &StoredTable)> = held
        .iter()
        .map(|held| {
            let name = format!("{}.{}", held.schema, held.table).to_lowercase();
            let same = plain(&held.table).to_lowercase() == wanted;
            let unlike = usize::from(held.is_unencoded());
            (if same { unlike } else { distance(&full, &name) }, held)
        })
        .filter(|(distance, _)| *distance <= 1 + full.chars().count() / 4)
        .collect();
    near.sort();
    let near: Vec<String> = near.iter().take(MAX_NEAR).map(|(_, held)| held.to_string()).collect();
    match near.is_empty() {
        true => format!(
            "there is no table {shown}, and none with a similar name; `show` lists the files of a backup"
        ),
        false => format!("there is no table {shown}, but {}", near.join(", ")),
    }
}

/// Number of characters to insert, remove or replace to make one text the other (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let changed = corner + usize::from(x != *y);
            corner = row[j + 1];
            row[j + 1] = changed.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// Names of the rescued tables, from a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NewNames {
    schema: Option<String>,
    table: String,
}

impl NewNames {
    /// Parses `[SCHEMA.]TABLE`, in which `{table}` stands for the name in the backup and `{date}` for
    /// the day of the backup. Backquotes work as in the names of tables.
    pub(super) fn parse(template: &str) -> Result<Self, BackupError> {
        let wrong = |why: &str| {
            BackupError::Selection(format!(
                "--as={}: {why}; give a name, or SCHEMA.NAME, with {{table}} for the name in the backup",
                Printable::new(template.as_bytes())
            ))
        };
        let parts = dotted(template).map_err(BackupError::Selection)?;
        let text = |tokens: &Vec<Token>| {
            let c = |token: &Token| match token {
                Token::Is(c) => *c,
                Token::Any => '?',
                Token::Many => '*',
            };
            tokens.iter().map(c).collect::<String>()
        };
        let (schema, table) = match &parts[..] {
            [table] => (None, text(table)),
            [schema, table] => (Some(text(schema)), text(table)),
            _ => return Err(wrong("more than one dot")),
        };
        match table.is_empty() || schema.as_ref().is_some_and(String::is_empty) {
            true => Err(wrong("a name is empty")),
            false => Ok(Self { schema, table }),
        }
    }

    /// The schema that the template names.
    pub(super) fn schema(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    /// The tables with the schema and name that each of them gets, and what is to be said of those that only a pattern matches
    /// and whose new names are too long.
    ///
    /// # Errors
    /// [`BackupError::Selection`] if the name of a table that was named exactly is too long, or of all; or if two tables get
    /// the same one.
    pub(super) fn of(
        &self,
        tables: Vec<Chosen>,
        date: &str,
    ) -> Result<(Vec<NamedTable>, Vec<String>), BackupError> {
        let mut named = Vec::with_capacity(tables.len());
        let mut too_long = Vec::new();
        let mut taken = HashSet::new();
        for chosen in tables {
            let held = &chosen.held;
            let table = self.table.replace("{date}", date).replace("{table}", plain(&held.table));
            if table.chars().count() > MAX_NAME {
                let what = format!(
                    "{held}: the name {} is longer than {MAX_NAME} characters; give a shorter one with --as",
                    Printable::new(table.as_bytes())
                );
                if chosen.by_name {
                    return Err(BackupError::Selection(what));
                }
                too_long.push(what);
                continue;
            }
            let schema = self.schema.clone().unwrap_or_else(|| plain(&held.schema).to_owned());
            if !taken.insert((schema.clone(), table.clone())) {
                let what = format!(
                    "{held} and another table would both be called {}; use {{table}} in --as, or rescue them one by one",
                    Printable::new(format!("{schema}.{table}").as_bytes())
                );
                return Err(BackupError::Selection(what));
            }
            named.push(NamedTable { chosen, schema, table });
        }
        match too_long.first() {
            Some(what) if named.is_empty() => Err(BackupError::Selection(what.clone())),
            _ => Ok((named, too_long)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<StoredTable> {
        held(
            [
                "shop/orders.frm",
                "shop/orders.ibd.delta.zst",
                "shop/order_lines.frm.qp",
                "shop/a_view.frm",
                "shop/a@002eb.frm",
                "sh@002dop/t@0kble.frm",
                "mysql/user.frm",
                "shop/#sql-1.frm",
                "shop/old-orders.frm",
                "shop.bak/orders.frm",
                "ibdata1",
            ]
            .into_iter(),
        )
    }

    fn chosen(asked: &[&str]) -> Result<Vec<String>, String> {
        let asked: Vec<String> = asked.iter().map(|text| (*text).to_owned()).collect();
        let chosen = choose(&all(), &asked).map_err(|error| error.to_string())?;
        Ok(chosen
            .into_iter()
            .map(|c| format!("{}{}", c.held, if c.by_name { "!" } else { "" }))
            .collect())
    }

    #[test]
    fn tables_are_found_by_their_names_in_sql() {
        assert_eq!(chosen(&["shop.orders"]).unwrap(), ["shop.orders!"]);
        assert_eq!(
            chosen(&["shop.ord*", "shop.orders"]).unwrap(),
            ["shop.order_lines", "shop.orders!"]
        );
        assert_eq!(chosen(&["sh-op.t\u{e4}ble"]).unwrap().len(), 1);
        assert_eq!(chosen(&["shop.`a.b`"]).unwrap(), ["shop.a.b!"]);
        assert_eq!(chosen(&["*.*"]).unwrap().len(), 5, "not those of the server itself");
        assert_eq!(chosen(&["mysql.us?r"]).unwrap(), ["mysql.user"]);
    }

    #[test]
    fn a_name_in_no_encoding_has_to_be_given_and_is_named_otherwise() {
        let old = "shop.#mysql50#old-orders";
        assert_eq!(chosen(&[old, "`#mysql50#shop.bak`.orders"]).unwrap().len(), 2);
        let left = |asked: &[&str]| {
            let asked: Vec<String> = asked.iter().map(|text| (*text).to_owned()).collect();
            left_out(&all(), &asked)
        };
        assert_eq!(left(&["*.*"]), ["#mysql50#shop.bak.orders", old]);
        assert_eq!(left(&["shop.*"]), [old]);
        assert_eq!(left(&["shop.old*"]), [old]);
        assert!(left(&["shop.*", old]).is_empty() && left(&["shop.orders"]).is_empty());
        let error = chosen(&["shop.old-orders"]).unwrap_err();
        assert!(error.contains(&format!("but {old}")), "{error}");
        let named = NewNames::parse("{table}")
            .unwrap()
            .of(choose(&all(), &[old.to_owned()]).unwrap(), "20261120");
        assert_eq!(named.unwrap().0[0].table, "old-orders");
    }

    #[test]
    fn an_unmatched_name_is_an_error_with_near_names() {
        let error = chosen(&["shop.ordres"]).unwrap_err();
        assert!(error.contains("no table shop.ordres, but shop.orders"), "{error}");
        assert!(chosen(&["old.orders"]).unwrap_err().contains("but shop.orders"));
        assert!(chosen(&["SHOP.ORDERS"]).unwrap_err().contains("but shop.orders"));
        assert!(chosen(&["x.nothing_like_it"]).unwrap_err().contains("none with a similar name"));
        assert!(chosen(&["shop.`ord*`"]).unwrap_err().contains("no table"));
        assert!(chosen(&["orders"]).unwrap_err().contains("the schema is missing"));
        assert!(chosen(&["shop.a.b"]).unwrap_err().contains("more than one dot"));
        assert!(chosen(&["shop."]).unwrap_err().contains("a name is empty"));
        assert!(chosen(&["shop.`x"]).unwrap_err().contains("not closed"));
    }

    /// A log that is replayed may bring a table that the backup lacks; nothing else is passed over before.
    #[test]
    fn only_a_table_that_is_not_there_is_passed_over() {
        let present = |asked: &[&str]| {
            let asked: Vec<String> = asked.iter().map(|text| (*text).to_owned()).collect();
            choose_present(&all(), &asked).map(|(chosen, missing)| (chosen.len(), missing))
        };
        assert_eq!(present(&["shop.orders"]).unwrap(), (1, None));
        let (chosen, missing) = present(&["shop.made", "shop.orders"]).unwrap();
        assert!(chosen == 1 && missing.unwrap().contains("no table shop.made"));
        assert!(present(&["shop.made", "orders"]).is_err());
    }

    #[test]
    fn new_names_follow_the_template() {
        let chosen = choose(&all(), &["shop.ord*".to_owned()]).unwrap();
        let names = |template: &str| -> Result<Vec<(String, String)>, BackupError> {
            let (named, _) = NewNames::parse(template)?.of(chosen.clone(), "20261120")?;
            Ok(named.into_iter().map(|named| (named.schema, named.table)).collect())
        };
        let pair = |schema: &str, table: &str| (schema.to_owned(), table.to_owned());
        assert_eq!(
            names("{table}_rescued_{date}").unwrap()[1],
            pair("shop", "orders_rescued_20261120")
        );
        assert_eq!(names("old.`{table}.x`").unwrap()[1], pair("old", "orders.x"));
        assert!(names("one").is_err() && names("").is_err() && names("a.b.c").is_err());
        assert!(
            names(&"x".repeat(64)).is_err()
                && names(&format!("{{table}}{}", "x".repeat(60))).is_err()
        );
        // `orders` fits, and `order_lines` does not.
        let long = NewNames::parse(&format!("{{table}}{}", "x".repeat(57))).unwrap();
        let (named, left) = long.of(chosen, "20261120").unwrap();
        assert_eq!(
            named.iter().map(|named| &*named.chosen.held.table).collect::<Vec<_>>(),
            ["orders"]
        );
        assert!(
            left.len() == 1 && left[0].starts_with("shop.order_lines: the name order_lines"),
            "{left:?}"
        );
        let by_name =
            choose(&all(), &["shop.ord*", "shop.order_lines"].map(str::to_owned)).unwrap();
        assert!(long.of(by_name, "20261120").is_err());
    }
}
