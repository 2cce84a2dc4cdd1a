//! TLS 1.2 or 1.3 with a server whose certificate is verified: by an authority and its name, by an authority
//! alone, or by its fingerprint. Without a check only on request, for logins that the stock clients
//! do without one.

use std::fmt;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs as provider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};
use xb_certificates::{
    Fields, Trust as Authorities, Usage, verify_tls12_signature, verify_tls13_signature, with_key,
};

use crate::error::Error;
use crate::tls_words::explain;

/// How a server proves who it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// An authority in this PEM file has signed its certificate, which names the host that the client
    /// connects to: among its alternative names, or without host names there, as its common name.
    /// The certificates that servers make for themselves do not: use their fingerprint.
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
    let config = Arc::new(config(host, trust, own)?);
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

fn config(
    host: &str,
    trust: &Trust,
    own: Option<&ClientCertificate>,
) -> Result<ClientConfig, Error> {
    let crypto = Arc::new(provider::default_provider());
    let algorithms = crypto.signature_verification_algorithms;
    let check = match trust {
        Trust::Authority(file) => Check::Identity(authorities(file, algorithms)?, host.to_owned()),
        Trust::AnyName(file) => Check::Authority(authorities(file, algorithms)?),
        Trust::Fingerprint(pin) => Check::Fingerprint(*pin),
        Trust::Unproven => Check::Nothing,
    };
    let builder = ClientConfig::builder_with_provider(Arc::clone(&crypto))
        // Servers of older releases, or built with older libraries, have no TLS 1.3.
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(tls_error)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Verifier { check, algorithms }));
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some(own) => {
            let bad = |cause| Error::Tls(format!("cannot read {}: {cause}", own.key.display()));
            let key = PrivateKeyDer::from_pem_file(&own.key).map_err(|e| bad(e.to_string()))?;
            let own = with_key(certificates(&own.chain)?, key, &crypto).map_err(|error| {
                let (chain, key) = (own.chain.display(), own.key.display());
                Error::Tls(format!(
                    "cannot use the certificate {chain} with the key {key}: {error}"
                ))
            })?;
            builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own)))
        }
    };
    config.resumption = Resumption::disabled();
    Ok(config)
}

fn authorities(file: &Path, algorithms: WebPkiSupportedAlgorithms) -> Result<Authorities, Error> {
    Ok(Authorities::new(certificates(file)?, Usage::Server, algorithms))
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
    Error::Tls(explain(&error))
}

/// Judges a server's certificate as the stock clients do.
#[derive(Debug)]
struct Verifier {
    check: Check,
    algorithms: WebPkiSupportedAlgorithms,
}

#[derive(Debug)]
enum Check {
    /// Signed by an authority, and names this host.
    Identity(Authorities, String),
    /// Signed by an authority.
    Authority(Authorities),
    Fingerprint(Fingerprint),
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
        // The library would call the handshake's signature wrong.
        if let Some(bits) = Fields::read(certificate).and_then(|fields| fields.short_rsa()) {
            return Err(rustls::Error::General(format!(
                "its certificate has an RSA key of {bits} bits, and at least 2048 are accepted: make another one on the server"
            )));
        }
        match &self.check {
            Check::Nothing => {}
            Check::Authority(trusted) => trusted.check(certificate, others, now)?,
            Check::Identity(trusted, host) => trusted.check_host(certificate, others, host, now)?,
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
