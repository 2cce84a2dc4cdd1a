//! Other S3 servers than the usual one, for tests that any store must pass: `XB_S3_SERVER` names one. They
//! know one access key only, [`ACCESS_KEY`].

use std::time::Duration;

use super::client::{ACCESS_KEY, Bucket, SECRET_KEY};
use super::server::Server;
use crate::process::daemon::{Daemon, Scratch};
use crate::process::ports::free_port;
use crate::process::tools;

/// Time limit of a server's start. Both are ready within two seconds.
const START_LIMIT: Duration = Duration::from_secs(300);

/// Starts the server of this name: `minio`, which is stricter about signatures and keys, or `versitygw`,
/// which keeps objects as files. `None` if another program took its port first.
///
/// # Panics
/// There is no such server, or it cannot be started.
pub(super) fn try_start(name: &str) -> Option<Server> {
    let scratch = Scratch::new();
    let [port, console] = [free_port(), free_port()];
    let (address, data) = (format!("127.0.0.1:{port}"), scratch.dir("data").display().to_string());
    let (user, password, args) = match name {
        "minio" => {
            let console = format!("127.0.0.1:{console}");
            let args = ["server", "--quiet", "--address", &address, "--console-address", &console];
            ("MINIO_ROOT_USER", "MINIO_ROOT_PASSWORD", [&args[..], &[&data]].concat().join(" "))
        }
        "versitygw" => {
            let args = ["--quiet", "--port", &address, "posix", &data];
            ("ROOT_ACCESS_KEY", "ROOT_SECRET_KEY", args.join(" "))
        }
        other => panic!("XB_S3_SERVER={other}: not seaweedfs, minio or versitygw"),
    };
    // The servers take their keys from the environment only.
    let mut words = vec![format!("{user}={ACCESS_KEY}"), format!("{password}={SECRET_KEY}")];
    words.push(tools::find(name).display().to_string());
    words.extend(args.split(' ').map(str::to_owned));
    let daemon = Daemon::start(&tools::find("env"), &words, &scratch.join("log"));
    let mut taken = false;
    daemon.wait_ready(name, START_LIMIT, || {
        taken = daemon.ended().is_some() && daemon.log().contains("address already in use");
        taken || Bucket::create(&address, "ready", false).is_ok()
    });
    (!taken).then_some(Server::new(address, daemon, scratch))
}
