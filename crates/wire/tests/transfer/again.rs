//! Streams that begin again, and peers that speak version 1 only.

use std::num::NonZeroU8;

use super::support::{donor, joiner, noise, pair, transfer};
use xb_wire::{Incoming, Receipt, Security, TransferError};

/// Reads up to the end of the stream, or up to the next beginning.
fn read_on(incoming: &mut Incoming) -> (Vec<u8>, Option<TransferError>) {
    let mut got = Vec::new();
    loop {
        match incoming.next_block() {
            Ok(Some(block)) => got.extend_from_slice(&block),
            Ok(None) => return (got, None),
            Err(error) => return (got, Some(error)),
        }
    }
}

#[test]
fn a_stream_that_begins_again_arrives_whole_from_its_new_beginning() {
    for connections in [1, 4, 16] {
        let mut donor = donor(Security::OneTime);
        donor.limits.connections = NonZeroU8::new(connections);
        let (mut incoming, mut outgoing) = pair(joiner(Security::OneTime), donor);
        let (first, second) = (noise(5_000_001), noise(9 << 20).slice(7..));
        std::thread::scope(|scope| {
            let sent = scope.spawn(|| {
                assert!(outgoing.can_begin_again());
                outgoing.send(first.clone()).unwrap();
                // Too few bytes for a block: they are not sent.
                outgoing.send(noise(100)).unwrap();
                outgoing.begin_again();
                outgoing.send(second.clone()).unwrap();
                outgoing.finish()
            });
            let (got, end) = read_on(&mut incoming);
            assert!(matches!(end, Some(TransferError::BeganAgain)), "{end:?}");
            assert!(got == first[..got.len()] && first.len() - got.len() < 4 << 10);
            let (got, end) = read_on(&mut incoming);
            assert!(end.is_none(), "{end:?}");
            assert!(got == second);
            assert_eq!(incoming.confirm().unwrap(), Receipt::Acknowledged);
            sent.join().unwrap().unwrap();
        });
    }
}

#[test]
fn a_beginning_that_nothing_follows_is_no_end() {
    let (mut incoming, mut outgoing) = pair(joiner(Security::Plain), donor(Security::Plain));
    outgoing.send(noise(100_000)).unwrap();
    outgoing.begin_again();
    std::thread::scope(|scope| {
        let sent = scope.spawn(move || outgoing.finish());
        let (_, end) = read_on(&mut incoming);
        drop(incoming);
        assert!(matches!(end, Some(TransferError::Aborted { who: "donor", .. })), "{end:?}");
        assert!(matches!(sent.join().unwrap(), Err(TransferError::Cancelled)));
    });
}

#[test]
fn a_peer_of_version_1_gets_a_whole_stream_and_no_second_beginning() {
    let stream = noise(3 << 20);
    for (of_joiner, of_donor) in [(1, 2), (2, 1), (1, 1)] {
        let sides = || {
            let (mut joiner, mut donor) = (joiner(Security::OneTime), donor(Security::OneTime));
            joiner.limits.newest_version = of_joiner;
            donor.limits.newest_version = of_donor;
            (joiner, donor)
        };
        let (joiner, donor) = sides();
        let (received, sent) = transfer(joiner, donor, &stream, 100_000);
        sent.unwrap();
        assert_eq!(received.unwrap(), Receipt::Acknowledged);

        let (joiner, donor) = sides();
        let (mut incoming, mut outgoing) = pair(joiner, donor);
        assert!(!outgoing.can_begin_again());
        // A donor that does it nevertheless.
        std::thread::scope(|scope| {
            let stream = &stream;
            scope.spawn(move || {
                outgoing.send(stream.clone()).unwrap();
                outgoing.begin_again();
                let _ = outgoing.send(stream.clone());
                assert!(outgoing.finish().is_err());
            });
            let (_, end) = read_on(&mut incoming);
            drop(incoming);
            assert!(end.is_some_and(|error| !matches!(error, TransferError::BeganAgain)));
        });
    }
}
