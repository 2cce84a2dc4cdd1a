//! TLS 1.3 for both sides, and explanations of its errors.

use std::path::Path;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, Connection, Error,
    ServerConfig, ServerConnection,
};
use xb_certificates::{Fields, Rejection, Trust, Usage, with_key};

use crate::announce::Protection;
use crate::announce::address::HostPort;
use crate::announce::secret::Fingerprint;
use crate::error::SecurityError;
use crate::security::CertificateFiles;
use crate::security::peer_check::{DonorCheck, JoinerCheck};
use crate::security::{Certificates, Security, TlsMode};

/// The joiner's half.
pub(crate) struct JoinerTls {
    config: Arc<ServerConfig>,
    pub(crate) fingerprint: Fingerprint,
    words: ErrorDetails,
}

/// The donor's half.
pub(crate) struct DonorTls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    words: ErrorDetails,
}

/// Details for explanations.
#[derive(Debug, Clone)]
struct ErrorDetails {
    peer: &'static str,
    own: Option<Certificates>,
    host: Option<String>,
}

fn crypto() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

impl JoinerTls {
    /// Returns `None` without TLS.
    pub(crate) fn new(security: &Security) -> Result<Option<Self>, SecurityError> {
        let crypto = crypto();
        let (identity, fingerprint, trust, own) = match security {
            Security::Plain => return Ok(None),
            Security::OneTime => {
                let (chain, key) = one_time()?;
                let fingerprint = Fingerprint::of(&chain);
                (
                    with_key(vec![chain], key, &crypto).map_err(one_time_error)?,
                    fingerprint,
                    None,
                    None,
                )
            }
            Security::Certificates(files) => {
                let (identity, leaf, trust) = own(files, &crypto)?;
                (identity, Fingerprint::of(&leaf), trust, Some(files))
            }
        };
        let algorithms = crypto.signature_verification_algorithms;
        let builder = ServerConfig::builder_with_provider(crypto)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(one_time_error)?;
        let builder = match own {
            Some(_) => {
                builder.with_client_cert_verifier(Arc::new(DonorCheck { trust, algorithms }))
            }
            None => builder.with_client_cert_verifier(WebPkiClientVerifier::no_client_auth()),
        };
        let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(identity)));
        // Every connection is independent: no resumption, no tickets.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        let words = ErrorDetails { peer: "donor", own: own.cloned(), host: None };
        Ok(Some(Self { config: Arc::new(config), fingerprint, words }))
    }

    pub(crate) fn connection(&self) -> Result<Connection, Error> {
        Ok(ServerConnection::new(Arc::clone(&self.config))?.into())
    }

    pub(crate) fn explain(&self, error: &Error) -> String {
        self.words.explain(error)
    }
}

impl DonorTls {
    /// Returns `None` without TLS, which both sides must have set.
    pub(crate) fn new(
        security: &Security,
        protection: Protection,
        address: &HostPort,
    ) -> Result<Option<Self>, SecurityError> {
        let mismatch = |what: &str| Err(SecurityError::Mismatch { what: what.to_owned() });
        let pin = match (protection, security) {
            (Protection::Plain, Security::Plain) => return Ok(None),
            (Protection::Plain, _) => {
                return mismatch(
                    "the joiner requests a transfer without encryption, which this node does not allow: set wire-security=plain on both nodes, or on none",
                );
            }
            (_, Security::Plain) => {
                return mismatch(
                    "the joiner requests an encrypted transfer, but this node is set to plain: set wire-security=plain on both nodes, or on none",
                );
            }
            (Protection::OneTime(_), Security::Certificates(files))
                if files.mode != TlsMode::Required =>
            {
                return mismatch(
                    "ssl-mode requires a check of the joiner's certificate, but the joiner has none: set ssl-cert, ssl-key and ssl-ca there, too",
                );
            }
            (Protection::OneTime(pin) | Protection::Certificate(pin), _) => pin,
        };
        let crypto = crypto();
        let algorithms = crypto.signature_verification_algorithms;
        let (own, mode) = match security {
            Security::Certificates(files) => (Some((own(files, &crypto)?, files)), files.mode),
            _ => (None, TlsMode::Required),
        };
        let (identity, trust, files) = match own {
            Some(((identity, _, trust), files)) => (Some(identity), trust, Some(files)),
            None => (None, None, None),
        };
        let host = address.host().to_owned();
        let check = JoinerCheck { pin, mode, trust, host: host.clone(), algorithms };
        let builder = ClientConfig::builder_with_provider(crypto)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(one_time_error)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(check));
        let mut config = match identity {
            Some(identity) => {
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(identity)))
            }
            None => builder.with_no_client_auth(),
        };
        config.resumption = Resumption::disabled();
        config.enable_sni = false;
        // This name is not used: the verifier has the host itself.
        let name = ServerName::try_from("joiner").map_err(one_time_error)?;
        let words = ErrorDetails { peer: "joiner", own: files.cloned(), host: Some(host) };
        Ok(Some(Self { config: Arc::new(config), name, words }))
    }

    pub(crate) fn connection(&self) -> Result<Connection, Error> {
        Ok(ClientConnection::new(Arc::clone(&self.config), self.name.clone())?.into())
    }

    pub(crate) fn explain(&self, error: &Error) -> String {
        self.words.explain(error)
    }
}

fn one_time_error(error: impl std::fmt::Display) -> SecurityError {
    SecurityError::OneTime { cause: error.to_string() }
}

/// Creates a certificate for one transfer; only its fingerprint is ever checked.
fn one_time() -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), SecurityError> {
    let made = rcgen::generate_simple_self_signed(vec!["joiner".to_owned()]);
    let made = made.map_err(one_time_error)?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    Ok((made.cert.der().clone(), key.into()))
}

type OwnCertificate = (CertifiedKey, CertificateDer<'static>, Option<Trust>);

/// Loads the operator's files, with the checks that the other side would make anyway: errors can be
/// explained better here.
fn own(files: &Certificates, crypto: &CryptoProvider) -> Result<OwnCertificate, SecurityError> {
    let CertificateFiles { chain, key, authority } = files.load()?;
    let unusable = |cause: String| SecurityError::Unusable {
        certificate: files.certificate.clone(),
        key: files.key.clone(),
        cause,
    };
    short_key(&files.certificate, &chain)?;
    let identity = with_key(chain, key, crypto).map_err(|error| unusable(error.to_string()))?;
    let Some((leaf, intermediates)) = identity.cert.split_first() else {
        return Err(unusable("no certificate".to_owned()));
    };
    let authorities = authority.clone();
    let trust = (files.mode != TlsMode::Required)
        .then(|| Trust::new(authority, Usage::Any, crypto.signature_verification_algorithms));
    if let Some(trust) = &trust
        && let Err(error) = trust.check(leaf, intermediates, UnixTime::now())
    {
        // Another of the authorities may be the one that counts, so this is no error by itself.
        short_key(files.authority.as_ref().unwrap_or(&files.certificate), &authorities)?;
        let words = ErrorDetails { peer: "node", own: Some(files.clone()), host: None };
        let cause = words.explain(&error.into());
        return Err(SecurityError::OwnCertificate { path: files.certificate.clone(), cause });
    }
    let leaf = leaf.clone();
    Ok((identity, leaf, trust))
}

/// Refuses certificates whose RSA key is too short, which the library would describe as damaged.
fn short_key(path: &Path, chain: &[CertificateDer<'_>]) -> Result<(), SecurityError> {
    let short = chain.iter().find_map(|one| Fields::read(one)?.short_rsa());
    short.map_or(Ok(()), |bits| Err(SecurityError::ShortKey { path: path.to_owned(), bits }))
}

impl ErrorDetails {
    /// Explains an error in one sentence, with the command that shows or fixes the cause.
    fn explain(&self, error: &Error) -> String {
        match error {
            Error::InvalidCertificate(error) => self.certificate(error),
            Error::AlertReceived(alert) => self.alert(*alert),
            Error::NoCertificatesPresented => format!(
                "the {} presented no certificate: set ssl-cert and ssl-key (or tcert and tkey) there",
                self.peer
            ),
            Error::InvalidMessage(_) => {
                format!("the {} sent data that is not TLS ({error})", self.peer)
            }
            error => error.to_string(),
        }
    }

    fn certificate(&self, error: &CertificateError) -> String {
        let authority = self
            .own
            .as_ref()
            .and_then(|own| own.authority.as_ref())
            .map_or_else(|| "CA.pem".to_owned(), |path| path.display().to_string());
        let peer = self.peer;
        match error {
            CertificateError::UnknownIssuer => format!(
                "the {peer}'s certificate is not signed by an authority in {authority}: check with `openssl verify -CAfile {authority} CERT.pem`, where CERT.pem is the {peer}'s certificate"
            ),
            CertificateError::BadSignature => format!(
                "the signature of the {peer}'s certificate is wrong, perhaps because authorities of the same name have different keys: compare `openssl x509 -noout -fingerprint -in {authority}` on both nodes"
            ),
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => format!(
                "the certificate of the {peer} or of its authority has expired ({error}): check with `openssl x509 -noout -dates -in CERT.pem`, and renew it"
            ),
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => format!(
                "the {peer}'s certificate is not valid yet ({error}): check with `openssl x509 -noout -dates -in CERT.pem`, and compare the clocks of both nodes"
            ),
            CertificateError::NotValidForName => {
                let host = self.host.as_deref().unwrap_or("HOST");
                let option = if host.parse::<std::net::IpAddr>().is_ok() { "IP" } else { "DNS" };
                format!(
                    "the {peer}'s certificate does not name {host}: check with `openssl x509 -noout -subject -ext subjectAltName -in CERT.pem`; issue one with `-addext subjectAltName={option}:{host}`, or set ssl-mode=VERIFY_CA"
                )
            }
            CertificateError::Other(other) => {
                let rejection = Rejection::of(other);
                let hint = match rejection {
                    Some(Rejection::Fingerprint) => {
                        ": the peer is not the joiner that requested the transfer; compare `openssl x509 -noout -fingerprint -sha256 -in CERT.pem`".to_owned()
                    }
                    Some(Rejection::SignedByNone) => format!(
                        ": put the CA certificate with basicConstraints CA:TRUE into {authority}; check with `openssl x509 -noout -ext basicConstraints -in {authority}`"
                    ),
                    Some(Rejection::IsAuthority) => format!(
                        ": add it to {authority} on both nodes, or issue one with `-addext basicConstraints=CA:FALSE`"
                    ),
                    _ => ": check with `openssl x509 -noout -text -in CERT.pem`".to_owned(),
                };
                format!("the {peer} was rejected: {}{hint}", other.0)
            }
            error => format!(
                "the {peer}'s certificate is unusable ({error}): check with `openssl x509 -noout -text -in CERT.pem`"
            ),
        }
    }

    fn alert(&self, alert: AlertDescription) -> String {
        let peer = self.peer;
        let own = self
            .own
            .as_ref()
            .map_or_else(|| "CERT.pem".to_owned(), |own| own.certificate.display().to_string());
        match alert {
            AlertDescription::CertificateRequired => format!(
                "the {peer} requires a certificate from this node: set ssl-cert, ssl-key and ssl-ca (or tcert, tkey and tca) here"
            ),
            AlertDescription::UnknownCA => format!(
                "the {peer} does not know the authority that signed this node's certificate: check there with `openssl verify -CAfile CA.pem CERT.pem`, where CERT.pem is a copy of {own}"
            ),
            AlertDescription::CertificateExpired => format!(
                "the {peer} found this node's certificate expired or not valid yet: check with `openssl x509 -noout -dates -in {own}`, and compare the clocks of both nodes"
            ),
            AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::DecryptError => format!(
                "the {peer} refused this node's certificate ({alert:?}): read its log, and check with `openssl x509 -noout -text -in {own}`"
            ),
            alert => {
                format!(
                    "the {peer} ended the TLS handshake ({alert:?}): read its log for the reason"
                )
            }
        }
    }
}
