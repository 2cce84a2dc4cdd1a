//! TLS settings of the connections.

use std::ffi::OsStr;
use std::path::PathBuf;

use super::error::SettingsError;
use super::reader::{Reader, refused, value};
use crate::contract::args::Role;

/// TLS settings, as the stock options express them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// Certificate in PEM, with its chain up to the authority.
    pub cert: Option<PathBuf>,
    /// Private key; `None`: in the same file.
    pub key: Option<PathBuf>,
    /// Trusted certificates.
    pub ca: Option<PathBuf>,
    /// Whether the peer's certificate must be verified: `ssl-mode=VERIFY_CA` or `VERIFY_IDENTITY`,
    /// or `encrypt=4`.
    pub verify: Verify,
    /// `wire-security=plain`: no TLS at all.
    pub plain: bool,
    /// `wire-security=any-donor`: a joiner accepts a donor that cannot authenticate itself.
    pub any_donor: bool,
}

/// Checks of a certificate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Verify {
    /// Only the checks that the transport itself requires.
    #[default]
    Unsaid,
    /// Its chain leads to a trusted authority.
    Ca,
    /// Its chain leads to a trusted authority, and it names the host.
    Identity,
}

impl Reader<'_> {
    pub(super) fn tls(&self) -> Result<Tls, SettingsError> {
        let role = match self.args.role {
            Role::Joiner => "server",
            Role::Donor => "client",
        };
        // The old names win, then those of the role, then the server's own options.
        let path = |old: &str, new: &str| {
            let of_role = format!("ssl-{role}-{new}");
            self.files
                .any_path(old)
                .or_else(|| self.files.any_path(&of_role))
                .or_else(|| self.files.any_path(&format!("ssl-{new}")))
        };
        let text = |name: &str| self.files.any(name).and_then(OsStr::to_str).unwrap_or_default();
        let encrypt = text("encrypt");
        let mode = text("ssl-mode").to_ascii_uppercase();
        // In mode 3 the peer is verified only if its authority is set with `tca`.
        let checks = matches!(encrypt, "2" | "4") || (encrypt == "3" && self.files.has("tca"));
        let verify = match mode.as_str() {
            "VERIFY_IDENTITY" => Verify::Identity,
            "VERIFY_CA" => Verify::Ca,
            "" | "DISABLED" | "PREFERRED" | "REQUIRED" if checks => Verify::Ca,
            "" | "DISABLED" | "PREFERRED" | "REQUIRED" => Verify::Unsaid,
            _ => {
                let what = "expected DISABLED, REQUIRED, VERIFY_CA or VERIFY_IDENTITY";
                return Err(value("ssl-mode", what));
            }
        };
        if self.files.has("tcapath") || self.files.has("ssl-capath") {
            return Err(refused("tcapath", "put all CA certificates into one file and set tca"));
        }
        // A server's certificate for its clients is used here only if an option says so.
        let names = ["tcert", "ssl-cert", "ssl-server-cert", "ssl-client-cert"];
        let wanted = matches!(encrypt, "2" | "3" | "4")
            || !matches!(mode.as_str(), "" | "DISABLED")
            || names.iter().any(|name| self.files.has(name));
        let (mut plain, mut any_donor) = (false, false);
        match self.files.sst("wire-security").and_then(OsStr::to_str) {
            None | Some("tls") => {}
            Some("plain") => plain = true,
            Some("any-donor") => any_donor = true,
            Some(_) => return Err(value("wire-security", "expected tls, any-donor or plain")),
        }
        Ok(Tls {
            cert: path("tcert", "cert").filter(|_| wanted),
            key: path("tkey", "key").filter(|_| wanted),
            ca: path("tca", "ca").filter(|_| wanted),
            verify,
            plain,
            any_donor,
        })
    }
}
