//! Address and login of a server, from the options of the stock clients: those of their
//! option files and of their command line.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use nix::unistd::{Uid, User};
use zeroize::Zeroizing;

use crate::auth::Account;
use crate::client::Target;
use crate::error::Error;
use crate::tls::{ClientCertificate, Trust};

/// The groups of option files that the stock clients of both forks read.
pub const GROUPS: [&str; 5] =
    ["mysql", "mariadb-client", "client", "client-server", "client-mariadb"];
/// Where servers have their socket if no option says otherwise.
const SOCKETS: [&str; 4] = [
    "/run/mysqld/mysqld.sock",
    "/var/lib/mysql/mysql.sock",
    "/tmp/mysql.sock",
    "/run/mysql/mysql.sock",
];
const PORT: u16 = 3306;

/// A server, and an account of it.
#[derive(Debug, Clone)]
pub struct Access {
    /// Where the server is.
    pub target: Target,
    /// Account that logs in.
    pub account: Account,
}

/// The options that say where a server is and as whom to log in. The last value of an option wins;
/// other options are ignored.
///
/// `Debug` shows no values: one is the password.
#[derive(Clone, Default)]
pub struct ClientOptions {
    user: Option<Vec<u8>>,
    password: Option<Zeroizing<Vec<u8>>>,
    host: Option<String>,
    port: Option<String>,
    socket: Option<PathBuf>,
    protocol: Option<String>,
    tls: Tls,
}

#[derive(Clone, Default)]
struct Tls {
    mode: Option<String>,
    ca: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    fingerprint: Option<String>,
    verifies_name: bool,
}

impl fmt::Debug for ClientOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientOptions").finish_non_exhaustive()
    }
}

impl ClientOptions {
    /// Takes an option, by its name as in option files, without the leading `--`.
    pub fn take(&mut self, name: &str, value: Option<&OsStr>) {
        let name = name.replace('_', "-");
        let name = name.strip_prefix("loose-").unwrap_or(&name);
        let path = value.filter(|value| !value.is_empty()).map(PathBuf::from);
        let text = value.map(|value| value.to_string_lossy().into_owned());
        let is_on = !text.as_deref().is_some_and(|text| {
            ["0", "off", "false"].contains(&text.to_ascii_lowercase().as_str())
        });
        let text = text.filter(|text| !text.is_empty());
        match name {
            "user" => self.user = value.map(|value| value.as_bytes().to_vec()),
            "password" => self.set_password(value.map(|value| value.as_bytes().to_vec())),
            "skip-password" => self.set_password(Some(Vec::new())),
            "host" => self.host = text,
            "port" => self.port = text,
            "socket" => self.socket = path,
            "protocol" => self.protocol = text.map(|text| text.to_ascii_lowercase()),
            "ssl-mode" => self.tls.mode = text.map(|text| text.to_ascii_uppercase()),
            "ssl-ca" => self.tls.ca = path,
            "ssl-cert" => self.tls.certificate = path,
            "ssl-key" => self.tls.key = path,
            "ssl-fp" | "tls-fp" => self.tls.fingerprint = text,
            "ssl-verify-server-cert" => self.tls.verifies_name = is_on,
            "skip-ssl-verify-server-cert" | "disable-ssl-verify-server-cert" => {
                self.tls.verifies_name = false;
            }
            _ => {}
        }
    }

    /// Takes an option of a command line and returns whether `next` is its value: `--user=x`,
    /// `--user x`, `-ux` or `-u x`. A password is never a word of its own: there it would be asked
    /// for.
    pub fn take_word(&mut self, word: &OsStr, next: Option<&OsStr>) -> bool {
        const SHORT: [(u8, &str); 5] =
            [(b'u', "user"), (b'p', "password"), (b'H', "host"), (b'P', "port"), (b'S', "socket")];
        const ALONE: [&str; 2] = ["password", "ssl-verify-server-cert"];
        let (name, value) = match word.as_bytes() {
            [b'-', b'-', long @ ..] => {
                let mut parts = long.splitn(2, |byte| *byte == b'=');
                let name = String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
                (name, parts.next())
            }
            [b'-', letter, rest @ ..] => match SHORT.iter().find(|(short, _)| short == letter) {
                Some((_, name)) => ((*name).to_owned(), Some(rest).filter(|rest| !rest.is_empty())),
                None => return false,
            },
            _ => return false,
        };
        let plain = name.replace('_', "-");
        let is_flag = ALONE.contains(&plain.as_str()) || plain.starts_with("skip-");
        let takes_next = value.is_none() && !is_flag && self.knows(&plain);
        let value = if takes_next { next } else { value.map(OsStr::from_bytes) };
        // `--password` alone asks at a terminal.
        if value.is_some() || plain != "password" {
            self.take(&name, value);
        }
        takes_next && next.is_some()
    }

    /// Makes way for an option of another source, by its name: if it is a host or a socket, no host or protocol that was taken
    /// before leads elsewhere, and no port of that host counts.
    pub fn make_way(&mut self, name: &str) {
        let name = name.replace('_', "-");
        if ["host", "socket"].contains(&name.strip_prefix("loose-").unwrap_or(&name)) {
            if self.host.take().is_some() {
                self.port = None;
            }
            self.protocol = None;
        }
    }

    fn knows(&self, name: &str) -> bool {
        const NAMES: [&str; 11] = [
            "user", "host", "port", "socket", "protocol", "ssl-mode", "ssl-ca", "ssl-cert",
            "ssl-key", "ssl-fp", "tls-fp",
        ];
        NAMES.contains(&name)
    }

    fn set_password(&mut self, password: Option<Vec<u8>>) {
        self.password = password.map(Zeroizing::new);
    }

    /// Says where to log in and as whom. What no option says comes from the environment
    /// (`MYSQL_PWD`, `MYSQL_HOST`, `MYSQL_TCP_PORT`, `MYSQL_UNIX_PORT`), then from the defaults of the
    /// stock clients: the user of this process, and its host's socket.
    ///
    /// # Errors
    /// [`Error::Option`].
    pub fn access(self) -> Result<Access, Error> {
        self.access_in(|name| std::env::var_os(name).filter(|value| !value.is_empty()))
    }

    fn access_in(mut self, env: impl Fn(&str) -> Option<OsString>) -> Result<Access, Error> {
        let text = |name| env(name).and_then(|value| value.into_string().ok());
        let password = self.password.take();
        let password = password
            .or_else(|| env("MYSQL_PWD").map(|word| Zeroizing::new(word.into_vec())))
            .unwrap_or_default();
        let user = self.user.take().unwrap_or_else(process_user);
        let account = Account { user, password, database: Vec::new() };
        let host = self.host.take().or_else(|| text("MYSQL_HOST"));
        let is_here = host.as_deref().is_none_or(|host| host == "localhost");
        let is_tcp = match self.protocol.as_deref() {
            Some("tcp") => true,
            Some("socket") => false,
            None | Some("default") => !is_here,
            Some(other) => {
                let what = format!("{other} is not supported: give tcp or socket");
                return Err(Error::Option { option: "protocol", what });
            }
        };
        if !is_tcp {
            let socket = self.socket.take().or_else(|| env("MYSQL_UNIX_PORT").map(PathBuf::from));
            return Ok(Access {
                target: Target::Socket(socket.unwrap_or_else(usual_socket)),
                account,
            });
        }
        let port = match self.port.take().or_else(|| text("MYSQL_TCP_PORT")) {
            None => PORT,
            Some(text) => match text.parse() {
                // The stock clients take 0 for the default.
                Ok(0) => PORT,
                Ok(port) => port,
                Err(_) => {
                    let what = "give a number from 1 to 65535".to_owned();
                    return Err(Error::Option { option: "port", what });
                }
            },
        };
        let (trust, certificate) = (self.tls.trust()?, self.tls.own());
        let host = host.unwrap_or_else(|| "localhost".to_owned());
        Ok(Access { target: Target::Tcp { host, port, trust, certificate }, account })
    }
}

impl Tls {
    fn trust(&self) -> Result<Trust, Error> {
        if let Some(text) = &self.fingerprint {
            let bad = |what: &str| Error::Option { option: "ssl-fp", what: what.to_owned() };
            return text.parse().map(Trust::Fingerprint).map_err(bad);
        }
        let verified = match self.mode.as_deref() {
            Some("VERIFY_IDENTITY") => Some(true),
            Some("VERIFY_CA") => Some(false),
            Some("DISABLED" | "PREFERRED" | "REQUIRED") => return Ok(Trust::Unproven),
            Some(_) => {
                let what = "give PREFERRED, REQUIRED, VERIFY_CA or VERIFY_IDENTITY".to_owned();
                return Err(Error::Option { option: "ssl-mode", what });
            }
            None => self.ca.is_some().then_some(self.verifies_name),
        };
        match (verified, &self.ca) {
            (Some(true), Some(ca)) => Ok(Trust::Authority(ca.clone())),
            (Some(false), Some(ca)) => Ok(Trust::AnyName(ca.clone())),
            (Some(_), None) => {
                let what = "it needs the file of the authorities: give --ssl-ca".to_owned();
                Err(Error::Option { option: "ssl-mode", what })
            }
            (None, _) => Ok(Trust::Unproven),
        }
    }

    fn own(&self) -> Option<ClientCertificate> {
        let (chain, key) = (self.certificate.clone()?, self.key.clone()?);
        Some(ClientCertificate { chain, key })
    }
}

/// The name of this process's user.
fn process_user() -> Vec<u8> {
    let uid = Uid::effective();
    if uid.is_root() {
        return b"root".to_vec();
    }
    let found = User::from_uid(uid).ok().flatten().map(|user| user.name);
    found.or_else(|| std::env::var("USER").ok()).unwrap_or_default().into_bytes()
}

/// The first of the usual sockets that exists.
fn usual_socket() -> PathBuf {
    let all = || SOCKETS.iter().map(PathBuf::from);
    all().find(|path| path.exists()).or_else(|| all().next()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::Fingerprint;

    fn access(options: &[(&str, &str)], env: &[(&str, &str)]) -> Result<Access, Error> {
        let mut all = ClientOptions::default();
        options.iter().for_each(|(name, value)| all.take(name, Some(OsStr::new(value))));
        let env = |name: &str| Some(OsString::from(env.iter().find(|(n, _)| *n == name)?.1));
        all.access_in(env)
    }

    fn trust(options: &[(&str, &str)]) -> Result<Trust, Error> {
        let options = [&[("host", "db")], options].concat();
        match access(&options, &[])?.target {
            Target::Tcp { trust, .. } => Ok(trust),
            target => panic!("{target:?}"),
        }
    }

    #[test]
    fn the_last_option_wins_then_the_environment_then_the_default() {
        let env = [("MYSQL_PWD", "w"), ("MYSQL_UNIX_PORT", "/e"), ("MYSQL_HOST", "localhost")];
        let own = access(
            &[("user", "a"), ("loose_user", "b"), ("password", "x"), ("socket", "/s")],
            &env,
        );
        let own = own.unwrap();
        assert_eq!((&own.account.user[..], &own.account.password[..]), (&b"b"[..], &b"x"[..]));
        assert_eq!(own.target, Target::Socket("/s".into()));
        let usual = access(&[("user", "a")], &env).unwrap();
        assert_eq!(
            (&usual.account.password[..], usual.target),
            (&b"w"[..], Target::Socket("/e".into()))
        );
        // An empty password is one.
        assert!(access(&[("password", "")], &env).unwrap().account.password.is_empty());
    }

    #[test]
    fn a_host_is_reached_by_tcp_unless_it_is_this_one() {
        let tcp = |options: &[(&str, &str)]| match access(options, &[]).unwrap().target {
            Target::Tcp { host, port, .. } => Some((host, port)),
            Target::Socket(_) => None,
        };
        assert_eq!(tcp(&[("host", "localhost"), ("port", "7")]), None);
        assert_eq!(tcp(&[("host", "127.0.0.1"), ("port", "7")]), Some(("127.0.0.1".into(), 7)));
        assert_eq!(tcp(&[("protocol", "TCP")]), Some(("localhost".into(), 3306)));
        assert_eq!(tcp(&[("host", "db"), ("protocol", "socket")]), None);
        for bad in [("port", "x"), ("port", "70000"), ("protocol", "pipe")] {
            assert!(access(&[("host", "db"), bad], &[]).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_certificate_is_verified_as_the_options_say() {
        let (ca, on) = (("ssl-ca", "/ca"), ("ssl_verify_server_cert", "1"));
        assert_eq!(trust(&[]).unwrap(), Trust::Unproven);
        assert_eq!(trust(&[ca]).unwrap(), Trust::AnyName("/ca".into()));
        assert_eq!(trust(&[ca, on]).unwrap(), Trust::Authority("/ca".into()));
        let mode = |mode| ("ssl-mode", mode);
        assert_eq!(trust(&[ca, mode("verify_identity")]).unwrap(), Trust::Authority("/ca".into()));
        assert_eq!(trust(&[ca, mode("REQUIRED")]).unwrap(), Trust::Unproven);
        let pin = "07".repeat(32);
        let pinned = Trust::Fingerprint(Fingerprint([7; 32]));
        assert_eq!(trust(&[ca, ("tls-fp", &pin)]).unwrap(), pinned);
        for bad in [&[mode("VERIFY_CA")][..], &[ca, mode("VERIFY")], &[("ssl-fp", "07")]] {
            assert!(trust(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn words_of_a_command_line_are_options_and_values() {
        let words = ["--user", "a", "-pword", "-S", "/s", "--password", "--backup", "x", "-uz"];
        let (mut all, mut at) = (ClientOptions::default(), 0);
        while let Some(word) = words.get(at) {
            at += 1 + usize::from(all.take_word(word.as_ref(), words.get(at + 1).map(OsStr::new)));
        }
        let found = all.access_in(|_| None).unwrap();
        assert_eq!(
            (&found.account.user[..], &found.account.password[..]),
            (&b"z"[..], &b"word"[..])
        );
        assert_eq!(found.target, Target::Socket("/s".into()));
    }
}
