//! Removal of objects.

use std::collections::BTreeSet;

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use http::{HeaderMap, HeaderValue, Method, header};
use object_store::{Error, ObjectStoreExt as _, PutMode, UpdateVersion};
use serde::Deserialize;

use crate::error::{StoreError, StoreErrorKind};
use crate::failed_try::{FORBIDDEN, TRANSIENT};
use crate::operation::Operation;
use crate::request::encode::percent;
use crate::request::raw_request::{RawApi, failed};
use crate::store::{Store, path_of};

impl Store {
    /// Deletes one object. A missing object counts as success.
    ///
    /// # Errors
    /// Any error, after all retries.
    pub async fn delete(&self, key: &str) -> Result<(), StoreError> {
        let path = path_of(Operation::Delete, key)?;
        if matches!(self.traits.raw_api, RawApi::S3 { bulk: true, .. }) {
            // The client sends this request for one object, too, and repeats it whatever code the object has.
            return self.delete_in_one(key, &[key.to_owned()], None).await;
        }
        let once = || async {
            match &self.traits.raw_api {
                // The client sends a batch even for one object, and takes nearly any answer to it for success.
                raw_api @ RawApi::Azure { .. } => {
                    raw_api.call(Method::DELETE, &in_container(key), Bytes::new()).await.map(drop)
                }
                _ => self.objects.delete(&path).await,
            }
        };
        match self.retrying(Operation::Delete, key, once).await {
            Err(error) if error.kind == StoreErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// As [`Store::delete`], on condition that the object still is as it was read, in stores that have such a condition:
    /// `as_read` is a [`PutMode::Update`] then.
    ///
    /// # Errors
    /// [`StoreErrorKind::AlreadyExists`] if the store says that it is another one by now; any other error, after all
    /// retries.
    pub(crate) async fn delete_unchanged(
        &self,
        key: &str,
        as_read: &PutMode,
    ) -> Result<(), StoreError> {
        let PutMode::Update(UpdateVersion { e_tag: Some(tag), .. }) = as_read else {
            return self.delete(key).await;
        };
        match &self.traits.raw_api {
            RawApi::S3 { bulk: true, .. } => {
                self.delete_in_one(key, &[key.to_owned()], Some(tag)).await
            }
            raw_api @ RawApi::Azure { .. } => {
                let outcome = self.retrying(Operation::Delete, key, || async {
                    let condition = HeaderValue::from_str(tag).map_err(failed)?;
                    let headers = HeaderMap::from_iter([(header::IF_MATCH, condition)]);
                    let target = in_container(key);
                    raw_api.exchange(Method::DELETE, &target, Bytes::new(), headers).await.map(drop)
                });
                match outcome.await {
                    Err(error) if error.kind == StoreErrorKind::NotFound => Ok(()),
                    other => other,
                }
            }
            _ => self.delete(key).await,
        }
    }

    /// Deletes many objects, in bulk if the store supports it. Missing objects count as success.
    ///
    /// # Errors
    /// The first failure, after all retries. The other objects may or may not be deleted.
    pub async fn delete_all(&self, keys: Vec<String>) -> Result<(), StoreError> {
        // A fence is asked before each batch, on Azure before each object. So a batch is one request where the
        // store has bulk requests that can be relied on (S3), and small where each object is a request.
        let at_once = match self.traits.raw_api {
            RawApi::Folder(_) | RawApi::Google { .. } | RawApi::Azure { .. } => 16,
            RawApi::S3 { .. } => 1000,
        };
        for keys in keys.chunks(at_once) {
            let paths = keys
                .iter()
                .map(|key| path_of(Operation::Delete, key))
                .collect::<Result<Vec<_>, _>>()?;
            let Some(first) = keys.first() else { continue };
            keys.iter().try_for_each(|key| self.refuse_link(Operation::Delete, key))?;
            if matches!(self.traits.raw_api, RawApi::S3 { bulk: true, .. }) {
                self.delete_in_one(first, keys, None).await?;
                continue;
            }
            if matches!(self.traits.raw_api, RawApi::Azure { .. }) {
                let deleting = futures::stream::iter(keys).map(|key| self.delete(key));
                deleting.buffer_unordered(at_once).try_collect::<()>().await?;
                continue;
            }
            self.retrying(Operation::Delete, first, || async {
                let locations = futures::stream::iter(paths.clone().into_iter().map(Ok)).boxed();
                let mut outcomes = self.objects.delete_stream(locations);
                while let Some(outcome) = outcomes.next().await {
                    match outcome {
                        Ok(_) | Err(Error::NotFound { .. }) => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// Sends S3's `DeleteObjects`. The `object_store` crate takes any answer in XML without errors
    /// for success, and all errors of single keys for those of the store. `tag`: that of each object, as a condition.
    async fn delete_in_one(
        &self,
        first: &str,
        keys: &[String],
        tag: Option<&str>,
    ) -> Result<(), StoreError> {
        let raw_api = &self.traits.raw_api;
        let headers = match raw_api {
            RawApi::S3 { headers, .. } => headers.clone(),
            _ => HeaderMap::new(),
        };
        let tag = tag.map(|tag| format!("<ETag>{}</ETag>", quick_xml::escape::escape(tag)));
        let tag = tag.unwrap_or_default();
        let key_of = |key| quick_xml::escape::escape(key);
        let objects: String = keys
            .iter()
            .map(|key| format!("<Object><Key>{}</Key>{tag}</Object>", key_of(key)))
            .collect();
        let body = Bytes::from(format!(
            r#"<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{objects}</Delete>"#
        ));
        self.retrying(Operation::Delete, first, || async {
            let headers = headers.clone();
            let (_, answer) =
                raw_api.exchange(Method::POST, "?delete=", body.clone(), headers).await?;
            check(&answer, keys)
        })
        .await
    }
}

/// The path of an object in its container.
fn in_container(key: &str) -> String {
    key.split('/').map(|part| format!("/{}", percent(part))).collect()
}

/// Answer to `DeleteObjects`.
#[derive(Debug, Deserialize)]
enum Answer {
    DeleteResult(Outcomes),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Outcomes {
    #[serde(default)]
    deleted: Vec<Deleted>,
    #[serde(default)]
    error: Vec<NotDeleted>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Deleted {
    key: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct NotDeleted {
    #[serde(default)]
    key: String,
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

/// An answer that does not prove that the objects are deleted.
#[derive(Debug, thiserror::Error)]
enum UnprovenDelete {
    #[error("the store's answer is not the result of a deletion")]
    Other,
    #[error("the store does not state whether it has deleted {0}")]
    Silent(String),
    #[error("{}: {} {}", .0.key, .0.code, .0.message)]
    Refused(NotDeleted),
}

/// Checks that an answer proves that all `keys` are gone.
fn check(answer: &[u8], keys: &[String]) -> object_store::Result<()> {
    let Ok(Answer::DeleteResult(outcomes)) = quick_xml::de::from_reader(answer) else {
        return Err(failed(UnprovenDelete::Other));
    };
    let (gone, mut errors): (Vec<_>, Vec<_>) =
        outcomes.error.into_iter().partition(|error| error.code == "NoSuchKey");
    // One that no retry mends ends the run, so it is the one to report.
    errors.sort_by_key(|error| TRANSIENT.contains(&error.code.as_str()));
    if let Some(error) = errors.into_iter().next() {
        let (code, path) = (error.code.clone(), error.key.clone());
        let source = UnprovenDelete::Refused(error);
        return Err(match code.as_str() {
            code if FORBIDDEN.contains(&code) => {
                Error::PermissionDenied { path, source: Box::new(source) }
            }
            "PreconditionFailed" => Error::Precondition { path, source: Box::new(source) },
            code if TRANSIENT.contains(&code) => failed(source),
            _ => Error::NotSupported { source: Box::new(source) },
        });
    }
    let gone: BTreeSet<String> = gone.into_iter().map(|error| error.key).collect();
    let deleted: BTreeSet<String> = outcomes.deleted.into_iter().map(|done| done.key).collect();
    match keys.iter().find(|key| !deleted.contains(*key) && !gone.contains(*key)) {
        Some(key) => Err(failed(UnprovenDelete::Silent(key.clone()))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(inside: &str) -> object_store::Result<()> {
        let answer = format!("<DeleteResult xmlns=\"urn:s3\">{inside}</DeleteResult>");
        check(answer.as_bytes(), &["a".to_owned(), "b & c".to_owned()])
    }

    #[test]
    fn only_what_the_store_names_is_deleted() {
        let (a, b) = ("<Deleted><Key>a</Key></Deleted>", "<Deleted><Key>b &amp; c</Key></Deleted>");
        let error = |code: &str| format!("<Error><Key>a</Key><Code>{code}</Code></Error>");
        checked(&format!("{a}{b}")).unwrap();
        checked(&format!("{}{b}", error("NoSuchKey"))).unwrap();
        for silent in ["", a, b, &error("NoSuchKey")] {
            let error = checked(silent).unwrap_err().to_string();
            assert!(error.contains("does not state whether"), "{error}");
        }
        for code in ["AccessDenied", "MalformedXML", "SlowDown", "ConditionalRequestConflict"] {
            let outcome = checked(&format!("{a}{b}{}", error(code))).unwrap_err();
            match code {
                "AccessDenied" => assert!(matches!(outcome, Error::PermissionDenied { .. })),
                "MalformedXML" => assert!(matches!(outcome, Error::NotSupported { .. })),
                _ => assert!(matches!(outcome, Error::Generic { .. })),
            }
            assert!(outcome.to_string().contains(code), "{outcome}");
        }
        // Of several, the one that no retry mends.
        let both = [error("SlowDown"), error("AccessDenied")].concat();
        assert!(matches!(checked(&both), Err(Error::PermissionDenied { .. })));
        for body in ["", "<html/>", "<Error><Code>InternalError</Code></Error>", "<DeleteResult>"] {
            let error = check(body.as_bytes(), &[]).unwrap_err().to_string();
            assert!(error.contains("not the result of a deletion"), "{error}");
        }
    }
}
