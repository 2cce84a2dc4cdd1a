//! Verifies a classic backup: its objects against the listing, and the chunks in them.

use bytes::Bytes;
use xb_pipeline::{
    InspectError, InspectOptions, InspectReport, Inspector, PassthroughError, UnpackPlan,
};
use xb_repo::keys::RunKeys;
use xb_repo::manifest::Manifest;
use xb_repo::verification::{Level, MAX_PROBLEMS, Problem};

use super::contradicted::refuse_contradicted;
use super::results::{altered_once, not_damage};
use super::run::Run;
use crate::cancel::OrInterrupted as _;
use crate::error::BackupError;
use crate::objects::classic::ClassicFiles;
use crate::objects::classic_checksums::{Check, names};
use crate::objects::range::Range;
use crate::read::get::{RelayReport, relay_classic};
use crate::read::ranges::TransferResults;

impl Run<'_> {
    pub(super) async fn classic(
        &mut self,
        manifest: Option<Manifest>,
        files: ClassicFiles,
    ) -> Result<(), BackupError> {
        (self.report.objects, self.report.stored_bytes) = (files.objects(), files.bytes());
        if !self.wants(Level::List) {
            return Ok(());
        }
        let name = &self.request.name;
        let agreed = manifest.as_ref().map_or(Ok(()), |manifest| files.agree_with(name, manifest));
        let outcomes = [agreed, files.check_runs(name)];
        if outcomes.iter().any(Result::is_err) {
            self.session.cancel.or(self.refuse_lying_list(manifest.as_ref(), &files)).await?;
        }
        for outcome in outcomes {
            match outcome {
                Err(BackupError::Damaged { what, .. }) => self.found(Level::List, None, what),
                other => other?,
            }
        }
        let what = format!(
            "objects: {}, bytes: {}, files: {}",
            files.objects(),
            files.bytes(),
            files.count()
        );
        let listed = self.report.close(Level::List, what);
        if !self.wants(Level::Checksum) {
            return Ok(());
        }
        if !listed {
            self.leave_out_rest();
            return Ok(());
        }
        let request = self.request;
        if self.wants(Level::Decrypt) && files.any_encrypted() && request.keys.key.is_none() {
            return Err(self.no_file_key());
        }
        self.chunks(manifest.as_ref(), &files).await
    }

    /// Absence and a wrong length count, unless the object itself exists and is not as it is listed. Only the first
    /// [`MAX_PROBLEMS`] objects are asked for, and those that may be hidden. The key of a file of which the listing shows no
    /// object is in the list of names; without one, only files are asked for that every backup of a producer has.
    async fn refuse_lying_list(
        &self,
        manifest: Option<&Manifest>,
        files: &ClassicFiles,
    ) -> Result<(), BackupError> {
        let keys = self.session.root.classic_keys(&self.request.name);
        let expected = manifest.map(|there| (there.objects, there.files));
        let names = match manifest {
            Some(manifest) => names(&self.session.root, &self.request.name, manifest).await?,
            None => None,
        };
        let listed = files.doubtful(expected, names.as_ref(), MAX_PROBLEMS);
        let doubtful = listed
            .into_iter()
            .map(|(key, listed)| (keys.at(&key), move |size: u64| listed != Some(size)));
        refuse_contradicted(self.session.root.store(), doubtful).await
    }

    /// Reads all chunks and, if the level requires it, inspects the files.
    async fn chunks(
        &mut self,
        manifest: Option<&Manifest>,
        files: &ClassicFiles,
    ) -> Result<(), BackupError> {
        let (plan, share) = self.plan()?;
        self.session.observer.begin_phase("read");
        let keys = self.session.root.classic_keys(&self.request.name);
        let options = self.inspect(manifest.map(|manifest| &manifest.end), share)?;
        let inspector = Inspector::new(options.clone());
        let (mut sums, mut replaced) = (Check::new(files, &keys), Vec::new());
        let relayed = self
            .relay_all(files, inspector, &plan, |range, sum| {
                // Reads on, so that all replaced objects are named.
                replaced.extend(sums.range(range, sum).err());
            })
            .await?;
        let TransferResults { fetched, taken, recent } = relayed;
        let RelayReport { scanned, refused, sink: inspector } = taken;
        if scanned.is_err()
            && let Some(error) = recent.altered(self.session.root.store()).await
        {
            // A check that could not be made is no damage.
            return Err(error.into());
        }
        for (n, error) in replaced.into_iter().enumerate() {
            match n < MAX_PROBLEMS && self.is_sound_again(files, &keys, &error.key).await {
                true => self.warn(&altered_once(&error.key)),
                false => self.found(Level::Checksum, Some(error.key.clone()), error.to_string()),
            }
        }
        match (fetched, scanned) {
            (_, Err(PassthroughError::Stream(error))) => {
                let error = InspectError::Stream(error);
                self.chunk_fault(Level::Checksum, files, &error);
            }
            (_, Err(PassthroughError::Refused(what))) => {
                let object = refused.and_then(|position| files.object_at(position));
                let name = &self.request.name;
                self.found(Level::Checksum, object.map(|key| format!("{name}/{key}")), what);
            }
            (_, Err(PassthroughError::Sink(error))) => {
                if let Some(error) = not_damage(&error) {
                    return Err(error);
                }
                let level = match &error {
                    InspectError::Stream(_) => Level::Checksum,
                    _ => Level::Decrypt,
                };
                self.chunk_fault(level, files, &error);
            }
            (Err(error), _) => self.lost(Level::Checksum, error).await?,
            (Ok(()), Err(_)) => {
                return Err(BackupError::Bug("the download stopped without a cause"));
            }
            (Ok(()), Ok(_)) => match inspector.finish() {
                Ok(found) => {
                    if let Err(what) = sums.finish(true) {
                        self.found(Level::Checksum, None, what);
                    }
                    let found = match self.chunks_again(files, found, &options, &plan).await? {
                        Ok(found) => found,
                        Err(error) => {
                            not_damage(&error).map_or(Ok(()), Err)?;
                            self.chunk_fault(Level::Decrypt, files, &error);
                            self.leave_out_rest();
                            return Ok(());
                        }
                    };
                    self.read(manifest, &found)?;
                    self.close_chunks(files, &found.scanned);
                    return Ok(());
                }
                Err(error) => self.chunk_fault(Level::Checksum, files, &error),
            },
        }
        let what = "the chunks cannot be read to the end".to_owned();
        self.report.close(Level::Checksum, what);
        self.leave_out_rest();
        Ok(())
    }

    /// Reads an object with a wrong checksum again. If it is right then, the first response was altered in transit.
    async fn is_sound_again(&self, files: &ClassicFiles, keys: &RunKeys, key: &str) -> bool {
        let Some(expected) = keys.below(key).and_then(|below| files.sum_of(below)) else {
            return false;
        };
        self.session.root.store().read_back(key).await.is_ok_and(|again| again.crc64 == expected)
    }

    /// Reads all chunks again for the files for which memory did not suffice, until none is left.
    async fn chunks_again(
        &self,
        files: &ClassicFiles,
        mut found: InspectReport,
        options: &InspectOptions,
        plan: &UnpackPlan,
    ) -> Result<Result<InspectReport, InspectError>, BackupError> {
        while !found.postponed.is_empty() {
            let inspector = Inspector::again(options.clone(), found);
            let relayed = self.relay_all(files, inspector, plan, |_, _| {}).await?;
            let TransferResults { fetched, taken, recent } = relayed;
            let RelayReport { scanned, sink: inspector, .. } = taken;
            if scanned.is_err()
                && let Some(error) = recent.altered(self.session.root.store()).await
            {
                return Err(error.into());
            }
            match (fetched, scanned) {
                (_, Err(PassthroughError::Sink(error))) => return Ok(Err(error)),
                (_, Err(PassthroughError::Stream(error))) => {
                    return Ok(Err(InspectError::Stream(error)));
                }
                (Err(error), _) => return Err(error.into()),
                (Ok(()), Err(_)) => {
                    return Err(BackupError::Bug("the ranges stopped without a cause"));
                }
                (Ok(()), Ok(_)) => {}
            }
            found = match inspector.finish() {
                Ok(found) => found,
                Err(error) => return Ok(Err(error)),
            };
        }
        Ok(Ok(found))
    }

    /// Fetches all chunks and passes them to the inspector. `seen` gets each range with its
    /// checksum.
    async fn relay_all(
        &self,
        files: &ClassicFiles,
        inspector: Inspector,
        plan: &UnpackPlan,
        mut seen: impl FnMut(&Range, u64),
    ) -> Result<TransferResults<RelayReport<Inspector, InspectError>>, BackupError> {
        self.session.observer.expect_bytes(files.bytes());
        let keys = self.session.root.classic_keys(&self.request.name);
        let note = |range: &Range, sum| {
            seen(range, sum);
            Ok(())
        };
        let feed = |inspector: &mut Inspector, bytes: Bytes| inspector.feed(&bytes);
        relay_classic(self.session, *plan, files, &keys, note, inspector, feed).await
    }

    fn close_chunks(&mut self, files: &ClassicFiles, scanned: &xb_pipeline::Scanned) {
        let what = format!("all chunks of {} files, {} bytes", scanned.files, files.bytes());
        self.report.close(Level::Checksum, what);
        if self.wants(Level::Decrypt) {
            self.close_read();
        }
    }

    fn chunk_fault(&mut self, level: Level, files: &ClassicFiles, error: &InspectError) {
        let (position, path) = error.place();
        let object = position.and_then(|position| files.object_at(position));
        let name = &self.request.name;
        self.report.problem(Problem {
            level,
            object: object.map(|key| format!("{name}/{key}")),
            file: path.map(ToString::to_string),
            offset: error.file_offset(),
            what: error.to_string(),
        });
    }
}
