//! Any bytes as the payload of an index frame: no panic, runs have the length that they state, and
//! parsed records stay the same when written and parsed again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xb_frame::{FRAME_HEADER_LEN, Record, StreamHeader, StreamId, StreamWriter, index};

fuzz_target!(|data: &[u8]| {
    let Ok(records) = index::parse(data) else { return };
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
        let again = index::parse(&frame[FRAME_HEADER_LEN..]).expect("our own");
        assert_eq!(again.collect::<Result<Vec<_>, _>>().expect("our own"), sent);
    }
});
