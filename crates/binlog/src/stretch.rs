//! Stretches of a history, by domain of MariaDB or source of MySQL, which tell whether another server has the same transactions.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use crate::any_gtid::{AnyGtid, GtidSequence};
use crate::change_format::ChangeFormat;
use crate::content::Content;
use crate::position::GtidState;

/// Transactions that follow one another within each domain, or of each source. Their order between domains is no part of
/// it: two servers write it differently.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stretch(BTreeMap<GtidSequence, DomainStretch>);

/// Transactions of one domain of MariaDB, or of one source of MySQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainStretch {
    /// How many they are.
    pub transactions: u64,
    /// SHA-256 of what they do, in their order.
    pub content: [u8; 32],
    /// The last of them.
    pub last: AnyGtid,
    /// How many are written in each form.
    forms: [u64; ChangeFormat::COUNT],
}

/// Result of a comparison of two stretches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// They are the same.
    Same,
    /// They cannot be compared: one has rows, or all columns of rows, where the other has not.
    AnotherForm,
    /// They are not the same.
    Branch,
}

impl Stretch {
    /// Returns the stretch of these domains; `None` if two are the same.
    #[must_use]
    pub fn of(domains: impl IntoIterator<Item = DomainStretch>) -> Option<Self> {
        let mut found = BTreeMap::new();
        for domain in domains {
            if found.insert(domain.last.sequence(), domain).is_some() {
                return None;
            }
        }
        Some(Self(found))
    }

    /// Adds the next transaction of its domain.
    pub fn add(&mut self, next: &Content) {
        let domain = self.0.entry(next.gtid.sequence()).or_insert_with(|| DomainStretch {
            transactions: 0,
            content: [0; 32],
            last: next.gtid.clone(),
            forms: [0; ChangeFormat::COUNT],
        });
        domain.transactions += 1;
        domain.content =
            Sha256::new().chain_update(domain.content).chain_update(next.digest).finalize().into();
        domain.last.clone_from(&next.gtid);
        if let Some(number) = domain.forms.get_mut(next.form.index()) {
            *number += 1;
        }
    }

    /// Returns the domains, or sources, in their order.
    pub fn domains(&self) -> impl Iterator<Item = (&GtidSequence, &DomainStretch)> {
        self.0.iter()
    }

    /// Returns the transactions of a domain, if there are any.
    #[must_use]
    pub fn get(&self, domain: &GtidSequence) -> Option<&DomainStretch> {
        self.0.get(domain)
    }

    /// Compares two stretches that begin behind the same transactions. A branch in any domain is a branch.
    #[must_use]
    pub fn compare(&self, other: &Self) -> Comparison {
        let mut result = Comparison::Same;
        for domain in self.0.keys().chain(other.0.keys()) {
            match self.compare_in(domain, other) {
                Comparison::Branch => return Comparison::Branch,
                other if result == Comparison::Same => result = other,
                _ => {}
            }
        }
        result
    }

    /// Compares the transactions of one domain.
    #[must_use]
    pub fn compare_in(&self, domain: &GtidSequence, other: &Self) -> Comparison {
        match (self.get(domain), other.get(domain)) {
            (one, two) if one == two => Comparison::Same,
            (Some(one), Some(two)) if one.is_in_another_form(two) => Comparison::AnotherForm,
            _ => Comparison::Branch,
        }
    }
}

impl DomainStretch {
    /// Returns what is known of transactions: the last of them, how many they are, what they do, and how many are
    /// written in each form, by its name. `None` if there are none, a form is unknown, or the numbers do not add up.
    #[must_use]
    pub fn new<'a>(
        last: AnyGtid,
        transactions: u64,
        content: [u8; 32],
        forms: impl IntoIterator<Item = (&'a str, u64)>,
    ) -> Option<Self> {
        let (mut counted, mut sum) = ([0; ChangeFormat::COUNT], 0_u64);
        for (name, number) in forms {
            let form = ChangeFormat::NAMES.iter().position(|known| *known == Some(name))?;
            let count = counted.get_mut(form).filter(|count| **count == 0)?;
            *count = number;
            sum = sum.checked_add(number)?;
        }
        (transactions > 0 && sum == transactions).then_some(Self {
            transactions,
            content,
            last,
            forms: counted,
        })
    }

    /// How many transactions are written in each form that occurs, by its name.
    pub fn forms(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let named = ChangeFormat::NAMES.into_iter().zip(self.forms);
        named.filter(|(_, number)| *number > 0).filter_map(|(name, number)| Some((name?, number)))
    }

    /// Returns whether each has transactions in a form in which the other has fewer. One that only lacks some is no other form.
    fn is_in_another_form(&self, other: &Self) -> bool {
        let mut pairs = self.forms.iter().zip(&other.forms);
        let has_more = pairs.clone().any(|(one, two)| one > two);
        has_more && pairs.any(|(one, two)| one < two)
    }
}

/// Finds a stretch of an archive again in the logs of another server.
#[derive(Debug, Clone)]
pub struct Overlap {
    before: GtidState,
    expected: Stretch,
    found: Stretch,
}

/// Place of a transaction of the other server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StretchPlace {
    /// Before the stretch, or in a domain that had ended before it.
    Before,
    /// Within the stretch.
    Within,
    /// Behind it: the first that is not stored, or one that follows it.
    Behind,
}

impl Overlap {
    /// Begins with the transactions before a stretch, and the stretch.
    #[must_use]
    pub fn new(before: GtidState, expected: Stretch) -> Self {
        Self { before, expected, found: Stretch::default() }
    }

    /// Where the next transaction of the server lies, by its domain alone.
    #[must_use]
    pub fn place(&self, gtid: &AnyGtid) -> StretchPlace {
        let sequence = gtid.sequence();
        let found = self.found.get(&sequence);
        if found.is_none() && self.before.contains(gtid) {
            return StretchPlace::Before;
        }
        match self.expected.get(&sequence) {
            None => StretchPlace::Behind,
            Some(expected) if found.is_some_and(|found| found.last == expected.last) => {
                StretchPlace::Behind
            }
            // One that is not stored, and what is stored does not come before it.
            Some(_) => StretchPlace::Within,
        }
    }

    /// Takes the next transaction of the server, in the order of its logs.
    pub fn push(&mut self, next: &Content) -> StretchPlace {
        let place = self.place(&next.gtid);
        if place == StretchPlace::Within {
            self.found.add(next);
        }
        place
    }

    /// Returns whether every domain of the stretch has ended, or cannot be found any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.expected.domains().all(|(domain, expected)| {
            self.found.get(domain).is_some_and(|found| {
                found.last.number() >= expected.last.number()
                    || found.transactions > expected.transactions
            })
        })
    }

    /// The transactions before the stretch.
    #[must_use]
    pub fn before(&self) -> &GtidState {
        &self.before
    }

    /// The stretch.
    #[must_use]
    pub fn expected(&self) -> &Stretch {
        &self.expected
    }

    /// Compares what was found in one domain with the stretch.
    #[must_use]
    pub fn compare_in(&self, domain: &GtidSequence) -> Comparison {
        self.expected.compare_in(domain, &self.found)
    }

    /// Compares what was found with the stretch. If it is not [over](Self::is_over), the server lacks some of it.
    #[must_use]
    pub fn compare(&self) -> Comparison {
        self.expected.compare(&self.found)
    }
}
