//! More files than the process can open at a time.

use std::collections::BTreeMap;

use crate::support::{BINARY, Cage};
use xb_testkit::command::{Cmd, Ran};
use xb_testkit::data::noise;
use xb_testkit::stream::StreamWriter;

/// Extracts with at most 256 open files, soft and hard.
fn extract(cage: &Cage, stream: Vec<u8>, options: &[&str]) -> Ran {
    Cmd::new("sh")
        .args(["-c", "ulimit -n 256 && exec \"$0\" \"$@\"", BINARY, "-x", "-p", "3", "-C"])
        .arg(&cage.inner)
        .args(options)
        .stdin_bytes(stream)
        .run()
}

#[test]
fn many_small_files_need_few_descriptors() {
    let mut stream = StreamWriter::new(Vec::new());
    let name = |n: u32| format!("d{}/t{n}", n % 7);
    for n in 0..5000 {
        stream.payload(&name(n), 0, &n.to_le_bytes()).end(&name(n));
    }
    let stream = stream.finish();
    for options in [&["--sync=none"][..], &["--sync=none", "--decompress"]] {
        let cage = Cage::new();
        let _ = extract(&cage, stream.clone(), options).expect(0);
        assert_eq!(cage.files().len(), 5000);
        let last = std::fs::read(cage.inner.join(name(4999))).unwrap();
        assert_eq!(last, 4999_u32.to_le_bytes());
    }
}

#[test]
fn many_files_can_be_mixed() {
    let files: BTreeMap<String, Vec<u8>> =
        (0..2000).map(|n| (format!("t{n}.ibd"), noise(n, 3000))).collect();
    let mut stream = StreamWriter::new(Vec::new());
    for at in (0..3000).step_by(1000) {
        for (name, content) in &files {
            stream.payload(name, at as u64, &content[at..at + 1000]);
        }
    }
    for name in files.keys() {
        stream.end(name);
    }
    let stream = stream.finish();
    for options in [&["--sync=none"][..], &["--sync=file"], &["--sync=none", "--decompress"]] {
        let cage = Cage::new();
        let _ = extract(&cage, stream.clone(), options).expect(0);
        for (name, content) in &files {
            assert!(std::fs::read(cage.inner.join(name)).unwrap() == *content, "{name}");
        }
        assert_eq!(cage.files().len(), files.len());
    }
}
