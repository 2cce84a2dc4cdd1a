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
        /// What failed.
        #[from]
        source: xb_mysql::Error,
    },
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
        Self::Server { source: error.into() }
    }
}

/// What to do about an error of the server.
fn hint(error: &xb_mysql::Error) -> &'static str {
    let code = match error {
        xb_mysql::Error::Server(error) => error.code.into(),
        xb_mysql::Error::Clone(CloneError::Donor { code, .. }) => *code,
        _ => 0,
    };
    match code {
        1227 => ": run GRANT BACKUP_ADMIN ON *.* TO the account",
        1524 => ": run INSTALL PLUGIN clone SONAME 'mysql_clone.so' on the server",
        3634 => ": wait until the other clone of this server has ended",
        3872 => ": connect over TCP with TLS, because keys of encrypted tables are sent",
        3957 => ": set max_allowed_packet to 2M or more on the server",
        _ => "",
    }
}
