//! Record of the transactions in each replication domain of MariaDB, or of each source of MySQL, in the head of a segment:
//! by it, another server is recognised that has them, too.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use xb_binlog::{DomainStretch, Stretch};

use crate::hex::{hex, unhex};

/// Transactions of one domain, or of one source, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainContent {
    /// GTID of the last of them, which names the domain or source.
    pub last: String,
    /// Their number.
    pub transactions: u64,
    /// SHA-256 of what they do ([`Stretch`]).
    pub content: String,
    /// Number of them in each format that occurs.
    pub forms: BTreeMap<String, u64>,
}

impl DomainContent {
    /// Makes the record of a stretch.
    #[must_use]
    pub fn all(stretch: &Stretch) -> Vec<Self> {
        let domains = stretch.domains().map(|(_, found)| Self {
            last: found.last.to_string(),
            transactions: found.transactions,
            content: hex(&found.content),
            forms: found.forms().map(|(name, number)| (name.to_owned(), number)).collect(),
        });
        domains.collect()
    }

    /// The stretch of which a head says this; `None` if it contradicts itself, or a later version wrote it.
    #[must_use]
    pub fn stretch(all: &[Self]) -> Option<Stretch> {
        let domains: Option<Vec<DomainStretch>> = all.iter().map(Self::parse).collect();
        Stretch::of(domains?)
    }

    fn parse(&self) -> Option<DomainStretch> {
        let forms = self.forms.iter().map(|(name, number)| (name.as_str(), *number));
        DomainStretch::new(self.last.parse().ok()?, self.transactions, unhex(&self.content)?, forms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(last: &str, forms: &[(&str, u64)]) -> DomainContent {
        DomainContent {
            last: last.to_owned(),
            transactions: 3,
            content: "ab".repeat(32),
            forms: forms.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect(),
        }
    }

    #[test]
    fn the_record_in_a_head_reads_back() {
        let all = [
            one("0-1-9", &[("rows", 2), ("statements_and_partial_rows", 1)]),
            one("3-1-2", &[("nothing", 3)]),
            one("11111111-2222-3333-4444-555555555555:9", &[("rows", 3)]),
            one("11111111-2222-3333-4444-555555555555:tag:2", &[("statements", 3)]),
        ];
        let stretch = DomainContent::stretch(&all).unwrap();
        assert_eq!(DomainContent::all(&stretch), all);
        assert_eq!(DomainContent::stretch(&[]), Some(Stretch::default()));
    }

    #[test]
    fn a_contradiction_is_no_stretch() {
        let fine = one("0-1-9", &[("rows", 3)]);
        assert!(DomainContent::stretch(std::slice::from_ref(&fine)).is_some());
        for wrong in [
            one("0-1-9", &[("rows", 2)]),
            one("0-1-9", &[("rows", 3), ("statements", u64::MAX)]),
            one("0-1-9", &[("of a later version", 3)]),
            one("0-1", &[("rows", 3)]),
            DomainContent { content: "ab".to_owned(), ..fine.clone() },
            DomainContent { transactions: 0, forms: BTreeMap::new(), ..fine.clone() },
        ] {
            assert_eq!(DomainContent::stretch(std::slice::from_ref(&wrong)), None, "{wrong:?}");
        }
        // One domain twice.
        assert_eq!(DomainContent::stretch(&[fine, one("0-2-9", &[("rows", 3)])]), None);
    }
}
