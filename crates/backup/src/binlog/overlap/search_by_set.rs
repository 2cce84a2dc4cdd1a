//! The search of MySQL. All its servers write all transactions in one order, so the archive ends at the place at which a
//! server's logs have exactly its set of GTIDs. No place of that kind is there if the server has a transaction among them
//! that the archive lacks, as one that was committed on a replica.

use xb_binlog::{AnyGtid, Comparison, GtidSet, GtidState, MySqlGtid};
use xb_repo::archive::segment::LastTransaction;
use xb_repo::archive::stream::StoredPosition;

use crate::binlog::overlap::search_outcome::{Outcome, SearchStep, StretchSearch, Takeover};
use crate::binlog::overlap::sent_transactions::{SentItem, SentTransaction, SentTransactions};

/// A search through what a server sends.
#[derive(Debug)]
pub(crate) struct SearchBySet {
    search: StretchSearch,
    /// The archive's transactions.
    gtids: GtidSet,
    /// GTIDs before the first log.
    began: Option<GtidState>,
    last: Option<LastTransaction>,
    /// The first transaction that is not stored, and the first one that this server committed itself, with their places.
    other: Option<(MySqlGtid, StoredPosition)>,
    own: Option<(MySqlGtid, StoredPosition)>,
}

impl SearchBySet {
    pub(crate) fn new(gtids: GtidSet, search: StretchSearch) -> Self {
        Self { search, gtids, began: None, last: None, other: None, own: None }
    }

    pub(crate) fn item(&mut self, sent: &SentTransactions, item: SentItem) -> SearchStep {
        let none = GtidSet::default();
        let has = match sent.gtids() {
            Some(GtidState::MySql(has)) => has,
            _ => &none,
        };
        match item {
            SentItem::Idle => {
                return match self.final_outcome(has) {
                    Some(outcome) => SearchStep::Ended(outcome),
                    None => SearchStep::Behind(self.lacks(has)),
                };
            }
            SentItem::Begun => {
                self.began.get_or_insert_with(|| has.clone().into());
                return SearchStep::More;
            }
            SentItem::Ended(ended) => {
                if let Some(outcome) = self.ended(*ended) {
                    return SearchStep::Ended(outcome);
                }
            }
        }
        if *has == self.gtids {
            return SearchStep::Ended(self.judge());
        }
        if !self.search.is_past(sent) {
            return SearchStep::More;
        }
        match self.final_outcome(has) {
            Some(outcome) => SearchStep::Ended(outcome),
            // A busy server is never idle, and what it lacks does not come behind this.
            None if self.other.is_some() => SearchStep::Behind(self.lacks(has)),
            None => SearchStep::More,
        }
    }

    /// A transaction ends.
    fn ended(&mut self, sent: SentTransaction) -> Option<Outcome> {
        let SentTransaction { ended, content, stored, before } = sent;
        let (place, text) = (stored.from.clone(), stored.gtid.clone());
        let Some(AnyGtid::MySql(gtid)) = ended.first.gtid() else {
            return Some(Outcome::Unknown(format!("{text} is of MariaDB")));
        };
        self.last = Some(stored);
        if !self.gtids.contains(&gtid) {
            if self.began_behind(&gtid) {
                return Some(Outcome::Unknown(format!(
                    "it has {text} at {place}, and the archive begins after it: its server was built with it, and never had it in its log"
                )));
            }
            if Some(gtid.source.uuid) == self.search.server.uuid {
                self.own.get_or_insert((gtid.clone(), place.clone()));
            }
            self.other.get_or_insert((gtid, place));
            return None;
        }
        if let Some((own, at)) = &self.own {
            return Some(self.search.branch(format!(
                "it has {own} at {at}, which it committed itself before it got {gtid}, and which the archive lacks"
            )));
        }
        let other = self.other.as_ref().map(|(other, _)| other.to_string());
        let is_in_order = before.is_none_or(|before| before.is_in_order(&gtid.clone().into()));
        let other =
            other.or_else(|| (!is_in_order).then(|| "a later one of its source".to_owned()));
        if let Some(other) = other {
            return Some(Outcome::Unknown(format!(
                "it has {gtid} at {place} after {other}, and the archive does not: set replica_preserve_commit_order=ON on all servers, so that they write one order"
            )));
        }
        self.search.push(gtid, content);
        None
    }

    /// Returns whether the archive has transactions of a source, and all of them are later than this one of it.
    fn began_behind(&self, gtid: &MySqlGtid) -> bool {
        let of_source = self.gtids.iter().find(|(source, _)| **source == gtid.source);
        let first = of_source.and_then(|(_, numbers)| numbers.first());
        first.is_some_and(|first| gtid.number < first.start)
    }

    /// The outcome of a search that goes no further: the server does not get what its log lacks.
    fn final_outcome(&self, has: &GtidSet) -> Option<Outcome> {
        self.outside(has).or_else(|| self.lost(has))
    }

    /// The outcome if the server has transactions that its log lacks, such as those that it was built with. Its log
    /// cannot continue the archive: what it lacks of them is not known to be the same.
    fn outside(&self, has: &GtidSet) -> Option<Outcome> {
        let lacking = self.gtids.without(has);
        let outside = lacking.without(&lacking.without(&self.search.server.executed));
        (!outside.is_empty()).then(|| {
            Outcome::Unknown(format!(
                "its log lacks {outside}, although its data has them: it was set up from a clone or a backup"
            ))
        })
    }

    /// The outcome if the server has committed transactions itself, so that it does not get what it lacks.
    fn lost(&self, has: &GtidSet) -> Option<Outcome> {
        let (own, at) = self.own.as_ref()?;
        Some(self.search.branch(format!("{}, and it has committed {own} at {at}", self.lacks(has))))
    }

    fn lacks(&self, has: &GtidSet) -> String {
        format!("it lacks transactions of the archive: {}", self.gtids.without(has))
    }

    /// Judges what was compared, when the server has sent what the archive has.
    fn judge(&self) -> Outcome {
        if let Some(outcome) = self.search.unread() {
            return outcome;
        }
        let mut is_proven = false;
        // The newest first: what it does not have of an older one may lie before its logs.
        for one in self.search.stretches.iter().rev() {
            let is_whole = self.began.as_ref().is_some_and(|began| began.is_within(one.before()));
            let lasts = one.expected().domains().map(|(_, stretch)| stretch.last.to_string());
            let what = || format!("transactions up to {}", lasts.collect::<Vec<_>>().join(", "));
            match one.compare() {
                Comparison::Same => is_proven = true,
                _ if !is_whole && is_proven => {}
                _ if !is_whole => {
                    return Outcome::Unknown(format!(
                        "its logs do not begin before the archive's last {}",
                        what()
                    ));
                }
                Comparison::AnotherForm => {
                    return Outcome::Unknown(format!(
                        "its {} have the GTIDs of those in the archive, but are logged in a different form, so they cannot be compared: set binlog_format=ROW, binlog_row_image=FULL and binlog_row_value_options='' on all servers",
                        what()
                    ));
                }
                Comparison::Branch => {
                    return self.search.branch(format!(
                        "its {} have different effects from those in the archive, unless the servers differ in binlog_row_metadata or binlog_row_event_max_size",
                        what()
                    ));
                }
            }
        }
        match &self.last {
            Some(last) if is_proven => Outcome::Here(Box::new(Takeover {
                at: last.to.clone(),
                last: Some(last.clone()),
                gtids: self.gtids.clone().into(),
                repeats: None,
            })),
            _ => Outcome::Unknown("its logs begin after the archive's end".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use xb_binlog::{ChecksumKind, Overlap};
    use xb_mysql::{DumpItem, Part};

    use super::*;
    use crate::binlog::overlap::elsewhere::ArchiveEnd;
    use crate::binlog::overlap::search::Search;
    use crate::binlog::overlap::search_by_domain::tests::{
        LOG, archives, ends, log, new_ones, other, search_as, search_on,
    };
    use crate::binlog::overlap::search_outcome::OtherServer;
    use crate::binlog::receive::segmenter::tests::{ROTATION, events};

    /// A `server_uuid` that no transaction has.
    const NOBODY: &str = "99999999-9999-9999-9999-999999999999";
    /// Numbers of the transactions with a part of a JSON value, and with a minimal image.
    const OF_ANOTHER_FORM: [u64; 2] = [12, 53];

    fn number(gtid: &str) -> u64 {
        gtid.rsplit(':').next().unwrap().parse().unwrap()
    }

    /// Every end of an archive of one server is found on the other one: nothing is lost, and nothing comes twice. Behind a
    /// transaction whose forms differ, none is, until it is older than what is compared.
    #[test]
    fn stored_and_following_transactions_of_mysql_are_complete() {
        for (one, two) in [
            ("mysql-row.p1", "mysql-row.p2"),
            ("mysql-row.p2", "mysql-row.p1"),
            ("mysql-statement.p1", "mysql-statement.p2"),
            ("mysql-statement.p2", "mysql-statement.p1"),
        ] {
            let (name, one, two) = (one, log(one), log(two));
            let archives = archives(&one);
            let all = archives.last().unwrap().1.clone();
            let (mut places, mut refused) = (0, 0);
            for (archive, stored) in archives {
                let last = &stored[stored.len().saturating_sub(8)..];
                let is_refused = name.starts_with("mysql-row")
                    && last.iter().any(|gtid| {
                        gtid.matches(':').count() == 1 && OF_ANOTHER_FORM.contains(&number(gtid))
                    });
                match search_on(&archive, &two, NOBODY) {
                    Ok(Outcome::Here(here)) if !is_refused => {
                        places += 1;
                        let mut found = stored.clone();
                        found.extend(new_ones(&two, &here.at, None));
                        assert_eq!(found, all);
                    }
                    Ok(Outcome::Unknown(why)) if is_refused => {
                        refused += 1;
                        assert!(why.contains("binlog_row_value_options=''"), "{why}");
                    }
                    found => panic!("{name} {}: {found:?}", stored.last().unwrap()),
                }
            }
            let expected = if name.starts_with("mysql-row") { 16 } else { 0 };
            assert!(places > 40 && refused == expected, "{places} {refused}");
        }
    }

    /// The archive has the same GTIDs with another content.
    #[test]
    fn another_transaction_of_the_same_gtid_is_a_branch() {
        let (one, two) = (log("mysql-row.p1"), log("mysql-row.p2"));
        let (mut archive, _) = archives(&one).into_iter().nth(7).unwrap();
        let found = search_on(&archive, &two, NOBODY);
        assert!(matches!(found, Ok(Outcome::Here(_))), "{found:?}");
        let stretch = archive.stretches.pop().unwrap();
        let changed = stretch.expected().domains().map(|(_, of)| {
            let mut of = of.clone();
            of.content[0] ^= 1;
            of
        });
        let changed = xb_binlog::Stretch::of(changed.collect::<Vec<_>>()).unwrap();
        archive.stretches.push(Overlap::new(stretch.before().clone(), changed));
        let found = search_on(&archive, &two, NOBODY);
        assert!(matches!(found, Ok(Outcome::Branch { .. })), "{found:?}");
    }

    #[test]
    fn a_server_that_lacks_stored_transactions_is_waited_for_until_it_commits_itself() {
        let log = log("mysql-row.p1");
        let archives = archives(&log);
        let (whole, stored) = archives.last().unwrap();
        let cut = archives.len() / 2;
        let (end, last) = (ends(&log, cut), stored.last().unwrap());
        let what = search_on(whole, &log[..end], NOBODY).unwrap_err();
        assert!(what.contains("lacks transactions of the archive"), "{what}");
        // The archive lacks a transaction that is in the middle of this server's log.
        let mut lacking = whole.clone();
        let gtid: MySqlGtid = stored[cut].parse().unwrap();
        let mut one = GtidSet::default();
        one.insert(gtid.clone());
        let GtidState::MySql(set) = &lacking.gtids else { panic!("no set") };
        lacking.gtids = set.without(&one).into();
        let found = search_on(&lacking, &log, NOBODY);
        let Ok(Outcome::Unknown(why)) = found else { panic!("{found:?}") };
        assert!(why.contains("replica_preserve_commit_order=ON"), "{why}");
        let found = search_on(&lacking, &log, &gtid.source.uuid.to_string());
        let Ok(Outcome::Branch { reason, .. }) = found else { panic!("{found:?}") };
        assert!(reason.contains(&gtid.to_string()), "{reason} {last}");
        // Another one has come in the place of the last one.
        let mut lost = whole.clone();
        let GtidState::MySql(set) = &whole.gtids else { panic!("no set") };
        let mut set = set.clone();
        set.insert(format!("{NOBODY}:1").parse().unwrap());
        set = set.without(
            &last
                .parse()
                .map(|last: MySqlGtid| {
                    let mut one = GtidSet::default();
                    one.insert(last);
                    one
                })
                .unwrap(),
        );
        lost.gtids = set.into();
        let own = last.split(':').next().unwrap();
        let found = search_on(&lost, &log, own);
        let Ok(Outcome::Branch { reason, .. }) = found else { panic!("{found:?}") };
        assert!(reason.contains(last) && reason.contains(NOBODY), "{reason}");
    }

    fn set(gtids: &[&String]) -> GtidSet {
        let mut set = GtidSet::default();
        gtids.iter().for_each(|gtid| set.insert(gtid.parse().unwrap()));
        set
    }

    /// The archive, with transactions that no log has.
    fn with_more(archive: &ArchiveEnd, more: &GtidSet) -> ArchiveEnd {
        let GtidState::MySql(gtids) = &archive.gtids else { panic!("no set") };
        let mut gtids = gtids.clone();
        gtids.unite(more);
        ArchiveEnd { gtids: gtids.into(), ..archive.clone() }
    }

    /// Its log never has them, however long it is waited for, and it has lost nothing.
    #[test]
    fn a_server_that_was_built_with_stored_transactions_says_so() {
        let log = log("mysql-row.p1");
        let archives = archives(&log);
        let built_with: GtidSet = format!("{NOBODY}:1-1000").parse().unwrap();
        let middle = archives.len() / 2;
        for (archive, stored) in [&archives[middle], archives.last().unwrap()] {
            let archive = with_more(archive, &built_with);
            // It is a replica, or was promoted and has committed.
            let own = stored[0].split(':').next().unwrap();
            for uuid in [NOBODY, own] {
                let mut server =
                    OtherServer { uuid: Some(uuid.parse().unwrap()), ..other(99, &log) };
                server.executed = built_with.clone();
                let found = search_as(&archive, &log, server);
                let Ok(Outcome::Unknown(why)) = found else { panic!("{found:?}") };
                assert!(why.contains(&format!("its log lacks {NOBODY}:1-1000")), "{why}");
            }
        }
    }

    /// It sends no heartbeat, so a wait for it would be silent.
    #[test]
    fn a_busy_server_that_lacks_stored_transactions_is_behind() {
        let log = log("mysql-row.p1");
        let (archive, _) = &archives(&log)[20];
        let archive = with_more(archive, &format!("{NOBODY}:1").parse().unwrap());
        let end = other(99, &log[..ends(&log, 30)]).end;
        let server = OtherServer { uuid: Some(NOBODY.parse().unwrap()), end, ..other(99, &log) };
        let mut search = Search::new(ChecksumKind::None, LOG, archive, server);
        let packets = events(&log).into_iter().map(|(begin, end)| &log[begin..end]);
        let is_behind = [ROTATION].into_iter().chain(packets).any(|packet| {
            let step = search.take(DumpItem::Event(Part::new(packet, true))).unwrap();
            matches!(step, SearchStep::Behind(what) if what.contains(NOBODY))
        });
        assert!(is_behind);
    }

    /// The archive is of a server that was built with the other one's first transactions.
    #[test]
    fn an_archive_that_begins_behind_transactions_of_a_source_is_no_branch() {
        let log = log("mysql-row.p1");
        let archives = archives(&log);
        let (whole, stored) = archives.last().unwrap();
        let own = stored[0].split(':').next().unwrap();
        let first = stored.iter().find(|gtid| gtid.ends_with(":1")).unwrap();
        let GtidState::MySql(gtids) = &whole.gtids else { panic!("no set") };
        let gtids = gtids.without(&set(&[first])).into();
        let archive = ArchiveEnd { gtids, ..whole.clone() };
        for uuid in [NOBODY, own] {
            let found = search_on(&archive, &log, uuid);
            let Ok(Outcome::Unknown(why)) = found else { panic!("{found:?}") };
            assert!(why.contains("the archive begins after it"), "{why}");
        }
    }
}
