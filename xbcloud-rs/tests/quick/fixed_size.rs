//! Classic backups with objects of a given size.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::Path;

use xb_testkit::command::{Cmd, Ran};
use xb_testkit::data::{mixed, noise};
use xb_testkit::files::tree;
use xb_testkit::stream::{StreamWriter, small_backup};
use xb_testkit::tools;

fn run(args: &[&str], stdin: &[u8]) -> Ran {
    Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).args(args).stdin_bytes(stdin).run()
}

fn url(folder: &Path, name: &str) -> String {
    format!("file://{}/root/{name}", folder.display())
}

/// Files with interleaved chunks, then their ends and the last file.
fn backup(files: &[(&str, Vec<u8>)], chunk: usize) -> Vec<u8> {
    let mut out = StreamWriter::new(Vec::new());
    let most = files.iter().map(|(_, bytes)| bytes.len()).max().unwrap_or(0);
    for at in (0..most).step_by(chunk) {
        for (name, bytes) in files.iter().filter(|(_, bytes)| bytes.len() > at) {
            out.payload(name, at as u64, &bytes[at..bytes.len().min(at + chunk)]);
        }
    }
    for (name, _) in files {
        out.end(name);
    }
    out.info();
    out.finish()
}

fn files() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("ibdata1", noise(1, 2_500_000)),
        ("db/a.ibd", mixed(2, 1_700_000)),
        ("db/b.ibd", noise(3, 1_000_000)),
        ("db/empty.ibd", Vec::new()),
        ("db/small.ibd", noise(4, 5000)),
    ]
}

/// File name to the sizes of its objects, in order; asserts that no number is missing.
fn objects(backup: &Path) -> BTreeMap<String, Vec<u64>> {
    let mut found = BTreeMap::<String, Vec<u64>>::new();
    for (key, (size, _)) in tree(backup) {
        let (name, number) = key.split_at(key.len() - 21);
        let sizes = found.entry(name.to_owned()).or_default();
        assert_eq!(number, format!(".{:020}", sizes.len()));
        sizes.push(size);
    }
    found
}

fn assert_exact(objects: &BTreeMap<String, Vec<u64>>, size: u64) {
    assert!(objects.values().any(|sizes| sizes.len() > 2), "{objects:?}");
    for (name, sizes) in objects {
        let (last, full) = sizes.split_last().unwrap();
        assert!(full.iter().all(|len| *len == size) && *last <= size, "{name}: {sizes:?}");
    }
}

fn done(ran: &Ran) -> serde_json::Value {
    let events = ran.stderr_text();
    let mut events = events.lines().map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap());
    events.find(|event| event["event"] == "done").expect("an event")
}

#[test]
fn objects_are_exact_and_both_readers_take_them() {
    let files = files();
    let stream = backup(&files, 300_000);
    for size in [100_000, 700_000, 1_000_000] {
        let folder = tempfile::tempdir().unwrap();
        let place = url(folder.path(), "n");
        let chunk = format!("--chunk-size={size}");
        let put = ["put", "--json", "--layout=classic", "--md5", &chunk, &place];
        let ran = run(&put, &stream).expect(0);
        let root = folder.path().join("root");
        let found = objects(&root.join("n"));
        assert_exact(&found, size);
        let done = done(&ran);
        let count: usize = found.values().map(Vec::len).sum();
        assert_eq!((&done["objects"], &done["short_objects"]), (&count.into(), &0.into()));
        let manifest = std::fs::read_to_string(root.join(".xb-catalog/n")).unwrap();
        assert!(manifest.contains(&format!("\"chunk_size\": {size}")), "{manifest}");

        // The checksums match the objects.
        let sums = Cmd::new("md5sum").args(["-c", "--quiet", "../n.md5"]).cwd(root.join("n"));
        let _ = sums.run().expect(0);
        let list = std::fs::read_to_string(root.join("n.md5")).unwrap();
        assert_eq!(list.lines().count(), count);

        // As the stock tool reads them: the objects of each file in order, whatever lies between.
        let keys: Vec<_> = tree(&root.join("n")).into_keys().collect();
        let joined: Vec<u8> =
            keys.iter().flat_map(|key| std::fs::read(root.join("n").join(key)).unwrap()).collect();
        let got = run(&["get", &place], b"").expect(0).stdout;
        for (n, bytes) in [joined, got].into_iter().enumerate() {
            let out = folder.path().join(format!("mbstream{n}"));
            std::fs::create_dir(&out).unwrap();
            let cmd = Cmd::new(tools::find("mbstream")).args(["-x", "-C"]).arg(&out);
            let _ = cmd.stdin_bytes(bytes).run().expect(0);
            for (name, bytes) in &files {
                assert!(std::fs::read(out.join(name)).unwrap() == *bytes, "{name}");
            }
        }
        let out = folder.path().join("out");
        let dir = format!("--target-dir={}", out.display());
        let _ = run(&["restore", &dir, &place], b"").expect(0);
        assert_eq!(tree(&out), tree(&folder.path().join("mbstream0")));

        // Single files; a missing object is an error.
        let one = run(&["get", &place, "db/b.ibd"], b"").expect(0).stdout;
        assert!(one.len() > 1_000_000 && one.len() < 1_010_000);
        let last = root.join("n/ibdata1.00000000000000000002");
        std::fs::remove_file(&last).unwrap();
        let refused = run(&["get", &place], b"").expect_failure();
        assert!(refused.stderr_text().contains("the store lists"), "{refused:?}");
    }
}

#[test]
fn files_compressed_and_encrypted_one_by_one_have_exact_objects_too() {
    let folder = tempfile::tempdir().unwrap();
    let key_file = folder.path().join("key");
    std::fs::write(&key_file, [b'k'; 32]).unwrap();
    let key = format!("--encrypt-key-file={}", key_file.display());
    let files = files();
    let stream = backup(&files, 300_000);
    let ways: [&[&str]; 3] = [
        &["--compress=zstd"],
        &["--encrypt=AES256", &key],
        &["--compress=lz4", "--encrypt=AES256", &key],
    ];
    for (n, way) in ways.iter().enumerate() {
        let place = url(folder.path(), &format!("n{n}"));
        let put = ["put", "--layout=classic", "--chunk-size=300K", "--memory=64M"];
        let _ = run(&[&put, *way, &[&place]].concat(), &stream).expect(0);
        assert_exact(&objects(&folder.path().join(format!("root/n{n}"))), 300 << 10);
        let out = folder.path().join(format!("out{n}"));
        let dir = format!("--target-dir={}", out.display());
        let mut restore = vec!["restore", &dir, &place];
        if way.contains(&&*key) {
            restore.extend([&*key, "--accept-unsealed"]);
        }
        let _ = run(&restore, b"").expect(0);
        for (name, bytes) in &files {
            assert!(std::fs::read(out.join(name)).unwrap() == *bytes, "{way:?} {name}");
        }
    }
}

#[test]
fn short_memory_makes_short_objects_and_a_message() {
    let folder = tempfile::tempdir().unwrap();
    let place = url(folder.path(), "n");
    // 300 files of 400 KiB, all open at once, in objects of 1 MiB: none fits into memory as a
    // whole.
    let block = noise(1, 50 << 10);
    let mut stream = StreamWriter::new(Vec::new());
    for n in 0..8_u64 {
        for file in 0..300 {
            stream.payload(&format!("db/t{file}.ibd"), n * (50 << 10), &block);
        }
    }
    for file in 0..300 {
        stream.end(&format!("db/t{file}.ibd"));
    }
    stream.info();
    let put = ["put", "--json", "--layout=classic", "--chunk-size=1M", "--memory=32M", &place];
    let ran = run(&put, &stream.finish()).expect(0);
    let done = done(&ran);
    assert!(done["short_objects"].as_u64().unwrap() > 0);
    assert!(ran.stderr_text().contains("shorter than --chunk-size"), "{ran:?}");
    // As the program reports it: measured from outside, it would include the test's own memory
    // before the start.
    assert!(done["peak_memory"].as_u64().unwrap() < (32 + 64) << 20, "{done}");
    let out = folder.path().join("out");
    let dir = format!("--target-dir={}", out.display());
    let _ = run(&["restore", &dir, &place], b"").expect(0);
    assert_eq!(tree(&out).len(), 301);
    assert!(std::fs::read(out.join("db/t7.ibd")).unwrap() == block.repeat(8));
}

#[test]
fn an_impossible_size_is_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let place = url(folder.path(), "n");
    let stream = small_backup(1, 1000);
    for (options, said) in [
        (["--chunk-size=4095", "--memory=64M"], "at least 4096"),
        (["--chunk-size=64M", "--memory=12M"], "of memory"),
    ] {
        let put = [&["put", "--layout=classic"][..], &options, &[&place]].concat();
        let ran = run(&put, &stream).expect_failure();
        assert!(ran.stderr_text().contains(said), "{ran:?}");
    }
    assert!(!folder.path().join("root").exists() || tree(&folder.path().join("root")).is_empty());
}

#[test]
fn without_a_requested_size_objects_are_cut_as_by_the_stock_tool() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("xbcloud");
    symlink(env!("CARGO_BIN_EXE_xbcloud-rs"), &link).unwrap();
    let stock = |args: &[&str], stdin: &[u8]| Cmd::new(&link).args(args).stdin_bytes(stdin).run();
    let stream = backup(&files(), 300_000);
    let _ = stock(&["put", &url(folder.path(), "stock")], &stream).expect(0);
    let chunks = objects(&folder.path().join("root/stock"));
    // One chunk of the stream per object, and the end chunk in its own object.
    let head = 34 + "ibdata1".len() as u64;
    assert_eq!(chunks["ibdata1"][..2], [300_000 + head, 300_000 + head]);
    assert_eq!(chunks["ibdata1"].last(), Some(&(head - 20)));
    let _ = stock(&["put", "--chunk-size=200K", &url(folder.path(), "cut")], &stream).expect(0);
    assert_exact(&objects(&folder.path().join("root/cut")), 200 << 10);
}

#[test]
fn a_plan_knows_the_cut() {
    let plan = |options: &[&str]| {
        let fixed = ["plan", "--json", "--memory=512M", "--threads=2", "--layout=classic"];
        let out = run(&[&fixed, options].concat(), b"").expect(0).stdout;
        serde_json::from_slice::<serde_json::Value>(&out).unwrap()
    };
    let stock = plan(&["--size=1T", "--files=1000"]);
    let cut = plan(&["--size=1T", "--files=1000", "--chunk-size=200M"]);
    assert_eq!(stock["objects"], stock["stock_objects"]);
    // A little more than 1 GiB in each of them.
    assert_eq!((&cut["objects"], &cut["object_bytes"]), (&6000.into(), &(200_u64 << 20).into()));
    assert!(cut["backup_requests"].as_u64() < stock["backup_requests"].as_u64());

    let folder = tempfile::tempdir().unwrap();
    let place = url(folder.path(), "n");
    let put = ["put", "--layout=classic", "--chunk-size=100000", &place];
    let _ = run(&put, &backup(&files(), 300_000)).expect(0);
    let out = run(&["plan", "--json", "--like", &place], b"").expect(0).stdout;
    let like: serde_json::Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(like["object_bytes"], 100_000);
}
