//! A replica's side: what it tells the server, the request for a binary log, and the answer.
//! (MySQL: "COM_BINLOG_DUMP", "COM_REGISTER_SLAVE"; MariaDB: "Replication Protocol", "GTID Replication".)

use std::time::Duration;

use crate::error::{Error, ServerError};
use crate::packet::{Packets, Part};
use crate::reply::Command;
use crate::response::{EOF, ERR, OK};

const REGISTER: u8 = 0x15;
const DUMP: u8 = 0x12;
/// MariaDB sends the events that hold the text of statements whose rows are logged. MySQL passes it over.
const ANNOTATE: u16 = 2;
/// A replica that understands GTIDs of MariaDB: the server sends its events unchanged.
const CAPABILITY: u8 = 4;
/// Longest host name that a server accepts, in bytes.
const MAX_HOST: usize = 60;
/// Longest error packet that is read, in bytes.
const MAX_ERROR: usize = 64 << 10;
/// First byte of what semi-synchronous replication adds: to each event with a flag, to an acknowledgement with a position.
/// ("Semi-Synchronous Replication Protocol", documentation of MariaDB Server)
const SEMI_SYNC: u8 = 0xef;
const ASKS: u8 = 1;

/// The packet that acknowledges everything up to an offset of a log.
pub(crate) fn acknowledgement(log: &str, offset: u64) -> Vec<u8> {
    [&[SEMI_SYNC][..], &offset.to_le_bytes(), log.as_bytes()].concat()
}

/// Identity that a replica announces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replica {
    /// Its `server_id`. A server ends the connection of another replica with the same one.
    pub server_id: u32,
    /// Name of its host, for `SHOW SLAVE HOSTS`; it is cut to 60 bytes.
    pub host: String,
    /// Time after which an idle server gives a sign of life.
    pub heartbeat: Duration,
    /// It acknowledges what it has stored, so that a server with semi-synchronous replication waits for it.
    pub acknowledges: bool,
}

/// Position at which the server begins to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// At an offset of a log, where an event begins; 4 is the first event. The log's name is that of
    /// `SHOW BINARY LOGS`. The protocol has no offset of 4 GiB or more.
    Position {
        /// Name of the log.
        log: String,
        /// Offset in bytes.
        offset: u32,
    },
    /// MariaDB: behind these GTIDs, one of each domain, as in `gtid_slave_pos`. The server chooses the log.
    Gtids(String),
}

impl Replica {
    /// The statement that prepares a connection. Its answer has no rows.
    pub(crate) fn settings(&self, start: &Start) -> String {
        let heartbeat = self.heartbeat.as_nanos();
        // The server sends checksums as its logs have them only to a replica that says so.
        // MySQL has other names since 8.0.26; a server passes over those that it does not know.
        let mut sql = format!(
            "SET @master_heartbeat_period = {heartbeat}, @source_heartbeat_period = {heartbeat}, \
             @master_binlog_checksum = @@global.binlog_checksum, \
             @source_binlog_checksum = @@global.binlog_checksum, \
             @mariadb_slave_capability = {CAPABILITY}"
        );
        if self.acknowledges {
            sql.push_str(", @rpl_semi_sync_slave = 1, @rpl_semi_sync_replica = 1");
        }
        if let Start::Gtids(gtids) = start {
            // Digits, hyphens and commas are all that a position of GTIDs can have.
            let kept = |c: &char| c.is_ascii_digit() || matches!(c, '-' | ',');
            let gtids: String = gtids.chars().filter(kept).collect();
            sql.push_str(&format!(
                ", @slave_connect_state = '{gtids}', @slave_gtid_strict_mode = 0, \
                 @slave_gtid_ignore_duplicates = 0"
            ));
        }
        sql
    }

    /// The command that names the replica to the server.
    pub(crate) fn register(&self) -> Vec<u8> {
        let host = self.host.as_bytes();
        let host = host.get(..MAX_HOST).unwrap_or(host);
        let mut body = self.server_id.to_le_bytes().to_vec();
        body.push(u8::try_from(host.len()).unwrap_or_default());
        body.extend_from_slice(host);
        // No user, no password, no port, rank and source unused.
        body.extend([0; 2 + 2 + 4 + 4]);
        Command::Other(REGISTER, &body).payload()
    }

    /// The command that asks for a log.
    pub(crate) fn dump(&self, start: &Start) -> Vec<u8> {
        let (log, offset) = match start {
            Start::Position { log, offset } => (log.as_str(), *offset),
            Start::Gtids(_) => ("", 4),
        };
        let mut body = offset.to_le_bytes().to_vec();
        body.extend(ANNOTATE.to_le_bytes());
        body.extend(self.server_id.to_le_bytes());
        body.extend(log.as_bytes());
        Command::Other(DUMP, &body).payload()
    }
}

/// Item of a log that a server sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DumpItem<'a> {
    /// Bytes of an event, in order. A packet holds one event.
    Event(Part<'a>),
    /// The server sends no more.
    End,
}

/// The answer to a request for a log, as a state machine: memory does not grow with an event.
#[derive(Debug, Default)]
pub struct DumpReply {
    packet: Packet,
    marks: Marks,
    /// The present packet asks for an acknowledgement.
    asks: bool,
    /// One that ended did.
    has_asked: bool,
}

/// Whether events have what semi-synchronous replication adds.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Marks {
    /// Not on this connection.
    #[default]
    No,
    /// They may: the first event shows it. It names the log and has no time, so that its first byte is 0.
    Unknown,
    Yes,
    /// The replica has offered to acknowledge, and the server does not ask it to.
    Declined,
}

#[derive(Debug, Default)]
enum Packet {
    /// The next byte is the first of a packet.
    #[default]
    First,
    /// The next byte is the first that semi-synchronous replication adds, or the second.
    Mark,
    Flag,
    Event,
    Error(Vec<u8>),
    End,
    Failed,
}

impl DumpReply {
    /// Begins an answer.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins an answer to a replica that acknowledges.
    #[must_use]
    pub fn semi_sync() -> Self {
        Self { marks: Marks::Unknown, ..Self::default() }
    }

    /// Returns whether the replica has offered to acknowledge, and the server does not ask it to: its first event shows it.
    #[must_use]
    pub fn is_declined(&self) -> bool {
        self.marks == Marks::Declined
    }

    /// Returns whether the server has asked for an acknowledgement since the last call of [`DumpReply::take_request`].
    pub(crate) fn has_request(&self) -> bool {
        self.has_asked
    }

    /// Returns whether the server has asked for an acknowledgement of what it has sent, since the last call.
    pub fn take_request(&mut self) -> bool {
        std::mem::take(&mut self.has_asked)
    }

    /// Takes bytes from the front of `input`; `None` if it has no more.
    ///
    /// # Errors
    /// [`Error::Server`] is the server's reason to send nothing more. After any error the connection cannot be
    /// used.
    pub fn take<'a>(
        &mut self,
        packets: &mut Packets,
        input: &mut &'a [u8],
    ) -> Result<Option<DumpItem<'a>>, Error> {
        let result = self.step(packets, input);
        if result.is_err() {
            self.packet = Packet::Failed;
        }
        result
    }

    fn step<'a>(
        &mut self,
        packets: &mut Packets,
        input: &mut &'a [u8],
    ) -> Result<Option<DumpItem<'a>>, Error> {
        loop {
            if matches!(self.packet, Packet::End | Packet::Failed) {
                return Err(Error::Unusable);
            }
            let Some(mut part) = packets.part(input)? else { return Ok(None) };
            if matches!(self.packet, Packet::First) {
                let Some((first, rest)) = part.bytes.split_first() else {
                    return Err(Error::Malformed { packet: "of a binary log" });
                };
                part.bytes = rest;
                self.asks = false;
                self.packet = match *first {
                    OK if matches!(self.marks, Marks::Unknown | Marks::Yes) => Packet::Mark,
                    OK => Packet::Event,
                    ERR => Packet::Error(vec![ERR]),
                    EOF => Packet::End,
                    _ => return Err(Error::Malformed { packet: "of a binary log" }),
                };
            }
            while let Packet::Mark | Packet::Flag = self.packet
                && let Some((byte, rest)) = part.bytes.split_first()
            {
                // A server without the plugin, or on which it is off.
                if self.marks == Marks::Unknown && *byte != SEMI_SYNC {
                    self.marks = Marks::Declined;
                    self.packet = Packet::Event;
                    break;
                }
                self.packet = match (&self.packet, *byte) {
                    (Packet::Mark, SEMI_SYNC) => {
                        self.marks = Marks::Yes;
                        Packet::Flag
                    }
                    (Packet::Flag, flag) => {
                        self.asks = flag & ASKS != 0;
                        Packet::Event
                    }
                    _ => return Err(Error::Malformed { packet: "of a binary log" }),
                };
                part.bytes = rest;
            }
            match &mut self.packet {
                Packet::Mark | Packet::Flag if part.is_last => {
                    return Err(Error::Malformed { packet: "of a binary log" });
                }
                Packet::Mark | Packet::Flag => {}
                Packet::Error(bytes) => {
                    if part.bytes.len() > MAX_ERROR - bytes.len() {
                        return Err(Error::TooLong { limit: MAX_ERROR });
                    }
                    bytes.extend_from_slice(part.bytes);
                    if part.is_last {
                        return Err(ServerError::parse(bytes)?.into());
                    }
                }
                Packet::End => return Ok(Some(DumpItem::End)),
                _ => {
                    if part.is_last {
                        self.packet = Packet::First;
                        if self.asks {
                            self.has_asked = true;
                            // The server numbers its packets anew.
                            packets.begin_reply();
                        }
                    }
                    return Ok(Some(DumpItem::Event(part)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica() -> Replica {
        Replica {
            server_id: 0x8000_0001,
            host: "h".repeat(70),
            heartbeat: Duration::from_secs(5),
            acknowledges: false,
        }
    }

    /// Returns the events in these payloads, and the end.
    fn outcome(payloads: &[&[u8]], piece: usize) -> (Vec<Vec<u8>>, String) {
        let mut framer = Packets::new(0);
        let bytes: Vec<u8> = payloads.iter().flat_map(|payload| framer.frame(payload)).collect();
        let (mut packets, mut reply) = (Packets::new(1 << 24), DumpReply::new());
        let (mut events, mut current) = (Vec::new(), Vec::new());
        for mut input in bytes.chunks(piece) {
            loop {
                match reply.take(&mut packets, &mut input) {
                    Ok(Some(DumpItem::Event(part))) => {
                        current.extend_from_slice(part.bytes);
                        if part.is_last {
                            events.push(std::mem::take(&mut current));
                        }
                    }
                    Ok(Some(DumpItem::End)) => return (events, "end".to_owned()),
                    Ok(None) => break,
                    Err(error) => return (events, error.to_string()),
                }
            }
        }
        (events, String::new())
    }

    #[test]
    fn events_errors_and_the_end_are_told_apart_in_any_pieces() {
        let purged = b"\xff\xd4\x04#HY000Could not find first log file name";
        let long = vec![0; (1 << 24) + 70];
        for piece in [1, 3, 1 << 20] {
            let (events, end) = outcome(&[b"\0one", b"\0\xff\xfe", purged, b"\0no"], piece);
            assert_eq!(events, [b"one".to_vec(), b"\xff\xfe".to_vec()]);
            assert_eq!(end, "error 1236 (HY000): Could not find first log file name");
            assert_eq!(outcome(&[b"\xfe\0\0\0\0"], piece).1, "end");
            for bad in [&b""[..], b"\x01", b"\xfb/etc/passwd", b"\xff"] {
                assert!(!outcome(&[bad], piece).1.is_empty(), "{bad:?}");
            }
            let endless = [&b"\xff\x01\x02"[..], &long].concat();
            assert!(outcome(&[&endless], piece).1.contains("65536 bytes"));
        }
        let (events, end) = outcome(&[&long, b"\0x"], 1 << 16);
        assert_eq!((events.len(), events[0].len(), end), (2, long.len() - 1, String::new()));
    }

    #[test]
    fn requests_for_acknowledgements_are_taken_off_in_any_pieces() {
        let mut framer = Packets::new(0);
        let mut bytes = framer.frame(b"\0\xef\0plain");
        bytes.extend(framer.frame(b"\0\xef\x01asks"));
        let mut anew = Packets::new(0);
        anew.begin_reply();
        bytes.extend(anew.frame(b"\0\xef\0anew"));
        for piece in [1, 2, 5, 100] {
            let mut packets = Packets::new(1 << 24);
            packets.begin_command();
            let mut reply = DumpReply::semi_sync();
            let (mut events, mut current, mut asked) = (Vec::new(), Vec::new(), Vec::new());
            for mut input in bytes.chunks(piece) {
                while let Some(DumpItem::Event(part)) =
                    reply.take(&mut packets, &mut input).unwrap()
                {
                    current.extend_from_slice(part.bytes);
                    if part.is_last {
                        events.push(std::mem::take(&mut current));
                        asked.push(reply.take_request());
                    }
                }
            }
            assert_eq!(
                events,
                [b"plain", b"asks\0", b"anew\0"]
                    .map(|e| e.strip_suffix(b"\0").unwrap_or(e).to_vec())
            );
            assert_eq!(asked, [false, true, false]);
        }
        let mut packets = Packets::new(1 << 24);
        for bad in [&b"\0"[..], b"\0\xef"] {
            let bytes = Packets::new(0).frame(bad);
            packets.begin_command();
            assert!(DumpReply::semi_sync().take(&mut packets, &mut &bytes[..]).is_err(), "{bad:?}");
        }
        assert_eq!(acknowledgement("b.1", 258), b"\xef\x02\x01\0\0\0\0\0\0b.1");
    }

    #[test]
    fn a_first_event_without_the_mark_says_that_the_server_does_not_wait() {
        let sent = |payloads: &[&[u8]], piece: usize| {
            let mut framer = Packets::new(0);
            framer.begin_reply();
            let bytes: Vec<u8> = payloads.iter().flat_map(|one| framer.frame(one)).collect();
            let mut packets = Packets::new(1 << 24);
            packets.begin_reply();
            let mut reply = DumpReply::semi_sync();
            let (mut events, mut current) = (Vec::new(), Vec::new());
            for mut input in bytes.chunks(piece) {
                while let Some(dumped) = reply.take(&mut packets, &mut input)? {
                    let DumpItem::Event(part) = dumped else { panic!() };
                    current.extend_from_slice(part.bytes);
                    assert!(!reply.take_request());
                    if part.is_last {
                        events.push(std::mem::take(&mut current));
                    }
                }
            }
            Ok::<_, Error>((events, reply.is_declined()))
        };
        for piece in [1, 2, 5, 100] {
            // Later events may begin with any byte.
            let (events, is_declined) = sent(&[b"\0\0one", b"\0\xef\x01two"], piece).unwrap();
            assert_eq!(events, [b"\0one".to_vec(), b"\xef\x01two".to_vec()]);
            assert!(is_declined);
            let (events, is_declined) = sent(&[b"\0\xef\0\0one"], piece).unwrap();
            assert_eq!(events, [b"\0one".to_vec()]);
            assert!(!is_declined);
            // Once there are marks, all events have them.
            assert!(sent(&[b"\0\xef\0\0one", b"\0\0two"], piece).is_err());
        }
    }

    #[test]
    fn a_replica_says_what_the_protocol_has() {
        let start = Start::Position { log: "bin.000007".to_owned(), offset: 342 };
        let dump = replica().dump(&start);
        assert_eq!(dump, b"\x12\x56\x01\0\0\x02\0\x01\0\0\x80bin.000007");
        let register = replica().register();
        assert_eq!(register[..6], *b"\x15\x01\0\0\x80\x3c");
        assert_eq!(register.len(), 6 + 60 + 12);
        let sql = replica().settings(&start);
        assert!(sql.contains("= 5000000000,") && !sql.contains("connect_state"), "{sql}");
        let sql = replica().settings(&Start::Gtids("0-1-2,1-1-3'; DROP TABLE t".to_owned()));
        assert!(sql.contains("@slave_connect_state = '0-1-2,1-1-3',"), "{sql}");
    }
}
