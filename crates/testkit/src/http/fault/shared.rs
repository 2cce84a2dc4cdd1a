//! State shared by the connections of one proxy.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::sync::atomic::AtomicBool;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::http::fault::rule::{Action, Rule};

/// Request that arrived at the proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// HTTP method.
    pub method: String,
    /// Path with the query.
    pub path: String,
    /// Action on the request; `None` if it was passed on.
    pub action: Option<Action>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) rules: Vec<Rule>,
    pub(super) seen: Vec<Seen>,
    /// Both ends of every open connection, to be closed at the end.
    pub(super) open: BTreeMap<u64, [TcpStream; 2]>,
    pub(super) released: bool,
    /// Number of made-up responses so far.
    pub(super) replies: u64,
    pub(super) held: usize,
}

#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    pub(super) bell: Condvar,
    pub(super) ended: AtomicBool,
    /// Whether to translate headers from Google's names.
    pub(super) google: bool,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
