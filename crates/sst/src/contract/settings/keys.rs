//! Locations of the keys of encrypted tables on this node, for the backup program's `--prepare` and for the second start.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::contract::option_files::OptionFiles;

/// Formats an option as `NAME=VALUE`.
fn option(name: &str, value: &OsStr) -> OsString {
    let mut word = OsString::from(name);
    word.push("=");
    word.push(value);
    word
}

/// Options of the server's groups with `key-management` in their names, and its directory of plugins, as the text of an option
/// file. `Debug` shows none of it: some plugins have a password there.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct KeyOptions {
    text: Vec<u8>,
    /// Those among them that name a file, whose paths are absolute here.
    files: Vec<(String, OsString)>,
}

impl std::fmt::Debug for KeyOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyOptions(***)")
    }
}

impl KeyOptions {
    pub(super) fn of(options: &OptionFiles, datadir: &Path) -> Self {
        let (mut text, mut files) = (Vec::new(), Vec::new());
        let plugins = options.server("plugin-dir").filter(|dir| Path::new(dir).is_absolute());
        if plugins.is_some() || options.server_keys().next().is_some() {
            text.extend_from_slice(b"\n[mysqld]\n");
        }
        // Instead of the donor's, which counts only if it is one that packages use.
        if let Some(dir) = plugins {
            text.extend_from_slice(b"plugin_dir=");
            quote(dir, &mut text);
            text.push(b'\n');
        }
        for (name, value) in options.server_keys() {
            let file = value.and_then(|value| key_file(name, value, datadir));
            let value = file.as_deref().or(value);
            // With `loose-`, a program that has not loaded the plugin ignores the option.
            text.extend_from_slice(format!("loose-{name}").as_bytes());
            if let Some(value) = value {
                text.push(b'=');
                quote(value, &mut text);
            }
            text.push(b'\n');
            files.extend(file.map(|file| (name.to_owned(), file)));
        }
        Self { text, files }
    }

    /// Returns a group with the options; empty if there are none.
    pub(crate) fn text(&self) -> &[u8] {
        &self.text
    }

    /// Options that name a key file, for a command line.
    pub(crate) fn files(&self) -> impl Iterator<Item = OsString> {
        self.files.iter().map(|(name, file)| option(&format!("--loose-{name}"), file))
    }
}

/// Returns the value of an option that names a key file, with an absolute path; `None` for other options. The server works in its
/// data directory, and finds a relative path there. The programs that this one starts on received data work elsewhere.
pub(crate) fn key_file(name: &str, value: &OsStr, datadir: &Path) -> Option<OsString> {
    let path = |bytes: &[u8]| datadir.join(OsStr::from_bytes(bytes)).into_os_string();
    match name {
        "file-key-management-filename" => Some(path(value.as_bytes())),
        // Without this prefix, it is the key of the file itself.
        "file-key-management-filekey" => {
            let file = value.as_bytes().strip_prefix(b"FILE:")?;
            let mut whole = OsString::from("FILE:");
            whole.push(path(file));
            Some(whole)
        }
        _ => None,
    }
}

/// Quotes a value. In option files, `\` escapes some characters, but not `"`: the last quote of the
/// line ends the value.
fn quote(value: &OsStr, text: &mut Vec<u8>) {
    text.push(b'"');
    for byte in value.as_bytes() {
        if *byte == b'\\' {
            text.push(b'\\');
        }
        text.push(*byte);
    }
    text.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::args::Product;

    #[test]
    fn only_the_servers_options_about_keys_are_taken() {
        let option = |group: &str, key: &str, value: Option<&str>| {
            (group.to_owned(), key.to_owned(), value.map(Into::into))
        };
        let files = OptionFiles::new(
            [
                option("mysqld", "plugin_load_add", Some("file_key_management")),
                option("mysqld", "file_key_management_filename", Some("/k e#y\\s")),
                option("mariadb", "loose-file-key-management", None),
                option("sst", "file_key_management_filekey", Some("x")),
            ],
            Product::MariaDb,
            None,
        );
        let expected = b"\n[mysqld]\nloose-file-key-management-filename=\"/k e#y\\\\s\"\nloose-file-key-management\n";
        let keys = KeyOptions::of(&files, Path::new("/d"));
        assert_eq!(keys.text(), expected);
        assert_eq!(format!("{keys:?}"), "KeyOptions(***)");
        assert_eq!(KeyOptions::of(&OptionFiles::default(), Path::new("/d")).text(), b"");
        for (dir, text) in [("/p", &b"\n[mysqld]\nplugin_dir=\"/p\"\n"[..]), ("p", b"")] {
            let files = [option("mysqld", "plugin_dir", Some(dir))];
            let files = OptionFiles::new(files, Product::MariaDb, None);
            assert_eq!(KeyOptions::of(&files, Path::new("/d")).text(), text);
        }
    }

    #[test]
    fn relative_paths_of_keys_are_of_the_data_directory() {
        let option = |key: &str, value: &str| ("mysqld".into(), key.into(), Some(value.into()));
        let options = [
            option("file_key_management_filename", "keys/k"),
            option("file_key_management_filekey", "FILE:keys/p"),
            option("file_key_management_filekey", "secret"),
            option("hashicorp_key_management_token", "t"),
        ];
        let keys =
            KeyOptions::of(&OptionFiles::new(options, Product::MariaDb, None), Path::new("/d"));
        let text = String::from_utf8(keys.text().to_vec()).unwrap();
        for value in ["\"/d/keys/k\"", "\"FILE:/d/keys/p\"", "\"secret\"", "\"t\""] {
            assert!(text.contains(value), "{text}");
        }
        // Every user can read them.
        let words: Vec<_> = keys.files().collect();
        let expected = ["filename=/d/keys/k", "filekey=FILE:/d/keys/p"];
        assert_eq!(
            words,
            expected.map(|word| OsString::from(format!("--loose-file-key-management-{word}")))
        );
    }
}
