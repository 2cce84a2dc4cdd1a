//! A relay between donor and joiner that cuts, resets, pauses or refuses connections.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use xb_wire::Announcement;

/// The fate of one connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fate {
    /// Number of bytes before it happens.
    pub(crate) after: usize,
    pub(crate) how: How,
    /// Whether bytes from joiner to donor are counted.
    pub(crate) back: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Reset,
    End,
    /// Flips a bit.
    Flip,
}

#[derive(Default)]
struct State {
    fates: VecDeque<Fate>,
    pairs: Vec<(TcpStream, TcpStream)>,
    still: bool,
    closed: bool,
    /// Bytes passed from donor to joiner.
    passed: usize,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// Runs until it is dropped.
pub(crate) struct Relay {
    shared: Arc<Shared>,
    address: SocketAddr,
    door: Option<JoinHandle<()>>,
}

impl Relay {
    /// Starts a relay in front of a joiner; returns the announcement that leads through the relay.
    pub(crate) fn before(joiner: &Announcement, fates: &[Fate]) -> (Self, Announcement) {
        let to = (joiner.address().host().to_owned(), joiner.address().port());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        shared.state.lock().unwrap().fates.extend(fates);
        let door = {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || {
                let mut pumps = Vec::new();
                loop {
                    let (donor, _) = listener.accept().unwrap();
                    let state = shared.state.lock().unwrap();
                    if state.closed {
                        break;
                    }
                    drop(state);
                    let Ok(joiner) = TcpStream::connect((to.0.as_str(), to.1)) else { continue };
                    pumps.extend(shared.pair(donor, joiner));
                }
                drop(listener);
                pumps.into_iter().for_each(|pump| pump.join().unwrap());
            })
        };
        let text = joiner
            .text()
            .replace(&joiner.address().to_string(), &format!("127.0.0.1:{}", address.port()));
        let announcement = Announcement::parse(&text, None).unwrap();
        (Self { shared, address, door: Some(door) }, announcement)
    }

    /// Pauses all connections silently.
    pub(crate) fn hold_still(&self) {
        self.shared.state.lock().unwrap().still = true;
    }

    /// Resumes all connections.
    pub(crate) fn go_on(&self) {
        self.shared.state.lock().unwrap().still = false;
        self.shared.changed.notify_all();
    }

    /// Waits until this many bytes have passed from donor to joiner.
    pub(crate) fn wait_for(&self, bytes: usize) {
        let mut state = self.shared.state.lock().unwrap();
        while state.passed < bytes {
            let (next, time) =
                self.shared.changed.wait_timeout(state, Duration::from_secs(60)).unwrap();
            assert!(!time.timed_out(), "only {} bytes came", next.passed);
            state = next;
        }
    }

    /// Resets every connection; accepts new ones.
    pub(crate) fn reset_all(&self) {
        for (donor, joiner) in self.shared.state.lock().unwrap().pairs.drain(..) {
            end(&donor, &joiner, true);
        }
    }

    /// Closes the port: refuses new connections, and resets the existing ones.
    pub(crate) fn close(&mut self) {
        self.shared.state.lock().unwrap().closed = true;
        self.go_on();
        let _ = TcpStream::connect(self.address);
        self.reset_all();
        if let Some(door) = self.door.take() {
            let _ = door.join();
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.close();
    }
}

fn end(donor: &TcpStream, joiner: &TcpStream, reset: bool) {
    for socket in [donor, joiner] {
        if reset {
            let _ = socket2::SockRef::from(socket).set_linger(Some(Duration::ZERO));
        }
        let _ = socket.shutdown(Shutdown::Both);
    }
}

impl Shared {
    fn pair(self: &Arc<Self>, donor: TcpStream, joiner: TcpStream) -> [JoinHandle<()>; 2] {
        let mut state = self.state.lock().unwrap();
        let fate = state.fates.pop_front();
        state.pairs.push((donor.try_clone().unwrap(), joiner.try_clone().unwrap()));
        drop(state);
        let back = (joiner.try_clone().unwrap(), donor.try_clone().unwrap());
        let (there, here) = (Arc::clone(self), Arc::clone(self));
        [
            std::thread::spawn(move || there.pump(donor, joiner, fate.filter(|f| !f.back), true)),
            std::thread::spawn(move || here.pump(back.0, back.1, fate.filter(|f| f.back), false)),
        ]
    }

    fn pump(&self, mut from: TcpStream, mut to: TcpStream, fate: Option<Fate>, counted: bool) {
        let mut buffer = vec![0; 64 << 10];
        let mut left = fate.map_or(usize::MAX, |fate| fate.after);
        while left > 0 {
            let most = buffer.len().min(left);
            let n = match from.read(&mut buffer[..most]) {
                Ok(0) | Err(_) => break,
                Ok(n) => n,
            };
            let mut state = self.state.lock().unwrap();
            while state.still && !state.closed {
                state = self.changed.wait(state).unwrap();
            }
            drop(state);
            left -= n;
            if let (0, Some(Fate { how: How::Flip, .. })) = (left, fate) {
                buffer[n - 1] ^= 0x10;
                left = usize::MAX;
            }
            if to.write_all(&buffer[..n]).is_err() {
                break;
            }
            if counted {
                self.state.lock().unwrap().passed += n;
                self.changed.notify_all();
            }
        }
        match fate {
            Some(fate) if left == 0 => end(&from, &to, fate.how == How::Reset),
            _ => {
                // The end of one direction is passed on as such.
                let _ = to.shutdown(Shutdown::Write);
                let _ = from.shutdown(Shutdown::Read);
            }
        }
    }
}
