//! Streams that arrive.

use std::io::Read;
use std::num::NonZeroU8;

use super::support::{donor, joiner, noise, pair, transfer};
use xb_sst::transport::{Receipt, Security};

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
            assert_eq!(received.unwrap(), Receipt::Heard);
        }
    }
}

#[test]
fn what_comes_can_be_read_like_a_file() {
    let stream = noise(3 << 20);
    let (mut incoming, outgoing) = pair(joiner(Security::OneTime), donor(Security::OneTime));
    std::thread::scope(|scope| {
        let sent = scope.spawn(|| super::support::send(outgoing, &stream, 100_000));
        let mut out = Vec::new();
        incoming.read_to_end(&mut out).unwrap();
        assert!(out == stream);
        let counted = incoming.counters().snapshot();
        assert_eq!((counted.received, counted.delivered), (3 << 20, 3 << 20));
        incoming.confirm().unwrap();
        sent.join().unwrap().unwrap();
    });
}
