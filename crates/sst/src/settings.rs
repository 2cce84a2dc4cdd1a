//! What an operator can set, under the stock names where there are any.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use xb_compressor::Algorithm;
use xb_producer::LockGuard;

use crate::args::{Args, Family};
use crate::files::OptionFiles;
use crate::keep::Keep;
use crate::secret::Login;
use crate::words;

/// Why the settings cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A value that the option cannot have.
    #[error("option {option}: {what}")]
    Value {
        /// The option's name in `[sst]`.
        option: String,
        /// What is wrong.
        what: String,
    },
    /// An option of the stock method that this one does not have, where ignoring it would be wrong.
    #[error("option {option} is not for wsrep_sst_method=xbrs: {instead}")]
    Refused {
        /// The option's name in `[sst]`.
        option: String,
        /// What to do instead.
        instead: String,
    },
}

/// How the wire is protected, as the stock options say it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// Certificate in PEM, with what leads to the authority.
    pub cert: Option<PathBuf>,
    /// Its key; `None`: in the same file.
    pub key: Option<PathBuf>,
    /// Certificates that are trusted.
    pub ca: Option<PathBuf>,
    /// Whether the peer's certificate must be proven: `ssl-mode=VERIFY_CA` or `VERIFY_IDENTITY`,
    /// or `encrypt=4`.
    pub verify: Verify,
    /// `wire-security=plain`: no TLS at all.
    pub plain: bool,
    /// `wire-security=any-donor`: a joiner takes a donor that cannot prove itself.
    pub any_donor: bool,
}

/// What a certificate must show.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Verify {
    /// Whatever else the transport demands.
    #[default]
    Unsaid,
    /// It leads to an authority that is trusted.
    Ca,
    /// And it names the host.
    Identity,
}

/// What is done with the old data of a joiner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Old {
    /// It stays in `.xb/old` until the server is up, or the next transfer.
    Kept,
    /// It goes as soon as the new data is in its place; and before that, if there is no room for
    /// both.
    Removed,
}

/// All settings.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Codec on the wire.
    pub compress: Algorithm,
    /// Threads for it on the donor.
    pub compress_threads: usize,
    /// Threads that write files on the joiner.
    pub write_threads: usize,
    /// Connections; `None`: the transport chooses.
    pub connections: Option<usize>,
    /// Protection of the wire.
    pub tls: Tls,
    /// Bytes per second on the wire.
    pub rlimit: Option<u64>,
    /// How long a joiner waits for its donor.
    pub initial_timeout: Duration,
    /// How long nothing may come or go.
    pub idle_timeout: Duration,
    /// How long a broken connection is tried again.
    pub resume_limit: Duration,
    /// The backup program.
    pub program: PathBuf,
    /// Threads that read on the donor.
    pub backup_threads: usize,
    /// More words for the three steps.
    pub backup_opts: Vec<OsString>,
    /// For `--prepare`.
    pub apply_opts: Vec<OsString>,
    /// Memory for `--prepare`, as it was written.
    pub use_memory: Option<OsString>,
    /// Who logs in for the backup.
    pub login: Option<Login>,
    /// TCP port of `extra-port`, if the backup is to use that.
    pub extra_port: Option<u16>,
    /// Folder for temporary files.
    pub tmpdir: Option<PathBuf>,
    /// What happens when the wire holds up a server that is locked.
    pub locks: LockGuard,
    /// Which names stay.
    pub keep: Keep,
    /// What is done with the old data.
    pub old: Old,
    /// Whether room on the joiner's disk is checked first.
    pub space_check: bool,
    /// Say how long each step took.
    pub time: bool,
    /// Time between lines about progress.
    pub progress_every: Duration,
    /// What is worth a word: options that have no effect here.
    pub remarks: Vec<String>,
}

/// Names in `[sst]` that mean something, here or in the stock methods.
const KNOWN: [&str; 75] = [
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
    "lock-stall",
    "ncsockopt",
    "progress",
    "progress-interval",
    "rebuild",
    "rlimit",
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

/// Time between lines about progress, where nothing is said.
const EVERY: Duration = Duration::from_secs(30);
/// Default size of the spool.
const SPOOL: u64 = 1 << 30;

impl Settings {
    /// Reads the settings. `login` is what the server handed over, `cores` how many the machine has.
    ///
    /// # Errors
    /// [`SettingsError`], the first one.
    pub fn read(
        args: &Args,
        files: &OptionFiles,
        login: Option<Login>,
        cores: usize,
    ) -> Result<Self, SettingsError> {
        let read = Reader { files, args };
        let mut remarks = Vec::new();
        let percona = args.family == Family::Percona;
        read.refuse()?;
        let compress = read.compress(&mut remarks)?;
        read.unused(&mut remarks);
        let program = files
            .sst("backup-program")
            .map(PathBuf::from)
            .unwrap_or_else(|| if percona { "xtrabackup".into() } else { "mariadb-backup".into() });
        let mut keep = match files.sst("cpat").and_then(OsStr::to_str) {
            Some(pattern) => Keep::pattern(pattern).map_err(|e| value("cpat", &e.to_string()))?,
            None => Keep::usual(percona).map_err(|e| value("cpat", &e.to_string()))?,
        };
        let datadir = args.datadir.clone().or_else(|| read.server("datadir").map(PathBuf::from));
        keep.within(&datadir.unwrap_or_else(|| ".".into()));
        for name in [
            "pid-file",
            "log-error",
            "socket",
            "general-log-file",
            "slow-query-log-file",
            "relay-log-info-file",
            "wsrep-status-file",
        ] {
            if let Some(path) = read.server(name) {
                keep.also(std::path::Path::new(path));
            }
        }
        let extra_port = read.extra_port()?;
        // A thread for each core, and no more than reading and the network take.
        let threads = cores.clamp(1, 4);
        Ok(Self {
            compress,
            compress_threads: read.number("compress-threads", 1..=256)?.unwrap_or(threads),
            write_threads: read.number("write-threads", 1..=256)?.unwrap_or(threads),
            connections: read.number("connections", 1..=16)?,
            tls: read.tls()?,
            rlimit: read.size("rlimit")?.filter(|rate| *rate > 0),
            initial_timeout: read
                .seconds(&["sst-initial-timeout", "joiner-timeout"])?
                .unwrap_or(Duration::from_secs(if percona { 100 } else { 300 })),
            idle_timeout: read.seconds(&["sst-idle-timeout"])?.unwrap_or(Duration::from_secs(600)),
            resume_limit: read.seconds(&["sst-resume-limit"])?.unwrap_or(Duration::from_secs(600)),
            program,
            backup_threads: read.any_number("backup-threads")?.unwrap_or(threads),
            backup_opts: read.words("inno-backup-opts")?,
            apply_opts: read.words("inno-apply-opts")?,
            use_memory: files
                .any("use-memory")
                .or_else(|| read.server("innodb-buffer-pool-size"))
                .filter(|value| !value.is_empty())
                .map(OsStr::to_owned),
            login: match files.sst("wsrep-sst-auth").and_then(OsStr::to_str) {
                Some(auth) => Login::parse(auth),
                None => login,
            },
            extra_port,
            tmpdir: read.tmpdir(),
            locks: LockGuard {
                spool_dir: read.spool_dir(),
                spool_size: read.size("spool-size")?.unwrap_or(SPOOL),
                lock_stall: match read.seconds(&["lock-stall"])? {
                    Some(Duration::ZERO) => None,
                    Some(limit) => Some(limit),
                    None => Some(Duration::from_secs(30)),
                },
            },
            keep,
            old: if read.switch("keep-old", true)? { Old::Kept } else { Old::Removed },
            space_check: read.switch("space-check", true)?,
            time: read.switch("time", false)?,
            progress_every: match read.seconds(&["progress-interval"])? {
                Some(every) => every.max(Duration::from_secs(1)),
                None if files.sst("progress") == Some(OsStr::new("1")) => Duration::from_secs(5),
                None => EVERY,
            },
            remarks,
        })
    }

    /// One line for the log: what the operator may want to check.
    #[must_use]
    pub fn describe(&self) -> String {
        let rate = self.rlimit.map_or(String::new(), |rate| format!(", at most {rate} bytes/s"));
        format!(
            "compress={} with {} threads, {} backup threads, {} write threads{rate}, idle limit {} s, resume limit {} s, old data {}",
            self.compress,
            self.compress_threads,
            self.backup_threads,
            self.write_threads,
            self.idle_timeout.as_secs(),
            self.resume_limit.as_secs(),
            match self.old {
                Old::Kept => "kept",
                Old::Removed => "removed",
            }
        )
    }
}

fn value(option: &str, what: &str) -> SettingsError {
    SettingsError::Value { option: option.into(), what: what.into() }
}

fn refused(option: &str, instead: &str) -> SettingsError {
    SettingsError::Refused { option: option.into(), instead: instead.into() }
}

struct Reader<'a> {
    files: &'a OptionFiles,
    args: &'a Args,
}

impl Reader<'_> {
    /// Options whose wish would not be fulfilled.
    fn refuse(&self) -> Result<(), SettingsError> {
        let text = |name| self.files.sst(name).and_then(OsStr::to_str).unwrap_or_default();
        match self.files.any("encrypt").and_then(OsStr::to_str).unwrap_or("0") {
            "1" => {
                return Err(refused(
                    "encrypt=1",
                    "its cipher is not authenticated; leave it away, TLS 1.3 is always on",
                ));
            }
            "" | "0" | "2" | "3" | "4" => {}
            _ => return Err(value("encrypt", "0, 2, 3 or 4 is expected")),
        }
        if text("streamfmt") == "tar" {
            return Err(refused(
                "streamfmt=tar",
                "the stream is always an xbstream; leave it away",
            ));
        }
        Ok(())
    }

    /// Options without an effect.
    fn unused(&self, remarks: &mut Vec<String>) {
        for (name, why) in [
            ("transferfmt", "one program does the transfer"),
            ("sockopt", "there is no socat"),
            ("ssl-dhparams", "TLS 1.3 has none"),
            ("decompressor", "the joiner sees by itself what to undo"),
            ("inno-move-opts", "files are renamed"),
            ("sst-syslog", "messages go to the error log"),
            ("rebuild", "indexes are left as they are"),
            ("compress-chunk-size", "frames have a size of their own"),
        ] {
            if self.files.has(name) {
                remarks
                    .push(format!("option {name} has no effect with wsrep_sst_method=xbrs: {why}"));
            }
        }
        let progress = self.files.sst("progress").and_then(OsStr::to_str).unwrap_or_default();
        if !matches!(progress, "" | "0" | "1" | "none") {
            remarks.push("option progress: lines about progress go to the error log".to_owned());
        }
        let mut unknown: Vec<&str> =
            self.files.sst_names().filter(|name| !KNOWN.contains(name)).collect();
        unknown.sort_unstable();
        unknown.dedup();
        for name in unknown {
            remarks.push(format!("option {name} in [sst] is not known"));
        }
    }

    /// `compress`, else what a stock `compressor` command would do.
    fn compress(&self, remarks: &mut Vec<String>) -> Result<Algorithm, SettingsError> {
        let usual = "zstd:1".parse().unwrap_or_default();
        if let Some(text) = self.files.sst("compress") {
            let text = text.to_str().unwrap_or_default();
            if text.is_empty() || text == "quicklz" {
                return Err(refused(
                    "compress",
                    "name one of none, lz4, snappy, gzip[:N], zstd[:N]",
                ));
            }
            return text.parse().map_err(|error: xb_compressor::AlgorithmError| {
                value("compress", &error.to_string())
            });
        }
        let Some(command) = self.files.sst("compressor") else { return Ok(usual) };
        let words = words::split(std::os::unix::ffi::OsStrExt::as_bytes(command));
        let words = words.map_err(|error| value("compressor", &error.to_string()))?;
        let found = like_command(&words).ok_or_else(|| {
            refused(
                "compressor",
                "no command is run here; say compress=none, lz4, snappy, gzip[:N] or zstd[:N]",
            )
        })?;
        remarks.push(format!("option compressor: no command is run, taken for compress={found}"));
        Ok(found)
    }

    fn tls(&self) -> Result<Tls, SettingsError> {
        let role = match self.args.role {
            crate::args::Role::Joiner => "server",
            crate::args::Role::Donor => "client",
        };
        // The old names win, then those of the role, then the server's own.
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
        // In mode 3 the peer is checked only if its authority is named for that.
        let checks = matches!(encrypt, "2" | "4") || (encrypt == "3" && self.files.has("tca"));
        let verify = match mode.as_str() {
            "VERIFY_IDENTITY" => Verify::Identity,
            "VERIFY_CA" => Verify::Ca,
            "" | "DISABLED" | "PREFERRED" | "REQUIRED" if checks => Verify::Ca,
            "" | "DISABLED" | "PREFERRED" | "REQUIRED" => Verify::Unsaid,
            _ => {
                let what = "DISABLED, REQUIRED, VERIFY_CA or VERIFY_IDENTITY is expected";
                return Err(value("ssl-mode", what));
            }
        };
        if self.files.has("tcapath") || self.files.has("ssl-capath") {
            return Err(refused(
                "tcapath",
                "name one file with all certificates of authorities by tca",
            ));
        }
        // A server's certificate for its clients is not meant for this unless somebody says so.
        let names = ["tcert", "ssl-cert", "ssl-server-cert", "ssl-client-cert"];
        let wanted = matches!(encrypt, "2" | "3" | "4")
            || !matches!(mode.as_str(), "" | "DISABLED")
            || names.iter().any(|name| self.files.has(name));
        let (mut plain, mut any_donor) = (false, false);
        match self.files.sst("wire-security").and_then(OsStr::to_str) {
            None | Some("tls") => {}
            Some("plain") => plain = true,
            Some("any-donor") => any_donor = true,
            Some(_) => return Err(value("wire-security", "tls, any-donor or plain is expected")),
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

    fn extra_port(&self) -> Result<Option<u16>, SettingsError> {
        if !self.switch("use-extra", false)? {
            return Ok(None);
        }
        let port = self.server("extra-port").and_then(OsStr::to_str).and_then(|p| p.parse().ok());
        let port = port.filter(|port| *port != 0);
        port.map(Some).ok_or_else(|| value("use-extra", "the server has no extra-port"))
    }

    fn spool_dir(&self) -> Option<PathBuf> {
        match self.files.sst("spool-dir") {
            Some(none) if none == "none" || none.is_empty() => None,
            Some(dir) => Some(dir.into()),
            None => Some(self.tmpdir().unwrap_or_else(std::env::temp_dir)),
        }
    }

    /// The first of the folders: servers take a list.
    fn tmpdir(&self) -> Option<PathBuf> {
        use std::os::unix::ffi::OsStrExt as _;
        let list = self.files.any_path("tmpdir")?;
        let first = list.as_os_str().as_bytes().split(|byte| *byte == b':').next()?;
        (!first.is_empty()).then(|| OsStr::from_bytes(first).into())
    }

    /// A server's option: on its command line, else in its groups.
    fn server(&self, name: &str) -> Option<&OsStr> {
        self.args.server_option(name).or_else(|| self.files.server(name))
    }

    fn words(&self, name: &str) -> Result<Vec<OsString>, SettingsError> {
        let text = self.files.any(name).unwrap_or_default();
        words::split(std::os::unix::ffi::OsStrExt::as_bytes(text))
            .map_err(|error| value(name, &error.to_string()))
    }

    fn number(
        &self,
        name: &str,
        range: std::ops::RangeInclusive<usize>,
    ) -> Result<Option<usize>, SettingsError> {
        self.files.sst(name).map(|text| parse_number(name, text, range)).transpose()
    }

    fn any_number(&self, name: &str) -> Result<Option<usize>, SettingsError> {
        self.files.any(name).map(|text| parse_number(name, text, 1..=256)).transpose()
    }

    fn seconds(&self, names: &[&str]) -> Result<Option<Duration>, SettingsError> {
        let found = names.iter().find_map(|name| Some((*name, self.files.sst(name)?)));
        let Some((name, text)) = found else { return Ok(None) };
        let seconds = parse_number(name, text, 0..=10_000_000)?;
        Ok(Some(Duration::from_secs(seconds as u64)))
    }

    fn size(&self, name: &str) -> Result<Option<u64>, SettingsError> {
        let Some(text) = self.files.sst(name) else { return Ok(None) };
        let size = text.to_str().and_then(parse_size);
        size.map(Some)
            .ok_or_else(|| value(name, "a number with K, M, G or T behind it is expected"))
    }

    fn switch(&self, name: &str, otherwise: bool) -> Result<bool, SettingsError> {
        if !self.files.has(name) {
            return Ok(otherwise);
        }
        let text = self.files.sst(name).unwrap_or(OsStr::new("1"));
        match text.to_str().unwrap_or_default().to_ascii_lowercase().as_str() {
            "1" | "on" | "yes" | "true" => Ok(true),
            "0" | "off" | "no" | "false" => Ok(false),
            _ => Err(value(name, "yes or no is expected")),
        }
    }
}

fn parse_number(
    name: &str,
    text: &OsStr,
    range: std::ops::RangeInclusive<usize>,
) -> Result<usize, SettingsError> {
    let number = text.to_str().and_then(|text| text.trim().parse().ok());
    number.filter(|n| range.contains(n)).ok_or_else(|| {
        value(name, &format!("a number from {} to {} is expected", range.start(), range.end()))
    })
}

/// A size with a unit, powers of 1024, as the servers' options and `pv` have it.
fn parse_size(text: &str) -> Option<u64> {
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

/// What a compressor's command line would do.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(options: &[(&str, &str)]) -> Result<Settings, SettingsError> {
        let words = "--role joiner --address h --datadir /d/ --mysqld-args --socket=/d/my.sock";
        let words: Vec<_> = words.split(' ').collect();
        let args = Args::parse(&words.into_iter().map(OsString::from).collect::<Vec<_>>()).unwrap();
        let own = |(key, v): &(&str, &str)| {
            let (group, key) = key.split_once('/').unwrap_or(("sst", key));
            (group.to_owned(), key.to_owned(), Some(OsString::from(v)))
        };
        Settings::read(&args, &OptionFiles::new(options.iter().map(own), None), None, 2)
    }

    #[test]
    fn defaults_are_those_of_the_design() {
        let settings = read(&[]).unwrap();
        assert_eq!(settings.compress.to_string(), "zstd:1");
        assert_eq!((settings.compress_threads, settings.backup_threads), (2, 2));
        assert_eq!(settings.initial_timeout, Duration::from_secs(300));
        assert_eq!(settings.locks.lock_stall, Some(Duration::from_secs(30)));
        assert_eq!((settings.old, settings.space_check), (Old::Kept, true));
        assert!(settings.keep.keeps(b"my.sock") && !settings.keep.keeps(b"ibdata1"));
        assert!(settings.remarks.is_empty() && settings.login.is_none());
    }

    #[test]
    fn of_a_list_of_folders_the_first_counts() {
        let settings = read(&[("mysqld/tmpdir", "/fast:/slow")]).unwrap();
        assert_eq!(settings.tmpdir, Some("/fast".into()));
        assert_eq!(settings.locks.spool_dir, Some("/fast".into()));
    }

    #[test]
    fn stock_options_are_mapped() {
        let settings = read(&[
            ("compressor", "zstd -3 -T2"),
            ("decompressor", "zstd -d"),
            ("inno-backup-opts", "--galera-info '--tables=a b'"),
            ("mysqld/innodb_buffer_pool_size", "512M"),
            ("mysqld/extra_port", "3307"),
            ("use-extra", "1"),
            ("rlimit", "50m"),
            ("wsrep-sst-auth", "sst:secret"),
            ("keep-old", "no"),
            ("progress", "1"),
            ("tcert", "/c.pem"),
            ("mysqld/ssl-ca", "/ca.pem"),
            ("encrypt", "4"),
        ])
        .unwrap();
        assert_eq!(settings.compress.to_string(), "zstd:3");
        assert_eq!(settings.backup_opts, ["--galera-info", "--tables=a b"]);
        assert_eq!(settings.use_memory, Some("512M".into()));
        assert_eq!((settings.extra_port, settings.rlimit), (Some(3307), Some(50 << 20)));
        assert_eq!(settings.old, Old::Removed);
        assert_eq!(settings.progress_every, Duration::from_secs(5));
        assert_eq!(settings.tls.cert, Some("/c.pem".into()));
        assert_eq!(settings.tls.ca, Some("/ca.pem".into()));
        assert_eq!(settings.tls.verify, Verify::Ca);
        assert!(!format!("{settings:?}").contains("secret"));
        assert_eq!(settings.remarks.len(), 2, "{:?}", settings.remarks);
        for (command, expected) in [
            ("gzip", "gzip:3"),
            ("pigz -6", "gzip:6"),
            ("/usr/bin/lz4", "lz4"),
            ("snzip", "snappy"),
        ] {
            assert_eq!(read(&[("compressor", command)]).unwrap().compress.to_string(), expected);
        }
    }

    #[test]
    fn what_has_no_effect_or_no_meaning_is_named() {
        let settings = read(&[
            ("sockopt", ",x"),
            ("compres", "lz4"),
            ("progress", "/fifo"),
            ("loose-time", "1"),
        ]);
        let remarks = settings.unwrap().remarks;
        assert_eq!(remarks.len(), 3, "{remarks:?}");
        for name in ["sockopt", "compres ", "progress"] {
            assert!(remarks.iter().any(|remark| remark.contains(name)), "{name}: {remarks:?}");
        }
    }

    #[test]
    fn what_would_not_be_done_is_refused() {
        for (option, given) in [
            ("encrypt", "1"),
            ("encrypt", "5"),
            ("streamfmt", "tar"),
            ("compressor", "sh -c reboot"),
            ("compressor", "gzip '"),
            ("compress", "quicklz"),
            ("compress", "zstd:99"),
            ("ssl-mode", "MAYBE"),
            ("wire-security", "none"),
            ("use-extra", "1"),
            ("compress-threads", "0"),
            ("rlimit", "fast"),
            ("keep-old", "perhaps"),
            ("cpat", "["),
        ] {
            let error = read(&[(option, given)]).unwrap_err().to_string();
            assert!(error.contains(option), "{option}={given}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_value_is_read_or_refused(
            name in prop::sample::select(vec!["compress", "compressor", "rlimit", "cpat", "encrypt", "ssl-mode", "backup-threads", "lock-stall", "inno-apply-opts", "wsrep-sst-auth", "keep-old", "spool-size"]),
            text in "\\PC{0,20}|[0-9]{0,25}[kKmMgGtT]?",
        ) {
            let _ = read(&[(name, text.as_str())]);
        }
    }
}
