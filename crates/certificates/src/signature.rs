//! Signatures of a handshake, verified with the key alone: the library that verifies for TLS does not
//! parse certificates of version 1.

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::CertificateDer;
use rustls::{CertificateError, DigitallySignedStruct, Error, PeerMisbehaved};
use webpki::RawPublicKeyEntity;

use crate::fields::Fields;

/// Verifies the signature of a handshake of TLS 1.3, as a verifier of certificates has to.
///
/// # Errors
/// Those of the signature, and [`CertificateError::BadEncoding`].
pub fn verify_tls13_signature(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, Error> {
    let fields = Fields::of(certificate)?;
    verify_tls13_signature_with_raw_key(message, &fields.public_key(), signature, algorithms)
}

/// Verifies the signature of a handshake of TLS 1.2, as a verifier of certificates has to.
///
/// # Errors
/// Those of the signature, and [`CertificateError::BadEncoding`].
pub fn verify_tls12_signature(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, Error> {
    let key = Fields::of(certificate)?.public_key();
    let key = RawPublicKeyEntity::try_from(&key).map_err(|_| CertificateError::BadEncoding)?;
    // Before TLS 1.3, a scheme says nothing about the curve: it has an algorithm for each.
    let mut possible = algorithms
        .mapping
        .iter()
        .filter(|(scheme, _)| *scheme == signature.scheme)
        .flat_map(|(_, algorithms)| algorithms.iter())
        .peekable();
    if possible.peek().is_none() {
        return Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into());
    }
    let signed = possible
        .any(|algorithm| key.verify_signature(*algorithm, message, signature.signature()).is_ok());
    match signed {
        true => Ok(HandshakeSignatureValid::assertion()),
        false => Err(CertificateError::BadSignature.into()),
    }
}
