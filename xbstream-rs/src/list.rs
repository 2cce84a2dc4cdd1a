//! Mode `-t`.

use std::collections::HashMap;
use std::io::{self, Read, Write};

use serde::Serialize;
use xb_cli::{Failure, FailureContext as _, Input, Log, Signals, interrupted};
use xb_reader::{
    Change, ChunkHead, ChunkKind, ChunkReader, FileId, Item, Limits, Placement, ReadError, RelPath,
    Unfinished,
};

use crate::args::CommandLine;
use crate::extract::StreamEvidence;
use crate::hints;

/// Reads and checks the whole stream, and prints its files. If it is damaged, the files before the
/// damage are printed, too.
pub(crate) fn run(line: &CommandLine, log: &Log) -> Result<(), Failure> {
    xb_cli::refuse_terminal_input("redirect a stream to it: xbstream-rs -t < FILE")?;
    xb_cli::refuse_closed_output("leave standard output open, or redirect it: > FILE")?;
    let _signals = Signals::catch(|_| ()).stage("start")?;
    let input = Input::stdin().stage("start")?.until_interrupted();
    let mut reader = ChunkReader::new(input, line.dialect, Limits::default());
    let mut list = List::default();
    let outcome = list.fill(&mut reader, log);
    if let Some(signal) = interrupted() {
        return Err(Failure::interrupted(signal));
    }
    list.print(line.json).stage("list").hint("the program that reads the list has ended")?;
    match outcome {
        Err(ref error) if line.allow_truncated && is_cut(error) => log.warn(error),
        Err(error) => return Err(hints::read_failure(&error)),
        Ok(()) => list.seen.warn(log),
    }
    Ok(())
}

fn is_cut(error: &ReadError) -> bool {
    use xb_reader::DecodeError;
    matches!(
        error,
        ReadError::Decode(DecodeError::Truncated { .. })
            | ReadError::Unfinished(Unfinished::Files { .. })
    )
}

/// The known facts of one file.
#[derive(Debug, Serialize)]
struct Entry {
    /// Its name, with escapes for bytes that are not printable UTF-8.
    path: String,
    /// The bytes of the name in hex, if `path` has escapes.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    /// Length in bytes, holes counted. For an incomplete file, the length received.
    size: u64,
    /// Number of its bytes in the stream.
    stored: u64,
    /// Number of chunks with content.
    chunks: u64,
    /// Offset of its first chunk in the stream.
    position: u64,
    /// Whether its end chunk was seen.
    complete: bool,
}

#[derive(Debug, Default)]
struct List {
    /// By file number, which is the order of opening.
    entries: HashMap<FileId, Entry>,
    seen: StreamEvidence,
    /// The file whose content is arriving, and the position in it.
    current: Option<(FileId, Placement)>,
}

impl List {
    fn fill<R: Read>(&mut self, reader: &mut ChunkReader<R>, log: &Log) -> Result<(), ReadError> {
        while let Some(item) = reader.next()? {
            match item {
                Item::Chunk(head, change) => self.chunk(&head, &change, log),
                Item::Data(piece) => self.data(piece.len() as u64),
                Item::ChunkEnd => {}
            }
        }
        Ok(())
    }

    fn chunk(&mut self, head: &ChunkHead, change: &Change, log: &Log) {
        self.current = None;
        match *change {
            Change::Opened { id, replaces } => {
                if let Some(old) = replaces {
                    self.entries.remove(&old);
                }
                self.open(id, head, log);
                self.content(id, head);
            }
            Change::Continued { id } => self.content(id, head),
            Change::Ended { id, size, only_chunk } => {
                if only_chunk {
                    self.open(id, head, log);
                }
                if let Some(entry) = self.entries.get_mut(&id) {
                    entry.size = size;
                    entry.complete = true;
                }
            }
            Change::Renamed { id, replaces, .. } => {
                replaces.and_then(|old| self.entries.remove(&old));
                if let (Some(entry), ChunkKind::Rename { to }) =
                    (self.entries.get_mut(&id), &head.kind)
                {
                    (entry.path, entry.path_hex) = names(to);
                }
            }
            Change::Removed { id, .. } => {
                id.and_then(|id| self.entries.remove(&id));
            }
            Change::FolderRemoved { ref ids } => {
                for id in ids {
                    self.entries.remove(id);
                }
            }
            Change::Ignored => {}
        }
    }

    fn open(&mut self, id: FileId, head: &ChunkHead, log: &Log) {
        log.file(&head.path);
        self.seen.add(&head.path);
        let (path, path_hex) = names(&head.path);
        let position = head.position;
        self.entries.insert(
            id,
            Entry { path, path_hex, size: 0, stored: 0, chunks: 0, position, complete: false },
        );
    }

    fn content(&mut self, id: FileId, head: &ChunkHead) {
        if matches!(head.kind, ChunkKind::Seek { .. }) {
            return;
        }
        self.current = Some((id, head.placement()));
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.chunks += 1;
        }
    }

    fn data(&mut self, mut len: u64) {
        let Some((id, place)) = &mut self.current else { return };
        let Some(entry) = self.entries.get_mut(id) else { return };
        entry.stored += len;
        while let Some((offset, taken)) = place.take(len) {
            entry.size = entry.size.max(offset.saturating_add(taken));
            len -= taken;
        }
    }

    fn print(&mut self, json: bool) -> io::Result<()> {
        let mut entries: Vec<_> = self.entries.drain().collect();
        entries.sort_by_key(|(id, _)| *id);
        let mut out = io::BufWriter::new(io::stdout().lock());
        for (_, entry) in entries {
            if json {
                serde_json::to_writer(&mut out, &entry)?;
                writeln!(out)?;
            } else if entry.complete {
                writeln!(out, "{:>14}  {}", entry.size, entry.path)?;
            }
        }
        out.flush()
    }
}

/// Returns a name as text, and in hex if the text differs from the name.
fn names(path: &RelPath) -> (String, Option<String>) {
    let text = path.to_string();
    let hex = (text.as_bytes() != path.as_bytes())
        .then(|| base16ct::lower::encode_string(path.as_bytes()));
    (text, hex)
}
