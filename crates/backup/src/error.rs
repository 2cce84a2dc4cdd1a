//! The one error of a command: its first cause, with stage, location and a hint.

use xb_pipeline::{FifoError, PackError, PlanError};
use xb_uploader::{StoreError, StoreErrorKind};

use crate::catalog::history::NotContinued;
use crate::catalog::manifest::ManifestError;
use crate::catalog::names::NameError;
use crate::hints::{keys_hint, stream_hint};

/// Reason why a command failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The store refused or could not be reached.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Packing or uploading failed.
    #[error(transparent)]
    Put(#[from] PackError),
    /// The settings cannot work.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The backup name is not allowed.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The manifest of a backup is damaged or from a later version.
    #[error("{key}: {source}")]
    Manifest {
        /// Key of the manifest.
        key: String,
        /// The defect of the manifest.
        source: ManifestError,
    },
    /// A backup of that name exists.
    #[error("backup {name} already exists{state}")]
    Exists {
        /// Name of the backup.
        name: String,
        /// State of the backup.
        state: &'static str,
    },
    /// The stream is whole file by file, but its last file is missing. Its objects stay, without a
    /// manifest ([`xb_pipeline::EndRule::KnownProducerOrPart`]).
    #[error("Upload failed: backup is incomplete. {why}")]
    Incomplete {
        /// The missing piece.
        why: String,
    },
    /// Another run of that name is in progress.
    #[error(
        "another run of {name} is in progress: its claim {claim} was refreshed {seconds} s ago"
    )]
    Running {
        /// Name of the backup.
        name: String,
        /// Key of the other run's claim.
        claim: String,
        /// Age of the claim.
        seconds: i64,
    },
    /// The manifest of a backup cannot be read, so its objects and dependants cannot be determined.
    #[error("{name}: {source}; its objects and dependants cannot be determined")]
    Unclear {
        /// Name of the backup.
        name: String,
        /// Reason why the manifest cannot be read.
        source: Box<BackupError>,
    },
    /// Backups whose manifests cannot be read may depend on this one.
    #[error("{name} may be the base of {by}, whose manifest cannot be read")]
    MayBeNeeded {
        /// Name of this backup.
        name: String,
        /// Names of the backups that may depend on it.
        by: String,
    },
    /// The name is a folder of other backups, not a backup.
    #[error("{name} is not a backup, but a folder of {what}")]
    Folder {
        /// The name.
        name: String,
        /// Number of backups in the folder, and some of their names.
        what: String,
    },
    /// Objects of other programs exist below the name.
    #[error("{name} holds {what}")]
    Foreign {
        /// The name.
        name: String,
        /// Number of objects, and some of their keys.
        what: String,
    },
    /// A symbolic link in a directory that is used as a store: the objects behind it may belong to
    /// another backup.
    #[error("{link} is a symbolic link, and nothing is written or removed through links")]
    Linked {
        /// The name.
        name: String,
        /// Path of the link below the store's directory.
        link: String,
    },
    /// Objects in the stock layout that may be a part of a backup, or of several.
    #[error("cannot recognise {name} as a backup: it holds {what}")]
    Unrecognised {
        /// The name.
        name: String,
        /// Some of the keys.
        what: String,
    },
    /// The objects that a delete would remove have changed since they were shown.
    #[error("{name} has changed since its objects were listed; nothing was removed")]
    Changed {
        /// Name of the backup.
        name: String,
    },
    /// Another rewrap replaced the key slots in the meantime.
    #[error(
        "the key slots of {name} were replaced by another rewrap at the same time; its slots are valid now"
    )]
    Rewrapped {
        /// Name of the backup.
        name: String,
    },
    /// Another command changed a record at the same time.
    #[error("{what} was changed by another command at the same time")]
    Concurrent {
        /// The record, with the name of its backup.
        what: String,
    },
    /// The objects of a backup without a manifest changed while they were read.
    #[error("the objects of {name} changed while they were read")]
    Replaced {
        /// Name of the backup.
        name: String,
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
    /// No complete backup has that name.
    #[error("there is no complete backup {name}{state}")]
    NotThere {
        /// Name of the backup.
        name: String,
        /// State of the name.
        state: &'static str,
    },
    /// There are backups, and none of them can be restored.
    #[error("no backup here can be restored: {why}")]
    NotRestorable {
        /// Each backup that was skipped, and why.
        why: String,
    },
    /// ROOT holds backups of several servers, and the request names none of them.
    #[error("the backups here come from several servers: {servers}")]
    WhichServer {
        /// Some of the servers.
        servers: String,
    },
    /// An incremental backup cannot be restored or taken because its base does not fit.
    #[error("{name} is incremental: {what}")]
    Chain {
        /// Name of the incremental backup.
        name: String,
        /// What is wrong.
        what: String,
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
    /// Other backups depend on this one.
    #[error("{name} is the base of {by}")]
    Needed {
        /// Name of this backup.
        name: String,
        /// Names of its dependants.
        by: String,
    },
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
    /// It is unknown whether the manifest was written.
    #[error("{name}: data stored; manifest status unknown: {source}")]
    InDoubt {
        /// Name of the backup.
        name: String,
        /// The store's last error.
        source: StoreError,
    },
    /// The backup is complete, but not all of its objects could be locked.
    #[error("{name} is complete, but not fully locked: {source}")]
    Unlocked {
        /// Name of the backup.
        name: String,
        /// The store's error.
        source: Box<StoreError>,
    },
    /// The data objects contradict the manifest, or are not a stream.
    #[error("backup {name} is damaged: {what}")]
    Damaged {
        /// Name of the backup.
        name: String,
        /// The damage, with the object.
        what: String,
    },
    /// The given keys cannot open or seal the backup.
    #[error("{0}")]
    Keys(String),
    /// The input is not of the announced kind.
    #[error("{0}")]
    Input(String),
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

impl BackupError {
    /// Whether a manifest, claim or record itself cannot be read: it is damaged, of a newer
    /// version, archived, or encrypted with another key. Other objects may be readable.
    #[must_use]
    pub fn is_of_one_object(&self) -> bool {
        match self {
            Self::Manifest { .. } => true,
            Self::Store(error) => matches!(
                error.kind,
                StoreErrorKind::Denied | StoreErrorKind::Rejected | StoreErrorKind::Damaged
            ),
            _ => false,
        }
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
            Self::Store(_) | Self::InDoubt { .. } | Self::Unlocked { .. } => "store",
            Self::Put(PackError::Read { .. }) | Self::Input(_) => "read",
            Self::System { .. } if self.fifo().is_some() => "read",
            Self::Put(_) | Self::Incomplete { .. } => "stream",
            Self::Plan(_) | Self::Name(_) | Self::Selection(_) => "settings",
            Self::NoFile { .. } | Self::Spool { .. } => "settings",
            Self::Manifest { .. }
            | Self::Exists { .. }
            | Self::NotThere { .. }
            | Self::Unclear { .. }
            | Self::MayBeNeeded { .. }
            | Self::Folder { .. }
            | Self::Foreign { .. }
            | Self::Linked { .. }
            | Self::Unrecognised { .. }
            | Self::Changed { .. }
            | Self::Rewrapped { .. }
            | Self::Concurrent { .. }
            | Self::Replaced { .. }
            | Self::Pinned { .. }
            | Self::Unverified { .. }
            | Self::WhichServer { .. }
            | Self::NotRestorable { .. }
            | Self::Chain { .. }
            | Self::NoBase { .. }
            | Self::History(_)
            | Self::Needed { .. }
            | Self::Running { .. } => "catalogue",
            Self::Keys(_)
            | Self::FileKey { .. }
            | Self::Unsealed { .. }
            | Self::Unvouched { .. } => "keys",
            Self::Damaged { .. } => "check",
            Self::NotStarted { .. } | Self::Producer { .. } | Self::LockStall { .. } => "producer",
            Self::Output { .. } => "output",
            Self::Restore { .. } => "restore",
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
            Self::Store(error) => error.hint(),
            Self::Unlocked { source, .. } => source.hint(),
            Self::Put(PackError::Stream(error)) => Some(stream_hint(error)),
            Self::Incomplete { .. } => Some(
                "its objects stay and can be read, but it is not listed as complete; remove them with `delete`",
            ),
            Self::Input(_) => Some(
                "run mariadb-backup or xtrabackup with --stream=xbstream, and let nothing else write to its stdout; store any other input with --raw",
            ),
            Self::Plan(PlanError::Object { .. }) => Some("raise --chunk-size"),
            Self::Plan(_) => Some("raise --memory, or lower --chunk-size or the number of threads"),
            Self::Exists { .. } => Some("choose another name, or remove the backup with `delete`"),
            Self::Running { .. } => Some(
                "wait for that run, or choose another name; if you know that the run is dead, add --take-over, or wait until its claim is an hour old",
            ),
            Self::Unclear { .. } => Some(
                "put a copy of the manifest back to repair the backup, or remove the manifest with --force and the objects of the packed layout with `gc`",
            ),
            Self::Folder { .. } => Some("name one of these backups; see `list`"),
            Self::Foreign { .. } => {
                Some("check the URL; move these objects elsewhere, then run the command again")
            }
            Self::Linked { .. } => Some("remove the link, or name the backup that it leads to"),
            Self::Unrecognised { .. } => Some(
                "check the URL: it may point inside a backup, or above several; remove single objects with the store's own tools",
            ),
            Self::Changed { .. } | Self::Replaced { .. } | Self::Concurrent { .. } => {
                Some("run the command again")
            }
            Self::Rewrapped { .. } => Some("run the command again with a key that opens it now"),
            Self::Pinned { .. } => Some("`unpin` it first"),
            Self::Unverified { .. } => Some(
                "run `verify` at level checksum or higher, or copy it anyway with --unverified",
            ),
            Self::NotStarted { .. } => Some("install the program, or correct its path"),
            Self::NotThere { .. } => Some("run `list` to see the backups"),
            Self::Chain { .. } => Some(
                "check the chain with `list`; without its base an incremental backup is useless, so take a full one",
            ),
            Self::History(refused) => Some(refused.hint()),
            Self::NoBase { .. } => Some(
                "take it with --incremental-from, or a full one; add --base-elsewhere if its base is kept in another place",
            ),
            Self::Needed { .. } => {
                Some("remove the dependants first, or add --force to lose them, too")
            }
            Self::MayBeNeeded { .. } => Some(
                "make that manifest readable, or add --force: if its backup depends on this one, it is lost",
            ),
            Self::NoPosition { .. } => Some("take a backup with --galera-info"),
            Self::Donor { .. } => Some(
                "restore a newer backup, or let the server join by state transfer; raise gcache.size on the donors to allow older backups",
            ),
            Self::NoDonor { .. } => Some(
                "check the address, and put user and password of the donor into the group [client] of ~/.my.cnf",
            ),
            Self::NotRestorable { .. } => Some(
                "take a full backup; name a backup to use it all the same, and see `list` for what each one lacks",
            ),
            Self::WhichServer { .. } => Some("choose one with --server, or name the backup"),
            Self::Keys(what) => Some(keys_hint(what)),
            Self::LockStall { .. } => Some(
                "find out why the store was slow or stalled, and take a new backup: none was made. Raise --spool-size to bridge longer outages, or --lock-stall to let commits wait longer",
            ),
            Self::Unvouched { .. } => Some(
                "if the backup was stored that way, add --accept-unvouched, and check what it contains",
            ),
            Self::Unsealed { .. } => Some(
                "if the backup was never sealed, leave out the key, or add --accept-unsealed; if it was sealed, it has been replaced: find out who can write to the store",
            ),
            Self::Spool { .. } => Some("choose another --spool-dir, or --spool-dir=none"),
            Self::FileKey { .. } => Some(
                "give the key that the files were encrypted with: --encrypt-key-file or --encrypt-key",
            ),
            Self::InDoubt { .. } => Some(
                "run `list` when the store responds again: either the backup is complete, or `gc` removes its data",
            ),
            Self::Damaged { .. } => Some("do not use the output; use another backup"),
            Self::Producer { .. } => Some("read the producer's messages, then take a new backup"),
            Self::Program { .. } => {
                Some("read its messages above; do not start a server on these files")
            }
            Self::Manifest { source: ManifestError::TooNew { .. }, .. } => None,
            Self::Manifest { .. } => Some(
                "the data objects may be intact; put a copy of the manifest back to repair the backup",
            ),
            _ => None,
        }
    }
}

impl From<getrandom::Error> for BackupError {
    fn from(error: getrandom::Error) -> Self {
        Self::System { what: "random bytes", source: std::io::Error::other(error) }
    }
}
