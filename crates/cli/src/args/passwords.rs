//! Passwords and keys in the command lines of other programs, which an option of ours may hold.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

/// Options of other programs whose value is a key.
const KEYS: [&str; 2] = ["encrypt-key", "transition-key"];
/// An option whose value is a password, and its shortest beginning that counts: `--port` is no secret.
const PASSWORD: (&str, &str) = ("password", "pass");

/// Variables for another program, as `env` and shells take them, whose value is a secret.
const VARIABLES: [&str; 3] = ["MYSQL_PWD=", "AWS_SECRET_ACCESS_KEY=", "AWS_SESSION_TOKEN="];

/// Place of a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// From this byte of the word on.
    Here(usize),
    /// In the next word.
    Next,
}

/// Returns where the secret of an option is, written as MySQL's programs take it: `_` for `-`, and any beginning of the
/// name.
fn place_of(word: &[u8]) -> Option<Place> {
    if let Some(name) = VARIABLES.iter().find(|name| word.starts_with(name.as_bytes())) {
        return Some(Place::Here(name.len())).filter(|_| word.len() > name.len());
    }
    let Some(long) = word.strip_prefix(b"--") else {
        return (word.starts_with(b"-p") && word.len() > 2).then_some(Place::Here(2));
    };
    let end = long.iter().position(|byte| *byte == b'=');
    let name = std::str::from_utf8(&long[..end.unwrap_or(long.len())]).ok()?.replace('_', "-");
    let name = name.strip_prefix("loose-").unwrap_or(&name);
    let (password, least) = PASSWORD;
    let is_key = KEYS.contains(&name);
    let is_password = password.starts_with(name) && name.starts_with(least);
    if !is_key && !is_password {
        return None;
    }
    match end {
        Some(end) => Some(Place::Here(2 + end + 1)).filter(|_| end + 1 < long.len()),
        // A password is asked for then.
        None => is_key.then_some(Place::Next),
    }
}

/// Returns the secrets in the words of a command line; a word may hold another command line.
pub(crate) fn secrets_in<'a>(words: impl IntoIterator<Item = &'a OsStr>) -> Vec<OsString> {
    let mut secrets = Vec::new();
    let mut is_next = false;
    for word in words {
        let bytes = word.as_bytes();
        if std::mem::take(&mut is_next) {
            secrets.push(word.to_owned());
        }
        match place_of(bytes) {
            Some(Place::Here(at)) => secrets.push(OsStr::from_bytes(&bytes[at..]).to_owned()),
            Some(Place::Next) => is_next = true,
            None => secrets.extend(secrets_in_text(bytes)),
        }
    }
    secrets
}

/// The same of a command line in a text, as in `sh -c 'TEXT'`.
fn secrets_in_text(mut text: &[u8]) -> Vec<OsString> {
    let is_between = |byte: &u8| byte.is_ascii_whitespace() || is_quote(byte);
    let mut secrets = Vec::new();
    let mut is_next = false;
    while let Some(begin) = text.iter().position(|byte| !is_between(byte)) {
        // A quote in front of a value that is a word of its own belongs to it.
        let is_quoted = is_next && begin > 0 && is_quote(&text[begin - 1]);
        text = &text[if is_quoted { begin - 1 } else { begin }..];
        let end = text.iter().position(u8::is_ascii_whitespace).unwrap_or(text.len());
        let at = match place_of(&text[..end]) {
            _ if std::mem::take(&mut is_next) => Some(0),
            Some(Place::Here(at)) => Some(at),
            Some(Place::Next) => {
                is_next = true;
                None
            }
            None => None,
        };
        let len = match at {
            Some(at) => {
                let (from, to) = value(&text[at..]);
                secrets.push(OsStr::from_bytes(&text[at + from..at + to]).to_owned());
                at + to
            }
            None => end,
        };
        text = &text[len..];
    }
    secrets
}

fn is_quote(byte: &u8) -> bool {
    matches!(byte, b'"' | b'\'')
}

/// Begin and end of a value at the begin of a text: between its quotes, else up to the next quote or space.
fn value(text: &[u8]) -> (usize, usize) {
    let end = |ends: &dyn Fn(&u8) -> bool, from: usize| {
        let rest = text.get(from..).unwrap_or_default();
        rest.iter().position(ends).map_or(text.len(), |len| from + len)
    };
    match text.first().filter(|byte| is_quote(byte)) {
        Some(quote) => (1, end(&|byte| byte == quote, 1)),
        None => (0, end(&|byte| byte.is_ascii_whitespace() || is_quote(byte), 0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_found_however_they_are_written() {
        for (words, found) in [
            (&["--password=s3", "--port=1"][..], &["s3"][..]),
            (&["--pass=s3"], &["s3"]),
            (&["-ps3", "-p"], &["s3"]),
            (&["--encrypt_key=s3", "--encrypt-key-file=f"], &["s3"]),
            (&["--transition-key", "s3", "x"], &["s3"]),
            (&["--loose-password=a b"], &["a b"]),
            (&["sh", "-c", "dump --password='s3' --port=1 | cat"], &["s3"]),
            (&["sh -c 'dump --password=\"s 3\" -ps4' x"], &["s 3", "s4"]),
            (&["dump --encrypt-key 's3' --pass='"], &["s3", ""]),
            (&["env", "MYSQL_PWD=s3", "dump"], &["s3"]),
            (&["sh", "-c", "export A=1; MYSQL_PWD='s 3' dump -ps4"], &["s 3", "s4"]),
            (&["MYSQL_PWD=", "MY_PWD=a"], &[]),
            (&["--parallel=4", "--password", "--password=", "--pas=x", "-", "--"], &[]),
        ] {
            assert_eq!(secrets_in(words.iter().map(OsStr::new)), found, "{words:?}");
        }
    }
}
