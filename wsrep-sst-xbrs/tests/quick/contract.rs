//! The server's contract, with both sides on this machine and without a server.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use crate::harness::{PROGRAM, STATE, Scene};
use rustix::process::Signal;
use serde_json::{Value, json};
use xb_report::Document;
use xb_testkit::daemon::{children, kill_9, process_name};

/// Asserts the content of the joiner's directory after a transfer, apart from the old data.
fn assert_new(scene: &Scene) {
    let data = scene.data("joiner");
    let read = |name: &str| std::fs::read(data.join(name)).unwrap();
    assert_eq!(read("ibdata1"), [7; 70_000]);
    assert_eq!(read("mysql/user.frm"), b"new");
    assert_eq!(read("shop/orders.ibd"), [9; 300_000]);
    assert_eq!(read("galera.cache"), b"kept");
    assert!(data.join("prepared.txt").exists(), "it was prepared before it was moved");
    for gone in [
        "sst_in_progress",
        "xtrabackup_checkpoints",
        "#sql-xb/journal",
        "#sql-xb/.new",
        "binlog.000003",
    ] {
        assert!(!data.join(gone).exists(), "{gone}");
    }
}

#[test]
fn a_transfer_says_what_the_server_expects_and_nothing_else() {
    let scene = Scene::new();
    let (joiner, donor) = scene.transfer();
    assert_eq!(joiner.lines, [format!("{STATE} 7")], "{}", joiner.log);
    assert_eq!(donor.lines, [format!("done {STATE}")], "{}", donor.log);
    assert!(joiner.status.success() && donor.status.success());
    assert_new(&scene);
    let old = scene.data("joiner").join("#sql-xb/.old");
    assert_eq!(std::fs::read(old.join("mysql/user.frm")).unwrap(), b"old");
    for log in [&joiner.log, &donor.log] {
        assert!(log.lines().all(|line| line.starts_with("WSREP_SST: [")), "{log}");
        assert!(!log.contains("passw0rd"), "{log}");
    }
    // The password is in the environment, and the server's own variables are not passed on.
    let read = |name: &str| std::fs::read_to_string(scene.bin().join(name)).unwrap();
    assert_eq!(read("backup.env"), "passw0rd \n");
    let args = read("backup.args");
    assert!(
        args.contains("--galera-info") && args.contains("--user=sst") && !args.contains("passw0rd")
    );
    // There is no redo log: the least memory.
    let prepare = read("prepare.args");
    assert!(prepare.contains("--target-dir="), "{prepare}");
    assert!(prepare.split_whitespace().any(|word| word == "--use-memory=134217728"), "{prepare}");
}

#[test]
fn progress_is_told_to_a_server_that_asks_for_it() {
    let scene = Scene::new();
    scene.options("keep-old=no\ncompress=lz4");
    let mut joiner = scene.joiner_with(&["--progress", "1"], &[]).start();
    let ready = joiner.ready();
    let donor =
        scene.donor_with(&ready, &["--progress", "1", "--gtid-domain-id", "3"]).start().wait();
    let joiner = joiner.wait();
    assert_eq!(donor.lines.last().unwrap(), &format!("done {STATE} 3"));
    for lines in [&joiner.lines, &donor.lines] {
        assert!(lines[0].starts_with("total "), "{lines:?}");
        let complete: u64 = lines
            .iter()
            .filter_map(|line| line.strip_prefix("complete ")?.parse::<u64>().ok())
            .sum();
        assert!(complete > 370_000, "{lines:?}");
    }
    assert_new(&scene);
    assert!(!scene.data("joiner").join("#sql-xb").exists(), "keep-old=no");
}

#[test]
fn write_sets_instead_of_a_snapshot_leave_the_data_alone() {
    let scene = Scene::new();
    let mut joiner = scene.joiner().start();
    let ready = joiner.ready();
    let donor = scene.donor_with(&ready, &["--bypass"]).start().wait();
    let joiner = joiner.wait();
    assert_eq!(donor.lines, ["continue".to_owned(), format!("done {STATE}")]);
    assert_eq!(joiner.lines, [STATE]);
    assert!(donor.status.success() && joiner.status.success());
    scene.assert_untouched();
}

#[test]
fn a_backup_that_fails_at_its_very_end_is_none() {
    for (flag, last, expected) in [
        ("fail", &["xtrabackup_info"][..], "the server went away"),
        ("none", &[], "ends without the file"),
    ] {
        let scene = Scene::new();
        scene.stream(last);
        std::fs::write(scene.bin().join(flag), "").unwrap();
        let (joiner, donor) = scene.transfer();
        assert!(!donor.status.success() && donor.lines.is_empty(), "{donor:?}");
        assert!(!joiner.status.success() && joiner.lines.is_empty(), "{joiner:?}");
        assert!(donor.log.contains(expected), "{}", donor.log);
        assert!(joiner.log.contains(expected), "the joiner is told why: {}", joiner.log);
        scene.assert_untouched();
    }
}

#[test]
fn unusable_data_is_refused_before_it_is_confirmed() {
    let scene = Scene::new();
    let mut out = xb_testkit::stream::StreamWriter::new(Vec::new());
    out.payload("ibdata1", 0, b"x")
        .end("ibdata1")
        .payload("xtrabackup_info", 0, b"x")
        .end("xtrabackup_info");
    std::fs::write(scene.bin().join("stream"), out.finish()).unwrap();
    let (joiner, donor) = scene.transfer();
    assert!(donor.lines.is_empty() && !donor.status.success());
    for log in [&joiner.log, &donor.log] {
        assert!(log.contains("checkpoints"), "{log}");
    }
    scene.assert_untouched();
}

const REPORT_PAGE: &str = include_str!("../../../docs/reference/json/report.md");

/// The names of all fields of a document.
fn field_names(value: &Value) -> BTreeSet<String> {
    match value {
        Value::Array(all) => all.iter().flat_map(field_names).collect(),
        Value::Object(fields) => {
            let inner = fields.values().flat_map(field_names);
            fields.keys().cloned().chain(inner).collect()
        }
        _ => BTreeSet::new(),
    }
}

#[test]
fn each_side_reports_what_it_did() {
    let scene = Scene::new();
    scene.options(&format!("report-dir={}\ncompress=zstd:1", scene.scratch.path().display()));
    let report = |role: &str| -> Value {
        let path = scene.scratch.join(format!("xbrs-{role}.json"));
        let mode = path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "names of tables are not for everyone");
        let text = std::fs::read(path).unwrap();
        Document::parse(&text).expect("`xbcloud-rs report` can draw it");
        serde_json::from_slice(&text).unwrap()
    };
    let (joiner, donor) = scene.transfer();
    assert!(joiner.status.success() && donor.status.success(), "{}{}", joiner.log, donor.log);
    let (sent, received) = (report("donor"), report("joiner"));
    let place = sent["place"].as_str().unwrap();
    assert!(place.starts_with("from this node to 127.0.0.1:"), "{sent}");
    assert_eq!(
        (&sent["format"], &sent["exit"], &sent["error"]),
        (&json!(1), &json!(0), &json!(null))
    );
    let compress = json!({"name": "compress", "value": "zstd:1"});
    assert!(sent["settings"].as_array().unwrap().contains(&compress), "{sent}");
    let section = &sent["sections"][0];
    assert_eq!(section["direction"], "send");
    assert_eq!(section["stages"], json!(["back up", "compress", "seal", "send"]));
    assert_eq!(section["phases"][0]["name"], "sending");
    assert_eq!(section["counted"]["requests"], json!(null), "there is no store: {sent}");
    let tables = section["tables"]["largest"].as_array().unwrap();
    let orders = tables.iter().find(|table| table["table"] == "shop.orders").unwrap();
    assert!(orders["raw"].as_u64() > orders["stored"].as_u64(), "{orders}");
    let steps: Vec<&Value> =
        received["stages"].as_array().unwrap().iter().map(|stage| &stage["name"]).collect();
    for step in ["receiving", "preparing", "swapping"] {
        assert!(steps.iter().any(|name| *name == step), "{step}: {received}");
    }
    for name in field_names(&sent).union(&field_names(&received)) {
        assert!(
            REPORT_PAGE.contains(&format!("`{name}`")),
            "docs/reference/json/report.md: {name}"
        );
    }
    // A failure is reported, too, and takes the place of the last report.
    std::fs::write(scene.bin().join("fail"), "").unwrap();
    let _ = scene.transfer();
    for report in [report("donor"), report("joiner")] {
        let message = report["error"]["message"].as_str().unwrap();
        assert!(report["exit"] != 0 && message.contains("the server went away"), "{report}");
    }
    // For lack of a report no transfer fails.
    std::fs::remove_file(scene.bin().join("fail")).unwrap();
    scene.options("report-dir=/proc/nowhere");
    let (joiner, donor) = scene.transfer();
    assert!(joiner.status.success() && donor.status.success(), "{}{}", joiner.log, donor.log);
    assert!(joiner.log.contains("no report will be written"), "{}", joiner.log);
}

#[test]
fn a_donor_with_a_later_server_is_refused_before_anything_is_sent() {
    let scene = Scene::new();
    let mut joiner = scene.joiner().start();
    let ready = joiner.ready();
    scene.version("11.4.2-MariaDB");
    let donor = scene.donor(&ready).start().wait();
    assert!(!donor.status.success() && donor.lines.is_empty(), "{donor:?}");
    assert!(!scene.bin().join("backup.args").exists(), "no backup was begun");
    let joiner = joiner.wait();
    assert_eq!(joiner.status.code(), Some(93), "{}", joiner.log);
    for log in [&joiner.log, &donor.log] {
        assert!(log.contains("11.4.2-MariaDB, but this node only 10.11.19-MariaDB"), "{log}");
    }
    scene.assert_untouched();

    // A node without the backup program reports that immediately.
    std::fs::remove_file(scene.bin().join("backup")).unwrap();
    let joiner = scene.joiner().start().wait();
    assert_eq!((joiner.status.code(), joiner.lines.len()), (Some(2), 0), "{}", joiner.log);
    scene.assert_untouched();
}

#[test]
fn an_address_behind_a_translation_is_announced_all_the_same() {
    let scene = Scene::new();
    // An address reserved for documentation, which no machine has.
    let mut joiner = scene.joiner_at("192.0.2.7:0", &[], &[]).start();
    let ready = joiner.ready();
    assert!(ready.contains("@192.0.2.7:"), "{ready}");
    joiner.signal(Signal::TERM);
    let joiner = joiner.wait();
    assert!(joiner.log.contains("192.0.2.7 is not an address of this machine"), "{}", joiner.log);
    scene.assert_untouched();
}

#[test]
fn a_donor_without_the_program_or_the_secret_is_told_so() {
    let scene = Scene::new();
    let donor = scene.donor("127.0.0.1:4444/xtrabackup_sst//1").start().wait();
    assert!(donor.log.contains("another transfer method"), "{}", donor.log);
    assert!(!donor.status.success() && donor.lines.is_empty());
    // As `garbd --sst xbrs:127.0.0.1:4444` asks.
    let donor = scene.donor("127.0.0.1:4444").start().wait();
    assert!(donor.log.contains("back this node up with `xbcloud-rs backup`"), "{}", donor.log);
    assert!(!donor.status.success() && donor.lines.is_empty());

    let mut joiner = scene.joiner().start();
    let ready = joiner.ready();
    let (_, address) = ready.split_once('@').unwrap();
    let wrong = format!("xbrs:{}@{address}", "0".repeat(32));
    let donor = scene.donor(&wrong).start().wait();
    assert!(!donor.status.success() && donor.lines.is_empty(), "{donor:?}");
    joiner.wait_for("refusal", || joiner.log().contains("refused a connection"));
    joiner.signal(Signal::TERM);
    let joiner = joiner.wait();
    assert!(!joiner.status.success() && joiner.lines.is_empty(), "{joiner:?}");
    scene.assert_untouched();
}

#[test]
fn signals_and_the_servers_end_leave_nothing_behind() {
    let scene = Scene::new();
    std::fs::write(scene.bin().join("hang"), "").unwrap();
    // A joiner that waits for its donor while its server ends.
    let mut server = Command::new("sleep").arg("1000").spawn().unwrap();
    let mut joiner = scene.joiner_with(&["--parent", &server.id().to_string()], &[]).start();
    let _ = joiner.ready();
    server.kill().unwrap();
    let _ = server.wait();
    let joiner = joiner.wait();
    assert_eq!((joiner.status.code(), joiner.lines.len()), (Some(3), 0), "{}", joiner.log);
    assert!(
        joiner.log.contains("the server that started this program has ended"),
        "{}",
        joiner.log
    );
    scene.assert_untouched();

    // Both sides in the middle of a transfer; the donor is signalled to end.
    let mut joiner = scene.joiner().start();
    let ready = joiner.ready();
    let donor = scene.donor(&ready).start();
    donor.wait_for("hanging backup", || scene.bin().join("hangs").exists());
    let backup = children(donor.child.id());
    assert_eq!(backup.len(), 1);
    donor.signal(Signal::TERM);
    let donor = donor.wait();
    assert_eq!((donor.status.code(), donor.lines.len()), (Some(3), 0), "{}", donor.log);
    assert!(donor.log.contains("signal 15"), "{}", donor.log);
    assert_eq!(process_name(backup[0]), None, "the backup has ended");
    let joiner = joiner.wait();
    assert!(!joiner.status.success() && joiner.lines.is_empty(), "{joiner:?}");
    let told = "the donor gave up: interrupted by signal 15";
    assert!(joiner.log.contains(told), "{}", joiner.log);
    scene.assert_untouched();
}

#[test]
fn a_backup_from_which_nothing_comes_any_more_is_given_up() {
    let scene = Scene::new();
    scene.options("sst-idle-timeout=1");
    std::fs::write(scene.bin().join("hang"), "").unwrap();
    let (joiner, donor) = scene.transfer();
    for side in [&joiner, &donor] {
        assert!(!side.status.success() && side.lines.is_empty(), "{side:?}");
    }
    // The side that notices first tells the other.
    for log in [&joiner.log, &donor.log] {
        assert!(log.contains("no data for 1 s (sst-idle-timeout)"), "{log}");
    }
    scene.assert_untouched();
}

#[test]
fn a_killed_donor_takes_its_backup_along() {
    let scene = Scene::new();
    std::fs::write(scene.bin().join("hang"), "").unwrap();
    let mut joiner = scene.joiner().start();
    let ready = joiner.ready();
    let mut donor = scene.donor(&ready).start();
    donor.wait_for("hanging backup", || scene.bin().join("hangs").exists());
    let backup = children(donor.child.id());
    donor.child.kill().unwrap();
    donor.wait_for("end of the backup", || process_name(backup[0]).is_none());
    // The joiner's server would end now.
    joiner.signal(Signal::TERM);
    let joiner = joiner.wait();
    assert!(!joiner.status.success() && joiner.lines.is_empty(), "{joiner:?}");
    scene.assert_untouched();
}

#[test]
fn a_gcache_that_is_too_short_for_the_transfer_is_warned_of() {
    let scene = Scene::new();
    scene.large_stream();
    scene.backup("hang");
    scene.options("progress-interval=1");
    // Much more than the backup sends, so that the estimated time is long.
    let much = std::fs::File::create(scene.data("donor").join("much.ibd")).unwrap();
    much.set_len(1 << 30).unwrap();
    // A server that drops write sets as fast as it writes them.
    let asked = std::sync::atomic::AtomicU64::new(1);
    let answer = move |_: &str| {
        let last = asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst) * 1_000_000;
        let row = |name: &str, value: u64| vec![name.to_owned(), value.to_string()];
        Ok(vec![row("wsrep_last_committed", last), row("wsrep_local_cached_downto", last - 1)])
    };
    let socket = scene.bin().join("socket");
    let _server = xb_testkit::scripted::Scripted::start(&socket, "10.11.6-MariaDB", answer);
    let mut joiner = scene.joiner().start();
    let ready = joiner.ready();
    let donor = scene.donor_with(&ready, &["--socket", socket.to_str().unwrap()]);
    let donor = donor.start();
    donor.wait_for("warning", || donor.log().contains("gcache covers 0 s"));
    donor.signal(Signal::TERM);
    assert!(!donor.wait().status.success() && !joiner.wait().status.success());
}

fn signal(pid: u32, signal: Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

#[test]
fn programs_started_by_a_backup_end_with_it() {
    // Whichever process is killed: this program, the backup, or the guardian between them.
    for killed in ["program", "parent", "guardian", "crash", "pipe"] {
        let scene = Scene::new();
        scene.backup("product");
        let mut joiner = scene.joiner().start();
        let ready = joiner.ready();
        let mut donor = scene.donor(&ready).start();
        donor.wait_for("hanging backup", || scene.bin().join("hangs").exists());
        let pid = |name: &str| -> u32 {
            std::fs::read_to_string(scene.bin().join(name)).unwrap().trim().parse().unwrap()
        };
        // The second backup, of those that are run once more, fails.
        std::fs::remove_file(scene.bin().join("product")).unwrap();
        scene.backup("fail");
        match killed {
            "program" => donor.child.kill().unwrap(),
            "parent" => kill_9(pid("parent")),
            "crash" => signal(pid("parent"), Signal::SEGV),
            "pipe" => signal(pid("parent"), Signal::PIPE),
            _ => kill_9(children(donor.child.id())[0]),
        }
        for name in ["parent", "child"] {
            donor.wait_for("end of all", || process_name(pid(name)).is_none());
        }
        if killed != "program" {
            let donor = donor.wait();
            let signal = match killed {
                "crash" => 11,
                "pipe" => 13,
                _ => 9,
            };
            let said = format!("backup was killed by signal {signal}");
            assert!(donor.log.contains(&said), "{killed}: {}", donor.log);
        }
        joiner.signal(Signal::TERM);
        assert!(!joiner.wait().status.success());
        scene.assert_untouched();
    }
}

#[test]
fn descriptors_that_leak_are_closed_and_one_joiner_works_at_a_time() {
    let scene = Scene::new();
    // As a server leaks them, with numbers of one and of two digits.
    let leak = scene.scratch.join("leaked");
    let script = format!("exec 7>{0} 23>{0}; exec \"$@\"", leak.display());
    let mut first = scene.joiner().through(&["bash", "-c", &script, "sh"]).start();
    let _ = first.ready();
    let open = std::fs::read_dir(format!("/proc/{}/fd", first.child.id())).unwrap();
    let leaked =
        open.flatten().filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to == leak));
    assert_eq!(leaked.count(), 0);
    let group = |pid: u32| {
        let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap());
        rustix::process::getpgid(pid).unwrap()
    };
    assert_ne!(group(first.child.id()), group(std::process::id()));

    // The next joiner waits, and continues when this one has ended.
    let mut second = scene.joiner_as("second").start();
    second.wait_for("its start", || second.log().contains("xbrs SST started"));
    first.signal(Signal::TERM);
    assert_eq!(first.wait().status.code(), Some(3));
    let _ = second.ready();
    second.signal(Signal::TERM);
    assert_eq!(second.wait().status.code(), Some(3));
    scene.assert_untouched();
}

#[test]
fn folders_elsewhere_get_their_files() {
    let scene = Scene::new();
    let redo = scene.scratch.dir("redo");
    std::fs::write(redo.join("ib_logfile0"), "old redo").unwrap();
    std::fs::write(redo.join("foreign"), "stays").unwrap();
    std::fs::create_dir_all(scene.scratch.join("fast/shop")).unwrap();
    let remote = scene.scratch.join("fast/shop/remote.ibd");
    std::fs::write(&remote, "old remote").unwrap();
    std::fs::create_dir(scene.data("joiner").join("shop")).unwrap();
    let link = scene.data("joiner").join("shop/remote.isl");
    std::fs::write(link, remote.display().to_string()).unwrap();
    let binlogs = scene.scratch.dir("binlogs");
    std::fs::write(binlogs.join("binlog.000001"), "old binlog").unwrap();
    let words = [
        format!("--innodb-log-group-home-dir={}", redo.display()),
        "--innodb_undo_directory=undo".to_owned(),
        format!("--log-bin={}/binlog", binlogs.display()),
    ];
    let mut joiner = scene.joiner_with(&[], &words.each_ref().map(String::as_str)).start();
    let ready = joiner.ready();
    let donor = scene.donor(&ready).start().wait();
    assert!(donor.status.success(), "{}", donor.log);
    let joiner = joiner.wait();
    assert_eq!(joiner.lines, [format!("{STATE} 7")], "{}", joiner.log);
    assert_new(&scene);
    let data = scene.data("joiner");
    let read = |path: std::path::PathBuf| String::from_utf8(std::fs::read(path).unwrap()).unwrap();
    assert_eq!(read(redo.join("ib_logfile0")), "new redo");
    assert_eq!(read(redo.join("#sql-xb/.old/ib_logfile0")), "old redo");
    assert_eq!(read(redo.join("foreign")), "stays");
    assert_eq!(read(data.join("undo/undo001")), "new undo");
    let fast = scene.scratch.join("fast/shop");
    assert_eq!(read(fast.join("remote.ibd")), "new remote");
    assert_eq!(read(fast.join("#sql-xb/.old/remote.ibd")), "old remote");
    assert!(!data.join("shop/remote.ibd").exists() && data.join("shop/remote.isl").exists());
    assert!(!data.join("ib_logfile0").exists() && !data.join("undo001").exists());
    assert!(!data.join("binlog.000003").exists(), "the donor's binary log is not ours");
    assert!(!binlogs.join("binlog.000001").exists(), "ours is of another history");
    assert_eq!(read(binlogs.join("#sql-xb/.old/binlog.000001")), "old binlog");

    let clean = || Command::new(PROGRAM).arg("clean-old").arg(&data).output().unwrap();
    let refused = clean();
    assert_eq!(refused.status.code(), Some(22));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("no server has started"), "{said}");
    std::fs::write(redo.join("ib_logfile0"), "written by a server").unwrap();
    crate::harness::start_on(&data);
    assert!(clean().status.success());
    for folder in [&data, &redo, &binlogs, &fast] {
        assert!(!folder.join("#sql-xb").exists(), "{}", folder.display());
    }
}

#[test]
fn an_exchange_that_was_interrupted_is_finished_by_the_next_start() {
    for by_hand in [true, false] {
        let scene = Scene::new();
        let data = scene.data("joiner");
        xb_sst::swap::make_folders(&data).unwrap();
        let new = data.join("#sql-xb/.new");
        std::fs::create_dir(new.join("mysql")).unwrap();
        std::fs::write(new.join("mysql/user.frm"), "received").unwrap();
        std::fs::write(new.join("ibdata1"), "received").unwrap();
        let journal =
            xb_sst::swap::plan(vec![data.clone()], |_, name, _| name != "galera.cache").unwrap();
        xb_sst::swap::begin(&data, &journal).unwrap();
        let mut steps = 0;
        let crash = || {
            steps += 1;
            if steps > 3 { Err(std::io::Error::other("crash")) } else { Ok(()) }
        };
        assert!(xb_sst::swap::finish(&data, &journal, crash).is_err());
        assert!(!data.join("mysql").exists());

        let log = if by_hand {
            let ran = Command::new(PROGRAM).arg("recover").arg(&data).output().unwrap();
            assert!(ran.status.success());
            String::from_utf8(ran.stderr).unwrap()
        } else {
            let mut joiner = scene.joiner().start();
            let _ = joiner.ready();
            joiner.signal(Signal::TERM);
            joiner.wait().log
        };
        assert!(log.contains("was interrupted"), "{log}");
        assert_eq!(std::fs::read(data.join("mysql/user.frm")).unwrap(), b"received");
        assert_eq!(std::fs::read(data.join("#sql-xb/.old/ibdata1")).unwrap(), b"old");
        assert!(!data.join("#sql-xb/journal").exists() && !data.join("#sql-xb/.new").exists());
    }
}
