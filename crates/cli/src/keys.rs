//! The key options of the programs.
//!
//! [`KeyOptions`] holds the keys that both create and open a key slot, [`RecipientOptions`] and
//! [`IdentityOptions`] the two halves that age separates, [`NewKeyOptions`] the key slots that a
//! rewrap creates. Each is converted to keys of `xb-encryptor`; all errors are found before any
//! work begins.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use clap::Args;
use xb_encryptor::{
    Backend, Identities, KeyBytes, KeyCommand, KeyFile, KeySlots, Keys, Passphrase, Recipient,
};

use crate::args::secret::Secret;
use crate::failure::Failure;
use crate::help::version::long_version;
use crate::messages::log::Log;

/// Returns the text of `--version` for a program with the seal, given its version number.
pub fn seal_version(version: &str) -> String {
    let portable_only = Backend::ALL.len() == 1;
    let features = if portable_only { "none" } else { "aws-lc" };
    long_version(version, features, Backend::default().name())
}

/// Keys that create a key slot and open it again.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Keys")]
pub struct KeyOptions {
    /// File with the key: 32 bytes; for .xbcrypt files also 16 or 24
    #[arg(long, value_name = "FILE")]
    pub encrypt_key_file: Option<PathBuf>,
    /// The key itself; prefer --encrypt-key-file
    #[arg(long, value_name = "KEY", conflicts_with = "encrypt_key_file")]
    pub encrypt_key: Option<Secret>,
    /// File with a passphrase in its first line
    #[arg(long, value_name = "FILE")]
    pub passphrase_file: Option<PathBuf>,
    /// Key command with arguments; `wrap` or `unwrap` is appended
    #[arg(long, value_name = "COMMAND")]
    pub key_command: Option<Secret>,
}

/// Public keys. The program that makes a backup need not be able to open it.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Keys")]
pub struct RecipientOptions {
    /// Seal for an age recipient (age1...); repeatable
    #[arg(long, value_name = "RECIPIENT")]
    pub recipient: Vec<String>,
    /// File with age recipients, one per line
    #[arg(long, value_name = "FILE")]
    pub recipients_file: Option<PathBuf>,
}

/// Private keys.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Keys")]
pub struct IdentityOptions {
    /// File with age identities (AGE-SECRET-KEY-1...)
    #[arg(long, value_name = "FILE")]
    pub identity_file: Option<PathBuf>,
}

/// The key slots that a rewrap creates.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "New key slots")]
pub struct NewKeyOptions {
    /// File with a key of 32 bytes
    #[arg(long, value_name = "FILE")]
    pub new_key_file: Option<PathBuf>,
    /// Seal for an age recipient (age1...); repeatable
    #[arg(long, value_name = "RECIPIENT")]
    pub recipient: Vec<String>,
    /// File with age recipients, one per line
    #[arg(long, value_name = "FILE")]
    pub recipients_file: Option<PathBuf>,
    /// File with a passphrase in its first line
    #[arg(long, value_name = "FILE")]
    pub new_passphrase_file: Option<PathBuf>,
    /// Key command with arguments; `wrap` is appended
    #[arg(long, value_name = "COMMAND")]
    pub new_key_command: Option<Secret>,
    /// Keep the existing key slots; without it, the new ones replace them
    #[arg(long)]
    pub keep: bool,
}

impl KeyOptions {
    /// Returns the requested key slots; there may be none.
    ///
    /// # Errors
    /// A usage failure names the option.
    pub fn key_slots(&self, recipients: &RecipientOptions, log: &Log) -> Result<KeySlots, Failure> {
        let recipients = list(&recipients.recipient, recipients.recipients_file.as_deref())?;
        let passphrase = new_passphrase("--passphrase-file", self.passphrase_file.as_deref())?;
        Ok(KeySlots {
            key: self.key(log)?.map(sealing).transpose()?,
            recipients,
            passphrase,
            command: command("--key-command", self.key_command.as_ref())?,
        })
    }

    /// Returns the keys to open with; there may be none. The key may have a length for xbcrypt: use
    /// [`sealing`] to get one for the seal.
    ///
    /// # Errors
    /// A usage failure names the option.
    pub fn keys(&self, identities: &IdentityOptions, log: &Log) -> Result<Keys, Failure> {
        let identities = identities.identity_file.as_deref();
        let identities =
            identities.map(|path| in_file("--identity-file", path, Identities::read(path)));
        Ok(Keys {
            key: self.key(log)?,
            identities: identities.transpose()?,
            passphrase: passphrase("--passphrase-file", self.passphrase_file.as_deref())?,
            command: command("--key-command", self.key_command.as_ref())?,
        })
    }

    /// Returns the key of `--encrypt-key-file` or `--encrypt-key`, of any AES length.
    ///
    /// # Errors
    /// A usage failure names the option.
    pub fn key(&self, log: &Log) -> Result<Option<KeyBytes>, Failure> {
        match (&self.encrypt_key_file, &self.encrypt_key) {
            (Some(path), _) => key_file("--encrypt-key-file", path, log).map(Some),
            (None, Some(text)) => KeyBytes::from_text(text.expose().as_bytes())
                .map(Some)
                .map_err(|error| refused("--encrypt-key", &error)),
            (None, None) => Ok(None),
        }
    }
}

impl NewKeyOptions {
    /// Returns the new key slots; there may be none.
    ///
    /// # Errors
    /// A usage failure names the option.
    pub fn key_slots(&self, log: &Log) -> Result<KeySlots, Failure> {
        let key = self.new_key_file.as_deref();
        let key = key.map(|path| key_file("--new-key-file", path, log)).transpose()?;
        let passphrase = self.new_passphrase_file.as_deref();
        Ok(KeySlots {
            key: key.map(sealing).transpose()?,
            recipients: list(&self.recipient, self.recipients_file.as_deref())?,
            passphrase: new_passphrase("--new-passphrase-file", passphrase)?,
            command: command("--new-key-command", self.new_key_command.as_ref())?,
        })
    }
}

const MAKE_A_KEY: &str =
    "name a file that this user can read, or create a key with: openssl rand -out KEYFILE 32";

/// Returns the key, if it has the length that the seal requires.
///
/// # Errors
/// A usage failure with the length.
pub fn sealing(key: KeyBytes) -> Result<KeyBytes, Failure> {
    if key.len() == 32 {
        return Ok(key);
    }
    Err(Failure::usage(format!("the key has {} bytes; aes-256-gcm needs 32", key.len()))
        .hint(MAKE_A_KEY))
}

fn refused(option: &str, error: &dyn Display) -> Failure {
    let hint = match option {
        "--recipient" | "--recipients-file" => {
            "`xbcrypt-rs keygen --identity` makes an identity and prints its recipient, age1..."
        }
        "--identity-file" => {
            "name the file that `xbcrypt-rs keygen --identity` made; this user must be able to read it"
        }
        "--encrypt-key" => {
            "the text itself is the key; to read it from a file, give --encrypt-key-file=FILE"
        }
        "--encrypt-key-file" | "--new-key-file" => MAKE_A_KEY,
        _ => "name a file with the passphrase in its first line; this user must be able to read it",
    };
    Failure::usage(format!("{option}: {error}")).hint(hint)
}

fn key_file(option: &str, path: &Path, log: &Log) -> Result<KeyBytes, Failure> {
    let file = in_file(option, path, KeyFile::read(path))?;
    if file.newline_dropped {
        log.warn(format_args!(
            "{}: ignored the newline at its end; it is not part of the key",
            path.display()
        ));
    }
    if file.open_to_others {
        log.warn(format_args!(
            "{}: readable by others than its owner; run chmod 600 on it",
            path.display()
        ));
    }
    Ok(file.key)
}

/// The content of an option's file, or a failure that names the content found instead.
fn in_file<T, E: Display>(option: &str, path: &Path, read: Result<T, E>) -> Result<T, Failure> {
    read.map_err(|error| mistaken(option, path).unwrap_or_else(|| refused(option, &error)))
}

/// Names what a file holds instead of what the option needs, and the option for it. A pipe has been read already.
fn mistaken(option: &str, path: &Path) -> Option<Failure> {
    if !path.is_file() {
        return None;
    }
    let (holds, hint) = if let Ok(identities) = Identities::read(path) {
        let recipients: Vec<String> =
            identities.recipients().iter().map(|own| format!("--recipient={own}")).collect();
        let seal = recipients.join(" ");
        let hint = format!(
            "to seal, give its public key: {seal}; to open, --identity-file={}",
            path.display()
        );
        ("an age identity, a private key", hint)
    } else if Recipient::read_list(path).is_ok() {
        (
            "age recipients, public keys",
            format!(
                "to seal, give --recipients-file={}; to open, the file of the private key",
                path.display()
            ),
        )
    } else if KeyFile::read(path).is_ok() {
        ("a key of a fixed length", format!("give --encrypt-key-file={}", path.display()))
    } else {
        return None;
    };
    Some(Failure::usage(format!("{option}: {} holds {holds}", path.display())).hint(hint))
}

/// Refuses a private key in place of a public one: it must not be on the host that is backed up.
fn refuse_private_key(texts: &[String]) -> Result<(), Failure> {
    const PREFIX: &str = "AGE-SECRET-KEY-";
    let is_private = |text: &String| text.trim().to_ascii_uppercase().starts_with(PREFIX);
    if !texts.iter().any(is_private) {
        return Ok(());
    }
    Err(Failure::usage("--recipient: this is a private key; give its public key, age1...").hint(
        "make a new pair with `xbcrypt-rs keygen --identity`: whoever can read where this key was written can read the backups",
    ))
}

fn list(texts: &[String], file: Option<&Path>) -> Result<Vec<Recipient>, Failure> {
    refuse_private_key(texts)?;
    let given =
        texts.iter().map(|text| in_file("--recipient", Path::new(text), text.parse::<Recipient>()));
    let mut list: Vec<Recipient> = given.collect::<Result<_, _>>()?;
    if let Some(path) = file {
        list.extend(in_file("--recipients-file", path, Recipient::read_list(path))?);
    }
    Ok(list)
}

fn passphrase(option: &str, file: Option<&Path>) -> Result<Option<Passphrase>, Failure> {
    read_passphrase(option, file, |_| true)
}

/// Reads a passphrase to seal with. Blanks alone are refused, but still open what they once sealed.
fn new_passphrase(option: &str, file: Option<&Path>) -> Result<Option<Passphrase>, Failure> {
    let is_secret = |content: &[u8]| {
        let line = content.split(|byte| *byte == b'\n').next().unwrap_or_default();
        !line.trim_ascii().is_empty()
    };
    read_passphrase(option, file, is_secret)
}

fn read_passphrase(
    option: &str,
    file: Option<&Path>,
    is_secret: impl Fn(&[u8]) -> bool,
) -> Result<Option<Passphrase>, Failure> {
    let Some(path) = file else { return Ok(None) };
    let content = std::fs::read(path)
        .map_err(|error| refused(option, &format!("{}: {error}", path.display())))?;
    let passphrase = Some(&content).filter(|content| is_secret(content.as_slice()));
    passphrase
        .and_then(|content| Passphrase::from_file(content))
        .map(Some)
        .ok_or_else(|| refused(option, &format!("{} contains no passphrase", path.display())))
}

/// Parses a key command. Its arguments may contain a token, so its whole text is a secret.
fn command(option: &str, text: Option<&Secret>) -> Result<Option<KeyCommand>, Failure> {
    let Some(text) = text else { return Ok(None) };
    let command = KeyCommand::new(text.expose().split_whitespace().map(Into::into));
    command.map(Some).ok_or_else(|| Failure::usage(format!("{option} is empty; give a program")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::sink;

    fn log() -> Log {
        Log::to("x", Default::default(), sink())
    }

    #[test]
    fn no_options_give_no_keys() {
        let options = KeyOptions::default();
        assert!(options.key_slots(&RecipientOptions::default(), &log()).unwrap().is_empty());
        assert!(options.keys(&IdentityOptions::default(), &log()).unwrap().is_empty());
        assert!(NewKeyOptions::default().key_slots(&log()).unwrap().is_empty());
    }

    #[test]
    fn errors_name_the_option() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, content).unwrap();
            Some(path)
        };
        let keys = |options: KeyOptions| {
            options.key_slots(&RecipientOptions::default(), &log()).unwrap_err().line()
        };
        let short = KeyOptions { encrypt_key: Some(Secret::new("s3cret")), ..Default::default() };
        assert_eq!(keys(short), "--encrypt-key: the key has 6 bytes; it must have 16, 24 or 32");
        let short = KeyOptions { encrypt_key_file: file("16", &[1; 16]), ..Default::default() };
        assert!(short.key(&log()).unwrap().is_some(), "good for xbcrypt");
        assert_eq!(keys(short), "the key has 16 bytes; aes-256-gcm needs 32");
        let empty = KeyOptions { passphrase_file: file("empty", b"\n"), ..Default::default() };
        assert!(keys(empty).starts_with("--passphrase-file: "));
        let blank =
            KeyOptions { passphrase_file: file("blank", b" \t\nx\n"), ..Default::default() };
        assert!(
            blank.keys(&IdentityOptions::default(), &log()).is_ok(),
            "what it has sealed opens"
        );
        assert!(keys(blank).starts_with("--passphrase-file: "));
        let nobody = RecipientOptions {
            recipients_file: file("nobody", b"# nobody yet\n"),
            ..Default::default()
        };
        let failure = KeyOptions::default().key_slots(&nobody, &log()).unwrap_err().line();
        assert!(failure.starts_with("--recipients-file: ") && failure.contains("no age recipient"));
        let nothing = KeyOptions { key_command: Some(Secret::new(" ")), ..Default::default() };
        assert_eq!(keys(nothing), "--key-command is empty; give a program");
        let new = NewKeyOptions { recipient: vec!["age1x".to_owned()], ..Default::default() };
        assert!(new.key_slots(&log()).unwrap_err().line().starts_with("--recipient: "));
        let private =
            NewKeyOptions { recipient: vec!["AGE-SECRET-KEY-1X".to_owned()], ..Default::default() };
        let failure = private.key_slots(&log()).unwrap_err();
        assert!(failure.line().starts_with("--recipient: this is a private key; "));
        assert!(!failure.report("x").contains("KEY-1X"), "the key is shown");
        // A file of one kind, given as another.
        let (identity, text) = Identities::generate();
        let public = identity.recipients().first().unwrap().to_string();
        let private = file("id", text.as_bytes()).unwrap();
        let options = KeyOptions { encrypt_key_file: Some(private.clone()), ..Default::default() };
        let failure = options.key(&log()).unwrap_err();
        assert!(failure.line().ends_with("holds an age identity, a private key"), "{failure:?}");
        let hint = failure.hint_text().unwrap();
        assert!(
            hint.contains(&format!("--recipient={public}; to open, --identity-file=")),
            "{hint}"
        );
        let given =
            NewKeyOptions { recipient: vec![private.display().to_string()], ..Default::default() };
        let failure = given.key_slots(&log()).unwrap_err();
        assert!(failure.hint_text().unwrap().contains(&public), "{failure:?}");
        let given = NewKeyOptions { recipients_file: Some(private), ..Default::default() };
        let failure = given.key_slots(&log()).unwrap_err();
        assert!(
            failure.line().starts_with("--recipients-file: ")
                && failure.hint_text().unwrap().contains(&public)
        );
        for (name, content, hint) in [
            ("key", &[1; 32][..], "--encrypt-key-file="),
            ("public", public.as_bytes(), "--recipients-file="),
        ] {
            let identities = IdentityOptions { identity_file: file(name, content) };
            let failure = KeyOptions::default().keys(&identities, &log()).unwrap_err();
            assert!(failure.hint_text().unwrap().contains(hint), "{failure:?}");
        }
        let identities = IdentityOptions { identity_file: file("ids", b"AGE-SECRET") };
        let failure = KeyOptions::default().keys(&identities, &log()).unwrap_err();
        assert!(failure.line().starts_with("--identity-file: "));
    }
}
