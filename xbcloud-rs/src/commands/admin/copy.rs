//! `copy`: copies a verified backup to another place.

use xb_backup::{ArchiveCopy, CopyReport, CopyRequest, Session};
use xb_cli::{Exit, Failure};
use xb_repo::root::Root;

use crate::args::catalogue::CopyArgs;
use crate::args::{CommonOptions, RunOptions};
use crate::commands::begun_anew::MissedText;
use crate::commands::context::{Context, resources};
use crate::location::copy_place;
use crate::report;

/// A backup that was copied.
pub(crate) struct CopiedBackup {
    pub(crate) done: CopyReport,
    /// The copy of its server's archive, if it was asked for.
    pub(crate) archive: Option<ArchiveCopy>,
    /// What is missed at the destination.
    pub(crate) missed: MissedText,
}

impl Context {
    pub(crate) fn copy(&self, args: &CopyArgs) -> Result<(), Failure> {
        let (from, name) = self.resolve(&args.source, &args.common)?;
        let keys = crate::keys::opening(false, &args.opening, &self.log)?;
        let CommonOptions { store, run } = &args.common;
        let place = copy_place(&args.source.name, &args.to, &name, store, &args.destination)?;
        let to = place.open(&args.destination, run)?;
        if place.same {
            return Err(Failure::usage("source and destination are the same backup"));
        }
        let lock = args.retain.lock()?;
        let request = CopyRequest {
            verify_bases: None,
            name,
            to: place.name,
            options: args.options,
            keys,
            accept: args.opening.accept,
            within_store: place.within_store.then_some(xb_uploader::Store::MAX_COPY),
            lock,
        };
        let to = self.taking_over(to, args.take_over);
        self.copy_backup(from, to, request, args.with_binlog, &args.common.run).map(drop)
    }

    /// Copies one backup, if wanted with the archived log of its server, and reports it.
    pub(crate) fn copy_backup(
        &self,
        from: Root,
        to: Root,
        request: CopyRequest,
        with_binlog: bool,
        run: &RunOptions,
    ) -> Result<CopiedBackup, Failure> {
        let lock = request.lock;
        let copying = |session: Session| async move {
            let missed = self.warn_if_missed(&to, &session.cancel, run).await?;
            let (done, archive) = match with_binlog {
                true => {
                    let done = xb_backup::copy_with_archive(&session, &to, request).await?;
                    (done.0, Some(done.1))
                }
                false => (xb_backup::copy(&session, &to, request).await?, None),
            };
            self.note_stored(&to, &done.manifest, run);
            Ok(CopiedBackup { done, archive, missed })
        };
        let (copied, end) = self.with_session("copy", run, from, resources(run), copying)?;
        let CopiedBackup { done, archive, .. } = &copied;
        report::copied(&self.log, done, archive.as_ref(), &end);
        report::locked(&self.log, lock.as_ref(), done.not_locked.as_deref());
        archive.as_ref().map_or(Ok(()), judged)?;
        Ok(copied)
    }
}

/// Failure to report for the copy of an archive, if any.
fn judged(archive: &ArchiveCopy) -> Result<(), Failure> {
    let Some(what) = &archive.problem else { return Ok(()) };
    let server = &archive.server;
    Err(Failure::new(format!(
        "the backup is copied, but cannot be restored to the end of the log of {server}: {what}"
    ))
    .stage("copy")
    .ending(Exit::Damaged)
    .hint("run `binlog verify` on the source; if that cannot be repaired, take a backup and copy that one"))
}
