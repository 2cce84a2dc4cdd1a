//! Names whose backup has lost all its objects to another program: only the manifest is left, and a
//! new backup may take the name.

use xb_pipeline::object_key;
use xb_repo::claim::mark::Mark;
use xb_repo::error::RepoError;
use xb_repo::keys::RunKeys;
use xb_repo::manifest::{End, Layout, Manifest};
use xb_repo::names::{BackupName, classic_key, sums_folder};
use xb_repo::records;
use xb_repo::root::Root;

use crate::error::BackupError;

/// Names of the info file, with which a stream of either fork may end.
const INFO: [&str; 2] = ["xtrabackup_info", "mariadb_backup_info"];
/// Suffixes that the files of a backup may have in the store.
const SUFFIXES: [&str; 8] =
    ["", ".lz4", ".zst", ".qp", ".xbcrypt", ".lz4.xbcrypt", ".zst.xbcrypt", ".qp.xbcrypt"];

/// Returns whether no object of the backup exists. A listing may lag behind or leave objects out, so they
/// are also looked up by key. A backup of which no key is known never counts as vacant, and neither does one behind a
/// symbolic link, or in an empty folder.
pub(crate) async fn is_vacant(
    root: &Root,
    name: &BackupName,
    manifest: &Manifest,
) -> Result<bool, BackupError> {
    // The target of a link may be on a disk that is not mounted now, and an empty folder may be its mount point.
    if root.refuse_links(name).is_err() || root.store().may_be_mount_point(&root.key(name.as_str()))
    {
        return Ok(false);
    }
    let (keys, known): (RunKeys, Vec<String>) = match (manifest.layout, manifest.run_id()) {
        (Layout::Packed, Some(run)) => (root.run_keys(name, run), vec![object_key(0)]),
        (Layout::Packed, None) => return Ok(false),
        (Layout::Classic, _) => (root.classic_keys(name), keys_of_last_file(manifest)),
    };
    if manifest.objects == 0
        || known.is_empty()
        || root
            .list_below(keys.folder())
            .await?
            .iter()
            .any(|object| manifest.layout.has_data(&object.key))
    {
        return Ok(false);
    }
    for key in known {
        if root.store().size(&keys.at(key)).await?.is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Possible keys of the first object of the file that ended the stream.
fn keys_of_last_file(manifest: &Manifest) -> Vec<String> {
    let names: &[&str] = match &manifest.end {
        // The end rule gives both info files one name.
        End::LastFile { name } if name == INFO[0] => &INFO,
        End::LastFile { name } => &[name],
        _ => &[],
    };
    let keys = |name| SUFFIXES.map(|suffix| classic_key(&format!("{name}{suffix}"), 0));
    names.iter().flat_map(keys).collect()
}

/// Removes the manifest and the records of `name` if its backup has no object left. Returns whether
/// the name has no manifest then.
///
/// # Errors
/// [`BackupError::Pinned`]; [`RepoError::Running`] while another run holds the name.
pub(crate) async fn free_if_vacant(root: &Root, name: &BackupName) -> Result<bool, BackupError> {
    let Some(stored) = root.stored_manifest(name).await? else { return Ok(true) };
    let manifest = &stored.manifest;
    if !is_vacant(root, name, manifest).await? {
        return Ok(false);
    }
    let digest = stored.digest();
    let mark = match Mark::set(root, name, Some(&manifest.run), Some(digest.clone())).await {
        Err(RepoError::Changed { .. }) => return Ok(root.manifest(name).await?.is_none()),
        marked => marked?,
    };
    // Under the mark: another run may have freed the name, and committed, since the first look.
    let vacant = async {
        match records::pinned(root, name, Some(&digest)).await? {
            Some(_) => Err(BackupError::Pinned { name: name.to_string() }),
            None => is_vacant(root, name, manifest).await,
        }
    };
    match vacant.await {
        Ok(true) => {}
        stays => {
            mark.withdraw().await;
            return stays;
        }
    }
    let (claim, root) = mark.remove_manifest().await?.hold().await?;
    root.remove_below(&sums_folder(name)).await?;
    claim.end().await;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use xb_repo::manifest::sample;
    use xb_uploader::{Location, Policy, StorePlace, StoreSettings};

    use super::*;

    /// The disk may only not be mounted.
    #[tokio::test]
    async fn a_name_whose_link_leads_nowhere_or_whose_folder_is_empty_is_not_free() {
        for (linked, emptied) in [(true, false), (false, true), (false, false)] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().to_str().unwrap().trim_start_matches('/').to_owned();
            let location = Location { place: StorePlace::Local, path };
            let (settings, policy) = (StoreSettings::default(), Policy::default());
            let root = Root::open(&location, &settings, policy, true).unwrap();
            let name = BackupName::new("monday").unwrap();
            let manifest = Manifest { name: "monday".to_owned(), ..sample() };
            root.commit(&name, &manifest, None).await.unwrap();
            let place = folder.path().join("monday");
            if linked {
                std::os::unix::fs::symlink("/nowhere/monday", &place).unwrap();
            }
            if emptied {
                std::fs::create_dir(&place).unwrap();
            }
            let free = !linked && !emptied;
            assert_eq!(is_vacant(&root, &name, &manifest).await.unwrap(), free);
            assert_eq!(free_if_vacant(&root, &name).await.unwrap(), free);
            assert_eq!(root.manifest(&name).await.unwrap().is_some(), !free);
            let line = xb_repo::list::line(&root, &name).await.unwrap();
            if let Some((line, _)) = line {
                assert!(!line.problem.unwrap().contains("may take the name"));
            }
        }
    }
}
