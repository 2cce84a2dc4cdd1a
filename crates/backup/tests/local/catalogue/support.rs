//! Helpers that the tests of the catalogue share.

use jiff::Timestamp;
use xb_backup::{
    BackupError, Candidate, CopyReport, CopyRequest, Keep, Keys, VerifyRequest, plan_prune,
};
use xb_encryptor::KeyBytes;
use xb_repo::list::Listing;
use xb_repo::names::BackupName;
use xb_repo::root::Root;
use xb_repo::verification::{Level, VerifyReport};

use crate::common::{Store, block_on, session};

pub(crate) const KEY: [u8; 32] = [7; 32];

pub(crate) fn keys(key: Option<[u8; 32]>) -> Keys {
    Keys { key: key.map(|key| KeyBytes::new(&key).unwrap()), ..Keys::default() }
}

pub(crate) fn name(name: &str) -> BackupName {
    BackupName::new(name).unwrap()
}

pub(crate) fn verify(store: &Store, of: &str, level: Level, key: Option<[u8; 32]>) -> VerifyReport {
    let request = VerifyRequest {
        name: name(of),
        level,
        keys: keys(key),
        accept: xb_backup::Accept::default(),
        record: Some("test 1".into()),
    };
    block_on(xb_backup::verify(&session(&store.root), &request)).unwrap()
}

pub(crate) fn line(store: &Store, of: &str) -> Listing {
    let all = block_on(xb_repo::list::list(&store.root)).unwrap();
    all.into_iter().find(|line| line.name == of).unwrap()
}

pub(crate) fn copy(
    from: &Store,
    to: &Store,
    what: &str,
    called: &str,
    change: impl FnOnce(CopyRequest) -> CopyRequest,
) -> Result<CopyReport, BackupError> {
    copy_to(from, &to.root, what, |request| change(CopyRequest { to: name(called), ..request }))
}

/// Copies a backup to this ROOT, under its own name.
pub(crate) fn copy_to(
    from: &Store,
    to: &Root,
    what: &str,
    change: impl FnOnce(CopyRequest) -> CopyRequest,
) -> Result<CopyReport, BackupError> {
    let request = change(CopyRequest {
        verify_bases: None,
        name: name(what),
        to: name(what),
        options: xb_backup::CopyOptions { unverified: false, alone: false },
        keys: Keys::default(),
        accept: xb_backup::Accept::default(),
        within_store: None,
        lock: None,
    });
    block_on(xb_backup::copy(&session(&from.root), to, request))
}

pub(crate) fn unverified(request: CopyRequest) -> CopyRequest {
    CopyRequest {
        options: xb_backup::CopyOptions { unverified: true, ..request.options },
        ..request
    }
}

pub(crate) fn manifest_of(store: &Store, of: &str) -> std::path::PathBuf {
    store.folder.path().join("root/.xb-catalog").join(of)
}

/// Rewrites the manifest with changed content, as if it had been written so at first.
pub(crate) fn rewrite(store: &Store, of: &str, change: impl FnOnce(&mut serde_json::Value)) {
    use sha2::Digest as _;
    let path = manifest_of(store, of);
    let written = std::fs::metadata(&path).unwrap().modified().unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let text = &text[..text.rfind("sha256:").unwrap()];
    let mut value: serde_json::Value = serde_json::from_str(text).unwrap();
    change(&mut value);
    let mut text = serde_json::to_string_pretty(&value).unwrap();
    text.push('\n');
    let digest: String = sha2::Sha256::digest(&text).iter().map(|b| format!("{b:02x}")).collect();
    std::fs::write(&path, format!("{text}sha256:{digest}\n")).unwrap();
    std::fs::File::options().append(true).open(path).unwrap().set_modified(written).unwrap();
}

pub(crate) fn plan(store: &Store, keep: Keep) -> Vec<xb_backup::Verdict> {
    let listed = block_on(xb_repo::list::list(&store.root)).unwrap();
    let all = Candidate::all(&listed);
    plan_prune(&all, &keep, Timestamp::now())
}

/// Does something right before operation number `n` (from 0) of one kind, or before each.
pub(crate) struct Before<F>(xb_uploader::Operation, Option<std::sync::atomic::AtomicUsize>, F);

impl<F> std::fmt::Debug for Before<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl<F: Fn() + Send + Sync> xb_uploader::Faults for Before<F> {
    fn next(&self, operation: xb_uploader::Operation) -> Option<xb_uploader::Fault> {
        use std::sync::atomic::Ordering;
        let is_now = |n: &std::sync::atomic::AtomicUsize| n.fetch_sub(1, Ordering::AcqRel) == 0;
        if operation == self.0 && self.1.as_ref().is_none_or(is_now) {
            (self.2)();
        }
        None
    }
}

pub(crate) fn before(
    kind: xb_uploader::Operation,
    n: usize,
    act: impl Fn() + Send + Sync + 'static,
) -> Before<impl Fn()> {
    Before(kind, Some(n.into()), act)
}

pub(crate) fn every(
    kind: xb_uploader::Operation,
    act: impl Fn() + Send + Sync + 'static,
) -> Before<impl Fn()> {
    Before(kind, None, act)
}

/// Does something once, as soon as all these names are marked as being removed, before the next listing:
/// that is where a removal looks for what needs the backups.
pub(crate) fn once_marked<A: Fn() + Send + Sync + 'static>(
    store: &Store,
    names: &'static [&'static str],
    act: A,
) -> Before<impl Fn() + Send + Sync + use<A>> {
    let claims = store.folder.path().join("root/.xb-catalog/@claims");
    let done = std::sync::atomic::AtomicBool::new(false);
    every(xb_uploader::Operation::List, move || {
        let is_marked = |name: &&str| {
            let files = std::fs::read_dir(claims.join(name)).into_iter().flatten().flatten();
            files.into_iter().any(|file| {
                std::fs::read_to_string(file.path()).is_ok_and(|text| text.contains("\"removing\""))
            })
        };
        if names.iter().all(is_marked) && !done.swap(true, std::sync::atomic::Ordering::AcqRel) {
            act();
        }
    })
}
