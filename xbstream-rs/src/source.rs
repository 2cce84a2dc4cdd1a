//! Source of a stream to extract.

use std::io::{self, Read as _};
use std::time::Duration;

use xb_cli::Input;
use xb_pipeline::{FifoNames, Fifos, Merge, StoredStream};

/// Longest wait for input before a check for signals.
const SIGNAL_CHECK: Duration = Duration::from_millis(200);

/// Standard input, or the streams of several FIFOs.
pub(crate) enum Source {
    Stdin(Input),
    Fifos(Box<Merge>),
}

impl Source {
    /// Opens standard input, or prepares to open the FIFOs. The names of FIFOs are removed when the
    /// second value is dropped.
    pub(crate) fn new(fifos: Option<Fifos>) -> io::Result<(Self, Option<FifoNames>)> {
        match fifos {
            None => Ok((Self::Stdin(Input::stdin()?), None)),
            Some(fifos) => {
                let (merged, names) = Merge::new(fifos, None);
                Ok((Self::Fifos(Box::new(merged)), Some(names)))
            }
        }
    }

    /// Returns the stream if it is in a regular file, so that it can be read from several places.
    pub(crate) fn stored(&self, threads: usize) -> io::Result<Option<StoredStream>> {
        match self {
            Self::Stdin(input) => StoredStream::new(input.try_clone()?, threads),
            Self::Fifos(_) => Ok(None),
        }
    }

    /// Length of the input, if that is known.
    pub(crate) fn len(&self) -> Option<u64> {
        match self {
            Self::Stdin(input) => input.len(),
            Self::Fifos(_) => None,
        }
    }

    /// Reads what is there. `None`: nothing has arrived for a fifth of a second.
    pub(crate) fn read(&mut self, room: &mut [u8]) -> io::Result<Option<usize>> {
        match self {
            Self::Stdin(input) => match input.wait()? {
                true => input.read(room).map(Some),
                false => Ok(None),
            },
            Self::Fifos(merged) => Ok(merged.read_within(room, SIGNAL_CHECK)?),
        }
    }
}
