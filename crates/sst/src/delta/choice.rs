//! About which bytes the donor asks.

use std::mem::replace;

use crate::contract::settings::DeltaWish;

/// Bytes that must wait for a connection for the network to count as what holds the transfer up.
pub(crate) const BACKLOG: u64 = 2 << 20;
/// Bytes about which the donor asks before it looks at the network again.
const TURN: u64 = 1 << 30;
/// Replies, in bytes, after which a turn is judged, each time anew.
const TRIAL: u64 = 16 << 20;
/// Least part of them that the joiner must have, as a divisor.
const LEAST: u64 = 10;
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

/// Decides for each chunk. With `auto`, the donor asks only while the network holds the transfer up and the joiner has a
/// part of the data: hashing and reading then take time that the network leaves. Otherwise it asks about samples.
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
    /// Replies in this state, or since it was last judged, and what the joiner had of them, in bytes.
    heard: u64,
    equal: u64,
}

/// With `auto`, what the donor does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Waits until the network holds the transfer up.
    Idle,
    /// Asks about everything, for so many more bytes.
    Turn { left: u64, is_proven: bool },
    /// Sends so many more bytes, and then asks about a sample.
    Rest { left: u64 },
    /// Sends what follows until there is the reply about the sample.
    Sampled,
}

impl Choice {
    pub(crate) fn new(wish: DeltaWish) -> Self {
        let (next_rest, state) = (REST.0, State::Idle);
        Self { wish, state, next_rest, asked: 0, replied: 0, since: 0, heard: 0, equal: 0 }
    }

    /// Decides about a chunk of `len` bytes.
    pub(crate) fn asks(&mut self, len: u64, is_network_busy: impl FnOnce() -> bool) -> Asks {
        match self.wish {
            DeltaWish::Yes => return Asks::All,
            DeltaWish::No => return Asks::Nothing,
            DeltaWish::Auto => {}
        }
        let is_ready = matches!(self.state, State::Idle | State::Rest { left: 0 });
        let begins = is_ready && is_network_busy();
        if begins && self.state == State::Idle {
            self.begin(State::Turn { left: TURN, is_proven: false });
        }
        match &mut self.state {
            State::Turn { left, .. } => {
                *left = left.saturating_sub(len);
                if *left == 0 {
                    self.begin(State::Idle);
                }
                Asks::All
            }
            State::Rest { left: 0 } if begins => Asks::Sample,
            State::Rest { left } => {
                *left = left.saturating_sub(len);
                Asks::Nothing
            }
            State::Idle | State::Sampled => Asks::Nothing,
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
    pub(crate) fn learn(&mut self, len: u64, equal: u64) {
        let is_earlier = self.replied < self.since;
        self.replied += len;
        if is_earlier {
            return;
        }
        self.heard += len;
        self.equal += equal;
        let is_enough = self.equal >= self.heard / LEAST;
        match &mut self.state {
            State::Turn { is_proven, .. } if self.heard >= TRIAL => {
                *is_proven |= is_enough;
                (self.heard, self.equal) = (0, 0);
                match is_enough {
                    true => self.next_rest = REST.0,
                    false => self.rest(),
                }
            }
            State::Sampled if is_enough => {
                self.begin(State::Turn { left: TURN, is_proven: false });
            }
            State::Sampled => self.rest(),
            State::Turn { .. } | State::Idle | State::Rest { .. } => {}
        }
    }

    /// Asks about nothing any more.
    pub(crate) fn stop(&mut self) {
        self.wish = DeltaWish::No;
    }

    /// Whether the donor asks no more about the chunk about which it has begun to ask.
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

    fn rest(&mut self) {
        let next = (2 * self.next_rest).min(REST.1);
        let left = replace(&mut self.next_rest, next);
        self.begin(State::Rest { left });
    }

    fn begin(&mut self, state: State) {
        self.state = state;
        self.since = self.asked;
        (self.heard, self.equal) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Asks about `len` bytes, and has the reply at once.
    fn ask(choice: &mut Choice, len: u64, equal: u64) {
        assert_eq!(choice.asks(len, || true), Asks::All);
        choice.asked(len);
        choice.learn(len, equal);
    }

    /// Bytes that are sent without a question until the next sample.
    fn rested(choice: &mut Choice) -> u64 {
        let mut rested = 0;
        while choice.asks(MIB, || true) == Asks::Nothing {
            rested += MIB;
            assert!(rested < 1 << 40);
        }
        assert_eq!(choice.asks(MIB, || true), Asks::Sample);
        rested / MIB
    }

    #[test]
    fn auto_asks_in_turns_while_the_network_is_busy() {
        let mut choice = Choice::new(DeltaWish::Auto);
        assert_eq!(choice.asks(10 * MIB, || false), Asks::Nothing);
        assert_eq!(choice.ahead(), AHEAD.1);
        ask(&mut choice, TRIAL, TRIAL / 2);
        assert_eq!(choice.ahead(), AHEAD.0);
        // The turn is not over, whatever the network does.
        assert_eq!(choice.asks(TURN - TRIAL - 1, || panic!("not asked for")), Asks::All);
        assert_eq!(choice.asks(5, || panic!("not asked for")), Asks::All);
        assert_eq!(choice.asks(5, || false), Asks::Nothing);
        assert_eq!(choice.asks(5, || true), Asks::All);
    }

    #[test]
    fn auto_rests_where_the_joiner_has_little_and_samples() {
        let mut choice = Choice::new(DeltaWish::Auto);
        let little = TRIAL / LEAST - 1;
        assert!(!choice.gives_up());
        ask(&mut choice, TRIAL, little);
        assert!(choice.gives_up());
        let mut rests = Vec::new();
        for _ in 0..6 {
            rests.push(rested(&mut choice));
            assert_eq!(choice.ahead(), AHEAD.1);
            choice.asked(MIB);
            // What follows is sent.
            assert_eq!(choice.asks(MIB, || true), Asks::Nothing);
            choice.learn(MIB, MIB / LEAST - 1);
        }
        assert_eq!(rests, [8, 16, 32, 64, 64, 64]);
        // A sample of which the joiner has a part begins a turn, and a good turn ends the row.
        assert_eq!(rested(&mut choice), 64);
        choice.asked(MIB);
        choice.learn(MIB, MIB / 2);
        ask(&mut choice, TRIAL, TRIAL / 2);
        ask(&mut choice, TRIAL, little);
        assert_eq!(rested(&mut choice), 8);
        // It is asked only where the network is slow.
        assert_eq!(choice.asks(MIB, || false), Asks::Nothing);
    }

    #[test]
    fn replies_that_were_on_their_way_change_nothing() {
        let mut choice = Choice::new(DeltaWish::Auto);
        for _ in 0..3 {
            assert_eq!(choice.asks(TRIAL, || true), Asks::All);
            choice.asked(TRIAL);
        }
        choice.learn(TRIAL, 0);
        assert_eq!(choice.asks(8 * MIB, || true), Asks::Nothing);
        choice.learn(TRIAL, TRIAL);
        assert_eq!(choice.asks(MIB, || true), Asks::Sample);
        choice.asked(MIB);
        choice.learn(TRIAL, TRIAL);
        assert_eq!(choice.asks(MIB, || true), Asks::Nothing);
        choice.learn(MIB, MIB);
        assert_eq!(choice.asks(MIB, || true), Asks::All);
    }

    #[test]
    fn yes_always_asks_and_no_never() {
        for (wish, asks) in [(DeltaWish::Yes, Asks::All), (DeltaWish::No, Asks::Nothing)] {
            let mut choice = Choice::new(wish);
            choice.asked(TURN);
            choice.learn(TURN, 0);
            assert_eq!(choice.asks(1, || asks == Asks::Nothing), asks);
            choice.stop();
            assert_eq!(choice.asks(1, || true), Asks::Nothing);
        }
    }
}
