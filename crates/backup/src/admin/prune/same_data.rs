//! Backups of the same data: the last one of a chain, and the full ones that the chain was consolidated into.

use std::collections::BTreeMap;

use crate::admin::prune::candidate::Candidate;

/// The backups for which another one of the same data counts, by position, and that one.
///
/// A consolidated backup counts once a trial restore has proven it; until then the chain does, if it can be restored.
pub(super) fn counted_for(all: &[&Candidate]) -> BTreeMap<usize, usize> {
    let mut of_data: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (n, candidate) in all.iter().enumerate() {
        of_data.entry(candidate.stands_for.as_ref().unwrap_or(&candidate.run)).or_default().push(n);
    }
    let mut counted_for = BTreeMap::new();
    for same in of_data.values().filter(|same| same.len() > 1) {
        let counts = || same.iter().copied().filter(|&n| all[n].counts());
        let is_merged = |n: usize| all[n].stands_for.is_some();
        let proven = counts().find(|&n| is_merged(n) && all[n].is_proven_by_trial());
        let counted = proven.or_else(|| counts().find(|&n| !is_merged(n)));
        if let Some(counted) = counted.or_else(|| counts().next()) {
            counted_for.extend(same.iter().filter(|&&n| n != counted).map(|&n| (n, counted)));
        }
    }
    counted_for
}
