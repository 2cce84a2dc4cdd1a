//! Any bytes, in any pieces: no panic, and the same result however the input is cut.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xb_reader::{Decoder, Dialect, Event, FileTable, Limits, PayloadCheck};

/// Returns the total length of the payloads, and the error or the number of finished files.
fn decode(dialect: Dialect, pieces: &mut dyn Iterator<Item = &[u8]>) -> (u64, Result<u64, String>) {
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

fuzz_target!(|data: &[u8]| {
    let Some((&cut, stream)) = data.split_first() else { return };
    let cut = usize::from(cut).max(1);
    for dialect in [Dialect::Auto, Dialect::Percona, Dialect::MariaDb] {
        let whole = decode(dialect, &mut std::iter::once(stream));
        let pieces = decode(dialect, &mut stream.chunks(cut));
        assert_eq!(whole.1, pieces.1);
        if whole.1.is_ok() {
            assert_eq!(whole.0, pieces.0);
        }
    }
});
