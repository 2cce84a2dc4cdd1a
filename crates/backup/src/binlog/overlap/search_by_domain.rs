//! The search of MariaDB. Its servers write domains in different orders, so that in each domain the archive may end at
//! another place of the logs.

use std::collections::{BTreeMap, BTreeSet};

use xb_binlog::{Comparison, Gtid, GtidPosition, GtidSequence, GtidState};
use xb_repo::archive::segment::LastTransaction;
use xb_repo::archive::stream::{StoredPosition, StoredRepeats};

use crate::binlog::overlap::search_outcome::{Outcome, SearchStep, StretchSearch, Takeover};
use crate::binlog::overlap::sent_transactions::{SentItem, SentTransaction, SentTransactions};

/// A search through what a server sends.
#[derive(Debug)]
pub(crate) struct SearchByDomain {
    search: StretchSearch,
    /// The archive's end.
    gtids: GtidPosition,
    /// The last transaction of each domain that the server's log has up to here.
    has: GtidPosition,
    /// GTIDs before the first log.
    began: Option<GtidPosition>,
    /// The first transaction that was sent of each domain.
    firsts: BTreeMap<u32, Gtid>,
    /// Domains whose last stored transaction was sent, or lies before the first log.
    passed: BTreeSet<u32>,
    last: Option<LastTransaction>,
    /// The transaction before the first one that is not stored, once that was sent.
    split: Option<Option<LastTransaction>>,
    /// A transaction that is not stored, and that the server was the first to commit.
    own: Option<Gtid>,
}

impl SearchByDomain {
    pub(crate) fn new(gtids: GtidPosition, search: StretchSearch) -> Self {
        Self {
            search,
            gtids,
            has: GtidPosition::default(),
            began: None,
            firsts: BTreeMap::new(),
            passed: BTreeSet::new(),
            last: None,
            split: None,
            own: None,
        }
    }

    pub(crate) fn item(&mut self, sent: &SentTransactions, item: SentItem) -> SearchStep {
        if let Some(GtidState::MariaDb(gtids)) = sent.gtids() {
            self.has.clone_from(gtids);
        }
        let outcome = match item {
            SentItem::Idle => return self.idle(),
            SentItem::Begun => {
                self.begin();
                None
            }
            SentItem::Ended(ended) => self.ended(*ended),
        };
        if let Some(outcome) = outcome {
            return SearchStep::Ended(outcome);
        }
        if self.is_over() {
            return SearchStep::Ended(self.judge());
        }
        let outcome = if self.search.is_past(sent) { self.final_outcome() } else { None };
        match outcome {
            Some(outcome) => SearchStep::Ended(outcome),
            None => SearchStep::More,
        }
    }

    /// The first log begins.
    fn begin(&mut self) {
        if self.began.is_some() {
            return;
        }
        let began = self.has.clone();
        // Applied transactions prove nothing of the server's log, which may still follow with the same transactions.
        let ends = self.gtids.iter().filter(|end| began.get(end.domain) == Some(**end));
        self.passed.extend(ends.map(|end| end.domain));
        self.began = Some(began);
    }

    /// A transaction ends.
    fn ended(&mut self, sent: SentTransaction) -> Option<Outcome> {
        let SentTransaction { ended, content, stored, before } = sent;
        let xb_binlog::Begin::MariaDb(begin) = &ended.first else {
            return Some(Outcome::Unknown(format!("{} is of MySQL", stored.gtid)));
        };
        let gtid = begin.gtid;
        let before = match before {
            Some(GtidState::MariaDb(before)) => before,
            _ => GtidPosition::default(),
        };
        let at = stored.from.clone();
        let previous = self.last.replace(stored);
        if let Some(last) = before.get(gtid.domain).filter(|last| last.sequence >= gtid.sequence) {
            return Some(Outcome::Unknown(format!(
                "its GTIDs are out of order: {gtid} at {at} follows {last}; with gtid_strict_mode=ON no server does that"
            )));
        }
        let is_first = !self.firsts.contains_key(&gtid.domain);
        self.firsts.entry(gtid.domain).or_insert(gtid);
        let end = self.gtids.get(gtid.domain).filter(|_| !self.passed.contains(&gtid.domain));
        match end {
            Some(end) if gtid == end || gtid.sequence < end.sequence => {
                self.search.push(gtid, content);
                if gtid == end {
                    self.passed.insert(gtid.domain);
                }
                return None;
            }
            // The log begins behind the archive's end, or is that of a server that lacks it.
            Some(end) if is_first && before.get(gtid.domain).is_none() => {
                if gtid.sequence == end.sequence || !self.search.server.applied.is_past(end) {
                    return Some(self.other(gtid, end, &at));
                }
                // Its log may lack transactions between the two.
                return Some(Outcome::Unknown(format!(
                    "its logs begin after {end}, the archive's end in domain {}",
                    gtid.domain
                )));
            }
            Some(end) => return Some(self.other(gtid, end, &at)),
            None => {}
        }
        if self.split.is_none() {
            self.split = Some(previous);
        }
        if gtid.server == self.search.server.id {
            self.own = self.own.or(Some(gtid));
        }
        None
    }

    /// The server has another transaction in the place of the archive's last one.
    fn other(&self, gtid: Gtid, end: Gtid, at: &StoredPosition) -> Outcome {
        self.search.branch(format!(
            "it has {gtid} at {at}, where the archive has {end}: the archived server had committed transactions that this one never received"
        ))
    }

    /// Returns whether the server has sent the archive's end in every domain.
    fn is_over(&self) -> bool {
        self.began.is_some() && self.gtids.iter().all(|end| self.passed.contains(&end.domain))
    }

    /// The server has nothing more at present.
    fn idle(&self) -> SearchStep {
        match self.final_outcome() {
            Some(outcome) => SearchStep::Ended(outcome),
            None => SearchStep::Behind(self.lacks()),
        }
    }

    /// The outcome of a search that goes no further: the server will never send all that its log lacks.
    fn final_outcome(&self) -> Option<Outcome> {
        self.outside().or_else(|| self.lost())
    }

    /// The outcome if the server has applied all that its log lacks, such as before it was built from a backup. A log
    /// without a domain cannot continue the archive: the next server's log would have that domain's transactions again.
    fn outside(&self) -> Option<Outcome> {
        let has = &self.has;
        let mut lacking =
            self.gtids.iter().filter(|end| !self.passed.contains(&end.domain)).peekable();
        let first = lacking.peek().copied().copied()?;
        let is_outside =
            |end: &Gtid| has.get(end.domain).is_none() && self.search.server.applied.is_past(*end);
        (self.began.is_some() && lacking.all(is_outside)).then(|| {
            Outcome::Unknown(format!(
                "its log lacks domain {}, and the archive ends at {first} there",
                first.domain
            ))
        })
    }

    /// The outcome if the server does not get what it lacks: it has committed transactions of its own.
    fn lost(&self) -> Option<Outcome> {
        let own = self.own?;
        Some(self.search.branch(format!("{}, and it has committed {own} since", self.lacks())))
    }

    /// Returns a sentence about the transactions that the server lacks.
    fn lacks(&self) -> String {
        let has = &self.has;
        let ends = self.gtids.iter().filter(|end| !self.passed.contains(&end.domain));
        let lacking = ends.map(|end| match has.get(end.domain) {
            Some(last) => format!("{end} (it has {last})"),
            None => format!("{end} (it lacks domain {})", end.domain),
        });
        let lacking = lacking.collect::<Vec<_>>().join(", ");
        let hint = if self.search.server.is_node {
            "; Galera does not replicate writes to MyISAM and Aria tables"
        } else {
            ""
        };
        format!("it lacks transactions of the archive up to {lacking}{hint}")
    }

    /// Judges what was compared, when the archive's end was sent in every domain.
    fn judge(&self) -> Outcome {
        if let Some(outcome) = self.search.unread() {
            return outcome;
        }
        let mut proven = BTreeSet::new();
        // The newest first: what it does not have of an older one may lie before its logs.
        for one in self.search.stretches.iter().rev() {
            for (sequence, expected) in one.expected().domains() {
                let GtidSequence::Domain(domain) = *sequence else { continue };
                let begins = in_domain(one.before(), domain);
                let behind =
                    begins.map_or_else(|| "the beginning".to_owned(), |gtid| gtid.to_string());
                let last = &expected.last;
                let is_newest = !proven.contains(&domain);
                match one.compare_in(sequence) {
                    Comparison::Same => drop(proven.insert(domain)),
                    _ if !self.has_all_behind(domain, begins) && !is_newest => {}
                    _ if !self.has_all_behind(domain, begins) => {
                        return Outcome::Unknown(format!(
                            "its logs do not begin before {last}, the archive's last transactions in domain {domain}"
                        ));
                    }
                    Comparison::AnotherForm => {
                        return Outcome::Unknown(format!(
                            "the transactions after {behind} up to {last} have the same GTIDs, but are logged in a different form, so they cannot be compared: set binlog_format=ROW and binlog_row_image=FULL on all servers"
                        ));
                    }
                    Comparison::Branch => {
                        return self.search.branch(format!(
                            "its transactions after {behind} up to {last} have different effects from those in the archive, unless the servers differ in binlog_row_metadata or binlog_row_event_max_size"
                        ));
                    }
                }
            }
        }
        let Some(here) = self.last.clone() else {
            return Outcome::Unknown("its logs begin after the archive's end".to_owned());
        };
        let gtids = self.gtids.clone();
        let (last, repeats) = match &self.split {
            None => (Some(here), None),
            Some(before) => {
                (before.clone(), Some(StoredRepeats { gtids: gtids.to_string(), until: here.to }))
            }
        };
        let begin = StoredPosition { log: self.search.first_log().into(), offset: 4 };
        let at = last.as_ref().map_or(begin, |last| last.to.clone());
        Outcome::Here(Box::new(Takeover { at, last, gtids: gtids.into(), repeats }))
    }

    /// Returns whether the logs that were sent have everything of a domain behind a transaction.
    fn has_all_behind(&self, domain: u32, begins: Option<Gtid>) -> bool {
        let Some(begins) = begins else { return false };
        let began = self.began.as_ref().and_then(|began| began.get(domain));
        began
            .or_else(|| self.firsts.get(&domain).copied())
            .is_some_and(|first| first.sequence <= begins.sequence)
    }
}

/// The last transaction of a domain.
fn in_domain(state: &GtidState, domain: u32) -> Option<Gtid> {
    match state {
        GtidState::MariaDb(position) => position.get(domain),
        GtidState::MySql(_) => None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use jiff::Timestamp;
    use xb_binlog::{ChecksumKind, GtidSet, History, LogPosition, Overlap, Repeats, SentReader};
    use xb_mysql::{DumpItem, Part};

    use super::*;
    use crate::binlog::overlap::elsewhere::ArchiveEnd;
    use crate::binlog::overlap::search::Search;
    use crate::binlog::overlap::search_outcome::OtherServer;
    use crate::binlog::receive::segmenter::Segmenter;
    use crate::binlog::receive::segmenter::tests::{ROTATION, events};

    pub(crate) const LOG: &str = "bin.000003";
    /// The `server_id` that no transaction has.
    const NOBODY: u32 = 99;

    pub(crate) fn log(name: &str) -> Vec<u8> {
        xb_testkit::vectors::read(&format!("binlog-two-servers/{name}.gz"))
    }

    /// The ends of an archive of a log, one behind each of its segments, each with what is stored by then.
    pub(crate) fn archives(log: &[u8]) -> Vec<(ArchiveEnd, Vec<String>)> {
        let now = Timestamp::from_second(4_000_000_000).unwrap();
        let reader = SentReader::new(ChecksumKind::None);
        let mut segmenter =
            Segmenter::new(reader, History::new(LOG, None), None, Duration::ZERO, usize::MAX);
        let mut cuts = segmenter.take(ROTATION, true, now).unwrap().cuts;
        for (begin, end) in events(log) {
            cuts.extend(segmenter.take(&log[begin..end], true, now).unwrap().cuts);
        }
        cuts.extend(segmenter.finish(now).unwrap().cuts);
        let (mut stretches, mut stored, mut all) = (Vec::new(), Vec::new(), Vec::new());
        for cut in cuts {
            let before = cut.gtids_before.as_ref().unwrap().parse().unwrap();
            let stretch = cut.contents.stretch().unwrap();
            if cut.transactions > 0 {
                stored.push(cut.last.as_ref().unwrap().gtid.clone());
                stretches.push(Overlap::new(before, stretch));
                let gtids = cut.gtids_after.as_ref().unwrap().parse().unwrap();
                let newest = stretches.len().saturating_sub(8);
                all.push((
                    ArchiveEnd { gtids, stretches: stretches[newest..].to_vec() },
                    stored.clone(),
                ));
            }
        }
        all
    }

    pub(crate) fn other(id: u32, log: &[u8]) -> OtherServer {
        let end = LogPosition::new(LOG, log.len() as u64).unwrap();
        let (applied, executed) = (GtidPosition::default(), GtidSet::default());
        OtherServer { id, uuid: None, applied, executed, end, is_node: false }
    }

    /// Returns the outcome of a search in a log of MySQL.
    pub(crate) fn search_on(
        archive: &ArchiveEnd,
        log: &[u8],
        uuid: &str,
    ) -> Result<Outcome, String> {
        let server = OtherServer { uuid: Some(uuid.parse().unwrap()), ..other(NOBODY, log) };
        search_as(archive, log, server)
    }

    /// Returns the outcome of a search in a log, or the transactions that the server lacks if it may still get them.
    fn search(archive: &ArchiveEnd, log: &[u8], id: u32) -> Result<Outcome, String> {
        search_as(archive, log, other(id, log))
    }

    pub(crate) fn search_as(
        archive: &ArchiveEnd,
        log: &[u8],
        server: OtherServer,
    ) -> Result<Outcome, String> {
        let mut search = Search::new(ChecksumKind::None, LOG, archive.clone(), server);
        let packets = events(log).into_iter().map(|(begin, end)| &log[begin..end]);
        for packet in [ROTATION].into_iter().chain(packets) {
            match search.take(DumpItem::Event(Part::new(packet, true))).unwrap() {
                SearchStep::More => {}
                SearchStep::Ended(outcome) => return Ok(outcome),
                // It is busy.
                SearchStep::Behind(what) => return Err(what),
            }
        }
        // The server has nothing more.
        match search.idle() {
            SearchStep::Ended(outcome) => Ok(outcome),
            SearchStep::Behind(what) => Err(what),
            SearchStep::More => panic!("more"),
        }
    }

    /// The transactions of a log from a position on, without those that are repeated.
    pub(crate) fn new_ones(
        log: &[u8],
        at: &StoredPosition,
        repeats: Option<&StoredRepeats>,
    ) -> Vec<String> {
        let repeats: Option<Repeats> = repeats.map(|repeats| repeats.parse().unwrap());
        let mut reader = xb_binlog::Reader::new();
        let mut history = History::new(LOG, None).with_repeats(repeats);
        let (mut input, mut found) = (log, Vec::new());
        while let Some(entry) = reader.next(&mut input).unwrap() {
            let step = history.push(&entry).unwrap();
            if let Some(ended) = step.ended.filter(|ended| ended.begin >= at.offset)
                && !step.is_repeat
            {
                found.push(ended.first.gtid().unwrap().to_string());
            }
        }
        found
    }

    /// Every end of an archive of one server is found on the other one: nothing is lost, and nothing comes twice.
    #[test]
    fn stored_and_following_transactions_are_complete_without_repeats() {
        for (one, two) in [
            ("pair-mixed.p1", "pair-mixed.p2"),
            ("pair-mixed.p2", "pair-mixed.p1"),
            ("galera-row.n2", "galera-row.n3"),
        ] {
            let (one, two) = (log(one), log(two));
            let archives = archives(&one);
            let mut all = archives.last().unwrap().1.clone();
            all.sort();
            for (archive, stored) in archives {
                let found = search(&archive, &two, NOBODY);
                let Ok(Outcome::Here(here)) = found else { panic!("{}: {found:?}", archive.gtids) };
                let mut found = new_ones(&two, &here.at, here.repeats.as_ref());
                found.extend(stored);
                found.sort();
                assert_eq!(found, all, "{}", archive.gtids);
            }
        }
    }

    #[test]
    fn other_transactions_of_the_same_gtids_are_no_continuation() {
        for (one, two) in [("x1", "x2"), ("x3", "x4"), ("x7", "x8")] {
            let (archive, _) = archives(&log(one)).pop().unwrap();
            let found = search(&archive, &log(two), NOBODY);
            assert!(!matches!(found, Ok(Outcome::Here(_))), "{one} {two}: {found:?}");
            assert!(matches!(search(&archive, &log(one), NOBODY), Ok(Outcome::Here(_))));
        }
    }

    /// The first node has transactions of its own, which no other node has.
    #[test]
    fn a_node_that_lacks_what_another_one_did_not_replicate_says_so() {
        let (archive, _) = archives(&log("galera-row.n1")).pop().unwrap();
        let what = search(&archive, &log("galera-row.n2"), NOBODY).unwrap_err();
        assert!(what.contains("8-1-16 (it has 8-1-3)"), "{what}");
    }

    #[test]
    fn a_server_that_is_behind_is_waited_for_until_it_commits_itself() {
        let log = log("pair-mixed.p1");
        let archives = archives(&log);
        let (whole, _) = archives.last().unwrap();
        let end = ends(&log, archives.len() / 2);
        let what = search(whole, &log[..end], NOBODY).unwrap_err();
        assert!(what.contains("lacks transactions of the archive"), "{what}");
        // Another transaction in the place of the last one.
        let mut other = whole.clone();
        let GtidState::MariaDb(gtids) = &mut other.gtids else { panic!("no position") };
        let mut last = *gtids.iter().next().unwrap();
        last.server += 1;
        gtids.advance(last);
        let found = search(&other, &log, NOBODY);
        let Ok(Outcome::Branch { reason, .. }) = found else { panic!("{found:?}") };
        assert!(reason.contains(&last.to_string()), "{reason}");
    }

    /// Offset behind this transaction of a log, by its number from 0.
    pub(crate) fn ends(log: &[u8], number: usize) -> usize {
        let mut reader = xb_binlog::Reader::new();
        let (mut history, mut input, mut ends) = (History::new(LOG, None), log, Vec::new());
        while let Some(entry) = reader.next(&mut input).unwrap() {
            ends.extend(history.push(&entry).unwrap().ended.map(|ended| ended.end));
        }
        usize::try_from(ends[number]).unwrap()
    }
}
