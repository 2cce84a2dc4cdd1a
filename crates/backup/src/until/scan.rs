//! Reads the logs up to the stop, without writing anything: what a replay will do, and whether it can.

use std::fmt;

use jiff::Timestamp;
use xb_binlog::{
    AnyGtid, Entry, Error, Gtid, GtidPosition, GtidState, History, LogPosition, MAGIC, Reader,
    RelayEnd, RelayError, RelayPlan, RelayWriter, Repeats, Step, Transaction, TransactionSummary,
};
use xb_repo::archive::segment::AHEAD;
use xb_repo::archive::stop::{Cutter, RestoreStop};

use crate::until_error::UntilError;

/// Bytes of a transaction that are looked at to describe it.
const DESCRIBED: usize = 4096;

/// A transaction beside the stop.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AdjacentTransaction {
    /// Its GTID.
    pub gtid: String,
    /// Position of its first byte, as `FILE:POSITION`.
    pub at: String,
    /// Time of its commit; of MariaDB, that at which the statement that commits it began.
    pub time: Timestamp,
    /// Tables whose rows it changes.
    pub tables: Vec<String>,
    /// Its first statement, without what may be a password.
    pub statement: Option<String>,
}

/// `0-1-26 of 2026-11-20T14:02:59Z at bin.000003:1343 on shop.orders (DELETE FROM orders)`
impl fmt::Display for AdjacentTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} at {}", self.gtid, self.time, self.at)?;
        if !self.tables.is_empty() {
            write!(f, " on {}", self.tables.join(", "))?;
        }
        self.statement.as_ref().map_or(Ok(()), |statement| write!(f, " ({statement})"))
    }
}

/// Where to begin, and where to stop.
pub(super) struct Span {
    /// The position that the data has, with its transactions.
    pub(super) start: LogPosition,
    pub(super) gtids: GtidState,
    /// Its transactions in domains of which the log before the start has nothing.
    pub(super) outside: GtidPosition,
    pub(super) stop: RestoreStop,
    /// End of the last whole transaction of the archive: behind it, one may be unfinished.
    pub(super) end: LogPosition,
    /// Number of servers before the one whose logs have that end, or the stop if it is a position.
    pub(super) servers: usize,
    /// The stop must be found before that end.
    pub(super) must_be_found: bool,
    /// Transactions to leave out.
    pub(super) plan: RelayPlan,
}

/// Content of the logs up to the stop.
pub(super) struct Scanned {
    /// The stop as a position.
    pub(super) stop: LogPosition,
    pub(super) end: RelayEnd,
    /// The last transaction before the stop, and the first one behind it, if it is known.
    pub(super) last: Option<AdjacentTransaction>,
    pub(super) next: Option<AdjacentTransaction>,
    /// Bytes of the logs from the start to the stop.
    pub(super) bytes: u64,
    /// Transactions with a time ahead of the receiver's clock, which decided nothing.
    pub(super) ahead: u64,
    /// Number of servers before the one whose logs have the stop.
    pub(super) servers: usize,
}

/// Reads logs from a position on.
pub(super) struct Scanner {
    span: Span,
    cutter: Cutter,
    writer: RelayWriter,
    /// Output of the writer, which is dropped.
    out: Vec<u8>,
    history: History,
    log: Option<Log>,
    /// First bytes of the present transaction, and its first event; the same of the one before.
    open: ScannedTransaction,
    last: Option<ScannedTransaction>,
    stopped: Option<LogPosition>,
    next: Option<AdjacentTransaction>,
    bytes: u64,
    ahead: u64,
    /// The first transaction that may lie behind the stop, and the seconds by which it is ahead of the receiver's clock.
    doubt: Option<(AdjacentTransaction, i64)>,
    /// Number of the present server, or of that of the stop.
    server: usize,
    /// Transactions with the GTID of the stop: behind it, another one is looked for.
    met: Vec<TransactionPlace>,
    /// Number of the server whose logs are read, also behind the stop.
    read: usize,
    /// Nothing more can be read behind the stop. That does not concern the restore.
    is_blind: bool,
}

/// Where a transaction lies.
struct TransactionPlace {
    begin: LogPosition,
    end: u64,
}

/// `bin.000003:1343 to 1500`
impl fmt::Display for TransactionPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.begin, self.end)
    }
}

/// A log that is being read.
struct Log {
    name: String,
    reader: Reader,
    description: Vec<u8>,
    /// Offset of the next byte, which may lie within an event.
    next: u64,
}

/// A transaction as it was seen.
#[derive(Debug, Clone, Default)]
struct ScannedTransaction {
    begin: u64,
    log: String,
    gtid: Option<AnyGtid>,
    micros: u64,
    bytes: Vec<u8>,
    description: Vec<u8>,
}

impl ScannedTransaction {
    fn neighbour(&self) -> Option<AdjacentTransaction> {
        let log = [&MAGIC[..], &self.description].concat();
        let summary = TransactionSummary::read(&log, &self.bytes);
        let (tables, statement) =
            summary.map_or((Vec::new(), None), |summary| (summary.tables, summary.statement));
        Some(AdjacentTransaction {
            gtid: self.gtid.as_ref()?.to_string(),
            at: format!("{}:{}", self.log, self.begin),
            time: time(self.micros)?,
            tables,
            statement,
        })
    }
}

/// The time that decides a stop, as it is compared.
fn time(micros: u64) -> Option<Timestamp> {
    Timestamp::from_microsecond(i64::try_from(micros).ok()?).ok()
}

impl Scanner {
    pub(super) fn new(span: Span) -> Self {
        let cutter = Cutter::new(&span.stop);
        let gtids = Some(span.gtids.clone());
        let history = History::new(span.start.log(), gtids);
        let writer = RelayWriter::new(span.plan.clone());
        Self {
            span,
            cutter,
            writer,
            out: Vec::new(),
            history,
            log: None,
            open: ScannedTransaction::default(),
            last: None,
            stopped: None,
            next: None,
            bytes: 0,
            ahead: 0,
            doubt: None,
            server: 0,
            met: Vec::new(),
            read: 0,
            is_blind: false,
        }
    }

    /// Returns whether nothing more is to be read: behind a stop at a GTID, another transaction may have it.
    pub(super) fn is_done(&self) -> bool {
        let has_looked = || self.is_blind || self.met.len() > 1 || self.gtid().is_none();
        self.stopped.is_some() && has_looked()
    }

    /// The GTID of the stop, if it is one of MariaDB: a server without `gtid_strict_mode` may give it twice.
    fn gtid(&self) -> Option<&AnyGtid> {
        match &self.span.stop {
            RestoreStop::Gtid(gtid @ AnyGtid::MariaDb(_))
            | RestoreStop::BeforeGtid(gtid @ AnyGtid::MariaDb(_)) => Some(gtid),
            _ => None,
        }
    }

    /// Notes a transaction of this log if it has the GTID of the stop.
    fn meet(&mut self, ended: &Transaction, log: &str) {
        if self.gtid().is_some_and(|gtid| ended.first.gtid().as_ref() == Some(gtid))
            && let Some(begin) = LogPosition::new(log, ended.begin)
        {
            self.met.push(TransactionPlace { begin, end: ended.end });
        }
    }

    /// Looks behind the stop for another transaction of its GTID.
    fn look(&mut self, mut input: &[u8]) {
        while !self.is_done() {
            let Some(log) = &mut self.log else { return };
            let name = self.history.log().to_owned();
            let step = match log.reader.next(&mut input) {
                Ok(Some(entry)) => self.history.push(&entry),
                Ok(None) => return,
                Err(error) => Err(error),
            };
            match step {
                Ok(Step { ended: Some(ended), is_repeat: false, .. }) => self.meet(&ended, &name),
                Ok(_) => {}
                Err(_) => self.is_blind = true,
            }
        }
    }

    /// Continues on the server of this number. What it repeats is passed over.
    pub(super) fn on_server(
        &mut self,
        server: usize,
        repeats: Option<&Repeats>,
    ) -> Result<(), RelayError> {
        if self.read != server {
            self.read = server;
            self.log = None;
            self.history.next_server(repeats.cloned());
            if self.stopped.is_none() {
                self.server = server;
                self.writer.next_server(repeats.cloned())?;
            }
        }
        Ok(())
    }

    /// Whether a domain counts as one of which the log has nothing before the start.
    pub(super) fn has_outside(&self) -> bool {
        self.span.outside.iter().next().is_some()
    }

    /// Takes the GTIDs that the log has at the start: of these domains, it has something before it.
    pub(super) fn has_before(&mut self, found: &GtidState) {
        let GtidState::MariaDb(found) = found else { return };
        let mut outside = GtidPosition::default();
        let is_left = |gtid: &&Gtid| found.get(gtid.domain).is_none();
        self.span.outside.iter().filter(is_left).for_each(|gtid| outside.advance(*gtid));
        self.span.outside = outside;
    }

    /// Returns whether the present server's logs have the end, and the stop if it is a position.
    fn is_last_server(&self) -> bool {
        self.server == self.span.servers
    }

    /// Whether the data has a transaction already, of a domain of which the log had nothing. A server that continues such
    /// a domain gives it higher numbers.
    fn is_outside(&self, gtid: &AnyGtid) -> bool {
        matches!(gtid, AnyGtid::MariaDb(gtid) if self.server == 0 && self.span.outside.is_past(*gtid))
    }

    /// Returns whether a position is the stop.
    fn is_stop(&self, at: &LogPosition) -> bool {
        self.is_last_server() && self.span.stop == RestoreStop::Position(at.clone())
    }

    /// Begins a log, or continues it, at `offset`.
    pub(super) fn begin(
        &mut self,
        name: &str,
        description: &[u8],
        offset: u64,
    ) -> Result<(), RelayError> {
        if self.log.as_ref().is_some_and(|log| log.name == name && log.next == offset) {
            return Ok(());
        }
        let failed = |error| RelayError::Log { log: name.to_owned(), error };
        let has_stopped = self.stopped.is_some();
        if !has_stopped {
            self.writer.begin_log(name, description, offset)?;
        }
        let is_next = self.log.is_some() || self.history.log() != name;
        if is_next && self.history.next_log(name).is_some() && !has_stopped {
            // Another transaction may get the number of the one that the server has not finished.
            if let RestoreStop::Gtid(_) = self.span.stop {
                self.cutter = Cutter::new(&self.span.stop);
            }
        }
        let reader = match Reader::resume(description, offset) {
            Err(_) if has_stopped => {
                self.is_blind = true;
                return Ok(());
            }
            reader => reader.map_err(failed)?,
        };
        self.log = Some(Log {
            name: name.to_owned(),
            reader,
            description: description.to_vec(),
            next: offset,
        });
        let at = LogPosition::new(name, offset);
        let at = at.ok_or_else(|| RelayError::Name(name.to_owned()))?;
        if has_stopped {
            return Ok(());
        }
        // The data may be at the stop already.
        if (self.is_last_server() && at == self.span.end) || self.is_stop(&at) {
            self.stopped = Some(at);
        }
        Ok(())
    }

    /// Takes the bytes of a segment from the log's present position on. `clock` is that of its receiver.
    pub(super) fn take(&mut self, bytes: &[u8], clock: i64) -> Result<(), RelayError> {
        let log = self.log.as_mut().ok_or(RelayError::NoLog)?;
        let from = log.next;
        log.next += bytes.len() as u64;
        if self.stopped.is_some() {
            self.look(bytes);
            return Ok(());
        }
        let mut input = bytes;
        while !input.is_empty() && self.stopped.is_none() {
            let log = self.log.as_mut().ok_or(RelayError::NoLog)?;
            let entry = log.reader.next(&mut input);
            let entry = entry.map_err(|error| RelayError::Log { log: log.name.clone(), error })?;
            let Some(entry) = entry else { break };
            self.event(&entry, (from, bytes), clock)?;
        }
        let end = match &self.stopped {
            Some(stop) => stop.offset().saturating_sub(from),
            None => bytes.len() as u64,
        };
        let end = usize::try_from(end).unwrap_or(usize::MAX).min(bytes.len());
        let (taken, rest) = bytes.split_at(end);
        self.writer.push(taken, &mut self.out)?;
        self.out.clear();
        self.bytes += taken.len() as u64;
        if self.stopped.is_some() && self.next.is_none() {
            self.next = self.first_of(rest);
        }
        if self.stopped.is_some() {
            self.look(input);
        }
        Ok(())
    }

    /// The transaction that begins with these bytes, at the stop.
    fn first_of(&self, bytes: &[u8]) -> Option<AdjacentTransaction> {
        let (log, stop) = (self.log.as_ref()?, self.stopped.as_ref()?);
        let head = [&MAGIC[..], &log.description].concat();
        let bytes = bytes.get(..bytes.len().min(DESCRIBED))?;
        let summary = TransactionSummary::read(&head, bytes)?;
        Some(AdjacentTransaction {
            gtid: summary.gtid.to_string(),
            at: stop.to_string(),
            time: time(summary.micros)?,
            tables: summary.tables,
            statement: summary.statement,
        })
    }

    fn event(
        &mut self,
        entry: &Entry,
        (from, bytes): (u64, &[u8]),
        clock: i64,
    ) -> Result<(), RelayError> {
        let name = self.history.log().to_owned();
        let at =
            |offset| LogPosition::new(&name, offset).ok_or_else(|| RelayError::Name(name.clone()));
        let failed = |error: Error| RelayError::Log { log: name.clone(), error };
        let step = self.history.push(entry).map_err(failed)?;
        if let Some(open) = self.history.open().filter(|open| open.begin == entry.begin) {
            let gtid = open.first.gtid();
            let start = usize::try_from(open.begin.saturating_sub(from)).unwrap_or(usize::MAX);
            let first = bytes.get(start..).filter(|_| open.begin >= from).unwrap_or_default();
            self.open.bytes.clear();
            self.open.bytes.extend(first.iter().take(DESCRIBED));
            (self.open.begin, self.open.micros) = (open.begin, open.micros);
            self.open.gtid.clone_from(&gtid);
            self.open.log.clone_from(&name);
            if let Some(log) = &self.log {
                self.open.description.clone_from(&log.description);
            }
            let begin = at(open.begin)?;
            let gtid = gtid.ok_or_else(|| RelayError::Anonymous(begin.clone()))?;
            let is_repeat = self.history.is_repeat(&gtid, open.begin);
            let is_ahead = !is_repeat && i64::from(open.seconds) > clock;
            self.ahead += u64::from(is_ahead);
            let is_after = self.cutter.has_stopped();
            let is_before =
                matches!(self.span.stop, RestoreStop::Position(_)) && !self.is_last_server();
            let takes =
                is_repeat || is_before || self.cutter.takes(&begin, &gtid, open.micros, clock);
            if !self.cutter.is_doubtful() {
                self.doubt = None;
            } else if self.doubt.is_none() {
                let ahead = i64::from(open.seconds).saturating_sub(clock).saturating_add(AHEAD);
                self.doubt = self.open.neighbour().map(|transaction| (transaction, ahead));
            }
            if is_after || !takes {
                self.next = self.open.neighbour();
                self.stopped = Some(begin);
                return Ok(());
            }
            if self.is_outside(&gtid) {
                return Err(RelayError::Known(gtid));
            }
        }
        let end = at(entry.end)?;
        if let Some(ended) = step.ended.as_ref().filter(|_| !step.is_repeat) {
            self.meet(ended, &name);
        }
        if step.ended.is_some() {
            let mut repeated = None;
            let seen = match step.is_repeat {
                true => repeated.insert(std::mem::take(&mut self.open)),
                false => {
                    let seen = self.last.get_or_insert_default();
                    std::mem::swap(seen, &mut self.open);
                    seen
                }
            };
            if let (RestoreStop::Position(stop), Some(gtid)) = (&self.span.stop, seen.gtid.clone())
                && self.server == self.span.servers
                && stop.log() == name
                && (seen.begin + 1..entry.end).contains(&stop.offset())
            {
                let (stop, begin) = (xb_binlog::ReplayStop::At(stop.clone()), at(seen.begin)?);
                return Err(RelayError::Inside { stop, gtid, begin });
            }
            let is_last = self.cutter.has_stopped();
            if is_last || (self.is_last_server() && end == self.span.end) {
                self.stopped = Some(end.clone());
            }
        }
        if self.history.open().is_none() && self.is_stop(&end) {
            self.stopped = Some(end);
        }
        Ok(())
    }

    /// Ends the reading: at the stop, or at the end of everything.
    pub(super) fn finish(self) -> Result<Scanned, UntilError> {
        if let ([one, two, ..], Some(gtid)) = (&self.met[..], self.gtid()) {
            let (gtid, one, two) = (gtid.to_string(), one.to_string(), two.to_string());
            return Err(UntilError::Twice { gtid, one, two });
        }
        let stop = match (self.stopped, self.log.as_ref()) {
            (Some(stop), _) => stop,
            (None, Some(log)) => {
                let end = LogPosition::new(&log.name, log.reader.offset());
                let end = end.ok_or_else(|| RelayError::Name(log.name.clone()))?;
                let stop = self.span.stop.to_string();
                return Err(UntilError::NotFound { stop, end });
            }
            (None, None) => return Err(RelayError::NoLog.into()),
        };
        let is_found = match &self.span.stop {
            RestoreStop::Latest => true,
            RestoreStop::Time(_) => !self.span.must_be_found || self.cutter.has_stopped(),
            RestoreStop::Gtid(_) | RestoreStop::BeforeGtid(_) => self.cutter.has_stopped(),
            RestoreStop::Position(at) => *at == stop,
        };
        if !is_found {
            return Err(UntilError::NotFound { stop: self.span.stop.to_string(), end: stop });
        }
        if let Some((transaction, seconds)) = self.doubt {
            let (stop, transaction) = (self.span.stop.to_string(), transaction.to_string());
            return Err(UntilError::Clocks { stop, transaction, seconds });
        }
        Ok(Scanned {
            stop,
            end: self.writer.finish()?,
            last: self.last.as_ref().and_then(ScannedTransaction::neighbour),
            next: self.next,
            bytes: self.bytes,
            ahead: self.ahead,
            servers: self.server,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const NAME: &str = "bin.000003";
    /// Later than all events of the log.
    const CLOCK: i64 = 4_000_000_000;

    /// A transaction of the log.
    #[derive(Debug, Clone)]
    struct LoggedTransaction {
        gtid: AnyGtid,
        begin: u64,
        end: u64,
        micros: u64,
    }

    fn description(log: &[u8]) -> Vec<u8> {
        let length = u32::from_le_bytes(log[13..17].try_into().unwrap());
        log[4..4 + length as usize].to_vec()
    }

    /// All transactions, and the GTIDs before the first one.
    fn transactions(log: &[u8]) -> (Vec<LoggedTransaction>, GtidState) {
        let (mut reader, mut input) = (Reader::new(), log);
        let mut history = History::new(NAME, None);
        let (mut found, mut first) = (Vec::new(), None);
        while let Some(entry) = reader.next(&mut input).unwrap() {
            let open = history.open().map(|open| open.micros);
            let step = history.push(&entry).unwrap();
            if let (None, Some(gtids)) = (&first, history.gtids()) {
                first = Some(gtids.clone());
            }
            if let Some(ended) = step.ended {
                found.push(LoggedTransaction {
                    gtid: ended.first.gtid().unwrap(),
                    begin: ended.begin,
                    end: ended.end,
                    micros: open.unwrap_or_default(),
                });
            }
        }
        (found, first.unwrap())
    }

    fn position(offset: u64) -> LogPosition {
        LogPosition::new(NAME, offset).unwrap()
    }

    /// Reads the log from a transaction on, in pieces of these lengths.
    fn scan(
        log: &[u8],
        start: (u64, &GtidState),
        stop: &RestoreStop,
        end: u64,
        cuts: &[usize],
        clock: i64,
    ) -> Result<Scanned, UntilError> {
        scan_onto((GtidPosition::default(), None), log, start, stop, end, (cuts, clock))
    }

    fn scan_onto(
        (outside, before): (GtidPosition, Option<&GtidState>),
        log: &[u8],
        (start, gtids): (u64, &GtidState),
        stop: &RestoreStop,
        end: u64,
        (cuts, clock): (&[usize], i64),
    ) -> Result<Scanned, UntilError> {
        let plan = RelayPlan {
            start: gtids.clone(),
            stop: xb_binlog::ReplayStop::End,
            servers: 0,
            leave_out: BTreeSet::new(),
            may_leave_out_ddl: false,
            never_ended: BTreeSet::new(),
            outside: Default::default(),
        };
        let mut scanner = Scanner::new(Span {
            servers: 0,
            start: position(start),
            gtids: gtids.clone(),
            outside,
            stop: stop.clone(),
            end: position(end),
            must_be_found: false,
            plan,
        });
        before.into_iter().for_each(|before| scanner.has_before(before));
        let description = description(log);
        let mut offset = usize::try_from(start).unwrap();
        for cut in cuts.iter().cycle() {
            scanner.begin(NAME, &description, offset as u64)?;
            if scanner.is_done() || offset >= log.len() {
                break;
            }
            let next = (offset + cut).min(log.len());
            scanner.take(&log[offset..next], clock)?;
            offset = next;
        }
        scanner.finish()
    }

    #[test]
    fn a_transaction_from_before_the_log_is_not_applied_again() {
        let log = xb_testkit::vectors::read("binlog/mariadb.000001.gz");
        let (all, first) = transactions(&log);
        let AnyGtid::MariaDb(gtid) = all[1].gtid.clone() else { panic!("of MariaDB") };
        let (begin, end) = (all[0].begin, all.last().unwrap().end);
        for (sequence, is_known) in [(0, false), (gtid.sequence, true), (u64::MAX, true)] {
            let mut outside = GtidPosition::default();
            outside.advance(Gtid { server: gtid.server + 1, sequence, ..gtid });
            let latest = &RestoreStop::Latest;
            let onto = |before: Option<&GtidState>| {
                let outside = (outside.clone(), before);
                scan_onto(outside, &log, (begin, &first), latest, end, (&[4096], CLOCK))
            };
            let found = onto(None);
            // The log has something of the domain before the start, where numbers may go back.
            let mut before = GtidPosition::default();
            before.advance(Gtid { domain: gtid.domain + 1, ..gtid });
            assert_eq!(onto(Some(&before.clone().into())).is_ok(), found.is_ok());
            before.advance(Gtid { server: gtid.server + 1, ..gtid });
            assert!(onto(Some(&before.into())).is_ok());
            let is_refused = matches!(&found, Err(UntilError::Logs(RelayError::Known(_))));
            assert_eq!((is_refused, found.is_ok()), (is_known, !is_known), "{:?}", found.err());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        #[test]
        fn every_stop_is_the_boundary_that_it_names(
            from in 0_usize..1000,
            to in 0_usize..1000,
            kind in 0_u8..5,
            cuts in proptest::collection::vec(300_usize..20_000, 1..6),
            shift in 0_u64..60,
            is_mysql: bool,
        ) {
            let fork = if is_mysql { "mysql" } else { "mariadb" };
            let log = xb_testkit::vectors::read(&format!("binlog/{fork}.000001.gz"));
            let (all, first) = transactions(&log);
            let from = from % all.len();
            let to = from + to % (all.len() - from);
            let mut gtids = first;
            all[..from].iter().for_each(|known| assert!(gtids.add(known.gtid.clone())));
            let (start, end) = (all[from].begin, all.last().unwrap().end);
            let wanted = &all[to];
            // Pieces end where a transaction has begun, or between two.
            let (stop, expected) = match kind {
                0 => (RestoreStop::Latest, end),
                1 => (RestoreStop::Gtid(wanted.gtid.clone()), wanted.end),
                2 => (RestoreStop::BeforeGtid(wanted.gtid.clone()), wanted.begin),
                3 => {
                    let time = i64::try_from(wanted.micros).unwrap();
                    let time = Timestamp::from_microsecond(time).unwrap();
                    let later = all[from..].iter().find(|known| known.micros > wanted.micros);
                    (RestoreStop::Time(time), later.map_or(end, |known| known.begin))
                }
                _ => (RestoreStop::Position(position(wanted.end)), wanted.end),
            };
            let limit = if kind == 4 { wanted.end } else { end };
            let found = scan(&log, (start, &gtids), &stop, limit, &cuts, CLOCK);
            let found = match found {
                Ok(found) => found,
                // A piece may end within the first event of a transaction, which no segment does.
                Err(UntilError::Logs(RelayError::Log { error: Error::Cut { .. }, .. })) => {
                    return Ok(());
                }
                // No replay ends while one is open.
                Err(UntilError::Logs(RelayError::OpenAlter(_))) => return Ok(()),
                Err(error) => return Err(TestCaseError::fail(error.to_string())),
            };
            prop_assert_eq!(&found.stop, &position(expected));
            let applied: Vec<&LoggedTransaction> = all[from..].iter().filter(|k| k.end <= expected).collect();
            prop_assert_eq!(found.end.transactions, applied.len() as u64);
            let last = found.last.as_ref().map(|last| last.gtid.clone());
            prop_assert_eq!(last, applied.last().map(|known| known.gtid.to_string()));
            // The time that is shown is the one that is compared, so that a stop at it takes the transaction in.
            let shown = found.last.as_ref().map(|last| last.time);
            prop_assert_eq!(shown, applied.last().and_then(|known| time(known.micros)));
            let mut after = gtids.clone();
            applied.iter().for_each(|known| assert!(after.add(known.gtid.clone())));
            prop_assert_eq!(&found.end.gtids, &after);
            if let Some(next) = &found.next {
                let expected = all.iter().find(|known| known.begin >= expected).unwrap();
                prop_assert_eq!(&next.gtid, &expected.gtid.to_string());
            }
            // A position within a transaction is refused.
            let inside = wanted.begin + 1 + shift % (wanted.end - wanted.begin - 1);
            let stop = RestoreStop::Position(position(inside));
            let refused = scan(&log, (start, &gtids), &stop, inside, &cuts, CLOCK);
            prop_assert!(refused.is_err(), "{:?}", refused.map(|found| found.stop));
        }
    }

    #[test]
    fn a_time_ahead_of_the_receivers_clock_decides_nothing() {
        let log = xb_testkit::vectors::read("binlog/mariadb.000001.gz");
        let (all, gtids) = transactions(&log);
        let (start, end) = (all[0].begin, all.last().unwrap().end);
        let until = |time, clock| {
            let stop = RestoreStop::Time(Timestamp::from_second(time).unwrap());
            scan(&log, (start, &gtids), &stop, end, &[4096], clock)
        };
        // Before the stop in any case.
        let found = until(CLOCK, 0).unwrap();
        assert_eq!((found.stop, found.ahead), (position(end), all.len() as u64));
        let found = until(1, CLOCK).unwrap();
        assert_eq!((found.stop, found.end.transactions), (position(start), 0));
        // Neither the end nor the beginning is the stop, if it is not known which clock is wrong.
        let refused = until(1, 0).map(|found| found.stop).unwrap_err().to_string();
        let first = all[0].gtid.to_string();
        assert!(refused.contains(&first) && refused.contains("clock"), "{refused}");
    }
}
