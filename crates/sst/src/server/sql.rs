//! Statements for this node's server, with the login of the backup.

use std::ffi::OsStr;
use std::sync::mpsc::channel;
use std::time::Duration;

use xb_mysql::{Access, Client, ClientOptions, Row, Timeouts};
use xb_option_files::{OptionFileArgs, OptionFilePaths, load};

use crate::cancel::{CancelReason, CancelToken};
use crate::context::Context;

/// Time limit of each step of a login.
const LOGIN_LIMIT: Duration = Duration::from_secs(2);

/// This node's server, and the login of the backup.
#[derive(Debug, Clone)]
pub(crate) struct Sql {
    cancel: CancelToken,
    /// `None` if the option files do not say how to log in.
    access: Option<Access>,
}

impl Sql {
    pub(crate) fn new(context: &Context) -> Self {
        Self { cancel: context.cancel.clone(), access: access(context) }
    }

    /// Returns the rows of the answer, of `N` columns without NULL; `None` without an answer or after
    /// an error. A server may accept a statement and never answer it: this call then waits until the
    /// transfer is cancelled.
    pub(crate) fn ask<const N: usize>(&self, statement: &str) -> Option<Vec<[String; N]>> {
        let access = self.access.as_ref()?;
        let timeouts = Timeouts { login: LOGIN_LIMIT, reply: None };
        let mut client = Client::connect(&access.target, &access.account, timeouts).ok()?;
        let hang_up = client.hang_up().ok()?;
        let _hook = self.cancel.on_cancel(move || hang_up.now());
        // A server may have many tables.
        let rows = client.list(statement).ok()?;
        rows.iter().map(Row::texts).collect::<Result<_, _>>().ok()
    }

    /// Like [`ask`](Self::ask), but waits at most `limit`, even after cancellation.
    pub(crate) fn ask_within<const N: usize>(
        &self,
        limit: Duration,
        statement: &str,
    ) -> Option<Vec<[String; N]>> {
        let cancel = CancelToken::new();
        let sql = Self { cancel: cancel.clone(), access: self.access.clone() };
        let (tell, answer) = channel();
        let statement = statement.to_owned();
        let asking = move || {
            let _ = tell.send(sql.ask(&statement));
        };
        // Not joined: only the connect can take longer, and then the hook keeps the statement back.
        std::thread::Builder::new().name("sql".into()).spawn(asking).ok()?;
        let answer = answer.recv_timeout(limit).ok().flatten();
        cancel.cancel(CancelReason::Elsewhere);
        answer
    }
}

/// The login as the stock client would take it from the option files, but the one that the server
/// handed over wins, and so does the server's socket.
fn access(context: &Context) -> Option<Access> {
    let Context { args, settings, .. } = context;
    let wanted = OptionFileArgs {
        only: args.defaults.file.clone(),
        extra: args.defaults.extra.clone(),
        group_suffix: args.defaults.suffix.clone(),
        as_stock: true,
        ..OptionFileArgs::default()
    };
    let mut options = ClientOptions::default();
    for option in load(&OptionFilePaths::usual(), &wanted, &xb_mysql::GROUPS).ok()?.options {
        options.take(&option.key, option.value.as_deref());
    }
    if let Some(login) = &settings.login {
        options.take("user", Some(&login.user));
        options.take("password", Some(login.password()));
    }
    if let Some(socket) = &args.socket {
        options.take("socket", Some(socket.as_os_str()));
        options.take("protocol", Some(OsStr::new("socket")));
    }
    options.access().ok()
}
