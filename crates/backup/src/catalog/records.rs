//! What is written beside a manifest later: how far a backup was verified, and that it is pinned.
//!
//! | key | what |
//! |---|---|
//! | `ROOT/.xb-catalog/@verified/NAME/with-key` | results of verifications that had the key; authenticated by it |
//! | `ROOT/.xb-catalog/@verified/NAME/without-key` | all others |
//! | `ROOT/.xb-catalog/@pins/NAME` | that, and why, `prune` leaves it alone |
//!
//! Every record names the manifest that it is about by its digest: one of an older backup of the same
//! name counts for nothing. Two who write at the same moment may lose one of two results, never more.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use xb_encryptor::MacKey;
use xb_uploader::StoreErrorKind;

use crate::catalog::names::{BackupName, CATALOG};
use crate::catalog::root::Root;
use crate::catalog::signed_text::{Attested, attest};
use crate::catalog::verification::{Level, PageReport, RestoreTest, VerifyReport};
use crate::error::BackupError;

/// Largest record in bytes.
const MAX_LEN: usize = 1 << 20;
const VERIFIED: &str = "@verified";
const PINS: &str = "@pins";
const WITH_KEY: &str = "with-key";
const WITHOUT_KEY: &str = "without-key";
/// The version we write; a later one is passed over.
const FORMAT: u32 = 1;

/// The result of one verification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifyResult {
    /// How far was asked for; of what holds, how far it could be checked.
    pub level: Level,
    /// Whether all of it holds.
    pub ok: bool,
    /// When it ended, UTC.
    pub finished: Timestamp,
    /// Program and version.
    pub tool: String,
    /// How many things were wrong.
    #[serde(default)]
    pub problems: u64,
    /// What was found about pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages: Option<PageReport>,
    /// What a server said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<RestoreTest>,
}

impl VerifyResult {
    /// That of a report.
    #[must_use]
    pub fn of(report: &VerifyReport, tool: &str) -> Self {
        // A check of the user's that failed is not the backup's fault: what held before it counts.
        let ok = report.is_undamaged();
        Self {
            level: report.reached.filter(|_| ok).unwrap_or(report.level),
            ok,
            finished: report.finished,
            tool: tool.to_owned(),
            problems: report.problems.len() as u64 + report.more_problems,
            pages: report.pages,
            restore: report.restore.clone(),
        }
    }
}

/// A backup's verified record as it lies in the store.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Verifications {
    #[serde(rename = "type")]
    kind: Kind,
    format: u32,
    name: String,
    /// SHA-256 of the manifest, hexadecimal.
    manifest: String,
    /// The last one of each level.
    results: Vec<VerifyResult>,
}

/// Sets records apart from manifests under the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Kind {
    #[serde(rename = "xbrs-verified")]
    Verified,
    #[serde(rename = "xbrs-pin")]
    Pin,
}

/// That a backup is to be kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    #[serde(rename = "type")]
    kind: Kind,
    format: u32,
    name: String,
    manifest: String,
    /// Why.
    pub reason: Option<String>,
    /// Since when, UTC; `None` where the pin cannot be read.
    pub since: Option<Timestamp>,
}

/// How far a backup is proven, from all its results.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Proof {
    /// The highest level that held, unless something was found wrong since.
    pub level: Option<Level>,
    /// When that was, UTC.
    pub at: Option<Timestamp>,
    /// The level on which something is wrong.
    pub failed: Option<Level>,
    /// When that was found, UTC.
    pub failed_at: Option<Timestamp>,
}

impl Proof {
    /// Weighs results: what is found wrong counts until a verification that goes at least as far finds
    /// it in order.
    #[must_use]
    pub fn of(results: &[VerifyResult]) -> Self {
        let mut results: Vec<&VerifyResult> = results.iter().collect();
        results.sort_by_key(|result| (result.finished, result.level));
        results.into_iter().fold(Self::default(), |proof, result| {
            let (level, at) = (Some(result.level), Some(result.finished));
            match (result.ok, proof.failed) {
                (false, _) => Self { failed: level, failed_at: at, ..Self::default() },
                (true, Some(failed)) if result.level < failed => proof,
                (true, _) if proof.level > level => proof,
                (true, _) => Self { level, at, ..Self::default() },
            }
        })
    }

    /// Whether it held as far as `level`.
    #[must_use]
    pub fn reaches(&self, level: Level) -> bool {
        self.level >= Some(level)
    }
}

/// What lies in the catalogue beside the manifests, by the names it is about.
#[derive(Debug, Default)]
pub(crate) struct Beside {
    pub(crate) verified: std::collections::BTreeSet<String>,
    pub(crate) pinned: std::collections::BTreeSet<String>,
}

impl Beside {
    /// Sorts the keys of a listing of the catalogue.
    pub(crate) fn of<'a>(keys: impl Iterator<Item = &'a str>) -> Self {
        let mut beside = Self::default();
        for key in keys {
            let mut parts = key.split('/');
            match (parts.next(), parts.next()) {
                (Some(VERIFIED), Some(name)) => drop(beside.verified.insert(name.to_owned())),
                (Some(PINS), Some(name)) => drop(beside.pinned.insert(name.to_owned())),
                _ => {}
            }
        }
        beside
    }
}

fn verified_key(name: &BackupName, last: &str) -> String {
    format!("{CATALOG}/{VERIFIED}/{name}/{last}")
}

fn pin_key(name: &BackupName) -> String {
    format!("{CATALOG}/{PINS}/{name}")
}

/// All keys of records about `name`, below ROOT.
pub(crate) fn keys(name: &BackupName) -> [String; 3] {
    [verified_key(name, WITH_KEY), verified_key(name, WITHOUT_KEY), pin_key(name)]
}

/// A small object, or `None` when there is none.
async fn small(root: &Root, key: &str) -> Result<Option<bytes::Bytes>, BackupError> {
    match root.small(key).await {
        Ok(bytes) => Ok(Some(bytes).filter(|bytes| bytes.len() <= MAX_LEN)),
        Err(error) if error.kind == StoreErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Reads a record. One that is damaged, of a later format or not by `key` is as good as none.
fn parse<'b, T: Deserialize<'b>>(bytes: &'b [u8], key: Option<&MacKey>) -> Option<T> {
    let attested = Attested::read(bytes).ok()?;
    if key.is_some_and(|key| !attested.is_by(key)) {
        return None;
    }
    serde_json::from_slice(attested.text).ok()
}

fn encode(record: &impl Serialize, key: Option<&MacKey>) -> Result<bytes::Bytes, BackupError> {
    let mut text = serde_json::to_vec_pretty(record)
        .map_err(|_| BackupError::Bug("a record cannot be written as text"))?;
    text.push(b'\n');
    Ok(attest(text, key).into())
}

/// The results about the manifest with this digest. With a key those that had it must be
/// authenticated, and only they count.
pub(crate) async fn results(
    root: &Root,
    name: &BackupName,
    manifest: &str,
    key: Option<&MacKey>,
) -> Result<Vec<VerifyResult>, BackupError> {
    let mut all = read_results(root, name, manifest, WITH_KEY, key).await?;
    if key.is_none() {
        all.extend(read_results(root, name, manifest, WITHOUT_KEY, None).await?);
    }
    Ok(all)
}

async fn read_results(
    root: &Root,
    name: &BackupName,
    manifest: &str,
    last: &str,
    key: Option<&MacKey>,
) -> Result<Vec<VerifyResult>, BackupError> {
    let Some(bytes) = small(root, &verified_key(name, last)).await? else { return Ok(Vec::new()) };
    let ours = |record: &Verifications| {
        record.format == FORMAT && record.name == name.as_str() && record.manifest == manifest
    };
    Ok(parse::<Verifications>(&bytes, key).filter(ours).map_or(Vec::new(), |record| record.results))
}

/// Adds a result to the record: it takes the place of an older one of its level.
pub(crate) async fn add(
    root: &Root,
    name: &BackupName,
    manifest: &str,
    result: VerifyResult,
    key: Option<&MacKey>,
) -> Result<(), BackupError> {
    let last = if key.is_some() { WITH_KEY } else { WITHOUT_KEY };
    let mut results = read_results(root, name, manifest, last, key).await?;
    results.retain(|old| old.level != result.level);
    results.push(result);
    let record = Verifications {
        kind: Kind::Verified,
        format: FORMAT,
        name: name.to_string(),
        manifest: manifest.to_owned(),
        results,
    };
    let key_of = root.key(&verified_key(name, last));
    Ok(root.store().put(&key_of, encode(&record, key)?.into()).await?)
}

/// The pin of the backup with this manifest, if there is one; with `None`, of whatever manifest.
pub(crate) async fn pinned(
    root: &Root,
    name: &BackupName,
    manifest: Option<&str>,
) -> Result<Option<Pin>, BackupError> {
    let bytes = match root.small(&pin_key(name)).await {
        Ok(bytes) => bytes,
        Err(error) if error.kind == StoreErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let readable = Some(&bytes).filter(|bytes| bytes.len() <= MAX_LEN);
    let pin = readable.and_then(|bytes| parse::<Pin>(bytes, None));
    let about_another = |pin: &Pin| manifest.is_some_and(|manifest| pin.manifest != manifest);
    Ok(match pin.filter(|pin| pin.kind == Kind::Pin) {
        Some(pin) => Some(pin).filter(|pin| !about_another(pin)),
        // Somebody wanted it kept: only what can be read may say that another was meant.
        None => Some(Pin {
            kind: Kind::Pin,
            format: FORMAT,
            name: name.to_string(),
            manifest: manifest.unwrap_or_default().to_owned(),
            reason: Some("its pin cannot be read, and counts until `unpin`".to_owned()),
            since: None,
        }),
    })
}

/// Has `prune` leave the backup `name` alone.
///
/// # Errors
/// [`BackupError::NotThere`], [`BackupError::Manifest`], [`BackupError::Store`].
pub async fn pin(root: &Root, name: &BackupName, reason: Option<&str>) -> Result<Pin, BackupError> {
    let manifest = digest_of(root, name).await?;
    let pin = Pin {
        kind: Kind::Pin,
        format: FORMAT,
        name: name.to_string(),
        manifest,
        reason: reason.map(str::to_owned),
        since: Some(Timestamp::now()),
    };
    root.store().put(&root.key(&pin_key(name)), encode(&pin, None)?.into()).await?;
    Ok(pin)
}

/// Takes the pin away; gives it, if there was one.
///
/// # Errors
/// As [`pin`]; but a pin can be taken away where the manifest is damaged or missing.
pub async fn unpin(root: &Root, name: &BackupName) -> Result<Option<Pin>, BackupError> {
    let manifest = match digest_of(root, name).await {
        Err(BackupError::Manifest { .. }) => None,
        // The pin of a backup whose manifest is missing holds, too.
        Err(BackupError::NotThere { .. }) if pinned(root, name, None).await?.is_some() => None,
        digest => Some(digest?),
    };
    let was = pinned(root, name, manifest.as_deref()).await?;
    root.store().delete(&root.key(&pin_key(name))).await?;
    Ok(was)
}

async fn digest_of(root: &Root, name: &BackupName) -> Result<String, BackupError> {
    match root.stored_manifest(name).await? {
        Some(stored) => Ok(stored.digest()),
        None => {
            let state = crate::catalog::list::state_without_manifest(root, name).await?;
            Err(BackupError::NotThere { name: name.to_string(), state })
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn result(level: Level, ok: bool, at: i64) -> VerifyResult {
        VerifyResult {
            level,
            ok,
            finished: Timestamp::from_second(at).unwrap(),
            tool: "test".into(),
            problems: u64::from(!ok),
            pages: None,
            restore: None,
        }
    }

    #[test]
    fn the_highest_level_counts_until_something_is_found_wrong() {
        let of = |results: &[VerifyResult]| {
            let proof = Proof::of(results);
            assert!(proof.level.is_none() || proof.failed.is_none());
            (proof.level, proof.failed)
        };
        use Level::{Checksum, Pages, Restore};
        assert_eq!(of(&[]), (None, None));
        let (pages, sums) = (result(Pages, true, 5), result(Checksum, true, 9));
        assert_eq!(of(&[sums.clone(), pages.clone()]), (Some(Pages), None));
        let bad = result(Pages, false, 7);
        assert_eq!(of(&[sums.clone(), bad.clone()]), (None, Some(Pages)), "sums say nothing of it");
        assert_eq!(of(&[bad.clone(), result(Restore, true, 8)]), (Some(Restore), None));
        assert_eq!(of(&[result(Restore, true, 1), bad]), (None, Some(Pages)));
    }

    #[test]
    fn keys_in_the_catalogue_are_told_apart() {
        let name = BackupName::new("monday").unwrap();
        let all = keys(&name).map(|key| key.strip_prefix(".xb-catalog/").unwrap().to_owned());
        let others = ["monday", "@claims/monday/000001", "@verified", "@other/monday"];
        let beside = Beside::of(all.iter().map(String::as_str).chain(others));
        assert_eq!(beside.verified.iter().collect::<Vec<_>>(), ["monday"]);
        assert_eq!(beside.pinned.iter().collect::<Vec<_>>(), ["monday"]);
    }

    #[test]
    fn a_record_counts_only_as_it_was_written_and_by_whom() {
        let fresh = || xb_encryptor::FreshKey::generate().unwrap().key().manifest_key(&[1; 16]);
        let (key, other) = (fresh(), fresh());
        let record = Verifications {
            kind: Kind::Verified,
            format: FORMAT,
            name: "n".into(),
            manifest: "m".into(),
            results: vec![result(Level::Pages, true, 5)],
        };
        let bytes = encode(&record, Some(&key)).unwrap();
        assert!(parse::<Verifications>(&bytes, Some(&key)).is_some());
        assert!(parse::<Verifications>(&bytes, None).is_some());
        assert!(parse::<Verifications>(&bytes, Some(&other)).is_none());
        let plain = encode(&record, None).unwrap();
        assert!(parse::<Verifications>(&plain, Some(&key)).is_none());
        for at in 0..bytes.len() {
            let mut bad = bytes.to_vec();
            bad[at] ^= 1;
            assert!(parse::<Verifications>(&bad, Some(&key)).is_none(), "byte {at}");
            assert!(parse::<Verifications>(&bytes[..at], Some(&key)).is_none(), "cut {at}");
        }
        // Neither is taken for the other, nor for a manifest.
        assert!(parse::<Pin>(&plain, None).is_none_or(|pin| pin.kind != Kind::Pin));
        assert!(crate::catalog::manifest::Manifest::decode(&bytes).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_passed_over(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse::<Verifications>(&bytes, None);
            let _ = parse::<Verifications>(&attest(bytes, None), None);
        }

        /// The order in which results lie in the record does not matter.
        #[test]
        fn weighing_does_not_depend_on_order(
            mut results in prop::collection::vec((0_usize..6, any::<bool>(), 0_i64..20), 0..8)
        ) {
            let made = |results: &[(usize, bool, i64)]| -> Vec<VerifyResult> {
                results.iter().map(|(l, ok, at)| result(Level::ALL[*l], *ok, *at)).collect()
            };
            // One result of each level, as the record has them.
            results.sort();
            results.dedup_by_key(|result| result.0);
            let forward = Proof::of(&made(&results));
            results.reverse();
            prop_assert_eq!(forward, Proof::of(&made(&results)));
        }
    }
}
