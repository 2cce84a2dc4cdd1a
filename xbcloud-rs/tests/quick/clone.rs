//! Clones of MySQL servers as backups, without a server.

use std::path::PathBuf;

use serde_json::Value;
use xb_repo::manifest::Manifest;
use xb_testkit::command::{Cmd, Ran, Signal};
use xb_testkit::donor::{Content, Donor, Message, Side, kinds, recorded};
use xb_testkit::stream::{CLONE_INFO, StreamWriter};

struct Site {
    folder: tempfile::TempDir,
}

impl Site {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn url(&self, name: &str) -> String {
        format!("file://{}", self.path("root").join(name).display())
    }

    fn run(&self, args: &[&str]) -> Cmd {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(args)
            .env("HOME", self.path("home"))
            .env("XDG_STATE_HOME", self.path("state"))
    }

    fn put(&self, name: &str, options: &[&str], stream: Vec<u8>) -> Ran {
        let url = self.url(name);
        self.run(&[&["put", &url], options].concat()).stdin_bytes(stream).run()
    }

    fn list(&self) -> Value {
        let ran = self.run(&["list", "--json", &self.url("")]).run().expect(0);
        serde_json::from_slice(&ran.stdout).unwrap()
    }
}

fn clone() -> Vec<u8> {
    let mut stream = StreamWriter::new(Vec::new());
    stream.clone_of_mysql();
    stream.finish()
}

/// A producer's backup from one LSN to another.
fn backup(from: u64, to: u64) -> Vec<u8> {
    let mut stream = StreamWriter::new(Vec::new());
    stream.positions(from, to).info();
    stream.finish()
}

#[test]
fn a_piped_clone_is_a_backup_that_says_what_it_is() {
    let site = Site::new();
    for (name, options) in
        [("packed", &["--compress=zstd"][..]), ("classic", &["--layout=classic"])]
    {
        let _ = site.put(name, options, clone()).expect(0);
    }
    let list = site.list();
    for line in list.as_array().unwrap() {
        assert_eq!(line["kind"], "full");
        assert_eq!(line["server_version"], "9.7.4-2");
        assert_eq!(line["binlog_pos"], Value::Null, "no bound is a position");
        let facts = &line["mysql_clone"];
        assert_eq!(facts["page_size"], 16384);
        assert!(facts["gtids_from"].as_str().unwrap().ends_with(":1-5"));
        assert!(facts["gtids_to"].as_str().unwrap().ends_with(":1-7"));
        assert_eq!(facts["empty_tables"]["first"][0], "shop.old (MyISAM)");
    }
    let long = site.run(&["list", "--long", &site.url("")]).run().expect(0).stdout_text();
    for expected in
        ["full, MySQL 9.7.4-2 clone", "gtids, at least", ":1-7", "1 table: shop.old (MyISAM)"]
    {
        assert!(long.contains(expected), "{expected}: {long}");
    }
}

#[test]
fn a_clone_without_its_end_is_no_backup() {
    let site = Site::new();
    let whole = clone();
    let cut = whole.windows(13).position(|bytes| bytes == b"xb_clone.json").unwrap() - 14;
    let mut late = StreamWriter::new(Vec::new());
    late.clone_of_mysql().file("undo_001", b"late", 100);
    let mut foreign = StreamWriter::new(Vec::new());
    foreign.file("xb_clone.patches", b"XBCLPT01", 100).info();
    let mut newer = StreamWriter::new(Vec::new());
    newer.file("xb_clone.patches", b"XBCLPT01", 100);
    newer.file("xb_clone.json", br#"{"format": 2}"#, 100);
    for (stream, expected) in [
        (whole[..cut].to_vec(), "no xb_clone.json"),
        (late.finish(), "undo_001 follows xb_clone.json"),
        (foreign.finish(), "no xb_clone.json"),
        (newer.finish(), "install a newer version"),
    ] {
        for options in [&[][..], &["--layout=classic"]] {
            let ran = site.put("bad", options, stream.clone()).expect_failure();
            assert!(ran.stderr_text().contains(expected), "{}", ran.stderr_text());
        }
    }
    let complete = |line: &Value| line["state"] == "complete";
    assert!(!site.list().as_array().unwrap().iter().any(complete));
}

#[test]
fn a_clone_whose_files_are_compressed_is_verified_as_one() {
    let site = Site::new();
    // A frame of zstd with one block that is not compressed.
    let len = u32::try_from(CLONE_INFO.len()).unwrap();
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0xa0];
    frame.extend(len.to_le_bytes());
    frame.extend(&(len << 3 | 1).to_le_bytes()[..3]);
    frame.extend(CLONE_INFO.as_bytes());
    let mut stream = StreamWriter::new(Vec::new());
    stream.file("xb_clone.README", b"...", 100).file("ibdata1", &[0; 16384], 1 << 20);
    stream.file("xb_clone.patches", &[&b"XBCLPT01\x03"[..], &[0; 16]].concat(), 100);
    stream.file("xb_clone.json.zst", &frame, 1 << 20);
    let _ = site.put("a", &[], stream.finish()).expect(0);
    assert_eq!(site.list()[0]["mysql_clone"]["page_size"], 16384);
    let _ = site.run(&["verify", &site.url("a"), "--level=checksum"]).run().expect(0);
    let _ = site.run(&["verify", &site.url("a"), "--level=decrypt"]).run().expect(0);
}

/// The same clone, whose files say about its keys what `has_keys` says.
fn clone_with_keys(has_keys: &str, readme: &str) -> Vec<u8> {
    let info = CLONE_INFO.replace("\"has_keys\": false, ", has_keys);
    assert_ne!(info, CLONE_INFO);
    clone_saying(&info, readme)
}

fn clone_saying(info: &str, readme: &str) -> Vec<u8> {
    let mut stream = StreamWriter::new(Vec::new());
    stream.file("xb_clone.README", readme.as_bytes(), 1 << 20);
    stream.file("ibdata1", &[0; 16384], 1 << 20);
    stream.file("xb_clone.patches", &[&b"XBCLPT01\x03"[..], &[0; 16]].concat(), 100);
    stream.file("xb_clone.json", info.as_bytes(), 100);
    stream.finish()
}

#[test]
fn keys_of_a_clone_are_stored_only_under_a_seal() {
    let site = Site::new();
    let key = site.path("key");
    std::fs::write(&key, [7; 32]).unwrap();
    let sealed = format!("--encrypt-key-file={}", key.display());
    let [has, unknown] = ["\"has_keys\": true, ", ""];
    let declared = clone_with_keys(has, xb_clone::KEYS_TEXT);
    let old = clone_with_keys(unknown, "Read me.\n");
    let of_redo_log = clone_with_keys(has, "Read me.\n");
    for (stream, options) in [
        (&declared, &[][..]),
        (&of_redo_log, &[]),
        (&old, &[]),
        (&old, &["--layout=classic"]),
        (&declared, &["--layout=classic"]),
        (&declared, &["--unsafe-any-end"]),
        (&declared, &["--raw"]),
        // With --raw, nothing else of it is looked at.
        (&old, &["--raw"]),
    ] {
        let ran = site.put("bad", options, stream.clone()).expect(2);
        let text = ran.stderr_text();
        assert!(text.contains("keys are never stored in clear"), "{options:?}: {text}");
        assert!(text.contains("--recipient"), "{text}");
        assert!(site.list().as_array().unwrap().is_empty(), "{options:?}");
    }
    // By the word of a producer.
    std::fs::write(site.path("stream"), &declared).unwrap();
    let from = site.path("stream").display().to_string();
    let args = ["backup", &site.url("bad"), "--", "cat", &from];
    let text = site.run(&args).run().expect(2).stderr_text();
    assert!(text.contains("keys are never stored in clear"), "{text}");
    for (name, stream) in [("a", &declared), ("b", &old)] {
        let _ = site.put(name, &[&sealed], stream.clone()).expect(0);
        let plain = site.run(&["get", &site.url(name), &sealed]).run().expect(0).stdout;
        assert!(plain == *stream);
        let _ = site.put("bad", &[], plain).expect(2);
    }
    let _ = site.run(&["verify", &site.url("b"), "--level=checksum", &sealed]).run().expect(0);
    let to = format!("file://{}/", site.path("copy").display());
    let _ = site.run(&["copy", &site.url("b"), &to, &sealed]).run().expect(0);
}

/// A clone whose manifest, as that of an earlier version, does not say whether it has keys.
fn put_as_earlier(site: &Site, name: &str, options: &[&str], stream: Vec<u8>) {
    let _ = site.put(name, options, stream).expect(0);
    let catalog = site.path(&format!("root/.xb-catalog/{name}"));
    let mut manifest = Manifest::decode(&std::fs::read(&catalog).unwrap()).unwrap().manifest;
    assert_eq!(manifest.mysql_clone.as_ref().unwrap().has_keys, Some(false));
    manifest.mysql_clone.as_mut().unwrap().has_keys = None;
    std::fs::write(&catalog, manifest.encode_signed(None, None).unwrap()).unwrap();
    let _ = site.run(&["verify", &site.url(name), "--level=checksum"]).run().expect(0);
}

#[test]
fn a_clone_in_clear_that_an_earlier_version_stored_is_copied_if_no_file_is_encrypted() {
    let site = Site::new();
    let plain = CLONE_INFO.replace("\"redo\": []", "\"redo\": [{\"index\": 0, \"size\": 4096}]");
    let info = plain.replace("\"is_encrypted\": false", "\"is_encrypted\": true");
    assert_ne!(info, plain);
    for (options, a, b) in [(&[][..], "a", "b"), (&["--layout=classic"], "c", "d")] {
        put_as_earlier(&site, a, options, clone_saying(&plain, "Read me.\n"));
        let copy = site.url(&format!("{a}-copy"));
        let _ = site.run(&["copy", &site.url(a), &copy]).run().expect(0);
        put_as_earlier(&site, b, options, clone_saying(&info, "Read me.\n"));
        let copy = site.url(&format!("{b}-copy"));
        let text = site.run(&["copy", &site.url(b), &copy]).run().expect(2).stderr_text();
        assert!(text.contains("keys are never stored in clear"), "{text}");
    }
    // A copy that an earlier version made is left as it is.
    let there = site.path("there/.xb-catalog");
    std::fs::create_dir_all(&there).unwrap();
    std::fs::copy(site.path("root/.xb-catalog/b"), there.join("b")).unwrap();
    let mut copy = std::process::Command::new("cp");
    let copy = copy.arg("-r").arg(site.path("root/b")).arg(site.path("there/b"));
    assert!(copy.status().unwrap().success());
    let to = format!("file://{}/", site.path("there").display());
    let _ = site.run(&["copy", &site.url("b"), &to]).run().expect(0);
}

#[test]
fn nothing_is_based_on_a_clone() {
    let site = Site::new();
    let _ = site.put("a-clone", &[], clone()).expect(0);
    let refused = site.run(&["backup", &site.url("b"), "--incremental-from=a-clone", "--", "true"]);
    let text = refused.run().expect_failure().stderr_text();
    assert!(text.contains("a-clone is a clone of MySQL"), "{text}");
    // An increment whose start is unknown may be based on any backup but on this one.
    let _ = site.put("c-full", &[], backup(0, 100)).expect(0);
    let _ = site.put("d-increment", &[], backup(100, 200)).expect(0);
    let _ = site.run(&["delete", &site.url("a-clone"), "--yes"]).run().expect(0);
    let _ = site.run(&["delete", &site.url("c-full"), "--yes"]).run().expect_failure();
}

/// The option file of a repository that is filled from the donor's socket, with more lines.
fn group(site: &Site, more: &str) -> String {
    let text = format!(
        "[client]\nuser=backup\n[xbcloud.shop]\nroot={}\nfrom=mysql://{}\nstate-dir={}\nresult={}\n{more}\n",
        site.url(""),
        site.path("sock").display(),
        site.path("state").display(),
        site.path("result.json").display(),
    );
    std::fs::write(site.path("my.cnf"), text).unwrap();
    format!("--defaults-file={}", site.path("my.cnf").display())
}

impl Site {
    fn donor(&self, clones: Vec<Vec<Message>>) -> Donor {
        Donor::start(&self.path("sock"), clones, |_| None)
    }

    fn from(&self) -> String {
        format!("--from=mysql://backup@{}", self.path("sock").display())
    }

    /// Checks that there is no backup, nor anything of one.
    fn assert_nothing(&self) {
        let left: Vec<Value> = self.list().as_array().unwrap().clone();
        assert!(left.is_empty(), "{left:?}");
        let find = ["root", "-type", "f", "-not", "-path", "*/.xb-catalog/*"];
        let found = Cmd::new("/usr/bin/find").args(find).cwd(self.folder.path()).run().expect(0);
        assert_eq!(found.stdout_text(), "");
    }
}

#[test]
fn a_server_is_cloned_into_the_store_and_reads_back() {
    let site = Site::new();
    let _donor = site.donor(vec![recorded()]);
    let args = ["backup", &site.url("mon"), &site.from(), "--compress=zstd", "--memory=96M"];
    let ran = site.run(&args).run().expect(0);
    let text = ran.stderr_text();
    assert!(text.contains("mon: complete. 13 files"), "{text}");
    let line = &site.list()[0];
    assert_eq!((&line["kind"], &line["restorable"]), (&"full".into(), &true.into()));
    assert_eq!(line["mysql_clone"]["page_size"], 16384);
    assert!(line["mysql_clone"]["gtids_to"].as_str().unwrap().ends_with(":1-7"));
    assert_eq!(line["mysql_clone"].get("empty_tables"), None);
    let table = site.run(&["list", &site.url("")]).run().expect(0).stdout_text();
    assert!(table.contains("full clone"), "{table}");
    let shown = site.run(&["show", &site.url("mon")]).run().expect(0).stdout_text();
    assert!(shown.contains("MySQL 9.7.4-2 clone") && shown.contains("xb_clone.json"), "{shown}");
    let stream = site.run(&["get", &site.url("mon")]).run().expect(0).stdout;
    assert!(stream.len() > 79_000_000, "{}", stream.len());
    // Every other command takes it as a backup of one kind more.
    let _ = site.run(&["verify", &site.url("mon"), "--level=checksum"]).run().expect(0);
    let to = format!("file://{}/", site.path("copy").display());
    let _ = site.run(&["copy", &site.url("mon"), &to]).run().expect(0);
    let _ = site.run(&["prune", &site.url(""), "--keep-last=1", "--yes"]).run().expect(0);
    assert_eq!(site.list().as_array().unwrap().len(), 1);
}

#[test]
fn a_run_clones_the_server_of_its_repository() {
    let site = Site::new();
    let _donor = site.donor(vec![recorded()]);
    let defaults = group(&site, "keep-last=3\nserver=db1");
    std::fs::create_dir(site.path("root")).unwrap();
    let checked = site.run(&[&defaults, "check", "@shop"]).run().expect(0).stdout_text();
    let checked = checked.split_whitespace().collect::<Vec<_>>().join(" ");
    for line in ["server", "tls", "grants", "plugin", "packet", "clone", "spool"] {
        assert!(checked.contains(&format!("{line} ok")), "{line}: {checked}");
    }
    assert!(!checked.contains("program"), "{checked}");
    let _ = site.run(&[&defaults, "run", "@shop/first"]).run().expect(0);
    let result: Value =
        serde_json::from_slice(&std::fs::read(site.path("result.json")).unwrap()).unwrap();
    let details = &result["stages"][0]["details"];
    assert_eq!(details["mysql_clone"]["version"], "9.7.4-2");
    assert_eq!((&details["base"], &result["server"]), (&Value::Null, &"db1".into()));
    assert_eq!(site.list()[0]["name"], "first");
}

#[test]
fn a_donor_that_dies_leaves_no_backup() {
    let site = Site::new();
    let messages = recorded();
    let last = messages.len() - 1;
    let places: Vec<usize> = kinds(&messages).into_iter().chain([last]).collect();
    let cut = places.iter().map(|at| messages[..*at].to_vec()).collect();
    let _donor = site.donor(cut);
    for at in &places {
        let ran = site.run(&["backup", &site.url("bad"), &site.from()]).run().expect(6);
        let text = ran.stderr_text();
        assert!(text.contains("cannot clone the server"), "{at}: {text}");
        site.assert_nothing();
    }
}

#[test]
fn a_store_that_fails_in_the_middle_ends_the_clone() {
    let site = Site::new();
    let _donor = site.donor(vec![recorded()]);
    // No file can be longer than half of an object.
    let args = ["backup", &site.url("bad"), &site.from(), "--chunk-size=1M", "--memory=16M"];
    let args = [&args[..], &["--compress=none"]].concat();
    let limit = ["-c", "trap '' XFSZ; ulimit -f 512; exec \"$@\"", "sh"];
    let program = env!("CARGO_BIN_EXE_xbcloud-rs");
    let ran = Cmd::new("/bin/bash").args(limit).arg(program).args(args).run();
    let text = ran.expect_failure().stderr_text();
    assert!(!text.contains("cannot clone"), "the store is the first cause: {text}");
    site.assert_nothing();
}

#[test]
fn a_signal_ends_a_clone_that_waits_and_leaves_nothing() {
    let site = Site::new();
    let mut messages = recorded();
    let half = messages.iter().position(|message| message.descriptor() == Some((3, 3)));
    messages.truncate(half.unwrap());
    messages.push(Message { from: Side::Recipient, content: Content::Bytes(Vec::new()) });
    let _donor = site.donor(vec![messages]);
    let args = ["backup", &site.url("bad"), &site.from(), "--chunk-size=1M", "--compress=none"];
    let mut running = site.run(&args).spawn();
    let runs = || std::fs::read_dir(site.path("root/bad")).into_iter().flatten().flatten();
    let objects = || runs().filter_map(|run| std::fs::read_dir(run.path()).ok()).flatten().count();
    running.until("the first objects are stored", || objects() > 2);
    running.signal(Signal::TERM);
    let _ = running.wait().expect(128 + 15);
    site.assert_nothing();
}

#[test]
fn options_that_do_not_fit_a_clone_are_refused() {
    let site = Site::new();
    let url = site.url("bad");
    let from = site.from();
    for (more, expected) in [
        (&["--", "true"][..], "both say what to back up"),
        (&["--incremental-from=latest"], "always a full backup"),
        (&["--raw"], "only a clone that ended"),
        (&["--last-file=x"], "only a clone that ended"),
        (&["--fifo-streams=2", "--fifo-dir=/tmp"], "--fifo-streams cannot be combined"),
    ] {
        let ran = site.run(&[&["backup", &url, &from], more].concat()).run().expect(2);
        assert!(ran.stderr_text().contains(expected), "{}", ran.stderr_text());
    }
    for bad in ["--from=db1", "--from=mysql://u:secret@db1", "--from=mariadb://db1"] {
        let text = site.run(&["backup", &url, bad]).run().expect_failure().stderr_text();
        assert!(text.contains("without a password") && !text.contains("secret"), "{text}");
    }
    // A producer of the option file contradicts it as well.
    let defaults = group(&site, "producer=true");
    let text = site.run(&[&defaults, "run", "@shop"]).run().expect(2).stderr_text();
    assert!(text.contains("both say what to back up"), "{text}");
}

#[test]
fn another_clone_of_the_server_is_waited_for() {
    let site = Site::new();
    let error = [&[100][..], &3634_i32.to_le_bytes(), b"Too many concurrent clone operations"];
    let mut busy = recorded()[..1].to_vec();
    busy.push(Message { from: Side::Donor, content: Content::Bytes(error.concat()) });
    let _donor = site.donor(vec![busy, recorded()]);
    let ran = site.run(&["backup", &site.url("mon"), &site.from()]).run().expect(0);
    assert!(ran.stderr_text().contains("another clone of this server"), "{}", ran.stderr_text());
}
