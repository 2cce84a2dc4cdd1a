//! Workers in parallel, results in the order of submission.
//!
//! Every job carries the sender of a channel with one slot; the receivers are queued in the order
//! of submission. So a slow job delays the results after it, but not the work on them.

use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, bounded};

/// The other side of the pool is gone, so results are no longer collected.
///
/// This is a consequence, never a cause: the stage that dropped the other side has the cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the next stage has stopped")]
pub struct Closed;

/// A worker thread ended without a result, which only a panic can cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a worker thread panicked; this is a bug")]
pub struct WorkerDied;

struct Job<J, R> {
    job: J,
    result: Sender<R>,
}

/// Submitting half of [`ordered`].
#[derive(Debug)]
pub struct Submit<J, R> {
    jobs: Sender<Job<J, R>>,
    order: Sender<Receiver<R>>,
}

impl<J, R> Submit<J, R> {
    /// Queues `job`; waits while `depth` jobs are not yet collected.
    ///
    /// # Errors
    /// [`Closed`] if the results side was dropped.
    pub fn send(&self, job: J) -> Result<(), Closed> {
        let (result, slot) = bounded(1);
        // The slot in the order is taken first, because this queue limits the depth.
        self.order.send(slot).map_err(|_| Closed)?;
        self.jobs.send(Job { job, result }).map_err(|_| Closed)
    }

    /// Queues a result that needs no worker; waits like [`send`](Self::send).
    ///
    /// # Errors
    /// [`Closed`] if the results side was dropped.
    pub fn done(&self, result: R) -> Result<(), Closed> {
        let (slot, receiver) = bounded(1);
        slot.send(result).map_err(|_| Closed)?;
        self.order.send(receiver).map_err(|_| Closed)
    }
}

/// Collecting half of [`ordered`].
#[derive(Debug)]
pub struct Results<R> {
    order: Receiver<Receiver<R>>,
    workers: Vec<JoinHandle<()>>,
}

impl<R> Results<R> {
    /// Returns the next result in order of submission; `None` if the submitter is gone and all
    /// results are collected.
    pub fn recv(&mut self) -> Option<Result<R, WorkerDied>> {
        let slot = self.order.recv().ok()?;
        Some(slot.recv().map_err(|_| WorkerDied))
    }

    /// Waits for the workers to end. Drops results that were not collected.
    ///
    /// # Errors
    /// [`WorkerDied`] if a worker panicked.
    pub fn join(self) -> Result<(), WorkerDied> {
        drop(self.order);
        // Join every worker, even after one has failed.
        let mut outcome = Ok(());
        for worker in self.workers {
            if worker.join().is_err() {
                outcome = Err(WorkerDied);
            }
        }
        outcome
    }
}

/// Starts `threads` workers (at least one) named `name` that run `work` on each job.
///
/// At most `depth` jobs (at least `threads`) are waiting, running or not yet collected; further
/// submissions wait. Dropping the submitter ends the workers when the queue is empty. Dropping the
/// results makes the submitter fail with [`Closed`].
pub fn ordered<J, R, F>(
    name: &str,
    threads: usize,
    depth: usize,
    work: F,
) -> (Submit<J, R>, Results<R>)
where
    J: Send + 'static,
    R: Send + 'static,
    F: Fn(J) -> R + Send + Clone + 'static,
{
    ordered_by(name, threads, depth, || work.clone())
}

/// Like [`ordered`], for work with a state per thread, which `make` creates.
pub(crate) fn ordered_by<J, R, W>(
    name: &str,
    threads: usize,
    depth: usize,
    mut make: impl FnMut() -> W,
) -> (Submit<J, R>, Results<R>)
where
    J: Send + 'static,
    R: Send + 'static,
    W: FnMut(J) -> R + Send + 'static,
{
    let threads = threads.max(1);
    let depth = depth.max(threads);
    let (jobs, queue) = bounded::<Job<J, R>>(depth);
    let (order, slots) = bounded(depth);
    let workers = (0..threads)
        .filter_map(|number| {
            let (queue, mut work) = (queue.clone(), make());
            // If the system cannot start a thread, the pool runs without it. With no threads at
            // all, `send` returns Closed and `recv` returns WorkerDied, so nothing waits forever.
            std::thread::Builder::new()
                .name(format!("{name}-{number}"))
                .spawn(move || {
                    for Job { job, result } in queue {
                        // After a cancel the result is not collected, which is not an error here.
                        let _ = result.send(work(job));
                    }
                })
                .ok()
        })
        .collect();
    (Submit { jobs, order }, Results { order: slots, workers })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_of_submission() {
        let (submit, mut results) = ordered("test", 4, 8, |n: u64| {
            // Uneven work, so that workers overtake each other.
            (0..(n % 7) * 1000).fold(n, |acc, x| std::hint::black_box(acc ^ x ^ x))
        });
        let feeder = std::thread::spawn(move || (0..500).for_each(|n| submit.send(n).unwrap()));
        let got: Vec<u64> = std::iter::from_fn(|| results.recv()).map(Result::unwrap).collect();
        feeder.join().unwrap();
        assert_eq!(got, (0..500).collect::<Vec<_>>());
        results.join().unwrap();
    }

    #[test]
    fn results_without_work_keep_their_turn() {
        let (submit, mut results) = ordered("test", 2, 4, |n: u32| n * 10);
        let feeder = std::thread::spawn(move || {
            for n in 0..100 {
                if n % 3 == 0 { submit.send(n) } else { submit.done(n) }.unwrap();
            }
        });
        let got: Vec<u32> = std::iter::from_fn(|| results.recv()).map(Result::unwrap).collect();
        feeder.join().unwrap();
        let expected: Vec<u32> = (0..100).map(|n| if n % 3 == 0 { n * 10 } else { n }).collect();
        assert_eq!(got, expected);
    }

    #[test]
    fn a_panic_is_reported_at_its_place_and_at_join() {
        let (submit, mut results) = ordered("test", 2, 4, |n: u32| {
            assert_ne!(n, 1, "wanted by the test");
            n
        });
        for n in 0..3 {
            submit.send(n).unwrap();
        }
        drop(submit);
        assert_eq!(results.recv(), Some(Ok(0)));
        assert_eq!(results.recv(), Some(Err(WorkerDied)));
        assert_eq!(results.join(), Err(WorkerDied));
    }

    #[test]
    fn submitting_fails_once_the_results_are_dropped() {
        let (submit, results) = ordered("test", 1, 1, |n: u32| n);
        drop(results);
        assert_eq!(submit.send(1), Err(Closed));
        assert_eq!(submit.done(1), Err(Closed));
    }
}
