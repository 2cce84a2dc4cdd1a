//! About which bytes the donor asks.

use std::mem::replace;
use std::time::Instant;

use crate::contract::settings::DeltaWish;

/// Replies, in bytes, after which a turn is judged, each time anew.
const TRIAL: u64 = 16 << 20;
/// Replies, in bytes, after which a turn that has not been good yet ends if the joiner has nothing of them.
const PROBE: u64 = 4 << 20;
/// Bytes a second that make a link fast. A link of 1 Gbit/s is none.
const FAST: f64 = (150 << 20) as f64;
/// Part of what was asked about that the joiner must have: on a link that is not fast, and on one that is, where hashing
/// and reading take longer than sending.
const LEAST: (f64, f64) = (0.1, 0.75);
/// Bytes that are sent without a question after a turn in which the joiner had too little, and after several samples in a row
/// of which it had too little: twice as many each time, up to the second number.
const REST: (u64, u64) = (8 << 20, 64 << 20);
/// Maximum number of bytes that wait for a reply: while the joiner is known to have much of what it is asked about, and
/// before.
const AHEAD: (usize, usize) = (64 << 20, 16 << 20);

/// About what part of a chunk the donor asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asks {
    /// None of it.
    Nothing,
    /// Its beginning.
    Sample,
    /// All of it.
    All,
}

/// Progress of the joiner by its acknowledgements at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrived {
    pub(crate) bytes: u64,
    pub(crate) at: Instant,
}

/// Decides for each chunk. With `auto`, the donor asks while the joiner has enough of the data, and otherwise about samples.
#[derive(Debug)]
pub(crate) struct Choice {
    wish: DeltaWish,
    state: State,
    /// Bytes of the next rest.
    next_rest: u64,
    /// Bytes about which the donor has asked, and those of them about which there was a reply.
    asked: u64,
    replied: u64,
    /// How many bytes had been asked about when this state began: replies about these change nothing.
    since: u64,
    /// The state when the joiner was last judged.
    before: Option<Arrived>,
    /// Replies in this state, or since it was last judged, and what the joiner had of them, in bytes.
    heard: u64,
    equal: u64,
}

/// With `auto`, what the donor does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Asks about everything.
    Turn { is_proven: bool },
    /// Sends so many more bytes, and then asks about a sample.
    Rest { left: u64 },
    /// Sends what follows until there is the reply about the sample.
    Sampled,
}

impl Choice {
    pub(crate) fn new(wish: DeltaWish) -> Self {
        let (next_rest, state) = (REST.0, State::Turn { is_proven: false });
        let (asked, replied, since, before, heard, equal) = (0, 0, 0, None, 0, 0);
        Self { wish, state, next_rest, asked, replied, since, before, heard, equal }
    }

    /// Decides about a chunk of `len` bytes.
    pub(crate) fn asks(&mut self, len: u64) -> Asks {
        match (self.wish, &mut self.state) {
            (DeltaWish::Yes, _) | (DeltaWish::Auto, State::Turn { .. }) => Asks::All,
            (DeltaWish::Auto, State::Rest { left: 0 }) => Asks::Sample,
            (DeltaWish::Auto, State::Rest { left }) => {
                *left = left.saturating_sub(len);
                Asks::Nothing
            }
            (DeltaWish::Auto, State::Sampled) | (DeltaWish::No, _) => Asks::Nothing,
        }
    }

    /// Notes a question about `len` bytes.
    pub(crate) fn asked(&mut self, len: u64) {
        if self.state == (State::Rest { left: 0 }) {
            self.begin(State::Sampled);
        }
        self.asked += len;
    }

    /// Notes a reply about `len` bytes, of which the joiner has `equal`. Replies are in the order of the questions.
    pub(crate) fn learn(&mut self, len: u64, equal: u64, arrived: impl FnOnce() -> Arrived) {
        let is_earlier = self.replied < self.since;
        self.replied += len;
        if is_earlier {
            return;
        }
        self.heard += len;
        self.equal += equal;
        let has_nothing = self.equal == 0 && self.heard >= PROBE;
        let is_over = match self.state {
            State::Turn { is_proven: false } if has_nothing => true,
            _ => self.heard >= TRIAL,
        };
        let is_due = match self.state {
            State::Turn { .. } => self.before.is_none() || is_over,
            State::Sampled => true,
            State::Rest { .. } => false,
        };
        if !is_due {
            return;
        }
        let now = arrived();
        let before = self.before.replace(now);
        if self.state != State::Sampled && !is_over {
            return;
        }
        let is_fast = before.is_some_and(|before| {
            let took = now.at.saturating_duration_since(before.at).as_secs_f64();
            now.bytes.saturating_sub(before.bytes) as f64 > FAST * took
        });
        let least = if is_fast { LEAST.1 } else { LEAST.0 };
        let is_enough = self.equal as f64 >= least * self.heard as f64;
        match (self.state, is_enough) {
            (State::Sampled, true) => self.begin(State::Turn { is_proven: false }),
            (_, true) => {
                self.next_rest = REST.0;
                self.begin(State::Turn { is_proven: true });
            }
            (_, false) => {
                let next = (2 * self.next_rest).min(REST.1);
                let left = replace(&mut self.next_rest, next);
                self.begin(State::Rest { left });
            }
        }
    }

    /// Asks about nothing any more.
    pub(crate) fn stop(&mut self) {
        self.wish = DeltaWish::No;
    }

    /// Returns whether the donor asks no more about the chunk about which it has begun to ask.
    pub(crate) fn gives_up(&self) -> bool {
        match self.wish {
            DeltaWish::Yes => false,
            DeltaWish::No => true,
            DeltaWish::Auto => matches!(self.state, State::Rest { .. } | State::Sampled),
        }
    }

    /// Maximum number of bytes that wait for a reply.
    pub(crate) fn ahead(&self) -> usize {
        let is_proven = matches!(self.state, State::Turn { is_proven: true, .. });
        if is_proven || self.wish == DeltaWish::Yes { AHEAD.0 } else { AHEAD.1 }
    }

    fn begin(&mut self, state: State) {
        // What was asked about in a turn counts in the next one, too.
        let goes_on = matches!((self.state, state), (State::Turn { .. }, State::Turn { .. }));
        if !goes_on {
            self.since = self.asked;
        }
        self.state = state;
        (self.heard, self.equal) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// Notes a reply when so many MiB a second arrive.
    fn learn(choice: &mut Choice, len: u64, equal: u64, rate: u64) {
        let before = choice.before;
        choice.learn(len, equal, || match before {
            None => Arrived { bytes: 0, at: Instant::now() },
            Some(Arrived { bytes, at }) => {
                Arrived { bytes: bytes + rate * MIB, at: at + Duration::from_secs(1) }
            }
        });
    }

    /// Asks about `len` bytes, and has the reply at once.
    fn ask(choice: &mut Choice, len: u64, equal: u64, rate: u64) {
        assert_eq!(choice.asks(len), Asks::All);
        choice.asked(len);
        learn(choice, len, equal, rate);
    }

    /// MiB that are sent without a question until the next sample.
    fn rested(choice: &mut Choice) -> u64 {
        let mut rested = 0;
        while choice.asks(MIB) == Asks::Nothing {
            rested += 1;
            assert!(rested < 1 << 20);
        }
        assert_eq!(choice.asks(MIB), Asks::Sample);
        rested
    }

    #[test]
    fn auto_asks_while_the_joiner_has_enough() {
        for (rate, little, enough) in
            [(113, TRIAL / 10 - 1, TRIAL / 10 + 1), (160, 11 * MIB, 12 * MIB)]
        {
            let mut choice = Choice::new(DeltaWish::Auto);
            ask(&mut choice, MIB, MIB, rate);
            assert_eq!(choice.ahead(), AHEAD.1);
            for _ in 0..9 {
                ask(&mut choice, TRIAL - MIB, enough - MIB, rate);
                assert_eq!(choice.ahead(), AHEAD.0);
                ask(&mut choice, MIB, MIB, rate);
            }
            assert!(!choice.gives_up());
            ask(&mut choice, TRIAL - MIB, little.saturating_sub(MIB), rate);
            assert!(choice.gives_up());
            assert_eq!((choice.asks(MIB), choice.ahead()), (Asks::Nothing, AHEAD.1));
        }
    }

    #[test]
    fn auto_rests_where_the_joiner_has_little_and_samples() {
        let mut choice = Choice::new(DeltaWish::Auto);
        ask(&mut choice, TRIAL, 0, 10);
        let mut rests = Vec::new();
        for _ in 0..6 {
            rests.push(rested(&mut choice));
            choice.asked(MIB);
            // What follows is sent.
            assert_eq!(choice.asks(MIB), Asks::Nothing);
            learn(&mut choice, MIB, MIB / 11, 10);
        }
        assert_eq!(rests, [8, 16, 32, 64, 64, 64]);
        // A sample of which the joiner has a part begins a turn, and a good turn ends the row.
        assert_eq!(rested(&mut choice), 64);
        choice.asked(MIB);
        learn(&mut choice, MIB, MIB / 2, 10);
        ask(&mut choice, TRIAL, TRIAL / 2, 10);
        ask(&mut choice, TRIAL, 0, 10);
        assert_eq!(rested(&mut choice), 8);
        // Not enough for a fast link.
        choice.asked(MIB);
        learn(&mut choice, MIB, MIB / 2, 160);
        assert_eq!(choice.asks(MIB), Asks::Nothing);
    }

    #[test]
    fn auto_asks_about_little_where_the_joiner_has_nothing() {
        let mut choice = Choice::new(DeltaWish::Auto);
        for _ in 0..4 {
            ask(&mut choice, MIB, 0, 160);
        }
        assert!(choice.gives_up());
        assert_eq!(rested(&mut choice), 8);
        // A turn that was good runs to its end: one new table says nothing about the next.
        choice.asked(MIB);
        learn(&mut choice, MIB, MIB, 160);
        ask(&mut choice, TRIAL, TRIAL, 160);
        for _ in 0..15 {
            ask(&mut choice, MIB, 0, 160);
            assert!(!choice.gives_up());
        }
        ask(&mut choice, MIB, 0, 160);
        assert!(choice.gives_up());
    }

    #[test]
    fn replies_that_were_on_their_way_change_nothing() {
        let mut choice = Choice::new(DeltaWish::Auto);
        for _ in 0..3 {
            assert_eq!(choice.asks(TRIAL), Asks::All);
            choice.asked(TRIAL);
        }
        learn(&mut choice, TRIAL, 0, 10);
        assert_eq!(choice.asks(8 * MIB), Asks::Nothing);
        learn(&mut choice, TRIAL, TRIAL, 10);
        assert_eq!(choice.asks(MIB), Asks::Sample);
        choice.asked(MIB);
        learn(&mut choice, TRIAL, TRIAL, 10);
        assert_eq!(choice.asks(MIB), Asks::Nothing);
        learn(&mut choice, MIB, MIB, 10);
        assert_eq!(choice.asks(MIB), Asks::All);
    }

    #[test]
    fn yes_always_asks_and_no_never() {
        for (wish, asks) in [(DeltaWish::Yes, Asks::All), (DeltaWish::No, Asks::Nothing)] {
            let mut choice = Choice::new(wish);
            choice.asked(TRIAL);
            learn(&mut choice, TRIAL, 0, 10);
            assert_eq!((choice.asks(1), choice.gives_up()), (asks, asks == Asks::Nothing));
            choice.stop();
            assert_eq!(choice.asks(1), Asks::Nothing);
        }
    }
}
