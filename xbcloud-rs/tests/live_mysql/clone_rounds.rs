//! Clones of a busy MySQL in rounds, with cuts, kills and stalls at random: after each one, either the backup failed and
//! nothing is listed as complete, or it is restored, and every table equals that of its donor.
//!
//! `scripts/on-release sid mysql` runs 20 rounds in a chroot, `scripts/on-release sid clone-rounds` 200. Elsewhere this
//! does nothing, and says so. `XB_CLONE_ROUNDS` is the number of rounds, `XB_CLONE_SEED` repeats what they did.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use xb_testkit::command::{Cmd, Running, Signal};
use xb_testkit::daemon::Scratch;
use xb_testkit::data::Noise;
use xb_testkit::mysql::{MySql, is_installed};

const TABLES: &str = "INSTALL PLUGIN clone SONAME 'mysql_clone.so';
    CREATE USER backup@'%'; GRANT BACKUP_ADMIN, REFERENCES ON *.* TO backup@'%';
    SET SESSION cte_max_recursion_depth=100000; CREATE DATABASE t; USE t;
    CREATE TABLE plain (id INT PRIMARY KEY, v VARCHAR(200), b LONGBLOB, KEY(v(50)));
    INSERT INTO plain WITH RECURSIVE s AS (SELECT 1 n UNION ALL SELECT n+1 FROM s WHERE n<4000) SELECT n, REPEAT(SHA2(n,256),2), REPEAT('b', 900) FROM s;
    CREATE TABLE zip (id INT PRIMARY KEY, v VARCHAR(200), b LONGBLOB) ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=4; INSERT INTO zip SELECT * FROM plain;
    CREATE TABLE account (id INT PRIMARY KEY, balance INT); INSERT INTO account SELECT id, 100 FROM plain WHERE id <= 100;
    CREATE TABLE moved (id INT AUTO_INCREMENT PRIMARY KEY, v INT);
    CREATE TABLE sw1 LIKE plain; INSERT INTO sw1 SELECT * FROM plain WHERE id < 1000; CREATE TABLE sw2 LIKE plain; CREATE TABLE short LIKE moved; CREATE TABLE made LIKE moved;";
const ALL: &str = "t.plain, t.zip, t.account, t.moved, t.sw1, t.sw2, t.short, t.made";
/// Runs as well if the clone lets DDL run.
const DDL: &str = "RENAME TABLE t.sw1 TO t.swt, t.sw2 TO t.sw1, t.swt TO t.sw2; TRUNCATE TABLE t.short; INSERT INTO t.short (v) SELECT id FROM t.account;
    DROP TABLE IF EXISTS t.made; CREATE TABLE t.made LIKE t.moved; INSERT INTO t.made (v) SELECT id FROM t.plain; ALTER TABLE t.short ENGINE=InnoDB;";
const LOAD: &str = "BEGIN; UPDATE t.account SET balance = balance - 3 WHERE id = 1 + @@pseudo_thread_id MOD 50;
    UPDATE t.account SET balance = balance + 3 WHERE id = 51 + @@pseudo_thread_id MOD 50; INSERT INTO t.moved (v) VALUES (3); COMMIT;
    UPDATE t.plain SET v = SHA2(RAND(), 512), b = RANDOM_BYTES(900) WHERE id MOD 40 = 1; UPDATE t.zip SET v = SHA2(RAND(), 512) WHERE id MOD 40 = 1;";
const OPTIONS: [&str; 5] = [
    "--log-bin=binlog",
    "--gtid-mode=ON",
    "--enforce-gtid-consistency=ON",
    // A crash loses nothing that the binary log has.
    "--innodb-flush-log-at-trx-commit=1",
    "--sync-binlog=1",
];

/// The event in the middle of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    Nothing,
    /// Every connection to the donor is cut.
    Cut,
    /// The donor is killed, and starts again.
    DonorKilled,
    ProgramKilled,
    ProgramEnded,
    /// The program stops for a moment, while the donor goes on.
    ProgramStopped,
    /// The store takes no more bytes.
    StoreDead,
}

const FAULTS: [Fault; 7] = [
    Fault::Nothing,
    Fault::Cut,
    Fault::DonorKilled,
    Fault::ProgramKilled,
    Fault::ProgramEnded,
    Fault::ProgramStopped,
    Fault::StoreDead,
];

/// Passes connections on to the donor's socket, and counts what the donor sends.
#[derive(Clone, Default)]
struct Relay {
    to: Arc<Mutex<PathBuf>>,
    passed: Arc<AtomicU64>,
    open: Arc<Mutex<Vec<UnixStream>>>,
}

impl Relay {
    fn start(at: &Path) -> Self {
        let (relay, listener) = (Self::default(), UnixListener::bind(at).unwrap());
        let this = relay.clone();
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let to = this.to.lock().unwrap().clone();
                let Ok(far) = UnixStream::connect(to) else { continue };
                let both = [near.try_clone().unwrap(), far.try_clone().unwrap()];
                this.open.lock().unwrap().extend(both);
                let (near_2, far_2) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                let count = Arc::clone(&this.passed);
                std::thread::spawn(move || pass(far, near, &count));
                std::thread::spawn(move || pass(near_2, far_2, &AtomicU64::new(0)));
            }
        });
        relay
    }

    fn cut(&self) {
        for stream in self.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn pass(mut from: UnixStream, mut to: UnixStream, count: &AtomicU64) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        count.fetch_add(len as u64, SeqCst);
        if to.write_all(&buffer[..len]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// Ends the load, also when a round panics.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

struct Rounds {
    scratch: Scratch,
    data: PathBuf,
    relay: Relay,
    noise: Noise,
    /// Bytes that the donor sends in a clone, about.
    len: u64,
    outcomes: BTreeMap<(Fault, bool), usize>,
}

impl Rounds {
    fn new(seed: u64) -> Self {
        let server = MySql::start_with(&OPTIONS);
        server.sql(TABLES);
        let scratch = server.shut_down();
        let relay = Relay::start(&scratch.join("relay"));
        let (data, noise) = (scratch.join("data"), Noise::new(seed));
        std::fs::write(scratch.join("login"), "[client]\nuser=backup\n").unwrap();
        Self { scratch, data, relay, noise, len: 90 << 20, outcomes: BTreeMap::new() }
    }

    fn donor(&self) -> MySql {
        let donor = MySql::start_on(&self.data, &OPTIONS);
        donor.socket().clone_into(&mut self.relay.to.lock().unwrap());
        donor
    }

    fn program(&self, args: &[&str]) -> Cmd {
        // A file system that takes no more bytes is an error, and no signal.
        let shell = ["-c", "trap '' XFSZ; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_xbcloud-rs")];
        Cmd::new("/bin/sh").args(shell).args(args).env("HOME", self.scratch.path())
    }

    /// One backup under load. Returns whether it succeeded, and the donor that runs now if the first one was killed.
    fn backup(
        &mut self,
        donor: &MySql,
        fault: Fault,
        name: &str,
        has_ddl: bool,
    ) -> (bool, Option<MySql>) {
        let at = self.noise.below(self.len + self.len / 20);
        self.relay.passed.store(0, SeqCst);
        let [url, from, login] = [
            format!("file://{}/{name}", self.scratch.join("root").display()),
            format!("--from=mysql://{}", self.scratch.join("relay").display()),
            format!("--login-file={}", self.scratch.join("login").display()),
        ];
        let is_over = AtomicBool::new(false);
        let (code, next) = std::thread::scope(|threads| {
            let _end = Ends(&is_over);
            threads.spawn(|| {
                while !is_over.load(SeqCst) {
                    // Fails once the donor is killed.
                    drop(donor.start_sql(LOAD).wait());
                    if has_ddl {
                        drop(donor.start_sql(DDL).wait());
                    }
                }
            });
            let mut args =
                vec!["backup", &url, &from, &login, "--compress=zstd:1", "--chunk-size=2M"];
            args.extend(has_ddl.then_some("--allow-ddl"));
            let mut running = self.program(&args).spawn();
            while self.relay.passed.load(SeqCst) < at && !running.has_ended() {
                std::thread::yield_now();
            }
            let next = match running.has_ended() {
                true => None,
                false => self.strike(fault, donor, &mut running),
            };
            (running.wait().code(), next)
        });
        if code == 0 {
            self.len = self.relay.passed.load(SeqCst);
        }
        println!("{name}: {fault:?} at {at}, with DDL {has_ddl}: {code}");
        (code == 0, next)
    }

    /// One backup for which DDL does not wait, and whose connections are cut each time that the donor has sent so many bytes
    /// more. Returns how often.
    fn backup_with_cuts(&self, donor: &MySql, name: &str, bytes: u64) -> usize {
        self.relay.passed.store(0, SeqCst);
        let [url, from, login] = [
            format!("file://{}/{name}", self.scratch.join("root").display()),
            format!("--from=mysql://{}", self.scratch.join("relay").display()),
            format!("--login-file={}", self.scratch.join("login").display()),
        ];
        let args = ["backup", &url, &from, &login, "--compress=zstd:1", "--allow-ddl"];
        let (is_over, loads, changes) =
            (&AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|threads| {
            let _end = Ends(is_over);
            for (statements, done) in [(LOAD, &loads), (DDL, &changes)] {
                threads.spawn(move || {
                    while !is_over.load(SeqCst) {
                        // Now and then, one is the victim of a deadlock.
                        let is_done = donor.start_sql(statements).wait().code() == 0;
                        done.fetch_add(u64::from(is_done), SeqCst);
                    }
                });
            }
            let mut running = self.program(&args).spawn();
            let (mut next, mut cuts) = (bytes, 0);
            while !running.has_ended() {
                if self.relay.passed.load(SeqCst) >= next {
                    self.relay.cut();
                    (next, cuts) = (self.relay.passed.load(SeqCst) + bytes, cuts + 1);
                }
                std::thread::yield_now();
            }
            let said = running.wait().expect(0).stderr_text();
            let again = said.matches("connecting again").count();
            assert!(again > 0, "{cuts} cuts: {said}");
            assert!(loads.load(SeqCst) > 0 && changes.load(SeqCst) > 0, "{loads:?} {changes:?}");
            again
        })
    }

    fn strike(&self, fault: Fault, donor: &MySql, running: &mut Running) -> Option<MySql> {
        match fault {
            Fault::Nothing => {}
            Fault::Cut => self.relay.cut(),
            Fault::DonorKilled => {
                donor.kill();
                return Some(self.donor());
            }
            Fault::ProgramKilled => running.kill_9(),
            Fault::ProgramEnded => running.signal(Signal::TERM),
            Fault::ProgramStopped => {
                running.signal(Signal::STOP);
                drop(donor.start_sql(LOAD).wait());
                running.signal(Signal::CONT);
            }
            Fault::StoreDead => {
                let pid = format!("--pid={}", running.pid());
                // It may have ended.
                let _ = Cmd::new("/usr/bin/prlimit").args([&pid, "--fsize=4096"]).run();
            }
        }
        None
    }

    fn is_complete(&self, name: &str) -> bool {
        let root = format!("file://{}/", self.scratch.join("root").display());
        let ran = self.program(&["list", "--json", &root]).run().expect(0);
        let list: Value = serde_json::from_slice(&ran.stdout).unwrap();
        let mut lines = list.as_array().unwrap().iter();
        lines.any(|line| line["name"] == name && line["state"] == "complete")
    }

    /// Restores the backup, and compares it with the donor, which rests.
    fn compare(&self, donor: &MySql, name: &str) {
        let target = self.scratch.join(name);
        let url = format!("file://{}/{name}", self.scratch.join("root").display());
        let into = format!("--target-dir={}", target.display());
        let _ = self.program(&["restore", &url, &into, "--prepare"]).run().expect(0);
        let copy = MySql::start_on(&target, &OPTIONS);
        assert_eq!(copy.sql("SELECT SUM(balance) FROM t.account"), "10000\n", "{name}");
        copy.catch_up(donor, &self.data);
        let sums = format!("CHECKSUM TABLE {ALL}");
        assert_eq!(copy.sql(&sums), donor.sql(&sums), "{name}");
        drop(copy);
        std::fs::remove_dir_all(target).unwrap();
    }

    fn round(&mut self, number: usize) {
        let (fault, name) = (FAULTS[number % FAULTS.len()], format!("r{number}"));
        let donor = self.donor();
        // Each comparison reads all logs.
        donor.sql("PURGE BINARY LOGS BEFORE NOW() + INTERVAL 1 DAY");
        // The donor waits for a recipient that is gone, and DDL with it.
        let may_wait =
            matches!(fault, Fault::ProgramKilled | Fault::ProgramEnded | Fault::StoreDead);
        let has_ddl = number / FAULTS.len() % 2 == 1 && !may_wait;
        let (is_done, next) = self.backup(&donor, fault, &name, has_ddl);
        let donor = next.unwrap_or(donor);
        // A listed backup can be restored, even if its program did not live to report it.
        let is_complete = self.is_complete(&name);
        assert!(
            !is_done || is_complete,
            "{name}: {fault:?}: a backup that succeeded is not complete"
        );
        let may_lag = fault == Fault::ProgramKilled || fault == Fault::ProgramEnded;
        assert!(
            is_done || !is_complete || may_lag,
            "{name}: {fault:?}: one that failed is complete"
        );
        if is_complete {
            self.compare(&donor, &name);
            let url = format!("file://{}/{name}", self.scratch.join("root").display());
            let _ = self.program(&["delete", &url, "--yes"]).run().expect(0);
        }
        *self.outcomes.entry((fault, is_complete)).or_default() += 1;
    }
}

#[test]
fn rounds_with_faults_end_with_an_error_or_an_equal_copy() {
    if !is_installed() {
        return xb_testkit::skipped("this system has no MySQL; see scripts/on-release");
    }
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let (count, seed) =
        (number("XB_CLONE_ROUNDS").unwrap_or(20), number("XB_CLONE_SEED").unwrap_or(1));
    let mut rounds = Rounds::new(seed);
    for number in 0..usize::try_from(count).unwrap() {
        rounds.round(number);
    }
    println!("seed {seed}: {:?}", rounds.outcomes);
    // A connection that was cut has been replaced.
    assert!(rounds.outcomes.contains_key(&(Fault::Cut, true)));
    assert!(rounds.outcomes.keys().any(|(_, is_complete)| !is_complete));
}

/// The donor announces DDL between two stages, and again after REINIT.
#[test]
fn clones_that_are_cut_again_and_again_while_ddl_runs_are_equal() {
    if !is_installed() {
        return xb_testkit::skipped("this system has no MySQL; see scripts/on-release");
    }
    let rounds = Rounds::new(1);
    let mut donor = rounds.donor();
    // The last one cuts small stages, too.
    for (number, mib) in [40, 17, 5].into_iter().enumerate() {
        let name = format!("c{number}");
        let cuts = rounds.backup_with_cuts(&donor, &name, mib << 20);
        println!("{name}: {cuts} cuts");
        rounds.compare(&donor, &name);
        drop(donor);
        donor = rounds.donor();
    }
}
