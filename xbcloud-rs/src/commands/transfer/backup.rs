//! `backup`: runs a producer, or receives a clone of a server, and stores its stream.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use xb_backup::{
    BackupError, Checkpoint, CloneSource, Coverage, CoverageFacts, IncrementalBase, Keys,
    LocalRunLog, LockGuard, OrInterrupted as _, Producer, PutReport, PutRequest, ServerWatch,
    Session, SinceRequest,
};
use xb_cli::{Failure, IdentityOptions, format_duration, format_size};
use xb_repo::error::RepoError;
use xb_repo::resolve::BackupSelector;

use crate::args::{BackupArgs, BackupOptions, CheckpointArg, CommonOptions, ProducerOptions};
use crate::commands::begun_anew::MissedText;
use crate::commands::context::Context;
use crate::commands::state_dir::state_dir;
use crate::commands::transfer::origin::{Origin, clone_request, server_name};
use crate::commands::transfer::producer::log_messages;
use crate::commands::transfer::put::{can_lock, fifos, lock_all};
use crate::location::{NewPlace, new_backup_place};
use crate::report;

/// Options of the producer that name the base of an incremental backup. MySQL's programs take `_`
/// for `-`, and any beginning of a name that is unique.
const BASES: [&str; 4] = [
    "incremental-lsn",
    "incremental-basedir",
    "incremental-history-name",
    "incremental-history-uuid",
];
/// Beginning that all of them share.
const BASE: &str = "incremental-";

/// A backup that was stored.
pub(crate) struct StoredBackup {
    pub(crate) report: PutReport,
    /// What came of the checkpoint before it; `None` if none was wanted.
    pub(crate) checkpoint: Option<Checkpoint>,
    /// Whether its server's archive has its position; `None` if there is none, or this is not known.
    pub(crate) archived: Option<Coverage>,
    /// What is missed in the ROOT.
    pub(crate) missed: MissedText,
}

/// The LSN at which the producer's own options make an increment begin.
fn lsn_by_hand(producer: &[OsString]) -> Option<u64> {
    let words = || producer.iter().filter_map(|word| word.to_str());
    let value = |word: &str| word.strip_prefix("--incremental-lsn=").map(str::to_owned);
    let after = words().skip_while(|word| *word != "--incremental-lsn").nth(1);
    words().find_map(value).or(after.map(str::to_owned))?.parse().ok()
}

/// Returns the option if `word` names the base of an incremental backup.
fn sets_own_base(word: &OsString) -> Option<&'static str> {
    let word = word.to_string_lossy();
    let name = word.strip_prefix("--")?.split('=').next()?.replace('_', "-");
    let name = name.strip_prefix("loose-").unwrap_or(&name);
    BASES.into_iter().find(|base| name.len() > BASE.len() && base.starts_with(name))
}

impl Context {
    pub(crate) fn backup(&self, args: &BackupArgs) -> Result<(), Failure> {
        // Before the place is opened: a wrong producer creates no directory.
        let origin = Origin::installed(&args.backup)?;
        let place =
            new_backup_place(args.new.name.as_deref(), &args.new.name_template, &args.common)?;
        let stored = self.back_up(place, origin, &args.backup, &args.common)?;
        if let Some(warning) = unarchived(&stored.report, &stored.archived) {
            self.unusual(&warning);
        }
        Ok(())
    }

    /// Runs the producer or receives the clone, stores its stream, and reports it.
    pub(crate) fn back_up(
        &self,
        NewPlace { root, name, generated }: NewPlace,
        origin: Origin,
        args: &BackupOptions,
        CommonOptions { run, store, .. }: &CommonOptions,
    ) -> Result<StoredBackup, Failure> {
        self.reporting.name(&name);
        let fifos = fifos(run, &args.put)?;
        let root = self.taking_over(root, args.put.classic.take_over);
        let (mut request, resources) = self.put_request(name, &args.put, &args.keys, run)?;
        request.generated = generated;
        request.server = server_name(args);
        // Refused before any request.
        xb_backup::plan(&root, resources, &request).map_err(report::failure)?;
        self.reporting.putting(&root, resources, &request);
        self.say_risks(&args.put, &root, store);
        let lock = args.retain.lock()?;
        let state = state_dir(run);
        let own = state.clone().map(LocalRunLog::new);
        // A host that has only recipients cannot open what it stores.
        let opening = crate::keys::keys(true, &IdentityOptions::default(), &args.keys, &self.log)?;
        let origin = match origin {
            Origin::Server(_) if fifos.is_some() => {
                return Err(Failure::usage("--from and --fifo-streams cannot be combined")
                    .hint("remove --fifo-streams and --fifo-dir"));
            }
            Origin::Server(access) => Origin::Server(self.proven(access)?),
            program => program,
        };
        let (since, messages) = match &origin {
            Origin::Server(_) => (None, None),
            Origin::Program(command) => (
                self.incremental_base(args, command)?,
                self.producer_log(&args.producer_options, run, request.name.as_str())?,
            ),
        };
        let heard = messages.clone();
        let outcome = self.with_session("backup", run, root, resources, |session| async move {
            let Session { root, cancel, .. } = &session;
            can_lock(root, lock.as_ref(), cancel).await?;
            let missed = self.warn_if_missed(root, cancel, run).await?;
            let guard = lock_guard(&args.producer_options);
            let (report, checkpoint) = match origin {
                Origin::Server(access) => {
                    let log = self.log.clone();
                    let clone = clone_request(args, access, request.layout.is_encrypted());
                    let start = || CloneSource::start(clone, &guard, move |text| log.info(text));
                    (xb_backup::backup(&session, &request, start).await?, None)
                }
                Origin::Program(mut producer) => {
                    let (since, own) = (since.as_ref(), own.as_ref());
                    let checkpoint = self
                        .before(&session, &mut request, &mut producer, args, since, own)
                        .await?;
                    let log_messages = log_messages(&self.log, heard);
                    let start = || Producer::start(&producer, fifos, &guard, log_messages);
                    let report = xb_backup::backup(&session, &request, start).await?;
                    // Of a backup that fails, the cause is the first line.
                    if let Some(checkpoint) = &checkpoint {
                        self.say_checkpoint(checkpoint);
                    }
                    (report, checkpoint)
                }
            };
            // The backup is complete; without this note, `--incremental-from` may need a key, and only the store shows
            // an increment to those who remove its base.
            if let Some(own) = own
                && let Err(error) = own.note(&report.manifest)
            {
                self.log.verbose(format!("cannot record this backup on this host: {error}"));
            }
            self.note_stored(root, &report.manifest, run);
            lock_all(&session, &report.manifest.name, lock.as_ref(), &self.log).await?;
            let facts = CoverageFacts { keys: &opening, state: state.as_deref() };
            let archived = self.archived(&session, &report, facts).await;
            Ok(StoredBackup { report, checkpoint, archived, missed })
        });
        if let Some(messages) = &messages
            && let Some(path) = messages.path()
        {
            let path = path.display();
            self.log.verbose(format!("messages of the producer: {path}"));
            if let Some(error) = messages.error() {
                self.log.warn(format!("messages of the producer are missing in {path}: {error}"));
            }
        }
        let (stored, end) = outcome.map_err(|failure| match &messages {
            Some(messages) => self.in_its_words(messages, failure),
            None => failure,
        })?;
        self.say_stored(&stored.report, &end, lock.as_ref());
        if let Some(warning) = stuck(&stored.report, stored.checkpoint.as_ref()) {
            self.unusual(&warning);
        }
        Ok(stored)
    }

    /// Returns whether the server's archive has the position of a new backup. The backup is complete, whatever this shows.
    async fn archived(
        &self,
        session: &Session,
        report: &PutReport,
        facts: CoverageFacts<'_>,
    ) -> Option<Coverage> {
        let server = report.manifest.server.as_deref()?;
        match xb_backup::coverage(session, server, &report.manifest, facts).await {
            Ok(coverage) => coverage,
            Err(error) => {
                self.log.info(format!(
                    "it is unknown whether the log of {server} can be replayed onto this backup: {error}"
                ));
                None
            }
        }
    }

    /// Finds the base of an increment, if one is asked for, and completes the arguments of the producer; has the
    /// server write a checkpoint, and returns what came of it.
    async fn before(
        &self,
        session: &Session,
        request: &mut PutRequest,
        producer: &mut Vec<OsString>,
        args: &BackupOptions,
        since: Option<&(BackupSelector, Keys)>,
        own: Option<&LocalRunLog>,
    ) -> Result<Option<Checkpoint>, BackupError> {
        let Session { root, cancel, .. } = session;
        if let (Some(lsn), false) = (lsn_by_hand(producer), request.base_elsewhere) {
            cancel.or(xb_backup::refuse_without_base(root, request, lsn)).await?;
        }
        request.watch = Some(ServerWatch::begin(producer, cancel).await);
        let is_partial = xb_backup::chooses_tables(producer);
        if let Some((wanted, keys)) = since {
            request.since =
                self.find_base(session, request, wanted, keys, args, (own, is_partial)).await?;
        }
        if let Some(since) = &request.since {
            producer.push(format!("--incremental-lsn={}", since.lsn).into());
        }
        match args.producer_options.checkpoint {
            CheckpointArg::Auto => xb_backup::checkpoint(producer, cancel).await.map(Some),
            CheckpointArg::No => Ok(None),
        }
    }

    fn say_checkpoint(&self, checkpoint: &Checkpoint) {
        match checkpoint {
            Checkpoint::Done { dirty, took } => self.log.verbose(format!(
                "the server wrote a checkpoint: {} in {}",
                format_size(*dirty),
                format_duration(*took)
            )),
            Checkpoint::Skipped(why) => {
                self.log.info(format!("no checkpoint before the backup: {why}"));
            }
            Checkpoint::NotNeeded => {}
        }
    }

    /// Finds the base of an increment. `None` if no backup fits, and a full backup is to be taken
    /// instead.
    async fn find_base(
        &self,
        session: &Session,
        request: &PutRequest,
        wanted: &BackupSelector,
        keys: &Keys,
        args: &BackupOptions,
        (own, is_partial): (Option<&LocalRunLog>, Option<bool>),
    ) -> Result<Option<IncrementalBase>, BackupError> {
        let since = SinceRequest {
            wanted,
            server: request.server.as_deref(),
            keys,
            sealed: request.layout.is_encrypted(),
            accept_unsealed: args.accept_unsealed,
            memory: session.resources.memory,
            own,
            watch: request.watch.as_ref(),
            accept_history: args.accept_history,
            is_partial,
            or_full: args.or_full,
        };
        match session.cancel.or(xb_backup::since(&session.root, &since)).await {
            Ok((since, doubts)) => {
                doubts.iter().for_each(|doubt| self.unusual(doubt));
                self.log.info(format!(
                    "incremental backup on top of {}, from LSN {}",
                    since.base.name, since.lsn
                ));
                Ok(Some(since))
            }
            // A full backup rests on no other one, whoever wrote that. Errors of the store say nothing about the base, and
            // one that was changed needs a person.
            Err(
                error @ (BackupError::History(_)
                | BackupError::UnprovenBase(_)
                | BackupError::Unsealed { .. }
                | BackupError::Repo(RepoError::Chain { .. })
                | BackupError::Repo(RepoError::NotRestorable { .. })
                | BackupError::Repo(RepoError::NotThere { .. })),
            ) if args.or_full => {
                self.unusual(&format!("a full backup is taken instead of an increment: {error}"));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The base that `--incremental-from` names, and the keys to open its manifest.
    pub(crate) fn incremental_base(
        &self,
        args: &BackupOptions,
        producer: &[OsString],
    ) -> Result<Option<(BackupSelector, Keys)>, Failure> {
        let Some(name) = &args.incremental_from else { return Ok(None) };
        if let Some(option) = producer.iter().find_map(sets_own_base) {
            return Err(Failure::usage(format!(
                "--incremental-from and the producer's {option} both set the base"
            ))
            .hint(format!("remove {option}")));
        }
        let wanted = BackupSelector::parse(name)
            .map_err(|error| Failure::usage(format!("--incremental-from: {error}")))?;
        let keys = crate::keys::keys(false, &IdentityOptions::default(), &args.keys, &self.log)?;
        Ok(Some((wanted, keys)))
    }
}

/// Warns about an increment before which the server has written no checkpoint since its base.
pub(crate) fn stuck(report: &PutReport, checkpoint: Option<&Checkpoint>) -> Option<String> {
    let lsn = report.manifest.source.stuck_lsn()?;
    Some(format!(
        "{} begins at LSN {lsn} like its base, because the server has written no checkpoint since: it carries all changes since then, and so will the next increment; {}",
        report.manifest.name,
        unstick(checkpoint)
    ))
}

/// The next step, by what came of the checkpoint before the increment.
fn unstick(checkpoint: Option<&Checkpoint>) -> &'static str {
    match checkpoint {
        Some(Checkpoint::Skipped(why)) => why.hint(),
        _ => "let backups begin with a checkpoint (--checkpoint=auto, SUPER for the login)",
    }
}

/// Warns about a backup onto which the archived log of its server cannot be replayed.
pub(crate) fn unarchived(report: &PutReport, archived: &Option<Coverage>) -> Option<String> {
    let Some(Coverage::Uncovered(what)) = archived else { return None };
    let manifest = &report.manifest;
    let server = manifest.server.as_deref().unwrap_or_default();
    Some(format!(
        "the archived log of {server} cannot be replayed onto {}: {what}; see whether its receiver runs, and run `xbcloud-rs binlog list`",
        manifest.name
    ))
}

pub(crate) fn lock_guard(args: &ProducerOptions) -> LockGuard {
    let usual = || Some(PathBuf::from("/var/tmp")).filter(|dir| dir.is_dir());
    let spool_dir = match &args.spool_dir {
        None => usual(),
        Some(dir) => Some(dir.clone()).filter(|dir| dir.as_os_str() != "none"),
    };
    LockGuard {
        spool_dir,
        spool_size: args.spool_size.bytes(),
        lock_stall: (args.lock_stall > 0).then(|| Duration::from_secs(args.lock_stall)),
    }
}

#[cfg(test)]
mod tests {
    use xb_backup::NoCheckpoint;

    use super::*;

    #[test]
    fn what_was_given_is_not_advised_to_those_whose_increment_is_stuck() {
        let advised = |checkpoint: Option<Checkpoint>| unstick(checkpoint.as_ref());
        let skipped = |why| Some(Checkpoint::Skipped(why));
        assert!(advised(None).contains("--checkpoint=auto, SUPER"));
        let limit = advised(skipped(NoCheckpoint::TooMuch { dirty: 715 << 20 }));
        assert!(!limit.contains("--checkpoint") && limit.contains("when it is quiet"), "{limit}");
        assert!(advised(skipped(NoCheckpoint::Denied)).contains("SUPER"));
    }

    #[test]
    fn a_base_is_seen_however_it_is_written() {
        for word in [
            "--incremental-lsn=5",
            "--incremental_lsn=5",
            "--incremental-basedir",
            "--incremental_basedir=/b",
            "--incremental-history-name=n",
            "--incremental_history_uuid=u",
            "--incremental-l=5",
        ] {
            assert!(sets_own_base(&word.into()).is_some(), "{word}");
        }
        for word in ["--incremental", "--incremental-force-scan", "--target-dir=/incremental-lsn"] {
            assert_eq!(sets_own_base(&word.into()), None, "{word}");
        }
    }
}
