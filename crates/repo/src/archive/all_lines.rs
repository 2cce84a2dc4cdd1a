//! The pieces of all lines. Lines share most of theirs, so each is kept about twice, however many lines have it.

use std::cell::RefCell;

use crate::archive::chain::{Piece, Stream};
use crate::archive::line_reader::{LineEnding, line_ends};

/// All lines of an archive.
#[derive(Debug)]
pub(super) struct AllLines<'a> {
    /// Each behind those before it.
    parts: Vec<Part<'a>>,
    /// The last part of each line, by the number of its last stream.
    ends: Vec<usize>,
}

/// Pieces of a line.
#[derive(Debug)]
struct Part<'a> {
    pieces: Vec<Piece<'a>>,
    /// The logs that these are of.
    logs: Vec<&'a str>,
    /// The part before it, if that counts.
    before: Option<usize>,
}

impl<'a> AllLines<'a> {
    /// `None` if streams follow each other in a circle.
    pub(super) fn read(streams: &'a [Stream]) -> Option<Self> {
        let parts = RefCell::new(Vec::new());
        let add = |pieces: &[Piece<'a>], before: Option<usize>| {
            let mut logs: Vec<&str> =
                pieces.iter().map(|piece| piece.segment.from.log.as_str()).collect();
            logs.dedup();
            let mut parts = parts.borrow_mut();
            parts.push(Part { pieces: pieces.to_vec(), logs, before });
            parts.len() - 1
        };
        let see = |before: &Option<usize>, pieces: &[Piece<'a>]| Some(add(pieces, *before));
        let ends = line_ends(streams, &see)?;
        let ends = ends.into_iter().map(|LineEnding { before, pieces }| add(&pieces, before));
        let ends = ends.collect();
        Some(Self { parts: parts.into_inner(), ends })
    }

    /// A search for the last piece of a line for which this is true, among those of a log, if one is given. Each piece is
    /// looked at once, however many lines are searched.
    pub(super) fn search<'l>(
        &'l self,
        log: Option<&'l str>,
        is_it: impl Fn(&Piece<'a>) -> bool + 'l,
    ) -> LineSearch<'l, 'a> {
        LineSearch { all: self, log, is_it: Box::new(is_it), known: vec![None; self.parts.len()] }
    }
}

/// A search for the last piece of a kind in lines.
pub(super) struct LineSearch<'l, 'a> {
    all: &'l AllLines<'a>,
    log: Option<&'l str>,
    is_it: Box<dyn Fn(&Piece<'a>) -> bool + 'l>,
    /// The last one up to the end of each part, as far as that is known.
    known: Vec<Option<Option<Piece<'a>>>>,
}

impl<'a> LineSearch<'_, 'a> {
    /// The last one of the line that ends with the stream of this number.
    pub(super) fn last(&mut self, line: usize) -> Option<Piece<'a>> {
        let (mut passed, mut next) = (Vec::new(), self.all.ends.get(line).copied());
        let mut found = None;
        while let Some(number) = next {
            if let Some(known) = self.known.get(number).copied().flatten() {
                found = known;
                break;
            }
            passed.push(number);
            let part = self.all.parts.get(number)?;
            if self.log.is_none_or(|log| part.logs.contains(&log)) {
                found = part.pieces.iter().rfind(|piece| (self.is_it)(piece)).copied();
            }
            if found.is_some() {
                break;
            }
            next = part.before;
        }
        for number in passed {
            if let Some(known) = self.known.get_mut(number) {
                *known = Some(found);
            }
        }
        found
    }
}
