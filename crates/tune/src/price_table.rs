//! Prices of stores: facts of one date, each with the provider's page.
//!
//! They are list prices in US dollars without taxes, discounts and free allowances, of the first tier
//! of volume, in one region. They were looked up in published copies of these pages on the date given;
//! whoever relies on them compares them with the page first. Nothing else in the program knows a price.

use crate::prices::{PriceFacts, Prices};

/// Prices that are built in.
pub const PRICE_TABLE: [PriceFacts; 3] = [
    PriceFacts {
        id: "aws",
        service: "AWS S3 Standard, US East (N. Virginia)",
        as_of: "2026-11-23",
        source: "https://aws.amazon.com/s3/pricing/",
        prices: Prices { put: 0.005, list: 0.005, get: 0.0004, storage: 0.023, egress: 0.09 },
    },
    PriceFacts {
        id: "gcs",
        service: "Google Cloud Storage Standard, us-east1",
        as_of: "2026-11-23",
        source: "https://cloud.google.com/storage/pricing",
        prices: Prices { put: 0.005, list: 0.005, get: 0.0004, storage: 0.020, egress: 0.12 },
    },
    PriceFacts {
        id: "azure",
        service: "Azure Blob Storage Hot LRS, East US",
        as_of: "2026-11-23",
        source: "https://azure.microsoft.com/pricing/details/storage/blobs/",
        // The page gives requests by 10,000.
        prices: Prices { put: 0.0055, list: 0.0055, get: 0.00044, storage: 0.018, egress: 0.087 },
    },
];
