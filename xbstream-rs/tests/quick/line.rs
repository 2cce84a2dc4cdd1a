//! The command line: exit codes, names, messages.

use std::fs;

use crate::support::{Cage, extract, linked_as, xbstream};
use xb_testkit::stream::StreamWriter;
use xb_testkit::vectors;

fn one_file(name: &str) -> Vec<u8> {
    let mut stream = StreamWriter::new(Vec::new());
    stream.payload(name, 0, b"abc").end(name);
    stream.finish()
}

#[test]
fn usage_errors_have_a_code_of_their_own_but_not_as_a_stock_tool() {
    let bin = tempfile::tempdir().unwrap();
    for arguments in [
        &["--bogus"][..],
        &[],
        &["-c", "-x"],
        &["-c"],
        &["-t", "--fifo-dir=/f"],
        &["-x", "--encrypt-key=0123456789abcdef"],
        &["-x", "--parallel=many"],
        &["-x", "--dialect=oracle"],
    ] {
        let ran = xbstream().args(arguments).run().expect(2);
        assert!(!ran.stderr_text().contains("0123456789abcdef"), "{ran:?}");
        let _ = linked_as("xbstream", &bin).args(arguments).run().expect(1);
        let _ = linked_as("mbstream", &bin).args(arguments).run().expect(1);
    }
    let _ = xbstream().arg("-t").stdin_bytes(one_file("f")).run().expect(0);
    let _ = xbstream().arg("-t").stdin_bytes("nonsense").run().expect(1);
}

#[test]
fn a_list_without_standard_output_is_no_success() {
    let folder = tempfile::tempdir().unwrap();
    let stream = folder.path().join("stream");
    fs::write(&stream, one_file("a")).unwrap();
    let list = |redirect: &str| {
        let binary = env!("CARGO_BIN_EXE_xbstream-rs");
        let command = format!("exec {binary} -t <'{}' {redirect}", stream.display());
        xb_testkit::command::Cmd::new("/bin/sh").args(["-c", &command]).run()
    };
    let closed = list(">&-").expect(1);
    assert!(closed.stderr_text().contains("standard output is closed"), "{closed:?}");
    let _ = list("1<>/dev/null").expect(0);
}

#[test]
fn help_and_version_go_to_stdout_and_fit_on_a_screen() {
    for option in ["--help", "-?", "-h"] {
        let ran = xbstream().arg(option).run().expect(0);
        let help = ran.stdout_text();
        assert!(help.contains("Examples:") && help.lines().count() <= 42, "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
        let narrow = xbstream().arg(option).env("COLUMNS", "80").run().expect(0).stdout_text();
        assert!(narrow.lines().count() <= 65, "{narrow}");
    }
    let version = xbstream().arg("-V").run().expect(0).stdout_text();
    let mut lines = version.lines();
    assert_eq!(lines.next(), Some(concat!("xbstream-rs ", env!("CARGO_PKG_VERSION"))));
    let names: Vec<_> =
        lines.filter_map(|line| line.split_once(": ")).map(|(name, _)| name).collect();
    assert_eq!(names, ["revision", "features", "crypto", "target"]);
}

#[test]
fn options_are_taken_as_the_stock_tools_take_them() {
    let bin = tempfile::tempdir().unwrap();
    for arguments in [
        &["-x", "-C", "DIR", "-p", "2"][..],
        &["--extract", "--directory=DIR", "--parallel=2"],
        &["--extr", "--dir", "DIR", "--para=0"],
        &["-xv", "-CDIR", "-p2"],
        &["--directory=DIR", "ignored", "-x", "--decrypt=NONE", "--decompress_threads=2"],
    ] {
        let cage = Cage::new();
        let dir = cage.inner.to_str().unwrap();
        let arguments = arguments.iter().map(|word| word.replace("DIR", dir));
        let cmd = linked_as("xbstream", &bin).args(arguments).stdin_bytes(one_file("f"));
        let _ = cmd.run().expect(0);
        assert_eq!(cage.files().into_keys().collect::<Vec<_>>(), ["f"]);
    }
}

#[test]
fn create_strips_unreadable_paths_by_default() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("a")).unwrap();
    fs::write(dir.path().join("f"), "abc").unwrap();
    let absolute = dir.path().join("f").to_str().unwrap().to_owned();
    let created = |arguments: &[&str]| {
        let ran = xbstream().args(arguments).cwd(dir.path().join("a")).run().expect(0);
        let list = xbstream().arg("-t").stdin_bytes(ran.stdout.clone()).run();
        (list.stdout_text().trim().to_owned(), ran.stderr_text(), list)
    };
    let (list, said, _) = created(&["-c", "../f"]);
    assert_eq!(
        (list.as_str(), said.as_str()),
        ("3  f", "xbstream-rs: warning: removing leading '../'\n")
    );
    let (list, said, _) = created(&["-c", &absolute]);
    assert_eq!(list, format!("3  {}", &absolute[1..]));
    assert!(said.contains("removing leading '/'"), "{said}");
    let (_, said, list) = created(&["-c", "-P", &absolute]);
    assert!(said.is_empty(), "{said}");
    // Our own reader refuses such a stream.
    assert!(list.expect(1).stderr_text().contains("absolute file name"));
}

#[test]
fn create_names_unsupported_files() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f"), "abc").unwrap();
    let fifo = dir.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    for (name, want) in [
        ("missing", "create: missing: cannot open: No such file"),
        (".", "create: .: not a regular file"),
        ("fifo", "create: fifo: not a regular file"),
        ("/dev/null", "create: /dev/null: not a regular file"),
    ] {
        let ran = xbstream().args(["-c", "f", name]).cwd(dir.path()).run().expect(1);
        assert!(ran.stderr_text().contains(want), "{ran:?}");
        assert!(ran.stdout.is_empty(), "the files are looked at before anything is written");
    }
    let _ = xbstream().args(["-c", "-C", "/does/not/exist", "f"]).run().expect(1);
}

#[test]
fn listings_show_names_safely() {
    let mut stream = StreamWriter::new(Vec::new());
    stream.payload("d/a\u{1b}[2Jb", 0, b"abc").end("d/a\u{1b}[2Jb").end("empty");
    let stream = stream.finish();
    let ran = xbstream().arg("-t").stdin_bytes(stream.clone()).run().expect(0);
    assert_eq!(ran.stdout_text(), "             3  d/a\\x1b[2Jb\n             0  empty\n");
    let ran = xbstream().args(["-t", "--json"]).stdin_bytes(stream).run().expect(0);
    let first: serde_json::Value =
        serde_json::from_str(ran.stdout_text().lines().next().unwrap()).unwrap();
    assert_eq!(first["path_hex"], "642f611b5b324a62");
    assert_eq!(
        (&first["size"], &first["stored"], &first["chunks"], &first["position"]),
        (&3.into(), &3.into(), &1.into(), &0.into())
    );
}

/// mariadb-backup removes that of a database which was dropped while it ran.
#[test]
fn files_in_a_folder_that_is_removed_are_not_listed() {
    let mut stream = StreamWriter::new(Vec::new());
    stream.payload("gone/t", 0, b"abc").end("gone/t").end("stays").remove("gone");
    let ran = xbstream().arg("-t").stdin_bytes(stream.finish()).run().expect(0);
    assert_eq!(ran.stdout_text(), "             0  stays\n");
}

#[test]
fn a_broken_stream_is_listed_as_far_as_it_is_whole() {
    let mut stream = StreamWriter::new(Vec::new());
    stream.payload("a", 0, b"abc").end("a").sparse("b", 0, &[(4096, 3)], b"abc");
    let stream = stream.finish();
    let ran = xbstream().arg("-t").stdin_bytes(stream.clone()).run().expect(1);
    assert_eq!(ran.stdout_text(), "             3  a\n");
    assert!(ran.stderr_text().contains("1 file has no end chunk: b (at 4099)"), "{ran:?}");
    let ran = xbstream().args(["-t", "--json"]).stdin_bytes(stream).run().expect(1);
    let last: serde_json::Value =
        serde_json::from_str(ran.stdout_text().lines().last().unwrap()).unwrap();
    assert_eq!(
        (&last["path"], &last["size"], &last["complete"]),
        (&"b".into(), &4099.into(), &false.into())
    );
    let error: serde_json::Value =
        serde_json::from_str(ran.stderr_text().lines().last().unwrap()).unwrap();
    assert_eq!((&error["event"], &error["exit"]), (&"error".into(), &1.into()));
}

#[test]
fn other_formats_get_a_hint() {
    for (bytes, hint) in [
        (&b"\x1f\x8b\x08\x00more"[..], "hint: decompress the input first: gzip"),
        (b"\x28\xb5\x2f\xfdmore", "hint: decompress the input first: zstd"),
        (b"XBCRYP03more", "hint: decrypt the input first"),
        (b"mysqld: Error 13\n", "hint: this is not an xbstream"),
        (b"", "hint: the producer wrote nothing"),
    ] {
        let cage = Cage::new();
        let ran = extract(&cage.inner, bytes, 1).expect(1);
        assert!(ran.stderr_text().contains(hint), "{ran:?}");
        assert!(cage.files().is_empty());
    }
}

#[test]
fn the_dialect_can_be_told() {
    let seek = vectors::read("xbstream/mariadb/seek.xbs");
    let sparse = vectors::read("xbstream/good/sparse-trailing-hole.xbs");
    for (dialect, stream, code) in [
        ("mariadb", &seek, 0),
        ("percona", &seek, 1),
        ("Percona", &sparse, 0),
        ("mariadb", &sparse, 1),
        ("auto", &seek, 0),
        ("auto", &sparse, 0),
    ] {
        let cage = Cage::new();
        let cmd = xbstream().args(["-x", "--dialect", dialect, "-C"]).arg(&cage.inner);
        let _ = cmd.stdin_bytes(stream.clone()).run().expect(code);
        assert_eq!(cage.files().len(), usize::from(code == 0), "{dialect}");
    }
}

#[test]
fn a_backup_without_its_last_file_is_warned_of() {
    let mut stream = StreamWriter::new(Vec::new());
    stream.payload("ibdata1", 0, b"pages").end("ibdata1").end("mysql/db.ibd");
    let cut = stream.finish();
    let mut stream = StreamWriter::new(cut.clone());
    stream.info();
    let whole = stream.finish();
    for (stream, warned) in [(cut, true), (whole, false), (one_file("f"), false)] {
        let cage = Cage::new();
        let ran = extract(&cage.inner, &stream, 1).expect(0);
        assert_eq!(ran.stderr_text().contains("cut between two files"), warned, "{ran:?}");
    }
}

#[test]
fn holes_stay_holes() {
    use std::os::unix::fs::MetadataExt;
    let mut stream = StreamWriter::new(Vec::new());
    stream.sparse("f", 0, &[(64 << 20, 4096), (64 << 20, 0)], &[7; 4096]).end("f");
    let cage = Cage::new();
    let _ = extract(&cage.inner, &stream.finish(), 2).expect(0);
    let meta = fs::metadata(cage.inner.join("f")).unwrap();
    assert_eq!(meta.len(), (128 << 20) + 4096);
    assert!(meta.blocks() * 512 < 1 << 20, "{} blocks", meta.blocks());
    // mode 0640 reduced by the umask, as with the stock tools
    assert_eq!(meta.mode() & 0o777 & !0o640, 0);
}
