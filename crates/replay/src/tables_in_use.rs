//! Tables whose files were copied while their server had them in use.
//!
//! A backup program stops changes of tables without a log of their own (MyISAM, Aria with TRANSACTIONAL=0) before it
//! copies them, and notes a position in the server's log after that. But on a busy machine one backup in forty of
//! mariadb-backup 10.11 had such a table as it was some milliseconds before: a few rows were in the log before the noted
//! position, and not in the files. A replay begins at the position, so it never has them. Each of these tables was still
//! marked as in use; those that were complete were not.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

use xb_pages::{TABLE_HEAD, TableEngine, TableHead};

/// The index files, from the data directory, of tables that were in use and that no recovery repairs, in order.
///
/// # Errors
/// If the data cannot be read.
pub fn tables_in_use(data: &Path) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for folder in fs::read_dir(data)? {
        let folder = folder?.path();
        if !folder.is_dir() {
            continue;
        }
        for file in fs::read_dir(&folder)? {
            let path = file?.path();
            if is_in_use(&path)? {
                let name = path.strip_prefix(data).unwrap_or(&path);
                found.push(name.display().to_string());
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}

fn is_in_use(path: &Path) -> io::Result<bool> {
    let engine = match path.extension().and_then(|end| end.to_str()) {
        Some("MYI") => TableEngine::MyIsam,
        Some("MAI") => TableEngine::Aria,
        _ => return Ok(false),
    };
    let mut head = Vec::with_capacity(TABLE_HEAD);
    File::open(path)?.take(TABLE_HEAD as u64).read_to_end(&mut head)?;
    let head = TableHead::of_head(engine, &head);
    Ok(head.is_ok_and(|head| head.in_use && !head.transactional))
}
