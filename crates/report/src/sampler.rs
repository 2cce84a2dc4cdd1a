//! A thread that takes samples until the section ends.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crate::gauge::Gauge;

/// Takes samples of a section. Dropping it takes the last one.
#[derive(Debug)]
pub struct Watch {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Watches nothing.
    pub(crate) fn none() -> Self {
        Self { stop: None, thread: None }
    }

    /// Starts to call `sample`, which returns the time until the next call. The last call is told
    /// so. If the system has no thread left, the section stays empty.
    pub(crate) fn start(
        mut gauge: Gauge,
        mut sample: impl FnMut(&mut Gauge, bool) -> Duration + Send + 'static,
    ) -> Self {
        let (stop, stopped) = channel();
        let work = move || {
            let mut pause = sample(&mut gauge, false);
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(pause) {
                pause = sample(&mut gauge, false);
            }
            sample(&mut gauge, true);
        };
        let thread = Builder::new().name("report".to_owned()).spawn(work).ok();
        Self { stop: Some(stop), thread }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic there costs only the rest of the report.
            let _ = thread.join();
        }
    }
}
