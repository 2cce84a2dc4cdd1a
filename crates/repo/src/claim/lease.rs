//! The lease of a numbered claim: how long its claim is valid, and the fence before each change to the
//! store.
//!
//! A run confirms its claim by writing it and then checking that it is still the newest. A run that
//! takes over a claim writes a newer one and then checks whether the older one was written since.
//! If two runs do this at once, at least one sees the other. A confirmed claim holds for [`LEASE`]
//! from the beginning of the confirmation; no run takes it over by its age before twice that time.
//! After the lease, the next request must confirm the claim again: a run that was suspended but not
//! taken over continues.
//!
//! A run that takes over on request, or under the stock name, does not wait for the lease. Nothing
//! of the new run can be overwritten, because objects are only created; but it could be removed. So
//! each removal looks for newer claims immediately before it. And objects could be added to a backup that
//! the new run has completed; so every other change looks, too, if the last look was [`LOOK`] ago.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::watch;
use xb_uploader::{Change, Fence, Operation, PresentState, StoreError, StoreErrorKind};

use crate::claim::claim_state::claims;
use crate::claim::left::RemainingObjects;
use crate::claim::note::{Note, Phase};
use crate::claim::read_again::read_again;
use crate::error::RepoError;
use crate::names::BackupName;
use crate::root::Root;

/// Time for which a confirmed claim holds.
const LEASE: Duration = Duration::from_secs(1800);

/// Time after which a change looks again for newer claims.
const LOOK: Duration = Duration::from_secs(5);

/// Time limit of such a look while the lease holds, with all its tries.
const LOOK_LIMIT: Duration = Duration::from_secs(10);

/// As [`LOOK`], after a look that has failed.
const LOOK_AFTER_FAILURE: Duration = Duration::from_secs(60);

/// A moment on two clocks: one that also counts while the machine is suspended, and the wall clock,
/// which also counts while a virtual machine is paused.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClockReading {
    boot: Duration,
    wall: SystemTime,
}

impl ClockReading {
    pub(crate) fn now() -> Self {
        let boot = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(boot.tv_sec).unwrap_or(0);
        let nanos = u32::try_from(boot.tv_nsec).unwrap_or(0);
        Self { boot: Duration::new(seconds, nanos), wall: SystemTime::now() }
    }

    /// Elapsed time by the clock that advanced further. Too large a value only costs a
    /// confirmation.
    fn elapsed(self) -> Duration {
        let now = Self::now();
        let wall = now.wall.duration_since(self.wall).unwrap_or_default();
        now.boot.saturating_sub(self.boot).max(wall)
    }
}

/// A look at the claims.
#[derive(Debug, Clone, Copy)]
enum Look {
    /// It began then, and showed no newer claim.
    Passed(ClockReading),
    /// It failed then.
    Failed(ClockReading),
}

/// The claim of a classic run, and how long it is valid.
#[derive(Debug)]
pub(crate) struct Lease {
    root: Root,
    name: BackupName,
    key: String,
    note: Mutex<Note>,
    confirmed: Mutex<Option<ClockReading>>,
    /// The last look at the claims.
    looked: Mutex<Option<Look>>,
    confirming: tokio::sync::Mutex<()>,
    /// Whether what follows completes or removes a backup, and needs every look.
    decides: AtomicBool,
    /// Reason why the claim is permanently lost.
    lost: watch::Sender<Option<String>>,
}

impl Lease {
    pub(crate) fn new(root: &Root, name: &BackupName, key: String, note: Note) -> Arc<Self> {
        let (lost, _) = watch::channel(None);
        let (root, name, note) = (root.clone(), name.clone(), Mutex::new(note));
        let (confirmed, looked) = (Mutex::default(), Mutex::default());
        let confirming = tokio::sync::Mutex::default();
        let decides = AtomicBool::new(false);
        Arc::new(Self { root, name, key, note, confirmed, looked, confirming, decides, lost })
    }

    /// Full key of the claim.
    #[cfg(test)]
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    pub(crate) fn note(&self) -> Note {
        self.note.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the phase that the claim states from its next confirmation on.
    pub(crate) fn enter(&self, phase: Phase) {
        self.note.lock().unwrap_or_else(PoisonError::into_inner).phase = phase;
    }

    /// Sets what the claim states from its next confirmation on: requests of an earlier run may still arrive.
    pub(crate) fn expect_late(&self) {
        self.note.lock().unwrap_or_else(PoisonError::into_inner).late = true;
    }

    /// Sets what the claim records from its next confirmation on: the objects left.
    pub(crate) fn leave(&self, left: RemainingObjects) {
        self.note.lock().unwrap_or_else(PoisonError::into_inner).left = Some(left);
    }

    /// Sets what the claim states from its next confirmation on: the objects are a stock backup.
    pub(crate) fn leave_stock(&self) {
        self.note.lock().unwrap_or_else(PoisonError::into_inner).stock = true;
    }

    fn is_fresh(&self) -> bool {
        let confirmed = *self.confirmed.lock().unwrap_or_else(PoisonError::into_inner);
        confirmed.is_some_and(|moment| moment.elapsed() < LEASE)
    }

    /// As [`Note::late`].
    pub(crate) fn has_predecessor(&self) -> bool {
        self.note().late
    }

    /// Starts the lease of a claim that was created at `begun` and found to be the newest.
    pub(crate) fn start(&self, begun: ClockReading) {
        *self.confirmed.lock().unwrap_or_else(PoisonError::into_inner) = Some(begun);
        self.has_looked(Some(Look::Passed(begun)));
    }

    fn has_looked(&self, look: Option<Look>) {
        *self.looked.lock().unwrap_or_else(PoisonError::into_inner) = look;
    }

    /// Returns whether a look showed no newer claim a moment ago.
    fn passed_lately(&self) -> bool {
        let looked = *self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(looked, Some(Look::Passed(begun)) if begun.elapsed() < LOOK)
    }

    /// Returns whether a look failed a moment ago. Of the changes that come when it is time for the next, one looks, and the
    /// others do not wait for it.
    fn failed_lately(&self) -> bool {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Look::Failed(at)) = *looked else { return false };
        let since = at.elapsed();
        // After a longer time the process may have been suspended, so all wait for the look.
        if (LOOK_AFTER_FAILURE..2 * LOOK_AFTER_FAILURE).contains(&since) {
            *looked = Some(Look::Failed(ClockReading::now()));
        }
        since < LOOK_AFTER_FAILURE
    }

    fn must_look(&self) -> bool {
        self.decides.load(Ordering::SeqCst) || !self.is_fresh()
    }

    /// Returns whether the lease ends for good. A removal looks for dependants once, under its mark, and
    /// must not rely on that look after others may have taken the mark for that of a dead process.
    fn ends_for_good(&self) -> bool {
        self.note.lock().unwrap_or_else(PoisonError::into_inner).phase == Phase::Removing
    }

    /// Makes the last confirmation count as expired.
    #[cfg(test)]
    pub(crate) fn expire(&self) {
        *self.confirmed.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Makes the last look at the claims count as too old.
    #[cfg(test)]
    pub(crate) fn forget_look(&self) {
        self.has_looked(None);
    }

    /// Waits until the claim is lost, and returns the reason.
    pub(crate) async fn lost(&self) -> StoreError {
        let mut lost = self.lost.subscribe();
        let why = lost.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
        self.fenced(why.unwrap_or_default())
    }

    fn fenced(&self, why: String) -> StoreError {
        StoreError::new(Operation::Claim, &*self.key, StoreErrorKind::Fenced, why)
    }

    fn lose(&self, why: String) -> StoreError {
        self.lost.send_replace(Some(why.clone()));
        self.fenced(why)
    }

    /// Rewrites the claim and checks that it is still the newest.
    ///
    /// # Errors
    /// [`StoreErrorKind::Fenced`] if another run has taken over; other kinds if that cannot be
    /// determined.
    pub(crate) async fn confirm(&self) -> Result<(), StoreError> {
        let _alone = self.confirming.lock().await;
        self.confirm_alone().await
    }

    /// As [`Lease::confirm`], before what completes or removes a backup: from now on, no change is made without a look.
    ///
    /// # Errors
    /// As [`Lease::confirm`].
    pub(crate) async fn decide(&self) -> Result<(), StoreError> {
        self.decides.store(true, Ordering::SeqCst);
        self.confirm().await
    }

    /// Rewrites the claim, but leaves its lease as it is.
    ///
    /// # Errors
    /// As [`Lease::confirm`].
    pub(crate) async fn write(&self) -> Result<(), StoreError> {
        let _alone = self.confirming.lock().await;
        self.write_and_look().await
    }

    async fn confirm_alone(&self) -> Result<(), StoreError> {
        if self.ends_for_good() {
            return match self.is_fresh() {
                true => Ok(()),
                false => Err(self.lose("the removal took longer than its claim holds".to_owned())),
            };
        }
        loop {
            let begun = ClockReading::now();
            self.write_and_look().await?;
            self.refuse_backup().await?;
            *self.confirmed.lock().unwrap_or_else(PoisonError::into_inner) = Some(begun);
            // A run that was suspended after the check may have been taken over since.
            if self.is_fresh() {
                return Ok(());
            }
        }
    }

    /// Loses a claim under which the objects of a run are removed, if the run has become a backup: a copy
    /// of it may have taken this claim for that of a dead process. One that comes later sees the claim.
    async fn refuse_backup(&self) -> Result<(), StoreError> {
        let note = self.note();
        if note.phase != Phase::Clearing {
            return Ok(());
        }
        match self.root.manifest(&self.name).await {
            Ok(there) if there.as_ref().is_none_or(|manifest| manifest.run != note.run) => Ok(()),
            Err(RepoError::Store(error)) => Err(error),
            _ => Err(self.lose("the run may be a backup again".to_owned())),
        }
    }

    async fn write_and_look(&self) -> Result<(), StoreError> {
        if let Some(why) = self.lost.borrow().clone() {
            return Err(self.fenced(why));
        }
        let note = self.note();
        // A claim that was removed, or replaced after numbering restarted, must not reappear.
        let is_own = |bytes: &Bytes| Note::read(bytes).holder == note.holder;
        match read_again(self.root.store(), &self.key, is_own).await {
            Ok(bytes) if is_own(&bytes) => {}
            Ok(_) => return Err(self.lose("another run took its number".to_owned())),
            Err(error) if error.kind == StoreErrorKind::NotFound => {
                return Err(self.lose("the claim was removed: another run took over".to_owned()));
            }
            Err(error) => return Err(error),
        }
        self.root.store().put(&self.key, note.encode().into()).await?;
        let begun = ClockReading::now();
        let newest = claims(&self.root, &self.name).await?.pop();
        match newest {
            Some(newest) if newest.key == self.key => {
                self.has_looked(Some(Look::Passed(begun)));
                Ok(())
            }
            newest => {
                let by = newest.map_or_else(String::new, |newest| format!(" with {}", newest.key));
                Err(self.lose(format!("another run took over{by}")))
            }
        }
    }

    /// Removes the claim. Nothing was done under it, so later claims need not see it.
    pub(crate) async fn withdraw(&self) -> Result<(), StoreError> {
        let _ = self.lose("the claim was withdrawn".to_owned());
        let holder = self.note().holder;
        // Numbering may restart, so a repeated request must not remove the claim of another run.
        let own = |there: PresentState<'_>| match there {
            PresentState::Content(bytes) => Note::read(bytes).holder == holder,
            _ => false,
        };
        self.root.store().delete_expected(&self.key, own).await.map(drop)
    }

    /// Returns whether the claim is the newest; does not write it.
    pub(crate) async fn is_newest(&self) -> Result<bool, StoreError> {
        let newest = claims(&self.root, &self.name).await?.pop();
        Ok(newest.is_some_and(|newest| newest.key == self.key))
    }
}

#[async_trait]
impl Fence for Lease {
    async fn check(&self, change: Change) -> Result<(), StoreError> {
        self.pass_lease().await?;
        match change {
            Change::Remove if !self.is_newest().await? => {
                Err(self.lose("another run took over".to_owned()))
            }
            Change::Remove => Ok(()),
            _ => self.look().await,
        }
    }
}

impl Lease {
    /// Looks for a newer claim, unless that was done a moment ago. A look that fails, or takes long, ends no run and holds up
    /// no change while the lease holds: no manifest is written without a look.
    async fn look(&self) -> Result<(), StoreError> {
        if self.passed_lately() {
            return Ok(());
        }
        if !self.must_look() {
            if self.failed_lately() {
                return Ok(());
            }
            // Whatever the retries: they may last as long as the lease. So may a confirmation that others wait for.
            let looked = tokio::time::timeout(LOOK_LIMIT, self.look_alone()).await;
            let has_failed = match &looked {
                Ok(Err(error)) => error.kind == StoreErrorKind::Unavailable,
                Ok(Ok(())) => false,
                Err(_) => true,
            };
            if has_failed && !self.must_look() {
                self.has_looked(Some(Look::Failed(ClockReading::now())));
                return Ok(());
            }
            if let Ok(looked) = looked {
                return looked;
            }
        }
        self.look_alone().await
    }

    /// Looks, one at a time. That a listing does not show the own claim says nothing: one short answer must not end a run.
    async fn look_alone(&self) -> Result<(), StoreError> {
        let _alone = self.confirming.lock().await;
        // Another request that waited here may have looked.
        if self.passed_lately() {
            return Ok(());
        }
        let begun = ClockReading::now();
        match claims(&self.root, &self.name).await?.pop() {
            Some(newest) if newest.key > self.key => {
                Err(self.lose(format!("another run took over with {}", newest.key)))
            }
            _ => {
                self.has_looked(Some(Look::Passed(begun)));
                Ok(())
            }
        }
    }

    async fn pass_lease(&self) -> Result<(), StoreError> {
        if let Some(why) = self.lost.borrow().clone() {
            return Err(self.fenced(why));
        }
        if self.is_fresh() {
            return Ok(());
        }
        let _alone = self.confirming.lock().await;
        // Another request that waited here may have confirmed the claim.
        match self.is_fresh() {
            true => Ok(()),
            false => self.confirm_alone().await,
        }
    }
}
