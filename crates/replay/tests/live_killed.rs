//! A replay whose process is killed. This test starts itself as the program that is killed, and as the
//! guardian, so its servers are confined.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

mod origin;

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use origin::{Backup, Origin, replay};
use rustix::process::{Pid, test_kill_process};
use xb_binlog::{LogPosition, ReplayStop};
use xb_process::{can_confine, serve_as_guardian};
use xb_replay::{Progress, ReplayError, ReplayRequest};
use xb_testkit::daemon::{Scratch, kill_9};
use xb_testkit::mariadb::MariaDb;

/// First argument that makes this test the program to be killed; the data directory, that of the logs, the
/// position in them, and the GTIDs there follow.
const VICTIM: &str = "--victim";

fn main() -> ExitCode {
    if let Some(status) = serve_as_guardian() {
        return status;
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [first, data, logs, log, offset, gtids] = &args[..]
        && first == VICTIM
    {
        let position = LogPosition::new(log, offset.parse().unwrap()).unwrap();
        let request =
            origin::request(data.as_ref(), position, gtids.parse().unwrap(), ReplayStop::End);
        return victim(&request, logs.as_ref());
    }
    let origin = Origin::start(&[]);
    origin.server.sql(
        "CREATE DATABASE x; CREATE TABLE x.t (id INT PRIMARY KEY AUTO_INCREMENT, v TEXT) ENGINE=InnoDB",
    );
    let backup = Backup::of(&origin);
    origin.server.sql("USE x; INSERT INTO t (v) SELECT REPEAT(seq, 20) FROM seq_1_to_1000");
    a_confined_server_writes_nothing_elsewhere(&origin, &backup);
    no_server_outlives_a_process_that_is_killed(&origin, &backup);
    a_replay_that_is_cancelled_leaves_no_server(&origin, &backup);
    println!("3 tests of replays that are confined or killed passed");
    ExitCode::SUCCESS
}

fn a_confined_server_writes_nothing_elsewhere(origin: &Origin, backup: &Backup) {
    if let Err(why) = can_confine() {
        return xb_testkit::skipped(why);
    }
    let outside = Scratch::new();
    let place = outside.path().display();
    origin.server.sql(&format!(
        "CREATE TABLE x.elsewhere (i INT) ENGINE=InnoDB DATA DIRECTORY='{place}';
         CREATE TABLE x.mine (i INT) ENGINE=MyISAM DATA DIRECTORY='{place}'; INSERT INTO x.mine VALUES (1)"
    ));
    let list = || {
        let mut names: Vec<_> =
            std::fs::read_dir(outside.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = list();
    assert!(!before.is_empty());
    let (data, request) = backup.request(ReplayStop::End);
    let report = replay(origin, &request, 4096, |_| {}).unwrap();
    assert_eq!((report.unconfined, list()), (None, before));
    let copy = MariaDb::start_on(data.path());
    assert_eq!(copy.checksums("x"), origin.server.checksums("x"));
    assert!(
        data.path().join("x/elsewhere.ibd").exists() && data.path().join("x/mine.MYD").exists()
    );
}

/// Replays logs that never end, once the server has started.
fn no_server_outlives_a_process_that_is_killed(origin: &Origin, backup: &Backup) {
    let (data, request) = backup.request(ReplayStop::End);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([VICTIM, data.path().to_str().unwrap()])
        .arg(origin.server.datadir())
        .args([backup.position.log(), &backup.position.offset().to_string()])
        .arg(backup.gtids.to_string())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid_file = data.path().join("#sql-xb-replay/pid");
    let mut pid = None;
    xb_testkit::until("its server has a process id", || {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was killed");
        let text = std::fs::read_to_string(&pid_file).unwrap_or_default();
        pid = text.trim().parse().ok().and_then(Pid::from_raw);
        pid.is_some()
    });
    let pid = pid.unwrap();
    kill_9(child.id());
    child.wait().unwrap();
    xb_testkit::until("its server has ended", || test_kill_process(pid).is_err());
    let error = replay(origin, &request, 4096, |_| {}).unwrap_err();
    assert!(matches!(error, ReplayError::Interrupted(_)), "{error}");
}

fn a_replay_that_is_cancelled_leaves_no_server(origin: &Origin, backup: &Backup) {
    let (data, request) = backup.request(ReplayStop::End);
    let starts = std::cell::Cell::new(false);
    let error = origin::replay_while(origin, &request, |progress| {
        starts.set(starts.get() || progress == Progress::Starting);
        !starts.get()
    })
    .unwrap_err();
    assert!(matches!(error, ReplayError::Abandoned) && !error.is_data_untouched(), "{error}");
    let running = std::fs::read_to_string(data.path().join("#sql-xb-replay/pid"));
    let pid = running.ok().and_then(|text| Pid::from_raw(text.trim().parse().ok()?));
    assert!(pid.is_none_or(|pid| test_kill_process(pid).is_err()));
    // Before the server starts, the data is as it was.
    let (data, request) = backup.request(ReplayStop::End);
    let error = origin::replay_while(origin, &request, |_| false).unwrap_err();
    assert!(matches!(error, ReplayError::Cancelled) && error.is_data_untouched(), "{error}");
    assert_eq!(Backup::listing_of(data.path()), backup.listing());
}

/// Replays, and waits at the end to be killed.
fn victim(request: &ReplayRequest, logs: &Path) -> ExitCode {
    let pieces = origin::pieces_in(logs, &request.position, 4096);
    let result = origin::replay_pieces(request, pieces, |progress| {
        if progress == Progress::Stopping {
            loop {
                std::thread::park();
            }
        }
        true
    });
    println!("{result:?}");
    ExitCode::FAILURE
}
