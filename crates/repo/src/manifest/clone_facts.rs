//! Facts about a clone of a MySQL server, from the file that ends its stream.

use std::fmt;

use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use xb_pipeline::{CLONE_INFO, EndProof, Scanned};

use crate::manifest::source_info::SourceInfo;
use crate::manifest::tables::Tables;

/// The version of a stored clone that we know.
const FORMAT: u32 = 1;
/// Length limit of a set of GTIDs, in bytes.
const MAX_GTIDS: usize = 64 << 10;
/// Number of empty tables whose names are kept.
const NAMES: usize = 10;
/// Length limit of such a name, in bytes.
const MAX_NAME: usize = 1024;

/// Facts about a clone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloneFacts {
    /// Version of the server.
    pub version: String,
    /// Bytes of a page of most of its tables.
    pub page_size: u32,
    /// Whether its files or its redo log may have a key in clear. Absent from clones of earlier versions, of which that is
    /// unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has_keys: Option<bool>,
    /// Transactions that are surely in the data. Absent if there are none, or the set has more than 64 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gtids_from: Option<String>,
    /// Transactions of which no other is in the data. Which of them are, only a server that starts on the
    /// data can tell. Absent as `gtids_from`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gtids_to: Option<String>,
    /// Tables that come back empty, because they have another engine than InnoDB: as `schema.table (engine)`.
    /// More than a stream's last file names in its first MiB are not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub empty_tables: Option<Tables>,
}

impl CloneFacts {
    /// Reads the facts of a stream; `None` if it is no clone.
    ///
    /// # Errors
    /// Why its last file cannot be read.
    pub fn of(scanned: &Scanned) -> Result<Option<Self>, String> {
        match scanned.described.get(CLONE_INFO) {
            Some(head) => Self::read(head).map(Some),
            None if matches!(&scanned.proof, EndProof::LastFile(name) if name == CLONE_INFO) => {
                Err(format!("{CLONE_INFO} is encrypted, or damaged"))
            }
            None => Ok(None),
        }
    }

    /// Reads the beginning of the file: it may end within a list, which is not kept to its end.
    fn read(head: &[u8]) -> Result<Self, String> {
        let mut found = ReadFacts::default();
        let read = found.deserialize(&mut serde_json::Deserializer::from_slice(head));
        let ReadFacts { format, facts } = found;
        match (format, read) {
            (Some(FORMAT), Ok(())) => {}
            (Some(FORMAT), Err(error)) if error.is_eof() => {}
            (Some(format), _) if format > FORMAT => {
                return Err(format!(
                    "{CLONE_INFO} has format {format}, but this program reads only up to {FORMAT}: install a newer version"
                ));
            }
            (_, Err(error)) => return Err(format!("{CLONE_INFO} cannot be read: {error}")),
            _ => return Err(format!("{CLONE_INFO} states no format")),
        }
        match facts.version.is_empty() || facts.page_size == 0 {
            true => Err(format!("{CLONE_INFO} states no version of the server, or no page size")),
            false => Ok(facts),
        }
    }

    /// The facts that backups of all kinds have.
    #[must_use]
    pub fn source(&self) -> SourceInfo {
        SourceInfo {
            tool_name: Some("MySQL clone".to_owned()),
            tool_version: Some(self.version.clone()),
            server_version: Some(self.version.clone()),
            ..SourceInfo::default()
        }
    }
}

/// `MySQL 9.7.4 clone`.
impl fmt::Display for CloneFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MySQL {} clone", self.version)
    }
}

/// Facts read up to the end of the file, or of the part of it that is kept.
#[derive(Default)]
struct ReadFacts {
    format: Option<u32>,
    facts: CloneFacts,
}

impl<'de> DeserializeSeed<'de> for &mut ReadFacts {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &mut ReadFacts {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a description of a clone")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let gtids = |text: String| Some(text).filter(|t| !t.is_empty() && t.len() <= MAX_GTIDS);
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "format" => self.format = Some(map.next_value()?),
                "version" => {
                    self.facts.version = map.next_value()?;
                    if self.facts.version.len() > MAX_NAME {
                        return Err(A::Error::custom("the version is too long"));
                    }
                }
                "page_size" => self.facts.page_size = map.next_value()?,
                "has_keys" => self.facts.has_keys = map.next_value()?,
                "gtids_from" => self.facts.gtids_from = gtids(map.next_value()?),
                "gtids_to" => self.facts.gtids_to = gtids(map.next_value()?),
                "empty_tables" => map.next_value_seed(Names(&mut self.facts.empty_tables))?,
                _ => drop(map.next_value::<serde::de::IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// Reads a list of names, and keeps their number and the first of them.
struct Names<'a>(&'a mut Option<Tables>);

impl<'de> DeserializeSeed<'de> for Names<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Names<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of names")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut names: A) -> Result<(), A::Error> {
        while let Some(name) = names.next_element::<String>()? {
            let all = self.0.get_or_insert(Tables { tables: 0, first: Vec::new() });
            all.tables += 1;
            if all.first.len() < NAMES && name.len() <= MAX_NAME {
                all.first.push(name);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = r#"{"format": 1, "version": "9.7.4-2", "page_size": 16384, "protocol": 259, "has_keys": true, "patches": 7,
 "gtids_from": "a:1-5", "gtids_to": "a:1-7", "settings": {"a": "b"}, "plugins": [["a", ""]],
 "empty_tables": ["#;

    fn read(text: &str) -> Result<CloneFacts, String> {
        CloneFacts::read(text.as_bytes())
    }

    #[test]
    fn the_beginning_of_the_file_tells_everything() {
        let names: Vec<_> = (0..12).map(|n| format!("\"shop.t{n} (MyISAM)\"")).collect();
        let whole = format!("{HEAD}{}], \"files\": [], \"redo\": []}}", names.join(","));
        let facts = read(&whole).unwrap();
        assert_eq!(facts.to_string(), "MySQL 9.7.4-2 clone");
        assert_eq!((facts.page_size, facts.has_keys), (16384, Some(true)));
        assert_eq!(
            (facts.gtids_from.as_deref(), facts.gtids_to.as_deref()),
            (Some("a:1-5"), Some("a:1-7"))
        );
        let empty = facts.empty_tables.clone().unwrap();
        assert_eq!((empty.tables, empty.first.len()), (12, 10));
        assert_eq!(empty.first[1], "shop.t1 (MyISAM)");
        // Cut in the list of files, it says the same; in that of the tables, it names fewer.
        assert_eq!(read(&whole[..whole.len() - 13]).unwrap(), facts);
        let cut = whole.find("t9 (").unwrap();
        assert_eq!(read(&whole[..cut]).unwrap().empty_tables.unwrap().tables, 9);
        assert_eq!(facts.source().server_version.as_deref(), Some("9.7.4-2"));
    }

    #[test]
    fn a_server_without_gtids_has_no_bounds_and_a_long_set_is_left_out() {
        let long = "a".repeat(MAX_GTIDS + 1);
        for set in ["", &long] {
            let facts = read(&HEAD.replace("a:1-5", set)).unwrap();
            assert_eq!((facts.gtids_from, facts.gtids_to.as_deref()), (None, Some("a:1-7")));
        }
    }

    #[test]
    fn a_malformed_description_is_refused() {
        for (bad, why) in [
            ("", "cannot be read"),
            ("[]", "cannot be read"),
            ("{}", "no format"),
            (r#"{"format": 1}"#, "no version"),
            (r#"{"format": 1, "version": 9}"#, "cannot be read"),
            (r#"{"format": 1, "version": "9", "page_size": 1, x"#, "cannot be read"),
            (r#"{"format": 2, "version": [9]}"#, "newer version"),
        ] {
            let error = read(bad).unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }
}
