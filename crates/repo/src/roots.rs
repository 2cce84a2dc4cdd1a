//! Finds the ROOTs below a place in a store, by listings of folders alone: no listing goes through the objects of a
//! backup.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use tokio::runtime::Handle;
use xb_uploader::ListedObject;

use crate::archive::names::ARCHIVES;
use crate::catalogue::Catalogue;
use crate::error::RepoError;
use crate::names::{CATALOG, RunId};
use crate::root::Root;

/// Number of folders listed concurrently.
const AT_ONCE: usize = 16;
/// Most backups of a ROOT whose folders are searched, too: one that was stored beside a repository by mistake, under its
/// name, must not hide it.
const MAX_NESTED: usize = 3;

/// Most folders and ROOTs that are waited for in vain. Each blocks two threads until the process ends, of the 512 that a
/// runtime has for such work, and none of the others could be read without them.
pub const MAX_SILENT: usize = 128;

/// A ROOT, and what listings have shown of it.
#[derive(Debug, Clone, Default)]
pub struct FoundRoot {
    /// Its path below the place; empty for the place itself.
    pub path: String,
    /// The objects of its catalogue, with keys relative to that.
    pub catalogue: Vec<ListedObject>,
    /// The folders directly below it.
    pub folders: Vec<String>,
    /// Folders among these that are other ROOTs, or hold some.
    pub others: BTreeSet<String>,
}

impl FoundRoot {
    /// Returns whether it has archives of binary logs.
    #[must_use]
    pub fn has_archives(&self) -> bool {
        self.folders.iter().any(|folder| folder == ARCHIVES)
    }
}

/// The folders below ROOT. Those that an earlier listing has shown are enough, unless it lacks one of these names, whose
/// backup may have been made since.
pub(crate) async fn folders(
    root: &Root,
    shown: Option<FoundRoot>,
    names: impl Iterator<Item = &str>,
) -> Result<Vec<String>, RepoError> {
    let Some(FoundRoot { mut folders, others, .. }) = shown else {
        return root.folders_below("").await;
    };
    let names: BTreeSet<&str> = names.collect();
    let there: BTreeSet<&str> = folders.iter().map(String::as_str).collect();
    if !names.is_subset(&there) {
        folders = root.folders_below("").await?;
    }
    // The folder of a backup may hold another ROOT.
    folders.retain(|folder| names.contains(folder.as_str()) || !others.contains(folder));
    Ok(folders)
}

/// The ROOTs below a place.
#[derive(Debug, Default)]
pub struct FoundRoots {
    /// In byte order of their paths.
    pub roots: Vec<FoundRoot>,
    /// Folders that could not be searched, and why.
    pub unread: Vec<(String, RepoError)>,
    /// Folders that were searched.
    pub searched: u64,
    /// Folders that hold further folders, which were not searched because they lie too deep.
    pub too_deep: Vec<String>,
    /// Folders that hold more folders than could be searched, and how many they hold.
    pub too_many: Vec<(String, u64)>,
    /// Folders that have not answered in time.
    pub silent: Vec<String>,
    /// Folders that hold some which were not searched, because [`MAX_SILENT`] others have not answered, and how many.
    pub untried: BTreeMap<String, u64>,
}

/// Limits of a search.
#[derive(Debug, Clone, Copy)]
pub struct SearchLimits {
    /// Folders below the place.
    pub depth: u32,
    /// Most folders to search. Those of one parent are searched all, or none of them; the smallest families come first.
    pub folders: u64,
    /// Time for the listings of one folder.
    pub within: Duration,
}

/// A folder to search.
struct Folder {
    path: String,
    lies: FolderKind,
}

/// Relation of a folder to the one above it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FolderKind {
    /// It lies in a ROOT, and is none of its backups: it may be that of a run, or of other programs.
    InRoot,
    /// It is most likely that of a backup, or of a run, and holds objects.
    Stored,
    /// Neither.
    Elsewhere,
}

/// Result of the search of a folder.
enum Outcome {
    Searched(FolderContents),
    /// It has not answered in time.
    Silent,
    /// Too many others have not answered.
    Untried,
}

/// Content of a folder.
struct FolderContents {
    root: Option<FoundRoot>,
    below: Vec<Folder>,
}

/// Finds the ROOTs below `place`, itself included, as far as `reach`. A ROOT may lie in another one. No single listing decides
/// that a folder is no ROOT, except that of a backup or a run, which is one only by mistake. Those of backups are searched
/// in `place` itself, and in ROOTs with up to three backups: more would cost a listing for each.
///
/// # Errors
/// [`RepoError::Store`] if the place itself cannot be listed; for all others, the folder is among those that could not be
/// searched.
pub async fn roots(place: &Root, reach: SearchLimits) -> Result<FoundRoots, RepoError> {
    let mut found = FoundRoots::default();
    let silent = AtomicUsize::new(0);
    let mut level = vec![Folder { path: String::new(), lies: FolderKind::Elsewhere }];
    for deep in 0..=reach.depth {
        let searches = stream::iter(level)
            .map(|folder| search_in_time(place, folder, reach.within, &silent))
            .buffered(AT_ONCE);
        let all: Vec<_> = searches.collect().await;
        let mut families = Vec::new();
        for (path, searched) in all {
            found.searched += u64::from(!matches!(searched, Ok(Outcome::Untried)));
            let FolderContents { root, below } = match searched {
                Err(error) if path.is_empty() => return Err(error),
                Err(error) => {
                    found.unread.push((path, error));
                    continue;
                }
                Ok(Outcome::Silent) => {
                    found.silent.push(path);
                    continue;
                }
                Ok(Outcome::Untried) => {
                    let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
                    *found.untried.entry(parent.to_owned()).or_default() += 1;
                    continue;
                }
                Ok(Outcome::Searched(searched)) => searched,
            };
            let holds_folders = below.iter().any(|inner| inner.lies != FolderKind::Stored);
            if deep == reach.depth && holds_folders && root.is_none() {
                found.too_deep.push(path.clone());
            }
            found.roots.extend(root);
            families.push((path, below));
        }
        if deep == reach.depth {
            break;
        }
        level = within_limit(families, reach.folders.saturating_sub(found.searched), &mut found);
    }
    found.roots.sort_by(|a, b| a.path.cmp(&b.path));
    separate(&mut found.roots);
    Ok(found)
}

/// The folders of the smallest families, at most `room` of them. Notes the parents of the others.
fn within_limit(
    mut families: Vec<(String, Vec<Folder>)>,
    room: u64,
    found: &mut FoundRoots,
) -> Vec<Folder> {
    families.sort_by_key(|(_, family)| family.len());
    let mut level: Vec<Folder> = Vec::new();
    for (parent, family) in families {
        match (level.len() + family.len()) as u64 {
            number if number <= room => level.extend(family),
            _ => found.too_many.push((parent, family.len() as u64)),
        }
    }
    level
}

/// Searches one folder, not in the runtime's own threads: a mount that hangs blocks the thread that lists it, and no other
/// search. `silent` counts those.
async fn search_in_time(
    place: &Root,
    folder: Folder,
    within: Duration,
    silent: &AtomicUsize,
) -> (String, Result<Outcome, RepoError>) {
    let (place, path, runtime) = (place.clone(), folder.path.clone(), Handle::current());
    if silent.load(Ordering::Relaxed) >= MAX_SILENT {
        return (path, Ok(Outcome::Untried));
    }
    let searching = tokio::task::spawn_blocking(move || runtime.block_on(search(&place, &folder)));
    let searched = match tokio::time::timeout(within, searching).await {
        Err(_) => {
            silent.fetch_add(1, Ordering::Relaxed);
            Ok(Outcome::Silent)
        }
        Ok(Err(_)) => Err(RepoError::Bug("the search of a folder panicked")),
        Ok(Ok(searched)) => searched.map(Outcome::Searched),
    };
    (path, searched)
}

/// Searches one folder.
async fn search(place: &Root, folder: &Folder) -> Result<FolderContents, RepoError> {
    let path = &folder.path;
    let mut folders = place.folders_below(path).await?;
    let is_root = |folders: &[String]| folders.iter().any(|folder| folder == CATALOG);
    if folder.lies == FolderKind::Stored && !is_root(&folders) {
        return Ok(FolderContents { root: None, below: Vec::new() });
    }
    if !is_root(&folders) {
        // Another listing may show more.
        let again = place.folders_below(path).await?;
        let all: BTreeSet<String> = folders.into_iter().chain(again).collect();
        folders = all.into_iter().collect();
    }
    let root = match is_root(&folders) {
        true => {
            let catalogue = place.list_below(&below(path, CATALOG)).await?;
            let (path, others) = (path.clone(), BTreeSet::new());
            Some(FoundRoot { path, catalogue, folders: folders.clone(), others })
        }
        false => None,
    };
    let names = root.as_ref().map(|root| Catalogue::of(&root.catalogue));
    let backups: BTreeSet<String> =
        names.iter().flat_map(Catalogue::names).map(|(name, _)| name.to_string()).collect();
    let searches_backups = path.is_empty() || backups.len() <= MAX_NESTED;
    let mut next = Vec::new();
    for inner in &folders {
        // A run's folder lies in one of a ROOT's own folders. Elsewhere, it is a name like any other.
        let is_run = folder.lies != FolderKind::Elsewhere && RunId::parse(inner).is_some();
        let is_backup = backups.contains(inner);
        let lies = match root.is_some() {
            _ if is_run || is_backup => FolderKind::Stored,
            true => FolderKind::InRoot,
            false => FolderKind::Elsewhere,
        };
        if !inner.starts_with(".xb") && (!is_backup || searches_backups) {
            next.push(Folder { path: below(path, inner), lies });
        }
    }
    Ok(FolderContents { root, below: next })
}

fn below(path: &str, folder: &str) -> String {
    if path.is_empty() { folder.to_owned() } else { format!("{path}/{folder}") }
}

/// Notes in each ROOT which of its folders are others, or hold some.
fn separate(roots: &mut [FoundRoot]) {
    let places: BTreeMap<String, usize> =
        roots.iter().enumerate().map(|(n, root)| (root.path.clone(), n)).collect();
    let mut inner: Vec<(usize, String)> = Vec::new();
    for path in places.keys().filter(|path| !path.is_empty()) {
        let ends = path.match_indices('/').map(|(at, _)| at);
        for outer in std::iter::once("").chain(ends.map(|at| &path[..at])) {
            let Some(n) = places.get(outer) else { continue };
            let rest = path[outer.len()..].trim_start_matches('/');
            let first = rest.split('/').next().unwrap_or_default();
            inner.push((*n, first.to_owned()));
        }
    }
    for (n, folder) in inner {
        roots[n].others.insert(folder);
    }
}
