//! Pages built from the description of the format, in every kind and size.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]
#![allow(clippy::cast_possible_truncation, reason = "page fields are the low bits")]

use crc_fast::{CrcAlgorithm, checksum};
use proptest::prelude::*;
use xb_pages::{BadPage, Fault, Format, Kind, PageChecker, PageCounts};

/// The kind of checksum of a page.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Sum {
    Crc32,
    Innodb,
    None,
    Full,
    FullCompressed,
    FullEncrypted,
    Crypt,
    ZipCrc32,
    ZipAdler,
    ZipNone,
}

const SUMS: [Sum; 10] = [
    Sum::Crc32,
    Sum::Innodb,
    Sum::None,
    Sum::Full,
    Sum::FullCompressed,
    Sum::FullEncrypted,
    Sum::Crypt,
    Sum::ZipCrc32,
    Sum::ZipAdler,
    Sum::ZipNone,
];

impl Sum {
    fn kind(self) -> Kind {
        match self {
            Self::Crc32 | Self::Innodb | Self::None | Self::Crypt => Kind::Both,
            Self::Full | Self::FullCompressed | Self::FullEncrypted => Kind::Full,
            Self::ZipCrc32 | Self::ZipAdler | Self::ZipNone => Kind::Zip,
        }
    }

    fn codes(self) -> std::ops::RangeInclusive<u32> {
        if self.kind() == Kind::Zip { 1..=5 } else { 3..=7 }
    }
}

fn crc(bytes: &[u8]) -> u32 {
    checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

fn put(page: &mut [u8], at: usize, value: u32) {
    page[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

/// The checksum before CRC-32C, bit by bit as in its description, in 64 bits.
fn fold(bytes: &[u8]) -> u64 {
    let pair = |a: u64, b: u64| {
        let mixed = (a ^ b ^ 1_653_893_711).wrapping_shl(8).wrapping_add(a);
        (mixed ^ 1_463_735_687).wrapping_add(b)
    };
    bytes.iter().fold(0, |sum, byte| pair(sum, u64::from(*byte)))
}

fn adler(pieces: &[&[u8]]) -> u32 {
    let (mut a, mut b) = (0_u32, 0_u32);
    for byte in pieces.concat() {
        a = (a + u32::from(byte)) % 65521;
        b = (b + a) % 65521;
    }
    b << 16 | a
}

/// Builds page `number` of a tablespace, with `fill` as its content.
fn page(sum: Sum, code: u32, number: u32, fill: u8) -> Vec<u8> {
    let size = 512_usize << code;
    let mut page: Vec<u8> = (0..size).map(|n| fill.wrapping_add((n / 7) as u8)).collect();
    page[..38].fill(0);
    put(&mut page, 4, number);
    put(&mut page, 20, 0x1000 + number);
    page[24..26].copy_from_slice(&17855_u16.to_be_bytes());
    put(&mut page, 34, 5);
    if number == 0 {
        page[24..26].copy_from_slice(&8_u16.to_be_bytes());
        let flags = match sum.kind() {
            Kind::Full => 0x10 | code,
            Kind::Both => 0x21 | code << 6,
            Kind::Zip => 0x21 | code << 1,
        };
        put(&mut page, 54, flags);
    }
    // The first page of a tablespace is never compressed or encrypted.
    let sum = match sum {
        Sum::FullCompressed | Sum::FullEncrypted if number == 0 => Sum::Full,
        Sum::Crypt if number == 0 => Sum::Crc32,
        sum => sum,
    };
    put(&mut page, size - 4, 0x1000 + number);
    let both = |page: &[u8]| crc(&page[4..26]) ^ crc(&page[38..size - 8]);
    match sum {
        Sum::Crc32 => {
            let sum = both(&page);
            put(&mut page, 0, sum);
            put(&mut page, size - 8, sum);
        }
        Sum::Innodb => {
            let newer = fold(&page[4..26]).wrapping_add(fold(&page[38..size - 8]));
            put(&mut page, 0, newer as u32);
            let older = fold(&page[..26]) as u32;
            put(&mut page, size - 8, older);
        }
        Sum::None => {
            put(&mut page, 0, 0xdead_beef);
            put(&mut page, size - 8, 0xdead_beef);
        }
        Sum::Crypt => {
            put(&mut page, 0, 77);
            put(&mut page, 26, 1);
            let sum = both(&page);
            put(&mut page, 30, sum);
        }
        Sum::Full | Sum::FullEncrypted => {
            let key = u32::from(sum == Sum::FullEncrypted);
            put(&mut page, 0, key);
            put(&mut page, size - 8, if key == 0 { 0x1000 + number } else { 99 });
            let sum = crc(&page[..size - 4]);
            put(&mut page, size - 4, sum);
        }
        Sum::FullCompressed => {
            let len = size / 2;
            page[24..26].copy_from_slice(&(0x8000 | (len >> 8) as u16).to_be_bytes());
            page[len..].fill(0);
            let sum = crc(&page[..len - 4]);
            put(&mut page, len - 4, sum);
        }
        Sum::ZipCrc32 => {
            let sum = crc(&page[4..16]) ^ crc(&page[24..26]) ^ crc(&page[34..]);
            put(&mut page, 0, sum);
        }
        Sum::ZipAdler => {
            let sum = adler(&[&page[4..16], &page[24..26], &page[34..]]);
            put(&mut page, 0, sum);
        }
        Sum::ZipNone => put(&mut page, 0, 0xdead_beef),
    }
    page
}

fn file(sum: Sum, code: u32, pages: u32) -> Vec<u8> {
    (0..pages).flat_map(|n| page(sum, code, n, n as u8)).collect()
}

/// Feeds a file in pieces of these lengths, used in turn.
fn checked(
    name: &str,
    file: &[u8],
    pieces: &[usize],
) -> (PageCounts, Vec<BadPage>, Option<Format>) {
    let mut checker = PageChecker::of_name(name.as_bytes()).expect("a tablespace");
    let mut bad = Vec::new();
    let mut rest = file;
    for len in pieces.iter().copied().cycle() {
        let (piece, after) = rest.split_at(len.min(rest.len()));
        checker.feed(piece, &mut |page| bad.push(page));
        assert!(checker.held() <= xb_pages::MAX_PAGE);
        rest = after;
        if rest.is_empty() {
            break;
        }
    }
    let format = checker.format();
    let counts = checker.finish(&mut |page| bad.push(page));
    assert_eq!(counts.damaged, bad.len() as u64);
    (counts, bad, format)
}

#[test]
fn sound_pages_of_every_kind_and_size_pass() {
    for sum in SUMS {
        for code in sum.codes() {
            let file = file(sum, code, 12);
            let (counts, bad, format) = checked("shop/t.ibd", &file, &[file.len()]);
            let passed = counts.good + counts.no_checksum;
            assert_eq!((passed, &bad[..]), (12, &[][..]), "{sum:?} {code} {counts:?}");
            assert_eq!(counts.no_checksum > 0, matches!(sum, Sum::None | Sum::ZipNone));
            if file.len() >= xb_pages::MAX_PAGE {
                let expected = Format { page_size: 512 << code, kind: sum.kind() };
                assert_eq!(format, Some(expected), "{sum:?} {code}");
            }
        }
    }
}

#[test]
fn a_flipped_byte_is_found_in_its_page() {
    for sum in SUMS.into_iter().filter(|sum| !matches!(sum, Sum::None | Sum::ZipNone)) {
        for code in sum.codes() {
            let size = 512 << code;
            for (hit, at) in
                [(0, 60), (0, 4), (1, 100), (3, size / 2 - 10), (3, 24), (5, 4), (5, 16)]
            {
                // No checksum covers the log position of a compressed page, and it has no second
                // copy.
                if at == 16 && sum.kind() == Kind::Zip {
                    continue;
                }
                let mut file = file(sum, code, 7);
                file[hit * size + at] ^= 0x40;
                let (counts, bad, _) = checked("t.ibd", &file, &[8192]);
                assert_eq!(counts.good, 6, "{sum:?} {code} page {hit} at {at}: {bad:?}");
                assert_eq!((bad.len(), bad[0].page), (1, hit as u64));
                assert_eq!(bad[0].offset, (hit * size) as u64);
            }
        }
    }
}

#[test]
fn flags_that_are_damaged_do_not_make_the_other_pages_bad() {
    for sum in SUMS.into_iter().filter(|sum| !matches!(sum, Sum::None | Sum::ZipNone)) {
        for code in sum.codes() {
            let mut file = file(sum, code, 64);
            file[54..58].fill(0xff);
            let (_, bad, _) = checked("t.ibd", &file, &[1 << 20]);
            if 512 << code < xb_pages::MAX_PAGE {
                assert_eq!(bad.len(), 1, "{sum:?} {code}: {bad:?}");
            }
            assert_eq!(bad[0].page, 0);
        }
    }
}

#[test]
fn pages_in_the_wrong_place_and_torn_ones_are_found() {
    for sum in SUMS {
        let mut swapped = file(sum, 5, 4);
        let (two, three) = (page(sum, 5, 2, 2), page(sum, 5, 3, 3));
        let size = two.len();
        swapped[2 * size..3 * size].copy_from_slice(&three);
        swapped[3 * size..].copy_from_slice(&two);
        let (_, bad, _) = checked("t.ibd", &swapped, &[size]);
        let expected = [
            (2, Fault::Number { expected: 2, got: 3 }),
            (3, Fault::Number { expected: 3, got: 2 }),
        ];
        assert_eq!(bad.iter().map(|b| (b.page, b.fault)).collect::<Vec<_>>(), expected, "{sum:?}");
    }
    let mut torn = file(Sum::Crc32, 5, 3);
    let end = torn.len();
    torn[end - 1] ^= 1;
    let (_, bad, _) = checked("t.ibd", &torn, &[1000]);
    assert!(matches!(bad[..], [BadPage { page: 2, fault: Fault::Torn { .. }, .. }]), "{bad:?}");
}

#[test]
fn empty_pages_holes_and_cut_files() {
    let size = 16384;
    let mut all = file(Sum::Full, 5, 3);
    all.extend(vec![0; 2 * size]);
    let (counts, bad, _) = checked("t.ibd", &all, &[12345]);
    assert_eq!((counts.good, counts.empty, bad.len()), (3, 2, 0));
    // A file that was created but not written.
    let (counts, bad, _) = checked("t.ibd", &vec![0; 7 * size], &[5000]);
    assert_eq!((counts.empty, bad.len()), (7, 0));
    let (counts, ..) = checked("t.ibd", &[], &[1]);
    assert_eq!(counts, PageCounts::default());
    all.extend([1; 100]);
    let (_, bad, _) = checked("t.ibd", &all, &[12345]);
    assert_eq!((bad[0].page, bad[0].fault), (5, Fault::Cut { len: 100 }));

    let mut checker = PageChecker::of_name(b"t.ibd").unwrap();
    let mut bad = Vec::new();
    let pages = file(Sum::FullCompressed, 5, 8);
    for page in pages.chunks(size) {
        // As in a sparse chunk: the second half is a hole.
        let hole = page[24] & 0x80 != 0;
        checker.feed(if hole { &page[..size / 2] } else { page }, &mut |page| bad.push(page));
        if hole {
            checker.feed_zeros(size as u64 / 2, &mut |page| bad.push(page));
        }
    }
    checker.feed_zeros(1 << 40, &mut |page| bad.push(page));
    let counts = checker.finish(&mut |page| bad.push(page));
    assert_eq!((counts.good, counts.empty, bad.len()), (8, (1 << 40) / size as u64, 0));
}

#[test]
fn the_doublewrite_area_and_later_system_files_are_left_to_their_ways() {
    let mut first = file(Sum::Crc32, 5, 256);
    // Page 100 is inside the area, page 200 after it.
    for hit in [100, 200] {
        first[hit * 16384 + 500] ^= 1;
    }
    let (counts, bad, _) = checked("ibdata1", &first, &[1 << 20]);
    assert_eq!((counts.unchecked, bad.len(), bad[0].page), (128, 1, 200));
    let second: Vec<u8> = (5000..5200).flat_map(|n| page(Sum::Crc32, 5, n, 1)).collect();
    let (counts, bad, _) = checked("ibdata2", &second, &[1 << 20]);
    assert_eq!((counts.good, bad.len()), (200, 0));
    let mut swapped = second.clone();
    swapped.copy_within(16384..32768, 0);
    let (_, bad, _) = checked("ibdata2", &swapped, &[1 << 20]);
    assert!(!bad.is_empty());
}

#[test]
fn only_tablespaces_are_looked_at() {
    for name in
        ["a.ibd", "d/a.ibd", "d/a#P#p0.ibd", "ibdata1", "ibdata12", "undo001", "undo_001", "x.ibu"]
    {
        assert!(PageChecker::of_name(name.as_bytes()).is_some(), "{name}");
    }
    for name in
        ["", "a.frm", "ibdata", "undo", "undo1x", "ib_logfile0", "t.ibd.delta", "aria_log.1"]
    {
        assert!(PageChecker::of_name(name.as_bytes()).is_none(), "{name}");
    }
}

proptest! {
    #[test]
    fn nothing_panics_and_pieces_do_not_matter(
        sum in prop::sample::select(&SUMS), code in 1_u32..8, pages in 0_u32..6,
        damage in prop::collection::vec((any::<prop::sample::Index>(), 1_u8..), 0..4),
        cut in any::<prop::sample::Index>(), pieces in prop::collection::vec(1_usize..70_000, 1..5),
        name in prop::sample::select(&["t.ibd", "ibdata1", "ibdata2"]),
    ) {
        let code = code.clamp(*sum.codes().start(), *sum.codes().end());
        let mut file = file(sum, code, pages);
        if !file.is_empty() {
            for (at, flip) in damage {
                let at = at.index(file.len());
                file[at] ^= flip;
            }
            file.truncate(cut.index(file.len() + 1));
        }
        let whole = checked(name, &file, &[file.len().max(1)]);
        let cut = checked(name, &file, &pieces);
        prop_assert_eq!(whole, cut);
    }

    #[test]
    fn any_bytes_are_taken(mut bytes in prop::collection::vec(any::<u8>(), 0..300), len in 0_usize..200_000, flags: u32) {
        if bytes.len() > 58 {
            put(&mut bytes, 54, flags);
        }
        let bytes: Vec<u8> = bytes.iter().copied().cycle().take(if bytes.is_empty() { 0 } else { len }).collect();
        let (counts, ..) = checked("t.ibd", &bytes, &[bytes.len().max(1)]);
        let smallest = 1024;
        prop_assert!(counts.damaged + counts.empty + counts.good + counts.no_checksum + counts.unchecked <= (bytes.len() / smallest) as u64 + 1);
    }
}
