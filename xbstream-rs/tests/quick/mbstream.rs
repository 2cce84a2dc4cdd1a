//! Streams in both directions with Debian's mbstream.

use std::fs;
use std::path::Path;

use crate::support::{extract, linked_as, xbstream};
use xb_testkit::command::Cmd;
use xb_testkit::data::mixed;
use xb_testkit::files::assert_same_tree;
use xb_testkit::stream::StreamWriter;

const TEN: usize = 10 << 20;

fn mbstream() -> Cmd {
    Cmd::new(xb_testkit::tools::find("mbstream"))
}

/// Creates files around the chunk size of the stock tools, with unusual names.
fn sample(dir: &Path) -> Vec<&'static str> {
    let files = [
        ("empty", 0),
        ("one", 1),
        ("less", TEN - 1),
        ("ten", TEN),
        ("more", TEN + 1),
        ("twice", 2 * TEN),
        ("db/table one.ibd", 70_001),
        ("db/t\u{e9}l\u{e9}.frm", 513),
        ("db/.hidden", 3),
        ("db/big.ibd", 3 * TEN + 12_345),
    ];
    fs::create_dir(dir.join("db")).unwrap();
    for (seed, (name, len)) in files.into_iter().enumerate() {
        fs::write(dir.join(name), mixed(seed as u64, len)).unwrap();
    }
    files.map(|(name, _)| name).into()
}

#[test]
fn our_stream_equals_that_of_mbstream_byte_for_byte() {
    let dir = tempfile::tempdir().unwrap();
    let names = sample(dir.path());
    let theirs = mbstream().arg("-c").args(&names).cwd(dir.path()).run().expect(0).stdout;
    let ours = xbstream().arg("-c").args(&names).cwd(dir.path()).run().expect(0).stdout;
    assert!(ours == theirs, "{} and {} bytes", ours.len(), theirs.len());
    let ours = xbstream().arg("-C").arg(dir.path()).arg("-c").args(&names).run().expect(0).stdout;
    assert!(ours == theirs, "with -C: {} and {} bytes", ours.len(), theirs.len());
}

#[test]
fn mbstream_reads_our_stream() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let names = sample(from.path());
    let stream = xbstream().arg("-c").args(&names).cwd(from.path()).run().expect(0).stdout;
    let _ = mbstream().args(["-x", "-C"]).arg(to.path()).stdin_bytes(stream).run().expect(0);
    assert_same_tree(from.path(), to.path());
}

#[test]
fn we_read_the_stream_of_mbstream() {
    let from = tempfile::tempdir().unwrap();
    let names = sample(from.path());
    let stream = mbstream().arg("-c").args(&names).cwd(from.path()).run().expect(0).stdout;
    for threads in [1, 3] {
        let to = tempfile::tempdir().unwrap();
        let _ = extract(to.path(), &stream, threads).expect(0);
        assert_same_tree(from.path(), to.path());
    }
}

/// As mariadb-backup writes it when a MyISAM table is renamed after its files were copied.
#[test]
fn a_rename_onto_a_file_of_the_stream_replaces_it_as_with_mbstream() {
    let mut writer = StreamWriter::new(Vec::new());
    writer.file("db/m1.MYD", &mixed(1, 70_001), 10_000).file("db/m9.MYD", &mixed(2, 999), 500);
    writer.rename("db/m1.MYD", "db/m9.MYD").file("db/m1.MYI", &mixed(3, 5), 5);
    let stream = writer.finish();
    let to = tempfile::tempdir().unwrap();
    let _ = mbstream().args(["-x", "-C"]).arg(to.path()).stdin_bytes(&stream[..]).run().expect(0);
    for threads in [1, 3] {
        let ours = tempfile::tempdir().unwrap();
        let _ = extract(ours.path(), &stream, threads).expect(0);
        assert_same_tree(to.path(), ours.path());
    }
    let listed = xbstream().arg("--list").stdin_bytes(&stream[..]).run().expect(0).stdout;
    let listed = String::from_utf8(listed).unwrap();
    assert_eq!(listed.matches("db/m9.MYD").count(), 1, "{listed}");
}

#[test]
fn a_link_named_mbstream_takes_its_place() {
    let (from, bin) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let names = sample(from.path());
    for arguments in [&["-c"][..], &["--create", "--parallel=2"], &["-c", "-p", "4", "-v"]] {
        let theirs = mbstream().args(arguments).args(&names).cwd(from.path()).run().expect(0);
        let ours = linked_as("mbstream", &bin)
            .args(arguments)
            .args(&names)
            .cwd(from.path())
            .run()
            .expect(0);
        assert!(ours.stdout == theirs.stdout, "{arguments:?}");
        // With -v each name is on its own line; later mbstreams print a timestamp before it.
        let (ours, theirs) = (ours.stderr_text(), theirs.stderr_text());
        assert_eq!(ours.lines().count(), theirs.lines().count(), "{arguments:?}");
        assert!(
            ours.lines().zip(theirs.lines()).all(|(our, their)| their.ends_with(our)),
            "{theirs}"
        );
    }
}
