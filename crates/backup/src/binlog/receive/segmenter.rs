//! Cuts what a server sends into segments. No I/O: bytes go in, segments come out.

use std::ops::Range;
use std::time::Duration;

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use xb_binlog::{
    AnyGtid, Content, ContentDigest, Error, Event, EventHeader, Fork, Gtid, GtidState, History,
    LogPosition, SentEvent, SentReader, Stretch,
};
use xb_repo::archive::segment::{
    AHEAD, Commits, LastTransaction, MAX_BARRIERS, MAX_TURNS, StoredBarrier,
};
use xb_repo::archive::stream::StoredPosition;
use xb_repo::hex::hex;

use crate::archive_error::ArchiveError;

/// A segment has at most about this many plain bytes.
pub(crate) const SIZE: usize = 16 << 20;
/// The same with hardly any memory.
const LEAST_SIZE: usize = 1 << 20;
/// Copies of a segment that may be in memory at once: one that grows, one that waits, one as it is and compressed and with
/// its head, those that are being stored, and what the allocator keeps.
const COPIES: u64 = 12;
/// Most bytes of an event outside of a transaction: it is in one segment, whatever its size, so all of it would be held. The
/// longest that a server writes there is the list of the GTIDs before a log, of which the reader takes 4 MiB; the next are
/// shorter than a page.
const MAX_OUTSIDE: usize = (4 << 20) + 4096;

/// Returns at how many plain bytes a segment is cut, if all that are in memory at once may take `memory` bytes.
pub(crate) fn segment_size(memory: u64) -> usize {
    usize::try_from(memory / COPIES).unwrap_or(usize::MAX).clamp(LEAST_SIZE, SIZE)
}

/// A segment before it is numbered and sealed.
#[derive(Debug)]
pub(crate) struct Cut {
    pub(crate) bytes: Vec<u8>,
    pub(crate) from: StoredPosition,
    pub(crate) to: StoredPosition,
    pub(crate) next_log: Option<String>,
    pub(crate) description: Vec<u8>,
    pub(crate) gtids_before: Option<String>,
    pub(crate) gtids_after: Option<String>,
    pub(crate) starts_inside: bool,
    pub(crate) ends_inside: bool,
    pub(crate) transactions: u64,
    pub(crate) contents: Contents,
    /// [`SegmentHead::turns`](xb_repo::archive::segment::SegmentHead::turns).
    pub(crate) turns: Option<Vec<String>>,
    pub(crate) times: Times,
    pub(crate) received: [Timestamp; 2],
    pub(crate) last: Option<LastTransaction>,
    pub(crate) barriers: Vec<StoredBarrier>,
    pub(crate) more_barriers: u64,
    pub(crate) prepared: u64,
    pub(crate) altering: u64,
}

/// Times of commits: the first and the last; the greatest of those that are not ahead of the clock; those ahead.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Times {
    first: Option<u32>,
    last: u32,
    greatest: Option<u32>,
    ahead: Vec<u32>,
}

impl Times {
    fn add(&mut self, seconds: u32, now: Timestamp) {
        self.first = self.first.or(Some(seconds));
        self.last = seconds;
        self.ahead.push(seconds);
        // Those that are not ahead of the clock by now never will be.
        self.pass(now);
    }

    /// Counts the times that the clock has reached.
    fn pass(&mut self, now: Timestamp) {
        let clock = now.as_second().saturating_add(AHEAD);
        let reached = self.ahead.extract_if(.., |time| i64::from(*time) <= clock).max();
        self.greatest = self.greatest.max(reached);
    }

    /// Adds those of the transactions that follow.
    fn join(&mut self, next: Self, now: Timestamp) {
        if next.first.is_some() {
            self.last = next.last;
        }
        self.first = self.first.or(next.first);
        self.greatest = self.greatest.max(next.greatest);
        self.ahead.extend(next.ahead);
        self.pass(now);
    }

    pub(crate) fn commits(&self) -> Option<Commits> {
        let (first, greatest) = self.first.zip(self.greatest)?;
        Some(Commits { first, last: self.last, greatest })
    }
}

/// Content of transactions, in their order, if it is known of all of them.
#[derive(Debug, Clone)]
pub(crate) struct Contents(Option<Vec<Content>>);

impl Default for Contents {
    fn default() -> Self {
        Self(Some(Vec::new()))
    }
}

impl Contents {
    /// Adds that of the next transaction.
    fn add(&mut self, content: Option<Content>) {
        match (&mut self.0, content) {
            (Some(all), Some(content)) => all.push(content),
            (all, _) => *all = None,
        }
    }

    fn join(&mut self, next: Self) {
        match (&mut self.0, next.0) {
            (Some(all), Some(next)) => all.extend(next),
            (all, _) => *all = None,
        }
    }

    /// Returns their content in each domain or of each source.
    pub(crate) fn stretch(&self) -> Option<Stretch> {
        let mut stretch = Stretch::default();
        self.0.as_ref()?.iter().for_each(|content| stretch.add(content));
        Some(stretch)
    }
}

impl Cut {
    /// When its log was made, by the server's clock, in seconds since 1970.
    pub(crate) fn log_made(&self) -> Option<u32> {
        self.description.first_chunk().copied().map(u32::from_le_bytes)
    }

    /// Adds the segment that follows in the same log, if both have at most `size` bytes together; else returns it.
    pub(crate) fn join(&mut self, next: Self, size: usize) -> Option<Self> {
        if self.next_log.is_some()
            || self.to != next.from
            // Both state their times: they show that the clock went back.
            || next.received[0] < self.received[0]
            || self.bytes.len() + next.bytes.len() > size
        {
            return Some(next);
        }
        let [_, received] = next.received;
        self.bytes.extend_from_slice(&next.bytes);
        self.transactions += next.transactions;
        self.contents.join(next.contents);
        self.turns = self.turns.take().zip(next.turns).map(|(mut turns, next)| {
            turns.extend(next);
            turns.truncate(MAX_TURNS);
            turns
        });
        self.times.join(next.times, received);
        self.received = [self.received[0], received.max(self.received[1])];
        let room = MAX_BARRIERS - self.barriers.len().min(MAX_BARRIERS);
        self.more_barriers += next.more_barriers + next.barriers.len().saturating_sub(room) as u64;
        self.barriers.extend(next.barriers.into_iter().take(room));
        (self.to, self.next_log, self.description) = (next.to, next.next_log, next.description);
        (self.gtids_after, self.ends_inside) = (next.gtids_after, next.ends_inside);
        (self.last, self.prepared, self.altering) = (next.last, next.prepared, next.altering);
        None
    }
}

/// Result of some bytes.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Segments that are whole.
    pub(crate) cuts: Vec<Cut>,
    /// The server was idle, and everything that it sent is in segments.
    pub(crate) is_idle: bool,
}

impl Progress {
    /// Returns whether it is that of most events.
    pub(crate) fn is_nothing(&self) -> bool {
        self.cuts.is_empty() && !self.is_idle
    }
}

/// Turns events into segments.
#[derive(Debug)]
pub(crate) struct Segmenter {
    reader: SentReader,
    history: History,
    /// Age of an unstored byte at which a segment is cut.
    age: Duration,
    size: usize,
    current: Option<Current>,
    /// The last transaction before those of `current`.
    last: Option<LastTransaction>,
    /// The last one since then.
    newest: Option<Newest>,
    open: Option<Open>,
    /// Content of the open transaction, and whether its GTID follows those before it.
    content: ContentDigest,
    is_in_order: bool,
    /// The transaction before it in its domain of MariaDB, if that is of another server.
    turn: Option<Gtid>,
    /// Number of bytes of the next event that have arrived.
    arrived: u64,
    gtids_before: Option<String>,
}

/// A transaction without its end, as far as a digest of its bytes needs it.
#[derive(Debug)]
struct Open {
    /// Where its bytes in the present segment begin.
    begin: usize,
    /// Digest of its bytes in the segments before.
    before: Sha256,
}

/// A [`LastTransaction`], as it costs least: most are followed by another one, and need no digest.
#[derive(Debug)]
struct Newest {
    gtid: AnyGtid,
    from: LogPosition,
    to: u64,
    /// Its bytes in the present segment.
    bytes: Range<usize>,
    /// Digest of its bytes in the segments before.
    before: Sha256,
}

impl Newest {
    /// The same, of a segment with these bytes.
    fn of_segment(self, bytes: &[u8]) -> Result<LastTransaction, ArchiveError> {
        let Self { gtid, from, to, bytes: part, before } = self;
        let part = bytes.get(part).ok_or(ArchiveError::Bug("a transaction without bytes"))?;
        Ok(LastTransaction {
            gtid: gtid.to_string(),
            from: StoredPosition::from(&from),
            to: StoredPosition::from(&from.at(to)),
            sha256: hex(&before.chain_update(part).finalize()),
        })
    }
}

/// A segment that grows.
#[derive(Debug)]
struct Current {
    bytes: Vec<u8>,
    from: LogPosition,
    begun: Timestamp,
    starts_inside: bool,
    transactions: u64,
    contents: Contents,
    turns: Vec<String>,
    times: Times,
    barriers: Vec<StoredBarrier>,
    more_barriers: u64,
}

impl Segmenter {
    /// Begins where `reader` and `history` are, between two transactions.
    pub(crate) fn new(
        reader: SentReader,
        history: History,
        last: Option<LastTransaction>,
        age: Duration,
        size: usize,
    ) -> Self {
        let gtids_before = history.gtids().map(ToString::to_string);
        Self {
            reader,
            history,
            age,
            size,
            current: None,
            last,
            newest: None,
            open: None,
            content: ContentDigest::new(),
            is_in_order: true,
            turn: None,
            arrived: 0,
            gtids_before,
        }
    }

    /// Takes bytes of a packet.
    pub(crate) fn take(
        &mut self,
        mut input: &[u8],
        is_last: bool,
        now: Timestamp,
    ) -> Result<Progress, ArchiveError> {
        let mut progress = Progress::default();
        loop {
            // What arrives is appended where it stays.
            let from = self.current.is_none().then(|| self.reader.position().cloned()).flatten();
            let grown = self.current.as_mut().map(|current| std::mem::take(&mut current.bytes));
            let mut bytes = grown.unwrap_or_default();
            let before = bytes.len();
            let sent = self.reader.next(&mut input, &mut bytes);
            if sent.is_err() {
                bytes.truncate(before);
            }
            self.store(from.as_ref(), bytes, before, now)?;
            let sent = sent?;
            let Some(sent) = sent else { break };
            self.event(&sent, &mut progress, now)?;
        }
        // A transaction of any size passes in the memory of a segment.
        // A reader finds the event that begins a transaction in one segment.
        let is_whole = self.open.is_some() || self.arrived == 0;
        let is_full = self.current.as_ref().is_some_and(|one| one.bytes.len() >= self.size);
        if is_full && is_whole {
            self.cut(None, now, &mut progress)?;
        }
        if is_last {
            self.reader.end_packet()?;
        }
        Ok(progress)
    }

    /// Cuts what was received, if it ends between two transactions.
    pub(crate) fn cut_whole(&mut self, now: Timestamp) -> Result<Progress, ArchiveError> {
        let mut progress = Progress::default();
        let is_whole = self.history.open().is_none() && self.arrived == 0;
        // A log begins with the GTIDs before it, which every segment states.
        if is_whole && self.history.gtids().is_some() {
            self.cut(None, now, &mut progress)?;
        }
        Ok(progress)
    }

    /// Name of the log that has the next event.
    pub(crate) fn log(&self) -> &str {
        self.history.log()
    }

    /// The reader of what is sent.
    pub(crate) fn reader(&self) -> &SentReader {
        &self.reader
    }

    /// Cuts what was received when nothing more comes. The part of an event, and a transaction without an end,
    /// need no segment of their own: they will be sent again.
    pub(crate) fn finish(&mut self, now: Timestamp) -> Result<Progress, ArchiveError> {
        let mut progress = Progress::default();
        if let Some(mut current) = self.current.take() {
            let part = usize::try_from(self.arrived).unwrap_or(usize::MAX);
            let whole = current.bytes.len().saturating_sub(part);
            current.bytes.truncate(whole);
            let is_of_use = self.history.open().is_none() || current.transactions > 0;
            if whole > 0 && is_of_use && self.history.gtids().is_some() {
                self.current = Some(current);
                self.cut(None, now, &mut progress)?;
            }
        }
        Ok(progress)
    }

    /// Stores the bytes of a segment, of which those behind `before` are new: of the event that is arriving.
    fn store(
        &mut self,
        from: Option<&LogPosition>,
        bytes: Vec<u8>,
        before: usize,
        now: Timestamp,
    ) -> Result<(), ArchiveError> {
        let current = match &mut self.current {
            Some(current) => {
                current.bytes = bytes;
                current
            }
            None if bytes.is_empty() => return Ok(()),
            None => {
                let from = from.ok_or(ArchiveError::Bug("bytes of no log"))?;
                self.current.insert(Current {
                    bytes,
                    // The event may have begun in an earlier segment.
                    from: from.at(from.offset() + self.arrived),
                    begun: now,
                    starts_inside: self.history.open().is_some(),
                    transactions: 0,
                    contents: Contents::default(),
                    turns: Vec::new(),
                    times: Times::default(),
                    barriers: Vec::new(),
                    more_barriers: 0,
                })
            }
        };
        let new = current.bytes.get(before..).unwrap_or_default();
        self.arrived += new.len() as u64;
        if let Some(format) = self.reader.format() {
            self.content.take(new, format.fork, format.checksums);
        }
        // By its header, before its body comes.
        if self.open.is_none() {
            let arrived = usize::try_from(self.arrived).unwrap_or(usize::MAX);
            let begin = current.bytes.len().saturating_sub(arrived);
            let head = current.bytes.get(begin..).unwrap_or_default().first_chunk();
            let header = head.map(EventHeader::parse);
            if let Some(EventHeader { event_type, .. }) =
                header.filter(|header| header.length as usize > MAX_OUTSIDE)
            {
                let at = self.reader.position().map_or(0, LogPosition::offset);
                return Err(Error::TooLong { at, event_type, limit: MAX_OUTSIDE }.into());
            }
        }
        Ok(())
    }

    fn event(
        &mut self,
        sent: &SentEvent,
        progress: &mut Progress,
        now: Timestamp,
    ) -> Result<(), ArchiveError> {
        let entry = sent.entry();
        if matches!(entry.event, Event::Heartbeat) {
            self.cut_if_old(now, progress)?;
            progress.is_idle = self.current.is_none();
            return Ok(());
        }
        // A server that crashed ends its log without an event.
        if let (SentEvent::Artificial(_), Event::Rotate(rotate)) = (sent, &entry.event) {
            if self.current.is_some() {
                self.cut(Some(&rotate.file), now, progress)?;
            }
            self.open = None;
            self.content.clear();
        }
        let step = self.history.push(entry)?;
        let SentEvent::Log(_) = sent else {
            return Ok(());
        };
        self.arrived = 0;
        let current = self.current.as_mut().ok_or(ArchiveError::Bug("an event without bytes"))?;
        // Behind this event.
        let position = self.reader.position().ok_or(ArchiveError::Bug("an event of no log"))?;
        let anonymous = || ArchiveError::Anonymous { log: position.log().to_owned() };
        if let Event::MySqlBegin(begin) = &entry.event
            && begin.gtid.is_none()
        {
            return Err(anonymous());
        }
        if let Some(barrier) = step.barrier {
            match current.barriers.len() < MAX_BARRIERS {
                true => {
                    let at = StoredPosition::from(&position.at(entry.begin));
                    current.barriers.push(StoredBarrier::new(barrier, at));
                }
                false => current.more_barriers += 1,
            }
        }
        let begins = self.history.open().is_some_and(|open| open.begin == entry.begin)
            || step.ended.as_ref().is_some_and(|ended| ended.begin == entry.begin);
        match step.ended.is_some() || self.history.open().is_some() {
            true => self.content.end_event(entry),
            false => self.content.clear(),
        }
        if begins {
            // It is in one segment.
            let length = usize::try_from(entry.end.saturating_sub(entry.begin));
            let begin = length.ok().and_then(|length| current.bytes.len().checked_sub(length));
            let begin = begin.ok_or(ArchiveError::Bug("a transaction without bytes"))?;
            self.open = Some(Open { begin, before: Sha256::new() });
            let gtid = self.history.open().and_then(|open| open.first.gtid());
            let gtids = self.history.gtids();
            self.is_in_order =
                gtid.as_ref().zip(gtids).is_none_or(|(gtid, gtids)| gtids.is_in_order(gtid));
            self.turn = gtid.as_ref().zip(gtids).and_then(|(gtid, gtids)| turn(gtids, gtid));
        }
        if let Some(ended) = step.ended {
            current.transactions += 1;
            let content = self.content.end_transaction(&ended);
            if !step.is_repeat {
                current.times.add(ended.seconds, now);
                current.contents.add(content.filter(|_| self.is_in_order));
                if let Some(turn) = self.turn.take().filter(|_| current.turns.len() < MAX_TURNS) {
                    current.turns.push(turn.to_string());
                }
            }
            let open = self.open.take();
            let Open { begin, before } =
                open.ok_or(ArchiveError::Bug("a transaction without bytes"))?;
            self.newest = Some(Newest {
                gtid: ended.first.gtid().ok_or_else(anonymous)?,
                from: position.at(ended.begin),
                to: ended.end,
                bytes: begin..current.bytes.len(),
                before,
            });
        }
        if let Event::GtidList(_) | Event::PreviousGtids(_) = &entry.event
            && current.transactions == 0
            && self.gtids_before.is_none()
        {
            self.gtids_before = self.history.gtids().map(ToString::to_string);
        }
        match &entry.event {
            Event::Rotate(rotate) => self.cut(Some(&rotate.file), now, progress)?,
            _ if self.history.open().is_none() => self.cut_if_old(now, progress)?,
            _ => {}
        }
        Ok(())
    }

    /// Cuts between two transactions, if a byte is old enough or there are enough of them.
    fn cut_if_old(&mut self, now: Timestamp, progress: &mut Progress) -> Result<(), ArchiveError> {
        let is_due = self.current.as_ref().is_some_and(|current| {
            let age = now.duration_since(current.begun);
            current.bytes.len() >= self.size
                // Below zero, the clock was set back: how old it is, is not known.
                || Duration::try_from(age).map_or(true, |age| age >= self.age)
        });
        // A log begins with the GTIDs before it, which every segment states.
        match is_due && self.history.open().is_none() && self.history.gtids().is_some() {
            true => self.cut(None, now, progress),
            false => Ok(()),
        }
    }

    fn cut(
        &mut self,
        next_log: Option<&str>,
        now: Timestamp,
        progress: &mut Progress,
    ) -> Result<(), ArchiveError> {
        let Some(mut current) = self.current.take() else { return Ok(()) };
        if let Some(newest) = self.newest.take() {
            self.last = Some(newest.of_segment(&current.bytes)?);
        }
        if let Some(open) = &mut self.open {
            open.before.update(current.bytes.get(open.begin..).unwrap_or_default());
            open.begin = 0;
        }
        current.times.pass(now);
        let from = StoredPosition::from(&current.from);
        let to = StoredPosition {
            log: from.log.clone(),
            offset: from.offset + current.bytes.len() as u64,
        };
        let gtids_after = self.history.gtids().map(ToString::to_string);
        let gtids_before = std::mem::replace(&mut self.gtids_before, gtids_after.clone());
        let is_mariadb = self.reader.format().is_some_and(|format| format.fork == Fork::MariaDb);
        progress.cuts.push(Cut {
            from,
            to,
            next_log: next_log.map(str::to_owned),
            description: self.reader.description().to_vec(),
            gtids_before,
            gtids_after,
            starts_inside: current.starts_inside,
            ends_inside: self.history.open().is_some(),
            transactions: current.transactions,
            contents: current.contents,
            turns: is_mariadb.then_some(current.turns),
            times: current.times,
            received: [current.begun, now.max(current.begun)],
            last: self.last.clone(),
            barriers: current.barriers,
            more_barriers: current.more_barriers,
            prepared: self.history.prepared().count() as u64,
            altering: self.history.altering().count() as u64,
            bytes: current.bytes,
        });
        Ok(())
    }
}

/// The last transaction in the domain of the next one, if it is of another server.
fn turn(gtids: &GtidState, next: &AnyGtid) -> Option<Gtid> {
    match (gtids, next) {
        (GtidState::MariaDb(gtids), AnyGtid::MariaDb(next)) => {
            gtids.get(next.domain).filter(|last| last.server != next.server)
        }
        _ => None,
    }
}

#[cfg(test)]
pub(in crate::binlog) mod tests {
    use proptest::prelude::*;
    use xb_binlog::{ChecksumKind, Reader};

    use super::*;

    /// The server names the log that it sends, from its first event on.
    pub(in crate::binlog) const ROTATION: &[u8] =
        b"\0\0\0\0\x04\x01\0\0\0\x25\0\0\0\0\0\0\0\x20\0\x04\0\0\0\0\0\0\0bin.000003";

    /// Where the events of a log begin.
    pub(in crate::binlog) fn events(log: &[u8]) -> Vec<(usize, usize)> {
        let (mut reader, mut input, mut found) = (Reader::new(), log, Vec::new());
        while let Some(entry) = reader.next(&mut input).unwrap() {
            found
                .push((usize::try_from(entry.begin).unwrap(), usize::try_from(entry.end).unwrap()));
        }
        found
    }

    #[test]
    fn little_memory_makes_small_segments() {
        let mib = |memory: u64| segment_size(memory << 20) >> 20;
        assert_eq!([mib(0), mib(12), mib(64), mib(128), mib(512)], [1, 1, 5, 10, 16]);
        assert_eq!(segment_size(u64::MAX), SIZE);
    }

    #[test]
    fn a_clock_that_is_set_back_keeps_nothing_from_being_stored() {
        let log = xb_testkit::vectors::read("binlog/mariadb.000003-no-checksum");
        let now = Timestamp::from_second(2_000_000_000).unwrap();
        let before = now - jiff::SignedDuration::from_hours(1);
        let reader = SentReader::new(ChecksumKind::None);
        let (age, history) = (Duration::from_secs(5), History::new("bin.000003", None));
        let mut segmenter = Segmenter::new(reader, history, None, age, SIZE);
        let _ = segmenter.take(ROTATION, true, now).unwrap();
        let mut cuts = Vec::new();
        for (number, (begin, end)) in events(&log).into_iter().enumerate() {
            let now = if number < 4 { now } else { before };
            cuts.extend(segmenter.take(&log[begin..end], true, now).unwrap().cuts);
        }
        assert!(!cuts.is_empty());
    }

    /// It would be in one segment, and all of it in memory.
    #[test]
    fn a_long_event_outside_of_a_transaction_is_refused_by_its_header() {
        for fork in ["mariadb", "mysql"] {
            let log = xb_testkit::vectors::read(&format!("binlog/{fork}.000003-no-checksum"));
            let now = Timestamp::from_second(2_000_000_000).unwrap();
            let begun = || {
                let reader = SentReader::new(ChecksumKind::None);
                let history = History::new("bin.000003", None);
                let mut segmenter = Segmenter::new(reader, history, None, Duration::MAX, SIZE);
                let _ = segmenter.take(ROTATION, true, now).unwrap();
                // The description and the GTIDs.
                for (begin, end) in events(&log).into_iter().take(2) {
                    let _ = segmenter.take(&log[begin..end], true, now).unwrap();
                }
                (segmenter, u32::try_from(events(&log)[1].1).unwrap())
            };
            // Rows, a statement, a checkpoint, and events of a later version.
            for kind in [2, 30, 161, 200] {
                let (mut segmenter, at) = begun();
                let header = |length: u32| {
                    let fields = [1, length, at.wrapping_add(length)].map(u32::to_le_bytes);
                    [&[0, 0, 0, 0, kind][..], &fields.concat(), &[0, 0]].concat()
                };
                let error = segmenter.take(&header(1 << 30), false, now).unwrap_err().to_string();
                assert!(error.contains("more than 4198400 bytes"), "{fork} {kind}: {error}");
                let (mut segmenter, _) = begun();
                assert!(segmenter.take(&header(4 << 20), false, now).is_ok(), "{fork} {kind}");
            }
        }
    }

    #[test]
    fn segments_that_are_joined_are_one_that_was_not_cut() {
        for fork in ["mariadb", "mysql"] {
            let log = xb_testkit::vectors::read(&format!("binlog/{fork}.000003-no-checksum"));
            let now = Timestamp::from_second(2_000_000_000).unwrap();
            let cuts = |age| {
                let reader = SentReader::new(ChecksumKind::None);
                let mut segmenter =
                    Segmenter::new(reader, History::new("bin.000003", None), None, age, SIZE);
                let mut cuts = segmenter.take(ROTATION, true, now).unwrap().cuts;
                for (begin, end) in events(&log) {
                    cuts.extend(segmenter.take(&log[begin..end], true, now).unwrap().cuts);
                }
                cuts.extend(segmenter.finish(now).unwrap().cuts);
                cuts
            };
            let whole = cuts(Duration::MAX);
            let mut pieces = cuts(Duration::ZERO).into_iter();
            let mut joined = pieces.next().unwrap();
            assert_eq!(
                (whole.len(), pieces.len() > 1),
                (1, true),
                "{fork}: {} pieces",
                pieces.len()
            );
            for piece in pieces {
                assert!(joined.join(piece, SIZE).is_none());
            }
            assert_eq!(format!("{joined:?}"), format!("{:?}", whole[0]));
            // Nothing is joined beyond the size of a segment, nor what does not follow.
            let mut pieces = cuts(Duration::ZERO).into_iter();
            let mut first = pieces.next().unwrap();
            assert!(first.join(pieces.nth(1).unwrap(), SIZE).is_some());
            let mut pieces = cuts(Duration::ZERO).into_iter();
            let mut first = pieces.next().unwrap();
            assert!(first.join(pieces.next().unwrap(), 100).is_some());
        }
    }

    /// What the heads say of the servers of a log, cut at this age.
    fn turns(log: &[u8], age: Duration) -> Vec<Option<Vec<String>>> {
        let now = Timestamp::from_second(2_000_000_000).unwrap();
        let reader = SentReader::new(ChecksumKind::None);
        let mut segmenter =
            Segmenter::new(reader, History::new("bin.000003", None), None, age, SIZE);
        let mut cuts = segmenter.take(ROTATION, true, now).unwrap().cuts;
        for (begin, end) in events(log) {
            cuts.extend(segmenter.take(&log[begin..end], true, now).unwrap().cuts);
        }
        cuts.extend(segmenter.finish(now).unwrap().cuts);
        cuts.into_iter().map(|cut| cut.turns).collect()
    }

    #[test]
    fn heads_name_the_last_transaction_of_each_server_before_another_one() {
        const GTID: u8 = 162;
        let mut log = xb_testkit::vectors::read("binlog/mariadb.000003-no-checksum");
        // The log begins behind 0-1-29. Another server wrote the next transaction, and this one the last.
        let mut begins = events(&log).into_iter().map(|(begin, _)| begin);
        let begin = begins.find(|begin| log[begin + 4] == GTID).unwrap();
        log[begin + 5..begin + 9].copy_from_slice(&9_u32.to_le_bytes());
        let expected = ["0-1-29", "0-9-30"].map(str::to_owned).to_vec();
        assert_eq!(turns(&log, Duration::MAX), [Some(expected.clone())]);
        let cut: Vec<String> =
            turns(&log, Duration::ZERO).into_iter().flatten().flatten().collect();
        assert_eq!(cut, expected);
        // A set of MySQL names all transactions.
        let log = xb_testkit::vectors::read("binlog/mysql.000003-no-checksum");
        assert_eq!(turns(&log, Duration::MAX), [None]);
    }

    proptest! {
        #[test]
        fn segments_are_the_log_cut_between_transactions(
            piece in 1_usize..300,
            size in 500_usize..2000,
            age in 0_u64..3,
            is_mysql: bool,
        ) {
            let fork = if is_mysql { "mysql" } else { "mariadb" };
            let log = xb_testkit::vectors::read(&format!("binlog/{fork}.000003-no-checksum"));
            let reader = SentReader::new(ChecksumKind::None);
            let history = History::new("bin.000003", None);
            let age = Duration::from_secs(age);
            let mut segmenter = Segmenter::new(reader, history, None, age, size);
            let mut now = Timestamp::from_second(2_000_000_000).unwrap();
            let mut cuts = segmenter.take(ROTATION, true, now).unwrap().cuts;
            for (begin, end) in events(&log) {
                let packet = &log[begin..end];
                let pieces = packet.chunks(piece).count();
                for (n, part) in packet.chunks(piece).enumerate() {
                    cuts.extend(segmenter.take(part, n + 1 == pieces, now).unwrap().cuts);
                }
                now += Duration::from_secs(1);
            }
            let heartbeat = [&[0, 0, 0, 0, 27, 1, 0, 0, 0, 19, 0, 0, 0][..], &[0; 6]].concat();
            now += Duration::from_secs(9);
            let progress = segmenter.take(&heartbeat, true, now).unwrap();
            prop_assert!(progress.is_idle);
            cuts.extend(progress.cuts);
            let mut offset = 4;
            let mut before: Option<&Cut> = None;
            for cut in &cuts {
                let end = offset + cut.bytes.len();
                prop_assert_eq!(cut.from.offset, offset as u64);
                prop_assert_eq!(cut.to.offset, end as u64);
                prop_assert!(cut.bytes == log[offset..end]);
                prop_assert!(!cut.ends_inside || cut.bytes.len() >= size);
                if let Some(before) = before {
                    prop_assert_eq!(cut.starts_inside, before.ends_inside);
                    prop_assert_eq!(&cut.gtids_before, &before.gtids_after);
                }
                if let Some(last) = &cut.last {
                    let place = usize::try_from(last.from.offset).unwrap()
                        ..usize::try_from(last.to.offset).unwrap();
                    prop_assert_eq!(&last.sha256, &hex(&Sha256::digest(&log[place])));
                }
                offset = end;
                before = Some(cut);
            }
            prop_assert_eq!(offset, log.len());
            let transactions: u64 = cuts.iter().map(|cut| cut.transactions).sum();
            prop_assert!(transactions > 1);
        }
    }
}
