//! Finds tables that a program which prepared a backup has lost: all their files were there before, and are not any
//! more.
//!
//! mariadb-backup 10.11 does that (observed): a table that was renamed while an increment was taken, if another table
//! took its old name in that time. It ends with 0.

use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use xb_reader::RelPath;

use super::definitions::{Definitions, TablesWithoutFiles};

/// Bytes at the beginning of a file that are looked at. A tablespace has something there, or no first page; the new name
/// of a renamed table is not longer.
const HEAD: u64 = 2 << 10;
/// Endings of files that are looked into.
const LOOKED_INTO: [&[u8]; 4] = [TABLESPACE, b".frm", b".par", b".ren"];
const TABLESPACE: &[u8] = b".ibd";
/// Most tables that are named.
const NAMED: usize = 20;

/// The tables of a backup that is to be prepared, of which files are missing already.
#[derive(Debug)]
pub struct BeforePrepare {
    missing: HashSet<String>,
    /// Whether there are more than have names: then no loss is told.
    is_part: bool,
}

impl BeforePrepare {
    /// Looks at the backup in `dir`, or at the last increment that will be applied.
    ///
    /// # Errors
    /// If a directory or file cannot be read.
    pub fn look(dir: &Path) -> io::Result<Self> {
        let found = without_files(dir)?;
        let is_part = found.iter().any(|found| found.tables > found.first.len() as u64);
        Ok(Self { missing: found.into_iter().flat_map(|found| found.first).collect(), is_part })
    }

    /// The tables whose files were there, and are missing in the prepared `dir` or are empty.
    ///
    /// # Errors
    /// If a directory or file cannot be read.
    pub fn lost(&self, dir: &Path) -> io::Result<Option<LostTables>> {
        if self.is_part {
            return Ok(None);
        }
        let missing = without_files(dir)?.into_iter().flat_map(|found| found.first);
        let lost: Vec<_> = missing.filter(|table| !self.missing.contains(table)).collect();
        Ok((!lost.is_empty()).then_some(LostTables(lost)))
    }
}

/// Tables that a program lost, as `schema/table`, encoded as in file names; at most 20,000.
#[derive(Debug)]
pub struct LostTables(Vec<String>);

/// What the program did: `reported success, and lost the files of 2 tables: shop/a, shop/b`.
impl fmt::Display for LostTables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tables, plural) = (self.0.len(), if self.0.len() == 1 { "" } else { "s" });
        let named = self.0.get(..NAMED).unwrap_or(&self.0).join(", ");
        let more = if tables > NAMED { ", …" } else { "" };
        write!(f, "reported success, and lost the files of {tables} table{plural}: {named}{more}")
    }
}

/// Tables of InnoDB, and of other engines, whose definition is in `dir`, and of whose other files one is not.
fn without_files(dir: &Path) -> io::Result<[TablesWithoutFiles; 2]> {
    let mut definitions = Definitions::default();
    let mut head = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let top = entry.file_name();
        // A directory may be elsewhere, behind a link.
        if !entry.path().is_dir() {
            take(&mut definitions, top.as_bytes(), &[]);
            continue;
        }
        for file in std::fs::read_dir(entry.path())? {
            let file = file?;
            let name = file.file_name();
            let name = name.as_bytes();
            head.clear();
            if LOOKED_INTO.iter().any(|end| name.ends_with(end)) && file.path().is_file() {
                File::open(file.path())?.take(HEAD).read_to_end(&mut head)?;
            }
            if name.ends_with(TABLESPACE) && head.iter().all(|byte| *byte == 0) {
                continue;
            }
            take(&mut definitions, &[top.as_bytes(), b"/", name].concat(), &head);
        }
    }
    Ok(definitions.without_files())
}

fn take(definitions: &mut Definitions, path: &[u8], head: &[u8]) {
    // No table has a name that no stream may have.
    if let Ok(path) = RelPath::new(path) {
        definitions.file(&path);
        definitions.bytes(head);
        definitions.next_chunk();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition of a table of InnoDB.
    fn frm() -> Vec<u8> {
        let mut frm = vec![0; 100];
        frm[..4].copy_from_slice(&[0xfe, 1, 10, 12]);
        frm
    }

    fn write(dir: &Path, files: &[(&str, &[u8])]) {
        std::fs::create_dir_all(dir.join("shop")).unwrap();
        files
            .iter()
            .for_each(|(name, bytes)| std::fs::write(dir.join("shop").join(name), bytes).unwrap());
    }

    #[test]
    fn a_table_that_is_gone_or_empty_after_preparing_is_lost() {
        let (increment, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let frm = frm();
        let increment_files: [(&str, &[u8]); 9] = [
            ("kept.frm", &frm),
            ("kept.ibd.delta", b"pages"),
            ("gone.frm", &frm),
            ("old.ibd.delta", b"pages"),
            ("old.ren", b"shop/gone"),
            ("empty.frm", &frm),
            ("empty.ibd.delta", b"pages"),
            ("discarded.frm", &frm),
            ("view.frm", b"TYPE=VIEW"),
        ];
        write(increment.path(), &increment_files);
        let prepared: [(&str, &[u8]); 7] = [
            ("kept.frm", &frm),
            ("kept.ibd", b"pages"),
            ("gone.frm", &frm),
            ("empty.frm", &frm),
            ("empty.ibd", &[0; 4096]),
            ("discarded.frm", &frm),
            ("view.frm", b"TYPE=VIEW"),
        ];
        write(dir.path(), &prepared);
        let before = BeforePrepare::look(increment.path()).unwrap();
        assert_eq!(
            before.lost(dir.path()).unwrap().unwrap().to_string(),
            "reported success, and lost the files of 2 tables: shop/empty, shop/gone"
        );
        write(dir.path(), &[("gone.ibd", b"pages"), ("empty.ibd", b"pages")]);
        assert!(before.lost(dir.path()).unwrap().is_none());
    }
}
