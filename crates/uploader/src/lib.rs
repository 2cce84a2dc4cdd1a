//! Objects in a store: put, get, list, delete, in parallel and in parts, retried in one place.
//!
//! Knows neither backups nor their formats. [`open`] turns a [`Place`] into a [`Store`];
//! [`PartSender`] takes pieces of objects in order and has them sent in parallel.
//!
//! The clients are those of the `object_store` crate, with their own retries switched off:
//! [`Policy`] says how patient [`Store`] is, and that is the only place where anything is tried
//! twice.

mod encode;
mod error;
mod http;
mod location;
mod parts;
mod policy;
mod rate;
mod retry;
mod store;
mod watch;

pub use error::{StoreError, StoreErrorKind};
pub use http::Traffic;
pub use location::{BucketLookup, Location, LocationError, Place, S3Settings, open};
pub use parts::{MAX_PART, MAX_PARTS, MIN_PART, PartData, PartSender, Uploaded};
pub use policy::Policy;
pub use store::{Listed, Store};
