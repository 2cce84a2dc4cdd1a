//! Values that must never be shown.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

/// Key, password or token. `Debug` and `Display` print `***`.
///
/// Parsing a secret never fails, so no error message can quote it.
///
/// # Secrets on the command line
/// Every user of the machine can read the arguments of a running process. If an option of this type
/// is given there, [`Program::parse`](crate::Program::parse) executes the process again with `***`
/// in its place. The secret is visible only until then, as with the stock tools, which overwrite
/// their arguments. Prefer an option file (mode 0600), the environment, or a key file for secrets.
/// Never pass a secret as an argument of a child process.
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

    /// Returns the value, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns whether the secret is empty; an empty secret counts as not given.
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
