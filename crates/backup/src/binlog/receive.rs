//! Receives a server's binary log, and stores it: one stream for each connection, for as long as nothing
//! cancels it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesOrdered;
use jiff::Timestamp;
use tokio::time::MissedTickBehavior;
use xb_compressor::Algorithm;
use xb_encryptor::KeySlots;
use xb_mysql::Access;
use xb_repo::archive::record::Record;
use xb_repo::archive::segment::SegmentHead;
use xb_repo::root::Root;

use crate::archive_error::ArchiveError;
use crate::binlog::notice::{Notice, Tell};
use crate::binlog::session::{Message, Receiving, connect, receive as receive_log};
use crate::binlog::start::{Start, behind_hole, branch, last_stored, start};
use crate::binlog::state::StateFile;
use crate::binlog::writer::{Packed, StreamWriter};
use crate::error::BackupError;
use crate::session::Session;

/// Segments that are stored at once.
const IN_FLIGHT: usize = 4;
/// Seconds between two signs of life.
const ALIVE: u64 = 30;
/// The longest pause between two connections, in seconds.
const LONGEST_PAUSE: u64 = 30;

/// What to receive, and how.
#[derive(Debug)]
pub struct ReceiveRequest {
    /// Name of the server in the repository.
    pub server: String,
    /// Where the server is, and as whom to log in.
    pub access: Access,
    /// Key slots of each stream; none: the archive is not sealed.
    pub key_slots: KeySlots,
    /// Codec of the segments.
    pub compress: Algorithm,
    /// The longest time that a received byte waits before it is sent to the store.
    pub rpo: Duration,
    /// Folder in which the receiver remembers its last segment.
    pub state: Option<PathBuf>,
}

/// Receives until it is cancelled.
///
/// # Errors
/// What no other try can mend: an account without the privilege, a server without binary log, an object of
/// another writer. A server or a store that is away is no error, but a [`Notice`].
pub async fn receive(
    session: &Session,
    request: &ReceiveRequest,
    tell: impl Fn(Notice) + Send + Sync + 'static,
) -> Result<(), BackupError> {
    let receiver = Receiver {
        session,
        request,
        tell: Arc::new(tell),
        state: request.state.as_ref().map(|folder| StateFile::new(folder, &request.server)),
    };
    let mut pause = 1;
    let mut fork = None;
    while session.cancel.signal().is_none() {
        let (stored, outcome) = receiver.stream(fork.take()).await;
        if stored {
            pause = 1;
        }
        let error = match outcome {
            Ok(()) => return Ok(()),
            // The next stream is a branch, at once.
            Err(ArchiveError::Differs(what)) if !stored => {
                fork = Some(Fork::Differs(what));
                continue;
            }
            // The server's own logs lack something: what follows is received behind a gap.
            Err(ArchiveError::Log(error @ xb_binlog::Error::History { .. })) => {
                if let xb_binlog::Error::History { log, .. } = &error {
                    fork = Some(Fork::Hole { log: log.clone(), reason: error.to_string() });
                }
                continue;
            }
            Err(error) if error.is_passing() => error,
            Err(error) => return Err(error.into()),
        };
        (receiver.tell)(Notice::Disconnected(error.to_string()));
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(pause)) => {}
            _ = session.cancel.asked() => {}
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    Ok(())
}

struct Receiver<'a> {
    session: &'a Session,
    request: &'a ReceiveRequest,
    tell: Tell,
    state: Option<StateFile>,
}

/// Why the next stream does not continue.
enum Fork {
    /// The server's history differs from the archive's.
    Differs(String),
    /// This log does not follow the one before it.
    Hole { log: String, reason: String },
}

/// A segment, or a sign of life behind it.
enum Done {
    Stored(Packed),
    Idle(Timestamp),
}

impl Receiver<'_> {
    fn root(&self) -> &Root {
        &self.session.root
    }

    /// One connection and its stream; returns whether it stored anything.
    async fn stream(&self, fork: Option<Fork>) -> (bool, Result<(), ArchiveError>) {
        let mut stored = false;
        let outcome = self.run(fork, &mut stored).await;
        (stored, outcome)
    }

    async fn run(&self, fork: Option<Fork>, stored: &mut bool) -> Result<(), ArchiveError> {
        let before = self.before().await?;
        let access = self.request.access.clone();
        let (client, server) = tokio::task::spawn_blocking(move || connect(&access))
            .await
            .map_err(|_| ArchiveError::Bug("the thread that connects panicked"))??;
        let mut start = start(before.as_ref(), &server.logs)?;
        match fork {
            Some(Fork::Differs(what)) => start = branch(&start, what),
            Some(Fork::Hole { log, reason }) => start = behind_hole(&start, &log, reason),
            None => {}
        }
        // Another replica with the same number would end this connection, and this one its.
        let number: [u8; 4] = xb_encryptor::new_stream_id()?
            .first_chunk()
            .copied()
            .ok_or(ArchiveError::Bug("a short ID"))?;
        let replica = u32::from_le_bytes(number) | 1 << 31;
        let (begun, rpo) = (start.clone(), self.request.rpo);
        let receiving =
            tokio::task::spawn_blocking(move || receive_log(client, &begun, replica, rpo));
        let mut receiving =
            receiving.await.map_err(|_| ArchiveError::Bug("the thread that asks panicked"))??;
        // Nothing is written before the server has shown that its history is the archive's.
        let first = tokio::select! {
            message = receiving.messages.recv() => message,
            _ = self.session.cancel.asked() => return stopped(receiving).await,
        };
        let Some(Message::Begun) = first else { return Err(ended(receiving).await) };
        let settings =
            (&self.request.key_slots, self.request.compress, self.session.resources.threads);
        let name = (self.request.server.as_str(), &server);
        let writer =
            StreamWriter::begin(self.root(), name, &start, settings, Arc::clone(&self.tell));
        let mut writer = tokio::select! {
            writer = writer => writer?,
            _ = self.session.cancel.asked() => return stopped(receiving).await,
        };
        (self.tell)(begins(&writer, &start));
        writer.write_alive(None).await.unwrap_or_else(|error| self.away(&error));
        let outcome = self.store_all(&mut writer, &mut receiving).await;
        *stored = writer.stored().segments > 0;
        let why = ended(receiving).await;
        let is_cancelled = outcome?;
        // What is stored is whole, however the connection ended.
        writer.write_alive(None).await.unwrap_or_else(|error| self.away(&error));
        writer.end().await.unwrap_or_else(|error| self.away(&error));
        match is_cancelled {
            true => Ok(()),
            false => Err(why),
        }
    }

    /// Stores what is received until the connection ends; returns whether it was cancelled.
    async fn store_all(
        &self,
        writer: &mut StreamWriter,
        receiving: &mut Receiving,
    ) -> Result<bool, ArchiveError> {
        let mut flying: FuturesOrdered<_> = FuturesOrdered::new();
        let mut ticks = tokio::time::interval(Duration::from_secs(ALIVE));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_open = true;
        while is_open || !flying.is_empty() {
            tokio::select! {
                _ = self.session.cancel.asked() => return Ok(true),
                Some(done) = flying.next(), if !flying.is_empty() => self.done(writer, done?)?,
                message = receiving.messages.recv(), if is_open && flying.len() < IN_FLIGHT => {
                    match message {
                        Some(Message::Segment(cut)) => {
                            let packed = writer.pack(*cut).await?;
                            let storing = writer.store(packed);
                            flying.push_back(futures::future::Either::Left(async move {
                                storing.await.map(Done::Stored)
                            }));
                        }
                        Some(Message::Idle(at)) => {
                            let idle = async move { Ok(Done::Idle(at)) };
                            flying.push_back(futures::future::Either::Right(idle));
                        }
                        Some(Message::Begun) => {}
                        None => is_open = false,
                    }
                }
                _ = ticks.tick() => {
                    writer.write_alive(None).await.unwrap_or_else(|error| self.away(&error));
                }
            }
        }
        Ok(false)
    }

    fn done(&self, writer: &mut StreamWriter, done: Done) -> Result<(), ArchiveError> {
        match done {
            Done::Stored(packed) => {
                writer.advance(&packed);
                if let Some(state) = &self.state {
                    state.write(&packed.record)?;
                }
                (self.tell)(Notice::Stored { position: packed.to.to_string() });
            }
            Done::Idle(at) => writer.cover(at),
        }
        Ok(())
    }

    /// The segment that a new stream follows.
    async fn before(&self) -> Result<Option<Record<SegmentHead>>, ArchiveError> {
        let stored = last_stored(self.root(), &self.request.server).await?;
        let Some(state) = &self.state else { return Ok(stored) };
        let Some(ours) = state.read()? else { return Ok(stored) };
        let head = &ours.content;
        let is_there = xb_repo::archive::listing::is_stored(
            self.root(),
            &self.request.server,
            &head.stream,
            head.number,
            &ours.digest,
        );
        match is_there.await? {
            true => Ok(Some(ours)),
            false => {
                let what = format!(
                    "segment {} of stream {}, up to {}, is missing or was changed",
                    head.number, head.stream, head.to
                );
                (self.tell)(Notice::Lost(what));
                Ok(stored)
            }
        }
    }

    fn away(&self, error: &ArchiveError) {
        (self.tell)(Notice::StoreAway(error.to_string()));
    }
}

fn begins(writer: &StreamWriter, start: &Start) -> Notice {
    Notice::Begins {
        stream: writer.id().to_string(),
        at: start.at.to_string(),
        begins: start.begins.clone(),
    }
}

/// Ends the connection, and says why it ended by itself, if so.
async fn ended(receiving: Receiving) -> ArchiveError {
    let joined = tokio::task::spawn_blocking(move || receiving.join()).await;
    joined.unwrap_or(ArchiveError::Bug("the thread that joins panicked"))
}

async fn stopped(receiving: Receiving) -> Result<(), ArchiveError> {
    ended(receiving).await;
    Ok(())
}
