//! Receives a clone from a running server.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::OnceLock;
use std::thread::Scope;
use std::time::{Duration, Instant};

use xb_mysql::clone::{Block, CloneEvent, Recipient, Stage};
use xb_mysql::{Account, Client, Target};
use xb_pages::is_intact_page;
use xb_process::{CancelOnDrop, CancelToken};

use crate::donor::{Auxiliary, DonorAddress, Link, is_break, is_busy};
use crate::error::Error;
use crate::guards;
use crate::in_place::InPlace;
use crate::kept_redo::RedoWatch;
use crate::notice::{Notice, Notify};
use crate::settings::Settings;
use crate::sink::Sink;
use crate::stored::{CloneInfo, StoredFile, StoredRedo};

const MINUTE: Duration = Duration::from_secs(60);
/// Shortest time for which the server can be asked about a clone that has ended.
const MIN_FINAL_LIMIT: Duration = Duration::from_secs(600);

/// Receives a clone, and writes it as an xbstream. DDL on the server waits for its end; nothing else does. If the
/// connections break, it connects again, and the clone continues where it was, as long as the server waits for that;
/// `notify` gets what happens.
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
    notify: &(dyn Fn(Notice<'_>) + Sync),
    output: W,
) -> Result<(CloneInfo, W), Error> {
    let mut own = settings.clone();
    // Cancelled from outside, and by the watch.
    own.cancel = CancelToken::new();
    // Cancelled from outside, or at the end.
    let is_over = CancelToken::<()>::new();
    let over = is_over.clone();
    let _hook = settings.cancel.on_cancel(move || over.cancel(()));
    let auxiliary = Auxiliary::default();
    let server = OnceLock::new();
    let donor =
        DonorAddress { target, account, settings: &own, auxiliary: &auxiliary, server: &server };
    let watch = RedoWatch::new(donor, notify);
    let (received, is_cancelled) = std::thread::scope(|threads| {
        let ends = std::thread::Builder::new().name("end".to_owned());
        let ends = ends.spawn_scoped(threads, || {
            while is_over.wait(MINUTE).is_none() {}
            if settings.cancel.is_cancelled() {
                auxiliary.end();
                own.cancel.cancel(());
            }
        });
        let _end = is_over.cancel_on_drop();
        let received = match ends {
            Ok(_) => receive_into(donor, notify, &watch, threads, output),
            Err(error) => Err(no_thread(&error)),
        };
        let is_cancelled = own.cancel.is_cancelled() || settings.cancel.is_cancelled();
        if received.is_err() {
            auxiliary.end();
        }
        // The watch may wait for an answer.
        own.cancel.cancel(());
        (received, is_cancelled)
    });
    // An error of a closed connection is a consequence.
    received.map_err(|error| match watch.refusal() {
        Some(why) => Error::Refused(why),
        None if is_cancelled => Error::Stopped,
        None => error,
    })
}

fn receive_into<'scope, W: Write>(
    donor: DonorAddress<'scope>,
    notify: &Notify<'_>,
    watch: &'scope RedoWatch<'scope>,
    threads: &'scope Scope<'scope, '_>,
    output: W,
) -> Result<(CloneInfo, W), Error> {
    let settings = donor.settings;
    guards::connection(donor.target)?;
    let mut first = donor.connect()?.client;
    let empty_tables = guards::server(&mut first, settings)?.into_iter().collect();
    let patience = guards::patience(&mut first)?;
    let changes_before = match settings.allow_ddl {
        true => Some(guards::changes_of_tablespaces(&mut first)?),
        false => None,
    };
    let version = first.greeting().version.clone();
    let (recipient, init) = Recipient::new(settings.ddl());
    let sink = Sink::new(output);
    let mut job = Job {
        donor,
        recipient,
        version,
        sink,
        empty_tables,
        gtids_from: None,
        has_keys: false,
        in_place: InPlace::default(),
        patience,
        is_page_stage: false,
        is_begun: false,
        notify,
        watch,
        threads,
        has_changes: false,
        watching: None,
    };
    let mut link = donor.link()?;
    // Not kept: the server ends a connection that is idle for hours. But others are made in its place while the clone comes,
    // so one that the account may not have beside those of the clone is refused here.
    drop(first);
    link.data.send(&init)?;
    let mut broken: Option<Instant> = None;
    loop {
        let error = match job.step(&mut link) {
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
                // It would have been continued elsewhere.
                error if may_resume && !is_busy && job.is_begun => Error::Refused(format!(
                    "the connection broke before the first block of a stage, where no clone can be continued ({error}): run the backup again"
                )),
                // Another clone must not begin in the same stream.
                Error::Busy if job.is_begun => Error::Refused(
                    "the connection broke, and the server did not continue the clone in time (error 3634)".to_owned(),
                ),
                error => error,
            });
        };
        tell_again(notify, &error, patience);
        drop(link);
        link = donor.link_again(since + patience, error)?;
        // If it fails, the next step does as well.
        let _ = link.data.send(&reinit);
    }
    // The server has sent its redo log, and keeps none.
    job.watching = None;
    let leave = job.recipient.leave()?;
    job.exchange(&leave)?;
    link.data.send(&leave)?;
    let message = link.data.receive()?;
    let left = job.recipient.receive(&message)?;
    if left != CloneEvent::Left || !job.recipient.is_whole() {
        return Err(Error::Refused("the server did not end the clone".to_owned()));
    }
    // The server waits for nothing any more.
    let gtids_from = job.gtids_from.take().unwrap_or_default();
    let (tables, gtids_to, has_binlog) = job.ask(patience.max(MIN_FINAL_LIMIT), |last| {
        // DDL may have made one meanwhile.
        let tables = guards::server(last, settings)?;
        let gtids_to = guards::gtids(last)?;
        guards::history(last, &gtids_from, &gtids_to)?;
        if let Some(before) = changes_before.as_ref().filter(|_| job.in_place.is_hidden())
            && guards::changes_of_tablespaces(last)? != *before
        {
            return Err(refuse_change("a tablespace may have been"));
        }
        Ok((tables, gtids_to, guards::has_binlog(last)?))
    })?;
    job.empty_tables.extend(tables);
    let mut info = info(&job.recipient)?;
    info.has_keys = Some(job.has_keys || job.recipient.files().iter().any(|f| f.is_encrypted));
    info.allows_ddl = settings.allow_ddl;
    info.empty_tables = job.empty_tables.into_iter().collect();
    (info.gtids_from, info.gtids_to, info.has_binlog) = (gtids_from, gtids_to, has_binlog);
    job.sink.finish(info)
}

/// Result of a message.
enum Step {
    Nothing,
    Progress,
    Complete,
}

/// A clone that arrives, over whatever connections.
struct Job<'scope, 'env, 'n, W> {
    donor: DonorAddress<'scope>,
    recipient: Recipient,
    /// The server's version, as a connection says it.
    version: String,
    sink: Sink<W>,
    /// Tables of other engines than InnoDB, whose rows do not come.
    empty_tables: BTreeSet<String>,
    gtids_from: Option<String>,
    /// Whether a key came in clear.
    has_keys: bool,
    /// Looks for tablespaces whose encryption is changed.
    in_place: InPlace,
    /// How long a broken clone can be continued.
    patience: Duration,
    is_page_stage: bool,
    is_begun: bool,
    notify: &'n Notify<'n>,
    watch: &'scope RedoWatch<'scope>,
    threads: &'scope Scope<'scope, 'env>,
    /// Whether the changed pages or the redo log come, so that the donor keeps its redo log.
    has_changes: bool,
    /// Ends the watch of that.
    watching: Option<CancelOnDrop>,
}

impl<W: Write> Job<'_, '_, '_, W> {
    /// Takes the next message.
    fn step(&mut self, link: &mut Link) -> Result<Step, Error> {
        if self.has_changes && self.watching.is_none() {
            self.watch_redo()?;
        }
        let message = link.data.receive()?;
        match self.recipient.receive(&message)? {
            CloneEvent::Nothing | CloneEvent::Redo(_) | CloneEvent::Left => {
                return Ok(Step::Nothing);
            }
            CloneEvent::File(index) => self.file(index)?,
            CloneEvent::Ready => {
                self.donor.auxiliary.begun(|| self.recipient.fail());
                same_version(self.recipient.donor().version(), &self.version)?;
                link.data.send(&self.recipient.execute()?)?;
            }
            CloneEvent::Stage(stage, _) => {
                self.is_page_stage = stage == Stage::Page;
                if self.is_page_stage {
                    self.has_changes = true;
                    (self.notify)(Notice::Changes);
                    self.sink.end_files()?;
                }
                if stage == Stage::Redo && self.donor.settings.allow_ddl {
                    self.recipient.files().iter().for_each(|file| self.in_place.add_file(file));
                }
            }
            CloneEvent::Block(block) => {
                let settings = self.donor.settings;
                if !self.is_begun {
                    no_clear_keys(&self.recipient, settings)?;
                    let settings = self.donor.settings;
                    let page_size = self.recipient.donor().page_size();
                    self.sink.begin(self.recipient.files(), page_size, settings.allow_ddl)?;
                    self.is_begun = true;
                }
                let has_key = has_clear_key(&self.recipient, &block);
                if has_key {
                    self.has_keys = true;
                    no_clear_key(&block, settings)?;
                }
                if let Some(file) = self.in_place.add(&block, self.recipient.files(), has_key) {
                    return Err(refuse_change(&format!("{} was", file.name)));
                }
                no_damaged_end(&self.recipient, &block)?;
                self.sink.block(&block)?;
                return Ok(Step::Progress);
            }
            CloneEvent::Acknowledge(message) => {
                // The data is of a point behind the first acknowledgement of the page stage.
                if self.is_page_stage && self.gtids_from.is_none() {
                    let settings = self.donor.settings;
                    let (gtids, tables) = self.ask(self.patience, |client| {
                        Ok((guards::gtids(client)?, guards::server(client, settings)?))
                    })?;
                    self.gtids_from = Some(gtids);
                    self.empty_tables.extend(tables);
                }
                self.exchange(&message)?;
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
                self.in_place.add_file(file);
                self.sink.changed(file)
            }
            _ => Ok(()),
        }
    }

    /// Begins to watch the redo log that the donor keeps from now on.
    fn watch_redo(&mut self) -> Result<(), Error> {
        let (over, watch) = (CancelToken::new(), self.watch);
        let watching = over.cancel_on_drop();
        let thread = std::thread::Builder::new().name("redo".to_owned());
        let started = thread.spawn_scoped(self.threads, move || watch.run(&over));
        started.map_err(|error| no_thread(&error))?;
        self.watching = Some(watching);
        Ok(())
    }

    /// Asks the server on a connection of its own. Hours of a clone are not given up because one connection breaks or is
    /// refused: it is made again, for up to `patience`.
    fn ask<T>(
        &self,
        patience: Duration,
        ask: impl Fn(&mut Client) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let Settings { cancel, retry, .. } = self.donor.settings;
        let begin = Instant::now();
        let mut is_told = false;
        loop {
            let answer = self.donor.connect().and_then(|mut made| ask(&mut made.client));
            let error = match answer {
                Err(error) if is_break(&error) || is_busy(&error) => error,
                answer => return answer,
            };
            if begin.elapsed() >= patience || cancel.is_cancelled() {
                return Err(error);
            }
            if !std::mem::replace(&mut is_told, true) {
                tell_again(self.notify, &error, patience);
            }
            // Whether it is cancelled shows above.
            let _ = cancel.wait(*retry);
        }
    }

    /// Sends a message on the auxiliary connection, and waits for the answer.
    fn exchange(&mut self, message: &[u8]) -> Result<(), Error> {
        let answer = self.donor.auxiliary.exchange(message)?;
        Ok(self.recipient.answered(&answer)?)
    }
}

/// Refuses a clone of another version than its server: the version says which servers may start on it.
fn same_version(stated: &str, version: &str) -> Result<(), Error> {
    match stated == version {
        true => Ok(()),
        false => Err(Error::Refused(format!(
            "the server is MySQL {version}, but its clone states {stated}: connect to the server itself"
        ))),
    }
}

fn tell_again(notify: &Notify<'_>, error: &Error, patience: Duration) {
    notify(Notice::Text(&format!("{error}: connecting again for up to {} s", patience.as_secs())));
}

fn no_thread(error: &std::io::Error) -> Error {
    Error::Refused(format!("cannot start a thread: {error}"))
}

/// Refuses keys in clear, by what the server says about its files.
fn no_clear_keys(recipient: &Recipient, settings: &Settings) -> Result<(), Error> {
    let mut encrypted = recipient.files().iter().filter(|file| file.is_encrypted);
    match encrypted.next() {
        Some(file) if !settings.is_sealed => refuse_key(&file.name.to_string()),
        _ => Ok(()),
    }
}

/// Refuses a block with a key in clear.
fn no_clear_key(block: &Block<'_>, settings: &Settings) -> Result<(), Error> {
    match settings.is_sealed {
        true => Ok(()),
        false => refuse_key(&format!("number {} of the {} stage", block.file, block.stage.name())),
    }
}

/// Returns whether a block has a key: one lies in the first page of a file, and in the head of each file of the redo log.
fn has_clear_key(recipient: &Recipient, block: &Block<'_>) -> bool {
    const REDO_HEAD: u32 = 2048;
    if block.offset != 0 {
        return false;
    }
    let file = usize::try_from(block.file).ok().and_then(|index| recipient.files().get(index));
    let len = match block.stage {
        Stage::Redo => REDO_HEAD,
        _ => file.map_or(0, |file| file.page_size),
    };
    let head = usize::try_from(len).ok().and_then(|len| block.bytes.get(..len));
    let is_key = |mark: &[u8]| matches!(mark, b"lCA" | b"lCB" | b"lCC");
    len > 0 && head.unwrap_or(block.bytes).windows(3).any(is_key)
}

/// Refuses a damaged page that makes its file longer: nothing else says how long that is.
fn no_damaged_end(recipient: &Recipient, block: &Block<'_>) -> Result<(), Error> {
    if !block.is_behind_end || is_intact_page(block.bytes) {
        return Ok(());
    }
    let file = usize::try_from(block.file).ok().and_then(|index| recipient.files().get(index));
    Err(Error::Refused(format!(
        "the server sent the page at {} after the end of {}, and its checksum is wrong: check that table, and take another backup",
        block.offset,
        file.map_or_else(String::new, |file| file.name.to_string())
    )))
}

fn refuse_key(file: &str) -> Result<(), Error> {
    Err(Error::Refused(format!(
        "the file {file} is encrypted, and a clone contains its key in clear text: seal the backup, such as with --recipient"
    )))
}

/// Refuses a clone that MySQL may not recover from. Its redo log begins a little before the clone.
fn refuse_change(what: &str) -> Error {
    Error::Refused(format!(
        "{what} encrypted or decrypted while the clone was taken, or shortly before, and MySQL may not recover from that: take another backup in a minute, and run no ALTER TABLESPACE meanwhile"
    ))
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
        has_keys: None,
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
