//! Tables with damaged pages in the restored files. The private server may read empty values there, without an error.

use std::collections::BTreeMap;

use crate::restored_pages::RestoredPages;
use crate::selection::table_of;

/// Number of damaged pages of each table, by its name as `SCHEMA/TABLE` in the encoding of file names.
pub(super) type DamagedTables = BTreeMap<String, u64>;

/// The tables with damaged pages; and remarks on other damage, which may show in any table.
pub(super) fn damaged_tables(found: &RestoredPages) -> (DamagedTables, Vec<String>) {
    let (mut tables, mut remarks) = (DamagedTables::new(), Vec::new());
    for (file, pages) in &found.files {
        match table_of(file.as_bytes()) {
            Some(table) => *tables.entry(table.to_owned()).or_default() += pages,
            None => remarks.push(format!(
                "{file}: damaged pages: {pages}; it is no table of its own, and what was rescued may be wrong where the server needs them: compare it with another backup"
            )),
        }
    }
    if found.more > 0 {
        remarks.push(format!(
            "{} more damaged pages are not named, and tables that were rescued may have some: verify the backup, and rescue from another one",
            found.more
        ));
    }
    (tables, remarks)
}
