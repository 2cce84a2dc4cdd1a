//! Copies and removals, killed at any moment; the commands that manage backups.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::support::*;
use serde_json::Value;
use xb_testkit::command::Cmd;
use xb_testkit::daemon::Scratch;
use xb_testkit::data::Noise;
use xb_testkit::fault::{Action, Proxy, Rule};
use xb_testkit::s3::options_for;
use xb_testkit::store::Store;
use xb_testkit::stream::small_backup;

const KILLS: u64 = 24;
/// Maximum number of further runs, if no kill came during the work it should interrupt.
const MORE: u64 = 20;

fn run(args: &[&str], places: &[&str]) -> Cmd {
    Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(&args[..1])
        .arg("--quiet")
        .args(&args[1..])
        .args(places)
}

fn url(root: &Path, name: &str) -> String {
    format!("file://{}/{name}", root.display())
}

fn listed(root: &Path) -> Vec<Value> {
    let ran = run(&["list", "--json"], &[&format!("file://{}", root.display())]).run().expect(0);
    serde_json::from_slice::<Value>(&ran.stdout).unwrap().as_array().unwrap().clone()
}

fn complete(root: &Path) -> Vec<String> {
    let all = listed(root).into_iter().filter(|line| line["state"] == "complete");
    all.map(|line| line["name"].as_str().unwrap().to_owned()).collect()
}

/// Starts the command and kills it at a random moment.
fn killed(cmd: Cmd, span: Duration, draw: &mut Noise) -> bool {
    let span = u64::try_from(span.as_micros()).unwrap();
    let moment = Instant::now() + Duration::from_micros(draw.below(span * 5 / 4));
    killed_when(cmd, || Instant::now() >= moment)
}

/// Starts the command and kills it when the condition holds.
fn killed_when(cmd: Cmd, is_so: impl Fn() -> bool) -> bool {
    let mut run = cmd.spawn();
    while !is_so() && !run.has_ended() {
        // Leaves the core to the process that is watched.
        std::thread::sleep(Duration::from_micros(100));
    }
    run.kill_9();
    run.wait().code() == 0
}

/// Number of files below a directory.
fn files(dir: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let paths = entries.flatten().map(|entry| entry.path());
    paths.map(|path| if path.is_dir() { files(&path) } else { 1 }).sum()
}

fn layouts() -> [(&'static str, &'static [&'static str]); 2] {
    [("packed", &["--chunk-size=64K"]), ("classic", &["--layout=classic"])]
}

#[test]
fn a_copy_killed_at_any_moment_is_no_backup_and_the_next_one_makes_it_one() {
    let scratch = Scratch::new();
    let (from, to) = (scratch.dir("from"), scratch.dir("to"));
    let stream = small_backup(3, 4 << 20);
    let mut draw = Noise::new(11);
    for (name, options) in layouts() {
        let mut args = vec!["put"];
        args.extend(options);
        let _ = run(&args, &[&url(&from, name)]).stdin_bytes(stream.clone()).run().expect(0);
        let copy = || run(&["copy", "--unverified"], &[&url(&from, name), &url(&to, name)]);
        let remove = || run(&["delete", "--yes"], &[&url(&to, name)]).run().expect(0);
        let begin = Instant::now();
        let _ = copy().run().expect(0);
        let span = begin.elapsed();
        let _ = remove();
        let mut cut = 0;
        for n in 0..KILLS + MORE {
            // The duration was measured only once, and a busy machine may have made it too long.
            // Then the kill comes when part of the copy exists.
            let ended_well = match (n < KILLS, cut) {
                (true, _) => killed(copy(), span, &mut draw),
                (false, 0) => killed_when(copy(), || files(&to.join(name)) > 1),
                (false, _) => break,
            };
            let is_there = complete(&to).contains(&name.to_owned());
            assert!(is_there || !ended_well, "it said that all is well");
            let got = run(&["get"], &[&url(&to, name)]).run();
            assert_eq!(got.code() == 0, is_there, "{got:?}");
            cut += u64::from(!is_there);
            let _ = copy().run().expect(0);
            let whole = run(&["get"], &[&url(&to, name)]).run().expect(0).stdout;
            assert_eq!(whole.len(), stream.len());
            let _ = run(&["verify", "--level=decrypt"], &[&url(&to, name)]).run().expect(0);
            let _ = remove();
        }
        assert!(cut > 0, "no copy was killed in its course");
    }
}

#[test]
fn prune_killed_at_any_moment_leaves_what_it_keeps_and_the_next_one_ends_it() {
    let scratch = Scratch::new();
    let whole = scratch.dir("whole");
    let stream = small_backup(3, 1 << 20);
    let mut kept = String::new();
    for n in 0..3 {
        for (layout, options) in layouts() {
            kept = format!("{layout}-{n}");
            let mut args = vec!["put"];
            args.extend(options);
            let _ = run(&args, &[&url(&whole, &kept)]).stdin_bytes(stream.clone()).run().expect(0);
        }
    }
    let root = |n: u64| -> PathBuf {
        let root = scratch.join(format!("root-{n}"));
        let _ = Cmd::new("cp").arg("-a").arg(&whole).arg(&root).run().expect(0);
        root
    };
    let prune = |root: &Path, options: &[&str]| {
        let args = [&["prune", "--keep-last=1"], options].concat();
        run(&args, &[&format!("file://{}", root.display())])
    };
    let first = root(u64::MAX);
    let dry = prune(&first, &[]).run().expect(0);
    assert_eq!(complete(&first).len(), 6, "a dry run");
    assert_eq!(dry.stdout_text().matches("  remove").count(), 5);
    let begin = Instant::now();
    let _ = prune(&first, &["--yes"]).run().expect(0);
    let span = begin.elapsed();
    assert_eq!(complete(&first), [kept.clone()]);

    let mut draw = Noise::new(5);
    let mut cut = 0;
    for n in 0..KILLS / 2 + MORE {
        if n >= KILLS / 2 && cut > 0 {
            break;
        }
        let root = root(n);
        // As above: the kill comes when the first manifest has been removed.
        let manifests = || std::fs::read_dir(root.join(".xb-catalog")).unwrap().flatten();
        let begun = || manifests().filter(|entry| entry.path().is_file()).count() < 6;
        let _ = match n < KILLS / 2 {
            true => killed(prune(&root, &["--yes"]), span, &mut draw),
            false => killed_when(prune(&root, &["--yes"]), begun),
        };
        let left = complete(&root);
        assert!(left.contains(&kept));
        cut += u64::from(left.len() > 1 && left.len() < 6);
        for line in listed(&root) {
            let name = line["name"].as_str().unwrap();
            // A half-removed backup is not listed as a backup, nor as one of another tool.
            assert_ne!(line["state"], "stock, unproven", "{line}");
            let got = run(&["get"], &[&url(&root, name)]).run();
            assert_eq!(got.code() == 0, line["state"] == "complete", "{line} {got:?}");
        }
        let _ = prune(&root, &["--yes"]).run().expect(0);
        assert_eq!(complete(&root), [kept.clone()]);
        std::fs::remove_dir_all(root).unwrap();
    }
    assert!(cut > 0, "no prune was killed in its course");
}

/// The usual workflow: stage, verify, move to the protected place.
#[test]
fn staged_verified_promoted_and_pinned() {
    for store in [Store::folder(), Store::bucket()] {
        let stream = small_backup(2, 3 << 20);
        let _ = put_bytes(&store, "staged", &["--chunk-size=1M"], &stream);
        let to = store.url("final");
        let promote = || xbcloud(&store, "promote", "staged", &[]).arg(&to);
        let refused = promote().run().expect_failure();
        assert!(refused.stderr_text().contains("not verified"), "{refused:?}");
        let _ = xbcloud(&store, "verify", "staged", &["--level=checksum"]).run().expect(0);
        let _ = promote().run().expect(0);
        assert_eq!(get_bytes(&store, "final"), stream);
        let again = promote().run().expect(0);
        assert!(again.stderr.is_empty(), "{again:?}");
        let _ = xbcloud(&store, "verify", "final", &["--level=decrypt"]).run().expect(0);

        let _ = xbcloud(&store, "pin", "final", &["--reason=audit"]).run().expect(0);
        let refused = xbcloud(&store, "delete", "final", &["--yes"]).run().expect_failure();
        assert!(refused.stderr_text().contains("pinned"), "{refused:?}");
        let long = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["list", "--long", "--quiet"])
            .args(store.options())
            .arg(store.root_url())
            .run()
            .expect(0);
        let text = long.stdout_text();
        assert!(text.contains("audit") && text.contains("decrypt"), "{text}");
        let shown = xbcloud(&store, "show", "final", &["--json"]).run().expect(0);
        let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
        assert_eq!(
            shown["content"].as_array().unwrap().len() as u64,
            shown["files"].as_u64().unwrap()
        );
        let _ = xbcloud(&store, "unpin", "final", &[]).run().expect(0);
        let _ = xbcloud(&store, "delete", "final", &["--yes"]).run().expect(0);
        assert!(store.list(".xb-catalog/@verified/final").is_empty());
        assert!(store.list("final/").is_empty());
    }
}

/// A second listing reads only names, and new or changed objects.
#[test]
fn a_listing_reads_a_manifest_once() {
    let store = Store::bucket();
    let Store::Bucket(bucket) = &store else { unreachable!() };
    let stream = small_backup(3, 1 << 20);
    for n in 0..4 {
        let _ = put_bytes(&store, &format!("n{n}"), &[], &stream);
    }
    let cache = Scratch::new();
    let proxy = Proxy::start(bucket.address(), Vec::new());
    let list = |more: &[&str]| -> (Vec<Value>, usize) {
        let before = proxy.count("GET", "/.xb-catalog/");
        let ran = run(&["list", "--long", "--json"], more)
            .args(options_for(&proxy.endpoint()))
            .arg(store.root_url())
            .env("XDG_CACHE_HOME", cache.join("cache"))
            .run()
            .expect(0);
        let mut lines: Vec<Value> = serde_json::from_slice(&ran.stdout).unwrap();
        // Fields that change with time.
        for line in &mut lines {
            line["age_seconds"] = Value::Null;
            line["verified_age_seconds"] = Value::Null;
        }
        (lines, proxy.count("GET", "/.xb-catalog/") - before)
    };
    let (first, asked) = list(&[]);
    assert_eq!((first.len(), asked), (4, 4));
    assert_eq!(list(&[]), (first.clone(), 0));
    assert_eq!(list(&["--no-cache"]), (first.clone(), 4));
    // A record, and another backup of the same name.
    let _ = xbcloud(&store, "verify", "n0", &["--level=list"]).run().expect(0);
    let _ = xbcloud(&store, "delete", "n1", &["--yes"]).run().expect(0);
    let _ = put_bytes(&store, "n1", &[], &stream);
    let (second, asked) = list(&[]);
    assert!(second[0]["verified"]["level"] == "list" && second[1]["run"] != first[1]["run"]);
    assert_eq!(asked, 2, "the record and the new manifest");
    assert_eq!(list(&[]), (second.clone(), 0));
    // Whatever happens to the cache, the listing is correct.
    let mut todo = vec![cache.join("cache")];
    while let Some(path) = todo.pop() {
        match std::fs::read_dir(&path) {
            Ok(entries) => todo.extend(entries.flatten().map(|entry| entry.path())),
            Err(_) => std::fs::write(path, b"not what it was").unwrap(),
        }
    }
    assert_eq!(list(&[]).0, second);
    let _ = xbcloud(&store, "delete", "n2", &["--yes"]).run().expect(0);
    assert_eq!(list(&[]).0.len(), 3);
}

/// The store does not return one manifest, record or claim: it is in an archive class, or encrypted
/// with another customer key.
#[test]
fn an_unreadable_manifest_concerns_one_backup() {
    let store = Store::bucket();
    let Store::Bucket(bucket) = &store else { unreachable!() };
    for of in ["a", "b", "c"] {
        put_bytes(&store, of, &["--layout=classic"], &small_backup(1, 10_000));
        let _ = xbcloud(&store, "verify", of, &["--level=checksum"]).run().expect(0);
    }
    let proxy = Proxy::start(bucket.address(), Vec::new());
    let archived = |part: &str| {
        let action = Action::Refuse { status: 403, code: "InvalidObjectState" };
        Rule::new("GET", part, action)
    };
    let run = |args: &[&str], name: &str| {
        let place = if name.is_empty() { store.root_url() } else { store.url(name) };
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(args)
            .args(options_for(&proxy.endpoint()))
            .arg(place)
    };
    let row = |of: &str| {
        let ran = run(&["list", "--json", "--no-cache"], "").run().expect(0);
        let rows: Value = serde_json::from_slice(&ran.stdout).unwrap();
        rows.as_array().unwrap().iter().find(|row| row["name"] == of).unwrap().clone()
    };
    proxy.set_rules(vec![
        archived(".xb-catalog/b"),
        archived("verified/a/"),
        archived("claims/a/"),
    ]);
    assert_eq!(row("b")["state"], "unreadable");
    assert!(!row("b")["problem"].is_null());
    assert_eq!(row("a")["state"], "complete");
    assert!(row("a")["problem"].as_str().unwrap().contains("verification record"));
    let _ = run(&["gc"], "").run().expect(0);
    let pruned = run(&["prune", "--keep-last=1"], "").run().expect(0);
    assert!(pruned.stdout_text().contains("its verification record cannot be read"), "{pruned:?}");
    proxy.set_rules(vec![archived(".xb-catalog/b")]);
    let target = Scratch::new();
    let restore = run(&["restore"], "latest").arg("--target-dir").arg(target.dir("data"));
    assert!(restore.run().expect(0).stderr_text().contains("b is skipped"));
    let _ = run(&["prune", "--keep-last=1", "--yes"], "").run().expect(0);
    let names = || store.list(&format!("{CATALOG}/")).into_iter().map(|(key, _)| key);
    let left: Vec<String> = names().filter(|key| !key.contains("/@")).collect();
    assert_eq!(left, [format!("{CATALOG}/b"), format!("{CATALOG}/c")]);
    let _ = run(&["delete", "--yes"], "c").run().expect(0);
    let kept = run(&["delete", "--yes"], "b").run().expect_failure();
    assert!(kept.stderr_text().contains("--force"), "{kept:?}");
    let _ = run(&["delete", "--yes", "--force"], "b").run().expect(0);
    assert!(store.list("").iter().all(|(key, _)| key.contains("/@claims/")));
}
