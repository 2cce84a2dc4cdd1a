//! The names of a certificate.

use std::net::IpAddr;

use rustls::pki_types::{CertificateDer, ServerName};
use webpki::EndEntityCert;

use crate::fields::Fields;

/// Returns whether a certificate names `host`, a host name or an address: in its alternative names,
/// or in its common name if it has no host names there, as OpenSSL compares them.
#[must_use]
pub fn names(certificate: &CertificateDer<'_>, host: &str) -> bool {
    let by_common_name = || {
        // The library passes over host names that it would not accept.
        let fields = Fields::read(certificate).filter(|fields| !fields.lists_hosts());
        fields.and_then(|fields| fields.common_name()).is_some_and(|name| is_named(host, name))
    };
    lists(certificate, host) || by_common_name()
}

/// Returns whether a certificate names `host` in its alternative names.
pub(crate) fn lists(certificate: &CertificateDer<'_>, host: &str) -> bool {
    let Ok(parsed) = EndEntityCert::try_from(certificate) else { return false };
    ServerName::try_from(host)
        .is_ok_and(|name| parsed.verify_is_valid_for_subject_name(&name).is_ok())
}

/// Returns whether a common name is that of `host`, or has `*` for the first label of a host name
/// with at least two more.
fn is_named(host: &str, name: &str) -> bool {
    let in_domain = || {
        let (first, domain) = host.split_once('.')?;
        let pattern = name.strip_prefix("*.")?;
        let counts = !first.is_empty() && domain.contains('.') && host.parse::<IpAddr>().is_err();
        Some(counts && pattern.eq_ignore_ascii_case(domain))
    };
    name.eq_ignore_ascii_case(host) || in_domain() == Some(true)
}

#[cfg(test)]
mod tests {
    use super::is_named;

    #[test]
    fn common_names() {
        assert!(is_named("db1.example.com", "DB1.example.com"));
        assert!(is_named("db1.example.com", "*.example.com"));
        for (host, name) in [
            ("db1.example.com", "example.com"),
            ("a.db1.example.com", "*.example.com"),
            ("example.com", "*.com"),
            (".example.com", "*.example.com"),
            ("10.0.0.1", "*.0.0.1"),
            ("db1.example.com", "*"),
            ("db1.example.com", "db*.example.com"),
        ] {
            assert!(!is_named(host, name), "{host} {name}");
        }
    }
}
