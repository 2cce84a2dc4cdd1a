//! `binlog receive`: archives a server's binary log until a signal ends it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use xb_backup::{ArchiveSettings, CancelToken, ReceiveRequest, Session, source_servers};
use xb_cli::{Failure, FailureContext as _, Secret, Service, check_writable, host_name};
use xb_compressor::{Algorithm, AlgorithmError, Compression};

use crate::args::RunOptions;
use crate::args::binlog::{ArchiveOptions, ReceiveArgs};
use crate::commands::binlog::watched::ReceiverStatus;
use crate::commands::context::{Context, resources};
use crate::commands::state_dir::state_dir;
use crate::commands::unattended::run::commands;
use crate::commands::whole_files::check_collected;
use crate::location::root_place;
use crate::report;

/// Retries of a request before the receiver says that the store is away. It never gives up.
const RETRIES: u32 = 3;
/// The longest pause between them, in milliseconds.
const MAX_BACKOFF: u64 = 5000;
/// How long the server may be away before another one is taken, if there are several.
const ABSENCE_LIMIT: Duration = Duration::from_secs(30);
/// Seconds between two heartbeats.
const HEARTBEAT: u32 = 60;

impl Context {
    pub(super) fn receive_binlog(&self, args: &mut ReceiveArgs) -> Result<(), Failure> {
        let run = &mut args.common.run;
        // The receiver itself tries again, and says so.
        if run.retry_timeout.is_none() {
            run.max_retries.get_or_insert(RETRIES);
        }
        run.max_backoff = run.max_backoff.min(MAX_BACKOFF);
        let args = &*args;
        let run = &args.common.run;
        if let Some(path) = args.metrics_file.as_deref() {
            check_metrics(path)?;
        }
        let place = args.place.as_deref().filter(|place| !place.is_empty());
        let repository = args.repository.as_deref().or(place).or(args.common.store.root.as_deref());
        let archive = self.archive_settings(&args.archive, run, args.rpo)?;
        let server = archive.server.clone();
        let source = &args.source;
        let servers = source_servers(source.source.as_deref(), args.login.login_file.as_deref());
        let servers = servers.map_err(report::failure)?;
        let each = Duration::from_secs(1) / args.ack_rate.max(1);
        let (patience, acknowledge) = (ABSENCE_LIMIT, args.ack.then_some(each));
        let request = ReceiveRequest { servers, patience, archive, acknowledge };
        let root = root_place(args.place.as_deref(), &args.common)?;
        let watched = ReceiverStatus::new(
            &self.log,
            repository.unwrap_or("repository"),
            &server,
            args.metrics_file.clone(),
            commands("--on-gap", &args.on_gap)?,
        );
        let watched = Arc::new(watched);
        let (told, shown) = (Arc::clone(&watched), Arc::clone(&watched));
        let url = args.heartbeat_url.as_ref();
        let resources = resources(run);
        let receive = |observer, cancel: CancelToken| async move {
            let session = Session { root, resources, observer, cancel };
            let tell = move |notice| told.tell(notice);
            tokio::select! {
                done = xb_backup::receive(&session, &request, tell) => done,
                // On the same task: a receiver that blocks it is not alive.
                () = tick(&shown, url) => Ok(()),
            }
        };
        let outcome = self.with_progress("receive", run, None, receive);
        Service::Stopping.tell();
        watched.end();
        outcome.map(drop)
    }

    /// How a log is archived. A byte that is not stored waits for `rpo` at most.
    pub(super) fn archive_settings(
        &self,
        options: &ArchiveOptions,
        run: &RunOptions,
        rpo: Duration,
    ) -> Result<ArchiveSettings, Failure> {
        Ok(ArchiveSettings {
            server: server_name(options.server.as_deref())?,
            key_slots: options.keys.key_slots(&options.recipients, &self.log)?,
            compress: codec(&options.compress)?,
            rpo,
            state: made_state_dir(run)?,
            accept_no_crc: options.accept_no_crc,
        })
    }
}

/// The name of a server, by default that of this host.
fn server_name(named: Option<&str>) -> Result<String, Failure> {
    named.map(str::to_owned).or_else(host_name).ok_or_else(|| {
        Failure::usage("this host has no name").hint("name the server with --server")
    })
}

/// The directory in which a receiver records its last segment, which is made if it is not there.
fn made_state_dir(run: &RunOptions) -> Result<Option<PathBuf>, Failure> {
    let dir = state_dir(run);
    if let Some(dir) = &dir {
        std::fs::create_dir_all(dir)
            .stage("settings")
            .hint(&format!("set --state-dir to another directory than {}", dir.display()))?;
    }
    Ok(dir)
}

/// Once a second: metrics, status, signs of life and heartbeats.
async fn tick(watched: &ReceiverStatus, url: Option<&Secret>) {
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut seconds = 0_u32;
    loop {
        ticks.tick().await;
        Service::Alive.tell();
        watched.publish();
        seconds = (seconds + 1) % HEARTBEAT;
        if let Some(url) = url
            && seconds == 1
            && watched.is_well()
            && let Err(error) = crate::job::send_heartbeat(url.expose(), &watched.document()).await
        {
            watched.warn(&format!("heartbeat not sent: {error}"));
        }
    }
}

fn check_metrics(path: &Path) -> Result<(), Failure> {
    check_collected("--binlog-metrics-file", path)?;
    check_writable(path)
        .stage("settings")
        .hint(&format!("make the directory of {} writable for this user", path.display()))
}

/// A segment is small, so `auto` has nothing to learn from.
fn codec(text: &str) -> Result<Algorithm, Failure> {
    let codec: Compression = text
        .parse()
        .map_err(|error: AlgorithmError| Failure::usage(format!("--compress: {error}")))?;
    match codec {
        Compression::Fixed(codec) => Ok(codec),
        Compression::Auto => codec_of("zstd"),
    }
}

fn codec_of(name: &str) -> Result<Algorithm, Failure> {
    name.parse().map_err(|error: AlgorithmError| Failure::new(error.to_string()))
}
