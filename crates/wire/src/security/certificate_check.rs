//! Verification of a certificate: its fingerprint, its chain, its name.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{CertificateDer, ServerName, TrustAnchor, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError,
    PeerIncompatible, SignatureScheme,
};
use webpki::{EndEntityCert, ExtendedKeyUsageValidator, KeyPurposeIdIter};

use crate::announce::secret::Fingerprint;
use crate::security::TlsMode;
use crate::security::x509::{Fields, public_key_parts};

/// Reasons for rejection for which the library has no error.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertRejection {
    #[error("its certificate is not the announced one")]
    Fingerprint,
    #[error("its certificate is a CA certificate that is not in the authority file")]
    IsAuthority,
    #[error("its certificate is signed by a certificate that is not a CA")]
    SignedByNone,
    #[error("its certificate is unusable: {0}")]
    Other(webpki::Error),
}

impl CertRejection {
    fn into_error(self) -> CertificateError {
        CertificateError::Other(OtherError(Arc::new(self)))
    }
}

/// The authorities that one side trusts.
#[derive(Debug)]
pub(crate) struct Trust {
    /// All certificates in the file. A peer with one of these is trusted; one that is not an
    /// authority certifies nothing else.
    certificates: Vec<CertificateDer<'static>>,
    anchors: Vec<TrustAnchor<'static>>,
    algorithms: WebPkiSupportedAlgorithms,
}

/// Accepts any key usage: MySQL's own certificates do not distinguish server and client.
struct AnyUsage;

impl ExtendedKeyUsageValidator for AnyUsage {
    fn validate(&self, _: KeyPurposeIdIter<'_, '_>) -> Result<(), webpki::Error> {
        Ok(())
    }
}

impl Trust {
    pub(crate) fn new(certificates: Vec<CertificateDer<'static>>, crypto: &CryptoProvider) -> Self {
        // The library would make a trust anchor of every certificate.
        let authorities = certificates.iter().filter(|certificate| {
            Fields::read(certificate).is_some_and(|fields| fields.is_authority())
        });
        let anchors = authorities.filter_map(|certificate| {
            webpki::anchor_from_trusted_cert(certificate).ok().map(|anchor| anchor.to_owned())
        });
        let anchors = anchors.collect();
        Self { certificates, anchors, algorithms: crypto.signature_verification_algorithms }
    }

    /// Verifies the chain, without name and usage.
    pub(crate) fn check(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), CertificateError> {
        if self.certificates.iter().any(|known| known.as_ref() == leaf.as_ref()) {
            return in_time(&fields(leaf)?, now);
        }
        let checked = match EndEntityCert::try_from(leaf) {
            Ok(parsed) => {
                let all = self.algorithms.all;
                let anchors = &self.anchors;
                let verified =
                    parsed.verify_for_usage(all, anchors, intermediates, now, AnyUsage, None, None);
                verified.map(drop).map_err(translate)
            }
            Err(webpki::Error::UnsupportedCertVersion) => self.check_version_1(leaf, now),
            Err(error) => Err(translate(error)),
        };
        match checked {
            Err(CertificateError::UnknownIssuer) if self.has_subject(fields(leaf)?.issuer) => {
                Err(CertRejection::SignedByNone.into_error())
            }
            checked => checked,
        }
    }

    /// Returns whether the file has a certificate with this subject.
    fn has_subject(&self, name: &[u8]) -> bool {
        self.certificates
            .iter()
            .any(|known| Fields::read(known).is_some_and(|fields| fields.subject == name))
    }

    /// Verifies a certificate of version 1. It has no extensions: only its dates and its signature
    /// are checked.
    fn check_version_1(
        &self,
        leaf: &CertificateDer<'_>,
        now: UnixTime,
    ) -> Result<(), CertificateError> {
        let leaf = fields(leaf)?;
        in_time(&leaf, now)?;
        let issuers = self.anchors.iter().filter(|a| a.subject.as_ref() == leaf.issuer);
        let mut known = false;
        for issuer in issuers {
            known = true;
            let spki = issuer.subject_public_key_info.as_ref();
            let Some((kind, key)) = public_key_parts(spki) else { continue };
            let signed = self.algorithms.all.iter().any(|algorithm| {
                algorithm.public_key_alg_id().as_ref() == kind
                    && algorithm.signature_alg_id().as_ref() == leaf.algorithm
                    && algorithm.verify_signature(key, leaf.signed, leaf.signature).is_ok()
            });
            if signed {
                return Ok(());
            }
        }
        Err(if known { CertificateError::BadSignature } else { CertificateError::UnknownIssuer })
    }
}

fn fields<'a>(certificate: &'a CertificateDer<'_>) -> Result<Fields<'a>, CertificateError> {
    Fields::read(certificate).ok_or(CertificateError::BadEncoding)
}

fn in_time(fields: &Fields<'_>, time: UnixTime) -> Result<(), CertificateError> {
    let (not_before, not_after) = (fields.not_before, fields.not_after);
    if time < not_before {
        Err(CertificateError::NotValidYetContext { time, not_before })
    } else if time > not_after {
        Err(CertificateError::ExpiredContext { time, not_after })
    } else {
        Ok(())
    }
}

fn translate(error: webpki::Error) -> CertificateError {
    match error {
        webpki::Error::CertExpired { time, not_after } => {
            CertificateError::ExpiredContext { time, not_after }
        }
        webpki::Error::CertNotValidYet { time, not_before } => {
            CertificateError::NotValidYetContext { time, not_before }
        }
        webpki::Error::UnknownIssuer => CertificateError::UnknownIssuer,
        webpki::Error::InvalidSignatureForPublicKey => CertificateError::BadSignature,
        webpki::Error::CaUsedAsEndEntity => CertRejection::IsAuthority.into_error(),
        webpki::Error::BadDer => CertificateError::BadEncoding,
        error => CertRejection::Other(error).into_error(),
    }
}

/// Returns whether a certificate names `host`: in its alternative names, or in its common name if
/// it has no host names there, as `openssl s_client -verify_hostname` does.
fn names(certificate: &CertificateDer<'_>, host: &str) -> bool {
    let by_common_name = || {
        Fields::read(certificate)
            .and_then(|fields| fields.common_name())
            .is_some_and(|name| name.eq_ignore_ascii_case(host))
    };
    let Ok(parsed) = EndEntityCert::try_from(certificate) else { return by_common_name() };
    let listed = ServerName::try_from(host)
        .is_ok_and(|name| parsed.verify_is_valid_for_subject_name(&name).is_ok());
    listed || (parsed.valid_dns_names().next().is_none() && by_common_name())
}

/// The donor's verification of the joiner.
#[derive(Debug)]
pub(crate) struct JoinerCheck {
    pub(crate) pin: Fingerprint,
    pub(crate) mode: TlsMode,
    /// `Some` unless the mode is `Required`.
    pub(crate) trust: Option<Trust>,
    pub(crate) host: String,
    pub(crate) algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for JoinerCheck {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let Some(trust) = &self.trust {
            trust.check(leaf, intermediates, now)?;
        }
        if self.mode == TlsMode::VerifyIdentity && !names(leaf, &self.host) {
            return Err(CertificateError::NotValidForName.into());
        }
        // Checked last, so that a wrong certificate gets the most specific explanation.
        if Fingerprint::of(leaf) != self.pin {
            return Err(CertRejection::Fingerprint.into_error().into());
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// The joiner's verification of the donor.
#[derive(Debug)]
pub(crate) struct DonorCheck {
    /// `Some` unless the mode is `Required`.
    pub(crate) trust: Option<Trust>,
    pub(crate) algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for DonorCheck {
    fn client_auth_mandatory(&self) -> bool {
        self.trust.is_some()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if let Some(trust) = &self.trust {
            trust.check(leaf, intermediates, now)?;
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// With the raw key: the library does not parse certificates of version 1.
fn verify_signature(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, Error> {
    let fields = fields(certificate)?;
    verify_tls13_signature_with_raw_key(message, &fields.public_key(), signature, algorithms)
}
