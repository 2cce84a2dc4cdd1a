//! A node of a real cluster that the lines of the server's own systemd unit start, in the places
//! and as the user of Debian's packages.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use xb_testkit::command::Cmd;
use xb_testkit::galera::{Cluster, LIMIT};
use xb_testkit::tools::{find, workspace};

/// Only the server's full package contains it.
const UNIT: &str = "/usr/lib/systemd/system/mariadb.service";

/// The part of systemd that a unit of `Type=notify` such as this one needs: a mount namespace
/// with the node's own `/etc/mysql` and `/run/mysqld`, the user, the files with environment
/// variables, and the commands before the server's.
const START: &str = r#"
set -eu
mount --bind "$1/etc" /etc/mysql
mount -t tmpfs -o mode=755 none /run
mkdir /run/mysqld
chown mysql:mysql /run/mysqld
shift
exec setpriv --reuid=mysql --regid=mysql --clear-groups --pdeathsig KILL -- sh -euc "$1"
"#;

/// The unit's text, with continued lines joined.
struct Unit(Vec<(String, String)>);

impl Unit {
    fn read() -> Option<Self> {
        let text = std::fs::read_to_string(UNIT).ok()?.replace("\\\n", " ");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let pairs = lines.filter_map(|line| line.split_once('='));
        Some(Self(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()))
    }

    fn all(&self, key: &str) -> Vec<&str> {
        self.0.iter().filter(|(name, _)| name == key).map(|(_, value)| value.as_str()).collect()
    }

    /// A shell script of everything up to and including the server.
    fn script(&self) -> String {
        let mut script = String::new();
        if let [mask] = self.all("UMask")[..] {
            script += &format!("umask {mask}\n");
        }
        for before in self.all("ExecStartPre") {
            script += &format!("{}\n", shell_words(before));
        }
        // Files that may be missing.
        for file in self.all("EnvironmentFile") {
            let file = file.trim_start_matches('-');
            script += &format!("if [ -e {file} ]; then . {file}; fi\n");
        }
        let [server] = self.all("ExecStart")[..] else { panic!("not one ExecStart in {UNIT}") };
        // Exported: since 11.8.9, ExecStart is a shell of its own.
        let empty = "export MYSQLD_OPTS= _WSREP_NEW_CLUSTER= _WSREP_START_POSITION=${_WSREP_START_POSITION:-}";
        format!("{script}{empty}\nexec {}\n", shell_words(server))
    }
}

/// Quotes the words of a unit's line for a shell: systemd expands nothing inside double quotes here.
fn shell_words(line: &str) -> String {
    let parts = line.split('"').enumerate();
    parts.map(|(n, part)| if n % 2 == 0 { part.to_owned() } else { format!("'{part}'") }).collect()
}

/// Writes the `/etc/mysql` of a node.
fn settings(cluster: &Cluster, node: u8, etc: &Path) {
    std::fs::create_dir(etc).unwrap();
    std::fs::copy(cluster.option_file(node), etc.join("my.cnf")).unwrap();
    std::fs::copy("/etc/mysql/debian-start", etc.join("debian-start")).unwrap();
    let socket = cluster.socket(node);
    let text = format!("[client]\nuser=root\nsocket={}\n", socket.display());
    std::fs::write(etc.join("debian.cnf"), text).unwrap();
}

/// Receives the messages for the service manager until the server reports that it is ready.
fn messages_until_ready(manager: &UnixDatagram, cluster: &Cluster) -> Vec<String> {
    manager.set_read_timeout(Some(LIMIT)).unwrap();
    let (mut messages, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let received = manager.recv(&mut buffer);
        let len = received.unwrap_or_else(|error| panic!("{error}:\n{}", cluster.log(2)));
        messages.push(String::from_utf8_lossy(&buffer[..len]).into_owned());
        if messages.last().unwrap().contains("READY=1") {
            return messages;
        }
    }
}

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_node_that_its_unit_starts_joins_and_passes_the_checks_after_each_start() {
    let Some(unit) = Unit::read() else {
        xb_testkit::skipped(&format!("{UNIT} is not installed"));
        return;
    };
    if !rustix::process::geteuid().is_root() {
        xb_testkit::skipped("needs root, for a mount namespace and another user");
        return;
    }
    let program = Path::new(env!("CARGO_BIN_EXE_wsrep_sst_xbrs-rs"));
    let script = workspace().join("scripts/wsrep_sst_xbrs");
    let mut cluster = Cluster::new(2, &[program, &script]);
    let bin = cluster.scratch().join("bin");
    mode(cluster.scratch(), 0o755);
    cluster.bootstrap();
    cluster.start(2);
    cluster.wait_synced(2);
    cluster.stop(2);

    let etc = cluster.scratch().join("etc");
    settings(&cluster, 2, &etc);
    let manager: PathBuf = cluster.scratch().join("notify");
    let manager_socket = UnixDatagram::bind(&manager).unwrap();
    mode(&manager, 0o777);
    for snapshot in [true, false] {
        let data = cluster.datadir(2);
        if snapshot {
            std::fs::remove_file(data.join("grastate.dat")).unwrap();
        } else {
            cluster.stop(2);
            cluster.sql(1, "INSERT INTO shop.orders VALUES (0, 'while it was away', 'new')");
        }
        let _ = std::fs::remove_file(data.join("../error.log"));
        let of_mysql = ["-R", "mysql:mysql", data.parent().unwrap().to_str().unwrap()];
        let _ = Cmd::new(find("chown")).args(of_mysql).run().expect(0);
        let path = format!("PATH={}:/usr/sbin:/usr/bin:/sbin:/bin", bin.display());
        let notify = format!("NOTIFY_SOCKET={}", manager.display());
        let folder = cluster.scratch().display().to_string();
        let words =
            ["-i", &path, &notify, "unshare", "--mount", "sh", "-c", START, "start", &folder];
        let mut words = words.map(str::to_owned).to_vec();
        words.push(unit.script());
        cluster.start_as(2, &find("env"), &words);

        let messages = messages_until_ready(&manager_socket, &cluster);
        cluster.wait_synced(2);
        let log = cluster.log(2);
        assert_eq!(log.contains("SST: full backup"), snapshot, "{log}");
        assert_eq!(log.contains("] IST: the donor still has"), !snapshot, "{log}");
        let extends = messages.iter().any(|text| text.starts_with("EXTEND_TIMEOUT_USEC="));
        assert!(extends || !snapshot, "{messages:?}");
        // Commands that the unit runs after a start, as root: upgrade and check in the background.
        for after in unit.all("ExecStartPost") {
            let of_the_server = format!("--mount=/proc/{}/ns/mnt", cluster.pid(2));
            let after = after.trim_start_matches('!');
            let words = [&of_the_server, "sh", "-c", &format!("{after}; wait")];
            let _ = Cmd::new(find("nsenter")).args(words).run().expect(0);
        }
        cluster.use_all_databases(2);
        assert_eq!(cluster.checksums(2), cluster.checksums(1));
    }
}
