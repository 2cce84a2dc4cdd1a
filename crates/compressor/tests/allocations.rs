//! Nothing is allocated from block to block.
#![allow(unsafe_code, clippy::unwrap_used)] // the counting allocator needs unsafe

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use xb_compressor::{
    Algorithm, BlockDecoder, BlockEncoder, FileCodec, FileDecoder, Member, PieceEncoder, State,
};
use xb_testkit::data::{mixed, pages};

struct Counting;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: the system's allocator does all the work; the counter allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller guarantees the same conditions.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller guarantees the same conditions.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(work: impl FnOnce()) -> usize {
    let before = COUNT.with(Cell::get);
    work();
    COUNT.with(Cell::get) - before
}

// libzstd's own allocations are not counted here; it keeps its memory for the same reason.
#[test]
fn blocks() {
    assert!(allocations(|| drop(std::hint::black_box(vec![5]))) > 0, "it counts");
    let plain = pages(1, 1 << 20);
    for text in ["lz4", "snappy", "gzip", "zstd"] {
        let algorithm: Algorithm = text.parse().unwrap();
        let mut encoder = BlockEncoder::new(algorithm).unwrap();
        let mut decoder = BlockDecoder::new();
        let mut stored = vec![0; encoder.max_encoded_len(plain.len())];
        let mut out = vec![0; plain.len()];
        let mut round = |len: usize| {
            let stored_len = encoder.encode(&plain[..len], &mut stored).unwrap().unwrap();
            let codec = algorithm.block_codec().unwrap();
            decoder.decode(codec, &stored[..stored_len], &mut out[..len]).unwrap();
        };
        round(1 << 20);
        let more = allocations(|| {
            for len in [1 << 20, 65_536, 1000, 1 << 20] {
                round(len);
            }
        });
        assert_eq!(more, 0, "{text}");
    }
}

#[test]
fn members() {
    for codec in [FileCodec::Lz4, "zstd".parse::<Algorithm>().unwrap().file_codec().unwrap()] {
        let plain = mixed(2, 1 << 20);
        let mut encoder = PieceEncoder::new(codec).unwrap();
        let mut stored = vec![0; encoder.max_encoded_len(plain.len())];
        let mut len = encoder.encode(&plain, &mut stored).unwrap();
        let more = allocations(|| len = encoder.encode(&plain, &mut stored).unwrap());
        assert_eq!(more, 0, "{codec:?}");

        // The second frame of a member reuses the memory of the first, however the input is cut.
        let mut decoder = FileDecoder::new(codec.member()).unwrap();
        let mut out = vec![0; 100_000];
        let mut frame = || {
            for mut piece in stored[..len].chunks(999) {
                while decoder.decode(&mut piece, &mut out).unwrap().state == State::OutputFull {}
            }
        };
        frame();
        assert_eq!(allocations(frame), 0, "{codec:?}");
    }
}

/// A packet that announces much and contains little.
#[test]
fn no_memory_for_a_mere_announcement() {
    let mut member = b"qpress10\0\0\0\x04\0\0\0\0F\x01\0\0\0t\0NEWBNEWB".to_vec();
    member.extend([0; 8 + 4]);
    member.extend([0x47, 0, 0, 0, 1, 0, 0, 0, 2, 1, 2, 3]); // 16 MiB that decode to 32
    let mut decoder = FileDecoder::new(Member::Qpress).unwrap();
    let mut out = [0; 100];
    let taken = allocations(|| {
        let progress = decoder.decode(&mut &member[..], &mut out).unwrap();
        assert_eq!((progress.written, progress.state), (0, State::NeedsInput));
    });
    assert_eq!(taken, 1, "for the three bytes that have come");
}
