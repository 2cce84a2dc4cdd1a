//! Exit codes.

use crate::personality::Personality;

/// End of a run. These are all the exit codes, apart from 101 for a panic.
///
/// Called by the name of a stock tool, a program has the codes of that tool: 0, 1, and 128 + the
/// number of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exit {
    /// Success: 0. Also for `--help` and `--version`.
    Done,
    /// Any failure that has no code of its own: 1.
    Failed,
    /// Wrong command line, option file or setting, before any work: 2.
    Usage,
    /// The backup, object or bucket does not exist: 3.
    NotFound,
    /// Credentials or keys are missing, wrong, or do not permit the operation: 4.
    NotPermitted,
    /// The store cannot be reached or keeps failing: 5.
    Unreachable,
    /// The input is incomplete, or the producer failed: 6.
    Input,
    /// The stored data is damaged, or could not be verified to the requested level: 7.
    Damaged,
    /// Verdict of a command that has exit codes of its own, such as a monitor.
    Verdict(u8),
    /// Ended by this signal: 128 + its number, as a shell shows it.
    Interrupted(i32),
}

impl Exit {
    /// Returns the exit code for the system.
    pub fn code(self, personality: Personality) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Verdict(code) => code,
            // Signal numbers end at 64; any other number is a caller's mistake and returns Failed.
            Self::Interrupted(signal) => match u8::try_from(signal) {
                Ok(signal @ 1..=64) => 128 + signal,
                _ => 1,
            },
            _ if personality.is_stock() => 1,
            Self::Usage => 2,
            Self::NotFound => 3,
            Self::NotPermitted => 4,
            Self::Unreachable => 5,
            Self::Input => 6,
            Self::Damaged => 7,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes() {
        let table = [
            (Exit::Done, 0, 0),
            (Exit::Failed, 1, 1),
            (Exit::Usage, 2, 1),
            (Exit::NotFound, 3, 1),
            (Exit::NotPermitted, 4, 1),
            (Exit::Unreachable, 5, 1),
            (Exit::Input, 6, 1),
            (Exit::Damaged, 7, 1),
            (Exit::Interrupted(1), 129, 129),
            (Exit::Interrupted(2), 130, 130),
            (Exit::Interrupted(15), 143, 143),
            (Exit::Interrupted(0), 1, 1),
            (Exit::Interrupted(-1), 1, 1),
            (Exit::Interrupted(300), 1, 1),
        ];
        for (exit, ours, stock) in table {
            assert_eq!(exit.code(Personality::Ours), ours, "{exit:?}");
            assert_eq!(exit.code(Personality::Xbcloud), stock, "{exit:?}");
            assert_eq!(exit.code(Personality::Mbstream), stock, "{exit:?}");
        }
    }
}
