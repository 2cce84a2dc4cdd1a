//! Status of a receiver: messages, metrics, and the status of its unit.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::job::{ReceiverState, receiver_metrics};
use jiff::Timestamp;
use serde_json::json;
use xb_backup::Notice;
use xb_cli::{Log, Readers, Service, write_whole};
use xb_repo::archive::stream::StreamOrigin;

use crate::commands::binlog::hooks::GapHooks;
use crate::commands::context::TOOL;

/// Seconds between two writes of the metrics, and two of the status.
const PAUSE: i64 = 5;
/// Seconds between two reports of damage that lasts.
const REPEAT: i64 = 600;

/// A receiver as others see it.
#[derive(Debug)]
pub(super) struct ReceiverStatus {
    log: Log,
    metrics_file: Option<PathBuf>,
    /// Programs that run when a gap or a branch begins, and at a barrier.
    on_gap: GapHooks,
    seen: Mutex<StatusState>,
}

#[derive(Debug, Default)]
struct StatusState {
    state: ReceiverState,
    position: Option<String>,
    /// Reason why nothing is received or stored.
    trouble: Option<String>,
    /// What is damaged, and when that was reported.
    damaged: Option<(String, Timestamp)>,
    /// Since when every commit waits for the archive, or that this is not known; `None` if it was not asked to wait.
    acknowledged: Option<Option<Timestamp>>,
    /// How the clocks of the server and of this host differ, as it was reported.
    clocks: Option<String>,
    /// Why a replay of the log may give other data than the server has, as far as it was reported.
    doubts: BTreeSet<String>,
    /// The state has changed since it was published.
    is_new: bool,
    published: Option<Timestamp>,
    is_ready: bool,
    /// The metrics could not be written the last time.
    unwritten: bool,
}

/// Returns the end of the stream before a new one of another server, as `FILE:POSITION`.
fn takes_over_at(begins: &StreamOrigin) -> Option<String> {
    match begins {
        StreamOrigin::Continues { at, .. } => at.as_ref().map(ToString::to_string),
        _ => None,
    }
}

impl ReceiverStatus {
    pub(super) fn new(
        log: &Log,
        repository: &str,
        server: &str,
        metrics_file: Option<PathBuf>,
        on_gap: Vec<Vec<OsString>>,
    ) -> Self {
        let state = ReceiverState {
            repository: repository.to_owned(),
            server: server.to_owned(),
            tool: TOOL.to_owned(),
            storing: true,
            ..ReceiverState::default()
        };
        let seen = StatusState { state, is_new: true, ..StatusState::default() };
        let on_gap = GapHooks::new(log.clone(), on_gap);
        Self { log: log.clone(), metrics_file, on_gap, seen: Mutex::new(seen) }
    }

    fn seen(&self) -> MutexGuard<'_, StatusState> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn warn(&self, text: &str) {
        self.log.warn(text);
    }

    pub(super) fn is_well(&self) -> bool {
        self.seen().state.is_well()
    }

    /// The state as JSON.
    pub(super) fn document(&self) -> String {
        let seen = self.seen();
        let state = &seen.state;
        json!({
            "repository": state.repository, "server": state.server, "tool": state.tool,
            "position": seen.position, "stored_until": state.stored_until, "gaps": state.gaps,
        })
        .to_string()
    }

    /// Takes what the receiver tells.
    pub(super) fn tell(&self, notice: Notice) {
        let mut seen = self.seen();
        seen.is_new = true;
        let server = seen.state.server.clone();
        match notice {
            Notice::Begins { stream, at, begins } => {
                seen.state.receiving = true;
                seen.trouble = None;
                let (kind, reason) = match &begins {
                    StreamOrigin::First => ("first", None),
                    StreamOrigin::Continues { .. } => ("continues", None),
                    StreamOrigin::Gap { reason, .. } => {
                        seen.state.gaps += 1;
                        ("gap", Some(reason))
                    }
                    StreamOrigin::Branch { reason, .. } => {
                        seen.state.branches += 1;
                        ("branch", Some(reason))
                    }
                };
                match (kind, reason) {
                    ("gap", Some(reason)) => self.log.warn(format!(
                        "GAP in the archive of {server} before {at}: {reason}; take a backup now: no older one can be restored beyond the gap"
                    )),
                    (_, Some(reason)) => self.log.warn(format!(
                        "the history of {server} BRANCHES at {at}: {reason}; take a backup now: older ones belong to the other branch"
                    )),
                    _ => match takes_over_at(&begins) {
                        Some(end) => self.log.warn(format!(
                            "the log of {server} now comes from another server, which has the same transactions: from its {at} on, after {end} of the previous one"
                        )),
                        None => self.log.info(format!("receiving the log of {server} from {at}")),
                    },
                }
                let event = json!({
                    "what": kind, "server": server, "stream": stream, "position": at, "reason": reason,
                    "takes_over_at": takes_over_at(&begins),
                });
                self.event(&event);
                if reason.is_some() {
                    self.run_hooks(&seen.state.repository, event);
                }
            }
            Notice::Stored { position, until } => {
                seen.state.segments += 1;
                seen.state.storing = true;
                seen.state.stored_until = seen.state.stored_until.max(until);
                self.log.verbose(format!("stored up to {position}"));
                self.event(&json!({
                    "what": "stored", "server": server, "position": position, "until": until,
                }));
                seen.position = Some(position);
            }
            Notice::Barrier { stream, at, what } => {
                self.log.warn(format!(
                    "BARRIER in the log of {server} at {at}: {what}; take a backup now: no older one can be restored beyond it"
                ));
                let event = json!({
                    "what": "barrier", "server": server, "stream": stream, "position": at, "reason": what,
                });
                self.event(&event);
                self.run_hooks(&seen.state.repository, event);
            }
            Notice::Covered(at) => seen.state.stored_until = seen.state.stored_until.max(Some(at)),
            Notice::Uncovered(why) => {
                match &why {
                    Some(why) => self.log.warn(format!(
                        "the archive of {server} is complete only up to its last transaction: {why}"
                    )),
                    None => self.log.info(format!(
                        "the archive of {server} is complete up to the present again"
                    )),
                }
                self.event(&json!({ "what": "uncovered", "server": server, "reason": why }));
            }
            Notice::Acknowledged(interval) => {
                let since = interval.map(|[since, _]| since);
                let known = seen.acknowledged.replace(since);
                if known != Some(since) {
                    self.acknowledged(&server, known.flatten(), interval);
                }
            }
            Notice::NotWaiting(why) => {
                let known = seen.acknowledged.replace(None);
                if known != Some(None) {
                    self.log
                        .warn(format!("commits of {server} do not wait for the archive: {why}"));
                    self.event(&json!({ "what": "acknowledged", "server": server, "since": null }));
                }
            }
            Notice::ClocksDiffer(what) => {
                let text = format!("the log of {server}: {what}; synchronise both clocks");
                if seen.clocks.replace(what.clone()).as_ref() != Some(&what) {
                    self.log.warn(text);
                    self.event(&json!({ "what": "clocks", "server": server, "reason": what }));
                }
            }
            Notice::Doubtful(what) if seen.doubts.insert(what.clone()) => {
                self.log.warn(format!(
                        "a replay of the log of {server} may produce data that differs from the server's: {what}; `check --binlog` shows what to do"
                    ));
                self.event(&json!({ "what": "doubtful", "server": server, "reason": what }));
            }
            Notice::Changed(what) => {
                self.log.info(format!(
                    "the settings of {server} were changed, and are stored from here on: {what}"
                ));
                self.event(&json!({ "what": "changed", "server": server, "reason": what }));
            }
            Notice::Alive => seen.state.alive = Some(Timestamp::now()),
            Notice::StoreAway(why) => {
                let text = format!(
                    "the store does not accept the log of {server}; the server keeps what is not stored yet: {why}"
                );
                self.trouble(&mut seen, "store away", text);
                seen.state.storing = false;
            }
            Notice::StoreBack => {
                seen.state.storing = true;
                seen.trouble = None;
                self.log.info("the store is back");
                self.event(&json!({ "what": "store back", "server": server }));
            }
            Notice::Disconnected(why) => {
                let text = format!("the log of {server} cannot be received; trying again: {why}");
                self.trouble(&mut seen, "disconnected", text);
                seen.state.receiving = false;
            }
            Notice::Behind(what) => {
                let text = format!(
                    "the log of {server} is not received from another server yet: {what}; it may still get them. If it was promoted without them, they are lost there, and the archive branches with its next commit"
                );
                self.trouble(&mut seen, "behind", text);
                seen.state.receiving = false;
            }
            Notice::Damaged(what) => {
                seen.state.receiving = false;
                let now = Timestamp::now();
                let is_recent = seen.damaged.as_ref().is_some_and(|(known, at)| {
                    *known == what && (0..REPEAT).contains(&(now.as_second() - at.as_second()))
                });
                let text = format!(
                    "the log of {server} is damaged, and nothing more of it is archived until the server begins another one: {what}; run FLUSH BINARY LOGS on the server now, and take a backup"
                );
                if is_recent {
                    self.log.verbose(&text);
                } else {
                    self.log.warn(&text);
                    self.event(&json!({ "what": "damaged", "server": server, "reason": what }));
                    seen.damaged = Some((what, now));
                }
                seen.trouble = Some(text);
            }
            Notice::NotRolledUp(what) => self.log.verbose(format!(
                "a roll-up was not stored, so that reading the archive takes more requests: {what}"
            )),
            Notice::Lost(what) => {
                seen.state.lost += 1;
                self.log.warn(format!(
                    "the archive of {server} lacks a segment that this host stored: {what}; it is received again if the server still has it"
                ));
                self.event(&json!({ "what": "lost", "server": server, "reason": what }));
            }
            Notice::Hole(what) => {
                self.log.warn(format!("the archive of {server} has a hole: {what}"))
            }
            _ => {}
        }
    }

    /// Reports that an interval begins in which every commit waits for the archive, or that one has ended.
    fn acknowledged(
        &self,
        server: &str,
        known: Option<Timestamp>,
        interval: Option<[Timestamp; 2]>,
    ) {
        match (known, interval) {
            (None, Some([since, _])) => {
                self.log.info(format!("every commit of {server} waits for the archive since {since}"));
            }
            (Some(_), Some([since, _])) => self.log.warn(format!(
                "not every commit of {server} waited for the archive, or this is unknown: the server gave up waiting, another replica connected, or the server was restarted; since {since}, every commit waits again"
            )),
            (_, None) => self.log.warn(format!(
                "it is unknown whether every commit of {server} waits for the archive: MariaDB shows this only if the archive is its only semi-synchronous replica, with sync_binlog=1 and innodb_flush_log_at_trx_commit=1, until it gives up after its timeout"
            )),
        }
        let since = interval.map(|[since, _]| since);
        self.event(&json!({ "what": "acknowledged", "server": server, "since": since }));
    }

    /// Reports trouble once, not with each try.
    fn trouble(&self, seen: &mut StatusState, what: &str, text: String) {
        if seen.trouble.as_ref() == Some(&text) {
            return self.log.verbose(text);
        }
        self.log.warn(&text);
        self.event(&json!({ "what": what, "server": seen.state.server, "reason": text }));
        seen.trouble = Some(text);
    }

    /// Runs the hooks.
    fn run_hooks(&self, repository: &str, mut event: serde_json::Value) {
        event["repository"] = json!(repository);
        self.on_gap.run(event);
    }

    fn event(&self, fields: &serde_json::Value) {
        self.log.event("binlog", fields);
    }

    /// Publishes the last state of a receiver that ends.
    pub(super) fn end(&self) {
        let mut seen = self.seen();
        seen.state.receiving = false;
        (seen.is_new, seen.published) = (true, None);
        drop(seen);
        self.publish();
    }

    /// Writes metrics and status, if there is anything new.
    pub(super) fn publish(&self) {
        let mut seen = self.seen();
        let now = Timestamp::now();
        let is_recent = seen
            .published
            .is_some_and(|at| (0..PAUSE).contains(&(now.as_second() - at.as_second())));
        if !seen.is_new || is_recent {
            return;
        }
        seen.published = Some(now);
        seen.is_new = false;
        let is_begun = seen.state.receiving || seen.trouble.is_some();
        if is_begun && !seen.is_ready {
            seen.is_ready = true;
            Service::Ready.tell();
        }
        let status = match (&seen.trouble, &seen.position) {
            (Some(trouble), _) => trouble.clone(),
            (None, Some(position)) => format!("stored up to {position}"),
            (None, None) => "nothing new to store yet".to_owned(),
        };
        Service::Status(&status).tell();
        let Some(path) = &self.metrics_file else { return };
        let written = write_whole(path, &receiver_metrics(&seen.state), Readers::Everyone);
        let failed = written.is_err();
        if let (Err(error), false) = (written, seen.unwritten) {
            self.log.warn(format!("cannot write {}: {error}", path.display()));
        }
        seen.unwritten = failed;
    }
}
