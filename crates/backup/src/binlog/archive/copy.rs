//! Copies the archive of a server's log to another ROOT.
//!
//! Every object keeps its name and its bytes, so the copy has the history of the source with its gaps and branches.
//! `alive` is read before the segments are listed, and written after they are copied: it states none that the copy
//! has not had a chance to get.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use futures::StreamExt as _;
use xb_encryptor::{DataKey, Keys, KeysObject};
use xb_repo::archive::authority::{Authority, Keyless};
use xb_repo::archive::base::BasePosition;
use xb_repo::archive::ended;
use xb_repo::archive::listed_segment::ListedSegment;
use xb_repo::archive::listing::{ListedStream, servers, streams};
use xb_repo::archive::names::{
    ALIVE, END, HEAD, KEYS, STREAMS, floor_name, rollup_name, segment_name, server_folder,
    stream_folder,
};
use xb_repo::archive::plan::{Histories, Stream};
use xb_repo::archive::record::{Content, Record, RecordDigest};
use xb_repo::archive::rollup;
use xb_repo::archive::stop::RestoreStop;
use xb_repo::archive::stream::{Alive, End, Floor, StreamHead};
use xb_repo::error::RepoError;
use xb_repo::list::list_by_key;
use xb_repo::names::{BackupName, RunId};
use xb_repo::root::Root;
use xb_uploader::{ListedObject, StoreError, StoreErrorKind};

use crate::archive_error::ArchiveError;
use crate::binlog::archive::choose_archive::choose_archive;
use crate::binlog::archive::open::{Readable, StreamKeys, open};
use crate::binlog::archive::prune::{floors, open_problems};
use crate::binlog::archive::read::object;
use crate::cancel::OrInterrupted as _;
use crate::error::BackupError;
use crate::session::Session;
use crate::until_error::UntilError;

/// Memory of a segment on its way, in bytes: as it was read, and as it is read back.
const OF_ONE: u64 = 128 << 20;
/// Pairs of listings that are compared.
const TRIES: usize = 3;
/// Largest roll-up that is copied.
const MAX_ROLL_UP: u64 = 32 << 20;

/// Result of a copy of an archive.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ArchiveCopy {
    /// Name of the server.
    pub server: String,
    /// Segments that were copied now.
    pub segments: u64,
    /// Bytes of their objects.
    pub bytes: u64,
    /// Segments that were there already. Their heads were compared, and nothing else.
    pub kept: u64,
    /// Where the copy ends, if the backup reaches it.
    pub ends_at: Option<String>,
    /// Parts that could not be copied. The backup may not need them.
    pub notes: Vec<String>,
    /// Why the backup cannot be restored to the end of the log at the destination, if so.
    pub problem: Option<String>,
}

/// The name of the server whose archive belongs to a backup of the session.
///
/// # Errors
/// [`UntilError::WhichServer`] if there is none, or more than one may be meant; [`BackupError::Repo`].
pub(crate) async fn archive_of(
    session: &Session,
    name: &BackupName,
) -> Result<String, BackupError> {
    let manifest = session.cancel.or(session.root.manifest(name)).await?;
    let of_backup = manifest.and_then(|manifest| manifest.server);
    let server = session.cancel.or(choose_archive(session, None, of_backup.as_deref())).await?;
    if !session.cancel.or(servers(&session.root)).await?.contains(&server) {
        let what = format!(
            "the log of {server} is not archived beside the backup: leave out --with-binlog, or start `binlog receive`"
        );
        return Err(UntilError::WhichServer(what).into());
    }
    Ok(server)
}

/// Copies what the archive of `server` has, and `to` lacks. An archive that begins at `to` begins where the
/// backups there need it; an older backup that is copied later finds no log. `name` is the backup, as it is called at
/// `to`: whether it reaches the end there is part of the result.
///
/// Without keys, each segment is compared with its head, and each head with the next one; with keys, each record also has to be
/// that of a holder of the key.
///
/// # Errors
/// [`BackupError::Archive`] if `to` has another archive of that name; [`BackupError::Repo`] if a store cannot be read or
/// written. What is copied by then is a part of the archive, and stays.
pub(crate) async fn copy_archive(
    session: &Session,
    to: &Root,
    server: &str,
    name: &BackupName,
    keys: &Keys,
) -> Result<ArchiveCopy, BackupError> {
    let cancel = &session.cancel;
    let folder = server_folder(server).map_err(RepoError::from)?;
    let own = StreamKeys::new(keys, session);
    let (mut lives, mut found) = cancel.or(alike(&session.root, server, &folder, &own)).await?;
    let there = cancel.or(streams(to, server, &Keyless)).await?;
    if let Some(other) = there.iter().find(|there| found.iter().all(|own| own.id != there.id)) {
        let what = format!(
            "the destination has stream {} of {server}, which this archive lacks: it belongs to a different archive, and archives are never mixed; copy to another destination",
            other.id
        );
        return Err(ArchiveError::Copy(what).into());
    }
    let has_begun = |found: &ListedStream| {
        there.iter().any(|there| there.id == found.id && there.stream.is_some())
    };
    let begins = match found.iter().all(has_begun) {
        true => BTreeMap::new(),
        false => floors(server, &found, &cancel.or(list_by_key(to)).await?),
    };
    let mut report = ArchiveCopy { server: server.to_owned(), ..ArchiveCopy::default() };
    let mut opened = Vec::new();
    for found in &mut found {
        let key = match keys.is_empty() {
            true => None,
            false => match open(found, server, &own)?.readable(keys) {
                Readable::Segments(key, None) => key,
                Readable::Nothing(None) => continue,
                Readable::Segments(_, Some(what)) | Readable::Nothing(Some(what)) => {
                    report.notes.push(format!("stream {}: {what}; it is not copied", found.id));
                    continue;
                }
            },
        };
        opened.push((found.id, key));
    }
    let mut copies = Vec::new();
    let all: Vec<Stream> = found.iter().filter_map(|found| found.stream.clone()).collect();
    let histories = Histories::new(&all);
    for (id, key) in opened {
        let Some(found) = found.iter().find(|found| found.id == id) else { continue };
        let problems = open_problems(&histories, found);
        let of_stream = problems.map(|what| format!("stream {}: {what}", found.id));
        report.notes.extend(of_stream);
        let Some(stream) = found.stream.as_ref() else { continue };
        let there = there.iter().find(|there| there.id == found.id);
        let folder = stream_folder(&folder, found.id);
        copies.push(StreamCopy { session, to, server, folder, key, found, stream, there });
    }
    let begin = |copy: &StreamCopy<'_>| {
        let floor = copy.stream.floor.as_ref();
        begins.get(&copy.found.id).or(floor).cloned()
    };
    // The newest one first, as a beginning without an end: a copy that is interrupted must not look like the whole archive.
    copies.sort_by_key(|copy| copy.stream.head.content.started);
    // What has ended and is there is there for good: with many streams, each request for each of them counts.
    let (whole, copies): (Vec<_>, Vec<_>) = copies.into_iter().partition(StreamCopy::is_there);
    report.kept += whole.iter().map(|copy| copy.stream.segments.len() as u64).sum::<u64>();
    for copy in copies.iter().rev() {
        report.notes.extend(cancel.or(copy.begin(begin(copy).as_ref())).await?);
    }
    for copy in &copies {
        let life = lives.remove(&copy.found.id).flatten();
        cancel.or(copy.all(begin(copy).as_ref(), life, &mut report)).await?;
    }
    let is_other = |copy: &&StreamCopy<'_>| copy.there.is_some() && !copy.has_keys_there();
    let others = copies.iter().filter(is_other).map(|copy| copy.found.id).collect();
    cancel.or(ended_streams(session, to, &folder, &others)).await?;
    match cancel.or(prove(to, server, name, &found)).await? {
        Ok(end) => report.ends_at = Some(end),
        Err(what) => report.problem = Some(what),
    }
    Ok(report)
}

/// The streams, and before them their signs of life. Two listings have to name the same streams: one that is short would
/// hide the newest one, and a stream that has just begun is there in the next pair.
async fn alike(
    root: &Root,
    server: &str,
    folder: &str,
    authority: &dyn Authority,
) -> Result<(BTreeMap<RunId, Option<Bytes>>, Vec<ListedStream>), BackupError> {
    for _ in 0..TRIES {
        let lives = lives(root, folder).await?;
        let found = streams(root, server, authority).await?;
        let ids: BTreeSet<RunId> = found.iter().map(|found| found.id).collect();
        if lives.keys().eq(&ids) {
            return Ok((lives, found));
        }
    }
    let what = format!("two listings of the archive of {server} name different streams: try again");
    Err(ArchiveError::Copy(what).into())
}

/// Reads the streams' signs of life, as they are stored.
async fn lives(root: &Root, folder: &str) -> Result<BTreeMap<RunId, Option<Bytes>>, RepoError> {
    let mut lives = BTreeMap::new();
    let ids = root.folders_below(folder).await?;
    for id in ids.iter().filter_map(|id| RunId::parse(id)) {
        lives.insert(id, small(root, &format!("{}/{ALIVE}", stream_folder(folder, id))).await?);
    }
    Ok(lives)
}

async fn small(root: &Root, key: &str) -> Result<Option<Bytes>, StoreError> {
    match root.store().get(&root.key(key)).await {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind == StoreErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Copies the roll-ups of streams that have ended, which the destination lacks. They save requests; one that is damaged, or
/// has a stream with other key slots there, is left out.
async fn ended_streams(
    session: &Session,
    to: &Root,
    folder: &str,
    others: &BTreeSet<RunId>,
) -> Result<(), BackupError> {
    let below = format!("{folder}/{STREAMS}");
    let names = |listed: Vec<ListedObject>| listed.into_iter().map(|of| of.key);
    let there: BTreeSet<String> = names(to.list_below(&below).await?).collect();
    for name in names(session.root.list_below(&below).await?) {
        if there.contains(&name) {
            continue;
        }
        let key = session.root.key(&format!("{below}/{name}"));
        let Ok(bytes) = session.root.store().get_at_most(&key, MAX_ROLL_UP).await else { continue };
        let object = bytes.to_vec();
        let read = tokio::task::spawn_blocking(move || ended::decode(object));
        if let Ok(Ok(streams)) = read.await
            && streams.iter().all(|of| !others.contains(&of.id))
        {
            to.store().create(&to.key(&format!("{below}/{name}")), bytes).await?;
        }
    }
    Ok(())
}

/// Compares what can be restored from the backup here and there. The error of the inner one says why it does not reach
/// the end of the archive.
async fn prove(
    to: &Root,
    server: &str,
    name: &BackupName,
    found: &[ListedStream],
) -> Result<Result<String, String>, BackupError> {
    let manifest = to.manifest(name).await?;
    let Some(noted) = manifest.as_ref().and_then(BasePosition::of) else {
        return Ok(Err(
            "it records no position in the log, as if the log was off when it was taken".to_owned(),
        ));
    };
    let all = |found: &[ListedStream]| -> Vec<Stream> {
        found.iter().filter_map(|found| found.stream.clone()).collect()
    };
    let (here, there) = (all(found), all(&streams(to, server, &Keyless).await?));
    Ok(match (reached(&here, &noted), reached(&there, &noted)) {
        (Err(what), _) => Err(what),
        (_, Err(what)) => Err(format!("at the destination only, {what}")),
        (Ok(here), Ok(there)) if here != there => {
            Err(format!("at the destination it ends at {there} instead of {here}"))
        }
        (Ok(end), Ok(_)) => Ok(end),
    })
}

/// Where a replay to the end of the archive ends.
fn reached(streams: &[Stream], noted: &BasePosition) -> Result<String, String> {
    let none = || "the archive does not have its transactions".to_owned();
    let histories = Histories::new(streams);
    let base = histories.locate(noted).ok_or_else(none)?;
    let planned = histories.plan(&base, &RestoreStop::Latest);
    let planned = planned.map_err(|error| error.to_string())?;
    let last = planned.pieces.last();
    Ok(last.map_or_else(
        || base.position.to_string(),
        |piece| format!("{}:{}", piece.segment.from.log, piece.until),
    ))
}

/// The copy of one stream.
struct StreamCopy<'a> {
    session: &'a Session,
    to: &'a Root,
    server: &'a str,
    /// Folder of the stream, below either ROOT.
    folder: String,
    key: Option<DataKey>,
    found: &'a ListedStream,
    stream: &'a Stream,
    there: Option<&'a ListedStream>,
}

impl StreamCopy<'_> {
    /// Returns whether the destination has all of a stream that has ended, so that nothing is to be copied or said.
    fn is_there(&self) -> bool {
        let Some((there, stream)) =
            self.there.and_then(|there| Some((there, there.stream.as_ref()?)))
        else {
            return false;
        };
        fn named<T>(record: Option<&Record<T>>) -> Option<RecordDigest> {
            record.map(|record| record.digest)
        }
        let is_at = |number: &u64, of: &ListedSegment| {
            stream.segments.get(number).is_some_and(|there| there.digest == of.digest)
        };
        let first = stream.floor.as_ref().map_or(0, |floor| floor.number);
        let below = self.stream.removed_below;
        let mut segments = self.stream.segments.range(first..);
        self.found.end.is_some()
            && self.found.problems.is_empty()
            && there.problems.is_empty()
            && self.has_keys_there()
            && stream.head.digest == self.stream.head.digest
            && named(there.end.as_ref()) == named(self.found.end.as_ref())
            && named(there.alive.as_ref()) == named(self.found.alive.as_ref())
            && segments.all(|(number, of)| is_at(number, of))
            && (stream.removed_below >= below
                || (first..below).all(|number| there.sizes.contains_key(&number)))
            && self.found.rollups.iter().all(|span| span.1 < first || there.rollups.contains(span))
    }

    /// Returns whether the key slots at the destination are those of the source.
    fn has_keys_there(&self) -> bool {
        let here = self.found.keys.as_ref().map(KeysObject::encode);
        here == self.there.and_then(|there| there.keys.as_ref()).map(KeysObject::encode)
    }

    /// Copies the head of the stream, and its key slots. Returns what is to be said of them.
    async fn begin(&self, begin: Option<&Floor>) -> Result<Option<String>, BackupError> {
        // Before the segments, so that what is missing is never taken for a loss.
        if self.there.is_none_or(|there| there.stream.is_none())
            && let Some(floor) = begin
        {
            let record = Record::encode(floor, None).map_err(ArchiveError::from)?;
            self.create(&floor_name(floor.number), record.into()).await?;
        }
        let head = self.record::<StreamHead>(HEAD, self.stream.head.digest).await?;
        self.create(HEAD, head).await?;
        let Some(keys) = &self.found.keys else { return Ok(None) };
        match self.there.and_then(|there| there.keys.as_ref()) {
            None => self.create(KEYS, self.keys(keys).await?).await?,
            Some(there) if there.encode() == keys.encode() => {}
            Some(_) => {
                return Ok(Some(format!(
                    "stream {}: the destination has different key slots, and keeps them",
                    self.found.id
                )));
            }
        }
        Ok(None)
    }

    /// Copies the rest of a stream that has begun.
    async fn all(
        &self,
        begin: Option<&Floor>,
        life: Option<Bytes>,
        report: &mut ArchiveCopy,
    ) -> Result<(), BackupError> {
        let first = match self.there.and_then(|there| there.stream.as_ref()) {
            // Its own `prune` decides.
            Some(there) => there.floor.as_ref(),
            None => begin,
        };
        let first = first.map_or(0, |floor| floor.number);
        self.removed(first, report).await?;
        self.segments(first, report).await?;
        self.roll_ups(first).await?;
        if let Some(end) = &self.found.end {
            let end = self.record::<End>(END, end.digest).await?;
            self.create(END, end).await?;
        }
        self.alive(life).await
    }

    /// Notes at the destination that neither side has segments, because the source has removed them. Those before them
    /// stay there, for the backups that end before the hole.
    async fn removed(&self, first: u64, report: &mut ArchiveCopy) -> Result<(), BackupError> {
        let below = self.stream.removed_below;
        let sizes =
            || std::iter::once(&self.found.sizes).chain(self.there.map(|there| &there.sizes));
        let has = |number: u64| sizes().any(|sizes| sizes.contains_key(&number));
        let Some(lost) = (first..below).find(|number| !has(*number)) else { return Ok(()) };
        let next = sizes().filter_map(|sizes| Some(*sizes.range(lost..).next()?.0)).min();
        let next = next.map_or(below, |next| next.min(below));
        let is_noted = self.there.and_then(|there| there.stream.as_ref());
        let is_noted = is_noted.is_some_and(|there| there.removed_below >= below);
        // A floor would hide what a stream without its first segment still has.
        if is_noted || (lost == first && has(below - 1)) {
            return Ok(());
        }
        let name = floor_name(below);
        let key = self.session.root.key(&format!("{}/{name}", self.folder));
        let bytes = self.session.root.store().get(&key).await?;
        let floor = Record::<Floor>::decode(&bytes).map_err(|error| {
            let of = format!("the archive of {}: {key}", self.server);
            ArchiveError::Copy(format!(
                "{of}: {error}; it records where the log begins after `prune`, and no more of this stream was copied: put this object back from another copy of the archive, or from an earlier version of it, or leave out --with-binlog to copy the backup alone"
            ))
        })?;
        let floor = floor.content;
        if floor.stream != self.stream.id() || floor.number != below {
            return Err(self.changed(&name));
        }
        if lost > first {
            report.notes.push(format!(
                "segments {lost} to {} of stream {} were not copied before the source removed them: no backup from before them can be restored beyond segment {} at the destination; copy more often than the source prunes",
                next - 1,
                self.found.id,
                lost - 1,
            ));
        }
        Ok(self.create(&name, bytes).await?)
    }

    async fn segments(&self, first: u64, report: &mut ArchiveCopy) -> Result<(), BackupError> {
        let there = self.there.and_then(|there| there.stream.as_ref());
        // One that is there with another head, or with none that can be read, is compared byte by byte.
        let mut missing: Vec<&ListedSegment> = Vec::new();
        for (number, segment) in self.stream.segments.range(first..) {
            let head = there.and_then(|there| there.segments.get(number));
            match head.is_some_and(|head| head.digest == segment.digest) {
                true => report.kept += 1,
                false => missing.push(segment),
            }
        }
        let Session { root, resources, .. } = self.session;
        let memory = usize::try_from(resources.memory / OF_ONE).unwrap_or(usize::MAX);
        let at_once = memory.clamp(1, resources.parallel.max(1));
        let copying = missing.into_iter().map(|segment| async move {
            let number = segment.number;
            match object(root, &self.folder, segment).await? {
                Ok((_, bytes)) => {
                    let len = bytes.len() as u64;
                    match self.create(&segment_name(number), bytes).await {
                        Ok(()) => Ok::<_, BackupError>(Ok(len)),
                        Err(error) if error.kind == StoreErrorKind::AlreadyExists => {
                            Ok(Err(self.named(number, "the destination has another one")))
                        }
                        Err(error) => Err(error.into()),
                    }
                }
                Err(what) => Ok(Err(self.named(number, &what))),
            }
        });
        let copying: Vec<_> = copying.collect();
        let mut copied = std::pin::pin!(futures::stream::iter(copying).buffered(at_once));
        while let Some(copied) = copied.next().await {
            match copied? {
                Ok(len) => {
                    report.segments += 1;
                    report.bytes += len;
                }
                Err(what) => report.notes.push(what),
            }
        }
        Ok(())
    }

    fn named(&self, number: u64, what: &str) -> String {
        format!("stream {}, segment {number}: {what}; it is not copied", self.found.id)
    }

    /// Copies the roll-ups that the destination lacks. They save requests; one that is damaged is left out.
    async fn roll_ups(&self, first: u64) -> Result<(), BackupError> {
        let there = self.there.map_or(&[][..], |there| &there.rollups);
        let root = &self.session.root;
        for span in self.found.rollups.iter().filter(|span| span.1 >= first) {
            if there.contains(span) {
                continue;
            }
            let name = rollup_name(*span);
            let key = root.key(&format!("{}/{name}", self.folder));
            let Ok(bytes) = root.store().get_at_most(&key, MAX_ROLL_UP).await else { continue };
            let (object, id, span) = (bytes.to_vec(), self.stream.id().to_owned(), *span);
            let read = tokio::task::spawn_blocking(move || rollup::decode(object, &id, span));
            if matches!(read.await, Ok(Ok(_))) {
                self.create(&name, bytes).await?;
            }
        }
        Ok(())
    }

    /// Writes the sign of life, unless the destination has a later one.
    async fn alive(&self, life: Option<Bytes>) -> Result<(), BackupError> {
        let Some(life) = life else { return Ok(()) };
        // What is wrong with it is among the problems.
        let Ok(record) = Record::<Alive>::decode(&life) else { return Ok(()) };
        let is_authentic = self
            .key
            .as_ref()
            .is_none_or(|key| record.authenticate(&key.archive_mac(&self.found.id.0)).is_ok());
        if !is_authentic || record.content.stream != self.stream.id() {
            return Ok(());
        }
        // Read now: another copy may have written one meanwhile.
        let name = format!("{}/{ALIVE}", self.folder);
        let there = small(self.to, &name).await?;
        let there = there.and_then(|there| Record::<Alive>::decode(&there).ok());
        let is_later = there.is_some_and(|there| {
            there.content.segments > record.content.segments
                || there.content.written > record.content.written
        });
        if is_later {
            return Ok(());
        }
        let key = self.to.key(&name);
        self.to.store().put(&key, life.clone().into()).await?;
        Ok(self.to.store().confirm_content(&key, &life).await?)
    }

    /// The bytes of a record whose digest is known.
    async fn record<T: Content>(
        &self,
        name: &str,
        digest: RecordDigest,
    ) -> Result<Bytes, BackupError> {
        let root = &self.session.root;
        let bytes = root.store().get(&root.key(&format!("{}/{name}", self.folder))).await?;
        let record = Record::<T>::decode(&bytes).map_err(ArchiveError::from)?;
        match record.digest == digest {
            true => Ok(bytes),
            false => Err(self.changed(name)),
        }
    }

    /// The bytes of the key slots. No checksum proves them, so two answers have to say the same.
    async fn keys(&self, known: &KeysObject) -> Result<Bytes, BackupError> {
        let root = &self.session.root;
        let bytes = root.store().get(&root.key(&format!("{}/{KEYS}", self.folder))).await?;
        let again = KeysObject::parse(&bytes).map_err(ArchiveError::from)?;
        match again.encode() == known.encode() {
            true => Ok(bytes),
            false => Err(self.changed(KEYS)),
        }
    }

    fn changed(&self, name: &str) -> BackupError {
        let what = format!("{} of stream {} was changed meanwhile: try again", name, self.found.id);
        ArchiveError::Copy(format!("the archive of {}: {what}", self.server)).into()
    }

    async fn create(&self, name: &str, bytes: Bytes) -> Result<(), StoreError> {
        let key = self.to.key(&format!("{}/{name}", self.folder));
        self.to.store().create(&key, bytes).await
    }
}
