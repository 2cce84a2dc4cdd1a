//! A node without data joins as the unit `xb-join@` lets it: the newest backup comes from the bucket, and a donor sends what
//! differs from it.

use std::path::Path;

use xb_testkit::command::Cmd;
use xb_testkit::galera::{Cluster, LIMIT};
use xb_testkit::tools::{find, workspace};

const PROGRAM: &str = env!("CARGO_BIN_EXE_wsrep_sst_xbrs-rs");

/// 20 MB that no codec shrinks.
const FILL: &str = "USE shop;
    CREATE TABLE shop.large (id INT PRIMARY KEY AUTO_INCREMENT, text VARBINARY(1000)) ENGINE=InnoDB;
    INSERT INTO shop.large (text) SELECT CONCAT(RANDOM_BYTES(500), RANDOM_BYTES(500)) FROM seq_1_to_20000;";

/// Changes after the newest backup.
const CHANGES: &str = "USE shop;
    UPDATE shop.large SET text = RANDOM_BYTES(900) WHERE id BETWEEN 5000 AND 5400;
    CREATE TABLE shop.added ENGINE=InnoDB SELECT seq AS id FROM seq_1_to_3000;
    INSERT INTO shop.orders VALUES (0, 'after the backup', 'new');";

/// One of the package's units, for the repository `shop`.
struct Unit<'a> {
    text: String,
    credentials: &'a Path,
    datadir: &'a Path,
}

impl<'a> Unit<'a> {
    fn read(name: &str, credentials: &'a Path, datadir: &'a Path) -> Self {
        let path = workspace().join("contrib/systemd").join(name);
        Self { text: std::fs::read_to_string(path).unwrap(), credentials, datadir }
    }

    fn all(&self, key: &str) -> Vec<String> {
        let values = self.text.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        let place = |value: &str| {
            value
                .replace("%i", "shop")
                .replace("${CREDENTIALS_DIRECTORY}", self.credentials.to_str().unwrap())
                .replace("/var/lib/mysql", self.datadir.to_str().unwrap())
        };
        values.map(place).collect()
    }

    /// Whether systemd would run it: one of its paths exists, or does not (`!`).
    fn applies(&self) -> bool {
        let conditions = self.all("ConditionPathExists");
        assert!(!conditions.is_empty());
        conditions.iter().any(|condition| {
            let path = condition.strip_prefix('|').unwrap();
            match path.strip_prefix('!') {
                Some(path) => !Path::new(path).exists(),
                None => Path::new(path).exists(),
            }
        })
    }

    /// Runs it. Returns what it has logged.
    fn run(&self, state: &Path) -> String {
        let [line] = &self.all("ExecStart")[..] else { panic!("not one ExecStart") };
        let mut words = line.split(' ');
        let program =
            sibling(Path::new(words.next().unwrap()).file_name().unwrap().to_str().unwrap());
        let unit = Cmd::new(program).args(words).env("XBCLOUD_STATE_DIR", state).limit(LIMIT);
        unit.run().expect(0).stderr_text()
    }
}

/// Starts node 1 again, with a gcache that has nothing.
fn without_write_sets(cluster: &mut Cluster) {
    cluster.stop(1);
    std::fs::remove_file(cluster.datadir(1).join("galera.cache")).unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let mut words = vec![
        format!("PATH={}:{path}:/usr/sbin:/sbin", cluster.scratch().join("bin").display()),
        "mariadbd".to_owned(),
        format!("--defaults-file={}", cluster.option_file(1).display()),
        "--wsrep-new-cluster".to_owned(),
    ];
    if rustix::process::geteuid().is_root() {
        words.push("--user=root".to_owned());
    }
    cluster.start_as(1, &find("env"), &words);
    cluster.wait_synced(1);
}

/// Another program of this workspace.
fn sibling(name: &str) -> std::path::PathBuf {
    let path = Path::new(PROGRAM).with_file_name(name);
    assert!(path.exists(), "cargo build --workspace makes {name}");
    path
}

/// Numbers in the last line of a log that contains `word`.
fn numbers(log: &str, word: &str) -> Vec<u64> {
    let line = log.lines().rfind(|line| line.contains(word)).unwrap_or_else(|| panic!("{log}"));
    let (_, text) = line.split_once(word).unwrap();
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

#[test]
fn an_empty_node_gets_the_newest_backup_and_then_what_differs() {
    let script = workspace().join("scripts/wsrep_sst_xbrs");
    let mut cluster = Cluster::new(2, &[Path::new(PROGRAM), &script]);
    for node in [1, 2] {
        cluster.configure(node, "delta=yes\ncompress=none", "");
    }
    cluster.bootstrap();
    cluster.sql(1, FILL);
    let [credentials, state] = ["credentials", "state"].map(|name| cluster.scratch().join(name));
    std::fs::create_dir(&credentials).unwrap();
    let identity = credentials.join("identity");
    let _ = Cmd::new(sibling("xbcrypt-rs"))
        .args(["keygen", "--identity", "-o"])
        .arg(&identity)
        .run()
        .expect(0);
    let identity = std::fs::read_to_string(identity).unwrap();
    let recipient = identity.lines().find_map(|line| line.strip_prefix("# public key: ")).unwrap();
    let options = format!(
        "[xbcloud.shop]\nroot = file://{scratch}/bucket\nrecipient = {recipient}\n\
         producer = mariadb-backup --no-defaults --backup --stream=xbstream --galera-info --user=root \
         --socket={socket} --datadir={donor} --target-dir={scratch}\n",
        scratch = cluster.scratch().display(),
        socket = cluster.socket(1).display(),
        donor = cluster.datadir(1).display(),
    );
    std::fs::write(credentials.join("options"), options).unwrap();
    let datadir = cluster.datadir(2);
    let unit = |name| Unit::read(name, &credentials, &datadir);
    let _ = unit("xb-backup@.service").run(&state);
    cluster.sql(
        1,
        "USE shop; CREATE TABLE shop.newest ENGINE=InnoDB SELECT seq AS id FROM seq_1_to_3000",
    );
    let _ = unit("xb-backup@.service").run(&state);

    cluster.sql(1, CHANGES);
    without_write_sets(&mut cluster);
    cluster.start(2);
    cluster.wait_synced(2);
    let whole = numbers(&cluster.log(1), "] sent ")[2];
    cluster.wipe(2);

    let join = unit("xb-join@.service");
    assert!(join.applies());
    let log = join.run(&state);
    // The server has not recorded the last statement before this backup in its data.
    assert!(log.contains("but the server's position in its data is"), "{log}");
    assert!(datadir.join("shop/newest.ibd").exists());
    let restored = std::fs::read_to_string(datadir.join("grastate.dat")).unwrap();
    assert!(!restored.contains("seqno:   -1"), "{restored}");
    assert!(!join.applies(), "the server starts on this data");
    cluster.start(2);
    cluster.wait_synced(2);
    assert_eq!(cluster.checksums(2), cluster.checksums(1));
    let (donor, joiner) = (cluster.log(1), cluster.log(2));
    assert!(joiner.contains("SST: full backup"), "the donor has no write sets for it: {joiner}");
    let [asked, equal, ..] = numbers(&donor, "delta: asked about ")[..] else { panic!("{donor}") };
    let sent = numbers(&donor, "] sent ")[2];
    println!("of {whole} MiB: asked about {asked}, equal {equal}, on the wire {sent}");
    // The table has some 24 MiB, of which a run of pages has changed.
    assert!(equal >= 18, "{donor}");
    // The blocks that differ, and the redo log.
    assert!(sent + equal <= asked + 20 && sent + 18 <= whole, "{donor}");
    assert!(joiner.contains("are copies of this node's old data"), "{joiner}");
    // The data from the bucket is the old data now.
    assert!(datadir.join("#sql-xb/.old/shop/newest.ibd").exists());
    assert!(!join.applies());
    cluster.use_all_databases(2);
}
