//! State of a name from its claims: whether a run is alive, and which objects a dead one may have
//! left.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;
use xb_uploader::{ListedObject, StoreError, StoreErrorKind};

use crate::claim::alive;
use crate::claim::left::RemainingObjects;
use crate::claim::note::{Note, Phase};
use crate::error::RepoError;
use crate::names::{BackupName, claims_folder, of_classic};
use crate::root::Root;

/// Age in seconds at which a claim counts as that of a dead run: twice the lease.
pub const DEAD: i64 = 3600;
/// Age in seconds up to which a request of a dead process may still take effect in a store that is not a
/// directory: longer than a living process waits for an answer.
pub(crate) const LATE: i64 = 300;
/// Age in seconds at which the claim of an ended run may be removed.
pub const FORGOTTEN: i64 = 30 * 24 * 3600;

/// Seconds after a dead run's last refresh from which an object cannot be its own: the run would
/// have refreshed its claim in between.
const FOREIGN_AFTER: i64 = 1800;

/// A claim as listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumberedClaim {
    /// Number of the claim; a later run has a higher one.
    pub number: u64,
    /// Full key of the claim.
    pub key: String,
    /// Time of the last write by the store's clock, in seconds since 1970.
    pub modified: i64,
    tag: Option<String>,
}

/// Lists the claims of classic runs of `name`, the newest last. Ignores keys that are not claims.
pub async fn claims(root: &Root, name: &BackupName) -> Result<Vec<NumberedClaim>, StoreError> {
    let folder = root.key(&claims_folder(name));
    let mut listed = root.store().list(&folder).await?;
    listed.retain_mut(|listed| {
        let last = listed.key.strip_prefix(&folder).and_then(|last| last.strip_prefix('/'));
        last.map(str::to_owned).map(|last| listed.key = last).is_some()
    });
    Ok(numbered(root, name, listed))
}

/// The claims of classic runs of `name` among objects that were listed in the folder of its claims, with
/// keys below that folder; the newest last.
pub fn numbered(root: &Root, name: &BackupName, listed: Vec<ListedObject>) -> Vec<NumberedClaim> {
    let folder = root.key(&claims_folder(name));
    let claim = |ListedObject { key, modified, tag, .. }: ListedObject| {
        let digits = key.split_once('-').map_or(&*key, |(digits, _)| digits);
        let number = digits.parse().ok()?;
        Some(NumberedClaim { number, key: format!("{folder}/{key}"), modified, tag })
    };
    let mut claims: Vec<NumberedClaim> = listed.into_iter().filter_map(claim).collect();
    claims.sort_unstable_by(|a, b| (a.number, &a.key).cmp(&(b.number, &b.key)));
    claims
}

/// State of a name, as its claims show it.
#[derive(Debug, Default)]
pub struct NameState {
    /// Claim of a run that may be alive, and the claim's age in seconds.
    pub alive: Option<(String, i64)>,
    /// Last refresh by a run that may have left objects, in seconds since 1970.
    pub seen: Option<i64>,
    /// The run that ended last, if no later one holds or held the name.
    ended: Option<EndedClaim>,
    /// Whether the objects are a stock backup, as the command says that removes some of them.
    stock: bool,
    /// The run that wrote the claim in `alive`.
    pub holder: Option<String>,
    /// Whether the process of a run in `alive` is known to be alive.
    proven_alive: bool,
    /// The removals whose requests may still take effect, whether their processes are alive or not.
    pub removals: Vec<Removing>,
    /// Time by which the ages were judged, in seconds since 1970.
    pub(super) as_of: i64,
}

/// A removal in progress.
#[derive(Debug)]
pub struct Removing {
    /// Full key of its mark.
    pub claim: String,
    /// Run whose manifest and objects it removes; empty if the manifest is damaged.
    pub run: String,
    /// Whether the manifest is gone for certain, so that only objects of the run are being removed.
    only_objects: bool,
    /// Its process, for messages.
    pub by: String,
    /// When the mark stops to count if its process is dead, in seconds since 1970.
    pub until: i64,
}

impl Removing {
    /// Returns whether it can harm the backup of this run.
    pub(crate) fn concerns(&self, run: &str) -> bool {
        !self.only_objects || self.run == run
    }
}

/// Record in the claim of an ended run.
#[derive(Debug)]
struct EndedClaim {
    /// Its last refresh, in seconds since 1970.
    seen: i64,
    /// As [`Note::late`].
    late: bool,
    /// As [`Note::left`].
    left: Option<RemainingObjects>,
}

impl NameState {
    /// Returns whether classic objects without a manifest may be what runs of ours left: remains, not a
    /// stock backup. They are a stock backup if no claim counts, if the last run recorded that it
    /// left exactly them, or if all of them are too new to be of our runs.
    pub fn may_own(&self, classic: &[ListedObject]) -> bool {
        let Some(oldest) = classic.iter().map(|listed| listed.modified).min() else { return false };
        if self.stock {
            return false;
        }
        match (&self.ended, self.seen) {
            (_, Some(seen)) => belongs_to_run(oldest, seen),
            (None, None) => false,
            (Some(ended), None)
                if ended.left.as_ref().is_some_and(|l| *l == RemainingObjects::of(classic)) =>
            {
                false
            }
            // Beside the recorded objects, or after a run that may have had a living predecessor,
            // an object may be of a request that arrived late.
            (Some(ended), None) => {
                (ended.late || ended.left.is_some()) && belongs_to_run(oldest, ended.seen)
            }
        }
    }

    /// Returns whether requests of earlier runs may still arrive at the time `now`.
    pub fn has_late(&self, now: i64) -> bool {
        let inherited = |ended: &EndedClaim| ended.late && now.saturating_sub(ended.seen) < DEAD;
        // Those of a command that removes some objects of a stock backup, too.
        let died = self.seen.is_some() || (self.stock && self.ended.is_none());
        self.alive.is_some() || died || self.ended.as_ref().is_some_and(inherited)
    }
}

/// Reads the claims of `name`.
pub async fn standing(root: &Root, claims: &[NumberedClaim]) -> Result<NameState, RepoError> {
    let now = root.store().now();
    let mut standing = NameState { as_of: now, ..NameState::default() };
    // Whether a claim has shown what the objects are; below it, only requests of removals count.
    let mut decided = false;
    for claim in claims.iter().rev() {
        let age = age(claim, now);
        if decided && age >= DEAD {
            continue;
        }
        let Some(note) = read(root, claim).await? else { continue };
        standing.removals.extend(note.removing(root, claim, age, now));
        if decided {
            continue;
        }
        // Also look below claims in phase `claiming`: the run that they checked may be alive.
        if note.phase != Phase::Ended && age < DEAD && !alive::is_proven_dead(&note.mark) {
            standing.alive = Some((claim.key.clone(), age));
            standing.holder = Some(note.describe());
            standing.proven_alive |= alive::is_proven_alive(&note.mark);
        }
        decided = note.phase != Phase::Claiming;
        standing.stock = decided && note.stock;
        match note.phase {
            // Its run removed and wrote nothing, so the older claims count.
            Phase::Claiming => {}
            // Without its manifest, a classic backup is nothing but objects.
            Phase::Holding | Phase::Removing | Phase::Clearing if note.stock => {}
            Phase::Holding | Phase::Removing | Phase::Clearing => {
                standing.seen = Some(claim.modified)
            }
            Phase::Ended => {
                let Note { late, left, .. } = note;
                standing.ended = Some(EndedClaim { seen: claim.modified, late, left });
            }
        }
    }
    Ok(standing)
}

/// Seconds between two reports of the store's clock that do not come from the time that requests take.
pub(super) const SKEW: i64 = 60;

/// Age of a claim in seconds at the time `now`. A claim that is dated in the future has the time of a wrong clock: its
/// age is unknown, and counts from the first look of this process.
fn age(claim: &NumberedClaim, now: i64) -> i64 {
    static FIRST_LOOKS: Mutex<BTreeMap<(String, i64), Instant>> = Mutex::new(BTreeMap::new());
    let age = now.saturating_sub(claim.modified);
    if age >= -SKEW {
        return age.max(0);
    }
    let mut looks = FIRST_LOOKS.lock().unwrap_or_else(PoisonError::into_inner);
    let first = looks.entry((claim.key.clone(), claim.modified)).or_insert_with(Instant::now);
    i64::try_from(first.elapsed().as_secs()).unwrap_or(i64::MAX)
}

/// Reads a claim; `None` if it was removed since it was listed.
async fn read(root: &Root, claim: &NumberedClaim) -> Result<Option<Note>, RepoError> {
    let mut asked = 0;
    loop {
        asked += 1;
        match root.store().get(&claim.key).await.map_err(RepoError::from) {
            Ok(bytes) => return Ok(Some(Note::read(&bytes))),
            // One false answer must not hide a claim.
            Err(RepoError::Store(error)) if error.kind == StoreErrorKind::NotFound => {
                if asked == 2 {
                    return Ok(None);
                }
            }
            // Only its age shows whether its run may be alive, as for a damaged claim.
            Err(error) if error.is_of_one_object() => return Ok(Some(Note::read(&[]))),
            Err(error) => return Err(error),
        }
    }
}

impl Note {
    /// The removal that this mark shows, while requests of it may take effect: those of a process that
    /// is gone may be on their way.
    fn removing(&self, root: &Root, claim: &NumberedClaim, age: i64, now: i64) -> Option<Removing> {
        let counts = match alive::is_proven_dead(&self.mark) {
            true if root.store().is_folder() => 0,
            true => LATE,
            false => DEAD,
        };
        let only_objects = self.phase == Phase::Clearing;
        let removes = only_objects || self.phase == Phase::Removing;
        (removes && age < counts).then(|| Removing {
            claim: claim.key.clone(),
            run: self.run.clone(),
            only_objects,
            by: self.describe(),
            until: now.saturating_add(counts - age),
        })
    }
}

/// The claims that say nothing any more once a newer one holds the name: all but those of removals whose
/// requests may still take effect.
pub(crate) async fn outdated(
    root: &Root,
    older: Vec<NumberedClaim>,
) -> Result<Vec<String>, RepoError> {
    let mut outdated = Vec::new();
    for claim in older {
        let now = root.store().now();
        let age = age(&claim, now);
        let late = age < DEAD
            && read(root, &claim)
                .await?
                .is_some_and(|note| note.removing(root, &claim, age, now).is_some());
        if !late {
            outdated.push(claim.key);
        }
    }
    Ok(outdated)
}

/// Fails while a run may be alive, unless claims may be taken over; returns whether to take one
/// over.
pub(crate) fn refuse_unless_taken(
    root: &Root,
    name: &BackupName,
    standing: &NameState,
) -> Result<bool, RepoError> {
    match &standing.alive {
        None => Ok(false),
        Some(_) if may_take_over(root, standing) => Ok(true),
        Some((claim, seconds)) => {
            let (name, claim, seconds) = (name.to_string(), claim.clone(), *seconds);
            Err(RepoError::Running { name, claim, seconds })
        }
    }
}

fn may_take_over(root: &Root, standing: &NameState) -> bool {
    root.take_over().is_some_and(|take_over| take_over.of_living() || !standing.proven_alive)
}

/// Fails while a classic run of `name` may be alive.
///
/// # Errors
/// [`RepoError::Running`].
pub async fn refuse_living(root: &Root, name: &BackupName) -> Result<(), RepoError> {
    let standing = standing(root, &claims(root, name).await?).await?;
    refuse_unless_taken(root, name, &standing).map(drop)
}

/// Returns whether the newest object of a classic run, written at `newest`, can belong to the run that last
/// refreshed its claim at `seen`; both in seconds since 1970.
pub fn belongs_to_run(newest: i64, seen: i64) -> bool {
    newest <= seen.saturating_add(FOREIGN_AFTER)
}

/// A look at the classic objects of a name without a manifest, to be compared with a later one.
#[derive(Debug, PartialEq, Eq)]
pub struct ClaimSnapshot(Option<RemainingObjects>);

impl ClaimSnapshot {
    /// Returns whether the objects may be remains of runs of ours; see [`NameState::may_own`].
    pub fn is_unfinished(&self) -> bool {
        self.0.is_none()
    }

    /// Fails if the objects have changed since this look: no manifest proves that what was read
    /// since belongs together.
    ///
    /// # Errors
    /// [`RepoError::Replaced`].
    pub async fn still_holds(&self, root: &Root, name: &BackupName) -> Result<(), RepoError> {
        match snapshot_claim(root, name).await? == *self {
            true => Ok(()),
            false => Err(RepoError::Replaced { name: name.to_string() }),
        }
    }
}

/// Looks at the classic objects of `name`, which has no manifest, and at the claims.
pub async fn snapshot_claim(root: &Root, name: &BackupName) -> Result<ClaimSnapshot, RepoError> {
    let mut classic = root.list_below(name.as_str()).await?;
    classic.retain(|listed| of_classic(&listed.key));
    // After the objects: a run claims the name before it writes or removes any.
    let standing = standing(root, &claims(root, name).await?).await?;
    Ok(ClaimSnapshot((!standing.may_own(&classic)).then(|| RemainingObjects::of(&classic))))
}
