//! Stores that do not do what they acknowledge: they lose a write, or ignore its condition.

use std::io::Write as _;

use xb_testkit::command::Cmd;
use xb_testkit::daemon::Scratch;
use xb_testkit::fault::{Action, Edit, Proxy, Rule};
use xb_testkit::reply::Reply;
use xb_testkit::s3::{Bucket, bucket, open_bucket, options_for};
use xb_testkit::stream::small_backup;

const MIB: usize = 1 << 20;

/// A bucket behind a proxy.
struct Site {
    bucket: Bucket,
    proxy: Proxy,
    scratch: Scratch,
}

impl Site {
    fn new(bucket: Bucket) -> Self {
        let proxy = Proxy::start(bucket.address(), Vec::new());
        Self { bucket, proxy, scratch: Scratch::new() }
    }

    /// A store that loses every write of an object whose key contains `part`.
    fn losing(&self, part: &str) {
        self.proxy.set_rules(vec![Rule::new("PUT", part, Action::Swallow)]);
    }

    /// A store that ignores conditions. Its bucket must be an open one.
    fn unconditional() -> Self {
        let site = Self::new(open_bucket());
        site.proxy.set_rules(vec![without_conditions()]);
        site
    }

    fn url(&self, name: &str) -> String {
        self.bucket.url(&format!("shop/{name}"))
    }

    fn command(&self, command: &str, name: &str, options: &[&str]) -> Cmd {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args([command, "--quiet", "--max-backoff=50"])
            .args(options_for(&self.proxy.endpoint()))
            .args(options)
            .arg(self.url(name))
    }

    fn has(&self, key: &str) -> bool {
        self.bucket.get(&format!("shop/{key}")).is_some()
    }

    fn key_option(&self) -> String {
        let key = self.scratch.join("key");
        std::fs::write(&key, [7; 32]).unwrap();
        format!("--encrypt-key-file={}", key.display())
    }
}

/// The manifest promises these objects, so it is not written without them.
#[test]
fn a_store_that_loses_an_object_gets_no_manifest() {
    let site = Site::new(bucket());
    let key = site.key_option();
    let stream = small_backup(31, MIB);
    for (name, part, options) in [
        ("a", "/keys", &["--chunk-size=512K", &*key][..]),
        ("b", "/sums", &["--chunk-size=512K"]),
        ("c", "sums/", &["--layout=classic"]),
        ("d", ".md5", &["--layout=classic", "--md5"]),
    ] {
        site.losing(part);
        let put = site.command("put", name, options).stdin_bytes(stream.clone()).run();
        let said = put.expect(1).stderr_text();
        assert!(
            said.contains(part) && said.contains("does not return it as it was sent"),
            "{said}"
        );
        assert!(!site.has(&format!(".xb-catalog/{name}")), "{name} has a manifest");
    }
    // The same with a copy to such a store.
    for (name, part, options) in [
        ("e", "/keys", &["--chunk-size=512K", &*key][..]),
        ("f", "/sums", &["--chunk-size=512K"]),
        ("g", "sums/", &["--layout=classic"]),
    ] {
        site.proxy.set_rules(Vec::new());
        let put = site.command("put", name, options).stdin_bytes(stream.clone());
        let _ = put.run().expect(0);
        site.losing(part);
        let to = site.url(&format!("to/{name}"));
        let copy = site.command("copy", name, &["--unverified"]).arg(to).run();
        let said = copy.expect(1).stderr_text();
        assert!(
            said.contains(part) && said.contains("does not return it as it was sent"),
            "{said}"
        );
        assert!(!site.has(&format!("to/.xb-catalog/{name}")), "the copy of {name} has a manifest");
    }
}

/// So is everything else that a command reports as done: pins, proofs, key slots.
#[test]
fn a_record_that_the_store_loses_is_not_reported_as_written() {
    let site = Site::new(bucket());
    let key = site.key_option();
    let put = site.command("put", "name", &["--chunk-size=512K", &key]);
    let _ = put.stdin_bytes(small_backup(32, MIB)).run().expect(0);
    let other = site.scratch.join("other");
    std::fs::write(&other, [8; 32]).unwrap();
    let other = format!("--new-key-file={}", other.display());
    for (part, command, options) in [
        ("pins/", "pin", &["--reason=keep"][..]),
        ("verified/", "verify", &["--level=checksum", &key]),
        ("/keys", "rewrap", &[&*key, &*other]),
    ] {
        site.losing(part);
        let ran = site.command(command, "name", options).run();
        // The verification itself has succeeded.
        let said = ran.expect(i32::from(command != "verify")).stderr_text();
        assert!(
            said.contains(part) && said.contains("does not return it as it was sent"),
            "{said}"
        );
        assert_eq!(said.contains("keep the old keys and the new ones"), command == "rewrap");
        site.proxy.set_rules(Vec::new());
        let _ = site.command(command, "name", options).run().expect(0);
    }
}

/// The new key slots are stored, and only they open the backup, although no answer says so.
#[test]
fn a_store_that_always_returns_the_old_key_slots_does_not_hide_that_the_new_ones_may_count() {
    let site = Site::new(bucket());
    let (key, other) = (site.key_option(), site.scratch.join("other"));
    std::fs::write(&other, [8; 32]).unwrap();
    let put = site.command("put", "name", &["--chunk-size=512K", &key]);
    let _ = put.stdin_bytes(small_backup(35, MIB)).run().expect(0);
    let of_keys = |(key, _): &(String, u64)| key.ends_with("/keys");
    let (object, _) = site.bucket.list("shop/name/").into_iter().find(of_keys).unwrap();
    let old = String::from_utf8(site.bucket.get(&object).unwrap()).unwrap();
    let rule = Rule::new("GET", "/keys", Action::Reply(Reply::text(200, &old)));
    site.proxy.set_rules(vec![rule]);
    let new = format!("--new-key-file={}", other.display());
    let said = site.command("rewrap", "name", &[&key, &new]).run().expect(1).stderr_text();
    assert!(said.contains("key slots of name may have been replaced"), "{said}");
    assert!(said.contains("keep the old keys and the new ones"), "{said}");
    site.proxy.set_rules(Vec::new());
    let opener = format!("--encrypt-key-file={}", other.display());
    let _ = site.command("verify", "name", &["--level=decrypt", &opener]).run().expect(0);
    let _ = site.command("verify", "name", &["--level=decrypt", &key]).run().expect(4);
}

/// The rule of a store that ignores conditions.
fn without_conditions() -> Rule {
    Rule::new("PUT", "", Action::Unconditional).with_header("if-none-match")
}

/// Like the next test, but the store also denies each read of the manifest, although it lists it.
#[test]
fn an_older_run_replaces_no_complete_backup_that_the_store_denies_and_lists() {
    let (old, new) = (small_backup(33, MIB), small_backup(34, MIB));
    let site = Site::unconditional();
    let mut older = site.command("put", "name", &["--chunk-size=512K"]).stdin_held().spawn();
    let mut input = older.stdin().unwrap();
    // Less than an object: one on its way would notice that the name is taken over.
    input.write_all(&old[..old.len() / 8]).unwrap();
    older.until("its claim", || {
        site.bucket.list("shop/name/").iter().any(|(key, _)| key.ends_with("/claim"))
    });
    let put = site.command("put", "name", &["--chunk-size=512K", "--take-over"]);
    let _ = put.stdin_bytes(new.clone()).run().expect(0);
    let denied =
        ["GET", "HEAD"].map(|method| Rule::new(method, "/.xb-catalog/name", Action::answer(404)));
    site.proxy.set_rules([&[without_conditions()][..], &denied].concat());
    input.write_all(&old[old.len() / 8..]).unwrap();
    drop(input);
    let said = older.wait().expect_failure().stderr_text();
    assert!(
        said.contains("lists this object, but answers every read as if it did not exist"),
        "{said}"
    );
    site.proxy.set_rules(vec![without_conditions()]);
    assert!(site.command("get", "name", &[]).run().expect(0).stdout == new);
}

/// An older run resumes after another one of its name has completed, in a store that ignores the
/// condition of a write.
#[test]
fn an_older_run_replaces_no_complete_backup_in_a_store_that_ignores_conditions() {
    let (old, new) = (small_backup(33, MIB), small_backup(34, MIB));
    let site = Site::unconditional();
    let options = ["--chunk-size=512K"];
    let options = [&options[..], &["--compress=none"]].concat();
    let mut older = site.command("put", "name", &options).stdin_held().spawn();
    let mut input = older.stdin().unwrap();
    input.write_all(&old[..old.len() / 2]).unwrap();
    older.until("its claim", || {
        site.bucket.list("shop/name/").iter().any(|(key, _)| key.ends_with("/claim"))
    });
    let put = site.command("put", "name", &["--chunk-size=512K", "--take-over"]);
    let put = put.stdin_bytes(new.clone()).run().expect(0);
    let _ = site.command("verify", "name", &["--level=checksum"]).run().expect(0);
    let _ = site.command("pin", "name", &["--reason=keep"]).run().expect(0);
    input.write_all(&old[old.len() / 2..]).unwrap();
    drop(input);
    let _ = older.wait().expect(1);
    assert!(site.command("get", "name", &[]).run().expect(0).stdout == new);
    let pinned = site.command("delete", "name", &["--yes"]).run().expect_failure();
    assert!(pinned.stderr_text().contains("pinned"), "{pinned:?}");
    let classic = site.command("put", "classic", &["--layout=classic"]);
    let classic = classic.stdin_bytes(new).run().expect(0);
    let _ = site.command("delete", "classic", &["--yes"]).run().expect(0);
    for said in [put.stderr_text(), classic.stderr_text()] {
        assert_eq!(said.matches("ignores the condition").count(), 1, "{said}");
    }
    // Every claim still says whose it is, and those with a common number cannot replace each other.
    let mut claims = site.bucket.list("shop/");
    claims.retain(|(key, _)| key.ends_with("/claim") || key.contains("/@claims/"));
    assert!(claims.len() > 1, "{claims:?}");
    for (key, _) in claims {
        let claim = String::from_utf8(site.bucket.get(&key).unwrap()).unwrap();
        assert!(claim.contains("\"holder\":\""), "{key}: {claim}");
        assert!(!key.contains("/@claims/") || key.contains('-'), "{key}");
    }
}

/// Between two tries of the same write, another run may have committed.
#[test]
fn a_repeated_write_of_the_manifest_looks_for_another_ones_first() {
    let site = Site::new(bucket());
    let (old, new) = (small_backup(35, MIB), small_backup(36, MIB));
    let plain = ["--chunk-size=512K", "--s3-provider=plain"];
    // The older run has found no manifest; its write is refused once, and then the store is slow.
    let manifest = "/.xb-catalog/name";
    site.proxy.set_rules(vec![
        Rule::new("PUT", manifest, Action::answer(503)).times(1),
        Rule::new("HEAD", manifest, Action::Hold).skip(1).times(1),
    ]);
    let mut older = site.command("put", "name", &plain).stdin_bytes(old).spawn();
    older.until("the second try", || site.proxy.held() == 1);
    let newer = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["put", "--quiet", "--take-over"])
        .args(site.bucket.options())
        .args(plain)
        .arg(site.url("name"));
    let _ = newer.stdin_bytes(new.clone()).run().expect(0);
    site.proxy.release();
    let _ = older.wait().expect(1);
    assert!(site.command("get", "name", &[]).run().expect(0).stdout == new);
}

/// `check` tries what a backup relies on.
#[test]
fn check_finds_a_store_without_conditions_or_ranges() {
    // Other checks may fail on this machine.
    let state = |site: &Site, what: &str| {
        let ran = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["check", "--json", "--max-backoff=50"])
            .args(options_for(&site.proxy.endpoint()))
            .arg(site.bucket.url("shop"))
            .run();
        let lines: serde_json::Value = serde_json::from_slice(&ran.stdout).expect("JSON");
        let mut lines = lines.as_array().expect("checks").iter();
        let line = lines.find(|line| line["what"] == what);
        line.unwrap_or_else(|| panic!("{what}: {ran:?}"))["state"].as_str().unwrap().to_owned()
    };
    let site = Site::unconditional();
    assert_eq!(state(&site, "create only"), "warning");
    site.proxy.set_rules(Vec::new());
    assert_eq!(state(&site, "create only"), "ok");
    assert_eq!(state(&site, "range"), "ok");
    let refused = Rule::new("PUT", "", Action::answer(501)).with_header("if-none-match");
    site.proxy.set_rules(vec![refused]);
    assert_eq!(state(&site, "create only"), "failed");
    site.proxy.set_rules(vec![Rule::new("GET", "", Action::WholeObject).with_header("range")]);
    assert_eq!(state(&site, "range"), "failed");
}

/// A cache that answers a range with the whole object can serve objects that are read whole.
#[test]
fn a_range_of_the_whole_object_needs_no_partial_answer() {
    let site = Site::new(open_bucket());
    let stream = small_backup(37, 3 * MIB);
    for (name, options) in
        [("packed", &["--chunk-size=1M"][..]), ("classic", &["--layout=classic"])]
    {
        site.proxy.set_rules(Vec::new());
        let put = site.command("put", name, options).stdin_bytes(stream.clone());
        let _ = put.run().expect(0);
        site.proxy.set_rules(vec![Rule::new("GET", "", Action::WholeObject).with_header("range")]);
        let get = site.command("get", name, &["--max-retries=1", "--retry-timeout=0"]).run();
        // The files of a classic backup come back in their own order.
        let got = get.expect(0).stdout;
        assert!(got == stream || name == "classic" && got.len() == stream.len(), "{name}");
    }
}

/// An answer that states a range is one, whatever its status.
#[test]
fn a_range_may_be_answered_with_status_200() {
    let site = Site::new(bucket());
    let stream = small_backup(39, 20 * MIB);
    let put = site.command("put", "n", &["--chunk-size=32M", "--compress=none"]);
    let _ = put.stdin_bytes(stream.clone()).run().expect(0);
    site.proxy.set_rules(vec![Rule::new("GET", "", Action::PartAs200).with_header("range")]);
    let limits = ["--max-retries=1", "--retry-timeout=0"];
    assert!(site.command("get", "n", &limits).run().expect(0).stdout == stream);
    let altered = site.proxy.seen().iter().filter(|seen| seen.action.is_some()).count();
    assert!(altered > 1, "{altered}");
}

/// Five runs that begin in the same second, and one more: each gets a name before it uploads.
#[test]
fn generated_names_are_settled_before_the_upload() {
    let site = Site::new(bucket());
    let stream = small_backup(38, 2 * MIB);
    for layout in ["packed", "classic"] {
        let options = [&*format!("--layout={layout}")];
        let template = format!("{layout}-{{date}}");
        let put = || site.command("put", &template, &options);
        let running: Vec<_> = (0..5).map(|_| put().stdin_bytes(stream.clone()).spawn()).collect();
        for run in running {
            let _ = run.wait().expect(0);
        }
        let _ = put().stdin_bytes(stream.clone()).run().expect(0);
        let names = |key: &str| {
            let name = key.strip_prefix("shop/.xb-catalog/")?.to_owned();
            (name.starts_with(layout) && !name.contains('/')).then_some(name)
        };
        let listed = site.bucket.list("shop/.xb-catalog/");
        let names: Vec<String> = listed.iter().filter_map(|(key, _)| names(key)).collect();
        assert_eq!(names.len(), 6, "{names:?}");
        for name in &names {
            let got = site.command("get", name, &[]).run().expect(0).stdout;
            assert!(got == stream || layout == "classic" && got.len() == stream.len(), "{name}");
        }
    }
}

/// A name that was given is refused while another run of this host writes to it, unless `--take-over` is given.
#[test]
fn a_given_name_is_refused_while_another_run_writes_to_it() {
    let site = Site::new(bucket());
    let (first, second) = (small_backup(39, MIB), small_backup(40, MIB));
    let mut older = site.command("put", "name", &[]).stdin_held().spawn();
    let mut input = older.stdin().unwrap();
    input.write_all(&first[..1000]).unwrap();
    older.until("its claim", || {
        site.bucket.list("shop/name/").iter().any(|(key, _)| key.ends_with("/claim"))
    });
    let refused = site.command("put", "name", &[]).stdin_bytes(second).run().expect(1);
    assert!(refused.stderr_text().contains("choose another name"), "{refused:?}");
    assert_eq!(site.bucket.list("shop/name/").len(), 1, "the refused run left something");
    input.write_all(&first[1000..]).unwrap();
    drop(input);
    let _ = older.wait().expect(0);
    assert!(site.command("get", "name", &[]).run().expect(0).stdout == first);
}

/// One wrong answer is asked for again before anything is concluded from it.
#[test]
fn one_wrong_answer_to_a_read_decides_nothing() {
    let site = Site::new(bucket());
    let stream = small_backup(41, 3 * MIB);
    for layout in ["packed", "classic"] {
        let options = [&*format!("--layout={layout}"), "--chunk-size=1M"];
        let manifest = format!(".xb-catalog/{layout}");
        for (n, action) in [Action::Alter, Action::answer(404)].into_iter().enumerate() {
            let name = format!("{layout}-{n}");
            // The first read finds the name free; the second one is that after the commit.
            let rule = Rule::new("GET", &format!("{manifest}-{n}"), action).skip(1).times(1);
            site.proxy.set_rules(vec![rule]);
            let put = site.command("put", &name, &options).stdin_bytes(stream.clone());
            let _ = put.run().expect(0);
            assert!(site.proxy.seen().iter().any(|seen| seen.action.is_some()), "no fault");
        }
        let object = if layout == "packed" { "/000000001" } else { "db/table.ibd.00000" };
        let target = site.scratch.join(layout);
        let dir = format!("--target-dir={}", target.display());
        for (command, options) in
            [("get", &[][..]), ("restore", &[&*dir][..]), ("verify", &["--level=checksum"])]
        {
            let rule = Rule::new("GET", object, Action::answer(404)).times(1);
            site.proxy.set_rules(vec![rule]);
            let _ = site.command(command, &format!("{layout}-0"), options).run().expect(0);
        }
        // Of classic objects that the store has copied itself, only a read shows what they are.
        for (n, action) in [Action::Alter, Action::answer(404)].into_iter().enumerate() {
            site.proxy.set_rules(vec![Rule::new("GET", object, action).times(1)]);
            let to = site.url(&format!("to/{layout}-{n}"));
            let copy = site.command("copy", &format!("{layout}-0"), &["--unverified"]).arg(to);
            let _ = copy.run().expect(0);
        }
    }
}

/// A receiver waits until the store is back; files on a disk can be archived again.
#[test]
fn a_push_of_log_files_ends_when_the_store_loses_them() {
    let site = Site::new(bucket());
    let log = xb_testkit::vectors::path("binlog/mariadb.000002").display().to_string();
    let push = || {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["binlog", "push", "--new-archive", "--server=shop", "--max-backoff=50"])
            .args(options_for(&site.proxy.endpoint()))
            .args([site.bucket.url("shop"), log.clone()])
            .run()
    };
    for part in ["/head", "/000000000000", "/end"] {
        site.losing(part);
        let said = push().expect_failure().stderr_text();
        assert!(said.contains("does not return it as it was sent"), "{part}: {said}");
    }
    site.proxy.set_rules(Vec::new());
    let _ = push().expect(0);
}

/// Without its manifest, a classic backup looks like one of the stock tool, of which nothing is known.
#[test]
fn a_backup_whose_manifest_is_listed_and_denied_is_no_stock_backup() {
    let site = Site::new(bucket());
    let put = site.command("put", "name", &["--layout=classic"]);
    let _ = put.stdin_bytes(small_backup(45, MIB)).run().expect(0);
    let denied =
        ["GET", "HEAD"].map(|method| Rule::new(method, "/.xb-catalog/name", Action::answer(404)));
    site.proxy.set_rules(denied.to_vec());
    let target = format!("--target-dir={}", site.scratch.join("target").display());
    for (command, options) in
        [("show", &[][..]), ("get", &[]), ("verify", &[]), ("restore", &[&*target])]
    {
        let said = site.command(command, "name", options).run().expect_failure().stderr_text();
        assert!(said.contains("answers every read as if it did not exist"), "{command}: {said}");
    }
    // One listing that hides objects hides no files.
    let short =
        |times| Rule::new("GET", "list-type=2", Action::Edit(Edit::Hide("db/"))).times(times);
    let shown = |rule: Rule| {
        site.proxy.set_rules(vec![rule]);
        let shown = site.command("show", "name", &["--json"]).run().expect(0);
        serde_json::from_slice::<serde_json::Value>(&shown.stdout).expect("JSON")
    };
    let once = shown(short(1));
    assert!(once["content"].to_string().contains("db/") && once["why_not"].is_null(), "{once:#}");
    let always = shown(short(u64::MAX));
    assert!(always["why_not"].to_string().contains("not those of the manifest"), "{always:#}");
}

/// The claim is read when it is confirmed, the manifest when it is marked for removal.
#[test]
fn one_wrong_answer_about_a_claim_or_a_mark_ends_no_run() {
    let site = Site::new(bucket());
    let stream = small_backup(44, MIB);
    for (layout, claim) in [("packed", "/claim"), ("classic", "/@claims/")] {
        let options = [&*format!("--layout={layout}"), "--chunk-size=512K"];
        for (n, action) in [Action::Alter, Action::answer(404)].into_iter().enumerate() {
            for skip in 0..3 {
                let name = format!("{layout}-{n}-{skip}");
                let told = |part: &str, skip: u64| {
                    let rule = Rule::new("GET", part, action.clone()).skip(skip).times(1);
                    site.proxy.set_rules(vec![rule]);
                };
                told(claim, skip);
                let put = site.command("put", &name, &options).stdin_bytes(stream.clone());
                let _ = put.run().expect(0);
                told(&format!("/.xb-catalog/{name}"), skip);
                let _ = site.command("delete", &name, &["--yes"]).run().expect(0);
                site.proxy.set_rules(Vec::new());
                let left = site.bucket.list(&format!("shop/{name}/"));
                assert!(left.is_empty(), "{name}: {left:?}");
            }
        }
    }
    let told = site.proxy.seen().iter().filter(|seen| seen.action.is_some()).count();
    assert!(told > 12, "{told}");
}

/// An upload that a lifecycle rule has removed is not a wrong name.
#[test]
fn a_forgotten_upload_names_the_lifecycle_rules() {
    let site = Site::new(bucket());
    let stream = small_backup(42, 40 * MIB);
    let options = ["--chunk-size=32M", "--memory=32M", "--retry-timeout=0", "--max-retries=1"];
    for (method, part, status, code) in [
        ("PUT", "partNumber=2", 404, "NoSuchUpload"),
        ("POST", "uploadId=", 404, "NoSuchUpload"),
        ("POST", "uploadId=", 400, "InvalidPart"),
    ] {
        site.proxy.set_rules(vec![Rule::new(method, part, Action::Refuse { status, code })]);
        let put = site.command("put", "name", &options).stdin_bytes(stream.clone()).run();
        let said = put.expect(1).stderr_text();
        assert!(said.contains("lifecycle rule"), "{code}: {said}");
    }
    // One may also have removed what the store has acknowledged and does not list.
    site.losing("/000000000");
    let put = site.command("put", "name", &["--chunk-size=512K"]).stdin_bytes(stream).run();
    let said = put.expect(7).stderr_text();
    assert!(said.contains("look for lifecycle rules that remove"), "{said}");
}
