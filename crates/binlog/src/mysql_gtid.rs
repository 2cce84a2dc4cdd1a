//! GTIDs of MySQL: one transaction, and sets of them.
//!
//! A GTID is `UUID:NUMBER`, or `UUID:TAG:NUMBER` from MySQL 8.3 on. Each UUID, and each tag of it,
//! counts from 1. A set holds intervals of numbers: `UUID:1-5:7:TAG:1-2,UUID:3`; a tag applies to the
//! intervals after it. ("GTID Format and Storage", MySQL Reference Manual)

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use crate::fields::Fields;
use crate::gtid_error::GtidError;
use crate::intervals::Intervals;

/// Numbers are below this one, which the server reserves as the end of an interval.
const MAX_NUMBER: u64 = i64::MAX as u64;
/// Length limit of a tag, in bytes.
const MAX_TAG: usize = 32;

/// UUID of a server, or another one that a GTID names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, byte) in self.0.iter().enumerate() {
            let dash = if matches!(n, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

impl FromStr for Uuid {
    type Err = GtidError;

    /// Parses 32 hexadecimal digits of any case, with the four usual dashes or without any.
    fn from_str(text: &str) -> Result<Self, GtidError> {
        let parsed = (|| {
            let digits = match text.len() {
                32 => text.to_owned(),
                36 => {
                    let dashes = [8, 13, 18, 23].map(|at| text.as_bytes().get(at));
                    dashes.iter().all(|byte| *byte == Some(&b'-')).then(|| text.replace('-', ""))?
                }
                _ => return None,
            };
            let is_hex = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            let number = is_hex.then(|| u128::from_str_radix(&digits, 16).ok())??;
            Some(Self(number.to_be_bytes()))
        })();
        parsed.ok_or_else(|| GtidError::mysql(text))
    }
}

/// Tag of a GTID: a letter or `_`, then up to 31 letters, digits and `_`. Kept in lower case.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag(String);

impl Tag {
    /// Returns the tag as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Tag {
    type Err = GtidError;

    fn from_str(text: &str) -> Result<Self, GtidError> {
        let begins = text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
        let fits = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        match begins && fits && text.len() <= MAX_TAG {
            true => Ok(Self(text.to_ascii_lowercase())),
            false => Err(GtidError::mysql(text)),
        }
    }
}

/// A sequence of numbers: each UUID, and each tag of it, counts its transactions from 1.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GtidSource {
    /// UUID, most often of the server that first committed the transaction.
    pub uuid: Uuid,
    /// Tag, if there is one.
    pub tag: Option<Tag>,
}

impl fmt::Display for GtidSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.tag {
            None => write!(f, "{}", self.uuid),
            Some(tag) => write!(f, "{}:{tag}", self.uuid),
        }
    }
}

/// Identity of one transaction of MySQL.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MySqlGtid {
    /// The sequence that the number belongs to.
    pub source: GtidSource,
    /// Number of the transaction, from 1.
    pub number: u64,
}

impl fmt::Display for MySqlGtid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.source, self.number)
    }
}

impl FromStr for MySqlGtid {
    type Err = GtidError;

    /// Parses `UUID:NUMBER` or `UUID:TAG:NUMBER`.
    fn from_str(text: &str) -> Result<Self, GtidError> {
        let set: GtidSet = text.parse()?;
        let mut all = set.0.into_iter();
        match (all.next(), all.next()) {
            (Some((source, numbers)), None) => match numbers.ranges() {
                [range] if range.end - range.start == 1 => Ok(Self { source, number: range.start }),
                _ => Err(GtidError::mysql(text)),
            },
            _ => Err(GtidError::mysql(text)),
        }
    }
}

/// A set of transactions of MySQL, as in `gtid_executed`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct GtidSet(BTreeMap<GtidSource, Intervals>);

impl GtidSet {
    /// Returns whether the set has no transaction.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether a transaction is in the set.
    #[must_use]
    pub fn contains(&self, gtid: &MySqlGtid) -> bool {
        self.0.get(&gtid.source).is_some_and(|numbers| numbers.contains(gtid.number))
    }

    /// Returns the highest number of a source.
    #[must_use]
    pub fn last(&self, source: &GtidSource) -> Option<u64> {
        Some(self.0.get(source)?.ranges().last()?.end - 1)
    }

    /// Adds a transaction.
    pub fn insert(&mut self, gtid: MySqlGtid) {
        self.0.entry(gtid.source).or_default().insert(gtid.number);
    }

    /// Adds all transactions of another set.
    pub fn unite(&mut self, other: &Self) {
        for (source, numbers) in &other.0 {
            self.0.entry(source.clone()).or_default().unite(numbers);
        }
    }

    /// Returns the transactions that are in this set and not in `other`.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let left = self.0.iter().map(|(source, numbers)| {
            let left = match other.0.get(source) {
                Some(others) => numbers.without(others),
                None => numbers.clone(),
            };
            (source.clone(), left)
        });
        Self(left.filter(|(_, numbers)| !numbers.is_empty()).collect())
    }

    /// Returns whether every transaction of this set is in `other`.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.without(other).is_empty()
    }

    /// Returns all sources, each with its intervals of numbers, the end exclusive.
    pub fn iter(&self) -> impl Iterator<Item = (&GtidSource, &[Range<u64>])> {
        self.0.iter().map(|(source, numbers)| (source, numbers.ranges()))
    }

    /// Decodes the body of a Previous_gtids event. `None` if it is malformed.
    ///
    /// The number of sources has eight bytes. If the highest is 1, so is the lowest, the six between
    /// them are the number, and each source has a tag, which may be empty. Each interval is its first
    /// number and the one after its last. (MySQL Source Code Documentation,
    /// `mysql::gtid`; seen in `fixtures/binlog/mysql.000002`)
    pub(crate) fn decode(body: &[u8]) -> Option<Self> {
        let mut fields = Fields::new(body);
        let [low, middle @ .., high] = fields.array::<8>()?;
        let number =
            u64::from_le_bytes([low, 0, 0, 0, 0, 0, 0, 0]) | Fields::new(&middle).uint(6)? << 8;
        let (is_tagged, sources) = match high {
            0 => (false, number),
            1 if low == 1 => (true, number >> 8),
            _ => return None,
        };
        let mut found = IntervalCollector::default();
        for _ in 0..sources {
            let uuid = Uuid(fields.array()?);
            let tag = match is_tagged {
                true => fields.string()?,
                false => &[],
            };
            let tag = match tag {
                [] => None,
                tag => Some(std::str::from_utf8(tag).ok()?.parse().ok()?),
            };
            let source = GtidSource { uuid, tag };
            for _ in 0..fields.u64()? {
                found.add(source.clone(), fields.u64()?..fields.u64()?)?;
            }
        }
        fields.rest().is_empty().then(|| found.into_set())
    }
}

/// Intervals in any order, to be united once.
#[derive(Default)]
struct IntervalCollector(BTreeMap<GtidSource, Vec<Range<u64>>>);

impl IntervalCollector {
    fn add(&mut self, source: GtidSource, range: Range<u64>) -> Option<()> {
        let is_valid = range.start >= 1 && !range.is_empty() && range.end <= MAX_NUMBER;
        is_valid.then(|| self.0.entry(source).or_default().push(range))
    }

    fn into_set(self) -> GtidSet {
        GtidSet(self.0.into_iter().map(|(source, all)| (source, Intervals::of(all))).collect())
    }
}

impl fmt::Display for GtidSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut uuid = None;
        for (source, numbers) in &self.0 {
            if uuid != Some(source.uuid) {
                let comma = if uuid.is_some() { "," } else { "" };
                write!(f, "{comma}{}", source.uuid)?;
                uuid = Some(source.uuid);
            }
            if let Some(tag) = &source.tag {
                write!(f, ":{tag}")?;
            }
            for Range { start, end } in numbers.ranges() {
                match end - start {
                    1 => write!(f, ":{start}")?,
                    _ => write!(f, ":{start}-{}", end - 1)?,
                }
            }
        }
        Ok(())
    }
}

impl FromStr for GtidSet {
    type Err = GtidError;

    /// Parses a set as the server prints it; white space around commas and colons is allowed.
    fn from_str(text: &str) -> Result<Self, GtidError> {
        let mut found = IntervalCollector::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let mut words = part.split(':').map(str::trim);
            let uuid = words.next().unwrap_or_default().parse()?;
            let mut source = GtidSource { uuid, tag: None };
            let mut has_numbers = false;
            for word in words {
                if word.starts_with(|first: char| first.is_ascii_digit()) {
                    let added = interval(word).and_then(|range| found.add(source.clone(), range));
                    added.ok_or_else(|| GtidError::mysql(part))?;
                    has_numbers = true;
                } else {
                    // The first tag may follow the UUID at once.
                    if !has_numbers && source.tag.is_some() {
                        return Err(GtidError::mysql(part));
                    }
                    source.tag = Some(word.parse().map_err(|_| GtidError::mysql(part))?);
                    has_numbers = false;
                }
            }
            if !has_numbers {
                return Err(GtidError::mysql(part));
            }
        }
        Ok(found.into_set())
    }
}

/// Parses `NUMBER` or `FIRST-LAST`.
fn interval(word: &str) -> Option<Range<u64>> {
    let number = |text: &str| {
        let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
        is_digits.then(|| text.parse::<u64>().ok()).flatten()
    };
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    Some(number(first.trim())?..number(last.trim())?.checked_add(1)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "11111111-2222-3333-4444-555555555555";
    const B: &str = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee";

    fn set(text: &str) -> GtidSet {
        text.parse().unwrap()
    }

    #[test]
    fn sets_are_parsed_and_printed_as_the_server_does() {
        for (text, printed) in [
            (String::new(), String::new()),
            (
                format!("{A}:1-23:audit:1-2,\n{B}:7:a_tag:9"),
                format!("{A}:1-23:audit:1-2,{B}:7:a_tag:9"),
            ),
            (format!(" {B}:5 , {A} : 3 - 4 : 1-2 "), format!("{A}:1-4,{B}:5")),
            (format!("{A}:1-3,{A}:5,{A}:4"), format!("{A}:1-5")),
            (format!("{A}:b:2:a:1:1"), format!("{A}:a:1:b:2")),
            (format!("{A}:AUDIT:1"), format!("{A}:audit:1")),
            (B.replace('-', "").to_uppercase() + ":1", format!("{B}:1")),
            (format!("{A}:9223372036854775806"), format!("{A}:9223372036854775806")),
        ] {
            assert_eq!(set(&text).to_string(), printed, "{text}");
            assert_eq!(set(&printed), set(&text));
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for bad in [
            "1",
            "0-1-5",
            A,
            &format!("{A}:"),
            &format!("{A}:0"),
            &format!("{A}:2-1"),
            &format!("{A}:1-2-3"),
            &format!("{A}:tag"),
            &format!("{A}:1:tag"),
            &format!("{A}:one:two:1"),
            &format!("{A}:1a"),
            &format!("{A}:-1"),
            &format!("{A}:9223372036854775807"),
            &format!("{A}:18446744073709551616"),
            &format!("{A}:tag-:1"),
            &format!("{A}:{}:1", "t".repeat(33)),
            &format!("{A}0:1"),
            "11111111222-2-3333-4444-555555555555:1",
            "ä1111111-2222-3333-4444-55555555555:1",
        ] {
            assert!(bad.parse::<GtidSet>().is_err(), "{bad}");
        }
        for bad in ["", &format!("{A}:1-2"), &format!("{A}:1,{B}:1"), &format!("{A}:1:t:1")] {
            assert!(bad.parse::<MySqlGtid>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_tag_has_numbers_of_its_own() {
        let all = set(&format!("{A}:1-5:t:3"));
        let gtid = |text: &str| text.parse::<MySqlGtid>().unwrap();
        assert!(all.contains(&gtid(&format!("{A}:5"))) && !all.contains(&gtid(&format!("{A}:6"))));
        assert!(
            all.contains(&gtid(&format!("{A}:t:3"))) && !all.contains(&gtid(&format!("{A}:t:1")))
        );
        assert_eq!(gtid(&format!("{A}:t:3")).to_string(), format!("{A}:t:3"));
        assert!(set(&format!("{A}:t:3")).is_subset(&all));
        assert!(!set(&format!("{A}:u:3")).is_subset(&all));
        assert_eq!(all.without(&set(&format!("{A}:2-3"))), set(&format!("{A}:1:4-5:t:3")));
    }

    #[test]
    fn a_set_of_an_event_is_decoded_within_its_bytes() {
        let mut untagged = vec![1, 0, 0, 0, 0, 0, 0, 0];
        untagged.extend([0x11; 16]);
        untagged.extend([2_u64, 1, 6, 7, 8].map(u64::to_le_bytes).concat());
        let uuid = "11111111-1111-1111-1111-111111111111";
        assert_eq!(GtidSet::decode(&untagged), Some(set(&format!("{uuid}:1-5:7"))));
        let mut tagged = vec![1, 1, 0, 0, 0, 0, 0, 1];
        tagged.extend([0x11; 16]);
        tagged.extend([2, b't']);
        tagged.extend([1_u64, 3, 5].map(u64::to_le_bytes).concat());
        assert_eq!(GtidSet::decode(&tagged), Some(set(&format!("{uuid}:t:3-4"))));
        for whole in [untagged, tagged] {
            for len in 0..whole.len() {
                assert_eq!(GtidSet::decode(&whole[..len]), None, "{len}");
            }
            assert_eq!(GtidSet::decode(&[&whole[..], &[0]].concat()), None);
            // A count that no event can hold.
            let mut more = whole.clone();
            more[6] = 0xff;
            assert_eq!(GtidSet::decode(&more), None);
            // An empty interval, at the end of both.
            let mut empty = whole;
            let at = empty.len() - 8;
            empty[at] = 1;
            assert_eq!(GtidSet::decode(&empty), None);
        }
    }
}
