//! Lists an archive, and verifies it: chain, seal, checksums of every event, and continuity from every backup.

use std::io::Write;
use std::path::Path;

use futures::StreamExt as _;
use jiff::Timestamp;
use serde::Serialize;
use xb_binlog::{GtidPosition, GtidState, History, SentReader};
use xb_encryptor::Keys;
use xb_repo::archive::listing::{Found, is_stored, streams};
use xb_repo::archive::plan::{Base, PlanError, Stop, Stream, plan};
use xb_repo::archive::segment::SegmentHead;
use xb_repo::archive::stream::Begins;
use xb_repo::error::RepoError;
use xb_repo::manifest::Manifest;
use xb_repo::names::{BackupName, CATALOG};
use xb_repo::root::Root;

use crate::binlog::read::read_segment;
use crate::binlog::state::StateFile;
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
    /// What can be restored, for each backup that notes its position.
    pub backups: Vec<Window>,
    /// Places where logs are lost.
    pub gaps: Vec<String>,
    /// What is wrong with the archive itself, beside the streams.
    pub problems: Vec<String>,
    /// Whether the events were read.
    pub verified: bool,
}

impl ArchiveReport {
    /// Whether nothing is damaged, missing or altered.
    #[must_use]
    pub fn is_undamaged(&self) -> bool {
        self.problems.is_empty() && self.streams.iter().all(|stream| stream.problems.is_empty())
    }

    /// Whether logs are lost, or a backup that the archive knows does not reach its end. A backup from before
    /// the archive is no gap.
    #[must_use]
    pub fn has_gap(&self) -> bool {
        let is_cut = |window: &Window| window.archived && window.problem.is_some();
        !self.gaps.is_empty() || self.backups.iter().any(is_cut)
    }
}

/// A stream.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct StreamReport {
    /// ID of the stream.
    pub stream: String,
    /// When it began.
    pub started: Option<Timestamp>,
    /// `first`, `continues`, `gap` or `branch`.
    pub begins: Option<String>,
    /// Why, of a gap or a branch.
    pub reason: Option<String>,
    /// Position of its first byte.
    pub from: Option<String>,
    /// Position behind its last byte.
    pub to: Option<String>,
    /// GTIDs up to there.
    pub gtids: Option<String>,
    /// Number of its segments.
    pub segments: u64,
    /// Transactions in them.
    pub transactions: u64,
    /// Bytes of its objects.
    pub bytes: u64,
    /// Everything up to this time is in it.
    pub covered_until: Option<Timestamp>,
    /// When the receiver last gave a sign of life.
    pub alive: Option<Timestamp>,
    /// Whether it is sealed.
    pub sealed: bool,
    /// What is wrong with it.
    pub problems: Vec<String>,
}

/// What can be restored from a backup.
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
    /// Why it cannot be restored to the end of the archive.
    pub problem: Option<String>,
}

/// Lists the archive of a server by its records.
///
/// # Errors
/// [`BackupError::Repo`] if the store cannot be read.
pub async fn list_archive(session: &Session, server: &str) -> Result<ArchiveReport, BackupError> {
    let found = streams(&session.root, server).await?;
    report(session, server, found, false).await
}

/// Verifies the archive of a server: everything that [`list_archive`] shows, the seal, and each event of
/// each segment. With `keys`, every stream has to be sealed, and authentic. `state` is the folder in which its
/// receiver remembers its last segment.
///
/// # Errors
/// [`BackupError::Repo`] if the store cannot be read; [`BackupError::Keys`] if the keys open no stream.
pub async fn verify_archive(
    session: &Session,
    server: &str,
    keys: &Keys,
    state: Option<&Path>,
) -> Result<ArchiveReport, BackupError> {
    let mut found = streams(&session.root, server).await?;
    for stream in &mut found {
        verify_stream(session, server, stream, keys).await?;
    }
    let mut report = report(session, server, found, true).await?;
    if let Some(folder) = state
        && let Some(ours) = StateFile::new(folder, server).read()?
    {
        let head = &ours.content;
        let (stream, number) = (&head.stream, head.number);
        if !is_stored(&session.root, server, stream, number, &ours.digest).await? {
            report.problems.push(format!(
                "the archive ends before what this host remembers: segment {number} of stream {stream}, up to {}, is missing or was changed",
                head.to
            ));
        }
    }
    Ok(report)
}

async fn verify_stream(
    session: &Session,
    server: &str,
    found: &mut Found,
    keys: &Keys,
) -> Result<(), BackupError> {
    let is_sealed = found.stream.as_ref().is_some_and(|s| !s.head.content.sealed.is_empty());
    let key = match &found.keys {
        Some(slots) => match keys.open(slots, session.resources.memory) {
            None => {
                let kept: Vec<_> = slots.slots().map(|slot| slot.to_string()).collect();
                return Err(BackupError::Keys(format!(
                    "the archive of {server} is sealed, and no key was given; it opens with: {}",
                    kept.join(", ")
                )));
            }
            Some(Err(error)) => {
                found.problems.push(format!("keys: {error}"));
                return Ok(());
            }
            Some(Ok(key)) => Some(key),
        },
        None => {
            if is_sealed {
                // A receiver that was killed before it wrote them has stored nothing else.
                if !found.sizes.is_empty() || found.alive.is_some() {
                    found.problems.push("its key slots are missing".to_owned());
                }
                return Ok(());
            }
            if !keys.is_empty() {
                found.problems.push("it is not sealed, but a key was given".to_owned());
            }
            None
        }
    };
    if let Some(key) = &key {
        found.authenticate(key);
    }
    let Some(stream) = &found.stream else { return Ok(()) };
    let (pieces, broken) = stream.chain();
    let mut problems: Vec<String> = broken.iter().map(ToString::to_string).collect();
    let mut checker: Option<Checker> = None;
    for piece in pieces {
        let head = &piece.segment.content;
        let number = head.number;
        let wrong = |what: String| format!("segment {number}: {what}");
        let begun = match checker.take() {
            Some(checker) => checker.go_on(head),
            None => Checker::begin(stream, head),
        };
        let current = match begun {
            Ok(checker) => checker,
            Err(what) => {
                problems.push(wrong(what));
                continue;
            }
        };
        let read = read_segment(session, server, piece.segment, key.as_ref(), current).await?;
        let (current, read) = match read {
            Ok(read) => read,
            Err(what) => {
                problems.push(wrong(what));
                continue;
            }
        };
        match current.finish(head, read) {
            Ok(checked) => checker = Some(checked),
            Err(what) => problems.push(wrong(what)),
        }
        session.observer.add_stored(head.body.len);
    }
    if let Some(alive) = &found.alive {
        let alive = &alive.content;
        let last = match alive.segments.checked_sub(1) {
            Some(number) => match &stream.floor {
                // `prune` has removed it.
                Some(floor) if number + 1 == floor.number => Some(floor.head.as_str()),
                Some(floor) if number < floor.number => Some(alive.head.as_str()),
                _ => stream.segments.get(&number).map(|head| head.digest.as_str()),
            },
            None => Some(stream.head.digest.as_str()),
        };
        if last != Some(alive.head.as_str()) {
            problems.push(format!(
                "it ends before its sign of life of {}, up to {}",
                alive.written, alive.position
            ));
        }
    }
    found.problems.append(&mut problems);
    Ok(())
}

/// Reads the events of a stream's segments, one segment after the other.
struct Checker {
    reader: SentReader,
    history: History,
    transactions: u64,
    error: Option<String>,
}

impl Checker {
    fn begin(stream: &Stream, head: &SegmentHead) -> Result<Self, String> {
        let gtids = match head.number {
            0 => stream.head.content.gtids.as_ref(),
            _ => head.gtids_before.as_ref(),
        };
        let gtids = gtids.map(|gtids| gtids.parse::<GtidPosition>());
        let gtids = gtids.transpose().map_err(|error| error.to_string())?;
        let history = History::new(&head.from.log, gtids.map(GtidState::MariaDb));
        Ok(Self { reader: reader(head)?, history, transactions: 0, error: None })
    }

    /// Continues with the next segment, which may be of the next log.
    fn go_on(mut self, head: &SegmentHead) -> Result<Self, String> {
        self.transactions = 0;
        if head.from.log != self.history.log() {
            self.history.next_log(&head.from.log);
        }
        if head.from.offset == 4 {
            self.reader = reader(head)?;
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
    found: Vec<Found>,
    verified: bool,
) -> Result<ArchiveReport, BackupError> {
    let mut report = ArchiveReport {
        server: server.to_owned(),
        streams: found.iter().map(stream_report).collect(),
        backups: Vec::new(),
        gaps: Vec::new(),
        problems: Vec::new(),
        verified,
    };
    for stream in &report.streams {
        if stream.begins.as_deref() == Some("gap") {
            let reason = stream.reason.as_deref().unwrap_or_default();
            report.gaps.push(format!("before stream {}: {reason}", stream.stream));
        }
    }
    let streams: Vec<Stream> = found.into_iter().filter_map(|found| found.stream).collect();
    for (name, manifest) in manifests(&session.root, server).await? {
        let Some(base) = Base::of(&manifest) else { continue };
        report.backups.push(window(&name, &base, &streams));
    }
    Ok(report)
}

fn window(name: &BackupName, base: &Base, streams: &[Stream]) -> Window {
    let mut window = Window {
        backup: name.to_string(),
        position: base.position.to_string(),
        archived: true,
        from: base.taken,
        to: None,
        until: None,
        problem: None,
    };
    match plan(streams, base, &Stop::Latest) {
        Ok(plan) => {
            if let Some(piece) = plan.pieces.last() {
                window.to = Some(format!("{}:{}", piece.segment.content.from.log, piece.until));
                let stream = streams.iter().find(|stream| stream.id() == piece.stream);
                let covered = stream.and_then(|stream| stream.covered_until);
                window.until = covered.max(last_commit(&piece.segment.content));
            }
        }
        Err(error) => {
            window.archived = !matches!(error, PlanError::NoStart { .. });
            window.problem = Some(error.to_string());
        }
    }
    window
}

/// Time of the last transaction of a segment.
fn last_commit(head: &SegmentHead) -> Option<Timestamp> {
    head.commits.and_then(|commits| Timestamp::from_second(commits.last.into()).ok())
}

/// The sound manifests of a server's backups.
async fn manifests(root: &Root, server: &str) -> Result<Vec<(BackupName, Manifest)>, RepoError> {
    let listed = root.list_below(CATALOG).await?;
    let names = listed.iter().filter(|listed| !listed.key.contains('/'));
    let names: Vec<BackupName> = names.filter_map(|l| BackupName::new(&l.key).ok()).collect();
    let reading = names.into_iter().map(|name| async move {
        let manifest = root.manifest(&name).await;
        (name, manifest)
    });
    let reading: Vec<_> = reading.collect();
    let mut read = futures::stream::iter(reading).buffered(16);
    let mut found = Vec::new();
    while let Some((name, manifest)) = read.next().await {
        match manifest {
            Ok(Some(manifest)) if manifest.server.as_deref().is_none_or(|of| of == server) => {
                found.push((name, manifest));
            }
            Ok(_) => {}
            Err(error) if error.is_of_one_object() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

fn stream_report(found: &Found) -> StreamReport {
    let mut report = StreamReport {
        stream: found.id.to_string(),
        started: None,
        begins: None,
        reason: None,
        from: None,
        to: None,
        gtids: None,
        segments: found.sizes.len() as u64,
        transactions: 0,
        bytes: found.sizes.values().sum(),
        covered_until: found.alive.as_ref().and_then(|alive| alive.content.covered_until),
        alive: found.alive.as_ref().map(|alive| alive.content.written),
        sealed: found.keys.is_some(),
        problems: found.problems.clone(),
    };
    let Some(stream) = &found.stream else { return report };
    let head = &stream.head.content;
    report.started = Some(head.started);
    report.from = Some(head.start.to_string());
    let (kind, reason) = match &head.begins {
        Begins::First => ("first", None),
        Begins::Continues { .. } => ("continues", None),
        Begins::Gap { reason, .. } => ("gap", Some(reason.clone())),
        Begins::Branch { reason, .. } => ("branch", Some(reason.clone())),
    };
    report.begins = Some(kind.to_owned());
    report.reason = reason;
    let (pieces, broken) = stream.chain();
    if let Some(last) = pieces.last() {
        report.covered_until = report.covered_until.max(last_commit(&last.segment.content));
        report.to = Some(last.segment.content.to.to_string());
        report.gtids.clone_from(&last.segment.content.gtids_after);
    }
    report.transactions = pieces.iter().map(|piece| piece.segment.content.transactions).sum();
    if let Some(error @ PlanError::Segment { .. }) = broken {
        let text = error.to_string();
        if !report.problems.contains(&text) {
            report.problems.push(text);
        }
    }
    report
}
