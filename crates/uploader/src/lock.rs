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

/// Whether the answer to "GetObjectLockConfiguration" is one, and says yes. A store that does not know
/// the question answers with something else, such as a listing; to such a one a lock is no lock, but the
/// new content of the object.
fn says_enabled(answer: &[u8]) -> bool {
    let answer = String::from_utf8_lossy(answer);
    let inside = |name: &str| {
        let (_, rest) = answer.split_once(&format!("<{name}"))?;
        rest.split_once('>')?.1.split_once(&format!("</{name}>")).map(|(inside, _)| inside)
    };
    inside("ObjectLockConfiguration").is_some()
        && inside("ObjectLockEnabled").is_some_and(|said| said.trim() == "Enabled")
}

impl Store {
    /// Finds out whether objects can be locked here. To be asked before [`Store::lock`], always: a store
    /// that knows no locks may take one for the content of an object.
    ///
    /// # Errors
    /// [`StoreErrorKind::Rejected`] when they cannot, [`StoreErrorKind::Denied`] when that may not be asked;
    /// others after all retries.
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
            Ok(answer) if says_enabled(&answer) => Ok(()),
            Ok(_) => no(NO_LOCKS),
            Err(error) if error.kind == StoreErrorKind::NotFound => no(NO_LOCKS),
            Err(error) if error.kind == StoreErrorKind::Denied => Err(error.with_hint(Some(
                "the keys need the right s3:GetBucketObjectLockConfiguration".into(),
            ))),
            Err(error) => Err(error),
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
    fn only_a_plain_yes_is_one() {
        let yes = r#"<?xml version="1.0"?><ObjectLockConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><ObjectLockEnabled>Enabled</ObjectLockEnabled></ObjectLockConfiguration>"#;
        assert!(says_enabled(yes.as_bytes()));
        let listing =
            "<ListBucketResult><Contents><Key>Enabled</Key></Contents></ListBucketResult>";
        let bare = "<ObjectLockConfiguration></ObjectLockConfiguration>";
        for no in [
            "",
            listing,
            bare,
            &yes.replace(">Enabled<", ">Disabled<"),
            "<ObjectLockEnabled>Enabled",
        ] {
            assert!(!says_enabled(no.as_bytes()), "{no}");
        }
    }

    #[test]
    fn a_lock_is_written_as_s3_reads_it() {
        let until = "2027-01-31T23:59:58.7Z".parse().unwrap();
        let lock = Lock { mode: LockMode::Compliance, until };
        let xml = lock.xml();
        assert!(xml.contains("<Mode>COMPLIANCE</Mode>"), "{xml}");
        assert!(xml.contains("<RetainUntilDate>2027-01-31T23:59:58Z</RetainUntilDate>"), "{xml}");
    }
}
