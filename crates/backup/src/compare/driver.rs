//! Reads a server at the end of a planned replay, and leaves it as it was.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use xb_binlog::GtidState;
use xb_repo::archive::stop::RestoreStop;

use crate::child::{OWN_WARNING, OnLine};
use crate::compare::applier::{Applier, ReplicaPosition, pause};
use crate::compare::contents::Contents;
use crate::compare::request::CompareOptions;
use crate::compare::server::{Server, Status, asked};
use crate::compare_error::CompareError;
use crate::error::BackupError;
use crate::session::Session;
use crate::until::{UntilPlan, series};
use crate::until_error::UntilError;

/// Time for the archive to store the transactions that a held replica has applied.
const CATCH_UP: Duration = Duration::from_secs(180);
/// Pause before the archive is read again: a receiver cuts a segment every 5 s.
const AGAIN: Duration = Duration::from_secs(5);
/// Longest time to wait for a replica that applies with a delay, in seconds.
const MAX_DELAY: i64 = 600;
/// The largest position that a replica takes as a stop.
const MAX_OFFSET: u64 = u32::MAX as u64;

/// Content of a server at the end of a replay.
#[derive(Debug)]
pub(crate) struct HeldServer {
    pub(crate) server: String,
    pub(crate) gtids: String,
    pub(crate) contents: Contents,
    /// Possible explanations of a difference.
    pub(crate) remarks: Vec<String>,
    /// Version of the server.
    pub(crate) version: String,
}

impl HeldServer {
    /// Returns whether a server of this version prints definitions as this one does.
    pub(crate) fn prints_like(&self, version: &str) -> bool {
        series(&self.version) == series(version)
    }
}

/// Reads the server at the end of the plan. If its applier has to be held and is beyond the newest stop, the archive is
/// waited for, and `again` plans anew; returns the plan that counts.
///
/// # Errors
/// [`CompareError`]; the errors of `again`.
pub(crate) async fn read_other(
    session: &Session,
    name: &str,
    options: &CompareOptions,
    plan: UntilPlan,
    stop: &RestoreStop,
    again: impl AsyncFnMut() -> Result<UntilPlan, BackupError>,
    tell: &OnLine,
) -> Result<(HeldServer, UntilPlan), BackupError> {
    let cancel = &session.cancel;
    let mut server = Server::open(name, options, cancel).await?;
    let statuses = server.statuses(cancel).await?;
    let planned = gtids(name, &plan)?;
    let remarks = remarks(name, &statuses);
    let (contents, plan) = match options.hold {
        false => {
            let variable = standing(&mut server, &planned, &statuses, session).await?;
            session.observer.begin_phase("compare");
            (read(&mut server, variable, session).await?, plan)
        }
        true => {
            let status = only(name, &statuses)?;
            // A server does not show its UNTIL condition, so it could not be restored.
            if status.applies && status.has_until {
                return Err(CompareError::HasUntil { server: name.to_owned() }.into());
            }
            let found = server.gtids("gtid_slave_pos", cancel).await?;
            let may_wait = *stop == RestoreStop::Latest;
            let place = ReplicaPosition::of(&found, &planned);
            if place == ReplicaPosition::OtherHistory
                || place == ReplicaPosition::Beyond && !may_wait
            {
                return Err(place.refused(name, &found, &planned).into());
            }
            check_source(&server, status, &plan)?;
            if place == ReplicaPosition::Before {
                check_delay(name, status, &plan)?;
            }
            held(session, &mut server, status, plan, may_wait, again, tell).await?
        }
    };
    let (gtids, version) = (plan.gtids.clone(), server.version);
    Ok((HeldServer { server: name.to_owned(), gtids, contents, remarks, version }, plan))
}

/// Holds the applier, reads the server, and puts the applier back in every case.
async fn held(
    session: &Session,
    server: &mut Server,
    status: &Status,
    plan: UntilPlan,
    may_wait: bool,
    again: impl AsyncFnMut() -> Result<UntilPlan, BackupError>,
    tell: &OnLine,
) -> Result<(Contents, UntilPlan), BackupError> {
    let applier = Applier::of(status);
    session.observer.begin_phase("hold");
    // An account that may not do this has changed nothing.
    applier.try_to_stop(server, &session.cancel).await?;
    let warning = format!(
        "{OWN_WARNING}the applier of {} is held until its rows are read; if this program is killed, run there: {}",
        server.name,
        applier.to_put_back()
    );
    tell(warning.as_bytes());
    let outcome = read_held(session, server, &applier, plan, may_wait, again).await;
    match (applier.put_back(server).await, outcome) {
        (Ok(()), outcome) => outcome,
        (Err(CompareError::NotPutBack { server, what, statements, .. }), Err(error)) => {
            let first = format!("{error}; and ");
            Err(CompareError::NotPutBack { server, what, statements, first }.into())
        }
        (Err(error), _) => Err(error.into()),
    }
}

async fn read_held(
    session: &Session,
    server: &mut Server,
    applier: &Applier,
    mut plan: UntilPlan,
    may_wait: bool,
    mut again: impl AsyncFnMut() -> Result<UntilPlan, BackupError>,
) -> Result<(Contents, UntilPlan), BackupError> {
    let cancel = &session.cancel;
    let found = applier.hold(server, cancel).await?;
    let begin = Instant::now();
    loop {
        let planned = gtids(&server.name, &plan)?;
        match ReplicaPosition::of(&found, &planned) {
            ReplicaPosition::There => break,
            ReplicaPosition::Before => {
                let stop = plan.stop().ok_or(BackupError::Bug("a plan without a stop"))?;
                applier.reach(server, stop, &planned, cancel).await?;
                break;
            }
            ReplicaPosition::Beyond if may_wait && begin.elapsed() < CATCH_UP => {
                pause(AGAIN, cancel).await?;
                match again().await {
                    Ok(later) => plan = later,
                    // A receiver that has just begun has given no sign of life yet.
                    Err(BackupError::Until(error))
                        if matches!(
                            *error,
                            UntilError::LostEnd { .. } | UntilError::DoubtfulEnd { .. }
                        ) && begin.elapsed() < CATCH_UP => {}
                    Err(error) => return Err(error),
                }
                session.observer.begin_phase("hold");
            }
            place => return Err(place.refused(&server.name, &found, &planned).into()),
        }
    }
    session.observer.begin_phase("compare");
    Ok((read(server, "gtid_slave_pos", session).await?, plan))
}

/// Reads everything, and checks that nothing has changed in between.
async fn read(
    server: &mut Server,
    variable: &str,
    session: &Session,
) -> Result<Contents, BackupError> {
    let cancel = &session.cancel;
    let before = positions(server, variable, cancel).await?;
    let contents = Contents::read(&mut server.session, &session.observer, cancel).await;
    let contents = contents.map_err(|error| asked(&server.name, error))?;
    let now = positions(server, variable, cancel).await?;
    match before == now {
        true => Ok(contents),
        false => {
            let server = server.name.clone();
            let [before, now] = [before, now].map(|at| at.map(|at| at.to_string()).join(" "));
            Err(CompareError::Moved { server, before, now }.into())
        }
    }
}

/// The position that counts, and that of the server's own log.
async fn positions(
    server: &mut Server,
    variable: &str,
    cancel: &crate::cancel::CancelToken,
) -> Result<[GtidState; 2], BackupError> {
    let counting = server.gtids(variable, cancel).await?;
    Ok([counting, server.gtids("gtid_binlog_pos", cancel).await?])
}

/// Checks that a server that is left alone is at the end of the plan. Returns the variable that says so.
async fn standing(
    server: &mut Server,
    planned: &GtidState,
    statuses: &[Status],
    session: &Session,
) -> Result<&'static str, BackupError> {
    let is_replica = !statuses.is_empty();
    let variables: &[&str] = match is_replica {
        true => &["gtid_slave_pos"],
        // Transactions that it has written itself, or replicated before it became the source.
        false => &["gtid_current_pos", "gtid_binlog_pos"],
    };
    let mut first = None;
    for variable in variables {
        let found = server.gtids(variable, &session.cancel).await?;
        if ReplicaPosition::of(&found, planned) == ReplicaPosition::There {
            return Ok(variable);
        }
        first = first.or(Some(found));
    }
    let found = first.map(|found| found.to_string()).unwrap_or_default();
    let (server, planned) = (server.name.clone(), planned.to_string());
    Err(CompareError::Elsewhere { server, found, planned, is_replica }.into())
}

fn gtids(server: &str, plan: &UntilPlan) -> Result<GtidState, BackupError> {
    match plan.gtids.parse() {
        Ok(state @ GtidState::MariaDb(_)) => Ok(state),
        _ => {
            let (server, found) =
                (server.to_owned(), "to be compared with data of MySQL".to_owned());
            Err(CompareError::Fork { server, found }.into())
        }
    }
}

/// The one connection of a replica that can be held.
fn only<'s>(server: &str, statuses: &'s [Status]) -> Result<&'s Status, CompareError> {
    match statuses {
        [one] => Ok(one),
        [] => Err(CompareError::NoReplica { server: server.to_owned() }),
        several => {
            let names: Vec<String> =
                several.iter().map(|status| format!("'{}'", status.connection)).collect();
            Err(CompareError::Sources { server: server.to_owned(), names: names.join(", ") })
        }
    }
}

/// Checks that the stop is a position in the log of the replica's own source.
fn check_source(server: &Server, status: &Status, plan: &UntilPlan) -> Result<(), BackupError> {
    let Some(expected) = plan.source_id() else { return Ok(()) };
    let server = server.name.clone();
    if plan.stop().is_some_and(|stop| stop.offset() > MAX_OFFSET) {
        return Err(CompareError::TooFar { server, stop: plan.to.clone() }.into());
    }
    if !status.error.is_empty() {
        let (at, what) = (status.at.clone(), status.error.clone());
        return Err(CompareError::Stopped { server, at, what }.into());
    }
    match status.source_id == expected {
        true => Ok(()),
        false => {
            let (found, stop) = (status.source_id, plan.to.clone());
            Err(CompareError::OtherSource { server, found, expected, stop }.into())
        }
    }
}

/// Checks that a replica with a delay is at the stop soon.
fn check_delay(server: &str, status: &Status, plan: &UntilPlan) -> Result<(), CompareError> {
    let delay = i64::try_from(status.delay).unwrap_or(i64::MAX);
    let age = Timestamp::now().as_second().saturating_sub(plan.time().as_second());
    let left = delay.saturating_sub(age);
    match delay > 0 && left > MAX_DELAY {
        false => Ok(()),
        true => Err(CompareError::Delayed {
            server: server.to_owned(),
            delay: status.delay,
            seconds: left.unsigned_abs(),
        }),
    }
}

fn remarks(server: &str, statuses: &[Status]) -> Vec<String> {
    let filters: Vec<&str> =
        statuses.iter().flat_map(|status| &status.filters).map(String::as_str).collect();
    match filters.is_empty() {
        true => Vec::new(),
        false => vec![format!(
            "{server} does not replicate everything ({}), so it may lack what the restored data has",
            filters.join("; ")
        )],
    }
}
