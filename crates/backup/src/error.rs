//! The one error of a command: its first cause, with stage, location and a hint.

use std::path::Path;

use xb_pipeline::{FifoError, PackError, PlanError};
use xb_repo::error::RepoError;
use xb_repo::history::NotContinued;
use xb_repo::names::NameError;
use xb_repo::verification::Level;
use xb_uploader::{StoreError, StoreErrorKind};

use crate::hints::{CLONE_SERVER, KILLED, REMOVERS, keys_hint, says_full, stream_hint};

/// Reason why a command failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The store, the catalogue, a claim or the objects of a backup.
    #[error(transparent)]
    Repo(#[from] RepoError),
    /// Answers of the store about an object of a verified backup contradict each other, so it is no damage, and no proof.
    #[error("{source}")]
    Contradicted {
        /// The level that could not be checked.
        level: Level,
        /// The answers.
        source: StoreError,
    },
    /// Packing or uploading failed.
    #[error(transparent)]
    Put(#[from] PackError),
    /// The settings cannot work.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The stream is whole file by file, but its last file is missing. Its objects stay, without a
    /// manifest ([`xb_pipeline::EndRule::KnownProducerOrPart`]).
    #[error("Upload failed: backup is incomplete. {why}")]
    Incomplete {
        /// The missing piece.
        why: String,
    },
    /// Another rewrap replaced the key slots in the meantime.
    #[error(
        "the key slots of {name} were replaced by another rewrap at the same time; its slots are valid now"
    )]
    Rewrapped {
        /// Name of the backup.
        name: String,
    },
    /// The store does not show whether it has replaced the key slots.
    #[error("the key slots of {name} may have been replaced: {source}")]
    MaybeRewrapped {
        /// Name of the backup.
        name: String,
        /// The store's error, or the signal that has ended the command.
        source: Box<BackupError>,
    },
    /// The backup is pinned.
    #[error("{name} is pinned")]
    Pinned {
        /// Name of the backup.
        name: String,
    },
    /// The backup is not verified, and the command requires it.
    #[error("{name} is not verified: {why}")]
    Unverified {
        /// Name of the backup.
        name: String,
        /// State of its verification.
        why: String,
    },
    /// An increment was taken by the producer's own options, and its base is not here.
    #[error("{name} is incremental, and no backup here ends at LSN {lsn}, where it begins")]
    NoBase {
        /// Name of the incremental backup.
        name: String,
        /// Log sequence number at which it begins.
        lsn: u64,
    },
    /// The server does not continue the history of the base, or that is unknown.
    #[error(transparent)]
    History(#[from] NotContinued),
    /// The backup does not come from a node of a cluster.
    #[error("{name} has no Galera position, so it cannot be restored as a cluster node")]
    NoPosition {
        /// Name of the backup.
        name: String,
    },
    /// The donor cannot supply the write sets that follow the backup.
    #[error("{address}: {what}")]
    Donor {
        /// Address of the donor.
        address: String,
        /// The reason.
        what: String,
    },
    /// The donor cannot be asked.
    #[error("{address} cannot be asked: {what}")]
    NoDonor {
        /// Address of the donor.
        address: String,
        /// The error of connection, login or statement.
        what: String,
    },
    /// The backup is complete, but not all of its objects could be locked.
    #[error("{name} is complete, but not fully locked: {source}")]
    Unlocked {
        /// Name of the backup.
        name: String,
        /// The store's error.
        source: Box<StoreError>,
    },
    /// The archive of binary logs.
    #[error(transparent)]
    Archive(#[from] crate::archive_error::ArchiveError),
    /// A restore to a stop.
    #[error(transparent)]
    Until(Box<crate::until_error::UntilError>),
    /// A comparison of restored data with a server.
    #[error(transparent)]
    Compare(Box<crate::compare_error::CompareError>),
    /// The data objects contradict the manifest, or are not a stream.
    #[error("backup {name} is damaged: {what}")]
    Damaged {
        /// Name of the backup.
        name: String,
        /// The damage, with the object.
        what: String,
    },
    /// The copy of a backup that is at the destination has lost objects, or a verification has found it damaged.
    #[error("the copy of {name} at the destination {what}")]
    DamagedCopy {
        /// Name of the copy.
        name: String,
        /// What is wrong with it.
        what: String,
    },
    /// The destination of a copy knows the backup, and its files may be on a disk that is not mounted.
    #[error("no file of the copy of {name} is at the destination: {what}")]
    CopyAway {
        /// Name of the copy.
        name: String,
        /// What looks like that.
        what: String,
    },
    /// The given keys cannot open or seal the backup.
    #[error("{0}")]
    Keys(String),
    /// The input is not of the announced kind.
    #[error("{0}")]
    Input(String),
    /// A clone with keys in clear is not stored without a seal.
    #[error("{0}, and the backup is not sealed: keys are never stored in clear")]
    ClearKeys(&'static str),
    /// The input is a tar archive, as `BACKUP SERVER` of MariaDB makes it.
    #[error("the input is a tar archive, not an xbstream")]
    TarInput,
    /// An encrypted file of the backup needs a key, or a different one.
    #[error("{what}")]
    FileKey {
        /// The file, and why.
        what: String,
    },
    /// A sealed backup whose manifest no key has authenticated.
    #[error(
        "the manifest of {name} is not authenticated: the backup was stored as a native stream, or the manifest was forged; the data may belong to another backup"
    )]
    Unvouched {
        /// Name of the backup.
        name: String,
    },
    /// Nothing on this host proves who wrote the manifest of a base: neither its own notes nor a key.
    #[error("{0}")]
    UnprovenBase(String),
    /// A key was given, but the backup is not sealed.
    #[error(
        "{name} is not sealed, but a key was given: nothing proves that a holder of the key wrote it{but}"
    )]
    Unsealed {
        /// Name of the backup.
        name: String,
        /// A note about something that looks like a proof but is none; may be empty.
        but: &'static str,
    },
    /// The requested files are not in the backup, or cannot be read separately.
    #[error("{0}")]
    Selection(String),
    /// The options do not say where a server is, or how to log in.
    #[error("{0}")]
    Login(String),
    /// A file that was requested by name is not in the backup.
    #[error("{file} is not in the backup")]
    NoFile {
        /// Name of the file.
        file: String,
    },
    /// The producer could not be started.
    #[error("cannot start {program}: {what}")]
    NotStarted {
        /// The program, as the user named it.
        program: String,
        /// The system's error.
        what: String,
    },
    /// The producer failed.
    #[error("{program} {what}")]
    Producer {
        /// The program.
        program: String,
        /// Description of the producer's failure.
        what: String,
    },
    /// The producer ended with success, and without a table.
    #[error(transparent)]
    LeftOut(#[from] xb_process::LeftOut),
    /// The producer ended with success, and without the rows of a table whose tablespace was imported.
    #[error(transparent)]
    ImportedNotDropped(#[from] xb_process::ImportedNotDropped),
    /// The server could not be cloned.
    #[error("cannot clone the server: {0}")]
    Clone(#[from] xb_clone::Error),
    /// A program that runs on the restored files failed.
    #[error("{program} {what}")]
    Program {
        /// File name of the program.
        program: String,
        /// Description of the program's failure.
        what: String,
    },
    /// The producer held locks on its server while its output was not being read.
    #[error(
        "{program} was ended so that the server continues: it blocked commits, and waited {seconds} s for the store while the spool was full"
    )]
    LockStall {
        /// The program.
        program: String,
        /// Maximum total time for which the producer may wait while it blocks commits, in seconds.
        seconds: u64,
    },
    /// As [`LockStall`](Self::LockStall), because the spool could not be written.
    #[error(
        "{program} was ended so that the server continues: it blocked commits, and waited {seconds} s because its output could not be written to the spool: {what}"
    )]
    SpoolDisk {
        /// The program.
        program: String,
        /// Maximum total time for which the producer may wait while it blocks commits, in seconds.
        seconds: u64,
        /// The system's error.
        what: String,
    },
    /// The producer held locks on its server, and waited for redo log that is gone.
    #[error(
        "{program} was ended so that the server continues: it blocked commits, and for {seconds} s tried to read one position of the redo log, which the server has probably overwritten"
    )]
    OverwrittenRedo {
        /// The program.
        program: String,
        /// Maximum time for which the producer may ask for it while it blocks commits, in seconds.
        seconds: u64,
    },
    /// The spool cannot be created.
    #[error("cannot create a spool in {dir}: {source}")]
    Spool {
        /// Directory of the spool.
        dir: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The output could not be written.
    #[error("cannot write {what}: {source}")]
    Output {
        /// Destination of the output.
        what: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The files could not be restored.
    #[error("cannot restore into {target}: {what}")]
    Restore {
        /// The target directory.
        target: String,
        /// The failure, with file and offset.
        what: String,
    },
    /// There is not enough room for the files, or a file system has run full.
    #[error("not enough room in {dir}: {what}")]
    FullDisk {
        /// The directory.
        dir: String,
        /// The needed space, or the write that failed.
        what: String,
        /// Hint.
        next: &'static str,
    },
    /// Tables could not be rescued.
    #[error("cannot rescue {table}: {what}")]
    Rescue {
        /// The table, or where it was to go.
        table: String,
        /// The failure, and the next step.
        what: String,
    },
    /// A chain cannot be consolidated.
    #[error("cannot consolidate {name}: {what}")]
    Consolidate {
        /// Its last backup, or the one that does not fit.
        name: String,
        /// Why.
        what: String,
    },
    /// A signal cancelled the command.
    #[error("interrupted by signal {0}")]
    Interrupted(i32),
    /// An internal invariant is broken.
    #[error("{0}; this is a bug")]
    Bug(&'static str),
    /// The system refused a resource that a run needs.
    #[error("{what}: {source}")]
    System {
        /// The resource.
        what: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
}

impl From<crate::until_error::UntilError> for BackupError {
    fn from(error: crate::until_error::UntilError) -> Self {
        Self::Until(Box::new(error))
    }
}

impl From<crate::compare_error::CompareError> for BackupError {
    fn from(error: crate::compare_error::CompareError) -> Self {
        Self::Compare(Box::new(error))
    }
}

impl From<StoreError> for BackupError {
    fn from(error: StoreError) -> Self {
        Self::Repo(error.into())
    }
}

impl From<NameError> for BackupError {
    fn from(error: NameError) -> Self {
        Self::Repo(error.into())
    }
}

impl BackupError {
    /// The error of a store that could not be asked, which proves nothing about its objects; any other error stays.
    pub(crate) fn outage(self) -> Result<StoreError, Self> {
        match self {
            Self::Repo(RepoError::Store(source)) if source.kind != StoreErrorKind::Rejected => {
                Ok(source)
            }
            other => Err(other),
        }
    }

    /// Makes the error of files that cannot be restored into `target`.
    pub(crate) fn of_target(target: &Path, what: String) -> Self {
        Self::Restore { target: target.display().to_string(), what }
    }

    /// Returns whether a manifest, claim or record itself cannot be read; see
    /// [`RepoError::is_of_one_object`].
    #[must_use]
    pub fn is_of_one_object(&self) -> bool {
        matches!(self, Self::Repo(error) if error.is_of_one_object())
    }

    /// Returns whether the store has answered that an object does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Repo(RepoError::Store(error)) if error.kind == StoreErrorKind::NotFound)
    }

    /// Returns the file that is not in the backup.
    #[must_use]
    pub fn no_file(&self) -> Option<&str> {
        match self {
            Self::NoFile { file } => Some(file),
            _ => None,
        }
    }

    /// Returns the error of a FIFO that is the cause.
    #[must_use]
    pub fn fifo(&self) -> Option<&FifoError> {
        match self {
            Self::Put(PackError::Read { source, .. })
            | Self::System { source, .. }
            | Self::Output { source, .. } => FifoError::within(source),
            _ => None,
        }
    }

    /// Names the pipeline stage that failed.
    #[must_use]
    pub fn stage(&self) -> &'static str {
        match self {
            Self::Repo(error) => error.stage(),
            Self::Unlocked { .. } | Self::Contradicted { .. } | Self::MaybeRewrapped { .. } => {
                "store"
            }
            Self::Put(PackError::Read { .. }) | Self::Input(_) | Self::TarInput => "read",
            Self::System { .. } if self.fifo().is_some() => "read",
            Self::Put(_) | Self::Incomplete { .. } => "stream",
            Self::Plan(_) | Self::Selection(_) | Self::Login(_) => "settings",
            Self::NoFile { .. } | Self::Spool { .. } => "settings",
            Self::Rewrapped { .. }
            | Self::Pinned { .. }
            | Self::Unverified { .. }
            | Self::NoBase { .. }
            | Self::History(_) => "catalogue",
            Self::Keys(_)
            | Self::ClearKeys(_)
            | Self::FileKey { .. }
            | Self::Unsealed { .. }
            | Self::Unvouched { .. }
            | Self::UnprovenBase(_) => "keys",
            Self::Damaged { .. } | Self::DamagedCopy { .. } | Self::CopyAway { .. } => "check",
            Self::Archive(_) => "binlog",
            Self::Until(_) => "until",
            Self::Compare(_) => "compare",
            Self::NotStarted { .. }
            | Self::Producer { .. }
            | Self::LeftOut(_)
            | Self::ImportedNotDropped(_)
            | Self::Clone(_)
            | Self::LockStall { .. }
            | Self::OverwrittenRedo { .. }
            | Self::SpoolDisk { .. } => "producer",
            Self::Output { .. } => "output",
            Self::Restore { .. } | Self::FullDisk { .. } => "restore",
            Self::Rescue { .. } => "rescue",
            Self::Consolidate { .. } => "consolidate",
            Self::Program { .. } => "prepare",
            Self::NoPosition { .. } | Self::Donor { .. } | Self::NoDonor { .. } => "galera",
            Self::Interrupted(_) => "interrupted",
            Self::Bug(_) | Self::System { .. } => "run",
        }
    }

    /// Returns advice for the operator, if there is any.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.fifo().map_or_else(|| self.own_hint(), |fifo| Some(fifo.hint()))
    }

    fn own_hint(&self) -> Option<&str> {
        match self {
            Self::Archive(error) => error.hint(),
            Self::Until(error) => error.hint(),
            Self::Compare(error) => error.hint(),
            Self::Repo(error) => error.hint(),
            Self::Unlocked { source, .. } => source.hint(),
            Self::Contradicted { .. } => Some(
                "try again later; if this persists, the store has lost the data or its index: take a new backup",
            ),
            Self::Put(PackError::Stream(error)) => Some(stream_hint(error)),
            Self::Incomplete { .. } => Some(
                "its objects stay and can be read, but it is not listed as complete; remove them with `delete`",
            ),
            Self::Input(_) => Some(
                "run mariadb-backup or xtrabackup with --stream=xbstream, and let nothing else write to its stdout; store any other input with --raw",
            ),
            Self::TarInput => Some(
                "run mariadb-backup or xtrabackup with --stream=xbstream; a tar of BACKUP SERVER can only be stored as it is, with --raw, and restored with `get NAME | tar -x`",
            ),
            Self::Plan(PlanError::Object { .. }) => Some("raise --chunk-size"),
            Self::Plan(PlanError::TooLarge { .. }) => Some("lower --chunk-size"),
            Self::Plan(_) => Some("raise --memory, or lower --chunk-size or the number of threads"),
            Self::MaybeRewrapped { .. } => Some(
                "keep the old keys and the new ones: if the new slots are stored, only they open the backup. Once the store's answers are right again, `show` names the slots, and `verify` shows which key opens it",
            ),
            Self::Rewrapped { .. } => Some(
                "run the command again with a key that opens it now, and keep the old keys and the new ones until it has succeeded",
            ),
            Self::Pinned { .. } => Some("`unpin` it first"),
            Self::Unverified { .. } => Some(
                "run `verify` at level checksum or higher, or copy it anyway with --unverified",
            ),
            Self::NotStarted { .. } => Some("install the program, or correct its path"),
            Self::History(refused) => Some(refused.hint()),
            Self::NoBase { .. } => Some(
                "take it with --incremental-from, or a full one; add --base-elsewhere if its base is kept in another place",
            ),
            Self::NoPosition { .. } => Some("take a backup with --galera-info"),
            Self::Donor { .. } => Some(
                "restore a newer backup, or let the server join by state transfer; raise gcache.size on the donors to allow older backups",
            ),
            Self::NoDonor { .. } => Some(
                "check the address, and put user and password of the donor into the group [client] of ~/.my.cnf",
            ),
            Self::Keys(what) => Some(keys_hint(what)),
            Self::ClearKeys(_) => Some(
                "store it with a seal, such as with --recipient: `get NAME | put --recipient=... NEW`, or take another backup",
            ),
            Self::LockStall { .. } => Some(
                "find out why the store was slow or stalled, and take a new backup: none was made. Raise --spool-size to bridge longer outages, or --lock-stall to let commits wait longer",
            ),
            Self::OverwrittenRedo { .. } => Some(
                "give the server a larger innodb_log_file_size, which one statement may have filled while the backup ran, and look for errors of its disk; then take a new backup: none was made",
            ),
            Self::SpoolDisk { .. } => Some(
                "make room for --spool-size in the directory of the spool, or choose another --spool-dir; then take a new backup: none was made",
            ),
            Self::Unvouched { .. } => Some(
                "if the backup was stored that way, add --accept-unvouched, and check what it contains",
            ),
            Self::UnprovenBase(_) => Some(
                "give the key that the base was sealed for, or take a full backup (`--or-full` does it); this host needs no key for backups of its own, as long as its --state-dir is kept",
            ),
            Self::Unsealed { .. } => Some(
                "if the backup was never sealed, leave out the key, or add --accept-unsealed; if it was sealed, it has been replaced: find out who can write to the store",
            ),
            Self::Spool { .. } => Some("choose another --spool-dir, or --spool-dir=none"),
            Self::FileKey { .. } => Some(
                "give the key that the files were encrypted with: --encrypt-key-file or --encrypt-key",
            ),
            Self::FullDisk { next, .. } => Some(next),
            Self::Rescue { what, .. } if says_full(what) => Some(
                "make room where the dump or the server writes, and run the same command again; remove a dump without `-- Complete` at its end",
            ),
            Self::Consolidate { .. } => {
                Some("take a full backup of the server instead; nothing was changed or removed")
            }
            Self::Damaged { what, .. } if what.contains(REMOVERS) => Some(
                "look for lifecycle rules that remove objects or uploads where backups are, and for programs that write there; then take the backup, or copy it, again",
            ),
            Self::DamagedCopy { .. } => Some(
                "remove it there (`xbcloud-rs delete --force`; what depends on it can be copied again), then copy it again",
            ),
            Self::CopyAway { .. } => Some(
                "mount it, then copy again; if the disk is lost, remove what is left of the copy (`xbcloud-rs delete --force`) first",
            ),
            Self::Damaged { .. } => Some("do not use the output; use another backup"),
            Self::Producer { .. } => Some("read the producer's messages, then take a new backup"),
            Self::LeftOut(_) => Some(
                "no backup was made: dump the table, drop it, and load it again without these options; or exclude it by the program's own --tables-exclude",
            ),
            Self::ImportedNotDropped(found) => Some(found.hint()),
            Self::Clone(_) => Some(
                "no backup was made: run `xbcloud-rs check` with the same --from, which shows whether a clone can begin",
            ),
            Self::Program { program, what } if what.contains(KILLED) && program == CLONE_SERVER => {
                Some(
                    "if memory ran out (the kernel's log says so), allow more, or use a larger host; empty the directory, and run the same command again; do not start a server on these files",
                )
            }
            Self::Program { what, .. } if what.contains(KILLED) => Some(
                "if memory ran out (the kernel's log says so), allow more, or use a larger host, and run the same command again; do not start a server on these files",
            ),
            Self::Program { .. } => Some("read its messages; do not start a server on these files"),
            _ => None,
        }
    }
}

impl From<getrandom::Error> for BackupError {
    fn from(error: getrandom::Error) -> Self {
        Self::System { what: "random bytes", source: std::io::Error::other(error) }
    }
}
