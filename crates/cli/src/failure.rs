//! Error that ends a run.

use std::any::Any;
use std::error::Error;
use std::fmt;

use clap::error::{ContextKind, ContextValue};

use crate::args::usage_error::UsageError;
use crate::exit::Exit;
use crate::text::printable;

/// Part of a tip on a wrong option: behind it, where the option is from.
pub(crate) const COMES_FROM: &str = " comes from ";

/// First cause of a failed run, as shown to the user: stage, message, source chain, hint.
///
/// `?` converts any error into it; [`FailureContext`] adds the stage and a hint on the way. Like
/// `anyhow::Error`, it does not implement [`Error`], because then it could not be converted from
/// any error.
///
/// ```
/// use xb_cli::{Failure, FailureContext};
///
/// fn read(name: &str) -> Result<Vec<u8>, Failure> {
///     std::fs::read(name).stage("open").hint("check the name")
/// }
/// let report = read("/does/not/exist").unwrap_err().report("xbcloud-rs");
/// assert!(report.starts_with("xbcloud-rs: open: "));
/// assert!(report.ends_with("\nhint: check the name\n"));
/// ```
pub struct Failure {
    stage: Option<String>,
    message: String,
    hint: Option<String>,
    /// More facts, one on each line.
    facts: Vec<String>,
    source: Option<Box<dyn Error + Send + Sync>>,
    clap: Option<Box<clap::Error>>,
    /// Text for standard output, instead of a report.
    output: Option<Box<str>>,
    exit: Exit,
}

impl Failure {
    /// Creates a failure with this message: lower case, no final period, no secrets.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            stage: None,
            message: message.into(),
            hint: None,
            facts: Vec::new(),
            source: None,
            clap: None,
            output: None,
            exit: Exit::Failed,
        }
    }

    /// Creates a failure for a wrong command line that clap accepted.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, ..Self::new(message) }
    }

    /// Creates the end of a run that only prints this text to standard output, as help does.
    pub(crate) fn only_print(text: &str) -> Self {
        Self { output: Some(text.into()), exit: Exit::Done, ..Self::new("") }
    }

    /// Creates the end of a run that prints this text to standard output and exits with this code,
    /// whatever it means.
    pub fn verdict(text: impl Into<String>, code: u8) -> Self {
        Self {
            output: Some(text.into().into_boxed_str()),
            exit: Exit::Verdict(code),
            ..Self::new("")
        }
    }

    /// Creates a failure for a run that this signal ended.
    pub fn interrupted(signal: i32) -> Self {
        Self {
            exit: Exit::Interrupted(signal),
            ..Self::new(format!("interrupted by signal {signal}"))
        }
    }

    /// Adds the stage of the work, such as `read`, `upload`, `commit`. The innermost stage stays.
    #[must_use]
    pub fn stage(mut self, stage: impl Into<String>) -> Self {
        self.stage.get_or_insert_with(|| stage.into());
        self
    }

    /// Adds a hint for the user. The innermost hint stays.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint.get_or_insert_with(|| hint.into());
        self
    }

    /// Replaces the hint, where more is known about the cause than where it was found.
    #[must_use]
    pub fn better_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Adds a fact, which is shown on a line of its own below the hint.
    #[must_use]
    pub fn fact(mut self, fact: impl Into<String>) -> Self {
        self.facts.push(fact.into());
        self
    }

    /// Adds facts before those that are known already.
    #[must_use]
    pub fn facts_first(mut self, facts: Vec<String>) -> Self {
        self.facts.splice(0..0, facts);
        self
    }

    /// Sets how the process ends after this failure.
    #[must_use]
    pub fn ending(self, exit: Exit) -> Self {
        Self { exit, ..self }
    }

    /// Adds the underlying error; the message is shown first.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Returns how the process ends after this failure.
    pub fn exit(&self) -> Exit {
        match &self.clap {
            // Clap returns help and version as errors, too.
            Some(error) if !error.use_stderr() => Exit::Done,
            _ => self.exit,
        }
    }

    /// Returns the stage, if there is one.
    pub fn stage_name(&self) -> Option<&str> {
        self.stage.as_deref()
    }

    /// Returns the hint, if there is one.
    pub fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Returns the facts, in the order in which they were added.
    pub fn facts(&self) -> &[String] {
        &self.facts
    }

    /// Returns message and source chain on one line, joined by `: `. A source whose text already
    /// ends the line is left out.
    pub fn line(&self) -> String {
        let mut line = self.message.clone();
        let mut next = self.source.as_deref().map(|source| source as &dyn Error);
        while let Some(error) = next {
            let text = error.to_string();
            if !line.ends_with(&text) {
                if !line.is_empty() {
                    line.push_str(": ");
                }
                line.push_str(&text);
            }
            next = error.source();
        }
        printable(&line)
    }

    /// Returns the text to print: `NAME: stage: message: source`, then `hint: ...` and each fact on its own
    /// line.
    pub fn report(&self, name: &str) -> String {
        let stage = self.stage.as_ref().map(|s| format!("{}: ", printable(s))).unwrap_or_default();
        let hint =
            self.hint.as_ref().map(|h| format!("hint: {}\n", printable(h))).unwrap_or_default();
        let facts: String = self.facts.iter().map(|fact| printable(fact) + "\n").collect();
        format!("{name}: {stage}{}\n{hint}{facts}", self.line())
    }

    /// Returns the text for standard output.
    pub(crate) fn output(&self) -> Option<&str> {
        self.output.as_deref()
    }

    /// Returns the error of clap, which prints itself.
    pub(crate) fn clap_error(&self) -> Option<&clap::Error> {
        self.clap.as_deref()
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failure")
            .field("stage", &self.stage)
            .field("line", &self.line())
            .field("hint", &self.hint)
            .field("exit", &self.exit())
            .finish()
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        let any: &dyn Any = &error;
        let usage = any.is::<UsageError>() || any.is::<clap::Error>();
        let mut failure = Self::new(match any.downcast_ref::<clap::Error>() {
            Some(clap) => finding(clap),
            None => error.to_string(),
        });
        let next_step = any.downcast_ref::<UsageError>().and_then(UsageError::next_step);
        failure.hint = next_step.map(str::to_owned);
        if usage {
            failure.exit = Exit::Usage;
        }
        let error: Box<dyn Error + Send + Sync> = Box::new(error);
        match error.downcast::<clap::Error>() {
            Ok(clap) => failure.clap = Some(clap),
            // The message is the error's own text, which `line` does not repeat.
            Err(other) => failure.source = Some(other),
        }
        failure
    }
}

/// The error that clap has found, on one line: without the usage that it prints below, and of its tips with those that name the
/// source of an option.
fn finding(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines = text.strip_prefix("error: ").unwrap_or(&text).lines().map(str::trim);
    let mut found = lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    if let Some(ContextValue::StyledStrs(tips)) = error.get(ContextKind::Suggested) {
        let tips = tips.iter().map(ToString::to_string);
        tips.filter(|tip| tip.contains(COMES_FROM)).for_each(|tip| found += &format!("; {tip}"));
    }
    found
}

/// Adds stage and hint to any result.
pub trait FailureContext<T> {
    /// Adds the stage as [`Failure::stage`] does.
    ///
    /// # Errors
    /// The error of the result.
    fn stage(self, stage: &str) -> Result<T, Failure>;

    /// Adds the hint as [`Failure::hint`] does.
    ///
    /// # Errors
    /// The error of the result.
    fn hint(self, hint: &str) -> Result<T, Failure>;
}

impl<T, E: Into<Failure>> FailureContext<T> for Result<T, E> {
    fn stage(self, stage: &str) -> Result<T, Failure> {
        self.map_err(|error| error.into().stage(stage))
    }

    fn hint(self, hint: &str) -> Result<T, Failure> {
        self.map_err(|error| error.into().hint(hint))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Layer {
        text: String,
        source: Option<Box<Layer>>,
    }

    fn layers(texts: &[&str]) -> Layer {
        let mut layers = texts
            .iter()
            .rev()
            .fold(None, |source, text| Some(Box::new(Layer { text: (*text).to_owned(), source })));
        *layers.take().unwrap()
    }

    #[test]
    fn chains_are_told_on_one_line() {
        let table: &[(&[&str], &str)] = &[
            (&["part 3 of x was refused"], "part 3 of x was refused"),
            (&["a", "b", "c"], "a: b: c"),
            (&["a: b", "b", "c"], "a: b: c"),
            (&["two\nlines\u{1b}[0m"], "two\\nlines\\u{1b}[0m"),
        ];
        for (texts, line) in table {
            assert_eq!(Failure::from(layers(texts)).line(), *line);
        }
        let failure = Failure::new("upload stopped").because(layers(&["a", "b"]));
        assert_eq!(failure.line(), "upload stopped: a: b");
    }

    #[test]
    fn what_clap_finds_is_one_line_without_its_usage() {
        let put = || {
            let level = clap::Arg::new("level").long("level").value_name("N").required(true);
            clap::Command::new("put").arg(level.value_parser(["a", "b"]))
        };
        let table: [(&[&str], &str); 3] = [
            (&["put", "--nope"], "unexpected argument '--nope' found"),
            (&["put"], "the following required arguments were not provided: --level <N>"),
            (&["put", "--level=c"], "invalid value 'c' for '--level <N>' [possible values: a, b]"),
        ];
        for (words, line) in table {
            let mut wrong = put().try_get_matches_from(words).unwrap_err();
            let tips = ["--level comes from /etc/my.cnf".into(), "another tip".into()].to_vec();
            wrong.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
            let line = format!("{line}; --level comes from /etc/my.cnf");
            assert_eq!(Failure::from(wrong).line(), line);
        }
    }

    #[test]
    fn reports_name_program_stage_and_hint() {
        let refused = io::Error::new(io::ErrorKind::PermissionDenied, "denied");
        let failure = Err::<(), _>(refused)
            .stage("upload")
            .stage("backup")
            .hint("check the key")
            .hint("outer")
            .unwrap_err();
        assert_eq!(
            failure.report("xbcloud-rs"),
            "xbcloud-rs: upload: denied\nhint: check the key\n"
        );
        assert_eq!(
            (failure.stage_name(), failure.hint_text()),
            (Some("upload"), Some("check the key"))
        );
        assert_eq!(Failure::new("no").report("x"), "x: no\n");
        let failure = failure.better_hint("turn it").fact("one\n").fact("two");
        assert_eq!(failure.report("x"), "x: upload: denied\nhint: turn it\none\\n\ntwo\n");
        assert!(format!("{failure:?}").contains("denied"));
    }

    #[test]
    fn every_kind_has_its_exit() {
        let wrong = clap::Command::new("x").try_get_matches_from(["x", "--nope"]).unwrap_err();
        let help = clap::Command::new("x").try_get_matches_from(["x", "--help"]).unwrap_err();
        let usage = UsageError::DefaultsNotFirst { option: "no-defaults".to_owned() };
        assert_eq!(Failure::from(wrong).exit(), Exit::Usage);
        assert_eq!(Failure::from(help).exit(), Exit::Done);
        assert_eq!(Failure::from(usage).exit(), Exit::Usage);
        assert_eq!(Failure::usage("x").exit(), Exit::Usage);
        assert_eq!(Failure::from(io::Error::other("x")).exit(), Exit::Failed);
        assert_eq!(Failure::interrupted(15).exit(), Exit::Interrupted(15));
        assert_eq!(Failure::interrupted(15).line(), "interrupted by signal 15");
    }
}
