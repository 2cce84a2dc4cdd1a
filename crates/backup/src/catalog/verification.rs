//! What a verification has found.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use xb_pipeline::PagesFound;

use crate::catalog::manifest::Layout;

/// The most problems that are told one by one.
pub const MAX_PROBLEMS: usize = 1000;

/// How far a backup is verified. Each level includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The manifest is sound, and the key object too; with a key both are authenticated.
    Manifest,
    /// The objects are there, of the right number and sizes.
    List,
    /// Every object has its checksum. Needs no key, and guards against accident only.
    Checksum,
    /// Seal, frames, index, chunks and the single files' own encryption and compression hold, and the
    /// stream is whole.
    Decrypt,
    /// The pages of InnoDB tablespaces have their checksums: damage from before the backup is found.
    Pages,
    /// It was restored, prepared, and a server that was started on it has checked every table.
    Restore,
}

impl Level {
    /// All, the least first.
    pub const ALL: [Self; 6] =
        [Self::Manifest, Self::List, Self::Checksum, Self::Decrypt, Self::Pages, Self::Restore];

    /// Its name.
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

/// Who vouches for a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Authenticity {
    /// The key does: who made the backup could open it, or knew somebody's public key.
    Authenticated,
    /// Nobody: it is sealed, and no key was given.
    NoKey,
    /// Nobody: it is not sealed.
    NotSealed,
    /// Nobody: it was stored as a native stream.
    Unvouched,
    /// There is none, or none that can be read.
    NoManifest,
}

impl Authenticity {
    /// In words.
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

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The level that found it.
    pub level: Level,
    /// The object, below ROOT, where one can be named.
    pub object: Option<String>,
    /// The file, as the stream names it, where one can be named.
    pub file: Option<String>,
    /// Where in that file, in bytes.
    pub offset: Option<u64>,
    /// What is wrong.
    pub what: String,
}

/// How one level came out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LevelReport {
    /// Which one.
    pub level: Level,
    /// Whether nothing was found wrong on it.
    pub ok: bool,
    /// Whether all that it is about could be checked. What could not is not reached.
    pub checked: bool,
    /// What was looked at, in words.
    pub what: String,
}

/// What was found about pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageReport {
    /// Tablespace files that were checked.
    pub files: u64,
    /// Tablespace files that could not be.
    pub passed_over: u64,
    /// Pages that fit their checksum.
    pub good: u64,
    /// Pages of zeros.
    pub empty: u64,
    /// Pages that say they have no checksum.
    pub no_checksum: u64,
    /// Pages whose checksum is inside of what is compressed or encrypted, and the doublewrite area.
    pub unchecked: u64,
    /// Pages that do not fit.
    pub damaged: u64,
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
        }
    }
}

/// What a server said about a restored backup.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreTest {
    /// The server's version.
    pub server_version: String,
    /// Tables that CHECK TABLE found in order.
    pub tables: u64,
    /// The user's own statements that were run.
    pub statements: u64,
}

/// What a verification has found.
#[derive(Debug, Clone, Serialize)]
pub struct VerifyReport {
    /// The backup.
    pub name: String,
    /// The level that was asked for.
    pub level: Level,
    /// The highest level that holds with all before it.
    pub reached: Option<Level>,
    /// Its layout, where it is known.
    pub layout: Option<Layout>,
    /// SHA-256 over the bytes of the manifest, hexadecimal.
    pub manifest: Option<String>,
    /// Who vouches for the manifest.
    pub authenticity: Authenticity,
    /// Level by level, as far as it came.
    pub levels: Vec<LevelReport>,
    /// What this does not prove, or cannot.
    pub notes: Vec<String>,
    /// What is wrong, the first [`MAX_PROBLEMS`] of it.
    pub problems: Vec<Problem>,
    /// How much more is wrong.
    pub more_problems: u64,
    /// Checks of the user's own that failed. They say nothing against the backup: a statement may be
    /// wrong itself.
    pub failed_checks: Vec<String>,
    /// Data objects.
    pub objects: u64,
    /// Bytes in them.
    pub stored_bytes: u64,
    /// Bytes of the stream, once it was read.
    pub stream_bytes: Option<u64>,
    /// Files in the stream, once it was read.
    pub files: Option<u64>,
    /// What was found about pages.
    pub pages: Option<PageReport>,
    /// What a server said.
    pub restore: Option<RestoreTest>,
    /// When it began, UTC.
    pub started: Timestamp,
    /// When it ended, UTC.
    pub finished: Timestamp,
    /// Requests sent to the store, retries included; 0 for a folder.
    pub requests: u64,
    /// Tries that followed a failed one.
    pub retries: u64,
}

impl VerifyReport {
    pub(crate) fn new(name: String, level: Level) -> Self {
        let now = Timestamp::now();
        Self {
            name,
            level,
            reached: None,
            layout: None,
            manifest: None,
            authenticity: Authenticity::NoManifest,
            levels: Vec::new(),
            notes: Vec::new(),
            problems: Vec::new(),
            more_problems: 0,
            failed_checks: Vec::new(),
            objects: 0,
            stored_bytes: 0,
            stream_bytes: None,
            files: None,
            pages: None,
            restore: None,
            started: now,
            finished: now,
            requests: 0,
            retries: 0,
        }
    }

    /// Whether everything that was asked for holds, as far as it can be checked;
    /// [`reached`](Self::reached) says how far that is.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.is_undamaged() && self.failed_checks.is_empty()
    }

    /// Whether nothing was found wrong with the backup itself.
    #[must_use]
    pub fn is_undamaged(&self) -> bool {
        let asked = self.levels.iter().any(|level| level.level == self.level);
        asked && self.levels.iter().all(|level| level.ok)
    }

    pub(crate) fn problem(&mut self, problem: Problem) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(problem);
        } else {
            self.more_problems += 1;
        }
    }

    /// Closes a level: it holds if nothing was found wrong on it.
    pub(crate) fn close(&mut self, level: Level, what: String) -> bool {
        let held = self.push(level, what, true);
        if held {
            self.reached = Some(level);
        }
        held
    }

    /// Closes a level on which not all could be checked: it is not reached, though nothing may be wrong.
    pub(crate) fn close_unchecked(&mut self, level: Level, what: String) {
        self.push(level, what, false);
    }

    fn push(&mut self, level: Level, what: String, checked: bool) -> bool {
        let ok = self.problems.iter().all(|problem| problem.level != level);
        let before = self.levels.iter().all(|level| level.ok);
        self.levels.push(LevelReport { level, ok, checked, what });
        ok && before
    }

    /// A level that could not be tried because of what is wrong before it.
    pub(crate) fn leave_out(&mut self, level: Level) {
        if self.levels.iter().all(|done| done.level != level) {
            let what = "not tried, for what is wrong before it".to_owned();
            self.levels.push(LevelReport { level, ok: false, checked: false, what });
        }
    }
}
