//! A clone between two stock servers whose connections break: it continues where it was, nothing lost and nothing twice,
//! or fails.

use crate::recording::*;

#[test]
fn an_answer_to_a_resumed_clone_with_another_byte_is_refused() {
    let (messages, _) = recorded();
    for stage in 2..=4 {
        let blocks = blocks_of(&messages, stage);
        let from = blocks[blocks.len() / 2];
        let mut run = Run::new();
        feed(&mut run, &messages[..from]).unwrap();
        let _ = run.recipient.resume().unwrap();
        let answers = again(&messages);
        for (at, answer) in answers.iter().enumerate() {
            let goes_on = |changed: &Message| {
                let mut run = run.clone();
                feed(&mut run, &answers[..at])?;
                feed(&mut run, std::slice::from_ref(changed))?;
                feed(&mut run, &answers[at + 1..])?;
                feed(&mut run, &messages[from..]).and_then(|()| run.end())
            };
            assert!(goes_on(answer).is_ok());
            for (byte, changed) in altered(answer) {
                // How far the clone has come, which the donor is told and does not tell.
                let is_place = at == 0 && byte >= 42;
                assert!(goes_on(&changed).is_err() || is_place, "{stage} {at}: byte {byte}");
            }
        }
    }
}

/// The messages of a donor after REINIT, before it continues.
fn again(messages: &[Message]) -> Vec<Message> {
    let of_kind = |kind: u8| {
        messages
            .iter()
            .find(|message| matches!(&message.content, Content::Bytes(bytes) if bytes[0] == kind))
    };
    let task =
        messages.iter().find(|message| descriptor(message).is_some_and(|(kind, _)| kind == 2));
    [of_kind(1), of_kind(99), task].map(|message| message.unwrap().clone()).to_vec()
}

#[test]
fn a_clone_whose_connections_break_resumes() {
    let (messages, _) = recorded();
    let whole = run(&messages).unwrap();
    let (mut resumed, mut in_blocks) = (0, 0);
    for at in 0..messages.len() {
        let mut run = Run::new();
        feed(&mut run, &messages[..at]).unwrap();
        let Some(reinit) = run.recipient.resume() else {
            // A resumed clone does not begin before its first block, and nothing is resumed that came whole.
            assert!(
                run.blocks.is_empty()
                    || run.blocks.len() == whole.blocks.len()
                    || is_early(&messages[..at]),
                "{at}"
            );
            continue;
        };
        let kind = descriptor(&messages[at - 1]).map(|(kind, _)| kind);
        // A block whose bytes did not come is sent again; so is an end that was not acknowledged.
        let from = if matches!(kind, Some(5)) { at - 1 } else { at };
        let ended = matches!(descriptor(&messages[at - 1]), Some((3, head)) if head[45] == 0);
        let from = if ended { at - 1 } else { from };
        let place = place(&reinit);
        let blocks = messages[..at].iter().filter_map(descriptor).filter(|(kind, _)| *kind == 5);
        let last = blocks.take(run.blocks.len()).last().unwrap().1;
        assert_eq!(place[..3], [number(last, 12), number(last, 20), number(last, 24)], "{at}");
        assert_eq!(place[3], place[1], "a bit for each chunk that has begun, {at}");
        feed(&mut run, &again(&messages)).unwrap();
        feed(&mut run, &messages[from..]).unwrap_or_else(|error| panic!("{at}: {error}"));
        let outcome = run.end().unwrap();
        assert_eq!(
            (outcome.files, outcome.redo, outcome.blocks),
            (whole.files.clone(), whole.redo.clone(), whole.blocks.clone()),
            "{at}"
        );
        resumed += 1;
        in_blocks += usize::from(kind == Some(5));
    }
    assert!(resumed > 400 && in_blocks > 200, "{resumed} {in_blocks}");
}

/// Returns whether no block of the current stage came.
fn is_early(messages: &[Message]) -> bool {
    // Without its bytes, the last block did not.
    let is_block = |message: &Message| descriptor(message).is_some_and(|(kind, _)| kind == 5);
    let messages = if messages.last().is_some_and(is_block) {
        &messages[..messages.len() - 1]
    } else {
        messages
    };
    let mut descriptors = messages.iter().rev().filter_map(descriptor);
    let found = descriptors.find(|(kind, head)| *kind == 5 || (*kind == 3 && head[45] == 1));
    found.is_some_and(|(kind, _)| kind == 3)
}

/// Stage, chunk and block of a REINIT, and the number of its bits.
fn place(reinit: &[u8]) -> [u32; 4] {
    assert_eq!((reinit[0], reinit[9]), (3, 12));
    let locator = &reinit[14..];
    assert_eq!(u32::try_from(locator.len()).unwrap().to_le_bytes(), reinit[10..14]);
    assert_eq!(
        number(locator, 4).to_be_bytes(),
        u32::try_from(locator.len()).unwrap().to_be_bytes()
    );
    assert_eq!((number(locator, 34), number(locator, 46) as usize * 4), (1, locator.len() - 50));
    let bits: u32 = locator[50..].iter().map(|byte| byte.count_ones()).sum();
    [locator[32].into(), number(locator, 38), number(locator, 42), bits]
}

#[test]
fn a_clone_resumes_with_nothing_lost_or_sent_twice() {
    let (messages, _) = recorded();
    let blocks: Vec<usize> = (0..messages.len())
        .filter(|at| descriptor(&messages[*at]).is_some_and(|(kind, _)| kind == 5))
        .collect();
    for at in blocks
        .into_iter()
        .step_by(7)
        .filter(|at| descriptor(&messages[at + 2]).is_some_and(|(kind, _)| kind == 5))
    {
        let after = at + 2;
        let goes_on = |from: usize, answer: &[Message]| {
            let mut run = Run::new();
            feed(&mut run, &messages[..after]).unwrap();
            let _ = run.recipient.resume().unwrap();
            feed(&mut run, answer)
                .and_then(|()| feed(&mut run, &messages[from..]))
                .and_then(|()| run.end())
        };
        let usual = again(&messages);
        assert!(goes_on(after, &usual).is_ok(), "{at}");
        assert!(goes_on(at, &usual).is_err(), "{at}: the last block twice");
        assert!(goes_on(after + 2, &usual).is_err(), "{at}: the next one lost");
        // The clone of someone else; a donor that does not say that it continues; no task.
        let mut other = usual.clone();
        let Content::Bytes(bytes) = &mut other[0].content else { panic!("locators") };
        bytes[10 + 12 + 7] ^= 1;
        assert!(goes_on(after, &other).is_err(), "{at}: another clone");
        assert!(goes_on(after, &usual[1..]).is_err(), "{at}: the clone is not named");
        assert!(
            goes_on(after, &usual[1..2]).is_err() && goes_on(after, &usual[..2]).is_err(),
            "{at}"
        );
    }
}
