//! TLS 1.3 with a server whose certificate is verified: by an authority and its name, or by its
//! fingerprint. There is no mode without a check, and none that TLS may be missing from.

use std::fmt;
use std::net::TcpStream;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs as provider, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, PeerIncompatible, RootCertStore,
    SignatureScheme, StreamOwned,
};

use crate::error::Error;

/// How a server proves who it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// An authority in this PEM file has signed its certificate, which names the host that the client
    /// connects to. The certificates that servers make for themselves do not: use their fingerprint.
    Authority(PathBuf),
    /// Its certificate has this fingerprint; name, dates and issuer do not matter.
    Fingerprint(Fingerprint),
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
) -> Result<StreamOwned<ClientConnection, TcpStream>, Error> {
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| Error::Tls(format!("{host:?} is neither a host name nor an address")))?;
    let config = Arc::new(config(trust)?);
    let mut connection = ClientConnection::new(config, name).map_err(tls_error)?;
    while connection.is_handshaking() {
        connection.complete_io(&mut stream).map_err(|e| Error::io("starting TLS", e))?;
    }
    Ok(StreamOwned::new(connection, stream))
}

fn config(trust: &Trust) -> Result<ClientConfig, Error> {
    let crypto = Arc::new(provider::default_provider());
    let algorithms = crypto.signature_verification_algorithms;
    let builder = ClientConfig::builder_with_provider(crypto)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(tls_error)?;
    let builder = match trust {
        Trust::Authority(file) => {
            let bad = |cause: &dyn fmt::Display| {
                Error::Tls(format!("cannot read the authorities in {}: {cause}", file.display()))
            };
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_file_iter(file).map_err(|e| bad(&e))? {
                roots.add(certificate.map_err(|e| bad(&e))?).map_err(|e| bad(&e))?;
            }
            if roots.is_empty() {
                return Err(bad(&"it contains no certificate"));
            }
            builder.with_root_certificates(roots)
        }
        Trust::Fingerprint(pin) => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Pinned { pin: *pin, algorithms })),
    };
    let mut config = builder.with_no_client_auth();
    config.resumption = Resumption::disabled();
    Ok(config)
}

fn tls_error(error: rustls::Error) -> Error {
    Error::Tls(error.to_string())
}

/// Accepts exactly one certificate.
#[derive(Debug)]
struct Pinned {
    pin: Fingerprint,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let found = Fingerprint::of(certificate);
        if found == self.pin {
            return Ok(ServerCertVerified::assertion());
        }
        Err(rustls::Error::General(format!(
            "its certificate has the fingerprint {found}, not {}: compare both with the certificate on the server",
            self.pin
        )))
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
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
