//! Upload of objects in parts, several parts at a time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::multipart::PartId;
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore as _, PutMultipartOptions, PutPayload};
use tokio::sync::Mutex;
use tokio::task::{JoinHandle, JoinSet};
use xb_process::CancelToken;

use crate::error::{StoreError, StoreErrorKind, root_message};
use crate::failed_try::judge_local;
use crate::multipart::unfinished::Unfinished;
use crate::operation::Operation;
use crate::store::fence::Change;
use crate::store::{Multiparts, Store, path_of};

/// Time that requests in flight have to end after a failure.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);

/// Time limit of the cleanup after a failure, so that an unresponsive store does not delay the
/// error report.
const CLEAN_UP: Duration = Duration::from_secs(15);

/// One piece of an object, ready to send. The pieces of one object come in order; objects may be
/// interleaved.
#[derive(Debug)]
pub struct PartData {
    /// Key of the object.
    pub key: Arc<str>,
    /// Number of this part in its object, from 0.
    pub index: u32,
    /// Content. The buffers are released when the store acknowledges the part.
    pub payload: Vec<Bytes>,
    /// Whether the object ends with this part. If part 0 ends the object, the object is sent as one
    /// plain put.
    pub end: bool,
}

impl PartData {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.payload.iter().map(|b| b.len() as u64).sum()
    }

    /// Returns whether the part is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Counters of acknowledged objects, bytes and parts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Uploaded {
    /// Complete objects.
    pub objects: u64,
    /// Bytes in complete objects and in acknowledged parts.
    pub bytes: u64,
    /// Parts of multipart objects.
    pub parts: u64,
}

/// Store's response to the last request for an object.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredObject {
    /// Key of the object.
    pub key: Arc<str>,
    /// Size in bytes.
    pub size: u64,
    /// Entity tag of the content (`ETag`), if a response arrived and contained one.
    pub tag: Option<String>,
}

/// Sends parts, at most a fixed number at a time. Each part is retried on its own.
///
/// Dropping a sender without [`PartSender::finish`] leaves unfinished uploads behind: call
/// [`PartSender::abort`] on any failure.
#[derive(Debug)]
pub struct PartSender {
    store: Store,
    parallel: usize,
    running: JoinSet<Result<FinishedRequest, StoreError>>,
    open: HashMap<Arc<str>, OpenObject>,
    uploaded: Uploaded,
    give_up: CancelToken<()>,
    /// Object whose upload is being started. The upload may exist although its ID is not known yet.
    beginning: Option<Beginning>,
    /// Whether other runs may write the same keys. If so, `stored` records the stored objects.
    shared: bool,
    stored: Vec<StoredObject>,
    /// Sizes of complete objects, if they are wanted.
    sizes: Option<Vec<u64>>,
}

/// The start of an upload. It runs in a task of its own, so that cancelling the sender does not cut off a
/// request that the store carries out later.
#[derive(Debug)]
struct Beginning {
    key: Arc<str>,
    /// `None` once it has failed.
    task: Option<JoinHandle<Result<Target, StoreError>>>,
}

#[derive(Debug)]
struct OpenObject {
    target: Target,
    acknowledged: Vec<Option<PartId>>,
    outstanding: usize,
    size: u64,
    ended: bool,
    /// Whether a response to the start of the upload may have been lost. The store may then hold a
    /// second upload.
    doubtful: bool,
    /// Parts for which the store no longer knew the upload.
    lost: Vec<(u32, PutPayload)>,
    /// Whether this is the second upload of the object, after the store had forgotten the first one.
    repeated: bool,
}

#[derive(Debug, Clone)]
enum Target {
    /// Parts by number, sent in any order.
    Numbered { store: Multiparts, path: Path, id: String },
    /// One growing file with a staging name, in a local folder.
    Staged(Arc<Mutex<Box<dyn MultipartUpload>>>),
}

/// A request that has ended, for [`PartSender::take_in`].
#[derive(Debug)]
pub struct EndedRequest(Result<Result<FinishedRequest, StoreError>, tokio::task::JoinError>);

#[derive(Debug)]
enum FinishedRequest {
    Object {
        stored: StoredObject,
    },
    Part {
        key: Arc<str>,
        index: u32,
        id: Option<PartId>,
        bytes: u64,
    },
    /// The store has forgotten the upload.
    Lost {
        key: Arc<str>,
        index: u32,
        payload: PutPayload,
        error: StoreError,
    },
    Completed {
        stored: StoredObject,
    },
}

impl PartSender {
    /// Creates a sender to `store` with at most `parallel` requests at a time.
    #[must_use]
    pub fn new(store: Store, parallel: usize) -> Self {
        let give_up = CancelToken::new();
        Self {
            store: store.until(give_up.clone()),
            parallel: parallel.max(1),
            running: JoinSet::new(),
            open: HashMap::new(),
            uploaded: Uploaded::default(),
            give_up,
            beginning: None,
            shared: false,
            stored: Vec::new(),
            sizes: None,
        }
    }

    /// Prepares the sender so that [`PartSender::sizes`] returns the sizes of complete objects.
    #[must_use]
    pub fn sized(self) -> Self {
        Self { sizes: Some(Vec::new()), ..self }
    }

    /// Returns the sizes of the objects completed since the last call. Only for a
    /// [sized](Self::sized) sender.
    pub fn sizes(&mut self) -> Vec<u64> {
        self.sizes.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Prepares the sender for keys that other runs may write, too. An object that is sent in one
    /// put is created only if absent, as far as the store supports it, and [`PartSender::stored`]
    /// returns the store's responses.
    #[must_use]
    pub fn shared(self) -> Self {
        Self { shared: true, ..self }
    }

    /// Returns the objects stored since the last call. Only for a sender of [shared](Self::shared)
    /// keys.
    pub fn stored(&mut self) -> Vec<StoredObject> {
        std::mem::take(&mut self.stored)
    }

    /// Returns the counters of acknowledged objects, bytes and parts.
    #[must_use]
    pub fn uploaded(&self) -> Uploaded {
        self.uploaded
    }

    /// Starts to send `part`. Waits while too many requests are in flight.
    ///
    /// # Errors
    /// The first failure of any part so far. After an error, call [`PartSender::abort`].
    pub async fn send(&mut self, part: PartData) -> Result<(), StoreError> {
        while self.running.len() >= self.parallel {
            self.collect_one().await?;
        }
        while let Some(finished) = self.running.try_join_next() {
            self.collect(finished)?;
        }
        self.begin_again().await?;
        // An upload that is lost takes no more parts; it is begun again once all requests have ended.
        while self.open.get(&part.key).is_some_and(|object| !object.lost.is_empty()) {
            self.collect_one().await?;
        }
        let bytes = part.len();
        if part.index == 0 && part.end {
            let (store, key, shared) = (self.store.clone(), part.key, self.shared);
            self.running.spawn(async move {
                let payload = PutPayload::from_iter(part.payload);
                let tag = match shared {
                    true => store.create_data(&key, payload).await?,
                    false => store.put_data(&key, payload).await?,
                };
                Ok(FinishedRequest::Object { stored: StoredObject { key, size: bytes, tag } })
            });
            return Ok(());
        }
        if part.index == 0 {
            let retries = self.store.traffic().retries();
            let target = self.begin(&part.key).await?;
            let doubtful = self.store.traffic().retries() > retries;
            let object = OpenObject {
                target,
                acknowledged: Vec::new(),
                outstanding: 0,
                size: 0,
                ended: false,
                doubtful,
                lost: Vec::new(),
                repeated: false,
            };
            self.open.insert(Arc::clone(&part.key), object);
        }
        let Some(object) = self.open.get_mut(&part.key) else {
            return Err(StoreError::new(
                Operation::PutPart,
                &*part.key,
                StoreErrorKind::Rejected,
                "a part has no beginning; this is a bug",
            ));
        };
        object.outstanding += 1;
        object.size += bytes;
        object.ended = part.end;
        object.acknowledged.push(None);
        let target = object.target.clone();
        let payload = PutPayload::from_iter(part.payload);
        self.send_part(target, part.key, part.index, payload).await;
        Ok(())
    }

    /// Waits until a request ends; forever if none is in flight. It may be cancelled.
    ///
    /// Whoever waits for the next part must wait for this, too: the parts of an upload that the store has forgotten hold
    /// their memory until they are sent again, and without it there may be no next part.
    pub async fn next_ended(&mut self) -> EndedRequest {
        match self.running.join_next().await {
            Some(ended) => EndedRequest(ended),
            None => std::future::pending().await,
        }
    }

    /// Takes in a request that has ended, and begins the uploads again that the store has forgotten.
    ///
    /// # Errors
    /// As [`PartSender::send`].
    pub async fn take_in(&mut self, EndedRequest(ended): EndedRequest) -> Result<(), StoreError> {
        self.collect(ended)?;
        self.begin_again().await
    }

    /// Starts to send a part to an upload that has begun.
    async fn send_part(&mut self, target: Target, key: Arc<str>, index: u32, payload: PutPayload) {
        let (store, bytes) = (self.store.clone(), payload.content_length() as u64);
        match target {
            Target::Numbered { store: parts, path, id } => {
                self.running.spawn(async move {
                    let (number, sent) = (index as usize, payload.clone());
                    match store.put_part(&parts, &key, &path, &id, number, sent).await {
                        Ok(id) => Ok(FinishedRequest::Part { key, index, id: Some(id), bytes }),
                        Err(error) if store.is_forgotten(&error) => {
                            Ok(FinishedRequest::Lost { key, index, payload, error })
                        }
                        Err(error) => Err(error),
                    }
                });
            }
            Target::Staged(upload) => {
                // The order of these calls fixes the offset in the file; the writes may run in any
                // order.
                let write = upload.lock().await.put_part(payload);
                self.running.spawn(async move {
                    store.keep_to_rate(usize::try_from(bytes).unwrap_or(usize::MAX)).await;
                    let written = store.attempted(Operation::PutPart, write).await;
                    written.map_err(|error| local_error(Operation::PutPart, &key, &error))?;
                    Ok(FinishedRequest::Part { key, index, id: None, bytes })
                });
            }
        }
    }

    /// Begins the uploads again that the store has forgotten, once none of their requests is in flight.
    async fn begin_again(&mut self) -> Result<(), StoreError> {
        let is_lost = |object: &OpenObject| !object.lost.is_empty() && object.outstanding == 0;
        let lost = self.open.iter().filter(|(_, object)| is_lost(object));
        let lost: Vec<Arc<str>> = lost.map(|(key, _)| Arc::clone(key)).collect();
        for key in lost {
            let target = self.begin(&key).await?;
            let Some(object) = self.open.get_mut(&key) else { continue };
            // The first upload may exist after all.
            (object.repeated, object.doubtful) = (true, true);
            object.target = target.clone();
            let parts = std::mem::take(&mut object.lost);
            object.outstanding = parts.len();
            for (index, payload) in parts {
                self.send_part(target.clone(), Arc::clone(&key), index, payload).await;
            }
        }
        Ok(())
    }

    /// Waits until every object is acknowledged.
    ///
    /// # Errors
    /// The first failure. After an error, call [`PartSender::abort`].
    pub async fn finish(&mut self) -> Result<Uploaded, StoreError> {
        while !self.running.is_empty() {
            self.collect_one().await?;
        }
        if let Some(key) = self.open.keys().next() {
            return Err(StoreError::new(
                Operation::Put,
                &**key,
                StoreErrorKind::Rejected,
                "the object was never finished; this is a bug",
            ));
        }
        Ok(self.uploaded)
    }

    /// Ends requests in flight and removes the parts of unfinished objects. Complete objects stay;
    /// the caller decides about them. Failures are not reported, because the cause is already
    /// known.
    ///
    /// Requests in flight get some time to finish: the store may still carry out an interrupted
    /// request after the caller has removed the objects it found.
    pub async fn abort(&mut self) {
        self.give_up.cancel(());
        let mut beginning = self.beginning.take();
        let (mut started, mut acknowledged) = (None, Vec::new());
        let drained = async {
            if let Some(task) = beginning.as_mut().and_then(|beginning| beginning.task.as_mut()) {
                started = task.await.ok().and_then(Result::ok);
            }
            while let Some(finished) = self.running.join_next().await {
                if let Ok(Ok(
                    FinishedRequest::Object { stored } | FinishedRequest::Completed { stored },
                )) = finished
                {
                    acknowledged.push(stored);
                }
            }
        };
        let _ = tokio::time::timeout(DRAIN_LIMIT, drained).await;
        if self.shared {
            self.stored.extend(acknowledged);
        }
        self.running.shutdown().await;
        if let Some(task) = beginning.as_mut().and_then(|beginning| beginning.task.take()) {
            task.abort();
        }
        let store = self.store.for_cleanup();
        let mut begun: Vec<_> = beginning.into_iter().map(|beginning| beginning.key).collect();
        let clean_up = async {
            match started {
                Some(Target::Numbered { id, .. }) => {
                    for key in &begun {
                        abort_upload(&store, key, id.clone()).await;
                    }
                }
                Some(Target::Staged(upload)) => drop(upload.lock().await.abort().await),
                None => {}
            }
            for (key, object) in self.open.drain() {
                match object.target {
                    Target::Numbered { id, .. } => {
                        abort_upload(&store, &key, id).await;
                        begun.extend(object.doubtful.then_some(key));
                    }
                    Target::Staged(upload) => drop(upload.lock().await.abort().await),
                }
            }
            for key in begun {
                abort_strays(&store, &key).await;
            }
        };
        let _ = tokio::time::timeout(CLEAN_UP, clean_up).await;
    }

    /// Starts an upload. If this is cancelled, or fails, [`PartSender::abort`] looks for the upload.
    async fn begin(&mut self, key: &Arc<str>) -> Result<Target, StoreError> {
        let task = tokio::spawn(begin(self.store.clone(), Arc::clone(key)));
        let beginning = self.beginning.insert(Beginning { key: Arc::clone(key), task: None });
        let target = match beginning.task.insert(task).await {
            Ok(begun) => begun,
            Err(_) => Err(panicked()),
        };
        match target.is_ok() {
            true => self.beginning = None,
            false => beginning.task = None,
        }
        target
    }

    async fn collect_one(&mut self) -> Result<(), StoreError> {
        if let Some(finished) = self.running.join_next().await {
            self.collect(finished)?;
        }
        self.begin_again().await
    }

    fn collect(
        &mut self,
        finished: Result<Result<FinishedRequest, StoreError>, tokio::task::JoinError>,
    ) -> Result<(), StoreError> {
        let done = finished.map_err(|_| panicked())??;
        match done {
            FinishedRequest::Object { stored } => {
                self.uploaded.objects += 1;
                self.uploaded.bytes += stored.size;
                self.sizes.iter_mut().for_each(|sizes| sizes.push(stored.size));
                self.stored.extend(self.shared.then_some(stored));
            }
            FinishedRequest::Completed { stored } => {
                self.uploaded.objects += 1;
                self.sizes.iter_mut().for_each(|sizes| sizes.push(stored.size));
                self.stored.extend(self.shared.then_some(stored));
            }
            FinishedRequest::Lost { key, index, payload, error } => {
                let Some(object) = self.open.get_mut(&key) else { return Err(error) };
                // The bytes of acknowledged parts are no longer held.
                if object.repeated || object.acknowledged.iter().any(Option::is_some) {
                    return Err(error);
                }
                object.outstanding -= 1;
                object.lost.push((index, payload));
            }
            FinishedRequest::Part { key, index, id, bytes } => {
                if self.open.get(&key).is_some_and(|object| !object.lost.is_empty()) {
                    return Err(self.store.forgotten(StoreError::new(
                        Operation::PutPart,
                        &*key,
                        StoreErrorKind::NotFound,
                        "the store recognises the upload for only some of its parts",
                    )));
                }
                self.uploaded.parts += 1;
                self.uploaded.bytes += bytes;
                if let Some(object) = self.open.get_mut(&key) {
                    object.outstanding -= 1;
                    if let Some(place) = object.acknowledged.get_mut(index as usize) {
                        *place = id;
                    }
                    if object.ended && object.outstanding == 0 {
                        self.complete(key);
                    }
                }
            }
        }
        Ok(())
    }

    fn complete(&mut self, key: Arc<str>) {
        let Some(object) = self.open.remove(&key) else { return };
        let (store, shared) = (self.store.clone(), self.shared);
        self.running.spawn(async move {
            let size = object.size;
            let free = refuse_taken(&store, &key, shared).await;
            let tag = match object.target {
                Target::Numbered { store: parts, path, id } => {
                    let ids = object.acknowledged.into_iter().flatten().collect();
                    let outcome = match free {
                        Ok(()) => store.complete(&parts, &key, &path, &id, ids, size).await,
                        Err(taken) => Err(taken),
                    };
                    let clean_up = async {
                        if outcome.is_err() {
                            abort_upload(&store.for_cleanup(), &key, id).await;
                        }
                        if object.doubtful {
                            abort_strays(&store.for_cleanup(), &key).await;
                        }
                    };
                    let _ = tokio::time::timeout(CLEAN_UP, clean_up).await;
                    outcome?
                }
                Target::Staged(upload) => {
                    free?;
                    let mut upload = upload.lock().await;
                    store.check_fence(Change::Write).await?;
                    let done = store.attempted(Operation::Complete, upload.complete()).await;
                    done.map_err(|error| local_error(Operation::Put, &key, &error))?.e_tag
                }
            };
            Ok(FinishedRequest::Completed { stored: StoredObject { key, size, tag } })
        });
    }
}

/// Starts an upload of `key`.
async fn begin(store: Store, key: Arc<str>) -> Result<Target, StoreError> {
    let path = path_of(Operation::Put, &key)?;
    if let Some(parts) = store.multipart.clone() {
        let id = store.start_multipart(&parts, &key, &path).await?;
        return Ok(Target::Numbered { store: parts, path, id });
    }
    store.refuse_link(Operation::Put, &key)?;
    let begun = store.objects.put_multipart_opts(&path, PutMultipartOptions::default());
    let upload = store.attempted(Operation::StartMultipart, begun).await;
    let upload = upload.map_err(|error| local_error(Operation::Put, &key, &error))?;
    Ok(Target::Staged(Arc::new(Mutex::new(upload))))
}

fn panicked() -> StoreError {
    let what = "an upload task panicked; this is a bug";
    StoreError::new(Operation::Put, "", StoreErrorKind::Rejected, what)
}

/// Refuses to complete an upload if other runs may write its key and an object already has it. Not
/// every store can make that a condition of the request.
async fn refuse_taken(store: &Store, key: &str, shared: bool) -> Result<(), StoreError> {
    if !shared || store.size(key).await?.is_none() {
        return Ok(());
    }
    let message = "the name is taken by an object of another run";
    Err(StoreError::new(Operation::Complete, key, StoreErrorKind::AlreadyExists, message))
}

/// Aborts an upload of this sender. An upload that cannot be aborted is found by a later listing.
async fn abort_upload(store: &Store, key: &str, id: String) {
    let _ =
        store.abort(&Unfinished { key: key.to_owned(), id, started: 0, is_listed: false }).await;
}

/// Aborts all other uploads of `key`. No other run uses `key`, and its object is complete or given
/// up.
async fn abort_strays(store: &Store, key: &str) {
    for upload in store.unfinished_uploads(key).await.unwrap_or_default() {
        if upload.key == key {
            let _ = store.abort(&upload).await;
        }
    }
}

fn local_error(operation: Operation, key: &str, error: &object_store::Error) -> StoreError {
    let message = root_message(error);
    let (kind, hint) = judge_local(&message);
    StoreError::new(operation, key, kind, message).with_hint(hint)
}
