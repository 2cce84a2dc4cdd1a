//! A replay, from the first log to the proof of its end.

use std::time::{Duration, Instant};

use xb_mysql::{Client, Row};
use xb_server::{Login, Server, Setup};

use crate::applier::Applier;
use crate::dialect::Dialect;
use crate::error::ReplayError;
use crate::place::{ReplayDir, failed};
use crate::relay_files::RelayFiles;
use crate::request::{Piece, Progress, ReplayReport, ReplayRequest, Watch};
use crate::settings::options;
use crate::tables_in_use::tables_in_use;

/// Pause between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(50);

/// Replays logs onto a prepared data directory. Blocks until the private server has stopped; call it
/// from a thread of its own in an asynchronous program.
///
/// First all pieces become relay logs, in the directory `#sql-xb-replay` of the data directory, which
/// needs room for them. Nothing else is changed until the last piece has arrived and the whole plan was
/// found to hold. Then the server applies them. On success, the data has exactly the planned
/// transactions, its `gtid_slave_pos` or `gtid_executed` names them, it is not a replica, and it is durable; call [`remove_note`] once its
/// end is noted.
///
/// [`remove_note`]: crate::remove_note
///
/// # Errors
/// All of [`ReplayError`]. Unless [`ReplayError::is_data_untouched`], the data is of no more use.
pub fn replay<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
    request: &ReplayRequest,
    pieces: impl IntoIterator<Item = Result<Piece, E>>,
    watch: &mut Watch<'_>,
) -> Result<ReplayReport, ReplayError> {
    let begin = Instant::now();
    // A server that opens them repairs them somehow, and then nothing shows it any more.
    let in_use = tables_in_use(&request.data).map_err(failed(&request.data))?;
    let place = ReplayDir::make(&request.data)?;
    let files = match RelayFiles::write(place.path(), request, pieces, watch) {
        Ok(files) => files,
        Err(error) => {
            place.abandon();
            return Err(error);
        }
    };
    let dialect = Dialect::of(&files.end.gtids);
    // MySQL ends the origin's replica first.
    let shown = match dialect.is_mysql() {
        true => Ok(()),
        false => RelayFiles::show(place.path()).map_err(failed(place.path())),
    };
    let zone = request.system_zone.as_ref();
    let ready = shown.and_then(|()| place.zone_file(zone));
    let time_zone = match ready.and_then(|file| place.begin().map(|()| file)) {
        Ok(file) => file,
        Err(error) => {
            place.abandon();
            return Err(error);
        }
    };
    (watch.progress)(Progress::Starting);
    let started = Server::start(Setup {
        programs: request.programs.clone(),
        data: request.data.clone(),
        scratch: place.path().to_owned(),
        login: Login::OwnAccount,
        options: options(request, place.path(), dialect, &files.end),
        writable: [std::slice::from_ref(&request.data), &request.writable[..]].concat(),
        time_zone,
    });
    let mut server = match started {
        Ok(server) => server,
        Err(error) => {
            place.abandon();
            return Err(ReplayError::NotStarted(error));
        }
    };
    let unconfined = server.unconfined();
    let mut client = connect(&mut server, request.patience, watch)?;
    let mut applier = Applier {
        server: &mut server,
        client: &mut client,
        dialect,
        files: &files,
        dir: place.path(),
        patience: request.patience,
    };
    applier.check_local_time(zone)?;
    applier.set_gtids(&request.plan.start)?;
    applier.fill(&request.plan.leave_out)?;
    let repairs = applier.repair(&in_use, watch)?;
    let missing_engines = applier.missing_engines(&request.engines)?;
    let disabled = applier.disabled_events()?;
    let last_number = applier.last_number()?;
    let applying = Instant::now();
    let applied = applier.apply(watch)?;
    let applied_in = applying.elapsed();
    let disabled_events = applier.disabled_events()?.difference(&disabled).cloned().collect();
    let past_events = applier.disable_past_events()?;
    let cascaded_history = applier.cascaded_history(watch)?;
    let numbered_history = applier.numbered_history(&last_number, watch)?;
    let prepared_xa = applier.client.rows(dialect.prepared);
    let prepared_xa =
        prepared_xa.map_err(|error| applier.broken("listing XA transactions", error))?;
    (watch.progress)(Progress::Stopping);
    applier.flush(watch)?;
    server
        .drop_account(&mut client)
        .map_err(|error| ReplayError::Statement { doing: "removing our account", error })?;
    drop(client);
    server.stop(|| (watch.is_cancelled)())?;
    let end = files.end;
    let mut report = ReplayReport {
        gtids: end.gtids,
        position: end.reached.unwrap_or_else(|| request.position.clone()),
        transactions: end.transactions,
        left_out: end.left_out,
        later: end.later,
        prepared_xa: prepared_xa.iter().map(name_of_xa).collect(),
        disabled_events,
        past_events,
        cascaded_history,
        numbered_history,
        retried: applied.retried,
        ahead_xa: applied.ahead_xa,
        filters: applied.filters,
        unchanged: applied.unchanged,
        missing_engines,
        is_partial: applied.is_partial,
        in_use,
        repairs,
        unconfined,
        applied_in,
        seconds: begin.elapsed(),
    };
    place.end(&(watch.note)(&report))?;
    report.seconds = begin.elapsed();
    Ok(report)
}

/// The last column, which has the whole name.
fn name_of_xa(row: &Row) -> String {
    let name = row.iter().last().flatten().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

/// Waits until the server accepts a connection.
fn connect(
    server: &mut Server,
    patience: Duration,
    watch: &Watch<'_>,
) -> Result<Client, ReplayError> {
    let begin = Instant::now();
    loop {
        if let Some(client) = server.poll()? {
            return Ok(client);
        }
        if (watch.is_cancelled)() {
            return Err(ReplayError::Abandoned);
        }
        if begin.elapsed() > patience {
            let at = format!("its start: {}", server.cause());
            return Err(ReplayError::Stuck { seconds: patience.as_secs(), at });
        }
        std::thread::sleep(PAUSE);
    }
}
