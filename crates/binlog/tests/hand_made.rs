//! Events that no server wrote for `fixtures/binlog`: rare ones, and wrong ones.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

mod listing;
mod made;

use listing::{gtid, read};
use made::Log;
use xb_binlog::{Alter, ChecksumKind, Error, Event, EventType, Incident, LogEnd, Outcome};

#[test]
fn rare_events_are_recognised() {
    let incident = Log::mysql().event(EventType::INCIDENT, b"\x01\x00\x04lost").last();
    let expected = Incident { number: 1, message: "lost".into() };
    assert_eq!(incident, Event::Incident(expected));
    for kind in [EventType::HEARTBEAT, EventType::HEARTBEAT_V2] {
        assert_eq!(Log::mysql().event(kind, b"bin.000001").last(), Event::Heartbeat);
    }
    // One that the server makes up ends nothing.
    let rotate = Log::mariadb().flagged(EventType::ROTATE, 0x20, b"\x04\0\0\0\0\0\0\0bin.000002");
    assert_eq!(rotate.read().1, Ok(LogEnd::Recovered));
}

#[test]
fn unknown_events_are_passed_over_and_reported() {
    let log = Log::mariadb().event(EventType(200), &[9; 300]).gtid(1, 0);
    let log = log.event(EventType(250), &[]).xid();
    let (entries, end) = log.read();
    assert_eq!(end, Ok(LogEnd::Recovered));
    let unknown = entries.iter().filter(|entry| entry.event == Event::Unknown);
    let unknown: Vec<u8> = unknown.map(|entry| entry.header.event_type.0).collect();
    assert_eq!(unknown, [200, 250]);
    assert_eq!(log.transactions().unwrap().0.len(), 1);
}

#[test]
fn a_transaction_without_an_end_is_an_error() {
    let open = Log::mariadb().gtid(1, 0);
    let begin = 256;
    let at = open.0.len() as u64;
    let (found, is_open) = open.transactions().unwrap();
    assert!(found.is_empty() && is_open);
    let unfinished = Err(Error::Unfinished { begin, at });
    assert_eq!(open.gtid(2, 0).transactions(), unfinished);
    assert_eq!(Log::mariadb().gtid(1, 0).event(EventType::STOP, &[]).transactions(), unfinished);
}

#[test]
fn an_event_outside_of_a_transaction_is_an_error() {
    let outside = |event_type| Err(Error::Outside { at: 256, event_type });
    assert_eq!(Log::mariadb().xid().transactions(), outside(EventType::XID));
    assert_eq!(Log::mariadb().query("DROP TABLE t").transactions(), outside(EventType::QUERY));
    let rows = EventType(30);
    assert_eq!(Log::mariadb().event(rows, &[0; 9]).transactions(), outside(rows));
    assert!(Log::mariadb().flagged(EventType(29), 0x80, &[0; 9]).transactions().is_ok());
}

#[test]
fn a_transaction_of_mysql_has_the_length_that_it_states() {
    // 69 bytes of GTID, 38 of BEGIN, 27 of XID.
    let log = |length| Log::mysql().mysql_gtid(1, length).query("BEGIN").xid();
    let (found, _) = log(134).transactions().unwrap();
    assert_eq!((found[0].begin, found[0].end), (127, 261));
    assert_eq!(gtid(&found[0]), "00000000-0000-0000-0000-000000000000:1");
    let error = Error::TransactionLength { begin: 127, stated: 133, found: 134 };
    assert_eq!(log(133).transactions(), Err(error));
}

#[test]
fn further_flags_of_mariadb_have_their_fields_in_order() {
    let mut body = [0; 13];
    body[12] = 1;
    // Several engines, and the end of an ALTER that began as number 17.
    let more = [5, 2, 17, 0, 0, 0, 0, 0, 0, 0];
    let log = Log::mariadb().event(EventType::MARIADB_GTID, &[&body[..], &more].concat());
    let Event::MariaDbBegin(begin) = log.last() else { panic!("no GTID") };
    assert_eq!(begin.alter, Some(Alter::Commit(17)));
}

#[test]
fn a_rollback_to_a_savepoint_ends_nothing() {
    let log = Log::mariadb().gtid(1, 0).query("ROLLBACK TO `p`").query("ROLLBACK");
    let (found, _) = log.transactions().unwrap();
    assert_eq!(found[0].outcome, Outcome::Rollback);
    assert_eq!(found[0].end, log.0.len() as u64);
}

#[test]
fn a_wrong_length_is_refused_before_it_is_used() {
    let whole = Log::mariadb().xid().0;
    let (length, end) = (256 + 9, 256 + 13);
    for bad in [0, 18] {
        let mut log = whole.clone();
        log[length] = bad;
        let error = Error::Length { at: 256, length: u32::from(bad), least: 19 };
        assert_eq!(read(&log, 5).1, Err(error));
    }
    let mut log = whole.clone();
    log[length..length + 4].copy_from_slice(&[0xff; 4]);
    assert!(matches!(read(&log, 5).1, Err(Error::TooLong { at: 256, .. })));
    // Rows may have any length, but then they end elsewhere.
    log[256 + 4] = 30;
    assert!(matches!(read(&log, 5).1, Err(Error::Chain { at: 256, .. })));
    let mut log = whole;
    log[end] ^= 1;
    let error = Error::Chain { at: 256, expected: 283, found: 282 };
    assert_eq!(read(&log, 5).1, Err(error));
    // MariaDB 11.8 states no end within a transaction, but where one begins or ends.
    let mut inside = Log::mariadb().gtid(1, 0).event(EventType(30), &[0; 9]).xid().0;
    let (rows, xid) = (256 + 38, 256 + 38 + 28);
    inside[rows + 13..rows + 17].fill(0);
    assert_eq!(read(&inside, 5).1, Ok(LogEnd::Recovered));
    inside[xid + 13..xid + 17].fill(0);
    assert!(matches!(read(&inside, 5).1, Err(Error::Chain { found: 0, .. })));
    let mut mysql = Log::mysql().event(EventType(30), &[0; 9]).0;
    mysql[127 + 13..127 + 17].fill(0);
    assert!(matches!(read(&mysql, 5).1, Err(Error::Chain { at: 127, found: 0, .. })));
    // A list that would have to be held in memory.
    let log = Log::mariadb().event(EventType::GTID_LIST, &vec![0; (4 << 20) + 1]);
    let error = Error::TooLong { at: 256, event_type: EventType::GTID_LIST, limit: 4 << 20 };
    assert_eq!(read(&log.0[..280], 5).1, Err(error));
}

#[test]
fn malformed_content_is_refused() {
    for (kind, body) in [
        (EventType::MARIADB_GTID, &[0; 12][..]),
        // A commit ID, an XID, and the number of an ALTER are missing.
        (EventType::MARIADB_GTID, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0]),
        (
            EventType::MARIADB_GTID,
            &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 1, 0, 0, 0, 3, 3, b'a'],
        ),
        (EventType::MARIADB_GTID, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 4, 1]),
        (EventType::GTID_LIST, &[1, 0, 0, 0, 0, 0]),
        (EventType::GTID_LIST, &[0xff, 0xff, 0xff, 0xff]),
        (EventType::XID, &[0; 7]),
        (EventType::ROTATE, &[0; 8]),
        (EventType::QUERY, &[0; 13]),
        (EventType::QUERY, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0]),
        (EventType::XA_PREPARE, &[0, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]),
        (EventType::INCIDENT, &[1]),
        // Events of the other fork.
        (EventType::ANONYMOUS_GTID, &[0; 25]),
        (EventType::PREVIOUS_GTIDS, &[0; 8]),
    ] {
        let log = Log::mariadb().event(kind, body);
        assert_eq!(log.read().1, Err(Error::Malformed { at: 256, event_type: kind }), "{body:?}");
    }
    for (kind, body) in [
        (EventType::GTID, &[0; 25][..]),
        (EventType::GTID_TAGGED, &[2, 6, 0]),
        (EventType::GTID_TAGGED, &[2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0]),
        (EventType::PREVIOUS_GTIDS, &[0, 0, 0, 0, 0, 0, 0, 1]),
        (EventType::GTID_LIST, &[0, 0, 0, 0]),
    ] {
        let log = Log::mysql().event(kind, body);
        assert_eq!(log.read().1, Err(Error::Malformed { at: 127, event_type: kind }), "{body:?}");
    }
}

#[test]
fn no_log_and_logs_of_old_servers_are_refused() {
    assert_eq!(read(b"xbstream", 3).1, Err(Error::Magic { found: *b"xbst" }));
    assert_eq!(read(b"", 3).1, Err(Error::Cut { at: 0, end: 0 }));
    let start =
        [b"\xfebin".to_vec(), vec![0; 4], vec![1], [1, 19, 23].map(u32::to_le_bytes).concat()];
    let start = [start.concat(), vec![0, 0]].concat();
    assert_eq!(read(&start, 9).1, Err(Error::NoFormat { event_type: EventType(1) }));
    // MySQL 5.5 described 27 types and no checksum.
    let crc = |event: &[u8]| crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, event);
    let format = |version: u8, types: usize, kind: u8| {
        let mut body = vec![version, 0];
        body.extend([0; 54]);
        body.push(19);
        body.extend(vec![0; types]);
        body.push(kind);
        let mut log = Log(b"\xfebin".to_vec()).event(EventType::FORMAT_DESCRIPTION, &body).0;
        let length = u32::try_from(log.len() - 4 + 4).unwrap();
        log[13..17].copy_from_slice(&length.to_le_bytes());
        log[17..21].copy_from_slice(&(length + 4).to_le_bytes());
        let sum = u32::try_from(crc(&log[4..])).unwrap();
        log.extend(sum.to_le_bytes());
        read(&log, 7).1
    };
    for types in [35, 42, 163, 171] {
        assert_eq!(format(4, types, 1), Ok(LogEnd::Recovered), "{types}");
    }
    for (version, types, kind) in [(4, 27, 0), (3, 42, 1), (4, 42, 2), (4, 130, 1), (4, 900, 1)] {
        assert_eq!(format(version, types, kind), Err(Error::Format), "{version} {types} {kind}");
    }
}

/// Examples of "FORMAT_DESCRIPTION_EVENT" in the documentation of MariaDB Server, and of D. van Eeden,
/// "Decoding MySQL's GTID_TAGGED_LOG_EVENT".
#[test]
fn published_examples_are_read_as_their_authors_do() {
    let mut format =
        b"\xfebin\x12\xad\x26\x5a\x0f\x84\x27\0\0\xf5\0\0\0\xf9\0\0\0\x01\0\x04\0".to_vec();
    format.extend(b"10.1.16-MariaDB\0log");
    format.resize(4 + 19 + 2 + 50, 0);
    format.extend(
        b"\x12\xad\x26\x5a\x13\x38\x0d\0\x08\0\x12\0\x04\x04\x04\x04\x12\0\0\xdd\0\x04\x1a\x08",
    );
    format.extend(b"\0\0\0\x08\x08\x08\x02\0\0\0\x0a\x0a\x0a");
    format.resize(4 + 245 - 10, 0);
    // No checksums, but one of this event, which does not cover the mark of a log in use.
    format.extend(b"\x04\x13\x04\0\0\x2b\x91\xc2\x91");
    format.insert(4 + 245 - 10, 0);
    let (entries, end) = read(&format, 50);
    assert_eq!(end, Ok(LogEnd::InUse));
    let Event::Format(description) = &entries[0].event else { panic!("{entries:?}") };
    assert_eq!(description.server_version, "10.1.16-MariaDB");
    assert_eq!(description.checksums, ChecksumKind::None);

    let tagged = b"\x02\x76\0\0\x02\x02\x25\x02\xdc\xf0\x09\x02\x30\xf9\x03\x22\xbd\x03\xad\x02\x21\x02\
        \x44\x44\x5a\x68\x51\x03\x22\x04\x04\x06\x0cfoobaz\x08\0\x0a\x04\x0c\x7f\x15\x83\x22\x2d\x5c\
        \x2e\x06\x10\x49\x03\x12\xc3\x02\x0b";
    let Event::MySqlBegin(begin) = Log::mysql().event(EventType::GTID_TAGGED, tagged).last() else {
        panic!("no GTID")
    };
    let gtid = begin.gtid.unwrap().to_string();
    assert_eq!(gtid, "896e7882-18fe-11ef-ab88-22222d34d411:foobaz:1");
    assert_eq!((begin.committed, begin.length), (Some(1_739_823_289_369_365), Some(210)));
}
