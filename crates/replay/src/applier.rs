//! Drives the applier of the private server.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use xb_binlog::{AnyGtid, EventHeader, GtidState, SystemZone, TransactionSummary, Xid};
use xb_mysql::{Client, Error, Row};
use xb_server::{Server, free_bytes};

use crate::dialect::Dialect;
use crate::error::{LEAVE_OUT, ReplayError};
use crate::password_change::PasswordChange;
use crate::relay_files::{RelayFiles, SettingsChange};
use crate::request::{Progress, Watch};
use crate::settings::{ENGINES, assignment, hex};
use crate::status::{Status, activity, value};
use crate::tables_in_use::repair_table;

/// Interval at which the server is asked.
const PAUSE: Duration = Duration::from_millis(100);
/// Bytes of a failed transaction that are looked at to describe it.
const DESCRIBED: u64 = 1 << 20;
/// Error for an XA transaction that is there already.
const XA_IS_THERE: u64 = 1440;
/// The code of the error for a change of a row that is not there.
const NO_SUCH_ROW: u64 = 1032;
/// Error for a password of an account whose first method has none.
const NO_PASSWORD: u64 = 1699;
/// Errors for a table and a sequence that are not there.
const NOT_THERE: [u64; 2] = [1051, 4091];
/// Changed pages that may be left for the stop.
const FEW_PAGES: u64 = 1000;

/// Time without any change after which the disk is looked at.
const STILL: Duration = Duration::from_secs(5);
/// The most that counts between two looks: if it takes longer, the host was paused, and the server with it.
const LOOK: Duration = Duration::from_secs(1);
/// Below this number of free bytes, a server that does nothing waits for room.
const NO_ROOM: u64 = 1 << 20;

/// The applier of a server, and what it has to apply.
#[derive(Debug)]
pub(crate) struct Applier<'a> {
    pub(crate) server: &'a mut Server,
    pub(crate) client: &'a mut Client,
    pub(crate) dialect: &'static Dialect,
    pub(crate) files: &'a RelayFiles,
    /// Directory of the relay logs.
    pub(crate) dir: &'a Path,
    pub(crate) patience: Duration,
}

/// Facts about what was applied.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// The error after which it was done serially, if there was one.
    pub(crate) retried: Option<String>,
    /// The XA transactions that the data had ahead of its GTIDs.
    pub(crate) ahead_xa: Vec<String>,
    /// The options by which a part of the logs was left out, as `NAME=VALUE`.
    pub(crate) filters: Vec<String>,
    /// The settings that could not be changed where the origin's were, as `NAME=VALUE`.
    pub(crate) unchanged: Vec<String>,
    /// Whether they may leave out what a backup has.
    pub(crate) is_partial: bool,
}

/// Reason why there is nothing more to wait for.
enum WaitEnd {
    Done,
    Failed(Status),
}

/// Finds out that a server does nothing.
struct IdleDetector {
    limit: Duration,
    seen: String,
    looked: Instant,
    still: Duration,
}

impl IdleDetector {
    fn new(limit: Duration) -> Self {
        Self { limit, seen: String::new(), looked: Instant::now(), still: Duration::ZERO }
    }

    /// Whether nothing has changed for long enough to look for a reason.
    fn may_be_stopped(&self) -> bool {
        self.still > STILL
    }

    /// Takes what changes while the server works.
    ///
    /// # Errors
    /// [`ReplayError::Stuck`] if nothing has changed for too long.
    fn check(&mut self, now: String, at: &str) -> Result<(), ReplayError> {
        let passed = self.looked.elapsed().min(LOOK);
        self.looked = Instant::now();
        if now != self.seen {
            (self.seen, self.still) = (now, Duration::ZERO);
            return Ok(());
        }
        self.still += passed;
        if self.still > self.limit {
            let seconds = self.limit.as_secs();
            return Err(ReplayError::Stuck { seconds, at: at.to_owned() });
        }
        Ok(())
    }
}

impl Applier<'_> {
    /// Sees to it that the server knows which transactions the data has: MariaDB is told, MySQL tells. Data of MySQL
    /// may have transactions behind the beginning of the logs, which its applier passes over.
    pub(crate) fn set_gtids(&mut self, start: &GtidState) -> Result<(), ReplayError> {
        if !self.dialect.is_mysql() {
            return self.note_position(start);
        }
        // Of the origin, if it was a replica.
        self.run("ending the replica", self.dialect.reset)?;
        RelayFiles::show(self.dir)
            .map_err(|source| ReplayError::NotDurable { path: self.dir.to_owned(), source })?;
        let (found, end) = (self.gtids()?, &self.files.end.gtids);
        match start.is_within(&found) && found.is_within(end) {
            true => Ok(()),
            false => {
                let expected = format!("between {start} and {end}");
                Err(ReplayError::Elsewhere { expected, found: found.to_string() })
            }
        }
    }

    /// Writes the GTID position of a server of MariaDB, for all domains.
    fn note_position(&mut self, gtids: &GtidState) -> Result<(), ReplayError> {
        let statement = format!("SET GLOBAL gtid_slave_pos = '{gtids}'");
        self.run("setting its GTID position", &statement)
    }

    /// Checks that the server has the local time of the origin: the C library takes a file that it cannot read for UTC.
    pub(crate) fn check_local_time(
        &mut self,
        zone: Option<&SystemZone>,
    ) -> Result<(), ReplayError> {
        let Some(zone) = zone else { return Ok(()) };
        self.run("asking for its local time", "SET SESSION time_zone = 'SYSTEM'")?;
        let asked = zone.offsets.iter().map(|(time, _)| SystemZone::offset_at(time));
        let statement = format!("SELECT {}", asked.collect::<Vec<_>>().join(", "));
        let rows = self.client.rows(statement);
        let rows = rows.map_err(|error| self.broken("asking for its local time", error))?;
        let found = rows.first().into_iter().flat_map(|row| row.iter());
        let found = found.map(|value| String::from_utf8_lossy(value.unwrap_or(b"no")).into_owned());
        for ((time, expected), found) in zone.offsets.iter().zip(found) {
            if found != expected.to_string() {
                return Err(ReplayError::LocalTime { time: *time, expected: *expected, found });
            }
        }
        Ok(())
    }

    /// MySQL counts every number: an empty transaction takes the place of each that is left out, or a later source
    /// would send it.
    pub(crate) fn fill<'g>(
        &mut self,
        left_out: impl IntoIterator<Item = &'g AnyGtid>,
    ) -> Result<(), ReplayError> {
        let doing = "committing an empty transaction";
        let data = self.gtids()?;
        for gtid in left_out {
            if self.dialect.is_mysql() && data.contains(gtid) {
                let (expected, found) = (format!("data without {gtid}"), data.to_string());
                return Err(ReplayError::Elsewhere { expected, found });
            }
            if let AnyGtid::MySql(gtid) = gtid {
                self.run(doing, &format!("SET SESSION gtid_next = '{gtid}'"))?;
                self.run(doing, "BEGIN")?;
                self.run(doing, "COMMIT")?;
                self.run(doing, "SET SESSION gtid_next = 'AUTOMATIC'")?;
            }
        }
        Ok(())
    }

    /// Repairs tables that were in use when they were copied, by their index files: the applier would change, and keep, a
    /// damaged one. Returns what the server says of them.
    pub(crate) fn repair(
        &mut self,
        index_files: &[String],
        watch: &Watch<'_>,
    ) -> Result<Vec<String>, ReplayError> {
        let mut said = Vec::new();
        for file in index_files {
            let Some((schema, table)) = places(file) else { continue };
            // Left-overs of statements are in no list.
            let named = format!(
                "SELECT CONCAT('`', REPLACE(table_schema, '`', '``'), '`.`', REPLACE(table_name, '`', '``'), '`') \
                 FROM information_schema.tables WHERE CAST(CONVERT(table_schema USING filename) AS BINARY) = {} \
                 AND CAST(CONVERT(table_name USING filename) AS BINARY) = {}",
                hex(schema),
                hex(table)
            );
            for [name] in self.texts("looking for a table that was in use", &named)? {
                let repaired = repair_table(&name, |statement| {
                    self.long("repairing a table that was in use", statement, watch)
                })?;
                said.extend(repaired.map_err(ReplayError::NotRepaired)?);
            }
        }
        said.dedup();
        Ok(said)
    }

    /// The engines among these that the server does not have.
    pub(crate) fn missing_engines(
        &mut self,
        engines: &[String],
    ) -> Result<Vec<String>, ReplayError> {
        let own = self.texts("listing engines", ENGINES)?;
        let is_own = |name: &String| own.iter().any(|[own]| own.eq_ignore_ascii_case(name));
        Ok(engines.iter().filter(|name| !is_own(name)).cloned().collect())
    }

    /// Events that are disabled as those of a replica.
    pub(crate) fn disabled_events(&mut self) -> Result<BTreeSet<String>, ReplayError> {
        let rows = self.client.rows(self.dialect.disabled_events);
        let rows = rows.map_err(|error| self.broken("listing events", error))?;
        let text = |row: &Row| String::from_utf8_lossy(row.get(0).unwrap_or_default()).into_owned();
        Ok(rows.iter().map(text).collect())
    }

    /// Applies all relay logs.
    pub(crate) fn apply(&mut self, watch: &mut Watch<'_>) -> Result<Applied, ReplayError> {
        let Some((first, _)) = self.files.logs.first() else {
            self.check_gtids()?;
            return Ok(Applied::default());
        };
        self.run(
            "naming the relay logs",
            &format!("{}, RELAY_LOG_FILE='{first}', RELAY_LOG_POS=4", self.dialect.source),
        )?;
        self.files.check_lengths(self.dir)?;
        if let Some((note, _)) = self.dialect.workers {
            self.run("asking for its workers", note)?;
        }
        let filters = self.strict_filters()?;
        let is_partial = self.leave_out_rows(&filters)?;
        let mut done = Applied { filters, is_partial, ..Applied::default() };
        let files = self.files;
        for change in &files.changes {
            self.apply_to(change.after.as_ref(), &mut done, watch)?;
            done.unchanged.extend(self.change_settings(change)?);
        }
        self.apply_to(files.logs.last(), &mut done, watch)?;
        let status = self.status()?;
        if !status.error.is_empty() || !self.is_done(&status)? {
            return Err(self.elsewhere(&status)?);
        }
        self.run("ending the replica", self.dialect.reset)?;
        self.check_gtids()?;
        if !self.dialect.is_mysql() {
            // The server knows it, but the logs may have made its table anew, as a dump of all schemas does.
            let end = self.files.end.gtids.clone();
            self.note_position(&end)?;
        }
        done.unchanged.dedup();
        Ok(done)
    }

    /// Applies the relay logs up to the end of a transaction, and ends the applier.
    fn apply_to(
        &mut self,
        end: Option<&(String, u64)>,
        done: &mut Applied,
        watch: &mut Watch<'_>,
    ) -> Result<(), ReplayError> {
        let Some(end) = end else { return Ok(()) };
        let is_last = self.files.logs.last() == Some(end);
        let end = Some(end).filter(|_| !is_last);
        self.start(end)?;
        loop {
            match self.wait(watch)? {
                WaitEnd::Done => break,
                WaitEnd::Failed(status)
                    if end.is_some_and(|end| self.has_reached(&status, end)) =>
                {
                    break;
                }
                WaitEnd::Failed(status) => {
                    match (self.password(&status), self.end_of_drop(&status)) {
                        (Some(password), _) => {
                            self.set_password(&password)?;
                            self.in_parallel(done)?;
                        }
                        (None, Some(drop)) => {
                            self.drop_what_is_there(&status, drop, watch)?;
                            self.in_parallel(done)?;
                        }
                        (None, None) if done.retried.is_none() => {
                            (watch.progress)(Progress::Serially);
                            done.retried = Some(status.error);
                            self.run("applying serially", self.dialect.stop)?;
                            self.run("applying serially", self.dialect.serially)?;
                        }
                        (None, None) => match self.xa_ahead(&status) {
                            Some(xid) => {
                                self.roll_back(&xid)?;
                                done.ahead_xa.push(xid.to_string());
                                // That was the reason.
                                done.retried = None;
                            }
                            None => return Err(self.failure(status)?),
                        },
                    }
                }
            }
            self.start(end)?;
        }
        self.run("ending the applier", self.dialect.stop)
    }

    /// Gives the applier all its workers again. One of them may end it before the server has noted what the others have applied;
    /// then only the serial retry shows which transaction it was, and with that done, there is no reason to continue serially.
    fn in_parallel(&mut self, done: &mut Applied) -> Result<(), ReplayError> {
        done.retried = None;
        match self.dialect.workers {
            Some((_, all)) => self.run("applying in parallel", all),
            None => Ok(()),
        }
    }

    /// Whether the applier has ended because everything up to there is applied.
    fn has_reached(&self, status: &Status, (log, end): &(String, u64)) -> bool {
        let (relay, offset) = &status.relay;
        let place = |log, offset| self.files.bytes_before(log, offset);
        status.error.is_empty() && place(relay, *offset) >= place(log, *end)
    }

    /// Gives the server the values that the origin had from a change on: the next threads of the applier begin with them.
    /// Returns those that it did not take.
    fn change_settings(&mut self, change: &SettingsChange) -> Result<Vec<String>, ReplayError> {
        let mut unchanged = Vec::new();
        for (name, value) in &change.values {
            let set = match assignment(name, value) {
                None => false,
                Some(statement) => match self.client.run(&statement) {
                    Ok(()) => true,
                    // One that only a start sets, or that this version lacks.
                    Err(Error::Server(_)) => false,
                    Err(error) => return Err(self.broken("changing a setting", error)),
                },
            };
            if !set {
                unchanged.push(format!("{name}={value}"));
            }
        }
        Ok(unchanged)
    }

    /// The error of a transaction that cannot be applied.
    fn failure(&mut self, status: Status) -> Result<ReplayError, ReplayError> {
        let what = self.describe(&status);
        let error = match status.error.is_empty() {
            true => "the applier has ended without an error".to_owned(),
            false => status.error,
        };
        self.refuse_full(format!("{what}: {error}"))?;
        let error = match status.code == NO_SUCH_ROW {
            true => self.with_option(error),
            false => error,
        };
        Ok(ReplayError::Transaction { what, error })
    }

    /// Adds the option that leaves out a table of which no backup has rows, if the error names one.
    fn with_option(&mut self, error: String) -> String {
        let tables = self.settings(
            "SELECT table_schema, table_name FROM information_schema.tables \
             WHERE engine = 'MEMORY' AND table_type = 'BASE TABLE'",
        );
        let tables = tables.unwrap_or_default();
        let mut names = tables.iter().map(|table| table.replacen('=', ".", 1));
        match names.find(|name| error.contains(&format!(" on table {name};"))) {
            None => error,
            Some(name) => format!(
                "{error}; no backup has the rows of a MEMORY table: leave it out with {LEAVE_OUT}{name}"
            ),
        }
    }

    /// The end in its relay log of a DROP of several tables or sequences that has failed because the data lacks some of them:
    /// MariaDB logs all names, also of those that were not there, and an applier with its default settings passes over them.
    fn end_of_drop(&self, status: &Status) -> Option<u64> {
        let is_missing = !self.dialect.is_mysql() && NOT_THERE.contains(&status.code);
        let (log, offset) = &status.relay;
        let statement = self.summary(log, *offset).filter(|_| is_missing)?.statement?;
        if !statement.starts_with("DROP ") || !has_several_names(&statement) {
            return None;
        }
        // A GTID, and the statement.
        let events = self.read(log, *offset, DESCRIBED).ok()?;
        let length = |event: &[u8]| {
            let header = event.first_chunk().map(EventHeader::parse)?;
            usize::try_from(header.length).ok()
        };
        let first = length(&events)?;
        let both = first.checked_add(length(events.get(first..)?)?)?;
        Some(offset + both as u64)
    }

    /// The XA transaction that could not begin, after all before it was applied alone, because the data has it prepared: InnoDB
    /// prepares one before its GTID counts, and a clone may be of that moment. The origin began it here, so it was not
    /// prepared there.
    fn xa_ahead(&self, status: &Status) -> Option<Xid> {
        let (log, offset) = &status.relay;
        self.summary(log, *offset).filter(|_| status.code == XA_IS_THERE)?.xid
    }

    fn roll_back(&mut self, xid: &Xid) -> Result<(), ReplayError> {
        let doing = "rolling back an XA transaction that is ahead of the GTIDs";
        self.run(doing, self.dialect.stop)?;
        self.run(doing, &format!("XA ROLLBACK {xid}"))
    }

    /// The `SET PASSWORD` for an account whose first method is the system's. A server without a binary log says that it has failed,
    /// and sets the password even so.
    fn password(&self, status: &Status) -> Option<PasswordChange> {
        let is_it = !self.dialect.is_mysql() && status.code == NO_PASSWORD;
        let (log, offset) = &status.relay;
        let head = self.read(log, 0, DESCRIBED).ok().filter(|_| is_it)?;
        PasswordChange::parse(&head, &self.read(log, *offset, DESCRIBED).ok()?)
    }

    /// Sets a password in place of the applier, which continues after it.
    fn set_password(&mut self, change: &PasswordChange) -> Result<(), ReplayError> {
        let doing = "setting a password";
        self.run(doing, self.dialect.stop)?;
        // The account has the time of its last change.
        self.run(doing, &format!("SET SESSION timestamp = {}", change.time))?;
        match self.client.run(&change.statement) {
            Err(Error::Server(error)) if u64::from(error.code) == NO_PASSWORD => {
                let hash = change.statement.rsplit('\'').nth(1).unwrap_or_default();
                let found = format!(
                    "SELECT COUNT(*) FROM mysql.global_priv WHERE INSTR(priv, {}) > 0",
                    hex(hash)
                );
                let found = value(self.client, &found);
                if found.map_err(|error| self.broken(doing, error))? == "0" {
                    return Err(self.broken(doing, Error::Server(error)));
                }
            }
            run => run.map_err(|error| self.broken(doing, error))?,
        }
        self.run(doing, "SET SESSION timestamp = DEFAULT")?;
        let mut gtids = self.gtids()?;
        if !gtids.add(change.gtid.clone()) {
            return Err(self.broken(doing, Error::Unexpected));
        }
        self.note_position(&gtids)?;
        self.run(doing, "SET GLOBAL sql_slave_skip_counter = 1")
    }

    /// Applies a DROP up to `end` in its relay log, without those that are not there.
    fn drop_what_is_there(
        &mut self,
        status: &Status,
        end: u64,
        watch: &mut Watch<'_>,
    ) -> Result<(), ReplayError> {
        let doing = "dropping what is there";
        self.run(doing, self.dialect.stop)?;
        self.run(doing, self.dialect.serially)?;
        self.run(doing, "SET GLOBAL slave_ddl_exec_mode = 'IDEMPOTENT'")?;
        let (log, _) = &status.relay;
        self.start(Some(&(log.clone(), end)))?;
        if let WaitEnd::Failed(stopped) = self.wait(watch)?
            && (!stopped.error.is_empty() || stopped.relay == status.relay)
        {
            return Err(self.failure(stopped)?);
        }
        self.run(doing, self.dialect.stop)?;
        self.run(doing, "SET GLOBAL slave_ddl_exec_mode = 'STRICT'")
    }

    /// The filters that the operator has set. Whatever an option does, GTIDs and positions are the planned ones in the end,
    /// so only the server itself tells.
    fn strict_filters(&mut self) -> Result<Vec<String>, ReplayError> {
        if let Some(option) = self.settings(self.dialect.lenient)?.pop() {
            return Err(ReplayError::Lenient(option));
        }
        self.settings(self.dialect.filters)
    }

    /// Whether filters may leave out what a backup has: all do but those of single tables of which no backup has rows, as far
    /// as the data shows before anything is applied.
    fn leave_out_rows(&mut self, filters: &[String]) -> Result<bool, ReplayError> {
        for filter in filters {
            let Some(tables) = filter.strip_prefix("replicate_ignore_table=") else {
                return Ok(true);
            };
            for table in tables.split(',') {
                // Names differ by case, and what a backslash means in a string depends on sql_mode.
                let name = hex(table);
                let found = self.settings(&format!(
                    "SELECT table_name, engine FROM information_schema.tables WHERE engine IN ('MEMORY', 'BLACKHOLE') \
                     AND CAST(CONCAT(table_schema, '.', table_name) AS BINARY) = {name}"
                ))?;
                if found.is_empty() {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// The names and values that a statement finds, as `NAME=VALUE`.
    fn settings(&mut self, statement: &str) -> Result<Vec<String>, ReplayError> {
        let rows = self.texts("asking for its options", statement)?;
        Ok(rows.into_iter().map(|[name, value]| format!("{name}={value}")).collect())
    }

    pub(crate) fn texts<const N: usize>(
        &mut self,
        doing: &'static str,
        statement: &str,
    ) -> Result<Vec<[String; N]>, ReplayError> {
        let rows = self.client.rows(statement);
        let texts = rows.and_then(|rows| rows.iter().map(Row::texts).collect());
        texts.map_err(|error| self.broken(doing, error))
    }

    /// The rows of a statement that may take long. A cancel leaves it to the end of the server.
    pub(crate) fn long<const N: usize>(
        &mut self,
        doing: &'static str,
        statement: &str,
        watch: &Watch<'_>,
    ) -> Result<Vec<[String; N]>, ReplayError> {
        let closer = self.client.hang_up();
        let closer = closer.map_err(|error| self.broken(doing, error))?;
        let client = &mut *self.client;
        let rows = std::thread::scope(|scope| {
            let (answer, answered) = mpsc::sync_channel(1);
            scope.spawn(move || answer.send(client.rows(statement)));
            loop {
                match answered.recv_timeout(PAUSE) {
                    Ok(rows) => return Ok(rows),
                    Err(RecvTimeoutError::Timeout) if !(watch.is_cancelled)() => {}
                    Err(_) => {
                        closer.now();
                        return Err(ReplayError::Abandoned);
                    }
                }
            }
        })?;
        let texts = rows.and_then(|rows| rows.iter().map(Row::texts).collect());
        texts.map_err(|error| self.broken(doing, error))
    }

    /// Starts the applier, which ends by itself at a place in the relay logs if one is given.
    fn start(&mut self, end: Option<&(String, u64)>) -> Result<(), ReplayError> {
        let until = end.map(|(log, offset)| {
            format!(" UNTIL RELAY_LOG_FILE = '{log}', RELAY_LOG_POS = {offset}")
        });
        let statement = format!("{}{}", self.dialect.start, until.unwrap_or_default());
        self.run("starting the applier", &statement)
    }

    /// Waits until the applier has done everything, or has failed.
    fn wait(&mut self, watch: &mut Watch<'_>) -> Result<WaitEnd, ReplayError> {
        let mut stillness = IdleDetector::new(self.patience);
        let total = self.files.bytes();
        loop {
            let status = self.status()?;
            let (log, offset) = &status.relay;
            let done = self.files.bytes_before(log, *offset).min(total);
            (watch.progress)(Progress::Applying(done, total));
            if !status.is_running {
                return Ok(WaitEnd::Failed(status));
            }
            if self.is_done(&status)? {
                return Ok(WaitEnd::Done);
            }
            if (watch.is_cancelled)() {
                return Err(ReplayError::Abandoned);
            }
            let now = activity(self.client, self.dialect)
                .map_err(|error| self.broken("asking it", error))?;
            let at = format!("{}:{}", status.source.0, status.source.1);
            stillness.check(format!("{log} {offset} {at} {now}"), &at)?;
            if stillness.may_be_stopped() {
                self.refuse_full(at)?;
                self.end_deadlock()?;
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Ends workers that wait for a lock while a later transaction waits for theirs: it may hold that lock, which MariaDB
    /// does not notice of ALTER SEQUENCE. The applier fails then, and everything is applied serially.
    fn end_deadlock(&mut self) -> Result<(), ReplayError> {
        let Some(statement) = self.dialect.deadlocked else { return Ok(()) };
        for [id] in self.texts("looking for a deadlock", statement)? {
            match self.client.run(format!("KILL CONNECTION {id}")) {
                // It has ended meanwhile.
                Ok(()) | Err(Error::Server(_)) => {}
                Err(error) => return Err(self.broken("ending a deadlock", error)),
            }
        }
        Ok(())
    }

    /// Writes most changed pages, so that the server can stop within the time limit of a stop.
    pub(crate) fn flush(&mut self, watch: &Watch<'_>) -> Result<(), ReplayError> {
        self.run("flushing", "SET GLOBAL innodb_max_dirty_pages_pct_lwm = 0")?;
        self.run("flushing", "SET GLOBAL innodb_max_dirty_pages_pct = 0")?;
        let mut stillness = IdleDetector::new(self.patience);
        loop {
            let dirty = value(self.client, self.dialect.dirty)
                .map_err(|error| self.broken("asking it", error))?;
            if dirty.parse::<u64>().is_ok_and(|dirty| dirty <= FEW_PAGES) {
                return Ok(());
            }
            if (watch.is_cancelled)() {
                return Err(ReplayError::Abandoned);
            }
            stillness.check(dirty, "its flushing")?;
            if stillness.may_be_stopped() {
                self.refuse_full("its flushing".to_owned())?;
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Returns whether both the GTIDs and the position are the planned ones. A set of MySQL has every transaction, and what its
    /// applier passes over does not move the position.
    fn is_done(&mut self, status: &Status) -> Result<bool, ReplayError> {
        let last = self.files.end.last.as_ref();
        // Events count positions modulo 2³².
        let low = |offset: u64| offset & u64::from(u32::MAX);
        let is_there = last.is_some_and(|last| {
            last.log() == status.source.0 && low(last.offset()) == low(status.source.1)
        });
        // In parallel, MariaDB never goes back to a log with a lower name, such as the first one of another server.
        let (log, offset) = &status.relay;
        let is_all = self.files.bytes_before(log, *offset) >= self.files.bytes();
        let is_there = is_there || self.dialect.is_mysql() || (self.files.is_moved && is_all);
        Ok(is_there && self.gtids()? == self.files.end.gtids)
    }

    fn check_gtids(&mut self) -> Result<(), ReplayError> {
        let (found, expected) = (self.gtids()?, &self.files.end.gtids);
        match found == *expected {
            true => Ok(()),
            false => Err(ReplayError::Elsewhere {
                expected: expected.to_string(),
                found: found.to_string(),
            }),
        }
    }

    fn elsewhere(&mut self, status: &Status) -> Result<ReplayError, ReplayError> {
        let end = &self.files.end;
        let last = end.last.as_ref().map(ToString::to_string).unwrap_or_default();
        let expected = format!("{last} ({})", end.gtids);
        let (log, offset) = &status.source;
        let found = format!("{log}:{offset} ({}) {}", self.gtids()?, status.error);
        Ok(ReplayError::Elsewhere { expected, found })
    }

    fn gtids(&mut self) -> Result<GtidState, ReplayError> {
        let text = value(self.client, self.dialect.gtids)
            .map_err(|error| self.broken("asking it", error))?;
        text.parse().map_err(|_| self.broken("asking it", Error::Unexpected))
    }

    fn status(&mut self) -> Result<Status, ReplayError> {
        let status = Status::ask(self.client, self.dialect)
            .map_err(|error| self.broken("asking it", error))?;
        Ok(status.unwrap_or_default())
    }

    pub(crate) fn run(&mut self, doing: &'static str, statement: &str) -> Result<(), ReplayError> {
        self.client.run(statement).map_err(|error| self.broken(doing, error))
    }

    /// The error of a statement, or why the server has ended.
    pub(crate) fn broken(&mut self, doing: &'static str, error: Error) -> ReplayError {
        if !matches!(error, Error::Server(_))
            && let Err(ended) = self.server.poll()
        {
            return ReplayError::Server(ended);
        }
        self.refuse_full(format!("{doing}: {error}"))
            .err()
            .unwrap_or(ReplayError::Statement { doing, error })
    }

    /// Fails if the file system of the data has no room: a server waits for it, and says so only in its log, or fails anywhere.
    fn refuse_full(&self, at: String) -> Result<(), ReplayError> {
        let dir = self.dir.parent().unwrap_or(self.dir);
        match free_bytes(dir).is_some_and(|free| free < NO_ROOM) {
            true => Err(ReplayError::FullDisk { dir: dir.to_owned(), at }),
            false => Ok(()),
        }
    }

    /// Describes the transaction that the applier has reached.
    fn describe(&self, status: &Status) -> String {
        let (log, offset) = &status.relay;
        match self.summary(log, *offset) {
            Some(summary) => summary.to_string(),
            None => format!("the transaction at {}:{}", status.source.0, status.source.1),
        }
    }

    /// The transaction at an offset of a relay log.
    fn summary(&self, log: &str, offset: u64) -> Option<TransactionSummary> {
        // Longer than any format description.
        let head = self.read(log, 0, 2048).ok()?;
        TransactionSummary::read(&head, &self.read(log, offset, DESCRIBED).ok()?)
    }

    /// At most `length` bytes of a relay log.
    fn read(&self, log: &str, from: u64, length: u64) -> std::io::Result<Vec<u8>> {
        let mut file = File::open(self.dir.join(log))?;
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.take(length).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

/// Whether a statement of a list has a second name. A session may quote names with `"`, or not at all.
fn has_several_names(statement: &str) -> bool {
    let mut quote = None;
    statement.chars().any(|letter| {
        match quote {
            None if matches!(letter, '`' | '"') => quote = Some(letter),
            Some(open) if open == letter => quote = None,
            _ => {}
        }
        quote.is_none() && letter == ','
    })
}

/// The parts of the name of an index file that name its schema and table, without that of a partition.
fn places(index_file: &str) -> Option<(&str, &str)> {
    let (schema, file) = index_file.split_once('/')?;
    let table = file.split(['#', '.']).next().filter(|table| !table.is_empty())?;
    Some((schema, table))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panic")]

    use super::*;

    /// A virtual machine is moved, or a terminal stops everything: afterwards nothing has changed, and the server is not idle.
    #[test]
    fn a_pause_of_the_host_is_no_idleness_of_the_server() {
        let paused = Duration::from_secs(20);
        let mut idle = IdleDetector::new(paused / 2);
        let mut look = |before: Duration| {
            idle.looked = Instant::now().checked_sub(before).unwrap();
            let result = idle.check("same".to_owned(), "there");
            (result.is_ok(), idle.may_be_stopped())
        };
        assert_eq!(look(Duration::ZERO), (true, false));
        assert_eq!(look(paused), (true, false));
        for _ in 0..4 {
            assert_eq!(look(Duration::from_secs(1)), (true, false));
        }
        assert_eq!(look(Duration::from_secs(1)), (true, true));
        let ends = (0..20).find(|_| !look(Duration::from_secs(1)).0);
        assert!(ends.is_some());
    }
}
