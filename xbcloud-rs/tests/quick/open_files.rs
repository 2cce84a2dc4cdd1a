//! Backups with more files than the process may have open at a time.

use std::os::unix::fs::PermissionsExt as _;

use xb_testkit::command::{Cmd, Ran};
use xb_testkit::stream::StreamWriter;

/// Runs with at most 256 open files, soft and hard limit.
fn run(args: &[&str], stdin: &[u8]) -> Ran {
    Cmd::new("sh")
        .args(["-c", "ulimit -n 256 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_xbcloud-rs")])
        .args(args)
        .stdin_bytes(stdin)
        .run()
}

#[test]
fn a_backup_of_many_small_files_comes_back() {
    let name = |n: u32| format!("d{}/t{n}.frm", n % 7);
    let mut stream = StreamWriter::new(Vec::new());
    for n in 0..5000 {
        stream.payload(&name(n), 0, &n.to_le_bytes()).end(&name(n));
    }
    stream.payload("xtrabackup_info", 0, b"tool_name = mariadb-backup\n").end("xtrabackup_info");
    let stream = stream.finish();
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    std::fs::write(&key, [7; 32]).unwrap();
    let key = format!("--encrypt-key-file={}", key.display());
    let cases: [(&str, &[&str], &[&str]); 4] = [
        ("packed", &[], &[]),
        ("sealed", &["--compress=zstd:1", &key], &[&key]),
        ("classic", &["--layout=classic", "--chunk-size=16M"], &[]),
        ("members", &["--layout=classic", "--chunk-size=16M", "--compress=lz4"], &[]),
    ];
    for (what, put, restore) in cases {
        let place = format!("file://{}/root/{what}", folder.path().display());
        let _ = run(&[&["put"], put, &[&place]].concat(), &stream).expect(0);
        let target = folder.path().join(what);
        let dir = format!("--target-dir={}", target.display());
        let _ =
            run(&[&["restore", "--sync=none", &dir], restore, &[&place]].concat(), b"").expect(0);
        for n in 0..5000 {
            let content = std::fs::read(target.join(name(n))).unwrap();
            assert_eq!(content, n.to_le_bytes(), "{what}: {}", name(n));
        }
        std::fs::remove_dir_all(&target).unwrap();
    }
}

/// The soft limit of a shell is 1024, and mariadb-backup opens 2000 tablespaces: it could neither copy nor prepare more.
#[test]
fn backup_programs_may_open_as_many_files_as_the_hard_limit_allows() {
    let folder = tempfile::tempdir().unwrap();
    let mut stream = StreamWriter::new(Vec::new());
    stream.payload("ibdata1", 0, b"pages").end("ibdata1").positions(0, 9).info();
    let made = folder.path().join("stream");
    std::fs::write(&made, stream.finish()).unwrap();
    let program = folder.path().join("mariadb-backup");
    let (copies, prepares) = (folder.path().join("copies"), folder.path().join("prepares"));
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *--prepare*) ulimit -S -n >'{}' ;; *--backup*) ulimit -S -n >'{}'; cat '{}' ;; esac\n",
        prepares.display(),
        copies.display(),
        made.display()
    );
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let limited = |args: &[&str]| {
        Cmd::new("sh")
            .args(["-c", "ulimit -S -n 300 && ulimit -H -n 700 && exec \"$0\" \"$@\""])
            .arg(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(args)
            .run()
    };
    let place = format!("file://{}/root/night", folder.path().display());
    let shown = program.to_str().unwrap();
    let _ = limited(&["backup", "--checkpoint=no", &place, "--", shown, "--backup"]).expect(0);
    let dir = format!("--target-dir={}", folder.path().join("restored").display());
    let by = format!("--prepare-program={shown}");
    let writes = format!("--mysqld-writes={}", folder.path().display());
    let _ = limited(&["restore", "--sync=none", "--prepare", &by, &writes, &dir, &place]).expect(0);
    for told in [copies, prepares] {
        assert_eq!(std::fs::read_to_string(&told).unwrap(), "700\n", "{}", told.display());
    }
}

/// The signal of `ulimit -f` once ended the program without a message, and without a clean-up.
#[test]
fn a_limit_of_file_sizes_is_an_error_with_a_message() {
    let mut stream = StreamWriter::new(Vec::new());
    stream.payload("a", 0, &vec![1; 900_000]).end("a");
    stream.payload("xtrabackup_info", 0, b"tool_name = mariadb-backup\n").end("xtrabackup_info");
    let stream = stream.finish();
    let folder = tempfile::tempdir().unwrap();
    let limited = |args: &[&str], stdin: &[u8]| {
        Cmd::new("sh")
            .args(["-c", "ulimit -f 200 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_xbcloud-rs")])
            .args(args)
            .stdin_bytes(stdin)
            .run()
    };
    for layout in ["packed", "classic"] {
        let place = format!("file://{}/root/{layout}", folder.path().display());
        let layout = format!("--layout={layout}");
        let put =
            limited(&["put", "--quiet", "--compress=none", &layout, &place], &stream).expect(1);
        assert!(put.stderr_text().contains("File too large"), "{put:?}");
        let _ = run(&["put", "--quiet", "--compress=none", &layout, &place], &stream).expect(0);
        let dir = format!("--target-dir={}", folder.path().join(&layout).display());
        let restore = ["restore", "--sync=none", &dir, &place];
        let failed = limited(&restore, b"").expect(1);
        assert!(failed.stderr_text().contains("File too large"), "{failed:?}");
        let _ = run(&restore, b"").expect(0);
    }
}

#[cfg(unix)]
#[test]
fn a_store_in_a_folder_is_private() {
    let mut stream = StreamWriter::new(Vec::new());
    stream.payload("a", 0, b"secret").end("a");
    stream.payload("xtrabackup_info", 0, b"tool_name = mariadb-backup\n").end("xtrabackup_info");
    let stream = stream.finish();
    let folder = tempfile::tempdir().unwrap();
    for layout in ["packed", "classic"] {
        let place = format!("file://{}/root/{layout}", folder.path().display());
        let layout = format!("--layout={layout}");
        let _ = run(&["put", &layout, &place], &stream).expect(0);
        let _ = run(&["pin", &place], b"").expect(0);
        let _ = run(&["verify", "--level=list", &place], b"").expect(0);
    }
    let mut folders = vec![folder.path().join("root")];
    let mut files = 0;
    while let Some(path) = folders.pop() {
        let mode = path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, if path.is_dir() { 0o700 } else { 0o600 }, "{}", path.display());
        if path.is_dir() {
            folders.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            files += 1;
        }
    }
    assert!(files > 6, "{files}");
}
