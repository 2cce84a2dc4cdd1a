//! Manifests of format 1 as they were and as they are: today's program reads both, and a program of that
//! time reads today's.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

use serde::Deserialize;
use xb_repo::manifest::history::HighestNumbers;
use xb_repo::manifest::{Layout, Manifest};

const OLD: &[u8] = include_bytes!("../../../fixtures/manifest/packed-2026-11-23");
const NEW: &[u8] = include_bytes!("../../../fixtures/manifest/packed-2026-11-26");
const HIGHEST: &[u8] = include_bytes!("../../../fixtures/manifest/packed-2026-11-28");
const WITHOUT_FILES: &[u8] = include_bytes!("../../../fixtures/manifest/packed-2026-11-29");
const CONSOLIDATED: &[u8] = include_bytes!("../../../fixtures/manifest/consolidated-2026-11-26");
const CLASSIC: &[u8] = include_bytes!("../../../fixtures/manifest/classic-2026-11-23");

/// The one before, signed by OpenSSL with the key of RFC 8032, section 7.1, test 2.
const SIGNED: &[u8] = include_bytes!("../../../fixtures/manifest/signed-2026-11-27");
const SIGNER: &str = "ed25519:3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c";

#[test]
fn a_signed_manifest_is_read() {
    let read = Manifest::decode(SIGNED).unwrap();
    assert_eq!(read.manifest, Manifest::decode(NEW).unwrap().manifest);
    let signer = SIGNER.parse().unwrap();
    assert_eq!(read.signer(), Some(signer));
    read.refuse_others_than(&[signer]).unwrap();
    assert!(Manifest::decode(NEW).unwrap().refuse_others_than(&[signer]).is_err());
}

/// The fields of 23 November 2026, with their types.
#[derive(Debug, PartialEq, Deserialize)]
struct EarlierManifest {
    format: u32,
    layout: String,
    name: String,
    run: String,
    tool: String,
    started: String,
    finished: String,
    objects: u64,
    stored_bytes: u64,
    stream_bytes: u64,
    files: u64,
    packed: Option<Packed>,
    classic: Option<Classic>,
    object_digest: Option<String>,
    members: Option<Members>,
    end: End,
    server: Option<String>,
    base: Option<Base>,
    producer: Option<Producer>,
    #[serde(default)]
    source: Source,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Packed {
    chunk_size: u64,
    root: String,
    index_position: u64,
    index_len: u64,
    codecs: Vec<String>,
    stream: Option<String>,
    sealed: Option<Sealed>,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Sealed {
    #[serde(rename = "ways_in")]
    key_slots: Vec<String>,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Classic {
    chunk_size: u64,
    short_objects: u64,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Members {
    codec: Option<String>,
    cipher: Option<String>,
}

#[derive(Debug, PartialEq, Deserialize)]
struct End {
    rule: String,
    name: Option<String>,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Base {
    name: String,
    run: String,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Producer {
    program: String,
    exit: i32,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
struct Source {
    tool_name: Option<String>,
    tool_version: Option<String>,
    server_version: Option<String>,
    backup_type: Option<String>,
    from_lsn: Option<u64>,
    to_lsn: Option<u64>,
    last_lsn: Option<u64>,
    binlog_pos: Option<String>,
    galera: Option<String>,
}

/// The content that a program of that time reads.
fn of_that_time(stored: &[u8]) -> EarlierManifest {
    let end = stored.windows(8).position(|at| at == b"\nsha256:").unwrap();
    serde_json::from_slice(&stored[..end]).unwrap()
}

#[test]
fn the_highest_numbers_of_tables_are_read_and_passed_over_by_a_program_of_that_time() {
    let read = |stored| Manifest::decode(stored).unwrap().manifest;
    let (mut now, before) = (read(HIGHEST), read(NEW));
    let history = now.history.as_mut().unwrap();
    assert!(!history.rules_out_imports(before.history.as_ref()));
    assert_eq!(history.highest.take(), Some(HighestNumbers { table: 4711, space: 815 }));
    assert_eq!(now, before);
    assert_eq!(of_that_time(HIGHEST), of_that_time(NEW));
}

#[test]
fn tables_without_files_are_read_and_passed_over_by_a_program_of_that_time() {
    let read = |stored| Manifest::decode(stored).unwrap().manifest;
    let (mut now, before) = (read(WITHOUT_FILES), read(HIGHEST));
    assert_eq!(now.without_files.take().unwrap().to_string(), "1 table: shop/notes");
    assert_eq!(now, before);
    assert_eq!(of_that_time(WITHOUT_FILES), of_that_time(HIGHEST));
}

#[test]
fn a_manifest_without_later_fields_is_read() {
    let manifest = Manifest::decode(OLD).unwrap().manifest;
    assert_eq!((manifest.layout, manifest.name.as_str()), (Layout::Packed, "monday"));
    assert!(manifest.is_sealed() && manifest.is_incremental());
    assert_eq!(
        (manifest.tables, manifest.history, manifest.source.redo_start_lsn),
        (None, None, None)
    );
    assert_eq!((manifest.without_tablespace, manifest.compressed_files), (None, None));
    let manifest = Manifest::decode(CLASSIC).unwrap().manifest;
    assert_eq!(manifest.members.unwrap().cipher.as_deref(), Some("AES256"));
}

#[test]
fn a_program_of_that_time_reads_what_it_knows_in_later_manifests() {
    let (old, mut new) = (of_that_time(OLD), of_that_time(NEW));
    assert_eq!(std::mem::replace(&mut new.name, "monday".to_owned()), "tuesday");
    assert_eq!(new, old);
}

/// A program of that time takes it for a full backup of a server, at the time and the positions of its data.
#[test]
fn a_consolidated_backup_has_the_facts_of_its_last_link() {
    let (last, full) = (Manifest::decode(NEW).unwrap(), Manifest::decode(CONSOLIDATED).unwrap());
    assert!(full.manifest.has_the_facts_of(&last.manifest) && !full.manifest.is_incremental());
    assert_eq!(full.manifest.stands_for(), Some(&last.merged_link()));
    let (last, full) = (of_that_time(NEW), of_that_time(CONSOLIDATED));
    assert_eq!((full.base, full.finished), (None, last.finished));
    assert_eq!((full.source.from_lsn, full.source.to_lsn), (Some(0), last.source.to_lsn));
    let incremental = |text: &[u8]| {
        let text = String::from_utf8_lossy(text).replace("\"from_lsn\": 0", "\"from_lsn\": 7");
        Manifest::decode(checked(&text).as_bytes())
    };
    assert!(incremental(CONSOLIDATED).is_err(), "it is full");
}

/// The text with a check line that fits.
fn checked(stored: &str) -> String {
    use sha2::Digest as _;
    let text = &stored[..stored.rfind("\nsha256:").unwrap() + 1];
    let digest: String = sha2::Sha256::digest(text).iter().map(|b| format!("{b:02x}")).collect();
    format!("{text}sha256:{digest}\n")
}

/// Names, order and form of the stored fields stay, and nothing is lost between reading and writing.
#[test]
fn a_manifest_is_written_as_it_was_read() {
    for stored in [OLD, NEW, CONSOLIDATED, CLASSIC] {
        let manifest = Manifest::decode(stored).unwrap().manifest;
        let written = manifest.encode(None).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), String::from_utf8_lossy(stored));
    }
}
