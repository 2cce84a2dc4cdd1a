//! Claims: how a run shows that it is alive, and how one classic run at a time has a name.
//!
//! The objects of two classic runs of one name have the same keys. So a run claims the name first:
//! claims are numbered, and the highest number counts. A claim is
//!
//! 1. `claiming` while its run looks whether it may have the name: nothing is written or removed yet;
//! 2. `holding` from the moment it removes what a dead run has left, until the run is over;
//! 3. `ended` when nothing of the run is left but a complete backup, or nothing at all.
//!
//! The highest claim is never removed, but by `gc` when it is old, or by its own run while it is still
//! `claiming`. So no older claim counts again, however late its run wakes up.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use xb_uploader::{Gate, Listed, StoreError, StoreErrorKind};

use crate::alive;
use crate::error::BackupError;
use crate::lease::Lease;
use crate::names::{BackupName, CLAIM, RunId, claims_folder, of_packed_run, run_folder};
use crate::root::Root;

/// How often a claim is refreshed while its run goes on.
const REFRESH: Duration = Duration::from_secs(600);
/// Age in seconds from which a claim is taken for that of a dead run: twice what a lease holds.
pub(crate) const DEAD: i64 = 3600;
/// Age in seconds from which the claim of a run that has ended may be removed.
pub(crate) const FORGOTTEN: i64 = 30 * 24 * 3600;

/// Seconds after the last sign of life of a dead run from which an object cannot be its own: it
/// would have refreshed its claim in between.
const FOREIGN_AFTER: i64 = 1800;

/// How far a classic run has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It looks whether it may have the name.
    Claiming,
    /// It writes and removes objects.
    Holding,
    /// It is over, and has left nothing that another run would have to remove.
    Ended,
}

impl Phase {
    const NAMES: [(Self, &str); 3] =
        [(Self::Claiming, "claiming"), (Self::Holding, "holding"), (Self::Ended, "ended")];
}

/// What a claim says.
#[derive(Debug, Clone)]
pub(crate) struct Note {
    /// Who wrote it: random, and of one claim alone.
    pub(crate) holder: String,
    pub(crate) phase: Phase,
    run: String,
    mark: Value,
    host: Option<String>,
}

impl Note {
    fn new(run: RunId) -> Result<Self, BackupError> {
        let holder = RunId::random().map_err(|error| BackupError::System {
            what: "randomness for the claim",
            source: std::io::Error::other(error),
        })?;
        let (run, mark) = (run.to_string(), alive::own_mark());
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
        let host = host.map(|host| host.trim().to_owned());
        Ok(Self { holder: holder.to_string(), phase: Phase::Claiming, run, mark, host })
    }

    /// The bytes to store, which differ from one time to the next.
    pub(crate) fn encode(&self) -> Bytes {
        let phase = Phase::NAMES.iter().find(|(phase, _)| *phase == self.phase);
        let mut text = json!({
            "run": self.run, "holder": self.holder, "state": phase.map(|(_, name)| name),
            "host": self.host, "time": jiff::Timestamp::now(),
        });
        if let (Some(text), Some(mark)) = (text.as_object_mut(), self.mark.as_object()) {
            text.extend(mark.clone());
        }
        Bytes::from(format!("{text}\n"))
    }

    /// Reads a claim, of earlier versions too: those were removed at the end, so whatever is there holds.
    pub(crate) fn read(bytes: &[u8]) -> Self {
        let value: Value = serde_json::from_slice(bytes).unwrap_or_default();
        let text = |field: &str| value.get(field).and_then(Value::as_str).map(str::to_owned);
        let state = text("state").unwrap_or_default();
        let phase = Phase::NAMES.iter().find(|(_, name)| *name == state);
        Self {
            holder: text("holder").unwrap_or_default(),
            phase: phase.map_or(Phase::Holding, |(phase, _)| *phase),
            run: text("run").unwrap_or_default(),
            host: text("host"),
            mark: value,
        }
    }

    /// Who wrote it, for a person.
    fn describe(&self) -> String {
        let pid = self.mark.get("pid").and_then(Value::as_u64);
        let pid = pid.map_or_else(|| "unknown".to_owned(), |pid| pid.to_string());
        let host = self.host.as_deref().unwrap_or("unknown");
        format!("run {}, host {host}, process {pid}", self.run)
    }
}

/// A claim as a listing shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Numbered {
    number: u64,
    /// Its whole key.
    pub(crate) key: String,
    pub(crate) modified: i64,
    tag: Option<String>,
}

/// The claims of classic runs of `name`, the newest last. Keys that are no claims are passed over.
pub(crate) async fn claims(root: &Root, name: &BackupName) -> Result<Vec<Numbered>, StoreError> {
    let folder = root.key(&claims_folder(name));
    let listed = root.store().list(&folder).await?;
    let numbered = |listed: Listed| {
        let last = listed.key.strip_prefix(&folder)?.strip_prefix('/')?;
        let digits = last.split_once('-').map_or(last, |(digits, _)| digits);
        let number = digits.parse().ok()?;
        Some(Numbered { number, key: listed.key, modified: listed.modified, tag: listed.tag })
    };
    let mut claims: Vec<Numbered> = listed.into_iter().filter_map(numbered).collect();
    claims.sort_unstable_by(|a, b| (a.number, &a.key).cmp(&(b.number, &b.key)));
    Ok(claims)
}

/// What the claims of a name say about it.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    /// A claim whose run may be alive, and its age in seconds.
    pub(crate) alive: Option<(String, i64)>,
    /// The last sign of life of a run that may have left objects, seconds since 1970.
    pub(crate) seen: Option<i64>,
    /// Whose claim that is.
    holder: Option<String>,
}

/// Reads what the claims of `name` say.
pub(crate) async fn standing(root: &Root, claims: &[Numbered]) -> Result<Standing, BackupError> {
    let mut standing = Standing::default();
    for claim in claims.iter().rev() {
        let note = match root.store().get(&claim.key).await {
            Ok(bytes) => Note::read(&bytes),
            Err(error) if error.kind == StoreErrorKind::NotFound => continue,
            Err(error) => return Err(error.into()),
        };
        // Also below claims that have only looked: the one that they looked at may be alive.
        if note.phase != Phase::Ended {
            let age = root.store().now().saturating_sub(claim.modified);
            if age < DEAD && !alive::is_proven_dead(&note.mark) {
                standing.alive = Some((claim.key.clone(), age));
                standing.holder = Some(note.describe());
            }
        }
        match note.phase {
            // It had not removed or written anything: what an older one says counts.
            Phase::Claiming => {}
            Phase::Holding => {
                standing.seen = Some(claim.modified);
                break;
            }
            Phase::Ended => break,
        }
    }
    Ok(standing)
}

/// A claim of ours, refreshed in the background until it is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    lease: Option<Arc<Lease>>,
    refresher: JoinHandle<()>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.refresher.abort();
    }
}

impl Claim {
    /// Claims the folder of a packed run. No other run has the same, so there is nothing to win.
    pub(crate) async fn packed(
        root: &Root,
        name: &BackupName,
        run: RunId,
    ) -> Result<Self, BackupError> {
        let key = root.key(&format!("{}/{CLAIM}", run_folder(name, run)));
        let note = Note { phase: Phase::Holding, ..Note::new(run)? };
        root.store().put(&key, note.encode().into()).await?;
        let root = root.clone();
        let refresher = tokio::spawn(async move {
            loop {
                tokio::time::sleep(REFRESH).await;
                // A refresh that fails is tried again at the next turn: three may fail in a row.
                let _ = root.store().put(&key, note.encode().into()).await;
            }
        });
        Ok(Self { lease: None, refresher })
    }

    /// Claims the name for a classic run, or for one that removes classic objects. The claim is
    /// [`Phase::Claiming`]: until [`Claim::hold`] nothing may be written or removed.
    ///
    /// Also gives when the dead run whose claim was taken over gave its last sign of life, seconds
    /// since 1970.
    ///
    /// # Errors
    /// [`BackupError::Running`] while another one has the name.
    pub(crate) async fn classic(
        root: &Root,
        name: &BackupName,
        run: RunId,
    ) -> Result<(Self, Option<i64>), BackupError> {
        let before = claims(root, name).await?;
        let standing = standing(root, &before).await?;
        let taken = refuse_unless_taken(root, name, &standing)?;
        let number = before.last().map_or(0, |newest| newest.number).saturating_add(1);
        let note = Note::new(run)?;
        let folder = root.key(&claims_folder(name));
        // Where a store cannot refuse a key that is there, two must not share one.
        let key = match root.store().has_conditions() {
            true => format!("{folder}/{number:06}"),
            false => format!("{folder}/{number:06}-{}", note.holder),
        };
        let running =
            |claim: String| BackupError::Running { name: name.to_string(), claim, seconds: 0 };
        let content = note.encode();
        let lease = Lease::new(root, name, key.clone(), note);
        match root.store().create(&key, content).await {
            Err(error) if error.kind == StoreErrorKind::AlreadyExists => return Err(running(key)),
            other => other?,
        }
        let claim = Self::refreshed(lease);
        // The other one may have given a sign of life since it was judged, or have come at the same time.
        let after = claims(root, name).await?;
        let rival = after.iter().rev().find(|other| {
            let was_there = taken || before.contains(other);
            other.key != key && (other.number >= number || !was_there)
        });
        if let Some(rival) = rival {
            claim.withdraw().await;
            return Err(running(rival.key.clone()));
        }
        if taken && let (Some(take_over), Some(holder)) = (root.take_over(), &standing.holder) {
            take_over.tell(holder);
        }
        Ok((claim, standing.seen))
    }

    fn refreshed(lease: Arc<Lease>) -> Self {
        let renewed = Arc::clone(&lease);
        let refresher = tokio::spawn(async move {
            loop {
                tokio::time::sleep(REFRESH).await;
                // What fails is tried again at the next turn, or by a request that needs it.
                if let Err(error) = renewed.confirm().await
                    && error.kind == StoreErrorKind::Fenced
                {
                    return;
                }
            }
        });
        Self { lease: Some(lease), refresher }
    }

    /// Takes the name: from here on objects may be written and removed. Gives the ROOT to do it with,
    /// whose store refuses when the claim is lost.
    pub(crate) async fn hold(&self, root: &Root, name: &BackupName) -> Result<Root, BackupError> {
        let Some(lease) = &self.lease else { return Ok(root.clone()) };
        lease.enter(Phase::Holding);
        lease.confirm().await?;
        let root = root.gated(Arc::clone(lease) as Arc<dyn Gate>);
        // Now that it says what all of them said, older ones are not needed any more.
        let older = claims(&root, name).await?.into_iter().map(|claim| claim.key);
        let older = older.filter(|key| key != lease.key()).collect();
        root.store().delete_all(older).await?;
        end_uploads(&root, name).await?;
        Ok(root)
    }

    /// Makes sure that no later run has taken this claim's place.
    ///
    /// # Errors
    /// When one has, or when that cannot be found out.
    pub(crate) async fn confirm(&self) -> Result<(), BackupError> {
        match &self.lease {
            Some(lease) => Ok(lease.confirm().await?),
            None => Ok(()),
        }
    }

    /// Whether it is the newest claim. Of a packed run it always is.
    pub(crate) async fn is_newest(&self) -> Result<bool, BackupError> {
        match &self.lease {
            Some(lease) => Ok(lease.is_newest().await?),
            None => Ok(true),
        }
    }

    /// Waits until the claim is lost, and says why. The claim of a packed run never is.
    pub(crate) async fn lost(&self) -> BackupError {
        match &self.lease {
            Some(lease) => lease.lost().await.into(),
            None => std::future::pending().await,
        }
    }

    /// Makes the name free for the next run: nothing is left that it would have to remove.
    pub(crate) async fn end(&self) {
        let Some(lease) = &self.lease else { return };
        self.refresher.abort();
        lease.enter(Phase::Ended);
        // A claim that cannot be written holds nobody up for long.
        let _ = lease.confirm().await;
    }

    /// Gives up a claim under which nothing has been done.
    pub(crate) async fn withdraw(&self) {
        let Some(lease) = &self.lease else { return };
        self.refresher.abort();
        let _ = lease.withdraw().await;
    }
}

/// Ends uploads in parts that a dead run has begun below `name`: it could complete them when it wakes up.
async fn end_uploads(root: &Root, name: &BackupName) -> Result<(), BackupError> {
    let folder = root.key(&format!("{name}/"));
    let uploads = match root.store().unfinished_uploads(&folder).await {
        // Not every store lists them, and not every key may ask.
        Err(error) if matches!(error.kind, StoreErrorKind::Denied | StoreErrorKind::Rejected) => {
            return Ok(());
        }
        uploads => uploads?,
    };
    for upload in uploads {
        if upload.key.strip_prefix(&folder).is_some_and(|key| !of_packed_run(key)) {
            root.store().abort(&upload).await?;
        }
    }
    Ok(())
}

/// Refuses while a run may be alive; gives whether its claim is to be taken over all the same.
fn refuse_unless_taken(
    root: &Root,
    name: &BackupName,
    standing: &Standing,
) -> Result<bool, BackupError> {
    match &standing.alive {
        None => Ok(false),
        Some(_) if root.take_over().is_some() => Ok(true),
        Some((claim, seconds)) => {
            let (name, claim, seconds) = (name.to_string(), claim.clone(), *seconds);
            Err(BackupError::Running { name, claim, seconds })
        }
    }
}

/// Refuses to go on while a classic run of `name` gives signs of life.
///
/// # Errors
/// [`BackupError::Running`].
pub(crate) async fn refuse_living(root: &Root, name: &BackupName) -> Result<(), BackupError> {
    let standing = standing(root, &claims(root, name).await?).await?;
    refuse_unless_taken(root, name, &standing).map(drop)
}

/// Whether the newest object of a classic run, written at `newest`, can be that of the run whose last
/// sign of life was at `seen`; both in seconds since 1970.
pub(crate) fn may_be_its_own(newest: i64, seen: i64) -> bool {
    newest <= seen.saturating_add(FOREIGN_AFTER)
}

/// Whether the classic objects of `name` are those of a run of ours that has not committed: a claim of
/// its stands, and nothing came long after.
pub(crate) async fn is_unfinished(root: &Root, name: &BackupName) -> Result<bool, BackupError> {
    let standing = standing(root, &claims(root, name).await?).await?;
    let Some(seen) = standing.seen else { return Ok(false) };
    let objects = root.list_below(name.as_str()).await?;
    let classic = objects.iter().filter(|listed| !of_packed_run(&listed.key));
    Ok(classic
        .map(|listed| listed.modified)
        .max()
        .is_some_and(|newest| may_be_its_own(newest, seen)))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use xb_uploader::{Location, Place, Policy, StoreSettings};

    use super::*;

    struct Fixture {
        folder: tempfile::TempDir,
        root: Root,
        name: BackupName,
    }

    impl Fixture {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().to_str().unwrap().trim_start_matches('/').to_owned();
            let location = Location { place: Place::Local, path };
            let (settings, policy) = (StoreSettings::default(), Policy::default());
            let root = Root::open(&location, &settings, policy, true).unwrap();
            Self { folder, root, name: BackupName::new("n").unwrap() }
        }

        async fn claim(&self) -> Result<Claim, BackupError> {
            let run = RunId::random().unwrap();
            Ok(Claim::classic(&self.root, &self.name, run).await?.0)
        }

        /// Claims and holds the name.
        async fn run(&self) -> (Claim, Root) {
            let claim = self.claim().await.unwrap();
            let root = claim.hold(&self.root, &self.name).await.unwrap();
            (claim, root)
        }

        /// Makes the claim look as if its run had been silent for two hours.
        fn silence(&self, claim: &Claim) {
            let key = claim.lease.as_ref().unwrap().key();
            let file =
                std::fs::File::options().append(true).open(self.folder.path().join(key)).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(7200)).unwrap();
            claim.lease.as_ref().unwrap().expire();
        }
    }

    fn is_fenced(outcome: Result<(), StoreError>) -> bool {
        outcome.is_err_and(|error| error.kind == StoreErrorKind::Fenced)
    }

    async fn put(root: &Root, key: &str) -> Result<(), StoreError> {
        root.store().put(&root.key(key), Bytes::from_static(b"x").into()).await
    }

    #[tokio::test]
    async fn a_run_that_was_taken_over_can_change_nothing_any_more() {
        let fixture = Fixture::new();
        let (first, sleeping) = fixture.run().await;
        put(&sleeping, "n/a").await.unwrap();
        fixture.silence(&first);
        let (second, running) = fixture.run().await;
        assert!(is_fenced(put(&sleeping, "n/b").await));
        assert!(is_fenced(sleeping.store().delete(&sleeping.key("n/a")).await));
        assert!(is_fenced(sleeping.store().delete_all(vec![sleeping.key("n/a")]).await));
        assert!(is_fenced(sleeping.store().create(&sleeping.key("m"), Bytes::new()).await));
        assert!(matches!(first.lost().await, BackupError::Store(_)));
        put(&running, "n/b").await.unwrap();
        second.end().await;
        // Not even now that the other one is over.
        assert!(is_fenced(put(&sleeping, "n/b").await));
        assert!(sleeping.store().get(&sleeping.key("n/a")).await.is_ok());
    }

    /// The refresh of the sleeper was on its way when the other one removed its claim.
    #[tokio::test]
    async fn a_claim_that_comes_back_does_not_count() {
        let fixture = Fixture::new();
        let (first, sleeping) = fixture.run().await;
        fixture.silence(&first);
        let note = first.lease.as_ref().unwrap().note().encode();
        let (second, _) = fixture.run().await;
        second.end().await;
        let key = first.lease.as_ref().unwrap().key().to_owned();
        fixture.root.store().put(&key, note.into()).await.unwrap();
        assert!(is_fenced(put(&sleeping, "n/a").await));
        assert!(!first.is_newest().await.unwrap());
    }

    #[tokio::test]
    async fn a_run_that_slept_and_was_not_taken_over_goes_on() {
        let fixture = Fixture::new();
        let (claim, root) = fixture.run().await;
        fixture.silence(&claim);
        put(&root, "n/a").await.unwrap();
        // Its claim is fresh again.
        assert!(matches!(fixture.claim().await, Err(BackupError::Running { .. })));
    }

    #[tokio::test]
    async fn a_claim_that_was_removed_or_replaced_is_lost() {
        for replaced in [false, true] {
            let fixture = Fixture::new();
            let (claim, root) = fixture.run().await;
            let key = claim.lease.as_ref().unwrap().key().to_owned();
            fixture.root.store().delete(&key).await.unwrap();
            if replaced {
                let other = Note::new(RunId::random().unwrap()).unwrap();
                fixture.root.store().put(&key, other.encode().into()).await.unwrap();
            }
            claim.lease.as_ref().unwrap().expire();
            assert!(is_fenced(put(&root, "n/a").await));
            let there = fixture.root.store().get(&key).await;
            assert_eq!(there.is_ok(), replaced, "it must not come back");
        }
    }

    #[tokio::test]
    async fn only_what_holds_or_has_held_owns_what_lies_there() {
        let fixture = Fixture::new();
        let seen = async || {
            let claims = claims(&fixture.root, &fixture.name).await.unwrap();
            standing(&fixture.root, &claims).await.unwrap().seen
        };
        let (first, _) = fixture.run().await;
        fixture.silence(&first);
        let slept = seen().await.unwrap();
        let second = fixture.claim().await.unwrap();
        assert_eq!(seen().await, Some(slept), "one that only looks owns nothing");
        second.hold(&fixture.root, &fixture.name).await.unwrap();
        assert!(seen().await.unwrap() > slept);
        second.end().await;
        assert_eq!(seen().await, None);
        assert_eq!(claims(&fixture.root, &fixture.name).await.unwrap().len(), 1);
    }

    #[test]
    fn claims_of_earlier_versions_hold() {
        let note = Note::read(br#"{"run":"r","pid":7,"process_started":"b 1"}"#);
        assert_eq!((note.phase, note.holder.as_str()), (Phase::Holding, ""));
        assert_eq!(Note::read(b"damaged").phase, Phase::Holding);
        let own = Note { phase: Phase::Ended, ..Note::new(RunId([7; 16])).unwrap() };
        let again = Note::read(&own.encode());
        assert_eq!((again.phase, again.holder), (Phase::Ended, own.holder));
    }
}
