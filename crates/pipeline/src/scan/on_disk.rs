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
use std::path::{Path, PathBuf};

use xb_files::is_lost_and_found;
use xb_reader::RelPath;

use super::definitions::{Definitions, TablesWithoutFiles};
use super::producer_files::{ARIA_CONTROL, field};

/// Bytes at the beginning of a file that are looked at. A tablespace has something there, or no first page; the new name
/// of a renamed table is not longer.
const HEAD: u64 = 2 << 10;
/// Endings of files that are looked into.
const LOOKED_INTO: [&str; 4] = [TABLESPACE, "frm", "par", RENAMED];
const TABLESPACE: &str = "ibd";
const RENAMED: &str = "ren";
/// Endings of the file with the changed pages of a tablespace, and of the text beside it.
const CHANGES: &str = "ibd.delta";
const TEXT: &str = "meta";
/// Ending of the file beside a tablespace that was dropped or discarded during the backup: the program removes both.
const REMOVED: &str = "del";
/// Marks at the beginning of a file with changed pages; the numbers of the pages follow, in order.
const MARKS: [&[u8]; 2] = [b"xtra", b"XTRA"];
/// Position of the number of the tablespace in its first page.
const SPACE: usize = 34;
/// Most tables that are named.
const NAMED: usize = 20;

/// The tables of a backup that is to be prepared, of which files are missing already.
#[derive(Debug)]
pub struct BeforePrepare {
    missing: HashSet<String>,
    /// Whether there are more than have names: then no loss is told.
    is_part: bool,
    /// A file with changed pages of a tablespace that no backup of the chain has from its beginning.
    without_beginning: Option<PathBuf>,
}

impl BeforePrepare {
    /// Looks at the backup in `dir`, and the `increments` that will be applied to it, in order. The last one has the
    /// definitions of all tables.
    ///
    /// # Errors
    /// If a directory or file cannot be read.
    pub fn look(dir: &Path, increments: &[PathBuf]) -> io::Result<Self> {
        let lacking = without_beginning(dir, increments)?;
        let last = increments.last().map_or(dir, PathBuf::as_path);
        let found = without_files(last, |file| {
            tablespace(file).is_some_and(|space| {
                space.with_extension(REMOVED).exists()
                    || lacking.contains(&space.with_extension(CHANGES))
            })
        })?;
        let is_part = found.iter().any(|found| found.tables > found.first.len() as u64);
        let of_tables = lacking.iter().filter_map(|file| {
            let space = tablespace(file)?;
            let is_table = space.with_extension("frm").exists();
            Some(space.strip_prefix(last).ok().filter(|_| is_table)?.to_owned())
        });
        let without_beginning = of_tables.min();
        let missing = found.into_iter().flat_map(|found| found.first).collect();
        Ok(Self { missing, is_part, without_beginning })
    }

    /// The file of a tablespace that no backup of the chain has from its beginning, if there is one: it was imported, or
    /// lay there to be imported.
    #[must_use]
    pub fn without_beginning(&self) -> Option<&Path> {
        self.without_beginning.as_deref()
    }

    /// The tables whose files were there, and are missing in the prepared `dir` or are empty.
    ///
    /// # Errors
    /// If a directory or file cannot be read.
    pub fn lost(&self, dir: &Path) -> io::Result<Option<LostTables>> {
        if self.is_part {
            return Ok(None);
        }
        let missing = without_files(dir, |_| false)?.into_iter().flat_map(|found| found.first);
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

/// Tables of InnoDB, and of other engines, whose definition is in `dir`, and of whose other files one is not, or
/// `is_none`.
fn without_files(
    dir: &Path,
    is_none: impl Fn(&Path) -> bool,
) -> io::Result<[TablesWithoutFiles; 2]> {
    let mut definitions = Definitions::default();
    // Preparing may make this file, and both looks have to be alike.
    take(&mut definitions, ARIA_CONTROL.as_bytes(), &[]);
    each_file(dir, |file| {
        if is_none(file) {
            return Ok(());
        }
        let is_looked_into = LOOKED_INTO.iter().any(|end| file.extension() == Some(end.as_ref()));
        let head = if is_looked_into { head_of(file)? } else { Vec::new() };
        let is_tablespace = file.extension() == Some(TABLESPACE.as_ref());
        if is_tablespace && head.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        let name = file.strip_prefix(dir).unwrap_or(file);
        take(&mut definitions, name.as_os_str().as_bytes(), &head);
        Ok(())
    })?;
    Ok(definitions.without_files())
}

/// Calls `each` with every file in the folders of schemas.
fn each_file(dir: &Path, mut each: impl FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        // A directory may be elsewhere, behind a link. That of a file system can be read by root only.
        if is_lost_and_found(&entry) || !entry.path().is_dir() {
            continue;
        }
        for file in std::fs::read_dir(entry.path())? {
            each(&file?.path())?;
        }
    }
    Ok(())
}

/// The beginning of a file; nothing of what is none.
fn head_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    if path.is_file() {
        File::open(path)?.take(HEAD).read_to_end(&mut head)?;
    }
    Ok(head)
}

/// The files with changed pages in the last increment whose tablespaces no backup of the chain has from their beginning. The
/// program makes files of them that no server opens.
fn without_beginning(dir: &Path, increments: &[PathBuf]) -> io::Result<HashSet<PathBuf>> {
    let (mut begun, mut lacking) = (HashSet::new(), HashSet::new());
    let Some(last) = increments.last() else { return Ok(lacking) };
    for link in std::iter::once(dir).chain(increments.iter().map(PathBuf::as_path)) {
        each_file(link, |file| {
            begun.extend(begins(file)?);
            Ok(())
        })?;
    }
    each_file(last, |file| {
        if has_end(file, CHANGES) && space_of(file)?.is_some_and(|space| !begun.contains(&space)) {
            lacking.insert(file.to_owned());
        }
        Ok(())
    })?;
    Ok(lacking)
}

/// The number of the tablespace whose first page is in a file.
fn begins(file: &Path) -> io::Result<Option<u32>> {
    if has_end(file, CHANGES) {
        let head = head_of(file)?;
        let is_first =
            head.get(4..8) == Some(&[0; 4]) && MARKS.iter().any(|mark| head.starts_with(mark));
        return if is_first { space_of(file) } else { Ok(None) };
    }
    if !has_end(file, TABLESPACE) && !has_end(file, "new") {
        return Ok(None);
    }
    let head = head_of(file)?;
    let space =
        head.get(SPACE..).and_then(|rest| rest.first_chunk()).map(|n| u32::from_be_bytes(*n));
    Ok(space.filter(|space| *space != 0))
}

/// The number of the tablespace of which a file has changed pages, by the text beside it.
fn space_of(changes: &Path) -> io::Result<Option<u32>> {
    let text = head_of(&changes.with_extension(TEXT))?;
    Ok(field(&String::from_utf8_lossy(&text), "space_id").and_then(|space| space.parse().ok()))
}

/// The file of the tablespace that a file is, or of which it has changed pages or the new name.
fn tablespace(file: &Path) -> Option<PathBuf> {
    match file.extension()?.to_str()? {
        TABLESPACE | RENAMED => Some(file.with_extension(TABLESPACE)),
        "delta" => Some(file.with_extension("")),
        _ => None,
    }
}

fn has_end(file: &Path, end: &str) -> bool {
    file.as_os_str()
        .as_bytes()
        .strip_suffix(end.as_bytes())
        .is_some_and(|rest| rest.ends_with(b"."))
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

    fn folders<const N: usize>() -> [tempfile::TempDir; N] {
        std::array::from_fn(|_| tempfile::tempdir().unwrap())
    }

    #[test]
    fn a_table_that_is_gone_or_empty_after_preparing_is_lost() {
        let [full, increment, dir] = folders();
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
        let increments = [increment.path().to_owned()];
        let before = BeforePrepare::look(full.path(), &increments).unwrap();
        assert_eq!(
            before.lost(dir.path()).unwrap().unwrap().to_string(),
            "reported success, and lost the files of 2 tables: shop/empty, shop/gone"
        );
        write(dir.path(), &[("gone.ibd", b"pages"), ("empty.ibd", b"pages")]);
        assert!(before.lost(dir.path()).unwrap().is_none());
    }

    #[test]
    fn a_tablespace_that_was_discarded_while_the_backup_ran_is_not_lost() {
        let [dir] = folders();
        let frm = frm();
        let par = [9, 0, 0, 0, 1, 2, 3, 4, 1, 0, 0, 0];
        let mut parts = frm.clone();
        (parts[3], parts[61]) = (20, 12);
        // What lies in the directory of a file system is no table. Preparing makes Aria's control file.
        let found = dir.path().join("lost+found");
        std::fs::create_dir(&found).unwrap();
        let aria = [&[0xfe, 1, 10, 42][..], &[0; 96]].concat();
        let discarded: [(&str, &[u8]); 11] = [
            ("gone.frm", &frm),
            ("gone.ibd", b"pages"),
            ("gone.del", b""),
            ("made_again.frm", &frm),
            ("made_again.ibd", b"pages"),
            ("made_again.del", b""),
            ("made_again.new", b"pages"),
            ("parts.frm", &parts),
            ("parts.par", &par),
            ("parts#P#p0.ibd", b"pages"),
            ("parts#P#p0.del", b""),
        ];
        write(dir.path(), &discarded);
        write(dir.path(), &[("aria.frm", &aria)]);
        let before = BeforePrepare::look(dir.path(), &[]).unwrap();
        for (name, _) in discarded {
            if name.ends_with(".del") || name.ends_with(".new") || name == "gone.ibd" {
                std::fs::remove_file(dir.path().join("shop").join(name)).unwrap();
            }
        }
        std::fs::remove_file(dir.path().join("shop/parts#P#p0.ibd")).unwrap();
        std::fs::write(found.join("t.frm"), &frm).unwrap();
        std::fs::write(dir.path().join("aria_log_control"), "").unwrap();
        assert!(before.lost(dir.path()).unwrap().is_none());
        std::fs::remove_file(dir.path().join("shop/made_again.ibd")).unwrap();
        let lost = before.lost(dir.path()).unwrap().unwrap();
        assert_eq!(lost.0, ["shop/made_again"]);
    }

    #[test]
    fn a_tablespace_that_the_chain_never_had_is_not_lost() {
        let [full, one, last, dir] = folders();
        let frm = frm();
        let mut first_page = [7; 64];
        first_page[34..38].copy_from_slice(&[0, 0, 0, 5]);
        write(full.path(), &[("old.ibd", &first_page)]);
        let begun = b"XTRA\0\0\0\0\0\0\0\x03";
        write(one.path(), &[("made.ibd.delta", begun), ("made.ibd.meta", b"space_id = 6\n")]);
        // Changed pages, but no first one: the pages of an imported file are older than the increment.
        let files: [(&str, &[u8]); 9] = [
            ("t5.ibd.meta", b"page_size = 16384\nspace_id = 5\n"),
            ("t6.ibd.meta", b"page_size = 16384\nspace_id = 6\n"),
            ("t7.ibd.meta", b"page_size = 16384\nspace_id = 7\n"),
            ("t8.ibd.meta", b"page_size = 16384\nspace_id = 8\n"),
            ("t5.frm", &frm),
            ("t6.frm", &frm),
            ("t7.frm", &frm),
            ("renamed.frm", &frm),
            ("t8.ren", b"shop/renamed"),
        ];
        write(last.path(), &files);
        let later = b"XTRA\0\0\0\x03\xff\xff\xff\xff";
        write(
            last.path(),
            &["t5", "t6", "t7", "t8"]
                .map(|table| (&*format!("{table}.ibd.delta").leak(), &later[..])),
        );
        let increments = [&one, &last].map(|link| link.path().to_owned());
        let before = BeforePrepare::look(full.path(), &increments).unwrap();
        assert_eq!(before.without_beginning(), Some(Path::new("shop/t7.ibd")));
        write(
            dir.path(),
            &["t5", "t6", "t7", "renamed"].map(|table| (&*format!("{table}.frm").leak(), &frm[..])),
        );
        write(
            dir.path(),
            &["t5", "t6", "t7", "renamed"]
                .map(|table| (&*format!("{table}.ibd").leak(), &[0; 4096][..])),
        );
        let lost = before.lost(dir.path()).unwrap().unwrap();
        assert_eq!(lost.0, ["shop/t5", "shop/t6"]);
    }
}
