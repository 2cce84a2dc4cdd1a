//! Lines for the server's error log, each written in one go.

use std::io::Write as _;

use jiff::Timestamp;
use xb_sst::{ErrorLog, Family, Level};

/// The way of talking that a server of this family understands; `None`: nobody knows yet whose it is.
pub(crate) fn voice(family: Option<Family>) -> ErrorLog {
    ErrorLog::new(move |level, text| {
        let line = match family {
            // Its server reads the level from the front and adds the time.
            Some(Family::Percona) => {
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
        // There is nowhere else to complain.
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
    })
}
