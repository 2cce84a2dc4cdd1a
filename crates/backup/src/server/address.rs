//! Where a server is, as an option names it.

use std::ffi::OsStr;
use std::path::Path;

use xb_mysql::{Access, ClientOptions};
use xb_option_files::OptionFilePaths;

use crate::error::BackupError;
use crate::server::login::{CLONE, COMPARED, LoginError, RECEIVER, access_of};

/// The path of a socket, `HOST[:PORT]`, `mysql://[USER@]HOST[:PORT]` or `mysql://[USER@]/SOCKET`.
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
        let is_plain = host.starts_with('/') || !host.is_empty() && !host.contains(['/', '?']);
        let is_plain = is_plain && !user.is_some_and(|user| user.contains(':'));
        let (user, host) = (user.map(str::to_owned), host.to_owned());
        is_plain.then_some(Self { user, host })
    }

    /// Sets what the address says.
    pub(crate) fn set(&self, options: &mut ClientOptions) {
        if let Some(user) = &self.user {
            options.take("user", Some(OsStr::new(user)));
        }
        match &*self.host {
            // As for the stock clients, this is the usual socket, whatever host an option file names.
            here @ "localhost" => options.take("host", Some(OsStr::new(here))),
            host => {
                for (name, value) in place(host) {
                    options.take(name, Some(OsStr::new(&value)));
                }
            }
        }
    }
}

/// Where the servers of a receiver are, and as whom it logs in: by the option files of the stock clients, then by
/// the groups `[client]`, `[xbcloud-binlog]` and so on of `login_file`, then by `sources`, with commas between them: the
/// path of a socket, `HOST[:PORT]` or `mysql://[USER@]HOST[:PORT]`. Without any, that is one server.
///
/// # Errors
/// [`BackupError::Login`] if they do not say how to log in.
pub fn source_servers(
    sources: Option<&str>,
    login_file: Option<&Path>,
) -> Result<Vec<Access>, BackupError> {
    let Some(sources) = sources else {
        return Ok(vec![any_access("--source", None, login_file, RECEIVER)?]);
    };
    let each = |source: &str| any_access("--source", Some(source.trim()), login_file, RECEIVER);
    sources.split(',').map(each).collect()
}

/// Where a server is that restored data is compared with, and as whom to log in: as [`source_servers`], with the group
/// `[xbcloud-compare]`.
///
/// # Errors
/// As [`source_servers`].
pub(crate) fn compared_access(
    server: &str,
    login_file: Option<&Path>,
) -> Result<Access, BackupError> {
    any_access("--compare-with", Some(server), login_file, COMPARED)
}

fn any_access(
    option: &str,
    server: Option<&str>,
    login_file: Option<&Path>,
    group: &str,
) -> Result<Access, BackupError> {
    let address = server.map(|text| {
        Address::parse(text).ok_or_else(|| {
            BackupError::Login(format!("{option} takes the path of a socket, HOST[:PORT] or mysql://[USER@]HOST[:PORT], without a password; put the password into the group [client] of --login-file"))
        })
    });
    let address = address.transpose()?;
    let access = access_of(&OptionFilePaths::usual(), login_file, &[group], |options| {
        if let Some(address) = &address {
            address.set(options);
        }
    });
    access.map_err(|error| no_login(&error))
}

/// The error of a login, with what the system says of an option file that cannot be read.
fn no_login(error: &LoginError) -> BackupError {
    let why = match error {
        LoginError::Files(error) => std::error::Error::source(error),
        LoginError::Options(_) | LoginError::Session(_) => None,
    };
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    BackupError::Login(format!("login to the server: {error}{why}"))
}

/// The options of a clone: the server, and how its identity is verified.
#[derive(Debug, Clone, Copy, Default)]
pub struct CloneServer<'a> {
    /// `mysql://[USER@]HOST[:PORT]`, or `mysql://[USER@]/SOCKET`.
    pub from: &'a str,
    /// Option file with the login in its group `[client]` or `[xbcloud-clone]`.
    pub login_file: Option<&'a Path>,
    /// PEM file of the authorities.
    pub ca: Option<&'a Path>,
    /// Fingerprint of its certificate.
    pub fingerprint: Option<&'a str>,
}

impl CloneServer<'_> {
    /// The host, if it is not this one.
    #[must_use]
    pub fn other_host(&self) -> Option<String> {
        let host = Address::parse(self.from)?.host;
        let (_, name) = place(&host).into_iter().find(|(option, _)| *option == "host")?;
        let is_here = name == "localhost"
            || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
        (!is_here).then_some(name)
    }
}

/// Where a server to clone is, as whom to log in, and what it must prove: by the option files of the stock
/// clients, then by the groups `[client]`, `[xbcloud-clone]` and so on of the login file, then by the rest.
///
/// # Errors
/// [`BackupError::Login`] if they do not say how to log in.
pub fn clone_access(server: CloneServer<'_>) -> Result<Access, BackupError> {
    let address = Some(server.from).filter(|from| from.starts_with("mysql://"));
    let address = address.and_then(Address::parse).ok_or_else(|| {
        BackupError::Login("--from takes mysql://[USER@]HOST[:PORT] or mysql://[USER@]/SOCKET, without a password; put the password into the group [client] of --login-file".to_owned())
    })?;
    let access = access_of(&OptionFilePaths::usual(), server.login_file, &[CLONE], |options| {
        address.set(options);
        if let Some(ca) = server.ca {
            options.take("ssl-ca", Some(ca.as_os_str()));
        }
        if let Some(fingerprint) = server.fingerprint {
            options.take("ssl-fp", Some(OsStr::new(fingerprint)));
        }
    });
    access.map_err(|error| no_login(&error))
}

/// The options of a client for this address.
pub(crate) fn place(address: &str) -> Vec<(&'static str, String)> {
    let tcp = |host: &str| {
        vec![
            ("host", host.trim_start_matches('[').trim_end_matches(']').to_owned()),
            ("protocol", "tcp".to_owned()),
        ]
    };
    if address.contains('/') {
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
    use xb_mysql::{Target, Trust};

    use super::*;

    /// The first of the servers.
    fn source_access(source: Option<&str>, file: Option<&Path>) -> Result<Access, BackupError> {
        source_servers(source, file).map(|mut all| all.remove(0))
    }

    #[test]
    fn several_sources_are_several_servers_with_one_login() {
        let found = source_servers(Some("db1:3307, db2,/run/s"), None).unwrap();
        let targets = found.into_iter().map(|access| match access.target {
            Target::Tcp { host, port, .. } => format!("{host}:{port}"),
            Target::Socket(path) => path.display().to_string(),
        });
        assert_eq!(targets.collect::<Vec<_>>(), ["db1:3307", "db2:3306", "/run/s"]);
        assert!(source_servers(Some("db1,mysql://u:secret@db"), None).is_err());
    }

    #[test]
    fn the_login_file_says_who_and_the_source_where() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("login");
        let text = "[client]\nuser=c\npassword=x\nhost=db9\n[xbcloud-binlog]\nuser=r\n";
        std::fs::write(&file, text).unwrap();
        let found = source_access(Some("/run/s"), Some(&file)).unwrap();
        assert_eq!(found.target, Target::Socket("/run/s".into()));
        assert_eq!((&found.account.user[..], &found.account.password[..]), (&b"r"[..], &b"x"[..]));
        let found = source_access(Some("run/s"), Some(&file)).unwrap();
        assert_eq!(found.target, Target::Socket("run/s".into()));
        let found = source_access(None, Some(&file)).unwrap();
        assert!(matches!(found.target, Target::Tcp { host, .. } if host == "db9"));
        let found = source_access(Some("mysql://u@/run/x.sock"), None).unwrap();
        assert_eq!(
            (&found.account.user[..], found.target),
            (&b"u"[..], Target::Socket("/run/x.sock".into()))
        );
        for bad in ["mysql://u:secret@db", "mysql://db/shop", "mysql://"] {
            let error = source_access(Some(bad), None).unwrap_err().to_string();
            assert!(error.contains("without a password") && !error.contains("secret"), "{error}");
        }
        let missing = source_access(None, Some(&folder.path().join("none"))).unwrap_err();
        assert!(missing.to_string().contains("none"), "{missing}");
    }

    #[test]
    fn a_server_to_clone_is_named_by_a_url_and_proves_who_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("login");
        std::fs::write(&file, "[client]\nuser=c\npassword=x\n[xbcloud-clone]\nuser=b\n").unwrap();
        let (pin, from) = ("ab".repeat(32), "mysql://db1:3307");
        let server = |from| CloneServer { from, login_file: Some(&file), ..CloneServer::default() };
        let found = clone_access(CloneServer { fingerprint: Some(&pin), ..server(from) }).unwrap();
        assert_eq!((&found.account.user[..], &found.account.password[..]), (&b"b"[..], &b"x"[..]));
        let Target::Tcp { host, port: 3307, trust: Trust::Fingerprint(found), .. } = found.target
        else {
            panic!("{found:?}")
        };
        assert_eq!((host.as_str(), found.to_string()), ("db1", pin));
        let trust = |ca| match clone_access(CloneServer { ca, ..server(from) }).unwrap().target {
            Target::Tcp { trust, .. } => trust,
            Target::Socket(path) => panic!("{path:?}"),
        };
        assert_eq!(trust(None), Trust::Unproven);
        assert_eq!(trust(Some(Path::new("/ca"))), Trust::AnyName("/ca".into()));
        let other = |from| CloneServer { from, ..CloneServer::default() }.other_host();
        assert_eq!(other("mysql://u@db1:3307").as_deref(), Some("db1"));
        assert_eq!(other("mysql://u@[fe80::1]:3307").as_deref(), Some("fe80::1"));
        for here in [
            "mysql:///run/s",
            "mysql://localhost",
            "mysql://localhost:1",
            "mysql://127.0.0.1",
            "mysql://[::1]:3306",
        ] {
            assert_eq!(other(here), None, "{here}");
        }
        for bad in
            ["db1", "/run/s", "mariadb://db1", "mysql://u:secret@db1", "mysql:///", "mysql://"]
        {
            let error = clone_access(server(bad)).unwrap_err().to_string();
            assert!(error.contains("without a password") && !error.contains("secret"), "{error}");
        }
    }
}
