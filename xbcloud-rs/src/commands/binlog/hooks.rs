//! Programs that run beside a receiver when its log has a gap, a branch or a barrier.

use std::ffi::OsString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use xb_cli::Log;

use crate::job::run_hook;

/// Time limit of a hook.
const LIMIT: Duration = Duration::from_secs(600);

/// The hooks, of which one runs at a time. What happens meanwhile is passed on once that has ended, all of it as one: a
/// log that is received for the first time can have thousands of barriers, and a hook takes a backup.
#[derive(Debug)]
pub(super) struct GapHooks {
    log: Log,
    programs: Arc<[Vec<OsString>]>,
    waiting: Arc<Mutex<Waiting>>,
}

#[derive(Debug, Default)]
struct Waiting {
    is_running: bool,
    /// The newest event that no hook has got.
    event: Option<Value>,
    /// Number of events before it that none will get.
    earlier: u64,
}

impl Waiting {
    fn take(&mut self) -> Option<Value> {
        let mut event = self.event.take()?;
        event["earlier"] = json!(std::mem::take(&mut self.earlier));
        Some(event)
    }
}

impl GapHooks {
    pub(super) fn new(log: Log, programs: Vec<Vec<OsString>>) -> Self {
        Self { log, programs: programs.into(), waiting: Arc::default() }
    }

    /// Passes an event on, beside the receiver, which continues meanwhile.
    pub(super) fn run(&self, event: Value) {
        if self.programs.is_empty() {
            return;
        }
        let mut waiting = lock(&self.waiting);
        if waiting.event.replace(event).is_some() {
            waiting.earlier += 1;
        }
        if waiting.is_running {
            return;
        }
        let (log, programs) = (self.log.clone(), Arc::clone(&self.programs));
        let shared = Arc::clone(&self.waiting);
        match std::thread::Builder::new().name("hook".into()).spawn(move || {
            while let Some(event) = next(&shared) {
                run_all(&log, &programs, &event);
            }
        }) {
            Ok(_) => waiting.is_running = true,
            Err(error) => {
                self.log.warn(format!("hook --on-gap: no thread can be started: {error}"));
            }
        }
    }
}

fn lock(waiting: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the next event; `None` ends the thread.
fn next(waiting: &Mutex<Waiting>) -> Option<Value> {
    let mut waiting = lock(waiting);
    let event = waiting.take();
    waiting.is_running = event.is_some();
    event
}

fn run_all(log: &Log, programs: &[Vec<OsString>], event: &Value) {
    let input = event.to_string();
    for argv in programs {
        let passed_on = log.clone();
        let on_line = move |line: &str| passed_on.pass_on(line);
        if let Err(error) = run_hook(argv, &input, LIMIT, on_line, || None) {
            log.warn(format!("hook --on-gap: {error}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_while_a_hook_runs_is_passed_on_as_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        // Each run waits until it may end.
        let script = format!(
            "cat >> {got}; echo >> {got}; until [ -e {go} ]; do sleep 0.01; done",
            got = path("got"),
            go = path("go"),
        );
        let hooks = GapHooks::new(
            Log::to("test", xb_cli::LogOptions::default(), std::io::sink()),
            vec![["sh", "-c", &script].map(OsString::from).to_vec()],
        );
        let got = || {
            let text = std::fs::read_to_string(path("got")).unwrap_or_default();
            let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            lines.map(|event| (event["n"].clone(), event["earlier"].clone())).collect::<Vec<_>>()
        };
        hooks.run(json!({ "n": 1 }));
        xb_testkit::until("the first one runs", || got().len() == 1);
        for n in 2..50 {
            hooks.run(json!({ "n": n }));
        }
        std::fs::write(path("go"), "").unwrap();
        xb_testkit::until("no hook runs", || !lock(&hooks.waiting).is_running);
        assert_eq!(got(), [(json!(1), json!(0)), (json!(49), json!(47))]);
        // Another one is passed on as the first was.
        hooks.run(json!({ "n": 50 }));
        xb_testkit::until("the last one has run", || got().len() == 3);
        assert_eq!(got().last(), Some(&(json!(50), json!(0))));
    }
}
