//! Streams that a reader does not use, because no key opens them, or because they are not sealed. They may hide the end of the
//! archive.

use crate::archive::chain::Stream;

/// Returns those of the `unused` streams that may hide the end of the archive: no known stream names their last segment as the one
/// that it follows, and no unused stream does that is followed itself. Whoever can write to the store may forge the head of such a
/// stream, but could as well remove the stream.
#[must_use]
pub fn unfollowed<'a>(known: &[Stream], unused: &[&'a Stream]) -> Vec<&'a Stream> {
    let mut followers: Vec<&Stream> = known.iter().collect();
    let mut left = unused.to_vec();
    loop {
        let (followed, rest): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|one| followers.iter().any(|next| follows(next, one)));
        left = rest;
        if followed.is_empty() {
            return left;
        }
        followers.extend(followed);
    }
}

/// Whether a stream names the last segment that another one has, or states, as that which it follows.
fn follows(next: &Stream, one: &Stream) -> bool {
    let Some(link) = next.head.content.begins.after() else { return false };
    let stored = one.chain().0.last().map_or(0, |last| last.segment.number.saturating_add(1));
    let count = stored.max(one.stated).max(one.removed_below);
    link.stream == one.id() && count <= link.number.saturating_add(1)
}
