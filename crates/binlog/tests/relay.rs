//! Relay logs that the writer makes from logs of real servers: compared with those of `make-relay`,
//! and with a model that cuts the log at its transactions.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

mod listing;

use std::collections::BTreeSet;

use listing::{read, transactions};
use proptest::prelude::*;
use xb_binlog::{
    Barrier, Begin, Gtid, GtidPosition, LogPosition, RelayEnd, RelayError, RelayPlan, RelayWriter,
    Stop, Transaction,
};
use xb_testkit::vectors;

fn log(name: &str) -> Vec<u8> {
    vectors::read(&format!("binlog/{name}"))
}

fn plan(stop: Stop) -> RelayPlan {
    RelayPlan {
        start: GtidPosition::default(),
        stop,
        leave_out: BTreeSet::new(),
        may_leave_out_ddl: false,
    }
}

/// The format description of a log.
fn format(log: &[u8]) -> &[u8] {
    let length = u32::from_le_bytes(log[13..17].try_into().unwrap());
    &log[4..4 + length as usize]
}

/// The relay log of a log from this offset on, and what it holds.
fn relay_from(
    (name, log): (&str, &[u8]),
    offset: u64,
    plan: RelayPlan,
    piece: usize,
) -> Result<(Vec<u8>, RelayEnd), RelayError> {
    let (mut writer, mut out) = (RelayWriter::new(plan), Vec::new());
    writer.begin_log(name, format(log), offset)?;
    for bytes in log[usize::try_from(offset).unwrap()..].chunks(piece.max(1)) {
        writer.push(bytes, &mut out)?;
    }
    Ok((out, writer.finish()?))
}

fn relay(log: &[u8], plan: RelayPlan) -> Result<(Vec<u8>, RelayEnd), RelayError> {
    relay_from(("bin.000001", log), 4, plan, usize::MAX)
}

fn gtid(of: &Transaction) -> Gtid {
    match &of.first {
        Begin::MariaDb(begin) => begin.gtid,
        Begin::MySql(_) => panic!("a log of MySQL"),
    }
}

/// The recorded log with everything: two domains, XA, ALTER in two phases, several servers.
fn rich() -> (Vec<u8>, Vec<Transaction>) {
    let log = log("mariadb.000001.gz");
    let found = transactions(&read(&log, usize::MAX).0).unwrap().0;
    assert!(found.len() > 20);
    (log, found)
}

/// Bytes of a log's transaction.
fn bytes<'a>(log: &'a [u8], of: &Transaction) -> &'a [u8] {
    &log[usize::try_from(of.begin).unwrap()..usize::try_from(of.end).unwrap()]
}

#[test]
fn relay_logs_are_those_of_a_second_implementation() {
    for (name, source) in [
        ("mariadb.000002", "bin.000002"),
        ("mariadb.000003-no-checksum", "bin.000003"),
        ("mariadb.000007-in-use", "bin.000007"),
    ] {
        let log = log(name);
        for piece in [1, 7, usize::MAX] {
            let made = relay_from((source, &log), 4, plan(Stop::End), piece).unwrap();
            assert_eq!(made.0, vectors::read(&format!("binlog/{name}.relay")), "{name}");
        }
    }
}

#[test]
fn a_relay_log_ends_with_the_last_transaction_before_the_stop() {
    let (log, all) = rich();
    let whole = relay(&log, plan(Stop::End)).unwrap();
    assert_eq!(whole.1.transactions, all.len() as u64);
    for (n, each) in all.iter().enumerate() {
        let stop_at = LogPosition::new("bin.000001", each.begin).unwrap();
        let before = relay(&log, plan(Stop::Before(gtid(each))));
        assert_eq!(relay(&log, plan(Stop::At(stop_at))), before);
        match before {
            Ok((made, end)) => {
                assert_eq!(end.transactions, n as u64);
                assert!(whole.0.starts_with(&made), "{}", gtid(each));
                let last = end.last.map(|at| at.offset());
                assert_eq!(last, n.checked_sub(1).map(|last| all[last].end));
            }
            // Half of an ALTER in two phases.
            Err(error) => assert!(matches!(error, RelayError::OpenAlter(_)), "{error}"),
        }
        let next = all.get(n + 1).map(|next| Stop::Before(gtid(next))).unwrap_or(Stop::End);
        assert_eq!(relay(&log, plan(Stop::After(gtid(each)))), relay(&log, plan(next)));
        // Any other offset within it is none.
        let inside = LogPosition::new("bin.000001", each.end - 1).unwrap();
        let error = relay(&log, plan(Stop::At(inside))).unwrap_err();
        assert!(
            matches!(&error, RelayError::Inside { gtid: of, begin, .. }
                if *of == gtid(each) && begin.offset() == each.begin),
            "{error}"
        );
    }
    for stop in ["9-9-9".parse().map(Stop::After), "9-9-9".parse().map(Stop::Before)] {
        assert!(matches!(relay(&log, plan(stop.unwrap())), Err(RelayError::NotReached(_))));
    }
    for offset in [log.len() as u64 + 1, 100] {
        let at = LogPosition::new("bin.000001", offset).unwrap();
        assert!(matches!(relay(&log, plan(Stop::At(at))), Err(RelayError::NotReached(_))));
    }
}

#[test]
fn a_transaction_is_left_out_whole_and_once() {
    let (log, all) = rich();
    let out = |gtids: &[Gtid], may_leave_out_ddl| RelayPlan {
        leave_out: gtids.iter().copied().collect(),
        may_leave_out_ddl,
        ..plan(Stop::End)
    };
    let head = relay(&log, plan(Stop::Before(gtid(&all[1])))).unwrap().0.len()
        - bytes(&log, &all[0]).len();
    let is_ddl = |of: &Transaction| of.is_ddl();
    assert!(all.iter().any(is_ddl) && !all.iter().all(is_ddl));
    for (n, each) in all.iter().enumerate() {
        let plan = out(&[gtid(each)], true);
        let Ok((made, end)) = relay(&log, plan) else { continue };
        let others = all.iter().filter(|other| gtid(other) != gtid(each));
        let expected: Vec<u8> = others.flat_map(|other| bytes(&log, other)).copied().collect();
        assert_eq!(made[head..], expected);
        let later = (all.len() - n - 1) as u64;
        assert_eq!((end.left_out, end.later), (1, later));
        assert_eq!(end.reached.unwrap().offset(), all.last().unwrap().end);
        let without = relay(&log, out(&[gtid(each)], false));
        assert_eq!(without.is_err(), each.is_ddl());
        if let Err(error) = without {
            assert_eq!(error, RelayError::LeftOutDdl(gtid(each)));
        }
    }
    let missing = "9-9-9".parse().unwrap();
    let error = relay(&log, out(&[gtid(&all[0]), missing], true)).unwrap_err();
    assert_eq!(error, RelayError::NotFound(missing));
}

#[test]
fn what_is_cut_or_foreign_is_refused() {
    let (log, all) = rich();
    let last = all.last().unwrap();
    let cut = |end: u64| relay(&log[..usize::try_from(end).unwrap()], plan(Stop::End));
    let error = cut(last.end - 1).unwrap_err();
    assert!(matches!(error, RelayError::Unfinished { begin, .. } if begin == last.begin));
    assert!(cut(last.end).is_ok());
    assert!(matches!(cut(last.end + 1), Err(RelayError::Log { .. })));
    let mut writer = RelayWriter::new(plan(Stop::End));
    assert_eq!(writer.push(&[1], &mut Vec::new()), Err(RelayError::NoLog));
    for name in ["", "../bin.000001", "/bin", &"x".repeat(256)] {
        let error = writer.begin_log(name, format(&log), 4).unwrap_err();
        assert_eq!(error, RelayError::Name(name.to_owned()));
    }
    assert!(writer.begin_log("b.1", format(&log), 3).is_err());
    assert!(writer.begin_log("b.1", &format(&log)[1..], 4).is_err());
    assert!(writer.begin_log("b.1", &[format(&log), &[0]].concat(), 4).is_err());
    let mysql = vectors::read("binlog/mysql.000002");
    let error = writer.begin_log("b.1", format(&mysql), 4).unwrap_err();
    assert_eq!(error, RelayError::Fork { log: "b.1".to_owned() });
    let encrypted = vectors::read("binlog/mariadb-encrypted.000001");
    let error = relay(&encrypted, plan(Stop::End)).unwrap_err();
    let is_encrypted =
        |error| matches!(error, RelayError::Barrier { barrier: Barrier::Encrypted, .. });
    assert!(is_encrypted(error));
}

#[test]
fn a_replay_gets_an_id_that_no_event_has() {
    let (mut log, all) = rich();
    assert_eq!(relay(&log, plan(Stop::End)).unwrap().1.free_server_id, u32::MAX);
    // Without checksums, so that ids can be changed.
    log = vectors::read("binlog/mariadb.000003-no-checksum");
    let found = transactions(&read(&log, usize::MAX).0).unwrap().0;
    let first = usize::try_from(found[0].begin).unwrap();
    log[first + 5..first + 9].copy_from_slice(&u32::MAX.to_le_bytes());
    let end = relay(&log, plan(Stop::End)).unwrap().1;
    assert_eq!(end.free_server_id, u32::MAX - 1);
    assert!(end.origins.contains(&1) && all.len() > found.len());
}

proptest! {
    /// However a log is cut into pieces, and wherever it begins, its transactions are the same.
    #[test]
    fn pieces_and_beginnings_do_not_matter(from in any::<prop::sample::Index>(), piece in 1_usize..5000) {
        let (log, all) = rich();
        let from = &all[from.index(all.len())];
        let rest = relay_from(("bin.000001", &log), from.begin, plan(Stop::End), piece);
        prop_assert_eq!(&rest, &relay_from(("bin.000001", &log), from.begin, plan(Stop::End), usize::MAX));
        let (made, end) = rest.unwrap();
        let expected: Vec<u8> =
            all.iter().filter(|each| each.begin >= from.begin).flat_map(|each| bytes(&log, each)).copied().collect();
        prop_assert!(made.ends_with(&expected));
        // The relay log is itself a log that can be read, apart from where its events say they are.
        let head = made.len() - expected.len();
        prop_assert_eq!(&made[..4], b"\xfebin");
        prop_assert!(head > 4 + format(&log).len() && head < 4 + format(&log).len() + 60);
        // A server that had started with the log would drop temporary tables.
        prop_assert_eq!(made[75..79] == [0; 4], from.begin > 256 || log[75..79] == [0; 4]);
        let mut gtids = GtidPosition::default();
        all.iter().filter(|each| each.begin >= from.begin).for_each(|each| gtids.advance(gtid(each)));
        prop_assert_eq!(end.gtids, gtids);
    }
}
