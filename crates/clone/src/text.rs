//! The text that a stored clone says about itself, read as it arrives: what it has between its values is not kept, and no
//! list of it grows beyond what a server can have.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufReader, Read};
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

/// Longest text, in bytes: that of a million files has some 400 MB, and up to a gigabyte with the longest names.
const MAX_TEXT: u64 = 1 << 30;
/// Longest value, in bytes: a set of GTIDs, of which a server can say as much.
const MAX_VALUE: u64 = 64 << 20;
/// Most settings and plugins. Servers have some 1,000 settings.
pub(crate) const MAX_SETTINGS: usize = 1 << 16;

/// Reads a text.
///
/// # Errors
/// If it is none of a `T`, or is longer than that of any clone.
pub(crate) fn read<T: DeserializeOwned>(input: impl Read) -> Result<T, serde_json::Error> {
    read_within(input, MAX_TEXT, MAX_VALUE)
}

fn read_within<T: DeserializeOwned>(
    input: impl Read,
    max_text: u64,
    max_value: u64,
) -> Result<T, serde_json::Error> {
    let input = TextReader { input, max_text, max_value, total: 0, string: None, is_escape: false };
    serde_json::from_reader(BufReader::with_capacity(64 << 10, input))
}

/// Passes a text of JSON on, and refuses one that is too long, or has a value that is.
struct TextReader<R> {
    input: R,
    max_text: u64,
    max_value: u64,
    /// Bytes so far.
    total: u64,
    /// Bytes of the string that has not ended.
    string: Option<u64>,
    /// Whether the last byte takes the meaning of the next one.
    is_escape: bool,
}

impl<R: Read> Read for TextReader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.input.read(buf)?;
        for byte in buf.get(..len).unwrap_or_default() {
            self.total += 1;
            self.string = match (self.string, *byte) {
                (None, b'"') => Some(0),
                (None, _) => None,
                (Some(_), b'"') if !self.is_escape => None,
                (Some(len), _) => Some(len + 1),
            };
            self.is_escape = self.string.is_some() && *byte == b'\\' && !self.is_escape;
            if self.total > self.max_text || self.string.is_some_and(|len| len > self.max_value) {
                return Err(io::Error::other("it is longer than that of any server"));
            }
        }
        Ok(len)
    }
}

/// A list of at most so many items.
pub(crate) fn list<'de, D, T, const MOST: usize>(from: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    from.deserialize_seq(Limited::<T, MOST>(PhantomData))
}

/// A map of at most so many items.
pub(crate) fn map<'de, D, const MOST: usize>(from: D) -> Result<BTreeMap<String, String>, D::Error>
where
    D: Deserializer<'de>,
{
    from.deserialize_map(LimitedMap::<MOST>)
}

struct Limited<T, const MOST: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for Limited<T, MOST> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MOST}")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element()? {
            if all.len() == MOST {
                return Err(A::Error::invalid_length(MOST + 1, &self));
            }
            all.push(item);
        }
        Ok(all)
    }
}

struct LimitedMap<const MOST: usize>;

impl<'de, const MOST: usize> Visitor<'de> for LimitedMap<MOST> {
    type Value = BTreeMap<String, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a map of at most {MOST}")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut all = BTreeMap::new();
        while let Some((name, value)) = items.next_entry()? {
            all.insert(name, value);
            if all.len() > MOST {
                return Err(A::Error::invalid_length(all.len(), &self));
            }
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panic")]

    use super::*;

    fn refused(text: impl Read) -> String {
        read_within::<BTreeMap<String, u64>>(text, 1 << 20, 1 << 10).unwrap_err().to_string()
    }

    #[test]
    fn what_is_between_values_has_an_end() {
        let spaces = || io::repeat(b' ').take(2 << 20);
        let error = refused((&b"{"[..]).chain(spaces()));
        assert!(error.contains("longer than that of any server"), "{error}");
    }

    #[test]
    fn a_value_has_an_end() {
        for begin in [&b"{\"version\": \""[..], b"{\"a\\\"", b"{\"\\\\\": 1, \""] {
            let error = refused(begin.chain(io::repeat(b'9').take(2 << 10)));
            assert!(error.contains("longer than that of any server"), "{error}");
            // Of many short ones, none is long.
            let error = refused(&*[begin, b"9\", \"9\"".repeat(1000).as_slice()].concat());
            assert!(!error.contains("longer than that of any server"), "{error}");
        }
    }
}
