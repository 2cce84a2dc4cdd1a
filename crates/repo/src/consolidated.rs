//! A full backup that was made of a chain: which backups it was merged from, and what it has from the last of them.

use crate::manifest::history::History;
use crate::manifest::source_info::SourceInfo;
use crate::manifest::{Manifest, MergedLink, StoredManifest};

/// Why a full backup of an earlier version is not proven by a trial restore: see
/// [`may_lack_imports`](Manifest::may_lack_imports).
pub const UNKNOWN_IMPORTS: &str = "an earlier version made it of a chain without looking for imported tablespaces (ALTER TABLE ... IMPORT TABLESPACE), whose pages it would lack; take a full backup, or run `consolidate --accept-imports --as=...` on its chain if you know that there was none";

/// The same of an increment on such a full backup.
pub const UNKNOWN_IMPORTS_OF_BASE: &str = "the full backup of its chain may lack imported tablespaces (ALTER TABLE ... IMPORT TABLESPACE), because an earlier version made it of a chain without looking for them, and so may this one; take a full backup";

impl StoredManifest {
    /// The entry of this backup in the list of one that it is merged into.
    #[must_use]
    pub fn merged_link(&self) -> MergedLink {
        let Manifest { name, run, .. } = &self.manifest;
        MergedLink { name: name.clone(), run: run.clone(), manifest: self.text_digest() }
    }
}

impl Manifest {
    /// The backup whose data this one has: the last one of the chain that it was merged from.
    #[must_use]
    pub fn stands_for(&self) -> Option<&MergedLink> {
        self.consolidated_from.last()
    }

    /// Returns whether this backup was made of a chain of which it is unknown whether a tablespace was imported: earlier versions
    /// did not look. Pages of such a tablespace are in no increment, and no trial restore shows that they are missing.
    #[must_use]
    pub fn may_lack_imports(&self) -> bool {
        let is_known = |history: &History| history.highest.is_some() || history.accepted_imports;
        !self.consolidated_from.is_empty() && !self.history.as_ref().is_some_and(is_known)
    }

    /// Makes this full backup one of the data of `last`, which ends the chain `from`: it gets the times, the server and
    /// the history of `last`. `accepted_imports`: the user knows that no tablespace was imported, and the backups do not.
    ///
    /// # Errors
    /// The first fact that its stream states otherwise than that of `last`.
    pub fn take_over(
        &mut self,
        last: &Self,
        from: Vec<MergedLink>,
        accepted_imports: bool,
    ) -> Result<(), String> {
        // Earlier versions did not write where the redo log begins.
        let start = last.source.redo_start_lsn.or(self.source.redo_start_lsn);
        let stated = SourceInfo { redo_start_lsn: start, ..last.source.clone() };
        let expected = as_full(&stated);
        if let Some(what) = first_difference(&expected, &self.source) {
            return Err(format!(
                "its manifest and the merged files state different things: {what}"
            ));
        }
        (self.started, self.finished) = (last.started, last.finished);
        self.undated.clone_from(&last.undated);
        self.server.clone_from(&last.server);
        self.history = last.history.as_ref().map(of_full);
        if accepted_imports {
            self.history.get_or_insert_default().accepted_imports = true;
        }
        self.consolidated_from = from;
        Ok(())
    }

    /// Returns whether this full backup states of its data what the last backup of the chain states that it was merged from.
    #[must_use]
    pub fn has_the_facts_of(&self, last: &Self) -> bool {
        self.source == as_full(&last.source)
            && (self.started, self.finished) == (last.started, last.finished)
            && self.server == last.server
            && evidence(self) == evidence(last)
    }
}

/// The facts of an increment, as a full backup of the same data states them.
fn as_full(source: &SourceInfo) -> SourceInfo {
    let kind = Some("full-backuped".to_owned());
    SourceInfo { backup_type: kind, from_lsn: Some(0), ..source.clone() }
}

/// The first field that differs, with both values.
fn first_difference(stated: &SourceInfo, found: &SourceInfo) -> Option<String> {
    if stated == found {
        return None;
    }
    let fields = |facts| serde_json::to_value(facts).unwrap_or_default();
    let (stated, found) = (fields(stated), fields(found));
    let names = [&stated, &found].into_iter().filter_map(|facts| facts.as_object());
    let differs = |name: &&String| stated.get(*name) != found.get(*name);
    let name = names.flat_map(|facts| facts.keys()).find(differs)?;
    let shown = |facts: &serde_json::Value| {
        facts.get(name).map_or("nothing".to_owned(), ToString::to_string)
    };
    Some(format!("{name} is {} and {}", shown(&stated), shown(&found)))
}

/// The evidence of a history, without the facts about a base and without accepted doubts.
fn evidence(of: &Manifest) -> History {
    of.history.as_ref().map(of_full).unwrap_or_default()
}

/// The evidence without what is about a base.
fn of_full(history: &History) -> History {
    History { binlog_at_base: None, accepted: false, accepted_imports: false, ..history.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::history::HighestNumbers;
    use crate::manifest::{Base, sample};

    fn increment() -> Manifest {
        let mut last = sample();
        last.base = Some(Base { name: "full".into(), run: "f".repeat(32) });
        last.server = Some("db1".into());
        last.source = SourceInfo {
            backup_type: Some("incremental".into()),
            from_lsn: Some(7),
            to_lsn: Some(9),
            redo_start_lsn: Some(8),
            ..SourceInfo::default()
        };
        last.history = Some(History { accepted: true, ..History::default() });
        last
    }

    fn merged(last: &Manifest) -> Manifest {
        let mut full = sample();
        (full.started, full.finished) = (jiff::Timestamp::MAX, jiff::Timestamp::MAX);
        full.source = as_full(&last.source);
        full
    }

    #[test]
    fn a_merged_backup_has_the_facts_of_the_last_one() {
        let last = increment();
        let stored = Manifest::decode(&last.encode(None).unwrap()).unwrap();
        let (mut full, links) = (merged(&last), vec![stored.merged_link()]);
        assert!(!full.has_the_facts_of(&last));
        full.take_over(&last, links, false).unwrap();
        assert!(full.may_lack_imports());
        assert!(full.has_the_facts_of(&last) && !full.is_incremental());
        assert_eq!(full.stands_for().unwrap().run, last.run);
        assert_eq!((full.finished, full.history), (last.finished, Some(History::default())));
        let digest = stored.merged_link().manifest;
        assert_eq!(last.text_digest().unwrap(), digest);
        let text = String::from_utf8(last.encode(None).unwrap()).unwrap();
        assert!(text.ends_with(&format!("\nsha256:{digest}\n")), "{text}");
    }

    #[test]
    fn imports_are_ruled_out_by_numbers_or_by_word() {
        let mut last = increment();
        let link = Manifest::decode(&last.encode(None).unwrap()).unwrap().merged_link();
        let merge = |last: &Manifest, accepted| {
            let mut full = merged(last);
            full.take_over(last, vec![link.clone()], accepted).unwrap();
            assert!(full.has_the_facts_of(last));
            full.may_lack_imports()
        };
        assert!(merge(&last, false) && !merge(&last, true));
        last.history = None;
        assert!(merge(&last, false) && !merge(&last, true));
        let highest = Some(HighestNumbers { table: 1, space: 1 });
        last.history = Some(History { highest, ..History::default() });
        assert!(!merge(&last, false) && !last.may_lack_imports());
    }

    #[test]
    fn a_stream_of_other_data_is_refused() {
        let last = increment();
        for change in [
            (|source: &mut SourceInfo| source.to_lsn = Some(10)) as fn(&mut SourceInfo),
            |source| source.redo_start_lsn = Some(9),
            |source| source.backup_type = Some("log-applied".into()),
            |source| source.galera = Some("other".into()),
        ] {
            let mut full = merged(&last);
            change(&mut full.source);
            let what = full.take_over(&last, Vec::new(), false).unwrap_err();
            assert!(what.contains(" is ") && what.contains(" and "), "{what}");
        }
        // An earlier version did not note where the redo log begins.
        let mut earlier = increment();
        earlier.source.redo_start_lsn = None;
        let mut full = merged(&last);
        full.take_over(&earlier, Vec::new(), false).unwrap();
        assert!(!full.has_the_facts_of(&earlier));
    }
}
