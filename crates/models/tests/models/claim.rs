//! Model of classic runs and deletes of one name, and a search through all their interleavings.
//!
//! Every request of a run is one step. Between two steps of a run, every other run may take any
//! number of steps, a run may crash, a claim may become old while its run sleeps, and a request may
//! fail or be carried out although its response is lost. A run may also sleep between the check of
//! its lease and the request after it, except for removals: no store can make a removal depend on a
//! claim. The two clocks in `lease.rs` ensure that a claim becomes old only after its lease has
//! ended.
//!
//! The defences can be switched off one by one; the search must then find the fault that each of
//! them prevents.

/// Rules that keep runs apart.
#[derive(Debug, Clone, Copy)]
struct Defences {
    /// A finished run leaves its claim, so that no older claim counts again.
    tombstones: bool,
    /// The manifest is read again after the name is claimed.
    reread: bool,
    /// Claims are listed again after the name is claimed.
    look_again: bool,
    /// Changes require the lease, and a lease is renewed only while its claim is the newest.
    lease: bool,
    /// Objects are created only where no object exists.
    exclusive: bool,
    /// The commit checks which run wrote the objects.
    proof: bool,
    /// After writing the manifest, the run checks again that it holds the name.
    settle: bool,
    /// A clean-up removes nothing where a manifest exists.
    spare: bool,
    /// Removals, too, cannot be delayed after their check.
    prompt_removals: bool,
    /// A run looks for newer claims immediately before each removal.
    look_before: bool,
    /// A run that leaves objects without a manifest records them in its claim, and one that had a
    /// predecessor records that requests may still arrive.
    records: bool,
}

const ALL: Defences = Defences {
    tombstones: true,
    reread: true,
    look_again: true,
    lease: true,
    exclusive: true,
    proof: true,
    settle: true,
    spare: true,
    prompt_removals: true,
    look_before: true,
    records: true,
};

/// Number of objects of a backup.
const OBJECTS: usize = 2;
/// Highest claim number, and maximum number of runs.
const MAX_CLAIMS: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Kind {
    Put,
    /// A put with `--take-over`, or a complete one under the stock name: it takes over from whoever has the name.
    TakeOver,
    Delete,
    /// A put under the stock name of a stream that turns out to be incomplete: it takes over from
    /// whoever has the name, and its objects stay without a manifest.
    Stock,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Phase {
    Claiming,
    Holding,
    Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Claim {
    run: u8,
    phase: Phase,
    /// Changes with every write.
    version: u8,
    /// Its run has slept so long that other runs consider it dead.
    old: bool,
    /// A run before it may have been alive.
    late: bool,
    /// The objects that its run left.
    left: Option<[Option<u8>; OBJECTS]>,
}

/// Position of a run. The step in parentheses follows once the claim is confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum At {
    Begin,
    ListClaims,
    CreateClaim,
    ListAgain,
    ReadManifest,
    ListObjects,
    Withdraw,
    Hold,
    RemoveOlder,
    RemoveLeft(u8),
    Create(u8),
    /// The lease was checked; the request is in flight.
    Creating(u8),
    Compare,
    /// The objects were compared and stay; the claim records them next.
    Leave,
    Commit,
    Committing,
    Settle,
    TakeBack,
    End(bool),
    CleanUp,
    CleanUpRead,
    CleanUpRemove(u8),
    DeleteManifest,
    DeletingManifest,
    DeleteObject(u8),
    DeletingObject(u8, bool),
    ConfirmGet(Next),
    ConfirmPut(Next),
    ConfirmList(Next),
    Over,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Next {
    RemoveOlder,
    RemoveLeft(u8),
    Create(u8),
    Compare,
    Commit,
    CleanUpRead,
    CleanUpRemove(u8),
    DeleteManifest,
    DeleteObject(u8),
    Over,
}

impl Next {
    fn at(self) -> At {
        match self {
            Self::RemoveOlder => At::RemoveOlder,
            Self::RemoveLeft(n) => At::RemoveLeft(n),
            Self::Create(n) => At::Create(n),
            Self::Compare => At::Compare,
            Self::Commit => At::Commit,
            Self::CleanUpRead => At::CleanUpRead,
            Self::CleanUpRemove(n) => At::CleanUpRemove(n),
            Self::DeleteManifest => At::DeleteManifest,
            Self::DeleteObject(n) => At::DeleteObject(n),
            Self::Over => At::Over,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Run {
    kind: Kind,
    at: At,
    phase: Phase,
    crashed: bool,
    /// Its lease is valid.
    fresh: bool,
    /// It has slept long since it began to confirm its claim.
    slept: bool,
    /// Number of its claim.
    number: u8,
    /// Versions of the claims before it.
    before: [Option<u8>; MAX_CLAIMS],
    /// A dead run has left objects behind.
    left: bool,
    /// A run before it may have been alive.
    late: bool,
    /// It took over from a run that may be alive.
    taken: bool,
    /// It met an object of another run.
    met: bool,
    /// The object that it sent and got no response for. One with the same bytes may be another run's.
    unsure: Option<u8>,
    /// The objects that its claim records as left.
    leaves: Option<[Option<u8>; OBJECTS]>,
    /// Version of the manifest that it decided to delete.
    judged: Option<u8>,
    /// It ended with success.
    succeeded: bool,
}

impl Run {
    /// Whether it takes this object for its own, whichever run stored it.
    fn may_own(&self, n: u8) -> bool {
        self.unsure == Some(n) && !self.met
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    claims: [Option<Claim>; MAX_CLAIMS],
    manifest: Option<u8>,
    objects: [Option<u8>; OBJECTS],
    runs: Vec<Run>,
    /// Remaining crashes, long sleeps and failed requests.
    crashes: u8,
    sleeps: u8,
    failures: u8,
}

impl World {
    fn new(kinds: &[Kind], (crashes, sleeps, failures): (u8, u8, u8)) -> Self {
        let run = |kind: &Kind| Run {
            kind: *kind,
            at: At::Begin,
            phase: Phase::Claiming,
            crashed: false,
            fresh: false,
            slept: false,
            number: 0,
            before: [None; MAX_CLAIMS],
            left: false,
            late: false,
            taken: false,
            met: false,
            unsure: None,
            leaves: None,
            judged: None,
            succeeded: false,
        };
        let runs = kinds.iter().map(run).collect();
        let (claims, objects) = ([None; MAX_CLAIMS], [None; OBJECTS]);
        Self { claims, manifest: None, objects, runs, crashes, sleeps, failures }
    }

    fn newest(&self) -> Option<(u8, Claim)> {
        let numbered = self.claims.iter().enumerate().rev();
        numbered.filter_map(|(n, claim)| Some((n as u8 + 1, (*claim)?))).next()
    }

    fn is_newest(&self, r: usize) -> bool {
        self.newest().is_some_and(|(number, _)| number == self.runs[r].number)
    }

    /// Returns whether a complete backup has objects of another run, or objects of several runs are read as
    /// a stock backup.
    fn is_violated(&self, with: &Defences) -> bool {
        let Some(owner) = self.manifest else {
            let mut owners = self.objects.iter().flatten();
            let first = owners.next();
            return owners.any(|owner| Some(owner) != first) && self.reads_as_stock(with);
        };
        self.runs[usize::from(owner)].succeeded && self.objects != [Some(owner); OBJECTS]
    }

    /// Returns whether a reader takes objects without a manifest for a stock backup.
    fn reads_as_stock(&self, with: &Defences) -> bool {
        let mut counting = self.claims.iter().rev().flatten();
        match counting.find(|claim| claim.phase != Phase::Claiming) {
            None => true,
            Some(claim) if claim.phase == Phase::Holding => false,
            Some(_) if !with.records => true,
            Some(claim) => match claim.left {
                Some(left) => left == self.objects,
                None => !claim.late,
            },
        }
    }

    fn claim(&mut self, r: usize) -> &mut Option<Claim> {
        let number = usize::from(self.runs[r].number);
        &mut self.claims[number - 1]
    }

    fn go(mut self, r: usize, at: At) -> Self {
        self.runs[r].at = at;
        self
    }

    /// Takes a step that requires the lease, or confirms the claim first.
    fn fenced(self, r: usize, with: &Defences, next: Next, then: impl Fn(Self) -> Self) -> Self {
        if self.runs[r].fresh || !with.lease {
            then(self)
        } else {
            self.go(r, At::ConfirmGet(next))
        }
    }

    /// Takes a step that removes something.
    fn removing(self, r: usize, with: &Defences, next: Next, then: impl Fn(Self) -> Self) -> Self {
        self.fenced(r, with, next, |world| match with.look_before && !world.is_newest(r) {
            true => world.go(r, At::Over),
            false => then(world),
        })
    }

    /// All possible results of the next step of a run.
    fn step(&self, r: usize, with: &Defences) -> Vec<Self> {
        let run = self.runs[r];
        let me = r as u8;
        let mut world = self.clone();
        match run.at {
            At::Over => Vec::new(),
            At::Begin => match (run.kind, world.manifest) {
                (Kind::Delete, None) => vec![world.go(r, At::Over)],
                (Kind::Put | Kind::TakeOver | Kind::Stock, Some(_)) => vec![world.go(r, At::Over)],
                (_, judged) => {
                    world.runs[r].judged = judged;
                    vec![world.go(r, At::ListClaims)]
                }
            },
            At::ListClaims => {
                let newest = world.newest();
                // From the newest claim down to the first whose run has done more than look.
                let upper = world.claims.iter().rev().flatten();
                let end = upper.clone().position(|claim| claim.phase != Phase::Claiming);
                let counting = || upper.clone().take(end.map_or(MAX_CLAIMS, |end| end + 1));
                let alive = counting().any(|claim| {
                    let owner = world.runs[usize::from(claim.run)];
                    let dead = owner.crashed || owner.at == At::Over;
                    claim.phase != Phase::Ended && !claim.old && !dead
                });
                let left = counting().any(|claim| claim.phase == Phase::Holding);
                if alive && !matches!(run.kind, Kind::TakeOver | Kind::Stock) {
                    return vec![world.go(r, At::Over)];
                }
                let inherited = counting().any(|c| c.phase == Phase::Ended && c.late);
                world.runs[r].taken = alive;
                world.runs[r].late = alive || left || inherited;
                world.runs[r].before = world.claims.map(|claim| Some(claim?.version));
                world.runs[r].left = left;
                world.runs[r].number = newest.map_or(1, |(number, _)| number + 1);
                match usize::from(world.runs[r].number) <= MAX_CLAIMS {
                    true => vec![world.go(r, At::CreateClaim)],
                    false => vec![world.go(r, At::Over)],
                }
            }
            At::CreateClaim => {
                if world.claim(r).is_some() {
                    return vec![world.go(r, At::Over)];
                }
                let phase = Phase::Claiming;
                let (old, late, left) = (false, run.late, None);
                *world.claim(r) = Some(Claim { run: me, phase, version: 0, old, late, left });
                vec![world.go(r, if with.look_again { At::ListAgain } else { At::ReadManifest })]
            }
            At::ListAgain => {
                let others = world.claims.iter().zip(run.before).enumerate();
                let mut others = others.filter(|(n, _)| *n + 1 != usize::from(run.number));
                let same = others
                    .all(|(_, (now, before))| now.is_none_or(|now| before == Some(now.version)));
                let next = if (same || run.taken) && world.is_newest(r) {
                    At::ReadManifest
                } else {
                    At::Withdraw
                };
                vec![world.go(r, next)]
            }
            At::ReadManifest => {
                let known = if with.reread { world.manifest } else { run.judged };
                let next = match (run.kind, known == run.judged) {
                    (_, false) => At::Withdraw,
                    (Kind::Delete, true) => At::Hold,
                    (Kind::Put | Kind::TakeOver | Kind::Stock, true) => At::ListObjects,
                };
                vec![world.go(r, next)]
            }
            At::ListObjects => {
                let empty = world.objects == [None; OBJECTS];
                let free = empty || run.left || !with.reread;
                vec![world.go(r, if free { At::Hold } else { At::Withdraw })]
            }
            At::Withdraw => {
                *world.claim(r) = None;
                vec![world.go(r, At::Over)]
            }
            At::Hold => {
                world.runs[r].phase = Phase::Holding;
                vec![world.go(r, At::ConfirmGet(Next::RemoveOlder))]
            }
            At::RemoveOlder => vec![world.removing(r, with, Next::RemoveOlder, |mut world| {
                let own = usize::from(run.number) - 1;
                world.claims[..own].fill(None);
                let delete = run.kind == Kind::Delete;
                world.go(r, if delete { At::DeleteManifest } else { At::RemoveLeft(0) })
            })],
            At::RemoveLeft(n) => vec![world.removing(r, with, Next::RemoveLeft(n), |mut world| {
                let at = usize::from(n);
                if at == OBJECTS {
                    return world.go(r, At::Create(0));
                }
                world.objects[at] = None;
                world.go(r, At::RemoveLeft(n + 1))
            })],
            At::Create(n) if usize::from(n) == OBJECTS => {
                vec![world.go(r, At::ConfirmGet(Next::Compare))]
            }
            At::Create(n) => {
                vec![world.fenced(r, with, Next::Create(n), |world| world.go(r, At::Creating(n)))]
            }
            At::Creating(n) => {
                let there = &mut world.objects[usize::from(n)];
                if with.exclusive && there.is_some_and(|owner| owner != me) {
                    // Its claim stays that of a dead run.
                    world.runs[r].met = true;
                    return vec![world.go(r, At::CleanUp)];
                }
                *there = Some(me);
                vec![world.go(r, At::Create(n + 1))]
            }
            At::Compare => {
                let ours = match with.proof {
                    true => world.objects == [Some(me); OBJECTS],
                    false => world.objects.iter().all(Option::is_some),
                };
                if run.kind == Kind::Stock {
                    if !ours {
                        return vec![world.go(r, At::Over)];
                    }
                    world.runs[r].leaves = Some(world.objects);
                    return vec![world.go(r, At::Leave)];
                }
                vec![world.go(r, if ours { At::Commit } else { At::CleanUp })]
            }
            At::Leave => {
                world.runs[r].phase = Phase::Ended;
                vec![world.go(r, At::ConfirmGet(Next::Over))]
            }
            At::Commit => {
                vec![world.fenced(r, with, Next::Commit, |world| world.go(r, At::Committing))]
            }
            At::Committing => match world.manifest {
                Some(_) => vec![world.go(r, At::CleanUp)],
                None => {
                    world.manifest = Some(me);
                    if with.settle {
                        return vec![world.go(r, At::Settle)];
                    }
                    world.runs[r].succeeded = true;
                    vec![world.go(r, At::End(true))]
                }
            },
            At::Settle => {
                if !world.is_newest(r) {
                    return vec![world.go(r, At::TakeBack)];
                }
                world.runs[r].succeeded = true;
                vec![world.go(r, At::End(true))]
            }
            At::TakeBack => {
                if world.manifest == Some(me) {
                    world.manifest = None;
                }
                vec![world.go(r, At::Over)]
            }
            At::End(_) => {
                if !with.tombstones {
                    *world.claim(r) = None;
                    return vec![world.go(r, At::Over)];
                }
                world.runs[r].phase = Phase::Ended;
                vec![world.go(r, At::ConfirmGet(Next::Over))]
            }
            At::CleanUp => vec![world.go(r, At::ConfirmGet(Next::CleanUpRead))],
            At::CleanUpRead => {
                let spared = with.spare && world.manifest.is_some();
                let spared_at = if run.met { At::Over } else { At::End(false) };
                vec![world.go(r, if spared { spared_at } else { At::CleanUpRemove(0) })]
            }
            At::CleanUpRemove(n) if usize::from(n) == OBJECTS => {
                // Without a predecessor, what is left is of another program.
                let has_left = self.objects.iter().flatten().any(|owner| *owner != me);
                let stays = run.late && (run.met || has_left);
                vec![world.go(r, if stays { At::Over } else { At::End(false) })]
            }
            At::CleanUpRemove(n) if self.objects[usize::from(n)] != Some(me) && !run.may_own(n) => {
                vec![world.go(r, At::CleanUpRemove(n + 1))]
            }
            At::CleanUpRemove(n) => self.remove(r, with, Next::CleanUpRemove(n), n, false),
            At::DeleteManifest => {
                vec![world.removing(r, with, Next::DeleteManifest, |world| {
                    match with.prompt_removals {
                        true => world.delete_manifest(r),
                        false => world.go(r, At::DeletingManifest),
                    }
                })]
            }
            At::DeletingManifest => vec![world.delete_manifest(r)],
            At::DeleteObject(n) if usize::from(n) == OBJECTS => vec![world.go(r, At::End(true))],
            At::DeleteObject(n) => self.remove(r, with, Next::DeleteObject(n), n, true),
            At::DeletingObject(n, delete) => vec![world.remove_now(r, n, delete)],
            At::ConfirmGet(next) => {
                world.runs[r].slept = false;
                let own = world.claim(r).is_some_and(|claim| claim.run == me);
                vec![world.go(r, if own || !with.lease { At::ConfirmPut(next) } else { At::Over })]
            }
            At::ConfirmPut(next) => {
                let version = world.claim(r).map_or(9, |claim| claim.version + 1);
                let phase = world.runs[r].phase;
                let (old, late, left) = (false, run.late, run.leaves);
                *world.claim(r) = Some(Claim { run: me, phase, version, old, late, left });
                vec![world.go(r, At::ConfirmList(next))]
            }
            At::ConfirmList(next) => {
                if !world.is_newest(r) {
                    return vec![world.go(r, At::Over)];
                }
                world.runs[r].fresh = !run.slept;
                let again = run.slept && with.lease;
                vec![world.go(r, if again { At::ConfirmGet(next) } else { next.at() })]
            }
        }
    }

    fn remove(&self, r: usize, with: &Defences, next: Next, n: u8, delete: bool) -> Vec<Self> {
        vec![self.clone().removing(r, with, next, |world| match with.prompt_removals {
            true => world.remove_now(r, n, delete),
            false => world.go(r, At::DeletingObject(n, delete)),
        })]
    }

    fn remove_now(mut self, r: usize, n: u8, delete: bool) -> Self {
        self.objects[usize::from(n)] = None;
        self.go(r, if delete { At::DeleteObject(n + 1) } else { At::CleanUpRemove(n + 1) })
    }

    fn delete_manifest(mut self, r: usize) -> Self {
        // Another backup that got the name in the meantime must not be deleted.
        if self.manifest != self.runs[r].judged
            && let Some(owner) = self.manifest
            && self.runs[usize::from(owner)].succeeded
        {
            self.objects[0] = None;
            return self;
        }
        self.manifest = None;
        self.go(r, At::DeleteObject(0))
    }

    /// All possible next worlds.
    fn successors(&self, with: &Defences) -> Vec<Self> {
        let mut all = Vec::new();
        for r in 0..self.runs.len() {
            let run = self.runs[r];
            if run.crashed || run.at == At::Over {
                continue;
            }
            let done = self.step(r, with);
            if self.failures > 0 && run.at != At::Begin {
                // The request fails, but may have been carried out.
                for world in done.iter().chain([self]) {
                    let mut world = world.clone();
                    world.failures -= 1;
                    all.push(world.failed(r, run.at));
                }
            }
            all.extend(done);
            if self.crashes > 0 {
                let mut world = self.clone();
                world.crashes -= 1;
                world.runs[r].crashed = true;
                all.push(world);
            }
            if self.sleeps > 0 && run.number > 0 {
                let mut world = self.clone();
                world.sleeps -= 1;
                (world.runs[r].fresh, world.runs[r].slept) = (false, true);
                if let Some(claim) = world.claim(r).as_mut().filter(|claim| claim.run == r as u8) {
                    claim.old = true;
                }
                all.push(world);
            }
        }
        all
    }

    /// The same world with its runs in order, under new numbers. Nothing depends on the numbers, so that of all worlds
    /// that differ only in which of several equal runs did what, one is searched: of three runs, a sixth.
    fn sorted(mut self) -> Self {
        if self.runs.is_sorted() {
            return self;
        }
        let mut order: Vec<u8> = (0..self.runs.len() as u8).collect();
        order.sort_by_key(|old| self.runs[usize::from(*old)]);
        let mut new = [0; MAX_CLAIMS];
        for (number, old) in order.iter().enumerate() {
            new[usize::from(*old)] = number as u8;
        }
        let renumbered = |run: Option<u8>| Some(new[usize::from(run?)]);
        self.runs = order.iter().map(|old| self.runs[usize::from(*old)]).collect();
        for run in &mut self.runs {
            run.judged = renumbered(run.judged);
            run.leaves = run.leaves.map(|left| left.map(renumbered));
        }
        for claim in self.claims.iter_mut().flatten() {
            claim.run = new[usize::from(claim.run)];
            claim.left = claim.left.map(|left| left.map(renumbered));
        }
        self.manifest = renumbered(self.manifest);
        self.objects = self.objects.map(renumbered);
        self
    }

    /// Behaviour of a run after a request has failed permanently.
    fn failed(mut self, r: usize, at: At) -> Self {
        // A run that could not check whether it still held the name does not succeed.
        self.runs[r].succeeded &= at != At::Settle;
        if let At::Creating(n) = at {
            self.runs[r].unsure = Some(n);
        }
        let next = match at {
            At::CreateClaim | At::ListAgain | At::ReadManifest | At::ListObjects => At::Withdraw,
            At::Compare if self.runs[r].kind == Kind::Stock => At::Over,
            At::RemoveLeft(_) | At::Create(_) | At::Creating(_) | At::Compare | At::Commit => {
                At::CleanUp
            }
            // It is unknown whether the manifest exists, so the objects it may name must stay.
            _ => At::Over,
        };
        let next = if next == At::Withdraw && self.runs[r].number == 0 { At::Over } else { next };
        self.go(r, next)
    }
}

/// Returns the shortest way to a violation, and the number of worlds. On the way, runs change their numbers.
fn search(start: World, with: &Defences) -> (Option<Vec<World>>, usize) {
    let successors = |world: &World| {
        let all = world.successors(with).into_iter();
        all.map(World::sorted).collect()
    };
    xb_testkit::search(start, |world| world.is_violated(with), successors)
}

const P: Kind = Kind::Put;
const T: Kind = Kind::TakeOver;
const D: Kind = Kind::Delete;
const S: Kind = Kind::Stock;

/// Runs that meet, and how many crashes, long sleeps and failed requests there are.
type Meeting = (&'static [Kind], (u8, u8, u8));

const MEETINGS: [Meeting; 13] = [
    (&[P], (1, 1, 1)),
    (&[P, P], (1, 2, 1)),
    (&[P, D], (1, 2, 1)),
    (&[P, T], (1, 1, 1)),
    (&[T, T], (0, 1, 1)),
    (&[P, P, P], (0, 2, 0)),
    (&[P, P, D], (0, 2, 0)),
    (&[P, P, P], (1, 1, 0)),
    (&[S, S], (1, 2, 1)),
    (&[S, P], (1, 2, 1)),
    (&[S, D], (1, 1, 1)),
    (&[S, S, S], (0, 0, 0)),
    (&[S, S, P], (0, 0, 0)),
];

#[test]
fn no_interleaving_mixes_or_removes_a_complete_backup() {
    for (kinds, faults) in MEETINGS {
        let (way, worlds) = search(World::new(kinds, faults), &ALL);
        println!("{kinds:?} {faults:?}: {worlds} worlds");
        if let Some(way) = way {
            way.iter().for_each(|world| println!("{world:?}"));
            panic!("{kinds:?}: objects of several runs are read as one backup");
        }
        assert!(worlds > 100);
    }
}

#[test]
fn a_run_alone_succeeds() {
    let mut world = World::new(&[P], (0, 0, 0));
    while world.runs[0].at != At::Over {
        world = world.step(0, &ALL).remove(0);
    }
    assert!(world.runs[0].succeeded && world.objects == [Some(0); OBJECTS]);
    assert_eq!(world.newest().unwrap().1.phase, Phase::Ended);
}

#[test]
fn each_defence_is_needed() {
    // A look before each removal also covers for five others in these meetings.
    let without: [(&str, Defences, &[Kind]); 11] = [
        ("tombstones", Defences { tombstones: false, ..ALL }, &[P, P]),
        ("re-reading the manifest", Defences { reread: false, ..ALL }, &[P, P]),
        ("looking again", Defences { look_again: false, look_before: false, ..ALL }, &[P, P]),
        ("the lease", Defences { lease: false, look_before: false, ..ALL }, &[P, P]),
        (
            "checking whose objects they are",
            Defences { proof: false, look_before: false, ..ALL },
            &[S, S],
        ),
        ("creating only where nothing stands", Defences { exclusive: false, ..ALL }, &[P, P]),
        ("settling", Defences { settle: false, ..ALL }, &[P, P]),
        (
            "sparing what a manifest names",
            Defences { spare: false, look_before: false, ..ALL },
            &[P, T],
        ),
        ("prompt removals", Defences { prompt_removals: false, ..ALL }, &[P, P]),
        ("a look before removals", Defences { look_before: false, ..ALL }, &[S, S, P]),
        (
            "records of what was left",
            Defences { records: false, look_before: false, ..ALL },
            &[S, S, S],
        ),
    ];
    for (what, with, kinds) in without {
        let faults = if kinds.len() == 2 { (0, 2, 1) } else { (0, 0, 0) };
        let (way, _) = search(World::new(kinds, faults), &with);
        assert!(way.is_some(), "nothing is lost without {what}");
    }
}
