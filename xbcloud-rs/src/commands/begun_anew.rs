//! ROOTs that were begun anew: this host has stored backups there, and none is left.

use std::io::{self, ErrorKind};

use xb_backup::{BackupError, CancelToken, Missed, NewestStored, OrInterrupted as _, RootNotes};
use xb_cli::Failure;
use xb_repo::list::Listing;
use xb_repo::manifest::Manifest;
use xb_repo::names::BackupName;
use xb_repo::root::Root;

use crate::args::{CommonOptions, RunOptions};
use crate::commands::context::Context;
use crate::commands::state_dir::state_dir;
use crate::location::root_identity;

/// What is told of the backups that this host has stored in a ROOT and that are gone.
#[derive(Debug, Clone, Default)]
pub(crate) struct MissedText {
    /// How the ROOT was begun anew, if it was.
    pub(crate) begun_anew: Option<String>,
    /// What is gone although older backups are there, if anything.
    pub(crate) set_back: Option<String>,
    /// Why it is unknown whether anything is gone.
    pub(crate) unknown: Option<String>,
}

impl MissedText {
    /// The warning, if there is one.
    pub(crate) fn any(&self) -> Option<&String> {
        self.begun_anew.as_ref().or(self.set_back.as_ref()).or(self.unknown.as_ref())
    }

    /// Returns whether backups that are gone may come back, so that none of the others may go.
    pub(crate) fn forbids_removals(&self) -> bool {
        self.begun_anew.is_some() || self.unknown.is_some()
    }

    fn of(missed: &Missed) -> Self {
        match missed {
            Missed::Nothing => Self::default(),
            Missed::Newest(missed) => Self { set_back: Some(set_back(missed)), ..Self::default() },
            Missed::All(missed) => Self { begun_anew: Some(text(missed)), ..Self::default() },
        }
    }
}

impl Context {
    /// Warns before a new backup if the ROOT is begun anew with it, or was before, or was set back.
    pub(crate) async fn warn_if_missed(
        &self,
        root: &Root,
        cancel: &CancelToken,
        run: &RunOptions,
    ) -> Result<MissedText, BackupError> {
        let told = match self.note(root.identity(), run) {
            Ok(None) => return Ok(MissedText::default()),
            Ok(Some((notes, noted))) => {
                MissedText::of(&cancel.or(notes.missing(root, noted)).await?)
            }
            Err(error) => {
                let unknown = format!(
                    "{}; until it can be, `run` prunes nothing there: run it as the user who makes the backups, or with a --state-dir of its own",
                    unread(&error)
                );
                MissedText { unknown: Some(unknown), ..MissedText::default() }
            }
        };
        told.any().into_iter().for_each(|warning| self.unusual(warning));
        Ok(told)
    }

    /// Notes a backup that was stored, so that its loss is noticed.
    pub(crate) fn note_stored(&self, root: &Root, manifest: &Manifest, run: &RunOptions) {
        let Some(notes) = self.root_notes(run) else { return };
        if let Err(error) = notes.stored(root, manifest) {
            self.log
                .verbose(format!("cannot record this backup of its ROOT on this host: {error}"));
        }
    }

    /// The note to forget once this backup is deleted, if it is the one that this host remembers: that is no loss. In a
    /// ROOT that was begun anew, another one may have its name.
    pub(crate) async fn note_of(
        &self,
        root: &Root,
        name: &BackupName,
        cancel: &CancelToken,
        run: &RunOptions,
    ) -> Result<Option<(RootNotes, NewestStored)>, BackupError> {
        let Some((notes, noted)) = self.noted(root.identity(), run) else { return Ok(None) };
        for noted in noted.into_iter().filter(|noted| noted.name == name.as_str()) {
            let is_there = cancel.or(noted.is_there(root)).await?;
            if is_there.unwrap_or(noted.begun_anew.is_none()) {
                return Ok(Some((notes, noted)));
            }
        }
        Ok(None)
    }

    /// What is missed in a ROOT with this listing, of other servers than these.
    pub(crate) fn missed_in(
        &self,
        identity: &str,
        listings: &[Listing],
        ignored: &[String],
        run: &RunOptions,
    ) -> MissedText {
        let Some((_, mut noted)) = self.noted(identity, run) else { return MissedText::default() };
        noted.retain(|noted| noted.server.as_ref().is_none_or(|server| !ignored.contains(server)));
        MissedText::of(&RootNotes::missed_in(noted, listings))
    }

    /// What this host has noted of a ROOT that was begun anew, before backups are removed from it.
    ///
    /// # Errors
    /// The note cannot be read, so that it is unknown.
    pub(crate) fn noted_begun_anew(
        &self,
        root: &Root,
        run: &RunOptions,
    ) -> Result<Option<(RootNotes, Vec<NewestStored>)>, Failure> {
        match self.note(root.identity(), run) {
            Ok(noted) => Ok(noted.map(|(notes, mut noted)| {
                noted.retain(|noted| noted.begun_anew.is_some());
                (notes, noted)
            })),
            Err(error) => Err(Failure::new(format!("nothing is pruned: {}", unread(&error)))
                .stage("prune")
                .hint("run the command as the user who makes the backups, or with the --state-dir of your own")),
        }
    }

    /// Accepts that a ROOT is begun anew.
    pub(crate) fn accept_begun_anew(
        &self,
        place: Option<&str>,
        common: &CommonOptions,
    ) -> Result<(), Failure> {
        let identity = root_identity(place, common)?;
        let failed = |error: io::Error| {
            Failure::new(format!("cannot remove the note of this ROOT: {error}"))
                .stage("accept")
                .hint("run the command as the user who makes the backups")
        };
        let notes = self.root_notes(&common.run);
        let backups = notes.map(|notes| notes.forget(&identity)).transpose().map_err(failed)?;
        let state = state_dir(&common.run);
        let archives = state.map(|state| xb_backup::forget_archives(&state, &identity));
        let archives = archives.transpose().map_err(failed)?;
        let (backups, archives) = (backups == Some(true), archives == Some(true));
        if backups {
            self.log.info(
                "accepted: the repository begins with the next backup, or with the existing ones",
            );
        }
        if archives {
            self.log.info("accepted: a receiver may begin a new archive of a binary log here");
        }
        match backups || archives {
            true => Ok(()),
            false => Err(Failure::new("this host remembers no backup and no archived log of this ROOT")
                .stage("accept")
                .hint("name it as for its backups, with the same endpoint and --state-dir: @REPOSITORY does all that")),
        }
    }

    /// What this host remembers of the ROOT with this identity. By the name of the stock tool it remembers nothing: that has
    /// no notes, and its callers read what it says.
    fn noted(&self, identity: &str, run: &RunOptions) -> Option<(RootNotes, Vec<NewestStored>)> {
        self.note(identity, run).unwrap_or_else(|error| {
            self.log.warn(unread(&error));
            None
        })
    }

    /// As [`Context::noted`].
    ///
    /// # Errors
    /// If there is a note that cannot be read.
    fn note(
        &self,
        identity: &str,
        run: &RunOptions,
    ) -> io::Result<Option<(RootNotes, Vec<NewestStored>)>> {
        let Some(notes) = self.root_notes(run) else { return Ok(None) };
        match notes.newest(identity) {
            Ok(noted) => Ok((!noted.is_empty()).then_some((notes, noted))),
            // There is no place for notes, so there is none.
            Err(error) if error.kind() == ErrorKind::NotADirectory => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn root_notes(&self, run: &RunOptions) -> Option<RootNotes> {
        state_dir(run).filter(|_| !self.stock).map(|state| RootNotes::new(&state))
    }
}

fn unread(error: &io::Error) -> String {
    format!(
        "it is unknown whether backups of this ROOT are gone, because this host's note cannot be read: {error}"
    )
}

/// Reason why nothing is pruned.
pub(crate) fn not_pruned(missing: &NewestStored) -> Failure {
    Failure::new(format!("nothing is pruned: {}", what(missing))).stage("prune").hint(next_step())
}

/// The loss, and what to do about it, in one line.
fn text(missing: &NewestStored) -> String {
    format!("{}; {}; until then nothing is pruned", what(missing), next_step())
}

/// The loss of what is newer than all that is there, in one line.
fn set_back(missed: &NewestStored) -> String {
    let NewestStored { name, finished, server, .. } = missed;
    format!(
        "{name} of {}, the last that this host has stored here, is gone, and all others{} here are older: unless another host has deleted it, the repository was set back, or an older copy of it or another one is in its place",
        minutes(finished),
        of_server(server)
    )
}

fn of_server(server: &Option<String>) -> String {
    server.as_ref().map_or(String::new(), |server| format!(" of {server}"))
}

fn minutes(at: &jiff::Timestamp) -> impl std::fmt::Display {
    at.strftime("%Y-%m-%d %H:%M UTC")
}

fn what(missing: &NewestStored) -> String {
    let NewestStored { name, finished, begun_anew, server, .. } = missing;
    let begun =
        begun_anew.as_ref().map(|at| format!("the repository was begun anew at {}: ", minutes(at)));
    format!(
        "{}{name} of {}, which this host has stored here, and all backups{} before it are gone",
        begun.unwrap_or_default(),
        minutes(finished),
        of_server(server)
    )
}

fn next_step() -> &'static str {
    "mount its disk, or correct its place; if this is intended, run `xbcloud-rs accept ROOT --begun-anew`"
}
