//! A disk that is full: reported as that, with the next step, whoever found it full.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub(crate) use xb_server::free_bytes;

use crate::child::{self, OnLine};
use crate::error::BackupError;
use crate::hints::says_full;

/// Next step where the same command resumes, or begins again by itself.
pub(crate) const AGAIN: &str = "make room there, and run the same command again";
/// Next step where a program has changed files in place, and was ended in between.
pub(crate) const ANEW: &str = "make room there, empty the directory, and run the same command again; do not start a server on these files";
/// Next step where the files lay in a scratch directory.
pub(crate) const ELSEWHERE: &str = "make room there, or name a larger directory with --scratch-dir, and run the same command again; this run has removed its files there";
/// Below this number of free bytes, a server or program that failed without a word failed for lack of room.
const NO_ROOM: u64 = 1 << 20;

/// Returns whether programs can still write where `path` is.
pub(crate) fn has_room(path: &Path) -> bool {
    free_bytes(path).is_none_or(|free| free >= NO_ROOM)
}

/// Passes lines on, and notes if one of them says that a disk is full.
pub(crate) fn listen(on_line: &OnLine) -> (OnLine, Arc<AtomicBool>) {
    child::listen_for(on_line, says_full)
}

impl BackupError {
    /// This error, as one of a full disk with its next step if it is one.
    pub(crate) fn or_full(self, dir: &Path, next: &'static str) -> Self {
        match self {
            Self::Restore { what, .. } if says_full(&what) => {
                Self::FullDisk { dir: dir.display().to_string(), what, next }
            }
            other => other,
        }
    }

    /// This error of work in the scratch directory `scratch`, as one of a full disk if it is one. To be asked before the
    /// directory is removed: programs may fail without a word, because their log is on the full disk, too.
    pub(crate) fn or_full_scratch(self, scratch: &Path) -> Self {
        let parent = scratch.parent().unwrap_or(scratch).display().to_string();
        let full = |what| Self::FullDisk { dir: parent, what, next: ELSEWHERE };
        match self {
            Self::FullDisk { what, .. } => full(what),
            Self::Restore { .. } | Self::Program { .. } | Self::System { .. } => {
                let text = self.to_string();
                if says_full(&text) || !has_room(scratch) { full(text) } else { self }
            }
            // The dump or the other server may be elsewhere.
            Self::Rescue { .. } | Self::Until(_) => {
                let text = self.to_string();
                if says_full(&text) && !has_room(scratch) { full(text) } else { self }
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_of_the_directory_itself_are_of_its_disk() {
        let dir = tempfile::tempdir().unwrap();
        let scratch = dir.path().join("xb-rescue-1");
        std::fs::create_dir(&scratch).unwrap();
        let restore = |what: &str| BackupError::Restore { target: "t".into(), what: what.into() };
        let full = restore("x: No space left on device").or_full_scratch(&scratch);
        let text = full.to_string();
        assert!(text.contains(dir.path().to_str().unwrap()) && !text.contains("xb-rescue-1"));
        assert!(full.hint().unwrap().contains("--scratch-dir"));
        let other = restore("x: Permission denied").or_full_scratch(&scratch);
        assert!(matches!(other, BackupError::Restore { .. }));
        let dump = BackupError::Rescue {
            table: "a.b".into(),
            what: "cannot write the dump: No space left on device".into(),
        };
        let dump = dump.or_full_scratch(&scratch);
        assert!(matches!(dump, BackupError::Rescue { .. }));
        assert!(dump.hint().unwrap().contains("make room"));
    }
}
