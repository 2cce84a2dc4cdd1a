//! Checks that all damage to a small stream is an error: cuts, flipped bits, frames dropped,
//! repeated, swapped or taken from another stream, and wrong numbers with correct checksums.

use crate::common::{ID, Op, build, mend, parts, read};
use xb_frame::{FrameError, Limits, Part, StreamHeader, StreamId, StreamReader};

fn sample_ops() -> Vec<Op> {
    vec![
        Op::Data(0, b"first frame".to_vec()),
        Op::File(0, b"a/b".to_vec()),
        Op::Data(1, b"of another source".to_vec()),
        Op::Index,
        Op::Data(0, b"same length".to_vec()),
        Op::Data(0, b"and another".to_vec()),
        Op::File(1, b"c".to_vec()),
        Op::Index,
        Op::Data(1, b"end".to_vec()),
    ]
}

fn header(id: StreamId) -> StreamHeader {
    StreamHeader::new(id).with_max_plain(64).unwrap()
}

/// A stream with five data frames, three index frames and two sources.
fn sample() -> Vec<u8> {
    let (stream, summary) = build(&header(ID), 1 << 20, &sample_ops());
    assert_eq!((summary.end.data_frames, summary.end.index_frames), (5, 3));
    assert_eq!(read(&stream, &[stream.len()]).unwrap().summary, summary);
    stream
}

fn refused(stream: &[u8], what: &str) -> FrameError {
    let error = read(stream, &[stream.len().max(1)]).map(|_| ()).expect_err(what);
    assert_eq!(read(stream, &[1]).map(|_| ()), Err(error.clone()), "{what}, byte by byte");
    error
}

#[test]
fn every_cut_is_noticed() {
    let stream = sample();
    for len in 0..stream.len() {
        let error = refused(&stream[..len], &format!("cut at {len}"));
        assert!(matches!(error, FrameError::Truncated { .. }), "cut at {len}: {error}");
    }
}

#[test]
fn a_cut_names_the_part() {
    let stream = sample();
    let parts = parts(&stream);
    let at = |n: usize| {
        let FrameError::Truncated { place } = refused(&stream[..parts[n].0 + 40], "cut") else {
            panic!("cut in part {n}");
        };
        (place.part, place.position as usize)
    };
    assert_eq!(at(0), (Part::StreamHeader, 0));
    assert_eq!(at(1), (Part::Data, 0));
    assert_eq!(at(3), (Part::Index, parts[3].0 - 128));
    assert_eq!(at(parts.len() - 2), (Part::End, parts[parts.len() - 2].0 - 128));
    assert_eq!(at(parts.len() - 1), (Part::Trailer, parts[parts.len() - 1].0 - 128));
}

#[test]
fn every_single_bit_is_noticed() {
    let stream = sample();
    for at in 0..stream.len() {
        for bit in 0..8 {
            let mut bad = stream.clone();
            bad[at] ^= 1 << bit;
            refused(&bad, &format!("bit {bit} of byte {at}"));
        }
    }
}

#[test]
fn nothing_may_follow() {
    let stream = sample();
    for more in [&b"\0"[..], &stream] {
        let bad = [&stream[..], more].concat();
        let position = stream.len() as u64;
        assert_eq!(refused(&bad, "more bytes"), FrameError::TrailingBytes { position });
    }
}

/// Returns the sample with its parts in another order and its checksums unchanged.
fn arranged(stream: &[u8], order: impl IntoIterator<Item = usize>) -> Vec<u8> {
    let parts = parts(stream);
    order.into_iter().flat_map(|n| stream[parts[n].0..parts[n].1].to_vec()).collect()
}

#[test]
fn every_dropped_repeated_or_swapped_part_is_noticed() {
    let stream = sample();
    let count = parts(&stream).len();
    assert_eq!(arranged(&stream, 0..count), stream);
    for n in 0..count {
        let dropped = arranged(&stream, (0..count).filter(|m| *m != n));
        refused(&dropped, &format!("part {n} dropped"));
        for to in 0..=count {
            let mut order: Vec<usize> = (0..count).collect();
            order.insert(to, n);
            refused(&arranged(&stream, order), &format!("part {n} again before {to}"));
        }
        for other in n + 1..count {
            let mut order: Vec<usize> = (0..count).collect();
            order.swap(n, other);
            refused(&arranged(&stream, order), &format!("parts {n} and {other} swapped"));
        }
    }
}

/// The two streams have the same numbers; only id and content differ.
#[test]
fn every_part_of_another_stream_is_noticed() {
    let stream = sample();
    let mut other_ops = sample_ops();
    for op in &mut other_ops {
        if let Op::Data(_, payload) = op {
            payload.reverse();
        }
    }
    let (other, _) = build(&header(StreamId([1; 16])), 1 << 20, &other_ops);
    let parts = parts(&stream);
    assert_eq!(parts, crate::common::parts(&other));
    for (n, (start, end)) in parts.iter().copied().enumerate() {
        let mut bad = stream.clone();
        bad[start..end].copy_from_slice(&other[start..end]);
        let error = refused(&bad, &format!("part {n} of another stream"));
        if n == parts.len() - 1 {
            assert!(matches!(error, FrameError::StreamId { .. }), "{error}");
        } else {
            assert!(matches!(error, FrameError::Checksum { .. }), "{error}");
        }
    }
}

/// Uses wrong numbers with correct checksums, so that each rule must detect its own violation.
/// `part` counts as in [`parts`]: header, data, data of source 1, index, data, data, index, data,
/// index, end, trailer.
#[test]
fn every_rule_is_kept_beneath_right_checksums() {
    let stream = sample();
    let (end, trailer) = (9, 10);
    let end_low = (parts(&stream)[end].0 - 128 + 1) as u8;
    let cases: &[(usize, usize, &[u8], &str)] = &[
        // Frame headers.
        (1, 0, b"X", "ok"), // the unchanged byte: repairing the checksums alone changes nothing
        (1, 4, &[0], "unknown frame kind 0"),
        (1, 4, &[4], "unknown frame kind 4"),
        (1, 5, &[5], "unknown codec 5"),
        (1, 5, &[1], "stored length is 11, allowed range 1 to 10"),
        (1, 6, &[1], "stated"),
        (2, 6, &[0], "plain offset is 0, expected 11"),
        (1, 6, &[0, 1], "source number is 256, allowed range 0 to 255"),
        (1, 8, &[0, 0, 0, 0], "plain length is 0, allowed range 1 to 64"),
        (1, 8, &[65], "plain length is 65, allowed range 1 to 64"),
        (1, 8, &[12], "stored length is 11, expected 12"),
        (1, 16, &[1], "plain offset is 1, expected 0"),
        (4, 16, &[10], "plain offset is 10, expected 11"),
        (4, 23, &[0xff], "plain offset is 18374686479671623691, allowed range 0 to"),
        (3, 5, &[1], "stored length"),
        (3, 6, &[1], "source number is 1, expected 0"),
        (3, 16, &[0; 8], "position of the previous index frame is 0, expected 1844"),
        (
            6,
            16,
            &[0xff; 8],
            "position of the previous index frame is 18446744073709551615, expected",
        ),
        (
            6,
            16,
            &[0xfe; 8],
            "position of the previous index frame is 18374403900871474942, allowed",
        ),
        // The head of an index payload.
        (6, 32, &[0], "number of the index frame is 0, expected 1"),
        (6, 40, &[0], "length of the previous index frame"),
        (6, 44, &[9], "number of records is 4, expected 9"),
        // Records, from byte 48 of the frame: a File of source 0 called a/b, and so on.
        (3, 48, &[7], "unknown record tag 7"),
        (3, 48, &[0], "unknown record tag 0"),
        (3, 49, &[0x7f], "the record is truncated"),
        (3, 49, &[2], "path length is out of range"),
        (3, 49, &[1], "a number is truncated"),
        (3, 50, &[0x80, 0x80, 0x80, 0x80, 0x80], "a number is truncated"),
        (3, 50, &[0x80, 0x00], "a number is truncated, too long"),
        (3, 58, b"Q", "of kind P or S"),
        // The end frame.
        (end, 5, &[1], "stored length"),
        (end, 16, &[1], "plain offset is 1, expected 0"),
        (end, 32, &[4], "number of data frames is 4, expected 5"),
        (end, 40, &[0], "total of plain bytes is 0, expected 53"),
        (end, 48, &[0], "total of stored bytes is 0, expected 53"),
        (end, 56, &[2], "number of index frames is 2, expected 3"),
        (end, 64, &[1, 0], "position of the last index frame is 1"),
        (end, 72, &[0], "length of the last index frame is 0, allowed"),
        (end, 76, &[0], "number of sources is 0, allowed range 1 to 256"),
        (end, 76, &[1], "plain length is 64, expected 56"),
        (end, 76, &[3], "plain length is 64, expected 72"),
        (end, 77, &[2], "number of sources is 514, allowed range 1 to 256"),
        (end, 80, &[0], "plain length of a source is 0, expected 33"),
        // The trailer.
        (trailer, 0, b"Y", "wrong magic"),
        (trailer, 8, &[0], "the trailer belongs to stream 005a5a"),
        (trailer, 24, &[0], "stream length is"),
        (trailer, 32, &[0, 0], "length of the end frame is 0, allowed"),
        (trailer, 40, &[0, 0], "position of the last index frame is"),
        (trailer, 40, &[end_low], "position of the end frame is"),
        (trailer, 48, &[1, 0], "position of the last index frame is 1"),
        (trailer, 56, &[40], "length of the last index frame is 40, allowed"),
    ];
    let parts = parts(&stream);
    for (part, at, bytes, message) in cases {
        let mut bad = stream.clone();
        let at = parts[*part].0 + at;
        bad[at..at + bytes.len()].copy_from_slice(bytes);
        mend(&mut bad);
        if *message == "ok" {
            assert_eq!(bad, stream);
            continue;
        }
        let what = format!("part {part}, byte {at}: {message}");
        let error = refused(&bad, &what).to_string();
        let stated = *message == "stated" && error.contains("expected");
        assert!(stated || error.contains(message), "{what}: {error}");
    }
}

/// Trailer and end frame agree on a wrong index frame, but not with the stream.
#[test]
fn totals_that_agree_among_themselves_are_still_compared() {
    let stream = sample();
    let parts = parts(&stream);
    let (end, trailer) = (parts[9].0, parts[10].0);
    let mut bad = stream.clone();
    let other = (parts[6].0 - 128) as u64;
    bad[end + 64..end + 72].copy_from_slice(&other.to_le_bytes());
    bad[trailer + 48..trailer + 56].copy_from_slice(&other.to_le_bytes());
    mend(&mut bad);
    let error = refused(&bad, "another last index").to_string();
    assert!(error.contains("position of the last index frame"), "{error}");
}

#[test]
fn a_longer_end_frame_is_for_later_minor_versions() {
    let (plain, _) = build(&header(ID), 1 << 20, &[]);
    let parts = parts(&plain);
    let (end, trailer) = (parts[1].0, parts[2].0);
    // Eight more bytes in the end frame; body and stream grow by them.
    let mut longer = [&plain[..trailer], &[7; 8], &plain[trailer..]].concat();
    let trailer = trailer + 8;
    let new = (trailer - end - 32) as u32;
    longer[end + 8..end + 12].copy_from_slice(&new.to_le_bytes());
    longer[end + 12..end + 16].copy_from_slice(&new.to_le_bytes());
    let lens = [longer.len() as u64, (trailer - 128) as u64];
    longer[trailer + 24..trailer + 32].copy_from_slice(&lens[0].to_le_bytes());
    longer[trailer + 32..trailer + 40].copy_from_slice(&lens[1].to_le_bytes());
    mend(&mut longer);
    let error = refused(&longer, "longer end frame in version 1.0").to_string();
    assert!(error.contains("plain length is 64, expected 56"), "{error}");

    longer[11] = 1;
    mend(&mut longer);
    assert_eq!(read(&longer, &[longer.len()]).unwrap().summary.end.sources, [0]);
}

#[test]
fn sealed_and_too_large_streams_are_refused_at_the_header() {
    use xb_frame::Seal;
    let sealed = header(ID).with_seal(Seal::Aes256GcmHkdf1Mb, [3; 32]).encode();
    assert_eq!(refused(&sealed, "sealed"), FrameError::Sealed);

    let mut reader = StreamReader::new(Limits::default().with_max_plain(63));
    let error = reader.next(&mut &sample()[..]).unwrap_err();
    assert!(error.to_string().contains("is 64, allowed range 1 to 63"), "{error}");
    // The error repeats.
    assert_eq!(reader.next(&mut &b""[..]), Err(error.clone()));
    assert_eq!(reader.finish(), Err(error));
}

#[test]
fn other_input_is_called_so() {
    let other = [b"XBSTCK01".as_slice(), &[0; 200]].concat();
    let error = refused(&other, "an xbstream");
    assert_eq!(error, FrameError::NotNative { got: *b"XBSTCK01" });
    assert_eq!(error.to_string(), "not a native stream: it starts with \"XBSTCK01\"");
}
