//! Pages built from the description of the format, in every kind and size.

use crc_fast::{CrcAlgorithm, checksum};
use proptest::prelude::*;
use xb_pages::{BadPage, DeltaPageChecker, Fault, Format, Kind, PageChecker, PageCounts};

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
        // Its tablespace's number again, which states no length and no page that was ever used.
        put(&mut page, 38, 5);
        put(&mut page, 46, 0);
        put(&mut page, 50, 0);
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
        assert!(checker.held() <= 8 * xb_pages::MAX_PAGE + 8192);
        rest = after;
        if rest.is_empty() {
            break;
        }
    }
    let format = checker.format();
    let counts = checker.finish(&mut |page| bad.push(page)).counts;
    let wrong = bad.iter().filter(|page| page.missing_since.is_none()).count();
    assert_eq!(counts.damaged, wrong as u64);
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
    // A file that was created but not written: only the redo log shows whether that is a loss.
    let blank = |bad: &[BadPage]| {
        let BadPage { page, fault, missing_since, .. } = bad[0];
        assert_eq!((bad.len(), page, fault, missing_since), (1, 0, Fault::Blank, Some(0)));
    };
    let (counts, bad, _) = checked("t.ibd", &vec![0; 7 * size], &[5000]);
    assert_eq!((counts.empty, counts.damaged), (7, 0));
    blank(&bad);
    let (counts, bad, _) = checked("t.ibd", &[], &[1]);
    assert_eq!(counts, PageCounts::default());
    blank(&bad);
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
    let counts = checker.finish(&mut |page| bad.push(page)).counts;
    assert_eq!((counts.good, counts.empty, bad.len()), (8, (1 << 40) / size as u64, 0));
}

#[test]
fn the_doublewrite_area_and_later_system_files_are_left_to_their_ways() {
    let system = |from: u32, to: u32| -> Vec<u8> {
        let mut pages: Vec<u8> = (from..to).flat_map(|n| page(Sum::Crc32, 5, n, n as u8)).collect();
        for page in pages.chunks_mut(16384) {
            put(page, 34, 0);
            seal(Sum::Crc32, page);
        }
        pages
    };
    let mut first = system(0, 256);
    let five = &mut first[5 * 16384..6 * 16384];
    name_doublewrite(five);
    // Page 100 is inside the area, page 200 after it.
    for hit in [100, 200] {
        first[hit * 16384 + 500] ^= 1;
    }
    // A server that keeps the doublewrite in other files leaves the area as it was made.
    let (_, mut bad, _) = checked("ibdata1", &first, &[1 << 20]);
    bad.sort_by_key(|bad| bad.page);
    assert_eq!(bad.iter().map(|bad| bad.page).collect::<Vec<_>>(), [100, 200]);
    // Else it holds copies of other pages.
    first.copy_within(3 * 16384..4 * 16384, 70 * 16384);
    let (counts, bad, _) = checked("ibdata1", &first, &[1 << 20]);
    assert_eq!((counts.unchecked, bad.len(), bad[0].page), (128, 1, 200));
    let second = system(5000, 5200);
    let (counts, bad, _) = checked("ibdata2", &second, &[1 << 20]);
    assert_eq!((counts.good, bad.len()), (200, 0));
    let mut swapped = second.clone();
    swapped.copy_within(16384..32768, 0);
    let (_, bad, _) = checked("ibdata2", &swapped, &[1 << 20]);
    assert!(!bad.is_empty());
}

/// Writes into page 5 that the doublewrite area is at pages 64 and 128.
fn name_doublewrite(page: &mut [u8]) {
    put(page, 16384 - 190, 536_853_855);
    put(page, 16384 - 186, 64);
    put(page, 16384 - 182, 128);
    seal(Sum::Crc32, page);
}

#[test]
fn only_tablespaces_are_looked_at() {
    for name in [
        "a.ibd",
        "d/a.ibd",
        "d/a#P#p0.ibd",
        "ibdata1",
        "ibdata12",
        "undo001",
        "undo_001",
        "x.ibu",
        "d/a.ibd.new",
        "x.ibu.new",
        "d/a.new",
        "d/a#P#p0.new",
    ] {
        assert!(PageChecker::of_name(name.as_bytes()).is_some(), "{name}");
    }
    for name in [
        "",
        "a.frm",
        "ibdata",
        "undo",
        "undo1x",
        "ib_logfile0",
        "t.ibd.delta",
        "aria_log.1",
        "a.new",
        "d/.new",
    ] {
        assert!(PageChecker::of_name(name.as_bytes()).is_none(), "{name}");
    }
}

#[test]
fn a_table_that_was_created_during_a_backup_may_have_no_page_yet() {
    let blank = vec![0; 4 * 16384];
    assert!(checked("d/a.new", &blank, &[16384]).1.is_empty());
    assert!(!checked("d/a.ibd", &blank, &[16384]).1.is_empty());
    let mut page = blank;
    page[100] = 1;
    assert_eq!(
        checked("d/a.new", &page, &[16384]).0.damaged,
        checked("d/a.ibd", &page, &[16384]).0.damaged
    );
}

/// A tablespace whose first page states its number (5), its length and its pages in use: of each
/// four pages of the first extent, the last one is free.
fn tablespace(sum: Sum, code: u32, pages: u32) -> Vec<u8> {
    let mut file = file(sum, code, pages);
    let size = 512 << code;
    let logical = if sum.kind() == Kind::Zip { 16384 } else { size };
    let extent = ((1 << 20) / logical).max(64);
    let first = &mut file[..size];
    put(first, 38, 5);
    put(first, 46, pages);
    put(first, 50, extent as u32);
    first[150..size - 8].fill(0);
    put(first, 150 + 20, 2);
    first[150 + 24..150 + 24 + extent / 4].fill(0b0100_0000);
    seal(sum, first);
    file
}

/// Writes the checksum of a first page again.
fn seal(sum: Sum, page: &mut [u8]) {
    let size = page.len();
    match sum.kind() {
        Kind::Full => {
            let sum = crc(&page[..size - 4]);
            put(page, size - 4, sum);
        }
        Kind::Both => {
            let sum = crc(&page[4..26]) ^ crc(&page[38..size - 8]);
            put(page, 0, sum);
            put(page, size - 8, sum);
        }
        Kind::Zip => {
            let sum = crc(&page[4..16]) ^ crc(&page[24..26]) ^ crc(&page[34..]);
            put(page, 0, sum);
        }
    }
}

const SEALED: [Sum; 3] = [Sum::Crc32, Sum::Full, Sum::ZipCrc32];

#[test]
fn an_empty_page_that_is_in_use_is_missing() {
    for sum in SEALED {
        for code in sum.codes() {
            let (size, name) = (512 << code, format!("{sum:?} {code}"));
            let mut sparse = tablespace(sum, code, 64);
            // Pages 7 and 11 are free, pages 8 and 9 are not.
            sparse[7 * size..10 * size].fill(0);
            sparse[11 * size..12 * size].fill(0);
            let (counts, bad, _) = checked("d/t.ibd", &sparse, &[size * 3 / 2]);
            let missing: Vec<_> = bad.iter().map(|b| (b.page, b.fault, b.missing_since)).collect();
            let since = Some(0x1000);
            assert_eq!(missing, [(8, Fault::Empty, since), (9, Fault::Empty, since)], "{name}");
            assert_eq!((counts.empty, counts.damaged), (4, 0), "{name}");

            let mut beheaded = tablespace(sum, code, 64);
            beheaded[..size].fill(0);
            let (_, bad, _) = checked("d/t.ibd.new", &beheaded, &[1 << 20]);
            assert_eq!((bad.len(), bad[0].page, bad[0].fault), (1, 0, Fault::EmptyFixed), "{name}");
        }
    }
}

/// Recovery is over: only pages in use count, and those all do.
#[test]
fn after_a_recovery_only_pages_in_use_are_damaged() {
    for sum in SEALED {
        for code in sum.codes() {
            let (size, name) = (512 << code, format!("{sum:?} {code}"));
            let mut file = tablespace(sum, code, 80);
            // Page 7 is free, 8 is not, and the last ones are beyond those that were ever used, where there are any.
            for page in [7, 8, 79] {
                file[page * size + 300] ^= 1;
            }
            let mut checker = PageChecker::of_name(b"d/t.ibd").unwrap().recovered();
            let mut bad = Vec::new();
            checker.feed(&file, &mut |page| bad.push(page.page));
            let counts = checker.finish(&mut |page| bad.push(page.page)).counts;
            assert_eq!((&bad[..], counts.unchecked), (&[8][..], 2), "{name}");
            let (before, ..) = checked("d/t.ibd", &file, &[1 << 20]);
            assert_eq!((before.damaged, before.unchecked), (3, 0), "{name}");
        }
    }
}

/// A file with these pages of a tablespace, as an increment has it. Unused room for numbers is zeros.
fn delta(sum: Sum, code: u32, numbers: &[u32]) -> Vec<u8> {
    let (size, mut file) = (512 << code, Vec::new());
    let room = size / 4 - 1;
    let groups = numbers.chunks(room).len().max(1);
    for n in 0..groups {
        let group = numbers.chunks(room).nth(n).unwrap_or_default();
        let mut block = if n + 1 == groups { *b"XTRA" } else { *b"xtra" }.to_vec();
        group.iter().for_each(|number| block.extend(number.to_be_bytes()));
        if group.len() < room {
            block.extend(u32::MAX.to_be_bytes());
        }
        block.resize(size, 0);
        file.extend(block);
        group.iter().for_each(|number| file.extend(page(sum, code, *number, *number as u8)));
    }
    file
}

/// The damaged pages, and the counts unless the file is not made as such files are.
fn delta_checked(name: &str, file: &[u8], piece: usize) -> (Vec<BadPage>, Option<PageCounts>) {
    let mut checker = DeltaPageChecker::of_tablespace(name.as_bytes());
    let mut bad = Vec::new();
    for piece in file.chunks(piece) {
        checker.feed(piece, &mut |page| bad.push(page));
        assert!(checker.held() <= 6 * xb_pages::MAX_PAGE);
    }
    let found = checker.finish(&mut |page| bad.push(page));
    (bad, found.map(|found| found.counts))
}

#[test]
fn each_changed_page_of_an_increment_is_checked() {
    for sum in SUMS {
        for code in sum.codes() {
            let size = 512 << code;
            let many: Vec<u32> = (0..size as u32 / 4 + 2).collect();
            for numbers in [&[0_u32, 3, 4, 9][..], &[7], &[], &many[..many.len().min(1100)]] {
                let name = format!("{sum:?} {code} {}", numbers.len());
                let plain = delta(sum, code, numbers);
                for piece in [777, 1 << 20] {
                    let (bad, counts) = delta_checked("d/t.ibd", &plain, piece);
                    let counts = counts.expect(&name);
                    let all = counts.good + counts.no_checksum;
                    assert_eq!((bad.len(), all), (0, numbers.len() as u64), "{name}");
                    assert!(delta_checked("d/t.ibd", &plain[..plain.len() - 1], piece).1.is_none());
                }
                if numbers.len() < 2 || matches!(sum, Sum::None | Sum::ZipNone) {
                    continue;
                }
                let mut flipped = plain.clone();
                flipped[2 * size + 300] ^= 1;
                let (bad, counts) = delta_checked("d/t.ibd", &flipped, 5000);
                let found: Vec<_> = bad.iter().map(|bad| (bad.page, bad.offset)).collect();
                assert_eq!(found, [(numbers[1].into(), 2 * size as u64)], "{name}");
                assert_eq!(counts.unwrap().damaged, 1, "{name}");
                // An intact page of another place.
                let mut moved = plain.clone();
                moved[2 * size..3 * size].copy_from_slice(&page(sum, code, 5, 5));
                let (bad, _) = delta_checked("d/t.ibd", &moved, 5000);
                let expected = Fault::Number { expected: numbers[1].into(), got: 5 };
                assert!(bad.len() == 1 && bad[0].fault == expected, "{name} {bad:?}");
            }
        }
    }
}

/// Copies of other pages are there, which may be old or torn.
#[test]
fn the_doublewrite_area_of_an_increment_is_left_alone() {
    let numbers: Vec<u32> = (64..192).chain([200]).collect();
    let mut file = delta(Sum::Crc32, 5, &numbers);
    for (n, _) in numbers.iter().enumerate().take(128) {
        let at = (n + 1) * 16384;
        file[at..at + 16384].copy_from_slice(&page(Sum::Crc32, 5, 3 + n as u32, 1));
        file[at + 9000] ^= u8::from(n % 3 == 0);
    }
    let (bad, counts) = delta_checked("ibdata1", &file, 5000);
    let counts = counts.unwrap();
    assert_eq!((bad.len(), counts.unchecked, counts.good), (0, 128, 1));
    assert_eq!(delta_checked("d/t.ibd", &file, 5000).0.len(), 128);
}

/// What tells whether a server created the table across its checkpoint: the pages that it makes with the root.
#[test]
fn an_empty_root_says_since_when_the_pages_around_it_are_there() {
    let size = 16384;
    for (empty, made) in [(2..3, 0x1003), (2..5, 0x1005), (2..64, 0x1000)] {
        let mut pages = tablespace(Sum::Full, 5, 64);
        pages[empty.start * size..empty.end * size].fill(0);
        let (_, bad, _) = checked("d/t.ibd", &pages, &[1 << 20]);
        // The last page of each four is free in this file.
        let list = bad.iter().find(|bad| bad.page == 2).unwrap();
        assert_eq!((list.fault, list.missing_since), (Fault::EmptyRoot { made }, Some(0x1000)));
    }
}

#[test]
fn a_hole_in_used_pages_is_missing_too() {
    let size = 16384;
    let pages = tablespace(Sum::Full, 5, 64);
    let mut checker = PageChecker::of_name(b"d/t.ibd").unwrap();
    let mut bad = Vec::new();
    checker.feed(&pages[..8 * size], &mut |page| bad.push(page));
    checker.feed_zeros(3 * size as u64, &mut |page| bad.push(page));
    checker.feed(&pages[11 * size..], &mut |page| bad.push(page));
    checker.feed_zeros(1 << 40, &mut |page| bad.push(page));
    let _ = checker.finish(&mut |page| bad.push(page));
    assert_eq!(bad.iter().map(|bad| bad.page).collect::<Vec<_>>(), [8, 9, 10]);
}

#[test]
fn a_file_shorter_than_it_states_is_short() {
    for sum in SEALED {
        for code in sum.codes() {
            let size = 512 << code;
            let whole = tablespace(sum, code, 64);
            assert_eq!(checked("d/t.ibd", &whole, &[1 << 20]).1, []);
            let (_, bad, _) = checked("d/t.ibd", &whole[..60 * size], &[1 << 20]);
            let short = Fault::Short { pages: 60, stated: 64 };
            assert_eq!((bad.len(), bad[0].page, bad[0].fault), (1, 60, short), "{sum:?} {code}");
            let (_, bad, _) = checked("undo_001", &whole[..60 * size], &[1 << 20]);
            let truncated = Fault::Truncated { pages: 60, stated: 64 };
            assert_eq!(
                (bad.len(), bad[0].page, bad[0].fault),
                (1, 60, truncated),
                "{sum:?} {code}"
            );
        }
    }
}

#[test]
fn a_page_of_another_tablespace_is_found() {
    for sum in SEALED {
        let mut file = tablespace(sum, 5, 20);
        for number in [6, 7] {
            let page = &mut file[number * 16384..][..16384];
            put(page, 34, 9);
            seal(sum, page);
        }
        let (_, bad, _) = checked("d/t.ibd", &file, &[10_000]);
        // Page 7 is free: an import leaves such a page as it was.
        let expected = Fault::Space { expected: 5, got: 9 };
        assert_eq!(bad.iter().map(|b| (b.page, b.fault)).collect::<Vec<_>>(), [(6, expected)]);
    }
}

/// Only the older formats leave the number at 34 out of their checksum; the first page has it at 38, too.
#[test]
fn a_first_page_that_states_two_tablespaces_is_found() {
    for sum in [Sum::Crc32, Sum::Innodb, Sum::None] {
        for code in sum.codes() {
            let mut file = file(sum, code, 7);
            file[37] ^= 1;
            for name in ["d/t.ibd", "undo_001"] {
                let (_, bad, _) = checked(name, &file, &[10_000]);
                let expected = Fault::Space { expected: 5, got: 4 };
                let found: Vec<_> = bad.iter().map(|b| (b.page, b.fault)).collect();
                assert_eq!(found, [(0, expected)], "{sum:?} {code} {name}");
            }
        }
    }
}

#[test]
fn the_format_is_recognised_beyond_two_bad_pages() {
    let mut file = tablespace(Sum::Crc32, 6, 20);
    for page in [0, 1] {
        file[page * 32768 + 900] ^= 1;
    }
    for piece in [32768, 1 << 20] {
        let (counts, bad, format) = checked("d/t.ibd", &file, &[piece]);
        assert_eq!(format, Some(Format { page_size: 32768, kind: Kind::Both }));
        assert_eq!((counts.good, bad.iter().map(|b| b.page).collect()), (18, vec![0, 1]));
    }
}

#[test]
fn a_system_tablespace_is_known_under_any_name() {
    let mut system = file(Sum::Crc32, 5, 250);
    for page in system.chunks_mut(16384) {
        put(page, 34, 0);
        seal(Sum::Crc32, page);
    }
    // The doublewrite area lies elsewhere: page 5 does not name it.
    system[100 * 16384 + 77] ^= 1;
    let look = |name: &str, file: &[u8]| {
        let mut checker = PageChecker::of_any_name(name.as_bytes()).unwrap();
        let mut bad = Vec::new();
        checker.feed(file, &mut |page| bad.push(page.page));
        (checker.finish(&mut |page| bad.push(page.page)), bad)
    };
    let (found, bad) = look("sysdata1", &system);
    assert!(found.is_tablespace);
    assert_eq!((found.counts.good, bad), (249, vec![100]));
    assert_eq!(found.system.map(|system| system.len), Some(250 * 16384));
    let (_, bad, _) = checked("ibdata1", &system, &[1 << 20]);
    assert_eq!(bad.len(), 1);
    // Where page 5 names the area, and it holds copies of other pages, its content is left alone.
    name_doublewrite(&mut system[5 * 16384..6 * 16384]);
    system.copy_within(3 * 16384..4 * 16384, 70 * 16384);
    assert_eq!(checked("ibdata1", &system, &[1 << 20]).1, []);

    let (found, bad) = look("ib_logfile0", &vec![7; 1 << 20]);
    assert_eq!((found.is_tablespace, found.counts, bad), (false, PageCounts::default(), vec![]));
    assert!(PageChecker::of_any_name(b"#ib_16384_0.dblwr").is_none());
    assert!(PageChecker::of_any_name(b"shop/t.MYD").is_none());
}

/// As MySQL writes pages of tables with `ENCRYPTION='Y'`.
#[test]
fn encrypted_pages_are_taken_where_the_tablespace_says_so() {
    for sum in [Sum::Crc32, Sum::ZipCrc32] {
        let mut file = tablespace(sum, 4, 20);
        let size = 8192;
        for number in [4, 5] {
            file[number * size + 24..][..2].copy_from_slice(&15_u16.to_be_bytes());
            file[number * size + 100] ^= 1;
        }
        let (_, bad, _) = checked("d/t.ibd", &file, &[1 << 20]);
        assert_eq!(bad.len(), 2, "{sum:?}: not an encrypted tablespace");
        let flags = 0x21 | 1 << 13 | if sum == Sum::Crc32 { 4 << 6 } else { 4 << 1 };
        put(&mut file, 54, flags);
        seal(sum, &mut file[..size]);
        let (counts, bad, _) = checked("d/t.ibd", &file, &[1 << 20]);
        assert_eq!((counts.unchecked, bad.len()), (2, 0), "{sum:?}");
        // Number and tablespace are not encrypted.
        file[4 * size + 7] ^= 8;
        assert_eq!(checked("d/t.ibd", &file, &[1 << 20]).1.len(), 1);
    }
}

/// As MySQL writes pages of tables with `COMPRESSION`: a type, version and algorithm, the type and length before, the
/// length after; the checksum is that of the page before.
#[test]
fn pages_that_mysql_has_compressed_are_decompressed_and_checked() {
    use std::io::Write as _;
    let size = 16384;
    let sound = tablespace(Sum::Crc32, 5, 20);
    let compressed = |algorithm: u8, damage: bool| {
        let mut file = sound.clone();
        for number in [4, 5] {
            let page = &mut file[number * size..][..size];
            if damage {
                page[9000] ^= 1;
            }
            let content = match algorithm {
                1 => {
                    let mut zlib =
                        flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
                    zlib.write_all(&page[38..]).unwrap();
                    zlib.finish().unwrap()
                }
                _ => lz4_flex::block::compress(&page[38..]),
            };
            let kind = [page[24], page[25]];
            page[24..26].copy_from_slice(&14_u16.to_be_bytes());
            page[26..28].copy_from_slice(&[2, algorithm]);
            page[28..30].copy_from_slice(&kind);
            page[30..32].copy_from_slice(&u16::try_from(size - 38).unwrap().to_be_bytes());
            page[32..34].copy_from_slice(&u16::try_from(content.len()).unwrap().to_be_bytes());
            page[38..].fill(0);
            page[38..38 + content.len()].copy_from_slice(&content);
        }
        file
    };
    for algorithm in [1, 2] {
        let mut file = compressed(algorithm, false);
        let (counts, bad, _) = checked("d/t.ibd", &file, &[1 << 20]);
        assert_eq!((counts.good, counts.unchecked, bad.len()), (20, 0, 0), "{algorithm}");
        let (_, bad, _) = checked("d/t.ibd", &compressed(algorithm, true), &[1 << 20]);
        assert_eq!(bad.iter().map(|bad| bad.page).collect::<Vec<_>>(), [4, 5], "{algorithm}");
        // Content that cannot be decompressed; then an algorithm that is not known.
        file[4 * size + 33] -= 1;
        let (_, bad, _) = checked("d/t.ibd", &file, &[1 << 20]);
        assert!(
            matches!(bad[..], [BadPage { page: 4, fault: Fault::Compressed { .. }, .. }]),
            "{bad:?}"
        );
        file[4 * size + 27] = 3;
        let (counts, bad, _) = checked("d/t.ibd", &file, &[1 << 20]);
        assert_eq!((counts.good, counts.unchecked, bad.len()), (19, 1, 0), "{algorithm}");
    }
}

/// Of an undo tablespace, nothing says that its pages are not encrypted.
#[test]
fn a_page_that_only_says_that_it_is_encrypted_is_found() {
    let mut file = tablespace(Sum::Crc32, 5, 20);
    let size = 16384;
    for (number, kind) in [(4, 2_u16), (5, 17855)] {
        let page = &mut file[number * size..][..size];
        page[24..26].copy_from_slice(&kind.to_be_bytes());
        seal(Sum::Crc32, page);
        for encrypted in [15_u16, 17] {
            let mut changed = file.clone();
            changed[number * size + 24..][..2].copy_from_slice(&encrypted.to_be_bytes());
            let (counts, bad, _) = checked("undo_001", &changed, &[1 << 20]);
            assert_eq!((counts.unchecked, bad.len()), (0, 1), "{number} {encrypted}: {bad:?}");
            assert_eq!(bad[0].page, number as u64);
        }
    }
    assert_eq!(checked("undo_001", &file, &[1 << 20]).1, []);
}

#[test]
fn the_checkpoint_of_a_redo_log_is_read() {
    use xb_pages::{REDO_HEAD, RedoStart};
    let mut head = vec![0; REDO_HEAD];
    assert_eq!(RedoStart::of_head(&head), None);
    let checkpoint = |head: &mut [u8], block: usize, at: usize, end: usize, lsn: u32| {
        put(head, block + at + 4, lsn);
        let sum = crc(&head[block..block + end]);
        put(head, block + end, sum);
    };
    put(&mut head, 0, 6);
    checkpoint(&mut head, 512, 8, 508, 7000);
    checkpoint(&mut head, 1536, 8, 508, 9000);
    let start = |checkpoint, skips_freed| Some(RedoStart { checkpoint, skips_freed });
    assert_eq!(RedoStart::of_head(&head), start(9000, false));
    head[1536 + 100] ^= 1;
    assert_eq!(RedoStart::of_head(&head), start(7000, false));
    put(&mut head, 0, 0x5048_5953);
    assert_eq!(RedoStart::of_head(&head), start(7000, true));
    put(&mut head, 0, 0x5068_7973);
    assert_eq!(RedoStart::of_head(&head), None);
    checkpoint(&mut head, 8192, 0, 60, 12345);
    assert_eq!(RedoStart::of_head(&head), start(12345, true));
    // An encrypted log has its checkpoints in clear.
    put(&mut head, 0, 0xf09f_979d);
    assert!(RedoStart::is_expected(&head));
    assert_eq!(RedoStart::of_head(&head), start(12345, true));
    head[8192 + 8] ^= 1;
    assert_eq!(RedoStart::of_head(&head), None);
}

/// Header of a redo log as MariaDB 10.11.19 wrote it for a new server, and as its backup program
/// writes it.
#[test]
fn the_header_of_a_redo_log_is_read() {
    use xb_pages::{REDO_HEAD, RedoHeader};
    let header = |format: u32, number: u32, lsn: u64, creator: &str, sum: u32| {
        let mut head = vec![0; REDO_HEAD];
        put(&mut head, 0, format);
        put(&mut head, 4, number);
        head[8..16].copy_from_slice(&lsn.to_be_bytes());
        head[16..16 + creator.len()].copy_from_slice(creator.as_bytes());
        put(&mut head, 508, sum);
        head
    };
    let of = |head: &[u8]| RedoHeader::of_head(head);
    let server = header(0x5068_7973, 0, 12288, "MariaDB 10.11.19", 0x4764_a11e);
    let created = |lsn, creator: &str| {
        Some(RedoHeader {
            created: Some(lsn),
            number: None,
            creator: creator.into(),
            is_encrypted: false,
        })
    };
    assert_eq!(of(&server), created(12288, "MariaDB 10.11.19"));
    assert_eq!(of(&server[..512]), of(&server), "the checkpoints do not matter");
    assert_eq!(of(&server[..511]), None);
    let backup = header(0x5068_7973, 0, 44388, "Backup 10.11.19", 0xc7d5_496b);
    assert_eq!(of(&backup), created(44388, "Backup 10.11.19"));
    for at in 0..512 {
        let mut bad = server.clone();
        bad[at] ^= 1;
        assert_eq!(of(&bad), None, "byte {at}");
    }
    let summed = |mut head: Vec<u8>| {
        let sum = crc(&head[..508]);
        put(&mut head, 508, sum);
        head
    };
    // Before 10.8, the position is that of the file, not of the log.
    let older = summed(header(0x5048_5953, 0, 8192, "MariaDB 10.6.1", 0));
    assert_eq!(of(&older).map(|head| (head.created, head.number)), Some((None, None)));
    let mysql = summed(header(6, 77, 8192, "MySQL 8.4.7", 0));
    assert_eq!(of(&mysql).map(|head| (head.created, head.number)), Some((None, Some(77))));
    let encrypted = summed(header(0xd068_7973, 0, 12288, "MariaDB 10.10.1", 0));
    let locked = |lsn, creator: &str| {
        created(lsn, creator).map(|header| RedoHeader { is_encrypted: true, ..header })
    };
    assert_eq!(of(&encrypted), locked(12288, "MariaDB 10.10.1"));
    // Since MariaDB 10.11 at the latest, an encrypted log has another number.
    let encrypted = summed(header(0xf09f_979d, 0, 44404, "Backup 10.11.19", 0));
    assert_eq!(of(&encrypted), locked(44404, "Backup 10.11.19"));
}

proptest! {
    #[test]
    fn no_head_of_a_redo_log_panics(
        mut head in prop::collection::vec(any::<u8>(), 0..13_000), sums in any::<bool>(),
        format in prop::sample::select(&[6_u32, 0x5048_5953, 0x5068_7973, 0xf09f_979d]),
    ) {
        if sums && head.len() >= 512 {
            put(&mut head, 0, format);
            let sum = crc(&head[..508]);
            put(&mut head, 508, sum);
        }
        let header = xb_pages::RedoHeader::of_head(&head);
        prop_assert!(header.is_none_or(|header| sums && header.creator.len() <= 32));
        let _ = xb_pages::RedoStart::of_head(&head);
    }

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

/// A later file of the system tablespace may have no page, and then does not show how long its pages are.
#[test]
fn the_length_of_a_blank_system_file_is_known_to_the_byte() {
    for len in [0, 4096, 5 * 4096, 4 << 20] {
        let mut checker = PageChecker::of_name(b"ibdata2").unwrap();
        checker.feed(&vec![0; len], &mut |page| unreachable!("{page:?}"));
        let found = checker.finish(&mut |page| unreachable!("{page:?}"));
        assert_eq!(found.system.map(|file| file.len), Some(len as u64));
    }
}
