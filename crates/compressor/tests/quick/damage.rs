//! Members that were cut, changed, or made to do harm.

use crate::common::{Vector, decode, encode, error, limited, zstd};
use crate::qpress::Packing;
use xb_compressor::{CodecError, ErrorLocation, FileCodec, FileDecoder, Format, Member, State};
use xb_testkit::data::{noise, pages};

fn at(format: Format, position: u64) -> ErrorLocation {
    ErrorLocation { format, position }
}

fn small_members() -> Vec<(Member, Vec<u8>, Vec<u8>)> {
    let plain = pages(1, 3000);
    let mut all = vec![
        (Member::Qpress, crate::qpress::member(&plain, 1000, Packing::Compressed), plain.clone()),
        (Member::Qpress, crate::qpress::member(&plain, 1000, Packing::Stored), plain.clone()),
        (Member::Lz4, encode(FileCodec::Lz4, &plain), plain.clone()),
        (Member::Lz4, lz4_frame(0x7c, &[&noise(1, 300)]), noise(1, 300)),
        (Member::Zstd, encode(zstd(1), &plain), plain),
    ];
    for vector in Vector::good().filter(|vector| (1..7000).contains(&vector.bytes.len())) {
        let plain = decode(vector.member(), &vector.bytes).plain;
        all.push((vector.member(), vector.bytes, plain));
    }
    all
}

/// A frame of raw blocks with these flags and all checksums and sizes that they require.
fn lz4_frame(flags: u8, blocks: &[&[u8]]) -> Vec<u8> {
    let mut descriptor = vec![flags, 0x40];
    if flags & 8 != 0 {
        let len: usize = blocks.iter().map(|block| block.len()).sum();
        descriptor.extend((len as u64).to_le_bytes());
    }
    if flags & 1 != 0 {
        descriptor.extend(7_u32.to_le_bytes());
    }
    let mut out = lz4_start(&descriptor);
    for block in blocks {
        out.extend((u32::try_from(block.len()).unwrap() | 1 << 31).to_le_bytes());
        out.extend(*block);
        if flags & 0x10 != 0 {
            out.extend(xxh32(block).to_le_bytes());
        }
    }
    out.extend([0; 4]);
    if flags & 4 != 0 {
        out.extend(xxh32(&blocks.concat()).to_le_bytes());
    }
    out
}

fn lz4_start(descriptor: &[u8]) -> Vec<u8> {
    let mut out = 0x184d_2204_u32.to_le_bytes().to_vec();
    out.extend(descriptor);
    out.push(xxh32(descriptor).to_le_bytes()[1]);
    out
}

/// XXH32 with seed 0, from its specification.
fn xxh32(bytes: &[u8]) -> u32 {
    const P: [u32; 5] = [0x9E37_79B1, 0x85EB_CA77, 0xC2B2_AE3D, 0x27D4_EB2F, 0x1656_67B1];
    let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
    let mut lanes = [P[0].wrapping_add(P[1]), P[1], 0, 0_u32.wrapping_sub(P[0])];
    let stripes = bytes.chunks_exact(16);
    let mut rest = stripes.remainder();
    for stripe in stripes {
        for (lane, bytes) in lanes.iter_mut().zip(stripe.chunks(4)) {
            let sum = lane.wrapping_add(word(bytes).wrapping_mul(P[1]));
            *lane = sum.rotate_left(13).wrapping_mul(P[0]);
        }
    }
    let mut sum = if bytes.len() < 16 {
        P[4]
    } else {
        let turned = lanes.iter().zip([1, 7, 12, 18]).map(|(lane, by)| lane.rotate_left(by));
        turned.fold(0, u32::wrapping_add)
    };
    sum = sum.wrapping_add(u32::try_from(bytes.len()).unwrap());
    while let Some((four, after)) = rest.split_at_checked(4) {
        sum = sum.wrapping_add(word(four).wrapping_mul(P[2])).rotate_left(17).wrapping_mul(P[3]);
        rest = after;
    }
    for &byte in rest {
        sum = sum.wrapping_add(u32::from(byte).wrapping_mul(P[4])).rotate_left(11);
        sum = sum.wrapping_mul(P[0]);
    }
    sum = (sum ^ sum >> 15).wrapping_mul(P[1]);
    sum = (sum ^ sum >> 13).wrapping_mul(P[2]);
    sum ^ sum >> 16
}

#[test]
fn cut_at_every_byte() {
    for (member, stored, plain) in small_members() {
        for len in 0..stored.len() {
            let outcome = decode(member, &stored[..len]);
            // Nothing is left of the member: this is what the stock tools write for an empty file.
            if len == 0 && member != Member::Qpress {
                assert_eq!(outcome.end.unwrap().plain, 0);
                continue;
            }
            let error = outcome.end.expect_err("accepted as complete");
            let CodecError::Cut { place, .. } = error else { panic!("{member:?} {len}: {error}") };
            assert_eq!(place.position, len as u64);
            assert!(plain.starts_with(&outcome.plain));
        }
    }
}

/// Every change that only a checksum can find is found: no change leads to other plain bytes and a
/// successful end.
#[test]
fn every_changed_bit_is_an_error_or_changes_nothing() {
    for (member, stored, plain) in small_members() {
        // Bytes without effect: the name in a qpress archive, zstd's unused header bit.
        let name = stored.get(17).map_or(0, |len| usize::from(*len));
        let step = if stored.len() > 1000 { 3 } else { 1 };
        for bit in (0..stored.len() * 8).step_by(step) {
            let mut bad = stored.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let outcome = decode(member, &bad);
            let passed = outcome.end.is_ok();
            let free = match member {
                Member::Qpress => {
                    (8..16).contains(&(bit / 8)) || (21..21 + name).contains(&(bit / 8))
                }
                _ => outcome.plain == plain,
            };
            assert!(
                !passed || free && outcome.plain == plain,
                "{member:?} bit {bit} of {stored:?}"
            );
        }
    }
}

#[test]
fn more_after_the_end() {
    let plain = pages(2, 500);
    let qp = crate::qpress::member(&plain, 1000, Packing::Compressed);
    let place = at(Format::Qpress, qp.len() as u64);
    assert_eq!(error(Member::Qpress, &[&qp[..], b"x"].concat()), CodecError::Trailing { place });
    // Archives of several files exist, but are not supported here.
    let second = [&qp[..qp.len() - 16], b"F\x01\0\0\0u\0"].concat();
    let place = at(Format::Qpress, qp.len() as u64 - 16);
    let second = error(Member::Qpress, &[&second[..], b"NEWBNEWB"].concat());
    assert_eq!(second, CodecError::Unsupported { place, field: "file number", got: 2 });

    for codec in [FileCodec::Lz4, zstd(1)] {
        let whole = encode(codec, &plain);
        let error = error(codec.member(), &[&whole[..], b"xxxxx"].concat());
        assert!(
            matches!(&error, CodecError::Magic { place, got, .. }
                if place.position == whole.len() as u64 && got == b"xxxx"),
            "{error}"
        );
        // Fewer bytes than a magic could still become one: this is a cut.
        let short = crate::common::error(codec.member(), &[&whole[..], b"xxx"].concat());
        assert!(matches!(short, CodecError::Cut { part: "a frame header", .. }), "{short}");
    }
}

/// Frames, skippable frames and empty frames in sequence.
#[test]
fn several_frames() {
    let (one, two) = (pages(1, 70_000), noise(2, 1000));
    let skip = [&0x184d_2a5f_u32.to_le_bytes()[..], &5_u32.to_le_bytes(), b"abcde"].concat();
    let skip_none = [&0x184d_2a50_u32.to_le_bytes()[..], &[0; 4]].concat();
    for codec in [FileCodec::Lz4, zstd(1)] {
        let frame = |plain: &[u8]| encode(codec, plain);
        let row =
            [skip.clone(), frame(&one), frame(b""), skip_none.clone(), frame(&two), skip.clone()];
        let outcome = decode(codec.member(), &row.concat());
        assert_eq!(outcome.end.unwrap().plain, 71_000);
        assert!(outcome.plain == [&one[..], &two].concat());
        for len in 1..skip.len() {
            let cut = error(codec.member(), &skip[..len]);
            assert!(matches!(cut, CodecError::Cut { .. }), "{cut}");
        }
    }
}

#[test]
fn an_error_stays() {
    let bad = encode(FileCodec::Lz4, b"some bytes");
    let mut decoder = FileDecoder::new(Member::Lz4).unwrap();
    let mut out = [0; 100];
    let first = decoder.decode(&mut &bad[1..], &mut out).unwrap_err();
    assert_eq!(decoder.decode(&mut &bad[..], &mut out), Err(first.clone()));
    assert_eq!(decoder.finish(), Err(first));
}

/// Output that was decoded but never fetched is an error at the end.
#[test]
fn finishing_before_all_is_given_out() {
    for (member, stored) in [
        (Member::Lz4, encode(FileCodec::Lz4, &[1; 100])),
        (Member::Zstd, encode(zstd(1), &[1; 100])),
        (Member::Qpress, crate::qpress::member(&[1; 100], 100, Packing::Compressed)),
    ] {
        let mut decoder = FileDecoder::new(member).unwrap();
        let progress = decoder.decode(&mut &stored[..], &mut [0; 99]).unwrap();
        assert_eq!((progress.written, progress.state), (99, State::OutputFull));
        assert!(matches!(decoder.finish(), Err(CodecError::Cut { .. })));
    }
}

// ---- qpress ----

#[test]
fn qpress_heads_that_are_refused() {
    let good = crate::qpress::packet(&pages(3, 500), Packing::Compressed);
    let with = |packet: &[u8]| {
        let mut member = crate::qpress::head(1000);
        member.extend(crate::qpress::block_head(0, packet));
        member.extend(packet);
        error(Member::Qpress, &member)
    };
    let place = at(Format::Qpress, 23 + 20);
    for (flags, level) in [(0x43, 0), (0x4b, 2), (0x4f, 3)] {
        let mut bad = good.clone();
        bad[0] = flags;
        let (field, got) = ("quicklz level", level);
        assert_eq!(with(&bad), CodecError::Unsupported { place, field, got });
    }
    for flags in [0x07, 0x57, 0x67, 0xc7] {
        let mut bad = good.clone();
        bad[0] = flags;
        assert!(
            matches!(with(&bad), CodecError::Mismatch { field: "packet flags", .. }),
            "{flags}"
        );
    }
    let lens = |packet: u32, plain: u32| {
        let mut bad = good.clone();
        bad[1..5].copy_from_slice(&packet.to_le_bytes());
        bad[5..9].copy_from_slice(&plain.to_le_bytes());
        with(&bad).to_string()
    };
    let len = u32::try_from(good.len()).unwrap();
    let say = |what: &str| format!("qpress file at byte 43: {what}");
    assert_eq!(lens(len, 0), say("plain packet length is 0, allowed range 1 to 1000"));
    assert_eq!(lens(len, 1001), say("plain packet length is 1001, allowed range 1 to 1000"));
    assert_eq!(
        lens(len, u32::MAX),
        say("plain packet length is 4294967295, allowed range 1 to 1000")
    );
    assert_eq!(lens(8, 500), say("packet length is 8, allowed range 15 to 900"));
    assert_eq!(lens(u32::MAX, 500), say("packet length is 4294967295, allowed range 15 to 900"));

    let mut stored = crate::qpress::packet(&[5; 500], Packing::Stored);
    stored[1] -= 1;
    assert_eq!(with(&stored).to_string(), say("packet length is 508, expected 509"));

    let mut name = crate::qpress::head(1000);
    name[17..21].copy_from_slice(&4097_u32.to_le_bytes());
    assert_eq!(
        error(Member::Qpress, &name).to_string(),
        "qpress file at byte 16: name length is 4097, allowed range 0 to 4096"
    );
    let mut folder = crate::qpress::head(1000);
    folder[16] = b'D';
    assert_eq!(
        error(Member::Qpress, &folder).to_string(),
        "qpress file at byte 16: a file header cannot start with \"D\""
    );
}

/// Blocks that are left out, repeated or swapped have wrong offsets.
#[test]
fn qpress_blocks_out_of_order() {
    let plain = noise(4, 3000);
    let whole = crate::qpress::member(&plain, 1000, Packing::Stored);
    let block = |n: usize| &whole[23 + n * 1029..23 + (n + 1) * 1029];
    let (head, end) = (&whole[..23], &whole[23 + 3 * 1029..]);
    assert_eq!(
        decode(Member::Qpress, &[head, block(0), block(1), block(2), end].concat()).plain,
        plain
    );
    for order in [&[0, 2][..], &[1], &[0, 0], &[0, 2, 1]] {
        let mut member = head.to_vec();
        order.iter().for_each(|&n| member.extend(block(n)));
        member.extend(end);
        let error = error(Member::Qpress, &member);
        assert!(matches!(error, CodecError::Mismatch { field: "block offset", .. }), "{error}");
    }
}

/// A file head that does not state a size, and a packet that states a huge one.
#[test]
fn qpress_bombs() {
    // 255 bytes from three is the highest density; more is refused before anything is allocated.
    let zeros = vec![0; 1 << 20];
    let bomb = crate::qpress::member(&zeros, 1 << 20, Packing::Compressed);
    assert!(bomb.len() < 16_000);
    assert!(decode(Member::Qpress, &bomb).plain == zeros);
    let mut packet = crate::qpress::packet(&[0; 2000], Packing::Compressed);
    packet[5..9].copy_from_slice(&(64_u32 << 20).to_le_bytes());
    let mut member = crate::qpress::head(1 << 40);
    member.extend(crate::qpress::block_head(0, &packet));
    member.extend(&packet);
    assert!(matches!(
        error(Member::Qpress, &member),
        CodecError::Range { field: "packet length", min: 789_526, .. }
    ));

    // The caller sets the limit.
    let decoder = limited(Member::Qpress, 0, 1 << 19);
    let outcome = crate::common::decode_with(decoder, &bomb, &[usize::MAX], &[1000]);
    let (field, min, max, got) = ("plain packet length", 1, 1 << 19, 1 << 20);
    let place = at(Format::Qpress, 43);
    assert_eq!(outcome.end, Err(CodecError::Range { place, field, min, max, got }));
}

/// Bodies that only a broken or hostile writer makes, with a correct Adler-32.
#[test]
fn quicklz_bodies() {
    let body = |control: u32, items: &[u8]| [&control.to_le_bytes()[..], items].concat();
    let run = |body: &[u8], plain_len: usize| {
        let packet = crate::qpress::wrap(body, plain_len, true);
        let mut member = crate::qpress::head(1000);
        member.extend(crate::qpress::block_head(0, &packet));
        member.extend(packet);
        member.extend(b"ENDSENDS\0\0\0\0\0\0\0\0");
        decode(Member::Qpress, &member)
    };
    // h("aaa"): the 24-bit value is 0x616161.
    let aaa = (0x616_161_u32 >> 12 ^ 0x616_161) & 0xfff;
    let aaa = |code: u32, more: &[u8]| {
        let word = u16::try_from(aaa << 4 | code).unwrap();
        [&b"aaa"[..], &word.to_le_bytes(), more].concat()
    };
    // Three literals, a match of 14 that repeats the first, two literals.
    let two = |more: &[u8]| body(0b1001000, &aaa(0, more));
    assert_eq!(run(&two(b"\x0ebc"), 19).plain, b"aaaaaaaaaaaaaaaaabc");
    // With eleven bytes left and a literal next, flags no longer count.
    let flagged = body(1 << 31 | 1 << 4, b"aaabcdefghijkl");
    assert_eq!(run(&flagged, 14).plain, b"aaabcdefghijkl");
    let flagged = body(1 << 31 | 1 << 3, b"aaabcdefghijkl");
    assert!(run(&flagged, 14).end.is_err());

    for (bad, plain_len, what) in [
        (body(0, b"aaaaaaaaaaaaaaaaaaa"), 19, "a control word has no stop bit"),
        (body(1 << 31 | 1, b"\0\0\0aaaaaaaaa"), 19, "a match refers to an empty entry"),
        (body(1 << 31 | 8, b"aaa\xf1\xffaaaaaa"), 19, "a match refers to an empty entry"),
        (two(b"\x02bcdefgh"), 19, "a match is shorter than three bytes"),
        (two(b"\x00bcdefgh"), 19, "a match is shorter than three bytes"),
        (two(b"\x11bcdefgh"), 19, "a match extends past the end"),
        (two(b"\xffbcdefgh"), 19, "a match extends past the end"),
        (two(b""), 19, "the packet ends too early"),
        (two(b"\x0eb"), 19, "the packet ends too early"),
        (two(b"\x0ebcd"), 19, "the packet has data after its end"),
        (body(1 << 31, b"aaaaaaaaaaaaaaaaaa"), 19, "the packet ends too early"),
        (body(1 << 31, b"aaaaaaaaaaaaaaaaaaaa"), 19, "the packet has data after its end"),
    ] {
        let place = at(Format::Qpress, 43);
        let end = run(&bad, plain_len).end;
        assert_eq!(end, Err(CodecError::Damaged { place, what }), "{bad:?}");
    }
}

// ---- lz4 ----

#[test]
fn lz4_frames_by_hand() {
    let plain = noise(5, 300);
    // Every combination of block checksums, content size, content checksum and linked blocks.
    for flags in (0x40..0x80).step_by(4) {
        let member = lz4_frame(flags, &[&plain[..100], &plain[100..]]);
        assert!(decode(Member::Lz4, &member).plain == plain, "{flags:x}");
        let cut = error(Member::Lz4, &member[..member.len() - 1]);
        assert!(matches!(cut, CodecError::Cut { .. }));
    }
}

#[test]
fn lz4_heads_that_are_refused() {
    let refused = |member: &[u8]| error(Member::Lz4, member).to_string();
    let say = |position: u64, what: &str| format!("lz4 file at byte {position}: {what}");
    let plain = noise(6, 10);
    assert_eq!(refused(&lz4_frame(0x65, &[&plain])), say(4, "unsupported dictionary 7"));
    assert_eq!(
        refused(&lz4_start(&[0x62, 0x40])),
        say(4, "unsupported reserved bits of the frame header 0")
    );
    assert_eq!(
        refused(&lz4_start(&[0x60, 0xc1])),
        say(4, "unsupported reserved bits of the frame header 129")
    );
    assert_eq!(refused(&lz4_start(&[0xa0, 0x40])), say(4, "unsupported frame version 2"));
    assert_eq!(
        refused(&lz4_start(&[0x60, 0x30])),
        say(4, "block size code is 3, allowed range 4 to 7")
    );
    // The legacy format, which no program writes into backups.
    assert_eq!(
        refused(&0x184c_2102_u32.to_le_bytes()),
        say(0, "an lz4 frame cannot start with \"\\x02!L\\x18\"")
    );
    let mut member = lz4_start(&[0x60, 0x40]);
    member.extend(65_537_u32.to_le_bytes());
    assert_eq!(refused(&member), say(7, "block length is 65537, allowed range 1 to 65536"));
    member[7..].copy_from_slice(&(1_u32 << 31).to_le_bytes());
    assert_eq!(refused(&member), say(7, "block length is 0, allowed range 1 to 65536"));
}

#[test]
fn lz4_sums_and_sizes() {
    let plain = noise(7, 100);
    let place = |position| at(Format::Lz4, position);
    let mut block_sum = lz4_frame(0x70, &[&plain]);
    block_sum[50] ^= 1;
    let outcome = decode(Member::Lz4, &block_sum);
    assert!(matches!(
        outcome.end,
        Err(CodecError::Checksum {
            place: ErrorLocation { position: 11, .. },
            part: "the block",
            ..
        })
    ));
    assert!(outcome.plain.is_empty());

    // The content is shorter, then longer than stated.
    let stated = |size: u8| {
        let mut member = lz4_start(&[0x68, 0x40, size, 0, 0, 0, 0, 0, 0, 0]);
        member.extend(&lz4_frame(0x60, &[&plain[..60], &plain[60..]])[7..]);
        decode(Member::Lz4, &member)
    };
    assert_eq!(stated(100).plain, plain);
    let place_end = place(15 + 64 + 44);
    assert_eq!(
        stated(101).end,
        Err(CodecError::TooShort { place: place_end, expected: 101, got: 100 })
    );
    let outcome = stated(99);
    assert_eq!(outcome.end, Err(CodecError::TooLong { place: place(15 + 64 + 4), expected: 39 }));
    assert!(outcome.plain.len() <= 60);
    assert_eq!(stated(60).end, Err(CodecError::TooLong { place: place(15 + 64 + 4), expected: 0 }));
}

#[test]
fn lz4_bombs() {
    // A block of 64 KiB at most that decodes to more: 255 zeros for each further byte.
    let mut block = vec![0x1f, 0, 1, 0];
    block.extend([255; 1000]);
    block.extend([0, 0x50, 0, 0, 0, 0, 0]);
    let mut member = lz4_start(&[0x60, 0x40]);
    member.extend(u32::try_from(block.len()).unwrap().to_le_bytes());
    member.extend(&block);
    let outcome = decode(Member::Lz4, &member);
    let place = at(Format::Lz4, 11);
    assert_eq!(outcome.end, Err(CodecError::TooLong { place, expected: 65_536 }));
    assert!(outcome.plain.is_empty());

    // Many such blocks: the caller decides how much output it takes.
    let zeros = encode(FileCodec::Lz4, &vec![0; 1 << 20]);
    assert!(zeros.len() < 6000);
    let mut decoder = FileDecoder::new(Member::Lz4).unwrap();
    let mut input = &zeros[..];
    let mut taken = 0;
    for _ in 0..10 {
        let progress = decoder.decode(&mut input, &mut [0; 1000]).unwrap();
        assert_eq!(progress.state, State::OutputFull);
        taken += progress.written;
    }
    assert_eq!(taken, 10_000);
    assert!(input.len() > zeros.len() - 400, "no more is decoded than was asked for");
}

/// Distances beyond the window: in the first block of a frame, and after a linked one.
#[test]
fn lz4_distances() {
    let block = |distance: u16| {
        let [low, high] = distance.to_le_bytes();
        [0x40, b'a', b'b', b'c', b'd', low, high, 0x50, 1, 2, 3, 4, 5].to_vec()
    };
    let frame = |flags: u8, distance: u16| {
        let mut member = lz4_start(&[flags, 0x40]);
        member.extend((10_u32 | 1 << 31).to_le_bytes());
        member.extend(b"0123456789");
        let block = block(distance);
        member.extend(u32::try_from(block.len()).unwrap().to_le_bytes());
        member.extend(block);
        member.extend([0; 4]);
        decode(Member::Lz4, &member)
    };
    assert_eq!(frame(0x60, 4).plain, b"0123456789abcdabcd\x01\x02\x03\x04\x05");
    assert_eq!(frame(0x40, 14).plain, b"0123456789abcd0123\x01\x02\x03\x04\x05");
    assert_eq!(frame(0x40, 6).plain, b"0123456789abcd89ab\x01\x02\x03\x04\x05");
    let damaged = |what| Err(CodecError::Damaged { place: at(Format::Lz4, 25), what });
    // Across several short blocks, but no further than the start of the frame.
    let row = |distance: u16| {
        let mut member = lz4_start(&[0x40, 0x40]);
        for raw in [&b"0123456789"[..], b"vwxyz"] {
            member.extend((u32::try_from(raw.len()).unwrap() | 1 << 31).to_le_bytes());
            member.extend(raw);
        }
        let block = block(distance);
        member.extend(u32::try_from(block.len()).unwrap().to_le_bytes());
        member.extend(block);
        member.extend([0; 4]);
        let twice = [&member[..], &member].concat();
        decode(Member::Lz4, &twice)
    };
    assert_eq!(row(19).plain, b"0123456789vwxyzabcd0123\x01\x02\x03\x04\x05".repeat(2));
    assert_eq!(row(11).plain, b"0123456789vwxyzabcd89vw\x01\x02\x03\x04\x05".repeat(2));
    assert!(row(20).end.is_err());
    assert_eq!(frame(0x60, 0).end, damaged("a match with distance 0"));
    assert_eq!(frame(0x60, 5).end, damaged("a match refers to data before the start"));
    assert_eq!(frame(0x40, 15).end, damaged("a match refers to data before the start"));
    assert_eq!(frame(0x40, 0).end, damaged("a match with distance 0"));
}

// ---- zstd ----

#[test]
fn zstd_windows() {
    // 28 b5 2f fd, no single segment, window 2^(10 + 17) and 2^(10 + 18), one raw block of one
    // byte.
    let frame = |window: u8| {
        let mut member = vec![0x28, 0xb5, 0x2f, 0xfd, 0, window];
        member.extend([9, 0, 0, b'x']);
        member
    };
    assert_eq!(decode(Member::Zstd, &frame(17 << 3)).plain, b"x");
    assert_eq!(
        error(Member::Zstd, &frame(18 << 3)).to_string(),
        "zstd file at byte 0: window is 268435456, allowed range 0 to 134217728"
    );
    let with = |max_window: u64, member: &[u8]| {
        crate::common::decode_with(limited(Member::Zstd, max_window, 0), member, &[1], &[1])
    };
    assert_eq!(with(256 << 20, &frame(18 << 3)).plain, b"x");
    assert!(with((256 << 20) - 1, &frame(18 << 3)).end.is_err());
    assert_eq!(with(1024, &frame(0)).plain, b"x");
    assert!(with(1023, &frame(0)).end.is_err());
}

#[test]
fn zstd_bombs() {
    // A frame that announces much, and one that contains much: a block of 128 KiB from four bytes.
    let announced = [0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0];
    assert!(matches!(
        error(Member::Zstd, &announced),
        CodecError::Range { got: 0x100_0000_0000, .. }
    ));

    let mut bomb = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 7 << 3];
    for n in 0..1000_u32 {
        let block = (128 << 10) << 3 | 1 << 1 | u32::from(n == 999);
        bomb.extend(&block.to_le_bytes()[..3]);
        bomb.push(0);
    }
    let mut decoder = FileDecoder::new(Member::Zstd).unwrap();
    let mut input = &bomb[..];
    let mut out = [0; 1000];
    for _ in 0..10 {
        let progress = decoder.decode(&mut input, &mut out).unwrap();
        assert_eq!((progress.written, progress.state), (1000, State::OutputFull));
    }
    assert!(input.len() > bomb.len() - 100, "no more is decoded than was asked for");
}

/// The decoder asks for more input only after it has written all possible output.
#[test]
fn nothing_is_held_back() {
    let plain = pages(9, 100_000);
    for (member, stored, end) in [
        (Member::Lz4, encode(FileCodec::Lz4, &plain), 4),
        (Member::Zstd, encode(zstd(1), &plain), 4),
        (Member::Qpress, crate::qpress::member(&plain, 9999, Packing::Compressed), 16),
    ] {
        for piece in [usize::MAX, 1] {
            let mut decoder = FileDecoder::new(member).unwrap();
            let mut got = Vec::new();
            for mut piece in stored[..stored.len() - end].chunks(piece.min(stored.len())) {
                loop {
                    let mut out = [0; 7];
                    let progress = decoder.decode(&mut piece, &mut out).unwrap();
                    got.extend_from_slice(&out[..progress.written]);
                    if progress.state == State::NeedsInput {
                        break;
                    }
                }
            }
            assert!(got == plain, "{member:?}: {}", got.len());
        }
    }
}

/// A stalled caller: calls without space or input must neither fail nor lose anything.
#[test]
fn calls_that_cannot_do_anything() {
    for (member, stored, plain) in small_members() {
        let mut decoder = FileDecoder::new(member).unwrap();
        let mut got = Vec::new();
        for mut piece in stored.chunks(50) {
            for _ in 0..40 {
                assert_eq!(decoder.decode(&mut &[][..], &mut []).unwrap().written, 0);
            }
            loop {
                let mut out = [0; 64];
                let progress = decoder.decode(&mut piece, &mut out).unwrap();
                got.extend_from_slice(&out[..progress.written]);
                if progress.state != State::OutputFull {
                    break;
                }
            }
            for _ in 0..40 {
                assert_eq!(decoder.decode(&mut &[][..], &mut [0; 9]).unwrap().written, 0);
            }
        }
        assert_eq!(got, plain);
        decoder.finish().unwrap();
    }
}
