//! The history of a server over its logs, and the same from what it sends.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]
#![allow(clippy::cast_possible_truncation, reason = "small logs")]

mod listing;
mod made;

use listing::{gtid, read};
use made::Log;
use proptest::collection::vec;
use proptest::prelude::*;
use xb_binlog::{
    Barrier, ChecksumKind, Entry, Error, Event, EventType, Gtid, GtidPosition, GtidState, History,
    LogPosition, SentEvent, SentReader,
};
use xb_testkit::vectors;

const NAME: &str = "bin.000001";
const DDL: u8 = 1 | 32;

/// An event of its own, without checksum: of what a server makes up.
fn packet(kind: EventType, flags: u16, end: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    bytes.push(kind.0);
    let length = u32::try_from(19 + body.len()).unwrap();
    bytes.extend([1, length, end].map(u32::to_le_bytes).concat());
    bytes.extend(flags.to_le_bytes());
    bytes.extend(body);
    bytes
}

fn rotation(offset: u64, name: &str) -> Vec<u8> {
    packet(EventType::ROTATE, 0x20, 0, &[&offset.to_le_bytes(), name.as_bytes()].concat())
}

fn with_sum(mut event: Vec<u8>) -> Vec<u8> {
    let length = u32::try_from(event.len() + 4).unwrap();
    event[9..13].copy_from_slice(&length.to_le_bytes());
    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, &event);
    event.extend(u32::try_from(sum).unwrap().to_le_bytes());
    event
}

/// Everything that is sent: the bytes of the log, and the events.
fn sent(
    reader: &mut SentReader,
    packets: &[Vec<u8>],
    piece: usize,
) -> Result<(Vec<u8>, Vec<SentEvent>), Error> {
    let (mut log, mut events) = (Vec::new(), Vec::new());
    for packet in packets {
        for mut input in packet.chunks(piece) {
            while let Some(event) = reader.next(&mut input, &mut log)? {
                events.push(event);
            }
        }
        reader.end_packet()?;
    }
    Ok((log, events))
}

/// The events of a log, one by one.
fn packets(log: &[u8], entries: &[Entry]) -> Vec<Vec<u8>> {
    let range = |entry: &Entry| entry.begin as usize..entry.end as usize;
    entries.iter().map(|entry| log[range(entry)].to_vec()).collect()
}

#[test]
fn a_sent_log_equals_its_file() {
    for (name, log) in vectors::all("binlog", "") {
        if name.contains("encrypted") || name.ends_with(".relay") || !log.starts_with(b"\xfebin") {
            continue;
        }
        let (entries, _) = read(&log, usize::MAX);
        let Event::Format(format) = &entries[0].event else { panic!("{name}") };
        let is_summed = format.checksums == ChecksumKind::Crc32;
        let artificial = |event| if is_summed { with_sum(event) } else { event };
        let mut all = vec![artificial(rotation(4, NAME))];
        for packet in packets(&log, &entries) {
            all.push(packet);
            all.push(artificial(packet_of_heartbeat()));
        }
        let mut reader = SentReader::new(format.checksums);
        let (bytes, events) = sent(&mut reader, &all, 1000).unwrap();
        assert!(bytes == log[4..], "{name}: other bytes");
        let of_log: Vec<Entry> = events.iter().filter_map(of_log).collect();
        assert_eq!(of_log, entries, "{name}");
        let end = LogPosition::new(NAME, log.len() as u64);
        assert_eq!(reader.position(), end.as_ref(), "{name}");

        // And from each event on, as after a new connection.
        let middle = entries.len() / 2;
        let from = entries[middle].begin;
        let mut description = packets(&log, &entries[..1]).remove(0);
        // Without its end, and without the mark of a log in use.
        description[13..18].fill(0);
        description.truncate(description.len() - 4);
        let tail = packets(&log, &entries[middle..]);
        let mut all = vec![artificial(rotation(from, NAME)), with_sum(description)];
        all.extend(tail);
        let mut reader = SentReader::new(format.checksums);
        let (bytes, _) = sent(&mut reader, &all, 7).unwrap();
        assert!(bytes == log[from as usize..], "{name}: other bytes from {from}");
    }
}

fn packet_of_heartbeat() -> Vec<u8> {
    packet(EventType::HEARTBEAT, 0, 400, NAME.as_bytes())
}

fn of_log(event: &SentEvent) -> Option<Entry> {
    match event {
        SentEvent::Log(entry) => Some(entry.clone()),
        SentEvent::Artificial(_) => None,
    }
}

#[test]
fn events_that_a_server_must_not_send_are_refused() {
    let log = Log::mariadb().gtid(1, 0).event(EventType(30), &[0; 9]).xid();
    let (entries, _) = log.read();
    let all = packets(&log.0, &entries);
    let reader = || SentReader::new(ChecksumKind::None);
    let with = |packets: &[Vec<u8>]| {
        let mut all = vec![rotation(4, NAME)];
        all.extend_from_slice(packets);
        sent(&mut reader(), &all, usize::MAX).map(|_| ())
    };
    assert_eq!(with(&all), Ok(()));
    let event_type = EventType::FORMAT_DESCRIPTION;
    assert_eq!(sent(&mut reader(), &all, 9).unwrap_err(), Error::NoLog { event_type });
    let event_type = EventType::MARIADB_GTID;
    assert_eq!(with(&all[1..]), Err(Error::NoFormat { event_type }));
    // An event is missing.
    assert!(matches!(with(&[&all[..2], &all[3..]].concat()), Err(Error::Chain { at: 294, .. })));
    let mut cut = all.clone();
    cut[2].pop();
    assert_eq!(with(&cut), Err(Error::Packet { log: NAME.into(), at: 294 }));
    for name in ["", "../bin", "a/b"] {
        let result = sent(&mut reader(), &[rotation(4, name)], 9);
        assert!(result.is_err(), "{name}");
    }
    // The error stays.
    let mut reader = reader();
    assert!(sent(&mut reader, &all, 9).is_err());
    assert!(sent(&mut reader, &[rotation(4, NAME)], 9).is_err());
    // The events of the archive, without those that the server makes up.
    let Event::Format(format) = entries[0].event.clone() else { panic!("no description") };
    let at = LogPosition::new(NAME, 256).unwrap();
    let mut reader = SentReader::at(at, format);
    let (bytes, events) = sent(&mut reader, &all[1..], 3).unwrap();
    assert!(bytes == log.0[256..] && events.len() == 3);
    let at = || LogPosition::new(NAME, 256).unwrap();
    let mut reader = SentReader::described(at(), &all[0]).unwrap();
    assert_eq!(reader.description(), all[0]);
    assert_eq!(sent(&mut reader, &all[1..], 3).unwrap(), (bytes, events));
    for bad in [&all[0][..250], &all[1], &[&all[0][..], b"x"].concat(), b""] {
        assert!(SentReader::described(at(), bad).is_err());
    }
}

/// A change, as a server logs it.
#[derive(Debug, Clone)]
enum Change {
    Rows { domain: u8, server: u8, jump: u8, seconds: u32 },
    Statement(&'static str),
    Prepare(u8),
    Complete(u8),
    StartAlter,
    CommitAlter,
    Incident,
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => (0_u8..3, 1_u8..4, 1_u8..5, any::<u32>())
            .prop_map(|(domain, server, jump, seconds)| Change::Rows { domain, server, jump, seconds }),
        1 => Just(Change::Statement("CREATE TABLE t (a INT)")),
        1 => Just(Change::Statement("ALTER TABLE t IMPORT TABLESPACE")),
        1 => (0_u8..3).prop_map(Change::Prepare),
        1 => (0_u8..3).prop_map(Change::Complete),
        1 => Just(Change::StartAlter),
        1 => Just(Change::CommitAlter),
        1 => Just(Change::Incident),
    ]
}

/// The state after some events, by a naive model.
#[derive(Debug, Clone, Default, PartialEq)]
struct Model {
    gtids: GtidPosition,
    prepared: Vec<u8>,
    altering: Vec<Gtid>,
    barriers: Vec<Barrier>,
    /// GTID and time of each whole transaction.
    whole: Vec<(String, u32)>,
    is_open: bool,
}

#[derive(Default)]
struct Server {
    log: Vec<u8>,
    next: u64,
    /// The model after each event.
    after: Vec<Model>,
    now: Model,
}

impl Server {
    fn write(&mut self, kind: EventType, server: u8, seconds: u32, body: &[u8]) {
        let end = u32::try_from(self.log.len() + 19 + body.len()).unwrap();
        let mut event = packet(kind, 0, end, body);
        event[..4].copy_from_slice(&seconds.to_le_bytes());
        event[5] = server;
        self.log.extend(event);
        self.after.push(self.now.clone());
    }

    fn begin(&mut self, gtid: Gtid, flags: u8, seconds: u32, more: &[u8]) {
        let mut body = gtid.sequence.to_le_bytes().to_vec();
        body.extend(gtid.domain.to_le_bytes());
        body.push(flags);
        body.extend(more);
        body.resize(body.len().max(19), 0);
        self.now.is_open = true;
        self.write(EventType::MARIADB_GTID, u8::try_from(gtid.server).unwrap(), seconds, &body);
        self.now.is_open = false;
        self.now.gtids.advance(gtid);
        self.now.whole.push((gtid.to_string(), seconds));
    }

    fn query(&mut self, server: u8, text: &str) {
        let body = [&[0; 14][..], text.as_bytes()].concat();
        self.write(EventType::QUERY, server, 9, &body);
    }

    /// The model is that after the last event; one that is inside of a transaction differs by the caller.
    fn inside(&mut self, kind: EventType, body: &[u8]) {
        let after = self.after.last().unwrap().clone();
        let now = std::mem::replace(&mut self.now, after);
        self.write(kind, 1, 0, body);
        self.now = now;
    }

    fn apply(&mut self, change: &Change) {
        self.next += 1;
        let mut gtid = Gtid { domain: 0, server: 1, sequence: self.next };
        match change {
            Change::Rows { domain, server, jump, seconds } => {
                self.next += u64::from(*jump);
                gtid = Gtid {
                    domain: u32::from(*domain),
                    server: u32::from(*server),
                    sequence: self.next,
                };
                self.begin(gtid, 4, *seconds, &[]);
                self.inside(EventType(30), &[7; 40]);
                self.write(EventType::XID, *server, 3, &[0; 8]);
            }
            Change::Statement(text) => {
                self.begin(gtid, DDL, 5, &[]);
                if text.contains("IMPORT") {
                    self.now.barriers.push(Barrier::Tablespace);
                }
                self.query(1, text);
            }
            Change::Prepare(id) => {
                self.begin(gtid, 4 | 64, 6, &[1, 0, 0, 0, 1, 0, *id]);
                if !self.now.prepared.contains(id) {
                    self.now.prepared.push(*id);
                    self.now.prepared.sort_unstable();
                }
                let body = [&[0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0][..], &[*id]].concat();
                self.write(EventType::XA_PREPARE, 1, 6, &body);
            }
            Change::Complete(id) => {
                self.begin(gtid, 1 | 128, 7, &[1, 0, 0, 0, 1, 0, *id]);
                self.now.prepared.retain(|each| each != id);
                self.query(1, "XA COMMIT X'00',X'',1");
            }
            Change::StartAlter => {
                self.begin(gtid, DDL, 8, &[2]);
                self.now.altering.push(gtid);
                self.query(1, "ALTER TABLE t FORCE");
            }
            Change::CommitAlter => {
                let begun = self.now.altering.first().map_or(1, |gtid| gtid.sequence);
                let more = [&[4][..], &begun.to_le_bytes()].concat();
                self.begin(gtid, DDL, 8, &more);
                self.now.altering.retain(|gtid| gtid.sequence != begun);
                self.query(1, "ALTER TABLE t FORCE");
            }
            Change::Incident => {
                self.next -= 1;
                self.now.barriers.push(Barrier::Incident);
                self.write(EventType::INCIDENT, 1, 0, b"\x01\x00\x04lost");
            }
        }
    }
}

proptest! {
    #[test]
    fn a_history_is_that_of_a_naive_model(changes in vec(change(), 0..40), piece in 1_usize..90) {
        let mut server = Server { log: Log::mariadb().0, ..Server::default() };
        changes.iter().for_each(|change| server.apply(change));
        let from = LogPosition::new(NAME, 256).unwrap();
        let (entries, _) = read(&server.log, usize::MAX);
        let Event::Format(format) = entries[0].event.clone() else { panic!("no description") };
        let mut reader = SentReader::at(from, format);
        let mut history = History::new(NAME, Some(GtidState::MariaDb(GtidPosition::default())));
        let (mut found, mut bytes) = (Model::default(), Vec::new());
        let mut after = server.after.iter();
        for mut input in server.log[256..].chunks(piece) {
            while let Some(event) = reader.next(&mut input, &mut bytes).unwrap() {
                let step = history.push(event.entry()).unwrap();
                found.whole.extend(step.ended.iter().map(|each| (gtid(each), each.seconds)));
                found.barriers.extend(step.barrier);
                found.is_open = history.open().is_some();
                found.prepared = history.prepared().map(|xid| xid.global[0]).collect();
                found.altering = history.altering().collect();
                let Some(GtidState::MariaDb(position)) = history.gtids() else { panic!("no state") };
                found.gtids.clone_from(position);
                prop_assert_eq!(Some(&found), after.next());
            }
        }
        prop_assert!(after.next().is_none());
        prop_assert!(bytes == server.log[256..]);
    }
}

#[test]
fn a_log_has_to_continue_the_one_before_it() {
    let list = |gtids: &[(u32, u32, u64)]| {
        let mut body = u32::try_from(gtids.len()).unwrap().to_le_bytes().to_vec();
        for (domain, server, sequence) in gtids {
            body.extend([domain.to_le_bytes(), server.to_le_bytes()].concat());
            body.extend(sequence.to_le_bytes());
        }
        let log = Log::mariadb().event(EventType::GTID_LIST, &body);
        log.read().0.pop().unwrap()
    };
    let state = |text: &str| text.parse::<GtidState>().unwrap();
    let begun = |gtids: &str, entry: &Entry| {
        let mut history = History::new(NAME, Some(state(gtids)));
        history.push(entry).map(|_| history.gtids().unwrap().to_string())
    };
    let known = list(&[(0, 5, 7), (0, 1, 9)]);
    assert_eq!(begun("0-1-9", &known).unwrap(), "0-1-9");
    // The server was told to forget a domain.
    assert_eq!(begun("0-1-9,7-1-1", &known).unwrap(), "0-1-9");
    for other in ["0-1-8", "0-2-9", "", "7-1-1"] {
        assert!(matches!(begun(other, &known), Err(Error::History { .. })), "{other}");
    }
    // But it has one, unless its logs began anew.
    let none = list(&[]);
    assert!(matches!(begun("0-1-9", &none), Err(Error::History { .. })));
    assert_eq!(begun("", &none).unwrap(), "");
    let mut unknown = History::new(NAME, None);
    unknown.push(&known).unwrap();
    assert_eq!(unknown.gtids(), Some(&state("0-1-9")));
    let mysql = "11111111-2222-3333-4444-555555555555:1-5";
    assert!(matches!(begun(mysql, &known), Err(Error::OtherFork { .. })));
}

#[test]
fn a_crash_ends_a_transaction_that_has_no_end() {
    let (entries, _) = Log::mariadb().gtid(5, 0).event(EventType(30), &[0; 9]).read();
    let mut history = History::new(NAME, Some("0-1-4".parse().unwrap()));
    for entry in &entries {
        history.push(entry).unwrap();
    }
    let open = history.open().cloned().unwrap();
    assert_eq!((open.begin, open.first.gtid()), (256, Some("0-1-5".parse().unwrap())));
    let mut reader = SentReader::new(ChecksumKind::None);
    let (_, events) = sent(&mut reader, &[rotation(4, "bin.000002")], 9).unwrap();
    let step = history.push(events[0].entry()).unwrap();
    assert_eq!((step.abandoned, step.ended), (Some(Box::new(open)), None));
    assert_eq!((history.log(), history.open()), ("bin.000002", None));
    assert_eq!(history.gtids().unwrap().to_string(), "0-1-4");
}
