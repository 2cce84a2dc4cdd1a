//! Divides one xbstream between several FIFOs.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl, open};
use xb_reader::{ChunkHead, ChunkKind, Decoder, Dialect, Event, Limits, RelPath};

use super::Fifos;
use super::error::FifoError;
use super::names::{FifoNames, NameList};

/// Interval between attempts to open a FIFO that has no reader yet.
const INTERVAL: Duration = Duration::from_millis(100);
/// Control byte that a writer sends first; readers skip it.
const CONTROL: [u8; 1] = [0];

/// Writer that divides an xbstream between FIFOs. Each file goes to the FIFO that has received the
/// fewest bytes, so the last file of the stream is written last.
#[derive(Debug)]
pub struct Split {
    outputs: Vec<FifoWriter>,
    decoder: Decoder,
    /// FIFO of each file that has begun and not ended.
    files: HashMap<RelPath, usize>,
    /// Bytes of a chunk head that is not complete.
    head: Vec<u8>,
    /// The FIFO that gets the current chunk.
    current: Option<usize>,
}

#[derive(Debug)]
struct FifoWriter {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl Split {
    /// Returns a function that creates the FIFOs and waits until each has a reader, for a thread of
    /// its own. When `names` is dropped, the names of the FIFOs are removed and the wait ends.
    ///
    /// The function returns a [`FifoError`] if a FIFO cannot be created, or has no reader in time.
    pub fn opening(
        fifos: Fifos,
        names: &FifoNames,
    ) -> impl FnOnce() -> Result<Self, FifoError> + Send + 'static {
        let names = names.list();
        move || Self::open(&fifos, &names)
    }

    fn open(fifos: &Fifos, names: &NameList) -> Result<Self, FifoError> {
        let paths: Vec<_> = (0..fifos.streams).map(|number| fifos.path(number)).collect();
        paths.iter().try_for_each(|path| names.create(path))?;
        let since = Instant::now();
        let outputs = paths
            .into_iter()
            .map(|path| FifoWriter::open(path, fifos.timeout, since, names))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            outputs,
            decoder: Decoder::new(Dialect::Auto, Limits::default()),
            files: HashMap::new(),
            head: Vec::new(),
            current: None,
        })
    }

    /// Ends all streams. Without this call the readers see the end of the FIFOs just the same, but
    /// nothing proves that the stream was complete.
    ///
    /// # Errors
    /// If the stream ends inside a chunk.
    pub fn finish(mut self) -> Result<(), FifoError> {
        loop {
            match self.decoder.finish().map_err(FifoError::Indivisible)? {
                Some(Event::Head(head)) => self.begin(&head)?,
                Some(_) => {}
                None => return Ok(()),
            }
        }
    }

    fn divide(&mut self, mut input: &[u8]) -> Result<(), FifoError> {
        while !input.is_empty() {
            let before = input;
            let event = self.decoder.next(&mut input).map_err(FifoError::Indivisible)?;
            match event {
                Some(Event::Data(payload)) => self.send(payload)?,
                // The bytes of a head are taken before the decoder knows the whole of it.
                event => {
                    self.head.extend_from_slice(&before[..before.len() - input.len()]);
                    if let Some(Event::Head(head)) = event {
                        self.begin(&head)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Chooses the FIFO of a chunk, and sends its head.
    fn begin(&mut self, head: &ChunkHead) -> Result<(), FifoError> {
        let fewest = || {
            let numbered = self.outputs.iter().enumerate();
            numbered.min_by_key(|(_, output)| output.bytes).map_or(0, |(at, _)| at)
        };
        let at = self.files.get(&head.path).copied().unwrap_or_else(fewest);
        match &head.kind {
            ChunkKind::End | ChunkKind::Remove => drop(self.files.remove(&head.path)),
            ChunkKind::Rename { to } => {
                if self.files.remove(&head.path).is_some() {
                    self.files.insert(to.clone(), at);
                }
            }
            ChunkKind::Ignored { .. } => {}
            _ => drop(self.files.insert(head.path.clone(), at)),
        }
        self.current = Some(at);
        // After a seek, the magic of the next chunk follows.
        let len = usize::try_from(head.head_len).unwrap_or(usize::MAX).min(self.head.len());
        let rest = self.head.split_off(len);
        let bytes = std::mem::replace(&mut self.head, rest);
        self.send(&bytes)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), FifoError> {
        match self.current.and_then(|at| self.outputs.get_mut(at)) {
            Some(output) => output.send(bytes),
            None => Ok(()),
        }
    }
}

impl Write for Split {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.divide(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl FifoWriter {
    fn open(
        path: PathBuf,
        timeout: Duration,
        since: Instant,
        names: &NameList,
    ) -> Result<Self, FifoError> {
        let file = loop {
            let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            match open(&path, flags, Mode::empty()) {
                Ok(fd) => break File::from(fd),
                // There is no reader yet.
                Err(rustix::io::Errno::NXIO) => {}
                Err(error) => return Err(system(&path, error.into())),
            }
            if since.elapsed() >= timeout || names.is_over() {
                return Err(FifoError::Alone { path, reading: true, seconds: timeout.as_secs() });
            }
            std::thread::sleep(INTERVAL);
        };
        xb_files::enlarge_pipe(&file);
        fcntl_getfl(&file)
            .and_then(|flags| fcntl_setfl(&file, flags - OFlags::NONBLOCK))
            .map_err(|error| system(&path, error.into()))?;
        let mut writer = Self { path, file, bytes: 0 };
        writer.send(&CONTROL)?;
        Ok(writer)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), FifoError> {
        self.bytes += bytes.len() as u64;
        self.file.write_all(bytes).map_err(|error| match error.kind() {
            ErrorKind::BrokenPipe => FifoError::ReaderGone { path: self.path.clone() },
            _ => system(&self.path, error),
        })
    }
}

fn system(path: &Path, source: io::Error) -> FifoError {
    FifoError::System { path: path.to_owned(), source }
}
