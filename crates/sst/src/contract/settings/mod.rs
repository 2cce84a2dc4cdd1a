//! What an operator can set, under the stock names where there are any.

mod error;
mod keys;
mod reader;
mod stock;
#[cfg(test)]
mod tests;
mod tls;

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use xb_compressor::Algorithm;
use xb_process::LockGuard;

pub use self::error::SettingsError;
pub use self::keys::KeyOptions;
use self::reader::{Reader, value};
pub use self::tls::{Tls, Verify};
use crate::contract::args::{Args, Family};
use crate::contract::keep_patterns::Keep;
use crate::contract::login::Login;
use crate::contract::option_files::OptionFiles;

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
    /// Lines of an option file for `--prepare`: where this node has the keys of encrypted tables.
    /// There may be secrets in them.
    pub key_options: KeyOptions,
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

/// Time between lines about progress, where nothing is said.
const EVERY: Duration = Duration::from_secs(30);

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
            key_options: KeyOptions::of(files),
            login: match files.sst("wsrep-sst-auth").and_then(OsStr::to_str) {
                Some(auth) => Login::parse(auth),
                None => login,
            },
            extra_port,
            tmpdir: read.tmpdir(),
            locks: read.locks()?,
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
