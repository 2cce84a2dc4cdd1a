//! Chooses among the servers of one archive: the one that the archive is of, for as long as it is there; then another one
//! that is no mere replica.

use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use xb_mysql::{Access, Target};
use xb_repo::archive::stream::StreamHead;

use crate::archive_error::ArchiveError;
use crate::binlog::receive::session::{Server, connect};
use crate::binlog::source::watched_server::Watched;
use crate::binlog::source::write_access::WriteAccess;

/// The other servers' time to answer once that of the archive has.
const SLOW: Duration = Duration::from_secs(5);

/// The servers to receive from, one of them at a time.
pub(super) struct Sources<'a> {
    servers: &'a [Access],
    /// How long the server of the archive may be away before another one is taken.
    patience: Duration,
    /// Since when it is away.
    away: Option<Instant>,
    /// The one that was chosen last.
    last: Option<usize>,
    /// One that can be written to had no log when they were asked last.
    has_unlogged: bool,
}

impl<'a> Sources<'a> {
    pub(super) fn new(servers: &'a [Access], patience: Duration) -> Self {
        Self { servers, patience, away: None, last: None, has_unlogged: false }
    }

    /// Returns whether one that can be written to had no log when they were asked last: what it commits is lost.
    pub(super) fn has_unlogged(&self) -> bool {
        self.has_unlogged
    }

    /// How long to wait for a server that lacks stored transactions, if there are others.
    pub(super) fn patience(&self) -> Option<Duration> {
        (self.servers.len() > 1).then_some(self.patience)
    }

    /// Chooses where to receive from, if the archive's newest stream is `of` a server. Returns whether that is another
    /// place than the last time.
    ///
    /// # Errors
    /// If none can be received from; and if several can be written to, because the log of each lacks what the others commit.
    pub(super) async fn choose(
        &mut self,
        of: Option<&StreamHead>,
        needs_checksums: bool,
    ) -> Result<(&'a Access, bool), ArchiveError> {
        if let [only] = self.servers {
            return Ok((only, false));
        }
        let (mut found, mut open) = (Vec::new(), Vec::new());
        let (mut unlogged, mut logged) = (Vec::new(), Vec::new());
        for (asked, access) in self.ask(of, needs_checksums).await?.into_iter().zip(self.servers) {
            if let Some(write_access) = &asked.open {
                open.push((name(access), write_access.clone()));
                match asked.place {
                    Place::Away(ArchiveError::NoLog) => unlogged.push(write_access.clone()),
                    _ => logged.push(write_access.clone()),
                }
            }
            found.push(asked.place);
        }
        // Another node of its cluster logs what it commits.
        self.has_unlogged =
            unlogged.iter().any(|own| !logged.iter().any(|other| other.is_one_with(own)));
        let is_right = |place: &Place| matches!(place, Place::Right);
        let last = self.last.filter(|last| found.get(*last).is_some_and(is_right));
        let right = last.or_else(|| found.iter().position(is_right));
        if right.is_some() {
            self.away = None;
        }
        if let Some((first, write_access)) = open.first()
            && let Some((other, _)) =
                open.iter().find(|(_, other)| !other.is_one_with(write_access))
        {
            return Err(several_open(first, other));
        }
        if let Some(right) = right {
            return self.chosen(right);
        }
        // Every login fails, as with a wrong password: no other try can mend that.
        let is_final = |place: &Place| matches!(place, Place::Away(error) if !error.is_passing());
        if found.iter().all(is_final)
            && let Some(Place::Away(error)) = found.pop()
        {
            return Err(error);
        }
        let away = *self.away.get_or_insert_with(Instant::now);
        let at = |wanted: fn(&Place) -> bool| found.iter().position(wanted);
        let was_demoted = at(|place| matches!(place, Place::Demoted));
        let other = at(|place| matches!(place, Place::Other));
        match (other, was_demoted) {
            (Some(other), Some(_)) => self.chosen(other),
            (Some(other), None) if away.elapsed() >= self.patience => self.chosen(other),
            // Otherwise another one is the primary, and cannot be received from.
            (None, Some(own)) if open.is_empty() => self.chosen(own),
            (other, _) => {
                let mut all: Vec<String> = self
                    .servers
                    .iter()
                    .zip(&found)
                    .filter_map(|(of, place)| place.said(of))
                    .collect();
                if let Some(other) = other.and_then(|other| self.servers.get(other)) {
                    let (name, patience) = (name(other), self.patience.as_secs());
                    all.push(format!("{name} takes over if that lasts for {patience} s"));
                }
                Err(ArchiveError::NoSource(all.join("; ")))
            }
        }
    }

    /// Asks all servers at once. One that does not respond costs its time limit, unless the one of the archive has responded.
    async fn ask(
        &self,
        of: Option<&StreamHead>,
        needs_checksums: bool,
    ) -> Result<Vec<Asked>, ArchiveError> {
        let mut asking: FuturesUnordered<_> = (self.servers.iter().enumerate())
            .map(|(number, access)| {
                let access = access.clone();
                let asking = tokio::task::spawn_blocking(move || {
                    let server = connect(&access, needs_checksums).map(|(_, server)| server);
                    let write_access = match &server {
                        Ok(server) => Some(server.write_access.clone()),
                        // One without a log, or with another fault, may be the primary nevertheless.
                        Err(_) => Watched::new(access, false).write_access().ok(),
                    };
                    (server, write_access)
                });
                async move { (number, asking.await) }
            })
            .collect();
        let mut found: Vec<Option<Asked>> = self.servers.iter().map(|_| None).collect();
        let limit = tokio::time::sleep(SLOW);
        tokio::pin!(limit);
        let mut is_late = false;
        loop {
            let is_known = found.iter().flatten().any(|one| matches!(one.place, Place::Right));
            let answer = tokio::select! {
                answer = asking.next() => answer,
                () = &mut limit, if !is_late => {
                    is_late = true;
                    continue;
                }
                () = std::future::ready(()), if is_late && is_known => None,
            };
            let Some((number, answer)) = answer else { break };
            let (server, write_access) =
                answer.map_err(|_| ArchiveError::Bug("the thread that connects panicked"))?;
            let place = Place::of(server, of);
            let open = write_access.filter(|write_access| write_access.closed.is_none());
            if let Some(one) = found.get_mut(number) {
                *one = Some(Asked { place, open });
            }
        }
        let none = || Asked { place: Place::Away(ArchiveError::Ended), open: None };
        Ok(found.into_iter().map(|one| one.unwrap_or_else(none)).collect())
    }

    /// The archive is of the one that was chosen last, which is away from now on, if at all.
    pub(super) fn has_stored(&mut self) {
        self.away = None;
    }

    /// The servers but this one.
    pub(super) fn others(&self, chosen: &Access) -> Vec<Access> {
        let is_other = |one: &&Access| !std::ptr::eq(*one, chosen);
        self.servers.iter().filter(is_other).cloned().collect()
    }

    fn chosen(&mut self, number: usize) -> Result<(&'a Access, bool), ArchiveError> {
        let is_new = self.last.replace(number).is_some_and(|last| last != number);
        let chosen = self.servers.get(number).ok_or(ArchiveError::Bug("a server of no number"))?;
        Ok((chosen, is_new))
    }
}

/// The answer of a server.
struct Asked {
    place: Place,
    /// Its standing, if it can be written to.
    open: Option<WriteAccess>,
}

/// Relation of a server to the archive.
enum Place {
    /// The archive is of it, or there is none yet.
    Right,
    /// The same, and it cannot be written to any more.
    Demoted,
    Other,
    /// Another one that cannot be written to, and why.
    Closed(String),
    Away(ArchiveError),
}

impl Place {
    fn of(asked: Result<Server, ArchiveError>, of: Option<&StreamHead>) -> Self {
        let server = match asked {
            Ok(server) => server,
            Err(error) => return Self::Away(error),
        };
        // It comes back, and has everything then.
        if server.write_access.is_apart
            && let Some(why) = server.write_access.closed
        {
            return Self::Away(ArchiveError::NoSource(format!("it {why}")));
        }
        let is_own = of.map(|of| of.origin().differs_from(server.origin()).is_none());
        match (is_own, server.write_access.closed) {
            (Some(true) | None, None) => Self::Right,
            (Some(true), Some(_)) => Self::Demoted,
            (Some(false), None) => Self::Other,
            (Some(false) | None, Some(why)) => Self::Closed(why),
        }
    }

    /// Returns why the server is not taken.
    fn said(&self, access: &Access) -> Option<String> {
        let name = name(access);
        match self {
            Self::Away(error) => Some(format!("{name}: {error}")),
            Self::Closed(why) => Some(format!("{name} {why}")),
            Self::Right | Self::Demoted | Self::Other => None,
        }
    }
}

/// The error for two servers that can both be written to.
pub(super) fn several_open(one: &str, other: &str) -> ArchiveError {
    ArchiveError::SeveralOpen { one: one.to_owned(), other: other.to_owned() }
}

/// The name of a server, as it was given.
pub(crate) fn name(access: &Access) -> String {
    match &access.target {
        Target::Socket(path) => path.display().to_string(),
        Target::Tcp { host, port, .. } => format!("{host}:{port}"),
    }
}
