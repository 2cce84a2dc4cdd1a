//! Login of the backup at the donor's server.

use std::fmt;

/// A user and a password. `Debug` shows only the user.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The user.
    pub user: String,
    password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login({}, ***)", self.user)
    }
}

impl Login {
    /// Returns `None` if the user is empty.
    pub(crate) fn new(user: String, password: String) -> Option<Self> {
        (!user.is_empty()).then_some(Self { user, password })
    }

    /// Parses `user:password`, the form of `wsrep_sst_auth`. Returns `None` if the user is empty.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (user, password) = text.split_once(':').unwrap_or((text, ""));
        Self::new(user.to_owned(), password.to_owned())
    }

    /// The password, for the only place that needs it: a child's environment.
    #[must_use]
    pub fn password(&self) -> &str {
        &self.password
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logins_are_read_and_not_shown() {
        let login = Login::parse("sst:a:b").unwrap();
        assert_eq!((login.user.as_str(), login.password()), ("sst", "a:b"));
        assert_eq!(format!("{login:?}"), "Login(sst, ***)");
        assert_eq!(Login::parse(""), None);
        assert_eq!(Login::parse(":x"), None);
        assert_eq!(Login::parse("root").unwrap().password(), "");
    }
}
