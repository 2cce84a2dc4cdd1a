//! One connection to the server: asks what it is and has, and receives its log in a thread of its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;
use xb_binlog::{
    ChecksumKind, Event, GtidState, History, LogPosition, MAGIC, SentEvent, SentReader, SystemZone,
};
use xb_mysql::{Access, Client, DumpItem, Start as From, Timeouts};
use xb_repo::archive::segment::LastTransaction;
use xb_repo::archive::stream::{Origin, StoredPosition, StoredRepeats};
use xb_repo::hex::hex;

use crate::archive_error::ArchiveError;
use crate::binlog::overlap::elsewhere::ArchiveEnd;
use crate::binlog::overlap::search::Search;
use crate::binlog::overlap::search_outcome::{OtherServer, Outcome, SearchStep};
use crate::binlog::overlap::start::{ServerLog, Start};
use crate::binlog::receive::clock;
use crate::binlog::receive::segmenter::{Cut, Progress, Segmenter};
use crate::binlog::receive::waiting::{AckSchedule, NextStep};
use crate::binlog::source::log_files::{LogFile, LogSender};
use crate::binlog::source::log_request::{LOGIN_LIMIT, LogRequest, NO_FILE, NO_SUCH_POSITION};
use crate::binlog::source::replay_risks::replay_risks;
use crate::binlog::source::role::Role;
use crate::binlog::source::sent_log::{ConnectedLog, LogEnds, SentLog, checksums};
use crate::binlog::source::settings::{engines, settings};
use crate::binlog::source::system_zone::system_zone;
use crate::binlog::source::write_access::WriteAccess;
use crate::cancel::CancelToken;

/// Between two looks whether more has arrived, while it is too early to store what has.
const LOOK: Duration = Duration::from_millis(5);
/// The time of day is read so often, while events follow each other.
const CLOCK: Duration = Duration::from_millis(1);
/// Time limit for reading what has arrived when nothing more is to be received.
const LAST_READS: Duration = Duration::from_secs(5);
/// How long a connection stays open after an acknowledgement, so that the server reads it.
const LAST_ANSWER: Duration = Duration::from_secs(1);
/// Parts of its message if the server lacks memory or file descriptors, or its disk does not answer.
const UNREAD: [&str; 4] = ["could not open", "memory", "i/o error", "open log file"];

/// Facts about the server for the receiver.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    pub(crate) version: String,
    pub(crate) id: u32,
    /// `server_uuid` of MySQL.
    pub(crate) uuid: Option<String>,
    /// Whether clients may write to it, and where its data comes from.
    pub(crate) write_access: WriteAccess,
    pub(crate) logs: Vec<ServerLog>,
    /// Its role.
    pub(crate) role: Role,
    /// Variables that a replay needs.
    pub(crate) settings: BTreeMap<String, String>,
    /// A position in its log at which it had them.
    pub(crate) settings_at: Option<StoredPosition>,
    /// Local time of its system.
    pub(crate) system_zone: Option<SystemZone>,
    /// Engines that it has.
    pub(crate) engines: Vec<String>,
    /// Reasons why a replay of its log may give other data than it has.
    pub(crate) doubts: Vec<String>,
    /// Seconds by which its clock is ahead of this host's.
    pub(crate) ahead: i64,
}

impl Server {
    /// Returns its identity.
    pub(crate) fn origin(&self) -> Origin<'_> {
        Origin { id: self.id, uuid: self.uuid.as_deref(), node: self.role.node.as_deref() }
    }

    /// `HOST:PORT`, as it states it.
    pub(crate) fn host(&self) -> Option<String> {
        let who = &self.write_access.who;
        Some(format!("{}:{}", who.get("hostname")?, who.get("port")?))
    }
}

/// Messages of the thread.
#[derive(Debug)]
pub(crate) enum Message {
    /// The stored transaction was sent again with the same bytes, if there is one: the stream may begin.
    Begun,
    /// A segment.
    Segment(Box<Cut>),
    /// The server had nothing more.
    Idle,
    /// The thread waits until every segment before this is stored, and the store has been seen to keep it; it gets the
    /// end of the last one.
    Confirm(std::sync::mpsc::SyncSender<StoredPosition>),
}

/// Connects, and asks.
pub(crate) fn connect(
    access: &Access,
    needs_checksums: bool,
) -> Result<(Client, Server), ArchiveError> {
    let timeouts = Timeouts { login: LOGIN_LIMIT, reply: Some(LOGIN_LIMIT) };
    let mut client = Client::connect(&access.target, &access.account, timeouts)?;
    let rows = client.rows("SELECT @@version, @@server_id, @@log_bin, @@global.binlog_checksum")?;
    let row = rows.first().ok_or(xb_mysql::Error::Unexpected)?;
    let text = |column| row.get(column).map(|value| String::from_utf8_lossy(value).into_owned());
    let (version, id, is_on) = (text(0), text(1), text(2));
    let version = version.ok_or(xb_mysql::Error::Unexpected)?;
    if is_on.as_deref() != Some("1") {
        return Err(ArchiveError::NoLog);
    }
    if needs_checksums && text(3).is_some_and(|kind| kind.eq_ignore_ascii_case("NONE")) {
        return Err(ArchiveError::NoChecksums { what: "the server writes its binary log".into() });
    }
    let uuid = match version.contains("MariaDB") {
        true => None,
        false => Some(identity(&mut client)?),
    };
    let id = id.and_then(|id| id.parse().ok()).ok_or(xb_mysql::Error::Unexpected)?;
    // Before the logs: they have every transaction that it says, unless none of them has it.
    let role = Role::ask(&mut client, uuid.is_some())?;
    // Before the logs, too: it had them at their end.
    let settings = settings(&mut client, uuid.is_some())?;
    let rows = client.list("SHOW BINARY LOGS")?;
    let logs = rows.iter().map(|row| {
        let text = |column| Some(String::from_utf8_lossy(row.get(column)?).into_owned());
        Some((text(0)?, text(1)?.parse().ok()?))
    });
    let logs: Vec<ServerLog> = logs.collect::<Option<_>>().ok_or(xb_mysql::Error::Unexpected)?;
    let end = logs.last();
    let settings_at =
        end.map(|(log, size)| StoredPosition { log: log.as_str().into(), offset: *size });
    let system_zone = system_zone(&mut client)?;
    let engines = engines(&mut client)?;
    let write_access = WriteAccess::ask(&mut client)?;
    let doubts =
        replay_risks(&mut client, &write_access)?.into_iter().map(|doubt| doubt.found).collect();
    // Only a warning rests on it.
    let ahead = clock::ahead(&mut client).unwrap_or(0);
    let server = Server {
        version,
        id,
        uuid,
        write_access,
        logs,
        role,
        settings,
        settings_at,
        system_zone,
        engines,
        doubts,
        ahead,
    };
    Ok((client, server))
}

/// The `server_uuid` of a server of MySQL, each of whose transactions has a GTID.
fn identity(client: &mut Client) -> Result<String, ArchiveError> {
    let rows = client.rows("SELECT @@GLOBAL.gtid_mode, @@GLOBAL.server_uuid")?;
    let [mode, uuid] = rows.first().ok_or(xb_mysql::Error::Unexpected)?.texts()?;
    match mode == "ON" {
        true => Ok(uuid),
        false => Err(ArchiveError::NoGtids { mode }),
    }
}

/// State that the thread shares beside its messages.
#[derive(Debug, Default)]
pub(crate) struct ReceiveFlags {
    /// Number of acknowledgements that were sent, or are being sent.
    pub(crate) acknowledged: AtomicU64,
    /// The server asks for none on this connection, though they were offered.
    pub(crate) is_declined: AtomicBool,
    /// Nothing more is to be received.
    is_over: AtomicBool,
}

/// A thread that receives; it ends when the connection or the channel does.
pub(crate) struct Receiving {
    pub(crate) messages: mpsc::Receiver<Message>,
    pub(crate) flags: Arc<ReceiveFlags>,
    ends: Box<dyn LogEnds>,
    thread: std::thread::JoinHandle<ArchiveError>,
}

impl Receiving {
    /// Ends what is received: the thread passes on what it has, acknowledges it, and ends the connection. Up to then it
    /// can read: a server drops a replica that does not, and with it the acknowledgement.
    pub(crate) fn hang_up(&self) {
        self.flags.is_over.store(true, Ordering::SeqCst);
        self.ends.wake();
    }

    /// Returns why it ended.
    pub(crate) fn join(self) -> ArchiveError {
        self.flags.is_over.store(true, Ordering::SeqCst);
        self.ends.wake();
        self.ends.close();
        drop(self.messages);
        self.thread.join().unwrap_or(ArchiveError::Bug("the thread that receives panicked"))
    }
}

/// How the receiver answers a server that waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Acknowledge {
    /// It does not.
    No,
    /// The segments that it stores.
    New,
    /// The segments that it stores, and the log before them, which this process has stored, too.
    Known,
}

/// Asks the server for the log, and receives it.
pub(crate) fn receive(
    client: Client,
    start: &Start,
    request: LogRequest,
    acknowledge: Acknowledge,
) -> Result<Receiving, ArchiveError> {
    let acknowledges = acknowledge != Acknowledge::No;
    let (replica, limit) = request.replica(acknowledges);
    let from = start.overlap.as_ref().map_or(&start.at, |last| &last.from);
    // The protocol has no larger offsets: then the log is received from its beginning, and passed over.
    let offset = u32::try_from(from.offset).unwrap_or(4);
    let from = From::Position { log: from.log.to_string(), offset };
    let dump = client.dump(&replica, &from, limit)?;
    let (log, ends) = ConnectedLog::new(dump)?;
    let is_known = acknowledge == Acknowledge::Known;
    let LogRequest { age, size, each, needs_checksums, .. } = request;
    begin(log, start, is_known, age / 2, size, each, needs_checksums, ends)
}

/// Looks for the archive's end in the logs of another server, from this one on, until that is decided. Calls `behind` with
/// what the server lacks whenever it has nothing more.
pub(crate) fn find(
    client: Client,
    log: &str,
    archive: ArchiveEnd,
    other: OtherServer,
    request: LogRequest,
    is_cancelled: impl Fn() -> bool,
    behind: impl Fn(String),
) -> Result<Outcome, ArchiveError> {
    let (replica, limit) = request.replica(false);
    let from = From::Position { log: log.to_owned(), offset: 4 };
    let mut dump = client.dump(&replica, &from, limit)?;
    let mut search = Search::new(checksums(&dump), log, archive, other);
    loop {
        if is_cancelled() {
            return Err(ArchiveError::Ended);
        }
        let found = dump.next(|dumped| search.take(dumped))??;
        check(search.reader(), request.needs_checksums)?;
        match found {
            SearchStep::More => {}
            SearchStep::Behind(what) => behind(what),
            SearchStep::Ended(outcome) => return Ok(outcome),
        }
    }
}

/// Sends log files, which the server of the archive has written, as that server would.
pub(crate) fn send(
    files: Vec<LogFile>,
    start: &Start,
    size: usize,
    needs_checksums: bool,
) -> Result<Receiving, ArchiveError> {
    let cancel = CancelToken::new();
    let from = start.overlap.as_ref().map_or(&start.at, |last| &last.from);
    let sender = LogSender::new(files, (&from.log, from.offset), cancel.clone())?;
    // A segment is cut by its size only.
    begin(sender, start, false, Duration::MAX, size, Duration::ZERO, needs_checksums, cancel)
}

fn begin(
    log: impl SentLog + Send + 'static,
    start: &Start,
    is_known: bool,
    age: Duration,
    size: usize,
    each: Duration,
    needs_checksums: bool,
    ends: impl LogEnds + 'static,
) -> Result<Receiving, ArchiveError> {
    let (sender, messages) = mpsc::channel(1);
    let (start, flags) = (start.clone(), Arc::new(ReceiveFlags::default()));
    let shared = Arc::clone(&flags);
    let work = move || {
        let end = run(log, &start, is_known, age, size, needs_checksums, each, &sender, &shared);
        end.err().unwrap_or(ArchiveError::Ended)
    };
    let thread = std::thread::Builder::new().name("binlog".into()).spawn(work);
    let thread = thread.map_err(|_| ArchiveError::Bug("no thread can be started"))?;
    Ok(Receiving { messages, flags, ends: Box::new(ends), thread })
}

/// Receives until the connection or the channel ends.
fn run(
    mut log: impl SentLog,
    start: &Start,
    is_known: bool,
    age: Duration,
    size: usize,
    needs_checksums: bool,
    each: Duration,
    out: &mpsc::Sender<Message>,
    flags: &ReceiveFlags,
) -> Result<(), ArchiveError> {
    let mut overlap = Overlap::new(SentReader::new(log.checksums()), start);
    while !overlap.is_over() {
        if flags.is_over.load(Ordering::Relaxed) {
            return Err(ArchiveError::Ended);
        }
        if !log.wait()? {
            continue;
        }
        match log.next(|dumped| overlap.take(dumped)) {
            Ok(true) => {}
            Ok(false) => return Err(log.early_end()),
            Err(error) => return Err(differing(error, &start.at.log)),
        }
        check(&overlap.reader, needs_checksums)?;
    }
    if out.blocking_send(Message::Begun).is_err() {
        return Ok(());
    }
    let gtids = start.gtids.as_ref().map(|gtids| gtids.parse::<GtidState>());
    let gtids = gtids.transpose().map_err(|_| ArchiveError::Bug("GTIDs of a head"))?;
    let repeats = start.repeats.as_ref().and_then(StoredRepeats::parse);
    let history = History::new(&start.at.log, gtids).with_repeats(repeats);
    let mut segmenter = Segmenter::new(overlap.reader, history, start.overlap.clone(), age, size);
    let mut waiting = AckSchedule::new(each, size);
    let (mut over, mut last_answer) = (None::<Instant>, None);
    let (mut read, mut now) = (Instant::now(), Timestamp::now());
    // The connection before may have ended between the segment and its acknowledgement.
    if log.take_request() && is_known && start.overlap.is_some() {
        flags.acknowledged.fetch_add(1, Ordering::Relaxed);
        log.acknowledge(&start.at)?;
    }
    loop {
        let mut answered = Ok(());
        let is_over = flags.is_over.load(Ordering::SeqCst);
        if is_over {
            over.get_or_insert_with(Instant::now);
        }
        let step = match waiting.is_asked() {
            true => waiting.next(Instant::now(), || log.has_more()),
            false => NextStep::Read,
        };
        match step {
            // A busy server continues to send.
            _ if over.is_some_and(|over| over.elapsed() > LAST_READS) => {
                answered = Err(ArchiveError::Ended);
            }
            NextStep::Read if is_over && !log.has_more() => answered = Err(ArchiveError::Ended),
            NextStep::Read => match log.wait() {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) => answered = Err(error),
            },
            NextStep::Wait if !is_over => {
                std::thread::sleep(LOOK);
                continue;
            }
            NextStep::Wait | NextStep::Store => {
                if !pass_on(waiting.release(Instant::now()), out) {
                    return Ok(());
                }
                // While the store is away, this waits; the server does so for as long as it was told to.
                let Some(stored) = confirmed(out) else { return Ok(()) };
                flags.acknowledged.fetch_add(1, Ordering::Relaxed);
                answered = log.acknowledge(&stored);
                waiting.acknowledged();
                last_answer = Some(Instant::now());
                if answered.is_ok() {
                    continue;
                }
            }
        }
        // A clock is slow to read, beside an event.
        let at = Instant::now();
        if at.duration_since(read) >= CLOCK {
            (read, now) = (at, Timestamp::now());
        }
        let received = answered.and_then(|()| {
            log.next_together(|dumped| match dumped {
                DumpItem::Event(part) => match segmenter.take(part.bytes, part.is_last, now) {
                    Ok(progress) if progress.is_nothing() => None,
                    other => Some(other),
                },
                DumpItem::End => Some(Err(ArchiveError::Ended)),
            })
        });
        let (mut progress, ended) = match received {
            Ok(progress) => (progress.unwrap_or_default(), None),
            // A fault of the log is there from its beginning on.
            Err(
                error @ (ArchiveError::Log(xb_binlog::Error::History { .. })
                | ArchiveError::Anonymous { .. }),
            ) => (Progress::default(), Some(error)),
            // Received events are whole, however the connection ended.
            Err(error) => (segmenter.finish(now)?, Some(cut_short(error, &segmenter))),
        };
        if log.is_declined() {
            flags.is_declined.store(true, Ordering::Relaxed);
        }
        check(segmenter.reader(), needs_checksums)?;
        // At once: what arrives next may be a part of another transaction.
        if ended.is_none() && log.take_request() {
            progress.cuts.extend(segmenter.cut_whole(now)?.cuts);
            waiting.ask(at);
        }
        let cuts = waiting.take(progress.cuts, at);
        let is_held = ended.is_none() && !progress.is_idle;
        let rest = if is_held { None } else { waiting.release(at) };
        if !pass_on(cuts.into_iter().chain(rest), out) {
            return Ok(());
        }
        if let Some(error) = ended {
            // A receiver that is stopped leaves no commit waiting for what is stored.
            if flags.is_over.load(Ordering::Relaxed)
                && waiting.is_asked()
                && let Some(stored) = confirmed(out)
            {
                flags.acknowledged.fetch_add(1, Ordering::Relaxed);
                log.acknowledge(&stored)?;
                last_answer = Some(Instant::now());
            }
            // A server that finds the connection closed does not read what came before.
            if flags.is_over.load(Ordering::Relaxed)
                && let Some(left) = last_answer.and_then(|at| LAST_ANSWER.checked_sub(at.elapsed()))
            {
                std::thread::sleep(left);
            }
            return Err(error);
        }
        if progress.is_idle && out.blocking_send(Message::Idle).is_err() {
            return Ok(());
        }
    }
}

/// Passes segments on to be stored; false if the writer has ended.
fn pass_on(cuts: impl IntoIterator<Item = Cut>, out: &mpsc::Sender<Message>) -> bool {
    // While the store is away, this waits: the server keeps what was not received.
    cuts.into_iter().all(|cut| out.blocking_send(Message::Segment(Box::new(cut))).is_ok())
}

/// Waits until all segments are stored; returns the end of the last one.
fn confirmed(out: &mpsc::Sender<Message>) -> Option<StoredPosition> {
    let (stored, end) = std::sync::mpsc::sync_channel(1);
    out.blocking_send(Message::Confirm(stored)).ok()?;
    end.recv().ok()
}

/// Checks that the log that is being sent has checksums.
fn check(reader: &SentReader, needs_checksums: bool) -> Result<(), ArchiveError> {
    match (reader.format(), reader.position()) {
        (Some(format), Some(at)) if needs_checksums && format.checksums == ChecksumKind::None => {
            Err(ArchiveError::NoChecksums { what: format!("{} was written", at.log()) })
        }
        _ => Ok(()),
    }
}

/// A log that a crash has cut, or that is damaged, ends with an error.
fn cut_short(error: ArchiveError, segmenter: &Segmenter) -> ArchiveError {
    let (at, log) = (segmenter.reader().position(), segmenter.log());
    let what = match &error {
        // A log of which nothing was sent.
        ArchiveError::Server(xb_mysql::Error::Server(said))
            if is_unread(said.code, &said.message)
                && at.is_none_or(|at| at.log() != log || at.offset() <= MAGIC.len() as u64) =>
        {
            return ArchiveError::Unread { log: log.to_owned(), what: said.to_string() };
        }
        ArchiveError::Server(xb_mysql::Error::Server(said)) if said.code == NO_SUCH_POSITION => {
            said.to_string()
        }
        ArchiveError::Log(damage) => damage.to_string(),
        _ => return error,
    };
    let Some(at) = at else { return error };
    ArchiveError::Cut { log: at.log().to_owned(), offset: at.offset(), what }
}

/// Where the stored transaction should be, the server has something else, or nothing: that is another history, if another
/// connection finds the same. A log that the server cannot read at the moment says nothing of it.
fn differing(error: ArchiveError, log: &str) -> ArchiveError {
    match error {
        ArchiveError::Server(xb_mysql::Error::Server(said))
            if is_unread(said.code, &said.message) =>
        {
            ArchiveError::Unread { log: log.to_owned(), what: said.to_string() }
        }
        ArchiveError::Server(xb_mysql::Error::Server(said)) if said.code == NO_SUCH_POSITION => {
            ArchiveError::Differs(said.to_string())
        }
        ArchiveError::Log(error) => ArchiveError::Differs(error.to_string()),
        error => error,
    }
}

/// Returns whether a server that says this cannot read its log, for a reason that may pass.
fn is_unread(code: u16, message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    let is_for_now = UNREAD.iter().any(|what| message.contains(what));
    code == NO_FILE || (code == NO_SUCH_POSITION && is_for_now)
}

/// Compares the transaction that is sent again.
struct Overlap {
    reader: SentReader,
    expected: Option<LastTransaction>,
    /// Offset at which it begins.
    from: u64,
    digest: Sha256,
    is_over: bool,
}

impl Overlap {
    fn new(reader: SentReader, start: &Start) -> Self {
        let expected = start.overlap.clone();
        let from = expected.as_ref().map_or(start.at.offset, |last| last.from.offset);
        // Without one, the log is passed over up to the position.
        let is_over = expected.is_none() && u32::try_from(from).is_ok();
        Self { reader, expected, from, digest: Sha256::new(), is_over }
    }

    fn is_over(&self) -> bool {
        self.is_over
    }

    /// Takes bytes; false if the server ends. Parts of a packet end with an event, so that nothing behind the
    /// overlap is taken.
    fn take(&mut self, dumped: DumpItem<'_>) -> Result<bool, ArchiveError> {
        let DumpItem::Event(part) = dumped else { return Ok(false) };
        let mut input = part.bytes;
        loop {
            let before = self.reader.position().cloned();
            let mut bytes = Vec::new();
            let sent = self.reader.next(&mut input, &mut bytes)?;
            if before.as_ref().is_some_and(|at| at.offset() >= self.from) {
                self.digest.update(&bytes);
            }
            let Some(sent) = sent else { break };
            self.event(&sent, before.as_ref())?;
        }
        if part.is_last {
            self.reader.end_packet()?;
        }
        Ok(true)
    }

    fn event(
        &mut self,
        sent: &SentEvent,
        before: Option<&LogPosition>,
    ) -> Result<(), ArchiveError> {
        let differs = |what: String| Err(ArchiveError::Differs(what));
        if let Event::Heartbeat = sent.entry().event {
            // Where it ends now would differ with each connection to a busy server.
            let log = before.map(LogPosition::log).unwrap_or_default();
            return differs(format!("the log {log} ends before the stored position"));
        }
        let Some(now) = self.reader.position() else { return Ok(()) };
        let Some(expected) = &self.expected else {
            self.is_over = now.offset() >= self.from;
            return Ok(());
        };
        if now.log() != expected.to.log {
            return differs(format!("the log {} ends before the stored position", expected.to.log));
        }
        if now.offset() < expected.to.offset {
            return Ok(());
        }
        let digest = hex(&std::mem::take(&mut self.digest).finalize());
        if now.offset() != expected.to.offset || digest != expected.sha256 {
            let gtid = &expected.gtid;
            return differs(format!(
                "the transaction {gtid} at {} differs from the stored one",
                expected.from
            ));
        }
        self.is_over = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use proptest::prelude::*;
    use xb_binlog::Reader;
    use xb_mysql::Part;
    use xb_repo::archive::stream::StreamOrigin;

    use super::*;
    use crate::binlog::receive::segmenter::tests::{ROTATION, events};

    /// A log that arrives in reads of any length, from a server that waits behind each transaction.
    struct Waits {
        /// Parts of packets; whether the packet ends, and asks; whether more has arrived behind the part.
        parts: VecDeque<(Vec<u8>, bool, bool, bool)>,
        has_asked: bool,
        has_more: bool,
        acknowledged: Arc<Mutex<Vec<StoredPosition>>>,
    }

    impl SentLog for Waits {
        fn checksums(&self) -> ChecksumKind {
            ChecksumKind::None
        }

        fn early_end(&self) -> ArchiveError {
            ArchiveError::Ended
        }

        fn take_request(&mut self) -> bool {
            std::mem::take(&mut self.has_asked)
        }

        fn has_more(&self) -> bool {
            self.has_more
        }

        fn acknowledge(&mut self, at: &StoredPosition) -> Result<(), ArchiveError> {
            self.acknowledged.lock().unwrap().push(at.clone());
            Ok(())
        }

        fn next<R>(
            &mut self,
            mut pass: impl FnMut(DumpItem<'_>) -> Result<R, ArchiveError>,
        ) -> Result<R, ArchiveError> {
            let Some((bytes, is_last, asks, has_more)) = self.parts.pop_front() else {
                return pass(DumpItem::End);
            };
            self.has_asked |= asks;
            self.has_more = has_more;
            pass(DumpItem::Event(Part::new(&bytes, is_last)))
        }
    }

    #[test]
    fn a_server_that_cannot_read_its_log_has_no_other_history() {
        let behind = "Client requested source to start replication from position > file size";
        assert!(!is_unread(NO_SUCH_POSITION, behind));
        assert!(!is_unread(NO_SUCH_POSITION, "bogus data in log event; the first event ..."));
        assert!(is_unread(NO_SUCH_POSITION, "Could not open log file"));
        assert!(is_unread(NO_SUCH_POSITION, "memory allocation failed reading log event"));
        assert!(is_unread(NO_FILE, "File './bin.000003' not found (Errcode: 2)"));
        assert!(!is_unread(1045, "Out of memory"));
    }

    #[test]
    fn a_stopped_receiver_leaves_the_connection_open_for_its_last_answer() {
        let log = xb_testkit::vectors::read("binlog/mariadb.000003-no-checksum");
        let mut parts = VecDeque::from([(ROTATION.to_vec(), true, false, true)]);
        let count = events(&log).len();
        for (n, (begin, end)) in events(&log).into_iter().enumerate() {
            let is_last = n + 1 == count;
            parts.push_back((log[begin..end].to_vec(), true, is_last, !is_last));
        }
        let acknowledged = Arc::default();
        let waits = Waits {
            parts,
            has_asked: false,
            has_more: true,
            acknowledged: Arc::clone(&acknowledged),
        };
        let (start, flags) =
            (Start::whole("bin.000003", StreamOrigin::First), Arc::new(ReceiveFlags::default()));
        let (sender, mut messages) = mpsc::channel(1);
        let shared = Arc::clone(&flags);
        let thread = std::thread::spawn(move || {
            let each = Duration::ZERO;
            run(waits, &start, false, Duration::MAX, usize::MAX, false, each, &sender, &shared)
        });
        let (mut end, mut answered) = (None, None);
        while let Some(message) = messages.blocking_recv() {
            match message {
                Message::Segment(cut) => {
                    // It is stopped while its last segment is on its way.
                    flags.is_over.store(true, Ordering::SeqCst);
                    end = Some(cut.to);
                }
                Message::Confirm(sender) => {
                    answered = Some(Instant::now());
                    sender.send(end.clone().unwrap()).unwrap();
                }
                Message::Begun | Message::Idle => {}
            }
        }
        assert!(matches!(thread.join().unwrap(), Err(ArchiveError::Ended)));
        assert_eq!(*acknowledged.lock().unwrap(), [end.unwrap()]);
        assert!(answered.unwrap().elapsed() >= LAST_ANSWER);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn only_the_end_of_what_is_stored_is_acknowledged(
            piece in 1_usize..400,
            read in 1_usize..3000,
            is_mysql: bool,
            asks_always: bool,
        ) {
            let fork = if is_mysql { "mysql" } else { "mariadb" };
            let log = xb_testkit::vectors::read(&format!("binlog/{fork}.000003-no-checksum"));
            // Where transactions begin and end.
            let (mut reader, mut input) = (Reader::new(), &log[..]);
            let (mut history, mut ends) = (History::new("bin.000003", None), Vec::new());
            while let Some(entry) = reader.next(&mut input).unwrap() {
                if let Some(ended) = history.push(&entry).unwrap().ended {
                    ends.push((ended.begin, ended.end));
                }
            }
            let mut parts = VecDeque::from([(ROTATION.to_vec(), true, false, true)]);
            for (begin, end) in events(&log) {
                let count = (end - begin).div_ceil(piece);
                for (n, part) in log[begin..end].chunks(piece).enumerate() {
                    let is_last = n + 1 == count;
                    let asks = is_last && (asks_always || ends.iter().any(|one| one.1 == end as u64));
                    let at = begin + n * piece + part.len();
                    // The read ends with this part.
                    let has_more = at / read == (at - part.len()) / read && at < log.len();
                    parts.push_back((part.to_vec(), is_last, asks, has_more));
                }
            }
            let acknowledged = Arc::new(Mutex::new(Vec::new()));
            let waits =
                Waits { parts, has_asked: false, has_more: true, acknowledged: Arc::clone(&acknowledged) };
            let start = Start::whole("bin.000003", StreamOrigin::First);
            let (sender, mut messages) = mpsc::channel(1);
            let thread = std::thread::spawn(move || {
                let (flags, age, each) = (ReceiveFlags::default(), Duration::MAX, Duration::ZERO);
                run(waits, &start, false, age, usize::MAX, false, each, &sender, &flags).unwrap_err();
                flags.acknowledged.load(Ordering::Relaxed)
            });
            // Segments stored at the time of each acknowledgement.
            let (mut stored, mut end, mut confirmed) = (Vec::new(), None, Vec::new());
            while let Some(message) = messages.blocking_recv() {
                match message {
                    Message::Segment(cut) => {
                        stored.extend_from_slice(&cut.bytes);
                        end = Some(cut.to.clone());
                    }
                    Message::Confirm(sender) => {
                        let end = end.clone().unwrap();
                        prop_assert_eq!(end.offset, stored.len() as u64 + 4);
                        confirmed.push(end.clone());
                        sender.send(end).unwrap();
                    }
                    Message::Begun | Message::Idle => {}
                }
            }
            let count = thread.join().unwrap();
            let acknowledged = acknowledged.lock().unwrap();
            prop_assert_eq!(&*acknowledged, &confirmed);
            prop_assert_eq!(count, confirmed.len() as u64);
            prop_assert!(!confirmed.is_empty() && confirmed.is_sorted_by(|a, b| a.offset < b.offset));
            let is_inside = |at: &StoredPosition| ends.iter().any(|one| one.0 < at.offset && at.offset < one.1);
            prop_assert!(!confirmed.iter().any(is_inside));
            // The last one is acknowledged, too.
            prop_assert!(confirmed.last().unwrap().offset >= ends.last().unwrap().1);
            prop_assert!(stored == log[4..]);
        }
    }
}
