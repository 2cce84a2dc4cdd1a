//! Removes from the prepared files what is the donor's own, and keeps the state of its binary log, with which the joiner's
//! new one begins.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use xb_binlog::GtidList;
use xb_files::or_none;

use crate::contract::datadir::Kind;
use crate::error::SstError;
use crate::swap::{WORK_DIR, list, remove_tree};

/// Files of a backup that do not belong to the server's data. A directory of such a name is a schema.
const NOT_DATA: [&str; 13] = [
    "xtrabackup_checkpoints",
    "mariadb_backup_checkpoints",
    "xtrabackup_logfile",
    "xtrabackup_tablespaces",
    "xtrabackup_binlog_pos_innodb",
    "backup-my.cnf",
    "ibtmp1",
    "xtrabackup_suspended",
    "donor_galera_info",
    "ddl.log",
    "sst_in_progress",
    // Identity and state of the donor's server.
    "auto.cnf",
    "wsrep_state.dat",
];
/// Names in the old data's directory that belong to the swap. No schema's begins with a dot.
const OF_SWAP: [&str; 2] = [".journal", ".stray"];

/// Files in which backup programs record the position in the binary log; those of MariaDB since 11 use the first one.
const INFO: [&str; 2] = ["mariadb_backup_binlog_info", "xtrabackup_binlog_info"];
/// Longest note that is read, in bytes.
const MAX_INFO: u64 = 1 << 20;

/// Removes files that must not become part of the data: those that only the backup program needs, and the donor's binary
/// log, which is not this node's. Keeps the state of that log, whose base name is `binlog` here. Directories whose name `stays` here
/// go if they have nothing in them: a backup has an empty one for each directory of the donor's, whatever that is for.
///
/// # Errors
/// If a file cannot be read, removed or written.
pub(super) fn clear(
    new: &Path,
    binlog: Option<&OsStr>,
    sent_again: Option<u32>,
    stays: impl Fn(&OsStr) -> bool,
) -> Result<(), SstError> {
    let notes = read_notes(new)?;
    let theirs = notes.iter().find_map(|note| binlog_of(note));
    let ours = binlog.map(OsStr::to_owned);
    let binlogs: Vec<_> = ours.into_iter().chain(theirs).map(Kind::Binlog).collect();
    for (name, facts) in list(new)? {
        let unwanted = !facts.is_dir() && NOT_DATA.iter().any(|known| name == *known)
            || OF_SWAP.iter().any(|known| name == *known)
            || name == WORK_DIR
            || name.as_bytes().starts_with(b".xb")
            || binlogs.iter().any(|binlog| binlog.has_entry(&name, &facts))
            || facts.is_dir() && stays(&name) && is_empty(&new.join(&name))?;
        if unwanted {
            let path = new.join(name);
            if facts.is_dir() {
                remove_tree(&path)?;
            } else {
                std::fs::remove_file(&path).map_err(SstError::io("remove", &path))?;
            }
        }
    }
    binlog.map_or(Ok(()), |base| write_binlog_state(new, base, sent_again, &notes))
}

/// Returns whether a directory has nothing but the empty file by which the backup program sends it.
pub(super) fn is_empty(folder: &Path) -> Result<bool, SstError> {
    Ok(list(folder)?.iter().all(|(name, facts)| name == "db.opt" && facts.len() == 0))
}

/// Opens a file of the backup, if there is one: a directory of its name is a schema.
pub(super) fn open(path: &Path) -> Result<Option<File>, SstError> {
    let opened = or_none(File::open(path)).map_err(SstError::io("open", path))?;
    let Some(file) = opened else { return Ok(None) };
    let facts = file.metadata().map_err(SstError::io("look at", path))?;
    Ok((!facts.is_dir()).then_some(file))
}

/// Returns what the backup program has noted of the donor's binary log.
fn read_notes(new: &Path) -> Result<Vec<String>, SstError> {
    let mut notes = Vec::new();
    for path in INFO.map(|name| new.join(name)) {
        let Some(file) = open(&path)? else { continue };
        let mut text = String::new();
        let read = file.take(MAX_INFO).read_to_string(&mut text);
        read.map_err(SstError::io("read", &path))?;
        notes.push(text);
    }
    Ok(notes)
}

/// Returns the base name of the donor's binary log, which may differ from this node's.
fn binlog_of(note: &str) -> Option<OsString> {
    let name = Path::new(note.split_whitespace().next()?);
    let is_number = |text: &OsStr| text.as_bytes().iter().all(u8::is_ascii_digit);
    name.extension().filter(|extension| is_number(extension))?;
    name.file_stem().map(OsStr::to_owned)
}

/// Writes the state beside the prepared files, if the backup notes it. `base` is the base name of the
/// joiner's binary log.
///
/// A server that has no binary log yet reads `BASE.state`: one line `DOMAIN-SERVER-NUMBER` for each
/// GTID. Without it, `gtid_binlog_pos` of the joiner is empty until the next write set, and its own
/// GTIDs begin at 1. Write sets that this node is sent once more bring their GTIDs with them: those of the domain `sent_again` are
/// left out, because a server with `gtid_strict_mode` writes none that its log already has.
fn write_binlog_state(
    new: &Path,
    base: &OsStr,
    sent_again: Option<u32>,
    notes: &[String],
) -> Result<(), SstError> {
    let state = notes.iter().find_map(|note| binlog_state(note, sent_again));
    let Some(state) = state else { return Ok(()) };
    let mut name = OsString::from(base);
    name.push(".state");
    let path = new.join(name);
    let file = File::options().write(true).create_new(true).mode(0o660).open(&path);
    let written = file.and_then(|mut file| file.write_all(state.as_bytes()));
    written.map_err(SstError::io("write", &path))
}

/// Returns the content of the state file: `None` if the last of the three columns names no GTID, or only those of the domain
/// `without`.
fn binlog_state(info: &str, without: Option<u32>) -> Option<String> {
    let mut columns = info.trim_end_matches('\n').split('\t');
    let (Some(_), Some(_), Some(gtids), None) =
        (columns.next(), columns.next(), columns.next(), columns.next())
    else {
        return None;
    };
    let gtids: GtidList = gtids.parse().ok()?;
    let kept = gtids.as_slice().iter().filter(|gtid| Some(gtid.domain) != without);
    let state: String = kept.map(|gtid| format!("{gtid}\n")).collect();
    (!state.is_empty()).then_some(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_list_of_gtids_is_a_state() {
        let state = |info: &str| binlog_state(info, None);
        assert_eq!(state("b.000002\t328\t1111-1-1703\n").unwrap(), "1111-1-1703\n");
        let two = "b.000002\t328\t0-10-5,4294967295-1-18446744073709551615\n";
        assert_eq!(state(two).unwrap(), "0-10-5\n4294967295-1-18446744073709551615\n");
        for bad in [
            "",
            "b.000002\t328\n",
            "b.000002\t328\t\n",
            "b\t3\t0-1\n",
            "b\t3\t0-1-2-3\n",
            "b\t3\t0-1-x\n",
            "b\t3\t0-1-2,\n",
            "b\t3\t4294967296-1-2\n",
            "b\t3\t0-1-2\t0-1-3\n",
        ] {
            assert_eq!(state(bad), None, "{bad:?}");
        }
    }

    /// A backup of a donor with load notes GTIDs behind the position of its data.
    #[test]
    fn gtids_of_write_sets_that_are_sent_again_are_no_state() {
        let info = "b.000262\t328\t5-9-11,100-11-1615\n";
        assert_eq!(binlog_state(info, Some(100)).unwrap(), "5-9-11\n");
        assert_eq!(binlog_state("b.000262\t328\t100-11-1615\n", Some(100)), None);
    }

    #[test]
    fn the_state_is_written_once_and_only_if_the_backup_notes_it() {
        for info in INFO {
            let folder = tempfile::tempdir().unwrap();
            let base = OsStr::new("mine");
            clear(folder.path(), Some(base), None, |_| false).unwrap();
            assert!(!folder.path().join("mine.state").exists());
            std::fs::write(folder.path().join(info), "theirs.000002\t328\t0-1-5\n").unwrap();
            std::fs::write(folder.path().join("theirs.000002"), "").unwrap();
            clear(folder.path(), Some(base), None, |_| false).unwrap();
            assert!(!folder.path().join("theirs.000002").exists());
            let state = std::fs::read(folder.path().join("mine.state")).unwrap();
            assert_eq!(state, b"0-1-5\n", "{info}");
        }
    }

    /// The donor, too, has such a directory, and the backup program cannot tell it from a schema.
    #[test]
    fn an_empty_directory_of_the_donors_is_not_in_the_way_of_one_that_stays() {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in [("tmp", ""), ("full", "default-collation=x"), ("shop", "")] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
            std::fs::write(folder.path().join(name).join("db.opt"), content).unwrap();
        }
        clear(folder.path(), None, None, |name| name != "shop").unwrap();
        let is_there = |name: &str| folder.path().join(name).exists();
        assert!(!is_there("tmp") && is_there("full") && is_there("shop"));
    }

    /// Without it, the donor's binary log would stay in the data.
    #[test]
    fn a_note_that_cannot_be_read_is_not_missing() {
        for info in INFO {
            let folder = tempfile::tempdir().unwrap();
            std::os::unix::fs::symlink(info, folder.path().join(info)).unwrap();
            assert!(clear(folder.path(), None, None, |_| false).is_err(), "{info}");
        }
    }
}
