//! The joiner's thread that answers what it has.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;

use xb_wire::{Answers, Refusal};

use super::fill::Filler;
use super::group::HeldBlocks;
use super::held::HeldGroups;
use super::old_data::OldData;
use super::question::{Key, Question};

/// Maximum number of bytes that are held for chunks that have not arrived.
const HELD: usize = 64 << 20;

/// Answers the donor's questions until it is dropped.
#[derive(Debug)]
pub(crate) struct Answering {
    answers: Answers,
    held: Arc<HeldGroups>,
    /// Bytes about which the donor has asked.
    asked: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Answering {
    /// Starts to answer. Returns also what completes the stream with the blocks that the answers promise.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub(crate) fn start(
        answers: Answers,
        refusal: Refusal,
        mut old: OldData,
        key: Key,
    ) -> io::Result<(Self, Filler)> {
        let held = Arc::new(HeldGroups::new(HELD));
        let filler = Filler::new(Arc::clone(&held));
        let asked = Arc::new(AtomicU64::new(0));
        let thread = std::thread::Builder::new().name("old-data".into()).spawn({
            let (answers, held, asked) = (answers.clone(), Arc::clone(&held), Arc::clone(&asked));
            move || {
                if answer_all(&answers, &held, &asked, &mut old, &key) == AnswersEnd::Damaged {
                    refusal.refuse("a question of the donor about the old data is damaged");
                }
            }
        })?;
        Ok((Self { answers, held, asked, thread: Some(thread) }, filler))
    }

    /// Bytes about which the donor has asked.
    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Relaxed)
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.answers.close();
        self.held.close();
        if let Some(thread) = self.thread.take() {
            // A panic has printed its message, and the donor gets no more replies.
            let _ = thread.join();
        }
    }
}

/// Reason why no more questions are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AnswersEnd {
    /// Nothing more is needed; or the transfer has failed, and its reader has the cause.
    Closed,
    /// A question cannot be read.
    Damaged,
}

fn answer_all(
    answers: &Answers,
    held: &HeldGroups,
    asked: &AtomicU64,
    old: &mut OldData,
    key: &Key,
) -> AnswersEnd {
    while let Ok(Some(question)) = answers.next_question() {
        let Some(question) = Question::read(&question) else { return AnswersEnd::Damaged };
        if !held.await_room(question.group.len) {
            break;
        }
        asked.fetch_add(question.group.len as u64, Relaxed);
        let found = old.look(&question, key);
        let have = found.have;
        // Before the reply: the chunk may follow at once.
        if have != HeldBlocks::default() {
            held.push(found);
        }
        if answers.reply(&have.write()).is_err() {
            break;
        }
    }
    AnswersEnd::Closed
}
