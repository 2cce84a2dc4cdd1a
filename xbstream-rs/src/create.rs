//! Mode `-c`.

use std::io::{self, BufWriter};

use xb_cli::{Failure, FailureContext as _, Log, standard_stream};
use xb_pipeline::{CreateError, CreateNote, CreateOptions};

use crate::args::CommandLine;

/// Heads and small files are buffered up to this many bytes; larger payloads are written directly.
const BUFFER: usize = 64 << 10;
/// Writes the stream. Signals are not caught here: there is nothing to clean up, and every reader
/// refuses a stream without its end.
pub(crate) fn run(line: &CommandLine, log: &Log) -> Result<(), Failure> {
    xb_cli::refuse_terminal_output("redirect it: xbstream-rs -c FILE ... > STREAM")?;
    let dir = line.directory.clone().unwrap_or_default();
    if line.directory.is_some() && !dir.is_dir() {
        return Err(Failure::new(format!("{}: not a directory", dir.display()))
            .stage("create")
            .hint("give an existing directory with -C"));
    }
    let mut options = CreateOptions::default();
    options.dir = dir;
    options.absolute_names = line.absolute_names;
    // Not the standard library's stdout, which searches its output for line breaks.
    let output = standard_stream(&io::stdout()).stage("create")?;
    let output = BufWriter::with_capacity(BUFFER, output);
    xb_pipeline::create(output, &line.files, &options, |note| match note {
        CreateNote::File(name) => log.file(name),
        CreateNote::Stripped { prefix } => log.warn(format_args!("removing leading '{prefix}'")),
        _ => {}
    })
    .map_err(|error| failure(&error))?;
    Ok(())
}

fn failure(error: &CreateError) -> Failure {
    let hint = match error {
        CreateError::Write(source) if source.kind() == io::ErrorKind::BrokenPipe => {
            "the program that reads the stream has ended; read its messages"
        }
        CreateError::Write(source) if source.kind() == io::ErrorKind::StorageFull => {
            "make room at its destination"
        }
        CreateError::Write(_) => "check the destination of the stream",
        CreateError::Open { .. } => "check its name and permissions",
        CreateError::NotRegular { .. } => {
            "give files only; list the files of a directory one by one"
        }
        CreateError::Shrunk { .. } => "create the stream again when nothing changes the file",
        CreateError::Twice { .. } => "give it only once",
        CreateError::Name { .. } => "rename it; the stream format cannot hold this name",
        _ => "check the disk and the system log",
    };
    Failure::new(error.to_string()).stage("create").hint(hint)
}
