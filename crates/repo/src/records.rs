//! Records beside a manifest: how far a backup was verified, its pin, and its acceptance.
//!
//! | key | content |
//! |---|---|
//! | `ROOT/.xb-catalog/@verified/NAME/with-key` | results of verifications that had the key, which authenticates them |
//! | `ROOT/.xb-catalog/@verified/NAME/without-key` | all other results |
//! | `ROOT/.xb-catalog/@pins/NAME` | the pin, which keeps `prune` and `delete` away, and its reason |
//! | `ROOT/.xb-catalog/@accepted/NAME` | the acceptance: its size, or the lack of its base, is as intended |
//!
//! Every record names its manifest by digest, so a record of an older backup of the same name does
//! not count. A record is read before it is written, so that concurrent writers keep each other's
//! results.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use xb_encryptor::MacKey;
use xb_uploader::{GuardedOutcome, PresentState, StoreErrorKind};

use crate::error::RepoError;
use crate::manifest::signed_text::{SignedText, attest};
use crate::names::{BackupName, CATALOG};
use crate::root::Root;
use crate::verification::{Level, PageReport, RestoreTest, VerifyReport};

/// Largest record, in bytes.
const MAX_LEN: usize = 1 << 20;
const VERIFIED: &str = "@verified";
const PINS: &str = "@pins";
const ACCEPTED: &str = "@accepted";
const WITH_KEY: &str = "with-key";
const WITHOUT_KEY: &str = "without-key";
/// The format version we write; records of a later one are ignored.
const FORMAT: u32 = 1;

/// The result of one verification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifyResult {
    /// The level reached if `ok`, otherwise the requested level.
    pub level: Level,
    /// Whether everything checked was in order.
    pub ok: bool,
    /// When the verification ended, UTC.
    pub finished: Timestamp,
    /// Program and version that verified.
    pub tool: String,
    /// Number of problems found.
    #[serde(default)]
    pub problems: u64,
    /// Bytes of the files once they are restored, if files are compressed one by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unpacked_bytes: Option<u64>,
    /// Result for the pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages: Option<PageReport>,
    /// Result of the trial restore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<RestoreTest>,
}

impl VerifyResult {
    /// Summarises a report.
    #[must_use]
    pub fn of(report: &VerifyReport, tool: &str) -> Self {
        // A failed check of the user's own does not count against the backup: the levels before it
        // hold.
        let ok = report.is_undamaged();
        Self {
            level: report.reached.filter(|_| ok).unwrap_or(report.level),
            ok,
            finished: report.finished,
            tool: tool.to_owned(),
            problems: report.problems.len() as u64 + report.more_problems,
            unpacked_bytes: report.unpacked_bytes,
            pages: report.pages.clone(),
            restore: report.restore.clone(),
        }
    }
}

/// A verification that ended without a result: the backup may be damaged, or its host may lack
/// something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedTry {
    /// The level that was not reached.
    pub level: Level,
    /// When the verification ended, UTC.
    pub finished: Timestamp,
    /// Program and version that verified.
    pub tool: String,
    /// Why it ended, at most [`MAX_WHY`] characters.
    pub why: String,
    /// The host could not begin it, so it says nothing about the backup.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
}

/// Maximum length of [`FailedTry::why`], in characters.
pub const MAX_WHY: usize = 1000;

impl FailedTry {
    /// Creates the record of a try that ended now.
    #[must_use]
    pub fn now(level: Level, tool: &str, why: &str) -> Self {
        let why = why.chars().take(MAX_WHY).collect();
        Self { level, finished: Timestamp::now(), tool: tool.to_owned(), why, refused: false }
    }

    /// Creates the record of a try that the host could not begin.
    #[must_use]
    pub fn refused(level: Level, tool: &str, why: &str) -> Self {
        Self { refused: true, ..Self::now(level, tool, why) }
    }

    /// Returns whether a later result has answered what this try left open.
    fn is_answered_by(&self, result: &VerifyResult) -> bool {
        result.ok && result.level >= self.level && result.finished >= self.finished
    }
}

/// All that the records of a backup say about its verification.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerificationState {
    /// The last result of each level.
    pub results: Vec<VerifyResult>,
    /// The last try that ended without a result, if no later result answers it.
    pub failed_try: Option<FailedTry>,
}

impl VerificationState {
    fn and(mut self, other: Self) -> Self {
        self.results.extend(other.results);
        let tries = self.failed_try.into_iter().chain(other.failed_try);
        let open = |failed: &FailedTry| !self.results.iter().any(|r| failed.is_answered_by(r));
        // One that was not begun does not answer one that failed.
        self.failed_try =
            tries.filter(open).max_by_key(|failed| (!failed.refused, failed.finished));
        self
    }
}

/// Verification record of a backup as stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Verifications {
    #[serde(rename = "type")]
    kind: Kind,
    format: u32,
    name: String,
    /// SHA-256 of the manifest, hexadecimal.
    manifest: String,
    /// The last result of each level.
    results: Vec<VerifyResult>,
    /// The last try that ended without a result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failed_try: Option<FailedTry>,
}

/// Distinguishes records from manifests that the same key authenticates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Kind {
    #[serde(rename = "xbrs-verified")]
    Verified,
    #[serde(rename = "xbrs-pin")]
    Pin,
    #[serde(rename = "xbrs-accepted")]
    Accepted,
}

/// A request to keep a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    #[serde(rename = "type")]
    kind: Kind,
    format: u32,
    name: String,
    manifest: String,
    /// Reason for the pin.
    pub reason: Option<String>,
    /// When the backup was pinned, UTC; `None` if the pin cannot be read.
    pub since: Option<Timestamp>,
}

/// The operator's word that a backup is as intended, although it is much smaller than those before it, or
/// its base is not in its repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acceptance {
    #[serde(rename = "type")]
    kind: Kind,
    format: u32,
    /// The accepted backup.
    pub name: String,
    manifest: String,
    /// Reason for the acceptance.
    pub reason: Option<String>,
    /// When the backup was accepted, UTC.
    pub since: Timestamp,
}

/// Level to which a backup is verified, from all results.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Proof {
    /// The highest level that held, if no failure was found since.
    pub level: Option<Level>,
    /// When that level was verified, UTC.
    pub at: Option<Timestamp>,
    /// The level that failed.
    pub failed: Option<Level>,
    /// When the failure was found, UTC.
    pub failed_at: Option<Timestamp>,
    /// Time of the last transaction of the archived log that a trial has replayed onto it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proven_until: Option<Timestamp>,
}

impl Proof {
    /// Combines results: a failure counts until a verification to at least the same level succeeds.
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
                (true, _) => {
                    // A trial that a check of the user's own has failed proves only the levels below.
                    let tested = result.restore.as_ref().filter(|_| result.level == Level::Restore);
                    let replayed = tested.and_then(|test| test.replayed.as_ref());
                    let until = replayed.map(|replayed| replayed.proven_until);
                    Self {
                        level,
                        at,
                        proven_until: until.max(proof.proven_until),
                        ..Self::default()
                    }
                }
            }
        })
    }

    /// Returns whether the backup is verified to at least `level`.
    #[must_use]
    pub fn reaches(&self, level: Level) -> bool {
        self.level >= Some(level)
    }
}

/// Names of the backups that may have records beside their manifests.
#[derive(Debug, Default)]
pub struct CatalogMarkers {
    verified: std::collections::BTreeSet<String>,
    pinned: std::collections::BTreeSet<String>,
    /// Whether any name may have records.
    all: bool,
}

impl CatalogMarkers {
    /// Leaves it to a read by key, for each name, whether it has records.
    pub fn unknown() -> Self {
        Self { all: true, ..Self::default() }
    }

    /// Returns whether there may be a verification record of `name`.
    pub fn may_be_verified(&self, name: &BackupName) -> bool {
        self.all || self.verified.contains(name.as_str())
    }

    /// Returns whether there may be a pin of `name`.
    pub fn may_be_pinned(&self, name: &BackupName) -> bool {
        self.all || self.pinned.contains(name.as_str())
    }

    /// Collects the names from the keys of a catalogue listing.
    pub fn of<'a>(keys: impl Iterator<Item = &'a str>) -> Self {
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

fn accepted_key(name: &BackupName) -> String {
    format!("{CATALOG}/{ACCEPTED}/{name}")
}

/// Keys of the verification records of `name`, below ROOT.
pub fn verification_keys(name: &BackupName) -> [String; 2] {
    [verified_key(name, WITH_KEY), verified_key(name, WITHOUT_KEY)]
}

/// Keys of all records of `name`, below ROOT.
pub fn keys(name: &BackupName) -> [String; 4] {
    let [with_key, without_key] = verification_keys(name);
    [with_key, without_key, pin_key(name), accepted_key(name)]
}

/// Reads a small object; `None` if it does not exist.
async fn small(root: &Root, key: &str) -> Result<Option<bytes::Bytes>, RepoError> {
    match root.small(key).await {
        Ok(bytes) => Ok(Some(bytes).filter(|bytes| bytes.len() <= MAX_LEN)),
        Err(error) if matches!(error.kind, StoreErrorKind::NotFound | StoreErrorKind::Damaged) => {
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Parses a record. Returns `None` if it is damaged, of a later format or not authenticated by
/// `key`.
fn parse<'b, T: Deserialize<'b>>(bytes: &'b [u8], key: Option<&MacKey>) -> Option<T> {
    let attested = SignedText::read(bytes).ok()?;
    if key.is_some_and(|key| !attested.is_by(key)) {
        return None;
    }
    serde_json::from_slice(attested.text).ok()
}

/// Returns whether bytes are a verification record, of any key.
#[doc(hidden)]
pub fn is_verification(bytes: &[u8]) -> bool {
    parse::<Verifications>(bytes, None).is_some_and(|record| {
        let _ = Proof::of(&record.results);
        record.kind == Kind::Verified
    })
}

/// Returns whether bytes are a pin.
#[doc(hidden)]
pub fn is_pin(bytes: &[u8]) -> bool {
    parse::<Pin>(bytes, None).is_some_and(|pin| pin.kind == Kind::Pin)
}

fn encode(record: &impl Serialize, key: Option<&MacKey>) -> Result<bytes::Bytes, RepoError> {
    let mut text = serde_json::to_vec_pretty(record)
        .map_err(|_| RepoError::Bug("a record cannot be encoded"))?;
    text.push(b'\n');
    Ok(attest(text, key).into())
}

/// Record for the manifest with this digest. With a key, only results of verifications that had
/// the key count, and they must be authenticated.
pub async fn results(
    root: &Root,
    name: &BackupName,
    manifest: &str,
    key: Option<&MacKey>,
) -> Result<VerificationState, RepoError> {
    let all =
        VerificationState::default().and(read_record(root, name, manifest, WITH_KEY, key).await?);
    match key {
        Some(_) => Ok(all),
        None => Ok(all.and(read_record(root, name, manifest, WITHOUT_KEY, None).await?)),
    }
}

async fn read_record(
    root: &Root,
    name: &BackupName,
    manifest: &str,
    last: &str,
    key: Option<&MacKey>,
) -> Result<VerificationState, RepoError> {
    let below = verified_key(name, last);
    let mut bytes = small(root, &below).await?;
    // A single altered answer, which a cache may have kept, hides no result.
    if bytes.as_ref().is_some_and(|bytes| !is_verification(bytes)) {
        bytes = small(&root.uncached(), &below).await?;
    }
    Ok(bytes
        .map_or_else(VerificationState::default, |bytes| of_record(&bytes, name, manifest, key)))
}

/// The content of a record, if it is about the manifest with this digest.
fn of_record(
    bytes: &[u8],
    name: &BackupName,
    manifest: &str,
    key: Option<&MacKey>,
) -> VerificationState {
    let ours = |record: &Verifications| {
        record.format == FORMAT && record.name == name.as_str() && record.manifest == manifest
    };
    parse::<Verifications>(bytes, key).filter(ours).map_or_else(
        VerificationState::default,
        |record| VerificationState { results: record.results, failed_try: record.failed_try },
    )
}

/// Adds a result to the record, replacing the older one of its level.
pub async fn add(
    root: &Root,
    name: &BackupName,
    manifest: &str,
    result: VerifyResult,
    key: Option<&MacKey>,
) -> Result<(), RepoError> {
    change_verified(root, name, manifest, key, |verified| {
        verified.results.retain(|old| old.level != result.level);
        verified.results.push(result.clone());
    })
    .await
}

/// Adds a try that ended without a result to the record, replacing an older one. One that could not begin does not replace
/// one that failed.
pub async fn add_failed_try(
    root: &Root,
    name: &BackupName,
    manifest: &str,
    failed: FailedTry,
    key: Option<&MacKey>,
) -> Result<(), RepoError> {
    change_verified(root, name, manifest, key, |verified| {
        let failed = VerificationState { results: Vec::new(), failed_try: Some(failed.clone()) };
        *verified = std::mem::take(verified).and(failed);
    })
    .await
}

async fn change_verified(
    root: &Root,
    name: &BackupName,
    manifest: &str,
    key: Option<&MacKey>,
    with: impl Fn(&mut VerificationState),
) -> Result<(), RepoError> {
    let last = if key.is_some() { WITH_KEY } else { WITHOUT_KEY };
    let what = || format!("the verification record of {name}");
    change(root, &verified_key(name, last), what, |before| {
        let before = before.map(|bytes| of_record(bytes, name, manifest, key));
        let mut verified = before.unwrap_or_default();
        with(&mut verified);
        let VerificationState { results, failed_try } = VerificationState::default().and(verified);
        let record = Verifications {
            kind: Kind::Verified,
            format: FORMAT,
            name: name.to_string(),
            manifest: manifest.to_owned(),
            results,
            failed_try,
        };
        encode(&record, key)
    })
    .await
}

/// Maximum number of times that other commands may change a record while one command changes it.
const CONTENDERS: u32 = 5;

/// Replaces a record by what `new` makes of it. A change that another command makes in between is kept.
async fn change(
    root: &Root,
    below: &str,
    what: impl Fn() -> String,
    new: impl Fn(Option<&[u8]>) -> Result<bytes::Bytes, RepoError>,
) -> Result<(), RepoError> {
    let key = root.key(below);
    for _ in 0..CONTENDERS {
        let before = match root.store().get(&key).await.map_err(RepoError::from) {
            Ok(bytes) => Some(bytes),
            Err(RepoError::Store(error)) if error.kind == StoreErrorKind::NotFound => None,
            Err(error) if error.is_of_one_object() => None,
            Err(error) => return Err(error),
        };
        let is_before = |there: PresentState<'_>| match (there, &before) {
            (PresentState::Content(bytes), Some(before)) => bytes == before,
            (PresentState::Content(_), None) => false,
            (_, before) => before.is_none(),
        };
        let new = new(before.as_deref())?;
        if root.store().put_expected(&key, new, is_before).await? != GuardedOutcome::Other {
            return Ok(());
        }
    }
    Err(RepoError::Concurrent { what: what() })
}

/// The pin of the backup with this manifest, if any; with `None`, the pin of any manifest.
pub async fn pinned(
    root: &Root,
    name: &BackupName,
    manifest: Option<&str>,
) -> Result<Option<Pin>, RepoError> {
    let bytes = match root.small(&pin_key(name)).await.map_err(RepoError::from) {
        Ok(bytes) => Some(bytes),
        Err(RepoError::Store(error)) if error.kind == StoreErrorKind::NotFound => {
            return Ok(None);
        }
        Err(error) if error.is_of_one_object() => None,
        Err(error) => return Err(error),
    };
    let readable = bytes.as_ref().filter(|bytes| bytes.len() <= MAX_LEN);
    let pin = readable.and_then(|bytes| parse::<Pin>(bytes, None));
    let about_another = |pin: &Pin| manifest.is_some_and(|manifest| pin.manifest != manifest);
    Ok(match pin.filter(|pin| pin.kind == Kind::Pin) {
        Some(pin) => Some(pin).filter(|pin| !about_another(pin)),
        // Keep the backup: only a readable pin can show that it is for another manifest.
        None => Some(Pin {
            kind: Kind::Pin,
            format: FORMAT,
            name: name.to_string(),
            manifest: manifest.unwrap_or_default().to_owned(),
            reason: Some(
                "the pin cannot be read, but protects the backup until `unpin`".to_owned(),
            ),
            since: None,
        }),
    })
}

/// Writes a pin of the manifest with this digest.
///
/// # Errors
/// [`RepoError::Store`].
pub async fn write_pin(
    root: &Root,
    name: &BackupName,
    manifest: String,
    reason: Option<&str>,
) -> Result<Pin, RepoError> {
    let pin = Pin {
        kind: Kind::Pin,
        format: FORMAT,
        name: name.to_string(),
        manifest,
        reason: reason.map(str::to_owned),
        since: Some(Timestamp::now()),
    };
    let bytes = encode(&pin, None)?;
    change(root, &pin_key(name), || pin_of(name), |_| Ok(bytes.clone())).await?;
    Ok(pin)
}

fn pin_of(name: &BackupName) -> String {
    format!("the pin of {name}")
}

/// Removes the pin of the backup with this manifest, or with `None` of any, and returns it.
///
/// # Errors
/// [`RepoError::Concurrent`] if another command replaces it; [`RepoError::Store`].
pub async fn remove_pin(
    root: &Root,
    name: &BackupName,
    manifest: Option<&str>,
) -> Result<Option<Pin>, RepoError> {
    let look = pinned(root, name, manifest);
    remove_seen(root, &pin_key(name), look, || pin_of(name)).await
}

/// Removes the record at `key` and returns what `look` finds in it. One that was changed since stays.
async fn remove_seen<T>(
    root: &Root,
    key: &str,
    look: impl Future<Output = Result<Option<T>, RepoError>>,
    what: impl Fn() -> String,
) -> Result<Option<T>, RepoError> {
    let key = root.key(key);
    let was = root.store().get(&key).await.ok();
    let found = look.await?;
    let is_it = |there: PresentState<'_>| match there {
        PresentState::Content(bytes) => was.as_ref().is_none_or(|was| was == bytes),
        PresentState::Unreadable => was.is_none(),
        PresentState::Nothing => false,
    };
    match root.store().delete_expected(&key, is_it).await? {
        GuardedOutcome::Other if found.is_some() => Err(RepoError::Concurrent { what: what() }),
        _ => Ok(found),
    }
}

/// The acceptance of the backup with this manifest. One that cannot be read does not count.
///
/// # Errors
/// [`RepoError::Store`].
pub async fn accepted(
    root: &Root,
    name: &BackupName,
    manifest: &str,
) -> Result<Option<Acceptance>, RepoError> {
    let bytes = match small(root, &accepted_key(name)).await {
        Err(error) if error.is_of_one_object() => None,
        bytes => bytes?,
    };
    let found = bytes.and_then(|bytes| parse::<Acceptance>(&bytes, None));
    Ok(found.filter(|found| {
        found.kind == Kind::Accepted
            && found.format == FORMAT
            && found.name == name.as_str()
            && found.manifest == manifest
    }))
}

/// Accepts the backup with this manifest.
///
/// # Errors
/// [`RepoError::Concurrent`] if another command does so, too; [`RepoError::Store`].
pub async fn write_acceptance(
    root: &Root,
    name: &BackupName,
    manifest: String,
    reason: Option<&str>,
) -> Result<(), RepoError> {
    let acceptance = Acceptance {
        kind: Kind::Accepted,
        format: FORMAT,
        name: name.to_string(),
        manifest,
        reason: reason.map(str::to_owned),
        since: Timestamp::now(),
    };
    let bytes = encode(&acceptance, None)?;
    let what = || acceptance_of(name);
    change(root, &accepted_key(name), what, |_| Ok(bytes.clone())).await
}

fn acceptance_of(name: &BackupName) -> String {
    format!("the acceptance of {name}")
}

/// Removes the acceptance of the backup with this manifest, and returns it.
///
/// # Errors
/// [`RepoError::Concurrent`] if another command replaces it; [`RepoError::Store`].
pub async fn remove_acceptance(
    root: &Root,
    name: &BackupName,
    manifest: &str,
) -> Result<Option<Acceptance>, RepoError> {
    let look = accepted(root, name, manifest);
    remove_seen(root, &accepted_key(name), look, || acceptance_of(name)).await
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::verification::Replayed;

    fn result(level: Level, ok: bool, at: i64) -> VerifyResult {
        VerifyResult {
            level,
            ok,
            finished: Timestamp::from_second(at).unwrap(),
            tool: "test".into(),
            problems: u64::from(!ok),
            unpacked_bytes: None,
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
    fn only_a_trial_that_passed_proves_the_log() {
        let replayed = Replayed {
            to: "bin.000001:4".to_owned(),
            gtids: String::new(),
            transactions: 0,
            proven_until: Timestamp::from_second(3).unwrap(),
        };
        let restore = RestoreTest { replayed: Some(replayed), ..RestoreTest::default() };
        let of = |level| {
            let tested = VerifyResult { restore: Some(restore.clone()), ..result(level, true, 5) };
            Proof::of(&[tested]).proven_until
        };
        assert!(of(Level::Restore).is_some());
        // A check of the user's own has failed, or a comparison.
        assert_eq!(of(Level::Pages), None);
    }

    #[test]
    fn a_failed_try_stays_until_its_level_is_reached() {
        let failed = |at| FailedTry {
            finished: Timestamp::from_second(at).unwrap(),
            ..FailedTry::now(Level::Restore, "test", "no room")
        };
        let of = |results: &[VerifyResult], at| {
            let one = VerificationState { results: results.to_vec(), failed_try: Some(failed(at)) };
            VerificationState::default().and(one).failed_try.is_some()
        };
        let restored = result(Level::Restore, true, 5);
        assert!(
            of(&[restored.clone(), result(Level::Pages, true, 9)], 6),
            "pages say nothing of it"
        );
        assert!(!of(std::slice::from_ref(&restored), 5));
        assert!(of(&[result(Level::Restore, false, 9)], 6));
        // Of two records, the later try counts, and results of either answer it.
        let with = |results, at| VerificationState { results, failed_try: Some(failed(at)) };
        let both = with(vec![], 3).and(with(vec![], 7));
        assert_eq!(both.failed_try, Some(failed(7)));
        let refused = FailedTry { refused: true, ..failed(9) };
        let later = VerificationState { results: vec![], failed_try: Some(refused) };
        assert_eq!(both.and(later).failed_try, Some(failed(7)), "a refusal hides no failure");
        assert_eq!(with(vec![restored], 3).and(with(vec![], 4)).failed_try, None);
        assert_eq!(
            FailedTry::now(Level::Restore, "t", &"ä".repeat(5000)).why.chars().count(),
            MAX_WHY
        );
    }

    #[test]
    fn keys_in_the_catalogue_are_distinguished() {
        let name = BackupName::new("monday").unwrap();
        let all = keys(&name).map(|key| key.strip_prefix(".xb-catalog/").unwrap().to_owned());
        let others = ["monday", "@claims/monday/000001", "@verified", "@other/monday"];
        let beside = CatalogMarkers::of(all.iter().map(String::as_str).chain(others));
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
            failed_try: None,
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
        // Neither parses as the other, nor as a manifest.
        assert!(parse::<Pin>(&plain, None).is_none_or(|pin| pin.kind != Kind::Pin));
        assert!(crate::manifest::Manifest::decode(&bytes).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_passed_over(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse::<Verifications>(&bytes, None);
            let _ = parse::<Verifications>(&attest(bytes, None), None);
        }

        /// The order of the results in the record does not matter.
        #[test]
        fn weighing_does_not_depend_on_order(
            mut results in prop::collection::vec((0_usize..6, any::<bool>(), 0_i64..20), 0..8)
        ) {
            let made = |results: &[(usize, bool, i64)]| -> Vec<VerifyResult> {
                results.iter().map(|(l, ok, at)| result(Level::ALL[*l], *ok, *at)).collect()
            };
            // One result of each level, as in a record.
            results.sort();
            results.dedup_by_key(|result| result.0);
            let forward = Proof::of(&made(&results));
            results.reverse();
            prop_assert_eq!(forward, Proof::of(&made(&results)));
        }
    }
}
