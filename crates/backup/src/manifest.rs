//! The manifest: what a backup is, written last. A backup exists when its manifest does.
//!
//! It is plain JSON text and then one line `sha256:HEX` over the exact bytes before that line.
//! The line guards against accidents; a seal adds one that proves who wrote it.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::facts::Facts;
use crate::names::RunId;

/// Largest manifest in bytes.
pub(crate) const MAX_LEN: usize = 1 << 20;
/// The version we write. Readers refuse a higher one.
pub const FORMAT: u32 = 1;

/// How a backup lies in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// One native stream cut into equal objects.
    Packed,
    /// One object for each chunk of each file, as the stock tool has it.
    Classic,
}

/// Everything a manifest says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`FORMAT`].
    pub format: u32,
    /// Layout of the data objects.
    pub layout: Layout,
    /// Name of the backup.
    pub name: String,
    /// The run that made it: whose manifest this is.
    pub run: String,
    /// Program and version that wrote it.
    pub tool: String,
    /// When the run began, UTC.
    pub started: jiff::Timestamp,
    /// When the last data object was acknowledged, UTC.
    pub finished: jiff::Timestamp,
    /// Number of data objects.
    pub objects: u64,
    /// Bytes in the data objects.
    pub stored_bytes: u64,
    /// Bytes of the stream that came in.
    pub stream_bytes: u64,
    /// Files in the stream.
    pub files: u64,
    /// Packed only: how to read the objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packed: Option<PackedFacts>,
    /// By which rule the stream counted as whole.
    pub end: End,
    /// The program that made the stream, where we started it ourselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub producer: Option<Producer>,
    /// What the stream's own small files say about the server.
    #[serde(default)]
    pub source: Facts,
}

/// What a reader of packed objects has to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackedFacts {
    /// Size of every object but the last, in bytes.
    pub chunk_size: u64,
    /// SHA-256 over the objects' lengths and CRC-64/NVME values, hexadecimal.
    pub root: String,
    /// Body position of the last index frame.
    pub index_position: u64,
    /// Its length, header included, in bytes.
    pub index_len: u64,
    /// Codecs that occur in the frames.
    pub codecs: Vec<String>,
}

/// By which rule a stream counted as whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "rule", rename_all = "kebab-case")]
pub enum End {
    /// The producer's last file was seen.
    LastFile {
        /// Its name, or the pattern given for it.
        name: String,
    },
    /// Nothing was demanded (`--unsafe-any-end`).
    Any,
}

/// A producer that we started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Producer {
    /// File name of the program; its arguments may hold secrets and are not kept.
    pub program: String,
    /// Its exit status; always 0 in a manifest.
    pub exit: i32,
}

/// A manifest that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// Longer than [`MAX_LEN`].
    #[error("the manifest has {len} bytes, at most {MAX_LEN} are allowed")]
    TooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// The check line is missing or malformed.
    #[error("the manifest has no check line: it is cut short or damaged")]
    NoCheck,
    /// The check line does not fit the text.
    #[error(
        "the manifest is damaged: its text has the digest {got}, its check line says {expected}"
    )]
    Damaged {
        /// As the check line says.
        expected: String,
        /// As computed.
        got: String,
    },
    /// The text is not what a manifest looks like.
    #[error("the manifest cannot be read: {0}")]
    Malformed(#[from] serde_json::Error),
    /// Written by a later version of this program.
    #[error(
        "the manifest has format {found}, this program reads up to {FORMAT}: use a newer version"
    )]
    TooNew {
        /// Format of the manifest.
        found: u32,
    },
    /// Values that contradict each other.
    #[error("the manifest contradicts itself: {reason}")]
    Inconsistent {
        /// How.
        reason: &'static str,
    },
}

const CHECK: &str = "sha256:";

impl Manifest {
    /// The bytes to store.
    ///
    /// # Errors
    /// [`ManifestError::TooLong`] when they exceed [`MAX_LEN`].
    pub fn encode(&self) -> Result<Vec<u8>, ManifestError> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        let line = format!("{CHECK}{}\n", hex(&Sha256::digest(&text)));
        text.extend_from_slice(line.as_bytes());
        if text.len() > MAX_LEN {
            return Err(ManifestError::TooLong { len: text.len() });
        }
        Ok(text)
    }

    /// Reads stored bytes and checks them against themselves.
    ///
    /// # Errors
    /// [`ManifestError`] for anything but a sound manifest of a format we know.
    pub fn decode(bytes: &[u8]) -> Result<Self, ManifestError> {
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        if bytes.len() > MAX_LEN {
            return Err(ManifestError::TooLong { len: bytes.len() });
        }
        let body = bytes.strip_suffix(b"\n").ok_or(ManifestError::NoCheck)?;
        let at = body.iter().rposition(|b| *b == b'\n').ok_or(ManifestError::NoCheck)? + 1;
        let (text, line) = body.split_at(at);
        let expected = std::str::from_utf8(line)
            .ok()
            .and_then(|l| l.strip_prefix(CHECK))
            .ok_or(ManifestError::NoCheck)?;
        let got = hex(&Sha256::digest(text));
        if got != expected {
            return Err(ManifestError::Damaged { expected: expected.to_owned(), got });
        }
        let Version { format } = serde_json::from_slice(text)?;
        if format > FORMAT {
            return Err(ManifestError::TooNew { found: format });
        }
        let manifest: Self = serde_json::from_slice(text)?;
        manifest.check()?;
        Ok(manifest)
    }

    /// The run as an id.
    #[must_use]
    pub fn run_id(&self) -> Option<RunId> {
        RunId::parse(&self.run)
    }

    fn check(&self) -> Result<(), ManifestError> {
        let inconsistent = |reason| Err(ManifestError::Inconsistent { reason });
        if self.run_id().is_none() {
            return inconsistent("the run is not 32 hexadecimal digits");
        }
        match (&self.packed, self.layout) {
            (Some(packed), Layout::Packed) => {
                if packed.chunk_size == 0
                    || self.stored_bytes.div_ceil(packed.chunk_size) != self.objects
                {
                    return inconsistent(
                        "count, size and total of the objects do not fit together",
                    );
                }
                if packed.root.len() != 64 {
                    return inconsistent("the root digest is not a SHA-256");
                }
                Ok(())
            }
            (None, Layout::Classic) => Ok(()),
            (None, Layout::Packed) => inconsistent("a packed backup without its object size"),
            (Some(_), Layout::Classic) => {
                inconsistent("a classic backup with a packed object size")
            }
        }
    }
}

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Manifest {
        Manifest {
            format: FORMAT,
            layout: Layout::Packed,
            name: "nightly".into(),
            run: "00112233445566778899aabbccddeeff".into(),
            tool: "xbcloud-rs 0.1.0".into(),
            started: jiff::Timestamp::UNIX_EPOCH,
            finished: jiff::Timestamp::UNIX_EPOCH,
            objects: 2,
            stored_bytes: 15,
            stream_bytes: 9,
            files: 1,
            packed: Some(PackedFacts {
                chunk_size: 10,
                root: "0".repeat(64),
                index_position: 0,
                index_len: 0,
                codecs: vec!["none".into()],
            }),
            end: End::LastFile { name: "xtrabackup_info".into() },
            producer: Some(Producer { program: "mariadb-backup".into(), exit: 0 }),
            source: Facts::default(),
        }
    }

    #[test]
    fn comes_back_as_written() {
        assert_eq!(Manifest::decode(&sample().encode().unwrap()).unwrap(), sample());
    }

    #[test]
    fn any_flipped_bit_and_any_cut_is_noticed() {
        let good = sample().encode().unwrap();
        for at in 0..good.len() {
            assert!(Manifest::decode(&good[..at]).is_err(), "cut at {at}");
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                assert!(Manifest::decode(&bad).is_err(), "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn contradictions_and_later_formats_are_refused() {
        let mut wrong = sample();
        wrong.objects = 3;
        assert!(matches!(
            Manifest::decode(&wrong.encode().unwrap()),
            Err(ManifestError::Inconsistent { .. })
        ));
        let mut newer = sample();
        newer.format = FORMAT + 1;
        assert!(matches!(
            Manifest::decode(&newer.encode().unwrap()),
            Err(ManifestError::TooNew { found: 2 })
        ));
        let mut zero = sample();
        zero.packed.as_mut().unwrap().chunk_size = 0;
        assert!(Manifest::decode(&zero.encode().unwrap()).is_err());
    }
}
