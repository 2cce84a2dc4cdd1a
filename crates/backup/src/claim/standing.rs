//! What the claims of a name say: whether a run is alive, and which objects a dead one may have left.

use xb_uploader::{Listed, StoreError, StoreErrorKind};

use crate::catalog::names::{BackupName, claims_folder, of_classic};
use crate::catalog::root::Root;
use crate::claim::alive;
use crate::claim::note::{Note, Phase};
use crate::error::BackupError;

/// Age in seconds from which a claim is taken for that of a dead run: twice what a lease holds.
pub(crate) const DEAD: i64 = 3600;
/// Age in seconds from which the claim of a run that has ended may be removed.
pub(crate) const FORGOTTEN: i64 = 30 * 24 * 3600;

/// Seconds after the last sign of life of a dead run from which an object cannot be its own: it
/// would have refreshed its claim in between.
const FOREIGN_AFTER: i64 = 1800;

/// A claim as a listing shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Numbered {
    pub(super) number: u64,
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
    pub(super) holder: Option<String>,
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

/// Refuses while a run may be alive; gives whether its claim is to be taken over all the same.
pub(super) fn refuse_unless_taken(
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
    let classic = objects.iter().filter(|listed| of_classic(&listed.key));
    Ok(classic
        .map(|listed| listed.modified)
        .max()
        .is_some_and(|newest| may_be_its_own(newest, seen)))
}
