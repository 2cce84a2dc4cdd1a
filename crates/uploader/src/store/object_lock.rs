//! Object lock of S3: objects that cannot be removed before a given time.
//!
//! The `object_store` crate has no headers for it. An object is therefore locked by a separate
//! request after it exists ("PutObjectRetention"), which also works for objects that the store
//! copied or that existed before.

use std::fmt;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method};
use jiff::Timestamp;

use crate::error::{StoreError, StoreErrorKind};
use crate::operation::Operation;
use crate::request::encode::percent;
use crate::request::raw_request::RawApi;
use crate::service::Service;
use crate::store::Store;

/// Rule for removing an object lock early ("S3 Object Lock", retention modes).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
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
    /// Returns whether an object with this lock is locked at least as `wanted` asks for.
    fn covers(&self, wanted: &Self) -> bool {
        (self.mode == wanted.mode || self.mode == LockMode::Compliance)
            && self.until.as_second() >= wanted.until.as_second()
    }

    /// Returns the request body ("PutObjectRetention", request syntax).
    fn xml(&self) -> String {
        let until = self.until.strftime("%Y-%m-%dT%H:%M:%SZ");
        let mode = self.mode;
        format!(
            r#"<Retention xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Mode>{mode}</Mode><RetainUntilDate>{until}</RetainUntilDate></Retention>"#
        )
    }
}

const MODE: HeaderName = HeaderName::from_static("x-amz-object-lock-mode");
const UNTIL: HeaderName = HeaderName::from_static("x-amz-object-lock-retain-until-date");
const NO_LOCKS: &str = "this bucket does not support object lock";
const OF_OTHERS: &str = "leave --retain out; Google locks by a retention policy of the bucket, Azure by an immutability policy of the container, and both need no option";
const HINT: &str = "enable object lock for the bucket, usually when you create it; a retention policy of the bucket itself needs no option";

/// Returns whether a response to "GetObjectLockConfiguration" is valid and reports object lock as
/// enabled. A store that does not know the request returns something else, such as a listing; such
/// a store would take a lock request as new content of the object.
fn says_enabled(answer: &[u8]) -> bool {
    let answer = String::from_utf8_lossy(answer);
    inside(&answer, "ObjectLockConfiguration").is_some()
        && inside(&answer, "ObjectLockEnabled").is_some_and(|said| said.trim() == "Enabled")
}

/// The lock that a response to "GetObjectRetention" shows.
fn stated(answer: &[u8]) -> Option<Lock> {
    let answer = String::from_utf8_lossy(answer);
    read(inside(&answer, "Mode")?, inside(&answer, "RetainUntilDate")?)
}

fn read(mode: &str, until: &str) -> Option<Lock> {
    let known = [LockMode::Governance, LockMode::Compliance];
    let mode = known.into_iter().find(|known| known.to_string() == mode.trim())?;
    Some(Lock { mode, until: until.trim().parse().ok()? })
}

/// Hint for an object that another lock holds already, which a request could not change.
fn held_otherwise(there: &Lock) -> String {
    let Lock { mode, until } = there;
    let held = format!(
        "the object is locked in mode {mode} until {until} already, by a default retention of the bucket or by an earlier command"
    );
    match mode {
        LockMode::Compliance => {
            format!("{held}: give --retain-mode=compliance, and a time that does not end earlier")
        }
        LockMode::Governance => format!(
            "{held}: give --retain-mode=governance, or change the default retention of the bucket"
        ),
    }
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
        if self.service() != Service::S3 {
            let what = "only S3 stores can lock single objects";
            let error = StoreError::new(Operation::ObjectLock, "", StoreErrorKind::Rejected, what);
            return Err(error.with_hint(Some(OF_OTHERS.into())));
        }
        let raw_api = &self.traits.raw_api;
        let asked = self
            .retrying(Operation::ObjectLock, "", || {
                raw_api.call(Method::GET, "?object-lock=", Bytes::new())
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

    /// Reads the lock of an object; `None` if it has none, or the store has no such locks.
    ///
    /// # Errors
    /// [`StoreErrorKind::Denied`] if that is not permitted; other kinds after all retries.
    pub async fn lock_of(&self, key: &str) -> Result<Option<Lock>, StoreError> {
        let raw_api = &self.traits.raw_api;
        let RawApi::S3 { .. } = raw_api else { return Ok(None) };
        let path: Vec<String> = key.split('/').map(percent).collect();
        let what = format!("/{}?retention=", path.join("/"));
        let asked = self
            .retrying(Operation::Get, key, || raw_api.call(Method::GET, &what, Bytes::new()))
            .await;
        match asked {
            Ok(answer) => Ok(stated(&answer)),
            Err(error)
                if matches!(error.kind, StoreErrorKind::NotFound | StoreErrorKind::Rejected) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The lock of an object, if both ways to ask for it agree. A false answer could leave the object unlocked, or lock it
    /// for years.
    async fn agreed_lock_of(&self, key: &str) -> Result<Option<Lock>, StoreError> {
        let Some(found) = self.lock_of(key).await? else { return Ok(None) };
        Ok(self.shown_lock_of(key).await?.filter(|shown| *shown == found))
    }

    /// The lock of an object as its headers state it.
    async fn shown_lock_of(&self, key: &str) -> Result<Option<Lock>, StoreError> {
        let raw_api = &self.traits.raw_api;
        let path: Vec<String> = key.split('/').map(percent).collect();
        let what = format!("/{}", path.join("/"));
        let head = || raw_api.exchange(Method::HEAD, &what, Bytes::new(), HeaderMap::new());
        let (headers, _) = self.retrying(Operation::Get, key, head).await?;
        let text = |name: HeaderName| headers.get(name)?.to_str().ok();
        Ok(text(MODE).zip(text(UNTIL)).and_then(|(mode, until)| read(mode, until)))
    }

    /// Like [`Store::lock`], for an object that may be locked already: a longer or stricter lock stays.
    ///
    /// The store decides whether there is one: it refuses to make a lock weaker.
    ///
    /// # Errors
    /// As [`Store::lock`].
    pub async fn lock_at_least(&self, key: &str, lock: &Lock) -> Result<(), StoreError> {
        let Err(error) = self.lock(key, lock).await else { return Ok(()) };
        if !matches!(error.kind, StoreErrorKind::Rejected | StoreErrorKind::Denied) {
            return Err(error);
        }
        match self.agreed_lock_of(key).await.ok().flatten() {
            // Stricter, but not as long.
            Some(found) if found.mode == LockMode::Compliance && found.mode != lock.mode => {
                self.lock(key, &Lock { mode: found.mode, ..*lock }).await
            }
            // Longer, but not as strict.
            Some(found) if found.until > lock.until && found.mode != lock.mode => {
                self.lock(key, &Lock { until: found.until, ..*lock }).await
            }
            _ => Err(error),
        }
    }

    /// Locks an existing object, and reads the lock back. Locking a locked object again can only
    /// extend its lock; an object that the bucket's default retention has locked as strictly is
    /// locked.
    ///
    /// # Errors
    /// [`StoreErrorKind::Rejected`] or [`StoreErrorKind::Denied`] if objects cannot be locked, the
    /// lock would become shorter or was not kept; other kinds after all retries.
    pub async fn lock(&self, key: &str, lock: &Lock) -> Result<(), StoreError> {
        let path: Vec<String> = key.split('/').map(percent).collect();
        let what = format!("/{}?retention=", path.join("/"));
        let body = Bytes::from(lock.xml());
        let raw_api = &self.traits.raw_api;
        let outcome = self
            .retrying(Operation::Lock, key, || raw_api.call(Method::PUT, &what, body.clone()))
            .await;
        if let Err(error) = outcome {
            if !matches!(error.kind, StoreErrorKind::Rejected | StoreErrorKind::Denied) {
                return Err(error);
            }
            return match self.agreed_lock_of(key).await.ok().flatten() {
                Some(there) if there.covers(lock) => Ok(()),
                Some(there) => Err(error.with_hint(Some(held_otherwise(&there).into()))),
                None if error.kind == StoreErrorKind::Rejected => {
                    Err(error.with_hint(Some(HINT.into())))
                }
                None => Err(error),
            };
        }
        let mut last = None;
        for _ in 0..2 {
            let asked = self
                .retrying(Operation::Get, key, || raw_api.call(Method::GET, &what, Bytes::new()))
                .await;
            match asked {
                Ok(answer) if stated(&answer).is_some_and(|there| there.covers(lock)) => {
                    return Ok(());
                }
                Err(error) if error.kind == StoreErrorKind::Denied => {
                    return Err(error.with_hint(Some(
                        "grant s3:GetObjectRetention to the access key: a lock is read back".into(),
                    )));
                }
                // A single answer may be altered in transit.
                Ok(answer) => last = stated(&answer),
                Err(error) if error.kind == StoreErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        let hint = last.map_or(HINT.into(), |there| held_otherwise(&there).into());
        let message = "the store acknowledged the lock, but the object does not have it";
        Err(StoreError::new(Operation::Lock, key, StoreErrorKind::Rejected, message)
            .with_hint(Some(hint)))
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
        let reads = |xml: &str| stated(xml.as_bytes()).is_some_and(|there| there.covers(&lock));
        assert!(reads(&xml) && reads(&xml.replace(":58Z", ":59.000Z")));
        assert_eq!(stated(xml.replace("COMPLIANCE", "OTHER").as_bytes()), None);
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
