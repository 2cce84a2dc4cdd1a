//! Random catalogues (servers, chains, forks, consolidated backups, damage, clocks, pins, locks, marks of removals,
//! dead runs) and a small model of what can be restored now. No program (`list`, `show latest`, `monitor`, `prune`,
//! `run`, `gc`, `delete`) reports more than the model, and none removes the last backup of a server that can be
//! restored. Of the same data, a consolidated backup counts before its chain if a trial restore has proven it, and after it
//! otherwise. A locked backup is one whose files the file system does not remove (`chattr +i`, root only): as in a store with
//! a retention policy, what a program does not remove stays whole.
//!
//! The model knows how each backup was made, and what was damaged since. It reads no manifest.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use proptest::collection::vec;
use proptest::prelude::*;
use rustix::fs::IFlags;
use xb_backup::Keep;
use xb_repo::claim::mark::Mark;
use xb_repo::list::{Listing, State};
use xb_repo::manifest::history::History;
use xb_repo::manifest::source_info::SourceInfo;
use xb_repo::manifest::{Base, End, Manifest, sample};
use xb_repo::names::BackupName;
use xb_repo::records;
use xb_repo::resolve::{BackupSelector, resolve};
use xb_repo::root::Root;
use xb_repo::verification::{Level, PageReport};
use xb_testkit::command::{Cmd, Ran};
use xb_testkit::stream::small_backup;
use xb_uploader::{Location, Policy, StorePlace, StoreSettings};

const DAY: i64 = 86_400;
/// Name of the backup that `run` makes.
const NIGHT: &str = "night";
const SERVERS: [Option<&str>; 3] = [Some("a"), Some("b"), None];

/// The base of an increment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tie {
    /// The base, as it should be.
    Fits,
    /// The server was restored from an older backup since, and has passed the base's LSN again.
    OtherHistory,
    /// It begins after the base's end.
    Gap,
}

/// The fate of a backup since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    ManifestGone,
    ManifestDamaged,
    /// A later version of the program wrote the manifest.
    ManifestTooNew,
    ObjectsGone,
    /// Another full backup took the name.
    Replaced,
    /// A verification found damage.
    Failed,
}

/// How to make a backup.
#[derive(Debug, Clone)]
struct Recipe {
    server: usize,
    /// The base, by its number, if there is one of that server by then.
    on: Option<usize>,
    tie: Tie,
    names_base: bool,
    /// It is no increment on the base, but a full backup that was consolidated from the base's chain, if that
    /// is one which was whole.
    merges: bool,
    fault: Fault,
    proven: Option<Level>,
    raw: bool,
    pinned: bool,
    /// Nothing of it can be removed, if nothing else has happened to it.
    locked: bool,
    /// Another command has marked it in order to remove it.
    marked: bool,
    /// Seconds by which its host's clock was wrong.
    clock: i64,
    /// A dead run has left an object below its name.
    litter: bool,
}

fn recipe() -> impl Strategy<Value = Recipe> {
    let tie = prop_oneof![8 => Just(Tie::Fits), 1 => Just(Tie::OtherHistory), 1 => Just(Tie::Gap)];
    let fault = prop_oneof![
        12 => Just(Fault::None),
        1 => Just(Fault::ManifestGone),
        1 => Just(Fault::ManifestDamaged),
        1 => Just(Fault::ManifestTooNew),
        1 => Just(Fault::ObjectsGone),
        1 => Just(Fault::Replaced),
        1 => Just(Fault::Failed),
    ];
    let clock = prop_oneof![6 => Just(0), 1 => -40 * DAY..0, 1 => 0..40 * DAY];
    let is = |weight| prop::bool::weighted(weight);
    let proven = prop_oneof![6 => Just(None), 1 => Just(Some(Level::Pages)), 2 => Just(Some(Level::Restore))];
    let base = prop::option::weighted(0.7, 0..10_usize);
    let server = prop_oneof![4 => Just(0), 1 => 1..SERVERS.len()];
    let first = (server, base, tie, is(0.8), is(0.4), fault, proven);
    let second = (is(0.05), is(0.1), is(0.1), is(0.05), clock, is(0.1));
    (first, second).prop_map(|(first, (raw, pinned, locked, marked, clock, litter))| {
        let (server, on, tie, names_base, merges, fault, proven) = first;
        Recipe {
            server,
            on,
            tie,
            names_base,
            merges,
            fault,
            proven,
            raw,
            pinned,
            locked,
            marked,
            clock,
            litter,
        }
    })
}

fn keep() -> impl Strategy<Value = Keep> {
    let number = |most: usize| prop::option::of(1..=most);
    let days = prop::option::of(1..12_u64);
    (number(3), number(3), number(2), number(1), days)
        .prop_map(|(last, daily, weekly, monthly, days)| {
            let within = days.map(|days| Duration::from_secs(days * 86_400));
            Keep { last, daily, weekly, monthly, within, ..Keep::default() }
        })
        .prop_filter("no rule", |keep| !keep.is_empty())
}

/// A backup as the model knows it.
#[derive(Debug, Clone)]
struct Made {
    recipe: Recipe,
    name: String,
    base: Option<usize>,
    /// The last backup of the chain that it was consolidated from.
    merged: Option<usize>,
    finished: Timestamp,
    /// It was removed by a command.
    removed: bool,
}

impl Made {
    fn has_manifest(&self) -> bool {
        !self.removed && self.recipe.fault != Fault::ManifestGone
    }
}

struct World {
    /// Files that cannot be removed.
    locked: Vec<PathBuf>,
    folder: tempfile::TempDir,
    root: Root,
    made: Vec<Made>,
    now: Timestamp,
}

fn of(text: &str) -> BackupName {
    BackupName::new(text).unwrap()
}

fn run(number: usize, replaced: bool) -> String {
    format!("{:032x}", number + if replaced { 0x100 } else { 1 })
}

impl Drop for World {
    fn drop(&mut self) {
        for file in &self.locked {
            set_flags(file, IFlags::empty());
        }
    }
}

/// Returns whether the file has these flags now; only root may set them, and not in every file system.
fn set_flags(file: &Path, flags: IFlags) -> bool {
    let file = std::fs::File::open(file).unwrap();
    rustix::fs::ioctl_setflags(&file, flags).is_ok()
}

impl World {
    async fn new(recipes: Vec<Recipe>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("root").to_str().unwrap().trim_start_matches('/').to_owned();
        let location = Location { place: StorePlace::Local, path };
        let root =
            Root::open(&location, &StoreSettings::default(), Policy::default(), true).unwrap();
        let (locked, now) = (Vec::new(), Timestamp::now());
        let mut world = Self { locked, folder, root, made: Vec::new(), now };
        let all = i64::try_from(recipes.len()).unwrap();
        for (n, recipe) in (0..).zip(recipes) {
            let same = |m: &usize| world.made[*m].recipe.server == recipe.server;
            let bases: Vec<usize> = (0..world.made.len()).filter(same).collect();
            let base = recipe.on.filter(|_| !bases.is_empty()).map(|on| bases[on % bases.len()]);
            let written = world.now.as_second() - (all - n) * DAY;
            let finished = Timestamp::from_second(written + recipe.clock).unwrap();
            let name = format!("n{n}");
            let mut made = Made { recipe, name, base, merged: None, finished, removed: false };
            if let Some(last) = base.filter(|&last| made.recipe.merges && world.can_be_merged(last))
            {
                (made.base, made.merged) = (None, Some(last));
                (made.recipe.raw, made.finished) = (false, world.made[last].finished);
            }
            world.made.push(made);
            world.make(world.made.len() - 1, written).await;
        }
        for made in world.made.clone() {
            world.happen(&made).await;
        }
        for n in 0..world.made.len() {
            let Recipe { fault, locked, .. } = &world.made[n].recipe;
            if *locked {
                world.made[n].recipe.locked = *fault == Fault::None && world.lock(n);
            }
        }
        world
    }

    fn path(&self, below: &str) -> PathBuf {
        self.folder.path().join("root").join(below)
    }

    fn url(&self) -> String {
        format!("file://{}", self.path("").display())
    }

    async fn store(&self, manifest: &Manifest, written: i64) {
        let name = of(&manifest.name);
        let keys = self.root.run_keys(&name, &manifest.run);
        for (number, bytes) in [(0, &[1; 10][..]), (1, &[2; 5])] {
            self.root.store().put(&keys.data(number), bytes.to_vec().into()).await.unwrap();
        }
        self.root.commit(&name, manifest, None).await.unwrap();
        self.age(&self.path(&format!(".xb-catalog/{name}")), written);
    }

    fn age(&self, path: &std::path::Path, to: i64) {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(to.try_into().unwrap());
        std::fs::File::options().append(true).open(path).unwrap().set_modified(time).unwrap();
    }

    /// Writes a backup as its run did.
    async fn make(&self, n: usize, written: i64) {
        let Made { recipe, name, base, merged, finished, .. } = &self.made[n];
        let mut manifest = sample();
        (manifest.name, manifest.run) = (name.clone(), run(n, false));
        manifest.server = SERVERS[recipe.server].map(str::to_owned);
        (manifest.started, manifest.finished) = (*finished, *finished);
        let end = |n: usize| 1000 * (self.origin(n) as u64 + 1);
        let gap = u64::from(recipe.tie == Tie::Gap);
        manifest.source.from_lsn = Some(base.map_or(0, |base| end(base) + gap));
        manifest.source.to_lsn = Some(end(n));
        let kind = if base.is_some() { "incremental" } else { "full-backuped" };
        manifest.source.backup_type = Some(kind.to_owned());
        let named = base.filter(|_| recipe.names_base);
        manifest.base = named.map(|base| Base { name: format!("n{base}"), run: run(base, false) });
        let server_uuid = Some(self.history(n));
        manifest.history = Some(History { server_uuid, ..History::default() });
        if recipe.raw {
            manifest.end = End::Raw;
        }
        if let Some(last) = *merged {
            self.take_over(&mut manifest, last).await;
        }
        self.store(&manifest, written).await;
        if let Some(level) = recipe.proven {
            self.record(name, level, true).await;
        }
        if recipe.pinned {
            xb_repo::pin::pin(&self.root, &of(name), None).await.unwrap();
        }
    }

    /// The history in which a backup was taken: that of its base, unless the server was restored since.
    fn history(&self, n: usize) -> String {
        let made = &self.made[n];
        let base = made.base.filter(|_| made.recipe.tie != Tie::OtherHistory);
        base.or(made.merged).map_or_else(|| format!("history-{n}"), |of| self.history(of))
    }

    /// Its chain as it was made, itself first.
    fn chain(&self, n: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(n), |&link| self.made[link].base)
    }

    /// Returns whether `n` is an increment whose chain was whole when it was made.
    fn can_be_merged(&self, n: usize) -> bool {
        let fits = |link: usize| {
            let Made { recipe, base, .. } = &self.made[link];
            !recipe.raw && (base.is_none() || recipe.tie == Tie::Fits)
        };
        self.made[n].base.is_some() && self.chain(n).all(fits)
    }

    /// Makes a manifest that of a full backup which was consolidated from the chain of `last`.
    async fn take_over(&self, manifest: &mut Manifest, last: usize) {
        let mut links = Vec::new();
        for link in self.chain(last) {
            links.push(
                self.root.stored_manifest(&of(&self.made[link].name)).await.unwrap().unwrap(),
            );
        }
        let last = links[0].manifest.clone();
        let kind = Some("full-backuped".to_owned());
        manifest.source =
            SourceInfo { backup_type: kind, from_lsn: Some(0), ..last.source.clone() };
        let from = links.iter().rev().map(|link| link.merged_link()).collect();
        manifest.take_over(&last, from, true).unwrap();
    }

    async fn record(&self, name: &str, level: Level, ok: bool) {
        let manifest = self.root.stored_manifest(&of(name)).await.unwrap().unwrap().digest();
        // Damage is found after the proof.
        let finished = self.now.as_second() - if ok { 60 } else { 0 };
        let finished = Timestamp::from_second(finished).unwrap().to_string();
        let result = serde_json::json!({
            "level": level.as_str(), "ok": ok, "finished": finished, "tool": "test",
            "pages": PageReport::default(),
        });
        let result = serde_json::from_value(result).unwrap();
        records::add(&self.root, &of(name), &manifest, result, None).await.unwrap();
    }

    /// Does to a backup what happened to it after all were made.
    async fn happen(&self, made: &Made) {
        let Made { recipe, name, .. } = made;
        let manifest = self.path(&format!(".xb-catalog/{name}"));
        let stored = self.root.stored_manifest(&of(name)).await.unwrap().unwrap();
        let written = std::fs::metadata(&manifest).unwrap().modified().unwrap();
        let written = written.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64;
        if recipe.marked {
            let run = Some(stored.manifest.run.as_str());
            // Its process lives as long as this test.
            Mark::set(&self.root, &of(name), run, Some(stored.digest())).await.unwrap();
        }
        if recipe.litter {
            let run = self.path(&format!("{name}/{}", run(0x1000, false)));
            std::fs::create_dir_all(&run).unwrap();
            let object = run.join(format!("{:09}", 0));
            std::fs::write(&object, [3; 7]).unwrap();
            self.age(&object, written);
        }
        match recipe.fault {
            Fault::None => (),
            Fault::ManifestGone => std::fs::remove_file(manifest).unwrap(),
            Fault::ManifestDamaged => {
                let mut bytes = std::fs::read(&manifest).unwrap();
                bytes[30] ^= 1;
                std::fs::write(&manifest, bytes).unwrap();
                self.age(&manifest, written);
            }
            Fault::ManifestTooNew => {
                let newer = Manifest { format: 2, ..stored.manifest.clone() };
                std::fs::write(&manifest, newer.encode(None).unwrap()).unwrap();
                self.age(&manifest, written);
            }
            Fault::ObjectsGone => std::fs::remove_dir_all(self.path(name)).unwrap(),
            Fault::Replaced => {
                std::fs::remove_file(manifest).unwrap();
                std::fs::remove_dir_all(self.path(&format!("{name}/{}", stored.manifest.run)))
                    .unwrap();
                let mut other = sample();
                let number: usize = name[1..].parse().unwrap();
                (other.name, other.run) = (name.clone(), run(number, true));
                (other.started, other.finished) = (made.finished, made.finished);
                other.server = stored.manifest.server.clone();
                other.source.backup_type = Some("full-backuped".to_owned());
                (other.source.from_lsn, other.source.to_lsn) = (Some(0), Some(7));
                self.store(&other, written).await;
            }
            Fault::Failed => self.record(name, Level::Pages, false).await,
        }
    }

    /// Locks the files of a backup, its manifest included. Returns whether they are locked.
    fn lock(&mut self, n: usize) -> bool {
        let name = &self.made[n].name;
        let run = self.path(&format!("{name}/{}", run(n, false)));
        let mut files = vec![self.path(&format!(".xb-catalog/{name}"))];
        files.extend(std::fs::read_dir(run).unwrap().map(|file| file.unwrap().path()));
        let all = files.iter().all(|file| set_flags(file, IFlags::IMMUTABLE));
        self.locked.extend(files);
        all
    }

    /// Returns whether any backup is locked.
    fn has_locked(&self) -> bool {
        self.made.iter().any(|made| made.recipe.locked)
    }

    /// Returns whether a backup can be restored now.
    fn is_restorable(&self, n: usize) -> bool {
        self.is_restorable_as(n, true)
    }

    /// `as_made`: with the content of its own run, as an increment of it needs.
    fn is_restorable_as(&self, n: usize, itself: bool) -> bool {
        let made = &self.made[n];
        if made.removed || made.recipe.raw && made.recipe.fault != Fault::Replaced {
            return false;
        }
        match made.recipe.fault {
            // The new backup of the name is full, and no increment is based on it.
            Fault::Replaced => itself,
            Fault::None => made.base.is_none_or(|base| {
                made.recipe.tie == Tie::Fits
                    && self.can_be_base(n, base).any(|base| self.is_restorable_as(base, false))
            }),
            _ => false,
        }
    }

    /// The base of `n`, and if its manifest does not name it, all backups of the same data.
    fn can_be_base(&self, n: usize, base: usize) -> impl Iterator<Item = usize> {
        let is_same = move |&other: &usize| {
            other == base
                || !self.made[n].recipe.names_base && self.origin(other) == self.origin(base)
        };
        (0..self.made.len()).filter(is_same)
    }

    /// The backup that the server made of the data of `n`.
    fn origin(&self, n: usize) -> usize {
        self.made[n].merged.unwrap_or(n)
    }

    /// Identity of the data of `n`: its origin, and whether another backup took the name.
    fn data(&self, n: usize) -> (usize, bool) {
        match self.made[n].recipe.fault {
            Fault::Replaced => (n, true),
            _ => (self.origin(n), false),
        }
    }

    fn is_merged(&self, n: usize) -> bool {
        self.made[n].merged.is_some() && self.made[n].recipe.fault != Fault::Replaced
    }

    /// Returns whether it was consolidated, and a trial restore has proven it: it counts in place of its chain.
    fn is_proven_merge(&self, n: usize) -> bool {
        self.is_merged(n) && self.made[n].recipe.proven == Some(Level::Restore)
    }

    /// Whether, of the backups `of` of the data of `n`, there is one that counts more than `n` does: a proven merge
    /// counts more than the server's own backup, and that one more than another merge.
    fn counts_less(&self, n: usize, of: &[usize]) -> bool {
        let rank = |n: usize| match (self.is_merged(n), self.is_proven_merge(n)) {
            (true, proven) => 2 * u8::from(proven),
            (false, _) => 1,
        };
        of.iter().any(|&other| self.data(other) == self.data(n) && rank(other) > rank(n))
    }

    /// Returns whether every link of its chain names its base: otherwise a command may know less than the model.
    fn is_named(&self, n: usize) -> bool {
        let made = &self.made[n];
        made.recipe.fault == Fault::Replaced
            || made.base.is_none_or(|base| made.recipe.names_base && self.is_named(base))
    }

    fn restorable(&self) -> BTreeSet<usize> {
        (0..self.made.len()).filter(|&n| self.is_restorable(n)).collect()
    }

    fn is_ahead(&self, n: usize) -> bool {
        self.made[n].finished.as_second() > self.now.as_second() + 3600
    }

    fn number(&self, name: &str) -> usize {
        self.made.iter().position(|made| made.name == name).unwrap()
    }

    /// The backups of a server that can be restored for certain and whose clocks were not ahead, the
    /// newest first.
    fn sure(&self, server: usize) -> Vec<usize> {
        let is = |n: &usize| {
            let sure = self.is_restorable(*n) && self.is_named(*n) && !self.is_ahead(*n);
            sure && self.made[*n].recipe.server == server
        };
        let mut all: Vec<usize> = (0..self.made.len()).filter(is).collect();
        all.sort_by_key(|&n| std::cmp::Reverse((self.made[n].finished, self.made[n].name.clone())));
        all
    }

    /// Looks at the store for what is gone, and returns it.
    fn look(&mut self) -> Vec<usize> {
        let mut gone = Vec::new();
        for n in 0..self.made.len() {
            let there = self.path(&format!(".xb-catalog/{}", self.made[n].name)).exists();
            if self.made[n].has_manifest() && !there {
                self.made[n].removed = true;
                gone.push(n);
            }
        }
        gone
    }

    /// Returns whether the objects of a backup are as they were.
    fn has_objects(&self, n: usize) -> bool {
        let made = &self.made[n];
        if made.name == NIGHT {
            return self.path(NIGHT).exists();
        }
        let run =
            self.path(&format!("{}/{}", made.name, run(n, made.recipe.fault == Fault::Replaced)));
        std::fs::read_dir(run).is_ok_and(|files| files.count() == 2)
    }

    // Reports and effects of each command.

    fn command(&self, name: &str, at: &str, args: &[String]) -> Ran {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .env("XDG_CACHE_HOME", self.folder.path().join("cache"))
            .env("XDG_STATE_HOME", self.folder.path().join("state"))
            .arg(name)
            .arg(format!("{}{at}", self.url()))
            .args(args)
            .run()
    }

    fn json(&self, name: &str, at: &str, args: &[String]) -> serde_json::Value {
        let args = [args, &["--json".to_owned()]].concat();
        let ran = self.command(name, at, &args).expect(0);
        serde_json::from_str(&ran.stdout_text()).unwrap()
    }

    async fn check_list(&self) {
        let lines = xb_repo::list::list(&self.root).await.unwrap();
        let by_key = xb_repo::list::list_by_key(&self.root).await.unwrap().lines;
        assert_eq!(facts(&lines), facts(&by_key));
        let listed = self.json("list", "", &[]);
        let told = listed.as_array().unwrap().iter();
        let told = told.map(|line| (line["name"].as_str().unwrap(), &line["restorable"]));
        let restorable = |line: &Listing| serde_json::Value::from(line.restorable);
        let shown: Vec<_> =
            lines.iter().map(|line| (line.name.as_str(), restorable(line))).collect();
        let told: BTreeMap<_, _> = told.map(|(name, is)| (name, is.clone())).collect();
        assert_eq!(told, shown.into_iter().collect());
        for line in lines {
            let n = self.number(&line.name);
            assert!(!line.restorable || self.is_restorable(n), "{line:?}");
            // Not less either, where the manifests say all.
            let named = self.is_named(n) && self.made[n].has_manifest();
            assert!(line.restorable || !named || !self.is_restorable(n), "{line:?}");
            if line.restorable {
                xb_repo::chain::chain(&self.root, &of(&line.name)).await.unwrap();
            }
        }
    }

    /// Checks what counts as the latest backup of each server; `shown`: of this one, what the program takes.
    async fn check_latest(&self, by: Option<Timestamp>, shown: Option<usize>) {
        let wanted = by.map_or(BackupSelector::Latest, BackupSelector::By);
        for (server, id) in SERVERS.iter().enumerate() {
            let in_time = |n: &usize| by.is_none_or(|by| self.made[*n].finished <= by);
            let all = self.sure(server);
            let sure = all.iter().copied().find(in_time);
            let resolved = resolve(&self.root, &wanted, Some(id.unwrap_or("none"))).await;
            if shown == Some(server) {
                let server = format!("--server={}", id.unwrap_or("none"));
                // The streams are none, so it only says which backup it takes.
                let said = self.command("show", "latest", &[server]).stderr_text();
                let used = |line: &str| Some(line.split_once("using backup ")?.1.to_owned());
                let used = said.lines().find_map(used);
                let found = resolved.as_ref().ok().map(|found| found.name.to_string());
                assert_eq!(used, found, "{said}");
            }
            let found = match resolved {
                Ok(found) => self.number(found.name.as_str()),
                Err(error) => {
                    assert!(sure.is_none(), "{sure:?}: {error}");
                    continue;
                }
            };
            assert!(self.is_restorable(found) && in_time(&found), "{found}");
            assert_eq!(self.made[found].recipe.server, server);
            assert!(!self.counts_less(found, &all), "{found} of {all:?}");
            if let Some(sure) = sure {
                let is_older = self.made[found].finished < self.made[sure].finished;
                assert!(!self.is_ahead(found) && !is_older, "{found} instead of {sure}");
            }
        }
    }

    fn check_monitor(&self, days: i64) {
        let ran = self.command("monitor", "", &[format!("--max-age={days}d")]);
        let (code, text) = (ran.code(), ran.stdout_text());
        assert!(code <= 2, "{text}{}", ran.stderr_text());
        if code == 2 {
            return;
        }
        // A server that has backups has one that can be restored, and is young enough.
        for made in self.made.iter().filter(|made| made.has_manifest()) {
            let Made { recipe, .. } = made;
            let is_read = !matches!(recipe.fault, Fault::ManifestDamaged | Fault::ManifestTooNew);
            let is_raw = recipe.raw && recipe.fault != Fault::Replaced;
            if !is_read || is_raw || recipe.fault == Fault::ObjectsGone {
                continue;
            }
            let young = |n: usize| {
                let age = self.now.as_second() - self.made[n].finished.as_second();
                self.made[n].recipe.server == recipe.server && age <= days * DAY + 60
            };
            let is_good = |n: &usize| young(*n) && !self.is_ahead(*n);
            assert!(self.restorable().iter().any(is_good), "{made:?}: {text}");
        }
    }

    fn check_prune(&mut self, keep: &Keep) {
        let before = self.restorable();
        let options = [rules(keep), vec!["--yes".to_owned(), "--json".to_owned()]].concat();
        let ran = self.command("prune", "", &options);
        let gone = self.check_pruned(&before, keep);
        if ran.code() != 0 {
            return self.assert_locked(&ran);
        }
        let told: serde_json::Value = serde_json::from_str(&ran.stdout_text()).unwrap();
        let told = told["removed"].as_array().unwrap().iter();
        let mut names: Vec<usize> = told.map(|name| self.number(name.as_str().unwrap())).collect();
        names.sort_unstable();
        assert_eq!(gone, names, "prune says what is gone");
    }

    /// A command fails only because of a lock.
    #[track_caller]
    fn assert_locked(&self, ran: &Ran) {
        let said = ran.stderr_text();
        assert!(self.has_locked() && said.contains("Operation not permitted"), "{said}");
    }

    /// A night of a server: its new backup counts, and is the last that goes.
    fn check_run(&mut self, server: usize, keep: &Keep) {
        let stream = self.folder.path().join("stream");
        std::fs::write(&stream, small_backup(2, 3000)).unwrap();
        let options = self.folder.path().join("my.cnf");
        let text =
            format!("[xbcloud.shop]\nroot={}\nproducer=cat {}\n", self.url(), stream.display());
        std::fs::write(&options, text).unwrap();
        let ran = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .env("XDG_CACHE_HOME", self.folder.path().join("cache"))
            .arg(format!("--defaults-file={}", options.display()))
            .args(["run", &format!("@shop/{NIGHT}")])
            .arg(format!("--state-dir={}", self.folder.path().join("state").display()))
            .arg(format!("--server={}", SERVERS[server].unwrap()))
            .args(rules(keep))
            .run();
        if ran.code() != 0 {
            self.assert_locked(&ran);
        }
        let (recipe, finished) = (Recipe { server, ..FULL }, Timestamp::now());
        let name = NIGHT.to_owned();
        let night = Made { recipe, name, base: None, merged: None, finished, removed: false };
        self.made.push(night);
        let gone = self.check_pruned(&self.restorable(), keep);
        assert!(!gone.contains(&(self.made.len() - 1)), "run has removed its own backup");
    }

    /// Checks what a prune has removed, and returns it. `before`: what could be restored then.
    fn check_pruned(&mut self, before: &BTreeSet<usize>, keep: &Keep) -> Vec<usize> {
        let sure: Vec<Vec<usize>> = (0..SERVERS.len()).map(|server| self.sure(server)).collect();
        let gone = self.look();
        for &n in &gone {
            let recipe = &self.made[n].recipe;
            let is_pinned = recipe.pinned && recipe.fault != Fault::Replaced;
            let stays = is_pinned || recipe.marked || recipe.locked;
            assert!(!stays, "n{n} is held");
            // A person decides about backups that cannot be restored.
            let is_raw = recipe.raw && recipe.fault == Fault::None;
            assert!(before.contains(&n) || is_raw, "n{n} was not restorable");
            assert!(!self.has_objects(n));
        }
        self.nothing_else_is_lost(before, &gone);
        for (server, of_server) in sure.into_iter().enumerate() {
            let of_it = |n: &usize| self.made[*n].recipe.server == server && !self.is_ahead(*n);
            // Of the same data, only what counts most.
            let counts = |n: &usize| of_it(n) && !self.counts_less(*n, &of_server);
            let left: Vec<usize> = self.restorable().into_iter().filter(counts).collect();
            let data = |of: &[usize]| of.iter().map(|&n| self.data(n)).collect::<BTreeSet<_>>();
            assert!(
                data(&left).len() >= keep.last.unwrap_or(0).min(data(&of_server).len()),
                "{left:?} of {of_server:?}"
            );
            // The newest by its own clock, and the newest by that of the store: the last that was made.
            let finished = |n: &usize| self.made[*n].finished;
            assert!(left.iter().map(finished).max() >= of_server.iter().map(finished).max());
            // That of a merge is known only by its chain.
            let is_dated = |&n: &usize| self.made[self.origin(n)].recipe.fault == Fault::None;
            if of_server.iter().all(is_dated) {
                assert!(data(&left).last() >= data(&of_server).last(), "{left:?} of {of_server:?}");
            }
        }
        gone
    }

    fn check_delete(&mut self, n: usize) {
        let before = self.restorable();
        let ran = self.command("delete", &self.made[n].name, &["--yes".to_owned()]);
        let (is_done, said) = (ran.code() == 0, ran.stderr_text());
        let gone = self.look();
        assert!(gone.is_empty() || gone == [n] && is_done, "{gone:?}: {said}");
        assert!(!is_done || !self.made[n].has_manifest(), "{said}");
        let recipe = &self.made[n].recipe;
        let is_pinned = recipe.pinned && recipe.fault != Fault::Replaced;
        let is_held = is_pinned || recipe.marked || recipe.locked;
        assert!(gone.is_empty() || !is_held, "n{n} is held");
        self.nothing_else_is_lost(&before, &gone);
    }

    fn check_gc(&mut self) {
        let before = self.restorable();
        let ran = self.command("gc", "", &["--yes".to_owned()]);
        assert_eq!(ran.code(), 0, "{}", ran.stderr_text());
        assert!(self.look().is_empty());
        self.nothing_else_is_lost(&before, &[]);
    }

    /// All that could be restored before still can be, apart from what is gone.
    fn nothing_else_is_lost(&self, before: &BTreeSet<usize>, gone: &[usize]) {
        for n in before.iter().filter(|n| !gone.contains(n)) {
            assert!(self.is_restorable(*n), "n{n} lost its chain with {gone:?}");
            assert!(self.has_objects(*n), "n{n} lost objects with {gone:?}");
        }
    }
}

fn facts(lines: &[Listing]) -> Vec<(&str, State, bool)> {
    lines.iter().map(|line| (line.name.as_str(), line.state, line.restorable)).collect()
}

/// The rules as options.
fn rules(keep: &Keep) -> Vec<String> {
    let Keep { last, daily, weekly, monthly, within, .. } = keep;
    let numbers = [("last", last), ("daily", daily), ("weekly", weekly), ("monthly", monthly)];
    let number =
        |(name, number): (&str, &Option<usize>)| Some(format!("--keep-{name}={}", (*number)?));
    let within = within.map(|within| format!("--keep-within={}h", within.as_secs() / 3600));
    numbers.into_iter().filter_map(number).chain(within).collect()
}

/// A sound full backup.
const FULL: Recipe = Recipe {
    server: 0,
    on: None,
    tie: Tie::Fits,
    names_base: true,
    merges: false,
    fault: Fault::None,
    proven: None,
    raw: false,
    pinned: false,
    locked: false,
    marked: false,
    clock: 0,
    litter: false,
};

/// An increment on the backup with this number.
const fn on(base: usize) -> Recipe {
    Recipe { on: Some(base), ..FULL }
}

/// A full backup that was consolidated from the chain of the backup with this number.
const fn merge_of(last: usize, proven: Option<Level>) -> Recipe {
    Recipe { merges: true, proven, ..on(last) }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn of_consolidated_backups_the_proven_one_is_latest_with_or_without_its_chain() {
    for fault in [Fault::None, Fault::Failed, Fault::ManifestGone, Fault::ObjectsGone] {
        let last = Recipe { fault, ..on(0) };
        let (proven, unproven) = (merge_of(1, Some(Level::Restore)), merge_of(1, None));
        runtime().block_on(async {
            World::new(vec![FULL, last, proven, unproven]).await.check_latest(None, Some(0)).await;
        });
    }
}

#[test]
fn a_rule_keeps_the_chain_of_an_unproven_consolidated_backup() {
    let keep = Keep { last: Some(2), ..Keep::default() };
    runtime().block_on(async {
        World::new(vec![FULL, on(0), merge_of(1, None), FULL]).await.check_prune(&keep);
    });
}

#[test]
fn a_locked_backup_stays_whole_and_what_depends_on_none_goes() {
    runtime().block_on(async {
        let locked = Recipe { locked: true, ..FULL };
        let mut world = World::new(vec![locked, FULL, FULL]).await;
        if !world.has_locked() {
            return xb_testkit::skipped("this user cannot make files immutable here");
        }
        world.check_prune(&Keep { last: Some(1), ..Keep::default() });
        world.check_delete(0);
        world.check_delete(2);
        assert!(world.has_objects(0) && !world.has_objects(2));
    });
}

/// Number of catalogues; more with PROPTEST_CASES.
fn cases() -> ProptestConfig {
    let given = std::env::var_os("PROPTEST_CASES").is_some();
    if given { ProptestConfig::default() } else { ProptestConfig::with_cases(40) }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn no_command_reports_more_than_can_be_restored_and_none_removes_the_last(
        recipes in vec(recipe(), 1..11),
        keep in keep(),
        days in 0..20_i64,
        server in 0..2_usize,
        orders in vec(any::<prop::sample::Index>(), 3),
    ) {
        runtime().block_on(async {
            let mut world = World::new(recipes).await;
            let by = Timestamp::from_second(world.now.as_second() - days * DAY).unwrap();
            world.check_list().await;
            world.check_latest(None, Some(server)).await;
            world.check_latest(Some(by), None).await;
            world.check_monitor(days);
            world.check_gc();
            world.check_prune(&keep);
            world.check_list().await;
            world.check_monitor(days);
            world.check_run(server, &keep);
            world.check_latest(None, Some(server)).await;
            world.check_monitor(days);
            for order in orders {
                world.check_delete(order.index(world.made.len()));
            }
            world.check_list().await;
            world.check_latest(None, None).await;
        });
    }
}
