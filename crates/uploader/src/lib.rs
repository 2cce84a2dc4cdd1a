//! Object storage: put, get, list and delete, in parallel and in parts, with one retry loop.
//!
//! This crate knows neither backups nor their formats. [`open`] turns a [`Place`] into a [`Store`];
//! [`PartSender`] takes pieces of objects in order and sends them in parallel.
//!
//! The clients come from the `object_store` crate, with their own retries switched off. [`Store`]
//! is the only place that retries, within the limits of [`Policy`].

mod answer;
mod aws_profile;
mod bounds;
mod bucket;
mod clock;
mod direct;
mod encode;
mod error;
mod exclusive;
mod faults;
mod gate;
mod http;
mod location;
mod lock;
mod message;
mod notice;
mod open;
mod parts;
mod policy;
mod provider;
mod rate;
mod retry;
mod settings;
mod store;
mod transport;
mod unfinished;
mod watch;

pub use bounds::SMALL_OBJECT;
pub use encode::base64;
pub use error::{StoreError, StoreErrorKind};
pub use exclusive::ReadBack;
pub use faults::{Fault, Faults};
pub use gate::Gate;
pub use http::Traffic;
pub use location::{Location, LocationError, Place};
pub use lock::{Lock, LockMode};
pub use notice::report_retries;
pub use open::open;
pub use parts::{PartData, PartSender, Stored, Uploaded};
pub use policy::Policy;
pub use provider::{Provider, StoreLimits, UnknownProvider};
pub use settings::{
    AwsProfile, AzureSettings, BucketLookup, Checksum, ContainerCredentials, Encryption,
    GoogleSettings, HttpSettings, S3Settings, StoreSettings, WebIdentity,
};
pub use store::{Listed, Store};
pub use unfinished::Unfinished;
