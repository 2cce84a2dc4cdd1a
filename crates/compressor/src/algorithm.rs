//! The choice of a codec on the command line. It is made only here.

use std::fmt;
use std::str::FromStr;

use crate::{BlockCodec, FileCodec, GzipLevel, Level, ZstdLevel};

/// Compression of data, as given to `--compress`.
///
/// [`FromStr`] parses it from text: `none`, `lz4`, `snappy`, `gzip`, `zstd`; the last two with an
/// optional level after a colon. [`Display`](fmt::Display) prints that text, always with the level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Algorithm {
    /// No compression.
    #[default]
    None,
    /// LZ4, always in its fast mode.
    Lz4,
    /// Snappy, which has no levels.
    Snappy,
    /// Deflate.
    Gzip(GzipLevel),
    /// Zstandard.
    Zstd(ZstdLevel),
}

impl Algorithm {
    /// The names that the command line accepts.
    pub const NAMES: [&'static str; 5] = ["none", "lz4", "snappy", "gzip", "zstd"];

    /// The codec of single blocks; `None` for [`Algorithm::None`].
    #[must_use]
    pub fn block_codec(self) -> Option<BlockCodec> {
        match self {
            Algorithm::None => None,
            Algorithm::Lz4 => Some(BlockCodec::Lz4),
            Algorithm::Snappy => Some(BlockCodec::Snappy),
            Algorithm::Gzip(_) => Some(BlockCodec::Zlib),
            Algorithm::Zstd(_) => Some(BlockCodec::Zstd),
        }
    }

    /// Memory in bytes that an encoder needs for blocks of up to `len` bytes, beyond input and output.
    /// For strong levels this takes some milliseconds.
    #[must_use]
    pub fn working_memory(self, len: usize) -> u64 {
        match self {
            Algorithm::Zstd(level) => crate::zstd::working_memory(level, len),
            // Their tables are small.
            Algorithm::None | Algorithm::Lz4 | Algorithm::Snappy | Algorithm::Gzip(_) => 0,
        }
    }

    /// The codec for members that the stock tools can read; `None` where they can read none.
    #[must_use]
    pub fn file_codec(self) -> Option<FileCodec> {
        match self {
            Algorithm::None | Algorithm::Snappy | Algorithm::Gzip(_) => None,
            Algorithm::Lz4 => Some(FileCodec::Lz4),
            Algorithm::Zstd(level) => Some(FileCodec::Zstd(level)),
        }
    }
}

impl From<FileCodec> for Algorithm {
    fn from(codec: FileCodec) -> Self {
        match codec {
            FileCodec::Lz4 => Algorithm::Lz4,
            FileCodec::Zstd(level) => Algorithm::Zstd(level),
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Algorithm::None => f.write_str("none"),
            Algorithm::Lz4 => f.write_str("lz4"),
            Algorithm::Snappy => f.write_str("snappy"),
            Algorithm::Gzip(level) => write!(f, "gzip:{}", level.get()),
            Algorithm::Zstd(level) => write!(f, "zstd:{}", level.get()),
        }
    }
}

impl FromStr for Algorithm {
    type Err = AlgorithmError;

    fn from_str(text: &str) -> Result<Self, AlgorithmError> {
        let (name, level) = match text.split_once(':') {
            Some((name, level)) => (name, Some(level)),
            None => (text, None),
        };
        match (name, level) {
            ("none", None) => Ok(Algorithm::None),
            ("lz4", None) => Ok(Algorithm::Lz4),
            ("snappy", None) => Ok(Algorithm::Snappy),
            ("none" | "lz4" | "snappy", Some(_)) => {
                Err(AlgorithmError::NoLevels { name: name.to_owned() })
            }
            ("gzip", level) => Ok(Algorithm::Gzip(parse_level("gzip", level)?)),
            ("zstd", level) => Ok(Algorithm::Zstd(parse_level("zstd", level)?)),
            _ => Err(AlgorithmError::Unknown { name: name.to_owned() }),
        }
    }
}

fn parse_level<const MAX: u8, const DEFAULT: u8>(
    name: &'static str,
    text: Option<&str>,
) -> Result<Level<MAX, DEFAULT>, AlgorithmError> {
    let Some(text) = text else { return Ok(Level::DEFAULT) };
    // Digits only: the standard parser would accept a plus sign.
    let digits = text.bytes().all(|byte| byte.is_ascii_digit()).then_some(text);
    digits
        .and_then(|digits| digits.parse().ok())
        .and_then(Level::new)
        .ok_or_else(|| AlgorithmError::Level { name, got: text.to_owned(), max: MAX })
}

/// Compression of a stream: one algorithm, or `auto`, which chooses one for each frame by what
/// limits the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Compression {
    /// One algorithm for all frames.
    Fixed(Algorithm),
    /// An algorithm for each frame.
    Auto,
}

impl Default for Compression {
    fn default() -> Self {
        Self::Fixed(Algorithm::None)
    }
}

impl From<Algorithm> for Compression {
    fn from(algorithm: Algorithm) -> Self {
        Self::Fixed(algorithm)
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(algorithm) => algorithm.fmt(f),
            Self::Auto => f.write_str("auto"),
        }
    }
}

impl Compression {
    /// The names that the command line accepts.
    pub const NAMES: [&'static str; 6] = ["auto", "none", "lz4", "snappy", "gzip", "zstd"];
}

impl FromStr for Compression {
    type Err = AlgorithmError;

    fn from_str(text: &str) -> Result<Self, AlgorithmError> {
        match text.parse() {
            _ if text == "auto" => Ok(Self::Auto),
            Err(AlgorithmError::Unknown { name }) => {
                Err(AlgorithmError::UnknownCompression { name })
            }
            algorithm => algorithm.map(Self::Fixed),
        }
    }
}

/// Reason why a text is not a valid [`Algorithm`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AlgorithmError {
    /// The name is unknown.
    #[error("unknown compression \"{name}\": use one of {}", Algorithm::NAMES.join(", "))]
    Unknown {
        /// The name, without the level.
        name: String,
    },
    /// The name is neither `auto` nor that of an algorithm.
    #[error("unknown compression \"{name}\": use one of {}", Compression::NAMES.join(", "))]
    UnknownCompression {
        /// The name, without the level.
        name: String,
    },
    /// A level was given to an algorithm without levels.
    #[error("{name} has no levels")]
    NoLevels {
        /// The algorithm.
        name: String,
    },
    /// The level is not one of this algorithm.
    #[error("{name} has levels 1 to {max}, not \"{got}\"")]
    Level {
        /// The algorithm.
        name: &'static str,
        /// The text after the colon.
        got: String,
        /// The highest level.
        max: u8,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        for (text, shown) in [
            ("none", "none"),
            ("lz4", "lz4"),
            ("snappy", "snappy"),
            ("gzip", "gzip:3"),
            ("gzip:1", "gzip:1"),
            ("gzip:9", "gzip:9"),
            ("zstd", "zstd:1"),
            ("zstd:19", "zstd:19"),
        ] {
            let algorithm: Algorithm = text.parse().unwrap();
            assert_eq!(algorithm.to_string(), shown);
            assert_eq!(shown.parse(), Ok(algorithm));
        }
    }

    #[test]
    fn every_name_is_accepted() {
        let mut names = Compression::NAMES.to_vec();
        names.retain(|name| name.parse::<Compression>().is_ok() && *name != "auto");
        assert_eq!(names, Algorithm::NAMES);
        assert_eq!("auto".parse(), Ok(Compression::Auto));
    }

    #[test]
    fn refusals_say_what_is_allowed() {
        for (text, message) in [
            ("zstd:0", "zstd has levels 1 to 19, not \"0\""),
            ("zstd:20", "zstd has levels 1 to 19, not \"20\""),
            ("zstd:", "zstd has levels 1 to 19, not \"\""),
            ("zstd:+3", "zstd has levels 1 to 19, not \"+3\""),
            ("zstd:3:3", "zstd has levels 1 to 19, not \"3:3\""),
            ("gzip:10", "gzip has levels 1 to 9, not \"10\""),
            ("gzip:258", "gzip has levels 1 to 9, not \"258\""),
            ("lz4:1", "lz4 has no levels"),
            ("none:", "none has no levels"),
            (
                "brotli:5",
                "unknown compression \"brotli\": use one of none, lz4, snappy, gzip, zstd",
            ),
            ("", "unknown compression \"\": use one of none, lz4, snappy, gzip, zstd"),
            ("ZSTD", "unknown compression \"ZSTD\": use one of none, lz4, snappy, gzip, zstd"),
        ] {
            assert_eq!(text.parse::<Algorithm>().unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn only_codecs_of_the_stock_tools_apply_to_single_files() {
        let member = |text: &str| text.parse::<Algorithm>().unwrap().file_codec();
        assert_eq!(member("lz4"), Some(FileCodec::Lz4));
        assert_eq!(member("zstd:7"), ZstdLevel::new(7).map(FileCodec::Zstd));
        assert_eq!([member("none"), member("snappy"), member("gzip")], [None; 3]);
    }
}
