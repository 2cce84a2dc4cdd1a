//! A line of `list`: what is known of one backup.

use jiff::Timestamp;
use serde::Serialize;
use xb_binlog::NotedPosition;

use crate::manifest::clone_facts::CloneFacts;
use crate::manifest::tables::Tables;
use crate::manifest::{Base, End, Layout, Manifest, MergedLink};
use crate::records::{FailedTry, OperatorWord, Proof, SizeNote};
use crate::restorable::UNREADABLE;

/// State of a name in ROOT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// A backup: its manifest is sound.
    Complete,
    /// The manifest exists but is damaged: see `problem`.
    Damaged,
    /// The manifest exists but cannot be read now, for example in an archive class: see `problem`.
    Unreadable,
    /// The manifest is sound, but another program has removed the objects.
    Missing,
    /// A run is in progress; not a backup yet.
    Running,
    /// An ended run left data but no manifest; not a backup.
    Abandoned,
    /// Objects as the stock tool writes them, without a manifest: their completeness is not proven.
    #[serde(rename = "stock, unproven")]
    StockUnproven,
    /// Not a backup but a folder of backups: see `backups`.
    Folder,
    /// Not a backup: the objects belong to other programs.
    Foreign,
}

/// Whether a backup is full or incremental.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BackupKind {
    /// Everything: it can be restored without another backup.
    Full,
    /// Only the changes since its base.
    Incremental,
}

/// One line of a listing.
#[derive(Debug, Clone, Serialize)]
pub struct Listing {
    /// Name of the backup.
    pub name: String,
    /// State of the name.
    pub state: State,
    /// Its layout, where known.
    pub layout: Option<Layout>,
    /// The run that wrote it.
    pub run: Option<String>,
    /// When its run began, UTC.
    pub started: Option<Timestamp>,
    /// When its run ended, UTC.
    pub finished: Option<Timestamp>,
    /// Why it is unknown when it was made, so that it counts as made when it was stored.
    pub undated: Option<String>,
    /// Seconds since its run ended.
    pub age_seconds: Option<i64>,
    /// Bytes of the stream.
    pub stream_bytes: Option<u64>,
    /// Bytes in the store.
    pub stored_bytes: Option<u64>,
    /// Data objects.
    pub objects: Option<u64>,
    /// Files in the stream.
    pub files: Option<u64>,
    /// Tables of users in the stream.
    pub tables: Option<u64>,
    /// Tables of InnoDB whose definition is in the stream, and whose tablespace is not.
    pub without_tablespace: Option<Tables>,
    /// Tables of other engines whose definition is in the stream, and at least one of whose other files is
    /// not.
    pub without_files: Option<Tables>,
    /// Facts about a clone.
    pub mysql_clone: Option<CloneFacts>,
    /// Full or incremental, if the producer reported it.
    pub kind: Option<BackupKind>,
    /// Whether its producer was told to take only some of the databases or tables.
    #[serde(rename = "partial")]
    pub is_partial: bool,
    /// Base of an incremental backup.
    pub base: Option<Base>,
    /// The chain that was merged into this full backup, the full one first.
    pub consolidated_from: Vec<MergedLink>,
    /// Whether it may lack imported tablespaces: see [`Manifest::may_lack_imports`]. An increment may if the full backup of its
    /// chain may, which [`line`] does not look for.
    #[serde(skip)]
    pub may_lack_imports: bool,
    /// The operator's name for the backed-up server.
    pub server: Option<String>,
    /// Version of that server.
    pub server_version: Option<String>,
    /// Log sequence number from which the backup holds changes.
    pub from_lsn: Option<u64>,
    /// Log sequence number up to which the backup holds changes.
    pub to_lsn: Option<u64>,
    /// Binary log position and GTID, as the producer writes them.
    pub binlog_pos: Option<NotedPosition>,
    /// Galera position, `UUID:SEQNO`.
    pub galera: Option<String>,
    /// Whether our programs have encrypted its data, where known.
    pub encrypted: Option<bool>,
    /// Key slots, by kind and id; empty if the backup is not sealed.
    pub key_slots: Vec<String>,
    /// Public key of the host that has signed its manifest, trusted or not.
    pub signer: Option<String>,
    /// Level to which it is verified; the writer of the records is not checked here.
    pub verified: Option<Proof>,
    /// Seconds since the last successful verification.
    pub verified_age_seconds: Option<i64>,
    /// The last verification that ended without a result, if its level was not reached since.
    pub failed_try: Option<FailedTry>,
    /// The pin and its reason.
    pub pinned: Option<OperatorWord>,
    /// Number of backups in a folder of backups.
    pub backups: Option<u64>,
    /// Problem, or reason why the state is unknown.
    pub problem: Option<String>,
    /// Why the chain of this incremental backup cannot be restored.
    pub broken: Option<String>,
    /// Comparison with earlier backups of its kind and server, if it is much smaller than they are.
    pub shrunk: Option<String>,
    /// What was recorded about its size, so that it stays so when the backups that it was compared with are gone.
    #[serde(skip)]
    pub noted_size: Option<SizeNote>,
    /// End of the last backup of the usual size before it.
    #[serde(skip)]
    pub usual_until: Option<Timestamp>,
    /// The operator's word that its size, or the lack of a base, is as intended.
    pub accepted: Option<OperatorWord>,
    /// Whether the operator's word is for its size.
    #[serde(skip)]
    pub accepted_size: bool,
    /// Whether the operator's word is for a base that is elsewhere.
    #[serde(skip)]
    pub accepted_base: bool,
    /// Whether a restore would work now, as far as the catalogue shows.
    pub restorable: bool,
    /// When its manifest was written, by the store's clock, in seconds since 1970.
    #[serde(skip)]
    pub written: i64,
    /// Whether it is the newest of its kind and server, much smaller than those before it, and not
    /// accepted.
    #[serde(skip)]
    pub in_doubt: bool,
    /// Usual bytes of the stream: the median of the last five full backups of its server before it.
    #[serde(skip)]
    pub usual_bytes: Option<u64>,
    /// Whether its content was not inspected (`--raw`), so that it counts as no backup of a server.
    #[serde(skip)]
    pub raw: bool,
    /// SHA-256 of its manifest, hexadecimal.
    #[serde(skip)]
    pub digest: Option<String>,
    /// The backup of its chain whose base is not in this repository.
    #[serde(skip)]
    pub base_elsewhere_of: Option<String>,
    /// Whether a verification record exists that cannot be read.
    #[serde(skip)]
    pub unread_record: bool,
    /// Whether no trusted host has signed its manifest, where one has to.
    #[serde(skip)]
    pub untrusted: bool,
    /// For an unreadable manifest: when it was written, in seconds since 1970, if its backup may be
    /// incremental.
    #[serde(skip)]
    pub may_depend_since: Option<i64>,
}

impl Listing {
    /// Returns why nothing that needs this backup can be restored, apart from its own chain.
    pub fn fault(&self) -> Option<String> {
        match self.state {
            State::Complete => {}
            State::Missing => return Some("its objects are missing".to_owned()),
            State::Damaged | State::Unreadable => {
                return Some(UNREADABLE.to_owned());
            }
            _ => return Some("it has no manifest".to_owned()),
        }
        if self.raw {
            return Some("its content was not inspected (--raw)".to_owned());
        }
        if let Some(level) = self.verified.and_then(|proof| proof.failed) {
            return Some(format!("verification found it damaged at level {level}"));
        }
        self.unread_record.then(|| "its verification record cannot be read".to_owned())
    }

    /// Returns the comparison with earlier backups, if it is much smaller than they are and was not accepted.
    #[must_use]
    pub fn unaccepted(&self) -> Option<&String> {
        self.shrunk.as_ref().filter(|_| !self.accepted_size)
    }

    /// Returns whether its chain begins elsewhere, as the operator has accepted.
    #[must_use]
    pub fn is_accepted_without_base(&self) -> bool {
        self.base_elsewhere_of.is_some() && self.accepted_base && self.fault().is_none()
    }

    /// Returns whether it was verified at least to `level` without a later failure.
    #[must_use]
    pub fn is_verified(&self, level: crate::verification::Level) -> bool {
        self.verified.is_some_and(|proof| proof.reaches(level))
    }

    /// Notes that it may lack imported tablespaces, which no trial restore shows.
    pub fn doubt_imports(&mut self) {
        self.may_lack_imports = true;
        self.verified = self.verified.take().map(Proof::without_trial);
    }

    /// Describes the last verification that ended without a result, if its level was not reached
    /// since.
    #[must_use]
    pub fn open_question(&self) -> Option<String> {
        let FailedTry { level, finished, why, refused, .. } = self.failed_try.as_ref()?;
        let when = finished.strftime("%Y-%m-%d %H:%M");
        let what = if *refused { "could not begin" } else { "failed" };
        Some(format!("the last try to verify level {level} {what} ({when} UTC): {why}"))
    }
}

/// Seconds since `time`.
pub(crate) fn age(time: Timestamp) -> i64 {
    Timestamp::now().as_second() - time.as_second()
}

pub(crate) fn fill_in(listing: &mut Listing, manifest: Manifest) {
    listing.layout = Some(manifest.layout);
    let incremental = manifest.is_incremental();
    let known = !matches!(manifest.end, End::Raw | End::NativeTrailer);
    let may_lack_imports = manifest.may_lack_imports();
    listing.encrypted = Some(manifest.is_encrypted());
    listing.run = Some(manifest.run);
    listing.started = Some(manifest.started);
    listing.finished = Some(manifest.finished);
    listing.undated = manifest.undated;
    listing.age_seconds = Some(age(manifest.finished));
    listing.stream_bytes = Some(manifest.stream_bytes);
    listing.stored_bytes = Some(manifest.stored_bytes);
    listing.objects = Some(manifest.objects);
    // The content was not inspected, so its number of files is unknown.
    listing.files = known.then_some(manifest.files);
    listing.tables = manifest.tables;
    listing.without_tablespace = manifest.without_tablespace;
    listing.without_files = manifest.without_files;
    listing.raw = manifest.end == End::Raw;
    if !known {
        listing.problem = Some("content not inspected".to_owned());
    }
    let facts = manifest.source;
    listing.kind = match (incremental, facts.from_lsn, &manifest.mysql_clone) {
        (true, ..) => Some(BackupKind::Incremental),
        (false, Some(_), _) | (false, _, Some(_)) => Some(BackupKind::Full),
        (false, None, None) => None,
    };
    listing.is_partial = facts.is_partial;
    listing.mysql_clone = manifest.mysql_clone;
    listing.base = manifest.base;
    listing.may_lack_imports = may_lack_imports;
    listing.consolidated_from = manifest.consolidated_from;
    listing.server = manifest.server;
    listing.server_version = facts.server_version;
    (listing.from_lsn, listing.to_lsn) = (facts.from_lsn, facts.to_lsn);
    (listing.binlog_pos, listing.galera) = (facts.binlog_pos, facts.galera);
    let sealed = manifest.packed.and_then(|packed| packed.sealed);
    listing.key_slots = sealed.map(|sealed| sealed.key_slots).unwrap_or_default();
}

pub(crate) fn empty(name: &str, state: State) -> Listing {
    Listing {
        name: name.to_owned(),
        state,
        layout: None,
        run: None,
        started: None,
        finished: None,
        undated: None,
        age_seconds: None,
        stream_bytes: None,
        stored_bytes: None,
        objects: None,
        files: None,
        tables: None,
        without_tablespace: None,
        without_files: None,
        mysql_clone: None,
        kind: None,
        is_partial: false,
        base: None,
        consolidated_from: Vec::new(),
        may_lack_imports: false,
        server: None,
        server_version: None,
        from_lsn: None,
        to_lsn: None,
        binlog_pos: None,
        galera: None,
        encrypted: None,
        key_slots: Vec::new(),
        signer: None,
        verified: None,
        verified_age_seconds: None,
        failed_try: None,
        pinned: None,
        backups: None,
        problem: None,
        broken: None,
        shrunk: None,
        noted_size: None,
        usual_until: None,
        accepted: None,
        accepted_size: false,
        accepted_base: false,
        restorable: false,
        written: 0,
        in_doubt: false,
        usual_bytes: None,
        raw: false,
        digest: None,
        base_elsewhere_of: None,
        unread_record: false,
        untrusted: false,
        may_depend_since: None,
    }
}
