//! Which names a joiner keeps in its data directory when the data is exchanged: `cpat`.

use regex::bytes::{Regex, RegexBuilder};

/// What stays whatever happens.
const ALWAYS: [&str; 2] = [".xb", "lost+found"];

/// As the stock scripts have it: what a certificate, Galera, a log or an upgrade needs.
const DEFAULT: &str = r"\.pem$|galera\.cache$|sst_in_progress$|\.sst$|gvwstate\.dat$|grastate\.dat$|\.err$|\.log$|RPM_UPGRADE_MARKER$|RPM_UPGRADE_HISTORY$|wsrep_sst\.pid$";
/// What Percona's add.
const PERCONA: &str = r"|init\.ok$|wsrep_state\.dat$|keyring";

/// Longest pattern that is looked at, in bytes.
const MAX: usize = 4096;

/// Decides by names.
#[derive(Debug, Clone)]
pub struct Keep {
    pattern: Regex,
    /// Single names: sockets, pid files and logs as the options name them.
    names: Vec<Vec<u8>>,
}

/// A pattern that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cpat is no regular expression: {0}")]
pub struct BadPattern(String);

impl Keep {
    /// The default of MariaDB's script, or with `percona` of Percona's.
    ///
    /// # Errors
    /// Never: the pattern is ours.
    pub fn usual(percona: bool) -> Result<Self, BadPattern> {
        let pattern = if percona { format!("{DEFAULT}{PERCONA}") } else { DEFAULT.to_owned() };
        Self::compile(&format!("(?:{pattern})"))
    }

    /// A pattern of the operator's, as `find -regex` takes it in the stock script: in Emacs'
    /// dialect, for a whole path that begins with the data directory.
    ///
    /// # Errors
    /// [`BadPattern`].
    pub fn pattern(text: &str) -> Result<Self, BadPattern> {
        if text.len() > MAX {
            return Err(BadPattern(format!("longer than {MAX} bytes")));
        }
        Self::compile(&format!("^(?:{})$", from_emacs(text)))
    }

    fn compile(pattern: &str) -> Result<Self, BadPattern> {
        let pattern = RegexBuilder::new(pattern).unicode(false).build();
        let pattern = pattern.map_err(|error| BadPattern(error.to_string()))?;
        Ok(Self { pattern, names: ALWAYS.map(|name| name.as_bytes().to_vec()).to_vec() })
    }

    /// Keeps this name, too.
    pub fn also(&mut self, name: &[u8]) {
        self.names.push(name.to_vec());
    }

    /// Whether the entry `name` of the data directory stays.
    #[must_use]
    pub fn keeps(&self, name: &[u8]) -> bool {
        // Patterns of old begin with `.*` for the path in front of the name, or with a slash.
        let path = [b"./", name].concat();
        self.names.iter().any(|kept| kept == name)
            || self.pattern.is_match(&path)
            || self.pattern.is_match(name)
    }
}

/// In Emacs' dialect `\|`, `\(` and `\)` are what others write without the backslash.
fn from_emacs(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(special @ ('|' | '(' | ')')) => out.push(special),
                Some(other) => out.extend(['\\', other]),
                None => out.push_str("\\\\"),
            },
            '|' | '(' | ')' | '{' | '}' => out.extend(['\\', character]),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_usual_names_stay() {
        let keep = Keep::usual(false).unwrap();
        for name in [
            ".xb",
            "lost+found",
            "galera.cache",
            "grastate.dat",
            "gvwstate.dat",
            "ca.pem",
            "host.err",
            "slow.log",
            "xbrs.backup.log",
        ] {
            assert!(keep.keeps(name.as_bytes()), "{name}");
        }
        for name in [
            "ibdata1",
            "mysql",
            "ib_logfile0",
            "aria_log_control",
            "aria_log.00000001",
            "binlog.000001",
            "shop",
            "undo001",
            "auto.cnf",
        ] {
            assert!(!keep.keeps(name.as_bytes()), "{name}");
        }
        let percona = Keep::usual(true).unwrap();
        for name in [
            "wsrep_state.dat",
            "init.ok",
            "component_keyring_file.cnf",
            "component_keyring_file.config",
        ] {
            assert!(percona.keeps(name.as_bytes()), "{name}");
        }
        assert!(!percona.keeps(b"ibdata1"));
    }

    #[test]
    fn patterns_of_the_operator_are_in_emacs_dialect() {
        let mut keep = Keep::pattern(r".*\.pem$\|.*galera\.cache$\|.*/\(keep\|my\)-me$").unwrap();
        assert!(keep.keeps(b"x.pem") && keep.keeps(b"galera.cache") && keep.keeps(b"my-me"));
        assert!(!keep.keeps(b"grastate.dat") && !keep.keeps(b"xpem"));
        keep.also(b"mysqld.pid");
        assert!(keep.keeps(b"mysqld.pid") && keep.keeps(b".xb"));
        assert!(Keep::pattern(r".*[").is_err());
    }

    proptest! {
        #[test]
        fn any_pattern_is_taken_or_refused(text in "\\PC{0,40}", name in proptest::collection::vec(any::<u8>(), 0..20)) {
            if let Ok(keep) = Keep::pattern(&text) {
                let _ = keep.keeps(&name);
            }
        }
    }
}
