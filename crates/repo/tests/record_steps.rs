//! Records of format 1 as they were: today's program reads them, and does not guess at a later format.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

use sha2::{Digest as _, Sha256};
use xb_repo::names::BackupName;
use xb_repo::records::{accepted, keys, pinned, results};
use xb_repo::root::Root;
use xb_repo::verification::Level;
use xb_uploader::{Location, Policy, StorePlace, StoreSettings};

const VERIFIED: &str = include_str!("../../../fixtures/records/verified-2026-11-27");
const PIN: &str = include_str!("../../../fixtures/records/pin-2026-11-27");
const ACCEPTED: &str = include_str!("../../../fixtures/records/accepted-2026-11-27");
const MANIFEST: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// A repository with the three records, each with this format.
struct Site(tempfile::TempDir, Root, BackupName);

impl Site {
    fn new(format: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let name = BackupName::new("monday").unwrap();
        let [_, verified, pin, accepted] = keys(&name);
        for (key, record) in [(verified, VERIFIED), (pin, PIN), (accepted, ACCEPTED)] {
            let file = folder.path().join(key);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, of_format(record, format)).unwrap();
        }
        let path = folder.path().to_str().unwrap().trim_start_matches('/').to_owned();
        let location = Location { place: StorePlace::Local, path };
        let root =
            Root::open(&location, &StoreSettings::default(), Policy::default(), true).unwrap();
        Self(folder, root, name)
    }
}

/// The record with another format and the right check line.
fn of_format(record: &str, format: u32) -> String {
    if format == 1 {
        return record.to_owned();
    }
    let (text, _) = record.rsplit_once("sha256:").unwrap();
    let text = text.replace("\"format\": 1", &format!("\"format\": {format}"));
    let digest: String = Sha256::digest(&text).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{text}sha256:{digest}\n")
}

#[tokio::test]
async fn records_of_format_1_are_read() {
    let Site(_folder, root, name) = Site::new(1);
    let verified = results(&root, &name, MANIFEST, None).await.unwrap();
    let found: Vec<_> = verified.results.iter().map(|r| (r.level, r.ok, r.problems)).collect();
    assert_eq!(found, [(Level::Checksum, true, 0), (Level::Decrypt, false, 3)]);
    assert_eq!(verified.results[1].unpacked_bytes, Some(7000));
    let failed = verified.failed_try.unwrap();
    assert_eq!((failed.level, failed.why.as_str()), (Level::Pages, "no room"));
    let pin = pinned(&root, &name, Some(MANIFEST)).await.unwrap().unwrap();
    assert_eq!(pin.reason.as_deref(), Some("for the auditors"));
    assert_eq!(pin.since.unwrap().to_string(), "2026-11-27T08:00:00Z");
    let accepted = accepted(&root, &name, MANIFEST).await.unwrap().unwrap();
    assert_eq!(accepted.reason.as_deref(), Some("the archive tables have moved"));
}

/// What proves or accepts does not count if it may mean something else by now. What protects counts.
#[tokio::test]
async fn of_a_later_format_only_the_pin_counts() {
    let Site(_folder, root, name) = Site::new(2);
    let verified = results(&root, &name, MANIFEST, None).await.unwrap();
    assert_eq!((verified.results.len(), verified.failed_try), (0, None));
    assert!(accepted(&root, &name, MANIFEST).await.unwrap().is_none());
    assert!(pinned(&root, &name, Some(MANIFEST)).await.unwrap().is_some());
}
