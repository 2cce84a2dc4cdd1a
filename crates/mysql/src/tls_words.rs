//! What an error of TLS says, with what to do about it.

use rustls::CertificateError;
use xb_certificates::Rejection;

/// Explains an error of TLS; one of a certificate with advice.
pub(crate) fn explain(error: &rustls::Error) -> String {
    let rustls::Error::InvalidCertificate(cause) = error else { return error.to_string() };
    let hint = match cause {
        CertificateError::UnknownIssuer => {
            "it is not signed by an authority in the file of ssl-ca: check with `openssl verify -CAfile CA.pem SERVER.pem`"
        }
        CertificateError::BadSignature => {
            "an authority of the same name, but with another key, has signed it, or one with an RSA key of less than 2048 bits: compare `openssl x509 -noout -fingerprint -in CA.pem` here and on the server"
        }
        CertificateError::NotValidForName => {
            "it does not name the host: connect to a name that it has, or set ssl-mode=VERIFY_CA"
        }
        CertificateError::InvalidPurpose => {
            "it is not a server's: check with `openssl x509 -noout -ext extendedKeyUsage -in SERVER.pem`"
        }
        CertificateError::Other(other) => match Rejection::of(other) {
            Some(Rejection::SignedByNone) => {
                "what has signed it is not a CA: put the CA certificate with basicConstraints CA:TRUE into the file of ssl-ca"
            }
            Some(Rejection::IsAuthority) => {
                "it is a CA certificate: add it to the file of ssl-ca, or set ssl-fp"
            }
            Some(rejection) => return format!("the server was rejected: {rejection}"),
            None => return error.to_string(),
        },
        cause => return format!("the server's certificate was refused: {cause}"),
    };
    format!("the server's certificate was refused: {hint}")
}
