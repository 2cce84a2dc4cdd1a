//! Questions of the donor's layer above, and the joiner's replies.

use std::num::NonZeroU8;
use std::time::Duration;

use proptest::prelude::*;

use super::relay::{Fate, How, Relay};
use super::support::{LONG, donor, joiner, listen, noise, pair, receive};
use xb_wire::{
    Answers, MAX_QUESTION, MAX_REPLY, Questions, Receipt, ReplyWait, Security, TransferError,
    connect,
};

/// Answers every question with its number among the questions and its last byte, until the transfer is over.
fn answer_all(answers: &Answers) -> Result<u64, TransferError> {
    let mut number = 0_u64;
    while let Some(question) = answers.next_question()? {
        let reply = [&number.to_le_bytes()[..], &question[question.len() - 1..]].concat();
        answers.reply(&reply)?;
        number += 1;
    }
    Ok(number)
}

/// Asks this many questions, as many at once as the protocol allows, and checks every reply.
fn ask_all(questions: &Questions, number: u64) {
    let (mut asked, mut taken) = (0_u64, 0_u64);
    let last = |number: u64| u8::try_from(number % 251).unwrap();
    while taken < number {
        if asked < number && questions.ask(&[7, last(asked)]).unwrap() {
            asked += 1;
            continue;
        }
        let ReplyWait::Reply(reply) = questions.await_reply(LONG).unwrap() else {
            panic!("no reply")
        };
        assert_eq!(reply, [&taken.to_le_bytes()[..], &[last(taken)]].concat());
        taken += 1;
    }
    assert_eq!(questions.await_reply(LONG).unwrap(), ReplyWait::Nothing);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// Wherever connections are cut: every question has its one reply, and the stream is unchanged.
    #[test]
    fn every_question_is_answered_despite_cuts(
        connections in 1_u8..4,
        tls: bool,
        number in 0_u64..3000,
        cuts in proptest::collection::vec((0_usize..60_000, any::<bool>(), any::<bool>()), 0..6),
    ) {
        let stream = noise(300_000);
        let security = if tls { Security::OneTime } else { Security::Plain };
        let mut donor = donor(security.clone());
        donor.limits.connections = NonZeroU8::new(connections);
        let fates: Vec<Fate> = cuts
            .iter()
            .map(|&(after, reset, back)| {
                let how = if reset { How::Reset } else { How::End };
                Fate { after: after + 4096, how, back }
            })
            .collect();
        let mut joiner = joiner(security);
        // A cut may take the end of the receipt along, and then the joiner waits in vain.
        joiner.limits.receipt = Duration::from_millis(300);
        let (listener, announcement) = listen(joiner);
        let (relay, announcement) = Relay::before(&announcement, &fates);
        std::thread::scope(|scope| {
            let sent = scope.spawn(|| {
                let mut outgoing = connect(&announcement, b"", donor)?;
                let questions = outgoing.questions().unwrap();
                ask_all(&questions, number);
                outgoing.send(stream.clone())?;
                outgoing.finish()
            });
            let incoming = listener.accept(LONG).unwrap().accept(b"").unwrap();
            let answers = incoming.answers();
            let answering = answers.clone();
            let answered = scope.spawn(move || answer_all(&answering));
            let receipt = receive(incoming, &stream);
            assert!(matches!(receipt, Ok(Receipt::Acknowledged | Receipt::Unknown)), "{receipt:?}");
            sent.join().unwrap().unwrap();
            answers.close();
            assert_eq!(answered.join().unwrap().unwrap(), number);
        });
        drop(relay);
    }
}

#[test]
fn a_question_does_not_wait_for_the_stream() {
    let (mut incoming, mut outgoing) = pair(joiner(Security::OneTime), donor(Security::OneTime));
    let (questions, answers) = (outgoing.questions().unwrap(), incoming.answers());
    let stream = noise(4 << 20);
    std::thread::scope(|scope| {
        // No block is read: the windows of both sides are full.
        let sending = scope.spawn(|| {
            outgoing.send(stream.clone()).unwrap();
            outgoing
        });
        let answering = answers.clone();
        let answered = scope.spawn(move || answer_all(&answering));
        ask_all(&questions, 1000);
        answers.close();
        assert_eq!(answered.join().unwrap().unwrap(), 1000);
        let mut len = 0;
        while len < stream.len() {
            len += incoming.next_block().unwrap().unwrap().len();
        }
        sending.join().unwrap();
    });
}

#[test]
fn a_few_bytes_are_passed_on_when_asked_for() {
    let (mut incoming, mut outgoing) = pair(joiner(Security::Plain), donor(Security::Plain));
    outgoing.send(noise(100)).unwrap();
    outgoing.pass_on().unwrap();
    assert_eq!(incoming.next_block().unwrap().unwrap(), noise(100));
}

#[test]
fn waiting_threads_learn_that_the_transfer_has_ended() {
    let sides = || {
        let (incoming, outgoing) = pair(joiner(Security::OneTime), donor(Security::OneTime));
        let (questions, answers) = (outgoing.questions().unwrap(), incoming.answers());
        assert!(questions.ask(b"?").unwrap());
        assert!(questions.ask(&[0; MAX_QUESTION + 1]).is_err() && questions.ask(b"").is_err());
        assert!(questions.reply().unwrap().is_none());
        assert_eq!(answers.next_question().unwrap().unwrap(), b"?");
        assert!(answers.reply(&[0; MAX_REPLY + 1]).is_err());
        (incoming, outgoing, questions, answers)
    };
    let (incoming, outgoing, questions, answers) = sides();
    std::thread::scope(|scope| {
        let asked = scope.spawn(move || questions.await_reply(LONG));
        let waiting = scope.spawn(move || answers.next_question());
        incoming.refuse("no room");
        assert!(asked.join().unwrap().is_err());
        assert!(waiting.join().unwrap().is_err());
        drop(outgoing);
    });
    let (incoming, outgoing, questions, answers) = sides();
    std::thread::scope(|scope| {
        let asked = scope.spawn(move || questions.await_reply(LONG));
        let waiting = scope.spawn(move || answers.next_question());
        drop(outgoing);
        assert!(asked.join().unwrap().is_err());
        assert!(waiting.join().unwrap().is_err());
        drop(incoming);
    });
}

#[test]
fn a_joiner_that_does_not_answer_is_not_waited_for() {
    let (mut incoming, mut outgoing) = pair(joiner(Security::OneTime), donor(Security::OneTime));
    let questions = outgoing.questions().unwrap();
    assert!(questions.ask(b"?").unwrap());
    let limit = Duration::from_millis(50);
    assert_eq!(questions.await_reply(limit).unwrap(), ReplyWait::Nothing);
    // The transfer does not depend on it, and nor does a reply that comes late.
    outgoing.send(noise(100_000)).unwrap();
    outgoing.pass_on().unwrap();
    assert!(incoming.next_block().unwrap().is_some());
    let answers = incoming.answers();
    assert_eq!(answers.next_question().unwrap().unwrap(), b"?");
    answers.reply(b"!").unwrap();
    assert_eq!(questions.await_reply(LONG).unwrap(), ReplyWait::Reply(b"!".to_vec()));
}

#[test]
fn a_peer_of_version_1_is_asked_nothing() {
    let mut old = joiner(Security::OneTime);
    old.limits.newest_version = 1;
    let (_incoming, outgoing) = pair(old, donor(Security::OneTime));
    assert!(outgoing.questions().is_none());
}

/// It may have to look after another source at any time.
#[test]
fn who_waits_for_a_reply_can_be_woken() {
    let (_incoming, outgoing) = pair(joiner(Security::OneTime), donor(Security::OneTime));
    let questions = outgoing.questions().unwrap();
    let waker = questions.waker();
    assert!(questions.ask(b"?").unwrap());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| questions.await_reply(LONG));
        waker.wake();
        assert_eq!(waiting.join().unwrap().unwrap(), ReplyWait::Woken);
    });
    // Once.
    assert_eq!(questions.await_reply(Duration::ZERO).unwrap(), ReplyWait::Nothing);
}
