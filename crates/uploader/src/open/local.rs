//! A folder as a store.

use std::sync::Arc;

use object_store::Attributes;
use object_store::local::LocalFileSystem;

use crate::error::{StoreError, StoreErrorKind, root_message};
use crate::request::http::Traffic;
use crate::request::rate::RateLimit;
use crate::request::raw_request::Direct;
use crate::retry::policy::Policy;
use crate::settings::StoreSettings;
use crate::settings::location::Location;
use crate::settings::provider::StoreLimits;
use crate::store::{Store, StoreTraits};

pub(crate) fn open(
    root: &Location,
    settings: &StoreSettings,
    policy: Policy,
    create: bool,
) -> Result<(Store, String), StoreError> {
    let folder = format!("/{}", root.path);
    let refused =
        |message: String| StoreError::new("open", &folder, StoreErrorKind::NotFound, message);
    if create {
        std::fs::create_dir_all(&folder).map_err(|error| refused(error.to_string()))?;
    }
    let store = LocalFileSystem::new_with_prefix(&folder)
        .map_err(|error| refused(root_message(&error)))?
        // Content and names are on disk when a put returns, as in any remote store.
        .with_fsync(true)
        // Remote stores have no empty folders.
        .with_automatic_cleanup(true);
    let nature = StoreTraits {
        limits: StoreLimits::S3,
        protection: "the file system; synced before a file gets its name",
        conditions: true,
        refreshable: false,
        attributes: Attributes::default(),
        attributes_of_parts: false,
        direct: Direct::Folder(folder.clone().into()),
        rate: settings.http.limit_rate.map(|rate| Arc::new(RateLimit::new(rate))),
        // A hard link is not a copy: both names would share one file.
        copies: false,
        empty_folders: false,
    };
    let store = Store::new(Arc::new(store), None, nature, policy, Traffic::default());
    Ok((store, String::new()))
}
