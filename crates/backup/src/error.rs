//! The one error of a command: its first cause, with stage, place and what to do next.

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
    /// The way up failed.
    #[error(transparent)]
    Put(#[from] PackError),
    /// Settings that cannot work.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A name that no backup may have.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The manifest of a backup is damaged or of a later version.
    #[error("{key}: {source}")]
    Manifest {
        /// Its key.
        key: String,
        /// What is wrong with it.
        source: ManifestError,
    },
    /// There is a backup of that name.
    #[error("a backup named {name} is there already{state}")]
    Exists {
        /// The name.
        name: String,
        /// What is known of it.
        state: &'static str,
    },
    /// A run of that name is going on.
    #[error("another run of {name} is going on: its claim {claim} was refreshed {seconds} s ago")]
    Running {
        /// The name.
        name: String,
        /// Key of its claim.
        claim: String,
        /// Age of the claim.
        seconds: i64,
    },
    /// Its manifest cannot be read.
    #[error("{name}: {source}; which objects are its own, and what goes on from it, nobody knows")]
    Unclear {
        /// Its name.
        name: String,
        /// What is wrong with the manifest.
        source: ManifestError,
    },
    /// It is no backup: others lie below it.
    #[error("{name} is not a backup but a folder of {what}")]
    Folder {
        /// The name.
        name: String,
        /// How many backups, and some of their names.
        what: String,
    },
    /// Objects of other programs lie below the name.
    #[error("{name} holds {what}")]
    Foreign {
        /// The name.
        name: String,
        /// How many objects, and some of their keys.
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
    /// What a delete would remove is no longer what was shown.
    #[error("{name} has changed since it was shown: nothing was removed")]
    Changed {
        /// The name.
        name: String,
    },
    /// It was pinned.
    #[error("{name} is pinned")]
    Pinned {
        /// The name.
        name: String,
    },
    /// Nobody has proven it, and that was asked for.
    #[error("{name} is not verified: {why}")]
    Unverified {
        /// The name.
        name: String,
        /// What is known of it.
        why: String,
    },
    /// There is no backup of that name.
    #[error("there is no complete backup named {name}{state}")]
    NotThere {
        /// The name.
        name: String,
        /// What is known of it.
        state: &'static str,
    },
    /// Backups of several servers lie below one ROOT, and none of them was named.
    #[error("the backups here are of several servers: {servers}")]
    WhichServer {
        /// Some of them.
        servers: String,
    },
    /// An incremental backup that cannot be restored, or taken: what it goes on from does not fit.
    #[error("{name} is incremental: {what}")]
    Chain {
        /// Its name.
        name: String,
        /// What is wrong.
        what: String,
    },
    /// Other backups go on from it.
    #[error("{name} is needed by {by}, which go on from it")]
    Needed {
        /// Its name.
        name: String,
        /// Theirs.
        by: String,
    },
    /// It is of no node of a cluster.
    #[error("{name} has no position in a Galera cluster: it cannot become a node")]
    NoPosition {
        /// Its name.
        name: String,
    },
    /// A donor cannot give what came after the backup.
    #[error("{address}: {what}")]
    Donor {
        /// The donor.
        address: String,
        /// Why not.
        what: String,
    },
    /// Nobody knows whether the manifest was written.
    #[error(
        "{name}: all data is stored, but whether the manifest is, nobody could find out: {source}"
    )]
    InDoubt {
        /// The name.
        name: String,
        /// What the store said last.
        source: StoreError,
    },
    /// It is there, and not as well kept as was asked for.
    #[error("{name} is complete, but not all of it could be locked: {source}")]
    Unlocked {
        /// The name.
        name: String,
        /// What the store said.
        source: Box<StoreError>,
    },
    /// The data objects are not what the manifest says, or not a stream.
    #[error("backup {name} is damaged: {what}")]
    Damaged {
        /// The name.
        name: String,
        /// What was found, with the object.
        what: String,
    },
    /// The keys that were given do not open or seal it.
    #[error("{0}")]
    Keys(String),
    /// The input is not what was announced.
    #[error("{0}")]
    Input(String),
    /// An encrypted file of the backup wants a key, or another one.
    #[error("{what}")]
    FileKey {
        /// Which file, and why.
        what: String,
    },
    /// A sealed backup whose manifest has no key's word.
    #[error(
        "no key vouches for the manifest of {name}: it was stored as a native stream, or somebody wants it to look so; its data may be that of another backup"
    )]
    Unvouched {
        /// The name.
        name: String,
    },
    /// A key was given, and the backup is not sealed.
    #[error(
        "{name} is not sealed, and a key was given: nothing shows that the holder of the key wrote it{but}"
    )]
    Unsealed {
        /// The name.
        name: String,
        /// What looks like a proof and is none; may be empty.
        but: &'static str,
    },
    /// Files were asked for that are not in the backup, or cannot be had on their own.
    #[error("{0}")]
    Selection(String),
    /// The producer could not be started.
    #[error("cannot start {program}: {what}")]
    NotStarted {
        /// Its program, as it was given.
        program: String,
        /// What the system said.
        what: String,
    },
    /// The producer failed.
    #[error("{program} {what}")]
    Producer {
        /// Its program.
        program: String,
        /// How it failed.
        what: String,
    },
    /// A program that we run on the files failed.
    #[error("{program} {what}")]
    Program {
        /// Its file name.
        program: String,
        /// How it failed.
        what: String,
    },
    /// The producer held locks on its server, and nobody took what it wrote.
    #[error(
        "{program} held locks on the server while the store took nothing for {seconds} s and the spool had no room: it was ended so that the server goes on"
    )]
    LockStall {
        /// Its program.
        program: String,
        /// How long that was waited for.
        seconds: u64,
    },
    /// There can be no spool.
    #[error("cannot make a spool in {dir}: {source}")]
    Spool {
        /// The folder.
        dir: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The output could not be written.
    #[error("cannot write {what}: {source}")]
    Output {
        /// Where to.
        what: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The files could not be made.
    #[error("restore to {target}: {what}")]
    Restore {
        /// The target folder.
        target: String,
        /// What went wrong, with file and offset.
        what: String,
    },
    /// A signal asked us to stop.
    #[error("interrupted by signal {0}")]
    Interrupted(i32),
    /// Something that cannot happen, did.
    #[error("{0}; this is a bug")]
    Bug(&'static str),
    /// The system refused something that a run needs.
    #[error("{what}: {source}")]
    System {
        /// What was wanted.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
}

impl BackupError {
    /// The stage of the pipeline that failed, in a word.
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

    /// What the operator may do next.
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
                "nothing was kept as a backup; look why the store stood still. A larger --spool-size bridges longer outages, a longer --lock-stall keeps the server waiting",
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
