//! A connection that is logged in, and how it ends.

use std::fmt;

use crate::error::Error;
use crate::link::Link;
use crate::reply::Command;
use crate::stream::Stream;

/// Tells the server that the client leaves when it is dropped between two commands: a server counts a connection that
/// just closes as one that broke (`Aborted_clients`), and people watch that number for broken networks.
pub(crate) struct Connection {
    pub(crate) link: Link<Box<dyn Stream>>,
    /// Whether it is between two commands.
    pub(crate) is_ready: bool,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("is_ready", &self.is_ready).finish_non_exhaustive()
    }
}

impl Connection {
    pub(crate) fn new(link: Link<Box<dyn Stream>>) -> Self {
        Self { link, is_ready: true }
    }

    /// Sends a command. Until its answer is complete, no other one can be sent.
    pub(crate) fn send(&mut self, command: &Command<'_>, doing: &'static str) -> Result<(), Error> {
        if !std::mem::take(&mut self.is_ready) {
            return Err(Error::Unusable);
        }
        self.link.packets.begin_command();
        self.link.send(&command.payload(), doing)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Five bytes, which the system takes without a wait: the server has read all that was sent before. It does not answer,
        // and may have closed the connection already.
        let _ = self.send(&Command::Quit, "leaving");
    }
}
