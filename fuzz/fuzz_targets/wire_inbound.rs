//! Any bytes as the first line of a peer, and as messages in any pieces: no panic, the same items
//! however they are cut, and every message is written as it was read.
#![no_main]

use std::io::{self, Read};

use libfuzzer_sys::fuzz_target;
use xb_wire::parsers::{DataHead, Inbound, Item, Disposition, Pool, parse_banner};

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
    let disposition = |head: &DataHead| Ok(if head.number % 2 == 0 { Disposition::Keep } else { Disposition::Skip });
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

fuzz_target!(|data: &[u8]| {
    let _ = parse_banner(data);
    let Some((&piece, data)) = data.split_first() else { return };
    assert_eq!(items(data, usize::MAX), items(data, usize::from(piece) + 1));
});
