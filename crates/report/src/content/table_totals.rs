//! Bytes of each table, before and after compression.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

/// Number of tables counted one by one at most. Beyond it, the smallest half is added up.
const MAX_TABLES: usize = 8192;

/// Endings of names that do not belong to the table: of compressed and encrypted files, and of
/// incremental backups.
const SUFFIXES: [&str; 7] = [".zst", ".lz4", ".qp", ".xbcrypt", ".delta", ".meta", ".new"];

/// Bytes of one table, or of several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// As the producer wrote it.
    #[serde(rename = "raw")]
    pub plain: u64,
    /// Share of the stored bytes.
    pub stored: u64,
}

/// One table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// Schema and table: `shop.orders`; or the name of a file outside of any schema.
    #[serde(rename = "table")]
    pub name: String,
    /// Its bytes.
    #[serde(flatten)]
    pub sizes: Sizes,
}

/// The largest tables, and the sum of all others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tables {
    /// The largest tables, the largest first.
    pub largest: Vec<Table>,
    /// Bytes of all others.
    pub rest: Sizes,
    /// Number of the others. A table may count twice if there were very many.
    pub rest_tables: u64,
    /// Bytes of all tables.
    pub all: Sizes,
}

/// Bytes of all tables.
#[derive(Debug)]
pub(crate) struct TableTotals {
    tables: HashMap<String, Sizes>,
    rest: Sizes,
    rest_tables: u64,
    max: usize,
}

impl Default for TableTotals {
    fn default() -> Self {
        Self { tables: HashMap::new(), rest: Sizes::default(), rest_tables: 0, max: MAX_TABLES }
    }
}

impl TableTotals {
    /// Adds bytes of a file.
    pub(crate) fn add(&mut self, path: &[u8], plain: u64, stored: u64) {
        let name = table_of(&String::from_utf8_lossy(path));
        let sizes = self.tables.entry(name).or_default();
        sizes.plain += plain;
        sizes.stored += stored;
        if self.tables.len() > self.max {
            self.thin_out();
        }
    }

    fn thin_out(&mut self) {
        let mut plain: Vec<u64> = self.tables.values().map(|sizes| sizes.plain).collect();
        let middle = plain.len() / 2;
        let (_, median, _) = plain.select_nth_unstable(middle);
        let (median, mut spare) = (*median, self.tables.len() - self.max / 2);
        let (rest, rest_tables) = (&mut self.rest, &mut self.rest_tables);
        // Many tables may have the size of the median.
        self.tables.retain(|_, sizes| {
            let goes = sizes.plain <= median && spare > 0;
            if goes {
                spare -= 1;
                rest.plain += sizes.plain;
                rest.stored += sizes.stored;
                *rest_tables += 1;
            }
            !goes
        });
    }

    /// Returns the `number` largest tables, if there is any.
    pub(crate) fn largest(&self, number: usize) -> Option<Tables> {
        let table = |(name, sizes): (&String, &Sizes)| Table { name: name.clone(), sizes: *sizes };
        let mut largest: Vec<Table> = self.tables.iter().map(table).collect();
        largest.sort_by(|a, b| b.sizes.plain.cmp(&a.sizes.plain).then_with(|| a.name.cmp(&b.name)));
        let small = largest.split_off(number.min(largest.len()));
        let mut rest = self.rest;
        for table in &small {
            rest.plain += table.sizes.plain;
            rest.stored += table.sizes.stored;
        }
        let mut all = rest;
        for table in &largest {
            all.plain += table.sizes.plain;
            all.stored += table.sizes.stored;
        }
        let rest_tables = self.rest_tables + small.len() as u64;
        (!largest.is_empty()).then_some(Tables { largest, rest, rest_tables, all })
    }
}

/// Name of the table to which a file belongs: `shop.orders` for `shop/orders#P#p0.ibd.zst`. A file
/// outside of any schema is a table of its own.
fn table_of(path: &str) -> String {
    let mut path = path.strip_prefix("./").unwrap_or(path);
    while let Some(shorter) = SUFFIXES.iter().find_map(|suffix| path.strip_suffix(suffix)) {
        path = shorter;
    }
    let Some((schema, file)) = path.split_once('/') else { return path.to_owned() };
    let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem);
    let table = ["#P#", "#p#"].into_iter().find_map(|part| stem.split_once(part));
    let table = table.map_or(stem, |(table, _)| table);
    format!("{}.{}", readable(schema), readable(table))
}

/// Undoes the server's encoding of names of files: `a@002db` is `a-b`.
fn readable(name: &str) -> String {
    let mut text = String::new();
    let mut rest = name;
    while let Some((before, after)) = rest.split_once('@') {
        text.push_str(before);
        let code = after.get(..4).and_then(|hex| u32::from_str_radix(hex, 16).ok());
        match code.and_then(char::from_u32) {
            Some(decoded) => {
                text.push(decoded);
                rest = after.get(4..).unwrap_or_default();
            }
            None => {
                text.push('@');
                rest = after;
            }
        }
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn files_belong_to_tables() {
        for (path, table) in [
            ("shop/orders.ibd", "shop.orders"),
            ("./shop/orders.frm", "shop.orders"),
            ("shop/orders#P#p0.ibd.zst.xbcrypt", "shop.orders"),
            ("shop/orders.ibd.delta", "shop.orders"),
            ("a@002db/x@0020y.ibd", "a-b.x y"),
            ("shop/odd@zz.ibd", "shop.odd@zz"),
            ("ibdata1.qp", "ibdata1"),
            ("undo001", "undo001"),
        ] {
            assert_eq!(table_of(path), table, "{path}");
        }
    }

    #[test]
    fn the_largest_come_first_and_the_rest_is_summed() {
        let mut totals = TableTotals::default();
        for (path, plain, stored) in
            [("s/a.ibd", 10, 5), ("s/b.ibd", 30, 6), ("s/a.frm", 1, 1), ("s/c.ibd", 2, 2)]
        {
            totals.add(path.as_bytes(), plain, stored);
        }
        let found = totals.largest(2).unwrap();
        let names: Vec<&str> = found.largest.iter().map(|table| table.name.as_str()).collect();
        assert_eq!(names, ["s.b", "s.a"]);
        assert_eq!(found.largest[1].sizes, Sizes { plain: 11, stored: 6 });
        assert_eq!((found.rest, found.rest_tables), (Sizes { plain: 2, stored: 2 }, 1));
        assert_eq!(found.all, Sizes { plain: 43, stored: 14 });
    }

    proptest! {
        #[test]
        fn memory_is_bounded_and_no_byte_is_lost(files in proptest::collection::vec((0_u16..400, 0_u64..50), 0..900)) {
            let mut totals = TableTotals { max: 20, ..TableTotals::default() };
            let mut plain = 0;
            for (file, bytes) in files {
                totals.add(format!("s/t{file}.ibd").as_bytes(), bytes, bytes / 2);
                plain += bytes;
                prop_assert!(totals.tables.len() <= 20);
            }
            prop_assert_eq!(totals.largest(5).unwrap_or_default().all.plain, plain);
        }
    }
}
