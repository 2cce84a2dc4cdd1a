//! Connections that break, and the cost of that.

use std::num::NonZeroU8;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;

use super::relay::{Fate, How, Relay};
use super::support::{LONG, ReceivedEvents, donor, joiner, limits, listen, noise, receive, send};
use xb_wire::{Donor, Joiner, Receipt, Security, Snapshot, TransferError, connect};

/// Runs a transfer through a relay; returns the counters of both sides.
fn through(
    fates: &[Fate],
    joiner: Joiner,
    donor: Donor,
    stream: &Bytes,
    meanwhile: impl FnOnce(&mut Relay) + Send,
) -> (Result<Snapshot, TransferError>, Result<Snapshot, TransferError>) {
    let (listener, announcement) = listen(joiner);
    let (mut relay, announcement) = Relay::before(&announcement, fates);
    std::thread::scope(|scope| {
        let sent = scope.spawn(move || {
            let outgoing = connect(&announcement, b"", donor)?;
            let counters = outgoing.counters();
            send(outgoing, stream, 300_000)?;
            Ok(counters.snapshot())
        });
        // The relay lives until both sides are done.
        let relay = &mut relay;
        scope.spawn(move || meanwhile(relay));
        let received = listener.accept(LONG).and_then(|offered| {
            let incoming = offered.accept(b"")?;
            let counters = incoming.counters();
            let receipt = receive(incoming, stream)?;
            assert!(matches!(receipt, Receipt::Acknowledged | Receipt::Unknown));
            Ok(counters.snapshot())
        });
        (received, sent.join().unwrap())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Wherever connections are cut: the stream arrives unchanged, nothing that had arrived is sent
    /// again, and a cut costs at most the contents of the window.
    #[test]
    fn a_stream_arrives_despite_cuts(
        len in 0_usize..6_000_000,
        connections in 1_u8..4,
        tls: bool,
        cuts in proptest::collection::vec((0_usize..2_000_000, any::<bool>()), 1..6),
    ) {
        let stream = noise(len);
        let security = if tls { Security::OneTime } else { Security::Plain };
        let mut donor = donor(security.clone());
        donor.limits.connections = NonZeroU8::new(connections);
        // Long enough for every connection to come back, however busy the machine is.
        donor.limits.doubt = LONG;
        let window = donor.limits.window as u64;
        // The first contact is spared: a donor that never connected gives up soon.
        let fates: Vec<Fate> = cuts
            .iter()
            .map(|&(after, reset)| {
                let how = if reset { How::Reset } else { How::End };
                Fate { after: after + 4096, how, back: false }
            })
            .collect();
        let (received, sent) = through(&fates, joiner(security), donor, &stream, |_| {});
        let (received, sent) = (received.unwrap(), sent.unwrap());
        prop_assert_eq!(received.received, len as u64);
        prop_assert_eq!(received.duplicate, 0);
        prop_assert_eq!(sent.sent, len as u64 + sent.resent);
        prop_assert_eq!(sent.acknowledged, len as u64);
        prop_assert!(sent.resent <= cuts.len() as u64 * window, "{sent:?}");
        prop_assert!(sent.reconnects <= cuts.len() as u64);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// A flipped bit costs at most a connection: TLS detects it, and so do the protocol's
    /// checksums.
    #[test]
    fn a_stream_arrives_despite_flipped_bits(
        tls: bool,
        connections in 1_u8..4,
        flips in proptest::collection::vec((0_usize..1_000_000, any::<bool>()), 1..5),
    ) {
        let stream = noise(4_000_000);
        let security = if tls { Security::OneTime } else { Security::Plain };
        let mut donor = donor(security.clone());
        donor.limits.connections = NonZeroU8::new(connections);
        // The first contact is spared. Flips from joiner to donor come early, because only
        // acknowledgements go that way.
        let fates: Vec<Fate> = flips
            .iter()
            .map(|&(after, back)| {
                let after = if back { 2600 + after / 1000 } else { 4096 + after };
                Fate { after, how: How::Flip, back }
            })
            .collect();
        let (received, sent) = through(&fates, joiner(security), donor, &stream, |_| {});
        let (received, sent) = (received.unwrap(), sent.unwrap());
        prop_assert_eq!(received.received, stream.len() as u64);
        prop_assert!(sent.reconnects <= flips.len() as u64, "{sent:?}");
    }
}

#[test]
fn silence_is_noticed_on_both_sides_and_survived() {
    let stream = noise(8 << 20);
    let (told_joiner, told_donor) = (ReceivedEvents::default(), ReceivedEvents::default());
    let mut joiner = joiner(Security::OneTime);
    let mut donor = donor(Security::OneTime);
    for limits in [&mut joiner.limits, &mut donor.limits] {
        limits.heartbeat = Duration::from_millis(50);
        // Longer than a thread has to wait on a busy machine.
        limits.stall = Duration::from_secs(2);
    }
    donor.limits.handshake = Duration::from_secs(2);
    donor.limits.connections = NonZeroU8::new(2);
    joiner.observer = told_joiner.observer();
    donor.observer = told_donor.observer();
    let (joiner_saw, donor_saw) = (told_joiner.clone(), told_donor.clone());
    let (received, sent) = through(&[], joiner, donor, &stream, move |relay| {
        for saw in [&joiner_saw, &donor_saw] {
            saw.wait_for("connection 1 to", 1);
        }
        relay.wait_for(3 << 20);
        relay.hold_still();
        joiner_saw.wait_for("lost connection", 2);
        donor_saw.wait_for("lost connection", 2);
        // Data held in the relay is lost, as on a path that was cut.
        relay.reset_all();
        relay.go_on();
        // The other connection may return too late to be needed.
        donor_saw.wait_for("is re-established", 1);
    });
    assert_eq!(received.unwrap().received, stream.len() as u64);
    let sent = sent.unwrap();
    let most = sent.reconnects * limits().window as u64;
    assert!(sent.reconnects >= 1 && sent.resent <= most, "{sent:?}");
    assert!(told_joiner.all().contains("no data from the donor"), "{}", told_joiner.all());
    assert!(told_donor.all().contains("lost connection"), "{}", told_donor.all());
}

#[test]
fn silence_for_good_ends_both_sides() {
    let stream = noise(8 << 20);
    let (mut joiner, mut donor) = (joiner(Security::OneTime), donor(Security::OneTime));
    for limits in [&mut joiner.limits, &mut donor.limits] {
        limits.heartbeat = Duration::from_millis(50);
        limits.stall = Duration::from_secs(1);
        limits.handshake = Duration::from_secs(1);
        limits.resume = Duration::from_secs(4);
        limits.farewell = Duration::from_millis(100);
    }
    let told = ReceivedEvents::default();
    donor.observer = told.observer();
    let (received, sent) = through(&[], joiner, donor, &stream, move |relay| {
        relay.wait_for(2 << 20);
        relay.hold_still();
        told.wait_for("transfer failed", 1);
    });
    let (received, sent) = (received.unwrap_err(), sent.unwrap_err());
    assert!(sent.to_string().contains("no progress for"), "{sent}");
    assert!(
        matches!(received, TransferError::Lost { .. } | TransferError::Aborted { .. }),
        "{received}"
    );
}

#[test]
fn a_joiner_that_is_gone_is_not_waited_for_as_long_as_a_network() {
    let stream = noise(8 << 20);
    let (mut joiner, mut donor) = (joiner(Security::OneTime), donor(Security::OneTime));
    donor.limits.refused = Duration::from_millis(300);
    joiner.limits.resume = Duration::from_millis(500);
    let (received, sent) = through(&[], joiner, donor, &stream, |relay| {
        relay.wait_for(2 << 20);
        relay.close();
    });
    let (received, sent) = (received.unwrap_err(), sent.unwrap_err());
    assert!(matches!(sent, TransferError::Gone { .. }), "{sent}");
    // A joiner sees the same if its donor is killed.
    assert!(matches!(received, TransferError::Lost { .. }), "{received}");
}
