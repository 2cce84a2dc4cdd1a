use super::*;
use crate::ChunkWriter;

fn stream(write: impl FnOnce(&mut ChunkWriter<Vec<u8>>) -> std::io::Result<()>) -> Vec<u8> {
    let mut writer = ChunkWriter::new(Vec::new());
    write(&mut writer).unwrap();
    writer.finish().unwrap()
}

/// The kinds of all chunks, decoded with the given limits.
fn kinds(
    dialect: Dialect,
    limits: Limits,
    mut input: &[u8],
) -> Result<Vec<ChunkKind>, DecodeError> {
    let mut decoder = Decoder::new(dialect, limits);
    let mut kinds = Vec::new();
    while let Some(event) = decoder.next(&mut input)? {
        if let Event::Head(head) = event {
            kinds.push(head.kind);
        }
    }
    while let Some(event) = decoder.finish()? {
        if let Event::Head(head) = event {
            kinds.push(head.kind);
        }
    }
    Ok(kinds)
}

#[test]
fn both_meanings_of_s_are_distinguished() {
    let map = [MapEntry { skip: 16, len: 4 }];
    let mixed = stream(|w| {
        w.seek("a", 0)?;
        w.sparse("b", 0, &map, b"abcd")?;
        w.seek("a", 5)?;
        w.seek("a", 6)
    });
    let got = kinds(Dialect::Auto, Limits::default(), &mixed).unwrap();
    assert!(matches!(got[0], ChunkKind::Seek { offset: 0 }), "{got:?}");
    assert!(matches!(got[1], ChunkKind::Sparse { len: 4, .. }), "{got:?}");
    assert!(matches!(got[2], ChunkKind::Seek { offset: 5 }), "{got:?}");
    assert!(matches!(got[3], ChunkKind::Seek { offset: 6 }), "the last one is held back: {got:?}");

    // With a fixed dialect the decoder does not look at what follows.
    let seek = stream(|w| w.seek("a", 7));
    assert_eq!(
        kinds(Dialect::MariaDb, Limits::default(), &seek).unwrap(),
        [ChunkKind::Seek { offset: 7 }]
    );
    assert!(matches!(
        kinds(Dialect::Percona, Limits::default(), &seek),
        Err(DecodeError::Truncated { position: 0, end: 23, .. })
    ));
}

#[test]
fn positions_are_right_behind_a_probed_seek() {
    let bytes = stream(|w| {
        w.seek("a", 0)?;
        w.payload("a", 0, b"xyz")?;
        w.end("a")
    });
    let mut decoder = Decoder::new(Dialect::Auto, Limits::default());
    let mut input = &bytes[..];
    let mut spans = Vec::new();
    while let Some(event) = decoder.next(&mut input).unwrap() {
        if let Event::Head(head) = event {
            spans.push((head.position, head.head_len, head.end()));
        }
    }
    assert_eq!(spans, [(0, 23, 23), (23, 35, 61), (61, 15, 76)]);
}

#[test]
fn limits_are_limits() {
    let limits = Limits { max_payload: 4, max_map_entries: 2 };
    let payload = |len| stream(|w| w.payload("a", 0, &vec![0; len]));
    assert!(kinds(Dialect::Auto, limits, &payload(4)).is_ok());
    assert!(matches!(
        kinds(Dialect::Auto, limits, &payload(5)),
        Err(DecodeError::PayloadLength { len: 5, max: 4, .. })
    ));
    let sparse = |entries| {
        let map = vec![MapEntry { skip: 1, len: 1 }; entries];
        stream(|w| w.sparse("a", 0, &map, &vec![0; entries]))
    };
    assert!(kinds(Dialect::Auto, limits, &sparse(2)).is_ok());
    assert!(matches!(
        kinds(Dialect::Auto, limits, &sparse(3)),
        Err(DecodeError::MapEntries { entries: 3, max: 2, .. })
    ));
}

#[test]
fn nothing_reaches_beyond_the_largest_offset() {
    let at = |offset: u64| {
        let mut bytes = stream(|w| w.payload("a", 0, b"xy"));
        bytes[23..31].copy_from_slice(&offset.to_le_bytes());
        kinds(Dialect::Auto, Limits::default(), &bytes)
    };
    assert!(at(MAX_FILE_OFFSET - 2).is_ok());
    for offset in [MAX_FILE_OFFSET - 1, MAX_FILE_OFFSET, MAX_FILE_OFFSET + 1, u64::MAX] {
        assert!(matches!(at(offset), Err(DecodeError::OffsetTooLarge { .. })), "{offset}");
    }
}

#[test]
fn an_empty_entry_stands_only_at_the_end() {
    let map = [MapEntry { skip: 8, len: 4 }, MapEntry { skip: 8, len: 4 }];
    let good = stream(|w| w.sparse("a", 0, &map, b"abcdefgh"));
    let with_lens = |first: u32, second: u32| {
        let mut bytes = good.clone();
        bytes[43..47].copy_from_slice(&first.to_le_bytes());
        bytes[51..55].copy_from_slice(&second.to_le_bytes());
        kinds(Dialect::Auto, Limits::default(), &bytes)
    };
    assert!(with_lens(8, 0).is_ok());
    assert!(matches!(with_lens(0, 8), Err(DecodeError::MapEmptyEntry { .. })));
    assert!(matches!(with_lens(3, 4), Err(DecodeError::MapSum { expected: 8, got: 7, .. })));
    assert!(matches!(with_lens(u32::MAX, u32::MAX), Err(DecodeError::MapSum { .. })));
}

#[test]
fn an_ignorable_chunk_is_passed_over() {
    let mut bytes = stream(|w| w.payload("a", 0, b"xyz"));
    bytes[9] = b'Q';
    assert!(matches!(
        kinds(Dialect::Auto, Limits::default(), &bytes),
        Err(DecodeError::UnknownType { position: 0, type_byte: b'Q' })
    ));
    bytes[8] = FLAG_IGNORABLE;
    bytes.extend(stream(|w| w.end("b")));
    let got = kinds(Dialect::Auto, Limits::default(), &bytes).unwrap();
    assert_eq!(got, [ChunkKind::Ignored { type_byte: b'Q', len: 3 }, ChunkKind::End]);
}
