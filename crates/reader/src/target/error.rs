//! Errors in the target directory, by operation.

use std::io;
use std::path::PathBuf;

use crate::target::partial_dir::{PARTIAL_DIR, reserved};
use crate::{Printable, RelPath};

/// An operation in the target directory failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// The target directory itself cannot be opened or written to.
    #[error("cannot write to the directory {}: {source}", .path.display())]
    Open {
        /// The directory as the caller named it.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// Another restore is writing into the target directory.
    #[error(
        "another restore is writing into {}: wait for its end, or choose another directory",
        .path.display()
    )]
    InUse {
        /// The directory as the caller named it.
        path: PathBuf,
    },
    /// The name is reserved for files that a restore keeps in the target while it runs.
    #[error("{path}: names starting with {} are reserved", reserved(path).unwrap_or(PARTIAL_DIR))]
    Reserved {
        /// The name in the stream.
        path: RelPath,
    },
    /// Something of that name exists already.
    #[error("{path}: already exists")]
    Exists {
        /// The name in the stream.
        path: RelPath,
    },
    /// A component of the path is not a directory, but a file or a symbolic link, which is never
    /// followed.
    #[error("{path}: {component} is not a directory")]
    NotADirectory {
        /// The name in the stream.
        path: RelPath,
        /// The component.
        component: Printable,
    },
    /// The file, or a directory on its path, cannot be created.
    #[error("{path}: cannot create: {source}")]
    Create {
        /// The name in the stream.
        path: RelPath,
        /// The operating system's error.
        source: io::Error,
    },
    /// Bytes cannot be written.
    #[error("{path}: cannot write at offset {offset}: {source}")]
    Write {
        /// The name in the stream.
        path: RelPath,
        /// Offset in the file.
        offset: u64,
        /// The operating system's error.
        source: io::Error,
    },
    /// Bytes written earlier cannot be read back.
    #[error("{path}: cannot read back at offset {offset}: {source}")]
    ReadBack {
        /// The name in the stream.
        path: RelPath,
        /// Offset in the file.
        offset: u64,
        /// The operating system's error.
        source: io::Error,
    },
    /// The file is written, but setting its length, syncing it or giving it its name failed.
    #[error("{path}: cannot complete: {source}")]
    Commit {
        /// The name in the stream.
        path: RelPath,
        /// The operating system's error.
        source: io::Error,
    },
    /// A file cannot be renamed.
    #[error("{path}: cannot rename to {to}: {source}")]
    Rename {
        /// The old name.
        path: RelPath,
        /// The new name.
        to: RelPath,
        /// The operating system's error.
        source: io::Error,
    },
    /// A file cannot be removed.
    #[error("{path}: cannot remove: {source}")]
    Remove {
        /// The name in the stream.
        path: RelPath,
        /// The operating system's error.
        source: io::Error,
    },
    /// The file system reported that it could not store what was written.
    #[error("cannot sync the files to disk: {source}")]
    Sync {
        /// The operating system's error.
        source: io::Error,
    },
}

impl TargetError {
    /// The file that the error is about, if any.
    #[must_use]
    pub fn path(&self) -> Option<&RelPath> {
        match self {
            Self::Open { .. } | Self::InUse { .. } | Self::Sync { .. } => None,
            Self::Reserved { path }
            | Self::Exists { path }
            | Self::NotADirectory { path, .. }
            | Self::Create { path, .. }
            | Self::Write { path, .. }
            | Self::ReadBack { path, .. }
            | Self::Commit { path, .. }
            | Self::Rename { path, .. }
            | Self::Remove { path, .. } => Some(path),
        }
    }
}
