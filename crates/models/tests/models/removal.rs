//! Model of what meets at one backup: removals, a new backup of the same name, an increment of it, an increment
//! of that one, and a pin; and a search through all their interleavings.
//!
//! Every request is one step. Between two steps of one command, every other may take any number of
//! steps, and a command may crash or sleep until its mark counts as old. Each request that changes something (a mark,
//! a manifest, a pin, their removal) may fail: without effect, with effect, or with an effect that comes later, while
//! the command sends it again or gives up. A late removal of the manifest comes before its mark is old. A command does
//! not sleep between the check of its lease and the removal after it; no store can make a removal depend on a claim.
//!
//! The defences can be switched off one by one; the search must then find the fault that each of them
//! prevents.

/// Rules that keep commands apart.
#[derive(Debug, Clone, Copy)]
struct Defences {
    /// A removal looks for dependants and pins after it has marked the name, not before.
    look_under_mark: bool,
    /// Whoever relies on a backup looks for marks after writing.
    look_for_marks: bool,
    /// A commit looks for marks before it writes.
    wait_before: bool,
    /// A commit looks for marks after it has written.
    wait_after: bool,
    /// A removal reads the manifest before each try.
    compare: bool,
    /// A mark is not renewed: who slept removes nothing.
    expire: bool,
    /// After a failed try the mark stays.
    keep_late: bool,
    /// An increment looks at its whole chain after writing, not at its base alone.
    whole_chain: bool,
}

const ALL: Defences = Defences {
    look_under_mark: true,
    look_for_marks: true,
    wait_before: true,
    wait_after: true,
    compare: true,
    expire: true,
    keep_late: true,
    whole_chain: true,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    /// Removes the backup, unless an increment or a pin needs it.
    Remove,
    /// Commits a new backup of the name.
    Commit,
    /// Commits an increment of the backup.
    Increment,
    /// Commits an increment of that increment.
    Second,
    Pin,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum At {
    Begin,
    // A removal.
    Mark,
    Look,
    Compare,
    Delete,
    Free,
    // The others.
    WaitBefore,
    Write,
    Wait,
    Check,
    TakeBack,
    Over,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Command {
    kind: Kind,
    at: At,
    /// The manifest that it is about: the backup is that of this command, 9 is the first one.
    about: Option<u8>,
    crashed: bool,
    fresh: bool,
    /// A removal has sent a request.
    sent: bool,
    /// A request failed, so that its effect may come later.
    late: bool,
    /// Run of the mark that it waits for.
    waits_for: Option<u8>,
    succeeded: bool,
}

/// A request that changes something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Request {
    Mark,
    Remove,
    Free,
    Write,
    TakeBack,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Mark {
    by: u8,
    run: Option<u8>,
    old: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    manifest: Option<u8>,
    /// The backup whose increment exists.
    increment: Option<u8>,
    /// The backup whose increment has an increment.
    second: Option<u8>,
    pin: Option<u8>,
    mark: Option<Mark>,
    /// Requests that have not reached the store yet, and their commands.
    in_flight: Vec<(u8, Request)>,
    commands: Vec<Command>,
    crashes: u8,
    sleeps: u8,
    failures: u8,
}

const FIRST: u8 = 9;

impl World {
    fn new(kinds: &[Kind], (crashes, sleeps, failures): (u8, u8, u8)) -> Self {
        let command = |kind: &Kind| Command {
            kind: *kind,
            at: At::Begin,
            about: None,
            crashed: false,
            fresh: false,
            sent: false,
            late: false,
            waits_for: None,
            succeeded: false,
        };
        Self {
            manifest: Some(FIRST),
            increment: None,
            second: None,
            pin: None,
            mark: None,
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
            let there = self.manifest == command.about;
            command.succeeded
                && match command.kind {
                    Kind::Remove => false,
                    // A crash in between may leave an increment without its base, which no command
                    // has reported; but none that relies on it may report success.
                    Kind::Second => !there || self.increment != command.about,
                    Kind::Increment | Kind::Pin => !there,
                    Kind::Commit => {
                        let meant = |other: &Command| {
                            other.kind == Kind::Remove && other.about == Some(c as u8)
                        };
                        self.manifest != Some(c as u8) && !self.commands.iter().any(meant)
                    }
                }
        })
    }

    fn living(&self) -> Option<Mark> {
        self.mark.filter(|mark| !mark.old)
    }

    fn go(mut self, c: usize, at: At) -> Vec<Self> {
        self.commands[c].at = at;
        vec![self]
    }

    fn done(mut self, c: usize) -> Vec<Self> {
        self.commands[c].succeeded = true;
        self.go(c, At::Over)
    }

    fn is_needed(&self, about: Option<u8>) -> bool {
        about.is_some() && (self.increment == about || self.pin == about)
    }

    /// All possible results of the next step of a command.
    fn step(&self, c: usize, with: &Defences) -> Vec<Self> {
        let (command, me) = (self.commands[c], c as u8);
        let mut world = self.clone();
        match command.at {
            At::Over => Vec::new(),
            At::Begin => {
                world.commands[c].about = self.manifest;
                match (command.kind, self.manifest) {
                    (Kind::Commit, None) => {
                        world.commands[c].about = Some(me);
                        world.go(c, At::WaitBefore)
                    }
                    // It waits until the name is free.
                    (Kind::Commit, Some(_)) => Vec::new(),
                    (_, None) => world.go(c, At::Over),
                    (Kind::Second, about) if self.increment != about => world.go(c, At::Over),
                    (Kind::Remove, about) if !with.look_under_mark && self.is_needed(about) => {
                        world.go(c, At::Over)
                    }
                    (Kind::Remove, Some(_)) => world.go(c, At::Mark),
                    (_, Some(_)) => world.go(c, At::Write),
                }
            }
            At::Mark => {
                if self.living().is_some_and(|mark| mark.by != me) {
                    return world.go(c, At::Over);
                }
                world.take(c, Request::Mark);
                world.commands[c].fresh = true;
                world.go(c, if with.look_under_mark { At::Look } else { At::Compare })
            }
            At::Look => {
                let needed = self.is_needed(command.about);
                world.go(c, if needed { At::Free } else { At::Compare })
            }
            At::Compare => {
                let same = self.manifest == command.about;
                let next = match same || !with.compare {
                    true => At::Delete,
                    false => At::Free,
                };
                world.go(c, next)
            }
            At::Delete => {
                let own = self.mark.is_some_and(|mark| mark.by == me);
                if with.expire && (!command.fresh || !own) {
                    return world.go(c, At::Over);
                }
                world.commands[c].sent = true;
                world.take(c, Request::Remove);
                world.go(c, At::Free)
            }
            At::Free => {
                if !(command.late && with.keep_late) {
                    world.take(c, Request::Free);
                }
                world.go(c, At::Over)
            }
            At::WaitBefore => match self.living() {
                Some(_) if with.wait_before => Vec::new(),
                _ => world.go(c, At::Write),
            },
            At::Write => {
                // Another one has the name.
                if command.kind == Kind::Commit && self.manifest.is_some_and(|by| by != me) {
                    return world.go(c, At::Over);
                }
                world.take(c, Request::Write);
                match command.kind {
                    Kind::Commit if !with.wait_after => world.done(c),
                    Kind::Second if !with.whole_chain => world.go(c, At::Check),
                    _ => world.go(c, At::Wait),
                }
            }
            At::Wait => match self.living() {
                Some(mark) if with.look_for_marks => {
                    // Not again, or the search would not end.
                    if command.waits_for == mark.run && command.waits_for.is_some() {
                        return Vec::new();
                    }
                    world.commands[c].waits_for = mark.run;
                    vec![world]
                }
                _ => match (command.kind, command.waits_for) {
                    (Kind::Commit, None) => world.done(c),
                    _ => world.go(c, At::Check),
                },
            },
            At::Check if command.kind == Kind::Second => {
                let base = self.increment == command.about;
                let full = self.manifest == command.about || !with.whole_chain;
                match base && full {
                    true => world.done(c),
                    false => world.go(c, At::TakeBack),
                }
            }
            At::Check => match (command.kind, self.manifest == command.about) {
                (_, true) => world.done(c),
                (Kind::Commit, false)
                    if self.manifest.is_none() && command.waits_for != Some(me) =>
                {
                    world.commands[c].waits_for = None;
                    world.go(c, At::Write)
                }
                (Kind::Increment, false) => world.go(c, At::TakeBack),
                _ => world.go(c, At::Over),
            },
            At::TakeBack => {
                world.take(c, Request::TakeBack);
                world.go(c, At::Over)
            }
        }
    }

    /// A request of this command reaches the store.
    fn take(&mut self, c: usize, request: Request) {
        let (command, me) = (self.commands[c], c as u8);
        match (request, command.kind) {
            // Its number may be taken by now.
            (Request::Mark, _) if self.living().is_some() => {}
            (Request::Mark, _) => {
                self.mark = Some(Mark { by: me, run: command.about, old: false });
            }
            (Request::Remove, _) => self.manifest = None,
            (Request::Free, _) => self.mark = self.mark.filter(|mark| mark.by != me),
            // Created only where nothing stands.
            (Request::Write, Kind::Commit) => self.manifest = self.manifest.or(Some(me)),
            (Request::Write, Kind::Increment) => self.increment = command.about,
            (Request::Write, Kind::Second) => self.second = command.about,
            (Request::Write, _) => self.pin = command.about,
            (Request::TakeBack, Kind::Second) => self.second = None,
            (Request::TakeBack, _) => self.increment = None,
        }
    }

    /// All that the request of the next step can come to if it fails: it has no effect, or one, or a late one; and the
    /// command sends it again, or gives up.
    fn failed(&self, c: usize, with: &Defences) -> Vec<Self> {
        let command = self.commands[c];
        let own = self.mark.is_some_and(|mark| mark.by == c as u8);
        // The step at which it goes on if it sends the request again, and if it gives up.
        let (request, [again, over]) = match command.at {
            At::Mark => (Request::Mark, [At::Mark, At::Over]),
            At::Delete if with.expire && (!command.fresh || !own) => return Vec::new(),
            At::Delete => (Request::Remove, [At::Compare, At::Free]),
            At::Free if command.late && with.keep_late => return Vec::new(),
            At::Free => (Request::Free, [At::Free, At::Over]),
            At::Write => (Request::Write, [At::Write, At::Over]),
            At::TakeBack => (Request::TakeBack, [At::TakeBack, At::Over]),
            _ => return Vec::new(),
        };
        let mut world = self.clone();
        world.failures -= 1;
        if request == Request::Remove {
            (world.commands[c].sent, world.commands[c].late) = (true, true);
        }
        let (mut effect, mut late) = (world.clone(), world.clone());
        effect.take(c, request);
        late.in_flight.push((c as u8, request));
        let all = [world, effect, late];
        all.into_iter()
            .flat_map(|world| [again, over].map(|at| world.clone().go(c, at).remove(0)))
            .collect()
    }

    /// All possible next worlds.
    fn successors(&self, with: &Defences) -> Vec<Self> {
        let mut all = Vec::new();
        for at in 0..self.in_flight.len() {
            let mut world = self.clone();
            let (by, request) = world.in_flight.remove(at);
            world.take(usize::from(by), request);
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
            if self.sleeps > 0 && command.fresh {
                let mut world = self.clone();
                (world.sleeps, world.commands[c].fresh) = (self.sleeps - 1, false);
                all.push(world);
            }
        }
        // A mark grows old once its command is dead, over or asleep, and no request of it is in flight.
        if let Some(mark) = self.living() {
            let by = self.commands[usize::from(mark.by)];
            let idle = by.crashed || by.at == At::Over || !by.fresh;
            if idle && !self.in_flight.contains(&(mark.by, Request::Remove)) {
                let mut world = self.clone();
                world.mark = Some(Mark { old: true, ..mark });
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

use Kind::{Commit as C, Increment as I, Pin as P, Remove as R, Second as S};

const MEETINGS: [&[Kind]; 10] = [
    &[R, C],
    &[R, I],
    &[R, P],
    &[R, R, C],
    &[R, R, I],
    &[R, C, I],
    &[R, I, P],
    &[R, C, P],
    &[R, I, S],
    &[R, R, I, S],
];

#[test]
fn no_interleaving_loses_what_a_command_reported() {
    for kinds in MEETINGS {
        // Of four with two failures, there are millions of worlds.
        let failures = if kinds.len() > 3 { 1 } else { 2 };
        let (violated, worlds) = search(World::new(kinds, (1, 1, failures)), &ALL);
        println!("{kinds:?}: {worlds} worlds");
        assert!(violated.is_none(), "{kinds:?}: {violated:?}");
        assert!(worlds > 100);
    }
}

#[test]
fn each_command_alone_succeeds() {
    for kind in [R, I, P] {
        let mut world = World::new(&[kind], (0, 0, 0));
        while world.commands[0].at != At::Over {
            world = world.step(0, &ALL).remove(0);
        }
        assert_eq!(world.commands[0].succeeded, kind != R);
        assert_eq!((world.manifest.is_none(), world.mark), (kind == R, None));
    }
}

#[test]
fn each_defence_is_needed() {
    let without: [(&str, Defences, &[Kind]); 7] = [
        ("looking under the mark", Defences { look_under_mark: false, ..ALL }, &[R, I]),
        ("looking for marks", Defences { look_for_marks: false, ..ALL }, &[R, I]),
        // Either of the two finds the mark of a request that is still in flight.
        (
            "waiting for removals of the name",
            Defences { wait_before: false, wait_after: false, ..ALL },
            &[R, C],
        ),
        ("comparing", Defences { compare: false, ..ALL }, &[R, R, C]),
        ("marks that expire", Defences { expire: false, ..ALL }, &[R, I]),
        ("looking at the whole chain", Defences { whole_chain: false, ..ALL }, &[R, I, S]),
        ("keeping the mark of a late request", Defences { keep_late: false, ..ALL }, &[R, C]),
    ];
    for (what, with, kinds) in without {
        let (violated, _) = search(World::new(kinds, (1, 1, 2)), &with);
        assert!(violated.is_some(), "nothing is lost without {what}");
    }
}
