//! Fields of offer and answer for a transfer that leaves out data that the joiner has.

use serde::{Deserialize, Serialize};

use super::question::Key;
use crate::contract::settings::DeltaWish;

/// Writes a key as in the offer: 64 lower-case hex digits.
pub(crate) fn write_key(key: &Key) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads a key; `None` if it is none.
pub(crate) fn read_key(text: &str) -> Option<Key> {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let (pairs, odd) = text.as_bytes().as_chunks::<2>();
    let bytes: Option<Vec<u8>> =
        pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect();
    bytes.filter(|_| odd.is_empty())?.try_into().ok()
}

/// The joiner's answer to an offer. A donor that leaves nothing out needs none, and ignores it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// The joiner's choice.
    pub(crate) delta: DeltaWish,
}

impl Answer {
    /// Encodes the answer; without a wish for a delta it is empty, as that of earlier joiners.
    pub(crate) fn write(wish: DeltaWish) -> Vec<u8> {
        match wish {
            DeltaWish::No => Vec::new(),
            delta => serde_json::to_vec(&Self { delta }).unwrap_or_default(),
        }
    }

    /// Reads the wish in an answer. What is no answer has none.
    pub(crate) fn read(bytes: &[u8]) -> DeltaWish {
        serde_json::from_slice::<Self>(bytes).map_or(DeltaWish::No, |answer| answer.delta)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_and_keys_read_back() {
        assert_eq!(Answer::write(DeltaWish::Auto), br#"{"delta":"auto"}"#);
        for wish in [DeltaWish::Auto, DeltaWish::Yes, DeltaWish::No] {
            assert_eq!(Answer::read(&Answer::write(wish)), wish);
            assert_eq!(wish.to_string().parse(), Ok(wish));
        }
        for other in [&b""[..], b"{}", b"delta", br#"{"delta":"maybe"}"#, &[0xff; 40]] {
            assert_eq!(Answer::read(other), DeltaWish::No);
        }
        // A later joiner may say more.
        assert_eq!(Answer::read(br#"{"delta":"yes","more":1}"#), DeltaWish::Yes);
        let key = std::array::from_fn(|n| u8::try_from(n * 9 % 256).unwrap());
        assert_eq!(read_key(&write_key(&key)), Some(key));
        for other in
            ["", "00", &"g0".repeat(32), &"00".repeat(33), &"0".repeat(63), &"A0".repeat(32)]
        {
            assert_eq!(read_key(other), None, "{other}");
        }
    }
}
