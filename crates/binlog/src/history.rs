//! Follows a server's history through its logs: where each transaction lies, and what holds after it.

use std::collections::{BTreeMap, BTreeSet};

use crate::any_gtid::AnyGtid;
use crate::barrier::Barrier;
use crate::error::Error;
use crate::event::{Entry, Event};
use crate::gtid_event::{Alter, MariaDbBegin};
use crate::mariadb_gtid::{Gtid, GtidPosition};
use crate::position::{GtidState, LogPosition};
use crate::query::MAX_TEXT;
use crate::transactions::{Begin, Open, Outcome, Transaction, Transactions};
use crate::xa::Xid;

/// Limit of what may be prepared or begun at once.
const MAX_PENDING: usize = 65_536;

/// The history of one server up to an event.
///
/// Give it all events of the server's logs in order: of one log after the other, or as the server sends
/// them. It may begin anywhere between two transactions.
#[derive(Debug, Clone)]
pub struct History {
    log: String,
    gtids: Option<GtidState>,
    repeats: Option<Repeats>,
    transactions: Transactions,
    prepared: BTreeSet<Xid>,
    altering: Altering,
    /// Those that began on a server before this one.
    altering_before: Altering,
    never_ended: Altering,
}

/// Two-phase `ALTER TABLE` by domain and sequence number of their beginnings.
type Altering = BTreeMap<(u32, u64), Gtid>;

/// Transactions that the history has already, and that another server's logs have again: servers write domains in
/// different orders, so that in each domain another place of these logs is the one up to which the history reaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repeats {
    /// The last transaction of each domain that the history has.
    pub gtids: GtidPosition,
    /// Position in the other server's logs behind which none of them is repeated.
    pub until: LogPosition,
}

impl Repeats {
    /// Returns whether the transaction `gtid`, which begins at offset `begin` of `log`, is repeated.
    #[must_use]
    pub fn has(&self, log: &str, begin: u64, gtid: Gtid) -> bool {
        self.is_before_end(log, begin) && self.gtids.is_past(gtid)
    }

    fn is_before_end(&self, log: &str, offset: u64) -> bool {
        LogPosition::new(log, offset).is_some_and(|at| at < self.until)
    }
}

/// Meaning of an event in a history.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Step {
    /// The transaction that ends with the event. It lies in the log of the event.
    pub ended: Option<Transaction>,
    /// Whether the history already has the transaction in `ended`.
    pub is_repeat: bool,
    /// The barrier, if the event is one.
    pub barrier: Option<Barrier>,
    /// The transaction that never ends, because another log follows: the server crashed while it wrote it.
    pub abandoned: Option<Box<Open>>,
}

impl History {
    /// Returns the history of a server at a position between two transactions of the log with this name.
    /// `gtids` are the transactions up to there; `None` if they are not known: the list at the beginning of
    /// a log shows them.
    #[must_use]
    pub fn new(log: &str, gtids: Option<GtidState>) -> Self {
        let log = log.to_owned();
        let transactions = Transactions::new();
        Self {
            log,
            gtids,
            repeats: None,
            transactions,
            prepared: BTreeSet::new(),
            altering: Altering::new(),
            altering_before: Altering::new(),
            never_ended: Altering::new(),
        }
    }

    /// Returns the history with transactions that it has already, and that the logs have again.
    #[must_use]
    pub fn with_repeats(mut self, repeats: Option<Repeats>) -> Self {
        self.repeats = repeats;
        self
    }

    /// Continues, between two transactions, with the logs of another server that has the same transactions up to here,
    /// and `repeats` of them again.
    pub fn next_server(&mut self, repeats: Option<Repeats>) {
        self.log.clear();
        self.transactions = Transactions::new();
        self.repeats = repeats;
        self.altering_before.append(&mut self.altering);
    }

    /// Returns whether a transaction that begins at an offset of the present log is one that the history has already.
    #[must_use]
    pub fn is_repeat(&self, gtid: &AnyGtid, begin: u64) -> bool {
        match (&self.repeats, gtid) {
            (Some(repeats), AnyGtid::MariaDb(gtid)) => repeats.has(&self.log, begin, *gtid),
            _ => false,
        }
    }

    /// Name of the log that has the next event.
    #[must_use]
    pub fn log(&self) -> &str {
        &self.log
    }

    /// Transactions up to here. One that is open does not count.
    #[must_use]
    pub fn gtids(&self) -> Option<&GtidState> {
        self.gtids.as_ref()
    }

    /// Returns the transaction that has not ended.
    #[must_use]
    pub fn open(&self) -> Option<&Open> {
        self.transactions.open()
    }

    /// XA transactions that are prepared, and neither committed nor rolled back. Those that were prepared before the
    /// history began are unknown.
    pub fn prepared(&self) -> impl Iterator<Item = &Xid> {
        self.prepared.iter()
    }

    /// Two-phase `ALTER TABLE` that have begun and not ended, by the GTIDs of their beginnings.
    pub fn altering(&self) -> impl Iterator<Item = Gtid> {
        self.altering.values().chain(self.altering_before.values()).copied()
    }

    /// The same of those that never end, and did nothing: their server was started again, or another one writes in its place.
    pub fn never_ended(&self) -> impl Iterator<Item = Gtid> {
        self.never_ended.values().copied()
    }

    /// Continues with the log of this name, as after a log that has no event that ends it. Returns the
    /// transaction that has no end in the log before.
    pub fn next_log(&mut self, name: &str) -> Option<Open> {
        name.clone_into(&mut self.log);
        self.transactions.abandon()
    }

    /// Takes the next event.
    ///
    /// # Errors
    /// If it cannot follow: a transaction has no end, or the list at the beginning of a log is not what the
    /// logs before it lead to.
    pub fn push(&mut self, entry: &Entry) -> Result<Step, Error> {
        if entry.header.flags.is_artificial() {
            // A server repeats what a replica needs to know, and names the log that it sends.
            let abandoned = match &entry.event {
                Event::Rotate(rotate) => self.next_log(&rotate.file),
                _ => None,
            };
            // On the heap: nearly no step has one, and all of them are moved.
            return Ok(Step { abandoned: abandoned.map(Box::new), ..Step::default() });
        }
        let barrier = match &entry.event {
            Event::Incident(_) => Some(Barrier::Incident),
            Event::Query(query) if !self.open().is_some_and(Open::is_group) => {
                Barrier::of_statement(&query.text, query.text.len() >= MAX_TEXT)
            }
            _ => None,
        };
        let ended = self.transactions.push(entry)?;
        let mut is_repeat = false;
        if let Some(transaction) = &ended {
            let gtid = transaction.first.gtid();
            is_repeat = gtid.is_some_and(|gtid| self.is_repeat(&gtid, transaction.begin));
            if !is_repeat {
                self.count(transaction, &entry.event)?;
            }
        }
        match &entry.event {
            Event::GtidList(list) => self.begin_log(list.position().into(), entry.begin)?,
            Event::PreviousGtids(set) => {
                self.begin_log(GtidState::MySql(set.clone()), entry.begin)?;
            }
            Event::Rotate(rotate) => self.log.clone_from(&rotate.file),
            // It says nothing of them where it recovers from a crash.
            Event::Format(format) if format.created > 0 => {
                self.never_ended.append(&mut self.altering);
            }
            _ => {}
        }
        Ok(Step { ended, is_repeat, barrier, abandoned: None })
    }

    fn count(&mut self, transaction: &Transaction, last: &Event) -> Result<(), Error> {
        if let (Some(gtids), Some(gtid)) = (&mut self.gtids, transaction.first.gtid())
            && !gtids.add(gtid)
        {
            return Err(self.other_fork());
        }
        if let Begin::MariaDb(begin) = &transaction.first {
            self.follow_alter(begin);
        }
        // MariaDB names it at the beginning, MySQL at the end.
        let xid = match (&transaction.first, last) {
            (Begin::MariaDb(begin), _) => begin.xid.clone(),
            (_, Event::XaPrepare(prepare)) => Some(prepare.xid.clone()),
            (_, Event::Query(query)) => Xid::of_statement(&query.text),
            _ => None,
        };
        if let Some(xid) = xid {
            match transaction.outcome {
                Outcome::XaPrepared => self.prepared.insert(xid),
                _ => self.prepared.remove(&xid),
            };
        }
        let altering = self.altering.len() + self.altering_before.len();
        match altering.max(self.prepared.len()) > MAX_PENDING {
            true => Err(Error::TooManyOpen { limit: MAX_PENDING }),
            false => Ok(()),
        }
    }

    /// Follows the two-phase `ALTER TABLE` through a transaction.
    fn follow_alter(&mut self, MariaDbBegin { gtid, alter, .. }: &MariaDbBegin) {
        match alter {
            Some(Alter::Start) => {
                self.altering.insert((gtid.domain, gtid.sequence), *gtid);
            }
            Some(Alter::Commit(sequence) | Alter::Rollback(sequence)) => {
                let key = (gtid.domain, *sequence);
                for open in [&mut self.altering, &mut self.altering_before, &mut self.never_ended] {
                    open.remove(&key);
                }
            }
            None => {}
        }
        // Once another server numbers the transactions of a domain, the end of a statement that an earlier one began there
        // has no number left.
        let never_ended = &mut self.never_ended;
        self.altering_before.retain(|key, begun| {
            let is_over = begun.domain == gtid.domain && begun.server != gtid.server;
            if is_over {
                never_ended.insert(*key, *begun);
            }
            !is_over
        });
    }

    /// Compares with the list at the beginning of a log. A list may lack domains: a server can be told to
    /// forget them. But one without any is that of a server whose logs began anew (RESET MASTER) while a replica was
    /// behind: the server continues with the log of the next number, which is another one now. Where transactions are repeated, it may lie behind.
    fn begin_log(&mut self, found: GtidState, at: u64) -> Result<(), Error> {
        let repeats = self.repeats.as_ref().filter(|of| of.is_before_end(&self.log, at));
        if let (Some(repeats), Some(GtidState::MariaDb(ours)), GtidState::MariaDb(list)) =
            (repeats, &self.gtids, &found)
        {
            let is_known = |gtid: &Gtid| {
                let last = ours.get(gtid.domain);
                let is_behind = repeats.gtids.get(gtid.domain) == last;
                last == Some(*gtid) || (is_behind && repeats.gtids.is_past(*gtid))
            };
            if list.iter().all(is_known) {
                return Ok(());
            }
        }
        let continues = match (&self.gtids, &found) {
            (None, _) => true,
            (Some(GtidState::MariaDb(ours)), GtidState::MariaDb(found)) => {
                (ours.is_empty() || !found.is_empty())
                    && found.iter().all(|gtid| ours.get(gtid.domain) == Some(*gtid))
            }
            (Some(ours), found) if ours == found => true,
            (Some(GtidState::MySql(_)), GtidState::MySql(_)) => false,
            (Some(ours), found) if ours.is_empty() || found.is_empty() => false,
            _ => return Err(self.other_fork()),
        };
        if !continues {
            let expected = self.gtids.as_ref().map(ToString::to_string).unwrap_or_default();
            return Err(Error::History {
                log: self.log.clone(),
                expected,
                found: found.to_string(),
            });
        }
        self.gtids = Some(found);
        Ok(())
    }

    fn other_fork(&self) -> Error {
        Error::OtherFork { log: self.log.clone() }
    }
}
