//! Detects the format of a tablespace from the first bytes of a file.

use crate::format::Format;
use crate::page::{Place, Verdict, check};

/// The format that the first page states. `first`: the bytes begin the file.
pub(crate) fn stated(bytes: &[u8], first: bool) -> Option<Format> {
    if first { Format::of_first_page(bytes) } else { None }
}

/// Whether the first page matches its checksum in this format.
pub(crate) fn fits(format: Format, bytes: &[u8]) -> bool {
    let page = bytes.get(..format.page_size);
    let place = Place { first: true, encrypted: false };
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
            let place = Place { first: first && *n == 0, encrypted: false };
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
    best.1.or(named).unwrap_or(Format::DEFAULT)
}
