//! Streams that no key of a reader opens. What lies in them cannot be used, but they may hide the end of the archive.

use crate::archive::chain::Stream;

/// Of these `locked` streams, those that may have something behind all that is `known`: whose last segment no known stream names
/// as the one that it follows, nor a locked one that is followed itself. Who can write to the store may forge that of a locked
/// one, and could as well remove it.
#[must_use]
pub fn unfollowed<'a>(known: &[Stream], locked: &[&'a Stream]) -> Vec<&'a Stream> {
    let mut followers: Vec<&Stream> = known.iter().collect();
    let mut left = locked.to_vec();
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
