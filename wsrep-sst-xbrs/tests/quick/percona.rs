//! The contract of Percona XtraDB Cluster's server, which differs from MariaDB's, and the keys of
//! encrypted tables there. Its server and xtrabackup are played.

use rustix::process::Signal;

use crate::harness::{Ended, STATE, Scene, Side, percona, wait_for};
use xb_testkit::daemon::process_name;
use xb_testkit::stream::StreamWriter;

/// Plays xtrabackup as the harness plays mariadb-backup, but preparing may write the position or fail.
const XTRABACKUP: &str = r#"#!/bin/sh
here=${0%/*}
case " $* " in
*" --version "*) echo "xtrabackup version 8.0.35-31 based on MySQL server 8.0.35 Linux (x86_64)" >&2 ;;
*" --prepare "*)
    echo "$*" >"$here/prepare.args"
    [ ! -e "$here/fails" ] || { cat "$here/fails" >&2; exit 1; }
    for word in "$@"; do
        case $word in
        --target-dir=*)
            : >"${word#*=}/prepared.txt"
            [ ! -e "$here/galera" ] || cp "$here/galera" "${word#*=}/xtrabackup_galera_info"
            ;;
        esac
    done
    ;;
*)
    echo "$*" >"$here/backup.args"
    echo "$MYSQL_PWD $WSREP_SST_OPT_AUTH" >"$here/backup.env"
    cat "$here/stream"
    ;;
esac
"#;

/// Plays mysqld. It works only if the data is prepared and not yet swapped; then it leaves what a
/// server leaves in a data directory, and the results of its statements: before them the number of
/// replica channels, after them the numbers of unlocked accounts and of channels.
const MYSQLD: &str = r#"#!/bin/sh
here=${0%/*}
case " $* " in *" --version "*) cat "$here/mysqld.version"; exit ;; esac
printf '%s\n' "$@" >"$here/mysqld.args"
env >"$here/mysqld.env"
for word in "$@"; do
    case $word in
    --datadir=*) data=${word#*=} ;;
    --init-file=*) sql=${word#*=} ;;
    --log-error=*) log=${word#*=} ;;
    esac
done
cp "$sql" "$here/mysqld.sql"
ls -A "$data" >"$here/mysqld.data"
echo "[System] [MY-010116] starting" >>"$log"
[ -e "$data/prepared.txt" ] || exit 9
[ "$(cat "$here/../joiner/mysql/user.frm")" = old ] || exit 8
[ ! -e "$here/mysqld.fails" ] || { cat "$here/mysqld.fails" >>"$log"; exit 1; }
[ ! -e "$here/mysqld.hangs" ] || {
    sleep 1000 &
    echo $! >"$here/mysqld.child"
    trap '' TERM
    cat "$here/mysqld.hangs" >>"$log"
    : >"$here/mysqld.up"
    while :; do wait; done
}
: >"$data/upgraded.txt"
for name in auto.cnf server-key.pem; do echo private >"$data/$name"; done
mkdir "$data/#innodb_temp"
[ ! -e "$here/mysqld.state" ] || cp "$here/mysqld.state" "$data/wsrep_state.dat"
sed -n "s/.*INTO OUTFILE '\(.*\)';/\1/p" "$sql" | {
    read -r channels && echo 1 >"$channels"
    read -r result && cat "$here/mysqld.left" >"$result"
}
"#;

/// Two nodes with xtrabackup 8.0, whose stream has these files besides those of every backup.
fn scene(more: &[(&str, &[u8])]) -> Scene {
    let scene = Scene::new();
    scene.program("backup", XTRABACKUP);
    scene.program("mysqld", MYSQLD);
    put(&scene, "mysqld.version", "mysqld  Ver 8.0.36-28.1 for Linux on x86_64 (Percona)\n");
    put(&scene, "mysqld.left", "0\t0\n");
    scene.options("wire-security=any-donor");
    stream(&scene, more);
    scene
}

/// Writes a file beside the played programs.
fn put(scene: &Scene, name: &str, text: &str) {
    std::fs::write(scene.bin().join(name), text).unwrap();
}

/// Reads a file beside the played programs.
#[track_caller]
fn read(scene: &Scene, name: &str) -> String {
    std::fs::read_to_string(scene.bin().join(name)).unwrap()
}

fn stream(scene: &Scene, more: &[(&str, &[u8])]) {
    let info = b"tool_name = xtrabackup\ntool_version = 8.0.35-31\n";
    let before: [(&str, &[u8]); 9] = [
        ("backup-my.cnf", b"[mysqld]\n"),
        ("ibdata1", &[7; 70_000]),
        ("mysql.ibd", &[8; 70_000]),
        ("undo_001", &[8; 7_000]),
        ("undo_002", &[8; 7_000]),
        ("mysql/user.frm", b"new"),
        ("shop/orders.ibd", &[9; 300_000]),
        ("xtrabackup_logfile", b"redo"),
        ("xtrabackup_checkpoints", b"backup_type = full-backuped\nto_lsn = 1\n"),
    ];
    let after: [(&str, &[u8]); 2] = [("xtrabackup_info", info), ("xtrabackup_tablespaces", b"{}")];
    let mut out = StreamWriter::new(Vec::new());
    for (name, content) in before.iter().chain(more).chain(&after) {
        out.payload(name, 0, content).end(name);
    }
    std::fs::write(scene.bin().join("stream"), out.finish()).unwrap();
}

/// Version of both servers.
const VERSION: &str = "8.0.36-28.1";

/// The server is installed where the played programs are.
fn installed(scene: &Scene) -> percona::Install<'_> {
    percona::Install { base: scene.scratch.path(), plugins: "/p", version: VERSION }
}

fn joiner(scene: &Scene) -> Side {
    percona::joiner(scene, installed(scene))
}

fn donate(scene: &Scene, ready: &str) -> Ended {
    percona::donate(scene, ready, VERSION)
}

/// Runs both sides of a transfer; returns joiner and donor.
fn transfer(scene: &Scene) -> (Ended, Ended) {
    percona::transfer(scene, installed(scene))
}

#[test]
fn perconas_contract_differs() {
    let galera = format!("{STATE} 7\n");
    let scene = scene(&[("xtrabackup_galera_info", galera.as_bytes())]);
    // There nothing authenticates the donor except certificates.
    scene.options("");
    let refused = joiner(&scene).start().wait();
    assert!(!refused.status.success() && refused.lines.is_empty());
    assert!(refused.log.lines().any(|line| line.starts_with("ERR:")), "{}", refused.log);
    assert!(refused.log.contains("wire-security=any-donor"), "{}", refused.log);

    scene.options("wire-security=any-donor");
    let mut joiner = joiner(&scene).start();
    let ready = joiner.ready();
    let fits = |c: u8| c.is_ascii_alphanumeric() || b"_:/.[]-".contains(&c);
    assert!(ready.bytes().all(fits), "{ready}");
    let donor = donate(&scene, &ready);
    assert_eq!(donor.lines, [format!("done {STATE}")], "{}", donor.log);
    let levels = ["INF:", "WRN:"];
    let has_level = |line: &str| levels.iter().any(|level| line.starts_with(level));
    assert!(donor.log.lines().all(has_level), "{}", donor.log);
    let joiner = joiner.wait();
    assert!(joiner.status.success(), "{}", joiner.log);
    assert_eq!(joiner.lines, [format!("{STATE} 7")]);
    assert!(joiner.log.contains("THE DONOR IS NOT AUTHENTICATED"), "{}", joiner.log);
    assert!(scene.data("joiner").join("prepared.txt").exists());
    assert_eq!(read(&scene, "backup.env"), "passw0rd \n");
    assert!(read(&scene, "backup.args").contains("--user=mysql.pxc.sst.user"));
    assert!(read(&scene, "prepare.args").contains("--defaults-file="), "with the node's keyring");
}

/// With backup locks, xtrabackup writes the position only when it prepares.
#[test]
fn the_position_may_come_with_the_preparing() {
    let later = STATE.replace(":42", ":57");
    for (prepared, expected) in [(Some(&later), &*later), (None, STATE)] {
        let scene = scene(&[]);
        if let Some(text) = prepared {
            std::fs::write(scene.bin().join("galera"), text).unwrap();
        }
        let (joiner, donor) = transfer(&scene);
        assert_eq!(donor.lines, [format!("done {STATE}")], "{}", donor.log);
        assert_eq!(joiner.lines, [expected], "{}", joiner.log);
        assert!(joiner.status.success());
        assert!(scene.data("joiner").join("prepared.txt").exists());
    }
    // A position of another cluster is noticed then, too, and nothing is swapped.
    let scene = scene(&[]);
    std::fs::write(scene.bin().join("galera"), STATE.replace("9c9a", "0c9a")).unwrap();
    let (joiner, _) = transfer(&scene);
    assert!(!joiner.status.success() && joiner.lines.is_empty(), "{joiner:?}");
    assert!(joiner.log.contains("but the donor offered"), "{}", joiner.log);
    scene.assert_untouched();
}

#[test]
fn a_transition_key_is_refused_before_anything_is_swapped() {
    let scene = scene(&[("xtrabackup_keys", b"XBKeys")]);
    let (joiner, donor) = transfer(&scene);
    for side in [&joiner, &donor] {
        assert!(!side.status.success() && side.lines.is_empty(), "{side:?}");
        assert!(side.log.contains("transition key"), "{}", side.log);
    }
    assert!(joiner.log.contains("wsrep_sst_method=xtrabackup-v2"), "{}", joiner.log);
    assert!(!scene.bin().join("prepare.args").exists());
    scene.assert_untouched();

    // Its options are refused on each node by itself.
    for options in
        ["inno-backup-opts=--transition-key=hidden", "inno-apply-opts=--generate-new-master-key"]
    {
        scene.options(&format!("wire-security=any-donor\n{options}"));
        let refused = joiner_alone(&scene);
        assert!(
            refused.log.contains("one keyring") && !refused.log.contains("hidden"),
            "{}",
            refused.log
        );
        let donor = donate(&scene, "127.0.0.1:4444/xtrabackup_sst//1");
        assert!(!donor.status.success() && donor.lines.is_empty(), "{donor:?}");
        assert!(donor.log.contains("one keyring"), "{}", donor.log);
    }
    scene.assert_untouched();
}

fn joiner_alone(scene: &Scene) -> Ended {
    let refused = joiner(scene).start().wait();
    assert!(!refused.status.success() && refused.lines.is_empty(), "{refused:?}");
    refused
}

#[test]
fn a_keyring_that_does_not_fit_is_named_and_nothing_is_swapped() {
    let scene = scene(&[]);
    let said = "[ERROR] [MY-012657] [InnoDB] Encryption can't find master key, please check the keyring is loaded.\n";
    std::fs::write(scene.bin().join("fails"), said).unwrap();
    let (joiner, _) = transfer(&scene);
    assert!(!joiner.status.success() && joiner.lines.is_empty(), "{joiner:?}");
    assert!(
        joiner.log.contains("MY-012657") && joiner.log.contains("one keyring"),
        "{}",
        joiner.log
    );
    scene.assert_untouched();
    // Any other failure is not blamed on the keyring.
    std::fs::write(scene.bin().join("fails"), "disk full\n").unwrap();
    let (joiner, _) = transfer(&scene);
    assert!(
        joiner.log.contains("disk full") && !joiner.log.contains("one keyring"),
        "{}",
        joiner.log
    );
}

/// Files of the keyring belong to the node, not to the data.
#[test]
fn the_nodes_own_keyring_stays() {
    let scene = scene(&[]);
    let data = scene.data("joiner");
    let own = [
        "keyring",
        "component_keyring_file",
        "component_keyring_file.cnf",
        "component_keyring_vault.cnf",
        "wsrep_state.dat",
    ];
    for name in own {
        std::fs::write(data.join(name), "of this node").unwrap();
    }
    let (joiner, _) = transfer(&scene);
    assert!(joiner.status.success(), "{}", joiner.log);
    for name in own {
        assert_eq!(std::fs::read_to_string(data.join(name)).unwrap(), "of this node", "{name}");
    }
    assert_eq!(std::fs::read(data.join("mysql/user.frm")).unwrap(), b"new");
}

/// It stayed, and was in the way of the donor's once everything had arrived. A directory with keys is none.
#[test]
fn a_schema_with_the_name_of_a_keyring_is_replaced() {
    let scene = scene(&[("keyring_app/t.ibd", b"new")]);
    let data = scene.data("joiner");
    for name in ["keyring_app/t.ibd", "keyring_of_this_node/keys"] {
        std::fs::create_dir(data.join(name).parent().unwrap()).unwrap();
        std::fs::write(data.join(name), "old").unwrap();
    }
    let (joiner, _) = transfer(&scene);
    assert!(joiner.status.success(), "{}", joiner.log);
    assert_eq!(std::fs::read(data.join("keyring_app/t.ibd")).unwrap(), b"new");
    assert_eq!(std::fs::read(data.join("keyring_of_this_node/keys")).unwrap(), b"old");
}

/// Fails if the joiner succeeded, or touched its data.
#[track_caller]
fn assert_refused(scene: &Scene, joiner: &Ended, words: &str) {
    assert!(!joiner.status.success() && joiner.lines.is_empty(), "{joiner:?}");
    assert!(joiner.log.contains(words), "{}", joiner.log);
    scene.assert_untouched();
}

#[test]
fn the_server_starts_once_between_preparing_and_the_swap() {
    let scene = scene(&[("auto.cnf", b"of the donor"), ("wsrep_state.dat", b"of the donor")]);
    let data = scene.data("joiner");
    for (name, text) in
        [("auto.cnf", "old"), ("mysqld.my", "mine"), ("component_keyring_x.cnf", "mine")]
    {
        std::fs::write(data.join(name), text).unwrap();
    }
    let mut joiner = joiner(&scene);
    joiner.command.env("NOTIFY_SOCKET", scene.scratch.join("notify"));
    let mut joiner = joiner.start();
    let ready = joiner.ready();
    let _ = donate(&scene, &ready);
    let joiner = joiner.wait();
    assert!(joiner.status.success(), "{}", joiner.log);
    assert_eq!(joiner.lines, [STATE], "{}", joiner.log);
    assert!(joiner.log.contains("its 1 replica channels were removed"), "{}", joiner.log);
    assert!(data.join("upgraded.txt").exists());
    assert_eq!(std::fs::read(data.join("mysql/user.frm")).unwrap(), b"new");
    // Files that a server, or the donor's, made for itself are not data.
    for name in ["auto.cnf", "server-key.pem", "#innodb_temp", "wsrep_state.dat"] {
        assert!(!data.join(name).exists(), "{name}");
    }
    assert!(!data.join("#sql-xb/.start").exists());
    for name in ["mysqld.my", "component_keyring_x.cnf"] {
        assert_eq!(std::fs::read_to_string(data.join(name)).unwrap(), "mine", "{name}");
        assert!(read(&scene, "mysqld.data").lines().any(|line| line == name), "{name} is lent");
    }
    let args = read(&scene, "mysqld.args");
    assert!(args.starts_with("--defaults-file="), "{args}");
    let folder = data.join("#sql-xb/.start/data");
    for word in
        [&*format!("--datadir={}", folder.display()), "--plugin-dir=/p", "--skip-networking"]
    {
        assert!(args.lines().any(|line| line == word), "{word}: {args}");
    }
    let sql = read(&scene, "mysqld.sql");
    for statement in ["'localhost' ACCOUNT LOCK;\n", "\nRESET REPLICA ALL;\n", "\nSHUTDOWN;\n"] {
        assert!(sql.contains(statement), "{sql}");
    }
    let env = read(&scene, "mysqld.env");
    assert!(!env.contains("NOTIFY_SOCKET"), "systemd would take its messages for the server's");
}

#[test]
fn a_second_start_can_be_turned_off() {
    let scene = scene(&[]);
    scene.options("wire-security=any-donor\nsecond-start=no");
    let (joiner, _) = transfer(&scene);
    assert_eq!(joiner.lines, [STATE], "{}", joiner.log);
    assert!(!scene.bin().join("mysqld.args").exists());
}

#[test]
fn without_the_running_servers_own_program_no_data_is_asked_for() {
    let scene = scene(&[]);
    put(&scene, "mysqld.version", "mysqld  Ver 8.0.37-29 for Linux on x86_64 (Percona)\n");
    let (joiner, donor) = transfer(&scene);
    assert_refused(&scene, &joiner, "mysqld has version 8.0.37-29");
    assert!(joiner.log.contains("second-start=no"), "{}", joiner.log);
    assert!(donor.log.contains("the running server has version 8.0.36"), "{}", donor.log);
    std::fs::remove_file(scene.bin().join("mysqld")).unwrap();
    let (joiner, _) = transfer(&scene);
    assert_refused(&scene, &joiner, "cannot start this node's server");
    assert!(!scene.bin().join("backup.args").exists());
}

#[test]
fn a_server_that_refuses_the_data_leaves_the_old_data() {
    let scene = scene(&[]);
    let cause = "[ERROR] [MY-014061] [InnoDB] Invalid MySQL server downgrade: Cannot downgrade from 80037 to 80036.";
    put(&scene, "mysqld.fails", &format!("{cause}\n[System] Shutdown complete\n"));
    let (joiner, _) = transfer(&scene);
    assert_refused(&scene, &joiner, cause);
    assert!(joiner.log.contains("xbrs.mysqld.log"), "{}", joiner.log);
    let log = std::fs::read_to_string(scene.data("joiner").join("xbrs.mysqld.log")).unwrap();
    assert!(log.contains(cause));
}

/// A hint about settings would not help.
#[test]
fn a_second_start_that_finds_a_full_disk_says_so() {
    let scene = scene(&[]);
    let cause = "[ERROR] [MY-012144] [InnoDB] preallocating 12582912 bytes for file ./ibtmp1 failed with error 28";
    put(&scene, "mysqld.fails", &format!("{cause}\n"));
    let (joiner, _) = transfer(&scene);
    assert_eq!(joiner.status.code(), Some(28), "{}", joiner.log);
    let hint = "hint: make room on the file system of";
    assert!(joiner.log.contains(cause) && joiner.log.contains(hint), "{}", joiner.log);
    scene.assert_untouched();
}

#[test]
fn statements_that_did_not_work_leave_the_old_data() {
    let scene = scene(&[]);
    for (left, words) in
        [("1\t0\n", "is not locked"), ("0\t2\n", "2 replica channels"), ("", "before it had run")]
    {
        put(&scene, "mysqld.left", left);
        assert_refused(&scene, &transfer(&scene).0, words);
    }
    // Replica channels that are wanted may stay.
    put(&scene, "mysqld.left", "0\t2\n");
    scene.options("wire-security=any-donor\nreset-replica=no");
    let (joiner, _) = transfer(&scene);
    assert!(joiner.status.success(), "{}", joiner.log);
    assert!(joiner.log.contains("keeps 2 replica channels"), "{}", joiner.log);
    assert!(!read(&scene, "mysqld.sql").contains("RESET"));
}

/// Waits until the played server's child, which ends with its process group, is gone, and checks that
/// no temporary directory is left.
#[track_caller]
fn assert_ended(scene: &Scene) {
    let child = read(scene, "mysqld.child").trim().parse().unwrap();
    wait_for("the server's end", || process_name(child).is_none(), String::new);
    let left = std::fs::read_dir(scene.scratch.path()).unwrap().flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name().into_string().unwrap()).collect();
    assert!(!left.iter().any(|name| name.starts_with("xbrs-joiner-")), "{left:?}");
}

#[test]
fn a_server_that_does_not_end_is_ended() {
    let scene = scene(&[]);
    scene.options("wire-security=any-donor\nsecond-start-timeout=1");
    put(&scene, "mysqld.hangs", "");
    assert_refused(&scene, &transfer(&scene).0, "longer than 1 s");
    assert_ended(&scene);
    // It has started without having run its statements.
    scene.options("wire-security=any-donor");
    let cause = "[ERROR] [MY-000061] [Server] 1290  The server is running with --x";
    put(&scene, "mysqld.hangs", &format!("{cause}\n[System] [MY-010931] ready for connections\n"));
    assert_refused(&scene, &transfer(&scene).0, cause);
    assert_ended(&scene);
}

#[test]
fn a_signal_during_the_second_start_ends_the_server() {
    let scene = scene(&[]);
    put(&scene, "mysqld.hangs", "");
    let mut joiner = joiner(&scene).start();
    let ready = joiner.ready();
    let _ = donate(&scene, &ready);
    let up = scene.bin().join("mysqld.up");
    joiner.wait_for("second start", || up.exists());
    joiner.signal(Signal::TERM);
    assert_refused(&scene, &joiner.wait(), "signal 15");
    assert_ended(&scene);
    // Killed, it cannot clean up: its guardian ends the server, and the next join removes the rest.
    std::fs::remove_file(&up).unwrap();
    let mut joiner = self::joiner(&scene).start();
    let ready = joiner.ready();
    let _ = donate(&scene, &ready);
    joiner.wait_for("second start", || up.exists());
    joiner.signal(Signal::KILL);
    let child = read(&scene, "mysqld.child").trim().parse().unwrap();
    joiner.wait_for("end of the server", || process_name(child).is_none());
    assert!(joiner.wait().lines.is_empty());
    assert_eq!(std::fs::read(scene.data("joiner").join("mysql/user.frm")).unwrap(), b"old");
    std::fs::remove_file(scene.bin().join("mysqld.hangs")).unwrap();
    let (joiner, _) = transfer(&scene);
    assert_eq!(joiner.lines, [STATE], "{}", joiner.log);
    assert!(!scene.data("joiner").join("#sql-xb/.start").exists());
}

#[test]
fn the_version_for_which_the_data_is_stays_unless_the_server_changes_it() {
    let scene = scene(&[]);
    let state = scene.data("joiner").join("wsrep_state.dat");
    std::fs::write(&state, "8.0.30").unwrap();
    let read_state = || std::fs::read_to_string(&state).unwrap();
    assert!(transfer(&scene).0.status.success());
    assert_eq!(read_state(), "8.0.30");
    put(&scene, "mysqld.state", "8.0.36");
    std::fs::write(scene.data("joiner").join("mysql/user.frm"), "old").unwrap();
    let (joiner, _) = transfer(&scene);
    assert!(joiner.status.success(), "{}", joiner.log);
    assert_eq!(read_state(), "8.0.36");
}
