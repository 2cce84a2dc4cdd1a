//! Joins of a real cluster while strangers flood the joiner's port with valid first lines.
#![allow(clippy::unwrap_used)] // test support: a panic with its cause is how a test fails

use std::collections::VecDeque;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use xb_testkit::galera::Cluster;
use xb_testkit::tools::workspace;

/// More connections than a joiner keeps pending.
const OPEN: usize = 40;
/// Pause after a refused connection, so that a closed port costs no processor time.
const PAUSE: Duration = Duration::from_millis(2);

/// Connects again and again, with a donor's first line; counts the connections.
fn flood(to: SocketAddr, is_over: &AtomicBool, connected: &AtomicU64) {
    let line = format!("XBRS-WIRE 1-1 tls {}\n", "00".repeat(16));
    let mut open = VecDeque::new();
    while !is_over.load(Ordering::Relaxed) {
        match TcpStream::connect_timeout(&to, Duration::from_secs(1)) {
            Ok(mut socket) => {
                let _ = socket.write_all(line.as_bytes());
                connected.fetch_add(1, Ordering::Relaxed);
                open.push_back(socket);
                if open.len() > OPEN {
                    open.pop_front();
                }
            }
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

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
    let (is_over, connected) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        // Ends the flood also if the join panics.
        let over = Over(&is_over);
        for _ in 0..strangers {
            scope.spawn(|| flood(port, &is_over, &connected));
        }
        cluster.wipe(2);
        cluster.start(2);
        cluster.wait_synced(2);
        drop(over);
    });
    assert!(cluster.log(2).contains("xbrs SST completed on joiner"), "{}", cluster.log(2));
    assert_eq!(cluster.checksums(2), cluster.checksums(1));
    connected.into_inner()
}

struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
