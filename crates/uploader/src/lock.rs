//! Objects that nobody can remove before their time: S3's object lock.
//!
//! The store crate has no headers for it. So an object is locked by a request of its own once it is there
//! ("PutObjectRetention"), which also serves for objects that the store copied or that were there before.

use std::fmt;

use bytes::Bytes;
use http::Method;
use jiff::Timestamp;

use crate::direct::Direct;
use crate::encode::percent;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::Store;

/// Who may take a lock away before its time ("S3 Object Lock", retention modes).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockMode {
    /// Who has a right of its own for that (`s3:BypassGovernanceRetention`).
    Governance,
    /// Nobody.
    Compliance,
}

impl fmt::Display for LockMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Governance => "GOVERNANCE",
            Self::Compliance => "COMPLIANCE",
        })
    }
}

/// How long an object is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lock {
    /// Who may take it away.
    pub mode: LockMode,
    /// Until when, UTC; whole seconds count.
    pub until: Timestamp,
}

impl Lock {
    /// The body of the request ("PutObjectRetention", request syntax).
    fn xml(&self) -> String {
        let until = self.until.strftime("%Y-%m-%dT%H:%M:%SZ");
        let mode = self.mode;
        format!(
            r#"<Retention xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Mode>{mode}</Mode><RetainUntilDate>{until}</RetainUntilDate></Retention>"#
        )
    }
}

const NO_LOCKS: &str = "objects in this bucket cannot be locked";
const HINT: &str = "S3's object lock is switched on for a bucket, mostly when it is made; a retention policy of the bucket itself needs no option";

impl Store {
    /// Finds out whether objects can be locked here, as far as that may be asked.
    ///
    /// # Errors
    /// [`StoreErrorKind::Rejected`] when they cannot.
    pub async fn can_lock(&self) -> Result<(), StoreError> {
        let no = |message: &str| {
            let error = StoreError::new("lock", "", StoreErrorKind::Rejected, message);
            Err(error.with_hint(Some(HINT.into())))
        };
        let Direct::S3 { .. } = &self.nature.direct else {
            return no("only S3 stores lock single objects");
        };
        let direct = &self.nature.direct;
        let asked = self
            .retrying("lock", "", || direct.call(Method::GET, "?object-lock=", Bytes::new()))
            .await;
        match asked {
            Err(error) if error.kind == StoreErrorKind::NotFound => no(NO_LOCKS),
            Err(error) if error.kind == StoreErrorKind::Unavailable => Err(error),
            // Who may not ask, or asks a store that does not say, finds out with the first object.
            _ => Ok(()),
        }
    }

    /// Locks an object that is there. One that is locked already can be locked for longer.
    ///
    /// # Errors
    /// [`StoreErrorKind::Rejected`] or [`StoreErrorKind::Denied`] where objects cannot be locked or a lock
    /// would be shortened; others after all retries.
    pub async fn lock(&self, key: &str, lock: &Lock) -> Result<(), StoreError> {
        let path: Vec<String> = key.split('/').map(percent).collect();
        let what = format!("/{}?retention=", path.join("/"));
        let body = Bytes::from(lock.xml());
        let direct = &self.nature.direct;
        let outcome =
            self.retrying("lock", key, || direct.call(Method::PUT, &what, body.clone())).await;
        outcome.map(drop).map_err(|error| match error.kind {
            StoreErrorKind::Rejected => error.with_hint(Some(HINT.into())),
            _ => error,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_written_as_s3_reads_it() {
        let until = "2027-01-31T23:59:58.7Z".parse().unwrap();
        let lock = Lock { mode: LockMode::Compliance, until };
        let xml = lock.xml();
        assert!(xml.contains("<Mode>COMPLIANCE</Mode>"), "{xml}");
        assert!(xml.contains("<RetainUntilDate>2027-01-31T23:59:58Z</RetainUntilDate>"), "{xml}");
    }
}
