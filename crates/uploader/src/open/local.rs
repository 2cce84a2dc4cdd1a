//! A folder as a store.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use object_store::local::LocalFileSystem;

use object_store::{Attributes, TagSet};

use crate::error::{StoreError, StoreErrorKind, root_message};
use crate::open::client::no_tags;
use crate::operation::Operation;
use crate::policy::Policy;
use crate::request::http::Traffic;
use crate::request::rate::RateLimit;
use crate::request::raw_request::RawApi;
use crate::service::NO_ACCESS;
use crate::settings::StoreSettings;
use crate::settings::location::Location;
use crate::settings::provider::StoreLimits;
use crate::store::direct_folder::DirectFolder;
use crate::store::opened_folder::OpenedFolder;
use crate::store::{Store, StoreTraits};

pub(crate) fn open(
    root: &Location,
    settings: &StoreSettings,
    policy: Policy,
    create: bool,
) -> Result<(Store, String), StoreError> {
    let folder = format!("/{}", root.path);
    if !settings.tags.is_empty() {
        let message = root_message(&*no_tags("a local directory"));
        return Err(StoreError::new(Operation::Open, &folder, StoreErrorKind::Settings, message));
    }
    if create {
        create_folder(&folder)?;
    }
    if std::fs::metadata(&folder).is_ok_and(|found| !found.is_dir()) {
        return Err(StoreError::new(
            Operation::Open,
            &folder,
            StoreErrorKind::Rejected,
            "it is a file, not a directory",
        )
        .with_hint(Some("name the directory that holds the backups".into())));
    }
    let store = LocalFileSystem::new_with_prefix(&folder)
        .map_err(|error| refused(&folder, root_message(&error)))?
        // Content and names are on disk when a put returns, as in any remote store.
        .with_fsync(true)
        // Remote stores have no empty folders.
        .with_automatic_cleanup(true);
    let opened = OpenedFolder::new(Path::new(&folder))
        .map_err(|error| refused(&folder, error.to_string()))?;
    let traits = StoreTraits {
        limits: StoreLimits::S3,
        protection: "the file system; synced before a file gets its name",
        conditions: true,
        refreshable: false,
        attributes: Attributes::default(),
        attributes_of_parts: false,
        tags: TagSet::default(),
        raw_api: RawApi::Folder(folder.clone().into()),
        rate: settings.http.limit_rate.map(|rate| Arc::new(RateLimit::new(rate))),
        // A hard link is not a copy: both names would share one file.
        copies: false,
        empty_folders: false,
        opened: Some(Arc::new(opened)),
    };
    let store =
        Store::new(Arc::new(DirectFolder::new(store)), None, traits, policy, Traffic::default());
    Ok((store, String::new()))
}

/// The error for a folder that cannot be opened.
fn refused(folder: &str, message: String) -> StoreError {
    match message.contains("os error 13") {
        true => StoreError::new(Operation::Open, folder, StoreErrorKind::Denied, message)
            .with_hint(Some(NO_ACCESS.into())),
        false => StoreError::new(Operation::Open, folder, StoreErrorKind::NotFound, message).with_hint(Some(
            "check the path, and that its file system is mounted; `init` creates a missing directory".into(),
        )),
    }
}

/// Creates a missing folder, but not its parent: if that is missing too, the path has a mistake, or
/// a file system is not mounted, and the backup would end up on the wrong disk.
fn create_folder(folder: &str) -> Result<(), StoreError> {
    match std::fs::create_dir(folder) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let parent = Path::new(folder).parent().unwrap_or(Path::new("/")).display();
            let hint = format!(
                "check the path, and that its file system is mounted; if both are right, create {parent}"
            );
            let message = format!("its parent directory {parent} does not exist");
            Err(StoreError::new(Operation::Open, folder, StoreErrorKind::NotFound, message)
                .with_hint(Some(hint.into())))
        }
        Err(error) => {
            let (kind, hint) = match error.kind() {
                ErrorKind::PermissionDenied => (StoreErrorKind::Denied, NO_ACCESS),
                // A file where a directory is expected, a read-only or a full file system.
                _ => (
                    StoreErrorKind::Rejected,
                    "name a directory on a file system with room that this user can write to",
                ),
            };
            Err(StoreError::new(Operation::Create, folder, kind, error.to_string())
                .with_hint(Some(hint.into())))
        }
    }
}
