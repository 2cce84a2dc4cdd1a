//! The rows that a server lists for a log of its own, and the same rows from our events.
#![allow(dead_code, reason = "not every test uses all of it")]

use xb_binlog::{
    Alter, Begin, Entry, Error, Event, LogEnd, MySqlBegin, Reader, Transaction, Transactions, Uuid,
};

/// One row of `SHOW BINLOG EVENTS`: position, type, server, end, and what identifies the event.
pub(crate) type Row = (u64, String, u32, u64, String);

/// Everything that is read from a log, in pieces of this size.
pub(crate) fn read(log: &[u8], piece: usize) -> (Vec<Entry>, Result<LogEnd, Error>) {
    let mut reader = Reader::new();
    let mut entries: Vec<Entry> = Vec::new();
    for mut input in log.chunks(piece.max(1)) {
        loop {
            match reader.next(&mut input) {
                Ok(Some(entry)) => {
                    let begin = entries.last().map_or(4, |last| last.end);
                    assert_eq!(entry.begin, begin, "a gap between events");
                    entries.push(entry);
                }
                Ok(None) => break,
                Err(error) => return (entries, Err(error)),
            }
        }
        assert!(input.is_empty(), "an input that is not used up");
    }
    (entries, reader.finish())
}

/// The transactions of a log, and whether one is open at its end.
pub(crate) fn transactions(entries: &[Entry]) -> Result<(Vec<Transaction>, bool), Error> {
    let mut tracker = Transactions::new();
    let mut found = Vec::new();
    for entry in entries {
        found.extend(tracker.push(entry)?);
    }
    Ok((found, tracker.open().is_some()))
}

/// Rows that the server lists, from the columns Pos, Event_type, Server_id, End_log_pos and Info.
pub(crate) fn listed(text: &str) -> Vec<Row> {
    let rows = text.lines().map(|line| {
        let mut columns = line.splitn(5, '\t');
        let mut next = || columns.next().unwrap_or_else(|| panic!("columns are missing: {line}"));
        let (begin, kind, server, end) = (next(), next().to_owned(), next(), next());
        let info = identifying(&kind, next());
        (begin.parse().unwrap(), kind, server.parse().unwrap(), end.parse().unwrap(), info)
    });
    // MySQL also lists what is in a compressed transaction, at its end.
    rows.filter(|(begin, _, _, end, _)| begin != end).collect()
}

/// The part of the server's information that our events have, too.
fn identifying(kind: &str, info: &str) -> String {
    match kind {
        "Gtid" | "Gtid_tagged_log_event" | "Anonymous_Gtid" => match info.split_once("GTID ") {
            Some((_, gtid)) => gtid.to_owned(),
            None => info.trim_start_matches("SET @@SESSION.GTID_NEXT= ").replace('\'', ""),
        },
        "Gtid_list" => info.trim_matches(['[', ']']).to_owned(),
        "Previous_gtids" => info.replace("\\n", ""),
        "Rotate" | "Xid" => info.to_owned(),
        _ => String::new(),
    }
}

/// Our events as the same rows.
pub(crate) fn ours(entries: &[Entry]) -> Vec<Row> {
    entries.iter().map(row).collect()
}

fn row(entry: &Entry) -> Row {
    let info = match &entry.event {
        Event::GtidList(list) => {
            // The server sorts what it lists.
            let mut sorted = list.as_slice().to_vec();
            sorted.sort_unstable();
            sorted.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
        }
        Event::PreviousGtids(set) => set.to_string(),
        Event::MariaDbBegin(begin) => {
            let alter = match begin.alter {
                None => String::new(),
                Some(Alter::Start) => " START ALTER".to_owned(),
                Some(Alter::Commit(id)) => format!(" COMMIT ALTER id={id}"),
                Some(Alter::Rollback(id)) => format!(" ROLLBACK ALTER id={id}"),
            };
            let group = begin.commit_id.map(|id| format!(" cid={id}")).unwrap_or_default();
            format!("{}{group}{alter}", begin.gtid)
        }
        Event::MySqlBegin(MySqlBegin { gtid: Some(gtid), .. }) => gtid.to_string(),
        Event::MySqlBegin(_) => "ANONYMOUS".to_owned(),
        Event::Rotate(rotate) => format!("{};pos={}", rotate.file, rotate.offset),
        Event::Xid(number) => format!("COMMIT /* xid={number} */"),
        _ => String::new(),
    };
    let kind = entry.header.event_type.name().unwrap_or("unknown").to_owned();
    // As the server states it, which may be 0.
    let end = u64::from(entry.header.end);
    (entry.begin, kind, entry.header.server_id, end, info)
}

/// The GTID of a transaction as text.
pub(crate) fn gtid(transaction: &Transaction) -> String {
    match &transaction.first {
        Begin::MariaDb(begin) => begin.gtid.to_string(),
        Begin::MySql(begin) => begin.gtid.as_ref().map(ToString::to_string).unwrap_or_default(),
    }
}

/// A UUID of one digit.
pub(crate) fn uuid(digit: u8) -> Uuid {
    Uuid([digit; 16])
}
