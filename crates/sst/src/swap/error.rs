//! Errors of a swap.

use std::io;
use std::path::{Path, PathBuf};

use super::journal::JournalError;

/// Reason why the data could not be swapped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SwapError {
    /// A system call failed.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// The attempted operation.
        what: &'static str,
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The journal cannot be read.
    #[error("{}: {source}", path.display())]
    Journal {
        /// The journal.
        path: PathBuf,
        /// Its defect.
        source: JournalError,
    },
    /// An entry is at none of its paths, or at two that exclude each other.
    #[error(
        "{} was changed during the swap: {name} is not where it should be", folder.display()
    )]
    Lost {
        /// The directory.
        folder: PathBuf,
        /// The entry.
        name: String,
    },
    /// The old data lacks an entry, so it cannot be put back. Nothing was changed.
    #[error("the old data of {} is incomplete: {name} is missing; nothing was changed", folder.display())]
    OldIsNotWhole {
        /// The directory.
        folder: PathBuf,
        /// The entry.
        name: String,
    },
    /// The old data could not be put back. Nothing was moved, and the server can start on the present data.
    #[error("{source}; nothing was moved")]
    NothingMoved {
        /// The cause.
        source: Box<SwapError>,
    },
    /// In a directory outside the data directory is the data of another server's transfer. Nothing was changed.
    #[error("{}/#sql-xb holds the data of a transfer to {}", folder.display(), home.display())]
    Taken {
        /// The directory.
        folder: PathBuf,
        /// The other server's data directory.
        home: PathBuf,
    },
    /// In a directory outside is data that may be another server's, although its data directory has the same path, as in
    /// two containers, or none is noted, as by earlier versions. Nothing was changed.
    #[error("{} is of no transfer that the data directory {} knows of", file.display(), datadir.display())]
    Unknown {
        /// The directory.
        folder: PathBuf,
        /// The file or directory.
        file: PathBuf,
        /// The data directory.
        datadir: PathBuf,
    },
    /// Another transfer works in a directory outside the data directory. Nothing was changed.
    #[error("another state transfer is running in {}/#sql-xb", folder.display())]
    Busy {
        /// The directory.
        folder: PathBuf,
    },
    /// An entry is both kept and replaced.
    #[error(
        "{name} must stay in {}, but the donor sent it, too; nothing was swapped", folder.display()
    )]
    KeptEntry {
        /// The directory.
        folder: PathBuf,
        /// The entry.
        name: String,
    },
    /// The journal belongs to another data directory, and names that one's directories.
    #[error(
        "the journal in {} was written for {}: the data directory was moved or copied during a swap", datadir.display(), home.display()
    )]
    Elsewhere {
        /// The data directory.
        datadir: PathBuf,
        /// The data directory that the journal was written for.
        home: PathBuf,
    },
}

pub(crate) fn failed<'a>(
    what: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> SwapError + 'a {
    move |source| SwapError::Io { what, path: path.to_owned(), source }
}
