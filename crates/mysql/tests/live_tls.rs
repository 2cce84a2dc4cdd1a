//! TLS with a real server whose certificates are made as in the servers' manuals, by `openssl`: of X.509 version 1, from
//! authorities of one name, and by each mode of the stock clients.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

use xb_mysql::{Account, Client, ClientCertificate, Error, Fingerprint, Target, Timeouts, Trust};
use xb_testkit::daemon::Scratch;
use xb_testkit::mariadb::MariaDb;
use xb_testkit::ports::free_port;

const TIMEOUTS: Timeouts = Timeouts { login: Duration::from_secs(60), reply: None };

/// A server with a certificate of version 1 for `localhost`, and the files around it.
struct Server {
    _server: MariaDb,
    port: u16,
    files: Scratch,
}

fn openssl(files: &Scratch, words: &str) -> Vec<u8> {
    let mut command = Command::new("openssl");
    let out = command.args(words.split(' ')).current_dir(files.path()).output().unwrap();
    assert!(out.status.success(), "{words}: {}", String::from_utf8_lossy(&out.stderr));
    out.stdout
}

/// Makes an authority as the manual does.
fn authority(files: &Scratch, file: &str, name: &str) {
    openssl(
        files,
        &format!(
            "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={name} -keyout {file}.key -out {file}.pem"
        ),
    );
}

/// Makes a certificate as the manual does: of version 1.
fn signed(files: &Scratch, file: &str, name: &str) {
    openssl(
        files,
        &format!("req -newkey rsa:2048 -nodes -subj /CN={name} -keyout {file}.key -out {file}.csr"),
    );
    openssl(
        files,
        &format!(
            "x509 -req -in {file}.csr -days 2 -CA ca.pem -CAkey ca.key -set_serial 01 -out {file}.pem"
        ),
    );
}

impl Server {
    fn start(tls: &str) -> Self {
        let files = Scratch::new();
        for (file, name) in [("ca", "authority"), ("same", "authority"), ("other", "other")] {
            authority(&files, file, name);
        }
        signed(&files, "server", "localhost");
        signed(&files, "client", "app");
        let text = openssl(&files, "x509 -in server.pem -noout -text");
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(text.contains("Version: 1 "), "the manual's way makes another version now: {text}");
        let read = |file: &str| std::fs::read(files.join(file)).unwrap();
        std::fs::write(
            files.join("many.pem"),
            [read("same.pem"), read("other.pem"), read("ca.pem")].concat(),
        )
        .unwrap();
        for file in std::fs::read_dir(files.path()).unwrap() {
            std::fs::set_permissions(file.unwrap().path(), std::fs::Permissions::from_mode(0o755))
                .unwrap();
        }
        std::fs::set_permissions(files.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let port = free_port();
        let file = |option: &str, name: &str| format!("--{option}={}", files.join(name).display());
        let server = MariaDb::start_with(&[
            "--skip-networking=0",
            "--bind-address=127.0.0.1",
            &format!("--port={port}"),
            &format!("--tls-version={tls}"),
            &file("ssl-cert", "server.pem"),
            &file("ssl-key", "server.key"),
            &file("ssl-ca", "ca.pem"),
        ]);
        for host in ["localhost", "127.0.0.1"] {
            server.sql(&format!(
                "CREATE USER app@'{host}' REQUIRE SSL; CREATE USER x509@'{host}' REQUIRE X509"
            ));
        }
        Self { _server: server, port, files }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.files.join(name)
    }

    fn connect(
        &self,
        host: &str,
        trust: Trust,
        user: &str,
        own: Option<&str>,
    ) -> Result<(), Error> {
        let certificate = own.map(|name| ClientCertificate {
            chain: self.file(&format!("{name}.pem")),
            key: self.file("client.key"),
        });
        let target = Target::Tcp { host: host.to_owned(), port: self.port, trust, certificate };
        let account = Account { user: user.as_bytes().to_vec(), ..Account::default() };
        Client::connect(&target, &account, TIMEOUTS)?.ping()
    }

    fn fingerprint(&self) -> Fingerprint {
        let out = openssl(&self.files, "x509 -in server.pem -noout -fingerprint -sha256");
        String::from_utf8(out).unwrap().trim().split_once('=').unwrap().1.parse().unwrap()
    }
}

static NEW: LazyLock<Server> = LazyLock::new(|| Server::start("TLSv1.3"));
static OLD: LazyLock<Server> = LazyLock::new(|| Server::start("TLSv1.2"));

#[test]
fn a_certificate_of_version_1_is_verified_in_every_mode() {
    for server in [&NEW, &OLD] {
        for trust in [
            Trust::AnyName(server.file("ca.pem")),
            Trust::AnyName(server.file("many.pem")),
            // The certificate itself is in the file.
            Trust::AnyName(server.file("server.pem")),
            Trust::Authority(server.file("many.pem")),
            Trust::Fingerprint(server.fingerprint()),
            Trust::Unproven,
        ] {
            let found = server.connect("localhost", trust.clone(), "app", None);
            assert!(found.is_ok(), "{trust:?}: {}", found.unwrap_err());
        }
    }
}

#[test]
fn what_proves_nothing_is_refused_with_the_reason() {
    for server in [&NEW, &OLD] {
        for (host, trust, said) in [
            ("localhost", Trust::AnyName(server.file("other.pem")), "not signed by an authority"),
            ("localhost", Trust::AnyName(server.file("same.pem")), "with another key"),
            ("localhost", Trust::AnyName(server.file("client.pem")), "not signed by an authority"),
            ("127.0.0.1", Trust::Authority(server.file("ca.pem")), "does not name the host"),
            ("localhost", Trust::Fingerprint(Fingerprint([7; 32])), "has the fingerprint"),
        ] {
            let found = server.connect(host, trust.clone(), "app", None);
            let text = found.unwrap_err().to_string();
            assert!(text.contains(said), "{trust:?}: {text}");
        }
    }
}

#[test]
fn the_clients_own_certificate_may_be_of_version_1() {
    for server in [&NEW, &OLD] {
        let connect =
            |own| server.connect("localhost", Trust::Authority(server.file("ca.pem")), "x509", own);
        connect(Some("client")).unwrap();
        let without = connect(None).unwrap_err().to_string();
        assert!(without.contains("1045"), "{without}");
        let other = connect(Some("server")).unwrap_err().to_string();
        assert!(other.contains("the key belongs to another certificate"), "{other}");
    }
}
