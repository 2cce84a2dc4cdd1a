//! An archive in a store that fails, lags or lies: nothing is lost or doubled, and no older state is the latest.

use crate::support::archive::{Archive, json};
use xb_testkit::command::{Ran, Running, Signal};
use xb_testkit::fault::{Action, Edit, Proxy, Rule};
use xb_testkit::mariadb::MariaDb;
use xb_testkit::store::Store;

/// An archive in a bucket behind a proxy, and a backup.
struct Site {
    archive: Archive,
    proxy: Proxy,
}

impl Site {
    fn new() -> Self {
        let archive = Archive::new(Store::bucket());
        let options = archive.store.options();
        let address =
            options.iter().find_map(|option| option.strip_prefix("--s3-endpoint=http://"));
        let proxy = Proxy::start(address.unwrap(), Vec::new());
        Self { archive, proxy }
    }

    /// The archive has a backup, and three rows after it.
    fn with_backup() -> Self {
        let site = Self::new();
        site.archive.catch_up();
        let _ = site.archive.back_up("one");
        site.archive.write(3);
        site.archive.catch_up();
        site
    }

    fn receive(&self) -> Running {
        let through = format!("--s3-endpoint={}", self.proxy.endpoint());
        self.archive.receive(&[&through, "--max-backoff=50"])
    }

    /// Runs a command through the proxy, as the host that has received.
    fn run(&self, words: &[&str]) -> Ran {
        let key = format!("--encrypt-key-file={}", self.archive.path("key"));
        let state = format!("--state-dir={}", self.archive.path("state"));
        let through = format!("--s3-endpoint={}", self.proxy.endpoint());
        let own: &[String] = match words[0] {
            "prune" => &[],
            "restore" => &[key, state, "--accept-unsealed".to_owned()],
            _ => &[key, state],
        };
        let limits = ["--max-retries=2", "--max-backoff=50", "--retry-timeout=0"];
        self.archive.cmd(words).args(own).args(limits).arg(through).run()
    }

    fn last(&self) -> String {
        self.archive.server.sql("SELECT @@gtid_binlog_pos").trim().to_owned()
    }

    /// What a restore to the latest would have as its last transaction; the reason if it is refused.
    fn latest(&self) -> Result<String, String> {
        let name = self.archive.store.url("one");
        let ran = self.run(&["restore", &name, "--until=latest", "--dry-run"]);
        let said = ran.stdout_text();
        let last =
            said.split_once("last transaction: ").and_then(|(_, text)| text.split(' ').next());
        last.map(str::to_owned).ok_or_else(|| ran.stderr_text())
    }

    fn verify(&self) -> Ran {
        self.run(&["binlog", "verify", &self.archive.store.root_url(), "--json"])
    }

    /// Asserts that the archive is whole, and leads to the end of the server's log.
    #[track_caller]
    fn assert_whole(&self, what: &str) {
        self.proxy.set_rules(Vec::new());
        let report = json(&self.verify().expect(0));
        let streams = report["servers"][0]["streams"].as_array().unwrap().iter();
        let kinds: Vec<&str> = streams.filter_map(|stream| stream["begins"].as_str()).collect();
        assert!(!kinds.contains(&"gap") && !kinds.contains(&"branch"), "{what}: {kinds:?}");
        assert_eq!(self.latest(), Ok(self.last()), "{what}");
    }
}

fn stop(receiver: Running) {
    receiver.signal(Signal::TERM);
    let _ = receiver.wait().expect(0);
}

/// A third of all requests is refused. Of others, the answer is lost or cut, or they take long.
fn unreliable() -> Vec<Rule> {
    vec![
        Rule::new("", "", Action::answer(503)).every(3),
        Rule::new("PUT", "", Action::LoseAnswer).every(4),
        Rule::new("PUT", "", Action::Slow(1 << 15)).every(5),
        Rule::new("GET", "", Action::CutAnswer(10)).every(4),
    ]
}

#[test]
fn a_store_that_fails_and_lags_loses_and_doubles_nothing() {
    let site = Site::new();
    let archive = &site.archive;
    site.proxy.set_rules(unreliable());
    let mut receiver = site.receive();
    archive.wait(&mut receiver);
    let _ = archive.back_up("one");
    for round in 0..6 {
        archive.server.sql("USE d; INSERT INTO t (v) SELECT seq FROM seq_1_to_50000");
        archive.next_log(20);
        if round % 2 == 1 {
            receiver.kill_9();
            let _ = receiver.wait();
            receiver = site.receive();
        }
    }
    archive.wait(&mut receiver);
    stop(receiver);
    let faults = site.proxy.seen().iter().filter(|seen| seen.action.is_some()).count();
    assert!(faults > 20, "{faults}");
    // Its readers meet the same store.
    let patient = |words: &[&str]| {
        site.proxy.set_rules(unreliable());
        let key = format!("--encrypt-key-file={}", archive.path("key"));
        let through = format!("--s3-endpoint={}", site.proxy.endpoint());
        let key = (words[0] != "prune").then_some(key);
        archive.cmd(words).args(key).args([through, "--max-backoff=50".to_owned()]).run().expect(0)
    };
    let root = archive.store.root_url();
    let _ = patient(&["binlog", "verify", &root]);
    let target = archive.path("restored");
    let into = format!("--target-dir={target}");
    let words =
        ["restore", &archive.store.url("one"), "--until=latest", "--accept-unsealed", &into];
    let _ = patient(&words);
    let restored = MariaDb::start_on_with(target.as_ref(), &["--server-id=99"]);
    assert_eq!(restored.checksums("d"), archive.server.checksums("d"));
    let _ = patient(&["prune", &root, "--keep-last=1", "--yes"]);
    site.assert_whole("after the prune");
}

/// Rules of lies about the newest stream, whose last segment has this number.
fn lies(stream: &str, last: u64, old_alive: &str) -> Vec<(&'static str, Rule)> {
    let own = |name: &str| -> &'static str { format!("{stream}/{name}").leak() };
    let last = own(&format!("{last:012}"));
    let hides = |text| Rule::new("GET", "list-type=2", Action::Edit(Edit::Hide(text)));
    let missing = |method, part: &'static str| Rule::new(method, part, Action::answer(404));
    let reply = xb_testkit::reply::Reply::text(200, old_alive);
    vec![
        ("the last segment is not listed", hides(last)),
        ("the stream is not listed", hides(own(""))),
        ("its sign of life is not listed", hides(own("alive"))),
        ("its end is not listed", hides(own("end"))),
        ("its head is not listed", hides(own("head"))),
        ("nothing is listed", hides("")),
        ("each entry is listed twice", Rule::new("GET", "list-type=2", Action::Edit(Edit::Double))),
        ("the last segment is missing", missing("GET", last)),
        ("the last segment was never there", missing("", last)),
        ("its head is missing", missing("GET", own("head"))),
        ("its keys are missing", missing("GET", own("keys"))),
        ("its end is missing", missing("GET", own("end"))),
        ("its sign of life is missing", missing("GET", own("alive"))),
        ("its sign of life is an old one", Rule::new("GET", own("alive"), Action::Reply(reply))),
        ("the last segment is altered", Rule::new("GET", last, Action::Alter)),
        ("its head is altered", Rule::new("GET", own("head"), Action::Alter)),
        ("the last segment is cut", Rule::new("GET", last, Action::CutAnswer(100))),
        ("ranges are ignored", Rule::new("GET", last, Action::answer(200)).with_header("range")),
    ]
}

#[test]
fn no_lie_of_a_store_makes_an_older_state_the_latest() {
    let site = Site::with_backup();
    let archive = &site.archive;
    let mut receiver = site.receive();
    archive.write(1);
    archive.wait(&mut receiver);
    let objects = || archive.store.list(".xb-binlog/shop/").into_iter().map(|(key, _)| key);
    let stored = |name: &str| objects().filter(|key| key.ends_with(name)).collect::<Vec<_>>();
    let ended: Vec<String> = stored("/end");
    let alive = stored("/alive").into_iter();
    let is_new = |key: &String| !ended.contains(&key.replace("/alive", "/end"));
    let alive = alive.into_iter().find(is_new).expect("the newest stream's");
    let old_alive = String::from_utf8(archive.store.get(&alive).unwrap()).unwrap();
    for _ in 0..3 {
        archive.next_log(2);
        archive.wait(&mut receiver);
    }
    stop(receiver);
    let stream = alive.rsplit('/').nth(1).unwrap().to_owned();
    let number = |key: String| key.rsplit('/').next()?.parse::<u64>().ok();
    let last = objects().filter(|key| key.contains(&stream)).filter_map(number).max().unwrap();
    site.assert_whole("before");
    let (gtid, end) = (site.last(), archive.stored());
    let mut wrong = Vec::new();
    for (what, rule) in lies(&stream, last, &old_alive) {
        for (how, rule) in [("once", rule.clone().times(1)), ("always", rule)] {
            site.proxy.set_rules(vec![rule.clone()]);
            let latest = site.latest();
            site.proxy.set_rules(vec![rule.clone()]);
            let verified = site.verify();
            let to = |report: &serde_json::Value| {
                let streams =
                    report["servers"][0]["streams"].as_array().cloned().unwrap_or_default();
                let ends = streams.iter().filter_map(|each| each["to"].as_str());
                ends.filter_map(crate::support::archive::position).max()
            };
            let is_verified = verified.status.success();
            let proven = is_verified.then(|| to(&json(&verified)));
            site.proxy.set_rules(vec![rule]);
            let root = archive.store.root_url();
            let pruned = site.run(&["prune", &root, "--keep-last=1", "--yes"]);
            println!(
                "{what}, {how}: latest {latest:?}, verify {proven:?}, prune {}",
                pruned.status
            );
            if latest.is_ok_and(|latest| latest != gtid) {
                wrong.push(format!("{what}, {how}: restore"));
            }
            if proven.is_some_and(|proven| proven != end) {
                wrong.push(format!("{what}, {how}: verify"));
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
    site.assert_whole("after the lies");
}

#[test]
fn one_answer_that_a_listed_record_is_not_there_is_not_believed() {
    let site = Site::with_backup();
    let root = site.archive.store.root_url();
    let through = format!("--s3-endpoint={}", site.proxy.endpoint());
    let streams = || {
        let list = site.archive.cmd(&["binlog", "list", &root, "--json"]).arg(&through);
        json(&list.run().expect(0))["servers"][0]["streams"].clone()
    };
    let honest = streams();
    for name in ["/head", "/keys", "/alive", "/end"] {
        let missing = Action::Refuse { status: 404, code: "NoSuchKey" };
        site.proxy.set_rules(vec![Rule::new("GET", name, missing).times(1)]);
        assert_eq!(streams(), honest, "{name}");
        assert!(site.proxy.count("GET", name) > 0, "{name}");
    }
}

/// Without its key slots nothing opens it, although its head says that it is sealed.
#[test]
fn a_stream_whose_key_slots_are_denied_is_not_called_open() {
    let site = Site::with_backup();
    let missing =
        |method| Rule::new(method, "/keys", Action::Refuse { status: 404, code: "NoSuchKey" });
    let hidden = Rule::new("GET", "list-type=2", Action::Edit(Edit::Hide("/keys")));
    for listed in [true, false] {
        let rules = [missing("GET"), missing("HEAD")].into_iter();
        site.proxy.set_rules(rules.chain((!listed).then(|| hidden.clone())).collect());
        let list = site.archive.cmd(&["binlog", "list", &site.archive.store.root_url(), "--json"]);
        let list = list.arg(format!("--s3-endpoint={}", site.proxy.endpoint())).run();
        for report in [list.expect(0), site.verify().expect(7)] {
            let stream = &json(&report)["servers"][0]["streams"][0];
            let problems = serde_json::json!(["its key slots are missing"]);
            assert_eq!((&stream["sealed"], &stream["problems"]), (&true.into(), &problems));
        }
        let said = site.latest().unwrap_err();
        assert!(said.contains("its key slots are missing"), "{said}");
    }
}

#[test]
fn a_receiver_whose_store_lies_about_what_it_has_loses_and_doubles_nothing() {
    let site = Site::with_backup();
    let archive = &site.archive;
    let refused = || Action::Refuse { status: 412, code: "PreconditionFailed" };
    let hides = |text| Rule::new("GET", "list-type=2", Action::Edit(Edit::Hide(text)));
    let lies = [
        ("a segment is there already", Rule::new("PUT", "/000000000000", refused())),
        ("a head is there already", Rule::new("PUT", "/head", refused())),
        ("a segment is acknowledged and lost", Rule::new("PUT", "/000000000000", Action::Swallow)),
        ("nothing is listed", hides("")),
        ("no head is listed", hides("/head")),
        ("no segment is listed", hides("/0000")),
        ("heads are missing", Rule::new("GET", "/head", Action::answer(404))),
        ("segments are missing", Rule::new("GET", "/0000", Action::answer(404))),
        ("heads are altered", Rule::new("GET", "/head", Action::Alter)),
        ("segments are altered", Rule::new("GET", "/0000", Action::Alter)),
    ];
    for (what, rule) in lies {
        for (how, rule) in [("once", rule.clone().times(1)), ("always", rule)] {
            site.proxy.set_rules(vec![rule]);
            let mut receiver = site.receive();
            archive.write(2);
            let end = archive.server.sql("SHOW MASTER STATUS");
            let mut columns = end.split('\t');
            let end =
                (columns.next().unwrap().to_owned(), columns.next().unwrap().parse().unwrap());
            // It stores it, or meets the lie again and again, or ends.
            let mut looks = 0;
            let has_it = |looks: &mut u32| {
                *looks += 1;
                *looks > 15 || archive.stored().is_some_and(|at| at >= end)
            };
            while !receiver.has_ended() && !has_it(&mut looks) {}
            receiver.kill_9();
            let said = receiver.wait().stderr_text();
            site.proxy.set_rules(Vec::new());
            let _ = archive.catch_up();
            println!("{what}, {how}: {said}");
        }
        site.assert_whole(what);
    }
}
