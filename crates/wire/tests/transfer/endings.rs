//! Failed transfers: both sides know the reason, and nothing is left running.

use std::num::{NonZeroU8, NonZeroU64};
use std::time::Instant;

use super::support::{LONG, ReceivedEvents, donor, joiner, listen, noise, pair, receive, send};
use xb_process::CancelToken;
use xb_wire::{Announcement, Security, TransferError, connect};

/// Sends until there is an error.
fn send_for_ever(outgoing: &mut xb_wire::Outgoing) -> TransferError {
    let block = noise(300_000);
    loop {
        if let Err(error) = outgoing.send(block.clone()) {
            return error;
        }
    }
}

#[test]
fn a_refused_offer_is_told_in_the_joiners_words() {
    let (listener, announcement) = listen(joiner(Security::OneTime));
    std::thread::scope(|scope| {
        let outgoing = scope.spawn(|| connect(&announcement, b"big", donor(Security::OneTime)));
        let offered = listener.accept(LONG).unwrap();
        offered.refuse("the disk is full: 3 GiB free,\n12 needed");
        let error = outgoing.join().unwrap().unwrap_err();
        assert_eq!(
            error.to_string(),
            "the joiner refused: the disk is full: 3 GiB free,\\n12 needed"
        );
    });
}

#[test]
fn a_joiner_that_stops_in_the_middle_is_heard_by_a_donor_that_waits() {
    let (mut incoming, mut outgoing) = pair(joiner(Security::OneTime), donor(Security::OneTime));
    std::thread::scope(|scope| {
        let sent = scope.spawn(move || send_for_ever(&mut outgoing));
        incoming.next_block().unwrap();
        incoming.refuse("frame 3: checksum");
        let error = sent.join().unwrap();
        assert!(
            matches!(&error, TransferError::Refused { reason } if reason == "frame 3: checksum"),
            "{error}"
        );
    });
}

#[test]
fn a_donor_that_gives_up_is_heard_by_a_joiner_that_waits() {
    let told = ReceivedEvents::default();
    let mut joiner = joiner(Security::OneTime);
    joiner.observer = told.observer();
    let (mut incoming, mut outgoing) = pair(joiner, donor(Security::OneTime));
    outgoing.send(noise(300_000)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || outgoing.abort("mariadb-backup ended with status 1"));
        let error = loop {
            match incoming.next_block() {
                Ok(block) => assert!(block.is_some()),
                Err(error) => break error,
            }
        };
        assert_eq!(error.to_string(), "the donor gave up: mariadb-backup ended with status 1");
        assert!(incoming.check().is_err());
    });
    told.wait_for("transfer failed: the donor gave up", 1);
}

#[test]
fn dropping_either_side_ends_the_other() {
    let (incoming, mut outgoing) = pair(joiner(Security::Plain), donor(Security::Plain));
    drop(incoming);
    assert!(matches!(send_for_ever(&mut outgoing), TransferError::Aborted { who: "joiner", .. }));
    let (mut incoming, outgoing) = pair(joiner(Security::Plain), donor(Security::Plain));
    drop(outgoing);
    let error = incoming.next_block().unwrap_err();
    assert!(matches!(error, TransferError::Aborted { who: "donor", .. }), "{error}");
}

#[test]
fn a_cancel_ends_every_wait() {
    // No donor connects.
    let joiner_cancel = CancelToken::new();
    let mut waiting = joiner(Security::OneTime);
    waiting.cancel = joiner_cancel.clone();
    let (listener, _) = listen(waiting);
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| listener.accept(LONG).map(drop));
        joiner_cancel.cancel("the test".to_owned());
        assert!(matches!(accepted.join().unwrap(), Err(TransferError::Cancelled)));
    });
    // The joiner's reader and the donor's sender are waiting.
    for of_donor in [true, false] {
        let (joiner_cancel, donor_cancel) = (CancelToken::new(), CancelToken::new());
        let mut joiner = joiner(Security::OneTime);
        let mut donor = donor(Security::OneTime);
        joiner.cancel = joiner_cancel.clone();
        donor.cancel = donor_cancel.clone();
        let (mut incoming, mut outgoing) = pair(joiner, donor);
        std::thread::scope(|scope| {
            if of_donor {
                let sent = scope.spawn(move || send_for_ever(&mut outgoing));
                incoming.next_block().unwrap();
                donor_cancel.cancel("the test".to_owned());
                assert!(matches!(sent.join().unwrap(), TransferError::Cancelled));
            } else {
                let received = scope.spawn(move || incoming.next_block().map(drop));
                joiner_cancel.cancel("the test".to_owned());
                let error = received.join().unwrap().unwrap_err();
                assert!(matches!(error, TransferError::Cancelled), "{error}");
                let error = send_for_ever(&mut outgoing);
                assert!(matches!(error, TransferError::Aborted { who: "joiner", .. }), "{error}");
            }
        });
    }
    // A donor in the middle of its first contact.
    let cancel = CancelToken::new();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let announcement = format!("{}/xbrs/plain/1", silent.local_addr().unwrap());
    let announcement = Announcement::parse(&announcement, None).unwrap();
    let mut donor = donor(Security::Plain);
    donor.limits.handshake = LONG;
    donor.cancel = cancel.clone();
    std::thread::scope(|scope| {
        let connected = scope.spawn(|| connect(&announcement, b"", donor).map(drop));
        let _socket = silent.accept().unwrap();
        cancel.cancel("the test".to_owned());
        assert!(matches!(connected.join().unwrap(), Err(TransferError::Cancelled)));
    });
}

#[test]
fn no_donor_within_the_limit() {
    let (listener, _) = listen(joiner(Security::OneTime));
    let error = listener.accept(std::time::Duration::from_millis(20)).unwrap_err();
    assert!(error.to_string().starts_with("no donor connected"), "{error}");
}

#[test]
fn a_donor_with_another_secret_is_sent_away_and_the_right_one_is_served() {
    let told = ReceivedEvents::default();
    let mut joiner = joiner(Security::OneTime);
    joiner.observer = told.observer();
    let (listener, announcement) = listen(joiner);
    let text = announcement.text();
    let (secret, rest) = text.split_once('@').unwrap();
    let other = format!("xbrs:{}@{rest}", "5a".repeat(16));
    let without = rest.to_owned();
    assert_ne!(secret.len(), 0);
    for wrong in [other, without] {
        let wrong = Announcement::parse(&wrong, None).unwrap();
        let error = connect(&wrong, b"", donor(Security::OneTime)).unwrap_err();
        assert!(matches!(error, TransferError::Proof { .. }), "{error}");
    }
    told.wait_for("does not know the one-time secret", 2);

    let stream = noise(10);
    std::thread::scope(|scope| {
        let sent = scope.spawn(|| {
            send(connect(&announcement, b"", donor(Security::OneTime)).unwrap(), &stream, 10)
        });
        let incoming = listener.accept(LONG).unwrap().accept(b"").unwrap();
        receive(incoming, &stream).unwrap();
        sent.join().unwrap().unwrap();
    });
}

/// Returns the errors of a second donor, of the joiner, and of the first donor, if they fail.
fn two_donors(secret: bool) -> (String, Option<String>, Option<String>) {
    let (listener, announcement) = listen(xb_wire::Joiner { secret, ..joiner(Security::OneTime) });
    let stream = noise(10);
    std::thread::scope(|scope| {
        // The second donor may end the transfer before the first one has read the answer.
        let first = scope
            .spawn(|| send(connect(&announcement, b"", donor(Security::OneTime))?, &stream, 10));
        let incoming = listener.accept(LONG).unwrap().accept(b"").unwrap();
        let second = connect(&announcement, b"", donor(Security::OneTime)).unwrap_err();
        let received = receive(incoming, &stream);
        let sent = first.join().unwrap();
        let text = |error: TransferError| error.to_string();
        (text(second), received.err().map(text), sent.err().map(text))
    })
}

#[test]
fn a_second_donor_with_the_secret_ends_the_transfer_because_one_of_them_has_read_it() {
    let (second, received, sent) = two_donors(true);
    for error in [second, received.unwrap(), sent.unwrap()] {
        assert!(error.contains("someone reads the servers' messages"), "{error}");
    }
    let (second, received, sent) = two_donors(false);
    assert!(second.contains("another donor's transfer to this joiner is running"), "{second}");
    assert_eq!((received, sent), (None, None));
}

#[test]
fn another_certificate_than_the_announced_one_is_no_joiner() {
    let (_listener, announcement) = listen(joiner(Security::OneTime));
    let (_other, theirs) = listen(joiner(Security::OneTime));
    let text = announcement.text();
    let here = announcement.address().to_string();
    let there = text.replace(&here, &theirs.address().to_string());
    let there = Announcement::parse(&there, None).unwrap();
    let error = connect(&there, b"", donor(Security::OneTime)).unwrap_err().to_string();
    assert!(error.contains("not the announced one"), "{error}");
}

#[test]
fn sides_that_are_set_up_differently_say_so_before_anything_is_sent() {
    let (_listener, announcement) = listen(joiner(Security::OneTime));
    let error = connect(&announcement, b"", donor(Security::Plain)).unwrap_err().to_string();
    assert!(error.contains("this node is set to plain"), "{error}");
    let (_listener, announcement) = listen(joiner(Security::Plain));
    let error = connect(&announcement, b"", donor(Security::OneTime)).unwrap_err().to_string();
    assert!(error.contains("which this node does not allow"), "{error}");
}

#[test]
fn a_reader_that_stands_still_holds_the_donor_and_no_window_is_passed() {
    let (mut incoming, mut outgoing) = pair(joiner(Security::OneTime), {
        let mut donor = donor(Security::OneTime);
        donor.limits.connections = NonZeroU8::new(3);
        donor
    });
    let window = super::support::limits().window as u64;
    let (theirs, ours) = (incoming.counters(), outgoing.counters());
    let stream = noise(10 << 20);
    std::thread::scope(|scope| {
        let sent = scope.spawn(|| {
            for at in (0..stream.len()).step_by(1 << 20) {
                outgoing.send(stream.slice(at..at + (1 << 20))).unwrap();
            }
            outgoing.finish()
        });
        // Until the joiner's buffers are full: in whole blocks, so that the last one may not fit.
        let start = Instant::now();
        while ours.snapshot().acknowledged + (64 << 10) <= window {
            assert!(start.elapsed() < LONG, "{:?}", ours.snapshot());
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert_eq!(theirs.snapshot().delivered, 0);
        let mut got = Vec::new();
        while let Some(block) = incoming.next_block().unwrap() {
            let there = theirs.snapshot();
            let sent = ours.snapshot();
            assert!(there.received <= there.delivered + window, "{there:?}");
            assert!(sent.sent <= there.delivered + window, "{sent:?} {there:?}");
            got.extend_from_slice(&block);
        }
        assert!(got == stream);
        incoming.confirm().unwrap();
        sent.join().unwrap().unwrap();
    });
}

#[test]
fn a_confirmation_before_the_end_is_refused_on_this_side() {
    let (incoming, outgoing) = pair(joiner(Security::Plain), donor(Security::Plain));
    let error = incoming.confirm().unwrap_err().to_string();
    assert!(error.contains("confirmation before the end"), "{error}");
    assert!(outgoing.finish().is_err());
}

#[test]
fn a_rate_is_kept() {
    let stream = noise(1 << 20);
    let mut donor = donor(Security::OneTime);
    donor.limits.rate = NonZeroU64::new(4 << 20);
    donor.limits.connections = NonZeroU8::new(3);
    let start = Instant::now();
    let (received, sent) =
        super::support::transfer(joiner(Security::OneTime), donor, &stream, 1 << 20);
    received.unwrap();
    sent.unwrap();
    // The last of sixteen blocks is sent after the time of those before it. There is no upper
    // bound: the machine may be busy.
    assert!(start.elapsed().as_secs_f64() > 0.15, "{:?}", start.elapsed());
}
