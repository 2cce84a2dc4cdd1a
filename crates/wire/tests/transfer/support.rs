//! Shared test support.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use bytes::Bytes;
use xb_wire::{
    Announcement, Donor, HostPort, Incoming, Joiner, Limits, Listener, Observer, Outgoing, Receipt,
    Security, TransferError, connect,
};

/// Longer than any test takes: only a hang reaches it.
pub(crate) const LONG: Duration = Duration::from_secs(120);

pub(crate) fn loopback() -> HostPort {
    "127.0.0.1:0".parse().unwrap()
}

/// Limits for tests: short times, small buffers.
pub(crate) fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.heartbeat = Duration::from_millis(200);
    limits.window = 1 << 20;
    limits.block = 64 << 10;
    limits
}

pub(crate) fn joiner(security: Security) -> Joiner {
    Joiner { security, limits: limits(), ..Joiner::default() }
}

pub(crate) fn donor(security: Security) -> Donor {
    Donor { security, limits: limits(), ..Donor::default() }
}

/// Listens; returns the announcement for the donor.
pub(crate) fn listen(joiner: Joiner) -> (Listener, Announcement) {
    let listener = Listener::bind(&loopback(), joiner).unwrap();
    let announcement = listener.announcement().clone();
    (listener, announcement)
}

/// Collects events.
#[derive(Clone, Default)]
pub(crate) struct ReceivedEvents(Arc<(Mutex<Vec<String>>, Condvar)>);

impl ReceivedEvents {
    pub(crate) fn observer(&self) -> Observer {
        let told = self.clone();
        Observer::new(move |event| {
            told.0.0.lock().unwrap().push(event.to_string());
            told.0.1.notify_all();
        })
    }

    pub(crate) fn all(&self) -> String {
        self.0.0.lock().unwrap().join("\n")
    }

    /// Waits until `times` events contain `word`.
    pub(crate) fn wait_for(&self, word: &str, times: usize) {
        let mut told = self.0.0.lock().unwrap();
        while told.iter().filter(|event| event.contains(word)).count() < times {
            let (next, time) = self.0.1.wait_timeout(told, LONG).unwrap();
            assert!(!time.timed_out(), "no `{word}` in {next:?}");
            told = next;
        }
    }
}

/// Pseudorandom bytes, without repetition at any distance.
pub(crate) fn noise(len: usize) -> Bytes {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        bytes.extend((state ^ (state >> 29)).to_le_bytes());
    }
    bytes.truncate(len);
    bytes.into()
}

/// Sends `stream` in pieces of about `piece` bytes, and finishes.
pub(crate) fn send(
    mut outgoing: Outgoing,
    stream: &Bytes,
    piece: usize,
) -> Result<(), TransferError> {
    let mut at = 0;
    while at < stream.len() {
        let end = stream.len().min(at + piece);
        outgoing.send(stream.slice(at..end))?;
        at = end;
    }
    outgoing.finish()
}

/// Receives to the end, compares and confirms.
pub(crate) fn receive(mut incoming: Incoming, stream: &Bytes) -> Result<Receipt, TransferError> {
    let mut at = 0;
    while let Some(block) = incoming.next_block()? {
        assert!(stream[at..].starts_with(&block), "other bytes at {at}");
        at += block.len();
    }
    assert_eq!(at, stream.len());
    incoming.confirm()
}

/// Connects both sides, with an offer and an answer.
pub(crate) fn pair(joiner: Joiner, donor: Donor) -> (Incoming, Outgoing) {
    let (listener, announcement) = listen(joiner);
    std::thread::scope(|scope| {
        let outgoing = scope.spawn(|| connect(&announcement, b"offer", donor));
        let offered = listener.accept(LONG).unwrap();
        assert_eq!(offered.offer(), b"offer");
        let incoming = offered.accept(b"answer").unwrap();
        let outgoing = outgoing.join().unwrap().unwrap();
        assert_eq!(outgoing.answer(), b"answer");
        (incoming, outgoing)
    })
}

/// Runs a complete transfer.
pub(crate) fn transfer(
    joiner: Joiner,
    donor: Donor,
    stream: &Bytes,
    piece: usize,
) -> (Result<Receipt, TransferError>, Result<(), TransferError>) {
    let (incoming, outgoing) = pair(joiner, donor);
    std::thread::scope(|scope| {
        let sent = scope.spawn(|| send(outgoing, stream, piece));
        let received = receive(incoming, stream);
        (received, sent.join().unwrap())
    })
}
