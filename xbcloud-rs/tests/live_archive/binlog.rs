//! `binlog receive`, `list` and `verify` on a real server, and what other commands make of an archive.

use std::collections::BTreeSet;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use crate::support::archive::{Archive, LOGGED, SERVER, json, position};
use serde_json::{Value, json};
use xb_repo::archive::ended::STREAMS_AT_ONCE;
use xb_testkit::command::{Cmd, Ran, Running, Signal};
use xb_testkit::fault::{Action, Edit, Proxy, Rule};
use xb_testkit::store::Store;
use xb_testkit::tools::{find, workspace};

#[test]
fn a_receiver_that_is_killed_under_load_leaves_a_whole_archive() {
    let archive = Archive::new(Store::folder());
    let writer = archive.server.start_writing();
    for round in 0..22 {
        let goal = archive.store.list(".xb-binlog/").len() + (round * 7) % 11;
        let mut receiver = archive.receive(&["--quiet"]);
        receiver.until("its objects are there", || archive.store.list(".xb-binlog/").len() >= goal);
        receiver.kill_9();
        let _ = receiver.wait();
        if round % 5 == 0 {
            archive.server.sql("FLUSH BINARY LOGS");
        }
    }
    let rows = writer.stop();
    assert!(rows > 100, "{rows}");
    archive.catch_up();
    let report = json(&archive.verify().expect(0));
    let server = &report["servers"][0];
    assert_eq!((report["format"].as_u64(), server["verified"].as_bool()), (Some(1), Some(true)));
    assert_eq!(server["gaps"].as_array().unwrap().len(), 0, "{server:#}");
    let kinds: Vec<&str> =
        server["streams"].as_array().unwrap().iter().filter_map(|s| s["begins"].as_str()).collect();
    assert!(kinds.len() > 10 && !kinds.contains(&"branch") && !kinds.contains(&"gap"), "{kinds:?}");
    assert_eq!(kinds.iter().filter(|kind| **kind == "first").count(), 1, "{kinds:?}");
    // It fits a terminal.
    let list = archive.list();
    assert!(
        list.lines().all(|line| line.chars().count() <= 80) && list.lines().count() < 30,
        "{list}"
    );
}

#[test]
fn a_store_that_is_away_is_reported_and_nothing_is_lost() {
    let archive = Archive::new(Store::bucket());
    let upstream = archive.store.options();
    let endpoint = upstream.iter().find_map(|option| option.strip_prefix("--s3-endpoint=http://"));
    let proxy = Proxy::start(endpoint.unwrap(), Vec::new());
    let through = format!("--s3-endpoint={}", proxy.endpoint());
    let mut receiver = archive.receive(&[&through, "--max-retries=1"]);
    archive.wait(&mut receiver);
    proxy.set_rules(vec![Rule::new("PUT", "", Action::answer(503))]);
    archive.write(10);
    receiver.until("the store is missed", || archive.metric("storing").as_deref() == Some("0"));
    archive.write(10);
    archive.server.sql("FLUSH BINARY LOGS");
    proxy.set_rules(Vec::new());
    archive.wait(&mut receiver);
    receiver.until("the store is back", || archive.metric("storing").as_deref() == Some("1"));
    receiver.signal(Signal::TERM);
    let said = receiver.wait().expect(0).stderr_text();
    assert!(said.contains("the store does not accept the log of shop"), "{said}");
    assert!(said.contains("the store is back"), "{said}");
    let report = json(&archive.verify().expect(0));
    assert_eq!(report["servers"][0]["streams"].as_array().unwrap().len(), 1, "{report:#}");
}

#[test]
fn a_stream_that_is_stopped_while_it_begins_is_ended() {
    let archive = Archive::new(Store::bucket());
    archive.catch_up();
    archive.write(10);
    let upstream = archive.store.options();
    let endpoint = upstream.iter().find_map(|option| option.strip_prefix("--s3-endpoint=http://"));
    // Its head is stored, and its keys are not.
    let keys = Rule::new("PUT", "/keys", Action::answer(503));
    let proxy = Proxy::start(endpoint.unwrap(), vec![keys]);
    let through = format!("--s3-endpoint={}", proxy.endpoint());
    let mut receiver = archive.receive(&[&through]);
    let is_tried = || proxy.seen().iter().any(|seen| seen.path.contains("/keys"));
    receiver.until("its keys are refused", is_tried);
    receiver.signal(Signal::TERM);
    proxy.set_rules(Vec::new());
    let _ = receiver.wait().expect(0);
    let report = json(&archive.verify().expect(0));
    assert_eq!(report["servers"][0]["streams"].as_array().unwrap().len(), 2, "{report:#}");
}

/// Requests of a command, with its output.
fn counted(archive: &Archive, words: &[&str]) -> (Ran, usize, usize) {
    let options = archive.store.options();
    let endpoint = options.iter().find_map(|option| option.strip_prefix("--s3-endpoint=http://"));
    let proxy = Proxy::start(endpoint.unwrap(), Vec::new());
    let through = format!("--s3-endpoint={}", proxy.endpoint());
    let ran = archive.cmd(words).arg(through).run();
    let lists = proxy.seen().iter().filter(|seen| seen.path.contains("list-type=2")).count();
    (ran, lists, proxy.seen().len())
}

#[test]
fn roll_ups_save_requests_and_hide_nothing() {
    let archive = Archive::new(Store::bucket());
    let mut receiver = archive.receive(&[]);
    for _ in 0..70 {
        archive.server.sql("INSERT INTO d.t (v) VALUES (1); FLUSH BINARY LOGS");
    }
    archive.wait(&mut receiver);
    receiver.signal(Signal::TERM);
    let _ = receiver.wait().expect(0);
    let keys: Vec<String> =
        archive.store.list(".xb-binlog/shop/").into_iter().map(|(key, _)| key).collect();
    let stream = keys[0].rsplit_once('/').unwrap().0.to_owned();
    let rollups: Vec<&String> = keys.iter().filter(|key| key.contains("/.heads-")).collect();
    let small = format!("{stream}/.heads-000000000000-000000000063");
    let rest = rollups.iter().find(|key| ***key != small).unwrap();
    assert!(rollups.len() == 2 && rollups.contains(&&small), "{rollups:?}");
    let root = archive.store.root_url();
    let list = ["binlog", "list", &root, "--json"];
    let stream_of = |ran: &Ran| json(ran)["servers"][0]["streams"][0].clone();
    let (ran, lists, requests) = counted(&archive, &list);
    let whole = stream_of(&ran.expect(0));
    assert!(whole["segments"].as_u64().unwrap() >= 70, "{whole:#}");
    // Those of ROOT, of the servers, of their streams, and of objects.
    assert!(lists <= 5 && requests <= lists + 6, "{lists} of {requests}");
    // Without it, a smaller one and a few heads.
    let of_rest = archive.store.get(rest).unwrap();
    archive.store.delete(rest);
    let (ran, _, requests) = counted(&archive, &list);
    assert_eq!(stream_of(&ran.expect(0)), whole);
    let left = usize::try_from(whole["segments"].as_u64().unwrap()).unwrap() - 64;
    assert!(requests <= lists + 6 + left, "{requests}");
    // One that is altered, of other segments, or cut: each head is read, and the answer is the same.
    let of_small = archive.store.get(&small).unwrap();
    let mut flipped = of_small.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    for wrong in [&flipped[..], &of_rest, &of_small[..of_small.len() - 1], b""] {
        archive.store.put(&small, wrong);
        let (ran, _, requests) = counted(&archive, &list);
        let mut found = stream_of(&ran.expect(0));
        assert!(found["remarks"][0].as_str().unwrap().contains("is ignored"), "{found:#}");
        found["remarks"] = Value::Array(Vec::new());
        assert_eq!(found, whole);
        assert!(requests > 70, "{requests}");
        let _ = archive.verify().expect(0);
    }
    archive.store.put(&small, &of_small);
    archive.store.put(rest, &of_rest);
    // A roll-up is no proof of a segment.
    let (third, fourth) = (format!("{stream}/{:012}", 3), format!("{stream}/{:012}", 4));
    let good = archive.store.get(&third).unwrap();
    let mut flipped = good.clone();
    *flipped.last_mut().unwrap() ^= 1;
    archive.store.put(&third, &flipped);
    let text = archive.verify().expect(7).stdout_text();
    assert!(text.contains("segment 3: damaged"), "{text}");
    archive.store.put(&third, &archive.store.get(&fourth).unwrap());
    let text = archive.verify().expect(7).stdout_text();
    assert!(text.contains("segment 4 of stream"), "{text}");
    archive.store.delete(&third);
    let text = archive.verify().expect(7).stdout_text();
    assert!(text.contains("segment 3 is missing"), "{text}");
    assert!(archive.list().contains("segment 3 is missing"), "{}", archive.list());
    archive.store.put(&third, &good);
    let _ = archive.verify().expect(0);
}

/// A receiver whose connection ends again and again, and that is started again: its streams are read with few requests.
#[test]
fn streams_that_have_ended_are_rolled_up_and_nothing_is_hidden() {
    let archive = Archive::new(Store::bucket());
    let mut receiver = archive.receive(&[]);
    let ended = || archive.store.list(".xb-binlog/shop/").into_iter().map(|(key, _)| key);
    let ended = || ended().filter(|key| key.ends_with("/end")).count();
    for count in 1..STREAMS_AT_ONCE {
        archive.write(1);
        archive.wait(&mut receiver);
        if count % 5 == 0 {
            receiver.signal(Signal::TERM);
            let _ = receiver.wait().expect(0);
            receiver = archive.receive(&[]);
        } else {
            // That of a receiver that has ended may still be there.
            let id = "SELECT MAX(id) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'";
            archive.server.sql(&format!("KILL {}", archive.server.sql(id).trim()));
        }
        receiver.until("the stream ends", || ended() >= count);
    }
    archive.write(1);
    archive.wait(&mut receiver);
    receiver.signal(Signal::TERM);
    let _ = receiver.wait().expect(0);
    let rollups = archive.store.list(".xb-binlog/shop/.streams/");
    assert_eq!((rollups.len(), ended()), (1, STREAMS_AT_ONCE), "{rollups:?}");
    let root = archive.store.root_url();
    let list = ["binlog", "list", &root, "--json"];
    let (ran, lists, requests) = counted(&archive, &list);
    let whole = json(&ran.expect(0))["servers"][0]["streams"].clone();
    assert_eq!(whole.as_array().map(Vec::len), Some(STREAMS_AT_ONCE), "{whole:#}");
    // The roll-up, and none for each of the streams.
    assert!(requests <= lists + 4, "{lists} of {requests}");
    let _ = archive.verify().expect(0);
    // What the store has no longer is missing, and a record that was changed is found by who verifies.
    let of = |name: &str| {
        let keys = archive.store.list(".xb-binlog/shop/").into_iter().map(|(key, _)| key);
        keys.filter(|key| key.ends_with(name)).nth(1).unwrap()
    };
    let (segment, head, keys) = (of("/000000000000"), of("/head"), of("/keys"));
    for key in [&segment, &head, &keys] {
        let good = archive.store.get(key).unwrap();
        archive.store.delete(key);
        let _ = archive.verify().expect(7);
        let text = archive.list();
        assert!(text.contains("missing") || *key == keys, "{key}: {text}");
        let mut flipped = good.clone();
        flipped[20] ^= 1;
        archive.store.put(key, &flipped);
        assert_ne!(archive.verify().code(), 0, "{key}");
        archive.store.put(key, &good);
    }
    let _ = archive.verify().expect(0);
    // The roll-up is no condition.
    archive.store.delete(&rollups[0].0);
    let (ran, _, more) = counted(&archive, &list);
    assert_eq!(json(&ran.expect(0))["servers"][0]["streams"], whole);
    assert!(more > requests + 4 * STREAMS_AT_ONCE, "{more}");
}

#[test]
fn heads_that_a_killed_receiver_left_are_rolled_up() {
    let archive = Archive::new(Store::bucket());
    let mut receiver = archive.receive(&[]);
    for _ in 0..10 {
        archive.server.sql("INSERT INTO d.t (v) VALUES (1); FLUSH BINARY LOGS");
    }
    archive.wait(&mut receiver);
    receiver.kill_9();
    let _ = receiver.wait();
    let list = ["binlog", "list", &archive.store.root_url(), "--json"];
    let streams = |ran: Ran| json(&ran.expect(0))["servers"][0]["streams"].clone();
    let (ran, lists, before) = counted(&archive, &list);
    let found = streams(ran);
    assert!(before > lists + 14, "{before}");
    let _ = archive.catch_up();
    let rollups = || archive.store.list(".xb-binlog/shop/").into_iter().map(|(key, _)| key);
    let rollups: Vec<String> = rollups().filter(|key| key.contains("/.heads-0")).collect();
    let of_killed = found[0]["stream"].as_str().unwrap();
    assert!(rollups.iter().any(|key| key.contains(of_killed)), "{rollups:?}");
    let (ran, lists, after) = counted(&archive, &list);
    assert_eq!(streams(ran)[0], found[0]);
    assert!(after < lists + 14, "{lists} of {after}");
    let _ = archive.verify().expect(0);
}

#[test]
fn two_receivers_at_once_are_both_whole() {
    let archive = Archive::new(Store::folder());
    let other = format!("--state-dir={}", archive.path("other"));
    let mut one = archive.receive(&[]);
    let mut two = archive.receive(&[&other]);
    let root = archive.store.root_url();
    let streams = || {
        let list = archive.cmd(&["binlog", "list", &root, "--json"]).run();
        let list: Value = serde_json::from_slice(&list.stdout).unwrap_or_default();
        list["servers"][0]["streams"].as_array().cloned().unwrap_or_default()
    };
    let both_have_all = |receiver: &mut Running| {
        let end = archive.log_end();
        let has_all =
            |stream: &Value| stream["to"].as_str().and_then(position).is_some_and(|at| at >= end);
        receiver.until("both have stored all", || {
            let streams = streams();
            streams.len() == 2 && streams.iter().all(has_all)
        });
    };
    let transactions = |streams: &[Value]| {
        let all = streams.iter().map(|stream| stream["transactions"].as_u64().unwrap());
        all.collect::<Vec<_>>()
    };
    // One may begin when the other has stored a part already, and continues behind that.
    one.until("both have begun", || streams().len() == 2);
    archive.write(1);
    both_have_all(&mut one);
    let before = transactions(&streams());
    for _ in 0..5 {
        archive.write(20);
        archive.server.sql("FLUSH BINARY LOGS");
    }
    both_have_all(&mut one);
    both_have_all(&mut two);
    for receiver in [one, two] {
        receiver.signal(Signal::TERM);
        let said = receiver.wait().expect(0).stderr_text();
        assert!(!said.contains("warning"), "{said}");
    }
    let report = json(&archive.verify().expect(0));
    let both = transactions(report["servers"][0]["streams"].as_array().unwrap());
    assert_eq!(both, [before[0] + 100, before[1] + 100], "{report:#}");
}

#[test]
fn every_fault_of_an_archive_is_named() {
    let archive = Archive::new(Store::folder());
    let mut receiver = archive.receive(&[]);
    for _ in 0..5 {
        archive.write(5);
        archive.server.sql("FLUSH BINARY LOGS");
        archive.wait(&mut receiver);
    }
    receiver.signal(Signal::TERM);
    let _ = receiver.wait().expect(0);
    let _ = archive.verify().expect(0);
    let files = archive.segments();
    let contents: Vec<Vec<u8>> = files.iter().map(|file| std::fs::read(file).unwrap()).collect();
    assert!(files.len() >= 5);
    let named = |what: &str| {
        let ran = archive.verify().expect(7);
        assert!(ran.stdout_text().contains(what), "{what}: {}", ran.stdout_text());
        assert!(ran.stderr_text().contains("problem"), "{}", ran.stderr_text());
        for (file, content) in files.iter().zip(&contents) {
            std::fs::write(file, content).unwrap();
        }
        let _ = archive.verify().expect(0);
        ran.stdout_text()
    };
    let mut flipped = contents[1].clone();
    *flipped.last_mut().unwrap() ^= 1;
    std::fs::write(&files[1], flipped).unwrap();
    let _ = named("segment 1: damaged");
    std::fs::write(&files[1], &contents[2]).unwrap();
    std::fs::write(&files[2], &contents[1]).unwrap();
    let _ = named("segment 2 of stream");
    std::fs::remove_file(&files[3]).unwrap();
    let text = named("segment 3 is missing");
    assert_eq!(text.matches("segment 3").count(), 1, "{text}");
    // The end of the archive, with all that tells of it: only this host stored.
    let folder = files[0].parent().unwrap();
    for name in ["alive", "end"] {
        std::fs::remove_file(folder.join(name)).unwrap();
    }
    std::fs::remove_file(files.last().unwrap()).unwrap();
    named("ends before the last segment that this host stored");
}

/// The rest of a transaction behind a hole has no beginning, and is not called damaged for that. What follows it can be
/// read.
#[test]
fn the_rest_of_a_transaction_behind_a_hole_is_no_damage() {
    let archive = Archive::new(Store::folder());
    archive
        .server
        .sql("SET GLOBAL max_allowed_packet = 134217728; CREATE TABLE d.big (v LONGTEXT)");
    // Segments of 16 MiB, each of which but the first begins within the transaction, and some within a row.
    archive.server.sql(
        "USE d; SET binlog_format = ROW; BEGIN; INSERT INTO big SELECT REPEAT(SHA2(seq, 512), 98304) FROM seq_1_to_6; COMMIT;
         FLUSH BINARY LOGS; CREATE TABLE later (id INT); INSERT INTO later VALUES (7)",
    );
    archive.catch_up();
    let files = archive.segments();
    assert!(files.len() > 5, "{files:?}");
    let lost = 2;
    std::fs::remove_file(&files[lost]).unwrap();
    let ran = archive.verify().expect(7);
    let found = json(&ran);
    let problems = found["servers"][0]["streams"][0]["problems"].as_array().unwrap();
    let is_of_another = |text: &&serde_json::Value| {
        let text = text.as_str().unwrap();
        !text.contains(&format!("segment {lost} is missing"))
            && !text.contains(&format!("segment {lost}: missing"))
    };
    assert!(!problems.is_empty() && !problems.iter().any(|text| is_of_another(&text)), "{found:#}");
    // The body of such a segment is verified all the same.
    let whole = std::fs::read(&files[lost + 1]).unwrap();
    let mut flipped = whole.clone();
    *flipped.last_mut().unwrap() ^= 1;
    std::fs::write(&files[lost + 1], flipped).unwrap();
    let text = archive.verify().expect(7).stdout_text();
    assert!(text.contains(&format!("segment {}: damaged", lost + 1)), "{text}");
    std::fs::write(&files[lost + 1], whole).unwrap();
    // A search does not join the two halves.
    let ran = archive
        .cmd(&["binlog", "show", &archive.store.root_url(), "--json", "--table=d.*"])
        .arg(format!("--encrypt-key-file={}", archive.path("key")))
        .run()
        .expect(7);
    let found = json(&ran);
    let shown = found["transactions"].as_array().unwrap();
    let shown: Vec<_> = shown.iter().map(|one| one["statement"].as_str().unwrap()).collect();
    let begins = |with: &str| shown.iter().any(|text| text.starts_with(with));
    assert!(begins("CREATE TABLE later") && !begins("INSERT INTO big"), "{found:#}");
    let problems = found["problems"].as_array().unwrap();
    assert!(!problems.iter().any(|text| is_of_another(&text)), "{found:#}");
}

/// A server sends no part of a transaction, and an archive has nothing before this one to continue from.
#[test]
fn a_receiver_that_was_killed_within_the_first_transaction_of_a_stream_continues() {
    let options = ["--max-allowed-packet=128M", "--binlog-format=ROW"];
    let archive = Archive::with_options(Store::folder(), &options);
    archive.server.sql("CREATE TABLE d.big (v LONGTEXT); FLUSH BINARY LOGS");
    archive.purge_to("bin.000002");
    archive.server.sql(
        "USE d; INSERT INTO big SELECT REPEAT(SHA2(seq, 512), 98304) FROM seq_1_to_6;
         INSERT INTO t (v) VALUES (7)",
    );
    archive.catch_up();
    // As if it had been killed after two segments.
    let files = archive.segments();
    assert!(files.len() > 4, "{files:?}");
    for entry in std::fs::read_dir(files[0].parent().unwrap()).unwrap() {
        let path = entry.unwrap().path();
        if !path.ends_with("head") && !path.ends_with("keys") && !files[..2].contains(&path) {
            std::fs::remove_file(path).unwrap();
        }
    }
    std::fs::remove_dir_all(archive.path("state")).unwrap();
    archive.catch_up();
    let found = json(&archive.verify());
    let streams = found["servers"][0]["streams"].as_array().unwrap();
    let second = streams.last().unwrap();
    assert_eq!((&second["begins"], &second["from"]), (&"continues".into(), &"bin.000002:4".into()));
    assert!(streams.len() == 2 && second["problems"].as_array().unwrap().is_empty(), "{found:#}");
    archive.back_up("one");
    archive.write(3);
    archive.catch_up();
    let found = json(&archive.verify());
    assert_eq!(found["servers"][0]["backups"][0]["problem"], serde_json::Value::Null, "{found:#}");
}

#[test]
fn a_gap_is_an_alarm_wherever_one_looks() {
    let archive = Archive::new(Store::folder());
    archive.write(5);
    archive.catch_up();
    for _ in 0..3 {
        archive.next_log(5);
    }
    archive.purge_to("bin.000003");
    let said = archive.catch_up().stderr_text();
    assert!(
        said.contains("GAP in the archive of shop") && said.contains("purged bin.000001"),
        "{said}"
    );
    assert_eq!(archive.metric("gaps").as_deref(), Some("1"));
    let verified = archive.verify().expect(7);
    assert!(verified.stderr_text().contains("the archive of shop has a gap"));
    let list = archive.list();
    assert!(list.contains("GAP: the server has purged bin.000001"), "{list}");
    let monitor = archive.cmd(&["monitor", &archive.store.root_url()]).run().expect(2);
    let line = monitor.stdout_text();
    assert!(line.contains("has a gap after the newest backup"), "{line}");
    // Once a backup lies behind it, it is history.
    archive.back_up("one");
    archive.write(3);
    archive.catch_up();
    let verified = json(&archive.verify().expect(0));
    let server = &verified["servers"][0];
    assert_eq!(server["gaps"].as_array().unwrap().len(), 0, "{server:#}");
    assert_eq!(server["past_gaps"].as_array().unwrap().len(), 1, "{server:#}");
    assert!(archive.list().contains("history that no backup needs"), "{}", archive.list());
}

#[test]
fn a_branch_is_an_alarm_wherever_one_looks() {
    let archive = Archive::new(Store::folder());
    let root = archive.store.root_url();
    archive.write(5);
    archive.catch_up();
    let _ = archive.back_up("one");
    let (log, end) = archive.log_end();
    archive.write(1);
    archive.catch_up();
    // A power loss: the log lacks a transaction that is archived.
    let (archive, _scratch) = archive.restarted(&LOGGED, |data| {
        let log = std::fs::OpenOptions::new().write(true).open(data.join(log)).unwrap();
        log.set_len(end).unwrap();
    });
    archive.write(1);
    let said = archive.catch_up().stderr_text();
    assert!(said.contains("the history of shop BRANCHES"), "{said}");
    let _ = archive.verify().expect(7);
    let monitor = |code: u8, more: &[&str]| {
        let ran = archive.cmd(&["monitor", &root, "--max-age=1h"]).args(more).run();
        ran.expect(code.into()).stdout_text()
    };
    let is_told = |line: &str| {
        let uncovered = "cannot be replayed onto the newest backup";
        (line.contains("has a branch after the newest backup"), line.contains(uncovered))
    };
    let line = monitor(2, &[]);
    assert_eq!(is_told(&line), (true, true), "{line}");
    // What was left is not missed, but there is still no backup of the present history.
    let found = json(&archive.verify());
    let left = found["servers"][0]["streams"][1]["stream"].as_str().unwrap().to_owned();
    let line = monitor(2, &["--accept-left", &left]);
    assert_eq!(is_told(&line), (false, true), "{line}");
    let said = archive.back_up("two").stderr_text();
    assert!(!said.contains("archived log"), "{said}");
    let line = monitor(0, &[]);
    assert_eq!(is_told(&line), (false, false), "{line}");
    // The logs of the server begin anew.
    archive.write(2);
    archive.catch_up();
    archive.server.sql("RESET MASTER");
    archive.write(1);
    let mut receiver = archive.receive(&[]);
    receiver.until("the new log is stored", || archive.list().matches("BRANCH").count() == 2);
    receiver.signal(Signal::TERM);
    let _ = receiver.wait().expect(0);
    let line = monitor(2, &[]);
    assert_eq!(is_told(&line), (true, true), "{line}");
    let _ = archive.back_up("three");
    let line = monitor(0, &[]);
    assert_eq!(is_told(&line), (false, false), "{line}");
}

/// What a server commits without a log is in no archive, and the logs that it makes later follow the stored ones.
#[test]
fn a_time_without_a_log_is_a_gap() {
    const UNLOGGED: [&str; 2] = ["--skip-log-bin", "--server-id=3"];
    let archive = Archive::new(Store::folder());
    let (archive, _scratch) = archive.restarted(&UNLOGGED, |_| {});
    // Nothing is archived yet.
    let said = archive.receive(&[]).wait().expect(1).stderr_text();
    assert!(said.contains("start the server with --log-bin"), "{said}");
    // Nor can any log be replayed onto a backup of such a time.
    let place = format!("file://{}/elsewhere", archive.folder.path().display());
    std::fs::create_dir(archive.folder.path().join("elsewhere")).unwrap();
    let put = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["backup", SERVER, "--quiet", &format!("{place}/unlogged"), "--"])
        .args(archive.server.backup_command())
        .run();
    let _ = put.expect(0);
    let words = ["restore", &format!("{place}/unlogged"), "--until=latest", "--dry-run"];
    let said = archive.cmd(&words).run().expect_failure().stderr_text();
    assert!(said.contains("records no position") && said.contains("--log-bin"), "{said}");
    let (archive, _last) = archive.restarted(&LOGGED, |_| {});
    archive.write(5);
    archive.catch_up();
    let _ = archive.back_up("one");
    archive.write(1);
    archive.catch_up();
    let (archive, _last) = archive.restarted(&UNLOGGED, |_| {});
    let state = archive.folder.path().join("state");
    let is_noted = || {
        let files = std::fs::read_dir(&state).unwrap().map(|file| file.unwrap().path());
        files.into_iter().any(|path| path.extension().is_some_and(|of| of == "unlogged"))
    };
    let mut receiver = archive.receive(&[]);
    receiver.until("it is noted", is_noted);
    receiver.signal(Signal::TERM);
    let said = receiver.wait().expect(0).stderr_text();
    assert!(said.contains("runs without a binary log"), "{said}");
    let told = "may lack the commits since";
    let verified = archive.verify();
    assert!(verified.code() != 0 && verified.stdout_text().contains(told));
    archive.write(2);
    let (archive, _last) = archive.restarted(&LOGGED, |_| {});
    // What follows the start is archived, also of a log that the server has ended since.
    archive.write(1);
    archive.next_log(1);
    let said = archive.catch_up().stderr_text();
    assert!(said.contains("GAP") && said.contains("ran without a binary log at 20"), "{said}");
    assert!(!is_noted());
    let found = json(&archive.verify().expect(7));
    let server = &found["servers"][0];
    let problem = server["backups"][0]["problem"].as_str().unwrap();
    assert!(problem.contains("ran without a binary log"), "{server:#}");
    let gap = server["streams"].as_array().unwrap().last().unwrap();
    assert_eq!((&gap["begins"], &gap["from"]), (&json!("gap"), &json!("bin.000003:4")), "{gap}");
    let _ = archive.back_up("two");
    archive.write(1);
    archive.catch_up();
    let found = json(&archive.verify());
    assert_eq!(found["servers"][0]["backups"][1]["problem"], Value::Null, "{found:#}");
    assert_eq!(
        found["servers"][0]["streams"].as_array().unwrap().last().unwrap()["begins"],
        "continues"
    );
}

#[test]
fn a_state_that_was_cut_is_named_with_what_to_do() {
    let archive = Archive::new(Store::folder());
    archive.write(3);
    archive.catch_up();
    let is_state = |path: &std::path::PathBuf| path.extension().is_none();
    let files = std::fs::read_dir(archive.path("state")).unwrap().map(|file| file.unwrap().path());
    let file = files.into_iter().find(is_state).unwrap();
    let whole = std::fs::read(&file).unwrap();
    for cut in [&whole[..whole.len() / 2], b""] {
        std::fs::write(&file, cut).unwrap();
        for ran in [archive.receive(&[]).wait(), archive.verify()] {
            let said = ran.stderr_text();
            let is_named =
                said.contains(file.to_str().unwrap()) && said.contains("remove this file");
            assert!(ran.code() == 1 && is_named, "{said}");
        }
    }
    std::fs::remove_file(&file).unwrap();
    archive.write(1);
    archive.catch_up();
    let _ = archive.verify().expect(0);
}

#[test]
fn damage_of_the_log_that_is_written_is_told_with_what_ends_it() {
    let archive = Archive::new(Store::folder());
    let root = archive.store.root_url();
    archive.write(5);
    archive.catch_up();
    let _ = archive.back_up("one");
    archive.write(2);
    let (log, end) = archive.log_end();
    let log = archive.server.datadir().join(log);
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[usize::try_from(end).unwrap() - 10] ^= 1;
    std::fs::write(&log, bytes).unwrap();
    let monitor = || archive.cmd(&["monitor", &root, "--max-age=1h"]).run().stdout_text();
    let messages = archive.folder.path().join("messages");
    let mut receiver = archive.receive_telling(&messages, &[]);
    let is_told = || {
        let line = monitor();
        line.contains("CRITICAL") && line.contains("is not received any further")
    };
    receiver.until("monitor says it", is_told);
    // Another connection has to find the same.
    let text = "nothing more of it is archived until the server begins another one";
    let said = || std::fs::read_to_string(&messages).unwrap();
    receiver.until("the receiver says it", || said().contains(text));
    archive.next_log(1);
    receiver.until("it continues", || archive.list().contains("GAP"));
    archive.wait(&mut receiver);
    receiver.signal(Signal::TERM);
    let _ = receiver.wait().expect(0);
    let said = said();
    assert_eq!(said.matches(text).count(), 1, "{said}");
    assert!(said.contains("run FLUSH BINARY LOGS on the server now"), "{said}");
    assert!(!monitor().contains("is not received any further"), "{}", monitor());
}

/// Without a stored transaction, nothing is sent again and compared; a log of the same name and size proves nothing.
#[test]
fn another_server_does_not_continue_an_archive_without_transactions() {
    let mut archive = Archive::new(Store::folder());
    archive.server.sql("FLUSH BINARY LOGS");
    archive.purge_to("bin.000002");
    archive.catch_up();
    archive.replace_server(4);
    archive.server.sql("FLUSH BINARY LOGS");
    archive.purge_to("bin.000002");
    archive.write(3);
    let kinds = |archive: &Archive| {
        let server = json(&archive.verify())["servers"][0].clone();
        let streams = server["streams"].as_array().unwrap().clone();
        let kinds = streams.iter().filter_map(|stream| stream["begins"].as_str());
        kinds.map(str::to_owned).collect::<Vec<_>>()
    };
    let said = archive.catch_up().stderr_text();
    assert_eq!(kinds(&archive), ["first", "gap"], "{said}");
    let what = "this is another server: its server_id is 4, that of the archive's 3";
    assert!(said.contains(what), "{said}");
    // The server itself continues.
    archive.write(1);
    archive.catch_up();
    assert_eq!(kinds(&archive), ["first", "gap", "continues"]);
}

/// It has purged none of what is archived.
#[test]
fn another_server_with_later_logs_is_named() {
    let mut archive = Archive::new(Store::folder());
    archive.write(3);
    archive.catch_up();
    archive.replace_server(5);
    for _ in 0..3 {
        archive.next_log(1);
    }
    archive.purge_to("bin.000004");
    let said = archive.catch_up().stderr_text();
    let what = "this is another server: its server_id is 5, that of the archive's 3";
    assert!(said.contains(what) && !said.contains("has purged"), "{said}");
}

#[test]
fn changes_that_the_server_has_lost_are_told_and_need_a_backup() {
    let options = [
        "--binlog-format=ROW",
        "--max-binlog-stmt-cache-size=4096",
        "--binlog-stmt-cache-size=4096",
    ];
    let archive = Archive::with_options(Store::folder(), &options);
    archive.server.sql("CREATE TABLE d.m (id INT, v TEXT) ENGINE=MyISAM");
    let heard = archive.folder.path().join("heard");
    let hook = format!("--on-gap=tee -a {}", heard.display());
    let mut receiver = archive.receive(&[&hook]);
    archive.wait(&mut receiver);
    let _ = archive.back_up("one");
    archive.write(1);
    let before = archive.server.sql("SELECT @@gtid_binlog_pos").trim().to_owned();
    // Some of its rows stay, though the log has no room for them.
    let rows = "USE d; INSERT INTO m SELECT seq, REPEAT('x', 100) FROM seq_1_to_2000";
    let client =
        Cmd::new(find("mariadb")).args(["--no-defaults", "--user=root", "--execute", rows]);
    let socket = format!("--socket={}", archive.server.socket().display());
    let refused = client.arg(socket).run().expect_failure().stderr_text();
    assert!(refused.contains("max_binlog_stmt_cache_size"), "{refused}");
    archive.write(1);
    archive.wait(&mut receiver);
    receiver.until("the program has run", || {
        std::fs::read_to_string(&heard).is_ok_and(|text| text.ends_with('}'))
    });
    receiver.signal(Signal::TERM);
    let said = receiver.wait().expect(0).stderr_text();
    assert!(said.contains("BARRIER") && said.contains("lost changes"), "{said}");
    let told: Value = serde_json::from_slice(&std::fs::read(&heard).unwrap()).unwrap();
    assert_eq!(told["what"], "barrier");
    let verified = archive.verify().expect(7).stdout_text();
    assert!(verified.contains("incident"), "{verified}");
    let key = format!("--encrypt-key-file={}", archive.path("key"));
    let words = ["binlog", "show", &archive.store.root_url(), "--match=insert", &key];
    let shown = archive.cmd(&words).run().expect(0).stdout_text();
    assert!(shown.lines().any(|line| line.starts_with("BARRIER at bin.000001:")), "{shown}");
    let until = |name: &str, stop: &str| {
        let until = format!("--until={stop}");
        let words = ["restore", &archive.store.url(name), "--dry-run", "--accept-unsealed", &until];
        let key = format!("--encrypt-key-file={}", archive.path("key"));
        archive.cmd(&words).arg(key).run()
    };
    let _ = until("one", &before).expect(0);
    let refused = until("one", "latest").expect_failure().stderr_text();
    assert!(refused.contains("barrier"), "{refused}");
    let _ = archive.back_up("two");
    archive.write(1);
    let _ = archive.catch_up();
    let _ = until("two", "latest").expect(0);
    // Nor does the log have what is imported.
    let before = archive.server.sql("SELECT @@gtid_binlog_pos").trim().to_owned();
    let folder = archive.server.datadir().join("d");
    let import = format!(
        "CREATE TABLE own (id INT) ENGINE=InnoDB; INSERT INTO own VALUES (1), (2); CREATE TABLE i LIKE own;
         ALTER TABLE i DISCARD TABLESPACE; FLUSH TABLES own FOR EXPORT; system cp {0}/own.ibd {0}/i.ibd;
         system cp {0}/own.cfg {0}/i.cfg; UNLOCK TABLES; ALTER TABLE i IMPORT TABLESPACE",
        folder.display()
    );
    let client = Cmd::new(find("mariadb")).args(["--no-defaults", "--user=root", "d", "--execute"]);
    let _ = client
        .args([import, format!("--socket={}", archive.server.socket().display())])
        .run()
        .expect(0);
    assert_eq!(archive.server.sql("SELECT * FROM d.i"), "1\n2\n");
    let said = archive.catch_up().stderr_text();
    assert!(said.contains("BARRIER") && said.contains("moved a tablespace"), "{said}");
    let _ = until("two", &before).expect(0);
    let refused = until("two", "latest").expect_failure().stderr_text();
    assert!(refused.contains("the log has a barrier at bin.000001:"), "{refused}");
    assert!(
        refused.contains(": tablespace") && refused.contains("backup that was taken after it"),
        "{refused}"
    );
    let _ = archive.back_up("three");
    archive.write(1);
    let _ = archive.catch_up();
    let _ = until("three", "latest").expect(0);
}

#[test]
fn a_program_runs_once_for_each_gap() {
    let archive = Archive::new(Store::folder());
    archive.write(5);
    archive.catch_up();
    for _ in 0..3 {
        archive.next_log(5);
    }
    archive.purge_to("bin.000003");
    let heard = archive.folder.path().join("heard");
    let hook = format!("--on-gap=tee -a {}", heard.display());
    let mut receiver = archive.receive(&[&hook]);
    archive.wait(&mut receiver);
    receiver.until("the program has run", || {
        std::fs::read_to_string(&heard).is_ok_and(|text| text.ends_with('}'))
    });
    receiver.signal(Signal::TERM);
    let _ = receiver.wait().expect(0);
    archive.write(5);
    let mut receiver = archive.receive(&[&hook]);
    archive.wait(&mut receiver);
    receiver.signal(Signal::TERM);
    let _ = receiver.wait().expect(0);
    // One document: the gap is not told again.
    let told: Value = serde_json::from_slice(&std::fs::read(&heard).unwrap()).unwrap();
    assert_eq!((told["what"].as_str(), told["server"].as_str()), (Some("gap"), Some("shop")));
    assert!(told["reason"].as_str().unwrap().contains("has purged bin.000001"), "{told}");
    let ran = archive.receive(&["--on-gap='"]).wait();
    assert!(ran.code() != 0 && ran.stderr_text().contains("--on-gap"), "{}", ran.stderr_text());
}

#[test]
fn a_gap_between_two_backups_is_no_history() {
    let archive = Archive::new(Store::folder());
    archive.write(5);
    archive.catch_up();
    archive.back_up("one");
    archive.write(1);
    archive.catch_up();
    for _ in 0..3 {
        archive.next_log(5);
    }
    archive.purge_to("bin.000003");
    archive.catch_up();
    archive.back_up("two");
    let verified = json(&archive.verify().expect(7));
    let server = &verified["servers"][0];
    assert_eq!(server["gaps"].as_array().unwrap().len(), 1, "{server:#}");
    assert!(server["backups"][0]["problem"].as_str().unwrap().contains("lost"), "{server:#}");
    assert!(server["backups"][1]["problem"].is_null(), "{server:#}");
}

/// Without the backup before the gap, no backup needs what is lost, and `binlog verify` would find nothing wrong.
#[test]
fn a_backup_that_a_listing_hides_still_needs_its_log() {
    let archive = Archive::new(Store::bucket());
    archive.write(5);
    archive.catch_up();
    let _ = archive.back_up("one");
    archive.write(1);
    archive.catch_up();
    for _ in 0..3 {
        archive.next_log(5);
    }
    archive.purge_to("bin.000003");
    archive.catch_up();
    let _ = archive.back_up("two");
    let options = archive.store.options();
    let endpoint = options.iter().find_map(|option| option.strip_prefix("--s3-endpoint=http://"));
    let proxy = Proxy::start(endpoint.unwrap(), Vec::new());
    let through = format!("--s3-endpoint={}", proxy.endpoint());
    for times in [1, u64::MAX] {
        let hidden = Action::Edit(Edit::Hide(".xb-catalog/one</Key>"));
        proxy.set_rules(vec![Rule::new("GET", "list-type=2", hidden).times(times)]);
        let report = json(&archive.verify_with(&[&through]).expect(7));
        let server = &report["servers"][0];
        assert_eq!(server["gaps"].as_array().unwrap().len(), 1, "{times}: {server:#}");
        assert_eq!(server["backups"][0]["backup"], "one", "{times}: {server:#}");
    }
}

#[test]
fn a_backup_that_the_archive_does_not_reach_is_reported_at_once() {
    let archive = Archive::new(Store::folder());
    archive.write(5);
    archive.catch_up();
    let said = archive.back_up("one").stderr_text();
    assert!(!said.contains("archived log"), "{said}");
    // The receiver does not run.
    archive.write(5);
    let said = archive.back_up("two").stderr_text();
    assert!(said.contains("the archived log of shop cannot be replayed onto two"), "{said}");
    assert!(said.contains("the archive ends at bin.000001:"), "{said}");
    let root = archive.store.root_url();
    let line = archive.cmd(&["monitor", &root, "--max-age=1h"]).run().expect(2).stdout_text();
    assert!(line.contains("cannot be replayed onto the newest backup two"), "{line}");
    archive.catch_up();
    let line = archive.cmd(&["monitor", &root, "--max-age=1h"]).run().expect(0).stdout_text();
    assert!(!line.contains("cannot be replayed"), "{line}");
    // One that is at work is waited for. It is at work when it has stored something itself.
    archive.write(1);
    let mut receiver = archive.receive(&[]);
    archive.wait(&mut receiver);
    archive.write(5);
    let said = archive.back_up("three").stderr_text();
    assert!(!said.contains("archived log"), "{said}");
    receiver.signal(Signal::TERM);
    let _ = receiver.wait().expect(0);
    let _ = archive.verify().expect(0);
}

#[test]
fn other_commands_know_the_archive_and_leave_it_alone() {
    let archive = Archive::new(Store::folder());
    let root = archive.store.root_url();
    let check = |more: &[&str]| {
        let login = format!("--login-file={}", archive.path("login"));
        let more: Vec<&str> = [&[login.as_str()], more].concat();
        archive.cmd(&["check", &root, SERVER]).args(more).run().stdout_text()
    };
    let quiet = archive.cmd(&["check", &root, SERVER]).run().stdout_text();
    assert!(!quiet.contains("binlog"), "{quiet}");
    assert!(check(&["--binlog"]).contains("sync_binlog is not 1"));
    archive.write(3);
    archive.catch_up();
    let _ = archive.back_up("one");
    let _ = archive.back_up("two");
    archive.write(3);
    archive.catch_up();
    assert!(check(&[]).contains("sync_binlog is not 1"));
    let list = archive.list();
    assert!(list.contains("RESTORABLE FROM") && !list.contains("not to the end"), "{list}");
    let before = archive.store.list(".xb-binlog/");
    let elsewhere = format!("file://{}/", archive.path("copies"));
    let (one, two) = (archive.store.url("one"), archive.store.url("two"));
    for words in [
        &["gc", &root, "--older-than=24", "--yes"][..],
        &["copy", &one, &elsewhere, "--unverified"],
        &["delete", &one, "--yes"],
        &["prune", &root, "--keep-last=1", "--yes"],
    ] {
        let _ = archive.cmd(words).run().expect(0);
        assert_eq!(archive.store.list(".xb-binlog/"), before, "{words:?}");
    }
    let listed = json(&archive.cmd(&["list", &root, "--json"]).run().expect(0));
    let names: Vec<&str> =
        listed.as_array().unwrap().iter().filter_map(|line| line["name"].as_str()).collect();
    assert_eq!(names, ["two"]);
    let _ = archive.cmd(&["verify", &two]).run().expect(0);
    let _ = archive.verify().expect(0);
    let monitor = archive.cmd(&["monitor", &root, "--max-age=1h"]).run().expect(0).stdout_text();
    assert!(monitor.contains("the archived log of shop ends"), "{monitor}");
    let ignored = ["monitor", &root, "--ignore-server=shop"];
    assert!(!archive.cmd(&ignored).run().stdout_text().contains("archived log"));
}

#[test]
fn the_service_manager_is_told() {
    let archive = Archive::new(Store::folder());
    let socket = archive.folder.path().join("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    archive.write(3);
    let root = archive.store.root_url();
    let mut receiver = archive
        .cmd(&["binlog", "receive", &root, SERVER, "--rpo=1s"])
        .args([
            format!("--login-file={}", archive.path("login")),
            format!("--state-dir={}", archive.path("state")),
        ])
        .env("NOTIFY_SOCKET", &socket)
        .spawn();
    let heard = |wanted: &str| {
        let mut bytes = [0; 4096];
        loop {
            let length = manager.recv(&mut bytes).expect(wanted);
            if String::from_utf8_lossy(&bytes[..length]).contains(wanted) {
                return;
            }
        }
    };
    heard("READY=1");
    heard("WATCHDOG=1");
    heard("STATUS=stored up to bin.0");
    archive.wait(&mut receiver);
    receiver.signal(Signal::TERM);
    heard("STOPPING=1");
    let _ = receiver.wait().expect(0);
}

#[test]
fn a_permanent_error_ends_the_receiver() {
    let archive = Archive::new(Store::folder());
    archive.server.sql("SET GLOBAL binlog_checksum = NONE");
    let ran = archive.receive(&[]).wait().expect(1);
    let said = ran.stderr_text();
    assert!(said.contains("without checksums") && said.contains("--accept-no-crc"), "{said}");
    archive
        .server
        .sql("SET GLOBAL binlog_checksum = CRC32; CREATE USER weak@localhost IDENTIFIED BY 'x'");
    let login =
        format!("[client]\nuser=weak\npassword=x\nsocket={}\n", archive.server.socket().display());
    std::fs::write(archive.folder.path().join("login"), login).unwrap();
    let said = archive.receive(&["--accept-no-crc"]).wait().expect(1).stderr_text();
    assert!(said.contains("REPLICATION SLAVE"), "{said}");
    let metrics = format!("--binlog-metrics-file={}", archive.path("x"));
    for (option, what) in [
        ("--rpo=5", "5s, 15m"),
        (metrics.as_str(), ".prom"),
        ("--source=mysql://a:b@c", "password"),
    ] {
        let ran = archive.receive(&[option]).wait();
        assert!(ran.code() != 0 && ran.stderr_text().contains(what), "{}", ran.stderr_text());
    }
    let none = archive.cmd(&["binlog", "list", &archive.store.root_url()]).run().expect(3);
    assert!(none.stderr_text().contains("no archive of a binary log"), "{}", none.stderr_text());
}

/// The names of all fields of a JSON value.
fn fields(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Array(all) => all.iter().for_each(|each| fields(each, found)),
        Value::Object(all) => all.iter().for_each(|(name, each)| {
            found.insert(name.clone());
            fields(each, found);
        }),
        _ => {}
    }
}

#[test]
fn the_page_of_the_format_shows_every_field() {
    let archive = Archive::new(Store::folder());
    archive.write(1);
    archive.catch_up();
    archive.back_up("one");
    archive.catch_up();
    let page = std::fs::read_to_string(workspace().join("docs/reference/json/binlog.md")).unwrap();
    let example = page.split("```json\n").nth(1).unwrap().split("```").next().unwrap();
    let example: Value = serde_json::from_str(example).unwrap();
    let (mut written, mut shown) = (BTreeSet::new(), BTreeSet::new());
    fields(&json(&archive.verify().expect(0)), &mut written);
    fields(&example, &mut shown);
    assert_eq!(written, shown);
}

#[test]
fn the_end_of_an_archive_is_found_with_few_requests() {
    let archive = Archive::new(Store::bucket());
    let mut receiver = archive.receive(&[]);
    for _ in 0..3 {
        archive.write(2);
        archive.server.sql("FLUSH BINARY LOGS");
        archive.wait(&mut receiver);
    }
    receiver.signal(Signal::TERM);
    let _ = receiver.wait().expect(0);
    let keys = archive.store.list(".xb-binlog/shop/");
    let stream = keys[0].0.rsplit_once('/').unwrap().0.to_owned();
    // More objects than a page of a listing has, as of a month of segments before the last ones.
    for number in 0..1001 {
        archive.store.put(&format!("{stream}/-{number:04}"), b"");
    }
    let options = archive.store.options();
    let endpoint = options.iter().find_map(|option| option.strip_prefix("--s3-endpoint=http://"));
    let proxy = Proxy::start(endpoint.unwrap(), Vec::new());
    let through = format!("--s3-endpoint={}", proxy.endpoint());
    // Without what this host stored.
    let state = format!("--state-dir={}", archive.path("empty"));
    archive.write(1);
    let mut receiver = archive.receive(&[&through, &state]);
    receiver.until("a stream begins", || proxy.count("PUT", "/head") > 0);
    let asked = proxy.seen().into_iter().take_while(|seen| seen.method != "PUT").count();
    receiver.signal(Signal::TERM);
    let _ = receiver.wait().expect(0);
    assert_eq!(proxy.count("GET", "continuation-token"), 0);
    // One of them looks for segments that are missing.
    assert!(asked <= 9, "{asked} requests");
}

#[test]
fn a_host_remembers_each_archive_of_a_server() {
    let mut archive = Archive::new(Store::folder());
    archive.write(1);
    archive.catch_up();
    let first = std::mem::replace(&mut archive.store, Store::folder());
    let text = archive.catch_up().stderr_text();
    assert!(!text.contains("this host stored"), "{text}");
    let _ = archive.verify().expect(0);
    archive.store = first;
    let _ = archive.verify().expect(0);
}

#[test]
fn a_search_shows_who_changed_a_table_and_when() {
    let archive = Archive::new(Store::folder());
    archive.server.sql(
        "CREATE TABLE d.orders (id INT PRIMARY KEY, note VARCHAR(100)); CREATE TABLE d.other (id INT PRIMARY KEY); \
         CREATE DATABASE e; INSERT INTO d.orders VALUES (1, 'first'), (2, 'second')",
    );
    let before = archive.catch_up();
    assert!(!before.stderr_text().contains("GAP"));
    // Rows in row format and as a statement, one transaction on two tables, one that names the table in a text only.
    archive.server.sql(
        "USE d; DELETE FROM orders WHERE id = 2; INSERT INTO other VALUES (7); \
         BEGIN; INSERT INTO other VALUES (8); UPDATE orders SET note = 'x' WHERE id = 1; COMMIT; \
         SET binlog_format = STATEMENT; UPDATE orders SET note = 'Needle' WHERE id = 1; \
         UPDATE orders SET note = 'none' WHERE id = 99",
    );
    archive.catch_up();
    archive
        .server
        .sql("CREATE USER u IDENTIFIED BY 'secret'; DROP TABLE d.orders, d.other; DROP DATABASE e");
    archive.catch_up();
    let search = |words: &[&str]| {
        archive
            .cmd(&["binlog", "show", &archive.store.root_url()])
            .arg(format!("--encrypt-key-file={}", archive.path("key")))
            .args(words)
            .run()
            .expect(0)
    };
    let statements = |words: &[&str]| -> Vec<String> {
        let found = json(&search(&[words, &["--json"]].concat()));
        assert_eq!(found["complete"], true, "{found:#}");
        let all = found["transactions"].as_array().unwrap().iter();
        all.map(|one| one["statement"].as_str().unwrap().to_owned()).collect()
    };
    let of_orders = statements(&["--table=d.orders"]);
    // A statement is found by its words, whatever it changes.
    let wanted = [
        "CREATE DATABASE",
        "CREATE TABLE",
        "INSERT INTO d.orders",
        "DELETE FROM",
        "INSERT INTO other VALUES (8)",
        "UPDATE",
        "UPDATE",
        "DROP TABLE",
    ];
    assert_eq!(of_orders.len(), wanted.len(), "{of_orders:#?}");
    for (found, wanted) in of_orders.iter().zip(wanted) {
        assert!(found.starts_with(wanted), "{found}");
    }
    assert_eq!(statements(&["--table=d.o?ders", "--ddl"]).len(), 3);
    assert!(statements(&["--table=e.any"]).iter().any(|found| found.starts_with("DROP DATABASE")));
    assert_eq!(statements(&["--match=needle"]).len(), 1);
    assert_eq!(statements(&["--match=CREATE USER"]), ["CREATE USER u ..."]);
    assert!(statements(&["--since=2020-01-01T00:00:00Z"]).len() > wanted.len());
    assert!(statements(&["--until=2020-01-01T00:00:00Z"]).is_empty());
    assert!(statements(&["--since=2099-01-01T00:00:00Z"]).is_empty());

    // The GTID and the position are those that a restore takes.
    let ran = search(&["--table=d.orders", "--ddl", "--match=drop"]);
    let text = ran.stdout_text();
    let gtid = text.split_whitespace().nth(1).unwrap();
    assert!(
        ran.stderr_text().contains(&format!("`restore --until=before:{gtid}`")),
        "{}",
        ran.stderr_text()
    );
    // A change of definitions is left out by another word, too.
    let rest = format!("`restore --until=latest --exclude-gtid={gtid} --exclude-ddl`");
    assert!(ran.stderr_text().contains(&rest), "{}", ran.stderr_text());
    let several = search(&["--table=d.orders", "--ddl"]);
    assert!(several.stderr_text().contains(&format!("--until=before:{gtid}`")), "the last one");
    // What was just done may not be stored yet; a server of another name was never searched.
    let nothing = search(&["--match=no such text"]);
    assert!(nothing.stderr_text().contains("everything up to 20"), "{}", nothing.stderr_text());
    let other = archive.cmd(&["binlog", "show", &archive.store.root_url(), "--server=db9"]).run();
    let other = other.expect(3).stderr_text();
    assert!(other.contains("db9 is not archived in this place: only that of "), "{other}");
    let events = archive.server.sql("SHOW BINLOG EVENTS");
    let event = events.lines().find(|line| line.contains(&format!("GTID {gtid}"))).unwrap();
    let mut columns = event.split('\t');
    let place = format!("{}:{}", columns.next().unwrap(), columns.next().unwrap());
    assert!(text.contains(&place), "{text} {event}");

    // Another key shows nothing of the archive, and says nothing of damage.
    std::fs::write(archive.path("other"), [9; 32]).unwrap();
    for what in ["show", "verify"] {
        let other = archive.cmd(&["binlog", what, &archive.store.root_url()]);
        let other = other.arg(format!("--encrypt-key-file={}", archive.path("other"))).run();
        let said = other.expect(4).stderr_text();
        assert!(said.contains("keys: stream ") && !said.contains("damage"), "{said}");
    }

    let cut = search(&["--limit=2"]);
    assert!(cut.stderr_text().contains("only the first 2"), "{}", cut.stderr_text());
    assert_eq!(cut.stdout_text().lines().filter(|line| line.starts_with("20")).count(), 2);
    // Segments that cannot be searched are named, and the others are shown.
    let file = archive.segments().pop().unwrap();
    std::fs::write(&file, b"damaged").unwrap();
    let damaged = archive
        .cmd(&["binlog", "show", &archive.store.root_url(), "--match=drop table"])
        .arg(format!("--encrypt-key-file={}", archive.path("key")))
        .run()
        .expect(7);
    assert!(damaged.stderr_text().contains("may be incomplete"), "{}", damaged.stderr_text());
}

/// Several copies of a segment are in memory at once, so it is cut by what the memory allows.
#[test]
fn a_receiver_with_little_memory_stores_small_segments() {
    let archive = Archive::new(Store::folder());
    archive.server.sql(
        "CREATE DATABASE large; USE large; CREATE TABLE t (b BLOB);
         INSERT INTO t SELECT RANDOM_BYTES(1024) FROM seq_1_to_8000",
    );
    let status = archive.server.sql("SHOW MASTER STATUS");
    let end: u64 = status.split('\t').nth(1).unwrap().parse().unwrap();
    let mut receiver = archive.receive(&["--quiet", "--memory=12M"]);
    receiver.until("all is stored", || archive.stored().is_some_and(|(_, at)| at >= end));
    receiver.signal(Signal::TERM);
    let _ = receiver.wait();
    let sizes: Vec<u64> =
        archive.store.list(".xb-binlog/").into_iter().map(|(_, size)| size).collect();
    let largest = sizes.iter().max().copied().unwrap();
    assert!((1 << 19..2 << 20).contains(&largest), "8 MB in objects of {sizes:?}");
    let _ = archive.verify().expect(0);
}

#[test]
fn logs_of_a_dead_server_are_archived() {
    let archive = Archive::new(Store::folder());
    let dead = archive.folder.path().join("dead");
    std::fs::create_dir(&dead).unwrap();
    // The disk as the server would leave it.
    let die = || {
        for entry in std::fs::read_dir(archive.server.datadir()).unwrap().map(|e| e.unwrap().path())
        {
            let name = entry.file_name().unwrap().to_str().unwrap().to_owned();
            if name.starts_with("bin.0") && !name.ends_with(".idx") {
                std::fs::copy(&entry, dead.join(name)).unwrap();
            }
        }
    };
    let push = |logs: &[&str]| {
        archive
            .cmd(&["binlog", "push", &archive.store.root_url(), SERVER])
            .args(logs.iter().map(|log| dead.join(log).display().to_string()))
            .arg(format!("--encrypt-key-file={}", archive.path("key")))
            .arg(format!("--state-dir={}", archive.path("state")))
            .run()
    };
    let end = || {
        let status = archive.server.sql("SHOW MASTER STATUS");
        let mut columns = status.split('\t');
        (columns.next().unwrap().to_owned(), columns.next().unwrap().parse::<u64>().unwrap())
    };
    archive.write(5);
    archive.catch_up();
    archive.write(2);
    archive.next_log(5);
    // Behind the last transaction, the server's own checkpoint would be something new each time.
    let is_noted = |events: &str| {
        let mut events = events.lines().filter(|event| event.contains("Binlog_checkpoint"));
        events.any(|event| event.ends_with("bin.000002"))
    };
    while !is_noted(&archive.server.sql("SHOW BINLOG EVENTS IN 'bin.000002'")) {}
    archive.server.sql("CREATE TABLE d.x (a INT); INSERT INTO d.x VALUES (1), (2)");
    die();
    let stored = archive.stored();
    let all = ["bin.000001", "bin.000002"];
    let text = push(&all[1..]).expect(1).stderr_text();
    assert!(text.contains("do not continue the archive"), "{text}");
    let text = push(&["../key"]).expect(1).stderr_text();
    assert!(text.contains("not the name of a log"), "{text}");
    // Another history: the last stored transaction has other bytes.
    let (_, offset) = stored.clone().unwrap();
    let whole = std::fs::read(dead.join(all[0])).unwrap();
    let mut changed = whole.clone();
    changed[usize::try_from(offset).unwrap() - 10] ^= 1;
    std::fs::write(dead.join(all[0]), changed).unwrap();
    assert!(push(&all).expect(1).stderr_text().contains("do not continue the archive"));
    std::fs::write(dead.join(all[0]), &whole[..400]).unwrap();
    assert!(push(&all[..1]).expect(1).stderr_text().contains("do not continue the archive"));
    // A log of that name, long enough, of another history: no event begins where the stored one does.
    let mut moved = whole.clone();
    moved.splice(300..300, [0xff; 4000]);
    std::fs::write(dead.join(all[0]), &moved).unwrap();
    let text = push(&all[..1]).expect(1).stderr_text();
    assert!(text.contains("do not continue the archive") || text.contains("damaged"), "{text}");
    // Another server's name begins no archive by mistake.
    std::fs::write(dead.join(all[0]), &whole).unwrap();
    let mistyped = archive
        .cmd(&["binlog", "push", &archive.store.root_url(), "--server=shap"])
        .arg(dead.join(all[0]))
        .arg(format!("--encrypt-key-file={}", archive.path("key")))
        .run()
        .expect(1);
    let text = mistyped.stderr_text();
    assert!(text.contains("no log of shap is archived here, but logs of shop are"), "{text}");
    assert_eq!(archive.stored(), stored);
    std::fs::write(dead.join(all[0]), &whole).unwrap();

    let text = push(&all).expect(0).stderr_text();
    assert!(text.contains("reaches bin.000002:"), "{text}");
    assert_eq!(archive.stored().unwrap(), end());
    let _ = archive.verify().expect(0);
    assert!(push(&all).expect(0).stderr_text().contains("has everything already"));
    // A crash cuts the last event.
    archive.write(1);
    let before = end();
    archive.write(1);
    die();
    let cut = std::fs::read(dead.join(all[1])).unwrap();
    std::fs::write(dead.join(all[1]), &cut[..cut.len() - 5]).unwrap();
    let text = push(&all[1..]).expect(0).stderr_text();
    assert!(text.contains("not a whole transaction"), "{text}");
    assert!(archive.stored().unwrap() >= before, "{:?}", archive.stored());
    let _ = archive.verify().expect(0);
    // It lives after all: the receiver finds the same bytes, and continues.
    let text = archive.catch_up().stderr_text();
    assert!(!text.contains("BRANCHES") && !text.contains("GAP"), "{text}");
    assert_eq!(archive.stored().unwrap(), end());
    let found = json(&archive.verify().expect(0));
    let streams = found["servers"][0]["streams"].as_array().unwrap();
    assert!(streams[1..].iter().all(|stream| stream["begins"] == "continues"), "{found:#}");
}
