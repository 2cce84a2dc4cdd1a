//! Extracts a stream from a reader.

use std::io::{self, Read};

use xb_reader::TargetDir;

use super::extractor::Extractor;
use super::report::{ExtractError, ExtractOptions, ExtractReport};
use crate::flow::hold_ups::Wait;
use crate::flow::plan::SLAB;
use crate::flow::slab::SlabPool;

/// Extracts everything that `input` returns. `input` needs no buffering of its own.
///
/// # Errors
/// As [`Extractor::finish`]; also if `input` cannot be read.
pub fn extract_from(
    mut input: impl Read,
    target: TargetDir,
    options: ExtractOptions,
) -> Result<ExtractReport, ExtractError> {
    let observer = options.observer.clone();
    let slabs = SlabPool::new(SLAB, 2 * options.threads.max(1) + 3);
    let mut extractor = Extractor::new(target, options)?;
    let mut over = false;
    while !over && !extractor.is_stopped() {
        let mut slab = slabs.take(None);
        while !over && !slab.is_full() {
            match observer.waiting(Wait::Source, || input.read(slab.room())) {
                Ok(0) => over = true,
                Ok(len) => slab.advance(len),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // An error in the bytes before comes first, if there is one.
                    let _ = extractor.feed(slab.freeze());
                    return Err(extractor.read_failed(error));
                }
            }
        }
        // The loop detects Stopped, and `finish` returns the cause.
        let _ = extractor.feed(slab.freeze());
    }
    extractor.finish()
}
