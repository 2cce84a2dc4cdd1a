//! A recorded clone between two stock servers, and a recipient to which it is played.

use std::time::Duration;

use xb_mysql::clone::{CloneError, CloneEvent, CloneFile, Ddl, Recipient, RedoFile, Stage};
pub(crate) use xb_testkit::donor::Content;
use xb_testkit::vectors;

/// A message of the donor; data was recorded without its bytes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Message {
    pub(crate) is_auxiliary: bool,
    pub(crate) content: Content,
}

/// The result of a clone.
#[derive(Debug, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) files: Vec<CloneFile>,
    pub(crate) redo: Vec<RedoFile>,
    pub(crate) blocks: Vec<(Stage, u32, u64, usize)>,
    pub(crate) sent: Vec<Vec<u8>>,
}

/// The messages of the donor, and those of the recipient.
pub(crate) fn recorded() -> (Vec<Message>, Vec<Vec<u8>>) {
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
pub(crate) fn data(len: usize, before: &Message, spaces: &[u32]) -> Content {
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

pub(crate) fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(*bytes[at..].first_chunk().unwrap())
}

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    text.as_bytes()
        .chunks(2)
        .map(|digits| u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap())
        .collect()
}

/// A recipient, and what came of its clone so far.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Run {
    pub(crate) recipient: Recipient,
    pub(crate) blocks: Vec<(Stage, u32, u64, usize)>,
    pub(crate) sent: Vec<Vec<u8>>,
}

impl Run {
    pub(crate) fn new() -> Self {
        let (recipient, init) = Recipient::new(Ddl::Waits(Duration::from_secs(300)));
        Self { recipient, blocks: Vec::new(), sent: vec![init] }
    }

    /// An error if the clone is not whole.
    pub(crate) fn end(self) -> Result<Outcome, CloneError> {
        let Self { recipient, blocks, sent } = self;
        if !recipient.is_whole() {
            return Err(CloneError::Broken { what: "the connection ended".to_owned() });
        }
        let (files, redo) = (recipient.files().to_vec(), recipient.redo().to_vec());
        Ok(Outcome { files, redo, blocks, sent })
    }
}

/// The result of a recipient that gets these messages of a donor; an error if the clone is not whole at their end.
pub(crate) fn run(messages: &[Message]) -> Result<Outcome, CloneError> {
    let mut run = Run::new();
    feed(&mut run, messages)?;
    run.end()
}

pub(crate) fn feed(run: &mut Run, messages: &[Message]) -> Result<(), CloneError> {
    thread_local! { static DATA: Vec<u8> = vec![3; (2 << 20) + 1]; }
    let Run { recipient, blocks, sent } = run;
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
                | CloneEvent::File(_)
                | CloneEvent::Redo(_)
                | CloneEvent::Left => {}
            }
        }
        Ok(())
    })
}

/// The descriptor's kind and its bytes.
pub(crate) fn descriptor(message: &Message) -> Option<(u8, &[u8])> {
    match &message.content {
        Content::Bytes(bytes) if bytes.first() == Some(&2) => Some((bytes[14], &bytes[3..])),
        _ => None,
    }
}

/// A message with each of its bytes altered, in each bit and in all of them: the place, and the message. Of data, only
/// the kind; of a page, as far as it says where it belongs.
pub(crate) fn altered(message: &Message) -> impl Iterator<Item = (usize, Message)> {
    let (bytes, len) = match &message.content {
        Content::Bytes(bytes) => (bytes.clone(), bytes.len()),
        Content::Data(len) => (vec![3; len + 1], 1),
        Content::Page { len, number, space } => {
            let mut bytes = vec![3; len + 1];
            bytes[5..9].copy_from_slice(&number.to_be_bytes());
            bytes[35..39].copy_from_slice(&space.to_be_bytes());
            (bytes, 39)
        }
    };
    let is_auxiliary = message.is_auxiliary;
    (0..len).flat_map(move |at| {
        let bytes = bytes.clone();
        [1, 2, 4, 8, 16, 32, 64, 128, 255].into_iter().map(move |flip: u8| {
            let mut bytes = bytes.clone();
            bytes[at] ^= flip;
            (at, Message { is_auxiliary, content: Content::Bytes(bytes) })
        })
    })
}

/// Descriptors of blocks of a stage.
pub(crate) fn blocks_of(messages: &[Message], stage: u32) -> Vec<usize> {
    let is_it = |at: &usize| {
        descriptor(&messages[*at])
            .is_some_and(|(kind, head)| kind == 5 && number(head, 12) == stage)
    };
    (0..messages.len()).filter(is_it).collect()
}
