//! Any bytes as a native stream, in any pieces: no panic, and the same result however the input is
//! cut. Half of the inputs get matching checksums first; otherwise none would get past the header.
#![no_main]

#[path = "../../crates/frame/tests/common/mod.rs"]
mod common;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
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
});
