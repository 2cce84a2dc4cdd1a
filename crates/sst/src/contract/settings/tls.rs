//! TLS settings of the connections.

use std::ffi::OsStr;
use std::path::PathBuf;

use super::error::SettingsError;
use super::reader::{Reader, refused, value};
use crate::contract::args::Role;

/// TLS settings, as the stock options express them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// The files in use: the options of the role precede `tcert`, `tkey` and `tca`.
    pub files: TlsFiles,
    /// The files in use with an earlier server, whose own method has the opposite order; `None` if
    /// they are the same. See [`Tls::of_server`].
    pub earlier: Option<TlsFiles>,
    /// `wire-security=plain`: no TLS at all.
    pub plain: bool,
    /// `wire-security=any-donor`: a joiner accepts a donor that cannot authenticate itself.
    pub any_donor: bool,
}

/// Certificate, key and authority of one node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate in PEM, with its chain up to the authority.
    pub cert: Option<PathBuf>,
    /// Private key; `None`: in the same file.
    pub key: Option<PathBuf>,
    /// Trusted certificates.
    pub ca: Option<PathBuf>,
    /// Whether the peer's certificate must be verified.
    pub verify: Verify,
}

/// Checks of a certificate, the weakest first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verify {
    /// Only the checks that the transport itself requires.
    #[default]
    Unsaid,
    /// Its chain leads to a trusted authority.
    Ca,
    /// Its chain leads to a trusted authority, and it names the host.
    Identity,
}

/// First releases of MariaDB, one for each series, in which the options of the role precede
/// `tcert`, `tkey` and `tca`. Series that are not listed do so from 12.0 on.
const ROLE_FIRST: [(u32, u32, u32); 3] = [(10, 11, 19), (11, 4, 13), (11, 8, 9)];

impl Tls {
    /// Returns the files in use with a server of this version; an unknown one counts as recent.
    #[must_use]
    pub fn of_server(&self, version: Option<&str>) -> &TlsFiles {
        match &self.earlier {
            Some(earlier) if version.is_some_and(is_earlier) => earlier,
            _ => &self.files,
        }
    }
}

fn is_earlier(version: &str) -> bool {
    let mut numbers = version.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    let (Some(major), Some(minor)) = (numbers.next(), numbers.next()) else { return false };
    let patch = numbers.next().unwrap_or_default();
    let of_series = ROLE_FIRST.iter().find(|first| (first.0, first.1) == (major, minor));
    of_series.map_or(major < 12, |first| patch < first.2)
}

/// Requests of the options, apart from the files.
struct Request<'a> {
    encrypt: &'a str,
    /// Whether `ssl-mode` or the role's variant of it is set.
    has_mode: bool,
    /// The stricter one of the two.
    mode: Verify,
    /// Whether a server's certificate for its clients is used here, too.
    wanted: bool,
}

impl Reader<'_> {
    pub(super) fn tls(&self) -> Result<Tls, SettingsError> {
        let (mut plain, mut any_donor) = (false, false);
        match self.text("wire-security")? {
            None | Some("tls") => {}
            Some("plain") => plain = true,
            Some("any-donor") => any_donor = true,
            Some(_) => return Err(value("wire-security", "expected tls, any-donor or plain")),
        }
        let request = self.request()?;
        let files = self.tls_files(&request, true)?;
        let earlier = self.tls_files(&request, false)?;
        let earlier = (earlier != files).then_some(earlier);
        Ok(Tls { files, earlier, plain, any_donor })
    }

    /// The role's variant of an option: `ssl-server-cert` on a joiner, `ssl-client-cert` on a donor.
    fn of_role(&self, name: &str) -> String {
        let role = match self.args.role {
            Role::Joiner => "server",
            Role::Donor => "client",
        };
        format!("ssl-{role}-{name}")
    }

    fn request(&self) -> Result<Request<'_>, SettingsError> {
        // What is no text was refused.
        let encrypt = self.files.any("encrypt").and_then(OsStr::to_str).unwrap_or_default();
        let (mut has_mode, mut mode) = (false, Verify::Unsaid);
        let mut wanted = matches!(encrypt, "2" | "3" | "4");
        for name in ["ssl-mode".to_owned(), self.of_role("mode")] {
            let given = self.files.any(&name).unwrap_or_default();
            let given = given.to_string_lossy().to_ascii_uppercase();
            has_mode |= !given.is_empty();
            wanted |= !matches!(given.as_str(), "" | "DISABLED");
            mode = mode.max(match given.as_str() {
                "" | "DISABLED" | "PREFERRED" | "REQUIRED" => Verify::Unsaid,
                "VERIFY_CA" => Verify::Ca,
                "VERIFY_IDENTITY" => Verify::Identity,
                _ => {
                    let what = "expected DISABLED, REQUIRED, VERIFY_CA or VERIFY_IDENTITY";
                    return Err(value(&name, what));
                }
            });
        }
        let certificates = ["tcert", "ssl-cert", "ssl-server-cert", "ssl-client-cert"];
        wanted |= certificates.iter().any(|name| self.files.has(name));
        wanted |= self.is_of_sst("key") || self.is_of_sst("ca");
        Ok(Request { encrypt, has_mode, mode, wanted })
    }

    /// Returns whether `[sst]` has an option for this file.
    fn is_of_sst(&self, name: &str) -> bool {
        [format!("t{name}"), format!("ssl-{name}"), self.of_role(name)]
            .iter()
            .any(|option| self.files.has(option))
    }

    /// Chooses the files. `tcert`, `tkey` and `tca` are a group: if one of them is set, the
    /// server's own `ssl-cert`, `ssl-key` and `ssl-ca` do not count.
    fn tls_files(
        &self,
        request: &Request<'_>,
        role_first: bool,
    ) -> Result<TlsFiles, SettingsError> {
        let of_transfer =
            ["tcert", "tkey", "tca"].iter().any(|name| self.files.any_path(name).is_some());
        let path = |name: &str| {
            let of_role = || self.files.any_path(&self.of_role(name));
            match of_transfer {
                true if role_first => {
                    of_role().or_else(|| self.files.any_path(&format!("t{name}")))
                }
                true => self.files.any_path(&format!("t{name}")),
                false => of_role().or_else(|| self.files.any_path(&format!("ssl-{name}"))),
            }
        };
        let [cert, key, ca] = ["cert", "key", "ca"].map(|n| path(n).filter(|_| request.wanted));
        self.refuse_directory(request, of_transfer, ca.is_none())?;
        if cert.is_none() && (self.is_of_sst("key") || self.is_of_sst("ca")) {
            return Err(refused(
                "tkey or tca without a certificate",
                "set tcert, tkey and tca, or ssl-cert, ssl-key and ssl-ca",
            ));
        }
        let asks = match request.encrypt {
            "2" | "4" => true,
            // As with the stock method: an authority, even the server's own, is used.
            "3" => ca.is_some(),
            // An authority that is named for transfers has no other use.
            _ => !request.has_mode && ca.is_some() && self.is_of_sst("ca"),
        };
        let verify = request.mode.max(if asks { Verify::Ca } else { Verify::Unsaid });
        Ok(TlsFiles { cert, key, ca, verify })
    }

    /// Refuses directories of authorities. The server's own one is no obstacle if it is not used
    /// here, or if a file is set beside it.
    fn refuse_directory(
        &self,
        request: &Request<'_>,
        of_transfer: bool,
        lacks_ca: bool,
    ) -> Result<(), SettingsError> {
        for name in ["tcapath".to_owned(), "ssl-capath".to_owned(), self.of_role("capath")] {
            let is_servers = name == "ssl-capath"
                && !of_transfer
                && request.wanted
                && lacks_ca
                && self.files.any_path(&name).is_some();
            if self.files.has(&name) || is_servers {
                return Err(refused(&name, "put all CA certificates into one file and set tca"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_the_options_is_that_of_the_server() {
        for (version, earlier) in [
            ("10.6.25-MariaDB", true),
            ("10.11.18-MariaDB", true),
            ("10.11.19-MariaDB-log", false),
            ("11.4.12", true),
            ("11.7.2", true),
            ("11.8.6-MariaDB", true),
            ("11.8.9-MariaDB", false),
            ("12.0.2", false),
            ("unknown", false),
        ] {
            assert_eq!(is_earlier(version), earlier, "{version}");
        }
    }
}
