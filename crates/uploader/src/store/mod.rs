//! Client of a store. Its operations are in the files beside this one; each request runs in the
//! retry loop.

pub(crate) mod bucket_rules;
pub(crate) mod conditions;
pub(crate) mod delete;
mod direct_file;
pub(crate) mod direct_folder;
pub(crate) mod exclusive;
pub(crate) mod faults;
pub(crate) mod fence;
pub(crate) mod folder;
pub(crate) mod folder_lock;
pub(crate) mod guarded;
pub(crate) mod list;
pub(crate) mod object_lock;
pub(crate) mod opened_folder;
pub(crate) mod read;
pub(crate) mod retry_loop;
pub(crate) mod write;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{Attributes, ObjectStore, PutMode, PutOptions, TagSet};
use xb_process::CancelToken;

use crate::error::{StoreError, StoreErrorKind};
use crate::operation::Operation;
use crate::policy::Policy;
use crate::request::clock;
use crate::request::http::Traffic;
use crate::request::rate::RateLimit;
use crate::request::raw_request::RawApi;
use crate::service::Service;
use crate::settings::provider::StoreLimits;
use crate::store::faults::Faults;
use crate::store::fence::Fence;
use crate::store::opened_folder::OpenedFolder;

/// Store with its retry policy. Clones are cheap and share client and counters.
#[derive(Debug, Clone)]
pub struct Store {
    pub(crate) objects: Arc<dyn ObjectStore>,
    pub(crate) multipart: Option<Multiparts>,
    pub(crate) traits: Arc<StoreTraits>,
    pub(crate) policy: Policy,
    traffic: Traffic,
    /// Whether the store obeys the condition of a create-only write, once that is known.
    obeys: Arc<OnceLock<bool>>,
    /// Whether the store has refused its own tags as conditions of a change.
    refuses_tags: Arc<AtomicBool>,
    /// Cancels further tries when they are useless.
    give_up: CancelToken<()>,
    /// The fence that is asked before each try of a request that changes something.
    fence: Option<Arc<dyn Fence>>,
    /// Failures that a test has requested.
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
    /// Tags of every new object.
    pub(crate) tags: TagSet,
    pub(crate) raw_api: RawApi,
    /// Rate limit, for stores whose bytes do not pass through the HTTP client.
    pub(crate) rate: Option<Arc<RateLimit>>,
    /// Whether the store can copy objects with everything that a put would set.
    pub(crate) copies: bool,
    /// Whether a listing by folders may show folders without objects.
    pub(crate) empty_folders: bool,
    /// The folder, if the store is one.
    pub(crate) opened: Option<Arc<OpenedFolder>>,
}

/// Wrapper of the trait object, which has no `Debug` of its own.
#[derive(Clone)]
pub(crate) struct Multiparts(pub(crate) Arc<dyn MultipartStore>);

impl std::fmt::Debug for Multiparts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Multiparts")
    }
}

impl StoreTraits {
    /// Options to write a small object.
    pub(crate) fn put_options(&self, mode: PutMode) -> PutOptions {
        PutOptions { mode, tags: self.tags.clone(), ..PutOptions::default() }
    }

    /// Options to write a data object.
    pub(crate) fn data_options(&self, mode: PutMode) -> PutOptions {
        PutOptions { attributes: self.attributes.clone(), ..self.put_options(mode) }
    }
}

impl Store {
    /// Returns the time by the store's clock, in seconds since 1970: from its last response and from
    /// the last object that [`Store::create`] or [`Store::put_expected`] wrote, or from the timestamp
    /// that a file system gives a new file. Falls back to the local clock if the store reports no time.
    #[must_use]
    pub fn now(&self) -> i64 {
        if let RawApi::Folder(root) = &self.traits.raw_api {
            let dated = tempfile::tempfile_in(root).and_then(|file| file.metadata()?.modified());
            return clock::seconds(dated.unwrap_or_else(|_| SystemTime::now()));
        }
        self.traffic().now().unwrap_or_else(|| clock::seconds(SystemTime::now()))
    }

    /// Creates a store over any client; `multipart` is set if parts can be sent by number.
    pub(crate) fn new(
        objects: Arc<dyn ObjectStore>,
        multipart: Option<Arc<dyn MultipartStore>>,
        traits: StoreTraits,
        policy: Policy,
        traffic: Traffic,
    ) -> Self {
        let multipart = multipart.map(Multiparts);
        Self {
            objects,
            multipart,
            traits: Arc::new(traits),
            policy,
            traffic,
            obeys: Arc::default(),
            refuses_tags: Arc::default(),
            give_up: CancelToken::new(),
            fence: None,
            faults: None,
        }
    }

    /// Returns the same store behind a fence, which is asked before each try of a request that changes
    /// something.
    #[must_use]
    pub fn fenced(&self, fence: Arc<dyn Fence>) -> Self {
        Self { fence: Some(fence), ..self.clone() }
    }

    /// Returns the same store without a fence.
    #[must_use]
    pub fn unfenced(&self) -> Self {
        Self { fence: None, ..self.clone() }
    }

    /// Returns the same store with failures. Only for tests.
    #[must_use]
    pub fn failing(&self, faults: Arc<dyn Faults>) -> Self {
        Self { faults: Some(faults), ..self.clone() }
    }

    /// Returns whether the store is a directory of this machine.
    #[must_use]
    pub fn is_folder(&self) -> bool {
        self.service() == Service::Folder
    }

    /// The kind of service that keeps the objects.
    #[must_use]
    pub fn service(&self) -> Service {
        match &self.traits.raw_api {
            RawApi::S3 { .. } => Service::S3,
            RawApi::Google { .. } => Service::Google,
            RawApi::Azure { .. } => Service::Azure,
            RawApi::Folder(_) => Service::Folder,
        }
    }

    /// Returns the store's limits for sizes and numbers of parts.
    #[must_use]
    pub fn limits(&self) -> StoreLimits {
        self.traits.limits
    }

    /// Describes, for a report, the protection of an object's bytes on their way into the store.
    #[must_use]
    pub fn protection(&self) -> &'static str {
        self.traits.protection
    }

    /// Returns the counters of all requests to this store.
    #[must_use]
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Waits until `bytes` may move, if the HTTP client does not apply the rate limit.
    pub(crate) async fn keep_to_rate(&self, bytes: usize) {
        if let Some(rate) = &self.traits.rate {
            tokio::time::sleep_until(rate.reserve(bytes)).await;
        }
    }
}

/// Returns the store's path for a key. Nothing is escaped, so that stock tools find the object.
pub(crate) fn path_of(operation: Operation, key: &str) -> Result<Path, StoreError> {
    Path::parse(key).map_err(|error| {
        StoreError::new(
            operation,
            key,
            StoreErrorKind::Settings,
            format!("not a usable key: {error}"),
        )
    })
}
