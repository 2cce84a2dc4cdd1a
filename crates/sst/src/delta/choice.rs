//! Whether the donor asks what the joiner has.

use crate::contract::settings::DeltaWish;

/// Bytes that must wait for a connection for the network to count as what holds the transfer up.
pub(crate) const BACKLOG: u64 = 2 << 20;
/// Bytes about which the donor asks before it looks at the network again.
const TURN: u64 = 1 << 30;
/// Replies, in bytes, that show what a turn is good for.
const TRIAL: u64 = 128 << 20;
/// Bytes that are sent without a question after a turn in which the joiner had too little, and after several in a row: twice as
/// many each time, up to the second number.
const REST: (u64, u64) = (2 << 30, 64 << 30);
/// Least part that the joiner must have, as a divisor.
const LEAST: u64 = 10;

/// Decides for each chunk. With `auto`, the donor asks only while the network holds the transfer up and the joiner has a
/// part of the data: hashing and reading then take time that the network leaves.
#[derive(Debug)]
pub(crate) struct Choice {
    wish: DeltaWish,
    /// Bytes left of this turn.
    turn: u64,
    /// Bytes left to send without a question.
    rest: u64,
    /// Bytes of the next rest.
    next_rest: u64,
    /// Bytes of this turn that the joiner had.
    equal: u64,
    /// Bytes of this turn about which there was a reply.
    answered: u64,
}

impl Choice {
    pub(crate) fn new(wish: DeltaWish) -> Self {
        Self { wish, turn: 0, rest: 0, next_rest: REST.0, equal: 0, answered: 0 }
    }

    /// Returns whether to ask about a chunk of `len` bytes.
    pub(crate) fn asks(&mut self, len: u64, is_network_busy: impl FnOnce() -> bool) -> bool {
        if self.wish != DeltaWish::Auto {
            return self.wish == DeltaWish::Yes;
        }
        if self.rest > 0 {
            self.rest = self.rest.saturating_sub(len);
            return false;
        }
        if self.turn == 0 {
            if !is_network_busy() {
                return false;
            }
            (self.turn, self.equal, self.answered) = (TURN, 0, 0);
        }
        self.turn = self.turn.saturating_sub(len);
        true
    }

    /// Notes a reply about `len` bytes, of which the joiner has `equal`.
    pub(crate) fn learn(&mut self, len: u64, equal: u64) {
        self.answered += len;
        self.equal += equal;
        if self.answered < TRIAL {
            return;
        }
        if self.equal >= self.answered / LEAST {
            self.next_rest = REST.0;
        } else if self.turn > 0 {
            (self.turn, self.rest) = (0, self.next_rest);
            self.next_rest = (2 * self.next_rest).min(REST.1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_asks_in_turns_while_the_network_is_busy() {
        let mut choice = Choice::new(DeltaWish::Auto);
        assert!(!choice.asks(10 << 20, || false));
        assert!(choice.asks(TURN - 1, || true));
        choice.learn(TURN - 1, TURN / 2);
        // The turn is not over, whatever the network does.
        assert!(choice.asks(5, || panic!("not asked for")));
        assert!(!choice.asks(5, || false) && choice.asks(5, || true));
    }

    #[test]
    fn auto_rests_where_the_joiner_has_little() {
        let mut choice = Choice::new(DeltaWish::Auto);
        let mut rested = |equal| {
            assert!(choice.asks(1, || true));
            choice.learn(TRIAL, equal);
            // Replies that were on their way change nothing.
            choice.learn(TRIAL, equal);
            let mut rested = 0;
            while rested < 1 << 40 && !choice.asks(64 << 20, || true) {
                rested += 64 << 20;
            }
            rested >> 30
        };
        let little = TRIAL / LEAST - 1;
        let rests: Vec<u64> = (0..8).map(|_| rested(little)).collect();
        assert_eq!(rests, [2, 4, 8, 16, 32, 64, 64, 64]);
        // A turn that was worth it ends the row.
        assert_eq!(rested(TRIAL / 2), 0);
        assert_eq!((0..9).map(|_| rested(0)).find(|rested| *rested > 0), Some(2));
    }

    #[test]
    fn yes_always_asks_and_no_never() {
        for (wish, asks) in [(DeltaWish::Yes, true), (DeltaWish::No, false)] {
            let mut choice = Choice::new(wish);
            choice.learn(TURN, 0);
            assert_eq!(choice.asks(1, || !asks), asks);
        }
    }
}
