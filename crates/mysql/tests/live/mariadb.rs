//! The client against a real MariaDB server: over its socket, and over TCP with TLS.

use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use xb_mysql::{
    Account, Client, ClientCertificate, Error, Event, Fingerprint, Row, Target, Timeouts, Trust,
};
use xb_testkit::daemon::Scratch;
use xb_testkit::mariadb::MariaDb;
use xb_testkit::ports::free_port;

const TIMEOUTS: Timeouts = Timeouts { login: Duration::from_secs(60), reply: None };
/// Larger than any packet here.
const PACKET: &str = "--max-allowed-packet=128M";

/// A server with TLS, whose certificate an authority signed for 127.0.0.1 alone.
struct Secure {
    server: MariaDb,
    port: u16,
    fingerprint: Fingerprint,
    scratch: Scratch,
}

impl Secure {
    fn start(option: &str) -> Self {
        let scratch = Scratch::new();
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let trusted = pem("CERTIFICATE", authority.self_signed(&key).unwrap().der());
        let other = authority.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let server_key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        // With the name of its issuer, it would count as its own authority.
        params.distinguished_name.push(DnType::CommonName, "server");
        let own = params.signed_by(&server_key, &Issuer::new(authority, key)).unwrap();
        for (name, text) in [
            ("ca.pem", trusted),
            ("other.pem", pem("CERTIFICATE", other.der())),
            ("empty.pem", String::new()),
            ("cert.pem", pem("CERTIFICATE", own.der())),
            ("key.pem", pem("PRIVATE KEY", &server_key.serialize_der())),
        ] {
            std::fs::write(scratch.join(name), text).unwrap();
            open(&scratch.join(name));
        }
        open(scratch.path());
        let port = free_port();
        let file = |option: &str, name: &str| format!("{option}={}", scratch.join(name).display());
        let server = MariaDb::start_with(&[
            "--skip-networking=0",
            "--bind-address=127.0.0.1",
            &format!("--port={port}"),
            &file("--ssl-cert", "cert.pem"),
            &file("--ssl-key", "key.pem"),
            &file("--ssl-ca", "ca.pem"),
            "--plugin-load-add=auth_ed25519",
            PACKET,
            option,
        ]);
        for host in ["localhost", "127.0.0.1"] {
            server.sql(&format!(
                "CREATE USER native@'{host}' IDENTIFIED BY 'secret' REQUIRE SSL; \
                 GRANT SELECT ON mysql.* TO native@'{host}'; \
                 CREATE USER ed@'{host}' IDENTIFIED VIA ed25519 USING PASSWORD('pass\u{e9}') REQUIRE SSL"
            ));
        }
        Self { server, port, fingerprint: Fingerprint::of(own.der()), scratch }
    }

    fn target(&self, host: &str, trust: Trust) -> Target {
        Target::Tcp { host: host.to_owned(), port: self.port, trust, certificate: None }
    }

    fn authority(&self, name: &str) -> Trust {
        Trust::Authority(self.scratch.join(name))
    }

    fn pinned(&self) -> Target {
        self.target("127.0.0.1", Trust::Fingerprint(self.fingerprint))
    }
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

/// Lets the server's own account read a file.
fn open(path: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

static SECURE: LazyLock<Secure> = LazyLock::new(|| Secure::start("--tls-version=TLSv1.3"));

fn account(user: &str, password: &str) -> Account {
    Account {
        user: user.into(),
        password: password.as_bytes().to_vec().into(),
        database: Vec::new(),
    }
}

fn socket(server: &MariaDb) -> Client {
    let target = Target::Socket(server.socket().to_owned());
    Client::connect(&target, &account("root", ""), TIMEOUTS).unwrap()
}

fn refused(target: &Target, account: &Account) -> String {
    Client::connect(target, account, TIMEOUTS).unwrap_err().to_string()
}

fn texts(row: &Row) -> Vec<String> {
    row.iter().map(|value| String::from_utf8(value.unwrap().to_vec()).unwrap()).collect()
}

#[test]
fn limits_of_the_server_cut_no_result_off() {
    let server = MariaDb::start();
    server.sql("CREATE DATABASE d; SET GLOBAL sql_select_limit = 1; SET GLOBAL max_join_size = 1; SET GLOBAL max_statement_time = 0.001");
    let rows = socket(&server).rows(
        "SELECT a.seq FROM d.seq_1_to_3 a JOIN d.seq_1_to_3 b WHERE a.seq = b.seq AND SLEEP(0.01) = 0",
    );
    assert_eq!(rows.unwrap().len(), 3);
}

#[test]
fn a_verified_certificate_lets_accounts_in() {
    for trust in [SECURE.authority("ca.pem"), Trust::Fingerprint(SECURE.fingerprint)] {
        let target = SECURE.target("127.0.0.1", trust);
        for (user, password) in [("native", "secret"), ("ed", "pass\u{e9}")] {
            let mut client = Client::connect(&target, &account(user, password), TIMEOUTS).unwrap();
            assert!(client.greeting().is_mariadb());
            let rows = client.rows("SHOW STATUS LIKE 'Ssl_version'").unwrap();
            assert_eq!(texts(&rows[0]), ["Ssl_version", "TLSv1.3"]);
            client.ping().unwrap();
        }
    }
}

/// People watch that number for broken networks.
#[test]
fn a_server_does_not_count_a_client_that_leaves_as_one_that_broke() {
    let secure = Secure::start("--tls-version=TLSv1.3");
    let connect =
        || Client::connect(&secure.pinned(), &account("native", "secret"), TIMEOUTS).unwrap();
    for _ in 0..5 {
        drop(connect());
    }
    let mut last = connect();
    let mut status = |name: &str| {
        let rows = last.rows(format!("SHOW GLOBAL STATUS LIKE '{name}'")).unwrap();
        texts(&rows[0])[1].clone()
    };
    while status("Threads_connected") != "1" {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(status("Aborted_clients"), "0");
}

#[test]
fn any_other_certificate_is_refused() {
    let login = account("native", "secret");
    let wrong = Trust::Fingerprint(Fingerprint([7; 32]));
    let text = refused(&SECURE.target("127.0.0.1", wrong), &login);
    assert!(text.contains(&SECURE.fingerprint.to_string()), "{text}");
    for (host, file) in [("127.0.0.1", "other.pem"), ("localhost", "ca.pem")] {
        let target = SECURE.target(host, SECURE.authority(file));
        let error = Client::connect(&target, &login, TIMEOUTS).unwrap_err();
        assert!(matches!(error, Error::Tls(_)), "{host} {file}: {error}");
    }
    for file in ["empty.pem", "missing.pem"] {
        let text = refused(&SECURE.target("127.0.0.1", SECURE.authority(file)), &login);
        assert!(text.contains(file), "{text}");
    }
}

#[test]
fn an_authority_alone_accepts_any_name() {
    let login = account("native", "secret");
    let target = |file| SECURE.target("localhost", Trust::AnyName(SECURE.scratch.join(file)));
    Client::connect(&target("ca.pem"), &login, TIMEOUTS).unwrap().ping().unwrap();
    let error = Client::connect(&target("other.pem"), &login, TIMEOUTS).unwrap_err();
    assert!(matches!(error, Error::Tls(_)), "{error}");
}

#[test]
fn a_server_without_tls_1_3_is_checked_alike() {
    let old = Secure::start("--tls-version=TLSv1.2");
    let login = account("native", "secret");
    let unproven = old.target("127.0.0.1", Trust::Unproven);
    for target in [old.pinned(), old.target("127.0.0.1", old.authority("ca.pem")), unproven] {
        Client::connect(&target, &login, TIMEOUTS).unwrap().ping().unwrap();
    }
    let other = old.target("127.0.0.1", Trust::Fingerprint(SECURE.fingerprint));
    for target in [other, old.target("127.0.0.1", old.authority("other.pem"))] {
        let error = Client::connect(&target, &login, TIMEOUTS).unwrap_err();
        assert!(matches!(error, Error::Tls(_)), "{error}");
    }
}

#[test]
fn without_proof_there_is_tls_if_the_server_has_it() {
    let login = account("native", "secret");
    let target = SECURE.target("127.0.0.1", Trust::Unproven);
    Client::connect(&target, &login, TIMEOUTS).unwrap().ping().unwrap();
    let port = free_port();
    let port_option = format!("--port={port}");
    let plain =
        MariaDb::start_with(&["--skip-networking=0", "--bind-address=127.0.0.1", &port_option]);
    plain.sql("CREATE USER native@'%' IDENTIFIED BY 'secret'");
    let (host, certificate) = ("127.0.0.1".to_owned(), None);
    let target = Target::Tcp { host, port, trust: Trust::Unproven, certificate };
    Client::connect(&target, &login, TIMEOUTS).unwrap().ping().unwrap();
}

#[test]
fn a_client_certificate_lets_in_an_account_that_requires_one() {
    SECURE.server.sql("CREATE OR REPLACE USER x509@'127.0.0.1' REQUIRE X509");
    let target = |certificate| Target::Tcp {
        host: "127.0.0.1".to_owned(),
        port: SECURE.port,
        trust: SECURE.authority("ca.pem"),
        certificate,
    };
    // The server trusts the authority of its own certificate.
    let file = |name| SECURE.scratch.join(name);
    let own = ClientCertificate { chain: file("cert.pem"), key: file("key.pem") };
    Client::connect(&target(Some(own)), &account("x509", ""), TIMEOUTS).unwrap().ping().unwrap();
    assert!(refused(&target(None), &account("x509", "")).contains("1045"));
}

#[test]
fn a_client_that_waits_is_ended_from_another_thread() {
    let mut client = socket(&SECURE.server);
    let hang_up = client.hang_up().unwrap();
    let ended = std::thread::spawn(move || client.rows("SELECT SLEEP(600)").unwrap_err());
    hang_up.now();
    let error = ended.join().unwrap();
    assert!(matches!(error, Error::Closed { .. }), "{error}");
}

#[test]
fn a_wrong_password_is_refused() {
    let target = Target::Socket(SECURE.server.socket().to_owned());
    for target in [&SECURE.pinned(), &target] {
        for user in ["native", "ed", "unknown"] {
            let error = Client::connect(target, &account(user, "wrong"), TIMEOUTS).unwrap_err();
            assert!(matches!(&error, Error::Server(said) if said.code == 1045), "{error}");
        }
    }
    let missing = Account { database: b"nothing".to_vec(), ..account("root", "") };
    let error = Client::connect(&target, &missing, TIMEOUTS).unwrap_err();
    assert!(matches!(&error, Error::Server(said) if said.code == 1049), "{error}");
}

#[test]
fn a_server_without_tls_is_refused() {
    let port = free_port();
    let port_option = format!("--port={port}");
    let options = ["--skip-networking=0", "--bind-address=127.0.0.1", &port_option];
    let _server = MariaDb::start_with(&options);
    let trust = Trust::Fingerprint(Fingerprint([7; 32]));
    let target = Target::Tcp { host: "127.0.0.1".to_owned(), port, trust, certificate: None };
    let error = Client::connect(&target, &account("root", ""), TIMEOUTS).unwrap_err();
    assert!(matches!(error, Error::NoTls), "{error}");
    let missing = Target::Socket(PathBuf::from("/nonexistent/sock"));
    let said = refused(&missing, &account("root", ""));
    assert!(said.contains("connecting: /nonexistent/sock: No such file"), "{said}");
}

#[test]
fn values_and_statements_around_and_above_16_mib_arrive_whole() {
    let native = account("native", "secret");
    let over_tls = Client::connect(&SECURE.pinned(), &native, TIMEOUTS).unwrap();
    for mut client in [socket(&SECURE.server), over_tls] {
        // The packet of the row has 4 bytes more up to 16 MiB, and 9 more above.
        for length in (0xff_fff6..=0x100_0000).chain([40 << 20]) {
            let sql = format!("SELECT REPEAT('a', {length})");
            let rows = client.rows(&sql).unwrap();
            let value = rows[0].get(0).unwrap();
            assert!(value.len() == length && value.iter().all(|&byte| byte == b'a'), "{length}");
        }
        for length in [0xff_ffff - 19, 0xff_ffff - 18, 0xff_ffff - 17, 40 << 20] {
            let sql = format!("SELECT LENGTH('{}')", "b".repeat(length));
            assert_eq!(texts(&client.rows(&sql).unwrap()[0]), [length.to_string()]);
        }
    }
}

#[test]
fn names_and_values_of_any_bytes_arrive_as_they_are() {
    let server = MariaDb::start();
    let mut client = socket(&server);
    let name = "new\nline\ttab\\n`quote \u{e9}";
    let quoted = name.replace('`', "``");
    client
        .query(format!(
            "CREATE DATABASE `{quoted}`; CREATE TABLE `{quoted}`.`{quoted}` (`{quoted}` INT)"
        ))
        .unwrap()
        .collect()
        .unwrap();
    let listed = "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema LIKE 'new%'";
    assert_eq!(texts(&client.rows(listed).unwrap()[0]), [name, name]);
    let select = format!("SELECT * FROM `{quoted}`.`{quoted}`");
    let results = client.query(select).unwrap().collect().unwrap();
    let column = &results[0].columns[0];
    assert_eq!([&column.schema, &column.table, &column.name], [name.as_bytes(); 3]);
    assert_eq!((column.kind, column.collation), (3, 63));

    let all: Vec<u8> = (0..=255).collect();
    let hex: String = all.iter().map(|byte| format!("{byte:02x}")).collect();
    let rows = client.rows(format!("SELECT x'{hex}', NULL, ''")).unwrap();
    let values: Vec<_> = rows[0].iter().collect();
    assert_eq!(values, [Some(&all[..]), None, Some(&b""[..])]);
    let raw = [&b"SELECT _binary'"[..], b"\xff\xfe\x80\0", b"'"].concat();
    assert_eq!(client.rows(raw).unwrap()[0].get(0), Some(&b"\xff\xfe\x80\0"[..]));
}

#[test]
fn several_results_come_in_order_and_an_error_ends_them() {
    let mut client = socket(&SECURE.server);
    let results = client.query("SELECT 1, 2; DO 0; SELECT 3 UNION SELECT 4").unwrap();
    let results = results.collect().unwrap();
    let rows: Vec<Vec<_>> =
        results.iter().map(|result| result.rows.iter().map(texts).collect()).collect();
    assert_eq!(rows, [vec![vec!["1", "2"]], vec![], vec![vec!["3"], vec!["4"]]]);
    assert!(results[1].columns.is_empty());

    let mut results = client.query("SELECT 1; SELECT * FROM nothing.nowhere; SELECT 2").unwrap();
    let mut seen = Vec::new();
    let error = loop {
        match results.next() {
            Ok(Some(Event::Row(row))) => seen.extend(texts(&row)),
            Ok(Some(_)) => {}
            Ok(None) => panic!("no error"),
            Err(error) => break error,
        }
    };
    assert!(matches!(&error, Error::Server(said) if said.state == "42S02"), "{error}");
    assert_eq!(seen, ["1"]);
    assert!(results.next().unwrap().is_none());
    assert_eq!(texts(&client.rows("SELECT 5").unwrap()[0]), ["5"]);

    // Dropped in the middle, a result would be taken for the next one's.
    let mut results = client.query("SELECT 1; SELECT 2").unwrap();
    results.next().unwrap();
    drop(results);
    assert!(matches!(client.query("SELECT 3").unwrap_err(), Error::Unusable));
}

#[test]
fn a_local_file_is_never_sent() {
    let mut client = socket(&SECURE.server);
    client
        .query("CREATE DATABASE local; CREATE TABLE local.t (v TEXT)")
        .unwrap()
        .collect()
        .unwrap();
    let load = "LOAD DATA LOCAL INFILE '/etc/hostname' INTO TABLE local.t";
    assert!(client.query(load).unwrap().collect().is_err());
}

/// Reads some rows of a long result, lets `end` end it, and returns the error and the rows until then.
fn cut_short(client: &mut Client, end: impl FnOnce()) -> (Error, u32) {
    let long = "SELECT seq, REPEAT('x', 1000) FROM mysql.seq_1_to_1000000";
    let (mut results, mut rows, mut end) = (client.query(long).unwrap(), 0, Some(end));
    loop {
        match results.next() {
            Ok(Some(Event::Row(_))) => rows += 1,
            Ok(Some(Event::Columns(_))) => {}
            Ok(other) => panic!("{rows} rows, then {other:?}"),
            Err(error) => {
                // An error that is overlooked does not become the end of the rows.
                let server = matches!(error, Error::Server(_));
                assert_eq!(results.next().is_ok(), server, "{error}");
                return (error, rows);
            }
        }
        if rows == 10
            && let Some(end) = end.take()
        {
            end();
        }
    }
}

#[test]
fn a_statement_that_is_killed_is_an_error_never_a_short_result() {
    let mut client = socket(&SECURE.server);
    let id = client.greeting().connection_id;
    let (error, _) =
        cut_short(&mut client, || drop(SECURE.server.sql(&format!("KILL QUERY {id}"))));
    assert!(matches!(&error, Error::Server(said) if said.code == 1317), "{error}");
    assert_eq!(texts(&client.rows("SELECT 1").unwrap()[0]), ["1"]);
}

#[test]
fn a_server_that_is_killed_is_an_error_never_a_short_result() {
    for over_tls in [false, true] {
        let secure = Secure::start("--tls-version=TLSv1.3");
        let mut client = match over_tls {
            true => {
                let native = account("native", "secret");
                Client::connect(&secure.pinned(), &native, TIMEOUTS).unwrap()
            }
            false => socket(&secure.server),
        };
        let (error, rows) = cut_short(&mut client, || drop(secure.server));
        assert!(matches!(error, Error::Closed { .. }), "{error}");
        assert!((10..1_000_000).contains(&rows), "{rows}");
        assert!(matches!(client.ping().unwrap_err(), Error::Unusable));
    }
}
