//! Chooses among the servers of one archive: the one that the archive is of, for as long as it is there; then another one
//! that is no mere replica.

use std::time::{Duration, Instant};

use xb_mysql::{Access, Target};
use xb_repo::archive::stream::StreamHead;

use crate::archive_error::ArchiveError;
use crate::binlog::session::{Server, connect};

/// The servers to receive from, one of them at a time.
pub(super) struct Sources<'a> {
    servers: &'a [Access],
    /// How long the server of the archive may be away before another one is taken.
    patience: Duration,
    /// Since when it is away.
    away: Option<Instant>,
    /// The one that was chosen last.
    last: Option<usize>,
}

impl<'a> Sources<'a> {
    pub(super) fn new(servers: &'a [Access], patience: Duration) -> Self {
        Self { servers, patience, away: None, last: None }
    }

    /// How long to wait for a server that lacks stored transactions, if there are others.
    pub(super) fn patience(&self) -> Option<Duration> {
        (self.servers.len() > 1).then_some(self.patience)
    }

    /// Chooses where to receive from, if the archive's newest stream is `of` a server. Returns whether that is another
    /// place than the last time.
    pub(super) async fn choose(
        &mut self,
        of: Option<&StreamHead>,
        needs_checksums: bool,
    ) -> Result<(&'a Access, bool), ArchiveError> {
        if let [only] = self.servers {
            return Ok((only, false));
        }
        let mut found = Vec::new();
        for (number, access) in self.servers.iter().enumerate() {
            let asked = access.clone();
            let asking = tokio::task::spawn_blocking(move || connect(&asked, needs_checksums));
            let asked =
                asking.await.map_err(|_| ArchiveError::Bug("the thread that connects panicked"))?;
            let place = Place::of(asked.map(|(_, server)| server), of);
            let is_right = matches!(place, Place::Right);
            found.push(place);
            if is_right {
                self.away = None;
                return self.chosen(number);
            }
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
            (None, Some(own)) => self.chosen(own),
            (other, _) => {
                let mut all: Vec<String> = self
                    .servers
                    .iter()
                    .zip(&found)
                    .filter_map(|(of, place)| place.said(of))
                    .collect();
                if let Some(other) = other.and_then(|other| self.servers.get(other)) {
                    let (name, patience) = (name(other), self.patience.as_secs());
                    all.push(format!("{name} is taken if that lasts for {patience} s"));
                }
                Err(ArchiveError::NoSource(all.join("; ")))
            }
        }
    }

    fn chosen(&mut self, number: usize) -> Result<(&'a Access, bool), ArchiveError> {
        let is_new = self.last.replace(number).is_some_and(|last| last != number);
        let chosen = self.servers.get(number).ok_or(ArchiveError::Bug("a server of no number"))?;
        Ok((chosen, is_new))
    }
}

/// What one of the servers is to the archive.
enum Place {
    /// The archive is of it, or there is none yet.
    Right,
    /// The same, and it is a mere replica now.
    Demoted,
    Other,
    /// Another one that is a mere replica.
    Replica,
    Away(ArchiveError),
}

impl Place {
    fn of(asked: Result<Server, ArchiveError>, of: Option<&StreamHead>) -> Self {
        let server = match asked {
            Ok(server) => server,
            Err(error) => return Self::Away(error),
        };
        if server.uuid.is_some() {
            return Self::Away(ArchiveError::OneServer);
        }
        let is_own = of.map(|of| of.origin().differs_from(server.origin()).is_none());
        match (is_own, server.role.is_read_only) {
            (Some(true) | None, false) => Self::Right,
            (Some(true), true) => Self::Demoted,
            (Some(false), false) => Self::Other,
            (Some(false) | None, true) => Self::Replica,
        }
    }

    /// Returns why the server is not taken.
    fn said(&self, access: &Access) -> Option<String> {
        let name = name(access);
        match self {
            Self::Away(error) => Some(format!("{name}: {error}")),
            Self::Replica => {
                Some(format!("{name} has read_only=ON, as a replica that was not promoted"))
            }
            Self::Right | Self::Demoted | Self::Other => None,
        }
    }
}

fn name(access: &Access) -> String {
    match &access.target {
        Target::Socket(path) => path.display().to_string(),
        Target::Tcp { host, port, .. } => format!("{host}:{port}"),
    }
}
