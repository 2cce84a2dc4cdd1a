//! The donor's offer, which the joiner reads before the first byte of data, and the joiner's answer.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::contract::args::Product;
use crate::contract::position::{Position, StateId};
use crate::contract::settings::DeltaWish;
use crate::delta::question::Key;

/// Version of the offer; a joiner accepts only its own.
pub(crate) const FORMAT: u32 = 1;
/// Longest offer, in bytes.
pub(crate) const MAX: usize = 16 << 10;

/// Description of what the donor will send, and of its server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Version of the offer; a joiner accepts only its own.
    pub format: u32,
    /// The transfer that follows the offer.
    pub what: TransferKind,
    /// The donor's position, `UUID:SEQNO`.
    pub state: String,
    /// The donor's GTID domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<u32>,
    /// `mariadb` or `percona`: the product of the backup program that makes the data.
    #[serde(rename = "family")]
    pub product: String,
    /// Version of the donor's server, if the donor knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Whether the donor's server knows names in lower case only. Earlier donors do not state it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lower_case_names: Option<bool>,
    /// Key of the hashes with which the donor asks what the joiner has: 64 lower-case hex digits. Earlier donors do not
    /// ask.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "hex_key")]
    pub delta: Option<Key>,
    /// Program and version of the donor.
    pub program: String,
}

/// Transfer that follows an offer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TransferKind {
    /// Nothing: the joiner gets write sets.
    Ist,
    /// A backup.
    Full {
        /// Approximate size of its files in bytes.
        bytes: u64,
        /// Approximate space that they take on the donor's disk, in bytes.
        disk: u64,
        /// Codec of the frames, for the log.
        compress: String,
        /// Files that a joiner may keep elsewhere. Earlier donors do not state them.
        #[serde(default, skip_serializing_if = "Places::is_empty")]
        places: Places,
    },
}

/// Space on the donor's disk, in bytes, of files that a joiner may keep outside its data directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Places {
    /// Files without a directory above them in the backup, such as `ibdata1`, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, u64>,
    /// Tablespaces outside the donor's data directory, by their directory.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub dirs: BTreeMap<String, u64>,
    /// The redo log, of which a part is sent. It does not count in the size of the data.
    #[serde(default)]
    pub redo: u64,
    /// What the redo log had since the last checkpoint when the donor looked: the least that is sent of it. Earlier donors do
    /// not state it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_checkpoint: Option<u64>,
}

impl Places {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A key in an offer. What is no key counts as none.
mod hex_key {
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    use super::Key;

    pub(super) fn serialize<S: Serializer>(key: &Option<Key>, to: S) -> Result<S::Ok, S::Error> {
        let text = |key: &Key| key.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        key.as_ref().map(text).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Key>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        Ok(text.and_then(|text| read(&text)))
    }

    pub(super) fn read(text: &str) -> Option<Key> {
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

/// Reason why an offer is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OfferError {
    /// The offer cannot be parsed.
    #[error("cannot read the donor's offer")]
    Damaged,
    /// The offer has another version.
    #[error(
        "the donor's offer has format {theirs}, but this program needs {FORMAT}: install the same version on both nodes"
    )]
    Format {
        /// The donor's version.
        theirs: u32,
    },
    /// The data is of the other product.
    #[error("the donor's server belongs to the {theirs} family, this node's to {ours}")]
    Product {
        /// The donor's product.
        theirs: String,
        /// The joiner's product.
        ours: &'static str,
    },
    /// The donor's server is later than the joiner's, which could not read its data.
    #[error(
        "the donor's server has version {theirs}, but this node only {ours}: upgrade this node first, or choose another donor"
    )]
    Later {
        /// The donor's version.
        theirs: String,
        /// The joiner's version.
        ours: String,
    },
}

/// Returns the product's name in an offer.
#[must_use]
pub(crate) fn product_name(product: Product) -> &'static str {
    match product {
        Product::MariaDb => "mariadb",
        Product::Percona => "percona",
    }
}

impl Offer {
    /// Encodes the offer. Names that make it too long are left out.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let encoded = serde_json::to_vec(self).unwrap_or_default();
        match &self.what {
            TransferKind::Full { bytes, disk, compress, places } if encoded.len() > MAX => {
                let Places { redo, since_checkpoint, .. } = *places;
                let places = Places { redo, since_checkpoint, ..Places::default() };
                let (bytes, disk, compress) = (*bytes, *disk, compress.clone());
                let what = TransferKind::Full { bytes, disk, compress, places };
                serde_json::to_vec(&Self { what, ..self.clone() }).unwrap_or_default()
            }
            _ => encoded,
        }
    }

    /// Parses an offer and checks that this node can accept it. `server` is the version of this
    /// node's server, if known.
    ///
    /// # Errors
    /// [`OfferError`].
    pub fn read(bytes: &[u8], product: Product, server: Option<&str>) -> Result<Self, OfferError> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        if bytes.len() > MAX {
            return Err(OfferError::Damaged);
        }
        // A later format may share no other field.
        let Format { format } = serde_json::from_slice(bytes).map_err(|_| OfferError::Damaged)?;
        if format != FORMAT {
            return Err(OfferError::Format { theirs: format });
        }
        let offer: Self = serde_json::from_slice(bytes).map_err(|_| OfferError::Damaged)?;
        offer.position().ok_or(OfferError::Damaged)?;
        let ours = product_name(product);
        if offer.product != ours {
            return Err(OfferError::Product { theirs: offer.product, ours });
        }
        let numbers = |version: &str| {
            let mut numbers = version.split(['.', '-']).map_while(|n| n.parse::<u32>().ok());
            Some((numbers.next()?, numbers.next()?))
        };
        if let (Some(theirs), Some(ours)) = (&offer.server, server)
            && let (Some(later), Some(own)) = (numbers(theirs), numbers(ours))
            && later > own
        {
            return Err(OfferError::Later { theirs: theirs.clone(), ours: ours.to_owned() });
        }
        Ok(offer)
    }

    /// Returns the donor's position.
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        let state: StateId = self.state.parse().ok()?;
        Some(Position { state, domain: self.domain })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn full(places: Places) -> TransferKind {
        TransferKind::Full { bytes: 7, disk: 8, compress: "zstd:1".into(), places }
    }

    fn offer() -> Offer {
        Offer {
            format: FORMAT,
            what: full(Places { redo: 9, since_checkpoint: Some(5), ..Places::default() }),
            state: "9c9a4c3b-2b3c-11f0-8d3f-7b1b1f0f0a11:42".into(),
            domain: Some(3),
            product: "mariadb".into(),
            server: Some("10.11.19-MariaDB".into()),
            lower_case_names: Some(true),
            delta: None,
            program: "xbrs 0.1.0".into(),
        }
    }

    #[test]
    fn an_offer_reads_back_where_it_fits() {
        let offer = offer();
        let bytes = offer.encode();
        assert_eq!(Offer::read(&bytes, Product::MariaDb, Some("10.11.4")), Ok(offer.clone()));
        assert_eq!(Offer::read(&bytes, Product::MariaDb, Some("11.4")), Ok(offer));
        let error = Offer::read(&bytes, Product::MariaDb, Some("10.6.1")).unwrap_err();
        assert!(matches!(error, OfferError::Later { .. }));
        let error = Offer::read(&bytes, Product::Percona, None).unwrap_err();
        assert!(matches!(error, OfferError::Product { .. }));
    }

    /// As an earlier joiner ignores what this donor states more.
    #[test]
    fn what_a_later_donor_states_more_is_no_obstacle() {
        let text = br#"{"format":1,"what":{"full":{"bytes":7,"disk":8,"compress":"zstd:1","places":{"redo":9,"more":1},"more":1}},"state":"9c9a4c3b-2b3c-11f0-8d3f-7b1b1f0f0a11:42","family":"mariadb","program":"xbrs 0.1.0","more":{}}"#;
        let read = Offer::read(text, Product::MariaDb, None).unwrap();
        assert_eq!(read.what, full(Places { redo: 9, ..Places::default() }));
    }

    #[test]
    fn an_earlier_donor_states_no_places_and_an_earlier_joiner_needs_none() {
        let text = br#"{"format":1,"what":{"full":{"bytes":7,"disk":8,"compress":"zstd:1"}},"state":"9c9a4c3b-2b3c-11f0-8d3f-7b1b1f0f0a11:42","family":"mariadb","program":"xbrs 0.1.0"}"#;
        let read = Offer::read(text, Product::MariaDb, None).unwrap();
        assert_eq!(read.what, full(Places::default()));
        assert_eq!(read.encode(), text);
    }

    #[test]
    fn names_that_make_an_offer_too_long_are_left_out() {
        let many = (0..500).map(|n| (format!("/a/directory/with/a/long/name/{n}"), n)).collect();
        let places = Places { dirs: many, redo: 9, since_checkpoint: Some(5), ..Places::default() };
        let long = Offer { what: full(places), ..offer() };
        let read = Offer::read(&long.encode(), Product::MariaDb, None);
        assert_eq!(read, Ok(offer()));
    }

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
        let with_key = Offer { delta: Some(key), ..offer() };
        let bytes = with_key.encode();
        let digits: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        let text = String::from_utf8(bytes.clone()).unwrap();
        assert!(text.contains(&format!(r#","delta":"{digits}","#)), "{text}");
        assert_eq!(Offer::read(&bytes, Product::MariaDb, None), Ok(with_key));
        for other in
            ["", "00", &"g0".repeat(32), &"00".repeat(33), &"0".repeat(63), &"A0".repeat(32)]
        {
            assert_eq!(hex_key::read(other), None, "{other}");
            let text = text.replace(&digits, other);
            assert_eq!(Offer::read(text.as_bytes(), Product::MariaDb, None), Ok(offer()));
        }
    }

    #[test]
    fn other_formats_are_named() {
        let error =
            Offer::read(br#"{"format": 2, "new": []}"#, Product::MariaDb, None).unwrap_err();
        assert_eq!(error, OfferError::Format { theirs: 2 });
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..80), at in 0_usize..200, byte: u8) {
            let _ = Offer::read(&bytes, Product::MariaDb, None);
            let mut changed = offer().encode();
            let at = at % changed.len();
            changed[at] = byte;
            let _ = Offer::read(&changed, Product::MariaDb, Some("10.11"));
        }
    }
}
