//! A producer that we start ourselves, so that its exit status is known.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};
use tokio::sync::oneshot;
use tokio::time::Instant;
use xb_pipeline::{FifoNames, Fifos, Merge};
pub use xb_process::LockGuard;
use xb_process::{
    DroppedTablespaces, GuardedOutput, LeftOut, Messages, Program, Running, Stall,
    guard as take_over, how_it_ended,
};

use crate::error::BackupError;

/// How long a producer may leave something undone at its end before a message says so.
pub(super) const SLOW_END: Duration = Duration::from_secs(10);
/// How long the output of a producer that has ended may stay open without another byte.
const LEFT_OPEN: Duration = Duration::from_secs(3600);
/// Time between two looks at such an output.
const LOOK: Duration = Duration::from_secs(1);

/// A running producer. Dropping it before its end was observed kills it.
#[derive(Debug)]
pub struct Producer {
    child: Running,
    program: String,
    messages: Option<Messages>,
    /// Receives a message when the producer was blocked for too long while holding locks.
    stalled: Option<oneshot::Receiver<Stall>>,
    lock_stall: Option<Duration>,
    reads: Reads,
    /// File of a table that it left out, by its messages.
    left_out: Arc<OnceLock<String>>,
    /// Tablespaces that it takes for dropped, by its messages.
    dropped: Arc<Mutex<DroppedTablespaces>>,
    ended: bool,
    /// FIFOs of the producer, removed at the end.
    _fifos: Option<FifoNames>,
}

/// Creates the spool file, if one is configured.
///
/// # Errors
/// [`BackupError::Spool`].
pub(super) fn spool_of(guard: &LockGuard) -> Result<Option<File>, BackupError> {
    guard.spool().map_err(|source| BackupError::Spool {
        dir: guard.spool_dir.as_deref().unwrap_or(Path::new("")).display().to_string(),
        source,
    })
}

/// The stream of a producer, from its stdout or its FIFOs.
pub type ProducerOutput = GuardedOutput<Box<dyn Read + Send>>;

impl Producer {
    /// Checks that the program of `argv` exists.
    ///
    /// # Errors
    /// [`BackupError::NotStarted`].
    pub fn look_for(argv: &[OsString]) -> Result<(), BackupError> {
        match argv.first() {
            Some(program) => crate::child::find(&[Path::new(program)]),
            // `start` reports it.
            None => Ok(()),
        }
    }

    /// Starts `argv` without a shell. Its output on stdout, or in `fifos`, is the stream. A thread
    /// of its own passes every line that the program writes to its stderr to `message`, without the
    /// line end.
    ///
    /// # Errors
    /// [`BackupError::NotStarted`]; [`BackupError::System`] if the spool cannot be created.
    pub fn start(
        argv: &[OsString],
        fifos: Option<Fifos>,
        guard: &LockGuard,
        mut message: impl FnMut(&[u8]) + Send + 'static,
    ) -> Result<(Self, ProducerOutput), BackupError> {
        let Some((program, args)) = argv.split_first() else {
            return Err(BackupError::NotStarted {
                program: "the producer".into(),
                what: "no program is given".into(),
            });
        };
        let spool = spool_of(guard)?;
        // The program as the user named it: the most frequent cause of a failed start is a wrong
        // path.
        let given = program.to_string_lossy().into_owned();
        let name = Path::new(program)
            .file_name()
            .map_or_else(|| given.clone(), |n| n.to_string_lossy().into_owned());
        let failed = |what: String| BackupError::NotStarted { program: given.clone(), what };
        let mut child = Program::new(program)
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // The producer may ask for a password, so it needs our terminal. When its output is closed, it ends with
            // its next byte only; until then it may block the commits of its server, so it has a guardian.
            .in_our_group()
            .opening_many_files()
            .start()
            .map_err(|error| failed(error.to_string()))?;
        let (Some(stdout), Some(stderr)) = (child.stdout(), child.stderr()) else {
            return Err(BackupError::Bug("a piped child has no pipe"));
        };
        let (output, fifos): (Box<dyn Read + Send>, _) = match fifos {
            None => {
                xb_files::enlarge_pipe(&stdout);
                (Box::new(stdout), None)
            }
            Some(fifos) => {
                let (merged, names) = Merge::new(fifos, Some(stdout.into()));
                (Box::new(merged), Some(names))
            }
        };
        let reads = Reads::default();
        let stream: Box<dyn Read + Send> = Box::new(Counted { output, reads: reads.clone() });
        let mut producer = Self {
            child,
            program: name,
            messages: None,
            stalled: None,
            lock_stall: guard.lock_stall,
            reads,
            left_out: Arc::default(),
            dropped: Arc::default(),
            ended: false,
            _fifos: fifos,
        };
        let (tell, stalled) = oneshot::channel();
        // The receiver is gone once the run is over.
        let on_stall = |stall| drop(tell.send(stall));
        let (left_out, dropped) = (producer.left_out.clone(), producer.dropped.clone());
        let message = move |line: &[u8]| {
            if let Some(file) = xb_process::left_out(line) {
                let _ = left_out.set(file);
            }
            dropped.lock().unwrap_or_else(PoisonError::into_inner).read_line(line);
            message(line);
        };
        let (output, messages) = take_over(stream, stderr, spool, guard, message, on_stall)
            .map_err(|source| BackupError::System { what: "cannot start a thread", source })?;
        producer.stalled = Some(stalled);
        producer.messages = Some(messages);
        Ok((producer, output))
    }

    /// Waits until a lock stall, or until its output has been left open for too long; never returns if neither occurs.
    pub(crate) async fn stalled(&mut self, tell: impl FnMut(&str)) -> BackupError {
        let Self { child, program, stalled, reads, lock_stall, .. } = self;
        let lock_stall = async {
            let told = match stalled {
                Some(stalled) => stalled.await.ok(),
                None => None,
            };
            // The channel delivers only one message and must not be polled again.
            *stalled = None;
            let Some(stall) = told else { return std::future::pending().await };
            let seconds = lock_stall.unwrap_or_default().as_secs();
            let program = program.clone();
            match stall {
                Stall::Full => BackupError::LockStall { program, seconds },
                Stall::Disk(error) => {
                    BackupError::SpoolDisk { program, seconds, what: error.to_string() }
                }
                Stall::Overwritten => BackupError::OverwrittenRedo { program, seconds },
            }
        };
        tokio::select! {
            stalled = lock_stall => stalled,
            left = left_open(child, reads, program, tell) => left,
        }
    }

    /// File name of the program.
    #[must_use]
    pub fn program(&self) -> &str {
        &self.program
    }

    /// Process ID of the producer, or of its guardian, which passes signals on.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Waits for the producer's end; any exit status but 0 is an error. Can be cancelled.
    ///
    /// # Errors
    /// [`BackupError::Producer`] with the exit status or signal; [`BackupError::LeftOut`] if it left a table out.
    pub async fn ended(&mut self) -> Result<(), BackupError> {
        let status = loop {
            let status = self.child.try_wait();
            match status.map_err(|error| {
                self.failed(format!("failed, because its exit status is unknown: {error}"))
            })? {
                Some(status) => break status,
                // The output has ended, so the program will exit soon.
                None => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        };
        self.ended = true;
        self.drain_messages();
        match self.left_out.get() {
            _ if !status.success() => Err(self.failed(how_it_ended(status))),
            Some(file) => Err(LeftOut { program: self.program.clone(), file: file.clone() }.into()),
            None => Ok(()),
        }
    }

    /// The tablespaces that it takes for dropped, by its messages so far.
    #[must_use]
    pub fn dropped(&self) -> DroppedTablespaces {
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sends `signal` to the producer and makes sure that it ends, and that its last messages have been passed on.
    pub fn end(&mut self, signal: i32) {
        if self.ended {
            return;
        }
        self.child.end(signal);
        self.ended = true;
        // Its last message may be the cause of its failure.
        self.drain_messages();
    }

    fn drain_messages(&mut self) {
        if let Some(messages) = self.messages.take() {
            messages.drain_output();
        }
    }

    fn failed(&self, what: String) -> BackupError {
        BackupError::Producer { program: self.program.clone(), what }
    }
}

/// Number of reads of an output, counted when each begins and when it ends: odd while one waits for bytes.
#[derive(Debug, Clone, Default)]
struct Reads(Arc<AtomicU64>);

/// An output whose reads are counted.
struct Counted {
    output: Box<dyn Read + Send>,
    reads: Reads,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.reads.0.fetch_add(1, Ordering::Relaxed);
        let read = self.output.read(buffer);
        self.reads.0.fetch_add(1, Ordering::Relaxed);
        read
    }
}

/// Returns whether a program has ended, without taking notice of it: only [`Producer::ended`] does.
fn is_over(child: &Running) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let pid = i32::try_from(child.pid()).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| waitid(WaitId::Pid(pid), options).is_ok_and(|ended| ended.is_some()))
}

/// Waits until a producer has ended, and for too long no byte has come of its output, which something that it has started
/// keeps open: nothing else would end that wait. Says so before.
async fn left_open(
    child: &Running,
    Reads(reads): &Reads,
    program: &str,
    mut tell: impl FnMut(&str),
) -> BackupError {
    let (mut waits, mut is_told) = (None, false);
    loop {
        tokio::time::sleep(LOOK).await;
        let now = reads.load(Ordering::Relaxed);
        if now % 2 == 0 || !is_over(child) {
            waits = None;
            continue;
        }
        let since = match waits {
            Some((same, since)) if same == now => since,
            _ => waits.insert((now, Instant::now())).1,
        };
        if since.elapsed() >= SLOW_END && !is_told {
            is_told = true;
            tell(&format!(
                "{program} has ended, but a process that it started keeps its output open; the backup waits for the end of the output"
            ));
        }
        if since.elapsed() >= LEFT_OPEN {
            let minutes = LEFT_OPEN.as_secs() / 60;
            return BackupError::Producer {
                program: program.to_owned(),
                what: format!(
                    "has ended, but a process that it started has kept its output open for {minutes} min without writing"
                ),
            };
        }
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.end(Signal::TERM.as_raw());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(words: &[&str]) -> Result<(Producer, ProducerOutput), BackupError> {
        let argv: Vec<OsString> = words.iter().map(OsString::from).collect();
        Producer::start(&argv, None, &LockGuard::default(), |_| {})
    }

    fn wait(producer: &mut Producer) -> Result<(), BackupError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(producer.ended())
    }

    #[test]
    fn messages_are_all_passed_on() {
        let script = ["sh", "-c", "echo first >&2; printf 'no end of line' >&2"];
        let argv: Vec<OsString> = script.iter().map(OsString::from).collect();
        let (said, heard) = std::sync::mpsc::channel();
        let message = move |line: &[u8]| said.send(line.to_vec()).unwrap();
        let (mut producer, _out) =
            Producer::start(&argv, None, &LockGuard::default(), message).unwrap();
        wait(&mut producer).unwrap();
        let lines: Vec<_> = heard.iter().collect();
        assert_eq!(lines, [b"first".to_vec(), b"no end of line".to_vec()]);
    }

    /// The output may end long before the producer does, and several callers may wait for a stall.
    #[test]
    fn whether_it_has_stalled_may_be_asked_again_after_its_output_has_ended() {
        let (mut producer, mut output) = start(&["true"]).unwrap();
        output.read_to_end(&mut Vec::new()).unwrap();
        drop(output);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            for _ in 0..3 {
                let asked =
                    tokio::time::timeout(Duration::from_millis(20), producer.stalled(|_| ()));
                assert!(asked.await.is_err(), "nothing has stalled");
            }
            producer.ended().await.unwrap();
        });
    }

    /// A producer holds up its server while its output is not being read.
    #[test]
    fn a_stalled_producer_that_holds_locks_fails_the_backup() {
        let script =
            "echo 'Starting BACKUP STAGE BLOCK_COMMIT' >&2; exec head -c 9000000 /dev/zero";
        let argv: Vec<OsString> = ["sh", "-c", script].iter().map(OsString::from).collect();
        let guard =
            LockGuard { lock_stall: Some(Duration::from_millis(10)), ..LockGuard::default() };
        let (mut producer, mut output) = Producer::start(&argv, None, &guard, |_| {}).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let error = runtime.block_on(producer.stalled(|_| ()));
        assert!(matches!(error, BackupError::LockStall { .. }), "{error}");
        assert!(output.read_to_end(&mut Vec::new()).is_err(), "never an end that looks like one");
        producer.end(Signal::TERM.as_raw());
    }

    #[tokio::test(start_paused = true)]
    async fn an_output_that_stays_open_after_the_end_of_its_program_is_given_up() {
        let script = ["sh", "-c", "sleep 600 & echo $! >&2; printf data"].map(OsString::from);
        let (said, heard) = std::sync::mpsc::channel();
        let message = move |line: &[u8]| drop(said.send(line.to_vec()));
        let (mut producer, mut output) =
            Producer::start(&script, None, &LockGuard::default(), message).unwrap();
        let reader = std::thread::spawn(move || output.read_to_end(&mut Vec::new()));
        let mut told = Vec::new();
        let given_up = producer.stalled(|what| told.push(what.to_owned())).await.to_string();
        assert!(given_up.contains("sh has ended") && given_up.contains("60 min"), "{given_up}");
        assert!(told.len() == 1 && told[0].contains("keeps its output open"), "{told:?}");
        let pid = String::from_utf8(heard.recv().unwrap()).unwrap().parse().unwrap();
        rustix::process::kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
        assert_eq!(reader.join().unwrap().unwrap(), 4);
    }

    #[test]
    fn output_and_status_are_passed_on() {
        let (mut good, mut out) = start(&["sh", "-c", "printf data"]).unwrap();
        let mut text = String::new();
        out.read_to_string(&mut text).unwrap();
        assert_eq!(text, "data");
        wait(&mut good).unwrap();
        let (mut bad, _out) = start(&["sh", "-c", "exit 7"]).unwrap();
        assert!(wait(&mut bad).unwrap_err().to_string().contains("exit status 7"));
        let (mut killed, _out) = start(&["sh", "-c", "kill -9 $$"]).unwrap();
        assert!(wait(&mut killed).unwrap_err().to_string().contains("signal 9"));
    }

    /// It says so among its messages, and ends with 0.
    #[test]
    fn a_table_that_the_producer_leaves_out_is_missed() {
        let says = "echo \"Can't find file: './shop/far.MAI' (errno: 40 \\\"links\\\")\" >&2";
        let (mut producer, _out) = start(&["sh", "-c", says]).unwrap();
        let error = wait(&mut producer).unwrap_err();
        assert!(matches!(&error, BackupError::LeftOut(left) if left.file == "./shop/far.MAI"));
    }

    #[test]
    fn a_missing_program_is_named_without_its_arguments() {
        let error = start(&["/no/such/mariadb-backup", "--password=topsecret"])
            .map(drop)
            .unwrap_err()
            .to_string();
        assert!(error.contains("mariadb-backup") && !error.contains("topsecret"), "{error}");
        assert!(start(&[]).is_err());
    }

    #[test]
    fn its_last_messages_are_known_once_it_was_ended() {
        let script = ["sh", "-c", "echo last >&2; printf d; exec sleep 600"].map(OsString::from);
        let (said, heard) = std::sync::mpsc::channel();
        let message = move |line: &[u8]| {
            // As on a busy machine.
            std::thread::sleep(Duration::from_millis(100));
            said.send(line.to_vec()).unwrap();
        };
        let (mut producer, mut output) =
            Producer::start(&script, None, &LockGuard::default(), message).unwrap();
        output.read_exact(&mut [0]).unwrap();
        producer.end(Signal::TERM.as_raw());
        assert_eq!(heard.try_recv().unwrap(), b"last");
    }

    #[test]
    fn ending_it_leaves_no_process_behind() {
        let (mut producer, _out) = start(&["sleep", "600"]).unwrap();
        let pid = Pid::from_raw(producer.pid().try_into().unwrap()).unwrap();
        producer.end(Signal::TERM.as_raw());
        assert!(rustix::process::test_kill_process(pid).is_err());
    }
}
