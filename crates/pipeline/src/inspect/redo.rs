//! Checks that recovery can read the redo log of a stream: that it is there, begins with a
//! checkpoint, and is as long as the log that was copied.
//!
//! The content is checked of a log that mariadb-backup 10.8 or later wrote, unless it is encrypted. Recovery ends at the
//! first record that is not intact, and only notices that if it is short of the position at which the checkpoint was made:
//! all later transactions would be lost without a word.

use std::fmt;

use xb_pages::{REDO_HEAD, RedoHeader, RedoRecords, RedoStart};
use xb_reader::RelPath;

/// A redo log that recovery cannot read, or not to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BadRedo {
    /// The file's name in the stream; `None` if there is no redo log.
    pub path: Option<RelPath>,
    /// Its defect.
    pub fault: RedoFault,
}

/// Defect of a redo log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RedoFault {
    /// The stream has none.
    Missing,
    /// It has no bytes, or only zeros.
    Blank,
    /// No checkpoint in its head is intact.
    NoCheckpoint,
    /// It ends too early.
    Cut {
        /// Length in bytes.
        len: u64,
        /// Length in bytes up to the position that the backup states as its end.
        expected: u64,
    },
    /// Its records are damaged before the end, where recovery ends.
    Broken {
        /// Position in the log up to which they are intact.
        intact: u64,
        /// Position at which the backup states that it ends.
        end: u64,
    },
}

impl fmt::Display for RedoFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("the backup has no redo log, so it cannot be prepared"),
            Self::Blank => f.write_str("the redo log is empty, or only zeros"),
            Self::NoCheckpoint => f.write_str("the redo log has no intact checkpoint in its head"),
            Self::Cut { len, expected } => write!(
                f,
                "the redo log has {len} bytes; up to the end that the backup states, it has {expected}"
            ),
            Self::Broken { intact, end } => write!(
                f,
                "the redo log is damaged after position {intact}, and the backup ends at {end}: recovery would lose \
                 the transactions in between"
            ),
        }
    }
}

/// A file of the redo log while its bytes arrive.
#[derive(Debug, Default)]
pub(super) struct RedoFile {
    head: Vec<u8>,
    /// Records after the head, if they can be checked.
    records: Option<RedoRecords>,
    len: u64,
    written: bool,
}

impl RedoFile {
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        let room = REDO_HEAD.saturating_sub(self.head.len()).min(bytes.len());
        let (head, content) = bytes.split_at(room);
        self.head.extend_from_slice(head);
        self.begin(room > 0);
        if let Some(records) = &mut self.records {
            records.feed(content);
        }
        self.len = self.len.saturating_add(bytes.len() as u64);
        self.written = self.written || bytes.iter().any(|byte| *byte != 0);
    }

    /// Takes a hole: `len` zeros.
    pub(super) fn feed_zeros(&mut self, len: u64) {
        let room = (REDO_HEAD - self.head.len().min(REDO_HEAD)) as u64;
        let zeros = usize::try_from(room.min(len)).unwrap_or_default();
        self.head.resize(self.head.len() + zeros, 0);
        self.begin(zeros > 0);
        if let Some(records) = &mut self.records {
            records.feed_zeros(len - zeros as u64);
        }
        self.len = self.len.saturating_add(len);
    }

    /// Begins to check the content when the head is complete. `is_new`: bytes of the head have arrived.
    fn begin(&mut self, is_new: bool) {
        if is_new && self.head.len() == REDO_HEAD {
            self.records = RedoRecords::of_head(&self.head);
        }
    }

    pub(super) fn finish(self) -> RedoFound {
        let Self { head, records, len, written } = self;
        let fault = match RedoStart::of_head(&head) {
            None if !written => Some(RedoFault::Blank),
            None if RedoStart::is_expected(&head) => Some(RedoFault::NoCheckpoint),
            _ => None,
        };
        let copied_from = RedoHeader::of_head(&head).and_then(|header| header.copied_from());
        let intact = records.map(|records| records.intact());
        RedoFound { start: RedoStart::of_head(&head), fault, len, copied_from, intact, end: None }
    }
}

/// Facts from a file of the redo log.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RedoFound {
    /// Position at which recovery starts, if the head states it.
    pub(super) start: Option<RedoStart>,
    fault: Option<RedoFault>,
    len: u64,
    copied_from: Option<u64>,
    /// Position up to which the content was checked, and is intact.
    intact: Option<u64>,
    /// Position at which the log ends, as far as the log itself shows it.
    pub(super) end: Option<u64>,
}

impl RedoFound {
    /// The redo log of a clone, which has `len` bytes from its checkpoint on.
    pub(super) fn of_clone(start: Option<RedoStart>, len: u64) -> Self {
        let fault = start.is_none().then_some(RedoFault::NoCheckpoint);
        let end = start.map(|start| start.checkpoint.saturating_add(len));
        Self { start, fault, len, copied_from: None, intact: None, end }
    }

    /// The defect of the file, if the backup ends at this position in the log.
    fn fault(&self, end: Option<u64>) -> Option<RedoFault> {
        let cut = || {
            let copied = end?.checked_sub(self.copied_from?)?;
            let expected = copied.checked_add(REDO_HEAD as u64)?;
            (self.len < expected).then_some(RedoFault::Cut { len: self.len, expected })
        };
        let broken = || {
            let (intact, end) = (self.intact?, end?);
            (intact < end).then_some(RedoFault::Broken { intact, end })
        };
        self.fault.or_else(cut).or_else(broken)
    }
}

/// The defect of the redo log with these files. `required`: the backup cannot be prepared without
/// one. `end`: position in the log at which the backup ends.
pub(super) fn bad_redo(
    files: &[(RelPath, RedoFound)],
    required: bool,
    end: Option<u64>,
) -> Option<BadRedo> {
    if files.is_empty() {
        return required.then_some(BadRedo { path: None, fault: RedoFault::Missing });
    }
    // A server may keep files beside the log that it has not begun to write.
    let started = files.iter().any(|(_, found)| found.start.is_some());
    let counts = |fault: &RedoFault| {
        !started || matches!(fault, RedoFault::Cut { .. } | RedoFault::Broken { .. })
    };
    files.iter().find_map(|(path, found)| {
        let fault = found.fault(end).filter(counts)?;
        Some(BadRedo { path: Some(path.clone()), fault })
    })
}
