//! A reader that drains its source while the source holds locks on a server, even if the pipeline
//! reads nothing.
//!
//! A producer whose output pipe is full waits, and if it holds locks on a server, that server's
//! clients wait with it. So from [`LockSwitch::lock`] on, all data is moved through a spool: a file
//! used as a ring, encrypted with a key that exists only in memory. When the spool is full, the producer waits for the pipeline after all. These
//! waits are added up until [`LockSwitch::unlock`]; if the sum reaches the time set, a callback is
//! called, which should end the producer. A slow pipeline is treated like one that has stopped.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::spool_cipher::SpoolCipher;

/// Bytes moved at a time.
const PIECE: usize = 256 << 10;
/// Longest wait before the state is looked at again.
const MAX_WAIT: Duration = Duration::from_secs(1);
/// Capacity without a spool file, in bytes.
const IN_MEMORY: u64 = 1 << 20;

/// Settings of a [`SpoolReader`].
#[derive(Debug)]
pub struct SpoolSettings {
    /// The spool file and its size in bytes; without one, only a little memory is used.
    pub file: Option<(File, u64)>,
    /// Time for which the spool must be requested before it takes over.
    pub patience: Duration,
    /// Total time for which the source may wait for room in the spool while the server is locked;
    /// `None`: no limit.
    pub stall: Option<Duration>,
}

/// Tells a [`SpoolReader`] that its source now blocks others. Clones are the same switch.
#[derive(Debug, Clone)]
pub struct LockSwitch(Arc<Shared>);

impl LockSwitch {
    /// From now on the source must not wait.
    pub fn lock(&self) {
        let mut state = self.0.state();
        if state.locked_since.is_none() {
            (state.locked_since, state.held_up) = (Some(Instant::now()), Duration::ZERO);
        }
        state.wanted_since.get_or_insert_with(Instant::now);
        drop(state);
        self.0.changed.notify_all();
    }

    /// From now on the source should not wait, but may if the spool is full.
    pub fn spool(&self) {
        let mut state = self.0.state();
        state.locked_since = None;
        state.wanted_since.get_or_insert_with(Instant::now);
        drop(state);
        self.0.changed.notify_all();
    }

    /// The source may wait again.
    pub fn unlock(&self) {
        let mut state = self.0.state();
        (state.locked_since, state.wanted_since) = (None, None);
        drop(state);
        self.0.changed.notify_all();
    }
}

/// Reads a source, through the spool when necessary. No byte is added or lost.
#[derive(Debug)]
pub struct SpoolReader<R> {
    source: Arc<Mutex<R>>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    ring: Ring,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        limit: Option<Duration>,
    ) -> MutexGuard<'a, State> {
        match limit {
            None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(limit) => {
                self.changed.wait_timeout(state, limit).unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }
}

#[derive(Debug)]
struct State {
    locked_since: Option<Instant>,
    /// Since when the spool should take everything.
    wanted_since: Option<Instant>,
    /// Time for which the source has waited for room since then.
    held_up: Duration,
    /// The drain alone reads the source.
    engaged: bool,
    /// The reader has been dropped.
    over: bool,
    /// The source has ended, successfully or with an error.
    ended: Option<io::Result<()>>,
    /// Total bytes written into the ring and read from it.
    written: u64,
    read: u64,
}

/// Wraps `source` in a reader, and returns the reader and its switch. `on_stall` is called once,
/// from a separate thread, if the server was blocked for longer than the settings allow; the reader
/// then returns an error. It gets the error of the spool's disk if that, and not the spool's size, left
/// no room.
///
/// # Errors
/// If the system cannot start a thread, or has no random bytes.
pub fn spooled<R: Read + Send + 'static>(
    source: R,
    settings: SpoolSettings,
    on_stall: impl FnOnce(Option<io::Error>) + Send + 'static,
) -> io::Result<(SpoolReader<R>, LockSwitch)> {
    let SpoolSettings { file, patience, stall } = settings;
    let shared = Arc::new(Shared {
        state: Mutex::new(State {
            locked_since: None,
            wanted_since: None,
            held_up: Duration::ZERO,
            engaged: false,
            over: false,
            ended: None,
            written: 0,
            read: 0,
        }),
        changed: Condvar::new(),
        ring: Ring::new(file)?,
    });
    let source = Arc::new(Mutex::new(source));
    let drain = Drain { source: Arc::clone(&source), shared: Arc::clone(&shared), patience, stall };
    std::thread::Builder::new().name("spool".into()).spawn(move || {
        if let Err(Stalled { disk }) = drain.run() {
            on_stall(disk);
        }
    })?;
    Ok((SpoolReader { source, shared: Arc::clone(&shared) }, LockSwitch(shared)))
}

impl<R: Read> Read for SpoolReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let outcome = self.read_either(buffer);
        self.shared.changed.notify_all();
        outcome
    }
}

impl<R: Read> SpoolReader<R> {
    fn read_either(&self, buffer: &mut [u8]) -> io::Result<usize> {
        // The drain sets `engaged` before it takes the source, and then keeps the source: a reader
        // that finds the source taken reads from the ring.
        if !self.shared.state().engaged
            && let Ok(mut source) = self.source.try_lock()
            && !self.shared.state().engaged
        {
            return source.read(buffer);
        }
        let mut state = self.shared.state();
        loop {
            let waiting = state.written - state.read;
            if waiting > 0 {
                let len = buffer.len().min(usize::try_from(waiting).unwrap_or(usize::MAX));
                let at = state.read;
                drop(state);
                let len = self.shared.ring.read(&mut buffer[..len], at)?;
                self.shared.state().read += len as u64;
                return Ok(len);
            }
            match &state.ended {
                Some(Ok(())) => return Ok(0),
                Some(Err(error)) => return Err(io::Error::new(error.kind(), error.to_string())),
                None => state = self.shared.wait(state, None),
            }
        }
    }
}

impl<R> Drop for SpoolReader<R> {
    fn drop(&mut self) {
        self.shared.state().over = true;
        self.shared.changed.notify_all();
    }
}

/// The server was blocked for too long.
struct Stalled {
    /// Error that made the spool fail.
    disk: Option<io::Error>,
}

struct Drain<R> {
    source: Arc<Mutex<R>>,
    shared: Arc<Shared>,
    patience: Duration,
    stall: Option<Duration>,
}

impl<R: Read> Drain<R> {
    fn run(&self) -> Result<(), Stalled> {
        if !self.wait_until_needed() {
            return Ok(());
        }
        // Held until the end: from here on only the drain reads the source. What the reader is
        // reading at this moment precedes everything that passes through the ring.
        let mut source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        let mut piece = vec![0; PIECE];
        loop {
            let ended = match source.read(&mut piece) {
                Ok(0) => Ok(()),
                Ok(len) => match self.store(&piece[..len])? {
                    true => continue,
                    false => return Ok(()),
                },
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
            self.shared.state().ended = Some(ended);
            self.shared.changed.notify_all();
            return Ok(());
        }
    }

    /// Waits until the source blocks others. Returns false if there is nothing left to do.
    fn wait_until_needed(&self) -> bool {
        let mut state = self.shared.state();
        loop {
            if state.over {
                return false;
            }
            let left =
                state.wanted_since.map(|since| self.patience.saturating_sub(since.elapsed()));
            if left.is_some_and(|left| left.is_zero()) {
                state.engaged = true;
                return true;
            }
            state = self.shared.wait(state, left);
        }
    }

    /// Moves bytes into the ring, and waits for room. Returns false if the reader is gone.
    fn store(&self, mut bytes: &[u8]) -> Result<bool, Stalled> {
        let mut state = self.shared.state();
        let mut disk = None;
        while !bytes.is_empty() {
            if state.over {
                return Ok(false);
            }
            let free = self.shared.ring.size - (state.written - state.read);
            if free > 0 {
                let len = bytes.len().min(usize::try_from(free).unwrap_or(usize::MAX));
                let at = state.written;
                drop(state);
                let stored = self.shared.ring.write(&bytes[..len], at);
                state = self.shared.state();
                match stored {
                    Ok(len) => {
                        bytes = &bytes[len..];
                        state.written += len as u64;
                        disk = None;
                        self.shared.changed.notify_all();
                        continue;
                    }
                    // Nothing waits to be read, so the reader can take it from memory.
                    Err(_) if state.written == state.read => {
                        self.shared.ring.keep(&bytes[..len], at);
                        bytes = &bytes[len..];
                        state.written += len as u64;
                        self.shared.changed.notify_all();
                        continue;
                    }
                    // A full disk counts as a full spool.
                    Err(error) => disk = Some(error),
                }
            }
            let left = match (self.stall, state.locked_since) {
                (Some(limit), Some(_)) => limit.saturating_sub(state.held_up),
                _ => MAX_WAIT,
            };
            if left.is_zero() {
                let error = io::Error::new(io::ErrorKind::TimedOut, "held up for too long");
                state.ended = Some(Err(error));
                self.shared.changed.notify_all();
                return Err(Stalled { disk });
            }
            let begin = Instant::now();
            let locked = state.locked_since;
            state = self.shared.wait(state, Some(left.min(MAX_WAIT)));
            // Only a wait during one and the same lock counts.
            if locked.is_some() && state.locked_since == locked {
                state.held_up += begin.elapsed();
            }
        }
        Ok(true)
    }
}

/// Buffer addressed by running positions, which keeps only the last `size` bytes.
#[derive(Debug)]
struct Ring {
    size: u64,
    place: Storage,
    /// Position and bytes of a piece that the file could not take. All before it was read.
    beside: Mutex<(u64, Vec<u8>)>,
}

#[derive(Debug)]
enum Storage {
    File(File, SpoolCipher),
    Memory(Mutex<Vec<u8>>),
}

impl Ring {
    fn new(file: Option<(File, u64)>) -> io::Result<Self> {
        let (size, place) = match file {
            Some((file, size)) if size > 0 => (size, Storage::File(file, SpoolCipher::new()?)),
            _ => {
                let room = usize::try_from(IN_MEMORY).unwrap_or(usize::MAX);
                (IN_MEMORY, Storage::Memory(Mutex::new(vec![0; room])))
            }
        };
        Ok(Self { size, place, beside: Mutex::default() })
    }

    /// Keeps a piece in memory, at the position at which the ring is empty.
    fn keep(&self, bytes: &[u8], at: u64) {
        *self.beside.lock().unwrap_or_else(PoisonError::into_inner) = (at, bytes.to_vec());
    }

    /// Returns the offset of position `at` in the ring, and how much of `len` lies before the
    /// ring's end.
    fn place(&self, at: u64, len: usize) -> (u64, usize) {
        let offset = at % self.size;
        let before_end = usize::try_from(self.size - offset).unwrap_or(usize::MAX);
        (offset, len.min(before_end))
    }

    fn write(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        let (offset, len) = self.place(at, bytes.len());
        match &self.place {
            Storage::File(file, cipher) => {
                let mut sealed = bytes[..len].to_vec();
                cipher.apply(&mut sealed, at)?;
                file.write_all_at(&sealed, offset)?;
            }
            Storage::Memory(memory) => {
                let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
                let offset = usize::try_from(offset).unwrap_or(usize::MAX);
                memory[offset..offset + len].copy_from_slice(&bytes[..len]);
            }
        }
        Ok(len)
    }

    fn read(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let beside = self.beside.lock().unwrap_or_else(PoisonError::into_inner);
        let from = at.checked_sub(beside.0).and_then(|from| usize::try_from(from).ok());
        if let Some(bytes @ [_, ..]) = from.and_then(|from| beside.1.get(from..)) {
            let len = bytes.len().min(buffer.len());
            buffer[..len].copy_from_slice(&bytes[..len]);
            return Ok(len);
        }
        drop(beside);
        let (offset, len) = self.place(at, buffer.len());
        match &self.place {
            Storage::File(file, cipher) => {
                file.read_exact_at(&mut buffer[..len], offset)?;
                cipher.apply(&mut buffer[..len], at)?;
            }
            Storage::Memory(memory) => {
                let memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
                let offset = usize::try_from(offset).unwrap_or(usize::MAX);
                buffer[..len].copy_from_slice(&memory[offset..offset + len]);
            }
        }
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{PipeReader, Write as _};
    use std::sync::mpsc;
    use std::thread::JoinHandle;

    fn settings(file: Option<u64>, stall: Option<u64>) -> SpoolSettings {
        SpoolSettings {
            file: file.map(|size| (tempfile::tempfile().unwrap(), size)),
            patience: Duration::ZERO,
            stall: stall.map(Duration::from_millis),
        }
    }

    fn content(len: usize) -> Vec<u8> {
        (0..len).map(|n| u8::try_from((n * 31 + n / 251) % 256).unwrap()).collect()
    }

    /// Creates a source of `len` bytes whose writer blocks when nothing is read.
    fn source(len: usize) -> (PipeReader, JoinHandle<io::Result<()>>) {
        let (reader, mut writer) = io::pipe().unwrap();
        (reader, std::thread::spawn(move || writer.write_all(&content(len))))
    }

    #[test]
    fn a_locked_source_ends_without_a_consumer() {
        let len = 3 << 20;
        let (pipe, producer) = source(len);
        let (mut reader, switch) = spooled(pipe, settings(Some(4 << 20), Some(1)), |_| {}).unwrap();
        let mut first = [0; 1000];
        reader.read_exact(&mut first).unwrap();
        switch.lock();
        // The producer would never end if its output stayed unread.
        producer.join().unwrap().unwrap();
        let mut all = first.to_vec();
        reader.read_to_end(&mut all).unwrap();
        assert_eq!(all, content(len));
    }

    #[test]
    fn a_ring_smaller_than_the_rest_passes_everything_in_order() {
        for file in [Some(1), Some(300_000), Some(1 << 20), None] {
            let len = 3_000_000;
            let (pipe, producer) = source(len);
            let (mut reader, switch) = spooled(pipe, settings(file, None), |_| {}).unwrap();
            switch.lock();
            let mut all = Vec::new();
            // Small rings take many steps: those of one byte are tested on a prefix only.
            let most = if file == Some(1) { 5_000 } else { u64::MAX };
            reader.by_ref().take(most).read_to_end(&mut all).unwrap();
            assert_eq!(all, content(len)[..all.len()]);
            assert!(most < u64::MAX || all.len() == len);
            drop(reader);
            let _ = producer.join().unwrap();
        }
    }

    #[test]
    fn a_disk_that_takes_nothing_holds_up_no_reader_that_reads() {
        let len = 3 << 20;
        let (pipe, producer) = source(len);
        let full = File::options().write(true).open("/dev/full").unwrap();
        let settings = SpoolSettings { file: Some((full, 16 << 20)), ..settings(None, None) };
        let (mut reader, switch) = spooled(pipe, settings, |_| {}).unwrap();
        switch.spool();
        while !reader.shared.state().engaged {
            std::thread::yield_now();
        }
        let (done, read) = mpsc::channel();
        std::thread::spawn(move || {
            let mut all = Vec::new();
            done.send(reader.read_to_end(&mut all).map(|_| all)).unwrap();
        });
        let all = read.recv_timeout(Duration::from_secs(60)).expect("the reader is held up");
        assert!(all.unwrap() == content(len));
        producer.join().unwrap().unwrap();
    }

    #[test]
    fn the_spool_file_is_encrypted() {
        let len = 3 << 20;
        let (pipe, producer) = source(len);
        let settings = settings(Some(4 << 20), None);
        let file = settings.file.as_ref().map(|(file, _)| file.try_clone().unwrap()).unwrap();
        let (mut reader, switch) = spooled(pipe, settings, |_| {}).unwrap();
        switch.lock();
        producer.join().unwrap().unwrap();
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        assert!(all == content(len));
        let mut stored = vec![0; len];
        file.read_exact_at(&mut stored[..1 << 20], 0).unwrap();
        let is_shown = |part: &[u8]| stored.windows(16).any(|found| found == part);
        assert!(!is_shown(&all[..16]) && !is_shown(&all[300_000..300_016]));
        assert!(stored[..1 << 20].iter().any(|byte| *byte != 0));
    }

    /// The reader reads at the moment at which the drain takes over, again and again.
    #[test]
    fn taking_over_loses_no_race() {
        for _ in 0..300 {
            let len = 2 << 20;
            let (pipe, producer) = source(len);
            let (mut reader, switch) = spooled(pipe, settings(None, None), |_| {}).unwrap();
            let locker = std::thread::spawn(move || switch.lock());
            let mut all = Vec::new();
            let mut piece = [0; 64 << 10];
            while let len @ 1.. = reader.read(&mut piece).unwrap() {
                all.extend_from_slice(&piece[..len]);
            }
            assert!(all == content(len));
            locker.join().unwrap();
            producer.join().unwrap().unwrap();
        }
    }

    /// Every write to this device fails as on a full disk.
    #[test]
    fn a_full_disk_is_distinguished_from_a_full_spool() {
        let (pipe, producer) = source(8 << 20);
        let (told, stalled) = mpsc::channel();
        let full = File::options().write(true).open("/dev/full").unwrap();
        let settings = SpoolSettings { file: Some((full, 16 << 20)), ..settings(None, Some(20)) };
        let on_stall = move |disk: Option<io::Error>| told.send(disk).unwrap();
        let (reader, switch) = spooled(pipe, settings, on_stall).unwrap();
        switch.lock();
        let disk = stalled.recv().unwrap().map(|error| error.kind());
        assert_eq!(disk, Some(io::ErrorKind::StorageFull));
        drop(reader);
        let _ = producer.join().unwrap();
        // A spool that is too small has no such error.
        let (pipe, producer) = source(8 << 20);
        let (told, stalled) = mpsc::channel();
        let on_stall = move |disk: Option<io::Error>| told.send(disk.is_none()).unwrap();
        let (reader, switch) = spooled(pipe, self::settings(Some(9), Some(20)), on_stall).unwrap();
        switch.lock();
        assert!(stalled.recv().unwrap());
        drop(reader);
        let _ = producer.join().unwrap();
    }

    #[test]
    fn a_sink_that_blocks_the_server_too_long_is_named() {
        for file in [Some(100_000), None] {
            let (pipe, producer) = source(8 << 20);
            let (told, stalled) = mpsc::channel();
            let on_stall = move |_| told.send(()).unwrap();
            let (mut reader, switch) = spooled(pipe, settings(file, Some(20)), on_stall).unwrap();
            switch.lock();
            stalled.recv().unwrap();
            // The reader returns what was read, and then the error: never a plain end of stream.
            let mut rest = Vec::new();
            let error = reader.read_to_end(&mut rest).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert_eq!(rest, content(8 << 20)[..rest.len()]);
            drop(reader);
            let _ = producer.join().unwrap();
        }
    }

    /// A pipeline that accepts a little at a time holds up the server as much as one that has
    /// stopped.
    #[test]
    fn a_slow_pipeline_is_a_stall_too() {
        let (pipe, producer) = source(8 << 20);
        let (told, stalled) = mpsc::channel();
        let on_stall = move |_| told.send(()).unwrap();
        let (mut reader, switch) =
            spooled(pipe, settings(Some(100_000), Some(30)), on_stall).unwrap();
        switch.lock();
        let mut piece = [0; 2000];
        let mut taken = 0;
        let ended = loop {
            // The spool is full again and again, and each time only for a moment.
            match reader.read(&mut piece) {
                Ok(len) => taken += len,
                Err(error) => break error,
            }
            if stalled.recv_timeout(Duration::from_millis(2)).is_ok() {
                break reader.read_to_end(&mut Vec::new()).unwrap_err();
            }
        };
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
        assert!(taken < 8 << 20);
        drop(reader);
        let _ = producer.join().unwrap();
    }

    #[test]
    fn without_a_lock_a_source_may_wait_for_ever() {
        let (pipe, producer) = source(2 << 20);
        let settings = settings(Some(100_000), Some(0));
        let (mut reader, switch) =
            spooled(pipe, settings, |_| panic!("the producer never waits")).unwrap();
        switch.unlock();
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        assert_eq!(all, content(2 << 20));
        producer.join().unwrap().unwrap();
    }
}
