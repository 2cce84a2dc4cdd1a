//! Directories for temporary files that an operator names.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Options that name them, in the order of their length.
const OPTIONS: [&[u8]; 3] = [b"--loose-tmpdir", b"--tmpdir", b"-t"];

/// Returns those of the directories that the words of a command line of a server, or of a backup program, name as its
/// `tmpdir`, and that there are.
pub fn temporary_dirs<'w>(words: impl IntoIterator<Item = &'w OsStr>) -> Vec<PathBuf> {
    let mut dirs = Vec::new();
    let mut words = words.into_iter().map(OsStr::as_bytes);
    while let Some(word) = words.next() {
        let rest = OPTIONS.iter().find_map(|option| Some((*option, word.strip_prefix(*option)?)));
        let value = match rest {
            Some((_, [])) => words.next(),
            Some((_, [b'=', value @ ..])) => Some(value),
            Some((b"-t", value)) => Some(value),
            _ => None,
        };
        let all = value.into_iter().flat_map(|value| value.split(|byte| *byte == b':'));
        dirs.extend(all.map(|dir| Path::new(OsStr::from_bytes(dir)).to_owned()));
    }
    dirs.retain(|dir| dir.is_dir());
    dirs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ways_to_name_them_are_known() {
        let dir = tempfile::tempdir().unwrap();
        let shown = dir.path().display();
        for words in [
            &[&format!("--tmpdir={shown}")[..]] as &[&str],
            &["--tmpdir", &shown.to_string()],
            &["--x", "-t", &shown.to_string()],
            &[&format!("-t{shown}")],
            &[&format!("--loose-tmpdir={shown}/none:{shown}")],
        ] {
            let found = temporary_dirs(words.iter().map(OsStr::new));
            assert_eq!(found, [dir.path()], "{words:?}");
        }
        for words in [&["--tmpdir"] as &[&str], &["--tmpdirs=/"], &["--target-dir=/"], &["/"]] {
            let found = temporary_dirs(words.iter().map(OsStr::new));
            assert_eq!(found, [] as [&Path; 0], "{words:?}");
        }
    }
}
