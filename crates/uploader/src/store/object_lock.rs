//! Object lock of S3: objects that cannot be removed before a given time.
//!
//! The `object_store` crate has no headers for it. An object is therefore locked by a separate
//! request after it exists ("PutObjectRetention"), which also works for objects that the store
//! copied or that existed before.

use std::fmt;

use bytes::Bytes;
use http::Method;
use jiff::Timestamp;

use crate::error::{StoreError, StoreErrorKind};
use crate::operation::Operation;
use crate::request::encode::percent;
use crate::request::raw_request::Direct;
use crate::store::Store;

/// Rule for removing an object lock early ("S3 Object Lock", retention modes).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockMode {
    /// Removable with the permission `s3:BypassGovernanceRetention`.
    Governance,
    /// Not removable.
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

/// Mode and end of an object lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lock {
    /// Rule for removing the lock early.
    pub mode: LockMode,
    /// End of the lock, UTC, in whole seconds.
    pub until: Timestamp,
}

impl Lock {
    /// Returns the request body ("PutObjectRetention", request syntax).
    fn xml(&self) -> String {
        let until = self.until.strftime("%Y-%m-%dT%H:%M:%SZ");
        let mode = self.mode;
        format!(
            r#"<Retention xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Mode>{mode}</Mode><RetainUntilDate>{until}</RetainUntilDate></Retention>"#
        )
    }
}

const NO_LOCKS: &str = "this bucket does not support object lock";
const HINT: &str = "enable object lock for the bucket, usually when you create it; a retention policy of the bucket itself needs no option";

/// Returns whether a response to "GetObjectLockConfiguration" is valid and reports object lock as
/// enabled. A store that does not know the request returns something else, such as a listing; such
/// a store would take a lock request as new content of the object.
fn says_enabled(answer: &[u8]) -> bool {
    let answer = String::from_utf8_lossy(answer);
    inside(&answer, "ObjectLockConfiguration").is_some()
        && inside(&answer, "ObjectLockEnabled").is_some_and(|said| said.trim() == "Enabled")
}

/// Whether a response to "GetObjectRetention" shows a lock that is at least as strict as `lock`.
fn says_locked(answer: &[u8], lock: &Lock) -> bool {
    let answer = String::from_utf8_lossy(answer);
    let mode = inside(&answer, "Mode").map(str::trim);
    let until = inside(&answer, "RetainUntilDate").and_then(|until| until.trim().parse().ok());
    let strict = [lock.mode, LockMode::Compliance].map(|mode| mode.to_string());
    mode.is_some_and(|mode| strict.iter().any(|strict| strict == mode))
        && until.is_some_and(|until: Timestamp| until.as_second() >= lock.until.as_second())
}

/// The lock that a response to "GetObjectRetention" shows.
fn lock_in(answer: &[u8]) -> Option<Lock> {
    let answer = String::from_utf8_lossy(answer);
    let mode = match inside(&answer, "Mode")?.trim() {
        "GOVERNANCE" => LockMode::Governance,
        "COMPLIANCE" => LockMode::Compliance,
        _ => return None,
    };
    Some(Lock { mode, until: inside(&answer, "RetainUntilDate")?.trim().parse().ok()? })
}

/// Content of the first element of this name.
fn inside<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = answer.split_once(&format!("<{name}"))?;
    rest.split_once('>')?.1.split_once(&format!("</{name}>")).map(|(inside, _)| inside)
}

impl Store {
    /// Checks that objects can be locked here. Always call this before [`Store::lock`]: a store
    /// without object lock may take the lock request as new content of the object.
    ///
    /// # Errors
    /// [`StoreErrorKind::Rejected`] if objects cannot be locked, [`StoreErrorKind::Denied`] if the
    /// check is not permitted; other kinds after all retries.
    pub async fn can_lock(&self) -> Result<(), StoreError> {
        let no = |message: &str| {
            let error =
                StoreError::new(Operation::ObjectLock, "", StoreErrorKind::Rejected, message);
            Err(error.with_hint(Some(HINT.into())))
        };
        let Direct::S3 { .. } = &self.nature.direct else {
            return no("only S3 stores can lock single objects");
        };
        let direct = &self.nature.direct;
        let asked = self
            .retrying(Operation::ObjectLock, "", || {
                direct.call(Method::GET, "?object-lock=", Bytes::new())
            })
            .await;
        match asked {
            Ok(answer) if says_enabled(&answer) => Ok(()),
            Ok(_) => no(NO_LOCKS),
            Err(error) if error.kind == StoreErrorKind::NotFound => no(NO_LOCKS),
            Err(error) if error.kind == StoreErrorKind::Denied => Err(error.with_hint(Some(
                "grant s3:GetBucketObjectLockConfiguration to the access key".into(),
            ))),
            Err(error) => Err(error),
        }
    }

    /// Like [`Store::lock`], for an object that may be locked already: a longer or stricter lock stays.
    ///
    /// # Errors
    /// As [`Store::lock`].
    pub async fn lock_at_least(&self, key: &str, lock: &Lock) -> Result<(), StoreError> {
        let path: Vec<String> = key.split('/').map(percent).collect();
        let what = format!("/{}?retention=", path.join("/"));
        let direct = &self.nature.direct;
        let asked = self
            .retrying(Operation::Get, key, || direct.call(Method::GET, &what, Bytes::new()))
            .await;
        let mut wanted = *lock;
        // If it cannot be read, the store refuses to make it weaker.
        if let Ok(answer) = asked {
            if says_locked(&answer, lock) {
                return Ok(());
            }
            if let Some(found) = lock_in(&answer) {
                wanted.until = wanted.until.max(found.until);
                if found.mode == LockMode::Compliance {
                    wanted.mode = found.mode;
                }
            }
        }
        self.lock(key, &wanted).await
    }

    /// Locks an existing object, and reads the lock back. Locking a locked object again can only
    /// extend its lock.
    ///
    /// # Errors
    /// [`StoreErrorKind::Rejected`] or [`StoreErrorKind::Denied`] if objects cannot be locked, the
    /// lock would become shorter or was not kept; other kinds after all retries.
    pub async fn lock(&self, key: &str, lock: &Lock) -> Result<(), StoreError> {
        let path: Vec<String> = key.split('/').map(percent).collect();
        let what = format!("/{}?retention=", path.join("/"));
        let body = Bytes::from(lock.xml());
        let direct = &self.nature.direct;
        let outcome = self
            .retrying(Operation::Lock, key, || direct.call(Method::PUT, &what, body.clone()))
            .await;
        outcome.map_err(|error| match error.kind {
            StoreErrorKind::Rejected => error.with_hint(Some(HINT.into())),
            _ => error,
        })?;
        for _ in 0..2 {
            let asked = self
                .retrying(Operation::Get, key, || direct.call(Method::GET, &what, Bytes::new()))
                .await;
            match asked {
                Ok(answer) if says_locked(&answer, lock) => return Ok(()),
                Err(error) if error.kind == StoreErrorKind::Denied => {
                    return Err(error.with_hint(Some(
                        "grant s3:GetObjectRetention to the access key: a lock is read back".into(),
                    )));
                }
                // A single answer may be altered in transit.
                Ok(_) => {}
                Err(error) if error.kind == StoreErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        let message = "the store acknowledged the lock, but the object is not locked so";
        Err(StoreError::new(Operation::Lock, key, StoreErrorKind::Rejected, message)
            .with_hint(Some(HINT.into())))
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
        let reads = |xml: &str| says_locked(xml.as_bytes(), &lock);
        assert!(reads(&xml) && reads(&xml.replace(":58Z", ":59.000Z")));
        assert_eq!(lock_in(xml.as_bytes()), Some(lock));
        assert_eq!(lock_in(xml.replace("COMPLIANCE", "OTHER").as_bytes()), None);
        for weaker in [
            xml.replace("2027-01-31", "2027-01-30"),
            xml.replace("COMPLIANCE", "GOVERNANCE"),
            xml.replace("Retention", "Error").replace("Mode", "Code"),
            String::new(),
        ] {
            assert!(!reads(&weaker), "{weaker}");
        }
    }
}
