//! Questions of the donor's layer above, and the joiner's replies. They travel beside the stream, on any connection.
//! Pure: no I/O, no clock.
//!
//! A question is answered once. Whatever is lost with a connection is asked again, and the joiner repeats its reply.

use std::collections::{BTreeMap, BTreeSet};

use crate::limits::MAX_QUESTIONS;
use crate::protocol::error::ProtocolError;

/// The donor's side: questions whose reply was not taken.
#[derive(Debug, Default)]
pub(crate) struct PendingQuestions {
    /// Number of questions ever asked.
    asked: u64,
    /// Number of replies taken.
    taken: u64,
    /// Questions without a reply.
    open: BTreeMap<u64, Vec<u8>>,
    /// Numbers of the open questions that wait for a connection.
    ready: BTreeSet<u64>,
    replies: BTreeMap<u64, Vec<u8>>,
}

impl PendingQuestions {
    /// Returns whether one more question may be asked before the next reply is taken.
    pub(crate) fn has_room(&self) -> bool {
        self.asked - self.taken < MAX_QUESTIONS
    }

    pub(crate) fn ask(&mut self, question: Vec<u8>) {
        self.open.insert(self.asked, question);
        self.ready.insert(self.asked);
        self.asked += 1;
    }

    /// Takes the oldest question that waits for a connection.
    pub(crate) fn send(&mut self) -> Option<(u64, Vec<u8>)> {
        let number = self.ready.pop_first()?;
        let question = self.open.get(&number)?;
        Some((number, question.clone()))
    }

    /// Asks everything again that has no reply: a connection is lost, and it may have carried the question or the
    /// reply.
    pub(crate) fn repeat(&mut self) {
        self.ready = self.open.keys().copied().collect();
    }

    /// Adds a reply, unless it is here already.
    pub(crate) fn insert(&mut self, number: u64, reply: Vec<u8>) -> Result<(), ProtocolError> {
        if number >= self.asked {
            return Err(ProtocolError::Unexpected { what: "reply without a question" });
        }
        if self.open.remove(&number).is_some() {
            self.ready.remove(&number);
            self.replies.insert(number, reply);
        }
        Ok(())
    }

    /// Takes the reply to the oldest question, if it is here.
    pub(crate) fn take(&mut self) -> Option<Vec<u8>> {
        let reply = self.replies.remove(&self.taken)?;
        self.taken += 1;
        Some(reply)
    }

    /// Returns whether there is a question whose reply was not taken.
    pub(crate) fn is_waiting(&self) -> bool {
        self.taken < self.asked
    }
}

/// The joiner's side: questions that were not passed on, and replies that may have to be repeated.
#[derive(Debug, Default)]
pub(crate) struct PendingReplies {
    questions: BTreeMap<u64, Vec<u8>>,
    /// Number of questions passed to the layer above.
    passed: u64,
    /// Number of questions that it has answered.
    replied: u64,
    replies: BTreeMap<u64, Vec<u8>>,
    /// Replies that wait for a connection.
    ready: BTreeSet<u64>,
    /// Nothing more is passed on.
    is_closed: bool,
}

impl PendingReplies {
    /// Adds a question, or has its reply repeated. Returns whether it is a new one.
    pub(crate) fn insert(&mut self, number: u64, question: Vec<u8>) -> Result<bool, ProtocolError> {
        if number >= self.replied.saturating_add(MAX_QUESTIONS) {
            return Err(ProtocolError::Unexpected { what: "question before earlier replies" });
        }
        if self.replies.contains_key(&number) {
            self.ready.insert(number);
        }
        if number < self.passed || self.is_closed {
            return Ok(false);
        }
        self.questions.insert(number, question);
        Ok(true)
    }

    /// Takes the next question, if it is here.
    pub(crate) fn take(&mut self) -> Option<Vec<u8>> {
        let question = self.questions.remove(&self.passed)?;
        self.passed += 1;
        Some(question)
    }

    /// Adds the reply to the oldest question that was taken and has none.
    pub(crate) fn reply(&mut self, reply: Vec<u8>) {
        if self.replied < self.passed {
            self.replies.insert(self.replied, reply);
            self.ready.insert(self.replied);
            self.replied += 1;
            // The donor has these, or it could not have asked the newest question.
            self.replies = self.replies.split_off(&self.replied.saturating_sub(MAX_QUESTIONS));
        }
    }

    /// Takes the oldest reply that waits for a connection.
    pub(crate) fn send(&mut self) -> Option<(u64, Vec<u8>)> {
        // A reply may be gone since it had to be repeated: the donor has it, and it holds up no other.
        while let Some(number) = self.ready.pop_first() {
            if let Some(reply) = self.replies.get(&number) {
                return Some((number, reply.clone()));
            }
        }
        None
    }

    /// Passes nothing more on.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
        self.questions.clear();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Step {
        Ask,
        /// The donor writes a question to this connection.
        Send(usize),
        /// The oldest question on this connection arrives.
        Arrive(usize),
        Reply,
        /// The joiner writes a reply to this connection.
        SendBack(usize),
        /// The oldest reply on this connection arrives.
        ArriveBack(usize),
        Take,
        Lose(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => Just(Step::Ask),
            4 => (0_usize..3).prop_map(Step::Send),
            4 => (0_usize..3).prop_map(Step::Arrive),
            4 => Just(Step::Reply),
            4 => (0_usize..3).prop_map(Step::SendBack),
            4 => (0_usize..3).prop_map(Step::ArriveBack),
            3 => Just(Step::Take),
            1 => (0_usize..3).prop_map(Step::Lose),
        ]
    }

    type Wire = Vec<Vec<(u64, Vec<u8>)>>;

    proptest! {
        /// Whatever is lost: every question is answered once, in order, and its one reply is taken.
        #[test]
        fn every_question_has_one_reply(steps in proptest::collection::vec(step(), 0..600)) {
            let (mut asked, mut answered) = (PendingQuestions::default(), PendingReplies::default());
            let (mut there, mut back): (Wire, Wire) = (vec![Vec::new(); 3], vec![Vec::new(); 3]);
            let (mut questions, mut answers, mut taken) = (0_u64, 0_u64, 0_u64);
            let mut run = |step: Step| -> bool {
                match step {
                    Step::Ask => {
                        if !asked.has_room() {
                            return false;
                        }
                        asked.ask(questions.to_le_bytes().to_vec());
                        questions += 1;
                    }
                    Step::Send(link) => match asked.send() {
                        Some(sent) => there[link].push(sent),
                        None => return false,
                    },
                    Step::Arrive(link) => {
                        if there[link].is_empty() {
                            return false;
                        }
                        let (number, question) = there[link].remove(0);
                        answered.insert(number, question).unwrap();
                    }
                    Step::Reply => match answered.take() {
                        Some(question) => {
                            assert_eq!(question, answers.to_le_bytes());
                            // A second answer would differ.
                            answered.reply(question.iter().map(|byte| !byte).collect());
                            answers += 1;
                        }
                        None => return false,
                    },
                    Step::SendBack(link) => match answered.send() {
                        Some(sent) => back[link].push(sent),
                        None => return false,
                    },
                    Step::ArriveBack(link) => {
                        if back[link].is_empty() {
                            return false;
                        }
                        let (number, reply) = back[link].remove(0);
                        asked.insert(number, reply).unwrap();
                    }
                    Step::Take => match asked.take() {
                        Some(reply) => {
                            let question: Vec<u8> = reply.iter().map(|byte| !byte).collect();
                            assert_eq!(question, taken.to_le_bytes());
                            taken += 1;
                        }
                        None => return false,
                    },
                    Step::Lose(link) => {
                        there[link].clear();
                        back[link].clear();
                        asked.repeat();
                    }
                }
                true
            };
            for step in steps {
                run(step);
            }
            for link in 0..3 {
                run(Step::Lose(link));
            }
            // Then it runs to its end without further losses.
            loop {
                let steps = [Step::Send(0), Step::Arrive(0), Step::Reply, Step::SendBack(0), Step::ArriveBack(0), Step::Take];
                if !steps.map(&mut run).contains(&true) {
                    break;
                }
            }
            prop_assert_eq!((questions, questions), (answers, taken));
            prop_assert!(!asked.is_waiting());
        }
    }

    #[test]
    fn a_reply_that_is_gone_holds_up_no_other() {
        let mut answered = PendingReplies::default();
        let answer = |answered: &mut PendingReplies, number| {
            assert!(answered.insert(number, vec![1]).unwrap());
            assert_eq!(answered.take(), Some(vec![1]));
            answered.reply(vec![2]);
        };
        answer(&mut answered, 0);
        assert_eq!(answered.send(), Some((0, vec![2])));
        // It arrives again, and before its reply is repeated, the donor has asked so much that it must have it.
        assert!(!answered.insert(0, vec![1]).unwrap());
        (1..=MAX_QUESTIONS).for_each(|number| answer(&mut answered, number));
        assert_eq!(answered.send(), Some((1, vec![2])));
    }

    #[test]
    fn the_number_of_open_questions_is_bounded_on_both_sides() {
        let (mut asked, mut answered) = (PendingQuestions::default(), PendingReplies::default());
        for number in 0..MAX_QUESTIONS {
            assert!(asked.has_room());
            asked.ask(vec![1]);
            assert!(answered.insert(number, vec![1]).unwrap());
        }
        assert!(!asked.has_room());
        assert!(answered.insert(MAX_QUESTIONS, vec![1]).is_err());
        assert!(asked.insert(MAX_QUESTIONS, vec![2]).is_err());
        assert_eq!(answered.take(), Some(vec![1]));
        answered.reply(vec![2]);
        assert!(answered.insert(MAX_QUESTIONS, vec![1]).unwrap());
        answered.close();
        assert!(answered.take().is_none() && !answered.insert(5, vec![1]).unwrap());
    }
}
