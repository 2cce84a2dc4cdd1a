//! Everything in a bucket except the data: names of objects, manifests, records, claims.

use sha2::{Digest, Sha256};
use xb_backup::parsers::listing;
use xb_repo::archive::ended;
use xb_repo::archive::record::{Content, Record, front};
use xb_repo::archive::rollup::heads;
use xb_repo::archive::segment::SegmentHead;
use xb_repo::archive::stream::{Alive, End, StreamHead};
use xb_repo::claim::has_claim_phase;
use xb_repo::manifest::source_info::SourceInfo;
use xb_repo::manifest::{End as StreamEnd, FORMAT, Layout, Manifest, PackedFacts};
use xb_repo::names::BackupName;
use xb_repo::records::{is_pin, is_verification};

use crate::frames::streams;

/// Appends the line with the digest to any text, so that parsers read the text.
fn signed(text: &[u8]) -> Vec<u8> {
    let mut text = [text, b"\n"].concat();
    let digest: String = base16ct::lower::encode_string(&Sha256::digest(&text));
    text.extend(format!("sha256:{digest}\n").bytes());
    text
}

/// Any text as a manifest, with a matching digest: no panic, and what is accepted comes back.
pub(crate) fn manifest(data: &[u8]) {
    let _ = Manifest::decode(data);
    let Ok(stored) = Manifest::decode(&signed(data)) else { return };
    let _ = (stored.manifest.run_id(), stored.manifest.stream_id(), stored.manifest.is_sealed());
    let Ok(again) = stored.manifest.encode(None) else { return };
    assert_eq!(Manifest::decode(&again).expect("our own").manifest, stored.manifest);
}

/// Any text as a record or a claim: no panic, and nothing is both a verification and a pin.
pub(crate) fn records(data: &[u8]) {
    let _ = has_claim_phase(data);
    let text = signed(data);
    assert!(!is_verification(&text) || !is_pin(&text));
    archive_record::<StreamHead>(data);
    archive_record::<SegmentHead>(data);
    archive_record::<Alive>(data);
    archive_record::<End>(data);
    if let Some(len) = front(data) {
        assert!(data[len - 1] == b'\n');
    }
}

/// Any text as a record of the archive: no panic, and what is accepted comes back.
fn archive_record<T: Content + PartialEq + std::fmt::Debug>(data: &[u8]) {
    let _ = Record::<T>::decode(data);
    let Ok(record) = Record::<T>::decode(&signed(data)) else { return };
    let Ok(again) = Record::encode(&record.content, None) else { return };
    assert_eq!(Record::<T>::decode(&again).expect("our own").content, record.content);
}

/// The stream of the heads in seeds.
const STREAM: &str = "00000000000000000000000000000000";

/// Any text as the heads of a roll-up, its first byte their number: no panic, and what is accepted is heads of this
/// stream in their order, whose bytes are all of the text. The same text as records of streams that have ended: no panic,
/// and what is accepted comes back.
pub(crate) fn rollup(data: &[u8]) {
    if let Ok(streams) = ended::parse(data) {
        assert_eq!(ended::parse(&ended::encode(&streams)), Ok(streams));
    }
    let Some((last, text)) = data.split_first() else { return };
    let last = u64::from(*last);
    let _ = heads(text, STREAM, (1, last));
    let Ok(found) = heads(text, STREAM, (0, last)) else { return };
    assert_eq!(found.iter().map(|(_, len)| *len).sum::<u64>(), text.len() as u64);
    for (number, (head, _)) in (0..).zip(&found) {
        assert_eq!((head.content.number, &*head.content.stream), (number, STREAM));
    }
    assert_eq!(found.len() as u64, last + 1);
}

pub(crate) fn rollup_seeds() -> Vec<Vec<u8>> {
    let seeds = record_seeds();
    let is_head = |text: &&Vec<u8>| Record::<SegmentHead>::decode(&signed(text)).is_ok();
    let segment = seeds.iter().find(is_head).expect("a seed");
    let mut head = Record::<SegmentHead>::decode(&signed(segment)).expect("a head").content;
    let mut text = Vec::new();
    let mut seeds = vec![vec![0]];
    for number in 0..3 {
        head.number = number;
        let record = Record::encode(&head, None).expect("our own");
        head.previous = xb_repo::archive::record::digest(&record);
        text.extend_from_slice(&record);
        seeds.push([&[number as u8], &text[..]].concat());
    }
    seeds
}

/// Any listing of a name, one object a line with its size in front: no panic.
pub(crate) fn names(data: &[u8]) {
    let objects = data.split(|byte| *byte == b'\n').filter_map(|line| {
        let (size, key) = line.split_first_chunk()?;
        Some((std::str::from_utf8(key).ok()?.to_owned(), u64::from_le_bytes(*size)))
    });
    // A store whose sizes no sum can hold is refused when it is listed.
    let mut room = u64::MAX;
    let objects: Vec<_> = objects
        .map_while(|(key, size)| {
            room = room.checked_sub(size)?;
            Some((key, size))
        })
        .collect();
    for (key, _) in &objects {
        let _ = BackupName::new(key);
    }
    listing(&objects);
}

/// A manifest of a packed backup of `stream`, in one object.
pub(crate) fn sample(stream: &[u8]) -> Manifest {
    Manifest {
        format: FORMAT,
        layout: Layout::Packed,
        name: "n".into(),
        run: "00112233445566778899aabbccddeeff".into(),
        tool: "xbcloud-rs 0.1.0".into(),
        started: jiff::Timestamp::UNIX_EPOCH,
        finished: jiff::Timestamp::UNIX_EPOCH,
        objects: 1,
        stored_bytes: stream.len() as u64,
        stream_bytes: 9,
        files: 1,
        tables: None,
        compressed_files: None,
        without_tablespace: None,
        without_files: None,
        undated: None,
        packed: Some(PackedFacts {
            chunk_size: 1 << 20,
            root: "0".repeat(64),
            index_position: 0,
            index_len: 0,
            codecs: vec!["none".into()],
            stream: None,
            sealed: None,
        }),
        classic: None,
        object_digest: None,
        members: None,
        end: StreamEnd::LastFile { name: "xtrabackup_info".into() },
        server: Some("shop".into()),
        base: None,
        producer: None,
        source: SourceInfo::default(),
        mysql_clone: None,
        history: None,
        consolidated_from: Vec::new(),
    }
}

pub(crate) fn manifest_seeds() -> Vec<Vec<u8>> {
    let packed = sample(&streams()[0]);
    let sealed = r#"{"ways_in":["key file fd66d6c3d24e7c30"]}"#;
    let classic = Manifest { layout: Layout::Classic, packed: None, ..packed.clone() };
    let texts = [packed, classic].map(|manifest| {
        let text = String::from_utf8(manifest.encode(None).unwrap()).unwrap();
        text.split_once("\nsha256:").unwrap().0.to_owned()
    });
    let more = texts[0].replace(r#""codecs""#, &format!(r#""sealed":{sealed},"codecs""#));
    texts.into_iter().chain([more]).map(String::into_bytes).collect()
}

pub(crate) fn record_seeds() -> Vec<Vec<u8>> {
    let digest = "0".repeat(64);
    let verified = format!(
        r#"{{"type":"xbrs-verified","format":1,"name":"n","manifest":"{digest}","results":[{{"level":"pages","ok":true,"finished":"2026-11-21T00:00:00Z","tool":"t","problems":0,"pages":{{"files":1,"pages":2}}}}]}}"#
    );
    let pin = format!(
        r#"{{"type":"xbrs-pin","format":1,"name":"n","manifest":"{digest}","reason":"audit","since":"2026-11-21T00:00:00Z"}}"#
    );
    let claim = r#"{"run":"00112233445566778899aabbccddeeff","holder":"aa","state":"holding","host":"db","pid":7,"process_started":"boot 1","pid_namespace":"pid:[1]","time":"2026-11-21T00:00:00Z"}"#;
    let (stream, at) = ("0".repeat(32), r#"{"log":"bin.000001","offset":4}"#);
    let link = format!(r#""after":{{"stream":"{stream}","number":7,"head":"{digest}"}}"#);
    let head = format!(
        r#"{{"format":1,"stream":"{stream}","server":"shop","tool":"t","started":"2026-11-21T00:00:00Z","server_version":"10.11.19-MariaDB","server_id":1,"start":{at},"gtids":"0-1-7","begins":{{"kind":"gap",{link},"reason":"purged"}}}}"#
    );
    let segment = format!(
        r#"{{"format":1,"stream":"{stream}","number":0,"previous":"{digest}","from":{at},"to":{{"log":"bin.000001","offset":400}},"next_log":"bin.000002","description":"00","gtids_before":"","gtids_after":"0-1-1","transactions":1,"commits":{{"first":1,"last":1,"greatest":1}},"received":["2026-11-21T00:00:00Z","2026-11-21T00:00:01Z"],"last":{{"gtid":"0-1-1","from":{at},"to":{{"log":"bin.000001","offset":300}},"sha256":"{digest}"}},"barriers":[{{"kind":"incident","at":{at}}}],"body":{{"id":"{stream}","len":9,"sha256":"{digest}"}}}}"#
    );
    let alive = format!(
        r#"{{"format":1,"stream":"{stream}","segments":1,"head":"{digest}","position":{at},"covered_until":"2026-11-21T00:00:00Z","written":"2026-11-21T00:00:00Z"}}"#
    );
    let end = format!(r#"{{"format":1,"stream":"{stream}","segments":1,"head":"{digest}"}}"#);
    [verified, pin, claim.to_owned(), head, segment, alive, end].map(String::into_bytes).into()
}

pub(crate) fn name_seeds() -> Vec<Vec<u8>> {
    let keys = [
        "shop/orders.ibd.00000000000000000000",
        "shop/orders.ibd.00000000000000000001",
        "xtrabackup_info.zst.00000000000000000000",
        "00112233445566778899aabbccddeeff/000000001",
        "00112233445566778899aabbccddeeff/claim",
        "tue/00112233445566778899aabbccddeeff/sums",
        ".xb-catalog/tue",
        ".xb-catalog/@claims/tue/000001",
        "shop/orders.ibd.99999999999999999999",
        "notes.txt",
    ];
    let line = |key: &&str| [&7_u64.to_le_bytes()[..], key.as_bytes()].concat();
    let each: Vec<Vec<u8>> = keys.iter().map(line).collect();
    [vec![each.join(&b'\n')], each].concat()
}
