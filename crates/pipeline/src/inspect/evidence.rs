//! Collects evidence from the pages of a stream, and decides at its end whether missing pages are
//! damage.
//!
//! A backup of a running server may lack pages that the server had not yet written: recovery makes
//! them from the redo log. Every change before the checkpoint at which recovery starts is in the
//! files; so a page that was in use before it, and is missing, is lost.

use std::collections::BTreeMap;

use xb_pages::{BadPage, Fault, PageCounts, RedoStart, SystemFile};
use xb_reader::RelPath;

use super::layer_state::Content;

/// Maximum number of bad pages that are listed individually.
pub const MAX_BAD_PAGES: usize = 1000;
/// Maximum number of missing pages that are kept until the end.
const MAX_MISSING: usize = 10_000;
/// A redo log with fewer bytes than this after its checkpoint changes no page.
const IDLE: u64 = 512;

/// A bad page and its file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BadPageOf {
    /// The file's name in the stream.
    pub path: RelPath,
    /// The page and its defect.
    pub page: BadPage,
}

/// Findings about the pages of a stream.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct PagesFound {
    /// Number of tablespace files whose pages were checked.
    pub files: u64,
    /// Number of tablespace files that could not be checked: their bytes are out of order, or they
    /// are compressed or encrypted and not decoded.
    pub passed_over: u64,
    /// Counts of pages in files that have ended.
    pub counts: PageCounts,
    /// The first [`MAX_BAD_PAGES`] bad pages.
    pub bad: Vec<BadPageOf>,
    /// Number of further bad pages. The counts do not include all of them, because they only cover
    /// files that have ended.
    pub untold: u64,
    /// Number of missing pages of which the redo log does not show whether recovery writes them.
    pub doubtful: u64,
}

impl PagesFound {
    fn add(&mut self, path: &RelPath, page: BadPage) {
        if self.bad.len() < MAX_BAD_PAGES {
            self.bad.push(BadPageOf { path: path.clone(), page });
        } else {
            self.untold += 1;
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
    /// Whether the stream has a redo log.
    has_redo: bool,
    start: Option<RedoStart>,
    system: Vec<(RelPath, SystemFile)>,
}

impl Evidence {
    /// Findings that are damage in any case.
    pub(super) fn found(&self) -> &PagesFound {
        &self.found
    }

    /// Takes the bad pages of a file.
    pub(super) fn of_file<'e>(&'e mut self, path: &'e RelPath) -> impl FnMut(BadPage) + 'e {
        |page| match page.missing_since {
            None => self.found.add(path, page),
            Some(_) => self.miss(path, page),
        }
    }

    fn miss(&mut self, path: &RelPath, page: BadPage) {
        if self.missing.len() < MAX_MISSING {
            self.missing.push(BadPageOf { path: path.clone(), page });
        } else {
            self.more_missing += 1;
        }
    }

    /// Takes the result for a file that has ended.
    pub(super) fn file(&mut self, path: &RelPath, content: Content) {
        match content {
            Content::Other => {}
            Content::PassedOver => self.found.passed_over += 1,
            Content::Pages(checked) => {
                self.found.files += 1;
                self.found.counts.add(&checked.counts);
                self.system.extend(checked.system.map(|system| (path.clone(), system)));
            }
            Content::Redo(start) => {
                self.has_redo = true;
                let later = |start: &RedoStart| start.checkpoint;
                self.start = self.start.into_iter().chain(start).max_by_key(later);
            }
        }
    }

    /// Decides about missing pages, once everything was seen. `described`: the small files of the
    /// stream.
    pub(super) fn judge(&self, described: &BTreeMap<String, Vec<u8>>) -> PagesFound {
        let mut found = self.found.clone();
        let mut missing = self.missing.clone();
        missing.extend(self.short_system());
        for BadPageOf { path, page } in missing {
            match self.verdict(&page, described) {
                Verdict::Lost => {
                    found.counts.damaged += 1;
                    found.counts.empty -=
                        u64::from(page.fault == Fault::Empty).min(found.counts.empty);
                    found.add(&path, page);
                }
                Verdict::Doubtful => found.doubtful += 1,
                Verdict::Recovered => {}
            }
        }
        found.doubtful += self.more_missing;
        found
    }

    fn verdict(&self, page: &BadPage, described: &BTreeMap<String, Vec<u8>>) -> Verdict {
        let Some(start) = self.start else {
            // Without a redo log, nothing can write the page.
            return if self.has_redo { Verdict::Doubtful } else { Verdict::Lost };
        };
        if page.missing_since.is_some_and(|since| since > start.checkpoint) {
            return Verdict::Recovered;
        }
        let freed = start.skips_freed && page.fault == Fault::Empty;
        match freed && !is_idle(start, described) {
            true => Verdict::Doubtful,
            false => Verdict::Lost,
        }
    }

    /// A system tablespace whose files are shorter than its first page states.
    fn short_system(&self) -> Option<BadPageOf> {
        let pages = self.system.iter().map(|(_, file)| file.pages).sum();
        let (path, file) = self.system.iter().find(|(_, file)| file.stated.is_some())?;
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

/// Whether the server changed nothing between the checkpoint and the end of the backup.
fn is_idle(start: RedoStart, described: &BTreeMap<String, Vec<u8>>) -> bool {
    let checkpoints = ["xtrabackup_checkpoints", "mariadb_backup_checkpoints"];
    let text = checkpoints.iter().find_map(|name| described.get(*name));
    let end = text.and_then(|text| {
        let line =
            std::str::from_utf8(text).ok()?.lines().find(|line| line.starts_with("last_lsn"))?;
        line.split_once('=')?.1.trim().parse::<u64>().ok()
    });
    end.is_none_or(|end| end.saturating_sub(start.checkpoint) < IDLE)
}
