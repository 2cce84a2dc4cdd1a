//! Random streams, random cuts, random damage.

use std::collections::BTreeMap;

use crate::common::{Content, Steps, extract, tree};
use proptest::collection::vec;
use proptest::prelude::*;
use sha2::{Digest, Sha256};
use xb_reader::{ChunkWriter, DecodeError, Decoder, Dialect, Event, Limits, MapEntry};

/// One step of one file: a hole, then bytes.
#[derive(Debug, Clone)]
struct Extent {
    skip: u16,
    bytes: Vec<u8>,
}

fn extents() -> impl Strategy<Value = Vec<Extent>> {
    let extent = (prop_oneof![3 => Just(0_u16), 1 => 1_u16..9000], vec(any::<u8>(), 0..300))
        .prop_map(|(skip, bytes)| Extent { skip, bytes });
    vec(extent, 0..6)
}

/// Writes files `f0`, `d/f1`, ... with their chunks interleaved as in `order`. Returns their
/// content.
fn write_stream(
    files: &[Vec<Extent>],
    order: &[prop::sample::Index],
) -> (Vec<u8>, BTreeMap<String, Content>) {
    let mut writer = ChunkWriter::new(Vec::new());
    let mut plain: Vec<Vec<u8>> = vec![Vec::new(); files.len()];
    let mut at = vec![0; files.len()];
    let name = |n: usize| if n.is_multiple_of(2) { format!("f{n}") } else { format!("d/f{n}") };
    let mut left: Vec<usize> = (0..files.len()).collect();
    for index in order.iter().cycle() {
        if left.is_empty() {
            break;
        }
        let pick = index.index(left.len());
        let n = left[pick];
        let Some(extent) = files[n].get(at[n]) else {
            writer.end(name(n)).unwrap();
            left.swap_remove(pick);
            continue;
        };
        at[n] += 1;
        let offset = plain[n].len() as u64;
        if extent.skip == 0 {
            writer.payload(name(n), offset, &extent.bytes).unwrap();
        } else {
            // The bytes are split into two entries, the second without a hole, unless there is only
            // one byte.
            let half = extent.bytes.len() / 2;
            let lens = [half, extent.bytes.len() - half];
            let entry = |skip, len: usize| MapEntry { skip, len: u32::try_from(len).unwrap() };
            let mut map = vec![entry(extent.skip.into(), lens[0]), entry(0, lens[1])];
            if half == 0 {
                map.remove(0);
                map[0].skip = extent.skip.into();
            }
            writer.sparse(name(n), offset, &map, &extent.bytes).unwrap();
            let begin = plain[n].len() + usize::from(extent.skip);
            plain[n].resize(begin, 0);
        }
        plain[n].extend_from_slice(&extent.bytes);
    }
    let contents = plain.iter().enumerate().map(|(n, bytes)| {
        let sha256 = Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect();
        (name(n), Content { size: bytes.len() as u64, sha256 })
    });
    (writer.finish().unwrap(), contents.collect())
}

fn streams() -> impl Strategy<Value = (Vec<u8>, BTreeMap<String, Content>)> {
    (vec(extents(), 1..5), vec(any::<prop::sample::Index>(), 1..20))
        .prop_map(|(files, order)| write_stream(&files, &order))
}

/// All events of a decoder, with adjacent pieces of payload joined.
fn decode(dialect: Dialect, pieces: &[&[u8]]) -> (Vec<String>, Option<DecodeError>) {
    let mut decoder = Decoder::new(dialect, Limits::default());
    let mut said = Vec::new();
    let mut data: Vec<u8> = Vec::new();
    let mut say = |event: Event<'_>| match event {
        Event::Data(piece) => {
            assert!(!piece.is_empty());
            data.extend_from_slice(piece);
        }
        Event::Head(head) => said.push(format!("{head:?}")),
        Event::ChunkEnd => {
            said.push(format!("{data:?}"));
            data.clear();
        }
    };
    for piece in pieces {
        let mut input = *piece;
        loop {
            match decoder.next(&mut input) {
                Ok(Some(event)) => say(event),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(decoder.next(&mut input), Err(error.clone()), "an error stays");
                    return (said, Some(error));
                }
            }
        }
        assert!(input.is_empty());
    }
    loop {
        match decoder.finish() {
            Ok(Some(event)) => say(event),
            Ok(None) => break,
            Err(error) => return (said, Some(error)),
        }
    }
    assert_eq!(decoder.position(), pieces.iter().map(|piece| piece.len() as u64).sum::<u64>());
    (said, None)
}

proptest! {
    // Failures that are found become named tests, not seed files.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn written_streams_come_back((stream, plain) in streams(), step in prop_oneof![Just(1_usize), 2_usize..500]) {
        let dir = tempfile::tempdir().unwrap();
        extract(Steps { bytes: &stream, step }, dir.path()).unwrap();
        prop_assert_eq!(tree(dir.path()), plain);
    }

    #[test]
    fn the_cut_of_the_input_does_not_matter((stream, _) in streams(), cuts in vec(any::<prop::sample::Index>(), 0..10)) {
        let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        at.extend([0, stream.len()]);
        at.sort_unstable();
        let pieces: Vec<&[u8]> = at.windows(2).map(|w| &stream[w[0]..w[1]]).collect();
        let single: Vec<&[u8]> = stream.chunks(1).collect();
        let whole = decode(Dialect::Percona, &[&stream]);
        prop_assert_eq!(&whole.1, &None);
        prop_assert_eq!(&decode(Dialect::Percona, &pieces), &whole);
        prop_assert_eq!(&decode(Dialect::Percona, &single), &whole);
        prop_assert_eq!(&decode(Dialect::Auto, &single), &whole);
    }

    #[test]
    fn arbitrary_bytes_are_harmless(bytes in vec(any::<u8>(), 0..600), begin in 0_usize..=14, flags in any::<u8>()) {
        // Mostly with a valid beginning: otherwise only the check of the magic would be tested.
        let kinds = [b'P', b'E', b'S', b'R', b'D', b'Q'];
        let mut stream = b"XBSTCK01".to_vec();
        stream.extend_from_slice(&[flags, kinds[begin % kinds.len()], 3, 0, 0, 0, b'a', b'/', b'b']);
        stream.truncate(begin * 2);
        stream.extend_from_slice(&bytes);
        let single: Vec<&[u8]> = stream.chunks(1).collect();
        for dialect in [Dialect::Auto, Dialect::Percona, Dialect::MariaDb] {
            prop_assert_eq!(decode(dialect, &single), decode(dialect, &[&stream]));
        }
    }

    #[test]
    fn damage_never_leaves_the_directory(
        (stream, _) in streams(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        path in prop_oneof![Just("../x"), Just("/tmp/x"), Just("f0\0"), Just("d/..")],
    ) {
        let mut stream = stream;
        for (at, byte) in damage {
            let at = at.index(stream.len());
            stream[at] = byte;
        }
        // Then a name that tries to escape, in case the damage did not end the stream before.
        stream.extend_from_slice(b"XBSTCK01\0E");
        stream.extend_from_slice(&u32::try_from(path.len()).unwrap().to_le_bytes());
        stream.extend_from_slice(path.as_bytes());
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("target");
        std::fs::create_dir(&target).unwrap();
        prop_assert!(extract(&stream[..], &target).is_err());
        prop_assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        prop_assert!(!target.join(".xb-partial").exists());
    }
}
