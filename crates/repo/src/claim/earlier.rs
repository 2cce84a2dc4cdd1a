//! Packed runs of one name: two may write at the same time, but only one can commit. The later one
//! is told before it uploads anything.

use jiff::Timestamp;
use serde_json::Value;
use xb_uploader::{ListedObject, StoreErrorKind};

use crate::claim::alive;
use crate::claim::claim_state::DEAD;
use crate::claim::note::Note;
use crate::error::RepoError;
use crate::names::{BackupName, CLAIM, RunId};
use crate::root::Root;

/// Refuses the run if another packed run of `name` began earlier and is alive. `packed` are the
/// objects of all packed runs of the name, with keys below it.
///
/// Only a process that can be seen from here counts: another one may have been killed, and then its
/// name is free. With `any`, others count, too, and so does one that began in the same second, where
/// it is unknown which of the two saw the other.
///
/// # Errors
/// [`RepoError::Running`].
pub async fn refuse_earlier(
    root: &Root,
    name: &BackupName,
    run: RunId,
    packed: &[ListedObject],
    any: bool,
) -> Result<(), RepoError> {
    if root.take_over().is_some_and(|take_over| take_over.of_living()) {
        return Ok(());
    }
    let key = |run: RunId| root.run_keys(name, run).claim();
    let claims: Vec<(i64, RunId)> = packed.iter().filter_map(claim).collect();
    let own = claims.iter().find(|(_, other)| *other == run);
    // If the listing lags behind, ours is the last one.
    let own = own.map_or(i64::MAX, |(written, _)| *written);
    for (written, other) in claims {
        let seconds = root.store().now().saturating_sub(written).max(0);
        if other == run || written > own || seconds >= DEAD {
            continue;
        }
        let claim = key(other);
        let Some(note) = read(root, &claim).await? else { continue };
        let earlier = match any {
            true => !alive::is_proven_dead(&note.mark),
            // A run of this process that failed may have left its claim.
            false if !alive::is_proven_alive(&note.mark) || alive::is_own(&note.mark) => false,
            // Both times are of this machine.
            false if written == own => {
                read(root, &key(run)).await?.is_none_or(|own| time(&note) < time(&own))
            }
            false => true,
        };
        if earlier {
            return Err(RepoError::Running { name: name.to_string(), claim, seconds });
        }
    }
    Ok(())
}

/// Returns whether the process that wrote this claim of a packed run ran on this machine and has ended.
///
/// # Errors
/// [`RepoError::Store`].
pub(crate) async fn is_of_dead_process(root: &Root, claim: &str) -> Result<bool, RepoError> {
    Ok(read(root, claim).await?.is_some_and(|note| alive::is_proven_dead(&note.mark)))
}

/// Reads a claim; `None` if it is gone. A damaged one tells nothing of its run.
async fn read(root: &Root, claim: &str) -> Result<Option<Note>, RepoError> {
    match root.store().get(claim).await.map_err(RepoError::from) {
        Ok(bytes) => Ok(Some(Note::read(&bytes))),
        Err(RepoError::Store(error)) if error.kind == StoreErrorKind::NotFound => Ok(None),
        Err(error) if error.is_of_one_object() => Ok(Some(Note::read(&[]))),
        Err(error) => Err(error),
    }
}

/// When a claim was written, by the clock of its run.
fn time(note: &Note) -> Option<Timestamp> {
    note.mark.get("time").and_then(Value::as_str)?.parse().ok()
}

/// When the claim of a run was written, by the clock of the store, and its run; `None` for any other
/// object.
fn claim(object: &ListedObject) -> Option<(i64, RunId)> {
    let (run, last) = object.key.split_once('/')?;
    (last == CLAIM).then_some((object.modified, RunId::parse(run)?))
}
