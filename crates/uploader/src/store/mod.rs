//! Store client with the only retry loop.

pub(crate) mod exclusive;
pub(crate) mod faults;
pub(crate) mod gate;
pub(crate) mod object_lock;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use std::time::SystemTime;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    Attributes, Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode,
    PutMultipartOptions, PutOptions, PutPayload,
};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::error::{StoreError, StoreErrorKind};
use crate::multipart::unfinished::Unfinished;
use crate::request::answer::{ANSWER, Answer};
use crate::request::bounds::{Excess, LISTING_TIME, SMALL_OBJECT};
use crate::request::clock;
use crate::request::http::Traffic;
use crate::request::rate::RateLimit;
use crate::request::raw_request::Direct;
use crate::retry::notice;
use crate::retry::policy::Policy;
use crate::retry::{RetryContext, judge};
use crate::settings::provider::StoreLimits;
use crate::store::faults::Faults;
use crate::store::gate::Gate;

/// Object as a listing shows it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// Full key.
    pub key: String,
    /// Size in bytes.
    pub size: u64,
    /// Time of the last write, in seconds since 1970.
    pub modified: i64,
    /// Entity tag of the content (`ETag`), if the store returns one.
    pub tag: Option<String>,
}

/// Store with its retry policy. Clones are cheap and share client and counters.
#[derive(Debug, Clone)]
pub struct Store {
    pub(crate) objects: Arc<dyn ObjectStore>,
    pub(crate) multipart: Option<Multiparts>,
    pub(crate) nature: Arc<StoreTraits>,
    pub(crate) policy: Policy,
    traffic: Traffic,
    /// Becomes true when further tries are useless.
    giving_up: watch::Receiver<bool>,
    /// Gate that every request passes before it changes something.
    gate: Option<Arc<dyn Gate>>,
    /// Failures that a test wants.
    faults: Option<Arc<dyn Faults>>,
}

/// Properties of a store, and settings of its objects.
#[derive(Debug)]
pub(crate) struct StoreTraits {
    pub(crate) limits: StoreLimits,
    /// Protection of bodies in transit, in words.
    pub(crate) protection: &'static str,
    /// Whether the store supports create-only writes.
    pub(crate) conditions: bool,
    /// Whether another try may find fresh credentials.
    pub(crate) refreshable: bool,
    /// Storage class of data objects. Small objects that are read again soon get the bucket's
    /// default.
    pub(crate) attributes: Attributes,
    /// Whether multipart uploads take the attributes, too.
    pub(crate) attributes_of_parts: bool,
    pub(crate) direct: Direct,
    /// Rate limit, for stores whose bytes do not pass through the HTTP client.
    pub(crate) rate: Option<Arc<RateLimit>>,
    /// Whether the store can copy objects with everything that a put would set.
    pub(crate) copies: bool,
    /// Whether a listing by folders may show folders without objects.
    pub(crate) empty_folders: bool,
}

/// Wrapper of the trait object, which has no `Debug` of its own.
#[derive(Clone)]
pub(crate) struct Multiparts(pub(crate) Arc<dyn MultipartStore>);

impl std::fmt::Debug for Multiparts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Multiparts")
    }
}

impl Store {
    /// Returns the time by the store's clock, in seconds since 1970: from its last response, or
    /// from the timestamp that a file system gives a new file. Falls back to the local clock if the
    /// store reports no time.
    #[must_use]
    pub fn now(&self) -> i64 {
        if let Direct::Folder(root) = &self.nature.direct {
            let dated = tempfile::tempfile_in(root).and_then(|file| file.metadata()?.modified());
            return clock::seconds(dated.unwrap_or_else(|_| SystemTime::now()));
        }
        self.traffic().heard().map_or_else(|| clock::seconds(SystemTime::now()), clock::Heard::now)
    }

    /// Creates a store over any client; `multipart` is set if parts can be sent by number.
    pub(crate) fn new(
        objects: Arc<dyn ObjectStore>,
        multipart: Option<Arc<dyn MultipartStore>>,
        nature: StoreTraits,
        policy: Policy,
        traffic: Traffic,
    ) -> Self {
        let (_, never) = watch::channel(false);
        let multipart = multipart.map(Multiparts);
        Self {
            objects,
            multipart,
            nature: Arc::new(nature),
            policy,
            traffic,
            giving_up: never,
            gate: None,
            faults: None,
        }
    }

    /// Returns the same store behind a gate: each try of a request that changes something passes
    /// the gate first.
    #[must_use]
    pub fn gated(&self, gate: Arc<dyn Gate>) -> Self {
        Self { gate: Some(gate), ..self.clone() }
    }

    /// Returns the same store without a gate.
    #[must_use]
    pub fn ungated(&self) -> Self {
        Self { gate: None, ..self.clone() }
    }

    /// Returns the same store with failures. Only for tests.
    #[must_use]
    pub fn failing(&self, faults: Arc<dyn Faults>) -> Self {
        Self { faults: Some(faults), ..self.clone() }
    }

    /// Runs one try of an operation.
    pub(crate) async fn attempted<T>(
        &self,
        operation: &'static str,
        attempt: impl Future<Output = object_store::Result<T>>,
    ) -> object_store::Result<T> {
        faults::attempted(self.faults.as_ref(), operation, attempt).await
    }

    /// Passes the gate, if there is one.
    pub(crate) async fn pass(&self) -> Result<(), StoreError> {
        match &self.gate {
            Some(gate) => gate.pass().await,
            None => Ok(()),
        }
    }

    /// Returns the same store with a signal to give up: once it is set, nothing is retried, and
    /// pauses between tries end. Requests in flight are not interrupted.
    pub(crate) fn until(&self, giving_up: watch::Receiver<bool>) -> Self {
        Self { giving_up, ..self.clone() }
    }

    /// Returns the same store for a cleanup after a failure: only a few quick tries.
    pub(crate) fn hasty(&self) -> Self {
        let (_, never) = watch::channel(false);
        let policy = Policy {
            max_retries: self.policy.max_retries.min(3),
            retry_timeout: Duration::ZERO,
            max_backoff: self.policy.max_backoff.min(Duration::from_secs(1)),
            ..self.policy.clone()
        };
        Self { policy, giving_up: never, ..self.clone() }
    }

    /// Whether the store itself rejects a create-only write of an existing object.
    #[must_use]
    pub fn has_conditions(&self) -> bool {
        self.nature.conditions
    }

    /// Returns the store's limits for sizes and numbers of parts.
    #[must_use]
    pub fn limits(&self) -> StoreLimits {
        self.nature.limits
    }

    /// Describes, for a report, what protects the bytes of an object on their way into the store.
    #[must_use]
    pub fn protection(&self) -> &'static str {
        self.nature.protection
    }

    /// Returns the counters of all requests to this store.
    #[must_use]
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Writes an object, replacing an existing one. Safe to repeat.
    ///
    /// The object gets the bucket's default storage class. A configured class applies only to data
    /// objects, which a [`crate::PartSender`] sends.
    ///
    /// # Errors
    /// [`StoreError`] after all retries.
    pub async fn put(&self, key: &str, payload: PutPayload) -> Result<(), StoreError> {
        self.put_with(key, payload, PutOptions::default).await.map(drop)
    }

    /// Writes a data object as [`Store::put`] does, and returns the entity tag of its content.
    pub(crate) async fn put_data(
        &self,
        key: &str,
        payload: PutPayload,
    ) -> Result<Option<String>, StoreError> {
        self.put_with(key, payload, || PutOptions::from(self.nature.attributes.clone())).await
    }

    pub(crate) async fn put_with(
        &self,
        key: &str,
        payload: PutPayload,
        options: impl Fn() -> PutOptions,
    ) -> Result<Option<String>, StoreError> {
        let path = path_of("put", key)?;
        self.retrying("put", key, || async {
            self.keep_to_rate(payload.content_length()).await;
            let answer = self.objects.put_opts(&path, payload.clone(), options()).await?;
            Ok(answer.e_tag)
        })
        .await
    }

    /// Writes an object only if it does not exist.
    ///
    /// The response to such a write can be lost after the store has acted, and a store may ignore
    /// the condition or not support it. So after an error, and after success too, the object is
    /// read back: equal bytes mean that this write succeeded. (Without conditional writes, two
    /// writers at the same moment may both find no object; then the later write wins, and the other
    /// writer gets an error.)
    ///
    /// # Errors
    /// [`StoreErrorKind::AlreadyExists`] if the object exists with other bytes; other kinds after
    /// all retries.
    pub async fn create(&self, key: &str, content: Bytes) -> Result<(), StoreError> {
        let path = path_of("create", key)?;
        let taken = || {
            let message = "another object already has this name";
            StoreError::new("create", key, StoreErrorKind::AlreadyExists, message)
        };
        let mut conflicts = 0;
        loop {
            let mode = if self.nature.conditions {
                PutMode::Create
            } else if self.size(key).await?.is_some() {
                let most = SMALL_OBJECT.max(content.len() as u64);
                let there = self.get_at_most(key, most).await?;
                return if there == content { Ok(()) } else { Err(taken()) };
            } else {
                PutMode::Overwrite
            };
            let outcome = self
                .retrying("create", key, || async {
                    let options = PutOptions::from(mode.clone());
                    self.objects.put_opts(&path, content.clone().into(), options).await.map(drop)
                })
                .await;
            let most = SMALL_OBJECT.max(content.len() as u64);
            match (self.get_at_most(key, most).await, outcome) {
                (Ok(found), _) if found == content => return Ok(()),
                (Ok(_), _) => return Err(taken()),
                // Refused because of a concurrent write that did not succeed either (S3 returns
                // 409).
                (Err(gone), Err(refused))
                    if gone.kind == StoreErrorKind::NotFound
                        && refused.kind == StoreErrorKind::AlreadyExists
                        && conflicts < CONFLICTS =>
                {
                    conflicts += 1;
                    tokio::time::sleep(self.policy.pause(conflicts, None, jitter())).await;
                }
                (Err(gone), Err(refused))
                    if gone.kind == StoreErrorKind::NotFound
                        && refused.kind == StoreErrorKind::AlreadyExists =>
                {
                    return Err(cannot_create(key, &refused));
                }
                // If the object is missing after another error, that error is the cause. If it is
                // missing after success, the write did not succeed either.
                (Err(read_back), outcome) => {
                    let error = outcome.err().unwrap_or(read_back);
                    return Err(self.with_link_hint(error));
                }
            }
        }
    }

    /// Adds the likely cause if a file cannot be created under its name.
    fn with_link_hint(&self, error: StoreError) -> StoreError {
        let folder = matches!(self.nature.direct, Direct::Folder(_));
        let refused = ["Operation not permitted", "not supported", "Function not implemented"];
        let text = error.to_string();
        match folder && refused.iter().any(|refused| text.contains(refused)) {
            true => error.with_hint(Some(NO_LINKS.into())),
            false => error,
        }
    }

    /// Waits before a repeated request, as long as before try `retry` (from 1) of a failed one.
    pub async fn pause(&self, retry: u32) {
        tokio::time::sleep(self.policy.pause(retry, None, jitter())).await;
    }

    /// Reads a whole object of at most [`SMALL_OBJECT`] bytes.
    ///
    /// # Errors
    /// [`StoreErrorKind::NotFound`] if there is no such object, [`StoreErrorKind::Damaged`] if it is
    /// larger; other kinds after all retries.
    pub async fn get(&self, key: &str) -> Result<Bytes, StoreError> {
        self.get_at_most(key, SMALL_OBJECT).await
    }

    /// Reads a whole object of at most `most` bytes.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub async fn get_at_most(&self, key: &str, most: u64) -> Result<Bytes, StoreError> {
        let path = path_of("get", key)?;
        self.reading("get", key, most, || async {
            let answer = self.objects.get(&path).await?;
            let size = answer.meta.size;
            if size > most {
                return Err(Excess::Object { size, most }.into());
            }
            answer.bytes().await
        })
        .await
    }

    /// Reads a range of an object that must have `size` bytes. The result has exactly the requested
    /// length. A response of another length is requested once more: only the same twice is taken for
    /// the object's own fault.
    ///
    /// # Errors
    /// [`StoreErrorKind::Damaged`] if the object has another size; other kinds after all retries.
    pub async fn get_range(
        &self,
        key: &str,
        range: Range<u64>,
        size: u64,
    ) -> Result<Bytes, StoreError> {
        match self.get_range_once(key, range.clone(), size).await {
            Err(error) if error.kind == StoreErrorKind::Damaged => {
                self.traffic.count_retry();
                self.get_range_once(key, range, size).await
            }
            outcome => outcome,
        }
    }

    async fn get_range_once(
        &self,
        key: &str,
        range: Range<u64>,
        size: u64,
    ) -> Result<Bytes, StoreError> {
        let path = path_of("get", key)?;
        let wanted = range.end - range.start;
        let (found, bytes) = self
            .reading("get", key, wanted, || async {
                self.keep_to_rate(usize::try_from(wanted).unwrap_or(usize::MAX)).await;
                let range = Some(GetRange::Bounded(range.clone()));
                let options = GetOptions { range, ..GetOptions::default() };
                let answer = self.objects.get_opts(&path, options).await?;
                let given = answer.range.end.saturating_sub(answer.range.start);
                if given > wanted {
                    return Err(Excess::Bytes(wanted).into());
                }
                Ok((answer.meta.size, answer.bytes().await?))
            })
            .await?;
        // The store reports the size with every range, so this check costs no request.
        if found != size {
            let message = format!("the object has {found} bytes, expected {size}");
            return Err(StoreError::new("get", key, StoreErrorKind::Damaged, message));
        }
        if bytes.len() as u64 != wanted {
            let message = format!(
                "the object is too short: requested bytes {}..{}, received {}",
                range.start,
                range.end,
                bytes.len()
            );
            return Err(StoreError::new("get", key, StoreErrorKind::Damaged, message));
        }
        Ok(bytes)
    }

    /// Whether the store itself can copy objects of at most [`Store::MAX_COPY`] bytes.
    #[must_use]
    pub fn copies(&self) -> bool {
        self.nature.copies
    }

    /// Maximum size of an object that one request can copy, in bytes ("CopyObject": 5 GiB).
    pub const MAX_COPY: u64 = 5 << 30;

    /// Makes the store copy an object within the bucket, replacing an existing one. Safe to repeat.
    ///
    /// # Errors
    /// [`StoreErrorKind::NotFound`] if there is no such object; other kinds after all retries.
    pub async fn copy(&self, from: &str, to: &str) -> Result<(), StoreError> {
        let (source, target) = (path_of("copy", from)?, path_of("copy", to)?);
        self.retrying("copy", from, || async { self.objects.copy(&source, &target).await }).await
    }

    /// Returns the size of an object, or `None` if there is no such object.
    ///
    /// # Errors
    /// Any error except "not found", after all retries.
    pub async fn size(&self, key: &str) -> Result<Option<u64>, StoreError> {
        let path = path_of("head", key)?;
        match self.retrying("head", key, || async { self.objects.head(&path).await }).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(error) if error.kind == StoreErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Lists all objects below the folder `prefix` (empty: all objects), in byte order of the keys.
    ///
    /// Stores return listings in different orders, so the result is sorted here.
    ///
    /// # Errors
    /// Any error, after all retries. A listing that fails partway is restarted.
    pub async fn list(&self, prefix: &str) -> Result<Vec<Listed>, StoreError> {
        let path = path_of("list", prefix)?;
        let mut found: Vec<Listed> = self
            .retrying("list", prefix, || {
                timely(self.objects.list(Some(&path)).map_ok(listed).try_collect())
            })
            .await
            .or_else(none_if_missing)?;
        found.sort_unstable();
        check_sizes(prefix, &found)?;
        Ok(found)
    }

    /// Lists the folders directly below `prefix`, by their last component, in byte order. They hold
    /// objects, unless the store [may list others](Store::may_list_empty_folders).
    ///
    /// # Errors
    /// Any error, after all retries.
    pub async fn folders(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        let path = path_of("list", prefix)?;
        let mut found: Vec<String> = self
            .retrying("list", prefix, || async {
                let listing = timely(self.objects.list_with_delimiter(Some(&path))).await?;
                Ok(listing
                    .common_prefixes
                    .iter()
                    .filter_map(|p| p.filename().map(str::to_owned))
                    .collect())
            })
            .await
            .or_else(none_if_missing)?;
        if let Direct::Folder(root) = &self.nature.direct {
            // Another program may have removed the files and left their folders.
            found.retain(|folder| has_file(&root.join(prefix).join(folder)));
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Whether [`Store::folders`] may return folders without objects.
    #[must_use]
    pub fn may_list_empty_folders(&self) -> bool {
        self.nature.empty_folders
    }

    /// Whether no object lies below the folder `prefix`. Reads one page of a listing.
    ///
    /// # Errors
    /// Any error, after all retries.
    pub async fn is_empty_folder(&self, prefix: &str) -> Result<bool, StoreError> {
        if let Direct::Folder(root) = &self.nature.direct {
            return Ok(!has_file(&root.join(prefix)));
        }
        let path = path_of("list", prefix)?;
        self.retrying("list", prefix, || async {
            Ok(self.objects.list(Some(&path)).try_next().await?.is_none())
        })
        .await
    }

    /// Deletes one object. A missing object counts as success.
    ///
    /// # Errors
    /// Any error, after all retries.
    pub async fn delete(&self, key: &str) -> Result<(), StoreError> {
        let path = path_of("delete", key)?;
        match self.retrying("delete", key, || async { self.objects.delete(&path).await }).await {
            Err(error) if error.kind == StoreErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Deletes many objects, in bulk if the store supports it.
    ///
    /// # Errors
    /// The first failure, after all retries. The other objects may or may not be deleted.
    pub async fn delete_all(&self, keys: Vec<String>) -> Result<(), StoreError> {
        // Small batches where each object is a request: a gate that closes meanwhile stops the
        // rest.
        let at_once = match self.nature.direct {
            Direct::Folder(_) => 16,
            _ => 1000,
        };
        for keys in keys.chunks(at_once) {
            let paths =
                keys.iter().map(|key| path_of("delete", key)).collect::<Result<Vec<_>, _>>()?;
            let Some(first) = keys.first() else { continue };
            self.retrying("delete", first, || async {
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

    pub(crate) async fn start_multipart(
        &self,
        store: &Multiparts,
        key: &str,
        path: &Path,
    ) -> Result<String, StoreError> {
        let options = || match self.nature.attributes_of_parts {
            true => PutMultipartOptions::from(self.nature.attributes.clone()),
            false => PutMultipartOptions::default(),
        };
        self.retrying("start multipart", key, || store.0.create_multipart_opts(path, options()))
            .await
    }

    /// Lists unfinished multipart uploads whose keys begin with `prefix`, including those of runs
    /// in progress; in a folder, staging files. Azure has none to abort.
    ///
    /// # Errors
    /// Any error, after all retries.
    pub async fn unfinished_uploads(&self, prefix: &str) -> Result<Vec<Unfinished>, StoreError> {
        let mut found = self
            .retrying("list uploads", prefix, || {
                timely(async {
                    let (mut found, mut after) = (Vec::new(), None);
                    loop {
                        let (page, next) = self.nature.direct.page(prefix, after.as_ref()).await?;
                        found.extend(page);
                        if next.is_none() {
                            return Ok(found);
                        }
                        after = next;
                    }
                })
            })
            .await?;
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// Removes an unfinished upload. A missing upload counts as success.
    ///
    /// # Errors
    /// Any error, after all retries.
    pub async fn abort(&self, upload: &Unfinished) -> Result<(), StoreError> {
        let path = path_of("abort", &upload.key)?;
        let outcome = match (&self.multipart, &self.nature.direct) {
            (_, Direct::Folder(root)) => {
                let file = root.join(format!("{}#{}", upload.key, upload.id));
                match std::fs::remove_file(file) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        let kind = StoreErrorKind::Rejected;
                        Err(StoreError::new("abort", &upload.key, kind, error.to_string()))
                    }
                    _ => Ok(()),
                }
            }
            (Some(store), _) => {
                self.retrying("abort", &upload.key, || store.0.abort_multipart(&path, &upload.id))
                    .await
            }
            (None, _) => Ok(()),
        };
        match outcome {
            Err(error) if error.kind == StoreErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Waits until `bytes` may move, if the HTTP client does not apply the rate limit.
    pub(crate) async fn keep_to_rate(&self, bytes: usize) {
        if let Some(rate) = &self.nature.rate {
            tokio::time::sleep_until(rate.reserve(bytes)).await;
        }
    }

    pub(crate) async fn put_part(
        &self,
        store: &Multiparts,
        key: &str,
        (path, id): (&Path, &String),
        index: usize,
        payload: PutPayload,
    ) -> Result<PartId, StoreError> {
        self.retrying("put part", key, || store.0.put_part(path, id, index, payload.clone())).await
    }

    pub(crate) async fn complete(
        &self,
        store: &Multiparts,
        key: &str,
        (path, id): (&Path, &String),
        parts: Vec<PartId>,
        size: u64,
    ) -> Result<Option<String>, StoreError> {
        let outcome = self
            .retrying("complete", key, || {
                let parts = parts.clone();
                async move { Ok(store.0.complete_multipart(path, id, parts).await?.e_tag) }
            })
            .await;
        match outcome {
            Ok(tag) => Ok(tag),
            Err(error) if error.kind == StoreErrorKind::Fenced => Err(error),
            // The response was lost: the store may have completed the upload and forgotten its ID.
            Err(error) => match self.size(key).await {
                Ok(Some(found)) if found == size => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// Runs `attempt` until it succeeds, fails for good, or reaches the retry limits. All
    /// operations may be repeated: data keys belong to one run, and [`Store::create`] reads back.
    pub(crate) async fn retrying<T, F, Fut>(
        &self,
        operation: &'static str,
        key: &str,
        attempt: F,
    ) -> Result<T, StoreError>
    where
        F: Fn() -> Fut,
        Fut: Future<Output = object_store::Result<T>>,
    {
        self.trying(operation, key, Answer::default, attempt).await
    }

    /// Like [`Store::retrying`], for a request whose response has at most `most` bytes of an
    /// object.
    pub(crate) async fn reading<T, F, Fut>(
        &self,
        operation: &'static str,
        key: &str,
        most: u64,
        attempt: F,
    ) -> Result<T, StoreError>
    where
        F: Fn() -> Fut,
        Fut: Future<Output = object_store::Result<T>>,
    {
        self.trying(operation, key, || Answer::reading(most), attempt).await
    }

    async fn trying<T, F, Fut>(
        &self,
        operation: &'static str,
        key: &str,
        answer: impl Fn() -> Answer,
        attempt: F,
    ) -> Result<T, StoreError>
    where
        F: Fn() -> Fut,
        Fut: Future<Output = object_store::Result<T>>,
    {
        let mut tries = 0;
        let mut failing_since = None;
        loop {
            if changes(operation) {
                self.pass().await?;
            }
            tries += 1;
            let (outcome, asked) = ANSWER
                .scope(answer(), async {
                    let outcome = self.attempted(operation, attempt()).await;
                    let about = self.context();
                    ANSWER.with(|answer| {
                        let judged =
                            outcome.map_err(|error| judge(&error, answer, &self.policy, about));
                        (judged, answer.retry_after.get())
                    })
                })
                .await;
            let verdict = match outcome {
                Ok(value) => return Ok(value),
                Err(verdict) => verdict,
            };
            let failed = StoreError::new(operation, key, verdict.kind, verdict.message)
                .with_attempts(tries)
                .with_hint(verdict.hint);
            let since = failing_since.get_or_insert_with(Instant::now).elapsed();
            let left = self.policy.patience(tries, since, self.traffic.reached());
            if !verdict.again || left.is_some_and(|left| left.is_zero()) {
                return Err(failed);
            }
            let pause = self.policy.pause(tries, asked, jitter());
            // The last try starts when the time limit is reached, not after it.
            let pause = left.map_or(pause, |left| pause.min(left));
            notice::retry(&failed, pause);
            let mut giving_up = self.giving_up.clone();
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                // A dropped sender can no longer give up.
                Ok(_) = giving_up.wait_for(|up| *up) => return Err(failed),
            }
            self.traffic.count_retry();
        }
    }

    fn context(&self) -> RetryContext {
        let local = clock::seconds(SystemTime::now());
        let heard = self.traffic.heard();
        RetryContext {
            refreshable: self.nature.refreshable,
            let_in: self.traffic.let_in(),
            reached: self.traffic.reached(),
            clock_ahead: heard.map(|heard| local.saturating_sub(heard.now())),
        }
    }
}

/// Ends a listing that takes too long.
async fn timely<T>(
    listing: impl Future<Output = object_store::Result<T>>,
) -> object_store::Result<T> {
    match tokio::time::timeout(LISTING_TIME, listing).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Excess::ListingTime.into()),
    }
}

/// Whether a request of this name has to pass the gate. Aborting one's own upload is always safe.
fn changes(operation: &str) -> bool {
    !matches!(operation, "get" | "head" | "list" | "list uploads" | "abort")
}

/// Maximum number of repetitions of a create-only write that met a concurrent write.
pub(crate) const CONFLICTS: u32 = 5;

const NO_LINKS: &str =
    "a local store needs a file system with hard links: use a folder on another one";

/// Error of a store that keeps refusing to create an object that does not exist.
pub(crate) fn cannot_create(key: &str, refused: &StoreError) -> StoreError {
    let message =
        format!("the store refuses to create the object, which does not exist ({refused})");
    StoreError::new("create", key, StoreErrorKind::Rejected, message)
        .with_hint(Some("it may not support conditional writes: try --s3-provider=plain".into()))
}

fn none_if_missing<T>(error: StoreError) -> Result<Vec<T>, StoreError> {
    // A missing folder lists as empty, as a missing prefix does.
    if error.kind == StoreErrorKind::NotFound && error.operation == "list" {
        Ok(Vec::new())
    } else {
        Err(error)
    }
}

/// Whether a folder or one of its folders holds a file. A folder that cannot be read counts as if
/// it does.
fn has_file(folder: &std::path::Path) -> bool {
    let entries = match std::fs::read_dir(folder) {
        Err(error) => return error.kind() != std::io::ErrorKind::NotFound,
        Ok(entries) => entries,
    };
    for entry in entries {
        let Ok(entry) = entry else { return true };
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && !has_file(&entry.path()) => {}
            _ => return true,
        }
    }
    false
}

fn listed(meta: object_store::ObjectMeta) -> Listed {
    Listed {
        key: meta.location.to_string(),
        size: meta.size,
        modified: meta.last_modified.timestamp(),
        tag: meta.e_tag,
    }
}

/// Checks that the sizes of a listing can be added: callers do, and a store may state any size.
fn check_sizes(prefix: &str, listing: &[Listed]) -> Result<(), StoreError> {
    let mut total = 0_u64;
    for listed in listing {
        total = total.checked_add(listed.size).ok_or_else(|| {
            let what = format!("the size of {} cannot be true: {} bytes", listed.key, listed.size);
            StoreError::new("list", prefix, StoreErrorKind::Damaged, what)
        })?;
    }
    Ok(())
}

/// Returns the store's path for a key. Nothing is escaped, so that stock tools find the object.
pub(crate) fn path_of(operation: &'static str, key: &str) -> Result<Path, StoreError> {
    Path::parse(key).map_err(|error| {
        StoreError::new(
            operation,
            key,
            StoreErrorKind::Rejected,
            format!("not a usable key: {error}"),
        )
    })
}

/// Returns a number from 0 to 1 that differs between processes, or 0.5 without randomness.
pub(crate) fn jitter() -> f64 {
    let mut bytes = [0; 2];
    match getrandom::fill(&mut bytes) {
        Ok(()) => f64::from(u16::from_le_bytes(bytes)) / f64::from(u16::MAX),
        Err(_) => 0.5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_no_sum_can_hold_are_refused() {
        let listed = |key: &str, size| Listed { key: key.into(), size, modified: 0, tag: None };
        assert!(check_sizes("p", &[listed("a", u64::MAX - 1), listed("b", 1)]).is_ok());
        let error = check_sizes("p", &[listed("a", u64::MAX), listed("b", 1)]).unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Damaged);
        assert!(error.to_string().contains("the size of b"), "{error}");
    }
}
