//! Typed values of options.

use std::ffi::{OsStr, OsString};
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::time::Duration;

use xb_process::LockGuard;

use super::error::SettingsError;
use super::own_files;
use crate::contract::args::Args;
use crate::contract::keep_patterns::Keep;
use crate::contract::option_files::OptionFiles;
use crate::contract::shell_words;

/// Default size of the spool.
const SPOOL_SIZE: u64 = 1 << 30;

pub(super) fn value(option: &str, what: &str) -> SettingsError {
    SettingsError::Value { option: option.into(), what: what.into() }
}

pub(super) fn refused(option: &str, instead: &str) -> SettingsError {
    SettingsError::Refused { option: option.into(), instead: instead.into() }
}

/// The sources in which options are looked up.
pub(super) struct Reader<'a> {
    pub(super) files: &'a OptionFiles,
    pub(super) args: &'a Args,
}

impl Reader<'_> {
    /// Names that stay in the data directory, those of the server's own small files included.
    pub(super) fn keep(&self, percona: bool) -> Result<Keep, SettingsError> {
        let keep = match self.text("cpat")? {
            Some(pattern) => Keep::pattern(pattern),
            None => Keep::usual(percona),
        };
        let mut keep = keep.map_err(|error| value("cpat", &error.to_string()))?;
        keep.within(&self.datadir());
        for named in own_files::named(self.files, self.args) {
            keep.also(&named.path, &named.option);
            // Not of all: a look at a file system that does not answer has no end.
            if named.is_known {
                keep.also_behind_links(&named.path, &named.option);
            }
        }
        Ok(keep)
    }

    pub(super) fn datadir(&self) -> PathBuf {
        let named = self.args.datadir.clone();
        let named = named.or_else(|| self.server("datadir").map(PathBuf::from));
        named.unwrap_or_else(|| ".".into())
    }

    /// Returns whether the server knows names in lower case only. The option without a value means 1, and servers with 2
    /// keep names as they are, where the file system tells cases apart.
    pub(super) fn lower_case_names(&self) -> bool {
        match self.server_given("lower-case-table-names") {
            None => false,
            Some(None) => true,
            Some(Some(value)) => {
                value.to_str().and_then(|text| text.trim().parse().ok()) == Some(1_u32)
            }
        }
    }

    /// Returns whether write sets carry GTIDs of the cluster.
    pub(super) fn cluster_gtids(&self) -> bool {
        self.server_given("wsrep-gtid-mode").is_some_and(|value| {
            let word = value.map(|value| value.to_string_lossy().trim().to_ascii_uppercase());
            word.is_none_or(|word| matches!(word.as_str(), "1" | "ON" | "TRUE"))
        })
    }

    /// Returns an option of the server, on its command line or in its groups: `Some(None)` is one without a value.
    fn server_given(&self, name: &str) -> Option<Option<&OsStr>> {
        let of_line = self.args.server.iter().rev().find(|(known, _)| known == name);
        of_line.map(|(_, value)| value.as_deref()).or_else(|| self.files.server_given(name))
    }

    pub(super) fn extra_port(&self) -> Result<Option<u16>, SettingsError> {
        if !self.switch("use-extra", false)? {
            return Ok(None);
        }
        let port = self.server("extra-port").and_then(OsStr::to_str).and_then(|p| p.parse().ok());
        let port = port.filter(|port| *port != 0);
        port.map(Some).ok_or_else(|| value("use-extra", "the server has no extra_port"))
    }

    /// Behaviour when a slow transfer blocks a locked server.
    pub(super) fn locks(&self) -> Result<LockGuard, SettingsError> {
        Ok(LockGuard {
            spool_dir: self.spool_dir(),
            spool_size: self.size("spool-size")?.unwrap_or(SPOOL_SIZE),
            lock_stall: match self.seconds(&["lock-stall"])? {
                Some(Duration::ZERO) => None,
                Some(limit) => Some(limit),
                None => Some(Duration::from_secs(30)),
            },
        })
    }

    fn spool_dir(&self) -> Option<PathBuf> {
        match self.files.sst("spool-dir") {
            Some(none) if none == "none" || none.is_empty() => None,
            Some(dir) => Some(dir.into()),
            None => Some(self.tmpdir().unwrap_or_else(std::env::temp_dir)),
        }
    }

    /// Returns the directory for small files. That of the server's command line counts before that of its groups.
    pub(super) fn tmpdir(&self) -> Option<PathBuf> {
        let own = self.files.transfer("tmpdir").filter(|value| !value.is_empty());
        own.map_or_else(|| self.server_tmpdir(), first_dir)
    }

    /// Returns the directory in which the server has its temporary files.
    pub(super) fn server_tmpdir(&self) -> Option<PathBuf> {
        self.server("tmpdir").and_then(first_dir)
    }

    /// Returns the value of an option in `[sst]`.
    ///
    /// # Errors
    /// If it is not UTF-8: without it, a default would count that the operator did not choose.
    pub(super) fn text(&self, name: &str) -> Result<Option<&str>, SettingsError> {
        let Some(found) = self.files.sst(name) else { return Ok(None) };
        found.to_str().map(Some).ok_or_else(|| value(name, "expected UTF-8"))
    }

    /// Returns a server option: from the command line, else from the server's groups.
    pub(super) fn server(&self, name: &str) -> Option<&OsStr> {
        self.args.server_option(name).or_else(|| self.files.server(name))
    }

    pub(super) fn words(&self, name: &str) -> Result<Vec<OsString>, SettingsError> {
        let text = self.files.any(name).unwrap_or_default();
        shell_words::split(text.as_bytes()).map_err(|error| value(name, &error.to_string()))
    }

    pub(super) fn number(
        &self,
        name: &str,
        range: RangeInclusive<usize>,
    ) -> Result<Option<usize>, SettingsError> {
        self.files.sst(name).map(|text| parse_number(name, text, range)).transpose()
    }

    pub(super) fn any_number(&self, name: &str) -> Result<Option<usize>, SettingsError> {
        self.files.any(name).map(|text| parse_number(name, text, 1..=256)).transpose()
    }

    pub(super) fn seconds(&self, names: &[&str]) -> Result<Option<Duration>, SettingsError> {
        let found = names.iter().find_map(|name| Some((*name, self.files.sst(name)?)));
        let Some((name, text)) = found else { return Ok(None) };
        let seconds = parse_number(name, text, 0..=10_000_000)?;
        Ok(Some(Duration::from_secs(seconds as u64)))
    }

    pub(super) fn size(&self, name: &str) -> Result<Option<u64>, SettingsError> {
        let Some(text) = self.files.sst(name) else { return Ok(None) };
        let size = text.to_str().and_then(parse_size);
        size.map(Some)
            .ok_or_else(|| value(name, "expected a number, optionally followed by K, M, G or T"))
    }

    pub(super) fn switch(&self, name: &str, otherwise: bool) -> Result<bool, SettingsError> {
        if !self.files.has(name) {
            return Ok(otherwise);
        }
        let text = self.files.sst(name).unwrap_or(OsStr::new("1"));
        match text.to_str().unwrap_or_default().to_ascii_lowercase().as_str() {
            "1" | "on" | "yes" | "true" => Ok(true),
            "0" | "off" | "no" | "false" => Ok(false),
            _ => Err(value(name, "expected yes or no")),
        }
    }
}

/// Returns the first directory of a list, which servers accept.
fn first_dir(list: &OsStr) -> Option<PathBuf> {
    let first = list.as_bytes().split(|byte| *byte == b':').next()?;
    (!first.is_empty()).then(|| OsStr::from_bytes(first).into())
}

fn parse_number(
    name: &str,
    text: &OsStr,
    range: RangeInclusive<usize>,
) -> Result<usize, SettingsError> {
    let number = text.to_str().and_then(|text| text.trim().parse().ok());
    number.filter(|n| range.contains(n)).ok_or_else(|| {
        value(name, &format!("expected a number from {} to {}", range.start(), range.end()))
    })
}

/// Parses a size with a unit; units are powers of 1024, as in the servers' options and `pv`.
pub(super) fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}
