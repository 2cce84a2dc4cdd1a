//! Certificates as the manuals make them with `openssl`, and as they may be changed.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

use std::process::Command;
use std::sync::LazyLock;

use proptest::prelude::*;
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

    fn openssl(&self, words: &str) {
        let mut command = Command::new("openssl");
        let out = command.args(words.split(' ')).current_dir(self.0.path()).output().unwrap();
        assert!(out.status.success(), "{words}: {}", String::from_utf8_lossy(&out.stderr));
    }

    /// The manual's authority, of version 3.
    fn authority(&self, file: &str, name: &str) {
        self.openssl(&format!("req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={name} -keyout {file}.key -out {file}.pem"));
    }

    /// The manual's certificate, of version 1 unless it gets extensions.
    fn signed(&self, file: &str, name: &str, authority: &str, more: &str) {
        self.openssl(&format!(
            "req -newkey rsa:2048 -nodes -subj /CN={name} -keyout {file}.key -out {file}.csr"
        ));
        self.openssl(&format!("x509 -req -in {file}.csr -days 2 -CA {authority}.pem -CAkey {authority}.key -set_serial 01 -out {file}.pem{more}"));
    }

    fn read(&self, file: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_file(self.0.path().join(format!("{file}.pem"))).unwrap()
    }

    fn trust(&self, files: &[&str], usage: Usage) -> Trust {
        let algorithms = default_provider().signature_verification_algorithms;
        Trust::new(files.iter().map(|file| self.read(file)).collect(), usage, algorithms)
    }
}

static MADE: LazyLock<Made> = LazyLock::new(|| {
    let made = Made::new();
    for (file, name) in [("ca", "ca"), ("same", "ca"), ("third", "ca"), ("other", "other")] {
        made.authority(file, name);
    }
    made.signed("old", "db1.example.com", "ca", "");
    for (file, extension) in [
        ("server", "extendedKeyUsage=serverAuth"),
        ("client", "extendedKeyUsage=clientAuth"),
        ("named", "subjectAltName=DNS:elsewhere.example.com"),
    ] {
        std::fs::write(made.0.path().join("extensions"), extension).unwrap();
        made.signed(file, "db1.example.com", "ca", " -extfile extensions");
    }
    made.signed("sha1", "db1", "ca", " -sha1");
    made.signed("next", "db2", "old", "");
    made
});

fn check(trust: &Trust, file: &str) -> Result<(), CertificateError> {
    trust.check(&MADE.read(file), &[], UnixTime::now())
}

#[test]
fn a_certificate_of_version_1_is_that_of_its_authority_alone() {
    MADE.openssl("x509 -in old.pem -noout -text -out old.txt");
    let text = std::fs::read_to_string(MADE.0.path().join("old.txt")).unwrap();
    assert!(text.contains("Version: 1 "), "the manuals' way makes another version now: {text}");
    for usage in [Usage::Any, Usage::Server] {
        let trust = |files: &[&str]| MADE.trust(files, usage);
        assert!(check(&trust(&["ca"]), "old").is_ok() && check(&trust(&["old"]), "old").is_ok());
        let unknown = check(&trust(&["other"]), "old");
        assert!(matches!(unknown, Err(CertificateError::UnknownIssuer)), "{unknown:?}");
        let sha1 = check(&trust(&["ca"]), "sha1");
        assert!(format!("{sha1:?}").contains("Algorithm"), "{sha1:?}");
        // It signs no others, as it is of no authority's form.
        let next = check(&trust(&["old"]), "next");
        assert!(format!("{next:?}").contains("SignedByNone"), "{next:?}");
    }
}

#[test]
fn authorities_of_one_name_are_all_tried() {
    for file in ["old", "server"] {
        for many in [["same", "ca", "third"], ["ca", "same", "third"], ["third", "same", "ca"]] {
            assert!(check(&MADE.trust(&many, Usage::Server), file).is_ok(), "{file} {many:?}");
        }
        let wrong = check(&MADE.trust(&["same", "third"], Usage::Server), file);
        assert!(matches!(wrong, Err(CertificateError::BadSignature)), "{file} {wrong:?}");
    }
}

#[test]
fn a_clients_certificate_is_no_servers() {
    let any = MADE.trust(&["ca"], Usage::Any);
    let server = MADE.trust(&["ca"], Usage::Server);
    for file in ["server", "client", "named"] {
        assert!(check(&any, file).is_ok(), "{file}");
    }
    assert!(check(&server, "server").is_ok() && check(&server, "named").is_ok());
    let client = check(&server, "client");
    assert!(matches!(client, Err(CertificateError::InvalidPurpose)), "{client:?}");
}

#[test]
fn dates_count_in_both_versions() {
    let trust = MADE.trust(&["ca", "other"], Usage::Server);
    let now = UnixTime::now().as_secs();
    let at = |file, days: i64| {
        let time = now.checked_add_signed(days * 86_400).unwrap();
        let time = UnixTime::since_unix_epoch(std::time::Duration::from_secs(time));
        trust.check(&MADE.read(file), &[], time)
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
    ] {
        assert_eq!(names(&MADE.read(file), host), named, "{file} {host}");
    }
}

proptest! {
    /// Whatever byte changes, of either version: it is refused, and nothing panics.
    #[test]
    fn a_changed_certificate_is_refused(at: prop::sample::Index, with in 1..=255_u8, version in 0..2_usize) {
        let mut bytes = MADE.read(["old", "server"][version]).to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= with;
        let trust = MADE.trust(&["ca", "same"], Usage::Server);
        let changed = CertificateDer::from(bytes);
        prop_assert!(trust.check(&changed, &[], UnixTime::now()).is_err(), "byte {at}");
        let _ = names(&changed, "db1.example.com");
    }
}
