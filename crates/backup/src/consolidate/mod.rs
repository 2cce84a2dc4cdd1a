//! `consolidate`: a new full backup out of a chain, made without the server, and proven by a trial restore.

mod made;
mod merged_stream;

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use xb_delta::Checkpoints;
use xb_encryptor::Keys;
use xb_pipeline::Durability;
use xb_repo::chain::{Link, UnknownImport, chain, unknown_import};
use xb_repo::manifest::Manifest;
use xb_repo::names::BackupName;
use xb_repo::verification::{Level, VerifyReport};
use xb_uploader::Lock;

use self::made::made_before;
use self::merged_stream::merged_stream;
use crate::cancel::OrInterrupted as _;
use crate::child::{OWN_NOTE, OnLine};
use crate::error::BackupError;
use crate::full_disk::AGAIN;
use crate::read::request::GetRequest;
use crate::read::unlock::Accept;
use crate::restore::RestoreOptions;
use crate::restore::chain::{ApplyMethod, Chain, merge_chain, remove_increments};
use crate::restore::choose::links;
use crate::restore::fetch::{FetchedChain, fetch};
use crate::restore::prepare::PrepareTool;
use crate::restore::request::AfterRestore;
use crate::restore::room::{all_unpacked, check_room};
use crate::scratch::Scratch;
use crate::selection::Selection;
use crate::session::Session;
use crate::verify::{Trial, VerifyRequest, verify_by_restore};
use crate::write::{MergedChain, PutReport, PutRequest, plan, put, refuse_taken};

/// Request to consolidate a chain.
#[derive(Debug)]
pub struct ConsolidateRequest {
    /// The last backup of the chain.
    pub name: BackupName,
    /// The new backup: its name, object size, codec and key slots; packed.
    pub put: PutRequest,
    /// Keys to open the chain and the new backup.
    pub keys: Keys,
    /// Unauthenticated backups that are read nevertheless.
    pub accept: Accept,
    /// Whether to merge increments of which it is unknown whether a tablespace was imported before them.
    pub accept_imports: bool,
    /// The trial restore of the new backup, and the parent of the scratch directory.
    pub trial: Trial,
    /// Lock of the objects of the new backup, which is made before the trial: that may take hours.
    pub lock: Option<Lock>,
}

/// Result of a consolidation.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConsolidateOutcome {
    /// The backup is full: there is no chain.
    Full,
    /// An earlier run has made and proven the full backup of this name.
    Before(String),
    /// A full backup is there, and a trial restore was made of it. Only its report says whether that has proven it.
    Tried {
        /// Its name.
        name: String,
        /// Names of the backups that were merged, the full one first.
        from: Vec<String>,
        /// Report of the stored backup; `None` if an earlier run has stored it.
        put: Option<Box<PutReport>>,
        /// The trial restore.
        trial: Box<VerifyReport>,
    },
}

/// Makes a full backup out of the chain that ends with `request.name`, and proves it by a trial restore. Fetches the
/// chain into a scratch directory, merges its pages in one pass, and stores the result, unprepared, as [`put`] stores
/// a stream. Removes no backup.
///
/// The new backup has the data of the last one, and so its times, positions, server and history. If an earlier run was
/// ended after it had stored that backup, only the trial is made.
///
/// # Errors
/// [`BackupError::Consolidate`] if the chain is not known to be fit for a merge; the errors of [`put`] and of
/// [`verify_by_restore`]. A backup that was stored before the trial failed stays, and counts for no more than its chain.
pub async fn consolidate(
    session: &Session,
    request: ConsolidateRequest,
    on_line: &OnLine,
) -> Result<ConsolidateOutcome, BackupError> {
    let Session { root, cancel, .. } = session;
    let ConsolidateRequest { name, put: new, mut keys, accept, accept_imports, trial, lock } =
        request;
    let chain = cancel.or(chain(root, &name)).await?;
    let from = chain.iter().map(|link| link.name.to_string()).collect();
    if chain.len() < 2 {
        return Ok(ConsolidateOutcome::Full);
    }
    refuse_doubtful_full(&chain)?;
    let record = new.tool.clone();
    let made = cancel.or(made_before(root, &chain)).await?;
    if let Some((before, _)) = &made {
        lock_new(session, before, lock.as_ref()).await?;
    }
    let (name, stored) = match made {
        Some((before, true)) => return Ok(ConsolidateOutcome::Before(before.to_string())),
        Some((before, false)) => (before, None),
        None => {
            refuse_unfit(&chain)?;
            if !accept_imports {
                refuse_unknown_imports(&chain)?;
            }
            refuse_unsealed(&chain, &new)?;
            let merged;
            (merged, keys) =
                store_merged(session, &chain, new, keys, accept, &trial, on_line).await?;
            let name = BackupName::new(&merged.manifest.name)?;
            lock_new(session, &name, lock.as_ref()).await?;
            (name, Some(Box::new(merged)))
        }
    };
    let level = Level::Restore;
    let verify = VerifyRequest { name: name.clone(), level, keys, accept, record: Some(record) };
    let proof = verify_by_restore(session, verify, &trial, on_line).await?;
    Ok(ConsolidateOutcome::Tried {
        name: name.to_string(),
        from,
        put: stored,
        trial: Box::new(proof),
    })
}

/// Locks the objects of the new backup, also of one that an earlier run has left.
async fn lock_new(
    session: &Session,
    name: &BackupName,
    lock: Option<&Lock>,
) -> Result<(), BackupError> {
    let Some(lock) = lock else { return Ok(()) };
    let locking =
        crate::admin::object_lock::lock(&session.root, name, lock, session.resources.parallel);
    session.cancel.or(locking).await.map(drop)
}

/// Fetches the chain, merges it, and stores the result. Returns the keys, too.
async fn store_merged(
    session: &Session,
    chain: &[Link],
    new: PutRequest,
    keys: Keys,
    accept: Accept,
    trial: &Trial,
    on_line: &OnLine,
) -> Result<(PutReport, Keys), BackupError> {
    let Session { root, cancel, .. } = session;
    let Some(last) = chain.last() else { return Err(BackupError::Bug("a chain has no backup")) };
    let scratch = Scratch::new(trial.private.scratch_dir.as_deref(), "xb-consolidate-")?;
    // Now, and not after hours of reading: what `put` would refuse, and what the trial would lack.
    plan(root, session.resources, &new)?;
    cancel.or(refuse_taken(root, &new)).await?;
    trial.private.server.look(scratch.path())?;
    trial.private.prepare.look(last.stored.manifest.source.tool_name.as_deref())?;
    let needed = cancel.or(all_unpacked(root, chain)).await?;
    let data = scratch.path().join("data");
    let making = async {
        check_room(scratch.path(), needed, AGAIN)?;
        let files = Selection::default();
        let name = last.name.clone();
        let mut get = GetRequest { name, files, as_stored: false, keys, accept };
        let ready = AfterRestore::prepared(trial.private.prepare.clone());
        let wanted = cancel.or(links(session, &get, &ready)).await?;
        let how = RestoreOptions { sync: Durability::None, ..RestoreOptions::default() };
        let FetchedChain { folders, .. } =
            fetch(session, &mut get, &wanted, &data, how, on_line).await?;
        refuse_other(chain, &folders)?;
        session.observer.begin_phase("merge");
        let increments = folders.get(1..).unwrap_or_default();
        let merged = Chain { dir: &data, increments, of: None };
        if let ApplyMethod::OneByOne(unfit) = merge_chain(session, merged, false, on_line)? {
            return Err(unfit_chain(last.name.as_str(), unfit.to_string()));
        }
        remove_increments(&data)?;
        let merged = chain.iter().map(|link| link.stored.merged_link()).collect();
        let accepted_imports = unknown_import(chain).is_some();
        let last = last.stored.manifest.clone();
        let new = PutRequest {
            server: last.server.clone(),
            merged: Some(MergedChain { last, links: merged, accepted_imports }),
            ..new
        };
        let (stream, writing) = merged_stream(&data)?;
        let stored = put(session, &new, stream).await;
        // The end of `put` has closed the stream, so the thread ends, too.
        let written = tokio::task::block_in_place(|| ended(writing));
        let stored = match (stored, written) {
            // A stream that could not be written is the cause of whatever came after.
            (
                Err(BackupError::Put(_) | BackupError::Input(_) | BackupError::Incomplete { .. }),
                Err(why),
            ) => {
                return Err(failed(&data, why));
            }
            (stored, _) => stored?,
        };
        Ok::<_, BackupError>((stored, get.keys))
    };
    let made = making.await.map_err(|error| error.or_full_scratch(scratch.path()))?;
    if let Err(error) = scratch.close() {
        on_line(format!("{OWN_NOTE}cannot remove the scratch directory: {error}").as_bytes());
    }
    Ok(made)
}

/// Refuses a chain that by its manifests cannot be merged, before hours of reading.
fn refuse_unfit(chain: &[Link]) -> Result<(), BackupError> {
    for Link { name, stored } in chain {
        let tool = stored.manifest.source.tool_name.as_deref();
        if let Some(tool) = tool
            && PrepareTool::of_name(tool) != Some(PrepareTool::MariaDbBackup)
        {
            return Err(unfit_chain(
                name.as_str(),
                format!("only backups of mariadb-backup can be merged, and {tool} made this one"),
            ));
        }
        if stored.manifest.source.is_partial {
            let what = "it is partial, and only whole backups can be merged: leave out the producer's options that choose databases or tables, and take a full backup";
            return Err(unfit_chain(name.as_str(), what.to_owned()));
        }
        if let Some(why) = stored.manifest.why_no_base() {
            return Err(unfit_chain(name.as_str(), format!("it {why}")));
        }
    }
    for [before, link] in chain.array_windows() {
        let (start, from) =
            (before.stored.manifest.source.redo_start_lsn, link.stored.manifest.source.from_lsn);
        if let Some((start, from)) = start.zip(from)
            && from > start
        {
            return Err(unfit_chain(
                link.name.as_str(),
                format!(
                    "it begins at LSN {from}, after LSN {start}, where the redo log of its base {} begins, so changes between them are only in that log",
                    before.name
                ),
            ));
        }
    }
    Ok(())
}

/// Returns what keeps a chain that is fit for a consolidation otherwise from one: see [`unknown_import`].
#[must_use]
pub fn unfit_by_import(chain: &[Link]) -> Option<UnknownImport<'_>> {
    refuse_unfit(chain).ok().and_then(|()| unknown_import(chain))
}

/// Refuses a chain whose full backup may lack the pages of an imported tablespace: so would the new one, and would not say so.
fn refuse_doubtful_full(chain: &[Link]) -> Result<(), BackupError> {
    match unknown_import(chain) {
        Some(UnknownImport::OfFull(full)) => {
            let what = "it may lack imported tablespaces (ALTER TABLE ... IMPORT TABLESPACE), because an earlier version made it of a chain without looking for them, and a backup made of it would lack them, too: take a full backup";
            Err(unfit_chain(full.as_str(), what.to_owned()))
        }
        _ => Ok(()),
    }
}

/// Refuses increments that may lack the pages of an imported tablespace.
fn refuse_unknown_imports(chain: &[Link]) -> Result<(), BackupError> {
    match unknown_import(chain) {
        Some(UnknownImport::Between { base, name }) => Err(unfit_chain(
            name.as_str(),
            format!(
                "it is unknown whether a tablespace was imported since {base} (ALTER TABLE ... IMPORT TABLESPACE), whose pages no increment would have: take a full backup, or add --accept-imports if you know that there was none"
            ),
        )),
        _ => Ok(()),
    }
}

/// Refuses to make an unsealed backup out of a sealed one.
fn refuse_unsealed(chain: &[Link], new: &PutRequest) -> Result<(), BackupError> {
    let sealed = chain.iter().find(|link| link.stored.manifest.is_sealed());
    match sealed.filter(|_| !new.layout.is_encrypted()) {
        Some(link) => Err(BackupError::Selection(format!(
            "{} is sealed, but no key or recipient is given for the new backup: add --recipient, or the key that is to open it",
            link.name
        ))),
        None => Ok(()),
    }
}

/// Refuses files of another backup than the manifest describes.
fn refuse_other(chain: &[Link], folders: &[PathBuf]) -> Result<(), BackupError> {
    for (Link { name, stored }, folder) in chain.iter().zip(folders) {
        let Manifest { source, .. } = &stored.manifest;
        let found = Checkpoints::of(folder);
        let is_it = found.as_ref().is_some_and(|found| {
            let stated = (source.from_lsn, source.to_lsn);
            stated == (Some(found.from), Some(found.to))
                && source.backup_type.as_deref() == Some(&found.kind)
        });
        if !is_it {
            let what = "its files state other log positions than its manifest".to_owned();
            return Err(BackupError::Damaged { name: name.to_string(), what });
        }
    }
    Ok(())
}

/// Waits for the thread that writes the stream; the error says what failed.
fn ended(writing: JoinHandle<Result<(), String>>) -> Result<(), String> {
    writing.join().unwrap_or_else(|_| Err("the thread that writes the stream panicked".to_owned()))
}

fn unfit_chain(name: &str, what: String) -> BackupError {
    BackupError::Consolidate { name: name.to_owned(), what }
}

fn failed(place: &Path, what: String) -> BackupError {
    BackupError::Restore { target: place.display().to_string(), what }
}
