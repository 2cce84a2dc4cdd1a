//! The xbstream container.

use xb_reader::{Decoder, Dialect, Event, FileTable, Limits, MAGIC, PayloadCheck, crc32};

use crate::inputs::{fixtures, with_head};

/// Returns the total length of the payloads, and the error or the number of finished files.
fn read(dialect: Dialect, pieces: &mut dyn Iterator<Item = &[u8]>) -> (u64, Result<u64, String>) {
    let limits = Limits { max_payload: 1 << 20, max_map_entries: 1 << 10 };
    let mut decoder = Decoder::new(dialect, limits);
    let mut files = FileTable::new();
    let mut current = None;
    let mut len = 0;
    let mut take = |event: Event<'_>| -> Result<(), String> {
        match event {
            Event::Head(head) => {
                files.apply(&head).map_err(|error| error.to_string())?;
                current = Some((PayloadCheck::new(&head), head.placement(), head));
            }
            Event::Data(piece) => {
                len += piece.len() as u64;
                if let Some((check, place, _)) = &mut current {
                    check.update(piece);
                    place.skip(piece.len() as u64);
                }
            }
            Event::ChunkEnd => {
                if let Some((check, _, head)) = current.take() {
                    check.finish(&head).map_err(|error| error.to_string())?;
                }
            }
        }
        Ok(())
    };
    let run = || -> Result<(), String> {
        for mut piece in pieces {
            while let Some(event) = decoder.next(&mut piece).map_err(|error| error.to_string())? {
                take(event)?;
            }
        }
        while let Some(event) = decoder.finish().map_err(|error| error.to_string())? {
            take(event)?;
        }
        Ok(())
    };
    let result = run();
    let result = result.and_then(|()| files.finish().map_err(|error| error.to_string()));
    (len, result.map(|()| files.finished()))
}

/// Any bytes, in any pieces: no panic, and the same result however the input is cut. Half of the inputs
/// get matching checksums first; otherwise few would get past the first chunk.
pub(crate) fn decode(data: &[u8]) {
    let Some((&cut, stream)) = data.split_first() else { return };
    let mut stream = stream.to_vec();
    if cut & 1 == 1 {
        mend(&mut stream);
    }
    let cut = usize::from(cut).max(1);
    for dialect in [Dialect::Auto, Dialect::Percona, Dialect::MariaDb] {
        let whole = read(dialect, &mut std::iter::once(&stream[..]));
        let pieces = read(dialect, &mut stream.chunks(cut));
        assert_eq!(whole.1, pieces.1);
        if whole.1.is_ok() {
            assert_eq!(whole.0, pieces.0);
        }
    }
}

/// Sets the checksum of each payload chunk to that of its payload.
pub(crate) fn mend(stream: &mut [u8]) {
    let mut at = 0;
    while let Some(found) = stream[at..].windows(8).position(|bytes| bytes == MAGIC) {
        at += found + 8;
        mend_chunk(&mut stream[at..]);
    }
}

/// As [`mend`], for the first chunk, given from its flags on.
fn mend_chunk(chunk: &mut [u8]) -> Option<()> {
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |n, byte| n << 8 | u64::from(*byte));
    let kind = *chunk.get(1)?;
    let path = usize::try_from(number(chunk.get(2..6)?)).ok()?;
    let fields = 6_usize.checked_add(path)?;
    let (len, sum, payload) = match kind {
        b'P' => (fields, fields + 16, fields + 20),
        b'S' => {
            let entries = usize::try_from(number(chunk.get(fields..fields + 4)?)).ok()?;
            (
                fields + 4,
                fields + 20,
                fields + 24 + entries.checked_mul(8).filter(|n| *n < 1 << 20)?,
            )
        }
        _ => return None,
    };
    let len = usize::try_from(number(chunk.get(len..len + 8)?)).ok()?;
    // The checksum of a sparse chunk covers its map, too.
    let crc = crc32(chunk.get(sum + 4..payload.checked_add(len)?)?);
    chunk[sum..sum + 4].copy_from_slice(&crc.to_le_bytes());
    Some(())
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let streams = || [fixtures("xbstream/good", ".xbs"), fixtures("xbstream/bad", ".xbs")].concat();
    [with_head(&[7], streams()), with_head(&[64], streams())].concat()
}
