//! Detection of the tool by whose name the program was called.

use std::ffi::OsStr;
use std::path::Path;

/// Tool whose command line and exit codes the program follows.
///
/// A link with the name of a stock tool makes a binary its drop-in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Personality {
    /// Called by one of our own names, or by any name that is not a stock tool's.
    Ours,
    /// Percona's `xbstream`.
    Xbstream,
    /// MariaDB's `mbstream`.
    Mbstream,
    /// Percona's `xbcrypt`.
    Xbcrypt,
    /// Percona's `xbcloud`.
    Xbcloud,
}

impl Personality {
    /// Returns the personality for the last component of `argv[0]`.
    ///
    /// ```
    /// use xb_cli::Personality;
    /// assert_eq!(Personality::of("/usr/bin/xbcloud".as_ref()), Personality::Xbcloud);
    /// assert_eq!(Personality::of("xbcloud-rs".as_ref()), Personality::Ours);
    /// ```
    pub fn of(argv0: &OsStr) -> Self {
        match Path::new(argv0).file_name().and_then(OsStr::to_str) {
            Some("xbstream") => Self::Xbstream,
            Some("mbstream") => Self::Mbstream,
            Some("xbcrypt") => Self::Xbcrypt,
            Some("xbcloud") => Self::Xbcloud,
            _ => Self::Ours,
        }
    }

    /// Returns whether this is one of the stock tools.
    pub fn is_stock(self) -> bool {
        self != Self::Ours
    }
}

/// Returns the last component of `argv[0]`, as a prefix of messages; `fallback` if there is none.
pub(crate) fn program_name(argv0: Option<&OsStr>, fallback: &str) -> String {
    argv0
        .and_then(|word| Path::new(word).file_name())
        .map_or_else(|| fallback.to_owned(), |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_component_decides() {
        let table = [
            ("xbstream", Personality::Xbstream),
            ("./xbstream", Personality::Xbstream),
            ("/opt/x y/mbstream", Personality::Mbstream),
            ("../xbcrypt", Personality::Xbcrypt),
            ("xbcloud", Personality::Xbcloud),
            ("xbcloud-rs", Personality::Ours),
            ("/xbcloud/xbcloud-rs", Personality::Ours),
            ("XBCLOUD", Personality::Ours),
            ("xbcloud.bak", Personality::Ours),
            ("", Personality::Ours),
            ("/", Personality::Ours),
        ];
        for (argv0, personality) in table {
            assert_eq!(Personality::of(argv0.as_ref()), personality, "{argv0}");
            assert_eq!(personality.is_stock(), personality != Personality::Ours);
        }
    }

    #[test]
    fn names_for_messages() {
        assert_eq!(program_name(Some("/a/xbcloud-rs".as_ref()), "x"), "xbcloud-rs");
        assert_eq!(program_name(Some("".as_ref()), "x"), "x");
        assert_eq!(program_name(None, "x"), "x");
    }
}
