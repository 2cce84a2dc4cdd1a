//! First stage of packing: reads the source into slabs and finds the chunks in each.

use std::io::Read;

use crate::flow::budget::Budget;
use crate::flow::hold_ups::Wait;
use crate::flow::observer::Observer;
use crate::flow::ordered_pool::Submit;
use crate::flow::plan::SLAB;
use crate::flow::slab::SlabPool;
use crate::pack::encode::{Encoded, ScannedSlab, StreamEnd};
use crate::pack::error::PackError;
use crate::pack::input::{Content, XbstreamInput};
use crate::pack::pass_on::PassOn;
use crate::scan::end_rule::EndProof;
use crate::scan::scanner::{Entry, Notes, Scanned, Scanner, StreamError};

/// Finds chunks in the bytes that pass, if the source is an xbstream.
pub(crate) enum InputScanner {
    Xbstream(Box<Scanner>),
    Raw { bytes: u64 },
}

impl InputScanner {
    pub(crate) fn new(content: Content) -> Self {
        match content {
            Content::Xbstream(XbstreamInput { rule, dialect }) => {
                Self::Xbstream(Box::new(Scanner::new(dialect, rule)))
            }
            Content::Raw => Self::Raw { bytes: 0 },
        }
    }

    fn scan(&mut self, slab: &[u8]) -> Result<Notes, StreamError> {
        match self {
            Self::Xbstream(scanner) => scanner.scan(slab),
            Self::Raw { bytes } => {
                *bytes += slab.len() as u64;
                Ok(Notes::default())
            }
        }
    }

    fn finish(self) -> Result<(Notes, Scanned), StreamError> {
        match self {
            Self::Xbstream(scanner) => scanner.finish(),
            Self::Raw { bytes } => {
                Ok((Notes::default(), Scanned::unread(bytes, EndProof::InputEnd)))
            }
        }
    }
}

/// Reads the source to its end.
pub(crate) struct SlabReader<R> {
    pub(crate) source: R,
    pub(crate) pool: SlabPool,
    /// Budget that pays for the slabs.
    pub(crate) budget: Budget,
    /// Stage that frees leases of that budget.
    pub(crate) lease_waits_for: Wait,
    pub(crate) watching: Observer,
}

impl<R: Read> SlabReader<R> {
    /// Passes every slab to the workers. The end is passed on only after a complete stream: without
    /// it no later stage returns a result.
    pub(crate) fn read_all(
        mut self,
        mut scanner: InputScanner,
        submit: &Submit<ScannedSlab, Encoded>,
    ) -> Result<(), PackError> {
        let mut position = 0;
        loop {
            let lease = || self.budget.lease(SLAB as u64);
            let permit = self.watching.waiting(self.lease_waits_for, lease);
            let mut slab = self.pool.take(Some(permit));
            let read = self.watching.waiting(Wait::Source, || slab.read_from(&mut self.source));
            let pass_on = match read {
                Ok(()) => false,
                Err(error) if PassOn::is(&error) => true,
                Err(source) => {
                    return Err(PackError::Read { position: position + slab.len() as u64, source });
                }
            };
            if slab.is_empty() && !pass_on {
                break;
            }
            position += slab.len() as u64;
            let notes = scanner.scan(&slab)?;
            self.watching.add_bytes(slab.len() as u64);
            let ends = notes.entries.iter().filter(|entry| matches!(entry, Entry::End { .. }));
            self.watching.add_files(ends.count() as u64);
            let slab = Some(slab).filter(|slab| !slab.is_empty());
            let scanned = ScannedSlab { slab, notes, end: None, pass_on };
            self.watching.waiting(Wait::Workers, || submit.send(scanned))?;
        }
        let (notes, scanned) = scanner.finish()?;
        let end = StreamEnd { scanned, rest: self.watching.wait(Wait::Workers) };
        let end = Some(Box::new(end));
        submit.send(ScannedSlab { slab: None, notes, end, pass_on: false })?;
        Ok(())
    }
}
