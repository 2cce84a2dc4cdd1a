//! The operator's certificates, created as in the manuals, and their possible faults.

use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;
use xb_process::CancelToken;

use super::support::{LONG, ReceivedEvents, donor, joiner, noise, receive, send};
use xb_wire::{
    Certificates, HostPort, Joiner, Listener, Security, TlsMode, TransferError, connect,
};

/// A directory for keys and certificates, filled by `openssl`.
struct Keys(TempDir);

impl Keys {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn openssl(&self, words: &str) {
        let mut command = Command::new("openssl");
        let out = command.args(words.split(' ')).current_dir(self.0.path()).output().unwrap();
        assert!(out.status.success(), "openssl {words}: {}", String::from_utf8_lossy(&out.stderr));
    }

    /// Creates `NAME.pem` and `NAME.key`, self-signed.
    fn authority(&self, name: &str) -> &Self {
        self.openssl(&format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN={name} -keyout {name}.key -out {name}.pem"
        ));
        self
    }

    /// Creates a certificate signed by `authority`, as in the server's manuals: without extensions
    /// this makes a certificate of version 1.
    fn signed(&self, name: &str, common_name: &str, authority: &str, extensions: &str) -> &Self {
        self.openssl(&format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={common_name} -keyout {name}.key -out {name}.csr"
        ));
        let mut words = format!(
            "x509 -req -in {name}.csr -CA {authority}.pem -CAkey {authority}.key -set_serial 7 -days 2 -out {name}.pem"
        );
        if !extensions.is_empty() {
            std::fs::write(self.path("extensions"), extensions).unwrap();
            words.push_str(" -extfile extensions");
        }
        self.openssl(&words);
        self
    }

    fn security(&self, name: &str, authority: Option<&str>, mode: TlsMode) -> Security {
        Security::Certificates(Certificates {
            certificate: self.path(&format!("{name}.pem")),
            key: self.path(&format!("{name}.key")),
            authority: authority.map(|name| self.path(&format!("{name}.pem"))),
            mode,
        })
    }
}

/// Runs a short transfer; the joiner's host is `host`. Returns the donor's result and the joiner's
/// log.
fn run(host: &str, of_joiner: Security, of_donor: Security) -> (Result<(), TransferError>, String) {
    let (told, cancel) = (ReceivedEvents::default(), CancelToken::new());
    let observer = told.observer();
    let joiner = Joiner { observer, cancel: cancel.clone(), ..joiner(of_joiner) };
    let address: HostPort = format!("{host}:0").parse().unwrap();
    let listener = Listener::bind(&address, joiner).unwrap();
    let announcement = listener.announcement().clone();
    let stream = noise(1000);
    let sent = std::thread::scope(|scope| {
        scope.spawn(|| {
            if let Ok(offered) = listener.accept(LONG) {
                receive(offered.accept(b"").unwrap(), &stream).unwrap();
            }
        });
        let connected = connect(&announcement, b"", donor(of_donor));
        let sent = connected.and_then(|outgoing| send(outgoing, &stream, 100));
        if sent.is_err() {
            // No other donor connects; wait for the joiner's reason first.
            told.wait_for("refused a connection", 1);
            cancel.cancel("the test".to_owned());
        }
        sent
    });
    (sent, told.all())
}

fn good(host: &str, of_joiner: Security, of_donor: Security) {
    let (sent, log) = run(host, of_joiner, of_donor);
    assert!(sent.is_ok(), "{sent:?}\n{log}");
}

/// Returns the messages of donor and joiner for a transfer that must fail.
fn bad(host: &str, of_joiner: Security, of_donor: Security) -> (String, String) {
    let (sent, log) = run(host, of_joiner, of_donor);
    (sent.unwrap_err().to_string(), log)
}

const HERE: &str = "127.0.0.1";

#[test]
fn certificates_of_one_authority_pass_without_name_and_usage() {
    let keys = Keys::new();
    keys.authority("ca").signed("old", "node1", "ca", "").signed(
        "new",
        "node2",
        "ca",
        "basicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\n",
    );
    keys.openssl("x509 -in old.pem -noout -text -out old.txt");
    let old = std::fs::read_to_string(keys.path("old.txt")).unwrap();
    assert!(old.contains("Version: 1"), "the manuals' way makes another version now: {old}");
    let of = |name: &str| keys.security(name, Some("ca"), TlsMode::VerifyCa);
    good(HERE, of("old"), of("new"));
    // With a client's key usage, and with version 1 on the connecting side.
    good(HERE, of("new"), of("old"));
    good(HERE, of("new"), of("new"));
}

#[test]
fn one_that_is_in_the_authoritys_file_passes() {
    let keys = Keys::new();
    keys.authority("self");
    let own = || keys.security("self", Some("self"), TlsMode::VerifyCa);
    good(HERE, own(), own());
}

#[test]
fn a_nodes_certificate_in_the_authoritys_file_signs_nobody() {
    let keys = Keys::new();
    keys.authority("ca");
    // Certificates of both kinds: of version 3, and as the manuals create them.
    for (leaf, extensions) in [("new", "basicConstraints=CA:FALSE\n"), ("old", "")] {
        keys.signed(leaf, leaf, "ca", extensions);
        let itself = || keys.security(leaf, Some(leaf), TlsMode::VerifyCa);
        good(HERE, itself(), itself());
        // The holder of that node's key tries to issue certificates.
        for (made, extensions) in [("made3", "basicConstraints=CA:FALSE\n"), ("made1", "")] {
            let made = format!("{made}{leaf}");
            keys.signed(&made, "x", leaf, extensions);
            let stranger = keys.security(&made, None, TlsMode::Required);
            let (_, log) = bad(HERE, itself(), stranger.clone());
            assert!(log.contains("signed by a certificate that is not a CA"), "{log}");
            assert!(log.contains("-ext basicConstraints"), "{log}");
            let (error, _) = bad(HERE, stranger, itself());
            assert!(error.contains("signed by a certificate that is not a CA"), "{error}");
        }
    }
}

#[test]
fn an_identity_is_a_name_of_the_host() {
    let keys = Keys::new();
    keys.authority("ca")
        .signed("here", "x", "ca", "subjectAltName=IP:127.0.0.1\n")
        .signed("named", "localhost", "ca", "")
        .signed("else", "localhost", "ca", "subjectAltName=DNS:elsewhere.example\n");
    let of = |name: &str| keys.security(name, Some("ca"), TlsMode::VerifyIdentity);
    good(HERE, of("here"), of("named"));
    good("localhost", of("named"), of("else"));
    let (error, _) = bad("localhost", of("else"), of("named"));
    assert!(error.contains("does not name localhost"), "{error}");
    assert!(error.contains("-addext subjectAltName=DNS:localhost"), "{error}");
    let (error, _) = bad(HERE, of("named"), of("named"));
    assert!(error.contains("-addext subjectAltName=IP:127.0.0.1"), "{error}");
}

#[test]
fn another_authority_is_named_on_both_sides_with_the_command_that_shows_it() {
    let keys = Keys::new();
    keys.authority("ca")
        .authority("other")
        .signed("ours", "a", "ca", "")
        .signed("theirs", "b", "other", "");
    let ours = || keys.security("ours", Some("ca"), TlsMode::VerifyCa);
    let theirs = || keys.security("theirs", Some("other"), TlsMode::VerifyCa);
    let (error, log) = bad(HERE, ours(), theirs());
    assert!(error.contains("the joiner's certificate is not signed by"), "{error}");
    assert!(error.contains("`openssl verify -CAfile "), "{error}");
    assert!(log.contains("does not know the authority that signed"), "{log}");
    // A donor that verifies nothing is refused by a joiner that does.
    let blind = keys.security("theirs", None, TlsMode::Required);
    let (error, log) = bad(HERE, ours(), blind);
    assert!(error.contains("does not know the authority that signed this node's"), "{error}");
    assert!(log.contains("the donor's certificate is not signed by"), "{log}");
    // An authority with the same name and another key.
    let fake = Keys::new();
    fake.authority("ca").signed("ours", "a", "ca", "");
    let (error, _) = bad(HERE, fake.security("ours", Some("ca"), TlsMode::VerifyCa), ours());
    assert!(error.contains("different keys") || error.contains("not signed by"), "{error}");
}

#[test]
fn a_donor_without_a_certificate_is_asked_for_one() {
    let keys = Keys::new();
    keys.authority("ca").signed("node", "a", "ca", "");
    let of_joiner = keys.security("node", Some("ca"), TlsMode::VerifyCa);
    let (error, log) = bad(HERE, of_joiner, Security::OneTime);
    assert!(error.contains("requires a certificate from this node: set ssl-cert"), "{error}");
    assert!(log.contains("presented no certificate"), "{log}");
    // A joiner that verifies no certificate authenticates the donor by the secret, and is itself
    // authenticated by the fingerprint.
    good(HERE, keys.security("node", None, TlsMode::Required), Security::OneTime);
    // A donor that must verify cannot verify a one-time certificate.
    let (listener, announcement) = super::support::listen(joiner(Security::OneTime));
    let strict = donor(keys.security("node", Some("ca"), TlsMode::VerifyCa));
    let error = connect(&announcement, b"", strict).unwrap_err().to_string();
    assert!(error.contains("but the joiner has none"), "{error}");
    drop(listener);
}

/// Creates a certificate that `ca` has signed for a period in the past.
fn expired(keys: &Keys) {
    let ca_key = std::fs::read_to_string(keys.path("ca.key")).unwrap();
    keys.openssl("pkey -in ca.key -outform DER -out ca.key.der");
    keys.openssl("x509 -in ca.pem -outform DER -out ca.der");
    assert!(ca_key.contains("PRIVATE KEY"));
    let der = std::fs::read(keys.path("ca.key.der")).unwrap();
    // openssl 3.0 writes the older form of such keys, and `rcgen` must read that form.
    let key = rcgen::KeyPair::try_from(der.as_slice()).unwrap();
    let mut ca = rcgen::CertificateParams::new(vec![]).unwrap();
    ca.distinguished_name = rcgen::DistinguishedName::new();
    ca.distinguished_name.push(rcgen::DnType::CommonName, "ca");
    let issuer = rcgen::Issuer::new(ca, key);
    let mut params = rcgen::CertificateParams::new(vec!["old".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    let own = rcgen::KeyPair::generate().unwrap();
    let made = params.signed_by(&own, &issuer).unwrap();
    std::fs::write(keys.path("expired.der"), made.der()).unwrap();
    std::fs::write(keys.path("expired.key.der"), own.serialize_der()).unwrap();
    keys.openssl("x509 -inform DER -in expired.der -out expired.pem");
    keys.openssl("pkey -inform DER -in expired.key.der -out expired.key");
}

#[test]
fn an_expired_certificate_is_found_at_home_or_by_the_other_side() {
    let keys = Keys::new();
    keys.authority("ca").signed("node", "a", "ca", "");
    expired(&keys);
    let strict = |name: &str| keys.security(name, Some("ca"), TlsMode::VerifyCa);
    let error = Listener::bind(&super::support::loopback(), joiner(strict("expired")));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("the other node will reject this node's certificate"), "{error}");
    assert!(
        error.contains("has expired") && error.contains("openssl x509 -noout -dates"),
        "{error}"
    );
    let blind = || keys.security("expired", None, TlsMode::Required);
    let (error, _) = bad(HERE, blind(), strict("node"));
    assert!(
        error.contains("the certificate of the joiner or of its authority has expired"),
        "{error}"
    );
    let (error, log) = bad(HERE, strict("node"), blind());
    assert!(error.contains("found this node's certificate expired"), "{error}");
    assert!(log.contains("the certificate of the donor or of its authority has expired"), "{log}");
}

fn bind(security: Security) -> String {
    Listener::bind(&super::support::loopback(), joiner(security)).unwrap_err().to_string()
}

#[test]
fn files_that_are_wrong_are_named() {
    let keys = Keys::new();
    keys.authority("ca").signed("one", "a", "ca", "").signed("two", "b", "ca", "");
    let with = |certificate: &str, key: &str, authority: Option<&str>, mode: TlsMode| {
        Security::Certificates(Certificates {
            certificate: keys.path(certificate),
            key: keys.path(key),
            authority: authority.map(|name| keys.path(name)),
            mode,
        })
    };
    let error = bind(with("one.pem", "two.key", None, TlsMode::Required));
    assert!(error.contains("the key belongs to another certificate"), "{error}");
    assert!(error.contains("openssl pkey -pubout -in "), "{error}");
    let error = bind(with("one.pem", "one.pem", None, TlsMode::Required));
    assert!(error.contains("no usable private key"), "{error}");
    let error = bind(with("one.key", "one.key", None, TlsMode::Required));
    assert!(error.contains("no certificate in"), "{error}");
    let error = bind(with("none.pem", "one.key", None, TlsMode::Required));
    assert!(error.contains("cannot read the certificate") && error.contains("none.pem"), "{error}");
    let error = bind(with("one.pem", "one.key", None, TlsMode::VerifyCa));
    assert!(error.contains("set ssl-ca"), "{error}");
    keys.openssl("pkey -in one.key -aes256 -passout pass:secret -out locked.key");
    let error = bind(with("one.pem", "locked.key", None, TlsMode::Required));
    assert!(error.contains("it must not be encrypted"), "{error}");
    // One file for both, as `tcert` may be.
    let both = [keys.path("one.pem"), keys.path("one.key")]
        .map(|path| std::fs::read_to_string(path).unwrap())
        .concat();
    std::fs::write(keys.path("both.pem"), both).unwrap();
    let both = || with("both.pem", "both.pem", Some("ca.pem"), TlsMode::VerifyCa);
    good(HERE, both(), both());
}

#[test]
fn a_donor_may_stay_unknown_where_the_operator_says_so() {
    let stream = noise(1000);
    let open = Joiner { secret: false, ..joiner(Security::OneTime) };
    let (listener, announcement) = super::support::listen(open);
    assert!(!announcement.has_secret() && !announcement.text().contains('@'));
    std::thread::scope(|scope| {
        let sent = scope.spawn(|| {
            send(connect(&announcement, b"", donor(Security::OneTime)).unwrap(), &stream, 100)
        });
        receive(listener.accept(LONG).unwrap().accept(b"").unwrap(), &stream).unwrap();
        sent.join().unwrap().unwrap();
    });
}

#[test]
fn a_short_rsa_key_is_named_as_such() {
    let keys = Keys::new();
    for name in ["short", "ca"] {
        keys.openssl(&format!(
            "req -x509 -newkey rsa:1024 -nodes -days 2 -subj /CN={name} -keyout {name}.key -out {name}.pem"
        ));
    }
    keys.signed("node", "a", "ca", "");
    for (security, named) in [
        (keys.security("short", None, TlsMode::Required), "short.pem has 1024 bits"),
        (keys.security("node", Some("ca"), TlsMode::VerifyCa), "ca.pem has 1024 bits"),
    ] {
        let error = Listener::bind(&super::support::loopback(), joiner(security));
        let error = error.unwrap_err().to_string();
        assert!(error.contains(named) && error.contains("at least 2048"), "{error}");
    }
}
