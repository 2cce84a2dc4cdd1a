//! Property tests: data of any size is read back as written, and no input makes a reader panic.

use std::collections::BTreeMap;

use crate::common::{ID, Op, build, mend, read};
use proptest::collection::vec;
use proptest::prelude::*;
use xb_frame::index::{self, ChunkRecord};
use xb_frame::{
    Codec, Event, FrameError, FrameHeader, Limits, MAX_POSITION, Record, Seal, StreamHeader,
    StreamReader, StreamWriter, Trailer,
};

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..4_u16, vec(any::<u8>(), 1..300)).prop_map(|(source, data)| Op::Data(source, data)),
        2 => (0..1000_u64, vec(any::<u8>(), 1..=511)).prop_map(|(id, path)| Op::File(id, path)),
        1 => Just(Op::Index),
    ]
}

/// A record without borrowed bytes, so that a strategy can generate it.
#[derive(Debug, Clone)]
enum Owned {
    File(u64, u16, Vec<u8>),
    Chunk(ChunkRecord),
    End(u64, u64),
    Rename(u64, Vec<u8>),
    Remove(u64),
}

impl Owned {
    fn record(&self) -> Record<'_> {
        match self {
            Owned::File(file, source, path) => Record::File { file: *file, source: *source, path },
            Owned::Chunk(chunk) => Record::Chunk(*chunk),
            Owned::End(file, size) => Record::End { file: *file, size: *size },
            Owned::Rename(file, path) => Record::Rename { file: *file, path },
            Owned::Remove(file) => Record::Remove { file: *file },
        }
    }
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..300_u64, 0..=MAX_POSITION / 4, Just(MAX_POSITION / 4)]
}

fn file_id() -> impl Strategy<Value = u64> {
    prop_oneof![0..3_u64, any::<u64>()]
}

fn owned() -> impl Strategy<Value = Owned> {
    let path = || vec(any::<u8>(), 1..=511);
    let numbers = (number(), number(), number(), number(), number());
    let chunk = (file_id(), prop_oneof![Just(b'P'), Just(b'S')], numbers).prop_map(
        |(file, kind, (position, head_len, payload_len, offset, holes))| {
            let logical_len = payload_len + holes;
            let lens = (position, head_len, payload_len);
            let (position, head_len, payload_len) = lens;
            ChunkRecord { file, kind, position, head_len, payload_len, offset, logical_len }
        },
    );
    prop_oneof![
        (file_id(), 0..256_u16, path()).prop_map(|(f, s, p)| Owned::File(f, s, p)),
        chunk.prop_map(Owned::Chunk),
        (file_id(), number()).prop_map(|(f, n)| Owned::End(f, n)),
        (file_id(), path()).prop_map(|(f, p)| Owned::Rename(f, p)),
        file_id().prop_map(Owned::Remove),
    ]
}

fn header() -> StreamHeader {
    StreamHeader::new(ID).with_max_plain(300).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn streams_return(
        ops in vec(op(), 0..40),
        target in prop_oneof![0..200_usize, Just(1 << 20)],
        pieces in vec(1..200_usize, 1..20),
    ) {
        let (stream, summary) = build(&header(), target, &ops);
        prop_assert_eq!(summary.stream_len, stream.len() as u64);
        let mut plain = BTreeMap::<u16, Vec<u8>>::new();
        for op in &ops {
            if let Op::Data(source, data) = op {
                plain.entry(*source).or_default().extend(data);
            }
        }
        let whole = read(&stream, &[stream.len()]).unwrap();
        prop_assert_eq!(&whole.plain, &plain);
        prop_assert_eq!(&whole.summary, &summary);
        prop_assert_eq!(&whole.listed, &whole.frames);
        prop_assert_eq!(&read(&stream, &pieces).unwrap(), &whole);
        prop_assert_eq!(&read(&stream, &[1]).unwrap(), &whole);
    }

    /// Follows the index chain from the end of the stream.
    #[test]
    fn the_index_is_found_from_the_end(ops in vec(op(), 0..40), target in 0..300_usize) {
        let (stream, summary) = build(&header(), target, &ops);
        let whole = read(&stream, &[stream.len()]).unwrap();
        let header = StreamHeader::parse(&stream).unwrap();
        let trailer = Trailer::parse(stream.last_chunk().unwrap()).unwrap();
        trailer.check(&header, stream.len() as u64).unwrap();
        prop_assert_eq!(&trailer, &Trailer::of(&summary));

        let mut found = Vec::new();
        let mut next = trailer.last_index.map(|place| (place.position, place.len));
        while let Some((position, len)) = next {
            let start = 128 + position as usize;
            let (head, payload) =
                stream[start..start + len as usize].split_first_chunk::<32>().unwrap();
            let frame = FrameHeader::parse(head, &header, position).unwrap();
            frame.check_payload(payload).unwrap();
            let records = index::parse(payload).unwrap();
            next = frame.previous_index().map(|position| (position, records.previous_len()));
            found.push(payload.to_vec());
        }
        found.reverse();
        prop_assert_eq!(found, whole.index_payloads);
    }

    #[test]
    fn records_return(records in vec(owned(), 0..60)) {
        let mut writer = StreamWriter::new(&header());
        let mut sent = Vec::new();
        for record in &records {
            let record = record.record();
            writer.record(&record).unwrap();
            sent.push(record);
        }
        if let Some(frame) = writer.index_frame() {
            let got: Result<Vec<_>, _> = index::parse(&frame[32..]).unwrap().collect();
            prop_assert_eq!(got.unwrap(), sent);
        } else {
            prop_assert!(sent.is_empty());
        }
    }

    #[test]
    fn any_bytes_never_panic(bytes in vec(any::<u8>(), 0..2000), pieces in vec(1..64_usize, 1..4)) {
        let _ = read(&bytes, &pieces);
        if let Ok(records) = index::parse(&bytes) {
            for record in records {
                if let Ok(Record::Frames(run)) = record {
                    assert_eq!(run.frames().count(), run.count() as usize);
                }
            }
        }
    }

    /// Damage with repaired checksums reaches the checks after the checksums. If the bytes are
    /// still a valid stream, they are valid in pieces of any size.
    #[test]
    fn mended_damage_never_panics(
        ops in vec(op(), 0..12),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let (mut stream, _) = build(&header(), 200, &ops);
        for (at, byte) in damage {
            let at = at.index(stream.len());
            stream[at] = byte;
        }
        mend(&mut stream);
        prop_assert_eq!(read(&stream, &[stream.len()]), read(&stream, &[7]));
    }

    /// Positions and payloads of a sealed stream are those of the unsealed body. Payload checksums
    /// are left out, and the reader only accepts the stream if the caller opens the seal.
    #[test]
    fn sealed_streams_differ_in_header_and_checksums(ops in vec(op(), 0..12)) {
        let (open, open_summary) = build(&header(), 200, &ops);
        let sealed_header = header().with_seal(Seal::Aes256GcmHkdf1Mb, [8; 32]);
        let (sealed, summary) = build(&sealed_header, 200, &ops);
        prop_assert_eq!(open.len(), sealed.len());
        prop_assert_eq!(&summary.end, &open_summary.end);
        // One segment, as the stream is short: a 40-byte head and a 16-byte tag.
        prop_assert_eq!(summary.stream_len, open_summary.stream_len + 56);

        let limits = Limits::default().with_external_unseal(true);
        let mut reader = StreamReader::new(limits);
        let mut rest = &sealed[..];
        while let Some(event) = reader.next(&mut rest).unwrap() {
            if let Event::FrameEnd(frame) = event {
                prop_assert_eq!(frame.payload_crc32c, None);
            }
        }
        prop_assert_eq!(reader.finish().unwrap(), summary);
        prop_assert_eq!(StreamReader::new(Limits::default()).next(&mut &sealed[..]), Err(FrameError::Sealed));
    }
}

/// The codec number is passed on; both sides check the lengths.
#[test]
fn compressed_frames_must_shrink() {
    let mut writer = StreamWriter::new(&header());
    for codec in [Codec::Lz4, Codec::Snappy, Codec::Zlib, Codec::Zstd] {
        assert!(writer.data_frame(0, codec, 100, 100, 0).is_err());
        assert!(writer.data_frame(0, codec, 100, 0, 0).is_err());
        let position = writer.position();
        let bytes = writer.data_frame(0, codec, 100, 99, 0).unwrap();
        let frame = FrameHeader::parse(&bytes, &header(), position).unwrap();
        assert_eq!((frame.codec, frame.plain_len, frame.stored_len), (codec, 100, 99));
        assert_eq!(writer.position(), position + 32 + 99);
    }
    assert_eq!(writer.plain_offset(0), 400);
    assert!(writer.data_frame(0, Codec::None, 100, 99, 0).is_err());
    assert!(writer.data_frame(0, Codec::None, 0, 0, 0).is_err());
    assert!(writer.data_frame(0, Codec::None, 301, 301, 0).is_err());
    assert!(writer.data_frame(256, Codec::None, 1, 1, 0).is_err());
}

#[test]
fn the_writer_refuses_records_that_no_reader_takes() {
    let chunk = ChunkRecord {
        file: 0,
        kind: b'P',
        position: 0,
        head_len: 35,
        payload_len: 3,
        offset: 0,
        logical_len: 3,
    };
    let mut writer = StreamWriter::new(&header());
    for bad in [
        Record::File { file: 0, source: 0, path: b"" },
        Record::File { file: 0, source: 0, path: &[b'x'; 512] },
        Record::File { file: 0, source: 256, path: b"x" },
        Record::Rename { file: 0, path: &[b'x'; 512] },
        Record::End { file: 0, size: MAX_POSITION + 1 },
        Record::Chunk(ChunkRecord { kind: b'E', ..chunk }),
        Record::Chunk(ChunkRecord { logical_len: 2, ..chunk }),
        Record::Chunk(ChunkRecord { position: MAX_POSITION, ..chunk }),
        Record::Chunk(ChunkRecord { offset: MAX_POSITION - 2, ..chunk }),
        Record::Chunk(ChunkRecord { head_len: u64::MAX, ..chunk }),
    ] {
        assert!(writer.record(&bad).is_err(), "{bad:?}");
    }
    assert_eq!(writer.index_frame(), None, "a refused record leaves nothing behind");
}

/// A caller that never asks whether an index frame is due gets an error before the format's limit.
#[test]
fn an_overdue_index_frame_is_an_error() {
    let mut writer = StreamWriter::new(&header());
    let path = [b'x'; 511];
    let mut file = 0;
    let error = loop {
        match writer.record(&Record::File { file, source: 0, path: &path }) {
            Ok(()) => file += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, FrameError::IndexOverdue { .. }), "{error}");
    assert!(writer.index_due());
    let frame = writer.index_frame().unwrap();
    assert!(frame.len() <= 32 + index::MAX_INDEX_PLAIN && frame.len() > 1_000_000);
    assert_eq!(index::parse(&frame[32..]).unwrap().count() as u64, file);

    // The same for frames: sources alternate, so that each frame is a run of its own.
    let mut frames = 0_u32;
    while let Ok(_header) = writer.data_frame((frames % 2) as u16, Codec::None, 1, 1, 0) {
        frames += 1;
    }
    assert!(frames > 10_000);
    assert!(writer.index_frame().unwrap().len() <= 32 + index::MAX_INDEX_PLAIN);
}

/// The size of the index that the document promises: 1 byte per frame that is stored uncompressed,
/// 3 per frame of 1 MiB that shrinks. A run ends after 4096 frames.
#[test]
fn frame_records_are_small() {
    for (codec, stored, each) in [(Codec::None, 1 << 20, 1), (Codec::Zstd, 400_000, 3)] {
        let mut writer = StreamWriter::new(&StreamHeader::new(ID));
        for _ in 0..10_000 {
            writer.data_frame(0, codec, 1 << 20, stored, 0).unwrap();
        }
        let frame = writer.index_frame().unwrap();
        let runs: Vec<u32> = index::parse(&frame[32..])
            .unwrap()
            .map(|record| match record {
                Ok(Record::Frames(run)) => run.count(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(runs, [4096, 4096, 1808]);
        assert!(frame.len() < 10_000 * each + 150, "{}", frame.len());
    }
}
