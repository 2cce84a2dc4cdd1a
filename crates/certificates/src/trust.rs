//! Authorities, and the check of a chain of certificates up to one of them.

use std::sync::Arc;

use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, TrustAnchor, UnixTime};
use rustls::{CertificateError, OtherError};
use webpki::{EndEntityCert, ExtendedKeyUsageValidator, KeyPurposeIdIter, KeyUsage, VerifiedPath};

use crate::fields::{Fields, public_key_parts};
use crate::name::{lists, names};

/// Reasons for rejection for which the library has no error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// The peer has to have one certificate, and has another.
    #[error("its certificate is not the announced one")]
    Fingerprint,
    /// The certificate is an authority's, and not among those that are trusted.
    #[error("its certificate is a CA certificate that is not in the authority file")]
    IsAuthority,
    /// Only a certificate that may sign no others fits the certificate's issuer.
    #[error("its certificate is signed by a certificate that is not a CA")]
    SignedByNone,
    /// The signature has an algorithm that the library does not verify.
    #[error("its certificate is signed with an algorithm that is not accepted, such as SHA-1")]
    Algorithm,
    /// The library's own reason.
    #[error("its certificate is unusable: {0}")]
    Other(webpki::Error),
}

impl Rejection {
    /// The error for a handshake. [`Rejection::of`] finds the reason in it again.
    #[must_use]
    pub fn into_error(self) -> CertificateError {
        CertificateError::Other(OtherError(Arc::new(self)))
    }

    /// The reason in an error of a handshake.
    #[must_use]
    pub fn of(error: &OtherError) -> Option<&Self> {
        error.0.downcast_ref()
    }
}

/// What the peer uses its certificate for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    /// Either side of a connection: nodes of a cluster have one certificate for both.
    Any,
    /// A server. A certificate that lists its uses has to list this one.
    Server,
}

impl ExtendedKeyUsageValidator for Usage {
    fn validate(&self, listed: KeyPurposeIdIter<'_, '_>) -> Result<(), webpki::Error> {
        match self {
            Self::Any => Ok(()),
            Self::Server => KeyUsage::server_auth().validate(listed),
        }
    }
}

/// The authorities that one side trusts.
#[derive(Debug)]
pub struct Trust {
    /// All certificates in the file. A peer with one of these is trusted; one that is not an
    /// authority certifies nothing else.
    certificates: Vec<CertificateDer<'static>>,
    anchors: Vec<TrustAnchor<'static>>,
    usage: Usage,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Trust {
    /// Trusts what the authorities among `certificates` have signed, and each of `certificates`
    /// itself.
    #[must_use]
    pub fn new(
        certificates: Vec<CertificateDer<'static>>,
        usage: Usage,
        algorithms: WebPkiSupportedAlgorithms,
    ) -> Self {
        // The library would make a trust anchor of every certificate.
        let authorities = certificates.iter().filter(|certificate| {
            Fields::read(certificate).is_some_and(|fields| fields.is_authority())
        });
        let anchors = authorities.filter_map(|certificate| {
            webpki::anchor_from_trusted_cert(certificate).ok().map(|anchor| anchor.to_owned())
        });
        let anchors = anchors.collect();
        Self { certificates, anchors, usage, algorithms }
    }

    /// Verifies the chain: dates, signatures, basic constraints and the usage; not the name.
    ///
    /// # Errors
    /// The first fault of the chain that is nearest to being right.
    pub fn check(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), CertificateError> {
        self.verify(leaf, intermediates, now).map(drop)
    }

    /// Like [`check`](Self::check), and that the certificate [`names`] the host. Below an authority
    /// that limits names, its common name does not count: the limits are checked for alternative
    /// names only.
    ///
    /// # Errors
    /// Those of [`check`](Self::check), then [`CertificateError::NotValidForName`].
    pub fn check_host(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        host: &str,
        now: UnixTime,
    ) -> Result<(), CertificateError> {
        let is_limited = self.verify(leaf, intermediates, now)?;
        let is_named = if is_limited { lists(leaf, host) } else { names(leaf, host) };
        is_named.then_some(()).ok_or(CertificateError::NotValidForName)
    }

    /// Returns whether one of those that signed the chain limits names.
    fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<bool, CertificateError> {
        if self.certificates.iter().any(|known| known.as_ref() == leaf.as_ref()) {
            return in_time(&Fields::of(leaf)?, now).map(|()| false);
        }
        let checked = match EndEntityCert::try_from(leaf) {
            Ok(parsed) => {
                let (all, anchors) = (self.algorithms.all, &self.anchors);
                let verified = parsed.verify_for_usage(
                    all,
                    anchors,
                    intermediates,
                    now,
                    self.usage,
                    None,
                    None,
                );
                verified.map(|path| limits_names(&path)).map_err(translate)
            }
            Err(webpki::Error::UnsupportedCertVersion) => self.check_version_1(leaf, now),
            Err(error) => Err(translate(error)),
        };
        match checked {
            Err(CertificateError::UnknownIssuer) if self.has_subject(Fields::of(leaf)?.issuer) => {
                Err(Rejection::SignedByNone.into_error())
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
    /// are checked. Returns whether the authority limits names.
    fn check_version_1(
        &self,
        leaf: &CertificateDer<'_>,
        now: UnixTime,
    ) -> Result<bool, CertificateError> {
        let leaf = Fields::of(leaf)?;
        if leaf.has_extensions() {
            return Err(CertificateError::BadEncoding);
        }
        in_time(&leaf, now)?;
        let fits = |id: &[u8]| id == leaf.algorithm;
        let all = self.algorithms.all.iter();
        let possible: Vec<_> = all.filter(|one| fits(one.signature_alg_id().as_ref())).collect();
        let mut error = CertificateError::UnknownIssuer;
        // Several may have one name: of a key that was replaced, or of servers that each made their own.
        for issuer in self.anchors.iter().filter(|one| one.subject.as_ref() == leaf.issuer) {
            if possible.is_empty() {
                return Err(Rejection::Algorithm.into_error());
            }
            error = CertificateError::BadSignature;
            let spki = issuer.subject_public_key_info.as_ref();
            let Some((kind, key)) = public_key_parts(spki) else { continue };
            let signed = possible.iter().any(|algorithm| {
                algorithm.public_key_alg_id().as_ref() == kind
                    && algorithm.verify_signature(key, leaf.signed, leaf.signature).is_ok()
            });
            if signed {
                return Ok(issuer.name_constraints.is_some());
            }
        }
        Err(error)
    }
}

fn limits_names(path: &VerifiedPath<'_>) -> bool {
    let mut others = path.intermediate_certificates();
    path.anchor().name_constraints.is_some()
        || others.any(|one| Fields::read(&one.der()).is_none_or(|fields| fields.limits_names()))
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
        webpki::Error::RequiredEkuNotFoundContext(_) => CertificateError::InvalidPurpose,
        webpki::Error::UnsupportedSignatureAlgorithmContext(_) => Rejection::Algorithm.into_error(),
        webpki::Error::CaUsedAsEndEntity => Rejection::IsAuthority.into_error(),
        webpki::Error::BadDer => CertificateError::BadEncoding,
        error => Rejection::Other(error).into_error(),
    }
}
