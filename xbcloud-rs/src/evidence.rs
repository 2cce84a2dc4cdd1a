//! Evidence of a verification, for audits: a document of what was verified and found, and the signature of the host that
//! verified, in a file beside it.
//!
//! The signature is that of Ed25519 over the bytes of the document, 64 bytes, so that any program can check it. No signed
//! manifest is evidence, and no evidence a manifest: a manifest is no JSON to its end, and evidence has no line with a
//! digest.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use xb_cli::{Readers, write_new};
use xb_encryptor::{SIGNATURE_LEN, SigningKey, VerifyingKey};
use xb_repo::verification::{VerifiedLink, VerifyReport};

/// Version of the format.
pub(crate) const FORMAT: u32 = 1;
/// Longest document that is read, in bytes.
const MAX_LEN: u64 = 64 << 20;

/// End of a verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum VerificationEnd {
    /// Everything that was asked for holds.
    Ok,
    /// A problem was found, or the level was not reached.
    Failed,
    /// It could not be made, or not to its end.
    Error,
}

/// The document, with the report of a verification: all of it when it is written, and the part that is shown when it is
/// read.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Evidence<Report> {
    pub(crate) format: u32,
    pub(crate) result: VerificationEnd,
    /// Exit status of the command.
    pub(crate) exit: u8,
    /// Reason of the failure.
    pub(crate) error: Option<String>,
    /// Program and version.
    pub(crate) tool: String,
    /// The host that verified.
    pub(crate) host: String,
    /// Its public key.
    pub(crate) signer: String,
    /// The hosts whose backups it believes; empty: any.
    pub(crate) trusted: Vec<String>,
    /// URL of the repository, and name of the backup, as far as known.
    pub(crate) root: Option<String>,
    pub(crate) name: Option<String>,
    /// The level that was asked for, if one was.
    pub(crate) level: Option<String>,
    /// The stop up to which the archived log was to be replayed.
    pub(crate) until: Option<String>,
    /// The operator's own statements that have succeeded.
    pub(crate) statements: Vec<String>,
    pub(crate) started: Timestamp,
    pub(crate) finished: Timestamp,
    /// The report, if it came to one.
    pub(crate) verification: Option<Report>,
}

impl Evidence<ReadReport> {
    /// The level that was reached.
    pub(crate) fn reached(&self) -> Option<&str> {
        self.verification.as_ref()?.reached.as_deref()
    }
}

/// The file of the signature of a document.
pub(crate) fn signature_of(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".sig");
    name.into()
}

/// Writes the document and its signature, and replaces neither. The document comes last: without it, there is no
/// evidence.
///
/// # Errors
/// Any error of the file system. Then there is no document.
pub(crate) fn write(
    file: &Path,
    evidence: &Evidence<&VerifyReport>,
    key: &SigningKey,
) -> io::Result<()> {
    let text = serde_json::to_string_pretty(evidence)? + "\n";
    let beside = signature_of(file);
    write_new(&beside, &key.sign(text.as_bytes()), Readers::Owner)?;
    write_new(file, text.as_bytes(), Readers::Owner).inspect_err(|_| {
        let _ = std::fs::remove_file(&beside);
    })
}

/// The part of its report that is shown.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ReadReport {
    pub(crate) reached: Option<String>,
    pub(crate) authenticity: String,
    pub(crate) levels: Vec<ReadLevel>,
    pub(crate) chain: Vec<VerifiedLink>,
    pub(crate) notes: Vec<String>,
    pub(crate) warnings: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ReadLevel {
    pub(crate) level: String,
    pub(crate) ok: bool,
    pub(crate) checked: bool,
    pub(crate) what: String,
}

/// Evidence that is none.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EvidenceError {
    #[error("{}: {source}", path.display())]
    Unread { path: PathBuf, source: io::Error },
    #[error("{}: not a signature of {SIGNATURE_LEN} bytes", .0.display())]
    NoSignature(PathBuf),
    #[error("none of the given signers has signed these bytes")]
    NotSigned,
    #[error("not evidence of a verification: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("format {0} is newer than this program")]
    TooNew(u32),
}

/// Reads a document and checks its signature. Returns also its text, and the signer.
///
/// # Errors
/// [`EvidenceError`]
pub(crate) fn read(
    file: &Path,
    signature: &Path,
    signers: &[VerifyingKey],
) -> Result<(Evidence<ReadReport>, Vec<u8>, VerifyingKey), EvidenceError> {
    let text = content(file, MAX_LEN)?;
    let signed = content(signature, SIGNATURE_LEN as u64 + 1)?;
    let Ok(signed) = <[u8; SIGNATURE_LEN]>::try_from(signed) else {
        return Err(EvidenceError::NoSignature(signature.to_owned()));
    };
    let signer = signers.iter().find(|key| key.verifies(&text, &signed));
    let signer = *signer.ok_or(EvidenceError::NotSigned)?;
    // Nothing of the text is believed before.
    let read: Evidence<ReadReport> = serde_json::from_slice(&text)?;
    if read.format > FORMAT {
        return Err(EvidenceError::TooNew(read.format));
    }
    Ok((read, text, signer))
}

fn content(path: &Path, most: u64) -> Result<Vec<u8>, EvidenceError> {
    let failed = |source| EvidenceError::Unread { path: path.to_owned(), source };
    let mut content = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(most).read_to_end(&mut content).map_err(failed)?;
    Ok(content)
}
