//! The server's line protocol on standard output.
//!
//! Any other line makes the server abort or wait forever, so nothing else in the program may write
//! to standard output.

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use crate::contract::position::{Position, StateId};

/// Longest line that a joiner's server accepts, in bytes with its line end.
const MAX_LINE: usize = 511;

/// Writes the protocol's lines. Clones write to the same output.
#[derive(Clone)]
pub struct Server {
    out: Arc<Mutex<Box<dyn Write + Send>>>,
    progress: bool,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("progress", &self.progress).finish_non_exhaustive()
    }
}

impl Server {
    /// Creates a writer to `out`. Progress lines are written only if the server asked for them.
    pub fn new(out: impl Write + Send + 'static, progress: bool) -> Self {
        Self { out: Arc::new(Mutex::new(Box::new(out))), progress }
    }

    /// Joiner: the port listens, and the donor can be sent to `address`.
    ///
    /// # Errors
    /// If the server no longer reads, or the address is too long for the server.
    pub fn ready(&self, address: &str) -> io::Result<()> {
        self.line(format_args!("ready {address}"))
    }

    /// Joiner: all files are in place, as of `position`. The last line.
    ///
    /// # Errors
    /// If the server no longer reads.
    pub fn position(&self, position: &Position) -> io::Result<()> {
        self.line(position)
    }

    /// Donor: no freeze is needed, or no longer.
    ///
    /// # Errors
    /// If the server no longer reads.
    pub(crate) fn proceed(&self) -> io::Result<()> {
        self.line("continue")
    }

    /// Donor: the joiner has received everything. The last line.
    ///
    /// # Errors
    /// If the server no longer reads.
    pub fn done(&self, state: &StateId, domain: Option<u32>) -> io::Result<()> {
        self.line(format_args!("done {}", Position { state: state.clone(), domain }))
    }

    /// Announces the total number of bytes, if the server asked for progress.
    ///
    /// # Errors
    /// If the server no longer reads.
    pub fn total(&self, bytes: u64) -> io::Result<()> {
        if self.progress { self.line(format_args!("total {bytes}")) } else { Ok(()) }
    }

    /// Reports how many bytes were transferred since the previous such line, if the server asked
    /// for progress.
    ///
    /// # Errors
    /// If the server no longer reads.
    pub fn complete(&self, bytes: u64) -> io::Result<()> {
        if self.progress { self.line(format_args!("complete {bytes}")) } else { Ok(()) }
    }

    fn line(&self, text: impl Display) -> io::Result<()> {
        let line = format!("{text}\n");
        if line.len() > MAX_LINE || line.trim_end().contains(|c: char| c.is_control()) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a line that the server accepts",
            ));
        }
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        out.write_all(line.as_bytes())?;
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_are_whole_and_progress_is_told_only_when_asked_for() {
        let state: StateId = "9c9a4c3b-2b3c-11f0-8d3f-7b1b1f0f0a11:42".parse().unwrap();
        for progress in [false, true] {
            let kept = Kept::default();
            let server = Server::new(kept.clone(), progress);
            server.ready("10.0.0.2:4444/xbrs").unwrap();
            server.total(7).unwrap();
            server.complete(3).unwrap();
            server.done(&state, Some(1)).unwrap();
            server.position(&Position { state: state.clone(), domain: None }).unwrap();
            assert!(server.ready("a\nb").is_err());
            assert!(server.ready(&"a".repeat(600)).is_err());
            let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
            let middle = if progress { "total 7\ncomplete 3\n" } else { "" };
            assert_eq!(
                text,
                format!("ready 10.0.0.2:4444/xbrs\n{middle}done {state} 1\n{state}\n")
            );
        }
    }
}
