//! Collects evidence from the pages of a stream, and decides at its end whether missing pages are
//! damage.
//!
//! A backup of a running server may lack pages that the server had not yet written: recovery makes
//! them from the redo log. Every change before the checkpoint at which recovery starts is in the
//! files; so a page that was in use before it, and is missing, is lost.

use std::collections::BTreeMap;

use xb_pages::{BadPage, Fault, PageCounts, SystemFile};
use xb_reader::RelPath;

use super::bad_page::BadPageOf;
use super::clone_patches::ClonePatches;
use super::layer_state::Content;
use super::redo::{BadRedo, RedoFound, bad_redo};
use super::tables::{BadTable, TableFindings, Tables, engine_of};
use crate::scan::producer_files::{CHECKPOINTS, field, is_unprepared};

/// Maximum number of bad pages that are listed individually.
pub const MAX_BAD_PAGES: usize = 1000;
/// Number of missing pages that are kept until the end: those that are most likely lost. Twice as many for a while.
const MAX_MISSING: usize = 10_000;
/// A redo log with fewer bytes than this after its checkpoint changes no page.
const IDLE: u64 = 512;
/// A redo log with fewer bytes than this after its checkpoint creates no tablespace, and truncates none: a table
/// without columns of note takes 1560 (MariaDB 10.11).
const CREATES_NOTHING: u64 = 1024;
/// Length to which MariaDB truncates an undo tablespace, in bytes (10.11). It writes the first page, which states the
/// length, later than that.
const TRUNCATED: u64 = 10 << 20;

/// Memory that a bad page of a clone takes until the patches are known, in bytes: at most twice itself in a list that grows, and
/// its place in two sets.
const UNPATCHED: u64 = 2 * size_of::<BadPageOf>() as u64 + 128;

/// Findings about the pages of a stream.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct PagesFound {
    /// Number of tablespace files whose pages were checked.
    pub files: u64,
    /// Number of tablespace files that could not be checked: their bytes are out of order, or they
    /// are compressed or encrypted and not decoded.
    pub passed_over: u64,
    /// Number of those that are files of an incremental backup, with pages that were checked: the tablespace has others,
    /// which an earlier backup has.
    pub changed_only: u64,
    /// Counts of pages in files that have ended.
    pub counts: PageCounts,
    /// The first [`MAX_BAD_PAGES`] bad pages.
    pub bad: Vec<BadPageOf>,
    /// Number of further bad pages. The counts do not include all of them, because they only cover
    /// files that have ended.
    pub untold: u64,
    /// Number of missing pages of which the redo log does not show whether recovery writes them.
    pub doubtful: u64,
    /// The redo log, if recovery cannot read it.
    pub redo: Option<BadRedo>,
    /// Bad pages of Aria tables that the server had open: it may have been writing them.
    pub in_use: u64,
    /// The first [`MAX_BAD_PAGES`] files of MyISAM and Aria tables that no server can use.
    pub tables: Vec<BadTable>,
    /// Files of which only the length was checked, by engine.
    pub lengths_only: BTreeMap<&'static str, u64>,
    /// Files that were not checked, by engine.
    pub not_checked: BTreeMap<&'static str, u64>,
}

impl PagesFound {
    fn add(&mut self, path: &RelPath, page: BadPage) {
        if self.bad.len() < MAX_BAD_PAGES {
            self.bad.push(BadPageOf { path: path.clone(), page });
        } else {
            self.untold += 1;
        }
    }

    fn add_table(&mut self, table: BadTable) {
        if self.tables.len() < MAX_BAD_PAGES {
            self.tables.push(table);
        } else {
            self.untold += 1;
        }
    }

    fn take_tables(&mut self, concluded: TableFindings) {
        let TableFindings {
            files,
            counts,
            bad,
            more_bad,
            in_use,
            tables,
            lengths_only,
            not_checked,
        } = concluded;
        self.files += files;
        self.counts.add(&counts);
        bad.into_iter().for_each(|BadPageOf { path, page }| self.add(&path, page));
        self.untold += more_bad;
        self.in_use += in_use;
        tables.into_iter().for_each(|table| self.add_table(table));
        for (engine, files) in lengths_only {
            *self.lengths_only.entry(engine).or_default() += files;
        }
        for (engine, files) in not_checked {
            *self.not_checked.entry(engine).or_default() += files;
        }
    }
}

/// Evidence from the files of a stream.
#[derive(Debug, Clone, Default)]
pub(super) struct Evidence {
    found: PagesFound,
    missing: Vec<BadPageOf>,
    /// Number of further missing pages.
    more_missing: u64,
    redo: Vec<(RelPath, RedoFound)>,
    system: Vec<(RelPath, SystemFile)>,
    /// Tables of MyISAM and Aria of which one file was seen so far.
    tables: Tables,
    /// Of a clone: bad pages of its files, until its patches are known.
    unpatched: Option<Vec<BadPageOf>>,
    /// Most of them that are kept. More are taken for damaged: no patch will be compared with them.
    max_unpatched: usize,
}

impl Evidence {
    /// Findings that are damage in any case.
    pub(super) fn found(&self) -> &PagesFound {
        &self.found
    }

    /// Takes the bad pages of a file.
    pub(super) fn of_file<'e>(&'e mut self, path: &'e RelPath) -> impl FnMut(BadPage) + 'e {
        |page| match (page.missing_since, &mut self.unpatched) {
            (None, Some(unpatched)) if unpatched.len() < self.max_unpatched => {
                unpatched.push(BadPageOf { path: path.clone(), page });
            }
            (None, _) => self.found.add(path, page),
            (Some(_), _) => self.miss(path, page),
        }
    }

    /// The stream is a clone: its patches may replace bad pages. At most half of `memory`, in bytes, is taken for these.
    pub(super) fn is_clone(&mut self, memory: u64) {
        let _ = self.unpatched.get_or_insert_default();
        self.max_unpatched = usize::try_from(memory / 2 / UNPATCHED).unwrap_or(usize::MAX);
    }

    /// Bytes that bad pages take until the patches are known.
    pub(super) fn held(&self) -> u64 {
        self.unpatched.as_ref().map_or(0, |unpatched| unpatched.len() as u64 * UNPATCHED)
    }

    /// The pages that patches may replace.
    pub(super) fn unpatched(&self) -> impl Iterator<Item = &BadPageOf> {
        self.unpatched.iter().flatten().chain(&self.missing)
    }

    /// Takes the patches of a clone: pages that they replace are not damaged. `is_first`: no earlier pass has taken
    /// them.
    pub(super) fn patched(&mut self, patches: &mut ClonePatches, is_first: bool) {
        let (replaced, rest): (Vec<_>, Vec<_>) = self
            .unpatched
            .take()
            .unwrap_or_default()
            .into_iter()
            .partition(|bad| patches.has_replaced(bad));
        let replaced = replaced.len() as u64;
        self.found.counts.damaged -= replaced.min(self.found.counts.damaged);
        self.found.counts.good += replaced;
        self.missing.retain(|bad| !patches.has_replaced(bad));
        self.unpatched = Some(Vec::new());
        self.redo.extend(patches.redo().filter(|_| is_first));
        rest.into_iter().for_each(|BadPageOf { path, page }| self.found.add(&path, page));
        for BadPageOf { path, page } in patches.finish().into_iter().filter(|_| is_first) {
            self.found.counts.damaged += 1;
            self.found.add(&path, page);
        }
    }

    fn miss(&mut self, path: &RelPath, page: BadPage) {
        self.missing.push(BadPageOf { path: path.clone(), page });
        if self.missing.len() < 2 * MAX_MISSING {
            return;
        }
        // Recovery writes what is newer than the checkpoint, of which nothing is known yet: a busy server may have any
        // number of such pages.
        self.missing.sort_by_key(|BadPageOf { page, .. }| {
            (matches!(page.fault, Fault::Empty), page.missing_since)
        });
        self.more_missing += (self.missing.len() - MAX_MISSING) as u64;
        self.missing.truncate(MAX_MISSING);
    }

    /// Takes the result for a file that has ended.
    pub(super) fn file(&mut self, path: &RelPath, content: Content) {
        match content {
            Content::Other => {
                if let Some(engine) = engine_of(path.as_bytes()) {
                    *self.found.not_checked.entry(engine).or_default() += 1;
                }
            }
            Content::Table(file) => {
                let concluded = self.tables.file(path, file);
                self.found.take_tables(concluded);
            }
            Content::PassedOver => self.found.passed_over += 1,
            Content::Delta(checked) => {
                self.found.passed_over += 1;
                self.found.changed_only += 1;
                self.found.counts.add(&checked.counts);
            }
            Content::Pages(checked) => {
                self.found.files += 1;
                self.found.counts.add(&checked.counts);
                self.system.extend(checked.system.map(|system| (path.clone(), system)));
            }
            Content::Redo(file) => self.redo.push((path.clone(), file)),
        }
    }

    /// Decides about missing pages, once everything was seen. `described`: the small files of the
    /// stream.
    pub(super) fn judge(&self, described: &BTreeMap<String, Vec<u8>>) -> PagesFound {
        let mut found = self.found.clone();
        let checkpoints = checkpoints(described);
        let end = checkpoints.and_then(last_lsn);
        found.redo = bad_redo(&self.redo, checkpoints.is_some_and(is_unprepared), end);
        let end = end.or_else(|| self.redo.iter().find_map(|(_, file)| file.end));
        let mut missing = self.missing.clone();
        missing.extend(self.short_system());
        for BadPageOf { path, page } in missing {
            match self.verdict(&page, end) {
                Verdict::Lost => {
                    found.counts.damaged += 1;
                    let was_empty = matches!(
                        page.fault,
                        Fault::Empty | Fault::EmptyFixed | Fault::EmptyRoot { .. }
                    );
                    found.counts.empty -= u64::from(was_empty).min(found.counts.empty);
                    found.add(&path, page);
                }
                Verdict::Doubtful => found.doubtful += 1,
                Verdict::Recovered => {}
            }
        }
        found.doubtful += self.more_missing;
        found.take_tables(self.tables.halves());
        found
    }

    /// Decides about a missing page. `end`: position in the log at which the backup ends.
    fn verdict(&self, page: &BadPage, end: Option<u64>) -> Verdict {
        let starts = self.redo.iter().filter_map(|(_, file)| file.start);
        let Some(start) = starts.max_by_key(|start| start.checkpoint) else {
            // Without a redo log, nothing can write the page.
            return if self.redo.is_empty() { Verdict::Lost } else { Verdict::Doubtful };
        };
        if page.missing_since.is_some_and(|since| since > start.checkpoint) {
            return Verdict::Recovered;
        }
        let least = match page.fault {
            // The checkpoint may have come while the server created the table; or the root is lost, and all others were
            // changed since.
            Fault::EmptyRoot { made } if made > start.checkpoint => return Verdict::Doubtful,
            // The server may have freed the page before it wrote it.
            Fault::Empty if start.skips_freed => IDLE,
            // The server may have created or truncated the file since the checkpoint.
            Fault::Blank | Fault::Truncated { .. } => CREATES_NOTHING,
            _ => return Verdict::Lost,
        };
        let is_truncation = start.skips_freed
            && matches!(page.fault, Fault::Truncated { .. })
            && page.offset == TRUNCATED;
        match end.is_some_and(|end| end.saturating_sub(start.checkpoint) >= least) {
            true if is_truncation => Verdict::Recovered,
            true => Verdict::Doubtful,
            false => Verdict::Lost,
        }
    }

    /// A system tablespace whose files are shorter than its first page states.
    fn short_system(&self) -> Option<BadPageOf> {
        let (path, file) = self.system.iter().find(|(_, file)| file.stated.is_some())?;
        // A file without any page does not show their size.
        let len: u64 = self.system.iter().map(|(_, file)| file.len).sum();
        let pages = len / file.page_size as u64;
        let (stated, lsn) = file.stated.filter(|(stated, _)| pages < *stated)?;
        let page = BadPage {
            page: pages,
            offset: pages.saturating_mul(file.page_size as u64),
            fault: Fault::Short { pages, stated },
            missing_since: Some(lsn),
        };
        Some(BadPageOf { path: path.clone(), page })
    }
}

enum Verdict {
    Lost,
    Doubtful,
    Recovered,
}

/// The text in which the producer states the positions of the backup.
fn checkpoints(described: &BTreeMap<String, Vec<u8>>) -> Option<&str> {
    let text = CHECKPOINTS.iter().find_map(|name| described.get(*name))?;
    std::str::from_utf8(text).ok()
}

/// Position in the log at which the backup ends.
fn last_lsn(checkpoints: &str) -> Option<u64> {
    field(checkpoints, "last_lsn")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use xb_pages::RedoStart;

    use super::*;

    #[test]
    fn a_lost_page_is_found_among_any_number_that_recovery_writes() {
        let path = RelPath::new(b"shop/t.ibd").unwrap_or_else(|error| panic!("{error}"));
        let start = |skips_freed| RedoStart { checkpoint: 1000, skips_freed };
        let root = Fault::EmptyRoot { made: 1000 };
        for (fault, skips_freed) in [(Fault::Empty, false), (Fault::EmptyFixed, true), (root, true)]
        {
            let mut evidence = Evidence::default();
            evidence
                .redo
                .push((path.clone(), RedoFound::of_clone(Some(start(skips_freed)), 1 << 30)));
            let mut miss = |page, fault, since| {
                let bad = BadPage { page, offset: page * 16384, fault, missing_since: Some(since) };
                evidence.of_file(&path)(bad);
            };
            (0..50_000).for_each(|page| miss(page, Fault::Empty, 1001));
            miss(70_000, fault, 1000);
            (80_000..130_000).for_each(|page| miss(page, Fault::Empty, 1001));
            let found = evidence.judge(&BTreeMap::new());
            let bad: Vec<u64> = found.bad.iter().map(|bad| bad.page.page).collect();
            assert_eq!(bad, [70_000], "{fault:?}");
            assert!(evidence.missing.len() < 2 * MAX_MISSING);
        }
    }

    /// Observed: page 1 at 63312115, a checkpoint at 63312179, and pages 0 and 2 at 63312412, with the root in the log.
    #[test]
    fn a_table_that_a_server_creates_across_its_checkpoint_is_not_damaged() {
        let path = RelPath::new(b"shop/t.ibd").unwrap_or_else(|error| panic!("{error}"));
        for (made, damaged, doubtful) in [(1001, 0, 1), (1000, 1, 0)] {
            let mut evidence = Evidence::default();
            let start = RedoStart { checkpoint: 1000, skips_freed: true };
            evidence.redo.push((path.clone(), RedoFound::of_clone(Some(start), 1 << 30)));
            let fault = Fault::EmptyRoot { made };
            let bad = BadPage { page: 3, offset: 3 * 16384, fault, missing_since: Some(900) };
            evidence.of_file(&path)(bad);
            let found = evidence.judge(&BTreeMap::new());
            assert_eq!((found.counts.damaged, found.doubtful), (damaged, doubtful), "{made}");
        }
    }

    #[test]
    fn bad_pages_of_a_clone_are_kept_within_the_memory() {
        const MEMORY: u64 = 1 << 20;
        let path = RelPath::new(b"shop/t.ibd").unwrap_or_else(|error| panic!("{error}"));
        let mut evidence = Evidence::default();
        evidence.is_clone(MEMORY);
        let fault = Fault::Checksum { stored: 1, computed: 0 };
        for page in 0..100_000 {
            let bad = BadPage { page, offset: page * 16384, fault, missing_since: None };
            evidence.of_file(&path)(bad);
        }
        let kept = evidence.unpatched().count();
        assert!(kept > 1000 && evidence.held() <= MEMORY / 2, "{kept}");
        let told = evidence.found().bad.len() as u64 + evidence.found().untold;
        assert_eq!(kept as u64 + told, 100_000);
    }
}
