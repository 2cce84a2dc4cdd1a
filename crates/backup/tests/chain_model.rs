//! Model of the commands that meet in a catalogue of several backups: prunes, deletes, increments, full backups or copies,
//! and rewraps. A search through all their interleavings looks for one that loses the newest backup that can be restored
//! without a request to remove it.
//!
//! Every request is one step. Between two steps of one command, every other may take any number of steps, a command may
//! crash or sleep until its marks count as old, and a request to remove a manifest may fail: without effect, with effect,
//! or with an effect that comes later. What a late request does comes before its mark is old. What meets at a single
//! name is in `removal_model.rs` and `copy_model.rs`.
//!
//! The defences can be switched off one by one; the search must then find the loss that each of them prevents.
#![allow(clippy::cast_possible_truncation, reason = "there are four commands at most")]
#![allow(clippy::indexing_slicing, reason = "the numbers of backups are those of the arrays")]

/// Rules that keep commands apart.
#[derive(Debug, Clone, Copy)]
struct Defences {
    /// A prune looks under its marks whether what it keeps stays.
    look_at_kept: bool,
    /// A removal looks for dependants under its marks, not before.
    look_under_mark: bool,
    /// Who relies on backups looks for their marks after writing.
    look_for_marks: bool,
    /// A mark is not renewed: who slept removes nothing.
    expire: bool,
    /// A mark stays as long as a request may come late.
    keep_late: bool,
}

const ALL: Defences = Defences {
    look_at_kept: true,
    look_under_mark: true,
    look_for_marks: true,
    expire: true,
    keep_late: true,
};

/// The backups, the oldest first: two full ones, an increment of the first and one of that, and another full one.
const FULL: usize = 0;
const NEWER: usize = 1;
const INCREMENT: usize = 2;
const SECOND: usize = 3;
const NEWEST: usize = 4;
const BASES: [Option<usize>; 5] = [None, None, Some(FULL), Some(INCREMENT), None];

/// The chain of a backup, itself first.
fn chain(of: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(of), |&link| BASES[link])
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    /// Keeps the newest that can be restored, and removes the others that can be.
    Prune,
    /// Removes this backup, unless others need it.
    Delete(usize),
    /// Commits this increment.
    Increment(usize),
    /// Commits the newest full backup, or a copy of it.
    Commit,
    /// Holds the name of this backup while it replaces its key slots.
    Rewrap(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum At {
    Begin,
    Mark,
    Look,
    Remove,
    Free,
    Write,
    Wait,
    Check,
    TakeBack,
    Over,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Command {
    kind: Kind,
    at: At,
    /// What it is about to remove, in order, and how many of them are done.
    going: Vec<usize>,
    next: usize,
    /// What a prune keeps.
    kept: Vec<usize>,
    crashed: bool,
    asleep: bool,
    /// Backups of which a request may come late.
    late: Vec<usize>,
    succeeded: bool,
}

impl Command {
    /// The backup that it makes.
    fn made(&self) -> Option<usize> {
        match self.kind {
            Kind::Increment(made) => Some(made),
            Kind::Commit => Some(NEWEST),
            _ => None,
        }
    }

    /// The bases of that.
    fn relies_on(&self) -> impl Iterator<Item = usize> {
        self.made().into_iter().flat_map(chain).skip(1)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Mark {
    by: u8,
    old: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    manifests: [bool; 5],
    marks: [Option<Mark>; 5],
    in_flight: Vec<(u8, usize)>,
    commands: Vec<Command>,
    crashes: u8,
    sleeps: u8,
    failures: u8,
}

impl World {
    fn new(kinds: &[Kind], (crashes, sleeps, failures): (u8, u8, u8)) -> Self {
        let command = |kind: &Kind| Command {
            kind: *kind,
            at: At::Begin,
            going: Vec::new(),
            next: 0,
            kept: Vec::new(),
            crashed: false,
            asleep: false,
            late: Vec::new(),
            succeeded: false,
        };
        let commands = kinds.iter().map(command).collect();
        let (marks, in_flight) = ([None; 5], Vec::new());
        let manifests = [true, true, false, false, false];
        Self { manifests, marks, in_flight, commands, crashes, sleeps, failures }
    }

    fn is_restorable(&self, of: usize) -> bool {
        chain(of).all(|link| self.manifests[link])
    }

    /// Returns whether neither the newest backup that was there or was reported, without a request to remove a link of its
    /// chain, nor a later one can be restored.
    fn has_lost_the_newest(&self) -> bool {
        let was_deleted = |of: usize| {
            let deletes = |link| self.commands.iter().any(|c| c.kind == Kind::Delete(link));
            chain(of).any(deletes)
        };
        let is_reported = |of: usize| {
            of <= NEWER || self.commands.iter().any(|c| c.succeeded && c.made() == Some(of))
        };
        let newest = (0..5).rev().find(|&of| is_reported(of) && !was_deleted(of));
        newest.is_some_and(|newest| !(newest..5).any(|of| self.is_restorable(of)))
    }

    fn is_held(&self, name: usize) -> bool {
        self.marks[name].is_some_and(|mark| !mark.old)
    }

    /// Returns whether a living mark is that of a removal.
    fn is_leaving(&self, name: usize) -> bool {
        let by = self.marks[name].filter(|mark| !mark.old).map(|mark| usize::from(mark.by));
        by.is_some_and(|by| !matches!(self.commands[by].kind, Kind::Rewrap(_)))
    }

    fn is_mine(&self, name: usize, c: usize) -> bool {
        self.marks[name].is_some_and(|mark| usize::from(mark.by) == c && !mark.old)
    }

    /// Returns whether a backup that stays needs `name`.
    fn is_needed(&self, name: usize, going: &[usize]) -> bool {
        (0..5).any(|of| BASES[of] == Some(name) && self.manifests[of] && !going.contains(&of))
    }

    /// What a prune keeps, and what it removes: increments before their bases.
    fn plan(&self) -> (Vec<usize>, Vec<usize>) {
        let there: Vec<usize> = (0..5).rev().filter(|&of| self.manifests[of]).collect();
        let newest = there.iter().copied().find(|&of| self.is_restorable(of));
        let kept: Vec<usize> = newest.into_iter().flat_map(chain).collect();
        // What cannot be restored is for a person to decide.
        let stays = |of: usize| kept.contains(&of) || !self.is_restorable(of);
        let needed: Vec<usize> =
            there.iter().copied().filter(|&of| stays(of)).flat_map(chain).collect();
        let going = there.into_iter().filter(|of| !needed.contains(of)).collect();
        (kept, going)
    }

    fn go(mut self, c: usize, at: At) -> Vec<Self> {
        self.commands[c].at = at;
        vec![self]
    }

    fn done(mut self, c: usize) -> Vec<Self> {
        self.commands[c].succeeded = true;
        self.go(c, At::Over)
    }

    /// All possible results of the next step of a command.
    fn step(&self, c: usize, with: &Defences) -> Vec<Self> {
        let command = &self.commands[c];
        let mut world = self.clone();
        match (command.at, command.kind) {
            (At::Over, _) => Vec::new(),
            (At::Begin, Kind::Prune) => {
                let (kept, going) = self.plan();
                let at = if going.is_empty() { At::Over } else { At::Mark };
                (world.commands[c].kept, world.commands[c].going) = (kept, going);
                world.go(c, at)
            }
            (At::Begin, Kind::Delete(name)) => {
                let may_go = self.manifests[name] && !self.is_needed(name, &[]);
                world.commands[c].going = vec![name];
                world.go(c, if may_go { At::Mark } else { At::Over })
            }
            (At::Begin, Kind::Rewrap(name)) => {
                world.commands[c].going = vec![name];
                world.go(c, if self.manifests[name] { At::Mark } else { At::Over })
            }
            (At::Begin, Kind::Increment(name)) => {
                let has_chain = chain(name).skip(1).all(|link| self.manifests[link]);
                world.go(c, if has_chain { At::Write } else { At::Over })
            }
            (At::Begin, Kind::Commit) => world.go(c, At::Write),
            // One name after the other; what another command holds is left out.
            (At::Mark, _) => {
                let Some(&name) = command.going.get(command.next) else {
                    world.commands[c].next = 0;
                    return world.go(c, At::Look);
                };
                if self.is_held(name) {
                    world.commands[c].going.remove(command.next);
                    return vec![world];
                }
                world.marks[name] = Some(Mark { by: c as u8, old: false });
                world.commands[c].next += 1;
                vec![world]
            }
            (At::Look, Kind::Rewrap(_)) => world.go(c, At::Free),
            (At::Look, _) => {
                let stays = |name: &usize| self.manifests[*name] && !self.is_leaving(*name);
                let holds = !with.look_at_kept || command.kept.iter().all(stays);
                let mut going = command.going.clone();
                if with.look_under_mark {
                    // What stays keeps its base, too.
                    while let Some(at) = going.iter().position(|&of| self.is_needed(of, &going)) {
                        going.remove(at);
                    }
                }
                if !holds {
                    going.clear();
                }
                world.commands[c].going = going;
                world.go(c, At::Remove)
            }
            (At::Remove, _) => {
                let Some(&name) = command.going.get(command.next) else {
                    return world.go(c, At::Free);
                };
                if with.expire && (command.asleep || !self.is_mine(name, c)) {
                    return world.go(c, At::Over);
                }
                world.manifests[name] = false;
                world.commands[c].next += 1;
                vec![world]
            }
            (At::Free, _) => {
                for (name, mark) in world.marks.iter_mut().enumerate() {
                    let mine = mark.is_some_and(|mark| usize::from(mark.by) == c);
                    if mine && !(with.keep_late && command.late.contains(&name)) {
                        *mark = None;
                    }
                }
                world.go(c, At::Over)
            }
            (At::Write, Kind::Increment(name)) => {
                world.manifests[name] = true;
                world.go(c, At::Wait)
            }
            (At::Write, _) => {
                world.manifests[NEWEST] = true;
                world.done(c)
            }
            (At::Wait, _) => {
                let waits = command.relies_on().any(|name| self.is_leaving(name));
                match waits && with.look_for_marks {
                    true => Vec::new(),
                    false => world.go(c, At::Check),
                }
            }
            (At::Check, _) => match command.relies_on().all(|link| self.manifests[link]) {
                true => world.done(c),
                false => world.go(c, At::TakeBack),
            },
            (At::TakeBack, _) => {
                command.made().into_iter().for_each(|name| world.manifests[name] = false);
                world.go(c, At::Over)
            }
        }
    }

    /// A request to remove a manifest fails: without effect, with effect, or with a late one. It is sent again.
    fn failed(&self, c: usize, with: &Defences) -> Vec<Self> {
        let command = &self.commands[c];
        let Some(&name) = command.going.get(command.next) else { return Vec::new() };
        if with.expire && (command.asleep || !self.is_mine(name, c)) {
            return Vec::new();
        }
        let mut world = self.clone();
        world.failures -= 1;
        world.commands[c].late.push(name);
        // It gives up.
        let mut late = world.clone();
        late.in_flight.push((c as u8, name));
        let over = late.clone().go(c, At::Free).remove(0);
        let mut effect = world.clone();
        effect.manifests[name] = false;
        vec![world, effect, late, over]
    }

    /// All possible next worlds.
    fn successors(&self, with: &Defences) -> Vec<Self> {
        let mut all = Vec::new();
        for at in 0..self.in_flight.len() {
            let mut world = self.clone();
            let (_, name) = world.in_flight.remove(at);
            world.manifests[name] = false;
            all.push(world);
        }
        for (c, command) in self.commands.iter().enumerate() {
            if command.crashed || command.at == At::Over {
                continue;
            }
            all.extend(self.step(c, with));
            if command.at == At::Remove && self.failures > 0 {
                all.extend(self.failed(c, with));
            }
            if self.crashes > 0 {
                let mut world = self.clone();
                (world.crashes, world.commands[c].crashed) = (self.crashes - 1, true);
                all.push(world);
            }
            if self.sleeps > 0 && !command.asleep {
                let mut world = self.clone();
                (world.sleeps, world.commands[c].asleep) = (self.sleeps - 1, true);
                all.push(world);
            }
        }
        // A mark grows old once its command is dead, over or asleep, and no request of it is in flight.
        for (name, mark) in self.marks.iter().enumerate() {
            let Some(mark) = mark.filter(|mark| !mark.old) else { continue };
            let by = &self.commands[usize::from(mark.by)];
            let is_idle = by.crashed || by.at == At::Over || by.asleep;
            if is_idle && !self.in_flight.contains(&(mark.by, name)) {
                let mut world = self.clone();
                world.marks[name] = Some(Mark { old: true, ..mark });
                all.push(world);
            }
        }
        all
    }
}

/// Returns the first loss, and the number of worlds.
fn search(start: World, with: &Defences) -> (Option<World>, usize) {
    xb_testkit::search(start, World::has_lost_the_newest, |world| world.successors(with))
}

use Kind::{Commit as C, Prune as P};

const D: Kind = Kind::Delete(FULL);
const I: Kind = Kind::Increment(INCREMENT);
const S: Kind = Kind::Increment(SECOND);
const K: Kind = Kind::Rewrap(FULL);

const FAULTS: (u8, u8, u8) = (1, 1, 1);

const MEETINGS: [&[Kind]; 10] = [
    &[P, P],
    &[P, I],
    &[P, C],
    &[P, P, I],
    &[P, D, I],
    &[P, I, S],
    &[P, I, K],
    &[P, P, K],
    &[P, P, C],
    &[P, I, C],
];

#[test]
fn no_interleaving_loses_the_newest_that_can_be_restored() {
    for kinds in MEETINGS {
        let (lost, worlds) = search(World::new(kinds, FAULTS), &ALL);
        println!("{kinds:?}: {worlds} worlds");
        assert!(lost.is_none(), "{kinds:?}: {lost:?}");
        assert!(worlds > 50);
    }
}

#[test]
fn each_command_alone_succeeds() {
    let alone = |kind: Kind| {
        let mut world = World::new(&[kind], (0, 0, 0));
        while world.commands[0].at != At::Over {
            world = world.step(0, &ALL).remove(0);
        }
        assert_eq!(world.marks, [None; 5], "{kind:?}");
        world
    };
    assert_eq!(alone(P).manifests, [false, true, false, false, false]);
    assert_eq!(alone(D).manifests, [false, true, false, false, false]);
    assert_eq!(alone(K).manifests, [true, true, false, false, false]);
    assert!(alone(I).is_restorable(INCREMENT) && alone(C).is_restorable(NEWEST));
}

#[test]
fn each_defence_is_needed() {
    let without: [(&str, Defences, &[Kind]); 6] = [
        ("looking at what is kept", Defences { look_at_kept: false, ..ALL }, &[P, P, I]),
        ("looking at what is kept", Defences { look_at_kept: false, ..ALL }, &[P, D, I]),
        ("looking under the mark", Defences { look_under_mark: false, ..ALL }, &[P, I]),
        ("looking for marks", Defences { look_for_marks: false, ..ALL }, &[P, I]),
        ("marks that expire", Defences { expire: false, ..ALL }, &[P, I]),
        ("keeping the mark of a late request", Defences { keep_late: false, ..ALL }, &[P, I]),
    ];
    for (what, with, kinds) in without {
        let (lost, _) = search(World::new(kinds, FAULTS), &with);
        assert!(lost.is_some(), "nothing is lost without {what}");
    }
}
