//! Tests with small segments, so that all cases can be tried.

use proptest::prelude::*;

use super::*;
use crate::FreshKey;

const SEGMENT: u64 = 80; // 24 plain bytes in the first segment, 64 in each later one

const ID: [u8; 16] = [3; 16];
const HEADER: &[u8] = b"a stream header";

fn key() -> DataKey {
    DataKey::new(&[0x11; 32])
}

fn context(key: &DataKey) -> SealContext<'static> {
    SealContext { stream_id: ID, commitment: key.commitment(&ID), header: HEADER }
}

fn head() -> Head {
    Head { salt: [0xaa; 32], prefix: [0xbb; 7] }
}

fn sealer(salt: u8) -> Sealer {
    let head = Head { salt: [salt; 32], ..head() };
    let key = key();
    let mut sealer = Sealer::with_head(&key, &context(&key), Backend::Portable, &head).unwrap();
    sealer.set_layout(SegmentLayout::small(SEGMENT));
    sealer
}

fn seal_with(sealer: Sealer, plain: &[u8], step: usize) -> Vec<u8> {
    let mut stream = SealStream::new(sealer).unwrap();
    let mut out = Vec::new();
    for piece in plain.chunks(step.max(1)) {
        stream.push(piece, &mut out).unwrap();
    }
    stream.finish(&mut out).unwrap();
    out
}

fn seal(plain: &[u8]) -> Vec<u8> {
    seal_with(sealer(0xaa), plain, usize::MAX)
}

fn opener(sealed: &[u8], backend: Backend) -> Result<Opener, SealError> {
    let key = key();
    let head = sealed.first_chunk().ok_or(SealError::Cut { offset: 0 })?;
    let mut opener = Opener::new(&key, &context(&key), head, backend)?;
    opener.segments.layout = SegmentLayout::small(SEGMENT);
    Ok(opener)
}

/// Returns the output, and the result at the end.
fn open(sealed: &[u8], step: usize, backend: Backend) -> (Vec<u8>, Result<u64, SealError>) {
    let mut out = Vec::new();
    let result = opener(sealed, backend).and_then(|opener| {
        let mut stream = OpenStream::with_opener(opener);
        for piece in sealed[40..].chunks(step.max(1)) {
            stream.push(piece, &mut out)?;
        }
        stream.finish(&mut out)
    });
    (out, result)
}

fn text(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n % 251) as u8 + 1).collect()
}

/// However the stream was changed: an error, and before it only whole segments of the original.
fn assert_refused(sealed: &[u8], original: &[u8], what: &str) {
    for &backend in Backend::ALL {
        let (out, result) = open(sealed, usize::MAX, backend);
        assert!(result.is_err(), "{what}: taken by {backend:?}");
        assert!(original.starts_with(&out), "{what}: other bytes were output of {backend:?}");
        assert!(out.is_empty() || (out.len() - 24).is_multiple_of(64), "{what}: half a segment");
    }
}

#[test]
fn workers_can_share_all_of_it() {
    fn shared<T: Send + Sync>() {}
    shared::<Sealer>();
    shared::<SegmentToSeal>();
    shared::<Opener>();
    shared::<DataKey>();
    shared::<crate::xbcrypt::Cipher>();
    shared::<crate::KeysObject>();
}

#[test]
fn whole_streams_return_however_they_are_cut() {
    for len in [0, 1, 23, 24, 25, 87, 88, 89, 152, 153, 500] {
        let plain = text(len);
        let sealed = seal(&plain);
        let layout = SegmentLayout::small(SEGMENT);
        assert_eq!(sealed.len() as u64, layout.sealed_len(len as u64).unwrap());
        for step in [1, 7, 64, 79, 80, 81, usize::MAX] {
            assert_eq!(seal_with(sealer(0xaa), &plain, step), sealed);
            for &backend in Backend::ALL {
                let (out, result) = open(&sealed, step, backend);
                assert_eq!((out, result.unwrap()), (plain.clone(), len as u64));
            }
        }
    }
}

#[test]
fn every_flipped_bit_is_an_error() {
    let plain = text(24 + 64 + 30);
    let sealed = seal(&plain);
    for bit in 0..sealed.len() * 8 {
        let mut bad = sealed.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert_refused(&bad, &plain, &format!("bit {bit}"));
    }
}

#[test]
fn every_cut_is_an_error_and_so_is_more() {
    let plain = text(24 + 64 + 64);
    let sealed = seal(&plain);
    for len in 0..sealed.len() {
        assert_refused(&sealed[..len], &plain, &format!("cut at {len}"));
    }
    // At a segment border the message reports a cut.
    for (at, out_len) in [(80, 0), (160, 24)] {
        let (out, result) = open(&sealed[..at], 9, Backend::Portable);
        assert!(matches!(result, Err(SealError::Cut { offset }) if offset == at as u64));
        assert_eq!(out.len(), out_len);
    }
    for more in [1, 15, 16, 17, 80] {
        let longer = [sealed.clone(), vec![0; more]].concat();
        assert_refused(&longer, &plain, &format!("{more} more"));
    }
}

#[test]
fn every_moved_segment_is_an_error() {
    let plain = text(24 + 64 * 4);
    let sealed = seal(&plain);
    let foreign = seal_with(sealer(0xcc), &plain, usize::MAX);
    let segment = |of: &[u8], n: usize| match n {
        0 => of[40..80].to_vec(),
        n => of[n * 80..(n + 1) * 80].to_vec(),
    };
    let build = |order: &[(usize, bool)]| {
        let mut bytes = sealed[..40].to_vec();
        for &(n, own) in order {
            bytes.extend(segment(if own { &sealed } else { &foreign }, n));
        }
        bytes
    };
    let right: Vec<(usize, bool)> = (0..5).map(|n| (n, true)).collect();
    assert_eq!(build(&right), sealed);
    for n in 0..5 {
        let mut dropped = right.clone();
        dropped.remove(n);
        assert_refused(&build(&dropped), &plain, &format!("without {n}"));
        let mut repeated = right.clone();
        repeated.insert(n, (n, true));
        assert_refused(&build(&repeated), &plain, &format!("{n} twice"));
        let mut imported = right.clone();
        imported[n].1 = false;
        assert_refused(&build(&imported), &plain, &format!("{n} of another stream"));
        for m in 0..n {
            let mut swapped = right.clone();
            swapped.swap(n, m);
            assert_refused(&build(&swapped), &plain, &format!("{m} and {n} swapped"));
        }
    }
}

#[test]
fn segments_open_in_any_order_and_only_as_what_they_are() {
    let plain = text(24 + 64 + 10);
    let sealed = seal(&plain);
    for &backend in Backend::ALL {
        let opener = opener(&sealed, backend).unwrap();
        let layout = opener.layout();
        for index in [2, 0, 1] {
            let range = layout.sealed_range(index, plain.len() as u64);
            let bytes = sealed[range.start as usize..range.end as usize].to_vec();
            for as_index in 0..4 {
                for last in [false, true] {
                    let mut buf = bytes.clone();
                    let result = opener.open_segment(as_index, last, &mut buf);
                    let mut apart = vec![0; bytes.len()];
                    let into = opener.open_segment_into(as_index, last, &bytes, &mut apart);
                    assert_eq!(into.ok(), result.as_ref().ok().copied());
                    if (as_index, last) == (index, index == 2) {
                        let range = layout.plain_range(index, plain.len() as u64);
                        let want = &plain[range.start as usize..range.end as usize];
                        let opened = result.unwrap();
                        assert_eq!((&buf[..opened], &apart[..opened]), (want, want));
                    } else {
                        assert!(result.is_err(), "{index} as {as_index}, {last}");
                        let mut all = buf.iter().chain(&apart);
                        assert!(all.all(|&byte| byte == 0), "bytes were output");
                    }
                }
            }
        }
        assert!(matches!(
            opener.open_segment(1 << 32, true, &mut [0; 32]),
            Err(SealError::TooLong)
        ));
    }
}

#[test]
fn a_wrong_key_is_known_before_anything_is_opened() {
    let sealed = seal(&text(100));
    let right = context(&key());
    let wrong = DataKey::new(&[0x12; 32]);
    let refused = OpenStream::new(&wrong, &right, Backend::default());
    assert!(matches!(refused, Err(SealError::WrongKey)));
    let refused = Opener::new(&wrong, &right, sealed.first_chunk().unwrap(), Backend::default());
    assert!(matches!(refused, Err(SealError::WrongKey)));
    // Another id, another commitment.
    let other = SealContext { stream_id: [4; 16], ..right };
    assert!(matches!(
        OpenStream::new(&key(), &other, Backend::default()),
        Err(SealError::WrongKey)
    ));
}

#[test]
fn another_header_opens_nothing() {
    let key = key();
    let mut sealed = Vec::new();
    let sealer = Sealer::new(&key, &context(&key), Backend::default()).unwrap();
    let mut stream = SealStream::new(sealer).unwrap();
    stream.push(b"text", &mut sealed).unwrap();
    stream.finish(&mut sealed).unwrap();
    let other = SealContext { header: b"A stream header", ..context(&key) };
    let mut out = Vec::new();
    let mut stream = OpenStream::new(&key, &other, Backend::default()).unwrap();
    stream.push(&sealed, &mut out).unwrap();
    assert!(matches!(stream.finish(&mut out), Err(SealError::Segment { index: 0, offset: 40 })));
    assert!(out.is_empty());
}

#[test]
fn after_an_error_nothing_comes_out() {
    let plain = text(400);
    let mut sealed = seal(&plain);
    sealed[90] ^= 1;
    let mut stream = OpenStream::with_opener(opener(&sealed, Backend::default()).unwrap());
    let mut out = Vec::new();
    let first = stream.push(&sealed[40..], &mut out).unwrap_err().to_string();
    assert_eq!(out, plain[..24]);
    let again = stream.push(&sealed[160..], &mut out).unwrap_err().to_string();
    assert_eq!(first, again);
    assert!(stream.finish(&mut out).is_err());
    assert_eq!(out.len(), 24);
    assert!(first.starts_with("segment 1 at sealed offset 80 fails authentication"), "{first}");
}

#[test]
fn a_sealer_gives_each_segment_once_and_checks_lengths() {
    let mut sealer = sealer(1);
    assert_eq!(sealer.capacity(), 24);
    let first = sealer.next_segment(false).unwrap();
    assert!(matches!(
        first.seal(&mut [0; 39]),
        Err(SealError::Length { index: 0, expected: ExpectedLength::Full(24), .. })
    ));
    assert_eq!(sealer.capacity(), 64);
    sealer.next_segment(false).unwrap().seal(&mut [0; 80]).unwrap();
    let last = sealer.next_segment(true).unwrap();
    assert_eq!(last.index(), 2);
    assert!(matches!(last.seal(&mut [0; 16]), Err(SealError::Length { .. })), "an empty last one");
    assert!(sealer.is_finished());
    assert!(matches!(sealer.next_segment(true), Err(SealError::AfterLast)));
    assert!(SealStream::new(sealer).is_err());
}

#[test]
fn a_key_seals_only_under_its_own_commitment() {
    let fresh = FreshKey::generate().unwrap();
    let foreign = context(&key());
    assert!(matches!(fresh.sealer(&foreign, Backend::default()), Err(SealError::ForeignHeader)));
}

#[test]
fn a_body_without_a_seal_is_named() {
    let key = key();
    for (bytes, want) in [
        (&b"\x29"[..], "the sealed body starts with 0x29 instead of its header length, 40"),
        (
            b"\x28abc",
            "the sealed body is truncated: it ends at sealed offset 4, before its last segment",
        ),
        (b"", "the sealed body is truncated: it ends at sealed offset 0, before its last segment"),
    ] {
        let mut stream = OpenStream::new(&key, &context(&key), Backend::default()).unwrap();
        let result = stream.push(bytes, &mut Vec::new());
        let error = result.and_then(|()| stream.finish(&mut Vec::new())).unwrap_err();
        assert_eq!(error.to_string(), want);
    }
}

proptest! {
    #[test]
    fn any_stream_returns(plain in prop::collection::vec(any::<u8>(), 0..600),
                          write in 1_usize..200, read in 1_usize..200) {
        let sealed = seal_with(sealer(9), &plain, write);
        let (out, result) = open(&sealed, read, Backend::default());
        prop_assert_eq!(result.unwrap(), plain.len() as u64);
        prop_assert_eq!(out, plain);
    }

    #[test]
    fn any_bytes_are_refused(mut sealed in prop::collection::vec(any::<u8>(), 0..400),
                             step in 1_usize..100) {
        if let Some(first) = sealed.first_mut() {
            *first = 40;
        }
        let (out, result) = open(&sealed, step, Backend::default());
        prop_assert!(result.is_err() && out.is_empty());
    }
}
