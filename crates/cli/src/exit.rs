//! The few exit codes.

use crate::personality::Personality;

/// How a run ended. These are all the exit codes there are, apart from a panic's 101.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exit {
    /// All that was promised is done: 0. Also for `--help` and `--version`.
    Done,
    /// Something went wrong: 1.
    Failed,
    /// The command line or an option file is wrong, nothing was begun: 2; 1 when called under
    /// the name of a stock tool, which knows only 0 and 1.
    Usage,
    /// Ended by this signal: 128 + its number, as a shell shows it.
    Interrupted(i32),
}

impl Exit {
    /// The code for the system.
    pub fn code(self, personality: Personality) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage if personality.is_stock() => 1,
            Self::Usage => 2,
            // Signal numbers end at 64; anything else would be a caller's mistake and is Failed.
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
