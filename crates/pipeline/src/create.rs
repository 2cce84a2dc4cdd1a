//! Creates a stream from files, cut into chunks as the stock tools do.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use xb_reader::{ChunkWriter, PathError, Printable, RelPath};

use crate::flow::hold_ups::Wait;

use crate::flow::observer::Observer;
use crate::flow::slab::Buffer;

/// Payload length of every chunk except a file's last: 10 MiB, as in `xbstream -c` and `mbstream
/// -c`.
const CHUNK: usize = 10 << 20;

/// Options for creating a stream from files.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct CreateOptions {
    /// Directory for relative names; empty for the working directory.
    pub dir: PathBuf,
    /// Store names as given, even if they are unsafe and careful readers reject them.
    pub absolute_names: bool,
    /// Counts bytes and files.
    pub observer: Observer,
}

/// An event to report to the user.
#[derive(Debug)]
#[non_exhaustive]
pub enum CreateNote<'a> {
    /// This file begins. The name is the stored one.
    File(&'a Printable),
    /// A name is stored without this prefix.
    Stripped {
        /// The prefix that was removed.
        prefix: Printable,
    },
}

/// Totals of the stream written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CreateReport {
    /// Files in the stream.
    pub files: u64,
    /// Bytes of the files' content.
    pub bytes: u64,
}

/// Reason why the stream could not be created. Anything written so far has no proper end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// A file cannot be opened.
    #[error("{name}: cannot open: {source}")]
    Open {
        /// The name as given.
        name: Printable,
        /// System error.
        source: io::Error,
    },
    /// The file is not a regular file; only regular files can be stored.
    #[error("{name}: not a regular file")]
    NotRegular {
        /// The name as given.
        name: Printable,
    },
    /// The name is invalid, and readers would reject it.
    #[error("{name}: {source}")]
    Name {
        /// The name as given.
        name: Printable,
        /// Defect of the name.
        source: PathError,
    },
    /// Two files would have the same name in the stream, which readers reject.
    #[error("{name}: given twice")]
    Twice {
        /// The name as stored.
        name: Printable,
    },
    /// A file cannot be read.
    #[error("{name}: cannot read at offset {offset}: {source}")]
    Read {
        /// The name as given.
        name: Printable,
        /// Offset in the file.
        offset: u64,
        /// System error.
        source: io::Error,
    },
    /// The file became shorter while it was read, so its content is unknown.
    #[error("{name}: it shrank while it was read, from {stated} to {len} bytes")]
    Shrunk {
        /// The name as given.
        name: Printable,
        /// Length in bytes when it was opened.
        stated: u64,
        /// Bytes that were read.
        len: u64,
    },
    /// The stream cannot be written to the output.
    #[error("cannot write the stream: {0}")]
    Write(#[source] io::Error),
}

/// Writes a stream of `files`, one after the other in the order given.
///
/// The bytes are those of the stock tools: payloads of 10 MiB and a shorter last one; no payload
/// for an empty file. Names are stored as given, without a leading `/` and without everything up to
/// the last `..`, unless [`CreateOptions::absolute_names`] is set. Symbolic links are followed.
///
/// All files are checked before anything is written.
///
/// # Errors
/// The first file that cannot be stored, or an output that fails. If anything has been written, the
/// stream ends in an unfinished file, so that careful readers do not mistake it for complete.
pub fn create(
    output: impl Write,
    files: &[OsString],
    options: &CreateOptions,
    mut note: impl FnMut(CreateNote<'_>),
) -> Result<CreateReport, CreateError> {
    let planned = plan(files, options, &mut note)?;
    let mut creator = Creator {
        writer: ChunkWriter::new(output),
        buffer: Buffer::new(CHUNK),
        observer: &options.observer,
    };
    let mut report = CreateReport::default();
    for file in &planned {
        note(CreateNote::File(&Printable::new(&file.stored)));
        match creator.add(file) {
            Ok(bytes) => {
                options.observer.add_files(1);
                report.files += 1;
                report.bytes += bytes;
            }
            Err(error) => {
                creator.leave_unfinished(file, &error);
                return Err(error);
            }
        }
    }
    creator.writer.finish().map_err(CreateError::Write)?;
    Ok(report)
}

/// A file that will be stored in the stream.
struct PlannedFile<'a> {
    given: &'a OsStr,
    path: PathBuf,
    stored: Vec<u8>,
}

/// Checks all files, so that a mistake is found before half a stream has been sent.
fn plan<'a>(
    files: &'a [OsString],
    options: &CreateOptions,
    note: &mut impl FnMut(CreateNote<'_>),
) -> Result<Vec<PlannedFile<'a>>, CreateError> {
    let mut names = HashSet::new();
    let mut planned = Vec::with_capacity(files.len());
    for given in files {
        let path = options.dir.join(given);
        let failed = |source| CreateError::Open { name: printable(given), source };
        if !path.metadata().map_err(failed)?.is_file() {
            return Err(CreateError::NotRegular { name: printable(given) });
        }
        let StoredName { name, stripped } =
            stored_name(given.as_bytes(), options.absolute_names)
                .map_err(|source| CreateError::Name { name: printable(given), source })?;
        if let Some(prefix) = stripped {
            note(CreateNote::Stripped { prefix: Printable::new(&prefix) });
        }
        if !names.insert(name.clone()) {
            return Err(CreateError::Twice { name: Printable::new(&name) });
        }
        planned.push(PlannedFile { given, path, stored: name });
    }
    Ok(planned)
}

struct Creator<'a, W> {
    writer: ChunkWriter<W>,
    buffer: Buffer,
    observer: &'a Observer,
}

impl<W: Write> Creator<'_, W> {
    /// Writes one file and returns its length in bytes.
    fn add(&mut self, planned: &PlannedFile<'_>) -> Result<u64, CreateError> {
        let (mut file, stated) = open_regular(&planned.path, planned.given)?;
        let mut offset = 0;
        loop {
            let read = || read_full(&mut file, &mut self.buffer);
            let len = self.observer.waiting(Wait::Source, read).map_err(|source| {
                CreateError::Read { name: printable(planned.given), offset, source }
            })?;
            if len > 0 {
                let write = || self.writer.payload(&planned.stored, offset, &self.buffer[..len]);
                self.observer.waiting(Wait::Sink, write).map_err(CreateError::Write)?;
                self.observer.add_bytes(len as u64);
                offset += len as u64;
            }
            if len < CHUNK {
                break;
            }
        }
        if offset < stated {
            let name = printable(planned.given);
            return Err(CreateError::Shrunk { name, stated, len: offset });
        }
        self.writer.end(&planned.stored).map_err(CreateError::Write)?;
        Ok(offset)
    }

    /// Leaves an unfinished file after an error. Otherwise a stream that ends before a file's first
    /// chunk would look complete.
    fn leave_unfinished(mut self, planned: &PlannedFile<'_>, error: &CreateError) {
        let begun = match error {
            // The reader has closed the output, or writing is impossible.
            CreateError::Write(_) => return,
            CreateError::Read { offset: len, .. } | CreateError::Shrunk { len, .. } => *len > 0,
            _ => false,
        };
        // If this fails, the stream is cut off, which readers detect, too.
        if !begun && self.writer.payload(&planned.stored, 0, &[]).is_ok() {
            let _ = self.writer.finish();
        }
    }
}

fn printable(name: &OsStr) -> Printable {
    Printable::new(name.as_bytes())
}

/// Opens a file, and returns its length in bytes.
fn open_regular(path: &Path, given: &OsStr) -> Result<(File, u64), CreateError> {
    let failed = |source| CreateError::Open { name: printable(given), source };
    // Without this flag, opening a FIFO would block before its type is known. Regular files ignore
    // it.
    let nonblock = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(nonblock).open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(CreateError::NotRegular { name: printable(given) });
    }
    // Only a hint, so a failure does not matter.
    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Sequential);
    Ok((file, metadata.len()))
}

/// Fills the buffer, or reads to the end of the input.
fn read_full(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        match input.read(&mut buffer[len..]) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

/// A name as stored in the stream.
#[derive(Debug, PartialEq, Eq)]
struct StoredName {
    name: Vec<u8>,
    /// The prefix that was removed.
    stripped: Option<Vec<u8>>,
}

/// Returns the name to store for a given one. Like Percona 8.0, it removes everything up to the
/// last `..` and leading slashes. In addition, it normalizes names that our reader would reject
/// (`a//b`, `a/./b`).
fn stored_name(given: &[u8], absolute: bool) -> Result<StoredName, PathError> {
    if absolute {
        if given.len() > RelPath::MAX_LEN {
            return Err(PathError::TooLong { len: given.len(), max: RelPath::MAX_LEN });
        }
        return Ok(StoredName { name: given.to_vec(), stripped: None });
    }
    let parts: Vec<&[u8]> = given.split(|&b| b == b'/').collect();
    let kept =
        parts.iter().rposition(|part| *part == b"..").map_or(&parts[..], |at| &parts[at + 1..]);
    let mut name = kept.join(&b'/');
    let slashes = name.iter().take_while(|&&b| b == b'/').count();
    name.drain(..slashes);
    let stripped = given.len() - name.len();
    match RelPath::new(&name) {
        Ok(_) => {}
        Err(PathError::Component { .. } | PathError::Absolute { .. }) => {
            let plain: Vec<&[u8]> =
                kept.iter().filter(|part| !matches!(**part, b"" | b".")).copied().collect();
            name = plain.join(&b'/');
            RelPath::new(&name)?;
        }
        Err(error) => return Err(error),
    }
    Ok(StoredName { name, stripped: (stripped > 0).then(|| given[..stripped].to_vec()) })
}

#[cfg(test)]
mod tests {
    use xb_reader::{ChunkKind, ChunkReader, Dialect, Item, Limits};

    use super::*;

    /// Name, offset and length of every chunk; an end chunk has no length.
    fn chunks(stream: &[u8]) -> Vec<(String, Option<(u64, u64)>)> {
        let mut reader = ChunkReader::new(stream, Dialect::Auto, Limits::default());
        let mut chunks = Vec::new();
        while let Some(item) = reader.next().unwrap() {
            if let Item::Chunk(head, _) = item {
                let place = match head.kind {
                    ChunkKind::Payload { offset, len, .. } => Some((offset, len)),
                    _ => None,
                };
                chunks.push((head.path.to_string(), place));
            }
        }
        chunks
    }

    fn make(files: &[(&str, usize)], names: &[&str]) -> Result<Vec<u8>, CreateError> {
        let dir = tempfile::tempdir().unwrap();
        for (name, len) in files {
            std::fs::write(dir.path().join(name), vec![b'x'; *len]).unwrap();
        }
        std::fs::create_dir(dir.path().join("folder")).unwrap();
        let names: Vec<OsString> = names.iter().map(OsString::from).collect();
        let options = CreateOptions { dir: dir.path().into(), ..CreateOptions::default() };
        let mut stream = Vec::new();
        let report = create(&mut stream, &names, &options, |_| ())?;
        assert_eq!(report.files, names.len() as u64);
        Ok(stream)
    }

    #[test]
    fn the_cut_is_that_of_the_stock_tools() {
        let ten = 10_485_760;
        let files =
            [("empty", 0), ("one", 1), ("ten", ten), ("less", ten - 1), ("more", 2 * ten + 1)];
        let stream = make(&files, &["more", "empty", "ten", "one", "less"]).unwrap();
        let len = ten as u64;
        let want = [
            ("more", Some((0, len))),
            ("more", Some((len, len))),
            ("more", Some((2 * len, 1))),
            ("more", None),
            ("empty", None),
            ("ten", Some((0, len))),
            ("ten", None),
            ("one", Some((0, 1))),
            ("one", None),
            ("less", Some((0, len - 1))),
            ("less", None),
        ];
        assert_eq!(chunks(&stream), want.map(|(name, place)| (name.to_owned(), place)));
    }

    #[test]
    fn an_unsupported_file_is_named() {
        let files = [("a", 3)];
        assert!(matches!(make(&files, &["missing"]), Err(CreateError::Open { .. })));
        assert!(matches!(make(&files, &["folder"]), Err(CreateError::NotRegular { .. })));
        assert!(matches!(make(&files, &["a", "a"]), Err(CreateError::Twice { .. })));
        assert!(matches!(make(&files, &["a", "folder/../a"]), Err(CreateError::Twice { .. })));
        let long = "x/".repeat(300);
        assert!(matches!(make(&files, &[&long]), Err(CreateError::Open { .. })));
        assert_eq!(
            make(&files, &["missing"]).unwrap_err().to_string().split(':').next(),
            Some("missing")
        );
    }

    #[test]
    fn a_file_that_cannot_be_read_leaves_a_stream_that_no_reader_takes() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), "abc").unwrap();
        // Looks like a regular file but cannot be read at its start.
        let files = ["a".into(), "/proc/self/mem".into()];
        let options = CreateOptions { dir: dir.path().into(), ..CreateOptions::default() };
        let mut stream = Vec::new();
        let error = create(&mut stream, &files, &options, |_| ()).unwrap_err();
        assert!(matches!(error, CreateError::Read { offset: 0, .. }), "{error}");
        let mut reader = ChunkReader::new(&stream[..], Dialect::Auto, Limits::default());
        let error = loop {
            match reader.next() {
                Ok(item) => assert!(item.is_some(), "accepted as complete"),
                Err(error) => break error,
            }
        };
        assert_eq!(
            error.to_string(),
            "the stream is truncated: 1 file has no end chunk: proc/self/mem (at 0)"
        );
    }

    /// Cuts a file at the first write, which is when its beginning was read.
    struct Cutter {
        stream: Vec<u8>,
        file: Option<PathBuf>,
        to: u64,
    }

    impl Write for Cutter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if let Some(path) = self.file.take() {
                OpenOptions::new().write(true).open(path)?.set_len(self.to)?;
            }
            self.stream.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_file_that_shrinks_leaves_a_stream_that_no_reader_takes() {
        let dir = tempfile::tempdir().unwrap();
        let len = 2 * CHUNK as u64 + 7;
        for to in [CHUNK as u64 + 1, CHUNK as u64, 0] {
            std::fs::write(dir.path().join("t.ibd"), vec![1; 2 * CHUNK + 7]).unwrap();
            let file = Some(dir.path().join("t.ibd"));
            let mut output = Cutter { stream: Vec::new(), file, to };
            let options = CreateOptions { dir: dir.path().into(), ..CreateOptions::default() };
            let error = create(&mut output, &["t.ibd".into()], &options, |_| ()).unwrap_err();
            assert!(
                matches!(error, CreateError::Shrunk { stated, .. } if stated == len),
                "{error}"
            );
            let mut reader = ChunkReader::new(&output.stream[..], Dialect::Auto, Limits::default());
            let error = loop {
                match reader.next() {
                    Ok(item) => assert!(item.is_some(), "accepted as complete"),
                    Err(error) => break error,
                }
            };
            assert!(error.to_string().contains("no end chunk: t.ibd"), "{error}");
        }
    }

    #[test]
    fn mistakes_are_seen_before_anything_is_written() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), "abc").unwrap();
        let options = CreateOptions { dir: dir.path().into(), ..CreateOptions::default() };
        for wrong in ["missing", ".", "a"] {
            let mut stream = Vec::new();
            create(&mut stream, &["a".into(), wrong.into()], &options, |_| ()).unwrap_err();
            assert!(stream.is_empty(), "{wrong}");
        }
    }

    #[test]
    fn an_output_that_fails_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), "abc").unwrap();
        let options = CreateOptions { dir: dir.path().into(), ..CreateOptions::default() };
        let mut room = [0_u8; 20];
        let error = create(&mut room[..], &["a".into()], &options, |_| ()).unwrap_err();
        assert!(matches!(error, CreateError::Write(_)), "{error}");
    }

    #[test]
    fn names_lose_what_leads_out() {
        let table: &[(&str, &str, &str)] = &[
            ("a/b", "a/b", ""),
            ("./a", "./a", ""),
            ("/var/lib/x", "var/lib/x", "/"),
            ("//x", "x", "//"),
            ("../x", "x", "../"),
            ("a/../../b/x", "b/x", "a/../../"),
            ("..//x", "x", "..//"),
            ("/../x", "x", "/../"),
            ("a//b/./c", "a/b/c", ""),
            ("..x/y..", "..x/y..", ""),
        ];
        for (given, name, stripped) in table {
            let stored = stored_name(given.as_bytes(), false).unwrap();
            let got = String::from_utf8(stored.name).unwrap();
            let off = stored.stripped.map(|s| String::from_utf8(s).unwrap()).unwrap_or_default();
            assert_eq!((got.as_str(), off.as_str()), (*name, *stripped), "{given}");
            let stored = stored_name(given.as_bytes(), true).unwrap();
            assert_eq!(stored, StoredName { name: given.as_bytes().to_vec(), stripped: None });
        }
        assert!(stored_name(b"a/..", false).is_err());
    }
}
