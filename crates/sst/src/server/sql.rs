//! Statements for this node's server, executed by its client program.

use std::ffi::OsString;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::cancel::{CancelReason, CancelToken};
use crate::contract::args::Family;
use crate::run::Run;
use crate::session::context::Context;

/// Longest answer that is read, in bytes.
const MAX: u64 = 4096;

/// A client with the backup's login.
#[derive(Debug, Clone)]
pub(crate) struct Sql {
    stop: CancelToken,
    client: &'static str,
    args: Vec<OsString>,
    password: Vec<(&'static str, OsString)>,
}

impl Sql {
    pub(crate) fn new(context: &Context) -> Self {
        let Context { args, settings, .. } = context;
        let client = match args.family {
            Family::MariaDb => "mariadb",
            Family::Percona => "mysql",
        };
        let mut words = args.defaults.words();
        words.extend(["--batch", "--skip-column-names", "--connect-timeout=2"].map(OsString::from));
        if let Some(login) = &settings.login {
            words.push(format!("--user={}", login.user).into());
        }
        if let Some(socket) = &args.socket {
            words.extend(["--socket".into(), socket.clone().into_os_string()]);
        }
        let password = crate::session::backup_program::password(context);
        Self { stop: context.stop().clone(), client, args: words, password }
    }

    /// Returns the answer; `None` without a client, without an answer, or after an error. A server
    /// may accept a statement and never answer it: this call then waits until the transfer is
    /// cancelled.
    pub(crate) fn ask(&self, statement: &str) -> Option<Vec<u8>> {
        let mut args = self.args.clone();
        args.extend(["--execute", statement].map(OsString::from));
        let env = self.password.clone();
        let run = Run { program: Path::new(self.client), args, env, log: None };
        run.output(&self.stop, MAX).ok()
    }

    /// Like [`ask`](Self::ask), but waits at most `limit`, even after cancellation.
    pub(crate) fn ask_within(&self, limit: Duration, statement: &str) -> Option<Vec<u8>> {
        let stop = CancelToken::new();
        let client = Self { stop: stop.clone(), ..self.clone() };
        let (tell, answer) = channel();
        let statement = statement.to_owned();
        let asking = move || {
            let _ = tell.send(client.ask(&statement));
        };
        let thread = std::thread::Builder::new().name("sql".into()).spawn(asking).ok()?;
        let answer = answer.recv_timeout(limit).ok().flatten();
        stop.ask(CancelReason::Elsewhere);
        let _ = thread.join();
        answer
    }
}
