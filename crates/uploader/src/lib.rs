//! Object storage: put, get, list and delete, in parallel and in parts, with one retry loop.
//!
//! This crate knows neither backups nor their formats. [`open`] turns a [`StorePlace`] into a [`Store`];
//! [`PartSender`] takes pieces of objects in order and sends them in parallel.
//!
//! The clients come from the `object_store` crate, with their own retries switched off. [`Store`]
//! is the only place that retries, within the limits of [`Policy`].

mod error;
mod failed_try;
mod multipart;
mod open;
mod operation;
mod policy;
mod request;
mod service;
mod settings;
mod store;

pub use error::{StoreError, StoreErrorKind};
pub use failed_try::notice::{report_retries, report_warnings, warn};
pub use multipart::parts::{EndedRequest, PartData, PartSender, StoredObject, Uploaded};
pub use multipart::unfinished::Unfinished;
pub use open::endpoint::normal_endpoint;
pub use open::open;
pub use operation::Operation;
pub use policy::Policy;
pub use request::bounds::SMALL_OBJECT;
pub use request::encode::base64;
pub use request::http::Traffic;
#[doc(hidden)]
pub use request::listing::check_page;
pub use service::{Permission, Service};
pub use settings::location::{Location, LocationError, StorePlace};
pub use settings::provider::{Provider, StoreLimits, UnknownProvider};
pub use settings::tags::{TagError, Tags};
pub use settings::{
    AwsProfile, AzureSettings, BucketLookup, Checksum, ContainerCredentials, Encryption,
    GoogleSettings, HttpSettings, S3Settings, StoreSettings, WebIdentity,
};
pub use store::Store;
pub use store::bucket_rules::AbortRule;
pub use store::exclusive::ReadBack;
pub use store::faults::{Fault, Faults};
pub use store::fence::{Change, Fence};
pub use store::folder::is_unfinished_file;
pub use store::guarded::{GuardedOutcome, PresentState};
pub use store::list::ListedObject;
pub use store::object_lock::{Lock, LockMode};
pub use store::read::RangeBuffer;
