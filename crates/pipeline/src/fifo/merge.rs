//! Reads several FIFOs as one xbstream.

use std::io::{self, Read};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Fifos;
use super::error::FifoError;
use super::names::{FifoNames, NameList};
use super::source::{Offer, Source};

/// Interval between checks for a FIFO that does not exist yet, and the longest wait in one system
/// call.
const INTERVAL: Duration = Duration::from_millis(100);
/// The streams of several FIFOs, merged by whole chunks as they arrive. The bytes of each FIFO keep
/// their order.
///
/// The chunks of the file that a producer writes last are taken only when no other FIFO has
/// anything to read, so that this file comes last here, too: what was written before it into
/// another FIFO is there by then.
///
/// Reading fails at the first error of any FIFO, and a dropped `Merge` closes all of them, which
/// ends their writers.
#[derive(Debug)]
pub struct Merge {
    fifos: Fifos,
    names: NameList,
    stage: Stage,
    /// Standard output of the program that writes the streams, if it runs and has not closed it.
    lifeline: Option<OwnedFd>,
}

#[derive(Debug)]
enum Stage {
    Opening { since: Option<Instant>, open: Vec<Option<Source>> },
    Reading(Reading),
    Failed,
}

impl Merge {
    /// Creates a reader of `fifos`. It opens them when it is first read. `lifeline` is the standard
    /// output of the program that writes into them, if this process has started it.
    ///
    /// The names of the FIFOs are removed when the second value is dropped.
    #[must_use]
    pub fn new(fifos: Fifos, lifeline: Option<OwnedFd>) -> (Self, FifoNames) {
        let names = FifoNames::default();
        let open = (0..fifos.streams).map(|_| None).collect();
        let stage = Stage::Opening { since: None, open };
        (Self { fifos, names: names.list(), stage, lifeline }, names)
    }

    /// Reads what is there, and waits at most for `patience`. `None`: nothing arrived.
    ///
    /// # Errors
    /// [`FifoError`], the first of any FIFO.
    pub fn read_within(
        &mut self,
        out: &mut [u8],
        patience: Duration,
    ) -> Result<Option<usize>, FifoError> {
        let until = Instant::now() + patience;
        loop {
            let outcome = match &mut self.stage {
                Stage::Opening { .. } => self.open().map(|()| None),
                Stage::Reading(reading) => reading.read(out),
                // Never an end that looks like one.
                Stage::Failed => {
                    let source = io::Error::other("it was closed after an error");
                    return Err(FifoError::System { path: self.fifos.dir.clone(), source });
                }
            };
            match outcome {
                Ok(None) if Instant::now() < until => match self.wait(until) {
                    Ok(()) => {}
                    Err(error) => {
                        self.stage = Stage::Failed;
                        return Err(error);
                    }
                },
                Ok(read) => return Ok(read),
                Err(error) => {
                    // Closes all FIFOs.
                    self.stage = Stage::Failed;
                    return Err(error);
                }
            }
        }
    }

    /// Opens what exists, and begins to read when every writer has sent its control byte.
    fn open(&mut self) -> Result<(), FifoError> {
        let Stage::Opening { since, open } = &mut self.stage else { return Ok(()) };
        let waited = since.get_or_insert_with(Instant::now).elapsed();
        // Checked first: after its end, everything that a producer wrote is in the FIFOs.
        let has_ended = self.lifeline.as_ref().is_some_and(|line| is_readable(line.as_fd()));
        let mut all_begun = true;
        for (number, slot) in open.iter_mut().enumerate() {
            let path = self.fifos.path(number);
            if slot.is_none()
                && let Some(file) = self.names.open_to_read(&path)?
            {
                xb_files::enlarge_pipe(&file);
                *slot = Some(Source::new(path.clone(), file, self.fifos.dialect));
            }
            let begun = match slot {
                Some(source) => source.begin()?,
                None => false,
            };
            all_begun &= begun;
            if begun {
                continue;
            }
            if let Some(source) = slot
                && writer_has_left(source)
                && !source.begin()?
            {
                return Err(FifoError::Nothing { path });
            }
            if waited >= self.fifos.timeout {
                let seconds = self.fifos.timeout.as_secs();
                return Err(match slot {
                    None => FifoError::Missing { path, seconds },
                    Some(_) => FifoError::Alone { path, reading: false, seconds },
                });
            }
            if has_ended {
                let line = self.lifeline.take();
                return Err(match line.map(|line| rustix::io::read(line, &mut [0])) {
                    Some(Ok(1..)) => FifoError::OtherOutput,
                    _ => FifoError::NoProducer { path },
                });
            }
        }
        if all_begun {
            let sources = std::mem::take(open).into_iter().flatten().collect();
            self.stage = Stage::Reading(Reading { sources, current: None, next: 0 });
        }
        Ok(())
    }

    /// Refuses a producer that writes to its standard output, too: it would wait forever once that
    /// pipe is full.
    fn check_lifeline(&mut self) -> Result<(), FifoError> {
        let Some(line) = self.lifeline.as_ref().filter(|line| is_readable(line.as_fd())) else {
            return Ok(());
        };
        match rustix::io::read(line, &mut [0]) {
            Ok(1..) => Err(FifoError::OtherOutput),
            // Its end has no meaning once all FIFOs are open.
            _ => {
                self.lifeline = None;
                Ok(())
            }
        }
    }

    /// Waits until there may be something to read, at most until `until`.
    fn wait(&mut self, until: Instant) -> Result<(), FifoError> {
        if matches!(self.stage, Stage::Reading(_)) {
            self.check_lifeline()?;
        }
        let left = until.saturating_duration_since(Instant::now());
        let left = match &self.stage {
            // FIFOs that do not exist cannot be waited for.
            Stage::Opening { .. } => left.min(INTERVAL),
            _ => left,
        };
        let mut watched = Vec::new();
        match &self.stage {
            Stage::Opening { open, .. } => {
                let waiting = open.iter().flatten().filter(|source| !source.has_begun());
                watched.extend(waiting.map(watch));
            }
            Stage::Reading(reading) => watched.extend(reading.awaited().map(watch)),
            Stage::Failed => return Ok(()),
        }
        watched.extend(self.lifeline.as_ref().map(|line| PollFd::new(line, PollFlags::IN)));
        let timeout = Timespec::try_from(left).ok();
        match poll(&mut watched, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => {
                Err(FifoError::System { path: self.fifos.dir.clone(), source: error.into() })
            }
        }
    }
}

impl Read for Merge {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        loop {
            if let Some(len) = self.read_within(out, Duration::from_secs(1))? {
                return Ok(len);
            }
        }
    }
}

/// The FIFOs, all of them open.
#[derive(Debug)]
struct Reading {
    sources: Vec<Source>,
    /// The FIFO whose chunk is being read.
    current: Option<usize>,
    /// FIFO to check first, so that each gets its turn.
    next: usize,
}

impl Reading {
    /// Reads from one FIFO. `None`: nothing has arrived.
    fn read(&mut self, out: &mut [u8]) -> Result<Option<usize>, FifoError> {
        loop {
            let at = match self.current {
                Some(at) => at,
                None => match self.choose()? {
                    Some(at) => at,
                    None if self.sources.iter().all(Source::has_ended) => return Ok(Some(0)),
                    None => return Ok(None),
                },
            };
            self.current = Some(at);
            let Some(source) = self.sources.get_mut(at) else { return Ok(Some(0)) };
            let (len, is_whole) = source.give(out)?;
            if is_whole {
                self.current = None;
            }
            match len {
                Some(0) => {}
                other => return Ok(other),
            }
        }
    }

    /// Chooses the FIFO whose next chunk to take.
    fn choose(&mut self) -> Result<Option<usize>, FifoError> {
        loop {
            let mut best: Option<(u8, usize)> = None;
            let mut is_news = false;
            for turn in 0..self.sources.len() {
                let at = (self.next + turn) % self.sources.len();
                let source = &mut self.sources[at];
                if source.has_ended() {
                    continue;
                }
                match source.look()? {
                    Offer::Chunk { rank: 0, .. } => {
                        self.next = at + 1;
                        return Ok(Some(at));
                    }
                    Offer::Chunk { rank, is_news: new } => {
                        is_news |= new;
                        best = Some(best.map_or((rank, at), |best| best.min((rank, at))));
                    }
                    Offer::Nothing | Offer::End => {}
                }
            }
            // Everything written before a file that must come last has arrived by now, but may not have
            // been when its FIFO was looked at.
            if !is_news {
                return Ok(best.map(|(_, at)| at));
            }
        }
    }

    /// The FIFOs whose bytes would bring this further.
    fn awaited(&self) -> impl Iterator<Item = &Source> {
        let current = self.current;
        let numbered = self.sources.iter().enumerate();
        numbered
            .filter(move |(at, source)| match current {
                Some(current) => *at == current,
                None => !source.has_ended(),
            })
            .map(|(_, source)| source)
    }
}

fn watch(source: &Source) -> PollFd<'_> {
    PollFd::new(source.file(), PollFlags::IN)
}

/// Returns whether a program has opened the FIFO for writing and has closed it again.
fn writer_has_left(source: &Source) -> bool {
    let mut watched = [watch(source)];
    poll(&mut watched, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
        && watched[0].revents().contains(PollFlags::HUP)
}

/// Returns whether something can be read, or the other end is closed.
fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut watched = [PollFd::new(&fd, PollFlags::IN)];
    poll(&mut watched, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}
