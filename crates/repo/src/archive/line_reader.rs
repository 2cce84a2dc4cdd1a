//! Lines of streams, each of which follows the one before it, read from the first stream on.

use std::collections::HashMap;

use crate::archive::chain::{Piece, Stream, takes_over};
use crate::archive::log_beginning::LogBeginning;
use crate::archive::plan_error::PlanError;
use crate::archive::stream::{StoredPosition, StreamOrigin};

/// The last stream of a line.
pub(super) struct LineEnding<'a, K> {
    /// What is known of the pieces before its own.
    pub(super) before: K,
    /// Its own pieces.
    pub(super) pieces: Vec<Piece<'a>>,
}

/// The line of each stream. `see` adds further pieces to what is known of those before them. Each stream is read once, and
/// once more for each one that follows it: reading a thousand lines of half a million segments anew took minutes. `None` if
/// streams follow each other in a circle.
pub(super) fn line_ends<'a, K: Clone + Default>(
    streams: &'a [Stream],
    see: &impl Fn(&K, &[Piece<'a>]) -> K,
) -> Option<Vec<LineEnding<'a, K>>> {
    let by_id = by_id(streams);
    let before_it = |stream: &Stream| {
        let link = stream.head.content.begins.after();
        link.and_then(|link| by_id.get(&*link.stream).copied())
    };
    // What comes before each stream in its line.
    let mut before: HashMap<&str, (LineReader<'a>, K)> = HashMap::new();
    let mut ends = Vec::with_capacity(streams.len());
    for stream in streams {
        let mut line = vec![stream];
        let mut first = stream;
        while !before.contains_key(first.id())
            && let Some(earlier) = before_it(first)
        {
            if line.len() > streams.len() {
                return None;
            }
            line.push(earlier);
            first = earlier;
        }
        let mut known = before.entry(first.id()).or_default().clone();
        while let Some(stream) = line.pop()
            && let Some(next) = line.last()
        {
            let (mut reader, of_before) = known;
            let (of_before, pieces) = reader.added(stream, Some(next), of_before);
            known = (reader.shortened(), see(&of_before, &pieces));
            before.insert(next.id(), known.clone());
        }
        let (mut reader, of_before) = known;
        let (before, pieces) = reader.added(stream, None, of_before);
        ends.push(LineEnding { before, pieces });
    }
    Some(ends)
}

/// Reads the streams of a line, one after the other.
#[derive(Debug, Clone, Default)]
pub(super) struct LineReader<'a> {
    pub(super) pieces: Vec<Piece<'a>>,
    /// Where they do not follow each other.
    pub(super) breaks: Vec<(usize, PlanError)>,
    before: Option<&'a Stream>,
    /// Whether the server differs from that of the last piece: of some, nothing counts.
    is_moved: bool,
    /// End of the part of the present server that counts.
    end: Option<StoredPosition>,
}

impl<'a> LineReader<'a> {
    /// Adds the pieces of a stream up to where the next one takes over. Returns whether none of those before it count.
    pub(super) fn add(&mut self, stream: &'a Stream, next: Option<&'a Stream>) -> bool {
        let head = &stream.head.content;
        let before = self.before.replace(stream);
        let is_other = before.is_some_and(|one| head.is_of_another_server(&one.head.content));
        let mut is_anew = false;
        match (&head.begins, self.pieces.last()) {
            (StreamOrigin::Continues { at: Some(at), .. }, Some(last)) => {
                if let Err(what) = takes_over(head, at, self.end.as_ref(), last) {
                    let (stream, what) = (stream.id().to_owned(), what.to_owned());
                    let broken = PlanError::Segment { stream, number: 0, what };
                    self.breaks.push((self.pieces.len(), broken));
                }
            }
            (StreamOrigin::Gap { reason, .. }, Some(last)) => {
                let at = last.segment.to.clone();
                let gap = PlanError::Gap { at, reason: reason.clone() };
                self.breaks.push((self.pieces.len(), gap));
            }
            (StreamOrigin::Branch { .. }, Some(last)) => {
                // The part that it shares with the other history lies before its beginning, if both have the log in which it
                // begins. If that is another one of the same name, as after RESET MASTER or in a snapshot that was started, or
                // another log altogether, it shares nothing; nor do two servers.
                let start = &head.start;
                let continues = (last.segment.is_followed_by(start) || last.until == start.offset)
                    && before.is_some_and(|before| begins_in_log_of(stream, before));
                if is_other || self.is_moved || !continues {
                    self.pieces.clear();
                    self.breaks.clear();
                    self.is_moved = false;
                    is_anew = true;
                }
            }
            _ => {}
        }
        if is_other || self.end.is_none() {
            self.end = Some(head.start.clone());
        }
        self.is_moved |= is_other && !self.pieces.is_empty();
        let server = self.pieces.last().map_or(0, |last| last.server + usize::from(self.is_moved));
        let count = self.pieces.len();
        stream.add_to(&mut self.pieces, &mut self.breaks, next, server);
        if let Some(last) = self.pieces.last().filter(|_| self.pieces.len() > count) {
            self.is_moved = false;
            self.end =
                Some(StoredPosition { log: last.segment.from.log.clone(), offset: last.until });
        }
        is_anew
    }

    /// Adds a stream. Returns what is known of the pieces before it, if they count, and its own pieces.
    fn added<K: Default>(
        &mut self,
        stream: &'a Stream,
        next: Option<&'a Stream>,
        of_before: K,
    ) -> (K, Vec<Piece<'a>>) {
        let count = self.pieces.len();
        match self.add(stream, next) {
            true => (K::default(), self.pieces.clone()),
            false => (of_before, self.pieces.get(count..).unwrap_or_default().to_vec()),
        }
    }

    /// The same with nothing but what the next stream has to follow.
    fn shortened(self) -> Self {
        let last = self.pieces.last().copied();
        Self { pieces: last.into_iter().collect(), breaks: Vec::new(), ..self }
    }
}

/// Whether the log in which a stream begins is one of another stream.
fn begins_in_log_of(stream: &Stream, other: &Stream) -> bool {
    let Some(first) = stream.segments.values().next() else { return false };
    let same = other.segments.values().find(|segment| segment.from.log == first.from.log);
    same.is_some_and(|same| LogBeginning::of(first).is(&LogBeginning::of(same)))
}

pub(super) fn by_id(streams: &[Stream]) -> HashMap<&str, &Stream> {
    streams.iter().map(|stream| (stream.id(), stream)).collect()
}
