//! `fleet` on real stores: what it costs, stores that fail or lie, and its page as a real browser shows it.

use std::path::{Path, PathBuf};

use serde_json::Value;
use xb_testkit::command::{Cmd, Ran};
use xb_testkit::daemon::Scratch;
use xb_testkit::fault::{Action, Edit, Proxy, Rule};
use xb_testkit::s3::{Bucket, bucket, options_for};
use xb_testkit::stream::small_backup;
use xb_testkit::tools::find;
use xb_testkit::{azure, browser, s3};

/// A bucket behind a proxy.
struct Site {
    bucket: Bucket,
    proxy: Proxy,
    scratch: Scratch,
}

impl Site {
    /// Repositories of one backup each.
    fn new(roots: &[&str]) -> Self {
        let bucket = bucket();
        let proxy = Proxy::start(bucket.address(), Vec::new());
        let site = Self { bucket, proxy, scratch: Scratch::new() };
        for root in roots {
            site.put(root, "n0", "db1");
        }
        site
    }

    fn put(&self, root: &str, name: &str, server: &str) {
        let _ = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["put", "--quiet"])
            .args(options_for(&self.proxy.endpoint()))
            .arg(format!("--server={server}"))
            .arg(self.bucket.url(&format!("{root}/{name}")))
            .stdin_bytes(small_backup(1, 5000))
            .run()
            .expect(0);
    }

    fn fleet(&self, options: &[&str]) -> Ran {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .arg("fleet")
            .args(options_for(&self.proxy.endpoint()))
            .args(["--max-retries=1", "--retry-timeout=0", "--max-backoff=20"])
            .args(options)
            .arg(self.bucket.url(""))
            .env("XDG_CACHE_HOME", self.scratch.join("cache"))
            .run()
    }

    fn states(&self, rules: Vec<Rule>, exit: i32) -> Vec<(String, String)> {
        self.proxy.set_rules(rules);
        let ran = self.fleet(&["--json"]).expect(exit);
        let found: Value = serde_json::from_slice(&ran.stdout).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let lines = found["servers"].as_array().unwrap().iter();
        lines.map(|line| (text(&line["path"]), text(&line["state"]))).collect()
    }

    /// Listings and other requests of a call.
    fn requests(&self, options: &[&str]) -> (usize, usize) {
        let before = self.proxy.seen().len();
        let _ = self.fleet(options).expect(0);
        let seen = &self.proxy.seen()[before..];
        let lists = seen.iter().filter(|seen| seen.path.contains("list-type=2")).count();
        (lists, seen.len() - lists)
    }
}

fn states(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(path, state)| ((*path).to_owned(), (*state).to_owned())).collect()
}

/// Two listings for each repository, one for each backup of those with few, two for each other folder, and what has
/// changed.
#[test]
fn a_warm_look_takes_two_listings_for_each_repository() {
    let site = Site::new(&["shop/a", "shop/b", "web"]);
    for name in ["n1", "n2"] {
        site.put("web", name, "db2");
    }
    let (lists, others) = site.requests(&[]);
    assert!(lists >= 10 && others >= 5, "{lists} {others}");
    assert_eq!(site.requests(&[]), (3 * 2 + 5 + 2 * 2, 0));
    site.put("web", "n3", "db2");
    let (lists, others) = site.requests(&[]);
    assert!(lists <= 13 && (1..=2).contains(&others), "{lists} {others}");
    // The command that reads a single repository uses the same cache.
    let before = site.proxy.seen().len();
    let _ = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .arg("list")
        .args(options_for(&site.proxy.endpoint()))
        .arg(site.bucket.url("shop/a"))
        .env("XDG_CACHE_HOME", site.scratch.join("cache"))
        .run()
        .expect(0);
    let seen = &site.proxy.seen()[before..];
    assert!(seen.iter().all(|seen| seen.path.contains("list-type=2")), "{seen:?}");
}

#[test]
fn a_refusal_or_a_hidden_listing_hides_nothing_else() {
    let site = Site::new(&["a", "b/c", "d"]);
    let good = states(&[("a", "OK"), ("b/c", "OK"), ("d", "OK")]);
    let sorted = |mut states: Vec<(String, String)>| {
        states.sort();
        states
    };
    assert_eq!(sorted(site.states(Vec::new(), 0)), good);
    // Not permitted, and failing: each is a line with its reason.
    let denied = Action::Refuse { status: 403, code: "AccessDenied" };
    for action in [denied, Action::answer(503)] {
        let rule = Rule::new("GET", "prefix=a%2F", action);
        let found = site.states(vec![rule], 3);
        assert_eq!(found[0], ("a".to_owned(), "UNKNOWN".to_owned()));
        assert_eq!(sorted(found)[1..], good[1..]);
    }
    let rule = Rule::new("GET", "/.xb-catalog/n0", Action::answer(503));
    let ran = {
        site.proxy.set_rules(vec![rule]);
        site.fleet(&["--no-cache"]).expect(3)
    };
    assert!(ran.stdout_text().contains("503"), "{ran:?}");
    // One false listing: of the bucket, of a folder above a repository, of a repository, and of a catalogue.
    for (prefix, entry) in [
        ("delimiter", "a/</Prefix>"),
        ("delimiter", "b/c/</Prefix>"),
        ("delimiter", ".xb-catalog/</Prefix>"),
        ("delimiter", "a/n0/</Prefix>"),
        ("xb-catalog", "/n0</Key>"),
    ] {
        let rule = Rule::new("GET", prefix, Action::Edit(Edit::Hide(entry))).times(1);
        assert_eq!(sorted(site.states(vec![rule], 0)), good, "{prefix} {entry}");
    }
    let doubled = Rule::new("GET", "list-type=2", Action::Edit(Edit::Double));
    assert_eq!(sorted(site.states(vec![doubled], 0)), good);
    // A store that does not answer at all.
    let away = Rule::new("", "", Action::answer(503));
    assert_eq!(site.states(vec![away], 3), states(&[("", "UNKNOWN")]));
    // One that does not answer for a single repository: the others do not wait for it for ever.
    let stall = Rule::new("GET", "prefix=d%2F.xb-catalog", Action::Stall);
    site.proxy.set_rules(vec![stall]);
    // The others need less than that on a busy machine, too.
    let ran = site.fleet(&["--json", "--answer-within=15s"]).expect(3);
    let found: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!((&found["unknown"], &found["ok"]), (&Value::from(1), &Value::from(2)));
    site.proxy.release();
}

#[test]
fn a_bucket_of_others_has_no_repository() {
    let site = Site::new(&[]);
    for key in ["logs/2026/x", "a b/ä#?/x", "x"] {
        site.bucket.put(key, b"x");
    }
    assert_eq!(site.states(Vec::new(), 2), states(&[("", "CRITICAL")]));
    let text = site.fleet(&[]).expect(2).stdout_text();
    assert!(text.contains("there is no repository: no folder .xb-catalog"), "{text}");
    // Names with odd characters, beside objects with keys that no folder could have.
    for root in ["a b/ä 50%&+", "sh\"op'<b>"] {
        site.put(root, "n0", "db1");
    }
    let found = site.states(Vec::new(), 0);
    assert_eq!(found, states(&[("a b/ä 50%&+", "OK"), ("sh\"op'<b>", "OK")]));
}

#[test]
fn azure_is_a_place() {
    let container = azure::container();
    let account = [
        format!("--azure-storage-account={}", azure::ACCOUNT),
        format!("--azure-access-key={}", azure::KEY),
        format!("--azure-endpoint={}", container.endpoint()),
    ];
    let xbcloud = |command: &str, place: &str| {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args([command, &format!("azure://{}/{place}", container.name())])
            .args(&account)
    };
    for root in ["shop/a", "web"] {
        let stream = small_backup(1, 5000);
        let _ = xbcloud("put", &format!("{root}/n0")).stdin_bytes(stream).run().expect(0);
    }
    let text = xbcloud("fleet", "").run().expect(0).stdout_text();
    assert!(text.contains("2 repositories: 2 OK; 2 backups"), "{text}");
}

/// The fleet shows which keys open the newest chain, and until when it is locked.
#[test]
fn keys_and_locks_of_the_newest_chain_are_shown() {
    const RECIPIENT: &str = "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";
    let bucket = s3::locking_bucket();
    let xbcloud = |words: &[&str]| {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).args(words).args(bucket.options())
    };
    let recipient = format!("--recipient={RECIPIENT}");
    for (name, retain) in [("old", None), ("new", Some("--retain=2d"))] {
        let place = bucket.url(&format!("shop/{name}"));
        let words: Vec<&str> = ["put", &place, &recipient].into_iter().chain(retain).collect();
        let _ = xbcloud(&words).stdin_bytes(small_backup(1, 5000)).run().expect(0);
    }
    let place = bucket.url("");
    let text = xbcloud(&["fleet", &place, "--long"]).run().expect(0).stdout_text();
    let lock = text.lines().find(|line| line.contains("locked")).unwrap().to_owned();
    assert!(lock.contains("until 20") && text.contains("opens with"), "{text}");
    let text = xbcloud(&["fleet", &place]).run().expect(0).stdout_text();
    assert!(!text.contains("locked"), "{text}");
    // A key that may not ask for locks: a fact of the line, and no fault of the repository.
    let proxy = Proxy::start(bucket.address(), Vec::new());
    let denied = Action::Refuse { status: 403, code: "AccessDenied" };
    proxy.set_rules(vec![Rule::new("GET", "retention", denied)]);
    let ran = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["fleet", &place, "--long", "--json"])
        .args(options_for(&proxy.endpoint()))
        .run()
        .expect(0);
    let found: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let newest = &found["servers"][0]["newest"];
    assert_eq!((&newest["lock"], &newest["locked_until"]), (&"unknown".into(), &Value::Null));
}

/// The page, which a browser shows without a complaint, at three widths and in both themes.
#[test]
fn a_browser_shows_the_page() {
    let site = Site::new(&["shop/with/a/long/path-of-its-own", "web", "b"]);
    site.bucket.put("web/.xb-catalog/zz<b>bad", b"no manifest");
    let page = site.scratch.join("fleet.html");
    let prom = site.scratch.join("fleet.prom");
    let options =
        [format!("--html={}", page.display()), format!("--metrics-file={}", prom.display())];
    let options: Vec<&str> = options.iter().map(String::as_str).chain(["--long"]).collect();
    let _ = site.fleet(&[&options[..], &["--depth=5"]].concat()).expect(2);
    let _ = Cmd::new(find("promtool"))
        .args(["check", "metrics"])
        .stdin_bytes(std::fs::read(&prom).unwrap())
        .run()
        .expect(0);
    let (document, console) = browser::document(&page);
    assert_eq!(console, [""; 0], "the console of the browser");
    assert!(document.contains("id=\"repositories\" value=\"3\""), "{document}");
    assert!(document.contains("id=\"critical\" value=\"1\""), "{document}");
    for width in [390, 768, 1440] {
        let [light, dark] = ["1", "0"].map(|scheme| picture(&page, width, scheme, &site.scratch));
        assert!(light.starts_with(b"\x89PNG") && light.len() > 15_000, "{}", light.len());
        assert_ne!(light, dark);
    }
}

/// A picture of a page. With `XB_SCREENSHOTS=DIR`, it is kept there.
fn picture(page: &Path, width: u32, scheme: &str, scratch: &Scratch) -> Vec<u8> {
    let kept = std::env::var_os("XB_SCREENSHOTS").map(PathBuf::from);
    let folder = kept.unwrap_or_else(|| scratch.path().to_owned());
    let file = folder.join(format!("fleet-{width}-{scheme}.png"));
    let options = [
        format!("--screenshot={}", file.display()),
        format!("--window-size={width},1200"),
        format!("--blink-settings=preferredColorScheme={scheme}"),
    ];
    let _ = browser::open(page, &options);
    std::fs::read(file).unwrap()
}
