//! Receives a clone from a running server.

use std::io::Write;
use std::time::Duration;

use xb_mysql::clone::{Block, CloneEvent, Recipient, Stage};
use xb_mysql::{Account, Client, CloneLink, Target, Timeouts};

use crate::error::Error;
use crate::guards;
use crate::settings::Settings;
use crate::sink::Sink;
use crate::stop::Watched;
use crate::stored::{CloneInfo, StoredFile, StoredRedo};

/// Receives a clone, and writes it as an xbstream. DDL on the server waits for its end; nothing else does.
///
/// The stream is whole only if this returns: its last file, [`INFO`](crate::INFO), is written after the server
/// has said that everything was sent and everything was counted.
///
/// # Errors
/// [`Error::Refused`] and [`Error::Busy`] before a byte is written, if something would be lost or be stored in
/// clear, or another clone runs; [`Error::Stopped`]; any other error after that. The stream is then useless.
pub fn receive<W: Write>(
    target: &Target,
    account: &Account,
    settings: &Settings,
    output: W,
) -> Result<(CloneInfo, W), Error> {
    receive_into(target, account, settings, output).map_err(|error| {
        // What fails because its connection was closed is a consequence.
        if settings.stop.is_asked() { Error::Stopped } else { error }
    })
}

fn receive_into<W: Write>(
    target: &Target,
    account: &Account,
    settings: &Settings,
    output: W,
) -> Result<(CloneInfo, W), Error> {
    guards::connection(target)?;
    let connect = || connect(target, account, settings);
    // Not kept: the server ends a connection that is idle for hours.
    let empty_tables = guards::server(&mut connect()?.client, settings)?;
    let (mut data, _data) = connect()?.into_clone(settings)?;
    let (mut auxiliary, _auxiliary) = connect()?.into_clone(settings)?;
    let (mut recipient, init) = Recipient::new(settings.ddl_timeout);
    data.send(&init)?;
    let mut sink = Sink::new(output);
    let (mut gtids_from, mut current) = (String::new(), Stage::Init);
    let mut is_begun = false;
    loop {
        let message = data.receive()?;
        match recipient.receive(&message)? {
            CloneEvent::Nothing | CloneEvent::File(..) | CloneEvent::Left => {}
            CloneEvent::Ready => data.send(&recipient.execute()?)?,
            CloneEvent::Stage(stage, _) => {
                current = stage;
                if stage == Stage::Page {
                    sink.end_files()?;
                }
            }
            CloneEvent::Block(block) => {
                if !is_begun {
                    no_clear_keys(&recipient, settings)?;
                    sink.begin(recipient.files())?;
                    is_begun = true;
                }
                no_clear_key(&recipient, &block, settings)?;
                sink.block(&block)?;
            }
            CloneEvent::Acknowledge(message) => {
                // The data is of a point behind the acknowledgement of the page stage.
                if current == Stage::Page {
                    gtids_from = guards::gtids(&mut connect()?.client)?;
                }
                exchange(&mut recipient, &mut auxiliary, &message)?;
            }
            CloneEvent::Complete => break,
        }
    }
    let leave = recipient.leave()?;
    exchange(&mut recipient, &mut auxiliary, &leave)?;
    data.send(&leave)?;
    let message = data.receive()?;
    let left = recipient.receive(&message)?;
    if left != CloneEvent::Left || !recipient.is_whole() {
        return Err(Error::Refused("the server did not end the clone".to_owned()));
    }
    let mut last = connect()?.client;
    let mut info = info(&recipient)?;
    (info.empty_tables, info.gtids_from) = (empty_tables, gtids_from);
    (info.gtids_to, info.has_binlog) = (guards::gtids(&mut last)?, guards::has_binlog(&mut last)?);
    sink.finish(info)
}

/// A connection that ends when the clone is to end.
struct Connection {
    client: Client,
    watched: Watched,
}

impl Connection {
    fn into_clone(self, settings: &Settings) -> Result<(CloneLink, Watched), Error> {
        Ok((self.client.into_clone(settings.silence)?, self.watched))
    }
}

fn connect(target: &Target, account: &Account, settings: &Settings) -> Result<Connection, Error> {
    let timeouts = Timeouts { login: Duration::from_secs(30), reply: Some(settings.silence) };
    if settings.stop.is_asked() {
        return Err(Error::Stopped);
    }
    let client = Client::connect(target, account, timeouts)?;
    let watched = settings.stop.watch(client.hang_up()?)?;
    Ok(Connection { client, watched })
}

/// Sends a message on the auxiliary connection, and waits for the answer.
fn exchange(
    recipient: &mut Recipient,
    auxiliary: &mut CloneLink,
    message: &[u8],
) -> Result<(), Error> {
    auxiliary.send(message)?;
    let answer = auxiliary.receive()?;
    Ok(recipient.answered(&answer)?)
}

/// Refuses keys in clear, by what the server says about its files.
fn no_clear_keys(recipient: &Recipient, settings: &Settings) -> Result<(), Error> {
    let mut encrypted = recipient.files().iter().filter(|file| file.is_encrypted);
    match encrypted.next() {
        Some(file) if !settings.is_sealed => refuse_key(&file.name.to_string()),
        _ => Ok(()),
    }
}

/// Refuses keys in clear, by what comes: a key lies in the first page of a file, and in the head of the redo log.
fn no_clear_key(
    recipient: &Recipient,
    block: &Block<'_>,
    settings: &Settings,
) -> Result<(), Error> {
    const REDO_HEAD: u32 = 2048;
    if settings.is_sealed || block.offset != 0 {
        return Ok(());
    }
    let file = usize::try_from(block.file).ok().and_then(|index| recipient.files().get(index));
    let len = match block.stage {
        Stage::Redo => REDO_HEAD,
        _ => file.map_or(0, |file| file.page_size),
    };
    let head = usize::try_from(len).ok().and_then(|len| block.bytes.get(..len));
    let is_key = |mark: &[u8]| matches!(mark, b"lCA" | b"lCB" | b"lCC");
    match head.unwrap_or(block.bytes).windows(3).any(is_key) && len > 0 {
        true => refuse_key(&format!("number {} of the {} stage", block.file, block.stage.name())),
        false => Ok(()),
    }
}

fn refuse_key(file: &str) -> Result<(), Error> {
    Err(Error::Refused(format!(
        "the file {file} is encrypted, and a clone has its key in clear: seal the backup, such as with --recipient"
    )))
}

fn info(recipient: &Recipient) -> Result<CloneInfo, Error> {
    let donor = recipient.donor();
    let files = recipient.files().iter().map(StoredFile::new).collect::<Result<_, _>>()?;
    let redo = recipient.redo().iter();
    Ok(CloneInfo {
        format: 1,
        version: donor.version().to_owned(),
        settings: donor.settings.clone(),
        plugins: donor.plugins.clone(),
        page_size: donor.page_size(),
        protocol: donor.protocol,
        files,
        redo: redo.map(|file| StoredRedo { index: file.index, size: file.size }).collect(),
        patches: 0,
        empty_tables: Vec::new(),
        gtids_from: String::new(),
        gtids_to: String::new(),
        has_binlog: false,
    })
}
