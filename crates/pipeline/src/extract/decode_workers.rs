//! Threads that decode files in parallel, and the files they work on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;

use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, unbounded};
use xb_encryptor::xbcrypt::Cipher;
use xb_reader::{PieceCheck, RelPath, TargetDir, TargetError};

use crate::extract::decode::{
    ChainStop, CodecChain, Decrypt, FileDecodeError, FileDecoding, FileWork, Item, Member,
    MemoryNeed, SpilledFile, may_have_holes, write_with_holes,
};
use crate::extract::open_file::OpenFile;
use crate::extract::report::{ExtractCause, ExtractLog, OnFailure};
use crate::flow::budget::{Budget, Permit};
use crate::flow::observer::Observer;
use crate::flow::ordered_pool::WorkerDied;
use crate::flow::work::Work as Step;

/// Size of the buffer for plain bytes before they are written, and of the reads from a parked file.
const BUFFER: usize = 256 << 10;

/// The pool of threads.
pub(crate) struct DecodeWorkers {
    shared: Arc<Shared>,
    jobs: Option<Sender<Arc<OpenFile>>>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    target: Arc<TargetDir>,
    cipher: Option<Arc<Cipher>>,
    durable: bool,
    observer: Observer,
    states: Budget,
    seat: Mutex<()>,
    /// Maximum memory for one file.
    seat_bytes: u64,
    status: Mutex<Status>,
    changed: Condvar,
    failed: AtomicBool,
    log: OnceLock<Arc<dyn ExtractLog>>,
    on_failure: OnFailure,
}

#[derive(Default)]
struct Status {
    /// Number of files that have ended and have no final name yet.
    pending: usize,
    done: DecodeTotals,
    failure: Option<ExtractCause>,
}

/// Totals of the decoded files.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DecodeTotals {
    /// Files that have their final names.
    pub(crate) files: u64,
    /// Number of encrypted ones among them.
    pub(crate) decrypted: u64,
}

impl DecodeWorkers {
    /// Starts the threads. If the system cannot start a thread, the pool runs without it.
    pub(crate) fn new(
        decoding: &FileDecoding,
        target: Arc<TargetDir>,
        durable: bool,
        observer: Observer,
        on_failure: OnFailure,
    ) -> Self {
        let shares = decoding.shares();
        let shared = Arc::new(Shared {
            target,
            cipher: match &decoding.decrypt {
                Decrypt::With(cipher) => Some(Arc::clone(cipher)),
                Decrypt::Leave | Decrypt::Refuse => None,
            },
            durable,
            observer,
            states: Budget::new(shares.states),
            seat: Mutex::new(()),
            seat_bytes: shares.seat,
            status: Mutex::default(),
            changed: Condvar::new(),
            failed: AtomicBool::new(false),
            log: OnceLock::new(),
            on_failure,
        });
        let (jobs, queue) = unbounded::<Arc<OpenFile>>();
        let threads = (0..decoding.threads.max(1))
            .filter_map(|number| {
                let (shared, queue) = (Arc::clone(&shared), queue.clone());
                std::thread::Builder::new()
                    .name(format!("undo-{number}"))
                    .spawn(move || shared.work_off(&queue))
                    .ok()
            })
            .collect();
        Self { shared, jobs: Some(jobs), threads }
    }

    /// Reports every complete file to `log`.
    pub(crate) fn logging(self, log: Option<Arc<dyn ExtractLog>>) -> Self {
        if let Some(log) = log {
            let _ = self.shared.log.set(log);
        }
        self
    }

    /// Adds the next piece of the file.
    pub(crate) fn piece(
        &self,
        file: &Arc<OpenFile>,
        bytes: Bytes,
        position: u64,
        flight: Option<Arc<Permit>>,
    ) {
        self.push(file, Item::Piece { bytes, position, _flight: flight });
    }

    /// Ends the file, which will get the name `name`.
    pub(crate) fn end(&self, file: &Arc<OpenFile>, name: RelPath, position: u64) {
        self.shared.status().pending += 1;
        self.push(file, Item::End { name, position });
    }

    /// Drops the file.
    pub(crate) fn discard(&self, file: &Arc<OpenFile>) {
        self.push(file, Item::Discard);
    }

    fn push(&self, file: &Arc<OpenFile>, item: Item) {
        let Some(member) = &file.member else { return };
        let mut queue = lock(&member.queue);
        queue.items.push_back(item);
        if queue.scheduled {
            return;
        }
        queue.scheduled = true;
        let sent = self.jobs.as_ref().map(|jobs| jobs.send(Arc::clone(file)));
        if self.threads.is_empty() || !matches!(sent, Some(Ok(()))) {
            self.shared.fail(WorkerDied.into());
        }
    }

    /// Returns the first failure so far.
    pub(crate) fn check(&self) -> Result<(), ExtractCause> {
        if !self.shared.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        // The cause can be taken only once; later calls get a generic error.
        Err(self.shared.status().failure.take().unwrap_or(WorkerDied.into()))
    }

    /// Waits until all files that have ended have their final names.
    pub(crate) fn drain(&self) -> Result<(), ExtractCause> {
        let mut status = self.shared.status();
        while status.pending > 0 && !self.shared.failed.load(Ordering::Acquire) {
            status = self.shared.changed.wait(status).unwrap_or_else(PoisonError::into_inner);
        }
        drop(status);
        self.check()
    }

    /// Abandons unfinished work.
    pub(crate) fn cancel(&self) {
        self.shared.failed.store(true, Ordering::Release);
    }

    /// Ends the threads and waits for them.
    pub(crate) fn join(mut self) -> Result<DecodeTotals, WorkerDied> {
        drop(self.jobs.take());
        let mut outcome = Ok(());
        for thread in self.threads.drain(..) {
            outcome = outcome.and(thread.join().map_err(|_| WorkerDied));
        }
        outcome.map(|()| self.shared.status().done)
    }
}

impl Shared {
    fn status(&self) -> MutexGuard<'_, Status> {
        lock(&self.status)
    }

    fn fail(&self, cause: ExtractCause) {
        self.on_failure.tell(&cause);
        let mut status = self.status();
        if !self.failed.swap(true, Ordering::AcqRel) {
            status.failure = Some(cause);
        }
        self.changed.notify_all();
    }

    /// Main loop of one thread.
    fn work_off(&self, queue: &Receiver<Arc<OpenFile>>) {
        let mut buffer = vec![0; BUFFER];
        for file in queue {
            let Some(member) = &file.member else { continue };
            loop {
                let next = {
                    let mut queue = lock(&member.queue);
                    let next = queue.items.pop_front();
                    queue.scheduled = next.is_some();
                    next
                };
                let Some(item) = next else { break };
                if self.failed.load(Ordering::Acquire) {
                    continue;
                }
                let mut job = Job { shared: self, file: &file, member, buffer: &mut buffer };
                // After a panic the thread continues and takes all queued items, because they hold
                // memory for which the feeder waits.
                let taken = catch_unwind(AssertUnwindSafe(|| job.take(item)));
                if let Err(cause) = taken.unwrap_or_else(|_panic| Err(WorkerDied.into())) {
                    self.fail(cause);
                }
            }
        }
    }
}

/// Work of one thread on one file.
struct Job<'a> {
    shared: &'a Shared,
    file: &'a OpenFile,
    member: &'a Member,
    buffer: &'a mut [u8],
}

/// An error inside a job, before file and position are added.
enum Fault {
    FileDecoding(FileDecodeError),
    Target(TargetError),
}

impl From<FileDecodeError> for Fault {
    fn from(error: FileDecodeError) -> Self {
        Self::FileDecoding(error)
    }
}

impl From<TargetError> for Fault {
    fn from(error: TargetError) -> Self {
        Self::Target(error)
    }
}

impl Job<'_> {
    fn take(&mut self, item: Item) -> Result<(), ExtractCause> {
        let mut held = lock(&self.member.work);
        #[cfg(test)]
        assert!(!self.member.stored.as_bytes().starts_with(b"panic"), "wanted by the test");
        let (position, result) = match item {
            Item::Piece { bytes, position, .. } => {
                (position, self.begin(&mut held).and_then(|work| self.piece(work, &bytes)))
            }
            Item::End { name, position } => {
                let result = match held.take() {
                    Some(work) => self.end(work, &name),
                    None => self.new_work().map_err(Fault::from).and_then(|w| self.end(w, &name)),
                };
                (position, result)
            }
            Item::Discard => {
                if let Some(parked) = held.take().and_then(|work| work.parked) {
                    parked.spool.discard();
                }
                if let Some(file) = self.file.take() {
                    file.discard();
                }
                return Ok(());
            }
        };
        result.map_err(|fault| match fault {
            Fault::FileDecoding(source) => {
                ExtractCause::FileDecoding { path: self.member.stored.clone(), position, source }
            }
            Fault::Target(source) => ExtractCause::Target { position, source },
        })
    }

    fn new_work(&self) -> Result<FileWork, FileDecodeError> {
        let chain = CodecChain::new(&self.member.layers, self.shared.cipher.as_ref())?;
        Ok(FileWork {
            chain,
            permit: Permit::default(),
            plain: 0,
            sum: PieceCheck::of(&[]),
            parked: None,
            may_have_holes: may_have_holes(self.file.path()),
        })
    }

    fn begin<'w>(&self, held: &'w mut Option<FileWork>) -> Result<&'w mut FileWork, Fault> {
        match held {
            Some(work) => Ok(work),
            none => Ok(none.insert(self.new_work()?)),
        }
    }

    fn piece(&mut self, work: &mut FileWork, mut bytes: &[u8]) -> Result<(), Fault> {
        while work.parked.is_none() {
            let Some(want) = self.run(work, &mut bytes)? else { return Ok(()) };
            if !self.grant(work, want)? {
                let spool = self.shared.target.begin(self.file.path())?;
                work.parked = Some(SpilledFile { spool, len: 0 });
            }
        }
        if let Some(parked) = &mut work.parked {
            parked.spool.write_at(parked.len, bytes)?;
            parked.len += bytes.len() as u64;
        }
        Ok(())
    }

    /// Runs the chain until it needs memory or has no more work.
    fn run(&mut self, work: &mut FileWork, input: &mut &[u8]) -> Result<Option<MemoryNeed>, Fault> {
        loop {
            let (len, flow) = work.chain.run(input, self.buffer)?;
            let plain = &self.buffer[..len];
            let write = || {
                self.file.with(&self.shared.target, |file| match work.may_have_holes {
                    true => write_with_holes(file, work.plain, plain),
                    false if plain.is_empty() => Ok(()),
                    false => file.write_at(work.plain, plain),
                })
            };
            self.shared.observer.working(Step::Write, len as u64, write)?;
            if self.shared.log.get().is_some() {
                work.sum.update(plain);
            }
            work.plain += len as u64;
            match flow {
                ChainStop::Full => {}
                ChainStop::Hungry => return Ok(None),
                ChainStop::Wants(want) => return Ok(Some(want)),
            }
        }
    }

    /// Leases the memory that the chain needs, if it is free now.
    fn grant(&self, work: &mut FileWork, want: MemoryNeed) -> Result<bool, FileDecodeError> {
        let more = self.cost(work, want)?;
        // A lease above the whole budget would be reduced to it, which is too little here.
        let lease = (more <= self.shared.states.total())
            .then(|| self.shared.states.try_lease(more))
            .flatten();
        let Some(permit) = lease else { return Ok(false) };
        work.permit.merge(permit);
        work.chain.grant(want);
        Ok(true)
    }

    /// Number of additional bytes the chain needs; an error if one file may not hold that much.
    fn cost(&self, work: &FileWork, want: MemoryNeed) -> Result<u64, FileDecodeError> {
        let (needed, more) = work.chain.cost(want);
        let allowed = self.shared.seat_bytes;
        if needed > allowed { Err(FileDecodeError::Memory { needed, allowed }) } else { Ok(more) }
    }

    /// Ends the file: decodes the parked bytes and gives the file its name.
    fn end(&mut self, mut work: FileWork, name: &RelPath) -> Result<(), Fault> {
        if let Some(parked) = work.parked.take() {
            let _seat = lock(&self.shared.seat);
            self.run_seated(&mut work, &mut &[][..])?;
            let mut piece = vec![0; BUFFER];
            let mut at = 0;
            while at < parked.len {
                let len = usize::try_from(parked.len - at).unwrap_or(BUFFER).min(BUFFER);
                let piece = &mut piece[..len];
                parked.spool.read_at(at, piece)?;
                self.run_seated(&mut work, &mut &*piece)?;
                at += len as u64;
            }
            parked.spool.discard();
        }
        // All bytes were decoded and the chain is hungry.
        work.chain.finish()?;
        self.file.with(&self.shared.target, |_| Ok(()))?;
        if let Some(file) = self.file.take() {
            if let Some(log) = self.shared.log.get() {
                let (stored, crc) = (&self.member.stored, work.sum.crc32());
                log.whole(stored, file.number(), name, work.plain, Some(crc));
            }
            file.commit(&self.shared.target, name, work.plain, self.shared.durable)?;
        }
        let mut status = self.shared.status();
        status.pending -= 1;
        status.done.files += 1;
        status.done.decrypted += u64::from(self.member.is_encrypted());
        self.shared.observer.add_files(1);
        self.shared.changed.notify_all();
        Ok(())
    }

    /// Runs the chain with all the memory it needs, which is allowed while the file has the seat.
    fn run_seated(&mut self, work: &mut FileWork, input: &mut &[u8]) -> Result<(), Fault> {
        while let Some(want) = self.run(work, input)? {
            self.cost(work, want)?;
            work.chain.grant(want);
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
