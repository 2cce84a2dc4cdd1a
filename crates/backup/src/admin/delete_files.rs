//! Removal of single files of a backup in the stock layout, as the stock tool offers it.
//!
//! A backup that lacks files is not complete: its manifest goes first, and the remaining objects
//! count as a stock backup.

use std::collections::BTreeSet;

use xb_repo::chain::refuse_needed;
use xb_repo::claim::mark::Mark;
use xb_repo::claim::{Claim, refuse_living};
use xb_repo::contents::Contents;
use xb_repo::error::RepoError;
use xb_repo::manifest::{Layout, StoredManifest};
use xb_repo::names::{BackupName, RunId, parse_classic_key, sums_folder};
use xb_repo::resolve::KnownManifests;
use xb_repo::root::Root;

use crate::admin::delete::refuse_pinned;
use crate::error::BackupError;
use crate::objects::remove::remove_objects;

/// Removes the objects of these files, by their exact names in the stream, and returns their
/// number. Nothing is removed if one of the files does not exist.
///
/// # Errors
/// [`BackupError::Selection`] for a packed backup or a missing file; otherwise as
/// [`delete_unless_needed`](crate::delete_unless_needed).
pub async fn delete_files(
    root: &Root,
    name: &BackupName,
    files: &[String],
) -> Result<u64, BackupError> {
    root.refuse_links(name)?;
    refuse_living(root, name).await?;
    let root = &root.knowing(&root.catalogue().await?);
    let stored = root.stored_manifest(name).await?;
    let keys = objects_of(root, name, stored.as_ref(), files).await?;
    let count = keys.len() as u64;
    let (claim, root) = match stored {
        Some(stored) => unmade(root, name, &stored).await?,
        None => claimed(root, name).await?,
    };
    root.remove_below(&sums_folder(name)).await?;
    remove_objects(&root, name.as_str(), keys).await?;
    claim.end().await;
    Ok(count)
}

/// Removes the manifest, unless another backup needs it.
async fn unmade(
    root: &Root,
    name: &BackupName,
    stored: &StoredManifest,
) -> Result<(Claim, Root), BackupError> {
    let (run, digest) = (&stored.manifest.run, stored.digest());
    let mark = Mark::set(root, name, Some(run), Some(digest.clone())).await?;
    // Whoever pins the backup now, or commits an increment of it, sees the mark.
    let looked = async {
        refuse_pinned(root, name, Some(&digest)).await?;
        refuse_needed(root, name, &KnownManifests::of(root).await?).await?;
        Ok::<_, BackupError>(mark.leave_stock().await?)
    };
    if let Err(needed) = looked.await {
        mark.withdraw().await;
        return Err(needed);
    }
    Ok(mark.remove_manifest().await?.hold().await?)
}

/// Claims a name that has no manifest.
async fn claimed(root: &Root, name: &BackupName) -> Result<(Claim, Root), BackupError> {
    let (claim, _) = Claim::classic(root, name, RunId::random()?).await?;
    // Another run may have ended since.
    let changed = match root.stored_manifest(name).await {
        Ok(None) => {
            claim.leave_stock().await?;
            let held = claim.hold(root, name).await?;
            return Ok((claim, held));
        }
        Ok(Some(_)) => RepoError::Changed { name: name.to_string() },
        Err(error) => error,
    };
    claim.withdraw().await;
    Err(changed.into())
}

/// Full keys of the objects of these files.
async fn objects_of(
    root: &Root,
    name: &BackupName,
    stored: Option<&StoredManifest>,
    files: &[String],
) -> Result<Vec<String>, BackupError> {
    if stored.is_some_and(|stored| stored.manifest.layout == Layout::Packed) {
        return Err(BackupError::Selection(format!(
            "{name} is packed: its files have no objects of their own"
        )));
    }
    refuse_pinned(root, name, stored.map(StoredManifest::digest).as_deref()).await?;
    let contents = Contents::of(root, name).await?;
    contents.refuse_folder(name)?;
    if contents.classic.is_empty() {
        let state = xb_repo::list::state_without_manifest(root, name).await?;
        return Err(RepoError::NotThere { name: name.to_string(), state }.into());
    }
    let mut missing: BTreeSet<&str> = files.iter().map(String::as_str).collect();
    let mut keys = Vec::new();
    for object in &contents.classic {
        let Some((path, _)) = parse_classic_key(&object.key) else { continue };
        if files.iter().any(|file| file == path) {
            missing.remove(path);
            keys.push(root.classic_keys(name).at(&object.key));
        }
    }
    match missing.first() {
        Some(file) => Err(BackupError::Selection(format!("{name} has no file {file}"))),
        None => Ok(keys),
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use xb_repo::claim::{claims, standing};
    use xb_repo::manifest::{End, Manifest, sample};
    use xb_uploader::{Fault, Faults, Location, Operation, Policy, StorePlace, StoreSettings};

    use super::*;

    fn root(folder: &Path) -> Root {
        let path = folder.to_str().unwrap().trim_start_matches('/').to_owned();
        let location = Location { place: StorePlace::Local, path };
        let mut policy = Policy::default();
        (policy.max_retries, policy.retry_timeout) = (0, std::time::Duration::ZERO);
        Root::open(&location, &StoreSettings::default(), policy, true).unwrap()
    }

    /// A backup `n` in the stock layout, or with `complete` false one of the stock tool.
    async fn backup(folder: &Path, complete: bool) {
        std::fs::create_dir(folder.join("n")).unwrap();
        for file in ["a.ibd", "b.ibd", "xtrabackup_info"] {
            std::fs::write(folder.join(format!("n/{file}.00000000000000000000")), "x").unwrap();
        }
        if complete {
            let end = End::LastFile { name: "xtrabackup_info".into() };
            let name = "n".to_owned();
            let (layout, objects) = (Layout::Classic, 3);
            let classic =
                Manifest { name, layout, objects, packed: None, end, stored_bytes: 3, ..sample() };
            root(folder).commit(&BackupName::new("n").unwrap(), &classic, None).await.unwrap();
        }
    }

    /// Refuses removals once the manifest is gone and the claim is in a phase, as if the process had died then.
    #[derive(Debug)]
    struct Dying(PathBuf, &'static str);

    impl Faults for Dying {
        fn next(&self, operation: Operation) -> Option<Fault> {
            let Self(folder, phase) = self;
            let claims = std::fs::read_dir(folder.join(".xb-catalog/@claims/n"));
            let claims = claims.into_iter().flatten().flatten();
            let mut claims = claims.filter_map(|claim| std::fs::read_to_string(claim.path()).ok());
            let is_in_it = claims.any(|claim| claim.contains(&format!("\"state\":\"{phase}\"")));
            let gone = !folder.join(".xb-catalog/n").exists();
            (operation == Operation::Delete && gone && is_in_it).then_some(Fault::Refused)
        }
    }

    /// Only the named files were to go.
    #[tokio::test]
    async fn what_a_killed_removal_of_files_has_left_is_a_stock_backup() {
        for (complete, phase) in [(true, "removing"), (true, "holding"), (false, "holding")] {
            let folder = tempfile::tempdir().unwrap();
            backup(folder.path(), complete).await;
            let (open, name) = (root(folder.path()), BackupName::new("n").unwrap());
            let dying = open.failing(Arc::new(Dying(folder.path().to_owned(), phase)));
            assert!(delete_files(&dying, &name, &["a.ibd".to_owned()]).await.is_err());
            assert_eq!(open.manifest(&name).await.unwrap(), None);
            let found = standing(&open, &claims(&open, &name).await.unwrap()).await.unwrap();
            let left = Contents::of(&open, &name).await.unwrap().classic;
            assert_eq!(left.len(), 3);
            assert_eq!((found.seen, found.may_own(&left)), (None, false), "{complete} {phase}");
            assert!(found.has_late(open.store().now()));
        }
    }

    #[tokio::test]
    async fn nothing_of_a_backup_behind_a_link_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        backup(folder.path(), true).await;
        std::fs::rename(folder.path().join("n"), folder.path().join("moved")).unwrap();
        std::os::unix::fs::symlink("moved", folder.path().join("n")).unwrap();
        let (open, name) = (root(folder.path()), BackupName::new("n").unwrap());
        let refused = delete_files(&open, &name, &["a.ibd".to_owned()]).await.unwrap_err();
        assert!(refused.to_string().contains("symbolic link"), "{refused}");
        assert!(open.manifest(&name).await.unwrap().is_some());
    }
}
