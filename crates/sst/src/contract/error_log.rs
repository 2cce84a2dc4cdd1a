//! Lines for the server's error log; the program decides where they go.

use std::fmt;
use std::sync::Arc;

/// How much a line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// What is done.
    Info,
    /// Odd, but not wrong.
    Warning,
    /// The transfer fails.
    Error,
}

type Sink = dyn Fn(Level, &str) + Send + Sync;

/// The way to the server's error log. Clones are the same way.
#[derive(Clone)]
pub struct ErrorLog(Arc<Sink>);

impl ErrorLog {
    /// `sink` gets each line, without its end; it must write it whole.
    pub fn new(sink: impl Fn(Level, &str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(sink))
    }

    /// Says what is done.
    pub fn info(&self, text: impl fmt::Display) {
        self.say(Level::Info, text);
    }

    /// Says what is odd.
    pub fn warn(&self, text: impl fmt::Display) {
        self.say(Level::Warning, text);
    }

    /// Says what is wrong.
    pub fn error(&self, text: impl fmt::Display) {
        self.say(Level::Error, text);
    }

    /// Says something. Control characters, which a peer or a file name may hold, are escaped.
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
        let talk =
            ErrorLog::new(move |level, text| kept.lock().unwrap().push((level, text.to_owned())));
        talk.warn("a\nWSREP: forged\u{1b}[2J");
        let expected = (Level::Warning, "a\\nWSREP: forged\\u{1b}[2J".to_owned());
        assert_eq!(*lines.lock().unwrap(), [expected]);
    }
}
