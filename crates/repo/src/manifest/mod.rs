//! The manifest describes a backup and is written last. A backup exists when its manifest does.
//!
//! It is plain JSON text, followed by one line `sha256:HEX` over the exact bytes before that line,
//! which detects accidental damage. The manifest of a sealed backup has a second line,
//! `hmac-sha256:HEX` over everything before it, with a key that only holders of the data key have. A host that signs adds a
//! last one ([`signed_text`]).

pub mod clone_facts;
pub mod history;
pub mod signed_text;
pub mod source_info;
pub mod tables;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use xb_encryptor::{MacKey, SigningKey, VerifyingKey};

use crate::hex::hex;
use crate::manifest::clone_facts::CloneFacts;
use crate::manifest::history::History;
use crate::manifest::signed_text::{CheckLineError, SignedText, attest, sign};
use crate::manifest::source_info::SourceInfo;
use crate::manifest::tables::Tables;
use crate::names::{RunId, is_data_object, of_classic};

/// Largest manifest, in bytes.
pub const MAX_LEN: usize = 1 << 20;
/// Maximum number of objects of a packed backup.
const MAX_OBJECTS: u64 = 1_000_000_000;
/// Largest number of bytes, objects, files or tables that a manifest may state. Sums of them are shown and compared.
const MAX_STATED: u64 = 1 << 53;
/// The format version we write. Readers refuse a higher one.
pub const FORMAT: u32 = 1;

/// Division of a backup into objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// One native stream, cut into objects of equal size.
    Packed,
    /// Objects of whole chunks of one file, which the stock tool can read.
    Classic,
}

impl Layout {
    /// Returns whether a key below the folder of a backup or run of this layout is that of a data object.
    #[must_use]
    pub fn has_data(self, key: &str) -> bool {
        match self {
            Self::Packed => is_data_object(key),
            Self::Classic => of_classic(key),
        }
    }
}

/// Content of a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`FORMAT`].
    pub format: u32,
    /// Layout of the data objects.
    pub layout: Layout,
    /// Name of the backup.
    pub name: String,
    /// The run that wrote the backup and this manifest.
    pub run: String,
    /// Program and version that wrote it.
    pub tool: String,
    /// When the run began, UTC.
    pub started: jiff::Timestamp,
    /// When the last data object was acknowledged, UTC.
    pub finished: jiff::Timestamp,
    /// Why it is unknown when the stream was made, which then counts as made when it was stored; absent if it is known, and
    /// from manifests of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undated: Option<String>,
    /// Number of data objects.
    pub objects: u64,
    /// Bytes in the data objects.
    pub stored_bytes: u64,
    /// Bytes of the input stream.
    pub stream_bytes: u64,
    /// Files in the stream.
    pub files: u64,
    /// Tables of users in the stream; earlier versions did not write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tables: Option<u64>,
    /// Files that the producer has compressed one by one; absent if there are none, and from manifests
    /// of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compressed_files: Option<u64>,
    /// Tables of InnoDB whose definition is in the stream, and whose tablespace is not, as `schema/table`,
    /// encoded as in file names; absent if there are none, and from manifests of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_tablespace: Option<Tables>,
    /// Tables of other engines whose definition is in the stream, and at least one of whose other files is
    /// not, named as above; absent if there are none, and from manifests of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_files: Option<Tables>,
    /// Packed only: how to read the objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packed: Option<PackedFacts>,
    /// Classic only, if all objects have one size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classic: Option<ClassicFacts>,
    /// Classic only: digest of the keys, lengths and checksums of all objects, hexadecimal; earlier
    /// versions did not write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_digest: Option<String>,
    /// Classic only: file codec and encryption that this run applied to each file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members: Option<MemberFacts>,
    /// The end rule by which the stream counted as complete.
    pub end: End,
    /// The operator's name for the backed-up server; one ROOT may hold backups of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Base of an incremental backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Base>,
    /// The program that wrote the stream, if we started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub producer: Option<Producer>,
    /// Facts about the server from the small text files in the stream.
    #[serde(default)]
    pub source: SourceInfo,
    /// Facts about a clone; absent if the stream is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mysql_clone: Option<CloneFacts>,
    /// Evidence of the server's history; earlier versions did not write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<History>,
    /// The chain that was merged into this full backup, the full one first; empty if it is of a server. Its times
    /// are those of the last of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub consolidated_from: Vec<MergedLink>,
}

/// Base of an incremental backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    /// Name of the base.
    pub name: String,
    /// Run of the base; a later backup of the same name is not the base.
    pub run: String,
}

/// A backup that was merged into another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergedLink {
    /// Name of the backup.
    pub name: String,
    /// Run of the backup.
    pub run: String,
    /// SHA-256 of the text of its manifest, hexadecimal, as in the manifest's own check line.
    pub manifest: String,
}

/// Facts that a reader of packed objects needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackedFacts {
    /// Size of every object except the last, in bytes.
    pub chunk_size: u64,
    /// SHA-256 over the objects' lengths and CRC-64/NVME values, hexadecimal.
    pub root: String,
    /// Position of the last index frame in the body.
    pub index_position: u64,
    /// Length of the last index frame with its header, in bytes.
    pub index_len: u64,
    /// Codecs in the frames; empty for a native stream that was stored unchanged.
    pub codecs: Vec<String>,
    /// ID of the native stream, 32 hexadecimal digits, if it differs from the run's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    /// Key slots, if the backup is sealed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed: Option<Sealed>,
}

/// Sizes of classic objects that were not cut as by the stock tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassicFacts {
    /// Size of every object of a file except its last, in bytes.
    pub chunk_size: u64,
    /// Number of short objects: they ended early, though not last in their file, because memory was
    /// short.
    pub short_objects: u64,
}

/// Codec and cipher that this run applied to the files of a classic backup. Those that the producer
/// applied before show only in the file names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberFacts {
    /// Codec, as `--compress` names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub codec: Option<String>,
    /// Cipher of the xbcrypt chunks: AES128, AES192 or AES256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cipher: Option<String>,
}

/// Facts about a seal, for readers without a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    /// The key slots, by kind and id.
    #[serde(rename = "ways_in")]
    pub key_slots: Vec<String>,
}

/// A manifest as it was read, with its bytes: they authenticate it.
#[derive(Debug, Clone)]
pub struct StoredManifest {
    /// The content.
    pub manifest: Manifest,
    bytes: Vec<u8>,
    digest: [u8; 32],
    text_digest: [u8; 32],
    signer: Option<VerifyingKey>,
}

impl AsRef<Manifest> for StoredManifest {
    fn as_ref(&self) -> &Manifest {
        &self.manifest
    }
}

impl AsRef<Manifest> for Manifest {
    fn as_ref(&self) -> &Manifest {
        self
    }
}

impl StoredManifest {
    /// SHA-256 over all bytes of the manifest, hexadecimal: verification records and pins name it.
    #[must_use]
    pub fn digest(&self) -> String {
        hex(&self.digest)
    }

    /// SHA-256 over the text alone, hexadecimal, as the check line has it.
    #[must_use]
    pub fn text_digest(&self) -> String {
        hex(&self.text_digest)
    }

    /// Returns the manifest's bytes, as the store has them.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Checks that a holder of the data key wrote the manifest.
    ///
    /// # Errors
    /// [`ManifestError::NotAuthentic`] if not.
    pub fn authenticate(&self, key: &MacKey) -> Result<(), ManifestError> {
        match SignedText::read(&self.bytes)?.is_by(key) {
            true => Ok(()),
            false => Err(ManifestError::NotAuthentic),
        }
    }

    /// The public key of the host that has signed it. Any host may have: whether it is to be trusted is another question.
    #[must_use]
    pub fn signer(&self) -> Option<VerifyingKey> {
        self.signer
    }

    /// Checks that one of `trusted` has signed it.
    ///
    /// # Errors
    /// [`ManifestError::NotTrusted`] if not.
    pub fn refuse_others_than(&self, trusted: &[VerifyingKey]) -> Result<(), ManifestError> {
        match self.signer.is_some_and(|signer| trusted.contains(&signer)) {
            true => Ok(()),
            false => Err(ManifestError::NotTrusted { signer: self.signer }),
        }
    }
}

/// End rule by which a stream counted as complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "rule", rename_all = "kebab-case")]
pub enum End {
    /// The producer's last file was seen.
    LastFile {
        /// Its name, or the pattern given for it.
        name: String,
    },
    /// No end was required (`--unsafe-any-end`).
    Any,
    /// The content was not inspected (`--raw`): the input's end counted as the stream's end.
    Raw,
    /// The input was a native stream with its trailer.
    NativeTrailer,
}

/// A producer that we started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Producer {
    /// File name of the program; its arguments may hold secrets and are not kept.
    pub program: String,
    /// Its exit status; always 0 in a manifest.
    pub exit: i32,
}

/// A manifest that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// The manifest is too long.
    #[error("the manifest has {len} bytes, more than the limit of {MAX_LEN}")]
    TooLong {
        /// Length of the manifest in bytes.
        len: usize,
    },
    /// The store's response to reading the manifest is invalid.
    #[error("the manifest cannot be read: {0}")]
    NotRead(xb_uploader::StoreError),
    /// The check line is missing or malformed.
    #[error("the manifest has no check line: it is truncated or damaged")]
    NoCheck,
    /// The check line does not match the text.
    #[error("the manifest is damaged: its text has digest {got}, its check line {expected}")]
    Damaged {
        /// Digest in the check line.
        expected: String,
        /// Computed digest.
        got: String,
    },
    /// The signature does not match the text.
    #[error("the manifest is damaged: the signature in its last line is not one of its text")]
    WrongSignature,
    /// The text is not a manifest.
    #[error("cannot read the manifest: {0}")]
    Malformed(#[from] serde_json::Error),
    /// A later version of this program wrote the manifest.
    #[error(
        "the manifest has format {found}, but this program reads only up to {FORMAT}: install a newer version"
    )]
    TooNew {
        /// Format of the manifest.
        found: u32,
    },
    /// The key does not authenticate the manifest.
    #[error("the manifest was changed: its authentication line does not match this key")]
    NotAuthentic,
    /// No trusted host has signed the manifest.
    #[error("{}", not_trusted(signer.as_ref()))]
    NotTrusted {
        /// The key that has.
        signer: Option<VerifyingKey>,
    },
    /// The manifest contradicts itself.
    #[error("the manifest is inconsistent: {reason}")]
    Inconsistent {
        /// The contradiction.
        reason: &'static str,
    },
}

fn not_trusted(signer: Option<&VerifyingKey>) -> String {
    match signer {
        Some(key) => format!("the manifest is signed by a host that is not trusted here: {key}"),
        None => "no host has signed the manifest, and only signed ones are trusted here".to_owned(),
    }
}

impl From<CheckLineError> for ManifestError {
    fn from(flaw: CheckLineError) -> Self {
        match flaw {
            CheckLineError::NoCheck => Self::NoCheck,
            CheckLineError::Damaged { expected, got } => Self::Damaged { expected, got },
            CheckLineError::WrongSignature => Self::WrongSignature,
        }
    }
}

impl Manifest {
    /// Encodes the manifest for the store; `key` is that of a sealed backup.
    ///
    /// # Errors
    /// [`ManifestError::TooLong`] if the result is too long.
    pub fn encode(&self, key: Option<&MacKey>) -> Result<Vec<u8>, ManifestError> {
        self.encode_signed(key, None)
    }

    /// Like [`Manifest::encode`], signed with the key of the host that writes it, if there is one.
    ///
    /// # Errors
    /// [`ManifestError::TooLong`] if the result is too long.
    pub fn encode_signed(
        &self,
        key: Option<&MacKey>,
        signer: Option<&SigningKey>,
    ) -> Result<Vec<u8>, ManifestError> {
        let text = attest(self.text()?, key);
        let text = match signer {
            Some(signer) => sign(text, signer),
            None => text,
        };
        if text.len() > MAX_LEN {
            return Err(ManifestError::TooLong { len: text.len() });
        }
        Ok(text)
    }

    fn text(&self) -> Result<Vec<u8>, ManifestError> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        Ok(text)
    }

    /// SHA-256 of the text, hexadecimal, as the check line has it.
    ///
    /// # Errors
    /// [`ManifestError::Malformed`] if it cannot be written.
    pub fn text_digest(&self) -> Result<String, ManifestError> {
        Ok(hex(&Sha256::digest(self.text()?)))
    }

    /// Parses stored bytes and checks their digest and consistency.
    ///
    /// # Errors
    /// [`ManifestError`] for anything but a sound manifest of a known format.
    pub fn decode(bytes: &[u8]) -> Result<StoredManifest, ManifestError> {
        if bytes.len() > MAX_LEN {
            return Err(ManifestError::TooLong { len: bytes.len() });
        }
        let attested = SignedText::read(bytes)?;
        let signer = attested.signer()?;
        let manifest = Self::parse(attested.text)?;
        let digest = Sha256::digest(bytes).into();
        let text_digest = Sha256::digest(attested.text).into();
        Ok(StoredManifest { manifest, bytes: bytes.to_vec(), digest, text_digest, signer })
    }

    fn parse(text: &[u8]) -> Result<Self, ManifestError> {
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let Version { format } = serde_json::from_slice(text)?;
        if format > FORMAT {
            return Err(ManifestError::TooNew { found: format });
        }
        let manifest: Self = serde_json::from_slice(text)?;
        manifest.check()?;
        Ok(manifest)
    }

    /// ID of the native stream in the objects. Packed only.
    #[must_use]
    pub fn stream_id(&self) -> Option<[u8; 16]> {
        let text = self.packed.as_ref()?.stream.as_deref().unwrap_or(&self.run);
        RunId::parse(text).map(|id| id.0)
    }

    /// Returns whether reading the backup requires a key.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.packed.as_ref().is_some_and(|packed| packed.sealed.is_some())
    }

    /// Returns whether our programs have encrypted the data: as a whole, or file by file. What a producer encrypts by
    /// itself does not count.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.is_sealed() || self.members.as_ref().is_some_and(|members| members.cipher.is_some())
    }

    /// Returns whether the input was a native stream. Then `stream_bytes` counts that stream, its content
    /// was not inspected, and no key authenticates the manifest.
    #[must_use]
    pub fn is_carried(&self) -> bool {
        self.end == End::NativeTrailer
    }

    /// Returns whether it is an increment of which nothing tells where it begins.
    #[must_use]
    pub fn is_of_unknown_base(&self) -> bool {
        self.is_incremental() && self.base.is_none() && self.source.from_lsn.is_none()
    }

    /// Returns whether the backup is incremental.
    #[must_use]
    pub fn is_incremental(&self) -> bool {
        self.base.is_some()
            || self.source.from_lsn.is_some_and(|lsn| lsn > 0)
            || self.source.backup_type.as_deref() == Some("incremental")
    }

    /// Returns whether the backup is a clone of a MySQL server, which is always full.
    #[must_use]
    pub fn is_clone(&self) -> bool {
        self.mysql_clone.is_some()
    }

    /// Returns why no increment can be based on it, if that is known. A prepared copy may have been changed by a server or by
    /// `--export`: an increment on it would lose what that has changed, without any error.
    #[must_use]
    pub fn why_no_base(&self) -> Option<&'static str> {
        if self.is_clone() {
            return Some("is a clone of MySQL, and nothing can be based on one");
        }
        let facts = &self.source;
        if !matches!(facts.backup_type.as_deref(), None | Some("full-backuped" | "incremental")) {
            return Some("was prepared before it was stored, and nothing can be based on it");
        }
        let redo = facts.redo_start_lsn.zip(facts.to_lsn);
        redo.is_some_and(|(start, end)| start > end)
            .then_some("has a redo log that begins after its end, so a server has run on its files")
    }

    /// The run, as a [`RunId`].
    #[must_use]
    pub fn run_id(&self) -> Option<RunId> {
        RunId::parse(&self.run)
    }

    fn check(&self) -> Result<(), ManifestError> {
        let inconsistent = |reason| Err(ManifestError::Inconsistent { reason });
        if self.run_id().is_none() {
            return inconsistent("the run ID is not 32 hexadecimal digits");
        }
        let stated = [self.objects, self.stored_bytes, self.stream_bytes, self.files];
        let also = [self.tables, self.compressed_files].into_iter().flatten();
        if stated.into_iter().chain(also).any(|number| number > MAX_STATED) {
            return inconsistent("it states a size that no backup can have");
        }
        if self.object_digest.as_ref().is_some_and(|digest| digest.len() != 64) {
            return inconsistent("the digest of the objects is not a SHA-256 digest");
        }
        if self.is_clone() && self.is_incremental() {
            return inconsistent("a clone cannot be incremental");
        }
        if !self.consolidated_from.is_empty() && (self.is_incremental() || self.is_clone()) {
            return inconsistent("a consolidated backup is full, and no clone");
        }
        let is_link =
            |link: &MergedLink| RunId::parse(&link.run).is_some() && link.manifest.len() == 64;
        if !self.consolidated_from.iter().all(is_link) {
            return inconsistent("a run or digest of a merged backup is invalid");
        }
        match (&self.packed, self.layout) {
            (Some(_), Layout::Packed) if self.members.is_some() || self.classic.is_some() => {
                inconsistent("a packed backup has fields of the classic layout")
            }
            (Some(packed), Layout::Packed) => {
                if packed.chunk_size == 0
                    || self.stored_bytes.div_ceil(packed.chunk_size) != self.objects
                {
                    return inconsistent("number, size and total of the objects do not match");
                }
                // The keys of objects have nine digits.
                if self.objects > MAX_OBJECTS {
                    return inconsistent("there are more objects than a backup can have");
                }
                if self.stream_id().is_none() {
                    return inconsistent("the stream ID is not 32 hexadecimal digits");
                }
                if packed.root.len() != 64 {
                    return inconsistent("the root digest is not a SHA-256 digest");
                }
                Ok(())
            }
            (None, Layout::Classic) => Ok(()),
            (None, Layout::Packed) => inconsistent("a packed backup has no object size"),
            (Some(_), Layout::Classic) => {
                inconsistent("a classic backup has an object size of the packed layout")
            }
        }
    }
}

/// A valid manifest, for tests.
#[cfg(any(test, feature = "testing"))]
pub fn sample() -> Manifest {
    Manifest {
        format: FORMAT,
        layout: Layout::Packed,
        name: "nightly".into(),
        run: "00112233445566778899aabbccddeeff".into(),
        tool: "xbcloud-rs 0.1.0".into(),
        started: jiff::Timestamp::UNIX_EPOCH,
        finished: jiff::Timestamp::UNIX_EPOCH,
        objects: 2,
        stored_bytes: 15,
        stream_bytes: 9,
        files: 1,
        tables: None,
        compressed_files: None,
        without_tablespace: None,
        undated: None,
        without_files: None,
        packed: Some(PackedFacts {
            chunk_size: 10,
            root: "0".repeat(64),
            index_position: 0,
            index_len: 0,
            codecs: vec!["none".into()],
            stream: None,
            sealed: None,
        }),
        classic: None,
        object_digest: None,
        members: None,
        end: End::LastFile { name: "xtrabackup_info".into() },
        server: None,
        base: None,
        producer: Some(Producer { program: "mariadb-backup".into(), exit: 0 }),
        source: SourceInfo::default(),
        mysql_clone: None,
        history: None,
        consolidated_from: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_back_as_written() {
        assert_eq!(Manifest::decode(&sample().encode(None).unwrap()).unwrap().manifest, sample());
    }

    #[test]
    fn only_its_key_vouches_for_a_sealed_one() {
        let fresh = || xb_encryptor::FreshKey::generate().unwrap();
        let (key, other) = (fresh(), fresh());
        let mac = |k: &xb_encryptor::FreshKey| k.key().manifest_key(&[1; 16]);
        let stored = sample().encode(Some(&mac(&key))).unwrap();
        let read = Manifest::decode(&stored).unwrap();
        read.authenticate(&mac(&key)).unwrap();
        assert!(matches!(read.authenticate(&mac(&other)), Err(ManifestError::NotAuthentic)));
        // Without its last line it is sound but not authenticated.
        let bare = Manifest::decode(&sample().encode(None).unwrap()).unwrap();
        assert!(matches!(bare.authenticate(&mac(&key)), Err(ManifestError::NotAuthentic)));
        for at in 0..stored.len() {
            let mut bad = stored.clone();
            bad[at] ^= 1;
            assert!(
                Manifest::decode(&bad).is_err_and(|_| true)
                    || Manifest::decode(&bad).unwrap().authenticate(&mac(&key)).is_err(),
                "byte {at}"
            );
        }
    }

    fn signing_key() -> SigningKey {
        SigningKey::generate().unwrap().0
    }

    #[test]
    fn a_manifest_is_of_the_host_that_signed_it() {
        let (key, other) = (signing_key(), signing_key());
        let trusted = [key.verifying_key()];
        let mac = xb_encryptor::FreshKey::generate().unwrap().key().manifest_key(&[1; 16]);
        for mac in [None, Some(&mac)] {
            let signed = sample().encode_signed(mac, Some(&key)).unwrap();
            let read = Manifest::decode(&signed).unwrap();
            read.refuse_others_than(&trusted).unwrap();
            mac.map_or(Ok(()), |mac| read.authenticate(mac)).unwrap();
            assert_eq!(read.signer(), Some(trusted[0]));
            for by in [None, Some(&other)] {
                let read = Manifest::decode(&sample().encode_signed(mac, by).unwrap()).unwrap();
                let signer = by.map(SigningKey::verifying_key);
                assert!(matches!(
                    read.refuse_others_than(&trusted),
                    Err(ManifestError::NotTrusted { signer: found }) if found == signer
                ));
            }
            for at in 0..signed.len() {
                let mut bad = signed.clone();
                bad[at] ^= 1;
                let read = Manifest::decode(&bad);
                assert!(
                    read.is_err() || read.unwrap().refuse_others_than(&trusted).is_err(),
                    "{at}"
                );
            }
        }
    }

    #[test]
    fn a_backup_that_a_server_may_have_changed_is_no_base() {
        let of = |kind: Option<&str>, start, to| {
            let mut manifest = sample();
            manifest.source.backup_type = kind.map(str::to_owned);
            (manifest.source.redo_start_lsn, manifest.source.to_lsn) = (start, to);
            manifest.why_no_base()
        };
        assert_eq!(of(None, None, None), None);
        for kind in ["full-backuped", "incremental"] {
            assert_eq!(of(Some(kind), Some(9), Some(9)), None);
            assert!(of(Some(kind), Some(10), Some(9)).unwrap().contains("a server has run"));
        }
        for kind in ["log-applied", "full-prepared", "delta-prepared"] {
            assert!(of(Some(kind), None, Some(9)).unwrap().contains("prepared"));
        }
    }

    #[test]
    fn any_flipped_bit_and_any_cut_is_noticed() {
        let good = sample().encode(None).unwrap();
        for at in 0..good.len() {
            assert!(Manifest::decode(&good[..at]).is_err(), "cut at {at}");
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                assert!(Manifest::decode(&bad).is_err(), "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn contradictions_and_later_formats_are_refused() {
        let mut wrong = sample();
        wrong.objects = 3;
        assert!(matches!(
            Manifest::decode(&wrong.encode(None).unwrap()),
            Err(ManifestError::Inconsistent { .. })
        ));
        let mut newer = sample();
        newer.format = FORMAT + 1;
        assert!(matches!(
            Manifest::decode(&newer.encode(None).unwrap()),
            Err(ManifestError::TooNew { found: 2 })
        ));
        let mut zero = sample();
        zero.packed.as_mut().unwrap().chunk_size = 0;
        assert!(Manifest::decode(&zero.encode(None).unwrap()).is_err());
    }

    #[test]
    fn sizes_that_no_sum_can_hold_are_refused() {
        let fields: [fn(&mut Manifest) -> &mut u64; 3] =
            [|m| &mut m.stored_bytes, |m| &mut m.stream_bytes, |m| &mut m.files];
        for field in fields {
            for (size, is_sound) in [(MAX_STATED, true), (MAX_STATED + 1, false), (u64::MAX, false)]
            {
                let mut manifest = sample();
                manifest.packed.as_mut().unwrap().chunk_size = 1 << 60;
                (manifest.objects, *field(&mut manifest)) = (1, size);
                let read = Manifest::decode(&manifest.encode(None).unwrap());
                assert_eq!(read.is_ok(), is_sound, "{size}");
            }
        }
        let mut manifest = sample();
        manifest.tables = Some(u64::MAX);
        assert!(Manifest::decode(&manifest.encode(None).unwrap()).is_err());
    }
}
