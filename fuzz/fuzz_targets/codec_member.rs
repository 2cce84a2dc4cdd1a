//! Any bytes as a member of each format, in any pieces: no panic, and the same result however input
//! and output are cut.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xb_compressor::{CodecError, Member, FileDecoder, FileCodecLimits, FileTotals, State};

/// Decoding stops after this many bytes: a few bytes can expand to very many.
const MOST: usize = 8 << 20;

type Outcome = (Vec<u8>, Option<Result<FileTotals, CodecError>>);

fn decode(member: Member, mut data: &[u8], piece: usize, out: usize) -> Outcome {
    let limits = FileCodecLimits { max_window: 1 << 20, max_qpress_block: 1 << 20 };
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
            if plain.len() > MOST {
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

fuzz_target!(|data: &[u8]| {
    let Some((&[which, piece, out], data)) = data.split_first_chunk() else { return };
    let member = Member::ALL[usize::from(which) % Member::ALL.len()];
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
});
