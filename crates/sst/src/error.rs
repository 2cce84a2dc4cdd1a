//! Errors of a transfer.

use std::error::Error;
use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use xb_pipeline::ExtractCause;

use crate::cancel::{CancelReason, CancelToken};
use crate::offer::OfferError;
use crate::run::ChildError;
use crate::swap::{SwapError, WORK_DIR};
use nix::unistd::{Uid, User};
use xb_wire::{AnnouncementError, BindError, TransferError};

/// The first cause of a failed transfer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SstError {
    /// The transfer was cancelled.
    #[error(transparent)]
    Stopped(#[from] CancelReason),
    /// Another transfer uses the data directory.
    #[error("another state transfer is running in {}", datadir.display())]
    Busy {
        /// The data directory.
        datadir: PathBuf,
    },
    /// A swap was interrupted and is not finished.
    #[error("a swap of the data in {} was interrupted", datadir.display())]
    Interrupted {
        /// The data directory.
        datadir: PathBuf,
    },
    /// A directory cannot be used for a server that is started once.
    #[error("{} is too long for a socket, or has quotes", path.display())]
    Tmpdir {
        /// The directory.
        path: PathBuf,
    },
    /// This node's server cannot make temporary files.
    #[error("this node's server could not start on the new data: it has its temporary files in {}, and none can be created there: {source}", path.display())]
    NoServerTmpdir {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Small files cannot be made in the directory for them.
    #[error("cannot {what} {}: {source}", path.display())]
    NoTmpdir {
        /// The attempted operation.
        what: &'static str,
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// This node's MyRocks would not find the donor's data.
    #[error(
        "the donor has data of MyRocks, and this node's server would not read it: a transfer brings it to {}, and {option} names {}", new.display(), dir.display()
    )]
    RocksDb {
        /// The option.
        option: &'static str,
        /// The directory that it names.
        dir: PathBuf,
        /// The directory that a transfer brings.
        new: PathBuf,
    },
    /// The old data cannot be removed yet.
    #[error("no server has started on the data that the last transfer brought to {}", datadir.display())]
    Untried {
        /// The data directory.
        datadir: PathBuf,
    },
    /// It cannot be found out whether a server has accepted the data of the last transfer.
    #[error("whether a server has started on the data of the last transfer is not certain: {}: {source}", path.display())]
    Unclear {
        /// A file that shows it.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// There is no old data to put back.
    #[error("there is no old data in {}", datadir.join(WORK_DIR).display())]
    NoOld {
        /// The data directory.
        datadir: PathBuf,
    },
    /// The donor offers the write sets after a position that the data no longer has.
    #[error("the data in {} has changed since this node asked: an interrupted swap was finished first", datadir.display())]
    Replaced {
        /// The data directory.
        datadir: PathBuf,
    },
    /// A server runs on the data.
    #[error("a server has {} in use", path.display())]
    InUse {
        /// The file that it has locked, or the data directory.
        path: PathBuf,
    },
    /// An option names a file in the directory of a schema, which would stay beside the new data.
    #[error("{} has tables, and {option} names it or a file in it", path.display())]
    KeptSchema {
        /// The directory of the schema.
        path: PathBuf,
        /// The option.
        option: String,
    },
    /// A file system is mounted inside the data that must be swapped.
    #[error("{} is a mount point and cannot be renamed", path.display())]
    Mounted {
        /// The mount point.
        path: PathBuf,
    },
    /// This process may not remove or rename a directory.
    #[error("cannot remove or rename {}: it belongs to user {}, and this program runs as user {}", path.display(), name(*owner), name(*user))]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// The user ID of its owner.
        owner: u32,
        /// The user ID of this process.
        user: u32,
    },
    /// This process may make nothing in a directory in which the new data must be.
    #[error("cannot make directories in {}: it belongs to user {}, and this program runs as user {}", path.display(), name(*owner), name(*user))]
    Denied {
        /// The directory.
        path: PathBuf,
        /// The user ID of its owner.
        owner: u32,
        /// The user ID of this process.
        user: u32,
    },
    /// A system call failed.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// The attempted operation.
        what: &'static str,
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The server does not read the protocol's lines.
    #[error("cannot report to the server: {0}")]
    Server(#[source] io::Error),
    /// The donor's offer cannot be accepted.
    #[error(transparent)]
    Offer(#[from] OfferError),
    /// There is no room for the new data.
    #[error(transparent)]
    Room(Box<RoomShort>),
    /// The free space cannot be determined.
    #[error("cannot determine the free space of {}: {source}", path.display())]
    NoStat {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// An address from the server is invalid.
    #[error("{0}")]
    Address(String),
    /// The request for this donor's data cannot be answered.
    #[error(transparent)]
    Request(#[from] AnnouncementError),
    /// The connection would not be protected as required.
    #[error("{0}")]
    Security(String),
    /// This node's server does not accept the login of the backup.
    #[error("this node's server does not accept the login of the backup, {user}")]
    Login {
        /// The user.
        user: String,
    },
    /// A donor was refused, and no other one came.
    #[error("{what}; then: {then}")]
    RefusedDonor {
        /// The reason, with the command that shows it.
        what: String,
        /// The end of the wait.
        then: Box<SstError>,
    },
    /// The joiner cannot listen.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The network or the peer failed.
    #[error(transparent)]
    Wire(#[from] TransferError),
    /// A child program failed.
    #[error(transparent)]
    Child(#[from] ChildError),
    /// The backup program failed, and failed again when it was run once more.
    #[error("{first}; run once more, it failed again: {second}")]
    FailedTwice {
        /// The first failure.
        first: Box<ChildError>,
        /// The second failure.
        second: Box<SstError>,
    },
    /// Packing the stream failed.
    #[error("backup stream: {0}")]
    Put(#[source] Box<xb_pipeline::PackError>),
    /// Unpacking the stream failed.
    #[error("received stream: {0}")]
    Get(String),
    /// Extracting the stream's files failed.
    #[error("{}", cannot_write(folder, source))]
    Extract {
        /// The target directory.
        folder: PathBuf,
        /// The error, with file and offset.
        source: Box<xb_pipeline::ExtractError>,
    },
    /// The received data is not a usable backup.
    #[error("the received backup is unusable: {0}")]
    Content(String),
    /// This node's server would not find a schema or table.
    #[error(
        "the donor has {name}, with a capital letter in its name: with lower_case_table_names=1, this node's server would not find it"
    )]
    Capitals {
        /// The schema, or the definition of the table.
        name: String,
    },
    /// The keys of the backup's encrypted tables need a transition key and a new master key.
    #[error(
        "the donor's backup has xtrabackup_keys: a transition key protects the keys of its encrypted tables, and this method makes no new master key"
    )]
    TransitionKey,
    /// A backup with encrypted tables could not be prepared.
    #[error("{source}")]
    Keyring {
        /// End of the program.
        source: ChildError,
    },
    /// This node's server program cannot be started on received data.
    #[error("cannot start this node's server on received data: {0}")]
    NoServer(String),
    /// This node's server failed on the received data.
    #[error("this node's server does not accept the received data: {}: {what}; its log is {}", program.display(), log.display())]
    SecondStart {
        /// The server's program.
        program: PathBuf,
        /// The failure.
        what: String,
        /// Its log.
        log: PathBuf,
        /// A directory of the received data, if the server probably found no room there.
        full: Option<PathBuf>,
    },
    /// The swap of the data failed.
    #[error(transparent)]
    Swap(#[from] SwapError),
}

/// Advice for a directory that holds, or may hold, the data of another server's transfer.
fn taken_hint(error: &SwapError) -> Option<String> {
    let (folder, first) = match error {
        SwapError::Taken { folder, home } => (
            folder,
            format!(
                "start that server, and then remove its old data with `wsrep_sst_xbrs-rs clean-old {}` (with --all, what a roll-back has put aside, too); if there is no such server, look at {} and remove it",
                home.display(),
                folder.join(WORK_DIR).display()
            ),
        ),
        SwapError::Unknown { folder, .. } => (
            folder,
            format!(
                "it may belong to a server in another container; look at {}, and remove it if no server needs what is there",
                folder.join(WORK_DIR).display()
            ),
        ),
        SwapError::Busy { folder } => (folder, "wait until it ends".to_owned()),
        _ => return None,
    };
    Some(format!(
        "{first}; better still, give each server its own directory instead of {}",
        folder.display()
    ))
}

/// A file system without room for the new data. Sizes are in bytes.
#[derive(Debug, thiserror::Error)]
#[error(
    "the transfer needs {} MiB on the file system of {}{}{}, and only {} MiB are free there{}",
    mib(*needed), path.display(), also(others), parts(*data, *needed), free >> 20,
    if *counts_old { " without all old data" } else { "" }
)]
#[non_exhaustive]
pub struct RoomShort {
    /// Bytes of them for the donor's data, and a reserve. The others are for redo logs, and for tablespaces that this node's
    /// server creates.
    pub data: u64,
    /// Bytes that must be free.
    pub needed: u64,
    /// Free bytes, those of the old data included if it counts.
    pub free: u64,
    /// Whether there is old data of an earlier transfer.
    pub has_earlier: bool,
    /// Whether all old data counts as free, because the operator allows to delete it (`keep-old=no`).
    pub counts_old: bool,
    /// The first directory there that needs room.
    pub path: PathBuf,
    /// The other directories there that need room.
    pub others: Vec<PathBuf>,
}

impl RoomShort {
    fn hint(&self) -> &'static str {
        match self.has_earlier {
            _ if self.counts_old => {
                "make room: that all old data may be deleted (keep-old=no) is counted already"
            }
            true => {
                "make room: if this node's server has run on its present data, remove the old data of the last transfer with `wsrep_sst_xbrs-rs clean-old DATADIR`; or set keep-old=no in [sst] if all old data may be deleted before the new data has arrived"
            }
            false => {
                "make room, or set keep-old=no in [sst] if this node's old data may be deleted before the new data has arrived"
            }
        }
    }
}

/// Name and number of a user; only the number of one without a name.
fn name(user: u32) -> String {
    match User::from_uid(Uid::from_raw(user)) {
        Ok(Some(known)) => format!("{} ({user})", known.name),
        _ => user.to_string(),
    }
}

/// MiB, rounded up.
fn mib(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

fn also(others: &[PathBuf]) -> String {
    let names: Vec<String> = others.iter().map(|dir| dir.display().to_string()).collect();
    if names.is_empty() { String::new() } else { format!(" (also of {})", names.join(", ")) }
}

/// Parts that add up to what is needed.
fn parts(data: u64, needed: u64) -> String {
    let data = mib(data);
    match mib(needed).saturating_sub(data) {
        0 => String::new(),
        rest => format!(
            ", {data} for the donor's data and {rest} for redo logs and for tablespaces that this node's server creates"
        ),
    }
}

/// Message for both sides when the joiner cannot write its files.
pub(crate) fn cannot_write(folder: &Path, cause: impl Display) -> String {
    format!("cannot write received files in {}: {cause}", folder.display())
}

/// What to do about the failure of a backup program with these last messages.
fn program_hint(words: &[String]) -> Option<String> {
    let says = |text: &str| words.iter().any(|word| word.contains(text));
    // Not "Access denied; you need ... the RELOAD privilege", which names what to do.
    if says("Access denied for user") {
        Some("correct wsrep_sst_auth; a password in [client], [mariabackup] or [xtrabackup] of the option files counts before it, so remove that one".into())
    } else if says("Too many open files") {
        Some("raise the server's limit of open files (LimitNOFILE of its unit, ulimit -n): the backup program opens every tablespace".into())
    } else if says("Failing assertion: size != os_offset_t(-1)") {
        Some("if the donor's data directory has a directory whose name is `undo` and a number, the backup program takes it for an undo tablespace: move the tables of such a schema to another one with RENAME TABLE, and drop it".into())
    } else {
        None
    }
}

/// Returns whether one of the error's causes is a full disk.
fn is_full(error: &(dyn Error + 'static)) -> bool {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    matches!(kind, Some(ErrorKind::StorageFull | ErrorKind::QuotaExceeded))
        || error.source().is_some_and(is_full)
}

impl SstError {
    pub(crate) fn io(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { what, path, source }
    }

    /// Replaces this error by the reason for the cancellation, if it only follows from that.
    pub(crate) fn or_why(self, cancel: &CancelToken) -> Self {
        match (self, cancel.reason()) {
            (Self::Wire(TransferError::Cancelled) | Self::Server(_), Some(why)) => {
                Self::Stopped(why)
            }
            (Self::RefusedDonor { what, then }, Some(_)) => {
                Self::RefusedDonor { what, then: Box::new(then.or_why(cancel)) }
            }
            (this, _) => this,
        }
    }

    /// Exit status, as in the stock scripts: servers show it as an error number.
    #[must_use]
    pub fn status(&self) -> u8 {
        match self {
            Self::Stopped(_) | Self::Child(ChildError::Stopped(_)) => 3,
            Self::Busy { .. } | Self::Swap(SwapError::Busy { .. }) => 114,
            Self::Wire(_) | Self::Bind(_) | Self::Server(_) | Self::Get(_) => 32,
            Self::Offer(_) => 93,
            Self::Room(_) | Self::NoStat { .. } => 28,
            Self::SecondStart { full: Some(_), .. } => 28,
            error if is_full(error) => 28,
            Self::Child(ChildError::Start { .. }) | Self::NoServer(_) => 2,
            Self::FailedTwice { second, .. } => second.status(),
            Self::RefusedDonor { then, .. } => then.status(),
            _ => 22,
        }
    }

    /// Advice for the operator.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::FailedTwice { second, .. } => second.hint(),
            Self::Login { .. } => Some(
                "check that the server runs, set wsrep_sst_auth to USER:PASSWORD, and grant USER RELOAD, PROCESS, LOCK TABLES, BINLOG MONITOR and REPLICA MONITOR"
                    .into(),
            ),
            Self::Bind(BindError::Security(_)) => Some(
                "correct tcert, tkey and tca in [sst], or the server's own ssl-cert, ssl-key and ssl-ca".into(),
            ),
            Self::Bind(BindError::Resolve { .. }) => Some(
                "set wsrep_sst_receive_address or wsrep_node_address to a name or an address of this node".into(),
            ),
            Self::Request(AnnouncementError::Malformed { .. }) => Some(
                "a donor sends to joiners with wsrep_sst_method=xbrs only; a request of garbd names none: back this node up with `xbcloud-rs backup`".into(),
            ),
            Self::Bind(_) => Some(
                "end the program that uses the port (ss -ltnp), or set another one in wsrep_sst_receive_address"
                    .into(),
            ),
            Self::Busy { .. } => Some("wait until it ends; its lock disappears with its process".into()),
            Self::Interrupted { .. } => {
                Some("finish it with: wsrep_sst_xbrs-rs recover DATADIR".into())
            }
            Self::Untried { .. } => Some(
                "start it; or put the old data back with: wsrep_sst_xbrs-rs roll-back DATADIR (or, if a server has run on it, remove #sql-xb/.old/.unaccepted in the data directory)".into(),
            ),
            Self::Replaced { .. } => Some("start the node again: it then asks with the position of its data".into()),
            Self::Unclear { .. } => Some(
                "mount the file system of that file; if it is gone for good, start the server on the data, or remove #sql-xb/.old/.unaccepted in the data directory if the old data is not needed".into(),
            ),
            Self::NoOld { .. } => Some(
                "nothing was changed: start the server on the present data, or let this node join again".into(),
            ),
            Self::InUse { .. } => Some("stop the server first".into()),
            Self::NoServerTmpdir { .. } => Some(
                "set tmpdir in [mysqld] to a directory in which this server's user can make files".into(),
            ),
            Self::NoTmpdir { .. } if is_full(self) => Some(
                "make room there, or set tmpdir in [sst] to a directory with more room".into(),
            ),
            Self::NoTmpdir { .. } => Some(
                "set tmpdir in [sst] to a directory in which this server's user can make files".into(),
            ),
            Self::RocksDb { option, .. } => Some(format!(
                "remove {option} from this node's settings, so that MyRocks has its data in the data directory; or let this node join with the stock method"
            )),
            Self::Tmpdir { .. } => Some("set tmpdir in [sst] to a directory with a short, plain path".into()),
            Self::Swap(SwapError::NothingMoved { source }) => taken_hint(source).or_else(|| Some(
                "start the server on the present data; or correct the cause (the directories must belong to the user of this program), and run it again".into(),
            )),
            Self::Swap(
                error @ (SwapError::Taken { .. } | SwapError::Unknown { .. } | SwapError::Busy { .. }),
            ) => taken_hint(error),
            Self::Swap(SwapError::OldIsNotWhole { name, .. }) if name == WORK_DIR => Some(
                "mount the file system of that directory; if it is gone for good, start the server on the present data, or remove #sql-xb/.old/.unaccepted in the data directory and let this node join again".into(),
            ),
            Self::Swap(SwapError::OldIsNotWhole { .. }) => Some(
                "the present data is as it was: start the server on it, or let this node join again".into(),
            ),
            Self::KeptSchema { option, .. } => Some(format!(
                "set {option} to a path outside the schemas: a file that an option names stays in the data directory, together with its directory"
            )),
            Self::Mounted { .. } => Some(
                "mount it elsewhere, with a link or an option such as innodb_log_group_home_dir; if it holds no data, name it in cpat in [sst]"
                    .into(),
            ),
            Self::Foreign { path, .. } if path.components().any(|c| c.as_os_str() == WORK_DIR) => {
                Some("run `wsrep_sst_xbrs-rs clean-old DATADIR` as root".into())
            }
            Self::Foreign { path, user, .. } => {
                Some(format!("run `chown -R {user} {}` as root", path.display()))
            }
            Self::Denied { path, owner, user } if owner == user => {
                Some(format!("run `chmod u+rwx {}`", path.display()))
            }
            Self::Denied { path, user, .. } => {
                Some(format!("run `chown {user} {}` as root", path.display()))
            }
            Self::Room(short) => Some(short.hint().into()),
            Self::NoStat { .. } => Some(
                "repair the file system, or set space-check=no in [sst] if it has enough room".into(),
            ),
            Self::Extract { .. } if is_full(self) => Some(
                "make room there and start the node again; if keep-old=no in [sst] is not set yet, and its old data may be deleted before the new data has arrived, set it"
                    .into(),
            ),
            Self::Extract { source, .. } if matches!(source.cause, ExtractCause::Target { .. }) => {
                Some("repair the file system of that directory, and start the node again".into())
            }
            Self::Wire(TransferError::SecondDonor { .. }) => Some(
                "set certificates with tca in [sst] on all nodes, or encrypt the group's traffic (socket.ssl in wsrep_provider_options)"
                    .into(),
            ),
            error if is_full(error) => Some("make room there".into()),
            Self::Child(ChildError::Start { program, .. }) => Some(format!(
                "install it in this server's version, or set backup-program in [sst] ({program})"
            )),
            Self::Child(ChildError::Failed { words, .. }) => program_hint(words),
            Self::Child(ChildError::LeftOut(_)) => Some(
                "dump the table, drop it, and load it again without DATA DIRECTORY and INDEX DIRECTORY".into(),
            ),
            Self::Child(ChildError::ImportedNotDropped(found)) => Some(found.hint_of_join().into()),
            Self::TransitionKey | Self::Keyring { .. } => Some(
                "give both nodes one keyring (such as a vault) and remove the options for a transition key; else join this node with wsrep_sst_method=xtrabackup-v2"
                    .into(),
            ),
            Self::Capitals { .. } => {
                Some("set lower_case_table_names as on the donor: all nodes need one value; if they agree, the donor does not find it either, so move it out of its data directory".into())
            }
            Self::NoServer(_) => Some(
                "restart the server if it was upgraded while it ran; else set second-start=no in [sst], and after the join lock the user mysql.pxc.sst.user and run STOP REPLICA; RESET REPLICA ALL"
                    .into(),
            ),
            Self::SecondStart { full: Some(path), .. } => Some(format!(
                "make room on the file system of {}, and start the node again; unless keep-old=no has made room, its data is unchanged",
                path.display()
            )),
            Self::SecondStart { .. } => Some(
                "unless keep-old=no has made room, the data of this node is unchanged; correct what the log names and start the node again (in [sst], second-start-timeout sets the time limit, and second-start=no leaves the start out)"
                    .into(),
            ),
            Self::Swap(SwapError::Lost { .. } | SwapError::Journal { .. }) => Some(
                "start no server on this data; inspect #sql-xb/.old and #sql-xb/.new in the data directory, or empty it, remove this node's #sql-xb in its directories elsewhere (of logs, ...), and join again"
                    .into(),
            ),
            Self::Swap(SwapError::KeptEntry { .. }) => Some(
                "change cpat in [sst], or the server option that names it or a file in it".into(),
            ),
            Self::Swap(SwapError::Elsewhere { .. }) => Some(
                "empty the data directory, remove this node's #sql-xb in its directories elsewhere (of logs, ...), and join again; or use a copy that was not taken during a swap".into(),
            ),
            Self::Swap(_) => Some(
                "fix the cause and start the node again, which finishes the swap first; nothing is lost"
                    .into(),
            ),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_is_cancelled_after_a_refusal_has_that_cause_first() {
        let refused = |then: SstError| SstError::RefusedDonor {
            what: "another authority".to_owned(),
            then: Box::new(then),
        };
        let cancel = CancelToken::new();
        cancel.cancel(CancelReason::ServerGone);
        let error = refused(TransferError::Cancelled.into()).or_why(&cancel);
        let said = "another authority; then: the server that started this program has ended";
        assert_eq!((error.to_string().as_str(), error.status()), (said, 3));
        let waited = std::time::Duration::from_secs(9);
        let error = refused(TransferError::NoDonor { waited }.into()).or_why(&cancel);
        assert!(error.to_string().starts_with("another authority; then: no donor"), "{error}");
        assert_eq!(error.status(), 32);
    }

    #[test]
    fn what_is_set_is_not_advised() {
        for (has_earlier, counts_old, advised) in
            [(false, false, true), (true, false, true), (false, true, false), (true, true, false)]
        {
            let short = RoomShort {
                data: 9 << 20,
                needed: (15 << 20) + 1,
                free: 12 << 20,
                has_earlier,
                counts_old,
                path: "/d".into(),
                others: vec!["/u".into(), "/r".into()],
            };
            // The numbers are those of the check.
            let text = short.to_string();
            let said = "needs 16 MiB on the file system of /d (also of /u, /r), 9 for the donor's data and 7 for redo logs";
            assert!(text.contains(said) && text.contains("only 12 MiB are free"), "{text}");
            assert_eq!(text.contains("without all old data"), counts_old, "{text}");
            let hint = SstError::Room(Box::new(short)).hint().unwrap();
            assert_eq!(hint.contains("set keep-old=no"), advised, "{hint}");
        }
    }
}
