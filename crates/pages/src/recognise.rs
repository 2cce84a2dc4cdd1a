//! Detects the format of a tablespace from the first bytes of a file.

use crate::format::{Format, Kind};
use crate::page::{PageContext, Verdict, check, number};

/// The format that the first page states. `first`: the bytes begin the file.
pub(crate) fn stated(bytes: &[u8], first: bool) -> Option<Format> {
    if first { Format::of_first_page(bytes) } else { None }
}

/// Returns whether the first page matches its checksum in this format.
pub(crate) fn fits(format: Format, bytes: &[u8]) -> bool {
    let page = bytes.get(..format.page_size);
    let place = PageContext { first: true, encrypted: false };
    let sound = |page| matches!(check(format, page, place), Verdict::Good | Verdict::NoChecksum);
    page.is_some_and(sound)
}

/// Detects the format of pages whose first one is damaged or not the tablespace's: the format that
/// matches most bytes. The format that the page states wins a tie.
pub(crate) fn recognise(bytes: &[u8], first: bool) -> Format {
    let named = stated(bytes, first);
    let good = |format: &Format| -> usize {
        let pages = bytes.chunks_exact(format.page_size).enumerate();
        let good = pages.filter(|(n, page)| {
            let place = PageContext { first: first && *n == 0, encrypted: false };
            check(*format, page, place) == Verdict::Good
        });
        good.count() * format.page_size
    };
    let best = named.into_iter().chain(Format::all()).map(|format| (good(&format), format));
    let best = best.fold(
        (0, None),
        |best, (score, format)| {
            if score > best.0 { (score, Some(format)) } else { best }
        },
    );
    // A fragment of a page may match by chance, so a few bytes do not outweigh many numbers.
    let numbered = by_number(bytes, named).filter(|(score, _)| first && score / 4 > best.0);
    numbered.map(|(_, format)| format).or(best.1).or(named).unwrap_or(Format::DEFAULT)
}

/// Detects the size of pages whose checksums are all inside: the size at which most pages have their
/// number, which is never compressed or encrypted.
fn by_number(bytes: &[u8], named: Option<Format>) -> Option<(usize, Format)> {
    let numbered = |size: usize| {
        let pages = bytes.chunks_exact(size).enumerate().skip(1);
        pages.filter(|(n, page)| number(page).is_some_and(|got| got as usize == *n)).count() * size
    };
    // The flags may be the damage: pages of full_crc32 never have their checksums inside.
    let named = named.filter(|format| format.kind != Kind::Full);
    let of = |kind| Format::all().filter(move |format| format.kind == kind);
    let formats = named.into_iter().chain(of(Kind::Both)).chain(of(Kind::Zip));
    let scores = formats.map(|format| (numbered(format.page_size), format));
    // The first of several that match equally.
    scores.reduce(|best, next| if next.0 > best.0 { next } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only a changed first page is not encrypted.
    #[test]
    fn the_size_of_encrypted_pages_is_found_by_their_numbers() {
        // Sizes below 4 KiB are those of compressed pages only. The flags state nothing, or full_crc32.
        let both = [4096, 8192, 16384, 65536].map(|size| (size, Kind::Both));
        let sizes = [(1024, Kind::Zip), (2048, Kind::Zip)].into_iter().chain(both);
        for ((size, kind), flags) in sizes.flat_map(|of| [(of, 0xa5a5_a5a5), (of, 0xf3_u32)]) {
            let mut bytes = vec![0xa5; 64 * size];
            bytes[54..58].copy_from_slice(&flags.to_be_bytes());
            for (n, page) in bytes.chunks_exact_mut(size).enumerate() {
                page[4..8].copy_from_slice(&u32::try_from(n).unwrap().to_be_bytes());
                page[24..26].copy_from_slice(&15_u16.to_be_bytes());
            }
            // Matches by chance: as a compressed page, whose checksum leaves these bytes out.
            bytes[7 * size + 1024..7 * size + 2048].fill(0);
            bytes[7 * size + 1024 + 17] = 1;
            let found = recognise(&bytes, true);
            assert_eq!((found.page_size, found.kind), (size, kind), "{flags:#x}");
        }
    }
}
