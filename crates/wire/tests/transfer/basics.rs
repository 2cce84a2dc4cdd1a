//! Streams that arrive.

use std::io::Read;
use std::num::NonZeroU8;

use super::support::{LONG, donor, joiner, listen, noise, pair, receive, send, transfer};
use xb_wire::{Listener, Receipt, Security, connect};

#[test]
fn streams_arrive_whole_by_any_number_of_connections() {
    for security in [Security::Plain, Security::OneTime] {
        for (connections, len, piece) in
            [(1, 0, 1), (1, 1, 1), (1, 5 << 20, 1 << 20), (4, 20 << 20, 700_001), (16, 9 << 20, 99)]
        {
            let stream = noise(len);
            let mut donor = donor(security.clone());
            donor.limits.connections = NonZeroU8::new(connections);
            let (received, sent) = transfer(joiner(security.clone()), donor, &stream, piece);
            sent.unwrap();
            assert_eq!(received.unwrap(), Receipt::Acknowledged);
        }
    }
}

#[test]
fn a_received_stream_reads_like_a_file() {
    let stream = noise(3 << 20);
    let (mut incoming, outgoing) = pair(joiner(Security::OneTime), donor(Security::OneTime));
    std::thread::scope(|scope| {
        let sent = scope.spawn(|| send(outgoing, &stream, 100_000));
        let mut out = Vec::new();
        incoming.read_to_end(&mut out).unwrap();
        assert!(out == stream);
        let counted = incoming.counters().snapshot();
        assert_eq!((counted.received, counted.delivered), (3 << 20, 3 << 20));
        incoming.confirm().unwrap();
        sent.join().unwrap().unwrap();
    });
}

#[test]
fn ipv6_addresses_are_listened_on_and_announced_in_brackets() {
    let Ok(listener) = Listener::bind(&"[::1]:0".parse().unwrap(), joiner(Security::OneTime))
    else {
        xb_testkit::skipped("this machine has no IPv6");
        return;
    };
    let announcement = listener.announcement().clone();
    assert!(announcement.text().contains("@[::1]:"), "{announcement:?}");
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
fn a_port_that_is_taken_is_named() {
    let (listener, _) = listen(joiner(Security::Plain));
    let address = listener.local_addr().to_string().parse().unwrap();
    let error = Listener::bind(&address, joiner(Security::Plain)).unwrap_err().to_string();
    assert!(error.ends_with("check whether another transfer is still running"), "{error}");
    let elsewhere = Listener::bind(&"192.0.2.1:0".parse().unwrap(), joiner(Security::Plain));
    let error = elsewhere.unwrap_err().to_string();
    assert!(error.ends_with("check that the address belongs to this machine"), "{error}");
}
