//! Peers of other kinds, and donors that are not the expected one.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use super::relay::{Fate, How, Relay};
use super::support::{LONG, ReceivedEvents, donor, joiner, listen, noise, receive, send};
use xb_testkit::flood::Flood;
use xb_wire::{Announcement, Security, TransferError, connect, decline};

/// Returns the joiner's answer to a peer that begins with `bytes`.
fn answer_to(bytes: &[u8], to: std::net::SocketAddr) -> String {
    let mut socket = TcpStream::connect(to).unwrap();
    socket.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    // A reset after the answer counts as an end.
    let _ = socket.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn other_programs_are_sent_away_with_a_word_and_the_donor_still_comes_through() {
    let told = ReceivedEvents::default();
    let mut joiner = joiner(Security::OneTime);
    joiner.observer = told.observer();
    joiner.limits.handshake = LONG;
    let (listener, announcement) = listen(joiner);
    let to = listener.local_addr();
    let no = |bytes: &[u8]| answer_to(bytes, to);
    assert!(no(b"GET / HTTP/1.1\r\n\r\n").starts_with("XBRS-WIRE 1-2 no it is an HTTP client"));
    assert!(no(b"XBSTCK01\0P").contains("no it is the donor of a stock transfer script"));
    assert!(no(b"\x16\x03\x01\x02\0\x01").contains("no it is another TLS client"));
    assert!(no(b"XBRS-WIRE 7-9 tls 00\n").contains("first line is invalid"));
    let nonce = "00".repeat(16);
    assert!(no(format!("XBRS-WIRE 7-9 tls {nonce}\n").as_bytes()).contains("versions 7-9"));
    assert!(no(format!("XBRS-WIRE 1-1 plain {nonce}\n").as_bytes()).contains("requires TLS"));
    // TLS itself refuses garbage after the line.
    no(format!("XBRS-WIRE 1-1 tls {nonce}\nno TLS at all").as_bytes());

    let stream = noise(100_000);
    std::thread::scope(|scope| {
        let sent = scope.spawn(|| {
            send(connect(&announcement, b"", donor(Security::OneTime)).unwrap(), &stream, 50_000)
        });
        let incoming = listener.accept(LONG).unwrap().accept(b"").unwrap();
        receive(incoming, &stream).unwrap();
        sent.join().unwrap().unwrap();
    });
    told.wait_for("data that is not TLS", 1);
    told.wait_for("HTTP client", 1);
}

#[test]
fn a_donor_that_cannot_connect_says_why() {
    let told = ReceivedEvents::default();
    let mut joiner = joiner(Security::OneTime);
    joiner.observer = told.observer();
    let (listener, announcement) = listen(joiner);
    decline(&announcement, "no certificates \u{1b}[31m here");
    told.wait_for("the donor gave up: no certificates \\u{1b}[31m here", 1);
    // Another donor may come.
    std::thread::scope(|scope| {
        let _ = scope.spawn(|| connect(&announcement, b"", donor(Security::OneTime)));
        listener.accept(LONG).unwrap().refuse("enough");
    });
}

#[test]
fn silence_is_ended_by_the_limit() {
    let told = ReceivedEvents::default();
    let mut joiner = joiner(Security::OneTime);
    joiner.observer = told.observer();
    joiner.limits.handshake = Duration::from_millis(50);
    let (listener, _) = listen(joiner);
    assert_eq!(answer_to(b"", listener.local_addr()), "");
    told.wait_for("it did not identify itself within", 1);
}

/// Returns the donor's error for a server that always answers with `bytes` and closes.
fn at_a_server(bytes: &'static [u8]) -> TransferError {
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = server.local_addr().unwrap();
    let announcement = format!("127.0.0.1:{}/xbrs/plain/1", address.port());
    let announcement = Announcement::parse(&announcement, None).unwrap();
    let mut donor = donor(Security::Plain);
    donor.limits.connect = Duration::from_millis(200);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // A connection without a first line is the last one.
            while let Ok((mut socket, _)) = server.accept()
                && socket.read_exact(&mut [0; 20]).is_ok()
            {
                // The donor may already be gone.
                let _ = socket.write_all(bytes);
            }
        });
        let error = connect(&announcement, b"", donor).unwrap_err();
        drop(TcpStream::connect(address).unwrap());
        error
    })
}

#[test]
fn a_first_contact_that_is_cut_off_is_tried_again() {
    let cut = Fate { after: 1, how: How::Reset, back: false };
    let (listener, announcement) = listen(joiner(Security::OneTime));
    let (_relay, announcement) = Relay::before(&announcement, &[cut; 3]);
    let stream = noise(100_000);
    std::thread::scope(|scope| {
        let sent = scope.spawn(|| {
            send(connect(&announcement, b"", donor(Security::OneTime)).unwrap(), &stream, 50_000)
        });
        let incoming = listener.accept(LONG).unwrap().accept(b"").unwrap();
        receive(incoming, &stream).unwrap();
        sent.join().unwrap().unwrap();
    });
}

#[test]
fn a_donor_says_who_answered_instead_of_a_joiner() {
    let error = at_a_server(b"HTTP/1.1 400 Bad Request\r\n\r\n").to_string();
    assert!(error.contains("it is an HTTP server"), "{error}");
    let error = at_a_server(b"").to_string();
    assert!(error.contains("without an answer"), "{error}");
    let error = at_a_server(b"XBRS-WIRE 3-4 plain 00000000000000000000000000000000\n").to_string();
    assert!(error.contains("supports protocol versions 3-4"), "{error}");
    let error = at_a_server(b"XBRS-WIRE 1-1 no you\x1b[2J not\n").to_string();
    assert!(error.contains("the joiner refused: you\\u{1b}[2J not"), "{error}");
}

#[test]
fn a_closed_port_is_named_with_the_way_to_open_it() {
    // Bound, so that no other program listens on it.
    let taken = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    taken.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    let port = taken.local_addr().unwrap().as_socket().unwrap().port();
    let announcement =
        Announcement::parse(&format!("127.0.0.1:{port}/xbrs/plain/1"), None).unwrap();
    let mut donor = donor(Security::Plain);
    donor.limits.connect = Duration::from_millis(200);
    let error = connect(&announcement, b"", donor).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "cannot reach 127.0.0.1:{port}: connection refused: check that the firewall allows this port"
        )
    );
}

#[test]
fn silent_peers_do_not_block_the_donor() {
    let told = ReceivedEvents::default();
    let mut joiner = joiner(Security::OneTime);
    joiner.observer = told.observer();
    // The strangers may stay for longer than this test takes.
    joiner.limits.handshake = LONG;
    let (listener, announcement) = listen(joiner);
    let line = format!("XBRS-WIRE 1-1 tls {}\n", "00".repeat(16));
    let mut strangers = Vec::new();
    for words in [b"", line.as_bytes()] {
        for _ in 0..50 {
            let mut socket = TcpStream::connect(listener.local_addr()).unwrap();
            socket.write_all(words).unwrap();
            strangers.push(socket);
        }
    }
    told.wait_for("it did not identify itself before newer connections arrived", 100 - 32);
    let stream = noise(100_000);
    std::thread::scope(|scope| {
        let sent = scope.spawn(|| {
            send(connect(&announcement, b"", donor(Security::OneTime)).unwrap(), &stream, 50_000)
        });
        receive(listener.accept(LONG).unwrap().accept(b"").unwrap(), &stream).unwrap();
        sent.join().unwrap().unwrap();
    });
}

#[test]
fn a_flood_of_first_lines_does_not_keep_the_donor_out() {
    let stream = noise(100_000);
    for strangers in [2, 4] {
        let told = ReceivedEvents::default();
        let mut joiner = joiner(Security::OneTime);
        joiner.observer = told.observer();
        let (listener, announcement) = listen(joiner);
        let mut donor = donor(Security::OneTime);
        donor.limits.connect = LONG;
        std::thread::scope(|scope| {
            let flood = Flood::start(listener.local_addr(), strangers);
            // How a stranger is refused depends on who is faster: it is evicted, or it closes
            // its connection before it is served. Only the first hundred refusals are logged.
            told.wait_for("refused a connection", 10);
            let sent = scope.spawn(|| send(connect(&announcement, b"", donor)?, &stream, 50_000));
            let received =
                scope.spawn(|| receive(listener.accept(LONG)?.accept(b"")?, &stream).map(|_| ()));
            let ended = [sent.join(), received.join()];
            drop(flood);
            for end in ended {
                end.unwrap().unwrap();
            }
        });
    }
}
