//! Hand-made index records: those that a reader must reject, and those that it may skip.

use xb_frame::index::{FramePlace, parse};
use xb_frame::{FrameError, FrameHeader, Kind, Record};

/// Builds a payload of these records, with their count.
fn payload(records: &[(u8, &[u8])]) -> Vec<u8> {
    let mut payload = [0; 12].to_vec();
    payload.extend((records.len() as u32).to_le_bytes());
    for (tag, body) in records {
        payload.extend([*tag, body.len() as u8]);
        payload.extend(*body);
    }
    payload
}

#[test]
fn refuses_records_that_are_not_well_formed() {
    // 2^63 - 1 as a number, and as the difference from 0.
    const MAX: &[u8] = &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
    const STEP_MAX: &[u8] = &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    let with = |parts: &[&[u8]]| parts.concat();
    let (long, chunk) = ([b'x'; 514], |rest: &[u8]| with(&[b"\0P", rest]));
    let cases: Vec<(u8, Vec<u8>, &str)> = vec![
        // File: id, source, name.
        (1, vec![], "a number is truncated"),
        (1, vec![0], "a number is truncated"),
        (1, vec![0, 0], "path length"),
        (1, vec![0x80, 0x00, 0, b'x'], "a number is truncated, too long"),
        (1, vec![0, 0x80, 0x02, b'x'], "source number"),
        // Chunk: id, kind, step, head, payload, step, holes.
        (2, vec![0], "the record is truncated"),
        (2, b"\0E\0\0\0\0\0".to_vec(), "kind P or S"),
        (2, chunk(&[1, 0, 0, 0, 0]), "a number"), // one before the start
        (2, chunk(&[0, 35, 3, 1, 0]), "a number"),
        (2, chunk(&[0, 35, 3, 0]), "a number is truncated"),
        (2, chunk(&[0, 35, 3, 0, 0, 0]), "longer than its fields"),
        (2, chunk(&with(&[STEP_MAX, &[1, 0, 0, 0]])), "out of range"),
        (2, chunk(&with(&[&[0], MAX, &[1, 0, 0]])), "out of range"),
        (2, chunk(&with(&[&[0, 0, 1], STEP_MAX, &[0]])), "out of range"),
        (2, chunk(&with(&[&[0, 0, 1, 0], MAX])), "out of range"),
        // End: id, size.
        (3, vec![0], "a number is truncated"),
        (3, with(&[&[0], &[0x80; 9], &[1]]), "out of range"),
        (3, vec![0, 0, 0], "longer than its fields"),
        // Rename, Remove.
        (4, vec![0], "path length"),
        (5, vec![], "a number is truncated"),
        (5, vec![0, 0], "longer than its fields"),
        // Frames: source, step, offset, count, entries.
        (6, vec![0, 0, 0, 0], "number of frames"),
        (6, vec![0, 0, 0, 0x81, 0x20, 1, 5], "number of frames"), // 4097
        (6, vec![0, 0, 0, 1], "a number is truncated"),
        (6, vec![0, 0, 0, 1, 0], "stored length"), // no length before
        (6, vec![0, 0, 0, 1, 1, 0], "plain length"),
        (6, vec![0, 0, 0, 1, 5 << 1 | 1, 5], "stored length"), // nothing stored
        (6, vec![0, 0, 0, 1, 6 << 1 | 1, 5], "stored length"),
        (6, vec![0, 0, 0, 2, 1, 5, 1, 5], "repeated"),
        (6, vec![0, 0, 0, 1, 1, 0x81, 0x80, 0x80, 8], "plain length"), // 16 MiB + 1
        (6, vec![0, 0, 0, 1, 1, 5, 0], "longer than its fields"),
        (6, vec![0, 1, 0, 1, 1, 5], "a number"),
        (6, with(&[&[0], STEP_MAX, &[0, 1, 1, 5]]), "position is too high"),
        (6, with(&[&[0, 0], MAX, &[1, 1, 5]]), "position is too high"),
        (6, vec![0x80, 2, 0, 0, 1, 1, 5], "source number"),
    ];
    for (tag, body, message) in cases {
        let payload = payload(&[(5, &[1]), (tag, &body), (5, &[1])]);
        let mut records = parse(&payload).unwrap();
        assert_eq!(records.next(), Some(Ok(Record::Remove { file: 1 })));
        let error = records.next().unwrap().unwrap_err().to_string();
        let place = "index record at byte 19 of its frame: ";
        assert!(error.starts_with(place) && error.contains(message), "{tag} {body:?}: {error}");
        assert_eq!(records.next(), None, "nothing after an error");
    }
    let mut name = vec![1, 0x82, 4, 0, 0];
    name.extend(&long[..512]);
    let name = [&[0; 12][..], &[1, 0, 0, 0], &name].concat();
    let error = parse(&name).unwrap().next().unwrap().unwrap_err().to_string();
    assert!(error.contains("path length"), "{error}");
}

#[test]
fn the_number_of_records_is_compared() {
    let mut payload = payload(&[(5, &[1]), (5, &[2])]);
    for stated in [0, 1, 3] {
        payload[12] = stated;
        let records: Result<Vec<_>, _> = parse(&payload).unwrap().collect();
        let error = records.unwrap_err().to_string();
        assert!(error.contains(&format!("is 2, expected {stated}")), "{error}");
    }
    assert!(matches!(parse(&payload[..15]), Err(FrameError::Truncated { .. })));
    assert!(matches!(parse(&vec![0; (1 << 20) + 1]), Err(FrameError::Range { .. })));
}

#[test]
fn ignorable_records_are_passed_over() {
    let mixed = payload(&[(0x80, b"anything"), (5, &[1]), (0xff, b""), (5, &[2])]);
    let records: Result<Vec<_>, _> = parse(&mixed).unwrap().collect();
    assert_eq!(records.unwrap(), [Record::Remove { file: 1 }, Record::Remove { file: 2 }]);
    let unknown = payload(&[(0x7f, b"anything")]);
    let error = parse(&unknown).unwrap().next().unwrap().unwrap_err();
    assert!(matches!(error, FrameError::Unknown { field: "record tag", got: 0x7f, .. }));
}

/// The arithmetic of two runs: frames of 10 and 10 bytes uncompressed and of 7 stored as 4, then
/// after a gap of 100 bytes one frame of another source.
#[test]
fn runs_give_the_place_of_every_frame() {
    let runs = payload(&[
        (6, &[0, 16, 5, 3, 1, 10, 0, 3 << 1 | 1, 7]),
        (6, &[1, 200, 1, 0, 1, 1, 2]), // the difference 100 is 200 in zigzag: c8 01
    ]);
    let places: Vec<FramePlace> = parse(&runs)
        .unwrap()
        .flat_map(|record| match record.unwrap() {
            Record::Frames(run) => run.frames(),
            other => panic!("{other:?}"),
        })
        .collect();
    let place = |source, position, plain_offset, plain_len, stored_len| FramePlace {
        source,
        position,
        plain_offset,
        plain_len,
        stored_len,
    };
    assert_eq!(
        places,
        [
            place(0, 8, 5, 10, 10),
            place(0, 50, 15, 10, 10),
            place(0, 92, 25, 7, 4),
            place(1, 228, 0, 2, 2),
        ]
    );
    // The header found at this position is compared with the entry.
    let found = FrameHeader {
        position: 92,
        kind: Kind::Data,
        codec: xb_frame::Codec::Zstd,
        source: 0,
        plain_len: 7,
        stored_len: 4,
        plain_offset: 25,
        payload_crc32c: Some(0),
    };
    places[2].check(&found).unwrap();
    let error = places[1].check(&found).unwrap_err().to_string();
    assert_eq!(error, "data frame at body position 92: body position is 92, expected 50");
    assert!(places[2].check(&FrameHeader { plain_offset: 26, ..found.clone() }).is_err());
    assert!(places[2].check(&FrameHeader { stored_len: 5, ..found }).is_err());
}
