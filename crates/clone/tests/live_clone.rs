//! Clones of a real MySQL: received while clients write, put together, and started.
//!
//! Few systems have MySQL: `scripts/on-release sid mysql` runs these tests in a chroot. Elsewhere they
//! do nothing, and say so.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use base64::prelude::{BASE64_STANDARD as STANDARD, Engine as _};
use xb_clone::{
    CloneInfo, Error, INFO, Notice, OUTSIDE, PATCHES, PatchReader, PatchTarget, Settings, receive,
};
use xb_mysql::{Account, Fingerprint, Target, Trust};
use xb_process::CancelToken;
use xb_reader::{ChunkReader, Dialect, Item, Limits};
use xb_testkit::command::Signal;
use xb_testkit::daemon::{Daemon, Scratch};
use xb_testkit::mysql::{MySql, is_installed};
use xb_testkit::ports::free_port;

fn skipped() -> bool {
    let missing = !is_installed();
    if missing {
        xb_testkit::skipped("this system has no MySQL; see scripts/on-release");
    }
    missing
}

const TABLES: &str = "INSTALL PLUGIN clone SONAME 'mysql_clone.so';
    CREATE USER backup@'%' IDENTIFIED BY 'secret'; GRANT BACKUP_ADMIN, REFERENCES ON *.* TO backup@'%';
    SET SESSION cte_max_recursion_depth=100000;
    CREATE DATABASE t; CREATE DATABASE `t-ä`; USE t;
    CREATE TABLE plain (id INT PRIMARY KEY, v VARCHAR(200), b LONGBLOB, KEY(v(50)));
    INSERT INTO plain WITH RECURSIVE s AS (SELECT 1 n UNION ALL SELECT n+1 FROM s WHERE n<6000) SELECT n, REPEAT(SHA2(n,256),2), REPEAT('b', 900) FROM s;
    CREATE TABLE zip (id INT PRIMARY KEY, v VARCHAR(200), b LONGBLOB) ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=4; INSERT INTO zip SELECT * FROM plain;
    CREATE TABLE squeezed (id INT PRIMARY KEY, v VARCHAR(200), b LONGBLOB) COMPRESSION='zlib'; INSERT INTO squeezed SELECT * FROM plain;
    CREATE TABLE words (id INT PRIMARY KEY, v TEXT, FULLTEXT(v)); INSERT INTO words SELECT id, v FROM plain;
    CREATE TABLE place (id INT PRIMARY KEY, g POINT NOT NULL SRID 0, SPATIAL INDEX(g)); INSERT INTO place SELECT id, POINT(id, id MOD 7) FROM plain;
    CREATE TABLE parts (id INT PRIMARY KEY, v VARCHAR(200)) PARTITION BY HASH(id) PARTITIONS 3; INSERT INTO parts SELECT id, v FROM plain;
    CREATE TABLESPACE g1 ADD DATAFILE 'g1.ibd'; CREATE TABLE general (id INT PRIMARY KEY, v TEXT) TABLESPACE g1; INSERT INTO general SELECT id, v FROM plain;
    CREATE UNDO TABLESPACE u1 ADD DATAFILE 'u1.ibu';
    CREATE TABLE `t-ä`.`odd ü name` (id INT PRIMARY KEY, v TEXT); INSERT INTO `t-ä`.`odd ü name` SELECT id, v FROM plain;
    CREATE TABLE account (id INT PRIMARY KEY, balance INT); INSERT INTO account SELECT id, 100 FROM plain WHERE id <= 100;
    CREATE TABLE moved (id INT AUTO_INCREMENT PRIMARY KEY, v INT);";

/// Moves money from one account to another, and writes to tables of all kinds.
const LOAD: &str = "BEGIN; UPDATE t.account SET balance = balance - 3 WHERE id = 1 + @@pseudo_thread_id MOD 50;
    UPDATE t.account SET balance = balance + 3 WHERE id = 51 + @@pseudo_thread_id MOD 50; INSERT INTO t.moved (v) VALUES (3); COMMIT;
    UPDATE t.plain SET v = SHA2(RAND(), 512) WHERE id MOD 40 = 1; UPDATE t.zip SET v = SHA2(RAND(), 512) WHERE id MOD 40 = 1;
    UPDATE t.squeezed SET v = SHA2(RAND(), 512), b = RANDOM_BYTES(1000) WHERE id MOD 40 = 1; UPDATE t.words SET v = SHA2(RAND(), 256) WHERE id MOD 97 = 1;
    UPDATE t.general SET v = SHA2(RAND(), 512) WHERE id MOD 40 = 1; INSERT INTO t.parts SELECT MAX(id) + 1, 'x' FROM t.parts;";

const ALL: [&str; 10] = [
    "t.plain",
    "t.zip",
    "t.squeezed",
    "t.words",
    "t.place",
    "t.parts",
    "t.general",
    "`t-ä`.`odd ü name`",
    "t.account",
    "t.moved",
];

struct Donor {
    server: MySql,
    port: u16,
}

impl Donor {
    fn start(options: &[&str]) -> Self {
        let port = free_port();
        let network = [format!("--port={port}"), "--bind-address=127.0.0.1".to_owned()];
        let mut all = vec![
            "--skip-networking=OFF",
            "--log-bin=binlog",
            "--gtid-mode=ON",
            "--enforce-gtid-consistency=ON",
        ];
        all.extend(network.iter().map(String::as_str));
        all.extend(options);
        let server = MySql::start_with(&all);
        server.sql(TABLES);
        Self { server, port }
    }

    fn tcp(&self, trust: Trust) -> Target {
        Target::Tcp { host: "127.0.0.1".to_owned(), port: self.port, trust, certificate: None }
    }

    fn socket(&self) -> Target {
        Target::Socket(self.server.datadir().parent().unwrap().join("sock"))
    }

    /// The fingerprint of the certificate that the server made for itself.
    fn fingerprint(&self) -> Fingerprint {
        let text = std::fs::read_to_string(self.server.datadir().join("server-cert.pem")).unwrap();
        let (_, text) = text.split_once("-----BEGIN CERTIFICATE-----").unwrap();
        let (text, _) = text.split_once("-----END CERTIFICATE-----").unwrap();
        let base64: String = text.split_whitespace().collect();
        Fingerprint::of(&STANDARD.decode(base64).unwrap())
    }
}

fn account() -> Account {
    Account { user: b"backup".to_vec(), password: b"secret".to_vec().into(), database: Vec::new() }
}

/// Extracts a stream, as any tool would; returns what the clone says about itself.
fn extract(stream: &[u8], to: &Path) -> CloneInfo {
    let mut reader = ChunkReader::new(stream, Dialect::Auto, Limits::default());
    let (mut files, mut at) = (BTreeMap::new(), None);
    while let Some(item) = reader.next().unwrap() {
        match item {
            Item::Chunk(head, _) => {
                let path = to.join(std::str::from_utf8(head.path.as_bytes()).unwrap());
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                let file = files.entry(path.clone()).or_insert_with(|| {
                    std::fs::File::options().create_new(true).write(true).open(&path).unwrap()
                });
                at = Some((
                    file.try_clone().unwrap(),
                    head.placement().take(1).map_or(0, |(offset, _)| offset),
                ));
            }
            Item::Data(bytes) => {
                let (file, offset) = at.as_mut().unwrap();
                file.write_all_at(bytes, *offset).unwrap();
                *offset += bytes.len() as u64;
            }
            Item::ChunkEnd => {}
        }
    }
    serde_json::from_slice(&std::fs::read(to.join(INFO)).unwrap()).unwrap()
}

/// Applies the patches of an extracted clone without encrypted files.
fn patch(data: &Path, info: &CloneInfo) {
    for folder in ["mysql", "#innodb_redo", "#clone"] {
        std::fs::create_dir_all(data.join(folder)).unwrap();
    }
    for name in ["#clone/#status_fix", "#clone/#replace_files"] {
        std::fs::write(data.join(name), "").unwrap();
    }
    let open = |path: &str| {
        std::fs::File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(data.join(path))
            .unwrap()
    };
    let mut patches = PatchReader::new(std::fs::File::open(data.join(PATCHES)).unwrap()).unwrap();
    let mut count = 0;
    while let Some(patch) = patches.read().unwrap() {
        let file = match patch.to {
            PatchTarget::File(index) => open(&info.files[usize::try_from(index).unwrap()].path),
            PatchTarget::Redo(index) => open(&format!("#innodb_redo/#ib_redo{index}")),
        };
        file.write_all_at(&patch.bytes, patch.offset).unwrap();
        count += 1;
    }
    assert_eq!(count, info.patches);
    for file in &info.files {
        let file_size = open(&file.path).metadata().unwrap().len();
        if file_size < file.size {
            open(&file.path).set_len(file.size).unwrap();
        }
    }
    for file in &info.redo {
        open(&format!("#innodb_redo/#ib_redo{}", file.index)).set_len(file.size).unwrap();
    }
    for name in [PATCHES, INFO, "xb_clone.README"] {
        std::fs::remove_file(data.join(name)).unwrap();
    }
}

fn checksums(server: &MySql) -> String {
    server.sql(&format!("CHECKSUM TABLE {}", ALL.join(", ")))
}

#[test]
fn a_clone_taken_under_load_is_put_together_and_starts() {
    if skipped() {
        return;
    }
    let donor = Donor::start(&[]);
    let stop = Scratch::new();
    let flag = stop.join("stop");
    let target = donor.tcp(Trust::Fingerprint(donor.fingerprint()));
    let (info, stream) = std::thread::scope(|threads| {
        let load = threads.spawn(|| {
            let mut rounds = 0;
            while !flag.exists() {
                donor.server.sql(LOAD);
                rounds += 1;
            }
            rounds
        });
        let received = receive(&target, &account(), &Settings::default(), &|_| (), Vec::new());
        std::fs::write(&flag, "").unwrap();
        assert!(load.join().unwrap() > 0);
        received.unwrap()
    });
    assert!(info.patches > info.redo.len() as u64 + 2, "nothing changed meanwhile: {info:?}");

    // As it was extracted, no server starts on it.
    let scratch = Scratch::new();
    let data = scratch.dir("data");
    let stored = extract(&stream, &data);
    assert_eq!(stored, info);
    let raw = scratch.join("raw");
    assert!(Command::new("cp").arg("-a").args([&data, &raw]).status().unwrap().success());
    let args = [
        "--no-defaults",
        "--user=root",
        "--skip-networking",
        "--mysqlx=OFF",
        "--secure-file-priv=",
    ];
    let mut args: Vec<String> = args.map(str::to_owned).into();
    args.push(format!("--datadir={}", raw.display()));
    args.push(format!("--socket={}", scratch.join("s").display()));
    let log = scratch.join("log");
    let unpatched = Daemon::start(Path::new("/usr/sbin/mysqld"), &args, &log);
    let status =
        unpatched.wait(Duration::from_secs(120)).expect("a server started without the patches");
    assert!(!status.success(), "{}", unpatched.log());

    patch(&data, &stored);
    let copy = MySql::start_on(
        &data,
        &["--log-bin=binlog", "--gtid-mode=ON", "--enforce-gtid-consistency=ON"],
    );
    assert_eq!(copy.sql("SELECT SUM(balance) FROM t.account"), "10000\n");
    let checked = copy.sql(&format!("CHECK TABLE {}", ALL.join(", ")));
    assert!(checked.lines().all(|line| line.ends_with("OK")), "{checked}");
    // Its position lies between the bounds.
    let within = format!(
        "SELECT GTID_SUBSET('{}', @@GLOBAL.gtid_executed), GTID_SUBSET(@@GLOBAL.gtid_executed, '{}')",
        info.gtids_from, info.gtids_to
    );
    assert_eq!(copy.sql(&within), "1\t1\n");
    // The donor's binary log from there on makes both the same.
    let from = copy.sql("SELECT @@GLOBAL.gtid_executed").replace(['\n', '\\'], "").replace("n", "");
    let logs = donor.server.sql("SHOW BINARY LOGS");
    let logs = logs.lines().map(|line| {
        donor.server.datadir().join(line.split('\t').next().unwrap()).display().to_string()
    });
    let sql = Command::new("/usr/bin/mysqlbinlog")
        .args(["--no-defaults", &format!("--exclude-gtids={from}")])
        .args(logs)
        .output()
        .unwrap();
    assert!(sql.status.success(), "{}", String::from_utf8_lossy(&sql.stderr));
    let file = scratch.join("replay.sql");
    std::fs::write(&file, sql.stdout).unwrap();
    let replayed = Command::new("/usr/bin/mysql")
        .args(["--no-defaults", "--user=root"])
        .arg(format!("--socket={}", copy.datadir().with_file_name("sock").display()))
        .stdin(std::fs::File::open(&file).unwrap())
        .output()
        .unwrap();
    assert!(replayed.status.success(), "{}", String::from_utf8_lossy(&replayed.stderr));
    assert_eq!(checksums(&copy), checksums(&donor.server));
}

/// The error of a clone, and the number of bytes written.
fn refused(target: &Target, settings: &Settings) -> (String, usize) {
    let mut written = Vec::new();
    let error = receive(target, &account(), settings, &|_| (), &mut written).unwrap_err();
    (error.to_string(), written.len())
}

#[test]
fn a_clone_that_would_lose_or_reveal_data_is_refused_before_a_byte_is_written() {
    if skipped() {
        return;
    }
    let donor = Donor::start(&[]);
    let (sql, plain) = (|text: &str| donor.server.sql(text), Settings::default());
    let refuses = |target: &Target, settings: &Settings, words: &str| {
        let (error, written) = refused(target, settings);
        assert!(error.contains(words) && written == 0, "{written} bytes, {error}");
    };
    // Someone else could be the server.
    refuses(&donor.tcp(Trust::Unproven), &plain, "fingerprint");
    refuses(&donor.tcp(Trust::Fingerprint(Fingerprint([7; 32]))), &plain, "has the fingerprint");
    // Rows of other engines.
    sql(
        "CREATE TABLE t.gone (id INT) ENGINE=MyISAM; CREATE TABLE t.lines (id INT NOT NULL) ENGINE=CSV;
         CREATE TABLE mysql.mine (id INT) ENGINE=MyISAM; CREATE TABLE sys.mine (id INT NOT NULL) ENGINE=CSV",
    );
    let empty = ["mysql.mine (MyISAM)", "sys.mine (CSV)", "t.gone (MyISAM)", "t.lines (CSV)"];
    refuses(&donor.socket(), &plain, &format!(": {}: convert", empty.join(", ")));
    let mut allowed = Settings::default();
    allowed.allow_empty_tables = true;
    let (info, _) = receive(&donor.socket(), &account(), &allowed, &|_| (), Vec::new()).unwrap();
    assert_eq!(info.empty_tables, empty);
    // An account that would not see them.
    sql("REVOKE REFERENCES ON *.* FROM backup@'%'");
    refuses(&donor.socket(), &plain, "GRANT REFERENCES ON *.*");
    sql("GRANT REFERENCES ON *.* TO backup@'%'; DROP TABLE t.gone, t.lines, mysql.mine, sys.mine");
    // Keys in clear.
    sql("CREATE TABLE t.secret (id INT PRIMARY KEY) ENCRYPTION='Y'");
    let tls = donor.tcp(Trust::Fingerprint(donor.fingerprint()));
    refuses(&tls, &plain, "t/secret.ibd is encrypted");
    let mut sealed = Settings::default();
    sealed.is_sealed = true;
    let (info, _) = receive(&tls, &account(), &sealed, &|_| (), Vec::new()).unwrap();
    assert!(info.files.iter().any(|file| file.name == "t/secret.ibd" && file.is_encrypted));
    refuses(&donor.socket(), &sealed, "connect over TCP with TLS");
    sql("DROP TABLE t.secret; SET GLOBAL innodb_redo_log_encrypt = ON");
    refuses(&tls, &plain, "redo or undo log");
    sql("SET GLOBAL innodb_redo_log_encrypt = OFF");
    // No right, no plugin.
    sql("REVOKE BACKUP_ADMIN ON *.* FROM backup@'%'");
    refuses(&donor.socket(), &plain, "GRANT BACKUP_ADMIN");
    sql("GRANT BACKUP_ADMIN ON *.* TO backup@'%'; UNINSTALL PLUGIN clone");
    refuses(&donor.socket(), &plain, "INSTALL PLUGIN clone");
}

/// Fails after some bytes, as a store that is gone.
#[derive(Debug)]
struct Full(usize);

impl std::io::Write for Full {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_clone_that_ends_early_is_an_error_and_the_server_takes_the_next_one() {
    if skipped() {
        return;
    }
    let donor = Donor::start(&[]);
    // Error 3634: the server still waits for the recipient that it has lost.
    let is_busy = |error: &Error| error.to_string().contains("3634");
    for room in [0, 20 << 20] {
        let mut tries = (0..1000).map(|_| {
            receive(&donor.socket(), &account(), &Settings::default(), &|_| (), Full(room))
                .unwrap_err()
        });
        let error = tries.find(|error| !is_busy(error)).unwrap();
        assert!(matches!(error, Error::Output(_)), "{error}");
    }
    let mut tries = (0..1000)
        .map(|_| receive(&donor.socket(), &account(), &Settings::default(), &|_| (), Vec::new()))
        .filter(|result| !result.as_ref().is_err_and(is_busy));
    let (info, stream) = tries.next().unwrap().unwrap();
    assert!(!info.files.iter().any(|file| file.path.starts_with(OUTSIDE)));
    assert!(stream.len() as u64 > info.files.iter().map(|file| file.size).sum());
}

/// Has the server change pages once in the middle of the files, and then takes no patches while it changes more, until
/// the server was let go and keeps nothing.
struct Stalling<'a> {
    server: &'a MySql,
    len: usize,
    is_let_go: &'a AtomicBool,
}

impl std::io::Write for Stalling<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        const MIDDLE: usize = 20 << 20;
        let before = self.len;
        self.len += bytes.len();
        // The text at the beginning has the name, too.
        let is_patches =
            before > MIDDLE && bytes.windows(PATCHES.len()).any(|part| part == PATCHES.as_bytes());
        if before < MIDDLE && self.len >= MIDDLE {
            self.server.sql("UPDATE t.plain SET b = RANDOM_BYTES(1000)");
        }
        let begin = Instant::now();
        let waited = |most| assert!(begin.elapsed() < Duration::from_secs(most), "not let go");
        while is_patches && !self.is_let_go.load(Ordering::SeqCst) {
            waited(120);
            self.server.sql("UPDATE t.plain SET b = RANDOM_BYTES(1000)");
        }
        // The server was told, so it keeps nothing for a recipient that might come back.
        while is_patches && kept(self.server) > 0 {
            waited(240);
            std::thread::yield_now();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// How many files of redo log a server keeps for a clone.
fn kept(server: &MySql) -> usize {
    let entries = std::fs::read_dir(server.datadir().join("#ib_archive"));
    let entries = entries.into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name() != "ib_dblwr").count()
}

#[test]
fn a_server_does_not_keep_more_of_its_redo_log_than_it_may_while_the_store_stalls() {
    if skipped() {
        return;
    }
    let donor = Donor::start(&[]);
    let mut settings = Settings::default();
    (settings.look, settings.max_donor_redo) = (Duration::ZERO, 4 << 20);
    let target = donor.socket();
    let is_let_go = AtomicBool::new(false);
    let notify = |notice: Notice<'_>| {
        is_let_go.fetch_or(matches!(notice, Notice::LetGo(_)), Ordering::SeqCst);
    };
    let output = Stalling { server: &donor.server, len: 0, is_let_go: &is_let_go };
    let error = receive(&target, &account(), &settings, &notify, output).map(drop).unwrap_err();
    assert!(error.to_string().contains("of its redo log"), "{error}");
    assert!(is_let_go.into_inner());
    let next = receive(&target, &account(), &Settings::default(), &|_| (), std::io::sink());
    assert!(next.is_ok(), "{:?}", next.err());
}

/// Ends a clone in the middle: cancels it, or fails.
struct Ending<'a> {
    len: usize,
    /// Whether it ends when the patches come, and not in the middle of the files.
    in_patches: bool,
    cancel: Option<&'a CancelToken<()>>,
}

impl std::io::Write for Ending<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        const MIDDLE: usize = 5 << 20;
        self.len += bytes.len();
        let has_patches = || bytes.windows(PATCHES.len()).any(|part| part == PATCHES.as_bytes());
        match self.cancel {
            _ if self.len < MIDDLE || (self.in_patches && !has_patches()) => {}
            Some(cancel) => {
                cancel.cancel(());
                // The rest may come before the cancellation counts, unless the reader is gone, too.
                if self.in_patches {
                    return Err(std::io::Error::other("closed"));
                }
            }
            None => return Err(std::io::Error::other("full")),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Otherwise DDL and the next clone wait for minutes, for a recipient that does not come back.
#[test]
fn a_server_is_told_of_the_end_of_a_clone_that_is_interrupted_or_fails() {
    if skipped() {
        return;
    }
    let donor = Donor::start(&[]);
    let target = donor.socket();
    for (in_patches, is_cancelled) in [(false, true), (true, true), (false, false), (true, false)] {
        let (mut settings, cancel) = (Settings::default(), CancelToken::new());
        settings.cancel = cancel.clone();
        let output = Ending { len: 0, in_patches, cancel: is_cancelled.then_some(&cancel) };
        let ended = receive(&target, &account(), &settings, &|_| (), output).map(drop);
        match is_cancelled {
            true => assert!(matches!(ended, Err(Error::Stopped)), "{ended:?}"),
            false => assert!(matches!(ended, Err(Error::Output(_))), "{ended:?}"),
        }
        let begin = Instant::now();
        donor.server.sql("CREATE TABLE t.after_it (id INT PRIMARY KEY); DROP TABLE t.after_it");
        let begun = || begin.elapsed() < Duration::from_secs(60);
        let next = || receive(&target, &account(), &Settings::default(), &|_| (), std::io::sink());
        let mut outcome = next();
        while matches!(outcome, Err(Error::Busy)) && begun() {
            outcome = next();
        }
        assert!(begun() && outcome.is_ok(), "{in_patches} {is_cancelled}: {:?}", outcome.err());
        println!("{in_patches} {is_cancelled}: {:?}", begin.elapsed());
        // Of the next one, too, it removes the last file soon after the end.
        while kept(&donor.server) > 0 {
            assert!(begun(), "the redo log is kept");
            std::thread::yield_now();
        }
    }
}

/// Bytes that a server has for its clients, and that they do not take.
fn unsent(port: u16) -> u64 {
    let text = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let of_line = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let (local, queues) = (words.next()?, words.nth(2)?);
        let is_it = local.ends_with(&format!(":{port:04X}"));
        is_it.then(|| u64::from_str_radix(queues.split_once(':')?.0, 16).ok())?
    };
    text.lines().filter_map(of_line).sum()
}

/// Takes nothing from the middle on, until told.
struct Stuck<'a> {
    len: usize,
    is_stuck: &'a AtomicBool,
    go_on: Receiver<()>,
}

impl std::io::Write for Stuck<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.len += bytes.len();
        if self.len > 5 << 20 && !self.is_stuck.swap(true, Ordering::SeqCst) {
            self.go_on.recv_timeout(Duration::from_secs(120)).map_err(std::io::Error::other)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The server waits for room for what it sends then: that must not last until its own time limit of a minute.
#[test]
fn a_server_whose_connection_is_full_is_let_go_at_once() {
    if skipped() {
        return;
    }
    let donor = Donor::start(&[]);
    let target = donor.tcp(Trust::Fingerprint(donor.fingerprint()));
    for is_stuck_to_the_end in [true, false] {
        let (mut settings, cancel) = (Settings::default(), CancelToken::new());
        settings.cancel = cancel.clone();
        let ((go_on, told), is_stuck) = (channel(), AtomicBool::new(false));
        let output = Stuck { len: 0, is_stuck: &is_stuck, go_on: told };
        let took = std::thread::scope(|threads| {
            let receive = || receive(&target, &account(), &settings, &|_| (), output).map(drop);
            let received = threads.spawn(receive);
            let (mut last, mut since) = (0, Instant::now());
            while last == 0 || since.elapsed() < Duration::from_secs(2) {
                let now = if is_stuck.load(Ordering::SeqCst) { unsent(donor.port) } else { 0 };
                if now != last {
                    (last, since) = (now, Instant::now());
                }
                std::thread::yield_now();
            }
            cancel.cancel(());
            let begin = Instant::now();
            let let_go = || go_on.send(()).unwrap();
            if !is_stuck_to_the_end {
                let_go();
            }
            donor.server.sql("CREATE TABLE t.after_it (id INT PRIMARY KEY); DROP TABLE t.after_it");
            let took = begin.elapsed();
            if is_stuck_to_the_end {
                let_go();
            }
            let ended = received.join().unwrap();
            assert!(matches!(ended, Err(Error::Stopped)), "{ended:?}");
            took
        });
        println!("{is_stuck_to_the_end}: {took:?}");
        assert!(took < Duration::from_secs(20), "{is_stuck_to_the_end}: DDL waited {took:?}");
    }
}

/// A server that is stopped is waited for, and one that is silent for too long is asked again.
#[test]
fn a_donor_that_is_stopped_for_a_while_continues() {
    if skipped() {
        return;
    }
    let donor = Donor::start(&[]);
    let target = donor.tcp(Trust::Fingerprint(donor.fingerprint()));
    for (silence, is_broken) in [(600, false), (2, true)] {
        let mut settings = Settings::default();
        settings.silence = Duration::from_secs(silence);
        let (told, tell_main) = std::sync::mpsc::channel();
        let stopped = AtomicBool::new(false);
        let tell = |notice: Notice<'_>| {
            if let Notice::Text(text) = notice {
                println!("{text}");
                told.send(()).unwrap();
            }
        };
        let output = Stopping { server: &donor.server, stopped: &stopped, len: 0 };
        let received = std::thread::scope(|threads| {
            let (server, is_stopped) = (&donor.server, &stopped);
            threads.spawn(move || {
                while !is_stopped.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
                // The break is told, or nothing happens in the meantime.
                let waited = tell_main.recv_timeout(Duration::from_secs(8));
                assert_eq!(waited.is_ok(), is_broken);
                server.signal(Signal::CONT);
            });
            let received = receive(&target, &account(), &settings, &tell, output);
            stopped.store(true, Ordering::SeqCst);
            received.map(|(info, _)| info)
        });
        let info = received.unwrap();
        assert!(info.files.len() > 10 && info.patches > 0);
    }
}

/// Stops a server once, in the middle of the files.
struct Stopping<'a> {
    server: &'a MySql,
    stopped: &'a AtomicBool,
    len: usize,
}

impl std::io::Write for Stopping<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.len += bytes.len();
        if self.len > 20 << 20 && !self.stopped.load(Ordering::SeqCst) {
            self.server.signal(Signal::STOP);
            self.stopped.store(true, Ordering::SeqCst);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
