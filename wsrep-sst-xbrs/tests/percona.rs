//! The contract of Percona XtraDB Cluster's server, which differs from MariaDB's, and the keys of
//! encrypted tables there. Its server and xtrabackup are played.
#![allow(clippy::unwrap_used)] // test support: a panic with its cause is how a test fails

mod harness;

use std::process::{Command, Stdio};

use harness::{Ended, PROGRAM, STATE, Scene, Side};
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

/// Two nodes with xtrabackup 8.0, whose stream has these files besides those of every backup.
fn scene(more: &[(&str, &[u8])]) -> Scene {
    let scene = Scene::new();
    scene.program("backup", XTRABACKUP);
    scene.options("wire-security=any-donor");
    stream(&scene, more);
    scene
}

fn stream(scene: &Scene, more: &[(&str, &[u8])]) {
    let info = b"tool_name = xtrabackup\ntool_version = 8.0.35-31\n";
    let before: [(&str, &[u8]); 5] = [
        ("ibdata1", &[7; 70_000]),
        ("mysql.ibd", &[8; 70_000]),
        ("mysql/user.frm", b"new"),
        ("shop/orders.ibd", &[9; 300_000]),
        ("xtrabackup_checkpoints", b"backup_type = full-backuped\n"),
    ];
    let after: [(&str, &[u8]); 2] = [("xtrabackup_info", info), ("xtrabackup_tablespaces", b"{}")];
    let mut out = StreamWriter::new(Vec::new());
    for (name, content) in before.iter().chain(more).chain(&after) {
        out.payload(name, 0, content).end(name);
    }
    std::fs::write(scene.bin().join("stream"), out.finish()).unwrap();
}

/// The joiner with the arguments of Percona's server.
fn joiner(scene: &Scene) -> Side {
    let mut side = scene.joiner_with(&[], &[]);
    let words: Vec<_> = side.command.get_args().map(std::ffi::OsStr::to_owned).collect();
    let mut command = Command::new(PROGRAM);
    command.args(words.into_iter().filter(|word| word != "--mysqld-args"));
    command.args(["--basedir", "/usr/", "--plugindir", "/p", "--defaults-group-suffix", ""]);
    command.args(["--mysqld-version", "8.0.36", ""]).stdout(Stdio::piped());
    side.command = command;
    side
}

/// Runs the donor with the arguments of Percona's server, and the login on standard input.
fn donate(scene: &Scene, ready: &str) -> Ended {
    let mut side = scene.donor_with(ready, &[]);
    let words: Vec<_> = side.command.get_args().map(std::ffi::OsStr::to_owned).collect();
    let at = words.iter().position(|word| word == "--local-port").unwrap();
    let mut command = Command::new(PROGRAM);
    command.args(&words[..at]).args(&words[at + 2..]);
    command.args(["--basedir", "/usr/", "--plugindir", "/p", "--mysqld-version", "8.0.36"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    side.command = command;
    let mut donor = side.start();
    let login = b"sst_user=mysql.pxc.sst.user\nsst_password=passw0rd\n";
    // A donor that refuses its settings may have ended by now.
    let _ = std::io::Write::write_all(&mut donor.child.stdin.take().unwrap(), login);
    donor.wait()
}

/// Runs both sides of a transfer; returns joiner and donor.
fn transfer(scene: &Scene) -> (Ended, Ended) {
    let mut joiner = joiner(scene).start();
    let ready = joiner.ready();
    let donor = donate(scene, &ready);
    (joiner.wait(), donor)
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
    let read = |name: &str| std::fs::read_to_string(scene.bin().join(name)).unwrap();
    assert_eq!(read("backup.env"), "passw0rd \n");
    assert!(read("backup.args").contains("--user=mysql.pxc.sst.user"));
    assert!(read("prepare.args").contains("--defaults-file="), "with the node's keyring");
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
