//! A real Galera cluster of MariaDB servers on its own loopback addresses.
//!
//! Every cluster takes a random `127.A.B.0/24`, so that nodes can use the usual ports and clusters
//! of several test programs do not collide. A node without data asks for a state transfer when it
//! starts. The method's program is found in a directory at the front of the servers' PATH.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::process::command::{Cmd, Ran};
use crate::process::daemon::{Daemon, Scratch};
use crate::process::tools::find;
use crate::servers::listens;
use crate::servers::new_data::{as_user, copy_new_data, install};

/// Time limit for a node to become synced or to fail.
pub const LIMIT: Duration = Duration::from_secs(300);
/// Size of the redo log. A server that finds another one makes its log anew.
const LOG_SIZE: &str = "--innodb-log-file-size=16M";

/// A data set over four engines, loaded without replication: node 1 must be alone.
const SAMPLE: &str = "
SET wsrep_on=OFF;
CREATE DATABASE shop CHARACTER SET utf8mb4;
USE shop;
CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(200), state VARCHAR(12), KEY (state)) ENGINE=InnoDB;
CREATE TABLE noise (id INT PRIMARY KEY, b BLOB) ENGINE=InnoDB;
CREATE TABLE packed (id INT PRIMARY KEY, v VARCHAR(400)) ENGINE=InnoDB ROW_FORMAT=COMPRESSED;
CREATE TABLE parted (id INT PRIMARY KEY, v CHAR(40)) ENGINE=InnoDB PARTITION BY HASH(id) PARTITIONS 3;
CREATE TABLE old_isam (id INT PRIMARY KEY, v CHAR(40), KEY (v)) ENGINE=MyISAM;
CREATE TABLE old_aria (id INT PRIMARY KEY, v CHAR(40), KEY (v)) ENGINE=Aria;
CREATE TABLE versions (id INT PRIMARY KEY, v CHAR(40)) ENGINE=InnoDB WITH SYSTEM VERSIONING;
CREATE SEQUENCE numbers NOCACHE INCREMENT BY 0 ENGINE=InnoDB;
CREATE VIEW some_orders AS SELECT * FROM orders WHERE id < 10;
INSERT INTO orders SELECT seq, REPEAT(MD5(seq DIV 7), 3), ELT(1 + seq MOD 3, 'new', 'paid', 'sent') FROM seq_1_to_40000;
INSERT INTO noise SELECT seq, CONCAT(RANDOM_BYTES(1024), RANDOM_BYTES(1024), RANDOM_BYTES(1024)) FROM seq_1_to_2000;
INSERT INTO packed SELECT seq, REPEAT(SHA1(seq), 6) FROM seq_1_to_3000;
INSERT INTO parted SELECT seq, SHA1(seq) FROM seq_1_to_3000;
INSERT INTO old_isam SELECT seq, SHA1(seq) FROM seq_1_to_3000;
INSERT INTO old_aria SELECT seq, SHA1(seq) FROM seq_1_to_3000;
INSERT INTO versions SELECT seq, SHA1(seq) FROM seq_1_to_3000;
DELETE FROM versions WHERE id MOD 3 = 0;
";

/// Statements that the writer repeats until it is stopped.
const WRITER: &str = "
CREATE DATABASE live;
CREATE TABLE live.stop (id INT PRIMARY KEY) ENGINE=InnoDB;
CREATE TABLE live.w (id INT PRIMARY KEY, v CHAR(32)) ENGINE=InnoDB;
DELIMITER //
CREATE PROCEDURE live.write_on()
BEGIN
  DECLARE n INT DEFAULT (SELECT COALESCE(MAX(id), 0) FROM live.w);
  REPEAT
    SET n = n + 1;
    INSERT INTO live.w VALUES (n, MD5(n));
    DO SLEEP(0.002);
  UNTIL EXISTS (SELECT 1 FROM live.stop) END REPEAT;
END //
";

/// A cluster. When dropped, its servers are killed and all its files are removed.
#[derive(Debug)]
pub struct Cluster {
    nodes: BTreeMap<u8, Daemon>,
    net: String,
    size: u8,
    path: String,
    writer: Option<Daemon>,
    roots: BTreeMap<u8, PathBuf>,
    // The last field, so that the directory is removed after the servers are gone.
    scratch: Scratch,
}

impl Cluster {
    /// Creates a cluster of up to `size` nodes, none of them running. `programs` are linked, under
    /// their names, into the directory at the front of the servers' PATH.
    ///
    /// # Panics
    /// If the directories cannot be created.
    #[must_use]
    pub fn new(size: u8, programs: &[&Path]) -> Self {
        let scratch = Scratch::new();
        let bin = scratch.dir("bin");
        for program in programs {
            let name = program.file_name().expect("a program has a name");
            std::os::unix::fs::symlink(program, bin.join(name)).expect("link to the program");
        }
        // The directory's name is random, so the addresses derived from it are, too.
        let seed = scratch.path().as_os_str().as_encoded_bytes().iter();
        let hash = seed.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let net = format!("127.{}.{}", 16 + hash % 200, 1 + (hash >> 32) % 250);
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}:/usr/sbin:/sbin", bin.display());
        let (nodes, roots) = (BTreeMap::new(), BTreeMap::new());
        let cluster = Self { nodes, net, size, path, writer: None, roots, scratch };
        for node in 1..=size {
            cluster.configure(node, "", "");
        }
        cluster
    }

    /// Runs a node's programs in another root directory, in which the cluster's directories and the
    /// checkout have the same paths.
    pub fn below(&mut self, node: u8, root: &Path) {
        self.roots.insert(node, root.to_owned());
    }

    /// Returns the command that runs one of a node's programs.
    fn program(&self, node: u8, name: &str) -> Vec<String> {
        let path = format!("PATH={}", self.path);
        match self.roots.get(&node) {
            None => vec![find("env").display().to_string(), path, find(name).display().to_string()],
            Some(root) => {
                let chroot = find("chroot").display().to_string();
                [chroot, root.display().to_string(), "env".into(), path, name.into()].into()
            }
        }
    }

    /// Starts a new cluster on node 1 and loads some data.
    ///
    /// # Panics
    /// If the node does not start.
    pub fn bootstrap(&mut self) {
        self.bootstrap_with(&[]);
    }

    /// Like [`Cluster::bootstrap`], with options of the server that count when its data is created.
    ///
    /// # Panics
    /// If the node does not start.
    pub fn bootstrap_with(&mut self, options: &[&str]) {
        let datadir = self.datadir(1);
        // Otherwise the first start may not be able to create undo tablespaces.
        let plain = [LOG_SIZE, "--innodb-fast-shutdown=0"];
        if self.roots.contains_key(&1) {
            let program = self.program(1, "mariadb-install-db");
            install(&program, &[&plain[..], options].concat(), self.scratch.path(), &datadir);
        } else {
            copy_new_data(&plain, options, &datadir);
        }
        self.launch(1, &["--wsrep-new-cluster".to_owned()]);
        self.wait_synced(1);
        self.sql(1, SAMPLE);
        self.sql(1, WRITER);
    }

    /// Writes the node's option file: `sst` are lines for the group `[sst]`, `server` for
    /// `[mysqld]`.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn configure(&self, node: u8, sst: &str, server: &str) {
        let folder = self.scratch.join(format!("node{node}"));
        std::fs::create_dir_all(folder.join("data")).expect("node's folder");
        std::fs::create_dir_all(folder.join("tmp")).expect("node's folder");
        let folder = folder.display();
        let all: Vec<String> = (1..=self.size).map(|n| self.address(n)).collect();
        let address = self.address(node);
        // Node 1 outvotes all others, so that it keeps running when they are killed.
        let weight = if node == 1 { self.size } else { 1 };
        let text = format!(
            "[mysqld]\n\
             datadir={folder}/data\nsocket={folder}/sock\npid-file={folder}/pid\ntmpdir={folder}/tmp\n\
             log-error={folder}/error.log\nbind-address={address}\nport=3306\nskip-name-resolve\n\
             performance-schema=OFF\nbinlog-format=ROW\ninnodb-autoinc-lock-mode=2\n\
             innodb-buffer-pool-size=64M\n{log_size}\ninnodb-flush-log-at-trx-commit=0\n\
             innodb-doublewrite=OFF\nwsrep-on=ON\nwsrep-provider={provider}\nwsrep-cluster-name={net}\n\
             wsrep-cluster-address=gcomm://{all}\nwsrep-node-name=node{node}\n\
             wsrep-node-address={address}\nwsrep-sst-method=xbrs\nwsrep-sst-receive-address={address}\n\
             wsrep-sst-donor=node1\nwsrep-sst-auth=root:\n\
             wsrep-provider-options=\"gcache.size=16M;gmcast.listen_addr=tcp://{address}:4567;\
             ist.recv_addr={address}:4568;pc.recovery=false;pc.weight={weight}\"\n{server}\n\
             [sst]\ntmpdir={folder}/tmp\n{sst}\n",
            log_size = &LOG_SIZE[2..],
            provider = provider().display(),
            net = self.net,
            all = all.join(","),
        );
        std::fs::write(self.option_file(node), text).expect("option file");
    }

    /// The option file of a node.
    #[must_use]
    pub fn option_file(&self, node: u8) -> PathBuf {
        self.scratch.join(format!("node{node}/my.cnf"))
    }

    /// The address that a node listens on.
    #[must_use]
    pub fn address(&self, node: u8) -> String {
        format!("{}.{node}", self.net)
    }

    /// Directory that lives as long as the cluster.
    #[must_use]
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// The data directory of a node.
    #[must_use]
    pub fn datadir(&self, node: u8) -> PathBuf {
        self.scratch.join(format!("node{node}/data"))
    }

    /// The socket of a node.
    #[must_use]
    pub fn socket(&self, node: u8) -> PathBuf {
        self.scratch.join(format!("node{node}/sock"))
    }

    /// Starts a node on its existing data. Does not wait.
    pub fn start(&mut self, node: u8) {
        self.launch(node, &[]);
    }

    /// Begins a cluster on a node's existing data, as the units of the server do, and waits: with the position that the server
    /// finds in that data.
    ///
    /// # Panics
    /// If the node does not start.
    pub fn begin_again(&mut self, node: u8) {
        let program = self.program(node, "mariadbd");
        let options = format!("--defaults-file={}", self.option_file(node).display());
        let recover = Cmd::new(&program[0]).args(&program[1..]).arg(options).args(as_user());
        let _ = recover.arg("--wsrep-recover").limit(LIMIT).run().expect(0);
        let log = self.log(node);
        let (_, position) = log.rsplit_once("Recovered position: ").expect("a position");
        let position = position.lines().next().unwrap_or_default().trim();
        let begin =
            ["--wsrep-new-cluster".to_owned(), format!("--wsrep-start-position={position}")];
        self.launch(node, &begin);
        self.wait_synced(node);
    }

    fn launch(&mut self, node: u8, more: &[String]) {
        let _ = std::fs::remove_file(self.scratch.join(format!("node{node}/error.log")));
        let mut args = self.program(node, "mariadbd");
        let program = PathBuf::from(args.remove(0));
        args.push(format!("--defaults-file={}", self.option_file(node).display()));
        args.extend(as_user());
        args.extend(more.iter().cloned());
        self.start_as(node, &program, &args);
    }

    /// Starts a command that becomes the node's server. Does not wait.
    pub fn start_as(&mut self, node: u8, program: &Path, args: &[String]) {
        let log = self.scratch.join(format!("node{node}/stdout.log"));
        self.nodes.insert(node, Daemon::start(program, args, &log));
    }

    /// Dumps, checks and upgrades all databases of a node with the server's own clients.
    ///
    /// # Panics
    /// If one of them fails, or sees a directory of a state transfer.
    pub fn use_all_databases(&self, node: u8) {
        let socket = format!("--socket={}", self.socket(node).display());
        let client = |name: &str, words: &[&str]| {
            let words = [&["--no-defaults", "--user=root", &socket], words].concat();
            let mut command = self.program(node, name);
            command.extend(words.into_iter().map(str::to_owned));
            Cmd::new(&command[0]).args(&command[1..]).limit(LIMIT).run().expect(0).stdout_text()
        };
        // A node of a cluster refuses LOCK TABLES for a sequence.
        let dump = client("mariadb-dump", &["--all-databases", "--skip-lock-tables"]);
        assert!(dump.contains("CREATE TABLE `orders`"));
        assert!(client("mariadb-check", &["--all-databases"]).contains("shop.orders"));
        let _ = client("mariadb-upgrade", &["--force"]);
        for text in [&dump, &client("mariadb-show", &[])] {
            assert!(!text.contains("#sql-xb"), "{text}");
        }
        let log = self.log(node);
        assert!(!log.contains("Invalid (old?)"), "{log}");
    }

    /// Waits until a node is synced.
    ///
    /// # Panics
    /// With the node's log, if the node ends before that or takes too long.
    pub fn wait_synced(&self, node: u8) {
        let daemon = &self.nodes[&node];
        let synced = || self.state(node) == Some(4);
        // The daemon's own log is empty: show the server's.
        let start = std::time::Instant::now();
        while !synced() {
            let ended = daemon.ended();
            assert!(ended.is_none(), "node {node} has ended ({ended:?}):\n{}", self.log(node));
            assert!(start.elapsed() < LIMIT, "node {node} is not synced:\n{}", self.log(node));
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Returns a node's Galera state: 2 donor, 4 synced; `None` if the node does not answer.
    #[must_use]
    pub fn state(&self, node: u8) -> Option<u32> {
        if !listens(&self.socket(node)) {
            return None;
        }
        let ran = self.client(node, "SHOW STATUS LIKE 'wsrep_local_state'");
        (ran.code() == 0).then(|| ran.stdout_text().split('\t').nth(1)?.trim().parse().ok())?
    }

    /// Waits until a node's server exits on its own.
    ///
    /// # Panics
    /// With the node's log, if it does not end in time.
    pub fn wait_ended(&self, node: u8) {
        let ended = self.nodes[&node].wait(LIMIT);
        assert!(ended.is_some(), "node {node} does not end:\n{}", self.log(node));
    }

    /// Kills a node's server with SIGKILL.
    pub fn kill(&mut self, node: u8) {
        if let Some(daemon) = self.nodes.remove(&node) {
            daemon.kill();
        }
    }

    /// Shuts down a node's server.
    ///
    /// # Panics
    /// If it does not end.
    pub fn stop(&mut self, node: u8) {
        let _ = self.client(node, "SHUTDOWN").expect(0);
        self.wait_ended(node);
        self.nodes.remove(&node);
    }

    /// Kills a node's server and removes its data.
    ///
    /// # Panics
    /// If the data cannot be removed.
    pub fn wipe(&mut self, node: u8) {
        self.kill(node);
        let datadir = self.datadir(node);
        std::fs::remove_dir_all(&datadir).expect("data directory");
        std::fs::create_dir(&datadir).expect("data directory");
    }

    /// The process id of a node's server.
    #[must_use]
    pub fn pid(&self, node: u8) -> u32 {
        self.nodes[&node].pid()
    }

    /// Returns a node's error log since its last start.
    #[must_use]
    pub fn log(&self, node: u8) -> String {
        let log = std::fs::read(self.scratch.join(format!("node{node}/error.log")));
        let own = self.nodes.get(&node).map(Daemon::log).unwrap_or_default();
        format!("{}{own}", String::from_utf8_lossy(&log.unwrap_or_default()))
    }

    /// Runs statements on a node.
    ///
    /// # Panics
    /// With the client's message, if a statement fails.
    #[track_caller]
    pub fn sql(&self, node: u8, statements: &str) -> String {
        self.client(node, statements).expect(0).stdout_text()
    }

    fn client(&self, node: u8, statements: &str) -> Ran {
        let client = Cmd::new(find("mariadb")).args(self.client_args(node));
        client.stdin_bytes(statements).limit(LIMIT).run()
    }

    fn client_args(&self, node: u8) -> [String; 6] {
        [
            "--no-defaults".to_owned(),
            "--user=root".to_owned(),
            format!("--socket={}", self.socket(node).display()),
            "--batch".to_owned(),
            "--skip-column-names".to_owned(),
            // During a state transfer a server accepts connections and does not answer.
            "--connect-timeout=5".to_owned(),
        ]
    }

    /// Returns `CHECKSUM TABLE` of all tables except the server's own, versioned ones and sequences
    /// included, after everything replicated so far.
    ///
    /// # Panics
    /// If there is no table.
    #[must_use]
    pub fn checksums(&self, node: u8) -> String {
        let names = |types: &str| {
            self.sql(
                node,
                &format!(
                    "SELECT CONCAT('`', table_schema, '`.`', table_name, '`') FROM information_schema.tables
                     WHERE table_type {types} AND table_schema NOT IN
                     ('mysql', 'sys', 'information_schema', 'performance_schema') ORDER BY 1"
                ),
            )
        };
        let (tables, sequences) = (names("NOT IN ('VIEW', 'SEQUENCE')"), names("= 'SEQUENCE'"));
        for table in ["`shop`.`versions`", "`live`.`w`"] {
            assert!(tables.lines().any(|line| line == table), "{table} is missing: {tables}");
        }
        assert_eq!(sequences, "`shop`.`numbers`\n");
        let list: Vec<&str> = tables.lines().collect();
        let mut statements = format!("SET wsrep_sync_wait=1; CHECKSUM TABLE {};", list.join(", "));
        // On a node that waits for others, CHECKSUM TABLE of a sequence breaks the connection.
        for sequence in sequences.lines() {
            statements += &format!("SELECT * FROM {sequence};");
        }
        self.sql(node, &statements)
    }

    /// Starts writing on node 1.
    ///
    /// # Panics
    /// If the writer cannot be started.
    pub fn start_writing(&mut self) {
        self.sql(1, "DELETE FROM live.stop");
        let rows = "SELECT COUNT(*) FROM live.w";
        let before = self.sql(1, rows);
        let mut args = self.client_args(1).to_vec();
        args.push("--execute=CALL live.write_on()".to_owned());
        let client = Daemon::start(&find("mariadb"), &args, &self.scratch.join("writer.log"));
        client.wait_ready("the writer", LIMIT, || self.sql(1, rows) != before);
        self.writer = Some(client);
    }

    /// Stops the writer and returns the number of rows in the table.
    ///
    /// # Panics
    /// If the writer has failed.
    pub fn stop_writing(&mut self) -> String {
        let writer = self.writer.take().expect("somebody writes");
        assert!(writer.ended().is_none(), "the writer failed: {}", writer.log());
        self.sql(1, "INSERT INTO live.stop VALUES (1)");
        let status = writer.wait(LIMIT).expect("the writer ends");
        assert!(status.success(), "the writer failed: {}", writer.log());
        self.sql(1, "SELECT COUNT(*) FROM live.w")
    }
}

/// Path of the Galera provider on Debian, Fedora and other systems.
fn provider() -> PathBuf {
    let places = [
        "/usr/lib/galera/libgalera_smm.so",
        "/usr/lib64/galera-4/libgalera_smm.so",
        "/usr/lib64/galera/libgalera_smm.so",
        "/usr/lib/libgalera_smm.so",
    ];
    let found = places.iter().map(PathBuf::from).find(|place| place.exists());
    found.expect("libgalera_smm.so: run scripts/test, it installs what the tests need")
}
