//! The newest backup of each server that this host has stored in each ROOT, which shows that a ROOT was begun anew: no backup of its server
//! is left in it, because its disk is not mounted, its folder was moved, or its bucket was emptied or is another one.

use std::io;
use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use xb_repo::error::RepoError;
use xb_repo::lineage::same_server;
use xb_repo::list::{Listing, State};
use xb_repo::manifest::Manifest;
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
    /// Its server, if it was named. Backups of other servers do not show that those of this one are there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// When a later backup found neither it nor any other of its server there, UTC. It is kept until it is there again, or until its
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
    /// The newest backup and all others of its server: the ROOT was begun anew, or is to be.
    All(NewestStored),
}

impl Missed {
    fn weight(&self) -> u8 {
        match self {
            Self::Nothing => 0,
            Self::Newest(_) => 1,
            Self::All(_) => 2,
        }
    }
}

impl NewestStored {
    /// Returns what is gone from the ROOT with this listing.
    fn missed_in(self, listings: &[Listing]) -> Missed {
        let backups = listings.iter().filter(|line| {
            use State::{Complete, Damaged, Missing, Unreadable};
            matches!(line.state, Complete | Damaged | Missing | Unreadable)
        });
        let is_this = |line: &Listing| match &line.run {
            Some(run) => *run == self.run,
            // Its manifest cannot be read.
            None => line.name == self.name,
        };
        if backups.clone().any(is_this) {
            return Missed::Nothing;
        }
        let server = self.server.clone();
        let own = backups.filter(|line| same_server(line.server.as_deref(), server.as_deref()));
        self.judged(own.map(|line| line.finished))
    }

    /// Judges a ROOT that lacks this backup, by when the others of its server ended; `None` for one that cannot be read.
    fn judged(self, others: impl Iterator<Item = Option<Timestamp>>) -> Missed {
        let mut others = others.peekable();
        if self.begun_anew.is_some() || others.peek().is_none() {
            return Missed::All(self);
        }
        // One that another host has pruned leaves a newer one.
        match others.all(|end| end.is_some_and(|end| end < self.finished)) {
            true => Missed::Newest(self),
            false => Missed::Nothing,
        }
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

    /// The newest backup of each server that this host has stored in the ROOT with this [identity](Root::identity), the newest
    /// of all first. None also for a file that holds no note.
    ///
    /// # Errors
    /// If there is a note that cannot be read, such as one of another user.
    pub fn newest(&self, identity: &str) -> io::Result<Vec<NewestStored>> {
        let Some(note) = self.0.read(identity)? else { return Ok(Vec::new()) };
        // Earlier versions noted one backup.
        let one = |_| serde_json::from_slice(&note).map(|noted| vec![noted]);
        let mut noted: Vec<NewestStored> =
            serde_json::from_slice(&note).or_else(one).unwrap_or_default();
        noted.sort_by_key(|noted| std::cmp::Reverse(noted.finished));
        Ok(noted)
    }

    /// Notes a backup that was stored, unless a newer one of its server is noted, as after the copy of an older one. In a ROOT
    /// that was begun anew, the note stays that of the missing one.
    ///
    /// # Errors
    /// If the note cannot be read or written.
    pub fn stored(&self, root: &Root, manifest: &Manifest) -> io::Result<()> {
        let Manifest { name, run, finished, server, .. } = manifest.clone();
        let now = Timestamp::now();
        let stays = |noted: &NewestStored| {
            // The time of one whose clock was ahead is no measure.
            noted.begun_anew.is_some() || (finished < noted.finished && noted.finished <= now)
        };
        let noted = self.newest(root.identity())?;
        if noted.iter().any(|noted| noted.server == server && stays(noted)) {
            return Ok(());
        }
        self.write(root, &NewestStored { name, run, finished, server, begun_anew: None })
    }

    /// Returns what is gone from the ROOT with this listing.
    #[must_use]
    pub fn missed_in(noted: Vec<NewestStored>, listings: &[Listing]) -> Missed {
        noted
            .into_iter()
            .map(|noted| noted.missed_in(listings))
            .max_by_key(Missed::weight)
            .unwrap_or(Missed::Nothing)
    }

    /// Returns what is gone from `root` since `noted`. If that is all of a server, notes that the ROOT was begun anew. Costs one
    /// request for each server of this host, unless its newest backup is not there.
    ///
    /// # Errors
    /// [`RepoError::Store`]. A note that cannot be written is no error.
    pub async fn missing(
        &self,
        root: &Root,
        noted: Vec<NewestStored>,
    ) -> Result<Missed, RepoError> {
        let mut missed = Missed::Nothing;
        for noted in noted {
            let found = self.missing_one(root, noted).await?;
            missed = if found.weight() > missed.weight() { found } else { missed };
        }
        Ok(missed)
    }

    async fn missing_one(&self, root: &Root, mut noted: NewestStored) -> Result<Missed, RepoError> {
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
        if was_begun_anew {
            return Ok(Missed::All(noted));
        }
        let found = manifests(root).await?;
        let server = noted.server.clone();
        let sound = found.sound.values().map(|stored| &stored.manifest);
        let own = sound.filter(|of| same_server(of.server.as_deref(), server.as_deref()));
        let unread = found.unread.iter().map(|_| None);
        let mut missed = noted.judged(own.map(|of| Some(of.finished)).chain(unread));
        if let Missed::All(noted) = &mut missed {
            noted.begun_anew = Some(Timestamp::now());
            let _ = self.write(root, noted);
        }
        Ok(missed)
    }

    /// Forgets what was noted of a ROOT. Returns whether anything was.
    ///
    /// # Errors
    /// If the note cannot be removed.
    pub fn forget(&self, identity: &str) -> io::Result<bool> {
        self.0.remove(identity)
    }

    /// Forgets one backup that was noted of a ROOT, because it is deleted.
    ///
    /// # Errors
    /// If the note cannot be read or written.
    pub fn forget_one(&self, identity: &str, gone: &NewestStored) -> io::Result<()> {
        let mut noted = self.newest(identity)?;
        noted.retain(|noted| noted.run != gone.run);
        match noted.is_empty() {
            true => self.forget(identity).map(drop),
            false => self.0.write(identity, &serde_json::to_vec(&noted)?),
        }
    }

    /// Writes one in the place of that of its server.
    fn write(&self, root: &Root, new: &NewestStored) -> io::Result<()> {
        let mut noted = self.newest(root.identity())?;
        noted.retain(|noted| noted.server != new.server);
        noted.push(new.clone());
        self.0.write(root.identity(), &serde_json::to_vec(&noted)?)
    }
}
