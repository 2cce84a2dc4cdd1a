//! Certificates as the manuals make them with `openssl`, and as they may be changed.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

use std::collections::HashMap;
use std::process::Command;
use std::sync::LazyLock;

use proptest::prelude::*;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SigningKey as _};
use rustls::CertificateError;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use tempfile::TempDir;
use xb_certificates::{Trust, Usage, names};

/// A folder of certificates, filled by `openssl` as in the manuals.
struct Made(TempDir);

impl Made {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn openssl(&self, words: &str) -> String {
        let mut command = Command::new("openssl");
        let out = command.args(words.split(' ')).current_dir(self.0.path()).output().unwrap();
        assert!(out.status.success(), "{words}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    }

    /// The manual's authority, of version 3.
    fn authority(&self, file: &str, name: &str, more: &str) {
        self.openssl(&format!("req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={name} -keyout {file}.key -out {file}.pem{more}"));
    }

    /// The manual's certificate, of version 1 unless it gets extensions.
    fn signed(&self, file: &str, name: &str, authority: &str, more: &str) {
        self.openssl(&format!(
            "req -newkey rsa:2048 -nodes -subj /CN={name} -keyout {file}.key -out {file}.csr"
        ));
        self.openssl(&format!("x509 -req -in {file}.csr -days 2 -CA {authority}.pem -CAkey {authority}.key -set_serial 01 -out {file}.pem{more}"));
    }

    /// All certificates, by their names.
    fn read(&self) -> HashMap<String, CertificateDer<'static>> {
        let paths = std::fs::read_dir(self.0.path()).unwrap().map(|entry| entry.unwrap().path());
        let certificates = paths.filter(|path| path.extension().is_some_and(|end| end == "pem"));
        certificates
            .map(|path| {
                let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
                (name, CertificateDer::from_pem_file(path).unwrap())
            })
            .collect()
    }
}

/// Name constraints, and a name that they exclude.
const LIMIT: &str = "nameConstraints=critical,permitted;DNS:.example.com";
const EXCLUDED: &str = "db1.example.org";

static MADE: LazyLock<HashMap<String, CertificateDer<'static>>> = LazyLock::new(|| {
    let made = Made::new();
    for (file, name) in [("ca", "ca"), ("same", "ca"), ("third", "ca"), ("other", "other")] {
        made.authority(file, name, "");
    }
    made.authority("limited", "limited", &format!(" -addext {LIMIT}"));
    made.signed("old", "db1.example.com", "ca", "");
    let text = made.openssl("x509 -in old.pem -noout -text");
    assert!(text.contains("Version: 1 "), "the manuals' way makes another version now: {text}");
    let between = format!("basicConstraints=CA:TRUE\n{LIMIT}");
    for (file, name, authority, extensions) in [
        ("server", "db1.example.com", "ca", "extendedKeyUsage=serverAuth"),
        ("client", "db1.example.com", "ca", "extendedKeyUsage=clientAuth"),
        ("named", "db1.example.com", "ca", "subjectAltName=DNS:elsewhere.example.com"),
        ("numbered", "db1.example.com", "ca", "subjectAltName=DNS:10.0.0.1"),
        ("between", "between", "ca", between.as_str()),
        ("below", EXCLUDED, "between", "extendedKeyUsage=serverAuth"),
        ("inside", "x", "between", "subjectAltName=DNS:db1.example.com"),
        ("limited-server", EXCLUDED, "limited", "extendedKeyUsage=serverAuth"),
        ("limited-named", "x", "limited", "subjectAltName=DNS:db1.example.com"),
    ] {
        std::fs::write(made.0.path().join("extensions"), extensions).unwrap();
        made.signed(file, name, authority, " -extfile extensions");
    }
    made.signed("limited-old", EXCLUDED, "limited", "");
    made.signed("sha1", "db1", "ca", " -sha1");
    made.signed("next", "db2", "old", "");
    made.read()
});

fn trust(files: &[&str], usage: Usage) -> Trust {
    let algorithms = default_provider().signature_verification_algorithms;
    Trust::new(files.iter().map(|file| MADE[*file].clone()).collect(), usage, algorithms)
}

fn check(trust: &Trust, file: &str) -> Result<(), CertificateError> {
    trust.check(&MADE[file], &[], UnixTime::now())
}

#[test]
fn a_certificate_of_version_1_is_that_of_its_authority_alone() {
    for usage in [Usage::Any, Usage::Server] {
        let of = |files: &[&str]| trust(files, usage);
        assert!(check(&of(&["ca"]), "old").is_ok() && check(&of(&["old"]), "old").is_ok());
        let unknown = check(&of(&["other"]), "old");
        assert!(matches!(unknown, Err(CertificateError::UnknownIssuer)), "{unknown:?}");
        let sha1 = check(&of(&["ca"]), "sha1");
        assert!(format!("{sha1:?}").contains("Algorithm"), "{sha1:?}");
        // It signs no others, as it is of no authority's form.
        let next = check(&of(&["old"]), "next");
        assert!(format!("{next:?}").contains("SignedByNone"), "{next:?}");
    }
}

#[test]
fn authorities_of_one_name_are_all_tried() {
    for file in ["old", "server"] {
        for many in [["same", "ca", "third"], ["ca", "same", "third"], ["third", "same", "ca"]] {
            assert!(check(&trust(&many, Usage::Server), file).is_ok(), "{file} {many:?}");
        }
        let wrong = check(&trust(&["same", "third"], Usage::Server), file);
        assert!(matches!(wrong, Err(CertificateError::BadSignature)), "{file} {wrong:?}");
    }
}

#[test]
fn a_clients_certificate_is_no_servers() {
    let any = trust(&["ca"], Usage::Any);
    let server = trust(&["ca"], Usage::Server);
    for file in ["server", "client", "named"] {
        assert!(check(&any, file).is_ok(), "{file}");
    }
    assert!(check(&server, "server").is_ok() && check(&server, "named").is_ok());
    let client = check(&server, "client");
    assert!(matches!(client, Err(CertificateError::InvalidPurpose)), "{client:?}");
}

#[test]
fn dates_count_in_both_versions() {
    let trust = trust(&["ca", "other"], Usage::Server);
    let now = UnixTime::now().as_secs();
    let at = |file, days: i64| {
        let time = now.checked_add_signed(days * 86_400).unwrap();
        let time = UnixTime::since_unix_epoch(std::time::Duration::from_secs(time));
        trust.check(&MADE[file], &[], time)
    };
    for file in ["old", "server", "other"] {
        assert!(at(file, 0).is_ok(), "{file}");
        let early = at(file, -1);
        assert!(matches!(early, Err(CertificateError::NotValidYetContext { .. })), "{early:?}");
        let late = at(file, 3);
        assert!(matches!(late, Err(CertificateError::ExpiredContext { .. })), "{late:?}");
    }
}

#[test]
fn names_are_those_of_the_certificate() {
    for (file, host, named) in [
        ("old", "db1.example.com", true),
        ("old", "DB1.EXAMPLE.COM", true),
        ("old", "db2.example.com", false),
        ("server", "db1.example.com", true),
        // Host names among the alternative names count instead of the common name.
        ("named", "elsewhere.example.com", true),
        ("named", "db1.example.com", false),
        // Even those that are none.
        ("numbered", "db1.example.com", false),
    ] {
        assert_eq!(names(&MADE[file], host), named, "{file} {host}");
    }
}

/// An authority that may only sign for some names does not sign for others by leaving the alternative names out.
#[test]
fn below_an_authority_that_limits_names_no_common_name_counts() {
    let limited = trust(&["limited", "ca"], Usage::Server);
    let chain = [MADE["between"].clone()];
    let (none, chain) = (&chain[..0], &chain[..]);
    for (file, chain, host, is_named) in [
        ("old", none, "db1.example.com", true),
        ("limited-old", none, EXCLUDED, false),
        ("limited-server", none, EXCLUDED, false),
        ("limited-named", none, "db1.example.com", true),
        ("below", chain, EXCLUDED, false),
        ("inside", chain, "db1.example.com", true),
    ] {
        let certificate = &MADE[file];
        assert!(limited.check(certificate, chain, UnixTime::now()).is_ok(), "{file}");
        let found = limited.check_host(certificate, chain, host, UnixTime::now());
        match is_named {
            true => assert!(found.is_ok(), "{file} {found:?}"),
            false => assert!(matches!(found, Err(CertificateError::NotValidForName)), "{file}"),
        }
    }
}

/// The certificate with another version in it, signed again by `key`.
fn of_version(
    version: u8,
    certificate: &CertificateDer<'_>,
    key: &KeyPair,
) -> CertificateDer<'static> {
    let bytes = &certificate[4..];
    let len = 4 + usize::from(u16::from_be_bytes([bytes[2], bytes[3]]));
    let mut signed = bytes[..len].to_vec();
    assert_eq!(signed[4..9], [0xa0, 3, 2, 1, 2]);
    signed[8] = version;
    let algorithm = &bytes[len..][..12];
    let signature = key.sign(&signed).unwrap();
    let head = [3, u8::try_from(signature.len()).unwrap() + 1, 0];
    let content = [&signed[..], algorithm, &head, &signature].concat();
    let len = u16::try_from(content.len()).unwrap().to_be_bytes();
    [&[0x30, 0x82][..], &len, &content].concat().into()
}

#[test]
fn an_older_version_has_no_extensions() {
    let (key, server_key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut authority = CertificateParams::new(vec![]).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = authority.self_signed(&key).unwrap().der().clone();
    let server = CertificateParams::new(vec!["db1.example.com".to_owned()]).unwrap();
    let server = server.signed_by(&server_key, &Issuer::new(authority, &key)).unwrap();
    let algorithms = default_provider().signature_verification_algorithms;
    let trust = Trust::new(vec![ca], Usage::Server, algorithms);
    let check = |version| {
        let certificate = of_version(version, server.der(), &key);
        trust.check(&certificate, &[], UnixTime::now())
    };
    assert!(check(2).is_ok());
    for version in [0, 1, 3] {
        let found = check(version);
        assert!(matches!(found, Err(CertificateError::BadEncoding)), "{version} {found:?}");
    }
}

proptest! {
    /// Whatever byte changes, of either version: it is refused, and nothing panics.
    #[test]
    fn a_changed_certificate_is_refused(at: prop::sample::Index, with in 1..=255_u8, version in 0..2_usize) {
        let mut bytes = MADE[["old", "server"][version]].to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= with;
        let trust = trust(&["ca", "same"], Usage::Server);
        let changed = CertificateDer::from(bytes);
        prop_assert!(trust.check(&changed, &[], UnixTime::now()).is_err(), "byte {at}");
        let _ = names(&changed, "db1.example.com");
    }
}
