//! An archive whose server dies, and that continues on another one: a replica, a node of Galera.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use xb_backup::Notice;
use xb_mysql::{Account, Client, Target, Timeouts};
use xb_repo::archive::stream::StreamOrigin;
use xb_testkit::command::{Cmd, Ran};
use xb_testkit::daemon::Scratch;
use xb_testkit::galera::Cluster;
use xb_testkit::mariadb::MariaDb;
use xb_testkit::ports::free_port;
use xb_testkit::tools::find;

use crate::support::logged_shop::{KEY, Receiver, Shop, copy_folder, into, wait_until};

/// Everything that the tests write.
pub(super) const TABLES: &str =
    "SELECT * FROM d.t ORDER BY id; SELECT * FROM d.m ORDER BY id; SELECT * FROM d.e ORDER BY id";

fn options(id: u32, port: u16, more: &[&str]) -> Vec<String> {
    let plain = [
        "--log-bin=bin",
        "--log-slave-updates",
        "--skip-networking=0",
        "--bind-address=127.0.0.1",
        "--binlog-format=ROW",
        "--gtid-strict-mode=ON",
        "--slave-parallel-threads=4",
    ];
    let own = [format!("--server-id={id}"), format!("--port={port}")];
    plain.iter().chain(more).map(|option| (*option).to_owned()).chain(own).collect()
}

fn words(options: &[String]) -> Vec<&str> {
    options.iter().map(String::as_str).collect()
}

/// A server that is archived, and a replica of it.
struct Pair {
    shop: Shop,
    replica: MariaDb,
    ports: [u16; 2],
}

impl Pair {
    fn new(of_replica: &[&str]) -> Self {
        let ports = [free_port(), free_port()];
        let server = MariaDb::start_with(&words(&options(3, ports[0], &[])));
        let replica = MariaDb::start_with(&words(&options(4, ports[1], of_replica)));
        for server in [&server, &replica] {
            server.sql(
                "RESET MASTER; SET sql_log_bin = 0; CREATE USER r@'127.0.0.1' IDENTIFIED BY 'x';
                 CREATE USER r@localhost IDENTIFIED BY 'x';
                 GRANT REPLICATION SLAVE ON *.* TO r@'127.0.0.1', r@localhost",
            );
        }
        replicate(&replica, ports[0]);
        let scratch = Scratch::new();
        std::fs::write(scratch.join("key"), KEY).unwrap();
        std::fs::create_dir(scratch.join("shop")).unwrap();
        server.sql(
            "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v LONGTEXT);
             CREATE TABLE d.m (id INT PRIMARY KEY) ENGINE=MyISAM;
             CREATE TABLE d.e (id INT PRIMARY KEY, n INT); INSERT INTO d.e VALUES (1, 0)",
        );
        let pair = Self { shop: Shop { server, scratch, sealed: true }, replica, ports };
        // A transaction of another domain must not overtake the tables.
        pair.catch_up();
        pair
    }

    /// A receiver that knows both servers, in this order, and a full backup of the one in use.
    fn receive_from(&self, servers: [&MariaDb; 2]) -> Receiver {
        let receiver = self.shop.receive_from_any(&servers.map(MariaDb::socket));
        let _ = self.shop.back_up("full", &[]);
        receiver
    }

    /// Waits until the replica has everything.
    fn catch_up(&self) {
        applied(&self.replica, &self.shop.gtid());
    }

    /// The replica is promoted, and the server dies.
    fn fail_over(&mut self) {
        promote(&self.replica);
        self.take_place();
    }

    /// The server dies, and the promoted replica takes its place.
    fn take_place(&mut self) {
        let new = MariaDb::start_with(&["--server-id=9"]);
        let promoted = std::mem::replace(&mut self.replica, new);
        drop(std::mem::replace(&mut self.shop.server, promoted).kill());
    }
}

fn replicate(server: &MariaDb, port: u16) {
    server.sql(&format!(
        "CHANGE MASTER TO master_host = '127.0.0.1', master_port = {port}, master_user = 'r',
         master_password = 'x', master_use_gtid = slave_pos, master_connect_retry = 1; START SLAVE"
    ));
}

/// Waits until a server has these transactions.
fn applied(server: &MariaDb, gtids: &str) {
    let waited = server.sql(&format!("SELECT MASTER_GTID_WAIT('{gtids}', 60)"));
    assert_eq!(waited.trim(), "0", "{}", server.sql("SHOW ALL SLAVES STATUS"));
}

fn promote(server: &MariaDb) {
    server.sql("STOP SLAVE; RESET SLAVE ALL");
}

fn binlog(shop: &Shop, words: &[&str]) -> Ran {
    let root = format!("file://{}", shop.scratch.join("shop").display());
    Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["--no-defaults", "binlog", words[0], &root])
        .args(&words[1..])
        .run()
}

/// The archive's streams.
fn streams(shop: &Shop) -> Vec<Value> {
    let text = binlog(shop, &["list", "--json"]).expect(0).stdout_text();
    let found: Value = serde_json::from_str(&text).unwrap();
    found["servers"][0]["streams"].as_array().unwrap().clone()
}

fn verify(shop: &Shop) -> Ran {
    binlog(shop, &["verify", &shop.key().unwrap()])
}

/// Restores to a stop, and returns what a server has then.
pub(super) fn restored(shop: &Shop, name: &str, stop: &str) -> String {
    let target = tempfile::tempdir_in(shop.scratch.path()).unwrap();
    let _ = shop.restore(name, stop, &[]).arg(into(target.path())).run().expect(0);
    let server = MariaDb::start_on_with(target.path(), &["--server-id=99"]);
    let rows = server.sql(TABLES);
    server.check_tables("d");
    rows
}

/// Asserts that a restore of each of these backups up to the archive's end has every row of the server.
fn lead_to_latest(shop: &Shop, backups: &[&str]) {
    let rows = shop.server.sql(TABLES);
    for name in backups {
        assert_eq!(restored(shop, name, "latest"), rows, "{name}");
    }
}

/// How the last stream of a receiver begins.
pub(super) fn begins(receiver: &Receiver) -> StreamOrigin {
    receiver.wait_to_tell(|notice| match notice {
        Notice::Begins { begins, .. } => Some(begins),
        _ => None,
    })
}

#[track_caller]
fn assert_takes_over(receiver: &Receiver) {
    let begins = begins(receiver);
    assert!(matches!(begins, StreamOrigin::Continues { at: Some(_), .. }), "{:?}", receiver.told());
}

#[test]
fn the_archive_continues_on_a_promoted_replica_and_on_the_server_that_returns() {
    let mut pair = Pair::new(&[]);
    let receiver = pair.shop.receive();
    let _ = pair.shop.back_up("full", &[]);
    // So that no position is in the logs of both servers.
    pair.shop.server.sql(
        "FLUSH BINARY LOGS; FLUSH BINARY LOGS; FLUSH BINARY LOGS; INSERT INTO d.t VALUES (1, 'one');
         INSERT INTO d.m VALUES (1); FLUSH BINARY LOGS;
         BEGIN; INSERT INTO d.t VALUES (2, 'two'); UPDATE d.e SET n = n + 1; COMMIT",
    );
    let (before, at_before, rows_before) =
        (pair.shop.gtid(), pair.shop.position(), pair.shop.server.sql(TABLES));
    pair.shop.server.sql("UPDATE d.e SET n = n + 1; CREATE TABLE d.later (id INT)");
    pair.shop.wait_for(&receiver);
    receiver.stop();
    // Transactions that the replica still gets from the server, but the archive does not.
    pair.shop.server.sql("UPDATE d.e SET n = n + 1; INSERT INTO d.t VALUES (3, 'unarchived')");
    let (unarchived, rows_unarchived) = (pair.shop.gtid(), pair.shop.server.sql(TABLES));
    pair.catch_up();
    // Its data is kept, and it returns later.
    promote(&pair.replica);
    let new = MariaDb::start_with(&["--server-id=9"]);
    let promoted = std::mem::replace(&mut pair.replica, new);
    let old = std::mem::replace(&mut pair.shop.server, promoted).shut_down();
    pair.shop.server.sql("UPDATE d.e SET n = n + 1; DELETE FROM d.t WHERE id = 1");
    let (after, rows_after) = (pair.shop.gtid(), pair.shop.server.sql(TABLES));
    assert!(after.starts_with("0-4-"), "{after}");
    let receiver = pair.shop.receive();
    pair.shop.wait_for(&receiver);
    assert_takes_over(&receiver);
    pair.shop.server.sql("FLUSH BINARY LOGS; INSERT INTO d.t VALUES (4, 'four')");
    let rows_fourth = pair.shop.server.sql(TABLES);
    pair.shop.wait_for(&receiver);
    receiver.stop();
    // Again on the same server: by its bytes. A backup of the new server belongs to its logs.
    let receiver = pair.shop.receive();
    let _ = pair.shop.back_up("second", &[]);
    pair.shop.server.sql("INSERT INTO d.t VALUES (5, 'five')");
    let (rows_fifth, fifth) = (pair.shop.server.sql(TABLES), pair.shop.gtid());
    pair.shop.wait_for(&receiver);
    assert!(matches!(begins(&receiver), StreamOrigin::Continues { at: None, .. }));
    receiver.stop();
    for (stop, expected) in [
        (before.as_str(), &rows_before),
        (&at_before, &rows_before),
        (&unarchived, &rows_unarchived),
        (&after, &rows_after),
        ("latest", &rows_fifth),
    ] {
        assert_eq!(restored(&pair.shop, "full", stop), *expected, "{stop}");
    }
    assert_eq!(restored(&pair.shop, "full", &format!("before:{fifth}")), rows_fourth);
    assert_eq!(restored(&pair.shop, "second", "latest"), rows_fifth);
    let _ = verify(&pair.shop).expect(0);
    let list = binlog(&pair.shop, &["list"]).expect(0).stdout_text();
    assert!(
        list.contains("SERVER: server_id 4") && list.contains("takes over at bin.00"),
        "{list}"
    );
    assert!(!list.contains("lacks"), "{list}");

    // The old server returns as a replica, and is promoted in its turn.
    let own = options(3, pair.ports[0], &[]);
    let old_server = MariaDb::start_on_with(&old.join("data"), &words(&own));
    old_server.sql("SET GLOBAL gtid_slave_pos = @@GLOBAL.gtid_binlog_pos");
    replicate(&old_server, pair.ports[1]);
    applied(&old_server, &pair.shop.gtid());
    promote(&old_server);
    drop(std::mem::replace(&mut pair.shop.server, old_server).kill());
    pair.shop.server.sql("UPDATE d.e SET n = n + 1; INSERT INTO d.t VALUES (6, 'back')");
    let receiver = pair.shop.receive();
    pair.shop.wait_for(&receiver);
    assert_takes_over(&receiver);
    receiver.stop();
    lead_to_latest(&pair.shop, &["full", "second"]);
    assert_eq!(restored(&pair.shop, "full", &after), rows_after);
    let _ = verify(&pair.shop).expect(0);
    let ids: Vec<u64> = streams(&pair.shop)
        .iter()
        .map(|stream| stream["origin"]["server_id"].as_u64().unwrap())
        .collect();
    assert_eq!((ids[0], ids.last().copied()), (3, Some(3)));
    assert!(ids.contains(&4));
    drop(old);
}

#[test]
fn a_transaction_that_the_promoted_server_never_got_makes_a_branch() {
    let mut pair = Pair::new(&[]);
    let receiver = pair.shop.receive();
    let _ = pair.shop.back_up("full", &[]);
    pair.shop.server.sql("INSERT INTO d.t VALUES (1, 'one')");
    pair.catch_up();
    promote(&pair.replica);
    pair.shop.server.sql("INSERT INTO d.t VALUES (2, 'lost')");
    let lost = pair.shop.gtid();
    pair.shop.wait_for(&receiver);
    receiver.stop();
    pair.take_place();
    // It may still be a replica that is behind.
    let receiver = pair.shop.receive();
    let behind = receiver.wait_to_tell(|notice| match notice {
        Notice::Behind(what) => Some(what),
        _ => None,
    });
    assert!(behind.contains(&lost), "{:?}", receiver.told());
    // Its own transaction takes the number of the lost one.
    pair.shop.server.sql("INSERT INTO d.t VALUES (3, 'other')");
    let other = pair.shop.gtid();
    pair.shop.wait_for(&receiver);
    let StreamOrigin::Branch { reason, .. } = begins(&receiver) else {
        panic!("{:?}", receiver.told());
    };
    assert!(reason.contains(&lost) && reason.contains(&other), "{reason}");
    receiver.stop();
    assert_eq!(lost.rsplit('-').next(), other.rsplit('-').next());
    // The backup from before is not restored into the other history.
    let refused = pair.shop.refused("full", "latest", &[]);
    assert!(refused.contains("starts over") || refused.contains("does not have"), "{refused}");
    let _ = pair.shop.refused("full", &other, &[]);
    let _ = pair.shop.back_up("new", &[]);
    pair.shop.server.sql("INSERT INTO d.t VALUES (4, 'four')");
    let receiver = pair.shop.receive();
    pair.shop.wait_for(&receiver);
    receiver.stop();
    assert_eq!(restored(&pair.shop, "new", "latest"), pair.shop.server.sql(TABLES));
    // What it left is told for as long as the archive has it.
    let told = format!("has transactions that the present history lacks: up to {lost}");
    let shop = &pair.shop;
    let list = binlog(shop, &["list"]).expect(0).stdout_text();
    // The backup from before the branch is cut off.
    let verified = verify(shop).expect(7).stdout_text();
    let planned = shop.restore("new", "latest", &["--dry-run"]).run().expect(0);
    let root = format!("file://{}", shop.scratch.join("shop").display());
    let monitored = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["--no-defaults", "monitor", &root])
        .run()
        .expect(1);
    for text in [
        &list,
        &verified,
        &(planned.stdout_text() + &planned.stderr_text()),
        &monitored.stdout_text(),
    ] {
        assert!(text.contains(&told), "{text}");
    }
}

/// The GTID of a domain.
pub(super) fn of_domain(domain: &str, gtids: &str) -> String {
    let mut all = gtids.trim().split(',');
    all.find(|gtid| gtid.starts_with(domain)).unwrap().to_owned()
}

/// A session that holds a lock until it is dropped.
fn locked(server: &MariaDb, table: &str) -> Client {
    let account = Account { user: b"root".to_vec(), ..Account::default() };
    let limit = Duration::from_secs(300);
    let timeouts = Timeouts { login: limit, reply: Some(limit) };
    let target = Target::Socket(server.socket().to_owned());
    let mut client = Client::connect(&target, &account, timeouts).unwrap();
    client.run(format!("LOCK TABLES {table} READ")).unwrap();
    client
}

/// The new server has the archive's end of one domain behind transactions of another one that are not stored.
#[test]
fn domains_that_end_at_different_places_are_joined() {
    let mut pair = Pair::new(&["--slave-domain-parallel-threads=2"]);
    let receiver = pair.shop.receive();
    let _ = pair.shop.back_up("full", &[]);
    pair.shop.server.sql(
        "INSERT INTO d.t VALUES (1, 'one');
         SET gtid_domain_id = 7; UPDATE d.e SET n = n + 1; UPDATE d.e SET n = n * 10",
    );
    pair.catch_up();
    let lock = locked(&pair.replica, "d.e");
    pair.shop.server.sql(
        "INSERT INTO d.t VALUES (2, 'two');
         SET gtid_domain_id = 7; UPDATE d.e SET n = n + 3; UPDATE d.e SET n = n * 10",
    );
    pair.shop.wait_for(&receiver);
    receiver.stop();
    let rows_at_end = pair.shop.server.sql(TABLES);
    let end = pair.shop.gtid();
    // The other domain continues on the replica, which has yet to apply what is stored of domain 7.
    pair.shop.server.sql("INSERT INTO d.t VALUES (3, 'three'); FLUSH BINARY LOGS");
    let third = of_domain("0-", &pair.shop.gtid());
    applied(&pair.replica, &third);
    pair.replica.sql("FLUSH BINARY LOGS");
    let rows_third = pair.shop.server.sql(TABLES);
    drop(lock);
    pair.catch_up();
    pair.fail_over();
    pair.shop.server.sql(
        "INSERT INTO d.t VALUES (4, 'four'); SET gtid_domain_id = 7; UPDATE d.e SET n = n + 7",
    );
    let rows = pair.shop.server.sql(TABLES);
    let receiver = pair.shop.receive();
    pair.shop.wait_for(&receiver);
    assert_takes_over(&receiver);
    receiver.stop();
    let heads: Vec<Value> = std::fs::read_dir(pair.shop.scratch.join("shop/.xb-binlog/shop"))
        .unwrap()
        .map(|stream| std::fs::read_to_string(stream.unwrap().path().join("head")).unwrap())
        .map(|text| serde_json::from_str(text.lines().next().unwrap()).unwrap())
        .collect();
    let repeats = heads.iter().find(|head| head["repeats"].is_object());
    let repeated = repeats.unwrap()["repeats"]["gtids"].as_str().unwrap();
    for domain in ["0-", "7-"] {
        assert_eq!(of_domain(domain, repeated), of_domain(domain, &end));
    }
    for (stop, expected) in [("latest", &rows), (&third, &rows_third)] {
        assert_eq!(restored(&pair.shop, "full", stop), *expected, "{stop}");
    }
    assert_eq!(restored(&pair.shop, "full", &of_domain("7-", &end)), rows_at_end);
    let _ = verify(&pair.shop).expect(0);
    let shown = binlog(&pair.shop, &["show", "--table=d.e", "--json", &pair.shop.key().unwrap()]);
    let shown = shown.expect(0).stdout_text();
    let last = format!("\"{}\"", of_domain("7-", &end));
    assert_eq!(shown.matches(&last).count(), 1, "{shown}");
    // A backup and a receiver of the new server.
    let _ = pair.shop.back_up("new", &[]);
    let receiver = pair.shop.receive();
    pair.shop.server.sql("SET gtid_domain_id = 7; UPDATE d.e SET n = n * 2");
    pair.shop.wait_for(&receiver);
    receiver.stop();
    lead_to_latest(&pair.shop, &["full", "new"]);
}

/// The new server writes the only transaction of a domain behind all that is compared.
#[test]
fn a_domain_that_the_new_server_has_yet_to_write_is_not_applied_twice() {
    let mut pair = Pair::new(&["--slave-domain-parallel-threads=2"]);
    let receiver = pair.shop.receive();
    let _ = pair.shop.back_up("full", &[]);
    let lock = locked(&pair.replica, "d.e");
    pair.shop.server.sql("SET gtid_domain_id = 7; INSERT INTO d.e VALUES (2, 5)");
    for id in 1..=12 {
        pair.shop.server.sql(&format!("INSERT INTO d.t VALUES ({id}, 'v'); FLUSH BINARY LOGS"));
    }
    pair.shop.wait_for(&receiver);
    receiver.stop();
    applied(&pair.replica, &of_domain("0-", &pair.shop.gtid()));
    drop(lock);
    pair.catch_up();
    pair.fail_over();
    let receiver = pair.shop.receive();
    pair.shop.server.sql("INSERT INTO d.t VALUES (100, 'new')");
    pair.shop.wait_for(&receiver);
    assert_takes_over(&receiver);
    receiver.stop();
    assert_eq!(restored(&pair.shop, "full", "latest"), pair.shop.server.sql(TABLES));
    let _ = verify(&pair.shop).expect(0);
}

/// The log of a replica that was built from a backup: the next server's log would have the domain again.
#[test]
fn a_server_whose_log_lacks_a_domain_does_not_continue_the_archive() {
    let mut pair = Pair::new(&[]);
    let receiver = pair.shop.receive();
    let _ = pair.shop.back_up("full", &[]);
    pair.shop.server.sql("SET gtid_domain_id = 7; INSERT INTO d.e VALUES (2, 5)");
    pair.catch_up();
    pair.replica.sql("STOP SLAVE; RESET MASTER; START SLAVE");
    pair.shop.server.sql("INSERT INTO d.t VALUES (1, 'one'); INSERT INTO d.t VALUES (2, 'two')");
    pair.shop.wait_for(&receiver);
    receiver.stop();
    pair.catch_up();
    pair.fail_over();
    let receiver = pair.shop.receive();
    pair.shop.server.sql("INSERT INTO d.t VALUES (3, 'three')");
    pair.shop.wait_for(&receiver);
    let StreamOrigin::Gap { reason, .. } = begins(&receiver) else {
        panic!("{:?}", receiver.told());
    };
    assert!(reason.contains("its log lacks domain 7"), "{reason}");
    receiver.stop();
    let _ = pair.shop.refused("full", "latest", &[]);
}

/// Nothing is left in its logs of a domain that its data has, as in those of a replica that was built from a backup.
#[test]
fn a_log_that_lacks_a_domain_of_the_data_is_replayed() {
    let mut pair = Pair::new(&[]);
    pair.shop.server.sql("SET gtid_domain_id = 7; INSERT INTO d.e VALUES (2, 5)");
    pair.catch_up();
    let has = pair.shop.gtid();
    pair.replica.sql(&format!(
        "STOP SLAVE; RESET MASTER; SET GLOBAL gtid_slave_pos = '{has}'; START SLAVE"
    ));
    pair.shop.server.sql("INSERT INTO d.t VALUES (1, 'one')");
    pair.catch_up();
    pair.fail_over();
    let receiver = pair.shop.receive();
    let said = pair.shop.back_up("full", &[]).stderr_text();
    assert!(!said.contains("GTIDs"), "{said}");
    pair.shop.server.sql("INSERT INTO d.t VALUES (2, 'two')");
    let (second, rows_second) = (pair.shop.gtid(), pair.shop.server.sql(TABLES));
    assert!(second.starts_with("0-4-"), "{second}");
    // The domain is used again, and is then in the log, too.
    pair.shop.server.sql("FLUSH BINARY LOGS; SET gtid_domain_id = 7; UPDATE d.e SET n = n + 1");
    let _ = pair.shop.back_up("later", &[]);
    pair.shop.server.sql("UPDATE d.e SET n = n * 10");
    pair.shop.wait_for(&receiver);
    receiver.stop();
    let list = binlog(&pair.shop, &["list"]).expect(0).stdout_text();
    assert!(list.contains("full") && !list.contains("only itself"), "{list}");
    let _ = verify(&pair.shop).expect(0);
    assert_eq!(restored(&pair.shop, "full", &second), rows_second);
    lead_to_latest(&pair.shop, &["full", "later"]);
}

/// The receiver knows both servers, and takes no replica that was not promoted.
#[test]
fn a_receiver_of_several_servers_continues_on_the_promoted_one() {
    let mut pair = Pair::new(&["--read-only=ON"]);
    let receiver = pair.receive_from([&pair.replica, &pair.shop.server]);
    // Another one lies behind the last transaction that the archive has of this server.
    pair.shop.server.sql("INSERT INTO d.t VALUES (1, 'one'); FLUSH BINARY LOGS");
    let _ = pair.shop.back_up("behind", &[]);
    pair.shop.wait_for(&receiver);
    pair.catch_up();
    pair.take_place();
    receiver.wait_to_tell(|notice| match notice {
        Notice::Disconnected(why) if why.contains("read_only=ON, as a replica") => Some(()),
        _ => None,
    });
    assert_eq!(begun(&receiver), 1, "{:?}", receiver.told());
    promote(&pair.shop.server);
    pair.shop.server.sql(
        "SET GLOBAL read_only = OFF; FLUSH BINARY LOGS; FLUSH BINARY LOGS; INSERT INTO d.t VALUES (2, 'two')",
    );
    pair.shop.wait_for(&receiver);
    assert_takes_over(&receiver);
    assert_eq!(begun(&receiver), 2, "{:?}", receiver.told());
    receiver.stop();
    lead_to_latest(&pair.shop, &["full", "behind"]);
    let _ = verify(&pair.shop).expect(0);
}

/// Waits for the end of a connection, for this reason.
fn ends_because(receiver: &Receiver, reason: &str) {
    receiver.wait_to_tell(|notice| match notice {
        Notice::Disconnected(why) if why.contains(reason) => Some(()),
        _ => None,
    });
}

/// How many streams a receiver has begun.
fn begun(receiver: &Receiver) -> usize {
    receiver.told().iter().filter(|notice| matches!(notice, Notice::Begins { .. })).count()
}

/// Why neither of two servers is received from.
const BOTH: &str = "both accept writes";

/// The log of each lacks what the other one commits, and nothing tells which of them the applications use.
#[test]
fn two_servers_that_can_be_written_to_are_not_archived() {
    let mut pair = Pair::new(&["--read-only=ON"]);
    let receiver = pair.receive_from([&pair.shop.server, &pair.replica]);
    pair.shop.server.sql("INSERT INTO d.t VALUES (1, 'one')");
    pair.shop.wait_for(&receiver);
    pair.catch_up();
    // The replica is promoted, and the server does not know that.
    promote(&pair.replica);
    pair.replica.sql("SET GLOBAL read_only = OFF");
    ends_because(&receiver, BOTH);
    let before = begun(&receiver);
    std::mem::swap(&mut pair.shop.server, &mut pair.replica);
    pair.shop.server.sql("FLUSH BINARY LOGS; INSERT INTO d.t VALUES (2, 'new')");
    pair.replica.sql("SET GLOBAL read_only = ON");
    pair.shop.wait_for(&receiver);
    assert_takes_over(&receiver);
    let ends = || {
        let both =
            |notice: &&Notice| matches!(notice, Notice::Disconnected(why) if why.contains(BOTH));
        receiver.told().iter().filter(both).count()
    };
    let known = ends();
    // It comes back as it was.
    pair.replica.sql("SET GLOBAL read_only = OFF");
    receiver.wait_to_tell(|_| (ends() > known).then_some(()));
    pair.shop.server.sql("INSERT INTO d.t VALUES (3, 'three')");
    pair.replica.sql("SET GLOBAL read_only = ON");
    pair.shop.wait_for(&receiver);
    assert!(begun(&receiver) > before, "{:?}", receiver.told());
    receiver.stop();
    lead_to_latest(&pair.shop, &["full"]);
    let _ = verify(&pair.shop).expect(0);
}

/// Both servers run on, so nothing ends the connection to the one that is a replica now.
/// The old server was idle, and had purged the log with its last transaction: the archive ends with a stream that has none.
#[test]
fn a_server_takes_over_behind_a_stream_without_transactions() {
    let mut pair = Pair::new(&[]);
    let receiver = pair.shop.receive();
    let _ = pair.shop.back_up("full", &[]);
    pair.shop.server.sql("INSERT INTO d.t VALUES (1, 'one'); FLUSH BINARY LOGS");
    pair.shop.wait_for(&receiver);
    receiver.stop();
    pair.catch_up();
    // InnoDB needs a log for a moment.
    while !pair.shop.server.sql("SHOW BINARY LOGS").starts_with("bin.000002") {
        pair.shop.server.sql("PURGE BINARY LOGS TO 'bin.000002'");
    }
    let receiver = pair.shop.receive();
    pair.shop.wait_for(&receiver);
    receiver.stop();
    pair.fail_over();
    pair.shop.server.sql("INSERT INTO d.t VALUES (2, 'two')");
    let receiver = pair.shop.receive();
    pair.shop.wait_for(&receiver);
    assert_takes_over(&receiver);
    receiver.stop();
    assert!(streams(&pair.shop).iter().all(|stream| stream["begins"] != "gap"));
    lead_to_latest(&pair.shop, &["full"]);
}

#[test]
fn a_receiver_follows_a_planned_switch() {
    let mut pair = Pair::new(&["--read-only=ON"]);
    let receiver = pair.receive_from([&pair.shop.server, &pair.replica]);
    pair.shop.server.sql("INSERT INTO d.t VALUES (1, 'one')");
    pair.shop.wait_for(&receiver);
    pair.shop.server.sql("SET GLOBAL read_only = ON");
    pair.catch_up();
    promote(&pair.replica);
    pair.replica.sql("SET GLOBAL read_only = OFF; FLUSH BINARY LOGS");
    replicate(&pair.shop.server, pair.ports[1]);
    std::mem::swap(&mut pair.shop.server, &mut pair.replica);
    pair.shop.server.sql("INSERT INTO d.t VALUES (2, 'two')");
    receiver.wait_to_tell(|notice| match notice {
        Notice::Begins { begins: StreamOrigin::Continues { at: Some(_), .. }, .. } => Some(()),
        _ => None,
    });
    // The second one may have come by the old primary's log, and so be in no segment of the new one.
    pair.shop.server.sql("INSERT INTO d.t VALUES (3, 'three')");
    pair.shop.wait_for(&receiver);
    receiver.stop();
    lead_to_latest(&pair.shop, &["full"]);
}

/// Its source may have committed what it lacks.
#[test]
fn the_silence_of_a_replica_covers_no_time() {
    let mut pair = Pair::new(&[]);
    // The replica is the one that is archived.
    std::mem::swap(&mut pair.shop.server, &mut pair.replica);
    let (source, port) = (&pair.replica, pair.ports[0]);
    applied(&pair.shop.server, source.sql("SELECT @@GLOBAL.gtid_binlog_pos").trim());
    let receiver = pair.shop.receive();
    let _ = pair.shop.back_up("full", &[]);
    source.sql("INSERT INTO d.t VALUES (1, 'one')");
    applied(&pair.shop.server, source.sql("SELECT @@GLOBAL.gtid_binlog_pos").trim());
    pair.shop.wait_for(&receiver);
    let why = receiver.wait_to_tell(|notice| match notice {
        Notice::Uncovered(why) => why,
        _ => None,
    });
    assert!(why.contains(&format!("replicates 127.0.0.1:{port}")), "{why}");
    pair.shop.server.sql("STOP SLAVE SQL_THREAD");
    source.sql("INSERT INTO d.t VALUES (2, 'two')");
    let covered = |notice: Notice| matches!(notice, Notice::Covered(_)).then_some(());
    assert!(!receiver.told().into_iter().any(|told| covered(told).is_some()), "{why}");
    // The backup has an end in whole seconds.
    let backed_up = pair.shop.now();
    while pair.shop.now() < backed_up + 2 {}
    let stop = jiff::Timestamp::from_second(pair.shop.now()).unwrap().to_string();
    let refused = pair.shop.refused("full", &stop, &[]);
    assert!(refused.contains("does not reach the stop"), "{refused}");
    // Once it is the primary, it speaks for itself.
    promote(&pair.shop.server);
    receiver.wait_to_tell(covered);
    receiver.stop();
}

/// No variable shows the tables that a server leaves out.
#[test]
fn a_server_that_leaves_transactions_out_does_not_continue_the_archive() {
    let mut pair = Pair::new(&["--binlog-ignore-db=x"]);
    let receiver = pair.shop.receive();
    let _ = pair.shop.back_up("full", &[]);
    pair.shop.server.sql("INSERT INTO d.t VALUES (1, 'one')");
    pair.shop.wait_for(&receiver);
    receiver.stop();
    pair.catch_up();
    pair.replica.sql(
        "STOP SLAVE; RESET SLAVE ALL; CHANGE MASTER 'old' TO master_host = '127.0.0.1', master_user = 'r';
         SET GLOBAL old.replicate_do_db = 'd'",
    );
    pair.take_place();
    pair.shop.server.sql("INSERT INTO d.t VALUES (2, 'two')");
    let receiver = pair.shop.receive();
    pair.shop.wait_for(&receiver);
    let StreamOrigin::Gap { reason, .. } = begins(&receiver) else {
        panic!("{:?}", receiver.told())
    };
    for filter in ["Binlog_Ignore_DB=x", "Replicate_Do_DB=d"] {
        assert!(reason.contains(filter), "{reason}");
    }
    receiver.stop();
    let _ = pair.shop.refused("full", "latest", &[]);
}

/// A receiver that can be killed.
fn spawn(shop: &Shop) -> Child {
    Command::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["--no-defaults", "binlog", "receive"])
        .arg(format!("file://{}", shop.scratch.join("shop").display()))
        .args(["--server=shop", "--rpo=1s", &shop.key().unwrap()])
        .arg(format!("--source={}", shop.server.socket().display()))
        .arg(format!("--state-dir={}", shop.scratch.join("state").display()))
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn objects(folder: &Path) -> usize {
    let mut found = 0;
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        found += if path.is_dir() { objects(&path) } else { 1 };
    }
    found
}

#[test]
fn a_receiver_that_is_killed_while_it_changes_the_server_loses_and_doubles_nothing() {
    let mut pair = Pair::new(&["--slave-domain-parallel-threads=2"]);
    let receiver = pair.shop.receive();
    let _ = pair.shop.back_up("full", &[]);
    pair.shop.server.sql("INSERT INTO d.t VALUES (1, 'one')");
    pair.catch_up();
    let lock = locked(&pair.replica, "d.e");
    pair.shop
        .server
        .sql("SET gtid_domain_id = 7; UPDATE d.e SET n = n + 3; UPDATE d.e SET n = n * 10");
    pair.shop.wait_for(&receiver);
    receiver.stop();
    // So that the new server repeats transactions between new ones, over three logs.
    for id in 2..6 {
        pair.shop.server.sql(&format!("INSERT INTO d.t VALUES ({id}, 'new')"));
        applied(&pair.replica, &of_domain("0-", &pair.shop.gtid()));
        pair.replica.sql("FLUSH BINARY LOGS");
    }
    drop(lock);
    pair.catch_up();
    pair.fail_over();
    pair.shop.server.sql(
        "INSERT INTO d.t VALUES (7, 'seven'); FLUSH BINARY LOGS; DELETE FROM d.t WHERE id = 1",
    );
    let (archive, kept) = (pair.shop.scratch.join("shop"), pair.shop.scratch.join("kept"));
    copy_folder(&archive, &kept);
    let begun = objects(&archive);
    for round in 0..12 {
        std::fs::remove_dir_all(&archive).unwrap();
        copy_folder(&kept, &archive);
        let _ = std::fs::remove_dir_all(pair.shop.scratch.join("state"));
        // Once it has stored so many objects; the first time before any.
        let mut child = spawn(&pair.shop);
        let mut looks = 0;
        while objects(&archive) < begun + round && looks < 400 {
            looks += 1;
            std::thread::sleep(Duration::from_millis(5));
        }
        child.kill().unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.signal(), Some(9), "round {round}: {status}");
        // A second one dies, too, where the first one left off.
        let mut child = spawn(&pair.shop);
        let goal = objects(&archive) + 2;
        let mut looks = 0;
        while objects(&archive) < goal && looks < 200 {
            looks += 1;
            std::thread::sleep(Duration::from_millis(5));
        }
        child.kill().unwrap();
        let _ = child.wait().unwrap();
        pair.shop.server.sql(&format!("INSERT INTO d.t VALUES ({}, 'round')", 100 + round));
        let receiver = pair.shop.receive();
        pair.shop.wait_for(&receiver);
        assert!(
            matches!(begins(&receiver), StreamOrigin::Continues { .. }),
            "{:?}",
            receiver.told()
        );
        receiver.stop();
        let _ = verify(&pair.shop).expect(0);
        let dry = pair.shop.restore("full", "latest", &["--dry-run", "--json"]).run().expect(0);
        let end = of_domain("0-", &pair.shop.gtid());
        assert!(dry.stdout_text().contains(&end), "{end}: {}", dry.stdout_text());
        if round % 4 == 3 {
            let rows = pair.shop.server.sql(TABLES);
            assert_eq!(restored(&pair.shop, "full", "latest"), rows, "round {round}");
        }
    }
}

/// Options of each node beside those of a cluster.
pub(super) fn node_options(cluster: &Cluster, node: u8, gtid_mode: &str) -> String {
    // The stock program for a state transfer listens on this port of all addresses.
    let receive = format!("{}:{}", cluster.address(node), free_port());
    format!(
        "wsrep-sst-method=mariabackup\nlog-bin=bin\nlog-slave-updates=ON\nserver-id=1\n\
         wsrep-sst-receive-address={receive}\nwsrep-gtid-mode={gtid_mode}\nwsrep-gtid-domain-id=7\ngtid-domain-id={}\n",
        10 + node
    )
}

pub(super) fn position(cluster: &Cluster, node: u8) -> String {
    let status = cluster.sql(node, "SHOW MASTER STATUS");
    let mut columns = status.trim().split('\t');
    format!("{}:{}", columns.next().unwrap(), columns.next().unwrap())
}

/// A cluster of three nodes, with an archive and a backup of node 2.
pub(super) fn archived_cluster(gtid_mode: &str) -> (Cluster, Shop, Receiver) {
    let mut cluster = Cluster::new(3, &[]);
    for node in 1..=3 {
        cluster.configure(node, "", &node_options(&cluster, node, gtid_mode));
    }
    cluster.bootstrap();
    cluster.sql(
        1,
        "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v LONGTEXT);
         CREATE TABLE d.m (id INT PRIMARY KEY); CREATE TABLE d.e (id INT PRIMARY KEY, n INT);
         INSERT INTO d.e VALUES (1, 0)",
    );
    for node in [2, 3] {
        cluster.start(node);
        cluster.wait_synced(node);
    }
    let scratch = Scratch::new();
    std::fs::write(scratch.join("key"), KEY).unwrap();
    std::fs::create_dir(scratch.join("shop")).unwrap();
    let shop = Shop { server: MariaDb::start_with(&["--server-id=9"]), scratch, sealed: true };
    cluster.sql(1, "INSERT INTO d.t VALUES (1, 'before')");
    synced(&cluster, 2);
    cluster.sql(2, "UPDATE d.e SET n = n + 1");
    let receiver = shop.receive_from(&cluster.socket(2));
    back_up_node(&cluster, &shop, 2, "full");
    cluster.sql(2, "INSERT INTO d.t VALUES (2, 'on two'); UPDATE d.e SET n = n + 1");
    cluster.sql(1, "INSERT INTO d.t VALUES (3, 'on one')");
    synced(&cluster, 2);
    wait_until(&receiver, &position(&cluster, 2));
    (cluster, shop, receiver)
}

pub(super) fn back_up_node(cluster: &Cluster, shop: &Shop, node: u8, name: &str) {
    let _ = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["backup", "--quiet", &shop.place(name), "--server=shop"])
        .arg(format!("--state-dir={}", shop.scratch.join("state").display()))
        .args(shop.key())
        .arg("--")
        .arg(find("mariadb-backup"))
        .args(["--no-defaults", "--backup", "--stream=xbstream", "--user=root"])
        .arg(format!("--socket={}", cluster.socket(node).display()))
        .arg(format!("--datadir={}", cluster.datadir(node).display()))
        .arg(format!("--target-dir={}", cluster.scratch().display()))
        .run()
        .expect(0);
}

/// Cuts a node off from the others, and makes it a cluster of its own: both sides commit then.
fn split_off(cluster: &Cluster, node: u8) {
    let waits_for = |status: &str, value: &str| {
        let is_so = || cluster.sql(node, &format!("SHOW STATUS LIKE '{status}'")).contains(value);
        let mut looks = 0;
        while !is_so() {
            looks += 1;
            assert!(looks < 12_000, "{status} is not {value}: {}", cluster.log(node));
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    cluster.sql(node, "SET GLOBAL wsrep_provider_options = 'gmcast.isolate=1'");
    waits_for("wsrep_cluster_status", "non-Primary");
    cluster.sql(node, "SET GLOBAL wsrep_provider_options = 'pc.bootstrap=1'");
    waits_for("wsrep_ready", "ON");
}

/// Waits until a node has applied everything that others have committed.
pub(super) fn synced(cluster: &Cluster, node: u8) {
    synced_on(cluster, node, "d.t");
}

pub(super) fn synced_on(cluster: &Cluster, node: u8, table: &str) {
    cluster.sql(node, &format!("SET wsrep_sync_wait = 15; SELECT COUNT(*) FROM {table}"));
}

#[test]
fn the_archive_continues_on_another_node_of_galera() {
    let (mut cluster, shop, receiver) = archived_cluster("ON");
    receiver.stop();
    cluster.sql(1, "INSERT INTO d.t VALUES (4, 'unarchived')");
    synced(&cluster, 3);
    let rows_unarchived = cluster.sql(3, TABLES);
    let unarchived = of_domain("7-", &cluster.sql(3, "SELECT @@GLOBAL.gtid_binlog_pos"));
    cluster.kill(2);
    cluster.sql(3, "DELETE FROM d.t WHERE id = 1; UPDATE d.e SET n = n + 1");
    let receiver = shop.receive_from(&cluster.socket(3));
    wait_until(&receiver, &position(&cluster, 3));
    assert_takes_over(&receiver);
    cluster.sql(3, "FLUSH BINARY LOGS");
    cluster.sql(1, "INSERT INTO d.t VALUES (5, 'five'); UPDATE d.e SET n = n * 10");
    synced(&cluster, 3);
    wait_until(&receiver, &position(&cluster, 3));
    receiver.stop();
    let rows = cluster.sql(3, TABLES);
    assert_eq!(restored(&shop, "full", "latest"), rows);
    assert_eq!(restored(&shop, "full", &unarchived), rows_unarchived);
    let _ = verify(&shop).expect(0);
    let all = streams(&shop);
    assert_eq!(all[0]["origin"]["node"], "node2");
    assert_eq!(all.last().unwrap()["origin"]["node"], "node3");
    // The first node has transactions of its own: from its creation, before the others joined.
    let receiver = shop.receive_from(&cluster.socket(1));
    let begun = begins(&receiver);
    eprintln!("node 1: {begun:?}");
    receiver.stop();
}

#[test]
fn the_archive_of_a_node_is_replayed_across_a_rescue_into_it() {
    let (cluster, shop, receiver) = archived_cluster("ON");
    cluster.sql(1, "DROP TABLE d.t");
    synced_on(&cluster, 2, "d.e");
    let _ = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["--no-defaults", "rescue", &shop.place("full"), "d.t", "--as={table}"])
        .env("STATE_DIRECTORY", shop.scratch.join("nothing"))
        .args(shop.key())
        .arg(format!("--into={}", cluster.socket(2).display()))
        .run()
        .expect(0);
    let rescued = "SELECT id, v FROM d.t";
    assert_eq!(cluster.sql(2, rescued), "1\tbefore\n");
    cluster.sql(2, "INSERT INTO d.t VALUES (7, 'on two'); UPDATE d.e SET n = n + 1");
    synced(&cluster, 1);
    cluster.sql(1, "UPDATE d.t SET v = 'on one' WHERE id = 1");
    synced(&cluster, 2);
    wait_until(&receiver, &position(&cluster, 2));
    receiver.stop();
    let rows = cluster.sql(2, TABLES);
    for node in [1, 3] {
        synced(&cluster, node);
        assert_eq!(cluster.sql(node, TABLES), rows, "node {node}");
    }
    assert_eq!(restored(&shop, "full", "latest"), rows);
}

#[test]
fn another_node_with_gtids_of_its_own_does_not_continue_the_archive() {
    let (cluster, shop, receiver) = archived_cluster("OFF");
    receiver.stop();
    cluster.sql(3, "INSERT INTO d.t VALUES (4, 'four')");
    let receiver = shop.receive_from(&cluster.socket(3));
    let StreamOrigin::Gap { reason, .. } = begins(&receiver) else {
        panic!("{:?}", receiver.told())
    };
    assert!(reason.contains("wsrep_gtid_mode=OFF") && reason.contains("node3"), "{reason}");
    receiver.stop();
    let refused = shop.refused("full", "latest", &[]);
    assert!(refused.contains("wsrep_gtid_mode=OFF"), "{refused}");
}

#[test]
fn a_transaction_that_a_killed_node_of_galera_did_not_pass_on_makes_a_branch() {
    let (mut cluster, shop, receiver) = archived_cluster("ON");
    receiver.stop();
    // The same receiver finds the node that is left.
    let receiver = shop.receive_from_any(&[&cluster.socket(2), &cluster.socket(3)]);
    let own = |cluster: &Cluster, node| {
        of_domain("7-", &cluster.sql(node, "SELECT @@GLOBAL.gtid_binlog_pos"))
    };
    cluster.sql(2, "INSERT INTO d.t VALUES (4, 'for all')");
    let (before, rows_before) = (own(&cluster, 2), cluster.sql(2, TABLES));
    synced(&cluster, 3);
    split_off(&cluster, 2);
    cluster.sql(2, "INSERT INTO d.t VALUES (5, 'lost'); UPDATE d.e SET n = 1000");
    let lost = own(&cluster, 2);
    wait_until(&receiver, &position(&cluster, 2));
    cluster.kill(2);
    // Transactions with the numbers of the lost ones.
    cluster.sql(3, "INSERT INTO d.t VALUES (5, 'kept'); UPDATE d.e SET n = n + 1");
    assert_eq!(own(&cluster, 3), lost);
    cluster.sql(3, "INSERT INTO d.t VALUES (6, 'more')");
    let after = own(&cluster, 3);
    wait_until(&receiver, &position(&cluster, 3));
    let StreamOrigin::Branch { reason, .. } = begins(&receiver) else {
        panic!("{:?}", receiver.told());
    };
    assert!(reason.contains("node3") && reason.contains(&lost), "{reason}");
    let branch = streams(&shop).pop().unwrap()["stream"].as_str().unwrap().to_owned();
    for stop in ["latest", &after] {
        let refused = shop.refused("full", stop, &[]);
        assert!(refused.contains("starts over") || refused.contains("not reach"), "{refused}");
    }
    // The GTID alone does not tell which of the two is meant: the branch is named.
    let planned = shop.restore("full", &lost, &["--dry-run"]).run().expect(0).stdout_text();
    assert!(planned.contains(&branch) && planned.contains("n = 1000"), "{planned}");
    assert_eq!(restored(&shop, "full", &before), rows_before);
    let _ = verify(&shop).expect(7);
    back_up_node(&cluster, &shop, 3, "new");
    cluster.sql(3, "INSERT INTO d.t VALUES (7, 'seven')");
    wait_until(&receiver, &position(&cluster, 3));
    receiver.stop();
    let rows = cluster.sql(3, TABLES);
    assert_eq!(restored(&shop, "new", "latest"), rows);
    assert!(rows.contains("kept") && !rows.contains("lost"), "{rows}");
}
