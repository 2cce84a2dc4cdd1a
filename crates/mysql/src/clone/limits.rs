//! How much of what a donor describes is kept: a donor does not decide how much memory a clone takes.

use super::descriptor::Stage;
use super::error::{CloneError, unsupported};

/// Most files of a clone. Each is kept until its end, here and in lists that are made from these, with some 500 bytes and its
/// name; a server with a million tables has as many files.
pub const MAX_FILES: usize = 1 << 21;
/// Most files of the redo log: servers have at most 100.
pub const MAX_REDO_FILES: usize = 1024;
/// Most bytes of the names of all files: so many of 256 bytes each, or a million of 512.
const MAX_NAMES: usize = 512 << 20;

/// Refuses a stage that announces too many files.
pub(super) fn announced(stage: Stage, files: u32) -> Result<(), CloneError> {
    let most = match stage {
        Stage::File => MAX_FILES,
        Stage::Redo => MAX_REDO_FILES,
        Stage::Init | Stage::Page | Stage::Done => return Ok(()),
    };
    match usize::try_from(files).is_ok_and(|files| files <= most) {
        true => Ok(()),
        false => too_many(format!("{files} files in the {} stage, more than {most}", stage.name())),
    }
}

/// The files that are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct KeptFiles {
    count: usize,
    /// Bytes of their names.
    names: usize,
}

impl KeptFiles {
    /// Counts a file with a name of so many bytes. Those that DDL creates are not announced.
    pub(super) fn add(&mut self, name: usize) -> Result<(), CloneError> {
        self.count += 1;
        match self.count > MAX_FILES {
            true => too_many(format!("more than {MAX_FILES} files")),
            false => self.rename(0, name),
        }
    }

    /// Counts a new name in place of an old one.
    pub(super) fn rename(&mut self, old: usize, new: usize) -> Result<(), CloneError> {
        self.names = self.names.saturating_sub(old).saturating_add(new);
        match self.names > MAX_NAMES {
            true => too_many(format!("files whose names have more than {MAX_NAMES} bytes")),
            false => Ok(()),
        }
    }
}

fn too_many<T>(what: String) -> Result<T, CloneError> {
    unsupported(format!(
        "the donor announces {what}: check that it is the server that you mean; a server with so many has to be dumped"
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panic")]

    use super::*;

    #[test]
    fn files_and_their_names_have_a_limit() {
        let mut kept = KeptFiles::default();
        (0..MAX_FILES).for_each(|_| kept.add(8).unwrap());
        let error = kept.add(8).unwrap_err().to_string();
        assert!(error.contains("more than 2097152 files"), "{error}");
        // Names do not count once files have others.
        let mut kept = KeptFiles::default();
        kept.add(100).unwrap();
        (0..MAX_NAMES / 100).for_each(|_| kept.rename(100, 100).unwrap());
        kept.rename(100, MAX_NAMES).unwrap();
        let error = kept.add(1).unwrap_err().to_string();
        assert!(error.contains("names have more than"), "{error}");
    }
}
