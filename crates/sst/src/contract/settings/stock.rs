//! Effect of the stock methods' options here: a setting, a warning or a refusal.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use xb_compressor::{Algorithm, AlgorithmError, Compression};

use super::error::SettingsError;
use super::reader::{Reader, refused, value};
use crate::contract::shell_words;

/// Names in `[sst]` that have a meaning, here or in the stock methods.
pub(super) const KNOWN: [&str; 81] = [
    "auto-upgrade",
    "backup-program",
    "backup-threads",
    "compress",
    "compress-chunk-size",
    "compress-threads",
    "compressor",
    "connections",
    "cpat",
    "decompressor",
    "delta",
    "donor-timeout",
    "encrypt",
    "encrypt-algo",
    "encrypt-chunk-size",
    "encrypt-format",
    "encrypt-key",
    "encrypt-key-file",
    "encrypt-threads",
    "force-upgrade",
    "inno-apply-opts",
    "inno-backup-opts",
    "inno-move-opts",
    "joiner-timeout",
    "keep-old",
    "keep-replicating",
    "lock-stall",
    "ncsockopt",
    "progress",
    "progress-interval",
    "rebuild",
    "report-dir",
    "reset-replica",
    "rlimit",
    "second-start",
    "second-start-timeout",
    "sockopt",
    "space-check",
    "spool-dir",
    "spool-size",
    "ssl-ca",
    "ssl-capath",
    "ssl-cert",
    "ssl-client-ca",
    "ssl-client-capath",
    "ssl-client-cert",
    "ssl-client-key",
    "ssl-client-mode",
    "ssl-dhparams",
    "ssl-key",
    "ssl-mode",
    "ssl-server-ca",
    "ssl-server-capath",
    "ssl-server-cert",
    "ssl-server-key",
    "ssl-server-mode",
    "sst-idle-timeout",
    "sst-initial-timeout",
    "sst-log-archive",
    "sst-log-archive-dir",
    "sst-resume-limit",
    "sst-special-dirs",
    "sst-syslog",
    "streamfmt",
    "tca",
    "tcapath",
    "tcert",
    "time",
    "tkey",
    "tmpdir",
    "transferfmt",
    "use-extra",
    "use-memory",
    "use-socat",
    "wire-security",
    "write-threads",
    "wsrep-debug",
    "wsrep-log-dir",
    "wsrep-sst-auth",
    "xbstream-opts",
    "xtrabackup-plugin-dir",
];

/// Reason why the options of `encrypt=1` have no effect.
const OF_ENCRYPT_1: &str = "only encrypt=1 uses it, which is refused; TLS 1.3 is always on";

/// Returns the option of the backup program if it is about a transition key or a new master key, without
/// its value, which may be secret.
fn asks_for_keys(word: &OsStr) -> Option<String> {
    let name = word.to_string_lossy().split('=').next().unwrap_or_default().replace('_', "-");
    ["--transition-key", "--generate-transition-key", "--generate-new-master-key"]
        .contains(&name.as_str())
        .then_some(name)
}

impl Reader<'_> {
    /// Refuses options whose request cannot be met.
    pub(super) fn refuse(&self) -> Result<(), SettingsError> {
        let text = |name| self.files.sst(name).and_then(OsStr::to_str).unwrap_or_default();
        match self.files.any("encrypt").unwrap_or_default().to_string_lossy().as_ref() {
            "1" => {
                return Err(refused(
                    "encrypt=1",
                    "its cipher is not authenticated; remove the option, because TLS 1.3 is always on",
                ));
            }
            "" | "0" | "2" | "3" | "4" => {}
            _ => return Err(value("encrypt", "expected 0, 2, 3 or 4")),
        }
        if text("streamfmt") == "tar" {
            return Err(refused(
                "streamfmt=tar",
                "the stream is always an xbstream; remove the option",
            ));
        }
        for option in ["inno-backup-opts", "inno-apply-opts"] {
            let words = self.words(option)?;
            if let Some(word) = words.iter().find_map(|word| asks_for_keys(word)) {
                return Err(refused(
                    &format!("{option}={word}"),
                    "it makes no new master key, so no server could open the tables; give both nodes one keyring, such as a vault",
                ));
            }
        }
        Ok(())
    }

    /// Warns about options without an effect.
    pub(super) fn unused(&self, remarks: &mut Vec<String>) {
        for (name, why) in [
            ("transferfmt", "one program does the transfer"),
            ("sockopt", "socat is not used"),
            ("ssl-dhparams", "TLS 1.3 has no such parameters"),
            ("decompressor", "the joiner detects the compression"),
            ("inno-move-opts", "files are renamed"),
            ("sst-syslog", "messages go to the error log"),
            ("rebuild", "indexes are not rebuilt"),
            ("compress-chunk-size", "the size of frames is fixed"),
            ("auto-upgrade", "the server upgrades the data itself when it starts on it"),
            ("force-upgrade", "the server upgrades the data itself when it starts on it"),
            ("xbstream-opts", "xbstream is not used"),
            ("xtrabackup-plugin-dir", "set it in inno-backup-opts and inno-apply-opts"),
            ("donor-timeout", "a donor tries for 10 s while the joiner's port is closed"),
            ("ncsockopt", "nc is not used"),
            ("use-socat", "socat is not used"),
            ("sst-log-archive", "each transfer replaces the logs of the last one"),
            ("sst-log-archive-dir", "each transfer replaces the logs of the last one"),
            ("sst-special-dirs", "directories elsewhere always count"),
            ("wsrep-debug", "there are no such messages"),
            ("wsrep-log-dir", "messages go to the error log"),
            ("encrypt-algo", OF_ENCRYPT_1),
            ("encrypt-chunk-size", OF_ENCRYPT_1),
            ("encrypt-format", OF_ENCRYPT_1),
            ("encrypt-key", OF_ENCRYPT_1),
            ("encrypt-key-file", OF_ENCRYPT_1),
            ("encrypt-threads", OF_ENCRYPT_1),
        ] {
            if self.files.has(name) {
                remarks
                    .push(format!("option {name} has no effect with wsrep_sst_method=xbrs: {why}"));
            }
        }
        let progress = self.files.sst("progress").and_then(OsStr::to_str).unwrap_or_default();
        if !matches!(progress, "" | "0" | "1" | "none") {
            remarks.push("option progress has no effect with wsrep_sst_method=xbrs: progress goes to the error log".to_owned());
        }
        let mut unknown: Vec<&str> =
            self.files.sst_names().filter(|name| !KNOWN.contains(name)).collect();
        unknown.sort_unstable();
        unknown.dedup();
        for name in unknown {
            remarks.push(format!("unknown option {name} in [sst]"));
        }
    }

    /// Returns the value of `compress`, else the algorithm of a stock `compressor` command, else
    /// `auto`.
    pub(super) fn compress(&self, remarks: &mut Vec<String>) -> Result<Compression, SettingsError> {
        if let Some(text) = self.files.sst("compress") {
            let text = text.to_str().unwrap_or_default();
            if text.is_empty() || text == "quicklz" {
                return Err(refused(
                    "compress",
                    "use auto, none, lz4, snappy, gzip[:N] or zstd[:N]",
                ));
            }
            return text
                .parse()
                .map_err(|error: AlgorithmError| value("compress", &error.to_string()));
        }
        let Some(command) = self.files.sst("compressor") else {
            return Ok(Compression::Auto);
        };
        let words = shell_words::split(command.as_bytes());
        let words = words.map_err(|error| value("compressor", &error.to_string()))?;
        let found = like_command(&words).ok_or_else(|| {
            refused(
                "compressor",
                "commands are not run; set compress=none, lz4, snappy, gzip[:N] or zstd[:N]",
            )
        })?;
        remarks.push(format!("option compressor: the command is not run; using compress={found}"));
        Ok(found.into())
    }
}

/// Returns the algorithm that a compressor's command line uses.
fn like_command(words: &[OsString]) -> Option<Algorithm> {
    let program = std::path::Path::new(words.first()?).file_name()?.to_str()?;
    let level = words.iter().skip(1).find_map(|word| {
        let digits = word.to_str()?.strip_prefix('-')?;
        digits.parse::<u8>().ok().filter(|level| (1..=19).contains(level))
    });
    let name = match program {
        "gzip" | "pigz" => "gzip",
        "zstd" | "pzstd" | "zstdmt" => "zstd",
        "lz4" => return "lz4".parse().ok(),
        "snzip" => return "snappy".parse().ok(),
        "cat" => return "none".parse().ok(),
        _ => return None,
    };
    match level {
        Some(level) => format!("{name}:{level}").parse().ok(),
        None => name.parse().ok(),
    }
}
