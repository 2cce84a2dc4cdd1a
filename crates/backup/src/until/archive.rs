//! The archive of a server as a restore may use it: everything that is used is proven.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use xb_encryptor::DataKey;
use xb_repo::archive::base::BasePosition;
use xb_repo::archive::followed::unfollowed;
use xb_repo::archive::listing::{ListedStream, Part, Problem, streams};
use xb_repo::archive::plan::{Histories, Stream};
use xb_repo::archive::stop::RestoreStop;
use xb_repo::archive::stream::StreamOrigin;

use crate::binlog::archive::choose_archive::no_archive;
use crate::binlog::archive::open::{OpenedStream, StreamKeys, open};
use crate::binlog::archive::tail::{Tail, host_notes, may_go_on, tail};
use crate::error::BackupError;
use crate::read::request::GetRequest;
use crate::session::Session;
use crate::until::request::UntilRequest;
use crate::until_error::UntilError;

/// The streams of a server, with the keys that open their segments.
pub(super) struct Archive {
    pub(super) server: String,
    pub(super) streams: Vec<Stream>,
    /// Keys of the sealed streams, by their IDs.
    pub(super) keys: BTreeMap<String, Arc<DataKey>>,
    /// Streams that are not used, and why.
    unused: Vec<(Stream, Unused)>,
}

/// Reason why a stream is not used. It may be history that a restore does without.
enum Unused {
    /// The keys do not open it, because of this.
    Locked(String),
    /// It is not sealed, although a sealed stream follows it, and a key was given.
    Unsealed,
    /// The same, and no sealed stream follows it: whoever can write to the store may have put it there.
    UnsealedEnd,
}

impl Archive {
    /// Reads the records of all streams. A stream that cannot be read or trusted is an error, even if the stop
    /// may lie before it: without it, an older state would look like the newest one. One that the keys do not open, such as that
    /// of an earlier key, is none if another one shows that it is history, and neither is one from before the archive was sealed.
    pub(super) async fn read(
        session: &Session,
        server: String,
        request: &UntilRequest,
        get: &GetRequest,
    ) -> Result<Self, BackupError> {
        let (keys, accept) = (&get.keys, get.accept);
        let (opened, unused) = (BTreeMap::new(), Vec::new());
        let mut this = Self { server, streams: Vec::new(), keys: opened, unused };
        let (mut empty, mut unsealed) = (Vec::new(), Vec::new());
        let ours = host_notes(&session.root, &this.server, request.state.as_deref())?;
        let own = StreamKeys::new(keys, session);
        for mut found in streams(&session.root, &this.server, &own).await? {
            let id = found.id.to_string();
            let wrong = |what: &str| wrong(&id, what);
            if found.stream.is_none() {
                // A receiver that was killed before it had written the head.
                if found.is_empty() {
                    continue;
                }
                let what = found.problems.first().map(ToString::to_string);
                return Err(wrong(what.as_deref().unwrap_or("no head")));
            }
            match open(&mut found, &this.server, &own)? {
                OpenedStream::Sealed(key) => drop(this.keys.insert(id.clone(), Arc::new(key))),
                OpenedStream::Plain if keys.is_empty() => {}
                OpenedStream::Plain => {
                    unsealed.push(found);
                    continue;
                }
                OpenedStream::Empty => {
                    empty.extend(found.stream);
                    continue;
                }
                OpenedStream::NoSlots => return Err(wrong("its key slots are missing")),
                OpenedStream::Locked(what) => {
                    let locked = Unused::Locked(what);
                    this.unused.extend(found.stream.map(|stream| (stream, locked)));
                    continue;
                }
            }
            this.streams.extend(sound(found)?);
        }
        this.take_unsealed(unsealed, accept.unsealed)?;
        if let Some(error) = this.hidden_end(request) {
            return Err(error);
        }
        if this.streams.is_empty() {
            return Err(no_archive(session, &this.server).await?);
        }
        if !request.accept_lost_end {
            let histories = Histories::new(&this.streams);
            match &request.stop {
                RestoreStop::Latest => {
                    let known = (&histories, &empty[..]);
                    match tail(&session.root, &this.server, known, &ours).await? {
                        Tail::Shown => {}
                        Tail::Shorter(what) => return Err(UntilError::LostEnd { what }.into()),
                        Tail::Open { stream, what } => {
                            let what = format!("stream {stream} of the archive: {what}");
                            return Err(UntilError::LostEnd { what }.into());
                        }
                        Tail::InDoubt { stream, what } => {
                            let what = format!("stream {stream} of the archive: {what}");
                            return Err(UntilError::DoubtfulEnd { what }.into());
                        }
                    }
                }
                // Two servers have such a moment.
                RestoreStop::Time(time) => {
                    if let Some((further, since)) = histories.beside()
                        && *time > since
                        && let Some((last, _)) = histories.newest()
                    {
                        let what = may_go_on(further, last);
                        let what = format!("stream {} of the archive: {what}", last.id());
                        return Err(UntilError::DoubtfulEnd { what }.into());
                    }
                }
                _ => {}
            }
        }
        Ok(this)
    }

    /// Uses streams that are not sealed, if the word for it was given. Behind a sealed stream, none is used: whoever can write
    /// to the store would decide what the latest state is.
    fn take_unsealed(
        &mut self,
        unsealed: Vec<ListedStream>,
        is_accepted: bool,
    ) -> Result<(), BackupError> {
        let locked = self.unused.iter().map(|(stream, _)| stream);
        let sealed: Vec<Stream> = self.streams.iter().chain(locked).cloned().collect();
        let of_unsealed: Vec<&Stream> =
            unsealed.iter().filter_map(|found| found.stream.as_ref()).collect();
        let behind: BTreeSet<String> = match sealed.is_empty() {
            true => BTreeSet::new(),
            false => unfollowed(&sealed, &of_unsealed).iter().map(|of| of.id().into()).collect(),
        };
        for found in unsealed {
            let id = found.id.to_string();
            match behind.contains(&id) {
                true => {
                    self.unused.extend(found.stream.map(|stream| (stream, Unused::UnsealedEnd)));
                }
                false if is_accepted => self.streams.extend(sound(found)?),
                false if sealed.is_empty() => return Err(unsealed_error(&id)),
                false => {
                    self.unused.extend(found.stream.map(|stream| (stream, Unused::Unsealed)));
                }
            }
        }
        // The sealed ones came first.
        self.streams.sort_by_key(|stream| stream.head.content.started);
        Ok(())
    }

    /// The error of an unused stream that may have the end of the archive, or the moment of the stop a second time. A GTID
    /// is looked for in what is there, unless such a stream began another history.
    fn hidden_end(&self, request: &UntilRequest) -> Option<BackupError> {
        let unused: Vec<&Stream> = self.unused.iter().map(|(stream, _)| stream).collect();
        let hidden = unfollowed(&self.streams, &unused);
        let is_branch =
            |stream: &Stream| matches!(stream.head.content.begins, StreamOrigin::Branch { .. });
        let is_in_the_way = |stream: &&&Stream| match request.stop {
            RestoreStop::Gtid(_) | RestoreStop::BeforeGtid(_) => is_branch(stream),
            _ => true,
        };
        let accepts = request.accept_lost_end && !self.streams.is_empty();
        let hidden = hidden.iter().filter(|_| !accepts).find(is_in_the_way);
        let hidden =
            hidden.copied().or_else(|| unused.first().copied().filter(|_| self.streams.is_empty()));
        hidden.and_then(|hidden| self.unused(hidden.id()))
    }

    /// The error of a stream that is not used.
    fn unused(&self, stream: &str) -> Option<BackupError> {
        let (_, why) = self.unused.iter().find(|(unused, _)| unused.id() == stream)?;
        Some(match why {
            Unused::Locked(what) => {
                BackupError::Keys(format!("stream {stream} of the archive: {what}"))
            }
            Unused::Unsealed => unsealed_error(stream),
            Unused::UnsealedEnd => UntilError::UnsealedEnd { stream: stream.to_owned() }.into(),
        })
    }

    /// The error of one of these backups that could be restored to a stop with a stream that is not used.
    pub(super) fn needs_unused(
        &self,
        backups: impl Iterator<Item = BasePosition>,
        stop: &RestoreStop,
    ) -> Option<BackupError> {
        if self.unused.is_empty() {
            return None;
        }
        let unused = self.unused.iter().map(|(stream, _)| stream);
        let mut all: Vec<Stream> = self.streams.iter().chain(unused).cloned().collect();
        all.sort_by_key(|stream| stream.head.content.started);
        let histories = Histories::new(&all);
        let mut needed = backups.filter_map(|noted| {
            let planned = histories.plan(&histories.locate(&noted)?, stop).ok()?;
            planned.pieces.iter().find_map(|piece| self.unused(piece.stream))
        });
        needed.next()
    }

    pub(super) fn key(&self, stream: &str) -> Option<Arc<DataKey>> {
        self.keys.get(stream).cloned()
    }
}

/// The records of a stream that is used. A fault of a segment counts if it is on the way, where it is missing then; that of a
/// record of the end, if the stop is the end.
fn sound(found: ListedStream) -> Result<Option<Stream>, BackupError> {
    let is_in_the_way = |problem: &&Problem| problem.part == Part::Stream;
    match found.problems.iter().find(is_in_the_way) {
        Some(problem) => Err(wrong(&found.id.to_string(), &problem.to_string())),
        None => Ok(found.stream),
    }
}

fn wrong(stream: &str, what: &str) -> BackupError {
    UntilError::Stream { stream: stream.to_owned(), what: what.to_owned() }.into()
}

fn unsealed_error(stream: &str) -> BackupError {
    wrong(
        stream,
        "it is not sealed, but a key was given: nothing proves that a holder of the key wrote it; to accept that, add --accept-unsealed",
    )
}
