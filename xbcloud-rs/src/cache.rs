//! The cache of listings on this machine, for commands that only show what is in a ROOT.

use std::path::PathBuf;

use xb_cli::{Failure, env_first};
use xb_repo::list_cache::ListCache;
use xb_repo::root::identity;
use xb_uploader::{Location, StorePlace};

use crate::args::CommonOptions;
use crate::location::{locate, split};
use crate::settings::settings;

/// The cache for listings of a ROOT; `None` for a local directory, and without a home.
pub(crate) fn of_root(
    root: Option<&str>,
    common: &CommonOptions,
) -> Result<Option<ListCache>, Failure> {
    open(locate(root.unwrap_or_default(), &common.store)?, common)
}

/// Like [`of_root`], for the ROOT of a backup.
pub(crate) fn of_backup(name: &str, common: &CommonOptions) -> Result<Option<ListCache>, Failure> {
    open(split(name, &common.store)?.0, common)
}

fn open(
    location: Location,
    CommonOptions { run, store }: &CommonOptions,
) -> Result<Option<ListCache>, Failure> {
    let settings = settings(&location.place, store, run)?;
    Ok(of_identity(&location, &identity(&location, &settings)))
}

/// The cache for listings of a ROOT with this identity.
pub(crate) fn of_identity(location: &Location, identity: &str) -> Option<ListCache> {
    if location.place == StorePlace::Local {
        return None;
    }
    let cache = env_first(&["XDG_CACHE_HOME"]).map(PathBuf::from);
    let home = || Some(PathBuf::from(env_first(&["HOME"])?).join(".cache"));
    let folder = cache.or_else(home).filter(|folder| folder.is_absolute());
    folder.and_then(|folder| ListCache::open(&folder.join("xbcloud-rs/list"), identity))
}
