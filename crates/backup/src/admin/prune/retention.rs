//! The retention rules and their decisions.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use xb_repo::resolve::is_ahead;

use crate::admin::prune::candidate::Candidate;
use crate::admin::prune::same_data::counted_for;
use crate::admin::prune::verdict::{KeepReason, Verdict};

/// Retention rules. Each rule keeps backups independently; days, weeks (from Monday) and months are
/// UTC, and only periods with a backup count. All rules apply to each server separately, and to its partial backups apart
/// from the whole ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct Keep {
    /// Keep the newest N backups
    #[cfg_attr(feature = "clap", arg(id = "keep-last", long, value_name = "N"))]
    pub last: Option<usize>,
    /// Keep the newest backup of each of the last N days
    #[cfg_attr(feature = "clap", arg(id = "keep-daily", long, value_name = "N"))]
    pub daily: Option<usize>,
    /// Keep the newest backup of each of the last N weeks
    #[cfg_attr(feature = "clap", arg(id = "keep-weekly", long, value_name = "N"))]
    pub weekly: Option<usize>,
    /// Keep the newest backup of each of the last N months
    #[cfg_attr(feature = "clap", arg(id = "keep-monthly", long, value_name = "N"))]
    pub monthly: Option<usize>,
    /// Keep all backups younger than AGE, such as 12h, 30d or 8w
    #[cfg_attr(feature = "clap", arg(id = "keep-within", long, value_name = "AGE", value_parser = xb_option_files::parse_age))]
    pub within: Option<Duration>,
    /// Keep archived binary logs for AGE at most
    #[cfg_attr(feature = "clap", arg(id = "keep-binlog-within", long, hide_short_help = true, value_name = "AGE", value_parser = xb_option_files::parse_age))]
    pub binlog_within: Option<Duration>,
}

impl Keep {
    /// Returns whether no rule for backups is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self { binlog_within: self.binlog_within, ..Self::default() }
    }

    /// Returns whether the rules keep nothing: none is set, or each number is 0.
    #[must_use]
    pub fn keeps_nothing(&self) -> bool {
        let numbers = [self.last, self.daily, self.weekly, self.monthly];
        self.within.is_none() && numbers.iter().all(|number| number.unwrap_or(0) == 0)
    }
}

/// Decides on every backup, newest first. Backups may be removed in this order: each comes after
/// those that depend on it.
#[must_use]
pub fn plan_prune(all: &[Candidate], keep: &Keep, now: Timestamp) -> Vec<Verdict> {
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by_key(|&n| all.get(n).map(|c| std::cmp::Reverse((c.finished, &c.name))));
    let sorted: Vec<&Candidate> = order.iter().filter_map(|&n| all.get(n)).collect();
    let mut kept: Vec<BTreeSet<KeepReason>> = vec![BTreeSet::new(); sorted.len()];
    let mut servers: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (n, candidate) in sorted.iter().enumerate() {
        // No backup goes in favour of one that lacks some of its tables, or that may be older.
        let Candidate { server, raw, is_partial, is_undated, .. } = candidate;
        let kind = (server, raw, is_partial, is_undated);
        servers.entry(kind).or_default().push(n);
    }
    let counted_for = counted_for(&sorted);
    let bases = bases(&sorted);
    let small = small_links(&sorted, &bases);
    let mut note = |n: usize, why: KeepReason| {
        if let Some(kept) = kept.get_mut(n) {
            kept.insert(why);
        }
    };
    for of_server in servers.values() {
        let good: Vec<(usize, &Candidate)> = of_server
            .iter()
            .filter_map(|&n| sorted.get(n).map(|candidate| (n, *candidate)))
            // Two backups of the same data are one.
            .filter(|(n, _)| !counted_for.contains_key(n))
            // A backup whose clock was ahead would count as the newest until that time has passed.
            .filter(|(_, candidate)| candidate.is_eligible() && !is_ahead(candidate.finished, now))
            // Nor does a good one go in favour of one that may have lost most of its data.
            .filter(|(n, _)| !small.contains_key(n))
            .collect();
        let doubtful = of_server.iter().filter_map(|&n| sorted.get(n)).find(|c| c.is_doubtful());
        if let Some(doubtful) = doubtful {
            of_server.iter().for_each(|&n| note(n, KeepReason::Doubt(doubtful.name.clone())));
        }
        keep_by_rules(&good, keep, now, &mut note);
        keep_proven(&good, &mut note);
    }
    for (n, candidate) in sorted.iter().enumerate() {
        reasons_of_its_own(candidate, now).for_each(|why| note(n, why));
        if let Some(&link) = small.get(&n) {
            note(n, KeepReason::Doubt(sorted[link].name.clone()));
        }
    }
    // An increment of it may be running, which began before its consolidated backup was proven.
    for &copy in counted_for.keys().filter(|&&n| sorted[n].stands_for.is_none()) {
        let is_of_kind = |other: &Candidate| {
            other.server == sorted[copy].server && other.is_partial == sorted[copy].is_partial
        };
        let of_server = (0..sorted.len()).filter(|&other| is_of_kind(sorted[other]));
        let mut later = of_server.filter(|&other| sorted[other].finished > sorted[copy].finished);
        let counts = |n: usize| sorted[n].is_eligible() && !small.contains_key(&n);
        if sorted[copy].is_eligible() && !later.any(counts) {
            kept[copy].insert(KeepReason::MayBeContinued);
        }
    }
    keep_bases(&sorted, &bases, &mut kept);
    for (&copy, &counted) in &counted_for {
        // A proven one has no need of it; an unproven one may be proven tomorrow.
        let is_merged = |n: usize| sorted[n].stands_for.is_some();
        if is_merged(copy) && !is_merged(counted) && !kept[counted].is_empty() {
            kept[copy].insert(KeepReason::UnprovenCopyOf(sorted[counted].name.clone()));
        }
    }
    let verdict = |n: usize| Verdict {
        name: sorted[n].name.clone(),
        run: sorted[n].run.clone(),
        finished: sorted[n].finished,
        kept: std::mem::take(&mut kept[n]).into_iter().collect(),
    };
    bases_last(&bases).into_iter().map(verdict).collect()
}

/// Applies the retention rules to the sound backups of one server, newest first.
fn keep_by_rules(
    good: &[(usize, &Candidate)],
    keep: &Keep,
    now: Timestamp,
    note: &mut impl FnMut(usize, KeepReason),
) {
    // An increment whose base is elsewhere does not replace what can be restored here.
    let whole = || good.iter().filter(|(_, candidate)| candidate.is_restorable());
    whole().take(1).for_each(|(n, _)| note(*n, KeepReason::Newest));
    // A host whose clock is behind makes backups that look old.
    let written = whole().rev().max_by_key(|(_, candidate)| candidate.written);
    written.into_iter().for_each(|(n, _)| note(*n, KeepReason::Newest));
    good.iter().take(keep.last.unwrap_or(0)).for_each(|(n, _)| note(*n, KeepReason::Last));
    let periods: [(Option<usize>, PeriodOf, KeepReason); 3] = [
        (keep.daily, day, KeepReason::Daily),
        (keep.weekly, week, KeepReason::Weekly),
        (keep.monthly, month, KeepReason::Monthly),
    ];
    for (count, period, why) in periods {
        let mut seen = BTreeSet::new();
        for (n, candidate) in good {
            if seen.len() < count.unwrap_or(0) && seen.insert(period(candidate.finished)) {
                note(*n, why.clone());
            }
        }
    }
    if let Some(within) = keep.within {
        let within = i64::try_from(within.as_secs()).unwrap_or(i64::MAX);
        // A clock that is ahead makes every backup look old. The newest one shows no time that is still to come.
        let newest = good.iter().map(|(_, candidate)| candidate.finished).max();
        let since = newest.map_or(now, |newest| now.min(newest)).as_second().saturating_sub(within);
        let young = good.iter().filter(|(_, c)| c.finished.as_second() >= since);
        young.for_each(|(n, _)| note(*n, KeepReason::Within));
    }
}

/// Keeps the newest verified backup of one server, and the newest of those verified furthest.
fn keep_proven(good: &[(usize, &Candidate)], note: &mut impl FnMut(usize, KeepReason)) {
    let mut proven = good
        .iter()
        .filter(|(_, candidate)| candidate.proven.is_some() && candidate.is_restorable());
    if let Some((n, _)) = proven.clone().next() {
        note(*n, KeepReason::NewestVerified);
    }
    // A backup that passed a trial restore must not give way to a newer one that was only read.
    let furthest = proven.clone().map(|(_, candidate)| candidate.proven).max();
    if let Some((n, _)) = proven.find(|(_, candidate)| Some(candidate.proven) == furthest) {
        note(*n, KeepReason::BestVerified);
    }
}

/// Returns the reasons to keep a backup that no rule and no other kept backup gives.
fn reasons_of_its_own(candidate: &Candidate, now: Timestamp) -> impl Iterator<Item = KeepReason> {
    let reasons = [
        candidate.just_made.then_some(KeepReason::JustMade),
        candidate.pinned.then_some(KeepReason::Pinned),
        candidate.damaged.then_some(KeepReason::Damaged),
        candidate.broken.clone().filter(|_| !candidate.is_eligible()).map(KeepReason::Broken),
        candidate.unread_record.then_some(KeepReason::UnreadRecord),
        candidate.possible_dependent.clone().map(KeepReason::MayBeBaseOf),
        is_ahead(candidate.finished, now).then_some(KeepReason::ClockAhead),
    ];
    reasons.into_iter().flatten()
}

/// Returns the bases of each backup, as positions in `sorted`.
fn bases(sorted: &[&Candidate]) -> Vec<Vec<usize>> {
    let mut by_name: HashMap<&str, Vec<usize>> = HashMap::new();
    let mut by_lsn: HashMap<Option<u64>, Vec<usize>> = HashMap::new();
    for (n, candidate) in sorted.iter().enumerate() {
        by_name.entry(&candidate.name).or_default().push(n);
        by_lsn.entry(candidate.to_lsn).or_default().push(n);
    }
    let of = |(n, candidate): (usize, &&Candidate)| {
        let found = match &candidate.base {
            Some(base) => by_name.get(base.name.as_str()),
            None if candidate.is_incremental => by_lsn.get(&candidate.from_lsn),
            None => None,
        };
        let is_base =
            |&base: &usize| base != n && candidate.lineage().is_based_on(&sorted[base].lineage());
        found.into_iter().flatten().copied().filter(is_base).collect()
    };
    sorted.iter().enumerate().map(of).collect()
}

/// The backups with a link in their chain that is much smaller than usual and not accepted, by position, and that link.
fn small_links(sorted: &[&Candidate], bases: &[Vec<usize>]) -> BTreeMap<usize, usize> {
    let mut small: BTreeMap<usize, usize> =
        (0..sorted.len()).filter(|&n| sorted[n].shrunk.is_some()).map(|n| (n, n)).collect();
    loop {
        let link =
            |n: usize| bases[n].iter().find_map(|base| small.get(base)).map(|&link| (n, link));
        let others = (0..sorted.len()).filter(|n| !small.contains_key(n));
        let found: Vec<(usize, usize)> = others.filter_map(link).collect();
        if found.is_empty() {
            return small;
        }
        small.extend(found);
    }
}

/// Keeps all direct and indirect bases of the kept backups.
fn keep_bases(sorted: &[&Candidate], bases: &[Vec<usize>], kept: &mut [BTreeSet<KeepReason>]) {
    let mut todo: Vec<usize> = (0..kept.len()).filter(|&n| !kept[n].is_empty()).collect();
    while let Some(n) = todo.pop() {
        for &base in &bases[n] {
            let first = kept[base].is_empty();
            kept[base].insert(KeepReason::BaseOf(sorted[n].name.clone()));
            if first {
                todo.push(base);
            }
        }
    }
}

/// Returns the positions with each base after its incremental backups, and else in order. Their
/// times give that order already, unless clocks were wrong.
fn bases_last(bases: &[Vec<usize>]) -> Vec<usize> {
    let mut dependents = vec![0_usize; bases.len()];
    bases.iter().flatten().for_each(|&base| dependents[base] += 1);
    let mut left: BTreeSet<usize> = (0..bases.len()).collect();
    let mut free: BTreeSet<usize> = left.iter().copied().filter(|&n| dependents[n] == 0).collect();
    let mut order = Vec::with_capacity(bases.len());
    // Only a hand-edited manifest can create a cycle; then any order will do.
    while let Some(n) = free.pop_first().or_else(|| left.first().copied()) {
        left.remove(&n);
        order.push(n);
        for &base in &bases[n] {
            dependents[base] -= 1;
            if dependents[base] == 0 && left.contains(&base) {
                free.insert(base);
            }
        }
    }
    order
}

/// Maps a time to its day, week or month.
type PeriodOf = fn(Timestamp) -> (i16, i8, i8);

fn date(time: Timestamp) -> jiff::civil::Date {
    time.to_zoned(TimeZone::UTC).date()
}

fn day(time: Timestamp) -> (i16, i8, i8) {
    let date = date(time);
    (date.year(), date.month(), date.day())
}

fn week(time: Timestamp) -> (i16, i8, i8) {
    let week = date(time).iso_week_date();
    (week.year(), week.week(), 0)
}

fn month(time: Timestamp) -> (i16, i8, i8) {
    let date = date(time);
    (date.year(), date.month(), 0)
}

#[cfg(test)]
mod tests;
