//! Transfer of a copy's bytes: through this program, or within the store.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::mpsc;
use xb_repo::keys::RunKeys;
use xb_repo::manifest::Layout;
use xb_uploader::{Operation, PartData, PartSender, StoreError, StoreErrorKind};

use crate::admin::copy::check::{Check, Object, Sums};
use crate::admin::copy::copying::{CopyContext, CopyKeys};
use crate::cancel::{CancelToken, OrInterrupted as _};
use crate::error::BackupError;
use crate::objects::ledger::Ledger;
use crate::read::ranges::{RangeContent, fetch_all, ranges};
use crate::read::unlock::not_found_as_damage;

impl CopyContext<'_> {
    /// Reads objects at the destination back, and returns those that differ from the stored ones.
    pub(super) async fn compare(
        &self,
        keys: &RunKeys,
        objects: &[Object],
        known: Option<&Sums>,
        cancel: &CancelToken,
    ) -> Result<BTreeSet<String>, BackupError> {
        let (Some(known), Some(largest)) = (known, objects.iter().map(|(_, size)| *size).max())
        else {
            return Ok(BTreeSet::new());
        };
        let fetching = self.plan(largest)?;
        let mut check = Check::each(known, objects);
        let (arrived, mut arriving) = mpsc::channel(1);
        let objects: Vec<_> = objects.iter().map(|(key, size)| (keys.at(key), 0, *size)).collect();
        let fetch = fetch_all(
            self.to.store(),
            &fetching,
            ranges(objects.into_iter(), fetching.range),
            arrived,
            |range, sum| {
                check.range(range, sum);
                Ok(())
            },
        );
        let pass = async { while arriving.recv().await.is_some() {} };
        cancel.or(async { tokio::join!(fetch, pass).0 }).await?;
        match check {
            Check::Each { wrong, .. } => Ok(wrong.into_iter().collect()),
            _ => Ok(BTreeSet::new()),
        }
    }

    /// Copies objects within the store.
    pub(super) async fn have_copied(
        &self,
        keys: &CopyKeys,
        objects: Vec<Object>,
        cancel: &CancelToken,
    ) -> Result<(), BackupError> {
        use futures::stream::{self, StreamExt as _, TryStreamExt as _};
        let copying = stream::iter(objects).map(|(key, size)| async move {
            self.from.store().copy(&keys.from.at(&key), &keys.to.at(&key)).await?;
            self.observer.add_bytes(size);
            self.observer.add_stored(size);
            Ok::<_, BackupError>(())
        });
        let parallel = self.resources.parallel.max(1);
        cancel.or(copying.buffer_unordered(parallel).try_collect::<()>()).await
    }

    /// Reads objects and sends them, in parts as large as the budget allows.
    pub(super) async fn read_and_put(
        &self,
        keys: &CopyKeys,
        objects: Vec<Object>,
        check: Check,
        known: Option<&Sums>,
        ledger: &mut Ledger,
        cancel: &CancelToken,
    ) -> Result<(), BackupError> {
        let Some(largest) = objects.iter().map(|(_, size)| *size).max() else { return Ok(()) };
        let fetching = self.plan(largest)?;
        // Empty objects have no range.
        for (key, _) in objects.iter().filter(|(_, size)| *size == 0) {
            cancel.or(self.to.store().put(&keys.to.at(key), Bytes::new().into())).await?;
        }
        let source: Vec<_> =
            objects.iter().map(|(key, size)| (keys.from.at(key), 0, *size)).collect();
        let check = Mutex::new(check);
        let (arrived, arriving) = mpsc::channel(1);
        let sum = |key: &str| known.and_then(|known| known.of(keys.from.below(key)?));
        let fetch = fetch_all(
            self.from.store(),
            &fetching,
            ranges(source.into_iter(), fetching.range).map(|range| range.with_object_sum(sum)),
            arrived,
            |range, sum| {
                lock(&check).range(range, sum);
                Ok(())
            },
        );
        let mut sending = Sending::new(self, &keys.to, ledger, fetching.parallel);
        let send = sending.all(arriving, parts(&keys.to, &objects, fetching.range), &check);
        let outcome = tokio::select! {
            both = async { tokio::join!(fetch, send) } => match both {
                (Err(error), _) => Err(not_found_as_damage(error, &self.request.name)),
                (Ok(()), sent) => sent,
            },
            signal = cancel.cancelled() => Err(BackupError::Interrupted(signal)),
        };
        if let Err(error) = outcome {
            sending.sender.abort().await;
            let wrong = lock(&check).wrong().map(str::to_owned);
            let source = wrong.as_ref().map(|key| keys.from.at(key));
            let altered = match source.zip(wrong.and_then(|key| known?.of(&key))) {
                Some((source, sum)) => cancel.or(self.altered(&source, sum)).await?,
                None => None,
            };
            return Err(altered.unwrap_or(error));
        }
        cancel.or(sending.sender.finish()).await?;
        sending.note_stored();
        match &self.source.manifest.packed {
            Some(packed) => check
                .into_inner()
                .unwrap_or_else(PoisonError::into_inner)
                .finish(&packed.root)
                .map_err(|what| self.damaged(what)),
            None => Ok(()),
        }
    }

    /// Reads an object again whose bytes had another checksum than `sum`. Returns an error if they
    /// have it now, so that they were altered in transit.
    async fn altered(&self, key: &str, sum: u64) -> Result<Option<BackupError>, BackupError> {
        let again = self.from.store().read_back(key).await;
        let sound = again.is_ok_and(|again| again.crc64 == sum);
        let what = "its bytes were altered in transit: a second response is sound";
        let error = || StoreError::new(Operation::Get, key, StoreErrorKind::Altered, what).into();
        Ok(sound.then(error))
    }

    fn damaged(&self, what: String) -> BackupError {
        BackupError::Damaged { name: self.request.name.to_string(), what }
    }
}

/// One part of an object: the object's full key at the destination, the part's number, and whether it is
/// the last one.
type Part = (Arc<str>, u64, bool);

/// Returns the parts of all objects that are not empty, in the order in which their bytes arrive.
fn parts(keys: &RunKeys, objects: &[Object], range: u64) -> impl Iterator<Item = Part> {
    objects.iter().filter(|(_, size)| *size > 0).flat_map(move |(key, size)| {
        let (key, parts): (Arc<str>, _) = (keys.at(key).into(), size.div_ceil(range));
        (0..parts).map(move |n| (Arc::clone(&key), n, n + 1 == parts))
    })
}

/// The sending side.
struct Sending<'a> {
    copying: &'a CopyContext<'a>,
    sender: PartSender,
    ledger: &'a mut Ledger,
    /// Keys of the objects at the destination.
    target: &'a RunKeys,
    is_classic: bool,
}

impl<'a> Sending<'a> {
    fn new(
        copying: &'a CopyContext<'a>,
        target: &'a RunKeys,
        ledger: &'a mut Ledger,
        parallel: usize,
    ) -> Self {
        let is_classic = copying.source.manifest.layout == Layout::Classic;
        let mut sender = PartSender::new(copying.to.store().clone(), parallel);
        if is_classic {
            sender = sender.shared();
        }
        Self { copying, sender, ledger, target, is_classic }
    }

    /// Sends the pieces that arrive, until the last one or the first whose object is damaged.
    async fn all(
        &mut self,
        mut arriving: mpsc::Receiver<RangeContent>,
        mut parts: impl Iterator<Item = Part>,
        check: &Mutex<Check>,
    ) -> Result<(), BackupError> {
        while let Some(piece) = self.sender.until(arriving.recv()).await? {
            // The fetching side reports the reason.
            let Some(bytes) = piece.map(Bytes::from) else { break };
            // Its checksum was computed before the piece arrived here, so a damaged object is
            // never completed.
            let wrong = lock(check).wrong().map(str::to_owned);
            if let Some(key) = wrong {
                return Err(self.copying.damaged(format!(
                    "object {key}: the checksum does not match the one recorded when it was stored"
                )));
            }
            let Some((key, index, end)) = parts.next() else {
                return Err(BackupError::Bug("more ranges arrived than were requested"));
            };
            let len = bytes.len() as u64;
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            if let Some(below) = self.target.below(&key).filter(|_| self.is_classic) {
                self.ledger.piece(&below.into(), std::slice::from_ref(&bytes), end);
            }
            self.sender.send(PartData { key, index, payload: vec![bytes], end }).await?;
            self.note_stored();
            self.copying.observer.add_bytes(len);
            self.copying.observer.add_stored(len);
        }
        // Dropping the receiver closes the channel, so that the fetching side does not wait for
        // space in it.
        Ok(())
    }

    fn note_stored(&mut self) {
        self.ledger.stored(self.target, self.sender.stored());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
