//! Lines for the server's error log. The caller decides where they are written.

use std::fmt;
use std::sync::Arc;

/// Severity of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Progress of the work.
    Info,
    /// Unusual, but no failure.
    Warning,
    /// The transfer fails.
    Error,
}

type Sink = dyn Fn(Level, &str) + Send + Sync;

/// Writer to the server's error log. Clones write to the same log.
#[derive(Clone)]
pub struct ErrorLog(Arc<Sink>);

impl ErrorLog {
    /// Creates a log whose lines go to `sink`, without line ends. `sink` must write each line as a
    /// whole.
    pub fn new(sink: impl Fn(Level, &str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(sink))
    }

    /// Logs a step of the work.
    pub fn info(&self, text: impl fmt::Display) {
        self.say(Level::Info, text);
    }

    /// Logs a warning.
    pub fn warn(&self, text: impl fmt::Display) {
        self.say(Level::Warning, text);
    }

    /// Logs an error.
    pub fn error(&self, text: impl fmt::Display) {
        self.say(Level::Error, text);
    }

    /// Logs a line. Control characters, which a peer or a file name may contain, are escaped.
    pub fn say(&self, level: Level, text: impl fmt::Display) {
        let text = text.to_string();
        let mut line = String::with_capacity(text.len());
        for character in text.chars() {
            if character.is_control() {
                line.extend(character.escape_default());
            } else {
                line.push(character);
            }
        }
        (self.0)(level, &line);
    }
}

impl fmt::Debug for ErrorLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ErrorLog")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn a_line_stays_a_line() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&lines);
        let error_log =
            ErrorLog::new(move |level, text| kept.lock().unwrap().push((level, text.to_owned())));
        error_log.warn("a\nWSREP: forged\u{1b}[2J");
        let expected = (Level::Warning, "a\\nWSREP: forged\\u{1b}[2J".to_owned());
        assert_eq!(*lines.lock().unwrap(), [expected]);
    }
}
