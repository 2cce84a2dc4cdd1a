//! The output: standard output, or a file that gets its name only when it is complete.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use xb_cli::{Failure, FailureContext as _, standard_stream};
use xb_reader::{PartialFile, RelPath, TargetDir, TargetError};

use crate::hints;

/// The output of one run. Call [`finish`](Output::finish) at the end; dropping it removes a file.
pub(crate) enum Output {
    Stdout(File),
    New(Box<NewFile>),
}

/// An unfinished file.
pub(crate) struct NewFile {
    target: TargetDir,
    partial: PartialFile,
    name: RelPath,
    folder: PathBuf,
    written: u64,
}

impl Output {
    /// Uses standard output.
    pub(crate) fn stdout() -> Result<Self, Failure> {
        Ok(Self::Stdout(standard_stream(&io::stdout()).stage("output")?))
    }

    /// Creates a new file at `path`, which must not exist.
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Failure::usage(format!("{} is not a file name", path.display())));
        };
        let folder = if folder == Path::new("") { Path::new(".") } else { folder };
        let name = RelPath::new(name.as_bytes()).stage("output")?;
        let failed = |error: TargetError| hints::output_failure(path, &error);
        let target = TargetDir::open(folder).map_err(failed)?;
        let partial = target.begin(&name).map_err(failed)?;
        Ok(Self::New(Box::new(NewFile {
            target,
            partial,
            name,
            folder: folder.to_owned(),
            written: 0,
        })))
    }

    /// Completes the output after everything was written and checked: syncs and renames a file.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        let file = match self {
            Self::Stdout(_) => return Ok(()),
            Self::New(file) => *file,
        };
        let NewFile { target, partial, name, folder, written } = file;
        let path = folder.join(name.to_string());
        partial
            .commit(&target, &name, written, true)
            .map_err(|error| hints::output_failure(&path, &error))?;
        sync_folder(&folder).stage("output")
    }
}

/// Syncs the names in a folder.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stdout(file) => file.write(bytes),
            Self::New(file) => {
                file.partial.write_at(file.written, bytes).map_err(|error| match error {
                    TargetError::Write { source, .. } => source,
                    other => io::Error::other(other),
                })?;
                file.written += bytes.len() as u64;
                Ok(bytes.len())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
