//! Who logs in to the donor's server for the backup.

use std::fmt;
use std::io::{BufRead, Read};

/// Most that is read of what a server sends, in bytes.
const MAX: u64 = 64 << 10;

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
    /// `user:password`, as `wsrep_sst_auth` has it; without a user there is nobody to log in.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (user, password) = text.split_once(':').unwrap_or((text, ""));
        (!user.is_empty()).then(|| Self { user: user.to_owned(), password: password.to_owned() })
    }

    /// The lines `sst_user=…` and `sst_password=…`, as Percona's server sends them on stdin.
    #[must_use]
    pub fn from_lines(input: impl Read) -> Option<Self> {
        let mut login = Self { user: String::new(), password: String::new() };
        for line in std::io::BufReader::new(input.take(MAX)).lines().map_while(Result::ok) {
            if let Some(user) = line.strip_prefix("sst_user=") {
                login.user = user.to_owned();
            } else if let Some(password) = line.strip_prefix("sst_password=") {
                login.password = password.to_owned();
                // It comes last, and who waits for the end may wait for ever.
                break;
            }
        }
        (!login.user.is_empty()).then_some(login)
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

    #[test]
    fn perconas_lines_are_read() {
        let lines = "sst_user=mysql.pxc.sst.user\nsst_password=x=y\nother=1\n";
        let login = Login::from_lines(lines.as_bytes()).unwrap();
        assert_eq!((login.user.as_str(), login.password()), ("mysql.pxc.sst.user", "x=y"));
        assert_eq!(Login::from_lines(&b""[..]), None);
        assert_eq!(Login::from_lines(&b"\xff\xfe"[..]), None);
    }
}
