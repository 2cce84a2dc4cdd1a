//! Why no clone could be received or read.

use std::io;

use xb_mysql::clone::CloneError;
use xb_reader::TargetError;

/// An error of a clone.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The connection, the login or a statement failed.
    #[error("{source}{}", hint(.source))]
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

/// Returns a hint for an error of the server.
fn hint(error: &xb_mysql::Error) -> &'static str {
    match code(error).unwrap_or(0) {
        1227 => ": run GRANT BACKUP_ADMIN ON *.* TO the account",
        1524 => ": run INSTALL PLUGIN clone SONAME 'mysql_clone.so' on the server",
        3872 => ": connect over TCP with TLS, because keys of encrypted tables are sent",
        3957 => ": set max_allowed_packet to 2M or more on the server",
        _ => "",
    }
}
