//! The newest backup that this host has stored in each ROOT, which shows that a ROOT was begun anew: no backup is left
//! in it, because its disk is not mounted, its folder was moved, or its bucket was emptied or is another one.

use std::io;
use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use xb_repo::error::RepoError;
use xb_repo::list::{Listing, State};
use xb_repo::manifest::{Manifest, StoredManifest};
use xb_repo::names::BackupName;
use xb_repo::resolve::manifests;
use xb_repo::root::Root;

use crate::note_folder::NoteFolder;

/// The newest backup that this host has stored in a ROOT.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewestStored {
    /// Its name.
    pub name: String,
    /// The run that wrote it.
    pub run: String,
    /// When that run ended, UTC.
    pub finished: Timestamp,
    /// When a later backup found neither it nor any other there, UTC. It is kept until it is there again, or until its
    /// loss is accepted.
    pub begun_anew: Option<Timestamp>,
}

/// What is gone from a ROOT of what this host has stored there, as far as its note tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missed {
    /// Nothing.
    Nothing,
    /// The newest backup, and only older ones are there: the ROOT was set back, or is an older copy or another one.
    Newest(NewestStored),
    /// The newest backup and all others: the ROOT was begun anew, or is to be.
    All(NewestStored),
}

impl NewestStored {
    /// Returns whether the ROOT with this listing was begun anew, or is to be: this backup is not there, and no other
    /// was at that time.
    #[must_use]
    pub fn is_missing_in(&self, listings: &[Listing]) -> bool {
        let backups = listings.iter().filter(|line| {
            use State::{Complete, Damaged, Missing, Unreadable};
            matches!(line.state, Complete | Damaged | Missing | Unreadable)
        });
        let is_this = |line: &Listing| match &line.run {
            Some(run) => *run == self.run,
            // Its manifest cannot be read.
            None => line.name == self.name,
        };
        let mut backups = backups.peekable();
        let was_begun_anew = self.begun_anew.is_some() || backups.peek().is_none();
        was_begun_anew && !backups.any(is_this)
    }

    /// Returns whether this backup is in its ROOT; `None` if its manifest cannot be read, such as one in an archive class.
    ///
    /// # Errors
    /// [`RepoError::Store`].
    pub async fn is_there(&self, root: &Root) -> Result<Option<bool>, RepoError> {
        match root.manifest(&BackupName::new(&self.name)?).await {
            Ok(found) => Ok(Some(found.is_some_and(|found| found.run == self.run))),
            Err(error) if error.is_of_one_object() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns whether all backups in its ROOT are older. False if one of them cannot be read.
    async fn is_after_all(&self, root: &Root) -> Result<bool, RepoError> {
        let found = manifests(root).await?;
        let mut there = found.sound.values().peekable();
        let any = there.peek().is_some();
        let is_older = |stored: &StoredManifest| stored.manifest.finished < self.finished;
        Ok(any && found.unread.is_empty() && there.all(is_older))
    }
}

/// This host's notes about the ROOTs in which it has stored backups.
#[derive(Debug, Clone)]
pub struct RootNotes(NoteFolder);

impl RootNotes {
    /// Keeps notes below this state directory.
    #[must_use]
    pub fn new(state: &Path) -> Self {
        Self(NoteFolder::new(state.join("roots")))
    }

    /// The newest backup that this host has stored in the ROOT with this [identity](Root::identity). `None` also for a file
    /// that holds no note.
    ///
    /// # Errors
    /// If there is a note that cannot be read, such as one of another user.
    pub fn newest(&self, identity: &str) -> io::Result<Option<NewestStored>> {
        let note = self.0.read(identity)?;
        Ok(note.and_then(|note| serde_json::from_slice(&note).ok()))
    }

    /// Notes a backup that was stored. In a ROOT that was begun anew, the note stays that of the missing one.
    ///
    /// # Errors
    /// If the note cannot be read or written.
    pub fn stored(&self, root: &Root, manifest: &Manifest) -> io::Result<()> {
        if self.newest(root.identity())?.is_some_and(|noted| noted.begun_anew.is_some()) {
            return Ok(());
        }
        let Manifest { name, run, finished, .. } = manifest.clone();
        self.write(root, &NewestStored { name, run, finished, begun_anew: None })
    }

    /// Returns what is gone from `root` since `noted`. If that is all, notes that the ROOT was begun anew. Costs one request
    /// unless the noted backup is not there.
    ///
    /// # Errors
    /// [`RepoError::Store`]. A note that cannot be written is no error.
    pub async fn missing(&self, root: &Root, mut noted: NewestStored) -> Result<Missed, RepoError> {
        let was_begun_anew = noted.begun_anew.is_some();
        match noted.is_there(root).await? {
            Some(true) => {
                noted.begun_anew = None;
                if was_begun_anew {
                    let _ = self.write(root, &noted);
                }
                return Ok(Missed::Nothing);
            }
            // Something of this name is there, whatever it says; or all that is new in its place.
            None if !was_begun_anew => return Ok(Missed::Nothing),
            None | Some(false) => {}
        }
        if !was_begun_anew {
            // One that another host has pruned leaves a newer one.
            if root.catalogue().await?.names().next().is_some() {
                let is_set_back = noted.is_after_all(root).await?;
                return Ok(if is_set_back { Missed::Newest(noted) } else { Missed::Nothing });
            }
            noted.begun_anew = Some(Timestamp::now());
            let _ = self.write(root, &noted);
        }
        Ok(Missed::All(noted))
    }

    /// Forgets what was noted of a ROOT. Returns whether anything was.
    ///
    /// # Errors
    /// If the note cannot be removed.
    pub fn forget(&self, identity: &str) -> io::Result<bool> {
        self.0.remove(identity)
    }

    fn write(&self, root: &Root, noted: &NewestStored) -> io::Result<()> {
        self.0.write(root.identity(), &serde_json::to_vec(noted)?)
    }
}
