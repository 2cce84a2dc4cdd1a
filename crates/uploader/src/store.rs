//! One store, with retry in one place.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

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

use crate::direct::Direct;
use crate::error::{StoreError, StoreErrorKind};
use crate::gate::Gate;
use crate::http::{ANSWER, Answer, Traffic};
use crate::policy::Policy;
use crate::provider::StoreLimits;
use crate::rate::RateLimit;
use crate::retry::{Circumstances, judge};
use crate::unfinished::Unfinished;

/// An object as a listing shows it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// The whole key.
    pub key: String,
    /// Its size in bytes.
    pub size: u64,
    /// When it was last written, seconds since 1970.
    pub modified: i64,
    /// The store's own mark of these bytes (`ETag`), where it gives one.
    pub tag: Option<String>,
}

/// A store and how we treat it. Clones are cheap and share client and counters.
#[derive(Debug, Clone)]
pub struct Store {
    pub(crate) objects: Arc<dyn ObjectStore>,
    pub(crate) multipart: Option<Multiparts>,
    pub(crate) nature: Arc<Nature>,
    pub(crate) policy: Policy,
    traffic: Traffic,
    /// Becomes true when nothing is worth another try.
    giving_up: watch::Receiver<bool>,
    /// What every request that changes something has to pass.
    gate: Option<Arc<dyn Gate>>,
}

/// What a store is like, and how objects go there.
#[derive(Debug)]
pub(crate) struct Nature {
    pub(crate) limits: StoreLimits,
    /// What protects bodies on their way, in words.
    pub(crate) protection: &'static str,
    /// Whether a create-only write can be asked for.
    pub(crate) conditions: bool,
    /// Whether another try may find fresh credentials.
    pub(crate) refreshable: bool,
    /// Storage class of data objects. What is read again soon stays in the bucket's own.
    pub(crate) attributes: Attributes,
    /// Whether uploads in parts take them too.
    pub(crate) attributes_of_parts: bool,
    pub(crate) direct: Direct,
    /// The rate, where no HTTP client keeps to it.
    pub(crate) rate: Option<Arc<RateLimit>>,
    /// Whether it copies objects by itself, with all that a put would give them.
    pub(crate) copies: bool,
}

/// Wraps the trait object, which has no `Debug` of its own.
#[derive(Clone)]
pub(crate) struct Multiparts(pub(crate) Arc<dyn MultipartStore>);

impl std::fmt::Debug for Multiparts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Multiparts")
    }
}

impl Store {
    /// A store over any client; `multipart` where parts can be sent by number.
    pub(crate) fn new(
        objects: Arc<dyn ObjectStore>,
        multipart: Option<Arc<dyn MultipartStore>>,
        nature: Nature,
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
        }
    }

    /// The same store behind a gate: each try of a request that changes something passes it first.
    #[must_use]
    pub fn gated(&self, gate: Arc<dyn Gate>) -> Self {
        Self { gate: Some(gate), ..self.clone() }
    }

    /// The same store without a gate.
    #[must_use]
    pub fn ungated(&self) -> Self {
        Self { gate: None, ..self.clone() }
    }

    /// Passes the gate, where there is one.
    pub(crate) async fn pass(&self) -> Result<(), StoreError> {
        match &self.gate {
            Some(gate) => gate.pass().await,
            None => Ok(()),
        }
    }

    /// The same store for one who may give up: from then on nothing is tried again, and pauses
    /// between tries end. Requests on their way are not broken off.
    pub(crate) fn until(&self, giving_up: watch::Receiver<bool>) -> Self {
        Self { giving_up, ..self.clone() }
    }

    /// The same store for one who cleans up after a failure: a few quick tries, nothing more.
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

    /// Whether a create-only write is refused by the store itself where something stands.
    #[must_use]
    pub fn has_conditions(&self) -> bool {
        self.nature.conditions
    }

    /// Sizes and numbers of parts that the store takes.
    #[must_use]
    pub fn limits(&self) -> StoreLimits {
        self.nature.limits
    }

    /// What protects the bytes of an object on their way into the store, in words for a report.
    #[must_use]
    pub fn protection(&self) -> &'static str {
        self.nature.protection
    }

    /// Counters of all that passed through this store.
    #[must_use]
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Writes an object, replacing what is there. Safe to repeat.
    ///
    /// It gets the bucket's own storage class, whatever class was asked for: that is for data objects,
    /// which a [`crate::PartSender`] sends.
    ///
    /// # Errors
    /// [`StoreError`] after all retries.
    pub async fn put(&self, key: &str, payload: PutPayload) -> Result<(), StoreError> {
        self.put_with(key, payload, PutOptions::default).await.map(drop)
    }

    /// As [`Store::put`], for a data object. Gives the store's mark of the bytes.
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

    /// Writes an object only if nothing stands there.
    ///
    /// The answer to such a write can get lost after the store has acted, and a store may ignore
    /// the condition or know none. So after any doubt, and after success too, what stands there is
    /// read back: our bytes mean that we have won. (Without conditions two who write in the same
    /// moment both look first; then the later one wins, and the other one is told so.)
    ///
    /// # Errors
    /// [`StoreErrorKind::AlreadyExists`] when other bytes stand there; others after all retries.
    pub async fn create(&self, key: &str, content: Bytes) -> Result<(), StoreError> {
        let path = path_of("create", key)?;
        let taken = || {
            let message = "another object stands there already";
            StoreError::new("create", key, StoreErrorKind::AlreadyExists, message)
        };
        let mut conflicts = 0;
        loop {
            let mode = if self.nature.conditions {
                PutMode::Create
            } else if self.size(key).await?.is_some() {
                return if self.get(key).await? == content { Ok(()) } else { Err(taken()) };
            } else {
                PutMode::Overwrite
            };
            let outcome = self
                .retrying("create", key, || async {
                    let options = PutOptions::from(mode.clone());
                    self.objects.put_opts(&path, content.clone().into(), options).await.map(drop)
                })
                .await;
            match (self.get(key).await, outcome) {
                (Ok(found), _) if found == content => return Ok(()),
                (Ok(_), _) => return Err(taken()),
                // Refused for a conflict with another one who did not write either (S3 says 409).
                (Err(gone), Err(refused))
                    if gone.kind == StoreErrorKind::NotFound
                        && refused.kind == StoreErrorKind::AlreadyExists
                        && conflicts < CONFLICTS =>
                {
                    conflicts += 1;
                    tokio::time::sleep(self.policy.pause(conflicts, None, jitter())).await;
                }
                // Not there after a refusal: the refusal is the cause. Not there after success
                // cannot be taken for success either.
                (Err(read_back), outcome) => return Err(outcome.err().unwrap_or(read_back)),
            }
        }
    }

    /// Reads a whole object.
    ///
    /// # Errors
    /// [`StoreErrorKind::NotFound`] when there is none; others after all retries.
    pub async fn get(&self, key: &str) -> Result<Bytes, StoreError> {
        let path = path_of("get", key)?;
        self.retrying("get", key, || async { self.objects.get(&path).await?.bytes().await }).await
    }

    /// Reads a range of an object that must have `size` bytes; what comes back has exactly the
    /// length asked for.
    ///
    /// # Errors
    /// [`StoreErrorKind::Damaged`] when the object has another size; others after all retries.
    pub async fn get_range(
        &self,
        key: &str,
        range: Range<u64>,
        size: u64,
    ) -> Result<Bytes, StoreError> {
        let path = path_of("get", key)?;
        let wanted = range.end - range.start;
        let (found, bytes) = self
            .retrying("get", key, || async {
                self.keep_to_rate(usize::try_from(wanted).unwrap_or(usize::MAX)).await;
                let range = Some(GetRange::Bounded(range.clone()));
                let options = GetOptions { range, ..GetOptions::default() };
                let answer = self.objects.get_opts(&path, options).await?;
                Ok((answer.meta.size, answer.bytes().await?))
            })
            .await?;
        // The store tells it with every range: it costs no request.
        if found != size {
            let message = format!("the object has {found} bytes, not {size}");
            return Err(StoreError::new("get", key, StoreErrorKind::Damaged, message));
        }
        if bytes.len() as u64 != wanted {
            let message = format!(
                "bytes {}..{} were asked for, {} came: the object is too short",
                range.start,
                range.end,
                bytes.len()
            );
            return Err(StoreError::new("get", key, StoreErrorKind::Damaged, message));
        }
        Ok(bytes)
    }

    /// Whether objects of at most [`Store::MAX_COPY`] bytes may be copied by the store itself.
    #[must_use]
    pub fn copies(&self) -> bool {
        self.nature.copies
    }

    /// The largest object that one request copies, in bytes ("CopyObject": 5 GiB).
    pub const MAX_COPY: u64 = 5 << 30;

    /// Has the store copy an object within the bucket, replacing what is there. Safe to repeat.
    ///
    /// # Errors
    /// [`StoreErrorKind::NotFound`] when there is none; others after all retries.
    pub async fn copy(&self, from: &str, to: &str) -> Result<(), StoreError> {
        let (source, target) = (path_of("copy", from)?, path_of("copy", to)?);
        self.retrying("copy", from, || async { self.objects.copy(&source, &target).await }).await
    }

    /// Size of an object, or `None` when there is none.
    ///
    /// # Errors
    /// Anything but "not there", after all retries.
    pub async fn size(&self, key: &str) -> Result<Option<u64>, StoreError> {
        let path = path_of("head", key)?;
        match self.retrying("head", key, || async { self.objects.head(&path).await }).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(error) if error.kind == StoreErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Everything below the folder `prefix` (empty: everything), in byte order of the keys.
    ///
    /// Stores do not agree on the order of a listing, so it is sorted here.
    ///
    /// # Errors
    /// After all retries; a listing that fails half way is started over.
    pub async fn list(&self, prefix: &str) -> Result<Vec<Listed>, StoreError> {
        let path = path_of("list", prefix)?;
        let mut found: Vec<Listed> = self
            .retrying("list", prefix, || async {
                self.objects.list(Some(&path)).map_ok(listed).try_collect().await
            })
            .await
            .or_else(none_if_missing)?;
        found.sort_unstable();
        Ok(found)
    }

    /// The folders directly below `prefix`, by their last component, in byte order.
    ///
    /// # Errors
    /// After all retries.
    pub async fn folders(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        let path = path_of("list", prefix)?;
        let mut found: Vec<String> = self
            .retrying("list", prefix, || async {
                let listing = self.objects.list_with_delimiter(Some(&path)).await?;
                Ok(listing
                    .common_prefixes
                    .iter()
                    .filter_map(|p| p.filename().map(str::to_owned))
                    .collect())
            })
            .await
            .or_else(none_if_missing)?;
        found.sort_unstable();
        Ok(found)
    }

    /// Removes one object; none there is success.
    ///
    /// # Errors
    /// After all retries.
    pub async fn delete(&self, key: &str) -> Result<(), StoreError> {
        let path = path_of("delete", key)?;
        match self.retrying("delete", key, || async { self.objects.delete(&path).await }).await {
            Err(error) if error.kind == StoreErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Removes many objects, in bulk where the store can.
    ///
    /// # Errors
    /// The first failure, after all retries; the others may or may not be gone.
    pub async fn delete_all(&self, keys: Vec<String>) -> Result<(), StoreError> {
        // Few at a time where each is a request: a gate that closes meanwhile stops the rest.
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

    /// Uploads in parts whose keys begin with `prefix` and that were begun and never ended, those of
    /// runs in progress among them; in a folder, staging files. Azure has none to abort.
    ///
    /// # Errors
    /// After all retries.
    pub async fn unfinished_uploads(&self, prefix: &str) -> Result<Vec<Unfinished>, StoreError> {
        let mut found = Vec::new();
        let mut after = None;
        loop {
            let (page, next) = self
                .retrying("list uploads", prefix, || {
                    self.nature.direct.page(prefix, after.as_ref())
                })
                .await?;
            found.extend(page);
            // A store that gives the same marker again would have us go round for ever.
            if next.is_none() || next == after {
                found.sort_unstable();
                found.dedup();
                return Ok(found);
            }
            after = next;
        }
    }

    /// Removes what is left of an upload that was never ended; none there any more is success.
    ///
    /// # Errors
    /// After all retries.
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

    /// Waits until `bytes` may move, where that is not the HTTP client's business.
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
            // A lost answer: the store may have completed it and forgotten the id.
            Err(error) => match self.size(key).await {
                Ok(Some(found)) if found == size => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// Runs `attempt` until it succeeds, fails for good, or patience is at its end. All our
    /// operations may be repeated: data keys are ours alone, and [`Store::create`] reads back.
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
        let mut tries = 0;
        let mut failing_since = None;
        loop {
            if changes(operation) {
                self.pass().await?;
            }
            tries += 1;
            let (outcome, asked) = ANSWER
                .scope(Answer::default(), async {
                    let outcome = attempt().await;
                    let about = Circumstances {
                        refreshable: self.nature.refreshable,
                        let_in: self.traffic.let_in(),
                    };
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
            let left = self.policy.patience(tries, since);
            if !verdict.again || left.is_some_and(|left| left.is_zero()) {
                return Err(failed);
            }
            let pause = self.policy.pause(tries, asked, jitter());
            let mut giving_up = self.giving_up.clone();
            tokio::select! {
                // The last try comes when the time is up, not after it.
                () = tokio::time::sleep(left.map_or(pause, |left| pause.min(left))) => {}
                // A sender that is gone never gives up.
                Ok(_) = giving_up.wait_for(|up| *up) => return Err(failed),
            }
            self.traffic.count_retry();
        }
    }
}

/// Whether a request of this name has to pass the gate. Ending an upload of one's own hurts nobody.
fn changes(operation: &str) -> bool {
    !matches!(operation, "get" | "head" | "list" | "list uploads" | "abort")
}

/// How often a create-only write that met another one is repeated.
pub(crate) const CONFLICTS: u32 = 5;

fn none_if_missing<T>(error: StoreError) -> Result<Vec<T>, StoreError> {
    // A folder that is not there yet lists as empty, as a prefix does.
    if error.kind == StoreErrorKind::NotFound && error.operation == "list" {
        Ok(Vec::new())
    } else {
        Err(error)
    }
}

fn listed(meta: object_store::ObjectMeta) -> Listed {
    Listed {
        key: meta.location.to_string(),
        size: meta.size,
        modified: meta.last_modified.timestamp(),
        tag: meta.e_tag,
    }
}

/// The store's path for a key, taken as it is: nothing is escaped, so that stock tools find it.
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

/// A number from 0 to 1 that differs between processes; no randomness, half a second.
pub(crate) fn jitter() -> f64 {
    let mut bytes = [0; 2];
    match getrandom::fill(&mut bytes) {
        Ok(()) => f64::from(u16::from_le_bytes(bytes)) / f64::from(u16::MAX),
        Err(_) => 0.5,
    }
}
