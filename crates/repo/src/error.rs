//! The error of the repository: its first cause, with stage, location and a hint.

use xb_uploader::{StoreError, StoreErrorKind};

use crate::manifest::ManifestError;
use crate::names::NameError;

/// Reason why the catalogue, a claim or the objects of a backup could not be read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepoError {
    /// The store refused or could not be reached.
    #[error(transparent)]
    Store(#[from] StoreError),
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
    /// A verification record cannot be parsed.
    #[error(
        "{key}: the record is damaged, or of a later format, and may hold a fault; `verify` replaces it if it passes at level restore, or a damaged one at level pages"
    )]
    Record {
        /// Key of the record, below ROOT.
        key: String,
    },
    /// A backup of that name exists.
    #[error("backup {name} already exists{state}")]
    Exists {
        /// Name of the backup.
        name: String,
        /// State of the backup.
        state: &'static str,
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
        source: Box<RepoError>,
    },
    /// Backups whose manifests cannot be read may depend on this one.
    #[error("{name} may be the base of {by}, whose manifest cannot be read")]
    MayBeNeeded {
        /// Name of this backup.
        name: String,
        /// Names of the backups that may depend on it.
        by: String,
    },
    /// The manifest is that of another run than the objects below the name, or than the one that an increment names.
    #[error(
        "{name}: the store returned the manifest of run {run}, but {what}: this may be an old answer"
    )]
    OtherRun {
        /// Name of the backup.
        name: String,
        /// The run that the manifest names.
        run: String,
        /// What is there instead.
        what: String,
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
        /// The fault.
        what: String,
    },
    /// Other backups depend on this one.
    #[error("{name} is the base of {by}")]
    Needed {
        /// Name of this backup.
        name: String,
        /// Names of its dependants.
        by: String,
    },
    /// A backup that was to stay in place of this one is gone, or another command is about to remove it.
    #[error(
        "{by}, which was to be kept in its place, is gone or is about to be removed by another command"
    )]
    Overtaken {
        /// Name of this backup.
        name: String,
        /// Name of the other one.
        by: String,
    },
    /// It is unknown whether the manifest was written.
    #[error("{name}: data stored; manifest status unknown: {source}")]
    InDoubt {
        /// Name of the backup.
        name: String,
        /// The store's last error.
        source: StoreError,
    },
    /// The system provides no random bytes.
    #[error("random bytes: {0}")]
    Random(#[from] getrandom::Error),
    /// An internal invariant is broken.
    #[error("{0}; this is a bug")]
    Bug(&'static str),
}

impl RepoError {
    /// Returns whether a manifest, claim or record itself cannot be read: it is damaged, of a newer
    /// version, archived, or encrypted with another key. Other objects may be readable.
    #[must_use]
    pub fn is_of_one_object(&self) -> bool {
        match self {
            Self::Manifest { .. } | Self::Record { .. } => true,
            Self::Store(error) => matches!(
                error.kind,
                StoreErrorKind::Denied | StoreErrorKind::Rejected | StoreErrorKind::Damaged
            ),
            _ => false,
        }
    }

    /// Names the pipeline stage that failed.
    #[must_use]
    pub fn stage(&self) -> &'static str {
        match self {
            Self::Store(_) | Self::InDoubt { .. } => "store",
            Self::Name(_) => "settings",
            Self::Random(_) | Self::Bug(_) => "run",
            _ => "catalogue",
        }
    }

    /// Returns advice for the operator, if there is any.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Store(error) => error.hint(),
            Self::Record { .. } => Some(
                "it counts as a fault until then: `latest` skips the backup, and no retention rule counts it",
            ),
            Self::Exists { .. } => Some("choose another name, or remove the backup with `delete`"),
            Self::Running { .. } => Some(
                "wait for that run, or choose another name; if you know that the run is dead, wait until its claim is an hour old, or add --take-over to `put`, `backup`, `copy` or `delete`",
            ),
            Self::Unclear { .. } => Some(
                "put a copy of the manifest back to repair the backup, or remove the manifest with --force and the objects of the packed layout with `gc`",
            ),
            Self::OtherRun { .. } => Some(
                "look for a cache or a replica between here and the store, and run the command again later; add --force if the backup is to go with everything that may depend on it",
            ),
            Self::Folder { .. } => Some("name one of these backups; see `list`"),
            Self::Foreign { .. } => {
                Some("check the URL; move these objects elsewhere, then run the command again")
            }
            Self::Linked { .. } => Some("remove the link, or name the backup that it leads to"),
            Self::Unrecognised { .. } => Some(
                "check the URL: it may point inside a backup, or above several; remove single objects with the store's own tools",
            ),
            Self::Changed { .. }
            | Self::Overtaken { .. }
            | Self::Replaced { .. }
            | Self::Concurrent { .. } => Some("run the command again"),
            Self::NotThere { .. } => Some("run `list` to see the backups"),
            Self::Chain { .. } => Some(
                "check the chain with `list`; without its base an incremental backup is useless, so take a full one",
            ),
            Self::Needed { .. } => {
                Some("remove the dependants first, or add --force to lose them, too")
            }
            Self::MayBeNeeded { .. } => Some(
                "make that manifest readable, or add --force: if its backup depends on this one, it is lost",
            ),
            Self::NotRestorable { .. } => Some(
                "take a full backup; name a backup to use it all the same, and see `list` for what each one lacks",
            ),
            Self::WhichServer { .. } => {
                Some("choose one with --server (`none` if it has no name), or name the backup")
            }
            Self::InDoubt { .. } => Some(
                "run `list` when the store responds again: either the backup is complete, or `gc` removes its data",
            ),
            Self::Manifest { source: ManifestError::TooNew { .. }, .. } => None,
            Self::Manifest { source: ManifestError::NotTrusted { .. }, .. } => Some(
                "if you know that host, add its public key to the trusted ones (--signer); otherwise someone without its private key has written this backup",
            ),
            Self::Manifest { .. } => Some(
                "the data objects may be intact; put a copy of the manifest back to repair the backup",
            ),
            Self::Name(_) | Self::Random(_) | Self::Bug(_) => None,
        }
    }
}
