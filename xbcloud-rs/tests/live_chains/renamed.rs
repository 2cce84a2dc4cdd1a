//! Tables that were renamed while a real server was backed up: their tablespaces have the old names in
//! the stream, and their definitions the new ones.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::*;
use xb_testkit::command::Cmd;
use xb_testkit::daemon::Scratch;
use xb_testkit::mariadb::MariaDb;
use xb_testkit::store::Store;
use xb_testkit::stream::scan;

const TABLES: &str = "CREATE DATABASE x; CREATE DATABASE y; USE x;
    CREATE TABLE before_it (i INT PRIMARY KEY); INSERT INTO before_it VALUES (4), (7);
    CREATE TABLE leaves (i INT PRIMARY KEY); INSERT INTO leaves VALUES (5);
    CREATE TABLE parts (i INT PRIMARY KEY) PARTITION BY HASH (i) PARTITIONS 2; INSERT INTO parts VALUES (1), (2);
    CREATE TABLE stays (i INT PRIMARY KEY); INSERT INTO stays VALUES (9);
    CREATE TABLE big (i INT PRIMARY KEY, t LONGTEXT);
    INSERT INTO big SELECT seq, REPEAT(SHA1(seq), 20000) FROM seq_1_to_40;";
const RENAMES: &str =
    "RENAME TABLE x.before_it TO x.after_it, x.leaves TO y.arrived, x.parts TO x.pieces";

/// Backs up the server, and renames tables once the largest one is on its way.
fn save_stream(server: &MariaDb, file: &Path) {
    let command = server.backup_command();
    let log = std::fs::File::create(file.with_extension("log")).unwrap();
    let mut child = Command::new(&command[0])
        .args(&command[1..])
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .unwrap();
    let mut output = child.stdout.take().unwrap();
    let mut stream = std::fs::File::create(file).unwrap();
    let (mut piece, mut renamed) = (vec![0; 64 << 10], false);
    loop {
        let len = output.read(&mut piece).unwrap();
        if len == 0 {
            break;
        }
        stream.write_all(&piece[..len]).unwrap();
        if !renamed && piece[..len].windows(9).any(|at| at == b"x/big.ibd") {
            // Whatever the producer does meanwhile, it cannot write more than the pipe holds.
            server.sql(RENAMES);
            renamed = true;
        }
    }
    assert!(renamed && child.wait().unwrap().success());
}

#[test]
fn a_table_that_was_renamed_during_the_backup_is_found_by_its_new_name() {
    let server = MariaDb::start();
    server.sql(TABLES);
    // Tables that were created since the last checkpoint are treated in another way.
    let files = server.shut_down();
    let server = MariaDb::start_on(&files.join("data"));
    let (store, scratch) = (Store::folder(), Scratch::new());
    let stream = scratch.join("stream");
    save_stream(&server, &stream);
    let bytes = std::fs::read(&stream).unwrap();
    let names: Vec<_> = scan(&bytes).into_iter().map(|chunk| chunk.path).collect();
    for name in
        ["x/before_it.ibd", "x/before_it.ren", "x/leaves.ren", "x/parts#P#p0.ren", "x/after_it.frm"]
    {
        assert!(names.iter().any(|found| found == name), "{name} in {names:?}");
    }

    // Not with `--quiet`, which hides notes.
    let put = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).arg("put").arg(store.url("n"));
    let ran = put.stdin_file(&stream).run().expect(0);
    assert!(!ran.stderr_text().contains("no .ibd file"), "{ran:?}");
    for (pattern, files) in [
        ("x/after_it.*", &["x/after_it.ibd", "x/after_it.frm"][..]),
        ("y/arrived.*", &["y/arrived.ibd", "y/arrived.frm"]),
        ("x/pieces*", &["x/pieces#P#p0.ibd", "x/pieces#P#p1.ibd", "x/pieces.frm"]),
        ("x/stays.*", &["x/stays.ibd", "x/stays.frm"]),
    ] {
        let target = scratch.join("target");
        let options = [
            "--prepare",
            &format!("--files={pattern}"),
            &format!("--target-dir={}", target.display()),
        ];
        let _ = xbcloud(&store, "restore", "n", &options).run().expect(0);
        for file in files {
            assert!(target.join(file).exists(), "{pattern}: {file}");
        }
        assert!(!target.join("x/big.ibd").exists());
        std::fs::remove_dir_all(target).unwrap();
    }
    for (table, rows) in [("x.after_it", "(4),(7)"), ("y.arrived", "(5)"), ("x.pieces", "(1)")] {
        let ran = xbcloud(&store, "rescue", "n", &[]).arg(table).run().expect(0);
        let dump = ran.stdout_text().replace([' ', '\n'], "");
        assert!(dump.contains(rows), "{table}: {dump}");
    }

    // The old name is that of another table later. It does not keep a selection of a chain from being restored.
    server.sql("INSERT INTO x.stays VALUES (10); CREATE TABLE x.before_it (i INT PRIMARY KEY)");
    let backup = xbcloud(&store, "backup", "i", &["--incremental-from=n", "--accept-history"]);
    let _ = backup.arg("--").args(server.backup_command()).run().expect(0);
    let target = scratch.join("target");
    let options = ["--prepare", "--files=x/stays.*", &format!("--target-dir={}", target.display())];
    let _ = xbcloud(&store, "restore", "i", &options).run().expect(0);
    assert!(target.join("x/stays.ibd").exists() && !target.join("x/big.ibd").exists());
}
