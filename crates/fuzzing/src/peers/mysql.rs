//! A server's side of a MySQL connection: greeting, login, results.

use xb_mysql::{
    Account, Channel, DumpItem, DumpReply, Error, Greeting, Login, Packets, Reply, Step,
    capabilities as can,
};

use crate::inputs::with_head;

/// Bytes that one packet may have.
const LIMIT: usize = 1 << 20;

/// Any bytes as those of a server. The first byte chooses the channel, what the client asked for, and
/// the size of the pieces in which the others arrive; however they arrive, they mean the same.
pub(crate) fn session(data: &[u8]) {
    let Some((&how, bytes)) = data.split_first() else { return };
    let whole = Session { how, packets: Packets::new(LIMIT), pieces: vec![bytes] }.outcome();
    let mut pieces: Vec<&[u8]> = bytes.chunks(usize::from(how >> 4) + 1).collect();
    pieces.reverse();
    let split = Session { how, packets: Packets::new(LIMIT), pieces }.outcome();
    assert_eq!(whole, split);
}

struct Session<'a> {
    how: u8,
    packets: Packets,
    /// The pieces that have not arrived, the last one first.
    pieces: Vec<&'a [u8]>,
}

impl Session<'_> {
    /// Everything that the bytes mean, and the error at their end.
    fn outcome(mut self) -> (Vec<String>, String) {
        let mut said = Vec::new();
        let end = self.exchange(&mut said).map_err(|error| error.to_string());
        (said, end.err().unwrap_or_default())
    }

    fn exchange(&mut self, said: &mut Vec<String>) -> Result<(), Error> {
        let account = Account {
            user: b"root".to_vec(),
            password: b"secret".to_vec().into(),
            database: Vec::new(),
        };
        let Some(packet) = self.next()? else { return Ok(()) };
        let greeting = Greeting::parse(&packet)?;
        said.push(format!("{greeting:?}"));
        let channel = if self.how & 1 == 0 { Channel::Plain } else { Channel::Socket };
        let (mut login, first) = Login::begin(&greeting, &account, channel)?;
        let _ = self.packets.frame(&first);
        loop {
            let Some(packet) = self.next()? else { return Ok(()) };
            match login.receive(&packet)? {
                Step::Send(answer) => drop(self.packets.frame(&answer)),
                Step::Wait => {}
                Step::Done => break,
            }
        }
        let mut capabilities = login.capabilities();
        for (bit, capability) in [
            (2, can::SESSION_TRACK),
            (4, can::MARIADB_EXTENDED_METADATA | can::MARIADB_CACHE_METADATA),
            (8, can::DEPRECATE_EOF),
        ] {
            if self.how & bit != 0 {
                capabilities ^= capability;
            }
        }
        while !self.pieces.is_empty() {
            self.packets.begin_command();
            let _ = self.packets.frame(&[]);
            let mut reply = Reply::new(capabilities);
            while !reply.is_complete() {
                let Some(packet) = self.next()? else { return Ok(()) };
                match reply.receive(packet) {
                    Err(Error::Server(error)) => said.push(error.to_string()),
                    event => said.extend(event?.map(|event| format!("{event:?}"))),
                }
            }
        }
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Vec<u8>>, Error> {
        while let Some(mut piece) = self.pieces.pop() {
            let packet = self.packets.take(&mut piece)?;
            if !piece.is_empty() {
                self.pieces.push(piece);
            }
            if packet.is_some() {
                return Ok(packet);
            }
        }
        Ok(None)
    }
}

/// Any bytes as a server's answer to a request for its binary log: however they arrive, they mean the same.
pub(crate) fn dump(data: &[u8]) {
    let Some((&how, bytes)) = data.split_first() else { return };
    assert_eq!(dumped(bytes, usize::MAX), dumped(bytes, usize::from(how) + 1));
}

/// The events, one after the other with the end of each, and the error at their end.
fn dumped(bytes: &[u8], piece: usize) -> (Vec<Vec<u8>>, String) {
    let (mut packets, mut reply) = (Packets::new(LIMIT), DumpReply::new());
    let mut events = vec![Vec::new()];
    for mut input in bytes.chunks(piece) {
        loop {
            match reply.take(&mut packets, &mut input) {
                Ok(Some(DumpItem::Event(part))) => {
                    events.last_mut().unwrap().extend_from_slice(part.bytes);
                    if part.is_last {
                        events.push(Vec::new());
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

/// Events in packets, an error, and an end.
pub(crate) fn dump_seeds() -> Vec<Vec<u8>> {
    let answer = |payloads: &[&[u8]]| {
        let mut packets = Packets::new(0);
        let framed: Vec<u8> = payloads.iter().flat_map(|each| packets.frame(each)).collect();
        [&[4][..], &framed].concat()
    };
    let event = b"\0\0\0\0\0\x1b\x01\0\0\0\x1d\0\0\0\x90\x01\0\0\0\0bin.000001";
    vec![
        answer(&[event, event, b"\xff\xd4\x04#HY000Could not find first log file name"]),
        answer(&[event, b"\xfe\0\0\0\0"]),
    ]
}

/// Recorded connections, each with what its client had asked for, and with what ours asks for.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let recorded = || {
        let all = xb_testkit::vectors::all("mysql", ".server").into_iter();
        all.map(|(_, content)| content)
    };
    [0x01, 0x33, 0x3b, 0x3f, 0xf7]
        .into_iter()
        .flat_map(|how| with_head(&[how], recorded()))
        .collect()
}
