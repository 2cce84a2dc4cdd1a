//! Takes out of the backup program's stream what the joiner has.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use xb_pipeline::{Observer, PassOn, REDO_LOGS};
use xb_reader::{
    ChunkHead, ChunkKind, DecodeError, Decoder, Dialect, Event, Limits, PayloadCheck, RelPath,
};
use xb_wire::Questions;

use super::choice::{BACKLOG, Choice};
use super::cut;
use super::group::{Group, Have};
use super::question::{Key, Question};

/// Bytes that are read at once.
const READ: usize = 256 << 10;
/// Least length of a chunk about which the donor asks: a question and its chunk's new heads cost more than fewer bytes.
/// One read has at most 64 such chunks.
const LEAST: u64 = 4 << 10;
/// Maximum number of bytes that wait for a reply, their own or that of a group before them, and of questions. One read may
/// exceed them; the wire allows 256 questions.
const WAITING: (usize, usize) = (64 << 20, 128);
/// Bytes that the joiner holds, at most, for chunks that may still be on their way through the pipeline: half of what it can
/// hold, so that it can go on reading its old data.
const UNSENT: usize = 32 << 20;

/// The joiner's layer above, as the donor reaches it.
pub(crate) trait Ask {
    /// Asks; returns false if too many questions are open.
    fn ask(&mut self, question: &[u8]) -> io::Result<bool>;
    /// Takes the reply to the oldest question, or waits for it.
    fn reply(&mut self, wait: bool) -> io::Result<Option<Vec<u8>>>;
    /// Whether the network holds the transfer up.
    fn is_network_busy(&self) -> bool;
}

impl Ask for Questions {
    fn ask(&mut self, question: &[u8]) -> io::Result<bool> {
        Self::ask(self, question).map_err(io::Error::other)
    }

    fn reply(&mut self, wait: bool) -> io::Result<Option<Vec<u8>>> {
        let reply = if wait { self.await_reply() } else { Self::reply(self) };
        reply.map_err(io::Error::other)
    }

    fn is_network_busy(&self) -> bool {
        Self::is_network_busy(self, BACKLOG)
    }
}

/// Counts what was asked about and what the joiner had, in bytes.
#[derive(Debug, Default)]
pub(crate) struct Saved {
    asked: AtomicU64,
    equal: AtomicU64,
}

impl Saved {
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
    saved: Arc<Saved>,
    decoder: Decoder,
    buffer: Vec<u8>,
    /// Bytes taken since the last event: the next chunk's head.
    head: Vec<u8>,
    /// The current chunk, if the donor asks about it.
    chunk: Option<Asking>,
    queue: VecDeque<Item>,
    /// Bytes in the queue, and number of groups in it.
    waiting: (usize, usize),
    /// Bytes to return, and how many of them were returned.
    out: (Vec<u8>, usize),
    has_passed_on: bool,
    /// Bytes that the joiner holds for what was returned since the last [`PassOn`].
    unsent: usize,
    has_ended: bool,
}

#[derive(Debug)]
struct Asking {
    head: ChunkHead,
    check: PayloadCheck,
    /// Offset in the file of the group that is being collected.
    offset: u64,
    data: Vec<u8>,
}

/// A part of the stream, in order.
#[derive(Debug)]
enum Item {
    Plain(Vec<u8>),
    /// There is a question about it.
    Group(Group, Vec<u8>),
}

impl<R: Read, A: Ask> Thinner<R, A> {
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
            queue: VecDeque::new(),
            waiting: (0, 0),
            out: (Vec::new(), 0),
            has_passed_on: false,
            unsent: 0,
            has_ended: false,
        }
    }

    /// Counters, which remain usable.
    pub(crate) fn saved(&self) -> Arc<Saved> {
        Arc::clone(&self.saved)
    }

    /// Reads a piece of the source.
    fn pull(&mut self) -> io::Result<()> {
        let len = match self.source.read(&mut self.buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(()),
            read => read?,
        };
        let buffer = std::mem::take(&mut self.buffer);
        let taken = match buffer.get(..len) {
            Some(bytes) if len > 0 => self.take(bytes),
            _ => self.take_end(),
        };
        self.buffer = buffer;
        taken
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
                Some(Event::ChunkEnd) => self.end()?,
                None => {
                    self.head.extend_from_slice(taken);
                    return Ok(());
                }
            }
        }
    }

    fn take_end(&mut self) -> io::Result<()> {
        while let Some(event) = self.decoder.finish().map_err(invalid)? {
            match event {
                Event::Head(head) => self.begin(head)?,
                Event::Data(_) => {}
                Event::ChunkEnd => self.end()?,
            }
        }
        self.has_ended = true;
        Ok(())
    }

    fn begin(&mut self, head: ChunkHead) -> io::Result<()> {
        // What follows the head was looked at to know it.
        let len = usize::try_from(head.head_len).unwrap_or(usize::MAX).min(self.head.len());
        if cut::is_cut(&head) {
            let what = format!("{}: a chunk has a flag that no backup program sets", head.path);
            return Err(io::Error::new(ErrorKind::InvalidData, what));
        }
        let offset = match head.kind {
            ChunkKind::Payload { offset, len, .. }
                if len >= LEAST && head.flags == 0 && may_be_equal(&head.path) =>
            {
                let ask = &self.ask;
                self.choice.asks(len, || ask.is_network_busy()).then_some(offset)
            }
            _ => None,
        };
        match offset {
            Some(offset) => {
                self.head.drain(..len);
                let check = PayloadCheck::new(&head);
                self.chunk = Some(Asking { head, check, offset, data: Vec::new() });
            }
            None => {
                let raw: Vec<u8> = self.head.drain(..len).collect();
                self.plain(&raw);
            }
        }
        Ok(())
    }

    fn piece(&mut self, mut piece: &[u8]) -> io::Result<()> {
        let Some(mut chunk) = self.chunk.take() else {
            self.plain(piece);
            return Ok(());
        };
        chunk.check.update(piece);
        while !piece.is_empty() {
            let room = Group::room(chunk.offset);
            let (now, later) = piece.split_at((room - chunk.data.len()).min(piece.len()));
            if chunk.data.is_empty() {
                chunk.data.reserve_exact(room.min(chunk.left()));
            }
            chunk.data.extend_from_slice(now);
            piece = later;
            if chunk.data.len() == room {
                self.group(&mut chunk)?;
            }
        }
        self.chunk = Some(chunk);
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        if let Some(mut chunk) = self.chunk.take() {
            if !chunk.data.is_empty() {
                self.group(&mut chunk)?;
            }
            // The checksums of the chunks that leave are new ones.
            chunk.check.finish(&chunk.head).map_err(invalid)?;
        }
        Ok(())
    }

    /// Asks about the bytes that are collected.
    fn group(&mut self, chunk: &mut Asking) -> io::Result<()> {
        let data = std::mem::take(&mut chunk.data);
        let group = Group { path: chunk.head.path.clone(), offset: chunk.offset, len: data.len() };
        chunk.offset = chunk.offset.saturating_add(data.len() as u64);
        let question = Question::about(group, &data, &self.key);
        if self.ask.ask(&question.write())? {
            self.waiting = (self.waiting.0 + data.len(), self.waiting.1 + 1);
            self.queue.push_back(Item::Group(question.group, data));
        } else {
            let mut whole = Vec::new();
            cut::write(&mut whole, &question.group, Have::default(), &data)?;
            self.plain(&whole);
        }
        Ok(())
    }

    fn plain(&mut self, bytes: &[u8]) {
        self.waiting.0 += bytes.len();
        match self.queue.back_mut() {
            Some(Item::Plain(last)) => last.extend_from_slice(bytes),
            _ => self.queue.push_back(Item::Plain(bytes.to_vec())),
        }
    }

    /// Writes the oldest group, without what the joiner has.
    fn answered(&mut self, reply: &[u8]) -> io::Result<()> {
        let Some(Item::Group(group, data)) = self.queue.pop_front() else {
            return Err(io::Error::other("a reply to no question"));
        };
        self.waiting = (self.waiting.0 - data.len(), self.waiting.1 - 1);
        let Some(have) = Have::read(reply, &group) else {
            let what = format!("{}: the joiner's reply about its blocks is damaged", group.path);
            return Err(io::Error::new(ErrorKind::InvalidData, what));
        };
        let (len, equal) = (data.len() as u64, have.bytes(&group) as u64);
        self.choice.learn(len, equal);
        self.saved.asked.fetch_add(len, Relaxed);
        self.saved.equal.fetch_add(equal, Relaxed);
        // They count as transferred.
        self.observer.add_bytes(equal);
        if equal > 0 {
            self.unsent += data.len();
        }
        let mut out = std::mem::take(&mut self.out.0);
        out.clear();
        cut::write(&mut out, &group, have, &data)?;
        self.out = (out, 0);
        Ok(())
    }
}

impl Asking {
    /// Bytes of the chunk that were not collected, at most.
    fn left(&self) -> usize {
        match self.head.kind {
            ChunkKind::Payload { offset, len, .. } => {
                usize::try_from((offset + len).saturating_sub(self.offset)).unwrap_or(usize::MAX)
            }
            _ => 0,
        }
    }
}

impl<R: Read, A: Ask> Read for Thinner<R, A> {
    /// Returns the error [`PassOn`] before it waits for a reply: the joiner may need what was returned to have room for the
    /// question.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let (out, at) = &mut self.out;
            let rest = out.get(*at..).unwrap_or_default();
            if !rest.is_empty() || buffer.is_empty() {
                let len = rest.len().min(buffer.len());
                if let (Some(to), Some(from)) = (buffer.get_mut(..len), rest.get(..len)) {
                    to.copy_from_slice(from);
                }
                *at += len;
                self.has_passed_on = false;
                return Ok(len);
            }
            if self.unsent >= UNSENT {
                self.unsent = 0;
                self.has_passed_on = true;
                return Err(PassOn.into());
            }
            match self.queue.front_mut() {
                Some(Item::Plain(bytes)) => {
                    self.waiting.0 -= bytes.len();
                    self.out = (std::mem::take(bytes), 0);
                    self.queue.pop_front();
                }
                Some(Item::Group(..)) => {
                    let has_room = self.waiting.0 < WAITING.0 && self.waiting.1 < WAITING.1;
                    if let Some(reply) = self.ask.reply(false)? {
                        self.answered(&reply)?;
                    } else if has_room && !self.has_ended {
                        self.pull()?;
                    } else if !std::mem::replace(&mut self.has_passed_on, true) {
                        self.unsent = 0;
                        return Err(PassOn.into());
                    } else if let Some(reply) = self.ask.reply(true)? {
                        self.answered(&reply)?;
                    } else {
                        return Err(io::Error::other("a question without a reply"));
                    }
                }
                None if self.has_ended => return Ok(0),
                None => self.pull()?,
            }
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
