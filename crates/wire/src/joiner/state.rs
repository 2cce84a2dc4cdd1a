//! State shared by the threads of a joiner's transfer.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::thread::JoinHandle;
use std::time::Instant;

use super::pending_peers::PendingPeers;
use crate::endpoint::{Endpoint, SharedState};
use crate::ledger::questions::PendingReplies;
use crate::ledger::receive::ReceiveLedger;
use crate::limits::MAX_CONNECTIONS;
use crate::link::wake::Wake;
use crate::protocol::buffer_pool::Pool;
use crate::security::proof::Transfer;
use crate::security::tls::JoinerTls;
use crate::transfer_end::TransferEnd;

/// The donor that is being served.
pub(super) struct Current {
    pub(super) transfer: Transfer,
    pub(super) offer: Vec<u8>,
    pub(super) peer: SocketAddr,
}

pub(super) struct LinkEntry {
    pub(super) id: u64,
    pub(super) connection: u16,
    pub(super) wake: Arc<Wake>,
    pub(super) socket: TcpStream,
}

pub(super) struct State {
    pub(super) transfer: Option<Current>,
    /// The version of the protocol, once a donor is admitted.
    pub(super) version: u16,
    pub(super) ledger: ReceiveLedger,
    pub(super) questions: PendingReplies,
    pub(super) answer: Option<Vec<u8>>,
    pub(super) confirm: bool,
    pub(super) over: Option<TransferEnd>,
    pub(super) links: Vec<LinkEntry>,
    pub(super) acceptor_wake: Arc<Wake>,
    pub(super) next_link: u64,
    /// Connections that were established at least once.
    pub(super) seen: [bool; MAX_CONNECTIONS as usize],
    /// Connections whose peer is not authenticated yet.
    pub(super) pending_peers: PendingPeers,
    /// Number of connection threads.
    pub(super) thread_count: usize,
    /// The credit at which connections were last woken to report it.
    pub(super) woken_at: (u64, u64),
    /// Since when there has been no connection.
    pub(super) alone_since: Instant,
    pub(super) last_cause: String,
    pub(super) peer_threads: Vec<JoinHandle<()>>,
}

impl State {
    pub(super) fn wake_links(&self) {
        self.links.iter().for_each(|link| link.wake.wake());
    }
}

impl SharedState for State {
    type Own = Own;

    fn over(&mut self) -> &mut Option<TransferEnd> {
        &mut self.over
    }

    fn wake_all(&self) {
        self.wake_links();
        self.pending_peers.wake();
        self.acceptor_wake.wake();
    }
}

/// A joiner, as its threads share it.
pub(super) type Shared = Endpoint<State>;

pub(super) struct Own {
    pub(super) pool: Pool,
    pub(super) acceptor_wake: Arc<Wake>,
    pub(super) rejections_logged: AtomicU32,
    pub(super) listener: TcpListener,
    pub(super) tls: Option<JoinerTls>,
}
