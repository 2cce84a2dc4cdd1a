//! Lines for the server's error log, each written as a whole.

use std::io::Write as _;

use jiff::Timestamp;
use xb_sst::{ErrorLog, Level, Product};

/// Returns a log in the format of this product's servers; `None`: the product is not known yet.
pub(crate) fn error_log(product: Option<Product>) -> ErrorLog {
    ErrorLog::new(move |level, text| {
        let line = match product {
            // Percona's server reads the level from the beginning of the line and adds the time.
            Some(Product::Percona) => {
                let mark = match level {
                    Level::Info => "INF",
                    Level::Warning => "WRN",
                    Level::Error => "ERR",
                };
                format!("{mark}:{text}\n")
            }
            _ => {
                let mark = match level {
                    Level::Info => "INFO",
                    Level::Warning => "WARNING",
                    Level::Error => "ERROR",
                };
                let time = Timestamp::now().strftime("%Y%m%d %H:%M:%S%.3f");
                format!("WSREP_SST: [{mark}] {text} ({time})\n")
            }
        };
        // There is no other place to report an error.
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
    })
}
