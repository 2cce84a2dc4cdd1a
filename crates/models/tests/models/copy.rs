//! Model of what meets at one packed run: removals, copies of it, `gc` and rewraps; and a search through
//! all their interleavings. A copy keeps the run of its source, so it has the keys of an earlier copy. A packed put is
//! a copy that nothing was there before.
//!
//! Every request is one step. Between two steps of one command, every other may take any number of steps,
//! a command may crash or sleep until its claim counts as old, and a request may fail: without effect, with
//! effect, or with an effect that comes later. What a late request does comes before its claim is old. A
//! command does not sleep between the check of its lease and the request after it; no store can make a
//! request depend on a claim. A copy may sleep at any moment, also right before its commit.
//!
//! The defences can be switched off one by one; the search must then find the fault that each of them
//! prevents. Marks, increments and pins are in `removal.rs`.

/// Rules that keep commands apart.
#[derive(Debug, Clone, Copy)]
struct Defences {
    /// A removal keeps its mark until the objects are gone.
    hold: bool,
    /// `gc` claims the name before it looks whether the run is still dead.
    collect_claims: bool,
    /// A copy waits for such claims after its commit.
    wait_after: bool,
    /// After that, a copy looks for its objects.
    look_after: bool,
    /// A command that slept looks for a manifest before it removes further objects.
    renew_looks: bool,
    /// After a request that may come late, the claim stays.
    keep_late: bool,
    /// A rewrap claims the name.
    rewrap_claims: bool,
    /// The claim of a rewrap ends, and is not removed: so no older one counts again.
    rewrap_ends: bool,
    /// A rewrap compares the key slots before each try.
    compare: bool,
    /// A copy claims the name while it writes the key slots.
    copy_claims: bool,
    /// It then looks for a manifest, before each try.
    copy_looks: bool,
}

const ALL: Defences = Defences {
    hold: true,
    collect_claims: true,
    wait_after: true,
    look_after: true,
    renew_looks: true,
    keep_late: true,
    rewrap_claims: true,
    rewrap_ends: true,
    compare: true,
    copy_claims: true,
    copy_looks: true,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    /// Removes the backup, and its objects.
    Remove,
    /// Removes the objects of the run, if it is dead.
    Collect,
    /// Commits a copy of the run.
    Copy,
    /// Replaces the key slots.
    Rewrap,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum At {
    Begin,
    Claim,
    /// A removal, a rewrap, a copy.
    Compare,
    /// A removal, a `gc`.
    RemoveManifest,
    Look,
    Clear,
    RemoveObjects,
    /// A copy.
    WaitFirst,
    Send,
    Renew,
    WaitBefore,
    Commit,
    WaitAfter,
    Check,
    TakeBack,
    /// A rewrap, a copy: the key slots.
    Put,
    Free,
    Over,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Command {
    kind: Kind,
    at: At,
    /// The manifest that a removal is about, or the key slots that a rewrap has read.
    about: Option<u8>,
    /// The manifest of the backup that a rewrap is about.
    of: Option<u8>,
    crashed: bool,
    fresh: bool,
    late: bool,
    succeeded: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Claim {
    by: u8,
    old: bool,
    ended: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Request {
    RemoveManifest,
    RemoveObjects,
    PutKeys,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    manifest: Option<u8>,
    /// Whether the objects of the run are there.
    objects: bool,
    /// The run has key slots: where a rewrap takes part.
    is_sealed: bool,
    /// Whose key slots are stored.
    slots: u8,
    /// The claim in the folder of the run: a copy is active there.
    copying: bool,
    /// The numbered claims of the name, the newest last.
    claims: Vec<Claim>,
    in_flight: Vec<(u8, Request)>,
    commands: Vec<Command>,
    crashes: u8,
    sleeps: u8,
    failures: u8,
}

const FIRST: u8 = 9;

impl World {
    /// A world with a backup; if `gc` takes part, or no removal makes room for a copy, with a dead run.
    fn new(kinds: &[Kind], (crashes, sleeps, failures): (u8, u8, u8)) -> Self {
        let command = |kind: &Kind| Command {
            kind: *kind,
            at: At::Begin,
            about: None,
            of: None,
            crashed: false,
            fresh: false,
            late: false,
            succeeded: false,
        };
        let is_dead = kinds.contains(&Kind::Collect)
            || kinds.contains(&Kind::Copy) && !kinds.contains(&Kind::Remove);
        Self {
            manifest: (!is_dead).then_some(FIRST),
            objects: true,
            is_sealed: kinds.contains(&Kind::Rewrap),
            slots: FIRST,
            copying: false,
            claims: Vec::new(),
            in_flight: Vec::new(),
            commands: kinds.iter().map(command).collect(),
            crashes,
            sleeps,
            failures,
        }
    }

    /// Returns whether a command reported success, and what it reported is not so.
    fn is_violated(&self) -> bool {
        self.commands.iter().enumerate().any(|(c, command)| {
            let me = Some(c as u8);
            let replaced_on = |kind| self.commands.iter().any(|o| o.kind == kind && o.about == me);
            command.succeeded
                && match command.kind {
                    Kind::Copy if self.manifest == me => !self.objects,
                    Kind::Copy => !replaced_on(Kind::Remove),
                    // A later copy has the key slots of its source.
                    Kind::Rewrap if self.manifest == command.of => {
                        self.slots != c as u8 && !replaced_on(Kind::Rewrap)
                    }
                    _ => false,
                }
        })
    }

    /// Returns whether a claim is one of a removal, for which a copy waits.
    fn is_being_removed(&self) -> bool {
        self.claims.iter().any(|claim| {
            let kind = self.commands[usize::from(claim.by)].kind;
            !claim.old && !claim.ended && matches!(kind, Kind::Remove | Kind::Collect)
        })
    }

    fn is_claimed(&self) -> bool {
        self.claims.iter().any(|claim| !claim.old && !claim.ended)
    }

    fn is_newest(&self, c: usize) -> bool {
        self.claims.last().is_some_and(|claim| claim.by == c as u8)
    }

    fn go(mut self, c: usize, at: At) -> Vec<Self> {
        self.commands[c].at = at;
        vec![self]
    }

    fn done(mut self, c: usize) -> Vec<Self> {
        self.commands[c].succeeded = true;
        self.go(c, At::Over)
    }

    fn claim(mut self, c: usize, then: At) -> Vec<Self> {
        if self.is_claimed() {
            return self.go(c, At::Over);
        }
        self.claims.push(Claim { by: c as u8, old: false, ended: false });
        self.commands[c].fresh = true;
        self.go(c, then)
    }

    /// Renews a claim; `None` if it is lost.
    fn renewed(mut self, c: usize) -> Option<Self> {
        if !self.is_newest(c) {
            return None;
        }
        self.claims.iter_mut().for_each(|claim| claim.old &= claim.by != c as u8);
        self.commands[c].fresh = true;
        Some(self)
    }

    /// All possible results of the next step of a command.
    fn step(&self, c: usize, with: &Defences) -> Vec<Self> {
        let command = self.commands[c];
        let mut world = self.clone();
        match command.at {
            At::Over => Vec::new(),
            At::Begin => {
                world.commands[c].about = self.manifest;
                match (command.kind, self.manifest) {
                    (Kind::Remove, Some(_)) => world.go(c, At::Claim),
                    (Kind::Collect, None) if self.objects && !self.copying => {
                        world.go(c, if with.collect_claims { At::Claim } else { At::Look })
                    }
                    // It waits until it is removed.
                    (Kind::Copy, Some(_)) => Vec::new(),
                    (Kind::Copy, None) => {
                        world.copying = true;
                        world.go(c, At::WaitFirst)
                    }
                    (Kind::Rewrap, Some(_)) => {
                        world.commands[c].about = Some(self.slots);
                        world.commands[c].of = self.manifest;
                        world.go(c, if with.rewrap_claims { At::Claim } else { At::Compare })
                    }
                    _ => world.go(c, At::Over),
                }
            }
            At::Claim => {
                world.claim(c, if command.kind == Kind::Collect { At::Look } else { At::Compare })
            }
            At::Compare if command.kind == Kind::Remove => {
                let same = self.manifest == command.about;
                world.go(c, if same { At::RemoveManifest } else { At::Free })
            }
            // It is not renewed.
            At::RemoveManifest if !command.fresh || !self.is_newest(c) => world.go(c, At::Over),
            At::RemoveManifest => {
                world.manifest = None;
                if with.hold {
                    return world.go(c, At::Clear);
                }
                world.claims.retain(|claim| claim.by != c as u8);
                world.go(c, At::RemoveObjects)
            }
            At::Look => {
                let is_needed = self.manifest.is_some() || self.copying;
                world.go(c, if is_needed { At::Free } else { At::RemoveObjects })
            }
            At::Clear => match world.renewed(c) {
                Some(world) if world.manifest.is_some() && with.renew_looks => {
                    world.go(c, At::Over)
                }
                Some(world) => world.go(c, At::RemoveObjects),
                None => self.clone().go(c, At::Over),
            },
            At::RemoveObjects => {
                let has_claim = match command.kind {
                    Kind::Remove => with.hold,
                    _ => with.collect_claims,
                };
                if has_claim && !command.fresh {
                    return world.go(c, At::Clear);
                }
                if has_claim && !self.is_newest(c) {
                    return world.go(c, At::Over);
                }
                world.objects = false;
                world.go(c, At::Free)
            }
            At::Free => {
                if !(command.late && with.keep_late) {
                    world.claims.retain(|claim| claim.by != c as u8);
                }
                world.go(c, At::Over)
            }
            At::WaitFirst if self.is_being_removed() => Vec::new(),
            At::WaitFirst => world.go(c, At::Send),
            At::Send => {
                world.objects = true;
                let next = if with.copy_claims { At::Claim } else { At::Compare };
                world.go(c, if self.is_sealed { next } else { At::Renew })
            }
            At::Compare if command.kind == Kind::Copy => {
                let is_taken = self.manifest.is_some() && with.copy_looks;
                world.go(c, if is_taken { At::Free } else { At::Put })
            }
            At::Renew => {
                world.copying = true;
                world.go(c, At::WaitBefore)
            }
            At::WaitBefore if self.is_being_removed() => Vec::new(),
            At::WaitBefore => world.go(c, At::Commit),
            At::Commit if self.manifest.is_some() => world.go(c, At::Over),
            At::Commit => {
                world.manifest = Some(c as u8);
                world.go(c, At::WaitAfter)
            }
            At::WaitAfter if self.is_being_removed() && with.wait_after => Vec::new(),
            At::WaitAfter => world.go(c, At::Check),
            At::Check if self.manifest != Some(c as u8) => world.go(c, At::Over),
            At::Check if !self.objects && with.look_after => world.go(c, At::TakeBack),
            At::Check => world.done(c),
            At::TakeBack => {
                world.manifest = None;
                world.go(c, At::Over)
            }
            At::Compare => {
                let same = Some(self.slots) == command.about;
                world.go(c, if same || !with.compare { At::Put } else { At::Free })
            }
            At::Put => {
                let (claims, next) = match command.kind {
                    Kind::Copy => (with.copy_claims, At::Renew),
                    _ => (with.rewrap_claims, At::Over),
                };
                if claims && !command.fresh {
                    return match world.renewed(c) {
                        Some(world) => vec![world],
                        None => self.clone().go(c, At::Over),
                    };
                }
                world.take(c as u8, Request::PutKeys);
                world.commands[c].succeeded = command.kind == Kind::Rewrap;
                if with.rewrap_ends && !(command.late && with.keep_late) {
                    world.claims.iter_mut().for_each(|claim| claim.ended |= claim.by == c as u8);
                    return world.go(c, next);
                }
                world.go(c, if command.kind == Kind::Copy { next } else { At::Free })
            }
        }
    }

    fn take(&mut self, by: u8, request: Request) {
        match request {
            Request::RemoveManifest => self.manifest = None,
            Request::RemoveObjects => self.objects = false,
            Request::PutKeys => {
                // A copy has the key slots of its source.
                let is_copy = self.commands[usize::from(by)].kind == Kind::Copy;
                self.slots = if is_copy { FIRST } else { by };
            }
        }
    }

    /// A request fails: without effect, with effect, or with a late one.
    fn failed(&self, c: usize, with: &Defences) -> Vec<Self> {
        let command = self.commands[c];
        let has_claim = command.kind != Kind::Copy || with.copy_claims;
        if has_claim && (!command.fresh || !self.is_newest(c)) {
            return Vec::new();
        }
        let (request, next) = match command.at {
            At::RemoveManifest => (Request::RemoveManifest, At::Compare),
            // It leaves the rest to `gc`, and its claim behind.
            At::RemoveObjects => (Request::RemoveObjects, At::Free),
            At::Put => (Request::PutKeys, At::Compare),
            _ => return Vec::new(),
        };
        let mut world = self.clone();
        world.failures -= 1;
        world.commands[c].late = true;
        world.commands[c].at = next;
        let (mut effect, mut late) = (world.clone(), world.clone());
        effect.take(c as u8, request);
        // It is read before the next try, and found as wanted.
        let is_copy = command.kind == Kind::Copy;
        effect.commands[c].at = if is_copy { At::Renew } else { At::Free };
        effect.commands[c].succeeded = request == Request::PutKeys && !is_copy;
        late.in_flight.push((c as u8, request));
        vec![world, effect, late]
    }

    /// All possible next worlds.
    fn successors(&self, with: &Defences) -> Vec<Self> {
        let mut all = Vec::new();
        for at in 0..self.in_flight.len() {
            let mut world = self.clone();
            let (by, request) = world.in_flight.remove(at);
            world.take(by, request);
            all.push(world);
        }
        for c in 0..self.commands.len() {
            let command = self.commands[c];
            if command.crashed || command.at == At::Over {
                continue;
            }
            all.extend(self.step(c, with));
            if self.failures > 0 {
                all.extend(self.failed(c, with));
            }
            if self.crashes > 0 {
                let mut world = self.clone();
                (world.crashes, world.commands[c].crashed) = (self.crashes - 1, true);
                all.push(world);
            }
            // Only a `gc` looks at the claim of a copy.
            let is_judged = self.commands.iter().any(|other| other.kind == Kind::Collect);
            let has_claim =
                is_judged && command.kind == Kind::Copy && self.copying && command.at != At::Begin;
            if self.sleeps > 0 && (command.fresh || has_claim) {
                let mut world = self.clone();
                (world.sleeps, world.commands[c].fresh) = (self.sleeps - 1, false);
                world.copying &= !has_claim;
                all.push(world);
            }
        }
        // A claim grows old once its command is dead, over or asleep, and no request of it is in flight.
        for n in 0..self.claims.len() {
            let claim = self.claims[n];
            let by = self.commands[usize::from(claim.by)];
            // A copy leaves its claim once the key slots are written.
            let is_left = by.kind == Kind::Copy && !matches!(by.at, At::Compare | At::Put);
            let idle = by.crashed || by.at == At::Over || !by.fresh || is_left;
            let quiet = !self.in_flight.iter().any(|(c, _)| *c == claim.by);
            if !claim.old && !claim.ended && idle && quiet {
                let mut world = self.clone();
                world.claims[n].old = true;
                all.push(world);
            }
        }
        all
    }
}

/// Returns the way to the first violation, and the number of worlds.
fn search(start: World, with: &Defences) -> (Option<Vec<World>>, usize) {
    xb_testkit::search(start, World::is_violated, |world| world.successors(with))
}

use Kind::{Collect as G, Copy as C, Remove as R, Rewrap as K};

const FAULTS: (u8, u8, u8) = (1, 2, 2);

const MEETINGS: [&[Kind]; 13] = [
    &[C, K],
    &[C, C, K],
    &[G, C, K],
    &[R, C],
    &[G, C],
    &[K, K],
    &[R, K],
    &[R, C, C],
    &[R, R, C],
    &[R, C, K],
    &[G, C, C],
    &[G, C, R],
    &[K, K, K],
];

#[test]
fn no_interleaving_loses_a_copy_or_key_slots() {
    for kinds in MEETINGS {
        let (violated, worlds) = search(World::new(kinds, FAULTS), &ALL);
        println!("{kinds:?}: {worlds} worlds");
        assert!(violated.is_none(), "{kinds:?}: {violated:?}");
        assert!(worlds > 50);
    }
}

#[test]
fn each_command_alone_succeeds() {
    for kind in [R, G, K] {
        let mut world = World::new(&[kind], (0, 0, 0));
        while world.commands[0].at != At::Over {
            world = world.step(0, &ALL).remove(0);
        }
        assert_eq!((world.objects, world.slots == 0), (kind == K, kind == K));
        assert!(!world.is_claimed());
    }
    // One after the other.
    let mut world = World::new(&[R, C], (0, 0, 0));
    for c in [0, 1] {
        while world.commands[c].at != At::Over {
            world = world.step(c, &ALL).remove(0);
        }
    }
    assert!(world.commands[1].succeeded && world.objects && world.manifest == Some(1));
}

#[test]
fn each_defence_is_needed() {
    let without: [(&str, Defences, &[Kind]); 12] = [
        ("a claim of copies", Defences { copy_claims: false, ..ALL }, &[C, K]),
        ("looking for a copy", Defences { copy_looks: false, ..ALL }, &[C, C, K]),
        ("keeping the claim of a copy", Defences { keep_late: false, ..ALL }, &[C, K]),
        ("holding the mark", Defences { hold: false, ..ALL }, &[R, C]),
        ("a claim of gc", Defences { collect_claims: false, ..ALL }, &[G, C]),
        ("waiting after the commit", Defences { wait_after: false, ..ALL }, &[G, C]),
        ("looking for the objects", Defences { look_after: false, ..ALL }, &[G, C]),
        ("looking after a sleep", Defences { renew_looks: false, ..ALL }, &[R, C]),
        ("keeping the claim of a late request", Defences { keep_late: false, ..ALL }, &[K, K]),
        ("a claim of rewraps", Defences { rewrap_claims: false, ..ALL }, &[K, K]),
        ("ending the claim of a rewrap", Defences { rewrap_ends: false, ..ALL }, &[K, K]),
        ("comparing key slots", Defences { compare: false, ..ALL }, &[K, K]),
    ];
    for (what, with, kinds) in without {
        let (violated, _) = search(World::new(kinds, FAULTS), &with);
        assert!(violated.is_some(), "nothing is lost without {what}");
    }
}
