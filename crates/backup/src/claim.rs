//! Claims: how a run shows that it is alive.

use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinHandle;
use xb_uploader::StoreErrorKind;

use crate::error::BackupError;
use crate::names::{BackupName, CLAIM, RunId, claims_folder, of_packed_run, run_folder};
use crate::root::Root;

/// How often a claim is refreshed while its run goes on.
const REFRESH: Duration = Duration::from_secs(600);
/// Age in seconds from which a claim is taken for that of a dead run.
pub(crate) const DEAD: i64 = 3600;

/// Seconds after the last sign of life of a dead run from which an object cannot be its own: it
/// would have refreshed its claim in between.
const FOREIGN_AFTER: i64 = 1800;

/// A claim of ours, refreshed in the background until it is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    key: String,
    refresher: JoinHandle<()>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.refresher.abort();
    }
}

fn content(run: RunId) -> Bytes {
    // Who made it, for a person who finds it. Only its age counts for us.
    let text = serde_json::json!({ "run": run.to_string(), "pid": std::process::id(), "time": jiff::Timestamp::now(), "process_started": process_start(std::process::id()), "pid_namespace": pid_namespace() });
    Bytes::from(format!("{text}\n"))
}

impl Claim {
    /// Claims the folder of a packed run. No other run has the same, so there is nothing to win.
    pub(crate) async fn packed(
        root: &Root,
        name: &BackupName,
        run: RunId,
    ) -> Result<Self, BackupError> {
        let key = root.key(&format!("{}/{CLAIM}", run_folder(name, run)));
        root.store().put(&key, content(run).into()).await?;
        Ok(Self::refreshed(root, key, run))
    }

    /// Claims the name for a classic run, whose objects would mix with those of another.
    ///
    /// Claims have numbers, each is written create-only: of several runs that find the same dead
    /// claim only one gets the next number. Returns when the dead run whose claim was taken over
    /// gave its last sign of life, seconds since 1970.
    pub(crate) async fn classic(
        root: &Root,
        name: &BackupName,
        run: RunId,
    ) -> Result<(Self, Option<i64>), BackupError> {
        let folder = claims_folder(name);
        refuse_living(root, name).await?;
        let newest = root.list_below(&folder).await?.pop();
        let number: u64 = newest.as_ref().and_then(|last| last.key.parse().ok()).unwrap_or(0);
        let key = root.key(&format!("{folder}/{:06}", number + 1));
        match root.store().create(&key, content(run)).await {
            Err(error) if error.kind == StoreErrorKind::AlreadyExists => {
                Err(BackupError::Running { name: name.to_string(), claim: key, seconds: 0 })
            }
            Err(error) => Err(error.into()),
            Ok(()) => Ok((Self::refreshed(root, key, run), newest.map(|last| last.modified))),
        }
    }

    /// Whether no later run has taken this claim's place.
    pub(crate) async fn still_ours(
        &self,
        root: &Root,
        name: &BackupName,
    ) -> Result<bool, BackupError> {
        let folder = claims_folder(name);
        let newest = root.list_below(&folder).await?.pop();
        Ok(newest.is_some_and(|last| self.key.ends_with(&format!("{folder}/{}", last.key))))
    }

    /// Key of the claim.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    fn refreshed(root: &Root, key: String, run: RunId) -> Self {
        let (root, renewed) = (root.clone(), key.clone());
        let refresher = tokio::spawn(async move {
            loop {
                tokio::time::sleep(REFRESH).await;
                // A refresh that fails is tried again at the next turn: three may fail in a row.
                let _ = root.store().put(&renewed, content(run).into()).await;
            }
        });
        Self { key, refresher }
    }
}

/// Refuses to go on while a classic run of `name` gives signs of life.
///
/// # Errors
/// [`BackupError::Running`].
pub(crate) async fn refuse_living(root: &Root, name: &BackupName) -> Result<(), BackupError> {
    let folder = claims_folder(name);
    let Some(last) = root.list_below(&folder).await?.pop() else { return Ok(()) };
    let claim = root.key(&format!("{folder}/{}", last.key));
    let seconds = jiff::Timestamp::now().as_second() - last.modified;
    if seconds < DEAD && !left_by_dead_process(root, &claim).await? {
        return Err(BackupError::Running { name: name.to_string(), claim, seconds });
    }
    Ok(())
}

/// Whether the newest object of a classic run, written at `newest`, can be that of the run whose last
/// sign of life was at `seen`; both in seconds since 1970.
pub(crate) fn may_be_its_own(newest: i64, seen: i64) -> bool {
    newest <= seen + FOREIGN_AFTER
}

/// Whether the classic objects of `name` are those of a run of ours that has not committed: a claim of
/// its stands, and nothing came long after.
pub(crate) async fn is_unfinished(root: &Root, name: &BackupName) -> Result<bool, BackupError> {
    let claims = root.list_below(&claims_folder(name)).await?;
    let Some(seen) = claims.iter().map(|claim| claim.modified).max() else { return Ok(false) };
    let objects = root.list_below(name.as_str()).await?;
    let classic = objects.iter().filter(|listed| !of_packed_run(&listed.key));
    Ok(classic
        .map(|listed| listed.modified)
        .max()
        .is_some_and(|newest| may_be_its_own(newest, seen)))
}

/// Whether a claim was written by a process of this machine that no longer runs.
///
/// A process id alone would not do: ids are used again. With the start time it is unmistakable on
/// one boot and among processes that see each other; the claim of another machine, boot or container
/// simply looks alive until it is old.
async fn left_by_dead_process(root: &Root, claim: &str) -> Result<bool, BackupError> {
    let bytes = match root.store().get(claim).await {
        Ok(bytes) => bytes,
        Err(error) if error.kind == StoreErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error.into()),
    };
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(&bytes) else { return Ok(false) };
    let (Some(pid), Some(started)) = (
        value.get("pid").and_then(serde_json::Value::as_u64),
        value.get("process_started").and_then(|s| s.as_str()),
    ) else {
        return Ok(false);
    };
    let (Ok(pid), Some((boot, _))) = (u32::try_from(pid), started.split_once(' ')) else {
        return Ok(false);
    };
    let namespace = value.get("pid_namespace").and_then(|space| space.as_str());
    if boot_id().as_deref() != Some(boot)
        || namespace.is_none()
        || namespace != pid_namespace().as_deref()
    {
        return Ok(false);
    }
    Ok(match process_start(pid) {
        Some(start) => start != started,
        // Somebody else's process may not be looked at, but it can be seen to be there.
        None => !exists(pid),
    })
}

/// The name space in which process ids are counted here.
fn pid_namespace() -> Option<String> {
    let link = std::fs::read_link("/proc/self/ns/pid").ok()?;
    link.to_str().map(str::to_owned)
}

fn exists(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

fn boot_id() -> Option<String> {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().map(|id| id.trim().to_owned())
}

/// Boot and start time of a process of this machine: `BOOT TICKS`.
fn process_start(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name may hold blanks and brackets; the fields after its last bracket do not.
    let ticks = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.to_owned();
    Some(format!("{} {ticks}", boot_id()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_process_is_alive_and_has_one_start() {
        let own = process_start(std::process::id());
        assert!(own.is_some());
        assert_eq!(own, process_start(std::process::id()));
        assert_ne!(own, process_start(1));
    }
}
