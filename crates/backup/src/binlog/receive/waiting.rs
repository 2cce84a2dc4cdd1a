//! Schedule of acknowledgements for which the server waits. No I/O: segments go in, and come out when due.
//!
//! A server with semi-synchronous replication asks at the end of a transaction, so a segment is cut right there. It
//! is held as long as more arrives that one object can have, too, such as the rest of a group commit. What
//! arrives behind it is never part of what may be acknowledged: that is the end of the last segment that is stored.
//!
//! Whoever reads an archive holds the head of each segment, so there are only so many objects a second in the long run:
//! while commits follow each other without end, more of them share one.

use std::time::{Duration, Instant};

use crate::binlog::receive::segmenter::Cut;

/// The longest time that a server is kept waiting because more arrives.
const LINGER: Duration = Duration::from_millis(50);

/// Objects that may follow each other at once, if there were few before.
const AT_ONCE: u32 = 50;

/// Next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextStep {
    /// More is read.
    Read,
    /// Nothing has arrived, and it is too early for another object.
    Wait,
    /// Store the held segments, and acknowledge them to the server.
    Store,
}

#[derive(Debug)]
pub(super) struct AckSchedule {
    /// When the server asked first, since the last acknowledgement.
    asked: Option<Instant>,
    held: Option<Cut>,
    /// Segments came out since the last acknowledgement.
    is_owed: bool,
    each: Duration,
    /// Segments are joined up to this many plain bytes.
    size: usize,
    /// Until when the objects that were begun count, one after the other.
    counted: Option<Instant>,
}

impl AckSchedule {
    /// One object counts for the time `each`: in the long run, one is begun for each such time. Segments are joined up to `size` plain bytes.
    pub(super) fn new(each: Duration, size: usize) -> Self {
        Self { asked: None, held: None, is_owed: false, each, size, counted: None }
    }

    /// The server has asked for what was received up to now.
    pub(super) fn ask(&mut self, now: Instant) {
        self.asked.get_or_insert(now);
    }

    /// Returns whether the server has asked since the last acknowledgement.
    pub(super) fn is_asked(&self) -> bool {
        self.asked.is_some()
    }

    /// Takes segments, and returns those to store now: all, if the server does not wait.
    pub(super) fn take(&mut self, cuts: Vec<Cut>, now: Instant) -> Vec<Cut> {
        let mut out = Vec::new();
        for cut in cuts {
            let next = match &mut self.held {
                Some(held) => held.join(cut, self.size),
                None => Some(cut),
            };
            if let Some(next) = next {
                out.extend(self.held.replace(next));
            }
        }
        self.is_owed |= !out.is_empty();
        if self.asked.is_none() {
            out.extend(self.release(now));
        }
        out
    }

    /// Returns what is held.
    pub(super) fn release(&mut self, now: Instant) -> Option<Cut> {
        if self.held.is_some() {
            self.is_owed = true;
            let begun = self.counted.map_or(now, |counted| counted.max(now));
            self.counted = Some(begun + self.each);
        }
        self.held.take()
    }

    /// Returns the next step at this time.
    pub(super) fn next(&self, now: Instant, has_more: impl FnOnce() -> bool) -> NextStep {
        let Some(asked) = self.asked.filter(|_| self.held.is_some() || self.is_owed) else {
            return NextStep::Read;
        };
        let is_early = self.held.is_some()
            && self.counted.is_some_and(|counted| counted + self.each > now + self.each * AT_ONCE);
        if !is_early && now.duration_since(asked) >= LINGER {
            return NextStep::Store;
        }
        match (has_more(), is_early) {
            (true, _) => NextStep::Read,
            (false, true) => NextStep::Wait,
            (false, false) => NextStep::Store,
        }
    }

    /// Everything that came out is stored, and its end is acknowledged.
    pub(super) fn acknowledged(&mut self) {
        (self.asked, self.is_owed) = (None, false);
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use xb_repo::archive::stream::StoredPosition;

    use super::*;
    use crate::binlog::receive::segmenter::Times;

    fn cut(from: u64) -> Cut {
        let at = |offset| StoredPosition { log: "bin.000001".into(), offset };
        Cut {
            bytes: vec![0; 10],
            from: at(from),
            to: at(from + 10),
            next_log: None,
            description: Vec::new(),
            gtids_before: None,
            gtids_after: None,
            starts_inside: false,
            ends_inside: false,
            transactions: 1,
            contents: Default::default(),
            turns: None,
            times: Times::default(),
            received: [Timestamp::UNIX_EPOCH; 2],
            last: None,
            barriers: Vec::new(),
            more_barriers: 0,
            prepared: 0,
            altering: 0,
        }
    }

    const OBJECT_TIME: Duration = Duration::from_millis(200);

    /// Commits one after the other for so long, each as soon as the one before it is stored, which takes 10 ms. Returns
    /// how many objects that were, and the longest time that one waited.
    fn commit(waiting: &mut AckSchedule, now: &mut Instant, span: Duration) -> (u32, Duration) {
        let (end, mut objects, mut longest) = (*now + span, 0_u32, Duration::ZERO);
        while *now < end {
            let begin = *now;
            waiting.ask(*now);
            assert!(waiting.take(vec![cut(u64::from(objects) * 10)], *now).is_empty());
            while waiting.next(*now, || false) == NextStep::Wait {
                *now += Duration::from_millis(5);
            }
            assert_eq!(waiting.next(*now, || false), NextStep::Store);
            assert!(waiting.release(*now).is_some());
            *now += Duration::from_millis(10);
            waiting.acknowledged();
            longest = longest.max(*now - begin);
            objects += 1;
        }
        (objects, longest)
    }

    #[test]
    fn commits_without_end_are_a_limited_number_of_objects() {
        let (mut waiting, mut now) = (AckSchedule::new(OBJECT_TIME, usize::MAX), Instant::now());
        // A few do not wait for each other.
        let (objects, longest) = commit(&mut waiting, &mut now, Duration::from_millis(400));
        assert_eq!((objects, longest), (40, Duration::from_millis(10)));
        let (objects, longest) = commit(&mut waiting, &mut now, Duration::from_secs(60));
        assert!((300..=5 * 60 + AT_ONCE).contains(&objects), "{objects}");
        assert!(longest <= OBJECT_TIME + Duration::from_millis(15), "{longest:?}");
        // The unused part remains for later.
        now += Duration::from_secs(60);
        let (objects, longest) = commit(&mut waiting, &mut now, Duration::from_millis(400));
        assert_eq!((objects, longest), (40, Duration::from_millis(10)));
    }

    #[test]
    fn later_arrivals_share_the_object() {
        let (mut waiting, now) = (AckSchedule::new(OBJECT_TIME, usize::MAX), Instant::now());
        for n in 0..u64::from(AT_ONCE) {
            let _ = waiting.take(vec![cut(n * 10)], now);
        }
        waiting.ask(now);
        assert!(waiting.take(vec![cut(1000)], now).is_empty());
        assert_eq!(waiting.next(now, || true), NextStep::Read);
        assert_eq!(waiting.next(now, || false), NextStep::Wait);
        assert!(waiting.take(vec![cut(1010)], now).is_empty());
        // Nothing lets it wait for longer.
        let later = now + OBJECT_TIME;
        assert_eq!(waiting.next(later, || true), NextStep::Store);
        let joined = waiting.release(later).unwrap();
        assert_eq!((joined.from.offset, joined.to.offset), (1000, 1020));
        // Stored segments are acknowledged at once.
        assert_eq!(waiting.next(later, || false), NextStep::Store);
        waiting.acknowledged();
        assert_eq!(waiting.next(later, || false), NextStep::Read);
    }
}
