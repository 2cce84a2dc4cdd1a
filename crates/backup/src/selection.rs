//! The files to read from a backup: those that are selected, without those that an earlier restore
//! has completed.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use xb_pipeline::{GlobError, Globs, logical_name};

use crate::error::BackupError;

/// Suffixes that an incremental backup adds to the name of a table's file.
const PARTS: [&[u8]; 2] = [b".delta", b".meta"];
/// Suffix of the file of a table that was created during the backup, or shortly before. Prepare
/// renames `t.new` (MariaDB) or `t.ibd.new` (XtraBackup) to `t.ibd`. An incremental backup adds its
/// own suffix last: `t.ibd.new.delta`.
const NEW: &[u8] = b".new";
/// Suffixes of files that tell `prepare` of a table renamed, dropped or damaged during the backup.
/// xtrabackup names these after the tablespace's number, in the folder of its schema or outside.
const CHANGES: [&str; 3] = [RENAMED, ".del", ".crpt"];
/// Suffix in place of `.ibd` of the file with the new name of a table that was renamed during the
/// backup, after its tablespace had been read. Without the tablespace, mariadb-backup does not prepare.
const RENAMED: &str = ".ren";
/// Suffix of a tablespace.
const TABLESPACE: &[u8] = b".ibd";
/// Suffix of the file that names a tablespace outside the data directory.
const LINK: &[u8] = b".isl";
/// Suffixes of table files. A table's `.frm` file lies beside the table file.
const TABLES: [&str; 7] = [".ibd", ".MYD", ".MYI", ".MAD", ".MAI", ".CSV", ".MRG"];

/// Files to read from a backup; by default all.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    exact: BTreeSet<String>,
    globs: Globs,
    patterns: Vec<String>,
    /// Tables, as `SCHEMA/TABLE` in the encoding of file names.
    tables: BTreeSet<String>,
    /// Tablespaces that were renamed during the backup, by their old names without suffix.
    renamed: BTreeSet<String>,
    for_prepare: bool,
    /// Whether the names and patterns are known to match files of a chain: one of its backups need not have any.
    is_of_chain: bool,
}

/// Reason why a file is selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SelectReason {
    /// The user selected it.
    Asked,
    /// The prepare step needs it.
    Needed,
}

impl Selection {
    /// Selects the files with these exact names, suffixes included.
    #[must_use]
    pub fn exact(names: impl IntoIterator<Item = String>) -> Self {
        Self { exact: names.into_iter().collect(), ..Self::default() }
    }

    /// Selects the files whose names match one of these shell patterns. Suffixes of compression,
    /// encryption and incremental backups are ignored; `*` also matches slashes.
    ///
    /// # Errors
    /// If a pattern is not valid.
    pub fn globs(patterns: &[String]) -> Result<Self, GlobError> {
        Ok(Self { globs: Globs::new(patterns)?, patterns: patterns.to_vec(), ..Self::default() })
    }

    /// Selects all files of these tables, named as `SCHEMA/TABLE` in the encoding of file names, and
    /// everything that prepare and a server need to read them: also the triggers and the settings of
    /// their schemas. Links to tablespaces outside the data directory are left out. A table need not
    /// have files.
    #[must_use]
    pub(crate) fn tables(names: impl IntoIterator<Item = String>) -> Self {
        Self { tables: names.into_iter().collect(), for_prepare: true, ..Self::default() }
    }

    /// Also selects everything that `prepare` needs: all files that belong to no schema (system and
    /// undo tablespaces, redo log, files that describe the backup) and the `.frm` files of the
    /// selected tables.
    #[must_use]
    pub fn with_what_prepare_needs(mut self, yes: bool) -> Self {
        self.for_prepare = yes;
        self
    }

    /// Returns whether this is a part of the files, with those that `prepare` needs.
    pub(crate) fn is_part_for_prepare(&self) -> bool {
        self.for_prepare && !self.is_all()
    }

    /// Takes the names of tablespaces that are selected, whatever else is: those that prepare renames in a backup.
    pub(crate) fn set_renamed(&mut self, names: BTreeSet<String>) {
        self.renamed = names;
    }

    /// Returns whether the user selected a file of this name.
    pub(crate) fn asks_for(&self, path: &[u8]) -> bool {
        self.judge(path, &mut MatchedNames::default()) == Some(SelectReason::Asked)
    }

    /// Fails if a name or a pattern matches no file of the last backup of a chain, of which these are all names. The links before it
    /// need not have it: a table may have been created after the full backup.
    ///
    /// # Errors
    /// [`BackupError`], as [`Selection::check`].
    pub(crate) fn check_chain<'n>(
        &mut self,
        files: impl Iterator<Item = &'n str>,
    ) -> Result<(), BackupError> {
        let mut matched = MatchedNames::default();
        for file in files {
            let _ = self.judge(file.as_bytes(), &mut matched);
        }
        self.check(&matched)?;
        self.is_of_chain = true;
        Ok(())
    }

    /// Takes an exact name out. Returns whether anything is still selected.
    pub fn without(&mut self, name: &str) -> bool {
        self.exact.remove(name);
        !self.is_all()
    }

    /// Returns whether all files are selected.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.exact.is_empty() && self.globs.is_empty() && self.tables.is_empty()
    }

    /// Canonical text: equal selections have equal texts.
    pub(crate) fn text(&self) -> String {
        match self.is_all() {
            true => String::new(),
            false if !self.tables.is_empty() => format!("tables {:?}", self.tables),
            false => format!("{:?} {:?} {}", self.exact, self.patterns, self.for_prepare),
        }
    }

    /// Returns why the file is selected, or `None`. Adds the names and patterns that match it to
    /// `matched`.
    pub(crate) fn judge(&self, path: &[u8], matched: &mut MatchedNames) -> Option<SelectReason> {
        if self.is_all() {
            return Some(SelectReason::Asked);
        }
        let name = table_file(logical_name(path));
        let name = name.as_ref();
        let mut asked = false;
        if let Ok(text) = std::str::from_utf8(path)
            && self.exact.contains(text)
        {
            matched.exact.insert(text.to_owned());
            asked = true;
        }
        for number in self.globs.matches(as_path(name)) {
            matched.globs.insert(number);
            asked = true;
        }
        asked |= table_of(name).is_some_and(|table| self.tables.contains(table))
            && !name.ends_with(LINK);
        match asked {
            true => Some(SelectReason::Asked),
            false if self.for_prepare && self.is_needed(name) => Some(SelectReason::Needed),
            false => None,
        }
    }

    fn is_needed(&self, name: &[u8]) -> bool {
        if !name.contains(&b'/') || name.starts_with(b"#innodb_redo/") {
            return true;
        }
        let change = |text: &str| CHANGES.iter().any(|suffix| text.ends_with(suffix));
        if std::str::from_utf8(name).is_ok_and(change) {
            return true;
        }
        if self.is_of_schema(name) || self.is_renamed(name) {
            return true;
        }
        let Some(table) = name.strip_suffix(b".frm") else { return false };
        TABLES.iter().any(|suffix| {
            let file = [table, suffix.as_bytes()].concat();
            self.globs.is_match(as_path(&file))
        })
    }

    fn is_renamed(&self, name: &[u8]) -> bool {
        let stem = name.strip_suffix(TABLESPACE).and_then(|stem| std::str::from_utf8(stem).ok());
        stem.is_some_and(|stem| self.renamed.contains(stem))
    }

    /// Returns whether a file belongs to the schema of a selected table, and to no table. A table that prepare
    /// renames may go to the folder of any schema.
    fn is_of_schema(&self, name: &[u8]) -> bool {
        let Ok(name) = std::str::from_utf8(name) else { return false };
        let Some((schema, file)) = name.split_once('/') else { return false };
        // There may be as many of these files as tables.
        let has_table = || {
            let prefix = &name[..=schema.len()];
            let first =
                self.tables.range::<str, _>((Bound::Included(prefix), Bound::Unbounded)).next();
            first.is_some_and(|table| table.starts_with(prefix))
        };
        match file {
            "db.opt" => !self.renamed.is_empty() || has_table(),
            _ => file.ends_with(".TRN") && has_table(),
        }
    }

    /// Refuses names and patterns that matched no file.
    ///
    /// # Errors
    /// [`BackupError::Selection`].
    pub(crate) fn check(&self, matched: &MatchedNames) -> Result<(), BackupError> {
        if self.is_of_chain {
            return Ok(());
        }
        if let Some(name) = self.exact.iter().find(|name| !matched.exact.contains(*name)) {
            return Err(BackupError::NoFile { file: name.clone() });
        }
        match self.patterns.iter().enumerate().find(|(n, _)| !matched.globs.contains(n)) {
            Some((_, pattern)) => {
                let hint = match encoded(pattern) {
                    Some(encoded) => {
                        format!("; file names encode special characters: try `{encoded}`")
                    }
                    None if !pattern.is_ascii() => {
                        "; file names encode letters outside ASCII: `show` lists them".to_owned()
                    }
                    None => "; `show` lists its files".to_owned(),
                };
                let what = format!("no file in the backup matches `{pattern}`{hint}");
                Err(BackupError::Selection(what))
            }
            None => Ok(()),
        }
    }
}

/// A pattern with the special characters of its names as servers encode them in file names (`.` is
/// `@002e`); `None` if it has none, or if it is not plain enough to tell.
fn encoded(pattern: &str) -> Option<String> {
    if !pattern.is_ascii() || pattern.contains(['[', '{', '\\', '@']) {
        return None;
    }
    let (stem, extension) = match pattern.rsplit_once('.') {
        Some((stem, end)) if end == "*" || end == "frm" => (stem, &pattern[stem.len()..]),
        Some((stem, end)) if TABLES.iter().any(|suffix| suffix.strip_prefix('.') == Some(end)) => {
            (stem, &pattern[stem.len()..])
        }
        _ => (pattern, ""),
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_/*?#".contains(c);
    let character = |c: char| match is_plain(c) {
        true => c.to_string(),
        false => format!("@{:04x}", u32::from(c)),
    };
    let encoded = stem.chars().map(character).collect::<String>() + extension;
    (encoded != pattern).then_some(encoded)
}

/// The tablespaces that were renamed during a backup, by the names of its files: prepare renames them in that backup and in
/// each one before it.
pub(crate) fn renamed<'n>(files: impl Iterator<Item = &'n str>) -> BTreeSet<String> {
    let stem = |file: &'n str| {
        let name = std::str::from_utf8(logical_name(file.as_bytes())).ok()?;
        name.strip_suffix(RENAMED).map(str::to_owned)
    };
    files.filter_map(stem).collect()
}

/// Names and patterns of a selection that matched a file.
#[derive(Debug, Default)]
pub(crate) struct MatchedNames {
    exact: BTreeSet<String>,
    globs: BTreeSet<usize>,
}

/// The table that a file belongs to, as `SCHEMA/TABLE` in the encoding of file names, which has no
/// dots, and `#` only before the name of a partition.
pub(crate) fn table_of(name: &[u8]) -> Option<&str> {
    let name = std::str::from_utf8(name).ok()?;
    let (schema, file) = name.split_once('/')?;
    let end = file.find(['.', '#'])?;
    (end > 0 && !file.contains('/')).then(|| &name[..schema.len() + 1 + end])
}

fn as_path(name: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(name))
}

/// Returns the name that the file has once the backup is prepared.
fn table_file(name: &[u8]) -> Cow<'_, [u8]> {
    let name = PARTS.iter().find_map(|part| name.strip_suffix(*part)).unwrap_or(name);
    match name.strip_suffix(NEW) {
        Some(table) if table.ends_with(TABLESPACE) => table.into(),
        Some(table) => [table, TABLESPACE].concat().into(),
        None => name.into(),
    }
}

/// Number of selected files, and their size in the stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Chosen {
    /// Files that the user selected.
    pub files: u64,
    /// Size of these files in bytes.
    pub bytes: u64,
    /// Other files that `prepare` needs.
    pub needed_files: u64,
    /// Size of the other files in bytes.
    pub needed_bytes: u64,
}

impl Chosen {
    pub(crate) fn add(&mut self, why: SelectReason, files: u64, bytes: u64) {
        match why {
            SelectReason::Asked => {
                self.files += files;
                self.bytes += bytes;
            }
            SelectReason::Needed => {
                self.needed_files += files;
                self.needed_bytes += bytes;
            }
        }
    }
}

/// Files that an earlier restore into the same target has proven, by their names in the stream.
#[derive(Debug, Clone, Default)]
pub(crate) struct Checkpoint {
    /// Complete files.
    pub(crate) whole: HashSet<Vec<u8>>,
    /// Incomplete files.
    pub(crate) begun: HashMap<Vec<u8>, ResumePoint>,
    /// Names of files in the target that the earlier restore may have written, but has not listed: without the suffixes of
    /// decoded layers.
    pub(crate) unlisted: HashSet<Vec<u8>>,
}

/// The part of a [`Checkpoint`] that a resumed restore takes over. The rest is fetched as if it had never been there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Resumable {
    /// Names in the stream of the complete files that are left out, and of the incomplete ones that are continued.
    pub(crate) kept: HashSet<Vec<u8>>,
    /// The unlisted names that files of the backup have.
    pub(crate) known: HashSet<Vec<u8>>,
}

impl Resumable {
    /// Notes that the backup has a file of this name, with suffixes or without.
    pub(crate) fn meet(&mut self, path: &[u8], proven: &Checkpoint) {
        if proven.unlisted.is_empty() {
            return;
        }
        for name in [path, logical_name(path)] {
            self.known.extend(proven.unlisted.get(name).cloned());
        }
    }
}

/// Progress of an incomplete file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ResumePoint {
    /// All bytes before this offset are written.
    pub(crate) upto: u64,
    /// Bytes of the file's part of the stream that were consumed so far.
    pub(crate) taken: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn globs(patterns: &[&str]) -> Selection {
        let patterns: Vec<String> = patterns.iter().map(|p| (*p).to_owned()).collect();
        Selection::globs(&patterns).unwrap()
    }

    #[test]
    fn a_pattern_with_characters_that_file_names_encode_is_explained() {
        for (pattern, expected) in [
            ("shop/t.a*", Some("shop/t@002ea*")),
            ("shop/t.a.ibd", Some("shop/t@002ea.ibd")),
            ("my-shop/order.*", Some("my@002dshop/order.*")),
            ("shop/order.*", None),
            ("shop/t#P#p0.ibd", None),
            ("shop/t@002ea*", None),
            ("shop/[a-c].ibd", None),
            ("shop/n\u{e4}me.ibd", None),
        ] {
            assert_eq!(encoded(pattern).as_deref(), expected, "{pattern}");
        }
        let error = globs(&["shop/t.a*"]).check(&MatchedNames::default()).unwrap_err();
        assert!(error.to_string().contains("try `shop/t@002ea*`"), "{error}");
    }

    #[test]
    fn files_of_a_schema_come_with_its_tables_and_not_with_those_of_neighbours() {
        let tables = ["shop@002dold/t", "shop0/t", "shop/t", "sho/t", "a/t"];
        for left_out in tables {
            let others = tables.iter().filter(|table| **table != left_out);
            let selection = Selection::tables(others.map(|table| (*table).to_owned()));
            for table in tables {
                let schema = table.strip_suffix("/t").unwrap_or(table);
                for file in ["db.opt", "x.TRN"] {
                    let name = format!("{schema}/{file}");
                    let found = selection.judge(name.as_bytes(), &mut MatchedNames::default());
                    assert_eq!(found.is_some(), table != left_out, "{name} without {left_out}");
                }
            }
        }
    }

    #[test]
    fn suffixes_do_not_count() {
        let selection = globs(&["shop/*", "*/t.ibd"]);
        let mut matched = MatchedNames::default();
        for (name, wanted) in [
            ("shop/t.ibd", true),
            ("shop/t.ibd.lz4.xbcrypt", true),
            ("other/t.ibd.qp", true),
            ("other/t.ibd.delta.zst", true),
            ("other/t.ibd.meta", true),
            ("other/t.new", true),
            ("other/t.ibd.new", true),
            ("other/t.ibd.new.zst", true),
            ("other/t.ibd.new.delta.zst", true),
            ("other/t.ibd.new.meta", true),
            ("other/u.new", false),
            ("other/t.frm", false),
            ("shopping/t", false),
            ("ibdata1", false),
            ("xtrabackup_info", false),
        ] {
            assert_eq!(selection.judge(name.as_bytes(), &mut matched).is_some(), wanted, "{name}");
        }
        selection.check(&matched).unwrap();
    }

    #[test]
    fn prepare_gets_what_belongs_to_no_schema_and_the_frm_files() {
        let selection = globs(&["shop/t*.ibd"]).with_what_prepare_needs(true);
        let mut matched = MatchedNames::default();
        for (name, why) in [
            ("shop/t1.ibd.zst", Some(SelectReason::Asked)),
            ("shop/t1.frm", Some(SelectReason::Needed)),
            ("shop/u.frm", None),
            ("shop/u.ibd", None),
            ("ibdata1.delta", Some(SelectReason::Needed)),
            ("undo001.lz4", Some(SelectReason::Needed)),
            ("ib_logfile0", Some(SelectReason::Needed)),
            ("#innodb_redo/#ib_redo7", Some(SelectReason::Needed)),
            ("xtrabackup_checkpoints.xbcrypt", Some(SelectReason::Needed)),
            ("mariadb_backup_info", Some(SelectReason::Needed)),
            ("aria_log.00000001", Some(SelectReason::Needed)),
            ("mysql/user.frm", None),
            ("12.ren", Some(SelectReason::Needed)),
            ("shop/12.ren", Some(SelectReason::Needed)),
            ("other/13.del.zst", Some(SelectReason::Needed)),
            ("other/u.ibd.del", Some(SelectReason::Needed)),
            ("shop/14.crpt", Some(SelectReason::Needed)),
            ("other/u.ibd.new", None),
        ] {
            assert_eq!(selection.judge(name.as_bytes(), &mut matched), why, "{name}");
        }
    }

    #[test]
    fn prepare_gets_every_tablespace_that_it_renames() {
        let mut selection = globs(&["shop/new.*"]).with_what_prepare_needs(true);
        let files = ["shop/old.ren", "shop/p#P#p0.ren.qp", "12.ren", "shop/gone.del", "shop/u.ibd"];
        selection.set_renamed(renamed(files.into_iter()));
        let mut matched = MatchedNames::default();
        for (name, why) in [
            ("shop/new.frm", Some(SelectReason::Asked)),
            ("shop/old.ibd", Some(SelectReason::Needed)),
            ("shop/old.ibd.delta.zst", Some(SelectReason::Needed)),
            ("shop/old.ibd.meta", Some(SelectReason::Needed)),
            ("shop/p#P#p0.ibd", Some(SelectReason::Needed)),
            ("shop/old.frm", None),
            ("shop/p#P#p1.ibd", None),
            ("shop/gone.ibd", None),
            ("shop/u.ibd", None),
            ("other/db.opt", Some(SelectReason::Needed)),
            ("other/t.TRN", None),
        ] {
            assert_eq!(selection.judge(name.as_bytes(), &mut matched), why, "{name}");
        }
    }

    #[test]
    fn a_table_is_all_its_files_and_what_its_schema_and_prepare_need() {
        let selection = Selection::tables(["shop/a@002eb".to_owned()]);
        let mut matched = MatchedNames::default();
        let (asked, needed) = (Some(SelectReason::Asked), Some(SelectReason::Needed));
        for (name, why) in [
            ("shop/a@002eb.ibd.zst", asked),
            ("shop/a@002eb.frm", asked),
            ("shop/a@002eb#P#p0#SP#s.ibd.delta", asked),
            ("shop/a@002eb.new", asked),
            ("shop/a@002eb.TRG", asked),
            ("shop/a@002eb.isl", None),
            ("shop/a@002ebc.ibd", None),
            ("shop/a@002e.ibd", None),
            ("other/a@002eb.ibd", None),
            ("shop/t.TRN", needed),
            ("shop/db.opt", needed),
            ("other/db.opt", None),
            ("ibdata1", needed),
        ] {
            assert_eq!(selection.judge(name.as_bytes(), &mut matched), why, "{name}");
        }
        assert!(!selection.is_all());
        selection.check(&matched).unwrap();
    }

    /// A table that was made after the full backup is in the others only.
    #[test]
    fn a_pattern_need_not_match_in_each_backup_of_a_chain() {
        let mut selection = globs(&["shop/late.*"]);
        let error = selection.check_chain(["shop/t.ibd"].into_iter()).unwrap_err();
        assert!(error.to_string().contains("no file in the backup matches"), "{error}");
        selection.check_chain(["shop/t.ibd", "shop/late.ibd.delta"].into_iter()).unwrap();
        selection.check(&MatchedNames::default()).unwrap();
        assert!(selection.asks_for(b"shop/late.ibd.meta") && !selection.asks_for(b"shop/t.ibd"));
    }

    #[test]
    fn an_unmatched_pattern_is_named() {
        let error = globs(&["shop/*", "nope/*"]);
        let mut matched = MatchedNames::default();
        let _ = error.judge(b"shop/a", &mut matched);
        assert!(error.check(&matched).unwrap_err().to_string().contains("nope/*"));
        let letters = globs(&["shop/\u{fc}*"]).check(&MatchedNames::default()).unwrap_err();
        assert!(letters.to_string().contains("letters outside ASCII: `show`"), "{letters}");
        let exact = Selection::exact(["a".to_owned(), "b".to_owned()]);
        let mut matched = MatchedNames::default();
        assert_eq!(exact.judge(b"a", &mut matched), Some(SelectReason::Asked));
        assert_eq!(exact.judge(b"a.lz4", &mut matched), None);
        assert!(exact.check(&matched).unwrap_err().to_string().starts_with("b is not"));
        assert!(Selection::default().is_all());
    }
}
