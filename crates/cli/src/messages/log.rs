//! Log on standard error.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use indicatif::ProgressBar;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::personality::Personality;
use crate::text::printable;

/// Verbosity of the log. Errors are written at every level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Level {
    /// Warnings and errors only.
    Quiet,
    /// Completed steps.
    #[default]
    Normal,
    /// Each file and each retry.
    Verbose,
}

/// Log options from the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogOptions {
    /// Verbosity.
    pub level: Level,
    /// One JSON object per line instead of text.
    pub json: bool,
    /// No timestamps in front of text. By default, they are written if standard error is not a
    /// terminal, as in stock `xbcloud`; stock `xbstream` has none.
    pub no_stamps: bool,
}

/// Only writer to standard error. Clones are handles of the same log.
///
/// Text lines have the form `NAME: text`, in a log file `YYYY-MM-DDTHH:MM:SSZ NAME: text`; called by a stock
/// tool's name, `YYMMDD HH:MM:SS NAME: text` (UTC). With
/// JSON, each line is an object with at least `event` (its name) and `time` (RFC 3339, UTC); text
/// becomes the event `message` with `level` and `text`. Control characters are escaped. A progress
/// bar makes room for each line. A closed standard error is not an error.
#[derive(Clone)]
pub struct Log(Arc<Inner>);

struct Inner {
    name: String,
    options: LogOptions,
    terminal: bool,
    out: Mutex<Out>,
}

struct Out {
    writer: Box<dyn Write + Send>,
    bar: Option<ProgressBar>,
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log")
            .field("name", &self.0.name)
            .field("options", &self.0.options)
            .finish_non_exhaustive()
    }
}

impl Log {
    /// Creates a log on standard error under this program name.
    pub fn stderr(name: &str, options: LogOptions) -> Self {
        Self::new(name, options, io::stderr().is_terminal(), Box::new(io::stderr()))
    }

    /// Creates a log on any writer that is not a terminal; for tests of log output.
    pub fn to(name: &str, options: LogOptions, writer: impl Write + Send + 'static) -> Self {
        Self::new(name, options, false, Box::new(writer))
    }

    fn new(name: &str, options: LogOptions, terminal: bool, writer: Box<dyn Write + Send>) -> Self {
        let out = Mutex::new(Out { writer, bar: None });
        Self(Arc::new(Inner { name: name.to_owned(), options, terminal, out }))
    }

    /// Logs a completed step. Not with [`Level::Quiet`].
    pub fn info(&self, text: impl fmt::Display) {
        if self.0.options.level >= Level::Normal {
            self.message("info", "", &text);
        }
    }

    /// Logs a detail. Only with [`Level::Verbose`].
    pub fn verbose(&self, text: impl fmt::Display) {
        if self.0.options.level >= Level::Verbose {
            self.message("verbose", "", &text);
        }
    }

    /// Logs something unusual that is not an error. At every level.
    pub fn warn(&self, text: impl fmt::Display) {
        self.message("warning", "warning: ", &text);
    }

    /// Logs the name of the current file on its own line, without program name and timestamp, as
    /// stock `xbstream -v` prints it. Only with [`Level::Verbose`]; the event `file` in JSON.
    pub fn file(&self, name: impl fmt::Display) {
        if self.0.options.level < Level::Verbose {
            return;
        }
        if self.0.options.json {
            self.event("file", &json!({ "name": name.to_string() }));
        } else {
            self.write(&format!("{}\n", printable(&name.to_string())));
        }
    }

    /// Logs a line of a child process unchanged; the event `child` in JSON. At every level, because
    /// the child reports its errors there.
    pub fn pass_on(&self, line: &str) {
        if self.0.options.json {
            self.event("child", &json!({ "text": line }));
        } else {
            self.write(&format!("{}\n", printable(line)));
        }
    }

    /// Logs an event for machines, at every level but only in JSON. `fields` should be an object;
    /// any other value becomes the field `value`. `event` and `time` are set here.
    pub fn event(&self, event: &str, fields: &Value) {
        if !self.0.options.json {
            return;
        }
        let mut line = Map::new();
        line.insert("event".to_owned(), event.into());
        line.insert("time".to_owned(), Timestamp::now().to_string().into());
        match fields {
            Value::Object(fields) => {
                for (key, value) in fields {
                    line.entry(key).or_insert_with(|| value.clone());
                }
            }
            Value::Null => {}
            other => {
                line.insert("value".to_owned(), other.clone());
            }
        }
        self.write(&format!("{}\n", Value::Object(line)));
    }

    /// Returns the verbosity.
    pub fn level(&self) -> Level {
        self.0.options.level
    }

    /// Returns whether the log is JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.0.options.json
    }

    /// Returns whether the log is text on a terminal.
    pub fn is_terminal(&self) -> bool {
        self.0.terminal && !self.0.options.json
    }

    /// Logs the error that ended the run; the event `error` in JSON.
    pub(crate) fn failure(&self, failure: &Failure, code: u8) {
        if self.0.options.json {
            let fields = json!({
                "stage": failure.stage_name(),
                "message": failure.line(),
                "hint": failure.hint_text(),
                "facts": failure.facts(),
                "exit": code,
            });
            self.event("error", &fields);
        } else {
            self.write(&format!("{}{}", self.stamp(), failure.report(&self.0.name)));
        }
    }

    /// Makes this bar hide for each line from now on.
    pub(crate) fn attach(&self, bar: ProgressBar) {
        self.out().bar = Some(bar);
    }

    pub(crate) fn detach(&self) {
        self.out().bar = None;
    }

    fn message(&self, level: &str, mark: &str, text: &dyn fmt::Display) {
        let text = text.to_string();
        if self.0.options.json {
            self.event("message", &json!({ "level": level, "text": text }));
        } else {
            let line = format!("{}{}: {mark}{}\n", self.stamp(), self.0.name, printable(&text));
            self.write(&line);
        }
    }

    fn stamp(&self) -> String {
        if self.0.terminal || self.0.options.no_stamps {
            String::new()
        } else {
            stamp(Timestamp::now(), Personality::of(self.0.name.as_ref()))
        }
    }

    /// Writes whole lines in one call, so that lines of several processes do not mix.
    fn write(&self, lines: &str) {
        let mut out = self.out();
        let Out { writer, bar } = &mut *out;
        let mut write = || {
            // A failure of standard error itself cannot be reported anywhere.
            let _ = writer.write_all(lines.as_bytes()).and_then(|()| writer.flush());
        };
        match bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    fn out(&self) -> MutexGuard<'_, Out> {
        // A panic while a line was written leaves nothing inconsistent.
        self.0.out.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Formats a time with its zone, or in the form of a stock tool, which has none (UTC).
fn stamp(time: Timestamp, personality: Personality) -> String {
    let form = if personality.is_stock() { "%y%m%d %H:%M:%S " } else { "%Y-%m-%dT%H:%M:%SZ " };
    time.strftime(form).to_string()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Recorded output of a log.
    #[derive(Clone, Default)]
    pub(crate) struct CapturedOutput(Arc<Mutex<Vec<u8>>>);

    impl CapturedOutput {
        pub(crate) fn lines(&self) -> Vec<String> {
            let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
            text.lines().map(str::to_owned).collect()
        }

        pub(crate) fn events(&self) -> Vec<Value> {
            self.lines().iter().map(|line| serde_json::from_str(line).unwrap()).collect()
        }
    }

    impl Write for CapturedOutput {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    pub(crate) fn log(options: LogOptions) -> (Log, CapturedOutput) {
        let said = CapturedOutput::default();
        (Log::to("x", options, said.clone()), said)
    }

    fn everything(log: &Log) {
        log.info("one");
        log.verbose("two");
        log.warn("three\n");
        log.file("d/f");
        log.event("done", &json!({ "bytes": 4 }));
    }

    #[test]
    fn levels_decide_which_messages_are_logged() {
        let table: &[(Level, &[&str])] = &[
            (Level::Quiet, &["x: warning: three\\n"]),
            (Level::Normal, &["x: one", "x: warning: three\\n"]),
            (Level::Verbose, &["x: one", "x: two", "x: warning: three\\n", "d/f"]),
        ];
        for (level, lines) in table {
            let (log, said) = log(LogOptions { level: *level, no_stamps: true, json: false });
            everything(&log);
            assert_eq!(said.lines(), *lines, "{level:?}");
            assert_eq!((log.level(), log.is_json(), log.is_terminal()), (*level, false, false));
        }
    }

    #[test]
    fn a_log_file_has_time_stamps() {
        let time = "2026-02-03T04:05:06.7Z".parse().unwrap();
        assert_eq!(stamp(time, Personality::Ours), "2026-02-03T04:05:06Z ");
        assert_eq!(stamp(time, Personality::Xbcloud), "260203 04:05:06 ");
        let (log, said) = log(LogOptions::default());
        log.info("one");
        let line = &said.lines()[0];
        let (front, text) = line.split_at(stamp(time, Personality::Ours).len());
        assert!(text == "x: one" && front.ends_with("Z "), "{line}");
    }

    #[test]
    fn json_is_one_object_a_line() {
        let (log, said) = log(LogOptions { level: Level::Verbose, json: true, no_stamps: false });
        everything(&log);
        log.event("odd", &json!([1]));
        log.event("own", &json!({ "event": "not mine", "a": "\n" }));
        let events = said.events();
        let names: Vec<_> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
        assert_eq!(names, ["message", "message", "message", "file", "done", "odd", "own"]);
        assert!(events.iter().all(|event| event["time"].as_str().unwrap().ends_with('Z')));
        assert_eq!(events[2]["level"], "warning");
        assert_eq!(events[2]["text"], "three\n");
        assert_eq!(events[3]["name"], "d/f");
        assert_eq!(events[4]["bytes"], 4);
        assert_eq!(events[5]["value"], json!([1]));
        assert_eq!(events[6]["a"], "\n");
    }

    #[test]
    fn the_failure_is_said_once_in_either_form() {
        let failure = Failure::new("no room").stage("write").hint("make some");
        let (text, said) = log(LogOptions { level: Level::Quiet, no_stamps: true, json: false });
        text.failure(&failure, 1);
        assert_eq!(said.lines(), ["x: write: no room", "hint: make some"]);
        let (machine, said) = log(LogOptions { level: Level::Quiet, json: true, no_stamps: true });
        machine.failure(&failure, 1);
        let event = &said.events()[0];
        assert_eq!(event["event"], "error");
        assert_eq!(event["stage"], "write");
        assert_eq!(event["message"], "no room");
        assert_eq!(event["hint"], "make some");
        assert_eq!(event["exit"], 1);
    }

    #[test]
    fn a_broken_standard_error_breaks_nothing() {
        struct Gone;
        impl Write for Gone {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
        }
        let log = Log::to("x", LogOptions::default(), Gone);
        everything(&log);
        log.failure(&Failure::new("x"), 1);
    }
}
