//! `fleet`: one view of all repositories below a directory, with made-up manifests.

use std::path::{Path, PathBuf};

use jiff::{Timestamp, ToSpan as _};
use serde_json::Value;
use tempfile::TempDir;
use xb_repo::manifest::source_info::SourceInfo;
use xb_repo::manifest::{Base, sample};
use xb_repo::names::{BackupName, RunId};
use xb_repo::root::Root;
use xb_testkit::command::{Cmd, Ran};
use xb_testkit::stream::StreamWriter;
use xb_uploader::{Location, Policy, StorePlace, StoreSettings};

/// A directory with repositories.
struct Fleet {
    folder: TempDir,
}

/// A backup to make up.
#[derive(Clone, Copy)]
struct Made<'a> {
    name: &'a str,
    server: Option<&'a str>,
    hours: i64,
    bytes: u64,
    /// Name of the base, and its age in hours.
    base: Option<(&'a str, i64)>,
}

fn made<'a>(name: &'a str, server: &'a str, hours: i64) -> Made<'a> {
    Made { name, server: Some(server), hours, bytes: 1000, base: None }
}

impl Fleet {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, below: &str) -> PathBuf {
        self.folder.path().join(below)
    }

    /// Writes the manifest of a backup and one object of it.
    fn put(&self, root: &str, backup: Made<'_>) -> RunId {
        let path = self.path(root);
        std::fs::create_dir_all(&path).unwrap();
        let location = Location {
            place: StorePlace::Local,
            path: path.to_str().unwrap().trim_start_matches('/').to_owned(),
        };
        let opened =
            Root::open(&location, &StoreSettings::default(), Policy::default(), true).unwrap();
        let name = BackupName::new(backup.name).unwrap();
        let run = RunId::random().unwrap();
        let mut manifest = sample();
        let ended = Timestamp::now() - backup.hours.hours();
        (manifest.name, manifest.run) = (name.to_string(), run.to_string());
        (manifest.started, manifest.finished) = (ended, ended);
        manifest.server = backup.server.map(str::to_owned);
        manifest.stream_bytes = backup.bytes;
        let lsn = |hours: i64| u64::try_from(10_000 - hours).unwrap();
        let kind = if backup.base.is_some() { "incremental" } else { "full-backuped" };
        manifest.source = SourceInfo {
            from_lsn: Some(backup.base.map_or(0, |(_, hours)| lsn(hours))),
            to_lsn: Some(lsn(backup.hours)),
            backup_type: Some(kind.to_owned()),
            ..SourceInfo::default()
        };
        manifest.base = backup.base.map(|(base, _)| {
            let run = std::fs::read_dir(path.join(base)).unwrap().next().unwrap().unwrap();
            Base { name: base.to_owned(), run: run.file_name().into_string().unwrap() }
        });
        let folder = path.join(backup.name).join(run.to_string());
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("000000000"), b"x").unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(opened.commit(&name, &manifest, None)).unwrap();
        run
    }

    /// Replaces a manifest by one of a later version, which cannot be read until then.
    fn make_unreadable(&self, root: &str, name: &str) {
        let mut manifest = sample();
        manifest.format += 1;
        let text = manifest.encode(None).unwrap();
        std::fs::write(self.path(root).join(".xb-catalog").join(name), text).unwrap();
    }

    fn monitor(&self, root: &str, options: &[&str]) -> Ran {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["monitor", LIMIT])
            .arg(format!("file://{}", self.path(root).display()))
            .args(options)
            .run()
    }

    fn fleet(&self, options: &[&str]) -> Ran {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .arg("fleet")
            .arg(format!("file://{}", self.folder.path().display()))
            .args(options)
            .run()
    }

    fn json(&self, options: &[&str], exit: i32) -> Value {
        let ran = self.fleet(&[&["--json"], options].concat()).expect(exit);
        serde_json::from_slice(&ran.stdout).unwrap()
    }
}

/// Path, server and state of each line.
fn lines(found: &Value) -> Vec<(String, String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let line = |line: &Value| (text(&line["path"]), text(&line["server"]), text(&line["state"]));
    found["servers"].as_array().unwrap().iter().map(line).collect()
}

fn named(lines: &[(&str, &str, &str)]) -> Vec<(String, String, String)> {
    lines.iter().map(|(a, b, c)| ((*a).to_owned(), (*b).to_owned(), (*c).to_owned())).collect()
}

const LIMIT: &str = "--max-age=26h";

#[test]
fn each_server_of_each_repository_is_judged_and_the_worst_comes_first() {
    let place = Fleet::new();
    place.put("shop", made("n1", "db1", 30));
    place.put("shop", made("n2", "db1", 3));
    place.put("shop", made("m1", "db2", 90));
    place.put("a/b/odd \"name\" 50% ä", made("n", "web", 1));
    // A repository in another one, and one in the place itself.
    place.put("shop/inner", made("n", "db3", 50));
    place.put("", made("top", "db4", 2));
    let found = place.json(&[LIMIT], 2);
    assert_eq!(
        lines(&found),
        named(&[
            ("shop", "db2", "CRITICAL"),
            ("shop/inner", "db3", "CRITICAL"),
            ("shop", "db1", "OK"),
            ("", "db4", "OK"),
            ("a/b/odd \"name\" 50% ä", "web", "OK"),
        ])
    );
    assert_eq!((&found["exit"], &found["repositories"]), (&Value::from(2), &Value::from(4)));
    assert_eq!((&found["backups"], &found["critical"]), (&Value::from(6), &Value::from(2)));
    assert_eq!(found["servers"][2]["newest"]["name"], "n2");
    let text = place.fleet(&[LIMIT]).expect(2).stdout_text();
    assert!(text.contains("the newest backup m1 is 3d 18h old, the limit is 1d 2h"), "{text}");
    assert!(text.ends_with("4 repositories: 2 CRITICAL, 3 OK; 6 backups, 90 B\n"), "{text}");
    let quiet = place.fleet(&[LIMIT, "--quiet"]).expect(2).stdout_text();
    assert!(quiet.contains("db2") && !quiet.contains("web"), "{quiet}");
    let _ = place.fleet(&["--max-age=30d"]).expect(0);
    assert_eq!(place.fleet(&["--max-age=30d", "--quiet"]).expect(0).stdout_text(), "");
    // `monitor` says the same about each of them.
    for (root, exit) in [("shop", 2), ("shop/inner", 2), ("a/b/odd \"name\" 50% ä", 0), ("", 0)] {
        let root = place.path(root).display().to_string().replace('%', "%25");
        let monitor = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["monitor", LIMIT])
            .arg(format!("file://{root}"))
            .run();
        let _ = monitor.expect(exit);
    }
}

#[test]
fn a_chain_a_trend_and_damage_are_shown() {
    let place = Fleet::new();
    for day in 0..6 {
        let name = format!("f{day}");
        place.put("shop", Made { bytes: 1000, ..made(&name, "db1", 24 * (8 - day)) });
    }
    place.put("shop", Made { bytes: 450, ..made("f6", "db1", 48) });
    let increment = Made { base: Some(("f6", 48)), ..made("i1", "db1", 2) };
    place.put("shop", increment);
    let found = place.json(&[LIMIT], 1);
    let line = &found["servers"][0];
    assert_eq!(line["newest"]["chain"], serde_json::json!(["f6", "i1"]), "{line}");
    assert_eq!(line["newest"]["trend"], "-55%");
    assert!(line["warnings"][0].as_str().unwrap().contains("much smaller"), "{line}");
    let text = place.fleet(&[]).expect(1).stdout_text();
    assert!(text.contains("1+1") && text.contains("-55%"), "{text}");
    // Without its base, the increment is no backup.
    std::fs::remove_file(place.path("shop/.xb-catalog/f6")).unwrap();
    let found = place.json(&[LIMIT], 2);
    assert_eq!(found["servers"][0]["newest"]["name"], "f5");
}

#[test]
fn missing_servers_and_repositories_are_named() {
    let place = Fleet::new();
    std::fs::create_dir_all(place.path("logs/2026/11/27")).unwrap();
    std::fs::write(place.path("logs/2026/11/27/x"), b"x").unwrap();
    let ran = place.fleet(&[]).expect(2);
    let text = ran.stdout_text();
    assert!(text.contains("there is no repository: no folder .xb-catalog"), "{text}");
    place.put("shop", made("n", "db1", 1));
    let expect = ["--expect=shop", "--expect=vault/", "--expect=vault"];
    let found = place.json(&expect, 2);
    assert_eq!(lines(&found), named(&[("vault", "-", "CRITICAL"), ("shop", "db1", "OK")]));
    let _ = place.fleet(&[&expect[..1], &["--depth=4"]].concat()).expect(0);
    // How deep it has looked, also where a stray folder makes everything a part of one repository.
    place.put("logs/2026/11/27/deep", made("n", "db2", 1));
    for stray in [false, true] {
        if stray {
            std::fs::create_dir_all(place.path(".xb-catalog/@pins")).unwrap();
            std::fs::write(place.path(".xb-catalog/@pins/n"), b"x").unwrap();
        }
        let prom = place.path("deep.prom");
        let file = format!("--metrics-file={}", prom.display());
        let ran = place.fleet(&["--quiet", &file]).expect(if stray { 2 } else { 1 });
        assert!(ran.stdout_text().contains("WARNING: not searched more than"), "{ran:?}");
        assert!(ran.stdout_text().contains("logs/2026/11"), "{ran:?}");
        let text = std::fs::read_to_string(&prom).unwrap();
        let found = text.lines().find(|line| line.starts_with("xbcloud_fleet_too_deep{")).unwrap();
        assert!(found.ends_with("} 1"), "{found}");
        assert_eq!(place.json(&[], ran.code())["too_deep"], serde_json::json!(["logs/2026/11"]));
    }
    std::fs::remove_dir_all(place.path(".xb-catalog")).unwrap();
    // Deeper than it looks, nothing is known.
    let deep = "logs/2026/11/27/deep";
    let found = place.json(&[&format!("--expect={deep}")], 3);
    assert!(lines(&found).contains(&named(&[(deep, "-", "UNKNOWN")])[0]), "{found}");
    let found = place.json(&["--depth=5"], 0);
    assert_eq!(found["repositories"], 2);
    // A repository that holds only records has no backup.
    std::fs::create_dir_all(place.path("empty/.xb-catalog/@pins")).unwrap();
    std::fs::write(place.path("empty/.xb-catalog/@pins/n"), b"x").unwrap();
    assert_eq!(lines(&place.json(&[], 2))[0].0, "empty");
    let _ = place.fleet(&["--ignore-server=db1"]).expect(2);
    std::fs::remove_dir_all(place.path("empty")).unwrap();
    let found = place.json(&["--ignore-server=db1", "--depth=5"], 0);
    assert_eq!(lines(&found).len(), 1);
}

#[test]
fn one_bad_repository_hides_no_other() {
    let place = Fleet::new();
    place.put("good", made("n", "db1", 1));
    place.put("bad", made("n", "db2", 1));
    let manifest = place.path("bad/.xb-catalog/n");
    std::fs::write(&manifest, b"no manifest").unwrap();
    let found = place.json(&[], 2);
    assert_eq!(lines(&found)[1], named(&[("good", "db1", "OK")])[0]);
    assert_eq!(lines(&found)[0].0, "bad");
    // A place that cannot be read at all is not OK, and its page and metrics say so.
    let (page, prom) = (place.path("fleet.html"), place.path("fleet.prom"));
    let options =
        [format!("--html={}", page.display()), format!("--metrics-file={}", prom.display())];
    let gone = format!("file://{}", place.path("gone").display());
    let ran =
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).args(["fleet", &gone]).args(&options).run();
    let _ = ran.expect_failure();
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(text.contains("UNKNOWN") || text.contains("CRITICAL"), "{text}");
    assert!(std::fs::read_to_string(&prom).unwrap().contains("xbcloud_fleet_exit_code{"));
}

#[test]
fn a_backup_without_objects_and_a_manifest_that_cannot_be_read_count() {
    let place = Fleet::new();
    place.put("shop", made("a1", "db1", 3));
    place.put("shop", made("b1", "db2", 30));
    place.put("shop", made("b2", "db2", 3));
    // All objects of one server are gone: it has a line, and it is CRITICAL.
    std::fs::remove_dir_all(place.path("shop/a1")).unwrap();
    let found = place.json(&[LIMIT], 2);
    assert_eq!(lines(&found), named(&[("shop", "db1", "CRITICAL"), ("shop", "db2", "OK")]));
    assert_eq!(found["servers"][0]["found"]["broken"][0]["name"], "a1");
    let text = place.monitor("shop", &[]).expect(2).stdout_text();
    assert!(text.contains("db1: a1 cannot be restored, its objects are missing"), "{text}");
    let _ = place.monitor("shop", &["--server=db1"]).expect(2);
    // Those of an older backup are a warning, as for one that is damaged.
    std::fs::remove_dir_all(place.path("shop/b1")).unwrap();
    let text = place.monitor("shop", &["--server=db2"]).expect(1).stdout_text();
    assert!(text.contains("b1 cannot be restored"), "{text}");

    // A manifest that cannot be read now may be of each server.
    place.put("web", made("a1", "db1", 90));
    place.put("web", made("b1", "db2", 3));
    place.make_unreadable("web", "a1");
    let text = place.monitor("web", &[]).expect(1).stdout_text();
    assert!(text.contains("the manifest of a1 cannot be read now"), "{text}");
    let _ = place.monitor("web", &["--server=db1"]).expect(2);
    let _ = place.monitor("web", &["--ignore-server=db2"]).expect(2);
    let found = place.json(&[LIMIT], 2);
    let web = lines(&found).into_iter().filter(|(path, ..)| path == "web").collect::<Vec<_>>();
    assert_eq!(web, named(&[("web", "db2", "WARNING")]));
    place.make_unreadable("web", "b1");
    let text = place.monitor("web", &[]).expect(2).stdout_text();
    assert!(text.contains("no backup can be restored"), "{text}");
    assert!(text.contains("(and those of 1 more) cannot be read now"), "{text}");
}

#[test]
fn servers_that_are_all_left_out_are_unknown() {
    let place = Fleet::new();
    place.put("shop", made("n", "db1", 1));
    let ran = place.fleet(&["--ignore-server=db1"]).expect(3);
    assert!(ran.stdout_text().contains("--ignore-server leaves out"), "{ran:?}");
    let ran = place.monitor("shop", &["--ignore-server=db1"]).expect(3);
    assert!(ran.stdout_text().contains("--ignore-server leaves out"), "{ran:?}");
    // A wrong name of a server is no such case.
    let _ = place.monitor("shop", &["--server=db2"]).expect(2);
    let _ = place.fleet(&["--ignore-server=db2"]).expect(0);
}

#[test]
fn the_files_replace_nothing_of_others() {
    let place = Fleet::new();
    place.put("shop", made("n", "db1", 1));
    let file = place.path("shop.prom");
    std::fs::write(&file, "# HELP xbcloud_run_success X.\n# TYPE xbcloud_run_success gauge\n")
        .unwrap();
    let option = format!("--metrics-file={}", file.display());
    let ran = place.fleet(&[&option]).expect(2);
    assert!(ran.stderr_text().contains("holds the metrics of another command"), "{ran:?}");
    assert!(is_untouched(&file));
    let ran = place.fleet(&["--metrics-file=fleet.txt"]).expect(2);
    assert!(ran.stderr_text().contains(".prom"), "{ran:?}");
    let _ = place.fleet(&["--html=/nowhere/fleet.html"]).expect_failure();
}

/// A bucket that an application shares must not cost a listing for each of its folders.
#[test]
fn a_limit_of_folders_is_a_warning_that_names_what_was_left_out() {
    let place = Fleet::new();
    place.put("backups/db1", made("n", "db1", 1));
    for number in 0..30 {
        let file = place.path(&format!("app/customers/{number}/x"));
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, b"x").unwrap();
    }
    assert_eq!(place.json(&[LIMIT], 0)["too_many"], serde_json::json!([]));
    let few = "--max-folders=20";
    let found = place.json(&[LIMIT, few], 1);
    assert_eq!(lines(&found), named(&[("backups/db1", "db1", "OK")]));
    let left_out = serde_json::json!([{"path": "app/customers", "folders": 30}]);
    assert_eq!(found["too_many"], left_out);
    let text = place.fleet(&[LIMIT, few, "--quiet"]).expect(1).stdout_text();
    assert!(text.contains("those in app/customers (30); raise --max-folders"), "{text}");
    // One that has to be there may be: nothing is known about it.
    let expect = ["--expect=app/customers/7", "--expect=app/gone"];
    let found = place.json(&[&expect[..], &[LIMIT, few]].concat(), 2);
    let states = [
        ("app/gone", "-", "CRITICAL"),
        ("app/customers/7", "-", "UNKNOWN"),
        ("backups/db1", "db1", "OK"),
    ];
    assert_eq!(lines(&found), named(&states));
}

/// A FUSE file system whose program never answers: each look at it waits, until this is dropped.
struct HungMount {
    /// The connection of its program; closed, it ends what waits.
    _device: std::fs::File,
    at: PathBuf,
}

impl HungMount {
    /// `None` if this user cannot mount one.
    fn new(at: PathBuf) -> Option<Self> {
        std::fs::create_dir_all(&at).unwrap();
        let device = std::fs::File::options().read(true).write(true).open("/dev/fuse").ok()?;
        let mounted = std::process::Command::new("mount")
            .args(["-i", "-t", "fuse", "-o", "fd=0,rootmode=40000,user_id=0,group_id=0", "hung"])
            .arg(&at)
            .stdin(device.try_clone().unwrap())
            .output()
            .ok()?;
        mounted.status.success().then_some(Self { _device: device, at })
    }
}

impl Drop for HungMount {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.at).status();
    }
}

/// Its own place, or the one that holds it: a listing of a local folder looks into the folders in it.
#[test]
fn a_mount_that_hangs_is_unknown_and_ends_in_time() {
    let place = Fleet::new();
    place.put("good", made("n", "db1", 1));
    let Some(hung) = HungMount::new(place.path("hung")) else {
        return xb_testkit::skipped("this user cannot mount a FUSE file system");
    };
    let other = tempfile::tempdir().unwrap();
    let page = other.path().join("fleet.html");
    for folder in ["", "hung"] {
        let ran = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["fleet", "--answer-within=1s"])
            .arg(format!("file://{}", place.path(folder).display()))
            .arg(format!("--html={}", page.display()))
            .run()
            .expect(3);
        assert!(ran.stdout_text().contains("not read within 1 s; run `"), "{ran:?}");
        assert!(std::fs::read_to_string(&page).unwrap().contains("UNKNOWN"));
        std::fs::remove_file(&page).unwrap();
    }
    drop(hung);
    assert_eq!(lines(&place.json(&[LIMIT], 0)), named(&[("good", "db1", "OK")]));
}

fn is_untouched(file: &Path) -> bool {
    std::fs::read_to_string(file).unwrap().starts_with("# HELP xbcloud_run_success")
}

#[test]
fn a_list_shows_the_part_that_is_asked_for() {
    let place = Fleet::new();
    for (name, server, hours) in [("a1", "db1", 50), ("a2", "db1", 3), ("b1", "db2", 30)] {
        place.put("shop", made(name, server, hours));
    }
    place.put("shop", Made { server: None, ..made("none", "", 2) });
    std::fs::create_dir_all(place.path("shop/other")).unwrap();
    std::fs::write(place.path("shop/other/file"), b"x").unwrap();
    let names = |options: &[&str]| -> Vec<String> {
        let ran = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["list", "--json"])
            .args(options)
            .arg(format!("file://{}", place.path("shop").display()))
            .run()
            .expect(0);
        let lines: Value = serde_json::from_slice(&ran.stdout).unwrap();
        let lines = lines.as_array().unwrap().iter();
        lines.map(|line| line["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&[]), ["a1", "a2", "b1", "none", "other"]);
    assert_eq!(names(&["--last=2"]), ["a2", "none"]);
    assert_eq!(names(&["--since=1d"]), ["a2", "none"]);
    assert_eq!(names(&["--server=db1"]), ["a1", "a2"]);
    assert_eq!(names(&["--server=none"]), ["none"]);
    assert_eq!(names(&["--server=db1", "--last=1"]), ["a2"]);
    assert_eq!(names(&["--server=db3"]), [""; 0]);
    // A manifest that cannot be read may be that of any server.
    std::fs::write(place.path("shop/.xb-catalog/a2"), b"no manifest").unwrap();
    assert_eq!(names(&["--server=db2"]), ["a2", "b1"]);
}

/// A copy of its manifest repairs it, so whoever reads the lines of its dependants must not look for another base.
#[test]
fn no_command_calls_a_base_missing_whose_manifest_is_damaged() {
    let place = Fleet::new();
    place.put("shop", made("f0", "db", 9));
    let on = |name, hours, base| Made { base: Some(base), ..made(name, "db", hours) };
    place.put("shop", on("i1", 6, ("f0", 9)));
    place.put("shop", on("i2", 3, ("i1", 6)));
    std::fs::write(place.path("shop/.xb-catalog/f0"), b"no manifest").unwrap();
    let root = format!("file://{}", place.path("shop").display());
    let latest = format!("{root}/latest");
    let commands = [
        (&["list", &root][..], "i1 in its chain: its base f0: its manifest cannot be read"),
        (&["prune", &root, "--keep-last=1"], "i1 in its chain: its base f0: its manifest cannot"),
        (&["monitor", &root, LIMIT], "i1 in its chain: its base f0: its manifest cannot be read"),
        (&["show", &latest], "i1 in its chain: its base f0: its manifest cannot be read"),
    ];
    for (command, told) in commands {
        let ran = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).args(command).run();
        let said = ran.stdout_text() + &ran.stderr_text();
        assert!(said.contains(told) && !said.contains("missing"), "{command:?}: {said}");
    }
}

#[test]
fn show_says_why_a_chain_cannot_be_restored() {
    let place = Fleet::new();
    let root = format!("file://{}", place.path("shop").display());
    let run = |command: &str, name: &str, stream: Vec<u8>| {
        let program = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"));
        program.args([command, &format!("{root}/{name}")]).stdin_bytes(stream).run().expect(0)
    };
    for (name, from, to) in [("f0", 0, 100), ("i1", 100, 200)] {
        let mut out = StreamWriter::new(Vec::new());
        let _ = out.file("db/t.CSV", b"1", 1 << 20);
        let _ = out.positions(from, to).info();
        let _ = run("put", name, out.finish());
    }
    assert!(!run("show", "i1", Vec::new()).stdout_text().contains("cannot be restored"));
    std::fs::write(place.path("shop/.xb-catalog/f0"), b"no manifest").unwrap();
    let said = run("show", "i1", Vec::new()).stdout_text();
    let told = "note         cannot be restored: .xb-catalog/f0: the manifest";
    assert!(said.contains(told), "{said}");
}
