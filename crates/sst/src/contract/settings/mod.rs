//! The operator's settings, under the stock option names where these exist.

mod created_files;
mod delta_wish;
mod error;
mod keys;
mod own_files;
mod reader;
mod second_start;
mod stock;
#[cfg(test)]
mod tests;
mod tls;

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use xb_compressor::Compression;
use xb_process::LockGuard;

pub use self::created_files::{CreatedTablespaces, RedoLog};
pub use self::delta_wish::DeltaWish;
pub use self::error::SettingsError;
pub use self::keys::KeyOptions;
pub(crate) use self::keys::key_file;
use self::reader::Reader;
pub use self::second_start::SecondStart;
pub use self::tls::{Tls, TlsFiles, Verify};
use crate::contract::args::{Args, Product};
use crate::contract::keep_patterns::Keep;
use crate::contract::login::Login;
use crate::contract::option_files::OptionFiles;

/// Treatment of the joiner's old data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Old {
    /// It stays in `#sql-xb/.old` until the server has started, or until the next transfer.
    Kept,
    /// It is deleted once the new data is in place, or earlier if there is no room for both.
    Removed,
}

/// All settings.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Codec on the wire.
    pub compress: Compression,
    /// Whether to leave out what the joiner has.
    pub delta: DeltaWish,
    /// Compression threads on the donor.
    pub compress_threads: usize,
    /// Threads that write files on the joiner.
    pub write_threads: usize,
    /// Number of connections; `None`: the transport chooses.
    pub connections: Option<usize>,
    /// TLS settings of the connections.
    pub tls: Tls,
    /// Rate limit in bytes per second.
    pub rlimit: Option<u64>,
    /// Time for which a joiner waits for its donor.
    pub initial_timeout: Duration,
    /// Time for which the connection may be idle.
    pub idle_timeout: Duration,
    /// Time for which a broken connection is retried.
    pub resume_limit: Duration,
    /// The backup program.
    pub program: PathBuf,
    /// Reading threads on the donor.
    pub backup_threads: usize,
    /// Extra options for all three backup steps.
    pub backup_opts: Vec<OsString>,
    /// Extra options for `--prepare`.
    pub apply_opts: Vec<OsString>,
    /// Memory for `--prepare`, as written in the option file; if not, by the size of the redo log and
    /// the memory that is available.
    pub use_memory: Option<OsString>,
    /// Lines of an option file for `--prepare`: where this node has the keys of encrypted tables.
    /// They may hold secrets.
    pub key_options: KeyOptions,
    /// User and password for the backup.
    pub login: Option<Login>,
    /// TCP port of `extra-port`, if the backup must use it.
    pub extra_port: Option<u16>,
    /// Directory for temporary files.
    pub tmpdir: Option<PathBuf>,
    /// The server's own one.
    pub server_tmpdir: Option<PathBuf>,
    /// Behaviour when a slow transfer blocks a locked server.
    pub locks: LockGuard,
    /// Names that stay in the data directory.
    pub keep: Keep,
    /// Whether the server knows names in lower case only.
    pub lower_case_names: bool,
    /// Whether write sets carry GTIDs of the cluster (`wsrep_gtid_mode`).
    pub cluster_gtids: bool,
    /// Treatment of the old data.
    pub old: Old,
    /// Whether to check the free space on the joiner first.
    pub space_check: bool,
    /// Size of the redo log that the server creates.
    pub redo_log: RedoLog,
    /// Tablespaces that the server creates.
    pub created_tablespaces: CreatedTablespaces,
    /// Whether a donor may change its server's `wsrep_sst_method` for the time of the backup.
    pub keep_replicating: bool,
    /// Start of a joiner's server on the received data.
    pub second_start: SecondStart,
    /// Log how long each step took.
    pub time: bool,
    /// Directory for the report of each transfer.
    pub report_dir: Option<PathBuf>,
    /// Time between progress lines.
    pub progress_every: Duration,
    /// Warnings about options that have no effect here.
    pub remarks: Vec<String>,
}

/// In effect no limit: a hundred years.
const NO_LIMIT: Duration = Duration::from_secs(100 * 365 * 86_400);
/// Default time between progress lines.
const EVERY: Duration = Duration::from_secs(30);

/// Returns the backup program, by name or path.
pub(crate) fn backup_program(args: &Args, files: &OptionFiles) -> PathBuf {
    let usual = match args.product {
        Product::MariaDb => "mariadb-backup",
        Product::Percona => "xtrabackup",
    };
    files.sst("backup-program").map_or_else(|| usual.into(), PathBuf::from)
}

impl Settings {
    /// Reads the settings. `login` is what the server handed over, `cores` the machine's number of
    /// cores.
    ///
    /// # Errors
    /// The first [`SettingsError`].
    pub fn read(
        args: &Args,
        files: &OptionFiles,
        login: Option<Login>,
        cores: usize,
    ) -> Result<Self, SettingsError> {
        let read = Reader { files, args };
        let mut remarks = Vec::new();
        let percona = args.product == Product::Percona;
        read.refuse()?;
        let compress = read.compress(&mut remarks)?;
        read.unused(&mut remarks);
        // One thread per core, but no more than reading and the network can use.
        let threads = cores.clamp(1, 4);
        Ok(Self {
            compress,
            delta: read.delta()?,
            compress_threads: read.number("compress-threads", 1..=256)?.unwrap_or(threads),
            write_threads: read.number("write-threads", 1..=256)?.unwrap_or(threads),
            connections: read.number("connections", 1..=16)?,
            tls: read.tls()?,
            rlimit: read.size("rlimit")?.filter(|rate| *rate > 0),
            initial_timeout: match read.seconds(&["sst-initial-timeout", "joiner-timeout"])? {
                Some(Duration::ZERO) => NO_LIMIT,
                Some(limit) => limit,
                None => Duration::from_secs(if percona { 100 } else { 300 }),
            },
            idle_timeout: read.seconds(&["sst-idle-timeout"])?.unwrap_or(Duration::from_secs(600)),
            resume_limit: read.seconds(&["sst-resume-limit"])?.unwrap_or(Duration::from_secs(600)),
            program: backup_program(args, files),
            backup_threads: read.any_number("backup-threads")?.unwrap_or(threads),
            backup_opts: read.words("inno-backup-opts")?,
            apply_opts: read.words("inno-apply-opts")?,
            use_memory: files
                .any("use-memory")
                .filter(|value| !value.is_empty())
                .map(OsStr::to_owned),
            key_options: KeyOptions::of(files, &read.datadir()),
            login: read.text("wsrep-sst-auth")?.map_or(login, |text| Login::parse(text.as_ref())),
            extra_port: read.extra_port()?,
            tmpdir: read.tmpdir(),
            server_tmpdir: read.server_tmpdir(),
            locks: read.locks()?,
            keep: read.keep(percona)?,
            lower_case_names: read.lower_case_names(),
            cluster_gtids: read.cluster_gtids(),
            old: if read.switch("keep-old", true)? { Old::Kept } else { Old::Removed },
            space_check: read.switch("space-check", true)?,
            redo_log: read.redo_log(),
            created_tablespaces: read.created_tablespaces(),
            keep_replicating: read.switch("keep-replicating", true)?,
            second_start: read.second_start()?,
            time: read.switch("time", false)?,
            report_dir: files.sst("report-dir").filter(|dir| !dir.is_empty()).map(PathBuf::from),
            progress_every: match read.seconds(&["progress-interval"])? {
                Some(every) => every.max(Duration::from_secs(1)),
                None if files.sst("progress") == Some(OsStr::new("1")) => Duration::from_secs(5),
                None => EVERY,
            },
            remarks,
        })
    }

    /// Returns one line for the log, with the settings that the operator may want to check.
    #[must_use]
    pub fn describe(&self) -> String {
        let rate = self.rlimit.map_or(String::new(), |rate| format!(", at most {rate} bytes/s"));
        format!(
            "compress={}, delta={}, compress-threads={}, backup-threads={}, write-threads={}{rate}, idle limit {} s, resume limit {} s, old data {}",
            self.compress,
            self.delta,
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
