//! A donor of clones on a Unix socket: it plays a recorded clone of MySQL 9.7, as it was or as a test changes it.
//!
//! Data was recorded without its bytes; they are made again, and the pages say their number and tablespace.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::servers::scripted::{Rows, Scripted, done, framed, receive};
use crate::vectors;

/// Time for a recipient that waits for what a changed donor does not send: only then does it pass.
const SILENCE_LIMIT: Duration = Duration::from_secs(20);
const EXIT: u8 = 6;
const COMPLETE: u8 = 99;
const DATA: u8 = 3;
const DESCRIPTOR: u8 = 2;

/// Sender of a message, and its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The donor.
    Donor,
    /// The donor, on the auxiliary connection.
    DonorAside,
    /// The recipient.
    Recipient,
    /// The recipient, on the auxiliary connection.
    RecipientAside,
}

/// A message of a clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its sender. A donor waits for any message of the recipient.
    pub from: Side,
    /// Its bytes; those of data are made when it is sent.
    pub content: Content,
}

/// Content of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// These bytes.
    Bytes(Vec<u8>),
    /// Data of this length.
    Data(usize),
    /// Data that is a page.
    Page {
        /// Its length.
        len: usize,
        /// Its number.
        number: u32,
        /// Its tablespace.
        space: u32,
    },
}

impl Content {
    fn bytes(&self) -> Vec<u8> {
        let filled = |len: usize| {
            let mut bytes = vec![DATA];
            let mut blocks = (0..251_u8).cycle();
            while bytes.len() <= len {
                let end = (bytes.len() + 512).min(len + 1);
                bytes.resize(end, blocks.next().unwrap_or_default());
            }
            bytes
        };
        match self {
            Self::Bytes(bytes) => bytes.clone(),
            Self::Data(len) => filled(*len),
            Self::Page { len, number, space } => {
                let mut bytes = filled(*len);
                bytes[5..9].copy_from_slice(&number.to_be_bytes());
                bytes[35..39].copy_from_slice(&space.to_be_bytes());
                bytes
            }
        }
    }
}

impl Message {
    /// Kind and stage of a descriptor, if it is one.
    #[must_use]
    pub fn descriptor(&self) -> Option<(u32, u32)> {
        let Content::Bytes(bytes) = &self.content else { return None };
        let [DESCRIPTOR, _, _, head @ ..] = bytes.as_slice() else { return None };
        // A locator has no stage there, but no donor sends one after the setup.
        Some((number(head, 8), number(head, 12)))
    }
}

/// The recorded clone.
///
/// # Panics
/// If the recording cannot be read.
#[must_use]
pub fn recorded() -> Vec<Message> {
    let text = String::from_utf8(vectors::read("mysql/clone-9.7.messages")).unwrap();
    let (mut all, mut spaces) = (Vec::<Message>::new(), Vec::new());
    for line in text.lines() {
        let (side, message) = line.split_once(' ').unwrap();
        let from = match side {
            "<" => Side::Donor,
            "<<" => Side::DonorAside,
            ">" => Side::Recipient,
            _ => Side::RecipientAside,
        };
        let content = match message.strip_prefix("data ") {
            Some(len) => data(len.parse().unwrap(), all.last().unwrap(), &spaces),
            None => Content::Bytes(base16ct::lower::decode_vec(message).unwrap()),
        };
        let message = Message { from, content };
        if let (Some((4, _)), Content::Bytes(bytes)) = (message.descriptor(), &message.content) {
            spaces.push(number(&bytes[3..], 42));
        }
        all.push(message);
    }
    all
}

/// Data after its descriptor. In the page stage, the file's tablespace is that of the description with its index.
fn data(len: usize, before: &Message, spaces: &[u32]) -> Content {
    let Content::Bytes(bytes) = &before.content else { panic!("data without a descriptor") };
    let head = &bytes[3..];
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

/// The first message of the donor of each kind in each stage, by its position; without those that say nothing that
/// a recipient needs.
///
/// # Panics
/// If a message is empty.
#[must_use]
pub fn kinds(messages: &[Message]) -> Vec<usize> {
    let mut seen = Vec::new();
    let is_first = |at: &usize| {
        let message = &messages[*at];
        let shape = match &message.content {
            Content::Bytes(bytes) if matches!(bytes[0], 4..=9) => return false,
            Content::Bytes(bytes) => format!(
                "{} {:?} {}",
                bytes[0],
                message.descriptor(),
                // Of a stage, whether it begins.
                bytes.len() == 49 && bytes[48] == 1
            ),
            Content::Data(_) => "data".to_owned(),
            Content::Page { .. } => "page".to_owned(),
        };
        let is_of_donor = matches!(message.from, Side::Donor | Side::DonorAside);
        // A completion means something else at each place.
        let is_new = is_of_donor && (shape.starts_with("99") || !seen.contains(&shape));
        seen.push(shape);
        is_new
    };
    (0..messages.len()).filter(is_first).collect()
}

/// A running donor; it ends when dropped.
#[derive(Debug)]
pub struct Donor {
    _server: Scripted,
}

impl Donor {
    /// Starts a donor on `socket` that plays these clones in turn, and the last of them from then on.
    /// `script` answers statements before the usual answers of a server without encryption.
    ///
    /// # Panics
    /// If it cannot listen there.
    #[must_use]
    pub fn start(
        socket: &Path,
        clones: Vec<Vec<Message>>,
        script: impl Fn(&str) -> Option<Rows> + Send + Sync + 'static,
    ) -> Self {
        let state = Mutex::new(State { clones, begun: 0, aside: None });
        let usual = move |sql: &str| Ok(script(sql).unwrap_or_else(|| answer(sql)));
        let _server =
            Scripted::with_clones(socket, "9.7.4-2", usual, Arc::new(move |s| play(s, &state)));
        Self { _server }
    }
}

/// The answer of a server that has nothing to lose.
fn answer(sql: &str) -> Rows {
    let row = |texts: &[&str]| vec![texts.iter().map(|text| (*text).to_owned()).collect()];
    match sql {
        _ if sql.contains("GTID_SUBSET") => row(&["1"]),
        _ if sql.contains("gtid_executed") => row(&["11111111-2222-3333-4444-555555555555:1-7"]),
        _ if sql.contains("server_uuid") => {
            row(&["11111111-2222-3333-4444-555555555555", "2000000000", "1000"])
        }
        _ if sql.contains("redo_log_current_lsn") => row(&["Innodb_redo_log_current_lsn", "5"]),
        _ if sql.contains("Com_alter_tablespace") => row(&["Com_alter_tablespace", "0"]),
        _ if sql.contains("log_bin") => row(&["1"]),
        _ if sql.contains("innodb_redo_log_encrypt") => row(&["0"]),
        _ if sql.contains("CURRENT_USER") => row(&["backup@%", "67108864", "1"]),
        _ if sql.contains("SHOW GRANTS") => {
            row(&["GRANT REFERENCES, BACKUP_ADMIN ON *.* TO `backup`@`%`"])
        }
        _ => Vec::new(),
    }
}

struct State {
    clones: Vec<Vec<Message>>,
    begun: usize,
    /// The auxiliary side of a clone whose auxiliary connection does not exist yet.
    aside: Option<DiscardedOutput>,
}

struct DiscardedOutput {
    arrived: Sender<()>,
    answers: Receiver<Vec<u8>>,
}

/// Plays one connection: the first of a clone has its data, the second is the auxiliary one.
fn play(stream: &UnixStream, state: &Mutex<State>) {
    let _ = stream.set_read_timeout(Some(SILENCE_LIMIT));
    let _ = stream.set_write_timeout(Some(SILENCE_LIMIT));
    let welcome = || {
        let mut output = stream;
        output.write_all(&framed(&[done()], 1)).is_ok()
    };
    let mut locked = state.lock().unwrap();
    if let Some(aside) = locked.aside.take() {
        drop(locked);
        if welcome() {
            play_aside(stream, &aside);
        }
        return;
    }
    let messages = locked.clones[locked.begun.min(locked.clones.len() - 1)].clone();
    locked.begun += 1;
    let (arrived, arrivals) = channel();
    let (answer, answers) = channel();
    locked.aside = Some(DiscardedOutput { arrived, answers });
    drop(locked);
    if welcome() {
        play_data(stream, &messages, &arrivals, &answer);
    }
    // A recipient that leaves early has no auxiliary connection.
    state.lock().unwrap().aside = None;
}

fn play_data(
    stream: &UnixStream,
    messages: &[Message],
    arrivals: &Receiver<()>,
    answer: &Sender<Vec<u8>>,
) -> Option<()> {
    let (mut input, mut output) = (stream, stream);
    for (at, message) in messages.iter().enumerate() {
        match message.from {
            Side::Donor => output.write_all(&framed(&[message.content.bytes()], 0)).ok()?,
            Side::DonorAside => answer.send(message.content.bytes()).ok()?,
            Side::RecipientAside => {
                arrivals.recv_timeout(SILENCE_LIMIT).ok()?;
                // Without an answer, it is gone.
                messages.get(at + 1).filter(|next| next.from == Side::DonorAside)?;
            }
            Side::Recipient => {
                let came = receive(&mut input)?;
                let wanted = message.content.bytes();
                if came == [EXIT] && wanted != came {
                    return output.write_all(&framed(&[vec![COMPLETE]], 0)).ok();
                }
            }
        }
    }
    Some(())
}

fn play_aside(stream: &UnixStream, aside: &DiscardedOutput) {
    let (mut input, mut output) = (stream, stream);
    while receive(&mut input).is_some() && aside.arrived.send(()).is_ok() {
        let Ok(answer) = aside.answers.recv() else { return };
        if output.write_all(&framed(&[answer], 0)).is_err() {
            return;
        }
    }
}
