//! The native stream and its index.

use xb_frame::{FRAME_HEADER_LEN, Record, StreamHeader, StreamId, StreamWriter};

use crate::inputs::with_head;

#[path = "../../frame/tests/common/mod.rs"]
mod common;

pub(crate) use common::mend;

/// Any bytes as a native stream, in any pieces: no panic, and the same result however the input is cut. Half of the inputs get matching checksums first; otherwise none would get past the header.
pub(crate) fn stream(data: &[u8]) {
    let Some((&how, stream)) = data.split_first() else { return };
    let mut stream = stream.to_vec();
    if how & 1 == 1 {
        common::mend(&mut stream);
    }
    let whole = common::read(&stream, &[stream.len().max(1)]);
    let pieces = common::read(&stream, &[usize::from(how >> 1).max(1)]);
    assert_eq!(whole, pieces);
    if let Ok(whole) = whole {
        let plain: usize = whole.plain.values().map(Vec::len).sum();
        assert_eq!(plain as u64, whole.summary.end.stored_bytes);
        assert_eq!(whole.summary.stream_len, stream.len() as u64);
    }
}

/// Any bytes as the payload of an index frame: no panic, runs have the length that they state, and parsed records stay the same when written and parsed again.
pub(crate) fn index(data: &[u8]) {
    let Ok(records) = xb_frame::index::parse(data) else { return };
    let mut writer = StreamWriter::new(&StreamHeader::new(StreamId([0; 16])));
    let mut sent = Vec::new();
    for record in records {
        match record {
            Err(_) => break,
            Ok(Record::Frames(run)) => {
                assert_eq!(run.frames().count(), run.count() as usize);
                let last = run.frames().last().expect("a run has frames");
                assert_eq!(last.plain_offset + u64::from(last.plain_len), run.plain_range().end);
                let end = last.position + 32 + u64::from(last.stored_len);
                assert_eq!(end, run.body_range().end);
            }
            Ok(record) => {
                if writer.record(&record).is_err() {
                    break; // full: the numbers of one frame may take more space in another order
                }
                sent.push(record);
            }
        }
    }
    if let Some(frame) = writer.index_frame() {
        let again = xb_frame::index::parse(&frame[FRAME_HEADER_LEN..]).expect("our own");
        assert_eq!(again.collect::<Result<Vec<_>, _>>().expect("our own"), sent);
    }
}

/// Streams with several sources, files, index frames, and what the fixture has.
pub(crate) fn streams() -> Vec<Vec<u8>> {
    use common::Op::{Data, File, Index};
    let data = |source: u16, len: usize| Data(source, vec![source as u8; len]);
    let steps = [
        vec![data(0, 100), File(0, b"a/b.ibd".to_vec()), data(0, 7)],
        vec![data(0, 9), Index, data(0, 9), File(0, b"x".to_vec()), Index, data(0, 30)],
        (0..40).flat_map(|n| [data(0, 5), File(n, format!("db/t{n}").into_bytes())]).collect(),
        vec![],
    ];
    let header = StreamHeader::new(StreamId(*b"0123456789abcdef"));
    let built = steps.iter().map(|steps| common::build(&header, 200, steps).0);
    built.chain([xb_testkit::vectors::read("native/tiny.native")]).collect()
}

pub(crate) fn stream_seeds() -> Vec<Vec<u8>> {
    [with_head(&[31], streams()), with_head(&[200], streams())].concat()
}

pub(crate) fn index_seeds() -> Vec<Vec<u8>> {
    let streams = streams().into_iter();
    let read = streams.filter_map(|stream| common::read(&stream, &[stream.len()]).ok());
    read.flat_map(|whole| whole.index_payloads).collect()
}
