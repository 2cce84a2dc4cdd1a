//! Descriptors of unfinished files, with a limit on how many are open at a time.
//!
//! A stream may have thousands of files open at once, and a run of tiny ones creates thousands
//! before the first gets its name. So a descriptor is opened when it is needed, and the oldest one
//! is closed when there are too many. A file without descriptor is reopened by its name.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Maximum number of descriptors, whatever the limit of the process.
const MAX_DESCRIPTORS: u64 = 4096;

/// The descriptors of one target directory.
#[derive(Debug)]
pub(crate) struct Descriptors {
    most: usize,
    open: Mutex<Open>,
    _raised: Option<Raised>,
}

/// The raised limit of open files of the process. Drop restores the old limit, so that programs
/// started later get the limit that was meant for them.
#[derive(Debug)]
struct Raised {
    before: Rlimit,
}

impl Raised {
    fn now() -> Option<Self> {
        let before = getrlimit(Resource::Nofile);
        let limit = Rlimit { current: before.maximum, ..before };
        if before.current == before.maximum {
            return None;
        }
        // If raising is refused, the old limit must do.
        setrlimit(Resource::Nofile, limit).ok().map(|()| Self { before })
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        let _ = setrlimit(Resource::Nofile, self.before);
    }
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    /// In the order of opening.
    by_age: BTreeMap<u64, Arc<Slot>>,
}

/// The descriptor of one file, while it is open.
#[derive(Debug, Default)]
pub(crate) struct Slot(Mutex<Option<OpenDescriptor>>);

#[derive(Debug)]
struct OpenDescriptor {
    age: u64,
    file: Arc<File>,
}

impl Descriptors {
    /// Uses half of the limit of the process: the other half is for sockets, objects and programs.
    pub(crate) fn of_process() -> Self {
        let raised = Raised::now();
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let most = usize::try_from((limit / 2).min(MAX_DESCRIPTORS)).unwrap_or(usize::MAX);
        Self { _raised: raised, ..Self::new(most) }
    }

    fn new(most: usize) -> Self {
        Self { most: most.max(1), open: Mutex::default(), _raised: None }
    }

    /// Returns the descriptor in `slot`. Calls `open` if it is closed.
    pub(crate) fn get(
        &self,
        slot: &Arc<Slot>,
        open: impl Fn() -> rustix::io::Result<OwnedFd>,
    ) -> rustix::io::Result<Arc<File>> {
        if let Some(held) = slot.held().as_ref() {
            return Ok(Arc::clone(&held.file));
        }
        let file = loop {
            match open() {
                // Something else uses more than its half.
                Err(Errno::MFILE | Errno::NFILE) if self.close_oldest() => {}
                opened => break Arc::new(File::from(opened?)),
            }
        };
        let mut all = self.open();
        {
            let mut held = slot.held();
            if let Some(there) = held.as_ref() {
                return Ok(Arc::clone(&there.file));
            }
            let age = all.next;
            all.next += 1;
            all.by_age.insert(age, Arc::clone(slot));
            *held = Some(OpenDescriptor { age, file: Arc::clone(&file) });
        }
        let mut surplus = Vec::new();
        while all.by_age.len() > self.most {
            surplus.extend(all.take_oldest());
        }
        drop(all);
        Ok(file)
    }

    /// Closes the descriptor in `slot`.
    pub(crate) fn close(&self, slot: &Slot) {
        let mut all = self.open();
        let held = slot.held().take();
        if let Some(held) = &held {
            all.by_age.remove(&held.age);
        }
        drop(all);
    }

    fn close_oldest(&self) -> bool {
        let oldest = self.open().take_oldest();
        oldest.is_some()
    }

    /// Lock order: this lock first, then a slot's lock.
    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// Takes the oldest descriptor. It is closed when its last user drops it.
    fn take_oldest(&mut self) -> Option<OpenDescriptor> {
        let (_, slot) = self.by_age.pop_first()?;
        slot.held().take()
    }
}

impl Slot {
    fn held(&self) -> MutexGuard<'_, Option<OpenDescriptor>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn open() -> rustix::io::Result<OwnedFd> {
        Ok(tempfile::tempfile().unwrap().into())
    }

    #[test]
    fn the_oldest_descriptor_is_closed_and_comes_back() {
        let descriptors = Descriptors::new(2);
        let slots: Vec<Arc<Slot>> = (0..5).map(|_| Arc::default()).collect();
        for slot in &slots {
            descriptors.get(slot, open).unwrap();
        }
        let is_open = || slots.iter().map(|slot| slot.held().is_some()).collect::<Vec<_>>();
        assert_eq!(is_open(), [false, false, false, true, true]);
        descriptors.get(&slots[0], open).unwrap();
        descriptors.get(&slots[4], || panic!("it is open")).unwrap();
        assert_eq!(is_open(), [true, false, false, false, true]);
        descriptors.close(&slots[4]);
        descriptors.close(&slots[3]);
        assert_eq!(descriptors.open().by_age.len(), 1);
    }

    #[test]
    fn where_the_process_has_no_more_one_is_closed_for_another() {
        let descriptors = Descriptors::new(9);
        let slots: Vec<Arc<Slot>> = (0..3).map(|_| Arc::default()).collect();
        for slot in &slots[..2] {
            descriptors.get(slot, open).unwrap();
        }
        let refused = Cell::new(0);
        let grudging = || match refused.replace(refused.get() + 1) {
            0 => Err(Errno::MFILE),
            _ => open(),
        };
        descriptors.get(&slots[2], grudging).unwrap();
        assert!(slots[0].held().is_none() && slots[1].held().is_some());
        // If there is nothing left to close, it is an error.
        let none = descriptors.get(&Arc::default(), || Err(Errno::MFILE));
        assert_eq!(none.unwrap_err(), Errno::MFILE);
    }
}
