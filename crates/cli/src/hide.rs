//! Secrets of the command line out of the process list.
//!
//! Every user of the machine may read the arguments of a running process. Overwriting them in place,
//! as the stock tools do, takes unsafe code. So the process starts itself anew, under the same
//! process id, with `***` for each secret; the arguments as they were given go along in a memory
//! file that nobody else has. What is left is the moment before that, as with the stock tools.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};

/// In front of the number of the memory file, as the first argument.
const MARK: &[u8] = b"--hidden-args=";
/// Name of the memory file, by which it is known again.
const NAME: &str = "xb-args";
/// What is shown for a secret.
const SHOWN: &[u8] = b"***";
/// Longest arguments that are taken back, in bytes: more than any system hands to a program.
const MOST: u64 = 8 << 20;

/// The arguments of this process as they were given, and whether they were hidden already.
pub(crate) fn given() -> (Vec<OsString>, bool) {
    let shown: Vec<OsString> = std::env::args_os().collect();
    let number = shown.get(1).and_then(|word| word.as_bytes().strip_prefix(MARK));
    match number.and_then(|number| take(OsStr::from_bytes(number)).ok()) {
        Some(argv) => {
            name_after(argv.first());
            (argv, true)
        }
        None => (shown, false),
    }
}

/// Starts this program anew, without `secrets` in sight. Returns only when that is not possible.
///
/// Nothing may have been read from standard input, and no thread may run, since both would be lost.
pub(crate) fn start_anew(argv: &[OsString], secrets: &[OsString]) -> io::Error {
    let Some((argv0, words)) = argv.split_first() else {
        return io::ErrorKind::InvalidInput.into();
    };
    match keep(argv) {
        Err(error) => error,
        Ok(file) => {
            let mut mark = OsString::from_vec(MARK.to_vec());
            mark.push(file.as_raw_fd().to_string());
            // The link stays right when the program's own file has been replaced meanwhile.
            Command::new("/proc/self/exe")
                .arg0(argv0)
                .arg(mark)
                .args(words.iter().map(|word| without(word, secrets)))
                .exec()
        }
    }
}

/// A memory file with the words, open also in the program that takes our place.
fn keep(argv: &[OsString]) -> io::Result<File> {
    let mut file = File::from(memfd_create(NAME, MemfdFlags::CLOEXEC)?);
    let words: Vec<&[u8]> = argv.iter().map(|word| word.as_bytes()).collect();
    file.write_all(&words.join(&0))?;
    fcntl_setfd(&file, FdFlags::empty())?;
    Ok(file)
}

/// Takes the words out of memory file `number`. It cannot be closed from here, and would go on to
/// every child; so it is emptied.
fn take(number: &OsStr) -> io::Result<Vec<OsString>> {
    let path = Path::new("/proc/self/fd").join(number);
    let target = std::fs::read_link(&path)?;
    if !target.as_os_str().as_bytes().starts_with(format!("/memfd:{NAME}").as_bytes()) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut file = File::options().read(true).write(true).open(path)?;
    file.rewind()?;
    let mut bytes = Vec::new();
    (&mut file).take(MOST).read_to_end(&mut bytes)?;
    file.set_len(0)?;
    Ok(bytes.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.to_vec())).collect())
}

/// The link's name would stand in short process lists.
fn name_after(argv0: Option<&OsString>) {
    let name = argv0.and_then(|word| Path::new(word).file_name()).map(OsStr::as_bytes);
    if let Some(name) = name.and_then(|name| CString::new(name).ok()) {
        let _ = rustix::thread::set_name(&name);
    }
}

/// `word` with `***` wherever a secret stands in it.
fn without(word: &OsStr, secrets: &[OsString]) -> OsString {
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
