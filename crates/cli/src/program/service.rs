//! Messages to the service manager, so that it does not mistake a long run for a hung one.

use std::time::Duration;

use sd_notify::NotifyState;

/// By how much each message extends the timeouts of the unit.
const EXTENSION: Duration = Duration::from_secs(120);
/// Time between messages.
const EVERY: Duration = Duration::from_secs(30);

/// Extends the start and stop timeouts of the unit that this process belongs to, as long as the
/// process lives. Does nothing if systemd did not start it, or does not listen.
///
/// Nothing else limits a run: what hangs ends by the limits of the run itself (`--timeout`,
/// `--retry-timeout`).
pub(crate) fn keep_alive() {
    if std::env::var_os("NOTIFY_SOCKET").is_none() {
        return;
    }
    let Ok(extension) = u32::try_from(EXTENSION.as_micros()) else { return };
    // Without the thread, the unit's own timeout applies: no reason to fail.
    let _ = std::thread::Builder::new().name("service".to_owned()).spawn(move || {
        while sd_notify::notify(&[NotifyState::ExtendTimeoutUsec(extension)]).is_ok() {
            std::thread::sleep(EVERY);
        }
    });
}

/// Notifications of a daemon to the service manager. Does nothing if systemd did not start this process, or does not
/// listen.
#[derive(Debug, Clone, Copy)]
pub enum Service<'a> {
    /// It has started.
    Ready,
    /// Its current work, in one line.
    Status(&'a str),
    /// It is not stuck.
    Alive,
    /// It ends.
    Stopping,
}

impl Service<'_> {
    /// Sends the message.
    pub fn tell(self) {
        let state = match self {
            Self::Ready => NotifyState::Ready,
            Self::Status(text) => NotifyState::Status(text),
            Self::Alive => NotifyState::Watchdog,
            Self::Stopping => NotifyState::Stopping,
        };
        // The unit's own limits apply to a manager that does not listen.
        let _ = sd_notify::notify(&[state]);
    }
}
