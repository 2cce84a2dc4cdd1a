//! The one error of a command: its first cause, with stage, location and a hint.

use xb_pipeline::{PackError, PlanError, StreamError};
use xb_reader::DecodeError;
use xb_uploader::StoreError;

use crate::catalog::manifest::ManifestError;
use crate::catalog::names::NameError;

/// Why a command failed.
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
        /// What is wrong with the manifest.
        source: ManifestError,
    },
    /// A backup of that name exists.
    #[error("a backup named {name} is there already{state}")]
    Exists {
        /// Name of the backup.
        name: String,
        /// What is known about the backup.
        state: &'static str,
    },
    /// Another run of that name is in progress.
    #[error("another run of {name} is going on: its claim {claim} was refreshed {seconds} s ago")]
    Running {
        /// Name of the backup.
        name: String,
        /// Key of the other run's claim.
        claim: String,
        /// Age of the claim.
        seconds: i64,
    },
    /// The manifest of a backup cannot be read, so its objects and dependants cannot be determined.
    #[error("{name}: {source}; which objects are its own, and what goes on from it, nobody knows")]
    Unclear {
        /// Name of the backup.
        name: String,
        /// What is wrong with the manifest.
        source: ManifestError,
    },
    /// The name is a folder of other backups, not a backup.
    #[error("{name} is not a backup but a folder of {what}")]
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
    /// Objects in the stock layout that may be a part of a backup, or of several.
    #[error("{name} cannot be recognised as a backup: it holds {what}")]
    Unrecognised {
        /// The name.
        name: String,
        /// Some of the keys.
        what: String,
    },
    /// The objects that a delete would remove have changed since they were shown.
    #[error("{name} has changed since it was shown: nothing was removed")]
    Changed {
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
        /// What is known about its verification.
        why: String,
    },
    /// No complete backup has that name.
    #[error("there is no complete backup named {name}{state}")]
    NotThere {
        /// Name of the backup.
        name: String,
        /// What is known about the name.
        state: &'static str,
    },
    /// ROOT holds backups of several servers, and the request names none of them.
    #[error("the backups here are of several servers: {servers}")]
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
    /// Other backups depend on this one.
    #[error("{name} is needed by {by}, which go on from it")]
    Needed {
        /// Name of this backup.
        name: String,
        /// Names of its dependants.
        by: String,
    },
    /// The backup does not come from a node of a cluster.
    #[error("{name} has no position in a Galera cluster: it cannot become a node")]
    NoPosition {
        /// Name of the backup.
        name: String,
    },
    /// The donor cannot supply the write sets that follow the backup.
    #[error("{address}: {what}")]
    Donor {
        /// Address of the donor.
        address: String,
        /// Why not.
        what: String,
    },
    /// It is unknown whether the manifest was written.
    #[error(
        "{name}: all data is stored, but whether the manifest is, nobody could find out: {source}"
    )]
    InDoubt {
        /// Name of the backup.
        name: String,
        /// The store's last error.
        source: StoreError,
    },
    /// The backup is complete, but not all of its objects could be locked.
    #[error("{name} is complete, but not all of it could be locked: {source}")]
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
        /// What was found, with the object.
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
        "no key vouches for the manifest of {name}: it was stored as a native stream, or somebody wants it to look so; its data may be that of another backup"
    )]
    Unvouched {
        /// Name of the backup.
        name: String,
    },
    /// A key was given, but the backup is not sealed.
    #[error(
        "{name} is not sealed, and a key was given: nothing shows that the holder of the key wrote it{but}"
    )]
    Unsealed {
        /// Name of the backup.
        name: String,
        /// What looks like a proof but is none; may be empty.
        but: &'static str,
    },
    /// The requested files are not in the backup, or cannot be read separately.
    #[error("{0}")]
    Selection(String),
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
        /// How the producer failed.
        what: String,
    },
    /// A program that runs on the restored files failed.
    #[error("{program} {what}")]
    Program {
        /// File name of the program.
        program: String,
        /// How the program failed.
        what: String,
    },
    /// The producer held locks on its server while its output was not being read.
    #[error(
        "{program} blocked commits on the server, and had to wait {seconds} s for the store while the spool was full: it was ended so that the server continues"
    )]
    LockStall {
        /// The program.
        program: String,
        /// How long the producer may wait in all while it blocks commits, in seconds.
        seconds: u64,
    },
    /// The spool cannot be created.
    #[error("cannot make a spool in {dir}: {source}")]
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
    #[error("restore to {target}: {what}")]
    Restore {
        /// The target directory.
        target: String,
        /// What failed, with file and offset.
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
    /// Names the pipeline stage that failed.
    #[must_use]
    pub fn stage(&self) -> &'static str {
        match self {
            Self::Store(_) | Self::InDoubt { .. } | Self::Unlocked { .. } => "store",
            Self::Put(PackError::Read { .. }) | Self::Input(_) => "read",
            Self::Put(_) => "stream",
            Self::Plan(_) | Self::Name(_) | Self::Selection(_) => "settings",
            Self::Manifest { .. }
            | Self::Exists { .. }
            | Self::NotThere { .. }
            | Self::Unclear { .. }
            | Self::Folder { .. }
            | Self::Foreign { .. }
            | Self::Unrecognised { .. }
            | Self::Changed { .. }
            | Self::Pinned { .. }
            | Self::Unverified { .. }
            | Self::WhichServer { .. }
            | Self::Chain { .. }
            | Self::Needed { .. }
            | Self::Running { .. } => "catalogue",
            Self::Keys(_)
            | Self::FileKey { .. }
            | Self::Unsealed { .. }
            | Self::Unvouched { .. } => "keys",
            Self::Damaged { .. } => "check",
            Self::NotStarted { .. } | Self::Producer { .. } | Self::LockStall { .. } => "producer",
            Self::Spool { .. } => "settings",
            Self::Output { .. } => "output",
            Self::Restore { .. } => "restore",
            Self::Program { .. } => "prepare",
            Self::NoPosition { .. } | Self::Donor { .. } => "galera",
            Self::Interrupted(_) => "interrupted",
            Self::Bug(_) | Self::System { .. } => "run",
        }
    }

    /// Returns advice for the operator, if there is any.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Store(error) => error.hint(),
            Self::Unlocked { source, .. } => source.hint(),
            Self::Put(PackError::Stream(StreamError::NotWhole(_))) => Some(
                "nothing was kept as a backup; look at the producer's own messages. For a stream of another program name its last file with --last-file=GLOB, or take the risk with --unsafe-any-end",
            ),
            Self::Put(PackError::Stream(StreamError::Unfinished(_))) => Some(
                "nothing was kept as a backup; the producer stopped early: look at its own messages",
            ),
            Self::Put(PackError::Stream(StreamError::Decode(DecodeError::Magic { .. }))) => Some(
                "the input must be an xbstream: mariadb-backup and xtrabackup write one with --stream=xbstream, and only that may go to stdout",
            ),
            Self::Put(PackError::Stream(StreamError::Name { .. })) => Some(
                "nothing was kept as a backup: no restore could take it. --raw stores any bytes as they are",
            ),
            Self::Put(PackError::Stream(_)) => Some("nothing was kept as a backup; take a new one"),
            Self::Input(_) => Some(
                "mariadb-backup and xtrabackup write an xbstream with --stream=xbstream, and only that may go to stdout; --raw stores any other bytes as they are",
            ),
            Self::Plan(PlanError::Object { .. }) => {
                Some("ask for larger objects with --chunk-size")
            }
            Self::Plan(_) => Some("raise --memory, or lower --chunk-size or the number of threads"),
            Self::Exists { .. } => Some("take another name, or remove it first with `delete`"),
            Self::Running { .. } => Some(
                "wait for it, or take another name; a claim that is not refreshed for an hour is free again, and --take-over takes that of a run that you know to be dead",
            ),
            Self::Unclear { .. } => Some(
                "a copy of the manifest brings the backup back; --force removes the manifest, and leaves objects of the packed layout to `gc`",
            ),
            Self::Folder { .. } => Some("name one of these backups; `list` shows them"),
            Self::Foreign { .. } => Some(
                "check that the place is the right one; move these objects elsewhere, then run the command again",
            ),
            Self::Unrecognised { .. } => Some(
                "check that the place is the right one: it may be a folder inside a backup, or above several; remove what must go with the store's own tools",
            ),
            Self::Changed { .. } => Some("run the command again"),
            Self::Pinned { .. } => Some("`unpin` it first"),
            Self::Unverified { .. } => Some(
                "`verify` it at the level checksum or further, or take it as it is with --unverified",
            ),
            Self::NotThere { .. } => Some("`list` shows what is there"),
            Self::Chain { .. } => Some(
                "`list` shows what is there; without its chain it is of no use, take a full backup",
            ),
            Self::Needed { .. } => {
                Some("remove those first, or say --force: then they are lost, too")
            }
            Self::NoPosition { .. } => {
                Some("mariadb-backup and xtrabackup record it with --galera-info")
            }
            Self::Donor { .. } => Some(
                "a larger gcache.size on the donors lets older backups join; a newer backup, or the server's own state transfer, does now",
            ),
            Self::WhichServer { .. } => Some("say which with --server, or name the backup"),
            Self::Keys(_) => Some(
                "a sealed backup opens with --encrypt-key-file, --identity-file, --passphrase-file or --key-command, whichever it was made for",
            ),
            Self::LockStall { .. } => Some(
                "nothing was kept as a backup; look why the store was slow or stood still. A larger --spool-size bridges longer outages; a longer --lock-stall lets commits wait longer",
            ),
            Self::Unvouched { .. } => {
                Some("if it was put so, --accept-unvouched takes it; look at what is in it")
            }
            Self::Unsealed { .. } => Some(
                "if it never was sealed, read it without the key, or with --accept-unsealed; if it was, somebody has replaced it: find out who can write to the store",
            ),
            Self::Spool { .. } => Some("name another folder with --spool-dir, or `none`"),
            Self::FileKey { .. } => Some(
                "give the key that the files were encrypted with: --encrypt-key-file, or --encrypt-key",
            ),
            Self::InDoubt { .. } => Some(
                "ask `list` when the store answers again: the backup is complete, or its data is left for `gc`",
            ),
            Self::Damaged { .. } => Some("do not use what came out of it; take another backup"),
            Self::Producer { .. } => {
                Some("nothing was kept as a backup; look at the producer's own messages above")
            }
            Self::Program { .. } => Some(
                "look at its own messages above; the files it worked on are not fit for a server",
            ),
            Self::Manifest { source: ManifestError::TooNew { .. }, .. } => None,
            Self::Manifest { .. } => {
                Some("the data objects may be whole; a copy of the manifest brings the backup back")
            }
            _ => None,
        }
    }
}
