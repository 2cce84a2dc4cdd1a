//! Streams in files: they are read from several places at once, but nothing else may differ.

use std::fs;

use crate::support::{BINARY, Cage, all_vectors, extract, xbstream};
use xb_testkit::command::Cmd;
use xb_testkit::data::noise;
use xb_testkit::stream::StreamWriter;

#[test]
fn every_vector_does_the_same_from_a_file_as_from_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stream");
    for vector in all_vectors() {
        let name = &vector.name;
        fs::write(&path, &vector.bytes).unwrap();
        let (cage, piped) = (Cage::new(), Cage::new());
        let expected = extract(&piped.inner, &vector.bytes, 2);
        let ran = xbstream().args(["-x", "-p", "2", "-C"]).arg(&cage.inner).stdin_file(&path).run();
        assert_eq!(ran.code(), expected.code(), "{name}: {ran:?}");
        if let Some(plain) = &vector.plain {
            assert_eq!(&cage.files(), plain, "{name}");
        } else {
            cage.files();
            // The number of files that were complete before is a matter of timing.
            let first = |text: String| text.lines().next().map(str::to_owned);
            assert_eq!(first(ran.stderr_text()), first(expected.stderr_text()), "{name}");
        }
    }
}

#[test]
fn input_begins_and_ends_at_the_offset_of_the_descriptor() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stream");
    let (large, small) = (noise(1, 3 << 20), noise(2, 5000));
    let mut stream = StreamWriter::new(b"prelude".to_vec());
    stream.payload("db/large.ibd", 0, &large).payload("db/small", 0, &small);
    stream.end("db/small").end("db/large.ibd");
    fs::write(&path, stream.finish()).unwrap();
    let cage = Cage::new();
    // `dd` takes exactly the seven bytes in front; `wc` gets what is left.
    let script = r#"dd bs=7 count=1 of=/dev/null 2>&1 && "$0" -x -C "$1" && wc -c"#;
    let ran = Cmd::new("sh").args(["-c", script, BINARY]).arg(&cage.inner).stdin_file(&path).run();
    let ran = ran.expect(0);
    assert_eq!(ran.stdout_text().lines().last().map(str::trim), Some("0"), "{ran:?}");
    assert_eq!(cage.files().len(), 2);
    assert!(fs::read(cage.inner.join("db/large.ibd")).unwrap() == large);
    assert!(fs::read(cage.inner.join("db/small")).unwrap() == small);
    // From the beginning it is not a stream.
    let other = Cage::new();
    let ran = xbstream().args(["-x", "-C"]).arg(&other.inner).stdin_file(&path).run().expect(1);
    assert!(ran.stderr_text().contains("found \"prelude"), "{ran:?}");
}
