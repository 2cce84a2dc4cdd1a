//! A host that vanishes without a word, in a network of its own: the system finds that it does not answer.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use xb_mysql::{Account, Client, Error, Target, Timeouts, Trust};
use xb_testkit::daemon::Scratch;
use xb_testkit::donor::{Donor, Side, recorded};

const NAME: &str = "absence::a_host_that_vanishes_is_noticed_whether_or_not_anything_is_sent";
/// Set in the process that has a network of its own.
const INSIDE: &str = "XB_TEST_NETWORK";
/// The host that vanishes: an address of this one, until that is removed.
const HOST: &str = "10.9.0.1";
const LIMIT: Duration = Duration::from_secs(60);

fn run(command: &str) -> bool {
    let mut words = command.split(' ');
    let ran = Command::new(words.next().unwrap()).args(words).output();
    ran.is_ok_and(|output| output.status.success())
}

/// Passes connections to the host on to a socket.
fn relay(socket: PathBuf) -> u16 {
    let listener = TcpListener::bind((HOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for near in listener.incoming().flatten() {
            let far = UnixStream::connect(&socket).unwrap();
            let (mut from, mut to) = (near.try_clone().unwrap(), far.try_clone().unwrap());
            std::thread::spawn(move || io::copy(&mut from, &mut to));
            let (mut from, mut to): (UnixStream, TcpStream) = (far, near);
            std::thread::spawn(move || io::copy(&mut from, &mut to));
        }
    });
    port
}

/// A clone that has begun, of a donor that waits for the next message of the recipient.
fn begun(socket: &Path) -> (Donor, Client) {
    let mut messages = recorded();
    messages.retain(|message| message.from == Side::Recipient);
    let donor = Donor::start(socket, vec![messages], |_| None);
    let target = Target::Tcp {
        host: HOST.to_owned(),
        port: relay(socket.to_owned()),
        trust: Trust::Unproven,
        certificate: None,
    };
    let timeouts = Timeouts { login: LIMIT, reply: Some(LIMIT) };
    (donor, Client::connect(&target, &Account::default(), timeouts).unwrap())
}

#[test]
fn a_host_that_vanishes_is_noticed_whether_or_not_anything_is_sent() {
    if std::env::var_os(INSIDE).is_none() {
        if !run("unshare --net ip link set lo up") {
            return xb_testkit::skipped("this needs root, for a network of its own, and iproute2");
        }
        let exe = std::env::current_exe().unwrap();
        let mut inside = Command::new("unshare");
        let inside = inside.arg("--net").arg(exe).args(["--exact", NAME, "--nocapture"]);
        assert!(inside.env(INSIDE, "1").status().unwrap().success());
        return;
    }
    // Once its address is gone, packets to the host leave by a cable, at whose end nothing takes them.
    for command in [
        "ip link set lo up",
        "ip link add cable type veth peer name far",
        "ip link set far up",
        "ip link set cable up",
        "ip addr add 10.9.0.2/24 dev cable",
        "ip neigh add 10.9.0.1 lladdr 02:00:00:00:00:01 dev cable",
    ] {
        assert!(run(command), "{command}");
    }
    for is_sending in [false, true] {
        assert!(run("ip addr add 10.9.0.1/32 dev lo"));
        let scratch = Scratch::new();
        let (_donor, client) = begun(&scratch.join("sock"));
        let mut link = client.into_clone(LIMIT, Duration::from_secs(3)).unwrap();
        assert!(run("ip addr del 10.9.0.1/32 dev lo"));
        if is_sending {
            link.send(&[4]).unwrap();
        }
        let error = link.receive().unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "{is_sending}: {error}");
    }
}
