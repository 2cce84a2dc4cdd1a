//! Recipients and identities of `age`, and passphrases.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use age::secrecy::{ExposeSecret, SecretString};
use age::x25519;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::hex;

/// Longest file of recipients or identities that is read, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// Number of bytes of a digest that form an id.
const ID_LEN: usize = 8;

/// A public key of `age`, `age1…`. The matching private key opens the stream.
#[derive(Clone)]
pub struct Recipient {
    pub(crate) key: x25519::Recipient,
}

impl Recipient {
    /// Returns the id of its key slot: the first 8 bytes of SHA-256 over the text `age1…`, in hex.
    #[must_use]
    pub fn id(&self) -> String {
        let digest = Sha256::digest(self.key.to_string().as_bytes());
        hex::encode(digest.get(..ID_LEN).unwrap_or_default())
    }

    /// Parses the text of a file of recipients: one per line; empty lines and lines that begin with
    /// `#` are ignored.
    ///
    /// # Errors
    /// [`IdentityError`] names the line; [`IdentityError::NoRecipient`] when the file has none.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, IdentityError> {
        let recipients: Vec<Self> = lines(text)
            .map(|(line, text)| text.parse().map_err(|RecipientError| bad(line, RECIPIENT)))
            .collect::<Result<_, _>>()?;
        // If such a file counted as "no recipients", the backup would not be sealed.
        if recipients.is_empty() { Err(IdentityError::NoRecipient) } else { Ok(recipients) }
    }

    /// Reads a file of recipients, of at most 1 MiB.
    ///
    /// # Errors
    /// [`IdentityError`]
    pub fn read_list(path: &Path) -> Result<Vec<Self>, IdentityError> {
        Self::parse_list(&read_text(path)?).map_err(|error| error.in_file(path))
    }
}

/// Text that is not an `age` recipient of the form `age1…`. SSH keys and plugins are not supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an age recipient (age1…)")]
pub struct RecipientError;

impl FromStr for Recipient {
    type Err = RecipientError;

    fn from_str(text: &str) -> Result<Self, RecipientError> {
        text.trim().parse().map(|key| Self { key }).map_err(|_| RecipientError)
    }
}

impl fmt::Display for Recipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.key.fmt(f)
    }
}

impl fmt::Debug for Recipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recipient({})", self.key)
    }
}

/// Private keys of `age`, as in its identity files.
pub struct Identities(pub(crate) Vec<x25519::Identity>);

impl Identities {
    /// Generates an identity, and its text `AGE-SECRET-KEY-1…` for a file.
    #[must_use]
    pub fn generate() -> (Self, Zeroizing<String>) {
        let identity = x25519::Identity::generate();
        let text = Zeroizing::new(identity.to_string().expose_secret().to_owned());
        (Self(vec![identity]), text)
    }

    /// Parses the text of an identity file: one key per line; empty lines and lines that begin with
    /// `#` are ignored.
    ///
    /// # Errors
    /// [`IdentityError`] names the line, but never contains its text.
    pub fn parse(text: &str) -> Result<Self, IdentityError> {
        let identities: Vec<x25519::Identity> = lines(text)
            .map(|(line, text)| text.parse().map_err(|_: &str| bad(line, IDENTITY)))
            .collect::<Result<_, _>>()?;
        if identities.is_empty() { Err(IdentityError::Empty) } else { Ok(Self(identities)) }
    }

    /// Reads an identity file, of at most 1 MiB. An encrypted identity file is refused: decrypt it
    /// with `age -d` into a pipe.
    ///
    /// # Errors
    /// [`IdentityError`]
    pub fn read(path: &Path) -> Result<Self, IdentityError> {
        Self::parse(&read_text(path)?).map_err(|error| error.in_file(path))
    }

    /// Returns their public keys.
    #[must_use]
    pub fn recipients(&self) -> Vec<Recipient> {
        self.0.iter().map(|identity| Recipient { key: identity.to_public() }).collect()
    }
}

impl fmt::Debug for Identities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identities({:?})", self.recipients())
    }
}

const RECIPIENT: &str = "an age recipient (age1…)";
const IDENTITY: &str = "an age identity (AGE-SECRET-KEY-1…)";

/// Reason why recipients or identities cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// A line is not valid.
    #[error("line {line} is not {wanted}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// The expected form of the line.
        wanted: &'static str,
    },
    /// The file has no identity.
    #[error("it contains no age identity")]
    Empty,
    /// The file has no recipient.
    #[error("it contains no age recipient")]
    NoRecipient,
    /// One of the other errors, in a file.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error.
        error: Box<IdentityError>,
    },
}

impl IdentityError {
    fn in_file(self, path: &Path) -> Self {
        IdentityError::File { path: path.to_owned(), error: Box::new(self) }
    }
}

fn bad(line: usize, wanted: &'static str) -> IdentityError {
    IdentityError::Line { line, wanted }
}

/// The lines that are neither empty nor comments, with their numbers.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let numbered = text.lines().enumerate().map(|(n, line)| (n + 1, line.trim()));
    numbered.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

fn read_text(path: &Path) -> Result<Zeroizing<String>, IdentityError> {
    let io = |source| IdentityError::Io { path: path.to_owned(), source };
    let mut text = Zeroizing::new(String::new());
    let file = File::open(path).map_err(io)?;
    file.take(MAX_FILE + 1).read_to_string(&mut text).map_err(io)?;
    if text.len() as u64 > MAX_FILE {
        return Err(io(io::ErrorKind::FileTooLarge.into()));
    }
    Ok(text)
}

/// A passphrase. Prints as `***`; is wiped when dropped.
#[derive(Clone)]
pub struct Passphrase(SecretString);

impl Passphrase {
    /// Makes a passphrase; `None` if the text is empty, because that would not be a secret.
    #[must_use]
    pub fn new(text: String) -> Option<Self> {
        let text = Zeroizing::new(text);
        (!text.is_empty()).then(|| Self(SecretString::from(text.as_str())))
    }

    /// Uses the first line of a passphrase file, without its line end. `None` when it is empty or
    /// not UTF-8.
    #[must_use]
    pub fn from_file(content: &[u8]) -> Option<Self> {
        let line = content.split(|&byte| byte == b'\n').next()?;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        Self::new(std::str::from_utf8(line).ok()?.to_owned())
    }

    pub(crate) fn secret(&self) -> SecretString {
        self.0.clone()
    }
}

impl fmt::Debug for Passphrase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Passphrase(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_pass_over_comments_and_name_bad_lines() {
        let (identities, secret) = Identities::generate();
        let recipient = &identities.recipients()[0];
        let list = Recipient::parse_list(&format!("# us\n\n {recipient} \n{recipient}\n")).unwrap();
        assert_eq!(list.len(), 2);
        assert_eq!(list[0].id(), recipient.id());
        let error = Recipient::parse_list(&format!("{recipient}\nssh-ed25519 AAAA\n")).unwrap_err();
        assert_eq!(error.to_string(), "line 2 is not an age recipient (age1…)");
        let read = Identities::parse(&format!("# created\n{}\n", *secret)).unwrap();
        assert_eq!(read.recipients()[0].id(), recipient.id());
        assert!(matches!(Identities::parse("# nothing\n"), Err(IdentityError::Empty)));
        for nothing in ["", "\n \t\n", "# nobody\n"] {
            assert!(matches!(Recipient::parse_list(nothing), Err(IdentityError::NoRecipient)));
        }
        // A private key given by mistake must not appear in a message.
        let error = Recipient::parse_list(&secret).unwrap_err().to_string();
        assert!(!error.contains("SECRET-KEY-1Q") && error.contains("line 1"), "{error}");
        let typo = secret.to_lowercase();
        let error = Identities::parse(&typo[..50]).unwrap_err();
        assert!(!format!("{error} {error:?}").contains(&typo[20..50]));
        assert!(!format!("{identities:?}").contains("SECRET"));
    }

    #[test]
    fn passphrases_are_one_line() {
        for (content, want) in [
            (&b"secret words"[..], Some("secret words")),
            (b"secret \r\nsecond", Some("secret ")),
            (b"", None),
            (b"\nsecond", None),
            (b"\xff\n", None),
        ] {
            let got = Passphrase::from_file(content);
            assert_eq!(got.as_ref().map(|p| p.0.expose_secret()), want);
        }
        assert_eq!(format!("{:?}", Passphrase::new("x".into())), "Some(Passphrase(***))");
    }

    #[test]
    fn files_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ids");
        std::fs::write(&path, "nonsense\n").unwrap();
        let error = Identities::read(&path).unwrap_err().to_string();
        assert!(error.ends_with("ids: line 1 is not an age identity (AGE-SECRET-KEY-1…)"));
        assert!(
            Recipient::read_list(&dir.path().join("no")).unwrap_err().to_string().contains("no")
        );
    }
}
