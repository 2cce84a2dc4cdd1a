//! The joiner's thread that answers what it has.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use xb_wire::{Answers, Refusal};

use super::fill::Filler;
use super::group::HeldBlocks;
use super::held::{HeldGroup, HeldGroups};
use super::question::Question;

/// Maximum number of bytes that are held for chunks that have not arrived.
const HELD: usize = 64 << 20;
/// Time that the thread has for its last read. A file system that does not answer, such as that of a dead server, would hold
/// the transfer up for ever.
const LAST_READ: Duration = Duration::from_secs(10);

/// Answers the donor's questions until it is dropped.
#[derive(Debug)]
pub(crate) struct Answering {
    answers: Answers,
    held: Arc<HeldGroups>,
    /// Bytes about which the donor has asked.
    asked: Arc<AtomicU64>,
    /// Disconnected by the end of the thread, once it has closed its files.
    ended: Receiver<()>,
    limit: Duration,
}

impl Answering {
    /// Starts to answer with what `look` finds. Returns also what completes the stream with the blocks that the answers promise.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub(crate) fn start(
        answers: Answers,
        refusal: Refusal,
        look: impl FnMut(&Question) -> HeldGroup + Send + 'static,
    ) -> io::Result<(Self, Filler)> {
        let held = Arc::new(HeldGroups::new(HELD));
        let filler = Filler::new(Arc::clone(&held));
        let asked = Arc::new(AtomicU64::new(0));
        let (end, ended) = channel::<()>();
        std::thread::Builder::new().name("old-data".into()).spawn({
            let (answers, held, asked) = (answers.clone(), Arc::clone(&held), Arc::clone(&asked));
            move || {
                // Dropped in the opposite order.
                let _end = end;
                let mut look = look;
                if answer_all(&answers, &held, &asked, &mut look) == AnswersEnd::Damaged {
                    refusal.refuse("a question of the donor about the old data is damaged");
                }
            }
        })?;
        Ok((Self { answers, held, asked, ended, limit: LAST_READ }, filler))
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
        // A panic has printed its message, and the donor gets no more replies. A thread that still reads ends with the process.
        let _: Result<(), RecvTimeoutError> = self.ended.recv_timeout(self.limit);
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
    look: &mut impl FnMut(&Question) -> HeldGroup,
) -> AnswersEnd {
    while let Ok(Some(question)) = answers.next_question() {
        let Some(question) = Question::read(&question) else { return AnswersEnd::Damaged };
        if !held.await_room(question.group.len) {
            break;
        }
        asked.fetch_add(question.group.len as u64, Relaxed);
        let found = look(&question);
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

#[cfg(test)]
mod tests {
    use xb_reader::RelPath;
    use xb_wire::{Donor, Joiner, Listener, Security, connect};

    use super::*;
    use crate::delta::group::Group;

    #[test]
    fn a_read_that_does_not_return_is_not_waited_for() {
        let security = Security::OneTime;
        let joiner = Joiner { security: security.clone(), ..Joiner::default() };
        let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap(), joiner).unwrap();
        let announcement = listener.announcement().clone();
        let (returning, returned) = channel::<()>();
        let (reading, reads) = channel();
        std::thread::scope(|scope| {
            let donor = scope.spawn(|| {
                let donor = Donor { security, ..Donor::default() };
                let outgoing = connect(&announcement, b"", donor).unwrap();
                let path = RelPath::new(b"shop/a.ibd").unwrap();
                let group = Group { path, offset: 0, len: 16 << 10 };
                let question = Question::about(group, &[1; 16 << 10], &[7; 32]);
                assert!(outgoing.questions().unwrap().ask(&question.write()).unwrap());
                outgoing
            });
            let incoming = listener.accept(Duration::from_secs(60)).unwrap().accept(b"").unwrap();
            let look = move |question: &Question| {
                reading.send(()).unwrap();
                // Until the test ends.
                let _ = returned.recv();
                let have = HeldBlocks::default();
                HeldGroup { group: question.group.clone(), have, data: Vec::new() }
            };
            let started = Answering::start(incoming.answers(), incoming.refusal(), look);
            let (mut answering, _filler) = started.unwrap();
            reads.recv().unwrap();
            answering.limit = Duration::from_millis(1);
            drop(answering);
            drop(returning);
            drop(donor.join().unwrap());
        });
    }
}
