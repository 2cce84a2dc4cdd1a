//! A store whose listings leave objects out, or that answers that listed objects do not exist: no
//! command removes anything on the strength of one such answer.

use serde_json::Value;
use xb_testkit::command::Ran;
use xb_testkit::fault::{Action, Edit, Rule};
use xb_testkit::reply::Reply;
use xb_testkit::stream::StreamWriter;

use crate::support::shop::Shop;

/// Part of the path of a request that lists the catalogue.
const CATALOGUE: &str = "prefix=shop%2F.xb-catalog%2F";

impl Shop {
    fn back_up(&self, name: &str, lsn: (u64, u64), base: Option<&str>) {
        let _ = self.backup(name, lsn, base).run().expect(0);
    }

    /// Full backups n0, n2 and n3, and last an increment i1 of n0.
    fn with_chain() -> Self {
        let shop = Self::new();
        shop.back_up("n0", (0, 100), None);
        shop.back_up("n2", (0, 200), None);
        shop.back_up("n3", (0, 300), None);
        shop.back_up("i1", (100, 400), Some("n0"));
        shop
    }

    fn with(&self, rules: Vec<Rule>) -> &Self {
        self.proxy.set_rules(rules);
        self
    }

    /// The names whose manifest and objects are all in the bucket.
    fn whole(&self) -> Vec<String> {
        let all = self.bucket.list("shop/");
        let keys = || all.iter().map(|(key, _)| key.as_str());
        let names = keys().filter_map(|key| key.strip_prefix("shop/.xb-catalog/"));
        let data =
            |name: &str| keys().filter(|key| key.starts_with(&format!("shop/{name}/"))).count();
        names.filter(|name| !name.contains('/') && data(name) >= 6).map(str::to_owned).collect()
    }

    fn prune(&self, last: u32) -> Ran {
        self.xbcloud(&["prune", "--yes", &format!("--keep-last={last}")], "").run()
    }

    /// The entry of a name in `list`.
    fn line(&self, name: &str) -> Value {
        let ran = self.xbcloud(&["list", "--json", "--no-cache"], "").run().expect(0);
        let lines: Value = serde_json::from_slice(&ran.stdout).unwrap();
        lines.as_array().unwrap().iter().find(|line| line["name"] == name).unwrap().clone()
    }
}

/// A bucket that was emptied, or is another one of its name.
#[test]
fn a_bucket_without_what_this_host_has_stored_is_no_good_repository() {
    let shop = Shop::new();
    let back_up = |name| shop.backup(name, (0, 100), None).run().expect(0).stderr_text();
    let state = format!("--state-dir={}", shop.scratch.join("state").display());
    let monitor = |exit| shop.xbcloud(&["monitor", &state], "").run().expect(exit).stdout_text();
    assert!(!back_up("n1").contains(" gone"));
    // Neither is one answer that it is not there.
    let _ = shop.with(vec![not_there("/.xb-catalog/n1").times(1)]);
    assert!(!back_up("n2").contains(" gone"));
    let _ = shop.with(Vec::new());
    let _ = monitor(0);
    let emptied = shop.bucket.list("shop/");
    let emptied = emptied.into_iter().map(|(key, _)| (shop.bucket.get(&key).unwrap(), key));
    let emptied: Vec<_> = emptied.inspect(|(_, key)| shop.bucket.delete(key)).collect();
    let prune = || shop.xbcloud(&["prune", "--keep-last=1", "--yes", &state], "").run();
    assert!(monitor(2).contains("n2 of "));
    assert!(back_up("n3").contains("n2 of "));
    assert!(prune().expect(1).stderr_text().contains("n2 of "));
    // It is back, for once beside what was new.
    emptied.iter().for_each(|(object, key)| shop.bucket.put(key, object));
    // By the store's clock, too, the newest one is the last: else the one that was put back last is kept, too.
    let newest = "shop/.xb-catalog/n3";
    shop.bucket.put(newest, &shop.bucket.get(newest).unwrap());
    let _ = prune().expect(0);
    assert_eq!(shop.whole(), ["n3"]);
    shop.bucket.list("shop/").iter().for_each(|(key, _)| shop.bucket.delete(key));
    assert!(back_up("n3").contains("n2 of "));
    assert!(monitor(2).contains("the repository was begun anew at "));
    let _ = shop.xbcloud(&["accept", "--begun-anew", &state], "").run().expect(0);
    let _ = monitor(0);
    assert!(!back_up("n4").contains(" gone"));
}

/// The newest backup is in an archive class by now.
#[test]
fn a_manifest_that_cannot_be_read_ends_no_later_backup() {
    let shop = Shop::new();
    shop.back_up("n1", (0, 100), None);
    let refused = Action::Refuse { status: 403, code: "InvalidObjectState" };
    let _ = shop.with(vec![Rule::new("GET", "/.xb-catalog/n1", refused)]);
    let said = shop.backup("n2", (0, 200), None).run().expect(0).stderr_text();
    assert!(!said.contains(" gone"), "{said}");
}

fn hide(part: &str, entry: &'static str) -> Rule {
    Rule::new("GET", part, Action::Edit(Edit::Hide(entry)))
}

fn not_there(key: &str) -> Rule {
    Rule::new("", key, Action::Refuse { status: 404, code: "NoSuchKey" })
}

/// Ways in which a store conceals the increment i1: always, or once.
fn concealed() -> Vec<Vec<Rule>> {
    let error = Reply::text(200, "<Error><Code>InternalError</Code></Error>");
    let page = Reply::text(200, "<html/>");
    let list = |reply: &Reply, times| {
        Rule::new("GET", CATALOGUE, Action::Reply(reply.clone())).times(times)
    };
    vec![
        vec![hide(CATALOGUE, "/i1</Key>")],
        vec![hide(CATALOGUE, "/i1</Key>").times(1)],
        vec![not_there("/.xb-catalog/i1")],
        vec![not_there("/.xb-catalog/i1").times(1)],
        vec![list(&error, 1)],
        vec![list(&error, u64::MAX)],
        vec![list(&page, u64::MAX)],
    ]
}

#[test]
fn no_false_listing_and_no_false_404_loses_a_chain() {
    let shop = Shop::with_chain();
    for rules in concealed() {
        let what = format!("{rules:?}");
        shop.with(rules.clone());
        let refused = shop.xbcloud(&["delete", "--yes"], "/n0").run().expect_failure();
        assert_eq!(shop.whole(), ["i1", "n0", "n2", "n3"], "{what}: {refused:?}");
    }
    for rules in concealed() {
        let shop = Shop::with_chain();
        let what = format!("{rules:?}");
        let pruned = shop.with(rules).prune(2);
        let whole = shop.whole();
        for needed in ["i1", "n0", "n3"] {
            assert!(whole.contains(&needed.to_owned()), "{what}: {whole:?}, {pruned:?}");
        }
    }
    shop.with(vec![hide(CATALOGUE, "/i1</Key>")]);
    assert_eq!(shop.line("i1")["state"], "complete");
    shop.with(vec![not_there("/.xb-catalog/i1")]);
    assert_eq!(shop.line("i1")["state"], "unreadable");
}

/// A store that always hides all of an increment cannot hide it from the host that has stored it.
#[test]
fn a_backup_of_this_host_counts_although_no_listing_shows_it() {
    let shop = Shop::with_chain();
    shop.back_up("i2", (400, 500), Some("i1"));
    let state = shop.scratch.join("state");
    let remove = |args: &[&str], name: &str, is_hidden: bool| {
        let hidden = ["/i1", "/i2"].into_iter().chain(is_hidden.then_some("/n0"));
        shop.with(hidden.map(|entry| hide("list-type=2", entry)).collect());
        shop.xbcloud(args, name).env("XBCLOUD_STATE_DIR", &state).run()
    };
    // Nor does it hide them if it hides the base, too: its pages end too early.
    for is_hidden in [false, true] {
        let refused = remove(&["delete", "--yes"], "/n0", is_hidden).expect_failure();
        assert!(refused.stderr_text().contains("i1"), "{refused:?}");
    }
    let option = format!("--state-dir={}", state.display());
    let refused = shop.xbcloud(&["delete", "--yes", &option], "/n0").run().expect_failure();
    assert!(refused.stderr_text().contains("i1"), "{refused:?}");
    let _ = remove(&["prune", "--yes", "--keep-last=1"], "", false).expect(0);
    assert_eq!(shop.whole(), ["i1", "i2", "n0", "n3"]);
    // A base that is gone for good keeps no increment.
    shop.with(Vec::new());
    for name in ["/i2", "/i1", "/n0"] {
        let remove = shop.xbcloud(&["delete", "--yes"], name).env("XBCLOUD_STATE_DIR", &state);
        let _ = remove.run().expect(0);
    }
    assert_eq!(shop.whole(), ["n3"]);
}

/// The names of these objects are known: a listing that leaves them out leaves nothing behind.
#[test]
fn no_object_of_a_run_is_left_behind_because_no_listing_shows_it() {
    let shop = Shop::new();
    shop.back_up("n0", (0, 100), None);
    let whole = shop.bucket.list("shop/n0/");
    for object in ["/claim</Key>", "/sums</Key>", "/000000002</Key>"] {
        shop.with(vec![hide("list-type=2", object)]);
        let refused = shop.xbcloud(&["delete", "--yes"], "/n0").run().expect_failure();
        assert!(refused.stderr_text().contains("does not list it"), "{object}: {refused:?}");
        assert_eq!(shop.bucket.list("shop/n0/"), whole, "{object}");
    }
    let _ = shop.with(Vec::new()).xbcloud(&["delete", "--yes"], "/n0").run().expect(0);
    assert_eq!(shop.bucket.list("shop/n0/"), []);
}

/// An answer that an object is removed, or was not there, does not show that it is gone.
#[test]
fn removed_objects_are_no_longer_listed() {
    let shop = Shop::new();
    let object = "/000000001";
    for answer in [Action::Swallow, Action::Refuse { status: 404, code: "NoSuchKey" }] {
        let lie = |times| vec![Rule::new("DELETE", object, answer.clone()).times(times)];
        shop.with(Vec::new()).back_up("n0", (0, 100), None);
        // One request for each object, as for Azure.
        let delete = ["delete", "--yes", "--s3-provider=plain"];
        let _ = shop.with(lie(1)).xbcloud(&delete, "/n0").run().expect(0);
        assert_eq!(shop.bucket.list("shop/n0/"), [], "{answer:?}");
        shop.with(Vec::new()).back_up("n0", (0, 100), None);
        let failed = shop.with(lie(u64::MAX)).xbcloud(&delete, "/n0").run().expect_failure();
        assert!(failed.stderr_text().contains("still lists it"), "{answer:?}: {failed:?}");
        let _ = shop.with(Vec::new()).xbcloud(&["delete", "--yes"], "/n0").run();
        for (key, _) in shop.bucket.list("shop/n0/") {
            shop.bucket.delete(&key);
        }
    }
}

/// Nor does a listing alone show that something is left: some stores list objects for a while after their removal.
#[test]
fn a_listing_that_lags_behind_fails_no_removal() {
    let shop = Shop::new();
    shop.back_up("n0", (0, 100), None);
    let entries = shop.bucket.list("shop/n0/").into_iter().map(|(key, size)| {
        format!(
            "<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>x</ETag><Size>{size}</Size></Contents>"
        )
    });
    let entries: String = entries.collect();
    let page = Reply::text(
        200,
        &format!(
            "<ListBucketResult><Prefix>shop/n0/</Prefix><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>"
        ),
    );
    let stale = Rule::new("GET", "prefix=shop%2Fn0%2F", Action::Reply(page));
    let _ = shop.with(vec![stale]).xbcloud(&["delete", "--yes"], "/n0").run().expect(0);
    assert_eq!(shop.bucket.list("shop/n0/"), []);
    // The name is free.
    shop.with(Vec::new()).back_up("n0", (0, 200), None);
}

/// Damage, proofs and pins that a listing does not show, or that cannot be read.
#[test]
fn records_that_a_store_conceals_count() {
    let shop = Shop::new();
    for (n, name) in ["n0", "n1", "n2"].iter().enumerate() {
        shop.back_up(name, (0, 100 * (n as u64 + 1)), None);
    }
    // The newest is damaged, the oldest is pinned.
    let (key, _) =
        shop.bucket.list("shop/n2/").into_iter().find(|(key, _)| key.ends_with("000001")).unwrap();
    let good = shop.bucket.get(&key).unwrap();
    shop.bucket.put(&key, &vec![b'x'; good.len()]);
    let _ = shop.xbcloud(&["verify", "--level=checksum"], "/n2").run().expect_failure();
    let _ = shop.xbcloud(&["pin"], "/n0").run().expect(0);
    for rules in [
        vec![hide(CATALOGUE, "/@verified/")],
        vec![hide(CATALOGUE, "/@pins/")],
        vec![not_there("/%40verified/")],
        vec![not_there("/%40verified/").times(2)],
        vec![not_there("/%40pins/")],
        vec![not_there("/%40pins/").times(1)],
        vec![Rule::new("GET", "list-type=2", Action::Edit(Edit::Double))],
    ] {
        let what = format!("{rules:?}");
        let _ = shop.with(rules.clone()).prune(1);
        assert_eq!(shop.whole(), ["n0", "n1", "n2"], "{what}");
    }
    shop.with(vec![not_there("/%40pins/")]);
    for options in [&["delete", "--yes"][..], &["delete", "--yes", "--force"]] {
        let refused = shop.xbcloud(options, "/n0").run().expect_failure().stderr_text();
        assert!(refused.contains("pinned"), "{refused}");
    }
    assert_eq!(shop.whole(), ["n0", "n1", "n2"]);
}

/// `prune` counts an entry that a listing repeats once.
#[test]
fn doubled_entries_count_once() {
    let shop = Shop::new();
    for (n, name) in ["n0", "n1", "n2", "n3"].iter().enumerate() {
        shop.back_up(name, (0, 100 * (n as u64 + 1)), None);
    }
    shop.with(vec![Rule::new("GET", "list-type=2", Action::Edit(Edit::Double))]);
    let _ = shop.prune(2).expect(0);
    assert_eq!(shop.whole(), ["n2", "n3"]);
}

/// By the store's clock, three days have passed: every claim is that of a dead run.
fn later() -> Rule {
    Rule::new("", "", Action::Ahead(3 * 24 * 3600))
}

#[test]
fn gc_takes_no_backup_for_a_dead_run() {
    let shop = Shop::new();
    shop.back_up("n0", (0, 100), None);
    shop.back_up("n1", (0, 200), None);
    let manifest = "/.xb-catalog/n0";
    for mut rules in [
        vec![not_there(manifest)],
        vec![not_there(manifest).times(1)],
        vec![hide(CATALOGUE, "/n0</Key>")],
        vec![hide(CATALOGUE, "/n0</Key>"), not_there(manifest).times(0)],
    ] {
        let what = format!("{rules:?}");
        rules.push(later());
        let ran = shop.with(rules).xbcloud(&["gc", "--yes"], "").run();
        assert_eq!(shop.whole(), ["n0", "n1"], "{what}: {ran:?}");
    }
    // It works: without its manifest, a backup is a dead run.
    shop.bucket.delete("shop/.xb-catalog/n0");
    let _ = shop.with(vec![later()]).xbcloud(&["gc", "--yes"], "").run().expect(0);
    assert_eq!(shop.bucket.list("shop/n0/"), []);
}

/// A retention policy lets objects be written and not removed.
#[test]
fn gc_writes_nothing_in_vain_and_removes_what_it_can() {
    let shop = Shop::new();
    shop.back_up("n0", (0, 100), None);
    let refuse = |method, part| {
        Rule::new(method, part, Action::Refuse { status: 403, code: "AccessDenied" })
    };
    let gc = |rules: Vec<Rule>| {
        shop.with(rules).xbcloud(&["gc", "--yes", "--s3-provider=plain"], "").run().expect(0)
    };
    let _ = gc(vec![refuse("PUT", ""), refuse("DELETE", ""), later()]);
    shop.bucket.delete("shop/.xb-catalog/n0");
    let of_clock = || shop.bucket.list("shop/.xb-catalog/@tune/").len();
    let _ = gc(vec![refuse("DELETE", "%40tune/"), later()]);
    assert_eq!((shop.bucket.list("shop/n0/").len(), of_clock()), (0, 1));
    // Objects that could not be removed then are removed now.
    let _ = gc(vec![later()]);
    assert_eq!(of_clock(), 0);
}

/// A proxy puts its own clock into responses. If that is ahead, a living run looks dead by it.
#[test]
fn a_proxy_with_a_wrong_clock_makes_no_living_run_look_dead() {
    let shop = Shop::new();
    let in_doubt = || Rule::new("PUT", "/.xb-catalog/n", Action::answer(503));
    let wrong = |seconds: u64| vec![Rule::new("", "", Action::WrongDate(seconds))];
    let put = |rules, options: &[&str], name: &str| {
        let stream = xb_testkit::stream::small_backup(1, 300_000);
        let put = shop.with(rules).xbcloud(&[&["put"], options].concat(), name);
        put.stdin_bytes(stream).run()
    };
    // Whether it lives is unknown: only its claim is left, as on another host.
    let _ = put(vec![in_doubt()], &[], "/n0").expect_failure();
    let before = shop.bucket.list("shop/n0/");
    assert!(before.len() > 1, "{before:?}");
    let gc = |rules| shop.with(rules).xbcloud(&["gc", "--yes"], "").run().expect(0);
    let _ = gc(wrong(3 * 24 * 3600));
    assert_eq!(shop.bucket.list("shop/n0/"), before);
    let _ = gc(vec![later()]);
    assert_eq!(shop.bucket.list("shop/n0/"), []);

    let classic = ["--layout=classic"];
    let _ = put(vec![in_doubt()], &classic, "/n1").expect_failure();
    let (claim, _) = shop.bucket.list("shop/.xb-catalog/@claims/n1/").pop().unwrap();
    let theirs = String::from_utf8(shop.bucket.get(&claim).unwrap()).unwrap();
    shop.bucket.put(&claim, theirs.replace("pid_namespace", "their_namespace").as_bytes());
    // The clock is ahead only while a newer claim is read, of a dead process that has done nothing.
    let newer = claim.replace("000001", "000002");
    assert_ne!(newer, claim);
    shop.bucket.put(&newer, theirs.replace("\"holding\"", "\"claiming\"").as_bytes());
    let once = vec![Rule::new("GET", "/n1/000002", Action::WrongDate(7200))];
    let refused = put(once, &classic, "/n1").expect_failure().stderr_text();
    assert!(refused.contains("in progress"), "{refused}");
    shop.bucket.delete(&newer);
    let refused = put(wrong(7200), &classic, "/n1").expect_failure().stderr_text();
    assert!(refused.contains("in progress"), "{refused}");
    let _ = put(vec![later()], &classic, "/n1").expect(0);

    // Nor does it forget that requests of a run before the last one may still arrive.
    let ended =
        theirs.replace("\"holding\"", "\"ended\"").replace("\"late\":false", "\"late\":true");
    assert!(ended.contains("ended") && ended.contains("\"late\":true"), "{ended}");
    let claims = "shop/.xb-catalog/@claims/n2/";
    shop.bucket.put(&format!("{claims}000001"), ended.as_bytes());
    let _ = put(wrong(7200), &classic, "/n2").expect(0);
    let (newest, _) = shop.bucket.list(claims).pop().unwrap();
    let newest = String::from_utf8(shop.bucket.get(&newest).unwrap()).unwrap();
    assert!(newest.contains("\"late\":true"), "{newest}");
}

/// A new backup takes the name of one whose objects are gone, and only of such a one.
#[test]
fn a_backup_whose_objects_no_listing_shows_is_not_replaced() {
    let shop = Shop::new();
    let stream = shop.scratch.join("stream");
    let mut out = StreamWriter::new(Vec::new());
    let _ = out.file("db/t.CSV", &xb_testkit::data::noise(1, 300_000), 1 << 20);
    let _ = out.info();
    std::fs::write(&stream, out.finish()).unwrap();
    let put = |options: &[&str]| {
        let args = [&["put"], options].concat();
        shop.xbcloud(&args, "/n").stdin_file(&stream).run()
    };
    for options in [
        &["--layout=classic", "--unsafe-any-end"][..],
        &["--layout=classic"],
        &["--chunk-size=64K"],
    ] {
        let _ = shop.with(Vec::new()).xbcloud(&["delete", "--yes"], "/n").run();
        let _ = put(options).expect(0);
        let before = shop.bucket.list("shop/");
        shop.with(vec![hide("prefix=shop%2Fn%2F", "")]);
        let refused = put(options).expect_failure().stderr_text();
        assert!(refused.contains("exists"), "{options:?}: {refused}");
        assert_eq!(shop.bucket.list("shop/"), before, "{options:?}");
    }
    // Nor does a delete leave behind what no listing shows.
    let refused = shop.xbcloud(&["delete", "--yes"], "/n").run().expect_failure().stderr_text();
    assert!(refused.contains("does not list it"), "{refused}");
    assert!(shop.bucket.get("shop/.xb-catalog/n").is_some());
}

/// A cache keeps what was read, so an altered answer could hide a proof, or damage, for ever.
#[test]
fn an_altered_record_hides_no_result() {
    let shop = Shop::new();
    shop.back_up("n0", (0, 100), None);
    let _ = shop.xbcloud(&["verify", "--level=list"], "/n0").run().expect(0);
    shop.with(vec![Rule::new("GET", "/%40verified/", Action::Alter).times(1)]);
    for cached in [false, true] {
        let list = shop.xbcloud(&["list", "--json"], "");
        let ran = list.env("XDG_CACHE_HOME", shop.scratch.join("cache")).run().expect(0);
        let lines: Value = serde_json::from_slice(&ran.stdout).unwrap();
        assert_eq!(lines[0]["verified"]["level"], "list", "{cached}: {lines}");
    }
}

/// A store that always hides all of a backup from its listings cannot hide it from a host that has seen it, for as long as
/// reads find it.
#[test]
fn a_backup_that_was_seen_and_that_no_listing_shows_any_more_is_asked_for() {
    let shop = Shop::with_chain();
    let look = |args: &[&str]| {
        let look = shop.xbcloud(args, "");
        look.env("XDG_CACHE_HOME", shop.scratch.join("cache")).run()
    };
    let names = || {
        let lines: Value =
            serde_json::from_slice(&look(&["list", "--json"]).expect(0).stdout).unwrap();
        let names = lines.as_array().unwrap().iter().map(|line| line["name"].as_str().unwrap());
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(names(), ["i1", "n0", "n2", "n3"]);
    shop.with(["/n0", "/i1"].map(|entry| hide("list-type=2", entry)).to_vec());
    for _ in 0..2 {
        assert_eq!(names(), ["i1", "n0", "n2", "n3"]);
    }
    let seen = look(&["monitor", "--max-age=1h"]).expect(0).stdout;
    let seen = String::from_utf8(seen).unwrap();
    assert!(seen.contains("the newest backup i1"), "{seen}");
    // A read that is denied does not show that one is gone, unless the store denies what is not there, too.
    let denied = |key| Rule::new("GET", key, Action::Refuse { status: 403, code: "AccessDenied" });
    shop.with(vec![hide("list-type=2", "/n2"), denied("catalog/n2")]);
    for _ in 0..2 {
        assert_eq!(names(), ["i1", "n0", "n2", "n3"]);
    }
    shop.with(vec![hide("list-type=2", "/n2"), denied("catalog/n2"), denied("none")]);
    assert_eq!(names(), ["i1", "n0", "n3"]);
    // One that is gone is forgotten.
    shop.with(Vec::new());
    let _ = shop.xbcloud(&["delete", "--yes"], "/i1").run().expect(0);
    assert_eq!(names(), ["n0", "n2", "n3"]);
}

/// Which backup is the latest, and whether its base is there, no single listing decides.
#[test]
fn latest_is_not_what_a_short_listing_shows() {
    let shop = Shop::with_chain();
    for entry in ["/i1</Key>", "/n0</Key>", "</Key>"] {
        for times in [1, u64::MAX] {
            let ran = shop
                .with(vec![hide(CATALOGUE, entry).times(times)])
                .xbcloud(&["show", "--json"], "/latest")
                .run();
            let shown: Value = serde_json::from_slice(&ran.expect(0).stdout).unwrap();
            assert_eq!(shown["name"], "i1", "without {entry} {times} times");
        }
    }
}

/// A base that is named is judged as `latest` is, and one false answer decides nothing.
#[test]
fn nothing_is_based_on_a_backup_that_cannot_be_restored() {
    let shop = Shop::with_chain();
    let objects = "prefix=shop%2Fn0%2F";
    let increment = || shop.backup("i2", (400, 500), Some("i1")).run();
    for rules in [
        vec![hide(objects, "").times(1), not_there("/shop/n0/").times(1)],
        vec![not_there("/shop/n0/")],
    ] {
        let _ = shop.with(rules);
        let _ = increment().expect(0);
        let _ = shop.with(Vec::new()).xbcloud(&["delete", "--yes"], "/i2").run().expect(0);
    }
    for (key, _) in shop.bucket.list("shop/n0/") {
        shop.bucket.delete(&key);
    }
    let ran = increment().expect_failure().stderr_text();
    assert!(ran.contains("its base i1 cannot be restored: its base n0: its objects"), "{ran}");
    // A backup that a verification has found damaged is no base, either.
    let all = shop.bucket.list("shop/n2/");
    let (first, _) = all.iter().find(|(key, _)| key.ends_with("/000000000")).unwrap();
    shop.bucket.put(first, &b"x"[..]);
    let _ = shop.xbcloud(&["verify", "--level=checksum"], "/n2").run().expect(7);
    let ran = shop.backup("i3", (200, 500), Some("n2")).run().expect_failure().stderr_text();
    assert!(ran.contains("its base n2 cannot be restored: verification found it damaged"), "{ran}");
    assert!(!shop.whole().iter().any(|name| name == "i2" || name == "i3"));
}

/// Damage is recorded only if the listing and the objects agree.
#[test]
fn a_short_listing_is_no_damage() {
    let shop = Shop::with_chain();
    let objects = "prefix=shop%2Fn2%2F";
    let verify = |rules| shop.with(rules).xbcloud(&["verify", "--level=checksum"], "/n2").run();
    let _ = verify(vec![hide(objects, "/000000000</Key>").times(1)]).expect(0);
    let _ = verify(vec![hide(objects, "<Key>").times(1)]).expect(0);
    let ran = verify(vec![hide(objects, "/000000000</Key>")]).expect_failure();
    assert!(ran.stderr_text().contains("does not list it"), "{ran:?}");
    assert_eq!(shop.with(Vec::new()).line("n2")["verified"]["failed"], Value::Null);
    let all = shop.bucket.list("shop/n2/");
    let (first, _) = all.iter().find(|(key, _)| key.ends_with("/000000000")).unwrap();
    // Too short by every answer, although the listing and the object itself do not agree.
    let content = shop.bucket.get(first).unwrap();
    shop.bucket.put(first, &content[1..]);
    let gone = Rule::new("HEAD", "/000000000", Action::Refuse { status: 404, code: "NoSuchKey" });
    for rule in [hide(objects, "/000000000</Key>"), gone] {
        let _ = verify(vec![rule]).expect(7);
    }
    shop.bucket.delete(first);
    let _ = verify(Vec::new()).expect(7);
}

/// An object that reads never find is missing only if neither its headers nor a listing show it.
#[test]
fn a_read_that_denies_what_a_listing_shows_is_no_damage() {
    let shop = Shop::new();
    let stream = |to| {
        let mut out = StreamWriter::new(Vec::new());
        let _ = out.file("db/t.CSV", &xb_testkit::data::noise(1, 300_000), 64 << 10);
        let _ = out.positions(0, to).info();
        out.finish()
    };
    let key = shop.scratch.join("key");
    std::fs::write(&key, [7; 32]).unwrap();
    let sealed = format!("--encrypt-key-file={}", key.display());
    let stored = |name: &str, options: &[&str]| {
        let put = [&["put", "--chunk-size=64K"], options].concat();
        let _ = shop.xbcloud(&put, name).stdin_bytes(stream(100)).run().expect(0);
    };
    stored("/p0", &[&sealed]);
    stored("/c0", &["--layout=classic"]);
    let object = "t.CSV.00000000000000000002";
    for (name, options, part, level) in [
        ("/p0", &[&*sealed][..], "/000000002", "checksum"),
        ("/p0", &[&*sealed], "/keys", "manifest"),
        ("/c0", &[], object, "checksum"),
    ] {
        let verify = [&["verify", "--level=checksum"], options].concat();
        let denied = Action::Refuse { status: 404, code: "NoSuchKey" };
        let rule = |method| Rule::new(method, part, denied.clone());
        for rules in [vec![rule("GET")], vec![rule("GET"), rule("HEAD")]] {
            let ran = shop.with(rules).xbcloud(&verify, name).run().expect(1);
            assert!(ran.stderr_text().contains("as if it did not exist"), "{part}: {ran:?}");
            let line = shop.with(Vec::new()).line(&name[1..]);
            assert_eq!(line["verified"]["failed"], Value::Null, "{part}: {line}");
            // The store may have lost it, so an earlier proof must not hide the try.
            assert_eq!(line["failed_try"]["level"], level, "{part}: {line}");
            assert!(ran.stderr_text().contains("take a new backup"), "{part}: {ran:?}");
        }
        let _ = shop.with(Vec::new()).xbcloud(&verify, name).run().expect(0);
        let line = shop.with(Vec::new()).line(&name[1..]);
        assert_eq!(line["failed_try"], Value::Null, "{part}: {line}");
    }
    let _ = shop.xbcloud(&["verify", "--level=checksum"], "/c0").run().expect(0);
}

/// The objects of a classic backup are known from a listing alone: where it shows a hole or another length, the
/// objects themselves are asked.
#[test]
fn a_short_listing_is_no_damage_of_a_classic_backup() {
    let shop = Shop::new();
    let mut out = StreamWriter::new(Vec::new());
    let _ = out.file("db/t.CSV", &xb_testkit::data::noise(1, 300_000), 64 << 10);
    let _ = out.positions(0, 100).info();
    let put = ["put", "--layout=classic"];
    let _ = shop.xbcloud(&put, "/c0").stdin_bytes(out.finish()).run().expect(0);
    let objects = "prefix=shop%2Fc0%2F";
    let run = |rules, args: &[&str]| shop.with(rules).xbcloud(args, "/c0").run();
    let verify = ["verify", "--level=checksum"];
    let damaged = || shop.with(Vec::new()).line("c0")["verified"]["failed"].clone();
    for hidden in ["t.CSV.00000000000000000002</Key>", "xtrabackup_info.00000000000000000000</Key>"]
    {
        for args in [&verify[..], &["get"]] {
            let _ = run(vec![hide(objects, hidden).times(1)], args).expect(0);
        }
    }
    // In the middle of a file, its last, and all of it: its name follows the checksums.
    for hidden in ["t.CSV.00000000000000000002<", "t.CSV.00000000000000000005<", "t.CSV."] {
        let ran = run(vec![hide(objects, hidden)], &verify).expect(1);
        assert!(ran.stderr_text().contains("does not list it"), "{hidden}: {ran:?}");
        assert_eq!(damaged(), Value::Null, "{hidden}");
    }
    // All of it, for ever: what every backup has is asked for by its key.
    let none =
        Reply::text(200, "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>");
    let ran = run(vec![Rule::new("GET", objects, Action::Reply(none))], &verify).expect(1);
    assert!(ran.stderr_text().contains("does not list it"), "{ran:?}");
    assert_eq!(damaged(), Value::Null);
    let part = "shop/c0/db/t.CSV.00000000000000000002";
    let content = shop.bucket.get(part).unwrap();
    shop.bucket.put(part, &content[1..]);
    let gone = Rule::new("HEAD", "/c0/db/t.CSV", Action::Refuse { status: 404, code: "NoSuchKey" });
    let _ = run(vec![gone], &verify).expect(7);
    let _ = run(Vec::new(), &verify).expect(7);
    shop.bucket.delete(part);
    let _ = run(Vec::new(), &verify).expect(7);
    assert_ne!(damaged(), Value::Null);
    // A file that is gone is damage, and a lost list of names makes none of it.
    shop.bucket.list("shop/c0/db/t.CSV.").iter().for_each(|(key, _)| shop.bucket.delete(key));
    let _ = run(Vec::new(), &verify).expect(7);
    shop.bucket.list("shop/.xb-catalog/@sums/").iter().for_each(|(key, _)| shop.bucket.delete(key));
    let _ = run(Vec::new(), &verify).expect(7);
}

/// One answer that a manifest is missing, or that is another's, decides nothing.
#[test]
fn one_wrong_answer_for_a_manifest_decides_nothing() {
    let shop = Shop::with_chain();
    let other = shop.bucket.get("shop/.xb-catalog/n3").unwrap();
    let other = Reply::text(200, &String::from_utf8(other).unwrap());
    for rule in
        [not_there("/.xb-catalog/n2"), Rule::new("GET", "/.xb-catalog/n2", Action::Reply(other))]
    {
        for args in [&["verify", "--level=list"][..], &["show"], &["get"]] {
            let _ = shop.with(vec![rule.clone().times(1)]).xbcloud(args, "/n2").run().expect(0);
        }
    }
}

/// In a store that lists no folders without objects, too, a folder of the name is no sign of the run that the manifest names.
#[test]
fn objects_of_another_run_are_not_those_of_the_backup() {
    let shop = Shop::new();
    shop.back_up("n0", (0, 100), None);
    let listed = |provider: &str| -> Value {
        let ran = shop
            .xbcloud(&["list", "--json", provider], "")
            .env("XDG_CACHE_HOME", shop.scratch.join(provider))
            .run()
            .expect(0);
        let lines: Value = serde_json::from_slice(&ran.stdout).unwrap();
        lines[0]["state"].clone()
    };
    // A cache remembers one manifest, so each look has a cache of its own.
    let providers = ["--s3-provider=aws", "--s3-provider=other"];
    assert!(providers.iter().all(|provider| listed(provider) == "complete"));
    for provider in providers {
        std::fs::remove_dir_all(shop.scratch.join(provider)).unwrap();
    }
    for (key, _) in shop.bucket.list("shop/n0/") {
        let content = shop.bucket.get(&key).unwrap();
        let (folder, object) = key.rsplit_once('/').unwrap();
        let other = format!("{}0123456789abcdef0123456789abcdef/{object}", &folder[..8]);
        shop.bucket.put(&other, &content);
        shop.bucket.delete(&key);
    }
    for provider in providers {
        assert_eq!(listed(provider), "missing", "{provider}");
    }
}
