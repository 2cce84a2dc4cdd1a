//! Where an incremental backup goes on, and who vouches for that.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::SystemTime;

use xb_encryptor::Keys;

use crate::catalog::chain::{chain, same_server};
use crate::catalog::manifest::{Base, Manifest, StoredManifest};
use crate::catalog::names::{BackupName, RunId};
use crate::catalog::resolve::{Resolved, Wanted, resolve};
use crate::catalog::root::Root;
use crate::error::BackupError;
use crate::read::unlock::{Accept, Given, unlock, unsealed};
use crate::write::Since;

/// Notes kept of runs of this host; more than one makes in a year of nights.
const MAX_NOTES: usize = 400;
/// Largest note that is read, in bytes.
const MAX_NOTE: u64 = 1 << 20;

/// What this host knows of the backups that it has taken itself: their manifests, one file for each
/// run. Whoever can write into the store cannot change these.
#[derive(Debug, Clone)]
pub struct OwnRuns {
    dir: PathBuf,
}

impl OwnRuns {
    /// Notes in this folder, which is made when the first one is written.
    #[must_use]
    pub fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Notes a backup, and forgets the oldest notes.
    ///
    /// # Errors
    /// When the note cannot be written.
    pub fn note(&self, manifest: &Manifest) -> std::io::Result<()> {
        std::fs::create_dir_all(&self.dir)?;
        let mut file = tempfile::NamedTempFile::new_in(&self.dir)?;
        file.write_all(&serde_json::to_vec(manifest)?)?;
        file.as_file().sync_all()?;
        file.persist(self.path(&manifest.run))?;
        self.forget();
        Ok(())
    }

    /// The manifest of a run, if this host has made it.
    #[must_use]
    pub fn find(&self, run: &str) -> Option<Manifest> {
        RunId::parse(run)?;
        let path = self.path(run);
        let small = std::fs::metadata(&path).is_ok_and(|meta| meta.len() <= MAX_NOTE);
        small.then(|| serde_json::from_slice(&std::fs::read(path).ok()?).ok())?
    }

    fn path(&self, run: &str) -> PathBuf {
        self.dir.join(format!("{run}.json"))
    }

    /// Best effort: old notes only take up room.
    fn forget(&self) {
        let Ok(entries) = std::fs::read_dir(&self.dir) else { return };
        let mut notes: Vec<(SystemTime, PathBuf)> = entries
            .flatten()
            .filter_map(|entry| {
                let path = entry.path();
                RunId::parse(path.file_name()?.to_str()?.strip_suffix(".json")?)?;
                Some((entry.metadata().ok()?.modified().ok()?, path))
            })
            .collect();
        notes.sort();
        for (_, path) in notes.iter().rev().skip(MAX_NOTES) {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// What a new backup shall go on from, and what is demanded of that.
#[derive(Debug)]
pub struct SinceRequest<'a> {
    /// The backup that is meant.
    pub wanted: &'a Wanted,
    /// The server of the new backup.
    pub server: Option<&'a str>,
    /// What the manifest of a sealed backup may be opened with.
    pub keys: &'a Keys,
    /// The new backup will be sealed or encrypted: what it goes on from must be sealed.
    pub sealed: bool,
    /// Go on from a backup that is not sealed all the same.
    pub accept_unsealed: bool,
    /// Memory that a passphrase's derivation may take, in bytes.
    pub memory: u64,
    /// What this host knows of its own backups.
    pub own: Option<&'a OwnRuns>,
}

/// Finds the backup that a new one shall go on from, and the log sequence number it reaches; and what
/// makes the choice doubtful, for a person.
///
/// With a key every backup of the chain must be sealed, and its manifest authenticated by the key or the
/// one that this host has written. Without one a sealed backup must be of this host.
///
/// # Errors
/// [`BackupError::NotThere`], [`BackupError::WhichServer`]; [`BackupError::Chain`] when it cannot be
/// gone on from; [`BackupError::Keys`] and [`BackupError::Unsealed`] when nobody vouches for it.
pub async fn since(
    root: &Root,
    request: &SinceRequest<'_>,
) -> Result<(Since, Vec<String>), BackupError> {
    let SinceRequest { wanted, server, .. } = *request;
    // Below a ROOT of several servers the newest of ours is meant.
    let Resolved { name, doubts } = match resolve(root, wanted, None).await {
        Err(BackupError::WhichServer { .. }) => resolve(root, wanted, server).await?,
        found => found?,
    };
    let Some(stored) = root.stored_manifest(&name).await? else {
        let state = crate::catalog::list::state_without_manifest(root, &name).await?;
        return Err(BackupError::NotThere { name: name.to_string(), state });
    };
    request.demand_vouched(root, &name, &stored).await?;
    let manifest = &stored.manifest;
    let refused = |what: String| BackupError::Chain { name: "the new backup".into(), what };
    if !same_server(manifest.server.as_deref(), server) {
        let (theirs, ours) =
            (manifest.server.as_deref().unwrap_or_default(), server.unwrap_or_default());
        return Err(refused(format!("{name} is of server {theirs}, and this is {ours}")));
    }
    let Some(lsn) = manifest.source.to_lsn else {
        return Err(refused(format!(
            "nobody knows how far {name} reaches: its producer had compressed or encrypted what says so"
        )));
    };
    // What cannot be restored is no base.
    let links = chain(root, &name).await?;
    for link in links.iter().filter(|link| link.name != name) {
        let Some(stored) = root.stored_manifest(&link.name).await? else {
            return Err(refused(format!("{}, which {name} goes on from, is gone", link.name)));
        };
        match request.keys.is_empty() {
            // Another host may have taken it: without a key nobody can tell.
            true => request.demand_sealed(&link.name, &stored.manifest)?,
            false => request.demand_vouched(root, &link.name, &stored).await?,
        }
    }
    let base = Base { name: name.to_string(), run: manifest.run.clone() };
    Ok((Since { base, lsn }, doubts))
}

impl SinceRequest<'_> {
    fn demand_sealed(&self, name: &BackupName, manifest: &Manifest) -> Result<(), BackupError> {
        let demanded = (self.sealed || !self.keys.is_empty()) && !self.accept_unsealed;
        match demanded && !manifest.is_sealed() {
            true => Err(unsealed(name, Some(manifest))),
            false => Ok(()),
        }
    }

    /// Refuses a manifest that neither this host nor a key vouches for, where one has to.
    async fn demand_vouched(
        &self,
        root: &Root,
        name: &BackupName,
        stored: &StoredManifest,
    ) -> Result<(), BackupError> {
        let manifest = &stored.manifest;
        let note = self.own.and_then(|own| own.find(&manifest.run));
        if note.as_ref().is_some_and(|note| note != manifest) {
            return Err(BackupError::Keys(format!(
                "the manifest of {name} is not the one that this host has written: somebody changed it"
            )));
        }
        self.demand_sealed(name, manifest)?;
        if !manifest.is_sealed() || note.is_some() {
            return Ok(());
        }
        let given = Given { keys: self.keys, accept: Accept::default(), memory: self.memory };
        unlock(root, name, Some(stored), given).await.map(drop).map_err(|error| {
            BackupError::Keys(format!(
                "nobody vouches for the manifest of {name}: this host has not taken it, and {error}"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::manifest::sample;

    #[test]
    fn own_runs_are_found_again_and_the_oldest_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let own = OwnRuns::new(dir.path().join("deep/er"));
        assert!(own.find(&sample().run).is_none());
        own.note(&sample()).unwrap();
        assert_eq!(own.find(&sample().run), Some(sample()));
        assert!(own.find("../../../etc/passwd").is_none());
        for n in 0..MAX_NOTES + 5 {
            let mut manifest = sample();
            manifest.run = format!("{n:032x}");
            own.note(&manifest).unwrap();
        }
        assert_eq!(std::fs::read_dir(dir.path().join("deep/er")).unwrap().count(), MAX_NOTES);
        assert!(own.find(&format!("{:032x}", MAX_NOTES + 4)).is_some());
    }
}
