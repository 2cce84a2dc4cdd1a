//! Stores, verifies, restores, prunes and deletes small backups in a loop, with faults at random:
//! `soak PROGRAM MINUTES SEED`. `scripts/soak` builds and starts it.
//!
//! There are three stores: a folder, a bucket on a real server behind a proxy that fails, and, if
//! the program runs as root, a file system of 24 MiB. Faults are SIGKILL at a random moment,
//! SIGSTOP with SIGCONT, and what [`Action`] offers. After every round, each backup that `list`
//! calls complete must come back bit for bit. A run that succeeded must have done what it was asked.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a panic reports a finding")]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use xb_testkit::command::{Cmd, Ran, Running, Signal};
use xb_testkit::daemon::Scratch;
use xb_testkit::data::Noise;
use xb_testkit::fault::{Action, Proxy, Rule};
use xb_testkit::files::{Digester, tree};
use xb_testkit::s3::{self, Bucket, options_for};
use xb_testkit::stream::{scan, small_backup};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [program, minutes, seed] = &args[..] else { panic!("usage: soak PROGRAM MINUTES SEED") };
    let (minutes, seed) = (minutes.parse::<u64>().unwrap(), seed.parse().unwrap());
    let mut soak = Soak::new(PathBuf::from(program), seed);
    let end = Instant::now() + Duration::from_secs(minutes * 60);
    while Instant::now() < end {
        soak.round();
    }
    println!("seed {seed}: {}", soak.counts());
}

/// A store of the test.
enum Place {
    Folder(PathBuf),
    /// A file system that is too small, unmounted at the end.
    Small(PathBuf),
    Bucket(Bucket, Proxy),
}

impl Place {
    fn url(&self, name: &str) -> String {
        match self {
            Self::Folder(root) | Self::Small(root) => format!("file://{}/{name}", root.display()),
            Self::Bucket(bucket, _) => bucket.url(&format!("soak/{name}")),
        }
    }

    /// Options for the way through the proxy, or around it.
    fn options(&self, faults: bool) -> Vec<String> {
        match self {
            Self::Bucket(bucket, _) if !faults => bucket.options(),
            Self::Bucket(_, proxy) => options_for(&proxy.endpoint()),
            _ => Vec::new(),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Self::Small(root) = self {
            let _ = Command::new("umount").arg(root).status();
        }
    }
}

/// A backup that was begun: the stream that it must have, and the options to read it.
struct Begun {
    stream: Vec<u8>,
    sealed: bool,
}

struct Soak {
    program: PathBuf,
    draw: Noise,
    // Unmounted before the scratch folder is removed.
    places: Vec<Place>,
    scratch: Scratch,
    /// Backups that were begun, by place and name.
    begun: BTreeMap<(usize, String), Begun>,
    counts: BTreeMap<&'static str, u64>,
    rounds: u64,
}

impl Soak {
    fn new(program: PathBuf, seed: u64) -> Self {
        let scratch = Scratch::new();
        let bucket = s3::bucket();
        let proxy = Proxy::start(bucket.address(), Vec::new());
        let mut places = vec![Place::Folder(scratch.dir("store")), Place::Bucket(bucket, proxy)];
        let small = scratch.dir("small");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=24m", "soak"]).arg(&small);
        if mount.status().is_ok_and(|status| status.success()) {
            places.push(Place::Small(small));
        }
        let key = scratch.join("key");
        fs::write(&key, [b'k'; 32]).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        let (begun, counts) = (BTreeMap::new(), BTreeMap::new());
        Self { program, draw: Noise::new(seed), scratch, places, begun, counts, rounds: 0 }
    }

    fn counts(&self) -> String {
        let counts = self.counts.iter().map(|(what, count)| format!("{count} {what}"));
        format!("{} rounds, {}", self.rounds, counts.collect::<Vec<_>>().join(", "))
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.draw.below(limit as u64)).unwrap()
    }

    fn command(&self, place: usize, command: &str, name: &str, faults: bool) -> Cmd {
        let place = &self.places[place];
        Cmd::new(&self.program)
            .args([command, "--quiet"])
            .args(place.options(faults))
            .arg(place.url(name))
    }

    fn key_option(&self) -> String {
        format!("--encrypt-key-file={}", self.scratch.join("key").display())
    }

    /// One operation with or without a fault, and then the comparison of everything.
    fn round(&mut self) {
        self.rounds += 1;
        let place = self.below(self.places.len());
        let complete = self.complete(place);
        match (self.below(10), complete.is_empty()) {
            (0..=4, _) | (_, true) => self.put(place),
            (5 | 6, false) => self.restore(place, &complete),
            (7, false) => self.verify(place, &complete),
            (8, false) => self.prune(place),
            (_, false) => self.delete(place, &complete),
        }
        self.compare(place);
        if self.rounds.is_multiple_of(20) {
            println!("{}", self.counts());
            let _ = std::io::stdout().flush();
        }
    }

    /// Runs a command, perhaps with a fault. Returns `None` if it was killed.
    fn with_fault(&mut self, place: usize, command: Cmd) -> Option<Ran> {
        let fault = self.below(6);
        if let Place::Bucket(_, proxy) = &self.places[place] {
            proxy.set_rules(Vec::new());
        }
        match fault {
            0 | 1 => {
                self.count("kills");
                let mut run = command.spawn();
                // Anywhere from the first step to after the last.
                let moment = Instant::now() + Duration::from_micros(self.draw.below(900_000));
                wait_until(moment, &mut run);
                let ended = run.has_ended();
                run.kill_9();
                let ran = run.wait();
                ended.then_some(ran)
            }
            2 => {
                self.count("suspensions");
                let mut run = command.spawn();
                for signal in [Signal::STOP, Signal::CONT, Signal::STOP, Signal::CONT] {
                    let moment = Instant::now() + Duration::from_micros(self.draw.below(300_000));
                    wait_until(moment, &mut run);
                    if !run.has_ended() {
                        run.signal(signal);
                    }
                }
                Some(run.wait())
            }
            3 | 4 => {
                let rules = self.rules();
                if let Place::Bucket(_, proxy) = &self.places[place] {
                    proxy.set_rules(rules);
                    self.count("faults of the store");
                }
                Some(command.run())
            }
            _ => Some(command.run()),
        }
    }

    /// A few faults of a store.
    fn rules(&mut self) -> Vec<Rule> {
        let count = 1 + self.below(3);
        (0..count)
            .map(|_| {
                let bytes = self.draw.below(300_000);
                let action = match self.below(6) {
                    0 => Action::answer(503),
                    1 => Action::answer(500),
                    2 => Action::CutRequest(bytes),
                    3 => Action::CutAnswer(bytes),
                    4 => Action::LoseAnswer,
                    _ => Action::Slow(1 << 20),
                };
                let method = ["PUT", "GET", "POST", "DELETE", ""][self.below(5)];
                let (skip, times) = (self.draw.below(12), 1 + self.draw.below(3));
                Rule::new(method, "", action).skip(skip).times(times)
            })
            .collect()
    }

    fn put(&mut self, place: usize) {
        let name = format!("n{}", self.below(12));
        if self.complete(place).contains(&name) {
            return;
        }
        let size = 1 + self.below(6 << 20);
        let stream = small_backup(self.rounds, size);
        let file = self.scratch.join("stream");
        fs::write(&file, &stream).unwrap();
        let sealed = self.below(3) == 0;
        let mut options = match self.below(3) {
            0 if !sealed => vec!["--layout=classic".to_owned()],
            1 => vec!["--chunk-size=300K".to_owned(), "--compress=zstd:1".to_owned()],
            _ => vec!["--chunk-size=1M".to_owned()],
        };
        if sealed {
            options.push(self.key_option());
        }
        let put = self.command(place, "put", &name, true);
        let put = put.args(["--take-over", "--max-backoff=50"]).args(options).stdin_file(&file);
        // A killed run may have committed its own stream, and nothing else.
        self.begun.insert((place, name.clone()), Begun { stream, sealed });
        self.count("puts");
        if self.with_fault(place, put).is_some_and(|ran| ran.code() == 0) {
            self.count("puts done");
            assert!(
                self.complete(place).contains(&name),
                "{name}: put succeeded, but is not there"
            );
        }
    }

    fn restore(&mut self, place: usize, complete: &[String]) {
        let name = complete[self.below(complete.len())].clone();
        let target = self.scratch.join("restored");
        let _ = fs::remove_dir_all(&target);
        let begun = &self.begun[&(place, name.clone())];
        let (expected, sealed) = (files(&begun.stream), begun.sealed);
        self.count("restores");
        for try_number in 0.. {
            let mut restore = self.command(place, "restore", &name, try_number == 0);
            restore = restore.arg(format!("--target-dir={}", target.display()));
            if sealed {
                restore = restore.arg(self.key_option());
            }
            let ran = match try_number {
                0 => self.with_fault(place, restore),
                _ => Some(restore.run()),
            };
            let done = ran.as_ref().is_some_and(|ran| ran.code() == 0);
            if done || try_number > 0 {
                // A run that was killed between its last step and its end has left all files: the
                // next one refuses a folder that is not empty.
                assert_eq!(tree(&target), expected, "{name} is restored otherwise: {ran:?}");
                return;
            }
            self.count("restores resumed");
        }
    }

    fn verify(&mut self, place: usize, complete: &[String]) {
        let name = complete[self.below(complete.len())].clone();
        let mut verify = self.command(place, "verify", &name, true);
        if self.begun[&(place, name.clone())].sealed {
            verify = verify.arg(self.key_option());
        }
        self.count("verifications");
        let _ = self.with_fault(place, verify);
    }

    fn prune(&mut self, place: usize) {
        let prune = self.command(place, "prune", "", true).args(["--keep-last=3", "--yes"]);
        self.count("prunes");
        let kept = self.complete(place).len().min(3);
        let _ = self.with_fault(place, prune);
        assert!(self.complete(place).len() >= kept, "prune removed more than it may");
    }

    fn delete(&mut self, place: usize, complete: &[String]) {
        let name = complete[self.below(complete.len())].clone();
        let delete = self.command(place, "delete", &name, true).arg("--yes");
        self.count("deletions");
        if self.with_fault(place, delete).is_some_and(|ran| ran.code() == 0) {
            assert!(!self.complete(place).contains(&name), "{name} is still there");
        }
    }

    /// Names that `list` calls complete.
    fn complete(&self, place: usize) -> Vec<String> {
        let listed = self.command(place, "list", "", false).arg("--json").run().expect(0);
        let lines: Value = serde_json::from_slice(&listed.stdout).unwrap();
        let complete = lines.as_array().unwrap().iter().filter(|l| l["state"] == "complete");
        complete.map(|line| line["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Every complete backup comes back bit for bit.
    fn compare(&mut self, place: usize) {
        for name in self.complete(place) {
            let Begun { stream, sealed } = &self.begun[&(place, name.clone())];
            let mut get = self.command(place, "get", &name, false);
            if *sealed {
                get = get.arg(self.key_option());
            }
            let got = get.run().expect(0);
            // A classic backup is read file by file, in the order of their names.
            let same = got.stdout == *stream || files(&got.stdout) == files(stream);
            assert!(same, "round {}: {name} came back otherwise", self.rounds);
            self.count("comparisons");
        }
    }
}

fn wait_until(moment: Instant, run: &mut Running) {
    while Instant::now() < moment && !run.has_ended() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Length and digest of each file of a stream.
fn files(stream: &[u8]) -> BTreeMap<String, (u64, String)> {
    let mut files: BTreeMap<String, Digester> = BTreeMap::new();
    for chunk in scan(stream) {
        let file = files.entry(chunk.path.clone()).or_default();
        if chunk.kind == 'P' {
            let payload = chunk.start + 14 + chunk.path.len() + 20;
            file.write_all(&stream[payload..chunk.stop]).unwrap();
        }
    }
    files.into_iter().map(|(path, digest)| (path, digest.result())).collect()
}
