//! A recorded clone over a real socket: whole, and with each kind of message lost, repeated, swapped, shortened
//! or altered.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use xb_clone::{
    CloneInfo, Error, INFO, Notice, PATCHES, PatchReader, PatchTarget, Settings, look, receive,
    try_clone,
};
use xb_mysql::{Account, Target, Trust};
use xb_process::CancelToken;
use xb_testkit::daemon::Scratch;
use xb_testkit::donor::{Content, Donor, Message, Side, kinds, recorded};
use xb_testkit::scripted::{Rows, Scripted};
use xb_testkit::stream::scan;

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

/// Receives a clone from a donor that plays these recorded ones.
fn receive_into<W: Write>(
    clones: Vec<Vec<Message>>,
    settings: &Settings,
    notify: &(dyn Fn(Notice<'_>) + Sync),
    script: impl Fn(&str) -> Option<Rows> + Send + Sync + 'static,
    output: W,
) -> Result<(CloneInfo, W), Error> {
    let scratch = Scratch::new();
    let socket = scratch.join("sock");
    let _donor = Donor::start(&socket, clones, script);
    let account = Account { user: b"backup".to_vec(), ..Account::default() };
    receive(&Target::Socket(socket), &account, settings, notify, output)
}

fn receive_from(
    clones: Vec<Vec<Message>>,
    settings: &Settings,
    script: impl Fn(&str) -> Option<Rows> + Send + Sync + 'static,
) -> (Result<CloneInfo, Error>, Sink) {
    let mut sink = Sink::default();
    let received = receive_into(clones, settings, &|_| (), script, &mut sink);
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
        // The meaning of a file's bytes is not known here.
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

/// The version says which servers may start on the clone.
#[test]
fn a_clone_of_another_version_than_its_server_ends_before_a_byte_is_written() {
    let mut messages = recorded();
    let is_it = |message: &&mut Message| matches!(&message.content, Content::Bytes(bytes) if bytes.ends_with(b"9.7.4-2"));
    let Content::Bytes(bytes) = &mut messages.iter_mut().find(is_it).unwrap().content else {
        panic!("a setting")
    };
    // 8.7.4-2
    *bytes.iter_mut().rev().nth(6).unwrap() -= 1;
    let (received, sink) = play(&messages, &Settings::default());
    let error = received.unwrap_err().to_string();
    assert!(error.contains("its clone states 8.7.4-2") && sink.len == 0, "{error}");
}

/// A key comes although the donor says of no file that it is encrypted.
#[test]
fn a_key_in_clear_ends_the_clone_against_the_word_of_the_donor() {
    for (stage, page, at) in [(2, 16384, 10390), (4, 2048, 1040)] {
        let mut messages = recorded();
        // The first block of a tablespace; of the redo log, its head.
        let is_it = |message: &Message| {
            let Content::Bytes(bytes) = &message.content else { return false };
            message.descriptor() == Some((5, stage))
                && bytes[43..51] == [0; 8]
                && (stage == 4 || bytes[34] == 1)
        };
        let found = messages.iter().position(is_it).unwrap() + 1;
        let Content::Data(len) = messages[found].content else { panic!("no data") };
        let mut bytes = vec![0; len + 1];
        bytes[0] = 3;
        assert!(len >= page);
        bytes[1 + at..4 + at].copy_from_slice(b"lCC");
        messages[found].content = Content::Bytes(bytes);
        let (received, _) = play(&messages, &Settings::default());
        let error = received.unwrap_err().to_string();
        assert!(error.contains("contains its key in clear text"), "{stage}: {error}");
        let mut sealed = Settings::default();
        sealed.is_sealed = true;
        assert_eq!(play(&messages, &sealed).0.unwrap().has_keys, Some(true), "{stage}");
    }
}

/// A page that makes its file longer has to be whole: nothing but it says how long the file is.
#[test]
fn a_damaged_page_behind_the_end_of_its_file_ends_the_clone() {
    let messages = recorded();
    let last = messages.iter().rposition(|message| message.descriptor() == Some((5, 3))).unwrap();
    let (Content::Bytes(head), Content::Page { len, space, .. }) =
        (&messages[last].content, &messages[last + 1].content)
    else {
        panic!("no page")
    };
    let size = u64::from_be_bytes(*head[47..].first_chunk().unwrap());
    let behind = |is_intact: bool| {
        let number = u32::try_from(size / *len as u64).unwrap();
        let mut changed = messages.clone();
        let mut head = head.clone();
        head[39..47].copy_from_slice(&size.to_be_bytes());
        changed[last].content = Content::Bytes(head);
        // Encrypted or compressed ones have their checksum inside.
        let mut page = vec![3; len + 1];
        page[5..9].copy_from_slice(&number.to_be_bytes());
        page[35..39].copy_from_slice(&space.to_be_bytes());
        page[25..27].copy_from_slice(&if is_intact { 15_u16 } else { 17855 }.to_be_bytes());
        changed[last + 1].content = Content::Bytes(page);
        play(&changed, &Settings::default())
    };
    let info = behind(true).0.unwrap();
    let file = info.files.iter().find(|file| file.space == Some(*space)).unwrap();
    assert_eq!(file.size, size + *len as u64);
    let (received, sink) = behind(false);
    let error = received.unwrap_err().to_string();
    assert!(error.contains("its checksum is wrong") && !sink.has_end, "{error}");
}

/// Number of the recorded files.
fn files_of(messages: &[Message]) -> u32 {
    let files = messages.iter().filter(|message| message.descriptor() == Some((4, 2)));
    u32::try_from(files.count()).unwrap()
}

/// Has the donor tell before this stage what DDL did to `shop/t.ibd`, or to a file of tablespace 77 with the index `late`.
fn tell(messages: &mut Vec<Message>, stage: u32, flags: u16, late: Option<u32>, name: u8) {
    let of_file = |message: &&Message| matches!(&message.content, Content::Bytes(bytes) if bytes[0] == 2 && bytes.ends_with(b"./shop/t.ibd\0"));
    let Content::Bytes(mut head) = messages.iter().find(of_file).unwrap().content.clone() else {
        panic!("a file")
    };
    head[15..19].copy_from_slice(&stage.to_be_bytes());
    head[43..45].copy_from_slice(&flags.to_be_bytes());
    if let Some(index) = late {
        head[45..49].copy_from_slice(&77_u32.to_be_bytes());
        head[49..53].copy_from_slice(&index.to_be_bytes());
    }
    let at = head.len() - 6;
    head[at] = name;
    let is_begin = |message: &Message| message.descriptor() == Some((3, stage));
    let begin = messages.iter().position(is_begin).unwrap();
    messages.insert(begin, Message { from: Side::Donor, content: Content::Bytes(head) });
}

/// Only redo log may come of a file that DDL makes: the server that starts on the copy would drop it without its first page.
#[test]
fn a_file_that_ddl_makes_comes_with_its_first_page_and_key() {
    let mut messages = recorded();
    let count = files_of(&messages);
    // Encrypted, with a key.
    tell(&mut messages, 3, 36, Some(count), b'l');
    let told = messages.iter_mut().find(|message| message.descriptor() == Some((4, 3)));
    let Content::Bytes(head) = &mut told.unwrap().content else { panic!("a file") };
    head.extend([0xa5; 64]);
    let len = u32::try_from(head.len() - 3).unwrap();
    head[7..11].copy_from_slice(&len.to_be_bytes());
    let mut settings = Settings::default();
    settings.allow_ddl = true;
    let (received, sink) = play(&messages, &settings);
    let error = received.unwrap_err().to_string();
    assert!(error.contains("shop/l.ibd is encrypted") && !sink.has_end, "{error}");
    settings.is_sealed = true;
    let received = receive_into(vec![messages], &settings, &|_| (), |_| None, Vec::new());
    let (info, stream) = received.unwrap();
    let late = &info.files[usize::try_from(count).unwrap()];
    assert!(late.is_late && late.is_encrypted, "{late:?}");
    assert_eq!((late.name.as_str(), late.space), ("shop/l.ibd", Some(77)));
    // The first of the patches.
    let magic = b"XBCLPT01";
    let at = stream.windows(magic.len()).position(|bytes| bytes == magic).unwrap();
    let patch = &stream[at + magic.len()..];
    let begin = [&[1][..], &count.to_le_bytes(), &[0; 8], &16384_u32.to_le_bytes()].concat();
    assert_eq!(patch[..17], begin);
    let page = &patch[17..17 + 16384];
    assert_eq!((&page[34..38], &page[38..42]), (&77_u32.to_be_bytes()[..], &page[34..38]));
    assert_eq!(page[54..58], late.space_flags.to_be_bytes());
    assert_eq!((&page[10390..10393], &page[10433..10497]), (&b"lCC"[..], &[0xa5; 64][..]));
}

/// Extracted by hand, it says what it is, and no server finds a redo log in it.
#[test]
fn a_stream_has_the_first_names_of_its_files_and_the_redo_log_among_its_patches() {
    let mut messages = recorded();
    // DDL has renamed it.
    tell(&mut messages, 3, 8, None, b's');
    let mut settings = Settings::default();
    settings.allow_ddl = true;
    let received = receive_into(vec![messages], &settings, &|_| (), |_| None, Vec::new());
    let (info, stream) = received.unwrap();
    let renamed = info.files.iter().find(|file| file.name == "shop/s.ibd").unwrap();
    assert_eq!(renamed.path, "shop/t.ibd");
    let chunks = scan(&stream);
    let ends = chunks.iter().filter(|chunk| chunk.kind == 'E').map(|chunk| chunk.path.as_str());
    let files = info.files.iter().map(|file| file.path.as_str());
    assert!(ends.eq(["xb_clone.README"].into_iter().chain(files).chain([PATCHES, INFO])));
    let is_page = |(to, _): &(PatchTarget, u64)| matches!(to, PatchTarget::File(_));
    let (pages, redo): (Vec<_>, Vec<_>) = patches_in(&stream).into_iter().partition(is_page);
    assert_eq!((pages.len(), redo.len()), (152, 12));
}

/// Where the patches of a stream belong: file and offset.
fn patches_in(stream: &[u8]) -> Vec<(PatchTarget, u64)> {
    let chunks = scan(stream);
    let content = |chunk: &xb_testkit::stream::Chunk| {
        &stream[chunk.start + 14 + chunk.path.len() + 20..chunk.stop]
    };
    let of_patches = chunks.iter().filter(|chunk| chunk.kind == 'P' && chunk.path == PATCHES);
    let patches: Vec<u8> = of_patches.flat_map(|chunk| content(chunk).iter().copied()).collect();
    let (mut reader, mut all) = (PatchReader::new(&patches[..]).unwrap(), Vec::new());
    while let Some(patch) = reader.read().unwrap() {
        all.push((patch.to, patch.offset));
    }
    all
}

/// A made page must not come again behind the one that the server has written meanwhile.
#[test]
fn the_first_page_of_a_file_that_ddl_makes_and_renames_is_made_once() {
    let mut messages = recorded();
    let late = files_of(&messages);
    tell(&mut messages, 3, 0, Some(late), b'l');
    tell(&mut messages, 4, 8, Some(late), b'm');
    let mut settings = Settings::default();
    settings.allow_ddl = true;
    let received = receive_into(vec![messages], &settings, &|_| (), |_| None, Vec::new());
    let (info, stream) = received.unwrap();
    assert_eq!(info.files.last().unwrap().name, "shop/m.ibd");
    let patches = patches_in(&stream);
    assert_eq!(patches[0], (PatchTarget::File(late), 0));
    assert_eq!(patches.iter().filter(|at| **at == patches[0]).count(), 1);
}

#[test]
fn a_file_that_is_encrypted_ends_the_clone_before_a_byte_is_written() {
    let mut messages = recorded();
    let is_it = |message: &&mut Message| matches!(&message.content, Content::Bytes(bytes) if bytes[0] == 2 && bytes.ends_with(b"./shop/t.ibd\0"));
    let Content::Bytes(bytes) = &mut messages.iter_mut().find(is_it).unwrap().content else {
        panic!("a file")
    };
    // The flag of encryption; no key comes.
    bytes[44] |= 4;
    let (received, sink) = play(&messages, &Settings::default());
    let error = received.unwrap_err().to_string();
    assert!(error.contains("shop/t.ibd is encrypted") && sink.len == 0, "{error}");
}

#[test]
fn a_server_that_encrypts_its_logs_is_refused_before_a_byte_is_written() {
    let encrypts =
        |sql: &str| sql.contains("innodb_redo_log_encrypt").then(|| vec![vec!["1".to_owned()]]);
    let mut settings = Settings::default();
    let (received, sink) = receive_from(vec![recorded()], &settings, encrypts);
    let error = received.unwrap_err().to_string();
    assert!(error.contains("encrypts its redo or undo log") && sink.len == 0, "{error}");
    settings.is_sealed = true;
    assert!(receive_from(vec![recorded()], &settings, encrypts).0.is_ok());
}

/// Without one, the position that its files state is of an earlier time.
#[test]
fn whether_the_server_writes_a_binary_log_is_recorded() {
    for (answer, has_binlog) in [("0", false), ("1", true)] {
        let log = move |sql: &str| sql.contains("log_bin").then(|| vec![vec![answer.to_owned()]]);
        let (received, _) = receive_from(vec![recorded()], &Settings::default(), log);
        assert_eq!(received.unwrap().has_binlog, has_binlog);
    }
}

#[test]
fn a_server_that_is_not_proven_is_not_connected_to() {
    let target = Target::Tcp {
        host: "127.0.0.1".to_owned(),
        port: 1,
        trust: Trust::Unproven,
        certificate: None,
    };
    let (account, settings) = (Account::default(), Settings::default());
    let received = receive(&target, &account, &settings, &|_| (), Vec::new()).map(drop);
    for tried in [received, look(&target, &account).map(drop), try_clone(&target, &account)] {
        assert!(matches!(tried, Err(Error::Refused(_))), "{tried:?}");
    }
}

/// DDL makes it after the last look but one: only the one at the end sees it.
#[test]
fn a_table_that_would_come_back_empty_and_is_made_late_ends_the_clone() {
    for before in [1, 2] {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let tables = move |sql: &str| {
            let is_asked = sql.contains("engine NOT IN");
            let row = || ["shop", "old", "MyISAM"].map(str::to_owned).to_vec();
            (is_asked && count.fetch_add(1, Ordering::Relaxed) >= before).then(|| vec![row()])
        };
        let mut settings = Settings::default();
        let (received, sink) = receive_from(vec![recorded()], &settings, tables.clone());
        let error = received.unwrap_err().to_string();
        assert!(error.contains("shop.old (MyISAM)") && !sink.has_end, "{before}: {error}");
        // Accepted, it is named as one that was there before.
        settings.allow_empty_tables = true;
        asked.store(0, Ordering::Relaxed);
        let (received, _) = receive_from(vec![recorded()], &settings, tables);
        assert_eq!(received.unwrap().empty_tables, ["shop.old (MyISAM)"], "{before}");
    }
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

/// An address may move from one server to another, and a proxy has several.
#[test]
fn a_clone_whose_connections_reach_another_server_has_no_end() {
    // The first, those of the clone, the one that asks for transactions, and the last; or before that the one that asks for
    // redo log, if the clone has not ended by then.
    for before in 1..5 {
        let asked = AtomicUsize::new(0);
        let moved = move |sql: &str| {
            let row = || ["66666666-2222-3333-4444-555555555555", "2000000000", "1000"];
            let is_asked = sql.contains("server_uuid");
            (is_asked && asked.fetch_add(1, Ordering::Relaxed) >= before)
                .then(|| vec![row().map(str::to_owned).to_vec()])
        };
        let (received, sink) = receive_from(vec![recorded()], &Settings::default(), moved);
        let error = received.unwrap_err().to_string();
        assert!(error.contains("another one answers") && !sink.has_end, "{before}: {error}");
        assert!(sink.len == 0 || before > 2, "{before}");
    }
}

/// Listens on `front`, and passes connections on to `server`, but for some, which get `answer` and no more.
fn refuse_some(
    front: &Path,
    server: PathBuf,
    refused: std::ops::Range<usize>,
    answer: &'static [u8],
) {
    let listener = UnixListener::bind(front).unwrap();
    std::thread::spawn(move || {
        for (number, mut near) in listener.incoming().flatten().enumerate() {
            if refused.contains(&number) {
                near.write_all(answer).unwrap();
                continue;
            }
            let far = UnixStream::connect(&server).unwrap();
            for (mut from, mut to) in [
                (near.try_clone().unwrap(), far.try_clone().unwrap()),
                (far.try_clone().unwrap(), near.try_clone().unwrap()),
            ] {
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Both);
                });
            }
        }
    });
}

#[test]
fn a_server_that_refuses_some_connections_for_a_moment_does_not_end_the_clone() {
    const TOO_MANY: &[u8] = b"\x17\0\0\0\xff\x10\x04Too many connections";
    let mut settings = Settings::default();
    settings.retry = Duration::ZERO;
    for answer in [TOO_MANY, b""] {
        // Behind the first one and the two of the clone.
        for first in 3..6 {
            let scratch = Scratch::new();
            let (front, socket) = (scratch.join("front"), scratch.join("sock"));
            let _donor = Donor::start(&socket, vec![recorded()], keeps);
            refuse_some(&front, socket, first..first + 3, answer);
            let mut sink = Sink::default();
            let target = Target::Socket(front);
            let received = receive(&target, &Account::default(), &settings, &|_| (), &mut sink);
            let info = received.map(|(info, _)| info);
            assert!(info.is_ok() && sink.has_end, "{first} {answer:?}: {:?}", info.err());
        }
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

/// The clones of a donor whose connections break before the message `at`, and that continues from `from`.
fn broken(messages: &[Message], at: usize, from: usize) -> Vec<Vec<Message>> {
    let is = |kind: u8| move |message: &&Message| matches!(&message.content, Content::Bytes(bytes) if bytes[0] == kind);
    let of = |kind: u8| {
        messages
            .iter()
            .filter(|message| message.from == Side::Donor)
            .find(is(kind))
            .unwrap()
            .clone()
    };
    let task = messages
        .iter()
        .find(|message| message.descriptor().is_some_and(|(kind, _)| kind == 2))
        .unwrap();
    let asked = Message { from: Side::Recipient, content: Content::Bytes(Vec::new()) };
    let begin = vec![asked.clone(), of(1), of(99), asked, task.clone()];
    vec![messages[..at].to_vec(), [&begin, &messages[from..]].concat()]
}

/// The answer of a server that keeps a broken clone for minutes.
fn keeps(sql: &str) -> Option<Rows> {
    let row = ["clone_donor_timeout_after_network_failure", "5"].map(str::to_owned).to_vec();
    sql.contains("clone_donor_timeout").then(|| vec![row])
}

/// Receives from a donor that keeps broken clones; returns how often the user was told something, too.
fn resumed<W: Write>(
    clones: Vec<Vec<Message>>,
    script: impl Fn(&str) -> Option<Rows> + Send + Sync + 'static,
    output: W,
) -> (Result<(CloneInfo, W), Error>, u32) {
    resumed_after(Settings::default().silence, clones, script, output)
}

fn resumed_after<W: Write>(
    silence: Duration,
    clones: Vec<Vec<Message>>,
    script: impl Fn(&str) -> Option<Rows> + Send + Sync + 'static,
    output: W,
) -> (Result<(CloneInfo, W), Error>, u32) {
    let mut settings = Settings::default();
    (settings.retry, settings.silence) = (Duration::ZERO, silence);
    let told = AtomicU32::new(0);
    let notify = |notice: Notice<'_>| {
        told.fetch_add(u32::from(matches!(notice, Notice::Text(_))), Ordering::SeqCst);
    };
    let received = receive_into(clones, &settings, &notify, script, output);
    (received, told.into_inner())
}

/// Positions of the descriptors of blocks of a stage.
fn blocks(messages: &[Message], stage: u32) -> Vec<usize> {
    (0..messages.len()).filter(|at| messages[*at].descriptor() == Some((5, stage))).collect()
}

#[test]
fn a_broken_clone_resumes_with_the_same_stream() {
    let messages = recorded();
    let (whole, told) = resumed(vec![messages.clone()], keeps, Vec::new());
    let (_, whole) = whole.unwrap();
    assert_eq!(told, 0);
    for stage in 2..=4 {
        let blocks = blocks(&messages, stage);
        let at = blocks[blocks.len() / 2];
        // Between two blocks, and within one.
        for (cut, from) in [(at, at), (at + 1, at)] {
            let (received, told) = resumed(broken(&messages, cut, from), keeps, Vec::new());
            assert!(received.unwrap().1 == whole, "{stage} {cut}");
            assert_eq!(told, 1);
        }
        let (received, _) = resumed(broken(&messages, at, at + 2), keeps, Vec::new());
        assert!(received.is_err(), "{stage}: a block is lost");
    }
    // Before the first block of a stage, no server continues it: the user has to know, since all others are continued.
    for stage in 3..=4 {
        let at = blocks(&messages, stage)[0];
        let (received, told) = resumed(broken(&messages, at, at), keeps, Vec::new());
        let error = received.map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("before the first block of a stage") && told == 0, "{error}");
    }
    // A server that keeps no broken clone is not asked.
    let at = blocks(&messages, 2)[5];
    let (received, told) = resumed(broken(&messages, at, at), |_| None, Vec::new());
    assert!(received.is_err() && told == 0);
}

#[test]
fn a_donor_that_is_silent_for_too_long_is_asked_again() {
    let messages = recorded();
    let (whole, _) = resumed(vec![messages.clone()], keeps, Vec::new());
    let (_, whole) = whole.unwrap();
    let blocks = blocks(&messages, 2);
    let at = blocks[blocks.len() / 2];
    let mut clones = broken(&messages, at, at);
    // It waits for what the recipient does not send.
    clones[0].push(Message { from: Side::Recipient, content: Content::Bytes(Vec::new()) });
    // Longer than any answer takes on a busy machine: the second donor must not count as silent, too.
    let (received, told) = resumed_after(Duration::from_secs(15), clones, keeps, Vec::new());
    assert!(received.unwrap().1 == whole);
    assert_eq!(told, 1);
}

#[test]
fn the_bound_of_the_transactions_is_that_before_the_first_acknowledgement() {
    let messages = recorded();
    // The page stage ends; its acknowledgement comes, and no answer.
    let is_end = |at: &usize| messages[*at].descriptor() == Some((3, 3));
    let end = (0..messages.len()).rfind(is_end).unwrap();
    let answer = end + messages[end..].iter().position(|one| one.from == Side::DonorAside).unwrap();
    // Each transaction that is asked for is a new one, and ten more come before the page stage begins.
    let (last, looked) = (Mutex::new(0), Condvar::new());
    let script = move |sql: &str| {
        let mut last = last.lock().unwrap();
        if sql.contains("redo_log_current_lsn") {
            *last = 10.max(*last);
            looked.notify_all();
        }
        if !sql.contains("gtid_executed") {
            return keeps(sql);
        }
        // The redo log is looked at from there on, in a thread of its own.
        let limit = Duration::from_secs(30);
        let (mut last, _) = looked.wait_timeout_while(last, limit, |last| *last < 10).unwrap();
        *last += 1;
        Some(vec![vec![format!("a:1-{last}")]])
    };
    let (received, told) = resumed(broken(&messages, answer, end), script, Vec::new());
    let (info, _) = received.unwrap();
    assert_eq!((info.gtids_from.as_str(), info.gtids_to.as_str(), told), ("a:1-11", "a:1-12", 1));
}

/// The server continues from the transaction numbers of the clone, or from lower ones.
#[test]
fn a_server_whose_history_is_begun_anew_meanwhile_ends_the_clone() {
    let asked = AtomicUsize::new(0);
    let script = move |sql: &str| {
        let row = |text: &str| Some(vec![vec![text.to_owned()]]);
        match sql {
            _ if sql.contains("GTID_SUBSET('a:1-5', 'a:1')") => row("0"),
            _ if sql.contains("gtid_executed") => match asked.fetch_add(1, Ordering::Relaxed) {
                0 => row("a:1-5"),
                _ => row("a:1"),
            },
            _ => None,
        }
    };
    let (received, sink) = receive_from(vec![recorded()], &Settings::default(), script);
    let error = received.unwrap_err();
    assert!(matches!(error, Error::Refused(_)), "{error}");
    assert!(error.to_string().contains("RESET BINARY LOGS") && !sink.has_end, "{error}");
}

/// Gives files other names, of the same length.
fn renamed(names: &[(&str, &str)]) -> Vec<Message> {
    let mut messages = recorded();
    for (from, to) in names {
        assert_eq!(from.len(), to.len());
        let end = format!("{from}\0");
        let mut count = 0;
        for message in &mut messages {
            let Content::Bytes(bytes) = &mut message.content else { continue };
            if bytes[0] == 2 && bytes.ends_with(end.as_bytes()) {
                let at = bytes.len() - end.len();
                bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
                count += 1;
            }
        }
        assert!(count > 0, "{from}");
    }
    messages
}

/// The file of a table that was moved while no server ran has no flag that says so.
#[test]
fn a_table_that_was_moved_outside_is_taken() {
    let (received, sink) =
        play(&renamed(&[("./shop/t.ibd", "/o/sho/t.ibd")]), &Settings::default());
    let moved = received.unwrap().moved().unwrap();
    assert_eq!(moved, [("/o/sho/t.ibd".to_owned(), "sho/t.ibd".to_owned())]);
    assert!(sink.has_end);
}

/// Hours later, a restore would refuse them.
#[test]
fn files_for_which_there_is_no_place_end_the_clone_before_a_byte_is_written() {
    for (names, words) in [
        (
            &[("undo_002", "/a/u.ibu"), ("undo_001", "/b/u.ibu")][..],
            "u.ibu: /a/u.ibu and /b/u.ibu: give one of them another file name",
        ),
        (&[("./shop/t.ibd", "/shop/tt.ib_")], "stop the server, move the file"),
        (&[("./shop/t.ibd", "xb_clone.ibd")], "a name that is not a table's: give that file"),
    ] {
        let (received, sink) = play(&renamed(names), &Settings::default());
        let error = received.unwrap_err();
        assert!(matches!(error, Error::Refused(_)), "{error}");
        assert!(error.to_string().contains(words) && sink.len == 0, "{error}");
    }
}

/// Takes no patches before the clone was let go.
#[derive(Debug)]
struct Stalling {
    sink: Sink,
    let_go: Receiver<()>,
}

impl Write for Stalling {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        // The text at the beginning has the name, too.
        let is_begun = self.sink.len > 1 << 20;
        if is_begun && bytes.windows(PATCHES.len()).any(|part| part == PATCHES.as_bytes()) {
            self.let_go.recv_timeout(Duration::from_secs(60)).map_err(std::io::Error::other)?;
        }
        self.sink.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_donor_that_would_have_to_keep_too_much_of_its_redo_log_is_let_go_while_the_store_stalls() {
    let mut settings = Settings::default();
    (settings.look, settings.max_donor_redo) = (Duration::ZERO, 5000);
    let asked = AtomicUsize::new(0);
    let grows = move |sql: &str| {
        let position = || 1000 * asked.fetch_add(1, Ordering::Relaxed);
        let row = || vec!["Innodb_redo_log_current_lsn".to_owned(), position().to_string()];
        sql.contains("redo_log_current_lsn").then(|| vec![row()])
    };
    let ((end, let_go), told) = (channel(), AtomicU32::new(0));
    let notify = |notice: Notice<'_>| match notice {
        Notice::Text(text) => {
            assert!(text.contains("keeps 3000 bytes"), "{text}");
            told.fetch_add(1, Ordering::SeqCst);
        }
        Notice::LetGo(why) => {
            assert!(why.contains("6000 bytes of its redo log"), "{why}");
            end.send(()).unwrap();
        }
        _ => {}
    };
    let mut output = Stalling { sink: Sink::default(), let_go };
    let received = receive_into(vec![recorded()], &settings, &notify, grows, &mut output);
    let error = received.unwrap_err().to_string();
    assert!(error.contains("6000 bytes of its redo log"), "{error}");
    assert!(!output.sink.has_end && told.into_inner() == 1);
}

/// Fails once.
struct Failing(usize);

impl Write for Failing {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let before = self.0;
        self.0 += bytes.len();
        match before < 30 << 20 && self.0 >= 30 << 20 {
            true => Err(std::io::Error::other("full")),
            false => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn an_output_that_fails_ends_the_clone_for_good() {
    let messages = recorded();
    // About where the output fails: only from the right place on would the clone be continued.
    let mut sent = 0;
    let near = |at: &usize| {
        let Content::Data(len) = messages[at + 1].content else { panic!("no data") };
        sent += len;
        (28 << 20..33 << 20).contains(&sent)
    };
    for at in blocks(&messages, 2).into_iter().filter(near) {
        let clones = vec![messages.clone(), broken(&messages, at, at).remove(1)];
        let (received, told) = resumed(clones, keeps, Failing(0));
        assert!(matches!(received, Err(Error::Output(_))) && told == 0, "{at}");
    }
}

#[test]
fn a_server_that_cannot_be_cloned_is_refused() {
    for (version, words) in [
        ("8.0.29", "only 8.0.30 and later"),
        ("5.7.44-log", "only 8.0.30 and later"),
        ("10.11.6-MariaDB", "only MySQL can be cloned"),
        ("x", "only 8.0.30 and later"),
    ] {
        let scratch = Scratch::new();
        let socket = scratch.join("sock");
        let _server = Scripted::start(&socket, version, |_| Ok(vec![vec!["0".to_owned()]]));
        let (target, settings) = (Target::Socket(socket), Settings::default());
        let received = receive(&target, &Account::default(), &settings, &|_| (), Vec::new());
        let error = received.unwrap_err().to_string();
        assert!(error.contains(words), "{version}: {error}");
    }
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
    let (mut settings, cancel) = (Settings::default(), CancelToken::new());
    settings.cancel = cancel.clone();
    let scratch = Scratch::new();
    let socket = scratch.join("sock");
    let _donor = Donor::start(&socket, vec![messages], |_| None);
    let account = Account::default();
    let (tell, told) = std::sync::mpsc::channel();
    let receive = || {
        receive(
            &Target::Socket(socket.clone()),
            &account,
            &settings,
            &|_| (),
            Telling(tell.clone()),
        )
    };
    let received = std::thread::scope(|threads| {
        let received = threads.spawn(|| receive().map(drop));
        told.recv().unwrap();
        cancel.cancel(());
        received.join().unwrap()
    });
    assert!(matches!(received, Err(Error::Stopped)), "{received:?}");
    // A clone that begins after that does not connect.
    assert!(matches!(receive(), Err(Error::Stopped)));
}
