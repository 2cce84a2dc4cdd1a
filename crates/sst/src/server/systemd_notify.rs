//! Notifies the service manager, so that it does not mistake a long transfer for a hung server.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

/// By how much each message extends the start timeout.
const EXTENSION: Duration = Duration::from_secs(120);
/// Time between messages.
const EVERY: Duration = Duration::from_secs(10);

/// Sends to the service manager's socket, if there is one.
#[derive(Debug)]
pub(crate) struct Notifier {
    socket: Option<(UnixDatagram, SocketAddr)>,
    next: Option<Instant>,
}

impl Notifier {
    /// Creates a notifier; `name` is `$NOTIFY_SOCKET`.
    pub(crate) fn new(name: Option<&OsStr>) -> Self {
        let address = name.map(OsStr::as_bytes).and_then(|name| match name {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name).ok(),
            [] => None,
            path => SocketAddr::from_pathname(OsStr::from_bytes(path)).ok(),
        });
        let socket = address.and_then(|address| Some((UnixDatagram::unbound().ok()?, address)));
        Self { socket, next: None }
    }

    /// Reports progress, at most once per interval.
    pub(crate) fn alive(&mut self, status: &str) {
        let now = Instant::now();
        if self.next.is_some_and(|next| now < next) {
            return;
        }
        self.next = Some(now + EVERY);
        if let Some((socket, address)) = &self.socket {
            let text = format!("EXTEND_TIMEOUT_USEC={}\nSTATUS={status}", EXTENSION.as_micros());
            // The manager may ignore this process (NotifyAccess); nothing is lost then.
            let _ = socket.send_to_addr(text.as_bytes(), address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_now_and_then() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let mut notifier = Notifier::new(Some(path.as_os_str()));
        notifier.alive("half of it");
        notifier.alive("a moment later");
        let mut buffer = [0; 200];
        let len = manager.recv(&mut buffer).unwrap();
        let text = std::str::from_utf8(&buffer[..len]).unwrap();
        assert_eq!(text, "EXTEND_TIMEOUT_USEC=120000000\nSTATUS=half of it");
        manager.set_nonblocking(true).unwrap();
        assert!(manager.recv(&mut buffer).is_err());
        Notifier::new(None).alive("nobody listens");
    }
}
