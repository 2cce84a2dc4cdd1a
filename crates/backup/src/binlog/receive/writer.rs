//! Writes the objects of a stream: seals segments, stores several at once, and moves forward over those that
//! are stored without a hole.

use std::io::Cursor;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use xb_compressor::Algorithm;
use xb_encryptor::{ArchiveKey, FreshKey, KeySlots, KeysObject, MacKey};
use xb_pipeline::Observer;
use xb_pipeline::filter::{SealFile, write_stream};
use xb_repo::archive::domain::DomainContent;
use xb_repo::archive::ended::{EndedStream, encode};
use xb_repo::archive::killed::left_by_killed;
use xb_repo::archive::names::{
    ALIVE, END, HEAD, KEYS, STREAMS, rollup_name, segment_name, server_folder, stream_folder,
};
use xb_repo::archive::record::{Content, FORMAT, Record, digest};
use xb_repo::archive::rollup::{PendingHeads, RollUp};
use xb_repo::archive::segment::{AHEAD, Body, SegmentHead, StoredBarrier};
use xb_repo::archive::stream::{Alive, End, Link, StoredPosition, StreamHead};
use xb_repo::error::RepoError;
use xb_repo::hex::hex;
use xb_repo::names::RunId;
use xb_repo::root::Root;
use xb_uploader::{StoreError, StoreErrorKind};

use crate::archive_error::ArchiveError;
use crate::binlog::overlap::start::Start;
use crate::binlog::receive::notice::{Notice, Tell};
use crate::binlog::receive::segmenter::Cut;
use crate::binlog::receive::session::Server;

/// Domains of a segment whose transactions its head describes.
const MAX_DOMAINS: usize = 256;
/// The longest pause between two tries to store an object, in seconds.
const LONGEST_PAUSE: u64 = 30;

/// A stream that is being written.
pub(crate) struct StreamWriter {
    root: Root,
    folder: String,
    id: RunId,
    key: Option<Arc<ArchiveKey>>,
    mac: Option<MacKey>,
    /// Its head and its key slots, as they are stored.
    records: [Bytes; 2],
    compress: Algorithm,
    threads: usize,
    tell: Tell,
    /// Number of the next segment, and the digest of the head before it.
    number: u64,
    previous: String,
    /// Segments stored without a hole, and those of their heads that no large roll-up has yet.
    stored: StoredPrefix,
    /// Why nothing more is received, if so.
    trouble: Option<String>,
    heads: PendingHeads,
}

/// Segments stored without a hole.
#[derive(Debug, Clone)]
pub(crate) struct StoredPrefix {
    pub(crate) segments: u64,
    head: String,
    pub(crate) position: StoredPosition,
    pub(crate) covered_until: Option<Timestamp>,
    /// Every commit between these times has waited until it was stored.
    acknowledged: Option<[Timestamp; 2]>,
}

/// A segment on its way.
#[derive(Debug, Clone)]
pub(crate) struct PackedSegment {
    pub(crate) number: u64,
    pub(crate) digest: String,
    /// Its head, as it is stored.
    pub(crate) record: Bytes,
    pub(crate) to: StoredPosition,
    /// Time of its last transaction, in whole seconds.
    pub(crate) until: Option<Timestamp>,
    /// Its first barrier.
    pub(crate) barrier: Option<StoredBarrier>,
    object: Bytes,
}

impl StreamWriter {
    /// Begins a stream: writes its head and its key slots. Without key slots it is not sealed.
    pub(crate) async fn begin(
        root: &Root,
        server_name: &str,
        server: &Server,
        start: &Start,
        key_slots: &KeySlots,
        compress: Algorithm,
        threads: usize,
        tell: Tell,
    ) -> Result<Self, ArchiveError> {
        let id = RunId::random().map_err(RepoError::from)?;
        let folder = server_folder(server_name).map_err(RepoError::from)?;
        let folder = stream_folder(&folder, id);
        let slots = key_slots.list();
        let key = (!slots.is_empty()).then(ArchiveKey::generate).transpose()?;
        let keys = key.as_ref().map(|key| KeysObject::seal(key.key(), id.0, &slots)).transpose()?;
        let mac = key.as_ref().map(|key| key.key().archive_mac(&id.0));
        let sealed = keys.iter().flat_map(KeysObject::slots).map(|slot| slot.to_string()).collect();
        let mut head = StreamHead {
            format: FORMAT,
            stream: id.to_string(),
            server: server_name.to_owned(),
            tool: concat!("xbcloud-rs ", env!("CARGO_PKG_VERSION")).to_owned(),
            started: Timestamp::now(),
            server_version: server.version.clone(),
            server_id: server.id,
            server_uuid: server.uuid.clone(),
            node: server.role.node.clone(),
            host: server.host(),
            start: start.at.clone(),
            gtids: start.gtids.clone(),
            outside: Some(server.role.outside.to_string()).filter(|set| !set.is_empty()),
            begins: start.begins.clone(),
            repeats: start.repeats.clone(),
            settings: server.settings.clone(),
            settings_at: server.settings_at.clone(),
            system_zone: server.system_zone.clone(),
            engines: server.engines.clone(),
            doubts: server.doubts.clone(),
            sealed,
        };
        head.format = head.needed_format();
        let head = Record::encode(&head, mac.as_ref())?;
        let previous = digest(&head);
        let stored = StoredPrefix {
            segments: 0,
            head: previous.clone(),
            position: start.at.clone(),
            covered_until: None,
            acknowledged: None,
        };
        let key = key.map(Arc::new);
        let root = root.clone();
        let keys = keys.map_or_else(Bytes::new, |keys| keys.encode().to_vec().into());
        let records = [head.into(), keys];
        let writer = Self {
            root,
            folder,
            id,
            key,
            mac,
            records,
            compress,
            threads,
            tell,
            number: 0,
            previous,
            stored,
            trouble: None,
            heads: PendingHeads::new(),
        };
        let [head, keys] = writer.records.clone();
        writer.create(HEAD, head).await?;
        if !keys.is_empty() {
            writer.create(KEYS, keys).await?;
        }
        Ok(writer)
    }

    pub(crate) fn id(&self) -> RunId {
        self.id
    }

    pub(crate) fn stored(&self) -> &StoredPrefix {
        &self.stored
    }

    /// Compresses and seals a segment, and gives it its number.
    pub(crate) async fn pack(&mut self, cut: Cut) -> Result<PackedSegment, ArchiveError> {
        let seal = self.key.as_ref().map(|key| key.fresh_segment()).transpose()?;
        let id = seal.as_ref().map(|(id, _)| hex(id));
        let (compress, threads) = (self.compress, self.threads);
        // A record has a limit, and a session may give its transactions any domain.
        let domains = cut.contents.stretch().filter(|of| of.domains().count() <= MAX_DOMAINS);
        let domains = domains.map(|stretch| DomainContent::all(&stretch));
        // Lost changes are worse than a tablespace that may have moved.
        let is_loss = |barrier: &&StoredBarrier| barrier.kind == "incident";
        let worst = cut.barriers.iter().find(is_loss).or(cut.barriers.first());
        let (bytes, barrier) = (cut.bytes, worst.cloned());
        let body = native(bytes, seal, compress, threads).await?;
        let head = SegmentHead {
            format: FORMAT,
            stream: self.id.to_string(),
            number: self.number,
            previous: self.previous.clone(),
            from: cut.from,
            to: cut.to.clone(),
            next_log: cut.next_log,
            description: hex(&cut.description),
            gtids_before: cut.gtids_before,
            gtids_after: cut.gtids_after,
            starts_inside: cut.starts_inside,
            ends_inside: cut.ends_inside,
            transactions: cut.transactions,
            domains,
            turns: cut.turns,
            commits: cut.times.commits(),
            received: cut.received,
            last: cut.last,
            barriers: cut.barriers,
            more_barriers: cut.more_barriers,
            prepared: cut.prepared,
            altering: cut.altering,
            body: Body { id, len: body.len() as u64, sha256: digest(&body) },
        };
        let until = head.last_commit();
        let record: Bytes = Record::encode(&head, self.mac.as_ref())?.into();
        let object = [&record[..], &body].concat().into();
        self.previous = digest(&record);
        let number = self.number;
        self.number += 1;
        Ok(PackedSegment {
            number,
            digest: self.previous.clone(),
            record,
            to: cut.to,
            until,
            barrier,
            object,
        })
    }

    /// Stores a segment; waits as long as the store is away.
    pub(crate) fn store(
        &self,
        packed: PackedSegment,
    ) -> impl Future<Output = Result<PackedSegment, ArchiveError>> + Send + use<> {
        let (root, tell) = (self.root.clone(), Arc::clone(&self.tell));
        let key = root.key(&format!("{}/{}", self.folder, segment_name(packed.number)));
        async move {
            patiently(&root, &key, &packed.object, &tell).await?;
            Ok(packed)
        }
    }

    /// Notes that a segment is stored, as are all before it. Returns the roll-ups that it completes.
    pub(crate) fn advance(&mut self, packed: &PackedSegment) -> Vec<RollUp> {
        self.stored.segments = packed.number + 1;
        self.stored.head.clone_from(&packed.digest);
        self.stored.position = packed.to.clone();
        self.heads.add(&packed.record)
    }

    /// Stores a roll-up. One that is missing only costs requests, so it is tried once.
    pub(crate) fn roll_up(&self, rollup: RollUp) -> impl Future<Output = ()> + Send + use<> {
        let (root, tell, threads) = (self.root.clone(), Arc::clone(&self.tell), self.threads);
        let (folder, name) = (self.folder.clone(), rollup_name(rollup.span));
        async move { roll_up(&root, (&folder, &name), rollup.text, threads, &tell).await }
    }

    /// Stores the roll-up that this host's last receiver could not store, if it was killed: of the stream that this one
    /// follows.
    pub(crate) fn roll_up_killed(
        &self,
        server: &str,
        after: Link,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (root, tell, threads) = (self.root.clone(), Arc::clone(&self.tell), self.threads);
        let server = server.to_owned();
        async move {
            let left = left_by_killed(&root, &server, &after.stream, after.number).await;
            let folder = server_folder(&server).map(|folder| format!("{folder}/{}", after.stream));
            match (left, folder) {
                (Ok(Some(RollUp { span, text })), Ok(folder)) => {
                    roll_up(&root, (&folder, &rollup_name(span)), text, threads, &tell).await;
                }
                (Err(error), _) => tell(Notice::NotRolledUp(error.to_string())),
                _ => {}
            }
        }
    }

    /// Notes that everything up to this time is stored.
    pub(crate) fn cover(&mut self, until: Timestamp) {
        self.stored.covered_until = Some(covered(self.stored.covered_until, until));
    }

    /// Notes why nothing more is received.
    pub(crate) fn is_in_trouble(&mut self, what: String) {
        self.trouble = Some(what);
    }

    /// Notes in which time every commit has waited until it was stored.
    pub(crate) fn claim(&mut self, interval: Option<[Timestamp; 2]>) {
        self.stored.acknowledged = interval;
    }

    /// Says how far the stream reaches. Returns what was written.
    pub(crate) fn write_alive(
        &self,
    ) -> impl Future<Output = Result<Bytes, ArchiveError>> + Send + use<> {
        let root = self.root.clone();
        let key = root.key(&format!("{}/{ALIVE}", self.folder));
        let record = self.alive();
        async move {
            let record: Bytes = record?.into();
            root.store().put(&key, record.clone().into()).await?;
            Ok(record)
        }
    }

    fn alive(&self) -> Result<Vec<u8>, ArchiveError> {
        let alive = Alive {
            format: FORMAT,
            stream: self.id.to_string(),
            segments: self.stored.segments,
            head: self.stored.head.clone(),
            position: self.stored.position.clone(),
            covered_until: self.stored.covered_until,
            acknowledged: self.stored.acknowledged,
            written: Timestamp::now(),
            trouble: self.trouble.clone(),
        };
        self.record(&alive)
    }

    /// Ends the stream in order. Returns what was written.
    pub(crate) async fn end(&self) -> Result<Bytes, ArchiveError> {
        if let Some(rest) = self.heads.rest() {
            self.roll_up(rest).await;
        }
        let end = End {
            format: FORMAT,
            stream: self.id.to_string(),
            segments: self.stored.segments,
            head: self.stored.head.clone(),
        };
        let record: Bytes = self.record(&end)?.into();
        let key = self.root.key(&format!("{}/{END}", self.folder));
        self.root.store().create(&key, record.clone()).await?;
        Ok(record)
    }

    /// The records of the stream once it has ended, with the last ones that were written.
    pub(crate) fn ended(&self, alive: &Bytes, end: &Bytes) -> EndedStream {
        let [head, keys] = self.records.each_ref().map(|bytes| bytes.to_vec());
        let heads = self.heads.few().unwrap_or_default().to_vec();
        EndedStream { id: self.id, head, keys, alive: alive.to_vec(), end: end.to_vec(), heads }
    }

    /// Stores a roll-up of streams of this server that have ended, as [`StreamWriter::roll_up`] does.
    pub(crate) async fn roll_up_ended(&self, server: &str, streams: &[EndedStream]) {
        // A receiver that was killed behind this has stored the same streams, without the last one.
        let Some(last) = streams.last() else { return };
        let name = last.id.to_string();
        let Ok(folder) = server_folder(server) else { return };
        let folder = format!("{folder}/{STREAMS}");
        roll_up(&self.root, (&folder, &name), encode(streams), self.threads, &self.tell).await;
    }

    fn record<T: Content>(&self, content: &T) -> Result<Vec<u8>, ArchiveError> {
        Ok(Record::encode(content, self.mac.as_ref())?)
    }

    async fn create(&self, name: &str, bytes: Bytes) -> Result<(), ArchiveError> {
        let key = self.root.key(&format!("{}/{name}", self.folder));
        patiently(&self.root, &key, &bytes, &self.tell).await
    }
}

/// Stores a roll-up of this text, with this name in a folder.
async fn roll_up(
    root: &Root,
    (folder, name): (&str, &str),
    text: Vec<u8>,
    threads: usize,
    tell: &Tell,
) {
    let stored = async {
        // Of all codecs this one reads best, whatever the segments have.
        let codec = Algorithm::from_str("zstd").map_err(|error| error.to_string())?;
        let body = native(text, None, codec, threads).await.map_err(|error| error.to_string())?;
        let key = root.key(&format!("{folder}/{name}"));
        root.store().create(&key, body.into()).await.map_err(|error| error.to_string())
    };
    if let Err(what) = stored.await {
        tell(Notice::NotRolledUp(format!("{name}: {what}")));
    }
}

/// A native stream of these bytes.
async fn native(
    bytes: Vec<u8>,
    seal: Option<([u8; 16], FreshKey)>,
    compress: Algorithm,
    threads: usize,
) -> Result<Vec<u8>, ArchiveError> {
    let sealing = tokio::task::spawn_blocking(move || {
        let slots = KeySlots::default();
        let settings = SealFile { key_slots: &slots, compress, threads, raw: true };
        let mut body = Vec::new();
        write_stream(Cursor::new(bytes), &mut body, seal, &settings, &Observer::default())?;
        Ok(body)
    });
    sealing.await.map_err(|_| ArchiveError::Bug("a segment's thread panicked"))?
}

/// Writes an object only if it does not exist; tries again as long as the store is away.
async fn patiently(root: &Root, key: &str, bytes: &Bytes, tell: &Tell) -> Result<(), ArchiveError> {
    let mut pause = 1;
    loop {
        match root.store().create(key, bytes.clone()).await {
            Ok(()) => {
                if pause > 1 {
                    tell(Notice::StoreBack);
                }
                return Ok(());
            }
            Err(error) if may_pass(&error) => {
                tell(Notice::StoreAway(error.to_string()));
                tokio::time::sleep(Duration::from_secs(pause)).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// A store that refuses today may accept tomorrow, once its permissions are mended: nothing is lost by
/// asking again. Only an object of another writer stays.
fn may_pass(error: &StoreError) -> bool {
    !matches!(
        error.kind,
        StoreErrorKind::AlreadyExists | StoreErrorKind::Settings | StoreErrorKind::Fenced
    )
}

/// The later of two times up to which everything is stored, the second of which was read now. If that one is far behind, the clock
/// went back: it was ahead when the first one was read.
fn covered(known: Option<Timestamp>, until: Timestamp) -> Timestamp {
    let is_small = |known: &Timestamp| known.duration_since(until).as_secs() <= AHEAD;
    known.filter(is_small).map_or(until, |known| known.max(until))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_complete_up_to_what_the_clock_says_that_went_back() {
        let at = |second| Timestamp::from_second(second).unwrap();
        for (known, until, expected) in [
            (None, 7200, 7200),
            (Some(7200), 7230, 7230),
            (Some(7200), 7197, 7200),
            (Some(7200), 60, 60),
        ] {
            assert_eq!(covered(known.map(at), at(until)), at(expected));
        }
    }
}
