//! Connection of an incremental backup to its base.

use crate::history::{Verdict, judge};
use crate::manifest::{Base, Manifest};
use crate::names::BackupName;

/// Limit of backups in one chain. Preparing so many would take days.
pub(crate) const MAX_LINKS: usize = 1000;

/// The facts about a backup that tell whether another one is its base.
#[derive(Debug, Clone, Copy)]
pub struct Lineage<'a> {
    /// Name of the backup.
    pub name: &'a str,
    /// Run that made it.
    pub run: &'a str,
    /// Server it comes from.
    pub server: Option<&'a str>,
    /// The base that the manifest names.
    pub base: Option<&'a Base>,
    /// Whether it needs a base.
    pub is_incremental: bool,
    /// Whether increments may be based on it.
    pub can_be_base: bool,
    /// Log sequence numbers between which the backup holds changes.
    pub from_lsn: Option<u64>,
    /// Log sequence number up to which it holds changes.
    pub to_lsn: Option<u64>,
}

/// An incremental backup that this host has stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RememberedIncrement {
    /// Name of the backup.
    pub name: BackupName,
    /// Run that made its base.
    pub base: String,
}

impl<'a> Lineage<'a> {
    /// The lineage that a manifest states.
    pub fn of(name: &'a str, manifest: &'a Manifest) -> Self {
        Self {
            name,
            run: &manifest.run,
            server: manifest.server.as_deref(),
            base: manifest.base.as_ref(),
            is_incremental: manifest.is_incremental(),
            can_be_base: !manifest.is_clone(),
            from_lsn: manifest.source.from_lsn,
            to_lsn: manifest.source.to_lsn,
        }
    }

    /// Returns whether `other` is or may be its base. The manifest decides; if it names no base, the log
    /// positions do.
    pub fn is_based_on(&self, other: &Lineage<'_>) -> bool {
        match self.base {
            Some(base) => base.name == other.name && base.run == other.run,
            None => {
                self.is_incremental
                    && other.can_be_base
                    && self.run != other.run
                    && self.from_lsn == other.to_lsn
                    && same_server(self.server, other.server)
            }
        }
    }
}

/// Returns whether two backups can be of one server, as far as known.
pub fn same_server(one: Option<&str>, other: Option<&str>) -> bool {
    one.is_none() || other.is_none() || one == other
}

/// Finds the base of an incremental backup by log sequence numbers: the newest backup that ended
/// before the incremental one began.
pub fn find_base<'a>(
    all: impl Iterator<Item = (&'a BackupName, &'a Manifest)>,
    increment: &Manifest,
) -> Option<Base> {
    increment.source.from_lsn.filter(|lsn| *lsn > 0)?;
    let lineage = Lineage { base: None, ..Lineage::of(&increment.name, increment) };
    all.filter(|(name, manifest)| {
        manifest.finished <= increment.started
            && lineage.is_based_on(&Lineage::of(name.as_str(), manifest))
    })
    .max_by_key(|(name, manifest)| {
        // One of the other kind is no base, and the error says so. Of the same data, the backup of the server: another one
        // may not be proven yet.
        let fits = increment.source.mixes_with(&manifest.source).is_none();
        (fits, manifest.finished, manifest.stands_for().is_none(), *name)
    })
    .map(|(name, manifest)| Base { name: name.to_string(), run: manifest.run.clone() })
}

/// Returns why the backup `found` cannot be the base that the manifest of an increment names; `None` if it can.
pub(crate) fn misfit(
    increment: &Manifest,
    base: &Base,
    name: &BackupName,
    found: &Manifest,
) -> Option<String> {
    if found.run != base.run {
        return Some(format!("its base {name} was replaced by another backup"));
    }
    if !same_server(found.server.as_deref(), increment.server.as_deref()) {
        return Some(format!("its base {name} comes from another server"));
    }
    if found.is_clone() {
        return Some(format!("its base {name} is a clone of MySQL, on which nothing can be based"));
    }
    match (increment.source.from_lsn, found.source.to_lsn) {
        // End of the base, or beginning of its redo log.
        (Some(from), Some(to)) if from != to && Some(from) != found.source.redo_start_lsn => {
            return Some(format!("it starts at LSN {from}, but its base {name} ends at LSN {to}"));
        }
        _ => {}
    }
    if let Some(what) = increment.source.mixes_with(&found.source) {
        return Some(format!("its base {name} is {what}"));
    }
    match judge(found, increment.history.as_ref()) {
        Verdict::Other(what) => Some(format!("its base {name} belongs to another history: {what}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::clone_facts::CloneFacts;
    use crate::manifest::{MergedLink, sample};

    fn backup(name: &str, run: char, (from, to): (u64, u64)) -> (BackupName, Manifest) {
        let mut manifest = sample();
        (manifest.name, manifest.run) = (name.to_owned(), run.to_string().repeat(32));
        (manifest.source.from_lsn, manifest.source.to_lsn) = (Some(from), Some(to));
        let kind = if from > 0 { "incremental" } else { "full-backuped" };
        manifest.source.backup_type = Some(kind.to_owned());
        (BackupName::new(name).unwrap(), manifest)
    }

    /// Both end where the increment begins. Only its chain is known to be what the server's increment continues.
    #[test]
    fn of_the_same_data_the_backup_of_the_server_is_the_base() {
        let (last, mut merged) = (backup("b", '1', (10, 20)), backup("b-full", '2', (0, 20)));
        let link =
            MergedLink { name: "b".to_owned(), run: last.1.run.clone(), manifest: "0".repeat(64) };
        merged.1.consolidated_from = vec![link];
        let increment = backup("c", '3', (20, 30)).1;
        let base_of = |all: &[&(BackupName, Manifest)]| {
            let all = all.iter().map(|(name, manifest)| (name, manifest));
            find_base(all, &increment).map(|base| base.name)
        };
        for all in [[&last, &merged], [&merged, &last]] {
            assert_eq!(base_of(&all).as_deref(), Some("b"));
        }
        assert_eq!(base_of(&[&merged]).as_deref(), Some("b-full"));
        // Of other data, the newer one is.
        let mut newer = merged.clone();
        newer.1.finished = jiff::Timestamp::from_second(1).unwrap();
        let late = Manifest { started: newer.1.finished, ..increment.clone() };
        let all = [&last, &newer].map(|(name, manifest)| (name, manifest));
        assert_eq!(
            find_base(all.into_iter(), &late).map(|base| base.name).as_deref(),
            Some("b-full")
        );
    }

    /// Restored in one, they have lost rows, or whole schemas.
    #[test]
    fn partial_and_whole_backups_are_no_bases_of_each_other() {
        let of = |name: &str, run, lsn, is_partial| {
            let (name, mut manifest) = backup(name, run, lsn);
            (manifest.source.tool_name, manifest.source.is_partial) =
                (Some("mariadb-backup".to_owned()), is_partial);
            (name, manifest)
        };
        let (whole, partial) = (of("w", '1', (0, 10), false), of("p", '2', (0, 10), true));
        for (is_partial, own, other) in [(true, &partial, &whole), (false, &whole, &partial)] {
            let increment = of("i", '3', (10, 20), is_partial).1;
            let refused = |(name, found): &(BackupName, Manifest)| {
                let base = Base { name: name.to_string(), run: found.run.clone() };
                misfit(&increment, &base, name, found)
            };
            assert_eq!(refused(own), None);
            assert!(refused(other).unwrap().contains("partial"));
            // Of two that end where it begins, the one of its kind is its base.
            let all = [own, other].map(|(name, manifest)| (name, manifest));
            let found = find_base(all.into_iter(), &increment).map(|base| base.name);
            assert_eq!(found.as_deref(), Some(own.0.as_str()));
        }
    }

    /// A clone states no LSN, so it would be the base of every increment that states none, and `delete` would keep it.
    #[test]
    fn an_increment_whose_start_is_unknown_is_not_based_on_a_clone() {
        let mut increment = backup("b", '2', (10, 20)).1;
        (increment.source.from_lsn, increment.base) = (None, None);
        let mut full = backup("a", '1', (0, 10)).1;
        full.source.to_lsn = None;
        let is_based_on =
            |full: &Manifest| Lineage::of("b", &increment).is_based_on(&Lineage::of("a", full));
        assert!(increment.is_incremental() && is_based_on(&full));
        full.mysql_clone = Some(CloneFacts::default());
        assert!(!is_based_on(&full));
    }
}
