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
//! results. A verification record that cannot be read may hold a fault, so it counts as one.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use xb_encryptor::MacKey;
use xb_uploader::{GuardedOutcome, PresentState, StoreErrorKind};

use crate::error::RepoError;
use crate::manifest::signed_text::{SignedText, attest};
use crate::names::{BackupName, CATALOG};
pub use crate::proof::{
    FailedTry, MAX_WHY, Proof, SizeNote, VerificationState, VerifyResult, intact_pages,
    only_trials_failed,
};
use crate::root::Root;
use crate::verification::Level;

/// Largest record, in bytes.
const MAX_LEN: usize = 1 << 20;
const VERIFIED: &str = "@verified";
const PINS: &str = "@pins";
const ACCEPTED: &str = "@accepted";
const WITH_KEY: &str = "with-key";
const WITHOUT_KEY: &str = "without-key";
const BOTH: [&str; 2] = [WITH_KEY, WITHOUT_KEY];
/// The format version we write. Of records of a later one only those count that protect a backup.
const FORMAT: u32 = 1;

/// Verification record of a backup as stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Verifications {
    #[serde(rename = "type")]
    kind: Kind,
    format: u32,
    name: String,
    /// SHA-256 of the manifest, hexadecimal.
    manifest: String,
    /// The last result and the last fault of each level.
    results: Vec<VerifyResult>,
    /// The last try that ended without a result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failed_try: Option<FailedTry>,
    /// How the size of the backup was judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    size: Option<SizeNote>,
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

/// An operator's word about a backup. A pin asks to keep it. An acceptance says that it is as intended, although it is much
/// smaller than those before it, or its base is not in its repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorWord {
    #[serde(rename = "type")]
    kind: Kind,
    format: u32,
    /// The backup.
    pub name: String,
    manifest: String,
    /// Reason for the pin or the acceptance.
    pub reason: Option<String>,
    /// When it was given, UTC; `None` for a pin that cannot be read.
    pub since: Option<Timestamp>,
    /// What an acceptance is for; `None` in those of earlier versions, which did not state it.
    #[serde(rename = "for", default, skip_serializing_if = "Option::is_none")]
    pub about: Option<BTreeSet<Accepted>>,
}

/// What an operator accepts of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accepted {
    /// That it is much smaller than those before it.
    Size,
    /// That its base, or that of its chain, is in another place.
    Base,
}

impl OperatorWord {
    fn new(kind: Kind, name: &BackupName, manifest: String, reason: Option<&str>) -> Self {
        let (name, reason) = (name.to_string(), reason.map(str::to_owned));
        let since = Some(Timestamp::now());
        Self { kind, format: FORMAT, name, manifest, reason, since, about: None }
    }

    /// Returns whether an acceptance is for the size.
    pub(crate) fn is_for_size(&self) -> bool {
        self.about.as_ref().is_none_or(|about| about.contains(&Accepted::Size))
    }

    /// Returns whether an acceptance is for a base that is elsewhere. One of an earlier version is, unless the backup is much
    /// smaller than usual: then it was for that, and the base was there.
    pub(crate) fn is_for_base(&self, is_small: bool) -> bool {
        match &self.about {
            Some(about) => about.contains(&Accepted::Base),
            None => !is_small,
        }
    }

    /// Writes it over an earlier one of its kind.
    async fn write(&self, root: &Root, key: &str, what: String) -> Result<(), RepoError> {
        let bytes = encode(self, None)?;
        change(root, key, || what.clone(), |_| Ok(bytes.clone())).await
    }
}

/// Names of the backups that may have records beside their manifests.
#[derive(Debug, Default)]
pub struct CatalogMarkers {
    verified: BTreeSet<String>,
    pinned: BTreeSet<String>,
    /// Whether any name may have records.
    all: bool,
}

impl CatalogMarkers {
    /// Leaves it to a read by key, for each name, whether it has records.
    pub fn unknown() -> Self {
        Self { all: true, ..Self::default() }
    }

    /// Returns whether there may be a verification record of `name`.
    pub(crate) fn may_be_verified(&self, name: &BackupName) -> bool {
        self.all || self.verified.contains(name.as_str())
    }

    /// Returns whether there may be a pin of `name`.
    pub(crate) fn may_be_pinned(&self, name: &BackupName) -> bool {
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
pub fn is_verification(bytes: &[u8]) -> bool {
    parse::<Verifications>(bytes, None).is_some_and(|record| {
        let _ = Proof::of(&record.results);
        record.kind == Kind::Verified
    })
}

/// Returns whether bytes are a pin.
#[doc(hidden)]
pub fn is_pin(bytes: &[u8]) -> bool {
    parse::<OperatorWord>(bytes, None).is_some_and(|pin| pin.kind == Kind::Pin)
}

fn encode(record: &impl Serialize, key: Option<&MacKey>) -> Result<bytes::Bytes, RepoError> {
    let mut text = serde_json::to_vec_pretty(record)
        .map_err(|_| RepoError::Bug("a record cannot be encoded"))?;
    text.push(b'\n');
    Ok(attest(text, key).into())
}

/// The results that the records hold for the manifest with this digest. With a key, only those that it authenticates
/// counts, apart from faults: these count from any record.
///
/// # Errors
/// [`RepoError::Record`] if one cannot be parsed; [`RepoError::Store`].
pub async fn results(
    root: &Root,
    name: &BackupName,
    manifest: &str,
    key: Option<&MacKey>,
) -> Result<VerificationState, RepoError> {
    let mut all = VerificationState::default();
    for last in BOTH {
        all = all.and(read_record(root, name, manifest, last, key).await?);
    }
    Ok(all)
}

/// The highest number of a result or try in the records that can be read, of whichever writer.
pub async fn last_number(root: &Root, name: &BackupName, manifest: &str) -> u64 {
    last_numbers(root, name, manifest).await.0
}

/// More results and tries than the two records of a backup ever get.
const UNREAD: u64 = 1 << 32;

/// As [`last_number`], and a number that is also above those of a record that cannot be read: it may hold a result that
/// passed, which must not refute a fault that is recorded later.
async fn last_numbers(root: &Root, name: &BackupName, manifest: &str) -> (u64, u64) {
    let (root, mut number, mut unread) = (root.uncached(), 0, 0);
    for last in BOTH {
        match read_record(&root, name, manifest, last, None).await {
            Ok(found) => number = number.max(found.last_number()),
            Err(_) => unread = UNREAD,
        }
    }
    (number, unread.saturating_add(number))
}

async fn read_record(
    root: &Root,
    name: &BackupName,
    manifest: &str,
    last: &str,
    key: Option<&MacKey>,
) -> Result<VerificationState, RepoError> {
    let below = verified_key(name, last);
    let mut found = read_verification(root, &below).await?;
    // A single altered answer, which a cache may have kept, hides no result.
    if found.as_ref().is_some_and(|bytes| !is_verification(bytes)) {
        found = read_verification(&root.uncached(), &below).await?;
    }
    let Some(bytes) = found else { return Ok(VerificationState::default()) };
    of_record(&bytes, name, manifest, key).ok_or(RepoError::Record { key: below })
}

/// Reads a verification record; `None` if there is none.
async fn read_verification(root: &Root, below: &str) -> Result<Option<bytes::Bytes>, RepoError> {
    match root.small(below).await {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind == StoreErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The content of a record, nothing if it is about another manifest. Returns `None` if it is damaged or of a later
/// format.
fn of_record(
    bytes: &[u8],
    name: &BackupName,
    manifest: &str,
    key: Option<&MacKey>,
) -> Option<VerificationState> {
    let attested = SignedText::read(bytes).ok().filter(|_| bytes.len() <= MAX_LEN)?;
    let record: Verifications = serde_json::from_slice(attested.text).ok()?;
    if record.kind != Kind::Verified || record.format != FORMAT {
        return None;
    }
    let mut found = VerificationState::default();
    if record.name == name.as_str() && record.manifest == manifest {
        let Verifications { results, failed_try, size, .. } = record;
        found = VerificationState { results, failed_try, size };
    }
    if key.is_some_and(|key| !attested.is_by(key)) {
        found.results.retain(|result| !result.ok);
    }
    Some(found)
}

/// What a verification of the pages that passed leaves open if it replaces a damaged record.
const LOST_FAULT: &str =
    "its record was damaged, and may have held a fault that only a trial restore finds";

/// Numbers a result and adds it to the record, replacing the older one of its level. One of a trial restore that
/// passed replaces a record that cannot be read, of either writer; one of level pages does if it is damaged, and leaves open
/// what only a trial restore finds.
///
/// # Errors
/// [`RepoError::Record`] if the record cannot be parsed; [`RepoError::Concurrent`]; [`RepoError::Store`].
pub async fn add(
    root: &Root,
    name: &BackupName,
    manifest: &str,
    result: VerifyResult,
    key: Option<&MacKey>,
) -> Result<(), RepoError> {
    let proves_all = result.ok && result.proves() == Level::Restore;
    let proves_pages = result.ok && result.proves() >= Level::Pages;
    let is_replaced = |there: PresentState<'_>| match there {
        PresentState::Content(bytes) if !proves_all => proves_pages && is_damaged(bytes),
        _ => proves_all,
    };
    let open = || FailedTry::now(Level::Restore, &result.tool, LOST_FAULT);
    let lost = || VerificationState {
        failed_try: (!proves_all).then(open),
        ..VerificationState::default()
    };
    let instead = |there: PresentState<'_>| is_replaced(there).then(lost);
    let other = verified_key(name, if key.is_some() { WITHOUT_KEY } else { WITH_KEY });
    let read = root.store().get(&root.key(&other)).await.map_err(RepoError::from);
    let unread_other = present(&read).is_some_and(|there| match there {
        PresentState::Content(bytes) => {
            of_record(bytes, name, manifest, None).is_none() && is_replaced(there)
        }
        _ => false,
    });
    change_verified(root, name, manifest, key, instead, |verified, number| {
        if unread_other {
            let failed_try = (!proves_all).then(open);
            let failed_try = failed_try.map(|open| FailedTry { number: Some(number), ..open });
            let open = VerificationState { failed_try, ..VerificationState::default() };
            *verified = std::mem::take(verified).and(open);
        }
        let number = number.max(result.after.unwrap_or_default().saturating_add(1));
        let result = VerifyResult { number: Some(number), ..result.clone() };
        verified.results.retain(|old| !old.is_replaced_by(&result));
        verified.results.push(result);
    })
    .await?;
    if unread_other {
        let is_it = |there: PresentState<'_>| match there {
            PresentState::Content(bytes) => {
                of_record(bytes, name, manifest, None).is_none() && is_replaced(there)
            }
            _ => false,
        };
        root.store().delete_expected(&root.key(&other), is_it).await?;
    }
    Ok(())
}

/// Returns whether a record is damaged. One of a later format is not.
fn is_damaged(bytes: &[u8]) -> bool {
    let text = SignedText::read(bytes).ok().filter(|_| bytes.len() <= MAX_LEN);
    text.is_none_or(|text| serde_json::from_slice::<serde_json::Value>(text.text).is_err())
}

/// Numbers a try that ended without a result and adds it to the record, replacing an older one. One that could not begin
/// does not replace one that failed.
///
/// # Errors
/// As [`add`].
pub async fn add_failed_try(
    root: &Root,
    name: &BackupName,
    manifest: &str,
    failed: FailedTry,
    key: Option<&MacKey>,
) -> Result<(), RepoError> {
    change_verified(
        root,
        name,
        manifest,
        key,
        |_| None,
        |verified, number| {
            let failed = FailedTry { number: Some(number), ..failed.clone() };
            let failed =
                VerificationState { failed_try: Some(failed), ..VerificationState::default() };
            *verified = std::mem::take(verified).and(failed);
        },
    )
    .await
}

/// Records how the size of the backup with this manifest was judged: the backups that it was compared with may go.
///
/// # Errors
/// As [`add`].
pub async fn note_size(
    root: &Root,
    name: &BackupName,
    manifest: &str,
    note: SizeNote,
) -> Result<(), RepoError> {
    change_verified(
        root,
        name,
        manifest,
        None,
        |_| None,
        |verified, _| {
            verified.size = Some(note.clone());
        },
    )
    .await
}

/// Changes a record, `with` its content and the next number. One that cannot be read may hold a fault: it stays
/// unless there is something to put `instead`.
async fn change_verified(
    root: &Root,
    name: &BackupName,
    manifest: &str,
    key: Option<&MacKey>,
    instead: impl Fn(PresentState<'_>) -> Option<VerificationState>,
    with: impl Fn(&mut VerificationState, u64),
) -> Result<(), RepoError> {
    let below = &verified_key(name, if key.is_some() { WITH_KEY } else { WITHOUT_KEY });
    let what = || format!("the verification record of {name}");
    let (_, last) = last_numbers(root, name, manifest).await;
    let new = |there: PresentState<'_>| {
        let before = match there {
            PresentState::Nothing => Some(VerificationState::default()),
            PresentState::Unreadable => None,
            PresentState::Content(bytes) => of_record(bytes, name, manifest, key),
        };
        let before = before.or_else(|| instead(there));
        let mut verified = before.ok_or_else(|| RepoError::Record { key: below.clone() })?;
        let last = last.max(verified.last_number());
        with(&mut verified, last.saturating_add(1));
        let verified = VerificationState::default().and(verified);
        let VerificationState { results, failed_try, size } = verified;
        let record = Verifications {
            kind: Kind::Verified,
            format: FORMAT,
            name: name.to_string(),
            manifest: manifest.to_owned(),
            results,
            failed_try,
            size,
        };
        encode(&record, key)
    };
    match change(root, below, what, new).await {
        // A single answer may be altered.
        Err(RepoError::Record { .. }) => change(root, below, what, new).await,
        changed => changed,
    }
}

/// The state of a record that was read; `None` if the store could not be asked.
fn present(read: &Result<bytes::Bytes, RepoError>) -> Option<PresentState<'_>> {
    match read {
        Ok(bytes) => Some(PresentState::Content(bytes)),
        Err(RepoError::Store(error)) if error.kind == StoreErrorKind::NotFound => {
            Some(PresentState::Nothing)
        }
        Err(error) => error.is_of_one_object().then_some(PresentState::Unreadable),
    }
}

/// Maximum number of times that other commands may change a record while one command changes it.
const CONTENDERS: u32 = 5;

/// Replaces a record by what `new` makes of it. A change that another command makes in between is kept.
async fn change(
    root: &Root,
    below: &str,
    what: impl Fn() -> String,
    new: impl Fn(PresentState<'_>) -> Result<bytes::Bytes, RepoError>,
) -> Result<(), RepoError> {
    let key = root.key(below);
    for _ in 0..CONTENDERS {
        let read = root.store().get(&key).await.map_err(RepoError::from);
        let Some(before) = present(&read) else { return read.map(drop) };
        let is_before = |there: PresentState<'_>| there == before;
        let new = new(before)?;
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
) -> Result<Option<OperatorWord>, RepoError> {
    let bytes = match root.small(&pin_key(name)).await.map_err(RepoError::from) {
        Ok(bytes) => Some(bytes),
        Err(RepoError::Store(error)) if error.kind == StoreErrorKind::NotFound => {
            return Ok(None);
        }
        Err(error) if error.is_of_one_object() => None,
        Err(error) => return Err(error),
    };
    let readable = bytes.as_ref().filter(|bytes| bytes.len() <= MAX_LEN);
    let pin = readable.and_then(|bytes| parse::<OperatorWord>(bytes, None));
    let about_another =
        |pin: &OperatorWord| manifest.is_some_and(|manifest| pin.manifest != manifest);
    Ok(match pin.filter(|pin| pin.kind == Kind::Pin) {
        Some(pin) => Some(pin).filter(|pin| !about_another(pin)),
        // Keep the backup: only a readable pin can show that it is for another manifest.
        None => Some(OperatorWord {
            kind: Kind::Pin,
            format: FORMAT,
            name: name.to_string(),
            manifest: manifest.unwrap_or_default().to_owned(),
            reason: Some(
                "the pin cannot be read, but protects the backup until `unpin`".to_owned(),
            ),
            since: None,
            about: None,
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
) -> Result<OperatorWord, RepoError> {
    let pin = OperatorWord::new(Kind::Pin, name, manifest, reason);
    pin.write(root, &pin_key(name), pin_of(name)).await?;
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
) -> Result<Option<OperatorWord>, RepoError> {
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
    let read = root.store().get(&key).await.map_err(RepoError::from);
    let Some(was) = present(&read) else { return read.map(|_| None) };
    let found = look.await?;
    let is_it = |there: PresentState<'_>| there == was && there != PresentState::Nothing;
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
) -> Result<Option<OperatorWord>, RepoError> {
    let bytes = match small(root, &accepted_key(name)).await {
        Err(error) if error.is_of_one_object() => None,
        bytes => bytes?,
    };
    let found = bytes.and_then(|bytes| parse::<OperatorWord>(&bytes, None));
    Ok(found.filter(|found| {
        found.kind == Kind::Accepted
            && found.format == FORMAT
            && found.name == name.as_str()
            && found.manifest == manifest
            && found.since.is_some()
    }))
}

/// Accepts `about` the backup with this manifest, and what was accepted of it before.
///
/// # Errors
/// [`RepoError::Concurrent`] if another command does so, too; [`RepoError::Store`].
pub(crate) async fn write_acceptance(
    root: &Root,
    name: &BackupName,
    manifest: String,
    reason: Option<&str>,
    mut about: BTreeSet<Accepted>,
) -> Result<(), RepoError> {
    if let Some(before) = accepted(root, name, &manifest).await? {
        about.extend(before.about.unwrap_or_else(|| BTreeSet::from([Accepted::Size])));
    }
    let acceptance = OperatorWord {
        about: Some(about),
        ..OperatorWord::new(Kind::Accepted, name, manifest, reason)
    };
    acceptance.write(root, &accepted_key(name), acceptance_of(name)).await
}

fn acceptance_of(name: &BackupName) -> String {
    format!("the acceptance of {name}")
}

/// Removes the acceptance of the backup with this manifest, and returns it.
///
/// # Errors
/// [`RepoError::Concurrent`] if another command replaces it; [`RepoError::Store`].
pub(crate) async fn remove_acceptance(
    root: &Root,
    name: &BackupName,
    manifest: &str,
) -> Result<Option<OperatorWord>, RepoError> {
    let look = accepted(root, name, manifest);
    remove_seen(root, &accepted_key(name), look, || acceptance_of(name)).await
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::verification::VerifyReport;

    /// Which of the two it was for, its file does not say: a base that was here and is lost was most likely not meant.
    #[test]
    fn a_word_of_an_earlier_version_is_for_no_base_of_a_small_backup() {
        let file = include_bytes!("../../../fixtures/records/accepted-2026-11-27");
        let word = parse::<OperatorWord>(file, None).unwrap();
        assert!(word.is_for_size() && word.is_for_base(false) && !word.is_for_base(true));
        let word = OperatorWord { about: Some([Accepted::Base].into()), ..word };
        assert!(!word.is_for_size() && word.is_for_base(true));
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
            results: vec![VerifyResult::of(&VerifyReport::new("n".into(), Level::Pages), "test")],
            failed_try: None,
            size: None,
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
        assert!(parse::<OperatorWord>(&plain, None).is_none_or(|pin| pin.kind != Kind::Pin));
        assert!(crate::manifest::Manifest::decode(&bytes).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_passed_over(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse::<Verifications>(&bytes, None);
            let _ = parse::<Verifications>(&attest(bytes, None), None);
        }
    }
}
