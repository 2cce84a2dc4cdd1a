//! Takes out of the backup program's stream what the joiner has.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use xb_pipeline::{Observer, PassOn, REDO_LOGS};
use xb_reader::{
    ChunkHead, ChunkKind, CrcCombiner, DecodeError, Decoder, Dialect, Event, Limits, PayloadCheck,
    PieceCheck, RelPath,
};
use xb_wire::{Questions, ReplyWait};

use super::choice::{Arrived, Asks, Choice};
use super::cut;
use super::group::{BLOCK, Group, HeldBlocks};
use super::question::{Key, Question};
use super::read_ahead::Source;

/// Bytes that are read at once where chunks begin.
const READ: usize = 256 << 10;
/// Least length of a chunk about which the donor asks: a question and its chunk's new heads cost more than fewer bytes.
/// One read has at most 64 such chunks.
const LEAST: u64 = 4 << 10;
/// Bytes of a sample.
const SAMPLE: u64 = 256 << 10;
/// Maximum number of questions that wait for a reply. One read may exceed it, and the number of bytes of [`Choice::ahead`];
/// the wire allows 256 questions.
const WAITING: usize = 128;
/// Bytes that the joiner holds, at most, for chunks that may still be on their way through the pipeline: half of what it can
/// hold, so that it can go on reading its old data.
const UNSENT: usize = 32 << 20;
/// Number and sizes of buffers that are kept for later bytes: the first use of memory is slow.
const SPARE: usize = 8;
const SPARE_SIZES: RangeInclusive<usize> = READ..=2 << 20;

/// Time for which the backup program may pause, in which replies are awaited, too, before what was returned is passed on: a
/// pause is short where the program only waits for a disk, and blocks that are passed on early are small.
const PAUSE: Duration = Duration::from_millis(100);

/// The joiner's layer above, as the donor reaches it.
pub(crate) trait QuestionChannel {
    /// Asks; returns false if too many questions are open.
    fn ask(&mut self, question: &[u8]) -> io::Result<bool>;
    /// Takes the reply to the oldest question, if it is here.
    fn reply(&mut self) -> io::Result<Option<Vec<u8>>>;
    /// Waits for that reply, or until the source has more; [`ReplyWait::Nothing`] if the joiner does nothing for so long, or,
    /// without a limit, if it does not answer.
    fn await_reply(&mut self, limit: Option<Duration>) -> io::Result<ReplyWait>;
    /// Bytes that the joiner has acknowledged.
    fn acknowledged(&self) -> u64;
}

/// The joiner at the other end of the wire.
#[derive(Debug)]
pub(crate) struct WireJoiner {
    pub(crate) questions: Questions,
    /// Time to wait for a joiner that does nothing at all.
    pub(crate) patience: Duration,
}

impl QuestionChannel for WireJoiner {
    fn ask(&mut self, question: &[u8]) -> io::Result<bool> {
        self.questions.ask(question).map_err(io::Error::other)
    }

    fn reply(&mut self) -> io::Result<Option<Vec<u8>>> {
        self.questions.reply().map_err(io::Error::other)
    }

    fn await_reply(&mut self, limit: Option<Duration>) -> io::Result<ReplyWait> {
        self.questions.await_reply(limit.unwrap_or(self.patience)).map_err(io::Error::other)
    }

    fn acknowledged(&self) -> u64 {
        self.questions.acknowledged()
    }
}

/// Counts what was asked about and what the joiner had, in bytes.
#[derive(Debug, Default)]
pub(crate) struct DeltaCounters {
    asked: AtomicU64,
    equal: AtomicU64,
    is_unanswered: AtomicBool,
}

impl DeltaCounters {
    /// Returns whether the joiner did not answer any more.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.is_unanswered.load(Relaxed)
    }

    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Relaxed)
    }

    pub(crate) fn equal(&self) -> u64 {
        self.equal.load(Relaxed)
    }
}

/// The stream without what the joiner has: an xbstream again, whose chunks are shorter and more.
#[derive(Debug)]
pub(crate) struct Thinner<R, A> {
    source: R,
    ask: A,
    key: Key,
    choice: Choice,
    observer: Observer,
    saved: Arc<DeltaCounters>,
    decoder: Decoder,
    buffer: Vec<u8>,
    /// Bytes taken since the last event: the next chunk's head.
    head: Vec<u8>,
    /// The current chunk, if the donor asks about it.
    chunk: Option<OpenChunk>,
    /// Payload that is left of a chunk that stays as it is.
    passing: u64,
    queue: VecDeque<Item>,
    /// Bytes in the queue, and number of groups in it.
    waiting: (usize, usize),
    /// Buffers to return, and how many bytes of the first were returned.
    out: VecDeque<Vec<u8>>,
    at: usize,
    spare: Vec<Vec<u8>>,
    has_passed_on: bool,
    /// Bytes that the joiner holds for what was returned since the last [`PassOn`].
    unsent: usize,
    has_ended: bool,
}

/// A chunk about which the donor asks.
#[derive(Debug)]
struct OpenChunk {
    head: ChunkHead,
    /// CRC-32 of the payload, as stored.
    crc: u32,
    /// Checksum of the groups before this one.
    sum: PieceCheck,
    /// Offset in the file of the group that is being collected.
    offset: u64,
    /// Payload from there on.
    left: u64,
    is_sample: bool,
    /// The group, as long as it will be, and how much of it there is.
    data: Vec<u8>,
    filled: usize,
}

/// A part of the stream, in order.
#[derive(Debug)]
enum Item {
    Plain(Vec<u8>),
    /// There is a question about it. With the CRC-32 of the bytes.
    Group(Group, Vec<u8>, u32),
}

impl<R: Source, A: QuestionChannel> Thinner<R, A> {
    pub(crate) fn new(source: R, ask: A, key: Key, choice: Choice, observer: &Observer) -> Self {
        Self {
            source,
            ask,
            key,
            choice,
            observer: observer.clone(),
            saved: Arc::default(),
            decoder: Decoder::new(Dialect::Auto, Limits::default()),
            buffer: vec![0; READ],
            head: Vec::new(),
            chunk: None,
            passing: 0,
            queue: VecDeque::new(),
            waiting: (0, 0),
            out: VecDeque::new(),
            at: 0,
            spare: Vec::new(),
            has_passed_on: false,
            unsent: 0,
            has_ended: false,
        }
    }

    /// Counters, which remain usable.
    pub(crate) fn saved(&self) -> Arc<DeltaCounters> {
        Arc::clone(&self.saved)
    }

    /// Reads more of the source.
    fn pull(&mut self) -> io::Result<()> {
        if let Some(chunk) = self.chunk.take() {
            return self.collect(chunk);
        }
        let len = read_some(&mut self.source, &mut self.buffer)?;
        let buffer = std::mem::take(&mut self.buffer);
        let taken = match buffer.get(..len) {
            Some(bytes) if len > 0 => self.take(bytes),
            _ => self.take_end(),
        };
        self.buffer = buffer;
        taken
    }

    /// Reads more of a group straight into its buffer.
    fn collect(&mut self, mut chunk: OpenChunk) -> io::Result<()> {
        let len = self.read_payload(chunk.room())?;
        self.collected(chunk, len)?;
        if len == 0 { self.take_end() } else { Ok(()) }
    }

    /// Reads payload that stays as it is straight to where it goes. Nothing is before it.
    fn pass(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.passing).unwrap_or(usize::MAX).min(buffer.len());
        let len = self.read_payload(buffer.get_mut(..most).unwrap_or_default())?;
        self.passing -= len as u64;
        if len == 0 {
            self.take_end()?;
        }
        Ok(len)
    }

    /// Reads payload, no more than is left of the chunk.
    fn read_payload(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let len = read_some(&mut self.source, room)?;
        let mut input: &[u8] = room.get(..len).unwrap_or_default();
        while self.decoder.next(&mut input).map_err(invalid)?.is_some() {}
        Ok(len)
    }

    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut input = bytes;
        loop {
            let before = input;
            let event = self.decoder.next(&mut input).map_err(invalid)?;
            let taken = before.get(..before.len() - input.len()).unwrap_or_default();
            match event {
                Some(Event::Head(head)) => {
                    self.head.extend_from_slice(taken);
                    self.begin(head)?;
                }
                Some(Event::Data(piece)) => self.piece(piece)?,
                Some(Event::ChunkEnd) => {}
                None => {
                    self.head.extend_from_slice(taken);
                    return Ok(());
                }
            }
        }
    }

    fn take_end(&mut self) -> io::Result<()> {
        while let Some(event) = self.decoder.finish().map_err(invalid)? {
            if let Event::Head(head) = event {
                self.begin(head)?;
            }
        }
        self.has_ended = true;
        Ok(())
    }

    fn begin(&mut self, head: ChunkHead) -> io::Result<()> {
        // Bytes after the head were read to find its end.
        let len = usize::try_from(head.head_len).unwrap_or(usize::MAX).min(self.head.len());
        if cut::is_cut(&head) {
            let what = format!("{}: a chunk has a flag that no backup program sets", head.path);
            return Err(io::Error::new(ErrorKind::InvalidData, what));
        }
        let asks = match head.kind {
            ChunkKind::Payload { offset, len, crc }
                if len >= LEAST && head.flags == 0 && may_be_equal(&head.path) =>
            {
                let asks = self.choice.asks(len);
                (asks != Asks::Nothing).then_some((asks == Asks::Sample, offset, len, crc))
            }
            _ => None,
        };
        match asks {
            Some((is_sample, offset, left, crc)) => {
                self.head.drain(..len);
                let sum = PieceCheck::of(&[]);
                let (data, filled) = (Vec::new(), 0);
                let chunk = OpenChunk { head, crc, sum, offset, left, is_sample, data, filled };
                self.begin_group(chunk);
            }
            None => {
                let raw: Vec<u8> = self.head.drain(..len).collect();
                self.plain(&raw);
                self.passing = head.payload_len();
            }
        }
        Ok(())
    }

    fn piece(&mut self, mut piece: &[u8]) -> io::Result<()> {
        while !piece.is_empty() {
            let Some(mut chunk) = self.chunk.take() else {
                self.passing = self.passing.saturating_sub(piece.len() as u64);
                self.plain(piece);
                return Ok(());
            };
            let room = chunk.room();
            let (now, later) = piece.split_at(room.len().min(piece.len()));
            if let Some(room) = room.get_mut(..now.len()) {
                room.copy_from_slice(now);
            }
            piece = later;
            self.collected(chunk, now.len())?;
        }
        Ok(())
    }

    /// Makes room for the next group of a chunk that has more payload.
    fn begin_group(&mut self, mut chunk: OpenChunk) {
        let room = match chunk.is_sample {
            true => SAMPLE - chunk.offset % BLOCK,
            false => Group::room(chunk.offset) as u64,
        };
        // At most 1 MiB.
        let len = usize::try_from(room.min(chunk.left)).unwrap_or(0);
        chunk.data = self.spare.pop().unwrap_or_default();
        chunk.data.resize(len, 0);
        chunk.filled = 0;
        self.chunk = Some(chunk);
    }

    /// Notes `len` more bytes of the group. Asks about it once it is complete.
    fn collected(&mut self, mut chunk: OpenChunk, len: usize) -> io::Result<()> {
        chunk.filled += len;
        if chunk.filled < chunk.data.len() {
            self.chunk = Some(chunk);
            return Ok(());
        }
        let data = std::mem::take(&mut chunk.data);
        let (path, offset, len) = (chunk.head.path.clone(), chunk.offset, data.len());
        chunk.offset = offset.saturating_add(len as u64);
        chunk.left -= len as u64;
        let of_group = PieceCheck::of(&data);
        chunk.sum.append(&of_group);
        self.group(Group { path, offset, len }, data, of_group.crc32())?;
        if chunk.left == 0 {
            // The checksums of the chunks that leave are new ones.
            let mut check = PayloadCheck::new(&chunk.head);
            check.append(&chunk.sum);
            return check.finish(&chunk.head).map_err(invalid);
        }
        if !chunk.is_sample && !self.choice.gives_up() {
            self.begin_group(chunk);
            return Ok(());
        }
        // The rest is a chunk that stays as it is. Its checksum follows from that of the whole one.
        let of_groups = chunk.sum.crc32().into();
        let crc = CrcCombiner::CRC32.combine(of_groups, chunk.crc.into(), chunk.left);
        let crc = u32::try_from(crc).unwrap_or(u32::MAX);
        self.plain(&cut::head(&chunk.head.path, chunk.offset, chunk.left, crc)?);
        self.passing = chunk.left;
        Ok(())
    }

    /// Asks about a group.
    fn group(&mut self, group: Group, data: Vec<u8>, crc: u32) -> io::Result<()> {
        let question = Question::about(group, &data, &self.key);
        if !self.saved.is_unanswered() && self.ask.ask(&question.write())? {
            self.choice.asked(data.len() as u64);
            self.waiting = (self.waiting.0 + data.len(), self.waiting.1 + 1);
            self.queue.push_back(Item::Group(question.group, data, crc));
        } else {
            self.plain(&cut::whole_head(&question.group, crc)?);
            self.plain(&data);
        }
        Ok(())
    }

    fn plain(&mut self, bytes: &[u8]) {
        self.waiting.0 += bytes.len();
        match self.queue.back_mut() {
            Some(Item::Plain(last)) if last.len() < READ => last.extend_from_slice(bytes),
            _ => {
                let mut buffer = self.spare.pop().unwrap_or_default();
                buffer.clear();
                buffer.extend_from_slice(bytes);
                self.queue.push_back(Item::Plain(buffer));
            }
        }
    }

    /// Returns the oldest group, without what the joiner has.
    fn answered(&mut self, reply: &[u8]) -> io::Result<()> {
        let Some(Item::Group(group, data, crc)) = self.queue.pop_front() else {
            return Err(io::Error::other("a reply to no question"));
        };
        self.waiting = (self.waiting.0 - data.len(), self.waiting.1 - 1);
        let Some(have) = HeldBlocks::read(reply, &group) else {
            let what = format!("{}: the joiner's reply about its blocks is damaged", group.path);
            return Err(io::Error::new(ErrorKind::InvalidData, what));
        };
        let (len, equal) = (data.len() as u64, have.bytes(&group) as u64);
        let ask = &self.ask;
        let arrived = || Arrived { bytes: ask.acknowledged(), at: Instant::now() };
        self.choice.learn(len, equal, arrived);
        self.saved.asked.fetch_add(len, Relaxed);
        self.saved.equal.fetch_add(equal, Relaxed);
        // They count as transferred.
        self.observer.add_bytes(equal);
        if equal == 0 {
            self.out.extend([cut::whole_head(&group, crc)?, data]);
        } else {
            self.unsent += data.len();
            self.out.push_back(cut::write(&group, have, &data)?);
            self.keep(data);
        }
        Ok(())
    }

    /// Keeps a buffer for later bytes.
    fn keep(&mut self, buffer: Vec<u8>) {
        if SPARE_SIZES.contains(&buffer.capacity()) && self.spare.len() < SPARE {
            self.spare.push(buffer);
        }
    }

    /// Stops asking, because the joiner does not answer: everything that waits stays as it is.
    fn stop_asking(&mut self) -> io::Result<()> {
        self.choice.stop();
        self.saved.is_unanswered.store(true, Relaxed);
        for item in std::mem::take(&mut self.queue) {
            match item {
                Item::Plain(bytes) => self.out.push_back(bytes),
                Item::Group(group, data, crc) => {
                    self.out.extend([cut::whole_head(&group, crc)?, data])
                }
            }
        }
        self.waiting = (0, 0);
        Ok(())
    }

    /// Returns the error by which what was returned is passed on at once.
    fn pass_on(&mut self) -> io::Error {
        self.unsent = 0;
        self.has_passed_on = true;
        PassOn.into()
    }

    /// Takes bytes that are to be returned; `None` if there are none.
    fn take_out(&mut self, buffer: &mut [u8]) -> Option<usize> {
        loop {
            let rest = self.out.front()?.get(self.at..).unwrap_or_default();
            let (now, later) = rest.split_at(rest.len().min(buffer.len()));
            if let Some(room) = buffer.get_mut(..now.len()) {
                room.copy_from_slice(now);
            }
            let (len, is_all) = (now.len(), later.is_empty());
            self.at += len;
            if is_all {
                self.at = 0;
                let done = self.out.pop_front().unwrap_or_default();
                self.keep(done);
            }
            if len > 0 {
                return Some(len);
            }
        }
    }
}

impl OpenChunk {
    /// The part of the group that is missing.
    fn room(&mut self) -> &mut [u8] {
        self.data.get_mut(self.filled..).unwrap_or_default()
    }
}

impl<R: Source, A: QuestionChannel> Read for Thinner<R, A> {
    /// Returns the error [`PassOn`] before it waits for long: the joiner may need what was returned to have room for a
    /// question.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if let Some(len) = self.take_out(buffer) {
                self.has_passed_on = false;
                return Ok(len);
            }
            if self.unsent >= UNSENT {
                return Err(self.pass_on());
            }
            match self.queue.front_mut() {
                Some(Item::Plain(bytes)) => {
                    self.waiting.0 -= bytes.len();
                    self.out.push_back(std::mem::take(bytes));
                    self.queue.pop_front();
                }
                Some(Item::Group(..)) => {
                    let has_room = self.waiting.0 < self.choice.ahead() && self.waiting.1 < WAITING;
                    let takes_more = has_room && !self.has_ended;
                    if let Some(reply) = self.ask.reply()? {
                        self.answered(&reply)?;
                        continue;
                    }
                    if takes_more && self.source.is_ready() {
                        self.pull()?;
                        continue;
                    }
                    let may_pause = takes_more && !self.has_passed_on;
                    if !may_pause && !self.has_passed_on {
                        return Err(self.pass_on());
                    }
                    match self.ask.await_reply(may_pause.then_some(PAUSE))? {
                        ReplyWait::Reply(reply) => self.answered(&reply)?,
                        ReplyWait::Woken => {}
                        ReplyWait::Nothing if may_pause => return Err(self.pass_on()),
                        ReplyWait::Nothing => self.stop_asking()?,
                    }
                }
                None if self.has_ended => return Ok(0),
                None if self.passing > 0 => {
                    let len = self.pass(buffer)?;
                    if len > 0 {
                        self.has_passed_on = false;
                        return Ok(len);
                    }
                }
                None => self.pull()?,
            }
        }
    }
}

/// Reads what there is.
fn read_some(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match source.read(buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// The redo log of a backup is always new.
fn may_be_equal(path: &RelPath) -> bool {
    !REDO_LOGS.iter().any(|name| name.as_bytes() == path.as_bytes())
}

fn invalid(error: DecodeError) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}
