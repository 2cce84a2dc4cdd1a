//! Removal of command-line secrets from the process list.
//!
//! Every user of the machine can read the arguments of a running process. The stock tools overwrite
//! them in place, which takes unsafe code. Instead, the process executes itself again, with the
//! same process ID and with `***` for each secret; a private memory file carries the original
//! arguments. The secrets are visible only until then, as with the stock tools.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::closed::{closed, note_closed};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};

/// Prefix of the first argument. It is followed by the memory file's descriptor number, a comma, and
/// the number of the standard streams that were closed when the program started.
const MARK: &str = "--hidden-args=";
/// Name of the memory file, which identifies it.
const NAME: &str = "xb-args";
/// Replacement for a secret.
const SHOWN: &[u8] = b"***";
/// Maximum size of the arguments in the memory file, in bytes: more than any system passes to a
/// program.
const MAX_ARGUMENTS: u64 = 8 << 20;

/// Returns the original arguments of this process, and whether they are already hidden.
pub(crate) fn given() -> (Vec<OsString>, bool) {
    let shown: Vec<OsString> = std::env::args_os().collect();
    let hidden = shown.get(1).and_then(|word| {
        let (number, closed) = word.to_str()?.strip_prefix(MARK)?.split_once(',')?;
        Some((take(OsStr::new(number)).ok()?, closed.parse().ok()?))
    });
    match hidden {
        Some((argv, closed)) => {
            note_closed(closed);
            name_after(argv.first());
            (argv, true)
        }
        None => (shown, false),
    }
}

/// Executes this program again, with `secrets` hidden. Returns only if that fails.
///
/// Call it before anything is read from standard input or any thread runs: both would be lost.
pub(crate) fn start_anew(argv: &[OsString], secrets: &[OsString]) -> io::Error {
    let Some((argv0, words)) = argv.split_first() else {
        return io::ErrorKind::InvalidInput.into();
    };
    match keep(argv) {
        Err(error) => error,
        Ok(file) => {
            let mark = format!("{MARK}{},{}", file.as_raw_fd(), closed());
            // The link stays right even if the program's own file has been replaced.
            Command::new("/proc/self/exe")
                .arg0(argv0)
                .arg(mark)
                .args(words.iter().map(|word| without(word, secrets)))
                .exec()
        }
    }
}

/// Writes the arguments to a memory file that stays open in the new program.
fn keep(argv: &[OsString]) -> io::Result<File> {
    let mut file = File::from(memfd_create(NAME, MemfdFlags::CLOEXEC)?);
    let words: Vec<&[u8]> = argv.iter().map(|word| word.as_bytes()).collect();
    file.write_all(&words.join(&0))?;
    fcntl_setfd(&file, FdFlags::empty())?;
    Ok(file)
}

/// Reads the arguments from memory file `number` and empties it. It cannot be closed from here, so
/// every child inherits it.
fn take(number: &OsStr) -> io::Result<Vec<OsString>> {
    let path = Path::new("/proc/self/fd").join(number);
    let target = std::fs::read_link(&path)?;
    if !target.as_os_str().as_bytes().starts_with(format!("/memfd:{NAME}").as_bytes()) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut file = File::options().read(true).write(true).open(path)?;
    file.rewind()?;
    let mut bytes = Vec::new();
    (&mut file).take(MAX_ARGUMENTS).read_to_end(&mut bytes)?;
    file.set_len(0)?;
    Ok(bytes.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.to_vec())).collect())
}

/// Sets the process name; otherwise, short process lists show the name of the link.
fn name_after(argv0: Option<&OsString>) {
    let name = argv0.and_then(|word| Path::new(word).file_name()).map(OsStr::as_bytes);
    if let Some(name) = name.and_then(|name| CString::new(name).ok()) {
        let _ = rustix::thread::set_name(&name);
    }
}

/// Returns `word` with `***` for each secret in it.
pub(crate) fn without(word: &OsStr, secrets: &[OsString]) -> OsString {
    let mut rest = word.as_bytes();
    let mut shown = Vec::new();
    while let Some((first, later)) = rest.split_first() {
        let found = secrets.iter().map(|secret| secret.as_bytes());
        match found.filter(|s| !s.is_empty() && rest.starts_with(s)).map(<[u8]>::len).max() {
            Some(len) => {
                shown.extend_from_slice(SHOWN);
                rest = &rest[len..];
            }
            None => {
                shown.push(*first);
                rest = later;
            }
        }
    }
    OsString::from_vec(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_shows_a_secret() {
        let secrets = ["k3y", "k3y-longer", ""].map(OsString::from);
        for (word, shown) in [
            ("--encrypt-key=k3y", "--encrypt-key=***"),
            ("-kk3y-longer", "-k***"),
            ("k3y", "***"),
            ("ak3ybk3yk3y", "a***b******"),
            ("-d", "-d"),
            ("", ""),
        ] {
            assert_eq!(without(OsStr::new(word), &secrets), shown, "{word}");
        }
    }

    #[test]
    fn words_are_kept_and_taken_once() {
        let argv = ["x", "", "-k", "se\u{e4}ret", "a b"].map(OsString::from).to_vec();
        let file = keep(&argv).unwrap();
        let number = OsString::from(file.as_raw_fd().to_string());
        assert_eq!(take(&number).unwrap(), argv);
        assert_eq!(file.metadata().unwrap().len(), 0);
    }

    #[test]
    fn other_files_are_not_taken_for_it() {
        let mut other = tempfile::tempfile().unwrap();
        other.write_all(b"x").unwrap();
        assert!(take(OsStr::new(&other.as_raw_fd().to_string())).is_err());
        assert!(take(OsStr::new("99999")).is_err());
        assert!(take(OsStr::new("../environ")).is_err());
    }
}
