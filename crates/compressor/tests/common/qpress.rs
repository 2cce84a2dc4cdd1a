//! A qpress writer for tests: it compresses badly, but follows QuickLZ's rules.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

pub const BLOCK: usize = 64 << 10;

/// How packets are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    Stored,
    Compressed,
}

/// Writes a complete `.qp` member named `t`.
pub fn member(plain: &[u8], block: usize, packing: Packing) -> Vec<u8> {
    let mut out = head(block as u64);
    for (number, block_plain) in plain.chunks(block).enumerate() {
        let packet = packet(block_plain, packing);
        out.extend(block_head((number * block) as u64, &packet));
        out.extend(packet);
    }
    out.extend(b"ENDSENDS\0\0\0\0\0\0\0\0");
    out
}

pub fn head(block: u64) -> Vec<u8> {
    let mut out = b"qpress10".to_vec();
    out.extend(block.to_le_bytes());
    out.extend(b"F\x01\0\0\0t\0");
    out
}

pub fn block_head(offset: u64, packet: &[u8]) -> Vec<u8> {
    let mut out = b"NEWBNEWB".to_vec();
    out.extend(offset.to_le_bytes());
    out.extend(adler(packet).to_le_bytes());
    out
}

/// Adler-32 exactly as in RFC 1950, to check the fast implementation.
fn adler(bytes: &[u8]) -> u32 {
    let (a, b) = bytes.iter().fold((1, 0), |(a, b), &byte| {
        let a = (a + u32::from(byte)) % 65521;
        (a, (b + a) % 65521)
    });
    b << 16 | a
}

/// Wraps a body in a packet, with a head of 3 or 9 bytes as writers choose it.
pub fn wrap(body: &[u8], plain_len: usize, compressed: bool) -> Vec<u8> {
    let flags = 0x44 | u8::from(compressed);
    let short = plain_len < 216 && body.len() + 3 < 256;
    let mut out = vec![if short { flags } else { flags | 2 }];
    for len in [body.len() + if short { 3 } else { 9 }, plain_len] {
        out.extend(&u32::try_from(len).unwrap().to_le_bytes()[..if short { 1 } else { 4 }]);
    }
    out.extend(body);
    out
}

pub fn packet(plain: &[u8], packing: Packing) -> Vec<u8> {
    match packing {
        Packing::Stored => wrap(plain, plain.len(), false),
        Packing::Compressed => {
            let body = compress(plain);
            // Small bodies may grow, so that rare forms are tested; large ones are stored.
            if body.len() > plain.len() + 300 {
                return packet(plain, Packing::Stored);
            }
            wrap(&body, plain.len(), true)
        }
    }
}

fn compress(plain: &[u8]) -> Vec<u8> {
    let hash = |at: usize| {
        let value = u32::from_le_bytes([plain[at], plain[at + 1], plain[at + 2], 0]);
        (((value >> 12) ^ value) & 0xfff) as usize
    };
    let mut table = [None; 4096];
    let mut next = 0;
    let mut out = Vec::new();
    // Position of the control word, its bits so far, and their number.
    let (mut word_at, mut word, mut bits) = (0, 0_u32, 31);
    let mut at = 0;
    while at < plain.len() {
        if bits == 31 {
            if !out.is_empty() {
                out[word_at..word_at + 4].copy_from_slice(&(word | 1 << 31).to_le_bytes());
            }
            (word_at, word, bits) = (out.len(), 0, 0);
            out.extend([0; 4]);
        }
        let left = plain.len() - at;
        let candidate = if left > 11 { table[hash(at)] } else { None };
        let count = candidate.map_or(0, |from: usize| {
            (0..left.min(255)).take_while(|n| plain[from + n] == plain[at + n]).count()
        });
        if count >= 3 {
            word |= 1 << bits;
            let code = if count <= 17 { count - 2 } else { 0 };
            out.extend(u16::try_from(hash(at) << 4 | code).unwrap().to_le_bytes());
            if code == 0 {
                out.push(u8::try_from(count).unwrap());
            }
            (next..=at).for_each(|position| table[hash(position)] = Some(position));
            at += count;
            next = at;
        } else {
            out.push(plain[at]);
            at += 1;
            while next + 3 <= at {
                table[hash(next)] = Some(next);
                next += 1;
            }
        }
        bits += 1;
    }
    out[word_at..word_at + 4].copy_from_slice(&(word | 1 << bits).to_le_bytes());
    out.resize(out.len().max(9), 0xa5);
    out
}
