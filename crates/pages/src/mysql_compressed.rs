//! Undoes MySQL's page compression (`COMPRESSION="zlib"` or `"lz4"`): the checksum of such a page is that of the page
//! before it was compressed.
//!
//! Found by experiments with tables of MySQL 9.7. Behind the fields of every page up to 24 are the type of such pages,
//! the version, the algorithm, the type before, the length of the content before and after, and the number of the
//! tablespace. The content follows; the rest of the page is zeros.

use flate2::{Decompress, FlushDecompress, Status};

use crate::format::be16;

const TYPE: usize = 24;
const ALGORITHM: usize = 27;
const TYPE_BEFORE: std::ops::Range<usize> = 28..30;
const LEN: usize = 32;
const SPACE: usize = 34;
const DATA: usize = 38;
/// Type of a page that is compressed, and not encrypted.
const COMPRESSED: u16 = 14;
const ZLIB: u8 = 1;
const LZ4: u8 = 2;

/// Returns the page as it was before it was compressed. `None` if it is encrypted, too, or compressed in a way that is
/// not known; the length of the compressed content if it cannot be decompressed.
pub(crate) fn uncompressed(page: &[u8]) -> Option<Result<Vec<u8>, usize>> {
    if be16(page, TYPE)? != COMPRESSED {
        return None;
    }
    let algorithm = *page.get(ALGORITHM)?;
    let kind = page.get(TYPE_BEFORE)?;
    let len = usize::from(be16(page, LEN)?);
    let content = page.get(DATA..DATA + len)?;
    let mut whole = vec![0; page.len()];
    whole.get_mut(..TYPE)?.copy_from_slice(page.get(..TYPE)?);
    whole.get_mut(TYPE..TYPE + 2)?.copy_from_slice(kind);
    whole.get_mut(SPACE..DATA)?.copy_from_slice(page.get(SPACE..DATA)?);
    let room = whole.get_mut(DATA..)?;
    let is_full = match algorithm {
        ZLIB => {
            let mut zlib = Decompress::new(true);
            let ended = zlib.decompress(content, room, FlushDecompress::Finish);
            matches!(ended, Ok(Status::StreamEnd)) && zlib.total_out() == room.len() as u64
        }
        LZ4 => lz4_flex::block::decompress_into(content, room).is_ok_and(|len| len == room.len()),
        _ => return None,
    };
    Some(if is_full { Ok(whole) } else { Err(len) })
}
