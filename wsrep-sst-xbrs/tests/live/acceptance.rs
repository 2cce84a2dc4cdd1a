//! A server that does not accept what it has received keeps the data that it had, or gets it back.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use xb_testkit::command::{Cmd, Ran};
use xb_testkit::galera::Cluster;
use xb_testkit::tools::{find, workspace};

const PROGRAM: &str = env!("CARGO_BIN_EXE_wsrep_sst_xbrs-rs");
/// A setting with which no server accepts the data.
const WRONG: &str = "innodb_page_size=8192";

fn cluster() -> Cluster {
    let script = workspace().join("scripts/wsrep_sst_xbrs");
    let mut cluster = Cluster::new(2, &[Path::new(PROGRAM), &script]);
    cluster.configure(1, "", "");
    cluster.configure(2, "", "");
    cluster.bootstrap();
    cluster.start(2);
    cluster.wait_synced(2);
    cluster
}

/// Ends node 2, which has to get a snapshot when it starts again.
fn end(cluster: &mut Cluster) {
    cluster.kill(2);
    let _ = std::fs::remove_file(cluster.datadir(2).join("grastate.dat"));
}

fn inode(path: &Path) -> u64 {
    path.metadata().unwrap().ino()
}

/// Lets the server of node 2 look for the position of its data, as units do before each start.
fn recover_position(cluster: &mut Cluster) {
    let mut words = vec![
        format!("--defaults-file={}", cluster.option_file(2).display()),
        "--wsrep-recover".to_owned(),
    ];
    if rustix::process::geteuid().is_root() {
        words.push("--user=root".to_owned());
    }
    cluster.start_as(2, &find("mariadbd"), &words);
    cluster.wait_ended(2);
}

fn by_hand(cluster: &Cluster, command: &str) -> Ran {
    Cmd::new(PROGRAM).arg(command).arg(cluster.datadir(2)).run()
}

#[test]
fn data_that_the_server_does_not_accept_is_not_swapped_in() {
    let mut cluster = cluster();
    let data = cluster.datadir(2);
    let log = cluster.log(2);
    assert!(log.contains("once on the received data, without a cluster"), "{log}");
    let before = inode(&data.join("ibdata1"));
    end(&mut cluster);
    cluster.configure(2, "", WRONG);
    cluster.start(2);
    cluster.wait_ended(2);
    let log = cluster.log(2);
    assert!(log.contains("does not accept the received data"), "{log}");
    assert!(log.contains("the data of this node is unchanged"), "{log}");
    assert_eq!(inode(&data.join("ibdata1")), before);
    assert!(!data.join("#sql-xb/.new").exists() && !data.join("#sql-xb/journal").exists());
    cluster.configure(2, "", "");
    cluster.start(2);
    cluster.wait_synced(2);
    assert_eq!(cluster.checksums(2), cluster.checksums(1));
    assert_eq!(inode(&data.join("#sql-xb/.old/ibdata1")), before);
}

#[test]
fn data_on_which_no_server_has_started_makes_way_for_the_old_data() {
    let mut cluster = cluster();
    let data = cluster.datadir(2);
    let before = inode(&data.join("ibdata1"));
    end(&mut cluster);
    cluster.configure(2, "second-start=no", WRONG);
    cluster.start(2);
    cluster.wait_ended(2);
    assert_ne!(inode(&data.join("ibdata1")), before, "{}", cluster.log(2));
    // The storage engine starts on it, and the server does not.
    cluster.configure(2, "second-start=no", "");
    recover_position(&mut cluster);
    assert!(cluster.log(2).contains("Recovered position"), "{}", cluster.log(2));
    cluster.configure(2, "second-start=no", WRONG);
    // The old data is the only data that is known to work.
    let refused = by_hand(&cluster, "clean-old").expect(22).stderr_text();
    assert!(
        refused.contains("no server has started") && refused.contains("roll-back"),
        "{refused}"
    );
    assert_eq!(inode(&data.join("#sql-xb/.old/ibdata1")), before);
    let done = by_hand(&cluster, "roll-back").expect(0).stderr_text();
    assert!(done.contains("in place again"), "{done}");
    assert_eq!(inode(&data.join("ibdata1")), before);
    let nothing = by_hand(&cluster, "roll-back").expect(22).stderr_text();
    assert!(nothing.contains("no old data"), "{nothing}");

    // Without a command, the next transfer does it.
    let _ = std::fs::remove_file(data.join("grastate.dat"));
    cluster.start(2);
    cluster.wait_ended(2);
    assert_eq!(inode(&data.join("#sql-xb/.old/ibdata1")), before, "{}", cluster.log(2));
    cluster.configure(2, "second-start=no", "");
    let _ = std::fs::remove_file(data.join("grastate.dat"));
    cluster.start(2);
    cluster.wait_synced(2);
    let log = cluster.log(2);
    assert!(log.contains("no server has accepted the data of the last transfer"), "{log}");
    assert_eq!(cluster.checksums(2), cluster.checksums(1));
    assert_eq!(inode(&data.join("#sql-xb/.old/ibdata1")), before);

    // This data is accepted: a server runs on it.
    assert!(data.join("multi-master.info").exists());
    let refused = by_hand(&cluster, "roll-back").expect(22).stderr_text();
    assert!(refused.contains("in use"), "{refused}");
    // The position that Galera has noted for this data is not that of the old data.
    cluster.stop(2);
    let noted = || std::fs::read_to_string(data.join("grastate.dat")).unwrap();
    assert!(!noted().contains("seqno:   -1"), "{}", noted());
    let _ = by_hand(&cluster, "roll-back").expect(0);
    assert!(noted().contains("seqno:   -1"), "{}", noted());
    assert_eq!(inode(&data.join("ibdata1")), before);
    cluster.sql(1, "DELETE FROM shop.orders WHERE id < 10");
    cluster.start(2);
    cluster.wait_synced(2);
    assert_eq!(cluster.checksums(2), cluster.checksums(1));
    let _ = by_hand(&cluster, "clean-old").expect(0);
    assert!(!data.join("#sql-xb/.old").exists());
}
