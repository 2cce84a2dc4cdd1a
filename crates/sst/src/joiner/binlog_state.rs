//! The state of the donor's binary log, with which the joiner's new one begins.
//!
//! A server that has no binary log yet reads `BASE.state`: one line `DOMAIN-SERVER-NUMBER` for each
//! GTID. Without it, `gtid_binlog_pos` of the joiner is empty until the next write set, and its own
//! GTIDs begin at 1.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use xb_binlog::GtidList;

use crate::error::SstError;

/// File in which backup programs since MariaDB 11 record the position; the stock method passes the
/// state on since then, too.
const INFO: &str = "mariadb_backup_binlog_info";
/// Longest note that is read, in bytes.
const MAX_INFO: u64 = 1 << 20;

/// Writes the state beside the prepared files, if the backup notes it. `base` is the base name of the
/// joiner's binary log.
pub(super) fn write(new: &Path, base: &OsStr) -> Result<(), SstError> {
    let info = new.join(INFO);
    let text = match File::open(&info) {
        Ok(file) => read(file).map_err(SstError::io("read", &info))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(SstError::io("open", &info)(error)),
    };
    let Some(state) = state(&text) else { return Ok(()) };
    let mut name = OsString::from(base);
    name.push(".state");
    let path = new.join(name);
    let file = File::options().write(true).create_new(true).mode(0o660).open(&path);
    let written = file.and_then(|mut file| file.write_all(state.as_bytes()));
    written.map_err(SstError::io("write", &path))
}

fn read(file: File) -> io::Result<String> {
    let mut text = String::new();
    file.take(MAX_INFO).read_to_string(&mut text)?;
    Ok(text)
}

/// Returns the content of the state file: `None` if the last of the three columns names no GTID.
fn state(info: &str) -> Option<String> {
    let mut columns = info.trim_end_matches('\n').split('\t');
    let (Some(_), Some(_), Some(gtids), None) =
        (columns.next(), columns.next(), columns.next(), columns.next())
    else {
        return None;
    };
    let gtids: GtidList = gtids.parse().ok()?;
    let state: String = gtids.as_slice().iter().map(|gtid| format!("{gtid}\n")).collect();
    (!state.is_empty()).then_some(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_list_of_gtids_is_a_state() {
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

    #[test]
    fn the_state_is_written_once_and_only_if_the_backup_notes_it() {
        let folder = tempfile::tempdir().unwrap();
        let base = OsStr::new("mine");
        write(folder.path(), base).unwrap();
        assert!(!folder.path().join("mine.state").exists());
        std::fs::write(folder.path().join(INFO), "theirs.000002\t328\t0-1-5\n").unwrap();
        write(folder.path(), base).unwrap();
        assert_eq!(std::fs::read(folder.path().join("mine.state")).unwrap(), b"0-1-5\n");
    }
}
