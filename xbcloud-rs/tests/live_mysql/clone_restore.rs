//! Clones of a real MySQL, stored, verified and restored: with every kind of table and page size, with files
//! outside of the data directory while their owner runs, with keys, and with kills of the private server.
//!
//! Few systems have MySQL: `scripts/on-release sid mysql` runs these tests in a chroot. Elsewhere they
//! do nothing, and say so.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use xb_clone::{INFO, Notice, PATCHES, Settings};
use xb_mysql::{Account, Client, Fingerprint, Target, Timeouts, Trust};
use xb_testkit::command::{Cmd, Ran, Running};
use xb_testkit::daemon::Scratch;
use xb_testkit::data::Noise;
use xb_testkit::mysql::{MySql, is_installed};
use xb_testkit::ports::free_port;
use xb_testkit::stream::{MAGIC, StreamWriter};

fn skipped() -> bool {
    let missing = !is_installed();
    if missing {
        xb_testkit::skipped("this system has no MySQL; see scripts/on-release");
    }
    missing
}

const BASICS: &str = "INSTALL PLUGIN clone SONAME 'mysql_clone.so';
    CREATE USER backup@'%' IDENTIFIED BY 'secret'; GRANT BACKUP_ADMIN, REFERENCES ON *.* TO backup@'%';
    SET SESSION cte_max_recursion_depth=100000; CREATE DATABASE t; USE t;
    CREATE TABLE plain (id INT PRIMARY KEY, v VARCHAR(200), b LONGBLOB, KEY(v(50)));
    INSERT INTO plain WITH RECURSIVE s AS (SELECT 1 n UNION ALL SELECT n+1 FROM s WHERE n<3000) SELECT n, REPEAT(SHA2(n,256),2), REPEAT('b', 900) FROM s;
    CREATE TABLE secret (id INT PRIMARY KEY, v VARCHAR(200), b LONGBLOB, KEY(v(50))) ENCRYPTION='Y'; INSERT INTO secret SELECT * FROM plain;
    CREATE TABLESPACE g2 ADD DATAFILE 'g2.ibd' ENCRYPTION='Y'; CREATE TABLE secret2 (id INT PRIMARY KEY, v TEXT) TABLESPACE g2 ENCRYPTION='Y'; INSERT INTO secret2 SELECT id, v FROM plain;
    CREATE TABLE moved (id INT AUTO_INCREMENT PRIMARY KEY, v INT);";

const LOAD: &str = "INSERT INTO t.moved (v) VALUES (3); UPDATE t.plain SET v = SHA2(RAND(), 512) WHERE id MOD 40 = 1;
    UPDATE t.secret SET v = SHA2(RAND(), 512) WHERE id MOD 40 = 1; UPDATE t.secret2 SET v = SHA2(RAND(), 512) WHERE id MOD 40 = 1;";

struct Donor {
    server: MySql,
    port: u16,
}

impl Donor {
    fn start(options: &[&str]) -> Self {
        let port = free_port();
        let port_option = format!("--port={port}");
        let all = [
            "--skip-networking=OFF",
            "--bind-address=127.0.0.1",
            &port_option,
            "--log-bin=binlog",
            "--gtid-mode=ON",
            "--enforce-gtid-consistency=ON",
        ];
        let server = MySql::start_with(&[&all[..], options].concat());
        server.sql(BASICS);
        Self { server, port }
    }

    /// A clone, taken while a client writes.
    fn clone_under_load(&self) -> Vec<u8> {
        self.clone(true)
    }

    fn clone(&self, is_busy: bool) -> Vec<u8> {
        self.clone_beside(|| is_busy.then(|| self.server.sql(LOAD)).map(drop), |_| (), Vec::new())
    }

    /// A clone beside this work, which is repeated until it is over.
    fn clone_beside<W: Write + Send>(
        &self,
        work: impl Fn() -> Option<()> + Sync,
        change: impl Fn(&mut Settings),
        output: W,
    ) -> W {
        self.try_clone_beside(work, change, output).unwrap()
    }

    fn try_clone_beside<W: Write + Send>(
        &self,
        work: impl Fn() -> Option<()> + Sync,
        change: impl Fn(&mut Settings),
        output: W,
    ) -> Result<W, xb_clone::Error> {
        self.try_clone_telling(work, change, &|_| (), output)
    }

    fn try_clone_telling<W: Write + Send>(
        &self,
        work: impl Fn() -> Option<()> + Sync,
        change: impl Fn(&mut Settings),
        notify: &(dyn Fn(Notice<'_>) + Sync),
        output: W,
    ) -> Result<W, xb_clone::Error> {
        let tcp = |trust| Target::Tcp {
            host: "127.0.0.1".to_owned(),
            port: self.port,
            trust,
            certificate: None,
        };
        let account = Account {
            user: b"backup".to_vec(),
            password: b"secret".to_vec().into(),
            database: Vec::new(),
        };
        // The fingerprint, as a first connection to another one is told it.
        let timeouts = Timeouts { login: std::time::Duration::from_secs(30), reply: None };
        let wrong = tcp(Trust::Fingerprint(Fingerprint([7; 32])));
        let told = Client::connect(&wrong, &account, timeouts).unwrap_err().to_string();
        let hex: String = told
            .split(|c: char| !c.is_ascii_hexdigit())
            .find(|word| word.len() == 64 && !word.starts_with("0707"))
            .unwrap()
            .to_owned();
        let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        let print = std::array::from_fn(|n| digit(2 * n));
        let target = tcp(Trust::Fingerprint(Fingerprint(print)));
        let mut settings = Settings::default();
        (settings.is_sealed, settings.allow_empty_tables) = (true, true);
        change(&mut settings);
        let stop = Scratch::new();
        let flag = stop.join("stop");
        std::thread::scope(|threads| {
            let load = threads.spawn(|| while !flag.exists() && work().is_some() {});
            let received = xb_clone::receive(&target, &account, &settings, notify, output);
            std::fs::write(&flag, "").unwrap();
            load.join().unwrap();
            received.map(|(_, output)| output)
        })
    }
}

struct Site {
    folder: Scratch,
}

impl Site {
    /// A clone with keys is stored only under a seal: every command is told of it by an option file.
    fn of(stream: Vec<u8>) -> Self {
        let site = Self { folder: Scratch::new() };
        let (key, home) = (site.folder.join("key"), site.folder.dir("home"));
        std::fs::write(&key, [7; 32]).unwrap();
        let option = format!("[xbcloud]\nencrypt-key-file={}\n", key.display());
        std::fs::write(home.join(".my.cnf"), option).unwrap();
        let _ = site.run(&["put", &site.url()]).stdin_bytes(stream).run().expect(0);
        site
    }

    fn url(&self) -> String {
        format!("file://{}/a", self.folder.join("root").display())
    }

    fn run(&self, args: &[&str]) -> Cmd {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).args(args).env("HOME", self.folder.join("home"))
    }

    fn command(&self, target: &Path, options: &[&str]) -> Cmd {
        let target = format!("--target-dir={}", target.display());
        self.run(&[&["restore", &self.url(), &target], options].concat())
    }

    fn restore(&self, target: &Path, options: &[&str]) -> Ran {
        self.command(target, options).run()
    }

    /// Options that give the private server a keyring of its own.
    fn keyring(&self) -> Vec<String> {
        let place = self.folder.join("keyring");
        std::fs::create_dir_all(&place).unwrap();
        let [manifest, settings] =
            ["mysqld.my", "component_keyring_file.cnf"].map(|name| self.folder.join(name));
        std::fs::write(&manifest, "{\"components\": \"file://component_keyring_file\"}").unwrap();
        let text = format!("{{\"path\": \"{}/keys\", \"read_only\": false}}", place.display());
        std::fs::write(&settings, text).unwrap();
        vec![
            format!("--datadir-file={}", manifest.display()),
            format!("--datadir-file={}", settings.display()),
            format!("--mysqld-writes={}", place.display()),
        ]
    }
}

/// Compares every table with those of the donor, once the donor's later transactions are applied.
fn same_as_donor(copy: &MySql, donor: &Donor, tables: &str) {
    copy.catch_up(&donor.server, &donor.server.datadir());
    let checked = copy.sql(&format!("CHECK TABLE {tables}"));
    assert!(checked.lines().all(|line| line.ends_with("OK")), "{checked}");
    let sums = format!("CHECKSUM TABLE {tables}");
    assert_eq!(copy.sql(&sums), donor.server.sql(&sums));
}

const OWN: [&str; 3] = ["--log-bin=binlog", "--gtid-mode=ON", "--enforce-gtid-consistency=ON"];
const ENCRYPTED: &str = "t.plain, t.secret, t.secret2, t.moved";

/// The position that was noted, which is exact: file, offset, GTIDs.
fn noted_position(target: &Path, donor: &Donor) -> Vec<String> {
    let noted = std::fs::read_to_string(target.join("xtrabackup_binlog_info")).unwrap();
    let words: Vec<String> = noted.trim_end().split('\t').map(str::to_owned).collect();
    assert!(words[0].starts_with("binlog.0") && words[1].parse::<u64>().unwrap() > 150, "{noted}");
    // There, the donor's log has the transaction after the last one in the data, or ends.
    let show = format!("SHOW BINLOG EVENTS IN '{}' FROM {} LIMIT 1", words[0], words[1]);
    let (server, range) = words[2].split_once(':').unwrap();
    let last: u64 = range.rsplit('-').next().unwrap().parse().unwrap();
    let (found, next) = (donor.server.sql(&show), format!("'{server}:{}'", last + 1));
    assert!(found.is_empty() || found.contains(&next), "{found} is not {next}");
    words
}

#[test]
fn clones_with_keys_are_prepared_for_another_keyring_in_every_page_size() {
    if skipped() {
        return;
    }
    for page in ["4k", "8k", "16k", "32k", "64k"] {
        let size = format!("--innodb-page-size={page}");
        let donor = Donor::start(&[&size]);
        donor.server.sql(
            "SET GLOBAL innodb_redo_log_encrypt = ON; SET GLOBAL innodb_undo_log_encrypt = ON",
        );
        let site = Site::of(donor.clone_under_load());
        for site in [&site, &Site::of(donor.clone(false))] {
            let verified = site.run(&["verify", &site.url(), "--level=pages"]).run().expect(0);
            assert!(verified.stdout_text().contains("0 damaged"), "{}", verified.stdout_text());
        }
        let (target, keyring) = (site.folder.join("t"), site.keyring());
        let options: Vec<&str> =
            keyring.iter().map(String::as_str).chain(["--prepare", "--json"]).collect();
        let ran = site.restore(&target, &options).expect(0);
        let event = ran.stderr_text();
        let event = event.lines().find(|line| line.contains("\"event\":\"clone\"")).unwrap();
        let event: serde_json::Value = serde_json::from_str(event).unwrap();
        let words = noted_position(&target, &donor);
        assert_eq!([&event["binlog"]["file"], &event["gtids"]], [&words[0], &words[2]]);
        assert!(!target.join("auto.cnf").exists() && !target.join("ca.pem").exists());
        let copy = MySql::start_on(&target, &[&OWN[..], &[&size]].concat());
        assert_eq!(copy.gtids(), words[2]);
        same_as_donor(&copy, &donor, ENCRYPTED);
    }
}

#[test]
fn keys_under_the_constant_are_refused_without_a_word() {
    if skipped() {
        return;
    }
    let donor = Donor::start(&[]);
    let site = Site::of(donor.clone_under_load());
    // A server without a keyring.
    let ran = site.restore(&site.folder.join("t"), &["--prepare"]).expect_failure();
    assert!(ran.stderr_text().contains("keyring"), "{}", ran.stderr_text());
    let target = site.folder.join("u");
    let _ = site.restore(&target, &["--allow-exposed-keys"]).expect(0);
    let mode = std::os::unix::fs::PermissionsExt::mode(&target.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o700);
    for file in ["mysqld.my", "component_keyring_file.cnf"] {
        let _ = site.keyring();
        std::fs::copy(site.folder.join(file), target.join(file)).unwrap();
    }
    let copy = MySql::start_on(&target, &OWN);
    same_as_donor(&copy, &donor, ENCRYPTED);
}

/// The keys in the heads of the files of a redo log.
fn redo_keys(target: &Path) -> Vec<Vec<u8>> {
    let log = std::fs::read_dir(target.join("#innodb_redo")).unwrap();
    let heads = log.map(|file| std::fs::read(file.unwrap().path()).unwrap());
    let keys = heads.map(|head| head.get(1072..1072 + 111).unwrap_or_default().to_vec());
    keys.filter(|key| key.starts_with(b"lCC")).collect()
}

/// A busy server keeps many files of its redo log for a clone, and each of them has the key. The server that recovers leaves it
/// as it is.
#[test]
fn the_key_of_an_encrypted_redo_log_is_wrapped_in_every_file() {
    if skipped() {
        return;
    }
    let donor = Donor::start(&["--innodb-redo-log-capacity=8M"]);
    donor.server.sql("SET GLOBAL innodb_redo_log_encrypt = ON");
    let updates = ["c", "d", "e"].map(|b| format!("UPDATE t.secret SET b = REPEAT('{b}', 900);"));
    let moments = Moments {
        server: &donor.server,
        plan: vec![Vec::new(), vec![updates.concat()]],
        started: Vec::new(),
        waiting: 0,
        stream: Vec::new(),
    };
    let load = || {
        donor.server.sql(LOAD);
        Some(())
    };
    let site = Site::of(donor.clone_beside(load, |_| (), moments).stream);
    let target = site.folder.join("u");
    let _ = site.restore(&target, &["--allow-exposed-keys"]).expect(0);
    let keys = redo_keys(&target);
    assert!(keys.len() > 4, "{}", keys.len());
    // As the first one, which any server accepts: under the constant.
    assert!(keys.iter().all(|key| key == &keys[0] && key[3..7] == [0; 4]), "{keys:?}");
    let (target, keyring) = (site.folder.join("t"), site.keyring());
    let options: Vec<&str> = keyring.iter().map(String::as_str).chain(["--prepare"]).collect();
    let _ = site.restore(&target, &options).expect(0);
    let after = redo_keys(&target);
    assert!(after.iter().all(|key| key[3..7] != [0; 4]), "{after:?}");
    let copy = MySql::start_on(&target, &OWN);
    same_as_donor(&copy, &donor, ENCRYPTED);
}

#[test]
fn a_position_from_before_the_binary_log_was_turned_off_is_not_noted() {
    if skipped() {
        return;
    }
    let donor = Donor::start(&[]);
    donor.server.sql("DROP TABLE t.secret, t.secret2; DROP TABLESPACE g2");
    let Donor { server, port } = donor;
    let before = server.shut_down();
    let data = before.join("data");
    let options = ["--skip-networking=OFF", "--bind-address=127.0.0.1"];
    let port_option = format!("--port={port}");
    let server = MySql::start_on(&data, &[&options[..], &[&port_option]].concat());
    server.sql("INSERT INTO t.moved (v) VALUES (4)");
    let donor = Donor { server, port };
    let site = Site::of(donor.clone(false));
    let target = site.folder.join("t");
    let ran = site.restore(&target, &["--prepare", "--json"]).expect(0);
    let event = ran.stderr_text();
    let event = event.lines().find(|line| line.contains("\"event\":\"clone\"")).unwrap();
    let event: serde_json::Value = serde_json::from_str(event).unwrap();
    assert!(event["binlog"].is_null(), "{event}");
    assert!(!target.join("xtrabackup_binlog_info").exists());
    let copy = MySql::start_on(&target, &[]);
    assert_eq!(copy.sql("SELECT COUNT(*) FROM t.moved WHERE v = 4"), "1\n");
}

/// MySQL does not always recover from a change of encryption: it may write pages that it cannot read. A page that is damaged
/// on the donor stands for one of them.
#[test]
fn a_clone_beside_which_ddl_ran_is_prepared_only_if_a_server_can_read_what_is_encrypted_in_place() {
    const PAGE: usize = 16384;
    if skipped() {
        return;
    }
    let donor = Donor::start(&[]);
    let Donor { server, port } = donor;
    let before = server.shut_down();
    let data = before.join("data");
    // A page with rows of the table in the general tablespace.
    let mut bytes = std::fs::read(data.join("g2.ibd")).unwrap();
    assert!(bytes.len() > 20 * PAGE);
    bytes[12 * PAGE + 5000..][..100].fill(0xee);
    std::fs::write(data.join("g2.ibd"), bytes).unwrap();
    let port_option = format!("--port={port}");
    let network = ["--skip-networking=OFF", "--bind-address=127.0.0.1", &*port_option];
    let server = MySql::start_on(&data, &[&OWN[..], &network].concat());
    let donor = Donor { server, port };
    for allows_ddl in [true, false] {
        let clone = |settings: &mut Settings| settings.allow_ddl = allows_ddl;
        let site = Site::of(donor.clone_beside(|| None, clone, Vec::new()));
        let keyring = site.keyring();
        let keyring: Vec<&str> = keyring.iter().map(String::as_str).collect();
        let target = site.folder.join("t");
        let ran = site.restore(&target, &[&keyring[..], &["--prepare"]].concat());
        let (code, said) = (ran.code(), ran.stderr_text());
        if !allows_ddl {
            // No such change could run, and nothing is read back.
            assert_eq!(code, 0, "{said}");
            continue;
        }
        assert_ne!(code, 0, "{said}");
        assert!(said.contains("take another backup"), "{said}");
        assert!(!said.contains("to resume"), "{said}");
        assert!(!target.join("xtrabackup_binlog_info").exists());
        let verify = ["verify", &site.url(), "--level=restore"];
        let ran = site.run(&[&verify[..], &keyring].concat()).run().expect_failure();
        assert!(ran.stderr_text().contains("take another backup"), "{}", ran.stderr_text());
    }
}

/// The stream of a clone that says something else about itself.
fn retold(stream: &[u8], change: impl Fn(&mut serde_json::Value)) -> Vec<u8> {
    let len = u32::try_from(INFO.len()).unwrap().to_le_bytes();
    let head = [&b"P"[..], &len, INFO.as_bytes()].concat();
    let at = stream.windows(head.len()).rposition(|bytes| bytes == head).unwrap();
    // Behind the name: length, offset, checksum.
    let (text, begin) = (at + head.len() + 20, at - MAGIC.len() - 1);
    let len = u64::from_le_bytes(*stream[at + head.len()..].first_chunk().unwrap());
    let mut info =
        serde_json::from_slice(&stream[text..][..usize::try_from(len).unwrap()]).unwrap();
    change(&mut info);
    let mut out = StreamWriter::new(stream[..begin].to_vec());
    out.file(INFO, info.to_string().as_bytes(), 1 << 20);
    out.finish()
}

/// A server that was started on the data before, or a bound that is taken for the position, would repeat or skip transactions.
#[test]
fn data_that_is_not_where_its_clone_says_is_refused() {
    if skipped() {
        return;
    }
    let donor = Donor::start(&[]);
    donor.server.sql("DROP TABLE t.secret, t.secret2; DROP TABLESPACE g2");
    let stream = donor.clone(false);
    let gtids = donor.server.gtids();
    let (server, last) = gtids.split_once(":1-").unwrap();
    let last: u64 = last.parse().unwrap();
    for (from, to, is_right) in
        [(last, last, true), (1, last + 9, true), (last + 1, last + 9, false), (1, last - 1, false)]
    {
        let site = Site::of(retold(&stream, |info| {
            for (name, last) in [("gtids_from", from), ("gtids_to", to)] {
                assert!(info[name].is_string());
                info[name] = format!("{server}:1-{last}").into();
            }
        }));
        let target = site.folder.join("t");
        let ran = site.restore(&target, &["--prepare"]);
        assert_eq!(ran.code() == 0, is_right, "{from} {to}: {}", ran.stderr_text());
        let is_noted = target.join("xtrabackup_binlog_info").exists();
        assert_eq!(is_noted, is_right, "{from} {to}");
        let says = ran.stderr_text().contains("but the clone has all of");
        assert_eq!(says, !is_right, "{}", ran.stderr_text());
    }
}

/// A statement that fails unless this is true.
fn demands(what: &str) -> String {
    format!("--check-sql=SELECT IF({what}, 1, (SELECT 1 UNION SELECT 2))")
}

/// The clone of a replica with events would work on if its server were started as usual.
#[test]
fn no_trial_of_a_clone_replicates_runs_events_or_listens() {
    if skipped() {
        return;
    }
    // Its event has never run.
    let donor = Donor::start(&["--event-scheduler=OFF"]);
    donor.server.sql(
        "DROP TABLE t.secret, t.secret2; DROP TABLESPACE g2; CREATE EVENT t.works ON SCHEDULE EVERY 1 SECOND DO INSERT INTO t.moved (v) VALUES (1);
         CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT=1, SOURCE_USER='nobody', SOURCE_AUTO_POSITION=1; START REPLICA",
    );
    let is_on = "SELECT service_state FROM performance_schema.replication_applier_status";
    assert_eq!(donor.server.sql(is_on), "ON\n");
    let site = Site::of(donor.clone(false));
    let threads = |name: &str| {
        format!("(SELECT COUNT(*) FROM performance_schema.threads WHERE name LIKE '{name}') = 0")
    };
    let checks = [
        // That a check can fail, and that the clone has what could work.
        demands(
            "(SELECT COUNT(*) FROM mysql.slave_master_info) = 1 AND (SELECT COUNT(*) FROM information_schema.events WHERE event_name = 'works') = 1",
        ),
        demands("@@event_scheduler = 'DISABLED'"),
        demands(&threads("%event_scheduler%")),
        demands(&threads("%replica%")),
        demands("@@skip_networking = 1"),
    ];
    let verify = |checks: &[String]| {
        let url = site.url();
        let words = ["verify", &url, "--level=restore"];
        let checks = checks.iter().map(String::as_str);
        site.run(&words.into_iter().chain(checks).collect::<Vec<_>>()).run()
    };
    let _ = verify(&[demands("1 = 2")]).expect_failure();
    let _ = verify(&checks).expect(0);
    // The start that prepares it is as quiet.
    let target = site.folder.join("t");
    let _ = site.restore(&target, &["--prepare"]).expect(0);
    let copy = MySql::start_on(
        &target,
        &[&OWN[..], &["--event-scheduler=OFF", "--skip-replica-start"]].concat(),
    );
    assert_eq!(copy.sql("SELECT COUNT(*) FROM t.moved"), "0\n");
}

/// Files that a process has open below a folder.
fn open_files(below: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(files) = std::fs::read_dir(process.path().join("fd")) else { continue };
        let links = files.flatten().filter_map(|file| std::fs::read_link(file.path()).ok());
        found.extend(links.filter(|link| link.starts_with(below)));
    }
    found.sort();
    found
}

#[test]
fn tables_from_outside_come_inside_and_the_donors_files_are_left_alone() {
    if skipped() {
        return;
    }
    let outside = Scratch::new();
    let far = outside.dir("far");
    let donor = Donor::start(&[&format!("--innodb-directories={}", far.display())]);
    let dir = far.display();
    donor.server.sql(&format!(
        "DROP TABLE t.secret, t.secret2; DROP TABLESPACE g2;
         CREATE TABLE t.secret (id INT PRIMARY KEY, v VARCHAR(600)) DATA DIRECTORY='{dir}'; INSERT INTO t.secret SELECT id, v FROM t.plain;
         CREATE TABLESPACE g3 ADD DATAFILE '{dir}/g3.ibd'; CREATE TABLE t.secret2 (id INT PRIMARY KEY, v TEXT) TABLESPACE g3; INSERT INTO t.secret2 SELECT id, v FROM t.plain;
         CREATE TABLE t.parts (id INT PRIMARY KEY, v TEXT) PARTITION BY HASH(id) (PARTITION a DATA DIRECTORY='{dir}', PARTITION b); INSERT INTO t.parts SELECT id, v FROM t.plain;
         CREATE UNDO TABLESPACE u3 ADD DATAFILE '{dir}/u3.ibu';
         CREATE TABLE t.gone (id INT) ENGINE=MyISAM; INSERT INTO t.gone VALUES (1);"
    ));
    let tables = "t.plain, t.secret, t.secret2, t.parts, t.moved";
    let site = Site::of(donor.clone_under_load());
    let before = open_files(&far);
    let verified = site.run(&["verify", &site.url(), "--level=restore"]).run().expect(0);
    assert!(verified.stdout_text().contains("restore"), "{}", verified.stdout_text());
    let target = site.folder.join("t");
    let ran = site.restore(&target, &["--prepare"]).expect(0);
    for words in ["g3.ibd in it now", "t/secret.ibd in it now", "t.gone (MyISAM)"] {
        assert!(ran.stderr_text().contains(words), "{words}: {}", ran.stderr_text());
    }
    let copy = MySql::start_on(&target, &OWN);
    let sums = |server: &MySql| server.sql(&format!("CHECKSUM TABLE {tables}"));
    let _ = (sums(&copy), sums(&donor.server));
    // All tables are open in both: those outside only once, by their owner.
    let after = open_files(&far);
    let twice = after.windows(2).any(|pair| pair[0] == pair[1]);
    assert!(!after.is_empty() && !twice, "{before:?} {after:?}");
    assert!(open_files(&target).iter().any(|file| file.ends_with("t/secret.ibd")));
    same_as_donor(&copy, &donor, tables);
    assert_eq!(copy.sql("SELECT COUNT(*) FROM t.gone"), "0\n");
    assert_eq!(donor.server.sql("SELECT COUNT(*) FROM t.gone"), "1\n");
}

#[test]
fn data_of_a_killed_private_start_is_not_used() {
    if skipped() {
        return;
    }
    let donor = Donor::start(&[]);
    donor.server.sql("DROP TABLE t.secret, t.secret2; DROP TABLESPACE g2; CREATE TABLE t.secret LIKE t.plain; CREATE TABLE t.secret2 LIKE t.plain");
    let site = Site::of(donor.clone_under_load());
    let target = site.folder.join("t");
    let mut running = site.command(&target, &["--prepare"]).spawn();
    running.until("the private server works", || target.join("#innodb_temp").exists());
    running.kill_9();
    drop(running.wait());
    let ran = site.restore(&target, &["--prepare"]).expect_failure();
    assert!(ran.stderr_text().contains("did not stop cleanly"), "{}", ran.stderr_text());
    std::fs::remove_dir_all(&target).unwrap();
    // As soon as the redo log is there, before the server starts or soon after.
    let mut running = site.command(&target, &["--prepare"]).spawn();
    running.until("the clone is put together", || target.join("#innodb_redo").exists());
    running.kill_9();
    drop(running.wait());
    let mut ran = site.restore(&target, &["--prepare"]);
    if ran.code() != 0 {
        assert!(ran.stderr_text().contains("did not stop cleanly"), "{}", ran.stderr_text());
        std::fs::remove_dir_all(&target).unwrap();
        ran = site.restore(&target, &["--prepare"]).expect(0);
    }
    assert!(ran.stderr_text().contains("the data is at binlog.0"), "{}", ran.stderr_text());
    assert!(!target.join(".xb-partial").exists());
    let copy = MySql::start_on(&target, &OWN);
    same_as_donor(&copy, &donor, "t.plain, t.moved");
}

/// Takes bytes at the rate of a slow store, so that much happens meanwhile.
struct Slow(Vec<u8>);

impl Write for Slow {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        std::thread::sleep(std::time::Duration::from_micros(bytes.len() as u64 / 40));
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Tables of the kinds that InnoDB stores otherwise than others, some of them in `dir`, and with names that their files
/// have otherwise.
fn kinds(page: &str, dir: &Path) -> String {
    let mut all = format!(
        "CREATE TABLE t.words (id INT PRIMARY KEY, v TEXT, FULLTEXT v (v)); INSERT INTO t.words SELECT id, v FROM t.plain;
         CREATE TABLE t.place (id INT PRIMARY KEY, g POINT NOT NULL SRID 0, SPATIAL INDEX g (g)); INSERT INTO t.place SELECT id, POINT(id, id MOD 7) FROM t.plain;
         CREATE TABLE t.parts (id INT PRIMARY KEY, v TEXT) PARTITION BY HASH(id) PARTITIONS 3; INSERT INTO t.parts SELECT id, v FROM t.plain;
         CREATE TABLE t.far (id INT PRIMARY KEY, v TEXT) DATA DIRECTORY='{}'; INSERT INTO t.far SELECT id, v FROM t.plain;
         CREATE UNDO TABLESPACE u3 ADD DATAFILE 'u3.ibu';
         CREATE DATABASE `{ODD}`; CREATE TABLE `{ODD}`.`a b/c.%#ü` (id INT PRIMARY KEY, v TEXT); INSERT INTO `{ODD}`.`a b/c.%#ü` SELECT id, v FROM t.plain;
         CREATE TABLE `{ODD}`.`in g6.` (id INT PRIMARY KEY, v TEXT) TABLESPACE g6; INSERT INTO `{ODD}`.`in g6.` SELECT id, v FROM t.plain;",
        dir.display()
    );
    if page != "4k" {
        all.push_str("CREATE TABLE t.squeezed (id INT PRIMARY KEY, v TEXT) COMPRESSION='zlib' ENCRYPTION='Y'; INSERT INTO t.squeezed SELECT id, REPEAT(v, 20) FROM t.plain;");
    }
    if ["4k", "8k", "16k"].contains(&page) {
        all.push_str("CREATE TABLE t.zip (id INT PRIMARY KEY, v TEXT) ROW_FORMAT=COMPRESSED; INSERT INTO t.zip SELECT id, v FROM t.plain;");
    }
    all
}

/// A schema with an odd name.
const ODD: &str = "odd-é 1";

/// Writes to those that every page size has.
fn load_kinds() -> String {
    format!(
        "UPDATE t.words SET v = CONCAT('w ', SHA2(RAND(), 256)) WHERE id MOD 40 = 1; UPDATE t.place SET g = POINT(id + 1, RAND()) WHERE id MOD 40 = 1;
         UPDATE t.parts SET v = SHA2(RAND(), 512) WHERE id MOD 40 = 1; UPDATE t.far SET v = SHA2(RAND(), 512) WHERE id MOD 40 = 1;
         UPDATE `{ODD}`.`a b/c.%#ü` SET v = SHA2(RAND(), 512) WHERE id MOD 40 = 1; UPDATE `{ODD}`.`in g6.` SET v = SHA2(RAND(), 512) WHERE id MOD 40 = 1;"
    )
}

/// Any DDL, the next one each time. Names are those of numbers, so that they come again.
fn ddl(noise: &mut Noise, page: &str) -> String {
    let (n, other) = (noise.below(6), noise.below(6));
    let kind = match (noise.below(4), page) {
        (1, _) => "ENCRYPTION='Y'",
        // A hole needs a whole block of the file system.
        (2, "8k" | "16k" | "32k" | "64k") => "COMPRESSION='zlib'",
        (3, "4k" | "8k" | "16k") => "ROW_FORMAT=COMPRESSED",
        _ => "",
    };
    match noise.below(18) {
        0 | 1 => "RENAME TABLE t.sw1 TO t.swt, t.sw2 TO t.sw1, t.swt TO t.sw2; UPDATE t.sw1 SET v = CONCAT('x', LEFT(v, 50)) WHERE id MOD 9 = 1".to_owned(),
        2 => "TRUNCATE TABLE t.short; INSERT INTO t.short SELECT id, v FROM t.plain WHERE id MOD 3 = 1".to_owned(),
        3..=5 => format!("CREATE TABLE IF NOT EXISTS t.d{n} (id INT PRIMARY KEY, v TEXT) {kind}; INSERT IGNORE INTO t.d{n} SELECT id, v FROM t.plain WHERE id MOD 5 = {n}"),
        6 | 7 => format!("DROP TABLE IF EXISTS t.d{n}"),
        8 => format!("DROP TABLE IF EXISTS t.d{n}; CREATE TABLE t.d{n} LIKE t.short; INSERT INTO t.d{n} SELECT id, v FROM t.plain WHERE id MOD 7 = {other}"),
        9 => "ALTER TABLE t.built ENGINE=InnoDB".to_owned(),
        10 => "ALTER TABLE t.built ADD INDEX more (v(20)); ALTER TABLE t.built DROP INDEX more".to_owned(),
        11 => "ALTER TABLE t.flip ENCRYPTION='Y'; ALTER TABLE t.flip ENCRYPTION='N'; ALTER TABLESPACE g6 ENCRYPTION='Y'; UPDATE t.in6 SET v = CONCAT('y', LEFT(v, 50)) WHERE id MOD 4 = 1; ALTER TABLESPACE g6 ENCRYPTION='N'".to_owned(),
        12 => format!("DROP DATABASE IF EXISTS s{n}; CREATE DATABASE s{n}; CREATE TABLE s{n}.a (id INT PRIMARY KEY) {kind}; INSERT INTO s{n}.a VALUES ({other})"),
        13 => "ALTER TABLE t.parts ADD PARTITION PARTITIONS 1; ALTER TABLE t.parts COALESCE PARTITION 1; ALTER TABLE t.parts TRUNCATE PARTITION p1".to_owned(),
        14 => "ALTER TABLE t.words DROP INDEX v; ALTER TABLE t.words ADD FULLTEXT v (v)".to_owned(),
        15 => "ALTER TABLE t.place DROP INDEX g; ALTER TABLE t.place ADD SPATIAL INDEX g (g)".to_owned(),
        16 => format!("RENAME TABLE `{ODD}`.`a b/c.%#ü` TO `{ODD}`.`0`; ALTER TABLE `{ODD}`.`0` ENGINE=InnoDB; RENAME TABLE `{ODD}`.`0` TO `{ODD}`.`a b/c.%#ü`"),
        _ => "CREATE TABLESPACE g5 ADD DATAFILE 'g5.ibd'; CREATE TABLE t.in5 (id INT PRIMARY KEY, v TEXT) TABLESPACE g5; INSERT INTO t.in5 SELECT id, v FROM t.plain; DROP TABLE t.in5; DROP TABLESPACE g5".to_owned(),
    }
}

/// Its rows would come back empty, as those of one that was there before.
#[test]
fn a_table_of_another_engine_that_ddl_makes_ends_the_clone() {
    if skipped() {
        return;
    }
    let donor = Donor::start(&[]);
    // Not before the clone has begun: then it would be refused at once.
    let (begun, made) = (AtomicBool::new(false), AtomicBool::new(false));
    let work = || {
        if begun.load(Ordering::Relaxed) && !made.load(Ordering::Relaxed) {
            donor
                .server
                .sql("CREATE TABLE IF NOT EXISTS t.later (id INT PRIMARY KEY) ENGINE=MyISAM");
            made.store(true, Ordering::Relaxed);
        }
        std::thread::yield_now();
        Some(())
    };
    let change = |settings: &mut Settings| {
        (settings.allow_ddl, settings.allow_empty_tables) = (true, false);
    };
    let output = Begins { begun: &begun, made: &made };
    let error = donor.try_clone_beside(work, change, output).map(drop).unwrap_err().to_string();
    assert!(error.contains("t.later (MyISAM)"), "{error}");
}

/// Says when the first bytes come, and takes no more of them before the table is made.
struct Begins<'a> {
    begun: &'a AtomicBool,
    made: &'a AtomicBool,
}

impl Write for Begins<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.begun.store(true, Ordering::Relaxed);
        while !self.made.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn ddl_runs_while_a_clone_is_taken_and_the_copy_is_equal_in_every_page_size() {
    if skipped() {
        return;
    }
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = number("XB_CLONE_SEED").unwrap_or(1);
    for (page, seed) in ["4k", "8k", "16k", "32k", "64k"].into_iter().zip(seed..) {
        let size = format!("--innodb-page-size={page}");
        let outside = Scratch::new();
        let far = outside.dir("far");
        let donor = Donor::start(&[&size, &format!("--innodb-directories={}", far.display())]);
        donor.server.sql("CREATE TABLE t.sw1 LIKE t.plain; INSERT INTO t.sw1 SELECT * FROM t.plain; CREATE TABLE t.sw2 LIKE t.moved; ALTER TABLE t.sw2 MODIFY v TEXT; INSERT INTO t.sw2 SELECT id, v FROM t.plain;
            CREATE TABLE t.short (id INT PRIMARY KEY, v TEXT); CREATE TABLE t.built LIKE t.plain; INSERT INTO t.built SELECT * FROM t.plain; CREATE TABLE t.flip LIKE t.short; INSERT INTO t.flip SELECT id, v FROM t.plain;
            CREATE TABLESPACE g6 ADD DATAFILE 'g6.ibd'; CREATE TABLE t.in6 (id INT PRIMARY KEY, v TEXT) TABLESPACE g6; INSERT INTO t.in6 SELECT id, v FROM t.plain");
        donor.server.sql(&kinds(page, &far));
        let noise = Mutex::new(Noise::new(seed));
        let count = AtomicU64::new(0);
        let work = || {
            donor.server.sql(&format!("{LOAD}{}", load_kinds()));
            let ddl = ddl(&mut noise.lock().unwrap(), page);
            donor.server.sql(&ddl);
            count.fetch_add(1, Ordering::Relaxed);
            Some(())
        };
        let output = loop {
            let allow = |settings: &mut Settings| settings.allow_ddl = true;
            match donor.try_clone_beside(work, allow, Slow(Vec::new())) {
                // The encryption of a tablespace was changed at its end.
                Err(error) if error.to_string().contains("ALTER TABLESPACE") => println!("{error}"),
                output => break output.unwrap(),
            }
        };
        let (count, site) = (count.into_inner(), Site::of(output.0));
        println!("pages of {page}, seed {seed}: {count} statements meanwhile");
        assert!(count > 3, "DDL waited");
        let verified = site.run(&["verify", &site.url(), "--level=pages"]).run().expect(0);
        assert!(verified.stdout_text().contains("0 damaged"), "{}", verified.stdout_text());
        let (target, keyring) = (site.folder.join("t"), site.keyring());
        let options: Vec<&str> = keyring.iter().map(String::as_str).chain(["--prepare"]).collect();
        let _ = site.restore(&target, &options).expect(0);
        let words = noted_position(&target, &donor);
        let copy = MySql::start_on(&target, &[&OWN[..], &[&size]].concat());
        assert_eq!(copy.gtids(), words[2]);
        let list = "SELECT CONCAT('`', table_schema, '`.`', table_name, '`') FROM information_schema.tables
            WHERE table_schema NOT IN ('mysql', 'sys', 'performance_schema', 'information_schema') ORDER BY 1";
        let tables = donor.server.sql(list).trim().replace('\n', ", ");
        same_as_donor(&copy, &donor, &tables);
        assert_eq!(copy.sql(list).trim().replace('\n', ", "), tables);
        // Each row, and each of its bytes.
        let schemas = "SELECT schema_name FROM information_schema.schemata WHERE schema_name NOT IN ('mysql', 'sys', 'performance_schema', 'information_schema')";
        let schemas = donor.server.sql(schemas);
        let schemas: Vec<&str> = schemas.lines().collect();
        assert!(schemas.contains(&ODD));
        let rows = donor.server.rows(&schemas);
        assert!(rows.len() > 1 << 20 && copy.rows(&schemas) == rows);
    }
}

/// MySQL does not always recover from a change in place that was interrupted: it may write pages that it cannot read.
#[test]
fn a_clone_is_refused_if_the_encryption_of_a_tablespace_is_changed_meanwhile() {
    if skipped() {
        return;
    }
    for (page, name) in [("4k", "g6"), ("16k", "mysql"), ("64k", "g6")] {
        let size = format!("--innodb-page-size={page}");
        let donor = Donor::start(&[&size]);
        donor.server.sql("CREATE TABLESPACE g6 ADD DATAFILE 'g6.ibd'; CREATE TABLE t.in6 (id INT AUTO_INCREMENT PRIMARY KEY, v TEXT) TABLESPACE g6");
        for _ in 0..20 {
            donor
                .server
                .sql("INSERT INTO t.in6 (v) SELECT REPEAT('a', 1500) FROM t.plain LIMIT 1500");
        }
        let error = |ran: Result<Vec<u8>, String>| {
            let error = ran.unwrap_err();
            assert!(error.contains("take another backup"), "{page}: {error}");
            error
        };
        // Other work on tablespaces and keys is none of this.
        let other = "CREATE TABLESPACE g7 ADD DATAFILE 'g7.ibd' ENCRYPTION='Y'; DROP TABLESPACE g7; ALTER INSTANCE ROTATE INNODB MASTER KEY";
        assert_eq!(clone_during(&donor, other).map(drop), Ok(()), "{page}");
        // Whoever cannot read the redo log goes by what the server counts.
        donor.server.sql("SET GLOBAL innodb_redo_log_encrypt = ON");
        let quiet = clone_during(&donor, LOAD).unwrap();
        let said = error(clone_during(&donor, other));
        assert!(said.contains("a tablespace may have been"), "{page}: {said}");
        donor.server.sql("SET GLOBAL innodb_redo_log_encrypt = OFF");
        let flip = format!(
            "ALTER TABLESPACE {name} ENCRYPTION='Y'; ALTER TABLESPACE {name} ENCRYPTION='N'"
        );
        // By the first page, and by the redo log, which still has it once it has ended.
        for beside in [&*flip, "DO 1"] {
            donor.server.sql(&flip);
            let said = error(clone_during(&donor, beside));
            assert!(said.contains(&format!("{name}.ibd was")), "{page}: {said}");
        }
        let (site, options) = (Site::of(quiet), [&*size, "--log-bin=binlog"]);
        let (target, keyring) = (site.folder.join("t"), site.keyring());
        let words: Vec<&str> = keyring.iter().map(String::as_str).chain(["--prepare"]).collect();
        let _ = site.restore(&target, &words).expect(0);
        let copy = MySql::start_on(&target, &[&OWN[1..], &options].concat());
        same_as_donor(&copy, &donor, &format!("{ENCRYPTED}, t.in6"));
    }
}

/// A clone during which this is done again and again, at least once before the changed pages come.
fn clone_during(donor: &Donor, work: &str) -> Result<Vec<u8>, String> {
    let done = AtomicBool::new(false);
    let beside = || {
        donor.server.sql(work);
        done.store(true, Ordering::Relaxed);
        Some(())
    };
    let until_done = |notice: Notice<'_>| {
        while matches!(notice, Notice::Changes) && !done.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
    };
    let allow = |settings: &mut Settings| settings.allow_ddl = true;
    let ran = donor.try_clone_telling(beside, allow, &until_done, Vec::new());
    ran.map_err(|error| error.to_string())
}

/// The keys of logs that are switched while a clone is taken are wrapped, or left out with what they protect.
#[test]
fn logs_that_are_encrypted_and_decrypted_when_the_clone_ends_are_prepared() {
    if skipped() {
        return;
    }
    let donor = Donor::start(&[]);
    let work = || {
        donor.server.sql("SET GLOBAL innodb_undo_log_encrypt = ON; SET GLOBAL innodb_redo_log_encrypt = ON; UPDATE t.plain SET v = SHA2(RAND(), 512) WHERE id MOD 40 = 1;
            SET GLOBAL innodb_undo_log_encrypt = OFF; SET GLOBAL innodb_redo_log_encrypt = OFF; ALTER INSTANCE ROTATE INNODB MASTER KEY");
        Some(())
    };
    let allow = |settings: &mut Settings| settings.allow_ddl = true;
    let site = Site::of(donor.clone_beside(work, allow, Vec::new()));
    let _ = site.restore(&site.folder.join("as-is"), &["--allow-exposed-keys"]).expect(0);
    // Without one it ends, too.
    let ran = site.restore(&site.folder.join("without"), &["--prepare"]).expect_failure();
    assert!(ran.stderr_text().contains("keyring"), "{}", ran.stderr_text());
    let (target, keyring) = (site.folder.join("t"), site.keyring());
    let options: Vec<&str> = keyring.iter().map(String::as_str).chain(["--prepare"]).collect();
    let _ = site.restore(&target, &options).expect(0);
    let copy = MySql::start_on(&target, &OWN);
    same_as_donor(&copy, &donor, ENCRYPTED);
}

/// Starts statements in the middle of the files and when the first changed pages come, and takes nothing more until they
/// have ended, or seem to wait for the clone.
struct Moments<'a> {
    server: &'a MySql,
    /// Those to come.
    plan: Vec<Vec<String>>,
    started: Vec<(Running, String)>,
    waiting: usize,
    stream: Vec<u8>,
}

impl Write for Moments<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let is_due = match self.plan.len() {
            2 => self.stream.len() > 20 << 20,
            1 => bytes.windows(PATCHES.len()).any(|part| part == PATCHES.as_bytes()),
            _ => false,
        };
        if is_due {
            let statements = self.plan.remove(0);
            let mut running: Vec<_> =
                statements.iter().map(|sql| self.server.start_sql(sql)).collect();
            let begin = Instant::now();
            while !running.iter_mut().all(Running::has_ended) && begin.elapsed() < WAITS {
                std::thread::yield_now();
            }
            for (statement, running) in statements.iter().zip(&mut running) {
                if !running.has_ended() {
                    println!("waits: {statement}");
                    self.waiting += 1;
                }
            }
            self.started.extend(running.into_iter().zip(statements));
        }
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// After this time, a statement waits for the clone.
const WAITS: Duration = Duration::from_secs(10);

/// IMPORT writes pages past the redo log, and the server refuses it. Files of undo tablespaces come and go, and those of
/// DATA DIRECTORY lie outside.
#[test]
fn undo_tablespaces_and_files_outside_are_whole_after_ddl_and_an_import_is_refused() {
    if skipped() {
        return;
    }
    let outside = Scratch::new();
    let far = outside.dir("far");
    let donor = Donor::start(&[&format!("--innodb-directories={}", far.display())]);
    donor.server.sql("DROP TABLE t.secret, t.secret2; DROP TABLESPACE g2");
    let (dir, data) = (far.display(), donor.server.datadir().join("t"));
    let mut plan = Vec::new();
    for at in ["files", "pages"] {
        let columns = "(id INT PRIMARY KEY, v VARCHAR(200), b LONGBLOB, KEY(v(50)))";
        donor.server.sql(&format!(
            "CREATE TABLE t.imp_{at} {columns}; ALTER TABLE t.imp_{at} DISCARD TABLESPACE;
             CREATE TABLE t.far_old_{at} {columns} DATA DIRECTORY='{dir}'; INSERT INTO t.far_old_{at} SELECT * FROM t.plain;
             CREATE TABLE t.far_as_{at} {columns} DATA DIRECTORY='{dir}'; INSERT INTO t.far_as_{at} SELECT * FROM t.plain;
             CREATE TABLE t.far_cut_{at} {columns} DATA DIRECTORY='{dir}'; INSERT INTO t.far_cut_{at} SELECT * FROM t.plain;
             CREATE UNDO TABLESPACE gone_{at} ADD DATAFILE 'gone_{at}.ibu'; ALTER UNDO TABLESPACE gone_{at} SET INACTIVE;
             CREATE UNDO TABLESPACE cut_{at} ADD DATAFILE 'cut_{at}.ibu'"
        ));
        // All of it is in the file then, and nothing writes to it.
        donor.server.sql("FLUSH TABLES t.plain FOR EXPORT; UNLOCK TABLES");
        std::fs::copy(data.join("plain.ibd"), data.join(format!("imp_{at}.ibd"))).unwrap();
        plan.push(vec![
            format!("ALTER TABLE t.imp_{at} IMPORT TABLESPACE"),
            format!("CREATE UNDO TABLESPACE new_{at} ADD DATAFILE 'new_{at}.ibu'; {LOAD_PLAIN}"),
            format!("DROP UNDO TABLESPACE gone_{at}; {LOAD_PLAIN}"),
            format!("ALTER UNDO TABLESPACE cut_{at} SET INACTIVE; {LOAD_PLAIN}; ALTER UNDO TABLESPACE cut_{at} SET ACTIVE"),
            format!("CREATE TABLE t.far_new_{at} {columns} DATA DIRECTORY='{dir}'; INSERT INTO t.far_new_{at} SELECT * FROM t.plain"),
            format!("DROP TABLE t.far_old_{at}"),
            format!("RENAME TABLE t.far_as_{at} TO t.far_named_{at}; UPDATE t.far_named_{at} SET v = CONCAT('r', LEFT(v, 50)) WHERE id MOD 7 = 1"),
            format!("TRUNCATE TABLE t.far_cut_{at}; INSERT INTO t.far_cut_{at} SELECT * FROM t.plain WHERE id MOD 3 = 1"),
        ]);
    }
    // More than is written at once, so that the first part comes before all pages have come.
    plan[0].push("UPDATE t.plain SET b = REPEAT('c', 900)".to_owned());
    let is_empty = "SELECT COUNT(*) FROM information_schema.innodb_tablespaces WHERE name LIKE 'gone%' AND state = 'empty'";
    while donor.server.sql(is_empty) != "2\n" {
        std::thread::yield_now();
    }
    let server = &donor.server;
    let output = Moments { server, plan, started: Vec::new(), waiting: 0, stream: Vec::new() };
    let output = donor.clone_beside(|| None, |settings| settings.allow_ddl = true, output);
    assert!(output.plan.is_empty());
    println!("{} of {} waited for the clone", output.waiting, output.started.len());
    for (running, statement) in output.started {
        if statement.contains("IMPORT") {
            let said = running.wait().expect_failure().stderr_text();
            assert!(said.contains("ERROR 3874"), "{statement}: {said}");
        } else {
            let _ = running.wait().expect(0);
        }
    }
    let site = Site::of(output.stream);
    let verified = site.run(&["verify", &site.url(), "--level=pages"]).run().expect(0);
    assert!(verified.stdout_text().contains("0 damaged"), "{}", verified.stdout_text());
    let target = site.folder.join("t");
    let _ = site.restore(&target, &["--prepare"]).expect(0);
    let copy = MySql::start_on(&target, &OWN);
    let list = "SELECT CONCAT('t.', table_name) FROM information_schema.tables WHERE table_schema = 't' AND table_name NOT LIKE 'imp%' ORDER BY 1";
    let tables = donor.server.sql(list).trim().replace('\n', ", ");
    same_as_donor(&copy, &donor, &tables);
    assert_eq!(copy.sql(list).trim().replace('\n', ", "), tables);
    let undo = "SELECT name FROM information_schema.innodb_tablespaces WHERE space_type = 'Undo' ORDER BY name";
    assert_eq!(copy.sql(undo), donor.server.sql(undo));
}

const LOAD_PLAIN: &str = "UPDATE t.plain SET v = SHA2(RAND(), 512) WHERE id MOD 40 = 1";
