//! Values that the server passes to its donor in private: the login for the backup, and the secret
//! that the joiner has put before its address.
//!
//! MariaDB before 11.6 sets two environment variables. MariaDB since 11.6 (MDEV-31809) and Percona
//! XtraDB Cluster 8 write lines `sst_user=…`, `sst_password=…`, `sst_remote_user=…` and
//! `sst_remote_password=…` to standard input and close it.

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal as _;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::error_log::ErrorLog;
use super::login::Login;
use crate::cancel::CancelToken;

/// Variable with the login, `USER:PASSWORD`. A server that uses it sets it even if it is empty.
const AUTH: &str = "WSREP_SST_OPT_AUTH";
/// Variable with the joiner's secret, `NAME:SECRET`.
const REMOTE_AUTH: &str = "WSREP_SST_OPT_REMOTE_AUTH";

/// The names of both variables, which no child inherits.
pub(crate) const VARIABLES: [&str; 2] = [AUTH, REMOTE_AUTH];

/// Limit on what is read from the server, in bytes.
const MAX: usize = 64 << 10;
/// Interval at which cancellation is checked while waiting for a line.
const SLICE: Duration = Duration::from_millis(100);

/// Time limits for reading the lines.
#[derive(Debug, Clone, Copy)]
struct InputLimits {
    /// Until the login has arrived.
    login: Duration,
    /// From the login to the end of the input.
    rest: Duration,
}

/// The server writes right after it has started the program; a busy machine may take longer.
const LIMITS: InputLimits =
    InputLimits { login: Duration::from_secs(10), rest: Duration::from_secs(2) };

/// The login and the joiner's secret. `Debug` shows neither.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ServerCredentials {
    /// User and password for the backup.
    pub login: Option<Login>,
    /// `NAME:SECRET`, as put before the joiner's address.
    pub remote_auth: Option<String>,
}

impl std::fmt::Debug for ServerCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handed").finish_non_exhaustive()
    }
}

impl ServerCredentials {
    /// Reads what the server has set in the environment, or else the lines that it writes to
    /// standard input. Waits for these lines for a few seconds at most.
    #[must_use]
    pub fn take(error_log: &ErrorLog, cancel: &CancelToken) -> Self {
        Self::from_variables(|name| std::env::var_os(name))
            .unwrap_or_else(|| Self::from_lines(std::io::stdin(), LIMITS, error_log, cancel))
    }

    /// Returns `None` if neither variable is set, not even to an empty text.
    fn from_variables(variable: impl Fn(&str) -> Option<OsString>) -> Option<Self> {
        let [auth, remote_auth] = VARIABLES.map(variable);
        if auth.is_none() && remote_auth.is_none() {
            return None;
        }
        let remote_auth = remote_auth.and_then(|value| value.into_string().ok());
        Some(Self {
            login: auth.and_then(|text| Login::parse(&text)),
            remote_auth: remote_auth.filter(|text| !text.is_empty()),
        })
    }

    fn from_lines(
        input: impl AsFd,
        limits: InputLimits,
        error_log: &ErrorLog,
        cancel: &CancelToken,
    ) -> Self {
        let input = input.as_fd();
        if input.is_terminal() {
            return Self::default();
        }
        let mut lines = Lines::default();
        if !read(input, &mut lines, limits, cancel) && cancel.reason().is_none() {
            error_log.warn("the server passed no credentials, neither in the environment nor in time on standard input");
        }
        if lines.unknown > 0 {
            error_log.warn(format_args!(
                "{} lines of the server on standard input have an unknown name and are ignored",
                lines.unknown
            ));
        }
        lines.credentials()
    }
}

/// Parses all lines of an input that has ended.
pub(crate) fn of_lines(input: &[u8]) -> ServerCredentials {
    let mut lines = Lines::default();
    input.split(|byte| *byte == b'\n').for_each(|line| lines.add(line));
    lines.credentials()
}

/// Reads line by line, byte by byte: whatever follows the last line stays unread. Returns `false`
/// if neither a login nor the end of the input arrived in time.
fn read(
    input: BorrowedFd<'_>,
    lines: &mut Lines,
    limits: InputLimits,
    cancel: &CancelToken,
) -> bool {
    let mut end = Instant::now() + limits.login;
    let mut line = Vec::new();
    for _ in 0..MAX {
        if !is_ready(input, end, cancel) {
            return lines.password.is_some();
        }
        let mut byte = [0];
        match rustix::io::read(input, &mut byte) {
            Ok(0) => {
                lines.add(&line);
                return true;
            }
            Ok(_) if byte != *b"\n" => line.push(byte[0]),
            Ok(_) => {
                lines.add(&line);
                line.clear();
                if lines.are_all() {
                    return true;
                }
                if lines.password.is_some() {
                    end = Instant::now() + limits.rest;
                }
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            // Standard input is closed.
            Err(_) => return true,
        }
    }
    true
}

/// Waits until there is data or the end of the input.
fn is_ready(input: BorrowedFd<'_>, end: Instant, cancel: &CancelToken) -> bool {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let slice = Timespec::try_from(left.min(SLICE)).ok();
        match poll(&mut [PollFd::new(&input, PollFlags::IN)], slice.as_ref()) {
            Ok(1..) => return true,
            _ if left.is_zero() || cancel.reason().is_some() => return false,
            _ => {}
        }
    }
}

/// The values read so far.
#[derive(Default)]
struct Lines {
    user: Option<OsString>,
    password: Option<OsString>,
    remote_user: Option<OsString>,
    remote_password: Option<OsString>,
    unknown: usize,
}

impl Lines {
    fn add(&mut self, line: &[u8]) {
        if line.is_empty() {
            return;
        }
        let mut parts = line.splitn(2, |byte| *byte == b'=');
        let (Some(name), Some(value)) = (parts.next(), parts.next()) else {
            self.unknown += 1;
            return;
        };
        let place = match name {
            b"sst_user" => &mut self.user,
            b"sst_password" => &mut self.password,
            b"sst_remote_user" => &mut self.remote_user,
            b"sst_remote_password" => &mut self.remote_password,
            _ => {
                self.unknown += 1;
                return;
            }
        };
        *place = Some(OsStr::from_bytes(value).to_owned());
    }

    fn are_all(&self) -> bool {
        self.user.is_some()
            && self.password.is_some()
            && self.remote_user.is_some()
            && self.remote_password.is_some()
    }

    fn credentials(self) -> ServerCredentials {
        let remote =
            (self.remote_user.unwrap_or_default(), self.remote_password.unwrap_or_default());
        let remote_auth = match remote {
            (user, password) if user.is_empty() && password.is_empty() => None,
            (user, password) => Some(format!("{}:{}", user.display(), password.display())),
        };
        let login = Login::new(self.user.unwrap_or_default(), self.password.unwrap_or_default());
        ServerCredentials { login, remote_auth }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read as _, Write as _};
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Longer than any of these tests waits.
    const LONG: InputLimits =
        InputLimits { login: Duration::from_secs(600), rest: Duration::from_secs(600) };
    const SHORT: InputLimits = InputLimits { login: Duration::ZERO, rest: Duration::ZERO };

    /// Returns the values read and the contents of the log.
    fn read(input: impl AsFd, limits: InputLimits) -> (ServerCredentials, String) {
        let log = Arc::new(Mutex::new(String::new()));
        let writing = Arc::clone(&log);
        let error_log = ErrorLog::new(move |_, text| writing.lock().unwrap().push_str(text));
        let credentials =
            ServerCredentials::from_lines(input, limits, &error_log, &CancelToken::new());
        let log = log.lock().unwrap().clone();
        (credentials, log)
    }

    fn pipe_with(text: &str) -> (std::io::PipeReader, std::io::PipeWriter) {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(text.as_bytes()).unwrap();
        (reader, writer)
    }

    fn login(credentials: &ServerCredentials) -> (&str, &str) {
        let login = credentials.login.as_ref().unwrap();
        (login.user.to_str().unwrap(), login.password().to_str().unwrap())
    }

    #[test]
    fn all_lines_are_read_up_to_the_end() {
        let text =
            "sst_user=u\nnews=1\nsst_password=x=y\n\nsst_remote_user=xbrs\nsst_remote_password=s:t";
        let (reader, writer) = pipe_with(text);
        drop(writer);
        let (credentials, log) = read(reader, LONG);
        assert_eq!(login(&credentials), ("u", "x=y"));
        assert_eq!(credentials.remote_auth.as_deref(), Some("xbrs:s:t"));
        assert!(log.starts_with("1 lines"), "{log}");
        assert!(!format!("{credentials:?}{log}").contains("x=y"));
    }

    /// Without them, the backup would log in as another user.
    #[test]
    fn logins_of_any_encoding_are_taken() {
        let [user, password] = [&b"u\xe9"[..], b"p\xfc"].map(OsStr::from_bytes);
        let login = Login::new(user.to_owned(), password.to_owned());
        let lines = of_lines(
            b"sst_user=u\xe9\nsst_password=p\xfc\nsst_remote_user=r\nsst_remote_password=p",
        );
        assert!(lines.login == login && lines.remote_auth.as_deref() == Some("r:p"));
        let auth = OsStr::from_bytes(b"u\xe9:p\xfc").to_owned();
        let set = ServerCredentials::from_variables(|name| (name == AUTH).then(|| auth.clone()));
        assert!(set.unwrap().login == login);
    }

    #[test]
    fn nothing_behind_the_last_line_is_taken() {
        let text = "sst_user=u\nsst_password=\nsst_remote_user=r\nsst_remote_password=p\nlater";
        let (mut reader, writer) = pipe_with(text);
        // The other end is still open.
        let (credentials, _) = read(&reader, LONG);
        assert_eq!(
            (login(&credentials), credentials.remote_auth.as_deref()),
            (("u", ""), Some("r:p"))
        );
        drop(writer);
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "later");
    }

    #[test]
    fn an_input_without_an_end_does_not_hold_up_a_login() {
        let limits = InputLimits { rest: Duration::ZERO, ..LONG };
        let (reader, _writer) = pipe_with("sst_user=u\nsst_password=p\n");
        let (credentials, log) = read(reader, limits);
        assert_eq!((login(&credentials), credentials.remote_auth.as_deref()), (("u", "p"), None));
        assert_eq!(log, "");
    }

    #[test]
    fn inputs_of_servers_that_write_nothing_are_empty() {
        let closed = {
            let (reader, writer) = pipe_with("");
            drop(writer);
            reader
        };
        let (silent, _writer) = pipe_with("");
        let null = File::open("/dev/null").unwrap();
        let unreadable = File::create(tempfile::tempdir().unwrap().path().join("x")).unwrap();
        for (input, limits, expected) in [
            (closed.as_fd(), LONG, ""),
            (null.as_fd(), LONG, ""),
            (unreadable.as_fd(), LONG, ""),
            (silent.as_fd(), SHORT, "in time on standard input"),
        ] {
            let (credentials, log) = read(input, limits);
            assert_eq!(credentials, ServerCredentials::default());
            assert!(log.ends_with(expected) && log.is_empty() == expected.is_empty(), "{log}");
        }
    }

    #[test]
    fn a_wish_to_end_ends_the_wait() {
        let (silent, _writer) = pipe_with("sst_user=");
        let cancel = CancelToken::new();
        cancel.cancel(crate::cancel::CancelReason::Signal(15));
        let error_log = ErrorLog::new(|_, _| ());
        assert_eq!(
            ServerCredentials::from_lines(silent, LONG, &error_log, &cancel),
            ServerCredentials::default()
        );
    }

    #[test]
    fn variables_count_when_they_are_set_at_all() {
        let set = |auth: Option<&'static str>, remote: Option<&'static str>| {
            let value = move |name: &str| if name == AUTH { auth } else { remote };
            ServerCredentials::from_variables(move |name| value(name).map(Into::into))
        };
        assert_eq!(set(None, None), None);
        assert_eq!(set(Some(""), None), Some(ServerCredentials::default()));
        let credentials = set(Some("u:p"), Some("r:s")).unwrap();
        assert_eq!(
            (login(&credentials), credentials.remote_auth.as_deref()),
            (("u", "p"), Some("r:s"))
        );
    }
}
