//! Strangers that flood a joiner's port.

use std::collections::VecDeque;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// More connections than a joiner keeps pending.
const OPEN: usize = 40;
/// Pause after a refused connection, so that a closed port costs no processor time.
const PAUSE: Duration = Duration::from_millis(2);

/// Connects again and again with a donor's valid first line, until dropped: also by a test that
/// panics.
#[derive(Debug)]
pub struct Flood {
    is_over: Arc<AtomicBool>,
    connected: Arc<AtomicU64>,
    strangers: Vec<JoinHandle<()>>,
}

impl Flood {
    /// Starts the flood, with this number of strangers.
    #[must_use]
    pub fn start(to: SocketAddr, strangers: usize) -> Self {
        let (is_over, connected) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let stranger = |_| {
            let (is_over, connected) = (Arc::clone(&is_over), Arc::clone(&connected));
            std::thread::spawn(move || flood(to, &is_over, &connected))
        };
        let strangers = (0..strangers).map(stranger).collect();
        Self { is_over, connected, strangers }
    }

    /// Number of connections so far.
    #[must_use]
    pub fn connected(&self) -> u64 {
        self.connected.load(Ordering::Relaxed)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for stranger in self.strangers.drain(..) {
            let _ = stranger.join();
        }
    }
}

fn flood(to: SocketAddr, is_over: &AtomicBool, connected: &AtomicU64) {
    let line = format!("XBRS-WIRE 1-1 tls {}\n", "00".repeat(16));
    let mut open = VecDeque::new();
    while !is_over.load(Ordering::Relaxed) {
        match TcpStream::connect_timeout(&to, Duration::from_secs(1)) {
            Ok(mut socket) => {
                let _ = socket.write_all(line.as_bytes());
                connected.fetch_add(1, Ordering::Relaxed);
                open.push_back(socket);
                if open.len() > OPEN {
                    open.pop_front();
                }
            }
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}
