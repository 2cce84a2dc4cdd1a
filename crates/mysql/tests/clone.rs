//! A clone between two stock servers, and what becomes of it when messages are lost, repeated, swapped or
//! changed on their way.
#![allow(clippy::unwrap_used, reason = "tests fail by panic")]

use std::time::Duration;

use proptest::prelude::*;
use xb_mysql::clone::{CloneError, CloneEvent, CloneFile, FileName, Recipient, RedoFile, Stage};
use xb_testkit::vectors;

/// A message of the donor.
#[derive(Debug, Clone, PartialEq)]
struct Message {
    is_auxiliary: bool,
    content: Content,
}

#[derive(Debug, Clone, PartialEq)]
enum Content {
    Bytes(Vec<u8>),
    /// Data of this length; recorded without its bytes.
    Data(usize),
    /// Data that is a page; recorded without its bytes.
    Page {
        len: usize,
        number: u32,
        space: u32,
    },
}

/// What a clone came to.
#[derive(Debug, PartialEq)]
struct Outcome {
    files: Vec<CloneFile>,
    redo: Vec<RedoFile>,
    blocks: Vec<(Stage, u32, u64, usize)>,
    sent: Vec<Vec<u8>>,
}

/// The messages of the donor, and those of the recipient.
fn recorded() -> (Vec<Message>, Vec<Vec<u8>>) {
    let text = String::from_utf8(vectors::read("mysql/clone-9.7.messages")).unwrap();
    let (mut donor, mut recipient) = (Vec::<Message>::new(), Vec::new());
    let mut spaces = Vec::new();
    for line in text.lines() {
        let (side, message) = line.split_once(' ').unwrap();
        let content = match message.strip_prefix("data ") {
            Some(len) => data(len.parse().unwrap(), donor.last().unwrap(), &spaces),
            None => Content::Bytes(unhex(message)),
        };
        match (side.strip_prefix('<'), content) {
            (Some(more), content) => {
                donor.push(Message { is_auxiliary: !more.is_empty(), content })
            }
            (None, Content::Bytes(bytes)) => recipient.push(bytes),
            (None, _) => panic!("data of the recipient"),
        }
        if let Some((4, head)) = donor.last().and_then(descriptor) {
            spaces.push(number(head, 42));
        }
    }
    (donor, recipient)
}

/// Data after its descriptor. In the page stage the file's tablespace is that of the description with its index.
fn data(len: usize, before: &Message, spaces: &[u32]) -> Content {
    let (_, head) = descriptor(before).unwrap();
    match number(head, 12) {
        3 => {
            let space = spaces[usize::try_from(number(head, 28)).unwrap()];
            let offset = usize::try_from(number(head, 40)).unwrap();
            Content::Page { len, number: u32::try_from(offset / len).unwrap(), space }
        }
        _ => Content::Data(len),
    }
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(*bytes[at..].first_chunk().unwrap())
}

fn unhex(text: &str) -> Vec<u8> {
    text.as_bytes()
        .chunks(2)
        .map(|digits| u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap())
        .collect()
}

/// What a recipient makes of the messages of a donor; an error if the clone is not whole at their end.
fn run(messages: &[Message]) -> Result<Outcome, CloneError> {
    thread_local! { static DATA: Vec<u8> = vec![3; (2 << 20) + 1]; }
    let (mut recipient, init) = Recipient::new(Duration::from_secs(300));
    let (mut blocks, mut sent) = (Vec::new(), vec![init]);
    DATA.with(|data| {
        let mut page = vec![3; 100_000];
        for message in messages {
            let bytes = match &message.content {
                Content::Bytes(bytes) => bytes,
                Content::Data(len) => &data[..=*len],
                Content::Page { len, number, space } => {
                    page[5..9].copy_from_slice(&number.to_be_bytes());
                    page[35..39].copy_from_slice(&space.to_be_bytes());
                    &page[..=*len]
                }
            };
            if message.is_auxiliary {
                recipient.answered(bytes)?;
                continue;
            }
            match recipient.receive(bytes)? {
                CloneEvent::Ready => sent.push(recipient.execute()?),
                CloneEvent::Acknowledge(message) => sent.push(message),
                CloneEvent::Complete => sent.push(recipient.leave()?),
                CloneEvent::Block(block) => {
                    blocks.push((block.stage, block.file, block.offset, block.bytes.len()));
                }
                CloneEvent::Nothing
                | CloneEvent::Stage(..)
                | CloneEvent::File(..)
                | CloneEvent::Left => {}
            }
        }
        Ok(())
    })?;
    if !recipient.is_whole() {
        return Err(CloneError::Broken { what: "the connection ended".to_owned() });
    }
    let (files, redo) = (recipient.files().to_vec(), recipient.redo().to_vec());
    Ok(Outcome { files, redo, blocks, sent })
}

/// The descriptor's kind and its bytes.
fn descriptor(message: &Message) -> Option<(u8, &[u8])> {
    match &message.content {
        Content::Bytes(bytes) if bytes.first() == Some(&2) => Some((bytes[14], &bytes[3..])),
        _ => None,
    }
}

/// Whether a message tells a plugin, a collation or a setting that the recipient does not need.
fn is_hint(message: &Message) -> bool {
    match &message.content {
        Content::Bytes(bytes) => {
            let has = |name: &[u8]| bytes.get(5..).is_some_and(|text| text.starts_with(name));
            let needed = [&b"version\x07\0\0\0"[..], b"innodb_page_size"].into_iter().any(has);
            matches!(bytes[0], 5..=9) && !needed
        }
        Content::Data(_) | Content::Page { .. } => false,
    }
}

#[test]
fn a_clone_between_stock_servers_is_received_whole() {
    let (donor, recipient) = recorded();
    let outcome = run(&donor).unwrap();
    let names: Vec<String> = outcome.files.iter().map(|file| file.name.to_string()).collect();
    assert_eq!(
        names,
        [
            "ib_buffer_pool",
            "ibdata1",
            "sys/sys_config.ibd",
            "shop/t.ibd",
            "shop/z.ibd",
            "shop/p.ibd",
            "t@0kst@002ddb/@1omlaut@0020tbl.ibd",
            "mysql.ibd",
            "undo_002",
            "undo_001",
        ]
    );
    let by_name = |name: &[u8]| {
        let name = FileName::Inside(name.to_vec());
        outcome.files.iter().find(|file| file.name == name).unwrap()
    };
    assert_eq!((by_name(b"ib_buffer_pool").space, by_name(b"ib_buffer_pool").page_size), (None, 0));
    assert_eq!((by_name(b"shop/t.ibd").space, by_name(b"shop/t.ibd").page_size), (Some(2), 16384));
    assert_eq!(by_name(b"shop/z.ibd").page_size, 4096);
    assert!(by_name(b"shop/p.ibd").has_compressed_pages);
    assert!(outcome.files.iter().all(|file| !file.is_encrypted));
    assert_eq!(outcome.redo.len(), 10);
    let count = |stage| outcome.blocks.iter().filter(|(found, ..)| *found == stage).count();
    assert_eq!([Stage::File, Stage::Page, Stage::Redo].map(count), [76, 152, 12]);
    let bytes: usize = outcome.blocks.iter().map(|(.., len)| len).sum();
    // Files, redo log, pages: 128 of 16 KiB and 24 of 4 KiB.
    assert_eq!(bytes, 74_192_509 + 2_541_056 + 2_379_776);

    // It says what the stock recipient says, whose locator is padded, and which leaves two connections.
    let (init, rest) = outcome.sent.split_first().unwrap();
    assert_eq!((&init[..10], &init[14..]), (&recipient[0][..10], &recipient[0][14..48]));
    let mut said = recipient[1..].to_vec();
    said.dedup();
    assert_eq!(rest, said);
}

/// Runs a changed clone: it is refused, or it is the same clone.
fn refused_or_same(changed: &[Message], original: &Outcome, what: &str) -> bool {
    match run(changed) {
        Err(_) => true,
        Ok(outcome) => {
            assert_eq!(&outcome, original, "{what}");
            false
        }
    }
}

#[test]
fn a_lost_repeated_or_swapped_message_is_refused() {
    let (messages, _) = recorded();
    let original = run(&messages).unwrap();
    // A file of the redo log is described again before its blocks; that changes nothing.
    let is_again = |at: usize| {
        let is_file =
            descriptor(&messages[at]).is_some_and(|(kind, bytes)| kind == 4 && bytes[15] == 4);
        is_file && messages.iter().filter(|other| **other == messages[at]).count() > 1
    };
    for (at, message) in messages.iter().enumerate() {
        let free = is_hint(message) || is_again(at);
        let lost = [&messages[..at], &messages[at + 1..]].concat();
        let repeated = [&messages[..=at], &messages[at..]].concat();
        for (changed, how) in [(lost, "lost"), (repeated, "repeated")] {
            let what = format!("message {at}, {message:x?}, {how}");
            assert!(refused_or_same(&changed, &original, &what) || free, "{what}");
        }
        if messages.get(at + 1).is_none_or(|next| next == message) {
            continue;
        }
        let mut swapped = messages.clone();
        swapped.swap(at, at + 1);
        let what = format!("message {at}, {message:x?}, swapped");
        // What the donor is may come in any order, and both connections may be left in any order.
        let free = free || is_again(at + 1) || is_setup(message) || at + 2 == messages.len();
        assert!(refused_or_same(&swapped, &original, &what) || free, "{what}");
    }
}

/// Whether a message says what the donor is.
fn is_setup(message: &Message) -> bool {
    matches!(&message.content, Content::Bytes(bytes) if matches!(bytes[0], 1 | 4..=9))
}

#[test]
fn a_lost_repeated_or_swapped_block_is_refused() {
    let (messages, _) = recorded();
    let is_block = |at: &usize| descriptor(&messages[*at]).is_some_and(|(kind, _)| kind == 5);
    for at in (0..messages.len()).filter(is_block) {
        let (before, block, after) = (&messages[..at], &messages[at..at + 2], &messages[at + 2..]);
        assert!(run(&[before, after].concat()).is_err(), "block {at} lost");
        assert!(run(&[before, block, block, after].concat()).is_err(), "block {at} repeated");
        if is_block(&(at + 2)) {
            let (next, after) = after.split_at(2);
            assert!(run(&[before, next, block, after].concat()).is_err(), "block {at} swapped");
        }
    }
}

#[test]
fn a_message_of_another_length_is_refused() {
    let (messages, _) = recorded();
    for at in 0..messages.len() {
        for longer in [false, true] {
            let mut changed = messages.clone();
            match &mut changed[at].content {
                Content::Bytes(bytes) if longer => bytes.push(0),
                Content::Bytes(bytes) => drop(bytes.pop()),
                Content::Data(len) | Content::Page { len, .. } if longer => *len += 1,
                Content::Data(len) | Content::Page { len, .. } => *len -= 1,
            }
            assert!(run(&changed).is_err(), "message {at}, longer: {longer}");
        }
    }
}

#[test]
fn a_clone_that_ends_early_is_not_whole() {
    let (messages, _) = recorded();
    for end in 0..messages.len() {
        assert!(run(&messages[..end]).is_err(), "{end}");
    }
}

#[test]
fn a_changed_number_is_refused() {
    let (messages, _) = recorded();
    let original = run(&messages).unwrap();
    // Each kind of descriptor in each stage, and a few of the many blocks.
    let tried = messages.iter().enumerate().filter(|(at, message)| match descriptor(message) {
        Some((5, _)) => at % 9 == 0,
        Some(_) => true,
        None => matches!(&message.content, Content::Bytes(bytes) if bytes.len() == 1),
    });
    let mut refused = 0;
    for (at, message) in tried {
        let Content::Bytes(bytes) = &message.content else { continue };
        for byte in 0..bytes.len() {
            for flip in [1, 0x80] {
                let mut changed = messages.clone();
                let mut bytes = bytes.clone();
                bytes[byte] ^= flip;
                changed[at].content = Content::Bytes(bytes);
                match (run(&changed), descriptor(message)) {
                    (Err(_), _) => refused += 1,
                    (Ok(outcome), Some((kind, head))) if outcome != original => {
                        assert!(is_free(kind, head, byte - 3), "{at}: byte {byte}, {head:x?}");
                    }
                    (Ok(_), found) => {
                        let kind = found.map_or(0, |(kind, _)| kind);
                        assert!(
                            means_nothing(kind, byte.saturating_sub(3)),
                            "{at}: byte {byte} of {kind}"
                        );
                    }
                }
            }
        }
    }
    assert!(refused > 3000, "{refused}");
}

/// Whether another value here is another clone, whose numbers agree as well: what a tablespace is, and the
/// size that its first page announces.
fn is_free(kind: u8, head: &[u8], at: usize) -> bool {
    let is_first_page = head[15] == 3 && head[36..44].iter().all(|byte| *byte == 0);
    match kind {
        // Flags of the tablespace and of the file, number of the tablespace; the name.
        4 => matches!(at, 32..36 | 40..42 | 42..46 | 62..),
        5 => is_first_page && matches!(at, 44..52),
        _ => false,
    }
}

/// Whether a number is not used: bytes on disk, and for pages, bytes altogether and the size of the file.
fn means_nothing(kind: u8, at: usize) -> bool {
    match kind {
        3 => matches!(at, 28..44),
        4 => matches!(at, 24..46),
        5 => matches!(at, 44..52),
        _ => false,
    }
}

#[test]
fn an_error_of_the_donor_is_told() {
    let (messages, _) = recorded();
    let end =
        messages.iter().position(|message| descriptor(message).is_some_and(|(kind, _)| kind == 5));
    let mut messages = messages[..end.unwrap()].to_vec();
    let error = [&[100][..], &3862_i32.to_le_bytes(), b"Clone Donor Error"].concat();
    messages.push(Message { is_auxiliary: false, content: Content::Bytes(error) });
    let error = run(&messages).unwrap_err().to_string();
    assert_eq!(error, "the donor ended the clone: error 3862: Clone Donor Error");
}

/// The recorded clone, with a change to its locators.
fn with_locators(change: impl Fn(&mut Vec<u8>)) -> Result<Outcome, CloneError> {
    let (mut messages, _) = recorded();
    for message in &mut messages {
        match &mut message.content {
            Content::Bytes(bytes) if bytes[0] == 1 && bytes.len() > 20 => change(bytes),
            _ => {}
        }
    }
    run(&messages)
}

#[test]
fn a_second_engine_is_refused() {
    let second = |bytes: &mut Vec<u8>| {
        let locator = bytes[5..].to_vec();
        bytes.extend(locator);
    };
    for change in [&second as &dyn Fn(&mut Vec<u8>), &|bytes| bytes[5] = 42] {
        let error = with_locators(change).unwrap_err();
        assert!(matches!(&error, CloneError::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains("second storage engine"), "{error}");
    }
    assert!(with_locators(|bytes| bytes[1] = 4).is_err());
}

#[test]
fn a_name_that_leads_elsewhere_is_refused() {
    let (messages, _) = recorded();
    let at = messages.iter().position(|message| match descriptor(message) {
        Some((4, head)) => head.ends_with(b"./shop/t.ibd\0"),
        _ => false,
    });
    let named = |name: &[u8]| {
        let mut messages = messages.clone();
        let (_, head) = descriptor(&messages[at.unwrap()]).unwrap();
        let mut head = head[..62].to_vec();
        head[4..8].copy_from_slice(&u32::try_from(62 + name.len()).unwrap().to_be_bytes());
        head[58..62].copy_from_slice(&u32::try_from(name.len()).unwrap().to_be_bytes());
        let bytes = [&[2, 12, 0][..], &head, name].concat();
        messages[at.unwrap()].content = Content::Bytes(bytes);
        run(&messages)
    };
    for name in [
        &b"../t.ibd\0"[..],
        b"./../t.ibd\0",
        b"/a/../t.ibd\0",
        b"a//t.ibd\0",
        b"a/\0",
        b"\0",
        b"",
        b"./\0",
        b"/\0",
        b"a\0b.ibd\0",
        b"t.ibd",
        b"#clone/#status_fix\0",
        b"./#innodb_redo/#ib_redo0\0",
        b"./a/./t.ibd\0",
        // The name of another file.
        b"ibdata1\0",
        b"./ibdata1\0",
        b"shop/z.ibd\0",
    ] {
        assert!(named(name).is_err(), "{}", name.escape_ascii());
    }
    for name in [&b"./shop/other.ibd\0"[..], b"/srv/shop/t.ibd\0", b"shop/t#p#p0.ibd\0"] {
        assert!(named(name).is_ok(), "{}", name.escape_ascii());
    }
}

/// The recorded clone with the redo log of a server that writes nothing: a head and a last block, `bytes`
/// announced.
fn idle(bytes: u32, first_chunk: u32) -> Result<Outcome, CloneError> {
    let (messages, _) = recorded();
    let of_redo = |kind: u8| {
        messages.iter().position(|message| {
            descriptor(message).is_some_and(|(found, head)| found == kind && head[15] == 4)
        })
    };
    let (begin, file, block) = (of_redo(3).unwrap(), of_redo(4).unwrap(), of_redo(5).unwrap());
    let end = messages.iter().rposition(|message| {
        descriptor(message).is_some_and(|(kind, head)| kind == 3 && head[15] == 4)
    });
    let changed = |at: usize, fields: &[(usize, u32)]| {
        let mut message = messages[at].clone();
        let Content::Bytes(bytes) = &mut message.content else { panic!("a descriptor") };
        for (at, value) in fields {
            bytes[3 + at..7 + at].copy_from_slice(&value.to_be_bytes());
        }
        message
    };
    let data = |len| Message {
        is_auxiliary: false,
        content: Content::Data(usize::try_from(len).unwrap()),
    };
    // Offsets of chunk, block, file, length and offset.
    let piece = |chunk, offset, len| {
        let fields = [(20, chunk), (24, 1), (28, 0), (32, len), (36, 0), (40, offset)];
        [changed(block, &fields), data(len)]
    };
    let stage = [(20, 3), (24, 1), (28, 0), (32, bytes)];
    let mut all = messages[..begin].to_vec();
    all.push(changed(begin, &stage));
    all.push(messages[file].clone());
    all.extend(piece(first_chunk, 0, 2048));
    all.extend(piece(first_chunk + 1, 2048, 512));
    all.push(changed(end.unwrap(), &stage[..2]));
    all.extend_from_slice(&messages[end.unwrap() + 1..]);
    run(&all)
}

#[test]
fn the_redo_log_of_a_server_that_writes_nothing_has_no_body() {
    let outcome = idle(2560, 2).unwrap();
    assert_eq!(outcome.redo.len(), 1);
    // A body that was announced and lost is missed, and no other chunk may be empty.
    assert!(idle(2560 + 512, 2).is_err());
    assert!(idle(2560, 3).is_err());
}

proptest! {
    #[test]
    fn any_messages_are_read_or_refused(changes: Vec<(prop::sample::Index, prop::sample::Index, u8)>, cut: Option<prop::sample::Index>) {
        let (mut messages, _) = recorded();
        for (message, byte, value) in changes {
            let at = message.index(messages.len());
            match &mut messages[at].content {
                Content::Bytes(bytes) => {
                    let at = byte.index(bytes.len());
                    bytes[at] = value;
                }
                Content::Data(len) => *len = byte.index(2 << 20),
                Content::Page { number, .. } => *number = value.into(),
            }
        }
        if let Some(cut) = cut {
            messages.truncate(cut.index(messages.len()));
        }
        if let Ok(outcome) = run(&messages) {
            // Every byte of every file came once.
            for file in &outcome.files {
                let of = |(stage, index, _, len): &(Stage, u32, u64, usize)| {
                    (*stage == Stage::File && *index == file.index).then_some(*len as u64)
                };
                prop_assert!(outcome.blocks.iter().filter_map(of).sum::<u64>() <= file.size);
            }
        }
    }
}
