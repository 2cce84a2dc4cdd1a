//! Joins of a real cluster while strangers flood the joiner's port with valid first lines.

use std::net::SocketAddr;
use std::path::Path;

use xb_testkit::flood::Flood;
use xb_testkit::galera::Cluster;
use xb_testkit::tools::workspace;

#[test]
fn every_node_joins_while_strangers_flood_its_port() {
    let program = Path::new(env!("CARGO_BIN_EXE_wsrep_sst_xbrs-rs"));
    let script = workspace().join("scripts/wsrep_sst_xbrs");
    let mut cluster = Cluster::new(2, &[program, &script]);
    cluster.bootstrap();
    // The number of joins may be set by hand.
    let rounds: u32 = std::env::var("XB_FLOOD_JOINS").map_or(1, |n| n.parse().unwrap());
    for strangers in [2, 4] {
        let (mut tries, mut flooded) = (0, 0);
        while flooded < rounds {
            // On a busy machine a join may end before a stranger has found its port.
            assert!(tries < rounds * 2, "the flood does not reach the joiner");
            tries += 1;
            let connected = join_in_a_flood(&mut cluster, strangers);
            eprintln!("join {tries} with {strangers} strangers: {connected} connections");
            flooded += u32::from(connected > 0);
        }
    }
}

/// Lets node 2 join while `strangers` flood its port. Returns how often they have connected.
fn join_in_a_flood(cluster: &mut Cluster, strangers: usize) -> u64 {
    let port = SocketAddr::new(cluster.address(2).parse().unwrap(), 4444);
    let flood = Flood::start(port, strangers);
    cluster.wipe(2);
    cluster.start(2);
    cluster.wait_synced(2);
    let connected = flood.connected();
    drop(flood);
    assert!(cluster.log(2).contains("xbrs SST completed on joiner"), "{}", cluster.log(2));
    assert_eq!(cluster.checksums(2), cluster.checksums(1));
    connected
}
