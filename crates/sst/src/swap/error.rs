//! Why data could not be exchanged.

use std::io;
use std::path::{Path, PathBuf};

use super::journal::JournalError;

/// Why the data could not be exchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SwapError {
    /// The system refused something.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The journal cannot be read.
    #[error("{}: {source}", path.display())]
    Journal {
        /// The journal.
        path: PathBuf,
        /// What is wrong with it.
        source: JournalError,
    },
    /// An entry is in none of its places, or in two that exclude each other.
    #[error(
        "{} was changed while the data was being exchanged: {name} is not where it should be", folder.display()
    )]
    Lost {
        /// The folder.
        folder: PathBuf,
        /// The entry.
        name: String,
    },
    /// An entry is to stay, and to be replaced.
    #[error(
        "{name} is to stay in {}, and has come from the donor, too: nothing was exchanged", folder.display()
    )]
    Kept {
        /// The folder.
        folder: PathBuf,
        /// The entry.
        name: String,
    },
    /// The journal is of another data directory, and names folders of that one's.
    #[error(
        "the journal in {} was written for {}: the data directory was moved or copied in the middle of an exchange", datadir.display(), home.display()
    )]
    Elsewhere {
        /// The data directory.
        datadir: PathBuf,
        /// The one it was written for.
        home: PathBuf,
    },
}

pub(crate) fn failed<'a>(
    what: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> SwapError + 'a {
    move |source| SwapError::Io { what, path: path.to_owned(), source }
}
