//! The lease of a classic run: how long its claim may be relied on, and the gate in front of the store.
//!
//! A run confirms its claim by writing it and then looking whether it is still the newest. Who takes a
//! claim over writes a newer one and then looks whether the older one has been written since. Of two
//! who do so one always sees the other. A confirmed claim holds for [`LEASE`] from the beginning of the
//! confirmation; nobody takes it over by its age before twice that. After it, the next request has to
//! confirm it anew: a run that was suspended and not taken over just continues.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::watch;
use xb_uploader::{Gate, StoreError, StoreErrorKind};

use crate::catalog::names::BackupName;
use crate::catalog::root::Root;
use crate::claim::note::{Note, Phase};
use crate::claim::standing::claims;

/// How long a confirmed claim holds.
const LEASE: Duration = Duration::from_secs(1800);

/// A moment by two clocks: the one that also runs while the machine is suspended, and the wall clock,
/// which also runs on while a virtual machine is paused.
#[derive(Debug, Clone, Copy)]
struct Moment {
    boot: Duration,
    wall: SystemTime,
}

impl Moment {
    fn now() -> Self {
        let boot = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(boot.tv_sec).unwrap_or(0);
        let nanos = u32::try_from(boot.tv_nsec).unwrap_or(0);
        Self { boot: Duration::new(seconds, nanos), wall: SystemTime::now() }
    }

    /// What has passed by the clock that ran further. Too much only costs a confirmation.
    fn elapsed(self) -> Duration {
        let now = Self::now();
        let wall = now.wall.duration_since(self.wall).unwrap_or_default();
        now.boot.saturating_sub(self.boot).max(wall)
    }
}

/// The claim of a classic run and how long it may be relied on.
#[derive(Debug)]
pub(crate) struct Lease {
    root: Root,
    name: BackupName,
    key: String,
    note: Mutex<Note>,
    confirmed: Mutex<Option<Moment>>,
    confirming: tokio::sync::Mutex<()>,
    /// Why the claim is lost for good.
    lost: watch::Sender<Option<String>>,
}

impl Lease {
    pub(crate) fn new(root: &Root, name: &BackupName, key: String, note: Note) -> Arc<Self> {
        let (lost, _) = watch::channel(None);
        let (root, name, note) = (root.clone(), name.clone(), Mutex::new(note));
        let (confirmed, confirming) = (Mutex::default(), tokio::sync::Mutex::default());
        Arc::new(Self { root, name, key, note, confirmed, confirming, lost })
    }

    /// Whole key of the claim.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    pub(crate) fn note(&self) -> Note {
        self.note.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What the claim says from its next confirmation on.
    pub(crate) fn enter(&self, phase: Phase) {
        self.note.lock().unwrap_or_else(PoisonError::into_inner).phase = phase;
    }

    fn is_fresh(&self) -> bool {
        let confirmed = *self.confirmed.lock().unwrap_or_else(PoisonError::into_inner);
        confirmed.is_some_and(|moment| moment.elapsed() < LEASE)
    }

    /// Forgets when the claim was confirmed last, as if that were long ago.
    #[cfg(test)]
    pub(crate) fn expire(&self) {
        *self.confirmed.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Waits until the claim is lost, and says why.
    pub(crate) async fn lost(&self) -> StoreError {
        let mut lost = self.lost.subscribe();
        let why = lost.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
        self.fenced(why.unwrap_or_default())
    }

    fn fenced(&self, why: String) -> StoreError {
        StoreError::new("claim", &*self.key, StoreErrorKind::Fenced, why)
    }

    fn lose(&self, why: String) -> StoreError {
        self.lost.send_replace(Some(why.clone()));
        self.fenced(why)
    }

    /// Writes the claim anew, and makes sure that it is still the newest.
    ///
    /// # Errors
    /// [`StoreErrorKind::Fenced`] when another run has taken over; others when that cannot be found
    /// out.
    pub(crate) async fn confirm(&self) -> Result<(), StoreError> {
        let _alone = self.confirming.lock().await;
        self.confirm_alone().await
    }

    async fn confirm_alone(&self) -> Result<(), StoreError> {
        loop {
            let begun = Moment::now();
            self.write_and_look().await?;
            *self.confirmed.lock().unwrap_or_else(PoisonError::into_inner) = Some(begun);
            // Who has slept meanwhile may have been taken over after he looked.
            if self.is_fresh() {
                return Ok(());
            }
        }
    }

    async fn write_and_look(&self) -> Result<(), StoreError> {
        if let Some(why) = self.lost.borrow().clone() {
            return Err(self.fenced(why));
        }
        let note = self.note();
        // A claim that was removed, or replaced where numbers began anew, must not come back.
        match self.root.store().get(&self.key).await {
            Ok(bytes) if Note::read(&bytes).holder == note.holder => {}
            Ok(_) => return Err(self.lose("another run has taken its number".to_owned())),
            Err(error) if error.kind == StoreErrorKind::NotFound => {
                return Err(self.lose("the claim was removed: another run took over".to_owned()));
            }
            Err(error) => return Err(error),
        }
        self.root.store().put(&self.key, note.encode().into()).await?;
        let newest = claims(&self.root, &self.name).await?.pop();
        match newest {
            Some(newest) if newest.key == self.key => Ok(()),
            newest => {
                let by = newest.map_or_else(String::new, |newest| format!(" with {}", newest.key));
                Err(self.lose(format!("another run took over{by}")))
            }
        }
    }

    /// Removes the claim: nothing was done under it, so it need not be seen by later ones.
    pub(crate) async fn withdraw(&self) -> Result<(), StoreError> {
        let _ = self.lose("it was withdrawn".to_owned());
        self.root.store().delete(&self.key).await
    }

    /// Whether the claim is the newest, without writing it.
    pub(crate) async fn is_newest(&self) -> Result<bool, StoreError> {
        let newest = claims(&self.root, &self.name).await?.pop();
        Ok(newest.is_some_and(|newest| newest.key == self.key))
    }
}

#[async_trait]
impl Gate for Lease {
    async fn pass(&self) -> Result<(), StoreError> {
        if let Some(why) = self.lost.borrow().clone() {
            return Err(self.fenced(why));
        }
        if self.is_fresh() {
            return Ok(());
        }
        let _alone = self.confirming.lock().await;
        // Somebody else who waited here may have confirmed it.
        match self.is_fresh() {
            true => Ok(()),
            false => self.confirm_alone().await,
        }
    }
}
