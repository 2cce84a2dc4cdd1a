//! Roll-ups of heads: one that another program made, and what is done to it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

use std::path::PathBuf;

use proptest::prelude::*;
use xb_binlog::GtidSequence;
use xb_encryptor::{DataKey, KeyBytes, Keys, KeysObject, MacKey};
use xb_repo::archive::authority::Keyless;
use xb_repo::archive::ended::{self, EndedStream};
use xb_repo::archive::listing::{streams, streams_by_records};
use xb_repo::archive::names::{floor_name, segment_name};
use xb_repo::archive::record::{FORMAT, Record};
use xb_repo::archive::rollup::{LARGE, Span, decode, heads};
use xb_repo::archive::stream::{Floor, StoredPosition, StreamHead, StreamOrigin};
use xb_repo::root::Root;
use xb_uploader::{Location, Policy, StorePlace, StoreSettings};

const STREAM: &str = "000102030405060708090a0b0c0d0e0f";
const SPAN: Span = (64, 66);

fn fixture(name: &str) -> Vec<u8> {
    let fixtures = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    std::fs::read(fixtures.join(name)).unwrap()
}

fn object() -> Vec<u8> {
    fixture("archive/roll-up-64-66")
}

/// The bytes 0 to 31.
fn key() -> DataKey {
    let slots = KeysObject::parse(&fixture("seal/keys")).unwrap();
    let key_file = KeyBytes::new(b"0123456789abcdefghijklmnopqrstuv").unwrap();
    Keys { key: Some(key_file), ..Keys::default() }.open(&slots, 1 << 30).unwrap().unwrap()
}

fn mac() -> MacKey {
    key().archive_mac(&std::array::from_fn(|n| u8::try_from(n).unwrap()))
}

/// The text in it: its one frame is not compressed.
fn text() -> Vec<u8> {
    let object = object();
    let length = u32::from_le_bytes(object[136..140].try_into().unwrap()) as usize;
    object[160..160 + length].to_vec()
}

#[test]
fn a_roll_up_of_another_program_is_read() {
    let found = decode(object(), STREAM, SPAN).unwrap();
    let (mac, other) = (mac(), key().archive_mac(&[7; 16]));
    assert_eq!(found.len(), 3);
    for (number, (head, _)) in (64..).zip(&found) {
        assert!(head.authenticate(&mac).is_ok() && head.authenticate(&other).is_err());
        let content = &head.content;
        assert_eq!((content.number, content.body.len), (number, 1000 + number));
        assert_eq!(content.gtids_after.as_deref(), Some(&*format!("0-1-{}", number + 1)));
    }
    let lengths: u64 = found.iter().map(|(_, len)| *len).sum();
    assert_eq!(lengths, text().len() as u64);
}

#[test]
fn a_roll_up_of_other_heads_is_refused() {
    let (object, text) = (object(), text());
    assert!(heads(&text, STREAM, SPAN).is_ok());
    let other = "ff".repeat(16);
    for (stream, span) in [
        (STREAM, (64, 65)),
        (STREAM, (64, 67)),
        (STREAM, (65, 67)),
        (STREAM, (63, 65)),
        (STREAM, (66, 64)),
        (STREAM, (0, u64::MAX)),
        (STREAM, (64, 64 + LARGE)),
        (&*other, SPAN),
    ] {
        assert!(heads(&text, stream, span).is_err(), "{stream} {span:?}");
        assert!(decode(object.clone(), stream, span).is_err(), "{stream} {span:?}");
    }
    let ends: Vec<usize> =
        text.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(at, _)| at + 1).collect();
    let each = [&text[..ends[2]], &text[ends[2]..ends[5]], &text[ends[5]..]];
    for (wrong, what) in [
        ([each[1], each[0], each[2]].concat(), "another segment"),
        ([each[0], each[2]].concat(), "another segment"),
        ([&text[..], each[2]].concat(), "follows its heads"),
        ([&text[..], b"\n"].concat(), "follows its heads"),
        (Vec::new(), "cut"),
    ] {
        let error = heads(&wrong, STREAM, SPAN).unwrap_err();
        assert!(error.contains(what), "{error}");
    }
}

/// The heads of the first one are of a version that did not know what transactions do; those of the second say it.
#[test]
fn heads_say_what_transactions_do_or_nothing() {
    for (head, _) in decode(object(), STREAM, SPAN).unwrap() {
        assert_eq!((&head.content.domains, head.content.stretch()), (&None, None));
    }
    let found = decode(fixture("archive/roll-up-67-69"), STREAM, (67, 69)).unwrap();
    assert_eq!(found.len(), 3);
    for (number, (head, _)) in (67..).zip(&found) {
        assert!(head.authenticate(&mac()).is_ok());
        let stretch = head.content.stretch().unwrap();
        let (domain, found) = stretch.domains().next().unwrap();
        assert_eq!((domain, found.transactions), (&GtidSequence::Domain(0), 1));
        assert_eq!(found.last.to_string(), format!("0-1-{}", number + 1));
        let form = if number % 2 == 1 { "rows" } else { "statements_and_partial_rows" };
        assert_eq!(found.forms().collect::<Vec<_>>(), [(form, 1)]);
    }
}

fn ended_streams() -> Vec<EndedStream> {
    ended::decode(fixture("archive/ended-streams")).unwrap()
}

#[test]
fn ended_streams_of_another_program_are_read() {
    let found = ended_streams();
    let [sealed, empty] = &found[..] else { panic!("{found:?}") };
    assert_eq!((&*sealed.id.to_string(), sealed.keys.is_empty()), (STREAM, false));
    assert_eq!(heads(&sealed.heads, STREAM, (0, 2)).unwrap().len(), 3);
    assert!(empty.keys.is_empty() && empty.heads.is_empty());
    assert_eq!(ended::parse(&ended::encode(&found)), Ok(found));
}

/// A `prune` that was killed leaves segments before its floor, whose heads the roll-up has, too.
#[tokio::test]
async fn what_a_killed_prune_has_left_does_not_count_because_a_roll_up_has_its_heads() {
    let place = tempfile::tempdir().unwrap();
    let sealed = ended_streams().swap_remove(0);
    let folder = place.path().join(".xb-binlog/shop").join(STREAM);
    let write = |name: &str, bytes: &[u8]| {
        let file = folder.join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, bytes).unwrap();
    };
    let EndedStream { head, keys, alive, end, .. } = &sealed;
    for (name, bytes) in [("head", head), ("keys", keys), ("alive", alive), ("end", end)] {
        write(name, bytes);
    }
    write(&format!("../.streams/{STREAM}"), &fixture("archive/ended-streams"));
    // Segment 0 is removed.
    let mut begin = 0;
    let mut floor = None;
    for (number, (head, len)) in (0..).zip(heads(&sealed.heads, STREAM, (0, 2)).unwrap()) {
        let end = begin + usize::try_from(len).unwrap();
        let body = vec![0; usize::try_from(head.content.body.len).unwrap()];
        if number > 0 {
            write(&segment_name(number), &[&sealed.heads[begin..end], &body].concat());
        }
        begin = end;
        floor = Some(Floor {
            format: FORMAT,
            stream: STREAM.to_owned(),
            number,
            head: head.content.previous.clone(),
            at: head.content.from.clone(),
        });
    }
    write(&floor_name(2), &Record::encode(&floor.unwrap(), None).unwrap());
    let path = place.path().to_str().unwrap().trim_start_matches('/').to_owned();
    let location = Location { place: StorePlace::Local, path };
    let root = Root::open(&location, &StoreSettings::default(), Policy::default(), true).unwrap();
    for found in
        [streams(&root, "shop", &Keyless).await, streams_by_records(&root, "shop", &Keyless).await]
    {
        let found = found.unwrap().swap_remove(0);
        assert_eq!(found.problems, []);
        let segments: Vec<u64> = found.stream.unwrap().segments.into_keys().collect();
        assert_eq!((segments, found.left.into_keys().collect()), (vec![2], vec![1]));
    }
}

#[test]
fn ended_streams_with_records_of_others_are_refused() {
    let wrong = |change: fn(&mut [EndedStream])| {
        let mut streams = ended_streams();
        change(&mut streams);
        ended::parse(&ended::encode(&streams)).unwrap_err()
    };
    for (error, what) in [
        (wrong(|of| of[0].end = of[1].end.clone()), "another stream"),
        (wrong(|of| of[0].id = of[1].id), "another stream"),
        (wrong(|of| of[0].head.clear()), "head"),
        (wrong(|of| of[0].alive.clear()), "alive"),
        (wrong(|of| of[0].keys.truncate(9)), "keys"),
        (wrong(|of| of[1].heads = of[0].heads.clone()), "heads of its segments"),
        (wrong(|of| of[0].heads.truncate(300)), "head 0"),
    ] {
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn a_stream_that_continues_another_servers_needs_a_later_reader() {
    let bytes = fixture("archive/head-of-another");
    let head = Record::<StreamHead>::decode(&bytes).unwrap();
    assert!(head.authenticate(&mac()).is_ok());
    let content = &head.content;
    assert_eq!((content.format, content.needed_format()), (2, 2));
    assert_eq!(content.origin().to_string(), "node node2 (server_id 2)");
    let at = |log: &str, offset| StoredPosition { log: log.into(), offset };
    let end = at("bin.000001", 7000);
    assert!(
        matches!(&content.begins, StreamOrigin::Continues { at: Some(found), .. } if *found == end)
    );
    let repeats = content.repeats().unwrap();
    assert_eq!(repeats.gtids.to_string(), "0-1-70,3-1-5");
    assert_eq!(repeats.until.to_string(), "bin.000008:900");
    // What such a stream continues, and what it repeats, has to make sense.
    let wrong = |change: fn(&mut StreamHead)| {
        let mut content = content.clone();
        change(&mut content);
        let bytes = Record::encode(&content, None).unwrap();
        Record::<StreamHead>::decode(&bytes).unwrap_err().to_string()
    };
    assert!(wrong(|head| head.format = 3).contains("update this program"));
    let text = wrong(|head| head.repeats.as_mut().unwrap().gtids = "0-1".to_owned());
    assert!(text.contains("repeated"), "{text}");
    let text = wrong(|head| head.repeats.as_mut().unwrap().until.log = "a/b".into());
    assert!(text.contains("repeated"), "{text}");
    let text = wrong(|head| {
        if let StreamOrigin::Continues { at: Some(at), .. } = &mut head.begins {
            at.log = "../x".into();
        }
    });
    assert!(text.contains("server before"), "{text}");
    // Without another server, an earlier reader does.
    let mut plain = content.clone();
    plain.repeats = None;
    if let StreamOrigin::Continues { at, .. } = &mut plain.begins {
        *at = None;
    }
    assert_eq!(plain.needed_format(), 1);
}

proptest! {
    #[test]
    fn no_flipped_bit_and_no_cut_of_ended_streams_goes_unnoticed(
        at in any::<prop::sample::Index>(),
        bit in 0..8,
    ) {
        let streams = ended_streams();
        let mut text = ended::encode(&streams);
        let end = at.index(text.len());
        // Whole streams may be missing: whoever lists the archive reads their own records.
        let cut = ended::parse(&text[..end]);
        prop_assert!(cut.is_err() || cut.is_ok_and(|left| left[..] == streams[..left.len()]));
        text[end] ^= 1_u8 << bit;
        // Only a reader with the key notices another HMAC.
        let line = text[..end].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        prop_assert!(ended::parse(&text).is_err() || text[line..].starts_with(b"hmac-"));
    }

    #[test]
    fn no_flipped_bit_and_no_cut_goes_unnoticed(at in any::<prop::sample::Index>(), bit in 0..8) {
        let (mut object, mut text) = (object(), text());
        let end = at.index(object.len());
        prop_assert!(decode(object[..end].to_vec(), STREAM, SPAN).is_err());
        object[end] ^= 1_u8 << bit;
        prop_assert!(decode(object, STREAM, SPAN).is_err());
        let end = at.index(text.len());
        // A head without its last line is one without a key; only a reader with the key notices that it is missing.
        let cut = heads(&text[..end], STREAM, SPAN);
        prop_assert!(cut.is_err() || cut.unwrap().iter().any(|(head, _)| !head.is_signed()));
        text[end] ^= 1_u8 << bit;
        let mac = mac();
        let altered = heads(&text, STREAM, SPAN);
        let is_noticed = altered
            .map_or(true, |heads| heads.iter().any(|(head, _)| head.authenticate(&mac).is_err()));
        prop_assert!(is_noticed);
    }
}
