//! Results of a verification.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use xb_pipeline::PagesFound;

use crate::manifest::{Layout, StoredManifest};

/// Number of problems reported one by one.
pub const MAX_PROBLEMS: usize = 1000;

/// Level of verification. Each level includes the previous ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The manifest and the keys object are sound; with a key both are authenticated.
    Manifest,
    /// All objects exist, with the right number and sizes.
    List,
    /// Every object matches its checksum. Needs no key, and detects only accidental damage.
    Checksum,
    /// Seal, frames, index, chunks, and the encryption and compression of single files are valid,
    /// and the stream is complete.
    Decrypt,
    /// The pages of InnoDB tablespaces and Aria tables match their checksums, and the files of other
    /// tables have their length as far as they state it, which finds damage older than the backup.
    Pages,
    /// The backup was restored and prepared, and a server started on it checked every table.
    Restore,
}

impl Level {
    /// All levels, lowest first.
    pub const ALL: [Self; 6] =
        [Self::Manifest, Self::List, Self::Checksum, Self::Decrypt, Self::Pages, Self::Restore];

    /// Name of the level.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Manifest => "manifest",
            Self::List => "list",
            Self::Checksum => "checksum",
            Self::Decrypt => "decrypt",
            Self::Pages => "pages",
            Self::Restore => "restore",
        }
    }
}

impl std::fmt::Display for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// Whether a key authenticates a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Authenticity {
    /// Authenticated: the writer could open the backup, or knew a recipient's public key.
    Authenticated,
    /// Not authenticated: sealed, but no key was given.
    NoKey,
    /// Not authenticated: not sealed.
    NotSealed,
    /// Not authenticated: stored as a native stream.
    Unvouched,
    /// The manifest is missing or cannot be read.
    NoManifest,
}

impl Authenticity {
    /// Describes the variant in words.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Authenticated => "authenticated",
            Self::NoKey => "not authenticated (no key)",
            Self::NotSealed => "not authenticated (not sealed)",
            Self::Unvouched => "not authenticated (stored as a native stream)",
            Self::NoManifest => "no manifest",
        }
    }
}

/// A problem that a verification found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The level that found the problem.
    pub level: Level,
    /// The object, below ROOT, if known.
    pub object: Option<String>,
    /// The file, as the stream names it, if known.
    pub file: Option<String>,
    /// Offset in that file, in bytes.
    pub offset: Option<u64>,
    /// The defect.
    pub what: String,
}

/// Result of one level.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LevelReport {
    /// The level.
    pub level: Level,
    /// Whether no problem was found on this level.
    pub ok: bool,
    /// Whether everything on this level could be checked. If not, the level is not reached.
    pub checked: bool,
    /// Description of what was checked.
    pub what: String,
}

/// Result for the pages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageReport {
    /// Tablespace files, and files of Aria tables, whose pages were checked.
    pub files: u64,
    /// Tablespace files that could not be checked.
    pub passed_over: u64,
    /// Pages that match their checksum.
    pub good: u64,
    /// Pages of zeros.
    pub empty: u64,
    /// Pages marked as having no checksum.
    pub no_checksum: u64,
    /// Pages with their checksum inside compressed or encrypted data, and the doublewrite area.
    pub unchecked: u64,
    /// Pages that do not match their checksum.
    pub damaged: u64,
    /// Pages that only a prepared backup decides on: missing ones that the redo log may have, and
    /// bad ones of Aria tables that the server had open.
    #[serde(default)]
    pub undecided: u64,
    /// Files of MyISAM and Aria tables of which only the length was checked, by engine.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lengths_only: BTreeMap<String, u64>,
    /// Files that were not checked, by engine.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub not_checked: BTreeMap<String, u64>,
}

impl From<&PagesFound> for PageReport {
    fn from(found: &PagesFound) -> Self {
        Self {
            files: found.files,
            passed_over: found.passed_over,
            good: found.counts.good,
            empty: found.counts.empty,
            no_checksum: found.counts.no_checksum,
            unchecked: found.counts.unchecked,
            damaged: found.counts.damaged,
            undecided: found.doubtful + found.in_use,
            lengths_only: by_engine(&found.lengths_only),
            not_checked: by_engine(&found.not_checked),
        }
    }
}

fn by_engine(files: &BTreeMap<&'static str, u64>) -> BTreeMap<String, u64> {
    files.iter().map(|(engine, files)| ((*engine).to_owned(), *files)).collect()
}

/// Answer of the trial server to one of the user's own statements.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// The statement.
    pub statement: String,
    /// Its first rows; a value is `None` for NULL.
    pub rows: Vec<Vec<Option<String>>>,
    /// Whether there were more rows.
    pub more: bool,
}

impl Answer {
    /// Rows that are kept of an answer.
    pub const MAX_ROWS: usize = 20;
    /// Characters that are kept of a value.
    const MAX_CHARS: usize = 200;

    /// Keeps the first rows of an answer, and the beginning of each value.
    #[must_use]
    pub fn new(statement: &str, mut rows: Vec<Vec<Option<String>>>) -> Self {
        let more = rows.len() > Self::MAX_ROWS;
        rows.truncate(Self::MAX_ROWS);
        for value in rows.iter_mut().flatten().flatten() {
            if let Some((end, _)) = value.char_indices().nth(Self::MAX_CHARS) {
                value.truncate(end);
                value.push('…');
            }
        }
        Self { statement: statement.to_owned(), rows, more }
    }
}

/// Result of a trial restore.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreTest {
    /// The server's version.
    pub server_version: String,
    /// Tables that CHECK TABLE found in order, and sequences that could be read.
    pub tables: u64,
    /// The user's own statements that were run.
    pub statements: u64,
    /// The pages of the restored tablespaces, before the server started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages: Option<PageReport>,
    /// Their answers. Not stored: the record beside the manifest shows no data.
    #[serde(skip)]
    pub answers: Vec<Answer>,
    /// Tables that were opened, but whose engine has no CHECK TABLE, by engine.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub not_checkable: BTreeMap<String, u64>,
    /// Tables that the trial server could not open because it does not have their engine, by engine.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub no_engine: BTreeMap<String, u64>,
    /// Content of the backup besides tables with rows.
    #[serde(default)]
    pub others: OtherEntries,
    /// The archived log that was replayed onto the backup before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replayed: Option<Replayed>,
    /// The server that the result was compared with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compared_with: Option<ComparisonRecord>,
}

/// A comparison of the restored data with a server at the same GTIDs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComparisonRecord {
    /// The server, as it was named; without a password.
    pub server: String,
    /// GTIDs of both.
    pub gtids: String,
    /// Tables and sequences whose rows were compared.
    pub tables: u64,
    /// Number of their rows in the restored data.
    pub rows: u64,
    /// Definitions that were compared: of schemas, tables, views, triggers, routines and events.
    pub definitions: u64,
    /// Tables and other things that differ, or that only one of the two has.
    pub differing: u64,
    /// Tables whose rows were not compared, by engine, or by the reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub not_compared: BTreeMap<String, u64>,
}

/// The archived log that was replayed in a trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replayed {
    /// Position up to which it was replayed, as `FILE:POSITION`.
    pub to: String,
    /// GTIDs of the data there.
    pub gtids: String,
    /// Number of transactions that were replayed.
    pub transactions: u64,
    /// Time of the last one, or of the backup's end if there was none.
    pub proven_until: Timestamp,
    /// It lies in a history that the archive's present one left, of which it proves nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub left: bool,
    /// The data may differ from that of the server, so that nothing is proven of the log.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub doubtful: bool,
}

impl RestoreTest {
    /// The time up to which a trial that ended at this time, and passed, proves the archived log: that of the last transaction
    /// that was replayed. It proves nothing that was committed after it: a session may have set a time.
    pub(crate) fn proven_until(&self, finished: Timestamp) -> Option<Timestamp> {
        let is_proven = |replayed: &&Replayed| !replayed.left && !replayed.doubtful;
        let replayed = self.replayed.as_ref().filter(is_proven)?;
        Some(replayed.proven_until.min(finished))
    }
}

/// A backup that a restore of the verified one needs, or that one itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifiedLink {
    /// Its name.
    pub name: String,
    /// The run that wrote it.
    pub run: String,
    /// SHA-256 over the bytes of its manifest, hexadecimal.
    pub manifest: String,
    /// Public key of the host that has signed its manifest.
    pub signer: Option<String>,
    /// Whether this verification has restored its data. Below level restore, that of the others was not read.
    pub restored: bool,
}

impl VerifiedLink {
    /// A backup whose data was not restored yet.
    pub fn new(name: &str, stored: &StoredManifest) -> Self {
        Self {
            name: name.to_owned(),
            run: stored.manifest.run.clone(),
            manifest: stored.digest(),
            signer: stored.signer().map(|key| key.to_string()),
            restored: false,
        }
    }
}

/// Number of entries of a backup that are no tables, or have no rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OtherEntries {
    /// Views.
    pub views: u64,
    /// Tables in which FULLTEXT indexes keep their words.
    pub fulltext: u64,
    /// Undo tablespaces.
    pub undo: u64,
    /// Temporary tablespaces.
    pub temporary: u64,
    /// Left-overs of statements that rebuild or drop a table (`#sql-…`).
    pub intermediate: u64,
    /// Tables whose tablespace was discarded by a statement.
    pub discarded: u64,
    /// Tablespace files that belong to no table.
    pub unused: u64,
    /// Tables in InnoDB's dictionary that a partial backup leaves out.
    pub left_out: u64,
}

/// Result of a verification.
#[derive(Debug, Clone, Serialize)]
pub struct VerifyReport {
    /// Name of the backup.
    pub name: String,
    /// The requested level.
    pub level: Level,
    /// The highest level that holds, together with all previous ones.
    pub reached: Option<Level>,
    /// Layout of the backup, if known.
    pub layout: Option<Layout>,
    /// SHA-256 over the bytes of the manifest, hexadecimal.
    pub manifest: Option<String>,
    /// The backups that a restore needs, the full one first and the verified one last; empty without a manifest. If the
    /// chain is broken, only the verified one.
    pub chain: Vec<VerifiedLink>,
    /// Whether a key authenticates the manifest.
    pub authenticity: Authenticity,
    /// Results of the levels up to the last one tried.
    pub levels: Vec<LevelReport>,
    /// Limits of what this verification proves, the same for every backup of this kind.
    pub notes: Vec<String>,
    /// Unusual findings that are no problem of the backup.
    pub warnings: Vec<String>,
    /// The first [`MAX_PROBLEMS`] problems.
    pub problems: Vec<Problem>,
    /// Number of further problems.
    pub more_problems: u64,
    /// Why this incremental backup cannot be restored, although its own data may be intact.
    pub broken_chain: Option<String>,
    /// The user's own checks that failed. They do not count against the backup: a statement may
    /// itself be wrong.
    pub failed_checks: Vec<String>,
    /// Data objects.
    pub objects: u64,
    /// Bytes in the data objects.
    pub stored_bytes: u64,
    /// Bytes of the stream, if it was read.
    pub stream_bytes: Option<u64>,
    /// Bytes of the files once they are restored: with compression undone, and without holes. Known if
    /// the content was read, and files in it are compressed.
    pub unpacked_bytes: Option<u64>,
    /// Files in the stream, if it was read.
    pub files: Option<u64>,
    /// Result for the pages.
    pub pages: Option<PageReport>,
    /// Result of the trial restore.
    pub restore: Option<RestoreTest>,
    /// When the verification began, UTC.
    pub started: Timestamp,
    /// The highest number of a recorded result when it began.
    #[serde(skip)]
    pub after: Option<u64>,
    /// When the verification ended, UTC.
    pub finished: Timestamp,
    /// Requests sent to the store, retries included; 0 for a folder.
    pub requests: u64,
    /// Number of retries.
    pub retries: u64,
}

impl VerifyReport {
    /// The time up to which the archived log is proven, if the whole trial passed.
    #[must_use]
    pub fn proven_until(&self) -> Option<Timestamp> {
        let has_passed = self.is_undamaged() && self.reached == Some(Level::Restore);
        self.restore.as_ref().filter(|_| has_passed)?.proven_until(self.finished)
    }

    /// An empty report of a verification that is to reach `level`.
    pub fn new(name: String, level: Level) -> Self {
        let now = Timestamp::now();
        Self {
            name,
            level,
            reached: None,
            layout: None,
            manifest: None,
            chain: Vec::new(),
            authenticity: Authenticity::NoManifest,
            levels: Vec::new(),
            notes: Vec::new(),
            warnings: Vec::new(),
            problems: Vec::new(),
            more_problems: 0,
            broken_chain: None,
            failed_checks: Vec::new(),
            objects: 0,
            stored_bytes: 0,
            stream_bytes: None,
            unpacked_bytes: None,
            files: None,
            pages: None,
            restore: None,
            started: now,
            after: None,
            finished: now,
            requests: 0,
            retries: 0,
        }
    }

    /// Returns whether everything requested holds, as far as it can be checked; [`reached`](Self::reached)
    /// tells how far that is.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.is_undamaged() && self.broken_chain.is_none() && self.failed_checks.is_empty()
    }

    /// Returns whether no problem was found in the backup itself.
    #[must_use]
    pub fn is_undamaged(&self) -> bool {
        let asked = self.levels.iter().any(|level| level.level == self.level);
        asked && self.levels.iter().all(|level| level.ok)
    }

    /// Adds a problem; above [`MAX_PROBLEMS`] it is only counted.
    pub fn problem(&mut self, problem: Problem) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(problem);
        } else {
            self.more_problems += 1;
        }
    }

    /// Closes a level, which holds if no problem was found on it.
    pub fn close(&mut self, level: Level, what: String) -> bool {
        let held = self.push(level, what, true);
        if held {
            self.reached = Some(level);
        }
        held
    }

    /// Closes a level that could not be checked completely: it is not reached, even without a
    /// problem.
    pub fn close_unchecked(&mut self, level: Level, what: String) {
        self.push(level, what, false);
    }

    fn push(&mut self, level: Level, what: String, checked: bool) -> bool {
        let ok = self.problems.iter().all(|problem| problem.level != level);
        let before = self.levels.iter().all(|level| level.ok);
        self.levels.push(LevelReport { level, ok, checked, what });
        ok && before
    }

    /// Records a level that was not tried because of earlier problems.
    pub fn leave_out(&mut self, level: Level) {
        if self.levels.iter().all(|done| done.level != level) {
            let what = "skipped because of the problems above".to_owned();
            self.levels.push(LevelReport { level, ok: false, checked: false, what });
        }
    }
}
