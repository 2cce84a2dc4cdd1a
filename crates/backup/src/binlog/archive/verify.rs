//! Lists an archive, and verifies it: chain, seal, checksums of every event, and continuity from every backup.
// Long because a report puts together what the records, the events and the backups show.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use xb_binlog::{GtidState, History, LogDigest, LogPosition, SentReader};
use xb_encryptor::{DataKey, Keys};
use xb_repo::archive::authority::Keyless;
use xb_repo::archive::base::{Base, BasePosition};
use xb_repo::archive::followed::unfollowed;
use xb_repo::archive::listing::{ListedStream, streams, streams_by_records};
use xb_repo::archive::plan::{Histories, Piece, PlanError, Stream, are_apart, holders};
use xb_repo::archive::segment::SegmentHead;
use xb_repo::archive::stop::RestoreStop;
use xb_repo::manifest::Manifest;
use xb_repo::names::BackupName;
use xb_repo::resolve::KnownManifests;

use crate::binlog::archive::lent_streams::with_streams;
use crate::binlog::archive::open::{OpenedStream, Readable, StreamKeys, open};
use crate::binlog::archive::pieces::NeededSegment;
use crate::binlog::archive::prune::edge;
use crate::binlog::archive::read::fetch_segment;
use crate::binlog::archive::same_log;
use crate::binlog::archive::stream_report::{StreamReport, stream_report};
use crate::binlog::archive::tail::{HostNotes, host_notes, tail};
use crate::error::BackupError;
use crate::session::Session;

/// The archive of a server.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct ArchiveReport {
    /// Name of the server.
    pub server: String,
    /// Its streams, in the order in which they began.
    pub streams: Vec<StreamReport>,
    /// Restorable times, for each backup that notes its position.
    pub backups: Vec<Window>,
    /// Places where logs are lost, if that limits what a backup can be restored to, or if no backup is newer.
    pub gaps: Vec<String>,
    /// Places where logs are lost that no backup needs.
    pub past_gaps: Vec<String>,
    /// Transactions of other servers that the present history lacks, as texts: a failover has left them.
    pub stranded: Vec<String>,
    /// Faults of the archive itself, beside the streams.
    pub problems: Vec<String>,
    /// Backups of any server whose manifests cannot be read, and why: whether the archive reaches on from them is unknown.
    pub unreadable: Vec<String>,
    /// Whether the events were read.
    pub verified: bool,
}

impl ArchiveReport {
    /// Returns whether nothing is damaged, missing or altered, as far as it could be read.
    #[must_use]
    pub fn is_undamaged(&self) -> bool {
        self.problems.is_empty() && self.streams.iter().all(StreamReport::is_undamaged)
    }

    /// Returns whether logs are lost, or a backup that the archive knows does not reach its end. A backup from before
    /// the archive is no gap.
    #[must_use]
    pub fn has_gap(&self) -> bool {
        !self.gaps.is_empty() || self.backups.iter().any(Window::is_cut)
    }
}

/// Restorable times of a backup.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Window {
    /// Name of the backup.
    pub backup: String,
    /// Its position.
    pub position: String,
    /// Whether the archive has its position.
    pub archived: bool,
    /// Time of its data.
    pub from: Timestamp,
    /// Position up to which it can be restored.
    pub to: Option<String>,
    /// Everything up to this time can be restored.
    pub until: Option<Timestamp>,
    /// Why it cannot be restored to the end of the archive, or why that end is not known.
    pub problem: Option<String>,
    /// It reaches the end of what is stored.
    #[serde(skip)]
    is_whole: bool,
    /// Its log was removed.
    #[serde(skip)]
    is_removed: bool,
    /// The present history is another one.
    #[serde(skip)]
    is_branch: bool,
}

/// Lists the archive of a server by its records. `known` has the manifests that were read for the server before.
///
/// # Errors
/// [`BackupError::Repo`] if the store cannot be read.
pub async fn list_archive(
    session: &Session,
    server: &str,
    known: &mut KnownManifests,
) -> Result<ArchiveReport, BackupError> {
    let mut found = streams(&session.root, server, &Keyless).await?;
    known.refresh(&session.root).await?;
    let backups = backups(known, server, &mut found);
    let looked = found.into_iter().map(CheckedStream::unread).collect();
    report(session, server, looked, (backups, None), &noted(known), &HostNotes::default()).await
}

/// The digests of the logs of all backups.
fn noted(known: &KnownManifests) -> NotedLogs {
    let noted = known.iter().filter_map(|(name, of)| Some((name.clone(), same_log::noted(of)?)));
    noted.collect()
}

/// Backups against which an archive is verified.
#[derive(Debug, Clone, Copy)]
pub struct ArchiveFacts<'a> {
    /// Keys of its streams. If there are any, every stream has to be sealed, and authentic.
    pub keys: &'a Keys,
    /// Folder in which its receiver remembers its last segment.
    pub state: Option<&'a Path>,
    /// How long logs are kept at most ([`Keep::binlog_within`](crate::Keep::binlog_within)).
    pub kept_within: Option<Duration>,
}

/// Verifies the archive of a server: everything that [`list_archive`] shows, the seal, and each event of
/// each segment.
///
/// # Errors
/// [`BackupError::Repo`] if the store cannot be read; [`BackupError::Keys`] if the keys open no stream.
pub async fn verify_archive(
    session: &Session,
    server: &str,
    facts: ArchiveFacts<'_>,
    known: &mut KnownManifests,
) -> Result<ArchiveReport, BackupError> {
    let ours = host_notes(&session.root, server, facts.state)?;
    let own = StreamKeys::new(facts.keys, session);
    let mut found = streams_by_records(&session.root, server, &own).await?;
    known.refresh(&session.root).await?;
    let backups = backups(known, server, &mut found);
    let bases = backups.0.iter().filter_map(|(_, base)| base.as_ref().ok());
    let wanted: HashSet<LogPosition> = bases.map(|base| base.position.clone()).collect();
    let mut looked = Vec::new();
    for found in found {
        looked.push(verify_stream(session, server, found, (&own, &wanted)).await?);
    }
    own.check()?;
    report(session, server, looked, (backups, Some(facts)), &noted(known), &ours).await
}

/// What the bytes of logs show of backups.
#[derive(Default)]
struct ComparedLogs {
    /// The backups whose log has other bytes than the archived one with their position, as texts: those of a copy of the server that
    /// was started, or of one that went back to an earlier state.
    of_others: Vec<String>,
    /// Those whose log is that of a history, though their times lead to another one.
    shown: BTreeSet<BackupName>,
}

async fn compared_logs(
    session: &Session,
    server: &str,
    histories: &Histories<'_>,
    keys: &HashMap<String, Option<Arc<DataKey>>>,
    (backups, noted): (&Backups, &NotedLogs),
) -> Result<ComparedLogs, BackupError> {
    let mut found = ComparedLogs::default();
    for (name, base) in &backups.0 {
        let (Ok(base), Some((at, digest))) = (base, noted.get(name)) else { continue };
        if *at != base.position {
            continue;
        }
        // Of several histories, the bytes tell which one is meant.
        let (mut is_of_other, mut is_planned) = (None, false);
        for is_shown_by_bytes in [false, true] {
            let base = Base { is_shown_by_bytes, ..base.clone() };
            let plan = histories.plan(&base, &RestoreStop::Latest);
            let Some(first) = plan.ok().and_then(|plan| plan.pieces.first().copied()) else {
                continue;
            };
            is_planned |= !is_shown_by_bytes;
            let needed = |piece: &Piece<'_>| NeededSegment {
                segment: piece.segment.clone(),
                key: keys.get(piece.stream).cloned().flatten(),
                until: piece.until,
                server: 0,
                repeats: None,
            };
            let log = histories.log_up_to(&first);
            // The stream's own problems say why it cannot be read.
            if !log.iter().all(|piece| keys.contains_key(piece.stream)) {
                continue;
            }
            let log = log.iter().map(needed).collect();
            match same_log::is_same(session, server, log, at.offset(), digest).await? {
                // A backup of a left history is no damage: its bytes only acquit one.
                Some(false) if is_planned => is_of_other = is_of_other.or(Some(first.stream)),
                Some(false) => {}
                Some(true) => {
                    if is_shown_by_bytes {
                        found.shown.insert(name.clone());
                    }
                    is_of_other = None;
                    break;
                }
                None => {}
            }
        }
        if let Some(stream) = is_of_other {
            found.of_others.push(format!(
                "backup {name}: the log {} in stream {stream} is not that of the backup: it has other bytes",
                at.log()
            ));
        }
    }
    Ok(found)
}

/// A stream, and what its events show.
struct CheckedStream {
    found: ListedStream,
    /// A text that says what is wrong with it.
    problems: Vec<String>,
    /// The positions of backups that are ends of events in it.
    met: HashMap<LogPosition, EventsBefore>,
    /// Segments whose events could not be read.
    unread: BTreeSet<u64>,
    /// The keys do not open it.
    is_locked: bool,
    /// It is not sealed, although a key was given: a text that says so.
    unsealed: Option<String>,
    /// Those of the problems that say no more than that segments are missing.
    lacking: Vec<String>,
    /// Its key, if it is sealed and was opened.
    key: Option<Arc<DataKey>>,
}

/// Facts from the events up to the position of a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
struct EventsBefore {
    is_inside: bool,
    gtids: Option<GtidState>,
}

async fn verify_stream(
    session: &Session,
    server: &str,
    mut found: ListedStream,
    (own, wanted): (&StreamKeys<'_>, &HashSet<LogPosition>),
) -> Result<CheckedStream, BackupError> {
    let opened = open(&mut found, server, own)?;
    let is_locked = matches!(opened, OpenedStream::Locked(_));
    // `prune` has removed what the key would open.
    let is_gone =
        found.sizes.is_empty() && found.stream.as_ref().is_some_and(|of| of.floor.is_some());
    if is_locked && is_gone {
        return Ok(CheckedStream::unread(found));
    }
    let (key, unsealed) = match opened.readable(own.keys()) {
        Readable::Segments(key, wrong) => (key, wrong),
        Readable::Nothing(why) => {
            let is_new = |what: &String| found.problems.iter().all(|known| known.what != *what);
            let problems = why.into_iter().filter(is_new).collect();
            return Ok(CheckedStream { problems, is_locked, ..CheckedStream::unread(found) });
        }
    };
    let mut problems = Vec::new();
    let Some(stream) = &found.stream else { return Ok(CheckedStream::unread(found)) };
    let (pieces, breaks) = stream.chain();
    let begins_anew: BTreeSet<usize> = breaks.iter().map(|(behind, _)| *behind).collect();
    let (mut met, mut unread) = (HashMap::new(), BTreeSet::new());
    let mut checker: Option<Checker> = None;
    for (place, piece) in pieces.into_iter().enumerate() {
        let number = piece.segment.number;
        let wrong = |what: String| format!("segment {number}: {what}");
        unread.insert(number);
        let fetched = match fetch_segment(session, server, piece.segment).await? {
            Ok(fetched) => fetched,
            Err(what) => {
                problems.push(wrong(what));
                checker = None;
                continue;
            }
        };
        session.observer.add_stored(piece.segment.stored_len);
        let head = fetched.head.clone();
        let begun = match checker.take().filter(|_| !begins_anew.contains(&place)) {
            Some(checker) => checker.go_on(&head),
            // The beginning of its transaction is missing: only its bytes can be compared. A chain begins outside one.
            None if head.starts_inside && (place > 0 || begins_anew.contains(&place)) => {
                let (_, read) = fetched.read(session, key.as_ref(), std::io::sink()).await?;
                problems.extend(read.err().map(wrong));
                continue;
            }
            None => Checker::begin(stream, &head, wanted),
        };
        let current = match begun {
            Ok(checker) => checker,
            Err(what) => {
                problems.push(wrong(what));
                continue;
            }
        };
        let (current, read) = fetched.read(session, key.as_ref(), current).await?;
        match current.finish(&head, read) {
            Ok(mut checked) => {
                unread.remove(&number);
                met.extend(checked.met.drain());
                checker = Some(checked);
            }
            Err(what) => problems.push(wrong(what)),
        }
    }
    let mut lacking = Vec::new();
    if let Some(alive) = found.alive.as_ref().map(|alive| &alive.content)
        && !has(stream, alive.segments, &alive.head)
    {
        lacking.push(format!(
            "it ends before its sign of life of {}, up to {}",
            alive.written, alive.position
        ));
    }
    if let Some(end) = found.end.as_ref().map(|end| &end.content)
        && !has(stream, end.segments, &end.head)
    {
        lacking.push(format!(
            "its `end` record counts {} segments and names a different last head",
            end.segments
        ));
    }
    problems.extend(lacking.iter().cloned());
    let key = key.map(Arc::new);
    Ok(CheckedStream { found, problems, met, unread, is_locked, unsealed, lacking, key })
}

/// Returns whether a stream has this number of segments, and the last of them this head.
fn has(stream: &Stream, segments: u64, head: &str) -> bool {
    let last = match segments.checked_sub(1) {
        Some(number) => match (stream.segments.get(&number), &stream.floor) {
            (Some(segment), _) => return segment.digest == *head,
            // `prune` has removed it.
            (None, Some(floor)) if number + 1 == floor.number => Some(floor.head.as_str()),
            (None, _) => Some(head).filter(|_| number < stream.removed_below),
        },
        None => return stream.head.digest == *head,
    };
    last == Some(head)
}

impl CheckedStream {
    fn report(&self) -> StreamReport {
        stream_report(&self.found, &self.problems, &self.lacking, self.is_locked)
    }

    fn unread(found: ListedStream) -> Self {
        let unread = found.stream.iter().flat_map(|stream| stream.segments.keys().copied());
        let unread = unread.collect();
        let (problems, met, lacking) = (Vec::new(), HashMap::new(), Vec::new());
        let (is_locked, unsealed, key) = (false, None, None);
        Self { found, problems, met, unread, is_locked, unsealed, lacking, key }
    }
}

/// Reads the events of a stream's segments, one segment after the other.
struct Checker {
    reader: SentReader,
    history: History,
    transactions: u64,
    /// Positions of backups, and those of them that were met.
    wanted: HashSet<LogPosition>,
    met: HashMap<LogPosition, EventsBefore>,
    error: Option<String>,
}

impl Checker {
    fn begin(
        stream: &Stream,
        head: &SegmentHead,
        wanted: &HashSet<LogPosition>,
    ) -> Result<Self, String> {
        let gtids = match head.number {
            0 => stream.head.content.gtids.as_ref(),
            _ => head.gtids_before.as_ref(),
        };
        let gtids = gtids.map(|gtids| gtids.parse::<GtidState>());
        let gtids = gtids.transpose().map_err(|error| error.to_string())?;
        let repeats = stream.head.content.repeats();
        let history = History::new(&head.from.log, gtids).with_repeats(repeats);
        let mut this = Self {
            reader: reader(head)?,
            history,
            transactions: 0,
            wanted: wanted.clone(),
            met: HashMap::new(),
            error: None,
        };
        this.meet();
        Ok(this)
    }

    /// Continues with the next segment, which may be of the next log.
    fn go_on(mut self, head: &SegmentHead) -> Result<Self, String> {
        self.transactions = 0;
        if head.from.log != self.history.log() {
            self.history.next_log(&head.from.log);
        }
        if head.from.offset == 4 {
            self.reader = reader(head)?;
            // A replay of a clone may begin with a log.
            self.meet();
        }
        Ok(self)
    }

    fn finish(self, head: &SegmentHead, read: Result<(), String>) -> Result<Self, String> {
        if let Some(error) = self.error {
            return Err(error);
        }
        read?;
        let gtids = self.history.gtids().map(ToString::to_string);
        let is_as_said = self.transactions == head.transactions
            && gtids == head.gtids_after
            && self.history.open().is_some() == head.ends_inside
            && (head.ends_inside || self.reader.end_packet().is_ok());
        match is_as_said {
            true => Ok(self),
            false => Err("its events are not those that its head states".to_owned()),
        }
    }

    fn take(&mut self, mut input: &[u8]) -> Result<(), String> {
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            let sent =
                self.reader.next(&mut input, &mut bytes).map_err(|error| error.to_string())?;
            let Some(sent) = sent else { return Ok(()) };
            let step = self.history.push(sent.entry()).map_err(|error| error.to_string())?;
            self.transactions += u64::from(step.ended.is_some());
            self.meet();
        }
    }

    /// Notes what is known at the position of a backup.
    fn meet(&mut self) {
        if let Some(at) = self.reader.position().filter(|at| self.wanted.contains(at)) {
            let is_inside = self.history.open().is_some();
            let gtids = self.history.gtids().cloned();
            self.met.insert(at.clone(), EventsBefore { is_inside, gtids });
        }
    }
}

fn reader(head: &SegmentHead) -> Result<SentReader, String> {
    let description = base16(&head.description).ok_or("its format description is malformed")?;
    let at = head.begin().ok_or("its position is malformed")?;
    SentReader::described(at, &description).map_err(|error| error.to_string())
}

fn base16(text: &str) -> Option<Vec<u8>> {
    base16ct::lower::decode_vec(text).ok()
}

impl Write for Checker {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.error.is_none() {
            self.error = self.take(bytes).err();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

async fn report(
    session: &Session,
    server: &str,
    looked: Vec<CheckedStream>,
    (backups, facts): (Backups, Option<ArchiveFacts<'_>>),
    logs: &NotedLogs,
    ours: &HostNotes,
) -> Result<ArchiveReport, BackupError> {
    let verified = facts.is_some();
    let within = facts.and_then(|facts| facts.kept_within);
    let mut report = ArchiveReport {
        server: server.to_owned(),
        streams: looked.iter().map(CheckedStream::report).collect(),
        backups: Vec::new(),
        gaps: Vec::new(),
        past_gaps: Vec::new(),
        stranded: Vec::new(),
        problems: Vec::new(),
        unreadable: backups.1.clone(),
        verified,
    };
    judge_unsealed(&looked, &mut report.streams);
    let (mut streams, mut empty, mut met) = (Vec::new(), Vec::new(), HashMap::new());
    let mut keys = HashMap::new();
    for CheckedStream { found, met: of_stream, unread, key, .. } in looked {
        if unread.is_empty() {
            keys.insert(found.id.to_string(), key);
        }
        met.insert(found.id.to_string(), (of_stream, unread));
        let into = if found.is_empty() && found.keys.is_none() { &mut empty } else { &mut streams };
        into.extend(found.stream);
    }
    let histories = Histories::new(&streams);
    let (problem, limit) = tail(&session.root, server, (&histories, &empty), ours).await?.found();
    report.problems.extend(problem);
    report.stranded = histories.stranded().iter().map(ToString::to_string).collect();
    for stream in &streams {
        if let Some(again) = histories.received_again(stream) {
            let of = report.streams.iter_mut().filter(|of| of.stream == stream.id());
            of.for_each(|of| of.pass_over_missing(again.id()));
        }
    }
    for step in histories.clock_steps() {
        let of = report.streams.iter_mut().filter(|stream| stream.stream == step.stream);
        of.for_each(|stream| stream.remarks.push(step.to_string()));
    }
    let compared = match verified {
        true => compared_logs(session, server, &histories, &keys, (&backups, logs)).await?,
        // That would take more than the records.
        false => ComparedLogs::default(),
    };
    report.problems.extend(compared.of_others);
    for (name, base) in backups.0 {
        let base = match base {
            Ok(base) => base,
            Err(window) => {
                report.backups.push(window);
                continue;
            }
        };
        if verified && let Some(what) = displaced(&base, &streams, &met) {
            report.problems.push(format!("backup {name}: {what}"));
        }
        let mut window = window(&name, &base, (&histories, &streams));
        let may_be_shown = logs.get(&name).is_some_and(|(at, _)| *at == base.position);
        if compared.shown.contains(&name) {
            window.add_end_by_bytes(
                base,
                &histories,
                "the bytes of its log are those of the archived one, so",
            );
        } else if !verified && may_be_shown {
            let condition = "if the bytes of its log are those of the archived one, as `binlog verify` and a restore find out,";
            window.add_end_by_bytes(base, &histories, condition);
        }
        if let (Some(limit), None) = (&limit, &window.problem) {
            let to = window.to.as_deref().unwrap_or(&window.position);
            window.problem = Some(format!("to {to}, {limit}"));
        }
        report.backups.push(window);
    }
    if let Some(since) = within.and_then(|within| edge(&streams, within, Timestamp::now())) {
        excuse(&mut report.backups, since);
    }
    let lost = report.streams.iter().filter(|stream| stream.begins.as_deref() == Some("gap"));
    let lost = lost.map(|stream| {
        let reason = stream.reason.as_deref().unwrap_or_default();
        format!("before stream {}: {reason}", stream.stream)
    });
    let lost: Vec<String> =
        lost.chain(report.streams.iter().flat_map(|stream| stream.removed.clone())).collect();
    // A backup behind all of them, and none that one of them cuts off.
    let mut archived = report.backups.iter().filter(|window| window.archived).peekable();
    match archived.peek().is_some() && archived.all(|window| window.is_whole) {
        true => report.past_gaps = lost,
        false => report.gaps = lost,
    }
    Ok(report)
}

/// Says which streams are not sealed, although a key was given. From before the archive was sealed, that is no fault.
fn judge_unsealed(looked: &[CheckedStream], reports: &mut [StreamReport]) {
    let is_sealed = |one: &&CheckedStream| one.found.is_sealed();
    let sealed: Vec<Stream> =
        looked.iter().filter(is_sealed).filter_map(|one| one.found.stream.clone()).collect();
    let unsealed = looked.iter().filter(|one| one.unsealed.is_some());
    let unsealed: Vec<&Stream> = unsealed.filter_map(|one| one.found.stream.as_ref()).collect();
    let hidden = unfollowed(&sealed, &unsealed);
    let is_behind = |one: &CheckedStream| {
        let id = one.found.id.to_string();
        hidden.iter().any(|of| of.id() == id)
    };
    for (one, report) in looked.iter().zip(reports) {
        match &one.unsealed {
            None => {}
            Some(what) if is_behind(one) => report.problems.push(what.clone()),
            Some(_) => report.remarks.push(
                "it is not sealed, and the stream that follows it is: a restore that needs it also needs --accept-unsealed"
                    .to_owned(),
            ),
        }
    }
}

/// A backup does without its log if logs are kept since a time, and a newer backup from before that time has its log:
/// then every second since can be restored. A floor alone, which anyone could write, is no excuse.
fn excuse(windows: &mut [Window], since: Timestamp) {
    let whole: Vec<Timestamp> =
        windows.iter().filter(|window| window.is_whole).map(|window| window.from).collect();
    for window in windows.iter_mut().filter(|window| window.is_removed) {
        if whole.iter().any(|from| window.from < *from && *from <= since) {
            window.archived = false;
            window.problem = Some(format!("its log was removed: logs are kept since {since}"));
        }
    }
}

/// Returns the fault of a backup's position, by the events of the streams that have it: it is not between two
/// transactions, or the GTIDs there are others than those that the backup notes.
fn displaced(
    base: &Base,
    streams: &[Stream],
    met: &HashMap<String, (HashMap<LogPosition, EventsBefore>, BTreeSet<u64>)>,
) -> Option<String> {
    let mut wrong = None;
    for segment in holders(streams, base) {
        let head = segment;
        let Some((met, unread)) = met.get(head.stream.as_str()) else { continue };
        wrong = Some(match met.get(&base.position) {
            // Why they were not read is said elsewhere.
            None if unread.contains(&head.number) => continue,
            None => {
                format!("its position {} is not a boundary of events in the archive", base.position)
            }
            Some(met) if met.is_inside => {
                format!("its position {} lies within a transaction", base.position)
            }
            Some(EventsBefore { gtids: Some(found), .. })
                if base.gtids.as_ref().is_some_and(|noted| are_apart(found, noted)) =>
            {
                let noted = base.gtids.as_ref().map(ToString::to_string).unwrap_or_default();
                format!(
                    "it records the GTIDs {noted} at {}, but there the archive has {found}",
                    base.position
                )
            }
            Some(_) => return None,
        });
    }
    wrong
}

/// The place of each backup, or the window of one that has none; and those, as texts, whose manifests cannot be read.
type Backups = (Vec<(BackupName, Result<Base, Window>)>, Vec<String>);

/// Positions of backups in the log of their server, and the digests of these logs up to there.
type NotedLogs = HashMap<BackupName, (LogPosition, LogDigest)>;

/// The backups of a server onto which a log can be replayed.
fn backups(known: &KnownManifests, server: &str, found: &mut [ListedStream]) -> Backups {
    let is_of_it = |manifest: &Manifest| manifest.server.as_deref().is_none_or(|of| of == server);
    let manifests = known.iter().filter(|(_, manifest)| is_of_it(manifest));
    let backups = with_streams(found, |streams| {
        let histories = Histories::new(streams);
        let placed = |(name, manifest): (&BackupName, &Manifest)| {
            let noted = BasePosition::replayed(manifest)?;
            let base = match (histories.locate(&noted), noted) {
                (Some(base), _) | (None, BasePosition::Position(base)) => Ok(base),
                (None, BasePosition::Between { from, taken, .. }) => {
                    Err(unplaced(name, &from, taken, streams))
                }
            };
            Some((name.clone(), base))
        };
        manifests.filter_map(placed).collect()
    });
    let unread = known.unread().map(|unread| format!("{}: {}", unread.name, unread.error));
    (backups, unread.collect())
}

/// The window of a clone of which no stream has all transactions from the first on that it may lack.
fn unplaced(name: &BackupName, from: &GtidState, taken: Timestamp, streams: &[Stream]) -> Window {
    // One whose beginning was removed had begun before the clone.
    let is_removed =
        |stream: &Stream| stream.removed_below > 0 && stream.head.content.started <= taken;
    let is_removed = streams.iter().any(is_removed);
    let what = if is_removed { "was removed" } else { "is not archived" };
    Window {
        archived: is_removed,
        problem: Some(format!("its log {what}: no stream begins before its position {from}")),
        is_removed,
        ..Window::new(name, from.to_string(), taken)
    }
}

impl Window {
    /// Whether something limits how far the archive can be replayed onto the backup.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.archived && !self.is_whole
    }

    /// Says how far a backup reaches in a history to which its time does not lead, under a condition about the bytes of its log. That
    /// the history branched behind it stays a problem: the left one has transactions that the server lost.
    fn add_end_by_bytes(&mut self, base: Base, histories: &Histories<'_>, condition: &str) {
        let Some(problem) = self.problem.as_mut().filter(|_| self.is_branch) else { return };
        let shown = Base { is_shown_by_bytes: true, ..base };
        if let Ok(plan) = histories.plan(&shown, &RestoreStop::Latest)
            && let Some(piece) = plan.pieces.last()
        {
            let to = format!("{}:{}", piece.segment.from.log, piece.until);
            problem.push_str(&format!("; {condition} it can be restored to the end, {to}"));
        }
    }

    fn new(name: &BackupName, position: String, from: Timestamp) -> Self {
        Self {
            backup: name.to_string(),
            position,
            archived: true,
            from,
            to: None,
            until: None,
            problem: None,
            is_whole: false,
            is_removed: false,
            is_branch: false,
        }
    }
}

fn window(
    name: &BackupName,
    base: &Base,
    (histories, streams): (&Histories<'_>, &[Stream]),
) -> Window {
    let mut window = Window::new(name, base.position.to_string(), base.taken);
    match histories.plan(base, &RestoreStop::Latest) {
        Ok(plan) => {
            window.is_whole = true;
            if let Some(piece) = plan.pieces.last() {
                window.to = Some(format!("{}:{}", piece.segment.from.log, piece.until));
                let stream = streams.iter().find(|stream| stream.id() == piece.stream);
                let covered = stream.and_then(|stream| stream.covered_until);
                window.until = covered.max(piece.segment.last_commit());
            }
        }
        Err(error) => {
            window.archived =
                !matches!(error, PlanError::NoStart { .. } | PlanError::BeforeArchive { .. });
            window.problem = Some(error.to_string());
            window.is_removed = matches!(error, PlanError::Removed { .. });
            window.is_branch = matches!(error, PlanError::Branch { .. });
            let is_limit = matches!(error, PlanError::Gap { .. } | PlanError::Branch { .. });
            if let Some(piece) = histories.furthest(base).filter(|_| is_limit) {
                window.to = Some(format!("{}:{}", piece.segment.from.log, piece.until));
                window.until = piece.segment.last_commit();
            }
        }
    }
    window
}

#[cfg(test)]
mod tests {
    use xb_repo::archive::record::{FORMAT, Record};
    use xb_repo::archive::sample::{at, stream_head};
    use xb_repo::archive::stream::{Floor, StreamHead};

    use super::*;

    /// A stream without the log of the clone in it says which of the two it is.
    #[test]
    fn a_clone_whose_log_is_gone_is_reported() {
        let stream = "0".repeat(32);
        let head =
            StreamHead { started: Timestamp::from_second(100).unwrap(), ..stream_head(&stream) };
        let head = Record::decode(&Record::encode(&head, None).unwrap()).unwrap();
        let floor =
            Floor { format: FORMAT, stream, number: 7, head: head.digest.to_string(), at: at(4) };
        let mut stream = Stream {
            head,
            segments: Default::default(),
            stated: 0,
            end: None,
            shows_end: true,
            floor: None,
            removed_below: 0,
            covered_until: None,
            written: None,
        };
        let from: xb_binlog::GtidSet = "11111111-2222-3333-4444-555555555555:1-3".parse().unwrap();
        let name = BackupName::new("clone").unwrap();
        let unplaced = |stream: &Stream, seconds| {
            let taken = Timestamp::from_second(seconds).unwrap();
            let from = GtidState::MySql(from.clone());
            unplaced(&name, &from, taken, std::slice::from_ref(stream))
        };
        assert!(!unplaced(&stream, 200).archived);
        (stream.floor, stream.removed_below) = (Some(floor), 7);
        let window = unplaced(&stream, 200);
        assert!(window.archived && window.is_removed && !window.is_whole, "{window:?}");
        assert!(window.problem.is_some_and(|what| what.starts_with("its log was removed")));
        assert!(!unplaced(&stream, 50).archived);
    }
}
