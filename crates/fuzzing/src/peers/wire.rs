//! Input from a peer of a state transfer, before and after it is trusted.

use std::io::{self, Read};

use xb_wire::Announcement;
use xb_wire::parsers::{
    Ack, DataHead, Disposition, Hello, Inbound, Item, Message, Pool, StopCode, StopMessage,
    Welcome, parse_banner,
};

/// A reader that returns its bytes in pieces, with nothing available in between.
struct Pieces<'a> {
    bytes: &'a [u8],
    most: usize,
    dry: bool,
}

impl Read for Pieces<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.dry = !self.dry;
        if self.dry && self.most != usize::MAX {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let n = self.most.min(out.len()).min(self.bytes.len());
        let (now, later) = self.bytes.split_at(n);
        out[..n].copy_from_slice(now);
        self.bytes = later;
        Ok(n)
    }
}

fn items(bytes: &[u8], most: usize) -> Vec<String> {
    let mut from = Pieces { bytes, most, dry: false };
    let (mut inbound, pool) = (Inbound::default(), Pool::new(64 << 10, 2));
    let disposition = |head: &DataHead| {
        Ok(if head.number.is_multiple_of(2) { Disposition::Keep } else { Disposition::Skip })
    };
    let mut items = Vec::new();
    loop {
        match inbound.next(&mut from, &pool, disposition) {
            Ok(Some(item)) => {
                if let Item::Message(message) = &item {
                    let _ = message.write();
                }
                items.push(format!("{item:?}"));
            }
            Ok(None) => {}
            Err(error) => {
                items.push(error.to_string());
                return items;
            }
        }
    }
}

/// Any bytes as the first line of a peer, and as messages in any pieces: no panic, and the
/// same items however they are cut. Half of the inputs get matching checksums first.
pub(crate) fn inbound(data: &[u8]) {
    let _ = parse_banner(data);
    let Some((&piece, data)) = data.split_first() else { return };
    let mut data = data.to_vec();
    if piece & 1 == 1 {
        let _ = mend(&mut data);
    }
    let data = &data[..];
    assert_eq!(items(data, usize::MAX), items(data, usize::from(piece) + 1));
}

/// Any text as a joiner's announcement: no panic, and what is accepted is written as the same text.
pub(crate) fn announcement(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (address, secret) = match text.split_once('\n') {
        Some((address, secret)) => (address, Some(secret)),
        None => (text, None),
    };
    if let Ok(read) = Announcement::parse(address, secret) {
        let text = read.text();
        let again = Announcement::parse(&text, None).expect("our own");
        assert_eq!(*again.text(), *text);
    }
}

/// Sets the checksums of all messages, as far as the stated lengths lead.
fn mend(messages: &mut [u8]) -> Option<()> {
    let mut at = 0;
    loop {
        let head = messages.get(at..at + 12)?;
        let len = u32::from_le_bytes(*head[4..].first_chunk()?) as usize;
        // The checksum of a block that is not summed covers only the fields before its payload.
        let summed = if (head[0], head[1]) == (4, 0) { len.min(16) } else { len };
        let covered = [&head[..8], messages.get(at + 12..at + 12 + summed)?].concat();
        messages[at + 8..at + 12].copy_from_slice(&xb_frame::crc32c(&covered).to_le_bytes());
        at += 12 + len;
    }
}

pub(crate) fn inbound_seeds() -> Vec<Vec<u8>> {
    let ack =
        Ack { next: 3, credit_bytes: 9 << 20, credit_blocks: 70, ranges: vec![(5, 6), (8, 9)] };
    let hello = Hello {
        min_version: 1,
        max_version: 1,
        capabilities: 0,
        transfer: [7; 16],
        connection: 0,
        key: Some([9; 32].into()),
        proof: [8; 32],
        offer: b"an offer".to_vec(),
    };
    let stop = StopMessage { code: StopCode::Refused, reason: "no room".into() };
    let welcome =
        Welcome { version: 1, connections: 4, capabilities: 0, proof: [1; 32], have: ack.clone() };
    let messages = [
        Message::Hello(Box::new(hello)),
        Message::Welcome(welcome),
        Message::Answer(b"yes".to_vec()),
        Message::Ack(ack),
        Message::Fin { blocks: 3, bytes: 300 },
        Message::Confirm,
        Message::Bye,
        Message::Stop(stop),
        Message::Ping(1),
        Message::Pong(1),
    ];
    let mut written: Vec<Vec<u8>> = messages.iter().map(Message::write).collect();
    // Flags: the checksum covers the payload; the stream begins again.
    for flags in 0..4 {
        // A block: number, offset, payload.
        let payload = [&[2_u8; 8][..], &[0; 8], b"payload"].concat();
        let head = [4, flags, 0, 0, payload.len() as u8, 0, 0, 0, 0, 0, 0, 0];
        written.push([&head[..], &payload].concat());
    }
    let banner = b"XBRS/1 ready\n".to_vec();
    let all = written.concat();
    crate::inputs::with_head(&[1], written.into_iter().chain([all, banner]))
}

pub(crate) fn text_seeds() -> Vec<Vec<u8>> {
    let (digest, secret) = ("0a".repeat(32), "0b".repeat(32));
    let texts = [
        format!("10.0.0.1:4444/xbrs/sha256:{digest}/1\nxbrs:{secret}"),
        format!("xbrs:{secret}@[2001:db8::1]:4444/xbrs/sha256:{digest}/1"),
        "db1.example:4444/xbrs/plain/1".to_owned(),
        format!("db1/xbrs/cert:{digest}/1"),
        "10.0.0.1:4444/xtrabackup_sst//1".to_owned(),
    ];
    texts.map(String::into_bytes).into()
}
