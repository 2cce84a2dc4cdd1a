//! Who logs in to the donor's server for the backup.

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
    /// Without a user there is nobody to log in.
    pub(crate) fn new(user: String, password: String) -> Option<Self> {
        (!user.is_empty()).then_some(Self { user, password })
    }

    /// `user:password`, as `wsrep_sst_auth` has it; without a user there is nobody to log in.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (user, password) = text.split_once(':').unwrap_or((text, ""));
        Self::new(user.to_owned(), password.to_owned())
    }

    /// The password itself, for the one place that must have it: a child's environment.
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
