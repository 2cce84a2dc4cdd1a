//! `check` on a node of a real Galera cluster: options, certificates, port and login.

use std::net::TcpListener;

use xb_testkit::command::{Cmd, Ran};
use xb_testkit::galera::Cluster;

fn check(cluster: &Cluster) -> Ran {
    Cmd::new(env!("CARGO_BIN_EXE_wsrep_sst_xbrs-rs"))
        .arg("check")
        .arg(format!("--defaults-file={}", cluster.option_file(1).display()))
        .arg(format!("--address={}", cluster.address(1)))
        .arg(format!("--datadir={}", cluster.datadir(1).display()))
        .arg(format!("--socket={}", cluster.socket(1).display()))
        .run()
}

#[test]
fn a_node_is_checked_before_its_first_transfer() {
    let mut cluster = Cluster::new(1, &[]);
    let method = "wsrep-sst-method=xbrs\n";
    let auth = "wsrep-sst-auth=sst:hunter2\n";
    cluster.configure(1, "", &format!("{method}{auth}"));
    cluster.bootstrap();
    let ran = check(&cluster).expect(22);
    let text = ran.stderr_text();
    assert!(
        text.contains("FAILED: this node's server does not accept the login of the backup, sst")
    );
    assert!(text.contains("ok: port: ") && text.contains("ok: security: TLS 1.3"), "{text}");

    cluster.sql(1, "CREATE USER sst@localhost IDENTIFIED BY 'hunter2'");
    let text = check(&cluster).expect(0).stderr_text();
    assert!(text.contains("ok: login: the server accepts it as sst@localhost"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
    assert!(text.contains("ok: tmpdir: small files can be made in "), "{text}");

    // Another program uses the port.
    let listener = TcpListener::bind((cluster.address(1), 4444)).unwrap();
    let text = check(&cluster).expect(32).stderr_text();
    assert!(text.contains("FAILED: ") && text.contains("ss -ltnp"), "{text}");
    drop(listener);

    // A certificate that is not there, and an option that is not supported.
    let missing = cluster.scratch().join("none.pem").display().to_string();
    let with = |sst: &str| {
        cluster.configure(1, sst, &format!("{method}{auth}"));
        check(&cluster).expect_failure().stderr_text()
    };
    let text = with(&format!("tcert={missing}\ntkey={missing}\nencrypt=3\n"));
    assert!(text.contains("FAILED: ") && text.contains(&missing), "{text}");
    let text = with("encrypt=4\n");
    assert!(text.contains("FAILED: ") && text.contains("set tcert and tkey"), "{text}");
    let text = with("compress=zip\n");
    assert!(text.contains("FAILED: ") && text.contains("compress"), "{text}");
}
