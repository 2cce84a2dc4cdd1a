//! Clusters of two MariaDB releases: the machine's, and one in another root directory, which
//! `scripts/on-release SUITE mixed` creates and names in `XB_OTHER_ROOT`.
#![allow(clippy::unwrap_used)] // test support: a panic with its cause is how a test fails

use std::path::{Path, PathBuf};

use xb_testkit::command::Cmd;
use xb_testkit::galera::Cluster;
use xb_testkit::tools::{find, workspace};

/// The other root directory, if there is one.
fn other_root() -> Option<PathBuf> {
    let root = std::env::var_os("XB_OTHER_ROOT").map(PathBuf::from);
    if root.is_none() {
        xb_testkit::skipped("scripts/on-release SUITE mixed runs it with a second release");
    }
    root
}

fn cluster() -> Cluster {
    let program = Path::new(env!("CARGO_BIN_EXE_wsrep_sst_xbrs-rs"));
    let script = workspace().join("scripts/wsrep_sst_xbrs");
    Cluster::new(2, &[program, &script])
}

/// Returns the first two numbers of a server's version.
fn version(program: &str, words: &[&str]) -> (u32, u32) {
    let text = Cmd::new(program).args(words).run().expect(0).stdout_text();
    let (_, version) = text.split_once("Ver ").unwrap();
    let mut numbers = version.split(['.', '-']).map(|number| number.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

#[test]
fn a_later_joiner_joins_and_an_earlier_one_is_refused() {
    let Some(root) = other_root() else { return };
    let here = version(find("mariadbd").to_str().unwrap(), &["--version"]);
    let there = version("chroot", &[root.to_str().unwrap(), "mariadbd", "--version"]);
    assert_ne!(here, there, "these are no two releases");
    let (earlier, later) = if here < there { (None, Some(&root)) } else { (Some(&root), None) };

    let start = |donor: Option<&PathBuf>, joiner: Option<&PathBuf>| {
        let mut cluster = cluster();
        donor.inspect(|root| cluster.below(1, root));
        joiner.inspect(|root| cluster.below(2, root));
        cluster.bootstrap();
        cluster.start(2);
        cluster
    };
    let cluster = start(earlier, later);
    cluster.wait_synced(2);
    assert!(cluster.log(2).contains("xbrs SST completed on joiner"), "{}", cluster.log(2));
    assert_eq!(cluster.checksums(2), cluster.checksums(1));
    cluster.use_all_databases(2);
    drop(cluster);

    let cluster = start(later, earlier);
    cluster.wait_ended(2);
    cluster.wait_synced(1);
    for node in [1, 2] {
        let log = cluster.log(node);
        assert!(log.contains("but this node only"), "node {node}:\n{log}");
    }
}
