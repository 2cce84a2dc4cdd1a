//! One line of a journal after the first.

use xb_reader::RelPath;
use xb_repo::hex::hex;

/// One line of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Line {
    Checkpoint {
        number: u64,
        path: Vec<u8>,
        upto: u64,
        taken: u64,
        crc: u32,
    },
    Overwritten {
        number: u64,
    },
    /// A file that was written out of order has no checksum.
    Whole {
        number: u64,
        path: Vec<u8>,
        name: Vec<u8>,
        size: u64,
        crc: Option<u32>,
    },
    /// The stream removes or renames the file of this name, or gives the name to another one.
    TakenBack {
        name: Vec<u8>,
    },
    Synced {
        upto: u64,
    },
}

impl Line {
    pub(super) fn text(&self) -> String {
        match self {
            Self::Checkpoint { number, path, upto, taken, crc } => {
                format!("proven {number} {upto} {taken} {crc:08x} {}\n", hex(path))
            }
            Self::Overwritten { number } => format!("overwritten {number}\n"),
            Self::Whole { number, path, name, size, crc } => {
                let crc = crc.map_or("-".to_owned(), |crc| format!("{crc:08x}"));
                format!("whole {number} {size} {crc} {} {}\n", hex(path), hex(name))
            }
            Self::TakenBack { name } => format!("taken-back {}\n", hex(name)),
            Self::Synced { upto } => format!("synced {upto}\n"),
        }
    }

    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(line).ok()?;
        let mut words = text.split(' ');
        let kind = words.next()?;
        let mut number = || words.next()?.parse::<u64>().ok();
        let line = match kind {
            "proven" => {
                let (number, upto, taken) = (number()?, number()?, number()?);
                let crc = sum(words.next()?)?;
                Self::Checkpoint { number, upto, taken, crc, path: name(words.next()?)? }
            }
            "overwritten" => Self::Overwritten { number: number()? },
            "whole" => {
                let (number, size) = (number()?, number()?);
                let crc = match words.next()? {
                    "-" => None,
                    digits => Some(sum(digits)?),
                };
                let (path, name) = (name(words.next()?)?, name(words.next()?)?);
                Self::Whole { number, size, path, name, crc }
            }
            "taken-back" => Self::TakenBack { name: name(words.next()?)? },
            "synced" => Self::Synced { upto: number()? },
            _ => return None,
        };
        words.next().is_none().then_some(line)
    }
}

/// Decodes a name from hex digits; the result is never empty.
pub(super) fn name(digits: &str) -> Option<Vec<u8>> {
    let bytes = base16ct::lower::decode_vec(digits).ok()?;
    RelPath::new(&bytes).is_ok().then_some(bytes)
}

pub(super) fn sum(digits: &str) -> Option<u32> {
    (digits.len() == 8).then(|| u32::from_str_radix(digits, 16).ok())?
}
