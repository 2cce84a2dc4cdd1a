//! Prices of requests, storage and egress.

use serde::Serialize;

use crate::requests::Requests;

/// Bytes of the unit in which stores bill storage and egress.
const GIB: f64 = (1_u64 << 30) as f64;

/// Prices of a store in US dollars. Deleting is free in all stores of the table.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Prices {
    /// 1,000 requests that write or copy, parts included.
    pub put: f64,
    /// 1,000 listings.
    pub list: f64,
    /// 1,000 requests that read.
    pub get: f64,
    /// One GiB stored for a month.
    pub storage: f64,
    /// One GiB read from outside the provider's network.
    pub egress: f64,
}

/// Prices of a service, with their date and source.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PriceFacts {
    /// Short name, for the command line.
    pub id: &'static str,
    /// Service, storage class and region.
    pub service: &'static str,
    /// Day on which the prices were looked up.
    pub as_of: &'static str,
    /// The provider's page of prices.
    pub source: &'static str,
    /// The prices.
    pub prices: Prices,
}

/// Cost of a backup in US dollars.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cost {
    /// Requests of the backup. Uploads are free.
    pub backup: f64,
    /// Requests of a verification that reads every byte, or of a restore.
    pub verify: f64,
    /// Egress of the same, if it runs outside the provider's network.
    pub verify_egress: f64,
    /// Requests of a copy within the store.
    pub copy: f64,
    /// Storage for one month.
    pub storage_month: f64,
}

impl Prices {
    /// Price of `requests`.
    #[must_use]
    pub(crate) fn of_requests(&self, requests: Requests) -> f64 {
        let Requests { put, list, get } = requests;
        (put as f64 * self.put + list as f64 * self.list + get as f64 * self.get) / 1000.0
    }

    /// Price of storing `bytes` for a month.
    #[must_use]
    pub(crate) fn of_storage(&self, bytes: u64) -> f64 {
        bytes as f64 / GIB * self.storage
    }

    /// Price of reading `bytes` from outside the provider's network.
    #[must_use]
    pub(crate) fn of_egress(&self, bytes: u64) -> f64 {
        bytes as f64 / GIB * self.egress
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::price_table::PRICE_TABLE;

    #[test]
    fn the_providers_own_example_adds_up() {
        // https://cloud.google.com/storage/pricing-examples: 50 GB stored, 10,000 operations of
        // class A, 50,000 of class B and 1 GB of egress are 1.00, 0.05, 0.02 and 0.12.
        let prices = PRICE_TABLE.iter().find(|facts| facts.id == "gcs").unwrap().prices;
        let cents = |dollars: f64| (dollars * 100.0).round();
        assert_eq!(cents(prices.of_storage(50 << 30)), 100.0);
        assert_eq!(cents(prices.of_requests(Requests { put: 9000, list: 1000, get: 0 })), 5.0);
        assert_eq!(cents(prices.of_requests(Requests { put: 0, list: 0, get: 50_000 })), 2.0);
        assert_eq!(cents(prices.of_egress(1 << 30)), 12.0);
    }

    #[test]
    fn every_entry_has_a_date_and_a_page() {
        for facts in PRICE_TABLE {
            assert!(facts.as_of.parse::<jiff::civil::Date>().is_ok(), "{facts:?}");
            assert!(facts.source.starts_with("https://"), "{facts:?}");
            let Prices { put, list, get, storage, egress } = facts.prices;
            for price in [put, list, get, storage, egress] {
                assert!(price > 0.0 && price < 1.0, "{facts:?}");
            }
        }
    }
}
