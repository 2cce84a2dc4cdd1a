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

use xb_files::is_lost_and_found;
use xb_pages::{TABLE_HEAD, TableEngine, TableHead};

/// The index files, from the data directory, of tables that were in use and that no recovery repairs, in order.
///
/// # Errors
/// If the data cannot be read.
pub fn tables_in_use(data: &Path) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for folder in fs::read_dir(data)? {
        let entry = folder?;
        let folder = entry.path();
        if !folder.is_dir() || is_lost_and_found(&entry) {
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

/// Repairs a table that was in use when it was copied, and checks it. The repair that a server makes at the first use passes
/// over the rows of most tables, so what is read or changed then may be damaged. `name` is quoted for SQL, and `rows_of` runs a
/// statement. Returns what the server says of the table; the inner error says why it is not sound.
///
/// # Errors
/// Those of `rows_of`.
pub fn repair_table<E>(
    name: &str,
    mut rows_of: impl FnMut(&str) -> Result<Vec<[String; 4]>, E>,
) -> Result<Result<Vec<String>, String>, E> {
    let mut said = Vec::new();
    for statement in
        [format!("REPAIR NO_WRITE_TO_BINLOG TABLE {name}"), format!("CHECK TABLE {name}")]
    {
        let rows = rows_of(&statement)?;
        // A note: a sequence cannot be checked.
        let fine =
            |[_, _, kind, text]: &[String; 4]| (kind == "status" && text == "OK") || kind == "note";
        let is_sound = rows.last().is_some_and(fine);
        let more = rows.into_iter().filter(|row| !fine(row));
        said.extend(more.map(|[_, _, _, text]| format!("{name}: {text}")));
        if !is_sound {
            return Ok(Err(said.join("; ")));
        }
    }
    said.dedup();
    Ok(Ok(said))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panic")]

    use super::*;

    /// As another user than root, it cannot be read.
    #[test]
    fn what_a_check_of_the_disk_has_found_is_no_table() {
        let data = xb_testkit::daemon::Scratch::new();
        let mut head = vec![0xfe, 0xfe, 7, 1];
        head.resize(1024, 0);
        // The number of times that it is open.
        head[25] = 1;
        for folder in ["lost+found", "shop"] {
            fs::create_dir(data.path().join(folder)).unwrap();
            fs::write(data.path().join(folder).join("t.MYI"), &head).unwrap();
        }
        assert_eq!(tables_in_use(data.path()).unwrap(), ["shop/t.MYI"]);
    }
}
