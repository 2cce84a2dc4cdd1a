//! Copies between places with different credentials.

use crate::support::*;
use xb_backup::{CopyRequest, Keys, Resources, Session};
use xb_repo::names::BackupName;
use xb_repo::root::Root;
use xb_testkit::command::{Cmd, Ran};
use xb_testkit::fault::{Action, Edit, Proxy, Rule};
use xb_testkit::reply::Reply;
use xb_testkit::s3::{self, Bucket, OTHER_KEY, READ_KEY, SECRET_KEY};
use xb_testkit::store::Store;
use xb_testkit::stream::small_backup;
use xb_uploader::{BucketLookup, Location, Policy, S3Settings, StoreSettings};

const MIB: usize = 1 << 20;

/// `xbcloud-rs copy OPTIONS FROM TO`.
fn copy(options: &[String], from: &str, to: &str) -> Cmd {
    Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["copy", "--quiet", "--unverified"])
        .args(options)
        .args([from, to])
}

/// Options for a server with this key; `to` is empty, or `to-` for the destination.
fn options(to: &str, endpoint: &str, key: &str) -> Vec<String> {
    vec![
        format!("--{to}s3-endpoint={endpoint}"),
        format!("--{to}s3-access-key={key}"),
        format!("--{to}s3-secret-key={SECRET_KEY}"),
        format!("--{to}s3-bucket-lookup=path"),
    ]
}

fn in_bucket(store: &Store) -> &Bucket {
    let Store::Bucket(bucket) = store else { unreachable!() };
    bucket
}

#[test]
fn each_place_is_entered_with_its_own_keys_at_its_own_address() {
    let (from, to) = (Store::bucket(), Store::bucket());
    let stream = small_backup(5, 3 * MIB);
    let _ = put_bytes(&from, "name", &["--chunk-size=1M"], &stream);
    // Two addresses of one server, so that the requests to each can be told apart.
    let proxies = [&from, &to].map(|store| Proxy::start(in_bucket(store).address(), Vec::new()));
    let source = options("", &proxies[0].endpoint(), READ_KEY);
    let target = options("to-", &proxies[1].endpoint(), OTHER_KEY);
    // The source's key may not write anywhere.
    let refused = copy(&source, &from.url("name"), &to.url("name")).run().expect_failure();
    assert!(refused.stderr_text().contains("AccessDenied"), "{refused:?}");
    let requests = proxies[0].seen().len();
    let both = [source.clone(), target].concat();
    let _ = copy(&both, &from.url("name"), &to.url("name")).run().expect(0);
    assert_eq!(get_bytes(&to, "name"), stream);
    assert_eq!(proxies[0].seen()[requests..].iter().filter(|seen| seen.method != "GET").count(), 0);
    assert!(proxies[0].seen().len() > requests && proxies[1].count("PUT", "/00000000") > 2);
    assert_eq!(proxies[1].count("", &format!("/{}/", in_bucket(&from).name())), 0);
}

#[test]
fn the_same_bucket_with_other_keys_is_read_and_put() {
    let store = Store::bucket();
    let stream = small_backup(6, 2 * MIB);
    let _ = put_bytes(&store, "name", &["--chunk-size=1M"], &stream);
    let proxy = Proxy::start(in_bucket(&store).address(), Vec::new());
    let source = options("", &proxy.endpoint(), READ_KEY);
    let by = |to: Vec<String>, name: &str| {
        let given = [source.clone(), to].concat();
        copy(&given, &store.url("name"), &store.url(name)).run()
    };
    let target = options("to-", &proxy.endpoint(), OTHER_KEY);
    let _ = by(target, "copied").expect(0);
    assert_eq!(get_bytes(&store, "copied"), stream);
    // Copied by reading and writing: the source's key may not write, and the destination's store
    // did not copy.
    assert!(proxy.count("GET", "/00000000") > 1);
    let _ = by(Vec::new(), "denied").expect_failure();
}

#[test]
fn from_a_folder_to_a_bucket_by_an_option_file() {
    let (from, to) = (Store::folder(), Store::bucket());
    let stream = small_backup(7, MIB);
    let _ = put_bytes(&from, "name", &[], &stream);
    let scratch = xb_testkit::daemon::Scratch::new();
    let file = scratch.join("vault.cnf");
    let lines: Vec<String> = options("to-", &in_bucket(&to).endpoint(), OTHER_KEY)
        .iter()
        .map(|option| option.trim_start_matches("--").to_owned())
        .collect();
    std::fs::write(&file, format!("[xbcloud]\n{}\n", lines.join("\n"))).unwrap();
    let ran = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .arg(format!("--defaults-file={}", file.display()))
        .args(["copy", "--quiet", "--unverified", &from.url("name"), &to.url("")])
        // Not for the destination.
        .env("AWS_SESSION_TOKEN", "of-somebody-else")
        .env("AWS_ACCESS_KEY_ID", "of-somebody-else")
        .run();
    let _ = ran.expect(0);
    assert_eq!(get_bytes(&to, "name"), stream);
}

/// Data objects, small objects and the manifest are locked; objects that change are not.
fn assert_locked(store: &Store, name: &str, mode: &str) {
    let bucket = in_bucket(store);
    let mut locked = 0;
    for (key, _) in bucket.list("backups/nightly/") {
        let changes = ["@pins/", "@claims/"].iter().any(|folder| key.contains(folder));
        let wanted = !key.ends_with("/claim") && !changes && key.contains(name);
        match bucket.lock_of(&key) {
            Some((found, until)) => {
                assert!(wanted && found == mode, "{key}: {found}");
                assert!(
                    until.parse::<jiff::Timestamp>().unwrap() > jiff::Timestamp::now(),
                    "{key}: {until}"
                );
                locked += 1;
            }
            None => assert!(!wanted, "{key} is not locked"),
        }
    }
    assert!(locked > 2, "{locked} objects are locked");
}

/// ROOT of a bucket, opened with the library.
fn root_of(store: &Store) -> Root {
    let location = Location::parse(&store.root_url()).unwrap().unwrap();
    let mut s3 = S3Settings::default();
    s3.endpoint = Some(in_bucket(store).endpoint());
    s3.access_key = Some(s3::ACCESS_KEY.into());
    s3.secret_key = Some(SECRET_KEY.into());
    s3.lookup = BucketLookup::Path;
    let mut settings = StoreSettings::default();
    settings.s3 = s3;
    Root::open(&location, &settings, Policy::default(), false).unwrap()
}

/// Uses a small limit instead of the store's 5 GiB.
#[test]
fn an_object_too_large_for_a_server_side_copy_is_read_and_put() {
    let store = Store::bucket();
    let stream = small_backup(12, 3 * MIB + 1000);
    let _ = put_bytes(&store, "packed", &["--chunk-size=1M"], &stream);
    let _ = put_bytes(&store, "classic", &["--layout=classic"], &stream);
    for name in ["packed", "classic"] {
        let sizes: Vec<u64> = data_objects(&store, name)
            .iter()
            .filter(|(key, _)| !key.ends_with("/sums"))
            .map(|(_, size)| *size)
            .collect();
        let largest = *sizes.iter().max().unwrap();
        for (called, most) in
            [("all", u64::MAX), ("at", largest), ("below", largest - 1), ("none", 0)]
        {
            let to = format!("{name}-{called}");
            let request = CopyRequest {
                verify_bases: None,
                name: BackupName::new(name).unwrap(),
                to: BackupName::new(&to).unwrap(),
                options: xb_backup::CopyOptions { unverified: true, alone: false },
                keys: Keys::default(),
                accept: xb_backup::Accept::default(),
                within_store: Some(most),
                lock: None,
            };
            let runtime = tokio::runtime::Runtime::new().unwrap();
            let (from, target) = runtime.block_on(async { (root_of(&store), root_of(&store)) });
            let resources = Resources { memory: 64 << 20, threads: 2, parallel: 4 };
            let session = Session::new(from, resources);
            let copying = xb_backup::copy(&session, &target, request);
            let report = runtime.block_on(copying).unwrap();
            let fits = sizes.iter().filter(|size| **size <= most).count();
            assert_eq!(report.by_store, fits as u64, "{to}");
            assert_eq!(get_bytes(&store, &to), get_bytes(&store, name), "{to}");
        }
    }
}

fn locking() -> Store {
    Store::Bucket(s3::locking_bucket())
}

#[test]
fn a_copy_is_locked_manifest_and_all() {
    let from = Store::folder();
    let stream = small_backup(8, 2 * MIB);
    let _ = put_bytes(&from, "packed", &["--chunk-size=512K"], &stream);
    let _ = put_bytes(&from, "classic", &["--layout=classic"], &stream);
    for (name, more) in [
        ("packed", &["--retain=1d"][..]),
        ("classic", &["--retain=1d", "--retain-mode=compliance"]),
    ] {
        let to = locking();
        let more = more.iter().map(|option| (*option).to_owned());
        let given: Vec<String> = to.options().into_iter().chain(more).collect();
        let _ = copy(&given, &from.url(name), &to.url(name)).run().expect(0);
        let mode = if name == "packed" { "GOVERNANCE" } else { "COMPLIANCE" };
        assert_locked(&to, name, mode);
        assert_eq!(get_bytes(&to, name).len(), stream.len());
        // Copied again with a longer lock: nothing is copied, everything is locked.
        let longer: Vec<String> =
            given.iter().map(|option| option.replace("--retain=1d", "--retain=2d")).collect();
        let before =
            in_bucket(&to).lock_of(&format!("backups/nightly/.xb-catalog/{name}")).unwrap();
        let _ = copy(&longer, &from.url(name), &to.url(name)).run().expect(0);
        let after = in_bucket(&to).lock_of(&format!("backups/nightly/.xb-catalog/{name}")).unwrap();
        assert!(after.1 > before.1, "{before:?} {after:?}");
    }
}

#[test]
fn a_copy_that_cannot_be_locked_stores_nothing() {
    let stream = small_backup(9, MIB);
    for store in [Store::folder(), Store::bucket()] {
        let put = xbcloud(&store, "put", "name", &["--retain=1d"]).stdin_bytes(stream.clone());
        let refused = put.run().expect_failure();
        assert!(refused.stderr_text().contains("lock"), "{refused:?}");
        let _ = put_bytes(&store, "name", &[], &stream);
        let given: Vec<String> =
            store.options().into_iter().chain(["--retain=1d".to_owned()]).collect();
        let refused = copy(&given, &store.url("name"), &store.url("other")).run().expect_failure();
        assert!(refused.stderr_text().contains("lock"), "{refused:?}");
        assert!(store.list("other/").is_empty() && !has_manifest(&store, "other"));
        let refused = xbcloud(&store, "pin", "name", &["--retain=1d"]).run().expect_failure();
        assert!(refused.stderr_text().contains("not fully locked"), "{refused:?}");
        assert!(store.list(".xb-catalog/@pins").is_empty());
        // The backup is complete nevertheless.
        assert_eq!(get_bytes(&store, "name"), stream);
    }
}

#[test]
fn put_and_pin_lock_too() {
    let store = locking();
    let stream = small_backup(10, 2 * MIB);
    let _ = put_bytes(&store, "put", &["--chunk-size=512K", "--retain=12h"], &stream);
    assert_locked(&store, "put", "GOVERNANCE");
    let store = locking();
    let _ = put_bytes(&store, "pinned", &["--layout=classic"], &stream);
    let _ = xbcloud(&store, "pin", "pinned", &["--retain=12h"]).run().expect(0);
    assert_locked(&store, "pinned", "GOVERNANCE");
}

/// Only data objects: claims are rewritten every few minutes, and manifests are read at once.
#[test]
fn a_storage_class_is_for_data_objects() {
    let (from, to) = (Store::folder(), Store::bucket());
    let stream = small_backup(11, 7 * MIB);
    // As single uploads, and as multipart uploads.
    for (name, chunk) in [("small", "--chunk-size=1M"), ("parts", "--chunk-size=8M")] {
        let _ = put_bytes(&from, name, &[chunk, "--compress=none"], &stream);
        let mut given = options("to-", &in_bucket(&to).endpoint(), OTHER_KEY);
        given.extend(
            ["--to-s3-storage-class=STANDARD_IA", "--memory=16M", "--threads=1"].map(str::to_owned),
        );
        let _ = copy(&given, &from.url(name), &to.url(name)).run().expect(0);
        assert_eq!(get_bytes(&to, name), stream);
    }
    let classes = in_bucket(&to).classes("backups/nightly/");
    for (key, class) in &classes {
        let is_data = key.rsplit('/').next().unwrap().bytes().all(|b| b.is_ascii_digit());
        assert_eq!(class == "STANDARD_IA", is_data, "{key}: {class}");
    }
    assert!(classes.iter().filter(|(_, class)| class == "STANDARD_IA").count() > 7, "{classes:?}");
}

/// Runs a copy whose requests to `side` stall at one request until `then` has been executed.
fn copy_meanwhile(
    (from, to): (&Store, &Store),
    side: &Store,
    at: Rule,
    then: impl FnOnce(),
) -> Ran {
    let proxy = Proxy::start(in_bucket(side).address(), vec![at.times(1)]);
    let endpoint = |store: &Store| match std::ptr::eq(store, side) {
        true => proxy.endpoint(),
        false => in_bucket(store).endpoint(),
    };
    let mut given = options("", &endpoint(from), s3::ACCESS_KEY);
    given.extend(options("to-", &endpoint(to), OTHER_KEY));
    given.extend(["--parallel=1", "--memory=16M", "--max-backoff=50"].map(str::to_owned));
    let mut running = copy(&given, &from.url("name"), &to.url("name")).spawn();
    running.until("stands still", || proxy.seen().iter().any(|seen| seen.action.is_some()));
    then();
    proxy.release();
    running.wait()
}

#[test]
fn a_classic_backup_that_changes_while_it_is_copied_is_not_taken_for_whole() {
    let put = |store: &Store, seed| {
        put_bytes(store, "name", &["--layout=classic"], &small_backup(seed, 2 * MIB))
    };
    let replaced = |store: &Store, seed| {
        let _ = xbcloud(store, "delete", "name", &["--yes"]).run().expect(0);
        let _ = put(store, seed);
    };
    type Change<'a> = &'a dyn Fn(&Store);
    let changes: [(&str, Change<'_>, &str); 3] = [
        (
            "removed",
            &|s| drop(xbcloud(s, "delete", "name", &["--yes"]).run().expect(0)),
            "removed or replaced",
        ),
        // The names and sizes of the objects are the same; only the manifest differs.
        ("replaced by its like", &|s| replaced(s, 21), "removed or replaced"),
        (
            "an object of another length",
            &|s| {
                let (key, _) = s.list("name/").last().unwrap().clone();
                s.put(&key, b"other");
            },
            "damaged",
        ),
    ];
    for (what, change, says) in changes {
        let (from, to) = (Store::bucket(), Store::bucket());
        let _ = put(&from, 21);
        let first = from.list("name/")[0].0.clone();
        let rule = Rule::new("GET", &first, Action::Stall);
        let ran = copy_meanwhile((&from, &to), &from, rule, || change(&from)).expect_failure();
        assert!(ran.stderr_text().contains(says), "{what}: {ran:?}");
        assert_not_a_backup(&to, "name");
        // The next copy can use what is left, or is not hindered by it.
        if has_manifest(&from, "name") && what != "an object of another length" {
            let given = [from.options(), options("to-", &in_bucket(&to).endpoint(), OTHER_KEY)];
            let _ = copy(&given.concat(), &from.url("name"), &to.url("name")).run().expect(0);
            assert_eq!(get_bytes(&to, "name"), get_bytes(&from, "name"));
        }
    }
}

/// Another run considered the copy dead, and began to remove it before the commit.
#[test]
fn an_object_missing_after_the_commit_removes_the_manifest() {
    let (from, to) = (Store::bucket(), Store::bucket());
    let _ = put_bytes(&from, "name", &["--chunk-size=512K"], &small_backup(22, 2 * MIB));
    // By then all objects were listed.
    let rule = Rule::new("PUT", "/.xb-catalog/name", Action::Stall);
    let ran = copy_meanwhile((&from, &to), &to, rule, || {
        let (run, number, _) = packed_objects(&to, "name")[1].clone();
        to.delete(&format!("name/{run}/{number:09}"));
    });
    assert!(ran.expect_failure().stderr_text().contains("were stored, but"));
    assert_not_a_backup(&to, "name");
    // The next copy resumes it, and adds the missing objects.
    let given = [from.options(), options("to-", &in_bucket(&to).endpoint(), OTHER_KEY)].concat();
    let _ = copy(&given, &from.url("name"), &to.url("name")).run().expect(0);
    assert_eq!(get_bytes(&to, "name"), get_bytes(&from, "name"));
}

/// A backup from one LSN to another, incremental unless it begins at 0.
fn link(from: u64, to: u64) -> Vec<u8> {
    let mut out = xb_testkit::stream::StreamWriter::new(Vec::new());
    let _ = out.positions(from, to).info();
    out.finish()
}

#[test]
fn a_lock_reaches_down_the_chain() {
    let store = locking();
    let until = |store: &Store, name: &str| {
        in_bucket(store).lock_of(&format!("backups/nightly/.xb-catalog/{name}")).unwrap().1
    };
    let _ = put_bytes(&store, "full", &["--retain=1d"], &link(0, 10));
    let _ = put_bytes(&store, "one", &["--retain=3d"], &link(10, 20));
    assert_eq!(until(&store, "full"), until(&store, "one"));
    for (key, _) in in_bucket(&store).list("backups/nightly/full/") {
        let lock = in_bucket(&store).lock_of(&key).map(|(_, until)| until);
        assert_eq!(lock, (!key.ends_with("/claim")).then(|| until(&store, "one")), "{key}");
    }
    // A longer lock stays.
    let _ = put_bytes(&store, "two", &["--retain=2d"], &link(20, 30));
    assert!(until(&store, "two") < until(&store, "full"));
    assert_eq!(until(&store, "full"), until(&store, "one"));
    let _ = xbcloud(&store, "pin", "two", &["--retain=5d"]).run().expect(0);
    assert_eq!(until(&store, "two"), until(&store, "full"));
    assert_eq!(until(&store, "two"), until(&store, "one"));
    // A copy takes along what it needs, and locks it.
    let to = locking();
    let given: Vec<String> =
        to.options().into_iter().chain(["--retain=1d".into(), "--unverified".into()]).collect();
    let from = Store::folder();
    let _ = put_bytes(&from, "full", &[], &link(0, 10));
    let _ = put_bytes(&from, "one", &[], &link(10, 20));
    let _ = copy(&given, &from.url("one"), &to.url("one")).run().expect(0);
    assert_eq!(until(&to, "full"), until(&to, "one"));
    // Without the base, the command says what is not locked.
    let alone = locking();
    let given: Vec<String> = alone
        .options()
        .into_iter()
        .chain(["--retain=1d", "--unverified", "--alone"].map(str::to_owned))
        .collect();
    let done = copy(&given, &from.url("one"), &alone.url("one")).run().expect(0);
    assert!(done.stderr_text().contains("not all locked"), "{done:?}");
    assert!(!has_manifest(&alone, "full"));
}

/// Any one listing may be short: it is no damage, and no reason to take a copy back.
#[test]
fn one_short_listing_fails_no_copy_and_no_lock() {
    let store = locking();
    let bucket = in_bucket(&store);
    let stream = small_backup(3, 2 * MIB);
    let _ = put_bytes(&store, "packed", &["--chunk-size=1M"], &stream);
    let _ = put_bytes(&store, "classic", &["--layout=classic"], &stream);
    let proxy = Proxy::start(bucket.address(), Vec::new());
    let through = format!("--s3-endpoint={}", proxy.endpoint());
    for (name, hidden) in
        [("packed", "/000000001</Key>"), ("classic", ".00000000000000000000</Key>")]
    {
        let mut given = store.options();
        given.push(through.clone());
        for n in 0.. {
            let before = proxy.count("GET", "list-type=2") as u64;
            let short = Action::Edit(Edit::Hide(hidden));
            proxy.set_rules(vec![Rule::new("GET", "list-type=2", short).skip(n).times(1)]);
            let to = format!("{name}-{n}");
            let _ = copy(&given, &store.url(name), &store.url(&to)).run().expect(0);
            assert_eq!(get_bytes(&store, &to), get_bytes(&store, name), "{to}");
            if proxy.count("GET", "list-type=2") as u64 - before <= n {
                break;
            }
        }
        let short = Action::Edit(Edit::Hide(hidden));
        proxy.set_rules(vec![Rule::new("GET", "list-type=2", short).times(1)]);
        let _ = xbcloud(&store, "pin", name, &["--retain=1d", &through]).run().expect(0);
    }
}

/// No number in the manifest counts the key slots, and without them nothing opens.
#[test]
fn a_listing_that_hides_the_key_slots_leaves_them_locked() {
    let store = locking();
    let bucket = in_bucket(&store);
    let proxy = Proxy::start(bucket.address(), Vec::new());
    let through = format!("--s3-endpoint={}", proxy.endpoint());
    let recipient = "--recipient=age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";
    for (name, hidden) in [("a", "/keys</Key>"), ("b", "/sums</Key>")] {
        let _ = put_bytes(&store, name, &[recipient], &small_backup(3, MIB));
        let short = Action::Edit(Edit::Hide(hidden));
        proxy.set_rules(vec![Rule::new("GET", "list-type=2", short)]);
        let _ = xbcloud(&store, "pin", name, &["--retain=1d", &through]).run().expect(0);
        for (key, _) in bucket.list(&format!("backups/nightly/{name}/")) {
            assert!(key.ends_with("/claim") || bucket.lock_of(&key).is_some(), "{key}");
        }
    }
}

/// A manifest whose objects are gone is no base: it is copied again, or the increment is refused.
#[test]
fn a_base_without_objects_is_no_base_of_a_copy() {
    let (from, to) = (Store::folder(), Store::bucket());
    let _ = put_bytes(&from, "full", &[], &link(0, 10));
    let _ = put_bytes(&from, "one", &[], &link(10, 20));
    let given = to.options();
    let _ = copy(&given, &from.url("full"), &to.url("full")).run().expect(0);
    let bucket = in_bucket(&to);
    let remove = || {
        for (key, _) in bucket.list("backups/nightly/full/") {
            bucket.delete(&key);
        }
    };
    remove();
    let _ = copy(&given, &from.url("one"), &to.url("one")).run().expect(0);
    assert!(!bucket.list("backups/nightly/full/").is_empty());
    let _ = xbcloud(&to, "delete", "one", &["--yes"]).run().expect(0);
    // Without the base at the source, there is nothing to copy it from.
    remove();
    let _ = xbcloud(&from, "delete", "full", &["--yes", "--force"]).run().expect(0);
    let ran = copy(&given, &from.url("one"), &to.url("one")).run().expect_failure().stderr_text();
    assert!(ran.contains("the objects of its base full are not at the destination"), "{ran}");
    assert!(!has_manifest(&to, "one"));
}

/// A false answer about a lock could leave an object unlocked, or lock it for years.
#[test]
fn false_answers_about_a_lock_decide_nothing() {
    let store = locking();
    let bucket = in_bucket(&store);
    let proxy = Proxy::start(bucket.address(), Vec::new());
    let through = format!("--s3-endpoint={}", proxy.endpoint());
    let says = |mode: &str, year: u32, times| {
        let text = format!(
            "<Retention><Mode>{mode}</Mode><RetainUntilDate>{year}-01-01T00:00:00Z</RetainUntilDate></Retention>"
        );
        Rule::new("GET", "retention", Action::Reply(Reply::text(200, &text))).times(times)
    };
    let refused = Action::Refuse { status: 403, code: "AccessDenied" };
    let refused = || Rule::new("PUT", "retention", refused.clone());
    let tomorrow = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(25);
    let rounds = [
        (vec![says("GOVERNANCE", 2099, 1)], false),
        (vec![says("COMPLIANCE", 2020, 1)], false),
        (vec![says("GOVERNANCE", 2099, 1), refused()], true),
        // A store that lies each time.
        (vec![says("GOVERNANCE", 2099, u64::MAX)], false),
        (vec![says("COMPLIANCE", 2099, u64::MAX)], false),
        (vec![says("GOVERNANCE", 2099, u64::MAX), refused()], true),
    ];
    for (n, (rules, fails)) in rounds.into_iter().enumerate() {
        let (full, one) = (format!("full{n}"), format!("one{n}"));
        let from = 100 * n as u64;
        let _ = put_bytes(&store, &full, &[], &link(0, from + 10));
        let _ = put_bytes(&store, &one, &[], &link(from + 10, from + 20));
        proxy.set_rules(rules);
        let pinned = if fails { &full } else { &one };
        let ran = xbcloud(&store, "pin", pinned, &["--retain=1d", &through]).run();
        let locks = bucket.list(&format!("backups/nightly/{full}/"));
        let locks = locks.into_iter().filter(|(key, _)| !key.ends_with("/claim"));
        let locks: Vec<_> = locks.map(|(key, _)| bucket.lock_of(&key)).collect();
        if fails {
            assert!(locks.iter().any(Option::is_none), "{n}: {locks:?}");
            let _ = ran.expect_failure();
            continue;
        }
        let _ = ran.expect(0);
        for lock in locks {
            let (mode, until) = lock.expect("it is locked");
            let until: jiff::Timestamp = until.parse().unwrap();
            assert!(mode == "GOVERNANCE" && until < tomorrow, "{n}: {mode}, {until}");
        }
    }
}

/// A name is no URL: what looks like an escape in it is kept.
#[test]
fn a_copy_into_a_directory_keeps_its_name_as_it_is() {
    let (from, to) = (Store::bucket(), Store::folder());
    let stream = small_backup(5, MIB);
    let _ = put_bytes(&from, "a%41#x", &[], &stream);
    let source = options("", &in_bucket(&from).endpoint(), READ_KEY);
    let _ = copy(&source, &from.url("a%41#x"), &format!("{}/", to.root_url())).run().expect(0);
    let copied = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["get", "--quiet", &format!("{}/a%2541%23x", to.root_url())])
        .run()
        .expect(0);
    assert_eq!(copied.stdout, stream);
}

/// Without its base, an increment is of no use once the base may be removed.
#[test]
fn a_listed_base_that_no_read_shows_leaves_no_lock_reported_as_whole() {
    let missing = Action::Refuse { status: 404, code: "NoSuchKey" };
    let damaged = Action::Reply(Reply::text(200, "{}\n"));
    for (answer, code, says) in
        [(missing, 1, "the store lists this object"), (damaged, 7, "no check line")]
    {
        let store = locking();
        let bucket = in_bucket(&store);
        let _ = put_bytes(&store, "full", &[], &link(0, 10));
        let _ = put_bytes(&store, "one", &[], &link(10, 20));
        let rule = Rule::new("GET", ".xb-catalog/full", answer);
        let proxy = Proxy::start(bucket.address(), vec![rule]);
        let through = format!("--s3-endpoint={}", proxy.endpoint());
        let pinned = xbcloud(&store, "pin", "one", &["--retain=1d", &through]).run();
        let ran = pinned.expect(code);
        assert!(ran.stderr_text().contains(says), "{ran:?}");
        // The objects that can be locked are locked.
        for (key, _) in bucket.list("backups/nightly/one/") {
            assert!(key.ends_with("/claim") || bucket.lock_of(&key).is_some(), "{key}");
        }
    }
}

/// Answers with status 200 that are no result of a copy, the exit status if the store always gives one, and a word of its
/// message.
const NO_COPIES: [(&str, i32, &str); 5] = [
    ("<Error><Code>InternalError</Code><Message>try again</Message></Error>", 5, "InternalError"),
    ("<html><body>Welcome</body></html>", 5, "its root element is html"),
    ("", 5, "it is empty"),
    ("<Error><Code>AccessDenied</Code><Message>no</Message></Error>", 4, "AccessDenied"),
    ("<Error><Code>InvalidRequest</Code><Message>no</Message></Error>", 1, "InvalidRequest"),
];

/// The store begins its answer before it copies. What it says then decides, not its status.
#[test]
fn an_error_within_a_success_is_no_copy() {
    let store = Store::bucket();
    let proxy = Proxy::start(in_bucket(&store).address(), Vec::new());
    let given = [
        store.options(),
        vec![format!("--s3-endpoint={}", proxy.endpoint())],
        ["--max-retries=2", "--retry-timeout=0", "--max-backoff=20"].map(str::to_owned).to_vec(),
    ]
    .concat();
    let stream = small_backup(46, 3 * MIB);
    for (layout, first) in [("packed", "/000000000"), ("classic", ".00000000000000000000")] {
        let options = [&*format!("--layout={layout}"), "--chunk-size=1M"];
        let _ = put_bytes(&store, layout, &options, &stream);
        for (n, (body, exit, told)) in NO_COPIES.into_iter().enumerate() {
            let to = format!("to-{layout}-{n}");
            let rule = Rule::new("PUT", "", Action::Reply(Reply::text(200, body)));
            proxy.set_rules(vec![rule.with_header("x-amz-copy-source")]);
            let copied = copy(&given, &store.url(layout), &store.url(&to)).run().expect(exit);
            let said = copied.stderr_text();
            assert!(said.contains(told) && said.contains(": copy "), "{to}: {said}");
            let tries = if exit == 5 { "(after 3 tries)" } else { "(after 2 tries)" };
            assert!(said.contains(tries), "{to}: {said}");
            if layout == "packed" {
                // What an earlier copy left has the size of its source, so no listing shows that it was not copied.
                let mut objects = data_objects(&store, layout).into_iter();
                let (key, size) = objects.find(|(key, _)| key.ends_with(first)).unwrap();
                let key = key.replacen("packed/", &format!("{to}/"), 1);
                store.put(&key, &vec![7; usize::try_from(size).unwrap()]);
            }
            let rule = Rule::new("PUT", first, Action::Reply(Reply::text(200, body)));
            proxy.set_rules(vec![rule.with_header("x-amz-copy-source").times(1)]);
            let _ = copy(&given, &store.url(layout), &store.url(&to)).run().expect(0);
            assert_eq!(get_bytes(&store, &to), get_bytes(&store, layout), "{to}");
        }
    }
}
