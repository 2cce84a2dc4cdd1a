//! A certificate of one's own, with its key.

use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use crate::fields::Fields;

/// Reason why a certificate cannot be used with a key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OwnCertificateError {
    /// The key is of a kind that TLS does not use.
    #[error("{0}")]
    Key(rustls::Error),
    /// The chain is empty.
    #[error("no certificate")]
    Missing,
    /// What comes first in the chain is no certificate.
    #[error("it is not a certificate")]
    Malformed,
    /// The certificate has another public key.
    #[error("the key belongs to another certificate")]
    OtherKey,
}

/// Joins a chain, whose first certificate is one's own, with its key, after comparing them. The
/// library's own way to do so refuses certificates of version 1.
///
/// # Errors
/// [`OwnCertificateError`].
pub fn with_key(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    crypto: &CryptoProvider,
) -> Result<CertifiedKey, OwnCertificateError> {
    let key = crypto.key_provider.load_private_key(key).map_err(OwnCertificateError::Key)?;
    let leaf = chain.first().ok_or(OwnCertificateError::Missing)?;
    let fields = Fields::read(leaf).ok_or(OwnCertificateError::Malformed)?;
    match key.public_key() {
        Some(public) if public.as_ref() != fields.public_key().as_ref() => {
            Err(OwnCertificateError::OtherKey)
        }
        _ => Ok(CertifiedKey::new(chain, key)),
    }
}
