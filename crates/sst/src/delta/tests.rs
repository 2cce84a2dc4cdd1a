//! Both sides together, without a network.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use xb_pipeline::{Observer, PassOn};
use xb_reader::{ChunkWriter, MapEntry, RelPath};
use xb_wire::ReplyWait;

use super::choice::Choice;
use super::fill::{FillError, Filler};
use super::group::{Group, HeldBlocks, MAX_BLOCKS};
use super::held::HeldGroups;
use super::old_files::OldFiles;
use super::question::{Key, Question, hash};
use super::read_ahead::Source;
use super::thin::{QuestionChannel, Thinner};
use crate::contract::datadir::{Kind, KindDir, Layout};
use crate::contract::error_log::ErrorLog;
use crate::contract::settings::DeltaWish;

const KEY: Key = [7; 32];
const BLOCK: usize = 16 << 10;

fn path(name: &str) -> RelPath {
    RelPath::new(name.as_bytes()).unwrap()
}

/// Old data in a directory, with `mysql`.
fn old_dir(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("mysql")).unwrap();
    for (name, content) in files {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    dir
}

fn open(dir: &std::path::Path) -> OldFiles {
    OldFiles::open(&Layout::of(dir).unwrap(), &ErrorLog::new(|_, _| {})).unwrap()
}

/// A joiner that answers after a while, and has no more room than it must have.
struct Joiner {
    old: OldFiles,
    held: Arc<HeldGroups>,
    questions: VecDeque<Vec<u8>>,
    /// How many questions may be open, and how many calls the oldest one takes.
    most: usize,
    delay: usize,
    waited: usize,
    /// Makes every reply another one.
    lie: Option<u64>,
    /// How many questions it answers.
    answers: usize,
}

impl QuestionChannel for Joiner {
    fn ask(&mut self, question: &[u8]) -> io::Result<bool> {
        if self.questions.len() >= self.most {
            return Ok(false);
        }
        self.questions.push_back(question.to_vec());
        Ok(true)
    }

    fn reply(&mut self) -> io::Result<Option<Vec<u8>>> {
        self.waited = self.waited.saturating_add(1);
        if self.waited < self.delay {
            return Ok(None);
        }
        self.waited = 0;
        if self.answers == 0 {
            return Ok(None);
        }
        let Some(question) = self.questions.pop_front() else { return Ok(None) };
        self.answers -= 1;
        let question = Question::read(&question).unwrap();
        let found = self.old.look(&question, &KEY);
        let have = found.have;
        if have != HeldBlocks::default() {
            self.held.push(found);
        }
        Ok(Some(HeldBlocks(have.0 ^ self.lie.unwrap_or(0)).write().to_vec()))
    }

    fn await_reply(&mut self, _: Option<Duration>) -> io::Result<ReplyWait> {
        self.waited = self.delay;
        Ok(self.reply()?.map_or(ReplyWait::Nothing, ReplyWait::Reply))
    }

    fn acknowledged(&self) -> u64 {
        0
    }
}

/// A stream as a transfer has carried it.
struct Outcome {
    /// The stream on the wire.
    thin: Vec<u8>,
    asked: u64,
    equal: u64,
    is_unanswered: bool,
    /// The completed stream.
    whole: Result<Vec<u8>, FillError>,
}

fn transfer(stream: &[u8], joiner: Joiner, wish: DeltaWish, piece: usize) -> io::Result<Outcome> {
    let held = Arc::clone(&joiner.held);
    let source = Pieces { rest: stream, piece };
    let mut thinner = Thinner::new(source, joiner, KEY, Choice::new(wish), &Observer::default());
    let saved = thinner.saved();
    let (mut thin, mut buffer) = (Vec::new(), vec![0; piece.max(3)]);
    loop {
        match thinner.read(&mut buffer) {
            Ok(0) => break,
            Ok(len) => thin.extend_from_slice(&buffer[..len]),
            Err(error) if PassOn::is(&error) => {}
            Err(error) => return Err(error),
        }
    }
    let mut filler = Filler::new(held);
    let mut filled = || {
        let mut whole = Vec::new();
        for piece in thin.chunks(piece) {
            filler.push(&Bytes::copy_from_slice(piece))?;
            while let Some(bytes) = filler.pop() {
                whole.extend_from_slice(&bytes);
            }
        }
        filler.finish()?;
        while let Some(bytes) = filler.pop() {
            whole.extend_from_slice(&bytes);
        }
        Ok(whole)
    };
    let whole = filled();
    let (asked, equal, is_unanswered) = (saved.asked(), saved.equal(), saved.is_unanswered());
    Ok(Outcome { thin, asked, equal, is_unanswered, whole })
}

struct Pieces<'a> {
    rest: &'a [u8],
    piece: usize,
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.piece.min(buffer.len());
        let (now, later) = self.rest.split_at(len.min(self.rest.len()));
        buffer[..now.len()].copy_from_slice(now);
        self.rest = later;
        Ok(now.len())
    }
}

impl Source for Pieces<'_> {
    fn is_ready(&mut self) -> bool {
        true
    }
}

fn joiner_with(old: OldFiles) -> Joiner {
    let held = Arc::new(HeldGroups::new(1 << 30));
    let questions = VecDeque::new();
    let answers = usize::MAX;
    Joiner { old, held, questions, most: 200, delay: 3, waited: 0, lie: None, answers }
}

/// Files of a stream, by extracting it.
fn files_of(stream: &[u8]) -> Vec<(String, Vec<u8>)> {
    use xb_reader::{ChunkReader, Dialect, Item, Limits};
    let mut files = std::collections::BTreeMap::<String, Vec<u8>>::new();
    let mut reader = ChunkReader::new(stream, Dialect::Auto, Limits::default());
    let mut placement = None;
    while let Some(item) = reader.next().unwrap() {
        match item {
            Item::Chunk(head, _) => {
                files.entry(head.path.to_string()).or_default();
                placement = Some((head.path.to_string(), head.placement()));
            }
            Item::Data(mut bytes) => {
                let (name, placement) = placement.as_mut().unwrap();
                let file = files.get_mut(name).unwrap();
                while let Some((offset, len)) = placement.take(bytes.len() as u64) {
                    let [offset, len] = [offset, len].map(|n| usize::try_from(n).unwrap());
                    file.resize(file.len().max(offset + len), 0);
                    let (now, later) = bytes.split_at(len);
                    file[offset..offset + len].copy_from_slice(now);
                    bytes = later;
                }
            }
            _ => {}
        }
    }
    files.into_iter().collect()
}

/// Bytes without repetition.
fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        bytes.extend((state ^ (state >> 29)).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// A stream of these files in chunks of `chunk` bytes, one after the other in turns, and some chunks of other kinds.
fn stream_of(files: &[(&str, Vec<u8>)], chunk: usize) -> Vec<u8> {
    let mut out = ChunkWriter::new(Vec::new());
    let most = files.iter().map(|(_, bytes)| bytes.len().div_ceil(chunk)).max().unwrap_or(0);
    for turn in 0..most {
        for (name, bytes) in files {
            if let Some(piece) = bytes.chunks(chunk).nth(turn) {
                out.payload(name, (turn * chunk) as u64, piece).unwrap();
            }
        }
    }
    for (name, _) in files {
        out.end(name).unwrap();
    }
    let map = [MapEntry { skip: 4096, len: 5 }, MapEntry { skip: 50_000, len: 0 }];
    out.sparse("holes.ibd", 0, &map, b"bytes").unwrap();
    out.end("holes.ibd").unwrap();
    out.seek("sought", 9).unwrap();
    out.payload("sought", 9, b"end").unwrap();
    out.end("sought").unwrap();
    out.finish().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever the old data is, and however streams are cut: the files are those of the backup, and what is equal is
    /// not on the wire.
    #[test]
    fn files_are_those_of_the_backup(
        lens in proptest::collection::vec(0_usize..400_000, 1..4),
        old_lens in proptest::collection::vec(0_usize..400_000, 4),
        changes in proptest::collection::vec((0_usize..4, any::<prop::sample::Index>()), 0..30),
        chunk in 3_000_usize..1_500_000,
        piece in 1_usize..300_000,
        most in 1_usize..40,
        delay in 0_usize..50,
        auto: bool,
    ) {
        let names = ["ibdata1", "shop/a.ibd", "shop/b.ibd", "undo001"];
        let files: Vec<(&str, Vec<u8>)> =
            lens.iter().zip(names).zip(1..).map(|((len, name), seed)| (name, noise(*len, seed))).collect();
        let mut old: Vec<(&str, Vec<u8>)> =
            old_lens.iter().zip(names).zip(1..).map(|((len, name), seed)| (name, noise(*len, seed))).collect();
        for (file, at) in changes {
            let bytes = &mut old[file].1;
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] ^= 0x10;
            }
        }
        let borrowed: Vec<(&str, &[u8])> = old.iter().map(|(name, bytes)| (*name, &bytes[..])).collect();
        let dir = old_dir(&borrowed);
        let stream = stream_of(&files, chunk);
        let wish = if auto { DeltaWish::Auto } else { DeltaWish::Yes };
        let joiner = Joiner { most, delay, ..joiner_with(open(dir.path())) };
        let outcome = transfer(&stream, joiner, wish, piece).unwrap();
        let whole = outcome.whole.unwrap();
        prop_assert_eq!(files_of(&whole), files_of(&stream));
        // Each group costs less than 200 bytes.
        let groups = lens.iter().map(|len| len / (1 << 20).min(chunk) + len / chunk + 2).sum::<usize>();
        let bound = stream.len() - usize::try_from(outcome.equal).unwrap() + 1000 * groups;
        prop_assert!(outcome.thin.len() <= bound, "{} of {}, {bound}", outcome.thin.len(), stream.len());
    }

    #[test]
    fn questions_read_back_and_no_bytes_panic(
        offset in 0_u64..1 << 40, len in 1_usize..1 << 20, name in "[a-z]{1,9}/[a-z]{1,9}\\.ibd",
        bytes in proptest::collection::vec(any::<u8>(), 0..200), at: prop::sample::Index, with: u8,
    ) {
        let group = Group { path: path(&name), offset, len: len.min(Group::room(offset)) };
        let blocks = group.blocks().count();
        prop_assert!((1..=MAX_BLOCKS).contains(&blocks));
        prop_assert_eq!(group.blocks().map(|block| block.len()).sum::<usize>(), group.len);
        let hashes = (0..blocks).map(|n| [u8::try_from(n).unwrap(); 16]).collect();
        let question = Question { group, hashes };
        let mut written = question.write();
        prop_assert_eq!(Question::read(&written), Some(question));
        let at = at.index(written.len());
        written[at] = with;
        let _ = Question::read(&written);
        let _ = Question::read(&bytes);
        written.pop();
        prop_assert_eq!(Question::read(&written), None);
    }

    #[test]
    fn no_stream_panics(
        bytes in proptest::collection::vec(any::<u8>(), 0..300), at: prop::sample::Index, with: u8, piece in 1_usize..5000,
    ) {
        let dir = old_dir(&[("a.ibd", &noise(100_000, 1))]);
        let mut thin = transfer(&stream_of(&[("a.ibd", noise(120_000, 1))], 70_000), joiner_with(open(dir.path())), DeltaWish::Yes, 999).unwrap().thin;
        let at = at.index(thin.len());
        thin[at] = with;
        for stream in [&bytes, &thin] {
            let mut filler = Filler::new(Arc::new(HeldGroups::new(1)));
            let mut taken = stream.chunks(piece).try_for_each(|piece| filler.push(&Bytes::copy_from_slice(piece)));
            if taken.is_ok() {
                taken = filler.finish();
            }
            // Nothing is held.
            prop_assert!(taken.is_err() || stream.is_empty());
        }
    }
}

#[test]
fn equal_data_costs_heads_only() {
    let bytes = noise(3 << 20, 1);
    let dir = old_dir(&[("t.ibd", &bytes)]);
    let stream = stream_of(&[("t.ibd", bytes)], 3 << 20);
    let outcome =
        transfer(&stream, joiner_with(open(dir.path())), DeltaWish::Yes, 1 << 20).unwrap();
    assert_eq!(outcome.equal, 3 << 20);
    assert!(outcome.thin.len() < 1000, "{}", outcome.thin.len());
    assert_eq!(files_of(&outcome.whole.unwrap()), files_of(&stream));
}

#[test]
fn a_stream_that_leaves_out_what_is_not_held_is_refused() {
    let bytes = noise(4 * BLOCK, 1);
    let dir = old_dir(&[("t.ibd", &bytes)]);
    let stream = stream_of(&[("t.ibd", bytes)], 4 * BLOCK);
    let outcome =
        transfer(&stream, joiner_with(open(dir.path())), DeltaWish::Yes, 1 << 20).unwrap();
    let mut filler = Filler::of_whole();
    let refused = filler.push(&Bytes::from(outcome.thin));
    assert!(matches!(refused, Err(FillError::NotHeld { .. })), "{refused:?}");
    // Any other stream passes unchanged, holes and all.
    let mut filler = Filler::of_whole();
    filler.push(&Bytes::copy_from_slice(&stream)).unwrap();
    filler.finish().unwrap();
    let passed: Vec<Bytes> = std::iter::from_fn(|| filler.pop()).collect();
    assert!(passed.concat() == stream);
}

#[test]
fn a_joiner_that_does_not_answer_gets_everything() {
    let (first, second) = (noise(3 << 20, 1), noise(2 << 20, 2));
    let dir = old_dir(&[("a.ibd", &first), ("b.ibd", &second)]);
    let stream = stream_of(&[("a.ibd", first), ("b.ibd", second)], 700_000);
    for answers in [0, 1, 3] {
        let joiner = Joiner { answers, ..joiner_with(open(dir.path())) };
        let outcome = transfer(&stream, joiner, DeltaWish::Yes, 100_000).unwrap();
        assert!(outcome.is_unanswered);
        assert_eq!(outcome.equal > 0, answers > 0);
        assert_eq!(files_of(&outcome.whole.unwrap()), files_of(&stream));
    }
}

/// Two files of which the joiner has nothing and all, and what a transfer with `auto` made of them.
fn nothing_and_all(chunk: usize, damage: Option<usize>) -> io::Result<(Outcome, Vec<u8>)> {
    let (other, equal) = (noise(48 << 20, 1), noise(64 << 20, 2));
    let dir = old_dir(&[("a.ibd", &noise(48 << 20, 3)), ("b.ibd", &equal)]);
    let mut out = ChunkWriter::new(Vec::new());
    for (name, bytes) in [("a.ibd", &other), ("b.ibd", &equal)] {
        for (number, piece) in bytes.chunks(chunk).enumerate() {
            out.payload(name, (number * chunk) as u64, piece).unwrap();
        }
        out.end(name).unwrap();
    }
    let mut stream = out.finish().unwrap();
    if let Some(at) = damage {
        stream[at] ^= 1;
    }
    let outcome = transfer(&stream, joiner_with(open(dir.path())), DeltaWish::Auto, 1 << 20)?;
    Ok((outcome, stream))
}

#[test]
fn auto_asks_little_where_nothing_is_equal_and_finds_what_is() {
    let (outcome, stream) = nothing_and_all(10 << 20, None).unwrap();
    assert_eq!(files_of(&outcome.whole.unwrap()), files_of(&stream));
    let (asked, equal) = (outcome.asked >> 20, outcome.equal >> 20);
    println!("asked about {asked} MiB, of which {equal} are equal");
    // A trial, what was asked about meanwhile, and samples.
    assert!(asked - equal <= 40, "{asked} {equal}");
    assert!(equal >= 16, "{equal}");
    assert!(outcome.thin.len() as u64 + outcome.equal < stream.len() as u64 + 100_000);
}

/// The checksum of a part that is sent as it is follows from that of its chunk, and so does damage.
#[test]
fn damage_in_a_chunk_of_which_only_a_part_is_asked_about_is_found() {
    use xb_reader::{ChunkReader, Dialect, Limits};
    let is_whole = |stream: &[u8]| {
        let mut reader = ChunkReader::new(stream, Dialect::Auto, Limits::default());
        loop {
            match reader.next() {
                Ok(Some(_)) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    };
    assert!(is_whole(&nothing_and_all(10 << 20, None).unwrap().0.thin));
    for mib in [0, 33, 47, 52, 80] {
        let damaged = nothing_and_all(10 << 20, Some((mib << 20) + 100_000));
        assert!(damaged.is_err() || !is_whole(&damaged.unwrap().0.thin), "{mib}");
    }
}

/// Counts what was read of a source.
struct Counting<R>(R, Arc<AtomicUsize>);

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.0.read(buffer)?;
        self.1.fetch_add(len, Relaxed);
        Ok(len)
    }
}

impl<R: Read> Source for Counting<R> {
    fn is_ready(&mut self) -> bool {
        true
    }
}

/// A program that writes this and hangs: reading on would wait.
struct Silent<'a>(Pieces<'a>);

impl Read for Silent<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.is_ready() {
            true => self.0.read(buffer),
            false => Err(io::Error::other("waits for the program")),
        }
    }
}

impl Source for Silent<'_> {
    fn is_ready(&mut self) -> bool {
        !self.0.rest.is_empty()
    }
}

/// Replies that arrive while the backup program is silent wait for none of its bytes.
#[test]
fn a_silent_backup_holds_up_no_chunk() {
    let bytes = noise(40 * BLOCK, 1);
    let dir = old_dir(&[("t.ibd", &noise(40 * BLOCK, 2))]);
    let mut out = ChunkWriter::new(Vec::new());
    for (number, chunk) in bytes.chunks(10 * BLOCK).enumerate() {
        out.payload("t.ibd", (number * 10 * BLOCK) as u64, chunk).unwrap();
    }
    let stream = out.finish().unwrap();
    let source = Silent(Pieces { rest: &stream, piece: 1 << 20 });
    // There is no reply before the donor waits for it.
    let joiner = Joiner { delay: usize::MAX, ..joiner_with(open(dir.path())) };
    let choice = Choice::new(DeltaWish::Yes);
    let mut thinner = Thinner::new(source, joiner, KEY, choice, &Observer::default());
    let (mut sent, mut buffer) = (0, vec![0; 1 << 20]);
    while sent < stream.len() {
        match thinner.read(&mut buffer) {
            Ok(len) => sent += len,
            Err(error) => assert!(PassOn::is(&error), "after {sent} bytes: {error}"),
        }
    }
    assert_eq!(sent, stream.len(), "the joiner has nothing of it");
}

/// What is sent without a question waits, too, behind a group without a reply.
#[test]
fn a_donor_that_waits_for_a_reply_reads_a_bounded_part_of_the_backup() {
    let bytes = noise(BLOCK, 1);
    let dir = old_dir(&[("t.ibd", &bytes)]);
    let mut out = ChunkWriter::new(Vec::new());
    out.payload("t.ibd", 0, &bytes).unwrap();
    let redo = vec![0; 10 << 20];
    for number in 0..10 {
        out.payload("ib_logfile0", number * (10 << 20), &redo).unwrap();
    }
    let stream = out.finish().unwrap();
    let taken = Arc::new(AtomicUsize::new(0));
    let source = Counting(Pieces { rest: &stream, piece: 1 << 20 }, Arc::clone(&taken));
    // There is no reply before the donor waits for it.
    let joiner = Joiner { delay: usize::MAX, ..joiner_with(open(dir.path())) };
    let choice = Choice::new(DeltaWish::Yes);
    let mut thinner = Thinner::new(source, joiner, KEY, choice, &Observer::default());
    let waits = thinner.read(&mut [0; 100]).unwrap_err();
    assert!(PassOn::is(&waits), "{waits}");
    let taken = taken.load(Relaxed);
    assert!(taken <= 65 << 20, "{taken} of {}", stream.len());
}

#[test]
fn a_reply_that_promises_more_or_less_than_is_held_ends_the_transfer() {
    let bytes = noise(4 * BLOCK, 1);
    let mut other = bytes.clone();
    other[0] ^= 1;
    let dir = old_dir(&[("t.ibd", &other)]);
    let stream = stream_of(&[("t.ibd", bytes)], 4 * BLOCK);
    // The first block is not held and counts as held; the second the other way round; all of them.
    for lie in [1, 2, 15] {
        let joiner = Joiner { lie: Some(lie), ..joiner_with(open(dir.path())) };
        let outcome = transfer(&stream, joiner, DeltaWish::Yes, 1 << 20).unwrap();
        assert!(matches!(outcome.whole, Err(FillError::NotHeld { .. })), "{lie}");
    }
    // A donor that sends all of it, although the joiner holds a part, costs bytes.
    let joiner = Joiner { lie: Some(14), ..joiner_with(open(dir.path())) };
    let outcome = transfer(&stream, joiner, DeltaWish::Yes, 1 << 20).unwrap();
    assert_eq!(files_of(&outcome.whole.unwrap()), files_of(&stream));
    // A block that the group does not have.
    let joiner = Joiner { lie: Some(16), ..joiner_with(open(dir.path())) };
    assert!(transfer(&stream, joiner, DeltaWish::Yes, 1 << 20).is_err());
}

#[test]
fn a_damaged_chunk_of_the_backup_ends_the_transfer_on_the_donor() {
    let bytes = noise(4 * BLOCK, 1);
    let dir = old_dir(&[("t.ibd", &bytes)]);
    let mut stream = stream_of(&[("t.ibd", bytes)], 4 * BLOCK);
    stream[BLOCK] ^= 1;
    let Err(error) = transfer(&stream, joiner_with(open(dir.path())), DeltaWish::Yes, 1 << 20)
    else {
        panic!("a damaged chunk has left")
    };
    assert!(error.to_string().contains("t.ibd"), "{error}");
}

#[test]
fn old_files_are_read_below_their_directories_and_through_no_link() {
    let bytes = noise(BLOCK, 1);
    let dir = old_dir(&[("real.ibd", &bytes), ("shop/t.ibd", &bytes)]);
    let (elsewhere, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(elsewhere.path().join("undo001"), &bytes).unwrap();
    std::fs::write(outside.path().join("t.ibd"), &bytes).unwrap();
    std::fs::write(dir.path().join("server-key.pem"), &bytes).unwrap();
    std::os::unix::fs::symlink("real.ibd", dir.path().join("link.ibd")).unwrap();
    std::os::unix::fs::symlink(outside.path(), dir.path().join("out")).unwrap();
    let place = KindDir { kind: Kind::Undo, dir: elsewhere.path().to_owned() };
    let layout = Layout { outside: vec![place], ..Layout::of(dir.path()).unwrap() };
    let mut old = OldFiles::open(&layout, &ErrorLog::new(|_, _| {})).unwrap();
    for (name, is_read) in [
        ("real.ibd", true),
        ("shop/t.ibd", true),
        ("undo001", true),
        ("link.ibd", false),
        ("out/t.ibd", false),
        ("shop", false),
        ("server-key.pem", false),
        ("none.ibd", false),
    ] {
        let group = Group { path: path(name), offset: 0, len: BLOCK };
        let found = old.look(&Question::about(group, &bytes, &KEY), &KEY);
        assert_eq!(found.have == HeldBlocks(1), is_read, "{name}");
    }
    // A block that is short could be guessed.
    let group = Group { path: path("real.ibd"), offset: 0, len: BLOCK - 1 };
    let short = Question::about(group, &bytes[..BLOCK - 1], &KEY);
    assert_eq!(old.look(&short, &KEY).have, HeldBlocks(0));
    // Nothing is equal at another place, or under another key.
    let group = Group { path: path("real.ibd"), offset: 1, len: BLOCK };
    assert_eq!(old.look(&Question::about(group, &bytes, &KEY), &KEY).have, HeldBlocks(0));
    let group = Group { path: path("real.ibd"), offset: 0, len: BLOCK };
    assert_eq!(old.look(&Question::about(group, &bytes, &[8; 32]), &KEY).have, HeldBlocks(0));
    let empty = tempfile::tempdir().unwrap();
    let layout = Layout::of(empty.path()).unwrap();
    assert!(OldFiles::open(&layout, &ErrorLog::new(|_, _| {})).is_none());
}

#[test]
fn held_blocks_are_bounded() {
    let held = Arc::new(HeldGroups::new(2 * BLOCK));
    let group = || super::held::HeldGroup {
        group: Group { path: path("t.ibd"), offset: 0, len: BLOCK },
        have: HeldBlocks(1),
        data: vec![0; BLOCK],
    };
    // One group has room, however large.
    assert!(held.await_room(100 * BLOCK));
    held.push(group());
    held.push(group());
    let waiting = std::thread::spawn({
        let held = Arc::clone(&held);
        move || held.await_room(BLOCK)
    });
    assert!(held.pop().is_some());
    assert!(waiting.join().unwrap());
    held.push(group());
    let waiting = std::thread::spawn({
        let held = Arc::clone(&held);
        move || held.await_room(BLOCK)
    });
    held.close();
    assert!(held.pop().is_none());
    assert!(!waiting.join().unwrap());
}

/// The hash is computed over the bytes that are copied.
#[test]
fn old_data_that_changes_while_it_is_read_costs_bytes_only() {
    use std::os::unix::fs::FileExt as _;
    let bytes = noise(4 << 20, 1);
    let dir = old_dir(&[("t.ibd", &bytes)]);
    let stream = stream_of(&[("t.ibd", bytes.clone())], 3 << 20);
    let file = std::fs::File::options().write(true).open(dir.path().join("t.ibd")).unwrap();
    let is_over = AtomicUsize::new(0);
    let other = noise(BLOCK, 2);
    std::thread::scope(|scope| {
        let changing = scope.spawn(|| {
            // Blocks become others and themselves again, and the file becomes shorter and longer.
            for number in 0.. {
                let at = number * 7919 % (bytes.len() / BLOCK) * BLOCK;
                file.write_all_at(&other[..1 + number % BLOCK], at as u64).unwrap();
                file.set_len((at + 100) as u64).unwrap();
                file.write_all_at(&bytes, 0).unwrap();
                if is_over.load(Relaxed) > 0 {
                    break;
                }
            }
        });
        let mut equal = 0;
        for _ in 0..20 {
            let joiner = joiner_with(open(dir.path()));
            let outcome = transfer(&stream, joiner, DeltaWish::Yes, 1 << 20).unwrap();
            equal += outcome.equal;
            assert_eq!(files_of(&outcome.whole.unwrap()), files_of(&stream));
        }
        is_over.store(1, Relaxed);
        changing.join().unwrap();
        assert!(equal > 0);
    });
}

/// The backup program writes into a pipe, which has each byte once.
#[test]
fn what_the_joiner_lacks_is_sent_as_it_was_read() {
    let bytes = noise(4 << 20, 1);
    let stream = stream_of(&[("t.ibd", bytes)], 3 << 20);
    let dir = old_dir(&[("t.ibd", &noise(4 << 20, 2))]);
    // Answers come as late as they may, when the source has gone on.
    let joiner = Joiner { delay: usize::MAX, ..joiner_with(open(dir.path())) };
    let outcome = transfer(&stream, joiner, DeltaWish::Yes, 1 << 20).unwrap();
    assert_eq!((outcome.asked, outcome.equal), (4 << 20, 0));
    assert_eq!(files_of(&outcome.whole.unwrap()), files_of(&stream));
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes that were made from docs/spec/delta.md.
#[test]
fn questions_have_the_bytes_of_the_specification() {
    let group = Group { path: path("shop/t.ibd"), offset: 32768, len: 20_000 };
    let question = Question::about(group, &[5; 20_000], &KEY);
    let head = "0080000000000000204e00000a0073686f702f742e696264";
    let hashes =
        format!("{}{}", hex(&hash(&KEY, &[5; BLOCK])), hex(&hash(&KEY, &[5; 20_000 - BLOCK])));
    assert_eq!(hex(&question.write()), format!("{head}{hashes}"));
    // From the test vectors of BLAKE3.
    let key = b"whats the Elvish word for friend";
    assert_eq!(hex(&hash(key, b"")), "92b2b75604ed3c761f9d6f62392c8a92");
}
