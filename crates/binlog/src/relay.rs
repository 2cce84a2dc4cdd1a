//! Writes relay logs: what a replica has received and is to apply.
//!
//! A server that applies a binary log as it is, in parallel, crashes (MariaDB 10.11.19), because nothing
//! in it names the log of the source. So each log becomes one relay log, which begins as those that
//! the server writes itself: the format description, without a position of its own; of MySQL, an empty
//! list of previous GTIDs; an artificial rotation, which names the source's log and the position in it; and then the events. Only whole
//! transactions are written, byte by byte as they are in the log. What lies between them, such as
//! lists of GTIDs, checkpoints and the log's end, is left out: a relay log ends with a transaction.

use std::collections::{BTreeMap, BTreeSet};

use crate::administration::{administers, loads_nothing};
use crate::any_gtid::AnyGtid;
use crate::artificial::{artificial_previous_gtids, artificial_rotation, description_created};
use crate::error::Error;
use crate::event::{Entry, Event};
use crate::event_type::EventType;
use crate::format::{ChecksumKind, Fork};
use crate::history::{History, Repeats};
use crate::left_out::LeftOut;
use crate::mysql_gtid::GtidSet;
use crate::order::depends_on_order;
use crate::position::{GtidState, LogPosition};
use crate::query::Verb;
use crate::reader::{MAGIC, Reader};
use crate::relay_error::RelayError;
use crate::statement_doubt::{StatementDoubt, doubt};
use crate::stop::ReplayStop;
use crate::temporary::TemporaryTables;
use crate::transactions::{Begin, Transaction};

/// User variables of a statement that are compared.
const MAX_VARIABLES: usize = 1000;
/// Longest name of a log, in bytes.
const MAX_NAME: usize = 255;
/// Bytes of an event outside of a transaction that are held: of those that begin one, all.
const MAX_HELD: usize = 4096;
/// The highest server id, and the number of ids below it of which one is chosen.
const HIGHEST_ID: u32 = u32::MAX;
const CANDIDATES: u32 = 64;

/// Logs to replay.
#[derive(Debug, Clone)]
pub struct RelayPlan {
    /// The transactions that the data has, of those in the log.
    pub start: GtidState,
    /// Transactions of MySQL that it has, and the log has not.
    pub outside: GtidSet,
    /// Where the replay ends.
    pub stop: ReplayStop,
    /// Number of servers whose logs come before those of the one in which a stop at a position lies: logs of two
    /// servers may have the same names.
    pub servers: usize,
    /// Transactions to leave out. Each must be on the way.
    pub leave_out: BTreeSet<AnyGtid>,
    /// Whether one of them may change the definition of something.
    pub may_leave_out_ddl: bool,
    /// Beginnings of two-phase `ALTER TABLE` that never end, which are passed over: a replica would wait for their ends.
    pub never_ended: BTreeSet<AnyGtid>,
}

/// A writer of relay logs, one for each log. Memory is that of a [`Reader`].
///
/// ```text
/// begin_log(name, format, offset)   push(bytes, out)...   begin_log(...)   push...   finish()
/// ```
#[derive(Debug)]
pub struct RelayWriter {
    plan: RelayPlan,
    history: History,
    log: Option<Log>,
    /// Number of servers whose logs have been read.
    servers: usize,
    state: State,
    left: BTreeSet<AnyGtid>,
    /// When the server started last, if no relay log says so yet: temporary tables end there, and so do XA transactions that are open.
    started: Option<u32>,
    temporary: TemporaryTables,
    /// Names of user variables before the next statement.
    variables: BTreeSet<Vec<u8>>,
    /// Which candidates for a server id occur, by bit: the lowest stands for the highest id.
    ids: u64,
    end: RelayEnd,
}

/// Content of the relay logs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RelayEnd {
    /// The transactions that the data has after the replay. Those of MySQL that were left out count: a server takes
    /// an empty transaction in the place of each.
    pub gtids: GtidState,
    /// End of the last transaction that was written; `None` if none was.
    pub last: Option<LogPosition>,
    /// End of the last transaction that was read, even if it was left out.
    pub reached: Option<LogPosition>,
    /// Number of transactions that were written.
    pub transactions: u64,
    /// Number of transactions that were left out.
    pub left_out: u64,
    /// Number of transactions that were written after the first one that was left out.
    pub later: u64,
    /// Those of the written transactions that begin a two-phase `ALTER TABLE` that never ends.
    pub never_ended: BTreeSet<AnyGtid>,
    /// Whether changes of rows were among them, and not statements only.
    pub has_rows: bool,
    /// Time of the last transaction that was written, in seconds since 1970; 0 if none was.
    pub last_time: u32,
    /// The first statement in doubt for each reason: its result may differ.
    pub doubts: BTreeMap<StatementDoubt, LogPosition>,
    /// The result of one of the written transactions depends on those before it: they have to be applied one after the other.
    pub needs_order: bool,
    /// An id for the server that applies them, which is that of no event: it would take events of its own
    /// id as its own work, and pass them over, or not see that the origin had started anew.
    pub free_server_id: u32,
}

#[derive(Debug)]
struct Log {
    name: String,
    reader: Reader,
    /// Beginning of the relay log, until the first transaction is written.
    head: Vec<u8>,
    /// The first bytes of an event outside of a transaction.
    held: Vec<u8>,
    /// Offset of the present transaction.
    begin: u64,
    /// Bytes of it that were written.
    written: u64,
    /// Of one that is left out: what its compressed payload does.
    left_out: LeftOut,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Between,
    Writing(AnyGtid),
    LeavingOut(AnyGtid),
    /// The logs of the server before had it, or it never ends.
    Repeat(AnyGtid),
    Stopped,
}

impl RelayWriter {
    /// Returns a writer that has read nothing.
    #[must_use]
    pub fn new(plan: RelayPlan) -> Self {
        let mut gtids = plan.start.clone();
        gtids.unite(&plan.outside);
        let end = RelayEnd {
            gtids,
            last: None,
            reached: None,
            transactions: 0,
            left_out: 0,
            later: 0,
            never_ended: BTreeSet::new(),
            has_rows: false,
            last_time: 0,
            doubts: BTreeMap::new(),
            needs_order: false,
            free_server_id: HIGHEST_ID,
        };
        let left = plan.leave_out.clone();
        let history = History::new("", Some(plan.start.clone()));
        Self {
            plan,
            history,
            log: None,
            servers: 0,
            state: State::Between,
            left,
            started: None,
            temporary: TemporaryTables::default(),
            variables: BTreeSet::new(),
            ids: 0,
            end,
        }
    }

    /// Begins the next log, at `offset`: at 4, its beginning, or between two transactions. `format` is its
    /// format description, with header and checksum. The bytes for [`RelayWriter::push`] from now on
    /// belong into another relay log. Returns how many bytes to cut off from the end of the one before:
    /// those of a transaction that never ended, because the server crashed.
    ///
    /// # Errors
    /// If the log before ends within an event, or if this one cannot be replayed.
    pub fn begin_log(&mut self, name: &str, format: &[u8], offset: u64) -> Result<u64, RelayError> {
        if self.state == State::Stopped {
            return Ok(0);
        }
        self.check_whole()?;
        self.check_next(name, offset)?;
        let mut abandoned = 0;
        if let (Some(_), Some(log)) = (self.history.next_log(name), &self.log) {
            match std::mem::replace(&mut self.state, State::Between) {
                State::Writing(_) => abandoned = log.written,
                // Another transaction gets its number.
                State::LeavingOut(gtid) => drop(self.left.insert(gtid)),
                State::Repeat(_) | State::Between | State::Stopped => {}
            }
        }
        if LogPosition::new(name, offset).is_none() || name.len() > MAX_NAME {
            return Err(RelayError::Name(name.to_owned()));
        }
        let failed = |error| RelayError::Log { log: name.to_owned(), error };
        let reader = Reader::resume(format, offset).map_err(failed)?;
        let described = reader.format().filter(|format| self.is_of(format.fork));
        let described = described.ok_or(RelayError::Fork { log: name.to_owned() })?;
        let (fork, checksums) = (described.fork, described.checksums);
        let is_whole = offset <= (MAGIC.len() + format.len()) as u64;
        if is_whole && described.created > 0 {
            // A log without a transaction is not written, nor is its head.
            self.started = Some(described.created);
            // Behind the data's position, and behind that at which this server's logs begin to count.
            if self.log.is_some() {
                self.temporary.server_started();
            }
        }
        let head = head(name, offset, format, self.started, fork, checksums)
            .ok_or_else(|| failed(Error::Format))?;
        if let Some(id) = format.get(5..9).and_then(|id| id.try_into().ok()) {
            self.occupy(u32::from_le_bytes(id));
        }
        self.log = Some(Log {
            name: name.to_owned(),
            reader,
            head,
            held: Vec::new(),
            begin: offset,
            written: 0,
            left_out: LeftOut::default(),
        });
        self.check_position()?;
        Ok(abandoned)
    }

    /// Continues with the logs of another server that has the same transactions up to here, and `repeats` of them
    /// again, which are not written again.
    ///
    /// # Errors
    /// If the log before ends within a transaction or an event.
    pub fn next_server(&mut self, repeats: Option<Repeats>) -> Result<(), RelayError> {
        if self.state == State::Stopped {
            return Ok(());
        }
        self.check_whole()?;
        self.check_closed()?;
        self.history.next_server(repeats);
        self.temporary.other_server();
        self.log = None;
        self.servers += 1;
        Ok(())
    }

    /// Returns whether the data may be of this fork.
    fn is_of(&self, fork: Fork) -> bool {
        match &self.end.gtids {
            GtidState::MariaDb(_) => fork == Fork::MariaDb || self.end.gtids.is_empty(),
            GtidState::MySql(_) => fork == Fork::MySql || self.end.gtids.is_empty(),
        }
    }

    /// Returns whether the stop has been reached, so that no further bytes count.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.state == State::Stopped
    }

    /// Number of transactions that were written.
    #[must_use]
    pub fn transactions(&self) -> u64 {
        self.end.transactions
    }

    /// Takes the next bytes of the log, and appends those of the relay log to `out`: at most as many, and
    /// a few hundred at the beginning of a log.
    ///
    /// # Errors
    /// If the log cannot be replayed as asked. What was written before is of no use then.
    pub fn push(&mut self, mut input: &[u8], out: &mut Vec<u8>) -> Result<(), RelayError> {
        while !input.is_empty() && self.state != State::Stopped {
            let log = self.log.as_mut().ok_or(RelayError::NoLog)?;
            let failed = |error| RelayError::Log { log: log.name.clone(), error };
            let before = input;
            let entry = log.reader.next(&mut input).map_err(failed)?;
            let (taken, _) = before.split_at(before.len() - input.len());
            match self.state {
                State::Between => {
                    let room = MAX_HELD.saturating_sub(log.held.len()).min(taken.len());
                    log.held.extend(taken.iter().take(room));
                }
                State::Writing(_) => {
                    out.extend_from_slice(taken);
                    log.written += taken.len() as u64;
                }
                State::LeavingOut(_) => log.left_out.take(taken, entry.is_some()),
                State::Repeat(_) | State::Stopped => {}
            }
            match entry {
                Some(entry) => self.take(&entry, out)?,
                None => break,
            }
        }
        Ok(())
    }

    /// Returns what the relay logs hold, when everything has been read.
    ///
    /// # Errors
    /// If the stop was not reached, a transaction that was to be left out was not found, or the logs end
    /// within a transaction or an event.
    pub fn finish(mut self) -> Result<RelayEnd, RelayError> {
        self.check_whole()?;
        self.check_closed()?;
        if self.state != State::Stopped && self.plan.stop != ReplayStop::End {
            return Err(RelayError::NotReached(self.plan.stop));
        }
        if let Some(gtid) = self.left.first() {
            return Err(RelayError::NotFound(gtid.clone()));
        }
        if let Some(gtid) = self.history.altering().next() {
            return Err(RelayError::OpenAlter(gtid));
        }
        let free = self.ids.trailing_ones();
        if free >= CANDIDATES {
            return Err(RelayError::Servers);
        }
        self.end.free_server_id = HIGHEST_ID - free;
        let temporary = self.temporary.doubt();
        self.end.doubts.extend(temporary.map(|at| (StatementDoubt::TemporaryTable, at)));
        let never_ended = self.history.never_ended().map(AnyGtid::MariaDb);
        let is_written = |gtid: &AnyGtid| {
            !self.plan.never_ended.contains(gtid) && !self.plan.leave_out.contains(gtid)
        };
        self.end.never_ended = never_ended.filter(is_written).collect();
        Ok(self.end)
    }

    fn take(&mut self, entry: &Entry, out: &mut Vec<u8>) -> Result<(), RelayError> {
        let Some(log) = &mut self.log else { return Err(RelayError::NoLog) };
        if self.state == State::Between {
            let held = std::mem::take(&mut log.held);
            let begin = match &entry.event {
                Event::MariaDbBegin(begin) => Some(Begin::MariaDb(begin.clone())),
                Event::MySqlBegin(begin) => Some(Begin::MySql(begin.clone())),
                _ => None,
            };
            if let Some(begin) = begin {
                (log.begin, log.written) = (entry.begin, held.len() as u64);
                self.begin(&begin)?;
                if let (State::Writing(_), Some(log)) = (&self.state, &mut self.log) {
                    if !log.head.is_empty() {
                        self.started = None;
                    }
                    out.append(&mut log.head);
                    out.extend(held);
                }
            }
        }
        if self.state == State::Stopped {
            return Ok(());
        }
        let step = self.history.push(entry).map_err(|error| self.fault(error))?;
        if !matches!(self.state, State::LeavingOut(_) | State::Repeat(_)) {
            self.check_passable(entry)?;
            self.check_statement(entry)?;
            self.check_variable(entry)?;
            self.end.needs_order |= depends_on_order(entry);
            if let Some(barrier) = step.barrier {
                return Err(RelayError::Barrier { at: self.at(entry.begin)?, barrier });
            }
        }
        self.check_inside(entry)?;
        self.occupy(entry.header.server_id);
        if let Some(ended) = step.ended {
            self.end(&ended)?;
        }
        self.check_position()
    }

    fn occupy(&mut self, server_id: u32) {
        let below = HIGHEST_ID - server_id;
        if below < CANDIDATES {
            self.ids |= 1 << below;
        }
    }

    fn check_passable(&self, entry: &Entry) -> Result<(), RelayError> {
        match entry.event {
            _ if entry.header.flags.is_ignorable() => Ok(()),
            Event::StartEncryption => Err(RelayError::Encrypted(self.at(entry.begin)?)),
            Event::Unknown => {
                let event_type = entry.header.event_type;
                Err(RelayError::Unknown { at: self.at(entry.begin)?, event_type })
            }
            _ => Ok(()),
        }
    }

    /// Refuses a statement that no server logs, and one on a temporary table that the data lacks.
    fn check_statement(&mut self, entry: &Entry) -> Result<(), RelayError> {
        let (query, is_forged) = match &entry.event {
            Event::Query(query) => (query, administers(&query.text)),
            Event::Load(query) => (query, loads_nothing(&query.text)),
            // So does a transaction with temporary tables only not end, in logs of MariaDB 10.11.
            Event::Xid(_) if matches!(self.end.gtids, GtidState::MariaDb(_)) => {
                self.temporary.real_table_changed();
                return Ok(());
            }
            _ => {
                if entry.header.event_type == EventType::TABLE_MAP {
                    self.temporary.change();
                    self.end.has_rows = true;
                }
                return Ok(());
            }
        };
        if is_forged {
            return Err(RelayError::Administration(self.at(entry.begin)?));
        }
        if query.verb != Verb::Other {
            return Ok(());
        }
        self.temporary.change();
        let session = (entry.header.server_id, query.thread);
        let at = self.at(entry.begin)?;
        if let Some(doubt) = doubt(query) {
            self.end.doubts.entry(doubt).or_insert_with(|| at.clone());
        }
        if !entry.header.flags.is_of_session() {
            self.temporary.unmarked(session, query, &at);
            return Ok(());
        }
        self.temporary.statement(session, query, &at).map_err(RelayError::Temporary)
    }

    /// Notes a user variable that comes again before the statement that reads it.
    fn check_variable(&mut self, entry: &Entry) -> Result<(), RelayError> {
        let Event::UserVariable(name) = &entry.event else {
            self.variables.clear();
            return Ok(());
        };
        let is_new = self.variables.len() >= MAX_VARIABLES || self.variables.insert(name.clone());
        if !is_new {
            let at = self.at(entry.begin)?;
            self.end.doubts.entry(StatementDoubt::UserVariable).or_insert(at);
        }
        Ok(())
    }

    fn fault(&self, error: Error) -> RelayError {
        let log = self.log.as_ref().map(|log| log.name.clone()).unwrap_or_default();
        RelayError::Log { log, error }
    }

    /// A transaction begins: it is written, left out, or the stop is before it.
    fn begin(&mut self, begin: &Begin) -> Result<(), RelayError> {
        let Some(gtid) = begin.gtid() else {
            let at = self.log.as_ref().map(|log| log.begin).unwrap_or_default();
            return Err(RelayError::Anonymous(self.at(at)?));
        };
        self.temporary.begin();
        let at = self.log.as_ref().map(|log| log.begin).unwrap_or_default();
        if self.history.is_repeat(&gtid, at) || self.plan.never_ended.contains(&gtid) {
            self.state = State::Repeat(gtid);
        } else if self.plan.stop == ReplayStop::Before(gtid.clone()) {
            self.state = State::Stopped;
        } else if self.is_known(&gtid) {
            return Err(RelayError::Known(gtid));
        } else if self.left.remove(&gtid) {
            let is_alter = matches!(begin, Begin::MariaDb(begin) if begin.alter.is_some());
            if is_alter && !self.plan.may_leave_out_ddl {
                return Err(RelayError::LeftOutDdl(gtid));
            }
            self.state = State::LeavingOut(gtid);
        } else {
            self.state = State::Writing(gtid);
        }
        Ok(())
    }

    /// Whether the data has a transaction already; of MariaDB, by the numbers of its server. Behind a change of servers,
    /// by those of its domain: what another server's log has again may be of any server.
    fn is_known(&self, gtid: &AnyGtid) -> bool {
        if let (true, GtidState::MariaDb(end), AnyGtid::MariaDb(gtid)) =
            (self.servers > 0, &self.end.gtids, gtid)
            && end.is_past(*gtid)
        {
            return true;
        }
        match (&self.plan.start, gtid) {
            (GtidState::MariaDb(start), AnyGtid::MariaDb(gtid)) => {
                let last = start.get(gtid.domain);
                last.is_some_and(|last| {
                    last.server == gtid.server && last.sequence >= gtid.sequence
                })
            }
            (start, gtid) => start.contains(gtid),
        }
    }

    /// The transaction ends.
    fn end(&mut self, ended: &Transaction) -> Result<(), RelayError> {
        let at = self.at(ended.end)?;
        let (gtid, is_written) = match std::mem::replace(&mut self.state, State::Between) {
            State::Writing(gtid) => (gtid, true),
            State::LeavingOut(gtid) => (gtid, false),
            State::Repeat(_) => {
                self.end.reached = Some(at);
                return Ok(());
            }
            other => {
                self.state = other;
                return Ok(());
            }
        };
        self.end.reached = Some(at.clone());
        if is_written {
            (self.end.last, self.end.last_time) = (Some(at.clone()), ended.seconds);
            self.end.transactions += 1;
            self.end.later += u64::from(self.end.left_out > 0);
        } else {
            let left_out = self.log.as_mut().map(|log| std::mem::take(&mut log.left_out));
            let is_ddl = ended.is_ddl() || left_out.is_some_and(|of| of.may_be_ddl);
            if is_ddl && !self.plan.may_leave_out_ddl {
                return Err(RelayError::LeftOutDdl(gtid));
            }
            self.end.left_out += 1;
        }
        let counts = is_written || matches!(gtid, AnyGtid::MySql(_));
        if counts && !self.end.gtids.add(gtid.clone()) {
            return Err(self.fault(Error::OtherFork { log: at.log().to_owned() }));
        }
        if self.plan.stop == ReplayStop::After(gtid) {
            self.state = State::Stopped;
        }
        Ok(())
    }

    /// Offset of the stop, if it is a position in the present log.
    fn stop_here(&self) -> Option<u64> {
        match (&self.plan.stop, &self.log) {
            (ReplayStop::At(stop), Some(log))
                if stop.log() == log.name && self.servers == self.plan.servers =>
            {
                Some(stop.offset())
            }
            _ => None,
        }
    }

    /// Checks that the stop does not lie within the present transaction, of which an event ends here.
    fn check_inside(&self, entry: &Entry) -> Result<(), RelayError> {
        let (State::Writing(gtid) | State::LeavingOut(gtid) | State::Repeat(gtid)) = &self.state
        else {
            return Ok(());
        };
        if self.stop_here().is_none_or(|stop| stop >= entry.end) {
            return Ok(());
        }
        let at = self.log.as_ref().map(|log| log.begin).unwrap_or_default();
        let (gtid, begin) = (gtid.clone(), self.at(at)?);
        Err(RelayError::Inside { stop: self.plan.stop.clone(), gtid, begin })
    }

    /// Stops if the position between two transactions is the stop.
    fn check_position(&mut self) -> Result<(), RelayError> {
        let now = self.log.as_ref().map(|log| log.reader.offset()).unwrap_or_default();
        match self.stop_here() {
            Some(stop) if self.state == State::Between && now == stop => {
                self.state = State::Stopped;
                Ok(())
            }
            // The stop lies within an event, or before the beginning.
            Some(stop) if self.state == State::Between && now > stop => {
                Err(RelayError::NotReached(self.plan.stop.clone()))
            }
            _ => Ok(()),
        }
    }

    fn at(&self, offset: u64) -> Result<LogPosition, RelayError> {
        let name = self.log.as_ref().map(|log| log.name.as_str()).unwrap_or_default();
        LogPosition::new(name, offset).ok_or_else(|| RelayError::Name(name.to_owned()))
    }

    /// Checks that the next log is another one from its beginning on, or continues the one before. Otherwise
    /// nothing would show what lies between them.
    fn check_next(&self, name: &str, offset: u64) -> Result<(), RelayError> {
        let Some(log) = &self.log else { return Ok(()) };
        let expected = if log.name == name { log.reader.offset() } else { MAGIC.len() as u64 };
        match offset == expected {
            true => Ok(()),
            false => Err(RelayError::Gap { log: name.to_owned(), expected, found: offset }),
        }
    }

    /// Checks that no transaction is open.
    fn check_closed(&self) -> Result<(), RelayError> {
        match (&self.state, &self.log) {
            (State::Writing(_) | State::LeavingOut(_) | State::Repeat(_), Some(log)) => {
                Err(RelayError::Unfinished { log: log.name.clone(), begin: log.begin })
            }
            _ => Ok(()),
        }
    }

    /// Checks that the log before, if there is one, does not end within an event.
    fn check_whole(&self) -> Result<(), RelayError> {
        let reader =
            self.log.as_ref().map(|log| &log.reader).filter(|_| self.state != State::Stopped);
        let cut = reader.and_then(|reader| Some((reader.open()?, reader.offset())));
        cut.map_or(Ok(()), |(at, end)| Err(self.fault(Error::Cut { at, end })))
    }
}

fn head(
    name: &str,
    offset: u64,
    format: &[u8],
    started: Option<u32>,
    fork: Fork,
    checksums: ChecksumKind,
) -> Option<Vec<u8>> {
    let description = description_created(format, started.unwrap_or_default())?;
    let gtids = match fork {
        Fork::MySql => artificial_previous_gtids(format, checksums)?,
        Fork::MariaDb => Vec::new(),
    };
    let rotation = artificial_rotation(name, offset, format, checksums)?;
    Some([&MAGIC[..], &description, &gtids, &rotation].concat())
}
