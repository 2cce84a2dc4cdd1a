//! Certificates of a peer, in TLS with a server and in a state transfer.

use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, UnixTime};
use xb_certificates::{Fields, Trust, Usage, names};

/// Any bytes as the certificate of an authority and that of a peer: no panic; one that is not an
/// authority's certifies nothing else.
pub(crate) fn check(data: &[u8]) {
    let Some((len, rest)) = data.split_first_chunk() else { return };
    let (authority, peer) = rest.split_at(usize::from(u16::from_le_bytes(*len)).min(rest.len()));
    let both = is_certificate(authority) && is_certificate(peer);
    let algorithms = default_provider().signature_verification_algorithms;
    for usage in [Usage::Any, Usage::Server] {
        let known = vec![CertificateDer::from(authority.to_vec())];
        let trust = Trust::new(known, usage, algorithms);
        let (peer, now) = (CertificateDer::from(peer), UnixTime::now());
        let found = trust.check(&peer, &[], now);
        assert!(both || found.is_err());
        let named = trust.check_host(&peer, &[], "db1.example.com", now);
        assert!(named.is_err() || (found.is_ok() && names(&peer, "db1.example.com")));
        let signs =
            Fields::read(&CertificateDer::from(authority)).is_some_and(|one| one.is_authority());
        assert!(signs || authority == peer.as_ref() || found.is_err());
    }
    let _ = names(&CertificateDer::from(peer), "db1.example.com");
    let _ = is_certificate(data);
}

fn is_certificate(der: &[u8]) -> bool {
    Fields::read(&CertificateDer::from(der)).is_some_and(|fields| {
        let _ = (fields.common_name(), fields.is_authority(), fields.short_rsa());
        true
    })
}

/// A value in DER, of less than 64 KiB.
fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let len = content.len();
    let head = match len {
        0..0x80 => vec![tag, len as u8],
        0x80..0x100 => vec![tag, 0x81, len as u8],
        _ => vec![tag, 0x82, (len >> 8) as u8, len as u8],
    };
    [head, content].concat()
}

/// A certificate of version 1, which `openssl x509 -req` creates by default.
fn version_1(name: &[u8]) -> Vec<u8> {
    let algorithm = der(0x30, &[&der(6, &[&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]])]);
    let common = der(0x30, &[&der(6, &[&[0x55, 4, 3]]), &der(12, &[name])]);
    let name = der(0x30, &[&der(0x31, &[&common])]);
    let dates = der(0x30, &[&der(0x17, &[b"250101000000Z"]), &der(0x18, &[b"20990101000000Z"])]);
    let key = der(0x30, &[&algorithm, &der(3, &[&[0; 66]])]);
    let signed = der(0x30, &[&der(2, &[&[1]]), &algorithm, &name, &dates, &name, &key]);
    der(0x30, &[&signed, &algorithm, &der(3, &[&[0; 72]])])
}

/// Pairs of an authority and a peer that it has signed, that it has not, or that is itself.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
    let params = |name: &str| CertificateParams::new(vec![name.to_owned()]).unwrap();
    let (key, peer_key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut authority = params("ca");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let ca = authority.self_signed(&key).unwrap().der().to_vec();
    let issuer = Issuer::new(authority, key);
    let peer = params("db1").signed_by(&peer_key, &issuer).unwrap().der().to_vec();
    let own = params("db2").self_signed(&peer_key).unwrap().der().to_vec();
    let (old, older) = (version_1(b"ca"), version_1(b"db"));
    [(&ca, &peer), (&own, &peer), (&own, &own), (&ca, &old), (&old, &older), (&older, &ca)]
        .map(|(authority, peer)| {
            [&(authority.len() as u16).to_le_bytes()[..], authority, peer].concat()
        })
        .into()
}
