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

/// What a replica says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replica {
    /// Its `server_id`. A server ends the connection of another replica with the same one.
    pub server_id: u32,
    /// Name of its host, for `SHOW SLAVE HOSTS`; it is cut to 60 bytes.
    pub host: String,
    /// Time after which an idle server gives a sign of life.
    pub heartbeat: Duration,
}

/// Where the server begins to send.
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

/// What the server sends after it was asked for a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dumped<'a> {
    /// Bytes of an event, in order. A packet holds one event.
    Event(Part<'a>),
    /// The server sends no more.
    End,
}

/// The answer to a request for a log, as a state machine: memory does not grow with an event.
#[derive(Debug, Default)]
pub struct DumpReply {
    packet: Packet,
}

#[derive(Debug, Default)]
enum Packet {
    /// The next byte is the first of a packet.
    #[default]
    First,
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

    /// Takes bytes from the front of `input`; `None` if it has no more.
    ///
    /// # Errors
    /// [`Error::Server`] is the server's reason to send nothing more. After any error the connection cannot be
    /// used.
    pub fn take<'a>(
        &mut self,
        packets: &mut Packets,
        input: &mut &'a [u8],
    ) -> Result<Option<Dumped<'a>>, Error> {
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
    ) -> Result<Option<Dumped<'a>>, Error> {
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
                self.packet = match *first {
                    OK => Packet::Event,
                    ERR => Packet::Error(vec![ERR]),
                    EOF => Packet::End,
                    _ => return Err(Error::Malformed { packet: "of a binary log" }),
                };
            }
            match &mut self.packet {
                Packet::Error(bytes) => {
                    if part.bytes.len() > MAX_ERROR - bytes.len() {
                        return Err(Error::TooLong { limit: MAX_ERROR });
                    }
                    bytes.extend_from_slice(part.bytes);
                    if part.is_last {
                        return Err(ServerError::parse(bytes)?.into());
                    }
                }
                Packet::End => return Ok(Some(Dumped::End)),
                _ => {
                    if part.is_last {
                        self.packet = Packet::First;
                    }
                    return Ok(Some(Dumped::Event(part)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica() -> Replica {
        Replica { server_id: 0x8000_0001, host: "h".repeat(70), heartbeat: Duration::from_secs(5) }
    }

    /// What follows from these payloads: events, and how it ends.
    fn outcome(payloads: &[&[u8]], piece: usize) -> (Vec<Vec<u8>>, String) {
        let mut framer = Packets::new(0);
        let bytes: Vec<u8> = payloads.iter().flat_map(|payload| framer.frame(payload)).collect();
        let (mut packets, mut reply) = (Packets::new(1 << 24), DumpReply::new());
        let (mut events, mut current) = (Vec::new(), Vec::new());
        for mut input in bytes.chunks(piece) {
            loop {
                match reply.take(&mut packets, &mut input) {
                    Ok(Some(Dumped::Event(part))) => {
                        current.extend_from_slice(part.bytes);
                        if part.is_last {
                            events.push(std::mem::take(&mut current));
                        }
                    }
                    Ok(Some(Dumped::End)) => return (events, "end".to_owned()),
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
