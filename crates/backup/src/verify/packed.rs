//! Verifies a packed backup: its objects against the listing, their checksums, and the stream.

use std::collections::BTreeSet;

use xb_frame::{Record, STREAM_HEADER_LEN};
use xb_pipeline::{
    IndexProof, IndexWatch, InspectError, InspectReport, Inspector, UnpackError, UnpackPlan,
};
use xb_repo::manifest::End;
use xb_repo::verification::{Level, MAX_PROBLEMS, Problem};
use xb_uploader::{StoreError, StoreErrorKind};

use super::contradicted::{refuse_contradicted, refuse_denied};
use super::files::{Hit, files_in};
use super::intact_objects::IntactObjects;
use super::passes::Content;
use super::results::{altered_once, counted, not_damage};
use super::run::{ReadableBackup, Run};
use super::sum_check::SumCheck;
use crate::cancel::OrInterrupted as _;
use crate::error::BackupError;
use crate::objects::checksums::{self, OTHER_STREAM};
use crate::read::get::{PackedStream, is_of_content, object_of};
use crate::read::packed_index::{Index, PackedBody};
use crate::read::ranges::{TransferResults, fetch_into};

/// Outcome of reading the whole stream.
enum ReadAll {
    Whole,
    Damaged,
    /// A response was altered in transit.
    Altered(StoreError),
}

/// The data objects that a listing shows.
#[derive(Default)]
struct ListedObjects {
    /// Numbers of those with the right size.
    sound: BTreeSet<u64>,
    /// Numbers of all.
    there: BTreeSet<u64>,
    /// Keys of the others below the run's folder, and their faults.
    wrong: Vec<(String, String)>,
}

impl ListedObjects {
    fn is_whole(&self, objects: u64) -> bool {
        self.wrong.is_empty() && self.sound.len() as u64 == objects
    }

    /// The first of the numbers below `objects` that are not there, as many as a report names.
    fn missing(&self, objects: u64) -> Vec<u64> {
        (0..objects).filter(|number| !self.there.contains(number)).take(MAX_PROBLEMS).collect()
    }
}

/// Maximum number of damaged objects for which affected files are looked up.
const MAX_NAMED: usize = 100;

impl Run<'_> {
    pub(super) async fn packed(&mut self, packed: ReadableBackup) -> Result<(), BackupError> {
        if !self.wants(Level::List) {
            return Ok(());
        }
        self.session.observer.begin_phase("list");
        let sound = self.session.cancel.or(self.list(&packed)).await?;
        if !self.wants(Level::Checksum) {
            return Ok(());
        }
        self.session.observer.begin_phase("read");
        let ReadableBackup { manifest, facts, run, .. } = &packed;
        let known = checksums::read(&self.session.root, &self.request.name, manifest, facts, *run);
        let known = self
            .session
            .cancel
            .or(known)
            .await?
            .map_err(|why| self.warn(&format!("a damaged object cannot be named: {why}")))
            .ok();
        let readable = sound.is_all() && packed.can_be_opened();
        if readable
            && self.wants(Level::Decrypt)
            && self.session.cancel.or(self.lacks_file_key(&packed)).await?
        {
            return Err(self.no_file_key());
        }
        // If reading stops at the first damage, the other damaged objects are found below.
        if self.wants(Level::Decrypt)
            && readable
            && self.read_twice(&packed, known.as_deref()).await?
        {
            let what = counted(packed.manifest.objects, "object");
            self.report.close(Level::Checksum, what);
            self.close_read();
            return Ok(());
        }
        let sums = self.sum_all(&packed, known.as_deref(), &sound).await?;
        self.report.close(Level::Checksum, sums);
        if self.wants(Level::Decrypt) && readable {
            self.close_read();
        }
        self.leave_out_rest();
        Ok(())
    }

    /// Returns whether the index names files that are encrypted one by one while no key for them is given.
    /// If the index cannot show it, reading the stream will.
    async fn lacks_file_key(&self, packed: &ReadableBackup) -> Result<bool, BackupError> {
        let ReadableBackup { manifest, facts, run, .. } = packed;
        let run = *run;
        if self.request.keys.key.is_some() || matches!(manifest.end, End::Raw | End::NativeTrailer)
        {
            return Ok(false);
        }
        let (name, key) = (&self.request.name, packed.key.as_deref());
        let encrypted = async {
            let body =
                PackedBody::open(&self.session.root, name, manifest, facts, run, key).await?;
            let index = Index::load(&body).await?;
            for number in 0..index.len() {
                for record in index.records(&index.payload(number).await?)? {
                    let record = record.map_err(|error| index.bad_record(error))?;
                    if matches!(record, Record::File { path, .. } if path.ends_with(b".xbcrypt")) {
                        return Ok::<bool, BackupError>(true);
                    }
                }
            }
            Ok(false)
        };
        Ok(encrypted.await.unwrap_or(false))
    }

    /// Compares the backup with a listing; returns the objects that are there with the right size.
    ///
    /// The work depends on the listing, not on the number of objects that a manifest states.
    async fn list(&mut self, packed: &ReadableBackup) -> Result<IntactObjects, BackupError> {
        let keys = self.session.root.run_keys(&self.request.name, packed.run);
        let (objects, bytes) = (packed.manifest.objects, packed.manifest.stored_bytes);
        let mut found = self.listed(packed).await?;
        if !found.is_whole(objects) {
            // One listing that is short, or that shows other lengths, is no damage.
            found = self.listed(packed).await?;
            self.refuse_lying_listing(packed, &found).await?;
        }
        for (key, what) in std::mem::take(&mut found.wrong) {
            self.found(Level::List, Some(format!("{}/{key}", keys.folder())), what);
        }
        let absent = objects.saturating_sub(found.there.range(..objects).count() as u64);
        let named = found.missing(objects);
        for number in &named {
            let object = keys.shown(*number);
            self.found(Level::List, Some(object), "it is missing".to_owned());
        }
        self.report.more_problems += absent - named.len() as u64;
        self.report.close(Level::List, format!("objects: {objects}, bytes: {bytes}"));
        Ok(match found.sound.len() as u64 == objects {
            true => IntactObjects::All(0..objects),
            false => IntactObjects::Some(found.sound),
        })
    }

    async fn listed(&self, packed: &ReadableBackup) -> Result<ListedObjects, BackupError> {
        let keys = self.session.root.run_keys(&self.request.name, packed.run);
        let objects = packed.manifest.objects;
        let data = |key: &str| key.len() == 9 && key.bytes().all(|b| b.is_ascii_digit());
        let mut found = ListedObjects::default();
        for object in
            self.session.root.list_below(keys.folder()).await?.into_iter().filter(|o| data(&o.key))
        {
            let number = object.key.parse::<u64>().unwrap_or(u64::MAX);
            let expected = checksums::object_len(&packed.manifest, &packed.facts, number);
            let wrong = match number < objects {
                true if object.size == expected => {
                    found.sound.insert(number);
                    None
                }
                true => Some(format!("it has {} bytes, expected {expected}", object.size)),
                false => Some("it does not belong to the manifest".to_owned()),
            };
            found.there.insert(number);
            found.wrong.extend(wrong.map(|what| (object.key, what)));
        }
        Ok(found)
    }

    /// Absence and a wrong length count, unless the object itself is as the manifest demands.
    async fn refuse_lying_listing(
        &self,
        packed: &ReadableBackup,
        found: &ListedObjects,
    ) -> Result<(), BackupError> {
        let keys = &self.session.root.run_keys(&self.request.name, packed.run);
        let objects = packed.manifest.objects;
        let wrong = found.there.range(..objects).filter(|number| !found.sound.contains(number));
        let doubtful = found.missing(objects).into_iter().chain(wrong.copied()).take(MAX_PROBLEMS);
        let doubtful = doubtful.map(|number| {
            let expected = checksums::object_len(&packed.manifest, &packed.facts, number);
            (keys.data(number), move |size: u64| size == expected)
        });
        refuse_contradicted(self.session.root.store(), doubtful).await
    }

    /// Reads all objects for their checksums only.
    async fn sum_all(
        &mut self,
        packed: &ReadableBackup,
        known: Option<&[u64]>,
        sound: &IntactObjects,
    ) -> Result<String, BackupError> {
        let (plan, _) = self.plan()?;
        self.session.observer.expect_bytes(packed.manifest.stored_bytes);
        let mut check = SumCheck::new(known, sound);
        let observer = self.session.observer.clone();
        let stream = packed.stream(self, known);
        let TransferResults { fetched, .. } = fetch_into(
            self.session,
            &plan,
            stream.ranges(sound.clone().into_numbers(), plan.range),
            |range, crc| {
                check.range(range, crc);
                Ok(())
            },
            move |arriving| {
                for piece in arriving.flatten() {
                    observer.add_stored(piece.len() as u64);
                    observer.add_bytes(piece.len() as u64);
                }
            },
        )
        .await?;
        if let Err(error) = fetched {
            self.lost(Level::Checksum, error).await?;
            return Ok("the objects cannot be read to the end".to_owned());
        }
        self.compare(packed, check, sound.is_all()).await;
        Ok(counted(sound.count(), "object"))
    }

    /// Records the results of the checksum comparison.
    async fn compare(&mut self, packed: &ReadableBackup, mut check: SumCheck, all: bool) {
        let keys = self.session.root.run_keys(&self.request.name, packed.run);
        let all = !self.drop_altered(packed, &mut check).await && all;
        let numbers: Vec<u64> = check.wrong.iter().map(|(number, ..)| *number).collect();
        let files = self.files_in(packed, &numbers).await;
        for (n, (number, got, expected)) in check.wrong.iter().enumerate() {
            let hits = files.get(n).map_or(&[][..], Vec::as_slice);
            let more = match hits.get(1..) {
                None | Some([]) => String::new(),
                Some(more) => {
                    let names: Vec<&str> = more.iter().map(|(name, _)| name.as_str()).collect();
                    format!("; it also contains parts of {}", names.join(", "))
                }
            };
            self.report.problem(Problem {
                level: Level::Checksum,
                object: Some(keys.shown(*number)),
                file: hits.first().map(|(name, _)| name.clone()),
                offset: hits.first().map(|(_, offset)| *offset),
                what: format!("its CRC-64 is {got:016x}, expected {expected:016x}{more}"),
            });
        }
        if all
            && check.wrong.is_empty()
            && let Err(what) = check.root.compare(&packed.facts.root)
        {
            self.found(Level::Checksum, None, what);
        }
    }

    /// Reads objects with a wrong checksum again, as far as that was not done yet, and leaves out
    /// those that are sound. Returns whether there were any; then the root digest of what was read
    /// means nothing, but that of the known checksums was compared.
    async fn drop_altered(&mut self, packed: &ReadableBackup, check: &mut SumCheck) -> bool {
        let keys = self.session.root.run_keys(&self.request.name, packed.run);
        let mut altered = Vec::new();
        for (number, _, expected) in check.wrong.iter().take(MAX_NAMED) {
            let key = keys.data(*number);
            let again = self.session.root.store().read_back(&key).await;
            if again.is_ok_and(|again| again.crc64 == *expected) {
                self.warn(&altered_once(&key));
                altered.push(*number);
            }
        }
        check.wrong.retain(|(number, ..)| !altered.contains(number));
        !altered.is_empty()
    }

    /// Files that have bytes in these objects, as far as the index can be read.
    async fn files_in(&self, packed: &ReadableBackup, numbers: &[u64]) -> Vec<Vec<Hit>> {
        if numbers.is_empty() || !packed.can_be_opened() {
            return Vec::new();
        }
        let ReadableBackup { manifest, facts, run, .. } = packed;
        let run = *run;
        let (name, key) = (&self.request.name, packed.key.as_deref());
        let chunk = facts.chunk_size;
        let ranges = numbers.iter().take(MAX_NAMED).map(|number| {
            let start = number.saturating_mul(chunk);
            start..start.saturating_add(chunk)
        });
        let ranges: Vec<_> = ranges.collect();
        let body = PackedBody::open(&self.session.root, name, manifest, facts, run, key).await;
        let Ok(body) = body else { return Vec::new() };
        files_in(&body, &ranges).await.unwrap_or_default()
    }

    /// Records a listed object that is missing or damaged; returns any other error. It is missing only if the store shows it
    /// in no other way either.
    pub(super) async fn lost(
        &mut self,
        level: Level,
        error: StoreError,
    ) -> Result<(), BackupError> {
        match error.kind {
            StoreErrorKind::NotFound => {
                refuse_denied(self.session.root.store(), &error.key, level).await?
            }
            StoreErrorKind::Damaged => {}
            _ => return Err(error.into()),
        }
        self.found(level, Some(error.key.clone()), error.to_string());
        Ok(())
    }

    /// Reads and inspects the stream; again from the start if a response was altered in transit.
    /// Returns `false` if it stopped at damage.
    async fn read_twice(
        &mut self,
        packed: &ReadableBackup,
        known: Option<&[u64]>,
    ) -> Result<bool, BackupError> {
        match self.read_all(packed, known).await? {
            ReadAll::Whole => Ok(true),
            ReadAll::Damaged => Ok(false),
            ReadAll::Altered(error) => {
                self.warn(&format!("{error}; the stream was read again"));
                match self.read_all(packed, known).await? {
                    ReadAll::Whole => Ok(true),
                    ReadAll::Damaged => Ok(false),
                    ReadAll::Altered(error) => Err(error.into()),
                }
            }
        }
    }

    /// Reads and inspects the stream, and computes the checksums of its objects.
    async fn read_all(
        &mut self,
        packed: &ReadableBackup,
        known: Option<&[u64]>,
    ) -> Result<ReadAll, BackupError> {
        let (plan, share) = self.plan()?;
        let manifest = &packed.manifest;
        self.session.observer.expect_bytes(manifest.stream_bytes);
        let watch = IndexWatch::default();
        let content = match manifest.end {
            End::Raw => Content::Unknown,
            End::NativeTrailer => {
                let inspector = Inspector::new(self.inspect(None, share)?);
                Content::Undecided(Box::new(inspector), Vec::new())
            }
            _ => {
                let options = self.inspect(Some(&manifest.end), share)?;
                Content::Xbstream(Box::new(Inspector::new(options)))
            }
        };
        let mut check = SumCheck::new(known, &packed.all());
        let seen = watch.clone();
        let TransferResults { fetched, taken: (outcome, content), recent } = packed
            .stream(self, known)
            .unpack(
                self.session,
                plan,
                |range, crc| check.range(range, crc),
                move |header, payload| seen.frame(header, payload),
                content,
                Content::feed,
            )
            .await?;
        let broken = outcome
            .as_ref()
            .is_err_and(|error| matches!(error, UnpackError::Sink(_)) || is_of_content(error));
        if broken && let Some(error) = recent.altered(self.session.root.store()).await {
            return Ok(ReadAll::Altered(error));
        }
        let summary = match (fetched, outcome) {
            (_, Err(UnpackError::Sink(error))) => {
                if let Some(error) = not_damage(&error) {
                    return Err(error);
                }
                let object = None;
                self.stream_fault(Level::Decrypt, object, &error);
                self.pages(&content.pages());
                return Ok(ReadAll::Damaged);
            }
            (_, Err(error)) if is_of_content(&error) => {
                self.broken(packed, &error, &content);
                self.pages(&content.pages());
                return Ok(ReadAll::Damaged);
            }
            (Err(error), _) => {
                self.lost(Level::Checksum, error).await?;
                return Ok(ReadAll::Damaged);
            }
            (_, Err(error)) => {
                let source = std::io::Error::other(error.to_string());
                return Err(BackupError::System { what: "verify", source });
            }
            (Ok(()), Ok(summary)) => summary,
        };
        if Some(summary.id.0) != manifest.stream_id() || summary.stream_len != manifest.stored_bytes
        {
            self.found(Level::Decrypt, None, OTHER_STREAM.to_owned());
        }
        self.compare(packed, check, true).await;
        let bytes = summary.end.plain_bytes;
        Ok(match self.finish(content, watch, bytes, packed, &plan).await? {
            true => ReadAll::Whole,
            false => ReadAll::Damaged,
        })
    }

    /// Concludes a stream that was read to its end. Returns `false` if it is damaged.
    async fn finish(
        &mut self,
        content: Content,
        watch: IndexWatch,
        bytes: u64,
        packed: &ReadableBackup,
        plan: &UnpackPlan,
    ) -> Result<bool, BackupError> {
        let manifest = &packed.manifest;
        match content.finish() {
            Ok(Some(found)) => {
                self.index(watch.finish(), Some(&found));
                match self.postponed(packed, plan, found).await? {
                    Ok(found) => self.read(Some(manifest), &found)?,
                    Err(error) => {
                        not_damage(&error).map_or(Ok(()), Err)?;
                        self.stream_fault(Level::Decrypt, None, &error);
                        return Ok(false);
                    }
                }
            }
            Ok(None) => {
                self.index(watch.finish(), None);
                self.report.stream_bytes = Some(bytes);
                self.note("seal or checksums are intact; the content was not inspected");
                if self.wants(Level::Pages) {
                    self.report.pages = Some(super::PageReport::default());
                }
                if !manifest.is_carried() && bytes != manifest.stream_bytes {
                    let stated = manifest.stream_bytes;
                    let what = format!("the stream has {bytes} bytes, the manifest has {stated}");
                    self.found(Level::Decrypt, None, what);
                }
            }
            Err(error) => {
                self.stream_fault(Level::Decrypt, None, &error);
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn index(&mut self, proof: IndexProof, found: Option<&InspectReport>) {
        if let Err(error) = proof.agrees(found.map(|found| &found.records)) {
            self.found(Level::Decrypt, None, error.to_string());
        }
    }

    /// Records a damaged frame, segment or block.
    fn broken(
        &mut self,
        packed: &ReadableBackup,
        error: &UnpackError<InspectError>,
        content: &Content,
    ) {
        let sealed = packed.facts.sealed.is_some();
        let chunk = packed.facts.chunk_size;
        let number = match error {
            UnpackError::Seal(error) => error
                .offset()
                .and_then(|offset| (STREAM_HEADER_LEN as u64 + offset).checked_div(chunk)),
            // Positions refer to the unsealed stream, so they identify an object only in an
            // unsealed backup.
            error => error.place().filter(|_| !sealed).and_then(|place| object_of(place, chunk)),
        };
        let keys = self.session.root.run_keys(&self.request.name, packed.run);
        self.report.problem(Problem {
            level: Level::Decrypt,
            object: number.map(|number| keys.shown(number)),
            file: content.inside(),
            offset: None,
            what: error.to_string(),
        });
    }
}

impl ReadableBackup {
    /// The stream of its objects.
    pub(super) fn stream<'a>(
        &'a self,
        run: &Run<'_>,
        known: Option<&'a [u64]>,
    ) -> PackedStream<'a> {
        let keys = run.session.root.run_keys(&run.request.name, self.run);
        let (manifest, facts, key) = (&self.manifest, &self.facts, self.key.clone());
        PackedStream { keys, manifest, facts, key, known }
    }

    /// The numbers of all objects.
    pub(super) fn all(&self) -> IntactObjects {
        IntactObjects::All(0..self.manifest.objects)
    }

    fn can_be_opened(&self) -> bool {
        self.facts.sealed.is_none() || self.key.is_some()
    }
}
