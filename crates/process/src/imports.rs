//! Finds the tables whose rows a backup program of MariaDB leaves out, although it ends with success, because their
//! tablespaces were imported.
//!
//! `DISCARD TABLESPACE` writes into the redo log that the tablespace is gone, and `IMPORT TABLESPACE` writes nothing there. A
//! tablespace keeps its number all the while, also through a RENAME; what is dropped, truncated or rebuilt gets another one.
//! So the server tells, by the number, what was imported from what was dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// What stands before the number and the file, if mariadb-backup reads in the redo log that a tablespace is gone (observed with
/// 10.11).
const DELETED: &str = "DDL tracking : delete ";
/// The same of a tablespace with a new name: the old file and the new one follow.
const RENAMED: &str = "DDL tracking : rename ";
/// What stands before the file, if it then does not read the tablespace.
const IGNORED: &str = "table was dropped during xtrabackup execution and ignore the tablespace ";

/// The tables with a tablespace of their own. Needs the privilege PROCESS.
const TABLES: &str = "information_schema.innodb_sys_tables WHERE space BETWEEN 1 AND 4294967279";
/// The tablespaces that the server has opened.
const OPENED: &str = "SELECT space FROM information_schema.innodb_sys_tablespaces";
/// Most numbers or names in one question.
const IN_ONE: usize = 2000;
/// Most tables that an error names.
const NAMED: usize = 10;

/// Asks for the highest numbers of a table and of a tablespace: one row. What is made later has higher ones.
pub const HIGHEST: &str = "SELECT CAST(COALESCE(MAX(table_id), 0) AS CHAR), CAST(COALESCE(MAX(space), 0) AS CHAR) FROM information_schema.innodb_sys_tables WHERE space BETWEEN 1 AND 4294967279";
/// Asks for the tables of which the server lists no tablespace: their numbers, those of their tablespaces, and their names. A
/// server lists only the tablespaces that it has opened since its start, until it is asked for [`OPEN_ALL`].
const WITHOUT_TABLESPACE: &str = "SELECT CAST(table_id AS CHAR), CAST(space AS CHAR), CAST(name AS CHAR) FROM information_schema.innodb_sys_tables WHERE space BETWEEN 1 AND 4294967279 AND space NOT IN (SELECT space FROM information_schema.innodb_sys_tablespaces)";
/// Asks for the server's version, which tells whether it lists the tablespaces that it has opened: see [`lists_opened`].
pub const VERSION: &str = "SELECT @@version";
/// Makes the server open all tablespaces. One row, of as many columns as the other question's.
const OPEN_ALL: &str =
    "SELECT CAST(COUNT(*) AS CHAR), '', '' FROM information_schema.innodb_sys_tablestats";

/// Whether a server of this version lists the tablespaces that it has opened. Before MariaDB 10.6 the list is one of InnoDB's own
/// tables, which has those of discarded tables, too, and lacks those of old ones. ("Information Schema
/// INNODB_SYS_TABLESPACES Table", documentation of MariaDB Server)
#[must_use]
pub fn lists_opened(version: &str) -> bool {
    let mut numbers = version.split(['.', '-']).map(|part| part.parse::<u32>().ok());
    (numbers.next().flatten(), numbers.next().flatten()) >= (Some(10), Some(6))
}

/// A question to a server about its tables. Each row of the answer has three columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TablesQuestion {
    /// The statement.
    pub sql: &'static str,
    /// Whether the server opens all tablespaces for the answer, which takes longer.
    pub opens_all: bool,
}

/// Finds the tables that have no tablespace because they were discarded: says what to ask the server next, and takes the
/// answer.
#[derive(Debug, Clone, Default)]
pub struct DiscardedSearch {
    step: SearchStep,
}

/// What is asked next.
#[derive(Debug, Clone, Default)]
enum SearchStep {
    /// Whether there may be any.
    #[default]
    Look,
    /// To open all tablespaces.
    Open,
    /// Which there are.
    List,
    /// The same once more. The two lists of a server are not of one moment: what is made or dropped in between is missing
    /// in one of them, once.
    ListAgain(Vec<[String; 3]>),
    Found(Vec<[String; 3]>),
}

impl DiscardedSearch {
    /// The next question; `None` at the end.
    #[must_use]
    pub fn question(&self) -> Option<TablesQuestion> {
        match &self.step {
            SearchStep::Open => Some(TablesQuestion { sql: OPEN_ALL, opens_all: true }),
            SearchStep::Look | SearchStep::List | SearchStep::ListAgain(_) => {
                Some(TablesQuestion { sql: WITHOUT_TABLESPACE, opens_all: false })
            }
            SearchStep::Found(_) => None,
        }
    }

    /// Takes the answer to [`question`](Self::question).
    pub fn answer(&mut self, rows: Vec<[String; 3]>) {
        self.step = match std::mem::take(&mut self.step) {
            SearchStep::Look if !rows.is_empty() => SearchStep::Open,
            SearchStep::Open => SearchStep::List,
            SearchStep::List if !rows.is_empty() => SearchStep::ListAgain(rows),
            SearchStep::Look | SearchStep::List => SearchStep::Found(Vec::new()),
            // By the numbers: it may have been renamed.
            SearchStep::ListAgain(first) => {
                let first: BTreeSet<_> =
                    first.iter().map(|[table, space, _]| (table, space)).collect();
                let is_in_both = |[table, space, _]: &[String; 3]| first.contains(&(table, space));
                SearchStep::Found(rows.into_iter().filter(is_in_both).collect())
            }
            SearchStep::Found(found) => SearchStep::Found(found),
        };
    }

    /// The names of the tables that were found, by the numbers of their tablespaces; `None` if a number is none.
    #[must_use]
    pub fn found(self) -> Option<BTreeMap<u32, String>> {
        let SearchStep::Found(found) = self.step else { return None };
        found.into_iter().map(|[_, space, name]| Some((space.parse().ok()?, name))).collect()
    }
}

/// A server's tables before the backup program starts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TablesBefore {
    /// The tablespaces of tables that were discarded: importing one gives the table no new number.
    pub discarded: BTreeSet<u32>,
}

/// What a stream has of tables, which are `schema/table`, encoded as in file names.
#[derive(Clone, Copy)]
pub struct StreamedTables<'a> {
    /// Tells whether it has the definition of a table.
    pub has_definition: &'a (dyn Fn(&str) -> bool + Sync),
    /// The tables of InnoDB whose definition it has, and not their tablespace.
    pub without_tablespace: &'a [String],
}

impl fmt::Debug for StreamedTables<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lone = &self.without_tablespace;
        f.debug_struct("StreamedTables").field("without_tablespace", lone).finish_non_exhaustive()
    }
}

/// Tablespaces of which a backup program has read that they are gone.
#[derive(Debug, Clone, Default)]
pub struct DroppedTablespaces {
    spaces: BTreeMap<u32, Dropped>,
    /// Tables whose tablespaces it has ignored.
    ignored: BTreeSet<String>,
}

#[derive(Debug, Clone)]
struct Dropped {
    /// The last name of its table.
    table: String,
    /// Whether it got this name after that: then it was imported.
    is_there: bool,
}

impl DroppedTablespaces {
    /// Takes a message of the program.
    pub fn read_line(&mut self, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        if let Some((number, files)) = tracked(&line, DELETED) {
            let dropped = Dropped { table: table_of(files).to_owned(), is_there: false };
            self.spaces.insert(number, dropped);
        } else if let Some((number, files)) = tracked(&line, RENAMED)
            && let Some(dropped) = self.spaces.get_mut(&number)
            && let Some((_, new)) = files.split_once("\",\"")
        {
            *dropped = Dropped { table: table_of(new).to_owned(), is_there: true };
        } else if let Some((_, file)) = line.split_once(IGNORED) {
            self.ignored.insert(table_of(file).to_owned());
        }
    }

    /// Questions to the server after the program's end. Each row is the number of a tablespace and the name of its table; the
    /// server has that tablespace, and the stream may not have what was imported into it.
    #[must_use]
    pub fn questions(&self, before: &TablesBefore, stream: StreamedTables<'_>) -> Vec<String> {
        // Not whatever was imported since the start: what is imported behind the end of the backup's redo log is in the stream as
        // it was before, and whole.
        let mut wanted = Vec::new();
        let numbers: Vec<_> = self.spaces.keys().chain(&before.discarded).collect();
        for numbers in numbers.chunks(IN_ONE) {
            let numbers: Vec<_> = numbers.iter().map(ToString::to_string).collect();
            wanted.push(format!("space IN ({})", numbers.join(",")));
        }
        for names in stream.without_tablespace.chunks(IN_ONE) {
            let names: Vec<_> = names.iter().map(|name| hex(name)).collect();
            // A partition counts for its table. As bytes: a server may tell capitals apart.
            wanted.push(format!(
                "CAST(SUBSTRING_INDEX(SUBSTRING_INDEX(name, '#P#', 1), '#p#', 1) AS BINARY) IN ({})",
                names.join(",")
            ));
        }
        let question = |wanted: &String| {
            format!(
                "SELECT CAST(space AS CHAR), CAST(name AS CHAR) FROM {TABLES} AND ({wanted}) AND space IN ({OPENED})"
            )
        };
        wanted.iter().map(question).collect()
    }

    /// Judges whether `program`, which has ended with success, has left out the rows of tables, by the rows that the server has
    /// answered; `None` if it cannot be asked.
    ///
    /// # Errors
    /// [`ImportedNotDropped`].
    pub fn judge(
        &self,
        program: &str,
        answer: Option<&[[String; 2]]>,
        stream: StreamedTables<'_>,
    ) -> Result<(), ImportedNotDropped> {
        let by_server = answer.map(|rows| self.imported(rows, stream));
        let is_known = by_server.is_some();
        let mut tables = by_server.unwrap_or_default();
        if !is_known {
            tables = self.there(stream);
        }
        if !tables.is_empty() {
            return Err(ImportedNotDropped::new(program, &tables, Certainty::Imported));
        }
        if !is_known {
            let lone = self.lone(stream);
            if !lone.is_empty() {
                return Err(ImportedNotDropped::new(program, &lone, Certainty::Unknown));
            }
        }
        Ok(())
    }

    /// Those that are in the server, and of which the stream has the definition: a program that backs up only some tables reads
    /// of all that they are gone.
    fn imported(&self, rows: &[[String; 2]], stream: StreamedTables<'_>) -> BTreeSet<String> {
        let is_in_stream = |[space, name]: &&[String; 2]| {
            let number = space.parse().ok();
            let dropped = number.and_then(|number: u32| self.spaces.get(&number));
            // It may have been renamed since then.
            (stream.has_definition)(table_of(name))
                || dropped.is_some_and(|dropped| (stream.has_definition)(&dropped.table))
        };
        rows.iter().filter(is_in_stream).map(|[_, name]| table_of(name).to_owned()).collect()
    }

    /// Those that are certainly in the server, by the messages alone.
    fn there(&self, stream: StreamedTables<'_>) -> BTreeSet<String> {
        let spaces = self.spaces.values();
        let there = spaces.filter(|it| it.is_there && (stream.has_definition)(&it.table));
        there.map(|it| it.table.clone()).collect()
    }

    /// Tables without a tablespace in the stream whose tablespace is said to be gone: they were discarded, or imported.
    fn lone(&self, stream: StreamedTables<'_>) -> BTreeSet<String> {
        let gone: BTreeSet<_> =
            self.spaces.values().map(|it| &it.table).chain(&self.ignored).collect();
        stream.without_tablespace.iter().filter(|table| gone.contains(table)).cloned().collect()
    }
}

/// The number of a tablespace, and its files, in a message.
fn tracked<'l>(line: &'l str, what: &str) -> Option<(u32, &'l str)> {
    let (number, files) = line.split_once(what)?.1.split_once(' ')?;
    Some((number.parse().ok()?, files.trim_end().trim_matches('"')))
}

/// The table of a file, or of a name of the server, as `schema/table`. A tablespace can be outside the data directory.
fn table_of(file: &str) -> &str {
    let file = file.trim_end();
    let file = file.strip_suffix(".ibd").unwrap_or(file);
    let from = file.rmatch_indices('/').nth(1).map_or(0, |(at, _)| at + 1);
    let table = file.get(from..).unwrap_or(file);
    // Its partitions have files of their own.
    let partition = table.to_ascii_lowercase().find("#p#");
    table.get(..partition.unwrap_or(table.len())).unwrap_or(table)
}

/// A string of bytes in SQL.
fn hex(name: &str) -> String {
    let digits: String = name.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("X'{digits}'")
}

/// A backup program has ended with success, and without the rows of tables whose tablespaces were imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedNotDropped {
    program: String,
    /// The first tables, for a message.
    tables: String,
    certainty: Certainty,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Certainty {
    Imported,
    /// They may have been discarded, and not imported again.
    Unknown,
}

impl ImportedNotDropped {
    fn new(program: &str, tables: &BTreeSet<String>, certainty: Certainty) -> Self {
        let mut all = tables.iter();
        let first: Vec<&str> = all.by_ref().take(NAMED).map(String::as_str).collect();
        let more = if all.next().is_some() { ", …" } else { "" };
        Self { program: program.to_owned(), tables: first.join(", ") + more, certainty }
    }

    /// The next step for those who take a backup.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self.certainty {
            Certainty::Imported => {
                "no backup was made: have the server write a checkpoint (SET GLOBAL innodb_log_checkpoint_now = ON, which needs SUPER; `backup` does it with that privilege, unless --checkpoint=no is given), and take the backup again while no tablespace is imported"
            }
            Certainty::Unknown => {
                "no backup was made: have the server write a checkpoint (SET GLOBAL innodb_log_checkpoint_now = ON, which needs SUPER), and take the backup again while no tablespace is discarded or imported; if the login has the privilege PROCESS, the server tells the two apart"
            }
        }
    }

    /// The next step for those whose node joins a cluster.
    #[must_use]
    pub fn hint_of_join(&self) -> &'static str {
        "run SET GLOBAL innodb_log_checkpoint_now = ON on the donor, and start this node again while no tablespace is imported there"
    }
}

impl fmt::Display for ImportedNotDropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { program, tables, certainty } = self;
        let why = match certainty {
            Certainty::Imported => {
                "their tablespaces were imported (ALTER TABLE ... IMPORT TABLESPACE) while it ran, or since the server's last checkpoint before that"
            }
            Certainty::Unknown => {
                "their tablespaces were discarded while it ran, or since the server's last checkpoint before that, and the server cannot be asked whether they were imported again (ALTER TABLE ... IMPORT TABLESPACE)"
            }
        };
        write!(f, "{program} has left out the rows of {tables}: {why}")
    }
}

impl std::error::Error for ImportedNotDropped {}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream with these definitions, of which the second ones have no tablespace.
    struct Stream(&'static [&'static str], Vec<String>);

    impl Stream {
        fn judge(&self, dropped: &DroppedTablespaces, answer: Option<&[[String; 2]]>) -> String {
            let has =
                |table: &str| self.0.contains(&table) || self.1.iter().any(|lone| lone == table);
            let stream = StreamedTables { has_definition: &has, without_tablespace: &self.1 };
            let judged = dropped.judge("p", answer, stream);
            judged.map_or_else(|error| error.to_string(), |()| String::new())
        }
    }

    fn stream(whole: &'static [&'static str], lone: &[&str]) -> Stream {
        Stream(whole, lone.iter().map(|table| (*table).to_owned()).collect())
    }

    fn heard(messages: &[&str]) -> DroppedTablespaces {
        let mut dropped = DroppedTablespaces::default();
        for message in messages {
            dropped.read_line(format!("[00] 2026-11-30 19:28:13 {message}\n").as_bytes());
        }
        dropped
    }

    fn row(space: u32, name: &str) -> [String; 2] {
        [space.to_string(), name.to_owned()]
    }

    #[test]
    fn only_later_servers_list_what_they_have_opened() {
        for later in ["10.6.1-MariaDB", "10.11.19-MariaDB-log", "11.8.9-MariaDB", "13.0.1"] {
            assert!(lists_opened(later), "{later}");
        }
        for earlier in ["10.5.29-MariaDB-1:10.5", "10.3.39", "5.5.68-MariaDB", ""] {
            assert!(!lists_opened(earlier), "{earlier}");
        }
    }

    /// Asks a server that answers with these rows each time when it is asked for tables without a tablespace.
    fn search(answers: &[&[(u32, &str)]]) -> (Vec<bool>, BTreeMap<u32, String>) {
        let (mut search, mut answers, mut asked) =
            (DiscardedSearch::default(), answers.iter(), vec![]);
        while let Some(question) = search.question() {
            asked.push(question.opens_all);
            let rows = if question.opens_all { &[(0, "")][..] } else { answers.next().unwrap() };
            let row =
                |(n, name): &(u32, &str)| [(n + 7).to_string(), n.to_string(), (*name).into()];
            search.answer(rows.iter().map(row).collect());
        }
        (asked, search.found().unwrap())
    }

    #[test]
    fn only_what_lacks_its_tablespace_twice_after_all_were_opened_is_discarded() {
        assert_eq!(search(&[&[]]), (vec![false], BTreeMap::new()));
        let opened = search(&[&[(5, "s/idle")], &[]]);
        assert_eq!(opened, (vec![false, true, false], BTreeMap::new()));
        let (asked, found) = search(&[
            &[(5, "s/idle"), (6, "s/a")],
            &[(6, "s/a"), (8, "s/made")],
            &[(6, "s/b"), (9, "s/gone")],
        ]);
        assert_eq!(asked, [false, true, false, false]);
        assert_eq!(found, BTreeMap::from([(6, "s/b".to_owned())]));
        let mut search = DiscardedSearch::default();
        search.answer(vec![["1".into(), "x".into(), "s/a".into()]]);
        assert_eq!(search.found(), None, "not at its end");
    }

    #[test]
    fn the_server_tells_what_was_imported_by_the_number() {
        let dropped = heard(&[
            r#"DDL tracking : delete 62 "./shop/imp.ibd""#,
            "Warning: We assume the  table was dropped during xtrabackup execution and ignore the tablespace ./shop/imp.ibd",
            r#"DDL tracking : rename 62 "./shop/imp.ibd","./shop/imp9.ibd""#,
            r#"DDL tracking : create 79 "./shop/imp.ibd""#,
            r#"DDL tracking : delete 63 "./shop/gone.ibd""#,
            r#"DDL tracking : delete 64 "/else/where/shop/far#P#p0.ibd""#,
        ]);
        let with = stream(&["shop/imp", "shop/imp9"], &["shop/far"]);
        let before = TablesBefore { discarded: BTreeSet::from([50]) };
        let tables = StreamedTables { has_definition: &|_| false, without_tablespace: &with.1 };
        let questions = dropped.questions(&before, tables);
        let has = |part: &str| questions.iter().any(|question| question.contains(part));
        assert!(has("space IN (62,63,64,50)") && has("IN (X'73686f702f666172')"), "{questions:?}");
        let judged = |rows: &[[String; 2]]| with.judge(&dropped, Some(rows));
        assert_eq!(judged(&[]), "");
        let found = judged(&[row(62, "shop/imp9"), row(64, "shop/far#P#p0")]);
        assert!(found.starts_with("p has left out the rows of shop/far, shop/imp9: "), "{found}");
        // Renamed once more, after the backup's end; and a table that this backup does not have.
        assert!(judged(&[row(62, "shop/later")]).contains("shop/later"));
        assert_eq!(judged(&[row(63, "shop/gone"), row(50, "other/t")]), "");
    }

    #[test]
    fn without_the_server_only_messages_and_files_tell() {
        let judged = |messages: &[&str], with: &Stream| with.judge(&heard(messages), None);
        let delete = r#"DDL tracking : delete 7 "./s/a.ibd""#;
        let rename = r#"DDL tracking : rename 7 "./s/a.ibd","./s/b.ibd""#;
        let ignore = "We assume the  table was dropped during xtrabackup execution and ignore the tablespace ./s/a#P#p0#SP#s1.ibd";
        // What is gone gets no other name: it was imported.
        let found = judged(&[delete, rename], &stream(&["s/b"], &[]));
        assert!(found.contains("rows of s/b: their tablespaces were imported"), "{found}");
        let rebuilt = [
            delete,
            r#"DDL tracking : rename 7 "./s/a.ibd","./s/#sql-ib9.ibd""#,
            r#"DDL tracking : delete 7 "./s/#sql-ib9.ibd""#,
        ];
        assert_eq!(judged(&rebuilt, &stream(&["s/a"], &[])), "");
        for message in [delete, ignore] {
            let found = judged(&[message], &stream(&[], &["s/a"]));
            assert!(found.contains("rows of s/a") && found.contains("cannot be asked"), "{found}");
            assert_eq!(judged(&[message], &stream(&["s/a"], &["s/b"])), "", "made again");
            assert_eq!(judged(&[message], &stream(&["s/b"], &[])), "", "dropped");
        }
        assert_eq!(judged(&[], &stream(&[], &["s/a"])), "", "in the system tablespace");
    }

    #[test]
    fn other_messages_are_not_taken() {
        let dropped = heard(&[
            "Copying ./s/x.ibd",
            "DDL tracking : delete",
            r#"DDL tracking : delete x "./s/x.ibd""#,
            r#"DDL tracking : rename 5 "./s/x.ibd","./s/y.ibd""#,
            r#"DDL tracking : create 5 "./s/x.ibd""#,
        ]);
        assert!(dropped.spaces.is_empty() && dropped.ignored.is_empty(), "{dropped:?}");
        let first: BTreeSet<_> = (10..30).map(|n| format!("s/t{n}")).collect();
        let named = ImportedNotDropped::new("p", &first, Certainty::Imported).tables;
        assert!(named.ends_with("s/t19, …"), "{named}");
    }
}
