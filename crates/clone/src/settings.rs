//! Settings of a clone.

use std::time::Duration;

use xb_mysql::clone::Ddl;
use xb_process::CancelToken;

/// Settings of a clone.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Settings {
    /// Time for which the server waits for DDL that runs when the clone begins.
    pub ddl_timeout: Duration,
    /// Whether DDL runs while the clone is taken, instead of waiting for its end.
    pub allow_ddl: bool,
    /// Time limit for the server's next message. After that, the connection is taken for broken.
    pub silence: Duration,
    /// Time limit for the server's host to answer the system's probes. After that, the connection is broken.
    pub absence: Duration,
    /// Time between a broken connection, or a failed try, and the next try to continue.
    pub retry: Duration,
    /// Whether what is written will be sealed. An instance with anything encrypted is refused otherwise, because
    /// a clone has the keys in clear.
    pub is_sealed: bool,
    /// Whether tables of other engines than InnoDB may come back empty.
    pub allow_empty_tables: bool,
    /// Bytes that the server may write to its redo log from the beginning of the page stage on. It keeps all of
    /// them for the clone, on its own disk.
    pub max_donor_redo: u64,
    /// Time between two looks at that.
    pub look: Duration,
    /// Ends the clone from another thread.
    pub cancel: CancelToken<()>,
}

impl Settings {
    pub(crate) fn ddl(&self) -> Ddl {
        if self.allow_ddl { Ddl::Runs } else { Ddl::Waits(self.ddl_timeout) }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            ddl_timeout: Duration::from_secs(300),
            allow_ddl: false,
            silence: Duration::from_secs(600),
            absence: Duration::from_secs(60),
            retry: Duration::from_secs(1),
            is_sealed: false,
            allow_empty_tables: false,
            max_donor_redo: u64::MAX,
            look: Duration::from_secs(5),
            cancel: CancelToken::new(),
        }
    }
}
