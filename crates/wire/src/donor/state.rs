//! State shared by the threads of a donor's transfer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use super::rate_limit::Rate;
use crate::announce::address::HostPort;
use crate::endpoint::{Endpoint, SharedState};
use crate::ledger::questions::PendingQuestions;
use crate::ledger::send::SendLedger;
use crate::link::wake::Wake;
use crate::security::proof::Transfer;
use crate::security::tls::DonorTls;
use crate::transfer_end::TransferEnd;

#[derive(Debug)]
pub(super) struct Worker {
    pub(super) wake: Arc<Wake>,
    /// The thread waits for a block.
    pub(super) idle: bool,
    /// The thread has not given up its connection permanently.
    pub(super) live: bool,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) ledger: SendLedger,
    pub(super) questions: PendingQuestions,
    /// Who waits for a reply has something else to do.
    pub(super) is_woken: bool,
    pub(super) rate: Option<Rate>,
    pub(super) over: Option<TransferEnd>,
    /// Whether the failure was reported to the observer.
    pub(super) failure_reported: bool,
    pub(super) answer: Option<Vec<u8>>,
    /// The version of the protocol, from the first welcome on.
    pub(super) version: u16,
    /// When the first welcome from the joiner arrived.
    pub(super) first_welcome: Option<Instant>,
    /// Maximum number of connections that the joiner accepts.
    pub(super) most_connections: u8,
    /// Totals, once the stream has ended.
    pub(super) end: Option<(u64, u64)>,
    pub(super) workers: Vec<Worker>,
    pub(super) next_link: u64,
    pub(super) up: usize,
    /// Lost connections whose blocks are in doubt, and until when.
    pub(super) in_doubt: Vec<(u64, Instant)>,
    pub(super) last_progress: Instant,
    /// When the joiner last acknowledged, granted credit or replied.
    pub(super) joiner_worked: Instant,
    pub(super) refusing_since: Option<Instant>,
    pub(super) last_cause: String,
    pub(super) no_work: Option<Instant>,
    pub(super) no_credit: Option<Instant>,
}

impl SharedState for State {
    type Own = Own;

    fn over(&mut self) -> &mut Option<TransferEnd> {
        &mut self.over
    }

    fn wake_all(&self) {
        self.workers.iter().for_each(|worker| worker.wake.wake());
    }
}

/// A donor, as its threads share it.
pub(super) type Shared = Endpoint<State>;

pub(super) struct Own {
    pub(super) transfer: Transfer,
    pub(super) offer: Vec<u8>,
    pub(super) begun: Instant,
    pub(super) address: HostPort,
    pub(super) targets: Vec<SocketAddr>,
    pub(super) tls: Option<DonorTls>,
}
