//! `list`: lists the backups of a ROOT and their state.

use std::path::PathBuf;

use xb_cli::{Failure, Log, env_first};
use xb_repo::list::Listing;
use xb_repo::list_cache::ListCache;

use crate::args::ListArgs;
use crate::commands::context::Context;
use crate::listing::listing;
use crate::place::{remote_place, root_place};
use crate::report;

impl Context {
    pub(crate) fn list(&self, args: &ListArgs) -> Result<(), Failure> {
        let root = root_place(args.place.as_deref(), &args.common)?;
        let cache = match args.no_cache {
            false => list_cache(args)?,
            true => None,
        };
        let (listings, _) =
            self.with_progress("list", &args.common.run, None, |_, cancel| async move {
                let mut listings =
                    cancel.or(xb_repo::list::list_with(&root, cache.as_ref())).await?;
                if args.long {
                    cancel.or(xb_backup::show_slots(&root, &mut listings)).await?;
                }
                Ok(listings)
            })?;
        report::printed(listing(&listings, args.long, args.common.run.json))?;
        proven(&self.log, &listings);
        Ok(())
    }
}

/// The cache for listings of this ROOT.
fn list_cache(args: &ListArgs) -> Result<Option<ListCache>, Failure> {
    let Some(place) = remote_place(args.place.as_deref(), &args.common)? else {
        return Ok(None);
    };
    let cache = env_first(&["XDG_CACHE_HOME"]).map(PathBuf::from);
    let home = || Some(PathBuf::from(env_first(&["HOME"])?).join(".cache"));
    let folder = cache.or_else(home).filter(|folder| folder.is_absolute());
    Ok(folder.and_then(|folder| ListCache::open(&folder.join("xbcloud-rs/list"), &place)))
}

/// Reports the newest verified backup as an event, for monitoring.
pub(crate) fn proven(log: &Log, listings: &[Listing]) {
    let proven = listings
        .iter()
        .filter(|line| !line.raw)
        .filter(|line| line.is_verified(xb_repo::verification::Level::Checksum));
    let Some(newest) = proven.max_by_key(|line| line.finished) else { return };
    log.event("proven", &serde_json::json!({
        "name": newest.name, "level": newest.verified.and_then(|proof| proof.level), "age_seconds": newest.age_seconds,
        "verified_age_seconds": newest.verified_age_seconds,
    }));
}
