//! Codecs: blocks of frames, and whole files.

use xb_compressor::{
    Algorithm, BlockCodec, BlockDecoder, BlockEncoder, CodecError, FileCodecLimits, FileDecoder,
    FileTotals, Member, State,
};

use crate::inputs::{fixtures, with_head};

#[path = "../../compressor/tests/common/qpress.rs"]
mod writer;

const GUARD: [u8; 64] = [0xa5; 64];

/// Any bytes as a block of each codec, and any bytes through each codec and back: no panic, nothing written beyond the length announced.
pub(crate) fn block(data: &[u8]) {
    let Some((&[how, low, high], data)) = data.split_first_chunk() else { return };
    let Some(codec) = BlockCodec::from_number(1 + how % 4) else { return };
    let mut decoder = BlockDecoder::new();

    let announced = usize::from(u16::from_le_bytes([low, high]));
    let mut out = vec![0; announced];
    out.extend(GUARD);
    let (plain, guard) = out.split_at_mut(announced);
    let _ = decoder.decode(codec, data, plain);
    assert_eq!(guard, GUARD);

    let level = 1 + (how >> 2) % 9;
    let text = match codec {
        BlockCodec::Lz4 => "lz4".to_owned(),
        BlockCodec::Snappy => "snappy".to_owned(),
        BlockCodec::Zlib => format!("gzip:{level}"),
        _ => format!("zstd:{level}"),
    };
    let algorithm: Algorithm = text.parse().expect("one of ours");
    let mut encoder = BlockEncoder::new(algorithm).expect("memory");
    let mut stored = vec![0; encoder.max_encoded_len(data.len())];
    if let Some(len) = encoder.encode(data, &mut stored).expect("sizes are right") {
        assert!(len < data.len());
        let mut again = vec![0; data.len()];
        decoder.decode(codec, &stored[..len], &mut again).expect("our own");
        assert_eq!(again, data);
    }
}

/// Decoding stops after this many bytes: a few bytes can expand to very many.
const MAX_DECODED: usize = 8 << 20;

type Outcome = (Vec<u8>, Option<Result<FileTotals, CodecError>>);

fn decode(member: Member, mut data: &[u8], piece: usize, out: usize) -> Outcome {
    let mut limits = FileCodecLimits::default();
    (limits.max_window, limits.max_qpress_block) = (1 << 20, 1 << 20);
    let mut decoder = FileDecoder::with_limits(member, limits).expect("memory");
    let (mut plain, mut out) = (Vec::new(), vec![0; out]);
    loop {
        let (mut input, rest) = data.split_at(piece.min(data.len()));
        data = rest;
        loop {
            let progress = match decoder.decode(&mut input, &mut out) {
                Ok(progress) => progress,
                Err(error) => return (plain, Some(Err(error))),
            };
            plain.extend_from_slice(&out[..progress.written]);
            if plain.len() > MAX_DECODED {
                return (Vec::new(), None);
            }
            if progress.state != State::OutputFull {
                assert!(input.is_empty());
                break;
            }
        }
        if data.is_empty() {
            return (plain, Some(decoder.finish()));
        }
    }
}

/// Any bytes as a member of each format, in any pieces: no panic, and the same result however input and output are cut.
pub(crate) fn member(data: &[u8]) {
    let Some((&[which, piece, out], data)) = data.split_first_chunk() else { return };
    let member = Member::ALL[usize::from(which) % Member::ALL.len()];
    let mut data = data.to_vec();
    if member == Member::Lz4 && which >= 128 {
        mend_lz4(&mut data);
    }
    let data = &data[..];
    let whole = decode(member, data, usize::MAX, 2 << 20);
    // Very small buffers would take too long for very large output.
    let out = if whole.0.len() > 1 << 20 { 9999 } else { 1 + usize::from(out) };
    let pieces = decode(member, data, 1 + usize::from(piece), out);
    match (whole.1, pieces.1) {
        (Some(Ok(totals)), Some(again)) => {
            assert_eq!(again, Ok(totals));
            assert_eq!(whole.0, pieces.0);
        }
        (Some(Err(_)), Some(again)) => {
            assert!(again.is_err());
            let len = whole.0.len().min(pieces.0.len());
            assert_eq!(whole.0[..len], pieces.0[..len]);
        }
        // One of them stopped at the limit: the other must have stopped there, too, or failed.
        (None, again) | (again, None) => assert!(!matches!(again, Some(Ok(_)))),
    }
}

fn unpack(member: &[u8], out: usize) -> Option<Vec<u8>> {
    let mut decoder = FileDecoder::new(Member::Qpress).expect("memory");
    let (mut plain, mut out, mut input) = (Vec::new(), vec![0; out], member);
    loop {
        let progress = decoder.decode(&mut input, &mut out).ok()?;
        plain.extend_from_slice(&out[..progress.written]);
        if progress.state == State::Finished {
            decoder.finish().expect("it has said so");
            return Some(plain);
        }
    }
}

/// Any bytes as the body of a QuickLZ packet, in an otherwise valid member: no panic, and not one byte more than the packet announces.
pub(crate) fn qpress(data: &[u8]) {
    let Some((&[low, high], body)) = data.split_first_chunk() else { return };
    let announced = usize::from(u16::from_le_bytes([low, high]));
    let packet = writer::wrap(body, announced, true);
    let mut member = writer::head(1 << 16);
    member.extend(writer::block_head(0, &packet));
    member.extend(packet);
    member.extend(b"ENDSENDS\0\0\0\0\0\0\0\0");
    let whole = unpack(&member, 1 << 17);
    assert!(whole.as_ref().is_none_or(|plain| plain.len() == announced));
    assert_eq!(whole, unpack(&member, 77));

    // The reverse, with a writer that follows the rules.
    let member = writer::member(data, 1000, writer::Packing::Compressed);
    assert_eq!(unpack(&member, 4096).as_deref(), Some(data));
}

/// Sets the checksums of an LZ4 frame's header and blocks to those of their contents.
fn mend_lz4(frame: &mut [u8]) -> Option<()> {
    let sum = |bytes: &[u8]| twox_hash::XxHash32::oneshot(0, bytes);
    let flags = *frame.get(4)?;
    let optional = if flags & 8 == 8 { 8 } else { 0 } + if flags & 1 == 1 { 4 } else { 0 };
    let end = 6 + optional;
    let check = (sum(frame.get(4..end)?) >> 8) as u8;
    *frame.get_mut(end)? = check;
    let mut at = end + 1;
    loop {
        let size = u32::from_le_bytes(*frame.get(at..)?.first_chunk()?) & 0x7fff_ffff;
        let block = at + 4..(at + 4).checked_add(size as usize)?;
        at = block.end;
        if flags & 16 == 16 && size > 0 {
            let check = sum(frame.get(block)?).to_le_bytes();
            frame.get_mut(at..at + 4)?.copy_from_slice(&check);
            at += 4;
        }
        if size == 0 {
            return Some(());
        }
    }
}

pub(crate) fn block_seeds() -> Vec<Vec<u8>> {
    let text = b"abcdabcdabcdabcd, and so on".repeat(9);
    let of = |(n, name): (usize, &str)| {
        let mut encoder = BlockEncoder::new(name.parse::<Algorithm>().unwrap()).unwrap();
        let mut stored = vec![0; encoder.max_encoded_len(text.len())];
        let len = encoder.encode(&text, &mut stored).unwrap().unwrap();
        let announced = (text.len() as u16).to_le_bytes();
        [&[n as u8, announced[0], announced[1]], &stored[..len]].concat()
    };
    ["lz4", "snappy", "gzip:6", "zstd:3"].into_iter().enumerate().map(of).collect()
}

pub(crate) fn member_seeds() -> Vec<Vec<u8>> {
    let of = |(n, ending): (usize, &str)| {
        let heads = [[n as u8, 255, 255], [n as u8 + 129, 6, 50]];
        heads.map(|head| with_head(&head, fixtures("compress", ending))).concat()
    };
    [".qp", ".lz4", ".zst"].into_iter().enumerate().flat_map(of).collect()
}

pub(crate) fn qpress_seeds() -> Vec<Vec<u8>> {
    let texts = [b"x".repeat(300), b"abcabcabd".repeat(70), (0..=255).collect()];
    let packet = |text: &Vec<u8>| {
        let packet = writer::packet(text, writer::Packing::Compressed);
        // Without its head of 9 bytes.
        [&(text.len() as u16).to_le_bytes()[..], packet.get(9..).unwrap_or_default()].concat()
    };
    texts.iter().map(packet).collect()
}
