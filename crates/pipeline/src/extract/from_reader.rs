//! Extracting all that a reader gives.

use std::io::{self, Read};

use xb_reader::TargetDir;

use super::extractor::Extractor;
use super::report::{ExtractError, ExtractOptions, ExtractReport};
use crate::flow::observer::Wait;
use crate::flow::plan::SLAB;
use crate::flow::slab::SlabPool;

/// Extracts all that `input` gives. It needs no buffering of its own.
///
/// # Errors
/// As [`Extractor::finish`]; also when `input` cannot be read.
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
                    // The error of what came before, if there is one, is the first.
                    let _ = extractor.feed(slab.freeze());
                    return Err(extractor.read_failed(error));
                }
            }
        }
        // Stopped is seen by the loop, and told by `finish`.
        let _ = extractor.feed(slab.freeze());
    }
    extractor.finish()
}
