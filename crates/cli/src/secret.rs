//! Values that must never be seen.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

/// A key, password or token. `Debug` and `Display` print `***`.
///
/// Reading one never fails, so that no message about a wrong value can quote it.
///
/// # Secrets on the command line
/// Every user of the machine can read the arguments of a running process. Where an option of this
/// type is given there, [`Program::parse`](crate::Program::parse) starts the process anew with `***`
/// in its place. The moment before that is left, as it is with the stock tools, which overwrite their
/// arguments. So: rather hand secrets over by an option file (mode 0600), by the environment, or by a
/// key file. Never pass one on as an argument of a child process.
///
/// ```
/// let key: xb_cli::Secret = "s3cr3t".parse().unwrap();
/// assert_eq!(format!("{key} {key:?}"), "*** ***");
/// assert_eq!(key.expose(), "s3cr3t");
/// ```
#[derive(Clone, Default)]
pub struct Secret(String);

impl Secret {
    /// Wraps a value.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value itself, for the one place that must have it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether there is nothing inside; an empty secret counts as not given.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromStr for Secret {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self::new(text))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[arg(long)]
        key: Option<Secret>,
        #[arg(long)]
        number: Option<u32>,
    }

    #[test]
    fn nothing_but_expose_shows_it() {
        let line = Line::try_parse_from(["x", "--key=hunter2"]).unwrap();
        assert_eq!(line.key.as_ref().map(Secret::expose), Some("hunter2"));
        assert!(line.number.is_none());
        assert!(!format!("{line:?} {line:#?}").contains("hunter2"));
        assert!(Secret::default().is_empty() && !Secret::new("x").is_empty());
    }

    #[test]
    fn clap_does_not_quote_it() {
        for words in [
            vec!["x", "--kye=hunter2"],
            vec!["x", "--key=hunter2", "--number=q"],
            vec!["x", "--key=a", "--key=hunter2"],
        ] {
            let error = Line::try_parse_from(words).unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
