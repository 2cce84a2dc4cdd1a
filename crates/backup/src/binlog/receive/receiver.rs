//! Receives a server's binary log, and stores it: one stream for each connection, for as long as nothing
//! cancels it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, OptionFuture};
use futures::stream::{FuturesOrdered, FuturesUnordered};
use futures::{FutureExt as _, StreamExt as _};
use tokio::time::{Instant, MissedTickBehavior};
use xb_compressor::Algorithm;
use xb_encryptor::KeySlots;
use xb_mysql::Access;
use xb_repo::archive::ended::{self, EndedStream, STREAMS_AT_ONCE};
use xb_repo::archive::newest::{last_stored, outlines, stream_head};
use xb_repo::archive::record::Record;
use xb_repo::archive::rollup::RollUp;
use xb_repo::archive::segment::SegmentHead;
use xb_repo::archive::stream::{Link, StoredPosition, StreamHead, StreamOrigin};
use xb_repo::root::Root;

use crate::archive_error::ArchiveError;
use crate::binlog::archive::state::StateFile;
use crate::binlog::overlap::start::Start;
use crate::binlog::receive::clock;
use crate::binlog::receive::logless_period::LoglessPeriod;
use crate::binlog::receive::next_start::{NextStart, StreamBreak};
use crate::binlog::receive::notice::{Notice, Tell};
use crate::binlog::receive::segmenter::segment_size;
use crate::binlog::receive::session::{
    Acknowledge, Message, Receiving, Server, connect, receive as receive_log,
};
use crate::binlog::receive::sources::Sources;
use crate::binlog::receive::unconfirmed_fault::{UnconfirmedFault, UnreadableLogs};
use crate::binlog::receive::watch::{FoundSettings, Watch};
use crate::binlog::receive::writer::{PackedSegment, StreamWriter};
use crate::binlog::source::log_request::LogRequest;
use crate::binlog::source::semi_sync::{self, Claim, TimedSample};
use crate::error::BackupError;
use crate::session::Session;

/// Segments that are stored at once, and roll-ups.
const IN_FLIGHT: usize = 4;
/// Seconds between two signs of life.
const ALIVE: u64 = 30;
/// The same of a server that waits and is asked for its counters: one follows each answer, or the next tick if there is
/// none.
const ALIVE_WAITING: u64 = 5;
/// Shortest and longest pause between two looks at the servers.
const LOOKS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];
/// Time limit for storing what was received before the receiver was cancelled.
const FINISH: Duration = Duration::from_secs(30);
/// Time limit for the records that end a stream.
const END_RECORDS_LIMIT: Duration = Duration::from_secs(10);
/// Most bytes of ended streams that wait for others to share a roll-up.
const MOST_ENDED: usize = 4 << 20;
/// The longest pause between two connections, in seconds.
const LONGEST_PAUSE: u64 = 30;
/// Why the commits of a server that lacks the marks of semi-synchronous replication do not wait.
const DECLINED: &str = "the server requests no acknowledgements on this connection; restart the receiver once semi-synchronous replication is on";

/// Request of a receiver.
#[derive(Debug)]
pub struct ReceiveRequest {
    /// Where the server is, and as whom to log in; with several, those that have the same data. One of them is received
    /// from: the one that the archive is of, then another one that is not read-only.
    pub servers: Vec<Access>,
    /// How long that one may be away before another one is taken.
    pub patience: Duration,
    /// How it is archived.
    pub archive: ArchiveSettings,
    /// Has the server wait with each commit until it is stored, by semi-synchronous replication. While commits follow each
    /// other without end, an object is begun for each such time.
    pub acknowledge: Option<Duration>,
}

/// How a log is archived.
#[derive(Debug)]
pub struct ArchiveSettings {
    /// Name of the server in the repository.
    pub server: String,
    /// Key slots of each stream; none: the archive is not sealed.
    pub key_slots: KeySlots,
    /// Codec of the segments.
    pub compress: Algorithm,
    /// The longest time that a received byte waits before it is sent to the store.
    pub rpo: Duration,
    /// Folder in which the receiver remembers its last segment.
    pub state: Option<PathBuf>,
    /// Also receives logs without checksums.
    pub accept_no_crc: bool,
}

/// Receives until it is cancelled.
///
/// # Errors
/// Errors that no other try can mend: an account without the privilege, a server without binary log, an object of
/// another writer. A server or a store that is away is no error, but a [`Notice`].
pub async fn receive(
    session: &Session,
    request: &ReceiveRequest,
    tell: impl Fn(Notice) + Send + Sync + 'static,
) -> Result<(), BackupError> {
    let mut receiver = Receiver::new(session, &request.archive, Arc::new(tell));
    let mut sources = Sources::new(&request.servers, request.patience);
    receiver.patience = sources.patience();
    let mut pause = 1;
    let mut fork = None;
    // Where a log ended too early the last time, and whether the history differed.
    let (mut cut, mut has_differed) = (UnconfirmedFault::default(), false);
    let mut unread = UnreadableLogs::default();
    while session.cancel.reason().is_none() {
        let differed = matches!(fork, Some(StreamBreak::Differs(_)));
        let is_behind = matches!(fork, Some(StreamBreak::Cut { .. }));
        let (stored, outcome) = match receiver.source(&mut sources).await {
            Ok(None) => return Ok(()),
            Ok(Some((access, is_new))) => {
                if is_new {
                    // What is known of the logs is that of another server.
                    (fork, cut, has_differed) = (None, UnconfirmedFault::default(), false);
                    unread = UnreadableLogs::default();
                }
                receiver.waiting = request.acknowledge.map(|each| (access.clone(), each));
                receiver.others = sources.others(access);
                receiver.stream(access, fork.take()).await
            }
            Err(error) => {
                // It is found again, if it is still so.
                fork = None;
                (false, Err(error))
            }
        };
        if sources.has_unlogged() {
            receiver.unlogged.note()?;
        }
        let outcome = match outcome {
            Err(ArchiveError::NoLog) if receiver.unlogged.note()? => Err(ArchiveError::Unlogged),
            other => other,
        };
        if stored {
            // Of a log that is damaged, the same is sent again and again.
            if !is_behind {
                pause = 1;
            }
            sources.has_stored();
        }
        has_differed &= matches!(outcome, Err(ArchiveError::Differs(_)));
        let error = match outcome {
            Ok(()) => return Ok(()),
            // If another connection finds the same, the next stream is a branch, or another server has to show that it has
            // the archive's history. A packet that was damaged on its way is no other history.
            Err(ArchiveError::Differs(what)) if !stored && !differed => {
                // The words of two connections differ if another receiver has stored something meanwhile.
                if std::mem::replace(&mut has_differed, true) {
                    has_differed = false;
                    fork = Some(StreamBreak::Differs(what));
                    continue;
                }
                ArchiveError::Differs(what)
            }
            // The server's own logs lack something: what follows is received behind a gap.
            Err(ArchiveError::Log(error @ xb_binlog::Error::History { .. })) => {
                if let xb_binlog::Error::History { log, .. } = &error {
                    fork = Some(StreamBreak::Hole { log: log.clone(), reason: error.to_string() });
                }
                continue;
            }
            Err(error @ ArchiveError::AnotherLog { .. }) => {
                if let ArchiveError::AnotherLog { log } = &error {
                    fork = Some(StreamBreak::Hole { log: log.clone(), reason: error.to_string() });
                }
                continue;
            }
            // Those after it are received: the server begins a log whenever its gtid_mode changes.
            Err(error @ ArchiveError::Anonymous { .. }) => {
                if let ArchiveError::Anonymous { log } = &error {
                    fork = Some(StreamBreak::Cut { log: log.clone(), reason: error.to_string() });
                }
                error
            }
            // The next stream has them.
            Err(ArchiveError::Changed(what)) => {
                (receiver.tell)(Notice::Changed(what));
                continue;
            }
            Err(error) if error.is_passing() => error,
            Err(error) => return Err(error.into()),
        };
        if let ArchiveError::Cut { log, offset, .. } = &error {
            // Repeated events are no fault of the connection. Events between the last transaction and the cut, such
            // as the beginning of the log, are stored each time.
            if cut.is_found_again(format!("{log}:{offset}")) {
                fork = Some(StreamBreak::Cut { log: log.clone(), reason: error.to_string() });
            }
        }
        if let Some(log) = unread.lasting(&error, is_behind, Instant::now()) {
            fork = Some(StreamBreak::Cut { log, reason: error.to_string() });
        }
        if fork.is_none() {
            (receiver.tell)(Notice::Disconnected(error.to_string()));
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(pause)) => {}
            _ = session.cancel.cancelled() => {}
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    Ok(())
}

/// Archives what one connection after the other sends.
pub(super) struct Receiver<'a> {
    session: &'a Session,
    settings: &'a ArchiveSettings,
    tell: Tell,
    state: Option<StateFile>,
    /// The server that waits for what is stored, and the time for which an object counts.
    waiting: Option<(Access, Duration)>,
    /// Servers that may take the place of the one that is received from.
    others: Vec<Access>,
    /// How long to wait for a server that lacks stored transactions; for ever if there is no other one.
    patience: Option<Duration>,
    /// Digest of the head of the last segment that this process has stored.
    stored: Mutex<Option<String>>,
    /// Streams that have ended, and are in no roll-up yet.
    ended: Mutex<Vec<EndedStream>>,
    unlogged: LoglessPeriod,
    /// The settings for which the next stream begins.
    found: Mutex<Option<FoundSettings>>,
    /// A new archive may begin, although this host remembers one.
    pub(super) may_begin_anew: bool,
}

/// Why a stream ends.
enum StreamEnd {
    /// The connection has ended.
    Connection,
    Cancelled,
    /// Another server is the one to receive from.
    Moved(ArchiveError),
    /// The stream's head does not say what the server is any more.
    Changed(ArchiveError),
}

/// A segment, or a question behind it.
enum ReceiveStep {
    Stored(PackedSegment),
    Confirm(std::sync::mpsc::SyncSender<StoredPosition>),
}

impl<'a> Receiver<'a> {
    pub(super) fn new(session: &'a Session, settings: &'a ArchiveSettings, tell: Tell) -> Self {
        let folder = settings.state.as_ref();
        let state = folder.map(|folder| StateFile::new(folder, &session.root, &settings.server));
        let (waiting, others, patience) = (None, Vec::new(), None);
        let ended = state.as_ref().map(StateFile::read_ended).unwrap_or_default();
        let (stored, ended) = (Mutex::new(None), Mutex::new(ended));
        let (unlogged, found) = (LoglessPeriod::new(state.clone()), Mutex::new(None));
        Self {
            session,
            settings,
            tell,
            state,
            waiting,
            others,
            patience,
            stored,
            ended,
            unlogged,
            found,
            may_begin_anew: false,
        }
    }

    fn root(&self) -> &Root {
        &self.session.root
    }

    /// Where to receive from, and whether that is another place than before; `None` if this is cancelled.
    async fn source<'s>(
        &self,
        sources: &mut Sources<'s>,
    ) -> Result<Option<(&'s Access, bool)>, ArchiveError> {
        let choosing = async {
            let of = match sources.patience() {
                Some(_) => self.newest().await?,
                None => None,
            };
            self.unlogged.remember(of.is_some())?;
            let of = of.as_ref().map(|of| &of.content);
            sources.choose(of, !self.settings.accept_no_crc).await.map(Some)
        };
        tokio::select! {
            chosen = choosing => chosen,
            _ = self.session.cancel.cancelled() => Ok(None),
        }
    }

    /// The head of the stream with the end of the archive.
    async fn newest(&self) -> Result<Option<Record<StreamHead>>, ArchiveError> {
        let (root, server) = (self.root(), self.settings.server.as_str());
        match last_stored(root, server).await? {
            Some(last) => Ok(stream_head(root, server, &last.content.stream).await?),
            None => Ok(None),
        }
    }

    /// One connection and its stream; returns whether it stored anything.
    async fn stream(
        &self,
        access: &Access,
        fork: Option<StreamBreak>,
    ) -> (bool, Result<(), ArchiveError>) {
        let begun = tokio::select! {
            begun = self.begin(access, fork) => begun,
            _ = self.session.cancel.cancelled() => return (false, Ok(())),
        };
        let mut stored = false;
        let outcome = match begun {
            Ok(begun) => {
                let watch = Watch::new(access, &begun.0, &self.others, self.patience);
                self.run(begun, watch, &mut stored).await
            }
            Err(error) => Err(error),
        };
        (stored, outcome)
    }

    /// Archives what is received, until that ends with an error, or this is cancelled.
    pub(super) async fn run(
        &self,
        (server, start, mut receiving): (Server, Start, Receiving),
        watch: Watch,
        stored: &mut bool,
    ) -> Result<(), ArchiveError> {
        // Nothing is written before the server has shown that its history is the archive's, and that it has
        // something to say.
        let first = tokio::select! {
            message = first(&mut receiving) => message,
            _ = self.session.cancel.cancelled() => return stopped(receiving).await,
        };
        let Some(first) = first else { return Err(ended(receiving).await) };
        if let Message::Segment(cut) = &first
            && start.made.is_some_and(|made| cut.log_made() != Some(made))
        {
            ended(receiving).await;
            return Err(ArchiveError::AnotherLog { log: start.at.log.to_string() });
        }
        let writer = StreamWriter::begin(
            self.root(),
            &self.settings.server,
            &server,
            &start,
            &self.settings.key_slots,
            self.settings.compress,
            self.session.resources.threads,
            Arc::clone(&self.tell),
        );
        // A head alone would look like a stream that has lost its segments, so it gets time to be ended.
        let too_late = async {
            self.session.cancel.cancelled().await;
            tokio::time::sleep(END_RECORDS_LIMIT).await;
        };
        let mut writer = tokio::select! {
            writer = writer => writer?,
            () = too_late => return stopped(receiving).await,
        };
        (self.tell)(begins(&writer, &start));
        let storing =
            self.store_all(&mut writer, &mut receiving, first, (&server, watch), &start.begins);
        let outcome = storing.await;
        *stored = writer.stored().segments > 0;
        let why = ended(receiving).await;
        let end = outcome?;
        if let (StreamEnd::Connection, ArchiveError::Cut { .. }) = (&end, &why) {
            writer.is_in_trouble(why.to_string());
        }
        // Stored segments are whole, however the connection ended.
        let last_words = async {
            let alive = match end {
                StreamEnd::Moved(_) => None,
                _ => Some(writer.write_alive().await?),
            };
            let end = writer.end().await?;
            if let Some(alive) = alive {
                self.has_ended(&writer, writer.ended(&alive, &end)).await?;
            }
            Ok::<_, ArchiveError>(())
        };
        match tokio::time::timeout(END_RECORDS_LIMIT, last_words).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.away(&error),
            Err(_) => (self.tell)(Notice::StoreAway("the store does not respond".to_owned())),
        }
        match end {
            StreamEnd::Cancelled => Ok(()),
            StreamEnd::Connection => Err(why),
            StreamEnd::Moved(why) | StreamEnd::Changed(why) => Err(why),
        }
    }

    /// The end of the stream that an earlier process of this host has stored: it may have been killed.
    fn killed(&self, begins: &StreamOrigin) -> Option<Link> {
        let after = begins.after()?;
        let stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        let ours = self.state.as_ref().filter(|_| stored.is_none())?.read().ok()??;
        (ours.content.stream == after.stream).then(|| after.clone())
    }

    /// Collects streams that have ended, so that many of them are read with one request. A receiver that is started again
    /// and again stores as many.
    async fn has_ended(
        &self,
        writer: &StreamWriter,
        stream: EndedStream,
    ) -> Result<(), ArchiveError> {
        let (full, left) = {
            let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
            ended.push(stream);
            let len: usize = ended.iter().map(EndedStream::len).sum();
            let is_full = ended.len() >= STREAMS_AT_ONCE || len > MOST_ENDED;
            let full = if is_full { std::mem::take(&mut *ended) } else { Vec::new() };
            (full, ended::encode(&ended))
        };
        writer.roll_up_ended(&self.settings.server, &full).await;
        match &self.state {
            Some(state) => state.write_ended(&left),
            None => Ok(()),
        }
    }

    /// Connects, and asks for what follows the archive.
    async fn begin(
        &self,
        access: &Access,
        fork: Option<StreamBreak>,
    ) -> Result<(Server, Start, Receiving), ArchiveError> {
        let last = self.last_known().await?;
        self.unlogged.remember(last.is_some())?;
        let needs_checksums = !self.settings.accept_no_crc;
        let (access, again) = (access.clone(), access);
        let must_wait = self.waiting.is_some();
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (client, mut server, missing) = tokio::task::spawn_blocking(move || {
            let (mut client, server) = connect(&access, needs_checksums)?;
            let missing = match must_wait {
                true => semi_sync::missing(&mut client)?,
                false => None,
            };
            Ok::<_, ArchiveError>((client, server, missing))
        })
        .await
        .map_err(|_| ArchiveError::Bug("the thread that connects panicked"))??;
        // It had them when they were found, and may have logged much since.
        if let Some(found) = found.filter(|found| found.settings == server.settings) {
            server.settings_at = Some((&found.at).into());
        }
        if let Some(what) = clock::differs(server.ahead) {
            (self.tell)(Notice::ClocksDiffer(what));
        }
        for doubt in &server.doubts {
            (self.tell)(Notice::Doubtful(doubt.clone()));
        }
        match missing {
            None => {}
            // A gap in an archive is worse than commits that do not wait for it.
            Some(what) if last.is_some() => (self.tell)(Notice::NotWaiting(what.to_owned())),
            Some(what) => return Err(ArchiveError::NoSemiSync(what.to_owned())),
        }
        // Another replica with the same number would end this connection, and this one its.
        let request = self.log_request()?;
        let next = NextStart {
            root: self.root(),
            name: &self.settings.server,
            access: again,
            needs_checksums,
            request,
            patience: self.patience,
            tell: &self.tell,
            cancel: &self.session.cancel,
        };
        let (client, server, start) = next.find(client, server, last, fork).await?;
        let start = self.unlogged.behind(start, &server.logs, (again, request)).await?;
        let (begun, acknowledge) = (start.clone(), self.acknowledge(&start));
        let receiving =
            tokio::task::spawn_blocking(move || receive_log(client, &begun, request, acknowledge));
        let receiving =
            receiving.await.map_err(|_| ArchiveError::Bug("the thread that asks panicked"))??;
        Ok((server, start, receiving))
    }

    fn log_request(&self) -> Result<LogRequest, ArchiveError> {
        let (age, needs_checksums) = (self.settings.rpo, !self.settings.accept_no_crc);
        let size = segment_size(self.session.resources.memory);
        let each = self.waiting.as_ref().map_or(Duration::ZERO, |(_, each)| *each);
        Ok(LogRequest { server_id: replica_id()?, age, size, each, needs_checksums })
    }

    /// How a server is answered on a stream that begins so.
    fn acknowledge(&self, start: &Start) -> Acknowledge {
        let stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        match (&self.waiting, &start.begins) {
            (None, _) => Acknowledge::No,
            (_, StreamOrigin::Continues { after, .. }) if stored.as_ref() == Some(&after.head) => {
                Acknowledge::Known
            }
            _ => Acknowledge::New,
        }
    }

    /// Stores what is received until the connection ends; returns why it did.
    async fn store_all(
        &self,
        writer: &mut StreamWriter,
        receiving: &mut Receiving,
        first: Message,
        (server, mut watch): (&Server, Watch),
        begins: &StreamOrigin,
    ) -> Result<StreamEnd, ArchiveError> {
        let mut flying: FuturesOrdered<_> = FuturesOrdered::new();
        // No acknowledgement waits for them.
        let mut rolling: FuturesUnordered<_> = FuturesUnordered::new();
        if let Some(killed) = self.killed(begins) {
            rolling.push(writer.roll_up_killed(&self.settings.server, killed).boxed());
        }
        // MySQL does not count what would show that every commit waits.
        let to_ask = self.waiting.as_ref().filter(|_| server.uuid.is_none());
        let pause = if to_ask.is_some() { ALIVE_WAITING } else { ALIVE };
        let mut ticks = tokio::time::interval(Duration::from_secs(pause));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // A store that is away must not hold up what is stored meanwhile.
        let mut alive: OptionFuture<_> = None.into();
        let mut asked: OptionFuture<BoxFuture<'_, (Option<TimedSample>, u64)>> = None.into();
        let mut claim = Claim::default();
        let (mut was_asked, mut is_asking) = (false, false);
        let (mut is_due, mut is_writing, mut is_declined) = (false, false, false);
        let (mut first, mut is_open, mut is_over) = (Some(first), true, false);
        let mut end = StreamEnd::Connection;
        let [shortest, longest] = LOOKS;
        let mut looks = tokio::time::interval(self.settings.rpo.clamp(shortest, longest));
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut uncovered = None;
        let patience = tokio::time::sleep(Duration::MAX);
        tokio::pin!(patience);
        while is_open || !flying.is_empty() || !rolling.is_empty() {
            tokio::select! {
                _ = self.session.cancel.cancelled(), if !is_over => end = StreamEnd::Cancelled,
                moved = watch.next(), if !is_over => {
                    match moved {
                        Ok(()) => {}
                        Err(why @ ArchiveError::Changed(_)) => {
                            *self.found.lock().unwrap_or_else(PoisonError::into_inner) = watch.found();
                            end = StreamEnd::Changed(why);
                        }
                        Err(why) => end = StreamEnd::Moved(why),
                    }
                }
                _ = looks.tick(), if !is_over => watch.begin(writer.stored().position.position()),
                () = &mut patience, if is_over => {
                    let what = "not everything that was received could be stored; the server will send it again";
                    (self.tell)(Notice::StoreAway(what.to_owned()));
                    break;
                }
                Some(done) = flying.next(), if !flying.is_empty() => {
                    for rollup in self.done(writer, done?)? {
                        rolling.push(writer.roll_up(rollup).boxed());
                    }
                }
                Some(()) = rolling.next(), if !rolling.is_empty() => {}
                message = next(&mut first, receiving),
                    if is_open && flying.len() < IN_FLIGHT && rolling.len() < IN_FLIGHT =>
                {
                    match message {
                        Some(Message::Segment(cut)) => {
                            let packed = writer.pack(*cut).await?;
                            let storing = writer.store(packed);
                            flying.push_back(async move { storing.await.map(ReceiveStep::Stored) }.boxed());
                        }
                        Some(Message::Confirm(stored)) => {
                            flying.push_back(async move { Ok(ReceiveStep::Confirm(stored)) }.boxed());
                        }
                        Some(Message::Begun | Message::Idle) => {}
                        None => is_open = false,
                    }
                }
                Some(written) = &mut alive => {
                    alive = None.into();
                    is_writing = false;
                    match written {
                        Ok(_) => (self.tell)(Notice::Alive),
                        Err(error) => self.away(&error),
                    }
                }
                Some((found, before)) = &mut asked => {
                    asked = None.into();
                    (is_asking, is_due) = (false, true);
                    let after = receiving.flags.acknowledged.load(Ordering::Relaxed);
                    let found = found.filter(|_| !is_declined && !watch.is_of_replica());
                    let interval = claim.take(found, (before, after));
                    writer.claim(interval);
                    // At first, a server does not wait before it has sent everything.
                    if std::mem::replace(&mut was_asked, true) || interval.is_some() {
                        (self.tell)(Notice::Acknowledged(interval));
                    }
                }
                _ = ticks.tick(), if !is_over => match to_ask {
                    Some((access, _)) if !is_asking => {
                        is_asking = true;
                        let before = receiving.flags.acknowledged.load(Ordering::Relaxed);
                        let asking = ask(access.clone(), server.write_access.who.clone(), before);
                        asked = Some(asking.boxed()).into();
                    }
                    // A slow server gets the time that it needs. What is claimed already stays true.
                    _ => is_due = true,
                },
            }
            if !is_over && !matches!(end, StreamEnd::Connection) {
                is_over = true;
                patience.as_mut().reset(Instant::now() + FINISH);
                // The thread passes on what it has, and ends.
                receiving.hang_up();
            }
            if !matches!(end, StreamEnd::Moved(_))
                && let Some(until) = watch.covered(writer.stored().position.position())
            {
                writer.cover(until);
                (self.tell)(Notice::Covered(until));
            }
            if watch.why() != uncovered.as_ref() {
                uncovered = watch.why().cloned();
                (self.tell)(Notice::Uncovered(uncovered.clone()));
            }
            if matches!(end, StreamEnd::Moved(_)) {
                is_due = false;
            }
            // So does a slow store.
            if std::mem::take(&mut is_due) && !std::mem::replace(&mut is_writing, true) {
                alive = Some(Box::pin(writer.write_alive())).into();
            }
            if !is_declined && receiving.flags.is_declined.load(Ordering::Relaxed) {
                is_declined = true;
                (self.tell)(Notice::NotWaiting(DECLINED.to_owned()));
            }
        }
        Ok(end)
    }

    /// Notes what is stored. Returns the roll-ups that it completes.
    fn done(
        &self,
        writer: &mut StreamWriter,
        done: ReceiveStep,
    ) -> Result<Vec<RollUp>, ArchiveError> {
        match done {
            ReceiveStep::Stored(packed) => {
                let rollups = writer.advance(&packed);
                if let Some(state) = &self.state {
                    state.write(&packed.record)?;
                }
                self.unlogged.has_stored()?;
                let mut stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
                *stored = Some(packed.digest.clone());
                drop(stored);
                let (position, until) = (packed.to.to_string(), packed.until);
                (self.tell)(Notice::Stored { position, until });
                if let Some(barrier) = packed.barrier {
                    let (stream, at) = (writer.id().to_string(), barrier.at.to_string());
                    (self.tell)(Notice::Barrier { stream, at, what: barrier.meaning() });
                }
                return Ok(rollups);
            }
            // The thread may have ended.
            ReceiveStep::Confirm(stored) => drop(stored.send(writer.stored().position.clone())),
        }
        Ok(Vec::new())
    }

    /// The last stored segment: that which this host remembers, if it is there. An archive of which nothing is left, as where a
    /// disk is not mounted, does not begin anew: all that was stored would be received again, if the server still had it.
    pub(super) async fn last_known(&self) -> Result<Option<Record<SegmentHead>>, ArchiveError> {
        let stored = async || Ok(last_stored(self.root(), &self.settings.server).await?);
        let Some(state) = &self.state else { return stored().await };
        let Some(ours) = state.read()? else { return stored().await };
        let head = &ours.content;
        let digest = ours.digest.to_string();
        let is_there = xb_repo::archive::listing::is_stored(
            self.root(),
            &self.settings.server,
            &head.stream,
            head.number,
            &digest,
        );
        match is_there.await? {
            true => Ok(Some(ours)),
            false => {
                let (server, last) = (self.settings.server.clone(), head.to.to_string());
                if !self.may_begin_anew && outlines(self.root(), &server).await?.is_empty() {
                    return Err(ArchiveError::Gone { server, last });
                }
                let what = format!(
                    "segment {} of stream {}, up to {}, is missing or was changed",
                    head.number, head.stream, head.to
                );
                (self.tell)(Notice::Lost(what));
                stored().await
            }
        }
    }

    fn away(&self, error: &ArchiveError) {
        (self.tell)(Notice::StoreAway(error.to_string()));
    }
}

/// A `server_id` for the receiver, which no other replica has.
fn replica_id() -> Result<u32, ArchiveError> {
    let number: [u8; 4] = xb_encryptor::new_stream_id()?
        .first_chunk()
        .copied()
        .ok_or(ArchiveError::Bug("a short ID"))?;
    Ok(u32::from_le_bytes(number) | 1 << 31)
}

/// Asks the server for its counters, when this number of acknowledgements has been sent. What cannot be asked is not known.
async fn ask(
    access: Access,
    who: BTreeMap<String, String>,
    before: u64,
) -> (Option<TimedSample>, u64) {
    let asking = tokio::task::spawn_blocking(move || TimedSample::of(&access, &who)).await;
    (asking.ok().and_then(Result::ok).flatten(), before)
}

fn begins(writer: &StreamWriter, start: &Start) -> Notice {
    Notice::Begins {
        stream: writer.id().to_string(),
        at: start.at.to_string(),
        begins: start.begins.clone(),
    }
}

/// The first message behind what the archive has; `None` if the connection ends before.
async fn first(receiving: &mut Receiving) -> Option<Message> {
    match receiving.messages.recv().await {
        Some(Message::Begun) => receiving.messages.recv().await,
        other => other,
    }
}

async fn next(first: &mut Option<Message>, receiving: &mut Receiving) -> Option<Message> {
    match first.take() {
        Some(message) => Some(message),
        None => receiving.messages.recv().await,
    }
}

/// Ends the connection, and says why it ended by itself, if so.
async fn ended(receiving: Receiving) -> ArchiveError {
    let joined = tokio::task::spawn_blocking(move || receiving.join()).await;
    joined.unwrap_or(ArchiveError::Bug("the thread that joins panicked"))
}

async fn stopped(receiving: Receiving) -> Result<(), ArchiveError> {
    ended(receiving).await;
    Ok(())
}
