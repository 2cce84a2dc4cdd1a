//! A copy in progress, and the objects on both sides.

use std::collections::{BTreeMap, BTreeSet};

use xb_pipeline::{ObjectSize, Observer, PackPlan, PackSizing, UnpackPlan};
use xb_repo::error::RepoError;
use xb_repo::keys::RunKeys;
use xb_repo::root::Root;
use xb_uploader::ListedObject;

use crate::admin::copy::check::{Object, Sums};
use crate::admin::copy::request::CopyRequest;
use crate::admin::copy::source::Source;
use crate::error::BackupError;
use crate::objects::checksums;
use crate::objects::checksums::KnownChecksums;
use crate::objects::classic::list_classic;
use crate::objects::classic_checksums::list_with_sums;
use crate::session::Resources;
use crate::write::part_limits;

/// Keys of the objects at both ends of a copy.
pub(super) struct CopyKeys {
    pub(super) from: RunKeys,
    pub(super) to: RunKeys,
}

/// A copy in progress.
#[derive(Clone, Copy)]
pub(super) struct CopyContext<'a> {
    pub(super) from: &'a Root,
    pub(super) to: &'a Root,
    pub(super) request: &'a CopyRequest,
    pub(super) resources: Resources,
    pub(super) source: &'a Source,
    pub(super) observer: &'a Observer,
}

impl CopyContext<'_> {
    /// The objects that the complete copy must have.
    pub(super) async fn objects(&self) -> Result<Vec<Object>, BackupError> {
        let manifest = &self.source.manifest;
        match &manifest.packed {
            Some(packed) => {
                let stated = |number| {
                    let len = crate::objects::checksums::object_len(manifest, packed, number);
                    (xb_pipeline::object_key(number), len)
                };
                // The listing bounds the work, not the number that a manifest states.
                let keys = self.from.run_keys(&self.request.name, self.source.run);
                let mut there = BTreeSet::new();
                let mut absent = None;
                // One listing that is short is no damage.
                for _ in 0..2 {
                    let listed = self.from.list_below(keys.folder()).await?;
                    there.extend(listed.into_iter().map(|object| object.key));
                    absent = (0..manifest.objects).find(|n| !there.contains(&stated(*n).0));
                    if absent.is_none() {
                        break;
                    }
                }
                match absent {
                    None => Ok((0..manifest.objects).map(stated).collect()),
                    Some(number) => Err(BackupError::Damaged {
                        name: self.request.name.to_string(),
                        what: format!("object {} is missing", stated(number).0),
                    }),
                }
            }
            None => {
                let name = &self.request.name;
                let mut files = list_classic(self.from, name).await?;
                if files.agree_with(name, manifest).is_err() {
                    files = list_classic(self.from, name).await?;
                }
                files.agree_with(name, manifest)?;
                Ok(files.in_order().map(|(key, _, size)| (key, size)).collect())
            }
        }
    }

    /// The checksum of each object, if known.
    pub(super) async fn sums(&self) -> Result<Option<Sums>, BackupError> {
        let (manifest, name) = (&self.source.manifest, &self.request.name);
        let Some(packed) = &manifest.packed else {
            let files = list_with_sums(self.from, name, Some(manifest)).await?;
            let each = matches!(files.known(), KnownChecksums::Each(_));
            return Ok(each.then_some(Sums::Classic(files)));
        };
        let sums = checksums::read(self.from, name, manifest, packed, self.source.run).await?;
        Ok(sums.ok().map(Sums::Packed))
    }

    /// Data objects at the destination with their sizes.
    pub(super) async fn there(&self, keys: &RunKeys) -> Result<BTreeMap<String, u64>, BackupError> {
        Ok(self.data_objects(self.to.list_below(keys.folder()).await?))
    }

    fn data_objects(&self, listed: Vec<ListedObject>) -> BTreeMap<String, u64> {
        let of_it =
            listed.into_iter().filter(|listed| self.source.manifest.layout.has_data(&listed.key));
        of_it.map(|listed| (listed.key, listed.size)).collect()
    }

    /// Checks that the source still exists. A classic backup has no RUN in its keys, so the next
    /// backup of that name would replace its objects. Whatever removes a backup deletes its
    /// manifest first.
    pub(super) async fn source_stands(&self) -> Result<(), BackupError> {
        let name = &self.request.name;
        match self.from.stored_manifest(name).await? {
            Some(stored) if stored.digest() == self.source.original => Ok(()),
            _ => {
                let state = ": it was removed or replaced while it was being copied";
                Err(RepoError::NotThere { name: name.to_string(), state }.into())
            }
        }
    }

    /// The error of a copy; that its source is no longer there, if that explains it.
    pub(super) async fn unless_removed(
        &self,
        error: BackupError,
    ) -> Result<BackupError, BackupError> {
        if !matches!(error, BackupError::Damaged { .. }) && !error.is_not_found() {
            return Ok(error);
        }
        match self.source_stands().await {
            Err(gone @ BackupError::Repo(RepoError::NotThere { .. })) => Ok(gone),
            _ => Ok(error),
        }
    }

    /// Plans the fetch so that objects of up to `largest` bytes are fetched in the pieces in which
    /// they are sent.
    pub(super) fn plan(&self, largest: u64) -> Result<UnpackPlan, BackupError> {
        let Resources { memory, threads, parallel } = self.resources;
        let limits = part_limits(self.to.store().limits());
        let put = PackPlan::new(PackSizing {
            memory,
            codec_memory: 0,
            object_size: ObjectSize::new(largest),
            threads,
            parallel,
            limits,
        })?;
        // A range takes all of its memory before it is fetched. With room for one more, some ranges are
        // fetched while others are sent.
        Ok(UnpackPlan {
            threads: put.threads,
            depth: put.depth,
            range: put.part_size,
            parallel: put.parallel.min(put.parts() - 1),
            memory: put.memory,
        })
    }
}
