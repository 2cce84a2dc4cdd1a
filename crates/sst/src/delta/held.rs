//! Groups of which the joiner has told the donor that it has blocks: the copies, until the chunk arrives.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::group::{Group, HeldBlocks};

/// A group with the blocks that are equal in the old data.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HeldGroup {
    pub(crate) group: Group,
    pub(crate) have: HeldBlocks,
    /// As long as the group. Only the bytes of the blocks in `have` mean anything.
    pub(crate) data: Vec<u8>,
}

/// Groups in the order of the questions, in bounded memory.
#[derive(Debug)]
pub(crate) struct HeldGroups {
    state: Mutex<State>,
    changed: Condvar,
    limit: usize,
}

#[derive(Debug, Default)]
struct State {
    groups: VecDeque<HeldGroup>,
    bytes: usize,
    is_closed: bool,
}

impl HeldGroups {
    /// Holds at most `limit` bytes, and at least one group.
    pub(crate) fn new(limit: usize) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), limit }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is room for a group of `len` bytes; returns false if there will be none.
    pub(crate) fn await_room(&self, len: usize) -> bool {
        let mut state = self.lock();
        while !state.is_closed && state.bytes > 0 && state.bytes.saturating_add(len) > self.limit {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        !state.is_closed
    }

    pub(crate) fn push(&self, group: HeldGroup) {
        let mut state = self.lock();
        if !state.is_closed {
            state.bytes += group.data.len();
            state.groups.push_back(group);
        }
    }

    /// Takes the oldest group.
    pub(crate) fn pop(&self) -> Option<HeldGroup> {
        let mut state = self.lock();
        let group = state.groups.pop_front()?;
        state.bytes -= group.data.len();
        self.changed.notify_all();
        Some(group)
    }

    /// Drops all groups, and takes no more.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        state.bytes = 0;
        state.groups.clear();
        self.changed.notify_all();
    }
}
