//! Where a server is, as an option names it.

use std::ffi::OsStr;
use std::path::Path;

use xb_mysql::{Access, ClientOptions};
use xb_option_files::Wanted;

use crate::error::BackupError;
use crate::server::login::{RECEIVER, access_of};

/// The path of a socket, `HOST[:PORT]` or `mysql://[USER@]HOST[:PORT]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    user: Option<String>,
    host: String,
}

impl Address {
    /// Reads an address; `None` if it has a password, a schema, or no host.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let url = ["mysql://", "mariadb://"].iter().find_map(|scheme| text.strip_prefix(scheme));
        let Some(rest) = url else { return Some(Self { user: None, host: text.to_owned() }) };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (user, host) = rest.rsplit_once('@').map_or((None, rest), |(u, h)| (Some(u), h));
        let is_plain = !host.is_empty() && !host.contains(['/', '?']);
        let is_plain = is_plain && !user.is_some_and(|user| user.contains(':'));
        let (user, host) = (user.map(str::to_owned), host.to_owned());
        is_plain.then_some(Self { user, host })
    }

    /// Sets what the address says.
    pub(crate) fn set(&self, options: &mut ClientOptions) {
        if let Some(user) = &self.user {
            options.take("user", Some(OsStr::new(user)));
        }
        // As for the stock clients, this is the usual socket.
        if self.host != "localhost" {
            for (name, value) in place(&self.host) {
                options.take(name, Some(OsStr::new(&value)));
            }
        }
    }
}

/// Where the server of a receiver is, and as whom it logs in: by the option files of the stock clients, then by
/// the groups `[client]`, `[xbcloud-binlog]` and so on of `login_file`, then by `source`: the path of a socket,
/// `HOST[:PORT]` or `mysql://[USER@]HOST[:PORT]`.
///
/// # Errors
/// [`BackupError::Selection`] if they do not say how to log in.
pub fn source_access(
    source: Option<&str>,
    login_file: Option<&Path>,
) -> Result<Access, BackupError> {
    let address = source.map(|text| {
        Address::parse(text).ok_or_else(|| {
            BackupError::Selection("--source takes the path of a socket, HOST[:PORT] or mysql://[USER@]HOST[:PORT], without a password; put the password into the group [client] of --login-file".to_owned())
        })
    });
    let address = address.transpose()?;
    let wanted = Wanted { extra: login_file.map(Path::to_owned), ..Wanted::default() };
    let access = access_of(&wanted, &[RECEIVER], |options| {
        if let Some(address) = &address {
            address.set(options);
        }
    });
    access.map_err(|error| BackupError::Selection(format!("login to the server: {error}")))
}

/// The options of a client for this address.
pub(crate) fn place(address: &str) -> Vec<(&'static str, String)> {
    let tcp = |host: &str| {
        vec![
            ("host", host.trim_start_matches('[').trim_end_matches(']').to_owned()),
            ("protocol", "tcp".to_owned()),
        ]
    };
    if address.starts_with('/') {
        return vec![("socket", address.to_owned()), ("protocol", "socket".to_owned())];
    }
    // An IPv6 address without brackets has more than one colon.
    match address.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && (!host.contains(':') || host.ends_with(']')) => {
            [tcp(host), vec![("port", port.to_owned())]].concat()
        }
        _ => tcp(address),
    }
}

#[cfg(test)]
mod tests {
    use xb_mysql::Target;

    use super::*;

    #[test]
    fn the_login_file_says_who_and_the_source_where() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("login");
        let text = "[client]\nuser=c\npassword=x\nhost=db9\n[xbcloud-binlog]\nuser=r\n";
        std::fs::write(&file, text).unwrap();
        let found = source_access(Some("/run/s"), Some(&file)).unwrap();
        assert_eq!(found.target, Target::Socket("/run/s".into()));
        assert_eq!((&found.account.user[..], &found.account.password[..]), (&b"r"[..], &b"x"[..]));
        let found = source_access(None, Some(&file)).unwrap();
        assert!(matches!(found.target, Target::Tcp { host, .. } if host == "db9"));
        for bad in ["mysql://u:secret@db", "mysql://db/shop", "mysql://"] {
            let error = source_access(Some(bad), None).unwrap_err().to_string();
            assert!(error.contains("without a password") && !error.contains("secret"), "{error}");
        }
        let missing = source_access(None, Some(&folder.path().join("none"))).unwrap_err();
        assert!(missing.to_string().contains("none"), "{missing}");
    }
}
