//! A recorded clone over a real socket: whole, and with each kind of message lost, repeated, swapped, shortened
//! or altered.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use xb_clone::{CloneInfo, Error, INFO, Settings, Stop, receive};
use xb_mysql::{Account, Target};
use xb_testkit::daemon::Scratch;
use xb_testkit::donor::{Content, Donor, Message, Side, kinds, recorded};
use xb_testkit::scripted::Rows;

/// Drops a stream, and notes its length and whether its last file began.
#[derive(Debug, Default)]
struct Sink {
    len: usize,
    has_end: bool,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.len += bytes.len();
        self.has_end |=
            bytes.len() < 4096 && bytes.windows(INFO.len()).any(|part| part == INFO.as_bytes());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn receive_from(
    clones: Vec<Vec<Message>>,
    settings: &Settings,
    script: impl Fn(&str) -> Option<Rows> + Send + Sync + 'static,
) -> (Result<CloneInfo, Error>, Sink) {
    let scratch = Scratch::new();
    let socket = scratch.join("sock");
    let _donor = Donor::start(&socket, clones, script);
    let account = Account { user: b"backup".to_vec(), ..Account::default() };
    let mut sink = Sink::default();
    let received = receive(&Target::Socket(socket), &account, settings, &mut sink);
    (received.map(|(info, _)| info), sink)
}

fn play(messages: &[Message], settings: &Settings) -> (Result<CloneInfo, Error>, Sink) {
    receive_from(vec![messages.to_vec()], settings, |_| None)
}

#[test]
fn a_recorded_clone_is_received_whole() {
    let (info, sink) = play(&recorded(), &Settings::default());
    let info = info.unwrap();
    assert_eq!((info.files.len(), info.redo.len(), info.patches), (10, 10, 164));
    assert_eq!((info.version.as_str(), info.page_size), ("9.7.4-2", 16384));
    assert!(info.gtids_from.ends_with(":1-7") && info.gtids_to.ends_with(":1-7"));
    assert!(sink.has_end && sink.len > 79_000_000, "{}", sink.len);
}

/// A donor's messages with one change, and how to call it.
fn changes(messages: &[Message], at: usize) -> Vec<(&'static str, Vec<Message>)> {
    let (before, one, after) = (&messages[..at], &messages[at..=at], &messages[at + 1..]);
    // A file of the redo log is described again before its blocks, wherever that is.
    let is_again = one[0].descriptor() == Some((4, 4));
    let is_last = after.iter().all(|other| {
        // Behind the completion comes only the same answer to leaving.
        other.from != one[0].from || other == &one[0]
    });
    let mut all = vec![("lost", [before, after].concat())];
    // An answer that nothing asks for is read as that to the next question, and after the last there is none.
    if one[0].from == Side::Donor && !is_last && !is_again {
        all.push(("repeated", [before, one, one, after].concat()));
    }
    if let [next, rest @ ..] = after
        && !is_again
        && (next.from, one[0].from) == (Side::Donor, Side::Donor)
    {
        let next = std::slice::from_ref(next);
        all.push(("swapped", [before, next, one, rest].concat()));
    }
    let changed = |change: &dyn Fn(&mut Content)| {
        let mut changed = messages.to_vec();
        change(&mut changed[at].content);
        changed
    };
    let shorter = |content: &mut Content| match content {
        Content::Bytes(bytes) => drop(bytes.pop()),
        Content::Data(len) | Content::Page { len, .. } => *len -= 1,
    };
    all.push(("shortened", changed(&shorter)));
    match &one[0].content {
        // What the bytes of a file mean is not known here.
        Content::Data(_) => {}
        Content::Page { .. } => all.push((
            "altered",
            changed(&|content| {
                let Content::Page { number, .. } = content else { return };
                *number += 1;
            }),
        )),
        // The kind of the message, and the kind of the descriptor.
        Content::Bytes(bytes) => {
            for byte in [0, 14] {
                if byte < bytes.len() {
                    all.push((
                        "altered",
                        changed(&|content| {
                            let Content::Bytes(bytes) = content else { return };
                            bytes[byte] ^= 0x40;
                        }),
                    ));
                }
            }
        }
    }
    all
}

#[test]
fn a_clone_with_any_changed_message_has_no_end() {
    let messages = recorded();
    let mut settings = Settings::default();
    settings.silence = Duration::from_millis(500);
    let positions = kinds(&messages);
    assert!(positions.len() > 20, "{}", positions.len());
    let all: Vec<_> = positions
        .into_iter()
        .flat_map(|at| changes(&messages, at).into_iter().map(move |change| (at, change)))
        .collect();
    assert!(all.len() > 80, "{}", all.len());
    let next = AtomicUsize::new(0);
    let try_next = || {
        while let Some((at, (how, changed))) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (received, sink) = play(changed, &settings);
            let what = format!("message {at} of kind {:?} {how}", messages[*at].descriptor());
            assert!(received.is_err(), "{what}");
            assert!(!sink.has_end, "{what}: {}", received.unwrap_err());
        }
    };
    // Half of them only wait for a donor that says nothing any more.
    std::thread::scope(|threads| (0..16).for_each(|_| drop(threads.spawn(try_next))));
}

#[test]
fn a_second_engine_ends_the_clone_before_a_byte_is_written() {
    let mut messages = recorded();
    let locators = messages.iter_mut().find(|message| {
        matches!((&message.from, &message.content), (Side::Donor, Content::Bytes(bytes)) if bytes[0] == 1)
    });
    let Content::Bytes(bytes) = &mut locators.unwrap().content else { unreachable!() };
    let mut second = bytes[5..].to_vec();
    second[0] = 42;
    bytes.extend(second);
    let (received, sink) = play(&messages, &Settings::default());
    let error = received.unwrap_err().to_string();
    assert!(error.contains("second storage engine") && sink.len == 0, "{error}");
}

#[test]
fn tables_that_come_back_empty_are_refused_or_named() {
    let tables = |sql: &str| {
        let row = ["shop", "old", "MyISAM"].map(str::to_owned).to_vec();
        sql.contains("engine NOT IN").then(|| vec![row])
    };
    let (received, sink) = receive_from(vec![recorded()], &Settings::default(), tables);
    let error = received.unwrap_err().to_string();
    assert!(error.contains("shop.old (MyISAM)") && sink.len == 0, "{error}");
    let mut allowed = Settings::default();
    allowed.allow_empty_tables = true;
    let (received, _) = receive_from(vec![recorded()], &allowed, tables);
    assert_eq!(received.unwrap().empty_tables, ["shop.old (MyISAM)"]);
}

#[test]
fn an_account_that_may_not_see_every_table_is_refused() {
    for lines in [
        &["GRANT BACKUP_ADMIN ON *.* TO `b`@`%`"][..],
        &["GRANT SELECT ON `shop`.* TO `b`@`%`"],
        &["GRANT SELECT ON *.* TO `b`@`%`", "REVOKE SELECT ON `shop`.* FROM `b`@`%`"],
    ] {
        let rows: Vec<_> = lines.iter().map(|line| vec![(*line).to_owned()]).collect();
        let grants = move |sql: &str| sql.contains("SHOW GRANTS").then(|| rows.clone());
        let (received, sink) = receive_from(vec![recorded()], &Settings::default(), grants);
        let error = received.unwrap_err().to_string();
        assert!(error.contains("GRANT REFERENCES") && sink.len == 0, "{error}");
    }
}

/// A donor that is busy with another clone.
fn busy() -> Vec<Message> {
    let error = [&[100][..], &3634_i32.to_le_bytes(), b"Too many concurrent clone operations"];
    let mut messages = recorded();
    messages.truncate(1);
    messages.push(Message { from: Side::Donor, content: Content::Bytes(error.concat()) });
    messages
}

#[test]
fn another_clone_of_the_server_is_told_apart_from_other_errors() {
    let (received, sink) = play(&busy(), &Settings::default());
    assert!(matches!(received, Err(Error::Busy)) && sink.len == 0);
}

/// Tells when something was written.
struct Telling(std::sync::mpsc::Sender<()>);

impl Write for Telling {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let _ = self.0.send(());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_clone_that_waits_for_its_donor_is_ended_from_outside() {
    // The donor sends the first data, and then waits for what does not come.
    let mut messages = recorded();
    let first = messages.iter().position(|message| matches!(message.content, Content::Data(_)));
    messages.truncate(first.unwrap() + 1);
    messages.push(Message { from: Side::Recipient, content: Content::Bytes(Vec::new()) });
    let (mut settings, stop) = (Settings::default(), Stop::default());
    settings.stop = stop.clone();
    let scratch = Scratch::new();
    let socket = scratch.join("sock");
    let _donor = Donor::start(&socket, vec![messages], |_| None);
    let account = Account::default();
    let (tell, told) = std::sync::mpsc::channel();
    let receive =
        || receive(&Target::Socket(socket.clone()), &account, &settings, Telling(tell.clone()));
    let received = std::thread::scope(|threads| {
        let received = threads.spawn(|| receive().map(drop));
        told.recv().unwrap();
        stop.now();
        received.join().unwrap()
    });
    assert!(matches!(received, Err(Error::Stopped)), "{received:?}");
    // A clone that begins after that does not connect.
    assert!(matches!(receive(), Err(Error::Stopped)));
}
