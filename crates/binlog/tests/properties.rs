//! Properties that hold for any bytes, any cut, and any set.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

mod listing;

use std::collections::BTreeSet;

use listing::{read, uuid};
use proptest::collection::vec;
use proptest::prelude::*;
use xb_binlog::{Gtid, GtidPosition, GtidSet, GtidSource, MySqlGtid};
use xb_testkit::vectors;

/// A set as its members: source, tag, number.
type Model = BTreeSet<(u8, Option<u8>, u64)>;

fn member(&(digit, tag, number): &(u8, Option<u8>, u64)) -> MySqlGtid {
    let tag = tag.map(|tag| format!("t{tag}").parse().unwrap());
    MySqlGtid { source: GtidSource { uuid: uuid(digit), tag }, number }
}

fn set(model: &Model, order: &[(u8, Option<u8>, u64)]) -> GtidSet {
    let mut set = GtidSet::default();
    order.iter().for_each(|each| set.insert(member(each)));
    assert_eq!(model.len(), members(&set));
    set
}

fn members(set: &GtidSet) -> usize {
    let ranges = set.iter().flat_map(|(_, ranges)| ranges);
    ranges.map(|range| usize::try_from(range.end - range.start).unwrap()).sum()
}

fn any_members() -> impl Strategy<Value = Vec<(u8, Option<u8>, u64)>> {
    vec((0_u8..2, proptest::option::of(0_u8..2), 1_u64..20), 0..60)
}

proptest! {
    #[test]
    fn sets_are_those_of_a_naive_model(one in any_members(), two in any_members()) {
        let (a, b): (Model, Model) = (one.iter().copied().collect(), two.iter().copied().collect());
        let (x, y) = (set(&a, &one), set(&b, &two));
        let every = a.iter().chain(&b);
        prop_assert!(every.clone().all(|each| x.contains(&member(each)) == a.contains(each)));
        let mut both = x.clone();
        both.unite(&y);
        let united: Model = a.union(&b).copied().collect();
        prop_assert!(every.clone().all(|each| both.contains(&member(each))));
        prop_assert_eq!(members(&both), united.len());
        let left = x.without(&y);
        let difference: Model = a.difference(&b).copied().collect();
        prop_assert!(every.clone().all(|each| left.contains(&member(each)) == difference.contains(each)));
        prop_assert_eq!(members(&left), difference.len());
        prop_assert_eq!(x.is_subset(&y), a.is_subset(&b));
        prop_assert!(x.is_subset(&both) && y.is_subset(&both) && left.is_subset(&x));
        prop_assert_eq!(x.is_empty(), a.is_empty());
        // One set has one form, however it came about.
        let sorted: Vec<_> = united.iter().copied().collect();
        prop_assert_eq!(&set(&united, &sorted), &both);
        prop_assert_eq!(both.to_string().parse::<GtidSet>().unwrap(), both);
    }

    #[test]
    fn positions_are_printed_and_parsed_alike(all in vec((any::<u32>(), any::<u32>(), any::<u64>()), 0..9)) {
        let mut position = GtidPosition::default();
        for (domain, server, sequence) in all {
            position.advance(Gtid { domain, server, sequence });
        }
        prop_assert_eq!(position.to_string().parse::<GtidPosition>().unwrap(), position);
    }

    #[test]
    fn any_text_is_parsed_or_refused(text in "[0-9a-f:,\\- t]{0,60}|\\PC{0,40}") {
        if let Ok(set) = text.parse::<GtidSet>() {
            prop_assert_eq!(set.to_string().parse::<GtidSet>().unwrap(), set);
        }
        if let Ok(position) = text.parse::<GtidPosition>() {
            prop_assert_eq!(position.to_string().parse::<GtidPosition>().unwrap(), position);
        }
    }

    #[test]
    fn any_cut_gives_the_same_events(piece in 1_usize..400, which in 0_usize..4) {
        let name = ["mariadb.000005-compressed", "mariadb.000003-no-checksum", "mysql.000002", "mysql.000005-anonymous"];
        let log = vectors::read(&format!("binlog/{}", name[which]));
        prop_assert_eq!(read(&log, piece), read(&log, usize::MAX));
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..400), piece in 1_usize..50) {
        let log = [&vectors::read("binlog/mariadb.000003-no-checksum")[..377], &bytes].concat();
        prop_assert_eq!(read(&log, piece), read(&log, usize::MAX));
    }
}
