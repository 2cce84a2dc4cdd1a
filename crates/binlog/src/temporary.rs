//! Temporary tables that existed at the data's position. They are in no backup, so a statement on one that has the name of a real
//! table would change that. Servers mark the statements that depend on their session: those on its temporary tables, and those
//! that call `CONNECTION_ID()`, in a routine perhaps. When the session ends, they log that its tables go, by name: one that the
//! session has not made behind the position is older.

use std::collections::{BTreeMap, BTreeSet};

use crate::position::LogPosition;
use crate::query::Query;
use crate::statement_tables::{StatementTables, TableEffect, TableName};
use crate::words::Words;

/// Memory for all sessions, in bytes, and what one and a name take beside the bytes of names.
const MEMORY: usize = if cfg!(test) { 1 << 20 } else { 16 << 20 };
const SESSION: usize = 512;
const NAME: usize = 128;
/// Doubts of a session that are told apart.
const DOUBTS: usize = 16;
/// Tables that a session has, and names that are known of it.
const NAMES: usize = 1000;

/// A session: the server, and the number of its thread.
pub(crate) type Session = (u32, u32);

/// A marked statement: its number, and where it is.
type Place = (u64, LogPosition);

/// What the marked statements of a log show.
#[derive(Debug, Default)]
pub(crate) struct TemporaryTables {
    sessions: BTreeMap<Session, SessionTables>,
    memory: usize,
    /// Number of marked statements.
    number: u64,
    /// The first statement that stays in doubt, whatever follows.
    settled: Option<Place>,
    /// The first statement that was not wholly on tables that its session had made, of those sessions that were forgotten.
    forgotten: Option<Place>,
    /// The server has started behind the data's position: none is older.
    has_started: bool,
    /// There was no room for more: everything is in doubt.
    is_full: bool,
    /// Of the present transaction.
    changes: u32,
    /// Its statement, if it changes this table only, or tables that the session has made.
    open: Option<(Session, TableName)>,
}

#[derive(Debug, Default)]
struct SessionTables {
    /// Those that it has made behind the data's position; whether there was none of this name before.
    made: BTreeMap<TableName, bool>,
    /// Names that no older one has.
    free: BTreeSet<TableName>,
    /// The first statement that may be on any table.
    other: Option<Place>,
    /// The first statement on each table that is not one that it has made, by a name as [`folded`] has it: of statements that
    /// name all their tables.
    used: BTreeMap<[Vec<u8>; 2], Place>,
    doubts: Vec<Doubt>,
}

/// A statement that may be on an older one.
#[derive(Debug)]
struct Doubt {
    place: Place,
    /// The names that may be older tables.
    names: BTreeSet<TableName>,
    /// It may be on no others, and there is a reason for its mark without them.
    is_all: bool,
}

impl SessionTables {
    fn memory(&self) -> usize {
        let names = self.made.keys().chain(&self.free);
        let names = names.chain(self.doubts.iter().flat_map(|doubt| &doubt.names));
        let names = names.map(|(schema, name)| NAME + schema.len() + name.len()).sum::<usize>();
        let used = self.used.keys().map(|[schema, name]| NAME + schema.len() + name.len());
        SESSION + names + used.sum::<usize>()
    }

    /// The first statement that names a table, and has no other reason for its mark.
    fn named(&self, name: &TableName) -> Option<&LogPosition> {
        let mut doubts = self.doubts.iter().filter(|doubt| !doubt.is_all);
        doubts.find(|doubt| doubt.names.contains(name)).map(|doubt| &doubt.place.1)
    }

    /// The first statement that is not wholly on what it has made.
    fn first_other(&self) -> Option<Place> {
        first(self.used.values().cloned().map(Some).chain([self.other.clone()]))
    }

    /// No older table has this name.
    fn release(&mut self, name: TableName) {
        for doubt in &mut self.doubts {
            doubt.names.remove(&name);
        }
        self.doubts.retain(|doubt| !doubt.is_all || !doubt.names.is_empty());
        self.free.insert(name);
    }

    fn doubt(&mut self, place: &Place, names: BTreeSet<TableName>, is_all: bool) {
        match self.doubts.get_mut(DOUBTS - 1) {
            None => self.doubts.push(Doubt { place: place.clone(), names, is_all }),
            // It stands for all later ones.
            Some(last) => last.is_all = false,
        }
    }

    /// Forgets a table that it has made. `None` if there is none of this name; else whether it certainly was a new one.
    fn unmake(&mut self, name: &TableName) -> Option<bool> {
        let is_new = self.made.remove(name)?;
        self.free.insert(name.clone());
        Some(is_new)
    }

    /// The same by a name that may be written in another way.
    fn unmake_like(&mut self, name: &TableName) -> Option<bool> {
        let alike = |other: &&TableName| folded(other) == folded(name);
        let name = self.made.keys().find(alike)?.clone();
        self.unmake(&name)
    }
}

/// A name as servers compare it that do not tell case, whose statements are in any character set.
fn folded((schema, name): &TableName) -> [Vec<u8>; 2] {
    [schema, name].map(|part| {
        let mut folded = part.to_ascii_lowercase();
        folded.iter_mut().filter(|byte| **byte >= 0x80).for_each(|byte| *byte = 0x80);
        folded.dedup_by(|a, b| *a == 0x80 && *b == 0x80);
        folded
    })
}

impl TemporaryTables {
    /// The server that writes the log has started: its sessions have ended, and there are no older tables. A crash has ended
    /// some without a word, so that their doubts stay.
    pub(crate) fn server_started(&mut self) {
        self.other_server();
        self.has_started = true;
    }

    /// The log of another server follows.
    pub(crate) fn other_server(&mut self) {
        self.settled = self.first_doubt();
        self.forgotten = None;
        self.has_started = false;
        self.sessions.clear();
        self.memory = 0;
        self.begin();
    }

    /// A transaction begins.
    pub(crate) fn begin(&mut self) {
        (self.changes, self.open) = (0, None);
    }

    /// An event of the transaction changes something.
    pub(crate) fn change(&mut self) {
        self.changes = self.changes.saturating_add(1);
    }

    /// The transaction ends as those do that have changed a real table.
    pub(crate) fn real_table_changed(&mut self) {
        if let (Some((session, name)), 1) = (self.open.take(), self.changes)
            && let Some(of) = self.sessions.get_mut(&session)
        {
            of.release(name);
        }
    }

    /// The first statement that may be on a temporary table that the data lacks.
    pub(crate) fn doubt(&self) -> Option<LogPosition> {
        self.first_doubt().map(|(_, at)| at)
    }

    fn first_doubt(&self) -> Option<Place> {
        let doubts = self.sessions.values().flat_map(|of| &of.doubts);
        let doubts = doubts.map(|doubt| doubt.place.clone());
        doubts.chain(self.settled.clone()).min_by_key(|(number, _)| *number)
    }

    /// Takes a statement without the mark: no table of it is temporary, but servers do not mark `RENAME TABLE`.
    pub(crate) fn unmarked(&mut self, session: Session, query: &Query, at: &LogPosition) {
        let of = self.sessions.get(&session);
        let has_doubts = of.is_some_and(|of| of.doubts.iter().any(|doubt| doubt.is_all));
        // `SET STATEMENT ... FOR RENAME TABLE`, too.
        let first = Words::new(&query.text).upper();
        if !has_doubts && !matches!(first.as_deref(), Some("RENAME" | "SET")) {
            return;
        }
        let tables = StatementTables::of(query);
        let taken = self.in_session(session, at, |_, of, place| {
            if let TableEffect::Rename(pairs) = tables.effect {
                for (from, to) in pairs {
                    match of.unmake(&from) {
                        Some(is_new) => drop(of.made.insert(to, is_new)),
                        // A real one, or an older one: its new name may show that later.
                        None => drop(of.other.get_or_insert_with(|| place.clone())),
                    }
                }
            } else if tables.is_plain && tables.is_sure {
                let doubts = of.doubts.iter().flat_map(|doubt| &doubt.names);
                let names: Vec<TableName> =
                    doubts.filter(|name| tables.uses.contains(*name)).cloned().collect();
                names.into_iter().for_each(|name| of.release(name));
            }
            Ok(())
        });
        debug_assert!(taken.is_ok());
    }

    /// Takes a marked statement.
    ///
    /// # Errors
    /// The position of a statement on a temporary table that the data lacks.
    pub(crate) fn statement(
        &mut self,
        session: Session,
        query: &Query,
        at: &LogPosition,
    ) -> Result<(), LogPosition> {
        self.in_session(session, at, |all, of, place| all.take(session, of, query, place))
    }

    /// Takes something of a session, if there is room for it.
    fn in_session(
        &mut self,
        session: Session,
        at: &LogPosition,
        take: impl FnOnce(&mut Self, &mut SessionTables, &Place) -> Result<(), LogPosition>,
    ) -> Result<(), LogPosition> {
        if self.has_started || self.is_full {
            return Ok(());
        }
        self.number += 1;
        let place = (self.number, at.clone());
        let of = self.sessions.remove(&session);
        self.memory = self.memory.saturating_sub(of.as_ref().map_or(0, SessionTables::memory));
        let mut of = of.unwrap_or_default();
        let taken = take(self, &mut of, &place);
        if of.free.len() > NAMES {
            of.free.clear();
        }
        if of.used.len() > NAMES {
            of.other = of.first_other();
            of.used.clear();
        }
        let has_many = of.made.len() > NAMES;
        if !of.made.is_empty() || !of.doubts.is_empty() || of.first_other().is_some() {
            self.memory += of.memory();
            self.sessions.insert(session, of);
        }
        let is_crowded = self.memory > MEMORY && {
            self.forget();
            self.memory > MEMORY / 2
        };
        // With little left, it would look for some again and again.
        if is_crowded || has_many {
            self.settled = self.first_doubt().or(Some(place));
            self.sessions.clear();
            self.is_full = true;
        }
        taken
    }

    /// Forgets the sessions that have no table and no doubt, as those do that have ended.
    fn forget(&mut self) {
        let (memory, forgotten) = (&mut self.memory, &mut self.forgotten);
        self.sessions.retain(|_, of| {
            let is_kept = !of.made.is_empty() || !of.doubts.is_empty();
            if !is_kept {
                *memory = memory.saturating_sub(of.memory());
                *forgotten = first([forgotten.take(), of.first_other()]);
            }
            is_kept
        });
    }

    fn take(
        &mut self,
        session: Session,
        of: &mut SessionTables,
        query: &Query,
        place: &Place,
    ) -> Result<(), LogPosition> {
        let tables = StatementTables::of(query);
        match tables.effect {
            TableEffect::Make { name, may_exist, replaces } => {
                let is_known = of.made.contains_key(&name) || of.free.contains(&name);
                if replaces && !is_known {
                    // In the place of an older one, perhaps.
                    if let Some(at) = of.named(&name) {
                        return Err(at.clone());
                    }
                    self.settle(of, |doubt| doubt.may_be_on(&name));
                }
                if may_exist && !is_known {
                    of.other.get_or_insert_with(|| place.clone());
                    of.doubt(place, BTreeSet::new(), false);
                    of.made.insert(name, false);
                } else if !may_exist || !of.made.contains_key(&name) {
                    of.made.insert(name, true);
                }
                self.uses((session, of), tables.uses, (tables.is_sure, true), place);
                Ok(())
            }
            TableEffect::Drop { names, is_end, all_exist } => {
                self.drop(of, names, (is_end, all_exist), query.is_cut())
            }
            TableEffect::Others => Ok(()),
            TableEffect::Rename(pairs) => {
                for (from, to) in pairs {
                    match of.unmake(&from) {
                        Some(is_new) => drop(of.made.insert(to, is_new)),
                        None => {
                            of.other.get_or_insert_with(|| place.clone());
                            of.doubt(place, BTreeSet::from([from]), false);
                        }
                    }
                }
                if !tables.is_sure {
                    self.uses((session, of), tables.uses, (false, true), place);
                }
                Ok(())
            }
            TableEffect::Nothing => {
                let is_explained = tables.asks_session
                    || tables.is_always_marked
                    || tables.uses.iter().any(|name| of.made.contains_key(name));
                self.uses((session, of), tables.uses, (tables.is_sure, is_explained), place);
                Ok(())
            }
        }
    }

    /// A statement uses tables, and perhaps others: then it is not sure. It has been explained what it is marked for.
    fn uses(
        &mut self,
        (session, of): (Session, &mut SessionTables),
        mut names: BTreeSet<TableName>,
        (is_sure, is_explained): (bool, bool),
        place: &Place,
    ) {
        if is_sure && names.is_empty() {
            return;
        }
        names.retain(|name| !of.made.contains_key(name));
        let is_all = is_sure && is_explained;
        if is_all && names.is_empty() {
            return;
        }
        if is_all {
            for name in &names {
                of.used.entry(folded(name)).or_insert_with(|| place.clone());
            }
        } else {
            of.other.get_or_insert_with(|| place.clone());
        }
        names.retain(|name| !of.free.contains(name));
        if is_all && names.is_empty() {
            return;
        }
        if let (true, 1, Some(name)) = (is_all, names.len(), names.first()) {
            self.open = Some((session, name.clone()));
        }
        of.doubt(place, names, is_all);
    }

    /// A statement drops temporary tables, because the session ends, or by name; all of them exist, or perhaps not. There may
    /// be more of them if it is cut off.
    fn drop(
        &mut self,
        of: &mut SessionTables,
        names: Vec<TableName>,
        (is_end, all_exist): (bool, bool),
        is_cut: bool,
    ) -> Result<(), LogPosition> {
        let mut has_doubtful = is_cut;
        let mut left = Vec::new();
        for name in names {
            match of.unmake(&name) {
                Some(is_new) => has_doubtful |= !is_new,
                None => left.push(name),
            }
        }
        for name in left {
            if let Some(is_new) = of.unmake_like(&name) {
                has_doubtful |= !is_new;
                continue;
            }
            if of.free.contains(&name) {
                continue;
            }
            // It is older than the position, or there is none.
            let older = first([of.other.clone(), of.used.get(&folded(&name)).cloned()]);
            let older = older.filter(|_| all_exist).map(|(_, at)| at);
            if let Some(at) = of.named(&name).cloned().or(older) {
                return Err(at);
            }
            if all_exist {
                // A trigger of another table may have used it.
                let used = of.used.values().cloned().map(Some);
                let others = [self.settled.take(), self.forgotten.clone()];
                self.settled = first(used.chain(others));
            } else {
                self.settle(of, |doubt| doubt.may_be_on(&name));
            }
            of.free.insert(name);
        }
        if has_doubtful {
            self.settle(of, |_| true);
        }
        if is_end {
            // Whatever it used before was its own, or real; if not, its table would be here, or in the next statement: there is
            // one for each schema.
            of.doubts.clear();
            of.free.clear();
        }
        Ok(())
    }

    /// These doubts of a session stay.
    fn settle(&mut self, of: &mut SessionTables, stays: impl Fn(&Doubt) -> bool) {
        let settled =
            of.doubts.iter().filter(|doubt| stays(doubt)).map(|doubt| Some(doubt.place.clone()));
        self.settled = first(settled.chain([self.settled.take()]));
    }
}

impl Doubt {
    fn may_be_on(&self, name: &TableName) -> bool {
        !self.is_all || self.names.contains(name)
    }
}

fn first(places: impl IntoIterator<Item = Option<Place>>) -> Option<Place> {
    places.into_iter().flatten().min_by_key(|(number, _)| *number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Quoting;

    fn at(offset: u64) -> LogPosition {
        LogPosition::new("bin.000001", offset).unwrap()
    }

    /// A server's log, in which every statement is marked. `START` and `OTHER` are another beginning of the server, and another
    /// server; `XID` ends the transaction of the statement before; one that begins with `-` has no mark.
    fn tracked(ansi: bool, statements: &[(u32, &str)]) -> Result<TemporaryTables, u64> {
        let mut tables = TemporaryTables::default();
        for ((thread, text), n) in statements.iter().zip(1_u64..) {
            let (schema, text) = match text.strip_prefix("use b; ") {
                Some(text) => ("b", text),
                None => ("a", *text),
            };
            let mut query = Query::of_text(schema, text.trim_start_matches('-'));
            query.quoting = Quoting { has_ansi_names: ansi, ..Quoting::default() };
            let session = (1, *thread);
            match text {
                "START" => tables.server_started(),
                "OTHER" => tables.other_server(),
                "XID" => tables.real_table_changed(),
                _ => {
                    tables.begin();
                    tables.change();
                    if text.starts_with('-') {
                        tables.unmarked(session, &query, &at(n));
                    } else {
                        tables.statement(session, &query, &at(n)).map_err(|at| at.offset())?;
                    }
                }
            }
        }
        Ok(tables)
    }

    /// The number of the statement that is refused, or of the one in doubt.
    fn of(statements: &[(u32, &str)]) -> Result<Option<u64>, u64> {
        Ok(tracked(false, statements)?.doubt().map(|at| at.offset()))
    }

    /// The same of one session.
    fn one(statements: &[&str]) -> Result<Option<u64>, u64> {
        of(&statements.iter().map(|text| (7, *text)).collect::<Vec<_>>())
    }

    const DELETE: &str = "DELETE FROM t";
    const END: &str = "DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `t`";
    const X: &str = "CREATE TEMPORARY TABLE b.x(id int)";
    const END_X: &str = "use b; DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `x`";
    const KNOWN: Result<Option<u64>, u64> = Ok(None);

    #[test]
    fn a_statement_on_a_temporary_table_that_no_backup_has_is_found() {
        assert_eq!(one(&[DELETE]), Ok(Some(1)));
        assert_eq!(one(&[DELETE, END]), Err(1));
        assert_eq!(one(&[DELETE, "DROP TEMPORARY TABLE `t` /* generated by server */"]), Err(1));
        let by_name = "DROP TEMPORARY TABLE IF EXISTS `a`.`t` /* generated by server */";
        assert_eq!(one(&[DELETE, by_name]), Err(1));
        // One of that name need not be there, and nothing else was on it.
        let copy = "CREATE TEMPORARY TABLE b.x SELECT * FROM r";
        for may_be in [by_name, "CREATE OR REPLACE TEMPORARY TABLE y (i INT)"] {
            assert_eq!(one(&[copy, may_be, END_X]), KNOWN, "{may_be}");
            assert_eq!(one(&["INSERT INTO s SELECT f()", may_be, X, END_X]), Ok(Some(1)));
        }
        let other = "DROP TEMPORARY TABLE IF EXISTS `a`.`u` /* generated by server */";
        assert_eq!(one(&[DELETE, other, X, END_X]), Ok(Some(1)));
        // Of another session, or of one before the server's start.
        assert_eq!(of(&[(7, DELETE), (8, END)]), Ok(Some(1)));
        assert_eq!(of(&[(7, DELETE), (0, "START"), (7, END), (7, DELETE)]), Ok(Some(1)));
        assert_eq!(of(&[(7, X), (0, "START"), (7, DELETE), (7, END)]), KNOWN);
        assert_eq!(of(&[(7, X), (0, "OTHER"), (7, DELETE), (7, END)]), Err(3));
        // The log has it.
        for create in [
            "create temporary table t (i INT)",
            "CREATE TEMPORARY TABLE `a`.`t`(i INT)",
            "CREATE OR REPLACE TEMPORARY TABLE t SELECT 1",
        ] {
            assert_eq!(one(&[create, DELETE, END]), KNOWN, "{create}");
        }
        let again = "CREATE TEMPORARY TABLE IF NOT EXISTS `t` (i INT)";
        assert_eq!(one(&[again, DELETE, END]), Ok(Some(1)));
        assert_eq!(one(&["CREATE TEMPORARY TABLE t (i INT)", again, DELETE, END]), KNOWN);
        // A table that is made, and dropped if it is there, again and again.
        let round = [by_name, "CREATE TEMPORARY TABLE t (i INT)", DELETE, by_name];
        assert_eq!(one(&[round, round].concat()), KNOWN);
        // Marked for another reason, or for both.
        let both = "INSERT INTO t VALUES (Connection_ID())";
        assert_eq!(one(&[both]), Ok(Some(1)));
        assert_eq!(one(&[both, "XID"]), KNOWN);
        assert_eq!(one(&[both, END]), Err(1));
        assert_eq!(one(&["INSERT INTO audit SELECT f()", "XID", X, END_X]), KNOWN);
        assert_eq!(one(&["INSERT INTO audit SELECT f()", "XID", X]), Ok(Some(1)));
    }

    /// Each as a server logs it, of a session that has had a table `a.t` since before the backup.
    #[test]
    fn no_other_table_hides_an_older_one() {
        let joined = "DELETE t FROM t LEFT JOIN b.x ON x.id = t.id";
        let insert = "INSERT INTO b.x VALUES (1)";
        // One of the same name in another schema.
        assert_eq!(
            one(&[
                "CREATE TEMPORARY TABLE b.t(id int)",
                DELETE,
                "use b; DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `t`",
                END
            ]),
            Err(2)
        );
        // One whose name differs by case.
        assert_eq!(
            one(&[
                "CREATE TEMPORARY TABLE `T`(id int)",
                DELETE,
                "DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `t`,`T`"
            ]),
            Err(2)
        );
        assert_eq!(one(&["CREATE TEMPORARY TABLE `T`(id int)", DELETE]), Ok(Some(2)));
        // Many statements before it.
        for last in [joined, DELETE] {
            let many = [&[X][..], &[insert; 17], &[last], &[END_X, END]].concat();
            assert_eq!(one(&many), Err(19), "{last}");
        }
        // With ANSI_QUOTES.
        let end = r#"DROP /*!40005 TEMPORARY */ TABLE IF EXISTS "t""#;
        for last in [joined, DELETE] {
            let many = [(7, X), (7, last), (7, end)];
            assert_eq!(tracked(true, &many).map(drop), Err(2), "{last}");
        }
        // A function uses it.
        assert_eq!(one(&[X, "INSERT INTO b.x SELECT f()", END_X, END]), Err(2));
        assert_eq!(one(&[X, "INSERT INTO b.x SELECT f()"]), Ok(Some(2)));
        // Another one takes its place.
        assert_eq!(one(&[DELETE, "CREATE OR REPLACE TEMPORARY TABLE t(id int)"]), Err(1));
        // It gets another name.
        assert_eq!(
            one(&["ALTER TABLE t RENAME u", "DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `u`"]),
            Err(1)
        );
        assert_eq!(one(&["RENAME TABLE t TO u"]), Ok(Some(1)));
        assert_eq!(
            one(&["-RENAME TABLE t TO u", "DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `u`"]),
            Err(1)
        );
        // Its rows are loaded from a file, or another table is merged with it.
        assert_eq!(one(&["LOAD DATA LOCAL INFILE 'f' INTO TABLE `t`", END]), Err(1));
        assert_eq!(one(&["CREATE TEMPORARY TABLE m (id INT) ENGINE=MERGE UNION=(t)"]), Ok(Some(1)));
        // It stands behind the part of a statement that is kept.
        let long = "y".repeat(1100);
        assert_eq!(one(&[X, &format!("DELETE /* {long} */ t FROM t"), END_X, END]), Err(2));
        let names = vec!["`y`"; 300].join(",");
        assert_eq!(
            one(&[
                X,
                DELETE,
                &format!("use b; DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `x`,{names}")
            ]),
            Err(2)
        );
        let made: Vec<String> = (0..60)
            .map(|n| format!("CREATE TEMPORARY TABLE {}{n}(id int)", "x".repeat(20)))
            .collect();
        let names: Vec<String> = (0..60).map(|n| format!("`{}{n}`", "x".repeat(20))).collect();
        let end = format!("DROP /*!40005 TEMPORARY */ TABLE IF EXISTS {}", names.join(","));
        let all: Vec<&str> = made.iter().map(String::as_str).chain([DELETE, &end]).collect();
        assert_eq!(one(&all), Ok(Some(61)));
    }

    /// Each has the mark without a temporary table, as MariaDB 10.11 logs it.
    #[test]
    fn a_statement_that_is_always_marked_is_refused_by_its_tables_only() {
        let end_q = "DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `q`";
        let several = "DELETE t FROM t JOIN u USING (i)";
        let copied = "CREATE OR REPLACE TABLE u LIKE t";
        assert_eq!(one(&["DROP DATABASE b1"]), KNOWN);
        assert_eq!(one(&["DROP DATABASE b1", end_q]), KNOWN);
        assert_eq!(one(&["CREATE OR REPLACE VIEW v AS SELECT CONNECTION_ID()"]), KNOWN);
        for text in [several, copied] {
            // Its session may still have one, or a trigger may have used it.
            assert_eq!(one(&[text]), Ok(Some(1)), "{text}");
            assert_eq!(one(&[text, end_q]), Ok(Some(1)), "{text}");
            assert_eq!(one(&[text, END]), Err(1), "{text}");
            assert_eq!(one(&[text, "DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `T`"]), Err(1));
            // It has ended with those that it made.
            assert_eq!(one(&[X, text, END_X]), KNOWN, "{text}");
            assert_eq!(one(&[X, text, END_X, end_q]), Ok(Some(2)), "{text}");
            assert_eq!(one(&[X, text, END_X, END]), Err(2), "{text}");
            // With one that may be on any table.
            assert_eq!(one(&[text, "INSERT INTO s SELECT f()", end_q]), Err(2), "{text}");
        }
        assert_eq!(one(&[copied, "DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `u`"]), Ok(Some(1)));
        // More names than are kept.
        let many: Vec<String> = (0..1100).map(|n| format!("DELETE x{n} FROM x{n}, y")).collect();
        let all: Vec<&str> = many.iter().map(String::as_str).chain([end_q]).collect();
        assert_eq!(one(&all), Err(1));
    }

    #[test]
    fn a_session_that_has_not_ended_is_in_doubt() {
        let copied = "INSERT INTO t SELECT id+1000 FROM b.x";
        assert_eq!(one(&[X, copied]), Ok(Some(2)));
        assert_eq!(one(&[X, "DELETE FROM t WHERE 1 = 1 OR 'x' = id"]), Ok(Some(2)));
        assert_eq!(one(&["INSERT INTO t VALUES (LENGTH('connection_id()'))"]), Ok(Some(1)));
        // It is a real table: the transaction has changed one, or a statement on it has no mark.
        assert_eq!(one(&[X, copied, "XID"]), KNOWN);
        assert_eq!(one(&[X, copied, "-UPDATE t SET id = 1"]), KNOWN);
        assert_eq!(one(&[X, copied, "-UPDATE u SET id = 1"]), Ok(Some(2)));
        assert_eq!(one(&[X, DELETE, "-UPDATE t SET id = 1"]), Ok(Some(2)));
        // Which one, it does not say.
        assert_eq!(one(&[X, "UPDATE t, u, b.x SET t.id = 1", "XID"]), Ok(Some(2)));
        // The first one that stays in doubt is named.
        assert_eq!(of(&[(7, X), (7, copied), (8, DELETE), (7, END_X)]), Ok(Some(3)));
    }

    #[test]
    fn sessions_that_began_after_the_backup_are_not_refused() {
        let end = |name: &str| format!("DROP /*!40005 TEMPORARY */ TABLE IF EXISTS {name}");
        for (create, used, name) in [
            (
                "create temporary table `my tab`(id int)",
                "insert into `my tab` values(1)",
                "`my tab`",
            ),
            ("create temporary table `a.b`(id int)", "insert into `a.b` values(1)", "`a.b`"),
            ("create temporary table `a``b`(id int)", "insert into `a``b` values(1)", "`a``b`"),
            ("create temporary\ntable nl(id int)", "insert into nl values(1)", "`nl`"),
            ("/*! */ create /* the table */ temporary table cm(id int)", "delete from cm", "`cm`"),
            ("create temporary table/*x*/cn(id int)", "delete from cn", "`cn`"),
            ("create temporary table #c\n hs(id int)", "delete from hs", "`hs`"),
            (
                "set statement max_statement_time=10 for create temporary table ss(id int)",
                "delete from ss",
                "`ss`",
            ),
            ("create temporary table Orders(id int)", "delete from Orders", "`orders`"),
            ("create temporary table \u{e4}(id int)", "delete from \u{e4}", "`\u{c4}\u{d6}`"),
        ] {
            assert_eq!(one(&[create, used]), KNOWN, "{create}");
            assert_eq!(one(&[create, used, &end(name)]), KNOWN, "{create}");
        }
        let renamed = [
            "create temporary table r1(id int)",
            "-rename table r1 to r2",
            "insert into r2 values(2)",
            "alter table r2 rename r3",
            "insert into r3 values(3)",
            "alter table r3 rename to b.r4",
            "create temporary table r5(id int)",
            "-set statement max_statement_time=1 for rename table r5 to b.r6, b.r4 to r4",
            "use b; DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `r6`",
            "DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `r4`",
        ];
        assert_eq!(one(&["-RENAME TABLE r TO s", "-INSERT INTO s VALUES (1)"]), KNOWN);
        assert_eq!(one(&renamed), KNOWN);
        assert_eq!(one(&renamed[..8]), KNOWN);
        let sequence = ["DROP SEQUENCE `d3` /* generated by server */"; 2];
        assert_eq!(one(&[&sequence[..], &[DELETE]].concat()), Ok(Some(3)));
        // It copies from a real table, and to one.
        let copies = [
            "create temporary table b.x select * from r",
            "insert into s select * from b.x",
            END_X,
        ];
        assert_eq!(one(&copies), KNOWN);
    }

    #[test]
    fn memory_is_limited_and_nothing_is_known_beyond_it() {
        let query = |text: &str| Query::of_text("a", text);
        let mut tables = TemporaryTables::default();
        let create = query(&format!("CREATE TEMPORARY TABLE {}(id int)", "x".repeat(900)));
        for thread in 0..4000 {
            tables.statement((1, thread), &create, &at(thread.into())).unwrap();
            assert!(tables.memory <= MEMORY + 2 * Query::MAX_TEXT + SESSION);
        }
        assert!(tables.sessions.is_empty() && tables.doubt().is_some());
        let mut tables = TemporaryTables::default();
        for n in 0..2000 {
            let create = query(&format!("CREATE TEMPORARY TABLE x{n}(id int)"));
            tables.statement((1, 1), &create, &at(n)).unwrap();
        }
        assert!(tables.doubt().is_some());
        // Sessions that have ended are forgotten, unless one of them turns out to be an older one.
        let mut tables = TemporaryTables::default();
        let texts =
            ["CREATE TEMPORARY TABLE t SELECT * FROM r", "INSERT INTO s SELECT * FROM t", END];
        for thread in 0..5000 {
            for text in texts {
                tables.statement((1, thread), &query(text), &at(thread.into())).unwrap();
            }
            assert!(tables.memory <= MEMORY);
        }
        assert_eq!(tables.doubt(), None);
        tables.statement((1, 1), &query(END), &at(9999)).unwrap();
        assert_eq!(tables.doubt(), Some(at(0)));
        // So are the names of a session that lives long.
        let mut tables = TemporaryTables::default();
        for n in 0..3000 {
            for text in [
                format!("CREATE TEMPORARY TABLE x{n}(id int)"),
                format!("DROP TEMPORARY TABLE `x{n}`"),
            ] {
                tables.statement((1, 1), &query(&text), &at(n)).unwrap();
            }
        }
        assert_eq!(tables.doubt(), None);
    }
}
