//! Where the bytes go: standard output, or a file that has its name only when it is whole.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use xb_cli::{Failure, OrFail as _};
use xb_reader::{PartialFile, RelPath, TargetDir, TargetError};

use crate::hints;

/// Pipes are enlarged to this many bytes, the most an ordinary user may ask for.
const PIPE: usize = 1 << 20;

/// The output of one run. It must end with [`finish`](Output::finish); dropped, a file is gone.
pub(crate) enum Output {
    Stdout(File),
    New(Box<NewFile>),
}

/// A file on its way.
pub(crate) struct NewFile {
    target: TargetDir,
    partial: PartialFile,
    name: RelPath,
    folder: PathBuf,
    written: u64,
}

impl Output {
    /// Standard output as it is.
    pub(crate) fn stdout() -> Result<Self, Failure> {
        let file = File::from(io::stdout().as_fd().try_clone_to_owned().stage("output")?);
        let _ = rustix::pipe::fcntl_setpipe_size(&file, PIPE);
        Ok(Self::Stdout(file))
    }

    /// A new file at `path`; nothing may be there yet.
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Failure::usage(format!("{} is no name for a file", path.display())));
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

    /// All is written and proven: a file is made durable and gets its name.
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

/// Makes the names in a folder durable.
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
