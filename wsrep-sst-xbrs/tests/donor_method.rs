//! The donor's own `wsrep_sst_method` during and after transfers, with a client that plays the
//! server.
#![allow(clippy::unwrap_used)] // test support: a panic with its cause is how a test fails

mod harness;

use harness::{STATE, Scene, Side};

/// Keeps the server's method in a file, and records all statements.
const CLIENT: &str = r#"#!/bin/sh
here=${0%/*}
for statement; do :; done
echo "$statement" >>"$here/statements"
case $statement in
"SELECT @@GLOBAL.wsrep_sst_method,"*) printf '%s\t%s\n' "$(cat "$here/method")" "$(cat "$here/uptime")" ;;
"SET GLOBAL wsrep_sst_method = '"*)
    statement=${statement#*\'}
    echo "${statement%\'}" >"$here/method"
    ;;
esac
"#;

struct Server(Scene);

impl Server {
    fn new() -> Self {
        let scene = Scene::new();
        scene.program("mariadb", CLIENT);
        let server = Self(scene);
        server.write("method", "xbrs");
        server.write("uptime", "1000");
        server
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.bin().join(name), text).unwrap();
    }

    fn method(&self) -> String {
        std::fs::read_to_string(self.0.bin().join("method")).unwrap().trim().to_owned()
    }

    fn donor(&self, ready: &str, words: &[&str]) -> Side {
        let mut donor = self.0.donor_with(ready, words);
        let path = format!("{}:{}", self.0.bin().display(), std::env::var("PATH").unwrap());
        donor.command.env("PATH", path);
        donor
    }

    /// Runs a transfer with these additional arguments of the donor.
    fn transfer(&self, words: &[&str]) {
        let mut joiner = self.0.joiner().start();
        let ready = joiner.ready();
        let donor = self.donor(&ready, words).start().wait();
        assert_eq!(donor.lines.last().unwrap(), &format!("done {STATE}"), "{}", donor.log);
        assert!(joiner.wait().status.success());
    }

    /// Kills a transfer while its backup runs.
    fn killed(&self) {
        self.0.backup("hang");
        let mut joiner = self.0.joiner().start();
        let ready = joiner.ready();
        let mut donor = self.donor(&ready, &[]).start();
        donor.wait_for("hanging backup", || self.0.bin().join("hangs").exists());
        donor.child.kill().unwrap();
        let _ = donor.child.wait();
        joiner.signal(rustix::process::Signal::TERM);
        let _ = joiner.wait();
        for flag in ["hang", "hangs"] {
            std::fs::remove_file(self.0.bin().join(flag)).unwrap();
        }
    }

    fn has_note(&self) -> bool {
        self.0.data("donor").join("xbrs.donor-method").exists()
    }
}

#[test]
fn the_method_is_set_for_the_backup_and_restored_by_whichever_transfer_is_next() {
    let server = Server::new();
    server.transfer(&[]);
    assert_eq!((server.method().as_str(), server.has_note()), ("xbrs", false));
    let statements = std::fs::read_to_string(server.0.bin().join("statements")).unwrap();
    assert!(statements.contains("= 'mariabackup'\n") && statements.contains("= 'xbrs'\n"));

    for next in [&[][..], &["--bypass"]] {
        server.killed();
        assert_eq!((server.method().as_str(), server.has_note()), ("mariabackup", true));
        server.transfer(next);
        assert_eq!((server.method().as_str(), server.has_note()), ("xbrs", false), "{next:?}");
    }

    // A server that was started since then has read its option file.
    server.killed();
    server.write("uptime", "0");
    let note = std::fs::File::open(server.0.data("donor").join("xbrs.donor-method")).unwrap();
    note.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    server.transfer(&[]);
    assert_eq!((server.method().as_str(), server.has_note()), ("mariabackup", false));
}

#[test]
fn the_method_can_be_left_alone() {
    let server = Server::new();
    server.killed();
    server.0.options("keep-replicating=no");
    server.transfer(&[]);
    assert_eq!(server.method(), "xbrs", "what an earlier transfer has left is restored");
    std::fs::remove_file(server.0.bin().join("statements")).unwrap();
    server.transfer(&[]);
    assert!(!server.0.bin().join("statements").exists());
}
