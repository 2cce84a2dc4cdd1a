//! Checks whether the files of a chain belong together, beyond having the same names: a table that was
//! renamed between two backups has pages under both names.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use xb_files::is_lost_and_found;

use crate::small_file::read_small;

/// Where a tablespace's first page has the number of the tablespace, in bytes.
const SPACE_AT: usize = 34;

/// Returns whether every tablespace of the last increment that belongs to a selected table is in each backup before it.
/// `false` also for one that was created in between, which cannot be told from one that had another name. What prepare makes
/// of the others, which come along because they were renamed during a backup, does not matter.
///
/// # Errors
/// Any error of reading the directories and files.
pub(crate) fn is_covered(
    full: &Path,
    increments: &[PathBuf],
    asks_for: impl Fn(&str) -> bool,
) -> io::Result<bool> {
    let Some((last, others)) = increments.split_last() else { return Ok(true) };
    let is_wanted = |meta: &Path| {
        let file = meta.strip_prefix(last).ok().and_then(Path::to_str);
        // A name that is no text may be any.
        file.is_none_or(|file| asks_for(file) || new_name(meta).is_some_and(|new| asks_for(&new)))
    };
    let Some(wanted) = spaces_of_increment(last, is_wanted)? else { return Ok(false) };
    let mut spaces = BTreeSet::new();
    for path in files(full)? {
        if path.extension().is_some_and(|end| end == "ibd" || end == "new") {
            spaces.insert(space_of_page(&path)?);
        }
    }
    let mut is_covered = wanted.is_subset(&spaces);
    for increment in others {
        is_covered &= spaces_of_increment(increment, |_| true)?
            .is_some_and(|spaces| wanted.is_subset(&spaces));
    }
    Ok(is_covered)
}

/// The name that a tablespace gets by prepare, such as `shop/t.ibd`, if it was renamed during the backup.
fn new_name(meta: &Path) -> Option<String> {
    let note = meta.with_extension("").with_extension("ren");
    let name = read_small(&note)?;
    let name = name.trim().trim_start_matches("./");
    Some(format!("{}.ibd", name.strip_suffix(".ibd").unwrap_or(name)))
}

/// The numbers of those tablespaces of an increment that are wanted; `None` if a file does not name its own.
fn spaces_of_increment(
    dir: &Path,
    is_wanted: impl Fn(&Path) -> bool,
) -> io::Result<Option<BTreeSet<u32>>> {
    let mut metas = files(dir)?;
    metas.retain(|path| path.extension().is_some_and(|end| end == "meta") && is_wanted(path));
    Ok(metas.iter().map(|path| space_of_meta(path)).collect())
}

/// The files in the folders of schemas.
fn files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        // Not those of an increment below, which are two folders down.
        if entry.file_type()?.is_dir() && !is_lost_and_found(&entry) {
            for file in std::fs::read_dir(entry.path())? {
                let file = file?;
                if file.file_type()?.is_file() {
                    files.push(file.path());
                }
            }
        }
    }
    Ok(files)
}

fn space_of_page(path: &Path) -> io::Result<u32> {
    let mut head = [0; SPACE_AT + 4];
    File::open(path)?.read_exact(&mut head)?;
    let mut space = [0; 4];
    space.copy_from_slice(&head[SPACE_AT..]);
    Ok(u32::from_be_bytes(space))
}

fn space_of_meta(path: &Path) -> Option<u32> {
    let text = read_small(path)?;
    let line = text.lines().find_map(|line| line.strip_prefix("space_id"))?;
    line.trim().strip_prefix('=')?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tablespace_must_be_in_every_backup_under_any_name() {
        let dir = tempfile::tempdir().unwrap();
        let full = dir.path().join("full");
        let increments = [1, 2].map(|n| full.join(format!(".xb-incremental/{n}")));
        for folder in [&full, &increments[0], &increments[1]] {
            std::fs::create_dir_all(folder.join("shop")).unwrap();
        }
        let mut page = vec![0; 100];
        page[37] = 7;
        std::fs::write(full.join("shop/t.ibd"), &page).unwrap();
        let meta = |increment: &Path, name: &str, space: &str| {
            let text = format!("page_size = 16384\nzip_size = 0\nspace_id = {space}\n");
            std::fs::write(increment.join(name), text).unwrap();
        };
        let is_covered = || is_covered(&full, &increments, |name| name.contains("/t.")).unwrap();
        meta(&increments[1], "shop/t.ibd.meta", "7");
        assert!(!is_covered(), "it had another name at the first increment");
        meta(&increments[0], "shop/t.ibd.meta", "7");
        assert!(is_covered());
        meta(&increments[0], "ibdata1.meta", "0");
        assert!(is_covered(), "those of no schema are always there");
        meta(&increments[1], "shop/t.ibd.meta", "8");
        assert!(!is_covered(), "another table had the name at the full backup");
        meta(&increments[1], "shop/t.ibd.meta", "x");
        assert!(!is_covered());
        // One that came along because it was renamed during a backup.
        meta(&increments[1], "shop/t.ibd.meta", "7");
        meta(&increments[0], "shop/t.ibd.meta", "7");
        meta(&increments[1], "shop/beside.ibd.meta", "9");
        assert!(is_covered());
        // It is a selected one by its new name.
        std::fs::write(increments[1].join("shop/beside.ren"), "shop/t.ibd").unwrap();
        assert!(!is_covered());
        std::fs::remove_file(increments[1].join("shop/beside.ren")).unwrap();
        std::fs::write(full.join("shop/short.ibd"), b"x").unwrap();
        meta(&increments[1], "shop/t.ibd.meta", "7");
        assert!(super::is_covered(&full, &increments, |_| true).is_err());
    }
}
