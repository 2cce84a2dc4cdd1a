//! Receives a clone from a running server.

use std::collections::BTreeSet;
use std::io::Write;
use std::time::{Duration, Instant};

use xb_mysql::clone::{Block, CloneEvent, Recipient, Stage};
use xb_mysql::{Account, Client, CloneLink, Target, Timeouts};
use xb_process::CancelHook;

use crate::error::Error;
use crate::guards::{self, Incarnation};
use crate::kept_redo::{KeptRedo, Verdict};
use crate::settings::Settings;
use crate::sink::Sink;
use crate::stored::{CloneInfo, StoredFile, StoredRedo};

/// Receives a clone, and writes it as an xbstream. DDL on the server waits for its end; nothing else does. If the
/// connections break, it connects again, and the clone continues where it was, as long as the server waits for that;
/// `tell` gets what the user should know of it.
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
    tell: &dyn Fn(&str),
    output: W,
) -> Result<(CloneInfo, W), Error> {
    receive_into(target, account, settings, tell, output).map_err(|error| {
        // What fails because its connection was closed is a consequence.
        if settings.cancel.is_cancelled() { Error::Stopped } else { error }
    })
}

fn receive_into<W: Write>(
    target: &Target,
    account: &Account,
    settings: &Settings,
    tell: &dyn Fn(&str),
    output: W,
) -> Result<(CloneInfo, W), Error> {
    guards::connection(target)?;
    let donor = DonorAddress { target, account, settings };
    // Not kept: the server ends a connection that is idle for hours.
    let mut first = donor.connect()?.client;
    let empty_tables = guards::server(&mut first, settings)?.into_iter().collect();
    let patience = guards::patience(&mut first)?;
    let server = Incarnation::of(&mut first)?;
    drop(first);
    let (recipient, init) = Recipient::new(settings.ddl());
    let sink = Sink::new(output);
    let mut job = Job {
        donor,
        recipient,
        sink,
        empty_tables,
        gtids_from: None,
        is_page_stage: false,
        is_begun: false,
        kept: None,
    };
    let mut links = donor.links()?;
    links.data.send(&init)?;
    let mut broken: Option<Instant> = None;
    loop {
        let step = job.step(&mut links).and_then(|step| {
            job.limit_redo(&mut links.auxiliary, tell)?;
            Ok(step)
        });
        let error = match step {
            Ok(Step::Nothing) => continue,
            Ok(Step::Progress) => {
                broken = None;
                continue;
            }
            Ok(Step::Complete) => break,
            Err(error) => error,
        };
        let since = *broken.get_or_insert_with(Instant::now);
        // A donor that has not noticed the break yet is busy.
        let is_busy = matches!(error, Error::Busy) && job.is_begun;
        let may_resume = is_break(&error) || is_busy;
        let may_resume =
            may_resume && since.elapsed() < patience && !settings.cancel.is_cancelled();
        let Some(reinit) = job.recipient.resume().filter(|_| may_resume) else {
            return Err(match error {
                // Another clone must not begin in the same stream.
                Error::Busy if job.is_begun => Error::Refused(
                    "the connection broke, and the server did not continue the clone in time (error 3634)".to_owned(),
                ),
                error => error,
            });
        };
        tell(&format!("{error}: connecting again for up to {} s", patience.as_secs()));
        drop(links);
        links = donor.links_again(&server, since + patience, error)?;
        // If it fails, the next step does as well.
        let _ = links.data.send(&reinit);
    }
    let leave = job.recipient.leave()?;
    job.exchange(&mut links.auxiliary, &leave)?;
    links.data.send(&leave)?;
    let message = links.data.receive()?;
    let left = job.recipient.receive(&message)?;
    if left != CloneEvent::Left || !job.recipient.is_whole() {
        return Err(Error::Refused("the server did not end the clone".to_owned()));
    }
    let mut last = donor.connect()?.client;
    // DDL may have made one meanwhile.
    job.empty_tables.extend(guards::server(&mut last, settings)?);
    let mut info = info(&job.recipient)?;
    info.allows_ddl = settings.allow_ddl;
    info.empty_tables = job.empty_tables.into_iter().collect();
    info.gtids_from = job.gtids_from.unwrap_or_default();
    (info.gtids_to, info.has_binlog) = (guards::gtids(&mut last)?, guards::has_binlog(&mut last)?);
    job.sink.finish(info)
}

/// What a message brought.
enum Step {
    Nothing,
    Progress,
    Complete,
}

/// A clone that arrives, over whatever connections.
struct Job<'a, W> {
    donor: DonorAddress<'a>,
    recipient: Recipient,
    sink: Sink<W>,
    /// Tables of other engines than InnoDB, whose rows do not come.
    empty_tables: BTreeSet<String>,
    gtids_from: Option<String>,
    is_page_stage: bool,
    is_begun: bool,
    /// The redo log that the donor keeps, from the page stage on.
    kept: Option<KeptRedo>,
}

impl<W: Write> Job<'_, W> {
    /// Takes the next message.
    fn step(&mut self, links: &mut Links) -> Result<Step, Error> {
        let message = links.data.receive()?;
        match self.recipient.receive(&message)? {
            CloneEvent::Nothing | CloneEvent::Redo(_) | CloneEvent::Left => {
                return Ok(Step::Nothing);
            }
            CloneEvent::File(index) => self.file(index)?,
            CloneEvent::Ready => links.data.send(&self.recipient.execute()?)?,
            CloneEvent::Stage(stage, _) => {
                self.is_page_stage = stage == Stage::Page;
                if self.is_page_stage {
                    self.sink.end_files()?;
                    if self.kept.is_none() {
                        let mut client = self.donor.connect()?.client;
                        self.kept = Some(KeptRedo::since(guards::redo_position(&mut client)?));
                    }
                }
            }
            CloneEvent::Block(block) => {
                let settings = self.donor.settings;
                if !self.is_begun {
                    no_clear_keys(&self.recipient, settings)?;
                    self.sink.begin(self.recipient.files())?;
                    self.is_begun = true;
                }
                no_clear_key(&self.recipient, &block, settings)?;
                self.sink.block(&block)?;
                return Ok(Step::Progress);
            }
            CloneEvent::Acknowledge(message) => {
                // The data is of a point behind the first acknowledgement of the page stage.
                if self.is_page_stage && self.gtids_from.is_none() {
                    let mut client = self.donor.connect()?.client;
                    self.gtids_from = Some(guards::gtids(&mut client)?);
                    self.empty_tables.extend(guards::server(&mut client, self.donor.settings)?);
                }
                self.exchange(&mut links.auxiliary, &message)?;
                return Ok(Step::Progress);
            }
            CloneEvent::Complete => return Ok(Step::Complete),
        }
        Ok(Step::Nothing)
    }

    /// Takes the description of a file: one of many before the first data, and one that DDL changed after it.
    fn file(&mut self, index: u32) -> Result<(), Error> {
        let file = usize::try_from(index).ok().and_then(|at| self.recipient.files().get(at));
        match file {
            Some(file) if self.is_begun => {
                no_clear_keys(&self.recipient, self.donor.settings)?;
                self.sink.changed(file)
            }
            _ => Ok(()),
        }
    }

    /// Ends the clone if the donor keeps more of its redo log for it than it may.
    fn limit_redo(&mut self, auxiliary: &mut CloneLink, tell: &dyn Fn(&str)) -> Result<(), Error> {
        let Settings { max_donor_redo: limit, look, .. } = *self.donor.settings;
        let Some(kept) = self.kept.as_mut().filter(|kept| kept.is_due(look)) else {
            return Ok(());
        };
        let position = self.donor.connect().and_then(|mut c| guards::redo_position(&mut c.client));
        let verdict = match position {
            // Another look follows, or the clone's own connections break, too.
            Err(error) if is_break(&error) => Verdict::Fine,
            position => kept.look(position?, limit),
        };
        match verdict {
            Verdict::Fine => {}
            Verdict::Much(bytes) => tell(&format!(
                "the server keeps {bytes} bytes of its redo log until the clone has ended; at {limit}, the clone ends"
            )),
            Verdict::TooMuch(bytes) => {
                // If that is lost, the donor waits for a recipient that comes back, and then ends the clone.
                let _ = auxiliary.send(&self.recipient.fail());
                return Err(Error::Refused(format!(
                    "the server has to keep {bytes} bytes of its redo log for the clone, more than the limit of {limit}: clone when fewer changes are made, make the store faster, or raise the limit if the server's disk has room"
                )));
            }
        }
        Ok(())
    }

    /// Sends a message on the auxiliary connection, and waits for the answer.
    fn exchange(&mut self, auxiliary: &mut CloneLink, message: &[u8]) -> Result<(), Error> {
        auxiliary.send(message)?;
        let answer = auxiliary.receive()?;
        Ok(self.recipient.answered(&answer)?)
    }
}

/// Whether a connection broke or nothing came in time, and nothing else is known to be wrong.
fn is_break(error: &Error) -> bool {
    use xb_mysql::Error::{Closed, Io, Timeout};
    matches!(error, Error::Server { source: Closed { .. } | Io { .. } | Timeout { .. } })
}

/// Where the donor is, and who asks.
#[derive(Clone, Copy)]
struct DonorAddress<'a> {
    target: &'a Target,
    account: &'a Account,
    settings: &'a Settings,
}

/// Both connections of a clone.
struct Links {
    data: CloneLink,
    auxiliary: CloneLink,
    _hooks: [CancelHook<()>; 2],
}

impl DonorAddress<'_> {
    fn connect(&self) -> Result<Connection, Error> {
        let Self { target, account, settings } = self;
        let timeouts = Timeouts { login: Duration::from_secs(30), reply: Some(settings.silence) };
        let check = || settings.cancel.check().map_err(|()| Error::Stopped);
        check()?;
        let client = Client::connect(target, account, timeouts)?;
        let hang_up = client.hang_up()?;
        let hook = settings.cancel.on_cancel(move || hang_up.now());
        check()?;
        Ok(Connection { client, hook })
    }

    fn links(&self) -> Result<Links, Error> {
        let (data, first) = self.connect()?.into_clone(self.settings)?;
        let (auxiliary, second) = self.connect()?.into_clone(self.settings)?;
        Ok(Links { data, auxiliary, _hooks: [first, second] })
    }

    /// Connects again, until the donor would give the clone up. `error` is why the connections broke.
    fn links_again(
        &self,
        server: &Incarnation,
        until: Instant,
        error: Error,
    ) -> Result<Links, Error> {
        loop {
            if self.settings.cancel.wait(self.settings.retry).is_some() {
                return Err(Error::Stopped);
            }
            if Instant::now() >= until {
                return Err(error);
            }
            let is_still = || {
                let found = Incarnation::of(&mut self.connect()?.client)?;
                match server.is_still(&found) {
                    true => self.links(),
                    // By its number, it could give us the clone of another recipient.
                    false => Err(Error::Refused(
                        "the connection broke, and the server was started again, or is another one: the clone cannot be continued".to_owned(),
                    )),
                }
            };
            match is_still() {
                Err(failed) if is_break(&failed) => {}
                other => return other,
            }
        }
    }
}

/// A connection that ends when the clone is to end.
struct Connection {
    client: Client,
    hook: CancelHook<()>,
}

impl Connection {
    fn into_clone(self, settings: &Settings) -> Result<(CloneLink, CancelHook<()>), Error> {
        Ok((self.client.into_clone(settings.silence, settings.absence)?, self.hook))
    }
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
        allows_ddl: false,
    })
}
