//! A source that is emptied even when the pipeline takes nothing, while a server waits for it.
//!
//! A producer whose output pipe is full stands still, and if it holds locks of a server then, that
//! server's clients stand still with it. So from the moment somebody says [`LockSwitch::lock`], what
//! the pipeline leaves lying is moved to a spool: a file, used as a ring. When that is full, too,
//! and stays so for the time set, somebody is told, who should end the producer.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes moved at a time.
const PIECE: usize = 256 << 10;
/// Room without a spool file, in bytes.
const IN_MEMORY: u64 = 1 << 20;

/// How a [`SpoolReader`] works.
#[derive(Debug)]
pub struct SpoolSettings {
    /// The spool and its size in bytes; without one only a little memory is used.
    pub file: Option<(File, u64)>,
    /// How long the source may be left lying before the spool takes over.
    pub patience: Duration,
    /// How long the spool may be full while the server is locked; `None`: for ever.
    pub stall: Option<Duration>,
}

/// Tells a [`SpoolReader`] that its source now holds up others. Clones are the same switch.
#[derive(Debug, Clone)]
pub struct LockSwitch(Arc<Shared>);

impl LockSwitch {
    /// From now on the source must not be kept waiting.
    pub fn lock(&self) {
        self.0.state().locked = true;
        self.0.changed.notify_all();
    }

    /// The source may wait again.
    pub fn unlock(&self) {
        self.0.state().locked = false;
        self.0.changed.notify_all();
    }
}

/// Reads a source, by way of the spool where that was needed. Nothing is added or lost.
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
    locked: bool,
    /// The drain reads the source, and nobody else.
    engaged: bool,
    /// When the pipeline last had what it wanted; `None` while it waits for more.
    idle_since: Option<Instant>,
    /// The reader is gone.
    over: bool,
    /// The source has ended, well or not.
    ended: Option<io::Result<()>>,
    /// Bytes that went into the ring and out of it.
    written: u64,
    read: u64,
}

/// Makes a reader of `source`, and the switch for it. `on_stall` is called once, from a thread of
/// ours, when the server was held up for longer than the settings allow; the reader gives an error
/// then.
///
/// # Errors
/// When the system has no thread for us.
pub fn spooled<R: Read + Send + 'static>(
    source: R,
    settings: SpoolSettings,
    on_stall: impl FnOnce() + Send + 'static,
) -> io::Result<(SpoolReader<R>, LockSwitch)> {
    let SpoolSettings { file, patience, stall } = settings;
    let shared = Arc::new(Shared {
        state: Mutex::new(State {
            locked: false,
            engaged: false,
            idle_since: Some(Instant::now()),
            over: false,
            ended: None,
            written: 0,
            read: 0,
        }),
        changed: Condvar::new(),
        ring: Ring::new(file),
    });
    let source = Arc::new(Mutex::new(source));
    let drain = Drain { source: Arc::clone(&source), shared: Arc::clone(&shared), patience, stall };
    std::thread::Builder::new().name("spool".into()).spawn(move || {
        if drain.run().is_err() {
            on_stall();
        }
    })?;
    Ok((SpoolReader { source, shared: Arc::clone(&shared) }, LockSwitch(shared)))
}

impl<R: Read> Read for SpoolReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        self.shared.state().idle_since = None;
        let outcome = self.read_either(buffer);
        self.shared.state().idle_since = Some(Instant::now());
        self.shared.changed.notify_all();
        outcome
    }
}

impl<R: Read> SpoolReader<R> {
    fn read_either(&self, buffer: &mut [u8]) -> io::Result<usize> {
        // The drain announces itself before it takes the source, and then keeps it: who finds the
        // source taken goes to the ring.
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

/// The server was held up for too long.
struct Stalled;

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
        // Held for good: from here on nobody else reads it. What the reader is just getting comes
        // before everything that goes through the ring.
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

    /// Waits until the source holds up others and nobody takes what it gives. False: it is over.
    fn wait_until_needed(&self) -> bool {
        let mut state = self.shared.state();
        loop {
            if state.over {
                return false;
            }
            let limit = match (state.locked, state.idle_since) {
                (true, Some(since)) => {
                    let left = self.patience.saturating_sub(since.elapsed());
                    if left.is_zero() {
                        state.engaged = true;
                        return true;
                    }
                    Some(left)
                }
                _ => None,
            };
            state = self.shared.wait(state, limit);
        }
    }

    /// Moves bytes into the ring, waiting for room. False: nobody wants them any more.
    fn store(&self, mut bytes: &[u8]) -> Result<bool, Stalled> {
        let mut state = self.shared.state();
        let mut full_since: Option<Instant> = None;
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
                if let Ok(len) = stored {
                    bytes = &bytes[len..];
                    state.written += len as u64;
                    full_since = None;
                    self.shared.changed.notify_all();
                    continue;
                }
                // A disk without room is a spool that is full.
            }
            let since = *full_since.get_or_insert_with(Instant::now);
            let limit = match self.stall {
                Some(limit) if state.locked => {
                    let left = limit.saturating_sub(since.elapsed());
                    if left.is_zero() {
                        let error = io::Error::new(io::ErrorKind::TimedOut, "held up for too long");
                        state.ended = Some(Err(error));
                        self.shared.changed.notify_all();
                        return Err(Stalled);
                    }
                    Some(left.min(Duration::from_secs(1)))
                }
                _ => {
                    full_since = None;
                    Some(Duration::from_secs(1))
                }
            };
            state = self.shared.wait(state, limit);
        }
        Ok(true)
    }
}

/// Bytes at running positions, of which only the last `size` are kept.
#[derive(Debug)]
struct Ring {
    size: u64,
    place: Place,
}

#[derive(Debug)]
enum Place {
    File(File),
    Memory(Mutex<Vec<u8>>),
}

impl Ring {
    fn new(file: Option<(File, u64)>) -> Self {
        match file {
            Some((file, size)) if size > 0 => Self { size, place: Place::File(file) },
            _ => {
                let room = usize::try_from(IN_MEMORY).unwrap_or(usize::MAX);
                Self { size: IN_MEMORY, place: Place::Memory(Mutex::new(vec![0; room])) }
            }
        }
    }

    /// The place of position `at`, and how much of `len` lies before the ring's end.
    fn place(&self, at: u64, len: usize) -> (u64, usize) {
        let offset = at % self.size;
        let before_end = usize::try_from(self.size - offset).unwrap_or(usize::MAX);
        (offset, len.min(before_end))
    }

    fn write(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        let (offset, len) = self.place(at, bytes.len());
        match &self.place {
            Place::File(file) => file.write_all_at(&bytes[..len], offset)?,
            Place::Memory(memory) => {
                let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
                let offset = usize::try_from(offset).unwrap_or(usize::MAX);
                memory[offset..offset + len].copy_from_slice(&bytes[..len]);
            }
        }
        Ok(len)
    }

    fn read(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let (offset, len) = self.place(at, buffer.len());
        match &self.place {
            Place::File(file) => file.read_exact_at(&mut buffer[..len], offset)?,
            Place::Memory(memory) => {
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

    /// A source of so many bytes that blocks its writer when nobody reads.
    fn source(len: usize) -> (PipeReader, JoinHandle<io::Result<()>>) {
        let (reader, mut writer) = io::pipe().unwrap();
        (reader, std::thread::spawn(move || writer.write_all(&content(len))))
    }

    #[test]
    fn a_locked_source_ends_although_nobody_takes_anything() {
        let len = 3 << 20;
        let (pipe, producer) = source(len);
        let (mut reader, switch) = spooled(pipe, settings(Some(4 << 20), Some(1)), || {}).unwrap();
        let mut first = [0; 1000];
        reader.read_exact(&mut first).unwrap();
        switch.lock();
        // It would never end if its output were left lying.
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
            let (mut reader, switch) = spooled(pipe, settings(file, None), || {}).unwrap();
            switch.lock();
            let mut all = Vec::new();
            // Small rings make many steps: those of one byte are tried on a piece only.
            let most = if file == Some(1) { 50_000 } else { u64::MAX };
            reader.by_ref().take(most).read_to_end(&mut all).unwrap();
            assert_eq!(all, content(len)[..all.len()]);
            assert!(most < u64::MAX || all.len() == len);
            drop(reader);
            let _ = producer.join().unwrap();
        }
    }

    /// The reader comes at the moment at which the drain takes over, again and again.
    #[test]
    fn taking_over_loses_no_race() {
        for _ in 0..300 {
            let len = 2 << 20;
            let (pipe, producer) = source(len);
            let (mut reader, switch) = spooled(pipe, settings(None, None), || {}).unwrap();
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

    #[test]
    fn whoever_holds_up_the_server_for_too_long_is_told_on() {
        for file in [Some(100_000), None] {
            let (pipe, producer) = source(8 << 20);
            let (told, stalled) = mpsc::channel();
            let on_stall = move || told.send(()).unwrap();
            let (mut reader, switch) = spooled(pipe, settings(file, Some(20)), on_stall).unwrap();
            switch.lock();
            stalled.recv().unwrap();
            // What was taken comes, and then the error: never an end that looks like one.
            let mut rest = Vec::new();
            let error = reader.read_to_end(&mut rest).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert_eq!(rest, content(8 << 20)[..rest.len()]);
            drop(reader);
            let _ = producer.join().unwrap();
        }
    }

    #[test]
    fn without_a_lock_a_source_may_wait_for_ever() {
        let (pipe, producer) = source(2 << 20);
        let settings = settings(Some(100_000), Some(0));
        let (mut reader, switch) = spooled(pipe, settings, || panic!("nobody waits")).unwrap();
        switch.unlock();
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        assert_eq!(all, content(2 << 20));
        producer.join().unwrap().unwrap();
    }
}
