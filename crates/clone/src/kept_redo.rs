//! The redo log that a server keeps for a clone: all that it writes from the beginning of the page stage to the end.
//! A recipient that is slow then fills the disk of the server.

use std::time::{Duration, Instant};

/// What a server keeps.
#[derive(Debug)]
pub(crate) struct KeptRedo {
    /// Position of the redo log when the page stage began.
    from: u64,
    looked: Instant,
    is_told: bool,
}

/// What to do about it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Fine,
    /// To be told, once: it is half of the limit.
    Much(u64),
    TooMuch(u64),
}

impl KeptRedo {
    pub(crate) fn since(from: u64) -> Self {
        Self { from, looked: Instant::now(), is_told: false }
    }

    /// Whether it is time to look again.
    pub(crate) fn is_due(&self, look: Duration) -> bool {
        self.looked.elapsed() >= look
    }

    /// Takes the current position.
    pub(crate) fn look(&mut self, position: u64, limit: u64) -> Verdict {
        self.looked = Instant::now();
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
        let mut kept = KeptRedo::since(1000);
        let found = [1050, 1051, 1090, 1100, 1101].map(|position| kept.look(position, 100));
        let expected =
            [Verdict::Fine, Verdict::Much(51), Verdict::Fine, Verdict::Fine, Verdict::TooMuch(101)];
        assert_eq!(found, expected);
        assert_eq!(KeptRedo::since(0).look(u64::MAX, u64::MAX), Verdict::Much(u64::MAX));
        assert!(KeptRedo::since(0).is_due(Duration::ZERO));
        assert!(!KeptRedo::since(0).is_due(Duration::from_secs(3600)));
    }
}
