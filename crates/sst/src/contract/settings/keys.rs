//! Locations of the keys of encrypted tables on this node, for the backup program's `--prepare`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use crate::contract::option_files::OptionFiles;

/// Options of the server's groups with `key-management` in their names, as the text of an option
/// file. `Debug` shows none of it: some plugins have a password there.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct KeyOptions(Vec<u8>);

impl std::fmt::Debug for KeyOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyOptions(***)")
    }
}

impl KeyOptions {
    pub(super) fn of(files: &OptionFiles) -> Self {
        let mut text = Vec::new();
        for (name, value) in files.server_keys() {
            if text.is_empty() {
                text.extend_from_slice(b"\n[mysqld]\n");
            }
            // With `loose-`, a program that has not loaded the plugin ignores the option.
            text.extend_from_slice(format!("loose-{name}").as_bytes());
            if let Some(value) = value {
                text.push(b'=');
                quote(value, &mut text);
            }
            text.push(b'\n');
        }
        Self(text)
    }

    /// Returns a group with the options; empty if there are none.
    pub(crate) fn text(&self) -> &[u8] {
        &self.0
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
        let keys = KeyOptions::of(&files);
        assert_eq!(keys.text(), expected);
        assert_eq!(format!("{keys:?}"), "KeyOptions(***)");
        assert_eq!(KeyOptions::of(&OptionFiles::default()).text(), b"");
    }
}
