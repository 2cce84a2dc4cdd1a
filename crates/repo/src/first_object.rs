//! Checks that the objects which a restore reads first exist: the first data object of a backup, and the keys of a sealed one.

use xb_pipeline::object_key;

use crate::error::RepoError;
use crate::list_line::Listing;
use crate::manifest::{Layout, Manifest};
use crate::names::{BackupName, KEYS, is_data_object, of_classic};
use crate::root::Root;

/// Objects of a run that one page of a listing shows for sure, without those beside its data.
const ONE_PAGE: u64 = 990;
/// Listings that have to agree with a request by key before an object counts as lost.
const LISTINGS: usize = 2;

/// What is lost of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    /// All data objects.
    All,
    /// The first data object. Others are there.
    First,
    /// The keys of a sealed backup.
    Keys,
}

/// The facts about a backup that tell what it begins with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Needed<'a> {
    /// The run, if it is packed.
    run: Option<&'a str>,
    is_sealed: bool,
    objects: u64,
}

impl<'a> From<&'a Manifest> for Needed<'a> {
    fn from(of: &'a Manifest) -> Self {
        let run = Some(&*of.run).filter(|_| of.layout == Layout::Packed);
        Self { run, is_sealed: of.is_sealed(), objects: of.objects }
    }
}

impl<'a> From<&'a Listing> for Needed<'a> {
    fn from(of: &'a Listing) -> Self {
        let run = of.run.as_deref().filter(|_| of.layout == Some(Layout::Packed));
        Self { run, is_sealed: !of.key_slots.is_empty(), objects: of.objects.unwrap_or_default() }
    }
}

/// Returns what a backup has lost of what its restore begins with, as far as one or two requests show. An object counts as
/// lost only if a request by its key and two listings agree; of a classic backup, whose keys are not known, if two
/// listings show no data at all.
pub(crate) async fn lost(
    root: &Root,
    name: &BackupName,
    needed: impl Into<Needed<'_>>,
) -> Result<Option<Lost>, RepoError> {
    let needed = needed.into();
    let Some(run) = needed.run else {
        let is_there = async || root.has_object(name.as_str(), of_classic).await;
        return Ok((!is_there().await? && !is_there().await?).then_some(Lost::All));
    };
    let (keys, first) = (root.run_keys(name, run), object_key(0));
    let mut absent = vec![&*first];
    absent.extend(needed.is_sealed.then_some(KEYS));
    let mut has_data = false;
    let mut look = async |absent: &mut Vec<&str>| {
        let listed = root.list_below(keys.folder()).await?;
        has_data |= listed.iter().any(|object| is_data_object(&object.key));
        absent.retain(|object| listed.iter().all(|listed| listed.key != *object));
        Ok::<_, RepoError>(())
    };
    // One request shows both.
    if needed.is_sealed && needed.objects < ONE_PAGE {
        look(&mut absent).await?;
    }
    let mut unseen = Vec::new();
    for object in absent {
        if !is_there(root, &keys.at(object)).await? {
            unseen.push(object);
        }
    }
    for _ in 0..LISTINGS {
        if !unseen.is_empty() {
            look(&mut unseen).await?;
        }
    }
    Ok(match unseen.first() {
        None => None,
        Some(_) if !has_data => Some(Lost::All),
        Some(&KEYS) => Some(Lost::Keys),
        Some(_) => Some(Lost::First),
    })
}

/// Returns whether an object exists. Costs less than a listing.
async fn is_there(root: &Root, key: &str) -> Result<bool, RepoError> {
    match root.store().size(key).await.map_err(RepoError::from) {
        Ok(size) => Ok(size.is_some()),
        Err(error) if error.is_of_one_object() => Ok(true),
        Err(error) => Err(error),
    }
}
