//! The donor's own `wsrep_sst_method` during and after transfers, with a scripted server.

use std::sync::{Arc, Mutex, MutexGuard};

use crate::harness::{STATE, Scene, Side};
use xb_testkit::scripted::Scripted;

/// The server's answers, and the questions it was asked.
#[derive(Default)]
struct State {
    method: String,
    uptime: u64,
    statements: Vec<String>,
}

struct Server {
    // Dropped before the folder with its socket.
    _server: Scripted,
    scene: Scene,
    state: Arc<Mutex<State>>,
}

impl Server {
    fn new() -> Self {
        let state = State { method: "xbrs".into(), uptime: 1000, ..State::default() };
        let (scene, state) = (Scene::new(), Arc::new(Mutex::new(state)));
        let known = Arc::clone(&state);
        let answer = move |statement: &str| {
            let mut state = known.lock().unwrap();
            state.statements.push(statement.to_owned());
            if statement.starts_with("SELECT @@GLOBAL.wsrep_sst_method,") {
                return Ok(vec![vec![state.method.clone(), state.uptime.to_string()]]);
            }
            let set = statement.strip_prefix("SET GLOBAL wsrep_sst_method = '");
            if let Some(method) = set.and_then(|rest| rest.strip_suffix('\'')) {
                state.method = method.to_owned();
            }
            Ok(Vec::new())
        };
        let server = Scripted::start(&scene.bin().join("socket"), "10.11.6-MariaDB", answer);
        Self { _server: server, scene, state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn method(&self) -> String {
        self.state().method.clone()
    }

    fn donor(&self, ready: &str, words: &[&str]) -> Side {
        let socket = self.scene.bin().join("socket");
        self.scene.donor_with(ready, &[&["--socket", socket.to_str().unwrap()], words].concat())
    }

    /// Runs a transfer with these additional arguments of the donor.
    fn transfer(&self, words: &[&str]) {
        let mut joiner = self.scene.joiner().start();
        let ready = joiner.ready();
        let donor = self.donor(&ready, words).start().wait();
        assert_eq!(donor.lines.last().unwrap(), &format!("done {STATE}"), "{}", donor.log);
        assert!(joiner.wait().status.success());
    }

    /// Kills a transfer while its backup runs.
    fn killed(&self) {
        self.scene.backup("hang");
        let mut joiner = self.scene.joiner().start();
        let ready = joiner.ready();
        let mut donor = self.donor(&ready, &[]).start();
        donor.wait_for("hanging backup", || self.scene.bin().join("hangs").exists());
        donor.child.kill().unwrap();
        let _ = donor.child.wait();
        joiner.signal(rustix::process::Signal::TERM);
        let _ = joiner.wait();
        for flag in ["hang", "hangs"] {
            std::fs::remove_file(self.scene.bin().join(flag)).unwrap();
        }
    }

    fn has_note(&self) -> bool {
        self.scene.data("donor").join("xbrs.donor-method").exists()
    }
}

#[test]
fn the_method_is_set_for_the_backup_and_restored_by_whichever_transfer_is_next() {
    let server = Server::new();
    server.transfer(&[]);
    assert_eq!((server.method().as_str(), server.has_note()), ("xbrs", false));
    let set = |method: &str| format!("SET GLOBAL wsrep_sst_method = '{method}'");
    for method in ["mariabackup", "xbrs"] {
        assert!(server.state().statements.contains(&set(method)), "{method}");
    }

    for next in [&[][..], &["--bypass"]] {
        server.killed();
        assert_eq!((server.method().as_str(), server.has_note()), ("mariabackup", true));
        server.transfer(next);
        assert_eq!((server.method().as_str(), server.has_note()), ("xbrs", false), "{next:?}");
    }

    // A server that was started since then has read its option file.
    server.killed();
    server.state().uptime = 0;
    let note = std::fs::File::open(server.scene.data("donor").join("xbrs.donor-method")).unwrap();
    note.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    server.transfer(&[]);
    assert_eq!((server.method().as_str(), server.has_note()), ("mariabackup", false));
}

#[test]
fn the_method_can_be_left_alone() {
    let server = Server::new();
    server.killed();
    server.scene.options("keep-replicating=no");
    server.transfer(&[]);
    assert_eq!(server.method(), "xbrs", "what an earlier transfer has left is restored");
    server.state().statements.clear();
    server.transfer(&[]);
    // Nothing but a question about the redo log, and one that precedes those about imported tablespaces.
    let asked = server.state().statements.clone();
    let [redo, version] = &asked[..] else { panic!("{asked:?}") };
    assert!(redo.starts_with("SHOW GLOBAL STATUS WHERE") && version == "SELECT @@version");
}
