//! Relay logs that the writer makes from logs of real servers: compared with those of `make-relay`,
//! and with a model that cuts the log at its transactions.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

mod listing;
mod made;

use std::collections::BTreeSet;

use listing::{read, transactions};
use made::Log;
use proptest::prelude::*;
use xb_binlog::{
    AnyGtid, Event, EventType, GtidPosition, GtidState, LogPosition, RelayEnd, RelayError,
    RelayPlan, RelayWriter, ReplayStop, StatementDoubt, Transaction, TransactionSummary,
};
use xb_testkit::vectors;

fn log(name: &str) -> Vec<u8> {
    vectors::read(&format!("binlog/{name}"))
}

fn plan(stop: ReplayStop) -> RelayPlan {
    RelayPlan {
        start: GtidState::MariaDb(GtidPosition::default()),
        stop,
        servers: 0,
        leave_out: BTreeSet::new(),
        may_leave_out_ddl: false,
        never_ended: BTreeSet::new(),
        outside: Default::default(),
    }
}

/// The format description of a log.
fn format(log: &[u8]) -> &[u8] {
    let length = u32::from_le_bytes(log[13..17].try_into().unwrap());
    &log[4..4 + length as usize]
}

/// The transactions before a log.
fn start_of(log: &[u8]) -> GtidState {
    let lists = read(log, usize::MAX).0.into_iter().filter_map(|entry| match entry.event {
        Event::GtidList(list) => Some(GtidState::MariaDb(list.position())),
        Event::PreviousGtids(set) => Some(GtidState::MySql(set)),
        _ => None,
    });
    lists.take(1).next().unwrap_or(GtidState::MariaDb(GtidPosition::default()))
}

/// The relay log of a log from this offset on, and what it holds.
fn relay_from(
    (name, log): (&str, &[u8]),
    offset: u64,
    plan: RelayPlan,
    piece: usize,
) -> Result<(Vec<u8>, RelayEnd), RelayError> {
    let start =
        if offset == 4 && plan.start.is_empty() { start_of(log) } else { plan.start.clone() };
    let (mut writer, mut out) = (RelayWriter::new(RelayPlan { start, ..plan }), Vec::new());
    writer.begin_log(name, format(log), offset)?;
    for bytes in log[usize::try_from(offset).unwrap()..].chunks(piece.max(1)) {
        writer.push(bytes, &mut out)?;
    }
    Ok((out, writer.finish()?))
}

fn relay(log: &[u8], plan: RelayPlan) -> Result<(Vec<u8>, RelayEnd), RelayError> {
    relay_from(("bin.000001", log), 4, plan, usize::MAX)
}

fn gtid(of: &Transaction) -> AnyGtid {
    of.first.gtid().unwrap()
}

/// The recorded log with everything: two domains, XA, ALTER in two phases, several servers.
fn rich() -> (Vec<u8>, Vec<Transaction>) {
    rich_of("mariadb.000001.gz")
}

fn rich_of(name: &str) -> (Vec<u8>, Vec<Transaction>) {
    let log = log(name);
    let found = transactions(&read(&log, usize::MAX).0).unwrap().0;
    assert!(found.len() > 20);
    (log, found)
}

/// Those of both forks. MySQL's has tags, XA, compressed transactions.
const RICH: [&str; 2] = ["mariadb.000001.gz", "mysql.000001.gz"];

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
        ("mysql.000002", "bin.000002"),
        ("mysql.000003-no-checksum", "bin.000003"),
    ] {
        let log = log(name);
        for piece in [1, 7, usize::MAX] {
            let made = relay_from((source, &log), 4, plan(ReplayStop::End), piece).unwrap();
            assert_eq!(made.0, vectors::read(&format!("binlog/{name}.relay")), "{name}");
        }
    }
}

/// Temporary tables end there. A log without a transaction becomes no relay log, so the next one says it.
#[test]
fn a_start_of_the_server_is_written_with_the_next_transaction() {
    // Behind header, version and name of the server.
    let created = |log: &[u8]| u32::from_le_bytes(log[75..79].try_into().unwrap());
    let (empty, next) = (log("mariadb.000001.gz"), log("mariadb.000002"));
    assert!(created(&empty) > 0 && created(&next) == 0);
    for has_started in [true, false] {
        let start = start_of(&next);
        let mut writer = RelayWriter::new(RelayPlan { start, ..plan(ReplayStop::End) });
        let mut out = Vec::new();
        if has_started {
            writer.begin_log("bin.000001", format(&empty), 4).unwrap();
            writer.push(format(&empty), &mut out).unwrap();
            assert!(out.is_empty());
        }
        writer.begin_log("bin.000002", format(&next), 4).unwrap();
        writer.push(&next[4..], &mut out).unwrap();
        assert_eq!(created(&out), if has_started { created(&empty) } else { 0 });
    }
}

#[test]
fn a_relay_log_ends_with_the_last_transaction_before_the_stop() {
    RICH.iter().copied().for_each(ends_before_the_stop);
}

fn ends_before_the_stop(name: &str) {
    let (log, all) = rich_of(name);
    let whole = relay(&log, plan(ReplayStop::End)).unwrap();
    assert_eq!(whole.1.transactions, all.len() as u64);
    for (n, each) in all.iter().enumerate() {
        let stop_at = LogPosition::new("bin.000001", each.begin).unwrap();
        let before = relay(&log, plan(ReplayStop::Before(gtid(each))));
        assert_eq!(relay(&log, plan(ReplayStop::At(stop_at))), before);
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
        let next =
            all.get(n + 1).map(|next| ReplayStop::Before(gtid(next))).unwrap_or(ReplayStop::End);
        assert_eq!(relay(&log, plan(ReplayStop::After(gtid(each)))), relay(&log, plan(next)));
        // Any other offset within it is none.
        let inside = LogPosition::new("bin.000001", each.end - 1).unwrap();
        let error = relay(&log, plan(ReplayStop::At(inside))).unwrap_err();
        assert!(
            matches!(&error, RelayError::Inside { gtid: of, begin, .. }
                if *of == gtid(each) && begin.offset() == each.begin),
            "{error}"
        );
    }
    for stop in ["9-9-9".parse().map(ReplayStop::After), "9-9-9".parse().map(ReplayStop::Before)] {
        assert!(matches!(relay(&log, plan(stop.unwrap())), Err(RelayError::NotReached(_))));
    }
    for offset in [log.len() as u64 + 1, 100] {
        let at = LogPosition::new("bin.000001", offset).unwrap();
        assert!(matches!(relay(&log, plan(ReplayStop::At(at))), Err(RelayError::NotReached(_))));
    }
}

#[test]
fn a_transaction_is_left_out_whole_and_once() {
    RICH.iter().copied().for_each(is_left_out);
}

/// The statement lies in the compressed payload.
#[test]
fn a_definition_in_a_compressed_transaction_is_not_left_out_unasked() {
    let packed = |statement: &str| {
        let plain = made::Log(Vec::new()).query("BEGIN").query(statement).xid().0;
        let zstd = zstd::bulk::compress(&plain, 3).unwrap();
        let length = u8::try_from(plain.len()).unwrap();
        // Compressed with zstd, this length, and the end of the fields.
        let body = [&[2, 1, 0, 3, 1, length, 0][..], &zstd].concat();
        let length = u8::try_from(69 + 19 + body.len()).unwrap();
        made::Log::mysql().mysql_gtid(1, length).event(EventType::TRANSACTION_PAYLOAD, &body).0
    };
    let out: AnyGtid = "00000000-0000-0000-0000-000000000000:1".parse().unwrap();
    let left_out = |log: &[u8], piece: usize, may_leave_out_ddl| {
        let start = "11111111-2222-3333-4444-555555555555:1".parse().unwrap();
        let leave_out = BTreeSet::from([out.clone()]);
        let plan = RelayPlan { start, leave_out, may_leave_out_ddl, ..plan(ReplayStop::End) };
        relay_from(("bin.000001", log), 4, plan, piece).map(|(_, end)| end.left_out)
    };
    for piece in [1, 7, usize::MAX] {
        let ddl = packed("CREATE TABLE `t` (`a` int) START TRANSACTION");
        assert_eq!(left_out(&ddl, piece, false), Err(RelayError::LeftOutDdl(out.clone())));
        assert_eq!(left_out(&ddl, piece, true), Ok(1));
        assert_eq!(left_out(&packed("INSERT INTO t VALUES (1)"), piece, false), Ok(1));
    }
    // One that cannot be read may define something.
    let mut damaged = packed("INSERT INTO t VALUES (1)");
    let magic = [0x28, 0xb5, 0x2f, 0xfd];
    let begin = damaged.windows(4).position(|at| at == magic).unwrap();
    damaged[begin] ^= 0x55;
    assert_eq!(left_out(&damaged, 9, false), Err(RelayError::LeftOutDdl(out.clone())));
}

fn is_left_out(name: &str) {
    let (log, all) = rich_of(name);
    let whole = relay(&log, plan(ReplayStop::End)).unwrap().1.gtids;
    let out = |gtids: &[AnyGtid], may_leave_out_ddl| RelayPlan {
        leave_out: gtids.iter().cloned().collect(),
        may_leave_out_ddl,
        ..plan(ReplayStop::End)
    };
    let head = relay(&log, plan(ReplayStop::Before(gtid(&all[1])))).unwrap().0.len()
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
        // An empty transaction of MySQL takes its place.
        assert!(name.starts_with("mariadb") || end.gtids == whole);
        assert_eq!(end.reached.unwrap().offset(), all.last().unwrap().end);
        let without = relay(&log, out(&[gtid(each)], false));
        assert_eq!(without.is_err(), each.is_ddl());
        if let Err(error) = without {
            assert_eq!(error, RelayError::LeftOutDdl(gtid(each)));
        }
    }
    let missing: AnyGtid = "9-9-9".parse().unwrap();
    let error = relay(&log, out(&[gtid(&all[0]), missing.clone()], true)).unwrap_err();
    assert_eq!(error, RelayError::NotFound(missing));
}

#[test]
fn a_cut_or_foreign_log_is_refused() {
    let (log, all) = rich();
    let last = all.last().unwrap();
    let cut = |end: u64| relay(&log[..usize::try_from(end).unwrap()], plan(ReplayStop::End));
    let entries = read(&log, usize::MAX).0;
    let end_of_it = entries.iter().find(|entry| entry.end == last.end).unwrap();
    let error = cut(end_of_it.begin).unwrap_err();
    assert!(
        matches!(error, RelayError::Unfinished { begin, .. } if begin == last.begin),
        "{error}"
    );
    assert!(matches!(cut(last.end - 1), Err(RelayError::Log { .. })));
    assert!(cut(last.end).is_ok());
    assert!(matches!(cut(last.end + 1), Err(RelayError::Log { .. })));
    let mut writer = RelayWriter::new(plan(ReplayStop::End));
    assert_eq!(writer.push(&[1], &mut Vec::new()), Err(RelayError::NoLog));
    for name in ["", "../bin.000001", "/bin", &"x".repeat(256)] {
        let error = writer.begin_log(name, format(&log), 4).unwrap_err();
        assert_eq!(error, RelayError::Name(name.to_owned()));
    }
    assert!(writer.begin_log("b.1", format(&log), 3).is_err());
    assert!(writer.begin_log("b.1", &format(&log)[1..], 4).is_err());
    assert!(writer.begin_log("b.1", &[format(&log), &[0]].concat(), 4).is_err());
    let mysql = vectors::read("binlog/mysql.000002");
    let start = "0-1-5".parse().unwrap();
    let mut writer = RelayWriter::new(RelayPlan { start, ..plan(ReplayStop::End) });
    let error = writer.begin_log("b.1", format(&mysql), 4).unwrap_err();
    assert_eq!(error, RelayError::Fork { log: "b.1".to_owned() });
    let encrypted = vectors::read("binlog/mariadb-encrypted.000001");
    let error = relay(&encrypted, plan(ReplayStop::End)).unwrap_err();
    assert!(matches!(error, RelayError::Encrypted(_)), "{error}");
}

/// A server crashed while it wrote a transaction, and began another log. The next transaction has the same
/// number.
#[test]
fn a_transaction_that_never_ended_is_cut_off() {
    let log = log("mariadb.000002");
    let plan = || RelayPlan { start: start_of(&log), ..plan(ReplayStop::End) };
    let begin = |writer: &mut RelayWriter, name| writer.begin_log(name, format(&log), 4);
    // Up to an event before the last one of the transaction.
    let (first, gtid): (_, AnyGtid) = (&log[4..570], "0-1-29".parse().unwrap());
    let (mut writer, mut out) = (RelayWriter::new(plan()), Vec::new());
    assert_eq!(begin(&mut writer, "bin.000001"), Ok(0));
    writer.push(first, &mut out).unwrap();
    assert_eq!(begin(&mut writer, "bin.000002"), Ok(570 - 368));
    let mut second = Vec::new();
    writer.push(&log[4..], &mut second).unwrap();
    assert_eq!(second, vectors::read("binlog/mariadb.000002.relay"));
    assert_eq!(writer.finish().unwrap().transactions, 1);
    // Left out is the one that happened.
    let mut writer = RelayWriter::new(RelayPlan { leave_out: [gtid].into(), ..plan() });
    let mut out = Vec::new();
    for (name, bytes) in [("bin.000001", first), ("bin.000002", &log[4..])] {
        assert_eq!(begin(&mut writer, name), Ok(0));
        writer.push(bytes, &mut out).unwrap();
    }
    let end = writer.finish().unwrap();
    assert_eq!((out.len(), end.transactions, end.left_out), (0, 0, 1));
    // Within an event, the log itself is cut.
    let mut writer = RelayWriter::new(plan());
    begin(&mut writer, "bin.000001").unwrap();
    writer.push(&log[4..569], &mut out).unwrap();
    assert!(matches!(begin(&mut writer, "bin.000002"), Err(RelayError::Log { .. })));
}

#[test]
fn a_part_that_is_missing_is_noticed() {
    let (log, all) = rich();
    let (one, two) = (usize::try_from(all[3].end).unwrap(), usize::try_from(all[5].end).unwrap());
    let then = |name: &str, offset: usize| {
        let (mut writer, mut out) = (RelayWriter::new(plan(ReplayStop::End)), Vec::new());
        writer.begin_log("bin.000001", format(&log), 4).unwrap();
        writer.push(&log[4..one], &mut out).unwrap();
        writer.begin_log(name, format(&log), offset as u64).map(|_| {
            writer.push(&log[offset..], &mut out).unwrap();
            writer.finish().unwrap().transactions
        })
    };
    assert_eq!(then("bin.000001", one), Ok(all.len() as u64));
    let gap = |name: &str, expected, found: usize| {
        Err(RelayError::Gap { log: name.to_owned(), expected, found: found as u64 })
    };
    assert_eq!(then("bin.000001", two), gap("bin.000001", one as u64, two));
    assert_eq!(then("bin.000001", 4), gap("bin.000001", one as u64, 4));
    assert_eq!(then("bin.000002", two), gap("bin.000002", 4, two));
}

#[test]
fn logs_that_do_not_continue_the_data_are_refused() {
    let log = log("mariadb.000002");
    let from = |start: &str| {
        let start = start.parse().unwrap();
        relay(&log, RelayPlan { start, ..plan(ReplayStop::End) })
            .map(|(_, end)| end.gtids.to_string())
    };
    assert_eq!(from("0-1-28,7-77-2"), Ok("0-1-29,7-77-2".to_owned()));
    assert!(matches!(from("0-1-27,7-77-2"), Err(RelayError::Log { .. })));
    let (_, all) = rich();
    let rest = |start: &str| {
        let (log, begin) = (rich().0, all[5].begin);
        let plan = RelayPlan { start: start.parse().unwrap(), ..plan(ReplayStop::End) };
        relay_from(("bin.000001", &log), begin, plan, usize::MAX).map(drop)
    };
    let known = gtid(&all[5]);
    assert_eq!(rest(&known.to_string()), Err(RelayError::Known(known)));
    assert_eq!(rest(&gtid(&all[4]).to_string()), Ok(()));
}

#[test]
fn a_failed_transaction_is_described() {
    let all = RICH.map(described).concat();
    for expected in EXPECTED {
        assert!(all.iter().any(|each| each == expected), "{expected}: {all:#?}");
    }
}

fn described(name: &str) -> Vec<String> {
    let (log, all) = rich_of(name);
    for each in &all {
        let found = TransactionSummary::read(&log, bytes(&log, each)).unwrap();
        assert_eq!(found.gtid, gtid(each));
        assert!((found.micros / 1_000_000).abs_diff(each.seconds.into()) < 60);
        // Whatever is cut off, it is the same transaction, or none.
        for end in 0..bytes(&log, each).len().min(400) {
            let cut = TransactionSummary::read(&log, &bytes(&log, each)[..end]);
            assert!(cut.is_none_or(|cut| cut.gtid == gtid(each)));
        }
    }
    let all = all.iter().map(|each| TransactionSummary::read(&log, bytes(&log, each)).unwrap());
    all.map(|each| each.to_string()).collect()
}

const EXPECTED: [&str; 7] = [
    "transaction 11111111-2222-3333-4444-555555555555:1 (CREATE DATABASE d)",
    "transaction 11111111-2222-3333-4444-555555555555:audit:1 on d.i",
    // Compressed.
    "transaction 11111111-2222-3333-4444-555555555555:19 on d.i",
    "transaction 0-1-4 (CREATE SEQUENCE s)",
    "transaction 7-77-1 on d.m (INSERT INTO m VALUES (1, 'myisam'))",
    "transaction 0-1-14 on d.i (INSERT INTO i (v) VALUES ('xa'))",
    "transaction 0-1-17 (XA ROLLBACK X'74776f',X'',1)",
];

#[test]
fn a_replay_gets_an_id_that_no_event_has() {
    // Without checksums, so that ids can be changed.
    let mut log = vectors::read("binlog/mariadb.000003-no-checksum");
    assert_eq!(relay(&log, plan(ReplayStop::End)).unwrap().1.free_server_id, u32::MAX);
    let first = transactions(&read(&log, usize::MAX).0).unwrap().0[0].begin;
    let place = usize::try_from(first).unwrap() + 5;
    log[place..place + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(relay(&log, plan(ReplayStop::End)).unwrap().1.free_server_id, u32::MAX - 1);
}

proptest! {
    /// However a log is cut into pieces, and wherever it begins, its transactions are the same.
    #[test]
    fn pieces_and_beginnings_do_not_matter(from in any::<prop::sample::Index>(), piece in 1_usize..5000) {
        let (log, all) = rich();
        let from = &all[from.index(all.len())];
        let rest = relay_from(("bin.000001", &log), from.begin, plan(ReplayStop::End), piece);
        prop_assert_eq!(&rest, &relay_from(("bin.000001", &log), from.begin, plan(ReplayStop::End), usize::MAX));
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
        let mut gtids = GtidState::MariaDb(GtidPosition::default());
        for each in all.iter().filter(|each| each.begin >= from.begin) {
            prop_assert!(gtids.add(gtid(each)));
        }
        prop_assert_eq!(end.gtids, gtids);
    }
}

/// The server is killed while it alters a table, and writes nothing of it when it is started again.
#[test]
fn an_alter_that_a_crash_has_ended_is_passed_over() {
    let start_alter = |log: Log, sequence: u64| {
        let mut body = sequence.to_le_bytes().to_vec();
        body.extend([0, 0, 0, 0, 1 | 32, 2, 0, 0, 0, 0, 0]);
        log.event(EventType::MARIADB_GTID, &body).query("ALTER TABLE t FORCE")
    };
    let transaction = |log: Log, sequence| log.gtid(sequence, 0).xid();
    let before = transaction(start_alter(transaction(Log::mariadb(), 1), 2), 3).0;
    let written = |is_restart: bool, never_ended: BTreeSet<AnyGtid>| {
        let mut after = Log::mariadb().0;
        // The time at which the server was started, in a description whose own checksum follows.
        after[75..79].copy_from_slice(&u32::from(is_restart).to_le_bytes());
        let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, &after[4..252]);
        after[252..256].copy_from_slice(&u32::try_from(sum).unwrap().to_le_bytes());
        let after = transaction(Log(after), 4).0;
        let plan = RelayPlan { never_ended, ..plan(ReplayStop::End) };
        let (mut writer, mut out) = (RelayWriter::new(plan), Vec::new());
        for (name, log) in [("bin.000001", &before), ("bin.000002", &after)] {
            writer.begin_log(name, format(log), 4)?;
            writer.push(&log[4..], &mut out)?;
        }
        Ok::<_, RelayError>((out, writer.finish()?))
    };
    let open = written(false, BTreeSet::new()).unwrap_err();
    assert!(matches!(open, RelayError::OpenAlter(_)), "{open}");
    let found = written(true, BTreeSet::new()).unwrap().1.never_ended;
    assert_eq!(found, BTreeSet::from(["0-1-2".parse().unwrap()]));
    let (out, end) = written(true, found).unwrap();
    assert!(!out.windows(5).any(|text| text == b"ALTER"));
    assert_eq!((end.transactions, end.gtids.to_string()), (3, "0-1-4".to_owned()));
    assert_eq!(end.never_ended, BTreeSet::new());
}

/// The server is killed while it alters a table, and a replica that has the beginning takes its place (observed of MariaDB 10.11:
/// its applier ends the statement when it is stopped, and logs nothing of that).
#[test]
fn an_alter_whose_server_was_replaced_is_passed_over() {
    let phase = |log: Log, sequence: u64, phase: u8, begun: &[u8]| {
        let mut body = sequence.to_le_bytes().to_vec();
        body.extend([0, 0, 0, 0, 1 | 32, phase]);
        body.extend(if begun.is_empty() { &[0; 5] } else { begun });
        log.event(EventType::MARIADB_GTID, &body).query("ALTER TABLE t FORCE")
    };
    let transaction = |log: Log, sequence| log.gtid(sequence, 0).xid();
    let before = transaction(phase(transaction(Log::mariadb(), 1), 2, 2, &[]), 3).0;
    let written = |later: &Log, server: u32, never_ended: BTreeSet<AnyGtid>| {
        let mut after = later.0.clone();
        let mut at = 256;
        while at < after.len() {
            after[at + 5..at + 9].copy_from_slice(&server.to_le_bytes());
            at += u32::from_le_bytes(after[at + 9..at + 13].try_into().unwrap()) as usize;
        }
        let plan = RelayPlan { never_ended, ..plan(ReplayStop::End) };
        let (mut writer, mut out) = (RelayWriter::new(plan), Vec::new());
        writer.begin_log("bin.000001", format(&before), 4)?;
        writer.push(&before[4..], &mut out)?;
        writer.next_server(None)?;
        writer.begin_log("bin.000001", format(&after), 4)?;
        writer.push(&after[4..], &mut out)?;
        Ok::<_, RelayError>((out, writer.finish()?))
    };
    let none = BTreeSet::new();
    let later = transaction(Log::mariadb(), 4);
    // What the first server still writes comes by way of the second one.
    let open = written(&later, 1, none.clone()).unwrap_err();
    assert!(matches!(open, RelayError::OpenAlter(_)), "{open}");
    let found = written(&later, 2, none.clone()).unwrap().1.never_ended;
    assert_eq!(found, BTreeSet::from(["0-1-2".parse().unwrap()]));
    let (out, end) = written(&later, 2, found).unwrap();
    assert!(!out.windows(5).any(|text| text == b"ALTER"));
    assert_eq!((end.transactions, end.gtids.to_string()), (3, "0-2-4".to_owned()));
    // One that ends after all is written whole.
    for ends in [4, 8] {
        let later = phase(transaction(Log::mariadb(), 4), 5, ends, &2_u64.to_le_bytes());
        for server in [1, 2] {
            let (out, end) = written(&later, server, none.clone()).unwrap();
            assert_eq!((end.transactions, end.never_ended), (5, none.clone()));
            assert_eq!(out.windows(5).filter(|text| *text == b"ALTER").count(), 2);
        }
    }
}

/// A statement with the mark that it depends on its session, in the schema `a`, and with this `sql_mode`.
fn of_session(log: Log, load: bool, mode: u8, text: &str) -> Log {
    let mut body = vec![7, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 14, 0];
    body.extend([0xff; 13].iter().filter(|_| load));
    // Flags, then the mode.
    body.extend([0, 0, 0, 0, 0, 1, mode, 0, 0, 0, 0, 0, 0, 0]);
    body.extend([b'a', 0]);
    body.extend(text.as_bytes());
    log.flagged(if load { EventType(18) } else { EventType::QUERY }, 4, &body)
}

#[test]
fn statements_on_older_temporary_tables_are_refused_or_in_doubt() {
    const ANSI_QUOTES: u8 = 4;
    // Each text is a transaction; one that changes a real table ends with `;`.
    let found = |mode: u8, texts: &[&str]| {
        let (mut log, mut begins) = (Log::mariadb(), Vec::new());
        for (text, sequence) in texts.iter().zip(1..) {
            begins.push(log.0.len() as u64 + 38);
            let load = text.starts_with("LOAD");
            log = of_session(log.gtid(sequence, 0), load, mode, text.trim_end_matches(';'));
            log = if text.ends_with(';') { log.xid() } else { log.query("COMMIT") };
        }
        let number = |at: &LogPosition| begins.iter().position(|begin| *begin == at.offset());
        match relay(&log.0, plan(ReplayStop::End)) {
            Ok((_, end)) => {
                Ok(end.doubts.get(&StatementDoubt::TemporaryTable).map(|at| number(at).unwrap()))
            }
            Err(RelayError::Temporary(at)) => Err(number(&at).unwrap()),
            Err(error) => panic!("{error}"),
        }
    };
    let load = "LOAD DATA LOCAL INFILE 'f' INTO TABLE `t` FIELDS TERMINATED BY ',' (`id`)";
    let end = "DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `t`";
    let ansi_end = "DROP /*!40005 TEMPORARY */ TABLE IF EXISTS \"t\"";
    let create = "CREATE TEMPORARY TABLE t (id INT)";
    assert_eq!(found(0, &[load]), Ok(Some(0)));
    assert_eq!(found(0, &[load, end]), Err(0));
    assert_eq!(found(0, &[create, load, end]), Ok(None));
    assert_eq!(found(ANSI_QUOTES, &["DELETE FROM t", ansi_end]), Err(0));
    let quoted = "CREATE TEMPORARY TABLE \"q t\" (id INT)";
    let drop = "DROP TEMPORARY TABLE \"q t\" /* generated by server */";
    assert_eq!(found(ANSI_QUOTES, &[quoted, "DELETE FROM \"q t\"", drop]), Ok(None));
    assert_eq!(found(0, &[create, "DELETE FROM \"t\""]), Ok(Some(1)));
    let copied = "INSERT INTO r SELECT * FROM t";
    assert_eq!(found(0, &[create, copied]), Ok(Some(1)));
    assert_eq!(found(0, &[create, &format!("{copied};")]), Ok(None));
}

#[test]
fn a_load_that_loads_nothing_is_refused() {
    let log = of_session(Log::mariadb().gtid(1, 0), true, 0, "INSTALL SONAME 'x'").xid();
    let error = relay(&log.0, plan(ReplayStop::End)).unwrap_err();
    assert!(matches!(error, RelayError::Administration(_)), "{error}");
}

#[test]
fn statements_and_loads_are_applied_in_their_order() {
    for (load, text) in [(true, "LOAD DATA INFILE 'f' INTO TABLE t"), (false, "UPDATE t SET i = 1")]
    {
        let log = of_session(Log::mariadb().gtid(1, 0), load, 0, text).xid();
        let plan = plan(ReplayStop::End);
        assert!(relay(&log.0, plan).unwrap().1.needs_order, "{text}");
    }
    let rows = Log::mariadb().gtid(1, 0).flagged(EventType(30), 0, &[0; 10]).xid();
    assert!(!relay(&rows.0, plan(ReplayStop::End)).unwrap().1.needs_order);
}

#[test]
fn a_user_variable_that_comes_twice_for_one_statement_is_in_doubt() {
    let variable = |log: Log, name: &str| {
        let length = u32::try_from(name.len()).unwrap().to_le_bytes();
        log.flagged(EventType(14), 0, &[&length[..], name.as_bytes(), &[1]].concat())
    };
    let found = |names: &[&[&str]]| {
        let mut log = Log::mariadb().gtid(1, 0);
        for names in names {
            log = names
                .iter()
                .fold(log, |log, name| variable(log, name))
                .query("UPDATE t SET i = @a");
        }
        let (_, end) = relay(&log.xid().0, plan(ReplayStop::End)).unwrap();
        end.doubts.contains_key(&StatementDoubt::UserVariable)
    };
    assert!(found(&[&["a", "b", "a"]]));
    assert!(!found(&[&["a", "b"], &["a"]]));
    // A value may be as long as a packet.
    let long = [&[1, 0, 0, 0, b'a', 0][..], &vec![b'v'; 1 << 20]].concat();
    let log = Log::mariadb().gtid(1, 0).flagged(EventType(14), 0, &long);
    let (out, end) =
        relay(&log.query("UPDATE t SET i = @a").xid().0, plan(ReplayStop::End)).unwrap();
    assert!(end.doubts.is_empty() && out.len() > 1 << 20);
}
