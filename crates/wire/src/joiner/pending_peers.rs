//! Connections that have not shown yet who they are. There may be so many; when one more comes, the
//! one that has been there longest makes room, so that nobody can keep the donor out by silence.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::limits::MAX_STRANGERS;
use crate::link::wake::Wake;

/// In the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Strangers(Vec<Arc<Seat>>);

/// A place among them.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) wake: Arc<Wake>,
    has_spoken: AtomicBool,
    is_sent_away: AtomicBool,
}

impl Seat {
    pub(super) fn new(wake: Wake) -> Self {
        Self { wake: Arc::new(wake), has_spoken: false.into(), is_sent_away: false.into() }
    }

    /// A donor's first line was right. A real one says it at once.
    pub(super) fn spoke(&self) {
        self.has_spoken.store(true, Ordering::Relaxed);
    }

    /// Whether it had to make room.
    pub(super) fn is_sent_away(&self) -> bool {
        self.is_sent_away.load(Ordering::Acquire)
    }
}

impl Strangers {
    /// Takes one in. If there are too many then, the oldest goes, and of those that have spoken none
    /// before one that has not.
    pub(super) fn sit_down(&mut self, seat: Arc<Seat>) {
        if self.0.len() >= MAX_STRANGERS {
            let is_silent = |seat: &Arc<Seat>| !seat.has_spoken.load(Ordering::Relaxed);
            let gone = self.0.remove(self.0.iter().position(is_silent).unwrap_or(0));
            gone.is_sent_away.store(true, Ordering::Release);
            gone.wake.wake();
        }
        self.0.push(seat);
    }

    /// Has them look whether there is still something to wait for.
    pub(super) fn wake(&self) {
        self.0.iter().for_each(|seat| seat.wake.wake());
    }

    /// One has shown who it is, or is gone.
    pub(super) fn stand_up(&mut self, seat: &Arc<Seat>) {
        self.0.retain(|other| !Arc::ptr_eq(other, seat));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_the_silent_makes_room_and_then_the_oldest_of_all() {
        let mut strangers = Strangers::default();
        let mut seats = Vec::new();
        for number in 0..MAX_STRANGERS + 3 {
            let seat = Arc::new(Seat::new(Wake::new().unwrap()));
            strangers.sit_down(Arc::clone(&seat));
            if number != 1 {
                seat.spoke();
            }
            seats.push(seat);
        }
        let away: Vec<_> = (0..seats.len()).filter(|n| seats[*n].is_sent_away()).collect();
        assert_eq!(away, [0, 1, 2]);
        strangers.stand_up(&seats[5]);
        strangers.sit_down(Arc::new(Seat::new(Wake::new().unwrap())));
        assert_eq!(strangers.0.len(), MAX_STRANGERS);
        assert!(!seats[3].is_sent_away(), "there was room");
    }
}
