//! Proxy in front of an HTTP server that fails on request, in the same way each time.
//!
//! Each [`Rule`] counts the requests that match it and acts on some of them. The first rule that
//! acts on a request decides; all other requests pass unchanged.
//!
//! ```no_run
//! use xb_testkit::fault::{Action, Proxy, Rule};
//!
//! let bucket = xb_testkit::s3::bucket();
//! // The second put of a data object gets "slow down" three times in a row.
//! let rule = Rule::new("PUT", "/000000", Action::answer(503)).skip(1).times(3);
//! let proxy = Proxy::start(bucket.address(), vec![rule]);
//! let endpoint = proxy.endpoint();
//! # drop(endpoint);
//! ```

mod edit;
mod google;
mod refusal;
mod rule;
mod serve;
mod shared;
mod slow;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

pub use edit::Edit;
pub use rule::{Action, Rule};
pub use shared::Seen;

use crate::http::fault::serve::serve;
use crate::http::fault::shared::Shared;

/// Time without a byte after which a server counts as dead.
const UPSTREAM_LIMIT: Duration = Duration::from_secs(120);

/// Running proxy; dropping it ends all its connections.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Proxy {
    /// Starts a proxy on a free loopback port in front of `upstream` (`HOST:PORT`).
    ///
    /// # Panics
    /// No port is available.
    #[must_use]
    pub fn start(upstream: &str, rules: Vec<Rule>) -> Self {
        Self::run("127.0.0.1:0", upstream, rules, false)
    }

    /// Starts a proxy at `address`, for a server that is down for a while.
    ///
    /// # Panics
    /// The port is in use.
    #[must_use]
    pub fn start_at(address: &str, upstream: &str, rules: Vec<Rule>) -> Self {
        Self::run(address, upstream, rules, false)
    }

    /// Starts a substitute for Google Cloud Storage: its XML interface is that of S3 with different
    /// header names. The bucket behind it must accept anonymous requests
    /// ([`crate::stores::s3::open_bucket`]). It tests the requests on the wire, not Google's authorization.
    ///
    /// # Panics
    /// No port is available.
    #[must_use]
    pub fn google(upstream: &str, rules: Vec<Rule>) -> Self {
        Self::run("127.0.0.1:0", upstream, rules, true)
    }

    fn run(address: &str, upstream: &str, rules: Vec<Rule>, google: bool) -> Self {
        let listener = TcpListener::bind(address).expect("a free port");
        let address = listener.local_addr().expect("address");
        let shared = Arc::new(Shared { google, ..Shared::default() });
        shared.lock().rules = rules;
        let (ours, upstream) = (Arc::clone(&shared), upstream.to_owned());
        thread::spawn(move || {
            let mut connections = 0;
            for client in listener.incoming() {
                if ours.ended.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(client) = client else { continue };
                let (shared, upstream) = (Arc::clone(&ours), upstream.clone());
                connections += 1;
                thread::spawn(move || {
                    // Broken connections are expected in this proxy.
                    let _ = connect(&shared, connections, client, &upstream);
                });
            }
        });
        Self { address, shared }
    }

    /// Returns `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns all requests so far, in order of arrival.
    #[must_use]
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.lock().seen.clone()
    }

    /// Counts the requests of this method (empty: any) whose path contains `part`.
    #[must_use]
    pub fn count(&self, method: &str, part: &str) -> usize {
        let wanted = Rule::new(method, part, Action::Stall);
        self.shared.lock().seen.iter().filter(|s| wanted.fits(&s.method, &s.path)).count()
    }

    /// Replaces the rules; the counts restart at 0.
    pub fn set_rules(&self, rules: Vec<Rule>) {
        self.shared.lock().rules = rules;
    }

    /// Counts the requests that were held so far.
    #[must_use]
    pub fn held(&self) -> usize {
        self.shared.lock().held
    }

    /// Ends the stalled connections, and from now on also those that would stall. Passes on the
    /// requests that were held; from now on, none is.
    pub fn release(&self) {
        self.shared.lock().released = true;
        self.shared.bell.notify_all();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.release();
        for stream in self.shared.lock().open.values().flatten() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        // Wakes the accepting thread so that it sees the end.
        let _ = TcpStream::connect(self.address);
    }
}

/// Forwards a client's connection and closes both ends when it is over.
fn connect(shared: &Shared, id: u64, client: TcpStream, upstream: &str) -> io::Result<()> {
    let server = TcpStream::connect(upstream)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    server.set_read_timeout(Some(UPSTREAM_LIMIT))?;
    shared.lock().open.insert(id, [client.try_clone()?, server.try_clone()?]);
    let served = serve(shared, &client, &server);
    for end in shared.lock().open.remove(&id).iter().flatten() {
        let _ = end.shutdown(Shutdown::Both);
    }
    served
}
