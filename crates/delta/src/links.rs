//! Files in the directory of one backup of a chain.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use xb_files::{is_lost_and_found, or_none};
use xb_pages::{REDO_HEAD, RedoStart};

use crate::meta::{read_text, value};

/// Names of the file that states the log positions, in all versions of mariadb-backup.
const CHECKPOINTS: [&str; 2] = ["xtrabackup_checkpoints", "mariadb_backup_checkpoints"];
const INFO: [&str; 2] = ["xtrabackup_info", "mariadb_backup_info"];
const REDO_LOG: &str = "ib_logfile0";
/// The server's settings, as the backup program keeps them for the recovery.
const SETTINGS: &str = "backup-my.cnf";
/// Names that begin with this in a restored directory are not files of the backup.
const OWN: &str = ".xb-";

/// Kind and log positions of a backup, as its checkpoints file states them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoints {
    /// `full-backuped`, `incremental`, or its later state.
    pub kind: String,
    /// Log position from which it has changes; 0 in a full backup.
    pub from: u64,
    /// Log position of the server's checkpoint when it ended.
    pub to: u64,
}

impl Checkpoints {
    /// Reads the file in the directory of a backup. `None` if there is none, or it lacks a value.
    #[must_use]
    pub fn of(dir: &Path) -> Option<Self> {
        let text = CHECKPOINTS.iter().find_map(|name| read_text(&dir.join(name)))?;
        let lsn = |key| value(&text, key)?.parse().ok();
        let kind = value(&text, "backup_type")?.to_owned();
        Some(Self { kind, from: lsn("from_lsn")?, to: lsn("to_lsn")? })
    }
}

/// Writes another log position into the checkpoints file of an increment, from which it has changes. The program
/// that applies it demands that it begins where its base ends, although one that begins earlier has all that is
/// needed and more.
///
/// # Errors
/// If the file cannot be read or written.
pub fn restate_from(dir: &Path, from: u64) -> io::Result<()> {
    rewrite(&checkpoints(dir)?.0, &[("from_lsn", &from.to_string())])
}

/// Moves the checkpoints file of the last increment to the base, as that of a full backup; its info file is there
/// already.
pub(crate) fn finish_checkpoints(last: &Path, base: &Path) -> io::Result<()> {
    if let Some((info, _)) = first(base, &INFO)? {
        rewrite(&info, &[("incremental", "N"), ("innodb_from_lsn", "0")])?;
    }
    // An interrupted run may have moved it.
    let (path, name) = match first(last, &CHECKPOINTS)? {
        Some(found) => found,
        None => checkpoints(base)?,
    };
    rewrite(&path, &[("backup_type", "full-backuped"), ("from_lsn", "0")])?;
    std::fs::rename(path, base.join(name))
}

/// Returns whether a file is the one that states the log positions.
pub(crate) fn is_checkpoints(file: &Path) -> bool {
    CHECKPOINTS.iter().any(|name| file == Path::new(name))
}

fn checkpoints(dir: &Path) -> io::Result<(PathBuf, &'static str)> {
    first(dir, &CHECKPOINTS)?.ok_or_else(|| io::Error::other("the checkpoints file is missing"))
}

/// The first of these files that there is; a directory of such a name is a schema. An error is no absence.
fn first(dir: &Path, names: &[&'static str]) -> io::Result<Option<(PathBuf, &'static str)>> {
    for name in names {
        let path = dir.join(name);
        if or_none(path.metadata())?.is_some_and(|facts| !facts.is_dir()) {
            return Ok(Some((path, name)));
        }
    }
    Ok(None)
}

fn rewrite(path: &Path, values: &[(&str, &str)]) -> io::Result<()> {
    let unknown = || io::Error::other(format!("{} is not a text file of a backup", path.display()));
    let text = read_text(path).ok_or_else(unknown)?;
    let mut out = String::new();
    for line in text.lines() {
        let key = line.split('=').next().unwrap_or_default().trim();
        match values.iter().find(|(name, _)| *name == key) {
            Some((name, value)) => out.push_str(&format!("{name} = {value}")),
            None => out.push_str(line),
        }
        out.push('\n');
    }
    // By a rename: an interrupted run leaves the old text or the new one.
    let beside = path.with_file_name(".xb-rewritten");
    std::fs::write(&beside, out)?;
    std::fs::File::open(&beside)?.sync_all()?;
    std::fs::rename(&beside, path)
}

/// One backup of a chain.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) dir: PathBuf,
    pub(crate) checkpoints: Checkpoints,
    /// Beginning of its redo log.
    pub(crate) redo_start: u64,
    /// Its files, from its directory.
    pub(crate) files: Vec<PathBuf>,
    /// Its folders, each behind the one that holds it.
    pub(crate) folders: Vec<PathBuf>,
}

impl Link {
    /// Looks at a directory; the error says what is missing or strange.
    pub(crate) fn read(dir: &Path) -> Result<Self, String> {
        let shown = dir.display();
        let checkpoints = Checkpoints::of(dir);
        let checkpoints = checkpoints.ok_or(format!("{shown} has no checkpoints file"))?;
        let info = INFO.iter().find_map(|name| read_text(&dir.join(name)));
        if info.as_deref().and_then(|text| value(text, "partial")) != Some("N") {
            return Err(format!("{shown} is not known to have all tables"));
        }
        let redo_start = redo_start(&dir.join(REDO_LOG));
        let redo_start =
            redo_start.ok_or(format!("the redo log of {shown} is of an unknown kind"))?;
        let (files, folders) = (Vec::new(), Vec::new());
        let mut link = Self { dir: dir.to_owned(), checkpoints, redo_start, files, folders };
        link.walk(Path::new("")).map_err(|error| format!("{shown}: {error}"))?;
        Ok(link)
    }

    /// Names of the files of the system tablespace, in order; none if its settings are not there.
    pub(crate) fn system_files(&self) -> Vec<PathBuf> {
        let text = read_text(&self.dir.join(SETTINGS)).unwrap_or_default();
        let files = value(&text, "innodb_data_file_path").unwrap_or_default().split(';');
        files.filter_map(|file| Some(PathBuf::from(file.split(':').next()?.trim()))).collect()
    }

    /// Forgets the files that its deltas and the last link tell about: deltas, their texts, and definitions of tables.
    pub(crate) fn forget_described(&mut self) {
        let is_described = |file: &PathBuf| {
            let end = file.extension().and_then(|end| end.to_str());
            matches!(end, Some("delta" | "meta" | "frm"))
        };
        self.files.retain(|file| !is_described(file));
        self.files.shrink_to_fit();
        self.folders = Vec::new();
    }

    fn walk(&mut self, folder: &Path) -> io::Result<()> {
        for entry in std::fs::read_dir(self.dir.join(folder))? {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            let kind = entry.file_type()?;
            let is_own = entry.file_name().as_encoded_bytes().starts_with(OWN.as_bytes());
            if (is_own || is_lost_and_found(&entry)) && folder.as_os_str().is_empty() {
                continue;
            }
            if kind.is_dir() {
                self.folders.push(path.clone());
                self.walk(&path)?;
            } else if kind.is_file() {
                self.files.push(path);
            } else {
                return Err(io::Error::other(format!("{} is not a file", path.display())));
            }
        }
        Ok(())
    }
}

fn redo_start(path: &Path) -> Option<u64> {
    let mut head = Vec::new();
    let file = std::fs::File::open(path).ok()?;
    file.take(REDO_HEAD as u64).read_to_end(&mut head).ok()?;
    RedoStart::of_head(&head).map(|start| start.checkpoint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_positions_that_change_are_rewritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("xtrabackup_checkpoints");
        let text = "backup_type = incremental\nfrom_lsn = 20\nto_lsn = 30\nlast_lsn = 31\nrecover_binlog_info = 0\n";
        std::fs::write(&path, text).unwrap();
        restate_from(dir.path(), 25).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text.replace("20", "25"));
        let base = tempfile::tempdir().unwrap();
        finish_checkpoints(dir.path(), base.path()).unwrap();
        let full = Checkpoints { kind: "full-backuped".to_owned(), from: 0, to: 30 };
        assert_eq!(Checkpoints::of(base.path()), Some(full));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(restate_from(dir.path(), 1).is_err());
    }
}
