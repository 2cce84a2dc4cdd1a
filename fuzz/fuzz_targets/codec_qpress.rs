//! Any bytes as the body of a QuickLZ packet, in an otherwise valid member: no panic, and not one
//! byte more than the packet announces.
#![no_main]

#[path = "../../crates/compressor/tests/common/qpress.rs"]
mod qpress;

use libfuzzer_sys::fuzz_target;
use xb_compressor::{Member, FileDecoder, State};

fn decode(member: &[u8], out: usize) -> Option<Vec<u8>> {
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

fuzz_target!(|data: &[u8]| {
    let Some((&[low, high], body)) = data.split_first_chunk() else { return };
    let announced = usize::from(u16::from_le_bytes([low, high]));
    let packet = qpress::wrap(body, announced, true);
    let mut member = qpress::head(1 << 16);
    member.extend(qpress::block_head(0, &packet));
    member.extend(packet);
    member.extend(b"ENDSENDS\0\0\0\0\0\0\0\0");
    let whole = decode(&member, 1 << 17);
    assert!(whole.as_ref().is_none_or(|plain| plain.len() == announced));
    assert_eq!(whole, decode(&member, 77));

    // The reverse, with a writer that follows the rules.
    let member = qpress::member(data, 1000, qpress::Packing::Compressed);
    assert_eq!(decode(&member, 4096).as_deref(), Some(data));
});
