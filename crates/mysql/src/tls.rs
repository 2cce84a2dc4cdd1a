//! TLS 1.2 or 1.3 with a server whose certificate is verified: by an authority and its name, by an authority
//! alone, or by its fingerprint. Without a check only on request, for logins that the stock clients
//! do without one.

use std::fmt;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs as provider};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
    StreamOwned,
};

use crate::error::Error;

/// How a server proves who it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// An authority in this PEM file has signed its certificate, which names the host that the client
    /// connects to. The certificates that servers make for themselves do not: use their fingerprint.
    Authority(PathBuf),
    /// An authority in this PEM file has signed its certificate, which may name any host.
    AnyName(PathBuf),
    /// Its certificate has this fingerprint; name, dates and issuer do not matter.
    Fingerprint(Fingerprint),
    /// It does not prove it. The connection has TLS if the server offers it. The password itself is
    /// sent only over TLS to an address of this host; anywhere else, only answers to challenges are.
    Unproven,
}

/// How a client proves who it is, for accounts that require a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// PEM file with the certificate, then those of its issuers.
    pub chain: PathBuf,
    /// PEM file with its private key.
    pub key: PathBuf,
}

/// SHA-256 of a certificate in DER, as `openssl x509 -fingerprint -sha256` prints it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// The fingerprint of a certificate.
    #[must_use]
    pub fn of(certificate: &[u8]) -> Self {
        let mut bytes = [0; 32];
        let found = digest(&SHA256, certificate);
        bytes.iter_mut().zip(found.as_ref()).for_each(|(to, from)| *to = *from);
        Self(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&base16ct::lower::encode_string(&self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// 64 hexadecimal digits of either case, with or without colons.
impl FromStr for Fingerprint {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut bytes = [0; 32];
        match base16ct::mixed::decode(text.replace(':', ""), &mut bytes) {
            Ok(found) if found.len() == 32 => Ok(Self(bytes)),
            _ => Err(
                "a fingerprint has 64 hexadecimal digits: give the one that `openssl x509 -noout -fingerprint -sha256 -in CERTIFICATE` prints",
            ),
        }
    }
}

/// Does the TLS handshake on a connection to `host`, a name or an address.
pub(crate) fn connect(
    mut stream: TcpStream,
    host: &str,
    trust: &Trust,
    own: Option<&ClientCertificate>,
) -> Result<StreamOwned<ClientConnection, TcpStream>, Error> {
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| Error::Tls(format!("{host:?} is neither a host name nor an address")))?;
    let config = Arc::new(config(trust, own)?);
    let mut connection = ClientConnection::new(config, name).map_err(tls_error)?;
    while connection.is_handshaking() {
        connection.complete_io(&mut stream).map_err(|e| Error::io("starting TLS", e))?;
    }
    Ok(StreamOwned::new(connection, stream))
}

/// The fingerprint of the server's certificate.
pub(crate) fn fingerprint(
    stream: &StreamOwned<ClientConnection, TcpStream>,
) -> Result<Fingerprint, Error> {
    let first = stream.conn.peer_certificates().and_then(<[_]>::first);
    first.map(|certificate| Fingerprint::of(certificate)).ok_or(Error::NoTls)
}

fn config(trust: &Trust, own: Option<&ClientCertificate>) -> Result<ClientConfig, Error> {
    let crypto = Arc::new(provider::default_provider());
    let algorithms = crypto.signature_verification_algorithms;
    let builder = ClientConfig::builder_with_provider(crypto)
        // Servers of older releases, or built with older libraries, have no TLS 1.3.
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(tls_error)?;
    let by = |check| Arc::new(Verifier { check, algorithms });
    let builder = match trust {
        Trust::Authority(file) => builder.with_root_certificates(authorities(file)?),
        Trust::AnyName(file) => builder
            .dangerous()
            .with_custom_certificate_verifier(by(Check::Authority(authorities(file)?))),
        Trust::Fingerprint(pin) => {
            builder.dangerous().with_custom_certificate_verifier(by(Check::Fingerprint(*pin)))
        }
        Trust::Unproven => builder.dangerous().with_custom_certificate_verifier(by(Check::Nothing)),
    };
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some(own) => {
            let bad = |cause| Error::Tls(format!("cannot read {}: {cause}", own.key.display()));
            let key = PrivateKeyDer::from_pem_file(&own.key).map_err(|e| bad(e.to_string()))?;
            builder.with_client_auth_cert(certificates(&own.chain)?, key).map_err(tls_error)?
        }
    };
    config.resumption = Resumption::disabled();
    Ok(config)
}

fn authorities(file: &Path) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots.add(certificate).map_err(|e| unreadable(file, &e))?;
    }
    Ok(roots)
}

/// The certificates in a PEM file, at least one.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let all = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    match all {
        Ok(all) if Vec::is_empty(&all) => Err(unreadable(file, &"it contains no certificate")),
        all => all.map_err(|e| unreadable(file, &e)),
    }
}

fn unreadable(file: &Path, cause: &dyn fmt::Display) -> Error {
    Error::Tls(format!("cannot read the certificates in {}: {cause}", file.display()))
}

fn tls_error(error: rustls::Error) -> Error {
    Error::Tls(error.to_string())
}

/// Judges a server's certificate in a way that rustls does not have.
#[derive(Debug)]
struct Verifier {
    check: Check,
    algorithms: WebPkiSupportedAlgorithms,
}

#[derive(Debug)]
enum Check {
    Fingerprint(Fingerprint),
    Authority(RootCertStore),
    Nothing,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match &self.check {
            Check::Nothing => {}
            Check::Authority(roots) => verify_server_cert_signed_by_trust_anchor(
                &ParsedCertificate::try_from(certificate)?,
                roots,
                others,
                now,
                self.algorithms.all,
            )?,
            Check::Fingerprint(pin) => {
                let found = Fingerprint::of(certificate);
                if found != *pin {
                    return Err(rustls::Error::General(format!(
                        "its certificate has the fingerprint {found}, not {pin}: compare both with the certificate on the server"
                    )));
                }
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
