//! `prune`: decides by retention rules which backups to remove, and never removes one too many.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;

use crate::admin::delete::delete_unless_needed_by;
use crate::catalog::chain::same_server;
use crate::catalog::list::unread::is_later;
use crate::catalog::list::{Listing, State};
use crate::catalog::names::BackupName;
use crate::catalog::resolve::{Known, is_ahead};
use crate::catalog::root::Root;
use crate::catalog::verification::Level;
use crate::error::BackupError;

/// Retention rules. Each rule keeps backups independently; days, weeks (from Monday) and months are
/// UTC, and only periods with a backup count. All rules apply to each server separately.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Keep {
    /// Keep this many of the newest backups.
    pub last: usize,
    /// Keep the newest backup of each of this many most recent days.
    pub daily: usize,
    /// Keep the newest backup of each of this many most recent weeks.
    pub weekly: usize,
    /// Keep the newest backup of each of this many most recent months.
    pub monthly: usize,
    /// Keep all backups up to this age.
    pub within: Option<Duration>,
}

impl Keep {
    /// Whether no rule is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A complete backup, with the facts that pruning needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Name of the backup.
    pub name: String,
    /// Run of the backup.
    pub run: String,
    /// The backed-up server.
    pub server: Option<String>,
    /// When its run ended, UTC.
    pub finished: Timestamp,
    /// Name and run of its base.
    pub base: Option<(String, String)>,
    /// Log sequence number from which the backup holds changes; above 0 in an incremental one.
    pub from_lsn: Option<u64>,
    /// Log sequence number up to which the backup holds changes.
    pub to_lsn: Option<u64>,
    /// The highest level it is verified to, at [`Level::Checksum`] or above.
    pub proven: Option<Level>,
    /// Whether it is pinned.
    pub pinned: bool,
    /// Whether a verification found a problem. The backup then counts for no rule, and is left for
    /// a person to decide.
    pub damaged: bool,
    /// Whether a verification record cannot be read. The backup is then treated as a damaged one.
    pub unread_record: bool,
    /// Name of a later backup that may depend on it: its manifest cannot be read.
    pub possible_dependent: Option<String>,
}

impl Candidate {
    /// Converts listings of one ROOT, without those that are not complete backups.
    #[must_use]
    pub fn all(listings: &[Listing]) -> Vec<Self> {
        let mut all: Vec<Self> = listings.iter().filter_map(Self::of).collect();
        for candidate in &mut all {
            let later = |listing: &&Listing| {
                let since = listing.may_depend_since;
                since.is_some_and(|written| is_later(written, candidate.finished))
            };
            candidate.possible_dependent =
                listings.iter().find(later).map(|listing| listing.name.clone());
        }
        all
    }

    /// Converts a listing; `None` if it is not a complete backup.
    fn of(listing: &Listing) -> Option<Self> {
        if listing.state != State::Complete {
            return None;
        }
        Some(Self {
            name: listing.name.clone(),
            run: listing.run.clone()?,
            server: listing.server.clone(),
            finished: listing.finished?,
            base: listing.base.as_ref().map(|base| (base.name.clone(), base.run.clone())),
            from_lsn: listing.from_lsn,
            to_lsn: listing.to_lsn,
            proven: listing
                .verified
                .and_then(|proof| proof.level)
                .filter(|level| *level >= Level::Checksum),
            pinned: listing.pinned.is_some(),
            damaged: listing.verified.is_some_and(|proof| proof.failed.is_some()),
            unread_record: listing.unread_record,
            possible_dependent: None,
        })
    }

    fn is_incremental(&self) -> bool {
        self.base.is_some() || self.from_lsn.is_some_and(|lsn| lsn > 0)
    }

    /// Whether `other` may be its base. The manifest decides; if it names no base, the log
    /// positions do.
    fn is_based_on(&self, other: &Self) -> bool {
        match &self.base {
            Some((name, run)) => *name == other.name && *run == other.run,
            None => {
                self.is_incremental()
                    && same_server(self.server.as_deref(), other.server.as_deref())
                    && self.from_lsn == other.to_lsn
                    && self.name != other.name
            }
        }
    }
}

/// Reason to keep a backup.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Why {
    /// The newest of its server, which no rule removes.
    Newest,
    /// Among the newest.
    Last,
    /// The newest of its day.
    Daily,
    /// The newest of its week.
    Weekly,
    /// The newest of its month.
    Monthly,
    /// Within the maximum age.
    Within,
    /// The newest verified one.
    NewestVerified,
    /// The newest of those verified to the highest level.
    BestVerified,
    /// It is pinned.
    Pinned,
    /// Damaged: a person must decide.
    Damaged,
    /// A verification record cannot be read.
    UnreadRecord,
    /// A later backup, whose manifest cannot be read, may depend on it.
    MayBeBaseOf(String),
    /// Its end time lies in the future: some clock was wrong, and a person must decide.
    ClockAhead,
    /// Base of this backup, which is kept.
    BaseOf(String),
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Newest => "newest",
            Self::Last => "last",
            Self::Daily => "daily",
            Self::Weekly => "weekly",
            Self::Monthly => "monthly",
            Self::Within => "within",
            Self::NewestVerified => "newest verified",
            Self::BestVerified => "verified furthest",
            Self::Pinned => "pinned",
            Self::Damaged => "damaged; never removed by prune",
            Self::ClockAhead => "finished in the future by its clock; never removed by prune",
            Self::UnreadRecord => "its verification record cannot be read",
            Self::BaseOf(name) => return write!(f, "base of {name}"),
            Self::MayBeBaseOf(name) => {
                return write!(f, "may be the base of {name}, whose manifest cannot be read");
            }
        })
    }
}

/// Decision about one backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Name of the backup.
    pub name: String,
    /// Run of the backup.
    pub run: String,
    /// When its run ended, UTC.
    pub finished: Timestamp,
    /// Reasons to keep it; empty if it is to be removed.
    pub kept: Vec<Why>,
}

impl Verdict {
    /// Whether the backup is to be removed.
    #[must_use]
    pub fn goes(&self) -> bool {
        self.kept.is_empty()
    }
}

/// Maps a time to its day, week or month.
type PeriodOf = fn(Timestamp) -> (i16, i8, i8);

/// Decides on every backup, newest first. Backups may be removed in this order: each comes after
/// those that depend on it.
#[must_use]
pub fn plan_prune(all: &[Candidate], keep: &Keep, now: Timestamp) -> Vec<Verdict> {
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by_key(|&n| all.get(n).map(|c| std::cmp::Reverse((c.finished, &c.name))));
    let sorted: Vec<&Candidate> = order.iter().filter_map(|&n| all.get(n)).collect();
    let mut kept: Vec<BTreeSet<Why>> = vec![BTreeSet::new(); sorted.len()];
    let mut servers: BTreeMap<&Option<String>, Vec<usize>> = BTreeMap::new();
    for (n, candidate) in sorted.iter().enumerate() {
        servers.entry(&candidate.server).or_default().push(n);
    }
    let mut note = |n: usize, why: Why| {
        if let Some(kept) = kept.get_mut(n) {
            kept.insert(why);
        }
    };
    for of_server in servers.values() {
        let good: Vec<(usize, &Candidate)> = of_server
            .iter()
            .filter_map(|&n| sorted.get(n).map(|candidate| (n, *candidate)))
            // A backup whose clock was ahead would count as the newest until that time has passed.
            .filter(|(_, candidate)| {
                !candidate.damaged && !candidate.unread_record && !is_ahead(candidate.finished, now)
            })
            .collect();
        good.iter().take(1).for_each(|(n, _)| note(*n, Why::Newest));
        good.iter().take(keep.last).for_each(|(n, _)| note(*n, Why::Last));
        let periods: [(usize, PeriodOf, Why); 3] = [
            (keep.daily, day, Why::Daily),
            (keep.weekly, week, Why::Weekly),
            (keep.monthly, month, Why::Monthly),
        ];
        for (count, period, why) in periods {
            let mut seen = BTreeSet::new();
            for (n, candidate) in &good {
                if seen.len() < count && seen.insert(period(candidate.finished)) {
                    note(*n, why.clone());
                }
            }
        }
        if let Some(within) = keep.within {
            let within = i64::try_from(within.as_secs()).unwrap_or(i64::MAX);
            let since = now.as_second().saturating_sub(within);
            let young = good.iter().filter(|(_, c)| c.finished.as_second() >= since);
            young.for_each(|(n, _)| note(*n, Why::Within));
        }
        let mut proven = good.iter().filter(|(_, candidate)| candidate.proven.is_some());
        if let Some((n, _)) = proven.clone().next() {
            note(*n, Why::NewestVerified);
        }
        // A backup that passed a trial restore must not give way to a newer one that was only read.
        let furthest = proven.clone().map(|(_, candidate)| candidate.proven).max();
        if let Some((n, _)) = proven.find(|(_, candidate)| Some(candidate.proven) == furthest) {
            note(*n, Why::BestVerified);
        }
    }
    for (n, candidate) in sorted.iter().enumerate() {
        if candidate.pinned {
            note(n, Why::Pinned);
        }
        if candidate.damaged {
            note(n, Why::Damaged);
        }
        if candidate.unread_record {
            note(n, Why::UnreadRecord);
        }
        if let Some(later) = &candidate.possible_dependent {
            note(n, Why::MayBeBaseOf(later.clone()));
        }
        if is_ahead(candidate.finished, now) {
            note(n, Why::ClockAhead);
        }
    }
    keep_bases(&sorted, &mut kept);
    let verdict = |(candidate, kept): (&&Candidate, BTreeSet<Why>)| Verdict {
        name: candidate.name.clone(),
        run: candidate.run.clone(),
        finished: candidate.finished,
        kept: kept.into_iter().collect(),
    };
    let mut verdicts: Vec<Verdict> = sorted.iter().zip(kept).map(verdict).collect();
    bases_last(&sorted, &mut verdicts);
    verdicts
}

/// Keeps all direct and indirect bases of the kept backups.
fn keep_bases(sorted: &[&Candidate], kept: &mut [BTreeSet<Why>]) {
    let mut todo: Vec<usize> = (0..kept.len()).filter(|&n| !kept[n].is_empty()).collect();
    while let Some(n) = todo.pop() {
        for (base, candidate) in sorted.iter().enumerate() {
            if base != n && sorted[n].is_based_on(candidate) {
                let first = kept[base].is_empty();
                kept[base].insert(Why::BaseOf(sorted[n].name.clone()));
                if first {
                    todo.push(base);
                }
            }
        }
    }
}

/// Moves each base after its incremental backups. Their times give that order already, unless
/// clocks were wrong.
fn bases_last(sorted: &[&Candidate], verdicts: &mut Vec<Verdict>) {
    let by_name: BTreeMap<&str, &Candidate> =
        sorted.iter().map(|candidate| (candidate.name.as_str(), *candidate)).collect();
    let mut left = std::mem::take(verdicts);
    while !left.is_empty() {
        let free = left.iter().position(|verdict| {
            let Some(base) = by_name.get(verdict.name.as_str()) else { return true };
            left.iter().all(|other| {
                by_name.get(other.name.as_str()).is_none_or(|other| !other.is_based_on(base))
            })
        });
        // Only a hand-edited manifest can create a cycle; then any order will do.
        verdicts.push(left.remove(free.unwrap_or(0)));
    }
}

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

/// Removes the backups to be removed, in order, and returns their names. Each is checked again
/// first: one that was pinned, replaced or removed since, or is needed now, is skipped.
///
/// `done` is called with each name at once, and with the reason if a backup is kept because other
/// objects exist below it. So the caller knows what is gone even if a later removal fails.
///
/// # Errors
/// The error of the first removal that failed; earlier ones remain in effect.
pub async fn prune(
    root: &Root,
    plan: &[Verdict],
    mut done: impl FnMut(&str, Option<&BackupError>),
) -> Result<Vec<String>, BackupError> {
    let mut gone = Vec::new();
    let mut known = Known::default();
    for verdict in plan.iter().filter(|verdict| verdict.goes()) {
        let name = BackupName::new(&verdict.name)?;
        match root.manifest(&name).await {
            Ok(Some(manifest)) if manifest.run == verdict.run => {}
            Ok(_) => continue,
            Err(error) if error.is_of_one_object() => {
                done(&verdict.name, Some(&error));
                continue;
            }
            Err(error) => return Err(error),
        }
        match delete_unless_needed_by(root, &name, &mut known).await {
            Ok(_) => {
                done(&verdict.name, None);
                gone.push(verdict.name.clone());
            }
            // A new incremental backup may depend on this one by now.
            Err(BackupError::Pinned { .. } | BackupError::Needed { .. }) => {}
            Err(
                kept @ (BackupError::Foreign { .. }
                | BackupError::Folder { .. }
                | BackupError::Unclear { .. }
                | BackupError::MayBeNeeded { .. }),
            ) => done(&verdict.name, Some(&kept)),
            Err(error) => return Err(error),
        }
    }
    Ok(gone)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAY: i64 = 86_400;

    fn candidate(name: &str, at: i64) -> Candidate {
        Candidate {
            name: name.to_owned(),
            run: format!("run of {name}"),
            server: None,
            finished: Timestamp::from_second(at).unwrap(),
            base: None,
            from_lsn: Some(0),
            to_lsn: Some(1),
            proven: None,
            pinned: false,
            damaged: false,
            unread_record: false,
            possible_dependent: None,
        }
    }

    fn on(name: &str, at: i64, base: &str) -> Candidate {
        Candidate { base: Some((base.to_owned(), format!("run of {base}"))), ..candidate(name, at) }
    }

    fn now() -> Timestamp {
        Timestamp::from_second(1000 * DAY).unwrap()
    }

    fn kept(all: &[Candidate], keep: Keep) -> Vec<String> {
        let plan = plan_prune(all, &keep, now());
        plan.into_iter().filter(|v| !v.goes()).map(|v| v.name).collect()
    }

    #[test]
    fn each_rule_keeps_on_its_own() {
        // Two a day for 100 days, the later one at noon.
        let all: Vec<Candidate> = (0..200)
            .map(|n| candidate(&format!("{n:03}"), 900 * DAY + i64::from(n) * DAY / 2))
            .collect();
        assert_eq!(kept(&all, Keep { last: 3, ..Keep::default() }), ["199", "198", "197"]);
        assert_eq!(kept(&all, Keep { daily: 3, ..Keep::default() }), ["199", "197", "195"]);
        let weekly = kept(&all, Keep { weekly: 4, ..Keep::default() });
        assert_eq!(weekly.len(), 4);
        // The newest of all, then the last of each earlier Sunday. Day 0 was a Thursday.
        for name in &weekly[1..] {
            let n: i64 = name.parse().unwrap();
            assert_eq!(((900 + n / 2) % 7, n % 2), (3, 1), "{name}");
        }
        assert_eq!(
            kept(&all, Keep { monthly: 9, ..Keep::default() }).len(),
            4,
            "four months have one"
        );
        let week = Some(Duration::from_secs(7 * 86_400));
        assert_eq!(kept(&all, Keep { within: week, ..Keep::default() }).len(), 14);
        // All are old: the newest stays.
        let hour = Some(Duration::from_secs(3600));
        assert_eq!(kept(&all, Keep { within: hour, ..Keep::default() }), ["199"]);
    }

    #[test]
    fn what_must_stay_stays() {
        let keep = Keep { last: 1, ..Keep::default() };
        let mut all: Vec<Candidate> =
            (0..6).map(|n| candidate(&format!("f{n}"), n * DAY)).collect();
        all[1].pinned = true;
        all[2].proven = Some(Level::Pages);
        all[3].proven = Some(Level::Pages);
        all[4].damaged = true;
        assert_eq!(kept(&all, keep), ["f5", "f4", "f3", "f1"]);
        // Damaged ones count for no rule.
        all[5].damaged = true;
        assert_eq!(kept(&all, keep), ["f5", "f4", "f3", "f1"]);
        assert!(plan_prune(&all, &keep, now())[2].kept.contains(&Why::Last));
        // The rules apply to another server separately.
        all[0].server = Some("other".into());
        assert_eq!(kept(&all, keep), ["f5", "f4", "f3", "f1", "f0"]);
    }

    #[test]
    fn the_one_that_is_proven_furthest_stays_beside_newer_ones_that_are_proven_less() {
        let keep = Keep { last: 1, ..Keep::default() };
        let mut all: Vec<Candidate> =
            (0..5).map(|n| candidate(&format!("f{n}"), n * DAY)).collect();
        all[0].proven = Some(Level::Restore);
        all[1].proven = Some(Level::Restore);
        all[2].proven = Some(Level::Decrypt);
        all[3].proven = Some(Level::Checksum);
        assert_eq!(kept(&all, keep), ["f4", "f3", "f1"]);
        let plan = plan_prune(&all, &keep, now());
        assert_eq!(plan[1].kept, [Why::NewestVerified]);
        assert_eq!(plan[3].kept, [Why::BestVerified]);
        // Once the newest is verified to the same level, it is kept instead.
        all[4].proven = Some(Level::Restore);
        assert_eq!(kept(&all, keep), ["f4"]);
    }

    #[test]
    fn one_whose_clock_was_ahead_takes_nobodys_place() {
        let all = [
            candidate("tonight", 1000 * DAY),
            candidate("last-night", 999 * DAY),
            candidate("ahead", 1300 * DAY),
            candidate("a-little", 1000 * DAY + 600),
        ];
        for keep in
            [Keep { last: 2, ..Keep::default() }, Keep { daily: 1, last: 2, ..Keep::default() }]
        {
            assert_eq!(kept(&all, keep), ["ahead", "a-little", "tonight"]);
        }
        let plan = plan_prune(&all, &Keep { last: 2, ..Keep::default() }, now());
        assert_eq!(plan[0].kept, [Why::ClockAhead]);
    }

    #[test]
    fn chains_are_kept_whole() {
        let keep = Keep { last: 1, ..Keep::default() };
        let mut all = vec![
            candidate("full", 0),
            on("i1", DAY, "full"),
            on("i2", 2 * DAY, "i1"),
            candidate("full2", 3 * DAY),
            on("j1", 4 * DAY, "full2"),
        ];
        assert_eq!(kept(&all, keep), ["j1", "full2"]);
        all[2].pinned = true;
        assert_eq!(kept(&all, keep), ["j1", "full2", "i2", "i1", "full"]);
        // Another backup that reused the base's name is not the base.
        all[0].run = "another".into();
        assert_eq!(kept(&all, keep), ["j1", "full2", "i2", "i1"]);
        // If the manifest names no base, the log positions decide.
        let lsn =
            |c: Candidate, from, to| Candidate { from_lsn: Some(from), to_lsn: Some(to), ..c };
        let by_lsn = [
            lsn(candidate("a", 0), 0, 100),
            lsn(candidate("b", DAY), 0, 150),
            lsn(candidate("c", 2 * DAY), 100, 200),
        ];
        assert_eq!(kept(&by_lsn, keep), ["c", "a"]);
    }

    fn candidates() -> impl Strategy<Value = Vec<Candidate>> {
        let one = (0_i64..40, 0_usize..12, any::<[bool; 4]>(), 0_u64..5, 0_u64..5);
        prop::collection::vec(one, 0..12).prop_map(|all| {
            let make = |(n, (at, base, [verified, pinned, damaged, other], from, to)): (
                usize,
                &(i64, usize, [bool; 4], u64, u64),
            )| {
                let name = format!("b{n}");
                let mut made = candidate(&name, 960 * DAY + at * DAY / 3);
                // Some are based on another, mostly an earlier one, maybe a missing one.
                if base % 3 == 0 && n > 0 {
                    made = on(&name, 960 * DAY + at * DAY / 3, &format!("b{}", base % (n + 1)));
                }
                if base % 4 == 1 {
                    (made.from_lsn, made.to_lsn) = (Some(*from), Some(*to));
                }
                Candidate {
                    proven: (*verified && !*damaged).then(|| Level::ALL[2 + n % 4]),
                    pinned: *pinned && n % 3 == 0,
                    damaged: *damaged && n % 4 == 0,
                    server: other.then(|| "other".to_owned()),
                    ..made
                }
            };
            all.iter().enumerate().map(make).collect()
        })
    }

    proptest! {
        #[test]
        fn nothing_that_is_needed_goes(
            all in candidates(), last in 0_usize..4, daily in 0_usize..4, weekly in 0_usize..3, monthly in 0_usize..3,
            days in prop::option::of(0_u64..30),
        ) {
            let within = days.map(|days| Duration::from_secs(days * 86_400));
            let keep = Keep { last, daily, weekly, monthly, within };
            let plan = plan_prune(&all, &keep, now());
            prop_assert_eq!(plan.len(), all.len());
            let goes = |c: &Candidate| plan.iter().any(|v| v.name == c.name && v.goes());
            for c in &all {
                if c.pinned || c.damaged {
                    prop_assert!(!goes(c));
                }
                // The base of a kept backup is kept.
                if !goes(c) {
                    prop_assert!(all.iter().all(|base| base.name == c.name || !c.is_based_on(base) || !goes(base)));
                }
            }
            for server in [None, Some("other".to_owned())] {
                let mut mine: Vec<&Candidate> = all.iter().filter(|c| c.server == server && !c.damaged).collect();
                mine.sort_by_key(|c| std::cmp::Reverse((c.finished, c.name.clone())));
                prop_assert!(mine.first().is_none_or(|newest| !goes(newest)));
                prop_assert!(mine.iter().find(|c| c.proven.is_some()).is_none_or(|newest| !goes(newest)));
                for level in Level::ALL {
                    let reach = |c: &&&Candidate| c.proven >= Some(level);
                    prop_assert!(mine.iter().find(reach).is_none() || mine.iter().filter(reach).any(|c| !goes(c)), "{level}");
                }
                prop_assert!(mine.iter().take(last).all(|c| !goes(c)));
                // As many days as requested have a backup.
                let left: BTreeSet<_> = mine.iter().filter(|c| !goes(c)).map(|c| day(c.finished)).collect();
                let days: BTreeSet<_> = mine.iter().map(|c| day(c.finished)).collect();
                prop_assert!(left.len() >= daily.min(days.len()));
            }
            // A smaller count never keeps more.
            if keep.last > 0 {
                let less = Keep { last: last - 1, ..keep };
                for verdict in plan_prune(&all, &less, now()) {
                    prop_assert!(verdict.goes() || plan.iter().any(|v| v.name == verdict.name && !v.goes()));
                }
            }
            // In the order of removal no backup precedes one that depends on it, except in cycles.
            for (n, verdict) in plan.iter().enumerate() {
                let Some(base) = all.iter().find(|c| c.name == verdict.name) else { continue };
                let later: Vec<&Candidate> = plan[n + 1..].iter().filter_map(|v| all.iter().find(|c| c.name == v.name)).collect();
                let waits = later.iter().any(|c| c.is_based_on(base));
                prop_assert!(!waits || later.iter().all(|x| later.iter().chain([&base]).any(|y| y.is_based_on(x))));
            }
        }

        /// The order of the listing does not matter.
        #[test]
        fn order_of_listing_does_not_matter(all in candidates(), last in 0_usize..4, daily in 0_usize..4) {
            let keep = Keep { last, daily, ..Keep::default() };
            let sort = |mut plan: Vec<Verdict>| { plan.sort_by_key(|v| v.name.clone()); plan };
            let mut turned = all.clone();
            turned.reverse();
            prop_assert_eq!(sort(plan_prune(&all, &keep, now())), sort(plan_prune(&turned, &keep, now())));
        }
    }
}
