//! Requirements of a clone that a server does not meet, and data that a clone of it would lose.

use std::time::Duration;

use xb_mysql::clone::{CloneError, CloneEvent, Ddl, Recipient};
use xb_mysql::{Account, Client, Target, Timeouts};

use crate::error::Error;
use crate::guards;

/// Time limit of each step of the login and of each statement.
const LOGIN_LIMIT: Duration = Duration::from_secs(10);
/// Time for which a tried clone waits for running DDL.
const DDL: Duration = Duration::from_secs(1);

/// Facts about a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFacts {
    /// Version of the server.
    pub version: String,
    /// The account that logged in, quoted for SQL: `'backup'@'%'`.
    pub account: String,
    /// Rights that the account lacks, as far as they are granted to it directly.
    pub missing_rights: Vec<&'static str>,
    /// Whether the plugin of clones is loaded.
    pub has_plugin: bool,
    /// `max_allowed_packet`, in bytes.
    pub max_packet: u64,
    /// Whether the redo or the undo log is encrypted.
    pub encrypts_logs: bool,
    /// Tables that come back empty, as far as the account sees them.
    pub empty_tables: Vec<String>,
}

impl ServerFacts {
    /// The smallest `max_allowed_packet` with which a server can be cloned, in bytes.
    pub const LEAST_PACKET: u64 = 2 << 20;
}

/// Asks a server what a clone needs and would lose.
///
/// # Errors
/// [`Error::Refused`] if it cannot be cloned at all; errors of the login and the statements.
pub fn look(target: &Target, account: &Account) -> Result<ServerFacts, Error> {
    guards::connection(target)?;
    let mut client = connect(target, account)?;
    guards::version(&client)?;
    let rows = client.rows(
        "SELECT CURRENT_USER(), @@GLOBAL.max_allowed_packet,
         (SELECT COUNT(*) FROM information_schema.plugins WHERE plugin_name = 'clone' AND plugin_status = 'ACTIVE')",
    )?;
    let [user, max_packet, plugins] = guards::one(&rows)?;
    let (user, host) = user.rsplit_once('@').unwrap_or((&user, "%"));
    let quoted = |text: &str| format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"));
    let mut missing_rights = Vec::new();
    if !guards::may_back_up(&mut client)? {
        missing_rights.push("BACKUP_ADMIN");
    }
    if !guards::sees_all_tables(&mut client)? {
        missing_rights.push("REFERENCES");
    }
    Ok(ServerFacts {
        version: client.greeting().version.clone(),
        account: format!("{}@{}", quoted(user), quoted(host)),
        missing_rights,
        has_plugin: plugins != "0",
        max_packet: max_packet.parse().map_err(|_| xb_mysql::Error::Unexpected)?,
        encrypts_logs: guards::encrypts_logs(&mut client)?,
        empty_tables: guards::empty_tables(&mut client)?,
    })
}

/// Begins a clone, and leaves it before any data. DDL waits meanwhile, for an instant.
///
/// # Errors
/// Why the server would not be cloned now, such as [`Error::Busy`].
pub fn try_clone(target: &Target, account: &Account) -> Result<(), Error> {
    guards::connection(target)?;
    let mut link = connect(target, account)?.into_clone(LOGIN_LIMIT, LOGIN_LIMIT)?;
    // As many as a clone has at once.
    let _others = [connect(target, account)?, connect(target, account)?];
    let (mut recipient, init) = Recipient::new(Ddl::Waits(DDL));
    link.send(&init)?;
    while recipient.receive(&link.receive()?)? != CloneEvent::Ready {}
    link.send(&recipient.decline())?;
    match link.receive()? {
        answer if answer == Recipient::DECLINED => Ok(()),
        _ => Err(CloneError::Broken { what: "the donor did not let it go".to_owned() }.into()),
    }
}

fn connect(target: &Target, account: &Account) -> Result<Client, Error> {
    let timeouts = Timeouts { login: LOGIN_LIMIT, reply: Some(LOGIN_LIMIT) };
    Ok(Client::connect(target, account, timeouts)?)
}
