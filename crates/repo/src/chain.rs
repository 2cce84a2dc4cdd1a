//! Chains of backups: a full one, and the incremental ones on top of it.

use crate::error::RepoError;
use crate::lineage::{Lineage, MAX_LINKS, find_base, misfit};
use crate::list::describe;
use crate::manifest::{Base, Manifest};
use crate::names::BackupName;
use crate::resolve::{Known, manifests};
use crate::root::Root;
use crate::unread::{Unread, possible_dependents};

/// One backup of a chain.
#[derive(Debug, Clone)]
pub struct Link {
    /// Name of the backup.
    pub name: BackupName,
    /// Manifest of the backup.
    pub manifest: Manifest,
}

/// Finds all backups that a restore of `name` needs, the full one first.
///
/// # Errors
/// [`RepoError::NotThere`] if the backup does not exist, [`RepoError::Chain`] if a base in the
/// chain is missing or does not fit.
pub async fn chain(root: &Root, name: &BackupName) -> Result<Vec<Link>, RepoError> {
    let mut builder =
        Builder::new(Link { name: name.clone(), manifest: describe(root, name).await? });
    while builder.is_incremental() {
        let base = match builder.base() {
            Some(base) => base.clone(),
            None => {
                let all = manifests(root).await?;
                let sound = all.sound.iter().map(|(name, manifest)| (name, manifest));
                find_base(sound, builder.first())
                    .ok_or_else(|| builder.refused(&no_base(&all.unread)))?
            }
        };
        let missing = |what: String| builder.refused(&what);
        let name = BackupName::new(&base.name).map_err(|error| missing(error.to_string()))?;
        let manifest = root.manifest(&name).await?;
        let manifest = manifest.ok_or_else(|| missing(format!("its base {name} is missing")))?;
        builder.add(&base, Link { name, manifest })?;
    }
    Ok(builder.finish())
}

/// Fails if `known` backups depend on `name`, or may depend on it. Returns its manifest, if there is
/// one.
///
/// # Errors
/// Those of [`refuse_dependents`]; [`RepoError::Unclear`] if the manifest of `name` cannot be read.
pub async fn refuse_needed(
    root: &Root,
    name: &BackupName,
    known: &Known,
) -> Result<Option<Manifest>, RepoError> {
    match root.manifest(name).await {
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
    known: &Known,
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

/// Explains why no base was found.
fn no_base(unread: &[Unread]) -> String {
    let what = "no backup here can be its base";
    match names(unread.iter().map(|unread| unread.name.clone()).collect()) {
        Some(unread) => format!("{what}; the manifests of {unread} cannot be read"),
        None => what.to_owned(),
    }
}

/// Assembles a chain from its end to its beginning.
#[derive(Debug)]
struct Builder {
    /// The last of the chain first, without `head`.
    links: Vec<Link>,
    head: Link,
}

impl Builder {
    fn new(last: Link) -> Self {
        Self { links: Vec::new(), head: last }
    }

    /// The manifest whose base comes next.
    fn first(&self) -> &Manifest {
        &self.head.manifest
    }

    fn is_incremental(&self) -> bool {
        self.head.manifest.is_incremental()
    }

    fn base(&self) -> Option<&Base> {
        self.head.manifest.base.as_ref()
    }

    fn refused(&self, what: &str) -> RepoError {
        RepoError::Chain { name: self.head.name.to_string(), what: what.to_owned() }
    }

    /// Adds the backup that the manifest names as base, after checking that it fits.
    fn add(&mut self, base: &Base, link: Link) -> Result<(), RepoError> {
        let (increment, found) = (&self.head.manifest, &link.manifest);
        if let Some(what) = misfit(increment, base, (&link.name, found)) {
            return Err(self.refused(&what));
        }
        if self.links.len() + 2 > MAX_LINKS
            || self.links.iter().any(|l| l.manifest.run == found.run)
            || increment.run == found.run
        {
            return Err(self.refused("its chain has no full backup"));
        }
        let last = std::mem::replace(&mut self.head, link);
        self.links.push(last);
        Ok(())
    }

    /// Returns the chain, the full backup first.
    fn finish(self) -> Vec<Link> {
        std::iter::once(self.head).chain(self.links.into_iter().rev()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::manifest::history::History;
    use crate::manifest::sample;

    fn link(number: usize, from: u64, to: u64, base: Option<usize>) -> Link {
        let run = |n: usize| format!("{n:032x}");
        let mut manifest = sample();
        manifest.run = run(number);
        manifest.source.from_lsn = Some(from);
        manifest.source.to_lsn = Some(to);
        manifest.source.backup_type =
            Some(if from > 0 { "incremental" } else { "full-backuped" }.to_owned());
        manifest.base = base.map(|n| Base { name: format!("n{n}"), run: run(n) });
        Link { name: BackupName::new(&format!("n{number}")).unwrap(), manifest }
    }

    fn walk(all: &BTreeMap<String, Link>, last: &str) -> Result<Vec<String>, String> {
        let mut builder = Builder::new(all[last].clone());
        while builder.is_incremental() {
            let base = builder.base().cloned().or_else(|| {
                find_base(all.values().map(|l| (&l.name, &l.manifest)), builder.first())
            });
            let base = base.ok_or("no base matches")?;
            let link = all.get(&base.name).ok_or("gone")?.clone();
            builder.add(&base, link).map_err(|error| error.to_string())?;
        }
        Ok(builder.finish().into_iter().map(|link| link.name.to_string()).collect())
    }

    proptest! {
        /// Whatever the manifests contain, the result is either a chain without gaps from a full
        /// backup to the requested one, or an error.
        #[test]
        fn chains_have_no_gaps_and_come_to_an_end(
            links in proptest::collection::vec((0_u64..4, 0_u64..4, proptest::option::of(0_usize..6)), 1..6),
            last in 0_usize..6,
        ) {
            let all: BTreeMap<String, Link> = links
                .iter()
                .enumerate()
                .map(|(n, (from, to, base))| (format!("n{n}"), link(n, *from, *to, *base)))
                .collect();
            let last = format!("n{}", last % links.len());
            if let Ok(names) = walk(&all, &last) {
                prop_assert_eq!(names.last(), Some(&last));
                let manifest = |name: &String| &all[name].manifest;
                prop_assert!(!manifest(&names[0]).is_incremental());
                for pair in names.windows(2) {
                    prop_assert!(manifest(&pair[1]).is_incremental());
                    prop_assert_eq!(manifest(&pair[1]).source.from_lsn, manifest(&pair[0]).source.to_lsn);
                }
                let mut once = names.clone();
                once.sort();
                once.dedup();
                prop_assert_eq!(once.len(), names.len());
            }
        }
    }

    #[test]
    fn what_breaks_a_chain_is_named() {
        let good = [link(0, 0, 10, None), link(1, 10, 20, Some(0)), link(2, 20, 30, Some(1))];
        let all = |links: &[Link]| -> BTreeMap<String, Link> {
            links.iter().map(|l| (l.name.to_string(), l.clone())).collect()
        };
        assert_eq!(walk(&all(&good), "n2").unwrap(), ["n0", "n1", "n2"]);
        // If the manifest does not name the base, its LSN identifies it.
        let mut silent = good.clone();
        silent[2].manifest.base = None;
        assert_eq!(walk(&all(&silent), "n2").unwrap(), ["n0", "n1", "n2"]);
        let mut replaced = good.clone();
        replaced[0].manifest.run = "f".repeat(32);
        assert!(walk(&all(&replaced), "n2").unwrap_err().contains("replaced by another backup"));
        let mut gap = good.clone();
        gap[1].manifest.source.to_lsn = Some(15);
        assert!(walk(&all(&gap), "n2").unwrap_err().contains("LSN 20"));
        let mut foreign = good.clone();
        foreign[0].manifest.server = Some("a".into());
        foreign[1].manifest.server = Some("b".into());
        assert!(walk(&all(&foreign), "n2").unwrap_err().contains("another server"));
        assert_eq!(walk(&all(&good[1..]), "n2").unwrap_err(), "gone");
        let of = |server: &str| History { server_uuid: Some(server.into()), ..History::default() };
        let mut forked = good.clone();
        (forked[0].manifest.history, forked[1].manifest.history) = (Some(of("u")), Some(of("v")));
        assert!(walk(&all(&forked), "n2").unwrap_err().contains("another history"));
        // An unknown history breaks no chain: chains of earlier versions have no evidence.
        forked[0].manifest.history = None;
        assert_eq!(walk(&all(&forked), "n2").unwrap(), ["n0", "n1", "n2"]);
    }
}
