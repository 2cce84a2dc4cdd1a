//! Roll-ups: copies of the heads of many segments in one object, so that an archive is read with few requests.
//!
//! A roll-up has the heads as they are stored, check lines included: whoever reads one knows as much as from the
//! segments' own. It proves nothing, and no answer depends on it alone: which segments exist is what the store
//! lists, and the head of a segment is compared again when that is fetched. One that is missing or not as it should
//! be costs requests.

use std::collections::BTreeMap;
use std::io::{Cursor, Write};
use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _};
use xb_encryptor::MacKey;
use xb_pipeline::Observer;
use xb_pipeline::filter::{OpenFile, read_stream};
use xb_uploader::{StoreError, StoreErrorKind};

use crate::archive::listed_segment::ListedSegment;
use crate::archive::names::rollup_name;
use crate::archive::record::{MAX_LEN, Record};
use crate::archive::segment::SegmentHead;
use crate::archive::shared_text::TextPool;
use crate::error::RepoError;
use crate::root::Root;

/// Heads of a small roll-up; the first number is a multiple of it.
pub const SMALL: u64 = 64;
/// Heads of a large roll-up, the most that one may have; the first number is a multiple of it.
pub const LARGE: u64 = 4096;
/// The most bytes of heads in one roll-up.
pub const MAX_TEXT: usize = 32 << 20;
/// The largest object that is read as one.
pub(super) const MAX_OBJECT: u64 = 32 << 20;
/// Roll-ups that are read at once.
pub(super) const PARALLEL: usize = 2;

/// The segments whose heads a roll-up has, by their numbers.
pub type Span = (u64, u64);

/// A head, and its length in bytes.
pub(super) type Rolled = (Record<SegmentHead>, u64);

/// Reads as many of the heads of these segments as roll-ups have, and says what is wrong with the roll-ups.
///
/// # Errors
/// [`RepoError::Store`] if the store cannot be reached.
pub(super) async fn rolled(
    root: &Root,
    folder: &str,
    stream: &str,
    sizes: &BTreeMap<u64, u64>,
    there: &[Span],
    key: Option<&MacKey>,
) -> Result<(BTreeMap<u64, Arc<ListedSegment>>, Vec<String>), RepoError> {
    let reading = choose(there, sizes).into_iter().map(|span| async move {
        let rolled = read(root, folder, stream, span).await?;
        // What is not kept goes before the next one is read.
        Ok::<_, RepoError>((span, rolled.map(|rolled| own_heads(&listed(&rolled, key), sizes))))
    });
    let reading: Vec<_> = reading.collect();
    let read: Vec<_> = futures::stream::iter(reading).buffered(PARALLEL).try_collect().await?;
    let (mut heads, mut remarks) = (BTreeMap::new(), Vec::new());
    for (span, rolled) in read {
        match rolled {
            Ok(own) => heads.extend(own),
            Err(what) => remarks.push(format!(
                "{} is ignored, and the heads of its segments are used instead: {what}",
                rollup_name(span)
            )),
        }
    }
    Ok((heads, remarks))
}

/// Segments as roll-ups have them, and the lengths of their heads in bytes.
pub(super) type ListedHeads = Vec<(Arc<ListedSegment>, u64)>;

/// The part of these heads that a plan needs.
pub(super) fn listed(rolled: &[Rolled], key: Option<&MacKey>) -> ListedHeads {
    let mut pool = TextPool::default();
    let listed = |(head, len): &Rolled| (ListedSegment::sharing(head, key, &mut pool), *len);
    rolled.iter().map(listed).collect()
}

/// Those of the heads that fit the sizes of their segments: any other is not that segment's.
pub(super) fn own_heads(
    listed: &ListedHeads,
    sizes: &BTreeMap<u64, u64>,
) -> Vec<(u64, Arc<ListedSegment>)> {
    let own = listed.iter().filter(|(segment, len)| {
        sizes.get(&segment.number).copied() == segment.stored_len.checked_add(*len)
    });
    own.map(|(segment, _)| (segment.number, Arc::clone(segment))).collect()
}

/// The roll-ups that save more than their request costs: the largest first, none whose segments another one has.
fn choose(there: &[Span], sizes: &BTreeMap<u64, u64>) -> Vec<Span> {
    let mut there = there.to_vec();
    there.sort_by_key(|(first, last)| (std::cmp::Reverse(last - first), *first));
    let mut chosen: Vec<Span> = Vec::new();
    for (first, last) in there {
        let has = |(from, to): &Span| *from <= first && last <= *to;
        if !chosen.iter().any(has) && sizes.range(first..=last).nth(1).is_some() {
            chosen.push((first, last));
        }
    }
    chosen.sort_unstable();
    chosen
}

async fn read(
    root: &Root,
    folder: &str,
    stream: &str,
    span: Span,
) -> Result<Result<Vec<Rolled>, String>, RepoError> {
    let key = root.key(&format!("{folder}/{}", rollup_name(span)));
    let object = match root.store().get_at_most(&key, MAX_OBJECT).await {
        Ok(object) => object,
        Err(error) if is_of_object(&error) => return Ok(Err(error.to_string())),
        Err(error) => return Err(error.into()),
    };
    let stream = stream.to_owned();
    let decoding = tokio::task::spawn_blocking(move || decode(object.to_vec(), &stream, span));
    Ok(decoding.await.unwrap_or_else(|_| Err("its thread panicked".to_owned())))
}

/// Returns whether an error tells about the object, and not that the store cannot be reached.
pub(super) fn is_of_object(error: &StoreError) -> bool {
    use StoreErrorKind::{Altered, Damaged, Denied, NotFound, Rejected};
    matches!(error.kind, Altered | Damaged | Denied | NotFound | Rejected)
}

/// Reads a roll-up: a native stream of the heads of the segments `span` of a stream, each of which names the one
/// before it. Returns them with their lengths in bytes.
///
/// # Errors
/// The fault of the object.
pub fn decode(object: Vec<u8>, stream: &str, span: Span) -> Result<Vec<Rolled>, String> {
    let mut text = LimitedBuffer(Vec::new());
    let settings = OpenFile { threads: 1, max_memory: 0 };
    read_stream(Cursor::new(object), &mut text, None, settings, &Observer::default())
        .map_err(|error| error.to_string())?;
    heads(&text.0, stream, span)
}

/// Reads the heads in a roll-up.
///
/// # Errors
/// The fault of the heads.
pub fn heads(text: &[u8], stream: &str, (first, last): Span) -> Result<Vec<Rolled>, String> {
    let count = last.checked_sub(first).map_or(0, |more| more.saturating_add(1));
    if !(1..=LARGE).contains(&count) || text.len() > MAX_TEXT {
        return Err(format!("it would have {count} heads in {} bytes", text.len()));
    }
    let (mut found, mut rest): (Vec<Rolled>, &[u8]) = (Vec::new(), text);
    for number in first..=last {
        let wrong = |what: &str| Err(format!("head {number}: {what}"));
        let Some(len) = record_len(rest) else { return wrong("it is cut, or no record") };
        let (bytes, behind) = rest.split_at_checked(len).unwrap_or((rest, &[]));
        let head = Record::<SegmentHead>::decode(bytes)
            .map_err(|error| format!("head {number}: {error}"))?;
        if head.content.number != number || head.content.stream != stream {
            return wrong("it is that of another segment");
        }
        if found.last().is_some_and(|(before, _)| before.digest != head.content.previous) {
            return wrong("it does not name the one before it");
        }
        found.push((head, len as u64));
        rest = behind;
    }
    match rest.is_empty() {
        true => Ok(found),
        false => Err("extra data follows its heads".to_owned()),
    }
}

/// Length of the record at the front of records that follow each other.
fn record_len(text: &[u8]) -> Option<usize> {
    let limit = text.get(..MAX_LEN).unwrap_or(text);
    let mut ends = limit.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    let mut end = || ends.next().map(|(at, _)| at + 1);
    let (_, plain) = (end()?, end()?);
    match text.get(plain..)?.starts_with(b"hmac-") {
        true => end(),
        false => Some(plain),
    }
}

/// Takes as many bytes as a roll-up may have.
pub(super) struct LimitedBuffer(pub(super) Vec<u8>);

impl Write for LimitedBuffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if bytes.len() > MAX_TEXT - self.0.len() {
            return Err(std::io::Error::other("more heads than a roll-up may have"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The heads that a writer has stored, until they are in a large roll-up.
#[derive(Debug, Default)]
pub struct PendingHeads {
    /// Heads from the last multiple of [`LARGE`] on, or none if they are too many bytes.
    text: Option<Vec<u8>>,
    first: u64,
    /// Offset in the text of the heads from the last multiple of [`SMALL`] on.
    small: usize,
    next: u64,
}

/// The heads of a roll-up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RollUp {
    /// Its segments.
    pub span: Span,
    /// Their heads, one after the other.
    pub text: Vec<u8>,
}

impl PendingHeads {
    /// Returns a collection at the beginning of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self { text: Some(Vec::new()), ..Self::default() }
    }

    /// Adds the head of the next segment that is stored. Returns the roll-ups that it completes.
    #[must_use]
    pub fn add(&mut self, head: &[u8]) -> Vec<RollUp> {
        self.next += 1;
        match &mut self.text {
            Some(text) if text.len() + head.len() <= MAX_TEXT => text.extend_from_slice(head),
            text => *text = None,
        }
        let mut whole = Vec::new();
        if self.next.is_multiple_of(SMALL) {
            let from = self.next - SMALL;
            whole.extend(self.roll_up((from, self.next - 1), self.small));
            self.small = self.text.as_ref().map_or(0, Vec::len);
        }
        if self.next.is_multiple_of(LARGE) {
            whole.extend(self.roll_up((self.first, self.next - 1), 0));
            *self = Self { first: self.next, next: self.next, ..Self::new() };
        }
        whole
    }

    /// The roll-up of what no large one has, at the end of a stream; `None` if it would save nothing.
    #[must_use]
    pub fn rest(&self) -> Option<RollUp> {
        let heads = self.next - self.first;
        let is_small = heads == SMALL;
        (heads > 1 && !is_small).then(|| self.roll_up((self.first, self.next - 1), 0)).flatten()
    }

    /// The heads of all segments of a stream, one after the other, if they are at most [`SMALL`].
    #[must_use]
    pub fn few(&self) -> Option<&[u8]> {
        self.text.as_deref().filter(|_| self.next <= SMALL)
    }

    fn roll_up(&self, span: Span, begin: usize) -> Option<RollUp> {
        let text = self.text.as_ref()?.get(begin..)?.to_vec();
        Some(RollUp { span, text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_head_is_in_a_small_and_in_a_large_roll_up() {
        let mut collected = PendingHeads::new();
        let mut made = Vec::new();
        for number in 0..LARGE + SMALL + 3 {
            made.extend(collected.add(format!("{number}\n").as_bytes()));
        }
        let text = |(first, last): Span| {
            (first..=last).map(|number| format!("{number}\n")).collect::<String>().into_bytes()
        };
        assert!(made.iter().all(|made| made.text == text(made.span)));
        let spans: Vec<Span> = made.iter().map(|made| made.span).collect();
        let small = (0..=LARGE / SMALL).map(|n| (n * SMALL, n * SMALL + SMALL - 1));
        let mut expected: Vec<Span> = small.collect();
        expected.insert(64, (0, LARGE - 1));
        assert_eq!(spans, expected);
        let rest = collected.rest().unwrap();
        assert_eq!((rest.span, rest.text), ((LARGE, LARGE + SMALL + 2), text(rest.span)));
        assert_eq!(PendingHeads::new().rest(), None);
    }

    #[test]
    fn heads_that_take_too_much_memory_are_not_collected() {
        let mut collected = PendingHeads::new();
        let large = vec![b'x'; MAX_TEXT / 40];
        let mut made = 0;
        for _ in 0..SMALL {
            made += collected.add(&large).len();
        }
        assert_eq!((made, collected.rest()), (0, None));
        for _ in SMALL..LARGE {
            made += collected.add(b"x").len();
        }
        assert_eq!(made, 0);
        assert_eq!((0..SMALL).map(|_| collected.add(b"x").len()).sum::<usize>(), 1);
    }

    #[test]
    fn the_fewest_roll_ups_are_read() {
        let sizes: BTreeMap<u64, u64> = (100..5000).map(|number| (number, 1)).collect();
        let there = [(0, 63), (64, 127), (0, 4095), (4096, 4159), (4096, 4999), (5000, 5063)];
        assert_eq!(choose(&there, &sizes), [(0, 4095), (4096, 4999)]);
        assert_eq!(choose(&there[..2], &sizes), [(64, 127)]);
        assert_eq!(choose(&[(4998, 5061), (4999, 5062)], &sizes), [(4998, 5061)]);
    }
}
