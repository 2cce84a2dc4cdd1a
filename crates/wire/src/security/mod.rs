//! The security settings of a side, and the PEM files that they name.

pub(crate) mod peer_check;
pub(crate) mod proof;
pub(crate) mod tls;

use std::path::{Path, PathBuf};

use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::error::SecurityError;

/// One side's protection of a transfer.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum Security {
    /// No certificates: the joiner creates one for this transfer. A donor accepts whatever
    /// protection the joiner announces, except plain.
    #[default]
    OneTime,
    /// The operator's certificates.
    Certificates(Certificates),
    /// Neither encrypted nor authenticated. The caller must warn about it: anyone who reaches the
    /// port can send a database.
    Plain,
}

/// The operator's certificates, from the stock options.
#[derive(Debug, Clone)]
pub struct Certificates {
    /// PEM, the node's own certificate first, then those between it and the authority: `tcert`,
    /// `ssl-cert`.
    pub certificate: PathBuf,
    /// PEM, not encrypted; may be the same file: `tkey`, `ssl-key`.
    pub key: PathBuf,
    /// PEM, one or more: `tca`, `ssl-ca`. One that is not an authority's (CA:FALSE) certifies no
    /// other: it identifies only the node that has it.
    pub authority: Option<PathBuf>,
    /// `ssl-mode`.
    pub mode: TlsMode,
}

/// Checks of the peer's certificate, as in the stock option `ssl-mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsMode {
    /// Only the joiner's announcement: the fingerprint of its certificate, and the one-time secret
    /// if there is one.
    Required,
    /// The chain up to the authority, without name and key usage. A certificate that is itself in
    /// the authority's file is accepted.
    VerifyCa,
    /// Like `VerifyCa`, and on the donor: the joiner's certificate must name the host to connect
    /// to.
    VerifyIdentity,
}

/// Contents of the files.
pub(crate) struct CertificateFiles {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
    pub(crate) authority: Vec<CertificateDer<'static>>,
}

impl Certificates {
    pub(crate) fn load(&self) -> Result<CertificateFiles, SecurityError> {
        let chain = certificates("certificate", &self.certificate)?;
        let key = read("key", &self.key)?;
        let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| match error {
            PemError::NoItemsFound => SecurityError::Missing {
                what: "usable private key (it must not be encrypted)",
                path: self.key.clone(),
                hint: format!("openssl pkey -noout -in {}", self.key.display()),
            },
            error => unreadable("key", &self.key, error),
        })?;
        let authority = match &self.authority {
            Some(path) => certificates("certificate authority", path)?,
            None if self.mode == TlsMode::Required => Vec::new(),
            None => return Err(SecurityError::NoAuthority),
        };
        Ok(CertificateFiles { chain, key, authority })
    }
}

fn certificates(
    what: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, SecurityError> {
    let bytes = read(what, path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let found = found.map_err(|error| unreadable(what, path, error))?;
    if found.is_empty() {
        let hint = format!("openssl x509 -noout -subject -in {}", path.display());
        return Err(SecurityError::Missing { what, path: path.to_owned(), hint });
    }
    Ok(found)
}

/// Maximum size of a file of certificates, in bytes.
const MAX_FILE: u64 = 4 << 20;

fn read(what: &'static str, path: &Path) -> Result<zeroize::Zeroizing<Vec<u8>>, SecurityError> {
    use std::io::Read;
    let failed = |error: std::io::Error| SecurityError::Read {
        what,
        path: path.to_owned(),
        cause: error.to_string(),
    };
    let mut bytes = zeroize::Zeroizing::new(Vec::new());
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(MAX_FILE).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

// The library's own message is left out, because it may quote a line of the file.
fn unreadable(what: &'static str, path: &Path, error: PemError) -> SecurityError {
    let cause = match error {
        PemError::MissingSectionEnd { .. } => "a PEM section has no end line",
        PemError::Base64Decode(_) => "a PEM section is not base64",
        _ => "it is not PEM",
    };
    SecurityError::Read { what, path: path.to_owned(), cause: cause.to_owned() }
}
