//! Chains of backups: a full one, and the incremental ones on top of it.

use crate::error::RepoError;
use crate::lineage::Lineage;
use crate::list::{describe, fault_of};
use crate::manifest::{Base, Manifest, StoredManifest};
use crate::names::BackupName;
use crate::resolve::{KnownManifests, manifests};
use crate::restorable::{BrokenChain, ReadableManifests, links};
use crate::root::Root;
use crate::unread::{UnreadableBackup, possible_dependents};

/// One backup of a chain.
#[derive(Debug, Clone)]
pub struct Link {
    /// Name of the backup.
    pub name: BackupName,
    /// Manifest of the backup.
    pub stored: StoredManifest,
}

/// Why a chain may lack the pages of an imported tablespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownImport<'a> {
    /// Its full backup may lack them: see [`Manifest::may_lack_imports`]. That nothing was imported since says nothing.
    OfFull(&'a BackupName),
    /// It is unknown whether a tablespace was imported between these two.
    Between {
        /// The earlier one.
        base: &'a BackupName,
        /// The increment on it.
        name: &'a BackupName,
    },
}

/// Returns why a chain, the full backup first, may lack the pages of an imported tablespace, if it may. No increment would
/// have them, so a full backup made out of this chain may lack them for good, and no trial restore can show it.
#[must_use]
pub fn unknown_import(chain: &[Link]) -> Option<UnknownImport<'_>> {
    if let Some(full) = chain.first().filter(|link| link.stored.manifest.may_lack_imports()) {
        return Some(UnknownImport::OfFull(&full.name));
    }
    let history = |link: &Link| link.stored.manifest.history.clone().unwrap_or_default();
    let mut pairs = chain.array_windows();
    let found = pairs.find(|[base, link]| !history(link).rules_out_imports(Some(&history(base))));
    found.map(|[base, link]| UnknownImport::Between { base: &base.name, name: &link.name })
}

/// Finds all backups that a restore of `name` needs, the full one first. Reads each manifest once.
///
/// # Errors
/// [`RepoError::NotThere`] if the backup does not exist, [`RepoError::Chain`] if a base in the
/// chain is missing or does not fit.
pub async fn chain(root: &Root, name: &BackupName) -> Result<Vec<Link>, RepoError> {
    chain_of(root, name, describe(root, name).await?).await
}

/// Like [`chain`], for a backup whose manifest has been read.
///
/// # Errors
/// [`RepoError::Chain`]; those of reading the other manifests.
pub async fn chain_of(
    root: &Root,
    name: &BackupName,
    stored: StoredManifest,
) -> Result<Vec<Link>, RepoError> {
    let needs_search = |stored: &StoredManifest| {
        stored.manifest.is_incremental() && stored.manifest.base.is_none()
    };
    let mut search = needs_search(&stored);
    let mut sound = ReadableManifests::from([(name.clone(), stored)]);
    // If a manifest does not name its base, any backup may be it.
    let mut unread = None;
    loop {
        if search && unread.is_none() {
            let all = manifests(root).await?;
            sound.extend(all.sound.into_iter().filter(|(other, _)| other != name));
            unread = Some(all.unread);
        }
        let broken = match links(&sound, name) {
            Ok(names) => {
                let names: Vec<BackupName> = names.into_iter().rev().cloned().collect();
                let link = |name: BackupName| Some(Link { stored: sound.remove(&name)?, name });
                return Ok(names.into_iter().filter_map(link).collect());
            }
            Err(broken) => broken,
        };
        let read = match &broken.missing {
            Some(base) => base_manifest(root, base).await?.map(|stored| (base.clone(), stored)),
            None => None,
        };
        let Some((base, stored)) = read else {
            let unread =
                unread.iter().flatten().map(|unread: &UnreadableBackup| unread.name.clone());
            let BrokenChain { at, what, .. } = broken.beside(&unread.collect());
            return Err(RepoError::Chain { name: at.to_string(), what });
        };
        search = needs_search(&stored);
        sound.insert(base, stored);
    }
}

/// Reads the manifest of a base. An answer that there is none counts only if no listing shows it.
async fn base_manifest(
    root: &Root,
    base: &BackupName,
) -> Result<Option<StoredManifest>, RepoError> {
    match root.stored_manifest(base).await? {
        None if !root.store().is_folder() => {
            root.knowing(&root.catalogue().await?).stored_manifest(base).await
        }
        read => Ok(read),
    }
}

/// The backups that an incremental one needs, its base first, before it is committed: all of its chain, or
/// its base alone if the chain is broken already, as that of an archive of increments may be.
///
/// # Errors
/// [`RepoError::Store`]; [`RepoError::Chain`] if the chain was whole when the run began, and is not any more.
pub async fn bases(
    root: &Root,
    manifest: &Manifest,
    was_whole: bool,
) -> Result<Vec<Base>, RepoError> {
    let Some(base) = &manifest.base else { return Ok(Vec::new()) };
    let link =
        |link: &Link| Base { name: link.name.to_string(), run: link.stored.manifest.run.clone() };
    match chain(root, &BackupName::new(&base.name)?).await {
        Ok(links) if links.last().is_some_and(|last| last.stored.manifest.run == base.run) => {
            Ok(links.iter().rev().map(link).collect())
        }
        Err(error @ RepoError::Store(_)) if !error.is_of_one_object() => Err(error),
        Err(error @ RepoError::Chain { .. }) if was_whole => Err(error),
        // The check after the commit finds a base that is gone.
        _ => Ok(vec![base.clone()]),
    }
}

/// Returns why a backup cannot be restored because of the others in its chain, as far as the catalogue shows, and
/// the chain, if it is whole.
///
/// # Errors
/// Any error of the store.
pub async fn why_broken(
    root: &Root,
    name: &BackupName,
    stored: StoredManifest,
) -> Result<(Vec<Link>, Option<String>), RepoError> {
    let links = match chain_of(root, name, stored).await {
        Ok(links) => links,
        Err(RepoError::Chain { name: at, what }) if at == name.as_str() => {
            return Ok((Vec::new(), Some(what)));
        }
        Err(RepoError::Chain { name: at, what }) => {
            return Ok((Vec::new(), Some(format!("{at} in its chain: {what}"))));
        }
        Err(error) if error.is_of_one_object() => return Ok((Vec::new(), Some(error.to_string()))),
        Err(error) => return Err(error),
    };
    for Link { name: base, stored } in links.iter().filter(|link| link.name != *name) {
        if let Some(fault) = fault_of(root, base, stored).await? {
            let why = format!("its base {base}: {fault}");
            return Ok((links, Some(why)));
        }
    }
    Ok((links, None))
}

/// Fails if `known` backups depend on `name`, or may depend on it. Returns its manifest, if there is
/// one; reads it only if it is not known.
///
/// # Errors
/// Any error of [`refuse_dependents`]; [`RepoError::Unclear`] if the manifest of `name` cannot be read.
pub async fn refuse_needed(
    root: &Root,
    name: &BackupName,
    known: &KnownManifests,
) -> Result<Option<Manifest>, RepoError> {
    let manifest = match known.manifest(name) {
        Some(manifest) => Ok(Some(manifest.clone())),
        None => root.manifest(name).await,
    };
    match manifest {
        Ok(Some(manifest)) => {
            refuse_dependents(root, name, &manifest, known).await?;
            Ok(Some(manifest))
        }
        Ok(None) => Ok(None),
        Err(error) if error.is_of_one_object() => {
            Err(RepoError::Unclear { name: name.to_string(), source: Box::new(error) })
        }
        Err(error) => Err(error),
    }
}

/// Fails if `known` backups depend on the one with this manifest, or may depend on it.
///
/// # Errors
/// [`RepoError::Needed`]; [`RepoError::MayBeNeeded`] if the manifest of a later backup cannot
/// be read; [`RepoError::Store`].
pub async fn refuse_dependents(
    root: &Root,
    name: &BackupName,
    manifest: &Manifest,
    known: &KnownManifests,
) -> Result<(), RepoError> {
    let base = Lineage::of(name.as_str(), manifest);
    let depends = |other: &BackupName, found| Lineage::of(other.as_str(), found).is_based_on(&base);
    let found = known.iter().filter(|(other, found)| depends(other, found));
    let found = found.map(|(name, _)| name.clone());
    if let Some(by) = names(found.collect()) {
        return Err(RepoError::Needed { name: name.to_string(), by });
    }
    match names(possible_dependents(root, manifest, known.unread()).await?) {
        Some(by) => Err(RepoError::MayBeNeeded { name: name.to_string(), by }),
        None => Ok(()),
    }
}

/// Joins names for a message; `None` if there are none.
fn names(found: Vec<BackupName>) -> Option<String> {
    let all: Vec<String> = found.iter().map(ToString::to_string).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use xb_uploader::{Fault, Faults, Location, Operation, Policy, StorePlace, StoreSettings};

    use super::*;
    use crate::list::list;
    use crate::manifest::history::History;
    use crate::manifest::sample;
    use crate::records::{self, VerifyResult};
    use crate::verification::{Level, PageReport, VerifyReport};

    /// Counts the reads.
    #[derive(Debug, Default)]
    struct Reads(AtomicU32);

    impl Faults for Reads {
        fn next(&self, operation: Operation) -> Option<Fault> {
            if operation == Operation::Get {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
            None
        }
    }

    /// A ROOT with a chain of `names`, of which only those in `silent` do not name their base.
    async fn root(names: &[&str], silent: &[&str]) -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap().trim_start_matches('/').to_owned();
        let location = Location { place: StorePlace::Local, path };
        let root =
            Root::open(&location, &StoreSettings::default(), Policy::default(), true).unwrap();
        for (n, of) in names.iter().enumerate() {
            let mut manifest = sample();
            (manifest.name, manifest.run) = ((*of).to_owned(), format!("{n:032x}"));
            let lsn = 10 * n as u64;
            (manifest.source.from_lsn, manifest.source.to_lsn) = (Some(lsn), Some(lsn + 10));
            let kind = if n > 0 { "incremental" } else { "full-backuped" };
            manifest.source.backup_type = Some(kind.to_owned());
            let base = n.checked_sub(1).filter(|_| !silent.contains(of));
            manifest.base =
                base.map(|n| Base { name: names[n].to_owned(), run: format!("{n:032x}") });
            root.commit(&name(of), &manifest, None).await.unwrap();
        }
        (folder, root)
    }

    fn name(of: &str) -> BackupName {
        BackupName::new(of).unwrap()
    }

    async fn names_of(root: &Root, of: &str) -> Result<Vec<String>, String> {
        let links = chain(root, &name(of)).await.map_err(|error| error.to_string())?;
        Ok(links.into_iter().map(|link| link.name.to_string()).collect())
    }

    #[tokio::test]
    async fn a_chain_is_read_from_its_full_backup_on_and_each_manifest_once() {
        let (_folder, root) = root(&["n0", "n1", "n2", "other"], &[]).await;
        let reads = Arc::new(Reads::default());
        let counted = root.failing(Arc::clone(&reads) as Arc<dyn Faults>);
        assert_eq!(names_of(&counted, "n2").await.unwrap(), ["n0", "n1", "n2"]);
        assert_eq!(reads.0.load(Ordering::Relaxed), 3);
    }

    /// Nor does a trial restore prove them, or a word about what came after the full backup.
    #[tokio::test]
    async fn increments_may_lack_what_their_full_backup_may_lack() {
        for accepted_imports in [false, true] {
            let (_folder, root) = root(&[], &[]).await;
            let mut full = sample();
            let link = Manifest::decode(&full.encode(None).unwrap()).unwrap().merged_link();
            full.consolidated_from = vec![link];
            full.history = Some(History { accepted_imports, ..History::default() });
            (full.name, full.run) = ("n0".to_owned(), format!("{:032x}", 0));
            full.source.backup_type = Some("full-backuped".to_owned());
            (full.source.from_lsn, full.source.to_lsn) = (Some(0), Some(10));
            root.commit(&name("n0"), &full, None).await.unwrap();
            let mut last = sample();
            (last.name, last.run) = ("n1".to_owned(), format!("{:032x}", 1));
            last.source.backup_type = Some("incremental".to_owned());
            (last.source.from_lsn, last.source.to_lsn) = (Some(10), Some(20));
            last.base = Some(Base { name: full.name.clone(), run: full.run.clone() });
            root.commit(&name("n1"), &last, None).await.unwrap();

            let links = chain(&root, &name("n1")).await.unwrap();
            let (of_full, n0) = (&links[0].name, name("n0"));
            let expected = match accepted_imports {
                true => UnknownImport::Between { base: of_full, name: &links[1].name },
                false => UnknownImport::OfFull(&n0),
            };
            assert_eq!(unknown_import(&links), Some(expected));

            let mut report = VerifyReport::new("n1".to_owned(), Level::Restore);
            report.pages = Some(PageReport::default());
            for level in Level::ALL {
                report.close(level, String::new());
            }
            let digest = links[1].stored.digest();
            let result = VerifyResult::of(&report, "t");
            records::add(&root, &name("n1"), &digest, result, None).await.unwrap();
            let lines = list(&root).await.unwrap();
            let line = lines.iter().find(|line| line.name == "n1").unwrap();
            assert_eq!(line.may_lack_imports, !accepted_imports);
            assert_eq!(line.is_verified(Level::Restore), accepted_imports);
            assert!(line.is_verified(Level::Pages));
        }
    }

    /// A chain that was broken before does not fail a commit.
    #[tokio::test]
    async fn an_increment_needs_what_was_there_before_its_commit() {
        let (folder, root) = root(&["n0", "n1", "n2"], &[]).await;
        let last = root.manifest(&name("n2")).await.unwrap().unwrap();
        let needed = async || {
            let needed = bases(&root, &last, false).await.unwrap();
            needed.into_iter().map(|base| base.name).collect::<Vec<_>>()
        };
        assert_eq!(needed().await, ["n1", "n0"]);
        std::fs::remove_file(folder.path().join(".xb-catalog/n0")).unwrap();
        assert_eq!(needed().await, ["n1"]);
        // A removal that had begun before the base was committed has ended since the run began.
        let late = bases(&root, &last, true).await;
        assert!(matches!(late, Err(RepoError::Chain { .. })), "{late:?}");
        assert_eq!(bases(&root, &sample(), true).await.unwrap(), []);
    }

    #[tokio::test]
    async fn a_base_that_no_manifest_names_is_searched() {
        for silent in [&["n2"][..], &["n1"], &["n1", "n2"]] {
            let (folder, root) = root(&["n0", "n1", "n2"], silent).await;
            assert_eq!(names_of(&root, "n2").await.unwrap(), ["n0", "n1", "n2"], "{silent:?}");
            // An unreadable manifest may be that of the base.
            std::fs::write(folder.path().join(".xb-catalog/n0"), "damaged").unwrap();
            let why = names_of(&root, "n2").await.unwrap_err();
            let named = if silent.contains(&"n1") { "manifests of n0" } else { "n0" };
            assert!(why.contains(named), "{why}");
        }
    }

    #[tokio::test]
    async fn a_missing_base_is_named() {
        let (folder, root) = root(&["n0", "n1", "n2"], &[]).await;
        std::fs::remove_file(folder.path().join(".xb-catalog/n0")).unwrap();
        let why = names_of(&root, "n2").await.unwrap_err();
        assert!(why.contains("n1") && why.contains("its base n0 is missing"), "{why}");
    }
}
