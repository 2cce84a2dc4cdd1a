//! Log files from the disk of a server that is lost, as the server would send them.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufReader, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use xb_binlog::{
    ChecksumKind, Event, EventHeader, EventType, FormatDescription, HEADER_LEN, LogPosition, MAGIC,
    Reader, artificial_description, artificial_rotation, clear_in_use,
};
use xb_repo::archive::segment::LastTransaction;
use xb_repo::hex::hex;

use crate::archive_error::ArchiveError;
use crate::cancel::CancelToken;

/// Bytes at the beginning of a file in which its format description ends.
const BEGINNING: u64 = 4096;
/// Bytes that are passed on at once.
const PIECE: usize = 256 << 10;

/// A log file.
#[derive(Debug)]
pub(crate) struct LogFile {
    path: PathBuf,
    /// Name of the log.
    pub(crate) name: String,
    /// Bytes that it has now.
    pub(crate) size: u64,
    /// Its format description, as bytes and as content.
    description: Vec<u8>,
    pub(crate) format: FormatDescription,
    /// `server_id` of the server that wrote it.
    pub(crate) server_id: u32,
}

impl LogFile {
    /// Whether the file has a stored transaction, byte for byte.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn has(&self, stored: &LastTransaction) -> Result<bool, ArchiveError> {
        let Some(len) = stored.to.offset.checked_sub(stored.from.offset) else { return Ok(false) };
        let read = || {
            let mut file = File::open(&self.path)?;
            file.seek(SeekFrom::Start(stored.from.offset))?;
            let (mut rest, mut buffer, mut digest) =
                (file.take(len), vec![0; PIECE], Sha256::new());
            loop {
                match rest.read(&mut buffer)? {
                    0 => break,
                    read => digest.update(buffer.get(..read).unwrap_or_default()),
                }
            }
            Ok(rest.limit() == 0 && hex(&digest.finalize()) == stored.sha256)
        };
        read().map_err(|error: std::io::Error| file_error(&self.path, error.to_string()))
    }

    fn open(path: &Path) -> Result<Self, ArchiveError> {
        let wrong = |what: &str| file_error(path, what.to_owned());
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .ok_or_else(|| wrong("a log file must have the name of its log, such as bin.000001, and this is not such a name"))?;
        number(name).ok_or_else(|| {
            wrong("this is not the name of a log, such as bin.000001; give the log files, not their index")
        })?;
        let read = || -> std::io::Result<(Vec<u8>, u64)> {
            let file = File::open(path)?;
            let (size, mut bytes) = (file.metadata()?.len(), Vec::new());
            file.take(BEGINNING).read_to_end(&mut bytes)?;
            Ok((bytes, size))
        };
        let (bytes, size) = read().map_err(|source| {
            let path = path.display().to_string();
            ArchiveError::LogFile { path, source }
        })?;
        let (mut reader, mut input) = (Reader::new(), &bytes[..]);
        let entry = reader.next(&mut input).map_err(|error| wrong(&error.to_string()))?;
        let entry = entry.ok_or_else(|| wrong("it has no complete event"))?;
        let Event::Format(format) = entry.event else {
            return Err(wrong("it does not begin with a format description"));
        };
        let end = usize::try_from(entry.end).unwrap_or(usize::MAX);
        let description = bytes.get(MAGIC.len()..end).unwrap_or_default().to_vec();
        let server_id = entry.header.server_id;
        let (path, name) = (path.to_owned(), name.to_owned());
        Ok(Self { path, name, size, description, format, server_id })
    }
}

/// Opens log files, which have to be one sequence. Returns them in its order.
pub(crate) fn open(paths: &[PathBuf]) -> Result<Vec<LogFile>, ArchiveError> {
    let mut files = paths.iter().map(|path| LogFile::open(path)).collect::<Result<Vec<_>, _>>()?;
    files.sort_by_key(|file| number(&file.name).map(|(_, number)| number));
    for pair in files.windows(2) {
        let [one, two] = pair else { continue };
        let (Some((base, first)), Some((other, second))) = (number(&one.name), number(&two.name))
        else {
            continue;
        };
        let what = match (base == other, second.checked_sub(first)) {
            (false, _) => format!("it belongs to another sequence than {}", one.name),
            (true, Some(0)) => "the log is given twice".to_owned(),
            (true, Some(1)) => continue,
            (true, _) => {
                format!("it does not follow {}: give the files between them, too", one.name)
            }
        };
        return Err(file_error(&two.path, what));
    }
    match files.is_empty() {
        true => Err(ArchiveError::NoLog),
        false => Ok(files),
    }
}

/// The base of a log's name, and its number.
fn number(name: &str) -> Option<(&str, u64)> {
    let (base, digits) = name.rsplit_once('.')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    LogPosition::new(name, 4).filter(|_| is_number)?;
    Some((base, digits.parse().ok()?))
}

fn file_error(path: &Path, what: String) -> ArchiveError {
    ArchiveError::File { path: path.display().to_string(), what }
}

/// Sends log files, event by event.
#[derive(Debug)]
pub(crate) struct LogSender {
    /// Those that are not sent yet; the first one is being sent.
    files: VecDeque<LogFile>,
    open: Option<BufReader<File>>,
    /// Offset in that file.
    offset: u64,
    /// Bytes of the present event that are left.
    left: u64,
    /// Events that are made up, and come next.
    artificial: VecDeque<Vec<u8>>,
    /// Checksums of the events so far.
    checksums: ChecksumKind,
    cancel: CancelToken<()>,
    buffer: Vec<u8>,
}

impl LogSender {
    /// Sends from a position on, at which an event begins. `cancel` ends it.
    pub(crate) fn new(
        files: Vec<LogFile>,
        (log, offset): (&str, u64),
        cancel: CancelToken<()>,
    ) -> Result<Self, ArchiveError> {
        let files: VecDeque<LogFile> =
            files.into_iter().skip_while(|file| file.name != log).collect();
        let checksums = files.front().map_or(ChecksumKind::None, |file| file.format.checksums);
        let mut this = Self {
            files,
            open: None,
            offset: 0,
            left: 0,
            artificial: VecDeque::new(),
            checksums,
            cancel,
            buffer: Vec::new(),
        };
        this.begin(offset)?;
        Ok(this)
    }

    /// Checksums of what comes first.
    pub(crate) fn checksums(&self) -> ChecksumKind {
        self.checksums
    }

    /// Returns whether it was cancelled.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Begins to send the first file that is left, from `offset` on.
    fn begin(&mut self, offset: u64) -> Result<(), ArchiveError> {
        let Some(file) = self.files.front() else { return Ok(()) };
        let wrong = |what: String| file_error(&file.path, what);
        let mut open = File::open(&file.path).map_err(|error| wrong(error.to_string()))?;
        open.seek(SeekFrom::Start(offset)).map_err(|error| wrong(error.to_string()))?;
        let rotation = artificial_rotation(&file.name, offset, &file.description, self.checksums);
        self.artificial
            .push_back(rotation.ok_or_else(|| wrong("its name is too long".to_owned()))?);
        if offset > MAGIC.len() as u64 {
            let description = artificial_description(&file.description, false);
            self.artificial.extend(description);
        }
        self.checksums = file.format.checksums;
        (self.open, self.offset) = (Some(BufReader::with_capacity(PIECE, open)), offset);
        Ok(())
    }

    /// Passes on the next bytes of an event, and whether it ends with them; `None` at the end of the last file, or once
    /// this is stopped. What is no whole event there is not passed on.
    pub(crate) fn next(&mut self) -> Result<Option<(&[u8], bool)>, ArchiveError> {
        loop {
            if self.is_cancelled() {
                return Ok(None);
            }
            if let Some(event) = self.artificial.pop_front() {
                self.buffer = event;
                return Ok(Some((&self.buffer, true)));
            }
            let Some(file) = self.files.front() else { return Ok(None) };
            let rest = file.size.saturating_sub(self.offset);
            if self.left > 0 {
                let piece = usize::try_from(self.left).unwrap_or(PIECE).min(PIECE);
                self.read(piece)?;
                self.left -= piece as u64;
                return Ok(Some((&self.buffer, self.left == 0)));
            }
            if rest < HEADER_LEN as u64 || self.is_cut(rest)? {
                self.end(rest)?;
                continue;
            }
            self.read(HEADER_LEN)?;
            let header = self.header();
            match header.event_type {
                EventType::START_ENCRYPTION => {
                    let what = format!("it is encrypted from offset {} on", self.offset);
                    return Err(self.wrong(what));
                }
                EventType::FORMAT_DESCRIPTION => clear_in_use(&mut self.buffer),
                _ => {}
            }
            self.left = u64::from(header.length).saturating_sub(HEADER_LEN as u64);
            return Ok(Some((&self.buffer, self.left == 0)));
        }
    }

    /// Returns whether the next event is longer than the rest of the file.
    fn is_cut(&mut self, rest: u64) -> Result<bool, ArchiveError> {
        let before = self.offset;
        self.read(HEADER_LEN)?;
        let (header, length) = (self.header(), u64::from(self.header().length));
        self.offset = before;
        let back = self.open.as_mut().map(|open| open.seek_relative(-(HEADER_LEN as i64)));
        back.transpose().map_err(|error| self.wrong(error.to_string()))?;
        // The position of the end tells a cut from a length that is damaged. Not every event states it.
        let low = u64::from(u32::MAX);
        if length > rest && header.end != 0 && u64::from(header.end) != (before + length) & low {
            let what = format!("it is damaged: the event at offset {before} states {length} bytes");
            return Err(self.wrong(what));
        }
        Ok(length > rest)
    }

    fn header(&self) -> EventHeader {
        let bytes = self.buffer.first_chunk::<HEADER_LEN>().copied().unwrap_or_default();
        EventHeader::parse(&bytes)
    }

    fn read(&mut self, length: usize) -> Result<(), ArchiveError> {
        self.buffer.resize(length, 0);
        let read = self.open.as_mut().map(|open| open.read_exact(&mut self.buffer));
        read.transpose().map_err(|error| self.wrong(error.to_string()))?;
        self.offset += length as u64;
        Ok(())
    }

    /// A file ends, `rest` bytes after its last whole event.
    fn end(&mut self, rest: u64) -> Result<(), ArchiveError> {
        if rest > 0 && self.files.len() > 1 {
            let what = format!(
                "it ends within an event, at offset {}, as after a crash: what follows in the next log cannot be archived without a gap",
                self.offset
            );
            return Err(self.wrong(what));
        }
        self.files.pop_front();
        self.begin(MAGIC.len() as u64)
    }

    fn wrong(&self, what: String) -> ArchiveError {
        match self.files.front() {
            Some(file) => file_error(&file.path, what),
            None => ArchiveError::Bug("a file that is no more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use xb_binlog::{SentEvent, SentReader};

    use super::*;

    /// Returns the bytes sent from files, from an offset of the first one on, or the error at the end.
    fn sent(paths: &[PathBuf], from: u64) -> Result<Vec<u8>, String> {
        let files = open(paths).map_err(|error| error.to_string())?;
        let log = files[0].name.clone();
        let sender = LogSender::new(files, (&log, from), CancelToken::new());
        let mut sender = sender.map_err(|error| error.to_string())?;
        let mut reader = SentReader::new(sender.checksums());
        let mut bytes = Vec::new();
        while let Some((mut part, is_last)) = sender.next().map_err(|error| error.to_string())? {
            loop {
                match reader.next(&mut part, &mut bytes) {
                    Ok(Some(SentEvent::Log(_) | SentEvent::Artificial(_))) => {}
                    Ok(None) => break,
                    Err(error) => return Err(error.to_string()),
                }
            }
            if is_last {
                reader.end_packet().map_err(|error| error.to_string())?;
            }
        }
        Ok(bytes)
    }

    fn file(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
        let path = folder.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    #[test]
    fn files_are_sent_as_their_server_would_send_them() {
        let folder = tempfile::tempdir().unwrap();
        for fork in ["mariadb", "mysql"] {
            are_sent(folder.path(), fork);
        }
        let in_use = xb_testkit::vectors::read("binlog/mariadb.000007-in-use");
        let sent_of = sent(&[file(folder.path(), "bin.000007", &in_use)], 4).unwrap();
        assert_eq!(sent_of[17] & 1, 0);
        assert_eq!(sent_of[18..], in_use[22..]);
    }

    fn are_sent(folder: &Path, fork: &str) {
        let second = xb_testkit::vectors::read(&format!("binlog/{fork}.000002"));
        let third = xb_testkit::vectors::read(&format!("binlog/{fork}.000003-no-checksum"));
        let paths = [file(folder, "bin.000003", &third), file(folder, "bin.000002", &second)];
        let all = [&second[4..], &third[4..]].concat();
        assert_eq!(sent(&paths, 4).unwrap(), all);
        let (mut reader, mut input) = (Reader::new(), &second[..]);
        while let Some(entry) = reader.next(&mut input).unwrap() {
            let begin = usize::try_from(entry.end).unwrap();
            assert_eq!(sent(&paths, entry.end).unwrap(), all[begin - 4..]);
        }
        // The last file may be cut, and is sent up to its last whole event; one before it may not.
        let cut = file(folder, "bin.000002", &second[..second.len() - 3]);
        let left = sent(std::slice::from_ref(&cut), 4).unwrap();
        assert!(left.len() < second.len() - 7 && second[4..].starts_with(&left));
        let error = sent(&paths, 4).unwrap_err();
        assert!(error.contains("ends within an event"), "{error}");
        // A length that is damaged is no cut: much may lie behind it.
        let (mut reader, mut input) = (Reader::new(), &second[..]);
        let first = reader.next(&mut input).unwrap().unwrap();
        let at = usize::try_from(first.end).unwrap() + 9;
        let mut damaged = second.clone();
        damaged[at + 2] ^= 0x40;
        let error = sent(&[file(folder, "bin.000002", &damaged)], 4).unwrap_err();
        assert!(error.contains("damaged"), "{error}");
    }

    #[test]
    fn files_that_are_no_sequence_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let log = xb_testkit::vectors::read("binlog/mariadb.000002");
        let make = |name: &str| file(folder.path(), name, &log);
        let refused = |paths: &[PathBuf]| open(paths).unwrap_err().to_string();
        assert!(refused(&[make("bin.000002"), make("bin.000004")]).contains("between them"));
        assert!(refused(&[make("bin.000002"), make("other.000003")]).contains("another sequence"));
        assert!(refused(&[make("bin.000002"), make("bin.000002")]).contains("twice"));
        assert!(refused(&[make("bin.index")]).contains("not the name of a log"));
        let missing = open(&[folder.path().join("bin.000009")]).unwrap_err();
        assert!(missing.to_string().contains("No such file"), "{missing}");
        assert!(missing.hint().is_some_and(|hint| hint.contains("paths of the log files")));
        assert!(open(&[]).is_err());
        let encrypted = xb_testkit::vectors::read("binlog/mariadb-encrypted.000001");
        let error = sent(&[file(folder.path(), "bin.000006", &encrypted)], 4).unwrap_err();
        assert!(error.contains("is encrypted"), "{error}");
    }

    proptest! {
        #[test]
        fn a_damaged_file_never_passes_for_whole(at in 4_usize..2000, bit in 0_u8..8, cut in 0_usize..2000) {
            let folder = tempfile::tempdir().unwrap();
            let log = xb_testkit::vectors::read("binlog/mariadb.000002");
            let mut damaged = log.clone();
            let place = at % log.len();
            damaged[place] ^= 1 << bit;
            // The mark of a log in use is none.
            prop_assume!(damaged != log && !(place == 21 && bit == 0));
            let whole = sent(&[file(folder.path(), "bin.000002", &damaged)], 4);
            prop_assert!(whole.is_err() || whole.is_ok_and(|sent| log[4..].starts_with(&sent) && sent.len() < log.len() - 4));
            let length = 200 + cut % (log.len() - 200);
            let part = sent(&[file(folder.path(), "bin.000003", &log[..length])], 4);
            prop_assert!(part.is_err() || part.is_ok_and(|sent| log[4..].starts_with(&sent)));
        }
    }
}
