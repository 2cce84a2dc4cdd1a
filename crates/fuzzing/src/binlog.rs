//! Binary logs of both forks.

use xb_binlog::{
    AnyGtid, Change, ChecksumKind, Content, ContentDigest, Entry, Error, Event, Fork, Gtid,
    GtidPosition, GtidSet, GtidState, HEADER_LEN, History, LogEnd, LogPosition, Payload, Reader,
    RelayPlan, RelayWriter, ReplayStop, SentEvent, SentReader, Stretch,
};

/// Logs without checksums, so that changed events are decoded. Each begins with a description of this
/// length.
const LOGS: [(&[u8], usize); 2] = [
    (include_bytes!("../../../fixtures/binlog/mariadb.000003-no-checksum"), 256),
    (include_bytes!("../../../fixtures/binlog/mysql.000003-no-checksum"), 127),
];

const NAME: &str = "bin.000001";
/// The server names the log that it sends, from its first event on.
const ROTATION: &[u8] =
    b"\0\0\0\0\x04\x01\0\0\0\x25\0\0\0\0\0\0\0\x20\0\x04\0\0\0\0\0\0\0bin.000001";

/// Any bytes as a log, or as its events. The first byte chooses that, and the size of the pieces in which
/// they arrive; however they arrive, they mean the same.
pub(crate) fn log(data: &[u8]) {
    let Some((&how, bytes)) = data.split_first() else { return };
    let log = match how & 3 {
        0 => bytes.to_vec(),
        1 => events(LOGS[0], bytes),
        _ => events(LOGS[1], bytes),
    };
    let (entries, end) = read(&log, usize::MAX);
    let whole = (entries, end);
    assert_eq!(whole, read(&log, usize::from(how >> 2) + 1));
    let (entries, end) = whole;
    let mut at = 4;
    let mut history = History::new(NAME, None);
    let mut is_sound = true;
    for entry in &entries {
        assert!(entry.begin == at && entry.end > at && entry.end <= log.len() as u64);
        at = entry.end;
        let body = usize::try_from(entry.begin).ok().map(|begin| begin + HEADER_LEN);
        let body = body.and_then(|body| log.get(body..)).unwrap_or_default();
        let near = body.get(..Change::NEEDED).unwrap_or(body);
        let _ = Change::read(entry.header.event_type, near);
        payload(body, usize::from(how >> 2) + 1);
        if let Event::PreviousGtids(set) = &entry.event {
            assert_eq!(set.to_string().parse::<GtidSet>().as_ref(), Ok(set));
        }
        if is_sound {
            match history.push(entry) {
                Ok(step) => assert!(
                    step.ended
                        .is_none_or(|found| found.begin < found.end && found.end == entry.end)
                ),
                Err(_) => is_sound = false,
            }
        }
    }
    if end.is_ok_and(|end| end != LogEnd::Encrypted) {
        assert_eq!(at, log.len() as u64);
    }
    sent(bytes, &log, &entries, usize::from(how >> 2) + 1);
    content(&log, &entries, usize::from(how >> 2) + 1);
}

/// Any bytes as a compressed transaction: in pieces, it holds the same.
fn payload(body: &[u8], piece: usize) {
    let read = |piece: usize| {
        let (mut payload, mut found) = (Payload::new(), Vec::new());
        let whole = body
            .chunks(piece)
            .all(|part| payload.push(part, |change| found.push(change.clone())).is_some());
        (whole, found)
    };
    let (whole, found) = read(usize::MAX);
    let (in_pieces, parts) = read(piece);
    assert!(whole == in_pieces && (!whole || found == parts));
}

/// The contents of a log's transactions: read in pieces, they are the same.
fn content(log: &[u8], entries: &[Entry], piece: usize) {
    let whole = contents(log, entries, usize::MAX);
    assert_eq!(whole, contents(log, entries, piece));
    let mut stretch = Stretch::default();
    whole.iter().for_each(|content| stretch.add(content));
    let number: u64 = stretch.domains().map(|(_, domain)| domain.transactions).sum();
    assert_eq!(number, whole.len() as u64);
}

fn contents(log: &[u8], entries: &[Entry], piece: usize) -> Vec<Content> {
    let (mut history, mut digest) = (History::new(NAME, None), ContentDigest::new());
    let (mut found, mut fork) = (Vec::new(), Fork::MySql);
    for entry in entries {
        let event = usize::try_from(entry.begin).ok().zip(usize::try_from(entry.end).ok());
        let event = event.and_then(|(begin, end)| log.get(begin..end)).unwrap_or_default();
        let checksums = match entry.checksum {
            Some(_) => ChecksumKind::Crc32,
            None => ChecksumKind::None,
        };
        if let Event::Format(format) = &entry.event {
            fork = format.fork;
        }
        event.chunks(piece).for_each(|piece| digest.take(piece, fork, checksums));
        digest.end_event(entry);
        let Ok(step) = history.push(entry) else { break };
        match step.ended {
            Some(ended) => found.extend(digest.end_transaction(&ended)),
            None if history.open().is_none() => digest.clear(),
            None => {}
        }
    }
    found
}

/// Any bytes as what a server sends; and a log as what it sends of it, which are the same events.
fn sent(bytes: &[u8], log: &[u8], entries: &[Entry], piece: usize) {
    let mut reader = SentReader::new(ChecksumKind::None);
    let (mut input, mut of_log) = (bytes, Vec::new());
    while let Ok(Some(_)) = reader.next(&mut input, &mut of_log) {}
    assert!(of_log.len() <= bytes.len());

    let mut reader = SentReader::new(ChecksumKind::None);
    let (mut found, mut of_log) = (Vec::new(), Vec::new());
    let named = reader.next(&mut &ROTATION[..], &mut of_log);
    assert!(matches!(named, Ok(Some(SentEvent::Artificial(_)))) && of_log.is_empty());
    for mut input in log.get(4..).unwrap_or_default().chunks(piece) {
        while let Ok(Some(event)) = reader.next(&mut input, &mut of_log) {
            if let SentEvent::Log(entry) = event {
                found.push(entry);
            }
        }
    }
    assert!(log.get(4..).unwrap_or_default().starts_with(&of_log) || found.len() < entries.len());
    let same = found.iter().zip(entries).take_while(|(one, two)| one == two).count();
    // Events that a file must not have are passed over as those of the server.
    let artificial = entries.iter().position(|entry| {
        entry.header.flags.is_artificial()
            || matches!(entry.event, Event::Heartbeat)
            || (matches!(entry.event, Event::Format(_)) && entry.header.end == 0)
    });
    assert!(same >= artificial.unwrap_or(entries.len()), "{same} of {}", entries.len());
}

/// A log whose events have these types and bodies, with lengths and ends that are right: a type, a flag, a
/// length, and the body.
fn events((log, description): (&[u8], usize), mut bytes: &[u8]) -> Vec<u8> {
    let mut log = log[..description].to_vec();
    while let [kind, flags, len, rest @ ..] = bytes {
        let (body, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        bytes = rest;
        let length = 19 + body.len() as u32;
        let end = log.len() as u32 + length;
        log.extend([0; 4]);
        log.push(*kind);
        log.extend([1, length, end].map(u32::to_le_bytes).concat());
        log.extend([*flags, 0]);
        log.extend(body);
    }
    log
}

fn read(log: &[u8], piece: usize) -> (Vec<Entry>, Result<LogEnd, Error>) {
    let mut reader = Reader::new();
    let mut entries = Vec::new();
    for mut input in log.chunks(piece) {
        loop {
            match reader.next(&mut input) {
                Ok(Some(entry)) => entries.push(entry),
                Ok(None) => break,
                Err(error) => return (entries, Err(error)),
            }
        }
    }
    (entries, reader.finish())
}

/// Recorded logs, and their events one by one.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (how, (log, description)) in [1, 2].into_iter().zip(LOGS) {
        seeds.push([&[40], log].concat());
        let mut seed = vec![how | 40];
        for entry in read(log, usize::MAX).0.iter().filter(|entry| entry.begin > 4) {
            let body = &log[entry.begin as usize + 19..entry.end as usize];
            if body.len() < 256 {
                let head =
                    [entry.header.event_type.0, entry.header.flags.0 as u8, body.len() as u8];
                seed.extend(head);
                seed.extend(body);
            }
        }
        assert!(seed.len() > description);
        seeds.push(seed);
    }
    for (_, log) in xb_testkit::vectors::all("binlog", "-anonymous") {
        seeds.push([&[0xff - 3], &log[..]].concat());
    }
    seeds
}

/// Any bytes as a log that is to be replayed. The first three bytes choose how it is cut, the stop, whether a transaction
/// is left out, and the fork; however it is cut, the relay log is the same.
pub(crate) fn relay(data: &[u8]) {
    let Some(([how, number, fork], bytes)) = data.split_first_chunk::<3>() else { return };
    let of = LOGS[usize::from(fork & 1)];
    let log = events(of, bytes);
    let gtid: AnyGtid = match fork & 1 {
        0 => Gtid { domain: 0, server: 1, sequence: u64::from(*number) }.into(),
        _ => format!("11111111-2222-3333-4444-555555555555:{}", u64::from(*number) + 1)
            .parse()
            .unwrap(),
    };
    let stop = match how & 3 {
        0 => ReplayStop::End,
        1 => ReplayStop::After(gtid.clone()),
        2 => ReplayStop::Before(gtid.clone()),
        _ => ReplayStop::At(LogPosition::new("b.1", of.1 as u64 + u64::from(*number)).unwrap()),
    };
    let leave_out = if how & 4 == 0 { [].into() } else { [gtid].into() };
    let start = start(of.0);
    let plan = RelayPlan {
        start,
        stop,
        servers: 0,
        leave_out,
        may_leave_out_ddl: true,
        never_ended: Default::default(),
        outside: Default::default(),
    };
    let write = |piece: usize| {
        let (mut writer, mut out) = (RelayWriter::new(plan.clone()), Vec::new());
        writer.begin_log("b.1", &log[4..of.1], 4)?;
        for bytes in log[4..].chunks(piece) {
            writer.push(bytes, &mut out)?;
        }
        writer.finish().map(|end| (out, end))
    };
    let whole = write(usize::MAX);
    assert_eq!(whole, write(usize::from(how >> 3) + 1));
    if let Ok((out, end)) = whole {
        assert!(out.len() <= log.len() + 96);
        assert_eq!(out.is_empty(), end.transactions == 0);
    }
}

/// GTIDs before the recorded log.
fn start(log: &[u8]) -> GtidState {
    let lists = read(log, usize::MAX).0.into_iter().find_map(|entry| match entry.event {
        Event::GtidList(list) => Some(GtidState::MariaDb(list.position())),
        Event::PreviousGtids(set) => Some(GtidState::MySql(set)),
        _ => None,
    });
    lists.unwrap_or(GtidState::MariaDb(GtidPosition::default()))
}

/// The recorded log's events, with each stop.
pub(crate) fn relay_seeds() -> Vec<Vec<u8>> {
    let of_forks = [seeds().into_iter().nth(1), seeds().into_iter().nth(3)];
    let of_forks = of_forks.into_iter().map(Option::unwrap_or_default).enumerate();
    of_forks
        .flat_map(|(fork, events)| {
            (0..8).map(move |how| [&[how | 40, 31, fork as u8], &events[1..]].concat())
        })
        .collect()
}
