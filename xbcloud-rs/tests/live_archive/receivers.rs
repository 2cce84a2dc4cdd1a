//! Receivers that lag behind each other, whose clock is wrong, or to which a damaged packet comes.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::archive::{Archive, SERVER, json, position};
use jiff::{SignedDuration, Timestamp};
use xb_testkit::command::{Cmd, Ran, Running, Signal};
use xb_testkit::fault::{Action, Proxy, Rule};
use xb_testkit::ports::free_port;
use xb_testkit::skipped;
use xb_testkit::store::Store;

/// Moves the clocks of a program, where it is installed.
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

/// The settings with which a program has another time; `None`, and the test is skipped, without the library.
fn clock(ahead: &str) -> Option<[(&'static str, String); 3]> {
    if !Path::new(FAKETIME).exists() {
        skipped("libfaketime is not installed");
        return None;
    }
    let monotonic = ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned());
    Some([("LD_PRELOAD", FAKETIME.to_owned()), ("FAKETIME", ahead.to_owned()), monotonic])
}

fn restore(archive: &Archive, stop: &str, more: &[&str]) -> Ran {
    archive
        .cmd(&["restore", &archive.store.url("one"), "--dry-run", "--accept-unsealed"])
        .args([format!("--until={stop}"), format!("--encrypt-key-file={}", archive.path("key"))])
        .args(more)
        .run()
}

/// The last transaction of a server's log.
fn last(archive: &Archive) -> String {
    archive.server.sql("SELECT @@gtid_binlog_pos").trim().to_owned()
}

/// Checks that the latest is the end of the server's log, also for the host that remembers the most.
#[track_caller]
fn assert_is_latest(archive: &Archive, gtid: &str) {
    let state = format!("--state-dir={}", archive.path("state"));
    for more in [&[][..], &[state.as_str()]] {
        let shown = restore(archive, "latest", more).expect(0).stdout_text();
        assert!(shown.contains(&format!("last transaction: {gtid}")), "{gtid}: {shown}");
    }
}

fn receive_with(archive: &Archive, options: &[&str], env: &[(&'static str, String)]) -> Running {
    let mut command = archive
        .cmd(&["binlog", "receive", &archive.store.root_url(), SERVER, "--rpo=1s"])
        .args([
            format!("--login-file={}", archive.path("login")),
            format!("--encrypt-key-file={}", archive.path("key")),
        ])
        .args(options);
    for (name, value) in env {
        command = Cmd::env(command, *name, value);
    }
    let mut receiver = command.spawn();
    receiver.until_handled(Signal::TERM);
    receiver
}

/// Position behind the last stored byte of each stream, in the order of their beginnings.
fn ends(archive: &Archive) -> Vec<Option<(String, u64)>> {
    let list = ["binlog", "list", &archive.store.root_url(), "--json"];
    let report = json(&archive.cmd(&list).run().expect(0));
    let streams = report["servers"][0]["streams"].as_array().cloned().unwrap_or_default();
    streams.iter().map(|stream| position(stream["to"].as_str()?)).collect()
}

fn stop(receiver: Running) -> String {
    receiver.signal(Signal::TERM);
    receiver.wait().expect(0).stderr_text()
}

#[test]
fn a_receiver_that_was_killed_while_it_caught_up_is_not_the_latest() {
    let archive = Archive::new(Store::bucket());
    // The other one gets at the store through this.
    let upstream = archive.store.options();
    let endpoint = upstream.iter().find_map(|option| option.strip_prefix("--s3-endpoint=http://"));
    let proxy = Proxy::start(endpoint.unwrap(), Vec::new());
    let through = format!("--s3-endpoint={}", proxy.endpoint());
    let other = format!("--state-dir={}", archive.path("other"));
    let mut ours = archive.receive(&[]);
    let mut behind = archive.receive(&[&other, &through]);
    // One that begins when the other has stored all has nothing to store.
    let heads = || archive.store.list(".xb-binlog/shop/").into_iter().map(|(key, _)| key);
    let begun = || heads().filter(|key| key.ends_with("/head")).count();
    behind.until("both have begun", || begun() == 2);
    archive.write(3);
    archive.wait(&mut ours);
    // Both have stored it: each remembers its own last segment.
    behind.until("both have stored all", || {
        let ends: Vec<_> = ends(&archive).into_iter().flatten().collect();
        ends.len() == 2 && ends.iter().all(|end| *end == archive.stored().unwrap())
    });
    let _ = stop(behind);
    let _ = archive.back_up("one");
    for _ in 0..6 {
        archive.next_log(3);
    }
    archive.wait(&mut ours);
    let _ = stop(ours);
    // It comes back, and the store takes only its first logs.
    proxy.set_rules(vec![Rule::new("PUT", "/000000000002", Action::Stall)]);
    let mut behind = archive.receive(&[&other, &through]);
    let is_held = || proxy.seen().iter().any(|seen| seen.path.contains("/000000000002"));
    behind.until("its third log is on its way", is_held);
    // Several segments are on their way at once.
    let is_second = |end: &Option<_>| matches!(end, Some((log, _)) if log == "bin.000002");
    behind.until("its second log is stored", || ends(&archive).iter().any(is_second));
    behind.kill_9();
    let _ = behind.wait();
    let report = json(&archive.verify().expect(0));
    let streams = report["servers"][0]["streams"].as_array().unwrap();
    let of_killed = streams.last().unwrap()["to"].as_str().unwrap();
    assert!(streams.len() == 3 && of_killed.starts_with("bin.000002"), "{report:#}");
    assert_is_latest(&archive, &last(&archive));
}

#[test]
fn a_receiver_whose_clock_was_ahead_hides_nothing() {
    let Some(env) = clock("+2h") else { return };
    let archive = Archive::new(Store::folder());
    let mut ahead = receive_with(&archive, &[], &env);
    archive.write(3);
    archive.wait(&mut ahead);
    let _ = stop(ahead);
    let _ = archive.back_up("one");
    archive.write(3);
    let _ = archive.catch_up();
    assert_is_latest(&archive, &last(&archive));
    // It says nothing of the time that has not come.
    let later = Timestamp::now() + SignedDuration::from_mins(30);
    let said = restore(&archive, &later.to_string(), &[]).expect_failure().stderr_text();
    assert!(said.contains("does not reach the stop"), "{said}");
}

/// As if both were on one host, whose clock was set right in between.
#[test]
fn a_time_that_came_twice_because_the_clock_went_back_is_refused() {
    let Some(env) = clock("+2h") else { return };
    let archive = Archive::new(Store::folder());
    let _ = archive.catch_up();
    let _ = archive.back_up("one");
    archive.write(1);
    let _ = archive.catch_up();
    let before = Timestamp::now();
    let state = format!("--state-dir={}", archive.path("state"));
    let mut ahead = receive_with(&archive, &[&state], &env);
    archive.server.sql("SET timestamp = UNIX_TIMESTAMP() + 7200; INSERT INTO d.t (v) VALUES (7)");
    let of_ahead = last(&archive);
    archive.wait(&mut ahead);
    let _ = stop(ahead);
    archive.write(1);
    let of_right = last(&archive);
    let _ = archive.catch_up();
    let said = restore(&archive, &Timestamp::now().to_string(), &[]).expect(1).stderr_text();
    let shown = format!("between {of_ahead} of ");
    assert!(said.contains(&shown) && said.contains(&format!("up to {of_right}")), "{said}");
    assert!(said.contains("the GTID of the last one that you want"), "{said}");
    assert_is_latest(&archive, &of_right);
    let shown = restore(&archive, &before.to_string(), &[]).expect(0).stdout_text();
    assert!(!shown.contains(&of_right), "{shown}");
    let list = archive.list();
    assert!(list.contains("note: the clock of the server and its receiver went back"), "{list}");
}

/// Its server's is ahead of its own.
#[test]
fn a_receiver_whose_clock_is_behind_makes_no_stop_by_time_another_one() {
    let Some(env) = clock("-8s") else { return };
    let archive = Archive::new(Store::folder());
    let metrics = format!("--binlog-metrics-file={}", archive.path("binlog.prom"));
    let mut receiver = receive_with(&archive, &[&metrics], &env);
    archive.wait(&mut receiver);
    let _ = archive.back_up("one");
    archive.write(1);
    let stop_at = Timestamp::now() + SignedDuration::from_secs(1);
    receiver.until("the archive is complete beyond the stop, by both clocks", || {
        let until = archive.metric("stored_until_timestamp_seconds");
        until.is_some_and(|until| until.parse::<i64>().unwrap() > stop_at.as_second())
    });
    archive.server.sql("SET timestamp = UNIX_TIMESTAMP() + 60; DROP TABLE d.t");
    archive.wait(&mut receiver);
    let said = stop(receiver);
    assert!(said.contains("clock"), "{said}");
    let said = restore(&archive, &stop_at.to_string(), &[]).expect_failure().stderr_text();
    assert!(said.contains("is not known whether transaction 0-3-"), "{said}");
}

/// Passes connections on to a server. Once it is armed, it damages the first packet to a client that has these bytes.
struct DamagingProxy {
    port: u16,
    is_armed: Arc<AtomicBool>,
}

impl DamagingProxy {
    fn start(server: u16, needle: &'static [u8]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let is_armed = Arc::new(AtomicBool::new(false));
        let armed = Arc::clone(&is_armed);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                let ways = [(&client, &server), (&server, &client)];
                for (number, (from, to)) in ways.into_iter().enumerate() {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let armed = Arc::clone(&armed);
                    let needle = if number == 1 { needle } else { &[] };
                    std::thread::spawn(move || pass(from, to, needle, &armed));
                }
            }
        });
        Self { port, is_armed }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, needle: &[u8], armed: &AtomicBool) {
    let mut piece = vec![0; 1 << 16];
    while let Ok(len @ 1..) = from.read(&mut piece) {
        let bytes = &mut piece[..len];
        let place = bytes.windows(needle.len().max(1)).position(|at| at == needle);
        if let Some(at) = place
            && armed.swap(false, Ordering::SeqCst)
        {
            bytes[at..at + 4].fill(b'?');
        }
        if to.write_all(bytes).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

#[test]
fn a_damaged_packet_at_a_reconnect_is_no_branch() {
    let port = free_port();
    let options = ["--skip-networking=0", "--bind-address=127.0.0.1", &format!("--port={port}")];
    let archive = Archive::with_options(Store::folder(), &options);
    archive.server.sql("CREATE TABLE d.n (v VARCHAR(40))");
    archive
        .server
        .sql("CREATE USER r@localhost IDENTIFIED BY 'x', r@'127.0.0.1' IDENTIFIED BY 'x'");
    archive.server.sql("GRANT ALL ON *.* TO r@localhost, r@'127.0.0.1'");
    let proxy = DamagingProxy::start(port, b"the last stored transaction");
    let login = format!("[client]\nuser=r\npassword=x\nhost=127.0.0.1\nport={}\n", proxy.port);
    std::fs::write(archive.path("login"), login).unwrap();
    let mut receiver = archive.receive(&[]);
    archive.server.sql("INSERT INTO d.n VALUES ('the last stored transaction')");
    archive.wait(&mut receiver);
    let _ = stop(receiver);
    proxy.is_armed.store(true, Ordering::SeqCst);
    let mut receiver = archive.receive(&[]);
    receiver.until("the packet is damaged", || !proxy.is_armed.load(Ordering::SeqCst));
    archive.write(2);
    archive.wait(&mut receiver);
    let said = stop(receiver);
    assert!(said.contains("checksum") && !said.contains("BRANCHES"), "{said}");
    let report = json(&archive.verify().expect(0));
    let streams = report["servers"][0]["streams"].as_array().unwrap().iter();
    let begins: Vec<&str> = streams.filter_map(|stream| stream["begins"].as_str()).collect();
    assert_eq!(begins, ["first", "continues"]);
}

/// Its next stream begins with a log that has no transaction, and so has the one after that.
#[test]
fn an_idle_server_that_purges_its_log_makes_the_latest_no_older_state() {
    let archive = Archive::new(Store::folder());
    archive.write(1);
    archive.catch_up();
    let _ = archive.back_up("one");
    archive.write(5);
    let gtid = last(&archive);
    for log in ["bin.000002", "bin.000003"] {
        archive.server.sql("FLUSH BINARY LOGS");
        archive.catch_up();
        archive.purge_to(log);
        archive.catch_up();
        assert_is_latest(&archive, &gtid);
    }
    archive.write(1);
    archive.catch_up();
    assert_is_latest(&archive, &last(&archive));
}
