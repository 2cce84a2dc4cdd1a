//! Exit codes.

use crate::personality::Personality;

/// End of a run. These are all the exit codes, apart from 101 for a panic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exit {
    /// Success: 0. Also for `--help` and `--version`.
    Done,
    /// Failure: 1.
    Failed,
    /// Wrong command line or option file, before any work: 2; 1 if called by the name of a stock
    /// tool, which has only 0 and 1.
    Usage,
    /// Judgement of a command that has exit codes of its own, such as a monitor.
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
            Self::Usage if personality.is_stock() => 1,
            Self::Usage => 2,
            // Signal numbers end at 64; any other number is a caller's mistake and returns Failed.
            Self::Interrupted(signal) => match u8::try_from(signal) {
                Ok(signal @ 1..=64) => 128 + signal,
                _ => 1,
            },
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
