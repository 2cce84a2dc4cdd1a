//! Why no clone could be received or read.

use std::io;

use xb_mysql::clone::CloneError;
use xb_reader::TargetError;

/// An error of a clone.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The connection, the login or a statement failed.
    #[error("{}", with_hint(.source))]
    Server {
        /// The error.
        source: xb_mysql::Error,
    },
    /// Another clone of this server is running, or the server still waits for the recipient of one.
    #[error("another clone of this server is running (error 3634): wait until it has ended")]
    Busy,
    /// The clone was cancelled by the token of its [`Settings`](crate::Settings).
    #[error("the clone was ended")]
    Stopped,
    /// Something that a clone would lose, or that must not be stored so.
    #[error("{0}")]
    Refused(String),
    /// Bytes of it could not be written, or read back.
    #[error("cannot write the clone: {0}")]
    Output(#[from] io::Error),
    /// A file of a clone that is put together cannot be used.
    #[error("cannot put the clone together: {0}")]
    Target(#[from] TargetError),
    /// The caller has cancelled it.
    #[error("putting the clone together was interrupted")]
    Cancelled,
    /// A stored clone is damaged.
    #[error("the stored clone is damaged: {0}: verify the backup, and restore another one")]
    Damaged(String),
}

impl From<CloneError> for Error {
    fn from(error: CloneError) -> Self {
        xb_mysql::Error::from(error).into()
    }
}

impl From<xb_mysql::Error> for Error {
    fn from(source: xb_mysql::Error) -> Self {
        match code(&source) {
            Some(BUSY) => Self::Busy,
            _ => Self::Server { source },
        }
    }
}

impl Error {
    /// The next step, if the server's error has one that is known.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Server { source } => hint(source),
            _ => None,
        }
    }

    /// Number of the server's error, as in MySQL's list of errors.
    #[must_use]
    pub fn code(&self) -> Option<i32> {
        match self {
            Self::Server { source } => code(source),
            Self::Busy => Some(BUSY),
            _ => None,
        }
    }
}

/// Number of the error of [`Error::Busy`].
const BUSY: i32 = 3634;

fn code(error: &xb_mysql::Error) -> Option<i32> {
    match error {
        xb_mysql::Error::Server(error) => Some(error.code.into()),
        xb_mysql::Error::Clone(CloneError::Donor { code, .. }) => Some(*code),
        _ => None,
    }
}

/// The next step after an error of the server.
fn hint(error: &xb_mysql::Error) -> Option<&'static str> {
    next_step(code(error)?, &error.to_string())
}

fn next_step(code: i32, message: &str) -> Option<&'static str> {
    Some(match code {
        1040 | 1203 => {
            "a clone takes four connections: raise the limit, or give the server's admin_port, and GRANT SERVICE_CONNECTION_ADMIN ON *.* TO the account"
        }
        1045 => {
            "check the password, and ssl-cert and ssl-key if the account has REQUIRE X509; on a socket, it must not be one with REQUIRE SSL"
        }
        1184 => "the server's init_connect fails for this account: see the error log of the server",
        1227 if message.contains("SERVICE_CONNECTION_ADMIN") => {
            "run GRANT SERVICE_CONNECTION_ADMIN ON *.* TO the account, or give the usual port of the server"
        }
        1227 => "run GRANT BACKUP_ADMIN ON *.* TO the account",
        1524 => "run INSTALL PLUGIN clone SONAME 'mysql_clone.so' on the server",
        1815 if message.contains("Log Archiver") => {
            "see the error log of the server, and make room on its disk: it keeps redo log for a clone in its data directory"
        }
        1862 => "give the account a new password with ALTER USER ... IDENTIFIED BY",
        3032 => "run SET GLOBAL offline_mode = OFF on the server, once it may be used again",
        3118 => "run ALTER USER ... ACCOUNT UNLOCK on the server",
        3872 => "connect over TCP with TLS, because keys of encrypted tables are sent",
        3957 => "set max_allowed_packet to 2M or more on the server",
        3983 => "run ALTER INSTANCE ENABLE INNODB REDO_LOG on the server",
        _ => return None,
    })
}

fn with_hint(error: &xb_mysql::Error) -> String {
    hint(error).map_or_else(|| error.to_string(), |hint| format!("{error}: {hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_server_has_the_step_that_mends_it() {
        let denied = |right| {
            let message = format!("you need (at least one of) the {right} privilege(s)");
            next_step(1227, &message).unwrap()
        };
        let step = denied("SERVICE_CONNECTION_ADMIN");
        assert!(step.contains("GRANT SERVICE_CONNECTION_ADMIN") && !step.contains("BACKUP_ADMIN"));
        assert!(denied("BACKUP_ADMIN").contains("GRANT BACKUP_ADMIN"));
        assert!(next_step(3118, "Account is locked.").unwrap().contains("ACCOUNT UNLOCK"));
        let full = "Internal error: Clone: Log Archiver failed";
        assert!(next_step(1815, full).unwrap().contains("make room"));
        assert_eq!(next_step(1815, "Internal error: another"), None);
        assert_eq!(next_step(1, "x"), None);
    }
}
