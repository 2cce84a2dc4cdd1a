//! The requests of multipart uploads: start, send parts, complete, list, abort.

use bytes::Bytes;
use http::Method;
use object_store::multipart::PartId;
use object_store::path::Path;
use object_store::{PutMultipartOptions, PutPayload};
use xb_files::or_none;

use crate::error::{StoreError, StoreErrorKind, root_message};
use crate::multipart::unfinished::Unfinished;
use crate::operation::Operation;
use crate::request::answer::{ATTEMPT, AttemptNotes};
use crate::request::bounds::timely;
use crate::request::encode::percent;
use crate::request::raw_request::RawApi;
use crate::request::transport::curl;
use crate::store::{Multiparts, Store, path_of};

impl Store {
    pub(crate) async fn start_multipart(
        &self,
        store: &Multiparts,
        key: &str,
        path: &Path,
    ) -> Result<String, StoreError> {
        let options = || {
            let tags = PutMultipartOptions::from(self.traits.tags.clone());
            match self.traits.attributes_of_parts {
                true => PutMultipartOptions { attributes: self.traits.attributes.clone(), ..tags },
                false => tags,
            }
        };
        self.retrying(Operation::StartMultipart, key, || {
            store.0.create_multipart_opts(path, options())
        })
        .await
    }

    pub(crate) async fn put_part(
        &self,
        store: &Multiparts,
        key: &str,
        path: &Path,
        id: &String,
        index: usize,
        payload: PutPayload,
    ) -> Result<PartId, StoreError> {
        let sent = self
            .retrying(Operation::PutPart, key, || {
                let payload = payload.clone();
                async move {
                    let sent = store.0.put_part(path, id, index, payload).await;
                    match sent {
                        Err(_) if is_cut_off() => match self.unknown_upload(key, id).await {
                            Some(unknown) => Err(unknown),
                            None => sent,
                        },
                        _ => sent,
                    }
                }
            })
            .await;
        sent.map_err(|error| self.forgotten(error))
    }

    /// Asks for the parts of an upload. Returns the store's answer if it says that it does not know
    /// the upload; any other answer says nothing.
    async fn unknown_upload(&self, key: &str, id: &str) -> Option<object_store::Error> {
        let path: Vec<String> = key.split('/').map(percent).collect();
        let what = format!("/{}?max-parts=1&uploadId={}", path.join("/"), percent(id));
        let asked = self.traits.raw_api.call(Method::GET, &what, Bytes::new());
        // The notes are about the part.
        let answer = ATTEMPT.scope(AttemptNotes::default(), timely(asked)).await;
        let is_unknown = |error: &object_store::Error| {
            matches!(error, object_store::Error::NotFound { .. })
                && root_message(error).contains("NoSuchUpload")
        };
        answer.err().filter(is_unknown)
    }

    pub(crate) async fn complete(
        &self,
        store: &Multiparts,
        key: &str,
        path: &Path,
        id: &String,
        parts: Vec<PartId>,
        size: u64,
    ) -> Result<Option<String>, StoreError> {
        let mut is_second = false;
        loop {
            let outcome = self
                .retrying(Operation::Complete, key, || {
                    let parts = parts.clone();
                    async move { Ok(store.0.complete_multipart(path, id, parts).await?.e_tag) }
                })
                .await;
            let error = match outcome {
                Ok(tag) => return Ok(tag),
                Err(error) if error.kind == StoreErrorKind::Fenced => return Err(error),
                Err(error) => self.forgotten(error),
            };
            // The response was lost: the store may have completed the upload and forgotten its ID.
            if matches!(self.size(key).await, Ok(Some(found)) if found == size) {
                return Ok(None);
            }
            // One wrong answer must not cost an object of which every part is acknowledged.
            if is_second || !self.is_forgotten(&error) {
                return Err(error);
            }
            is_second = true;
            self.pause(1).await;
            self.traffic().count_retry();
        }
    }

    /// Lists unfinished multipart uploads whose keys begin with `prefix`, including those of runs
    /// in progress; in a folder, staging files. Azure has none to abort.
    ///
    /// # Errors
    /// Any error, after all retries.
    pub async fn unfinished_uploads(&self, prefix: &str) -> Result<Vec<Unfinished>, StoreError> {
        let listed = self
            .retrying(Operation::ListUploads, prefix, || {
                timely(async {
                    let (mut found, mut after) = (Vec::new(), None);
                    loop {
                        let (page, next) = self.traits.raw_api.page(prefix, after.as_ref()).await?;
                        found.extend(page);
                        if next.is_none() {
                            return Ok(found);
                        }
                        after = next;
                    }
                })
            })
            .await;
        let mut found = match listed {
            // `rclone serve s3` says so where there is none.
            Err(error) if is_unknown_upload(&error) => Vec::new(),
            listed => listed?,
        };
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// Removes an unfinished upload. A missing upload counts as success.
    ///
    /// # Errors
    /// Any error, after all retries.
    pub async fn abort(&self, upload: &Unfinished) -> Result<(), StoreError> {
        let path = path_of(Operation::Abort, &upload.key)?;
        let outcome = match (&self.multipart, &self.traits.raw_api) {
            (_, RawApi::Folder(root)) => {
                self.refuse_other_folder(Operation::Abort, &upload.key).await?;
                let file = root.join(format!("{}#{}", upload.key, upload.id));
                or_none(std::fs::remove_file(file)).map(drop).map_err(|error| {
                    let kind = StoreErrorKind::Rejected;
                    StoreError::new(Operation::Abort, &upload.key, kind, error.to_string())
                })
            }
            (Some(store), _) => {
                self.retrying(Operation::Abort, &upload.key, || {
                    store.0.abort_multipart(&path, &upload.id)
                })
                .await
            }
            (None, _) => Ok(()),
        };
        match outcome {
            Err(error) if error.kind == StoreErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Returns whether an error says that the store has forgotten an upload.
    pub(crate) fn is_forgotten(&self, error: &StoreError) -> bool {
        error.hint() == Some(self.service().forgotten())
    }

    /// Adds the likely cause if the store has forgotten an upload. It is not the name that is wrong.
    pub(crate) fn forgotten(&self, mut error: StoreError) -> StoreError {
        let text = error.to_string();
        let unknown_part = text.contains("InvalidPart") && !text.contains("InvalidPartOrder")
            || text.contains("InvalidBlockList");
        if error.kind != StoreErrorKind::NotFound && !unknown_part {
            return error;
        }
        error.kind = StoreErrorKind::Rejected;
        error.with_hint(Some(self.service().forgotten().into()))
    }
}

/// Returns whether the connection of this try ended while it was in use. Some stores answer so to a part of an
/// upload that they do not know, instead of reading it.
fn is_cut_off() -> bool {
    let ended = [curl::NOTHING, curl::SEND, curl::RECEIVE];
    let broken = ATTEMPT.try_with(|answer| answer.broken.get());
    broken.ok().flatten().is_some_and(|code| ended.contains(&code))
}

/// Returns whether the store says that it knows no such upload.
fn is_unknown_upload(error: &StoreError) -> bool {
    error.kind == StoreErrorKind::NotFound && error.to_string().contains("NoSuchUpload")
}
