//! `run`, `monitor` and the producer's log.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use serde_json::Value;
use xb_testkit::command::{Cmd, Ran};
use xb_testkit::stream::small_backup;

struct Site {
    folder: tempfile::TempDir,
}

impl Site {
    /// A repository whose producer writes `lines` messages, a stream, and ends with `exit`.
    fn new(producer: &str, more: &str) -> Self {
        let site = Self { folder: tempfile::tempdir().unwrap() };
        std::fs::write(site.path("stream"), small_backup(2, 5000)).unwrap();
        let program = site.path("producer");
        std::fs::write(&program, format!("#!/bin/sh\n{producer}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let text = format!(
            "[xbcloud.shop]\nroot={}\nproducer={} {}\nresult={}\nmetrics-file={}\n{more}\n\
             [xbcloud.vault]\nroot={}\n",
            site.url("shop"),
            program.display(),
            site.path("stream").display(),
            site.path("result.json").display(),
            site.path("shop.prom").display(),
            site.url("vault"),
        );
        std::fs::write(site.path("my.cnf"), text).unwrap();
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn url(&self, name: &str) -> String {
        format!("file://{}", self.path(name).display())
    }

    fn run(&self, args: &[&str]) -> Ran {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .arg(format!("--defaults-file={}", self.path("my.cnf").display()))
            .args(args)
            .env("XDG_STATE_HOME", self.path("state"))
            .env("HOME", self.path("home"))
            .arg(format!("--state-dir={}", self.path("state").display()))
            .run()
    }

    fn result(&self) -> Value {
        serde_json::from_slice(&std::fs::read(self.path("result.json")).unwrap()).unwrap()
    }

    fn stages(&self) -> Vec<(String, String)> {
        let result = self.result();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let stages = result["stages"].as_array().unwrap().iter();
        stages.map(|stage| (text(&stage["stage"]), text(&stage["status"]))).collect()
    }

    fn metric(&self, name: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.path("shop.prom")).unwrap();
        let start = format!("{name}{{repository=\"shop\"");
        let line = text.lines().find(|line| line.starts_with(&start))?;
        Some(line.rsplit_once(' ').unwrap().1.to_owned())
    }
}

fn pairs(stages: &[(&str, &str)]) -> Vec<(String, String)> {
    stages.iter().map(|(stage, status)| ((*stage).to_owned(), (*status).to_owned())).collect()
}

#[test]
fn one_run_backs_up_verifies_copies_and_prunes() {
    let site = Site::new("cat \"$1\"", "copy-to=@vault\nkeep-last=1\nname-template={host}-{utc}-x");
    let _ = site.run(&["put", "@shop/old"]);
    let first = site.run(&["run", "@shop/first"]).expect(0);
    assert!(first.stderr_text().lines().count() <= 10, "{}", first.stderr_text());
    let quiet = site.run(&["run", "@shop", "--quiet"]).expect(0);
    assert_eq!((quiet.stderr_text(), quiet.stdout_text()), (String::new(), "".into()));
    let ok = ["backup", "verify", "copy", "prune"].map(|stage| (stage, "ok"));
    assert_eq!(site.stages(), pairs(&ok));
    let result = site.result();
    assert_eq!(
        (&result["format"], &result["status"], &result["exit"]),
        (&1.into(), &"ok".into(), &0.into())
    );
    assert_eq!(result["repository"], "shop");
    assert_eq!(result["stages"][1]["details"]["reached"], "checksum");
    let name = result["name"].as_str().unwrap();
    assert!(name.ends_with("Z-x"), "{name}");
    for key in [
        format!("shop/.xb-catalog/{name}"),
        format!("vault/.xb-catalog/{name}"),
        "vault/.xb-catalog/first".into(),
    ] {
        assert!(site.path(&key).is_file(), "{key}");
    }
    assert_eq!(site.metric("xbcloud_run_success").as_deref(), Some("1"));
    assert!(site.metric("xbcloud_run_last_success_timestamp_seconds").is_some());
    let stored = result["stages"][0]["details"]["stored_bytes"].to_string();
    assert_eq!(site.metric("xbcloud_backup_stored_bytes"), Some(stored));
}

#[test]
fn a_failed_run_says_so_everywhere_and_skips_the_rest() {
    let site =
        Site::new("cat \"$1\"", "copy-to=@vault\nkeep-last=1\non-failure=cp /dev/stdin FAILED");
    let text = std::fs::read_to_string(site.path("my.cnf")).unwrap();
    let failed = site.path("failed.json");
    std::fs::write(site.path("my.cnf"), text.replace("FAILED", &failed.display().to_string()))
        .unwrap();
    let _ = site.run(&["run", "@shop/good"]).expect(0);
    assert!(!failed.exists());
    let success = site.metric("xbcloud_run_last_success_timestamp_seconds");
    let good = std::fs::read(site.path("producer")).unwrap();
    std::fs::write(site.path("producer"), [&good[..], b"seq 1 9000 >&2; exit 3\n"].concat())
        .unwrap();
    let ran = site.run(&["run", "@shop/bad", "--quiet"]).expect_failure();
    let text = ran.stderr_text();
    // The last messages of the producer, and no more.
    assert!(text.contains("\n  9000\n") && !text.contains("\n  8990\n"), "{text}");
    assert!(text.lines().count() <= 10 && text.contains("exit status 3: 9000\nhint: "), "{text}");
    let log = site.path("state/producer-logs/bad.log");
    assert!(text.contains(&log.display().to_string()), "{text}");
    assert_eq!(std::fs::read_to_string(log).unwrap().lines().count(), 9000);
    let skipped =
        [("backup", "failed"), ("verify", "skipped"), ("copy", "skipped"), ("prune", "skipped")];
    assert_eq!(site.stages()[..4], pairs(&skipped));
    assert_eq!(site.stages()[4], ("on-failure".into(), "ok".into()));
    let result = site.result();
    assert_eq!((&result["status"], &result["exit"]), (&"failed".into(), &6.into()));
    assert_eq!(result["error"]["stage"], "backup");
    assert!(result["error"]["message"].as_str().unwrap().contains("exit status 3"));
    // The hook read the same error.
    let hook: Value = serde_json::from_slice(&std::fs::read(failed).unwrap()).unwrap();
    assert_eq!(hook["error"], result["error"]);
    assert_eq!(site.metric("xbcloud_run_success").as_deref(), Some("0"));
    assert_eq!(site.metric("xbcloud_run_last_success_timestamp_seconds"), success);
    // Nothing was pruned: the good backup is still there.
    assert!(site.path("shop/.xb-catalog/good").is_file());
}

#[test]
fn hooks_run_in_order_and_a_failing_one_ends_the_run() {
    let site = Site::new(
        "cat \"$1\"",
        "verify=none\nbefore=sh -c 'cat > \"$0/one\"' DIR\nafter=sh -c 'cat > \"$0/two\"; exit 9' DIR",
    );
    let text = std::fs::read_to_string(site.path("my.cnf")).unwrap();
    let dir = site.folder.path().display().to_string();
    std::fs::write(site.path("my.cnf"), text.replace("DIR", &dir)).unwrap();
    let ran = site.run(&["run", "@shop/n"]).expect_failure();
    assert!(
        ran.stderr_text().contains("hook --after: sh failed with exit status 9"),
        "{}",
        ran.stderr_text()
    );
    assert_eq!(site.stages(), pairs(&[("before", "ok"), ("backup", "ok"), ("after", "failed")]));
    let read = |name: &str| -> Value {
        serde_json::from_slice(&std::fs::read(site.path(name)).unwrap()).unwrap()
    };
    assert_eq!((&read("one")["name"], &read("one")["status"]), (&"n".into(), &"running".into()));
    assert_eq!(read("two")["stages"][1]["details"]["name"], "n");
    let text = std::fs::read_to_string(site.path("my.cnf")).unwrap();
    std::fs::write(
        site.path("my.cnf"),
        text.replace("before=sh -c 'cat > \"$0/one\"'", "before=false"),
    )
    .unwrap();
    let _ = site.run(&["run", "@shop/m"]).expect_failure();
    assert_eq!(site.stages(), pairs(&[("before", "failed"), ("backup", "skipped")]));
    assert!(!site.path("shop/.xb-catalog/m").exists());
}

#[test]
fn faults_of_a_run_are_found_before_the_producer_starts() {
    let site = Site::new("touch \"$0.started\"; cat \"$1\"", "");
    for (args, text) in [
        (&["--result=/no/such/folder/x"][..], "/no/such/folder"),
        (&["--metrics-file=/"], "cannot write /: is a directory\nhint: name a file in it"),
        (&["--metrics-file=/tmp/x.txt"], "end in .prom"),
        (&["--metrics-file=/no/such/x.prom"], "cannot write /no/such/x.prom: No such file"),
        (&["--producer=/no/such/program"], "cannot start /no/such/program"),
        (&["--producer=cat 'x"], "a quote or an escape is not closed"),
        (&["--copy-to=s4://vault/shop/"], "`s4://` is not supported"),
        (&["--copy-to=@shop/n"], "the place of the backup itself"),
        (&["--before=  "], "--before"),
        (&["--after='x"], "--after"),
        (&["--verify=everything"], "--verify"),
        (&["--verify=pages", "--check-sql=SELECT 1"], "--check-sql runs on the server"),
        (&["--encrypt-key-file=/no/such/key"], "/no/such/key"),
        (&["--copy-to=@nowhere"], "[xbcloud.nowhere]"),
    ] {
        let ran = site.run(&[&["run", "@shop/n"], args].concat());
        assert_ne!(ran.status.code(), Some(0));
        assert!(ran.stderr_text().contains(text), "{args:?}: {}", ran.stderr_text());
    }
    assert!(!site.path("producer.started").exists() && !site.path("shop").exists());
    for producer in ["--producer=/no/such/program", "--producer=cat 'x"] {
        let _ = site.run(&["backup", "@shop/n", producer]).expect_failure();
        assert!(!site.path("shop").exists(), "{producer}: the directory was created");
    }
}

/// A host with only a recipient cannot authenticate what it verifies. That is no warning.
#[test]
fn a_good_night_of_sealed_backups_is_silent() {
    let recipient = "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";
    let site = Site::new("cat \"$1\"", &format!("recipient={recipient}"));
    let ran = site.run(&["run", "@shop/a", "--quiet"]).expect(0);
    assert_eq!((ran.stderr_text(), ran.stdout_text()), (String::new(), "".into()));
    let ran = site.run(&["run", "@shop/b"]).expect(0);
    let text = ran.stderr_text();
    assert!(text.contains("note: without a key") && !text.contains("warning"), "{text}");
    let ran = site.run(&["verify", "@shop/b", "--level=checksum"]).expect(0);
    assert!(ran.stdout_text().contains("checksum  ok      1 object\n"), "{}", ran.stdout_text());
}

/// A program that mounts the file system of the repository.
#[test]
fn a_local_repository_may_appear_with_the_first_hook() {
    let site = Site::new("cat \"$1\"", "");
    let text = std::fs::read_to_string(site.path("my.cnf")).unwrap();
    let disk = site.path("disk");
    let text = text.replace(&site.url("shop"), &format!("{}/shop", site.url("disk")));
    let text = text
        .replace("[xbcloud.vault]", &format!("before=mkdir {}\n[xbcloud.vault]", disk.display()));
    std::fs::write(site.path("my.cnf"), text).unwrap();
    let _ = site.run(&["run", "@shop/n"]).expect(0);
    assert!(disk.join("shop/.xb-catalog/n").is_file());
}

/// A signal that comes when a stage is over ends the run before the next one: a prune, or a proof of hours.
#[test]
fn no_stage_begins_after_a_signal() {
    let site = Site::new("cat \"$1\"", "keep-last=1");
    // The parent of a hook is its guardian, and that one's the program.
    let hook = "--before=sh -c 'kill -TERM $(cut -d\" \" -f4 /proc/$PPID/stat)'";
    let ran = site.run(&["run", "@shop/n", hook]).expect(143);
    // The hook's own shell may still be there when the signal comes.
    assert!(ran.stderr_text().contains("by signal 15"), "{ran:?}");
    assert!(!site.path("shop/.xb-catalog/n").exists());
    let result = site.result();
    assert_eq!((&result["status"], &result["exit"]), (&"failed".into(), &143.into()), "{result}");
    let backup = site.stages().into_iter().find(|(stage, _)| stage == "backup").unwrap();
    assert_ne!(backup.1, "ok", "{result}");
}

/// No store takes keys in a URL. What refuses them must not keep them in a file that everyone may read.
#[test]
fn keys_in_a_url_are_in_no_result() {
    let site = Site::new("cat \"$1\"", "");
    let options = [
        format!("--result={}", site.path("result.json").display()),
        format!("--metrics-file={}", site.path("shop.prom").display()),
        "--producer=true".to_owned(),
    ];
    let [result, metrics, producer] = options.each_ref().map(String::as_str);
    for place in ["s3://AKIAKEY:top/secret@b/shop/n", "s3://topsecret@b/shop/n"] {
        let ran = site.run(&["run", place, result, metrics, producer]).expect_failure();
        for file in ["result.json", "shop.prom"] {
            let text = std::fs::read_to_string(site.path(file)).unwrap();
            assert!(!text.contains("secret") && text.contains("s3://***@b/shop"), "{text}");
        }
        assert!(!ran.stderr_text().contains("secret"), "{ran:?}");
        let ran = site.run(&["monitor", place, "--json"]).expect_failure();
        assert!(!ran.stdout_text().contains("secret"), "{ran:?}");
    }
}

/// The result of last night must not stay the last one.
#[test]
fn a_key_that_is_missing_is_a_result_too() {
    let site = Site::new("cat \"$1\"", "");
    let _ = site.run(&["run", "@shop/n"]).expect(0);
    let _ = site.run(&["run", "@shop/m", "--encrypt-key-file=/no/such/key"]).expect_failure();
    let result = site.result();
    assert_eq!(
        (&result["status"], &result["error"]["stage"]),
        (&"failed".into(), &"settings".into())
    );
    assert!(result["error"]["message"].as_str().unwrap().contains("/no/such/key"), "{result}");
}

/// Answers the first request, and returns it.
fn first_request(listener: TcpListener) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\n}\n") {
            let mut bytes = [0; 4096];
            let read = peer.read(&mut bytes).unwrap();
            assert!(read > 0);
            request.extend_from_slice(&bytes[..read]);
        }
        peer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            .unwrap();
        String::from_utf8(request).unwrap()
    })
}

/// The lines of an option file with which the heartbeats go to `listener`.
fn heartbeats(listener: &TcpListener) -> String {
    let address = listener.local_addr().unwrap();
    format!("heartbeat-url=http://{address}/good\nheartbeat-failure-url=http://{address}/bad")
}

/// Whoever listens believes the first heartbeat: it must be that of the whole night.
#[test]
fn no_heartbeat_tells_of_success_before_the_metrics_are_written() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let site = Site::new("cat \"$1\"; rm -f METRICS; mkdir METRICS", &heartbeats(&listener));
    let program = std::fs::read_to_string(site.path("producer")).unwrap();
    let metrics = site.path("shop.prom").display().to_string();
    std::fs::write(site.path("producer"), program.replace("METRICS", &metrics)).unwrap();
    let server = first_request(listener);
    let hook = format!("--on-failure=touch {}", site.path("told").display());
    let ran = site.run(&["run", "@shop/n", &hook]).expect_failure();
    let said = ran.stderr_text();
    assert_eq!(said.matches("cannot write").count(), 1, "{said}");
    let request = server.join().unwrap();
    assert!(request.starts_with("POST /bad ") && request.contains("\"status\": \"failed\""));
    assert_eq!(site.result()["status"], "failed");
    assert!(site.path("told").exists());
}

#[test]
fn a_fault_in_the_option_file_is_told_where_the_rest_of_the_file_says() {
    for wrong in ["no-such-option=1", "no equals sign", "before", "quiet=perhaps"] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let site = Site::new("cat \"$1\"", &format!("{wrong}\n{}", heartbeats(&listener)));
        let server = first_request(listener);
        let ran = site.run(&["run", "@shop/n"]).expect_failure();
        assert!(ran.stderr_text().contains("my.cnf line 6"), "{ran:?}");
        assert_eq!(site.metric("xbcloud_run_success").as_deref(), Some("0"), "{wrong}");
        assert_eq!(site.result()["status"], "failed", "{wrong}");
        let request = server.join().unwrap();
        assert!(request.starts_with("POST /bad "), "{wrong}: {request}");
        assert!(!request.contains("heartbeat"), "the address is a secret: {request}");
    }
}

#[test]
fn a_heartbeat_is_posted_and_its_failure_is_only_a_warning() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("heartbeat-url=http://{}/topsecret", listener.local_addr().unwrap());
    let site = Site::new("cat \"$1\"", &url);
    let server = first_request(listener);
    let _ = site.run(&["run", "@shop/n"]).expect(0);
    let request = server.join().unwrap();
    assert!(
        request.starts_with("POST /topsecret ") && request.contains("\"status\": \"ok\""),
        "{request}"
    );
    // The server is gone.
    let ran = site.run(&["run", "@shop/m"]).expect(0);
    let text = ran.stderr_text();
    assert!(
        text.contains("heartbeat not sent: cannot reach 127.0.0.1") && !text.contains("topsecret"),
        "{text}"
    );
    assert_eq!(site.result()["warnings"].as_array().unwrap().len(), 1);
}

#[test]
fn a_monitor_judges_age_and_proof() {
    let site = Site::new("cat \"$1\"", "verify=none");
    let monitor = |args: &[&str], code: i32| {
        site.run(&[&["monitor", "@shop"], args].concat()).expect(code).stdout_text().to_string()
    };
    // Nothing could be read.
    let text = monitor(&[], 3);
    assert!(text.starts_with("XBCLOUD UNKNOWN - ") && text.lines().count() == 1, "{text}");
    let _ = site.run(&["run", "@shop/n"]).expect(0);
    let text = monitor(&["--max-age=26h"], 0);
    assert!(text.starts_with("XBCLOUD OK - shop: the newest backup n is "), "{text}");
    assert!(text.contains(" | backups=1;;;0 age="), "{text}");
    let text = monitor(&["--max-age=26h", "--max-proof-age=8d"], 2);
    assert!(text.starts_with("XBCLOUD CRITICAL - shop: no backup is verified"), "{text}");
    let _ = site.run(&["verify", "@shop/n", "--level=checksum"]).expect(0);
    let text = monitor(&["--max-age=26h", "--max-proof-age=8d"], 0);
    assert!(
        text.contains("the newest proven backup (checksum of n) is ")
            && text.contains("proof_age="),
        "{text}"
    );
    let _ = monitor(&["--max-proof-age=8d", "--proof-level=restore"], 2);
    assert!(monitor(&["--server=other"], 2).contains("there is no backup"));
    // Nobody archives the log.
    for limit in ["--max-binlog-age=15m", "--max-binlog-proof-age=8d"] {
        let text = monitor(&["--max-age=26h", limit], 2);
        assert!(
            text.contains("the archived log of ") && text.contains(" has no transaction"),
            "{limit}: {text}"
        );
    }
    let _ = monitor(&["--max-age=soon"], 2);
}

#[test]
fn messages_of_a_producer_go_to_its_log() {
    let site = Site::new("echo quiet talk >&2; cat \"$1\"", "");
    let ran = site.run(&["backup", "@shop/a"]).expect(0);
    assert!(!ran.stderr_text().contains("quiet talk"), "{}", ran.stderr_text());
    let log = std::fs::read_to_string(site.path("state/producer-logs/a.log")).unwrap();
    assert_eq!(log, "quiet talk\n");
    let ran = site.run(&["backup", "@shop/b", "--producer-log=-"]).expect(0);
    assert!(ran.stderr_text().contains("quiet talk"));
    let ran = site.run(&["backup", "@shop/c", "--verbose"]).expect(0);
    assert!(ran.stderr_text().contains("quiet talk") && ran.stderr_text().contains("c.log"));
    let file = format!("--producer-log={}", site.path("own.log").display());
    let _ = site.run(&["backup", "@shop/d", &file]).expect(0);
    assert_eq!(std::fs::read_to_string(site.path("own.log")).unwrap(), "quiet talk\n");
    let ran = site.run(&["backup", "@shop/e", "--producer-log=/no/such/folder/x"]).expect_failure();
    assert!(ran.stderr_text().contains("--producer-log"), "{}", ran.stderr_text());
    assert!(!site.path("shop/.xb-catalog/e").exists());
    // Without a place for the file, the messages are no mail of every night; a warning names the place.
    std::fs::write(site.path("plain"), "").unwrap();
    let state = format!("--state-dir={}", site.path("plain").display());
    let ran = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .arg(format!("--defaults-file={}", site.path("my.cnf").display()))
        .args(["backup", "@shop/f", &state])
        .run()
        .expect(0);
    let text = ran.stderr_text();
    assert!(text.contains("plain/producer-logs") && !text.contains("quiet talk"), "{text}");
}

/// With `or-full` no night stays empty, and the result says what was taken instead.
#[test]
fn a_run_takes_a_full_backup_where_no_base_fits() {
    let site = Site::new("cat \"$1\"", "incremental-from=latest\nor-full");
    // There is no backup, then one of a server of which nothing is known.
    for name in ["first", "second"] {
        let said = site.run(&["run", &format!("@shop/{name}")]).expect(0).stderr_text();
        assert!(said.contains("a full backup is taken instead"), "{said}");
        let result = site.result();
        assert_eq!(result["stages"][0]["details"]["base"], Value::Null, "{result}");
        assert!(result["warnings"][0].as_str().unwrap().contains("no base fits"), "{result}");
    }
    let options = std::fs::read_to_string(site.path("my.cnf")).unwrap();
    std::fs::write(site.path("my.cnf"), options.replace("or-full", "")).unwrap();
    let said = site.run(&["run", "@shop/third"]).expect_failure().stderr_text();
    assert!(said.contains("--or-full") && said.contains("--accept-history"), "{said}");
    assert_eq!(site.stages()[0], ("backup".into(), "failed".into()));
}

/// A repository whose backups are sealed from now on, and a host that has lost its notes, as a container without a volume
/// does: who wrote the base is unknown, and a full backup needs none.
#[test]
fn a_run_takes_a_full_backup_where_nothing_proves_its_base() {
    let recipient = "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";
    let options = format!(
        "incremental-from=latest\nor-full\naccept-history\nrecipient={recipient}\nserver=one\nverify=none"
    );
    let site = Site::new("cat \"$1\"", &options);
    let stream = |from: u64, to: u64| {
        let mut out = xb_testkit::stream::StreamWriter::new(Vec::new());
        let _ = out.positions(from, to).info();
        std::fs::write(site.path("stream"), out.finish()).unwrap();
    };
    let base = || site.result()["stages"][0]["details"]["base"].clone();
    let taken_instead = |name: &str, why: &str| {
        let said = site.run(&["run", &format!("@shop/{name}")]).expect(0).stderr_text();
        assert!(said.contains("a full backup is taken instead") && said.contains(why), "{said}");
        assert_eq!(base(), Value::Null);
    };
    stream(0, 10);
    let put = ["--no-defaults", "put", "--server=one", &format!("{}/unsealed", site.url("shop"))];
    let put = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).args(put);
    let _ = put.stdin_file(site.path("stream")).run().expect(0);
    taken_instead("sealed", "unsealed is not sealed");
    stream(10, 20);
    let _ = site.run(&["run", "@shop/own"]).expect(0);
    assert_eq!(base(), "sealed");
    std::fs::rename(site.path("state"), site.path("lost")).unwrap();
    stream(0, 30);
    taken_instead("first", "this host did not write it");
    // The first night of another server in this repository.
    let said = site.run(&["run", "@shop/second", "--server=two"]).expect(0).stderr_text();
    assert!(said.contains("comes from server one, but this is two"), "{said}");
    // A manifest that was changed since this host wrote it is for a person.
    let notes = std::fs::read_dir(site.path("state")).unwrap().map(|file| file.unwrap().path());
    for note in notes.filter(|path| path.is_file()) {
        let text = std::fs::read_to_string(&note).unwrap();
        std::fs::write(&note, text.replace("\"to_lsn\":30", "\"to_lsn\":31")).unwrap();
    }
    let said = site.run(&["run", "@shop/never"]).expect_failure().stderr_text();
    assert!(said.contains("the manifest of first was changed"), "{said}");
}

/// A key that was replaced is no reason for a night without a backup: the first one with the new key is a full one, and the
/// next ones are based on it.
#[test]
fn a_run_takes_a_full_backup_where_its_key_opens_no_base() {
    let options = "incremental-from=latest\nor-full\naccept-history\nserver=one\nverify=decrypt";
    let site = Site::new("cat \"$1\"", options);
    let key = site.path("key");
    let night = |name: &str, byte: u8, (from, to): (u64, u64)| {
        std::fs::write(&key, [byte; 32]).unwrap();
        let mut out = xb_testkit::stream::StreamWriter::new(Vec::new());
        let _ = out.positions(from, to).info();
        std::fs::write(site.path("stream"), out.finish()).unwrap();
        let key = format!("--encrypt-key-file={}", key.display());
        let said = site.run(&["run", &format!("@shop/{name}"), &key]).expect(0).stderr_text();
        (site.result()["stages"][0]["details"]["base"].clone(), said)
    };
    assert_eq!(night("old", 1, (0, 10)).0, Value::Null);
    std::fs::rename(site.path("state"), site.path("lost")).unwrap();
    let (base, said) = night("first", 2, (0, 20));
    assert_eq!(base, Value::Null);
    assert!(
        said.contains("the manifest of old is not authenticated") && said.contains("key"),
        "{said}"
    );
    assert_eq!(night("second", 2, (20, 30)).0, "first");
}

#[test]
fn nothing_is_pruned_after_a_night_that_shrinks_until_it_is_accepted() {
    let site = Site::new("cat \"$1\"", "keep-last=2");
    let night = |name: &str, size: usize| {
        std::fs::write(site.path("stream"), small_backup(2, size)).unwrap();
        site.run(&["run", &format!("@shop/{name}")]).expect(0)
    };
    let there = |name: &str| site.path(&format!("shop/.xb-catalog/{name}")).is_file();
    ["n1", "n2", "n3"].iter().for_each(|name| drop(night(name, 50_000)));
    assert_eq!(["n1", "n2", "n3"].map(there), [false, true, true]);
    assert_eq!(site.metric("xbcloud_backup_shrunk").as_deref(), Some("0"));
    let _ = site.run(&["monitor", "@shop", "--max-age=1h"]).expect(0);
    for name in ["n4", "n5", "n6", "n7"] {
        let told = night(name, 500).stderr_text();
        assert!(told.contains(&format!("{name} is much smaller than usual")), "{told}");
        let result = site.result();
        assert!(result["warnings"][0].as_str().unwrap().contains(" bytes instead of "), "{result}");
        assert!(result["stages"][0]["details"]["shrunk"].is_string());
        assert_eq!(site.metric("xbcloud_backup_shrunk").as_deref(), Some("1"));
    }
    assert!(["n2", "n3", "n4", "n5", "n6", "n7"].map(there).iter().all(|there| *there));
    // `prune` by hand waits, too, and says for what.
    let by_hand = site.run(&["prune", "@shop", "--keep-last=2", "--yes"]).expect(0);
    assert!(by_hand.stdout_text().contains("n7 is much smaller than usual"));
    let warned = site.run(&["monitor", "@shop", "--max-age=1h"]).expect(1).stdout_text();
    assert!(warned.contains("WARNING") && warned.contains("n7 is much smaller"), "{warned}");
    let listed = site.run(&["list", "@shop"]).expect(0).stdout_text();
    assert!(listed.contains("much smaller than usual"), "{listed}");
    // From the accepted one on, its size is the usual one.
    let accept = || site.run(&["accept", "@shop/n7", "--reason=archived"]).expect(0);
    let _ = accept();
    let _ = site.run(&["monitor", "@shop", "--max-age=1h"]).expect(0);
    for said in ["no longer accepted", "it was not accepted"] {
        let undone = site.run(&["accept", "@shop/n7", "--undo"]).expect(0);
        assert!(undone.stderr_text().contains(said), "{}", undone.stderr_text());
        let _ = site.run(&["monitor", "@shop", "--max-age=1h"]).expect(1);
    }
    let _ = accept();
    let _ = night("n8", 500);
    assert_eq!(site.metric("xbcloud_backup_shrunk").as_deref(), Some("0"));
    assert_eq!(["n3", "n6", "n7", "n8"].map(there), [false, false, true, true]);
    // The word goes with the backup.
    let record = site.path("shop/.xb-catalog/@accepted/n7");
    assert!(record.is_file());
    let _ = site.run(&["delete", "@shop/n7", "--yes"]).expect(0);
    assert!(!record.exists());
}

/// What retention leaves must not decide which size is the usual one.
#[test]
fn backups_that_shrank_displace_no_good_one_when_the_size_is_back() {
    let site = Site::new("cat \"$1\"", "keep-last=2");
    let made = |command: &str, name: &str, size: usize| {
        std::fs::write(site.path("stream"), small_backup(2, size)).unwrap();
        site.run(&[command, &format!("@shop/{name}")]).expect(0).stderr_text()
    };
    let night = |name: &str, size| made("run", name, size);
    let there = |names: &[&str]| {
        let is_there = |name: &&&str| site.path(&format!("shop/.xb-catalog/{name}")).is_file();
        names.iter().filter(is_there).map(|name| (*name).to_owned()).collect::<Vec<_>>()
    };
    let all = ["g1", "g2", "s3", "s4", "g5", "g6", "s7", "g8", "g9"];
    ["g1", "g2"].iter().for_each(|name| drop(night(name, 50_000)));
    // One is made by hand, so `run` has not looked at it.
    assert!(night("s3", 500).contains("much smaller"));
    let _ = made("backup", "s4", 500);
    let _ = night("g5", 50_000);
    assert_eq!(there(&all), ["g2", "s3", "s4", "g5"]);
    let _ = night("g6", 50_000);
    assert_eq!(there(&all), ["s3", "s4", "g5", "g6"]);
    // They are the oldest now, and no usual size.
    let listed = site.run(&["list", "@shop", "--json"]).expect(0);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let small = |name: &str| {
        let line = listed.as_array().unwrap().iter().find(|line| line["name"] == name).unwrap();
        line["shrunk"].is_string()
    };
    assert_eq!(["s3", "s4", "g5", "g6"].map(small), [true, true, false, false]);
    assert!(night("s7", 500).contains("much smaller"));
    let _ = site.run(&["monitor", "@shop"]).expect(1);
    ["g8", "g9"].iter().for_each(|name| drop(night(name, 50_000)));
    assert_eq!(there(&all), ["s3", "s4", "s7", "g8", "g9"]);
    // An accepted one counts, with those of its size just before it.
    let _ = site.run(&["accept", "@shop/s4"]).expect(0);
    let _ = site.run(&["prune", "@shop", "--keep-last=2", "--yes"]).expect(0);
    assert_eq!(there(&all), ["s7", "g8", "g9"]);
}

/// Older backups of the former size may stay for a year, as monthly ones do.
#[test]
fn an_accepted_size_stays_the_usual_one_when_its_backup_is_gone() {
    let site = Site::new("cat \"$1\"", "keep-last=2");
    let night = |name: &str, size: usize| {
        std::fs::write(site.path("stream"), small_backup(2, size)).unwrap();
        site.run(&["run", &format!("@shop/{name}")]).expect(0).stderr_text()
    };
    let pin = |name: &str| drop(site.run(&["pin", &format!("@shop/{name}")]).expect(0));
    for name in ["g1", "g2", "g3"] {
        let _ = night(name, 50_000);
        pin(name);
    }
    assert!(night("s1", 18_000).contains("much smaller"));
    pin("s1");
    assert!(night("s2", 18_000).contains("much smaller"));
    // Those of its size just before it count, too.
    let _ = site.run(&["accept", "@shop/s2"]).expect(0);
    for name in ["s3", "s4", "s5", "s6"] {
        let said = night(name, 18_000);
        assert!(!said.contains("much smaller"), "{name}: {said}");
    }
    let listed = site.run(&["list", "@shop", "--json"]).expect(0);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let listed = listed.as_array().unwrap();
    assert!(listed.iter().all(|line| line["name"] != "s2"), "{listed:#?}");
    assert!(listed.iter().all(|line| !line["shrunk"].is_string()), "{listed:#?}");
}

/// A disk that is not mounted, or a folder that was moved: what is made in its place must not look like the repository,
/// nor be pruned by its rules.
#[test]
fn a_repository_that_is_gone_is_missed_until_it_is_back_or_its_loss_accepted() {
    let site = Site::new("cat \"$1\"", "keep-last=1");
    let night = |name: &str| {
        let ran = site.run(&["run", &format!("@shop/{name}")]).expect(0);
        let result = site.result();
        let begun = result["stages"][0]["details"]["begun_anew"].is_string();
        let metric = site.metric("xbcloud_repository_begun_anew");
        assert_eq!(metric.as_deref(), Some(if begun { "1" } else { "0" }));
        let prune = if begun { "skipped" } else { "ok" };
        assert_eq!(site.stages().last().unwrap(), &("prune".into(), prune.into()));
        if begun {
            let first = result["warnings"][0].as_str().unwrap().to_owned();
            assert!(ran.stderr_text().lines().take(2).any(|line| line.ends_with(&first)));
            assert!(
                first.contains("n2 of ") && first.contains("accept ROOT --begun-anew"),
                "{first}"
            );
        }
        begun
    };
    let there = |name: &str| site.path(&format!("shop/.xb-catalog/{name}")).is_file();
    let monitor = |exit| site.run(&["monitor", "@shop"]).expect(exit).stdout_text();
    let rename = |from: &str, to: &str| std::fs::rename(site.path(from), site.path(to)).unwrap();
    // Neither a first use nor a retention that keeps the newest alone is a loss.
    assert_eq!(["n1", "n2"].map(night), [false, false]);
    assert_eq!(["n1", "n2"].map(there), [false, true]);
    let _ = monitor(0);
    rename("shop", "away");
    assert!(monitor(2).contains("n2 of "));
    assert_eq!(["n3", "n4"].map(night), [true, true]);
    assert_eq!(["n3", "n4"].map(there), [true, true]);
    let said = monitor(2);
    assert!(said.contains("CRITICAL") && said.contains("begun anew at "), "{said}");
    let by_hand = site.run(&["prune", "@shop", "--keep-last=1", "--yes"]).expect(1).stderr_text();
    assert!(
        by_hand.contains("nothing is pruned: ") && by_hand.contains("--begun-anew"),
        "{by_hand}"
    );
    for command in ["put", "backup"] {
        let said = site.run(&[command, &format!("@shop/{command}")]);
        assert!(said.stderr_text().contains("n2 of "), "{}", said.stderr_text());
    }
    // What has its name now may go.
    let _ = site.run(&["backup", "@shop/n2"]).expect(0);
    let _ = site.run(&["delete", "@shop/n2", "--yes"]).expect(0);
    assert!(monitor(2).contains("n2 of "));
    // It is back.
    rename("shop", "under");
    rename("away", "shop");
    let _ = monitor(0);
    assert!(!night("n5"));
    assert_eq!(["n2", "n5"].map(there), [false, true]);
    // It was moved on purpose.
    rename("shop", "moved");
    std::fs::create_dir(site.path("shop")).unwrap();
    assert!(monitor(2).contains("n5 of "));
    let accept = || site.run(&["accept", "@shop", "--begun-anew"]);
    let _ = accept().expect(0);
    let _ = site.run(&["backup", "@shop/n6"]).expect(0);
    let _ = monitor(0);
    assert!(!night("n7"));
    // What this host deletes is not lost.
    let _ = site.run(&["delete", "@shop/n7", "--yes"]).expect(0);
    assert!(!night("n8"));
    let _ = accept().expect(0);
    assert!(accept().expect(1).stderr_text().contains("remembers no backup"));
}

/// A snapshot of last week, or another disk.
#[test]
fn a_repository_that_was_set_back_is_named_by_the_next_backup() {
    let site = Site::new("cat \"$1\"", "copy-to=@vault");
    let night = |name: &str| {
        let _ = site.run(&["run", &format!("@shop/{name}")]).expect(0);
        let result = site.result();
        let said = |stage: usize| result["stages"][stage]["details"]["set_back"].as_str().is_some();
        let warnings = result["warnings"].as_array().unwrap().len();
        (said(0), said(2), warnings)
    };
    let set_back = |root: &str, name: &str| {
        let key = format!("{root}/.xb-catalog/{name}");
        std::fs::remove_file(site.path(&key)).unwrap();
        std::fs::remove_dir_all(site.path(&format!("{root}/{name}"))).unwrap();
    };
    assert_eq!(["n1", "n2"].map(night), [(false, false, 0); 2]);
    set_back("shop", "n2");
    let said = site.run(&["monitor", "@shop"]).expect(1).stdout_text();
    assert!(
        said.contains("WARNING") && said.contains("n2 of ") && said.contains("set back"),
        "{said}"
    );
    assert_eq!(night("n3"), (true, false, 1));
    let warning = site.result()["warnings"][0].as_str().unwrap().to_owned();
    assert!(warning.starts_with("n2 of ") && warning.contains("set back"), "{warning}");
    let _ = site.run(&["monitor", "@shop"]).expect(0);
    assert_eq!(night("n4"), (false, false, 0));
    set_back("vault", "n4");
    assert_eq!(night("n5"), (false, true, 1));
    // One that is older is missed by no one: rules remove it.
    set_back("shop", "n4");
    assert_eq!(night("n6"), (false, false, 0));
}

/// The note may say that the repository was begun anew.
#[test]
fn nothing_is_pruned_while_the_note_about_its_repository_cannot_be_read() {
    let site = Site::new("cat \"$1\"", "");
    for name in ["n1", "n2"] {
        let _ = site.run(&["backup", &format!("@shop/{name}")]).expect(0);
    }
    let note = std::fs::read_dir(site.path("state/roots")).unwrap().next().unwrap().unwrap().path();
    std::fs::remove_file(&note).unwrap();
    std::fs::create_dir(&note).unwrap();
    let prune = |exit| site.run(&["prune", "@shop", "--keep-last=1", "--yes"]).expect(exit);
    let said = prune(1).stderr_text();
    assert!(said.contains("nothing is pruned: it is unknown") && said.contains("hint: "), "{said}");
    assert!(site.path("shop/.xb-catalog/n1").is_file());
    // Nor by a run, which says so.
    let _ = site.run(&["run", "@shop/n3", "--keep-last=1"]).expect(0);
    assert_eq!(site.stages().last().unwrap(), &("prune".into(), "skipped".into()));
    let warning = site.result()["warnings"][0].as_str().unwrap().to_owned();
    assert!(
        warning.contains("note cannot be read") && warning.contains("prunes nothing"),
        "{warning}"
    );
    assert!(site.path("shop/.xb-catalog/n1").is_file());
    std::fs::remove_dir(&note).unwrap();
    let _ = prune(0);
    assert!(!site.path("shop/.xb-catalog/n1").exists());
}

/// After the first of them has made a new backup, the repository is not empty.
#[test]
fn each_host_that_shares_a_repository_misses_the_backups_of_its_server() {
    let site = Site::new("cat \"$1\"", "keep-last=1");
    let night = |server: &str, name: &str| {
        let state = site.path("state");
        let own = site.path(&format!("state-{server}"));
        if own.exists() {
            std::fs::rename(&own, &state).unwrap();
        }
        let of = format!("--server={server}");
        let _ = site.run(&["run", &format!("@shop/{name}"), &of]).expect(0);
        let monitor = site.run(&["monitor", "@shop"]);
        let begun = site.result()["stages"][0]["details"]["begun_anew"].as_str().map(str::to_owned);
        std::fs::rename(&state, &own).unwrap();
        let is_critical = monitor.stdout_text().contains("CRITICAL");
        assert_eq!(is_critical, begun.is_some(), "{monitor:?}");
        begun
    };
    for (server, name) in [("a", "a1"), ("b", "b1"), ("c", "c1"), ("a", "a2"), ("b", "b2")] {
        assert_eq!(night(server, name), None);
    }
    std::fs::rename(site.path("shop"), site.path("away")).unwrap();
    for (server, name, missed) in [("a", "a3", "a2"), ("b", "b3", "b2"), ("c", "c2", "c1")] {
        let said = night(server, name).expect(server);
        let all = format!("all backups of {server} before it are gone");
        assert!(said.contains(&format!("{missed} of ")) && said.contains(&all), "{said}");
    }
    // It is back, and nothing of what was made in its place is missed.
    std::fs::rename(site.path("shop"), site.path("under")).unwrap();
    std::fs::rename(site.path("away"), site.path("shop")).unwrap();
    for (server, name) in [("c", "c3"), ("a", "a4"), ("b", "b4")] {
        assert_eq!(night(server, name), None);
    }
}

#[test]
fn a_destination_of_copies_that_is_gone_is_missed() {
    let site = Site::new("cat \"$1\"", "copy-to=@vault");
    let _ = site.run(&["run", "@shop/n1"]).expect(0);
    assert_eq!(site.result()["warnings"], serde_json::json!([]));
    std::fs::remove_dir_all(site.path("vault")).unwrap();
    let _ = site.run(&["run", "@shop/n2"]).expect(0);
    let warning = site.result()["warnings"][0].as_str().unwrap().to_owned();
    assert!(
        warning.starts_with("destination of the copy: ") && warning.contains("n1 of "),
        "{warning}"
    );
    let _ = site.run(&["accept", "@vault", "--begun-anew"]).expect(0);
    let _ = site.run(&["run", "@shop/n3"]).expect(0);
    assert_eq!(site.result()["warnings"], serde_json::json!([]));
}

/// A slip in the name of a repository.
#[test]
fn a_list_of_nothing_names_what_is_beside_it() {
    let site = Site::new("cat \"$1\"", "");
    let _ = site.run(&["backup", "@shop/n1"]).expect(0);
    std::fs::create_dir(site.path("sho")).unwrap();
    let empty = site.run(&["list", &site.url("sho")]).expect(0).stderr_text();
    assert!(empty.contains("there is no backup") && empty.contains("folders beside it: shop"));
    let missing = site.run(&["list", &site.url("shpo")]).expect_failure().stderr_text();
    assert!(missing.contains("folders beside it: shop"), "{missing}");
}

#[test]
fn every_fault_of_the_options_is_reported() {
    let site = Site::new("cat \"$1\"", "on-failure=cp /dev/stdin FAILED");
    let text = std::fs::read_to_string(site.path("my.cnf")).unwrap();
    let failed = site.path("failed.json");
    std::fs::write(site.path("my.cnf"), text.replace("FAILED", &failed.display().to_string()))
        .unwrap();
    let nowhere = site.path("nowhere/file").display().to_string();
    for (wrong, writes_result) in [
        (format!("--result={nowhere}"), false),
        (format!("--report={nowhere}"), true),
        ("--keep-last=0".to_owned(), true),
        ("--keep-last=many".to_owned(), true),
        ("--no-such-option".to_owned(), true),
        ("--before='never closed".to_owned(), true),
        ("--name-template={nonsense}".to_owned(), true),
    ] {
        let _ = site.run(&["run", "@shop/good", "--take-over"]);
        let _ = site.run(&["delete", "@shop/good", "--yes"]).expect(0);
        assert_eq!(site.metric("xbcloud_run_success").as_deref(), Some("1"), "{wrong}");
        let ran = site.run(&["run", "@shop", &wrong]).expect_failure();
        assert_eq!(site.metric("xbcloud_run_success").as_deref(), Some("0"), "{wrong}: {ran:?}");
        let hook: Value = serde_json::from_slice(&std::fs::read(&failed).unwrap()).unwrap();
        assert_eq!(hook["status"], "failed", "{wrong}");
        std::fs::remove_file(&failed).unwrap();
        let status = &site.result()["status"];
        assert_eq!(status == "failed", writes_result, "{wrong}");
    }
}

/// A directory in place of the file is noticed only when the result is written.
#[test]
fn a_result_that_cannot_be_written_is_in_the_metrics() {
    let site = Site::new("cat \"$1\"; rm -f RESULT; mkdir RESULT", "");
    let program = std::fs::read_to_string(site.path("producer")).unwrap();
    let result = site.path("result.json").display().to_string();
    std::fs::write(site.path("producer"), program.replace("RESULT", &result)).unwrap();
    let hook = format!("--on-failure=touch {}", site.path("told").display());
    let ran = site.run(&["run", "@shop/n", &hook]).expect_failure();
    assert!(ran.stderr_text().contains("cannot write"), "{ran:?}");
    assert_eq!(site.metric("xbcloud_run_success").as_deref(), Some("0"));
    assert!(site.path("told").exists());
}

#[test]
fn increments_are_copied_with_what_they_need() {
    let site = Site::new("cat \"$1\"", "copy-to=@vault\nincremental-from=latest\naccept-history");
    let night = |name: &str, (from, to): (u64, u64), more: &[&str]| {
        let mut out = xb_testkit::stream::StreamWriter::new(Vec::new());
        let _ = out.positions(from, to).info();
        std::fs::write(site.path("stream"), out.finish()).unwrap();
        site.run(&[more, &[&format!("@shop/{name}")]].concat())
    };
    let _ = night("full", (0, 10), &["backup", "--or-full"]).expect(0);
    let _ = night("one", (10, 20), &["backup"]).expect(0);
    for name in ["full", "one"] {
        let _ = site.run(&["verify", &format!("@shop/{name}"), "--level=checksum"]).expect(0);
    }
    let _ = night("two", (20, 30), &["run"]).expect(0);
    let copied = &site.result()["stages"][2]["details"]["bases"];
    assert_eq!(copied, &serde_json::json!(["full", "one"]));
    let listed = site.run(&["list", "@vault", "--json"]).expect(0);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let restorable = listed.as_array().unwrap().iter().filter(|line| line["restorable"] == true);
    assert_eq!(restorable.count(), 3);
}

/// What is at the destination under the name of a base decides whether a copy on it can be restored there.
#[test]
fn no_copy_is_reported_on_a_base_that_is_another_or_damaged_there() {
    let site = Site::new("cat \"$1\"", "");
    let put = |place: &str, (from, to): (u64, u64)| {
        let mut out = xb_testkit::stream::StreamWriter::new(Vec::new());
        let _ = out.positions(from, to).info();
        let run = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).args(["--no-defaults", "put"]);
        let _ = run.arg(site.url(place)).stdin_bytes(out.finish()).run().expect(0);
    };
    let copy = |name: &str| {
        let from = format!("@shop/{name}");
        site.run(&["copy", &from, "@vault", "--unverified"])
    };
    for (name, lsn) in [("full", (0, 10)), ("one", (10, 20)), ("two", (20, 30))] {
        put(&format!("shop/{name}"), lsn);
    }
    let _ = copy("one").expect(0);
    let whole = || {
        let listed = site.run(&["list", "@vault", "--json"]).expect(0);
        let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
        let lines = listed.as_array().unwrap().iter();
        lines.filter(|line| line["restorable"] == true).count()
    };
    assert_eq!(whole(), 2);
    let _ = site.run(&["delete", "@vault/full", "--force", "--yes"]).expect(0);
    put("vault/full", (0, 5));
    let refused = copy("two").expect(1).stderr_text();
    assert!(
        refused.contains("its chain has full") && refused.contains("another backup"),
        "{refused}"
    );
    let _ = site.run(&["delete", "@vault/full", "--yes"]).expect(0);
    let _ = copy("two").expect(0);
    assert_eq!(whole(), 3);

    let run = std::fs::read_dir(site.path("vault/full")).unwrap().next().unwrap().unwrap().path();
    let object = run.join("000000000");
    let bytes = std::fs::read(&object).unwrap();
    std::fs::write(object, vec![7; bytes.len()]).unwrap();
    let _ = site.run(&["verify", "@vault/full", "--level=checksum"]).expect(7);
    put("shop/three", (30, 40));
    for name in ["full", "two", "three"] {
        let refused = copy(name).expect(7).stderr_text();
        assert!(refused.contains("full at the destination was found damaged"), "{refused}");
    }
    let _ = site.run(&["delete", "@vault/full", "--force", "--yes"]).expect(0);
    let _ = copy("three").expect(0);
    assert_eq!(whole(), 4);
}

#[test]
fn an_uninspected_or_imported_backup_is_not_the_newest() {
    let site = Site::new("cat \"$1\"", "");
    let put = |name: &str, stream: Vec<u8>, more: &[&str]| {
        std::fs::write(site.path("stream"), stream).unwrap();
        let mut all = vec!["put".to_owned(), format!("@shop/{name}")];
        all.extend(more.iter().map(|option| (*option).to_owned()));
        let said = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .arg(format!("--defaults-file={}", site.path("my.cnf").display()))
            .args(all)
            .stdin_file(site.path("stream"))
            .run()
            .expect(0);
        said.stderr_text()
    };
    let import = |uuid: &str| {
        let mut out = xb_testkit::stream::StreamWriter::new(Vec::new());
        let _ = out.file("db/t.CSV", &[1; 9000], 1 << 20);
        let info = format!("uuid = {uuid}\ntool_name = mariadb-backup\n");
        let _ = out.file("xtrabackup_info", info.as_bytes(), 1 << 20);
        out.finish()
    };
    let _ = put("real", small_backup(2, 5000), &["--server=a"]);
    let _ = put("raw", vec![7; 3000], &["--raw", "--server=a"]);
    // Of August 2004.
    let _ = put("old", import("58e0a7d7-eebc-11d8-9669-0800200c9a66"), &["--server=a"]);
    for name in ["real", "raw", "old"] {
        let _ = site.run(&["verify", &format!("@shop/{name}"), "--level=checksum"]).expect(0);
    }
    let shown = site.run(&["show", "@shop/latest"]).expect(0);
    assert!(shown.stderr_text().contains("using backup real"), "{shown:?}");
    let old = site.run(&["show", "@shop/old", "--json"]).expect(0).stdout_text();
    assert!(old.contains("2004-08-15T13:09:31Z"), "{old}");
    let pruned = site.run(&["prune", "@shop", "--keep-last=1"]).expect(0).stdout_text();
    let line = |name: &str| pruned.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(line("real").contains("newest verified"), "{pruned}");
    assert!(!line("old").contains("verified") && !line("old").contains("last"), "{pruned}");
    let list = site.run(&["list", "@shop", "--json"]).expect(0);
    let list: Value = serde_json::from_slice(&list.stdout).unwrap();
    let raw = list.as_array().unwrap().iter().find(|line| line["name"] == "raw").unwrap();
    assert_eq!(raw["restorable"], false);
    let _ = site.run(&["monitor", "@shop", "--max-age=1h"]).expect(0);
    // Of others it is unknown when they were made, and nothing goes in their favour.
    for (name, file, content) in [
        ("encrypted", "xtrabackup_info.xbcrypt", "XBCRYP03 and so on"),
        ("unstated", "xtrabackup_info", "end_time = not a time\n"),
        ("future", "xtrabackup_info", "end_time = 2090-01-01 00:00:00\n"),
    ] {
        let mut out = xb_testkit::stream::StreamWriter::new(Vec::new());
        let _ = out.file("db/t.CSV", &[1; 9000], 1 << 20);
        let _ = out.file(file, content.as_bytes(), 1 << 20);
        let said = put(name, out.finish(), &["--server=a"]);
        assert!(said.contains(&format!("{name} counts as made now, and may be older")), "{said}");
        let listed = site.run(&["list", "@shop"]).expect(0).stdout_text();
        assert!(listed.contains("it counts as made when it was stored"), "{listed}");
        let shown = site.run(&["show", "@shop/latest"]).expect(0).stderr_text();
        assert!(shown.contains(&format!("{name} is the newest only by when")), "{shown}");
        let pruned = site.run(&["prune", "@shop", "--keep-last=1"]).expect(0).stdout_text();
        let real = pruned.lines().find(|line| line.starts_with("real")).unwrap();
        assert!(real.contains("newest, last, newest verified"), "{pruned}");
        let told = site.run(&["monitor", "@shop", "--max-age=1h"]).expect(0).stdout_text();
        assert!(told.contains("may be older"), "{told}");
        let _ = site.run(&["delete", &format!("@shop/{name}"), "--yes"]).expect(0);
    }
    // Without a server's name it is a server of its own, and an old one.
    let _ = put("nameless", import("58e0a7d8-eebc-11d8-9669-0800200c9a66"), &[]);
    let told = site.run(&["monitor", "@shop", "--max-age=1h"]).expect(2).stdout_text();
    assert!(told.contains("without a server's name: the newest backup nameless"), "{told}");
    let which = site.run(&["show", "@shop/latest"]).expect_failure().stderr_text();
    assert!(which.contains("a, none"), "{which}");
    let shown = site.run(&["show", "@shop/latest", "--server=none"]).expect(0);
    assert!(shown.stderr_text().contains("using backup nameless"), "{shown:?}");
}
