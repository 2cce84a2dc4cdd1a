//! A clone between two stock servers, and what becomes of it when messages are lost, repeated, swapped or
//! changed on their way.

use crate::recording::*;
use proptest::prelude::*;
use xb_mysql::clone::{CloneError, FileName, Stage};

/// Returns whether a message tells a plugin, a collation or a setting that the recipient does not need.
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
        // The facts about the donor may come in any order, and both connections may be left in any order.
        let free = free || is_again(at + 1) || is_setup(message) || at + 2 == messages.len();
        assert!(refused_or_same(&swapped, &original, &what) || free, "{what}");
    }
}

/// Returns whether a message says what the donor is.
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
    for_each_message(|at, message, run, _| {
        let others: Vec<Content> = match &message.content {
            Content::Bytes(bytes) => (0..bytes.len())
                .map(|len| bytes[..len].to_vec())
                .chain([[&bytes[..], &[0]].concat()])
                .map(Content::Bytes)
                .collect(),
            Content::Data(len) => [0, 1, len - 1, len + 1].into_iter().map(Content::Data).collect(),
            Content::Page { len, number, space } => [39, len - 1, len + 1]
                .map(|len| Content::Page { len, number: *number, space: *space })
                .into(),
        };
        for content in others {
            let changed = Message { content, ..*message };
            assert!(
                feed(&mut run.clone(), std::slice::from_ref(&changed)).is_err(),
                "{at}: {changed:x?}"
            );
        }
    });
}

/// Calls with each message of the donor, a recipient before and after it.
fn for_each_message(mut call: impl FnMut(usize, &Message, &Run, &Run)) {
    let (messages, _) = recorded();
    let mut before = Run::new();
    for (at, message) in messages.iter().enumerate() {
        let mut after = before.clone();
        feed(&mut after, std::slice::from_ref(message)).unwrap();
        call(at, message, &before, &after);
        before = after;
    }
    assert!(before.end().is_ok());
}

#[test]
fn a_clone_that_ends_early_is_not_whole() {
    let (messages, _) = recorded();
    for end in 0..messages.len() {
        assert!(run(&messages[..end]).is_err(), "{end}");
    }
}

#[test]
fn a_message_with_another_byte_is_refused_or_changes_nothing_that_can_be_lost() {
    let (messages, _) = recorded();
    let original = run(&messages).unwrap();
    let (mut refused, mut same, mut free) = (0, 0, 0);
    for_each_message(|at, message, before, after| {
        for (byte, changed) in altered(message) {
            let what = || format!("{at}: byte {byte}, {changed:x?}");
            let mut run = before.clone();
            if feed(&mut run, std::slice::from_ref(&changed)).is_err() {
                refused += 1;
            } else if run == *after {
                // The messages that follow are the same, too.
                assert!(is_unused(message, byte), "{}", what());
                same += 1;
            } else {
                match feed(&mut run, &messages[at + 1..]).and_then(|()| run.end()) {
                    Err(_) => refused += 1,
                    Ok(outcome) if outcome == original => {
                        assert!(is_unused(message, byte) || is_told(message, byte), "{}", what());
                        free += 1;
                    }
                    Ok(_) => {
                        assert!(is_told(message, byte), "{}", what());
                        free += 1;
                    }
                }
            }
        }
    });
    assert!(refused > 100_000 && same > 50_000 && free > 1000, "{refused} {same} {free}");
}

/// Returns whether nothing depends on a byte of a message: what the donor is, but its version and the size of its pages;
/// bytes on disk and in a file system; of the page stage, bytes altogether and the size of the file; what a page holds.
fn is_unused(message: &Message, byte: usize) -> bool {
    match (descriptor(message), &message.content) {
        (Some((3, _)), _) => matches!(byte, 31..47),
        (Some((4, _)), _) => matches!(byte, 27..49),
        (Some((5, _)), _) => matches!(byte, 47..55),
        (Some(_), _) => false,
        (None, Content::Bytes(bytes)) => matches!(bytes[0], 4..=9) && (byte == 0 || byte >= 5),
        (None, Content::Data(_)) => false,
        (None, Content::Page { .. }) => !matches!(byte, 0 | 5..9 | 35..39),
    }
}

/// Returns whether another value here is another clone whose numbers agree as well: what the donor is; the version of
/// the protocol and the locator, of which the donor is told with each acknowledgement; what a tablespace is; a name;
/// the size that a first page announces.
fn is_told(message: &Message, byte: usize) -> bool {
    match (descriptor(message), &message.content) {
        (Some((4, _)), _) => matches!(byte, 35..39 | 43..49 | 65..),
        (Some((5, head)), _) => {
            head[15] == 3 && head[36..44].iter().all(|byte| *byte == 0) && matches!(byte, 47..55)
        }
        (None, Content::Bytes(bytes)) => match bytes[0] {
            1 => matches!(byte, 1 | 22..44),
            4..=9 => byte == 0 || byte >= 5,
            _ => false,
        },
        _ => false,
    }
}

#[test]
fn numbers_that_changed_alike_at_both_ends_of_a_stage_are_refused() {
    let (messages, _) = recorded();
    for stage in 2..=4 {
        let is_end = |at: &usize| {
            descriptor(&messages[*at])
                .is_some_and(|(kind, head)| kind == 3 && number(head, 12) == stage)
        };
        let ends: Vec<usize> = (0..messages.len()).filter(is_end).collect();
        // Number of chunks, and of files or pages; at the begin alone, of bytes.
        for (field, places) in [(20, &ends[..]), (24, &ends[..]), (32, &ends[..1])] {
            for change in [1, u32::MAX] {
                let mut changed = messages.clone();
                for at in places {
                    let Content::Bytes(bytes) = &mut changed[*at].content else { panic!() };
                    let value = number(&bytes[3..], field).wrapping_add(change);
                    bytes[3 + field..7 + field].copy_from_slice(&value.to_be_bytes());
                }
                let is_limit = stage == 3 && field == 32;
                assert!(run(&changed).is_err() || is_limit, "{stage} {field} {change}");
            }
        }
    }
}

#[test]
fn an_error_of_the_donor_is_reported() {
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

/// A message with other numbers in its descriptor, by their offsets.
fn renumbered(message: &Message, fields: &[(usize, u32)]) -> Message {
    let mut message = message.clone();
    let Content::Bytes(bytes) = &mut message.content else { panic!("no descriptor") };
    for (at, value) in fields {
        bytes[3 + at..7 + at].copy_from_slice(&value.to_be_bytes());
    }
    message
}

/// Offsets of numbers in descriptors: of a stage, of a file, of a block.
const CHUNKS: usize = 20;
const FILES: usize = 24;
const BYTES: usize = 32;
const FILE_SIZE: usize = 20;
const FILE_INDEX: usize = 46;
const CHUNK: usize = 20;
const BLOCK: usize = 24;
const FILE: usize = 28;
const LEN: usize = 32;
const OFFSET: usize = 40;

/// A piece of a redo log: chunk, block, file, offset, length.
type Piece = (u32, u32, u32, u32, u32);

/// The recorded clone with another redo stage: files of 4096 bytes, and pieces of them.
fn with_redo(files: u32, chunks: u32, bytes: u32, pieces: &[Piece]) -> Result<Outcome, CloneError> {
    let (messages, _) = recorded();
    let is_of_redo = |at: &usize, kind: u8| {
        descriptor(&messages[*at]).is_some_and(|(found, head)| found == kind && head[15] == 4)
    };
    let first = |kind: u8| (0..messages.len()).find(|at| is_of_redo(at, kind)).unwrap();
    let (begin, file, block) = (first(3), &messages[first(4)], &messages[first(5)]);
    let end = (0..messages.len()).rfind(|at| is_of_redo(at, 3)).unwrap();
    let stage = [(CHUNKS, chunks), (FILES, files), (BYTES, bytes)];
    let mut all = messages[..begin].to_vec();
    all.push(renumbered(&messages[begin], &stage));
    all.extend((0..files).map(|index| renumbered(file, &[(FILE_SIZE, 4096), (FILE_INDEX, index)])));
    for (chunk, block_number, file, offset, len) in pieces {
        let place = [(CHUNK, *chunk), (BLOCK, *block_number), (FILE, *file)];
        all.push(renumbered(
            &renumbered(block, &place),
            &[(LEN, *len), (36, 0), (OFFSET, *offset)],
        ));
        let content = Content::Data(usize::try_from(*len).unwrap());
        all.push(Message { is_auxiliary: false, content });
    }
    all.push(renumbered(&messages[end], &stage[..2]));
    all.extend_from_slice(&messages[end + 1..]);
    run(&all)
}

/// The recorded clone with the redo log of a server that writes nothing: a head and a last block, `bytes`
/// announced.
fn idle(bytes: u32, first_chunk: u32) -> Result<Outcome, CloneError> {
    let second = (first_chunk + 1, 1, 0, 2048, 512);
    with_redo(1, 3, bytes, &[(first_chunk, 1, 0, 0, 2048), second])
}

#[test]
fn a_redo_log_with_a_hole_or_a_repetition_is_refused() {
    let head = (2, 1, 0, 0, 2048);
    let refused = |files: u32, pieces: &[Piece]| {
        let bytes = pieces.iter().map(|piece| piece.4).sum();
        with_redo(files, 3, bytes, pieces).is_err()
    };
    assert!(!refused(1, &[(1, 1, 0, 2048, 1024), head, (3, 1, 0, 3072, 512)]));
    assert!(!refused(2, &[(1, 1, 0, 2048, 2048), (1, 2, 1, 0, 512), head, (3, 1, 1, 512, 512)]));
    assert!(refused(1, &[(1, 1, 0, 2560, 512), head, (3, 1, 0, 3072, 512)]), "a hole");
    let twice = [(1, 1, 0, 2048, 512), (1, 2, 0, 2048, 512), head, (3, 1, 0, 2560, 512)];
    assert!(refused(1, &twice), "the same bytes twice");
    let short = [(1, 1, 0, 2048, 1024), (1, 2, 1, 0, 512), head, (3, 1, 1, 512, 512)];
    assert!(refused(2, &short), "a file before the last one is short");
    let empty = [(1, 1, 0, 2048, 2048), head, (3, 1, 0, 4096, 512)];
    assert!(!refused(1, &empty) && refused(2, &empty), "nothing of the last file");
    let behind = [(1, 1, 0, 2048, 2048), head, (3, 1, 0, 4096, 513)];
    assert!(refused(1, &behind), "more than one block behind the end");
    // As a patch, it would make the stored clone useless.
    let nothing = [(1, 1, 0, 2048, 1024), (1, 2, 0, 3072, 0), head, (3, 1, 0, 3072, 512)];
    assert!(refused(1, &nothing), "no bytes");
    assert!(with_redo(0, 0, 0, &[]).is_err(), "no redo log");
}

fn numbers(message: &Message, at: usize) -> u32 {
    number(descriptor(message).unwrap().1, at)
}

/// The recorded clone with one message changed.
fn with_changed(at: usize, change: impl Fn(&mut Vec<u8>)) -> Result<Outcome, CloneError> {
    let (mut messages, _) = recorded();
    let Content::Bytes(bytes) = &mut messages[at].content else { panic!("data") };
    change(bytes);
    run(&messages)
}

#[test]
fn messages_that_no_donor_sends_are_refused() {
    let (messages, _) = recorded();
    let find = |wanted: &dyn Fn(&[u8]) -> bool| {
        let is_it =
            |message: &Message| matches!(&message.content, Content::Bytes(bytes) if wanted(bytes));
        messages.iter().position(is_it).unwrap()
    };
    // Kinds of messages, while the donor says what it is, and in a stage.
    let setup = find(&|bytes| bytes[0] == 6);
    let stage = find(&|bytes| bytes[0] == 2 && bytes[14] == 3);
    for kind in [0, 10, 42, 98, 101, 255] {
        for at in [setup, stage] {
            assert!(with_changed(at, |bytes| bytes[0] = kind).is_err(), "kind {kind}");
            // Without content, nothing but its kind is wrong.
            assert!(with_changed(at, |bytes| *bytes = vec![kind]).is_err(), "only kind {kind}");
        }
    }
    // The answer to an acknowledgement.
    let aside = messages.iter().position(|message| message.is_auxiliary).unwrap();
    let collation = || vec![6, 1, 0, 0, 0, b'a'];
    assert!(with_changed(aside, |bytes| *bytes = collation()).is_err());
    // Those to leaving, on both connections.
    for (at, message) in messages.iter().enumerate().skip(messages.len() - 2) {
        assert_eq!(message.content, Content::Bytes(vec![99]));
        assert!(with_changed(at, |bytes| *bytes = collation()).is_err(), "{at}");
    }
    // A longer descriptor that says so.
    let block = find(&|bytes| bytes[0] == 2 && bytes[14] == 5);
    let longer = |bytes: &mut Vec<u8>| {
        bytes.push(0);
        bytes[10] += 1;
    };
    assert!(with_changed(block, longer).is_err());
    // A file of the redo log, in the stage before.
    let of = |kind: u8, stage: u8| {
        let is_it = |message: &Message| {
            descriptor(message).is_some_and(|(of, bytes)| of == kind && bytes[15] == stage)
        };
        messages.iter().position(is_it).unwrap()
    };
    let (pages, redo) = (of(3, 3), of(4, 4));
    let (before, after) = messages.split_at(pages + 1);
    assert!(run(&[before, &messages[redo..=redo], after].concat()).is_err());
    // Flags of a file, a size of compressed pages, a long name.
    let file = find(&|bytes| bytes[0] == 2 && bytes.ends_with(b"./shop/t.ibd\0"));
    for flags in [8_u16, 16, 64, 1 << 15] {
        let flagged = |bytes: &mut Vec<u8>| bytes[43..45].copy_from_slice(&flags.to_be_bytes());
        assert!(with_changed(file, flagged).is_err(), "flags {flags}");
    }
    for zip in [6, 7, 15] {
        assert!(with_changed(file, |bytes| bytes[38] = zip << 1).is_err(), "zip {zip}");
    }
    let named = |bytes: &mut Vec<u8>, len: usize| {
        bytes.truncate(65);
        bytes.extend(vec![b'a'; len]);
        bytes.push(0);
        let total = u32::try_from(bytes.len() - 3).unwrap();
        bytes[7..11].copy_from_slice(&total.to_be_bytes());
        bytes[61..65].copy_from_slice(&u32::try_from(len + 1).unwrap().to_be_bytes());
    };
    assert!(with_changed(file, |bytes| named(bytes, 4096)).is_ok());
    assert!(with_changed(file, |bytes| named(bytes, 4097)).is_err());
    // A size of pages.
    let setting =
        |bytes: &[u8]| matches!(bytes[0], 5 | 8 | 9) && bytes[5..].starts_with(b"innodb_page_size");
    let page_size = find(&setting);
    for size in ["2048", "20000", "131072", "0", ""] {
        let sized = |bytes: &mut Vec<u8>| {
            bytes.truncate(5 + b"innodb_page_size".len());
            bytes.extend(u32::try_from(size.len()).unwrap().to_le_bytes());
            bytes.extend(size.as_bytes());
        };
        let mut changed = messages.clone();
        let Content::Bytes(bytes) = &mut changed[page_size].content else { panic!("a setting") };
        sized(bytes);
        // Refused before any data.
        let told = messages.iter().position(|message| message.content == Content::Bytes(vec![99]));
        let mut run = Run::new();
        assert!(feed(&mut run, &changed[..=told.unwrap()]).is_err(), "pages of {size:?} bytes");
    }
    // More about itself than any server has to say.
    let (one, mut more) = (messages[setup].clone(), messages[..=setup].to_vec());
    let Content::Bytes(bytes) = &one.content else { panic!("a collation") };
    more.extend(vec![one.clone(); (1 << 20) / bytes.len() + 1]);
    let mut run = Run::new();
    assert!(feed(&mut run, &more).is_err());
}

#[test]
fn a_file_that_ddl_created_renamed_or_removed_ends_the_clone() {
    let (messages, _) = recorded();
    let of = |kind: u8, stage: u8| {
        let is_it = |message: &Message| {
            descriptor(message).is_some_and(|(found, head)| (found, head[15]) == (kind, stage))
        };
        messages.iter().position(is_it).unwrap()
    };
    for stage in [3, 4] {
        for flags in [0, 8, 16] {
            let mut file = renumbered(&messages[of(4, 2) + 3], &[(12, stage.into())]);
            let Content::Bytes(bytes) = &mut file.content else { panic!("a file") };
            bytes[44] = flags;
            let mut changed = messages.clone();
            changed.insert(of(3, stage) + 1, file);
            let error = run(&changed).unwrap_err();
            assert!(matches!(error, CloneError::Unsupported { .. }), "{stage} {flags}: {error}");
        }
    }
}

#[test]
fn bytes_that_a_donor_loses_and_does_not_announce_are_missed() {
    let (messages, _) = recorded();
    let blocks = blocks_of(&messages, 2);
    let begin = messages.iter().position(|message| {
        descriptor(message).is_some_and(|(kind, head)| kind == 3 && number(head, 12) == 2)
    });
    let begin = begin.unwrap();
    let mut tried = 0;
    for (number, at) in blocks.iter().enumerate() {
        // The last block of a chunk is not missed by the order of blocks.
        let next = blocks.get(number + 1).map(|next| numbers(&messages[*next], BLOCK));
        if next.is_some_and(|block| block != 1) || numbers(&messages[*at], BLOCK) == 1 {
            continue;
        }
        let bytes = numbers(&messages[begin], BYTES) - numbers(&messages[*at], LEN);
        let mut changed = messages.clone();
        changed[begin] = renumbered(&messages[begin], &[(BYTES, bytes)]);
        changed.drain(*at..at + 2);
        assert!(run(&changed).is_err(), "{at}");
        tried += 1;
    }
    assert!(tried > 3, "{tried}");
    // A block that says another size of its file, and one that no recipient would hold.
    let changed = |fields: &[(usize, u32)]| {
        let mut changed = messages.clone();
        changed[blocks[5]] = renumbered(&messages[blocks[5]], fields);
        changed
    };
    let size = numbers(&messages[blocks[5]], 48);
    assert!(run(&changed(&[(48, size + 16384)])).is_err());
    let mut run = Run::new();
    assert!(feed(&mut run, &changed(&[(LEN, (16 << 20) + 1)])[..=blocks[5]]).is_err());
}

#[test]
fn a_page_in_place_of_another_one_is_refused() {
    let (messages, _) = recorded();
    let blocks = blocks_of(&messages, 3);
    let content = |at: usize, page: u32| {
        let Content::Page { len, space, .. } = messages[at + 1].content else { panic!("no page") };
        Content::Page { len, number: page, space }
    };
    for pair in blocks.windows(2).step_by(10) {
        let [first, second] = [pair[0], pair[1]];
        if numbers(&messages[first], FILE) != numbers(&messages[second], FILE) {
            continue;
        }
        let offset = numbers(&messages[first], OFFSET);
        let mut changed = messages.clone();
        changed[second] = renumbered(&messages[second], &[(OFFSET, offset)]);
        changed[second + 1] = messages[first + 1].clone();
        assert!(run(&changed).is_err(), "{second}: the page before it");
    }
    // Behind the end of its file: a server that made it longer sends such a page, if it says the number that belongs
    // there, and no more is said of the file.
    let last = *blocks.last().unwrap();
    let len = numbers(&messages[last], LEN);
    let size = numbers(&messages[last], 48);
    let offset = size.next_multiple_of(len);
    let behind = |page: u32, size: u32| {
        let mut changed = messages.clone();
        changed[last] = renumbered(&messages[last], &[(OFFSET, offset), (48, size)]);
        changed[last + 1].content = content(last, page);
        run(&changed)
    };
    let file = usize::try_from(numbers(&messages[last], FILE)).unwrap();
    let longer = behind(offset / len, size).unwrap();
    assert_eq!(longer.files[file].size, u64::from(offset + len));
    assert!(behind(offset / len - 1, size).is_err(), "the page before it");
    assert!(behind(offset / len, offset + 2 * len).is_err(), "longer than to that page");
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
