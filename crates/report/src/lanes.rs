//! The stages of the pipeline as a report shows them: their names, and what helps if one is slow.

use crate::recorder::MAX_LANES;

/// Direction of the bytes in a section of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
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

/// A stage in a chart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lane {
    /// A verb.
    pub(crate) name: String,
    /// What helps if this stage is the slowest.
    pub(crate) advice: &'static str,
}

const READ: &str = "The producer could not deliver more: let it copy more files at once with its \
    own --parallel, and check the server's disks.";
const ENCODE: &str =
    "More --threads, a lighter --compress, or --compress=auto would make this run faster.";
/// Nothing is compressed.
const ENCODE_ONLY: &str = "More --threads would make this run faster.";
const SEAL: &str = "More --threads would make this run faster.";
const UPLOAD: &str = "The store, or the link to it, could not accept more: try a higher --parallel \
    or a stronger --compress, and check --limit-rate.";
const DOWNLOAD: &str = "The store, or the link to it, could not deliver more: try a higher \
    --parallel, and check --limit-rate.";
const OPEN: &str = "More --threads would make this run faster.";
const DECODE: &str = "More --threads would make this run faster.";
const WRITE: &str = "The target's disk, or the program that reads the stream, could not accept \
    more: check its load.";
const SEND: &str = "The link or the joiner could not accept more: try a stronger compress= or \
    compress=auto on the donor, and check rlimit= and the joiner's disks.";
const COMPRESS: &str = "More compress-threads= or a lighter compress= would make this transfer \
    faster, unless the server needs the processors.";
const BACKUP: &str = "The backup program could not deliver more: more backup-threads= let it copy \
    more files at once; check the donor's disks.";
const RECEIVE: &str = "The donor, or the link to it, could not deliver more: its own report names \
    the stage that held it up.";
const DECOMPRESS: &str = "More write-threads= would make this transfer faster.";
const STORE: &str = "The joiner's disks could not accept more: check their load.";
const CHECK: &str = "Checking the content took longest: a lower level of verification reads less.";

impl Direction {
    /// Returns the stages, in the order of the bytes. `encode` names what the workers do on the way
    /// up, if it is not `compress`.
    pub(crate) fn lanes(self, encode: Option<&str>) -> Vec<Lane> {
        let lane = |name: &str, advice| Lane { name: name.to_owned(), advice };
        match self {
            Self::Up => vec![
                lane("read", READ),
                match encode.unwrap_or("compress") {
                    name if name.starts_with("compress") => lane(name, ENCODE),
                    name => lane(name, ENCODE_ONLY),
                },
                lane("seal", SEAL),
                lane("upload", UPLOAD),
            ],
            Self::Restore | Self::Verify => {
                let last = match self {
                    Self::Verify => lane("check", CHECK),
                    _ => lane("write", WRITE),
                };
                vec![
                    lane("download", DOWNLOAD),
                    lane("open", OPEN),
                    lane("decompress", DECODE),
                    last,
                ]
            }
            Self::Copy => vec![lane("copy", UPLOAD)],
            Self::Send => vec![
                lane("back up", BACKUP),
                lane("compress", COMPRESS),
                lane("seal", SEAL),
                lane("send", SEND),
            ],
            Self::Receive => vec![
                lane("receive", RECEIVE),
                lane("open", OPEN),
                lane("decompress", DECOMPRESS),
                lane("write", STORE),
            ],
        }
    }

    /// Number of stages.
    pub(crate) fn len(self) -> usize {
        match self {
            Self::Copy => 1,
            _ => MAX_LANES,
        }
    }

    /// Whether the bytes are packed: what is read is what a producer writes.
    pub(crate) fn packs(self) -> bool {
        matches!(self, Self::Up | Self::Send)
    }

    /// Whether one end is a store, with objects and requests.
    pub(crate) fn has_store(self) -> bool {
        !matches!(self, Self::Send | Self::Receive)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_direction_has_as_many_lanes_as_it_says() {
        use Direction::{Copy, Receive, Restore, Send, Up, Verify};
        for direction in [Up, Restore, Verify, Copy, Send, Receive] {
            assert_eq!(direction.lanes(None).len(), direction.len(), "{direction:?}");
        }
        assert_eq!(Direction::Up.lanes(Some("checksum"))[1].name, "checksum");
    }

    #[test]
    fn what_does_not_compress_is_not_told_to_compress_less() {
        let advice = |encode| Direction::Up.lanes(encode)[1].advice;
        for encode in ["checksum", "encrypt"] {
            assert!(!advice(Some(encode)).contains("--compress"), "{encode}");
        }
        for encode in [None, Some("compress"), Some("compress and encrypt")] {
            assert!(advice(encode).contains("lighter --compress"), "{encode:?}");
        }
    }
}
