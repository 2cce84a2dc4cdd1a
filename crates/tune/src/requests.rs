//! Numbers of requests by the kinds that stores bill.

use std::ops::{Add, Mul};

use serde::Serialize;

/// Requests by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Requests {
    /// Writes and copies, with begin, parts and completion of an upload.
    pub put: u64,
    /// Listings.
    pub list: u64,
    /// Reads.
    pub get: u64,
}

impl Requests {
    /// So many writes.
    #[must_use]
    pub fn puts(put: u64) -> Self {
        Self { put, ..Self::default() }
    }

    /// So many listings.
    #[must_use]
    pub fn lists(list: u64) -> Self {
        Self { list, ..Self::default() }
    }

    /// So many reads.
    #[must_use]
    pub fn gets(get: u64) -> Self {
        Self { get, ..Self::default() }
    }

    /// Requests of all kinds.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.put + self.list + self.get
    }
}

impl Add for Requests {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { put: self.put + other.put, list: self.list + other.list, get: self.get + other.get }
    }
}

impl Mul<u64> for Requests {
    type Output = Self;

    fn mul(self, times: u64) -> Self {
        Self { put: self.put * times, list: self.list * times, get: self.get * times }
    }
}
