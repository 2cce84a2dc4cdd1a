//! A cluster of Galera that begins again from its archive.

use super::failover::{
    TABLES, archived_cluster, back_up_node, begins, node_options, of_domain, position, restored,
    synced_on,
};
use crate::support::logged_shop::{into, wait_until};
use xb_repo::archive::stream::StreamOrigin;
use xb_testkit::galera::Cluster;

fn cluster_id(cluster: &Cluster, node: u8) -> String {
    let status = cluster.sql(node, "SHOW STATUS LIKE 'wsrep_cluster_state_uuid'");
    status.split_whitespace().last().unwrap().to_owned()
}

fn own_gtid(cluster: &Cluster, node: u8) -> String {
    of_domain("7-", &cluster.sql(node, "SELECT @@GLOBAL.gtid_binlog_pos"))
}

/// The last part of a GTID.
fn number(gtid: &str) -> u64 {
    gtid.rsplit('-').next().unwrap().parse().unwrap()
}

#[test]
fn a_node_that_is_restored_to_a_stop_begins_a_new_cluster() {
    let (mut cluster, shop, receiver) = archived_cluster("ON");
    let (rows, stop, lost) =
        (cluster.sql(2, TABLES), own_gtid(&cluster, 2), cluster_id(&cluster, 2));
    cluster.sql(1, "DROP TABLE d.t");
    synced_on(&cluster, 2, "d.e");
    wait_until(&receiver, &position(&cluster, 2));
    receiver.stop();
    for node in 1..=3 {
        cluster.kill(node);
    }
    cluster.wipe(1);
    let words = ["--galera", &into(&cluster.datadir(1))];
    let told = shop.restore("full", &stop, &words).run().expect(0).stderr_text();
    assert!(told.contains("galera_new_cluster"), "{told}");
    // Run again, it finds that everything is done, and says the same.
    let again = shop.restore("full", &stop, &words).run().expect(0).stderr_text();
    assert!(again.contains("has finished everything"), "{again}");
    let statement = "SET SESSION wsrep_gtid_seq_no=";
    assert!(again.contains(statement), "{again}");
    for node in 1..=3 {
        let options = node_options(&cluster, node, "ON").replace("server-id=1\n", "server-id=8\n");
        cluster.configure(node, "", &options);
    }
    cluster.begin_again(1);
    assert_eq!(cluster.sql(1, TABLES), rows);
    let begun = cluster_id(&cluster, 1);
    assert_ne!(begun, lost);
    // Without the statement that the restore names, the numbers of the log would be used again.
    let (_, number_of) = told.split_once(statement).unwrap();
    cluster.sql(1, &format!("{statement}{}", number_of.lines().next().unwrap()));
    cluster.sql(1, "INSERT INTO d.t VALUES (50, 'after')");
    let first = own_gtid(&cluster, 1);
    assert!(first.starts_with("7-8-") && number(&first) > number(&stop) + 1, "{first} {stop}");
    // A node of the old cluster has more write sets than the new one; it gets the new one's data.
    cluster.start(2);
    cluster.wait_synced(2);
    assert_eq!(cluster_id(&cluster, 2), begun);
    cluster.sql(2, "UPDATE d.e SET n = n + 100");
    synced_on(&cluster, 1, "d.e");
    let rows = cluster.sql(1, TABLES);
    assert!(rows.contains("after") && rows == cluster.sql(2, TABLES), "{rows}");

    // The archive continues behind a branch or a gap, with a backup of the new cluster.
    let receiver = shop.receive_from(&cluster.socket(1));
    let origin = begins(&receiver);
    let goes_on = matches!(origin, StreamOrigin::Branch { .. } | StreamOrigin::Gap { .. });
    assert!(goes_on, "{origin:?}");
    back_up_node(&cluster, &shop, 1, "new");
    cluster.sql(2, "INSERT INTO d.t VALUES (51, 'later')");
    synced_on(&cluster, 1, "d.t");
    wait_until(&receiver, &position(&cluster, 1));
    receiver.stop();
    assert_eq!(restored(&shop, "new", "latest"), cluster.sql(1, TABLES));
}
