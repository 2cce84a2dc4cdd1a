//! The streams of a listing by themselves, for as long as they are looked at.

use xb_repo::archive::listing::ListedStream;
use xb_repo::archive::plan::Stream;

/// Lends them: a copy would double what an archive of months takes in memory.
pub(crate) fn with_streams<T>(found: &mut [ListedStream], look: impl FnOnce(&[Stream]) -> T) -> T {
    let (mut owners, mut streams) = (Vec::new(), Vec::new());
    for found in found {
        if let Some(stream) = found.stream.take() {
            streams.push(stream);
            owners.push(found);
        }
    }
    let seen = look(&streams);
    for (owner, stream) in owners.into_iter().zip(streams) {
        owner.stream = Some(stream);
    }
    seen
}
