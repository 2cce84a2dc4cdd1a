//! The stages of the pipeline as a report names them, by the direction of the bytes.

use serde::{Deserialize, Serialize};

/// Direction of the bytes in a section of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Into a store.
    Up,
    /// Out of a store, into files or a stream.
    Restore,
    /// Out of a store, to be checked.
    Verify,
    /// From one store to another.
    Copy,
    /// From the donor of a state transfer to the joiner.
    Send,
    /// From the donor, into files of the joiner.
    Receive,
}

impl Direction {
    /// Returns the names of the stages, verbs in the order of the bytes. `encode` names what the workers
    /// do on the way up, if it is not `compress`.
    pub(crate) fn stages(self, encode: Option<&str>) -> Vec<String> {
        let names: &[&str] = match self {
            Self::Up => &["read", encode.unwrap_or("compress"), "seal", "upload"],
            Self::Restore => &["download", "open", "decompress", "write"],
            Self::Verify => &["download", "open", "decompress", "check"],
            Self::Copy => &["copy"],
            Self::Send => &["back up", "compress", "seal", "send"],
            Self::Receive => &["receive", "open", "decompress", "write"],
        };
        names.iter().copied().map(str::to_owned).collect()
    }

    /// Returns whether the bytes are packed, that is, read from a producer.
    #[must_use]
    pub fn packs(self) -> bool {
        matches!(self, Self::Up | Self::Send)
    }

    /// Returns whether one end is a store, with objects and requests.
    #[must_use]
    pub fn has_store(self) -> bool {
        !matches!(self, Self::Send | Self::Receive)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::MAX_LANES;

    #[test]
    fn every_direction_has_as_many_stages_as_a_sample() {
        use Direction::{Copy, Receive, Restore, Send, Up, Verify};
        for direction in [Up, Restore, Verify, Copy, Send, Receive] {
            let number = if direction == Copy { 1 } else { MAX_LANES };
            assert_eq!(direction.stages(None).len(), number, "{direction:?}");
        }
        assert_eq!(Direction::Up.stages(Some("checksum"))[1], "checksum");
    }
}
