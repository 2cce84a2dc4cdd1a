//! Finds transactions in an archive: by time, table and statement.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use xb_binlog::{
    AnyGtid, Change, Entry, Event, EventType, HEADER_LEN, Payload, Repeats, SentEvent, SentReader,
    TransactionSummary, Transactions,
};
use xb_encryptor::{DataKey, Keys};
use xb_repo::archive::listed_segment::ListedSegment;
use xb_repo::archive::listing::{ListedStream, streams};
use xb_repo::archive::plan::Piece;
use xb_repo::archive::stream::{StreamHead, StreamOrigin};

use crate::binlog::archive::choose_archive::no_archive;
use crate::binlog::archive::open::{Readable, StreamKeys, open};
use crate::binlog::archive::pieces::{NeededSegment, fetch};
use crate::cancel::OrInterrupted as _;
use crate::error::BackupError;
use crate::session::Session;
use crate::table_pattern::TablePattern;
use crate::until_error::UntilError;

/// A transaction is looked for in segments whose commits are up to this much later than its time, which is that at
/// which its statement began.
const LATE: SignedDuration = SignedDuration::from_hours(1);
/// Bytes of an event that are kept: its header, and what is read of its body.
const KEPT: usize = HEADER_LEN + Change::NEEDED;
/// Where the type is in the header of an event.
const TYPE: usize = 4;

/// Search for transactions. All given conditions have to hold.
#[derive(Debug, Clone, Default)]
pub struct ArchiveSearch {
    /// Not before this time.
    pub since: Option<Timestamp>,
    /// Not after this time. A transaction whose statement ran for more than an hour may be missed.
    pub until: Option<Timestamp>,
    /// Names or patterns of tables, as `SCHEMA.TABLE`; one of them has to match a table whose rows are changed, or be
    /// in a statement.
    pub tables: Vec<String>,
    /// A text in the first KiB of one of its statements; upper and lower case are alike.
    pub text: Option<String>,
    /// Only what changes definitions.
    pub only_ddl: bool,
}

/// A transaction of an archive.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct FoundTransaction {
    /// Its GTID.
    pub gtid: String,
    /// Time of its commit; of MariaDB, that at which the statement that commits it began.
    pub time: Timestamp,
    /// Position of its first byte, as `FILE:POSITION`.
    pub position: String,
    /// Bytes of its events.
    pub bytes: u64,
    /// Whether it changes a definition.
    pub ddl: bool,
    /// The first tables whose rows it changes.
    pub tables: Vec<String>,
    /// Its first statement, cut, without what may be a password.
    pub statement: Option<String>,
    /// ID of the stream that has it.
    pub stream: String,
}

/// A place in an archive where one history does not simply continue, or that no replay crosses.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct HistoryBreak {
    /// `gap`, `branch` or `barrier`.
    pub kind: &'static str,
    /// Position behind it; that of a barrier itself.
    pub position: String,
    /// Reason for the entry.
    pub reason: String,
    /// ID of the stream that begins there, or that has the barrier.
    pub stream: String,
}

/// Result of a search, in the order of the log.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum SearchLine {
    /// A transaction.
    Transaction(FoundTransaction),
    /// A gap, a branch or a barrier before what follows.
    Break(HistoryBreak),
}

/// What was searched.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Searched {
    /// Everything up to this time is in the archive.
    pub covered: Option<Timestamp>,
    /// Why some of it could not be searched.
    pub problems: Vec<String>,
}

/// Searches the archive of a server, stream by stream in the order in which they began. `show` gets what is found, and
/// may end the search. A transaction that two receivers have stored is shown once.
///
/// # Errors
/// [`UntilError::NoArchive`]; [`BackupError::Selection`] for a malformed pattern; [`BackupError::Keys`] if the keys open no stream;
/// [`BackupError::Repo`] if the store cannot be read.
pub async fn search_archive(
    session: &Session,
    server: &str,
    search: &ArchiveSearch,
    keys: &Keys,
    mut show: impl FnMut(SearchLine) -> ControlFlow<()>,
) -> Result<Searched, BackupError> {
    let wanted = Arc::new(TransactionFilter::new(search)?);
    let mut problems = Vec::new();
    let (mut shown, mut barriers) = (HashSet::new(), HashSet::new());
    let own = StreamKeys::new(keys, session);
    let all = session.cancel.or(streams(&session.root, server, &own)).await?;
    if all.is_empty() {
        return Err(no_archive(session, server).await?);
    }
    let covered = all.iter().filter_map(|found| found.stream.as_ref()?.newest()).max();
    for mut found in all {
        let id = found.id.to_string();
        let opened = open(&mut found, server, &own)?;
        let (readable, wrong) = match opened.readable(keys) {
            Readable::Segments(key, wrong) => (Some(key), wrong),
            Readable::Nothing(why) => (None, why),
        };
        problems.extend(wrong.map(|wrong| format!("stream {id}: {wrong}")));
        let Some(key) = readable else { continue };
        let key = key.map(Arc::new);
        problems.extend(found.problems.iter().map(|problem| format!("stream {id}: {problem}")));
        let (needed, breaks) = needed(&found, search, key.as_ref());
        problems.extend(breaks);
        let stream = found.stream.as_ref();
        if let Some((started, begins)) = stream.and_then(|of| break_of(&of.head.content)) {
            // Later segments have numbers of their own.
            shown.clear();
            barriers.clear();
            let is_first = needed.first().is_some_and(|first| first.segment.number == 0);
            if (is_first || search.has_break(started)) && show(SearchLine::Break(begins)).is_break()
            {
                return Ok(Searched { covered, problems });
            }
        }
        let reading = read(session, server, needed, &wanted, |line| {
            let is_new = match &line {
                // Not only the GTID: after a branch, another transaction has it.
                SearchLine::Transaction(found) => shown.insert((
                    found.gtid.clone(),
                    found.position.clone(),
                    found.time,
                    found.bytes,
                )),
                SearchLine::Break(one) => barriers.insert(one.position.clone()),
            };
            if is_new { show(line) } else { ControlFlow::Continue(()) }
        });
        match reading.await {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(())) => return Ok(Searched { covered, problems }),
            Err(BackupError::Until(error)) if matches!(*error, UntilError::Segment { .. }) => {
                problems.push(error.to_string());
            }
            Err(error) => return Err(error),
        }
    }
    own.check()?;
    Ok(Searched { covered, problems })
}

fn break_of(head: &StreamHead) -> Option<(Timestamp, HistoryBreak)> {
    let (kind, reason) = match &head.begins {
        StreamOrigin::First | StreamOrigin::Continues { .. } => return None,
        StreamOrigin::Gap { reason, .. } => ("gap", reason),
        StreamOrigin::Branch { reason, .. } => ("branch", reason),
    };
    let (position, stream) = (head.start.to_string(), head.stream.clone());
    Some((head.started, HistoryBreak { kind, position, reason: reason.clone(), stream }))
}

/// The segments of a stream that may have what is looked for, and why there are not all of them.
fn needed(
    found: &ListedStream,
    search: &ArchiveSearch,
    key: Option<&Arc<DataKey>>,
) -> (Arc<[NeededSegment]>, Vec<String>) {
    let Some(stream) = &found.stream else { return (Arc::from([]), Vec::new()) };
    let (pieces, breaks) = stream.chain();
    let mut needed = Vec::new();
    // A transaction in several segments is read from the first of them on.
    let continues = |one: &Piece<'_>, next: &Piece<'_>| {
        let (one, next) = (&one.segment, &next.segment);
        next.starts_inside && one.number.checked_add(1) == Some(next.number)
    };
    for run in pieces.chunk_by(continues) {
        if search.may_have(run) {
            needed.extend(run.iter().map(|piece| NeededSegment {
                segment: Arc::clone(piece.segment),
                key: key.cloned(),
                until: piece.until,
                server: piece.server,
                repeats: stream.head.content.repeats(),
            }));
        }
    }
    (needed.into(), breaks.into_iter().map(|(_, error)| error.to_string()).collect())
}

impl ArchiveSearch {
    /// Returns whether a break at this time is shown.
    fn has_break(&self, at: Timestamp) -> bool {
        self.since.is_none_or(|since| since <= at) && self.until.is_none_or(|until| at <= until)
    }

    /// Returns whether a transaction of this time may be in segments that follow each other. The times of commits go back
    /// only by what a statement takes.
    fn may_have(&self, run: &[Piece<'_>]) -> bool {
        let heads = || run.iter().map(|piece| &**piece.segment);
        let with_commits = |head: &&ListedSegment| head.transactions > 0;
        if heads().filter(with_commits).any(|head| head.commits.is_none()) {
            return true;
        }
        let second = |time: u32| Timestamp::from_second(i64::from(time)).ok();
        let commits = || heads().filter_map(|head| head.commits);
        let earliest = commits().map(|commits| commits.first.min(commits.last)).min();
        let latest = commits().map(|c| c.greatest.max(c.first).max(c.last)).max();
        let (Some(earliest), Some(latest)) = (earliest.and_then(second), latest.and_then(second))
        else {
            return false;
        };
        let is_too_early = self.since.is_some_and(|since| latest < since);
        let is_too_late = self
            .until
            .is_some_and(|until| until.saturating_add(LATE).is_ok_and(|at| earliest > at));
        !is_too_early && !is_too_late
    }
}

async fn read(
    session: &Session,
    server: &str,
    needed: Arc<[NeededSegment]>,
    wanted: &Arc<TransactionFilter>,
    mut show: impl FnMut(SearchLine) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, BackupError> {
    let mut fetched = fetch(session, server, &needed);
    // With the number of the segment that it has read up to.
    let mut finder: Option<(u64, Finder)> = None;
    while let Some(segment) = fetched.recv().await {
        let segment = segment?;
        let one = needed.get(segment.number).ok_or(BackupError::Bug("a segment of no number"))?;
        let head = &one.segment;
        let wrong = |what: String| UntilError::Segment {
            stream: head.stream.to_string(),
            number: head.number,
            what,
        };
        let before = finder.take().filter(|(last, _)| last.checked_add(1) == Some(head.number));
        let mut current = match before {
            Some((_, finder)) if head.starts_inside => finder,
            // The beginning of its transaction is missing.
            None if head.starts_inside => continue,
            _ => Finder::new(one, &segment.description, Arc::clone(wanted)).map_err(wrong)?,
        };
        let reading = tokio::task::spawn_blocking(move || {
            let taken = current.take(&segment.bytes);
            (current, taken, segment.bytes.len())
        });
        let (mut current, taken, bytes) =
            reading.await.map_err(|_| BackupError::Bug("the thread that searches panicked"))?;
        session.observer.add_bytes(bytes as u64);
        let mut barriers = barriers(one).into_iter().peekable();
        let mut lines = Vec::new();
        for (begin, found) in current.found.drain(..) {
            while let Some((_, barrier)) = barriers.next_if(|(at, _)| *at < begin) {
                lines.push(SearchLine::Break(barrier));
            }
            lines.push(SearchLine::Transaction(found));
        }
        lines.extend(barriers.map(|(_, barrier)| SearchLine::Break(barrier)));
        if lines.into_iter().any(|line| show(line).is_break()) {
            return Ok(ControlFlow::Break(()));
        }
        taken.map_err(wrong)?;
        finder = Some((head.number, current));
    }
    Ok(ControlFlow::Continue(()))
}

/// The barriers of a segment, with their offsets.
fn barriers(one: &NeededSegment) -> Vec<(u64, HistoryBreak)> {
    let head = &one.segment;
    let barrier = |position: String, reason: String| HistoryBreak {
        kind: "barrier",
        position,
        reason,
        stream: head.stream.to_string(),
    };
    let known = head.barriers.iter().filter(|known| known.at.offset < one.until);
    let mut all: Vec<_> = known
        .map(|known| (known.at.offset, barrier(known.at.to_string(), known.meaning().to_owned())))
        .collect();
    if head.more_barriers > 0 {
        let reason = format!("the segment that ends here has {} more", head.more_barriers);
        all.push((head.to.offset, barrier(head.to.to_string(), reason)));
    }
    all
}

/// Conditions of the search.
struct TransactionFilter {
    search: ArchiveSearch,
    tables: Vec<TablePattern>,
    /// In lower case.
    text: Option<String>,
}

impl TransactionFilter {
    fn new(search: &ArchiveSearch) -> Result<Self, BackupError> {
        let tables = search.tables.iter().map(|table| TablePattern::parse(table));
        let tables = tables.collect::<Result<_, _>>().map_err(BackupError::Selection)?;
        let text = search.text.as_ref().map(|text| text.to_lowercase());
        Ok(Self { search: search.clone(), tables, text })
    }
}

/// Reads the events of segments.
struct Finder {
    wanted: Arc<TransactionFilter>,
    stream: String,
    /// What the stream before shows already.
    repeats: Option<Repeats>,
    reader: SentReader,
    transactions: Transactions,
    /// Beginning of the event that arrives, and the number of its bytes that have.
    event: Vec<u8>,
    arrived: usize,
    /// It is a compressed transaction.
    payload: Option<Payload>,
    /// The transaction that is open.
    open: Option<Candidate>,
    /// With the offsets at which they begin.
    found: Vec<(u64, FoundTransaction)>,
}

struct Candidate {
    summary: TransactionSummary,
    has_table: bool,
    has_text: bool,
}

impl Finder {
    fn new(
        one: &NeededSegment,
        description: &[u8],
        wanted: Arc<TransactionFilter>,
    ) -> Result<Self, String> {
        let (head, repeats) = (&one.segment, one.repeats.clone());
        let at = head.begin().ok_or("its position is malformed")?;
        let reader = SentReader::described(at, description).map_err(|error| error.to_string())?;
        Ok(Self {
            wanted,
            stream: head.stream.to_string(),
            repeats,
            reader,
            transactions: Transactions::new(),
            event: Vec::new(),
            arrived: 0,
            payload: None,
            open: None,
            found: Vec::new(),
        })
    }

    /// Reads what follows of the log.
    fn take(&mut self, mut input: &[u8]) -> Result<(), String> {
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            let sent =
                self.reader.next(&mut input, &mut bytes).map_err(|error| error.to_string())?;
            let free = KEPT.saturating_sub(self.event.len());
            self.event.extend(bytes.iter().take(free));
            self.decompress(&bytes)?;
            self.arrived += bytes.len();
            match sent {
                None => return Ok(()),
                Some(SentEvent::Log(entry)) => self.entry(&entry)?,
                Some(SentEvent::Artificial(_)) => {}
            }
            self.event.clear();
            (self.arrived, self.payload) = (0, None);
        }
    }

    /// Looks into a compressed transaction: these bytes of the event follow those that have arrived.
    fn decompress(&mut self, bytes: &[u8]) -> Result<(), String> {
        if self.event.get(TYPE) != Some(&EventType::TRANSACTION_PAYLOAD.0) {
            return Ok(());
        }
        let (payload, wanted) = (self.payload.get_or_insert_default(), &self.wanted);
        let body = bytes.get(HEADER_LEN.saturating_sub(self.arrived)..).unwrap_or_default();
        let open = &mut self.open;
        let read = payload.push(body, |change| {
            if let Some(open) = open {
                open.add(change, wanted);
            }
        });
        read.ok_or_else(|| "a compressed transaction is malformed".to_owned())
    }

    fn entry(&mut self, entry: &Entry) -> Result<(), String> {
        let ended = self.transactions.push(entry).map_err(|error| error.to_string())?;
        let begun = self.transactions.open().filter(|open| open.begin == entry.begin);
        if let Some(open) = begun {
            let gtid = open.first.gtid().ok_or("a transaction has no GTID")?;
            let summary = TransactionSummary::new(gtid, open.micros);
            self.open = Some(Candidate { summary, has_table: false, has_text: false });
        }
        if let Some(open) = &mut self.open {
            let has_sum = entry.checksum.is_some() && self.event.len() < KEPT;
            let end = self.event.len().saturating_sub(if has_sum { 4 } else { 0 });
            let body = self.event.get(HEADER_LEN..end).unwrap_or_default();
            let change = match &entry.event {
                Event::Query(query) => Change::of(query),
                _ => Change::read(entry.header.event_type, body),
            };
            if let Some(change) = change {
                open.add(&change, &self.wanted);
            }
        }
        if let (Some(ended), Some(open)) =
            (ended, self.open.take_if(|_| self.transactions.open().is_none()))
        {
            let ddl = ended.is_ddl();
            let log = self.reader.position().map(xb_binlog::LogPosition::log).unwrap_or_default();
            if let (Some(repeats), AnyGtid::MariaDb(gtid)) = (&self.repeats, &open.summary.gtid)
                && repeats.has(log, ended.begin, *gtid)
            {
                return Ok(());
            }
            let position = format!("{log}:{}", ended.begin);
            let bytes = ended.end - ended.begin;
            let stream = self.stream.clone();
            let found = open.found(&self.wanted, ddl, position, bytes, stream);
            self.found.extend(found.map(|found| (ended.begin, found)));
        }
        Ok(())
    }
}

impl Candidate {
    fn add(&mut self, change: &Change, wanted: &TransactionFilter) {
        self.summary.add(change);
        match change {
            Change::Table { schema, table } => {
                self.has_table |= wanted.tables.iter().any(|one| one.matches(schema, table));
            }
            Change::Statement { schema, text, is_cut } => {
                // A truncated text may name it behind its end, and a name in another character set is not read.
                let is_foreign = std::str::from_utf8(text).is_err_and(|e| e.error_len().is_some());
                let text = String::from_utf8_lossy(text);
                // Rows name their tables themselves.
                self.has_table |= schema.as_ref().is_some_and(|schema| {
                    let may_be = |one: &TablePattern| one.may_be_in(schema, &text);
                    *is_cut || is_foreign || wanted.tables.iter().any(may_be)
                });
                let lower = text.to_lowercase();
                self.has_text |= wanted.text.as_ref().is_some_and(|text| lower.contains(text));
            }
        }
    }

    /// The transaction, if it is one that is looked for.
    fn found(
        self,
        wanted: &TransactionFilter,
        ddl: bool,
        position: String,
        bytes: u64,
        stream: String,
    ) -> Option<FoundTransaction> {
        let TransactionSummary { gtid, micros, tables, statement, .. } = self.summary;
        let search = &wanted.search;
        let time = Timestamp::from_microsecond(i64::try_from(micros).ok()?).ok()?;
        let is_found = search.since.is_none_or(|since| time >= since)
            && search.until.is_none_or(|until| time <= until)
            && (ddl || !search.only_ddl)
            && (self.has_table || wanted.tables.is_empty())
            && (self.has_text || wanted.text.is_none());
        let gtid = gtid.to_string();
        is_found.then_some(FoundTransaction {
            gtid,
            time,
            position,
            bytes,
            ddl,
            tables,
            statement,
            stream,
        })
    }
}
