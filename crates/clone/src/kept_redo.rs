//! The redo log that a server keeps for a clone: all that it writes from the beginning of the page stage to the end.
//! A recipient that is slow then fills the disk of the server.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use xb_process::CancelToken;

use crate::donor::{DonorAddress, is_break, is_busy};
use crate::error::Error;
use crate::guards;
use crate::notice::{Notice, Notify};

/// Longest time for which it need not be seen.
const MAX_UNSEEN: Duration = Duration::from_secs(600);

/// Watches it in a thread of its own, because the thread that receives may wait for a store that takes nothing.
pub(crate) struct RedoWatch<'a> {
    donor: DonorAddress<'a>,
    notify: &'a Notify<'a>,
    refusal: OnceLock<String>,
}

impl<'a> RedoWatch<'a> {
    pub(crate) fn new(donor: DonorAddress<'a>, notify: &'a Notify<'a>) -> Self {
        Self { donor, notify, refusal: OnceLock::new() }
    }

    /// Looks at once, and again and again until `over`. Where the first look finds the redo log is where the server keeps it
    /// from. If the server keeps too much, it is told that the clone has failed, and
    /// all connections are closed.
    pub(crate) fn run(&self, over: &CancelToken<()>) {
        let settings = self.donor.settings;
        let mut seen = Instant::now();
        let mut kept = None;
        loop {
            let position =
                self.donor.connect().and_then(|mut c| guards::redo_position(&mut c.client));
            let refusal = match position {
                Ok(position) => {
                    seen = Instant::now();
                    let kept = kept.get_or_insert_with(|| ServerRedo::since(position));
                    self.verdict(kept.look(position, settings.max_donor_redo))
                }
                // Another look follows, or the clone's own connections break, too.
                Err(error)
                    if (is_break(&error) || is_busy(&error)) && seen.elapsed() < MAX_UNSEEN =>
                {
                    None
                }
                Err(Error::Stopped) => return,
                Err(error) => Some(format!(
                    "cannot find out how much of its redo log the server keeps: {error}"
                )),
            };
            if let Some(refusal) = refusal.filter(|_| !over.is_cancelled()) {
                let _ = self.refusal.set(refusal.clone());
                // If that is lost, the donor waits for a recipient that comes back, and then ends the clone.
                self.donor.auxiliary.end();
                settings.cancel.cancel(());
                return (self.notify)(Notice::LetGo(&refusal));
            }
            if over.wait(settings.look).is_some() {
                return;
            }
        }
    }

    /// Returns why the clone was ended, if it was.
    pub(crate) fn refusal(&self) -> Option<String> {
        self.refusal.get().cloned()
    }

    fn verdict(&self, verdict: Verdict) -> Option<String> {
        let limit = self.donor.settings.max_donor_redo;
        match verdict {
            Verdict::Fine => None,
            Verdict::Much(bytes) => {
                (self.notify)(Notice::Text(&format!(
                    "the server keeps {bytes} bytes of its redo log until the clone has ended; at {limit}, the clone ends"
                )));
                None
            }
            Verdict::TooMuch(bytes) => Some(format!(
                "the server has to keep {bytes} bytes of its redo log for the clone, more than the limit of {limit}: clone when fewer changes are made, make the store faster, or raise the limit if the server's disk has room"
            )),
        }
    }
}

/// Redo log that a server keeps.
#[derive(Debug)]
struct ServerRedo {
    /// Position of the redo log when the page stage began.
    from: u64,
    is_told: bool,
}

/// Action if it keeps too little.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Fine,
    /// To be told, once: it is half of the limit.
    Much(u64),
    TooMuch(u64),
}

impl ServerRedo {
    fn since(from: u64) -> Self {
        Self { from, is_told: false }
    }

    /// Takes the current position.
    fn look(&mut self, position: u64, limit: u64) -> Verdict {
        let kept = position.saturating_sub(self.from);
        if kept > limit {
            return Verdict::TooMuch(kept);
        }
        if kept > limit / 2 && !self.is_told {
            self.is_told = true;
            return Verdict::Much(kept);
        }
        Verdict::Fine
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_limit_is_told_once_and_more_than_all_of_it_ends_the_clone() {
        let mut kept = ServerRedo::since(1000);
        let found = [1050, 1051, 1090, 1100, 1101].map(|position| kept.look(position, 100));
        let expected =
            [Verdict::Fine, Verdict::Much(51), Verdict::Fine, Verdict::Fine, Verdict::TooMuch(101)];
        assert_eq!(found, expected);
        assert_eq!(ServerRedo::since(0).look(u64::MAX, u64::MAX), Verdict::Much(u64::MAX));
    }
}
