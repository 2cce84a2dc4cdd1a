//! Proof: the conclusion about a backup from the results of its verifications.
//!
//! A fault counts until a verification of at least its level passes that began after it was recorded. The clocks of
//! hosts cannot tell that: each result has a number, and each verification notes the highest one when it begins.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::verification::{Level, PageReport, RestoreTest, VerifyReport};

/// The result of one verification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifyResult {
    /// The level reached if `ok`, otherwise the requested level.
    pub level: Level,
    /// Whether everything checked was in order.
    pub ok: bool,
    /// When the verification ended, UTC.
    pub finished: Timestamp,
    /// Its number among the results and tries of the backup, from 1; `None` until it is recorded, and if an older
    /// program has recorded it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
    /// The highest number when the verification began, 0 if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// Program and version that verified.
    pub tool: String,
    /// Number of problems found.
    #[serde(default)]
    pub problems: u64,
    /// Bytes of the files once they are restored, if files are compressed one by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unpacked_bytes: Option<u64>,
    /// Result for the pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages: Option<PageReport>,
    /// Result of the trial restore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<RestoreTest>,
}

impl VerifyResult {
    /// Summarises a report.
    #[must_use]
    pub fn of(report: &VerifyReport, tool: &str) -> Self {
        // A failed check of the user's own does not count against the backup: the levels before it
        // hold.
        let ok = report.is_undamaged();
        Self {
            level: report.reached.filter(|_| ok).unwrap_or(report.level),
            ok,
            finished: report.finished,
            number: None,
            after: report.after,
            tool: tool.to_owned(),
            problems: report.problems.len() as u64 + report.more_problems,
            unpacked_bytes: report.unpacked_bytes,
            pages: report.pages.clone(),
            restore: report.restore.clone(),
        }
    }

    /// The proof that this trial, which passed, gives for a base of its backup. It has read all of the base, but no server opens
    /// what a later backup of the chain has replaced or dropped: of that, only `pages` tells, a check by a verification
    /// of the base itself that still holds. `after` is the highest number of the base's results before the trial.
    #[must_use]
    pub fn for_base(self, pages: Option<PageReport>, after: u64) -> Self {
        Self {
            level: if pages.is_some() { Level::Restore } else { Level::Decrypt },
            after: Some(after),
            unpacked_bytes: None,
            restore: self.restore.filter(|_| pages.is_some()),
            // Its record keeps only this result of level restore, and the next trial asks for its pages.
            pages,
            ..self
        }
    }

    /// Returns whether the verification began after the result or try with this number and end was recorded.
    fn is_after(&self, number: Option<u64>, finished: Timestamp) -> bool {
        match (self.after, number) {
            (Some(after), Some(number)) => after >= number,
            (None, Some(_)) => false,
            // Of an older program only the time is known. A clock that is ahead must not hide a fault.
            (_, None) => self.finished >= finished && self.finished <= Timestamp::now(),
        }
    }

    /// The level that it proves if it passed. Older programs recorded trials of an increment for its bases, too, without
    /// the check of their pages: of these, such a trial has only read everything.
    pub(crate) fn proves(&self) -> Level {
        match self.level {
            Level::Restore if self.pages.is_none() => Level::Decrypt,
            level => level,
        }
    }

    /// Returns whether this result shows that what `fault` found is not there, or is no longer there.
    fn refutes(&self, fault: &Self) -> bool {
        self.ok && self.proves() >= fault.level && self.is_after(fault.number, fault.finished)
    }

    /// Returns whether a record needs this result no more once it has `newer`.
    pub(crate) fn is_replaced_by(&self, newer: &Self) -> bool {
        // A fault that was refuted still tells which results held before it.
        self.level == newer.level && (self.ok || !newer.ok)
    }
}

/// A verification that ended without a result: the backup may be damaged, or its host may lack
/// something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedTry {
    /// The level that was not reached.
    pub level: Level,
    /// When the verification ended, UTC.
    pub finished: Timestamp,
    /// As [`VerifyResult::number`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
    /// Program and version that verified.
    pub tool: String,
    /// Why it ended, at most [`MAX_WHY`] characters.
    pub why: String,
    /// The host could not begin it, so it says nothing about the backup.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
}

/// Maximum length of [`FailedTry::why`], in characters.
pub const MAX_WHY: usize = 1000;

impl FailedTry {
    /// Creates the record of a try that ended now.
    #[must_use]
    pub fn now(level: Level, tool: &str, why: &str) -> Self {
        let why = why.chars().take(MAX_WHY).collect();
        let (finished, tool) = (Timestamp::now(), tool.to_owned());
        Self { level, finished, number: None, tool, why, refused: false }
    }

    /// Creates the record of a try that the host could not begin.
    #[must_use]
    pub fn refused(level: Level, tool: &str, why: &str) -> Self {
        Self { refused: true, ..Self::now(level, tool, why) }
    }

    /// Returns whether a later result has answered what this try left open.
    fn is_answered_by(&self, result: &VerifyResult) -> bool {
        result.ok && result.proves() >= self.level && result.is_after(self.number, self.finished)
    }
}

/// All that the records of a backup say about its verification.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerificationState {
    /// The last result and the last fault of each level.
    pub results: Vec<VerifyResult>,
    /// The last try that ended without a result, if no later result answers it.
    pub failed_try: Option<FailedTry>,
    /// How its size was judged, if that was recorded.
    pub size: Option<SizeNote>,
}

/// How the size of a backup was judged when the backups before it were there to compare it with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeNote {
    /// When it was judged, UTC.
    pub judged: Timestamp,
    /// End of the last backup of the usual size before it, UTC: what was accepted before that says nothing about this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Timestamp>,
    /// In what it was much smaller than usual; `None` if in nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shrunk: Option<String>,
}

impl VerificationState {
    /// Adds what another record says.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.results.extend(other.results);
        let tries = self.failed_try.into_iter().chain(other.failed_try);
        let open = |failed: &FailedTry| !self.results.iter().any(|r| failed.is_answered_by(r));
        // One that was not begun does not answer one that failed.
        self.failed_try = tries
            .filter(open)
            .max_by_key(|failed| (!failed.refused, failed.number, failed.finished));
        self.size = self.size.into_iter().chain(other.size).max_by_key(|note| note.judged);
        self
    }

    /// The highest number of a result or try, 0 if none has one.
    #[must_use]
    pub fn last_number(&self) -> u64 {
        let results = self.results.iter().filter_map(|result| result.number);
        let failed_try = self.failed_try.as_ref().and_then(|failed| failed.number);
        results.chain(failed_try).max().unwrap_or_default()
    }
}

/// Level to which a backup is verified, from all results.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Proof {
    /// The highest level that held, if no failure was found since.
    pub level: Option<Level>,
    /// When that level was verified, UTC.
    pub at: Option<Timestamp>,
    /// The level that failed.
    pub failed: Option<Level>,
    /// When the failure was found, UTC.
    pub failed_at: Option<Timestamp>,
    /// Time of the last transaction of the archived log that a trial has replayed onto it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proven_until: Option<Timestamp>,
}

impl Proof {
    /// The rest of it, for a backup of which a trial restore proves nothing.
    #[must_use]
    pub(crate) fn without_trial(self) -> Self {
        let level = self.level.map(|level| level.min(Level::Pages));
        Self { level, proven_until: None, ..self }
    }

    /// Combines results. Of several faults the one of the highest level counts, until a verification of at least that
    /// level that began later passes. What held before a fault was found counts no more.
    #[must_use]
    pub fn of(results: &[VerifyResult]) -> Self {
        if let Some(fault) = open_faults(results).max_by_key(|fault| (fault.level, fault.finished))
        {
            let (failed, failed_at) = (Some(fault.level), Some(fault.finished));
            return Self { failed, failed_at, ..Self::default() };
        }
        let holding = holding(results);
        let Some(best) = holding.iter().max_by_key(|result| (result.proves(), result.finished))
        else {
            return Self::default();
        };
        // A trial that a check of the user's own has failed proves only the levels below.
        let tested = holding.iter().filter(|result| result.proves() == Level::Restore);
        let replayed =
            tested.filter_map(|result| result.restore.as_ref()?.proven_until(result.finished));
        Self {
            level: Some(best.proves()),
            at: Some(best.finished),
            proven_until: replayed.max(),
            ..Self::default()
        }
    }

    /// Returns whether the backup is verified to at least `level`.
    #[must_use]
    pub fn reaches(&self, level: Level) -> bool {
        self.level >= Some(level)
    }
}

/// The faults that count: no later verification has refuted them.
fn open_faults(results: &[VerifyResult]) -> impl Iterator<Item = &VerifyResult> {
    let faults = results.iter().filter(|result| !result.ok);
    faults.filter(|fault| !results.iter().any(|result| result.refutes(fault)))
}

/// Returns whether a fault counts, and only trial restores have found one. A trial begins after all levels below it have
/// passed, so the objects have the bytes that were stored.
#[must_use]
pub fn only_trials_failed(results: &[VerifyResult]) -> bool {
    let mut open = open_faults(results).peekable();
    open.peek().is_some() && open.all(|fault| fault.restore.is_some())
}

/// The results that passed and began after every fault was recorded.
fn holding(results: &[VerifyResult]) -> Vec<&VerifyResult> {
    let faults = || results.iter().filter(|result| !result.ok);
    let holds = |result: &&VerifyResult| {
        result.ok && faults().all(|fault| result.is_after(fault.number, fault.finished))
    };
    results.iter().filter(holds).collect()
}

/// The last check of the backup's pages, if it passed and still holds; `None` if a fault is known.
#[must_use]
pub fn intact_pages(results: &[VerifyResult]) -> Option<&PageReport> {
    let held = holding(results).into_iter().filter(|result| result.proves() >= Level::Pages);
    let last = held.max_by_key(|result| result.finished)?;
    last.pages.as_ref().filter(|_| Proof::of(results).failed.is_none())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::verification::Replayed;

    fn result(level: Level, ok: bool, at: i64) -> VerifyResult {
        VerifyResult {
            level,
            ok,
            finished: Timestamp::from_second(at).unwrap(),
            number: None,
            after: None,
            tool: "test".into(),
            problems: u64::from(!ok),
            unpacked_bytes: None,
            pages: (level >= Level::Pages).then(PageReport::default),
            restore: None,
        }
    }

    /// The record of an older program for a base after a trial of its increment.
    #[test]
    fn a_trial_without_a_check_of_the_pages_proves_only_that_all_was_read() {
        use Level::{Decrypt, Pages, Restore};
        let of_base = |at| VerifyResult { pages: None, ..result(Restore, true, at) };
        let of = |results: &[VerifyResult]| {
            let Proof { level, failed, .. } = Proof::of(results);
            (level, failed, intact_pages(results).is_some())
        };
        assert_eq!(of(&[of_base(9)]), (Some(Decrypt), None, false));
        assert_eq!(of(&[result(Pages, true, 5), of_base(9)]), (Some(Pages), None, true));
        assert_eq!(of(&[result(Restore, true, 5)]), (Some(Restore), None, true));
        assert_eq!(of(&[result(Pages, false, 5), of_base(9)]), (None, Some(Pages), false));
        let failed = FailedTry { finished: Timestamp::MIN, ..FailedTry::now(Restore, "t", "") };
        assert!(!failed.is_answered_by(&of_base(9)));
        assert!(failed.is_answered_by(&result(Restore, true, 9)));

        // A trial of today proves of a base what its own verification has checked, again and again.
        let next = |results: &[VerifyResult]| {
            result(Restore, true, 20).for_base(intact_pages(results).cloned(), 0)
        };
        assert_eq!(next(&[of_base(9)]).level, Decrypt);
        let first = next(&[result(Pages, true, 5)]);
        assert_eq!((first.level, next(std::slice::from_ref(&first)).level), (Restore, Restore));
    }

    #[test]
    fn the_highest_level_counts_until_something_is_found_wrong() {
        let of = |results: &[VerifyResult]| {
            let proof = Proof::of(results);
            assert!(proof.level.is_none() || proof.failed.is_none());
            (proof.level, proof.failed)
        };
        use Level::{Checksum, Pages, Restore};
        assert_eq!(of(&[]), (None, None));
        let (pages, sums) = (result(Pages, true, 5), result(Checksum, true, 9));
        assert_eq!(of(&[sums.clone(), pages.clone()]), (Some(Pages), None));
        let bad = result(Pages, false, 7);
        assert_eq!(of(&[sums.clone(), bad.clone()]), (None, Some(Pages)), "sums say nothing of it");
        assert_eq!(of(&[bad.clone(), result(Restore, true, 8)]), (Some(Restore), None));
        assert_eq!(of(&[result(Restore, true, 1), bad]), (None, Some(Pages)));
    }

    #[test]
    fn a_fault_of_a_lower_level_hides_none_of_a_higher_one() {
        use Level::{Checksum, Decrypt, List, Pages};
        let of = |results: &[VerifyResult]| (Proof::of(results).level, Proof::of(results).failed);
        let (damaged, away) = (result(Pages, false, 1), result(List, false, 2));
        let sums = result(Checksum, true, 3);
        assert_eq!(of(&[damaged.clone(), away.clone(), sums.clone()]), (None, Some(Pages)));
        assert_eq!(of(&[damaged.clone(), away.clone(), result(Decrypt, true, 3)]).1, Some(Pages));
        assert_eq!(of(&[damaged, away, sums, result(Pages, true, 4)]), (Some(Pages), None));
    }

    #[test]
    fn only_a_verification_that_began_later_refutes_a_fault_whatever_the_clocks_say() {
        use Level::{Checksum, Decrypt};
        let of = |results: &[VerifyResult]| (Proof::of(results).level, Proof::of(results).failed);
        let numbered = |result: VerifyResult, number, after| VerifyResult {
            number: Some(number),
            after: Some(after),
            ..result
        };
        // The clock of the first host was ahead.
        let held = numbered(result(Decrypt, true, 7200), 1, 0);
        let bad = numbered(result(Checksum, false, 5), 2, 1);
        assert_eq!(of(&[held.clone(), bad.clone()]), (None, Some(Checksum)));
        // One that began before the fault was found, and ended after it.
        let long = numbered(result(Decrypt, true, 9), 3, 1);
        assert_eq!(of(&[bad.clone(), long.clone()]), (None, Some(Checksum)));
        let later = numbered(result(Checksum, true, 1), 4, 3);
        assert_eq!(of(&[held, bad.clone(), long.clone(), later]), (Some(Checksum), None));
        // An older program leaves out the numbers.
        let old = |ok, at| result(Checksum, ok, at);
        assert_eq!(of(&[bad.clone(), old(true, 9)]), (None, Some(Checksum)));
        assert_eq!(of(&[old(false, 5), old(true, 9)]), (Some(Checksum), None));
        assert_eq!(of(&[old(false, 5), old(true, i64::from(u32::MAX))]), (None, Some(Checksum)));

        let early = numbered(result(Checksum, true, 9), 3, 1);
        let answer = numbered(result(Checksum, true, 9), 3, 2);
        assert!(!bad.is_replaced_by(&early) && !bad.is_replaced_by(&answer));
        assert!(early.is_replaced_by(&bad) && !long.is_replaced_by(&bad));
        let failed = FailedTry { number: Some(4), ..FailedTry::now(Decrypt, "test", "no room") };
        assert!(!failed.is_answered_by(&long));
    }

    #[test]
    fn only_a_trial_that_passed_proves_the_log() {
        let replayed = Replayed {
            to: "bin.000001:4".to_owned(),
            gtids: String::new(),
            transactions: 0,
            proven_until: Timestamp::from_second(3).unwrap(),
            left: false,
            doubtful: false,
        };
        let mut restore = RestoreTest { replayed: Some(replayed), ..RestoreTest::default() };
        let proven = |restore: &RestoreTest, level, at| {
            let tested = VerifyResult { restore: Some(restore.clone()), ..result(level, true, at) };
            Proof::of(&[tested]).proven_until.map(Timestamp::as_second)
        };
        let of = |level, at| proven(&restore, level, at);
        assert_eq!(of(Level::Restore, 5), Some(3));
        // A session has set a time.
        assert_eq!(of(Level::Restore, 2), Some(2));
        // A check of the user's own has failed, or a comparison.
        assert_eq!(of(Level::Pages, 5), None);
        // The archive has gone on in another history.
        restore.replayed.as_mut().unwrap().left = true;
        assert_eq!(proven(&restore, Level::Restore, 5), None);
        // The data may differ.
        let replayed = restore.replayed.as_mut().unwrap();
        (replayed.left, replayed.doubtful) = (false, true);
        assert_eq!(proven(&restore, Level::Restore, 5), None);
    }

    #[test]
    fn a_failed_try_stays_until_its_level_is_reached() {
        let failed = |at| FailedTry {
            finished: Timestamp::from_second(at).unwrap(),
            ..FailedTry::now(Level::Restore, "test", "no room")
        };
        let of = |results: &[VerifyResult], at| {
            let (results, failed_try) = (results.to_vec(), Some(failed(at)));
            let one = VerificationState { results, failed_try, size: None };
            VerificationState::default().and(one).failed_try.is_some()
        };
        let restored = result(Level::Restore, true, 5);
        assert!(
            of(&[restored.clone(), result(Level::Pages, true, 9)], 6),
            "pages say nothing of it"
        );
        assert!(!of(std::slice::from_ref(&restored), 5));
        assert!(of(&[result(Level::Restore, false, 9)], 6));
        // Of two records, the later try counts, and results of either answer it.
        let with =
            |results, at| VerificationState { results, failed_try: Some(failed(at)), size: None };
        let both = with(vec![], 3).and(with(vec![], 7));
        assert_eq!(both.failed_try, Some(failed(7)));
        let refused = FailedTry { refused: true, ..failed(9) };
        let later = VerificationState { failed_try: Some(refused), ..VerificationState::default() };
        assert_eq!(both.and(later).failed_try, Some(failed(7)), "a refusal hides no failure");
        assert_eq!(with(vec![restored], 3).and(with(vec![], 4)).failed_try, None);
        assert_eq!(
            FailedTry::now(Level::Restore, "t", &"ä".repeat(5000)).why.chars().count(),
            MAX_WHY
        );
    }

    proptest! {
        /// The order of the results in the record does not matter.
        #[test]
        fn weighing_does_not_depend_on_order(
            mut results in prop::collection::vec((0_usize..6, any::<bool>(), 0_i64..20), 0..8)
        ) {
            let made = |results: &[(usize, bool, i64)]| -> Vec<VerifyResult> {
                results.iter().map(|(l, ok, at)| result(Level::ALL[*l], *ok, *at)).collect()
            };
            // One result of each level, as in a record.
            results.sort();
            results.dedup_by_key(|result| result.0);
            let forward = Proof::of(&made(&results));
            results.reverse();
            prop_assert_eq!(forward, Proof::of(&made(&results)));
        }

        /// Verifications that overlap, on hosts with any clocks: a fault counts until one of its level passes that began
        /// after it was recorded, and nothing that began before a fault proves anything. A record, which leaves out
        /// what was replaced, hides no fault and proves no more.
        #[test]
        fn only_what_began_after_the_faults_counts_of_verifications_that_overlap(
            made in prop::collection::vec((0_usize..6, any::<bool>(), 0_i64..20, 0_u64..4), 0..12)
        ) {
            let (mut all, mut record) = (Vec::new(), Vec::<VerifyResult>::new());
            for (number, (level, ok, at, overlaps)) in (1_u64..).zip(made) {
                let (number, after) = (Some(number), Some((number - 1).saturating_sub(overlaps)));
                let next = VerifyResult { number, after, ..result(Level::ALL[level], ok, at) };
                all.push(next.clone());
                record.retain(|old| !old.is_replaced_by(&next));
                record.push(next);

                let (faults, passed): (Vec<_>, Vec<_>) = all.iter().partition(|result| !result.ok);
                let is_open = |fault: &&&VerifyResult| {
                    !passed.iter().any(|p| p.level >= fault.level && p.after >= fault.number)
                };
                let open = faults.iter().filter(is_open).map(|fault| fault.level).max();
                let last = faults.iter().filter_map(|fault| fault.number).max();
                let held = passed.iter().filter(|p| p.after >= last).map(|p| p.level).max();
                let held = held.filter(|_| open.is_none());
                let (whole, kept) = (Proof::of(&all), Proof::of(&record));
                prop_assert_eq!((whole.failed, whole.level), (open, held));
                prop_assert!(kept.failed >= open, "{:?} of {:?}", kept, record);
                prop_assert!(kept.level <= held, "{:?} of {:?}", kept, record);
            }
            // One of the highest level that begins now answers everything.
            let after = all.last().and_then(|result: &VerifyResult| result.number).or(Some(0));
            record.push(VerifyResult { after, ..result(Level::Restore, true, 0) });
            prop_assert_eq!(Proof::of(&record).level, Some(Level::Restore));
        }
    }
}
