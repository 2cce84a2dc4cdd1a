//! A real cluster in which a transfer must be refused: the joiner keeps its data, the donor serves,
//! both report the reason, and once the cause is removed the node joins.

use std::path::{Path, PathBuf};

use crate::disk::Disk;

use xb_testkit::command::Cmd;
use xb_testkit::daemon::Scratch;
use xb_testkit::galera::Cluster;
use xb_testkit::tools::find;

/// The program that the server starts; on request it passes on a wrong secret.
const SCRIPT: &str = r#"#!/bin/sh
here=${0%/*}
wrong() { printf %s "$1" | tr 0-9a-fA-F 1-9a-fA-F0; }
lines() {
    while IFS= read -r line; do
        case $line in sst_remote_password=*) line=sst_remote_password=$(wrong "${line#*=}") ;; esac
        printf '%s\n' "$line"
    done
}
if [ -e "$here/wrong-secret" ] && [ -n "$WSREP_SST_OPT_REMOTE_AUTH" ]; then
    secret=$(wrong "${WSREP_SST_OPT_REMOTE_AUTH#*:}")
    export WSREP_SST_OPT_REMOTE_AUTH="${WSREP_SST_OPT_REMOTE_AUTH%%:*}:$secret"
elif [ -e "$here/wrong-secret" ] && [ "$2" = donor ]; then
    lines | "$here/wsrep_sst_xbrs-rs" "$@"
    exit
fi
exec "$here/wsrep_sst_xbrs-rs" "$@"
"#;

struct Scene {
    cluster: Cluster,
    _bin: Scratch,
}

impl Scene {
    /// Creates a cluster with node 1 running.
    fn new() -> Self {
        let bin = Scratch::new();
        let script = bin.join("wsrep_sst_xbrs");
        std::fs::write(&script, SCRIPT).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&script, mode).unwrap();
        let program = Path::new(env!("CARGO_BIN_EXE_wsrep_sst_xbrs-rs"));
        let mut cluster = Cluster::new(2, &[program, &script]);
        cluster.bootstrap();
        Self { cluster, _bin: bin }
    }

    /// Starts a node that needs a snapshot. Returns the logs of donor and joiner up to the joiner's
    /// end.
    fn refused(&mut self) -> (String, String) {
        let cluster = &mut self.cluster;
        cluster.kill(2);
        let data = cluster.datadir(2);
        let _ = std::fs::remove_file(data.join("grastate.dat"));
        let said = cluster.log(1).len();
        cluster.start(2);
        cluster.wait_ended(2);
        cluster.wait_synced(1);
        for entry in ["mysql", "ibdata1", "shop/orders.ibd", "shop/mark.txt"] {
            assert!(data.join(entry).exists(), "{entry} is gone:\n{}", cluster.log(2));
        }
        // The server does not wait for the joiner, which tidies up once its parent is gone.
        for entry in ["#sql-xb", "sst_in_progress"] {
            xb_testkit::until(&format!("{entry} is gone"), || !data.join(entry).exists());
        }
        (cluster.log(1).split_off(said), cluster.log(2))
    }

    fn joins(&mut self) {
        let cluster = &mut self.cluster;
        cluster.kill(2);
        let data = cluster.datadir(2);
        let _ = std::fs::remove_file(data.join("grastate.dat"));
        cluster.start(2);
        cluster.wait_synced(2);
        assert!(cluster.log(2).contains("SST: full backup"), "{}", cluster.log(2));
        assert_eq!(cluster.checksums(2), cluster.checksums(1));
        cluster.use_all_databases(2);
        cluster.wait_synced(1);
        let _ = std::fs::remove_dir_all(data.join("#sql-xb"));
        std::fs::write(data.join("shop/mark.txt"), "this node's").unwrap();
    }
}

/// A directory for keys and certificates.
struct Keys(PathBuf);

impl Keys {
    fn openssl(&self, words: &str) {
        let _ = Cmd::new(find("openssl")).args(words.split(' ')).cwd(&self.0).run().expect(0);
    }

    fn authority(&self, name: &str) {
        self.openssl(&format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN={name} -keyout {name}.key -out {name}.pem"
        ));
    }

    /// Creates `NAME.pem` and `NAME.key`, for a node with this address.
    fn signed(&self, name: &str, address: &str, authority: &str) {
        self.openssl(&format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={name} -keyout {name}.key -out {name}.csr"
        ));
        std::fs::write(self.0.join("names"), format!("subjectAltName=IP:{address}\n")).unwrap();
        self.openssl(&format!(
            "x509 -req -in {name}.csr -CA {authority}.pem -CAkey {authority}.key -set_serial 7 -days 2 -extfile names -out {name}.pem"
        ));
    }

    /// The server's own options.
    fn server(&self, name: &str, authority: &str) -> String {
        let keys = self.0.display();
        format!(
            "ssl-ca={keys}/{authority}.pem\nssl-cert={keys}/{name}.pem\nssl-key={keys}/{name}.key"
        )
    }

    /// Settings as in the stock method's manual.
    fn encrypt_4(&self, name: &str, authority: &str) -> String {
        let keys = self.0.display();
        format!(
            "encrypt=4\ntca={keys}/{authority}.pem\ntcert={keys}/{name}.pem\ntkey={keys}/{name}.key"
        )
    }
}

/// Asserts that the last error of the program begins with its cause.
#[track_caller]
fn begins(log: &str, role: &str, cause: &str) {
    let last = log.lines().rfind(|line| line.contains("WSREP_SST: [ERROR]"));
    let last = last.unwrap_or_else(|| panic!("no error: {log}"));
    assert!(last.contains(&format!("[ERROR] {role}: {cause}")), "{last}");
}

#[test]
fn wrong_certificates_and_a_wrong_secret_end_at_once_and_cost_nothing() {
    let mut scene = Scene::new();
    let folder = scene.cluster.scratch().join("keys");
    std::fs::create_dir(&folder).unwrap();
    let keys = Keys(folder);
    for name in ["ca", "other"] {
        keys.authority(name);
    }
    for (name, node, authority) in
        [("one", 1, "ca"), ("two", 2, "ca"), ("theirs-1", 1, "other"), ("theirs-2", 2, "other")]
    {
        keys.signed(name, &scene.cluster.address(node), authority);
    }
    let set = |scene: &Scene, donor: &str, joiner: &str| {
        scene.cluster.configure(1, donor, "");
        scene.cluster.configure(2, joiner, "");
    };

    let (one, two) = (keys.encrypt_4("one", "ca"), keys.encrypt_4("two", "ca"));
    set(&scene, &one, &two);
    scene.joins();
    for node in 1..=2 {
        let log = scene.cluster.log(node);
        assert!(log.contains("the peer's certificate must be signed by the authority"), "{log}");
    }

    // Another authority on the joiner's side.
    set(&scene, &one, &keys.encrypt_4("theirs-2", "other"));
    let (donor, joiner) = scene.refused();
    let of = keys.0.display();
    begins(
        &donor,
        "donor",
        &format!(
            "the joiner's certificate is not signed by an authority in {of}/ca.pem: check with `openssl verify -CAfile"
        ),
    );
    begins(&joiner, "joiner", "the donor does not know the authority that signed");

    // A donor that verifies nothing.
    let blind = format!("encrypt=3\ntcert={of}/theirs-1.pem\ntkey={of}/theirs-1.key");
    set(&scene, &blind, &two);
    let (donor, joiner) = scene.refused();
    begins(&donor, "donor", "the joiner does not know the authority that signed this node's");
    begins(
        &joiner,
        "joiner",
        &format!(
            "the donor's certificate is not signed by an authority in {of}/ca.pem: check with `openssl verify -CAfile"
        ),
    );

    // Another authority in the server's own options, which encrypt=3 uses.
    scene.cluster.configure(1, "encrypt=3", &keys.server("one", "ca"));
    scene.cluster.configure(2, "encrypt=3", &keys.server("theirs-2", "other"));
    let (donor, joiner) = scene.refused();
    assert!(donor.contains("the joiner's certificate is not signed by an authority in"), "{donor}");
    assert!(joiner.contains("does not know the authority that signed"), "{joiner}");
    scene.cluster.configure(2, "encrypt=3", &keys.server("two", "ca"));
    scene.joins();

    // Only the donor's role asks for a check.
    let (ours, theirs) = (keys.server("one", "ca"), keys.server("theirs-2", "other"));
    set(&scene, &(ours + "\nssl-client-mode=VERIFY_CA"), &(theirs + "\nssl-mode=REQUIRED"));
    let (donor, _) = scene.refused();
    assert!(donor.contains("the joiner's certificate is not signed by an authority in"), "{donor}");

    // A certificate that the other side would refuse is reported on its own node.
    set(&scene, &one, &keys.encrypt_4("theirs-2", "ca"));
    let (_, joiner) = scene.refused();
    assert!(joiner.contains("the other node will reject this node's certificate"), "{joiner}");

    // A joiner without certificates, of which the donor must check one.
    set(&scene, &one, "");
    let (donor, joiner) = scene.refused();
    let why = "ssl-mode requires a check of the joiner's certificate, but the joiner has none";
    begins(&donor, "donor", why);
    begins(&joiner, "joiner", &format!("the donor gave up: {why}"));

    // No certificates, and a wrong secret.
    set(&scene, "", "");
    let wrong = scene.cluster.scratch().join("bin/wrong-secret");
    std::fs::write(&wrong, "").unwrap();
    let (donor, joiner) = scene.refused();
    assert!(donor.contains("one-time secret"), "{donor}");
    begins(&joiner, "joiner", "the donor does not know the one-time secret of this joiner");
    std::fs::remove_file(&wrong).unwrap();
    scene.joins();

    // The certificates contain the addresses.
    let identity = |of: &str| of.to_owned() + "\nssl-mode=VERIFY_IDENTITY";
    set(&scene, &identity(&one), &identity(&two));
    scene.joins();
    assert!(scene.cluster.log(1).contains("and name its host"), "{}", scene.cluster.log(1));
    // What a joiner says of itself is what it does.
    assert!(!scene.cluster.log(2).contains("name its host"), "{}", scene.cluster.log(2));
}

const MIB: u64 = 1 << 20;

#[test]
fn a_full_disk_ends_the_join_and_with_room_it_works() {
    let mut scene = Scene::new();
    let Some(disk) = Disk::mount(&scene.cluster.datadir(2), 600) else {
        xb_testkit::skipped("this user cannot mount");
        return;
    };
    scene.joins();
    scene.cluster.kill(2);

    // Detected before the transfer.
    disk.resize(disk.used() + 12 * MIB);
    let (donor, joiner) = scene.refused();
    assert!(joiner.contains("the transfer needs"), "{joiner}");
    assert!(joiner.contains("hint: make room"), "{joiner}");
    assert!(donor.contains("the joiner refused: the transfer needs"), "{donor}");

    // Detected only during the transfer.
    scene.cluster.configure(2, "space-check=no", "");
    let (donor, joiner) = scene.refused();
    assert!(joiner.contains("No space left on device"), "{joiner}");
    assert!(joiner.contains("hint: make room"), "{joiner}");
    let why = "the joiner refused: cannot write received files";
    assert!(donor.contains(why) && donor.contains("No space left on device"), "{donor}");

    disk.resize(600 * MIB);
    scene.cluster.configure(2, "", "");
    scene.joins();
}
