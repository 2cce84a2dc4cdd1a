//! Findings of a trial.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use xb_repo::verification::{Level, Problem, RestoreTest, VerifyReport};

use super::answers::{Encryption, Kind, ListedTable, Verdict};
use super::held::{BackupContents, SYSTEM, UnlistedFiles};
use super::system_tables;
use crate::error::BackupError;
use crate::full_disk::{AGAIN, has_room};
use crate::hints::says_full;
use crate::restored_pages::RestoredPages;
use crate::verify::results::counted;

/// Number of names in one remark.
const NAMED: usize = 10;
/// Name of the keys that are missing to read encrypted tables, beside the names of engines.
const KEYS: &str = "encryption keys";
/// Number of warnings of CHECK TABLE that are reported one by one.
const WARNED: usize = 20;

/// Results of the trial: version of the server, counts, and faults.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) test: RestoreTest,
    /// The runs whose data was restored, each with the SHA-256 of its manifest, hexadecimal.
    pub(super) restored: Vec<(String, String)>,
    /// Why a trial that finds nothing proves nothing.
    doubt: Option<&'static str>,
    pub(super) wrong: Vec<String>,
    /// What was found in the pages of the restored files. No server was started if any is damaged.
    pub(super) pages: Option<RestoredPages>,
    /// Statements of the user that failed.
    pub(super) refused: Vec<String>,
    /// Differences from the server with which the data was compared.
    pub(super) differing: Vec<String>,
    /// Remarks on the replay.
    pub(super) replay_remarks: Vec<String>,
    /// Possible explanations of them, and limits of the comparison.
    pub(super) compare_remarks: Vec<String>,
    /// The end of the server's log, if the server ended by itself.
    pub(super) log: Option<String>,
    /// Why the server could write anywhere.
    pub(super) unconfined: Option<&'static str>,
    /// Why the server did not stop cleanly.
    pub(super) unclean: Option<String>,
    /// Tables that were opened, but not checked: CHECK TABLE cannot do it.
    pub(super) opened: Vec<ListedTable>,
    /// Messages of CHECK TABLE about tables that are in order.
    warnings: Vec<String>,
    broken_views: Vec<String>,
    /// MERGE tables of which a table is missing, or is defined otherwise.
    broken_merges: Vec<String>,
    /// Tables that `CHECK TABLE` refuses to check until they are rebuilt.
    outdated: Vec<String>,
    /// Tables of whose rows `CHECK TABLE` says nothing.
    pub(super) unread: Vec<ListedTable>,
    /// Whether the backup has all tables of the server itself.
    has_system: bool,
    /// Whether one of these could not be checked, or is damaged.
    unsound_system: bool,
    discarded: Vec<String>,
    intermediate: Vec<String>,
    unused: Vec<String>,
    /// Triggers with a file of their own that the server does not list.
    pub(super) lost_triggers: Vec<String>,
    /// Tables that the trial server does not have the engine for, by engine.
    no_engine: BTreeMap<String, Vec<String>>,
    /// Tables that the trial server needs a plugin for, by plugin.
    no_plugin: BTreeMap<&'static str, Vec<String>>,
    /// The plugin with the keys of the server that the backup is from, if it had one.
    pub(super) key_plugin: Option<&'static str>,
    /// Whether the trial server has no keys at all, unlike that server. It then takes encrypted tables
    /// for corrupted, and a corrupted one cannot be told from them.
    pub(super) lacks_keys: bool,
    /// Whether it has no keys even for its own tables: it then takes others for corrupted, too.
    pub(super) lacks_own_keys: bool,
    /// Tables that the trial server cannot decrypt.
    no_key: Vec<String>,
    /// Encrypted tables that the server takes for corrupted, what it says, and the number of their key. Their pages
    /// are intact, or not checked, so the key may be the wrong one.
    undeciphered: Vec<(String, String, u32)>,
    /// Numbers of the keys with which a table could be read.
    pub(super) deciphered: BTreeSet<u32>,
    /// Encrypted tables of Aria in which CHECK TABLE finds no fault.
    pub(super) sealed: Vec<ListedTable>,
}

/// Engines of plugins, with the library to load and the package that has it, if it is not that of the
/// server.
const ENGINES: [(&str, &str, Option<&str>); 8] = [
    ("ARCHIVE", "ha_archive", None),
    ("BLACKHOLE", "ha_blackhole", None),
    ("FEDERATED", "ha_federatedx", None),
    ("CONNECT", "ha_connect", Some("mariadb-plugin-connect")),
    ("MROONGA", "ha_mroonga", Some("mariadb-plugin-mroonga")),
    ("ROCKSDB", "ha_rocksdb", Some("mariadb-plugin-rocksdb")),
    ("S3", "ha_s3", Some("mariadb-plugin-s3")),
    ("SPIDER", "ha_spider", Some("mariadb-plugin-spider")),
];

/// Returns a hint for getting this engine.
fn remedy(engine: &str) -> String {
    let known = ENGINES.iter().find(|(name, ..)| name.eq_ignore_ascii_case(engine));
    let Some((_, library, package)) = known else { return String::new() };
    let install = package.map(|package| format!("install {package}, and ")).unwrap_or_default();
    format!(" ({install}give --mysqld-opts=--plugin-load-add={library})")
}

/// Returns a hint for getting the keys of this plugin.
fn keys_remedy(plugin: Option<&str>) -> String {
    match plugin {
        Some("file_key_management") | None => "give --mysqld-opts=--plugin-load-add=file_key_management and --mysqld-opts=--file-key-management-filename=FILE with its keys".to_owned(),
        Some(plugin) => {
            let package = plugin.replace('_', "-");
            format!("install mariadb-plugin-{package}, and give --mysqld-opts=--plugin-load-add={plugin} with its settings")
        }
    }
}

impl Outcome {
    /// Records the verdict about a table.
    pub(super) fn judged(&mut self, entry: &ListedTable, verdict: Verdict) {
        let view = entry.kind == Kind::View;
        self.test.others.views += u64::from(view);
        self.unsound_system |= entry.schema == SYSTEM
            && !view
            && !matches!(verdict, Verdict::Sound(_) | Verdict::Opened);
        match verdict {
            Verdict::Sound(warnings) => {
                match entry.are_rows_unread() {
                    true => self.unread.push(entry.clone()),
                    false => self.test.tables += u64::from(!view),
                }
                match entry.encryption {
                    // CHECK TABLE reads no page of an empty table of Aria.
                    Encryption::Key(_) if entry.engine == "Aria" => self.sealed.push(entry.clone()),
                    Encryption::Key(number) => drop(self.deciphered.insert(number)),
                    Encryption::None | Encryption::NoKey => {}
                }
                let about = |warning| format!("table {entry}: {warning}");
                self.warnings.extend(warnings.into_iter().map(about));
            }
            Verdict::Opened => self.opened.push(entry.clone()),
            Verdict::BrokenMerge => self.broken_merges.push(entry.to_string()),
            Verdict::Outdated => {
                self.outdated.push(entry.to_string());
                if !view {
                    self.unread.push(entry.clone());
                }
            }
            Verdict::BrokenView => self.broken_views.push(entry.to_string()),
            Verdict::Discarded => self.discarded.push(entry.to_string()),
            Verdict::NoKey => self.no_key.push(entry.to_string()),
            Verdict::Damaged(_)
                if entry.encryption == Encryption::NoKey
                    || self.lacks_own_keys
                    || self.lacks_keys && ["InnoDB", "Aria", ""].contains(&&entry.engine[..]) =>
            {
                self.no_key.push(entry.to_string());
            }
            Verdict::NoEngine(engine) => {
                self.no_engine.entry(engine).or_default().push(entry.to_string());
            }
            Verdict::NoPlugin(plugin) => {
                self.no_plugin.entry(plugin).or_default().push(entry.to_string());
            }
            Verdict::Damaged(what) => match entry.encryption {
                Encryption::Key(number) => {
                    self.undeciphered.push((entry.to_string(), what, number));
                }
                _ => self.wrong.push(format!("table {entry}: {what}")),
            },
        }
    }

    /// Records a table whose rows could all be read.
    pub(super) fn rows_read(&mut self, entry: &ListedTable) {
        match self.outdated.contains(&entry.to_string()) {
            true => self.not_checkable(&entry.engine),
            false => self.test.tables += 1,
        }
    }

    /// Returns whether it is to be found out whether the key of this number is the right one.
    pub(super) fn doubts_key(&self, number: u32) -> bool {
        !self.deciphered.contains(&number) && self.undeciphered.iter().any(|(.., of)| *of == number)
    }

    /// Records which tables of the server itself the backup lacks. The server's version is known.
    pub(super) fn of_system(&mut self, holdings: &BackupContents) {
        let missing = system_tables::missing(holdings, &self.test.server_version);
        self.has_system = missing.is_empty() && holdings.is_whole() && !holdings.data_dictionary;
        self.wrong.extend(missing);
    }

    /// Returns whether the tables of the server itself are all there, and sound as far as `CHECK TABLE` can tell.
    pub(super) fn has_sound_system(&self) -> bool {
        self.has_system && !self.unsound_system
    }

    /// Records a table that was opened, but that its engine cannot check.
    pub(super) fn not_checkable(&mut self, engine: &str) {
        *self.test.not_checkable.entry(engine.to_owned()).or_default() += 1;
    }

    /// Records what the backup holds besides the tables that the server lists.
    pub(super) fn unlisted(&mut self, found: UnlistedFiles) {
        self.test.others.fulltext = found.fulltext;
        self.test.others.left_out = found.left_out;
        self.wrong.extend(found.lost);
        if !found.archive.is_empty() {
            self.no_engine.entry("ARCHIVE".to_owned()).or_default().extend(found.archive);
        }
        self.intermediate = found.intermediate;
        self.unused = found.unused;
    }

    /// Refuses what a server found whose disk was full: that is no damage of the backup.
    pub(super) fn unless_full(self, scratch: &Path) -> Result<Self, BackupError> {
        let mut faults = self
            .wrong
            .iter()
            .chain(&self.refused)
            .chain(&self.differing)
            .chain(&self.log)
            .peekable();
        let has_faults = faults.peek().is_some();
        // A server that has ended, or a statement that has failed, may have freed what it had.
        let are_of_disk = faults.any(|what| says_full(what) || what.contains(" is full"));
        match are_of_disk || (has_faults && !has_room(scratch)) {
            false => Ok(self),
            true => Err(BackupError::FullDisk {
                dir: scratch.display().to_string(),
                what: "the server on the restored backup ran out of it, so what it found proves nothing"
                    .to_owned(),
                next: AGAIN,
            }),
        }
    }

    /// Notes why a trial that finds nothing proves nothing.
    pub(super) fn doubted(self, doubt: Option<&'static str>) -> Self {
        Self { doubt: self.doubt.or(doubt), ..self }
    }

    /// Writes the results into the report.
    pub(super) fn write_into(mut self, report: &mut VerifyReport) {
        if let Some(pages) = self.pages.take() {
            if !pages.is_sound() {
                return damaged(report, pages);
            }
            self.test.pages = Some(pages.report);
        }
        for (table, what, number) in std::mem::take(&mut self.undeciphered) {
            match self.deciphered.contains(&number) {
                true => self.wrong.push(format!("table {table}: {what}")),
                false => self.no_key.push(table),
            }
        }
        self.count();
        let what = match self.doubt {
            Some(doubt) => format!("not proven: {doubt}; {}", self.summary()),
            None => self.summary(),
        };
        report.notes.extend(self.notes());
        report.warnings.extend(self.all_warnings());
        let all_opened = self.test.no_engine.is_empty();
        report.restore = Some(self.test);
        for what in self.wrong {
            let level = Level::Restore;
            report.problem(Problem { level, object: None, file: None, offset: None, what });
        }
        report.failed_checks = [self.differing, self.refused].concat();
        if report.failed_checks.is_empty() && all_opened && self.doubt.is_none() {
            report.close(Level::Restore, what);
        } else {
            report.close_unchecked(Level::Restore, what);
        }
    }

    fn count(&mut self) {
        let others = &mut self.test.others;
        others.discarded = self.discarded.len() as u64;
        others.intermediate = self.intermediate.len() as u64;
        others.unused = self.unused.len() as u64;
        let number =
            |(engine, tables): (&String, &Vec<String>)| (engine.clone(), tables.len() as u64);
        self.test.no_engine = self.no_engine.iter().map(number).collect();
        let numbers = self
            .no_plugin
            .iter()
            .map(|(plugin, tables)| ((*plugin).to_owned(), tables.len() as u64));
        self.test.no_engine.extend(numbers);
        if !self.no_key.is_empty() {
            self.test.no_engine.insert(KEYS.to_owned(), self.no_key.len() as u64);
        }
    }

    fn summary(&self) -> String {
        let RestoreTest { server_version, tables, statements, .. } = &self.test;
        let mut text = format!("tables checked: {tables} by {server_version}");
        for (what, engines) in [
            ("opened, but not checkable", &self.test.not_checkable),
            ("not opened", &self.test.no_engine),
        ] {
            let each: Vec<String> =
                engines.iter().map(|(engine, number)| format!("{number} of {engine}")).collect();
            if !each.is_empty() {
                text += &format!("; {what}: {}", each.join(", "));
            }
        }
        if let Some(pages) = &self.test.pages {
            text += &format!("; pages intact: {}", pages.good + pages.no_checksum);
            if pages.unchecked > 0 {
                text += &format!(", not checkable: {}", pages.unchecked);
            }
        }
        if let Some(replayed) = &self.test.replayed {
            let log = counted(replayed.transactions, "transaction");
            text += &format!("; replayed before: {log} up to {}", replayed.to);
        }
        if let Some(compared) = &self.test.compared_with {
            let tables = counted(compared.tables, "table");
            text += &format!(
                "; compared with {} at {}: {tables}, {}, {}",
                compared.server,
                compared.gtids,
                counted(compared.rows, "row"),
                counted(compared.definitions, "definition")
            );
        }
        text + &format!("; statements run: {statements}")
    }

    fn notes(&self) -> Vec<String> {
        let others = &self.test.others;
        let numbers = [
            (others.views, "view"),
            (others.fulltext, "part of FULLTEXT indexes"),
            (others.undo, "undo tablespace"),
            (others.temporary, "temporary tablespace"),
        ];
        let numbers = numbers.into_iter().filter(|(number, _)| *number > 0);
        let mut notes: Vec<String> =
            numbers.map(|(number, noun)| format!("no table: {}", several(number, noun))).collect();
        if others.left_out > 0 {
            let tables = counted(others.left_out, "table");
            notes.push(format!(
                "the backup states that it is partial: InnoDB's dictionary names {tables} of which it has no file"
            ));
        }
        for (what, names) in [
            ("discarded tablespaces, which have no rows", &self.discarded),
            ("views that refer to something that is missing or invalid", &self.broken_views),
            ("left over from statements that rebuild or drop tables", &self.intermediate),
            ("tablespace files of no table", &self.unused),
            ("trigger files that belong to no trigger of their table", &self.lost_triggers),
        ] {
            notes.extend(named(what, names));
        }
        notes
    }

    fn all_warnings(&mut self) -> Vec<String> {
        let mut all: Vec<String> = self
            .no_engine
            .iter()
            .filter_map(|(engine, tables)| {
                let remedy = remedy(engine);
                let what = format!("the trial server does not have the engine {engine}{remedy} of");
                named(&what, tables)
            })
            .collect();
        all.extend(self.no_plugin.iter().filter_map(|(plugin, tables)| {
            let package = plugin.replace('_', "-");
            let what =
                format!("the trial server has no {plugin} (install mariadb-plugin-{package}) for");
            named(&what, tables)
        }));
        let remedy = keys_remedy(self.key_plugin);
        let what =
            format!("not provable here, because the trial server lacks the right keys ({remedy})");
        all.extend(named(&what, &self.no_key));
        for (what, names) in [
            (
                "MERGE tables that cannot be read, because a table of theirs is missing or is defined otherwise (if the \
                 server can read them, the backup lacks something)",
                &self.broken_merges,
            ),
            (
                "their rows can be read, but CHECK TABLE of this version checks them only after an upgrade (on the \
                 server: mariadb-check --check-upgrade --auto-repair)",
                &self.outdated,
            ),
        ] {
            all.extend(named(what, names));
        }
        let more = self.warnings.len().saturating_sub(WARNED);
        all.extend(self.warnings.drain(..self.warnings.len() - more));
        if more > 0 {
            all.push(format!("CHECK TABLE gives {} more", counted(more as u64, "warning")));
        }
        all.append(&mut self.replay_remarks);
        all.append(&mut self.compare_remarks);
        let left_out = self.test.compared_with.iter().flat_map(|with| &with.not_compared);
        all.extend(left_out.map(|(why, tables)| {
            format!("rows not compared: {} ({why})", counted(*tables, "table"))
        }));
        all.extend(self.unconfined.map(|why| {
            format!("the trial server was not confined to the scratch directory: {why}")
        }));
        all.extend(
            self.unclean
                .take()
                .map(|how| format!("the trial server did not stop cleanly: it {how}")),
        );
        let log = self.log.take();
        all.extend(log.map(|log| format!("the trial server exited on its own; its log:\n{log}")));
        all
    }
}

/// Writes the damaged pages of the restored files into the report.
fn damaged(report: &mut VerifyReport, pages: RestoredPages) {
    let chain: Vec<&str> = report.chain.iter().map(|link| link.name.as_str()).collect();
    if chain.len() > 1 {
        let warning = format!(
            "the damaged pages are from one of the backups of the chain ({}): verify each of them at level pages to find which",
            chain.join(", ")
        );
        report.warnings.push(warning);
    }
    let damaged = counted(pages.report.damaged, "damaged page");
    pages.problems.into_iter().for_each(|problem| report.problem(problem));
    report.more_problems += pages.more;
    report.close(Level::Restore, format!("{damaged} in the restored files: no server was started"));
}

/// Like [`counted`], for nouns of several words: `2 parts of …`.
fn several(number: u64, noun: &str) -> String {
    let (first, rest) = noun.split_once(" of ").unwrap_or((noun, ""));
    let rest = if rest.is_empty() { String::new() } else { format!(" of {rest}") };
    format!("{}{rest}", counted(number, first))
}

/// A remark with the number and the first names; `None` without names.
fn named(what: &str, names: &[String]) -> Option<String> {
    let first: Vec<&str> = names.iter().take(NAMED).map(String::as_str).collect();
    let more = names.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!names.is_empty()).then(|| format!("{what}: {}: {}{more}", names.len(), first.join(", ")))
}
