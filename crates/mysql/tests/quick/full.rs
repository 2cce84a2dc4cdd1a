//! A client that has read nothing for long, and leaves: its server waits for room, and is let go.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use xb_mysql::{Account, Client, Target, Timeouts, Trust};
use xb_testkit::daemon::Scratch;
use xb_testkit::donor::{Content, Donor, Message, Side};

const LIMIT: Duration = Duration::from_secs(60);

/// Events of a relay.
#[derive(Debug, PartialEq, Eq)]
enum Event {
    /// The client has taken nothing for a second.
    Full,
    /// It is gone.
    Gone,
}

/// Passes a connection on to a socket, and says what becomes of it.
fn relay(socket: PathBuf, events: Sender<Event>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (mut near, _) = listener.accept().unwrap();
        let mut far = UnixStream::connect(&socket).unwrap();
        let (mut from, mut to): (TcpStream, UnixStream) =
            (near.try_clone().unwrap(), far.try_clone().unwrap());
        std::thread::spawn(move || io::copy(&mut from, &mut to));
        near.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
        let mut buffer = vec![0; 1 << 16];
        loop {
            let found = far.read(&mut buffer).unwrap();
            assert!(found > 0, "the donor has nothing more, and the connection is not full");
            match near.write_all(&buffer[..found]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                written => written.unwrap(),
            }
        }
        near.set_write_timeout(None).unwrap();
        events.send(Event::Full).unwrap();
        // Until room is made, or the client's system refuses it.
        while near.write_all(&buffer).is_ok() {}
        events.send(Event::Gone).unwrap();
    });
    port
}

/// The connection is not even closed: who reads it may wait for something else.
#[test]
fn a_server_that_waits_for_room_is_let_go_at_once() {
    let scratch = Scratch::new();
    let socket = scratch.join("sock");
    let part = || Message { from: Side::Donor, content: Content::Data(1 << 20) };
    let _donor = Donor::start(&socket, vec![(0..200).map(|_| part()).collect()], |_| None);
    let (events, told) = channel();
    let target = Target::Tcp {
        host: "127.0.0.1".to_owned(),
        port: relay(socket, events),
        trust: Trust::Unproven,
        certificate: None,
    };
    let timeouts = Timeouts { login: LIMIT, reply: Some(LIMIT) };
    let client = Client::connect(&target, &Account::default(), timeouts).unwrap();
    let link = client.into_clone(LIMIT, LIMIT).unwrap();
    assert_eq!(told.recv_timeout(LIMIT), Ok(Event::Full));
    link.hang_up().unwrap().abort();
    assert_eq!(told.recv_timeout(LIMIT), Ok(Event::Gone));
}
