//! Login of the backup at the donor's server.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;

/// A user and a password, in any encoding. `Debug` shows only the user.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The user.
    pub user: OsString,
    password: OsString,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login({}, ***)", self.user.display())
    }
}

impl Login {
    /// Returns `None` if the user is empty.
    pub(crate) fn new(user: OsString, password: OsString) -> Option<Self> {
        (!user.is_empty()).then_some(Self { user, password })
    }

    /// Parses `user:password`, the form of `wsrep_sst_auth`. Returns `None` if the user is empty.
    #[must_use]
    pub fn parse(text: &OsStr) -> Option<Self> {
        let mut parts = text.as_bytes().splitn(2, |byte| *byte == b':').map(OsStr::from_bytes);
        let mut part = || parts.next().unwrap_or_default().to_owned();
        Self::new(part(), part())
    }

    /// The password, for the only place that needs it: a child's environment.
    #[must_use]
    pub fn password(&self) -> &OsStr {
        &self.password
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logins_are_read_and_not_shown() {
        let parse = |text: &str| Login::parse(text.as_ref());
        let login = parse("sst:a:b").unwrap();
        assert!(login.user == "sst" && login.password() == "a:b");
        assert_eq!(format!("{login:?}"), "Login(sst, ***)");
        assert_eq!(parse(""), None);
        assert_eq!(parse(":x"), None);
        assert_eq!(parse("root").unwrap().password(), "");
    }
}
