//! A private server on the data of real ones. This test program guards no children, so that nothing here
//! is confined: `xbcloud-rs/tests/live_chains/verify.rs` tests that.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

use std::path::{Path, PathBuf};

use xb_mysql::Client;
use xb_server::{BinlogPosition, Login, Server, ServerError, Setup};
use xb_testkit::command::Cmd;
use xb_testkit::daemon::Scratch;
use xb_testkit::mariadb::MariaDb;
use xb_testkit::tools::find;

fn setup(data: &Path, scratch: &Scratch) -> Setup {
    std::fs::create_dir_all(scratch.join("server")).unwrap();
    Setup {
        time_zone: None,
        programs: vec![PathBuf::from("/no/such/program"), find("mariadbd")],
        data: data.to_owned(),
        scratch: scratch.join("server"),
        login: Login::WithoutAccounts,
        options: Vec::new(),
        writable: Vec::new(),
    }
}

/// Waits until the server is ready.
fn ready(server: &mut Server) -> Client {
    let mut client = None;
    xb_testkit::until("the server is ready", || {
        client = server.poll().unwrap();
        client.is_some()
    });
    client.unwrap()
}

fn one(client: &mut Client, expression: &str) -> String {
    let rows = client.rows(format!("SELECT CONCAT('', {expression})")).unwrap();
    let [value] = rows[0].texts().unwrap();
    value
}

#[test]
fn a_hostile_option_file_in_the_data_changes_nothing() {
    let (data, scratch) = (MariaDb::start().shut_down(), Scratch::new());
    let data = data.join("data");
    let (outside, hostile) = (scratch.dir("outside"), scratch.join("hostile.sql"));
    std::fs::write(&hostile, "CREATE DATABASE hostile").unwrap();
    let text = format!(
        "[mysqld]\ninit_file={hostile}\nplugin_load_add=ha_archive\ninnodb_undo_directory={outside}\n\
         general_log=1\ngeneral_log_file={outside}/log\nskip_networking=0\nport=7\n\
         innodb_data_file_path=../x:12M\n",
        hostile = hostile.display(),
        outside = outside.display(),
    );
    std::fs::write(data.join("backup-my.cnf"), text).unwrap();
    let mut server = Server::start(setup(&data, &scratch)).unwrap();
    assert!(server.unconfined().is_some());
    let mut client = ready(&mut server);
    assert_eq!(
        one(
            &mut client,
            "(SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = 'hostile')"
        ),
        "0"
    );
    assert_eq!(
        one(
            &mut client,
            "(SELECT COUNT(*) FROM information_schema.plugins WHERE plugin_name = 'ARCHIVE')"
        ),
        "0"
    );
    assert_eq!(one(&mut client, "@@skip_networking"), "ON");
    server.stop(|| false).unwrap();
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
}

#[test]
fn only_a_server_that_says_so_has_stopped_cleanly() {
    let (data, scratch) = (MariaDb::start().shut_down(), Scratch::new());
    let start = || {
        let mut server = Server::start(setup(&data.join("data"), &scratch)).unwrap();
        let mut client = ready(&mut server);
        let _ = one(&mut client, "@@pid_file");
        let pid = std::fs::read_to_string(scratch.join("server/pid")).unwrap();
        let pid: i32 = pid.trim().parse().unwrap();
        (server, rustix::process::Pid::from_raw(pid).unwrap())
    };
    start().0.stop(|| false).unwrap();
    let (server, pid) = start();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let error = server.stop(|| false).unwrap_err();
    assert!(
        matches!(&error, ServerError::Ended { how, .. } if how.contains("signal 9")),
        "{error}"
    );
    // The stop is given up at once, and the server is gone.
    let (server, pid) = start();
    assert!(server.stop(|| true).is_err());
    assert!(rustix::process::test_kill_process(pid).is_err());
    let (server, pid) = start();
    drop(server);
    assert!(rustix::process::test_kill_process(pid).is_err());
}

#[test]
fn the_position_after_recovery_is_that_of_the_last_transaction() {
    let (files, scratch) = (MariaDb::start().shut_down(), Scratch::new());
    let data = files.join("data");
    let options = ["--log-bin=b", "--innodb-flush-log-at-trx-commit=1", "--sync-binlog=1"];
    let origin = MariaDb::start_on_with(&data, &options);
    origin.sql("CREATE DATABASE x; CREATE TABLE x.t (i INT) ENGINE=InnoDB; INSERT INTO x.t VALUES (1), (2)");
    let status = origin.sql("SHOW MASTER STATUS");
    let mut status = status.split('\t');
    let (file, offset) = (status.next().unwrap(), status.next().unwrap().parse().unwrap());
    // It makes the commit before it durable, and has no position itself. Then the server is killed.
    origin.sql("SET sql_log_bin = 0; CREATE TABLE x.u (i INT) ENGINE=InnoDB");
    drop(origin);
    let mut server = Server::start(setup(&data, &scratch)).unwrap();
    let mut client = ready(&mut server);
    assert_eq!(one(&mut client, "(SELECT COUNT(*) FROM x.t)"), "2");
    let expected = BinlogPosition { file: format!("./{file}"), offset };
    assert_eq!(server.recovered(), Some(expected), "{}", server.last_lines());
    server.stop(|| false).unwrap();
}

#[test]
fn an_account_of_our_own_can_change_accounts_and_leaves_none() {
    let (files, scratch) = (MariaDb::start().shut_down(), Scratch::new());
    let data = files.join("data");
    let accounts = |server: &MariaDb| server.sql("SELECT * FROM mysql.global_priv ORDER BY 1, 2");
    let before = accounts(&MariaDb::start_on(&data));
    let own = Setup { login: Login::OwnAccount, ..setup(&data, &scratch) };
    let mut server = Server::start(own).unwrap();
    let mut client = ready(&mut server);
    client.run("CREATE USER u IDENTIFIED BY 'x'; ").unwrap();
    assert_eq!(one(&mut client, "(SELECT COUNT(*) FROM mysql.user WHERE user = 'u')"), "1");
    client.run("DROP USER u").unwrap();
    assert!(accounts_of(&mut client) > before.lines().count());
    server.drop_account(&mut client).unwrap();
    assert_eq!(accounts_of(&mut client), before.lines().count());
    server.stop(|| false).unwrap();
    assert_eq!(accounts(&MariaDb::start_on(&data)), before);
}

fn accounts_of(client: &mut Client) -> usize {
    one(client, "(SELECT COUNT(*) FROM mysql.global_priv)").parse().unwrap()
}

#[test]
fn a_server_that_cannot_start_says_why() {
    let scratch = Scratch::new();
    let data = scratch.dir("data");
    std::fs::write(data.join("ibdata1"), "damaged").unwrap();
    let mut server = Server::start(setup(&data, &scratch)).unwrap();
    let mut error = None;
    xb_testkit::until("the server fails", || {
        match server.poll() {
            Ok(found) => assert!(found.is_none()),
            Err(found) => error = Some(found.to_string()),
        }
        error.is_some()
    });
    let error = error.unwrap();
    assert!(error.contains("exit status 1") && error.contains("[ERROR]"), "{error}");
    let none =
        Setup { programs: vec!["/no/such/program".into()], ..setup(scratch.path(), &scratch) };
    assert!(matches!(Server::start(none), Err(ServerError::Start { .. })));
    let deep =
        Setup { scratch: scratch.path().join("x".repeat(120)), ..setup(scratch.path(), &scratch) };
    assert!(matches!(Server::start(deep), Err(ServerError::TooDeep(_))));
}

/// A thread in the background of MariaDB 10.11 crashes if it is so late with its work that all is closed. The stack that it writes
/// has the last word of the log.
#[test]
fn a_crash_behind_the_last_word_of_a_shutdown_takes_no_proof_away() {
    let scratch = Scratch::new();
    let (text, program, begun) =
        (scratch.join("text"), scratch.join("program"), scratch.join("begun"));
    for (last, is_whole) in [
        ("/usr/sbin/mariadbd: Shutdown complete", true),
        ("InnoDB: Shutdown completed; log sequence number 7", false),
    ] {
        let script = format!(
            "#!/bin/sh\ntrap 'echo 0 [Note] \"{last}\"; printf \"got signal 11 ;\\nframe\\nframe\\nframe\\n\"; kill -SEGV $$' TERM\n\
             touch {}\nwhile :; do sleep 0.05; done\n",
            begun.display()
        );
        std::fs::write(&text, script).unwrap();
        // By another process: none that is forked meanwhile can have it open.
        let install = Cmd::new("install").args(["-m", "755"]).arg(&text).arg(&program);
        let _ = install.run().expect(0);
        let mut setup = setup(&scratch.join("data"), &scratch);
        setup.programs = vec![program.clone()];
        let server = Server::start(setup).unwrap();
        xb_testkit::until("it listens to signals", || begun.exists());
        std::fs::remove_file(&begun).unwrap();
        let stopped = server.stop(|| false);
        assert_eq!(stopped.is_ok(), is_whole, "{last}: {stopped:?}");
    }
}
