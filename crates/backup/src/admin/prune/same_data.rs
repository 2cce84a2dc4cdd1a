//! Backups of the same data: the last one of a chain, and the full ones that the chain was consolidated into.

use std::collections::BTreeMap;

use crate::admin::prune::candidate::Candidate;

/// The backups for which another one of the same data counts, by position, and that one.
///
/// A consolidated backup counts once a trial restore has proven it; until then the chain does, if it can be restored.
/// One that states another server, or another end, than the backup that it names is a backup like any other; so is a
/// copy.
pub(super) fn counted_for(all: &[&Candidate]) -> BTreeMap<usize, usize> {
    let mut of_data: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (n, candidate) in all.iter().enumerate() {
        let run = candidate.stands_for.as_ref().unwrap_or(&candidate.run);
        let end = (candidate.finished, candidate.to_lsn);
        of_data.entry((run, &candidate.server, end)).or_default().push(n);
    }
    let mut counted_for = BTreeMap::new();
    let is_merged = |n: usize| all[n].stands_for.is_some();
    for same in of_data.values().filter(|same| same.len() > 1) {
        if !same.iter().any(|&n| is_merged(n)) {
            continue;
        }
        let best = |of: &dyn Fn(&Candidate) -> bool| {
            let fit = || same.iter().copied().filter(|&n| of(all[n]));
            let proven = fit().find(|&n| is_merged(n) && all[n].is_proven_by_trial());
            proven.or_else(|| fit().find(|&n| !is_merged(n))).or_else(|| fit().next())
        };
        let counted = best(&Candidate::is_restorable).or_else(|| best(&Candidate::is_eligible));
        if let Some(counted) = counted {
            counted_for.extend(same.iter().filter(|&&n| n != counted).map(|&n| (n, counted)));
        }
    }
    counted_for
}
