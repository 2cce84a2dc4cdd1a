//! Logs of real servers, compared with those servers' own listings. See `fixtures/binlog`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

mod listing;

use listing::{gtid, listed, ours, read, transactions};
use xb_binlog::{
    Begin, Change, ChecksumKind, Error, Event, Fork, GtidPosition, GtidSet, HEADER_LEN, History,
    LogEnd, Outcome, Payload, Reader, Rotate,
};
use xb_testkit::vectors;

/// Name, and the log that follows; if none does, the name shows how the log ends. The server's listing is
/// in `NAME.events`.
const LOGS: [(&str, &str); 13] = [
    ("mariadb-11.8.000001", "bin.000002"),
    ("mariadb.000001", "bin.000002"),
    ("mariadb.000002", "bin.000003"),
    ("mariadb.000003-no-checksum", "bin.000004"),
    ("mariadb.000005-compressed", "bin.000006"),
    ("mariadb.000006-stopped", ""),
    ("mariadb.000007-in-use", ""),
    ("mysql.000001", "bin.000002"),
    ("mysql.000002", "bin.000003"),
    ("mysql.000003-no-checksum", "bin.000004"),
    ("mysql.000004-stopped", ""),
    ("mysql.000005-anonymous", "bin.000006"),
    ("mysql.000006-in-use", ""),
];

fn log(name: &str) -> Vec<u8> {
    let name = if name.ends_with(".000001") && !name.contains("encrypted") {
        format!("binlog/{name}.gz")
    } else {
        format!("binlog/{name}")
    };
    vectors::read(&name)
}

fn text(name: &str) -> String {
    String::from_utf8(vectors::read(&format!("binlog/{name}"))).unwrap()
}

#[test]
fn events_are_those_that_the_server_lists() {
    for (name, next) in LOGS {
        let (entries, end) = read(&log(name), usize::MAX);
        let expected = match next {
            "" if name.ends_with("stopped") => LogEnd::Stopped,
            "" => LogEnd::InUse,
            file => LogEnd::Rotated(Rotate { file: file.to_owned(), offset: 4 }),
        };
        assert_eq!(end, Ok(expected), "{name}");
        assert_eq!(ours(&entries), listed(&text(&format!("{name}.events"))), "{name}");
        assert!(entries.iter().all(|entry| entry.event != Event::Unknown), "{name}");
    }
}

#[test]
fn every_transaction_reaches_from_its_gtid_to_the_next() {
    let mut all = 0;
    for (name, _) in LOGS {
        let (entries, _) = read(&log(name), usize::MAX);
        let (found, is_open) = transactions(&entries).unwrap();
        assert!(!is_open, "{name}");
        let begins: Vec<u64> = found.iter().map(|transaction| transaction.begin).collect();
        let gtids = entries
            .iter()
            .filter(|entry| matches!(entry.event, Event::MariaDbBegin(_) | Event::MySqlBegin(_)));
        assert_eq!(begins, gtids.map(|entry| entry.begin).collect::<Vec<_>>(), "{name}");
        // A transaction is followed by another one, or by the end of the log.
        for transaction in &found {
            let after = entries.iter().find(|entry| entry.begin == transaction.end);
            let is_between = |event: &Event| {
                matches!(
                    event,
                    Event::MariaDbBegin(_)
                        | Event::MySqlBegin(_)
                        | Event::Rotate(_)
                        | Event::Control
                )
            };
            assert!(after.is_none_or(|entry| is_between(&entry.event)), "{name}: {transaction:?}");
        }
        all += found.len();
    }
    assert_eq!(all, 100);
}

/// Outcomes in the order of the statements of `mariadb.sql` and `mysql.sql`.
#[test]
fn each_kind_of_transaction_is_distinguished() {
    use Outcome::{Commit, Payload, Statement, XaPrepared};
    let of = |name: &str| {
        let (entries, _) = read(&log(name), usize::MAX);
        transactions(&entries).unwrap().0
    };
    let mariadb = of("mariadb.000001");
    let outcomes: Vec<Outcome> = mariadb.iter().map(|found| found.outcome).collect();
    let rows = |outcome, number| vec![outcome; number];
    let expected = [
        rows(Statement, 4),
        rows(Commit, 11),
        vec![XaPrepared, Statement, XaPrepared, Statement, Commit],
        // ALTER in two phases, and CREATE TABLE ... SELECT.
        vec![Statement, Statement, Commit],
        rows(Statement, 5),
        rows(Commit, 2),
    ];
    assert_eq!(outcomes, expected.concat());
    let ddl = mariadb.iter().filter(|found| found.is_ddl()).map(gtid);
    let ddl: Vec<String> = ddl.collect();
    let expected = [1, 2, 3, 4, 19, 20, 21, 22, 23, 24, 25, 26];
    assert_eq!(ddl, expected.map(|number| format!("0-1-{number}")));
    let xa: Vec<_> = mariadb
        .iter()
        .filter_map(|found| match &found.first {
            Begin::MariaDb(begin) => begin.xid.clone(),
            Begin::MySql(_) => None,
        })
        .map(|xid| (xid.format, String::from_utf8(xid.global).unwrap(), xid.branch))
        .collect();
    let (one, two) = ("one".to_owned(), "two".to_owned());
    let first = (3, one, b"branch".to_vec());
    assert_eq!(xa, [first.clone(), first, (1, two.clone(), vec![]), (1, two, vec![])]);

    let mysql = of("mysql.000001");
    let outcomes: Vec<Outcome> = mysql.iter().map(|found| found.outcome).collect();
    let expected = [
        rows(Statement, 3),
        rows(Commit, 5),
        vec![XaPrepared, Statement, XaPrepared, Statement, Commit, Commit],
        rows(Statement, 4),
        vec![Commit, Commit, Statement, Commit, Payload, Commit],
    ];
    assert_eq!(outcomes, expected.concat());
    for transaction in &mysql {
        let Begin::MySql(begin) = &transaction.first else { panic!("{transaction:?}") };
        let seconds = begin.committed.unwrap() / 1_000_000;
        assert!(seconds.abs_diff(u64::from(transaction.seconds)) < 60, "{transaction:?}");
        assert_eq!(begin.first_committed, begin.committed);
        assert_eq!(begin.length, Some(transaction.end - transaction.begin));
    }
}

#[test]
fn the_state_after_the_last_transaction_is_the_servers_own() {
    let mut position = GtidPosition::default();
    for name in ["mariadb.000001", "mariadb.000002", "mariadb.000003-no-checksum"] {
        let (entries, _) = read(&log(name), usize::MAX);
        for entry in &entries {
            match &entry.event {
                Event::GtidList(list) => assert_eq!(list.position(), position, "{name}"),
                Event::MariaDbBegin(begin) => position.advance(begin.gtid),
                _ => {}
            }
        }
    }
    assert_eq!(position.to_string(), text("mariadb.gtid_binlog_pos").trim());

    let mut set = GtidSet::default();
    for name in ["mysql.000001", "mysql.000002", "mysql.000003-no-checksum"] {
        let (entries, _) = read(&log(name), usize::MAX);
        for entry in &entries {
            match &entry.event {
                Event::PreviousGtids(earlier) => assert_eq!(*earlier, set, "{name}"),
                Event::MySqlBegin(begin) => set.insert(begin.gtid.clone().unwrap()),
                _ => {}
            }
        }
    }
    assert_eq!(set, text("mysql.gtid_executed").replace("\\n", "").parse().unwrap());
}

#[test]
fn the_description_names_the_server() {
    for (name, fork, version, checksums) in [
        ("mariadb.000002", Fork::MariaDb, "10.11.19-MariaDB", ChecksumKind::Crc32),
        ("mariadb.000003-no-checksum", Fork::MariaDb, "10.11.19-MariaDB", ChecksumKind::None),
        ("mysql.000002", Fork::MySql, "9.7.4", ChecksumKind::Crc32),
        ("mysql.000003-no-checksum", Fork::MySql, "9.7.4", ChecksumKind::None),
    ] {
        let (entries, _) = read(&log(name), usize::MAX);
        let Event::Format(format) = &entries[0].event else { panic!("{name}") };
        assert_eq!((format.fork, format.checksums), (fork, checksums), "{name}");
        assert!(format.server_version.starts_with(version), "{name}: {format:?}");
        let has = entries[1..].iter().all(|entry| entry.checksum.is_some());
        assert_eq!(has, checksums == ChecksumKind::Crc32, "{name}");
    }
}

#[test]
fn an_encrypted_log_is_read_up_to_where_that_begins() {
    let (entries, end) = read(&log("mariadb-encrypted.000001"), 100);
    assert_eq!(end, Ok(LogEnd::Encrypted));
    let all = listed(&text("mariadb-encrypted.000001.events"));
    assert_eq!(ours(&entries), all[..2]);
    assert_eq!(entries[1].event, Event::StartEncryption);
    assert_eq!(read(b"\xfdbin and a keyring", 3).1, Err(Error::Encrypted));
}

#[test]
fn a_cut_log_never_looks_complete() {
    for name in ["mariadb.000002", "mariadb.000003-no-checksum", "mysql.000002"] {
        let whole = log(name);
        let (entries, _) = read(&whole, usize::MAX);
        let ends: Vec<u64> = entries.iter().map(|entry| entry.end).collect();
        for len in 0..whole.len() {
            let (found, end) = read(&whole[..len], 97);
            let at = len as u64;
            let expected = match ends.contains(&at) {
                // At the end of an event, where a server may also have crashed.
                true => Ok(LogEnd::Recovered),
                false if len == 4 => Err(Error::NoEvents),
                false => {
                    let begin = ends.iter().copied().rfind(|end| *end < at);
                    let first = if len < 4 { 0 } else { 4 };
                    Err(Error::Cut { at: begin.unwrap_or(first), end: at })
                }
            };
            assert_eq!(end, expected, "{name} cut at {len}");
            assert_eq!(found[..], entries[..found.len()]);
        }
        let longer = [&whole[..], b"x"].concat();
        let at = whole.len() as u64;
        assert_eq!(read(&longer, usize::MAX).1, Err(Error::AfterEnd { at }));
    }
}

#[test]
fn every_flipped_bit_is_found() {
    for name in ["mariadb.000002", "mysql.000005-anonymous"] {
        let whole = log(name);
        // The mark of a log in use, which the server changes when it closes the log.
        let mark = 4 + 17;
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut bad = whole.clone();
                bad[at] ^= 1 << bit;
                let (_, end) = read(&bad, usize::MAX);
                assert_eq!(end.is_ok(), (at, bit) == (mark, 0), "{name}: bit {bit} of {at}");
            }
        }
    }
}

#[test]
fn an_error_stays() {
    let mut bad = log("mariadb.000002");
    bad[300] ^= 1;
    let mut reader = Reader::new();
    let mut input = &bad[..];
    let mut read = || {
        loop {
            if reader.next(&mut input)?.is_none() {
                return Ok(());
            }
        }
    };
    let first: Error = read().expect_err("damage is found");
    assert!(matches!(first, Error::Checksum { .. }), "{first}");
    assert_eq!(reader.next(&mut &log("mariadb.000002")[..]), Err(first.clone()));
    assert_eq!(reader.finish(), Err(first));
}

#[test]
fn prepared_transactions_are_known_until_they_are_completed() {
    for (name, expected) in [("mariadb.000001", [1, 0, 1, 0]), ("mysql.000001", [1, 0, 1, 0])] {
        let mut history = History::new("bin.000001", None);
        let mut numbers = vec![0];
        for entry in &read(&log(name), usize::MAX).0 {
            let _ = history.push(entry).unwrap();
            let number = history.prepared().count();
            if numbers.last() != Some(&number) {
                numbers.push(number);
            }
        }
        assert_eq!(numbers[1..], expected, "{name}");
    }
}

#[test]
fn a_compressed_transaction_shows_what_it_changes() {
    let log = log("mysql.000001");
    let (entries, _) = read(&log, usize::MAX);
    let found = entries.iter().find(|entry| entry.event == Event::TransactionPayload).unwrap();
    let place = |offset: u64| usize::try_from(offset).unwrap();
    let body = &log[place(found.begin) + HEADER_LEN..place(found.end)];
    let changes = |bytes: &[u8], piece: usize| {
        let (mut payload, mut all) = (Payload::new(), Vec::new());
        let is_sound = bytes
            .chunks(piece)
            .all(|part| payload.push(part, |one| all.push(one.clone())).is_some());
        (is_sound, all)
    };
    let table = Change::Table { schema: "d".to_owned(), table: "i".to_owned() };
    for piece in [1, 7, usize::MAX] {
        assert_eq!(changes(body, piece), (true, vec![table.clone()]), "{piece}");
    }
    // A part shows nothing else, and whatever is altered is an error or another table.
    for end in 1..body.len() {
        let (is_sound, all) = changes(&body[..end], usize::MAX);
        assert!(is_sound && all.len() <= 1, "{end}");
        let mut altered = body.to_vec();
        altered[end] ^= 0x10;
        let _ = changes(&altered, 5);
    }
}
