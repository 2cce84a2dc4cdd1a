//! Workers in parallel, results in the order of submission.
//!
//! Every job carries the sending half of a one-place channel; the receiving halves queue up in
//! order of submission. So a slow job holds back the results after it, never their work.

use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, bounded};

/// The other side of the pool is gone: results are not taken any more.
///
/// This is a consequence, never a cause: the stage that dropped the other side has the cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the next stage has stopped")]
pub struct Closed;

/// A worker thread ended without giving its result, which only a panic can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a worker thread panicked; this is a bug")]
pub struct WorkerDied;

struct Job<J, R> {
    job: J,
    result: Sender<R>,
}

/// The submitting half of [`ordered`].
#[derive(Debug)]
pub struct Submit<J, R> {
    jobs: Sender<Job<J, R>>,
    order: Sender<Receiver<R>>,
}

impl<J, R> Submit<J, R> {
    /// Queues `job`; waits while `depth` jobs are queued or not yet collected.
    ///
    /// # Errors
    /// [`Closed`] when the results side was dropped.
    pub fn send(&self, job: J) -> Result<(), Closed> {
        let (result, slot) = bounded(1);
        // The place in the order is taken first: it is this queue that bounds the depth.
        self.order.send(slot).map_err(|_| Closed)?;
        self.jobs.send(Job { job, result }).map_err(|_| Closed)
    }
}

/// The collecting half of [`ordered`].
#[derive(Debug)]
pub struct Results<R> {
    order: Receiver<Receiver<R>>,
    workers: Vec<JoinHandle<()>>,
}

impl<R> Results<R> {
    /// The next result in order of submission; `None` when the submitter is gone and all is collected.
    pub fn recv(&mut self) -> Option<Result<R, WorkerDied>> {
        let slot = self.order.recv().ok()?;
        Some(slot.recv().map_err(|_| WorkerDied))
    }

    /// Waits for the workers to end. Drops what was not collected.
    ///
    /// # Errors
    /// [`WorkerDied`] when one of them panicked.
    pub fn join(self) -> Result<(), WorkerDied> {
        drop(self.order);
        // Every worker is joined, also after the first that died.
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
/// At most `depth` jobs (at least `threads`) are waiting, running or done and not yet collected;
/// further submissions wait. Dropping the submitter ends the workers when the queue is empty,
/// dropping the results makes the submitter fail with [`Closed`].
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

/// As [`ordered`], for work with a state of its own in each thread, which `make` makes.
pub fn ordered_by<J, R, W>(
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
            // A thread that the system refuses is done without; with none at all `send` is
            // Closed and `recv` answers WorkerDied, so nothing waits for ever.
            std::thread::Builder::new()
                .name(format!("{name}-{number}"))
                .spawn(move || {
                    for Job { job, result } in queue {
                        // After a cancel the result is not collected: that is no error here.
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
    }
}
